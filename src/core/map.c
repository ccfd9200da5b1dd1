/*
 * Bytes -> int64: an array of entries in order of insertion, and a hash table of indices into it
 * (open addressing).
 */
#include "ares/core.h"
#include "hash.h"

typedef struct entry {
    ares_view key;
    uint64_t hash;
    int64_t value;
} entry;

struct ares_map {
    ares_arena keys;
    entry *entries;
    int64_t count, cap;
    uint32_t *slots; /* index + 1; 0 is free */
    uint64_t mask;
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
static uint32_t *slot_of(const ares_map *m, ares_view key, uint64_t hash)
{
    for (uint64_t at = hash & m->mask;; at = (at + 1) & m->mask) {
        uint32_t *slot = &m->slots[at];
        if (*slot == 0) return slot;
        const entry *e = &m->entries[*slot - 1];
        if (e->hash == hash && ares_view_eq(e->key, key)) return slot;
    }
}

static void grow(ares_map *m)
{
    m->cap = m->cap ? m->cap * 2 : 16;
    ARES_ASSERT(m->cap < UINT32_MAX / 2);
    m->entries = ares_realloc(m->entries, (size_t)m->cap * sizeof(entry));
    ares_free(m->slots);
    m->slots = ares_calloc((size_t)m->cap * 2, sizeof(uint32_t));
    m->mask = (uint64_t)m->cap * 2 - 1;
    for (int64_t i = 0; i < m->count; i++)
        *slot_of(m, m->entries[i].key, m->entries[i].hash) = (uint32_t)(i + 1);
}

void ares_map_put(ares_map *m, ares_view key, int64_t value)
{
    if (m->count == m->cap) grow(m);
    uint64_t hash = core_hash(key.data, key.len);
    uint32_t *slot = slot_of(m, key, hash);
    if (*slot) {
        m->entries[*slot - 1].value = value;
        return;
    }
    ares_view kept = { ares_arena_copy(&m->keys, key.data, key.len), key.len };
    m->entries[m->count] = (entry){ kept, hash, value };
    *slot = (uint32_t)++m->count;
}

bool ares_map_get(const ares_map *m, ares_view key, int64_t *value)
{
    if (m->count == 0) return false;
    uint32_t slot = *slot_of(m, key, core_hash(key.data, key.len));
    if (slot && value) *value = m->entries[slot - 1].value;
    return slot != 0;
}

int64_t ares_map_count(const ares_map *m)
{
    return m->count;
}

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
