/*
 * What a decoded token costs on a card: one graph; and, counted by the emulator
 * (tests/gpu/emulate), what it and a sample's start cost: launches of kernels and products in the
 * graph of a step, graphs, copies from the host, and waits. Bounds that may only fall.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ares/rollout.h"
#include "test.h"

typedef int64_t count_fn(const char *kind, const char *operation);

enum { TOKENS = 8 };
typedef struct cost {
    int64_t in_graph, launches, graphs, copies, waits;
} cost;

/* One sample, after its first tokens: one graph has been made by now. */
static ares_rollout *begin(ares_model *m)
{
    static const int32_t prompt[] = { 5, 9, 3, 14 };
    ares_rollout *r;
    if (!CHECK_OK(ares_rollout_new(m, NULL,
                                   &(ares_rollout_options){ .cache_tokens = 512,
                                                            .max_num_seqs = 2,
                                                            .max_num_batched_tokens = 64,
                                                            .max_model_len = 128 },
                                   &r)))
        return NULL;
    bool well = CHECK_OK(ares_rollout_add(
        r,
        &(ares_request){
            .prompt = prompt,
            .prompt_len = ARES_COUNT(prompt),
            .n = 1,
            .sampling = { .temperature = 1, .top_p = 1, .max_new_tokens = 24, .ignore_eos = true },
            .key = ares_rng_root(3, ARES_RNG_SAMPLE) },
        NULL));
    int64_t active;
    for (int i = 0; well && i < 4; i++) well = CHECK_OK(ares_rollout_step(r, &active));
    if (well) return r;
    ares_rollout_free(r);
    return NULL;
}

/* Of TOKENS tokens. */
static bool decode(ares_model *m, count_fn *count, cost *out)
{
    int64_t active = 1, before = count("capture", NULL);
    ares_rollout *r = begin(m);
    bool well = r != NULL;
    if (!well) return false;
    /* launches counts those that lie in no graph */
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

/* Where a card is required, one that cannot be opened is a failure. */
static bool open_card(const char *name, ares_device *d, ares_model **m)
{
    ares_model_options opt = { .storage = ARES_F32 };
    const char *required = getenv("ARES_REQUIRE_CUDA");
    char path[100];
    int rc = ares_device_open("cuda", 1, d);
    *m = NULL;
    if (rc != ARES_OK) {
        if (required && *required) CHECK_OK(rc);
        else test_skip(ares_error_message());
        return false;
    }
    snprintf(path, sizeof path, "tests/golden/models/%s", name);
    if (CHECK_OK(ares_model_load(test_source(path), d, &opt, m))) return true;
    ares_device_close(d);
    return false;
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
    ares_model *model;
    count_fn *count;
    if (!open_card("qwen2_tied", &device, &model)) return;
    *(void **)&count = ares_device_symbol(&device, "ares_emulate_count");
    if (count) start_samples(model, count);
    else test_skip("a card does not count; the emulator does");
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
        ares_model *model;
        count_fn *count;
        cost c;
        if (!open_card(models[i], &device, &model)) return;
        *(void **)&count = ares_device_symbol(&device, "ares_emulate_count");
        if (!count) test_skip("a card does not count; the emulator does");
        if (count && decode(model, count, &c)) {
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

/* Of TOKENS steps: those that were graphs, and the sizes that the device has refused so far. */
static ares_rollout_stats graphs_of(ares_model *m)
{
    ares_rollout_stats before = { 0 }, after = { 0 };
    ares_rollout *r = begin(m);
    int64_t active;
    if (!r) return before;
    ares_rollout_get_stats(r, &before);
    for (int i = 0; i < TOKENS; i++) CHECK_OK(ares_rollout_step(r, &active));
    ares_rollout_get_stats(r, &after);
    after.graph_steps -= before.graph_steps;
    ares_rollout_clear(r); /* forgets no refusal */
    ares_rollout_get_stats(r, &before);
    CHECK_EQ(before.graph_steps, 0);
    CHECK_EQ(before.refused_graphs, after.refused_graphs);
    ares_rollout_free(r);
    return after;
}

TEST_GPU(a_decoded_token_is_one_graph)
{
    ares_device device;
    ares_model *model;
    if (!open_card("qwen2_tied", &device, &model)) return;
    ares_rollout_stats stats = graphs_of(model);
    CHECK_EQ(stats.graph_steps, TOKENS);
    CHECK_EQ(stats.refused_graphs, 0);
    ares_model_free(model);
    ares_device_close(&device);
}

/* A wait, which no capture allows. */
static const ares_kernels *before;
static void advance_and_wait(ares_device *d, const ares_advance_args *a)
{
    before->advance(d, a);
    (void)before->sync(d);
    ares_error_clear();
}

TEST_GPU(a_graph_that_the_card_refuses_is_counted_and_told_once)
{
    ares_device device;
    ares_model *model;
    ares_str told = { 0 };
    char path[500];
    if (!open_card("qwen2_tied", &device, &model)) return;
    before = device.k;
    ares_kernels waits = *before;
    waits.advance = advance_and_wait;
    device.k = &waits;
    snprintf(path, sizeof path, "%s", test_file("stderr"));
    int kept = dup(STDERR_FILENO), file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    REQUIRE(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    ares_log_set(ARES_LOG_INFO, 0); /* another test may have silenced it */
    ares_rollout_stats stats = graphs_of(model);
    dup2(kept, STDERR_FILENO);
    close(kept), close(file);
    CHECK_EQ(stats.graph_steps, 0);
    CHECK_EQ(stats.refused_graphs, 1);
    CHECK_OK(ares_file_read(path, &told));
    CHECK_CONTAINS(told.data,
                   "warning: rollout: the device keeps no graph of a step of 1 samples: ");
    CHECK_CONTAINS(told.data, "captur"); /* the driver's reason */
    char *first = strstr(told.data, "keeps no graph");
    CHECK(first && !strstr(first + 1, "keeps no graph"));
    ares_str_fini(&told);
    device.k = before;
    ares_model_free(model);
    ares_device_close(&device);
}
