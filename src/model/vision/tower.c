/*
 * The vision tower, forward: patches -> blocks -> merger (docs/vision.md#tower). One call is one
 * picture or video, so its features depend on nothing else. In Qwen2.5-VL the tokens are in the
 * order of attention's windows from the first block to the merger.
 */
#include <math.h>

#include "region.h"
#include "vision/tower.h"

static const float eps = 1e-6f;

typedef struct pass {
    ares_model *m;
    const ares_vision_config *v;
    ares_grid grid;
    int32_t rows, tokens;
    int32_t *order;              /* [tokens] the token in each place */
    int32_t *row_order;          /* [rows] the same of patches */
    ares_segments frame, window; /* rows that see each other */
    float *cos_sin;              /* [rows][width / heads] */
    float *x, *h, *qkv, *attn, *wide, *act;
    ares_arena arena;
} pass;

static float *floats(pass *p, int64_t rows, int64_t width)
{
    return ares_arena_alloc(&p->arena, (size_t)(rows * width) * sizeof(float));
}

static ares_segments segments(const int32_t *start, int32_t n)
{
    ares_segments seg = { .n = n, .rows = start[n], .start = start };
    ares_segments_measure(&seg);
    return seg;
}

static void set_order(pass *p)
{
    int32_t each = p->v->merge * p->v->merge, frame_rows = p->grid.h * p->grid.w;
    int32_t *frame = ares_arena_alloc(&p->arena, ((size_t)p->grid.t + 1) * sizeof *frame),
            *window = ares_arena_alloc(&p->arena, ((size_t)p->tokens + 1) * sizeof *window);
    p->order = ares_arena_alloc(&p->arena, (size_t)p->tokens * sizeof *p->order);
    p->row_order = ares_arena_alloc(&p->arena, (size_t)p->rows * sizeof *p->row_order);
    int32_t windows = tower_windows(p->v, p->grid, p->order, window);
    for (int32_t i = 0; i <= windows; i++) window[i] *= each;
    for (int32_t i = 0; i <= p->grid.t; i++) frame[i] = i * frame_rows;
    for (int32_t i = 0; i < p->rows; i++) p->row_order[i] = p->order[i / each] * each + i % each;
    p->frame = segments(frame, p->grid.t);
    p->window = segments(window, windows);
}

/* Half of the angles turn by the patch's row, half by its column. */
static void set_angles(pass *p)
{
    int32_t dim = p->v->width / p->v->heads, half = dim / 2, quarter = dim / 4;
    int32_t *y = ares_arena_alloc(&p->arena, (size_t)p->rows * 2 * sizeof *y), *x = y + p->rows;
    p->cos_sin = floats(p, p->rows, dim);
    tower_places(p->v, p->grid, y, x);
    for (int32_t r = 0; r < p->rows; r++)
        for (int32_t j = 0; j < half; j++) {
            int32_t at = p->row_order[r];
            float inverse =
                1.0f / (float)ares_f64_pow(10000.0, (double)(2 * (j % quarter)) / (double)half);
            float angle = (float)(j < quarter ? y[at] : x[at]) * inverse;
            p->cos_sin[(int64_t)r * dim + j] = (float)ares_f64_cos((double)angle);
            p->cos_sin[(int64_t)r * dim + half + j] = (float)ares_f64_sin((double)angle);
        }
}

static void norm(pass *p, const ares_param *w, const ares_param *bias, const float *x, float *y)
{
    ares_device *d = p->m->device;
    int32_t k = p->v->width;
    if (p->v->gated) {
        ares_rms_norm_args a = { .rows = p->rows,
                                 .k = k,
                                 .x = x,
                                 .ldx = k,
                                 .w = w->weight.data,
                                 .eps = eps,
                                 .y = y,
                                 .ldy = k };
        d->k->rms_norm(d, &a);
        return;
    }
    ares_layer_norm_args a = { .rows = p->rows,
                               .k = k,
                               .x = x,
                               .ldx = k,
                               .w = w->weight.data,
                               .bias = bias->weight.data,
                               .eps = eps,
                               .y = y,
                               .ldy = k };
    d->k->layer_norm(d, &a);
}

static void product(pass *p, int32_t rows, const ares_linear *l, const float *x,
                    const float *residual, float *y, int64_t ldy)
{
    const ares_matrix *w = &l->w->weight;
    ares_linear_args a = { .m = rows,
                           .x = x,
                           .ldx = w->k,
                           .w = w,
                           .bias = l->bias ? l->bias->weight.data : NULL,
                           .residual = residual,
                           .ldr = w->n,
                           .y = y,
                           .ldy = ldy };
    p->m->device->k->linear(p->m->device, &a, 1);
}

static void attention(pass *p, bool whole_frame)
{
    ares_device *d = p->m->device;
    int32_t heads = p->v->heads, dim = p->v->width / heads;
    int64_t width = p->v->width;
    d->k->rope(d, p->rows, 2 * heads, dim, p->qkv, 3 * width, p->cos_sin, false);
    ares_attention_args a = { .seg = whole_frame ? p->frame : p->window,
                              .n_heads = heads,
                              .n_kv_heads = heads,
                              .head_dim = dim,
                              .scale = 1.0f / sqrtf((float)dim),
                              .q = p->qkv,
                              .ldq = 3 * width,
                              .k = p->qkv + width,
                              .v = p->qkv + 2 * width,
                              .ldkv = 3 * width,
                              .out = p->attn,
                              .ldo = width };
    d->k->attention(d, &a);
}

static void mlp(pass *p, const ares_tower_layer *l)
{
    ares_device *d = p->m->device;
    int32_t wide = p->v->intermediate;
    if (p->v->gated) {
        product(p, p->rows, &l->gate, p->h, NULL, p->wide, 2 * (int64_t)wide);
        product(p, p->rows, &l->up, p->h, NULL, p->wide + wide, 2 * (int64_t)wide);
        ares_silu_mul_args a = { .rows = p->rows,
                                 .k = wide,
                                 .gate = p->wide,
                                 .up = p->wide + wide,
                                 .ldgu = 2 * (int64_t)wide,
                                 .y = p->act,
                                 .ldy = wide };
        d->k->silu_mul(d, &a);
    } else {
        product(p, p->rows, &l->gate, p->h, NULL, p->act, wide);
        ares_activation_args a = {
            .f = ARES_QUICK_GELU, .n = (int64_t)p->rows * wide, .x = p->act, .y = p->act
        };
        d->k->activation(d, &a);
    }
    product(p, p->rows, &l->down, p->act, p->x, p->x, p->v->width);
}

static void block(pass *p, int i)
{
    const ares_tower_layer *l = &p->m->tower.layer[i];
    int r = l->qkv.w->region;
    ares_region_hold(p->m, r);
    norm(p, l->norm1, l->norm1_bias, p->x, p->h);
    product(p, p->rows, &l->qkv, p->h, NULL, p->qkv, 3 * (int64_t)p->v->width);
    attention(p, !p->v->window || p->v->full_blocks >> i & 1);
    product(p, p->rows, &l->proj, p->attn, p->x, p->x, p->v->width);
    norm(p, l->norm2, l->norm2_bias, p->x, p->h);
    mlp(p, l);
    ares_region_drop(p->m, r);
}

/* Rows of merge x merge patches become one, and features go back to the order of patches. */
static void merge(pass *p, float *features)
{
    ares_device *d = p->m->device;
    const ares_tower *t = &p->m->tower;
    int64_t merged = t->merge.w->weight.n, out = p->v->out;
    float *inner = floats(p, p->tokens, merged), *last = floats(p, p->tokens, out);
    norm(p, t->norm, t->norm_bias, p->x, p->h);
    product(p, p->tokens, &t->merge, p->h, NULL, inner, merged);
    ares_activation_args a = { .f = ARES_GELU, .n = p->tokens * merged, .x = inner, .y = inner };
    d->k->activation(d, &a);
    product(p, p->tokens, &t->out, inner, NULL, last, out);
    for (int32_t i = 0; i < p->tokens; i++)
        d->k->copy(d, features + p->order[i] * out, last + i * out, (size_t)out * sizeof *last);
}

static void open_pass(pass *p)
{
    int64_t width = p->v->width, wide = p->v->intermediate;
    set_order(p);
    set_angles(p);
    p->x = floats(p, p->rows, width);
    p->h = floats(p, p->rows, width);
    p->qkv = floats(p, p->rows, 3 * width);
    p->attn = floats(p, p->rows, width);
    p->wide = p->v->gated ? floats(p, p->rows, 2 * wide) : NULL;
    p->act = floats(p, p->rows, wide);
}

int ares_model_features(ares_model *m, ares_grid grid, const float *patches, float *features)
{
    const ares_vision_config *v = &m->cfg.vision;
    ares_device *d = m->device;
    if (!d->k->activation)
        return ares_fail(ARES_EUNSUPPORTED,
                         "model: the vision tower of a %s runs on the CPU's native kernels alone, "
                         "not on those of '%s'",
                         m->cfg.model_type, d->k->name);
    ARES_ASSERT(v->depth && grid.t > 0 && grid.h % v->merge == 0 && grid.w % v->merge == 0);
    int32_t rows = grid.t * grid.h * grid.w;
    pass p = { .m = m, .v = v, .grid = grid, .rows = rows, .tokens = rows / (v->merge * v->merge) };
    open_pass(&p);
    int ends = m->tower.patches->region;
    const ares_linear first = { m->tower.patches, NULL };
    ares_region_hold(m, ends);
    product(&p, rows, &first, patches, NULL, p.h, v->width);
    ares_region_drop(m, ends);
    ares_matrix all = { p.h, ARES_F32, ARES_ROWS, rows, v->width };
    d->k->embedding(d, &all, p.row_order, rows, p.x, v->width); /* a look-up also gathers rows */
    for (int i = 0; i < v->depth; i++) block(&p, i);
    ares_region_hold(m, ends);
    merge(&p, features);
    ares_region_drop(m, ends);
    ares_arena_fini(&p.arena);
    return d->k->sync(d);
}
