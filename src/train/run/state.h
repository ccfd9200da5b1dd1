/*
 * Checkpoints of everything that a run depends on. All functions but state_begin_step and
 * state_unmoved are collectives. (state.c)
 */
#ifndef ARES_TRAIN_RUN_STATE_H
#define ARES_TRAIN_RUN_STATE_H

#include "run/training.h"

/*
 * trainer.save_limit says how many regular checkpoints, step_*, are kept. A rolling one, rolling_*,
 * is kept until the next checkpoint is complete.
 */
typedef enum { STATE_REGULAR, STATE_ROLLING } state_kind;
typedef struct state_save {
    state_kind kind;
    bool lead; /* rank 0, which makes the directory and gives it its name */
    int64_t step;
    char name[32];
    ares_str dir, temporary;
    ares_behind *behind; /* writes it while the run goes on; NULL: it is written */
} state_save;
/* What a model's files hold (ares_model_sum); 0: they were not written, or by an older program. */
typedef struct model_sums {
    uint64_t weights, states;
} model_sums;
typedef struct state_sums {
    model_sums model, critic;
} state_sums;

/*
 * A checkpoint is written completely under a temporary name (state_write), then renamed and made
 * the latest (state_commit). The step's row of metrics is written in between: then no row is
 * missing before a checkpoint, and none is written twice after one. A failed write leaves no files.
 *
 * beside: state_write copies the state alone, which a thread writes while the run goes on, unless
 * ranks send their parts to rank 0; state_commit waits for it. One is written at a time.
 */
int state_write(training *t, state_kind kind, bool beside, state_save *s);
/* Whether this rank has written its part, well or not. */
bool state_is_written(const state_save *s);
int state_commit(training *t, state_save *s);
/* Bytes that rank 0 copies for it, at most; *part: of what is in memory twice in any case. */
int64_t state_copied_bytes(const training *t, int ranks, int64_t *part);
void state_abandon(state_save *s); /* keeps the pending error */

/* Remembers what a step changes before its update. */
void state_begin_step(training *t);
/*
 * After a failed step: whether weights, optimizers and skipped rows are still those that the step
 * began with.
 */
bool state_unmoved(const training *t);
/* A rolling checkpoint of the state that the failed step began with. */
int state_save_begun(training *t, state_save *s);

/* Takes the score of the validation just made; the next regular checkpoint is compared by it. */
void state_validated(training *t, const ares_metrics *m);

/*
 * The version of state.json that this program writes, and an older one that it also reads, which
 * holds what is in source.json now.
 */
enum { STATE_VERSION = 3, STATE_WITHOUT_SOURCE = 2 };

/* What a model's directory may hold beside weights and config.json; NULL ends the list. */
extern const char *const state_tokenizer_files[];

/* A run goes on from a checkpoint: loads all but the weights, which are there. (resume.c) */
int state_resume(training *t, const char *checkpoint);
/* For a validation alone: loads the step, and the controls' state where the checkpoint has one. */
int state_look(training *t, const char *checkpoint);
/*
 * No collective, and loads nothing: whether a run of this model could go on from the checkpoint, or
 * be validated.
 */
int state_fits(training *t, const char *checkpoint);
#endif
