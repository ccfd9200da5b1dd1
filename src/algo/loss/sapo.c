/*
 * loss_type sapo: soft adaptive policy optimisation (Gao et al., arXiv 2511.20347;
 * docs/update.md#sapo). The clip becomes a gate that falls off smoothly,
 * -A (4 / tau) sigmoid(tau (ratio - 1)), with a tau for each sign of the advantage. Its slope at
 * ratio 1 is that of PPO.
 */
#include "entry.h"

ARES_LOSS_FN ares_token_term sapo_token(const loss_token *x, const loss_settings *s)
{
    double advantage = x->advantage, tau = advantage < 0 ? s->tau_negative : s->tau_positive,
           ratio = ares_loss_exp(ares_loss_bound(x->log_ratio));
    /* The bound changes nothing: 1 / (1 + e^-500) is 1. */
    double gate_at = ares_loss_clamp(tau * (ratio - 1), -500, 500);
    double e_x = ares_loss_exp(gate_at < 0 ? gate_at : -gate_at),
           gate = gate_at < 0 ? e_x / (1 + e_x) : 1 / (1 + e_x),
           slope = e_x / ((1 + e_x) * (1 + e_x));
    ares_token_term e = { -advantage * (4 / tau) * gate, 0, ratio, 0, 0, 0 };
    if (!ares_loss_beyond(x->log_ratio)) e.gradient = -advantage * 4 * slope * ratio;
    return e;
}

LOSS_OF_TOKENS(sapo, .words = "sapo", .doc = "a sigmoid gate of the ratio in place of the clip",
               .formula = "-A (4 / tau) sigmoid(tau (r - 1)), tau by the sign of A",
               .paper = "arXiv 2511.20347",
               .reads = "worker.actor.tau_positive worker.actor.tau_negative")
