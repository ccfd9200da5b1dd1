/*
 * The policy: its log-probs and its update. A mini-batch is global_batch_size prompts, or
 * rows, over all ranks and gives one optimizer step (docs/update.md#mini-batches). max_token_len
 * only bounds memory: the loss divides by counts of the mini-batch, or of runs of micro_batch_size
 * rows.
 */
#include "roles/actor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/algo_control.h"
#include "ares/algo_twin.h"
#include "roles/mini_batches.h"
#include "roles/update.h"

int actor_open(actor *a, const ares_train_config *cfg, ares_model *m, ares_world *world,
               int64_t total_steps)
{
    *a = (actor){ .cfg = cfg };
    a->loss = ares_loss_find(cfg->loss.loss_type);
    a->kl = ares_kl_find(cfg->algorithm.kl_penalty);
    if (!a->loss || !a->kl) return ARES_ECONFIG;
    return learner_open(
        &a->learner, m,
        &(learner_options){ .role = "actor",
                            .world = world,
                            .optim = &cfg->optim,
                            .total_steps = total_steps,
                            .gradient_checkpointing = cfg->actor.gradient_checkpointing });
}

void actor_close(actor *a)
{
    learner_close(&a->learner);
}

bool actor_current(const actor *a, const ares_batch *b, int64_t token)
{
    return b->weight_versions && b->weight_versions[token] == a->learner.optim.updates &&
           a->cfg->rollout.temperature > 0;
}

/* Whether all that the policy wrote in a group is current: prompts are shared within it. */
static bool fresh(const actor *a, const ares_batch *b, int64_t group)
{
    if (a->cfg->actor.recompute_log_probs) return false;
    for (int64_t i = b->row_start[b->group_start[group]];
         i < b->row_start[b->group_start[group + 1]]; i++)
        if (b->response_mask[i] && !actor_current(a, b, i)) return false;
    return true;
}

/* What was not sampled has no log-prob of the rollout: the policy's makes its ratio 1. */
static void fill_rollout_log_probs(ares_batch *b)
{
    for (int64_t i = 0; i < b->tokens && b->weight_versions; i++)
        if (b->weight_versions[i] == ARES_NOT_SAMPLED)
            b->rollout_log_probs[i] = b->old_log_probs[i];
}

int actor_log_probs(actor *a, ares_batch *b)
{
    ARES_TRY(ARES_NEED(b, "old", rollout_log_probs));
    ARES_PUT(b, old_log_probs);
    const learner_scoring scoring = learner_scoring_of(a->cfg);
    memcpy(b->old_log_probs, b->rollout_log_probs, (size_t)b->tokens * sizeof *b->old_log_probs);
    for (int64_t g = 0, end; g < b->groups; g = end + 1) { /* adjacent groups go together */
        for (end = g; end < b->groups && !fresh(a, b, end);) end++;
        int64_t row = b->group_start[g], last = b->group_start[end];
        float *out = b->old_log_probs + b->row_start[row];
        if (row < last) ARES_TRY(learner_log_probs(&a->learner, &scoring, b, row, last, out, NULL));
    }
    fill_rollout_log_probs(b);
    return ARES_OK;
}

static int report(actor *a, update *u, double grad_norm, double lr, ares_metrics *m)
{
    ares_world *world = a->learner.world;
    const ares_batch *b = u->batch;
    ares_loss_sums *s = &u->sums;
    double bounds[2] = { u->max_abs, u->compared }, stopped = u->stopped_micro;
    double passes = u->mini_batches;
    bool kl = ares_kl_acts(&a->cfg->algorithm) == ARES_KL_IN_LOSS;
    bool stops = !ares_is_null_f64(a->cfg->loss.early_stop_imp_ratio);
    ARES_TRY(ares_loss_sums_reduce(s, world));
    ARES_TRY(ares_world_sum_f64(world, &stopped, 1));
    ARES_TRY(ares_world_max_f64(world, bounds, ARES_COUNT(bounds)));
    ares_metrics_set(m, "actor/skipped_updates", u->skipped);
    ares_metrics_set(m, "actor/lr", lr);
    if (bounds[1] > 0) ares_metrics_set(m, "exact/rollout_train_max_abs", bounds[0]);
    a->sums = *s;
    if (stops) {
        if (strcmp(a->cfg->loss.early_stop_scope, "micro") == 0)
            ares_metrics_set(m, "actor/abandoned_microbatches", stopped);
        ares_metrics_set(m, "actor/abandoned_minibatches", u->stopped_mini);
    }
    if (u->empty > 0) ares_metrics_set(m, "actor/empty_minibatches", u->empty);
    if (u->mini_batches == 0) return ARES_OK; /* nothing to take means of */
    ares_metrics_set(m, "actor/pg_loss", s->loss / passes);
    ares_metrics_set(m, "actor/final_loss",
                     ares_loss_total(s, a->cfg->loss.entropy_coeff, b->kl_coef) / passes);
    if (kl) {
        ares_metrics_set(m, "actor/kl_loss", s->kl / passes);
        ares_metrics_set(m, "actor/kl", s->kl_plain / passes);
        ares_metrics_set(m, "actor/kl_coef", b->kl_coef);
    }
    ares_metrics_set(m, "actor/entropy", s->entropy / passes);
    ares_metrics_set(m, "actor/entropy_loss", s->neg_log_prob / passes);
    ares_loss_metrics(s, m);
    ares_metrics_set(m, "actor/grad_norm", grad_norm / passes);
    return ARES_OK;
}

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

/*
 * A mini-batch whose update was left out counts in no metric but exactness. Its KL is kept where it
 * is finite: the weights have not changed.
 */
static void leave_out(update *u, const update *before, int64_t row, int64_t end)
{
    ares_batch *b = u->batch;
    double max_abs = u->max_abs, compared = u->compared;
    *u = *before;
    u->max_abs = max_abs; /* never less than before */
    u->compared = compared;
    u->skipped++;
    for (int64_t i = b->row_start[row]; b->kl && i < b->row_start[end]; i++)
        if (!isfinite(b->kl[i])) b->kl[i] = 0;
}

/* *norm: of the gradient; NaN where the update was left out, on every rank. */
static int mini_batch(update *u, int64_t row, int64_t end, bool *idle, double *norm)
{
    learner *l = &u->actor->learner;
    update before = *u;
    char what[80];
    snprintf(what, sizeof what, "actor: step %lld, optimizer step %lld", (long long)l->step + 1,
             (long long)l->optim.updates + 1);
    int rc = ares_world_agree(l->world, update_mini_batch(u, row, end, idle));
    if (rc == ARES_OK && *idle) return ARES_OK;
    ARES_TRY(learner_step(l, rc, u->actor->cfg->actor.max_grad_norm, what, norm));
    if (isnan(*norm)) leave_out(u, &before, row, end);
    return ARES_OK;
}

int actor_update(actor *a, ares_batch *b, const actor_second *second, ares_metrics *m)
{
    ARES_TRY(ARES_NEED(b, "update_actor", old_log_probs));
    ARES_TRY(ARES_NEED(b, "update_actor", advantages));
    const mini_batch_size size = mini_batch_size_of_actor(a->cfg);
    mini_batches minis;
    double lr = learner_lr(&a->learner), norms = 0, norm = 0;
    update u = { .actor = a, .batch = b, .second = second, .compare = true };
    ares_loss_sums_init(&u.sums);
    ARES_TRY(ares_world_agree(a->learner.world, update_prepare(&u)));
    ARES_TRY(
        ares_world_agree(a->learner.world, mini_batches_cut(&size, b, a->learner.world, &minis)));
    for (u.pass = 0; u.pass < (uint64_t)a->cfg->actor.ppo_epochs; u.pass++)
        for (int64_t k = 0; k < minis.n; k++) {
            int64_t row = minis.start[k], end = minis.start[k + 1];
            bool idle = false;
            ARES_TRY(mini_batch(&u, row, end, &idle, &norm));
            if (idle || isnan(norm)) continue;
            norms += norm;
            u.compare = false; /* from here on the weights are not those of the rollout */
            if (u.seen_kl) ares_kl_see(b, row, end, u.seen_kl, u.passed);
            else ares_kl_see(b, row, end, b->kl, NULL); /* KL in the reward: every row has one */
        }
    a->learner.step++;
    return report(a, &u, norms, lr, m);
}
