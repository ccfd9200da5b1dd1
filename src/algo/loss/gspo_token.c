/*
 * loss_type gspo_token (docs/update.md#gspo): the value of the row's ratio, the gradient of the
 * token's own log-prob.
 */
#include "entry.h"
#include "gspo.h"

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
