/*
 * The largest micro-batches, rounds and passes, and what they take of the memory that training
 * shares with rollout (docs/design.md#memory-in-two-phases).
 */
#include "run/largest.h"

#include <string.h>

#include "vapor/vapor.h"

/* ---------------- the largest micro-batch */
static void full_rows(const ares_train_config *c, bool sft, int64_t longest, largest_micro *m)
{
    bool agents = c->agents_train.tags.count > 0;
    m->prompt = sft ? 1 : ARES_MAX(1, ARES_MIN(c->data.max_prompt_length, longest - 1));
    int64_t most = (sft ? c->sft.max_length : longest) - m->prompt;
    m->response = ARES_MAX(1, sft || agents ? most : ARES_MIN(c->data.max_response_length, most));
}

/*
 * Groups of n rows of full length, as many as a mini-batch has on a rank, cut as a run cuts them.
 * budget: tokens of a micro-batch; m: prompt, response and per_optimizer are there
 */
static void cut_groups(int64_t budget, int64_t n, bool share, largest_micro *m)
{
    int64_t count;
    /* two units more than fit tell all */
    int64_t units = ARES_MIN(m->per_optimizer, budget / (m->prompt + m->response) + 2);
    ares_batch b;
    ares_batch_init(&b);
    int32_t *prompt = ares_calloc((size_t)m->prompt, sizeof *prompt);
    ares_sample row = { .prompt = prompt, .prompt_len = (int32_t)m->prompt };
    for (int64_t g = 0; g < units; g++) {
        ares_batch_begin_group(&b);
        for (int64_t i = 0; i < n; i++) (void)ares_batch_add_row(&b, &row, m->response);
    }
    ares_micro_batch *cuts = ares_calloc((size_t)b.rows, sizeof *cuts), one[1];
    int64_t first = share ? n : 1;
    (void)ares_pack_plan(&b, 0, first, INT64_MAX, share, share ? one : cuts);
    m->group = share ? one->tokens : cuts->tokens;
    count = ares_pack_plan(&b, 0, b.rows, budget, share, cuts);
    m->tokens = cuts->tokens;
    m->out = cuts->out;
    m->groups = (cuts->end - cuts->row) / first;
    if (count > 1 && budget > m->tokens) { /* shorter rows fill it up */
        m->out = (m->out * budget + m->tokens - 1) / m->tokens;
        m->tokens = budget;
    }
    m->tokens = ARES_MIN(m->tokens, LARGEST_TOKENS);
    m->out = ARES_MIN(m->out, LARGEST_TOKENS);
    ares_free(cuts);
    ares_free(prompt);
    ares_batch_fini(&b);
}

void largest_micro_of(const ares_train_config *c, int ranks, bool reinforcement, int64_t longest,
                      largest_micro *m)
{
    bool sft = !reinforcement, share = !sft && c->actor.share_prompts;
    int64_t n = sft ? 1 : c->rollout.n;
    *m = (largest_micro){ 0 };
    full_rows(c, sft, longest, m);
    int64_t rows = sft                                             ? c->sft.batch_size
                   : strcmp(c->actor.mini_batch_unit, "rows") == 0 ? c->actor.global_batch_size
                                                                   : c->actor.global_batch_size * n;
    rows = (rows + ranks - 1) / ranks;
    m->per_optimizer = ARES_MAX(1, share ? (rows + n - 1) / n : rows);
    cut_groups(c->actor.max_token_len, n, share, m);
}

/*
 * Two to each prompt of a mini-batch, with their prompts as long as they may be where that leaves
 * answers of data.max_response_length.
 */
void largest_pairs_of(const ares_train_config *c, int ranks, largest_micro *m)
{
    int64_t longest = c->vapor.max_pair_length;
    *m = (largest_micro){ 0 };
    if (!vapor_wanted(c) || (c->vapor.beta == 0 && c->vapor.dpo_coef == 0) || longest < 2) return;
    m->prompt =
        ARES_MIN(c->data.max_prompt_length, ARES_MAX(1, longest - c->data.max_response_length));
    m->response = longest - m->prompt;
    int64_t prompts = (c->actor.global_batch_size + ranks - 1) / ranks;
    m->per_optimizer = ARES_MAX(1, c->actor.share_prompts ? prompts : 2 * prompts);
    cut_groups(c->actor.max_token_len, 2, c->actor.share_prompts, m);
}

/* ---------------- passes */
static int64_t divided(int64_t n, int64_t by)
{
    return ARES_MAX(1, (n + by - 1) / ARES_MAX(1, by));
}

int64_t largest_in_update(const largest_micro *m)
{
    return divided(m->per_optimizer, m->groups);
}
static int64_t in_batch(const ares_train_config *c, const largest_micro *m)
{
    return largest_in_update(m) *
           ARES_MAX(1, c->data.rollout_batch_size / c->actor.global_batch_size);
}

/*
 * Of an update, n micro-batches as if all went together. most: tokens of a round at most, which
 * groups of less than full length fill up; null: all of the mini-batch. m: as the role cuts it
 */
static largest_pass trained(const largest_micro *m, int64_t most)
{
    int64_t units = m->per_optimizer, tokens = m->per_optimizer * m->group;
    if (most == ARES_NULL_I64) most = tokens;
    else units = ARES_MIN(units, ARES_MAX(1, most / m->group));
    largest_pass r = { .tokens = m->tokens,
                       .out = m->out,
                       .n = divided(units, m->groups),
                       .filled = divided(ARES_MIN(most, tokens), m->tokens),
                       .rounds = divided(m->per_optimizer, units) };
    if (m->tokens <= most) return r;
    r.tokens = ARES_MIN(m->tokens, ARES_MAX(m->group, most)); /* a round is less */
    r.out = divided(m->out * r.tokens, m->tokens);
    return r;
}
/* As many of them as go through together. */
static void together(const learner *l, const learner *with, largest_pass *p)
{
    p->n = learner_together(l, with, p->n);
    p->filled = learner_together(l, with, p->filled);
}

/* all: micro-batches there are */
static largest_pass scored(const learner *l, const learner *with, const largest_micro *m,
                           int64_t all)
{
    int64_t n = learner_scored_together(l, with, all, m->groups * m->group);
    return (largest_pass){ m->tokens, m->out, n, n, divided(all, n) };
}

/* Whether rewards have an exact KL, for which policy and reference go over a batch together. */
static bool compares_batch(const ares_trainer *t)
{
    return t->ref && !t->actor.kl->value && !actor_beside(&t->actor);
}

void largest_of_actor(const ares_trainer *t, const largest_micro *m, largest_passes *out)
{
    const ares_train_config *c = t->run.cfg;
    const learner *l = &t->actor.learner;
    *out = (largest_passes){ 0 };
    out->trained = trained(m, c->actor.round_tokens);
    together(l, t->ref ? actor_beside(&t->actor) : NULL, &out->trained);
    out->scored = scored(l, compares_batch(t) ? &t->ref->learner : NULL, m, in_batch(c, m));
    if (!compares_batch(t) && !c->actor.recompute_log_probs) out->scored.rounds = 0;
}

void largest_of_pairs(const ares_trainer *t, const largest_micro *pairs, largest_passes *out)
{
    const learner *l = &t->actor.learner;
    *out = (largest_passes){ 0 };
    if (!pairs->tokens) return;
    out->trained = trained(pairs, t->run.cfg->actor.round_tokens);
    together(l, NULL, &out->trained);
    out->scored = scored(l, NULL, pairs, largest_in_update(pairs));
}

/* Its micro-batches are cut by limits of its own. m: the actor's */
void largest_of_critic(const ares_trainer *t, const largest_micro *m, largest_passes *out)
{
    const ares_train_config *c = t->run.cfg;
    const learner *l = &t->critic->learner;
    bool share = c->critic.share_prompts;
    int64_t n = c->rollout.n, mini = c->critic.global_batch_size,
            rows = m->per_optimizer * (c->actor.share_prompts ? n : 1), of_actor = rows;
    if (mini != ARES_NULL_I64)
        rows = (rows * mini + c->actor.global_batch_size - 1) / c->actor.global_batch_size;
    largest_micro own = { .prompt = m->prompt,
                          .response = m->response,
                          .per_optimizer = share ? (rows + n - 1) / n : rows };
    cut_groups(c->critic.max_token_len, n, share, &own);
    out->trained = trained(&own, c->critic.round_tokens);
    together(l, NULL, &out->trained);
    out->scored = scored(l, NULL, &own, divided(in_batch(c, &own) * of_actor, rows));
}

void largest_of_reference(const ares_trainer *t, const largest_micro *m, const largest_micro *pairs,
                          largest_pass *own, largest_pass *of_pairs)
{
    const ares_train_config *c = t->run.cfg;
    const learner *l = &t->ref->learner, *policy = &t->actor.learner;
    *own = scored(l, compares_batch(t) ? policy : NULL, m, in_batch(c, m));
    *of_pairs = (largest_pass){ 0 };
    if (pairs->tokens) *of_pairs = scored(l, NULL, pairs, in_batch(c, pairs));
    if (!actor_beside(&t->actor)) return;
    const largest_pass beside = trained(m, c->actor.round_tokens); /* the policy's, in its update */
    own->n = ARES_MAX(own->n, learner_together(l, policy, beside.n));
}

/* ---------------- images */
int largest_image(const ares_trainer *t, int64_t room, int64_t *tokens)
{
    const ares_train_config *c = t->run.cfg;
    const ares_processor *p = &t->run.sight.processor;
    const ares_media_options o = {
        .min_pixels = c->data.min_pixels == ARES_NULL_I64 ? 0 : c->data.min_pixels,
        .max_pixels = c->data.max_pixels == ARES_NULL_I64 ? 0 : c->data.max_pixels,
    };
    int32_t patches;
    ARES_TRY(ares_media_largest(p, &o, &patches));
    *tokens = ARES_MIN(patches / (p->merge * p->merge), room);
    return ARES_OK;
}

int32_t largest_patches(const ares_model *m, int64_t tokens)
{
    return (int32_t)tokens * m->cfg.vision.merge * m->cfg.vision.merge;
}

/* ---------------- the memory of training's phase */
static int64_t at_most(const largest_pass *p)
{
    return ARES_MAX(p->n, p->filled);
}

/*
 * Prompts may be short: any token may be an output. Where one buffer grew beyond what was
 * announced, the place that it had would be lost to the turn.
 */
static void announce_pass(learner *l, const largest_pass *p, bool keep, size_t *bytes)
{
    int32_t rows = (int32_t)p->tokens;
    int64_t n = at_most(p);
    if (n) *bytes = ares_workspace_expect(l->workspace, rows, rows, (int)n, keep);
}

/* Of gradients and activations. */
static size_t announce(learner *l, const largest_passes *p)
{
    size_t bytes = 0;
    announce_pass(l, &p->scored, false, &bytes);
    announce_pass(l, &p->trained, true, &bytes);
    return ares_phase_size(l->model->grads_bytes) + bytes;
}

static int announce_tower(ares_trainer *t, const largest_micro *m, size_t *bytes)
{
    ares_model *model = t->run.model;
    int64_t tokens;
    if (!model->cfg.vision.depth || t->run.cfg->actor.freeze_vision) return ARES_OK;
    ARES_TRY(largest_image(t, m->prompt, &tokens));
    *bytes += ares_phase_size(ares_model_features_bytes(model, largest_patches(model, tokens),
                                                        t->actor.learner.tower_keep));
    return ARES_OK;
}

int largest_announce(ares_trainer *t, int ranks, size_t *bytes)
{
    const ares_train_config *c = t->run.cfg;
    learner *l = &t->actor.learner;
    largest_micro m, pairs;
    largest_passes p;
    *bytes = 0;
    if (c->trainer.val_only) return ARES_OK;
    largest_micro_of(c, ranks, true, trainer_longest(t), &m);
    largest_pairs_of(c, ranks, &pairs);
    largest_of_actor(t, &m, &p);
    size_t actor = announce(l, &p), of_pairs = 0,
           scratch = learner_expect_backward(l, (int32_t)p.trained.tokens, at_most(&p.trained), 0);
    if (pairs.tokens) {
        largest_of_pairs(t, &pairs, &p);
        of_pairs = announce(l, &p);
        scratch = learner_expect_backward(l, (int32_t)p.trained.tokens, at_most(&p.trained), 0);
    }
    *bytes = ARES_MAX(actor, of_pairs) + scratch;
    if (t->critic) {
        largest_of_critic(t, &m, &p);
        *bytes += announce(&t->critic->learner, &p);
        *bytes += critic_expect(t->critic, (int32_t)p.trained.tokens, at_most(&p.trained));
    }
    return announce_tower(t, &m, bytes);
}

void largest_forget(ares_trainer *t)
{
    learner *all[] = { &t->actor.learner, t->critic ? &t->critic->learner : NULL };
    for (int i = 0; i < ARES_COUNT(all); i++) {
        if (!all[i]) continue;
        ares_workspace_forget(all[i]->workspace);
        all[i]->scratch_bytes = 0;
    }
}
