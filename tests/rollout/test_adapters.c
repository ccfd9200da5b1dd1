/*
 * Adapters in the engine: several side by side with the model alone give each its own samples, and
 * the cache never gives one what another, or an older version, has computed.
 */
#include <stdio.h>
#include <string.h>

#include "ares/rollout.h"
#include "internal.h"
#include "test.h"

/* All on the tied base; the last one adapts the head, the one before it has B = 0. */
static const char *const names[] = { NULL, "qwen2_r8", "qwen2_r1", "qwen2_zero_b",
                                     "qwen2_tied_head" };
enum { ADAPTERS = ARES_COUNT(names), ZERO_B = 3, PROMPTS = 2, SAMPLES = 2, LONG = 75, NEW = 50 };

static ares_device device;
static ares_model *model;
static ares_adapter *adapters[ADAPTERS];
static int32_t prompts[PROMPTS][LONG];
static const int32_t lengths[PROMPTS] = { LONG, 5 };
static float temperature = 0.9f;
static bool drafts;
/* Instead a model with delta nets, with one adapter of several scales, of which one is 0. */
static bool hybrid;

static const char *golden(const char *name)
{
    static char path[2][600];
    static int turn;
    char *to = path[turn = !turn];
    snprintf(to, sizeof path[0], "%s/%s", test_source("tests/golden/lora"), name);
    return to;
}

static bool open_all(int threads)
{
    char base[600];
    snprintf(base, sizeof base, "%s",
             golden(hybrid ? "../models/qwen3_5_interval" : "base_qwen2_gqa"));
    bool good =
        CHECK_OK(ares_device_open("cpu", threads, &device)) &&
        CHECK_OK(ares_model_load(base, &device, &(ares_model_options){ TEST_TYPES }, &model));
    for (int i = 1; i < ADAPTERS && good; i++) {
        good = CHECK_OK(ares_adapter_load(model, base, golden(hybrid ? "qwen3_5_all" : names[i]),
                                          &adapters[i]));
        for (int k = 0; hybrid && good && k < adapters[i]->n_modules; k++)
            adapters[i]->module[k].scale *= i == ZERO_B ? 0 : (float)i;
    }
    for (int p = 0; p < PROMPTS && good; p++)
        for (int i = 0; i < lengths[p]; i++)
            prompts[p][i] =
                (int32_t)ares_rng_below(ares_rng_root(11, ARES_RNG_TEST), (uint64_t)(100 * p + i),
                                        (uint64_t)model->cfg.vocab);
    return good;
}

static void close_all(void)
{
    for (int i = 1; i < ADAPTERS; i++) ares_adapter_free(adapters[i]);
    memset(adapters, 0, sizeof adapters);
    ares_model_free(model);
    ares_device_close(&device);
}

static ares_rollout *engine(int max_seqs, int rows, int64_t cache_tokens, bool prefixes)
{
    const ares_rollout_options o = { .cache_tokens = cache_tokens,
                                     .max_num_seqs = max_seqs,
                                     .max_num_batched_tokens = rows,
                                     .max_model_len = 128,
                                     .drafts_tokens = drafts,
                                     .no_prefix_cache = !prefixes };
    ares_rollout *r = NULL;
    CHECK_OK(ares_rollout_new(model, NULL, &o, &r));
    return r;
}

static bool ask(ares_rollout *r, int adapter, int prompt, int64_t *id)
{
    const ares_request q = { .prompt = prompts[prompt],
                             .prompt_len = lengths[prompt],
                             .n = SAMPLES,
                             .sampling = { .temperature = temperature,
                                           .top_p = prompt ? 1 : 0.8f,
                                           .max_new_tokens = NEW,
                                           .ignore_eos = true },
                             .key = ares_rng_root((uint64_t)prompt, ARES_RNG_SAMPLE),
                             .adapter = adapters[adapter] };
    return CHECK_OK(ares_rollout_add(r, &q, id));
}

typedef struct answer {
    int32_t ids[NEW];
    float log_probs[NEW], entropies[NEW];
} answer;

/* Decodes all that is asked. of [requests][SAMPLES] */
static void finish(ares_rollout *r, answer (*of)[SAMPLES])
{
    int64_t active = 1;
    ares_completion c;
    while (active && CHECK_OK(ares_rollout_step(r, &active)))
        while (ares_rollout_next(r, &c)) {
            answer *a = &of[c.request][c.index];
            CHECK_EQ(c.n_tokens, NEW);
            memcpy(a->ids, c.ids, sizeof a->ids);
            memcpy(a->log_probs, c.log_probs, sizeof a->log_probs);
            memcpy(a->entropies, c.entropies, sizeof a->entropies);
        }
}

static void check_side_by_side(void)
{
    /*
     * seen to fail: with the runs of a pass shifted by a row; with the head's adapter taken from
     * the first sample for all; with prompts that lost their blocks finding the model's
     */
    static answer alone[ADAPTERS * PROMPTS][SAMPLES], together[ADAPTERS * PROMPTS][SAMPLES];
    for (int way = 0; way < 3; way++) { /* all at once; little room; one thread */
        if (!open_all(way == 2 ? 1 : 2)) return;
        for (int i = 0; i < ADAPTERS * PROMPTS; i++) {
            ares_rollout *r = engine(8, 64, 4096, false);
            ask(r, i / PROMPTS, i % PROMPTS, NULL);
            finish(r, &alone[i]);
            ares_rollout_free(r);
        }
        ares_rollout *r =
            engine(way == 1 ? 6 : 32, way == 1 ? 7 : 256, way == 1 ? 224 : 4096, true);
        for (int i = 0; i < ADAPTERS * PROMPTS; i++) ask(r, i / PROMPTS, i % PROMPTS, NULL);
        finish(r, together);
        CHECK_MEM(together, alone, sizeof alone);
        for (int a = 1; a < ADAPTERS; a++) { /* they differ from the model, but where B is 0 */
            bool same = memcmp(alone[PROMPTS * a], alone[0], sizeof alone[0]) == 0;
            CHECK_EQ(same, a == ZERO_B);
        }
        ares_rollout_free(r);
        close_all();
    }
}

TEST_BITS(adapters_side_by_side_sample_what_each_samples_alone)
{
    check_side_by_side();
}

TEST_BITS(adapters_of_delta_nets_side_by_side_sample_what_each_samples_alone)
{
    hybrid = true;
    check_side_by_side();
    hybrid = false;
}

TEST_BITS(adapters_side_by_side_sample_the_same_with_drafts)
{
    static answer plain[ADAPTERS * PROMPTS][SAMPLES], drafted[ADAPTERS * PROMPTS][SAMPLES];
    ares_rollout_stats stats;
    if (!open_all(2)) return;
    temperature = 0; /* of three at once, those that begin later copy others */
    for (int with = 0; with < 2; with++) {
        drafts = with;
        ares_rollout *r = engine(3, 64, 4096, true);
        for (int i = 0; i < ADAPTERS * PROMPTS; i++) ask(r, i / PROMPTS, i % PROMPTS, NULL);
        finish(r, with ? drafted : plain);
        ares_rollout_get_stats(r, &stats);
        ares_rollout_free(r);
    }
    CHECK_MEM(drafted, plain, sizeof plain);
    CHECK(stats.accepted_tokens > 100 && stats.drafted_tokens > stats.accepted_tokens);
    printf("  %lld drafted, %lld right\n", (long long)stats.drafted_tokens,
           (long long)stats.accepted_tokens);
    temperature = 0.9f;
    drafts = false;
    close_all();
}

TEST_BITS(an_adapter_whose_scale_is_zero_samples_what_the_model_does)
{
    /* seen to fail: with a scale of 0 given to the kernels, to which it says that there is none */
    static answer plain[PROMPTS][SAMPLES], zero[PROMPTS][SAMPLES];
    if (!open_all(2)) return;
    for (int a = 1; a < ADAPTERS; a++) {
        for (int i = 0; i < adapters[a]->n_modules; i++) adapters[a]->module[i].scale = 0;
        for (int with = 0; with < 2; with++) {
            ares_rollout *r = engine(8, 64, 4096, false);
            for (int p = 0; p < PROMPTS; p++) ask(r, with ? a : 0, p, NULL);
            finish(r, with ? zero : plain);
            ares_rollout_free(r);
        }
        CHECK_MEM(zero, plain, sizeof plain);
    }
    close_all();
}

/* Prompt tokens that a request of an adapter finds in the cache, after all before it. */
static int64_t found(ares_rollout *r, int adapter)
{
    static answer unused[64][SAMPLES];
    ares_rollout_stats before, after;
    int64_t id;
    ares_rollout_get_stats(r, &before);
    if (!ask(r, adapter, 0, &id)) return -1;
    finish(r, unused);
    ares_rollout_get_stats(r, &after);
    return after.reused_tokens - before.reused_tokens;
}

TEST(the_cache_gives_each_adapter_and_version_its_own_blocks)
{
    /* seen to fail: with the version left out of the root; with a root that a lost prompt forgets
     */
    if (!open_all(2)) return;
    ares_rollout *r = engine(8, 64, 4096, true);
    CHECK_EQ(found(r, 0), 0);
    CHECK(found(r, 0) >= 64);
    CHECK_EQ(found(r, 1), 0);
    CHECK(found(r, 1) >= 64);
    CHECK_EQ(found(r, 2), 0);
    adapters[1]->version++; /* its numbers have changed */
    CHECK_EQ(found(r, 1), 0);
    CHECK(found(r, 1) >= 64);
    CHECK(found(r, 0) >= 64); /* the model's own stay */
    CHECK(found(r, 2) >= 64);
    ares_rollout_free(r);
    close_all();
}

TEST(an_adapter_loaded_while_others_are_sampled_has_the_samples_that_it_would_have_alone)
{
    static answer alone[1][SAMPLES], of[3][SAMPLES];
    if (!open_all(2)) return;
    ares_rollout *r = engine(8, 64, 4096, true);
    ares_adapter *late = adapters[4];
    ask(r, 4, 0, NULL);
    finish(r, alone);
    ares_rollout_free(r);
    ares_adapter_free(late);
    adapters[4] = NULL;

    int64_t active;
    r = engine(8, 64, 4096, true);
    ask(r, 0, 0, NULL), ask(r, 2, 0, NULL); /* of rank 1 at most, so far */
    for (int i = 0; i < 4; i++) CHECK_OK(ares_rollout_step(r, &active));
    CHECK_OK(ares_adapter_load(model, golden("base_qwen2_gqa"), golden(names[4]), &adapters[4]));
    ask(r, 4, 0, NULL);
    finish(r, of);
    CHECK_MEM(of[2], alone[0], sizeof alone[0]);
    ares_rollout_free(r);
    close_all();
}

TEST(a_pass_has_one_run_of_rows_for_each_adapter_however_they_arrived)
{
    /* seen to fail: with rows in the order of arrival */
    enum { ROUNDS = 3 };
    static answer answers[ROUNDS * ADAPTERS][SAMPLES], alone[SAMPLES];
    int64_t active = 1;
    if (!open_all(2)) return;
    ares_rollout *r = engine(ROUNDS * ADAPTERS * SAMPLES, 512, 8192, true);
    for (int i = 0; i < ROUNDS * ADAPTERS; i++) ask(r, i % ADAPTERS, 1, NULL);
    for (int i = 0; i < 4 && active; i++) CHECK_OK(ares_rollout_step(r, &active));
    CHECK_EQ(r->plan->rows, ROUNDS * ADAPTERS * SAMPLES);
    CHECK_EQ(r->plan->n_adapted, ADAPTERS);
    finish(r, answers);
    ares_rollout_free(r);
    r = engine(8, 64, 4096, false);
    ask(r, 1, 1, NULL);
    finish(r, &alone);
    for (int i = 1; i < ROUNDS * ADAPTERS; i += ADAPTERS)
        CHECK_MEM(answers[i], alone, sizeof alone);
    ares_rollout_free(r);
    close_all();
}
