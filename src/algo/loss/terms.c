/* The KL and entropy terms that every loss may carry. */
#include <math.h>

#include "plain.h"
#include "walk.h"

/* The row of the batch that token t of the arrays belongs to, from the row of the token before. */
static int64_t row_of(const ares_loss_args *a, int64_t row, int64_t t)
{
    while (row + 1 < a->end && a->row_start[row + 1] <= a->first + t) row++;
    return row;
}

static int kl_term(const ares_loss_args *a, const ares_kl_args *k, int64_t t)
{
    double w = (double)a->weight[t], scale = k->weight ? (double)k->weight[t] : 1, slope = 0, value;
    bool clamped = false;
    if (k->kl->value)
        value = k->kl->both((double)a->log_prob[t] - (double)k->ref_log_prob[t], &slope, &clamped);
    else value = (double)k->full[t];
    if (!isfinite(value) || !isfinite(scale)) {
        char place[64];
        loss_place(a->row_start, a->row, a->end, a->first, t, place);
        return ares_fail(ARES_ENUMERIC,
                         "loss: kl: %s has KL %g and weight %g (log_prob %g, ref_log_prob %g): "
                         "must be finite where the mask is 1",
                         place, value, scale, (double)a->log_prob[t],
                         k->ref_log_prob ? (double)k->ref_log_prob[t] : 0.0);
    }
    a->sums->kl += w * scale * value;
    a->sums->kl_plain += value;
    a->sums->kl_tokens += 1;
    a->sums->kl_clamped += clamped;
    if (k->out) k->out[t] = (float)value;
    if (k->kl->value) a->d_log_prob[t] += (float)(w * k->coef * scale * slope);
    else if (k->d_full) k->d_full[t] += (float)(w * k->coef * scale);
    return ARES_OK;
}

static int entropy_term(const ares_loss_args *a, int64_t t, int64_t row)
{
    double w = (double)a->weight[t], entropy = (double)a->entropy[t];
    if (!isfinite(entropy)) {
        char place[64];
        loss_place(a->row_start, a->row, a->end, a->first, t, place);
        return ares_fail(ARES_ENUMERIC,
                         "loss: entropy of %s is %g: must be finite where the mask is 1", place,
                         entropy);
    }
    a->sums->entropy += w * entropy;
    a->sums->entropy_plain += entropy;
    a->sums->entropy_tokens += 1;
    if (!a->samples || !a->row_start || isnan(a->samples[row].accuracy)) return ARES_OK;
    bool right = a->samples[row].accuracy > 0.5f;
    *(right ? &a->sums->entropy_right : &a->sums->entropy_wrong) += entropy;
    *(right ? &a->sums->tokens_right : &a->sums->tokens_wrong) += 1;
    return ARES_OK;
}

int loss_terms(const ares_loss_args *a, const ares_kl_args *k)
{
    double entropy_coeff = a->cfg->entropy_coeff;
    bool kl = k && (k->kl->value ? k->ref_log_prob != NULL : k->full != NULL);
    int64_t row = a->row;
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        if (a->row_start) row = row_of(a, row, t);
        if (kl) ARES_TRY(kl_term(a, k, t));
        if (a->entropy) ARES_TRY(entropy_term(a, t, row));
        if (entropy_coeff != 0 && a->d_entropy)
            a->d_entropy[t] -= (float)((double)a->weight[t] * entropy_coeff);
    }
    return ARES_OK;
}
