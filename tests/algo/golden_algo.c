/* A matrix of a case is rows of samples, columns of response tokens; ours are ragged, so every row has the same length. */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/algo.h"

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

/* The weights of an aggregation over all rows, as one mini-batch. False where the product refuses a batch without a token. */
static bool weights_of(golden *g, const char *mode, const ares_batch *b, double width, float *weight)
{
    ares_agg_counts counts = { 0 };
    ares_agg_count(b, 0, b->rows, &counts);
    counts.max_len = width;
    int rc = ares_agg_weights(mode, b, 0, b->rows, &counts, weight);
    if (rc == ARES_ENUMERIC && counts.tokens == 0) {
        golden_unknown(g); /* the cases say 0; a step without a token is an error here */
        return false;
    }
    return golden_ok(g, rc);
}

static double aggregate(golden *g, const char *mode, const ares_json *values, const ares_json *mask, bool *ok)
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
    double loss = aggregate(g, mode_of(g, "mode"), golden_in(g, "values"), golden_in(g, "mask"), &ok);
    if (ok) golden_near(g, "loss", loss, g->expected);
}
GOLDEN_ALSO(dapo, aggregate_loss, aepo, average_loss)

GOLDEN(aepo, minibatch_loss)
{
    if (strcmp(golden_z(g, "norm"), "global") != 0) {
        golden_unknown(g);
        return;
    }
    bool ok;
    double loss = aggregate(g, "token-mean", golden_in(g, "token_loss"), golden_in(g, "mask"), &ok);
    if (ok) golden_near(g, "loss", loss, g->expected);
}

GOLDEN(agentic, agg_loss)
{
    for (int64_t i = 0; i < g->expected->count; i++) {
        const ares_json_member *m = &g->expected->members[i];
        bool ok;
        double loss = aggregate(g, ares_arena_copy(g->arena, m->key.data, m->key.len), golden_in(g, "loss"),
                                golden_in(g, "mask"), &ok);
        if (ok) golden_near(g, "loss", loss, m->value);
    }
}

/* ---------------------------------------------------------------- KL */

/* Goldens say k1, k2, k3 where the table has the options' words. */
static const ares_kl *kl_of(const char *name)
{
    static const char *const words[][2] = {
        { "k1", "kl" }, { "k2", "mse" }, { "k3", "low_var_kl" }, { "low-var-kl", "low_var_kl" }
    };
    const ares_kl *kl = ares_kl_find(name);
    for (int i = 0; !kl && i < ARES_COUNT(words); i++)
        if (strcmp(name, words[i][0]) == 0) kl = ares_kl_find(words[i][1]);
    return kl;
}

static void check_kl(golden *g, const char *kind, const double *log_prob, const double *ref, int64_t n,
                     const ares_json *value, const ares_json *derivative)
{
    const ares_kl *kl = kl_of(kind);
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
    float *weight = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *weight);
    ares_loss_config cfg = { 0 };
    bool ok = weights_of(g, "token-mean", &b, (double)(n / b.rows), weight);
    golden_in_single(g);
    for (int64_t i = 0; ok && i < g->expected->count; i++) {
        const ares_json_member *m = &g->expected->members[i];
        const ares_kl *kl = kl_of(ares_arena_copy(g->arena, m->key.data, m->key.len));
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
                             .weight = weight,
                             .mask = b.response_mask,
                             .d_log_prob = d,
                             .sums = &sums };
        ok = golden_ok(g, ares_loss_terms(&a, kl, golden_number(g, "coef"), ref, NULL));
        golden_near(g, "kl_mean", sums.kl, ares_json_get(m->value, "kl_mean"));
        golden_numbers(g, "d_log_prob", doubles(g, d, n), n,
                       ares_json_get(m->value, "d_contribution_d_logprob"));
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

static bool loss_open(golden *g, loss_case *c, const char *type, const char *log_prob, const char *old,
                      const char *advantage, const char *mask, const char *low, const char *high,
                      const char *dual)
{
    c->loss = ares_loss_find(type);
    if (!c->loss) {
        golden_unknown(g);
        return false;
    }
    batch_of(g, golden_in(g, mask), &c->b);
    c->log_prob = floats(g, golden_in(g, log_prob), &c->n);
    c->old = floats(g, golden_in(g, old), &c->n);
    c->advantage = floats(g, golden_in(g, advantage), &c->n);
    c->cfg = (ares_loss_config){ .clip_ratio_low = golden_number(g, low),
                                 .clip_ratio_high = golden_number(g, high),
                                 .clip_ratio_dual = golden_number(g, dual) };
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
                         .log_prob = c->log_prob + from,
                         .old_log_prob = c->old + from,
                         .advantage = c->advantage + from,
                         .weight = weight,
                         .mask = mask,
                         .d_log_prob = d_log_prob,
                         .sums = sums };
    return golden_ok(g, c->loss->compute(&a));
}

/* The loss of every token by itself; those that the mask hides are 0 where hide says so. */
static void check_tokens(golden *g, const loss_case *c, bool hide, const ares_json *losses,
                         const ares_json *derivatives)
{
    double *loss = ares_arena_calloc(g->arena, (size_t)c->n + 1, sizeof *loss),
           *derivative = ares_arena_calloc(g->arena, (size_t)c->n + 1, sizeof *derivative);
    for (int64_t i = 0; i < c->n; i++) {
        uint8_t seen = 1;
        float one = 1, d;
        ares_loss_sums sums;
        if (!loss_run(g, c, i, 1, &one, hide ? &c->b.response_mask[i] : &seen, &d, &sums)) return;
        loss[i] = sums.loss;
        derivative[i] = c->b.response_mask[i] ? (double)d : 0;
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

GOLDEN(aepo, policy_loss)
{
    loss_case c;
    ares_loss_sums s;
    if (!loss_open(g, &c, golden_z(g, "type"), "logp", "old", "adv", "mask", "clip_low", "clip_high",
                   "clip_dual"))
        return;
    check_tokens(g, &c, false, golden_want(g, "token_loss"), NULL);
    if (check_loss(g, &c, mode_of(g, "avg"), golden_want(g, "loss"), NULL, &s)) {
        const ares_json *m = golden_want(g, "metrics");
        golden_near(g, "ppo_kl", s.neg_log_ratio / s.tokens, ares_json_get(m, "ppo_kl"));
        golden_near(g, "pg_clipfrac_higher", s.clip_high / s.tokens, ares_json_get(m, "pg_clipfrac_higher"));
        golden_near(g, "pg_clipfrac_lower", s.clip_low / s.tokens, ares_json_get(m, "pg_clipfrac_lower"));
    }
    ares_batch_fini(&c.b);
}

GOLDEN(dapo, policy_loss)
{
    loss_case c;
    ares_loss_sums s;
    if (!loss_open(g, &c, "default", "logprobs", "old_logprobs", "advantages", "mask", "clip_ratio_low",
                   "clip_ratio_high", "clip_ratio_c"))
        return;
    check_tokens(g, &c, true, golden_want(g, "token_losses"), NULL);
    if (check_loss(g, &c, mode_of(g, "loss_agg_func"), golden_want(g, "loss"),
                   golden_want(g, "grad_logprobs"), &s)) {
        const ares_json *m = golden_want(g, "metrics");
        golden_near(g, "ratio", s.ratio / s.tokens, ares_json_get(m, "ratio"));
        golden_near(g, "clip_fraction", s.clip_high / s.tokens, ares_json_get(m, "clip_fraction"));
        golden_near(g, "dual_clip_fraction", s.clip_low / s.tokens, ares_json_get(m, "dual_clip_fraction"));
        golden_near(g, "approx_kl", s.neg_log_ratio / s.tokens, ares_json_get(m, "approx_kl"));
    }
    ares_batch_fini(&c.b);
}

GOLDEN(agentic, ppo_policy_loss)
{
    loss_case c;
    ares_loss_sums s;
    if (!loss_open(g, &c, "default", "log_prob", "old_log_prob", "advantages", "response_mask",
                   "clip_ratio_low", "clip_ratio_high", "clip_ratio_c"))
        return;
    check_tokens(g, &c, false, golden_want(g, "per_token_loss"),
                 golden_want(g, "d_per_token_loss_d_logprob"));
    const ares_json *loss = ares_json_get(g->expected, "loss");
    for (int64_t i = 0; loss && i < loss->count; i++) {
        const char *mode = ares_arena_copy(g->arena, loss->members[i].key.data, loss->members[i].key.len);
        bool token_mean = strcmp(mode, "token-mean") == 0;
        if (!check_loss(g, &c, mode, loss->members[i].value,
                        token_mean ? golden_want(g, "d_token_mean_loss_d_logprob") : NULL, &s))
            break;
        golden_near(g, "pg_clipfrac", s.clip_high / s.tokens, golden_want(g, "pg_clipfrac"));
        golden_near(g, "pg_clipfrac_lower", s.clip_low / s.tokens, golden_want(g, "pg_clipfrac_lower"));
        golden_near(g, "ppo_kl", s.neg_log_ratio / s.tokens, golden_want(g, "ppo_kl"));
    }
    ares_batch_fini(&c.b);
}
