/* Prompts with pictures in the engine: what the prefix cache takes for the same, and what is
 * barred. */
#include <string.h>

#include "../../src/data/internal.h"
#include "ares/model.h"
#include "ares/rollout.h"
#include "internal.h"
#include "test.h"

enum { TOKENS = 40, BEFORE = 17, LENGTH = BEFORE + TOKENS + 9, NEW = 6 };

static ares_device device;
static ares_model *model;

/* Two kinds of pictures of 40 tokens: 5 x 8 and 4 x 10. */
static const ares_medium pictures[] = { { .grid = { 1, 10, 16 }, .frames = 1 },
                                        { .grid = { 1, 8, 20 }, .frames = 1 } };

typedef struct prompt {
    int32_t ids[LENGTH];
    ares_row_media row_media;
    ares_seen seen;
} prompt;

static ares_rollout *open_all(bool no_prefix_cache)
{
    ares_rollout *r = NULL;
    ares_model_options opt = { TEST_TYPES };
    ares_rollout_options o = { .cache_tokens = 2048,
                               .max_num_seqs = 8,
                               .max_num_batched_tokens = 64,
                               .max_model_len = 200,
                               .no_prefix_cache = no_prefix_cache };
    CHECK_OK(ares_device_open("cpu", 2, &device));
    CHECK_OK(
        ares_model_load(test_source("tests/golden/models/qwen2_5_vl_flat"), &device, &opt, &model));
    CHECK_OK(ares_rollout_new(model, NULL, &o, &r));
    return r;
}

static void close_all(ares_rollout *r)
{
    ares_rollout_free(r);
    ares_model_free(model);
    ares_device_close(&device);
}

/* The same ids always; the picture's place has `features`, known as `number`. */
static void make(prompt *p, ares_arena *arena, int kind, const float *features, int32_t number)
{
    const ares_vision_config *v = &model->cfg.vision;
    const ares_media_rules rules = { .processor = { .merge = v->merge },
                                     .image_token = v->image_token,
                                     .video_token = v->video_token };
    const ares_media media = { .n = 1, .n_images = 1, .items = &pictures[kind] };
    for (int i = 0; i < LENGTH; i++)
        p->ids[i] = i >= BEFORE && i < BEFORE + TOKENS ? v->image_token : 1 + i % 20;
    CHECK_OK(row_media_of(&rules, &media, p->ids, LENGTH, arena, &p->row_media));
    p->seen = (ares_seen){ features, number };
}

/* Features of any numbers, the same for the same seed. */
static float *noise(ares_arena *arena, uint64_t seed)
{
    int64_t n = (int64_t)TOKENS * model->cfg.hidden;
    float *out = ares_arena_alloc(arena, (size_t)n * sizeof *out);
    ares_rng_key key = ares_rng_root(seed, ARES_RNG_TEST);
    for (int64_t i = 0; i < n; i++) out[i] = (float)ares_rng_normal(key, (uint64_t)i);
    return out;
}

/* An answer to the prompt; *reused, *prefill: what it cost. */
static ares_completion answer(ares_rollout *r, const prompt *p, int64_t *reused, int64_t *prefill)
{
    ares_rollout_stats before, after;
    ares_completion c = { 0 };
    ares_request q = {
        .prompt = p->ids,
        .prompt_len = LENGTH,
        .n = 1,
        .row_media = &p->row_media,
        .seen = &p->seen,
        .sampling = { .temperature = 1, .top_p = 1, .max_new_tokens = NEW, .ignore_eos = true },
        .key = ares_rng_root(5, ARES_RNG_SAMPLE)
    };
    int64_t active = 1;
    ares_rollout_get_stats(r, &before);
    CHECK_OK(ares_rollout_add(r, &q, NULL));
    while (active && CHECK_OK(ares_rollout_step(r, &active))) {}
    CHECK(ares_rollout_next(r, &c));
    ares_rollout_get_stats(r, &after);
    *reused = after.reused_tokens - before.reused_tokens;
    *prefill = after.prefill_tokens - before.prefill_tokens;
    return c;
}

/* Seen to fail: with blocks found by ids, which finds other pictures' keys. */
TEST_BITS(a_prompt_is_found_again_by_what_it_shows_and_not_by_its_ids)
{
    ares_rollout *cached = open_all(false), *plain = NULL, *pieces = NULL;
    ares_arena arena = { 0 };
    ares_rollout_options o = { .cache_tokens = 2048,
                               .max_num_seqs = 8,
                               .max_num_batched_tokens = 64,
                               .max_model_len = 200,
                               .no_prefix_cache = true };
    prompt p[4];
    REQUIRE_OK(ares_rollout_new(model, NULL, &o, &plain));
    o.max_num_batched_tokens = BEFORE + TOKENS / 2; /* a piece begins within the picture */
    REQUIRE_OK(ares_rollout_new(model, NULL, &o, &pieces));
    float *one = noise(&arena, 1), *two = noise(&arena, 2);
    make(&p[0], &arena, 0, one, 0);
    make(&p[1], &arena, 0, two, 1);
    make(&p[2], &arena, 0, one, 0);
    make(&p[3], &arena, 1, two, 2); /* of another shape: as many tokens, other positions */
    /* what may be found of a prompt: its whole blocks, or those before the picture's first */
    const int64_t whole = LENGTH / ARES_KV_BLOCK * ARES_KV_BLOCK,
                  text = BEFORE / ARES_KV_BLOCK * ARES_KV_BLOCK,
                  most[] = { 0, BEFORE, LENGTH, BEFORE }, least[] = { 0, text, whole, text };
    float first[4][NEW];
    for (int i = 0; i < 4; i++) {
        int64_t reused, prefill, none, all;
        ares_completion a = answer(cached, &p[i], &reused, &prefill),
                        b = answer(plain, &p[i], &none, &all), c;
        CHECK_MSG(reused >= least[i] && reused <= most[i], "prompt %d: %lld found", i,
                  (long long)reused);
        CHECK(prefill + reused >= LENGTH && none == 0 && all == LENGTH);
        REQUIRE(a.n_tokens == NEW && b.n_tokens == NEW);
        CHECK_MEM(a.ids, b.ids, NEW * sizeof *a.ids);
        CHECK_MEM(a.log_probs, b.log_probs, NEW * sizeof *a.log_probs);
        c = answer(pieces, &p[i], &none, &all);
        CHECK_MEM(a.ids, c.ids, NEW * sizeof *a.ids);
        CHECK_MEM(a.log_probs, c.log_probs, NEW * sizeof *a.log_probs);
        memcpy(first[i], a.log_probs, sizeof first[i]);
    }
    CHECK_MEM(first[0], first[2], sizeof first[0]);
    CHECK(memcmp(first[0], first[1], sizeof first[0]) != 0);
    CHECK(memcmp(first[1], first[3], sizeof first[1]) != 0);
    ares_rollout_free(plain);
    ares_rollout_free(pieces);
    ares_arena_fini(&arena);
    close_all(cached);
}

/* Its embedding would otherwise stand where features belong. */
TEST(a_place_without_a_picture_is_refused)
{
    ares_rollout *r = open_all(false);
    ares_arena arena = { 0 };
    prompt p;
    make(&p, &arena, 0, noise(&arena, 1), 0);
    ares_request q = { .prompt = p.ids,
                       .prompt_len = LENGTH,
                       .n = 1,
                       .sampling = { .temperature = 1, .top_p = 1, .max_new_tokens = 2 } };
    CHECK_FAIL(ares_rollout_add(r, &q, NULL), ARES_EFORMAT,
               "token 17, id 291, stands for an image that is not given");
    close_all(r);
    ares_arena_fini(&arena);
}

/* At this temperature each id would come up some four times. */
TEST(no_answer_has_a_place_of_a_picture)
{
    ares_rollout *r = open_all(false);
    const ares_vision_config *v = &model->cfg.vision;
    const int32_t prompt[] = { 1, 2, 3 };
    ares_request q = {
        .prompt = prompt,
        .prompt_len = 3,
        .n = 64,
        .sampling = { .temperature = 50, .top_p = 1, .max_new_tokens = 24, .ignore_eos = true },
        .key = ares_rng_root(5, ARES_RNG_SAMPLE)
    };
    int64_t active = 1, seen = 0;
    ares_completion c;
    REQUIRE_OK(ares_rollout_add(r, &q, NULL));
    while (active && CHECK_OK(ares_rollout_step(r, &active))) {}
    while (ares_rollout_next(r, &c))
        for (int32_t i = 0; i < c.n_tokens; i++, seen++)
            CHECK(c.ids[i] != v->image_token && c.ids[i] != v->video_token);
    CHECK(seen == 64 * 24 && model->cfg.vocab < 400);
    close_all(r);
}

/* Tokens after a picture stand at other positions than their number says. */
TEST_BITS(drafts_after_a_picture_change_no_bit)
{
    enum { ANSWERS = 4, MORE = 60 };
    ares_rollout *plain = open_all(false), *drafting = NULL;
    ares_arena arena = { 0 };
    prompt p;
    ares_rollout_stats stats;
    const ares_rollout_options o = { .cache_tokens = 2048,
                                     .max_num_seqs = 2,
                                     .max_num_batched_tokens = 64,
                                     .max_model_len = 200,
                                     .drafts_tokens = true };
    static struct {
        int32_t ids[MORE];
        float log_probs[MORE], entropies[MORE];
    } got[2][ANSWERS];
    REQUIRE_OK(ares_rollout_new(model, NULL, &o, &drafting));
    make(&p, &arena, 0, noise(&arena, 1), 0);
    for (int with = 0; with < 2; with++) {
        ares_rollout *r = with ? drafting : plain;
        int64_t active = 1;
        ares_completion c;
        const ares_request q = { .prompt = p.ids,
                                 .prompt_len = LENGTH,
                                 .n = ANSWERS,
                                 .row_media = &p.row_media,
                                 .seen = &p.seen,
                                 .sampling = { .temperature = 0, /* later ones copy the first */
                                               .top_p = 1,
                                               .max_new_tokens = MORE,
                                               .ignore_eos = true },
                                 .key = ares_rng_root(5, ARES_RNG_SAMPLE) };
        CHECK_OK(ares_rollout_add(r, &q, NULL));
        while (active && CHECK_OK(ares_rollout_step(r, &active)))
            while (ares_rollout_next(r, &c)) {
                REQUIRE(c.n_tokens == MORE);
                memcpy(got[with][c.index].ids, c.ids, MORE * 4);
                memcpy(got[with][c.index].log_probs, c.log_probs, MORE * 4);
                memcpy(got[with][c.index].entropies, c.entropies, MORE * 4);
            }
    }
    ares_rollout_get_stats(drafting, &stats);
    CHECK(stats.accepted_tokens > 30);
    CHECK_MEM(got[1], got[0], sizeof got[0]);
    ares_rollout_free(drafting);
    close_all(plain);
    ares_arena_fini(&arena);
}
