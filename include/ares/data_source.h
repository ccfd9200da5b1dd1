/*
 * data: where the prompts of a run come from. The training step, the bootstrap pass, validation,
 * checkpoints and controls know a source by this table alone. A data set with its order is one
 * (source.c; docs/data.md#order-and-epochs), several weighted data sets another
 * (mixture.c; docs/curriculum.md).
 */
#ifndef ARES_DATA_SOURCE_H
#define ARES_DATA_SOURCE_H

#include "ares/data.h"

typedef struct ares_drawn {
    int64_t draw; /* number in the run of the prompt drawn: part of the sampling key */
    int64_t id;   /* of its row in the source */
    /*
     * Of a source of several parts: the prompt's number among the fresh ones of its part; the step
     * of the curriculum that it is drawn at, and the weight of its part there. Else the number of
     * the draw, 0 and 1.
     */
    int64_t local, step;
    double weight;
    /* the answers that it was given back with, in the arena; NULL: none */
    const ares_group *partial;
} ares_drawn;

/*
 * Every rank has the source and draws the same prompts. Rows have ids 0 .. count - 1, and
 * row(id)->id is id.
 */
typedef struct ares_share {
    int64_t count; /* of the prompts asked for */
    double weight; /* of the part, as its schedule gives it */
} ares_share;
enum { ARES_ROW_GONE = -1, ARES_ROW_NONE = -2 }; /* instead of an id: not there now; never was */
typedef struct ares_source_kind {
    const char *name;
    bool endless; /* what is drawn never returns: rows are kinds of prompts, and epochs mean nothing
                   */
    int64_t (*draw)(const void *state); /* prompts that are drawn together */
    /* the next n prompts; n is a multiple of the draw. NULL where there are parts */
    int (*next)(void *state, int64_t n, ares_drawn *out);
    /*
     * Of a source of several parts; all NULL: it has one. share divides n prompts among the parts,
     * out [parts], at the curriculum's *step, and goes on to the next; next_of draws the fresh
     * prompts of one part. begin_step tells the training step.
     */
    int (*parts)(const void *state);
    int (*share)(void *state, int64_t n, int64_t *step, ares_share *out);
    int (*next_of)(void *state, int part, int64_t n, ares_drawn *out);
    void (*begin_step)(void *state, int64_t step);
    /* a row's id in a saved state -> its id now. NULL: the same */
    int64_t (*moved)(const void *state, const ares_json *json, int64_t id);
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
    int64_t answers; /* that each prompt of a state must have been given back with; 0: any number */
} ares_source;

/*
 * The next n prompts: first those that were given back, the oldest first. What a draw has beyond n
 * waits for the next call. A source of several parts gives the share of each, one part after the
 * other, and of a part first what was given back of it. The answers that come with a prompt are in
 * the arena.
 */
int ares_source_next(ares_source *s, int64_t n, ares_arena *arena, ares_drawn *out);
/*
 * Takes a prompt back that `next` has given, with what was answered so far, to go on with it later
 * (partial rollouts). Every rank gives back the same groups.
 */
void ares_source_give_back(ares_source *s, const ares_group *g);
/* Before the first draw of a training step, counted from 0. */
static inline void ares_source_begin_step(ares_source *s, int64_t step)
{
    if (s->kind && s->kind->begin_step) s->kind->begin_step(s->state, step);
}
/* Its parts; 1 where it has none. The part of a row is ares_row.part. */
static inline int ares_source_parts(const ares_source *s)
{
    return s->kind && s->kind->parts ? s->kind->parts(s->state) : 1;
}
static inline const ares_row *ares_source_row(const ares_source *s, int64_t id)
{
    return s->kind->row(s->state, id);
}
/* All rows, with those that are skipped: what a pass over ids 0 .. count - 1 sees. */
static inline int64_t ares_source_count(const ares_source *s)
{
    return s->kind ? s->kind->count(s->state) : 0;
}
static inline int64_t ares_source_epoch(const ares_source *s)
{
    return s->kind->epoch(s->state);
}
static inline int64_t ares_source_epoch_draws(const ares_source *s)
{
    return s->kind->epoch_draws(s->state);
}
/* Leaves the row out from the next epoch on; never undone. */
static inline void ares_source_skip(ares_source *s, int64_t id)
{
    s->kind->skip(s->state, id);
}
static inline int64_t ares_source_skipped(const ares_source *s)
{
    return s->kind->skipped(s->state);
}
/*
 * All that moves the source as it is now, to be written later. Answers that were given back are
 * shared with the source, not copied.
 */
typedef struct ares_source_snapshot {
    ares_str begins;                  /* the object's text as far as answers do not come into it */
    struct returned_prompt *returned; /* [n_returned] */
    int64_t n_returned;
    bool parts;
} ares_source_snapshot;
void ares_source_take_snapshot(const ares_source *s, ares_source_snapshot *out);
/* Appends an object that holds all that moved the source then. */
void ares_source_snapshot_write(const ares_source_snapshot *p, ares_str *json);
void ares_source_snapshot_fini(ares_source_snapshot *p);
/*
 * Takes what ares_source_snapshot_write wrote. A failure leaves the source as it was, and its
 * message names the member that does not fit; the caller names the file. other_rows: the state may
 * be of another number of rows, and what it says of rows that are not there is left out; its
 * prompts may have another number of answers; of another kind of source nothing is taken, with a
 * warning.
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

/* ---------------- curriculum.* (mixture.c; docs/curriculum.md) */
#define ARES_CURRICULUM_OPTIONS(X)                                                              \
    X(texts, names, "names", "[]", "nonempty",                                                  \
      "names of the data sets, one for each entry of data.train_files; []: their files' names " \
      "without folder and last extension")                                                      \
    X(tree, weights, "weights", "null", "?list",                                                \
      "how much of each fetch every data set gives: numbers, names of schedules or "            \
      "expressions in step; null: equal shares where names or reward_caps is set, "             \
      "else all files are one data set")                                                        \
    X(tree, reward_caps, "reward_caps", "null", "?list",                                        \
      "largest mean score of a group that is trained on, for each data set, in the same "       \
      "forms; null: no cap. algorithm.dynamic_sampling_filter: reward_cap applies them")        \
    X(tree, schedules, "schedules", "{}", "map",                                                \
      "schedules of your own: a map of names, which weights and reward_caps may use, to "       \
      "expressions in step")                                                                    \
    X(choice, step_unit, "step_unit", "fetch", "fetch|rollout",                                 \
      "what step counts in weights and reward_caps: fetches of prompts, of which a training "   \
      "step may make several, or training steps")
ARES_OPTION_STRUCT(ares_curriculum_config, ARES_CURRICULUM_OPTIONS);
ares_option_table ares_curriculum_options;

typedef struct ares_curriculum {
    int64_t n; /* data sets; 0: no option asks for a curriculum */
    const char *const *names;
    const ares_scheduled *const *weights; /* NULL: equal */
    const ares_scheduled *const *caps;    /* NULL: none has one */
    bool by_rollout;
    bool caps_left_out; /* forced: their number was not that of the data sets */
} ares_curriculum;
/*
 * Reads the options into cfg's memory and checks them up to training step `steps`; faults go to
 * cfg. After resolve. force: another number of caps than of data sets is no fault.
 */
void ares_curriculum_read(ares_config *cfg, const ares_curriculum_config *o,
                          const ares_texts *files, int64_t steps, bool force, ares_curriculum *out);
/* Caps [n] at a step; NaN: none. */
int ares_curriculum_caps(const ares_curriculum *c, int64_t step, double *caps);

/*
 * A data set whose rows have parts 0 .. c->n - 1 as a weighted mixture of them. The order within a
 * part is slime's, seed by seed; there is no end, and no rest is left out. Owns the data set from
 * then on, unless this fails. c is borrowed.
 */
int ares_source_of_mixture(ares_dataset *d, const ares_curriculum *c, const ares_order *order,
                           ares_source *out);

/*
 * data: stored answers of a row, one that is preferred to the other (docs/vapor.md#rows).
 */

typedef struct ares_stored_answer {
    const int32_t *ids; /* [prompt_len + n]: the prompt, then the answer */
    int32_t prompt_len, n;
    int32_t span, span_end; /* of the answer's tokens: what is compared */
} ares_stored_answer;
/* n 0: the row has no pair, or one of its answers has no span or no room */
typedef struct ares_pair {
    ares_stored_answer chosen, rejected;
} ares_pair;

typedef struct ares_pair_options {
    const char *chosen_key, *rejected_key;
    ares_view start_tag, end_tag;
    int64_t max_length; /* tokens of prompt and answer; longer answers lose their end */
    bool without_span;  /* a pair whose tags are not found is kept all the same */
    int32_t eos;        /* put after an answer that has no chat template and ends otherwise */
} ares_pair_options;
/* Rows: with a pair, by why they have none (without_span: or no preference), by what was changed.
 */
typedef struct ares_pair_counts {
    int64_t pairs, absent, without_span, without_room, shortened, merged, equal;
} ares_pair_counts;
typedef struct ares_pairs {
    ares_arena arena;
    int64_t n;
    ares_pair *pair; /* [n], by the id of the row */
    ares_pair_counts counts;
} ares_pairs;

/*
 * Renders and encodes the stored answers of all rows on the pool. An answer is a string, or a list
 * of messages whose last one is the assistant's. Anything else, an empty answer, or two equal ones
 * are an error that names the row. A row that lacks one of them has no pair.
 */
int ares_pairs_encode(const ares_source *rows, const ares_prompt_encoder *e,
                      const ares_pair_options *o, ares_pool *pool, ares_pairs *out);
void ares_pairs_fini(ares_pairs *p);
#endif
