/*
 * The losses on a device: a card's or the CPU's functions, and what a card's have added up. After a
 * fault on a card the CPU computes the tokens too, and names the place.
 */
#include "loss/on_device.h"

#include <assert.h>
#include <math.h>

#include "loss/loss.h"

int ares_loss_compute(ares_device *d, const ares_loss *loss, const ares_loss_args *a,
                      const ares_kl_args *k)
{
    if (d->losses) return d->losses->loss(d, loss, a, k);
    ARES_TRY(loss->compute(a));
    return loss_terms(a, k);
}

int ares_loss_terms(ares_device *d, const ares_loss_args *a, const ares_kl_args *k)
{
    return d->losses ? d->losses->loss(d, NULL, a, k) : loss_terms(a, k);
}

/* The critic's loss where the critic computes. */
int ares_value_loss_on(ares_device *d, const ares_value_args *a)
{
    return d->losses ? d->losses->value(d, a) : value_loss(a);
}

/* ---------------------------------------------------------------- a card's sums */

void ares_card_sums_init(ares_card_sums *s)
{
    static_assert(SUM_WIDTH <= ARES_COUNT(s->sum), "ares_card_sums has room for every sum");
    *s = (ares_card_sums){ .fault = UINT64_MAX };
    s->sum[SUM_MIN] = INFINITY;
    s->sum[SUM_MAX] = -INFINITY;
}

void ares_card_sums_add(const ares_card_sums *s, ares_loss_sums *to)
{
#define ADD(name) to->name += s->sum[SUM_##name];
    ARES_LOSS_PASS_SUMS(ADD)
#undef ADD
    to->ratio_min = ARES_MIN(to->ratio_min, s->sum[SUM_MIN]);
    to->ratio_max = ARES_MAX(to->ratio_max, s->sum[SUM_MAX]);
    for (int i = 0; i < ARES_LOSS_BINS; i++) to->bins[i] += (double)s->bins[i];
}

void ares_card_value_sums_add(const ares_card_sums *s, ares_value_sums *to)
{
    int i = 0;
#define ADD(name) to->name += s->sum[i++];
    ARES_VALUE_SUMS(ADD)
#undef ADD
}

/* The card found a fault that the CPU does not, because their exp differ in the last bit. */
static int unnamed(const char *what)
{
    return ares_fail(ARES_ENUMERIC, "loss: %s: the device met a number that is not finite", what);
}

int ares_loss_fault(const ares_loss *loss, const ares_loss_args *host, const ares_kl_args *k)
{
    ares_loss_args a = *host;
    ares_loss_sums sums;
    ares_kl_args kl = k ? *k : (ares_kl_args){ 0 };
    /* the CPU's pass over copies: it finds the place, and what it adds up is thrown away */
    float *d = ares_calloc((size_t)a.n + 1, sizeof *d);
    ares_loss_sums_init(&sums);
    a.sums = &sums, a.d_log_prob = d, a.d_entropy = NULL;
    kl.out = kl.d_full = NULL;
    int rc = loss ? loss_check(&a, loss->name) : ARES_OK;
    if (rc == ARES_OK) rc = loss_terms(&a, k ? &kl : NULL);
    ares_free(d);
    return rc == ARES_OK ? unnamed(loss ? loss->name : "terms") : rc;
}

int ares_value_fault(const ares_value_args *host)
{
    ares_value_args a = *host;
    ares_value_sums sums = { 0 };
    float *d = ares_calloc((size_t)a.n + 1, sizeof *d);
    a.sums = &sums, a.d_value = d;
    int rc = value_loss(&a);
    ares_free(d);
    return rc == ARES_OK ? unnamed("value") : rc;
}
