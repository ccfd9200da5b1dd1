/* Columns of one number per token, and what all mini-batches of an update have in common. */
#include <string.h>

#include "ares/algo_twin.h"
#include "roles/update.h"

int update_prepare(update *u)
{
    actor *a = u->actor;
    ares_batch *b = u->batch;
    const ares_train_config *cfg = a->cfg;
    bool kl = ares_kl_acts(&cfg->algorithm) == ARES_KL_IN_LOSS, exact = kl && !a->kl->value;
    bool corrects = strcmp(cfg->loss.rollout_is, "none") != 0;
    size_t n = (size_t)b->tokens + 1;
    float **const wanted[] = { &u->col.weight, &u->col.log_prob,   &u->col.entropy,
                               &u->col.lse,    &u->col.c_log_prob, &u->col.c_entropy };
    float **const of_kl[] = { &u->col.kl, &u->col.ref_lse, &u->col.c_kl };
    for (int i = 0; i < ARES_COUNT(wanted); i++)
        *wanted[i] = ares_arena_calloc(&b->arena, n, sizeof(float));
    for (int i = 0; exact && i < ARES_COUNT(of_kl); i++)
        *of_kl[i] = ares_arena_calloc(&b->arena, n, sizeof(float));
    if (exact && !a->ref)
        return ares_fail(
            ARES_ESTATE,
            "actor: algorithm.kl_penalty = 'full': there is no reference model to compare with");
    if (kl && !exact) ARES_TRY(ARES_NEED(b, "update_actor", ref_log_probs));
    if (kl) u->seen_kl = b->kl ? b->kl : ARES_PUT(b, kl);
    u->passed = ares_arena_calloc(&b->arena, (size_t)b->rows + 1, sizeof *u->passed);
    ares_agg_count(b, 0, b->rows, &u->rollout);
    double totals[2] = { u->rollout.tokens, u->rollout.rows };
    ARES_TRY(ares_world_sum_f64(a->learner.world, totals, 2));
    u->rollout = (ares_agg_counts){ .tokens = totals[0], .rows = totals[1] };
    if (!corrects) return ARES_OK;
    u->col.rollout_weight = ares_arena_calloc(&b->arena, n, sizeof(float));
    return ares_rollout_weights_on(a->learner.model->device, &cfg->loss, b, 0, b->rows,
                                   u->col.rollout_weight, &u->sums);
}
