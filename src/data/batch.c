/* The batch. What concerns every column expands ARES_BATCH_LIST. */
#include "ares/data.h"

#include <stdio.h>
#include <string.h>

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

bool ares_batch_row_counts(const ares_batch *b, int64_t row)
{
    int64_t at = b->row_start[row], n = b->row_start[row + 1] - at;
    return !b->response_mask || n == 0 || memchr(b->response_mask + at, 1, (size_t)n);
}

/* Room for one more. */
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
    /* the last group still has no row */
    if (b->groups && b->group_start[b->groups - 1] == b->rows) return;
    b->group_start[b->groups++] = b->rows;
    b->group_start[b->groups] = b->rows;
}

int64_t ares_batch_add_row(ares_batch *b, const ares_sample *s, int64_t n_tokens)
{
    ARES_ASSERT(b->groups > 0 && !b->responses && n_tokens >= 0);
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
    return ares_arena_calloc(&b->arena, (size_t)b->tokens + 1, size);
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

int64_t ares_batch_last_token(const ares_batch *b, int64_t row)
{
    int64_t first = b->row_start[row], end = b->row_start[row + 1];
    for (int64_t t = end - 1; t >= first; t--)
        if (b->response_mask[t]) return t;
    return end > first ? end - 1 : -1;
}

/* x of some tokens in another order: tokens of row r begin at first[r]. */
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

static void *arena_copy(ares_arena *arena, const void *x, int64_t n, size_t size)
{
    void *out = ares_arena_alloc(arena, ((size_t)n + 1) * size);
    if (n) memcpy(out, x, (size_t)n * size);
    return out;
}

void ares_batch_take(ares_batch *b, const int64_t *order, int64_t n)
{
    ares_batch old = *b; /* with its own arrays of rows and groups, which b grows anew */
    ARES_ASSERT(!b->n_row_kl);
    if (!b->rows) {
        b->groups = 0; /* one that was begun and got no row is not kept either */
        return;
    }
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
    out->advantage_scale = from->advantage_scale;
    out->empty = from->empty;
    out->filled_from = from->filled_from;
    out->kl_coef = from->kl_coef;
    grow_groups(out);
    grow_rows(out);
    out->group_start[0] = out->row_start[0] = 0; /* where no row is taken */
    take_from(out, from, order, n);
}
