/*
 * Private to train: a learner and its parts. Ranks that share a model, columns on the device, the
 * optimizer, the passes of a model, and images and videos in them.
 */
#ifndef ARES_TRAIN_LEARNER_H
#define ARES_TRAIN_LEARNER_H

#include "ares/kernels.h"
#include "ares/model.h"
#include "ares/serve_tinker.h"
#include "ares/train.h"

/* What ranks share of the models that they train together, and with whom. (trainer.c) */

/* Refuses what the ranks of a run, world of them, cannot share. */
void sharing_check(ares_config *cfg, const ares_train_config *c, int world);

/* Ranks in neighbouring groups of one size, and the ranks with the same part in each of them. */
typedef struct sharing_cut {
    ares_group *group, *replicas;
} sharing_cut;
/* all: one group; the others as fsdp_size cuts them, each size once. */
typedef struct sharing_groups {
    ares_group *all;
    sharing_cut cut[4];
    int n;
    ares_group *tp; /* borrowed: the ranks that roll out as one; NULL: each by itself */
} sharing_groups;
/* The groups that worker.*.fsdp.fsdp_size asks for. A collective of the world, of `ranks` ranks. */
int sharing_open(sharing_groups *g, const ares_train_config *c, ares_world *world, ares_device *d,
                 int ranks);
/*
 * How many neighbouring ranks share; fsdp_size: null, -1, and all or more than there are, as in
 * verl, are all of them.
 */
int sharing_size(int64_t fsdp_size, int ranks);
int64_t sharing_bytes(const sharing_groups *g); /* that this rank has sent in them so far */
/* As worker.*.fsdp and worker.*.offload ask. */
ares_model_share sharing_of_actor(const ares_train_config *c, const sharing_groups *g);
ares_model_share sharing_of_critic(const ares_train_config *c, const sharing_groups *g);
/* Of a frozen model, and of the adapter beside it, which is whole on every rank. */
ares_model_share sharing_of_base(ares_model_share share);
ares_model_share sharing_of_adapter(ares_model_share share);
ares_model_share sharing_of_reference(const ares_train_config *c, const sharing_groups *g);
ares_model_share sharing_of_teacher(const ares_train_config *c, const sharing_groups *g);

/*
 * Arrays of the host that the device computes with, such as the columns of a batch. Where the
 * device's memory is the host's, the device uses the arrays themselves and nothing is copied; on a
 * card each gets a place in a block of the card's memory. (learner.c)
 */

typedef struct device_columns {
    ares_device *device;
    char *block; /* of a card; grows on demand and is kept */
    size_t bytes, used;
    char *staged,
        *host_staged; /* what dc_download brings, in one piece: on the card, on the host */
    size_t staged_bytes;
} device_columns;

/* Whether the device's memory is the host's. */
static inline bool dc_shared(const device_columns *c)
{
    return c->device->index < 0;
}
/*
 * Room for arrays of so many bytes together, `arrays` of them; the places given before are lost.
 * role: of the learner, for the message.
 */
int dc_open(device_columns *c, ares_device *d, const char *role, size_t bytes, int arrays);
/* The device's address of an array of the host, whose contents are not copied yet. NULL for NULL */
void *dc_place(device_columns *c, void *host, size_t bytes);
/* Copies an array, or a part of it, to its place. The host's memory may be reused on return. */
void dc_upload(const device_columns *c, void *device, const void *host, size_t bytes);
/* Copies arrays to the host, all in one wait. NULL: none. Call sync before reading them. */
typedef struct column_part {
    void *host;
    const void *device;
    size_t bytes;
} column_part;
void dc_download(device_columns *c, const column_part *part, int n);
/*
 * After a kernel that wrote them, before code of the room algo reads them: a failure of the kernel
 * where that code runs on the host. A card's runs after the kernel, and does not wait.
 */
int dc_sync_if_host(const device_columns *c);

/*
 * AdamW over a model's parameters, its schedule, and updates that are left out because a loss or a
 * gradient is not finite. (optim.c)
 */

typedef struct optim {
    const ares_optim_config *cfg;
    ares_schedule schedule;
    int64_t updates; /* optimizer steps taken: AdamW's bias correction counts them */
    int64_t skipped; /* left out since the last one that was taken */
    bool failing;    /* OPTIM_SKIPS_IN_A_ROW were left out: the run is to end */
} optim;
enum { OPTIM_SKIPS_IN_A_ROW = 3 };

int optim_init(optim *o, const ares_optim_config *cfg, int64_t total_steps);
/* Allocates the moments of every parameter as worker.*.optim.strategy keeps them. */
int optim_alloc_states(const optim *o, ares_params *ps);
double optim_lr(const optim *o, int64_t step); /* of training step 0, 1, ... */
/* Sums gradients over ranks. *norm: of all of them, which may be no finite number. */
int optim_norm(ares_params *ps, double *norm);
/*
 * Sums gradients over ranks, clips them to max_grad_norm and updates the weights in place.
 * *grad_norm is the norm before clipping. Where it is NaN or infinite the update is left out, on
 * every rank: weights, moments and their count stay, *grad_norm is NaN, and a warning that begins
 * with `what` names the parameter.
 */
int optim_step(optim *o, ares_params *ps, ares_world *world, double lr, double max_grad_norm,
               const char *what, double *grad_norm);
/*
 * The same by a process alone, with the numbers of the call in place of the configuration's. A
 * gradient that is not finite is ARES_ENUMERIC. For parameters without a look-up's gradient.
 */
int optim_step_given(optim *o, ares_params *ps, const ares_tinker_adam *a, double *grad_norm);
/*
 * Counts an update that was left out. The reason is the last failure, which is printed as a warning
 * and cleared.
 */
void optim_skip(optim *o, const ares_world *world, const char *what);

/*
 * What the actor, the critic, the reference and supervised training are made of: a model, what a
 * pass through it needs, and its optimizer. (learner.c)
 */

typedef struct learner {
    const char *role; /* "actor", "critic": errors name its options, worker.<role>.* */
    ares_model *model;
    ares_adapter *adapter; /* what passes add to the model, and what is trained; NULL: none */
    ares_adapted adapted;  /* the same for all rows of a pass */
    ares_workspace *workspace;
    ares_features *features; /* of images and videos, borrowed; NULL: rows are text */
    bool trains_tower;       /* gradients go back through the vision tower */
    bool skip_zero;          /* backward passes leave out what no derivative reaches */
    int64_t left_out;        /* tokens of micro-batches without a backward, in the step at hand */
    ares_backward_rows rows; /* of optimizer steps that were taken since the last report */
    ares_keep tower_keep;    /* what a trained tower keeps of a forward pass for the backward */
    /* largest difference between features in an update and in the rollout, since the last report */
    double features_off;
    ares_world *world;     /* the ranks whose gradients are summed; NULL: this process alone */
    optim optim;           /* of a model that is trained */
    int64_t round_tokens;  /* of a round on a rank at most; 0: a mini-batch is one round */
    int64_t scored_tokens; /* the same for passes without a backward */
    int64_t step;          /* training steps it has been updated in: the clock of its schedule */
    /* memory of training's phase, for a round: derivatives of hidden states, at least */
    ares_held scratch;
    size_t scratch_bytes;   /* most that was ever asked for: it is taken that large again */
    device_columns targets; /* of a pass */
    device_columns stats;   /* what the head finds, of a scoring */
    device_columns columns; /* of an update */
    ares_arena arena;       /* of a micro-batch */
} learner;

typedef struct learner_options {
    const char *role;
    ares_world *world;
    ares_adapter *adapter;          /* the caller's; NULL: the model alone */
    ares_features *features;        /* NULL: rows are text */
    const ares_optim_config *optim; /* NULL: the weights stay as they are */
    int64_t total_steps;            /* of the schedule */
    bool gradient_checkpointing;
    bool skip_zero;       /* worker.actor.skip_zero_gradients */
    int64_t round_tokens; /* worker.*.round_tokens, which may be null; 0: the same */
} learner_options;

/* What the learner trains: the adapter's parameters, or the model's. */
static inline ares_params *learner_params(const learner *l)
{
    return l->adapter ? &l->adapter->params : &l->model->params;
}

/* Counts the changes of what it trains. */
static inline int64_t learner_version(const learner *l)
{
    return l->adapter ? (int64_t)l->adapter->version : l->optim.updates;
}

/* Refuses fp32 storage by name where the products of the device take bf16 alone. */
int learner_check_storage(const char *role, ares_dtype storage, const ares_device *d);
/* The model stays the caller's: whoever loaded it frees it after the learner is closed. */
int learner_open(learner *l, ares_model *m, const learner_options *o);
void learner_close(learner *l); /* a zeroed one, too */
/*
 * Takes scratch for the derivatives of n passes' hidden states, so many rows each, and `more`
 * bytes.
 */
int learner_reserve_backward(learner *l, int32_t rows, int64_t n, size_t more);
/* From now on the scratch is taken that large at once. Returns its bytes of training's phase. */
size_t learner_expect_backward(learner *l, int32_t rows, int64_t n, size_t more);

/* Some rows of a batch after their forward pass. It lives until the learner's next round. */
typedef struct learner_pass {
    ares_packed packed;     /* packed.n_out: response tokens of the rows; 0: nothing was computed */
    const int32_t *targets; /* device, [n_out]: these tokens, run by run in batch order */
    void *hidden;           /* device, [n_out][hidden]: the states from which each is predicted */
    void *d_hidden;         /* their derivatives, in the scratch (learner_reserve_round) */
    ares_head_adapter head; /* of an adapted head (learner_head); b NULL: the head has no adapter */
    ares_head_adapter ref_head; /* the same of a reference (learner_head_beside) */
} learner_pass;
/* Whether the weights of l, or of `with` (NULL: none), come to the device region by region. */
bool learner_by_region(const learner *l, const learner *with);
/*
 * How many of the next n micro-batches are a round, which goes through the model together: all
 * where weights come region by region; else one, whose activations stay in cache.
 */
int64_t learner_micro_batches_per_round(const learner *l, const learner *with, int64_t n);
/*
 * How many of the next n micro-batches, of so many tokens each, are a round of a pass without a
 * backward (learner_cut_scored).
 */
int64_t learner_scored_together(const learner *l, const learner *with, int64_t n, int64_t tokens);
/*
 * Sets of passes without a backward as rounds: round i has sets [first[i], first[i + 1]). There is
 * at least one round, maybe empty. meet: the passes are collectives, so that all ranks get the same
 * number of rounds, the last ones maybe empty; the call is a collective then.
 */
typedef struct learner_scored {
    int64_t n;
    int64_t *first; /* [n + 1] */
} learner_scored;
int learner_cut_scored(const learner *l, const learner *with, const ares_micro_set *sets, int64_t n,
                       bool meet, ares_arena *arena, learner_scored *out);
/*
 * A mini-batch, or a second batch beside it, as rounds: runs of this rank's rows, in their order,
 * that ranks train on together and whose gradients are summed before those of the next
 * (docs/ranks.md#rounds). All ranks have the same number, some of them without rows at the end.
 */
typedef struct learner_rounds {
    int64_t n;                     /* at least 1 */
    const ares_micro_batch *round; /* [n] */
} learner_rounds;
/* Of rows [row, end), in the arena. A collective where a mini-batch may be several rounds. */
int learner_cut_rounds(const learner *l, const ares_batch *b, int64_t row, int64_t end, bool share,
                       ares_arena *arena, learner_rounds *out);
/*
 * Before a round ends. Where a mini-batch may be several rounds, whose ends are collectives: the
 * first failure of any rank, the same on all; else this rank's rc.
 */
int learner_share_round_error(const learner *l, int rc);
/* After the passes of each round, which gave rc: shares the error, and sums the gradients. */
int learner_end_round(const learner *l, int rc);
/* The forward passes of a round. sets, out: [n], which may be none. keep: for a backward */
int learner_forward_round(learner *l, const ares_batch *b, const ares_micro_set *sets, int64_t n,
                          bool share_prompts, bool keep, learner_pass *out);
/*
 * The forward pass over tokens that the caller has packed: p->packed, in the learner's arena, and
 * p->targets on the device.
 */
int learner_forward_packed(learner *l, learner_pass *p, bool keep);
/*
 * The hidden states of another model over the rows of a round, one pointer per pass; NULL where a
 * pass has no response token.
 */
int learner_forward_same_rows(learner *l, const learner_pass *p, int64_t n, void **hidden);
/*
 * The hidden states of a model over a batch of its own with the same responses in other rows of
 * prompts, without a backward; as learner_forward_same_rows. pass [n]: written, the passes
 */
int learner_forward_beside(learner *l, const ares_batch *b, const ares_micro_set *sets, int64_t n,
                           bool share_prompts, learner_pass *pass);
/* Sets of one micro-batch each: head row i is about batch token row_start[m->row] + i. */
ares_micro_set *learner_sets_of(const ares_micro_batch *m, int64_t n, ares_arena *arena);
/* Memory for d_hidden of a round, and so many bytes more, at *rest. */
int learner_reserve_round(learner *l, learner_pass *p, int64_t n, size_t more, void **rest);
/* The weights of the head, which are on the device between the two. */
void learner_hold_head(const learner *l);
void learner_drop_head(const learner *l);
/*
 * The head over a pass, forward only; what it writes (log_prob, ...), on the device, is for the
 * caller to set.
 */
ares_head_args learner_head(const learner *l, learner_pass *p, double temperature);
/* Adds the head of a reference, whose hidden states over the pass these are. */
void learner_head_beside(const learner *ref, learner_pass *p, const void *hidden,
                         ares_head_args *h);
/* Adds what the head's backward needs besides: dx, which is d_hidden, and the gradient dw. */
void learner_head_backward(const learner *l, const learner_pass *p, ares_head_args *h);
/* Waits for what was launched; where weights are gathered, a failure of that comes out here. */
int learner_sync(const learner *l);
/*
 * Before passes that may be collectives. Where weights come region by region: the first failure of
 * any rank, the same on all; else this rank's rc.
 */
int learner_share_error(const learner *l, const learner *with, int rc);
/* Before the passes of an optimizer step. with: a model that its passes go over, too, or NULL */
int learner_zero_grad(const learner *l, const learner *with);
/* Adds the gradients of a round, whose passes have their d_hidden. */
int learner_backward_round(learner *l, const learner_pass *p, int64_t n);

/* How a pass over rows is cut, and the temperature of its log-probs. */
typedef struct learner_scoring {
    int64_t max_token_len;
    bool share_prompts;
    double temperature;
} learner_scoring;
/* As the actor is configured, at the rollout's temperature. */
learner_scoring learner_scoring_of(const ares_train_config *cfg);
typedef struct learner_rows {
    int64_t row, end;
} learner_rows;
/*
 * Log-probs and entropies (NULL: not wanted) of the response tokens of rows [row, end). Of rows
 * that rollout sampled under these weights at this temperature they are what it recorded, bit for
 * bit.
 */
int learner_log_probs(learner *l, const learner_scoring *s, const ares_batch *b, int64_t row,
                      int64_t end, float *log_probs, float *entropies);
/* The log-probs of several runs of rows, ascending. column [b->tokens]: others stay as they are */
int learner_log_probs_of(learner *l, const learner_scoring *s, const ares_batch *b,
                         const learner_rows *runs, int64_t n, float *column);

/*
 * Adds the gradients of sum(d_log_prob * log-prob) over the response tokens of n micro-batches.
 * d_log_prob [b->tokens]; sum: is added to; NULL: not wanted
 */
int learner_add_gradients(learner *l, const learner_scoring *s, const ares_batch *b,
                          const ares_micro_batch *m, int64_t n, const float *d_log_prob,
                          double *sum);

/*
 * The optimizer step of a mini-batch whose gradients are there. rc: what computing them gave, the
 * same on every rank. The update is left out where a gradient is not finite, or a loss is not
 * (ARES_ENUMERIC). *norm: of the gradient before clipping; NaN where the update was left out, on
 * every rank. what: begins warnings and errors, such as "actor: step 5".
 */
int learner_step(learner *l, int rc, double max_grad_norm, const char *what, double *norm);
double learner_lr(const learner *l); /* of the training step at hand */
/*
 * perf/backward_frac: rows that derivatives have reached over all rows that were fed for a
 * backward, of all ranks and of optimizer steps that were taken since the last call; none where the
 * kernels leave nothing out. A collective.
 */
int learner_report_backward(learner *l, ares_metrics *m);
/*
 * Of a model with experts, over the rows of all ranks' updates since the last call: moe/load_max,
 * the largest share of an expert times their number, in the worst layer (1: all alike);
 * moe/load_unused, how many experts of all layers got no row; moe/router_entropy, in nats. A
 * collective.
 */
int learner_report_routing(learner *l, ares_metrics *m);

/*
 * Images and videos in the passes of a learner: what its tower makes of them, and the way back
 * through a tower that is trained. (learner.c)
 */

/*
 * Metrics of a step's images and videos: data/image_tokens, timing_s/vision and, of a trained
 * tower, exact/vision_max_abs. Nothing for a model that reads text alone. other: whose seconds
 * count, too, or NULL. A collective.
 */
int media_report(learner *l, learner *other, const ares_batch *b, ares_metrics *m);
#endif
