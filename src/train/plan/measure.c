/*
 * How many bytes each part of a run takes. In order: the largest micro-batches and passes that
 * the options allow; images and videos in them; the measurement, which opens the run's parts on a
 * device that only counts; sizes that follow from the options, such as steps, batches and
 * operations.
 */
#include "agents/agents.h"
#include "learner.h"
#include "plan.h"
#include "run/run.h"
#include "trainer.h"
#include "vapor.h"

#include <math.h>
#include <string.h>

/*
 * The largest micro-batches, rounds and passes, and the memory that they take of what training
 * shares with rollout (docs/design.md#memory-in-two-phases).
 */

/* ---------------- the largest micro-batch */
/* Tokens of the largest pass that is considered. */
enum { PEAK_TOKENS = 1 << 28 };

/*
 * Groups of n rows of full length, as many as a mini-batch has on a rank, cut as a run cuts them.
 * budget: tokens of a micro-batch; m: prompt, response and per_optimizer are there
 */
static void cut_groups(int64_t budget, int64_t n, bool share, peak_micro *m)
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
    m->tokens = ARES_MIN(m->tokens, PEAK_TOKENS);
    m->out = ARES_MIN(m->out, PEAK_TOKENS);
    ares_free(cuts);
    ares_free(prompt);
    ares_batch_fini(&b);
}

/* longest: tokens of a row at most; reinforcement false: supervised training */
static void peak_micro_of(const ares_train_config *c, int ranks, bool reinforcement,
                          int64_t longest, peak_micro *m)
{
    bool sft = !reinforcement, share = !sft && c->actor.share_prompts,
         agents = c->agents_train.tags.count > 0;
    int64_t n = sft ? 1 : c->rollout.n;
    *m = (peak_micro){ 0 };
    m->prompt = sft ? 1 : ARES_MAX(1, ARES_MIN(c->data.max_prompt_length, longest - 1));
    int64_t most = (sft ? c->sft.max_length : longest) - m->prompt;
    m->response = ARES_MAX(1, sft || agents ? most : ARES_MIN(c->data.max_response_length, most));
    int64_t rows = sft                                             ? c->sft.batch_size
                   : strcmp(c->actor.mini_batch_unit, "rows") == 0 ? c->actor.global_batch_size
                                                                   : c->actor.global_batch_size * n;
    rows = (rows + ranks - 1) / ranks;
    m->per_optimizer = ARES_MAX(1, share ? (rows + n - 1) / n : rows);
    cut_groups(c->actor.max_token_len, n, share, m);
}

/*
 * VAPOR's stored answers: two to each prompt of a mini-batch. Prompts are as long as they may be
 * where that leaves room for answers of data.max_response_length.
 */
static void peak_pairs_of(const ares_train_config *c, int ranks, peak_micro *m)
{
    int64_t longest = c->vapor.max_pair_length;
    *m = (peak_micro){ 0 };
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

/* Micro-batches of a rank in an update, and in the passes over a batch. */
static int64_t peak_in_update(const peak_micro *m)
{
    return divided(m->per_optimizer, m->groups);
}
static int64_t in_batch(const ares_train_config *c, const peak_micro *m)
{
    return peak_in_update(m) * ARES_MAX(1, c->data.rollout_batch_size / c->actor.global_batch_size);
}

/*
 * The passes of an update, as if all n micro-batches of a round went through the model together.
 * most: tokens of a round at most, which groups of less than full length fill up; null: all of the
 * mini-batch. m: as the role cuts it
 */
static peak_pass trained(const peak_micro *m, int64_t most)
{
    int64_t units = m->per_optimizer, tokens = m->per_optimizer * m->group;
    if (most == ARES_NULL_I64) most = tokens;
    else units = ARES_MIN(units, ARES_MAX(1, most / m->group));
    peak_pass r = { .tokens = m->tokens,
                    .out = m->out,
                    .n = divided(units, m->groups),
                    .filled = divided(ARES_MIN(most, tokens), m->tokens),
                    .rounds = divided(m->per_optimizer, units) };
    if (m->tokens <= most) return r;
    r.tokens = ARES_MIN(m->tokens, ARES_MAX(m->group, most)); /* a round is less */
    r.out = divided(m->out * r.tokens, m->tokens);
    return r;
}
/* Fewer micro-batches at once where the learner, or the one beside it, lets fewer through. */
static void together(const learner *l, const learner *with, peak_pass *p)
{
    p->n = learner_micro_batches_per_round(l, with, p->n);
    p->filled = learner_micro_batches_per_round(l, with, p->filled);
}

/* The passes that only score. all: micro-batches of the batch, or of the mini-batch */
static peak_pass scored(const learner *l, const learner *with, const peak_micro *m, int64_t all)
{
    int64_t n = learner_scored_together(l, with, all, m->groups * m->group);
    return (peak_pass){ m->tokens, m->out, n, n, divided(all, n) };
}

/* Whether rewards have an exact KL, for which policy and reference go over a batch together. */
static bool compares_batch(const ares_trainer *t)
{
    return t->ref && !t->actor.kl->value && !actor_beside(&t->actor);
}

void peak_of_actor(const ares_trainer *t, const peak_micro *m, peak_passes *out)
{
    const ares_train_config *c = t->run.cfg;
    const learner *l = &t->actor.learner;
    *out = (peak_passes){ 0 };
    out->trained = trained(m, c->actor.round_tokens);
    together(l, t->ref ? actor_beside(&t->actor) : NULL, &out->trained);
    out->scored = scored(l, compares_batch(t) ? &t->ref->learner : NULL, m, in_batch(c, m));
    if (!compares_batch(t) && !c->actor.recompute_log_probs) out->scored.rounds = 0;
}

void peak_of_pairs(const ares_trainer *t, const peak_micro *pairs, peak_passes *out)
{
    const learner *l = &t->actor.learner;
    *out = (peak_passes){ 0 };
    if (!pairs->tokens) return;
    out->trained = trained(pairs, t->run.cfg->actor.round_tokens);
    together(l, NULL, &out->trained);
    out->scored = scored(l, NULL, pairs, peak_in_update(pairs));
}

/* Its micro-batches are cut by limits of its own. m: the actor's */
void peak_of_critic(const ares_trainer *t, const peak_micro *m, peak_passes *out)
{
    const ares_train_config *c = t->run.cfg;
    const learner *l = &t->critic->learner;
    bool share = c->critic.share_prompts;
    int64_t n = c->rollout.n, mini = c->critic.global_batch_size,
            rows = m->per_optimizer * (c->actor.share_prompts ? n : 1), of_actor = rows;
    if (mini != ARES_NULL_I64)
        rows = (rows * mini + c->actor.global_batch_size - 1) / c->actor.global_batch_size;
    peak_micro own = { .prompt = m->prompt,
                       .response = m->response,
                       .per_optimizer = share ? (rows + n - 1) / n : rows };
    cut_groups(c->critic.max_token_len, n, share, &own);
    out->trained = trained(&own, c->critic.round_tokens);
    together(l, NULL, &out->trained);
    out->scored = scored(l, NULL, &own, divided(in_batch(c, &own) * of_actor, rows));
}

void peak_of_reference(const ares_trainer *t, const peak_micro *m, const peak_micro *pairs,
                       peak_pass *own, peak_pass *of_pairs)
{
    const ares_train_config *c = t->run.cfg;
    const learner *l = &t->ref->learner, *policy = &t->actor.learner;
    *own = scored(l, compares_batch(t) ? policy : NULL, m, in_batch(c, m));
    *of_pairs = (peak_pass){ 0 };
    if (pairs->tokens) *of_pairs = scored(l, NULL, pairs, in_batch(c, pairs));
    if (!actor_beside(&t->actor)) return;
    const peak_pass beside = trained(m, c->actor.round_tokens); /* the policy's, in its update */
    own->n = ARES_MAX(own->n, learner_micro_batches_per_round(l, policy, beside.n));
}

/* ---------------- images */
/* Tokens of the largest image, of a prompt with room for so many. */
static int peak_image(const ares_trainer *t, int64_t room, int64_t *tokens)
{
    const ares_train_config *c = t->run.cfg;
    const ares_processor *p = &t->run.row_media.processor;
    const ares_media_options o = {
        .min_pixels = c->data.min_pixels == ARES_NULL_I64 ? 0 : c->data.min_pixels,
        .max_pixels = c->data.max_pixels == ARES_NULL_I64 ? 0 : c->data.max_pixels,
    };
    int32_t patches;
    ARES_TRY(ares_media_largest(p, &o, &patches));
    *tokens = ARES_MIN(patches / (p->merge * p->merge), room);
    return ARES_OK;
}

static int32_t peak_patches(const ares_model *m, int64_t tokens)
{
    return (int32_t)tokens * m->cfg.vision.merge * m->cfg.vision.merge;
}

/* ---------------- the memory of training's phase */
static int64_t at_most(const peak_pass *p)
{
    return ARES_MAX(p->n, p->filled);
}

/*
 * Tells the workspace its largest passes; returns the bytes of gradients and activations. Each
 * token may be an output, because prompts may be short. A buffer that grew beyond what was
 * announced would move, and the memory that it had would be unused until the phase ends.
 */
static size_t announce(learner *l, const peak_passes *p)
{
    const peak_pass *of[] = { &p->scored, &p->trained };
    size_t bytes = 0;
    for (int i = 0; i < ARES_COUNT(of); i++) {
        int32_t rows = (int32_t)of[i]->tokens;
        int64_t n = at_most(of[i]);
        bool keep = of[i] == &p->trained;
        if (n) bytes = ares_workspace_expect(l->workspace, rows, rows, (int)n, keep);
    }
    return ares_phase_size(learner_params(l)->grads_bytes) + bytes;
}

int peak_reserve(ares_trainer *t, int ranks, size_t *bytes)
{
    const ares_train_config *c = t->run.cfg;
    ares_model *model = t->run.model;
    learner *l = &t->actor.learner;
    peak_micro m, pairs;
    peak_passes p;
    int64_t image; /* tokens */
    *bytes = 0;
    if (c->trainer.val_only) return ARES_OK;
    peak_micro_of(c, ranks, true, trainer_longest(t), &m);
    peak_pairs_of(c, ranks, &pairs);
    peak_of_actor(t, &m, &p);
    size_t actor = announce(l, &p), of_pairs = 0,
           scratch = learner_expect_backward(l, (int32_t)p.trained.tokens, at_most(&p.trained), 0);
    if (pairs.tokens) {
        peak_of_pairs(t, &pairs, &p);
        of_pairs = announce(l, &p);
        scratch = learner_expect_backward(l, (int32_t)p.trained.tokens, at_most(&p.trained), 0);
    }
    *bytes = ARES_MAX(actor, of_pairs) + scratch;
    if (t->critic) {
        peak_of_critic(t, &m, &p);
        *bytes += announce(&t->critic->learner, &p);
        *bytes += critic_expect(t->critic, (int32_t)p.trained.tokens, at_most(&p.trained));
    }
    if (!ares_model_trains_tower(model, l->adapter)) return ARES_OK;
    ARES_TRY(peak_image(t, m.prompt, &image));
    *bytes += ares_phase_size(
        ares_model_features_bytes(model, l->adapter, peak_patches(model, image), l->tower_keep));
    return ARES_OK;
}

void peak_unreserve(ares_trainer *t)
{
    learner *all[] = { &t->actor.learner, t->critic ? &t->critic->learner : NULL };
    for (int i = 0; i < ARES_COUNT(all); i++) {
        if (!all[i]) continue;
        ares_workspace_forget(all[i]->workspace);
        all[i]->scratch_bytes = 0;
    }
}

/*
 * Memory of images beside the tokens that they become: passes of the tower beside the rollout's
 * cache, and pixels and features on the host. Rows of full length are full of images: as many of
 * the largest as data.max_pixels and worker.rollout.limit_images let into a prompt. The models are
 * open, and the micro-batch is known.
 */
static int count_pictures(ares_trainer *t, const plan_where *where, plan *p)
{
    const ares_train_config *c = t->run.cfg;
    ares_model *m = t->run.model;
    const ares_vision_config *v = &m->cfg.vision;
    plan_pictures *s = &p->pictures;
    double before = (double)t->run.device.allocated;
    if (!v->depth) return ARES_OK;
    ARES_TRY(ares_media_rules_load(&m->cfg, t->run.model_dir.data, &t->run.row_media));
    s->room = where->reinforcement ? p->micro.prompt : p->micro.prompt + p->micro.response;
    ARES_TRY(peak_image(t, s->room, &s->tokens));
    int64_t limit = c->rollout.limit_images,
            row = limit ? ARES_MIN(s->room, limit * s->tokens) : s->room,
            rows = where->reinforcement ? c->data.rollout_batch_size : c->sft.batch_size;
    /* the pictures of a validation's batch are there together */
    if (where->val_longest) rows = ARES_MAX(rows, c->data.val_batch_size);
    s->step = (rows + where->ranks - 1) / where->ranks * row;

    /* on the host pixels are bytes, and the tower reads one picture at a time as f32 */
    bool trained = ares_model_trains_tower(m, t->run.adapter),
         own = t->ref && reference_sees(&t->run);
    double bytes = (double)v->channels * v->patch * v->patch * v->merge * v->merge,
           features = (double)v->out * sizeof(float), step = (double)s->step;
    s->values = bytes * v->temporal * sizeof(float);
    s->pixels = step * bytes + (double)s->tokens * s->values;
    /* policy and reference have the same features where the tower is frozen */
    s->features = step * features * (own ? 2 : 1);
    s->stored = trained && !t->ref ? 0 : c->data.vision_cache_gb * 1e9;

    ARES_TRY(ares_model_features_reserve(m, t->run.adapter, peak_patches(m, s->tokens),
                                         ARES_KEEP_NOTHING));
    if (own && t->ref->learner.model->cfg.vision.depth)
        ARES_TRY(ares_model_features_reserve(t->ref->learner.model, t->ref->learner.adapter,
                                             peak_patches(t->ref->learner.model, s->tokens),
                                             ARES_KEEP_NOTHING));
    for (int phase = 0; phase < PLAN_PHASES; phase++) {
        p->bytes[PLAN_TOWER][phase] += (double)t->run.device.allocated - before;
        if (!p->card) p->bytes[PLAN_PICTURES][phase] += s->pixels + s->features + s->stored;
    }
    return ARES_OK;
}

/* The memory of the tower is in proportion to the tokens that it reads. */
double plan_longest_video(const plan *p)
{
    const plan_pictures *s = &p->pictures;
    const double *tower = p->bytes[PLAN_TOWER];
    if (s->room <= s->tokens) return 0;
    double more = (double)(s->room - s->tokens),
           of_tower = ARES_MAX(tower[PLAN_ROLLOUT], tower[PLAN_TRAINING]) / (double)s->tokens;
    return more * (of_tower + (p->card ? 0 : s->values));
}

/*
 * Bytes by owner. The learners, the rollout engine and the workspaces of a run are opened on a
 * counting device by the functions that open them in a run, so there is no second formula: what
 * each has taken is the growth of the device's count.
 */

/*
 * Bytes of CUDA's context, cuBLAS, the head's chunk of logits, the keys that attention gathers and
 * other scratch of kernels and libtorch: an assumption, because it cannot be measured without a
 * card.
 */
static const double BASE_OF_CARD = 4e9;

const char *const plan_owner_names[PLAN_OWNERS_N] = {
#define OWNER(name, text) text,
    PLAN_OWNERS(OWNER)
#undef OWNER
};

/* Bytes that the device has handed out since *before was set, which is set anew. */
static double grown(const ares_device *d, size_t *before)
{
    double bytes = (double)d->allocated - (double)*before;
    *before = d->allocated;
    return bytes;
}

static void both(plan *p, plan_owner owner, double bytes)
{
    p->bytes[owner][PLAN_ROLLOUT] += bytes;
    p->bytes[owner][PLAN_TRAINING] += bytes;
}

/* ---------------- the parts of a run */
static int open_actor(ares_trainer *t, plan *p, const plan_where *where)
{
    const ares_train_config *c = t->run.cfg;
    ares_device *d = &t->run.device;
    size_t at = 0;
    ARES_TRY(sharing_open(&t->run.groups, c, NULL, d, where->ranks));
    ARES_TRY(ares_model_find(c->actor.model_path, &t->run.model_dir));
    ARES_TRY(training_open_weights(&t->run, NULL));
    p->model = t->run.model->cfg;
    p->how = t->run.model->params.share.how;
    p->parameters = (double)ares_params_count(&t->run.model->params);
    double host = p->card ? 0 : (double)t->run.model->params.host_weights_bytes,
           weights = (double)t->run.model->params.weights_bytes + host;
    if (t->run.adapter) weights += (double)t->run.adapter->params.weights_bytes;
    both(p, PLAN_WEIGHTS, weights);
    both(p, PLAN_GRADIENTS, grown(d, &at) - weights);
    if (c->trainer.val_only) return ARES_OK;
    if (where->reinforcement)
        ARES_TRY(
            actor_open(&t->actor, c, t->run.model, t->run.adapter, NULL, NULL, t->run.total_steps));
    else
        ARES_TRY(learner_open(
            &t->actor.learner, t->run.model,
            &(learner_options){ .role = "actor",
                                .adapter = t->run.adapter,
                                .optim = &c->optim,
                                .total_steps = t->run.total_steps,
                                .gradient_checkpointing = c->actor.gradient_checkpointing }));
    both(p, PLAN_STATES, grown(d, &at));
    return ARES_OK;
}

static int open_others(ares_trainer *t, plan *p)
{
    const ares_train_config *c = t->run.cfg;
    ares_device *d = &t->run.device;
    size_t at = d->allocated;
    t->adv = ares_adv_find(c->algorithm.adv_estimator);
    if (!t->adv) return ARES_ECONFIG;
    if (trainer_needs_critic(c)) ARES_TRY(trainer_open_critic(t, NULL));
    both(p, PLAN_CRITIC, grown(d, &at));
    if (trainer_needs_reference(c)) ARES_TRY(trainer_open_reference(t, NULL));
    both(p, PLAN_REFERENCE, grown(d, &at));
    if (!teacher_wanted(c)) return ARES_OK;
    t->teacher = ares_calloc(1, sizeof *t->teacher);
    t->actor.teacher = t->teacher;
    ARES_TRY(teacher_open_weights(t->teacher, &t->run, t->ref, NULL));
    both(p, PLAN_TEACHER, grown(d, &at));
    return ARES_OK;
}

/* Where no cache fits, the least one is counted, so that the plan can say how much is missing. */
static int open_rollout(ares_trainer *t, const plan_where *where, plan *p)
{
    ares_device *d = &t->run.device;
    size_t at = d->allocated;
    ares_rollout_stats stats;
    const ares_train_config *cfg = t->run.cfg;
    ares_train_config least = *cfg;
    /* one sample of full length, as the engine and the check of cache_tokens count it */
    int64_t row = cfg->data.max_prompt_length + cfg->data.max_response_length,
            longest = agents_wanted(cfg) ? trainer_longest(t) : ARES_MAX(trainer_longest(t), row);
    p->cache_tokens_least = ((longest + ARES_KV_BLOCK - 1) / ARES_KV_BLOCK + 2) * ARES_KV_BLOCK;
    int rc = trainer_open_rollout(t, where->ranks);
    if (rc == ARES_ELIMIT && least.rollout.cache_tokens == ARES_NULL_I64) {
        ares_error_clear();
        p->no_cache = true;
        least.rollout.cache_tokens = p->cache_tokens_least;
        t->run.cfg = &least;
        rc = trainer_open_rollout(t, where->ranks);
        t->run.cfg = cfg;
    }
    if (rc != ARES_OK) return rc;
    ares_rollout_get_stats(t->rollout, &stats);
    double weights = t->slice ? (double)t->slice->params.weights_bytes : 0,
           all = grown(d, &at) - weights, cache = (double)ares_rollout_cache_bytes(t->rollout);
    p->shared = (double)ares_phases_bytes(d);
    p->cache_tokens = (double)(stats.total_blocks * ARES_KV_BLOCK);
    p->slice = weights;
    both(p, PLAN_WEIGHTS, weights);
    both(p, PLAN_CACHE, cache);
    double spare = p->shared > 0 ? p->shared - weights - cache : 0;
    both(p, PLAN_SPARE, spare);
    int32_t room;
    double state = (double)ares_rollout_state_bytes(t->rollout, &room);
    both(p, PLAN_BUFFERS, all - cache - spare - state * room);
    /* of samples that are decoded together, of what starts and drafts, and snapshots */
    both(p, PLAN_NETS,
         state * (double)(room - cfg->rollout.max_num_seqs + trainer_running(t, where->ranks)));
    return ARES_OK;
}

/*
 * Counts what a pass keeps for its backward: `kept` bytes, of which `taken` come from the device.
 * The others come from memory that rollout has in the other phase: first its copy of weights, then
 * the cache.
 */
static void keep_activations(plan *p, plan_owner owner, double taken, double kept)
{
    double *cache = &p->bytes[PLAN_CACHE][PLAN_TRAINING], lent = kept - taken,
           of_slice = ARES_MIN(lent, p->slice), of_cache = ARES_MIN(lent - of_slice, *cache);
    p->bytes[owner][PLAN_ROLLOUT] += taken;
    p->bytes[owner][PLAN_TRAINING] += kept;
    p->lent[owner] += lent;
    p->slice -= of_slice;
    p->bytes[PLAN_WEIGHTS][PLAN_TRAINING] -= of_slice;
    *cache -= of_cache;
    p->bytes[PLAN_SPARE][PLAN_TRAINING] -= lent - of_slice - of_cache;
}

static int reserve(learner *l, const peak_pass *p, bool keep)
{
    if (!p->n || !p->rounds) return ARES_OK;
    return ares_workspace_reserve(l->workspace, (int32_t)p->tokens, (int32_t)p->out, (int)p->n,
                                  keep);
}

static int train_actor(ares_trainer *t, plan *p)
{
    learner *l = &t->actor.learner;
    ares_model *m = t->run.model;
    size_t at = t->run.device.allocated;
    double kept;
    peak_passes of;
    peak_of_actor(t, &p->micro, &of);
    p->actor_rounds = of.trained.rounds;
    ARES_TRY(reserve(l, &of.scored, false));
    kept = (double)ares_workspace_bytes(l->workspace);
    keep_activations(p, PLAN_ACTIVATIONS, grown(&t->run.device, &at), kept);
    ARES_TRY(ares_params_zero_grad(learner_params(l)));
    keep_activations(p, PLAN_GRADIENTS, grown(&t->run.device, &at),
                     (double)learner_params(l)->of_training.bytes);
    ARES_TRY(reserve(l, &of.trained, true));
    keep_activations(p, PLAN_ACTIVATIONS, grown(&t->run.device, &at),
                     (double)ares_workspace_bytes(l->workspace) - kept);
    ARES_TRY(learner_reserve_backward(l, (int32_t)of.trained.out, of.trained.n, 0));
    keep_activations(p, PLAN_SCRATCH, grown(&t->run.device, &at), (double)l->scratch.bytes);
    if (!ares_model_trains_tower(m, l->adapter)) return ARES_OK;
    ARES_TRY(ares_model_features_reserve(m, l->adapter, peak_patches(m, p->pictures.tokens),
                                         l->tower_keep));
    keep_activations(p, PLAN_TOWER, grown(&t->run.device, &at), (double)m->tower.of_training.bytes);
    return ARES_OK;
}

static int train_pairs(ares_trainer *t, plan *p)
{
    learner *l = &t->actor.learner;
    size_t at = t->run.device.allocated;
    double before = (double)ares_workspace_bytes(l->workspace);
    peak_passes of;
    peak_of_pairs(t, &p->pairs, &of);
    if (!p->pairs.tokens) return ARES_OK;
    p->pair_rounds = of.trained.rounds;
    ARES_TRY(reserve(l, &of.scored, false));
    ARES_TRY(reserve(l, &of.trained, true));
    keep_activations(p, PLAN_ACTIVATIONS, grown(&t->run.device, &at),
                     (double)ares_workspace_bytes(l->workspace) - before);
    before = (double)l->scratch.bytes;
    ARES_TRY(learner_reserve_backward(l, (int32_t)of.trained.out, of.trained.n, 0));
    keep_activations(p, PLAN_SCRATCH, grown(&t->run.device, &at),
                     (double)l->scratch.bytes - before);
    return ARES_OK;
}

static int train_reference(ares_trainer *t, plan *p)
{
    size_t at = t->run.device.allocated;
    peak_pass own, of_pairs;
    peak_of_reference(t, &p->micro, &p->pairs, &own, &of_pairs);
    ARES_TRY(reserve(&t->ref->learner, &own, false));
    ARES_TRY(reserve(&t->ref->learner, &of_pairs, false));
    both(p, PLAN_PASSES, grown(&t->run.device, &at));
    return ARES_OK;
}

static int train_teacher(ares_trainer *t, plan *p)
{
    const ares_train_config *c = t->run.cfg;
    const learner *l = t->teacher->learner;
    size_t at = t->run.device.allocated;
    peak_pass own = scored(l, NULL, &p->micro, in_batch(c, &p->micro));
    const peak_pass beside = trained(&p->micro, c->actor.round_tokens); /* the policy's */
    if (actor_beside(&t->actor))
        own.n = ARES_MAX(own.n, learner_micro_batches_per_round(l, &t->actor.learner, beside.n));
    ARES_TRY(reserve(t->teacher->learner, &own, false));
    both(p, PLAN_PASSES, grown(&t->run.device, &at));
    return ARES_OK;
}

static int train_critic(ares_trainer *t, plan *p)
{
    learner *l = &t->critic->learner;
    size_t at = t->run.device.allocated;
    double kept;
    peak_passes of;
    peak_of_critic(t, &p->micro, &of);
    p->critic_rounds = of.trained.rounds;
    ARES_TRY(reserve(l, &of.scored, false));
    kept = (double)ares_workspace_bytes(l->workspace);
    keep_activations(p, PLAN_PASSES, grown(&t->run.device, &at), kept);
    ARES_TRY(ares_params_zero_grad(learner_params(l)));
    keep_activations(p, PLAN_CRITIC, grown(&t->run.device, &at),
                     (double)learner_params(l)->of_training.bytes);
    ARES_TRY(reserve(l, &of.trained, true));
    keep_activations(p, PLAN_PASSES, grown(&t->run.device, &at),
                     (double)ares_workspace_bytes(l->workspace) - kept);
    ARES_TRY(critic_reserve(t->critic, (int32_t)of.trained.out, of.trained.n));
    keep_activations(p, PLAN_PASSES, grown(&t->run.device, &at), (double)l->scratch.bytes);
    return ARES_OK;
}

/* Opens the parts of a run, and makes room for its largest passes, in the order of a run. */
static int rehearse(ares_trainer *t, const plan_where *where, plan *p)
{
    const ares_train_config *c = t->run.cfg;
    ARES_TRY(open_actor(t, p, where));
    if (where->reinforcement && !c->trainer.val_only) ARES_TRY(open_others(t, p));
    int64_t longest = where->reinforcement ? trainer_longest(t) : c->sft.max_length;
    peak_micro_of(c, where->ranks, where->reinforcement, longest, &p->micro);
    if (where->reinforcement) {
        peak_pairs_of(c, where->ranks, &p->pairs);
        p->answered = (c->data.rollout_batch_size * c->rollout.n + where->ranks - 1) / where->ranks;
    }
    ARES_TRY(count_pictures(t, where, p));
    if (c->rollout.tensor_parallel_size > 1)
        ARES_TRY(
            ares_group_open(NULL, &t->run.device, (int)c->rollout.tensor_parallel_size, 1, &t->tp));
    if (where->reinforcement) ARES_TRY(open_rollout(t, where, p));
    if (c->trainer.val_only) return ARES_OK;
    int64_t part, model = state_written_bytes(&t->run, false, where->ranks, &part),
                  whole = state_written_bytes(&t->run, true, where->ranks, &part);
    bool states = !c->trainer.save_model_only || !ares_is_null_f64(c->trainer.save_minutes);
    p->checkpoint = (double)(where->ranks * whole);
    p->checkpoint_model = (double)(where->ranks * model);
    if (!states) (void)state_written_bytes(&t->run, false, where->ranks, &part);
    if (c->trainer.save_async) p->copied = (double)(states ? whole : model);
    if (!p->card) { /* in host memory, which is not in a card's table */
        both(p, PLAN_COPY, p->copied);
        both(p, PLAN_WRITING, (double)part);
    }
    ARES_TRY(train_actor(t, p));
    ARES_TRY(train_pairs(t, p));
    if (t->ref) ARES_TRY(train_reference(t, p));
    if (t->teacher) ARES_TRY(train_teacher(t, p));
    return t->critic ? train_critic(t, p) : ARES_OK;
}

/* ---------------- what fits */
/* Bytes of an update's pass of so many tokens, each an output of the head, n times in a round. */
static double pass_bytes(ares_model *m, bool checkpointing, int64_t tokens, int64_t n)
{
    ares_device *d = m->device;
    struct ares_phases *phases = d->phases;
    size_t before = d->allocated;
    ares_workspace *w;
    d->phases = NULL; /* all of it is counted */
    ares_keep keep = checkpointing ? ARES_KEEP_INPUTS : ARES_KEEP_ALL;
    double row = (double)m->cfg.hidden * (double)ares_dtype_bytes(d->k->act),
           bytes = (double)n * (double)tokens * row;
    (void)ares_workspace_new(m, keep, &w);
    if (ares_workspace_reserve(w, (int32_t)tokens, (int32_t)tokens, (int)n, true) != ARES_OK)
        ares_error_clear();
    bytes += (double)(d->allocated - before);
    ares_workspace_free(w);
    d->phases = phases;
    return bytes;
}

/* Searches for the largest micro-batch, in tokens, that the other owners leave memory for. */
static void most_that_fits(ares_trainer *t, const plan_where *where, plan *p)
{
    static const plan_owner own[] = { PLAN_ACTIVATIONS, PLAN_SCRATCH }; /* of a micro-batch */
    const ares_train_config *c = t->run.cfg;
    const peak_micro *m = &p->micro;
    double others = p->total[PLAN_TRAINING] - p->shared; /* beside what the phases share */
    for (int i = 0; i < PLAN_OWNERS_N; i++) others += p->lent[i];
    for (int i = 0; i < ARES_COUNT(own); i++) others -= p->bytes[own[i]][PLAN_TRAINING];
    double left = where->memory - others;
    learner *l = &t->actor.learner;
    bool inputs = c->actor.gradient_checkpointing || ares_params_by_region(&t->run.model->params);
    int64_t lo = plan_fits(p, where) ? m->tokens : 0, hi = PEAK_TOKENS,
            all = (m->per_optimizer + p->actor_rounds - 1) / p->actor_rounds * m->group;
    while (lo + 1 < hi) {
        int64_t mid = lo + (hi - lo) / 2,
                n = learner_micro_batches_per_round(l, NULL, (all + mid - 1) / mid);
        if (pass_bytes(t->run.model, inputs, mid, n) <= left) lo = mid;
        else hi = mid;
    }
    bool share = where->reinforcement && c->actor.share_prompts;
    int64_t n = share ? c->rollout.n : 1, response = (lo - m->prompt) / n + 1;
    p->most_micro = lo;
    p->most_row = ARES_MAX(0, m->prompt + response);
}

double plan_needs(const plan *p)
{
    return ARES_MAX(p->total[PLAN_ROLLOUT], p->total[PLAN_TRAINING]);
}

bool plan_fits(const plan *p, const plan_where *where)
{
    return !p->no_cache && plan_needs(p) <= where->memory;
}

int plan_measure(const ares_train_config *c, const plan_where *where, plan *p)
{
    ares_trainer *t = ares_calloc(1, sizeof *t);
    *p = (plan){ .card = strncmp(c->trainer.device, "cuda", 4) == 0, .ranks = where->ranks };
    training_init(&t->run, c, NULL);
    ares_batch_init(&t->batch);
    t->val_longest = where->val_longest;
    t->run.total_steps = 1; /* any number: only the schedule of the learning rate reads it */
    /* 0 for a card of unknown memory: its cache is then as large as a CPU's would be */
    ares_device_open_counting(c->trainer.device, c->trainer.kernels, training_storage(c),
                              isfinite(where->memory) ? where->memory : 0, &t->run.device);
    int rc = rehearse(t, where, p);
    if (rc == ARES_OK) {
        if (!p->card) plan_count_host(t, where, p);
        if (p->card) both(p, PLAN_BASE, BASE_OF_CARD);
        for (int phase = 0; phase < PLAN_PHASES; phase++)
            for (int i = 0; i < PLAN_OWNERS_N; i++) p->total[phase] += p->bytes[i][phase];
        p->allocated = (double)t->run.device.most_allocated;
        if (!c->trainer.val_only) {
            most_that_fits(t, where, p);
            int64_t mini = where->reinforcement ? c->actor.global_batch_size : c->sft.batch_size,
                    batch = where->reinforcement ? c->data.rollout_batch_size : mini;
            p->updates = ARES_MAX(1, batch / mini) * c->actor.ppo_epochs;
            p->sent = plan_sent(t, p);
        }
    }
    trainer_close(t);
    ares_free(t);
    return rc;
}

/*
 * Numbers that follow from the options: steps of a run, sizes of a batch, floating-point operations
 * (docs/update.md#sizes-that-follow-from-the-options).
 */

int64_t train_total_steps(int64_t examples, int64_t drawn, int64_t batch, int64_t epochs,
                          int64_t max_steps)
{
    if (max_steps != ARES_NULL_I64) return max_steps;
    if (drawn == ARES_NULL_I64) drawn = batch;
    /* the remainder of an epoch that makes no draw is left out */
    return examples / drawn * drawn / batch * epochs;
}

bool train_is_due(int64_t step, int64_t total, int64_t every, int64_t epoch)
{
    return step >= total || (every > 0 && (step % every == 0 || (epoch > 0 && step % epoch == 0)));
}

train_sizes train_sizes_of(int64_t batch, int64_t mini_batch, int64_t n, int64_t world,
                           int64_t ulysses, int64_t micro)
{
    train_sizes s = { .global_samples = mini_batch * n, .updates = batch / mini_batch };
    s.per_device = s.global_samples * ulysses / world;
    s.accumulation = micro > 0 ? s.per_device / micro : 0;
    return s;
}

/*
 * Three passes (forward, and two products in backward) of two operations per weight and token, and
 * the products of attention over all pairs of tokens, as EasyR1 counts them.
 */
double train_tflops(const flops_config *c, double tokens, double squares, double seconds)
{
    double h = (double)c->hidden, a = (double)c->heads, k = (double)c->kv_heads,
           d = c->head_dim ? (double)c->head_dim : h / a;
    double layer = 3 * h * (double)c->intermediate + h * (a * d + 2 * k * d + a * d);
    double weights = (double)c->layers * layer + 2 * (double)c->vocab * h;
    return (6 * weights * tokens + 12 * d * a * (double)c->layers * squares) / seconds / 1e12;
}

int64_t train_work(const ares_model_config *m, int64_t tokens, int64_t squares)
{
    flops_config c = { m->hidden,  m->vocab,    m->layers,
                       m->heads,   m->kv_heads, llround(ares_model_config_mlp_width(m)),
                       m->head_dim };
    /* pairs of tokens in attention that cost as much as one token elsewhere */
    double pairs = train_tflops(&c, 1, 0, 1) / train_tflops(&c, 0, 1, 1);
    return tokens * (int64_t)llround(pairs) + squares;
}

/*
 * TFLOP/s of dense bf16 products, and the memory of the largest variant. The first entry whose name
 * is part of the card's counts, so H200 stands before H20.
 */
static const struct card {
    const char *name;
    double tflops, gigabytes;
} cards[] = {
    { "H200", 989, 141 }, { "H100", 989, 96 }, { "H800", 989, 94 },
    { "A100", 312, 80 },  { "A800", 312, 80 }, { "L40", 181.05, 48 },
    { "L20", 119.5, 48 }, { "H20", 148, 141 }, { "910B", 354, 64 },
};

static const struct card *card_of(const char *name)
{
    for (int i = 0; name && i < ARES_COUNT(cards); i++)
        if (strstr(name, cards[i].name)) return &cards[i];
    return NULL;
}

double train_peak_tflops(const char *name)
{
    return card_of(name) ? card_of(name)->tflops : INFINITY;
}
double train_card_bytes(const char *name)
{
    return card_of(name) ? card_of(name)->gigabytes * 1e9 : INFINITY;
}
