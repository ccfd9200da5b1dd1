/*
 * Log-probs and entropies of given sequences, as ares-train score computes them, by slices of a
 * model (docs/ranks.md#tensor-parallelism) against those of the whole model: every bit.
 */
#include <stdio.h>
#include <string.h>

#include "ares/train.h"
#include "test.h"

/* A vocabulary of 3 chunks, the last not full: one of four ranks has none of the head. */
#define COMMON                                                                                    \
    .vocab = 1500, .layers = 2, .max_position = 256, .rms_norm_eps = 1e-6f, .bos = -1, .pad = -1, \
    .initializer_range = 0.3, .rope = { .theta = 10000, .attention_factor = -1 }
static const char *const after[ARES_BLOCK_NORMS] = {
    [ARES_AFTER_ATTENTION] = "a_norm", [ARES_AFTER_MLP] = "m_norm"
};
static const struct shape {
    const char *name;
    ares_model_config cfg;
    ares_dtype storage, arithmetic;
} shapes[] = {
    { "tied, biases",
      { COMMON, .model_type = "qwen2", .hidden = 64, .heads = 8, .kv_heads = 4, .head_dim = 8,
        .intermediate = 96, .tied = true, .qkv_bias = true },
      ARES_F32,
      ARES_F32 },
    { "tied, bf16",
      { COMMON, .model_type = "qwen2", .hidden = 64, .heads = 8, .kv_heads = 4, .head_dim = 8,
        .intermediate = 96, .tied = true, .qkv_bias = true },
      ARES_BF16,
      ARES_BF16 },
    { "untied, norms of heads",
      { COMMON, .model_type = "qwen3", .hidden = 128, .heads = 4, .kv_heads = 4, .head_dim = 32,
        .intermediate = 256, .qk_norm = ARES_QK_NORM_HEADS },
      ARES_BF16,
      ARES_F32 },
    { "norms of whole rows, after products",
      { COMMON, .model_type = "olmo3", .hidden = 64, .heads = 8, .kv_heads = 4, .head_dim = 8,
        .intermediate = 96, .qkv_bias = true, .o_bias = true, .qk_norm = ARES_QK_NORM_ROW,
        .norm_names = after, .window = 8, .rope_local = { .theta = 500, .attention_factor = -1 },
        .layer = { ARES_LAYER_WINDOW | ARES_LAYER_LOCAL_ROPE, ARES_LAYER_NO_ROPE } },
      ARES_F32,
      ARES_F32 },
};

/* Rows in passes of few tokens, and in passes of groups that share their prompt. */
static const struct way {
    int64_t max_token_len;
    bool share_prompts;
    double temperature;
} ways[] = { { 1 << 20, false, 1 }, { 30, false, 1 }, { 60, true, 0.7 } };

enum { GROUPS = 3, ROWS = 2 * GROUPS, MOST_TOKENS = 256 };

/* Pairs of answers to a prompt, of 1 to 40 tokens from everywhere in the vocabulary. */
static void fill(ares_batch *b)
{
    static const int lengths[ROWS] = { 40, 1, 17, 25, 2, 33 };
    ares_batch_init(b);
    int32_t *prompt = ares_arena_alloc(&b->arena, GROUPS * sizeof *prompt);
    for (int r = 0; r < ROWS; r++) {
        prompt[r / 2] = 7 + 401 * (r / 2);
        if (r % 2 == 0) ares_batch_begin_group(b);
        ares_sample row = { .prompt = &prompt[r / 2], .prompt_len = 1 };
        ares_batch_add_row(b, &row, lengths[r]);
    }
    ARES_PUT(b, responses);
    for (int64_t t = 0; t < b->tokens; t++)
        b->responses[t] = t % 9 ? (int32_t)((t * 619 + 88) % 1500) : 1499;
}

typedef struct numbers {
    float log_probs[MOST_TOKENS], entropies[MOST_TOKENS];
} numbers;

static bool score(ares_model *m, const struct way *how, const ares_batch *b, numbers *out)
{
    const ares_train_config cfg = { .actor = { .max_token_len = how->max_token_len,
                                               .share_prompts = how->share_prompts },
                                    .rollout = { .temperature = how->temperature } };
    ares_workspace *w;
    memset(out, 0, sizeof *out);
    if (!CHECK_OK(ares_workspace_new(m, ARES_KEEP_NOTHING, &w))) return false;
    bool well = CHECK_OK(
        ares_train_log_probs(m, NULL, w, NULL, &cfg, b, 0, ROWS, out->log_probs, out->entropies));
    ares_workspace_free(w);
    return well;
}

/* A number of one rank of the group changes, and so do the results of all. */
static void check_fault(ares_model *whole, ares_model *slice, ares_group *g, const ares_batch *b,
                        const numbers *want, const char *what)
{
    numbers have;
    ares_region *r = &whole->params.regions[1];
    if (ares_group_rank(g) == ares_group_size(g) - 1)
        memset(r->weights, 0, (size_t)r->elements * 2);
    CHECK_OK(ares_model_slice_fill(slice, whole));
    if (score(slice, &ways[0], b, &have))
        CHECK_MSG(memcmp(&have, want, sizeof have) != 0, "%s: the others' outputs are not read",
                  what);
}

static void compare(const struct shape *s, ares_world *w, ares_device *d, int parts)
{
    const ares_model_options opt = { .storage = s->storage, .arithmetic = s->arithmetic };
    ares_model *whole, *slice;
    ares_group *g;
    ares_batch b;
    numbers want, have;
    char what[100];
    fill(&b);
    REQUIRE(b.tokens <= MOST_TOKENS);
    REQUIRE_OK(ares_model_new(&s->cfg, d, &opt, 7, &whole));
    for (int i = 0; i < whole->params.n; i++) { /* norms of 1 hide which numbers are read */
        const ares_matrix *v = &whole->params.list[i].weight;
        for (int32_t k = 0; whole->params.list[i].rank == 1 && k < v->n; k++)
            ((float *)v->data)[k] += 0.03f * (float)(k % 11);
    }
    REQUIRE_OK(ares_group_open(w, d, parts, 1, &g));
    REQUIRE_OK(ares_model_slice(whole, g, &slice));
    REQUIRE_OK(ares_model_slice_fill(slice, whole));
    CHECK_EQ(slice->cfg.heads, s->cfg.heads / parts);
    for (int i = ARES_COUNT(ways) - 1; i >= 0; i--) {
        snprintf(what, sizeof what, "%s, %d parts, way %d", s->name, parts, i);
        if (!score(whole, &ways[i], &b, &want) || !score(slice, &ways[i], &b, &have)) continue;
        CHECK_MSG(want.log_probs[0] < 0 && want.entropies[b.tokens - 1] > 0, "%s", what);
        CHECK_MSG(memcmp(have.log_probs, want.log_probs, sizeof have.log_probs) == 0,
                  "%s: log-probs", what);
        CHECK_MSG(memcmp(have.entropies, want.entropies, sizeof have.entropies) == 0,
                  "%s: entropies", what);
    }
    if (parts > 1) check_fault(whole, slice, g, &b, &want, what);
    ares_model_free(slice);
    ares_model_free(whole);
    ares_group_close(g);
    ares_batch_fini(&b);
}

TEST_MPI(slices_score_given_sequences_as_the_whole_model_in_every_bit)
{
    if (!test_as_ranks(4, "slices_score_given_sequences_as_the_whole_model_in_every_bit")) return;
    ares_world *w;
    ares_device d;
    REQUIRE_OK(ares_world_open(&w));
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    for (int i = 0; i < ARES_COUNT(shapes); i++)
        for (int parts = 1; parts <= 4; parts *= 2) compare(&shapes[i], w, &d, parts);
    ares_device_close(&d);
    ares_world_close(w);
}
