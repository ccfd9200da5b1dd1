/*
 * Largest differencing. A state is k sets in descending order of their sums. The two states whose
 * largest and smallest set differ most are merged, the smallest set of one with the largest of the
 * other, until one state is left. A set keeps the order in which its items came, because sets of
 * equal sum and size are compared item by item. A set is a linked list of items, a state the heads
 * of k sets. The order of rows and micro-batches stand below it.
 */
#include "balance.h"
#include "ares/data_balance.h"

#include <stdio.h>
#include <stdlib.h>

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

static int by_weight(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return x->weight != y->weight ? (x->weight > y->weight) - (x->weight < y->weight)
                                  : (x->index > y->index) - (x->index < y->index);
}

/* By sum, then number of items, then the items one by one. */
static int compare_sets(const work *w, const set *x, const set *y)
{
    if (x->sum != y->sum) return (x->sum > y->sum) - (x->sum < y->sum);
    if (x->count != y->count) return (x->count > y->count) - (x->count < y->count);
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

static void append(const work *w, set *to, const set *from)
{
    if (!from->count) return;
    if (to->count) w->next[to->last] = from->first;
    else to->first = from->first;
    to->last = from->last;
    to->count += from->count;
    to->sum += from->sum;
}

/* Whether the heap gives state a before state b. */
static bool wider(const work *w, int64_t a, int64_t b)
{
    const set *x = w->sets + a * w->k, *y = w->sets + b * w->k;
    int64_t dx = x[0].sum - x[w->k - 1].sum, dy = y[0].sum - y[w->k - 1].sum;
    return dx != dy ? dx > dy : compare_sets(w, &x[0], &y[0]) > 0;
}

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
        for (int64_t i = 0; i < w->k; i++) append(w, &a[i], &b[w->k - 1 - i]);
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
    for (int64_t i = 0; i < n; i++) order[i % 2 ? n - 1 - i / 2 : i / 2] = items[i].index;
    ares_free(items);
}

void ares_balance_report(const int64_t *length, int64_t n, int64_t k, const int64_t *part,
                         const char *prefix, ares_metrics *m)
{
    int64_t *sums = ares_calloc((size_t)k * 2, sizeof *sums), *parts = sums + k, total = 0;
    for (int64_t i = 0; i < n; i++) {
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

static int by_cost(const void *a, const void *b)
{
    const part_cost *x = a, *y = b;
    return x->squares != y->squares ? (x->squares < y->squares) - (x->squares > y->squares)
                                    : (x->first < y->first) - (x->first > y->first);
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
