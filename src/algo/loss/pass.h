/*
 * What the losses of this directory share: where tokens and rows stand, what a token adds to the
 * sums. Not for nvcc.
 */
#ifndef ARES_ALGO_LOSS_PASS_H
#define ARES_ALGO_LOSS_PASS_H

#include "ares/algo.h"
#include "token.h"

/*
 * ARES_OK when every masked token of a loss's input can be computed with; else the first fault, by
 * function, array, row and column. (loss.c)
 */
int loss_check(const ares_loss_args *a, const char *function);
/* Places in messages: "row 3, token 17", counted in the batch where it is known. */
void loss_place(const int64_t *row_start, int64_t row, int64_t end, int64_t first, int64_t t,
                char out[64]);

/* Rows of the arrays: row i owns [loss_row(a, i), loss_row(a, i + 1)). */
static inline int64_t loss_rows(const ares_loss_args *a)
{
    return a->row_start ? a->end - a->row : 1;
}
static inline int64_t loss_row(const ares_loss_args *a, int64_t i)
{
    return a->row_start ? a->row_start[a->row + i] - a->first : i ? a->n : 0;
}

static inline double loss_log_ratio(const ares_loss_args *a, int64_t t)
{
    return (double)a->log_prob[t] - (double)a->old_log_prob[t];
}
static inline double loss_weight(const ares_loss_args *a, int64_t t)
{
    double w = (double)a->weight[t];
    return a->is_weight ? w * (double)a->is_weight[t] : w;
}
static inline double loss_dual(const ares_loss_config *cfg, double otherwise)
{
    return ares_is_null_f64(cfg->clip_ratio_dual) ? otherwise : cfg->clip_ratio_dual;
}

/*
 * A token's share of the sums. ratio: of the token itself; e->ratio is the one its loss looks at;
 * w: its whole weight.
 */
static inline void loss_see(const ares_loss_args *a, double log_ratio, double ratio,
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

/* A token whose loss is of itself alone: sums and gradient. */
static inline void loss_add(const ares_loss_args *a, int64_t t, double log_ratio,
                            const ares_token_term *e)
{
    double w = loss_weight(a, t);
    loss_see(a, log_ratio, e->ratio, e, w);
    a->d_log_prob[t] += (float)(e->gradient * w);
}
#endif
