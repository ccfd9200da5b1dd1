/*
 * Group sequence policy optimisation, whose ratio is that of a whole row: gspo and gspo_token,
 * which differ in the gradient.
 */
#include "entry.h"
#include "formula.h"

/*
 * loss_type gspo (docs/update.md#gspo): the gradient flows through the mean of the row. With g_t
 * the derivative of token t's clipped term by the mean and w_t its weight, every token of the row
 * gets d / d log_prob = (sum over the row of w_t g_t) / tokens of the row.
 */

ARES_LOSS_FN void gspo_gather(loss_row *r, const loss_token *x, const loss_settings *s)
{
    (void)s;
    ares_gspo_gather(r, x);
}
ARES_LOSS_FN void gspo_row(loss_row *r, const loss_settings *s)
{
    (void)s;
    ares_gspo_row(r);
}
ARES_LOSS_FN loss_row_token gspo_row_token(const loss_row *r, const loss_token *x,
                                           const loss_settings *s)
{
    return ares_gspo_token(r, x, s);
}

LOSS_OF_ROWS(gspo, LOSS_DERIVATIVE_SPREAD, .words = "gspo",
             .doc = "PPO's clip on the length-normalised ratio of the row",
             .formula = "that of default, with r = exp(mean over the row of log pi - log old)",
             .paper = "arXiv 2507.18071", .clips = ARES_LOSS_CLIPS | ARES_LOSS_CLIPS_DUAL,
             .reads = "worker.actor.clip_ratio_low worker.actor.clip_ratio_high "
                      "worker.actor.clip_ratio_dual")

/*
 * loss_type gspo_token (docs/update.md#gspo): the value of the row's ratio, the gradient of the
 * token's own log-prob.
 */

ARES_LOSS_FN void gspo_token_gather(loss_row *r, const loss_token *x, const loss_settings *s)
{
    (void)s;
    ares_gspo_gather(r, x);
}
ARES_LOSS_FN void gspo_token_row(loss_row *r, const loss_settings *s)
{
    (void)s;
    ares_gspo_row(r);
}
ARES_LOSS_FN loss_row_token gspo_token_row_token(const loss_row *r, const loss_token *x,
                                                 const loss_settings *s)
{
    return ares_gspo_token(r, x, s);
}

LOSS_OF_ROWS(gspo_token, LOSS_DERIVATIVE_OF_TOKEN, .words = "gspo_token",
             .doc = "the row's ratio, the gradient of each token by itself",
             .formula =
                 "that of default, with r = sg(exp(mean over the row of log pi - log old)) pi / "
                 "sg(pi)",
             .paper = "arXiv 2507.18071", .clips = ARES_LOSS_CLIPS | ARES_LOSS_CLIPS_DUAL,
             .reads = "worker.actor.clip_ratio_low worker.actor.clip_ratio_high "
                      "worker.actor.clip_ratio_dual")
