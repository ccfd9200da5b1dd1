/*
 * A row with pictures and videos through a model and its head, and back: on any device. Numbers go
 * in and out as f32 of the host.
 */
#ifndef ARES_TEST_VISION_ROW_H
#define ARES_TEST_VISION_ROW_H

#include <string.h>

#include "../../src/data/internal.h"
#include "ares/model.h"
#include "internal.h"

typedef struct vision_row {
    ares_model *m;
    int32_t n; /* tokens, of which the last one is not fed */
    const int32_t *ids;
    const ares_medium *media; /* [n_media], images first */
    int32_t n_media;
    float *const *patches; /* of each */
    /* loss = sum of a log_prob + b entropy, [n - 1] of each; a NULL: no backward */
    const float *a, *b;
    ares_keep keep; /* of the tower's backward; ARES_KEEP_NOTHING: the tower has none */
    ares_arena *arena;
    /* ---------------- results, in the arena */
    int32_t *position[3], delta;
    int32_t *feature_rows, n_features;
    float *features;              /* [n_features][hidden] */
    float *log_probs, *entropies; /* [n - 1] */
} vision_row;

/* Device memory of a run. */
typedef struct vision_memory {
    ares_device *d;
    int n;
    void *at[16];
    size_t bytes[16];
} vision_memory;

static inline void *vision_take(vision_memory *v, const void *host, size_t bytes)
{
    ARES_ASSERT(v->n < 16);
    void *p = v->d->k->alloc(v->d, bytes);
    ARES_ASSERT(p);
    v->at[v->n] = p;
    v->bytes[v->n++] = bytes;
    if (host) v->d->k->copy_in(v->d, p, host, bytes);
    return p;
}
static inline void vision_release(vision_memory *v)
{
    while (v->n--) v->d->k->release(v->d, v->at[v->n], v->bytes[v->n]);
}

/* Values of patches that lie in one array. */
typedef struct vision_patches {
    const float *values;
    size_t width;
} vision_patches;
static inline void vision_write(const void *of, int32_t first, int32_t n, float *values)
{
    const vision_patches *p = of;
    memcpy(values, p->values + (size_t)first * p->width, (size_t)n * p->width * sizeof *values);
}
/* Of medium i; p holds what it reads. */
static inline tower_input vision_input(const vision_row *x, int32_t i, vision_patches *p)
{
    const ares_vision_config *v = &x->m->cfg.vision;
    *p = (vision_patches){ x->patches[i],
                           (size_t)(v->channels * v->temporal * v->patch * v->patch) };
    return (tower_input){ x->media[i].grid, vision_write, p };
}

/* Features of all media, one after the other. */
static inline int vision_features(vision_row *x)
{
    const ares_vision_config *v = &x->m->cfg.vision;
    int64_t at = 0;
    x->features = ares_arena_calloc(x->arena, (size_t)x->n * (size_t)v->out + 1, sizeof(float));
    for (int32_t i = 0; i < x->n_media; i++) {
        ares_grid g = x->media[i].grid;
        vision_patches p;
        const tower_input in = vision_input(x, i, &p);
        ARES_TRY(tower_features(x->m, NULL, &in, x->features + at));
        at += (int64_t)g.t * g.h * g.w / (v->merge * v->merge) * v->out;
    }
    return ARES_OK;
}

/* Positions, and the rows of images, then of videos. */
static inline int vision_place(vision_row *x)
{
    const ares_vision_config *v = &x->m->cfg.vision;
    for (int i = 0; i < 3; i++)
        x->position[i] = ares_arena_calloc(x->arena, (size_t)x->n, sizeof(int32_t));
    x->feature_rows = ares_arena_calloc(x->arena, (size_t)x->n, sizeof(int32_t));
    x->n_features = 0;
    for (int kind = 0; kind < 2; kind++)
        for (int32_t i = 0; i < x->n; i++)
            if (x->ids[i] == (kind ? v->video_token : v->image_token))
                x->feature_rows[x->n_features++] = i;
    const ares_media_rules rules = { .processor.merge = v->merge,
                                     .image_token = v->image_token,
                                     .video_token = v->video_token,
                                     .tokens_per_second = v->tokens_per_second };
    ares_media media = { .n = x->n_media, .items = x->media };
    for (int32_t i = 0; i < x->n_media; i++) media.n_videos += x->media[i].video;
    media.n_images = media.n - media.n_videos;
    ares_row_media row_media;
    ARES_TRY(row_media_of(&rules, &media, x->ids, x->n, x->arena, &row_media));
    for (int i = 0; i < 3; i++)
        memcpy(x->position[i], (const int32_t *[]){ row_media.t, row_media.h, row_media.w }[i],
               (size_t)x->n * sizeof(int32_t));
    x->delta = row_media.delta;
    return ARES_OK;
}

/* start [2] */
static inline ares_packed vision_packed(const vision_row *x, int32_t rows, const int32_t *start,
                                        const int32_t *out, int32_t n_out)
{
    size_t n = (size_t)x->n_features * (size_t)x->m->cfg.hidden;
    void *back = ares_arena_calloc(x->arena, n + 1, ares_dtype_bytes(x->m->device->k->act));
    return (ares_packed){ .rows = rows,
                          .ids = x->ids,
                          .positions = x->position[0],
                          .positions_h = x->position[1],
                          .positions_w = x->position[2],
                          .n_features = x->n_features,
                          .feature_rows = x->feature_rows,
                          .features = x->features,
                          .d_features = back,
                          .seg = { .n = 1, .rows = rows, .start = start },
                          .n_out = n_out,
                          .out_rows = out };
}

static inline int vision_tower_backward(const vision_row *x, const ares_packed *p)
{
    const ares_vision_config *c = &x->m->cfg.vision;
    int64_t n = (int64_t)x->n_features * c->out, at = 0;
    float *back = ares_arena_calloc(x->arena, (size_t)n + 1, sizeof *back);
    const ares_matrix given = { p->d_features, x->m->device->k->act, ARES_ROWS, x->n_features,
                                c->out };
    ares_matrix_unpack(&given, back, ARES_F32);
    for (int32_t i = 0; i < x->n_media; i++) {
        ares_grid g = x->media[i].grid;
        vision_patches values;
        const tower_input in = vision_input(x, i, &values);
        ARES_TRY(tower_backward_of(x->m, NULL, x->keep, &in, back + at));
        at += (int64_t)g.t * g.h * g.w / (c->merge * c->merge) * c->out;
    }
    return ARES_OK;
}

static inline int vision_backward(const vision_row *x, ares_workspace *work, const ares_packed *p,
                                  ares_head_args *h, vision_memory *v)
{
    ares_device *d = v->d;
    size_t bytes = (size_t)h->rows * sizeof(float);
    h->c_log_prob = vision_take(v, x->a, bytes);
    h->c_entropy = vision_take(v, x->b, bytes);
    h->dx = vision_take(v, NULL, bytes * (size_t)h->lddx);
    ARES_TRY(ares_params_zero_grad(&x->m->params));
    h->dw = ares_model_head_grad(x->m);
    d->k->head_backward(d, h);
    ARES_TRY(ares_model_backward_round(x->m, work, p, 1, (const void *[]){ h->dx }));
    ares_params_join_embed_grad(&x->m->params);
    return x->keep == ARES_KEEP_NOTHING ? ARES_OK : vision_tower_backward(x, p);
}

static inline int vision_pass(vision_row *x, ares_workspace *work, vision_memory *v)
{
    ares_device *d = v->d;
    int32_t n = x->n - 1, width = x->m->cfg.hidden;
    size_t bytes = (size_t)n * sizeof(float);
    const int32_t start[] = { 0, n };
    int32_t *out = ares_arena_calloc(x->arena, (size_t)n, sizeof *out);
    for (int32_t i = 0; i < n; i++) out[i] = i;
    void *hidden;
    ares_packed p = vision_packed(x, n, start, out, n);
    ARES_TRY(ares_model_forward(x->m, work, &p, &hidden));
    ares_head_args h = { .rows = n,
                         .vocab = x->m->cfg.vocab,
                         .x = hidden,
                         .ldx = width,
                         .w = ares_model_head(x->m),
                         .inv_temperature = 1,
                         .target = vision_take(v, x->ids + 1, bytes),
                         .log_prob = vision_take(v, NULL, bytes),
                         .entropy = vision_take(v, NULL, bytes),
                         .lse = vision_take(v, NULL, bytes),
                         .lddx = width };
    d->k->head(d, &h);
    x->log_probs = ares_arena_calloc(x->arena, (size_t)n, sizeof(float));
    x->entropies = ares_arena_calloc(x->arena, (size_t)n, sizeof(float));
    d->k->copy_out(d, x->log_probs, h.log_prob, bytes);
    d->k->copy_out(d, x->entropies, h.entropy, bytes);
    ARES_TRY(d->k->sync(d));
    return x->a ? vision_backward(x, work, &p, &h, v) : ARES_OK;
}

static inline int vision_row_run(vision_row *x)
{
    vision_memory v = { .d = x->m->device };
    ares_workspace *work;
    ARES_TRY(vision_features(x));
    ARES_TRY(vision_place(x));
    ARES_TRY(ares_workspace_new(x->m, ARES_KEEP_ALL, &work));
    int rc = vision_pass(x, work, &v);
    ares_workspace_free(work);
    vision_release(&v);
    return rc;
}

/* ids [n + count]: appends the tokens that follow, each of them from a whole forward pass. */
static inline int vision_row_greedy(vision_row *x, int32_t *ids, int32_t count)
{
    ares_device *d = x->m->device;
    int rc = vision_features(x);
    x->ids = ids;
    for (int32_t i = 0; i < count && rc == ARES_OK; i++) {
        vision_memory v = { .d = d };
        ares_workspace *work = NULL;
        const int32_t start[] = { 0, x->n }, last = x->n - 1;
        void *hidden;
        rc = vision_place(x);
        ares_packed p = vision_packed(x, x->n, start, &last, 1);
        if (rc == ARES_OK) rc = ares_workspace_new(x->m, ARES_KEEP_NOTHING, &work);
        if (rc == ARES_OK) rc = ares_model_forward(x->m, work, &p, &hidden);
        if (rc == ARES_OK) {
            static const float zero;
            ares_sample_args s = { .rows = 1,
                                   .vocab = x->m->cfg.vocab,
                                   .x = hidden,
                                   .ldx = x->m->cfg.hidden,
                                   .w = ares_model_head(x->m),
                                   .temperature = vision_take(&v, &zero, sizeof zero),
                                   .token = vision_take(&v, NULL, sizeof *ids),
                                   .log_prob = vision_take(&v, NULL, sizeof(float)),
                                   .entropy = vision_take(&v, NULL, sizeof(float)) };
            d->k->sample(d, &s);
            d->k->copy_out(d, ids + x->n++, s.token, sizeof *ids);
            rc = d->k->sync(d);
        }
        ares_workspace_free(work);
        vision_release(&v);
    }
    return rc;
}

#endif
