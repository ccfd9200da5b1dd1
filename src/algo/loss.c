/*
 * The table of policy losses, and what every one of them may carry. To add one: a file in loss/ and
 * a word here.
 */
#include "ares/algo.h"

#include <math.h>
#include <stdio.h>

#include "find_name.h"
#include "loss/pass.h"

/* clang-format off */
#define LOSS_LIST(X) \
    X(default) X(dapo) X(gspo) X(gspo_token) X(cispo) X(gmpo) X(sapo) X(clip_cov) X(kl_cov) \
    X(vapor)
/* clang-format on */

#define DECLARE(name) extern const ares_loss ares_loss_##name;
#define ENTRY(name) &ares_loss_##name,
LOSS_LIST(DECLARE)
static const ares_loss *const table[] = { LOSS_LIST(ENTRY) };
/* In the order of the list; other trainers' words behind '='. */
static const char *const words[] = {
    "default=ppo=vanilla", "dapo=actor", "gspo",     "gspo_token", "cispo",
    "gmpo=geo_mean",       "sapo",       "clip_cov", "kl_cov",     "vapor"
};

const char *const *ares_loss_names(int *n)
{
    *n = ARES_COUNT(words);
    return words;
}

const ares_loss *const *ares_loss_list(int *n)
{
    *n = ARES_COUNT(table);
    return table;
}

const ares_loss *ares_loss_find(const char *name)
{
    int i;
    return algo_find("config: worker.actor.loss_type", name, words, ARES_COUNT(words), &i) ==
                   ARES_OK
               ? table[i]
               : NULL;
}

void loss_place(const int64_t *row_start, int64_t row, int64_t end, int64_t first, int64_t t,
                char out[64])
{
    int64_t r = row;
    if (!row_start) {
        snprintf(out, 64, "token %lld", (long long)t);
        return;
    }
    while (r + 1 < end && row_start[r + 1] <= first + t) r++;
    snprintf(out, 64, "row %lld, token %lld", (long long)r, (long long)(first + t - row_start[r]));
}

int loss_check(const ares_loss_args *a, const char *function)
{
    const struct {
        const char *name;
        const float *x;
    } arrays[] = {
        { "log_prob", a->log_prob },        { "old_log_prob", a->old_log_prob },
        { "advantage", a->advantage },      { "weight", a->weight },
        { "rollout weight", a->is_weight },
    };
    char place[64];
    for (int64_t t = 0; t < a->n; t++) {
        if (a->mask[t] == 0) continue;
        if (a->mask[t] != 1) {
            loss_place(a->row_start, a->row, a->end, a->first, t, place);
            return ares_fail(ARES_ENUMERIC, "loss: %s: mask of %s is %d: must be 0 or 1", function,
                             place, a->mask[t]);
        }
        for (int i = 0; i < ARES_COUNT(arrays); i++) {
            if (!arrays[i].x || isfinite(arrays[i].x[t])) continue;
            loss_place(a->row_start, a->row, a->end, a->first, t, place);
            return ares_fail(ARES_ENUMERIC,
                             "loss: %s: %s of %s is %g: must be finite where the mask is 1",
                             function, arrays[i].name, place, (double)arrays[i].x[t]);
        }
    }
    return ARES_OK;
}

/* The row of the batch that token t of the arrays belongs to, from the row of the token before. */
static int64_t row_of(const ares_loss_args *a, int64_t row, int64_t t)
{
    while (row + 1 < a->end && a->row_start[row + 1] <= a->first + t) row++;
    return row;
}

static int kl_term(const ares_loss_args *a, const ares_kl_args *k, int64_t t)
{
    double w = (double)a->weight[t], scale = k->weight ? (double)k->weight[t] : 1, value, x = 0;
    if (k->kl->value) {
        x = (double)a->log_prob[t] - (double)k->ref_log_prob[t];
        value = k->kl->value(x);
    } else {
        value = (double)k->full[t];
    }
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
    a->sums->kl_plain += w * value;
    a->sums->kl_tokens += 1;
    a->sums->kl_clamped += k->kl->clamped && k->kl->clamped(x);
    if (k->out) k->out[t] = (float)value;
    if (k->kl->value) a->d_log_prob[t] += (float)(w * k->coef * scale * k->kl->derivative(x));
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
    if (!a->samples || !a->row_start || isnan(a->samples[row].accuracy)) return ARES_OK;
    bool right = a->samples[row].accuracy > 0.5f;
    *(right ? &a->sums->entropy_right : &a->sums->entropy_wrong) += entropy;
    *(right ? &a->sums->tokens_right : &a->sums->tokens_wrong) += 1;
    return ARES_OK;
}

int ares_loss_terms(const ares_loss_args *a, const ares_kl_args *k)
{
    double entropy_coeff = a->cfg->entropy_coeff;
    bool kl = k && (k->kl->value ? k->ref_log_prob != NULL : k->full != NULL);
    int64_t row = a->row;
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        if (a->row_start) row = row_of(a, row, t);
        a->sums->neg_log_prob -= (double)a->weight[t] * (double)a->log_prob[t];
        if (kl) ARES_TRY(kl_term(a, k, t));
        if (a->entropy) ARES_TRY(entropy_term(a, t, row));
        if (entropy_coeff != 0 && a->d_entropy)
            a->d_entropy[t] -= (float)((double)a->weight[t] * entropy_coeff);
    }
    return ARES_OK;
}

bool ares_early_stop(const double *ratio, int ranks, double threshold, double *average)
{
    double sum = 0;
    for (int i = 0; i < ranks; i++) sum += ratio[i];
    if (average) *average = sum / ranks;
    return !ares_is_null_f64(threshold) && !(sum / ranks <= threshold);
}

void ares_ratio_sum(const ares_loss_args *a, double *sum, double *count)
{
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        *sum += ares_loss_exp(ares_loss_bound(loss_log_ratio(a, t)));
        *count += 1;
    }
}
