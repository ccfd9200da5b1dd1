/* A decoder block: its products and norms, its forward and backward. */
#include "internal.h"

#include <math.h>
#include <string.h>

/* Products of a layer and RMS norms, of the text part and of the tower. */

ares_linear_args linear_args(int32_t rows, const ares_linear *l, const void *x,
                             const void *residual, void *y, int64_t ldy)
{
    return (ares_linear_args){ .m = rows,
                               .x = x,
                               .ldx = l->w->weight.k,
                               .w = &l->w->weight,
                               .bias = linear_bias(l),
                               .residual = residual,
                               .ldr = l->w->weight.n,
                               .y = y,
                               .ldy = ldy };
}

void linear_backward(ares_device *d, const ares_linear *l, int32_t rows, const void *dy,
                     int64_t lddy, const void *x, void *dx, bool accumulate)
{
    ares_linear_backward_args a = { .m = rows,
                                    .dy = dy,
                                    .lddy = lddy,
                                    .w = &l->w->weight,
                                    .dx = dx,
                                    .lddx = l->w->weight.k,
                                    .accumulate = accumulate };
    if (x) a.dbias = param_vector_grad(l->bias);
    if (x && l->w->grad.data) {
        a.x = x;
        a.ldx = l->w->weight.k;
        a.dw = &l->w->grad;
    }
    if (!dx && !a.dw && !a.dbias) return; /* frozen */
    d->k->linear_backward(d, &a, 1);
}

/* Whether b's memory begins where a's ends; two absent gradients follow each other, too. */
static bool follows(const ares_matrix *a, const ares_matrix *b)
{
    return (!a->data && !b->data) ||
           (const char *)b->data ==
               (const char *)a->data + (size_t)(a->n * (int64_t)a->k) * ares_dtype_bytes(a->dtype);
}

bool linears_adjacent(const ares_linear *a, const ares_linear *b)
{
    return a->w->weight.layout == ARES_ROWS && follows(&a->w->weight, &b->w->weight) &&
           follows(&a->w->grad, &b->w->grad) &&
           (!a->bias || (follows(&a->bias->weight, &b->bias->weight) &&
                         follows(&a->bias->grad, &b->bias->grad)));
}

void linears_backward(ares_device *d, const ares_linear *const *l, int n, int32_t rows,
                      const void *dy, int64_t lddy, const void *x, void *dx, bool accumulate)
{
    for (int i = 0, end; i < n; i = end) {
        ares_param w = *l[i]->w;
        for (end = i + 1; end < n && linears_adjacent(l[end - 1], l[end]); end++) {
            w.weight.n += l[end]->w->weight.n;
            w.grad.n = w.weight.n;
        }
        linear_backward(d, &(ares_linear){ .w = &w, .bias = l[i]->bias }, rows, dy, lddy, x, dx,
                        accumulate || i > 0);
        dy = acts_at(d, dy, w.weight.n);
    }
}

void rms_norm_backward(ares_device *d, const ares_param *w, bool plus_one, int32_t rows, int32_t k,
                       const void *dy, const void *x, const float *rstd, void *dx)
{
    ares_rms_norm_args a = { .rows = rows,
                             .k = k,
                             .x = x,
                             .ldx = k,
                             .w = param_vector(w),
                             .plus_one = plus_one,
                             .rstd = (float *)rstd,
                             .dy = dy,
                             .lddy = k,
                             .dx = dx,
                             .lddx = k,
                             .dw = param_vector_grad(w) };
    d->k->rms_norm_backward(d, &a);
}

/*
 * Adapters beside products, of the text part and of the tower (docs/adapters.md#arithmetic). A pass
 * has runs of rows with an adapter each; the product of the model is one for all rows.
 */

/* The first row after run i; runs may name more rows than the pass has. */
static int32_t end_of_run(const adapting *a, int32_t i)
{
    return ARES_MIN(a->runs[i].end, a->rows);
}

/* u = scale (x At) for m rows */
static ares_linear_args down_args(int32_t m, const ares_adapter_module *x, const void *in,
                                  int64_t ldx, void *u)
{
    return (ares_linear_args){
        .m = m, .x = in, .ldx = ldx, .w = &x->a->weight, .y = u, .ldy = x->rank, .scale = x->scale
    };
}

void linears_adapt(ares_device *d, const adapting *a, const ares_linear *const *l,
                   const ares_linear_args *base, int n)
{
    for (int32_t i = 0, first = 0, end; i < a->n_runs; i++, first = end) {
        ares_linear_args down[3], up[3];
        int count = 0;
        end = end_of_run(a, i);
        for (int k = 0; k < n && end > first; k++) {
            const ares_adapter_module *x = adapter_module(a->runs[i].adapter, l[k]->number);
            if (!x) continue;
            const ares_linear_args *b = &base[k];
            void *u = acts_at(d, a->u, ((int64_t)count * a->rows + first) * a->rank),
                 *y = acts_at(d, b->y, first * b->ldy);
            down[count] = down_args(end - first, x, acts_at(d, b->x, first * b->ldx), b->ldx, u);
            up[count++] = (ares_linear_args){ .m = end - first,
                                              .x = u,
                                              .ldx = x->rank,
                                              .w = &x->b->weight,
                                              .residual = y,
                                              .ldr = b->ldy,
                                              .y = y,
                                              .ldy = b->ldy };
        }
        if (!count) continue;
        d->k->linear(d, down, count);
        d->k->linear(d, up, count);
    }
}

void linear_adapt_backward(ares_device *d, const adapting *a, const ares_linear *l, const void *dy,
                           int64_t lddy, const void *x, void *dx)
{
    for (int32_t i = 0, first = 0, end; i < a->n_runs; i++, first = end) {
        const ares_adapter_module *y = adapter_module(a->runs[i].adapter, l->number);
        end = end_of_run(a, i);
        if (!y || end <= first) continue;
        int64_t k = y->a->weight.k;
        void *u = acts_at(d, a->u, (int64_t)first * a->rank),
             *du = acts_at(d, a->du, (int64_t)first * a->rank);
        bool trains = x && y->a->grad.data;
        ares_linear_backward_args of_b = { .m = end - first,
                                           .dy = acts_at(d, dy, first * lddy),
                                           .lddy = lddy,
                                           .w = &y->b->weight,
                                           .dx = dx ? du : NULL,
                                           .lddx = y->rank,
                                           .scale = y->scale },
                                  of_a = { .m = end - first,
                                           .dy = du,
                                           .lddy = y->rank,
                                           .w = &y->a->weight,
                                           .dx = dx ? acts_at(d, dx, first * k) : NULL,
                                           .lddx = k,
                                           .accumulate = true };
        if (trains) {
            ares_linear_args again = down_args(end - first, y, acts_at(d, x, first * k), k, u);
            d->k->linear(d, &again, 1);
            of_b.x = u;
            of_b.ldx = y->rank;
            of_b.dw = &y->b->grad;
            of_a.x = again.x;
            of_a.ldx = k;
            of_a.dw = &y->a->grad;
        }
        if (!dx && !trains) continue;
        d->k->linear_backward(d, &of_b, 1);
        d->k->linear_backward(d, &of_a, 1);
    }
}

/*
 * One decoder block, forward and backward, for every architecture of the table and every use:
 * prefill, decode, log-probs, training. With norms n1 .. n4 (ares_block_norm), each of which may be
 * absent:
 *
 *   x_mid = x + n2(Wo attention(n1(x)))      x_out = x_mid + n4(Wdown (f(gate) * up)(n3(x_mid)))
 */

/* The widths of what lies side by side in a row. */
typedef struct widths {
    int64_t q, kv, qkv, wide; /* of q, of k or v, of all three, of gate or up */
} widths;
static widths widths_of(const ares_model_config *c)
{
    int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;
    return (widths){ q, kv, q + 2 * kv, c->intermediate };
}

static adapting adapting_of(const block_pass *p, const block_scratch *t)
{
    return (adapting){ p->rows, p->adapted, p->n_adapted, t->u, t->du, t->rank };
}

/* Arguments of a norm over rows of the residual stream's width, which have no gaps. */
static ares_rms_norm_args norm_args(const ares_model *m, const ares_param *w, int32_t rows,
                                    const void *x, void *y, float *rstd)
{
    return (ares_rms_norm_args){ .rows = rows,
                                 .k = m->cfg.hidden,
                                 .x = x,
                                 .ldx = m->cfg.hidden,
                                 .w = param_vector(w),
                                 .plus_one = m->cfg.norm_plus_one,
                                 .eps = m->cfg.rms_norm_eps,
                                 .y = y,
                                 .ldy = m->cfg.hidden,
                                 .rstd = rstd };
}

/*
 * What products read of the stream: y = norm(x), or x itself where there is no norm (w NULL). rstd
 * may be NULL. next: a product that will add to x, whose bias is added to x here; NULL: none.
 */
static const void *read_stream(const ares_model *m, const ares_param *w, int32_t rows, void *x,
                               void *y, float *rstd, const ares_linear *next)
{
    if (!w) return x;
    ares_rms_norm_args a = norm_args(m, w, rows, x, y, rstd);
    a.bias = next ? linear_bias(next) : NULL;
    a.sum = next ? x : NULL;
    m->device->k->rms_norm(m->device, &a);
    return y;
}

/*
 * The norms of q and of k, of heads or of whole rows: q and k side by side in rows of x at distance
 * ldx, or d x / d y of a backward.
 */
static void qk_norm_args(const ares_model *m, const ares_model_layer *l, const block_saved *s,
                         int32_t rows, const void *x, int64_t ldx, ares_rms_norm_args a[2])
{
    const ares_model_config *c = &m->cfg;
    for (int i = 0; i < 2; i++) {
        int32_t heads = i ? c->kv_heads : c->heads;
        bool of_heads = c->qk_norm == ARES_QK_NORM_HEADS;
        a[i] = (ares_rms_norm_args){ .rows = of_heads ? rows * heads : rows,
                                     .k = of_heads ? c->head_dim : heads * c->head_dim,
                                     .heads = of_heads ? heads : 0,
                                     .x = acts_at(m->device, x, i ? widths_of(c).q : 0),
                                     .ldx = ldx,
                                     .w = param_vector(i ? l->k_norm : l->q_norm),
                                     .plus_one = c->norm_plus_one,
                                     .eps = c->rms_norm_eps,
                                     .rstd = i ? s->k_rstd : s->q_rstd };
        if (i || !c->attention_gate) continue;
        a[i].x = s->q_gate;
        a[i].ldx = 2 * widths_of(c).q;
        a[i].x_head = 2 * c->head_dim;
    }
}

/* The norms of q and k in rows of x at distance ldx, into rows of y at distance ldy. */
static void qk_norms(const ares_model *m, const ares_model_layer *l, const block_saved *s,
                     int32_t rows, const void *x, int64_t ldx, void *y, int64_t ldy)
{
    ares_rms_norm_args a[2];
    qk_norm_args(m, l, s, rows, x, ldx, a);
    for (int i = 0; i < 2; i++) {
        a[i].y = acts_at(m->device, y, i ? widths_of(&m->cfg).q : 0);
        a[i].ldy = ldy;
        m->device->k->rms_norm(m->device, &a[i]);
    }
}

/* dx += the gradients by q and k before their norms; dy and dx in rows at distance ld. */
static void qk_norms_backward(const ares_model *m, const ares_model_layer *l, const block_saved *s,
                              const block_scratch *t, int32_t rows, const void *dy, void *dx,
                              int64_t ld)
{
    ares_device *d = m->device;
    widths n = widths_of(&m->cfg);
    ares_rms_norm_args a[2];
    qk_norm_args(m, l, s, rows, s->qk_raw, n.q + n.kv, a);
    for (int i = 0; i < 2; i++) {
        a[i].dy = acts_at(d, dy, i ? n.q : 0);
        a[i].dx = acts_at(d, dx, i ? n.q : 0);
        a[i].lddy = a[i].lddx = ld;
        if (!i && m->cfg.attention_gate) {
            a[i].dx = t->d_q_gate;
            a[i].lddx = a[i].ldx;
        }
        a[i].dw = param_vector_grad(i ? l->k_norm : l->q_norm);
        d->k->rms_norm_backward(d, &a[i]);
    }
}

/* Rows of width n, those of all ranks side by side in `all` where the model is a slice. */
static void *gathered(const ares_model *m, int32_t rows, void *mine, int64_t n, void *all)
{
    if (!m->tp) return mine;
    size_t bytes = (size_t)n * ares_dtype_bytes(m->device->k->act);
    ares_group_join(m->tp, ares_group_gather_columns(m->tp, mine, all, rows, bytes));
    return all;
}

/*
 * Norms over whole rows in a slice, which has some columns of q and of k, one after the other in
 * t->qk: the rows of all ranks are normed, and the own columns go to s->qkv. On the CPU.
 */
static void qk_norms_of_slice(const ares_model *m, const ares_model_layer *l, const block_saved *s,
                              const block_scratch *t, int32_t rows)
{
    widths n = widths_of(&m->cfg);
    ares_rms_norm_args a[2];
    qk_norm_args(m, l, s, rows, t->all, 0, a);
    for (int i = 0; i < 2; i++) {
        int64_t own = i ? n.kv : n.q, first = (int64_t)ares_group_rank(m->tp) * own;
        void *mine = acts_at(m->device, t->qk, i ? rows * n.q : 0),
             *to = acts_at(m->device, s->qkv, i ? n.q : 0);
        a[i].x = a[i].y = gathered(m, rows, mine, own, t->all);
        a[i].k = (int32_t)own * ares_group_size(m->tp);
        a[i].ldx = a[i].ldy = a[i].k;
        m->device->k->rms_norm(m->device, &a[i]);
        for (int32_t r = 0; r < rows; r++)
            memcpy(acts_at(m->device, to, r * n.qkv),
                   acts_at(m->device, t->all, (int64_t)r * a[i].k + first),
                   (size_t)own * ares_dtype_bytes(m->device->k->act));
    }
}

/* The arguments of forward and backward alike, but for the derivatives. */
static ares_attention_args attention(const ares_model *m, int layer, const block_pass *p,
                                     const block_saved *s)
{
    const ares_model_config *c = &m->cfg;
    widths n = widths_of(c);
    return (ares_attention_args){ .seg = p->seg,
                                  .n_heads = c->heads,
                                  .n_kv_heads = c->kv_heads,
                                  .head_dim = c->head_dim,
                                  .scale = c->attention_scale > 0
                                               ? c->attention_scale
                                               : 1.0f / sqrtf((float)c->head_dim),
                                  .causal = true,
                                  .bf16 = m->arithmetic == ARES_BF16,
                                  .window = c->layer[layer] & ARES_LAYER_WINDOW ? c->window : 0,
                                  .q = s->qkv,
                                  .ldq = n.qkv,
                                  .k = acts_at(m->device, s->qkv, n.q),
                                  .v = acts_at(m->device, s->qkv, n.q + n.kv),
                                  .ldkv = n.qkv,
                                  .cache = p->cache,
                                  .out = s->attn,
                                  .ldo = n.q,
                                  .lse = s->lse };
}

/* y = f(gate) * up, of the block's gate and up side by side. */
static ares_gate_mul_args gated(const ares_model *m, int32_t rows, const block_saved *s, void *y)
{
    int32_t wide = m->cfg.intermediate;
    return (ares_gate_mul_args){ .f = m->cfg.mlp_activation,
                                 .rows = rows,
                                 .k = wide,
                                 .gate = s->gate_up,
                                 .up = acts_at(m->device, s->gate_up, wide),
                                 .ldgu = 2 * (int64_t)wide,
                                 .y = y,
                                 .ldy = wide };
}

/*
 * Whether one launch stands for the bias of q, k and v, the norms of heads, the rotation and the
 * cache's rows, and another for the bias of gate and up and the activation.
 */
static bool stores_at_once(const ares_model *m, const block_pass *p)
{
    return p->cache && m->device->k->rope_store;
}

/*
 * Whether the norm before it adds the bias of a product to the stream. Then the product adds to
 * memory that it finds, which needs no launch of its own: only where the stream stays in place and
 * no norm stands between product and stream, and not in a slice, which computes its columns
 * elsewhere.
 */
static bool norms_add_biases(const ares_model *m, const ares_model_layer *l, const block_pass *p,
                             const block_saved *s)
{
    return stores_at_once(m, p) && s->x_mid == s->x_in && !m->tp &&
           l->norm[ARES_BEFORE_ATTENTION] && !l->norm[ARES_AFTER_ATTENTION] &&
           l->norm[ARES_BEFORE_MLP] && !l->norm[ARES_AFTER_MLP];
}

/* The angles that a layer's q and k are rotated by; NULL: they are not. */
static const float *angles_of(const ares_model *m, int layer, const block_pass *p)
{
    uint8_t kind = m->cfg.layer[layer];
    return kind & ARES_LAYER_NO_ROPE ? NULL : p->cos_sin[kind & ARES_LAYER_LOCAL_ROPE ? 1 : 0];
}

/* The rotation of q and k, whose heads follow each other, and the cache's rows of k and v. */
static void rotate_and_store(const ares_model *m, int layer, const block_pass *p,
                             const block_saved *s)
{
    const ares_model_layer *l = &m->layer[layer];
    const float *cos_sin = angles_of(m, layer, p);
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    const ares_model_config *c = &m->cfg;
    widths n = widths_of(c);
    if (stores_at_once(m, p)) {
        bool done = c->qk_norm == ARES_QK_NORM_ROW; /* q and k have bias and norm */
        ares_rope_store_args a = { .rows = p->rows,
                                   .n_heads = c->heads,
                                   .n_kv_heads = c->kv_heads,
                                   .head_dim = c->head_dim,
                                   .qkv = s->qkv,
                                   .ld = n.qkv,
                                   .q_bias = done ? NULL : linear_bias(&l->q),
                                   .k_bias = done ? NULL : linear_bias(&l->k),
                                   .v_bias = linear_bias(&l->v),
                                   .q_norm = done ? NULL : param_vector(l->q_norm),
                                   .k_norm = done ? NULL : param_vector(l->k_norm),
                                   .plus_one = c->norm_plus_one,
                                   .eps = c->rms_norm_eps,
                                   .cos_sin = cos_sin,
                                   .slots = p->slots,
                                   .cache = p->cache };
        k->rope_store(d, &a);
        return;
    }
    if (cos_sin)
        k->rope(d, p->rows, c->heads + c->kv_heads, c->head_dim, c->turned, s->qkv, n.qkv, cos_sin,
                false);
    if (p->cache)
        k->store_kv(d, p->rows, c->kv_heads, c->head_dim, acts_at(d, s->qkv, n.q),
                    acts_at(d, s->qkv, n.q + n.kv), n.qkv, p->slots, p->cache,
                    m->arithmetic == ARES_BF16);
}

/* A product that adds to the stream, perhaps through a norm. */
typedef struct adding {
    const ares_linear *l;
    const ares_param *norm; /* NULL: none */
    void *y; /* where the norm reads l(x), and its factors; y NULL: nothing is kept */
    float *rstd;
    const void *stream;
    void *out;     /* may be the stream */
    bool has_bias; /* the stream has the bias of l already */
} adding;

/* out = stream + norm(l(x)). A slice computes its columns of l(x), and gathers them. */
static void add_to_stream(const ares_model *m, const block_pass *p, const block_scratch *t,
                          const void *x, const adding *add)
{
    ares_device *d = m->device;
    int32_t n = add->l->w->weight.n;
    void *y = !add->norm ? add->out : add->y ? add->y : t->h;
    ares_linear_args a =
        linear_args(p->rows, add->l, x, add->norm ? NULL : add->stream, m->tp ? t->part : y, n);
    if (add->has_bias) a.bias = NULL;
    if (m->tp && !add->norm) {
        a.residual = acts_at(d, add->stream, (int64_t)ares_group_rank(m->tp) * n);
        a.ldr = m->cfg.hidden;
    }
    d->k->linear(d, &a, 1);
    const adapting beside = adapting_of(p, t);
    linears_adapt(d, &beside, &add->l, &a, 1);
    (void)gathered(m, p->rows, a.y, n, y);
    if (!add->norm) return;
    ares_rms_norm_args norm = norm_args(m, add->norm, p->rows, y, add->out, add->rstd);
    norm.residual = add->stream;
    norm.ldr = m->cfg.hidden;
    d->k->rms_norm(d, &norm);
}

/*
 * The gradient of what a product gave, where dx is that of the stream that it was added to: dx, or
 * through the norm after the product, in dy.
 */
static const void *added_backward(const ares_model *m, const ares_param *w, int32_t rows,
                                  const void *dx, const void *y, const float *rstd, void *dy)
{
    ares_device *d = m->device;
    int32_t hidden = m->cfg.hidden;
    if (!w) return dx;
    d->k->zero(d, dy, (size_t)rows * (size_t)hidden * ares_dtype_bytes(d->k->act));
    rms_norm_backward(d, w, m->cfg.norm_plus_one, rows, hidden, dx, y, rstd, dy);
    return dy;
}

/* q, k and v of h, with their norms, not yet rotated: into s->qkv. */
static void project(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                    const block_scratch *t, const void *h)
{
    const ares_model_layer *l = &m->layer[layer];
    const ares_model_config *c = &m->cfg;
    ares_device *d = m->device;
    widths n = widths_of(c);
    int32_t rows = p->rows;
    const adapting beside = adapting_of(p, t);
    bool at_once = stores_at_once(m, p), whole_rows = c->qk_norm == ARES_QK_NORM_ROW,
         apart = m->tp && whole_rows;
    void *q = apart       ? t->qk
              : s->qk_raw ? s->qk_raw
                          : s->qkv,
         *values = acts_at(d, s->qkv, n.q + n.kv);
    int64_t ld = s->qk_raw ? n.q + n.kv : n.qkv;
    void *k = acts_at(d, q, apart ? rows * n.q : n.q);
    ares_linear_args qkv[] = { c->attention_gate
                                   ? linear_args(rows, &l->q, h, NULL, s->q_gate, 2 * n.q)
                                   : linear_args(rows, &l->q, h, NULL, q, apart ? n.q : ld),
                               linear_args(rows, &l->k, h, NULL, k, apart ? n.kv : ld),
                               linear_args(rows, &l->v, h, NULL, values, n.qkv) };
    /* one launch adds them later, but for those that come before a norm over rows */
    for (int i = whole_rows ? 2 : 0; at_once && i < 3; i++) qkv[i].bias = NULL;
    d->k->linear(d, qkv, 3);
    linears_adapt(d, &beside, (const ares_linear *[]){ &l->q, &l->k, &l->v }, qkv, 3);
    if (apart) qk_norms_of_slice(m, l, s, t, rows);
    else if (whole_rows || (c->qk_norm && !at_once)) qk_norms(m, l, s, rows, q, ld, s->qkv, n.qkv);
}

/* attention's gate and what it is of; gate and q lie side by side in each head. */
static ares_gate_mul_args attention_gate(const ares_model *m, int32_t rows, const block_saved *s,
                                         void *y)
{
    int32_t dim = m->cfg.head_dim;
    return (ares_gate_mul_args){ .f = ARES_SIGMOID,
                                 .rows = rows * m->cfg.heads,
                                 .k = dim,
                                 .gate = acts_at(m->device, s->q_gate, dim),
                                 .up = s->attn,
                                 .ldgu = 2 * (int64_t)dim,
                                 .ld_up = dim,
                                 .y = y,
                                 .ldy = dim };
}

/* What o reads: of attention or of a net, after what they have computed. */
static const void *mixed_rows(const ares_model *m, const ares_model_layer *l, int32_t rows,
                              const block_saved *s, const block_scratch *t)
{
    if (l->net.qkv.w) return net_output(m, &l->net, rows, s, t);
    if (!m->cfg.attention_gate) return s->attn;
    ares_gate_mul_args gate = attention_gate(m, rows, s, t->gated);
    m->device->k->gate_mul(m->device, &gate);
    return t->gated;
}

/* q, k and v of h, their rotation, and attention: up to s->attn. */
static void attend(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                   const block_scratch *t, const void *h)
{
    project(m, layer, p, s, t, h);
    rotate_and_store(m, layer, p, s);
    ares_attention_args a = attention(m, layer, p, s);
    m->device->k->attention(m->device, &a);
}

void block_forward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                   const block_scratch *t, void *x_out)
{
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    const ares_model_layer *l = &m->layer[layer];
    int32_t rows = p->rows;
    widths n = widths_of(&m->cfg);
    const adapting beside = adapting_of(p, t);

    bool early = norms_add_biases(m, l, p, s);
    const void *h = read_stream(m, l->norm[ARES_BEFORE_ATTENTION], rows, s->x_in, t->h, s->rstd_in,
                                early ? &l->o : NULL);
    if (l->net.qkv.w) net_forward(m, &l->net, p, s, t, &beside, h);
    else attend(m, layer, p, s, t, h);
    const void *mixed = mixed_rows(m, l, rows, s, t);
    adding attended = {
        &l->o, l->norm[ARES_AFTER_ATTENTION], s->o_out, s->rstd_o, s->x_in, s->x_mid, early
    };
    if (m->tp) mixed = gathered(m, rows, s->attn, n.q, t->all);
    add_to_stream(m, p, t, mixed, &attended);

    h = read_stream(m, l->norm[ARES_BEFORE_MLP], rows, s->x_mid, t->h, s->rstd_mid,
                    early ? &l->down : NULL);
    if (l->expert) {
        experts_forward(m, l, rows, s, t, h, x_out);
        return;
    }
    ares_linear_args gate_up[] = { linear_args(rows, &l->gate, h, NULL, s->gate_up, 2 * n.wide),
                                   linear_args(rows, &l->up, h, NULL,
                                               acts_at(d, s->gate_up, n.wide), 2 * n.wide) };
    ares_gate_mul_args act = gated(m, rows, s, t->act);
    if (stores_at_once(m, p)) {
        gate_up[0].bias = gate_up[1].bias = NULL;
        act.gate_bias = linear_bias(&l->gate);
        act.up_bias = linear_bias(&l->up);
    }
    k->linear(d, gate_up, 2);
    linears_adapt(d, &beside, (const ares_linear *[]){ &l->gate, &l->up }, gate_up, 2);
    k->gate_mul(d, &act);
    adding fed = { &l->down, l->norm[ARES_AFTER_MLP], s->down_out, s->rstd_down, s->x_mid, x_out,
                   early };
    add_to_stream(m, p, t, gathered(m, rows, t->act, n.wide, t->all), &fed);
}

/* The gradient of the MLP's inputs, and of its weights; dx as in block_backward. */
static void mlp_backward(const ares_model *m, const ares_model_layer *l, const block_pass *p,
                         const block_saved *s, const block_scratch *t, void *dx)
{
    ares_device *d = m->device;
    const ares_param *before = l->norm[ARES_BEFORE_MLP];
    int32_t rows = p->rows, hidden = m->cfg.hidden;
    widths n = widths_of(&m->cfg);
    const adapting beside = adapting_of(p, t);
    void *d_h = before ? t->d_h : dx; /* without the norm they read the stream */
    if (l->expert) {
        const void *h = read_stream(m, before, rows, s->x_mid, t->h, NULL, NULL);
        experts_backward(m, l, rows, p->moved, s, t, h, dx, d_h, !before);
        if (before)
            rms_norm_backward(d, before, m->cfg.norm_plus_one, rows, hidden, d_h, s->x_mid,
                              s->rstd_mid, dx);
        return;
    }
    /* its activation and the normed stream are computed again, cheaper than memory */
    const void *dy =
        added_backward(m, l->norm[ARES_AFTER_MLP], rows, dx, s->down_out, s->rstd_down, t->d_h);
    linear_backward(d, &l->down, rows, dy, hidden, NULL, t->d_act, false);
    linear_adapt_backward(d, &beside, &l->down, dy, hidden, NULL, t->d_act);
    ares_gate_mul_args act = gated(m, rows, s, t->act);
    act.dy = t->d_act;
    act.lddy = n.wide;
    act.d_gate = t->d_gate_up;
    act.d_up = acts_at(d, t->d_gate_up, n.wide);
    act.lddgu = 2 * n.wide;
    d->k->gate_mul_backward(d, &act);
    linear_backward(d, &l->down, rows, dy, hidden, t->act, NULL, false);
    linear_adapt_backward(d, &beside, &l->down, dy, hidden, t->act, NULL);
    const void *h = read_stream(m, before, rows, s->x_mid, t->h, NULL, NULL);
    linears_backward(d, (const ares_linear *[]){ &l->gate, &l->up }, 2, rows, t->d_gate_up,
                     2 * n.wide, h, d_h, !before);
    linear_adapt_backward(d, &beside, &l->gate, t->d_gate_up, 2 * n.wide, h, d_h);
    linear_adapt_backward(d, &beside, &l->up, acts_at(d, t->d_gate_up, n.wide), 2 * n.wide, h, d_h);
    if (before)
        rms_norm_backward(d, before, m->cfg.norm_plus_one, rows, hidden, d_h, s->x_mid, s->rstd_mid,
                          dx);
}

/* From t->d_attn, the gradient of s->attn or of what its gate makes of it, to that of h. */
static void attend_backward(const ares_model *m, int layer, const block_pass *p,
                            const block_saved *s, const block_scratch *t, const void *h, void *d_h,
                            bool accumulate)
{
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    const ares_model_config *c = &m->cfg;
    const ares_model_layer *l = &m->layer[layer];
    int32_t rows = p->rows;
    widths n = widths_of(c);
    const adapting beside = adapting_of(p, t);
    void *d_qk = c->qk_norm ? t->d_qk : t->d_qkv;
    const float *cos_sin = angles_of(m, layer, p);

    if (c->attention_gate) { /* the gate's gradient, beside that of q, and attention's in place */
        k->zero(d, t->d_q_gate, (size_t)(rows * 2 * n.q) * ares_dtype_bytes(k->act));
        ares_gate_mul_args gate = attention_gate(m, rows, s, NULL);
        gate.dy = gate.d_up = t->d_attn;
        gate.lddy = c->head_dim;
        gate.d_gate = acts_at(d, t->d_q_gate, c->head_dim);
        gate.lddgu = gate.ldgu;
        k->gate_mul_backward(d, &gate);
    }
    if (c->qk_norm) /* the norms' backward adds to it */
        k->zero(d, t->d_qkv, (size_t)(rows * n.qkv) * ares_dtype_bytes(k->act));
    ares_attention_args a = attention(m, layer, p, s);
    a.d_out = t->d_attn;
    a.dq = d_qk;
    a.lddq = n.qkv;
    a.dk = acts_at(d, d_qk, n.q);
    a.dv = acts_at(d, t->d_qkv, n.q + n.kv);
    a.lddkv = n.qkv;
    k->attention_backward(d, &a);
    if (cos_sin)
        k->rope(d, rows, c->heads + c->kv_heads, c->head_dim, c->turned, d_qk, n.qkv, cos_sin,
                true);
    if (c->qk_norm) qk_norms_backward(m, l, s, t, rows, d_qk, t->d_qkv, n.qkv);
    const ares_linear *const qkv[] = { &l->q, &l->k, &l->v };
    const void *d_q = c->attention_gate ? t->d_q_gate : t->d_qkv; /* of q and its gate, or of q */
    int64_t ld_q = c->attention_gate ? 2 * n.q : n.qkv;
    if (c->attention_gate) {
        linear_backward(d, &l->q, rows, d_q, ld_q, h, d_h, accumulate);
        linears_backward(d, qkv + 1, 2, rows, acts_at(d, t->d_qkv, n.q), n.qkv, h, d_h, true);
    } else linears_backward(d, qkv, 3, rows, d_q, ld_q, h, d_h, accumulate);
    linear_adapt_backward(d, &beside, &l->q, d_q, ld_q, h, d_h);
    linear_adapt_backward(d, &beside, &l->k, acts_at(d, t->d_qkv, n.q), n.qkv, h, d_h);
    linear_adapt_backward(d, &beside, &l->v, acts_at(d, t->d_qkv, n.q + n.kv), n.qkv, h, d_h);
}

void block_backward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                    const block_scratch *t, void *dx)
{
    ares_device *d = m->device;
    const ares_model_layer *l = &m->layer[layer];
    const ares_param *before = l->norm[ARES_BEFORE_ATTENTION];
    int32_t rows = p->rows, hidden = m->cfg.hidden;
    const adapting beside = adapting_of(p, t);

    mlp_backward(m, l, p, s, t, dx);

    const void *dy =
        added_backward(m, l->norm[ARES_AFTER_ATTENTION], rows, dx, s->o_out, s->rstd_o, t->d_h);
    const void *mixed = mixed_rows(m, l, rows, s, t);
    linear_backward(d, &l->o, rows, dy, hidden, mixed, t->d_attn, false);
    linear_adapt_backward(d, &beside, &l->o, dy, hidden, mixed, t->d_attn);
    const void *h = read_stream(m, before, rows, s->x_in, t->h, NULL, NULL);
    void *d_h = before ? t->d_h : dx; /* without the norm they read the stream */
    if (l->net.qkv.w) net_backward(m, &l->net, p, s, t, &beside, h, d_h, !before);
    else attend_backward(m, layer, p, s, t, h, d_h, !before);
    if (before)
        rms_norm_backward(d, before, m->cfg.norm_plus_one, rows, hidden, d_h, s->x_in, s->rstd_in,
                          dx);
}
