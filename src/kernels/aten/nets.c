/*
 * Gated delta nets by libtorch, token after token, in f32 on the CPU: slow, and a second opinion.
 * Gradients are autograd's. What the native table writes for a backward of its own (gates, norms,
 * kept states) is not written here, and q and k of qkv stay as they are.
 */
#include "aten.h"

#include <math.h>

/* Rows of an earlier segment that segment s goes on from. */
static int32_t prefix_of(const ares_segments *seg, int32_t s)
{
    return seg->prefix_row ? seg->prefix_len[s] : 0;
}
static int32_t rows_of(const ares_segments *seg, int32_t s)
{
    return seg->start[s + 1] - seg->start[s];
}

/* A copy to differentiate by, where a graph is wanted. */
static at_tensor leaf(at_tensor t, bool graph)
{
    return graph ? at_requires_grad_(at_clone(at_to(t, AT_F32)), true) : at_to(t, AT_F32);
}

/* The rows of segment s of x, behind the kernel - 1 before them: [kernel - 1 + rows][width]. */
static at_tensor with_window(const ares_device *d, const ares_conv_args *a, int32_t s, at_tensor x)
{
    int32_t before = a->kernel - 1, prefix = ARES_MIN(prefix_of(&a->seg, s), before),
            slot = a->window ? a->from[s] : -1, n = 0;
    at_tensor part[3];
    if (slot >= 0) {
        part[n++] =
            aten_rows(d, a->window + (int64_t)slot * before * a->width, before, a->width, a->width);
    } else {
        if (before > prefix)
            part[n++] = at_zeros_beside(x, AT_F32, AT_DIMS(before - prefix, a->width));
        if (prefix)
            part[n++] =
                at_narrow(x, 0, a->seg.prefix_row[s] + prefix_of(&a->seg, s) - prefix, prefix);
    }
    part[n++] = at_narrow(x, 0, a->seg.start[s], rows_of(&a->seg, s));
    return at_cat(part, n, 0);
}

/* y of a segment whose rows lie behind their window. */
static at_tensor convolved(const ares_conv_args *a, at_tensor rows, at_tensor w)
{
    at_tensor sum = NULL;
    int64_t n = at_size(rows, 0) - a->kernel + 1;
    for (int32_t i = 0; i < a->kernel; i++) {
        at_tensor part = at_mul(at_narrow(rows, 0, i, n), at_select(w, 1, i));
        sum = sum ? at_add(sum, part) : part;
    }
    return at_silu(sum);
}

static void conv(ares_device *d, const ares_conv_args *a)
{
    at_scope *scope = a->seg.rows > 0 ? aten_enter(d, "conv") : NULL;
    if (!scope) return;
    at_tensor x = aten_acts(d, a->x, a->seg.rows, a->width, a->ldx),
              w = at_to(aten_matrix(d, a->w), AT_F32);
    int64_t before = a->kernel - 1;
    for (int32_t s = 0; s < a->seg.n; s++) {
        int32_t n = rows_of(&a->seg, s);
        at_tensor rows = n || a->window ? with_window(d, a, s, x) : NULL;
        if (n)
            at_copy_(aten_rows(d, a->y + a->seg.start[s] * a->ldy, n, a->width, a->ldy),
                     convolved(a, rows, w));
        if (a->window && a->to[s] >= 0 && before)
            at_copy_(
                aten_rows(d, a->window + a->to[s] * before * a->width, before, a->width, a->width),
                at_narrow(rows, 0, n, before));
    }
    aten_leave(d, scope);
}

static void conv_backward(ares_device *d, const ares_conv_args *a)
{
    at_scope *scope = a->seg.rows > 0 ? aten_enter_graph(d, "conv_backward") : NULL;
    if (!scope) return;
    at_tensor in[] = { leaf(aten_acts(d, a->x, a->seg.rows, a->width, a->ldx), true),
                       leaf(aten_matrix(d, a->w), true) },
              got[2] = { NULL }, *part = ares_calloc((size_t)a->seg.n, sizeof *part);
    int n = 0;
    for (int32_t s = 0; s < a->seg.n; s++)
        if (rows_of(&a->seg, s)) part[n++] = convolved(a, with_window(d, a, s, in[0]), in[1]);
    at_grad(at_cat(part, n, 0), aten_rows(d, a->dy, a->seg.rows, a->width, a->lddy), in, 2, false,
            got);
    at_copy_(aten_acts(d, a->dx, a->seg.rows, a->width, a->lddx), got[0]);
    if (a->dw) at_add_(aten_matrix(d, a->dw), got[1]);
    ares_free(part);
    aten_leave(d, scope);
}

enum { QKV, A, B, A_LOG, DT_BIAS, LEAVES };
/* What the recurrence reads: [rows][v_heads][k_dim or v_dim], and [rows][v_heads]. */
typedef struct parts {
    at_tensor q, k, v, beta, decay;
} parts;

/* Key heads as each value head reads them, with a norm of 1. */
static at_tensor keys_of(const ares_delta_args *a, at_tensor qkv, int64_t first)
{
    int64_t rows = a->seg.rows, per_key = a->v_heads / a->k_heads;
    at_tensor x = at_reshape(at_narrow(qkv, 1, first, (int64_t)a->k_heads * a->k_dim),
                             AT_DIMS(rows, a->k_heads, 1, a->k_dim));
    x = at_mul(x, at_rsqrt(at_add_s(at_sum_dim(at_mul(x, x), 3, true), 1e-6)));
    x = at_expand(x, AT_DIMS(rows, a->k_heads, per_key, a->k_dim));
    return at_reshape(x, AT_DIMS(rows, a->v_heads, a->k_dim));
}

static parts parts_of(const ares_device *d, const ares_delta_args *a, bool graph,
                      at_tensor in[LEAVES])
{
    int64_t rows = a->seg.rows, keys = (int64_t)a->k_heads * a->k_dim,
            values = (int64_t)a->v_heads * a->v_dim;
    in[QKV] = leaf(aten_rows(d, a->qkv, rows, 2 * keys + values, a->ldqkv), graph);
    in[A] = leaf(aten_acts(d, a->a, rows, a->v_heads, a->ldab), graph);
    in[B] = leaf(aten_acts(d, a->b, rows, a->v_heads, a->ldab), graph);
    in[A_LOG] = leaf(aten_vector(d, a->a_log, a->v_heads), graph);
    in[DT_BIAS] = leaf(aten_vector(d, a->dt_bias, a->v_heads), graph);
    const at_value z[] = { AT_T(at_add(in[A], in[DT_BIAS])) };
    at_value softplus = AT_NONE;
    at_call("aten::softplus", "", z, 1, &softplus, 1);
    return (parts){
        .q = at_mul_s(keys_of(a, in[QKV], 0), 1 / sqrt((double)a->k_dim)),
        .k = keys_of(a, in[QKV], keys),
        .v = at_reshape(at_narrow(in[QKV], 1, 2 * keys, values),
                        AT_DIMS(rows, a->v_heads, a->v_dim)),
        .beta = at_sigmoid(in[B]),
        .decay = at_exp(at_neg(at_mul(at_exp(in[A_LOG]), softplus.as.tensor))),
    };
}

/* o [v_heads][v_dim] of row r, and the state [v_heads][k_dim][v_dim] after it. */
static at_tensor token(const parts *p, int64_t r, at_tensor *state)
{
    at_tensor k = at_unsqueeze(at_select(p->k, 0, r), 2),
              q = at_unsqueeze(at_select(p->q, 0, r), 2),
              decay = at_unsqueeze(at_unsqueeze(at_select(p->decay, 0, r), 1), 2),
              beta = at_unsqueeze(at_select(p->beta, 0, r), 1), before = at_mul(*state, decay),
              u = at_mul(at_sub(at_select(p->v, 0, r), at_sum_dim(at_mul(before, k), 1, false)),
                         beta);
    *state = at_add(before, at_mul(k, at_unsqueeze(u, 1)));
    return at_sum_dim(at_mul(*state, q), 1, false);
}

/*
 * o of all rows; before [seg.n]: written: the state that each segment leaves, for those that go on
 * from it.
 */
static at_tensor recurrence(const ares_device *d, const ares_delta_args *a, const parts *p,
                            at_tensor *after, at_tensor *o)
{
    const ares_segments *seg = &a->seg;
    int64_t at = 0, size[] = { a->v_heads, a->k_dim, a->v_dim },
            step[] = { (int64_t)a->k_dim * a->v_dim, a->v_dim, 1 };
    for (int32_t s = 0; s < seg->n; s++) {
        int32_t slot = a->states ? a->from[s] : -1, root = 0;
        if (slot >= 0)
            after[s] = at_clone(
                at_view(a->states + slot * size[0] * step[0], AT_F32, d->index, size, step, 3));
        else after[s] = at_zeros(AT_F32, size, 3);
        if (prefix_of(seg, s)) {
            while (seg->start[root] != seg->prefix_row[s] || !rows_of(seg, root)) root++;
            ARES_ASSERT(root < s && rows_of(seg, root) == prefix_of(seg, s));
            after[s] = after[root];
        }
        for (int64_t r = seg->start[s]; r < seg->start[s + 1]; r++, at++)
            o[at] = at_reshape(token(p, r, &after[s]), AT_DIMS(1, (int64_t)a->v_heads * a->v_dim));
        if (a->states && a->to[s] >= 0)
            at_copy_(
                at_view(a->states + a->to[s] * size[0] * step[0], AT_F32, d->index, size, step, 3),
                after[s]);
    }
    return at_cat(o, (int)at, 0);
}

static void pass(ares_device *d, const ares_delta_args *a, bool graph)
{
    at_scope *scope = a->seg.rows <= 0 ? NULL
                      : graph          ? aten_enter_graph(d, "delta_backward")
                                       : aten_enter(d, "delta");
    if (!scope) return;
    int64_t values = (int64_t)a->v_heads * a->v_dim;
    at_tensor in[LEAVES], *after = ares_calloc((size_t)a->seg.n, sizeof *after),
                          *rows = ares_calloc((size_t)a->seg.rows, sizeof *rows);
    const parts p = parts_of(d, a, graph, in);
    at_tensor o = recurrence(d, a, &p, after, rows);
    if (!graph) at_copy_(aten_rows(d, a->o, a->seg.rows, values, a->ldo), o);
    else {
        at_tensor got[LEAVES] = { NULL };
        at_grad(o, aten_rows(d, a->d_o, a->seg.rows, values, a->lddo), in, LEAVES, false, got);
        at_copy_(aten_rows(d, a->dqkv, a->seg.rows, at_size(in[QKV], 1), a->lddqkv), got[QKV]);
        at_copy_(aten_acts(d, a->da, a->seg.rows, a->v_heads, a->lddab), got[A]);
        at_copy_(aten_acts(d, a->db, a->seg.rows, a->v_heads, a->lddab), got[B]);
        if (a->da_log) at_add_(aten_vector(d, a->da_log, a->v_heads), got[A_LOG]);
        if (a->d_dt_bias) at_add_(aten_vector(d, a->d_dt_bias, a->v_heads), got[DT_BIAS]);
    }
    ares_free(after);
    ares_free(rows);
    aten_leave(d, scope);
}

static void delta(ares_device *d, const ares_delta_args *a)
{
    pass(d, a, false);
}
static void delta_backward(ares_device *d, const ares_delta_args *a)
{
    ares_delta_args packed = *a;
    packed.states = NULL; /* a backward begins with zeros, or a prefix */
    pass(d, &packed, true);
}

void aten_fill_nets(ares_kernels *k)
{
    k->conv = conv;
    k->conv_backward = conv_backward;
    k->delta = delta;
    k->delta_backward = delta_backward;
}
