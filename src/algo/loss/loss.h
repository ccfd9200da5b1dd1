/*
 * Private to algo: what the files of losses share. Walks over tokens and rows, names with
 * aliases, functions without a device, and the choice of tokens by covariance.
 */
#ifndef ARES_ALGO_LOSS_LOSS_H
#define ARES_ALGO_LOSS_LOSS_H

#include <stdbool.h>

#include "ares/algo_loss.h"
#include "formula.h"

/*
 * How a loss goes over its tokens and rows in C, and what a token adds to the sums. A
 * card's walks are in cuda/loss.cu.
 */

#define LOSS_DECLARE(name) extern const ares_loss ares_loss_##name;
LOSS_LIST(LOSS_DECLARE)

/*
 * ARES_OK when every masked token of a loss's input can be computed with; else the first fault, by
 * function, array, row and column. (loss.c)
 */
int loss_check(const ares_loss_args *a, const char *function);
/* The failure of a loss that the tokens of a batch do not suffice for. (loss.c) */
int loss_without_pairs(const ares_loss_args *a, const ares_loss *loss);

/* Rows of the arrays: row i owns [loss_row_start(a, i), loss_row_start(a, i + 1)). */
static inline int64_t loss_rows(const ares_loss_args *a)
{
    return a->row_start ? a->end - a->row : 1;
}
static inline int64_t loss_row_start(const ares_loss_args *a, int64_t i)
{
    return a->row_start ? a->row_start[a->row + i] - a->first : i ? a->n : 0;
}

static inline double loss_log_ratio(const ares_loss_args *a, int64_t t)
{
    return (double)a->log_prob[t] - (double)a->old_log_prob[t];
}
static inline loss_token loss_token_at(const ares_loss_args *a, int64_t t)
{
    return (loss_token){ .log_prob = (double)a->log_prob[t],
                         .log_ratio = loss_log_ratio(a, t),
                         .advantage = (double)a->advantage[t],
                         .weight = (double)a->weight[t],
                         .correction = a->rollout_weight ? (double)a->rollout_weight[t] : 1 };
}

/*
 * A token's share of the sums. ratio: of the token itself; e->ratio is the one its loss looks at;
 * w: its whole weight.
 */
static inline void loss_count_token(const ares_loss_args *a, double log_ratio, double ratio,
                                    const ares_token_term *e, double w)
{
    ares_loss_sums *s = a->sums;
    double x = ares_loss_bound(log_ratio);
    int bin = (int)((x + 2) * 16);
    s->loss += e->loss * w;
    s->tokens += 1;
    s->clip_high += e->clip_high;
    s->clip_low += e->clip_low;
    s->neg_log_ratio -= x;
    s->k2 += 0.5 * x * x;
    s->k3 += ratio - 1 - x;
    s->ratio += e->ratio;
    s->ratio_clipped +=
        ares_loss_clamp(e->ratio, 1 - a->cfg->clip_ratio_low, 1 + a->cfg->clip_ratio_high);
    s->ratio_off += e->ratio < 1 ? 1 - e->ratio : e->ratio - 1;
    s->loss_abs += e->loss < 0 ? -e->loss : e->loss;
    s->saturated += ares_loss_beyond(log_ratio);
    s->ratio_min = e->ratio < s->ratio_min ? e->ratio : s->ratio_min;
    s->ratio_max = e->ratio > s->ratio_max ? e->ratio : s->ratio_max;
    s->bins[x < -2 ? 0 : bin >= ARES_LOSS_BINS ? ARES_LOSS_BINS - 1 : bin] += 1;
}

/* What is logged of a token. */
static inline void loss_log_token(const ares_loss_args *a, int64_t t, double ratio, int clipped)
{
    if (!a->ratio) return;
    a->ratio[t] = (float)ratio;
    a->clipped[t] = (uint8_t)clipped;
}

/* The formulas are constants where the walks are inlined: no token costs a call. */
#define LOSS_WALK static inline __attribute__((always_inline))
typedef ares_token_term loss_token_fn(const loss_token *x, const loss_settings *s);

LOSS_WALK void loss_tokens(const ares_loss_args *a, const ares_loss *loss, loss_token_fn *formula,
                           const uint8_t *chosen)
{
    const loss_settings s = loss_settings_of(a, loss);
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        loss_token x = loss_token_at(a, t);
        if (chosen) x.chosen = chosen[t];
        ares_token_term e = formula(&x, &s);
        double w = x.weight * x.correction;
        loss_count_token(a, x.log_ratio, e.ratio, &e, w);
        loss_log_token(a, t, e.ratio, e.clipped);
        a->d_log_prob[t] += (float)(e.gradient * w);
    }
}

/* What must hold between the options of rollout correction (correction.c). */
void loss_check_correction(const ares_loss_config *c, ares_algo_complain *complain, void *ctx);
/*
 * Weights of rollout_is: weight, written, one per token of rows [row, end), from row_start[row] on;
 * 1 with rollout_is none, 0 where the mask is 0. cut, which may be NULL, is increased by the number
 * of weights that the thresholds have changed.
 */
int correction_weights(const ares_loss_config *cfg, const ares_batch *b, int64_t row, int64_t end,
                       float *weight, int64_t *cut);
LOSS_WALK int loss_over_tokens(const ares_loss_args *a, const ares_loss *loss,
                               loss_token_fn *formula)
{
    ARES_TRY(loss_check(a, loss->name));
    loss_tokens(a, loss, formula, NULL);
    return ARES_OK;
}

/* The choice has checked the input. */
LOSS_WALK int loss_over_chosen(const ares_loss_args *a, const ares_loss *loss,
                               loss_token_fn *formula)
{
    ARES_ASSERT(a->chosen);
    loss_tokens(a, loss, formula, a->chosen);
    return ARES_OK;
}

typedef void loss_gather_fn(loss_row *r, const loss_token *x, const loss_settings *s);
typedef void loss_row_fn(loss_row *r, const loss_settings *s);
typedef loss_row_token loss_row_token_fn(const loss_row *r, const loss_token *x,
                                         const loss_settings *s);

LOSS_WALK int loss_over_rows(const ares_loss_args *a, const ares_loss *loss, int share,
                             loss_gather_fn *gather, loss_row_fn *of_row,
                             loss_row_token_fn *of_token)
{
    bool spread = share == LOSS_DERIVATIVE_SPREAD;
    ARES_TRY(loss_check(a, loss->name));
    const loss_settings s = loss_settings_of(a, loss);
    for (int64_t i = 0; i < loss_rows(a); i++) {
        int64_t from = loss_row_start(a, i), to = loss_row_start(a, i + 1);
        loss_row r = { 0 };
        double sum = 0;
        for (int64_t t = from; t < to; t++) {
            if (!a->mask[t]) continue;
            loss_token x = loss_token_at(a, t);
            gather(&r, &x, &s);
            r.tokens++;
        }
        if (r.tokens == 0) continue;
        of_row(&r, &s);
        for (int64_t t = from; t < to; t++) {
            if (!a->mask[t]) continue;
            loss_token x = loss_token_at(a, t);
            loss_row_token e = of_token(&r, &x, &s);
            loss_count_token(a, x.log_ratio, ares_loss_exp(ares_loss_bound(x.log_ratio)), &e.term,
                             e.weight);
            loss_log_token(a, t, e.ratio, e.term.clipped);
            sum += e.derivative;
            if (!spread) a->d_log_prob[t] += (float)e.derivative;
        }
        for (int64_t t = from; spread && t < to; t++)
            if (a->mask[t]) a->d_log_prob[t] += (float)(sum / r.tokens);
    }
    return ARES_OK;
}

/* Choices of an option with their aliases, "name=alias=alias", as the configuration reads them. */

/* Whether name is the name or an alias among these words. (loss.c) */
bool choice_has(const char *words, const char *name);

/*
 * What no other room calls: the losses without a device (a training step calls those of
 * ares/algo_loss.h, which fall back to these), and the lists that documentation and tests read.
 */

const ares_loss *const *loss_list(int *n); /* (loss.c) */
/* A way of averaging (loss_avg_mode). */
typedef struct agg_mode {
    const char *name, *doc, *formula, *paper;
    double (*weight)(const ares_agg_counts *c, double n); /* of a token in a row of n */
} agg_mode;
const agg_mode *agg_list(int *n); /* (loss.c) */

/*
 * The KL (k NULL: none) and entropy terms of a loss over the same arrays: + coef x weight x kl and
 * - entropy_coeff x entropy. (loss.c)
 */
int loss_terms(const ares_loss_args *a, const ares_kl_args *k);
/* The critic's loss (loss.c; docs/update.md#critic). */
int value_loss(const ares_value_args *a);

/*
 * The two losses of cov.c (Cui et al., "The entropy mechanism of reinforcement learning", arXiv
 * 2505.22617, equations 11 to 13, and verl's clip_cov and kl_cov). Both look for the tokens whose
 * share of the covariance of log-prob and advantage is large:
 *
 *   cov_t = (A_t - mean A)(log pi_t - mean log pi)
 *
 * with means over the masked tokens of the mini-batch and no gradient through them. verl takes
 * means, shares and selections of a micro-batch; here they are of the mini-batch over all ranks, so
 * that no micro-batch size changes them, and each token has a random number of its own for
 * clip_cov.
 */

/*
 * ares_loss.choose: chosen [n], zeroed, becomes 1 on the tokens that the loss singles out; *any:
 * whether any rank has a token. Checks its input; a collective. (cov.c)
 */
int loss_choose_clip_cov(const ares_loss_args *a, uint8_t *chosen, bool *any);
int loss_choose_kl_cov(const ares_loss_args *a, uint8_t *chosen, bool *any);

/*
 * The k smallest of keys that lie on several ranks, as a threshold: a radix search on counts, a
 * byte at a time. (cov.c)
 */

/*
 * key [n] of this rank; k >= 1. *threshold: the k-th smallest over all ranks, or UINT64_MAX where
 * there are no more than k keys. A collective.
 */
int loss_select(const uint64_t *key, int64_t n, int64_t k, ares_world *w, uint64_t *threshold);
/* Orders as the doubles do, -0 as 0. */
uint64_t loss_ordered(double x);
#endif
