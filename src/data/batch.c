/*
 * The batch of a training step, which holds every column of its rows; then trajectories (a prompt
 * with its answer), which become rows of it or bytes for other ranks.
 */
#include <stdio.h>
#include <string.h>

#include "ares/data.h"

/* The batch. What concerns every column expands ARES_BATCH_LIST. */

const char *const ares_difficulty_names[ARES_DIFFICULTIES] = { "none", "easy", "medium", "hard" };

void ares_batch_init(ares_batch *b)
{
    *b = (ares_batch){ 0 };
}

/* The columns' memory belongs to the arena. */
static void drop_columns(ares_batch *b)
{
#define DROP(type, name, owner, doc) b->name = NULL;
    ARES_BATCH_LIST(DROP)
#undef DROP
}

void ares_batch_clear(ares_batch *b)
{
    drop_columns(b);
    b->row_kl = NULL;
    ares_arena_reset(&b->arena);
    b->rows = b->groups = b->tokens = b->n_row_kl = b->updates = 0;
}

void ares_batch_fini(ares_batch *b)
{
    ares_arena_fini(&b->arena);
    ares_free(b->row_start);
    ares_free(b->group_start);
    ares_free(b->samples);
    *b = (ares_batch){ 0 };
}

/* An empty row counts: it is an answer, though no token of it trains. */
bool ares_batch_row_counts(const ares_batch *b, int64_t row)
{
    int64_t at = b->row_start[row], n = b->row_start[row + 1] - at;
    return !b->response_mask || n == 0 || memchr(b->response_mask + at, 1, (size_t)n);
}

/* Memory for one more group or row, and for the end after it. */
static void grow_groups(ares_batch *b)
{
    if (b->groups + 2 <= b->group_cap) return;
    b->group_cap = b->group_cap * 2 + 16;
    b->group_start = ares_realloc(b->group_start, (size_t)b->group_cap * sizeof *b->group_start);
}
static void grow_rows(ares_batch *b)
{
    if (b->rows + 2 <= b->row_cap) return;
    b->row_cap = b->row_cap * 2 + 64;
    b->row_start = ares_realloc(b->row_start, (size_t)b->row_cap * sizeof *b->row_start);
    b->samples = ares_realloc(b->samples, (size_t)b->row_cap * sizeof *b->samples);
}

void ares_batch_begin_group(ares_batch *b)
{
    grow_groups(b);
    /* the last group still has no row: no group is empty */
    if (b->groups && b->group_start[b->groups - 1] == b->rows) return;
    b->group_start[b->groups++] = b->rows;
    b->group_start[b->groups] = b->rows;
}

int64_t ares_batch_add_row(ares_batch *b, const ares_sample *s, int64_t n_tokens)
{
    ARES_ASSERT(b->groups > 0 && !b->responses && n_tokens >= 0); /* before any column is put */
    grow_rows(b);
    int64_t first = b->tokens;
    b->samples[b->rows] = *s;
    b->row_start[b->rows++] = first;
    b->tokens += n_tokens;
    b->row_start[b->rows] = b->tokens;
    b->group_start[b->groups] = b->rows;
    return first;
}

void *ares_batch_put(ares_batch *b, const void *present, size_t size, const char *name)
{
    if (!b->rows) { /* there are ends, all 0, without a row too */
        grow_groups(b);
        grow_rows(b);
        b->group_start[b->groups] = b->row_start[0] = 0;
    }
    if (present) {
        char what[96];
        (void)snprintf(what, sizeof what, "that column '%s' is written once", name);
        ares_abort(__FILE__, __LINE__, what);
    }
    /* zeros: what a stage leaves out (masked tokens) reads as 0 */
    return ares_arena_calloc(&b->arena, (size_t)b->tokens + 1, size); /* not NULL without a token */
}

int ares_batch_need(const char *stage, const char *column, const void *present)
{
    static const struct {
        const char *name, *owner;
    } columns[] = {
#define OWNED(type, name, owner, doc) { #name, owner },
        ARES_BATCH_LIST(OWNED)
#undef OWNED
    };
    if (present) return ARES_OK;
    const char *owner = NULL;
    for (int i = 0; i < ARES_COUNT(columns) && !owner; i++)
        if (strcmp(columns[i].name, column) == 0) owner = columns[i].owner;
    ARES_ASSERT(owner);
    return ares_fail(ARES_ESTATE, "%s: needs column '%s', which stage '%s' makes", stage, column,
                     owner);
}

/* Where a reward for the whole row stands. */
int64_t ares_batch_last_token(const ares_batch *b, int64_t row)
{
    int64_t first = b->row_start[row], end = b->row_start[row + 1];
    /* a row may end on the environment's tokens, which the policy did not write */
    for (int64_t t = end - 1; t >= first; t--)
        if (b->response_mask[t]) return t;
    return end > first ? end - 1 : -1;
}

/* A column with the tokens of rows order[..] of x, in which row r begins at first[r]. */
static void *taken(ares_batch *b, const void *x, size_t size, const int64_t *first,
                   const int64_t *order)
{
    char *out = ares_arena_calloc(&b->arena, (size_t)b->tokens + 1, size);
    for (int64_t r = 0; r < b->rows; r++) {
        size_t n = (size_t)(b->row_start[r + 1] - b->row_start[r]);
        memcpy(out + (size_t)b->row_start[r] * size,
               (const char *)x + (size_t)first[order[r]] * size, n * size);
    }
    return out;
}

/* Rows order[0 .. n) of another batch become the rows of b, which is empty. */
static void take_from(ares_batch *b, const ares_batch *from, const int64_t *order, int64_t n)
{
    /* the group of each row of `from`: neighbours in the order that share one stay together */
    int64_t *group = ares_arena_alloc(&b->arena, ((size_t)from->rows + 1) * sizeof *group);
    for (int64_t g = 0; g < from->groups; g++)
        for (int64_t r = from->group_start[g]; r < from->group_start[g + 1]; r++) group[r] = g;
    for (int64_t i = 0; i < n; i++) {
        int64_t r = order[i];
        ARES_ASSERT(r >= 0 && r < from->rows);
        if (i == 0 || group[r] != group[order[i - 1]]) ares_batch_begin_group(b);
        ares_batch_add_row(b, &from->samples[r], from->row_start[r + 1] - from->row_start[r]);
    }
#define TAKE(type, name, owner, doc) \
    if (from->name) b->name = taken(b, from->name, sizeof *from->name, from->row_start, order);
    ARES_BATCH_LIST(TAKE)
#undef TAKE
}

/* n items; room for one more keeps the result from being NULL where n is 0. */
static void *arena_copy(ares_arena *arena, const void *x, int64_t n, size_t size)
{
    void *out = ares_arena_alloc(arena, ((size_t)n + 1) * size);
    if (n) memcpy(out, x, (size_t)n * size);
    return out;
}

void ares_batch_take(ares_batch *b, const int64_t *order, int64_t n)
{
    ares_batch old = *b; /* gets copies of the arrays of rows and groups, which b overwrites */
    ARES_ASSERT(!b->n_row_kl);
    if (!b->rows) {
        b->groups = 0; /* a group that was begun and got no row is dropped */
        return;
    }
    /* columns of old stay where they are: take_from makes new ones from them */
    old.row_start = arena_copy(&b->arena, b->row_start, b->rows + 1, sizeof *b->row_start);
    old.group_start = arena_copy(&b->arena, b->group_start, b->groups + 1, sizeof *b->group_start);
    old.samples = arena_copy(&b->arena, b->samples, b->rows, sizeof *b->samples);
    drop_columns(b);
    b->rows = b->groups = b->tokens = 0;
    take_from(b, &old, order, n);
}

void ares_batch_copy(const ares_batch *from, const int64_t *order, int64_t n, ares_batch *out)
{
    ARES_ASSERT(!out->rows);
    /* what concerns the batch as a whole goes along with any choice of rows */
    out->advantage_scale = from->advantage_scale;
    out->empty = from->empty;
    out->filled_from = from->filled_from;
    out->kl_coef = from->kl_coef;
    grow_groups(out);
    grow_rows(out);
    out->group_start[0] = out->row_start[0] = 0; /* where no row is taken */
    take_from(out, from, order, n);
}

/* Trajectories: into the columns of a batch, and as bytes for other ranks and for files. */

void ares_trajectory_row_init(ares_trajectory_row *row, const int32_t *prompt, int32_t prompt_len,
                              int32_t n_tokens, ares_arena *arena)
{
    *row =
        (ares_trajectory_row){ .prompt = prompt, .prompt_len = prompt_len, .n_tokens = n_tokens };
#define ALLOCATE(type, name, stage, doc) \
    row->name = ares_arena_calloc(arena, (size_t)n_tokens + 1, sizeof *row->name);
    ARES_BATCH_RECORDED(ALLOCATE)
#undef ALLOCATE
}

/* Of all its rows; prompts do not count. */
int64_t ares_trajectory_tokens(const ares_trajectory *y)
{
    int64_t tokens = 0;
    for (int32_t r = 0; r < y->n_rows; r++) tokens += y->rows[r].n_tokens;
    return tokens;
}

/* drops_discarded: the answers are left out of the batch; otherwise they are masked in it. */
bool ares_trajectory_kept(const ares_group *g, const ares_trajectory *y)
{
    return !(g->drops_discarded && y->discarded);
}

/* ---------------------------------------------------------------- into a batch */
/* An answer of several rows is an episode, which sample.episode numbers from 1. */
static void add_rows(ares_batch *b, const ares_group *g, const ares_trajectory *y)
{
    ARES_ASSERT(y->n_rows > 0);
    for (int32_t r = 0; r < y->n_rows; r++) {
        const ares_trajectory_row *x = &y->rows[r];
        ares_sample sample = { .episode = y->n_rows > 1 ? y->index + 1 : 0,
                               .turn = r,
                               .row = g->row,
                               .prompt = x->prompt,
                               .prompt_len = x->prompt_len,
                               .row_media = x->prompt == g->row->prompt ? g->row->row_media : NULL,
                               .response = y->response,
                               .turns = y->turns,
                               .details = y->details,
                               .feedback = y->feedback,
                               .question = y->question,
                               .reward_parts = y->parts };
#define OF_GROUP(type, name, text) sample.name = g->name;
#define OF_ANSWER(type, name, text) sample.name = y->name;
        ARES_GROUP_FIELDS(OF_GROUP)
        ARES_TRAJECTORY_FIELDS(OF_ANSWER)
#undef OF_GROUP
#undef OF_ANSWER
        ares_batch_add_row(b, &sample, x->n_tokens);
    }
}

/* Visits the rows that the groups become, in order, one per call; NULL: there are no more. */
typedef struct walk {
    const ares_group *groups;
    int64_t count, g;
    int32_t i, r;
} walk;

static const ares_trajectory_row *next_row(walk *w, const ares_group **of,
                                           const ares_trajectory **whose)
{
    for (; w->g < w->count; w->g++, w->i = 0) {
        const ares_group *g = *of = &w->groups[w->g];
        for (; w->i < g->n; w->i++, w->r = 0) {
            const ares_trajectory *y = *whose = &g->items[w->i];
            if (ares_trajectory_kept(g, y) && w->r < y->n_rows) return &y->rows[w->r++];
        }
    }
    return NULL;
}

void ares_batch_fill(ares_batch *b, const ares_group *groups, int64_t count)
{
    const ares_trajectory_row *row;
    const ares_trajectory *y;
    const ares_group *g;
    for (int64_t i = 0; i < count; i++) {
        ares_batch_begin_group(b);
        for (int32_t k = 0; k < groups[i].n; k++)
            if (ares_trajectory_kept(&groups[i], &groups[i].items[k]))
                add_rows(b, &groups[i], &groups[i].items[k]);
    }
    walk w = { .groups = groups, .count = count };
    const ares_trajectory_row *first = next_row(&w, &g, &y);
#define PUT_RECORDED(type, name, stage, doc) ARES_PUT(b, name);
#define PUT_MARKED(type, name, stage, doc) \
    if (first && first->name) ARES_PUT(b, name);
    ARES_BATCH_RECORDED(PUT_RECORDED)
    ARES_BATCH_MARKED(PUT_MARKED)
#undef PUT_RECORDED
#undef PUT_MARKED
    /* the second walk copies into the columns that the first row said are there */
    w = (walk){ .groups = groups, .count = count };
    for (int64_t at = 0; (row = next_row(&w, &g, &y)); at += row->n_tokens) {
        size_t n = (size_t)row->n_tokens;
        /* a column is there in all rows or in none */
#define COPY(type, name, stage, doc)     \
    ARES_ASSERT(!b->name == !row->name); \
    if (n && b->name) memcpy(b->name + at, row->name, n * sizeof *b->name);
        ARES_BATCH_SAMPLED(COPY)
#undef COPY
        /* such answers train nothing */
        if (y->discarded || g->masked) memset(b->response_mask + at, 0, n);
    }
}

/* ---------------------------------------------------------------- as bytes */
enum { OWN_PROMPT = -1 }; /* in place of a length: the prompt is that of the group's data row */

/* A hash of the lists of fields, put before the bytes: another version may have other fields. */
static uint64_t layout(void)
{
#define FIELD_NAME(type, name, text) #type " " #name ","
#define COLUMN_NAME(type, name, stage, doc) #type " " #name ","
    static const char names[] = ARES_GROUP_FIELDS(FIELD_NAME) ARES_TRAJECTORY_FIELDS(FIELD_NAME)
        ARES_BATCH_SAMPLED(COLUMN_NAME) "response, turns, details, feedback, question";
#undef FIELD_NAME
#undef COLUMN_NAME
    return ares_fnv1a(ARES_FNV1A, names, sizeof names);
}

/* Bytes as they lie in memory: ranks of a run, and a run that goes on, are of one machine type. */
static void put(ares_str *out, const void *data, size_t bytes)
{
    if (bytes) ares_str_add(out, data, bytes);
}
#define PUT_FIELD(type, name, text) put(out, &x->name, sizeof x->name);
static void write_trajectory(const ares_trajectory *x, const ares_row *data_row, ares_str *out)
{
    /* lengths first, so that a reader can check them before it takes memory */
    int64_t head[] = { x->n_rows,
                       x->n_parts,
                       (int64_t)x->response.len,
                       (int64_t)x->turns.len,
                       (int64_t)x->details.len,
                       (int64_t)x->feedback.len,
                       (int64_t)x->question.len };
    ARES_TRAJECTORY_FIELDS(PUT_FIELD)
    put(out, head, sizeof head);
    put(out, x->parts, (size_t)x->n_parts * sizeof *x->parts);
    put(out, x->response.data, x->response.len);
    put(out, x->turns.data, x->turns.len);
    put(out, x->details.data, x->details.len);
    put(out, x->feedback.data, x->feedback.len);
    put(out, x->question.data, x->question.len);
    for (int32_t r = 0; r < x->n_rows; r++) {
        const ares_trajectory_row *y = &x->rows[r];
        /* the data row's prompt is known to the reader by its id and is not written again */
        bool own = data_row && y->prompt == data_row->prompt;
        int32_t of_row[2] = { own ? OWN_PROMPT : y->prompt_len, y->n_tokens };
        put(out, of_row, sizeof of_row);
        if (!own) put(out, y->prompt, (size_t)y->prompt_len * sizeof *y->prompt);
#define PUT_COLUMN(type, name, stage, doc)      \
    put(out, &(uint8_t){ y->name != NULL }, 1); \
    if (y->name) put(out, y->name, (size_t)y->n_tokens * sizeof *y->name);
        ARES_BATCH_SAMPLED(PUT_COLUMN)
#undef PUT_COLUMN
    }
}

void ares_group_write(const ares_group *x, ares_str *out)
{
    int64_t head[2] = { x->row->id, x->n };
    put(out, &(uint64_t){ layout() }, sizeof(uint64_t));
    ARES_GROUP_FIELDS(PUT_FIELD)
    put(out, head, sizeof head);
    for (int32_t i = 0; i < x->n; i++) write_trajectory(&x->items[i], x->row, out);
}

/* bad: the bytes ended early, or a number makes no sense; from then on everything reads as 0. */
typedef struct reader {
    ares_view in;
    ares_arena *arena;
    bool bad;
} reader;

/* The next bytes, checked against the end: they may come from a damaged file. */
static void take(reader *r, void *out, size_t bytes)
{
    r->bad = r->bad || bytes > r->in.len;
    if (r->bad) {
        memset(out, 0, bytes);
        return;
    }
    memcpy(out, r->in.data, bytes);
    r->in.data += bytes;
    r->in.len -= bytes;
}

/* n items, copied into the arena. */
static void *take_array(reader *r, int64_t n, size_t size)
{
    r->bad = r->bad || n < 0 || (uint64_t)n > r->in.len / size;
    if (r->bad) return NULL;
    void *out = ares_arena_alloc(r->arena, (size_t)n * size + 1);
    take(r, out, (size_t)n * size);
    ((char *)out)[(size_t)n * size] = 0; /* texts end like others */
    return out;
}

/* Memory for n things that take at least a byte each in what is left to read. */
static void *room_for(reader *r, int64_t n, size_t size)
{
    r->bad = r->bad || n < 0 || n > INT32_MAX || (uint64_t)n > r->in.len;
    /* a damaged count cannot ask for more memory than a few times the bytes that are left */
    return r->bad ? NULL : ares_arena_calloc(r->arena, (size_t)n + 1, size);
}
#define TAKE_FIELD(type, name, text) take(r, &x->name, sizeof x->name);
static void read_trajectory(reader *r, ares_trajectory *x)
{
    int64_t head[7];
    ARES_TRAJECTORY_FIELDS(TAKE_FIELD)
    take(r, head, sizeof head);
    x->rows = room_for(r, head[0], sizeof *x->rows);
    x->parts = take_array(r, head[1], sizeof *x->parts);
    x->response = (ares_view){ take_array(r, head[2], 1), (size_t)head[2] };
    x->turns = (ares_view){ take_array(r, head[3], 1), (size_t)head[3] };
    x->details = (ares_view){ take_array(r, head[4], 1), (size_t)head[4] };
    x->feedback = (ares_view){ take_array(r, head[5], 1), (size_t)head[5] };
    x->question = (ares_view){ take_array(r, head[6], 1), (size_t)head[6] };
    if (r->bad) return;
    /* room_for and take_array have checked these numbers against the bytes that are left */
    x->n_rows = (int32_t)head[0];
    x->n_parts = (int32_t)head[1];
    for (int32_t i = 0; i < x->n_rows && !r->bad; i++) {
        ares_trajectory_row *y = &x->rows[i];
        int32_t of_row[2];
        uint8_t present;
        take(r, of_row, sizeof of_row);
        y->prompt_len = of_row[0];
        y->n_tokens = of_row[1];
        r->bad = r->bad || y->n_tokens < 0;
        if (of_row[0] != OWN_PROMPT) y->prompt = take_array(r, of_row[0], sizeof *y->prompt);
#define TAKE_COLUMN(type, name, stage, doc) \
    take(r, &present, 1);                   \
    if (present) y->name = take_array(r, y->n_tokens, sizeof *y->name);
/* columns that every answer has, where ares_batch_fill reads without asking */
#define IS_RECORDED(type, name, stage, doc) r->bad = r->bad || !y->name;
        ARES_BATCH_SAMPLED(TAKE_COLUMN)
        ARES_BATCH_RECORDED(IS_RECORDED)
#undef TAKE_COLUMN
#undef IS_RECORDED
    }
}

int ares_group_read(ares_view *in, ares_arena *arena, ares_group *x, int64_t *row)
{
    reader whole = { .in = *in, .arena = arena }, *r = &whole;
    uint64_t made_by;
    int64_t head[2];
    *x = (ares_group){ 0 };
    take(r, &made_by, sizeof made_by);
    /* another list of fields would shift all that follows, and most bytes would still "fit" */
    if (!r->bad && made_by != layout())
        return ares_fail(ARES_EFORMAT, "data: an answered prompt was written with other fields; it "
                                       "is of another version of this program");
    ARES_GROUP_FIELDS(TAKE_FIELD)
    take(r, head, sizeof head);
    x->items = room_for(r, head[1], sizeof *x->items);
    x->n = r->bad ? 0 : (int32_t)head[1];
    for (int32_t i = 0; i < x->n && !r->bad; i++) read_trajectory(r, &x->items[i]);
    *row = head[0];
    if (r->bad)
        return ares_fail(ARES_EFORMAT, "data: the bytes are not those of an answered prompt");
    /* several groups may follow each other; on a fault `in` stays at this one */
    *in = whole.in;
    return ARES_OK;
}

void ares_group_set_row(ares_group *g, const ares_row *row)
{
    g->row = row;
    for (int32_t i = 0; i < g->n; i++)
        for (int32_t r = 0; r < g->items[i].n_rows; r++) {
            ares_trajectory_row *x = &g->items[i].rows[r];
            if (x->prompt_len != OWN_PROMPT) continue; /* its prompt was among the bytes */
            x->prompt = row->prompt;
            x->prompt_len = row->prompt_len;
        }
}
