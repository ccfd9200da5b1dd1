#ifndef ARES_TRAIN_RUN_RUNDIR_H
#define ARES_TRAIN_RUN_RUNDIR_H

#include "ares/train.h"

/*
 * The directory of a run (docs/design.md#run-directory): what is in it decides whether a run
 * starts, goes on, or is refused.
 */
typedef struct rundir {
    ares_str path;
    ares_str checkpoint; /* to go on from; empty: start afresh */
    bool own;            /* the checkpoint is this run's own */
    bool same_files;     /* every rank sees the directory of rank 0 */
    bool anew;           /* it holds a start of other options that made no step */
    int lock;            /* file descriptor; -1: not held */
} rundir;

/*
 * Rank 0 looks and takes the lock; all ranks learn the outcome. declare: declares the options of
 * this kind of run, so that the directory's own config.yaml can be read.
 */
typedef void rundir_declare(ares_config *cfg, ares_train_config *out);
int rundir_open(rundir *d, const ares_config *cfg, const ares_train_config *c,
                rundir_declare *declare, ares_world *world);
/*
 * Makes the directory that of this configuration, once everything that the run needs is open: a
 * start that fails before leaves no trace that the next one would have to agree with. Rank 0 writes
 * config.yaml, and removes what a start that made no step has left, or DONE of a run that gets
 * longer. A collective.
 */
int rundir_claim(const rundir *d, const ares_config *cfg, ares_world *world);
/*
 * Writes DONE, one JSON object, and removes the rolling checkpoint. Members: run (project and
 * experiment), config (a hash of the options that change results, the run's names left out: runs
 * that differ in threads or in their folder have the same), step (the last one), stopped (why a
 * control ended the run, or null).
 */
typedef struct rundir_end {
    int64_t step;
    const char *stopped; /* NULL: no control did */
} rundir_end;
int rundir_finish(rundir *d, const ares_config *cfg, const ares_train_config *c,
                  const rundir_end *end);
/*
 * For a validation alone; takes no lock and writes nothing. The checkpoint is what
 * trainer.load_checkpoint_path names, else, with `own`, the run directory's latest, else none. All
 * ranks learn it.
 */
int rundir_look(rundir *d, const ares_train_config *c, bool own, ares_world *world);
/*
 * Finds the checkpoint that trainer.load_checkpoint_path names, as the two above; stays empty where
 * it names none, or a run has its own, which comes first.
 */
int rundir_named(const ares_train_config *c, ares_str *checkpoint);
void rundir_close(rundir *d);
#endif
