/*
 * From the rows of a batch to packed tokens. First the division of rows into parts of even work
 * (ranks, micro-batches), then the packing itself.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/data.h"

/*
 * Largest differencing. A state is k sets in descending order of their sums. The two states whose
 * largest and smallest set differ most are merged, the smallest set of one with the largest of the
 * other, until one state is left. A set keeps the order in which its items came, because sets of
 * equal sum and size are compared item by item. A set is a linked list of items; a state is the
 * heads of its k lists.
 */

typedef struct item {
    int64_t index, weight;
} item;
typedef struct set {
    int64_t sum, count;
    int64_t first, last; /* of the list of items; -1: empty */
} set;
typedef struct work {
    const item *items;
    int64_t *next; /* [n]: the next item of the same set; -1: none */
    set *sets;     /* [states][k] */
    int64_t k;
} work;

/* Ascending; equal weights by index, so that every rank sorts alike. */
static int by_weight(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return x->weight != y->weight ? ARES_CMP(x->weight, y->weight) : ARES_CMP(x->index, y->index);
}

/* By sum, then number of items, then the items one by one. */
static int compare_sets(const work *w, const set *x, const set *y)
{
    if (x->sum != y->sum) return ARES_CMP(x->sum, y->sum);
    if (x->count != y->count) return ARES_CMP(x->count, y->count);
    for (int64_t i = x->first, j = y->first; i >= 0; i = w->next[i], j = w->next[j])
        if (w->items[i].index != w->items[j].index)
            return w->items[i].index > w->items[j].index ? 1 : -1;
    return 0;
}

/* Descending. By insertion: the sets are few and nearly in order. */
static void sort_sets(const work *w, set *s)
{
    for (int64_t i = 1; i < w->k; i++) {
        set moved = s[i];
        int64_t at = i;
        for (; at > 0 && compare_sets(w, &s[at - 1], &moved) < 0; at--) s[at] = s[at - 1];
        s[at] = moved;
    }
}
/* Whether the heap gives state a before state b. */
static bool wider(const work *w, int64_t a, int64_t b)
{
    const set *x = w->sets + a * w->k, *y = w->sets + b * w->k;
    int64_t dx = x[0].sum - x[w->k - 1].sum, dy = y[0].sum - y[w->k - 1].sum;
    return dx != dy ? dx > dy : compare_sets(w, &x[0], &y[0]) > 0;
}

/* Restores a binary heap of state numbers with the widest state at 0. */
static void sift_down(const work *w, int64_t *heap, int64_t n, int64_t at)
{
    for (;;) {
        int64_t child = 2 * at + 1, moved = heap[at];
        if (child >= n) return;
        if (child + 1 < n && wider(w, heap[child + 1], heap[child])) child++;
        if (!wider(w, heap[child], moved)) return;
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

/* Merges all states into one, heap[0]. */
static void difference(work *w, int64_t *heap, int64_t states)
{
    for (int64_t i = states / 2 - 1; i >= 0; i--) sift_down(w, heap, states, i);
    while (states > 1) {
        int64_t first = heap[0];
        heap[0] = heap[--states];
        sift_down(w, heap, states, 0);
        set *a = w->sets + first * w->k, *b = w->sets + heap[0] * w->k;
        for (int64_t i = 0; i < w->k; i++) {
            const set *from = &b[w->k - 1 - i];
            if (!from->count) continue;
            if (a[i].count) w->next[a[i].last] = from->first;
            else a[i].first = from->first;
            a[i].last = from->last;
            a[i].count += from->count;
            a[i].sum += from->sum;
        }
        /* the merged state goes back into the heap by its new width */
        sort_sets(w, a);
        heap[0] = first;
        sift_down(w, heap, states, 0);
    }
}

int ares_balance_parts(const int64_t *weight, int64_t n, int64_t k, bool equal_size, int64_t *part)
{
    if (k < 1 || n < k)
        return ares_fail(ARES_EFORMAT,
                         "data: balance: %lld rows for %lld parts: every part needs one",
                         (long long)n, (long long)k);
    if (equal_size && n % k)
        return ares_fail(ARES_EFORMAT,
                         "data: balance: %lld rows do not make %lld parts of equal size",
                         (long long)n, (long long)k);
    for (int64_t i = 0; i < n; i++)
        if (weight[i] < 0)
            return ares_fail(ARES_EFORMAT, "data: balance: row %lld: length = %lld: below 0",
                             (long long)i, (long long)weight[i]);
    /* equal_size: a state begins with k items, one per set, and merging keeps sizes equal */
    int64_t states = equal_size ? n / k : n, *heap = ares_malloc((size_t)states * sizeof *heap);
    item *items = ares_malloc((size_t)n * sizeof *items);
    work w = { .items = items,
               .next = ares_malloc((size_t)n * sizeof *w.next),
               .sets = ares_malloc((size_t)states * (size_t)k * sizeof *w.sets),
               .k = k };
    for (int64_t i = 0; i < n; i++) {
        items[i] = (item){ i, weight[i] };
        w.next[i] = -1;
    }
    qsort(items, (size_t)n, sizeof *items, by_weight);
    for (int64_t s = 0; s < states; s++) {
        set *sets = w.sets + s * k;
        for (int64_t j = 0; j < k; j++) {
            int64_t i = equal_size ? s * k + j : j == 0 ? s : -1;
            sets[j] = i < 0 ? (set){ .first = -1, .last = -1 } : (set){ items[i].weight, 1, i, i };
        }
        sort_sets(&w, sets);
        heap[s] = s;
    }
    difference(&w, heap, states);
    const set *result = w.sets + heap[0] * k;
    int64_t empty = -1;
    for (int64_t j = 0; j < k; j++) {
        if (!result[j].count) empty = j;
        for (int64_t i = result[j].first; i >= 0; i = w.next[i]) part[items[i].index] = j;
    }
    ares_free(w.sets);
    ares_free(w.next);
    ares_free(items);
    ares_free(heap);
    return empty < 0
               ? ARES_OK
               : ares_fail(
                     ARES_EFORMAT,
                     "data: balance: part %lld of %lld stays empty: too many rows have length 0",
                     (long long)empty, (long long)k);
}

void ares_balance_order(const int64_t *length, int64_t n, int64_t *order)
{
    item *items = ares_malloc((size_t)(n + 1) * sizeof *items);
    for (int64_t i = 0; i < n; i++) items[i] = (item){ i, length[i] };
    qsort(items, (size_t)n, sizeof *items, by_weight);
    /* weights 1 2 3 4 5 6 -> 1 3 5 6 4 2: long rows in the middle, neighbours alike */
    for (int64_t i = 0; i < n; i++) order[i % 2 ? n - 1 - i / 2 : i / 2] = items[i].index;
    ares_free(items);
}

void ares_balance_report(const int64_t *length, int64_t n, int64_t k, const int64_t *part,
                         const char *prefix, ares_metrics *m)
{
    int64_t *sums = ares_calloc((size_t)k * 2, sizeof *sums), *parts = sums + k, total = 0;
    for (int64_t i = 0; i < n; i++) {
        /* what a division in order would give, to compare with */
        sums[i * k / n] += length[i];
        parts[part[i]] += length[i];
        total += length[i];
    }
    int64_t low = sums[0], high = sums[0], even_low = parts[0], even_high = parts[0];
    for (int64_t j = 1; j < k; j++) {
        low = ARES_MIN(low, sums[j]);
        high = ARES_MAX(high, sums[j]);
        even_low = ARES_MIN(even_low, parts[j]);
        even_high = ARES_MAX(even_high, parts[j]);
    }
    const struct {
        const char *name;
        double value;
    } out[] = { { "min", (double)low },
                { "max", (double)high },
                { "minmax_diff", (double)(high - low) },
                { "balanced_min", (double)even_low },
                { "balanced_max", (double)even_high },
                { "mean", (double)total / (double)k } };
    for (int i = 0; i < ARES_COUNT(out); i++) {
        char name[128];
        (void)snprintf(name, sizeof name, "%s/%s", prefix, out[i].name);
        ares_metrics_set(m, name, out[i].value);
    }
    ares_free(sums);
}

/* ---------------------------------------------------------------- micro-batches */
typedef struct part_cost {
    double squares; /* sum of squared lengths: exact for lengths below 2^26 */
    int64_t first;  /* smallest index of an item */
    int64_t part;
} part_cost;

/* Descending by attention's work; of equal ones the larger first index comes first. */
static int by_cost(const void *a, const void *b)
{
    const part_cost *x = a, *y = b;
    return x->squares != y->squares ? ARES_CMP(y->squares, x->squares)
                                    : ARES_CMP(y->first, x->first);
}

int balance_micro_batches(const int64_t *length, int64_t n, int64_t max_tokens, int64_t least,
                          int64_t *k, int64_t *part)
{
    int64_t total = 0;
    if (max_tokens < 1)
        return ares_fail(ARES_ECONFIG,
                         "data: balance: max_tokens = %lld: a micro-batch takes at least one token",
                         (long long)max_tokens);
    for (int64_t i = 0; i < n; i++) total += length[i];
    *k = ARES_MAX(ARES_MIN(n, (total + max_tokens - 1) / max_tokens), ARES_MAX(least, 1));
    ARES_TRY(ares_balance_parts(length, n, *k, false, part));
    part_cost *cost = ares_malloc((size_t)*k * sizeof *cost);
    int64_t *place = ares_malloc((size_t)*k * sizeof *place);
    for (int64_t j = 0; j < *k; j++) cost[j] = (part_cost){ 0, n, j };
    for (int64_t i = n - 1; i >= 0; i--) {
        cost[part[i]].squares += (double)length[i] * (double)length[i];
        cost[part[i]].first = i;
    }
    qsort(cost, (size_t)*k, sizeof *cost, by_cost);
    for (int64_t j = 0; j < *k; j++) place[cost[j].part] = j;
    for (int64_t i = 0; i < n; i++) part[i] = place[part[i]];
    ares_free(place);
    ares_free(cost);
    return ARES_OK;
}

/*
 * Rows -> packed tokens. With shared prompts a group is its prompt, fed once, and then the response
 * of each row: the last token of the prompt predicts the first token of all responses. Rows of a
 * group may have different prompts (turns of a conversation); each different one is fed once.
 *
 * Groups of a micro-batch do not share, even where their prompts are the same: sums of gradients
 * would depend on whether a cut lies between them (docs/update.md#micro-batches). The runs of a set
 * do: nothing is summed over rows in the passes that sets are for.
 *
 * Rows that train nothing cost next to nothing. One without a response is not fed. Of one whose
 * response is masked as a whole the first token of its prompt is fed, alone, for its head rows to
 * look at: what they find is 0 after ares_pack_scatter, and no loss reads it.
 */

static int64_t row_len(const ares_batch *b, int64_t r)
{
    return b->row_start[r + 1] - b->row_start[r];
}

/* Whether the row trains anything: else its prompt and response are not fed. */
static bool trains(const ares_batch *b, int64_t r)
{
    return row_len(b, r) > 0 && ares_batch_row_counts(b, r);
}

/* Tokens fed for a row beside its prompt: all of the response but the last. */
static int64_t own_tokens(const ares_batch *b, int64_t r)
{
    return trains(b, r) ? row_len(b, r) - 1 : row_len(b, r) > 0;
}

/* The end of the group that the row is in, by bisection. */
static int64_t group_end(const ares_batch *b, int64_t row)
{
    int64_t lo = 0, hi = b->groups;
    while (lo + 1 < hi) {
        int64_t mid = (lo + hi) / 2;
        if (b->group_start[mid] <= row) lo = mid;
        else hi = mid;
    }
    return b->group_start[lo + 1];
}

static bool same_prompt(const ares_batch *b, int64_t row, int64_t other)
{
    const ares_sample *x = &b->samples[row], *y = &b->samples[other];
    /* equal ids with other pictures are other prompts, since placeholders look alike */
    return x->prompt_len == y->prompt_len && x->row_media == y->row_media &&
           (x->prompt == y->prompt ||
            memcmp(x->prompt, y->prompt, (size_t)x->prompt_len * sizeof *x->prompt) == 0);
}

/* The first row from `first` on that feeds the prompt of row r; r itself where none before does. */
static int64_t first_alike(const ares_batch *b, int64_t first, int64_t r)
{
    for (int64_t i = first; i < r; i++)
        if (trains(b, i) && same_prompt(b, i, r)) return i;
    return r;
}

/* Whether run i of a set is fed the prompt of its first row with the run before it. */
static bool shares_with_last(const ares_batch *b, const ares_micro_batch *runs, int64_t i)
{
    return i > 0 && trains(b, runs[i - 1].row) && trains(b, runs[i].row) &&
           same_prompt(b, runs[i - 1].row, runs[i].row);
}

/* Tokens that a teacher is fed for the row's prompt beside the policy, in a unit from `first` on.
 */
static int64_t taught_prompt(const ares_batch *b, int64_t first, int64_t r, bool share)
{
    const ares_sample *s = &b->samples[r];
    if (!s->teacher_prompt || !trains(b, r)) return 0;
    for (int64_t i = first; share && i < r; i++)
        if (b->samples[i].teacher_prompt == s->teacher_prompt && trains(b, i)) return 0;
    return s->teacher_prompt_len;
}

int64_t ares_pack_plan(const ares_batch *b, int64_t row, int64_t end, int64_t max_tokens,
                       bool share, ares_micro_batch *out)
{
    int64_t n = 0, held = 0; /* held: tokens of the last cut, each row by its longer sequence */
    while (row < end) {
        int64_t next = share ? ARES_MIN(group_end(b, row), end) : row + 1, tokens = 0, longer = 0;
        for (int64_t r = row; r < next; r++) {
            bool fed = trains(b, r) && !(share && first_alike(b, row, r) < r);
            int64_t prompt = fed ? b->samples[r].prompt_len : 0;
            tokens += own_tokens(b, r) + prompt;
            longer += own_tokens(b, r) + ARES_MAX(prompt, taught_prompt(b, row, r, share));
        }
        int64_t outs = b->row_start[next] - b->row_start[row];
        /* a unit that does not fit begins a new micro-batch, even where it is too large alone */
        if (n && held + longer <= max_tokens) {
            held += longer;
            out[n - 1].end = next;
            out[n - 1].tokens += tokens;
            out[n - 1].out += outs;
        } else {
            out[n++] = (ares_micro_batch){ row, next, tokens, outs };
            held = longer;
        }
        row = next;
    }
    return n;
}

typedef struct builder {
    int32_t *ids, *positions, *start, *length, *prefix_len, *prefix_row, *out_rows, *targets;
    int32_t rows, n_seg, n_out;
    /* where some row has pictures: else NULL and 0 */
    int32_t *by_row, *by_column, *feature_rows;
    ares_shown *shown;
    int32_t n_features, n_shown;
} builder;

/*
 * Begins a segment of a sequence of `length` tokens: its first `prefix` tokens lie in the packed
 * rows from prefix_row on, the segment's own follow.
 */
static void open_segment(builder *p, int32_t prefix, int32_t prefix_row, int64_t length)
{
    p->length[p->n_seg] = (int32_t)length;
    p->prefix_len[p->n_seg] = prefix;
    p->prefix_row[p->n_seg] = prefix_row;
    p->start[p->n_seg++] = p->rows;
}

/* Tokens of a sequence from number `first` on. */
static void put(builder *p, const int32_t *ids, int64_t n, const ares_row_media *row_media,
                int32_t first)
{
    for (int32_t i = 0; row_media && i < row_media->n_places; i++) {
        const ares_place *x = &row_media->places[i];
        int32_t from = ARES_MAX(x->first, first),
                end = (int32_t)ARES_MIN((int64_t)x->first + x->n, first + n);
        if (from >= end) continue; /* none of the place's tokens is put */
        p->shown[p->n_shown++] = (ares_shown){
            .medium = x->medium, .at = p->n_features, .from = from - x->first, .n = end - from
        };
        for (int32_t t = from; t < end; t++) p->feature_rows[p->n_features++] = p->rows + t - first;
    }
    for (int64_t i = 0; i < n; i++) {
        int32_t t, h, w;
        ares_media_position(row_media, first + (int32_t)i, &t, &h, &w);
        p->ids[p->rows] = ids[i];
        p->positions[p->rows] = t;
        if (p->by_row) {
            p->by_row[p->rows] = h;
            p->by_column[p->rows] = w;
        }
        p->rows++;
    }
}

/* *at: the packed row where the prompt of row r begins; -1: it is put now, and *at is written. */
static void put_row(builder *p, const ares_batch *b, int64_t r, bool share, int32_t *at)
{
    const ares_sample *s = &b->samples[r];
    const int32_t *response = b->responses + b->row_start[r];
    int64_t own = own_tokens(b, r), n = row_len(b, r);
    if (*at < 0) {
        open_segment(p, 0, 0, share ? s->prompt_len : s->prompt_len + n);
        *at = p->rows;
        put(p, s->prompt, s->prompt_len, s->row_media, 0);
    }
    int32_t prompt_row = *at;
    if (share && own) open_segment(p, s->prompt_len, prompt_row, s->prompt_len + n);
    int32_t first = p->rows;
    put(p, response, own, s->row_media, s->prompt_len);
    for (int64_t i = 0; i < n; i++) {
        p->out_rows[p->n_out] = i ? first + (int32_t)i - 1 : prompt_row + s->prompt_len - 1;
        p->targets[p->n_out++] = response[i];
    }
}

/*
 * The consecutive rows of a micro-batch. begun: where the prompt of the first row begins already,
 * or -1. Returns where it begins.
 */
static int32_t put_run(builder *p, const ares_batch *b, const ares_micro_batch *m, bool share,
                       int32_t begun, ares_arena *arena)
{
    /* where the prompt of each row begins */
    int32_t *at = ares_arena_alloc(arena, (size_t)(m->end - m->row + 1) * sizeof *at);
    for (int64_t r = m->row; r < m->end;) {
        int64_t first = r, next = share ? ARES_MIN(group_end(b, r), m->end) : r + 1;
        for (; r < next; r++) {
            int64_t alike = share && trains(b, r) ? first_alike(b, first, r) : r;
            at[r - m->row] = alike < r ? at[alike - m->row] : r == m->row ? begun : -1;
            int64_t n = row_len(b, r);
            if (trains(b, r)) put_row(p, b, r, share, &at[r - m->row]);
            if (trains(b, r) || !n) continue;
            /* a response that is masked as a whole: its head rows look at one token, and no loss
             * reads what they find */
            open_segment(p, 0, 0, 1);
            for (int64_t i = 0; i < n; i++) {
                p->out_rows[p->n_out] = p->rows;
                p->targets[p->n_out++] = b->responses[b->row_start[r] + i];
            }
            put(p, b->samples[r].prompt, 1, NULL, 0);
        }
    }
    return m->row < m->end ? at[0] : -1;
}

void ares_pack_build(const ares_batch *b, const ares_micro_set *m, bool share, ares_arena *arena,
                     ares_packed *out, const int32_t **targets)
{
    size_t rows = (size_t)m->tokens + 1, segments = 1, i32 = sizeof(int32_t);
    size_t places = 0, of_places = 0; /* places of media, and tokens of these */
    /* a row is at most two segments: its prompt and its response */
    for (int64_t i = 0; i < m->n; i++) segments += (size_t)(m->runs[i].end - m->runs[i].row) * 2;
    builder p = { .ids = ares_arena_alloc(arena, rows * i32),
                  .positions = ares_arena_alloc(arena, rows * i32),
                  .start = ares_arena_alloc(arena, (segments + 1) * i32),
                  .length = ares_arena_alloc(arena, segments * i32),
                  .prefix_len = ares_arena_alloc(arena, segments * i32),
                  .prefix_row = ares_arena_alloc(arena, segments * i32),
                  .out_rows = ares_arena_alloc(arena, ((size_t)m->out + 1) * i32),
                  .targets = ares_arena_alloc(arena, ((size_t)m->out + 1) * i32) };
    for (int64_t i = 0; i < m->n; i++)
        for (int64_t r = m->runs[i].row; r < m->runs[i].end; r++) {
            const ares_row_media *s = b->samples[r].row_media;
            /* two: a place that begins in the prompt may end in the response */
            for (int32_t k = 0; s && k < s->n_places; k++, places += 2)
                of_places += (size_t)s->places[k].n;
        }
    if (places) {
        p.by_row = ares_arena_alloc(arena, rows * i32);
        p.by_column = ares_arena_alloc(arena, rows * i32);
        p.shown = ares_arena_alloc(arena, places * sizeof *p.shown);
        p.feature_rows = ares_arena_alloc(arena, of_places * i32);
    }
    int32_t at = -1; /* where the prompt of the run before begins */
    for (int64_t i = 0; i < m->n; i++)
        at = put_run(&p, b, &m->runs[i], share, share && shares_with_last(b, m->runs, i) ? at : -1,
                     arena);
    /* segment i is [start[i], start[i + 1]) */
    p.start[p.n_seg] = p.rows;
    ARES_ASSERT(p.rows == m->tokens && p.n_out == m->out);
    *out = (ares_packed){ .rows = p.rows,
                          .ids = p.ids,
                          .positions = p.positions,
                          .positions_h = p.by_row,
                          .positions_w = p.by_column,
                          .n_features = p.n_features,
                          .feature_rows = p.feature_rows,
                          .n_shown = p.n_shown,
                          .shown = p.shown,
                          .length = p.length,
                          .n_out = p.n_out,
                          .out_rows = p.out_rows,
                          .seg = { .n = p.n_seg,
                                   .rows = p.rows,
                                   .start = p.start,
                                   .prefix_len = p.prefix_len,
                                   .prefix_row = p.prefix_row } };
    *targets = p.targets;
}

void ares_pack_scatter(const ares_batch *b, const ares_micro_set *m, const float *x, int64_t first,
                       float *column)
{
    for (int64_t i = 0; i < m->n; i++) {
        const ares_micro_batch *run = &m->runs[i];
        float *to = column + b->row_start[run->row] - first;
        if (run->out) memcpy(to, x, (size_t)run->out * sizeof *x);
        for (int64_t r = run->row, n; r < run->end; r++, to += n) {
            n = row_len(b, r);
            if (n && !trains(b, r)) memset(to, 0, (size_t)n * sizeof *to);
        }
        x += run->out;
    }
}

/* ---------------------------------------------------------------- even sets */
/* units (groups, or rows) balanced together: the work grows with the square of their number */
enum { WINDOW = 512 };

/*
 * Parts of nearly equal numbers of tokens, more of them until every part is within max_tokens.
 * Where that would take more parts than cutting the units in order, the cuts are taken. sums:
 * scratch [3 n].
 */
static int even_parts(const int64_t *tokens, int64_t n, int64_t max_tokens, int64_t *k,
                      int64_t *part, int64_t *sums)
{
    int64_t *cut = sums + 2 * n, cuts = 0, length = 0, least = 1;
    for (int64_t i = 0; i < n; i++) {
        if (!i || length + tokens[i] > max_tokens) cuts++, length = 0;
        length += tokens[i];
        cut[i] = cuts - 1;
    }
    /* a quarter of the parts that are missing at a time: few tries, and seldom one too many */
    for (; cuts < n && least < cuts; least = *k + ARES_MAX((cuts - *k) / 4, 1)) {
        ARES_TRY(balance_micro_batches(tokens, n, max_tokens, least, k, part));
        if (*k > cuts) break;
        /* a part of one unit may exceed max_tokens, because it cannot be divided */
        bool fits = true;
        int64_t *counts = sums + *k;
        memset(sums, 0, 2 * (size_t)*k * sizeof *sums);
        for (int64_t i = 0; i < n; i++) {
            sums[part[i]] += tokens[i];
            counts[part[i]]++;
        }
        for (int64_t j = 0; j < *k; j++) fits = fits && (sums[j] <= max_tokens || counts[j] <= 1);
        if (fits) return ARES_OK;
    }
    *k = cuts;
    memcpy(part, cut, (size_t)n * sizeof *part);
    return ARES_OK;
}

int ares_pack_sets(const ares_batch *b, int64_t row, int64_t end, int64_t max_tokens, bool share,
                   ares_arena *arena, ares_micro_set **out, int64_t *n)
{
    size_t cap = (size_t)(end - row + 1);
    ares_micro_batch *unit = ares_arena_alloc(arena, cap * sizeof *unit);
    ares_micro_batch *runs = ares_arena_alloc(arena, cap * sizeof *runs);
    int64_t units = ares_pack_plan(b, row, end, 0, share, unit);
    int64_t *tokens = ares_arena_alloc(arena, 5 * cap * sizeof *tokens);
    int64_t *part = tokens + cap, *sums = part + cap;
    *out = ares_arena_alloc(arena, cap * sizeof **out);
    *n = 0;
    for (int64_t i = 0; i < units; i++) tokens[i] = unit[i].tokens;
    for (int64_t at = 0, k; at < units; at += WINDOW) {
        int64_t size = ARES_MIN(WINDOW, units - at);
        ARES_TRY(even_parts(tokens + at, size, max_tokens, &k, part, sums));
        for (int64_t j = 0; j < k; j++) {
            ares_micro_set *set = &(*out)[(*n)++];
            *set = (ares_micro_set){ .runs = runs };
            for (int64_t i = 0; i < size; i++) {
                if (part[i] != j) continue;
                *runs = unit[at + i];
                if (share && shares_with_last(b, set->runs, set->n))
                    runs->tokens -= b->samples[runs->row].prompt_len;
                set->n++;
                set->tokens += runs->tokens;
                set->out += runs++->out;
            }
        }
    }
    return ARES_OK;
}
