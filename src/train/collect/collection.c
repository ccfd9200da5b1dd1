/* Arrays that grow in the step's arena, where nothing is freed one by one. */
#include "collect/collection.h"

#include <string.h>

ares_group *collection_add(collection *c)
{
    if (c->count == c->capacity) {
        c->capacity = c->capacity * 2 + 64;
        c->items = arena_grown(c->arena, c->items, c->count, c->capacity, sizeof *c->items);
    }
    return &c->items[c->count++];
}

void *arena_grown(ares_arena *arena, const void *items, int64_t n, int64_t capacity, size_t size)
{
    char *grown = ares_arena_alloc(arena, ((size_t)capacity + 1) * size);
    if (n) memcpy(grown, items, (size_t)n * size);
    return grown;
}
