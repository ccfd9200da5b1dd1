/*
 * Memory that runs out in one of two ranks (preload/memory.c), wherever a run asks for it: the run
 * ends at once with one message, which names the rank and what it asked for, and the same command
 * goes on and ends as if nothing had happened, bit for bit.
 */
#include "e2e.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS                                                          \
    "--ranks 2 --config '%s' trainer.max_steps=3 trainer.save_freq=1 " \
    "trainer.threads=1 trainer.comm_timeout_s=200 worker.actor.max_token_len_per_device=60 %s"

/* A sanitizer has its own heap, and wants its library loaded before the one that refuses. */
#ifdef __SANITIZE_ADDRESS__
#define NEEDS_OWN_HEAP() SKIP("the sanitizer has a heap of its own")
#else
#define NEEDS_OWN_HEAP() (void)0
#endif

static const char all[] =
    "worker.actor.fsdp.enable_full_shard=true worker.critic.fsdp.enable_full_shard=true "
    "worker.ref.fsdp.enable_full_shard=true algorithm.adv_estimator=gae "
    "algorithm.disable_kl=false algorithm.use_kl_loss=true algorithm.kl_coef=0.1";

/* Rank 1 gets no memory from request `at` on; 0: it gets all, and is counted. */
static void refuse(const char *kind, long at, long least, const char *after)
{
    char number[24];
    setenv("LD_PRELOAD", ARES_BINARY_DIR "/libares_test_memory.so", 1);
    setenv("ARES_MEMORY_RANK", "1", 1);
    setenv("ARES_MEMORY_KIND", kind, 1);
    setenv("ARES_MEMORY_COUNT", test_file("count"), 1);
    snprintf(number, sizeof number, "%ld", at);
    setenv("ARES_MEMORY_AT", number, 1);
    snprintf(number, sizeof number, "%ld", least);
    setenv("ARES_MEMORY_LEAST", number, 1);
    if (after) setenv("ARES_MEMORY_AFTER", after, 1);
    else unsetenv("ARES_MEMORY_AFTER");
}

/* How often rank 1 asks in a whole run. */
static long requests(const char *run, const char *words, const char *kind, long least,
                     const char *after)
{
    ares_str out = { 0 }, count = { 0 };
    refuse(kind, 0, least, after);
    int rc = e2e_program(&out, WORDS, e2e_train_words(run), words);
    unsetenv("LD_PRELOAD");
    CHECK_MSG(rc == 0, "%s", ares_str_view(&out).data);
    CHECK_OK(ares_file_read(test_file("count"), &count));
    long n = atol(count.data);
    ares_str_fini(&count);
    ares_str_fini(&out);
    return n;
}

static int times(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at++) n++;
    return n;
}

/*
 * What the device refuses is an error, which all ranks agree on; what the heap or scratch of the
 * kernels does not get ends the process. Either way one message says what rank 1 asked for.
 */
static void check_said(const char *out, int status, bool heap)
{
    bool aborted = status == 128 + SIGABRT;
    CHECK_MSG(aborted || (!heap && status == 1), "status %d: %s", status, out);
    CHECK(!strstr(out, "comm_timeout_s"));
    if (aborted) {
        CHECK_CONTAINS(out, "[rank 1] error: core: ");
        CHECK_CONTAINS(out, " bytes of host memory were refused to process ");
        CHECK_EQ(times(out, "error: core: "), 1);
    } else {
        CHECK_CONTAINS(out, "rank 1: ");
        CHECK_CONTAINS(out, " do not fit on the device beside ");
        CHECK_EQ(times(out, "error: "), 1);
    }
}

/* Refuses request `at` to rank 1 of a run, which then goes on and ends as `whole`. */
static int run_out(const char *whole, const char *words, const char *kind, long at, long least,
                   bool after)
{
    ares_str out = { 0 };
    char run[40], latest[80];
    snprintf(run, sizeof run, "%s_%s_%ld", whole, kind, at);
    snprintf(latest, sizeof latest, "%s/checkpoints/latest", run);
    double begun = ares_now_s();
    refuse(kind, at, least, after ? test_file(latest) : NULL);
    int status = e2e_program(&out, WORDS, e2e_train_words(run), words);
    unsetenv("LD_PRELOAD");
    check_said(out.data, status, strcmp(kind, "heap") == 0);
    CHECK(ares_now_s() - begun < 100); /* half of the limit for a rank that does not come */
    if (after) CHECK(ares_file_exists(test_file(latest)));
    ares_str_clear(&out);
    int rc = e2e_program(&out, WORDS, e2e_train_words(run), words);
    CHECK_MSG(rc == 0, "%s of %s, request %ld: %s", kind, whole, at, out.data);
    if (after) CHECK_CONTAINS(out.data, "going on from ");
    e2e_same_runs(whole, run, 3);
    ares_str_fini(&out);
    return status;
}

/* Refuses some requests, the first and the last among them. Gives how many ended as an error. */
static int run_out_often(const char *whole, const char *words, const char *kind, int runs,
                         long least, bool after)
{
    char latest[80];
    snprintf(latest, sizeof latest, "%s/checkpoints/latest", whole);
    long n = requests(whole, words, kind, least, after ? test_file(latest) : NULL);
    int errors = 0;
    if (!CHECK_MSG(n >= runs, "%ld requests", n)) return 0;
    for (int i = 0; i < runs; i++)
        errors += run_out(whole, words, kind, 1 + (n - 1) * i / (runs - 1), least, after) == 1;
    return errors;
}

/* Weights, states, slots, cache, activations, gradients ...: of the device, here the CPU's pages.
 */
TEST_MPI(pages_that_one_of_two_ranks_does_not_get_end_both_with_one_message)
{
    E2E_NEEDS_MPI();
    NEEDS_OWN_HEAP();
    CHECK(run_out_often("states", "", "pages", 5, 0, false) >= 3);
    CHECK(run_out_often("all", all, "pages", 7, 0, false) >= 5);
}

/* After the first checkpoint, from which the run goes on. */
TEST_MPI(heap_that_one_of_two_ranks_does_not_get_ends_both_and_loses_no_checkpoint)
{
    E2E_NEEDS_MPI();
    NEEDS_OWN_HEAP();
    (void)run_out_often("heap", all, "heap", 4, 2048, true);
}
