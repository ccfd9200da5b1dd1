/*
 * The policy: its log-probs and its update. A mini-batch is global_batch_size prompts over all ranks and one optimizer
 * step; micro-batches only bound memory, because every count in the loss is the mini-batch's.
 */
#include <math.h>
#include <string.h>

#include "run.h"

int ares_actor_open(ares_actor *a, const ares_train_config *cfg, ares_model *m, ares_world *world, int64_t total_steps)
{
    *a = (ares_actor){ .model = m, .cfg = cfg, .world = world };
    a->loss = ares_loss_find(cfg->loss.loss_type);
    a->kl = ares_kl_find(cfg->algorithm.kl_penalty);
    if (!a->loss || !a->kl) return ARES_ECONFIG;
    ARES_TRY(ares_optim_init(&a->optim, &cfg->optim, total_steps));
    ARES_TRY(ares_model_optimizer_alloc(m));
    return ares_workspace_new(m, cfg->actor.gradient_checkpointing ? ARES_KEEP_INPUTS : ARES_KEEP_ALL, &a->workspace);
}

void ares_actor_close(ares_actor *a)
{
    if (!a->model) return;
    ares_device *d = a->model->device;
    d->k->release(d, a->scratch, a->scratch_floats * sizeof(float));
    ares_workspace_free(a->workspace);
    ares_arena_fini(&a->arena);
}

/* Whether what rollout recorded is what this policy would give, so that nothing need be computed again. */
static bool current(const ares_actor *a, const ares_sample *s) { return s->token_exact && s->weight_version == a->optim.updates && a->cfg->rollout.temperature > 0; }

int ares_actor_log_probs(ares_actor *a, ares_batch *b)
{
    ARES_TRY(ARES_NEED(b, "old", rollout_log_probs));
    ARES_PUT(b, old_log_probs);
    memcpy(b->old_log_probs, b->rollout_log_probs, (size_t)b->tokens * sizeof *b->old_log_probs);
    for (int64_t g = 0; g < b->groups; g++) {
        bool fresh = true;
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++) fresh = fresh && current(a, &b->samples[r]);
        if (fresh) continue;
        float *out = b->old_log_probs + b->row_start[b->group_start[g]];
        ARES_TRY(ares_train_log_probs(a->model, a->workspace, a->cfg, b, b->group_start[g], b->group_start[g + 1], out, NULL));
    }
    return ARES_OK;
}

/* The loss of some tokens of a micro-batch: called by the head for each chunk of rows it has logits for. */
typedef struct loss_pass {
    ares_actor *actor;
    const ares_batch *batch;
    int64_t first;               /* batch token of the micro-batch's first head row */
    const float *weight;         /* by batch token */
    ares_loss_sums *sums;
    double max_abs;              /* |update's log-prob - rollout's| over token_exact rows, where asked */
    bool compare;
    int rc;
} loss_pass;

static void token_losses(void *ctx, int32_t row, int32_t n, const float *log_prob, const float *entropy, float *c_log_prob, float *c_entropy)
{
    loss_pass *p = ctx;
    const ares_batch *b = p->batch;
    int64_t t = p->first + row;
    if (p->rc != ARES_OK) return;
    ares_loss_args a = { .cfg = &p->actor->cfg->loss, .n = n, .log_prob = log_prob, .old_log_prob = b->old_log_probs + t, .advantage = b->advantages + t,
                         .weight = p->weight + t, .mask = b->response_mask + t, .entropy = entropy, .d_log_prob = c_log_prob, .d_entropy = c_entropy, .sums = p->sums };
    p->rc = p->actor->loss->compute(&a);
    if (p->rc == ARES_OK)
        p->rc = ares_loss_terms(&a, p->actor->kl, p->actor->cfg->algorithm.kl_coef, b->ref_log_probs ? b->ref_log_probs + t : NULL, b->kl_weight ? b->kl_weight + t : NULL);
    if (!p->compare) return;
    for (int32_t i = 0; i < n; i++)
        if (b->response_mask[t + i]) p->max_abs = fmax(p->max_abs, fabs((double)log_prob[i] - (double)b->rollout_log_probs[t + i]));
}

int train_reserve(ares_actor *a, size_t floats)
{
    ares_device *d = a->model->device;
    if (floats <= a->scratch_floats) return ARES_OK;
    d->k->release(d, a->scratch, a->scratch_floats * sizeof(float));
    a->scratch_floats = floats;
    a->scratch = d->k->alloc(d, floats * sizeof(float));
    if (!a->scratch) a->scratch_floats = 0;
    return a->scratch ? ARES_OK : ares_fail(ARES_ELIMIT, "actor: %zu floats do not fit on the device; lower worker.actor.max_token_len_per_device", floats);
}

static int micro_batch(ares_actor *a, const ares_batch *b, const ares_micro_batch *m, loss_pass *pass)
{
    ares_model *model = a->model;
    ares_device *d = model->device;
    ares_packed packed;
    const int32_t *targets;
    float *hidden;
    ares_arena_reset(&a->arena);
    ares_pack_build(b, m, a->cfg->actor.share_prompts, &a->arena, &packed, &targets);
    if (!packed.n_out) return ARES_OK;
    ARES_TRY(ares_model_forward(model, a->workspace, &packed, &hidden));
    int32_t n = packed.n_out, width = model->cfg.hidden;
    ARES_TRY(train_reserve(a, (size_t)n * (size_t)width));
    float *stats = ares_arena_calloc(&a->arena, (size_t)n * 5, sizeof *stats);
    ares_head_args h = { .rows = n, .vocab = model->cfg.vocab, .x = hidden, .ldx = width, .w = ares_model_head(model), .target = targets,
                         .inv_temperature = a->cfg->rollout.temperature > 0 ? (float)(1 / a->cfg->rollout.temperature) : 1.0f, .log_prob = stats, .entropy = stats + n,
                         .lse = stats + 2 * (size_t)n, .c_log_prob = stats + 3 * (size_t)n, .dx = a->scratch, .lddx = width, .dw = ares_model_head_grad(model),
                         .c_entropy = a->cfg->loss.entropy_coeff != 0 ? stats + 4 * (size_t)n : NULL };
    pass->first = b->row_start[m->row];
    if (a->loss->flags & ARES_LOSS_LOCAL) {
        d->k->head_fused(d, &h, token_losses, pass);
    } else {
        d->k->head(d, &h);
        ARES_TRY(d->k->sync(d));
        token_losses(pass, 0, n, h.log_prob, h.entropy, stats + 3 * (size_t)n, stats + 4 * (size_t)n);
        d->k->head_backward(d, &h);
    }
    ARES_TRY(pass->rc);
    if (!isfinite(pass->sums->loss) || !isfinite(pass->sums->kl) || !isfinite(pass->sums->entropy))
        return ares_fail(ARES_ENUMERIC, "loss is not finite in batch rows %lld to %lld (prompts %lld to %lld): pg %g, kl %g, entropy %g", (long long)m->row, (long long)m->end - 1,
                         (long long)b->samples[m->row].draw, (long long)b->samples[m->end - 1].draw, pass->sums->loss, pass->sums->kl, pass->sums->entropy);
    return ares_model_backward(model, a->workspace, &packed, a->scratch);
}

/* Groups [group, group_end) of this rank: gradients of the whole mini-batch's loss, one optimizer step. */
static int mini_batch(ares_actor *a, ares_batch *b, int64_t group, int64_t group_end, loss_pass *pass, double lr, double *grad_norm)
{
    int64_t row = b->group_start[group], end = b->group_start[group_end];
    ares_agg_counts counts = { 0 };
    ares_agg_count(b, row, end, &counts);
    double totals[2] = { counts.tokens, counts.rows };
    ARES_TRY(ares_world_sum_f64(a->world, totals, 2));
    counts = (ares_agg_counts){ totals[0], totals[1], (double)a->cfg->data.max_response_length };
    ARES_TRY(ares_agg_weights(a->cfg->loss.loss_avg_mode, b, row, end, &counts, (float *)pass->weight + b->row_start[row]));

    ares_model_zero_grad(a->model);
    ares_micro_batch *plan = ares_arena_alloc(&b->arena, (size_t)(end - row + 1) * sizeof *plan);
    int64_t n = ares_pack_plan(b, row, end, a->cfg->actor.max_token_len, a->cfg->actor.share_prompts, plan);
    for (int64_t i = 0; i < n; i++) ARES_TRY(micro_batch(a, b, &plan[i], pass));
    return ares_optim_step(&a->optim, a->model, a->world, lr, a->cfg->actor.max_grad_norm, grad_norm);
}

static int report(ares_actor *a, const loss_pass *pass, int64_t updates, double grad_norm, double lr, ares_metrics *m)
{
    const ares_loss_sums *s = pass->sums;
    double sums[] = { s->loss, s->kl, s->entropy, s->tokens, s->clip_high, s->clip_low, s->neg_log_ratio, s->ratio };
    double bounds[] = { s->ratio_max, -s->ratio_min, pass->max_abs };
    ARES_TRY(ares_world_sum_f64(a->world, sums, ARES_COUNT(sums)));
    ARES_TRY(ares_world_max_f64(a->world, bounds, ARES_COUNT(bounds)));
    double passes = (double)updates;
    ares_metrics_set(m, "actor/pg_loss", sums[0] / passes);
    if (a->cfg->algorithm.use_kl_loss && !a->cfg->algorithm.disable_kl) {
        ares_metrics_set(m, "actor/kl_loss", sums[1] / passes);
        ares_metrics_set(m, "actor/kl_coef", a->cfg->algorithm.kl_coef);
    }
    ares_metrics_set(m, "actor/entropy", sums[2] / passes);
    ares_metrics_set(m, "actor/pg_clipfrac_higher", sums[4] / sums[3]);
    ares_metrics_set(m, "actor/pg_clipfrac_lower", sums[5] / sums[3]);
    ares_metrics_set(m, "actor/ppo_kl", sums[6] / sums[3]);
    ares_metrics_set(m, "actor/ratio_mean", sums[7] / sums[3]);
    ares_metrics_set(m, "actor/ratio_max", bounds[0]);
    ares_metrics_set(m, "actor/ratio_min", -bounds[1]);
    ares_metrics_set(m, "actor/grad_norm", grad_norm / passes);
    ares_metrics_set(m, "actor/lr", lr);
    ares_metrics_set(m, "exact/rollout_train_max_abs", bounds[2]);
    return ARES_OK;
}

int ares_actor_update(ares_actor *a, ares_batch *b, ares_metrics *m)
{
    ARES_TRY(ARES_NEED(b, "update_actor", old_log_probs));
    ARES_TRY(ARES_NEED(b, "update_actor", advantages));
    int64_t groups = a->cfg->actor.global_batch_size / ares_world_size(a->world), updates = 0;
    double lr = ares_optim_lr(&a->optim, a->step), norms = 0, norm;
    ares_loss_sums sums;
    ares_loss_sums_init(&sums);
    loss_pass pass = { .actor = a, .batch = b, .sums = &sums, .weight = ares_arena_calloc(&b->arena, (size_t)b->tokens + 1, sizeof(float)) };
    for (int64_t epoch = 0; epoch < a->cfg->actor.ppo_epochs; epoch++)
        for (int64_t g = 0; g < b->groups; g += groups) {
            pass.compare = updates == 0; /* with this step's weights still, rollout and update must agree */
            int rc = mini_batch(a, b, g, ARES_MIN(g + groups, b->groups), &pass, lr, &norm);
            if (rc != ARES_OK) return ares_fail_in(rc, "actor: step %lld, optimizer step %lld", (long long)a->step + 1, (long long)a->optim.updates + 1);
            norms += norm;
            updates++;
        }
    a->step++;
    return report(a, &pass, updates, norms, lr, m);
}
