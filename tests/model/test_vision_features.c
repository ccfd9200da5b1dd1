/*
 * Vision models against transformers (tests/golden/vision): features of the tower, and with them
 * positions, log-probs, entropies and the gradients of the text part. A tolerance is a multiple of
 * the difference between transformers' own float32 and float64 runs.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/model.h"
#include "test.h"

static const char *const cases[] = { "qwen2_vl_flat-image",   "qwen2_vl_flat-long_video",
                                     "qwen2_vl_nested-mixed", "qwen2_5_vl_flat-image",
                                     "qwen2_5_vl_mid-mixed",  "qwen2_5_vl_mid-long_video" };

static const ares_tensor_info *find(const ares_safetensors *s, const char *kind, int i)
{
    char name[40];
    (void)snprintf(name, sizeof name, "%s_%d", kind, i);
    return ares_safetensors_find(s, name);
}

/* Largest difference of the features of picture i; -1: there is no such picture. */
static double off(ares_model *m, const ares_safetensors *s, int i, ares_medium *medium,
                  float *features)
{
    const ares_tensor_info *bytes = find(s, "patches", i), *grid = find(s, "grid", i),
                           *want = find(s, "features", i);
    if (!bytes || !medium) return -1;
    static const float mean[] = { 0.48145466f, 0.4578275f, 0.40821073f },
                       std[] = { 0.26862954f, 0.26130258f, 0.27577711f };
    float thw[3];
    memcpy(thw, grid->data, sizeof thw);
    int64_t width = bytes->shape[1], channel = width / 3;
    float *patches = ares_malloc((size_t)bytes->count * sizeof *patches),
          *theirs = ares_malloc((size_t)want->bytes);
    for (int64_t k = 0; k < bytes->count; k++) {
        int64_t c = k % width / channel;
        patches[k] =
            ((float)((const uint8_t *)bytes->data)[k] - mean[c] * 255.0f) / (std[c] * 255.0f);
    }
    memcpy(theirs, want->data, (size_t)want->bytes);
    medium->grid = (ares_grid){ (int32_t)thw[0], (int32_t)thw[1], (int32_t)thw[2] };
    CHECK_OK(ares_model_features(m, medium->grid, patches, features));
    double worst = 0;
    for (int64_t k = 0; k < want->count; k++)
        worst = fmax(worst, fabs((double)features[k] - (double)theirs[k]));
    ares_free(patches);
    ares_free(theirs);
    return worst;
}

enum { MOST = 256 };
typedef struct row {
    ares_arena arena;
    const ares_json *root;
    int32_t n, n_features, n_media, delta;
    int32_t ids[MOST], t[MOST], h[MOST], w[MOST], feature_rows[MOST], out[MOST];
    ares_medium media[4];
    float features[MOST * 64], d_features[MOST * 64];
} row;

static void positions_agree(const ares_model *m, row *x)
{
    const ares_json *want = ares_json_get(x->root, "position_ids");
    const int32_t *axis[] = { x->t, x->h, x->w };
    REQUIRE_OK(ares_mrope_positions(&m->cfg.vision, x->ids, x->n, x->media, x->n_media, x->t, x->h,
                                    x->w, &x->delta));
    for (int a = 0; a < 3; a++)
        for (int32_t i = 0; i < x->n; i++) CHECK_EQ(axis[a][i], want->items[a].items[i].integer);
    CHECK_EQ(x->delta, ares_json_get(x->root, "rope_delta")->integer);
}

/* Images before videos, each in its order, as their tokens in the cases. */
static void find_places(const ares_model *m, row *x)
{
    x->n_features = 0;
    for (int kind = 0; kind < 2; kind++)
        for (int32_t i = 0; i < x->n; i++)
            if (x->ids[i] == (kind ? m->cfg.vision.video_token : m->cfg.vision.image_token))
                x->feature_rows[x->n_features++] = i;
}

static double worst_of(const row *x, const char *key, const float *got)
{
    const ares_json *want = ares_json_get(x->root, key);
    double worst = 0;
    for (int64_t i = 0; i < want->count; i++)
        worst = fmax(worst, fabs((double)got[i] - want->items[i].number));
    return worst;
}

static double dev_of(const row *x, const char *key)
{
    return ares_json_get(ares_json_get(x->root, "f32_dev"), key)->number;
}

static void gradients_agree(const ares_model *m, const row *x, const ares_safetensors *s)
{
    const ares_json *dev = ares_json_get(ares_json_get(x->root, "f32_dev"), "grads");
    int compared = 0;
    for (int i = 0; i < m->n_params; i++) {
        const ares_param *p = &m->params[i];
        const ares_tensor_info *t = ares_safetensors_find(s, p->name);
        if (!t || !p->grad.data) continue;
        float *mine = ares_malloc((size_t)t->count * sizeof *mine),
              *theirs = ares_malloc((size_t)t->bytes);
        ares_matrix_unpack(&p->grad, mine, ARES_F32);
        memcpy(theirs, t->data, (size_t)t->bytes);
        double worst = 0, largest = 0;
        for (int64_t e = 0; e < t->count; e++) {
            worst = fmax(worst, fabs((double)mine[e] - (double)theirs[e]));
            largest = fmax(largest, fabs((double)theirs[e]));
        }
        CHECK_MSG(worst <= fmax(8 * ares_json_get(dev, p->name)->number, 1e-5 * largest),
                  "%s: off by %g of %g", p->name, worst, largest);
        compared++;
        ares_free(mine);
        ares_free(theirs);
    }
    CHECK(compared > 20);
}

static void row_agrees(ares_model *m, row *x, const ares_safetensors *s, const char *name)
{
    ares_device *d = m->device;
    ares_workspace *work;
    const int32_t start[] = { 0, x->n - 1 };
    void *hidden;
    int32_t n = x->n - 1, width = m->cfg.hidden;
    for (int32_t i = 0; i < n; i++) x->out[i] = i;
    ares_packed p = { .rows = n,
                      .ids = x->ids,
                      .positions = x->t,
                      .positions_h = x->h,
                      .positions_w = x->w,
                      .n_features = x->n_features,
                      .feature_rows = x->feature_rows,
                      .features = x->features,
                      .d_features = x->d_features,
                      .seg = { .n = 1, .rows = n, .start = start },
                      .n_out = n,
                      .out_rows = x->out };
    CHECK_OK(ares_workspace_new(m, ARES_KEEP_ALL, &work));
    CHECK_OK(ares_model_forward(m, work, &p, &hidden));
    float *buffer = ares_calloc((size_t)n * (size_t)(5 + width), sizeof *buffer);
    ares_head_args h = { .rows = n,
                         .vocab = m->cfg.vocab,
                         .x = hidden,
                         .ldx = width,
                         .w = ares_model_head(m),
                         .inv_temperature = 1,
                         .target = x->ids + 1,
                         .log_prob = buffer,
                         .entropy = buffer + n,
                         .lse = buffer + 2 * n,
                         .c_log_prob = buffer + 3 * n,
                         .c_entropy = buffer + 4 * n,
                         .dx = buffer + 5 * n,
                         .lddx = width,
                         .dw = ares_model_head_grad(m) };
    d->k->head(d, &h);
    double p_off = worst_of(x, "log_probs", h.log_prob),
           e_off = worst_of(x, "entropies", h.entropy);
    CHECK_MSG(p_off <= 8 * dev_of(x, "log_probs") + 2e-6, "%s: log-probs off by %g", name, p_off);
    CHECK_MSG(e_off <= 8 * dev_of(x, "entropies") + 2e-6, "%s: entropies off by %g", name, e_off);
    const ares_json *a = ares_json_get(x->root, "a"), *b = ares_json_get(x->root, "b");
    for (int32_t i = 0; i < n; i++) {
        ((float *)h.c_log_prob)[i] = (float)a->items[i].number;
        ((float *)h.c_entropy)[i] = (float)b->items[i].number;
    }
    ares_model_zero_grad(m);
    d->k->head_backward(d, &h);
    CHECK_OK(ares_model_backward_round(m, work, &p, 1, (const void *[]){ h.dx }));
    ares_model_join_embed_grad(m);
    if (strstr(name, "mixed")) gradients_agree(m, x, s);
    ares_free(buffer);
    ares_workspace_free(work);
}

static void read_row(row *x, const char *path)
{
    ares_str text = { 0 };
    memset(x, 0, sizeof *x);
    REQUIRE_OK(ares_file_read(path, &text));
    REQUIRE_OK(ares_json_parse(&x->arena, ares_str_view(&text), path, &x->root));
    const ares_json *ids = ares_json_get(x->root, "input_ids"),
                    *media = ares_json_get(x->root, "media");
    for (; x->n < ids->count; x->n++) x->ids[x->n] = (int32_t)ids->items[x->n].integer;
    for (int64_t i = 0; i < media->count; i++)
        x->media[i] =
            (ares_medium){ .video = ares_json_get(&media->items[i], "video")->integer,
                           .second_per_grid =
                               ares_json_get(&media->items[i], "second_per_grid")->number };
    ares_str_fini(&text);
}

TEST(rows_with_images_and_videos_are_those_of_transformers)
{
    for (int c = 0; c < ARES_COUNT(cases); c++) {
        char model[300], path[300];
        ares_device d;
        ares_model *m;
        ares_safetensors *s;
        ares_model_options opt = { .storage = ARES_F32, .trainable = true };
        static row x;
        int stem = (int)(strchr(cases[c], '-') - cases[c]);
        (void)snprintf(model, sizeof model, "%s/%.*s", test_source("tests/golden/models"), stem,
                       cases[c]);
        (void)snprintf(path, sizeof path, "%s/%s.safetensors", test_source("tests/golden/vision"),
                       cases[c]);
        CHECK_OK(ares_device_open_table("cpu", "native", ARES_F32, 2, &d));
        REQUIRE_OK(ares_model_load(model, &d, &opt, &m));
        REQUIRE_OK(ares_safetensors_open(path, &s));
        float dev;
        memcpy(&dev, ares_safetensors_find(s, "f32_dev")->data, sizeof dev);
        (void)snprintf(path, sizeof path, "%s/%s.json", test_source("tests/golden/vision"),
                       cases[c]);
        read_row(&x, path);
        int64_t at = 0;
        for (double worst;
             (worst = off(m, s, x.n_media, &x.media[x.n_media], x.features + at)) >= 0;) {
            CHECK_MSG(worst <= 5 * (double)dev, "%s, %d: off by %g, tolerance %g", cases[c],
                      x.n_media, worst, 5 * (double)dev);
            at += find(s, "features", x.n_media++)->count;
        }
        CHECK(x.n_media > 0);
        positions_agree(m, &x);
        find_places(m, &x);
        CHECK_EQ((int64_t)x.n_features * m->cfg.hidden, at);
        row_agrees(m, &x, s, cases[c]);
        ares_arena_fini(&x.arena);
        ares_safetensors_close(s);
        ares_model_free(m);
        ares_device_close(&d);
    }
}
