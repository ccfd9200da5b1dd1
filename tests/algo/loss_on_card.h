/*
 * Losses on a device, from arrays of the host: copies them to a card, launches, copies back what
 * was written, and names a fault, as an update does. On the CPU nothing is copied.
 */
#ifndef ARES_TEST_LOSS_ON_CARD_H
#define ARES_TEST_LOSS_ON_CARD_H

#include "ares/algo_loss.h"
#include "ares/kernels.h"

/* One array on the device; dirty: it is copied back and released by on_card_close. */
typedef struct on_card_array {
    void *host, *device;
    size_t bytes;
    bool dirty;
} on_card_array;
typedef struct on_card {
    ares_device *d;
    on_card_array array[24];
    int n;
} on_card;

static inline void *on_card_up(on_card *c, const void *host, size_t bytes, bool dirty)
{
    if (!host) return NULL;
    ARES_ASSERT(c->n < ARES_COUNT(c->array));
    on_card_array *a = &c->array[c->n++];
    *a = (on_card_array){ .host = (void *)(uintptr_t)host, .bytes = bytes, .dirty = dirty };
    a->device = c->d->k->alloc(c->d, bytes + 1);
    ARES_ASSERT(a->device);
    c->d->k->copy_in(c->d, a->device, host, bytes);
    return a->device;
}
/* Waits, and copies back what was written. */
static inline int on_card_close(on_card *c)
{
    int rc = c->d->k->sync(c->d);
    for (int i = 0; i < c->n; i++) {
        on_card_array *a = &c->array[i];
        if (rc == ARES_OK && a->dirty) c->d->k->copy_out(c->d, a->host, a->device, a->bytes);
        c->d->k->release(c->d, a->device, a->bytes + 1);
    }
    c->n = 0;
    return rc;
}

static inline ares_kl_args on_card_kl(on_card *c, const ares_kl_args *k, int64_t n)
{
    size_t floats = (size_t)n * sizeof(float);
    ares_kl_args out = *k;
    out.ref_log_prob = on_card_up(c, k->ref_log_prob, floats, false);
    out.weight = on_card_up(c, k->weight, floats, false);
    out.full = on_card_up(c, k->full, floats, false);
    out.out = on_card_up(c, k->out, floats, true);
    out.d_full = on_card_up(c, k->d_full, floats, true);
    return out;
}

/* A loss on the host, its choice of tokens first, as an update does. kl may be NULL. */
static inline int on_host_loss(const ares_loss *loss, const ares_loss_args *a,
                               const ares_kl_args *kl)
{
    uint8_t *chosen = ares_calloc((size_t)a->n + 1, 1);
    ares_device cpu = { .index = -1 };
    ares_loss_args on = *a;
    bool any;
    int rc = loss->choose ? loss->choose(a, chosen, &any) : ARES_OK;
    if (loss->choose) on.chosen = chosen;
    if (rc == ARES_OK) rc = ares_loss_compute(&cpu, loss, &on, kl);
    ares_free(chosen);
    return rc;
}

/* loss NULL: the terms alone */
static inline int on_card_loss(ares_device *d, const ares_loss *loss, const ares_loss_args *a,
                               const ares_kl_args *kl)
{
    if (!d->losses) return loss ? on_host_loss(loss, a, kl) : ares_loss_terms(d, a, kl);
    on_card c = { .d = d };
    size_t floats = (size_t)a->n * sizeof(float), rows = (size_t)(a->row_start ? a->end : 0);
    uint8_t *chosen = ares_calloc((size_t)a->n + 1, 1), *right = ares_calloc(rows + 1, 1);
    bool any;
    int rc = loss && loss->choose ? loss->choose(a, chosen, &any) : ARES_OK;
    ares_card_sums sums;
    ares_card_sums_init(&sums);
    for (size_t r = 0; a->samples && r < rows; r++) right[r] = ares_loss_right(&a->samples[r]);
    ares_loss_card card = { .row_start =
                                on_card_up(&c, a->row_start, (rows + 1) * sizeof(int64_t), false),
                            .right = on_card_up(&c, a->samples ? right : NULL, rows, false),
                            .sums = on_card_up(&c, &sums, sizeof sums, true) };
    ares_loss_args on = *a;
    on.card = &card;
    on.log_prob = on_card_up(&c, a->log_prob, floats, false);
    on.old_log_prob = on_card_up(&c, a->old_log_prob, floats, false);
    on.advantage = on_card_up(&c, a->advantage, floats, false);
    on.weight = on_card_up(&c, a->weight, floats, false);
    on.rollout_weight = on_card_up(&c, a->rollout_weight, floats, false);
    on.mask = on_card_up(&c, a->mask, (size_t)a->n, false);
    on.entropy = on_card_up(&c, a->entropy, floats, false);
    on.chosen = on_card_up(&c, loss && loss->choose ? chosen : NULL, (size_t)a->n, false);
    on.d_log_prob = on_card_up(&c, a->d_log_prob, floats, true);
    on.d_entropy = on_card_up(&c, a->d_entropy, floats, true);
    on.ratio = on_card_up(&c, a->ratio, floats, true);
    on.clipped = on_card_up(&c, a->clipped, (size_t)a->n, true);
    ares_kl_args k = kl ? on_card_kl(&c, kl, a->n) : (ares_kl_args){ 0 };
    if (rc == ARES_OK)
        rc = loss ? ares_loss_compute(d, loss, &on, kl ? &k : NULL)
                  : ares_loss_terms(d, &on, kl ? &k : NULL);
    int closed = on_card_close(&c);
    if (rc == ARES_OK) rc = closed;
    if (rc == ARES_OK && sums.fault != UINT64_MAX) rc = ares_loss_fault(loss, a, kl);
    if (rc == ARES_OK) ares_card_sums_add(&sums, a->sums);
    ares_free(chosen), ares_free(right);
    return rc;
}

static inline int on_card_value_loss(ares_device *d, const ares_value_args *a)
{
    if (!d->losses) return ares_value_loss_on(d, a);
    on_card c = { .d = d };
    size_t floats = (size_t)a->n * sizeof(float);
    ares_card_sums sums;
    ares_card_sums_init(&sums);
    ares_value_args on = *a;
    on.value = on_card_up(&c, a->value, floats, false);
    on.old_value = on_card_up(&c, a->old_value, floats, false);
    on.target = on_card_up(&c, a->target, floats, false);
    on.weight = on_card_up(&c, a->weight, floats, false);
    on.mask = on_card_up(&c, a->mask, (size_t)a->n, false);
    on.d_value = on_card_up(&c, a->d_value, floats, true);
    on.card = on_card_up(&c, &sums, sizeof sums, true);
    int rc = ares_value_loss_on(d, &on), closed = on_card_close(&c);
    if (rc == ARES_OK) rc = closed;
    if (rc == ARES_OK && sums.fault != UINT64_MAX) rc = ares_value_fault(a);
    if (rc == ARES_OK) ares_card_value_sums_add(&sums, a->sums);
    return rc;
}
#endif
