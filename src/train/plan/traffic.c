/*
 * Bytes that a rank sends in a training step, and how long the link makes it wait: first the bytes,
 * from the passes of the step; then a simulation of computations and transfers side by side.
 */
#include "plan.h"
#include "trainer.h"

#include <math.h>
#include <string.h>

#include "ares/algo.h"

/*
 * Bytes that a rank sends in a training step where ranks share models: they follow from how often
 * the passes of the step gather each region, and from what an optimizer step sums and gathers
 * (docs/ranks.md#sharing).
 */

/* Bytes sent to gather a region's weights; 0 where they are whole on each rank. */
static double gathered(const ares_model *m, int region)
{
    const ares_region *r = &m->regions[region];
    if (!r->decay || m->share.how != ARES_SHARE_ALL) return 0;
    return (double)(r->elements - r->own) * (double)ares_dtype_bytes(r->dtype);
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
    return gathered(m, 0) + blocks(m) + gathered(m, ares_model_head_region(m));
}

/* The passes of an update: each round goes forward, then back through the blocks. */
static double passes(const ares_model *m, double rounds)
{
    return rounds * (forward(m) + blocks(m));
}

/* A sum of which each rank of the group keeps a slice; to gather all slices costs the same. */
static double sliced(const ares_group *g, double bytes)
{
    int ranks = ares_group_size(g);
    return bytes * (ranks - 1) / ranks;
}

/* The sums of gradients of all rounds, and the gather of weights after the optimizer step. */
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
    const ares_model *m = t->critic->learner.model;
    int64_t mini = c->critic.global_batch_size == ARES_NULL_I64 ? c->actor.global_batch_size
                                                                : c->critic.global_batch_size;
    double updates =
               (double)(ARES_MAX(1, c->data.rollout_batch_size / mini) * c->critic.ppo_epochs),
           rounds = (double)p->critic_rounds;
    peak_passes of;
    peak_of_critic(t, &p->micro, &of);
    return (double)of.scored.rounds * forward(m) +
           updates * (passes(m, rounds) + optimizer_step(m, rounds));
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
    const ares_model *m = t->run.model;
    double rounds = (double)p->actor_rounds,
           summed = rounds + (m->share.by_round ? (double)p->pair_rounds : 0);
    peak_passes of, of_pairs;
    peak_of_actor(t, &p->micro, &of);
    peak_of_pairs(t, &p->pairs, &of_pairs);
    double pairs =
        (double)of_pairs.scored.rounds * forward(m) + passes(m, (double)of_pairs.trained.rounds);
    double bytes = (double)p->updates * (passes(m, rounds) + pairs + optimizer_step(m, summed));
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
        int64_t times =
            actor_exact_kl_reference(&t->actor) ? p->updates * p->actor_rounds : own.rounds;
        bytes += (double)(times + unseen.rounds) * forward(t->ref->learner.model);
    }
    /* rollout decodes with a copy of weights that are in parts, filled after each training step */
    double copied = 0;
    for (int i = 0; t->slice && i < m->n_regions; i++) copied += gathered(m, i);
    return bytes + copied + by_rollout(t, p);
}

/*
 * A discrete-event replay. Computations run one after the other, and so do transfers; each begins
 * when its lane is free and what it waits for is done. Durations follow from operations (as
 * perf/mfu counts them) and bytes: a gather of b bytes and a sum that each rank keeps its part of
 * send (ranks - 1) / ranks x b.
 */

typedef enum { COMPUTE, LINK, LANES } lane;

typedef struct player {
    const replay_args *a;
    double free[LANES], busy[LANES], sent;
} player;

/* Runs an event that begins at `after` at the earliest; returns the time when it ends. */
static double play(player *p, lane on, double seconds, double after)
{
    p->busy[on] += seconds;
    return p->free[on] = fmax(p->free[on], after) + seconds;
}

static double transfer(player *p, double bytes, double after)
{
    double sent = bytes * (p->a->ranks - 1) / p->a->ranks;
    p->sent += sent;
    return play(p, LINK, sent / p->a->link, after);
}

/* A region: the embedding, a block, or the head. */
typedef struct part {
    double elements; /* that are gathered */
    double summed;   /* of its gradient; 0: it leaves with the embedding's, which is the same */
    double forward;  /* seconds, of the mini-batch */
} part;

/* *n regions in the order of a forward pass. */
static part *parts_of(const replay_args *a, int *n)
{
    const ares_model_config *m = a->model;
    double q = (double)m->heads * m->head_dim, kv = (double)m->kv_heads * m->head_dim,
           h = m->hidden, wide = m->intermediate, vocab = m->vocab;
    flops_config block = { m->hidden, 0, 1, m->heads, m->kv_heads, m->intermediate, m->head_dim },
                 head = { m->hidden, m->vocab, 0, m->heads, m->kv_heads, 0, m->head_dim };
    double seconds = a->flops / 1e12,
           of_block = train_tflops(&block, a->tokens, a->tokens * a->length, seconds) / 3,
           /* without the embedding, which costs nothing */
        of_head = train_tflops(&head, a->tokens, 0, seconds) / 2 / 3;
    part *parts = ares_calloc((size_t)m->layers + 2, sizeof *parts);
    *n = 0;
    const ares_region *r = a->regions;
    double embed = r ? (double)r->elements : vocab * h,
           of_files = h * (q + 2 * kv) + q * h + 3 * h * wide;
    parts[(*n)++] = (part){ embed, embed, 0 };
    for (int i = 1; i <= m->layers; i++) {
        double e = r ? (double)r[i].elements : of_files;
        parts[(*n)++] = (part){ e, e, of_block };
    }
    double own = m->tied ? 0 : r ? (double)r[m->layers + 1].elements : vocab * h;
    parts[(*n)++] = (part){ m->tied ? embed : own, own, of_head };
    return parts;
}

/* The ranks that hold the same part of the model sum its gradient: each a slice, then gathered. */
static void sum_across(player *p, const part *parts, int n, double after)
{
    int replicas = p->a->replicas;
    for (int i = 0; i < n && replicas > 1; i++) {
        double sent = 2 * parts[i].summed / p->a->ranks * sizeof(float) * (replicas - 1) / replicas;
        p->sent += sent;
        (void)play(p, LINK, sent / p->a->link, after);
    }
}

/* Backward of a region in units of its forward: two products, and a block's forward once more. */
static double back_of(const replay_args *a, int i, int n)
{
    bool again = a->recompute || a->how == ARES_SHARE_ALL;
    return 2 + (again && i < n - 1);
}

/*
 * Weights whole on every rank: micro-batches one after the other; the gradient of a region leaves
 * when the last one has gone back through it (early), or when all is done. Each round waits for the
 * sums of the one before, which take the memory of its gradients.
 */
static void micro_batches_outside(player *p, const part *parts, int n)
{
    const replay_args *a = p->a;
    bool states = a->how == ARES_SHARE_STATES, sums = states || a->rounds > 1;
    double width = (double)ares_dtype_bytes(a->storage), done = 0, last = 0;
    for (int r = 0; r < a->rounds; r++) {
        double begun = last;
        for (int i = 0; i < n; i++) { /* all but the last backward */
            double back = back_of(a, i, n);
            done =
                play(p, COMPUTE,
                     parts[i].forward * ((1 + back) / a->rounds - back / a->micro_batches), begun);
        }
        for (int i = n - 1; i >= 0; i--) {
            done = play(p, COMPUTE, parts[i].forward * back_of(a, i, n) / a->micro_batches, begun);
            if (states && a->early) last = transfer(p, parts[i].summed * sizeof(float), done);
        }
        for (int i = 0; i < n; i++)
            if (sums && !(states && a->early))
                last = transfer(p, parts[i].summed * sizeof(float), done);
    }
    if (!sums) last = done;
    sum_across(p, parts, n, last);
    for (int i = 0; i < n; i++) /* after the norm, which needs all sums */
        if (states) (void)transfer(p, parts[i].summed * width, p->free[LINK]);
        else (void)transfer(p, (sums ? 1 : 2) * parts[i].summed * sizeof(float), last);
}

/*
 * Weights shared: region outside, forward and then back. Two slots: the next region is gathered
 * while one computes, once the one before it has left its slot; likewise two buffers of gradients.
 * The head is held from its forward to its backward, and the embedding's backward needs no weights.
 */
static void regions_outside(player *p, const part *parts, int n)
{
    double width = (double)ares_dtype_bytes(p->a->storage);
    double computed[2] = { 0 }, summed[2] = { 0 };
    for (int round = 0; round < p->a->rounds; round++) {
        double ready = transfer(p, parts[0].elements * width, fmax(computed[0], computed[1])),
               next = 0;
        for (int i = 0; i < 2 * n - 1; i++, ready = next) {
            bool back = i >= n - 1;
            int then = i + 1 >= n ? 2 * n - 3 - i : i + 1; /* -1, 0: nothing more is gathered */
            const part *r = &parts[back ? 2 * n - 2 - i : i];
            if (then > 0) next = transfer(p, parts[then].elements * width, computed[(i + 1) % 2]);
            if (back) ready = fmax(ready, summed[i % 2]);
            double times = !back        ? 1
                           : i == n - 1 ? 1 + back_of(p->a, n - 1, n)
                                        : back_of(p->a, 0, n);
            computed[i % 2] = play(p, COMPUTE, r->forward * times / p->a->rounds, ready);
            if (back) summed[i % 2] = transfer(p, r->summed * sizeof(float), computed[i % 2]);
        }
    }
    sum_across(p, parts, n, p->free[LINK]);
}

void plan_replay(const replay_args *a, replay *out)
{
    replay_args args = *a;
    player p = { .a = &args };
    int n;
    part *parts = parts_of(a, &n);
    args.rounds = ARES_MAX(1, a->rounds);
    args.micro_batches = ARES_MAX(a->micro_batches, args.rounds);
    if (a->how == ARES_SHARE_ALL) regions_outside(&p, parts, n);
    else micro_batches_outside(&p, parts, n);
    *out = (replay){ .sent = p.sent,
                     .compute = p.busy[COMPUTE],
                     .link = p.busy[LINK],
                     .total = fmax(p.free[COMPUTE], p.free[LINK]) };
    out->exposed = out->total - out->compute;
    ares_free(parts);
}
