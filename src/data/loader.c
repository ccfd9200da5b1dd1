/* Order of rows: a shuffle keyed by (seed, epoch), so that the number of prompts drawn is the whole state. */
#include "ares/data.h"

int ares_loader_init(ares_loader *l, int64_t rows, int64_t batch, bool shuffle, uint64_t seed)
{
    if (rows < batch)
        return ares_fail(ARES_ECONFIG, "data: %lld rows are fewer than data.rollout_batch_size = %lld; lower it, or add rows", (long long)rows, (long long)batch);
    *l = (ares_loader){ .rows = rows, .batch = batch, .shuffle = shuffle, .seed = seed, .order_epoch = -1 };
    l->order = ares_malloc((size_t)rows * sizeof *l->order);
    return ARES_OK;
}

void ares_loader_fini(ares_loader *l)
{
    ares_free(l->order);
    *l = (ares_loader){ 0 };
}

/* Rows of an epoch that fill whole batches. */
static int64_t usable(const ares_loader *l) { return l->rows / l->batch * l->batch; }

int64_t ares_loader_epoch(const ares_loader *l) { return l->drawn / usable(l); }

static void order(ares_loader *l, int64_t epoch)
{
    for (int64_t i = 0; i < l->rows; i++) l->order[i] = i;
    if (l->shuffle) ares_rng_shuffle(ares_rng_sub(ares_rng_root(l->seed, ARES_RNG_SHUFFLE), (uint64_t)epoch, 0), l->order, l->rows);
    l->order_epoch = epoch;
}

int ares_loader_next(ares_loader *l, int64_t *row_ids, int64_t *first_draw)
{
    if (l->drawn < 0 || l->drawn % l->batch != 0)
        return ares_fail(ARES_ESTATE, "data: %lld prompts drawn are no whole batches of %lld; data.rollout_batch_size has changed since the checkpoint", (long long)l->drawn,
                         (long long)l->batch);
    int64_t epoch = ares_loader_epoch(l), at = l->drawn % usable(l);
    if (l->order_epoch != epoch) order(l, epoch);
    for (int64_t i = 0; i < l->batch; i++) row_ids[i] = l->order[at + i];
    *first_draw = l->drawn;
    l->drawn += l->batch;
    return ARES_OK;
}
