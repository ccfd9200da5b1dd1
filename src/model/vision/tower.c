/*
 * The vision tower. In order: one block; where patches are and how attention's windows order
 * them; the passes over a picture; the list of its parameters.
 */
#include "../internal.h"

#include <math.h>

#include "ares/kernels.h"

/*
 * One block of the vision tower, forward and backward:
 *
 *   x_mid = x + proj(attention(norm1(x)))      x_out = x_mid + mlp(norm2(x_mid))
 *
 * Qwen2-VL has LayerNorm and quick GELU, Qwen2.5-VL RMS norms and silu(gate) * up.
 */

static const float eps = 1e-6f;

/* Buffers that every block uses and none keeps; those named d_ are for backward. */
typedef struct tower_scratch {
    void *h, *act; /* [rows][width], [rows][I] */
    void *d_h, *d_act, *d_wide, *d_attn, *d_qkv;
} tower_scratch;

/* The rows of a picture or video, in the order of windows. */
typedef struct tower_pass {
    ares_model *m;
    int32_t rows;
    ares_segments frame, window; /* rows that see each other */
    const float *cos_sin;        /* [rows][width / heads] */
    tower_scratch t;
    ares_adapted adapted; /* the same adapter for all rows */
    adapting beside;      /* its products; no runs: it has none in the tower */
} tower_pass;

static const ares_vision_config *pass_config(const tower_pass *p)
{
    return &p->m->cfg.vision;
}

/* Of what the activation reads: the MLP's width, or gate and up side by side. */
static int64_t wide_of(const ares_vision_config *v)
{
    return v->intermediate * (v->gated ? 2 : 1);
}

/* What a norm keeps per row for its backward; mean only in LayerNorm. NULL: there is no backward.
 */
typedef struct tower_stats {
    float *mean, *rstd;
} tower_stats;

static tower_stats carve_stats(carver *c, const ares_vision_config *v, int64_t rows)
{
    return (tower_stats){ v->gated ? NULL : carve_floats(c, rows, 1), carve_floats(c, rows, 1) };
}

/* What a block keeps for its backward. */
typedef struct tower_saved {
    void *x_in; /* [rows][width] */
    tower_stats in, mid;
    void *qkv;   /* [rows][3 width], after rotation */
    void *attn;  /* [rows][width] */
    float *lse;  /* [rows][heads] */
    void *x_mid; /* the stream between attention and MLP; x_in where there is no backward */
    void *wide;  /* [rows][I], [rows][2 I] if gated: what the activation reads */
} tower_saved;
static void tower_norm(const tower_pass *p, const ares_param *w, const ares_param *bias,
                       const void *x, tower_stats stats, void *y)
{
    ares_device *d = p->m->device;
    int32_t k = pass_config(p)->width;
    if (pass_config(p)->gated) {
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

/* dx += the gradient of x, and those of the weight and of the bias. */
static void tower_norm_backward(const tower_pass *p, const ares_param *w, const ares_param *bias,
                                const void *dy, const void *x, tower_stats stats, void *dx)
{
    ares_device *d = p->m->device;
    int32_t k = pass_config(p)->width;
    if (pass_config(p)->gated) {
        rms_norm_backward(d, w, false, p->rows, k, dy, x, stats.rstd, dx);
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

static void block_product(const tower_pass *p, const ares_linear *l, const void *x,
                          const void *residual, void *y)
{
    ares_linear_args a = linear_args(p->rows, l, x, residual, y, l->w->weight.n);
    p->m->device->k->linear(p->m->device, &a, 1);
    linears_adapt(p->m->device, &p->beside, &l, &a, 1);
}

static ares_attention_args attention(const tower_pass *p, int i, const tower_saved *s)
{
    const ares_device *d = p->m->device;
    const ares_vision_config *v = pass_config(p);
    int32_t dim = v->width / v->heads;
    int64_t width = v->width;
    bool whole_frame = !v->window || v->full_blocks >> i & 1;
    return (ares_attention_args){ .seg = whole_frame ? p->frame : p->window,
                                  .n_heads = v->heads,
                                  .n_kv_heads = v->heads,
                                  .head_dim = dim,
                                  .scale = 1.0f / sqrtf((float)dim),
                                  .bf16 = p->m->arithmetic == ARES_BF16,
                                  .q = s->qkv,
                                  .ldq = 3 * width,
                                  .k = acts_at(d, s->qkv, width),
                                  .v = acts_at(d, s->qkv, 2 * width),
                                  .ldkv = 3 * width,
                                  .out = s->attn,
                                  .ldo = width,
                                  .lse = s->lse };
}

/* q and k, whose heads follow each other; inverse: of their derivatives. */
static void rotate(const tower_pass *p, void *qkv, bool inverse)
{
    const ares_vision_config *v = pass_config(p);
    p->m->device->k->rope(p->m->device, p->rows, 2 * v->heads, v->width / v->heads, 0, qkv,
                          3 * (int64_t)v->width, p->cos_sin, inverse);
}

static ares_gate_mul_args swiglu(const tower_pass *p, const tower_saved *s)
{
    int32_t wide = pass_config(p)->intermediate;
    return (ares_gate_mul_args){ .rows = p->rows,
                                 .k = wide,
                                 .gate = s->wide,
                                 .up = acts_at(p->m->device, s->wide, wide),
                                 .ldgu = 2 * (int64_t)wide,
                                 .y = p->t.act,
                                 .ldy = wide };
}

static ares_activation_args activation(const tower_pass *p, const tower_saved *s)
{
    return (ares_activation_args){ .f = pass_config(p)->activation,
                                   .n = (int64_t)p->rows * pass_config(p)->intermediate,
                                   .x = s->wide,
                                   .y = p->t.act };
}

/* t.act from the normed stream t.h. */
static void mlp(const tower_pass *p, const ares_tower_layer *l, const tower_saved *s)
{
    ares_device *d = p->m->device;
    int64_t wide = pass_config(p)->intermediate;
    if (!pass_config(p)->gated) {
        ares_activation_args a = activation(p, s);
        block_product(p, &l->gate, p->t.h, NULL, s->wide);
        d->k->activation(d, &a);
        return;
    }
    ares_gate_mul_args a = swiglu(p, s);
    ares_linear_args both[] = { linear_args(p->rows, &l->gate, p->t.h, NULL, s->wide, 2 * wide),
                                linear_args(p->rows, &l->up, p->t.h, NULL,
                                            acts_at(d, s->wide, wide), 2 * wide) };
    d->k->linear(d, both, 2);
    linears_adapt(d, &p->beside, (const ares_linear *[]){ &l->gate, &l->up }, both, 2);
    d->k->gate_mul(d, &a);
}

/* x_out = the stream after block i; it may be s->x_in. */
static void tower_block_forward(const tower_pass *p, int i, const tower_saved *s, void *x_out)
{
    ares_device *d = p->m->device;
    const ares_tower_layer *l = &p->m->tower.layer[i];
    ares_attention_args a = attention(p, i, s);
    tower_norm(p, l->norm1, l->norm1_bias, s->x_in, s->in, p->t.h);
    block_product(p, &l->qkv, p->t.h, NULL, s->qkv);
    rotate(p, s->qkv, false);
    d->k->attention(d, &a);
    block_product(p, &l->proj, s->attn, s->x_in, s->x_mid);
    tower_norm(p, l->norm2, l->norm2_bias, s->x_mid, s->mid, p->t.h);
    mlp(p, l, s);
    block_product(p, &l->down, p->t.act, s->x_mid, x_out);
}

/* d_wide from d_act; the activation is computed again, which is cheaper than memory. */
static void activation_backward(const tower_pass *p, const tower_saved *s)
{
    ares_device *d = p->m->device;
    int64_t wide = pass_config(p)->intermediate;
    if (!pass_config(p)->gated) {
        ares_activation_args a = activation(p, s);
        d->k->activation(d, &a);
        a.dy = p->t.d_act;
        a.dx = p->t.d_wide;
        d->k->activation_backward(d, &a);
        return;
    }
    ares_gate_mul_args a = swiglu(p, s);
    a.dy = p->t.d_act;
    a.lddy = wide;
    a.d_gate = p->t.d_wide;
    a.d_up = acts_at(d, p->t.d_wide, wide);
    a.lddgu = 2 * wide;
    d->k->gate_mul_backward(d, &a);
}
/* dx [rows][width]: d loss / d x_out on entry, d loss / d x_in on return. */
static void tower_block_backward(const tower_pass *p, int i, const tower_saved *s, void *dx)
{
    ares_device *d = p->m->device;
    const ares_tower_layer *l = &p->m->tower.layer[i];
    const tower_scratch *t = &p->t;
    const ares_vision_config *v = pass_config(p);
    int64_t width = v->width;
    ares_attention_args a = attention(p, i, s);
    linear_backward(d, &l->down, p->rows, dx, width, NULL, t->d_act, false);
    linear_adapt_backward(d, &p->beside, &l->down, dx, width, NULL, t->d_act);
    activation_backward(p, s);
    linear_backward(d, &l->down, p->rows, dx, width, t->act, NULL, false);
    linear_adapt_backward(d, &p->beside, &l->down, dx, width, t->act, NULL);
    tower_norm(p, l->norm2, l->norm2_bias, s->x_mid, (tower_stats){ 0 }, t->h);
    linears_backward(d, (const ares_linear *[]){ &l->gate, &l->up }, v->gated ? 2 : 1, p->rows,
                     t->d_wide, wide_of(v), t->h, t->d_h, false);
    linear_adapt_backward(d, &p->beside, &l->gate, t->d_wide, wide_of(v), t->h, t->d_h);
    if (v->gated)
        linear_adapt_backward(d, &p->beside, &l->up, acts_at(d, t->d_wide, v->intermediate),
                              wide_of(v), t->h, t->d_h);
    tower_norm_backward(p, l->norm2, l->norm2_bias, t->d_h, s->x_mid, s->mid, dx);

    linear_backward(d, &l->proj, p->rows, dx, width, s->attn, t->d_attn, false);
    linear_adapt_backward(d, &p->beside, &l->proj, dx, width, s->attn, t->d_attn);
    a.d_out = t->d_attn;
    a.dq = t->d_qkv;
    a.dk = acts_at(d, t->d_qkv, width);
    a.dv = acts_at(d, t->d_qkv, 2 * width);
    a.lddq = a.lddkv = 3 * width;
    d->k->attention_backward(d, &a);
    rotate(p, t->d_qkv, true);
    tower_norm(p, l->norm1, l->norm1_bias, s->x_in, (tower_stats){ 0 }, t->h);
    linear_backward(d, &l->qkv, p->rows, t->d_qkv, 3 * width, t->h, t->d_h, false);
    linear_adapt_backward(d, &p->beside, &l->qkv, t->d_qkv, 3 * width, t->h, t->d_h);
    tower_norm_backward(p, l->norm1, l->norm1_bias, t->d_h, s->x_in, s->in, dx);
}

/* Where patches stand in a picture, and in which order attention sees them. */

void tower_angles(int32_t dim, int32_t n, float *cosine, float *sine)
{
    int32_t quarter = dim / 4;
    for (int32_t j = 0; j < quarter; j++) {
        float inverse = 1.0f / (float)ares_f64_pow(10000.0, (double)(2 * j) / (double)(dim / 2));
        for (int32_t at = 0; at < n; at++) {
            double angle = (double)((float)at * inverse);
            cosine[at * quarter + j] = (float)ares_f64_cos(angle);
            sine[at * quarter + j] = (float)ares_f64_sin(angle);
        }
    }
}

void tower_places(const ares_vision_config *v, ares_grid grid, int32_t *y, int32_t *x)
{
    int64_t n = 0;
    for (int32_t t = 0; t < grid.t; t++)
        for (int32_t by = 0; by < grid.h; by += v->merge)
            for (int32_t bx = 0; bx < grid.w; bx += v->merge)
                for (int32_t i = 0; i < v->merge * v->merge; i++, n++) {
                    y[n] = by + i / v->merge;
                    x[n] = bx + i % v->merge;
                }
}

int32_t tower_windows(const ares_vision_config *v, ares_grid grid, int32_t *order, int32_t *start)
{
    int32_t high = grid.h / v->merge, wide = grid.w / v->merge, n = 0, windows = 0;
    int32_t side = v->window ? v->window / v->merge / v->patch : ARES_MAX(high, wide);
    for (int32_t t = 0; t < grid.t; t++)
        for (int32_t wy = 0; wy < high; wy += side)
            for (int32_t wx = 0; wx < wide; wx += side) {
                start[windows++] = n;
                for (int32_t y = wy; y < ARES_MIN(wy + side, high); y++)
                    for (int32_t x = wx; x < ARES_MIN(wx + side, wide); x++)
                        order[n++] = (t * high + y) * wide + x;
            }
    start[windows] = n;
    return windows;
}

/*
 * The vision tower: patches -> blocks -> merger, and back (docs/vision.md#tower). One call is one
 * picture or video, so its features depend on nothing else, and gradients of several ones add up in
 * the order of the calls. In Qwen2.5-VL the rows are in the order of attention's windows from the
 * first block to the merger.
 */

/* Rows of patches that are made, copied and multiplied at a time, and those that a thread makes. */
enum { CHUNK = 256, STRIP = 16 };

/* A picture or video, and the buffers of its pass, on the device. */
typedef struct picture {
    tower_pass p;
    int32_t tokens;
    int32_t *row_order, *order; /* the row of patches, and the token, that stands in each place */
    int32_t *row_place, *place; /* and the place of each */
    int32_t *frame, *window;    /* where segments start */
    float *cos_sin;
    const tower_input *in;
    float *made;             /* [CHUNK][a patch], host: values of patches, CHUNK rows at a time */
    float *pixels, *numbers; /* f32: made on the device, and [tokens][out] */
    void *patches;           /* pixels, as products read them */
    void **x;                /* [depth + 1]: the stream before each block and after the last */
    tower_saved *saved;      /* [n_saved] */
    int n_saved;             /* 1, or one per block */
    tower_stats stats;       /* of the merger's norm */
    void *wide, *act, *last; /* of the merger: [tokens][merged] twice, [tokens][out] */
    void *ordered;           /* [tokens][out] */
    void *d_x, *d_act, *d_wide;
    ares_arena host;
} picture;

static const ares_vision_config *config(const picture *u)
{
    return &u->p.m->cfg.vision;
}

/* Numbers of a patch, of a row of the merger. */
static int64_t patch_width(const picture *u)
{
    return u->p.m->tower.patches->weight.k;
}
static int64_t merged_width(const picture *u)
{
    return u->p.m->tower.merge.w->weight.n;
}

static int32_t *carve_ids(carver *c, int64_t n)
{
    return carve_bytes(c, n, 1, sizeof(int32_t));
}
/* The bytes of all buffers, which base NULL only counts; u->x and u->saved lie on the host. */
static size_t carve_picture(picture *u, char *base, ares_keep keep)
{
    const ares_vision_config *v = config(u);
    bool back = keep != ARES_KEEP_NOTHING;
    int64_t rows = u->p.rows, tokens = u->tokens;
    ares_dtype act = u->p.m->device->k->act;
    int64_t merged = merged_width(u), qkv = 3 * (int64_t)v->width;
    carver c = { base, 0, act };
    u->row_order = carve_ids(&c, rows);
    u->row_place = carve_ids(&c, rows);
    u->order = carve_ids(&c, tokens);
    u->place = carve_ids(&c, tokens);
    u->frame = carve_ids(&c, rows + 1);
    u->window = carve_ids(&c, rows + 1);
    u->cos_sin = carve_floats(&c, rows, v->width / v->heads);
    u->pixels = carve_floats(&c, ARES_MIN(rows, CHUNK), patch_width(u));
    u->patches = act == ARES_F32 ? u->pixels : carve(&c, ARES_MIN(rows, CHUNK), patch_width(u));
    u->numbers = carve_floats(&c, tokens, v->out);
    for (int i = 0; i <= v->depth; i++)
        u->x[i] = back || i == 0 ? carve(&c, rows, v->width) : u->x[0];
    for (int i = 0; i < u->n_saved; i++) {
        tower_saved *s = &u->saved[i];
        *s = (tower_saved){ .qkv = carve(&c, rows, qkv),
                            .attn = carve(&c, rows, v->width),
                            .wide = carve(&c, rows, wide_of(v)) };
        if (!back) continue;
        s->in = carve_stats(&c, v, rows);
        s->mid = carve_stats(&c, v, rows);
        s->lse = carve_floats(&c, rows, v->heads);
        s->x_mid = carve(&c, rows, v->width);
    }
    u->p.t =
        (tower_scratch){ .h = carve(&c, rows, v->width), .act = carve(&c, rows, v->intermediate) };
    adapting *b = &u->p.beside;
    if (b->n_runs) b->u = carve(&c, (v->gated ? 2 : 1) * rows, b->rank); /* of gate and up */
    if (b->n_runs && back) b->du = carve(&c, rows, b->rank);
    u->wide = carve(&c, tokens, merged);
    u->act = carve(&c, tokens, merged);
    u->last = carve(&c, tokens, v->out);
    u->ordered = carve(&c, tokens, v->out);
    if (!back) return c.at;
    u->p.t.d_h = carve(&c, rows, v->width);
    u->p.t.d_act = carve(&c, rows, v->intermediate);
    u->p.t.d_wide = carve(&c, rows, wide_of(v));
    u->p.t.d_attn = carve(&c, rows, v->width);
    u->p.t.d_qkv = carve(&c, rows, qkv);
    u->stats = carve_stats(&c, v, rows);
    u->d_wide = carve(&c, tokens, merged);
    u->d_act = carve(&c, tokens, merged);
    u->d_x = carve(&c, rows, v->width);
    return c.at;
}

void tower_close(ares_model *m)
{
    ares_phase_give_back(m->device, &m->tower.of_forward);
    ares_phase_give_back(m->device, &m->tower.of_training);
}

/* Sets up *u without device memory; returns the bytes that it needs there. */
static size_t describe_picture(ares_model *m, const ares_adapter *a, int32_t rows, ares_keep keep,
                               picture *u)
{
    const ares_vision_config *v = &m->cfg.vision;
    int32_t each = v->merge * v->merge;
    *u = (picture){ .p = { .m = m, .rows = rows },
                    .tokens = rows / each,
                    .n_saved = keep == ARES_KEEP_ALL ? v->depth : 1 };
    u->p.adapted = (ares_adapted){ a, INT32_MAX };
    if (a && a->tower) u->p.beside = (adapting){ .rows = rows, .n_runs = 1, .rank = a->rank };
    u->x = ares_arena_calloc(&u->host, (size_t)v->depth + 1, sizeof *u->x);
    u->saved = ares_arena_calloc(&u->host, (size_t)u->n_saved, sizeof *u->saved);
    return carve_picture(u, NULL, keep);
}

static int open_picture(ares_model *m, const ares_adapter *a, int32_t rows, ares_keep keep,
                        picture *u)
{
    size_t bytes = describe_picture(m, a, rows, keep, u);
    ares_device *d = m->device;
    ares_held *h = &m->tower.of_forward;
    char *base;
    /* a forward's memory is kept beside the rollout's cache, a backward's is of training's phase */
    if (keep != ARES_KEEP_NOTHING)
        base = ares_phase_take(d, ARES_PHASE_TRAIN, &m->tower.of_training, bytes);
    else {
        if (h->bytes < bytes) {
            ares_phase_give_back(d, h);
            void *data = d->k->alloc(d, bytes);
            *h = (ares_held){ data, data ? bytes : 0, 0 };
        }
        base = h->data;
    }
    if (!base) {
        ares_arena_fini(&u->host);
        return ares_fail(ARES_ELIMIT,
                         "model: a picture or video of %d patches takes %.2f GiB in the vision "
                         "tower, which do not fit on the device; lower data.max_pixels",
                         rows, (double)bytes / 1073741824.0);
    }
    (void)carve_picture(u, base, keep);
    u->p.beside.runs = &u->p.adapted;
    for (int i = 0; i < u->n_saved; i++) {
        u->saved[i].x_in = u->x[i];
        if (keep == ARES_KEEP_NOTHING) u->saved[i].x_mid = u->x[0];
    }
    return ARES_OK;
}

static void to_device(const picture *u, void *to, const void *host, size_t bytes)
{
    ares_device *d = u->p.m->device;
    d->k->copy_in(d, to, host, bytes);
}
static void ids_to_device(const picture *u, int32_t *to, const int32_t *host, int64_t n)
{
    to_device(u, to, host, (size_t)n * sizeof *to);
}

/* start [n + 1]: on the host, and where it goes on the device */
static ares_segments segments(const picture *u, const int32_t *start, int32_t n, int32_t *to)
{
    ares_segments seg = { .n = n, .rows = start[n], .start = start };
    ares_segments_measure(&seg);
    ids_to_device(u, to, start, n + 1);
    seg.start = to;
    return seg;
}

/* Puts the order of attention's windows on the device; returns the row that stands in each place.
 */
static const int32_t *set_order(picture *u, ares_grid grid)
{
    const ares_vision_config *v = config(u);
    int32_t each = v->merge * v->merge, rows = u->p.rows, tokens = u->tokens;
    int32_t *ids = ares_arena_calloc(&u->host, 2 * (size_t)(rows + tokens), sizeof *ids),
            *row_place = ids + rows, *order = row_place + rows, *place = order + tokens,
            *start = ares_arena_calloc(&u->host, (size_t)(grid.t + tokens) + 2, sizeof *start),
            *frame = start + tokens + 1;
    /* windows are of tokens; each is merge x merge rows, which stay together */
    int32_t windows = tower_windows(v, grid, order, start);
    for (int32_t i = 0; i <= windows; i++) start[i] *= each;
    for (int32_t i = 0; i <= grid.t; i++) frame[i] = i * grid.h * grid.w;
    for (int32_t i = 0; i < tokens; i++) place[order[i]] = i;
    for (int32_t i = 0; i < rows; i++) ids[i] = order[i / each] * each + i % each;
    for (int32_t i = 0; i < rows; i++) row_place[ids[i]] = i;
    ids_to_device(u, u->row_order, ids, rows);
    ids_to_device(u, u->row_place, row_place, rows);
    ids_to_device(u, u->order, order, tokens);
    ids_to_device(u, u->place, place, tokens);
    u->p.window = segments(u, start, windows, u->window);
    u->p.frame = segments(u, frame, grid.t, u->frame);
    return ids;
}

/* Half of the angles turn by the patch's row, half by its column. */
static void set_angles(picture *u, ares_grid grid, const int32_t *row_order)
{
    const ares_vision_config *v = config(u);
    int32_t dim = v->width / v->heads, half = dim / 2, quarter = dim / 4,
            most = ARES_MAX(grid.h, grid.w), rows = u->p.rows;
    int32_t *y = ares_arena_calloc(&u->host, 2 * (size_t)rows, sizeof *y), *x = y + rows;
    float *cosine = ares_arena_calloc(&u->host, (size_t)(most * half), sizeof *cosine),
          *sine = cosine + most * quarter,
          *all = ares_arena_calloc(&u->host, (size_t)rows * (size_t)dim, sizeof *all);
    tower_places(v, grid, y, x);
    tower_angles(dim, most, cosine, sine);
    for (int32_t r = 0; r < rows; r++)
        for (int32_t j = 0; j < half; j++) {
            int32_t row = row_order[r], at = (j < quarter ? y : x)[row] * quarter + j % quarter;
            all[(int64_t)r * dim + j] = cosine[at];
            all[(int64_t)r * dim + half + j] = sine[at];
        }
    to_device(u, u->cos_sin, all, (size_t)rows * (size_t)dim * sizeof *all);
    u->p.cos_sin = u->cos_sin;
}

/* Orders and angles of the picture, and host memory for a chunk of patches. */
static void place_input(picture *u, const tower_input *in)
{
    size_t n = (size_t)ARES_MIN(u->p.rows, CHUNK) * (size_t)patch_width(u);
    set_angles(u, in->grid, set_order(u, in->grid));
    u->in = in;
    u->made = ares_arena_calloc(&u->host, n, sizeof *u->made);
}

/* Rows of patches from `first` on. */
typedef struct chunk {
    const picture *u;
    int32_t first, n;
} chunk;

static void make_strip(void *ctx, int64_t task, int worker)
{
    const chunk *c = ctx;
    int32_t at = (int32_t)task * STRIP;
    (void)worker;
    c->u->in->write(c->u->in->of, c->first + at, ARES_MIN(STRIP, c->n - at),
                    c->u->made + at * patch_width(c->u));
}

/* Puts the values of a chunk into u->patches. */
static void read_chunk(const chunk *c)
{
    const picture *u = c->u;
    ares_device *d = u->p.m->device;
    int64_t n = c->n * patch_width(u);
    ares_pool_run(d->pool, (c->n + STRIP - 1) / STRIP, make_strip, (void *)(uintptr_t)c);
    to_device(u, u->pixels, u->made, (size_t)n * sizeof *u->made);
    if (u->patches != u->pixels) d->k->convert(d, u->patches, d->k->act, u->pixels, ARES_F32, n);
}

/* Row i of [rows][width] activations. */
static void *row_of(const picture *u, void *of, int64_t i)
{
    ares_device *d = u->p.m->device;
    return (char *)of + (size_t)(i * config(u)->width) * ares_dtype_bytes(d->k->act);
}

/* Row i of `to` = row ids[i] of `from`, n of both. */
static void gather(const picture *u, int32_t n, int64_t width, const int32_t *ids, const void *from,
                   void *to)
{
    ares_device *d = u->p.m->device;
    ares_matrix all = { (void *)(uintptr_t)from, d->k->act, ARES_ROWS, n, (int32_t)width };
    d->k->embedding(d, &all, ids, n, to, width, 0);
}

/* The adapter beside the products of the merger, whose rows are tokens. */
static adapting beside_merger(const picture *u)
{
    adapting a = u->p.beside;
    a.rows = u->tokens;
    return a;
}

static void merger_product(const picture *u, const ares_linear *l, const void *x, void *y)
{
    ares_device *d = u->p.m->device;
    ares_linear_args a = linear_args(u->tokens, l, x, NULL, y, l->w->weight.n);
    const adapting beside = beside_merger(u);
    d->k->linear(d, &a, 1);
    linears_adapt(d, &beside, &l, &a, 1);
}

/* Of the merger; forward and backward share it. */
static ares_activation_args gelu(const picture *u)
{
    return (ares_activation_args){
        .f = ARES_GELU, .n = u->tokens * merged_width(u), .x = u->wide, .y = u->act
    };
}

/* Rows of merge x merge patches become one; `last` is in the order of windows. */
static void merge(const picture *u)
{
    ares_device *d = u->p.m->device;
    const ares_tower *t = &u->p.m->tower;
    ares_activation_args a = gelu(u);
    tower_norm(&u->p, t->norm, t->norm_bias, u->x[config(u)->depth], u->stats, u->p.t.h);
    merger_product(u, &t->merge, u->p.t.h, u->wide);
    d->k->activation(d, &a);
    merger_product(u, &t->out, u->act, u->last);
}

static tower_saved *saved_of(const picture *u, int i)
{
    tower_saved *s = &u->saved[u->n_saved > 1 ? i : 0];
    s->x_in = u->x[i];
    return s;
}

/* From patches to u->last. The region of patches and merger is loaded at both ends. */
static void forward(const picture *u)
{
    ares_model *m = u->p.m;
    const ares_linear patches = { .w = m->tower.patches };
    const ares_block_regions *ends = &m->tower.in;
    int depth = m->cfg.vision.depth;
    block_load(&m->params, ends);
    block_prefetch(&m->params, &m->tower.layer[0].in);
    for (chunk c = { .u = u }; c.first < u->p.rows; c.first += c.n) {
        c.n = ARES_MIN(CHUNK, u->p.rows - c.first);
        read_chunk(&c);
        ares_linear_args a = linear_args(c.n, &patches, u->patches, NULL,
                                         row_of(u, u->p.t.h, c.first), patches.w->weight.n);
        m->device->k->linear(m->device, &a, 1);
    }
    block_unload(&m->params, ends);
    gather(u, u->p.rows, config(u)->width, u->row_order, u->p.t.h, u->x[0]);
    for (int i = 0; i < depth; i++) {
        block_load(&m->params, &m->tower.layer[i].in);
        block_prefetch(&m->params, i + 1 < depth ? &m->tower.layer[i + 1].in : ends);
        tower_block_forward(&u->p, i, saved_of(u, i), u->x[i + 1]);
        block_unload(&m->params, &m->tower.layer[i].in);
    }
    block_load(&m->params, ends);
    merge(u);
    block_unload(&m->params, ends);
}

/* From u->last, the derivatives of what it held, to u->d_x. */
static void merge_backward(const picture *u)
{
    ares_device *d = u->p.m->device;
    const ares_tower *t = &u->p.m->tower;
    const void *stream = u->x[config(u)->depth];
    int64_t width = config(u)->width;
    ares_activation_args a = gelu(u);
    a.dy = u->d_act;
    a.dx = u->d_wide;
    const adapting beside = beside_merger(u);
    linear_backward(d, &t->out, u->tokens, u->last, config(u)->out, u->act, u->d_act, false);
    linear_adapt_backward(d, &beside, &t->out, u->last, config(u)->out, u->act, u->d_act);
    d->k->activation_backward(d, &a);
    tower_norm(&u->p, t->norm, t->norm_bias, stream, (tower_stats){ 0 }, u->p.t.h);
    linear_backward(d, &t->merge, u->tokens, u->d_wide, merged_width(u), u->p.t.h, u->p.t.d_h,
                    false);
    linear_adapt_backward(d, &beside, &t->merge, u->d_wide, merged_width(u), u->p.t.h, u->p.t.d_h);
    d->k->zero(d, u->d_x, (size_t)(u->p.rows * width) * ares_dtype_bytes(d->k->act));
    tower_norm_backward(&u->p, t->norm, t->norm_bias, u->p.t.d_h, stream, u->stats, u->d_x);
}

/*
 * From u->last to the gradients of what is trained: merger, blocks, patches. Below the lowest block
 * with a layer that an adapter is beside, no derivative is wanted.
 */
static void backward(const picture *u)
{
    ares_model *m = u->p.m;
    const ares_linear patches = { .w = m->tower.patches };
    int depth = m->cfg.vision.depth,
        lowest = m->tower.trained ? 0 : u->p.adapted.adapter->lowest_of_tower;
    block_load(&m->params, &m->tower.in);
    if (lowest < depth) block_prefetch(&m->params, &m->tower.layer[depth - 1].in);
    merge_backward(u);
    block_unload(&m->params, &m->tower.in);
    for (int i = depth - 1; i >= lowest; i--) {
        const tower_saved *s = saved_of(u, i);
        block_load(&m->params, &m->tower.layer[i].in);
        if (i > lowest) block_prefetch(&m->params, &m->tower.layer[i - 1].in);
        /* the same arithmetic, so the same bits; d_h only takes the output, which is not used */
        if (u->n_saved < depth && i + 1 < depth) tower_block_forward(&u->p, i, s, u->p.t.d_h);
        tower_block_backward(&u->p, i, s, u->d_x);
        block_unload(&m->params, &m->tower.layer[i].in);
    }
    if (!m->tower.trained) return;
    gather(u, u->p.rows, config(u)->width, u->row_place, u->d_x, u->p.t.d_h);
    /* the chunks go on with one sum over the rows */
    for (chunk c = { .u = u }; c.first < u->p.rows; c.first += c.n) {
        c.n = ARES_MIN(CHUNK, u->p.rows - c.first);
        read_chunk(&c);
        linear_backward(m->device, &patches, c.n, row_of(u, u->p.t.d_h, c.first), config(u)->width,
                        u->patches, NULL, false);
    }
}

static int32_t patches_of(const ares_vision_config *v, ares_grid grid)
{
    ARES_ASSERT(v->depth && grid.t > 0 && grid.h % v->merge == 0 && grid.w % v->merge == 0);
    return grid.t * grid.h * grid.w;
}

int ares_model_features_reserve(ares_model *m, const ares_adapter *a, int32_t patches,
                                ares_keep keep)
{
    picture u;
    ARES_TRY(open_picture(m, a, patches, keep, &u));
    ares_arena_fini(&u.host);
    return ARES_OK;
}

size_t ares_model_features_bytes(ares_model *m, const ares_adapter *a, int32_t patches,
                                 ares_keep keep)
{
    picture u;
    size_t bytes = describe_picture(m, a, patches, keep, &u);
    ares_arena_fini(&u.host);
    return bytes;
}

int tower_features(ares_model *m, const ares_adapter *a, const tower_input *in, float *features)
{
    ares_device *d = m->device;
    picture u;
    ARES_TRY(open_picture(m, a, patches_of(&m->cfg.vision, in->grid), ARES_KEEP_NOTHING, &u));
    int64_t n = (int64_t)u.tokens * config(&u)->out;
    place_input(&u, in);
    forward(&u);
    gather(&u, u.tokens, config(&u)->out, u.place, u.last, u.ordered);
    d->k->convert(d, u.numbers, ARES_F32, u.ordered, d->k->act, n);
    d->k->copy_out(d, features, u.numbers, (size_t)n * sizeof *features);
    ares_arena_fini(&u.host);
    return d->k->sync(d);
}

int tower_backward_of(ares_model *m, const ares_adapter *a, ares_keep keep, const tower_input *in,
                      const float *d_features)
{
    ares_device *d = m->device;
    const ares_params *trained = m->tower.trained ? &m->params : &a->params;
    picture u;
    ARES_ASSERT(ares_model_trains_tower(m, a) && keep != ARES_KEEP_NOTHING);
    ARES_ASSERT(ares_phase_holds(d, &trained->of_training)); /* since ares_params_zero_grad */
    ARES_TRY(open_picture(m, a, patches_of(&m->cfg.vision, in->grid), keep, &u));
    int64_t n = (int64_t)u.tokens * config(&u)->out;
    place_input(&u, in);
    forward(&u);
    to_device(&u, u.numbers, d_features, (size_t)n * sizeof *d_features);
    d->k->convert(d, u.ordered, d->k->act, u.numbers, ARES_F32, n);
    gather(&u, u.tokens, config(&u)->out, u.order, u.ordered, u.last);
    backward(&u);
    ares_arena_fini(&u.host);
    return d->k->sync(d);
}

/* The parameters of a vision tower (docs/vision.md#tower). */

/* A LayerNorm has a bias, an RMS norm none. */
static void add_norm(const listing *l, const char *stem, int index, ares_param **weight,
                     ares_param **bias)
{
    const ares_vision_config *v = &l->m->cfg.vision;
    ares_linear both = param_add_linear(l, v->width, 0, !v->gated, stem, index);
    *weight = both.w;
    *bias = both.bias;
}

/* *number: that of its first layer, then that of the one after its last */
static void list_block(const listing *l, int i, int32_t *number)
{
    const ares_vision_config *v = &l->m->cfg.vision;
    ares_tower_layer *y = &l->m->tower.layer[i];
    int32_t width = v->width, wide = v->intermediate;
    add_norm(l, "blocks.%d.norm1", i, &y->norm1, &y->norm1_bias);
    add_norm(l, "blocks.%d.norm2", i, &y->norm2, &y->norm2_bias);
    y->qkv = param_add_linear(l, 3 * width, width, true, "blocks.%d.attn.qkv", i);
    y->proj = param_add_linear(l, width, width, true, "blocks.%d.attn.proj", i);
    y->gate = param_add_linear(l, wide, width, true,
                               v->gated ? "blocks.%d.mlp.gate_proj" : "blocks.%d.mlp.fc1", i);
    if (v->gated)
        y->up = param_beside(param_add_linear(l, wide, width, true, "blocks.%d.mlp.up_proj", i));
    y->down = param_add_linear(l, width, wide, true,
                               v->gated ? "blocks.%d.mlp.down_proj" : "blocks.%d.mlp.fc2", i);
    ares_linear *const all[] = { &y->qkv, &y->proj, &y->gate, v->gated ? &y->up : NULL, &y->down };
    for (int j = 0; j < ARES_COUNT(all); j++)
        if (all[j]) all[j]->number = (*number)++;
}

void tower_list(listing *l)
{
    ares_tower *y = &l->m->tower;
    const ares_vision_config *v = &l->m->cfg.vision;
    int first = l->region;
    int32_t number =
        LORA_OF_BLOCK * l->m->cfg.layers + 1; /* after the text's layers and the head */
    y->layer = ares_calloc((size_t)v->depth, sizeof *y->layer);
    l->stem = l->m->cfg.vision_names ? l->m->cfg.vision_names : "visual";
    y->patches = param_add(l, v->width, v->channels * v->temporal * v->patch * v->patch,
                           "patch_embed.proj.weight", 0);
    const int64_t shape[] = { v->width, v->channels, v->temporal, v->patch, v->patch };
    y->patches->rank = ARES_COUNT(shape);
    for (int i = 0; i < ARES_COUNT(shape); i++) y->patches->shape[i] = shape[i];
    for (int i = 0; i < v->depth; i++) {
        l->region++;
        list_block(l, i, &number);
    }
    l->region = first;
    int32_t merged = v->width * v->merge * v->merge;
    add_norm(l, "merger.ln_q", 0, &y->norm, &y->norm_bias);
    y->merge = param_add_linear(l, merged, merged, true, "merger.mlp.0", 0);
    y->merge.number = number;
    y->out = param_add_linear(l, v->out, merged, true, "merger.mlp.2", 0);
    y->out.number = number + 1;
}
