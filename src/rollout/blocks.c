/*
 * The blocks of the paged cache: a stack of free ones, a count of users per block, and the index by
 * which blocks are found again.
 */
#include "internal.h"

#include <string.h>

void rollout_blocks_init(rollout_blocks *b, int32_t total)
{
    size_t n = (size_t)total;
    *b = (rollout_blocks){ .total = total, .buckets = 64 };
    while (b->buckets < total) b->buckets *= 2;
    b->free_list = ares_malloc(n * sizeof *b->free_list);
    b->refs = ares_malloc(n * sizeof *b->refs);
    b->serial = ares_malloc(n * sizeof *b->serial);
    b->parent = ares_malloc(n * sizeof *b->parent);
    b->ids = ares_malloc(n * ARES_KV_BLOCK * sizeof *b->ids);
    b->filled = ares_malloc(n * sizeof *b->filled);
    b->bucket = ares_malloc((size_t)b->buckets * sizeof *b->bucket);
    b->next = ares_malloc(n * sizeof *b->next);
    b->older = ares_malloc(n * sizeof *b->older);
    b->newer = ares_malloc(n * sizeof *b->newer);
    rollout_blocks_reset(b);
}

void rollout_blocks_fini(rollout_blocks *b)
{
    void *all[] = { b->free_list, b->refs,   b->serial, b->parent, b->ids,
                    b->filled,    b->bucket, b->next,   b->older,  b->newer };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
}

void rollout_blocks_reset(rollout_blocks *b)
{
    b->n_free = b->total;
    b->n_idle = 0;
    b->oldest = b->newest = -1;
    for (int32_t i = 0; i < b->total; i++) {
        b->free_list[i] = b->total - 1 - i;
        b->refs[i] = 0;
        b->serial[i] = 0;
    }
    for (int32_t i = 0; i < b->buckets; i++) b->bucket[i] = -1;
}

int32_t rollout_blocks_available(const rollout_blocks *b)
{
    return b->n_free + b->n_idle;
}

/* ---------------------------------------------------------------- idle blocks, oldest first */
static void leave_idle(rollout_blocks *b, int32_t block)
{
    int32_t older = b->older[block], newer = b->newer[block];
    *(older >= 0 ? &b->newer[older] : &b->oldest) = newer;
    *(newer >= 0 ? &b->older[newer] : &b->newest) = older;
    b->n_idle--;
}

static void join_idle(rollout_blocks *b, int32_t block)
{
    b->older[block] = b->newest;
    b->newer[block] = -1;
    *(b->newest >= 0 ? &b->newer[b->newest] : &b->oldest) = block;
    b->newest = block;
    b->n_idle++;
}

/* ---------------------------------------------------------------- the index */
/* Of n tokens. Blocks that are not full are looked for by their parent alone. */
static int32_t *bucket_of(const rollout_blocks *b, uint64_t parent, const int32_t *ids, int32_t n)
{
    uint64_t h = (parent ^ 0xCBF29CE484222325ULL) * 0x9E3779B97F4A7C15ULL;
    for (int i = 0; n == ARES_KV_BLOCK && i < n; i++)
        h = (h ^ (uint32_t)ids[i]) * 0x9E3779B97F4A7C15ULL;
    return &b->bucket[(h >> 32) & (uint64_t)(b->buckets - 1)];
}

static const int32_t *ids_of(const rollout_blocks *b, int32_t block)
{
    return b->ids + (int64_t)block * ARES_KV_BLOCK;
}

static bool holds(const rollout_blocks *b, int32_t block, uint64_t parent, const int32_t *ids)
{
    return b->parent[block] == parent &&
           memcmp(ids_of(b, block), ids, (size_t)b->filled[block] * sizeof *ids) == 0;
}

int32_t rollout_block_find(const rollout_blocks *b, uint64_t parent, const int32_t *ids)
{
    int32_t i = *bucket_of(b, parent, ids, ARES_KV_BLOCK);
    while (i >= 0 && (b->filled[i] < ARES_KV_BLOCK || !holds(b, i, parent, ids))) i = b->next[i];
    return i;
}

uint64_t rollout_block_keep(rollout_blocks *b, int32_t block, uint64_t parent, const int32_t *ids,
                            int32_t n)
{
    int32_t found = n == ARES_KV_BLOCK ? rollout_block_find(b, parent, ids) : -1;
    if (found >= 0) return b->serial[found];
    int32_t *first = bucket_of(b, parent, ids, n);
    memcpy(b->ids + (int64_t)block * ARES_KV_BLOCK, ids, (size_t)n * sizeof *ids);
    b->parent[block] = parent;
    b->filled[block] = n;
    b->next[block] = *first;
    *first = block;
    return b->serial[block] = ++b->last_serial;
}

static void forget(rollout_blocks *b, int32_t block)
{
    int32_t *at = bucket_of(b, b->parent[block], ids_of(b, block), b->filled[block]);
    while (*at != block) at = &b->next[*at];
    *at = b->next[block];
    b->serial[block] = 0;
}

int32_t rollout_block_take_part(rollout_blocks *b, uint64_t parent, const int32_t *ids, int32_t n)
{
    int32_t best = -1;
    for (int32_t i = *bucket_of(b, parent, NULL, 0); i >= 0; i = b->next[i])
        if (b->filled[i] <= ARES_MIN(n, ARES_KV_BLOCK - 1) && holds(b, i, parent, ids) &&
            (best < 0 || b->filled[i] > b->filled[best]))
            best = i;
    if (best < 0) return -1;
    ARES_ASSERT(b->refs[best] == 0);
    leave_idle(b, best);
    forget(b, best);
    b->refs[best] = 1;
    return best;
}

/* ---------------------------------------------------------------- users */
int32_t rollout_block_take(rollout_blocks *b)
{
    int32_t block = b->oldest;
    if (b->n_free) {
        block = b->free_list[--b->n_free];
    } else if (block >= 0) {
        leave_idle(b, block);
        forget(b, block);
    } else {
        return -1;
    }
    b->refs[block] = 1;
    return block;
}

void rollout_block_ref(rollout_blocks *b, int32_t block)
{
    ARES_ASSERT(b->refs[block] > 0 || b->serial[block]);
    if (b->refs[block]++ == 0) leave_idle(b, block);
}

void rollout_block_drop(rollout_blocks *b, int32_t block)
{
    ARES_ASSERT(b->refs[block] > 0);
    if (--b->refs[block]) return;
    if (b->serial[block]) join_idle(b, block);
    else b->free_list[b->n_free++] = block;
}
