/*
 * Rows are numbered over all ranks as for mini-batches, and the choice is one of numbers, so that
 * every rank makes the same one and no rank count changes it. A copy stands directly after its row,
 * on the same rank and in the same group: nothing is sent, and places still ascend.
 */
#include "collect/adjust_batch.h"

#include <string.h>

#include "ares/algo_filter.h"
#include "roles/mini_batches.h"

/* Answers of a group, or those that count alone; turns of an episode, which are adjacent, are one.
 */
static int64_t answers_of(const ares_batch *b, int64_t group, bool all)
{
    int64_t n = 0, episode = 0;
    for (int64_t r = b->group_start[group]; r < b->group_start[group + 1]; r++) {
        if (!all && !ares_batch_row_counts(b, r)) continue;
        n += !episode || b->samples[r].episode != episode;
        episode = b->samples[r].episode;
    }
    return n;
}

/*
 * Rows that train nothing leave the batch, and with an estimator that compares answers also those
 * of an answer that has no other left; *total: rows that are left, of all ranks.
 */
static int drop_idle(const ares_train_config *cfg, ares_world *world, ares_batch *b, int64_t *total)
{
    const ares_adv *adv = ares_adv_find(cfg->algorithm.adv_estimator);
    bool compares = adv && (adv->needs & ARES_NEEDS_GROUPS);
    int64_t n = 0, *order = ares_arena_alloc(&b->arena, ((size_t)b->rows + 1) * sizeof *order);
    for (int64_t g = 0; g < b->groups; g++) {
        if (compares && answers_of(b, g, false) < ARES_MIN(2, answers_of(b, g, true))) continue;
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++)
            if (ares_batch_row_counts(b, r)) order[n++] = r;
    }
    *total = n;
    ARES_TRY(ares_world_sum_i64(world, total, 1));
    /* a step in which nothing is trained keeps its rows */
    if (*total) ares_batch_take(b, order, n);
    return ARES_OK;
}

/* times [total]: how often each row is in a batch of `target` rows; ids: scratch of the larger. */
static void choose_rows(ares_rng_key key, int64_t total, int64_t target, int64_t *times,
                        int64_t *ids)
{
    int64_t change = target > total ? target - total : total - target;
    for (int64_t i = 0; i < total; i++) {
        ids[i] = i;
        times[i] = 1;
    }
    if (change <= total) ares_rng_shuffle(key, ids, total);
    else
        for (int64_t i = 0; i < change; i++)
            ids[i] = (int64_t)ares_rng_below(key, (uint64_t)i, (uint64_t)total);
    for (int64_t i = 0; i < change; i++) times[ids[i]] += target > total ? 1 : -1;
}

/* The batch of total rows over all ranks becomes one of target rows. */
static int take_rows(const ares_train_config *cfg, ares_world *world, int64_t step, ares_batch *b,
                     int64_t total, int64_t target)
{
    ares_rng_key key = ares_rng_root((uint64_t)cfg->rollout.seed, ARES_RNG_ADJUST);
    int64_t *times = ares_arena_alloc(&b->arena, ((size_t)total + 1) * sizeof *times),
            *ids = ares_arena_alloc(&b->arena, (size_t)(ARES_MAX(total, target) + 1) * sizeof *ids),
            *first = ares_arena_alloc(&b->arena, ((size_t)b->groups + 1) * sizeof *first), n = 0,
            numbered;
    ARES_TRY(mini_batches_number_rows(b, world, first, &numbered));
    ARES_ASSERT(numbered == total);
    choose_rows(ares_rng_sub(key, (uint64_t)step, 0), total, target, times, ids);
    int64_t *order =
        ares_arena_alloc(&b->arena, (size_t)(ARES_MAX(total, target) + 1) * sizeof *order);
    for (int64_t g = 0; g < b->groups; g++)
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++)
            for (int64_t k = times[first[g] + r - b->group_start[g]]; k > 0; k--) order[n++] = r;
    ares_batch_take(b, order, n);
    return ARES_OK;
}

/* The rows of a mini-batch, as the actor and the critic have them. */
static int64_t divisor_of(const ares_train_config *cfg)
{
    int64_t actor = ares_batch_adjust_divisor(cfg->data.rollout_batch_size,
                                              mini_batch_size_of_actor(cfg).count, 1);
    return ares_batch_adjust_divisor(actor, mini_batch_size_of_critic(cfg).count, 1);
}

int adjust_batch(const ares_train_config *cfg, ares_world *world, int64_t step, ares_batch *b,
                 ares_metrics *m)
{
    mini_batch_size size = mini_batch_size_of_actor(cfg);
    const char *mode = cfg->filter.batch_adjust;
    int64_t total, rows;
    if (strcmp(mode, "none") == 0) return ARES_OK;
    ARES_TRY(drop_idle(cfg, world, b, &total));
    rows = ares_batch_adjust_target(strcmp(mode, "copy") == 0, total, divisor_of(cfg));
    /* fewer rows than a mini-batch, to be deleted: they stay, masked, and train nothing */
    if (total && !rows) memset(b->response_mask, 0, (size_t)b->tokens);
    else if (rows != total) ARES_TRY(take_rows(cfg, world, step, b, total, rows));
    ares_metrics_set(m, "train/batch_size", (double)rows);
    ares_metrics_set(m, "train/num_mini_batches", (double)((rows + size.count - 1) / size.count));
    return ARES_OK;
}
