/*
 * data: trajectories, what a sampler hands to a training step. An answer of one turn is a
 * trajectory of one row; an episode of several turns may be one row or a row per turn
 * (docs/design.md#trajectories).
 *
 * Fields stand in the lists of data.h. Filling a batch, sending between ranks and saving loop over
 * them, so a new field is a line there.
 */
#ifndef ARES_DATA_TRAJECTORY_H
#define ARES_DATA_TRAJECTORY_H

#include "ares/data.h"

/*
 * What the policy read and wrote at once. Its columns are those of the batch that stage gen makes,
 * [n_tokens] each. Marks may be NULL, then of all rows of a step: the column is absent.
 */
typedef struct ares_trajectory_row {
    const int32_t *prompt; /* [prompt_len] */
    int32_t prompt_len, n_tokens;
#define ARES_FIELD_(type, name, stage, doc) ares_column_##type *name;
    ARES_BATCH_SAMPLED(ARES_FIELD_)
#undef ARES_FIELD_
} ares_trajectory_row;

/* A prompt up to a thought, and the thought; ids that live as long as the trajectory. */
typedef struct ares_thought {
    const int32_t *prompt, *ids; /* [prompt_len], [n] */
    int32_t prompt_len, n;
} ares_thought;

#define ARES_FIELD_(type, name, text) type name;
typedef struct ares_trajectory {
    ARES_TRAJECTORY_FIELDS(ARES_FIELD_)
    int32_t n_rows, n_parts;
    ares_trajectory_row *rows; /* [n_rows], at least one */
    float *parts;              /* [n_parts] the scores of the single rewards */
    ares_view response;        /* decoded: what is judged and shown */
    ares_view turns;           /* JSON list of what each turn was; empty: there is one turn */
    ares_view details;         /* JSON object of what its rewards told; empty: nothing */
    ares_view vote;            /* the answer as majorities count it; NULL: nothing tells it */
    /* [n_thoughts] of the turns, for measurements; never sent. NULL: row 0 is the only turn, and
     * all of it a thought */
    int32_t n_thoughts;
    const ares_thought *thoughts;
} ares_trajectory;

/* A prompt with all its answers. */
typedef struct ares_group {
    ARES_GROUP_FIELDS(ARES_FIELD_)
    const ares_row *row;
    int32_t n;
    ares_trajectory *items; /* [n] */
} ares_group;
#undef ARES_FIELD_

/* A row in the arena: zeros where something is recorded of every row, no marks. */
void ares_trajectory_row_init(ares_trajectory_row *row, const int32_t *prompt, int32_t prompt_len,
                              int32_t n_tokens, ares_arena *arena);
/* Tokens of all rows, those of environments included. */
int64_t ares_trajectory_tokens(const ares_trajectory *y);
/* Whether its rows are part of the batch that the group becomes. */
bool ares_trajectory_kept(const ares_group *g, const ares_trajectory *y);
/* Groups as rows of an empty batch, in their order, with the columns of stage gen. */
void ares_batch_fill(ares_batch *b, const ares_group *groups, int64_t count);

/* Appends a group as bytes, the same on every machine of one byte order. */
void ares_group_write(const ares_group *g, ares_str *out);
/*
 * Takes the next group from `in`, into the arena. *row: the id of its data row, from which the
 * caller sets g->row and, with ares_group_set_row, prompts that are the row's own. ARES_EFORMAT:
 * the bytes are not those of a group.
 */
int ares_group_read(ares_view *in, ares_arena *arena, ares_group *g, int64_t *row);
void ares_group_set_row(ares_group *g, const ares_row *row);
#endif
