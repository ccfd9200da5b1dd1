/*
 * loss_type gmpo: the geometric mean of clipped token ratios (verl: geo_mean). A row weighs what
 * its tokens weigh together, 1 / rows with loss_avg_mode seq-mean-token-mean as in the paper. The
 * sampler's weights enter as their geometric mean over the row, as in verl.
 */
#include "gmpo.h"

#include "pass.h"

static int gmpo(const ares_loss_args *a)
{
    ARES_TRY(loss_check(a, "gmpo"));
    for (int64_t r = 0; r < loss_rows(a); r++) {
        int64_t from = loss_row(a, r), to = loss_row(a, r + 1);
        double sum = 0, n = 0, advantage = 0, w = 0, log_is = 0;
        for (int64_t t = from; t < to; t++) {
            if (!a->mask[t]) continue;
            sum += ares_gmpo_token(loss_log_ratio(a, t), (double)a->advantage[t],
                                   a->cfg->clip_ratio_low, a->cfg->clip_ratio_high)
                       .log_ratio;
            advantage += (double)a->advantage[t];
            w += (double)a->weight[t];
            if (a->is_weight) log_is += ares_loss_log((double)a->is_weight[t] + 1e-10);
            n++;
        }
        if (n == 0) continue;
        ares_token_term row = ares_gmpo_row(sum / n, advantage / n);
        if (a->is_weight) w *= ares_loss_exp(log_is / n);
        for (int64_t t = from; t < to; t++) {
            if (!a->mask[t]) continue;
            double log_ratio = loss_log_ratio(a, t);
            ares_gmpo_term token = ares_gmpo_token(log_ratio, (double)a->advantage[t],
                                                   a->cfg->clip_ratio_low, a->cfg->clip_ratio_high);
            ares_token_term e = { row.loss, 0, row.ratio, token.clip_high, token.clip_low };
            loss_see(a, log_ratio, ares_loss_exp(ares_loss_bound(log_ratio)), &e, w / n);
            if (token.passes) a->d_log_prob[t] += (float)(w * row.gradient / n);
        }
    }
    return ARES_OK;
}

const ares_loss ares_loss_gmpo = { "gmpo",
                                   "the geometric mean of token ratios clipped in log space",
                                   "-mean(A) exp(mean over the row of sign(A) min(sign(A) log r, "
                                   "sign(A) clip(log r, -low, high)))",
                                   "arXiv 2507.20673",
                                   ARES_LOSS_ROWS,
                                   gmpo };
