/*
 * data: where the prompts of a run come from. The training step, the bootstrap pass, validation,
 * checkpoints and controls use a source through this header alone. There are two kinds: a data set
 * with its order (source.c; docs/data.md#order-and-epochs) and several weighted data sets
 * (mixture.c; docs/curriculum.md).
 */
#ifndef ARES_DATA_SOURCE_H
#define ARES_DATA_SOURCE_H

#include "ares/data.h"

typedef struct ares_drawn {
    int64_t draw; /* number in the run of the prompt drawn: part of the sampling key */
    int64_t id;   /* of its row in the source */
    /*
     * local: number of the prompt among the fresh ones of its part; step: that of the curriculum at
     * which it is drawn; weight: of its part at that step. A source without parts has the number of
     * the draw, 0 and 1.
     */
    int64_t local, step;
    double weight;
    /* the answers with which it was given back (partial rollouts), in the arena; NULL: none */
    const ares_group *partial;
} ares_drawn;

/* What one part gives of the prompts that are asked for at once. */
typedef struct ares_share {
    int64_t count; /* prompts */
    double weight; /* of the part, as its schedule gives it */
} ares_share;
/* in place of a row's id: the row was in the saved state and is gone; it never was there */
enum { ARES_ROW_GONE = -1, ARES_ROW_NONE = -2 };
/*
 * The functions of one kind of source. Every rank has the source and draws the same prompts. Rows
 * have ids 0 .. count - 1, and row(id)->id is id.
 */
typedef struct ares_source_kind {
    const char *name;
    /* no prompt is ever drawn again: rows are kinds of prompts, and epochs mean nothing */
    bool endless;
    int64_t (*draw)(const void *state); /* prompts that are drawn together */
    /* the next n prompts, n a multiple of what draw says; NULL: the source has parts */
    int (*next)(void *state, int64_t n, ares_drawn *out);
    /*
     * These four only of a source of several parts; NULL: it has one. share divides n prompts among
     * the parts, out [parts], at the curriculum's *step, and goes on to its next step; next_of
     * draws the fresh prompts of one part; begin_step says which training step begins.
     */
    int (*parts)(const void *state);
    int (*share)(void *state, int64_t n, int64_t *step, ares_share *out);
    int (*next_of)(void *state, int part, int64_t n, ares_drawn *out);
    void (*begin_step)(void *state, int64_t step);
    /* the present id of a row that had `id` when the state `json` was saved; NULL: the same */
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
    /* [n_returned] prompts that were given back, by draw number; they are drawn before others */
    struct returned_prompt *returned;
    int64_t n_returned;
    int64_t answers; /* how many a prompt of a loaded state must have; 0: any number */
} ares_source;

/*
 * The next n prompts: first those that were given back, the oldest first. Prompts of a draw beyond
 * n wait for the next call. A source of several parts gives the share of each, one part after the
 * other, and within a part first the prompts of it that were given back. The answers that come with
 * a prompt are in the arena.
 */
int ares_source_next(ares_source *s, int64_t n, ares_arena *arena, ares_drawn *out);
/*
 * Takes back a prompt from ares_source_next, with its answers so far, to be drawn again later
 * (partial rollouts). Every rank gives back the same groups.
 */
void ares_source_give_back(ares_source *s, const ares_group *g);
/* Before the first draw of a training step, counted from 0. */
static inline void ares_source_begin_step(ares_source *s, int64_t step)
{
    if (s->kind && s->kind->begin_step) s->kind->begin_step(s->state, step);
}
/* The number of parts; 1 where it has none. The part of a row is ares_row.part. */
static inline int ares_source_parts(const ares_source *s)
{
    return s->kind && s->kind->parts ? s->kind->parts(s->state) : 1;
}
static inline const ares_row *ares_source_row(const ares_source *s, int64_t id)
{
    return s->kind->row(s->state, id);
}
/* The number of all rows, skipped ones included: ids are 0 .. count - 1. */
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
 * The state of a source at one time, to be written later while the source goes on. Answers that
 * were given back are shared with the source, not copied.
 */
typedef struct ares_source_snapshot {
    ares_str begins;                  /* the object's text, up to the prompts given back */
    struct returned_prompt *returned; /* [n_returned] */
    int64_t n_returned;
    bool parts;
} ares_source_snapshot;
void ares_source_take_snapshot(const ares_source *s, ares_source_snapshot *out);
/* Appends the state as a JSON object. */
void ares_source_snapshot_write(const ares_source_snapshot *p, ares_str *json);
void ares_source_snapshot_fini(ares_source_snapshot *p);
/*
 * Loads what ares_source_snapshot_write wrote. A failure leaves the source as it was, and its
 * message names the member that does not fit; the caller names the file. other_rows: the state may
 * be of another number of rows, of which missing ones are ignored; its prompts may have another
 * number of answers; and a state of another kind of source is ignored, with a warning.
 */
int ares_source_load(ares_source *s, const ares_json *json, bool other_rows);
void ares_source_close(ares_source *s);
/*
 * A map from the gid of each row to its id. Two rows of the same gid are an error that names both
 * lines: controls that remember prompts by gid would take one for the other.
 */
int ares_source_gids(const ares_source *s, ares_map **out);

typedef struct ares_order {
    /* prompts that are drawn together; rows at the end of an epoch that fill no draw are left out
     */
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
 * Reads the options, after cfg is resolved, into cfg's memory, and tries weights and caps of the
 * first `steps` steps; faults go to cfg. force: caps whose number is not that of the data sets are
 * left out, and are no fault.
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
 * ---------------- stored answers (prompt.c): a row's pair of a preferred (chosen) and a rejected
 * answer to its prompt (docs/vapor.md#rows)
 */

typedef struct ares_stored_answer {
    const int32_t *ids; /* [prompt_len + n]: the prompt, then the answer */
    int32_t prompt_len, n;
    int32_t span, span_end; /* tokens [span, span_end) of the answer are compared */
} ares_stored_answer;
/* n 0 in both: the row has no pair that is of use (ares_pair_counts) */
typedef struct ares_pair {
    ares_stored_answer chosen, rejected;
} ares_pair;

typedef struct ares_pair_options {
    const char *chosen_key, *rejected_key;
    ares_view start_tag, end_tag;
    int64_t max_length; /* tokens of prompt and answer; longer answers lose their end */
    bool without_span;  /* keep pairs in which the tags are not found */
    int32_t eos;        /* ends answers where there is no chat template to do it; -1: none */
} ares_pair_options;
/*
 * Numbers of rows: with a pair that is kept; without two stored answers, without the tags' span,
 * without room for an answer after the prompt; with an answer that was cut at max_length, with a
 * token across the end of the prompt, with two answers of the same tokens.
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
