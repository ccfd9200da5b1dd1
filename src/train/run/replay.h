/* Private to run/: a step of a run, made again without its update, for ares-train verify. */
#ifndef ARES_TRAIN_RUN_REPLAY_H
#define ARES_TRAIN_RUN_REPLAY_H

#include "run.h"

/* The logits of one drawn token, while it was decoded. */
typedef struct replay_look {
    uint64_t priority; /* the smallest are kept: they spread over all tokens alike */
    int32_t *context;  /* [n] prompt and answer before it */
    int32_t n, token;
    const ares_row_media *row_media;
    float *logits; /* [vocab] */
} replay_look;

typedef struct replay {
    ares_config *cfg;
    ares_train_config c;
    ares_trainer trainer; /* its batch is that of the step, once replay_step has made it */
    bool opened;
    ares_metrics *metrics;
    ares_str dir;        /* the run directory, absolute */
    ares_str checkpoint; /* that the step began with; empty: the starting model */
    ares_str file;       /* rollouts/step_<n>.jsonl */
    int64_t step;
    int64_t ranks; /* of the run; 0: not known */
    ares_rollout_watch watch;
    replay_look *looks; /* [n_looks] at most [max_looks] */
    int64_t n_looks, max_looks;
    bool looking;
    uint64_t priority; /* of the token that is asked for */
    int32_t vocab;
} replay;

/*
 * Finds the step and the state that it began with, and opens everything that the run opened, by the
 * same functions. replay_close is to be called after a failure, too.
 */
int replay_open(replay *r, const ares_verify_options *o, ares_world *world);
/* After replay_open: what changed since the run began, such as weights or rows; ARES_ESTATE. */
int replay_load(replay *r);
/*
 * Whether the checkpoint has all its files: a run that goes on may have removed it meanwhile, which
 * is no difference.
 */
bool replay_whole(const replay *r);
/* Draws, answers and judges the step's prompts: r->trainer.batch, up to its advantages. */
int replay_step(replay *r);
void replay_close(replay *r);
#endif
