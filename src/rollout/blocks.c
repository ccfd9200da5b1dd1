/* The blocks of the paged cache: a stack of free ones, and a count of users per block. */
#include "internal.h"

void rollout_blocks_init(rollout_blocks *b, int32_t total)
{
    b->total = total;
    b->free_list = ares_malloc((size_t)total * sizeof *b->free_list);
    b->refs = ares_malloc((size_t)total * sizeof *b->refs);
    rollout_blocks_reset(b);
}

void rollout_blocks_fini(rollout_blocks *b)
{
    ares_free(b->free_list);
    ares_free(b->refs);
}

void rollout_blocks_reset(rollout_blocks *b)
{
    b->n_free = b->total;
    for (int32_t i = 0; i < b->total; i++) {
        b->free_list[i] = b->total - 1 - i;
        b->refs[i] = 0;
    }
}

int32_t rollout_block_take(rollout_blocks *b)
{
    if (b->n_free == 0) return -1;
    int32_t block = b->free_list[--b->n_free];
    b->refs[block] = 1;
    return block;
}

void rollout_block_ref(rollout_blocks *b, int32_t block)
{
    ARES_ASSERT(b->refs[block] > 0);
    b->refs[block]++;
}

void rollout_block_drop(rollout_blocks *b, int32_t block)
{
    ARES_ASSERT(b->refs[block] > 0);
    if (--b->refs[block] == 0) b->free_list[b->n_free++] = block;
}
