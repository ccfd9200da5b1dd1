/*
 * The MLP of a block as a mixture of experts (Shazeer et al., arXiv 1701.06538; as in Qwen3-MoE and
 * OLMoE): a router gives each row to some of the experts, and the row's output is the weighted sum
 * of theirs (ares_route_args, ares_combine_args).
 *
 * A row's logits are the same chain whether the row comes alone or among others, so its experts
 * are the same while decoding and in an update; each expert's products do not depend on how many
 * rows it has, and sums go by the experts' numbers, never by arrival. So rollout equals training in
 * every bit without a record of what was chosen (docs/model.md#experts).
 */
#include "internal.h"

/* In packed order row after row of expert 0, then of expert 1 ...: a "slot" each. */
static int32_t slots_of(const ares_model *m, int32_t rows)
{
    return rows * m->cfg.experts_used;
}

static ares_route_args route_args(const ares_model *m, int32_t rows, const block_saved *s)
{
    return (ares_route_args){ .rows = rows,
                              .experts = m->cfg.experts,
                              .used = m->cfg.experts_used,
                              .norm = m->cfg.experts_norm,
                              .logits = s->logits,
                              .ldl = m->cfg.experts,
                              .expert = s->expert,
                              .weight = s->weight,
                              .first = s->first,
                              .row_of = s->row_of,
                              .slot_of = s->slot_of };
}

static ares_combine_args combine_args(const ares_model *m, int32_t rows, const block_saved *s,
                                      const block_scratch *t)
{
    return (ares_combine_args){ .rows = rows,
                                .used = m->cfg.experts_used,
                                .width = m->cfg.hidden,
                                .slot_of = s->slot_of,
                                .weight = s->weight,
                                .out = t->out,
                                .ldo = m->cfg.hidden };
}

/* y = silu(gate) * up of all slots. */
static ares_gate_mul_args gated(const ares_model *m, int32_t rows, const block_saved *s, void *y)
{
    int32_t wide = m->cfg.expert_width;
    return (ares_gate_mul_args){ .f = m->cfg.mlp_activation,
                                 .rows = slots_of(m, rows),
                                 .k = wide,
                                 .gate = s->gate_up,
                                 .up = acts_at(m->device, s->gate_up, wide),
                                 .ldgu = 2 * (int64_t)wide,
                                 .y = y,
                                 .ldy = wide };
}

/* The rows of h in the order of slots. */
static void pack(const ares_model *m, int32_t rows, const block_saved *s, const block_scratch *t,
                 const void *h)
{
    ares_device *d = m->device;
    int32_t hidden = m->cfg.hidden;
    /* the look-up of an embedding gathers rows */
    const ares_matrix all = { (void *)(uintptr_t)h, d->k->act, ARES_ROWS, rows, hidden };
    d->k->embedding(d, &all, s->row_of, slots_of(m, rows), t->packed, hidden, 0);
}

/* Who goes where, and gate and up of every expert's rows: what is kept for a backward. */
static void enter(const ares_model *m, const ares_model_layer *l, int32_t rows,
                  const block_saved *s, const block_scratch *t, const void *h)
{
    ares_device *d = m->device;
    const ares_model_config *c = &m->cfg;
    int64_t wide = c->expert_width;
    ares_linear_args logits = linear_args(rows, &l->router, h, NULL, s->logits, c->experts);
    d->k->linear(d, &logits, 1);
    ares_route_args route = route_args(m, rows, s);
    route.entropy = t->entropy;
    d->k->route(d, &route);
    pack(m, rows, s, t, h);
    int n = 0;
    for (int32_t e = 0; e < c->experts; e++) {
        const ares_expert *x = &l->expert[e];
        int32_t first = s->first[e], count = s->first[e + 1] - first;
        const void *in = acts_at(d, t->packed, (int64_t)first * c->hidden);
        void *to = acts_at(d, s->gate_up, 2 * first * wide);
        if (!count) continue;
        t->products[n++] = linear_args(count, &x->gate, in, NULL, to, 2 * wide);
        t->products[n++] = linear_args(count, &x->up, in, NULL, acts_at(d, to, wide), 2 * wide);
    }
    d->k->linear(d, t->products, n);
}

/* What each expert gives its rows, from t->act into t->out. */
static void leave(const ares_model *m, const ares_model_layer *l, const block_saved *s,
                  const block_scratch *t)
{
    ares_device *d = m->device;
    const ares_model_config *c = &m->cfg;
    int n = 0;
    for (int32_t e = 0; e < c->experts; e++) {
        int32_t first = s->first[e], count = s->first[e + 1] - first;
        if (count)
            t->products[n++] = linear_args(
                count, &l->expert[e].down, acts_at(d, t->act, (int64_t)first * c->expert_width),
                NULL, acts_at(d, t->out, (int64_t)first * c->hidden), c->hidden);
    }
    d->k->linear(d, t->products, n);
}

void experts_forward(const ares_model *m, const ares_model_layer *l, int32_t rows,
                     const block_saved *s, const block_scratch *t, const void *h, void *x_out)
{
    ares_device *d = m->device;
    ares_gate_mul_args act = gated(m, rows, s, t->act);
    enter(m, l, rows, s, t, h);
    d->k->gate_mul(d, &act);
    leave(m, l, s, t);
    ares_combine_args sum = combine_args(m, rows, s, t);
    sum.residual = s->x_mid;
    sum.y = x_out;
    sum.ldr = sum.ldy = m->cfg.hidden;
    d->k->combine(d, &sum);
}

/* The gradients of a product: that of x, and of the weight where it is trained. */
static ares_linear_backward_args backward_args(const ares_matrix *w, const ares_matrix *dw,
                                               int32_t count, const void *dy, int64_t lddy,
                                               const void *x, void *dx)
{
    return (ares_linear_backward_args){ .m = count,
                                        .dy = dy,
                                        .lddy = lddy,
                                        .w = w,
                                        .dx = dx,
                                        .lddx = w->k,
                                        .x = dw->data ? x : NULL,
                                        .ldx = w->k,
                                        .dw = dw->data ? dw : NULL };
}

/* From t->out, d out of the slots, to d_packed, which takes its place; and the weights' gradients.
 */
static void products_backward(const ares_model *m, const ares_model_layer *l, int32_t rows,
                              const block_saved *s, const block_scratch *t)
{
    ares_device *d = m->device;
    const ares_model_config *c = &m->cfg;
    int64_t wide = c->expert_width, hidden = c->hidden;
    ares_linear_backward_args *list = t->gradients, *more = list + c->experts;
    int n = 0, n_more = 0;
    for (int32_t e = 0; e < c->experts; e++) {
        int64_t first = s->first[e];
        int32_t count = s->first[e + 1] - s->first[e];
        const ares_param *w = l->expert[e].down.w;
        if (count)
            list[n++] = backward_args(
                &w->weight, &w->grad, count, acts_at(d, t->out, first * hidden), hidden,
                acts_at(d, t->act, first * wide), acts_at(d, t->d_act, first * wide));
    }
    d->k->linear_backward(d, list, n);
    ares_gate_mul_args act = gated(m, rows, s, NULL);
    act.dy = t->d_act;
    act.lddy = wide;
    act.d_gate = t->d_gate_up;
    act.d_up = acts_at(d, t->d_gate_up, wide);
    act.lddgu = 2 * wide;
    d->k->gate_mul_backward(d, &act);
    n = 0;
    for (int32_t e = 0; e < c->experts; e++) {
        const ares_expert *x = &l->expert[e];
        int64_t first = s->first[e];
        int32_t count = s->first[e + 1] - s->first[e];
        const void *dy = acts_at(d, t->d_gate_up, 2 * first * wide),
                   *in = acts_at(d, t->packed, first * hidden);
        void *dx = acts_at(d, t->out, first * hidden);
        if (!count) continue;
        const ares_param *gate = x->gate.w, *up = x->up.w;
        if (linears_adjacent(&x->gate, &x->up)) { /* one product, so that nothing rounds dx */
            ares_matrix *both = &t->both[2 * e];
            both[0] = gate->weight;
            both[1] = gate->grad;
            both[0].n = both[1].n = 2 * gate->weight.n;
            list[n++] = backward_args(&both[0], &both[1], count, dy, 2 * wide, in, dx);
            continue;
        }
        list[n++] = backward_args(&gate->weight, &gate->grad, count, dy, 2 * wide, in, dx);
        more[n_more] =
            backward_args(&up->weight, &up->grad, count, acts_at(d, dy, wide), 2 * wide, in, dx);
        more[n_more++].accumulate = true;
    }
    d->k->linear_backward(d, list, n);
    if (n_more) d->k->linear_backward(d, more, n_more);
}

void experts_backward(const ares_model *m, const ares_model_layer *l, int32_t rows, bool moved,
                      const block_saved *s, const block_scratch *t, const void *h, const void *dx,
                      void *d_h, bool accumulate)
{
    ares_device *d = m->device;
    const ares_model_config *c = &m->cfg;
    if (moved) enter(m, l, rows, s, t, h); /* slots are those of the rows that are left */
    else pack(m, rows, s, t, h);
    /* what the experts gave is computed again, cheaper than memory */
    ares_gate_mul_args act = gated(m, rows, s, t->act);
    d->k->gate_mul(d, &act);
    leave(m, l, s, t);
    ares_combine_args sum = combine_args(m, rows, s, t);
    sum.dy = dx;
    sum.lddy = c->hidden;
    sum.c = t->c;
    sum.d_out = t->out;
    sum.lddo = c->hidden;
    d->k->combine_backward(d, &sum);
    products_backward(m, l, rows, s, t);
    ares_combine_args back = combine_args(m, rows, s, t);
    back.weight = NULL;
    back.residual = accumulate ? d_h : NULL;
    back.y = d_h;
    back.ldr = back.ldy = c->hidden;
    d->k->combine(d, &back);
    ares_route_args route = route_args(m, rows, s);
    route.c = t->c;
    route.dl = t->d_logits;
    route.lddl = c->experts;
    d->k->route_backward(d, &route);
    linear_backward(d, &l->router, rows, t->d_logits, c->experts, h, d_h, true);
}
