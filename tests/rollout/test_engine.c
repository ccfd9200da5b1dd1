/* What ends a sample, what is recorded with it, and why a request is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/rollout.h"
#include "test.h"

static ares_device device;
static ares_model *model;

static bool open_variant(const char *variant)
{
    char path[600];
    ares_model_options opt = { .storage = ARES_F32 };
    snprintf(path, sizeof path, "%s/%s", test_source("tests/golden/models"), variant);
    return CHECK_OK(ares_device_open("cpu", 2, &device)) &&
           CHECK_OK(ares_model_load(path, &device, &opt, &model));
}

static void close_variant(void)
{
    ares_model_free(model);
    ares_device_close(&device);
}

static const int32_t prompt[] = { 5, 9, 3, 14 };
static const ares_sampling plain = {
    .temperature = 1, .top_p = 1, .max_new_tokens = 24, .ignore_eos = true
};
static const ares_rollout_options roomy = {
    .cache_tokens = 2048, .max_num_seqs = 8, .max_num_batched_tokens = 64, .max_model_len = 128
};

/* All n samples of one prompt in index order; their columns lie in the engine. */
static ares_rollout *sample(const int32_t *ids, int32_t len, int32_t n, const ares_sampling *s,
                            ares_completion *out)
{
    ares_rollout *r;
    int64_t active = 1;
    ares_completion c;
    if (!CHECK_OK(ares_rollout_new(model, NULL, &roomy, &r))) return NULL;
    CHECK_OK(ares_rollout_add(r,
                              &(ares_request){ .prompt = ids,
                                               .prompt_len = len,
                                               .n = n,
                                               .sampling = *s,
                                               .key = ares_rng_root(3, ARES_RNG_SAMPLE) },
                              NULL));
    while (active && CHECK_OK(ares_rollout_step(r, &active)))
        while (ares_rollout_next(r, &c)) out[c.index] = c;
    return r;
}

TEST(a_stop_id_ends_a_sample_and_is_kept)
{
    if (!open_variant("qwen2_tied")) return;
    ares_completion free_run[4], stopped[4];
    ares_rollout *a = sample(prompt, 4, 4, &plain, free_run), *b;
    int32_t stop = free_run[0].ids[10];
    ares_sampling s = plain;
    s.stop_ids = &stop;
    s.n_stop_ids = 1;
    b = sample(prompt, 4, 4, &s, stopped);
    for (int i = 0; i < 4; i++) {
        int32_t end = 0;
        while (end < free_run[i].n_tokens && free_run[i].ids[end] != stop) end++;
        bool found = end < free_run[i].n_tokens;
        CHECK_EQ(stopped[i].n_tokens, found ? end + 1 : free_run[i].n_tokens);
        CHECK_EQ(stopped[i].finish, found ? ARES_FINISH_STOP : ARES_FINISH_LENGTH);
        CHECK_MEM(stopped[i].ids, free_run[i].ids, (size_t)stopped[i].n_tokens * sizeof(int32_t));
    }
    CHECK_EQ(stopped[0].finish, ARES_FINISH_STOP);
    ares_rollout_free(a);
    ares_rollout_free(b);
    close_variant();
}

TEST(the_models_own_eos_ends_a_sample_unless_ignored)
{
    if (!open_variant("qwen2_tied")) return;
    ares_completion free_run[1], ended[1];
    ares_rollout *a = sample(prompt, 4, 1, &plain, free_run), *b;
    model->cfg.n_eos = 1;
    model->cfg.eos[0] = free_run[0].ids[3];
    ares_sampling s = plain;
    s.ignore_eos = false;
    b = sample(prompt, 4, 1, &s, ended);
    CHECK(ended[0].n_tokens <= 4);
    CHECK_EQ(ended[0].ids[ended[0].n_tokens - 1], free_run[0].ids[3]);
    ares_rollout_free(a);
    ares_rollout_free(b);
    close_variant();
}

TEST(the_models_length_bounds_a_sample)
{
    if (!open_variant("qwen2_tied")) return;
    ares_sampling s = plain;
    ares_completion c[1];
    s.max_new_tokens = 1000;
    ares_rollout *r = sample(prompt, 4, 1, &s, c);
    CHECK_EQ(c[0].n_tokens, 128 - 4);
    CHECK_EQ(c[0].finish, ARES_FINISH_LENGTH);
    ares_rollout_free(r);
    close_variant();
}

TEST(samples_of_a_prompt_differ_and_another_key_gives_others)
{
    if (!open_variant("qwen2_tied")) return;
    ares_completion c[3];
    ares_rollout *r = sample(prompt, 4, 3, &plain, c);
    CHECK(memcmp(c[0].ids, c[1].ids, 24 * sizeof(int32_t)) != 0);
    CHECK(memcmp(c[1].ids, c[2].ids, 24 * sizeof(int32_t)) != 0);
    int64_t active = 1;
    ares_completion other = { 0 };
    int32_t first[24];
    memcpy(first, c[0].ids, sizeof first);
    ares_rollout_clear(r);
    CHECK_OK(ares_rollout_add(r,
                              &(ares_request){ .prompt = prompt,
                                               .prompt_len = 4,
                                               .n = 1,
                                               .sampling = plain,
                                               .key = ares_rng_root(4, ARES_RNG_SAMPLE) },
                              NULL));
    while (active && CHECK_OK(ares_rollout_step(r, &active))) {}
    CHECK(ares_rollout_next(r, &other));
    CHECK(memcmp(first, other.ids, sizeof first) != 0);
    ares_rollout_free(r);
    close_variant();
}

TEST(a_temperature_other_than_one_records_both_log_probs)
{
    if (!open_variant("qwen2_tied")) return;
    ares_sampling s = plain;
    ares_completion hot[1], same[1];
    s.temperature = 2;
    ares_rollout *a = sample(prompt, 4, 1, &s, hot), *b = sample(prompt, 4, 1, &plain, same);
    double apart = 0;
    for (int32_t i = 0; i < hot[0].n_tokens; i++) {
        CHECK(hot[0].entropies[i] > hot[0].entropies_1[i]); /* hotter is flatter */
        apart = fmax(apart, fabs((double)hot[0].log_probs[i] - (double)hot[0].log_probs_1[i]));
    }
    CHECK(apart > 1e-3);
    CHECK_MEM(same[0].log_probs, same[0].log_probs_1, (size_t)same[0].n_tokens * sizeof(float));
    ares_rollout_free(b);
    /* beside a greedy answer, whichever of them comes last */
    for (int last = 0; last < 2; last++) {
        ares_completion c, of[2];
        int64_t active = 1;
        REQUIRE_OK(ares_rollout_new(model, NULL, &roomy, &b));
        for (int k = 0; k < 2; k++) {
            s.temperature = k == last ? 0 : 2;
            CHECK_OK(ares_rollout_add(b,
                                      &(ares_request){ .prompt = prompt,
                                                       .prompt_len = 4,
                                                       .n = 1,
                                                       .sampling = s,
                                                       .key = ares_rng_root(3, ARES_RNG_SAMPLE) },
                                      NULL));
        }
        while (active && CHECK_OK(ares_rollout_step(b, &active)))
            while (ares_rollout_next(b, &c)) of[c.request] = c;
        size_t bytes = (size_t)hot[0].n_tokens * sizeof(float);
        CHECK_MEM(of[!last].log_probs_1, hot[0].log_probs_1, bytes);
        CHECK_MEM(of[!last].entropies_1, hot[0].entropies_1, bytes);
        ares_rollout_free(b);
    }
    ares_rollout_free(a);
    close_variant();
}

/*
 * Two answers in a cache of four blocks of 32 tokens, two blocks each. When these are full, the
 * later answer goes back to waiting, whether it needs a block itself (first case) or the earlier
 * one does.
 */
TEST(an_answer_that_goes_back_to_waiting_for_lack_of_blocks_is_counted)
{
    static const int32_t lengths[][2] = { { 4, 20 }, { 20, 4 } };
    ares_sampling s = plain;
    ares_rollout_options tight = roomy;
    int32_t ids[20];
    if (!open_variant("qwen2_tied")) return;
    for (int i = 0; i < 20; i++) ids[i] = 5 + i;
    s.max_new_tokens = 70;
    for (int i = 0; i < ARES_COUNT(lengths); i++) {
        int64_t put_back[2], tokens[2][2][70] = { 0 };
        for (int cut = 0; cut < 2; cut++) {
            ares_rollout *r;
            ares_rollout_stats stats;
            ares_completion c;
            int64_t active = 1;
            tight.cache_tokens = cut ? 4 * 32 : roomy.cache_tokens;
            REQUIRE_OK(ares_rollout_new(model, NULL, &tight, &r));
            for (int k = 0; k < 2; k++)
                CHECK_OK(ares_rollout_add(
                    r,
                    &(ares_request){ .prompt = ids,
                                     .prompt_len = lengths[i][k],
                                     .n = 1,
                                     .sampling = s,
                                     .key = ares_rng_root((uint64_t)k, ARES_RNG_SAMPLE) },
                    NULL));
            while (active && CHECK_OK(ares_rollout_step(r, &active)))
                while (ares_rollout_next(r, &c))
                    for (int32_t t = 0; t < c.n_tokens; t++) tokens[cut][c.request][t] = c.ids[t];
            ares_rollout_get_stats(r, &stats);
            put_back[cut] = stats.preemptions;
            CHECK_EQ(stats.total_blocks, cut ? 4 : roomy.cache_tokens / 32);
            CHECK(stats.peak_blocks <= stats.total_blocks);
            ares_rollout_free(r);
        }
        CHECK_EQ(put_back[0], 0);
        CHECK_EQ(put_back[1], 1);
        CHECK_MEM(tokens[1], tokens[0], sizeof tokens[0]);
    }
    close_variant();
}

TEST(impossible_requests_are_refused_with_the_remedy)
{
    if (!open_variant("qwen2_tied")) return;
    ares_rollout *r;
    ares_rollout_options tight = {
        .cache_tokens = 64, .max_num_seqs = 4, .max_num_batched_tokens = 64, .max_model_len = 128
    };
    static int32_t longer[200];
    ares_sampling s = plain;
    ares_rng_key key = ares_rng_root(1, ARES_RNG_SAMPLE);
    REQUIRE_OK(ares_rollout_new(model, NULL, &tight, &r));
    s.max_new_tokens = 100;
    CHECK_FAIL(
        ares_rollout_add(
            r,
            &(ares_request){ .prompt = prompt, .prompt_len = 4, .n = 1, .sampling = s, .key = key },
            NULL),
        ARES_ELIMIT, "raise worker.rollout.cache_tokens");
    CHECK_FAIL(ares_rollout_add(
                   r,
                   &(ares_request){
                       .prompt = longer, .prompt_len = 128, .n = 1, .sampling = plain, .key = key },
                   NULL),
               ARES_ELIMIT, "max_model_len = 128");
    CHECK_FAIL(ares_rollout_add(
                   r,
                   &(ares_request){
                       .prompt = prompt, .prompt_len = 0, .n = 1, .sampling = plain, .key = key },
                   NULL),
               ARES_EFORMAT, "the prompt is empty");
    s = plain;
    s.temperature = -1;
    CHECK_FAIL(
        ares_rollout_add(
            r,
            &(ares_request){ .prompt = prompt, .prompt_len = 4, .n = 1, .sampling = s, .key = key },
            NULL),
        ARES_ECONFIG, "temperature");
    s = plain;
    s.top_p = 0;
    CHECK_FAIL(
        ares_rollout_add(
            r,
            &(ares_request){ .prompt = prompt, .prompt_len = 4, .n = 1, .sampling = s, .key = key },
            NULL),
        ARES_ECONFIG, "top_p");
    static const int32_t foreign[] = { 1, 100000 };
    CHECK_FAIL(ares_rollout_add(
                   r,
                   &(ares_request){
                       .prompt = foreign, .prompt_len = 2, .n = 1, .sampling = plain, .key = key },
                   NULL),
               ARES_EFORMAT, "id 100000");
    ares_rollout_free(r);
    tight.cache_tokens = 32;
    CHECK_FAIL(ares_rollout_new(model, NULL, &tight, &r), ARES_ELIMIT, "too few");
    close_variant();
}

TEST(weights_that_are_not_finite_stop_the_rollout)
{
    if (!open_variant("qwen2_tied")) return;
    ares_rollout *r;
    int64_t active = 1;
    int rc = ARES_OK;
    ((float *)model->layer[0].down.w->weight.data)[3] = NAN;
    REQUIRE_OK(ares_rollout_new(model, NULL, &roomy, &r));
    CHECK_OK(ares_rollout_add(r,
                              &(ares_request){ .prompt = prompt,
                                               .prompt_len = 4,
                                               .n = 1,
                                               .sampling = plain,
                                               .key = ares_rng_root(1, ARES_RNG_SAMPLE) },
                              NULL));
    while (active && rc == ARES_OK) rc = ares_rollout_step(r, &active);
    CHECK_FAIL(rc, ARES_ENUMERIC, "NaN or infinity");
    ares_rollout_free(r);
    close_variant();
}
