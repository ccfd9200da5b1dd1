/*
 * One block of the vision tower, forward and backward:
 *
 *   x_mid = x + proj(attention(norm1(x)))      x_out = x_mid + mlp(norm2(x_mid))
 *
 * Qwen2-VL has LayerNorm and quick GELU, Qwen2.5-VL RMS norms and silu(gate) * up.
 */
#include <math.h>

#include "linear.h"
#include "vision/tower.h"

static const float eps = 1e-6f;

static const ares_vision_config *config(const tower_pass *p)
{
    return &p->m->cfg.vision;
}

/* Of what the activation reads: the MLP's width, or gate and up side by side. */
static int64_t wide_of(const ares_vision_config *v)
{
    return v->intermediate * (v->gated ? 2 : 1);
}

static tower_stats carve_stats(carver *c, const ares_vision_config *v, int64_t rows)
{
    return (tower_stats){ v->gated ? NULL : carve_floats(c, rows, 1), carve_floats(c, rows, 1) };
}

void tower_carve_saved(carver *c, const ares_vision_config *v, bool back, int64_t rows,
                       tower_saved *s)
{
    *s = (tower_saved){ .qkv = carve(c, rows, 3 * (int64_t)v->width),
                        .attn = carve(c, rows, v->width),
                        .wide = carve(c, rows, wide_of(v)) };
    if (!back) return;
    s->in = carve_stats(c, v, rows);
    s->mid = carve_stats(c, v, rows);
    s->lse = carve_floats(c, rows, v->heads);
    s->x_mid = carve(c, rows, v->width);
}

void tower_carve_scratch(carver *c, const ares_vision_config *v, bool back, int64_t rows,
                         tower_scratch *t)
{
    *t = (tower_scratch){ .h = carve(c, rows, v->width), .act = carve(c, rows, v->intermediate) };
    if (!back) return;
    t->d_h = carve(c, rows, v->width);
    t->d_act = carve(c, rows, v->intermediate);
    t->d_wide = carve(c, rows, wide_of(v));
    t->d_attn = carve(c, rows, v->width);
    t->d_qkv = carve(c, rows, 3 * (int64_t)v->width);
}

void tower_norm(const tower_pass *p, const ares_param *w, const ares_param *bias, const void *x,
                tower_stats stats, void *y)
{
    ares_device *d = p->m->device;
    int32_t k = config(p)->width;
    if (config(p)->gated) {
        ares_rms_norm_args a = { .rows = p->rows,
                                 .k = k,
                                 .x = x,
                                 .ldx = k,
                                 .w = param_vector(w),
                                 .eps = eps,
                                 .y = y,
                                 .ldy = k,
                                 .rstd = stats.rstd };
        d->k->rms_norm(d, &a);
        return;
    }
    ares_layer_norm_args a = { .rows = p->rows,
                               .k = k,
                               .x = x,
                               .ldx = k,
                               .w = param_vector(w),
                               .bias = param_vector(bias),
                               .eps = eps,
                               .y = y,
                               .ldy = k,
                               .mean = stats.mean,
                               .rstd = stats.rstd };
    d->k->layer_norm(d, &a);
}

void tower_norm_backward(const tower_pass *p, const ares_param *w, const ares_param *bias,
                         const void *dy, const void *x, tower_stats stats, void *dx)
{
    ares_device *d = p->m->device;
    int32_t k = config(p)->width;
    if (config(p)->gated) {
        rms_norm_backward(d, w, p->rows, k, dy, x, stats.rstd, dx);
        return;
    }
    ares_layer_norm_args a = { .rows = p->rows,
                               .k = k,
                               .x = x,
                               .ldx = k,
                               .w = param_vector(w),
                               .bias = param_vector(bias),
                               .mean = stats.mean,
                               .rstd = stats.rstd,
                               .dy = dy,
                               .lddy = k,
                               .dx = dx,
                               .lddx = k,
                               .dw = param_vector_grad(w),
                               .dbias = param_vector_grad(bias) };
    d->k->layer_norm_backward(d, &a);
}

static void product(const tower_pass *p, const ares_linear *l, const void *x, const void *residual,
                    void *y)
{
    ares_linear_args a = linear_args(p->rows, l, x, residual, y, l->w->weight.n);
    p->m->device->k->linear(p->m->device, &a, 1);
}

static ares_attention_args attention(const tower_pass *p, int i, const tower_saved *s)
{
    const ares_device *d = p->m->device;
    const ares_vision_config *v = config(p);
    int32_t dim = v->width / v->heads;
    int64_t width = v->width;
    bool whole_frame = !v->window || v->full_blocks >> i & 1;
    return (ares_attention_args){ .seg = whole_frame ? p->frame : p->window,
                                  .n_heads = v->heads,
                                  .n_kv_heads = v->heads,
                                  .head_dim = dim,
                                  .scale = 1.0f / sqrtf((float)dim),
                                  .q = s->qkv,
                                  .ldq = 3 * width,
                                  .k = acts_at(d, s->qkv, width),
                                  .v = acts_at(d, s->qkv, 2 * width),
                                  .ldkv = 3 * width,
                                  .out = s->attn,
                                  .ldo = width,
                                  .lse = s->lse };
}

static void rotate(const tower_pass *p, void *qkv, bool inverse)
{
    const ares_vision_config *v = config(p);
    p->m->device->k->rope(p->m->device, p->rows, 2 * v->heads, v->width / v->heads, qkv,
                          3 * (int64_t)v->width, p->cos_sin, inverse);
}

static ares_silu_mul_args swiglu(const tower_pass *p, const tower_saved *s)
{
    int32_t wide = config(p)->intermediate;
    return (ares_silu_mul_args){ .rows = p->rows,
                                 .k = wide,
                                 .gate = s->wide,
                                 .up = acts_at(p->m->device, s->wide, wide),
                                 .ldgu = 2 * (int64_t)wide,
                                 .y = p->t.act,
                                 .ldy = wide };
}

static ares_activation_args activation(const tower_pass *p, const tower_saved *s)
{
    return (ares_activation_args){ .f = config(p)->activation,
                                   .n = (int64_t)p->rows * config(p)->intermediate,
                                   .x = s->wide,
                                   .y = p->t.act };
}

static void mlp(const tower_pass *p, const ares_tower_layer *l, const tower_saved *s)
{
    ares_device *d = p->m->device;
    int64_t wide = config(p)->intermediate;
    if (!config(p)->gated) {
        ares_activation_args a = activation(p, s);
        product(p, &l->gate, p->t.h, NULL, s->wide);
        d->k->activation(d, &a);
        return;
    }
    ares_silu_mul_args a = swiglu(p, s);
    ares_linear_args both[] = { linear_args(p->rows, &l->gate, p->t.h, NULL, s->wide, 2 * wide),
                                linear_args(p->rows, &l->up, p->t.h, NULL,
                                            acts_at(d, s->wide, wide), 2 * wide) };
    d->k->linear(d, both, 2);
    d->k->silu_mul(d, &a);
}

void tower_block_forward(const tower_pass *p, int i, const tower_saved *s, void *x_out)
{
    ares_device *d = p->m->device;
    const ares_tower_layer *l = &p->m->tower.layer[i];
    ares_attention_args a = attention(p, i, s);
    tower_norm(p, l->norm1, l->norm1_bias, s->x_in, s->in, p->t.h);
    product(p, &l->qkv, p->t.h, NULL, s->qkv);
    rotate(p, s->qkv, false);
    d->k->attention(d, &a);
    product(p, &l->proj, s->attn, s->x_in, s->x_mid);
    tower_norm(p, l->norm2, l->norm2_bias, s->x_mid, s->mid, p->t.h);
    mlp(p, l, s);
    product(p, &l->down, p->t.act, s->x_mid, x_out);
}

/* d_wide from d_act; the activation is computed again, which is cheaper than memory. */
static void activation_backward(const tower_pass *p, const tower_saved *s)
{
    ares_device *d = p->m->device;
    int64_t wide = config(p)->intermediate;
    if (!config(p)->gated) {
        ares_activation_args a = activation(p, s);
        d->k->activation(d, &a);
        a.dy = p->t.d_act;
        a.dx = p->t.d_wide;
        d->k->activation_backward(d, &a);
        return;
    }
    ares_silu_mul_args a = swiglu(p, s);
    a.dy = p->t.d_act;
    a.lddy = wide;
    a.d_gate = p->t.d_wide;
    a.d_up = acts_at(d, p->t.d_wide, wide);
    a.lddgu = 2 * wide;
    d->k->silu_mul_backward(d, &a);
}

static void mlp_backward(const tower_pass *p, const ares_tower_layer *l, const tower_saved *s,
                         void *dx)
{
    ares_device *d = p->m->device;
    const ares_vision_config *v = config(p);
    const tower_scratch *t = &p->t;
    linear_backward(d, &l->down, p->rows, dx, v->width, NULL, t->d_act, false);
    activation_backward(p, s);
    linear_backward(d, &l->down, p->rows, dx, v->width, t->act, NULL, false);
    tower_norm(p, l->norm2, l->norm2_bias, s->x_mid, (tower_stats){ 0 }, t->h);
    linears_backward(d, (const ares_linear *[]){ &l->gate, &l->up }, v->gated ? 2 : 1, p->rows,
                     t->d_wide, wide_of(v), t->h, t->d_h);
    tower_norm_backward(p, l->norm2, l->norm2_bias, t->d_h, s->x_mid, s->mid, dx);
}

void tower_block_backward(const tower_pass *p, int i, const tower_saved *s, void *dx)
{
    ares_device *d = p->m->device;
    const ares_tower_layer *l = &p->m->tower.layer[i];
    const tower_scratch *t = &p->t;
    int64_t width = config(p)->width;
    ares_attention_args a = attention(p, i, s);
    mlp_backward(p, l, s, dx);
    linear_backward(d, &l->proj, p->rows, dx, width, s->attn, t->d_attn, false);
    a.d_out = t->d_attn;
    a.dq = t->d_qkv;
    a.dk = acts_at(d, t->d_qkv, width);
    a.dv = acts_at(d, t->d_qkv, 2 * width);
    a.lddq = a.lddkv = 3 * width;
    d->k->attention_backward(d, &a);
    rotate(p, t->d_qkv, true);
    tower_norm(p, l->norm1, l->norm1_bias, s->x_in, (tower_stats){ 0 }, t->h);
    linear_backward(d, &l->qkv, p->rows, t->d_qkv, 3 * width, t->h, t->d_h, false);
    tower_norm_backward(p, l->norm1, l->norm1_bias, t->d_h, s->x_in, s->in, dx);
}
