#include "internal.h"
#include "test.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

typedef struct counts {
    _Atomic int times[1000];
    _Atomic int bad_worker, busy[16];
    int threads;
} counts;

static void count(void *ctx, int64_t task, int worker)
{
    counts *c = ctx;
    if (worker < 0 || worker >= c->threads || atomic_fetch_add(&c->busy[worker], 1) != 0)
        c->bad_worker++;
    c->times[task]++;
    c->busy[worker]--;
}

TEST(every_task_is_done_once_and_no_worker_number_twice_at_a_time)
{
    for (int threads = 1; threads <= 5; threads++) {
        ares_pool *p = ares_pool_new(threads);
        CHECK_EQ(ares_pool_threads(p), threads);
        static counts c;
        memset(&c, 0, sizeof c);
        c.threads = threads;
        int64_t runs = 0;
        for (int round = 0; round < 300; round++)
            for (int64_t n = 0; n <= 1000; n = n * 2 + 1, runs++) {
                ares_pool_run(p, n, count, &c);
                for (int64_t i = 0; i < n; i++)
                    c.times[i]--; /* the run has returned: every task must be done */
                for (int64_t i = 0; i < n; i++)
                    if (c.times[i] != 0) c.bad_worker++;
            }
        CHECK_EQ(c.bad_worker, 0);
        ares_pool_free(p);
    }
}

TEST(no_pool_is_a_pool_of_one)
{
    static counts c;
    memset(&c, 0, sizeof c);
    c.threads = 1;
    ares_pool_run(NULL, 10, count, &c);
    CHECK_EQ(c.times[9], 1);
    CHECK_EQ(c.bad_worker, 0);
    CHECK_EQ(ares_pool_threads(NULL), 1);
    ares_pool_free(NULL);
}

typedef struct meeting {
    _Atomic int inside, most;
} meeting;

static void meet(void *ctx, int64_t task, int worker)
{
    (void)task, (void)worker;
    meeting *m = ctx;
    int now = atomic_fetch_add(&m->inside, 1) + 1;
    for (int most = m->most; now > most && !atomic_compare_exchange_weak(&m->most, &most, now);) {}
    while (m->most < 3) sleep_ms(1); /* if three never run at once, the runner ends the test */
    m->inside--;
}

TEST(tasks_run_at_the_same_time_on_all_threads)
{
    ares_pool *p = ares_pool_new(3);
    for (int pause_ms = 0; pause_ms < 2;
         pause_ms++) { /* workers that spin, and workers that sleep */
        meeting m = { 0 };
        sleep_ms(pause_ms * 20);
        ares_pool_run(p, 3, meet, &m);
        CHECK_EQ(m.most, 3);
    }
    ares_pool_free(p);
}

typedef struct nest {
    ares_pool *pool;
    _Atomic int done, wrong;
} nest;
typedef struct inner {
    nest *nest;
    int worker;
    int64_t next;
} inner;

static void inner_task(void *ctx, int64_t task, int worker)
{
    inner *i = ctx;
    if (task != i->next++ || worker != i->worker) i->nest->wrong++;
    i->nest->done++;
}

static void outer_task(void *ctx, int64_t task, int worker)
{
    (void)task;
    nest *n = ctx;
    inner i = { n, worker, 0 };
    ares_pool_run(n->pool, 20, inner_task, &i);
}

TEST(a_run_inside_a_task_is_serial_and_keeps_the_worker)
{
    nest n = { .pool = ares_pool_new(3) };
    for (int i = 0; i < 50; i++) ares_pool_run(n.pool, 10, outer_task, &n);
    CHECK_EQ(n.done, 50 * 10 * 20);
    CHECK_EQ(n.wrong, 0);
    ares_pool_free(n.pool);
}

typedef struct posts {
    ares_pool *pool;
    _Atomic int done, children;
} posts;

static void child_job(void *ctx)
{
    ((posts *)ctx)->children++;
}

static void parent_job(void *ctx)
{
    posts *p = ctx;
    p->done++;
    if (p->done % 10 == 0) ares_pool_post(p->pool, child_job, p);
}

TEST(drain_ends_every_posted_job_and_those_they_post)
{
    for (int threads = 1; threads <= 3; threads++) {
        posts s = { .pool = ares_pool_new(threads) };
        for (int round = 0; round < 20; round++) {
            int before = s.done;
            for (int i = 0; i < 100; i++) ares_pool_post(s.pool, parent_job, &s);
            static counts c;
            memset(&c, 0, sizeof c);
            c.threads = threads;
            ares_pool_run(s.pool, 500, count, &c);
            CHECK_EQ(c.bad_worker, 0);
            ares_pool_drain(s.pool);
            if (!CHECK_EQ(s.done, before + 100)) return;
        }
        CHECK(s.children > 0);
        ares_pool_post(s.pool, parent_job, &s);
        ares_pool_free(s.pool); /* runs the jobs that are left */
        CHECK_EQ(s.done, 2001);
    }
}

TEST(an_idle_thread_takes_a_posted_job_by_itself)
{
    posts s = { .pool = ares_pool_new(2) };
    for (int round = 0; round < 2; round++) {
        sleep_ms(20); /* asleep by now */
        ares_pool_post(s.pool, child_job, &s);
        while (s.children == round) sleep_ms(1);
        CHECK_EQ(s.children, round + 1);
    }
    ares_pool_free(s.pool);
}

/*
 * The number of the other threads of this process, and how often they left a CPU, willingly or not;
 * -1 when one of them is running.
 */
static long switches(int *threads)
{
    ares_str out = { 0 };
    long sum = 0;
    int running = 0;
    *threads = 0;
    CHECK_EQ(test_shell(&out,
                        "for t in /proc/%d/task/*; do [ ${t##*/} = %d ] || awk '/^State/ { s = $2 "
                        "} /ctxt_switches/ { n += $2 } END { print s, n }' $t/status; done",
                        getpid(), getpid()),
             0);
    for (char *line = strtok(out.data, "\n"); line; line = strtok(NULL, "\n"), ++*threads) {
        running += *line != 'S';
        sum += atol(line + 1);
    }
    ares_str_fini(&out);
    return running ? -1 : sum;
}

TEST(an_idle_pool_falls_asleep_and_stays_so)
{
    ares_pool *p = ares_pool_new(4);
    static counts c;
    int threads;
    c.threads = 4;
    for (int i = 0; i < 100; i++) ares_pool_run(p, 100, count, &c);
    long before;
    /* if threads spin for ever, the runner ends the test */
    while ((before = switches(&threads)) < 0) {}
    CHECK_EQ(threads, 3);
    sleep_ms(100);
    CHECK_EQ(switches(&threads), before); /* no thread woke in between */
    ares_pool_free(p);
}

/* Workers must leave signals to the main thread, because a handler may rely on running there. */
static void signals_blocked(void *ctx, int64_t task, int worker)
{
    (void)task;
    ares_str status = { 0 };
    if (worker > 0 && ares_file_read("/proc/thread-self/status", &status) == ARES_OK) {
        const char *mask = strstr(status.data, "SigBlk:");
        if (mask && (strtoull(mask + 7, NULL, 16) & 0x4002) == 0x4002)
            *(_Atomic int *)ctx = 1; /* SIGINT, SIGTERM; the worker may get both tasks */
    }
    while (worker == 0 && *(_Atomic int *)ctx == 0) sleep_ms(1);
    ares_str_fini(&status);
}

TEST(workers_take_no_signals)
{
    ares_pool *p = ares_pool_new(2);
    _Atomic int blocked = 0;
    ares_pool_run(p, 2, signals_blocked, &blocked);
    CHECK_EQ(blocked, 1);
    ares_pool_free(p);
}

static int cpus_of(const char *membership)
{
    CHECK_OK(ares_file_write(test_file("cgroup"), membership, strlen(membership)));
    return core_cgroup_cpus(test_file("cgroup"), test_file("fs"));
}

static void put(const char *folder, const char *name, const char *text)
{
    ares_str path = { 0 };
    CHECK_OK(ares_dir_make(test_file(folder)));
    ares_path_join(&path, test_file(folder), name);
    CHECK_OK(ares_file_write(path.data, text, strlen(text)));
    ares_str_fini(&path);
}

TEST(cgroup_quotas_of_both_versions_count_at_every_level)
{
    put("fs/pod/box", "cpu.max", "max 100000\n");
    put("fs/pod", "cpu.max", "250000 100000\n");
    put("fs/other", "cpu.max", "20000 100000\n");
    CHECK_EQ(cpus_of("0::/pod/box\n"), 3); /* 2.5, from the parent */
    CHECK_EQ(cpus_of("0::/other\n"), 1);   /* 0.2, and at least 1 */
    CHECK_EQ(cpus_of("0::/\n"), INT_MAX);
    CHECK_EQ(cpus_of("0::/not/here\n"), INT_MAX); /* the host's path, as a container sees it */
    put("fs/cpu/docker/x", "cpu.cfs_quota_us", "400000\n");
    put("fs/cpu/docker/x", "cpu.cfs_period_us", "200000\n");
    put("fs/cpu", "cpu.cfs_quota_us", "-1\n");
    put("fs/cpu", "cpu.cfs_period_us", "100000\n");
    CHECK_EQ(cpus_of("4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/\n"), 2);
    CHECK_EQ(cpus_of("4:memory:/docker/x\n3:cpuset:/docker/x\n"), INT_MAX);
    CHECK_EQ(cpus_of("3:cpu:/\n"), INT_MAX);
    put("fs/cpu", "cpu.cfs_quota_us", "100000\n");
    CHECK_EQ(cpus_of("3:cpu:/the/hosts/path\n"), 1);
    CHECK_EQ(core_cgroup_cpus(test_file("absent"), test_file("fs")), INT_MAX);
}

TEST(cgroup_limits_of_memory_count_at_every_level)
{
    put("fs/pod/box", "memory.max", "max\n");
    put("fs/pod", "memory.max", "8589934592\n");
    CHECK_OK(ares_file_write(test_file("cgroup"), "0::/pod/box\n", 12));
    /* the parent's */
    CHECK_NEAR(core_cgroup_memory(test_file("cgroup"), test_file("fs")), 8589934592.0, 0);
    put("fs/memory/docker", "memory.limit_in_bytes", "4294967296\n");
    CHECK_OK(ares_file_write(test_file("cgroup"), "4:memory:/docker\n0::/\n", 22));
    CHECK_NEAR(core_cgroup_memory(test_file("cgroup"), test_file("fs")), 4294967296.0, 0);
    CHECK_NEAR(core_cgroup_memory(test_file("absent"), test_file("fs")), (double)INFINITY, 0);
    CHECK(ares_memory_bytes() > 1e8 && ares_memory_bytes() >= (double)ares_peak_memory_bytes());
}

TEST(cgroup_memory_that_is_free_leaves_out_idle_pages_of_files)
{
    put("fs/pod/box", "memory.max", "max\n");
    put("fs/pod/box", "memory.current", "900\n");
    put("fs/pod", "memory.max", "1000000\n");
    put("fs/pod", "memory.current", "700000\n");
    put("fs/pod", "memory.stat", "anon 500000\ninactive_file 150000\nactive_file 50000\n");
    CHECK_OK(ares_file_write(test_file("cgroup"), "0::/pod/box\n", 12));
    CHECK_NEAR(core_cgroup_free(test_file("cgroup"), test_file("fs")), 450000.0, 0);
    put("fs/pod", "memory.current", "2000000\n"); /* a limit that was lowered */
    CHECK_NEAR(core_cgroup_free(test_file("cgroup"), test_file("fs")), 0.0, 0);
    put("fs/memory/docker", "memory.limit_in_bytes", "1000\n");
    put("fs/memory/docker", "memory.usage_in_bytes", "400\n");
    put("fs/memory/docker", "memory.stat", "inactive_file 1\ntotal_inactive_file 100\n");
    CHECK_OK(ares_file_write(test_file("cgroup"), "4:memory:/docker\n0::/\n", 22));
    CHECK_NEAR(core_cgroup_free(test_file("cgroup"), test_file("fs")), 700.0, 0);
    CHECK_NEAR(core_cgroup_free(test_file("absent"), test_file("fs")), (double)INFINITY, 0);
    CHECK(ares_memory_free_bytes() > 1e6 && ares_memory_free_bytes() <= ares_memory_bytes());
}

TEST(cpu_count_follows_the_affinity_mask)
{
    cpu_set_t before, one;
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    CHECK(ares_cpu_count() >= 1 && ares_cpu_count() <= CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &before)) {
            CPU_SET(i, &one);
            break;
        }
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK_EQ(ares_cpu_count(), 1);
    sched_setaffinity(0, sizeof before, &before);
}
