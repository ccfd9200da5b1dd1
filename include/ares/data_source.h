/*
 * data: where the prompts of a run come from. The training step, the bootstrap pass, validation,
 * checkpoints and controls know a source by this table alone. A data set with its order is one
 * (source_dataset.c; docs/data.md#order-and-epochs).
 */
#ifndef ARES_DATA_SOURCE_H
#define ARES_DATA_SOURCE_H

#include "ares/data_trajectory.h"

typedef struct ares_drawn {
    int64_t draw; /* number in the run of the prompt drawn: part of the sampling key */
    int64_t id;   /* of its row in the source */
    /* the answers that it was given back with, in the arena; NULL: none */
    const ares_group *begun;
} ares_drawn;

/*
 * Every rank has the source and draws the same prompts. Rows have ids 0 .. count - 1, and
 * row(id)->id is id.
 */
typedef struct ares_source_kind {
    const char *name;
    bool endless; /* what is drawn never returns: rows are kinds of prompts, and epochs mean nothing
                   */
    int64_t (*draw)(const void *state); /* prompts that are drawn together */
    /* the next n prompts; n is a multiple of the draw */
    int (*next)(void *state, int64_t n, ares_drawn *out);
    const ares_row *(*row)(const void *state, int64_t id);
    int64_t (*count)(const void *state);
    int64_t (*epoch)(const void *state);       /* of the next prompt */
    int64_t (*epoch_draws)(const void *state); /* draws that an epoch without skipped rows has */
    void (*skip)(void *state, int64_t id);
    int64_t (*skipped)(const void *state); /* rows that are skipped */
    void (*save)(const void *state, ares_str *json);
    int (*load)(void *state, const ares_json *json, bool other_rows);
    void (*close)(void *state);
} ares_source_kind;
/* Zeroed: closed, without rows. */
typedef struct ares_source {
    const ares_source_kind *kind;
    void *state;
    struct returned_prompt *returned; /* [n_returned] by draw number; they come before others */
    int64_t n_returned;
} ares_source;

/*
 * The next n prompts: first those that were given back, the oldest first. What a draw has beyond n
 * waits for the next call. The answers that come with a prompt are in the arena.
 */
int ares_source_next(ares_source *s, int64_t n, ares_arena *arena, ares_drawn *out);
/*
 * Takes a prompt back that `next` has given, with what was answered so far, to go on with it later
 * (partial rollouts). Every rank gives back the same groups.
 */
void ares_source_give_back(ares_source *s, const ares_group *g);
const ares_row *ares_source_row(const ares_source *s, int64_t id);
/* All rows, with those that are skipped: what a pass over ids 0 .. count - 1 sees. */
int64_t ares_source_count(const ares_source *s);
int64_t ares_source_epoch(const ares_source *s);
int64_t ares_source_epoch_draws(const ares_source *s);
/* Leaves the row out from the next epoch on; never undone. */
void ares_source_skip(ares_source *s, int64_t id);
int64_t ares_source_skipped(const ares_source *s);
/* Appends an object that holds all that moves the source. */
void ares_source_save(const ares_source *s, ares_str *json);
/*
 * Takes what save wrote. A failure leaves the source as it was, and its message names the member
 * that does not fit; the caller names the file. other_rows: the state may be of another number of
 * rows, and what it says of rows that are not there is left out.
 */
int ares_source_load(ares_source *s, const ares_json *json, bool other_rows);
void ares_source_close(ares_source *s);
/*
 * gid -> id of the row. Two rows of the same gid are an error that names both lines: controls that
 * remember prompts by gid would take one for the other.
 */
int ares_source_gids(const ares_source *s, ares_map **out);

typedef struct ares_order {
    /* prompts that are drawn together; an epoch's rows that fill no draw are left out */
    int64_t draw;
    bool shuffle;
    uint64_t seed;
    const char *option; /* that draw comes from, for messages; NULL: data.rollout_batch_size */
} ares_order;
/*
 * A data set in an order. The source owns the data set from then on, unless this fails: fewer rows
 * than a draw are an error.
 */
int ares_source_of_dataset(ares_dataset *d, const ares_order *order, ares_source *out);
#endif
