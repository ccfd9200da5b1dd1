/*
 * The gradient of an update over pictures: the loss that the update goes down is walked along the
 * gradient of the tower and of the text model, or of an adapter beside both, and rises by the
 * gradient's length.
 */
#include <math.h>
#include <stdio.h>

#include "../../src/data/internal.h"
#include "../../src/data/media/internal.h"
#include "../media/pictures.h"
#include "ares/model.h"
#include "roles.h"
#include "test.h"

enum { GROUPS = 2, PER_GROUP = 3, ROWS = GROUPS * PER_GROUP };
static const int response_len[ROWS] = { 5, 1, 9, 6, 4, 3 };
static const double scores[ROWS] = { 1, 0, 0.25, -1, 0.5, 0.75 };

typedef struct run {
    ares_device device;
    ares_model *model;
    ares_adapter *adapter; /* NULL: the model itself is trained */
    ares_media_rules rules;
    ares_features *features;
    actor actor;
    ares_batch batch;
    ares_train_config cfg;
    ares_metrics *metrics;
    ares_arena arena;
    ares_row_media row_media[GROUPS];
} run;

static const double betas[] = { 0.9, 0.999 };

static ares_train_config config(bool share, int64_t tokens, bool again)
{
    return (ares_train_config){ .data = { .max_response_length = 20 },
                                .algorithm = { .adv_estimator = "grpo",
                                               .norm_adv_by_std_in_grpo = true,
                                               .kl_penalty = "low_var_kl" },
                                .loss = { .loss_type = "default",
                                          .clip_ratio_low = 0.2,
                                          .clip_ratio_high = 0.28,
                                          .clip_ratio_dual = 3,
                                          .loss_avg_mode = "token-mean",
                                          ARES_LOSS_DEFAULTS },
                                .actor = { .global_batch_size = GROUPS,
                                           .mini_batch_unit = "prompts",
                                           .max_token_len = tokens,
                                           .share_prompts = share,
                                           .gradient_checkpointing = again,
                                           .ppo_epochs = 1,
                                           .max_grad_norm = 1 },
                                .optim = { .strategy = "adamw",
                                           .lr = 0, /* weights stay where the gradient is of */
                                           .betas = { betas, 2 },
                                           .eps = 1e-8,
                                           .scheduler = "constant" },
                                .rollout = { .temperature = 0.8 } };
}

/* Two pictures in the first group's prompt, one in the second's. */
static void see(run *r, int group, int32_t *ids, int32_t *n)
{
    static const int sides[GROUPS][2][2] = { { { 24, 16 }, { 32, 16 } }, { { 40, 24 } } };
    int count = group ? 1 : 2;
    ares_str list = { 0 };
    ares_ids short_ids = { 0 }, out = { 0 };
    ares_media *media = ares_arena_calloc(&r->arena, 1, sizeof *media);
    for (int i = 0; i < count; i++) {
        int w = sides[group][i][0], h = sides[group][i][1];
        const uint8_t *rgb =
            picture_bytes(&r->arena, "noise", (uint32_t)(group * 2 + i), (int64_t)w * h * 3);
        ares_view png = picture_png(&r->arena, rgb, w, h);
        ares_str_addf(&list, "%s{\"bytes\":\"%s\"}", i ? "," : "",
                      picture_base64(&r->arena, png).data);
        ares_ids_add(&short_ids, 3 + i, 0, 0);
        ares_ids_add(&short_ids, r->rules.image_token, 0, 0);
    }
    ares_ids_add(&short_ids, 9, 0, 0);
    const ares_media_options o = { .video_fps = 2 };
    CHECK_OK(media_open(picture_json(&r->arena, "[%s]", list.data), NULL, &r->rules.processor, &o,
                        &r->arena, media));
    CHECK_OK(media_expand(&r->rules, media, short_ids.ids, short_ids.n, NULL, &out));
    CHECK_OK(
        row_media_of(&r->rules, media, out.ids, (int32_t)out.n, &r->arena, &r->row_media[group]));
    ARES_ASSERT(out.n <= 200);
    memcpy(ids, out.ids, (size_t)out.n * sizeof *ids);
    *n = (int32_t)out.n;
    ares_ids_fini(&short_ids);
    ares_ids_fini(&out);
    ares_str_fini(&list);
}

static void fill_batch(run *r)
{
    ares_batch *b = &r->batch;
    ares_batch_init(b);
    for (int g = 0; g < GROUPS; g++) {
        int32_t *ids = ares_arena_alloc(&r->arena, 200 * sizeof *ids), n = 0;
        see(r, g, ids, &n);
        ares_batch_begin_group(b);
        for (int i = 0; i < PER_GROUP; i++)
            ares_batch_add_row(b,
                               &(ares_sample){ .draw = g,
                                               .index = i,
                                               .place = g,
                                               .prompt = ids,
                                               .prompt_len = n,
                                               .row_media = &r->row_media[g] },
                               response_len[g * PER_GROUP + i]);
    }
    ARES_PUT(b, responses), ARES_PUT(b, response_mask), ARES_PUT(b, token_level_rewards);
    ARES_PUT(b, weight_versions);
    ares_rng_key key = ares_rng_root(7, ARES_RNG_TEST);
    for (int64_t t = 0; t < b->tokens; t++) {
        b->responses[t] = (int32_t)ares_rng_below(key, (uint64_t)t, 40);
        b->response_mask[t] = 1;
    }
    for (int64_t row = 0; row < b->rows; row++)
        b->token_level_rewards[b->row_start[row + 1] - 1] = (float)scores[row];
}

/* What of the model trains. */
typedef struct part {
    ares_texts trained;
    const char *targets; /* of an adapter beside the frozen model; NULL: none */
    const char *moved;   /* in names: B of these modules is not 0; NULL: all are */
    int threads;         /* 0: 2 */
} part;

/* An adapter of rank 3 beside text and tower, with random numbers in B. */
static bool adapt(run *r, const char *path, const part *what)
{
    static const ares_json null = { .type = ARES_JSON_NULL };
    const ares_lora_options lora = { .rank = 3,
                                     .alpha = 4,
                                     .target_modules =
                                         picture_json(&r->arena, "\"%s\"", what->targets),
                                     .exclude_modules = &null,
                                     .rank_pattern = &null,
                                     .alpha_pattern = &null,
                                     .layers_to_transform = &null,
                                     .layers_pattern = &null,
                                     .init = "kaiming",
                                     .seed = ARES_NULL_I64 };
    const ares_adapter_options opt = { .lora = &lora, .seed = 7, .trainable = true, .tower = true };
    if (!CHECK_OK(ares_adapter_new(r->model, path, &opt, &r->adapter))) return false;
    for (int i = 1; i < r->adapter->params.n; i += 2) {
        const ares_param *b = &r->adapter->params.list[i];
        int64_t n = (int64_t)b->weight.n * b->weight.k;
        float *rows = ares_calloc((size_t)n, sizeof *rows);
        ares_rng_key key = ares_rng_sub(ares_rng_root(9, ARES_RNG_TEST), 0, (uint64_t)i);
        for (int64_t k = 0; k < n && (!what->moved || strstr(b->name, what->moved)); k++)
            rows[k] = (float)(0.1 * ares_rng_normal(key, (uint64_t)k));
        ares_matrix_pack(&b->weight, rows, ARES_F32);
        ares_free(rows);
    }
    return true;
}

static bool run_open(run *r, const char *name, const ares_train_config *cfg, const part *what)
{
    char path[500];
    snprintf(path, sizeof path, "%s/%s", test_source("tests/golden/models"), name);
    *r = (run){ .cfg = *cfg, .metrics = ares_metrics_new() };
    ares_model_options opt = { TEST_TYPES, .trainable = !what->targets, .trained = what->trained };
    if (!CHECK_OK(ares_device_open("cpu", what->threads ? what->threads : 2, &r->device)) ||
        !CHECK_OK(ares_model_load(path, &r->device, &opt, &r->model)) ||
        !CHECK_OK(ares_media_rules_load(&r->model->cfg, path, &r->rules)) ||
        (what->targets && !adapt(r, path, what)) ||
        !CHECK_OK(
            ares_features_new(r->model, r->adapter, &r->rules.processor, SIZE_MAX, &r->features)))
        return false;
    fill_batch(r);
    ares_batch *b = &r->batch;
    if (!CHECK_OK(actor_open(&r->actor, &r->cfg, r->model, r->adapter, r->features, NULL, 1)) ||
        !CHECK_OK(ares_adv_find("grpo")->compute(&r->cfg.algorithm, NULL, b)))
        return false;
    ARES_PUT(b, rollout_log_probs), ARES_PUT(b, old_log_probs);
    bool good =
        CHECK_OK(ares_train_log_probs(r->model, r->adapter, r->actor.learner.workspace, r->features,
                                      &r->cfg, b, 0, b->rows, b->rollout_log_probs, NULL));
    memcpy(b->old_log_probs, b->rollout_log_probs, (size_t)b->tokens * sizeof(float));
    return good;
}

static void run_close(run *r)
{
    actor_close(&r->actor);
    ares_features_free(r->features);
    ares_batch_fini(&r->batch);
    ares_metrics_free(r->metrics);
    ares_adapter_free(r->adapter);
    ares_model_free(r->model);
    ares_device_close(&r->device);
    ares_arena_fini(&r->arena);
}

/* Minus the mean over tokens of advantage x log-prob, whose gradient is that of the first update.
 */
static double loss_now(run *r)
{
    ares_batch *b = &r->batch;
    float *now = ares_calloc((size_t)b->tokens, sizeof *now);
    double sum = 0;
    ares_features_forget(r->features);
    CHECK_OK(ares_train_log_probs(r->model, r->adapter, r->actor.learner.workspace, r->features,
                                  &r->cfg, b, 0, b->rows, now, NULL));
    for (int64_t t = 0; t < b->tokens; t++)
        sum -= (double)b->advantages[t] * (double)now[t] / (double)b->tokens;
    ares_free(now);
    return sum;
}

static int64_t numbers(const ares_param *p) /* without padding */
{
    return (int64_t)p->weight.n * p->weight.k;
}

/* The weights become those at `kept` plus step x direction. */
static void walk(const ares_param *p, const float *kept, const float *direction, double step)
{
    float *w = ares_malloc((size_t)numbers(p) * sizeof *w);
    for (int64_t i = 0; i < numbers(p); i++) w[i] = (float)(kept[i] + step * direction[i]);
    ares_matrix_pack(&p->weight, w, ARES_F32);
    ares_free(w);
}

static double check_slope(run *r, const ares_param *p)
{
    size_t bytes = (size_t)numbers(p) * sizeof(float);
    float *kept = ares_malloc(bytes), *g = ares_malloc(bytes);
    double square = 0;
    ares_matrix_unpack(&p->weight, kept, ARES_F32);
    ares_matrix_unpack(&p->grad, g, ARES_F32);
    for (int64_t i = 0; i < numbers(p); i++) square += (double)g[i] * (double)g[i];
    double length = sqrt(square), h = fmin(1e-2, 0.03 / (length + 1e-9));
    for (int64_t i = 0; i < numbers(p) && length > 0; i++) g[i] = (float)(g[i] / length);
    walk(p, kept, g, h);
    double high = loss_now(r);
    walk(p, kept, g, -h);
    double low = loss_now(r), slope = (high - low) / (2 * h);
    walk(p, kept, g, 0);
    CHECK_MSG(length > 0, "%s: no gradient", p->name);
    CHECK_MSG(fabs(slope - length) <= 0.02 * length + 2e-4, "%s: slope %g, gradient %g", p->name,
              slope, length);
    ares_free(kept);
    ares_free(g);
    return square;
}

/* What is trained. */
static const ares_params *params_of(const run *r)
{
    return r->adapter ? &r->adapter->params : &r->model->params;
}

/* Seen to fail: with the tower's way back left out for every micro-batch after the first. */
TEST(the_update_goes_down_the_slope_of_tower_and_text)
{
    static const struct {
        const char *model;
        bool share;
        int64_t tokens;
    } cases[] = { { "qwen2_5_vl_flat", true, 1000 },
                  { "qwen2_5_vl_flat", false, 40 },
                  { "qwen2_vl_flat", true, 40 } };
    for (int i = 0; i < ARES_COUNT(cases) * 2; i++) {
        run r;
        double square = 0, norm = 0;
        int towers = 0;
        const ares_train_config cfg = config(cases[i / 2].share, cases[i / 2].tokens, i / 2 == 1);
        if (!run_open(&r, cases[i / 2].model, &cfg, &(part){ .targets = i % 2 ? ".*" : NULL }))
            return;
        const ares_params *ps = params_of(&r);
        REQUIRE_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics));
        for (int k = 0; k < ps->n; k++) {
            square += check_slope(&r, &ps->list[k]);
            towers += strstr(ps->list[k].name, "visual.") != NULL;
        }
        CHECK(towers >= 20);
        ares_metrics_get(r.metrics, "actor/grad_norm", &norm);
        CHECK_NEAR(norm, sqrt(square), 1e-5 * norm);
        run_close(&r);
    }
}

/* Gradients of all parameters, one after the other. */
static float *gradients(const run *r, int64_t *n)
{
    *n = 0;
    const ares_params *ps = params_of(r);
    for (int i = 0; i < ps->n; i++) *n += numbers(&ps->list[i]);
    float *out = ares_calloc((size_t)*n + 1, sizeof *out), *at = out;
    for (int i = 0; i < ps->n; at += numbers(&ps->list[i++]))
        ares_matrix_unpack(&ps->list[i].grad, at, ARES_F32);
    return out;
}

TEST_BITS(cuts_threads_and_recomputation_change_no_bit_of_a_towers_gradient)
{
    for (int kind = 0; kind < 4; kind++) {
        float *first = NULL;
        for (int way = 0; way < 4; way++) {
            run r;
            int64_t n;
            const ares_train_config cfg = config(kind % 2, way % 2 ? 30 : 1000, way >= 2);
            const part what = { .targets = kind / 2 ? ".*" : NULL, .threads = 1 + way % 3 };
            if (!run_open(&r, "qwen2_5_vl_flat", &cfg, &what)) return;
            REQUIRE_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics));
            float *g = gradients(&r, &n);
            if (first) CHECK_MSG(memcmp(first, g, (size_t)n * sizeof *g) == 0, "way %d", way);
            if (first) ares_free(g);
            else first = g;
            run_close(&r);
        }
        ares_free(first);
    }
}

/* Seen to fail: with the features of a prompt taken from where its rows were before they moved. */
TEST_BITS(pictures_without_a_derivative_are_left_out_without_changing_a_bit)
{
    for (int kind = 0; kind < 8; kind++) {
        float *g[2];
        int64_t n;
        for (int skip = 0; skip < 2; skip++) {
            run r;
            ares_train_config cfg = config(kind % 2, 1000, kind == 3);
            const part what = { .targets = kind & 2 ? ".*" : NULL };
            cfg.actor.skip_zero_gradients = skip;
            if (!run_open(&r, "qwen2_5_vl_flat", &cfg, &what)) return;
            ares_batch *b = &r.batch;
            int64_t first = kind & 4 ? PER_GROUP : 0; /* of the rows whose advantages are 0 */
            for (int64_t t = b->row_start[first]; t < b->row_start[first + PER_GROUP]; t++)
                b->advantages[t] = 0;
            REQUIRE_OK(actor_update(&r.actor, b, NULL, r.metrics));
            double active = 1;
            CHECK(ares_metrics_get(r.metrics, "perf/backward_frac", &active));
            CHECK(active > 0.2 && active < 0.8);
            g[skip] = gradients(&r, &n);
            run_close(&r);
        }
        CHECK_MSG(memcmp(g[1], g[0], (size_t)n * sizeof(float)) == 0, "kind %d", kind);
        ares_free(g[0]), ares_free(g[1]);
    }
}

TEST(parts_of_a_tower_and_of_the_text_have_the_gradients_of_all)
{
    static const char *const parts[][2] = {
        { "visual\\.merger", "layers\\.1\\.mlp" },
        { "visual\\.blocks\\.0\\.norm[12]\\.weight", "visual\\.blocks\\.1\\.attn\\.qkv\\.bias" },
        { "visual\\.patch_embed", "lm_head|embed_tokens" },
        { "self_attn", "norm" },
    };
    static const char *const models[] = { "qwen2_5_vl_flat", "qwen2_vl_flat" };
    const ares_train_config cfg = config(true, 40, false);
    for (int i = 0; i < ARES_COUNT(parts) * ARES_COUNT(models); i++) {
        run all, some;
        const char *model = models[i % 2];
        if (!run_open(&all, model, &cfg, &(part){ 0 }) ||
            !run_open(&some, model, &cfg, &(part){ .trained = { parts[i / 2], 2 } }))
            return;
        REQUIRE_OK(actor_update(&all.actor, &all.batch, NULL, all.metrics));
        REQUIRE_OK(actor_update(&some.actor, &some.batch, NULL, some.metrics));
        const ares_params *ps = &some.model->params;
        int trained = 0;
        for (int k = 0; k < ps->n; k++) {
            const ares_param *p = &ps->list[k], *whole = &all.model->params.list[k];
            CHECK_EQ(p->grad.data == NULL, p->region >= ps->n_regions);
            if (!p->grad.data) continue;
            trained++;
            CHECK_MSG(memcmp(p->grad.data, whole->grad.data, (size_t)p->elements * sizeof(float)) ==
                          0,
                      "%s: %s", model, p->name);
        }
        CHECK(trained > 0 && trained < ps->n);
        run_close(&all);
        run_close(&some);
    }
}

/* Below the lowest layer that is adapted nothing is computed, and nothing above it changes. */
TEST(an_adapter_of_a_part_of_the_tower_has_the_gradients_of_one_of_all_whose_other_b_are_zero)
{
    /* seen to fail: with the backward ended one block too early */
    static const char *const parts[] = { "visual.blocks.1.", "visual.merger.", "visual.blocks.0." };
    static const char *const models[] = { "qwen2_5_vl_flat", "qwen2_vl_flat" };
    const ares_train_config cfg = config(true, 40, false);
    for (int i = 0; i < ARES_COUNT(parts) * ARES_COUNT(models); i++) {
        const char *model = models[i % 2], *moved = parts[i / 2];
        char targets[60];
        snprintf(targets, sizeof targets, ".*%s.*", moved);
        run all, some;
        if (!run_open(&all, model, &cfg, &(part){ .targets = ".*", .moved = moved }) ||
            !run_open(&some, model, &cfg, &(part){ .targets = targets }))
            return;
        for (int k = 0; k < some.adapter->params.n; k += 2) { /* B as in the other */
            const ares_param *b = &some.adapter->params.list[k + 1], *whole = b;
            for (int j = 1; j < all.adapter->params.n; j += 2)
                if (strcmp(all.adapter->params.list[j].name, b->name) == 0)
                    whole = &all.adapter->params.list[j];
            memcpy(b->weight.data, whole->weight.data, (size_t)b->elements * sizeof(float));
        }
        ares_features_forget(some.features);
        CHECK_OK(ares_train_log_probs(some.model, some.adapter, some.actor.learner.workspace,
                                      some.features, &some.cfg, &some.batch, 0, some.batch.rows,
                                      some.batch.old_log_probs, NULL));
        CHECK_MEM(some.batch.old_log_probs, all.batch.old_log_probs,
                  (size_t)some.batch.tokens * sizeof(float));
        REQUIRE_OK(actor_update(&all.actor, &all.batch, NULL, all.metrics));
        REQUIRE_OK(actor_update(&some.actor, &some.batch, NULL, some.metrics));
        int found = 0;
        for (int k = 0; k < some.adapter->params.n; k++)
            for (int j = 0; j < all.adapter->params.n; j++) {
                const ares_param *p = &some.adapter->params.list[k],
                                 *whole = &all.adapter->params.list[j];
                if (strcmp(p->name, whole->name) != 0) continue;
                found++;
                CHECK_MSG(memcmp(p->grad.data, whole->grad.data,
                                 (size_t)p->elements * sizeof(float)) == 0,
                          "%s: %s", model, p->name);
            }
        CHECK_EQ(found, some.adapter->params.n);
        run_close(&all);
        run_close(&some);
    }
}

TEST_BITS(an_adapter_of_the_tower_whose_b_is_zero_gives_the_models_bits)
{
    /* seen to fail: with features that were stored before the adapter moved */
    const ares_train_config cfg = config(true, 40, false);
    run base, zero;
    if (!run_open(&base, "qwen2_5_vl_flat", &cfg, &(part){ 0 }) ||
        !run_open(&zero, "qwen2_5_vl_flat", &cfg, &(part){ .targets = ".*", .moved = "none" }))
        return;
    size_t bytes = (size_t)base.batch.tokens * sizeof(float);
    CHECK_MEM(zero.batch.old_log_probs, base.batch.old_log_probs, bytes);
    /* one number of the tower's B moves; the answers that saw pictures before it have new ones */
    for (int i = 1; i < zero.adapter->params.n; i += 2) {
        const ares_param *b = &zero.adapter->params.list[i];
        if (!strstr(b->name, "visual.blocks.0.attn.qkv")) continue;
        float *rows = ares_calloc((size_t)numbers(b), sizeof *rows);
        for (int64_t k = 0; k < numbers(b); k++) rows[k] = 0.1f;
        ares_matrix_pack(&b->weight, rows, ARES_F32);
        ares_free(rows);
    }
    zero.adapter->version++; /* as a step of the optimizer does */
    CHECK_OK(ares_train_log_probs(zero.model, zero.adapter, zero.actor.learner.workspace,
                                  zero.features, &zero.cfg, &zero.batch, 0, zero.batch.rows,
                                  zero.batch.old_log_probs, NULL));
    CHECK(memcmp(zero.batch.old_log_probs, base.batch.old_log_probs, bytes) != 0);
    run_close(&base);
    run_close(&zero);
}
