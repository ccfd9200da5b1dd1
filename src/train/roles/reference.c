/* The frozen copy of the starting policy, and log-probs of a batch under any model. */
#include <string.h>

#include "ares/train.h"

/*
 * Some rows through the model and its head; results go to columns that start at batch token
 * `first`.
 */
static int score(ares_model *model, ares_workspace *w, const ares_train_config *cfg,
                 const ares_batch *b, const ares_micro_set *m, ares_arena *arena, int64_t first,
                 float *log_probs, float *entropies)
{
    ares_device *d = model->device;
    ares_packed packed;
    const int32_t *targets;
    ares_pack_build_set(b, m, cfg->actor.share_prompts, arena, &packed, &targets);
    if (!packed.n_out) return ARES_OK;
    float *hidden, *stats = ares_arena_alloc(arena, (size_t)packed.n_out * 3 * sizeof *stats);
    ARES_TRY(ares_model_forward(model, w, &packed, &hidden));
    ares_head_args a = { .rows = packed.n_out,
                         .vocab = model->cfg.vocab,
                         .x = hidden,
                         .ldx = model->cfg.hidden,
                         .w = ares_model_head(model),
                         .target = targets,
                         .inv_temperature = ares_inv_temperature((float)cfg->rollout.temperature),
                         .log_prob = stats,
                         .entropy = stats + packed.n_out,
                         .lse = stats + 2 * packed.n_out };
    d->k->head(d, &a);
    ARES_TRY(d->k->sync(d));
    if (log_probs) ares_pack_scatter(b, m, a.log_prob, first, log_probs);
    if (entropies) ares_pack_scatter(b, m, a.entropy, first, entropies);
    return ARES_OK;
}

int ares_train_log_probs(ares_model *m, ares_workspace *w, const ares_train_config *cfg,
                         const ares_batch *b, int64_t row, int64_t end, float *log_probs,
                         float *entropies)
{
    ares_arena arena = { 0 }, plan = { 0 };
    ares_micro_set *sets;
    int64_t n;
    int rc = ares_pack_sets(b, row, end, cfg->actor.max_token_len, cfg->actor.share_prompts, &plan,
                            &sets, &n);
    for (int64_t i = 0; rc == ARES_OK && i < n; i++) {
        ares_arena_reset(&arena);
        rc = score(m, w, cfg, b, &sets[i], &arena, b->row_start[row], log_probs, entropies);
    }
    ares_arena_fini(&plan);
    ares_arena_fini(&arena);
    return rc;
}

int ares_reference_open(ares_reference *r, const ares_train_config *cfg, ares_device *d)
{
    ares_model_options opt = { .storage = !cfg->ref.dtype || strcmp(cfg->ref.dtype, "bf16") == 0
                                              ? ARES_BF16
                                              : ARES_F32 };
    *r = (ares_reference){ .cfg = cfg };
    ARES_TRY(ares_model_load(cfg->actor.model_path, d, &opt, &r->model));
    return ares_workspace_new(r->model, ARES_KEEP_NOTHING, &r->workspace);
}

void ares_reference_close(ares_reference *r)
{
    ares_workspace_free(r->workspace);
    ares_model_free(r->model);
}

int ares_reference_log_probs(ares_reference *r, ares_batch *b)
{
    ARES_TRY(ARES_NEED(b, "ref", responses));
    ARES_PUT(b, ref_log_probs);
    return ares_train_log_probs(r->model, r->workspace, r->cfg, b, 0, b->rows, b->ref_log_probs,
                                NULL);
}

/* Both models forward over some rows; the head compares them token by token. */
static int compare(ares_reference *r, ares_model *policy, ares_workspace *w, const ares_batch *b,
                   const ares_micro_set *m, ares_arena *arena)
{
    ares_device *d = policy->device;
    ares_packed packed;
    const int32_t *targets;
    float *hidden, *ref_hidden;
    ares_pack_build_set(b, m, r->cfg->actor.share_prompts, arena, &packed, &targets);
    if (!packed.n_out) return ARES_OK;
    ARES_TRY(ares_model_forward(policy, w, &packed, &hidden));
    ARES_TRY(ares_model_forward(r->model, r->workspace, &packed, &ref_hidden));
    size_t n = (size_t)packed.n_out;
    float *stats = ares_arena_alloc(arena, n * 5 * sizeof *stats);
    ares_head_args a = { .rows = packed.n_out,
                         .vocab = policy->cfg.vocab,
                         .x = hidden,
                         .ldx = policy->cfg.hidden,
                         .w = ares_model_head(policy),
                         .target = targets,
                         .inv_temperature =
                             ares_inv_temperature((float)r->cfg->rollout.temperature),
                         .log_prob = stats,
                         .entropy = stats + n,
                         .lse = stats + 2 * n,
                         .ref_x = ref_hidden,
                         .ld_ref = r->model->cfg.hidden,
                         .ref_w = ares_model_head(r->model),
                         .ref_lse = stats + 3 * n,
                         .kl = stats + 4 * n };
    d->k->head(d, &a);
    ARES_TRY(d->k->sync(d));
    ares_pack_scatter(b, m, a.kl, 0, b->kl);
    return ARES_OK;
}

int ares_reference_kl(ares_reference *r, ares_model *policy, ares_workspace *w, ares_batch *b)
{
    ARES_TRY(ARES_NEED(b, "kl", responses));
    ARES_PUT(b, kl);
    ares_arena arena = { 0 };
    ares_micro_set *sets;
    int64_t n;
    ARES_TRY(ares_pack_sets(b, 0, b->rows, r->cfg->actor.max_token_len, r->cfg->actor.share_prompts,
                            &b->arena, &sets, &n));
    int rc = ARES_OK;
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) {
        ares_arena_reset(&arena);
        rc = compare(r, policy, w, b, &sets[i], &arena);
    }
    ares_arena_fini(&arena);
    for (int64_t t = 0; t < b->tokens; t++)
        if (!b->response_mask[t]) b->kl[t] = 0;
    return rc;
}
