/*
 * Order of rows: a shuffle keyed by (seed, epoch). Its state is the number of prompts drawn and,
 * per skipped row, the last epoch that the row is part of. A skip takes effect with the next epoch,
 * so the rows of an epoch are known when it begins.
 */
#include "loader.h"

int loader_init(loader *l, int64_t rows, const ares_order *order)
{
    *l = (loader){ .rows = rows,
                   .batch = order->draw,
                   .shuffle = order->shuffle,
                   .seed = order->seed,
                   .option = order->option ? order->option : "data.rollout_batch_size" };
    if (rows < l->batch)
        return ares_fail(ARES_ECONFIG,
                         "data: %lld rows are fewer than %s = %lld; lower it, or add rows",
                         (long long)rows, l->option, (long long)l->batch);
    l->order = ares_malloc((size_t)rows * sizeof *l->order);
    l->skipped = ares_malloc((size_t)rows * sizeof *l->skipped);
    loader_reset(l, 0);
    return ARES_OK;
}

void loader_fini(loader *l)
{
    ares_free(l->order);
    ares_free(l->skipped);
    *l = (loader){ 0 };
}

static bool in_epoch(const loader *l, int64_t row, int64_t epoch)
{
    return l->skipped[row] >= epoch;
}

/* Rows of an epoch that fill whole batches. */
static int64_t usable(const loader *l, int64_t epoch)
{
    int64_t rows = l->n_skipped ? 0 : l->rows;
    for (int64_t i = 0; i < l->rows && l->n_skipped; i++) rows += in_epoch(l, i, epoch);
    return rows / l->batch * l->batch;
}

/* The last of the epochs from this one on that have the same rows. */
static int64_t last_alike(const loader *l, int64_t epoch)
{
    int64_t last = LOADER_KEPT;
    for (int64_t i = 0; i < l->rows && l->n_skipped; i++)
        if (in_epoch(l, i, epoch)) last = ARES_MIN(last, l->skipped[i]);
    return last;
}

/*
 * The epoch of draw number `drawn`; *begins: the draw that the epoch begins with. The search ends
 * at an epoch whose rows fill no batch. It takes epochs with the same rows in one step: the counts
 * of a state that was read from a file may be anything.
 */
static int64_t epoch_of(const loader *l, int64_t drawn, int64_t *begins)
{
    int64_t epoch = 0, n;
    *begins = 0;
    while ((n = usable(l, epoch)) > 0) {
        int64_t last = last_alike(l, epoch), passed = (drawn - *begins) / n;
        if (passed <= last - epoch) {
            *begins += passed * n;
            return epoch + passed;
        }
        *begins += (last - epoch + 1) * n;
        epoch = last + 1;
    }
    return epoch;
}

int64_t loader_epoch(const loader *l)
{
    int64_t begins;
    return epoch_of(l, l->drawn, &begins);
}

void loader_skip(loader *l, int64_t row)
{
    ARES_ASSERT(row >= 0 && row < l->rows);
    if (l->skipped[row] != LOADER_KEPT) return;
    int64_t begins;
    /* the current epoch: that of the last draw */
    l->skipped[row] = epoch_of(l, ARES_MAX(l->drawn - 1, 0), &begins);
    l->n_skipped++;
}

void loader_reset(loader *l, int64_t drawn)
{
    for (int64_t i = 0; i < l->rows; i++) l->skipped[i] = LOADER_KEPT;
    l->n_skipped = 0;
    l->drawn = drawn;
    l->order_epoch = -1;
}

void loader_restore(loader *l, int64_t row, int64_t epoch)
{
    ARES_ASSERT(row >= 0 && row < l->rows);
    l->n_skipped += l->skipped[row] == LOADER_KEPT;
    l->skipped[row] = epoch;
}

static void order(loader *l, int64_t epoch)
{
    int64_t n = 0;
    for (int64_t i = 0; i < l->rows; i++)
        if (in_epoch(l, i, epoch)) l->order[n++] = i;
    if (l->shuffle)
        ares_rng_shuffle(ares_rng_sub(ares_rng_root(l->seed, ARES_RNG_SHUFFLE), (uint64_t)epoch, 0),
                         l->order, n);
    l->order_epoch = epoch;
}

int loader_next(loader *l, int64_t *row_ids, int64_t *first_draw)
{
    int64_t begins, epoch = l->drawn < 0 ? 0 : epoch_of(l, l->drawn, &begins);
    if (l->drawn < 0 || (l->drawn - begins) % l->batch != 0)
        return ares_fail(ARES_ESTATE,
                         "data: %lld prompts drawn are not a whole number of draws of %lld: %s has "
                         "changed since the checkpoint; set its old value",
                         (long long)l->drawn, (long long)l->batch, l->option);
    if (usable(l, epoch) == 0)
        return ares_fail(ARES_ESTATE,
                         "data: %lld of %lld rows are skipped, and the rest fills no batch of "
                         "%lld; end the run, or add rows",
                         (long long)l->n_skipped, (long long)l->rows, (long long)l->batch);
    if (l->order_epoch != epoch) order(l, epoch);
    for (int64_t i = 0; i < l->batch; i++) row_ids[i] = l->order[l->drawn - begins + i];
    *first_draw = l->drawn;
    l->drawn += l->batch;
    return ARES_OK;
}
