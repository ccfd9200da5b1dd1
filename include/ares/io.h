/* io: files with a format. Safetensors, JSON lines, metrics and events, checkpoints, locks. */
#ifndef ARES_IO_H
#define ARES_IO_H

#include "ares/core.h"

/* ---------------- safetensors (safetensors.c)
 * A model's tensors: one file, or the shards that model.safetensors.index.json names. Files are
 * mapped, and checked whole at open: header length, JSON, dtypes, shapes against byte ranges,
 * overlaps, gaps, the end of the file. Every error names the file and the tensor.
 */
typedef struct ares_tensor_info {
    const char *name;
    const char *dtype_name; /* "F32", "BF16", "F16", "I64" ... as in the file */
    bool is_float;          /* one of the three below */
    ares_dtype dtype;
    int rank;
    int64_t shape[8];
    int64_t count;    /* elements */
    const void *data; /* mapped; may be unaligned, so copy with memcpy */
    int64_t bytes;
    const char *file;
} ares_tensor_info;
typedef struct ares_safetensors ares_safetensors;
/*
 * path: a .safetensors file, an index .json, or a directory (model.safetensors.index.json,
 * model.safetensors, or its only *.safetensors).
 */
int ares_safetensors_open(const char *path, ares_safetensors **out);
void ares_safetensors_close(ares_safetensors *s);
int64_t ares_safetensors_count(const ares_safetensors *s);
/* the i-th in the order of the headers */
const ares_tensor_info *ares_safetensors_at(const ares_safetensors *s, int64_t i);
/* NULL when absent */
const ares_tensor_info *ares_safetensors_find(const ares_safetensors *s, const char *name);
/* A text of the (first) file's metadata; NULL when absent. */
const char *ares_safetensors_note(const ares_safetensors *s, const char *key);

/*
 * Streaming writer: declare all tensors, then write their bytes in the declared order, in pieces of
 * any size. finish completes and fsyncs the file; it fails when bytes are missing or too many.
 */
typedef struct ares_safetensors_writer ares_safetensors_writer;
int ares_safetensors_create(const char *path, ares_safetensors_writer **out);
void ares_safetensors_declare(ares_safetensors_writer *w, const char *name, ares_dtype dtype,
                              int rank, const int64_t *shape);
/* Adds a text to the file's metadata, before the first byte is written. */
void ares_safetensors_add_note(ares_safetensors_writer *w, const char *key, const char *text);
int ares_safetensors_write(ares_safetensors_writer *w, const void *data, size_t bytes);
int ares_safetensors_finish(ares_safetensors_writer *w); /* frees w, also on failure */
/*
 * The same file, written by several processes: each declares all tensors and writes rectangles of
 * them, in any order, at their places in the file. data [rows][columns]: a row is all of a tensor
 * but its first dimension, and a tensor of one dimension is a column. One process is the lead: it
 * writes the header and sets the size. No process checks that the others have written everything.
 */
int ares_safetensors_create_shared(const char *path, bool lead, ares_safetensors_writer **out);
int ares_safetensors_write_at(ares_safetensors_writer *w, const char *name, int64_t row,
                              int64_t rows, int64_t column, int64_t columns, const void *data);

/* ---------------- writing in the background (write_queue.c)
 * After `begin` a thread of its own runs the posted jobs one after the other, in their order. Every
 * job runs, also after one that failed, so that each can release what it owns.
 */
typedef struct ares_write_queue ares_write_queue;
typedef int ares_write_queue_fn(void *ctx);
ares_write_queue *ares_write_queue_new(void);
void ares_write_queue_post(ares_write_queue *b, ares_write_queue_fn *fn, void *ctx);
void ares_write_queue_begin(ares_write_queue *b); /* nothing is posted after it */
bool ares_write_queue_done(const ares_write_queue *b);
/*
 * Waits for the jobs, or runs them where `begin` was not called, and frees b. Returns the first
 * failure, with its message in this thread.
 */
int ares_write_queue_end(ares_write_queue *b);

/* ---------------- JSON lines (rows.c)
 * Lines end at \n only. A byte order mark at the start and blank lines are skipped. A file
 * compressed with gzip or zstd is unpacked on the way, and a Parquet file gives its rows as lines:
 * fields that are null are left out, line numbers count rows.
 */
typedef struct ares_jsonl ares_jsonl;
int ares_jsonl_open(const char *path, ares_jsonl **out);
/* The same for a path that a command line names: a pipe is read, too; "-" is stdin. */
int ares_jsonl_open_input(const char *path, ares_jsonl **out);
/* Whether the rows of a file are no lines as they stand: Parquet, gzip or zstd. */
bool ares_jsonl_packed(const char *path);
/*
 * Gives 1 and a row (valid until the next call), or 0 at the end. A negative result is a failure
 * that names file:line; the next call reads the line after the bad one. line_number counts from 1
 * and may be NULL.
 */
int ares_jsonl_next(ares_jsonl *r, const ares_json **row, int64_t *line_number);
ares_view ares_jsonl_line(const ares_jsonl *r); /* the text of the line last read */
void ares_jsonl_close(ares_jsonl *r);
/* Bytes of a text that zlib has compressed at level 9 (rows.c); -1: a build without zlib. */
int64_t ares_deflated_bytes(ares_view text);

/* ---------------- tracker (metrics.c): metrics.jsonl and what else shows a run's metrics
 * metrics.jsonl, in the run directory, has a line per step: {"step":3,"actor/pg_loss":...}.
 * TensorBoard's event files lie beside it and get scalars, texts of samples and histograms; the
 * files of Trackio, MLflow and W&B get scalars (docs/trackers.md). Opening a run that goes on drops
 * the rows with step >= from_step, and its new event file tells TensorBoard to forget those steps.
 */
typedef struct ares_tracker ares_tracker;
typedef struct ares_tracker_run {
    const char *dir; /* the run directory */
    int64_t from_step;
    const char *const *loggers; /* words of trainer.logger; console and file mean nothing here */
    int64_t n_loggers;
    const char *project, *name; /* of the run in trackers */
    const ares_json *options;   /* the configuration, which trackers show; NULL: none */
} ares_tracker_run;
/*
 * Whether the tracker of this name could be written: fails with the reason and a remedy. Writes
 * nothing. Names that need no check are fine.
 */
int ares_tracker_check(const char *logger, const char *project);
/*
 * Fails where a tracker cannot be written at all. Later on a failure of Trackio's, MLflow's or
 * W&B's file is a warning: the rows are kept and written with those of a later step.
 */
int ares_tracker_open(const ares_tracker_run *r, ares_tracker **out);
int ares_tracker_log(ares_tracker *t, int64_t step, const ares_metrics *m);
int ares_tracker_sync(ares_tracker *t); /* fsync of metrics.jsonl */
int ares_tracker_text(ares_tracker *t, int64_t step, const char *tag, ares_view text);
/* A histogram whose values are counted already: count [n], edge [n + 1] finite and rising. */
int ares_tracker_bins(ares_tracker *t, int64_t step, const char *tag, const double *edge,
                      const double *count, int n);
/*
 * A verdict of the run, for trackers that show alerts (Trackio's). Each rule is told once, and once
 * more where a warning becomes bad.
 */
typedef struct ares_tracker_alert {
    const char *rule, *title, *text;
    bool bad; /* else a warning */
} ares_tracker_alert;
bool ares_tracker_shows_alerts(const ares_tracker *t);
void ares_tracker_tell(ares_tracker *t, int64_t step, const ares_tracker_alert *a);
/* finished: the run came to its end; trackers that say how a run ended say so */
int ares_tracker_close(ares_tracker *t, bool finished);

/* ---------------- checkpoint (checkpoint.c): directories that appear whole or not at all
 * begin gives a temporary directory beside <dir>/<name>: the lead makes it, and other processes
 * that write into it learn its name; seal fsyncs every file and folder in it; commit renames it to
 * <dir>/<name> (an older checkpoint of that name is exchanged with it and removed) and atomically
 * replaces <dir>/latest, a text file with the name. What a crash leaves behind is removed by the
 * next begin. Names are step_<digits> and rolling_<digits>.
 */
int ares_checkpoint_begin(const char *dir, const char *name, bool lead, ares_str *temporary);
int ares_checkpoint_seal(const char *temporary);
int ares_checkpoint_commit(const char *dir, const char *name, const char *temporary);
void ares_checkpoint_abandon(const char *temporary);
/*
 * Name of the newest complete checkpoint: the one that `latest` names, or the highest step when
 * `latest` is missing. ARES_OK and an empty name when there is none.
 */
int ares_checkpoint_latest(const char *dir, ares_str *name);
/* name of the newest rolling_*; ARES_OK and an empty name when there is none */
int ares_checkpoint_rolling(const char *dir, ares_str *name);
/* removes all rolling_* but the one named `but`; NULL: all of them */
int ares_checkpoint_drop_rolling(const char *dir, const char *but);
/*
 * Removes complete step_* checkpoints until `keep` are left: those named in `spare` (a
 * NULL-terminated list) stay and count among the kept, the rest of the kept are the newest. The
 * newest of all always stays, so keep 1 may leave two. keep <= 0 keeps all. EasyR1's rule
 * (docs/design.md#checkpoints).
 */
int ares_checkpoint_prune(const char *dir, int keep, const char *const *spare);

/* ---------------- lock (file.c): one process per run directory
 * Takes <dir>/lock with fcntl, so the lock ends with its process; the file holds pid and host for
 * the message. ARES_ESTATE when a running process has it, this one included.
 */
int ares_lock_take(const char *dir, int *fd);
void ares_lock_drop(int fd);
/* Whether a living process holds it, this one included. Takes nothing. */
bool ares_lock_held(const char *dir);
#endif
