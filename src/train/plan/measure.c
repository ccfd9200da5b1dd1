/*
 * Bytes by owner. The learners, the rollout engine and the workspaces of a run are opened on a
 * counting device by the functions that open them in a run, so there is no second formula: what
 * each has taken is the growth of the device's count.
 */
#include <math.h>
#include <string.h>

#include "options/sharing.h"
#include "plan/plan.h"
#include "run/state.h"
#include "trainer.h"
#include "vapor/vapor.h"

/*
 * CUDA's context, cuBLAS, the head's chunk of logits and the keys that attention gathers: an
 * assumption, nobody can know it here.
 */
static const double BASE_OF_CARD = 4e9;

const char *const plan_owner_names[PLAN_OWNERS_N] = {
#define OWNER(name, text) text,
    PLAN_OWNERS(OWNER)
#undef OWNER
};

/* Of a pass that can be asked about at all. */
enum { MOST_TOKENS = 1 << 28 };

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

/* ---------------- the largest micro-batch */
static void full_rows(const ares_train_config *c, const plan_where *where, int64_t longest,
                      plan_micro *m)
{
    bool sft = !where->reinforcement, agents = c->agents_train.tags.count > 0;
    m->prompt = sft ? 1 : ARES_MAX(1, ARES_MIN(c->data.max_prompt_length, longest - 1));
    int64_t most = (sft ? c->sft.max_length : longest) - m->prompt;
    m->response = ARES_MAX(1, sft || agents ? most : ARES_MIN(c->data.max_response_length, most));
}

/*
 * Groups of n rows of full length, as many as a mini-batch has on a rank, cut as a run cuts them.
 * m: prompt, response and per_optimizer are there.
 */
static void cut_groups(const ares_train_config *c, int64_t n, bool share, plan_micro *m)
{
    int64_t budget = c->actor.max_token_len, count;
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
    m->tokens = ARES_MIN(m->tokens, MOST_TOKENS);
    m->out = ARES_MIN(m->out, MOST_TOKENS);
    ares_free(cuts);
    ares_free(prompt);
    ares_batch_fini(&b);
}

static void cut(const ares_train_config *c, const plan_where *where, int64_t longest, plan_micro *m)
{
    bool sft = !where->reinforcement, share = !sft && c->actor.share_prompts;
    int64_t n = sft ? 1 : c->rollout.n;
    full_rows(c, where, longest, m);
    int64_t rows = sft                                             ? c->sft.batch_size
                   : strcmp(c->actor.mini_batch_unit, "rows") == 0 ? c->actor.global_batch_size
                                                                   : c->actor.global_batch_size * n;
    rows = (rows + where->ranks - 1) / where->ranks;
    m->per_optimizer = ARES_MAX(1, share ? (rows + n - 1) / n : rows);
    cut_groups(c, n, share, m);
}

/*
 * VAPOR's stored answers, two to each prompt of a mini-batch, with their prompts as long as they
 * may be where that leaves answers of data.max_response_length.
 */
static void cut_pairs(const ares_train_config *c, const plan_where *where, plan *p)
{
    int64_t longest = c->vapor.max_pair_length;
    plan_micro *m = &p->pairs;
    if (!vapor_wanted(c) || (c->vapor.beta == 0 && c->vapor.dpo_coef == 0) || longest < 2) return;
    m->prompt =
        ARES_MIN(c->data.max_prompt_length, ARES_MAX(1, longest - c->data.max_response_length));
    m->response = longest - m->prompt;
    int64_t prompts = (c->actor.global_batch_size + where->ranks - 1) / where->ranks;
    m->per_optimizer = ARES_MAX(1, c->actor.share_prompts ? prompts : 2 * prompts);
    cut_groups(c, 2, c->actor.share_prompts, m);
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

static int open_rollout(ares_trainer *t, plan *p)
{
    ares_device *d = &t->run.device;
    size_t at = d->allocated;
    ares_rollout_stats stats;
    const ares_train_config *cfg = t->run.cfg;
    ares_train_config least = *cfg;
    int rc = trainer_open_rollout(t);
    if (rc == ARES_ELIMIT && least.rollout.cache_tokens == ARES_NULL_I64) {
        ares_error_clear();
        p->no_cache = true;
        least.rollout.cache_tokens = trainer_longest(t) + 2 * ARES_KV_BLOCK;
        t->run.cfg = &least;
        rc = trainer_open_rollout(t);
        t->run.cfg = cfg;
    }
    if (rc != ARES_OK) return rc;
    ares_rollout_get_stats(t->rollout, &stats);
    double weights = t->slice ? (double)t->slice->weights_bytes : 0, all = grown(d, &at) - weights,
           block = (double)ares_rollout_cache_bytes(t->rollout) /
                   (double)ARES_MAX(stats.total_blocks, 1);
    p->cache_tokens = (double)(stats.total_blocks * ARES_KV_BLOCK);
    p->cache_least = block * (double)(trainer_longest(t) / ARES_KV_BLOCK + 2);
    both(p, PLAN_WEIGHTS, weights);
    p->slice = weights;
    both(p, PLAN_CACHE, (double)ares_rollout_cache_bytes(t->rollout));
    both(p, PLAN_BUFFERS, all - (double)ares_rollout_cache_bytes(t->rollout));
    return ARES_OK;
}

/*
 * What a pass keeps for its backward: `kept` bytes, of which `taken` come from the device and the
 * others from memory that rollout's own weights and the cache have in the other phase.
 */
static void keep_activations(plan *p, plan_owner owner, double taken, double kept)
{
    p->bytes[owner][PLAN_ROLLOUT] += taken;
    p->bytes[owner][PLAN_TRAINING] += kept;
    double of_slice = ARES_MIN(kept - taken, p->slice);
    p->lent[owner] += kept - taken;
    p->slice -= of_slice;
    p->bytes[PLAN_WEIGHTS][PLAN_TRAINING] -= of_slice;
    p->bytes[PLAN_CACHE][PLAN_TRAINING] -= kept - taken - of_slice;
}

static int64_t divided(int64_t n, int64_t by)
{
    return ARES_MAX(1, (n + by - 1) / ARES_MAX(1, by));
}

/* Micro-batches of a rank in an update, and in a batch. */
static int64_t in_update(const plan_micro *m)
{
    return divided(m->per_optimizer, m->groups);
}

/* most: tokens of a round at most; null: all of the mini-batch. m: as the role cuts it */
static plan_round rounds_of(const plan_micro *m, int64_t most)
{
    int64_t units = m->per_optimizer;
    if (most != ARES_NULL_I64) units = ARES_MIN(units, ARES_MAX(1, most / m->group));
    plan_round r = { .n = divided(m->per_optimizer, units),
                     .micro = divided(units, m->groups),
                     .tokens = m->tokens,
                     .out = m->out };
    if (most == ARES_NULL_I64 || m->tokens <= most) return r;
    r.tokens = ARES_MIN(m->tokens, ARES_MAX(m->group, most)); /* a round is less */
    r.out = divided(m->out * r.tokens, m->tokens);
    return r;
}
static int64_t in_batch(const ares_train_config *c, const plan_micro *m)
{
    return in_update(m) * ARES_MAX(1, c->data.rollout_batch_size / c->actor.global_batch_size);
}

/* Whether rewards have an exact KL, for which policy and reference go over a batch together. */
static bool compares_batch(const ares_trainer *t)
{
    return t->ref && !t->actor.kl->value && !actor_beside(&t->actor);
}

static int train_actor(ares_trainer *t, plan *p)
{
    learner *l = &t->actor.learner, *with = t->ref ? actor_beside(&t->actor) : NULL;
    const ares_train_config *c = t->run.cfg;
    int32_t rows = (int32_t)p->micro.tokens, out = (int32_t)p->micro.out;
    const plan_round r = rounds_of(&p->micro, c->actor.round_tokens);
    p->actor_rounds = r.n;
    int64_t n = learner_together(l, with, r.micro);
    size_t at = t->run.device.allocated;
    double kept;
    if (compares_batch(t) || c->actor.recompute_log_probs) {
        with = compares_batch(t) ? &t->ref->learner : NULL;
        int64_t all = learner_together(l, with, in_batch(c, &p->micro));
        ARES_TRY(ares_workspace_reserve(l->workspace, rows, out, (int)all, false));
    }
    kept = (double)ares_workspace_bytes(l->workspace);
    keep_activations(p, PLAN_ACTIVATIONS, grown(&t->run.device, &at), kept);
    ARES_TRY(ares_model_zero_grad(l->model));
    keep_activations(p, PLAN_GRADIENTS, grown(&t->run.device, &at),
                     (double)l->model->of_training.bytes);
    ARES_TRY(ares_workspace_reserve(l->workspace, (int32_t)r.tokens, (int32_t)r.out, (int)n, true));
    keep_activations(p, PLAN_ACTIVATIONS, grown(&t->run.device, &at),
                     (double)ares_workspace_bytes(l->workspace) - kept);
    ARES_TRY(learner_reserve_backward(l, (int32_t)r.out, n, 0));
    keep_activations(p, PLAN_SCRATCH, grown(&t->run.device, &at), (double)l->scratch.bytes);
    ARES_TRY(plan_count_tower_backward(t, p, &kept));
    keep_activations(p, PLAN_TOWER, grown(&t->run.device, &at), kept);
    return ARES_OK;
}

/* Of their log-probs, all of a mini-batch, and of their gradients, round by round. */
static int train_pairs(ares_trainer *t, plan *p)
{
    const plan_micro *m = &p->pairs;
    learner *l = &t->actor.learner;
    if (!m->tokens) return ARES_OK;
    const plan_round r = rounds_of(m, t->run.cfg->actor.round_tokens);
    int64_t all = learner_together(l, NULL, in_update(m)), n = learner_together(l, NULL, r.micro);
    size_t at = t->run.device.allocated;
    double before = (double)ares_workspace_bytes(l->workspace);
    p->pair_rounds = r.n;
    ARES_TRY(
        ares_workspace_reserve(l->workspace, (int32_t)m->tokens, (int32_t)m->out, (int)all, false));
    ARES_TRY(ares_workspace_reserve(l->workspace, (int32_t)r.tokens, (int32_t)r.out, (int)n, true));
    keep_activations(p, PLAN_ACTIVATIONS, grown(&t->run.device, &at),
                     (double)ares_workspace_bytes(l->workspace) - before);
    before = (double)l->scratch.bytes;
    ARES_TRY(learner_reserve_backward(l, (int32_t)r.out, n, 0));
    keep_activations(p, PLAN_SCRATCH, grown(&t->run.device, &at),
                     (double)l->scratch.bytes - before);
    return ARES_OK;
}

static int train_reference(ares_trainer *t, plan *p)
{
    const plan_micro *m = &p->micro;
    learner *l = &t->ref->learner;
    const learner *policy = &t->actor.learner;
    int64_t n = learner_together(l, compares_batch(t) ? policy : NULL, in_batch(t->run.cfg, m));
    size_t at = t->run.device.allocated;
    if (actor_beside(&t->actor))
        n = ARES_MAX(
            n, learner_together(l, policy, rounds_of(m, t->run.cfg->actor.round_tokens).micro));
    ARES_TRY(
        ares_workspace_reserve(l->workspace, (int32_t)m->tokens, (int32_t)m->out, (int)n, false));
    if (p->pairs.tokens)
        ARES_TRY(ares_workspace_reserve(
            l->workspace, (int32_t)p->pairs.tokens, (int32_t)p->pairs.out,
            (int)learner_together(l, NULL, in_batch(t->run.cfg, &p->pairs)), false));
    both(p, PLAN_PASSES, grown(&t->run.device, &at));
    return ARES_OK;
}

/* Its micro-batches have limits of their own, and hold as many tokens together. */
static int train_critic(ares_trainer *t, plan *p)
{
    const plan_micro *m = &p->micro;
    const ares_train_config *c = t->run.cfg;
    learner *l = &t->critic->learner;
    size_t at = t->run.device.allocated;
    double kept, share = (double)c->critic.max_token_len / (double)c->actor.max_token_len;
    int64_t tokens = ARES_MAX(m->group, (int64_t)((double)m->tokens * share)),
            out = divided(m->out * tokens, m->tokens),
            all = learner_together(l, NULL, divided(in_batch(c, m) * m->tokens, tokens));
    const plan_micro own = { .group = m->group,
                             .groups = ARES_MAX(1, m->groups * tokens / m->tokens),
                             .per_optimizer = m->per_optimizer,
                             .tokens = tokens,
                             .out = out };
    const plan_round r = rounds_of(&own, c->critic.round_tokens);
    p->critic_rounds = r.n;
    int64_t n = learner_together(l, NULL, r.micro);
    ARES_TRY(ares_workspace_reserve(l->workspace, (int32_t)tokens, (int32_t)out, (int)all, false));
    kept = (double)ares_workspace_bytes(l->workspace);
    keep_activations(p, PLAN_PASSES, grown(&t->run.device, &at), kept);
    ARES_TRY(ares_model_zero_grad(l->model));
    keep_activations(p, PLAN_CRITIC, grown(&t->run.device, &at),
                     (double)l->model->of_training.bytes);
    ARES_TRY(ares_workspace_reserve(l->workspace, (int32_t)r.tokens, (int32_t)r.out, (int)n, true));
    keep_activations(p, PLAN_PASSES, grown(&t->run.device, &at),
                     (double)ares_workspace_bytes(l->workspace) - kept);
    ARES_TRY(critic_reserve(t->critic, (int32_t)r.out, n));
    keep_activations(p, PLAN_PASSES, grown(&t->run.device, &at), (double)l->scratch.bytes);
    return ARES_OK;
}

/* In host memory: of a card's table it is no part. */
static void copy_checkpoint(const ares_trainer *t, const plan_where *where, plan *p)
{
    if (t->run.cfg->trainer.save_async)
        p->copied = (double)state_copied_bytes(&t->run, where->ranks);
    if (!p->card) both(p, PLAN_COPY, p->copied);
}

static int rehearse(ares_trainer *t, const plan_where *where, plan *p)
{
    const ares_train_config *c = t->run.cfg;
    ARES_TRY(open_actor(t, p, where));
    if (where->reinforcement && !c->trainer.val_only) ARES_TRY(open_others(t, p));
    int64_t longest = where->reinforcement ? trainer_longest(t) : c->sft.max_length;
    cut(c, where, longest, &p->micro);
    if (where->reinforcement) cut_pairs(c, where, p);
    ARES_TRY(plan_count_pictures(t, where, p));
    if (c->rollout.tensor_parallel_size > 1)
        ARES_TRY(
            ares_group_open(NULL, &t->run.device, (int)c->rollout.tensor_parallel_size, 1, &t->tp));
    if (where->reinforcement) ARES_TRY(open_rollout(t, p));
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

static void most_that_fits(ares_trainer *t, const plan_where *where, plan *p)
{
    const ares_train_config *c = t->run.cfg;
    const plan_micro *m = &p->micro;
    double cache = p->bytes[PLAN_CACHE][PLAN_ROLLOUT],
           slice = t->slice ? (double)t->slice->weights_bytes : 0, lent = 0,
           others = p->total[PLAN_TRAINING] + slice - p->slice -
                    p->bytes[PLAN_ACTIVATIONS][PLAN_TRAINING] -
                    p->bytes[PLAN_SCRATCH][PLAN_TRAINING] - p->bytes[PLAN_CACHE][PLAN_TRAINING],
           left = where->memory - others - (p->card ? cache : ARES_MIN(cache, p->cache_least));
    for (int i = 0; i < PLAN_OWNERS_N; i++)
        if (i != PLAN_ACTIVATIONS && i != PLAN_SCRATCH) lent += p->lent[i];
    if (p->card && !p->no_cache) /* in rollout's memory, or beside it */
        left = ARES_MAX(left + lent, cache + slice - lent);
    learner *l = &t->actor.learner;
    bool inputs = c->actor.gradient_checkpointing || ares_model_by_region(t->run.model);
    int64_t lo = plan_fits(p, where) ? m->tokens : 0, hi = MOST_TOKENS,
            all = divided(m->per_optimizer, rounds_of(m, c->actor.round_tokens).n) * m->group;
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
    double needs = ARES_MAX(p->total[PLAN_ROLLOUT], p->total[PLAN_TRAINING]);
    double cache = p->bytes[PLAN_CACHE][PLAN_ROLLOUT];
    return p->card ? needs : needs - ARES_MAX(0, cache - p->cache_least);
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
    const plan_micro *m = &p->micro;
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
                      .micro_batches = (int)in_update(m),
                      .recompute = c->actor.gradient_checkpointing,
                      .flops = p->flops,
                      .link = p->link };
    plan_replay(&a, &p->update);
}

int plan_measure(const ares_train_config *c, const plan_where *where, plan *p)
{
    ares_trainer *t = ares_calloc(1, sizeof *t);
    *p = (plan){ .card = strncmp(c->trainer.device, "cuda", 4) == 0 };
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
