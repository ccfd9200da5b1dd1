/* Layers of experts by libtorch: the choice of a row's experts, the sum of their outputs, both
 * gradients. The table's memory is the host's, so the rows are sorted here. */
#include "../host.h"
#include "aten.h"

#include <string.h>

/* [rows][used] of int32_t */
static at_tensor numbers(const ares_device *d, const int32_t *x, int64_t rows, int64_t used)
{
    return at_reshape(aten_ids(d, x, rows * used), AT_DIMS(rows, used));
}

static void route(ares_device *d, const ares_route_args *a)
{
    memset(a->first, 0, (size_t)(a->experts + 1) * sizeof *a->first);
    at_scope *s = a->rows > 0 ? aten_enter(d, "route") : NULL;
    if (!s) return;
    at_tensor l = aten_wide(d, a->logits, a->rows, a->experts, a->ldl),
              log_p = at_log_softmax(l, 1), p = at_exp(log_p);
    /* stable: of equal logits the lower number comes first */
    const at_value in[] = { AT_T(l), AT_FLAG(true), AT_INT(1), AT_FLAG(true) };
    at_value sorted[2] = { AT_NONE, AT_NONE };
    at_call("aten::sort", "stable", in, ARES_COUNT(in), sorted, 2);
    at_tensor chosen = at_narrow(sorted[1].as.tensor, 1, 0, a->used);
    const at_value ascending[] = { AT_T(chosen), AT_FLAG(true), AT_INT(1), AT_FLAG(false) };
    at_call("aten::sort", "stable", ascending, ARES_COUNT(ascending), sorted, 2);
    chosen = sorted[0].as.tensor;
    at_tensor weight = at_gather(p, 1, chosen);
    if (a->norm) weight = at_div(weight, at_sum_dim(weight, 1, true));
    at_copy_(aten_rows(d, a->weight, a->rows, a->used, a->used), weight);
    if (a->entropy) /* where p is 0, log p times it would be no number */
        at_copy_(aten_rows(d, a->entropy, a->rows, 1, 1),
                 at_neg(at_sum_dim(at_mul(p, at_clamp(log_p, -1e30, 0)), 1, true)));
    at_copy_(at_view(a->expert, AT_I32, d->index, (const int64_t[]){ a->rows, a->used },
                     (const int64_t[]){ a->used, 1 }, 2),
             chosen);
    bool failed = at_scope_failed();
    aten_leave(d, s);
    if (failed) return;
    int32_t *next = ares_calloc((size_t)a->experts, sizeof *next);
    kernels_sort_rows(a, next);
    ares_free(next);
}

static void route_backward(ares_device *d, const ares_route_args *a)
{
    at_scope *s = a->rows > 0 ? aten_enter(d, "route_backward") : NULL;
    if (!s) return;
    at_tensor weight = aten_rows(d, a->weight, a->rows, a->used, a->used),
              c = aten_rows(d, a->c, a->rows, a->used, a->used),
              sum = at_sum_dim(at_mul(weight, c), 1, true), dl;
    if (a->norm) {
        dl = at_zeros_beside(weight, AT_F32, AT_DIMS(a->rows, a->experts));
        c = at_mul(weight, at_sub(c, sum));
    } else {
        at_tensor p = at_softmax(aten_wide(d, a->logits, a->rows, a->experts, a->ldl), 1);
        dl = at_neg(at_mul(p, sum));
        c = at_mul(weight, c);
    }
    at_scatter_add_(dl, 1, at_to(numbers(d, a->expert, a->rows, a->used), AT_I64), c);
    at_copy_(aten_acts(d, a->dl, a->rows, a->experts, a->lddl), dl);
    aten_leave(d, s);
}

/* The outputs of the j-th expert of each row, in f32. */
static at_tensor outputs(const ares_device *d, const ares_combine_args *a, at_tensor slots, int j)
{
    at_tensor all = aten_acts(d, a->out, (int64_t)a->rows * a->used, a->width, a->ldo);
    return at_to(at_index_select(all, 0, at_select(slots, 1, j)), AT_F32);
}

static void combine(ares_device *d, const ares_combine_args *a)
{
    at_scope *s = a->rows > 0 ? aten_enter(d, "combine") : NULL;
    if (!s) return;
    at_tensor slots = numbers(d, a->slot_of, a->rows, a->used), sum = NULL,
              y = aten_acts(d, a->y, a->rows, a->width, a->ldy);
    for (int j = 0; j < a->used; j++) {
        at_tensor o = outputs(d, a, slots, j);
        if (a->weight) at_mul_(o, aten_rows(d, a->weight + j, a->rows, 1, a->used));
        sum = sum ? at_add_(sum, o) : o;
    }
    if (a->residual) /* the sum of the experts is rounded, then that with the residual */
        sum = at_add(aten_acts(d, a->residual, a->rows, a->width, a->ldr),
                     at_to(sum, aten_type(d->k->act)));
    at_copy_(y, sum);
    aten_leave(d, s);
}

static void combine_backward(ares_device *d, const ares_combine_args *a)
{
    at_scope *s = a->rows > 0 ? aten_enter(d, "combine_backward") : NULL;
    if (!s) return;
    at_tensor slots = numbers(d, a->slot_of, a->rows, a->used),
              dy = aten_wide(d, a->dy, a->rows, a->width, a->lddy);
    for (int j = 0; j < a->used; j++) {
        at_copy_(aten_rows(d, a->c + j, a->rows, 1, a->used),
                 at_sum_dim(at_mul(outputs(d, a, slots, j), dy), 1, true));
        at_tensor own = at_mul(dy, aten_rows(d, a->weight + j, a->rows, 1, a->used));
        at_index_copy_(aten_acts(d, a->d_out, (int64_t)a->rows * a->used, a->width, a->lddo), 0,
                       at_to(at_select(slots, 1, j), AT_I64), at_to(own, aten_type(d->k->act)));
    }
    aten_leave(d, s);
}

void aten_fill_experts(ares_kernels *k)
{
    k->route = route;
    k->route_backward = route_backward;
    k->combine = combine;
    k->combine_backward = combine_backward;
}
