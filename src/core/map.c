/*
 * Look-up of names: a hash map from bytes to integers, and the name that a misspelt one probably
 * meant. Sorted numbers.
 */
#include "internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ares/core.h"

/*
 * Bytes -> int64: an array of entries in order of insertion, and a hash table of indices into it
 * (open addressing).
 */

/* An entry; its hash is kept, so that growing need not hash again. */
typedef struct entry {
    ares_view key;
    uint64_t hash;
    int64_t value;
} entry;

struct ares_map {
    ares_arena keys; /* bytes of the keys */
    entry *entries;
    int64_t count, cap;
    uint64_t *slots; /* the hash's upper half, then index + 1; 0 is free */
    uint64_t
        mask; /* slots - 1: there are a power of two of them, at least twice as many as entries */
};

ares_map *ares_map_new(void)
{
    ares_map *m = ares_calloc(1, sizeof *m);
    m->keys.chunk_bytes = 1024;
    return m;
}

void ares_map_free(ares_map *m)
{
    if (!m) return;
    ares_arena_fini(&m->keys);
    ares_free(m->entries);
    ares_free(m->slots);
    ares_free(m);
}

/* The slot that holds the key, or the free one where it belongs. */
static uint64_t *slot_of(const ares_map *m, ares_view key, uint64_t hash)
{
    for (uint64_t at = hash & m->mask;; at = (at + 1) & m->mask) {
        uint64_t *slot = &m->slots[at];
        if (*slot == 0) return slot;
        /* most other keys are told apart without a look at their entries, which lie far away */
        if ((*slot ^ hash) >> 32) continue;
        if (ares_view_eq(m->entries[(uint32_t)*slot - 1].key, key)) return slot;
    }
}

void ares_map_put(ares_map *m, ares_view key, int64_t value)
{
    if (m->count == m->cap) { /* twice as large; every index gets a new slot */
        m->cap = m->cap ? m->cap * 2 : 16;
        ARES_ASSERT(m->cap < UINT32_MAX / 2);
        m->entries = ares_realloc(m->entries, (size_t)m->cap * sizeof(entry));
        ares_free(m->slots);
        m->slots = ares_calloc((size_t)m->cap * 2, sizeof *m->slots);
        m->mask = (uint64_t)m->cap * 2 - 1;
        for (int64_t i = 0; i < m->count; i++) {
            uint64_t hash = m->entries[i].hash, at = hash & m->mask;
            while (m->slots[at]) at = (at + 1) & m->mask;
            m->slots[at] = hash >> 32 << 32 | (uint64_t)(i + 1);
        }
    }
    uint64_t hash = core_hash(key.data, key.len);
    uint64_t *slot = slot_of(m, key, hash);
    if (*slot) {
        m->entries[(uint32_t)*slot - 1].value = value;
        return;
    }
    ares_view kept = { ares_arena_copy(&m->keys, key.data, key.len), key.len };
    m->entries[m->count] = (entry){ kept, hash, value };
    *slot = hash >> 32 << 32 | (uint64_t)++m->count;
}

bool ares_map_get(const ares_map *m, ares_view key, int64_t *value)
{
    if (m->count == 0) return false;
    uint32_t slot = (uint32_t)*slot_of(m, key, core_hash(key.data, key.len));
    if (slot && value) *value = m->entries[slot - 1].value;
    return slot != 0;
}

int64_t ares_map_count(const ares_map *m)
{
    return m->count;
}

/* Index: the order in which keys were put. */
ares_view ares_map_key(const ares_map *m, int64_t index)
{
    ARES_ASSERT(index >= 0 && index < m->count);
    return m->entries[index].key;
}

int64_t ares_map_value(const ares_map *m, int64_t index)
{
    ARES_ASSERT(index >= 0 && index < m->count);
    return m->entries[index].value;
}

/*
 * A name among names, and the name that was probably meant. Distance: insertions, deletions,
 * replacements and swaps of neighbours (optimal string alignment); case, and '-' against '_', do
 * not count. A name is near when it may be the word misspelt: the distance is at most a third of
 * the longer word, rounded, and at most 2, and both have the same digits.
 */

enum { MAX_WORD = 128 }; /* longer words are not compared: the tables lie on the stack */

/* Case, and - against _, do not count. */
static int folded(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

/* Three rows of the table of distances are enough: a swap looks back two of them. */
static int distance(const char *a, int na, const char *b, int nb)
{
    int rows[3][MAX_WORD + 1], *before = rows[0], *above = rows[1], *row = rows[2];
    for (int j = 0; j <= nb; j++) above[j] = j;
    for (int i = 1; i <= na; i++) {
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int differ = folded(a[i - 1]) != folded(b[j - 1]);
            int best = ARES_MIN(above[j - 1] + differ, ARES_MIN(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
                folded(a[i - 2]) == folded(b[j - 1]))
                best = ARES_MIN(best, before[j - 2] + 1);
            row[j] = best;
        }
        int *oldest = before;
        before = above, above = row, row = oldest;
    }
    return above[nb];
}

/* Names that differ in a digit, such as k1 and k2, are other names and not misspelt ones. */
static bool same_digits(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a && !isdigit((unsigned char)*a)) a++;
        while (*b && !isdigit((unsigned char)*b)) b++;
        if (*a != *b) return false;
        if (!*a) return true;
    }
}

/* The first of the nearest names; NULL: none is near enough. */
const char *ares_nearest(const char *word, const char *const *names, int n)
{
    const char *nearest = NULL;
    size_t len = strlen(word);
    int least = MAX_WORD;
    if (len > MAX_WORD) return NULL;
    for (int i = 0; i < n; i++) {
        size_t other = strlen(names[i]);
        if (other > MAX_WORD || !same_digits(word, names[i])) continue;
        int d = distance(word, (int)len, names[i], (int)other),
            near = ARES_MIN(2, ((int)ARES_MAX(len, other) + 1) / 3);
        if (d > near || d >= least) continue;
        least = d;
        nearest = names[i];
    }
    return nearest;
}

/* "room: subject = 'grop': unknown; did you mean 'grpo'? (choices: gae, grpo)" */
int ares_lookup(int code, const char *subject, const char *name, const char *const *names, int n,
                int *index)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *index = i;
        return ARES_OK;
    }
    ares_str choices = { 0 };
    for (int i = 0; i < n; i++) ares_str_addf(&choices, "%s%s", i ? ", " : "", names[i]);
    const char *nearest = ares_nearest(name, names, n);
    ares_fail(code, "unknown;%s%s%s (choices: %s)", nearest ? " did you mean '" : "",
              nearest ? nearest : " choose one of these", nearest ? "'?" : "",
              n ? choices.data : "none");
    ares_str_fini(&choices);
    return subject ? ares_fail_in(code, "%s = '%s'", subject, name) : code;
}

/* ---------------- ascending order */

static int by_f64(const void *a, const void *b)
{
    return ARES_CMP(*(const double *)a, *(const double *)b);
}

void ares_sort_f64(double *x, int64_t n)
{
    if (n > 1) qsort(x, (size_t)n, sizeof *x, by_f64);
}

static int by_i64(const void *a, const void *b)
{
    return ARES_CMP(*(const int64_t *)a, *(const int64_t *)b);
}

void ares_sort_i64(int64_t *x, int64_t n)
{
    if (n > 1) qsort(x, (size_t)n, sizeof *x, by_i64);
}

static int by_two(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return x[0] != y[0] ? ARES_CMP(x[0], y[0]) : ARES_CMP(x[1], y[1]);
}

void ares_sort_records(void *records, int64_t n, size_t size)
{
    if (n > 1) qsort(records, (size_t)n, size, by_two);
}
