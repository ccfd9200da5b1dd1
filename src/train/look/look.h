/*
 * Private to train/look: reading a run directory (read.c), judging it (judge.c), and what the page
 * is made of (rollouts.c, page.c).
 */
#ifndef ARES_TRAIN_LOOK_LOOK_H
#define ARES_TRAIN_LOOK_LOOK_H

#include <stdarg.h>

#include "ares/look.h"

/* Adds a line to what was not read. */
void look_note(ares_arena *arena, ares_look *l, const char *format, ...) ARES_PRINTF(3, 4);
/* The steps, rising, of the files step_<digits>.jsonl in a folder of the run. Returns how many. */
int64_t look_files(ares_arena *arena, const char *dir, const char *folder, int64_t **steps);
/* The path of one of them, in path->data, too. */
const char *look_file(ares_str *path, const char *dir, const char *folder, int64_t step);

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
#endif
