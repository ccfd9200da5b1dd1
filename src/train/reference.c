/* The frozen copy of the starting policy: its log-probs, and the exact KL to it. */
#include "roles.h"

#include <string.h>

int reference_open(reference *r, const ares_train_config *cfg, ares_device *d, ares_world *world,
                   const sharing_groups *groups, const char *weights)
{
    const ares_model_share share = sharing_of_reference(cfg, groups);
    ares_model_options opt = { .storage = !cfg->ref.dtype || strcmp(cfg->ref.dtype, "bf16") == 0
                                              ? ARES_BF16
                                              : ARES_F32,
                               .like_trained = !cfg->actor.freeze_vision,
                               .share = &share };
    *r = (reference){ .cfg = cfg };
    ares_model *m;
    ARES_TRY(learner_check_storage("ref", opt.storage, d));
    ARES_TRY(ares_model_load(weights ? weights : cfg->actor.model_path, d, &opt, &m));
    return learner_open(&r->learner, m,
                        &(learner_options){ .role = "ref",
                                            .world = world,
                                            .round_tokens = cfg->actor.round_tokens });
}

void reference_close(reference *r)
{
    ares_model *m = r->learner.model;
    learner_close(&r->learner);
    ares_features_free(r->features);
    ares_model_free(m);
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
    ARES_TRY(learner_agree(policy, ref, rc));
    ARES_TRY(learner_forward_beside(ref, p, n_sets, ref_hidden));
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
        h.ref_x = ref_hidden[i];
        h.ld_ref = ref->model->cfg.hidden;
        h.ref_w = ares_model_head(ref->model);
        d->k->head(d, &h);
    }
    learner_drop_head(policy);
    learner_drop_head(ref);
    return columns_ready(&policy->stats);
}

int reference_kl(reference *r, learner *policy, double temperature, ares_batch *b)
{
    ARES_TRY(ARES_NEED(b, "shape", responses));
    ARES_PUT(b, kl);
    ares_device *d = policy->model->device;
    ares_micro_set *sets;
    int64_t n_sets;
    size_t n = (size_t)b->tokens, bytes = (5 * n + 1) * sizeof(float);
    float *stats = ares_arena_alloc(&b->arena, bytes);
    int rc = ares_pack_sets(b, 0, b->rows, r->cfg->actor.max_token_len, r->cfg->actor.share_prompts,
                            &b->arena, &sets, &n_sets);
    if (rc == ARES_OK) rc = columns_open(&policy->stats, d, policy->role, bytes, 1);
    ARES_TRY(learner_agree(policy, &r->learner, rc));
    float *on = columns_place(&policy->stats, stats, bytes);
    float *at_round = on;
    learner_scored rounds;
    ARES_TRY(learner_cut_scored(policy, &r->learner, sets, n_sets,
                                learner_by_region(policy, &r->learner), &b->arena, &rounds));
    for (int64_t i = 0; i < rounds.n; i++) {
        int64_t first = rounds.first[i], end = rounds.first[i + 1];
        ARES_TRY(compare(r, policy, temperature, b, sets + first, end - first, at_round, n));
        for (; first < end; first++) at_round += sets[first].out;
    }
    columns_out(&policy->stats, &(column_part){ stats, on, n * sizeof *stats }, 1);
    ARES_TRY(learner_sync(policy));
    ARES_TRY(learner_sync(&r->learner));
    for (int64_t i = 0, at = 0; i < n_sets; at += sets[i++].out)
        ares_pack_scatter(b, &sets[i], stats + at, 0, b->kl);
    for (int64_t t = 0; t < b->tokens; t++)
        if (!b->response_mask[t]) b->kl[t] = 0;
    return ARES_OK;
}
