/*
 * Ranks that decode as one: samples of slices against those of the whole model, every bit; and a
 * rank that fails, of which the others learn.
 */
#include <stdio.h>
#include <string.h>

#include "ares/rollout.h"
#include "test.h"

/* Outside mpirun a test starts itself as four ranks; inside, it does the work of a rank. */
#define AS_FOUR_RANKS(name)               \
    if (!test_as_ranks(4, #name)) return; \
    ares_world *w = NULL;                 \
    REQUIRE_OK(ares_world_open(&w));

enum { TOKENS = 20, MOST = 16 };

typedef struct shape {
    const char *name;
    ares_model_config cfg;
    ares_dtype storage, arithmetic;
} shape;
/* a vocabulary of 3 chunks, the last not full, so that one of four ranks has none of the head */
#define COMMON                                                                                    \
    .vocab = 1500, .layers = 2, .max_position = 256, .rms_norm_eps = 1e-6f, .bos = -1, .pad = -1, \
    .initializer_range = 0.3, .rope = { .theta = 10000, .attention_factor = -1 }
static const shape shapes[] = {
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
    { "biases of all products",
      { COMMON, .model_type = "llama", .hidden = 68, .heads = 4, .kv_heads = 4, .head_dim = 16,
        .intermediate = 100, .qkv_bias = true, .o_bias = true, .mlp_bias = true },
      ARES_F32,
      ARES_F32 },
    { "biases of all products, bf16",
      { COMMON, .model_type = "llama", .hidden = 68, .heads = 4, .kv_heads = 4, .head_dim = 16,
        .intermediate = 100, .qkv_bias = true, .o_bias = true, .mlp_bias = true },
      ARES_BF16,
      ARES_BF16 },
};

static const ares_rollout_options roomy = { .cache_tokens = 4096,
                                            .max_num_seqs = 5,
                                            .max_num_batched_tokens = 24,
                                            .max_model_len = 128,
                                            .entropy_top_k = 5,
                                            .most_likely = true };

/* Every fourth request is greedy, plain, of a nucleus, of few tokens; ranks ask for different ones.
 */
static ares_sampling sampling_of(int i)
{
    static const int32_t stop = 700;
    ares_sampling s = {
        .temperature = 1, .top_p = 1, .max_new_tokens = TOKENS - i, .ignore_eos = true
    };
    if (i % 4 == 0) s.temperature = 0;
    if (i % 4 == 2) s.top_p = 0.8f, s.temperature = 0.7f;
    if (i % 4 == 3) s.top_k = 40, s.top_p = 0.9f, s.n_stop_ids = 1, s.stop_ids = &stop;
    return s;
}

/*
 * A rank's samples, in order of request and index. In turns: it asks for the next ones when those
 * before have ended, as conversations do, and other ranks are done meanwhile.
 */
static void sample_all(ares_rollout *r, int rank, bool in_turns, ares_completion *out)
{
    static const int32_t prompt[] = { 5, 9, 1403, 14, 600, 77, 2, 1499 };
    int64_t active = 1, id;
    int ended = 0;
    ares_completion c;
    for (int i = 0; i < 2 * rank; i++) { /* rank 0 asks for nothing */
        const ares_request q = { .prompt = prompt + rank,
                                 .prompt_len = 5 - i % 3,
                                 .n = 2,
                                 .sampling = sampling_of(i + rank),
                                 .key = ares_rng_sub(ares_rng_root(3, ARES_RNG_SAMPLE),
                                                     (uint64_t)rank, (uint64_t)i) };
        CHECK_OK(ares_rollout_add(r, &q, &id));
        CHECK_EQ(id, i);
        while (in_turns && ended < 2 * (i + 1) && CHECK_OK(ares_rollout_step(r, &active)))
            for (; ares_rollout_next(r, &c); ended++) out[2 * c.request + c.index] = c;
        /* some come while others decode */
        if (i == 1 && !in_turns) CHECK_OK(ares_rollout_step(r, &active));
    }
    if (rank < 1 && !in_turns) CHECK_OK(ares_rollout_step(r, &active)); /* as often as the others */
    while (active && !in_turns && CHECK_OK(ares_rollout_step(r, &active))) {}
    CHECK_OK(ares_rollout_finish(r, ARES_OK));
    while (ares_rollout_next(r, &c)) out[2 * c.request + c.index] = c;
}

static void same_samples(const ares_completion *a, const ares_completion *b, const char *what)
{
    size_t n = (size_t)a->n_tokens * 4;
    if (!CHECK_MSG(a->n_tokens > 0 && a->n_tokens == b->n_tokens && a->finish == b->finish, "%s",
                   what))
        return;
#define SAME(type, name, recorded, text) \
    CHECK_MSG(!memcmp(a->name, b->name, n), "%s: " #name, what);
    ARES_ROLLOUT_COLUMNS(SAME)
#undef SAME
}

static int64_t accepted; /* drafted tokens that were drawn */

/* way 0: at once, the last rank the most; 1, 2: in turns, the last rank or the first the most. */
static void compare(const shape *s, ares_world *w, ares_device *d, int parts, int way)
{
    const ares_model_options opt = { .storage = s->storage, .arithmetic = s->arithmetic };
    ares_completion alone[MOST] = { 0 }, together[MOST] = { 0 };
    ares_model *whole, *slice;
    ares_group *g;
    ares_rollout *a, *b;
    int rank = way == 2 ? ares_world_size(w) - 1 - ares_world_rank(w) : ares_world_rank(w);
    char what[100];
    snprintf(what, sizeof what, "%s, %d parts, way %d", s->name, parts, way);
    REQUIRE_OK(ares_model_new(&s->cfg, d, &opt, 7, &whole));
    REQUIRE_OK(ares_group_open(w, d, parts, 1, &g));
    REQUIRE_OK(ares_model_slice(whole, g, &slice));
    REQUIRE_OK(ares_model_slice_fill(slice, whole));
    REQUIRE_OK(ares_rollout_new(whole, NULL, &roomy, &a));
    ares_rollout_options drafting = roomy; /* ranks guess alike */
    drafting.drafts_tokens = true;
    drafting.max_num_seqs = 1; /* the second of two greedy answers is the first one's copy */
    REQUIRE_OK(ares_rollout_new(slice, NULL, &drafting, &b));
    sample_all(a, rank, way > 0, alone);
    sample_all(b, rank, way > 0, together);
    for (int i = 0; i < 4 * rank; i++) same_samples(&alone[i], &together[i], what);
    ares_rollout_stats stats;
    ares_rollout_get_stats(b, &stats);
    accepted += stats.accepted_tokens;
    ares_rollout_free(a);
    ares_rollout_free(b);
    ares_model_free(slice);
    ares_model_free(whole);
    ares_group_close(g);
}

TEST_MPI(slices_draw_the_samples_of_the_whole_model_in_every_bit)
{
    AS_FOUR_RANKS(slices_draw_the_samples_of_the_whole_model_in_every_bit)
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    for (int i = 0; i < ARES_COUNT(shapes); i++)
        for (int parts = 1; parts <= 4; parts *= 2)
            for (int way = 0; way < (i || parts < 4 ? 1 : 3); way++)
                compare(&shapes[i], w, &d, parts, way);
    CHECK(accepted > 10);
    ares_device_close(&d);
    ares_world_close(w);
}

TEST_MPI(a_rank_that_fails_ends_the_decoding_of_its_group)
{
    AS_FOUR_RANKS(a_rank_that_fails_ends_the_decoding_of_its_group)
    const ares_model_options opt = { .storage = ARES_F32 };
    ares_completion out[MOST];
    ares_device d;
    ares_model *whole, *slice;
    ares_group *g;
    ares_rollout *r;
    int rank = ares_world_rank(w);
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    REQUIRE_OK(ares_model_new(&shapes[0].cfg, &d, &opt, 7, &whole));
    REQUIRE_OK(ares_group_open(w, &d, 2, 1, &g));
    REQUIRE_OK(ares_model_slice(whole, g, &slice));
    REQUIRE_OK(ares_model_slice_fill(slice, whole));
    REQUIRE_OK(ares_rollout_new(slice, NULL, &roomy, &r));
    if (rank < 2) sample_all(r, rank, false, out);
    else {
        static const int32_t prompt[] = { 1, 2 };
        int64_t active;
        const ares_request q = {
            .prompt = prompt, .prompt_len = 2, .n = 1, .sampling = sampling_of(1)
        };
        int rc = rank == 3 ? ares_fail(ARES_ELIMIT, "no room for %d", rank) : ARES_OK;
        if (rank == 2) CHECK_OK(ares_rollout_add(r, &q, NULL));
        while (rc == ARES_OK) rc = ares_rollout_step(r, &active);
        CHECK_EQ(ares_rollout_finish(r, rc), ARES_ELIMIT);
        CHECK_STR(ares_error_message(), "no room for 3");
        ares_rollout_clear(r); /* after which they decode again */
        CHECK_OK(ares_rollout_add(r, &q, NULL));
        CHECK_OK(ares_rollout_finish(r, ARES_OK));
    }
    ares_rollout_free(r);
    ares_model_free(slice);
    ares_model_free(whole);
    ares_group_close(g);
    ares_device_close(&d);
    ares_world_close(w);
}
