/*
 * Bytes by owner. The learners, the rollout engine and the workspaces of a run are opened on a
 * counting device by the functions that open them in a run, so there is no second formula: what
 * each has taken is the growth of the device's count.
 */
#include <math.h>
#include <string.h>

#include "agents/agents.h"
#include "options/sharing.h"
#include "plan/plan.h"
#include "run/state.h"
#include "trainer.h"
#include "vapor/vapor.h"

/*
 * CUDA's context, cuBLAS, the head's chunk of logits, the keys that attention gathers and other
 * scratch of kernels and libtorch: an assumption, nobody can know it here.
 */
static const double BASE_OF_CARD = 4e9;

const char *const plan_owner_names[PLAN_OWNERS_N] = {
#define OWNER(name, text) text,
    PLAN_OWNERS(OWNER)
#undef OWNER
};

/* What the device has handed out since the last call. */
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
    const ares_model_share share = sharing_of_actor(c, &t->run.groups);
    ares_model_options opt = { .storage = training_storage(c),
                               .trainable = !c->trainer.val_only,
                               .freeze_vision = c->actor.freeze_vision,
                               .share = &share };
    ARES_TRY(ares_model_load(c->actor.model_path, d, &opt, &t->run.model));
    ARES_TRY(training_set_positions(&t->run.model->cfg, c->published.actor_override));
    p->model = t->run.model->cfg;
    p->how = share.how;
    p->parameters = (double)ares_model_count(t->run.model);
    double host = p->card ? 0 : (double)t->run.model->host_weights_bytes,
           weights = (double)t->run.model->weights_bytes + host;
    both(p, PLAN_WEIGHTS, weights);
    both(p, PLAN_GRADIENTS, grown(d, &at) - weights);
    if (c->trainer.val_only) return ARES_OK;
    if (where->reinforcement)
        ARES_TRY(actor_open(&t->actor, c, t->run.model, NULL, NULL, t->run.total_steps));
    else
        ARES_TRY(learner_open(
            &t->actor.learner, t->run.model,
            &(learner_options){ .role = "actor",
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
    if (t->adv->needs & ARES_NEEDS_VALUES) ARES_TRY(trainer_open_critic(t, NULL));
    both(p, PLAN_CRITIC, grown(d, &at));
    if (trainer_needs_reference(c)) ARES_TRY(trainer_open_reference(t, NULL));
    both(p, PLAN_REFERENCE, grown(d, &at));
    return ARES_OK;
}

/* Of one sample of full length, as the engine and the check of worker.rollout.cache_tokens count.
 */
static int64_t least_cache(const ares_trainer *t)
{
    const ares_train_config *c = t->run.cfg;
    int64_t row = c->data.max_prompt_length + c->data.max_response_length,
            longest = agents_wanted(c) ? trainer_longest(t) : ARES_MAX(trainer_longest(t), row);
    return ((longest + ARES_KV_BLOCK - 1) / ARES_KV_BLOCK + 2) * ARES_KV_BLOCK;
}

static int open_rollout(ares_trainer *t, const plan_where *where, plan *p)
{
    ares_device *d = &t->run.device;
    size_t at = d->allocated;
    ares_rollout_stats stats;
    const ares_train_config *cfg = t->run.cfg;
    ares_train_config least = *cfg;
    p->cache_tokens_least = least_cache(t);
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
    double weights = t->slice ? (double)t->slice->weights_bytes : 0, all = grown(d, &at) - weights,
           cache = (double)ares_rollout_cache_bytes(t->rollout);
    p->shared = (double)ares_phases_bytes(d);
    p->cache_tokens = (double)(stats.total_blocks * ARES_KV_BLOCK);
    p->slice = weights;
    both(p, PLAN_WEIGHTS, weights);
    both(p, PLAN_CACHE, cache);
    double spare = p->shared > 0 ? p->shared - weights - cache : 0;
    both(p, PLAN_SPARE, spare);
    both(p, PLAN_BUFFERS, all - cache - spare);
    return ARES_OK;
}

/*
 * What a pass keeps for its backward: `kept` bytes, of which `taken` come from the device and the
 * others from memory that rollout has in the other phase: its own weights first, then the cache.
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

static int reserve(learner *l, const largest_pass *p, bool keep)
{
    if (!p->n || !p->rounds) return ARES_OK;
    return ares_workspace_reserve(l->workspace, (int32_t)p->tokens, (int32_t)p->out, (int)p->n,
                                  keep);
}

static int train_actor(ares_trainer *t, plan *p)
{
    learner *l = &t->actor.learner;
    size_t at = t->run.device.allocated;
    double kept;
    largest_passes of;
    largest_of_actor(t, &p->micro, &of);
    p->actor_rounds = of.trained.rounds;
    ARES_TRY(reserve(l, &of.scored, false));
    kept = (double)ares_workspace_bytes(l->workspace);
    keep_activations(p, PLAN_ACTIVATIONS, grown(&t->run.device, &at), kept);
    ARES_TRY(ares_model_zero_grad(l->model));
    keep_activations(p, PLAN_GRADIENTS, grown(&t->run.device, &at),
                     (double)l->model->of_training.bytes);
    ARES_TRY(reserve(l, &of.trained, true));
    keep_activations(p, PLAN_ACTIVATIONS, grown(&t->run.device, &at),
                     (double)ares_workspace_bytes(l->workspace) - kept);
    ARES_TRY(learner_reserve_backward(l, (int32_t)of.trained.out, of.trained.n, 0));
    keep_activations(p, PLAN_SCRATCH, grown(&t->run.device, &at), (double)l->scratch.bytes);
    ARES_TRY(plan_count_tower_backward(t, p, &kept));
    keep_activations(p, PLAN_TOWER, grown(&t->run.device, &at), kept);
    return ARES_OK;
}

static int train_pairs(ares_trainer *t, plan *p)
{
    learner *l = &t->actor.learner;
    size_t at = t->run.device.allocated;
    double before = (double)ares_workspace_bytes(l->workspace);
    largest_passes of;
    largest_of_pairs(t, &p->pairs, &of);
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
    largest_pass own, of_pairs;
    largest_of_reference(t, &p->micro, &p->pairs, &own, &of_pairs);
    ARES_TRY(reserve(&t->ref->learner, &own, false));
    ARES_TRY(reserve(&t->ref->learner, &of_pairs, false));
    both(p, PLAN_PASSES, grown(&t->run.device, &at));
    return ARES_OK;
}

static int train_critic(ares_trainer *t, plan *p)
{
    learner *l = &t->critic->learner;
    size_t at = t->run.device.allocated;
    double kept;
    largest_passes of;
    largest_of_critic(t, &p->micro, &of);
    p->critic_rounds = of.trained.rounds;
    ARES_TRY(reserve(l, &of.scored, false));
    kept = (double)ares_workspace_bytes(l->workspace);
    keep_activations(p, PLAN_PASSES, grown(&t->run.device, &at), kept);
    ARES_TRY(ares_model_zero_grad(l->model));
    keep_activations(p, PLAN_CRITIC, grown(&t->run.device, &at),
                     (double)l->model->of_training.bytes);
    ARES_TRY(reserve(l, &of.trained, true));
    keep_activations(p, PLAN_PASSES, grown(&t->run.device, &at),
                     (double)ares_workspace_bytes(l->workspace) - kept);
    ARES_TRY(critic_reserve(t->critic, (int32_t)of.trained.out, of.trained.n));
    keep_activations(p, PLAN_PASSES, grown(&t->run.device, &at), (double)l->scratch.bytes);
    return ARES_OK;
}

/* In host memory: of a card's table it is no part. */
static void copy_checkpoint(const ares_trainer *t, const plan_where *where, plan *p)
{
    int64_t part, all = state_copied_bytes(&t->run, where->ranks, &part);
    if (t->run.cfg->trainer.save_async) p->copied = (double)all;
    if (p->card) return;
    both(p, PLAN_COPY, p->copied);
    both(p, PLAN_WRITING, (double)part);
}

static int rehearse(ares_trainer *t, const plan_where *where, plan *p)
{
    const ares_train_config *c = t->run.cfg;
    ARES_TRY(open_actor(t, p, where));
    if (where->reinforcement && !c->trainer.val_only) ARES_TRY(open_others(t, p));
    int64_t longest = where->reinforcement ? trainer_longest(t) : c->sft.max_length;
    largest_micro_of(c, where->ranks, where->reinforcement, longest, &p->micro);
    if (where->reinforcement) {
        largest_pairs_of(c, where->ranks, &p->pairs);
        p->answered = (c->data.rollout_batch_size * c->rollout.n + where->ranks - 1) / where->ranks;
    }
    ARES_TRY(plan_count_pictures(t, where, p));
    if (c->rollout.tensor_parallel_size > 1)
        ARES_TRY(
            ares_group_open(NULL, &t->run.device, (int)c->rollout.tensor_parallel_size, 1, &t->tp));
    if (where->reinforcement) ARES_TRY(open_rollout(t, where, p));
    if (c->trainer.val_only) return ARES_OK;
    copy_checkpoint(t, where, p);
    ARES_TRY(train_actor(t, p));
    ARES_TRY(train_pairs(t, p));
    if (t->ref) ARES_TRY(train_reference(t, p));
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

/* Bytes that a micro-batch may take: what the others leave of the memory given. */
static double left_for_micro_batch(const plan_where *where, const plan *p)
{
    static const plan_owner own[] = { PLAN_ACTIVATIONS, PLAN_SCRATCH };
    double others = p->total[PLAN_TRAINING] - p->shared; /* beside what the phases share */
    for (int i = 0; i < PLAN_OWNERS_N; i++) others += p->lent[i];
    for (int i = 0; i < ARES_COUNT(own); i++) others -= p->bytes[own[i]][PLAN_TRAINING];
    return where->memory - others;
}

static void most_that_fits(ares_trainer *t, const plan_where *where, plan *p)
{
    const ares_train_config *c = t->run.cfg;
    const largest_micro *m = &p->micro;
    double left = left_for_micro_batch(where, p);
    learner *l = &t->actor.learner;
    bool inputs = c->actor.gradient_checkpointing || ares_model_by_region(t->run.model);
    int64_t lo = plan_fits(p, where) ? m->tokens : 0, hi = LARGEST_TOKENS,
            all = (m->per_optimizer + p->actor_rounds - 1) / p->actor_rounds * m->group;
    while (lo + 1 < hi) {
        int64_t mid = lo + (hi - lo) / 2, n = learner_together(l, NULL, (all + mid - 1) / mid);
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

static void add_up(const ares_device *d, plan *p)
{
    if (p->card) both(p, PLAN_BASE, BASE_OF_CARD);
    for (int phase = 0; phase < PLAN_PHASES; phase++)
        for (int i = 0; i < PLAN_OWNERS_N; i++) p->total[phase] += p->bytes[i][phase];
    p->allocated = (double)d->most_allocated;
}

void plan_speed(bool card, double *flops, double *link)
{
    *flops = card ? 600e12 : 0.2e12;
    *link = card ? 370e9 : 2e9;
}

static void replay_update(const ares_train_config *c, const plan_where *where,
                          const ares_model *model, plan *p)
{
    const largest_micro *m = &p->micro;
    double groups = (double)m->per_optimizer;
    plan_speed(p->card, &p->flops, &p->link);
    if (where->flops > 0) p->flops = where->flops;
    if (where->link > 0) p->link = where->link;
    int64_t mini = where->reinforcement ? c->actor.global_batch_size : c->sft.batch_size,
            batch = where->reinforcement ? c->data.rollout_batch_size : mini;
    p->updates = ARES_MAX(1, batch / mini) * c->actor.ppo_epochs;
    replay_args a = { .model = &p->model,
                      .regions = model->regions,
                      .storage = training_storage(c),
                      .ranks = ares_group_size(model->share.group),
                      .replicas = ares_group_size(model->share.replicas),
                      .rounds = (int)p->actor_rounds,
                      .how = p->how,
                      .tokens = groups * (double)m->group,
                      .length = (double)(m->prompt + m->response),
                      .micro_batches = (int)largest_in_update(m),
                      .recompute = c->actor.gradient_checkpointing,
                      .flops = p->flops,
                      .link = p->link };
    plan_replay(&a, &p->update);
}

int plan_measure(const ares_train_config *c, const plan_where *where, plan *p)
{
    ares_trainer *t = ares_calloc(1, sizeof *t);
    *p = (plan){ .card = strncmp(c->trainer.device, "cuda", 4) == 0, .ranks = where->ranks };
    training_init(&t->run, c, NULL);
    ares_batch_init(&t->batch);
    t->val_longest = where->val_longest;
    /* of the schedule, which is no matter of memory */
    t->run.total_steps = 1;
    /* of a card whose memory nobody knows: 0, and the cache is what a CPU's would be */
    ares_device_open_counting(c->trainer.device, c->trainer.kernels, training_storage(c),
                              isfinite(where->memory) ? where->memory : 0, &t->run.device);
    int rc = rehearse(t, where, p);
    if (rc == ARES_OK) {
        if (!p->card) plan_count_host(t, where, p);
        add_up(&t->run.device, p);
        if (!c->trainer.val_only) {
            most_that_fits(t, where, p);
            replay_update(c, where, t->run.model, p);
            p->sent = plan_sent(t, p);
        }
    }
    trainer_close(t);
    ares_free(t);
    return rc;
}
