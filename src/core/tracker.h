/*
 * Private to core: trackers that are files of other programs (docs/trackers.md). metrics.c calls
 * trackers_*; each kind is a file format: W&B's in tracker.c, Trackio's and MLflow's in
 * tracker_sql.c.
 */
#ifndef ARES_CORE_TRACKER_H
#define ARES_CORE_TRACKER_H

#include "ares/io.h"

/* ---------------- protobuf's wire format (metrics.c)
 * Wire types of proto_key: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
 */
/* An unsigned integer of 1 to 8 bytes, the lowest byte first. */
void proto_little(ares_str *s, uint64_t v, int bytes);
void proto_varint(ares_str *s, uint64_t v);
void proto_key(ares_str *s, int field, int wire);
/* A field of a text or of a message that is written whole: key, length, bytes. */
void proto_bytes(ares_str *s, int field, ares_view v);
/* A CRC-32 whose bits are reflected; bit by bit, as records are short. */
uint32_t tracker_crc32(uint32_t polynomial, const void *data, size_t n);
double tracker_now(void); /* seconds since 1970 */

/* ---------------- kinds */
typedef struct tracker_row {
    int64_t step;
    double time; /* seconds since 1970 */
    ares_metrics *metrics;
} tracker_row;

/* The run that is tracked; lives as long as its trackers. */
typedef struct tracker_run {
    char *dir;            /* the absolute path of the run directory */
    char *project, *name; /* valid UTF-8 */
    char id[33];          /* hexadecimal, from the path: a run that goes on finds itself */
    double started;       /* of this process */
    ares_str options;     /* the configuration as a JSON object */
    ares_arena arena;     /* holds `config` */
    const ares_json *config;
} tracker_run;

typedef struct tracker_kind {
    const char *name; /* the word of trainer.logger */
    /*
     * Fails where a run could not be tracked, with what to do about it. Writes nothing; a file that
     * is locked is no failure.
     */
    int (*check)(const char *project);
    void *(*open)(const tracker_run *run); /* touches no file */
    /*
     * Writes the run itself, where this process has not done so, and the rows; all of it or
     * nothing. from: what an earlier process wrote of this step and later ones is dropped, and
     * what it did not write of earlier ones is taken from metrics.jsonl. patience_ms: how long to
     * wait for a lock.
     */
    int (*write)(void *self, int64_t from, const tracker_row *rows, int64_t n, int patience_ms);
    /* Writes that the run has ended, finished or not. NULL: its files do not say so. */
    int (*end)(void *self, bool finished);
    /* Shows a verdict, unless it does already; NULL: it has no place for it. */
    int (*tell)(void *self, int64_t step, const ares_tracker_alert *a);
    const char *(*place)(void *self); /* the file, for messages */
    void (*free)(void *self);
} tracker_kind;

extern const tracker_kind tracker_wandb, tracker_trackio, tracker_mlflow;

/* Calls fn for each row of metrics.jsonl with step < before, in order; stops at a failure. */
typedef int tracker_row_fn(void *ctx, const tracker_row *row);
int tracker_history(const tracker_run *run, int64_t before, tracker_row_fn *fn, void *ctx);
/* Adds a text whose broken UTF-8 is replaced by U+FFFD. */
void tracker_add_text(ares_str *out, const char *text);
/* A number as JSON; one that is not finite as "NaN", "Infinity" or "-Infinity". */
void tracker_add_number(ares_str *out, double x);
/* The first rule that keeps a file from being made or changed at this path. */
int tracker_can_write(const char *tracker, const char *path);
/* "2026-11-29T21:07:01.123456+00:00" */
void tracker_iso_time(double seconds, char out[static 40]);
/* The user's name as the system knows it. */
const char *tracker_user(void);
/* The name of a project's file, from Trackio's rule; adds to out. */
void tracker_trackio_file(ares_str *out, const char *project);

/* ---------------- all trackers of a run */
typedef struct trackers trackers;
/* *out is NULL where no logger names one */
int trackers_open(const ares_tracker_run *r, trackers **out);
void trackers_log(trackers *t, int64_t step, const ares_metrics *m);
bool trackers_show_alerts(const trackers *t);
void trackers_tell(trackers *t, int64_t step, const ares_tracker_alert *a);
void trackers_close(trackers *t, bool finished);
#endif
