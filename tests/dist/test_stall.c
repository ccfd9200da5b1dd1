/* A rank that keeps the others waiting, or dies, ends the run and is named. */
#include "internal.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

static void stand(dist_rank_status *s, dist_kind kind, int64_t size, int64_t count, double since,
                  bool inside)
{
    s->kind = (int)kind;
    s->size = size;
    s->count = count;
    s->since = since;
    s->inside = inside;
}

/* Four ranks of one machine in the same collective since second 90. */
static void four_wait(dist_rank_status s[4])
{
    struct stat pids = { 0 };
    CHECK_EQ(stat("/proc/self/ns/pid", &pids), 0);
    for (int i = 0; i < 4; i++) {
        s[i] = (dist_rank_status){ .rank = i, .pid = getpid(), .pids = pids.st_ino };
        stand(&s[i], DIST_SUM_F64, 33, 7, 90, true);
    }
}

static void says(const dist_rank_status *s, int n, int world, int me, const char *want)
{
    ares_str text = { 0 };
    dist_watch_describe(s, n, world, me, 100, &text);
    CHECK_STR(text.data, want);
    ares_str_fini(&text);
}

TEST(the_rank_that_does_not_come_is_described)
{
    dist_rank_status s[4];
    char want[300];
    int pid = getpid();
    four_wait(s);
    stand(&s[2], DIST_AGREE, 0, 6, 40, false);
    snprintf(want, sizeof want,
             "rank 2 stands behind collective 6 (agreement) for 60 s, ranks 0-1, 3 at collective 7 "
             "(sum of 33 f64); process %d of rank 2 runs",
             pid);
    says(s, 4, 4, 0, want);
    says(s, 4, 8, 3, want);
    stand(&s[3], DIST_GATHER, 5, 6, 30, false);
    s[2].inside = true;
    s[2].pids++; /* a process of another container */
    snprintf(want, sizeof want,
             "ranks 2-3 stand at collective 6 (agreement) for 60 s, ranks 0-1 at collective 7 (sum "
             "of 33 f64); is process %d of rank 2 alive?; process %d of rank 3 runs",
             pid, pid);
    says(s, 4, 4, 1, want);
    s[3].rank = 6; /* the ranks of a machine need not follow one another */
    snprintf(
        want, sizeof want,
        "ranks 2, 6 stand at collective 6 (agreement) for 60 s, ranks 0-1 at collective 7 (sum "
        "of 33 f64); is process %d of rank 2 alive?; process %d of rank 6 runs",
        pid, pid);
    says(s, 4, 8, 1, want);
}

TEST(a_rank_of_another_machine_is_meant_where_all_ranks_of_this_one_wait)
{
    dist_rank_status s[4];
    four_wait(s);
    says(s, 4, 8, 1,
         "rank 1 stands at collective 7 (sum of 33 f64) for 10 s, and so do all ranks of this "
         "machine; a rank of another machine does not come: is it alive?");
    s[3].kind = DIST_BROADCAST; /* the ranks do not run the same program */
    says(s, 4, 4, 0,
         "rank 0 stands at collective 7 (sum of 33 f64) for 10 s, rank 3 at collective 7 "
         "(broadcast, 33 bytes), and so do all ranks, but it does not end");
}

TEST(a_rank_that_stopped_inside_is_meant_where_all_ranks_have_come)
{
    dist_rank_status s[4];
    char want[200];
    int status;
    four_wait(s);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
    s[2].pid = child;
    snprintf(want, sizeof want,
             "rank 2 stands at collective 7 (sum of 33 f64) for 10 s, and so do all ranks; process "
             "%d of rank 2 is stopped",
             (int)child);
    says(s, 4, 4, 0, want);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

TEST(a_group_waits_for_its_own_ranks)
{
    dist_rank_status s[4];
    char want[300];
    four_wait(s);
    for (int i = 0; i < 4; i++) { /* groups { 0, 2 } and { 1, 3 } */
        stand(&s[i], DIST_GROUP_SUM, 33, 7, 90, true);
        s[i].group_size = 2;
        s[i].group_stride = 2;
        s[i].inner = 12;
    }
    s[1].inner = 3;
    s[2].inner = 11;
    s[2].inside = false;
    snprintf(want, sizeof want,
             "rank 2 stands behind collective 7.11 (sum in a group, 33 f32) for 10 s, rank 0 at "
             "collective 7.12 (sum in a group, 33 f32); process %d of rank 2 runs",
             getpid());
    says(s, 4, 4, 0, want);
    stand(&s[3], DIST_AGREE, 0, 8, 95, true);
    s[3].inner = s[3].group_size = 0;
    snprintf(want, sizeof want,
             "rank 1 stands at collective 7.3 (sum in a group, 33 f32) for 10 s, ranks 0, 2-3 at "
             "collective 8 (agreement); process %d of rank 1 runs",
             getpid());
    s[0].count = s[2].count = 8;
    s[0].inner = s[2].inner = 0;
    says(s, 4, 4, 3, want);
}

/* What a rank has queued for its card may be further than what the card is at. */
TEST(ranks_whose_cards_wait_for_each_other_are_described)
{
    dist_rank_status s[4];
    char want[300];
    four_wait(s);
    for (int i = 0; i < 4; i++) stand(&s[i], DIST_GROUP_GATHER, 64, 7, 90, true);
    stand(&s[2], DIST_GROUP_SUM, 33, 6, 80, false); /* its card computes before collective 7 */
    snprintf(want, sizeof want,
             "rank 2 stands behind collective 6 (sum in a group, 33 f32) for 20 s, ranks 0-1, 3 at "
             "collective 7 (gather in a group, 64 bytes); process %d of rank 2 runs",
             getpid());
    says(s, 4, 4, 0, want);
    stand(&s[2], DIST_AGREE, 0, 9, 85, true); /* its host is further, and waits for the others */
    snprintf(want, sizeof want,
             "ranks 0-1, 3 stand at collective 7 (gather in a group, 64 bytes) for 10 s, rank 2 at "
             "collective 9 (agreement); process %d of rank 0 runs; process %d of rank 1 runs; "
             "process %d of rank 3 runs",
             getpid(), getpid(), getpid());
    says(s, 4, 4, 2, want);
    says(s, 4, 4, 1,
         "rank 1 stands at collective 7 (gather in a group, 64 bytes) for 10 s, rank 2 at "
         "collective 9 (agreement), but it does not end");
}

TEST(a_place_is_shown_and_left)
{
    dist_rank_status s[4];
    four_wait(s);
    ares_world w = { .size = 4, .local_size = 4, .status = s };
    dist_watch_name(&w, DIST_GROUP_SUM, 5);
    dist_place first = dist_watch_issue(&w, 4, 1);
    dist_watch_name(&w, DIST_GROUP_GATHER, 12);
    dist_place second = dist_watch_issue(&w, 2, 2);
    CHECK_EQ(s[0].inside, false);
    CHECK_EQ(s[0].count, 8);
    CHECK_EQ(s[0].inner, 1);
    dist_watch_stand(&w, &first, true);
    CHECK_EQ(s[0].kind, DIST_GROUP_SUM);
    CHECK_EQ(s[0].inner, 0);
    CHECK_EQ(s[0].group_size, 0);
    CHECK_EQ(s[0].inside, true);
    dist_watch_stand(&w, &second, false);
    CHECK_EQ(s[0].size, 12);
    CHECK_EQ(s[0].group_stride, 2);
    CHECK_EQ(s[0].inside, false);
}

TEST(time_in_which_the_waiting_rank_was_stopped_does_not_count)
{
    dist_rank_status s[4];
    four_wait(s);
    s[1].count = 6;
    ares_world w = { .size = 4, .local_size = 4, .status = s, .timeout_s = 5 };
    dist_wait wait = dist_watch_enter(&w);
    wait.last -= 1000;
    dist_watch_pause(&w, &wait); /* would end this process */
    CHECK(wait.waited <= 1);
    CHECK_EQ(s[0].count, 8);
    dist_watch_leave(&w);
    CHECK(!s[0].inside);
}

/* ---------------- ranks that really stop */
enum { RANKS = 3, ROUNDS = 40, TIMEOUT_S = 3 };

/* The same in the test and in its ranks: the seed is fixed. */
typedef struct fate {
    int victim, round;
    long ms; /* into the round */
} fate;
static fate draw(int what)
{
    ares_rng_key r = ares_rng_sub(ares_rng_root(20, ARES_RNG_TEST), (uint64_t)what, 0);
    return (fate){ .victim = (int)ares_rng_below(r, 0, RANKS),
                   .round = (int)ares_rng_below(r, 1, ROUNDS),
                   .ms = (long)ares_rng_below(r, 2, 20) };
}

static void need_memory_that_is_refused(void)
{
    setrlimit(RLIMIT_AS, &(struct rlimit){ 1 << 20, 1 << 20 });
    for (;;) ares_malloc(1 << 20);
}

/* Rounds of three collectives, in one of which the victim meets its fate. */
static void live(ares_world *w, int what)
{
    fate f = draw(what);
    double x[5] = { 0 };
    ares_world_set_timeout(w, TIMEOUT_S);
    for (int i = 0; i < ROUNDS; i++) {
        REQUIRE_OK(ares_world_sum_f64(w, x, 5));
        sleep_ms(2);
        REQUIRE_OK(ares_world_share_error(w, ARES_OK));
        if (i == f.round && ares_world_rank(w) == f.victim) {
            sleep_ms(f.ms);
            if (what == 0) need_memory_that_is_refused();
            else if (what == SIGUSR1) sleep_ms(60000); /* alive, but busy with something else */
            else raise(what);
        }
        REQUIRE_OK(ares_world_max_f64(w, x, 5));
    }
    CHECK(false && "the victim lives");
}

/* Runs the test's own ranks with the fate and checks what is printed; gives the exit status. */
static int meet(const char *test, int what, const char *message)
{
    fate f = draw(what);
    ares_str out = { 0 };
    char want[200];
    printf("  rank %d, round %d, after %ld ms\n", f.victim, f.round, f.ms);
    double began = ares_now_s();
    int status = test_mpirun(&out, RANKS, test);
    CHECK(status != 0);
    snprintf(want, sizeof want, message, f.victim);
    CHECK_CONTAINS(out.data, want);
    CHECK(!strstr(out.data, "the victim lives"));
    /* one rank speaks for all */
    const char *first = strstr(out.data, "ending all ranks");
    CHECK(first && !strstr(first + 1, "ending all ranks"));
    /* the start, the limit, and a second that mpirun gives its processes to end */
    CHECK_MSG(ares_now_s() - began < 120, "took %.1f s", ares_now_s() - began);
    ares_str_fini(&out);
    return status;
}

/* status: 0 where it is that of abort, which a sanitizer makes another */
#define MEETS(name, what, status, message)         \
    TEST_MPI(name)                                 \
    {                                              \
        if (!test_in_mpi()) {                      \
            int code = meet(#name, what, message); \
            if (status) CHECK_EQ(code, status);    \
            return;                                \
        }                                          \
        ares_world *w = NULL;                      \
        REQUIRE_OK(ares_world_open(&w));           \
        live(w, what);                             \
    }

MEETS(a_rank_that_is_stopped_is_named, SIGSTOP, 1, "dist: rank %d stands behind collective ")
MEETS(a_rank_that_does_something_else_is_named, SIGUSR1, 1,
      "dist: rank %d stands behind collective ")
MEETS(a_rank_that_is_killed_is_named, SIGKILL, 128 + SIGKILL, "dist: rank %d (process ")
MEETS(a_rank_that_runs_out_of_memory_is_named, 0, 0, "dist: rank %d (process ")

TEST_MPI(a_rank_that_comes_late_is_waited_for)
{
    if (!test_as_ranks(RANKS, "a_rank_that_comes_late_is_waited_for")) return;
    ares_world *w = NULL;
    REQUIRE_OK(ares_world_open(&w));
    double limits[] = { 0, 60 };
    for (int i = 0; i < 2; i++) {
        int64_t late = ares_world_rank(w);
        ares_world_set_timeout(w, limits[i]);
        if (late == 1) sleep_ms(1500); /* several looks at those that wait */
        CHECK_OK(ares_world_sum_i64(w, &late, 1));
        CHECK_EQ(late, 0 + 1 + 2);
    }
    ares_world_close(w);
}
