/*
 * One decoder block, forward and backward, for every architecture of the table and every use:
 * prefill, decode, log-probs, training.
 *
 *   x_mid = x + Wo attention(norm(x))      x_out = x_mid + Wdown (silu(gate) * up)(norm(x_mid))
 */
#include "block.h"

#include <math.h>

static const float *vector(const ares_param *p)
{
    return p ? p->weight.data : NULL;
}
static float *vector_grad(const ares_param *p)
{
    return p ? p->grad.data : NULL;
}

static ares_linear_args product(const ares_linear *l, int32_t rows, const float *x,
                                const float *residual, float *y)
{
    return (ares_linear_args){ .m = rows,
                               .x = x,
                               .ldx = l->w->weight.k,
                               .w = &l->w->weight,
                               .bias = vector(l->bias),
                               .residual = residual,
                               .ldr = l->w->weight.n,
                               .y = y,
                               .ldy = l->w->weight.n };
}

/* The gradients of y = l(x): the weight's where x is given, x's where dx is given. */
static void product_backward(ares_device *d, const ares_linear *l, int32_t rows, const float *dy,
                             const float *x, float *dx, bool accumulate)
{
    ares_linear_backward_args a = { .m = rows,
                                    .dy = dy,
                                    .lddy = l->w->weight.n,
                                    .w = &l->w->weight,
                                    .dx = dx,
                                    .lddx = l->w->weight.k,
                                    .accumulate = accumulate };
    if (x && l->w->grad.data) {
        a.x = x;
        a.ldx = l->w->weight.k;
        a.dw = &l->w->grad;
        a.dbias = vector_grad(l->bias);
    }
    d->k->linear_backward(d, &a);
}

/* y = norm(x) over rows of width k; rstd may be NULL. */
static void norm(const ares_model *m, const ares_param *w, int32_t rows, int32_t k, const float *x,
                 float *y, float *rstd)
{
    ares_rms_norm_args a = { .rows = rows,
                             .k = k,
                             .x = x,
                             .ldx = k,
                             .w = vector(w),
                             .eps = m->cfg.rms_norm_eps,
                             .y = y,
                             .ldy = k,
                             .rstd = rstd };
    m->device->k->rms_norm(m->device, &a);
}

/* dx += the gradient of x, and the weight's gradient; rstd is the forward's. */
static void norm_backward(ares_device *d, const ares_param *w, int32_t rows, int32_t k,
                          const float *dy, const float *x, const float *rstd, float *dx)
{
    ares_rms_norm_args a = { .rows = rows,
                             .k = k,
                             .x = x,
                             .ldx = k,
                             .w = vector(w),
                             .rstd = (float *)rstd,
                             .dy = dy,
                             .lddy = k,
                             .dx = dx,
                             .lddx = k,
                             .dw = vector_grad(w) };
    d->k->rms_norm_backward(d, &a);
}

static ares_attention_args attention(const ares_model *m, int layer, const block_pass *p,
                                     const block_saved *s)
{
    const ares_model_config *c = &m->cfg;
    return (ares_attention_args){ .seg = p->seg,
                                  .n_heads = c->heads,
                                  .n_kv_heads = c->kv_heads,
                                  .head_dim = c->head_dim,
                                  .scale = 1.0f / sqrtf((float)c->head_dim),
                                  .causal = true,
                                  .window =
                                      c->window && layer >= c->window_from_layer ? c->window : 0,
                                  .q = s->q,
                                  .ldq = (int64_t)c->heads * c->head_dim,
                                  .k = s->k,
                                  .v = s->v,
                                  .ldkv = (int64_t)c->kv_heads * c->head_dim,
                                  .cache = p->cache,
                                  .out = s->attn,
                                  .ldo = (int64_t)c->heads * c->head_dim,
                                  .lse = s->lse };
}

void block_forward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                   const block_scratch *t, float *x_out)
{
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    const ares_model_config *c = &m->cfg;
    const ares_model_layer *l = &m->layer[layer];
    int32_t rows = p->rows, hidden = c->hidden, dim = c->head_dim;
    bool qk_norm = c->qk_norm;

    norm(m, l->input_norm, rows, hidden, s->x_in, t->h, s->rstd_in);
    ares_linear_args qkv[] = { product(&l->q, rows, t->h, NULL, qk_norm ? s->q_raw : s->q),
                               product(&l->k, rows, t->h, NULL, qk_norm ? s->k_raw : s->k),
                               product(&l->v, rows, t->h, NULL, s->v) };
    k->linear(d, qkv, 3);
    if (qk_norm) {
        norm(m, l->q_norm, rows * c->heads, dim, s->q_raw, s->q, s->q_rstd);
        norm(m, l->k_norm, rows * c->kv_heads, dim, s->k_raw, s->k, s->k_rstd);
    }
    k->rope(d, rows, c->heads, dim, s->q, (int64_t)c->heads * dim, p->cos_sin, false);
    k->rope(d, rows, c->kv_heads, dim, s->k, (int64_t)c->kv_heads * dim, p->cos_sin, false);
    if (p->cache)
        k->store_kv(d, rows, c->kv_heads, dim, s->k, s->v, (int64_t)c->kv_heads * dim, p->slots,
                    p->cache);
    ares_attention_args a = attention(m, layer, p, s);
    k->attention(d, &a);
    ares_linear_args o = product(&l->o, rows, s->attn, s->x_in, s->x_mid);
    k->linear(d, &o, 1);

    norm(m, l->post_norm, rows, hidden, s->x_mid, t->h, s->rstd_mid);
    ares_linear_args gate_up[] = { product(&l->gate, rows, t->h, NULL, s->gate),
                                   product(&l->up, rows, t->h, NULL, s->up) };
    k->linear(d, gate_up, 2);
    ares_silu_mul_args act = { .rows = rows,
                               .k = c->intermediate,
                               .gate = s->gate,
                               .up = s->up,
                               .ldgu = c->intermediate,
                               .y = t->act,
                               .ldy = c->intermediate };
    k->silu_mul(d, &act);
    ares_linear_args down = product(&l->down, rows, t->act, s->x_mid, x_out);
    k->linear(d, &down, 1);
}

void block_backward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                    const block_scratch *t, float *dx)
{
    ares_device *d = m->device;
    const ares_kernels *k = d->k;
    const ares_model_config *c = &m->cfg;
    const ares_model_layer *l = &m->layer[layer];
    int32_t rows = p->rows, hidden = c->hidden, dim = c->head_dim, wide = c->intermediate;
    int64_t kv = (int64_t)c->kv_heads * dim, q = (int64_t)c->heads * dim;

    /* MLP: the activation and the normed stream are computed again, which is cheaper than memory */
    product_backward(d, &l->down, rows, dx, NULL, t->d_act, false);
    ares_silu_mul_args act = { .rows = rows,
                               .k = wide,
                               .gate = s->gate,
                               .up = s->up,
                               .ldgu = wide,
                               .y = t->act,
                               .ldy = wide,
                               .dy = t->d_act,
                               .lddy = wide,
                               .d_gate = t->d_gate,
                               .d_up = t->d_up,
                               .lddgu = wide };
    k->silu_mul_backward(d, &act);
    product_backward(d, &l->down, rows, dx, t->act, NULL, false);
    norm(m, l->post_norm, rows, hidden, s->x_mid, t->h, NULL);
    product_backward(d, &l->gate, rows, t->d_gate, t->h, t->d_h, false);
    product_backward(d, &l->up, rows, t->d_up, t->h, t->d_h, true);
    norm_backward(d, l->post_norm, rows, hidden, t->d_h, s->x_mid, s->rstd_mid, dx);

    product_backward(d, &l->o, rows, dx, s->attn, t->d_attn, false);
    ares_attention_args a = attention(m, layer, p, s);
    a.d_out = t->d_attn;
    a.dq = t->d_q;
    a.lddq = q;
    a.dk = t->d_k;
    a.dv = t->d_v;
    a.lddkv = kv;
    k->attention_backward(d, &a);
    k->rope(d, rows, c->heads, dim, t->d_q, q, p->cos_sin, true);
    k->rope(d, rows, c->kv_heads, dim, t->d_k, kv, p->cos_sin, true);
    float *d_q = t->d_q, *d_k = t->d_k;
    if (c->qk_norm) {
        /* d_attn and act are free by now; rms_norm_backward adds */
        d_q = t->d_attn;
        d_k = t->act;
        k->zero(d, d_q, (size_t)(rows * q) * sizeof(float));
        k->zero(d, d_k, (size_t)(rows * kv) * sizeof(float));
        norm_backward(d, l->q_norm, rows * c->heads, dim, t->d_q, s->q_raw, s->q_rstd, d_q);
        norm_backward(d, l->k_norm, rows * c->kv_heads, dim, t->d_k, s->k_raw, s->k_rstd, d_k);
    }
    norm(m, l->input_norm, rows, hidden, s->x_in, t->h, NULL);
    product_backward(d, &l->q, rows, d_q, t->h, t->d_h, false);
    product_backward(d, &l->k, rows, d_k, t->h, t->d_h, true);
    product_backward(d, &l->v, rows, t->d_v, t->h, t->d_h, true);
    norm_backward(d, l->input_norm, rows, hidden, t->d_h, s->x_in, s->rstd_in, dx);
}
