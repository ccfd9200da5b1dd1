/*
 * An update's columns on a card: copied there once, and what the host wants of a mini-batch copied
 * back in one wait. On the CPU the columns are the host's.
 */
#include <math.h>

#include "ares/algo_twin.h"
#include "roles/update.h"

/* What only a card has: rows as its losses read them, and their sums. */
static int open_rows(update *u)
{
    ares_batch *b = u->batch;
    columns *c = &u->actor->learner.columns;
    size_t rows = (size_t)b->rows + 1;
    uint8_t *right = ares_arena_calloc(&b->arena, rows, 1);
    for (int64_t r = 0; r < b->rows; r++) right[r] = ares_loss_right(&b->samples[r]);
    ares_card_sums *sums = ares_arena_calloc(&b->arena, 1, sizeof *sums);
    ares_loss_card *card = ares_arena_calloc(&b->arena, 1, sizeof *card);
    int64_t *start = columns_place(c, b->row_start, rows * sizeof *start);
    uint8_t *on = columns_place(c, right, rows);
    columns_in(c, start, b->row_start, rows * sizeof *start);
    columns_in(c, on, right, rows);
    *card = (ares_loss_card){ .row_start = start,
                              .right = on,
                              .sums = columns_place(c, sums, sizeof *sums) };
    u->card = card;
    return ARES_OK;
}

int update_card_open(update *u)
{
    learner *l = &u->actor->learner;
    columns *c = &l->columns;
    size_t n = (size_t)u->batch->tokens + 1, rows = (size_t)u->batch->rows + 1, bytes = 0;
    int count = 3;
#define COUNT(type, name) bytes += u->host.name ? n * sizeof(type) : 0, count++;
    UPDATE_COLUMNS(COUNT)
#undef COUNT
    bytes += rows * (sizeof(int64_t) + 1) + sizeof(ares_card_sums);
    ARES_TRY(columns_open(c, l->model->device, l->role, bytes, count));
#define PLACE(type, name) u->col.name = columns_place(c, u->host.name, n * sizeof(type));
    UPDATE_COLUMNS(PLACE)
#undef PLACE
    /* the others are written before they are read */
#define COPY(name) columns_in(c, u->col.name, u->host.name, (n - 1) * sizeof *u->host.name);
    COPY(old_log_prob)
    COPY(advantage)
    COPY(mask)
    if (u->host.ref_log_prob) COPY(ref_log_prob)
    if (u->host.kl_weight) COPY(kl_weight)
    if (u->host.rollout_weight) COPY(rollout_weight)
    if (u->host.seen_kl) COPY(seen_kl)
#undef COPY
    return columns_shared(c) ? ARES_OK : open_rows(u);
}

void update_card_begin(const update *u)
{
    ares_card_sums sums;
    if (!u->card) return;
    ares_card_sums_init(&sums);
    columns_in(&u->actor->learner.columns, u->card->sums, &sums, sizeof sums);
}

static column_part part_of(const update *u, float *host, const float *col, int64_t row, int64_t end)
{
    int64_t first = u->batch->row_start[row], last = u->batch->row_start[end];
    return (column_part){ host + first, col + first, (size_t)(last - first) * sizeof *host };
}

int update_log_probs(const update *u, int64_t row, int64_t end)
{
    learner *l = &u->actor->learner;
    const column_part part = part_of(u, u->host.log_prob, u->col.log_prob, row, end);
    columns_out(&l->columns, &part, 1);
    return l->model->device->k->sync(l->model->device);
}

/* The loss has met a number that it cannot compute with; the CPU's words need all its inputs. */
static int fault(update *u, int64_t row, int64_t end)
{
    const actor *a = u->actor;
    learner *l = &u->actor->learner;
    bool terms =
        (a->loss->flags & ARES_LOSS_PAIRS) || u->part == UPDATE_ENTROPY || u->part == UPDATE_KL;
    column_part part[2] = { part_of(u, u->host.entropy, u->col.entropy, row, end) };
    if (u->host.kl) part[1] = part_of(u, u->host.kl, u->col.kl, row, end);
    columns_out(&l->columns, part, u->host.kl ? 2 : 1);
    ARES_TRY(l->model->device->k->sync(l->model->device));
    const ares_loss_args args = update_loss_args(u, &u->host, row, end);
    const ares_kl_args kl = update_kl_args(u, &u->host, args.first);
    bool with = u->host.seen_kl != NULL;
    return ares_loss_fault(terms ? NULL : a->loss, &args, with ? &kl : NULL);
}

int update_card_end(update *u, int64_t row, int64_t end)
{
    learner *l = &u->actor->learner;
    ares_card_sums sums;
    if (!u->card) return ARES_OK;
    column_part part[3] = { { &sums, u->card->sums, sizeof sums },
                            part_of(u, u->host.log_prob, u->col.log_prob, row, end) };
    if (u->host.seen_kl) part[2] = part_of(u, u->host.seen_kl, u->col.seen_kl, row, end);
    columns_out(&l->columns, part, u->host.seen_kl ? 3 : 2);
    ARES_TRY(l->model->device->k->sync(l->model->device));
    if (sums.fault != UINT64_MAX) return fault(u, row, end);
    ares_card_sums_add(&sums, &u->sums);
    return ARES_OK;
}
