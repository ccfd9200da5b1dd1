/*
 * Private to train: what a step asks of the models it trains or compares with (actor, critic,
 * reference), the update of the actor, and the rows of a mini-batch.
 */
#ifndef ARES_TRAIN_ROLES_H
#define ARES_TRAIN_ROLES_H

#include "ares/algo.h"
#include "ares/train.h"
#include "learner.h"

/* The policy: its log-probs and its update. (actor.c, update.c) */

typedef struct training training; /* trainer.h */

/*
 * Whether the log-prob that rollout recorded for a token is that of the update's forward: what was
 * compared over all ranks, and why other response tokens were not: X(name, text). The first that
 * holds of a token counts it.
 */
#define EXACTNESS_REASONS(X)                                                                 \
    X(not_trained, "environments' text, discarded answers, groups that only fill the batch") \
    X(greedy, "drawn at temperature 0, which has no log-prob of its own")                    \
    X(not_sampled, "a program wrote it, or its text was encoded anew")                       \
    X(older_weights, "sampled in an earlier step, before an update")                         \
    X(after_update, "its step went forward over it first after an optimizer step")           \
    X(no_forward, "no update went over it: a warm-up of the critic, a mini-batch left out ..")
typedef enum exactness_reason {
#define EXACTNESS_REASON(name, text) EXACT_##name,
    EXACTNESS_REASONS(EXACTNESS_REASON)
#undef EXACTNESS_REASON
        EXACT_REASONS
} exactness_reason;
typedef struct exactness {
    int64_t steps, compared, not_compared[EXACT_REASONS]; /* tokens */
    double max_abs; /* largest difference; 0: all were equal */
    /* the first token that differs: its step (0: none does), line of that step's rollouts from 1
     * on, place in the response from 0 on */
    int64_t step, row, token;
} exactness;

typedef struct actor {
    learner learner; /* its model is the trainer's, which rollout samples from */
    const ares_train_config *cfg;
    const ares_loss *loss;
    const ares_kl *kl;
    struct reference *ref;   /* the trainer's; read by an exact KL in the loss, else NULL */
    struct teacher *teacher; /* the trainer's; NULL: none */
    ares_loss_sums sums; /* of the last update, over all ranks: its histogram is drawn from them */
    bool logs;           /* an update writes columns ratio and clipped */
    bool ratios;         /* in the last update a ratio was not exactly 1, on any rank */
    exactness exact;     /* of the last update, over all ranks; whose step it is the run adds */
} actor;

/* adapter, features: as of learner_options */
int actor_open(actor *a, const ares_train_config *cfg, ares_model *m, ares_adapter *adapter,
               ares_features *features, ares_world *world, int64_t total_steps);
void actor_close(actor *a);
/*
 * Puts column old_log_probs: the rollout's own where row and weights are unchanged since, else
 * computed again (docs/design.md#old-log-probs).
 */
int actor_log_probs(actor *a, ares_batch *b);
/*
 * Puts column sum_pi_squared, without an array of the vocabulary: at half the temperature a token's
 * log-prob is 2 z - log sum exp(2 z), so that sum pi^2 = exp(2 log pi - that log-prob).
 */
int actor_sum_pi_squared(actor *a, ares_batch *b);
/*
 * Who goes over the update's rows beside the policy: the reference where the loss has an exact KL,
 * the teacher of a divergence; NULL: nobody.
 */
learner *actor_beside(const actor *a);
/*
 * Rows that are no part of the batch and learn with it, such as preference pairs
 * (docs/update.md#a-second-batch). Each group goes with one of the batch's rows: the gradient of
 * the mini-batch of that row also gets sum(d_log_prob * gradient of log-prob) over the group's
 * response tokens. A loss of pairs (ARES_LOSS_PAIRS) computes the log-probs and writes the
 * derivatives in each mini-batch; its groups are a chosen and a rejected answer.
 */
typedef struct actor_second {
    const ares_batch *batch; /* with column responses */
    const int64_t *row;      /* [batch->groups] row that the group goes with; never descending */
    float *d_log_prob;       /* [batch->tokens] derivatives of the loss by log-probs */
    double temperature;      /* of the log-probs */
    /* [batch->tokens], of a loss of pairs, else NULL */
    float *log_prob;
    const float *ref_log_prob;
} actor_second;
/*
 * ppo_epochs passes over the batch, an optimizer step per mini-batch. second: NULL where the batch
 * is all there is
 */
int actor_update(actor *a, ares_batch *b, const actor_second *second, ares_metrics *m);

/*
 * The loss and the gradients of one mini-batch of the actor, in micro-batches that bound memory and
 * change no bit. (update.c)
 */

/*
 * Numbers by token of the batch: what a loss reads of the batch, its weights, and what head and
 * loss write. NULL: not used in this update.
 */
#define UPDATE_COLUMNS(X)    \
    X(float, old_log_prob)   \
    X(float, advantage)      \
    X(float, ref_log_prob)   \
    X(float, kl_weight)      \
    X(uint8_t, mask)         \
    X(float, weight)         \
    X(float, rollout_weight) \
    X(uint8_t, chosen)       \
    X(float, log_prob)       \
    X(float, entropy)        \
    X(float, lse)            \
    X(float, c_log_prob)     \
    X(float, c_entropy)      \
    X(float, kl)             \
    X(float, ref_lse)        \
    X(float, c_kl)           \
    X(float, c_divergence)   \
    X(float, ratio)          \
    X(uint8_t, clipped)      \
    X(float, seen_kl) /* of the last pass over a token, by any estimator; NULL: no KL here */
typedef struct update_columns {
#define UPDATE_COLUMN(type, name) type *name;
    UPDATE_COLUMNS(UPDATE_COLUMN)
#undef UPDATE_COLUMN
} update_columns;

/* Which terms of the loss give gradients; the others are only added up in the sums. */
typedef enum update_part {
    UPDATE_WHOLE, /* all: what trains */
    UPDATE_TASK,  /* the policy loss */
    UPDATE_ENTROPY,
    UPDATE_KL
} update_part;

typedef struct update {
    actor *actor;
    ares_batch *batch;
    update_part part;
    const actor_second *second; /* NULL: none */
    update_columns host;        /* the columns on the host, */
    update_columns col; /* and where the device computes with them: on the CPU the same arrays */
    /* What else a card's losses read, and their sums; NULL on the CPU, whose losses add to sums. */
    const ares_loss_card *card;
    ares_agg_counts rollout; /* of the whole step over all ranks */
    ares_loss_sums sums;
    ares_vapor_sums pairs; /* of a loss of pairs */
    bool *passed;          /* [rows] the loss of the current mini-batch has seen the row */
    bool compare;          /* the weights are still those of the rollout */
    bool fills;            /* the current mini-batch only fills the batch (mini_batches.counted) */
    bool logs;             /* ratio and clipped are wanted of every token */
    bool known;            /* the loss takes the rollout's log-probs: no forward pass before it */
    /* |update's log-prob - rollout's| over mask-1 tokens that are current */
    double max_abs;
    double compared; /* 1: there was such a token */
    /* on the CPU: tokens of mask 1 that losses have seen; those with a derivative */
    int64_t trained, active;
    /* [rows] how the first forward of the update met a row: 0: not yet, 1: compared, 2: weights had
     * moved */
    uint8_t *met;
    int64_t version;                    /* of the weights before the update */
    bool differs;                       /* a token does; the first one: */
    int64_t differs_row, differs_token; /* of `batch`; place in the response */
    uint64_t pass;                      /* passes over the batch before this one */
    double mini_batches; /* number of those that gave a gradient: metrics are means over them */
    double stopped_mini, stopped_micro, empty, skipped;
    double lr; /* of the optimizer steps */
    /* of the weights that sampled the answers: it shows that they move; of an adapter that trains
     */
    double adapter_norm;
    /* with a teacher; arrays are [tokens] of the batch */
    ares_batch beside;        /* what the teacher of a divergence goes over */
    ares_divergence_row *row; /* what the head found last; NULL: no divergence */
    float *taught;            /* weights of its term; NULL: it has none in this update */
    ares_distill_seen seen;   /* of the first pass over each token */
    struct seen_columns *first;
    double distilled; /* sum of the term */
    /* for the callback of the fused head: its micro-batch, and the first failure */
    const ares_micro_batch *micro;
    int rc;
} update;
/*
 * Whether the log-prob that rollout recorded for a token is that of the policy as it is: the token
 * stands as it was sampled, under the current weights. (update.c)
 */
bool actor_current(const actor *a, const ares_batch *b, int64_t token);
/* Begins an update: empty sums, its columns, what all its mini-batches share. (update.c) */
int update_prepare(update *u);
/*
 * On return the gradients are those of rows [row, end), which may be none of this rank's. *idle: no
 * rank had a token to train on, or early stop abandoned the whole mini-batch; then no optimizer
 * step is due.
 */
int update_mini_batch(update *u, int64_t row, int64_t end, bool *idle);
/* The mean divergence of a row's tokens at their first pass; NaN where the teacher taught none. */
float update_distilled(const update *u, int64_t row);
void update_finish(update *u); /* after update_prepare, also one that failed */
/* After the last mini-batch: adds this rank's tokens, by whether they were compared. (update.c) */
void update_count_compared(const update *u, exactness *out);
/* Adds the gradients of the groups that go with rows [row, end) of the batch. (vapor.c) */
int second_add_gradients(actor *a, const actor_second *s, int64_t row, int64_t end);
/* The policy's log-probs of the pairs that go with rows [row, end). (vapor.c) */
int pair_log_probs(update *u, int64_t row, int64_t end);
/*
 * A loss of pairs over whole groups, after pair_log_probs and the forward passes of rows
 * [row, end). A collective.
 */
int pair_loss(update *u, int64_t row, int64_t end);

/* The critic: values of response tokens, and their update (docs/update.md#critic). (critic.c) */

typedef struct critic {
    learner learner;
    ares_model *own; /* the learner's; NULL: that is the policy's, beside which it has an adapter */
    ares_param *value, *value_bias; /* the head, of the model or of the adapter */
    const ares_train_config *cfg;
} critic;

/*
 * weights: a checkpoint's critic/, where a run goes on; NULL: worker.critic.model.model_path. An
 * adapter beside the policy's frozen model where worker.critic.model.lora asks for one.
 */
int critic_open(critic *c, training *t, const char *weights);
void critic_close(critic *c);
/* Takes scratch for a round of n passes, so many outputs each. */
int critic_reserve(critic *c, int32_t rows, int64_t n);
size_t critic_expect(critic *c, int32_t rows, int64_t n); /* as learner_expect_backward */
int critic_values(critic *c, ares_batch *b); /* puts column values: 0 where the mask is */
int critic_update(critic *c, ares_batch *b, ares_metrics *m); /* towards the returns */

/* The frozen copy of the starting policy. (actor.c) */

typedef struct reference {
    learner learner;
    ares_model *own; /* the learner's; NULL: that is the policy's, whose adapter is not used */
    ares_features *features; /* the learner's, where they are not the policy's, too; else NULL */
    const ares_train_config *cfg;
} reference;

/*
 * weights: of a reference that has moved; NULL: the model that training began from. Beside an
 * adapter of the policy that is the policy's own model, and takes no memory. moves: the policy is
 * mixed into it (vapor_sync).
 */
int reference_open(reference *r, training *t, const char *weights, bool moves);
void reference_close(reference *r);
/* Whether it sees with a tower of its own: the policy's is trained, or it is another model. */
bool reference_sees(const training *t);
/* Puts column ref_log_probs. */
int reference_log_probs(reference *r, double temperature, ares_batch *b);
/* Puts column kl: the exact KL of a policy to the reference at every token with mask 1. */
int reference_kl(reference *r, learner *policy, double temperature, ares_batch *b);

/* The teacher of a distillation (docs/distillation.md). (teacher.c) */

struct teacher_texts; /* teacher_texts.h */
typedef struct teacher {
    learner own;
    learner *learner;        /* whose passes are the teacher's: `own`, or the reference's */
    ares_model *model;       /* own's; NULL: another role's */
    ares_adapter *adapter;   /* own's, where it is not the policy's; NULL: none */
    ares_features *features; /* own's, where they are not the policy's; NULL: none */
    const learner *policy;
    int64_t readable;   /* ids below which student and teacher both have a logit */
    double temperature; /* of the divergence */
    struct teacher_texts *texts;
    const ares_train_config *cfg;
} teacher;

bool teacher_wanted(const ares_train_config *c);
/* Whether rewards have no part in what is learnt. */
bool teacher_alone(const ares_train_config *c);
/*
 * After the policy, its tokenizer and the data. ref: NULL: none is open; weights: a checkpoint's
 * teacher/, of an average that goes on; NULL: it begins
 */
int teacher_open(teacher *x, training *t, reference *ref, const char *weights);
/* The same without what it reads, for a plan. */
int teacher_open_weights(teacher *x, training *t, reference *ref, const char *weights);
void teacher_close(teacher *x);
/*
 * Fails where a row lacks the stored answer that the options ask for, or no row has the context.
 * all: these are all rows of the run
 */
int teacher_check_rows(const ares_train_config *c, const ares_source *rows, bool all);
/*
 * The batch that the teacher goes over: b's groups and responses after the teacher's prompts. out:
 * initialised; its row_start is b's.
 */
void teacher_batch(const ares_batch *b, ares_batch *out);
/* Puts column teacher_log_probs, 0 where the row has no teacher. */
int teacher_log_probs(teacher *x, ares_batch *b);
/*
 * Its hidden states over the rows of n micro-batches of the policy; own: of teacher_batch. pass
 * [n]: written, with their hidden; the rest lives in the arena
 */
int teacher_forward(teacher *x, const ares_batch *own, const ares_micro_batch *m, int64_t n,
                    ares_arena *arena, learner_pass *pass);
/* After training step `step`, from 1 on: moves an average towards the policy. */
int teacher_sync(teacher *x, int64_t step);

/*
 * Which rows of a step make a mini-batch (docs/update.md#mini-batches). (mini_batches.c)
 */

/* How many prompts, or rows, a mini-batch has over all ranks, and which. */
typedef struct mini_batch_size {
    int64_t count;
    bool rows; /* count is of rows */
    /* of rows: */
    bool by_length; /* those of like length make a mini-batch (docs/update.md#the-order-of-rows) */
    bool in_order;  /* they keep that order in it, because micro-batches of it are counted */
} mini_batch_size;
mini_batch_size mini_batch_size_of_actor(const ares_train_config *cfg);
mini_batch_size mini_batch_size_of_critic(const ares_train_config *cfg);

/*
 * Mini-batch i has rows [start[i], start[i + 1]) of `batch`, maybe none; n is the same on all
 * ranks. Those from `counted` on hold only groups that give every rank one, and count nowhere;
 * `counted` is the same for every number of ranks.
 */
typedef struct mini_batches {
    int64_t n, counted;
    const int64_t *start;
    ares_batch *batch;    /* the step's, or a copy of this rank's rows in another order */
    const int64_t *order; /* [batch->rows] the step's row that each is; NULL: it is no copy */
} mini_batches;
/*
 * Mini-batches of prompts: `count` groups of all ranks, by ares_sample.place. Of rows: rows are
 * numbered over all ranks by ares_sample.place of their group, then as in the group; numbers
 * stay as they are or are ordered by_length, and `count` consecutive ones make a mini-batch. A
 * group may be divided. Unless in_order, a mini-batch has its rows by their numbers. A collective,
 * whose error is every rank's.
 * What it allocates is in b's arena, but for a copy, which mini_batches_fini frees.
 */
int mini_batches_cut(const mini_batch_size *size, ares_batch *b, ares_world *world,
                     mini_batches *out);
/*
 * Tells the progress display how many micro-batches are to come, in so many passes over all rows.
 * Rounds of ranks may cut them into a few more.
 */
void mini_batches_expect(const mini_batches *m, int64_t passes, int64_t max_token_len,
                         bool share_prompts);
/*
 * Writes to the step's batch what the actor's update has written to a copy: kl, ratio, clipped and
 * row_kl.
 */
void mini_batches_give_back(const mini_batches *m, ares_batch *b);
void mini_batches_fini(mini_batches *m);
/*
 * Numbers the rows of all ranks as mini-batches of rows do. first [b->groups]: written: the number
 * of the first row of each of this rank's groups; *total: rows of all ranks. A collective.
 */
int mini_batches_number_rows(ares_batch *b, ares_world *world, int64_t *first, int64_t *total);
#endif
