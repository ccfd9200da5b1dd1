/*
 * Distillation: options, and the formulas of tokens, weights and metrics, in double
 * (docs/distillation.md). The token modes are the estimators of algorithm.kl_penalty with the
 * teacher in the reference's place.
 */
#include "ares/algo_distill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loss/formula.h"

ARES_OPTION_TABLE(ares_distillation_options, ares_distillation_config, ARES_DISTILLATION_OPTIONS);

#define D "distillation."
#define LOSS D "distillation_loss."
#define TEACHER D "teacher_model."

static bool is(const char *value, const char *name)
{
    return value && strcmp(value, name) == 0;
}

bool ares_distills_vocabulary(const ares_distillation_config *c)
{
    return is(c->loss_mode, "jsd");
}

/* Which weights teach, and whether they know or see something that the policy does not. */
static void check_teacher(const ares_distillation_config *c, ares_algo_complain *complain,
                          void *ctx)
{
    bool live = is(c->kind, "live"), ema = is(c->kind, "ema");
    if (c->teacher_path && !live)
        complain(ctx, 'e', TEACHER "kind",
                 "says which weights of the policy teach, and " TEACHER
                 "model_path names another model; leave one of them out");
    else if (!c->teacher_path && live && is(c->context, "none"))
        complain(ctx, 'e', D "context",
                 "the policy would be its own teacher with the same prompt, and learn nothing; "
                 "set " D "context to row or group, or name a teacher in " TEACHER "model_path");
    if (!ema && c->update_rate != 0.05)
        complain(ctx, 'e', TEACHER "update_rate",
                 "is of a teacher that moves; set " TEACHER "kind to ema, or leave it out");
    if (!ema && c->sync_steps != 1)
        complain(ctx, 'e', TEACHER "sync_steps",
                 "is of a teacher that moves; set " TEACHER "kind to ema, or leave it out");
    if (ema && !is(c->dtype, "fp32"))
        complain(ctx, 'e', TEACHER "fsdp.torch_dtype",
                 "a moving average in bf16 would not move: a step is smaller than its rounding; "
                 "set fp32");
}

static void check_loss(const ares_distillation_config *c, ares_algo_complain *complain, void *ctx)
{
    bool jsd = ares_distills_vocabulary(c), k1 = is(c->loss_mode, "k1"),
         sampled = k1 || is(c->loss_mode, "abs");
    if (sampled && !c->use_policy_gradient)
        complain(ctx, 'e', LOSS "loss_mode",
                 "the gradient of this estimator does not contain the teacher; set " LOSS
                 "use_policy_gradient to true beside k1, or take jsd, k2, k3 or k1+");
    if (c->use_policy_gradient && !k1)
        complain(ctx, 'e', LOSS "use_policy_gradient",
                 "the policy-gradient form takes the log-ratio of the sampled token; set " LOSS
                 "loss_mode to k1, or this to false");
    if (!jsd && c->beta != 1)
        complain(ctx, 'e', LOSS "beta",
                 "chooses the divergence of " LOSS "loss_mode = jsd; set that, or leave it out");
    if (!jsd && !ares_is_null_f64(c->temperature))
        complain(ctx, 'e', LOSS "temperature",
                 "is of " LOSS "loss_mode = jsd; other modes compare at "
                 "worker.rollout.temperature; set null");
    if (!c->use_policy_gradient && c->kl_discount_factor != 0)
        complain(ctx, 'e', LOSS "kl_discount_factor",
                 "is of the policy-gradient form; set " LOSS
                 "use_policy_gradient to true with " LOSS "loss_mode k1, or this to 0");
    if (!ares_is_null_f64(c->is_clip) &&
        (c->use_policy_gradient || sampled || is(c->loss_mode, "k1+") || is(c->loss_mode, "abs+")))
        complain(ctx, 'e', LOSS "is_clip",
                 "is of " LOSS "loss_mode jsd, k2 and k3; the policy-gradient form has the clip of "
                 "worker.actor.loss_type; set null");
    if (!c->use_task_rewards && c->coef != 1)
        complain(ctx, 'e', LOSS "distillation_loss_coef",
                 "without " LOSS "use_task_rewards there is nothing to weigh against; set 1, or "
                 "that to true");
    if (c->positive_only && !c->use_task_rewards)
        complain(ctx, 'e', D "positive_advantage_only",
                 "the task's advantages are there with " LOSS
                 "use_task_rewards only; set that to true, or this to false");
    else if (c->positive_only && c->use_policy_gradient)
        complain(ctx, 'e', D "positive_advantage_only",
                 "chooses tokens of the divergence, and in the policy-gradient form there is "
                 "none; set false");
    if (c->lmbda < 1 && (c->use_task_rewards || !jsd || is(c->context, "group")))
        complain(ctx, 'e', D "lmbda",
                 c->use_task_rewards ? "a stored answer has no reward; set 1, or " LOSS
                                       "use_task_rewards to false"
                 : !jsd ? "nobody sampled a stored answer, and this loss_mode looks at the sampled "
                          "token; set 1, or " LOSS "loss_mode to jsd"
                        : "a stored answer has no group; set 1, or " D "context to none or row");
}

void ares_distillation_check(const ares_distillation_config *c, ares_algo_complain *complain,
                             void *ctx)
{
    if (!c->enabled) return;
    check_teacher(c, complain, ctx);
    check_loss(c, complain, ctx);
    if (is(c->context, "group") && !c->use_successful && !c->include_feedback)
        complain(ctx, 'e', D "use_successful_as_teacher",
                 "without it and without " D "include_environment_feedback the teacher is shown "
                 "nothing; set one of them to true");
}

/* ---------------- of a token */

double ares_distill_clamp(double divergence, double max_clamp, double *factor)
{
    *factor = divergence > max_clamp || divergence < -max_clamp ? 0 : 1; /* NaN: 1 */
    return ares_is_null_f64(max_clamp) ? divergence
                                       : ares_loss_clamp(divergence, -max_clamp, max_clamp);
}

double ares_distill_token(const ares_kl *kl, double log_prob, double teacher_log_prob,
                          double max_clamp, double *derivative, bool *clamped)
{
    bool of_estimator;
    double factor, value = kl->both(log_prob - teacher_log_prob, derivative, &of_estimator);
    value = ares_distill_clamp(value, max_clamp, &factor);
    *clamped = factor == 0;
    if (*clamped) *derivative = 0;
    return value;
}

double ares_distill_is_weight(double log_prob, double old_log_prob, double is_clip)
{
    if (ares_is_null_f64(is_clip)) return 1;
    double ratio = ares_loss_exp(ares_loss_clamp(log_prob - old_log_prob, -20, 20));
    return ratio < is_clip ? ratio : is_clip;
}

/* ---------------- of a batch */

int64_t ares_distill_tokens(const ares_distillation_config *c, ares_batch *b)
{
    int64_t count = 0;
    ARES_PUT(b, distilled);
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t written = 0; /* tokens of mask 1 so far */
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
            if (!b->response_mask[t]) continue;
            bool teaches = b->samples[r].distilled && written++ >= c->skip_tokens &&
                           (!c->positive_only || b->advantages[t] > 0);
            b->distilled[t] = teaches;
            count += teaches;
        }
    }
    return count;
}

int ares_distill_advantages(const ares_distillation_config *c, double coef, ares_batch *b,
                            double sums[2])
{
    ARES_TRY(ARES_NEED(b, "distill", advantages));
    ARES_TRY(ARES_NEED(b, "distill", old_log_probs));
    ARES_TRY(ARES_NEED(b, "distill", teacher_log_probs));
    ARES_TRY(ARES_NEED(b, "distill", distilled));
    double weight = c->use_task_rewards ? coef : 1, factor;
    for (int64_t r = 0; r < b->rows; r++) {
        double later = 0; /* r of the row's next token of mask 1 */
        for (int64_t t = b->row_start[r + 1] - 1; t >= b->row_start[r]; t--) {
            float task = c->use_task_rewards ? b->advantages[t] : 0;
            b->advantages[t] = b->response_mask[t] ? task : 0;
            if (!b->response_mask[t] || !b->samples[r].distilled) continue;
            double d = (double)b->old_log_probs[t] - (double)b->teacher_log_probs[t];
            if (!isfinite(d))
                return ares_fail(ARES_ENUMERIC,
                                 "distillation: row %lld, token %lld has old_log_prob %g and "
                                 "teacher_log_prob %g: must be finite where the mask is 1",
                                 (long long)r, (long long)(t - b->row_start[r]),
                                 (double)b->old_log_probs[t], (double)b->teacher_log_probs[t]);
            later =
                ares_distill_clamp(d, c->loss_max_clamp, &factor) + c->kl_discount_factor * later;
            if (!b->distilled[t]) continue;
            b->advantages[t] = (float)((double)task - weight * later);
            sums[0] += d;
            sums[1] += 1;
        }
    }
    return ARES_OK;
}

void ares_distill_weights(const ares_distillation_config *c, double coef, const float *weight,
                          const uint8_t *distilled, int64_t n, float *task, float *divergence)
{
    double of_teacher = c->use_task_rewards ? coef : 1;
    for (int64_t t = 0; t < n; t++) {
        if (task) task[t] = c->use_task_rewards ? weight[t] : 0;
        divergence[t] = distilled[t] ? (float)((double)weight[t] * of_teacher) : 0;
    }
}

/* ---------------- metrics */

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Linear between neighbours, as numpy's default; sorted [n], n > 0. */
static double percentile(const float *sorted, int64_t n, double percent)
{
    double at = percent / 100 * (double)(n - 1), below = floor(at);
    int64_t i = (int64_t)below, next = ARES_MIN(i + 1, n - 1);
    return (double)sorted[i] + (at - below) * ((double)sorted[next] - (double)sorted[i]);
}

enum { QUARTERS = 4 };
/* Sums over the tokens of this rank, then of all. */
typedef struct seen_sums {
    double tokens, loss, reverse_kl, forward_kl, teacher_entropy, is_weight, agree, clamped;
    double of_quarter[QUARTERS], in_quarter[QUARTERS]; /* reverse KL; tokens */
    double rows, distilled_rows;
} seen_sums;

int ares_distill_metrics(const ares_distill_seen *s, const ares_batch *b, ares_world *world,
                         ares_metrics *m)
{
    seen_sums sum = { 0 };
    double extremes[2] = { -INFINITY, -INFINITY }; /* of -loss and loss */
    float *values = ares_calloc((size_t)b->tokens + 1, sizeof *values);
    int64_t n = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t from = b->row_start[r], to = b->row_start[r + 1], written = 0, i = 0;
        for (int64_t t = from; t < to; t++) written += b->response_mask[t];
        const uint8_t *mask = b->kept_mask ? b->kept_mask : b->response_mask;
        if (from == to || memchr(mask + from, 1, (size_t)(to - from))) { /* a row that counts */
            sum.rows += 1;
            sum.distilled_rows += b->samples[r].distilled;
        }
        for (int64_t t = from; t < to; t++) {
            if (!b->response_mask[t]) continue;
            int64_t quarter = QUARTERS * i++ / written; /* of the tokens that the policy wrote */
            if (!b->distilled || !b->distilled[t] || (s->seen && !s->seen[t])) continue;
            double loss = (double)s->divergence[t], reverse = (double)s->reverse_kl[t];
            sum.tokens += 1;
            sum.loss += loss;
            sum.reverse_kl += reverse;
            sum.of_quarter[quarter] += reverse;
            sum.in_quarter[quarter] += 1;
            if (s->forward_kl) sum.forward_kl += (double)s->forward_kl[t];
            if (s->teacher_entropy) sum.teacher_entropy += (double)s->teacher_entropy[t];
            if (s->is_weight) sum.is_weight += (double)s->is_weight[t];
            if (s->agree) sum.agree += s->agree[t];
            if (s->clamped) sum.clamped += s->clamped[t];
            extremes[0] = ARES_MAX(extremes[0], -loss);
            extremes[1] = ARES_MAX(extremes[1], loss);
            values[n++] = s->reverse_kl[t];
        }
    }
    ares_str all = { 0 };
    int rc = ares_world_sum_f64(world, (double *)&sum, sizeof sum / sizeof(double));
    if (rc == ARES_OK) rc = ares_world_max_f64(world, extremes, 2);
    if (rc == ARES_OK)
        rc = ares_world_gather_all(world, values, (size_t)n * sizeof *values, &all, NULL);
    ares_free(values);
    if (rc != ARES_OK) {
        ares_str_fini(&all);
        return rc;
    }
    ares_metrics_set(m, "distillation/tokens", sum.tokens);
    if (sum.rows > 0)
        ares_metrics_set(m, "distillation/reprompt_sample_fraction", sum.distilled_rows / sum.rows);
    if (sum.tokens > 0) {
        float *sorted = (float *)(void *)all.data;
        int64_t count = (int64_t)(all.len / sizeof *sorted);
        qsort(sorted, (size_t)count, sizeof *sorted, ascending);
        ares_metrics_set(m, "distillation/loss", sum.loss / sum.tokens);
        ares_metrics_set(m, "distillation/loss_min", -extremes[0]);
        ares_metrics_set(m, "distillation/loss_max", extremes[1]);
        ares_metrics_set(m, "distillation/reverse_kl", sum.reverse_kl / sum.tokens);
        ares_metrics_set(m, "distillation/reverse_kl_p50", percentile(sorted, count, 50));
        ares_metrics_set(m, "distillation/reverse_kl_p90", percentile(sorted, count, 90));
        ares_metrics_set(m, "distillation/reverse_kl_p99", percentile(sorted, count, 99));
        static const char *const quarters[QUARTERS] = { "distillation/reverse_kl_q1",
                                                        "distillation/reverse_kl_q2",
                                                        "distillation/reverse_kl_q3",
                                                        "distillation/reverse_kl_q4" };
        for (int q = 0; q < QUARTERS; q++)
            if (sum.in_quarter[q] > 0)
                ares_metrics_set(m, quarters[q], sum.of_quarter[q] / sum.in_quarter[q]);
        const struct {
            const char *name;
            bool known;
            double sum;
        } means[] = {
            { "distillation/forward_kl", s->forward_kl != NULL, sum.forward_kl },
            { "distillation/teacher_entropy", s->teacher_entropy != NULL, sum.teacher_entropy },
            { "distillation/is_weight_mean", s->is_weight != NULL, sum.is_weight },
            { "distillation/argmax_agreement", s->agree != NULL, sum.agree },
            { "distillation/clamped_frac", s->clamped != NULL, sum.clamped },
        };
        for (int i = 0; i < ARES_COUNT(means); i++)
            if (means[i].known) ares_metrics_set(m, means[i].name, means[i].sum / sum.tokens);
    }
    ares_str_fini(&all);
    return ARES_OK;
}
