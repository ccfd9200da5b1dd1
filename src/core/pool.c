/*
 * Threads and time: how many CPUs and how much memory a process may use, the clock, the one
 * thread pool.
 */
#include "internal.h"

#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ares/core.h"

/*
 * How many CPUs and how much memory this process may use. A container often sees all of the
 * machine's but may use only a part. One thread too many is worse than one too few: when the CPU
 * quota is used up, the whole process stops until the next period.
 */

/* First and second number of <folder>/<name>; a word such as "max" reads as -1. */
static bool read_numbers(const char *folder, const char *name, double *first, double *second)
{
    char path[PATH_MAX], text[64] = "";
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    char *end = text;
    *first = strtod(text, &end);
    if (end == text) *first = -1;
    *second = strtod(strchr(text, ' ') ? strchr(text, ' ') : "", NULL);
    return read;
}

/* CPUs that one control group allows, by quota per period; infinite: it sets no limit. */
static double folder_cpus(const char *folder)
{
    double quota, period, unused;
    if (read_numbers(folder, "cpu.max", &quota, &period))
        return quota > 0 && period > 0 ? quota / period : INFINITY;
    if (read_numbers(folder, "cpu.cfs_quota_us", &quota, &unused) && quota > 0 &&
        read_numbers(folder, "cpu.cfs_period_us", &period, &unused) && period > 0)
        return quota / period;
    return INFINITY;
}

/* Where there is no limit, version 1 gives a number of bytes that no machine has. */
static double folder_memory(const char *folder)
{
    double bytes, unused;
    if (!read_numbers(folder, "memory.max", &bytes, &unused) &&
        !read_numbers(folder, "memory.limit_in_bytes", &bytes, &unused))
        return INFINITY;
    return bytes > 0 ? bytes : INFINITY;
}

/*
 * Bytes that one control group leaves: its limit less what it holds. Pages of files that were not
 * used for long do not count, because the system takes them back.
 */
static double folder_free(const char *folder)
{
    double limit = folder_memory(folder), used, unused, idle = 0;
    char path[PATH_MAX], line[128];
    if (isinf(limit)) return INFINITY;
    if (!read_numbers(folder, "memory.current", &used, &unused) &&
        !read_numbers(folder, "memory.usage_in_bytes", &used, &unused))
        return limit;
    FILE *file = snprintf(path, sizeof path, "%s/memory.stat", folder) < (int)sizeof path
                     ? fopen(path, "re")
                     : NULL;
    /* version 1 has both names: total_ counts the groups below, as usage does */
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "inactive_file ", 14) == 0) idle = strtod(line + 14, NULL);
        else if (strncmp(line, "total_inactive_file ", 20) == 0) {
            idle = strtod(line + 20, NULL);
            break;
        }
    if (file) fclose(file);
    return ARES_MAX(0, limit - ARES_MAX(0, used - idle));
}

/* folder_cpus, folder_memory or folder_free */
typedef double folder_limit(const char *folder);

/*
 * The tightest limit from <base><path> up to <base>. In a container the path may be the host's and
 * not exist here; then only base counts.
 */
static double least_upwards(const char *base, const char *path, folder_limit *limit)
{
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof folder, "%s%s", base, path) >= (int)sizeof folder) return INFINITY;
    double least = INFINITY;
    for (size_t base_len = strlen(base);;) {
        double here = limit(folder);
        least = ARES_MIN(least, here);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < base_len) return least;
        *slash = 0;
    }
}

/*
 * The tightest limit over the control groups that `membership` lists: that of version 2, and that
 * of version 1's controller.
 */
static double least_of(const char *membership, const char *root, const char *controller,
                       folder_limit *limit)
{
    FILE *file = fopen(membership, "re");
    if (!file) return INFINITY;
    double least = INFINITY;
    char line[PATH_MAX + 256], base[PATH_MAX];
    while (fgets(line, sizeof line, file)) { /* id:controllers:path */
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'),
             *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *controllers++ = 0;
        *path++ = 0;
        bool unified = *controllers == 0, ours = false;
        for (char *save, *word = strtok_r(controllers, ",", &save); word;
             word = strtok_r(NULL, ",", &save))
            ours |= strcmp(word, controller) == 0;
        if (!unified && !ours) continue;
        snprintf(base, sizeof base, "%s%s%s", root, unified ? "" : "/", unified ? "" : controller);
        double here = least_upwards(base, path, limit);
        least = ARES_MIN(least, here);
    }
    fclose(file);
    return least;
}

int core_cgroup_cpus(const char *membership, const char *root)
{
    double least = least_of(membership, root, "cpu", folder_cpus);
    return least >= INT_MAX ? INT_MAX : ARES_MAX(1, (int)(least + 0.5));
}

double core_cgroup_memory(const char *membership, const char *root)
{
    return least_of(membership, root, "memory", folder_memory);
}

double core_cgroup_free(const char *membership, const char *root)
{
    return least_of(membership, root, "memory", folder_free);
}

int ares_cpu_count(void)
{
    int allowed = 0;
    /* a machine may have more CPUs than a cpu_set_t has bits: enlarges the mask until it fits */
    for (int bits = 1024; bits <= 1 << 20 && allowed == 0; bits *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)bits);
        size_t bytes = CPU_ALLOC_SIZE((size_t)bits);
        if (set && sched_getaffinity(0, bytes, set) == 0) allowed = CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
    }
    if (allowed <= 0) allowed = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return ARES_MAX(1, ARES_MIN(allowed, core_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup")));
}

double ares_memory_bytes(void)
{
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double group = core_cgroup_memory("/proc/self/cgroup", "/sys/fs/cgroup");
    return ARES_MIN(machine, group);
}

double ares_memory_free_bytes(void)
{
    double machine = ares_memory_bytes(), kilobytes;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %lf", &kilobytes) == 1) machine = kilobytes * 1024;
    if (file) fclose(file);
    double group = core_cgroup_free("/proc/self/cgroup", "/sys/fs/cgroup");
    return ARES_MIN(machine, group);
}

/* Monotonic time, and the peak memory of this process. */

double ares_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int64_t ares_peak_memory_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

/*
 * The one thread pool. A run has two counters: `unclaimed`, from which every thread takes tasks one
 * by one, and `undone`, which the last thread to finish brings to 0. A claim succeeds only while a
 * task is left, and the caller does not return before every claimed task is done. So a thread with
 * a claim may read the job, and a thread that comes too late gets no claim and reads nothing.
 *
 * `events` counts the reasons for an idle thread to look for work (a run, a posted job, the end). A
 * thread reads it before it looks, and sleeps only while it still has that value, so it misses
 * nothing. Idle threads spin before they sleep, because a decode loop starts the next run within
 * microseconds and a futex takes tens of them. They spin long only when the last wait was short, so
 * an idle program uses no CPU. A spin never yields: with more threads than CPUs the scheduler puts
 * a thread that was woken ahead of the others and one that yielded after them (half the time per
 * run with three busy neighbours on two CPUs).
 */

#define SPIN_HOT_S 30e-6 /* how long to spin when the last wait was shorter than twice this */
#define SPIN_COLD_S 3e-6 /* when it was longer */

typedef struct post {
    struct post *next;
    void (*fn)(void *ctx);
    void *ctx;
} post;

typedef struct member {
    ares_pool *pool;
    int worker;
    pthread_t thread;
} member;

struct ares_pool {
    int threads;
    member *members; /* [threads]; 0 is the calling thread */
    ares_task_fn *fn;
    void *ctx;
    int64_t tasks;
    _Alignas(64) _Atomic int64_t unclaimed;
    _Alignas(64) _Atomic int64_t undone;
    _Atomic uint32_t caller_sleeps;
    _Alignas(64) _Atomic uint32_t events;
    _Atomic int sleepers; /* threads in futex_wait: nobody is woken where there are none */
    _Atomic bool stop;
    _Alignas(64) _Atomic int64_t posted; /* queued jobs; read without the lock */
    pthread_mutex_t lock;                /* of the queue and `posts_running` */
    pthread_cond_t posts_idle;
    post *first, **last;
    int posts_running; /* jobs that threads have taken and not finished */
};

/* The pool whose task this thread runs, and as which worker: a run inside a task is serial. */
static _Thread_local const ares_pool *inside;
static _Thread_local int inside_worker;

/* Sleeps while the word has this value; may return without a reason, so callers look again. */
static void futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* Called between two looks of a spin that began at `start`; false when its time is up. */
static bool spin_on(int *looks, double start, double limit_s)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
    return ++*looks % 16 || ares_now_s() - start < limit_s;
}

/* Takes tasks until none is left. */
static void work(ares_pool *p, int worker)
{
    int64_t did = 0, left = atomic_load_explicit(&p->unclaimed, memory_order_acquire);
    while (left > 0) {
        if (!atomic_compare_exchange_weak(&p->unclaimed, &left, left - 1)) continue;
        p->fn(p->ctx, p->tasks - left, worker);
        did++;
        left = atomic_load_explicit(&p->unclaimed, memory_order_acquire);
    }
    if (did > 0 && atomic_fetch_sub(&p->undone, did) == did &&
        atomic_exchange(&p->caller_sleeps, 0))
        futex_wake(&p->caller_sleeps, 1);
}

/* Runs the oldest posted job; false: there is none. */
static bool run_post(ares_pool *p)
{
    if (atomic_load(&p->posted) == 0) return false;
    pthread_mutex_lock(&p->lock);
    post *job = p->first;
    if (job) {
        p->first = job->next;
        if (!p->first) p->last = &p->first;
        atomic_fetch_sub(&p->posted, 1);
        p->posts_running++;
    }
    pthread_mutex_unlock(&p->lock);
    if (!job) return false;
    job->fn(job->ctx);
    ares_free(job);
    pthread_mutex_lock(&p->lock);
    if (--p->posts_running == 0 && !p->first) pthread_cond_broadcast(&p->posts_idle);
    pthread_mutex_unlock(&p->lock);
    return true;
}

/* A thread of the pool: takes tasks and jobs, else spins, else sleeps. */
static void *worker_main(void *arg)
{
    member *self = arg;
    ares_pool *p = self->pool;
    char name[16];
    snprintf(name, sizeof name, "ares-%d", self->worker);
    pthread_setname_np(pthread_self(), name);
    inside = p;
    inside_worker = self->worker;
    for (double spin_s = SPIN_COLD_S;;) {
        /* read before `stop`, so that a stop set in between still wakes the thread */
        uint32_t seen = atomic_load(&p->events);
        if (atomic_load(&p->stop)) break;
        work(p, self->worker);
        if (run_post(p)) continue;
        double start = ares_now_s();
        int looks = 0;
        while (atomic_load_explicit(&p->events, memory_order_acquire) == seen &&
               spin_on(&looks, start, spin_s)) {}
        if (atomic_load(&p->events) == seen) {
            atomic_fetch_add(&p->sleepers, 1);
            futex_wait(&p->events, seen);
            atomic_fetch_sub(&p->sleepers, 1);
        }
        spin_s = ares_now_s() - start < 2 * SPIN_HOT_S ? SPIN_HOT_S : SPIN_COLD_S;
    }
    return NULL;
}

/* Wakes up to `wanted` sleeping threads. */
static void announce(ares_pool *p, int64_t wanted)
{
    atomic_fetch_add(&p->events, 1);
    if (atomic_load(&p->sleepers) > 0)
        futex_wake(&p->events, (int)ARES_MIN(wanted, (int64_t)p->threads));
}

ares_pool *ares_pool_new(int threads)
{
    ares_pool *p = aligned_alloc(64, (sizeof *p + 63) & ~(size_t)63);
    ARES_ASSERT(p);
    *p = (ares_pool){ .threads = threads > 0 ? threads : ares_cpu_count() };
    p->last = &p->first;
    p->members = ares_calloc((size_t)p->threads, sizeof *p->members);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->posts_idle, NULL);
    sigset_t all, before; /* signals go to the calling thread */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < p->threads; i++) {
        p->members[i] = (member){ .pool = p, .worker = i };
        if (pthread_create(&p->members[i].thread, NULL, worker_main, &p->members[i]) == 0) continue;
        ares_warn("pool: only %d of %d threads could be started; going on with these", i,
                  p->threads);
        p->threads = i;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return p;
}

void ares_pool_free(ares_pool *p)
{
    if (!p) return;
    ares_pool_drain(p);
    atomic_store(&p->stop, true);
    announce(p, p->threads);
    for (int i = 1; i < p->threads; i++) pthread_join(p->members[i].thread, NULL);
    pthread_cond_destroy(&p->posts_idle);
    pthread_mutex_destroy(&p->lock);
    ares_free(p->members);
    free(p);
}

int ares_pool_threads(const ares_pool *p)
{
    return p ? p->threads : 1;
}

void ares_pool_run(ares_pool *p, int64_t tasks, ares_task_fn *fn, void *ctx)
{
    if (!p || p->threads == 1 || tasks <= 1 || inside) {
        int worker = p && inside == p ? inside_worker : 0;
        for (int64_t task = 0; task < tasks; task++) fn(ctx, task, worker);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->tasks = tasks;
    atomic_store_explicit(&p->undone, tasks, memory_order_relaxed);
    atomic_store_explicit(&p->unclaimed, tasks, memory_order_release);
    announce(p, tasks - 1);
    inside = p;
    inside_worker = 0;
    work(p, 0);
    inside = NULL;
    /* waits for the tasks that other threads have claimed: spins first, then sleeps */
    double start = ares_now_s();
    for (int looks = 0; atomic_load_explicit(&p->undone, memory_order_acquire) > 0;) {
        if (spin_on(&looks, start, SPIN_HOT_S)) continue;
        atomic_store(&p->caller_sleeps, 1);
        if (atomic_load(&p->undone) > 0) futex_wait(&p->caller_sleeps, 1);
        atomic_store(&p->caller_sleeps, 0);
    }
}

/* Jobs begin in the order of posting, beside runs; without a pool they run at once. */
void ares_pool_post(ares_pool *p, void (*fn)(void *ctx), void *ctx)
{
    if (!p) {
        fn(ctx);
        return;
    }
    post *job = ares_malloc(sizeof *job);
    *job = (post){ NULL, fn, ctx };
    pthread_mutex_lock(&p->lock);
    *p->last = job;
    p->last = &job->next;
    atomic_fetch_add(&p->posted, 1);
    pthread_mutex_unlock(&p->lock);
    announce(p, 1);
}

/* Helps until no job is left, then waits for those that others run. */
void ares_pool_drain(ares_pool *p)
{
    if (!p) return;
    ARES_ASSERT(!inside);
    inside = p;
    inside_worker = 0;
    while (run_post(p)) {}
    inside = NULL;
    pthread_mutex_lock(&p->lock);
    while (p->first || p->posts_running > 0) pthread_cond_wait(&p->posts_idle, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
