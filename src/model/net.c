/* A gated delta net in place of a block's attention (docs/model.md#gated-delta-nets). */
#include "internal.h"

/* The widths of a row: of the convolution, of the values, and of a head's values. */
typedef struct widths {
    int64_t mixed, values;
    int32_t heads, dim;
} widths;
static widths widths_of(const ares_model *m)
{
    const ares_model_config *c = &m->cfg;
    return (widths){ net_width(c), (int64_t)c->net.v_heads * c->net.v_dim, c->net.v_heads,
                     c->net.v_dim };
}

static ares_conv_args conv_args(const ares_model *m, const ares_net *net, const block_pass *p,
                                const block_saved *s, const block_scratch *t)
{
    int64_t width = net_width(&m->cfg);
    return (ares_conv_args){ .seg = p->seg,
                             .width = (int32_t)width,
                             .kernel = m->cfg.net.kernel,
                             .x = s->mixed,
                             .ldx = width,
                             .w = &net->conv->weight,
                             .y = t->conv,
                             .ldy = width,
                             .window = p->window,
                             .from = p->from,
                             .to = p->to };
}

static ares_delta_args delta_args(const ares_model *m, const ares_net *net, const block_pass *p,
                                  const block_saved *s, const block_scratch *t)
{
    const ares_model_config *c = &m->cfg;
    widths n = widths_of(m);
    return (ares_delta_args){ .seg = p->seg,
                              .k_heads = c->net.k_heads,
                              .v_heads = c->net.v_heads,
                              .k_dim = c->net.k_dim,
                              .v_dim = c->net.v_dim,
                              .qkv = t->conv,
                              .ldqkv = n.mixed,
                              .a = acts_at(m->device, s->ba, n.heads),
                              .b = s->ba,
                              .ldab = 2 * (int64_t)n.heads,
                              .a_log = param_vector(net->a_log),
                              .dt_bias = param_vector(net->dt_bias),
                              .gates = t->gates,
                              .norms = t->norms,
                              .states = p->states,
                              .from = p->from,
                              .to = p->states ? p->to : p->kept_at,
                              .kept = s->kept,
                              .o = s->net_o,
                              .ldo = n.values };
}

void net_forward(const ares_model *m, const ares_net *net, const block_pass *p,
                 const block_saved *s, const block_scratch *t, const adapting *beside,
                 const void *h)
{
    ares_device *d = m->device;
    widths n = widths_of(m);
    int32_t rows = p->rows;
    const ares_linear_args products[] = {
        linear_args(rows, &net->qkv, h, NULL, s->mixed, n.mixed),
        linear_args(rows, &net->z, h, NULL, s->z, n.values),
        linear_args(rows, &net->b, h, NULL, s->ba, 2 * (int64_t)n.heads),
        linear_args(rows, &net->a, h, NULL, acts_at(d, s->ba, n.heads), 2 * (int64_t)n.heads)
    };
    d->k->linear(d, products, ARES_COUNT(products));
    linears_adapt(d, beside, (const ares_linear *[]){ &net->qkv, &net->z }, products, 2);
    linears_adapt(d, beside, (const ares_linear *[]){ &net->b, &net->a }, products + 2, 2);
    ares_conv_args conv = conv_args(m, net, p, s, t);
    d->k->conv(d, &conv);
    ares_delta_args delta = delta_args(m, net, p, s, t);
    d->k->delta(d, &delta);
}

/* Of the net's own norm, whose weight multiplies as it is. */
static ares_rms_norm_args norm_args(const ares_model *m, const ares_net *net, int32_t rows,
                                    const block_saved *s, const block_scratch *t)
{
    widths n = widths_of(m);
    return (ares_rms_norm_args){ .rows = rows * n.heads,
                                 .k = n.dim,
                                 .x = s->net_o,
                                 .ldx = n.dim,
                                 .w = param_vector(net->norm),
                                 .eps = m->cfg.rms_norm_eps,
                                 .y = t->normed,
                                 .ldy = n.dim,
                                 .rstd = s->net_rstd };
}
static ares_gate_mul_args gate_args(const ares_model *m, int32_t rows, const block_saved *s,
                                    const block_scratch *t)
{
    int64_t values = widths_of(m).values;
    return (ares_gate_mul_args){ .f = ARES_SILU,
                                 .rows = rows,
                                 .k = (int32_t)values,
                                 .gate = s->z,
                                 .up = t->normed,
                                 .ldgu = values,
                                 .y = t->gated,
                                 .ldy = values };
}

const void *net_output(const ares_model *m, const ares_net *net, int32_t rows, const block_saved *s,
                       const block_scratch *t)
{
    ares_rms_norm_args norm = norm_args(m, net, rows, s, t);
    ares_gate_mul_args gate = gate_args(m, rows, s, t);
    m->device->k->rms_norm(m->device, &norm);
    m->device->k->gate_mul(m->device, &gate);
    return t->gated;
}

void net_backward(const ares_model *m, const ares_net *net, const block_pass *p,
                  const block_saved *s, const block_scratch *t, const adapting *beside,
                  const void *h, void *d_h, bool accumulate)
{
    ares_device *d = m->device;
    widths n = widths_of(m);
    int32_t rows = p->rows;
    ares_gate_mul_args gate = gate_args(m, rows, s, t);
    gate.y = NULL;
    gate.dy = t->d_attn;
    gate.lddy = gate.lddgu = n.values;
    gate.d_gate = t->d_z;
    gate.d_up = t->d_attn; /* in place */
    d->k->gate_mul_backward(d, &gate);

    ares_rms_norm_args norm = norm_args(m, net, rows, s, t);
    norm.dy = t->d_attn;
    norm.dx = t->d_net_o;
    norm.lddy = norm.lddx = n.dim;
    norm.dw = param_vector_grad(net->norm);
    d->k->zero(d, t->d_net_o, (size_t)(rows * n.values) * sizeof *t->d_net_o);
    d->k->rms_norm_backward(d, &norm);

    /* q, k and v of the recurrence are computed again, cheaper than memory */
    ares_conv_args conv = conv_args(m, net, p, s, t);
    d->k->conv(d, &conv);
    ares_delta_args delta = delta_args(m, net, p, s, t);
    delta.d_o = t->d_net_o;
    delta.lddo = n.values;
    delta.dqkv = t->d_conv;
    delta.lddqkv = n.mixed;
    delta.da = acts_at(d, t->d_ba, n.heads);
    delta.db = t->d_ba;
    delta.lddab = 2 * (int64_t)n.heads;
    delta.da_log = param_vector_grad(net->a_log);
    delta.d_dt_bias = param_vector_grad(net->dt_bias);
    d->k->delta_backward(d, &delta);
    conv.dy = t->d_conv;
    conv.lddy = conv.lddx = n.mixed;
    conv.dx = t->conv; /* which nothing reads any more */
    conv.dw = net->conv->grad.data ? &net->conv->grad : NULL;
    d->k->conv_backward(d, &conv);

    const struct {
        const ares_linear *l;
        const void *dy;
        int64_t ld;
    } products[] = { { &net->qkv, t->conv, n.mixed },
                     { &net->z, t->d_z, n.values },
                     { &net->b, t->d_ba, 2 * (int64_t)n.heads },
                     { &net->a, acts_at(d, t->d_ba, n.heads), 2 * (int64_t)n.heads } };
    for (int i = 0; i < ARES_COUNT(products); i++)
        linear_backward(d, products[i].l, rows, products[i].dy, products[i].ld, h, d_h,
                        accumulate || i > 0);
    for (int i = 0; i < ARES_COUNT(products); i++)
        linear_adapt_backward(d, beside, products[i].l, products[i].dy, products[i].ld, h, d_h);
}
