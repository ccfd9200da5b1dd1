/*
 * Checkpoints of everything that moves a run (state.c). All functions but state_begin_step are
 * collectives.
 */
#ifndef ARES_TRAIN_RUN_STATE_H
#define ARES_TRAIN_RUN_STATE_H

#include "run/training.h"

/*
 * A regular checkpoint, step_*, is kept as save_limit says; a rolling one, rolling_*, until the
 * next one is there.
 */
typedef enum { STATE_REGULAR, STATE_ROLLING } state_kind;
typedef struct state_save {
    state_kind kind;
    char name[32];
    ares_str dir, temporary;
} state_save;

/*
 * Written whole under a temporary name, then made the latest. The step's row of metrics is written
 * in between: then no row is missing before a checkpoint, and none is written twice after one. A
 * failed write leaves nothing behind.
 */
int state_write(training *t, state_kind kind, state_save *s);
int state_commit(training *t, state_save *s);
void state_abandon(state_save *s); /* keeps the pending error */

/* Remembers what a step moves before its update. */
void state_begin_step(training *t);
/*
 * After a step that failed: whether weights, optimizers and skipped rows are still those it began
 * with.
 */
bool state_unmoved(const training *t);
/* A rolling checkpoint of the state the failed step began with. */
int state_save_begun(training *t, state_save *s);

/* Of the validation just made: the next regular checkpoint is judged by it. */
void state_validated(training *t, const ares_metrics *m);

int state_resume(training *t, const char *checkpoint);
/* For a validation alone: the step, and the controls' state where the checkpoint has one. */
int state_look(training *t, const char *checkpoint);
#endif
