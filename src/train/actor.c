/*
 * The policy: its log-probs and its update; then the reference that it is compared with. A
 * mini-batch is global_batch_size prompts, or rows, over all ranks and gives one optimizer step
 * (docs/update.md#mini-batches). max_token_len only bounds memory: the loss divides by counts of
 * the mini-batch, or of runs of micro_batch_size rows.
 */
#include "trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/algo_control.h"

int actor_open(actor *a, const ares_train_config *cfg, ares_model *m, ares_adapter *adapter,
               ares_features *features, ares_world *world, int64_t total_steps)
{
    *a = (actor){ .cfg = cfg };
    a->loss = ares_loss_find(cfg->loss.loss_type);
    a->kl = ares_kl_find(cfg->algorithm.kl_penalty);
    if (!a->loss || !a->kl) return ARES_ECONFIG;
    /* a loss of pairs has a ratio to the reference, of whole answers and their pairs */
    a->logs = cfg->trainer.rollout_log && strcmp(cfg->trainer.rollout_log, "tokens") == 0 &&
              !(a->loss->flags & ARES_LOSS_PAIRS);
    return learner_open(
        &a->learner, m,
        &(learner_options){ .role = "actor",
                            .world = world,
                            .adapter = adapter,
                            .features = features,
                            .optim = &cfg->optim,
                            .total_steps = total_steps,
                            .gradient_checkpointing = cfg->actor.gradient_checkpointing,
                            .skip_zero = cfg->actor.skip_zero_gradients,
                            .round_tokens = cfg->actor.round_tokens });
}

void actor_close(actor *a)
{
    learner_close(&a->learner);
}

/*
 * Whether the rollout's log-probs are the old ones, for all that is trained on of a group (prompts
 * are shared within it): each token was sampled under these weights, or stored ones may stand.
 */
static bool has_old_log_probs(const actor *a, const ares_batch *b, int64_t group)
{
    bool stored = strcmp(a->cfg->oversampling.old_log_probs, "stored") == 0 &&
                  a->cfg->rollout.temperature > 0;
    if (a->cfg->actor.recompute_log_probs) return false;
    for (int64_t i = b->row_start[b->group_start[group]];
         i < b->row_start[b->group_start[group + 1]]; i++)
        if (b->response_mask[i] && !actor_current(a, b, i) &&
            !(stored && b->weight_versions && b->weight_versions[i] != ARES_NOT_SAMPLED))
            return false;
    return true;
}

int actor_log_probs(actor *a, ares_batch *b)
{
    ARES_TRY(ARES_NEED(b, "old", rollout_log_probs));
    ARES_PUT(b, old_log_probs);
    const learner_scoring scoring = learner_scoring_of(a->cfg);
    memcpy(b->old_log_probs, b->rollout_log_probs, (size_t)b->tokens * sizeof *b->old_log_probs);
    learner_rows *runs = ares_arena_alloc(&b->arena, (size_t)(b->groups + 1) * sizeof *runs);
    int64_t n = 0;
    for (int64_t g = 0, end; g < b->groups; g = end + 1) { /* adjacent groups go together */
        for (end = g; end < b->groups && !has_old_log_probs(a, b, end);) end++;
        if (end > g) runs[n++] = (learner_rows){ b->group_start[g], b->group_start[end] };
    }
    int64_t most = n;
    if (ares_params_by_region(&a->learner.model->params)) /* all ranks bring the weights, or none */
        ARES_TRY(ares_world_max_i64(a->learner.world, &most, 1));
    if (most) ARES_TRY(learner_log_probs_of(&a->learner, &scoring, b, runs, n, b->old_log_probs));
    /* what was not sampled has no log-prob of the rollout: the policy's makes its ratio 1 */
    for (int64_t i = 0; i < b->tokens && b->weight_versions; i++)
        if (b->weight_versions[i] == ARES_NOT_SAMPLED)
            b->rollout_log_probs[i] = b->old_log_probs[i];
    return ARES_OK;
}

int actor_sum_pi_squared(actor *a, ares_batch *b)
{
    learner_scoring scoring = learner_scoring_of(a->cfg);
    const learner_rows all = { 0, b->rows };
    scoring.temperature /= 2;
    ARES_TRY(ARES_NEED(b, "sum_pi_squared", old_log_probs));
    ARES_PUT(b, sum_pi_squared);
    ARES_TRY(learner_log_probs_of(&a->learner, &scoring, b, &all, 1, b->sum_pi_squared));
    for (int64_t i = 0; i < b->tokens; i++) {
        if (!b->response_mask[i]) continue;
        double once = (double)b->old_log_probs[i], twice = (double)b->sum_pi_squared[i];
        /* rounding may leave the range that a sum of squares has: its own square to 1 */
        b->sum_pi_squared[i] = (float)ares_f64_exp(fmin(0, fmax(2 * once - twice, 2 * once)));
    }
    return ARES_OK;
}

/*
 * Over all ranks: how many tokens were compared with the rollout, and the first that differs.
 * max_abs: already of all ranks. order: of u->batch in the step's batch; NULL: its own
 */
static int count_exact(actor *a, const update *u, const int64_t *order, double max_abs)
{
    ares_world *world = a->learner.world;
    a->exact = (exactness){ .max_abs = max_abs };
    update_count_compared(u, &a->exact);
    ARES_TRY(ares_world_sum_i64(world, &a->exact.compared, 1));
    ARES_TRY(ares_world_sum_i64(world, a->exact.not_compared, EXACT_REASONS));
    if (max_abs == 0) return ARES_OK;
    int64_t row = u->differs && order ? order[u->differs_row] : u->differs_row, before = 0,
            mine[] = { u->batch->rows, u->differs, row, u->differs_token };
    ares_str all = { 0 };
    int rc = ares_world_gather_all(world, mine, sizeof mine, &all, NULL);
    for (size_t at = 0; rc == ARES_OK && at < all.len && !a->exact.row; at += sizeof mine) {
        memcpy(mine, all.data + at, sizeof mine); /* a file of rollouts has the ranks in order */
        if (mine[1]) a->exact.row = before + mine[2] + 1, a->exact.token = mine[3];
        before += mine[0];
    }
    ares_str_fini(&all);
    return rc;
}

/* Metrics of an update over all ranks. grad_norm: sum of the norms of its mini-batches */
static int report(actor *a, update *u, const int64_t *order, double grad_norm, ares_metrics *m)
{
    ares_world *world = a->learner.world;
    const ares_batch *b = u->batch;
    ares_loss_sums *s = &u->sums;
    /* largest difference of rollout and training, and whether there was a token to compare */
    double bounds[3] = { u->max_abs, u->compared }, stopped = u->stopped_micro;
    double passes = u->mini_batches, distilled = u->distilled;
    bool pairs = a->loss->flags & ARES_LOSS_PAIRS; /* such a loss has a KL of its own */
    bool kl = pairs || u->host.seen_kl;
    bool stops = !ares_is_null_f64(a->cfg->loss.early_stop_imp_ratio);
    for (int64_t i = 0; i < b->tokens && b->ratio && bounds[2] == 0; i++)
        bounds[2] = b->ratio[i] != 0 && b->ratio[i] != 1;
    ARES_TRY(ares_loss_sums_reduce(s, world));
    ARES_TRY(ares_vapor_sums_reduce(&u->pairs, world));
    ARES_TRY(ares_world_sum_f64(world, &stopped, 1));
    ARES_TRY(ares_world_sum_f64(world, &distilled, 1));
    ARES_TRY(ares_world_max_f64(world, bounds, ARES_COUNT(bounds)));
    if (a->learner.adapter) ares_metrics_set(m, "actor/adapter_norm", u->adapter_norm);
    ares_metrics_set(m, "actor/skipped_updates", u->skipped);
    ares_metrics_set(m, "actor/lr", u->lr);
    if (bounds[1] > 0) ares_metrics_set(m, "exact/rollout_train_max_abs", bounds[0]);
    ARES_TRY(count_exact(a, u, order, bounds[0]));
    ares_metrics_set(m, "exact/tokens_compared", (double)a->exact.compared);
    ARES_TRY(learner_report_backward(&a->learner, m));
    ARES_TRY(learner_report_routing(&a->learner, m));
    if (a->teacher) {
        ARES_TRY(ares_distill_metrics(&u->seen, b, world, m));
        double rows[2] = { 0, 0 }; /* that count; and those of stored answers */
        for (int64_t r = 0; r < b->rows; r++) {
            rows[0] += ares_batch_row_counts(b, r);
            rows[1] += b->samples[r].stored;
        }
        ARES_TRY(ares_world_sum_f64(world, rows, 2));
        if (rows[0] > 0) ares_metrics_set(m, "distillation/stored_frac", rows[1] / rows[0]);
        ares_metrics_set(m, "distillation/coef",
                         a->cfg->distillation.use_task_rewards ? a->cfg->distillation.coef : 1);
    }
    int64_t tokens[] = { u->trained, u->active };
    ARES_TRY(ares_world_sum_i64(world, tokens, ARES_COUNT(tokens)));
    if (tokens[0]) ares_metrics_set(m, "update/active_frac", (double)tokens[1] / (double)tokens[0]);
    a->sums = *s;
    a->ratios = bounds[2] > 0;
    if (stops) {
        if (strcmp(a->cfg->loss.early_stop_scope, "micro") == 0)
            ares_metrics_set(m, "actor/abandoned_microbatches", stopped);
        ares_metrics_set(m, "actor/abandoned_minibatches", u->stopped_mini);
    }
    if (u->empty > 0) ares_metrics_set(m, "actor/empty_minibatches", u->empty);
    if (u->mini_batches == 0) return ARES_OK; /* nothing to take means of */
    ares_metrics_set(m, "actor/pg_loss", s->loss / passes);
    ares_metrics_set(m, "actor/final_loss",
                     (ares_loss_total(s, a->cfg->loss.entropy_coeff, b->kl_coef) + distilled) /
                         passes);
    if (kl) {
        ares_metrics_set(m, "actor/kl_loss", s->kl / passes);
        ares_metrics_set(m, "actor/kl_coef", b->kl_coef);
    }
    if (u->taught) ares_metrics_set(m, "actor/distillation_loss", distilled / passes);
    if (pairs) ares_vapor_metrics(&a->cfg->vapor, &u->pairs, m);
    if (pairs && u->pairs.tokens > 0)
        ares_metrics_set(m, "actor/kl", u->pairs.kl / u->pairs.tokens);
    ares_metrics_set(m, "actor/entropy_loss", s->entropy / passes);
    ares_loss_metrics(s, m);
    ares_metrics_set(m, "actor/grad_norm", grad_norm / passes);
    return ARES_OK;
}

/*
 * The gradient of rows [row, end) and its optimizer step. *norm: of the gradient; NaN where the
 * update was left out, on every rank.
 */
static int mini_batch(update *u, int64_t row, int64_t end, bool *idle, double *norm)
{
    learner *l = &u->actor->learner;
    update before = *u;
    char what[80];
    snprintf(what, sizeof what, "actor: step %lld, optimizer step %lld", (long long)l->step + 1,
             (long long)l->optim.updates + 1);
    int rc = ares_world_share_error(l->world, update_mini_batch(u, row, end, idle));
    if (rc == ARES_OK && *idle) return ARES_OK;
    ARES_TRY(learner_step(l, rc, u->actor->cfg->actor.max_grad_norm, what, norm));
    if (!isnan(*norm)) return ARES_OK;
    /*
     * An update that was left out counts in no metric but exactness, to which finite losses have
     * contributed. Its KL is kept where it is finite: the weights have not changed.
     */
    const update seen = *u;
    *u = before;
    u->max_abs = seen.max_abs; /* never less than before */
    u->compared = seen.compared;
    u->differs = seen.differs;
    u->differs_row = seen.differs_row;
    u->differs_token = seen.differs_token;
    u->skipped++;
    ares_batch *b = u->batch;
    int64_t first = b->row_start[row], last = b->row_start[end];
    for (int64_t i = first; b->kl && i < last; i++)
        if (!isfinite(b->kl[i])) b->kl[i] = 0;
    if (u->host.seen_kl)
        dc_upload(&l->columns, u->col.seen_kl + first, u->host.seen_kl + first,
                  (size_t)(last - first) * sizeof *b->kl);
    return ARES_OK;
}

/* ppo_epochs passes over the mini-batches; *norms: sum of the norms of their gradients. */
static int train(update *u, const mini_batches *minis, double *norms)
{
    const ares_actor_config *cfg = &u->actor->cfg->actor;
    ares_batch *b = u->batch;
    double norm = 0;
    mini_batches_expect(minis, cfg->ppo_epochs, cfg->max_token_len, cfg->share_prompts);
    ARES_TRY(ares_world_share_error(u->actor->learner.world, update_prepare(u)));
    for (u->pass = 0; u->pass < (uint64_t)cfg->ppo_epochs; u->pass++)
        for (int64_t k = 0; k < minis->n; k++) {
            int64_t row = minis->start[k], end = minis->start[k + 1];
            bool idle = false;
            u->fills = k >= minis->counted;
            ARES_TRY(mini_batch(u, row, end, &idle, &norm));
            if (idle || isnan(norm)) continue;
            *norms += norm;
            u->compare = false; /* from here on the weights are no longer those of the rollout */
            if (u->host.seen_kl) ares_kl_record_rows(b, row, end, u->host.seen_kl, u->passed);
            else /* KL in the reward: every row has one */
                ares_kl_record_rows(b, row, end, b->kl, NULL);
        }
    return ARES_OK;
}

int actor_update(actor *a, ares_batch *b, const actor_second *second, ares_metrics *m)
{
    ARES_TRY(ARES_NEED(b, "update_actor", old_log_probs));
    ARES_TRY(ARES_NEED(b, "update_actor", advantages));
    const mini_batch_size size = mini_batch_size_of_actor(a->cfg);
    mini_batches minis;
    double norms = 0;
    ARES_TRY(mini_batches_cut(&size, b, a->learner.world, &minis));
    ARES_ASSERT(!second || !minis.order); /* its groups go with rows of the step's batch */
    update u = { .actor = a, .batch = minis.batch, .second = second, .compare = true };
    u.logs = a->logs;
    /* diagnostics have passes of their own */
    (void)ares_workspace_rows(a->learner.workspace);
    (void)ares_workspace_routing(a->learner.workspace, NULL);
    a->learner.left_out = 0;
    int rc = train(&u, &minis, &norms);
    if (rc == ARES_OK) {
        mini_batches_give_back(&minis, b);
        for (int64_t r = 0; r < u.batch->rows && a->teacher; r++)
            b->samples[minis.order ? minis.order[r] : r].distillation = update_distilled(&u, r);
        a->learner.step++;
        rc = report(a, &u, minis.order, norms, m);
    }
    update_finish(&u);
    mini_batches_fini(&minis);
    return rc;
}

/* The frozen copy of the starting policy: its log-probs, and the exact KL to it. */

/* The policy's own model beside its adapter: the model alone, or with the adapter it starts from.
 */
static int borrow(reference *r, const training *t, const ares_model_options *opt)
{
    const ares_train_config *c = t->cfg;
    const char *start = strcmp(c->ref.adapter, "start") == 0 ? c->actor_lora.adapter_path : NULL;
    ares_adapter *adapter = NULL;
    if (opt->storage != t->model->embed->weight.dtype && ares_world_rank(t->world) == 0)
        ares_log(ARES_LOG_INFO, "config: worker.ref.fsdp.torch_dtype -> as the actor's: the "
                                "reference is the actor's model without its adapter");
    if (start) ARES_TRY(ares_adapter_load(t->model, t->model_dir.data, start, &adapter));
    int rc = learner_open(&r->learner, t->model,
                          &(learner_options){ .role = "ref",
                                              .adapter = adapter,
                                              .world = t->world,
                                              .round_tokens = c->actor.round_tokens });
    r->learner.adapter = adapter; /* closed with it, also after a failure */
    return rc;
}

int reference_open(reference *r, training *t, const char *weights, bool moves)
{
    const ares_train_config *cfg = t->cfg;
    const ares_model_share share = sharing_of_reference(cfg, &t->groups);
    ares_model_options opt = { .storage = training_type(cfg->ref.dtype),
                               .arithmetic = training_type(cfg->ref.arithmetic),
                               .like_trained = !cfg->actor.freeze_vision,
                               .share = &share };
    if (moves) opt.trained = cfg->actor.trainable; /* the policy is mixed into it */
    *r = (reference){ .cfg = cfg };
    if (t->adapter && !cfg->ref.model_path) return borrow(r, t, &opt);
    const char *path = weights               ? weights
                       : cfg->ref.model_path ? cfg->ref.model_path
                                             : cfg->actor.model_path;
    ARES_TRY(learner_check_storage("ref", opt.storage, &t->device));
    ARES_TRY(ares_model_load(path, &t->device, &opt, &r->own));
    ares_str dir = { 0 };
    ares_adapter *adapter = NULL;
    int rc = ARES_OK;
    if (ares_model_adapted(path)) rc = ares_model_find(path, &dir);
    if (rc == ARES_OK && dir.len) rc = ares_adapter_load(r->own, dir.data, path, &adapter);
    if (rc == ARES_OK)
        rc = learner_open(&r->learner, r->own,
                          &(learner_options){ .role = "ref",
                                              .adapter = adapter,
                                              .world = t->world,
                                              .round_tokens = cfg->actor.round_tokens });
    r->learner.adapter = adapter; /* closed with it, also after a failure */
    ares_str_fini(&dir);
    return rc;
}

bool reference_sees(const training *t)
{
    return t->model->cfg.vision.depth &&
           (ares_model_trains_tower(t->model, t->adapter) || t->cfg->ref.model_path);
}

void reference_close(reference *r)
{
    ares_adapter *start = r->learner.adapter;
    learner_close(&r->learner);
    ares_adapter_free(start);
    ares_features_free(r->features);
    ares_model_free(r->own);
}

int reference_log_probs(reference *r, double temperature, ares_batch *b)
{
    ARES_TRY(ARES_NEED(b, "ref", responses));
    ARES_PUT(b, ref_log_probs);
    learner_scoring scoring = learner_scoring_of(r->cfg);
    scoring.temperature = temperature;
    return learner_log_probs(&r->learner, &scoring, b, 0, b->rows, b->ref_log_probs, NULL);
}

/*
 * Both models forward over the rows of a round; the head compares them token by token. stats
 * [5][n]: on the device, of these rows the first of each.
 */
static int compare(reference *r, learner *policy, double temperature, ares_batch *b,
                   const ares_micro_set *sets, int64_t n_sets, float *stats, size_t n)
{
    ares_device *d = policy->model->device;
    learner *ref = &r->learner;
    size_t count = (size_t)n_sets + 1;
    learner_pass *p = ares_arena_alloc(&b->arena, count * sizeof *p);
    void **ref_hidden = ares_arena_alloc(&b->arena, count * sizeof *ref_hidden);
    int rc = learner_forward_round(policy, b, sets, n_sets, r->cfg->actor.share_prompts, false, p);
    ARES_TRY(learner_share_error(policy, ref, rc));
    ARES_TRY(learner_forward_same_rows(ref, p, n_sets, ref_hidden));
    learner_hold_head(policy);
    learner_hold_head(ref);
    for (int64_t i = 0; i < n_sets; stats += sets[i++].out) {
        if (!p[i].packed.n_out) continue;
        ares_head_args h = learner_head(policy, &p[i], temperature);
        h.kl = stats;
        h.log_prob = stats + n;
        h.entropy = stats + 2 * n;
        h.lse = stats + 3 * n;
        h.ref_lse = stats + 4 * n;
        learner_head_beside(ref, &p[i], ref_hidden[i], &h);
        d->k->head(d, &h);
    }
    learner_drop_head(policy);
    learner_drop_head(ref);
    return dc_sync_if_host(&policy->stats);
}

int reference_kl(reference *r, learner *policy, double temperature, ares_batch *b)
{
    ARES_TRY(ARES_NEED(b, "shape", responses));
    ARES_PUT(b, kl);
    ares_device *d = policy->model->device;
    ares_micro_set *sets;
    int64_t n_sets;
    /* of each token: kl, log_prob, entropy, lse, ref_lse, the order of compare */
    size_t n = (size_t)b->tokens, bytes = (5 * n + 1) * sizeof(float);
    float *stats = ares_arena_alloc(&b->arena, bytes);
    int rc = ares_pack_sets(b, 0, b->rows, r->cfg->actor.max_token_len, r->cfg->actor.share_prompts,
                            &b->arena, &sets, &n_sets);
    if (rc == ARES_OK) rc = dc_open(&policy->stats, d, policy->role, bytes, 1);
    ARES_TRY(learner_share_error(policy, &r->learner, rc));
    float *on = dc_place(&policy->stats, stats, bytes);
    float *at_round = on;
    learner_scored rounds;
    ARES_TRY(learner_cut_scored(policy, &r->learner, sets, n_sets,
                                learner_by_region(policy, &r->learner), &b->arena, &rounds));
    for (int64_t i = 0; i < rounds.n; i++) {
        int64_t first = rounds.first[i], end = rounds.first[i + 1];
        ARES_TRY(compare(r, policy, temperature, b, sets + first, end - first, at_round, n));
        for (; first < end; first++) at_round += sets[first].out;
    }
    dc_download(&policy->stats, &(column_part){ stats, on, n * sizeof *stats }, 1);
    ARES_TRY(learner_sync(policy));
    ARES_TRY(learner_sync(&r->learner));
    for (int64_t i = 0, at = 0; i < n_sets; at += sets[i++].out)
        ares_pack_scatter(b, &sets[i], stats + at, 0, b->kl);
    for (int64_t t = 0; t < b->tokens; t++) /* tokens that the policy did not write */
        if (!b->response_mask[t]) b->kl[t] = 0;
    return ARES_OK;
}
