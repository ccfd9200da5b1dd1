/*
 * Private to train: the loop of a run, checkpoints, the run directory, validation, and the checks
 * before a start. The state that every kind of run has is declared in trainer.h.
 */
#ifndef ARES_TRAIN_RUN_RUN_H
#define ARES_TRAIN_RUN_RUN_H

#include "ares/config.h"
#include "ares/data.h"
#include "ares/train.h"
#include "trainer.h"

/*
 * A kind of run: reinforcement learning or supervised training. Its functions do what differs; the
 * loop with directory, checkpoints, signals and metrics is the same for both (run.c).
 */
typedef struct run_kind {
    void (*declare)(ares_config *cfg, ares_train_config *out); /* all options */
    /* *out must be closed after a failure, too. weights: a checkpoint's model/, or NULL */
    int (*open)(ares_config *cfg, const ares_train_config *c, ares_world *world,
                const char *weights, training **out);
    void (*close)(training *t);
    int (*begin)(training *t, ares_metrics *m); /* before the first step; NULL: nothing */
    int (*step)(training *t, ares_metrics *m);
    int (*validate)(training *t, ares_metrics *m, ares_str *samples);
    /* Writes files and distributions of the step just made; a collective. NULL: none */
    int (*write_rollouts)(training *t, ares_tracker *tracker);
    /* Writes the files of the step that a control has ended the run with, where they are not there
     * yet; a collective. NULL: none */
    int (*end_rollouts)(training *t);
    /* On rank 0, with every checkpoint: exactness.json. NULL: none */
    int (*write_exactness)(const training *t);
    /* On rank 0, when a run goes on: notes in it what --force has changed, if anything. NULL: none
     */
    int (*forced)(training *t, const char *changed);
    /* On rank 0: writes histograms beside the metrics. NULL: none */
    int (*log_histograms)(training *t, ares_tracker *tracker);
} run_kind;
int train_run(const run_kind *kind, ares_config *cfg, const ares_train_config *c,
              ares_world *world);

/*
 * The number of cards that the driver's folder lists (-1: there is no such folder), and the memory
 * of the smallest, which is looked up by the card's name. (plan/plan.c)
 */
int train_cards(const char *folder, double *least_bytes);
/* Adds a fault, with the remedy, where processes that hold `bytes` each do not fit on these cards.
 */
void train_check_cards(ares_config *cfg, const char *device, int local_ranks, double bytes,
                       const char *words, int cards, double least, const char *remedy);

/*
 * run.json: program, machine, command, model and times of a run. begin: on rank 0, once the
 * directory is the run's; goes_on: from a checkpoint of its own. end: stopped: why the run has not
 * made all its steps; NULL: it has. A file that cannot be written at the end is a warning.
 * (record.c)
 */
int record_begin(const training *t, bool goes_on);
void record_end(const char *run_dir, const char *stopped);

/*
 * Prints the table at the end of a run, and writes it to summary.txt: some questions with their
 * answers before and after, validation before and after, the paths of the results. It is made from
 * the run's files alone. verdicts: lines about the run's health, of which the table ends; NULL:
 * none. (summary.c)
 */
int run_summary(const char *run_dir, const char *verdicts);

/*
 * Checkpoints of everything that a run depends on. All functions but state_begin_step and
 * state_unmoved are collectives. (checkpoint.c)
 */

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
    ares_write_queue *behind; /* writes it while the run goes on; NULL: it is written */
} state_save;

/*
 * A checkpoint is written completely under a temporary name (state_write), then renamed and made
 * the latest (state_commit). The step's row of metrics is written in between: then no row is
 * missing before a checkpoint, and none is written twice after one. A failed write leaves no files.
 *
 * beside: state_write copies the state alone, which a thread writes while the run goes on, unless
 * ranks send their parts to rank 0; state_commit waits for it. One is written at a time.
 */
int state_write(training *t, state_kind kind, bool beside, state_save *s);
/* Whether this rank is done with writing its part, also where that failed. */
bool state_is_written(const state_save *s);
int state_commit(training *t, state_save *s);
/*
 * Most bytes of tensors that rank 0 of `ranks` writes into a checkpoint, with or without optimizer
 * states; *part: of the largest piece, which is always copied.
 */
int64_t state_written_bytes(const training *t, bool states, int ranks, int64_t *part);
void state_abandon(state_save *s); /* keeps the pending error */

/* Remembers the counters and states that a step changes before its update. */
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

/* Files that a model's directory may hold beside weights and config.json; NULL ends the list. */
extern const char *const state_tokenizer_files[];

/*
 * Goes on from a checkpoint: loads all but the weights, which are loaded before. In a replay
 * (t->replays) what only an update reads is left out, and may not be there. (checkpoint.c)
 */
int state_resume(training *t, const char *checkpoint);
/* For a validation alone: loads the step, and the controls' state where the checkpoint has one. */
int state_look(training *t, const char *checkpoint);
/*
 * Fails where a run of this model could not go on from the checkpoint, or validate it. Loads
 * nothing; no collective.
 */
int state_fits(training *t, const char *checkpoint);

/*
 * What was compared in a run, in exactness.json (docs/exactness.md) and, so that a run that goes on
 * counts on, in state.json. (exactness.c)
 */

/* Adds a step that has ended: what its update compared, and that it had so many response tokens. */
void exactness_add(exactness *sum, const exactness *of_update, int64_t step, int64_t tokens);
void exactness_save(const exactness *x, ares_str *json);   /* an object */
void exactness_load(exactness *x, const ares_json *saved); /* NULL, or no such object: nothing */
/*
 * Appends, as JSON, why a replay of a step may differ from it though nothing is wrong, such as a
 * user's program that judged answers; returns how many reasons. t: NULL where only options are
 * known.
 */
int exactness_reasons(const ares_trainer *t, ares_str *list);
/*
 * Notes that --force lets the run go on with other options; changed: which, in words, "" for none.
 * Times before it are read from exactness.json, which is then written. On rank 0.
 */
int exactness_forced(ares_trainer *t, const char *changed);
/* Writes <run>/exactness.json, whole or not at all; on rank 0. */
int exactness_write(const ares_trainer *t);

/*
 * The directory of a run (docs/design.md#run-directory). Its contents decide whether a run starts,
 * goes on, or is refused. (rundir.c)
 */
typedef struct rundir {
    ares_str path;
    ares_str checkpoint; /* to go on from; empty: start afresh */
    bool own;            /* the checkpoint is this run's own */
    bool same_files;     /* every rank sees the directory of rank 0 */
    ares_str forced;     /* on rank 0: what --force changes of a run that goes on; empty: nothing */
    bool anew;           /* it holds a start with other options that made no step: overwritten */
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
 * Makes the directory this configuration's, once everything that the run needs is open, so that a
 * start that fails earlier leaves no options that the next one would be compared with. Rank 0
 * writes config.yaml, and removes the files of a start that made no step, or DONE of a run that
 * gets longer. A collective.
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
 * Finds the checkpoint that trainer.load_checkpoint_path names, as rundir_open and rundir_look do;
 * stays empty where it names none, or where a run has its own, which comes first.
 */
int rundir_named(const ares_train_config *c, ares_str *checkpoint);
/*
 * Where the adapter that a run starts from can be read: lora->adapter_path, or where that is gone
 * and the run goes on from a checkpoint, what lies there as `name`; it has the same layers. Lives
 * as long as *path and the options.
 */
const char *rundir_starting_adapter(const ares_train_config *c, const ares_lora_options *lora,
                                    const char *name, ares_str *path);
void rundir_close(rundir *d);

/* Where a saved state comes from: its data and its model. (checkpoint.c) */

/* Hashes of all training rows, and of the model and adapter that the run began with. */
typedef struct train_origin {
    char data[24], model[24], adapter[24]; /* adapter "": a new one, or none */
    char teacher[24];                      /* of distillation.teacher_model.model_path */
} train_origin;
train_origin train_origin_of(const training *t);

/* Parts of --check that runs by rewards and supervised ones have in common. (start.c) */

/*
 * Model and tokenizer, without a weight, and whether a checkpoint that is named fits them. Without
 * such a model on this machine t->model stays NULL.
 */
int check_open_model(training *t);
/* The first rows of a file; *d is NULL where it is not on this machine. */
int check_open_rows(const ares_row_file *file, const ares_data_config *data, bool need_answer,
                    ares_dataset **d);
/*
 * Returns rc with its pending error, except where all of the first rows are too long and the run
 * leaves such rows out (drops): other rows may be shorter, so that is only a warning.
 */
int check_lengths(int rc, bool drops);

/* Which options differ between two configurations, in words. (start.c) */

typedef struct differing {
    const ares_config *cfg;
    bool (*may)(const ares_config *cfg, const char *path); /* whether an option may differ */
    const char *between; /* stands between the two values of an option */
    ares_str *text;      /* gets the first that differ, each with both values */
    int n;               /* the number of options that differ */
} differing;
/* a, b: values of one option, or of a section, which is walked; NULL: there is none. */
void differ(differing *x, const ares_json *a, const ares_json *b, const char *path);

/* Files that must be the same on all ranks, checked before they work together. (start.c) */

/* Collectives, which fail on all ranks where one has read other files than rank 0. */
int same_files(ares_config *cfg, const ares_train_config *c, ares_world *world);
int same_checkpoint(const char *dir, ares_world *world);

/* Metrics over several answers to each prompt of a validation. (validate.c) */

enum { SEVERAL_KS = 16 }; /* 1, 2, 4 .. and n */

/* Sums over prompts for one k. passed: prompts that count for pass@k */
typedef struct several_at_k {
    double pass, passed, best, best_std, worst, worst_std, maj, maj_std;
} several_at_k;

/* Sums over prompts; the caller zeroes them. voted: prompts whose answers all have a vote */
typedef struct several {
    double mean, std, prompts, voted;
    several_at_k at[SEVERAL_KS];
} several;

#endif
