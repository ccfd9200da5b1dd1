/* Samples that a clock holds: it says when they are decoded, and changes nothing of them. */
#include <stdio.h>
#include <string.h>

#include "ares/rollout.h"
#include "test.h"

enum { REQUESTS = 3, N = 4, MOST = 40, LATE = 7 };
static ares_device device;
static ares_model *model;

static bool open_model(void)
{
    char path[600];
    ares_model_options opt = { TEST_TYPES };
    snprintf(path, sizeof path, "%s/qwen2_tied", test_source("tests/golden/models"));
    return CHECK_OK(ares_device_open("cpu", 2, &device)) &&
           CHECK_OK(ares_model_load(path, &device, &opt, &model));
}

static void close_model(void)
{
    ares_model_free(model);
    ares_device_close(&device);
}

/* The last request begins late. */
static ares_rollout *begin(int64_t cache_tokens, int32_t seqs)
{
    static const int32_t prompt[REQUESTS][6] = { { 5, 9, 3, 14 }, { 8, 1, 2 }, { 7, 7, 9, 1, 4 } };
    static const int32_t length[REQUESTS] = { 4, 3, 5 }, stops[] = { 3, 5, 11 };
    ares_rollout *r;
    const ares_rollout_options o = { .cache_tokens = cache_tokens,
                                     .max_num_seqs = seqs,
                                     .max_num_batched_tokens = 16,
                                     .max_model_len = 64 };
    if (!CHECK_OK(ares_rollout_new(model, NULL, &o, &r))) return NULL;
    for (int i = 0; i < REQUESTS; i++)
        CHECK_OK(
            ares_rollout_add(r,
                             &(ares_request){ .prompt = prompt[i],
                                              .prompt_len = length[i],
                                              .n = N,
                                              .start = i == REQUESTS - 1 ? LATE : 0,
                                              .sampling = { .temperature = 1,
                                                            .top_p = 1,
                                                            .max_new_tokens = MOST,
                                                            .n_stop_ids = 3,
                                                            .stop_ids = stops },
                                              .key = ares_rng_root((uint64_t)i, ARES_RNG_SAMPLE) },
                             NULL));
    return r;
}

static void finish_all(ares_rollout *r, ares_completion out[REQUESTS][N])
{
    int64_t active = 1;
    ares_completion c;
    while (active && CHECK_OK(ares_rollout_step(r, &active)))
        while (ares_rollout_next(r, &c)) out[c.request][c.index] = c;
}

static void check_same(const ares_completion *a, const ares_completion *b)
{
    size_t bytes = (size_t)a->n_tokens * 4;
    REQUIRE(a->n_tokens == b->n_tokens && a->finish == b->finish);
    CHECK_MEM(a->ids, b->ids, bytes);
    CHECK_MEM(a->log_probs, b->log_probs, bytes);
    CHECK_MEM(a->entropies_1, b->entropies_1, bytes);
}

/* The clock moves on by `step`; whatever ends by then has ended, and nothing else. */
static void held_in_steps(const ares_completion free_run[REQUESTS][N], int64_t cache, int32_t seqs,
                          int64_t step)
{
    ares_completion c[REQUESTS][N] = { 0 };
    ares_rollout *r = begin(cache, seqs);
    for (int64_t until = step; r && until < MOST + LATE + step; until += step) {
        ares_rollout_hold(r, until);
        finish_all(r, c);
        for (int i = 0; i < REQUESTS; i++)
            for (int k = 0; k < N; k++) {
                int64_t start = i == REQUESTS - 1 ? LATE : 0;
                bool ended = start + free_run[i][k].n_tokens <= until;
                CHECK_MSG(ended == (c[i][k].n_tokens > 0), "until %d: %d, %d", (int)until, i, k);
            }
    }
    for (int i = 0; i < REQUESTS; i++)
        for (int k = 0; k < N; k++) check_same(&free_run[i][k], &c[i][k]);
    ares_rollout_free(r);
}

TEST(a_clock_holds_samples_and_changes_no_bit)
{
    ares_completion free_run[REQUESTS][N] = { 0 };
    if (!open_model()) return;
    ares_rollout *r = begin(2048, 16);
    finish_all(r, free_run);
    int shorter = 0;
    for (int i = 0; i < REQUESTS; i++)
        for (int k = 0; k < N; k++) shorter += free_run[i][k].n_tokens < MOST;
    CHECK(shorter > 2 && shorter < REQUESTS * N);
    held_in_steps(free_run, 2048, 16, 1);
    held_in_steps(free_run, 2048, 3, 1);  /* fewer places than samples */
    held_in_steps(free_run, 2048, 2, 16); /* all wait for their turn */
    held_in_steps(free_run, 128, 3, 5);   /* room for two samples: parked ones lose their blocks */
    ares_rollout_free(r);
    close_model();
}

TEST(held_samples_are_cut_where_they_are_and_where_they_have_been)
{
    ares_completion free_run[REQUESTS][N] = { 0 }, c[REQUESTS][N] = { 0 };
    if (!open_model()) return;
    ares_rollout *whole = begin(2048, 16), *r = begin(2048, 3);
    finish_all(whole, free_run);
    ares_rollout_hold(r, 20);
    finish_all(r, c);
    for (int i = 0; i < REQUESTS; i++)
        for (int k = 0; k < N; k++)
            if (!c[i][k].n_tokens) CHECK(ares_rollout_cut(r, i, k, i == REQUESTS - 1 ? 0 : 19 + k));
    ares_rollout_hold(r, 30);
    finish_all(r, c);
    for (int i = 0; i < REQUESTS; i++)
        for (int k = 0; k < N; k++) {
            bool late = i == REQUESTS - 1;
            int32_t had = free_run[i][k].n_tokens, at = late ? 0 : 19 + k;
            bool ended = had <= (late ? 13 : 20) || (!late && had <= at);
            CHECK_EQ(c[i][k].n_tokens, ended ? had : at);
            CHECK(ended == (c[i][k].finish != ARES_FINISH_CUT));
            CHECK_MEM(c[i][k].ids, free_run[i][k].ids, (size_t)c[i][k].n_tokens * 4);
        }
    int64_t active;
    CHECK_OK(ares_rollout_step(r, &active));
    CHECK_EQ(active, 0);
    ares_rollout_free(whole);
    ares_rollout_free(r);
    close_model();
}
