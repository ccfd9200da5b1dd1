/* A decoder block: its products and norms, its forward and backward, and the rotary angles. */
#include "internal.h"

#include <math.h>
#include <pthread.h>
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
    d->k->linear_backward(d, &a);
}

/* Whether b's memory begins where a's ends; two absent gradients follow each other, too. */
static bool follows(const ares_matrix *a, const ares_matrix *b)
{
    return (!a->data && !b->data) ||
           (const char *)b->data ==
               (const char *)a->data + (size_t)(a->n * (int64_t)a->k) * ares_dtype_bytes(a->dtype);
}

/* Whether b's weight, bias and gradients lie directly after a's, so that one product reads both. */
static bool adjacent(const ares_linear *a, const ares_linear *b)
{
    return a->w->weight.layout == ARES_ROWS && follows(&a->w->weight, &b->w->weight) &&
           follows(&a->w->grad, &b->w->grad) &&
           (!a->bias || (follows(&a->bias->weight, &b->bias->weight) &&
                         follows(&a->bias->grad, &b->bias->grad)));
}

void linears_backward(ares_device *d, const ares_linear *const *l, int n, int32_t rows,
                      const void *dy, int64_t lddy, const void *x, void *dx)
{
    for (int i = 0, end; i < n; i = end) {
        ares_param w = *l[i]->w;
        for (end = i + 1; end < n && adjacent(l[end - 1], l[end]); end++) {
            w.weight.n += l[end]->w->weight.n;
            w.grad.n = w.weight.n;
        }
        linear_backward(d, &(ares_linear){ .w = &w, .bias = l[i]->bias }, rows, dy, lddy, x, dx,
                        i > 0);
        dy = acts_at(d, dy, w.weight.n);
    }
}

void rms_norm_backward(ares_device *d, const ares_param *w, int32_t rows, int32_t k, const void *dy,
                       const void *x, const float *rstd, void *dx)
{
    ares_rms_norm_args a = { .rows = rows,
                             .k = k,
                             .x = x,
                             .ldx = k,
                             .w = param_vector(w),
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
        d->k->linear_backward(d, &of_b);
        d->k->linear_backward(d, &of_a);
    }
}

/*
 * One decoder block, forward and backward, for every architecture of the table and every use:
 * prefill, decode, log-probs, training.
 *
 *   x_mid = x + Wo attention(norm(x))      x_out = x_mid + Wdown (silu(gate) * up)(norm(x_mid))
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

/*
 * y = norm(x) over rows of width k; rstd may be NULL. next: a product that will add to x, whose
 * bias is added to x here; NULL: none.
 */
static void norm(const ares_model *m, const ares_param *w, int32_t rows, int32_t k, void *x,
                 void *y, float *rstd, const ares_linear *next)
{
    ares_rms_norm_args a = { .rows = rows,
                             .k = k,
                             .x = x,
                             .ldx = k,
                             .w = param_vector(w),
                             .eps = m->cfg.rms_norm_eps,
                             .y = y,
                             .ldy = k,
                             .rstd = rstd,
                             .bias = next ? linear_bias(next) : NULL,
                             .sum = next ? x : NULL };
    m->device->k->rms_norm(m->device, &a);
}

/* The norms of q and k, which lie in rows of x at distance ldx, into rows of y at distance ldy. */
static void head_norms(const ares_model *m, const ares_model_layer *l, const block_saved *s,
                       int32_t rows, const void *x, int64_t ldx, void *y, int64_t ldy)
{
    const ares_model_config *c = &m->cfg;
    ares_device *d = m->device;
    ares_rms_norm_args q = { .rows = rows * c->heads,
                             .k = c->head_dim,
                             .heads = c->heads,
                             .x = x,
                             .ldx = ldx,
                             .w = param_vector(l->q_norm),
                             .eps = c->rms_norm_eps,
                             .y = y,
                             .ldy = ldy,
                             .rstd = s->q_rstd },
                       k = q;
    k.rows = rows * c->kv_heads;
    k.heads = c->kv_heads;
    k.x = acts_at(d, x, widths_of(c).q);
    k.w = param_vector(l->k_norm);
    k.y = acts_at(d, y, widths_of(c).q);
    k.rstd = s->k_rstd;
    d->k->rms_norm(d, &q);
    d->k->rms_norm(d, &k);
}

/* dx += the gradients by q and k before their norms; dy and dx in rows at distance ld. */
static void head_norms_backward(const ares_model *m, const ares_model_layer *l,
                                const block_saved *s, int32_t rows, const void *dy, void *dx,
                                int64_t ld)
{
    const ares_model_config *c = &m->cfg;
    ares_device *d = m->device;
    widths n = widths_of(c);
    ares_rms_norm_args q = { .rows = rows * c->heads,
                             .k = c->head_dim,
                             .heads = c->heads,
                             .x = s->qk_raw,
                             .ldx = n.q + n.kv,
                             .w = param_vector(l->q_norm),
                             .rstd = s->q_rstd,
                             .dy = dy,
                             .lddy = ld,
                             .dx = dx,
                             .lddx = ld,
                             .dw = param_vector_grad(l->q_norm) },
                       k = q;
    k.rows = rows * c->kv_heads;
    k.heads = c->kv_heads;
    k.x = acts_at(d, s->qk_raw, n.q);
    k.w = param_vector(l->k_norm);
    k.rstd = s->k_rstd;
    k.dy = acts_at(d, dy, n.q);
    k.dx = acts_at(d, dx, n.q);
    k.dw = param_vector_grad(l->k_norm);
    d->k->rms_norm_backward(d, &q);
    d->k->rms_norm_backward(d, &k);
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
                                  .scale = 1.0f / sqrtf((float)c->head_dim),
                                  .causal = true,
                                  .bf16 = m->arithmetic == ARES_BF16,
                                  .window =
                                      c->window && layer >= c->window_from_layer ? c->window : 0,
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

/* y = silu(gate) * up, of the block's gate and up side by side. */
static ares_gate_mul_args swiglu(const ares_model *m, int32_t rows, const block_saved *s, void *y)
{
    int32_t wide = m->cfg.intermediate;
    return (ares_gate_mul_args){ .rows = rows,
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
 * memory that it finds, which needs no launch of its own: only where the stream stays in place, and
 * not in a slice, which computes its columns elsewhere.
 */
static bool norms_add_biases(const ares_model *m, const block_pass *p, const block_saved *s)
{
    return stores_at_once(m, p) && s->x_mid == s->x_in && !m->tp;
}

/* The rotation of q and k, whose heads follow each other, and the cache's rows of k and v. */
static void rotate_and_store(const ares_model *m, const ares_model_layer *l, const block_pass *p,
                             const block_saved *s)
{
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    const ares_model_config *c = &m->cfg;
    widths n = widths_of(c);
    if (stores_at_once(m, p)) {
        ares_rope_store_args a = { .rows = p->rows,
                                   .n_heads = c->heads,
                                   .n_kv_heads = c->kv_heads,
                                   .head_dim = c->head_dim,
                                   .qkv = s->qkv,
                                   .ld = n.qkv,
                                   .q_bias = linear_bias(&l->q),
                                   .k_bias = linear_bias(&l->k),
                                   .v_bias = linear_bias(&l->v),
                                   .q_norm = param_vector(l->q_norm),
                                   .k_norm = param_vector(l->k_norm),
                                   .eps = c->rms_norm_eps,
                                   .cos_sin = p->cos_sin,
                                   .slots = p->slots,
                                   .cache = p->cache };
        k->rope_store(d, &a);
        return;
    }
    k->rope(d, p->rows, c->heads + c->kv_heads, c->head_dim, 0, s->qkv, n.qkv, p->cos_sin, false);
    if (p->cache)
        k->store_kv(d, p->rows, c->kv_heads, c->head_dim, acts_at(d, s->qkv, n.q),
                    acts_at(d, s->qkv, n.q + n.kv), n.qkv, p->slots, p->cache,
                    m->arithmetic == ARES_BF16);
}

/* Rows of width n, those of all ranks side by side in `all` where the model is a slice. */
static void *gathered(const ares_model *m, int32_t rows, void *mine, int64_t n, void *all)
{
    if (!m->tp) return mine;
    size_t bytes = (size_t)n * ares_dtype_bytes(m->device->k->act);
    ares_group_join(m->tp, ares_group_gather_columns(m->tp, mine, all, rows, bytes));
    return all;
}

/* out = stream + l(x); out may be the stream. A slice computes its columns, and gathers them. */
static void add_to_stream(const ares_model *m, const block_pass *p, const block_saved *s,
                          const block_scratch *t, const ares_linear *l, const void *x,
                          const void *stream, void *out)
{
    ares_device *d = m->device;
    int32_t n = l->w->weight.n;
    ares_linear_args a = linear_args(p->rows, l, x, stream, m->tp ? t->part : out, n);
    if (norms_add_biases(m, p, s)) a.bias = NULL;
    if (m->tp) {
        a.residual = acts_at(d, stream, (int64_t)ares_group_rank(m->tp) * n);
        a.ldr = m->cfg.hidden;
    }
    d->k->linear(d, &a, 1);
    const adapting beside = adapting_of(p, t);
    linears_adapt(d, &beside, &l, &a, 1);
    (void)gathered(m, p->rows, a.y, n, out);
}

void block_forward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                   const block_scratch *t, void *x_out)
{
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    const ares_model_config *c = &m->cfg;
    const ares_model_layer *l = &m->layer[layer];
    int32_t rows = p->rows, hidden = c->hidden;
    widths n = widths_of(c);
    const adapting beside = adapting_of(p, t);
    void *values = acts_at(d, s->qkv, n.q + n.kv);

    bool at_once = stores_at_once(m, p), early = norms_add_biases(m, p, s);
    norm(m, l->input_norm, rows, hidden, s->x_in, t->h, s->rstd_in, early ? &l->o : NULL);
    void *qk = s->qk_raw ? s->qk_raw : s->qkv;
    int64_t ld_qk = s->qk_raw ? n.q + n.kv : n.qkv;
    ares_linear_args qkv[] = { linear_args(p->rows, &l->q, t->h, NULL, qk, ld_qk),
                               linear_args(p->rows, &l->k, t->h, NULL, acts_at(d, qk, n.q), ld_qk),
                               linear_args(p->rows, &l->v, t->h, NULL, values, n.qkv) };
    for (int i = 0; at_once && i < 3; i++) qkv[i].bias = NULL;
    k->linear(d, qkv, 3);
    linears_adapt(d, &beside, (const ares_linear *[]){ &l->q, &l->k, &l->v }, qkv, 3);
    if (c->qk_norm && !at_once) head_norms(m, l, s, rows, qk, ld_qk, s->qkv, n.qkv);
    rotate_and_store(m, l, p, s);
    ares_attention_args a = attention(m, layer, p, s);
    k->attention(d, &a);
    add_to_stream(m, p, s, t, &l->o, gathered(m, rows, s->attn, n.q, t->all), s->x_in, s->x_mid);

    norm(m, l->post_norm, rows, hidden, s->x_mid, t->h, s->rstd_mid, early ? &l->down : NULL);
    ares_linear_args gate_up[] = {
        linear_args(p->rows, &l->gate, t->h, NULL, s->gate_up, 2 * n.wide),
        linear_args(p->rows, &l->up, t->h, NULL, acts_at(d, s->gate_up, n.wide), 2 * n.wide)
    };
    ares_gate_mul_args act = swiglu(m, rows, s, t->act);
    if (at_once) {
        gate_up[0].bias = gate_up[1].bias = NULL;
        act.gate_bias = linear_bias(&l->gate);
        act.up_bias = linear_bias(&l->up);
    }
    k->linear(d, gate_up, 2);
    linears_adapt(d, &beside, (const ares_linear *[]){ &l->gate, &l->up }, gate_up, 2);
    k->gate_mul(d, &act);
    add_to_stream(m, p, s, t, &l->down, gathered(m, rows, t->act, n.wide, t->all), s->x_mid, x_out);
}

void block_backward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                    const block_scratch *t, void *dx)
{
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    const ares_model_config *c = &m->cfg;
    const ares_model_layer *l = &m->layer[layer];
    int32_t rows = p->rows, hidden = c->hidden;
    widths n = widths_of(c);
    const adapting beside = adapting_of(p, t);
    void *d_qk = c->qk_norm ? t->d_qk : t->d_qkv;

    /* the MLP; its activation and the normed stream are computed again, cheaper than memory */
    linear_backward(d, &l->down, rows, dx, hidden, NULL, t->d_act, false);
    linear_adapt_backward(d, &beside, &l->down, dx, hidden, NULL, t->d_act);
    ares_gate_mul_args act = swiglu(m, rows, s, t->act);
    act.dy = t->d_act;
    act.lddy = n.wide;
    act.d_gate = t->d_gate_up;
    act.d_up = acts_at(d, t->d_gate_up, n.wide);
    act.lddgu = 2 * n.wide;
    k->gate_mul_backward(d, &act);
    linear_backward(d, &l->down, rows, dx, hidden, t->act, NULL, false);
    linear_adapt_backward(d, &beside, &l->down, dx, hidden, t->act, NULL);
    norm(m, l->post_norm, rows, hidden, s->x_mid, t->h, NULL, NULL);
    linears_backward(d, (const ares_linear *[]){ &l->gate, &l->up }, 2, rows, t->d_gate_up,
                     2 * n.wide, t->h, t->d_h);
    linear_adapt_backward(d, &beside, &l->gate, t->d_gate_up, 2 * n.wide, t->h, t->d_h);
    linear_adapt_backward(d, &beside, &l->up, acts_at(d, t->d_gate_up, n.wide), 2 * n.wide, t->h,
                          t->d_h);
    rms_norm_backward(d, l->post_norm, rows, hidden, t->d_h, s->x_mid, s->rstd_mid, dx);

    linear_backward(d, &l->o, rows, dx, hidden, s->attn, t->d_attn, false);
    linear_adapt_backward(d, &beside, &l->o, dx, hidden, s->attn, t->d_attn);
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
    k->rope(d, rows, c->heads + c->kv_heads, c->head_dim, 0, d_qk, n.qkv, p->cos_sin, true);
    if (c->qk_norm) head_norms_backward(m, l, s, rows, d_qk, t->d_qkv, n.qkv);
    norm(m, l->input_norm, rows, hidden, s->x_in, t->h, NULL, NULL);
    linears_backward(d, (const ares_linear *[]){ &l->q, &l->k, &l->v }, 3, rows, t->d_qkv, n.qkv,
                     t->h, t->d_h);
    linear_adapt_backward(d, &beside, &l->q, t->d_qkv, n.qkv, t->h, t->d_h);
    linear_adapt_backward(d, &beside, &l->k, acts_at(d, t->d_qkv, n.q), n.qkv, t->h, t->d_h);
    linear_adapt_backward(d, &beside, &l->v, acts_at(d, t->d_qkv, n.q + n.kv), n.qkv, t->h, t->d_h);
    rms_norm_backward(d, l->input_norm, rows, hidden, t->d_h, s->x_in, s->rstd_in, dx);
}

/*
 * Rotary angles as transformers computes them: inverse frequencies rounded to f32, the angle as an
 * f32 product, then cosine and sine of that f32 angle. Rows are computed in slabs of consecutive
 * positions and kept. Dynamic scaling depends on the length of the whole sequence, so rows of
 * sequences beyond max_position are computed at every call.
 */

enum { ROWS_PER_SLAB = 1024, MAX_SLABS = 1 << 14 };

struct ares_rope {
    ares_rope_config c;
    int32_t head_dim, max_position;
    float scale;     /* factor of cosines and sines */
    float *inv_freq; /* [head_dim / 2] */
    float *slab[MAX_SLABS];
    pthread_mutex_t lock;
};

static const double pi = 3.14159265358979323846;

/* YaRN (Peng et al., arXiv 2309.00071), in transformers' form: the scale of cosines and sines. */
static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * ares_f64_log(factor) + 1;
}

/* The dimension whose angle turns so many times over the trained positions. */
static double yarn_dim(double rotations, double dim, double base, double max_position)
{
    return dim * ares_f64_log(max_position / (rotations * 2 * pi)) / (2 * ares_f64_log(base));
}

/* inv_freq [head_dim / 2]: the frequencies for this theta, scaled as the kind of rope says. */
static void fill(const ares_rope_config *c, int32_t head_dim, double theta, float *inv_freq)
{
    int32_t half = head_dim / 2;
    double low = 0, high = 0;
    if (c->kind == ARES_ROPE_YARN) {
        low = yarn_dim(c->beta_fast, head_dim, theta, c->original_max_position);
        high = yarn_dim(c->beta_slow, head_dim, theta, c->original_max_position);
        if (c->truncate) {
            low = floor(low);
            high = ceil(high);
        }
        low = ARES_MAX(low, 0);
        high = ARES_MIN(high, head_dim - 1);
        if (low == high) high += 0.001;
    }
    for (int32_t i = 0; i < half; i++) {
        float base = (float)ares_f64_pow(theta, (double)(float)((float)(2 * i) / (float)head_dim));
        float f = 1.0f / base, factor = (float)c->factor;
        if (c->kind == ARES_ROPE_LINEAR) f /= factor;
        if (c->kind == ARES_ROPE_YARN) {
            float ramp = (float)(((double)i - low) / (high - low)),
                  interpolated = 1.0f / (factor * base);
            float own = 1.0f - ARES_MIN(ARES_MAX(ramp, 0.0f), 1.0f);
            f = interpolated * (1.0f - own) + f * own;
        }
        if (c->kind == ARES_ROPE_LLAMA3) {
            double wavelength = 2 * pi / (double)f, old = c->original_max_position;
            if (wavelength > old / c->low_freq_factor) f /= factor;
            else if (!(wavelength < old / c->high_freq_factor)) {
                float smooth = (float)((old / wavelength - c->low_freq_factor) /
                                       (c->high_freq_factor - c->low_freq_factor));
                f = (1.0f - smooth) * f / factor + smooth * f;
            }
        }
        inv_freq[i] = f;
    }
}

ares_rope *rope_new(const ares_model_config *m)
{
    ares_rope *r = ares_calloc(1, sizeof *r);
    r->c = m->rope;
    r->head_dim = m->head_dim;
    r->max_position = m->max_position;
    pthread_mutex_init(&r->lock, NULL);
    r->scale = 1;
    if (r->c.kind == ARES_ROPE_YARN) {
        double s = r->c.attention_factor;
        if (s < 0 && r->c.mscale != 0 && r->c.mscale_all_dim != 0)
            s = yarn_mscale(r->c.factor, r->c.mscale) /
                yarn_mscale(r->c.factor, r->c.mscale_all_dim);
        else if (s < 0) s = yarn_mscale(r->c.factor, 1);
        r->scale = (float)s;
    }
    r->inv_freq = ares_malloc((size_t)(r->head_dim / 2) * sizeof(float));
    fill(&r->c, r->head_dim, r->c.theta, r->inv_freq);
    return r;
}

void rope_free(ares_rope *r)
{
    if (!r) return;
    for (int i = 0; i < MAX_SLABS; i++) ares_free(r->slab[i]);
    pthread_mutex_destroy(&r->lock);
    ares_free(r->inv_freq);
    ares_free(r);
}

static void write_row(const ares_rope *r, const float *inv_freq, int32_t position, float *row)
{
    int32_t half = r->head_dim / 2;
    for (int32_t i = 0; i < half; i++) {
        float angle = (float)position * inv_freq[i];
        row[i] = (float)ares_f64_cos((double)angle) * r->scale;
        row[half + i] = (float)ares_f64_sin((double)angle) * r->scale;
    }
}

void rope_row(const ares_model *m, int32_t position, int32_t length, float *cos_sin)
{
    ares_rope *r = m->rope;
    size_t bytes = (size_t)r->head_dim * sizeof(float);
    if (r->c.kind == ARES_ROPE_DYNAMIC && length > r->max_position) {
        double stretch = r->c.factor * length / r->max_position - (r->c.factor - 1);
        double theta =
            r->c.theta * ares_f64_pow(stretch, (double)r->head_dim / (double)(r->head_dim - 2));
        float *inv_freq = ares_malloc(bytes / 2);
        fill(&r->c, r->head_dim, theta, inv_freq);
        write_row(r, inv_freq, position, cos_sin);
        ares_free(inv_freq);
        return;
    }
    int32_t s = position / ROWS_PER_SLAB;
    ARES_ASSERT(position >= 0 && s < MAX_SLABS);
    float *slab = __atomic_load_n(&r->slab[s], __ATOMIC_ACQUIRE);
    if (!slab) {
        pthread_mutex_lock(&r->lock);
        slab = r->slab[s];
        if (!slab) {
            slab = ares_malloc(ROWS_PER_SLAB * bytes);
            for (int32_t i = 0; i < ROWS_PER_SLAB; i++)
                write_row(r, r->inv_freq, s * ROWS_PER_SLAB + i,
                          slab + (size_t)i * (size_t)r->head_dim);
            __atomic_store_n(&r->slab[s], slab, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&r->lock);
    }
    memcpy(cos_sin, slab + (size_t)(position % ROWS_PER_SLAB) * (size_t)r->head_dim, bytes);
}

void rope_row_of_three(const ares_model *m, const int32_t position[3], int32_t length,
                       float *cos_sin)
{
    const int32_t *section = m->cfg.rope.section, half = m->cfg.head_dim / 2;
    rope_row(m, position[0], length, cos_sin);
    if (position[1] == position[0] && position[2] == position[0]) return;
    float *other = ares_malloc((size_t)half * 2 * sizeof *other);
    for (int a = 1, at = section[0]; a < 3; at += section[a++]) {
        size_t bytes = (size_t)section[a] * sizeof *other;
        rope_row(m, position[a], length, other);
        memcpy(cos_sin + at, other + at, bytes);
        memcpy(cos_sin + half + at, other + half + at, bytes);
    }
    ares_free(other);
}
