/* Products by mm and addmm, and look-ups of rows. */
#include "aten.h"

static void product(const ares_linear_args *a)
{
    int64_t n = a->w->n;
    at_tensor x = aten_rows(a->x, a->m, a->w->k, a->ldx), w = at_transpose(aten_weight(a->w), 0, 1),
              y = aten_rows(a->y, a->m, n, a->ldy), bias = a->bias ? aten_vector(a->bias, n) : NULL;
    if (a->residual && a->residual == a->y) { /* it is read before y is written */
        ARES_ASSERT(a->ldr == a->ldy);
        at_addmm_out(y, y, x, w);
        if (a->bias) at_add_(y, bias);
        return;
    }
    if (a->bias) at_addmm_out(y, bias, x, w);
    else at_mm_out(y, x, w);
    if (a->residual) at_add_(y, aten_rows(a->residual, a->m, n, a->ldr));
}

void aten_linear(ares_device *d, const ares_linear_args *args, int n)
{
    at_scope *s = aten_enter(d, "linear");
    if (!s) return;
    for (int i = 0; i < n; i++)
        if (args[i].m > 0) product(&args[i]);
    aten_leave(d, s);
}

void aten_linear_backward(ares_device *d, const ares_linear_backward_args *a)
{
    at_scope *s = a->m > 0 ? aten_enter(d, "linear_backward") : NULL;
    if (!s) return;
    at_tensor dy = aten_rows(a->dy, a->m, a->w->n, a->lddy);
    if (a->dx) {
        at_tensor dx = aten_rows(a->dx, a->m, a->w->k, a->lddx), w = aten_weight(a->w);
        if (a->accumulate) at_addmm_out(dx, dx, dy, w);
        else at_mm_out(dx, dy, w);
    }
    if (a->dw) {
        ARES_ASSERT(a->dw->dtype == ARES_F32);
        at_tensor dw = aten_matrix(a->dw), x = aten_rows(a->x, a->m, a->w->k, a->ldx);
        at_addmm_out(dw, dw, at_transpose(dy, 0, 1), x);
    }
    if (a->dbias) at_add_(aten_vector(a->dbias, a->w->n), at_sum_dim(dy, 0, false));
    aten_leave(d, s);
}

void aten_embedding(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y,
                    int64_t ldy)
{
    at_scope *s = n > 0 ? aten_enter(d, "embedding") : NULL;
    if (!s) return;
    at_copy_(aten_rows(y, n, e->k, ldy), at_index_select(aten_matrix(e), 0, aten_ids(ids, n)));
    aten_leave(d, s);
}

void aten_embedding_backward(ares_device *d, const ares_matrix *de, const int32_t *ids, int32_t n,
                             const void *dy, int64_t lddy)
{
    at_scope *s = n > 0 ? aten_enter(d, "embedding_backward") : NULL;
    if (!s) return;
    ARES_ASSERT(de->dtype == ARES_F32);
    at_index_add_(aten_matrix(de), 0, aten_ids(ids, n), aten_rows(dy, n, de->k, lddy));
    aten_leave(d, s);
}
