/* Products by mm and addmm, and look-ups of rows. */
#include "aten.h"

/* The product of w with a's rows into a->y [m][w->n]. */
static void product(const ares_device *d, const ares_linear_args *a, const ares_matrix *w)
{
    int64_t n = w->n;
    at_tensor x = aten_acts(d, a->x, a->m, w->k, a->ldx),
              turned = at_transpose(aten_matrix(d, w), 0, 1),
              y = aten_acts(d, a->y, a->m, n, a->ldy),
              bias = a->bias ? aten_acts(d, a->bias, 1, n, n) : NULL;
    if (a->residual && a->residual == a->y) { /* it is read before y is written */
        ARES_ASSERT(a->ldr == a->ldy);
        at_addmm_out(y, y, x, turned);
        if (a->bias) at_add_(y, bias);
        return;
    }
    if (a->bias) at_addmm_out(y, at_reshape(bias, AT_DIMS(n)), x, turned);
    else at_mm_out(y, x, turned);
    if (a->residual) at_add_(y, aten_acts(d, a->residual, a->m, n, a->ldr));
}

static bool follows(const void *next, const void *x, int64_t bytes)
{
    return (const char *)next == (const char *)x + bytes;
}

/* Whether b multiplies the same rows as a, and its weight, bias and result follow a's. */
static bool goes_on(const ares_device *d, const ares_linear_args *a, const ares_linear_args *b)
{
    const ares_matrix *v = a->w, *w = b->w;
    int64_t act = (int64_t)ares_dtype_bytes(d->k->act),
            of_w = (int64_t)ares_dtype_bytes(v->dtype) * v->k;
    return b->m == a->m && b->x == a->x && b->ldx == a->ldx && b->ldy == a->ldy && w->k == v->k &&
           w->dtype == v->dtype && follows(w->data, v->data, v->n * of_w) &&
           follows(b->y, a->y, v->n * act) && !a->residual && !b->residual &&
           (a->bias ? follows(b->bias, a->bias, v->n * act) : !b->bias);
}

void aten_linear(ares_device *d, const ares_linear_args *args, int n)
{
    at_scope *s = aten_enter(d, "linear");
    if (!s) return;
    for (int i = 0, next; i < n; i = next) { /* q, k and v are one product; gate and up another */
        ares_matrix w = *args[i].w;
        for (next = i + 1; next < n && goes_on(d, &args[next - 1], &args[next]); next++)
            w.n += args[next].w->n;
        if (args[i].m > 0) product(d, &args[i], &w);
    }
    aten_leave(d, s);
}

void aten_linear_backward(ares_device *d, const ares_linear_backward_args *a)
{
    at_scope *s = a->m > 0 ? aten_enter(d, "linear_backward") : NULL;
    if (!s) return;
    int64_t n = a->w->n, k = a->w->k;
    at_tensor dy = aten_acts(d, a->dy, a->m, n, a->lddy);
    if (a->dx) {
        at_tensor dx = aten_acts(d, a->dx, a->m, k, a->lddx), w = aten_matrix(d, a->w);
        if (a->accumulate) at_addmm_out(dx, dx, dy, w);
        else at_mm_out(dx, dy, w);
    }
    if (a->dw) {
        ARES_ASSERT(a->dw->dtype == ARES_F32);
        at_tensor dw = aten_matrix(d, a->dw);
        at_addmm_out(dw, dw, at_transpose(dy, 0, 1), aten_acts(d, a->x, a->m, k, a->ldx));
    }
    if (a->dbias) {
        at_tensor sum = at_zeros_beside(dy, AT_F32, AT_DIMS(n));
        at_add_(aten_vector(d, a->dbias, n), at_sum_dim_out(sum, dy, 0));
    }
    aten_leave(d, s);
}

void aten_embedding(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y,
                    int64_t ldy)
{
    at_scope *s = n > 0 ? aten_enter(d, "embedding") : NULL;
    if (!s) return;
    at_copy_(aten_acts(d, y, n, e->k, ldy),
             at_index_select(aten_matrix(d, e), 0, aten_ids(d, ids, n)));
    aten_leave(d, s);
}

void aten_embedding_backward(ares_device *d, const ares_matrix *de, const int32_t *ids, int32_t n,
                             const void *dy, int64_t lddy)
{
    at_scope *s = n > 0 ? aten_enter(d, "embedding_backward") : NULL;
    if (!s) return;
    at_index_add_(aten_matrix(d, de), 0, aten_ids(d, ids, n),
                  at_to(aten_acts(d, dy, n, de->k, lddy), aten_type(de->dtype)));
    aten_leave(d, s);
}
