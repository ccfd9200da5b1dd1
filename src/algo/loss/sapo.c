/* loss_type sapo: a smooth gate in place of the clip (aepo.md 6.3). */
#include "sapo.h"

#include "pass.h"

static int sapo(const ares_loss_args *a)
{
    ARES_TRY(loss_check(a, "sapo"));
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        double log_ratio = loss_log_ratio(a, t);
        ares_token_term e = ares_sapo_token(log_ratio, (double)a->advantage[t],
                                            a->cfg->tau_positive, a->cfg->tau_negative);
        loss_add(a, t, log_ratio, &e);
    }
    return ARES_OK;
}

const ares_loss ares_loss_sapo = { "sapo",
                                   "a sigmoid gate of the ratio in place of the clip",
                                   "-A (4 / tau) sigmoid(tau (r - 1)), tau by the sign of A",
                                   "arXiv 2511.20347",
                                   ARES_LOSS_LOCAL,
                                   sapo };
