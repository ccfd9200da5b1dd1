/*
 * A matrix of a case is rows of samples, columns of response tokens; ours are ragged, so every row
 * has the same length.
 */
#include "golden.h"

#include <math.h>
#include <string.h>

#include "../../src/algo/loss/formula.h"
#include "../../src/algo/loss/loss.h"
#include "ares/algo.h"
#include "ares/algo_control.h"
#include "ares/algo_loss.h"
#include "ares/train.h"
#include "golden_device.h"
#include "loss_on_card.h"

static ares_column_f32 *floats(golden *g, const ares_json *v, int64_t *n)
{
    const double *x = golden_flat(g, v, n);
    float *f = ares_arena_alloc(g->arena, (size_t)(*n + 1) * sizeof *f);
    for (int64_t i = 0; i < *n; i++) f[i] = (float)x[i];
    return f;
}

static double *doubles(golden *g, const float *x, int64_t n)
{
    double *d = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *d);
    for (int64_t i = 0; i < n; i++) d[i] = (double)x[i];
    return d;
}

/* A batch of one group with the rows of a mask. */
static void batch_of(golden *g, const ares_json *mask, ares_batch *b)
{
    int64_t n;
    const double *m = golden_flat(g, mask, &n);
    ares_batch_init(b);
    ares_batch_begin_group(b);
    for (int64_t r = 0; r < mask->count; r++)
        ares_batch_add_row(b, &(ares_sample){ .index = (int32_t)r }, mask->items[r].count);
    ARES_PUT(b, response_mask);
    for (int64_t i = 0; i < n; i++) b->response_mask[i] = m[i] != 0;
}

/* The weights of an aggregation over all rows, as one mini-batch. */
static bool weights_of(golden *g, const char *mode, const ares_batch *b, double width,
                       float *weight)
{
    ares_agg_counts counts = { 0 };
    ares_agg_count(b, 0, b->rows, &counts);
    counts.max_len = width;
    return golden_ok(g, ares_agg_weights(mode, b, 0, b->rows, &counts, weight));
}

static double aggregate(golden *g, const char *mode, const ares_json *values, const ares_json *mask,
                        bool *ok)
{
    ares_batch b;
    int64_t n;
    batch_of(g, mask, &b);
    const double *x = golden_flat(g, values, &n);
    float *weight = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *weight);
    double sum = 0;
    *ok = weights_of(g, mode, &b, (double)(n / b.rows), weight);
    for (int64_t i = 0; i < n; i++) sum += x[i] * (double)weight[i];
    ares_batch_fini(&b);
    golden_in_single(g);
    return sum;
}

/* ---------------------------------------------------------------- aggregation */

static const char *mode_of(golden *g, const char *key)
{
    const char *mode = golden_z(g, key);
    return strcmp(mode, "token") == 0 ? "token-mean"
           : strcmp(mode, "seq") == 0 ? "seq-mean-token-mean"
                                      : mode; /* the option's aliases */
}

GOLDEN(aepo, average_loss)
{
    bool ok;
    double loss =
        aggregate(g, mode_of(g, "mode"), golden_in(g, "values"), golden_in(g, "mask"), &ok);
    if (ok) golden_near(g, "loss", loss, g->expected);
}
GOLDEN_ALSO(dapo, aggregate_loss, aepo, average_loss)

/* Token means of micro-batches of so many rows each, and their mean (loss_norm micro, one rank). */
static double micro_mean(golden *g, const double *x, const ares_batch *b, int64_t rows)
{
    ares_micro_batch *micro = ares_arena_calloc(g->arena, (size_t)b->rows + 1, sizeof *micro);
    float *weight = ares_arena_calloc(g->arena, (size_t)b->tokens + 1, sizeof *weight);
    int64_t n = 0;
    double sum = 0;
    for (int64_t r = 0; r < b->rows; r += rows)
        micro[n++] = (ares_micro_batch){ .row = r, .end = ARES_MIN(r + rows, b->rows) };
    golden_ok(g, ares_agg_weights_micro("token-mean", b, micro, n, n, 1, weight));
    for (int64_t t = 0; t < b->tokens; t++) sum += x[t] * (double)weight[t];
    golden_in_single(g);
    return sum;
}

GOLDEN(aepo, minibatch_loss)
{
    bool ok;
    if (strcmp(golden_z(g, "norm"), "global") == 0) {
        double loss =
            aggregate(g, "token-mean", golden_in(g, "token_loss"), golden_in(g, "mask"), &ok);
        if (ok) golden_near(g, "loss", loss, g->expected);
        return;
    }
    ares_batch b;
    int64_t n;
    batch_of(g, golden_in(g, "mask"), &b);
    golden_near(g, "loss",
                micro_mean(g, golden_flat(g, golden_in(g, "token_loss"), &n), &b,
                           (int64_t)golden_number(g, "micro")),
                g->expected);
    ares_batch_fini(&b);
}

GOLDEN(agentic, token_mean_over_minibatch)
{
    const ares_json *losses = golden_in(g, "micro_batches_loss"),
                    *masks = golden_in(g, "micro_batches_mask");
    ares_batch b;
    int64_t n, at = 0;
    const double *x = golden_flat(g, losses, &n), *mask = golden_flat(g, masks, &n);
    ares_batch_init(&b);
    ares_batch_begin_group(&b);
    for (int64_t m = 0; m < masks->count; m++)
        for (int64_t r = 0; r < masks->items[m].count; r++)
            ares_batch_add_row(&b, &(ares_sample){ 0 }, masks->items[m].items[r].count);
    ARES_PUT(&b, response_mask);
    for (; at < b.tokens; at++) b.response_mask[at] = mask[at] != 0;
    double sum = 0;
    float *weight = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *weight);
    golden_near(g, "micro_average_upstream",
                micro_mean(g, x, &b, masks->count ? masks->items[0].count : 1),
                golden_want(g, "micro_average_upstream"));
    if (weights_of(g, "token-mean", &b, 1, weight))
        for (int64_t t = 0; t < n; t++) sum += x[t] * (double)weight[t];
    golden_near(g, "global_token_mean", sum, golden_want(g, "global_token_mean"));
    ares_batch_fini(&b);
}

/* A row of the given tokens for each micro-batch of a rank. */
GOLDEN(dapo, valid_token_scale)
{
    const ares_json *tokens = golden_in(g, "tokens_per_rank_and_microbatch");
    const ares_json *multiplier = golden_want(g, "loss_multiplier"),
                    *plain = golden_want(g, "per_token_weight_without_scale");
    bool rollout = strcmp(golden_z(g, "scope"), "rollout") == 0;
    int64_t count;
    double valid = rollout ? golden_number(g, "tokens_in_other_minibatches") : 0;
    const double *all = golden_flat(g, tokens, &count);
    for (int64_t i = 0; i < count; i++) valid += all[i];
    golden_in_single(g);
    for (int64_t r = 0; r < tokens->count; r++) {
        const ares_json *of = &tokens->items[r];
        ares_batch b;
        ares_micro_batch *micro = ares_arena_calloc(g->arena, (size_t)of->count + 1, sizeof *micro);
        ares_batch_init(&b);
        ares_batch_begin_group(&b);
        for (int64_t m = 0; m < of->count; m++) {
            ares_batch_add_row(&b, &(ares_sample){ 0 }, (int64_t)golden_value(&of->items[m]));
            micro[m] = (ares_micro_batch){ .row = m, .end = m + 1 };
        }
        ARES_PUT(&b, response_mask);
        memset(b.response_mask, 1, (size_t)b.tokens);
        float *global = ares_arena_calloc(g->arena, (size_t)b.tokens + 1, sizeof *global),
              *own = ares_arena_calloc(g->arena, (size_t)b.tokens + 1, sizeof *own);
        ares_agg_counts counts = { .tokens = valid, .rows = 1, .max_len = 1 };
        golden_ok(g, ares_agg_weights("token-mean", &b, 0, b.rows, &counts, global));
        golden_ok(g, ares_agg_weights_micro("token-mean", &b, micro, of->count,
                                            of->count * tokens->count, 1, own));
        golden_near(g, "per_token_weight_with_scale", (double)global[0],
                    golden_want(g, "per_token_weight_with_scale"));
        for (int64_t m = 0; m < of->count; m++) {
            int64_t t = b.row_start[m];
            golden_near(g, "without scale", (double)own[t], &plain->items[r].items[m]);
            golden_near(g, "multiplier", (double)global[t] / (double)own[t],
                        &multiplier->items[r].items[m]);
        }
        ares_batch_fini(&b);
    }
    golden_near(g, "global_valid_tokens", valid, golden_want(g, "global_valid_tokens"));
}

GOLDEN(dapo, early_stop)
{
    int64_t n;
    const double *ratio = golden_flat(g, golden_in(g, "mean_ratio_per_rank"), &n);
    const ares_json *threshold = golden_in(g, "threshold");
    double average;
    bool stop = ares_early_stop(
        ratio, (int)n, threshold->type == ARES_JSON_NULL ? NAN : golden_value(threshold), &average);
    golden_near(g, "average", average, golden_want(g, "average"));
    golden_equal(g, "abandon", stop, golden_want(g, "abandon"));
}

/* The whole loss of a policy term and the others' means. */
static double total_of(double policy, double entropy, double entropy_coeff, double kl,
                       double kl_coef)
{
    ares_loss_sums s;
    ares_loss_sums_init(&s);
    s.loss = policy;
    s.entropy = entropy;
    s.kl = kl;
    return ares_loss_total(&s, entropy_coeff, kl_coef);
}
GOLDEN(dapo, entropy_bonus)
{
    bool on = golden_value(golden_in(g, "calculate_entropy")) != 0;
    golden_near(g, "loss",
                total_of(golden_number(g, "pg_loss"), golden_number(g, "mean_entropy"),
                         on ? golden_number(g, "entropy_bonus") : 0, 0, 0),
                g->expected);
}
GOLDEN(dapo, kl_loss_term)
{
    golden_near(g, "loss",
                total_of(golden_number(g, "pg_loss"), 0, 0, golden_number(g, "mean_kl"),
                         golden_number(g, "kl_beta")),
                g->expected);
}
GOLDEN(agentic, actor_total_loss)
{
    double n = golden_number(g, "gradient_accumulation"), pg = golden_number(g, "pg_loss"),
           h = golden_number(g, "entropy_mean"), kl = golden_number(g, "kl_mean"),
           ch = golden_number(g, "entropy_coeff"), ck = golden_number(g, "kl_loss_coef");
    golden_near(g, "policy_loss", total_of(pg, h, ch, kl, ck), golden_want(g, "policy_loss"));
    golden_near(g, "of a micro-batch", total_of(pg / n, h / n, ch, kl / n, ck),
                golden_want(g, "loss_for_backward_micro"));
}

GOLDEN(agentic, agg_loss)
{
    for (int64_t i = 0; i < g->expected->count; i++) {
        const ares_json_member *m = &g->expected->members[i];
        bool ok;
        double loss = aggregate(g, ares_arena_copy(g->arena, m->key.data, m->key.len),
                                golden_in(g, "loss"), golden_in(g, "mask"), &ok);
        if (ok) golden_near(g, "loss", loss, m->value);
    }
}

/* ---------------------------------------------------------------- KL */

static void check_kl(golden *g, const char *kind, const double *log_prob, const double *ref,
                     int64_t n, const ares_json *value, const ares_json *derivative)
{
    const ares_kl *kl = ares_kl_find(kind);
    if (!kl) {
        golden_unknown(g);
        return;
    }
    double *v = ares_arena_alloc(g->arena, (size_t)n * sizeof *v),
           *d = ares_arena_alloc(g->arena, (size_t)n * sizeof *d);
    for (int64_t i = 0; i < n; i++) {
        v[i] = kl->value(log_prob[i] - ref[i]);
        d[i] = kl->derivative(log_prob[i] - ref[i]);
    }
    golden_numbers(g, kind, v, n, value);
    golden_numbers(g, "derivative", d, n, derivative);
}

GOLDEN(aepo, kl_penalty)
{
    int64_t n;
    const double *log_prob = golden_flat(g, golden_in(g, "log_probs"), &n),
                 *ref = golden_flat(g, golden_in(g, "ref_log_probs"), &n);
    check_kl(g, golden_z(g, "kind"), log_prob, ref, n, golden_want(g, "value"),
             golden_want(g, "grad_log_probs"));
}

GOLDEN(dapo, kl_penalty)
{
    double log_prob = golden_number(g, "logprob"), ref = golden_number(g, "ref_logprob");
    check_kl(g, golden_z(g, "type"), &log_prob, &ref, 1, golden_want(g, "value"),
             golden_want(g, "dvalue_dlogprob"));
}

GOLDEN(agentic, kl_penalty)
{
    int64_t n;
    const double *log_prob = golden_flat(g, golden_in(g, "log_prob"), &n),
                 *ref = golden_flat(g, golden_in(g, "ref_log_prob"), &n);
    for (int64_t i = 0; i < g->expected->count; i++) {
        const ares_json_member *m = &g->expected->members[i];
        const ares_json *forward = ares_json_get(m->value, "forward"),
                        *derivative = ares_json_get(m->value, "grad_wrt_logprob");
        check_kl(g, ares_arena_copy(g->arena, m->key.data, m->key.len), log_prob, ref, n, forward,
                 derivative);
    }
}

GOLDEN(agentic, kl_loss)
{
    ares_batch b;
    int64_t n;
    batch_of(g, golden_in(g, "response_mask"), &b);
    const float *log_prob = floats(g, golden_in(g, "log_prob"), &n),
                *ref = floats(g, golden_in(g, "ref_log_prob"), &n);
    float *weight = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *weight),
          *no_advantage = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *no_advantage);
    ares_loss_config cfg = { 0 };
    bool ok = weights_of(g, "token-mean", &b, (double)(n / b.rows), weight);
    golden_in_single(g);
    for (int64_t i = 0; ok && i < g->expected->count; i++) {
        const ares_json_member *m = &g->expected->members[i];
        const ares_kl *kl = ares_kl_find(ares_arena_copy(g->arena, m->key.data, m->key.len));
        if (!kl) {
            golden_unknown(g);
            continue;
        }
        ares_loss_sums sums;
        ares_loss_sums_init(&sums);
        float *d = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *d);
        ares_loss_args a = { .cfg = &cfg,
                             .n = n,
                             .log_prob = log_prob,
                             .old_log_prob = log_prob,
                             .advantage = no_advantage,
                             .weight = weight,
                             .mask = b.response_mask,
                             .d_log_prob = d,
                             .sums = &sums };
        ares_kl_args k = { .kl = kl, .coef = golden_number(g, "coef"), .ref_log_prob = ref };
        ok = golden_ok(g, on_card_loss(golden_device(), ares_loss_find("default"), &a, &k));
        golden_near(g, "kl_mean", sums.kl, ares_json_get(m->value, "kl_mean"));
        golden_numbers(g, "d_log_prob", doubles(g, d, n), n,
                       ares_json_get(m->value, "d_contribution_d_logprob"));
    }
    ares_batch_fini(&b);
}

GOLDEN(agentic, apply_kl_in_reward)
{
    ares_batch b;
    int64_t n;
    double sums[2] = { 0 };
    batch_of(g, golden_in(g, "response_mask"), &b);
    ARES_PUT(&b, old_log_probs), ARES_PUT(&b, ref_log_probs), ARES_PUT(&b, token_level_scores),
        ARES_PUT(&b, token_level_rewards);
    memcpy(b.old_log_probs, floats(g, golden_in(g, "old_log_prob"), &n),
           (size_t)b.tokens * sizeof(float));
    memcpy(b.ref_log_probs, floats(g, golden_in(g, "ref_log_prob"), &n),
           (size_t)b.tokens * sizeof(float));
    memcpy(b.token_level_scores, floats(g, golden_in(g, "token_level_scores"), &n),
           (size_t)b.tokens * sizeof(float));
    golden_in_single(g);
    const ares_kl *kl = ares_kl_find(golden_z(g, "kl_penalty"));
    if (golden_ok(g, kl ? ares_kl_column(kl, &b) : ARES_ECONFIG)) {
        double beta = golden_number(g, "beta");
        const ares_json *m = golden_want(g, "metrics");
        ares_kl_in_reward(&b, beta, sums);
        golden_numbers(g, "token_level_rewards", doubles(g, b.token_level_rewards, b.tokens),
                       b.tokens, golden_want(g, "token_level_rewards"));
        golden_near(g, "current_kl", sums[0] / sums[1], golden_want(g, "current_kl"));
        golden_near(g, "reward_kl_penalty", sums[0] / sums[1],
                    ares_json_get(m, "actor/reward_kl_penalty"));
    }
    ares_batch_fini(&b);
}

/* ---------------------------------------------------------------- policy losses */

typedef struct loss_case {
    ares_batch b;
    ares_loss_config cfg;
    const ares_loss *loss;
    int64_t n;
    const float *log_prob, *old, *advantage;
} loss_case;

/* How the cases of a set call their inputs. */
typedef struct loss_keys {
    const char *log_prob, *old, *advantage, *mask, *low, *high, *dual;
} loss_keys;

static bool loss_open(golden *g, loss_case *c, const char *type, const loss_keys *keys)
{
    c->loss = ares_loss_find(type);
    if (!c->loss) {
        golden_unknown(g);
        return false;
    }
    batch_of(g, golden_in(g, keys->mask), &c->b);
    c->log_prob = floats(g, golden_in(g, keys->log_prob), &c->n);
    c->old = floats(g, golden_in(g, keys->old), &c->n);
    c->advantage = floats(g, golden_in(g, keys->advantage), &c->n);
    c->cfg = (ares_loss_config){ .clip_ratio_low = golden_number(g, keys->low),
                                 .clip_ratio_high = golden_number(g, keys->high),
                                 .clip_ratio_dual = golden_number_or(g, keys->dual, NAN),
                                 .tau_positive = golden_number_or(g, "tau_positive", 1),
                                 .tau_negative = golden_number_or(g, "tau_negative", 1.05) };
    golden_in_single(g);
    return true;
}

/* Tokens [from, from + n) under the weights and mask given; d_log_prob is zeroed before. */
static bool loss_run(golden *g, const loss_case *c, int64_t from, int64_t n, const float *weight,
                     const uint8_t *mask, float *d_log_prob, ares_loss_sums *sums)
{
    ares_loss_sums_init(sums);
    memset(d_log_prob, 0, (size_t)n * sizeof *d_log_prob);
    ares_loss_args a = { .cfg = &c->cfg,
                         .n = n,
                         .end = n == c->n ? c->b.rows : 0,
                         .row_start = n == c->n ? c->b.row_start : NULL,
                         .log_prob = c->log_prob + from,
                         .old_log_prob = c->old + from,
                         .advantage = c->advantage + from,
                         .weight = weight,
                         .mask = mask,
                         .d_log_prob = d_log_prob,
                         .sums = sums };
    return golden_ok(g, on_card_loss(golden_device(), c->loss, &a, NULL));
}

/* The loss of every token by itself; those that the mask hides are 0 where hide says so. */
static void check_tokens(golden *g, const loss_case *c, bool hide, const ares_json *losses,
                         const ares_json *derivatives)
{
    double *loss = ares_arena_calloc(g->arena, (size_t)c->n + 1, sizeof *loss),
           *derivative = ares_arena_calloc(g->arena, (size_t)c->n + 1, sizeof *derivative);
    bool local = c->loss->flags & ARES_LOSS_LOCAL;
    int64_t count;
    const double *want = golden_flat(g, losses, &count);
    float *one = ares_arena_calloc(g->arena, (size_t)c->n + 1, sizeof *one),
          *d = ares_arena_calloc(g->arena, (size_t)c->n + 1, sizeof *d);
    for (int64_t i = 0; i < c->n; i++) {
        uint8_t seen = 1;
        ares_loss_sums sums;
        one[i] = 1;
        bool ok = local ? loss_run(g, c, i, 1, &one[i], hide ? &c->b.response_mask[i] : &seen,
                                   &d[i], &sums)
                        : loss_run(g, c, 0, c->n, one, c->b.response_mask, d, &sums);
        one[i] = 0;
        if (!ok) return;
        /* a row's loss knows nothing of masked tokens */
        loss[i] = local || c->b.response_mask[i] ? sums.loss : want[i];
        derivative[i] = c->b.response_mask[i] ? (double)d[i] : 0;
    }
    golden_numbers(g, "token losses", loss, c->n, losses);
    if (derivatives) golden_numbers(g, "token derivatives", derivative, c->n, derivatives);
}

/* The aggregated loss, its derivatives (NULL: not wanted) and the sums that metrics are made of. */
static bool check_loss(golden *g, const loss_case *c, const char *mode, const ares_json *loss,
                       const ares_json *derivatives, ares_loss_sums *sums)
{
    float *weight = ares_arena_calloc(g->arena, (size_t)c->n + 1, sizeof *weight),
          *d = ares_arena_calloc(g->arena, (size_t)c->n + 1, sizeof *d);
    if (!weights_of(g, mode, &c->b, (double)(c->n / c->b.rows), weight)) return false;
    if (!loss_run(g, c, 0, c->n, weight, c->b.response_mask, d, sums)) return false;
    golden_near(g, mode, sums->loss, loss);
    if (derivatives) golden_numbers(g, "d_log_prob", doubles(g, d, c->n), c->n, derivatives);
    return true;
}

/* EasyR1's entropy_loss: -log pi as an estimate of the entropy, averaged like the loss. */
static double mean_surprise(golden *g, const loss_case *c, const char *mode)
{
    float *weight = ares_arena_calloc(g->arena, (size_t)c->n + 1, sizeof *weight),
          *surprise = ares_arena_calloc(g->arena, (size_t)c->n + 1, sizeof *surprise);
    ares_loss_sums sums;
    ares_loss_sums_init(&sums);
    if (!weights_of(g, mode, &c->b, (double)(c->n / c->b.rows), weight)) return NAN;
    for (int64_t t = 0; t < c->n; t++) surprise[t] = -c->log_prob[t];
    golden_ok(g, loss_terms(&(ares_loss_args){ .cfg = &c->cfg,
                                               .n = c->n,
                                               .log_prob = c->log_prob,
                                               .weight = weight,
                                               .mask = c->b.response_mask,
                                               .entropy = surprise,
                                               .sums = &sums },
                            NULL));
    return sums.entropy;
}

GOLDEN(aepo, policy_loss)
{
    loss_case c = { 0 };
    ares_loss_sums s;
    static const loss_keys keys = { "logp",     "old",       "adv",      "mask",
                                    "clip_low", "clip_high", "clip_dual" };
    if (!loss_open(g, &c, golden_z(g, "type"), &keys)) return;
    check_tokens(g, &c, false, golden_want(g, "token_loss"), NULL);
    if (check_loss(g, &c, mode_of(g, "avg"), golden_want(g, "loss"), NULL, &s)) {
        const ares_json *m = golden_want(g, "metrics");
        golden_near(g, "ppo_kl", s.neg_log_ratio / s.tokens, ares_json_get(m, "ppo_kl"));
        golden_near(g, "entropy_loss", mean_surprise(g, &c, mode_of(g, "avg")),
                    ares_json_get(m, "entropy_loss"));
        if (ares_json_get(m, "pg_clipfrac_higher")) {
            golden_near(g, "pg_clipfrac_higher", s.clip_high / s.tokens,
                        ares_json_get(m, "pg_clipfrac_higher"));
            golden_near(g, "pg_clipfrac_lower", s.clip_low / s.tokens,
                        ares_json_get(m, "pg_clipfrac_lower"));
        }
    }
    ares_batch_fini(&c.b);
}

GOLDEN(dapo, policy_loss)
{
    loss_case c;
    ares_loss_sums s;
    static const loss_keys keys = { "logprobs",       "old_logprobs",    "advantages",  "mask",
                                    "clip_ratio_low", "clip_ratio_high", "clip_ratio_c" };
    if (!loss_open(g, &c, "dapo", &keys)) return;
    check_tokens(g, &c, true, golden_want(g, "token_losses"), NULL);
    if (check_loss(g, &c, mode_of(g, "loss_agg_func"), golden_want(g, "loss"),
                   golden_want(g, "grad_logprobs"), &s)) {
        const ares_json *m = golden_want(g, "metrics");
        golden_near(g, "ratio", s.ratio / s.tokens, ares_json_get(m, "ratio"));
        golden_near(g, "clipped_ratio", s.ratio_clipped / s.tokens,
                    ares_json_get(m, "clipped_ratio"));
        golden_near(g, "clip_fraction", s.clip_high / s.tokens, ares_json_get(m, "clip_fraction"));
        golden_near(g, "dual_clip_fraction", s.clip_low / s.tokens,
                    ares_json_get(m, "dual_clip_fraction"));
        golden_near(g, "approx_kl", s.neg_log_ratio / s.tokens, ares_json_get(m, "approx_kl"));
    }
    ares_batch_fini(&c.b);
}

GOLDEN(agentic, ppo_policy_loss)
{
    loss_case c;
    ares_loss_sums s;
    static const loss_keys keys = { "log_prob",      "old_log_prob",   "advantages",
                                    "response_mask", "clip_ratio_low", "clip_ratio_high",
                                    "clip_ratio_c" };
    if (!loss_open(g, &c, "default", &keys)) return;
    check_tokens(g, &c, false, golden_want(g, "per_token_loss"),
                 golden_want(g, "d_per_token_loss_d_logprob"));
    const ares_json *loss = ares_json_get(g->expected, "loss");
    for (int64_t i = 0; loss && i < loss->count; i++) {
        const char *mode =
            ares_arena_copy(g->arena, loss->members[i].key.data, loss->members[i].key.len);
        bool token_mean = strcmp(mode, "token-mean") == 0;
        if (!check_loss(g, &c, mode, loss->members[i].value,
                        token_mean ? golden_want(g, "d_token_mean_loss_d_logprob") : NULL, &s))
            break;
        golden_near(g, "pg_clipfrac", s.clip_high / s.tokens, golden_want(g, "pg_clipfrac"));
        golden_near(g, "pg_clipfrac_lower", s.clip_low / s.tokens,
                    golden_want(g, "pg_clipfrac_lower"));
        golden_near(g, "ppo_kl", s.neg_log_ratio / s.tokens, golden_want(g, "ppo_kl"));
    }
    ares_batch_fini(&c.b);
}

/* ---------------------------------------------------------------- the critic's loss */

typedef struct value_case {
    const char *value, *old, *mask, *range, *mode;         /* names of inputs; the aggregation */
    const ares_json *loss, *fraction, *mean, *derivatives; /* wanted; the last two may be NULL */
} value_case;

static void check_value(golden *g, const value_case *c)
{
    ares_batch b;
    int64_t n;
    batch_of(g, golden_in(g, c->mask), &b);
    const float *value = floats(g, golden_in(g, c->value), &n),
                *old = floats(g, golden_in(g, c->old), &n),
                *target = floats(g, golden_in(g, "returns"), &n);
    float *weight = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *weight),
          *d = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *d);
    ares_value_sums s = { 0 };
    golden_in_single(g);
    if (weights_of(g, c->mode, &b, (double)(n / b.rows), weight) &&
        golden_ok(g, value_loss(&(ares_value_args){ .n = n,
                                                    .value = value,
                                                    .old_value = old,
                                                    .target = target,
                                                    .weight = weight,
                                                    .mask = b.response_mask,
                                                    .cliprange_value = golden_number(g, c->range),
                                                    .d_value = d,
                                                    .sums = &s }))) {
        golden_near(g, c->mode, s.loss, c->loss);
        golden_near(g, "vf_clipfrac", s.clip / s.tokens, c->fraction);
        if (c->mean) golden_near(g, "vpred_mean", s.value / s.tokens, c->mean);
        if (c->derivatives) golden_numbers(g, "d_value", doubles(g, d, n), n, c->derivatives);
    }
    ares_batch_fini(&b);
}

GOLDEN(aepo, value_loss)
{
    check_value(g, &(value_case){ .value = "vpred",
                                  .old = "values",
                                  .mask = "mask",
                                  .range = "clip",
                                  .mode = mode_of(g, "avg"),
                                  .loss = golden_want(g, "vf_loss"),
                                  .fraction = golden_want(g, "vf_clipfrac"),
                                  .mean = golden_want(g, "vpred_mean") });
}

GOLDEN(agentic, value_loss)
{
    const ares_json *losses = golden_want(g, "vf_loss");
    for (int64_t i = 0; losses && i < losses->count; i++) {
        const char *mode =
            ares_arena_copy(g->arena, losses->members[i].key.data, losses->members[i].key.len);
        bool token_mean = strcmp(mode, "token-mean") == 0;
        check_value(g, &(value_case){ .value = "vpreds",
                                      .old = "values_old",
                                      .mask = "response_mask",
                                      .range = "cliprange_value",
                                      .mode = mode,
                                      .loss = losses->members[i].value,
                                      .fraction = golden_want(g, "vf_clipfrac"),
                                      .derivatives =
                                          token_mean ? golden_want(g, "d_token_mean_loss_d_vpred")
                                                     : NULL });
    }
}

/* ---------------------------------------------------------------- VAPOR */

static float *zeros(golden *g, int64_t n)
{
    return ares_arena_calloc(g->arena, (size_t)n + 1, sizeof(float));
}

static ares_vapor_text text_of(golden *g, const ares_json *log_prob, const ares_json *ref,
                               const ares_json *span)
{
    ares_vapor_text t = { 0 };
    if (!log_prob) return t;
    t.log_prob = floats(g, log_prob, &t.n);
    t.ref_log_prob = floats(g, ref, &t.n);
    t.d_log_prob = zeros(g, t.n);
    if (span && span->type == ARES_JSON_ARRAY) {
        t.span = (int64_t)golden_value(&span->items[0]);
        t.span_end = (int64_t)golden_value(&span->items[1]);
    }
    return t;
}
static ares_vapor_text stored(golden *g, const ares_json *v)
{
    if (!v || v->type != ARES_JSON_OBJECT) return (ares_vapor_text){ 0 };
    return text_of(g, ares_json_get(v, "policy"), ares_json_get(v, "ref"),
                   ares_json_get(v, "span"));
}

typedef struct vapor_case {
    ares_vapor_config cfg;
    ares_vapor_prompt *prompts;
    int64_t n;
    ares_vapor_sums sums;
} vapor_case;

static double member_or(const ares_json *v, const char *key, double absent)
{
    const ares_json *m = v ? ares_json_get(v, key) : NULL;
    return m && m->type != ARES_JSON_NULL ? golden_value(m) : absent;
}
static double input_or(golden *g, const char *key, double absent)
{
    return member_or(g->inputs, key, absent);
}
static const char *member_word(const ares_json *v, const char *key, const char *absent)
{ /* parsed texts end with a NUL */
    const ares_json *m = v ? ares_json_get(v, key) : NULL;
    return m && m->type == ARES_JSON_STRING ? m->text.data : absent;
}

static bool vapor_run(golden *g, vapor_case *c)
{
    const ares_json *batch = golden_in(g, "batch"), *cfg = ares_json_get(g->inputs, "config"),
                    *detach = cfg ? ares_json_get(cfg, "preference_detach") : NULL;
    c->cfg = (ares_vapor_config){ .beta = member_or(cfg, "beta", 0.1),
                                  .epsilon_low = member_or(cfg, "epsilon_low", 0.2),
                                  .epsilon_high = member_or(cfg, "epsilon_high", 0.2),
                                  .kl_coef = member_or(cfg, "kl_coef", 0.04),
                                  .log_ratio_clamp = member_or(cfg, "log_ratio_clamp", 20),
                                  .ratio_reduction = member_word(cfg, "ratio_reduction", "sum"),
                                  .failure_ratio = member_word(cfg, "failure_ratio", "neutral"),
                                  .preference_detach = detach && golden_value(detach) != 0 };
    c->n = batch->count;
    c->prompts = ares_arena_calloc(g->arena, (size_t)c->n + 1, sizeof *c->prompts);
    for (int64_t i = 0; i < c->n; i++) {
        const ares_json *list = ares_json_get(&batch->items[i], "completions");
        ares_vapor_prompt *p = &c->prompts[i];
        p->n = list->count;
        p->completions = ares_arena_calloc(g->arena, (size_t)p->n + 1, sizeof *p->completions);
        for (int64_t j = 0; j < p->n; j++) {
            p->completions[j].text = stored(g, &list->items[j]);
            p->completions[j].reward = member_or(&list->items[j], "reward", 0);
        }
        p->chosen = stored(g, ares_json_get(&batch->items[i], "chosen"));
        p->rejected = stored(g, ares_json_get(&batch->items[i], "rejected"));
    }
    ares_vapor_sums_init(&c->sums);
    golden_in_single(g);
    return golden_ok(
        g, ares_vapor_loss(&c->cfg, ares_kl_find("low_var_kl"), c->prompts, c->n, NULL, &c->sums));
}

static void check_metric(golden *g, const vapor_case *c, const char *name, const ares_json *want)
{
    ares_metrics *m = ares_metrics_new();
    double value = NAN;
    ares_vapor_metrics(&c->cfg, &c->sums, m);
    ares_metrics_get(m, name, &value);
    golden_near(g, name, value, want);
    ares_metrics_free(m);
}

GOLDEN(vapor, vapor_metrics)
{
    vapor_case c;
    if (!vapor_run(g, &c)) return;
    for (int64_t i = 0; i < g->expected->count; i++) {
        const ares_json_member *m = &g->expected->members[i];
        check_metric(g, &c, ares_arena_copy(g->arena, m->key.data, m->key.len), m->value);
    }
}

static void check_text(golden *g, const char *what, const ares_vapor_text *t, const ares_json *want)
{
    if (want && want->type == ARES_JSON_ARRAY)
        golden_numbers(g, what, doubles(g, t->d_log_prob, t->n), t->n, want);
}

GOLDEN(vapor, vapor_loss)
{
    vapor_case c;
    if (!vapor_run(g, &c)) return;
    const ares_json *prompts = golden_want(g, "prompts");
    check_metric(g, &c, "vapor/policy_loss", golden_want(g, "policy_loss"));
    check_metric(g, &c, "vapor/kl", golden_want(g, "kl"));
    check_metric(g, &c, "vapor/loss", golden_want(g, "loss"));
    for (int64_t i = 0; prompts && i < prompts->count; i++) {
        const ares_json *want = &prompts->items[i], *list = ares_json_get(want, "completions");
        const ares_vapor_prompt *p = &c.prompts[i];
        golden_near(g, "log_ratio_diff", p->margin, ares_json_get(want, "log_ratio_diff"));
        golden_near(g, "preference_term", p->term, ares_json_get(want, "preference_term"));
        check_text(g, "grad_chosen_logps", &p->chosen, ares_json_get(want, "grad_chosen_logps"));
        check_text(g, "grad_rejected_logps", &p->rejected,
                   ares_json_get(want, "grad_rejected_logps"));
        for (int64_t j = 0; j < list->count; j++) {
            const ares_json *w = &list->items[j];
            const ares_vapor_completion_args *q = &p->completions[j];
            golden_near(g, "reward_used", q->reward_used, ares_json_get(w, "reward_used"));
            golden_near(g, "advantage", q->advantage, ares_json_get(w, "advantage"));
            golden_near(g, "verifiable_log_ratio", q->log_ratio,
                        ares_json_get(w, "verifiable_log_ratio"));
            golden_near(g, "hybrid_ratio", q->ratio, ares_json_get(w, "hybrid_ratio"));
            golden_near(g, "objective", q->objective, ares_json_get(w, "objective"));
            check_text(g, "grad_policy_logps", &q->text, ares_json_get(w, "grad_policy_logps"));
        }
    }
}

GOLDEN(vapor, preference_gradient_vanishes_at_start)
{
    vapor_case c;
    double most = 0;
    if (!vapor_run(g, &c)) return;
    for (int64_t i = 0; i < c.n; i++)
        for (int64_t t = 0; t < c.prompts[i].chosen.n; t++)
            most = fmax(most, fabs((double)c.prompts[i].chosen.d_log_prob[t]));
    golden_near(g, "max_abs_grad_chosen", most, golden_want(g, "max_abs_grad_chosen"));
}

GOLDEN(vapor, verifiable_ratio)
{
    ares_vapor_text t =
        text_of(g, golden_in(g, "policy_logps"), golden_in(g, "ref_logps"), golden_in(g, "span"));
    bool finite;
    double log_ratio = vapor_log_ratio(&t, false, &finite);
    golden_in_single(g);
    golden_near(g, "log_ratio", log_ratio, golden_want(g, "log_ratio"));
    golden_near(g, "ratio", vapor_ratio(log_ratio, 20), golden_want(g, "ratio"));
}

GOLDEN(vapor, preference_term)
{ /* one token each, whose log-ratio is the given one; null: there is no span */
    const ares_json *won = ares_json_get(g->inputs, "chosen_log_ratio"),
                    *lost = ares_json_get(g->inputs, "rejected_log_ratio");
    float chosen = (float)input_or(g, "chosen_log_ratio", 0),
          rejected = (float)input_or(g, "rejected_log_ratio", 0), zero = 0, same = -1;
    ares_vapor_completion_args completion = {
        .text = { .n = 1, .log_prob = &same, .ref_log_prob = &same }
    };
    ares_vapor_prompt p = { .n = 1, .completions = &completion };
    if (won && won->type != ARES_JSON_NULL)
        p.chosen = (ares_vapor_text){ 1, 0, 1, &chosen, &zero, NULL, NULL };
    if (lost && lost->type != ARES_JSON_NULL)
        p.rejected = (ares_vapor_text){ 1, 0, 1, &rejected, &zero, NULL, NULL };
    ares_vapor_config cfg = { .beta = golden_number(g, "beta"),
                              .epsilon_low = 0.2,
                              .epsilon_high = 0.2,
                              .log_ratio_clamp = 20,
                              .ratio_reduction = "sum",
                              .failure_ratio = "neutral" };
    ares_vapor_sums s;
    ares_vapor_sums_init(&s);
    golden_in_single(g);
    if (!golden_ok(g, ares_vapor_loss(&cfg, ares_kl_find("k3"), &p, 1, NULL, &s))) return;
    golden_near(g, "log_ratio_diff", p.margin, golden_want(g, "log_ratio_diff"));
    golden_near(g, "term", p.term, golden_want(g, "term"));
}

GOLDEN(vapor, hybrid_ratio)
{
    golden_near(g, "ratio",
                vapor_ratio(golden_number(g, "verifiable_log_ratio") +
                                golden_number(g, "preference_log_term"),
                            20),
                g->expected);
}

GOLDEN(vapor, surrogate)
{
    ares_vapor_term e = ares_vapor_completion(
        golden_number(g, "log_hybrid_ratio"), golden_number(g, "advantage"),
        golden_number(g, "epsilon_low"), golden_number(g, "epsilon_high"), 20);
    golden_near(g, "ratio", e.ratio, golden_want(g, "ratio"));
    golden_near(g, "clipped_ratio", e.clipped, golden_want(g, "clipped_ratio"));
    golden_near(g, "objective", e.objective, golden_want(g, "objective"));
    golden_near(g, "dobjective_dlogratio", e.u, golden_want(g, "dobjective_dlogratio"));
    golden_equal(g, "clipped_low", e.clip_low, golden_want(g, "clipped_low"));
    golden_equal(g, "clipped_high", e.clip_high, golden_want(g, "clipped_high"));
}

/* ---------------------------------------------------------------- configurations */

static void worst(void *ctx, char severity, const char *option, const char *message)
{
    char *seen = ctx;
    (void)option, (void)message;
    if (*seen != 'e') *seen = severity;
}
static void check_severity(golden *g, char severity)
{
    golden_text(g, "verdict",
                ares_view_of(severity == 'e'   ? "error"
                             : severity == 'w' ? "warning"
                                               : "ok"),
                g->expected);
}
/* The section as words under algorithm, through everything that a run's options go through. */
GOLDEN(dapo, validate_config)
{
    static const char *const base[] = { "data.train_files=[train.jsonl]",
                                        "worker.actor.model.model_path=m" };
    ares_train_config c;
    ares_config *cfg = ares_config_new();
    char severity = 'o';
    ares_log_set(ARES_LOG_ERROR, 0);
    memset(&c, 0, sizeof c);
    ares_train_config_declare(cfg, &c);
    ares_config_read_args(cfg, ARES_COUNT(base), base);
    for (int64_t i = 0; i < g->inputs->count; i++) {
        const ares_json_member *m = &g->inputs->members[i];
        ares_str word = { 0 };
        ares_str_addf(&word, "algorithm.%.*s=", (int)m->key.len, m->key.data);
        if (m->value->type == ARES_JSON_STRING)
            ares_str_add(&word, m->value->text.data, m->value->text.len);
        else if (m->value->type == ARES_JSON_BOOL)
            ares_str_add_z(&word, m->value->boolean ? "true" : "false");
        else if (m->value->type == ARES_JSON_NULL) ares_str_add_z(&word, "null");
        else ares_json_write_double(&word, golden_value(m->value));
        ares_config_override(cfg, word.data);
        ares_str_fini(&word);
    }
    ares_config_resolve(cfg);
    (void)ares_train_config_check(cfg, &c, 1);
    if (ares_config_fault_count(cfg)) severity = 'e';
    else ares_loss_check(&c.loss, worst, &severity);
    ares_log_set(ARES_LOG_INFO, 0);
    ares_config_free(cfg);
    check_severity(g, severity);
}

GOLDEN(vapor, validate_config)
{
    static const char *const base[] = { "data.train_files=[train.jsonl]",
                                        "worker.actor.model.model_path=m",
                                        "worker.actor.loss_type=vapor" };
    ares_train_config c;
    ares_config *cfg = ares_config_new();
    char severity = 'o';
    ares_log_set(ARES_LOG_ERROR, 0);
    memset(&c, 0, sizeof c);
    ares_train_config_declare(cfg, &c);
    ares_config_read_args(cfg, ARES_COUNT(base), base);
    for (int64_t i = 0; i < g->inputs->count; i++) {
        const ares_json_member *m = &g->inputs->members[i];
        bool number = ares_view_is(m->key, "num_generations");
        ares_str word = { 0 };
        ares_str_addf(&word, "%s%.*s=", number ? "" : "vapor.", (int)m->key.len, m->key.data);
        ares_json_write(&word, m->value);
        ares_config_override(cfg, word.data);
        ares_str_fini(&word);
    }
    ares_config_resolve(cfg);
    (void)ares_train_config_check(cfg, &c, 1);
    if (ares_config_fault_count(cfg)) severity = 'e';
    else ares_vapor_check(&c.vapor, c.rollout.n, worst, &severity);
    ares_log_set(ARES_LOG_INFO, 0);
    ares_config_free(cfg);
    check_severity(g, severity);
}

/* ---------------- exact KL: logits x through a head that is the identity */

GOLDEN(aepo, kl_full_vocab)
{
    int64_t n;
    const float *p = floats(g, golden_in(g, "logits"), &n),
                *q = floats(g, golden_in(g, "ref_logits"), &n);
    float *eye = zeros(g, n * n), *stats = zeros(g, 8), kl;
    ares_device d;
    if (!golden_ok(g, ares_device_open("cpu", 1, &d))) return;
    int64_t elements = ares_matrix_elements(d.k->layout, n, n);
    ares_matrix w = { zeros(g, elements + 16), ARES_F32, d.k->layout, (int32_t)n, (int32_t)n };
    for (int64_t i = 0; i < n; i++) eye[i * n + i] = 1;
    ares_matrix_pack(&w, eye, ARES_F32);
    int32_t target = 0;
    ares_head_args h = { .rows = 1,
                         .vocab = (int32_t)n,
                         .x = p,
                         .ldx = n,
                         .w = &w,
                         .inv_temperature = 1,
                         .target = &target,
                         .log_prob = stats,
                         .entropy = stats + 1,
                         .lse = stats + 2,
                         .ref_x = q,
                         .ld_ref = n,
                         .ref_w = &w,
                         .kl = &kl,
                         .ref_lse = stats + 3 };
    d.k->head(&d, &h);
    golden_ok(g, d.k->sync(&d));
    golden_in_single(g);
    golden_near(g, "kl", (double)kl, g->expected);
    ares_device_close(&d);
}
