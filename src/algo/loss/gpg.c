/*
 * loss_type gpg: group policy gradient (Chu et al., arXiv 2504.02546, equation 5;
 * docs/update.md#gpg): REINFORCE without a ratio, so that nothing is clipped.
 */
#include "entry.h"

ARES_LOSS_FN ares_token_term gpg_token(const loss_token *x, const loss_settings *s)
{
    ares_token_term e = { 0, 0, ares_loss_exp(ares_loss_bound(x->log_ratio)), 0, 0, 0 };
    (void)s;
    e.gradient = -x->advantage;
    e.loss = e.gradient * x->log_prob;
    return e;
}

LOSS_OF_TOKENS(gpg, .words = "gpg", .doc = "REINFORCE: no ratio, and no clip",
               .formula = "-A log pi", .paper = "arXiv 2504.02546")
