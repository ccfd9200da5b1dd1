/*
 * Where mini-batches begin and end. Mini-batches of rows are cut by row numbers that do not depend
 * on the number of ranks, so a rank may have more rows of one than another rank has, or none.
 */
#include "roles/mini_batches.h"

#include <stdlib.h>
#include <string.h>

static bool counts_rows(const char *unit)
{
    return unit && strcmp(unit, "rows") == 0;
}

mini_batch_size mini_batch_size_of_actor(const ares_train_config *cfg)
{
    return (mini_batch_size){ cfg->actor.global_batch_size,
                              counts_rows(cfg->actor.mini_batch_unit) };
}

mini_batch_size mini_batch_size_of_critic(const ares_train_config *cfg)
{
    mini_batch_size out = mini_batch_size_of_actor(cfg);
    if (cfg->critic.global_batch_size != ARES_NULL_I64) out.count = cfg->critic.global_batch_size;
    if (cfg->critic.mini_batch_unit) out.rows = counts_rows(cfg->critic.mini_batch_unit);
    return out;
}

static void cut_groups(const ares_batch *b, int64_t groups, mini_batches *out, int64_t *start)
{
    for (int64_t g = 0; g < b->groups; g += groups) start[out->n++] = b->group_start[g];
    start[out->n] = b->rows;
}

/* A group, of any rank. */
typedef struct placed {
    int64_t place, rows;
    int64_t index; /* in the order of ranks, then of the batch */
} placed;

static int by_place(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    if (x->place != y->place) return (x->place > y->place) - (x->place < y->place);
    return (x->index > y->index) - (x->index < y->index);
}

int mini_batches_number_rows(ares_batch *b, ares_world *world, int64_t *first, int64_t *total)
{
    ares_str all = { 0 };
    int64_t ranks = ares_world_size(world);
    size_t count = (size_t)b->groups;
    size_t *begin = ares_arena_alloc(&b->arena, (size_t)(ranks + 1) * sizeof *begin);
    placed *mine = ares_arena_alloc(&b->arena, (count + 1) * sizeof *mine);
    for (int64_t g = 0; g < b->groups; g++) {
        int64_t row = b->group_start[g];
        mine[g] = (placed){ b->samples[row].place, b->group_start[g + 1] - row, 0 };
    }
    int rc = ares_world_gather_all(world, mine, count * sizeof *mine, &all, begin);
    placed *groups = (placed *)(void *)all.data;
    int64_t n = (int64_t)(all.len / sizeof *groups), number = 0,
            own = rc == ARES_OK ? (int64_t)(begin[ares_world_rank(world)] / sizeof *groups) : 0;
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) groups[i].index = i;
    if (n) qsort(groups, (size_t)n, sizeof *groups, by_place);
    for (int64_t i = 0; i < n && rc == ARES_OK; number += groups[i++].rows)
        if (groups[i].index >= own && groups[i].index < own + b->groups)
            first[groups[i].index - own] = number;
    *total = number;
    ares_str_fini(&all);
    return rc;
}

static int cut_rows(ares_batch *b, ares_world *world, int64_t rows, mini_batches *out)
{
    int64_t *first = ares_arena_alloc(&b->arena, (size_t)(b->groups + 1) * sizeof *first), total;
    ARES_TRY(mini_batches_number_rows(b, world, first, &total));
    int64_t n = (total + rows - 1) / rows, k = 0;
    int64_t *start = ares_arena_calloc(&b->arena, (size_t)n + 1, sizeof *start);
    for (int64_t g = 0; g < b->groups; g++) {
        if (g && first[g] < first[g - 1])
            return ares_fail(ARES_ESTATE,
                             "train: mini-batches of rows: group %lld of the batch "
                             "has a place before that of the group before it",
                             (long long)g);
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++)
            for (int64_t number = first[g] + r - b->group_start[g]; k <= number / rows;)
                start[k++] = r;
    }
    for (; k <= n; k++) start[k] = b->rows;
    *out = (mini_batches){ .n = n, .start = start };
    return ARES_OK;
}

int mini_batches_cut(const mini_batch_size *size, ares_batch *b, ares_world *world,
                     mini_batches *out)
{
    *out = (mini_batches){ 0 };
    if (size->rows) return cut_rows(b, world, size->count, out);
    int64_t *start = ares_arena_alloc(&b->arena, (size_t)(b->groups + 1) * sizeof *start);
    cut_groups(b, size->count / ares_world_size(world), out, start);
    out->start = start;
    return ARES_OK;
}
