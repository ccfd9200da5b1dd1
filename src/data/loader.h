#ifndef ARES_DATA_LOADER_H
#define ARES_DATA_LOADER_H

#include "ares/data_source.h"

/*
 * The order in which rows of a data set are drawn. The state to save is the number of prompts
 * drawn, and which rows are skipped since which epoch (docs/data.md#order-and-epochs). (loader.c)
 */
typedef struct loader {
    int64_t rows;  /* of the data set */
    int64_t batch; /* prompts per call of loader_next */
    bool shuffle;
    uint64_t seed;
    const char *option; /* that batch comes from, for messages */
    int64_t drawn;      /* prompts drawn so far in the run */
    /* [rows]: the last epoch that the row is part of; LOADER_KEPT: part of every epoch */
    int64_t *skipped;
    int64_t n_skipped;
    int64_t *order; /* of the rows in epoch order_epoch; -1: none made yet */
    int64_t order_epoch;
} loader;
#define LOADER_KEPT INT64_MAX
/* Fewer rows than a batch are an error. */
int loader_init(loader *l, int64_t rows, const ares_order *order);
void loader_fini(loader *l);
/*
 * The next batch: row ids [batch]; *first_draw is the draw number of the first. Rows at the end of
 * an epoch that fill no whole batch are left out.
 */
int loader_next(loader *l, int64_t *row_ids, int64_t *first_draw);
/* The epoch of the next batch. */
int64_t loader_epoch(const loader *l);
/* Leaves the row out from the next epoch on; never undone. */
void loader_skip(loader *l, int64_t row);
/* Of a saved state: so many prompts are drawn and no row is skipped; then skipped[row] = epoch. */
void loader_reset(loader *l, int64_t drawn);
void loader_restore(loader *l, int64_t row, int64_t epoch);
#endif
