/*
 * Steps that are launched before the tokens of the step before have been read: the samples, their
 * order of finishing by the clock, cuts and holds are those of an engine that reads every step. The
 * device is the CPU with the functions that a card's table has for it, so every bit must agree.
 * Seen to fail: with the key of a position too early, with tokens of ended samples recorded, with
 * tokens taken from the wrong row, without the host's segments.
 */
#include <stdio.h>
#include <string.h>

#include "ares/rollout.h"
#include "test.h"

enum { REQUESTS = 5, N = 4, MOST = 70, LATE = 7 };
static ares_device device;
static ares_kernels late, padded; /* tables that are read a step late; padded also in sizes */
static const ares_kernels *at_once;
static ares_model *model;

/* ---------------- what a card offers */
static int64_t changed, advanced; /* entries of block tables that were sent, and steps */
static void advance(ares_device *d, const ares_advance_args *a)
{
    (void)d;
    for (int32_t r = 0; r < a->rows; r++) {
        if (a->from[r] >= 0) a->ids[r] = a->token[a->from[r]];
        memcpy(a->cos_sin + r * a->head_dim, a->angles + a->positions[r] * a->head_dim,
               (size_t)a->head_dim * sizeof(float));
    }
    for (int32_t i = 0; i < *a->changes; i++) a->table[a->change[2 * i]] = a->change[2 * i + 1];
    changed += *a->changes;
    advanced++;
}
static char fetched_bytes[2][1 << 16];
static int under_way, most_under_way;
static void fetch(ares_device *d, int slot, const void *from, size_t bytes)
{
    (void)d;
    ARES_ASSERT(bytes <= sizeof fetched_bytes[0]);
    memcpy(fetched_bytes[slot], from, bytes);
    if (++under_way > most_under_way) most_under_way = under_way;
}
static int fetched(ares_device *d, int slot, const void **host)
{
    (void)d;
    under_way--;
    *host = fetched_bytes[slot];
    return ARES_OK;
}
/* Keys of pieces of prompts are gathered by counts of the host, which knows the segments, too. */
static int64_t with_pieces;
static void attention(ares_device *d, const ares_attention_args *a)
{
    const ares_segments *seg = &a->seg;
    size_t n = (size_t)seg->n * sizeof *seg->start;
    if (seg->max_rows > 1) {
        with_pieces++;
        CHECK(seg->host_start && seg->host_prefix_len && seg->host_start != seg->start);
        CHECK_MEM(seg->host_start, seg->start, n + sizeof *seg->start);
        CHECK_MEM(seg->host_prefix_len, seg->prefix_len, n);
    }
    at_once->attention(d, a);
}
static bool no_graph(ares_device *d)
{
    (void)d;
    return false;
}
static const char *no_reason(const ares_device *d)
{
    (void)d;
    return "a CPU has none";
}

static bool open_model_of(const char *path)
{
    ares_model_options opt = { .storage = ARES_F32 };
    if (!CHECK_OK(ares_device_open("cpu", 2, &device)) ||
        !CHECK_OK(ares_model_load(path, &device, &opt, &model)))
        return false;
    at_once = device.k;
    late = *at_once;
    late.advance = advance;
    late.attention = attention;
    late.fetch = fetch;
    late.fetched = fetched;
    padded = late;
    padded.graph_begin = no_graph;
    padded.graph_refusal = no_reason;
    under_way = most_under_way = 0;
    with_pieces = 0;
    return true;
}
static bool open_model(void)
{
    return open_model_of(test_source("tests/golden/models/qwen2_tied"));
}
static void close_model(void)
{
    device.k = at_once;
    ares_model_free(model);
    ares_device_close(&device);
}

typedef struct answers {
    ares_completion c[REQUESTS][N];
    ares_rollout *r;
    ares_rollout_stats stats;
} answers;

/* Prompts of different lengths, one past a block; every kind of sampling; the last begins late. */
static void begin(answers *a, const ares_kernels *table, int64_t cache_tokens, int32_t seqs)
{
    static const int32_t stops[] = { 3, 5, 11 };
    const ares_rollout_options o = { .cache_tokens = cache_tokens,
                                     .max_num_seqs = seqs,
                                     .max_num_batched_tokens = 16,
                                     .max_model_len = 128,
                                     .entropy_top_k = 5,
                                     .most_likely = true };
    device.k = table;
    under_way = 0;
    *a = (answers){ 0 };
    REQUIRE_OK(ares_rollout_new(model, NULL, &o, &a->r));
    for (int i = 0; i < REQUESTS; i++) {
        int32_t prompt[40], length = (int32_t[]){ 4, 3, 33, 32, 5 }[i];
        for (int t = 0; t < length; t++) prompt[t] = 1 + (t * 7 + i * (t > 15)) % 13;
        ares_sampling s = { .temperature = (float[]){ 1, 0.7f, 1, 0, 2 }[i],
                            .top_p = i == 2 ? 0.9f : 1,
                            .top_k = i == 1 ? 9 : 0,
                            .max_new_tokens = i == 3 ? 1 : MOST,
                            .n_stop_ids = i ? 3 : 0,
                            .stop_ids = stops };
        CHECK_OK(
            ares_rollout_add(a->r,
                             &(ares_request){ .prompt = prompt,
                                              .prompt_len = length,
                                              .response_len = i == 4 ? 2 : 0,
                                              .n = N,
                                              .start = i == REQUESTS - 1 ? LATE : 0,
                                              .sampling = s,
                                              .key = ares_rng_root((uint64_t)i, ARES_RNG_SAMPLE) },
                             NULL));
    }
}
static void finish_all(answers *a)
{
    int64_t active = 1;
    ares_completion c;
    while (active && CHECK_OK(ares_rollout_step(a->r, &active)))
        while (ares_rollout_next(a->r, &c)) a->c[c.request][c.index] = c;
    ares_rollout_get_stats(a->r, &a->stats);
}
static void same(const answers *a, const answers *b)
{
    for (int i = 0; i < REQUESTS * N; i++) {
        const ares_completion *x = &a->c[i / N][i % N], *y = &b->c[i / N][i % N];
        size_t bytes = (size_t)x->n_tokens * 4;
        if (!CHECK_EQ(y->n_tokens, x->n_tokens) || !CHECK_EQ(y->finish, x->finish)) continue;
#define SAME(type, name, recorded, text) CHECK_MEM(y->name, x->name, bytes);
        if (bytes) {
            ARES_ROLLOUT_COLUMNS(SAME)
        }
#undef SAME
    }
}

TEST(samples_are_those_of_steps_that_are_read_at_once)
{
    static const struct {
        int64_t cache;
        int32_t seqs;
    } cases[] = { { 4096, 32 }, { 4096, 3 }, { 4096, 1 }, { 192, 8 }, { 160, 3 } };
    answers want, got;
    int64_t preemptions = 0;
    if (!open_model()) return;
    begin(&want, at_once, 4096, 32);
    finish_all(&want);
    for (int i = 0; i < ARES_COUNT(cases); i++)
        for (int with_sizes = 0; with_sizes < 2; with_sizes++) {
            begin(&got, with_sizes ? &padded : &late, cases[i].cache, cases[i].seqs);
            changed = advanced = 0;
            finish_all(&got);
            /* entries of block tables are sent when they change, not in every step */
            if (cases[i].seqs == 1) CHECK(changed > 0 && changed < advanced / 2);
            same(&want, &got);
            CHECK_EQ(got.stats.decoded_tokens, want.stats.decoded_tokens);
            CHECK_EQ(got.stats.graph_steps, 0);
            CHECK_EQ(got.stats.refused_graphs > 0, with_sizes);
            preemptions += got.stats.preemptions;
            ares_rollout_free(got.r);
        }
    CHECK(preemptions > 0 && with_pieces > 0);
    CHECK_EQ(most_under_way, 2); /* a step was under way while the one before was read */
    device.k = at_once;
    ares_rollout_free(want.r);
    close_model();
}

TEST(a_clock_holds_and_cuts_samples_that_are_a_step_ahead)
{
    if (!open_model()) return;
    for (int64_t step = 1; step < 20; step += 6)
        for (int32_t seqs = 2; seqs <= 16; seqs += 14) {
            answers of[2];
            for (int which = 0; which < 2; which++) {
                answers *a = &of[which];
                begin(a, which ? &padded : at_once, step > 6 ? 160 : 4096, seqs);
                for (int64_t until = step; until < 30; until += step) {
                    ares_rollout_hold(a->r, until);
                    finish_all(a);
                }
                for (int i = 0; i < REQUESTS; i++)
                    for (int k = 0; k < N; k++)
                        if (!a->c[i][k].n_tokens) (void)ares_rollout_cut(a->r, i, k, 9 + 4 * k);
                ares_rollout_hold(a->r, 60);
                finish_all(a);
            }
            same(&of[0], &of[1]);
            device.k = &padded;
            ares_rollout_free(of[1].r);
            device.k = at_once;
            ares_rollout_free(of[0].r);
        }
    close_model();
}

/*
 * Cuts arrive while a step is under way, at once and for later; what they leave is the beginning of
 * the whole sample, and the cache is used again after them.
 */
TEST(a_cut_meets_a_step_that_is_under_way)
{
    answers whole, cut;
    int64_t active = 1;
    int ended_by_cut = 0;
    if (!open_model()) return;
    begin(&whole, at_once, 4096, 32);
    finish_all(&whole);
    begin(&cut, &late, 4096, 32);
    for (int steps = 0; active && steps < 11; steps++) CHECK_OK(ares_rollout_step(cut.r, &active));
    for (int i = 0; i < REQUESTS; i++)
        for (int k = 0; k < N; k++) (void)ares_rollout_cut(cut.r, i, k, k * 5);
    ares_completion c;
    while (ares_rollout_next(cut.r, &c)) cut.c[c.request][c.index] = c;
    finish_all(&cut);
    for (int i = 0; i < REQUESTS * N; i++) {
        const ares_completion *x = &whole.c[i / N][i % N], *y = &cut.c[i / N][i % N];
        bool by_cut = y->finish == ARES_FINISH_CUT;
        ended_by_cut += by_cut;
        CHECK_EQ(y->n_tokens, by_cut ? i % N * 5 : x->n_tokens);
        CHECK_MEM(y->ids, x->ids, (size_t)y->n_tokens * 4);
        CHECK_MEM(y->log_probs, x->log_probs, (size_t)y->n_tokens * 4);
    }
    CHECK(ended_by_cut > 6);
    CHECK_OK(ares_rollout_step(cut.r, &active));
    CHECK_EQ(active, 0);
    ares_rollout_clear(cut.r);
    ares_rollout_free(cut.r);
    device.k = at_once;
    ares_rollout_free(whole.r);
    close_model();
}

/* A device that keeps graphs can allocate nothing while one is made. */
static bool capturing;
static int captures;
static bool begin_graph(ares_device *d)
{
    (void)d;
    captures++;
    capturing = true;
    return false;
}
static void *alloc_outside(ares_device *d, size_t bytes)
{
    CHECK(!capturing);
    return at_once->alloc(d, bytes);
}

TEST(a_larger_adapter_leaves_no_step_to_take_its_buffers_in_a_graph)
{
    /* seen to fail: with the sizes of graphs known after the buffers were given up */
    static const char base[] = "tests/golden/lora/base_qwen2_gqa";
    static const int32_t prompt[] = { 3, 1, 4, 1 };
    /* after each request: one row is decoded; then two, for a step; the last has no room yet */
    static const int steps[] = { 3, 0, 3, 1 };
    const ares_rollout_options o = {
        .cache_tokens = 4096, .max_num_seqs = 2, .max_num_batched_tokens = 16, .max_model_len = 128
    };
    ares_adapter *adapter;
    ares_rollout *r;
    int64_t active;
    if (!open_model_of(test_source(base))) return;
    char dir[600];
    snprintf(dir, sizeof dir, "%s", test_source(base));
    REQUIRE_OK(ares_adapter_load(model, dir, test_source("tests/golden/lora/qwen2_r8"), &adapter));
    padded.graph_begin = begin_graph;
    padded.alloc = alloc_outside;
    device.k = &padded;
    captures = 0;
    REQUIRE_OK(ares_rollout_new(model, NULL, &o, &r));
    for (int i = 0; i < ARES_COUNT(steps); i++) {
        const ares_request q = {
            .prompt = prompt,
            .prompt_len = ARES_COUNT(prompt),
            .n = 1,
            .sampling = { .temperature = 1, .top_p = 1, .max_new_tokens = 30, .ignore_eos = true },
            .key = ares_rng_root((uint64_t)i, ARES_RNG_SAMPLE),
            .adapter = i == 3 ? adapter : NULL
        };
        CHECK_OK(ares_rollout_add(r, &q, NULL));
        capturing = false;
        for (int k = 0; k < steps[i]; k++) CHECK_OK(ares_rollout_step(r, &active));
    }
    CHECK(active > 0);
    while (active && CHECK_OK(ares_rollout_step(r, &active))) capturing = false;
    CHECK(captures > 0);
    ares_rollout_free(r);
    device.k = at_once;
    ares_adapter_free(adapter);
    close_model();
}
