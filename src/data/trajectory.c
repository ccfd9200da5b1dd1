/* Trajectories: into the columns of a batch, and as bytes for other ranks and for files. */
#include "ares/data_trajectory.h"

#include <string.h>

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

int64_t ares_trajectory_tokens(const ares_trajectory *y)
{
    int64_t tokens = 0;
    for (int32_t r = 0; r < y->n_rows; r++) tokens += y->rows[r].n_tokens;
    return tokens;
}

bool ares_trajectory_kept(const ares_group *g, const ares_trajectory *y)
{
    return !(g->thinned && y->discarded);
}

/* ---------------------------------------------------------------- into a batch */
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
                               .sight = x->prompt == g->row->prompt ? g->row->sight : NULL,
                               .response = y->response,
                               .turns = y->turns,
                               .details = y->details,
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

/* The rows that the groups become, in order, one per call; NULL: there is no other. */
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
    w = (walk){ .groups = groups, .count = count };
    for (int64_t at = 0; (row = next_row(&w, &g, &y)); at += row->n_tokens) {
        size_t n = (size_t)row->n_tokens;
#define COPY(type, name, stage, doc)     \
    ARES_ASSERT(!b->name == !row->name); \
    if (n && b->name) memcpy(b->name + at, row->name, n * sizeof *b->name);
        ARES_BATCH_SAMPLED(COPY)
#undef COPY
        if (y->discarded || g->masked) memset(b->response_mask + at, 0, n);
    }
}

/* ---------------------------------------------------------------- as bytes */
enum { OWN_PROMPT = -1 }; /* in place of a length: the prompt is that of the group's data row */

/* Of the lists that the bytes follow: those of another program may have other fields. */
static uint64_t layout(void)
{
#define FIELD_NAME(type, name, text) #type " " #name ","
#define COLUMN_NAME(type, name, stage, doc) #type " " #name ","
    static const char names[] = ARES_GROUP_FIELDS(FIELD_NAME) ARES_TRAJECTORY_FIELDS(FIELD_NAME)
        ARES_BATCH_SAMPLED(COLUMN_NAME);
#undef FIELD_NAME
#undef COLUMN_NAME
    return ares_fnv1a(ARES_FNV1A, names, sizeof names);
}

static void put(ares_str *out, const void *data, size_t bytes)
{
    if (bytes) ares_str_add(out, data, bytes);
}
#define PUT_FIELD(type, name, text) put(out, &x->name, sizeof x->name);

static void write_row(const ares_trajectory_row *x, const ares_row *data_row, ares_str *out)
{
    bool own = data_row && x->prompt == data_row->prompt;
    int32_t head[2] = { own ? OWN_PROMPT : x->prompt_len, x->n_tokens };
    put(out, head, sizeof head);
    if (!own) put(out, x->prompt, (size_t)x->prompt_len * sizeof *x->prompt);
#define PUT_COLUMN(type, name, stage, doc)      \
    put(out, &(uint8_t){ x->name != NULL }, 1); \
    if (x->name) put(out, x->name, (size_t)x->n_tokens * sizeof *x->name);
    ARES_BATCH_SAMPLED(PUT_COLUMN)
#undef PUT_COLUMN
}

static void write_trajectory(const ares_trajectory *x, const ares_row *data_row, ares_str *out)
{
    int64_t head[5] = { x->n_rows, x->n_parts, (int64_t)x->response.len, (int64_t)x->turns.len,
                        (int64_t)x->details.len };
    ARES_TRAJECTORY_FIELDS(PUT_FIELD)
    put(out, head, sizeof head);
    put(out, x->parts, (size_t)x->n_parts * sizeof *x->parts);
    put(out, x->response.data, x->response.len);
    put(out, x->turns.data, x->turns.len);
    put(out, x->details.data, x->details.len);
    for (int32_t r = 0; r < x->n_rows; r++) write_row(&x->rows[r], data_row, out);
}

void ares_group_write(const ares_group *x, ares_str *out)
{
    int64_t head[2] = { x->row->id, x->n };
    put(out, &(uint64_t){ layout() }, sizeof(uint64_t));
    ARES_GROUP_FIELDS(PUT_FIELD)
    put(out, head, sizeof head);
    for (int32_t i = 0; i < x->n; i++) write_trajectory(&x->items[i], x->row, out);
}

/* `bad` once the bytes have ended early, or a number makes no sense; then everything reads as 0. */
typedef struct reader {
    ares_view in;
    ares_arena *arena;
    bool bad;
} reader;

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
    return r->bad ? NULL : ares_arena_calloc(r->arena, (size_t)n + 1, size);
}
#define TAKE_FIELD(type, name, text) take(r, &x->name, sizeof x->name);

static void read_row(reader *r, ares_trajectory_row *x)
{
    int32_t head[2];
    take(r, head, sizeof head);
    x->prompt_len = head[0];
    x->n_tokens = head[1];
    r->bad = r->bad || x->n_tokens < 0;
    if (head[0] != OWN_PROMPT) x->prompt = take_array(r, head[0], sizeof *x->prompt);
#define TAKE_COLUMN(type, name, stage, doc) \
    take(r, &present, 1);                   \
    if (present) x->name = take_array(r, x->n_tokens, sizeof *x->name);
#define IS_RECORDED(type, name, stage, doc) r->bad = r->bad || !x->name;
    uint8_t present;
    ARES_BATCH_SAMPLED(TAKE_COLUMN)
    ARES_BATCH_RECORDED(IS_RECORDED)
#undef TAKE_COLUMN
#undef IS_RECORDED
}

static void read_trajectory(reader *r, ares_trajectory *x)
{
    int64_t head[5];
    ARES_TRAJECTORY_FIELDS(TAKE_FIELD)
    take(r, head, sizeof head);
    x->rows = room_for(r, head[0], sizeof *x->rows);
    x->parts = take_array(r, head[1], sizeof *x->parts);
    x->response = (ares_view){ take_array(r, head[2], 1), (size_t)head[2] };
    x->turns = (ares_view){ take_array(r, head[3], 1), (size_t)head[3] };
    x->details = (ares_view){ take_array(r, head[4], 1), (size_t)head[4] };
    if (r->bad) return;
    x->n_rows = (int32_t)head[0];
    x->n_parts = (int32_t)head[1];
    for (int32_t i = 0; i < x->n_rows && !r->bad; i++) read_row(r, &x->rows[i]);
}

int ares_group_read(ares_view *in, ares_arena *arena, ares_group *x, int64_t *row)
{
    reader whole = { .in = *in, .arena = arena }, *r = &whole;
    uint64_t made_by;
    int64_t head[2];
    *x = (ares_group){ 0 };
    take(r, &made_by, sizeof made_by);
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
    *in = whole.in;
    return ARES_OK;
}

void ares_group_set_row(ares_group *g, const ares_row *row)
{
    g->row = row;
    for (int32_t i = 0; i < g->n; i++)
        for (int32_t r = 0; r < g->items[i].n_rows; r++) {
            ares_trajectory_row *x = &g->items[i].rows[r];
            if (x->prompt_len != OWN_PROMPT) continue;
            x->prompt = row->prompt;
            x->prompt_len = row->prompt_len;
        }
}
