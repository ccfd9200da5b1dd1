/*
 * What the actor, the critic, the reference and supervised training are made of: a model, what a
 * pass through it needs, and its optimizer. (learner.c)
 */
#ifndef ARES_TRAIN_ROLES_LEARNER_H
#define ARES_TRAIN_ROLES_LEARNER_H

#include "roles/columns.h"
#include "roles/optim.h"

typedef struct learner {
    const char *role; /* "actor", "critic": errors name its options, worker.<role>.* */
    ares_model *model;
    ares_workspace *workspace;
    ares_world *world; /* the ranks whose gradients are summed; NULL: this process alone */
    optim optim;       /* of a model that is trained */
    int64_t step;      /* training steps it has been updated in: the clock of its schedule */
    void *scratch;     /* device, of a micro-batch: derivatives of its hidden states, at least */
    size_t scratch_bytes;
    columns targets;  /* of a pass */
    columns stats;    /* what the head finds, of a scoring */
    columns columns;  /* of an update */
    ares_arena arena; /* of a micro-batch */
} learner;

typedef struct learner_options {
    const char *role;
    ares_world *world;
    const ares_optim_config *optim; /* NULL: the weights stay as they are */
    int64_t total_steps;            /* of the schedule */
    bool gradient_checkpointing;
} learner_options;

/* Refuses fp32 storage by name where the device computes in bf16, whose products take bf16 alone.
 */
int learner_check_storage(const char *role, ares_dtype storage, const ares_device *d);
/* The model stays the caller's: whoever loaded it frees it after the learner is closed. */
int learner_open(learner *l, ares_model *m, const learner_options *o);
void learner_close(learner *l); /* a zeroed one, too */
/* Makes the scratch hold so many bytes; what it held is lost where it grows. */
int learner_reserve(learner *l, size_t bytes);
/* For the derivatives of so many rows of hidden states. */
int learner_reserve_backward(learner *l, int32_t rows);

/* Some rows of a batch after their forward pass. It lives until the learner's next one. */
typedef struct learner_pass {
    ares_packed packed;     /* packed.n_out: response tokens of the rows; 0: nothing was computed */
    const int32_t *targets; /* device, [n_out]: these tokens, run by run in batch order */
    void *hidden;           /* device, [n_out][hidden]: the states from which each is predicted */
} learner_pass;
int learner_forward(learner *l, const ares_batch *b, const ares_micro_set *rows, bool share_prompts,
                    learner_pass *out);
/* The same of a micro-batch: head row i is about batch token row_start[m->row] + i. */
int learner_forward_rows(learner *l, const ares_batch *b, const ares_micro_batch *m,
                         bool share_prompts, learner_pass *out);
/*
 * The head over a pass, forward only; what it writes (log_prob, ...), on the device, is for the
 * caller to set.
 */
ares_head_args learner_head(const learner *l, const learner_pass *p, double temperature);
/* Adds what the head's backward needs besides: dx, in the scratch, and the gradient dw. */
int learner_head_backward(learner *l, ares_head_args *h);
/* Adds the gradients of a pass. d_hidden: device, [n_out][hidden] */
int learner_backward(learner *l, const learner_pass *p, void *d_hidden);

/* How a pass over rows is cut, and the temperature of its log-probs. */
typedef struct learner_scoring {
    int64_t max_token_len;
    bool share_prompts;
    double temperature;
} learner_scoring;
/* As the actor is configured, at the rollout's temperature. */
learner_scoring learner_scoring_of(const ares_train_config *cfg);
/*
 * Log-probs and entropies (NULL: not wanted) of the response tokens of rows [row, end). Of rows
 * that rollout sampled under these weights at this temperature they are what it recorded, bit for
 * bit.
 */
int learner_log_probs(learner *l, const learner_scoring *s, const ares_batch *b, int64_t row,
                      int64_t end, float *log_probs, float *entropies);

/*
 * Adds the gradients of sum(d_log_prob * log-prob) over the response tokens of rows m.
 * d_log_prob: of the tokens from row_start[m->row] on; sum: is added to; NULL: not wanted
 */
int learner_add_gradients(learner *l, const learner_scoring *s, const ares_batch *b,
                          const ares_micro_batch *m, const float *d_log_prob, double *sum);

/*
 * The optimizer step of a mini-batch whose gradients are there. rc is what computing them gave, the
 * same on every rank; ARES_ENUMERIC, a loss that is no finite number, leaves the update out as a
 * gradient does that is none. *norm: of the gradient before clipping; NaN where the update was left
 * out, on every rank. what begins warnings and errors: "actor: step 5".
 */
int learner_step(learner *l, int rc, double max_grad_norm, const char *what, double *norm);
double learner_lr(const learner *l); /* of the training step at hand */
#endif
