/*
 * Where mini-batches begin and end. Mini-batches of rows are cut by row numbers that do not depend
 * on the number of ranks, so a rank may have more rows of one than another rank has, or none.
 */
#include "roles.h"

#include <stdlib.h>
#include <string.h>

#include "ares/data.h"

mini_batch_size mini_batch_size_of_actor(const ares_train_config *cfg)
{
    bool rows = strcmp(cfg->actor.mini_batch_unit, "rows") == 0;
    return (mini_batch_size){
        .count = cfg->actor.global_batch_size,
        .rows = rows,
        /* where work is balanced, unless the groups are shuffled on purpose */
        .by_length = rows && cfg->trainer.balance_batch && !cfg->actor.shuffle,
        .in_order = strcmp(cfg->loss.loss_norm, "micro") == 0 ||
                    strcmp(cfg->loss.early_stop_scope, "micro") == 0,
    };
}

mini_batch_size mini_batch_size_of_critic(const ares_train_config *cfg)
{
    mini_batch_size out = mini_batch_size_of_actor(cfg);
    out.in_order = false; /* no option counts its micro-batches */
    if (cfg->critic.global_batch_size != ARES_NULL_I64) out.count = cfg->critic.global_batch_size;
    if (cfg->critic.mini_batch_unit) out.rows = strcmp(cfg->critic.mini_batch_unit, "rows") == 0;
    out.by_length = out.rows && cfg->trainer.balance_batch && !cfg->actor.shuffle;
    return out;
}

/* A group, of any rank. */
typedef struct placed {
    int64_t place, index; /* they order groups; index: in the order of ranks, then of the batch */
    int64_t rows;
} placed;

/*
 * The n groups of all ranks, by their places, in `all`; own: the index of this rank's first.
 */
static int gather_groups(ares_batch *b, ares_world *world, ares_str *all, int64_t *n, int64_t *own)
{
    int64_t ranks = ares_world_size(world);
    size_t count = (size_t)b->groups;
    size_t *begin = ares_arena_alloc(&b->arena, (size_t)(ranks + 1) * sizeof *begin);
    placed *mine = ares_arena_alloc(&b->arena, (count + 1) * sizeof *mine);
    for (int64_t g = 0; g < b->groups; g++) {
        int64_t row = b->group_start[g];
        mine[g] = (placed){ b->samples[row].place, 0, b->group_start[g + 1] - row };
    }
    ARES_TRY(ares_world_gather_all(world, mine, count * sizeof *mine, all, begin));
    placed *groups = (placed *)(void *)all->data;
    *n = (int64_t)(all->len / sizeof *groups);
    *own = (int64_t)(begin[ares_world_rank(world)] / sizeof *groups);
    for (int64_t i = 0; i < *n; i++) groups[i].index = i;
    ares_sort_records(groups, *n, sizeof *groups);
    return ARES_OK;
}

int mini_batches_number_rows(ares_batch *b, ares_world *world, int64_t *first, int64_t *total)
{
    ares_str all = { 0 };
    int64_t n = 0, own = 0, number = 0;
    int rc = gather_groups(b, world, &all, &n, &own);
    const placed *groups = (const placed *)(const void *)all.data;
    for (int64_t i = 0; i < n && rc == ARES_OK; number += groups[i++].rows)
        if (groups[i].index >= own && groups[i].index < own + b->groups)
            first[groups[i].index - own] = number;
    *total = number;
    ares_str_fini(&all);
    return rc;
}

/*
 * `count` groups of consecutive places make a mini-batch; this rank may have any number of them.
 * *counted: groups of all ranks that do not only fill the batch
 */
static int cut_groups(int64_t count, ares_batch *b, ares_world *world, mini_batches *out,
                      int64_t *counted)
{
    ares_str all = { 0 };
    int64_t n = 0, own = 0, g = 0, before = 0;
    ARES_TRY(gather_groups(b, world, &all, &n, &own));
    const placed *groups = (const placed *)(const void *)all.data;
    int64_t *start = ares_arena_alloc(&b->arena, (size_t)(n + 1) * sizeof *start);
    for (int64_t i = 0; i < n; i++) {
        if (i % count == 0) start[out->n++] = b->group_start[g];
        before += !b->filled_from || groups[i].place < b->filled_from;
        g += groups[i].index >= own && groups[i].index < own + b->groups;
    }
    start[out->n] = b->rows;
    out->start = start;
    *counted = before;
    ares_str_fini(&all);
    return ARES_OK;
}

/*
 * The order [total] in which numbers make mini-batches. row [total]: the row of this rank that has
 * the number; -1: another rank's. Rows that only fill the batch, those after the first `before`,
 * stay last: they are others on another number of ranks.
 */
static int order_numbers(const mini_batch_size *size, ares_batch *b, ares_world *world,
                         const int64_t *row, int64_t total, int64_t before, int64_t *order)
{
    int64_t *length = ares_arena_calloc(&b->arena, (size_t)total + 1, sizeof *length);
    for (int64_t i = 0; i < total; i++) order[i] = i;
    if (!size->by_length) return ARES_OK;
    total = before;
    for (int64_t i = 0; i < total; i++)
        if (row[i] >= 0)
            length[i] =
                b->samples[row[i]].prompt_len + b->row_start[row[i] + 1] - b->row_start[row[i]];
    ARES_TRY(ares_world_sum_i64(world, length, total));
    ares_balance_order(length, total, order);
    for (int64_t at = 0; at < total && !size->in_order; at += size->count)
        ares_sort_i64(order + at, ARES_MIN(size->count, total - at));
    return ARES_OK;
}

/* The same of rows. */
static int cut_rows(const mini_batch_size *size, ares_batch *b, ares_world *world,
                    mini_batches *out, int64_t *counted)
{
    int64_t *first = ares_arena_alloc(&b->arena, (size_t)(b->groups + 1) * sizeof *first), total,
            before = 0, n = 0, same = 0;
    ARES_TRY(mini_batches_number_rows(b, world, first, &total));
    for (int64_t r = 0; r < b->rows; r++) /* rows before those that only fill the batch */
        before += !b->filled_from || b->samples[r].place < b->filled_from;
    ARES_TRY(ares_world_sum_i64(world, &before, 1));
    size_t bytes = (size_t)(total + 1) * sizeof(int64_t);
    int64_t *row = ares_arena_alloc(&b->arena, bytes),
            *numbers = ares_arena_alloc(&b->arena, bytes),
            *start = ares_arena_alloc(&b->arena, bytes),
            *order = ares_arena_alloc(&b->arena, (size_t)(b->rows + 1) * sizeof *order);
    for (int64_t i = 0; i < total; i++) row[i] = -1;
    for (int64_t g = 0; g < b->groups; g++)
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++)
            row[first[g] + r - b->group_start[g]] = r;
    ARES_TRY(order_numbers(size, b, world, row, total, before, numbers));
    for (int64_t i = 0; i < total; i++) {
        if (i % size->count == 0) start[out->n++] = n;
        if (row[numbers[i]] >= 0) order[n++] = row[numbers[i]];
    }
    ARES_ASSERT(n == b->rows);
    start[out->n] = n;
    out->start = start;
    *counted = before;
    while (same < b->rows && order[same] == same) same++;
    if (same == b->rows) return ARES_OK; /* the order is the batch's own: no copy */
    out->batch = ares_arena_alloc(&b->arena, sizeof *out->batch);
    out->order = order;
    ares_batch_init(out->batch);
    ares_batch_copy(b, order, b->rows, out->batch);
    return ARES_OK;
}

int mini_batches_cut(const mini_batch_size *size, ares_batch *b, ares_world *world,
                     mini_batches *out)
{
    bool nothing = b->empty && !b->filled_from; /* a batch without a group is one, and empty */
    int64_t counted = 0;
    *out = (mini_batches){ .batch = b };
    int rc = size->rows ? cut_rows(size, b, world, out, &counted)
                        : cut_groups(size->count, b, world, out, &counted);
    out->counted = nothing ? 1 : (counted + size->count - 1) / size->count;
    return ares_world_share_error(world, rc);
}

void mini_batches_expect(const mini_batches *m, int64_t passes, int64_t max_token_len,
                         bool share_prompts)
{
    ares_arena arena = { 0 };
    int64_t n = 0;
    ares_micro_batch *plan = ares_arena_alloc(&arena, (size_t)(m->batch->rows + 1) * sizeof *plan);
    for (int64_t k = 0; k < m->n; k++)
        n += ares_pack_plan(m->batch, m->start[k], m->start[k + 1], max_token_len, share_prompts,
                            plan);
    ares_work_expect(ARES_WORK_MICRO_BATCHES, n * passes);
    ares_arena_fini(&arena);
}

void mini_batches_give_back(const mini_batches *m, ares_batch *b)
{
    const ares_batch *from = m->batch;
    if (!m->order) return;
    if (from->kl && !b->kl) ARES_PUT(b, kl);
    if (from->ratio) {
        ARES_PUT(b, ratio);
        ARES_PUT(b, clipped);
    }
    for (int64_t r = 0; r < from->rows; r++) {
        int64_t to = b->row_start[m->order[r]], at = from->row_start[r];
        size_t n = (size_t)(from->row_start[r + 1] - at);
        if (from->kl) memcpy(b->kl + to, from->kl + at, n * sizeof *b->kl);
        if (!from->ratio) continue;
        memcpy(b->ratio + to, from->ratio + at, n * sizeof *b->ratio);
        memcpy(b->clipped + to, from->clipped + at, n);
    }
    b->row_kl = ares_arena_alloc(&b->arena, (size_t)(from->n_row_kl + 1) * sizeof *b->row_kl);
    for (int64_t i = 0; i < from->n_row_kl; i++) {
        b->row_kl[i] = from->row_kl[i];
        b->row_kl[i].row = m->order[from->row_kl[i].row];
    }
    b->n_row_kl = from->n_row_kl;
    b->updates = from->updates;
}

void mini_batches_fini(mini_batches *m)
{
    if (m->order) ares_batch_fini(m->batch);
    *m = (mini_batches){ 0 };
}
