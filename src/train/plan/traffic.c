/*
 * Bytes that a rank sends in a training step where ranks share models: they follow from how often
 * the passes of the step gather each region, and from what an optimizer step sums and gathers
 * (docs/ranks.md#sharing).
 */
#include "plan.h"
#include "trainer.h"

#include <string.h>

#include "ares/algo.h"

/* Bytes sent to gather a region's weights; 0 where they are whole on each rank. */
static double gathered(const ares_model *m, int region)
{
    const ares_region *r = &m->params.regions[region];
    if (!r->in_parts) return 0;
    return (double)(r->elements - r->own) * (double)ares_dtype_bytes(r->dtype);
}

/* All blocks from one on. */
static double blocks(const ares_model *m, int32_t from)
{
    double bytes = 0;
    for (int32_t i = from; i < m->cfg.layers; i++) {
        const ares_block_regions *in = &m->layer[i].in;
        if (in->trained >= 0) bytes += gathered(m, in->trained);
        if (in->frozen >= 0) bytes += gathered(m, in->frozen);
    }
    return bytes;
}

/* A pass that only scores: a tied head is gathered apart from the embedding. */
static double forward(const ares_model *m)
{
    return gathered(m, m->embed->region) + blocks(m, 0) + gathered(m, ares_model_head_region(m));
}

/* The passes of an update: each round goes forward, then back through blocks that train. */
static double passes(const learner *l, double rounds)
{
    int32_t lowest = l->adapter ? l->adapter->lowest : l->model->lowest;
    return rounds * (forward(l->model) + blocks(l->model, lowest));
}

/* A sum of which each rank of the group keeps a slice; to gather all slices costs the same. */
static double sliced(const ares_group *g, double bytes)
{
    int ranks = ares_group_size(g);
    return bytes * (ranks - 1) / ranks;
}

/* The sums of gradients of all rounds, and the gather of weights after the optimizer step. */
static double optimizer_step(const learner *l, double rounds)
{
    const ares_params *ps = learner_params(l);
    const ares_model_share *s = &ps->share;
    double bytes = 0;
    if (l->adapter) rounds = 1; /* its gradient is summed once per mini-batch */
    for (int i = 0; i < ps->n_regions; i++) {
        const ares_region *r = &ps->regions[i];
        double gradient = (double)r->elements * sizeof(float),
               weights = (double)r->elements * (double)ares_dtype_bytes(r->dtype),
               own = (double)r->own * sizeof(float);
        if (!r->decay) {
            /* small regions are whole on each rank, which sends its gradient to all others */
            bytes += (ares_group_size(s->group) - 1) * gradient +
                     (ares_group_size(s->replicas) - 1) * gradient;
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

static double by_critic(const ares_trainer *t, const plan *p)
{
    const ares_train_config *c = t->run.cfg;
    const learner *l = &t->critic->learner;
    int64_t mini = c->critic.global_batch_size == ARES_NULL_I64 ? c->actor.global_batch_size
                                                                : c->critic.global_batch_size;
    double updates =
               (double)(ARES_MAX(1, c->data.rollout_batch_size / mini) * c->critic.ppo_epochs),
           rounds = (double)p->critic_rounds;
    peak_passes of;
    peak_of_critic(t, &p->micro, &of);
    return (double)of.scored.rounds * forward(l->model) +
           updates * (passes(l, rounds) + optimizer_step(l, rounds));
}

/*
 * Ranks that decode as one gather the outputs of four products per layer for each token that is
 * fed, and candidates with their logits for each token that is sampled. Every rank has the rows of
 * all their prompts.
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

double plan_sent(const ares_trainer *t, const plan *p)
{
    const ares_train_config *c = t->run.cfg;
    const learner *l = &t->actor.learner;
    const ares_model *m = t->run.model;
    double rounds = (double)p->actor_rounds,
           summed = rounds + (m->params.share.by_round ? (double)p->pair_rounds : 0);
    peak_passes of, of_pairs;
    peak_of_actor(t, &p->micro, &of);
    peak_of_pairs(t, &p->pairs, &of_pairs);
    double pairs =
        (double)of_pairs.scored.rounds * forward(m) + passes(l, (double)of_pairs.trained.rounds);
    double bytes = (double)p->updates * (passes(l, rounds) + pairs + optimizer_step(l, summed));
    unsigned flags = t->actor.loss ? t->actor.loss->flags : 0;
    if (t->actor.loss && (flags & (ARES_LOSS_BATCH | ARES_LOSS_PAIRS) ||
                          !ares_is_null_f64(c->loss.early_stop_imp_ratio))) {
        /*
         * These losses read the log-probs of a whole mini-batch, so it goes forward once before
         * its first loss (in one round only the head is gathered for that). A loss of pairs takes
         * those of the first mini-batch from the rollout.
         */
        bool sampled = flags & ARES_LOSS_PAIRS && !c->actor.recompute_log_probs;
        bytes += (double)(p->updates - sampled) *
                 (rounds > 1 ? rounds * forward(m) : gathered(m, ares_model_head_region(m)));
    }
    bytes += (double)of.scored.rounds * forward(m);
    if (t->critic) bytes += by_critic(t, p);
    if (t->ref) {
        /* the reference goes over the batch once, or over each round beside the policy */
        peak_pass own, unseen; /* unseen: of stored answers */
        peak_of_reference(t, &p->micro, &p->pairs, &own, &unseen);
        int64_t times = actor_beside(&t->actor) ? p->updates * p->actor_rounds : own.rounds;
        bytes += (double)(times + unseen.rounds) * forward(t->ref->learner.model);
    }
    /*
     * rollout decodes with a copy of weights that are in parts, filled after each training step; of
     * a frozen model again only where training has taken its memory
     */
    double copied = 0;
    bool again = t->slice && (!t->run.adapter || t->run.device.index >= 0);
    int regions = m->params.n_regions + m->params.n_frozen;
    for (int i = 0; again && i < regions; i++) copied += gathered(m, i);
    return bytes + copied + by_rollout(t, p);
}
