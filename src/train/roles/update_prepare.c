/* Columns of one number per token, and what all mini-batches of an update have in common. */
#include <string.h>

#include "ares/algo_twin.h"
#include "roles/update.h"

/* Those of the batch, those that the step's options call for, and room for what is computed. */
static void host_columns(update *u, bool kl, bool exact)
{
    const actor *a = u->actor;
    ares_batch *b = u->batch;
    update_columns *c = &u->host;
    size_t n = (size_t)b->tokens + 1;
    float **const wanted[] = { &c->weight, &c->log_prob,   &c->entropy,
                               &c->lse,    &c->c_log_prob, &c->c_entropy };
    float **const of_kl[] = { &c->kl, &c->ref_lse, &c->c_kl };
    *c = (update_columns){ .old_log_prob = b->old_log_probs,
                           .advantage = b->advantages,
                           .ref_log_prob = b->ref_log_probs,
                           .kl_weight = b->kl_weight,
                           .mask = b->response_mask };
    for (int i = 0; i < ARES_COUNT(wanted); i++)
        *wanted[i] = ares_arena_calloc(&b->arena, n, sizeof(float));
    for (int i = 0; exact && i < ARES_COUNT(of_kl); i++)
        *of_kl[i] = ares_arena_calloc(&b->arena, n, sizeof(float));
    if (kl) c->seen_kl = b->kl ? b->kl : ARES_PUT(b, kl);
    if (a->loss->choose) c->chosen = ares_arena_calloc(&b->arena, n, 1);
    if (strcmp(a->cfg->loss.rollout_is, "none") != 0)
        c->rollout_weight = ares_arena_calloc(&b->arena, n, sizeof(float));
}

int update_prepare(update *u)
{
    actor *a = u->actor;
    ares_batch *b = u->batch;
    const ares_train_config *cfg = a->cfg;
    bool kl = ares_kl_acts(&cfg->algorithm) == ARES_KL_IN_LOSS, exact = kl && !a->kl->value;
    if (exact && !a->ref)
        return ares_fail(
            ARES_ESTATE,
            "actor: algorithm.kl_penalty = 'full': there is no reference model to compare with");
    if (kl && !exact) ARES_TRY(ARES_NEED(b, "update_actor", ref_log_probs));
    host_columns(u, kl, exact);
    u->passed = ares_arena_calloc(&b->arena, (size_t)b->rows + 1, sizeof *u->passed);
    ares_agg_count(b, 0, b->rows, &u->rollout);
    double totals[2] = { u->rollout.tokens, u->rollout.rows };
    ARES_TRY(ares_world_sum_f64(a->learner.world, totals, 2));
    u->rollout = (ares_agg_counts){ .tokens = totals[0], .rows = totals[1] };
    if (u->host.rollout_weight)
        ARES_TRY(ares_rollout_weights_on(a->learner.model->device, &cfg->loss, b, 0, b->rows,
                                         u->host.rollout_weight, &u->sums));
    return update_card_open(u);
}
