/*
 * What a server asks of the engine beyond a run: scores of prompts, likely tokens, requests that
 * are dropped one by one, and numbers that are not finite ending their sample alone.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"
#include "test.h"

enum { PROMPT = 45, NEW = 20, LIKELY = 5, WHOLE = PROMPT + NEW };

static ares_device device;
static ares_model *model;
static ares_adapter *adapter; /* it adapts the head */
static int32_t prompt[PROMPT];

static bool open_all(void)
{
    char base[600], tied[600];
    snprintf(base, sizeof base, "%s", test_source("tests/golden/lora/base_qwen2_gqa"));
    snprintf(tied, sizeof tied, "%s", test_source("tests/golden/lora/qwen2_tied_head"));
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (int32_t)ares_rng_below(ares_rng_root(5, ARES_RNG_TEST), (uint64_t)i, 90);
    return CHECK_OK(ares_device_open("cpu", 2, &device)) &&
           CHECK_OK(ares_model_load(base, &device, &(ares_model_options){ 0 }, &model)) &&
           CHECK_OK(ares_adapter_load(model, base, tied, &adapter));
}

static void close_all(void)
{
    ares_adapter_free(adapter);
    ares_model_free(model);
    ares_device_close(&device);
}

static ares_rollout *engine(int rows, bool serves)
{
    const ares_rollout_options o = { .cache_tokens = 2048,
                                     .max_num_seqs = 4,
                                     .max_num_batched_tokens = rows,
                                     .max_model_len = 128,
                                     .n_likely = LIKELY,
                                     .serves = serves };
    ares_rollout *r = NULL;
    return CHECK_OK(ares_rollout_new(model, NULL, &o, &r)) ? r : NULL;
}

static ares_request asking(const int32_t *ids, int n, const ares_adapter *a, float temperature)
{
    return (ares_request){ .prompt = ids,
                           .prompt_len = n,
                           .n = 1,
                           .adapter = a,
                           .sampling = { .temperature = temperature,
                                         .top_p = 1,
                                         .top_k = -1,
                                         .ignore_eos = true,
                                         .max_new_tokens = NEW },
                           .key = ares_rng_root(3, ARES_RNG_SAMPLE) };
}

static bool finish(ares_rollout *r, ares_completion *c)
{
    int64_t active = 1;
    while (active)
        if (!CHECK_OK(ares_rollout_step(r, &active))) return false;
    return CHECK(ares_rollout_next(r, c));
}

/* An answer, then the scores of prompt and answer together, computed in pieces of `rows` rows. */
static void sampled_is_scored(int rows, const ares_adapter *a, float temperature)
{
    ares_rollout *r = engine(rows, true);
    ares_request q = asking(prompt, PROMPT, a, temperature);
    ares_completion c;
    int32_t whole[WHOLE], ids[NEW], likely[NEW * LIKELY];
    float log_probs[NEW], likely_log_probs[NEW * LIKELY];
    int64_t id;
    q.n_likely = LIKELY;
    if (!r || !CHECK_OK(ares_rollout_add(r, &q, &id)) || !finish(r, &c)) return;
    memcpy(whole, prompt, sizeof prompt);
    memcpy(whole + PROMPT, c.ids, sizeof ids);
    memcpy(log_probs, c.log_probs_1, sizeof log_probs);
    memcpy(likely, c.likely_tokens, sizeof likely);
    memcpy(likely_log_probs, c.likely_log_probs, sizeof likely_log_probs);
    ares_rollout_drop(r, id);

    q = asking(whole, WHOLE, a, 0);
    q.sampling.max_new_tokens = 1;
    q.scores =
        (ares_prompt_scores_wanted){ .from = 3, .width = 1, .n_likely = LIKELY, .ranks = true };
    if (!CHECK_OK(ares_rollout_add(r, &q, &id)) || !finish(r, &c)) return;
    ares_prompt_scores s;
    ares_rollout_prompt_scores(r, id, &s);
    CHECK_EQ(s.rows, WHOLE - 1);
    CHECK_EQ(c.cached_tokens, 0); /* what the cache has was not scored */
    const int first = PROMPT - 1; /* the row that the answer's first token was drawn from */
    CHECK(memcmp(s.log_probs + first, log_probs, sizeof log_probs) == 0);
    CHECK(memcmp(s.likely_tokens + first * LIKELY, likely, sizeof likely) == 0);
    CHECK(memcmp(s.likely_log_probs + first * LIKELY, likely_log_probs, sizeof likely_log_probs) ==
          0);
    CHECK_EQ(s.log_probs[2] == 0, true); /* before `from` */
    for (int t = 3; t < s.rows; t++) {
        const int32_t *list = s.likely_tokens + t * LIKELY;
        int place = 0;
        while (place < LIKELY && list[place] != whole[t + 1]) place++;
        if (place < LIKELY) CHECK_EQ(s.ranks[t], place + 1);
        else CHECK(s.ranks[t] > LIKELY);
    }
    ares_rollout_free(r);
}

TEST(a_prompt_is_scored_with_the_bits_it_was_sampled_with)
{
    if (!open_all()) return;
    sampled_is_scored(64, NULL, 1);
    sampled_is_scored(7, NULL, 0.7F);
    sampled_is_scored(7, adapter, 1);
    sampled_is_scored(64, adapter, 0);
    close_all();
}

TEST(several_targets_of_a_row_are_scored_each_as_if_alone)
{
    enum { WIDTH = 3 };
    if (!open_all()) return;
    ares_rollout *r = engine(16, true);
    int32_t targets[(PROMPT - 1) * WIDTH];
    for (int t = 0; t < PROMPT - 1; t++) {
        targets[t * WIDTH] = (t * 7) % 90;
        targets[t * WIDTH + 1] = prompt[t + 1];
        targets[t * WIDTH + 2] = t % 2 ? -1 : 5;
    }
    ares_request q = asking(prompt, PROMPT, adapter, 0);
    q.scores.width = WIDTH;
    q.scores.targets = targets;
    int64_t id[2];
    ares_completion c;
    if (!r || !CHECK_OK(ares_rollout_add(r, &q, &id[0]))) return;
    q.scores = (ares_prompt_scores_wanted){ .width = 1 };
    if (!CHECK_OK(ares_rollout_add(r, &q, &id[1])) || !finish(r, &c)) return;
    ares_prompt_scores many, one;
    ares_rollout_prompt_scores(r, id[0], &many);
    ares_rollout_prompt_scores(r, id[1], &one);
    for (int t = 0; t < PROMPT - 1; t++) {
        CHECK(many.log_probs[t * WIDTH + 1] == one.log_probs[t]);
        CHECK(many.log_probs[t * WIDTH] < 0);
        CHECK((many.log_probs[t * WIDTH + 2] == 0) == (t % 2 == 1));
    }
    ares_rollout_free(r);
    close_all();
}

TEST(a_dropped_request_leaves_nothing_and_changes_no_other)
{
    if (!open_all()) return;
    ares_rollout *r = engine(64, true), *plain = engine(64, false);
    ares_request q = asking(prompt, PROMPT, NULL, 1);
    ares_completion c, expected;
    int64_t id;
    if (!r || !plain || !CHECK_OK(ares_rollout_add(plain, &q, NULL)) || !finish(plain, &expected))
        return;
    for (int i = 0; i < 30; i++) {
        int64_t other;
        ares_request cut = asking(prompt, PROMPT - i, NULL, 1);
        if (!CHECK_OK(ares_rollout_add(r, &q, &id)) || !CHECK_OK(ares_rollout_add(r, &cut, &other)))
            return;
        int64_t active;
        CHECK_OK(ares_rollout_step(r, &active));
        CHECK(ares_rollout_cut(r, other, 0, 1));
        ares_rollout_look(r, id, 0, &c);
        CHECK_EQ(c.n_tokens, 1);
        while (active && CHECK_OK(ares_rollout_step(r, &active))) {}
        for (int k = 0; k < 2 && CHECK(ares_rollout_next(r, &c)); k++) {
            if (c.request == id)
                CHECK(memcmp(c.ids, expected.ids, NEW * sizeof *c.ids) == 0 &&
                      memcmp(c.log_probs, expected.log_probs, NEW * sizeof *c.log_probs) == 0);
            ares_rollout_drop(r, c.request);
        }
        CHECK(!r->first && !r->last && !r->dropped && r->n_finished == 0);
    }
    ares_rollout_free(r);
    ares_rollout_free(plain);
    close_all();
}

TEST(weights_that_are_not_finite_end_their_own_sample)
{
    if (!open_all()) return;
    ares_rollout *r = engine(64, true);
    ares_request q = asking(prompt, PROMPT, NULL, 1), bad = asking(prompt, PROMPT, adapter, 1);
    ares_params *p = &adapter->params;
    float *weights = p->regions[0].weights;
    for (int64_t i = 0; i < p->regions[0].elements; i++) weights[i] = NAN;
    int64_t good, active = 1;
    int n = 0, broken = 0;
    if (!r || !CHECK_OK(ares_rollout_add(r, &q, &good)) ||
        !CHECK_OK(ares_rollout_add(r, &bad, NULL)))
        return;
    while (active && CHECK_OK(ares_rollout_step(r, &active))) {}
    for (ares_completion c; ares_rollout_next(r, &c); n++) {
        if (c.request == good) CHECK_EQ(c.n_tokens, NEW);
        else CHECK_EQ(c.n_tokens, 0);
        broken += c.finish == ARES_FINISH_BROKEN;
    }
    CHECK_EQ(n, 2);
    CHECK_EQ(broken, 1);
    ares_rollout_free(r);
    close_all();
}
