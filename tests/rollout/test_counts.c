/*
 * What a decoded token and a sample's start cost on a card, counted by the emulator
 * (tests/gpu/emulate): launches of kernels and products in the graph of a step, graphs, copies from
 * the host, and waits. Bounds that may only fall.
 */
#include <stdio.h>

#include "ares/rollout.h"
#include "test.h"

typedef int64_t count_fn(const char *kind, const char *operation);

enum { TOKENS = 8 };
typedef struct cost {
    int64_t in_graph, launches, graphs, copies, waits;
} cost;

/* Of TOKENS tokens of one sample, after the first ones. */
static bool decode(ares_model *m, count_fn *count, cost *out)
{
    static const int32_t prompt[] = { 5, 9, 3, 14 };
    ares_rollout *r;
    int64_t active = 1, before = count("capture", NULL);
    if (!CHECK_OK(ares_rollout_new(m, NULL,
                                   &(ares_rollout_options){ .cache_tokens = 512,
                                                            .max_num_seqs = 2,
                                                            .max_num_batched_tokens = 64,
                                                            .max_model_len = 128 },
                                   &r)))
        return false;
    bool well = CHECK_OK(ares_rollout_add(
        r,
        &(ares_request){
            .prompt = prompt,
            .prompt_len = ARES_COUNT(prompt),
            .n = 1,
            .sampling = { .temperature = 1, .top_p = 1, .max_new_tokens = 24, .ignore_eos = true },
            .key = ares_rng_root(3, ARES_RNG_SAMPLE) },
        NULL));
    for (int i = 0; well && i < 4; i++) well = CHECK_OK(ares_rollout_step(r, &active));
    /* one graph has been made by now; launches counts those that lie in no graph */
    *out = (cost){ .in_graph = count("capture", NULL),
                   .launches = -count("launch", NULL),
                   .graphs = -count("graph", NULL),
                   .copies = -count("copy in", NULL),
                   .waits = -count("wait", NULL) };
    for (int i = 0; well && i < TOKENS; i++) well = CHECK_OK(ares_rollout_step(r, &active));
    well = well && CHECK(active > 0);
    CHECK_EQ(count("capture", NULL), out->in_graph);
    out->in_graph -= before;
    out->launches += count("launch", NULL);
    out->graphs += count("graph", NULL);
    out->copies += count("copy in", NULL);
    out->waits += count("wait", NULL);
    ares_rollout_free(r);
    return well;
}

/* Launches of the copies from the last blocks of PROMPTS prompts to those of their samples. */
static void start_samples(ares_model *m, count_fn *count)
{
    enum { PROMPTS = 3, SAMPLES = 4, LEN = 21 };
    int32_t prompt[LEN];
    ares_rollout *r;
    int64_t active = 1, before = count("launch", "copy_blocks");
    if (!CHECK_OK(ares_rollout_new(m, NULL,
                                   &(ares_rollout_options){ .cache_tokens = 1024,
                                                            .max_num_seqs = PROMPTS * SAMPLES,
                                                            .max_num_batched_tokens = 256,
                                                            .max_model_len = 128 },
                                   &r)))
        return;
    for (int p = 0; p < PROMPTS; p++) {
        for (int i = 0; i < LEN; i++) prompt[i] = 3 + (5 * i + p) % 20;
        CHECK_OK(ares_rollout_add(r,
                                  &(ares_request){ .prompt = prompt,
                                                   .prompt_len = LEN,
                                                   .n = SAMPLES,
                                                   .sampling = { .temperature = 1,
                                                                 .top_p = 1,
                                                                 .max_new_tokens = 9,
                                                                 .ignore_eos = true },
                                                   .key = ares_rng_root(3, ARES_RNG_SAMPLE) },
                                  NULL));
    }
    for (int i = 0; i < 4; i++) CHECK_OK(ares_rollout_step(r, &active));
    CHECK(active > 0);
    CHECK_EQ(count("launch", "copy_blocks") - before, 1);
    ares_rollout_free(r);
}

TEST_GPU(samples_that_start_in_a_step_copy_their_blocks_in_one_launch)
{
    ares_device device;
    ares_model *model = NULL;
    ares_model_options opt = { .storage = ARES_F32 };
    count_fn *count;
    if (ares_device_open("cuda", 1, &device) != ARES_OK) SKIP(ares_error_message());
    *(void **)&count = ares_device_symbol(&device, "ares_emulate_count");
    if (!count) {
        ares_device_close(&device);
        SKIP("a card does not count; the emulator does");
    }
    if (CHECK_OK(
            ares_model_load(test_source("tests/golden/models/qwen2_tied"), &device, &opt, &model)))
        start_samples(model, count);
    ares_model_free(model);
    ares_device_close(&device);
}

/* The table's copy_blocks, and what it was called with. */
static const ares_kernels *under;
static int64_t calls, most_prompts;
static void see_copies(ares_device *d, const ares_copy_blocks_args *a)
{
    int64_t prompts = 0;
    for (int32_t i = 0; i < a->n; i++) {
        bool first = true;
        for (int32_t k = 0; k < a->n; k++) {
            CHECK(a->block[2 * k] != a->block[2 * i + 1]);
            CHECK(k == i || a->block[2 * k + 1] != a->block[2 * i + 1]);
            first = first && (k >= i || a->block[2 * k] != a->block[2 * i]);
        }
        prompts += first;
    }
    calls++;
    most_prompts = ARES_MAX(most_prompts, prompts);
    under->copy_blocks(d, a);
}

/* Prompts that end in one step give their blocks back, which the next one's samples take. */
TEST(blocks_that_are_copied_together_are_read_or_written_once)
{
    enum { PROMPTS = 30, SAMPLES = 3, LEN = 70 };
    ares_device d;
    ares_model *m;
    ares_model_options opt = { .storage = ARES_F32 };
    ares_rollout *r;
    int32_t prompt[LEN];
    int64_t active = 1;
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    REQUIRE_OK(ares_model_load(test_source("tests/golden/models/qwen2_tied"), &d, &opt, &m));
    under = d.k;
    ares_kernels table = *under;
    table.copy_blocks = see_copies;
    d.k = &table;
    calls = most_prompts = 0;
    REQUIRE_OK(ares_rollout_new(m, NULL,
                                &(ares_rollout_options){ .cache_tokens = 32 * ARES_KV_BLOCK,
                                                         .max_num_seqs = 12,
                                                         .max_num_batched_tokens = 200,
                                                         .max_model_len = 128 },
                                &r));
    for (int p = 0; p < PROMPTS; p++) {
        for (int i = 0; i < LEN; i++) prompt[i] = 3 + (5 * i + p) % 20;
        CHECK_OK(ares_rollout_add(r,
                                  &(ares_request){ .prompt = prompt,
                                                   .prompt_len = 10 + p * 7 % 60,
                                                   .n = SAMPLES,
                                                   .sampling = { .temperature = 1,
                                                                 .top_p = 1,
                                                                 .max_new_tokens = 4 + p % 30,
                                                                 .ignore_eos = true },
                                                   .key = ares_rng_root(3, ARES_RNG_SAMPLE) },
                                  NULL));
    }
    while (active) REQUIRE_OK(ares_rollout_step(r, &active));
    CHECK(calls > 5 && most_prompts > 1);
    ares_rollout_free(r);
    d.k = under;
    ares_model_free(m);
    ares_device_close(&d);
}

TEST_GPU(a_decoded_token_has_few_launches_and_waits)
{
    /* plain, with biases of q, k and v, with norms of heads, and with biases of all products */
    static const char *const models[] = { "llama_plain", "qwen2_tied", "qwen3_untied",
                                          "llama_biases" };
    for (int i = 0; i < ARES_COUNT(models); i++) {
        ares_device device;
        ares_model *model = NULL;
        ares_model_options opt = { .storage = ARES_F32 };
        count_fn *count;
        char path[100];
        cost c;
        if (ares_device_open("cuda", 1, &device) != ARES_OK) SKIP(ares_error_message());
        *(void **)&count = ares_device_symbol(&device, "ares_emulate_count");
        if (!count) {
            ares_device_close(&device);
            SKIP("a card does not count; the emulator does");
        }
        snprintf(path, sizeof path, "tests/golden/models/%s", models[i]);
        if (CHECK_OK(ares_model_load(test_source(path), &device, &opt, &model)) &&
            decode(model, count, &c)) {
            /*
             * seven are no layer's: ids, two of the embedding, last norm, the head's product, two
             * of the sampler
             */
            double layer = (double)(c.in_graph - 7) / model->cfg.layers;
            CHECK_MSG(c.in_graph > 7 && layer <= 9, "%s: %g launches a layer", models[i], layer);
            CHECK_EQ(c.graphs, TOKENS);
            CHECK_EQ(c.copies, TOKENS);
            CHECK_MSG(c.waits <= TOKENS, "%lld waits for %d tokens", (long long)c.waits, TOKENS);
            printf("     %s: %g launches a layer, %lld beside graphs, %g waits a token\n",
                   models[i], layer, (long long)c.launches, (double)c.waits / TOKENS);
        }
        ares_model_free(model);
        ares_device_close(&device);
    }
}
