/*
 * Private to train/look: reading a run directory (read.c), judging it (judge.c), and what the page
 * is made of (rollouts.c, page.c).
 */
#ifndef ARES_TRAIN_LOOK_LOOK_H
#define ARES_TRAIN_LOOK_LOOK_H

#include <stdarg.h>

#include "ares/look.h"

/* An option's value, by its path ("worker.rollout.n"); NULL: not known. */
const ares_json *look_option(const ares_look *l, const char *path);
bool look_option_true(const ares_look *l, const char *path);
double look_option_number(const ares_look *l, const char *path, double absent);
/* Adds a series; value [rows] must live as long as the arena. */
void look_add(ares_arena *arena, ares_look *l, const char *name, const double *value);
/* mean and half_width of differences [n]; half_width 0 for n < 2 */
void look_interval(const double *difference, int64_t n, double *mean, double *half_width);
/*
 * IEEE half floats: round to nearest even, values outside [-65504, 65504] clamped to it. NaN stays
 * one. (judge.c)
 */
uint16_t look_half(double x);
/* Adds a line to what was not read. */
void look_note(ares_arena *arena, ares_look *l, const char *format, ...) ARES_PRINTF(3, 4);
/* The steps, rising, of the files step_<digits>.jsonl in a folder of the run. Returns how many. */
int64_t look_files(ares_arena *arena, const char *dir, const char *folder, int64_t **steps);
/* The path of one of them, in path->data, too. */
const char *look_file(ares_str *path, const char *dir, const char *folder, int64_t step);

/*
 * Adds the series ARES_LOOK_DISTINCT: of each step in rollouts/, how many different texts a group's
 * answers are, divided by its answers; the mean over groups of two answers or more. Reads every
 * file there. Without rollouts it adds nothing.
 */
void look_read_distinct(ares_arena *arena, ares_look *l);
/* The first and the last file of validation/. Never fails: what is missing makes n 0. */
ares_look_paired look_validation(const char *dir);

/* What of a row of rollouts/ tells its answer from others of the group. */
typedef struct look_answer {
    int64_t draw, sample, turn; /* draw: of the group */
    uint64_t text;              /* a hash */
} look_answer;
look_answer look_answer_of(const ares_json *row);
/* ARES_LOOK_DISTINCT of a step, whose rows [n] are reordered; NAN: no group has two answers. */
double look_distinct(look_answer *a, int64_t n);

/* Replaces key by what tells the question of a row of validation/ from others. */
void look_question(const ares_json *row, ares_str *key);
/* Adds bytes as base64, with padding. (judge.c) */
void look_add_base64(ares_str *out, const void *data, size_t n);

/* ---------------- answers (rollouts.c) */

/* A group of rollouts/: rows of one draw, which stand together in a step's file. */
typedef struct look_group {
    int64_t step, offset, bytes; /* where its lines are */
    int64_t row, place;          /* of the data; which of the step's groups */
    int64_t rows;
    float accuracy, spread; /* mean, NAN: not known; largest advantage less the smallest */
    bool shown;             /* in the page */
} look_group;

typedef struct look_rollouts {
    int64_t n;
    look_group *groups;               /* [n] by step, as drawn */
    double (*score)[2], (*length)[2]; /* [rows of the run] 10th and 90th percentile of answers */
} look_rollouts;

/* Every distinct piece of the page once, shared by its runs. */
typedef struct look_pieces {
    ares_map *known; /* text -> number */
    ares_str json;   /* the texts, as items of a list */
    size_t bytes;    /* at most, in the page */
    int width;       /* bytes of a number: 2, or 3 */
    bool full;       /* two bytes are too few */
    int64_t unequal; /* rows whose columns did not fit together and were dropped */
} look_pieces;

/* The first pass: numbers of all rows; adds ARES_LOOK_DISTINCT to the run's series. */
void look_rollouts_scan(ares_arena *arena, ares_look *l, look_rollouts *r);
void look_rollouts_fini(look_rollouts *r);
/*
 * The second pass: a list of groups, [..], in rounds over the steps, the first and the last step
 * first, until `room` bytes are used; at least one group. Marks those that are shown; returns how
 * many are not.
 */
int64_t look_rollouts_write(ares_arena *arena, ares_look *l, look_rollouts *r, int64_t room,
                            look_pieces *p, ares_str *out);
/* The questions of the first and the last validation; returns how many there are. */
int64_t look_validation_write(const ares_look *l, ares_str *out);

/* ---------------- the page (page.c) */

/*
 * Adds JSON so that it can stand in a script element, and as text anywhere: `<` and every character
 * that a terminal or browser would obey become \u escapes, invalid UTF-8 becomes U+FFFD.
 */
void look_escape(ares_str *out, ares_view json);
#endif
