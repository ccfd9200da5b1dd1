/* The groups that a rank has in a step. (collection.c) */
#ifndef ARES_TRAIN_COLLECT_COLLECTION_H
#define ARES_TRAIN_COLLECT_COLLECTION_H

#include "collect/answerer.h"

typedef struct collection {
    ares_group *items; /* as their arrays and texts, in the step's arena */
    int64_t count, capacity;
    ares_arena *arena;
} collection;

ares_group *collection_add(collection *c); /* to be filled by the caller */
/* In the arena: an array of `capacity` items and one more that begins with n items of another. */
void *arena_grown(ares_arena *arena, const void *items, int64_t n, int64_t capacity, size_t size);
#endif
