/*
 * What a rank sends in a training step where ranks share models: how often the passes of the step
 * gather each region, and what an optimizer step sums and gathers (docs/ranks.md#sharing).
 */
#include <string.h>

#include "ares/algo.h"
#include "plan/plan.h"
#include "trainer.h"

/* To gather a region's weights, which are in parts. */
static double gathered(const ares_model *m, int region)
{
    const ares_region *r = &m->regions[region];
    if (!r->decay || m->share.how != ARES_SHARE_ALL) return 0;
    return (double)(r->elements - r->own) * (double)ares_dtype_bytes(r->dtype);
}

static double head(const ares_model *m)
{
    return gathered(m, ares_model_head_region(m));
}

static double blocks(const ares_model *m)
{
    double bytes = 0;
    for (int i = 1; i <= m->cfg.layers; i++) bytes += gathered(m, i);
    return bytes;
}

/* A pass that only scores: a tied head is gathered apart from the embedding. */
static double forward(const ares_model *m)
{
    return gathered(m, 0) + blocks(m) + head(m);
}

/* The passes of an update over its rounds. */
static double passes(const ares_model *m, double rounds)
{
    return rounds * (forward(m) + blocks(m));
}

/* Where all log-probs of a mini-batch are there before the first loss. */
static double ahead(const ares_model *m, double rounds)
{
    return rounds > 1 ? rounds * forward(m) : head(m);
}

static double small_sum(const ares_group *g, double bytes)
{
    return (ares_group_size(g) - 1) * bytes;
}

/* A sum of which each rank of the group has a slice, and what brings all of them everywhere. */
static double sliced(const ares_group *g, double bytes)
{
    int ranks = ares_group_size(g);
    return bytes * (ranks - 1) / ranks;
}

/* What rounds sum, and the optimizer step. */
static double optimizer_step(const ares_model *m, double rounds)
{
    const ares_model_share *s = &m->share;
    double bytes = 0;
    for (int i = 0; i < m->n_regions; i++) {
        const ares_region *r = &m->regions[i];
        double gradient = (double)r->elements * sizeof(float),
               weights = (double)r->elements * (double)ares_dtype_bytes(r->dtype),
               own = (double)r->own * sizeof(float);
        if (!r->decay) {
            bytes += small_sum(s->group, gradient) + small_sum(s->replicas, gradient);
            continue;
        }
        bytes += rounds * sliced(s->group, gradient);
        if (s->how == ARES_SHARE_NONE) bytes += sliced(s->group, gradient);
        else bytes += (double)(ares_region_chunks(r) - r->own / ARES_SUM_CHUNK) * sizeof(double);
        if (s->how == ARES_SHARE_STATES) bytes += sliced(s->group, weights);
        bytes += 2 * sliced(s->replicas, own);
    }
    return bytes;
}

/* Rollout decodes with a copy of weights that are in parts, filled after each training step. */
static double copy(const ares_trainer *t)
{
    double bytes = 0;
    for (int i = 0; t->slice && i < t->run.model->n_regions; i++)
        bytes += gathered(t->run.model, i);
    return bytes;
}

static double by_critic(const ares_trainer *t, const plan *p)
{
    const ares_train_config *c = t->run.cfg;
    const ares_model *m = t->critic->learner.model;
    int64_t mini = c->critic.global_batch_size == ARES_NULL_I64 ? c->actor.global_batch_size
                                                                : c->critic.global_batch_size;
    double updates =
               (double)(ARES_MAX(1, c->data.rollout_batch_size / mini) * c->critic.ppo_epochs),
           rounds = (double)p->critic_rounds;
    largest_passes of;
    largest_of_critic(t, &p->micro, &of);
    return (double)of.scored.rounds * forward(m) +
           updates * (passes(m, rounds) + optimizer_step(m, rounds));
}

/* The reference goes over the batch once, or over each round beside the policy. */
static double by_reference(const ares_trainer *t, const plan *p)
{
    const learner *beside = actor_beside(&t->actor);
    largest_pass own, of_pairs; /* stored answers it has not seen before */
    largest_of_reference(t, &p->micro, &p->pairs, &own, &of_pairs);
    int64_t times = beside ? p->updates * p->actor_rounds : own.rounds;
    return (double)(times + of_pairs.rounds) * forward(t->ref->learner.model);
}

/*
 * Ranks that decode as one gather the outputs of four products per layer of what is fed, and what
 * they know of each token that is sampled; every rank has the rows of all their prompts.
 */
static double by_rollout(const ares_trainer *t, const plan *p)
{
    if (!t->tp) return 0;
    const ares_train_config *c = t->run.cfg;
    const ares_model_config *m = &t->slice->cfg;
    int parts = ares_group_size(t->tp);
    bool filtered = c->rollout.top_p < 1 || c->rollout.top_k > 0;
    double prompts =
               (double)c->data.rollout_batch_size * parts / ares_group_size(t->run.groups.all),
           n = (double)c->rollout.n, response = (double)p->micro.response,
           fed = (double)p->micro.prompt + n * (response - 1),
           width = (double)m->heads * m->head_dim + m->intermediate + 2.0 * m->hidden / parts,
           row = width * m->layers * (double)ares_dtype_bytes(t->run.device.k->act);
    int32_t likely =
        strcmp(c->rollout.entropy_mode, "topk_tail") == 0 ? (int32_t)c->rollout.entropy_topk : 0;
    double token = (double)ares_sample_sent_bytes(m->vocab, parts, likely, filtered);
    return (parts - 1) * prompts * (fed * row + n * response * token);
}

/* Where stored answers go forward and back, and what their rounds sum in the optimizer step. */
static double by_pairs(const ares_trainer *t, const plan *p)
{
    const ares_model *m = t->run.model;
    largest_passes of;
    largest_of_pairs(t, &p->pairs, &of);
    return (double)of.scored.rounds * forward(m) + passes(m, (double)of.trained.rounds);
}

/* Mini-batches of a step that go forward before their loss. */
static double goes_ahead(const ares_trainer *t, const plan *p)
{
    const ares_train_config *c = t->run.cfg;
    unsigned flags = t->actor.loss ? t->actor.loss->flags : 0;
    bool pairs = flags & ARES_LOSS_PAIRS;
    if (!t->actor.loss || !(flags & (ARES_LOSS_BATCH | ARES_LOSS_PAIRS) ||
                            !ares_is_null_f64(c->loss.early_stop_imp_ratio)))
        return 0;
    /* a loss of pairs takes the first one's log-probs from the rollout */
    return (double)(p->updates - (pairs && !c->actor.recompute_log_probs));
}

double plan_sent(const ares_trainer *t, const plan *p)
{
    const ares_model *m = t->run.model;
    double rounds = (double)p->actor_rounds,
           summed = rounds + (m->share.by_round ? (double)p->pair_rounds : 0);
    largest_passes of;
    largest_of_actor(t, &p->micro, &of);
    double bytes =
        (double)p->updates * (passes(m, rounds) + by_pairs(t, p) + optimizer_step(m, summed));
    bytes += goes_ahead(t, p) * ahead(m, rounds);
    bytes += (double)of.scored.rounds * forward(m);
    if (t->critic) bytes += by_critic(t, p);
    if (t->ref) bytes += by_reference(t, p);
    return bytes + copy(t) + by_rollout(t, p);
}
