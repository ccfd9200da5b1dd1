/*
 * The vocabulary head in chunks of rows, whose logits lie in scratch: log-softmax in place, from it
 * log-probs and entropies, then in place the derivatives. head_fused computes a chunk's logits
 * once, head_backward those of head again.
 *
 * With z the log-softmax, p = exp(z) and H the entropy, the gradient by the logits is
 * -p (c + ce (z + H)), plus c at the target, plus ck p (z - log q - KL) with a reference q, all
 * times inv_temperature.
 */
#include "aten.h"

#include <string.h>

/* Logits of a chunk at most: 64 MiB. But never less than a row. */
static const int64_t LOGITS = 1 << 24;

typedef struct chunk {
    ares_device *d;
    const ares_head_args *a;
    int64_t row, rows;
    at_tensor target; /* [rows][1] */
    at_tensor z, p;   /* [rows][vocab]: log-probs; the second is scratch for probabilities */
    at_tensor r;      /* log-probs of the reference; NULL: none */
} chunk;

static int64_t chunk_rows(const ares_head_args *a)
{
    return ARES_MIN((int64_t)a->rows, ARES_MAX(1, LOGITS / a->vocab));
}

/* The weight's rows of tokens, and of a gradient */
static at_tensor of_vocab(const ares_head_args *a, at_tensor w)
{
    return at_narrow(w, 0, 0, a->vocab);
}

/* A column of host memory, one number per row of the chunk */
static at_tensor column(const chunk *c, const float *x)
{
    return aten_rows(c->d, x + c->row, c->rows, 1, 1);
}

/* Rows of the chunk of an array of activations */
static at_tensor acts(const chunk *c, const void *x, int64_t columns, int64_t ld)
{
    return aten_acts(c->d, aten_at(c->d, x, c->row * ld), c->rows, columns, ld);
}

static at_tensor log_probs(const chunk *c, aten_slot slot, const void *x, int64_t ldx,
                           const ares_matrix *w, float *lse)
{
    const ares_head_args *a = c->a;
    at_tensor z = aten_rows(c->d, aten_scratch(c->d, slot, chunk_rows(a) * a->vocab), c->rows,
                            a->vocab, a->vocab);
    at_mm_out(z, acts(c, x, w->k, ldx), at_transpose(of_vocab(a, aten_matrix(c->d, w)), 0, 1));
    if (a->inv_temperature != 1.0f) at_mul_s_(z, a->inv_temperature);
    at_tensor before = lse ? at_gather(z, 1, c->target) : NULL;
    at_log_softmax_out(z, z, 1);
    if (lse) at_copy_(column(c, lse), at_sub(before, at_gather(z, 1, c->target)));
    return z;
}

static chunk chunk_of(ares_device *d, const ares_head_args *a, int64_t row, float *lse,
                      float *ref_lse)
{
    chunk c = { .d = d, .a = a, .row = row, .rows = ARES_MIN(chunk_rows(a), a->rows - row) };
    c.target = at_reshape(aten_ids(d, a->target + row, c.rows), AT_DIMS(c.rows, 1));
    c.z = log_probs(&c, ATEN_LOGITS, a->x, a->ldx, a->w, lse);
    if (a->ref_x) c.r = log_probs(&c, ATEN_REFERENCE, a->ref_x, a->ld_ref, a->ref_w, ref_lse);
    c.p = aten_rows(d, aten_scratch(d, ATEN_PROBABILITIES, chunk_rows(a) * a->vocab), c.rows,
                    a->vocab, a->vocab);
    return c;
}

static void statistics(const chunk *c)
{
    const ares_head_args *a = c->a;
    at_copy_(column(c, a->log_prob), at_gather(c->z, 1, c->target));
    at_mul_(at_exp_out(c->p, c->z), c->z);
    at_copy_(column(c, a->entropy), at_neg(at_sum_dim(c->p, 1, true)));
    if (!c->r) return;
    at_exp_out(c->p, c->z);
    at_mul_(c->p, at_sub(c->z, c->r));
    /* only rounding makes it negative */
    at_copy_(column(c, a->kl), at_clamp(at_sum_dim(c->p, 1, true), 0, 1e30));
}

/* c, ce: of the chunk's first row on; ce may be NULL. z becomes the gradient by the logits. */
static void backward(const chunk *k, const float *c, const float *ce)
{
    const ares_head_args *a = k->a;
    at_tensor of_target = aten_rows(k->d, c, k->rows, 1, 1);
    at_exp_out(k->p, k->z);
    if (k->r) /* - ck (z - log q - KL) */
        at_mul_(at_add_(at_sub_(k->r, k->z), column(k, a->kl)), column(k, a->c_kl));
    if (ce) at_mul_(at_add_(k->z, column(k, a->entropy)), aten_rows(k->d, ce, k->rows, 1, 1));
    else at_mul_s_(k->z, 0);
    at_add_(k->z, of_target);
    if (k->r) at_add_(k->z, k->r);
    at_mul_s_(at_mul_(k->z, k->p), -1);
    at_scatter_add_(k->z, 1, k->target, of_target);
    if (a->inv_temperature != 1.0f) at_mul_s_(k->z, a->inv_temperature);
    if (a->dx)
        at_mm_out(acts(k, a->dx, a->w->k, a->lddx), k->z, of_vocab(a, aten_matrix(k->d, a->w)));
    if (!a->dw) return;
    at_tensor dw = of_vocab(a, aten_matrix(k->d, a->dw));
    at_addmm_out(dw, dw, at_transpose(k->z, 0, 1), acts(k, a->x, a->w->k, a->ldx));
}

static void check(const ares_head_args *a)
{
    ARES_ASSERT(!a->parts);
    ARES_ASSERT(a->vocab <= a->w->n && (!a->ref_x || a->vocab <= a->ref_w->n));
    for (int32_t r = 0; r < a->rows; r++) ARES_ASSERT(a->target[r] >= 0 && a->target[r] < a->vocab);
}

void aten_head(ares_device *d, const ares_head_args *a)
{
    check(a);
    for (int64_t row = 0; row < a->rows; row += chunk_rows(a)) {
        at_scope *s = aten_enter(d, "head");
        if (!s) return;
        chunk c = chunk_of(d, a, row, a->lse, a->ref_lse);
        statistics(&c);
        aten_leave(d, s);
    }
}

void aten_head_backward(ares_device *d, const ares_head_args *a)
{
    check(a);
    for (int64_t row = 0; row < a->rows; row += chunk_rows(a)) {
        at_scope *s = aten_enter(d, "head_backward");
        if (!s) return;
        chunk c = chunk_of(d, a, row, NULL, NULL);
        backward(&c, a->c_log_prob + row, a->c_entropy ? a->c_entropy + row : NULL);
        aten_leave(d, s);
    }
}

void aten_head_fused(ares_device *d, const ares_head_args *a, ares_head_loss_fn *loss, void *ctx)
{
    check(a);
    ARES_ASSERT(!a->ref_x);
    if (a->rows == 0) return;
    size_t most = (size_t)chunk_rows(a);
    float *of_log_prob = ares_calloc(2 * most, sizeof *of_log_prob), *of_entropy;
    for (int64_t row = 0; row < a->rows; row += (int64_t)most) {
        at_scope *s = aten_enter(d, "head_fused");
        if (!s) break;
        chunk c = chunk_of(d, a, row, a->lse, NULL);
        statistics(&c);
        if (!at_scope_failed()) { /* otherwise there are no numbers for the loss */
            memset(of_log_prob, 0, 2 * most * sizeof *of_log_prob);
            of_entropy = of_log_prob + most;
            loss(ctx, (int32_t)row, (int32_t)c.rows, a->log_prob + row, a->entropy + row,
                 of_log_prob, of_entropy);
            backward(&c, of_log_prob, of_entropy);
        }
        aten_leave(d, s);
    }
    ares_free(of_log_prob);
}
