/* Distillation's formulas of tokens, weights and metrics. */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/algo_distill.h"

static double or_null(const ares_json *v)
{
    return !v || v->type == ARES_JSON_NULL ? NAN : golden_value(v);
}

/* The column of a list of rows, in f32. */
static float *column(golden *g, const char *key)
{
    int64_t n;
    double *x = golden_flat(g, golden_in(g, key), &n);
    float *out = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *out);
    for (int64_t i = 0; i < n; i++) out[i] = (float)x[i];
    return out;
}

/* A batch of rows with this mask; every row has a teacher. */
static void begin(golden *g, const ares_json *mask, ares_batch *b)
{
    int64_t n;
    double *flat = golden_flat(g, mask, &n);
    ares_batch_init(b);
    for (int64_t r = 0; r < mask->count; r++) {
        ares_batch_begin_group(b);
        ares_batch_add_row(b, &(ares_sample){ .distilled = 1 }, mask->items[r].count);
    }
    ARES_PUT(b, response_mask);
    for (int64_t i = 0; i < n; i++) b->response_mask[i] = flat[i] != 0;
}

GOLDEN(distill, token_loss)
{
    int64_t n;
    double *log_prob = golden_flat(g, golden_in(g, "log_prob"), &n),
           *teacher = golden_flat(g, golden_in(g, "teacher_log_prob"), &n),
           *loss = ares_arena_calloc(g->arena, (size_t)n, sizeof *loss),
           *slope = ares_arena_calloc(g->arena, (size_t)n, sizeof *slope);
    const ares_kl *kl = ares_kl_find(golden_z(g, "loss_mode"));
    bool clamped;
    if (!kl) {
        golden_fail(g, "no such mode");
        return;
    }
    for (int64_t i = 0; i < n; i++)
        loss[i] = ares_distill_token(kl, log_prob[i], teacher[i],
                                     or_null(golden_in(g, "loss_max_clamp")), &slope[i], &clamped);
    golden_numbers(g, "loss", loss, n, golden_want(g, "loss"));
    golden_numbers(g, "d_log_prob", slope, n, golden_want(g, "d_log_prob"));
}

GOLDEN(distill, is_weight)
{
    int64_t n;
    double *log_prob = golden_flat(g, golden_in(g, "log_prob"), &n),
           *old = golden_flat(g, golden_in(g, "old_log_prob"), &n),
           *weight = ares_arena_calloc(g->arena, (size_t)n, sizeof *weight);
    for (int64_t i = 0; i < n; i++)
        weight[i] = ares_distill_is_weight(log_prob[i], old[i], or_null(golden_in(g, "is_clip")));
    golden_numbers(g, "weight", weight, n, golden_want(g, "weight"));
}

static double *doubles(golden *g, const float *x, int64_t n)
{
    double *out = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *out);
    for (int64_t i = 0; i < n; i++) out[i] = (double)x[i];
    return out;
}

GOLDEN(distill, opd_advantages)
{
    ares_batch b;
    double sums[2] = { 0 };
    const ares_distillation_config c = { .use_task_rewards = true,
                                         .use_policy_gradient = true,
                                         .loss_mode = "k1",
                                         .kl_discount_factor =
                                             golden_number(g, "kl_discount_factor"),
                                         .loss_max_clamp =
                                             or_null(golden_in(g, "loss_max_clamp")) };
    begin(g, golden_in(g, "response_mask"), &b);
    size_t bytes = (size_t)b.tokens * sizeof(float);
    ARES_PUT(&b, advantages);
    ARES_PUT(&b, old_log_probs);
    ARES_PUT(&b, teacher_log_probs);
    memcpy(b.advantages, column(g, "advantages"), bytes);
    memcpy(b.old_log_probs, column(g, "old_log_probs"), bytes);
    memcpy(b.teacher_log_probs, column(g, "teacher_log_probs"), bytes);
    ares_distill_tokens(&c, &b);
    golden_in_single(g);
    if (golden_ok(g, ares_distill_advantages(&c, golden_number(g, "coef"), &b, sums))) {
        golden_numbers(g, "advantages", doubles(g, b.advantages, b.tokens), b.tokens,
                       golden_want(g, "advantages"));
        golden_near(g, "reverse_kl", sums[0] / sums[1], golden_want(g, "reverse_kl"));
    }
    ares_batch_fini(&b);
}

GOLDEN(distill, distillation_loss)
{
    int64_t n, count;
    double *task = golden_flat(g, golden_in(g, "task_loss"), &n),
           *divergence = golden_flat(g, golden_in(g, "divergence"), &n),
           *rows = golden_flat(g, golden_in(g, "distilled_rows"), &count), loss[2] = { 0 }, sum = 0;
    const ares_distillation_config c = { .use_task_rewards =
                                             golden_value(golden_in(g, "use_task_rewards")) != 0,
                                         .skip_tokens =
                                             (int64_t)golden_number(g, "num_loss_tokens_to_skip") };
    ares_batch b;
    begin(g, golden_in(g, "response_mask"), &b);
    for (int64_t r = 0; r < b.rows; r++) b.samples[r].distilled = rows[r] != 0;
    ares_agg_counts counts = { .max_len = golden_number(g, "loss_scale_factor") };
    float *weight = ares_arena_calloc(g->arena, (size_t)n, sizeof *weight),
          *of_task = ares_arena_calloc(g->arena, (size_t)n, sizeof *weight),
          *of_teacher = ares_arena_calloc(g->arena, (size_t)n, sizeof *weight);
    ares_agg_count(&b, 0, b.rows, &counts);
    golden_ok(g, ares_agg_weights(golden_z(g, "loss_avg_mode"), &b, 0, b.rows, &counts, weight));
    int64_t tokens = ares_distill_tokens(&c, &b);
    ares_distill_weights(&c, golden_number(g, "distillation_loss_coef"), weight, b.distilled, n,
                         of_task, of_teacher);
    for (int64_t t = 0; t < n; t++) {
        loss[0] += (double)of_task[t] * task[t];
        loss[1] += (double)of_teacher[t] * divergence[t];
        sum += b.distilled[t] ? divergence[t] : 0;
    }
    golden_in_single(g);
    golden_numbers(g, "weight_task", doubles(g, of_task, n), n, golden_want(g, "weight_task"));
    golden_numbers(g, "weight_distillation", doubles(g, of_teacher, n), n,
                   golden_want(g, "weight_distillation"));
    golden_near(g, "task", loss[0], golden_want(g, "task"));
    golden_near(g, "distillation", loss[1], golden_want(g, "distillation"));
    golden_near(g, "loss", loss[0] + loss[1], golden_want(g, "loss"));
    golden_near(g, "mean_divergence", tokens ? sum / (double)tokens : 0,
                golden_want(g, "mean_divergence"));
    golden_equal(g, "distilled_tokens", tokens, golden_want(g, "distilled_tokens"));
    ares_batch_fini(&b);
}

GOLDEN(distill, distillation_metrics)
{
    static const char *const keys[] = { "divergence", "reverse_kl", "agree" };
    const ares_json *rows = golden_in(g, "rows");
    float *columns[ARES_COUNT(keys)];
    ares_batch b;
    ares_metrics *m = ares_metrics_new();
    ares_batch_init(&b);
    for (int64_t r = 0; r < rows->count; r++) {
        const ares_json *row = &rows->items[r];
        ares_batch_begin_group(&b);
        ares_batch_add_row(
            &b, &(ares_sample){ .distilled = golden_value(ares_json_get(row, "distilled")) != 0 },
            ares_json_get(row, "mask")->count);
    }
    ARES_PUT(&b, response_mask);
    uint8_t *agree = ares_arena_calloc(g->arena, (size_t)b.tokens + 1, 1);
    for (int k = 0; k < ARES_COUNT(keys); k++)
        columns[k] = ares_arena_calloc(g->arena, (size_t)b.tokens + 1, sizeof(float));
    for (int64_t r = 0; r < b.rows; r++)
        for (int64_t t = b.row_start[r]; t < b.row_start[r + 1]; t++) {
            const ares_json *row = &rows->items[r];
            int64_t i = t - b.row_start[r];
            b.response_mask[t] = golden_value(&ares_json_get(row, "mask")->items[i]) != 0;
            for (int k = 0; k < ARES_COUNT(keys); k++)
                columns[k][t] = (float)golden_value(&ares_json_get(row, keys[k])->items[i]);
            agree[t] = columns[2][t] != 0;
        }
    ares_distill_tokens(&(ares_distillation_config){ 0 }, &b);
    const ares_distill_seen seen = { .divergence = columns[0],
                                     .reverse_kl = columns[1],
                                     .agree = agree };
    golden_ok(g, ares_distill_metrics(&seen, &b, NULL, m));
    for (int64_t i = 0; i < g->expected->count; i++) {
        const ares_json_member *x = &g->expected->members[i];
        char name[80];
        double got;
        (void)snprintf(name, sizeof name, "distillation/%.*s", (int)x->key.len, x->key.data);
        if (x->value->type == ARES_JSON_NULL) {
            if (ares_metrics_get(m, name, &got)) golden_fail(g, "%s is there", name);
        } else if (!ares_metrics_get(m, name, &got)) golden_fail(g, "no %s", name);
        else golden_near(g, name, got, x->value);
    }
    ares_metrics_free(m);
    ares_batch_fini(&b);
}
