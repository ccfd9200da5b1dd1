/*
 * Groups of ranks with a card each: what NCCL moves and the cards add has the bits of the host's
 * sums; what goes wrong is told. On the emulator of cards NCCL is libnccl_fake.so
 * (tests/gpu/emulate/nccl.cpp); with several cards it is NCCL itself, in the tests that need no
 * planted fault.
 */
#include "internal.h"
#include "sums.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static bool emulated(void)
{
    const char *library = getenv("ARES_CUDA_LIB");
    return library && *library;
}

/* Whether there are so many cards, emulated ones if need be. */
static bool have_cards(int n)
{
    char last[24], count[16];
    ares_device d = { 0 };
    const char *required = getenv("ARES_REQUIRE_CUDA");
    if (emulated()) {
        snprintf(count, sizeof count, "%d", n);
        setenv("ARES_EMULATE_CARDS", count, 1);
        setenv("ARES_NCCL_LIB", ARES_BINARY_DIR "/libnccl_fake.so", 1);
        unsetenv("ARES_TEST_TRANSPORT"); /* of the test before */
    }
    snprintf(last, sizeof last, "cuda:%d", n - 1);
    int rc = ares_device_open("cuda", 1, &d);
    if (rc == ARES_OK) ares_device_close(&d);
    if (rc != ARES_OK && required && *required) CHECK_OK(rc);
    if (rc == ARES_OK) rc = ares_device_open(last, 1, &d);
    if (rc == ARES_OK) ares_device_close(&d);
    else test_skip(ares_error_message());
    return rc == ARES_OK;
}

/* What the ranks of a test print, with an option or a fault in the environment; the exit status. */
static int ranks_with(ares_str *out, const char *test, int ranks, const char *name,
                      const char *value)
{
    if (name) setenv(name, value, 1);
    int status = test_mpirun(out, ranks, test);
    if (name) unsetenv(name);
    return status;
}

typedef struct run {
    ares_world *w;
    ares_device d;
    ares_group *g;
} run;

/* ARES_TEST_SHARES: all ranks on the first card. */
static bool shares(void)
{
    return getenv("ARES_TEST_SHARES") != NULL;
}

/*
 * A rank with a card of its own, or with the first one; ARES_TEST_TRANSPORT is the option. NCCL
 * refuses two ranks on a card of one host, and takes NCCL_HOSTID for the host.
 */
static int start(run *r)
{
    char card[24], host[24];
    bool own_card = !shares();
    const char *transport = getenv("ARES_TEST_TRANSPORT");
    *r = (run){ 0 };
    ARES_TRY(ares_world_open(&r->w));
    snprintf(host, sizeof host, "rank %d", ares_world_rank(r->w));
    if (!own_card) setenv("NCCL_HOSTID", host, 1);
    snprintf(card, sizeof card, "cuda:%d", own_card ? ares_world_local_rank(r->w) : 0);
    ares_log_set(ARES_LOG_INFO, ares_world_rank(r->w));
    ares_world_set_timeout(r->w, 3);
    if (transport) ares_world_set_transport(r->w, transport);
    ARES_TRY(ares_device_open(card, 1, &r->d));
    return ares_group_open(r->w, &r->d, ares_world_size(r->w), 1, &r->g);
}
static void end(run *r)
{
    ares_group_close(r->g);
    ares_device_close(&r->d);
    ares_world_close(r->w);
}

/* ---------------- numbers */
TEST_GPU(nccl_gives_the_sums_and_columns_of_the_host)
{
    run r;
    if (!test_in_mpi()) {
        for (int ranks = 1; ranks <= 4; ranks++)
            for (int s = 1; s <= (emulated() ? 3 : 1); s++) {
                if (!have_cards(shares() ? 1 : ranks)) return;
                test_emulated_order(s * 10 + ranks);
                (void)test_as_ranks(ranks, "nccl_gives_the_sums_and_columns_of_the_host");
            }
        return;
    }
    REQUIRE_OK(start(&r));
    CHECK(ares_world_size(r.w) == 1 || r.g->transport == &dist_nccl);
    size_t bytes = r.g->side.bytes;
    sums_of_a_group(r.g, &r.d);
    if (bytes > 0) r.g->side.bytes = 2 << 20; /* many pieces, the last one shorter */
    check_sums(r.g, &r.d, (1 << 17) + 5);
    dc_of_a_group(r.g, &r.d);
    CHECK_OK(ares_world_share_error(r.w, ARES_OK));
    r.g->side.bytes = bytes;
    end(&r);
}

/* Groups of neighbours and of every second rank, which make as many calls as they like. */
TEST_GPU(nccl_keeps_groups_of_the_world_apart)
{
    run r;
    if (!test_in_mpi()) {
        if (have_cards(4)) (void)test_as_ranks(4, "nccl_keeps_groups_of_the_world_apart");
        return;
    }
    REQUIRE_OK(start(&r));
    for (int stride = 1; stride <= 2; stride++) {
        int rank = ares_world_rank(r.w), first = stride == 1 ? rank / 2 * 2 : rank % 2;
        ares_group *g;
        REQUIRE_OK(ares_group_open(r.w, &r.d, 2, stride, &g));
        CHECK(g->transport == &dist_nccl);
        for (int i = 0; i < 1 + first * 3; i++) {
            float want[2] = { (float)((double)element(first, i) + element(first + stride, i)),
                              (float)(2 * first + stride) },
                  x[2] = { element(rank, i), (float)rank };
            float *on_card = put(&r.d, x, 2);
            ares_group_join(g, ares_group_sum(g, on_card, 2));
            check(&r.d, on_card, want, 2);
        }
        CHECK_OK(ares_group_sync(g));
        ares_group_close(g);
    }
    end(&r);
}

/* ---------------- mistakes in the order of streams */
/* Rounds of a sum whose result is taken with or without waiting for it. Gives the wrong ones. */
static int64_t wrong_rounds(run *r, bool joins)
{
    enum { N = 100, ROUNDS = 20 };
    int64_t wrong = 0;
    float *want = summed(ares_world_size(r->w), N);
    for (int i = 0; i < ROUNDS; i++) {
        float *x = put_filled(&r->d, ares_world_rank(r->w), N);
        ares_ticket t = ares_group_sum(r->g, x, N);
        if (joins) ares_group_join(r->g, t);
        float *is = take(&r->d, x, N);
        wrong += differ(is, want, N) > 0;
        ares_free(is);
    }
    ares_free(want);
    CHECK_OK(ares_group_sync(r->g));
    return wrong;
}

/* The group does not wait for what was launched on the device before. */
static void begin_at_once(ares_dist_side *s)
{
    (void)s;
}

TEST_GPU(a_missing_join_and_a_missing_event_show_on_the_emulator)
{
    run r;
    if (!test_in_mpi()) {
        if (!emulated()) SKIP("a card may be fast enough to hide it");
        for (int s = 1; s <= 3 && have_cards(2); s++) {
            test_emulated_order(s);
            (void)test_as_ranks(2, "a_missing_join_and_a_missing_event_show_on_the_emulator");
        }
        return;
    }
    REQUIRE_OK(start(&r));
    ares_dist_ops hasty = *r.g->ops;
    hasty.begin = begin_at_once;
    CHECK_EQ(wrong_rounds(&r, true), 0);
    CHECK(wrong_rounds(&r, false) > 0);
    r.g->ops = &hasty;
    CHECK(wrong_rounds(&r, true) > 0);
    end(&r);
}

/* ---------------- which transport is chosen */
static void says_of(const char *test, int ranks, const char *name, const char *value,
                    const char *words)
{
    ares_str out = { 0 };
    int status = ranks_with(&out, test, ranks, name, value);
    CHECK_EQ(status, 0);
    CHECK_CONTAINS(out.data, words);
    ares_str_fini(&out);
}

/*
 * On the loader's path; beside libtorch, which another library plays, where the loader's is none,
 * and before the loader's where that is another (here without NCCL's functions).
 */
static void finds_the_library(const char *test)
{
    static const char words[] = "by NCCL 2.27.3";
    unsetenv("ARES_NCCL_LIB");
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && mkdir loader broken other && ln -s '%s' loader/libnccl.so.2 && "
                        "echo none >broken/libnccl.so.2 && mkdir -p torch/lib nvidia/nccl/lib && "
                        "ln -s '%s' nvidia/nccl/lib/libnccl.so.2 && ln -s "
                        "$(ldconfig -p | sed -n 's/.*libm.so.6 .*=> //p' | head -n 1) "
                        "torch/lib/libtorch_cpu.so && cp -P torch/lib/libtorch_cpu.so "
                        "other/libnccl.so.2",
                        test_file("."), ARES_BINARY_DIR "/libnccl_fake.so",
                        ARES_BINARY_DIR "/libnccl_fake.so"),
             0);
    says_of(test, 2, "LD_LIBRARY_PATH", test_file("loader"), words);
    setenv("LD_LIBRARY_PATH", test_file("broken"), 1);
    says_of(test, 2, "LD_PRELOAD", test_file("torch/lib/libtorch_cpu.so"), words);
    says_of(test, 2, NULL, NULL, "over host memory: rank 0 has no NCCL: ");
    setenv("LD_LIBRARY_PATH", test_file("other"), 1);
    says_of(test, 2, NULL, NULL, "rank 0 has no NCCL: libnccl.so.2 has no ");
    says_of(test, 2, "LD_PRELOAD", test_file("torch/lib/libtorch_cpu.so"), words);
    unsetenv("LD_LIBRARY_PATH");
}

TEST_GPU(the_way_of_a_group_and_its_reason_are_said)
{
    static const char test[] = "the_way_of_a_group_and_its_reason_are_said";
    run r;
    if (!test_in_mpi()) {
        if (!emulated()) SKIP("needs the fake of NCCL");
        if (!have_cards(2)) return;
        says_of(test, 2, NULL, NULL,
                "dist: groups of 2 ranks exchange by NCCL 2.27.3: each has a card of its own");
        says_of(test, 2, "ARES_TEST_TRANSPORT", "staged",
                "dist: groups of 2 ranks exchange over host memory: trainer.comm_transport = "
                "staged");
        says_of(test, 2, "ARES_TEST_SHARES", "1", "over host memory: ranks 0 and 1 share a card");
        says_of(test, 2, "ARES_FAKE_NCCL_VERSION", "21805",
                "over host memory: rank 0 has no NCCL: libnccl.so.2 is NCCL 2.18.5; 2.19 or later "
                "is needed");
        setenv("ARES_NCCL_LIB", "/nowhere/libnccl.so.2", 1);
        says_of(test, 2, NULL, NULL,
                "over host memory: rank 0 has no NCCL: ARES_NCCL_LIB: /nowhere/libnccl.so.2: "
                "cannot open");
        finds_the_library(test);
        return;
    }
    REQUIRE_OK(start(&r));
    CHECK_EQ(wrong_rounds(&r, true), 0);
    end(&r);
}

TEST_GPU(nccl_that_is_wanted_and_not_to_be_had_is_a_failure)
{
    static const char test[] = "nccl_that_is_wanted_and_not_to_be_had_is_a_failure";
    run r;
    ares_str out = { 0 };
    if (!test_in_mpi()) {
        if (!emulated()) SKIP("needs the fake of NCCL");
        if (!have_cards(2)) return;
        setenv("ARES_TEST_TRANSPORT", "nccl", 1);
        CHECK_EQ(ranks_with(&out, test, 2, "ARES_FAKE_NCCL_VERSION", "21805"), 0);
        CHECK_CONTAINS(out.data, "refused: dist: trainer.comm_transport = 'nccl': rank 0 has no "
                                 "NCCL: libnccl.so.2 is NCCL 2.18.5");
        ares_str_clear(&out);
        /* two ranks on a card: NCCL itself says whether it can */
        CHECK(ranks_with(&out, test, 2, "ARES_TEST_SHARES", "1") != 0);
        CHECK_CONTAINS(out.data,
                       "dist: NCCL: ncclCommInitRankConfig: invalid usage: Duplicate GPU detected; "
                       "trainer.comm_transport=staged needs no NCCL; ending all ranks");
        ares_str_fini(&out);
        return;
    }
    int rc = start(&r);
    CHECK(rc != ARES_OK);
    printf("refused: %s\n", ares_error_message());
    end(&r);
}

/* ---------------- failures while ranks work */
TEST_GPU(a_failure_of_nccl_ends_all_ranks_with_its_message)
{
    static const char test[] = "a_failure_of_nccl_ends_all_ranks_with_its_message";
    run r;
    ares_str out = { 0 };
    if (!test_in_mpi()) {
        if (!emulated()) SKIP("needs the fake of NCCL");
        if (!have_cards(3)) return;
        double began = ares_now_s();
        CHECK(ranks_with(&out, test, 3, "ARES_FAKE_NCCL_FAIL", "1:7") != 0);
        CHECK_CONTAINS(out.data, "[rank 1] error: dist: NCCL: on the card: unhandled system error: "
                                 "the fake was told to fail; ending all ranks");
        CHECK(!strstr(out.data, "came through"));
        CHECK(ares_now_s() - began < 60);
        ares_str_fini(&out);
        return;
    }
    REQUIRE_OK(start(&r));
    (void)wrong_rounds(&r, true);
    puts("came through");
}

TEST_GPU(ranks_with_cards_that_make_different_calls_are_told)
{
    static const char test[] = "ranks_with_cards_that_make_different_calls_are_told";
    run r;
    ares_str out = { 0 };
    if (!test_in_mpi()) {
        if (!emulated()) SKIP("NCCL may do anything then");
        if (!have_cards(2)) return;
        /* nothing moves for an array of none: the next agreement finds it */
        says_of(test, 2, "ARES_TEST_CALL", "none",
                "told: dist: rank 1 has made other calls on its group than rank 0");
        /* NCCL waits for ever for what does not match: who waits says who is where */
        CHECK(ranks_with(&out, test, 2, "ARES_TEST_CALL", "other") != 0);
        CHECK_CONTAINS(out.data, " (gather in a group, 12 bytes)");
        CHECK_CONTAINS(out.data, " (sum in a group, 5 f32)");
        CHECK_CONTAINS(out.data, ", and so do all ranks, but it does not end "
                                 "(trainer.comm_timeout_s = 3;");
        ares_str_fini(&out);
        return;
    }
    REQUIRE_OK(start(&r));
    bool first = ares_world_rank(r.w) == 0, none = strcmp(getenv("ARES_TEST_CALL"), "none") == 0;
    float *x = put_filled(&r.d, 0, 6), *all = put_filled(&r.d, 0, 6);
    if (first && none) ares_group_join(r.g, ares_group_sum(r.g, x, 0));
    if (first && !none) ares_group_join(r.g, ares_group_gather(r.g, x, all, 12));
    if (!first && !none) ares_group_join(r.g, ares_group_sum(r.g, x, 5));
    CHECK_OK(ares_group_sync(r.g));
    CHECK(ares_world_share_error(r.w, ARES_OK) != ARES_OK);
    if (first) printf("told: %s\n", ares_error_message());
    ares_free(take(&r.d, x, 6));
    ares_free(take(&r.d, all, 6));
    end(&r);
}

/* A rank that stops, or is gone, in one of 60 rounds, within the call or beside it. */
enum { RANKS = 3, ROUNDS = 60 };
static void live(run *r, int what, int draw)
{
    ares_rng_key key = ares_rng_sub(ares_rng_root(21, ARES_RNG_TEST), (uint64_t)draw, 0);
    int victim = (int)ares_rng_below(key, 0, RANKS), round = (int)ares_rng_below(key, 1, ROUNDS),
        place = (int)ares_rng_below(key, 2, 3);
    for (int i = 0; i < ROUNDS; i++) {
        bool now = i == round && ares_world_rank(r->w) == victim;
        if (now) fprintf(stderr, "rank %d meets its fate\n", victim);
        if (now && place == 0) raise(what);
        float *x = put_filled(&r->d, ares_world_rank(r->w), 1000);
        ares_ticket t = ares_group_sum(r->g, x, 1000);
        if (now && place == 1) raise(what);
        ares_group_join(r->g, t);
        if (now && place == 2) raise(what);
        ares_free(take(&r->d, x, 1000));
    }
    puts("came through");
}

static void dies(const char *test, int what, const char *message)
{
    run r;
    if (test_in_mpi()) {
        REQUIRE_OK(start(&r));
        live(&r, what, atoi(getenv("ARES_TEST_DRAW")));
        return;
    }
    if (!emulated()) SKIP("needs the fake of NCCL");
    for (int draw = 0; draw < 3 && have_cards(RANKS); draw++) {
        ares_str out = { 0 };
        char number[12], want[100];
        int victim = -1;
        double began = ares_now_s();
        snprintf(number, sizeof number, "%d", draw);
        CHECK(ranks_with(&out, test, RANKS, "ARES_TEST_DRAW", number) != 0);
        const char *fate = strstr(out.data, "rank ");
        while (fate && sscanf(fate, "rank %d meets", &victim) != 1)
            fate = strstr(fate + 1, "rank ");
        snprintf(want, sizeof want, message, victim);
        CHECK_CONTAINS(out.data, want);
        CHECK(!strstr(out.data, "came through"));
        /* one rank speaks for all */
        const char *first = strstr(out.data, "ending all ranks");
        CHECK(first && !strstr(first + 1, "ending all ranks"));
        CHECK_MSG(ares_now_s() - began < 60, "took %.1f s", ares_now_s() - began);
        ares_str_fini(&out);
    }
}
TEST_GPU(a_rank_that_is_killed_in_nccl_is_named)
{
    dies("a_rank_that_is_killed_in_nccl_is_named", SIGKILL, "dist: rank %d (process ");
}
TEST_GPU(a_rank_that_is_stopped_in_nccl_is_named)
{
    dies("a_rank_that_is_stopped_in_nccl_is_named", SIGSTOP, "dist: rank %d stands ");
}
