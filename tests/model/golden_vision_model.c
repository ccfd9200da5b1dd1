/*
 * Whole vision models: features, positions, log-probs, entropies, gradients of every parameter and
 * greedy tokens of a row. `inputs` name a model directory and a case of its golden.json; beside
 * them lie the case's pictures as resized bytes, its features and its gradients. Log-probs and
 * entropies may differ by 2e-4, gradients by 1e-4 of the tensor's largest entry, or by five times
 * the difference of transformers' own f32 and f64 runs.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "golden.h"
#include "model/vision_row.h"

enum { MOST = 8, GREEDY = 10 };
typedef struct vision_case {
    golden *g;
    const char *stem; /* path of the case's files, without their endings */
    const ares_json *root;
    ares_safetensors *pictures; /* NULL: a row of text */
    ares_medium media[MOST];
    float *patches[MOST];
    vision_row x;
} vision_case;

static const ares_json *find_case(const ares_json *root, ares_view name)
{
    const ares_json *list = ares_json_get(root, "cases");
    for (int64_t i = 0; list && i < list->count; i++)
        if (ares_view_eq(ares_json_get(&list->items[i], "name")->text, name))
            return &list->items[i];
    return NULL;
}

/* bytes: [T][H][W][3]; a picture stands for both times of its only pair. */
static float *patches_of(golden *g, const ares_vision_config *v, ares_grid grid,
                         const uint8_t *bytes, bool video)
{
    static const float mean[] = { 0.48145466f, 0.4578275f, 0.40821073f },
                       std[] = { 0.26862954f, 0.26130258f, 0.27577711f };
    int64_t side = v->patch, wide = grid.w * side, high = grid.h * side, block = v->merge,
            rows = (int64_t)grid.t * grid.h * grid.w, width = 3 * v->temporal * side * side;
    float *out = ares_arena_alloc(g->arena, (size_t)(rows * width) * sizeof *out), *to = out;
    for (int64_t r = 0; r < rows; r++) {
        int64_t within = r % (grid.h * grid.w), t = r / (grid.h * grid.w), group = block * block,
                of = within / group, inside = within % group, across = grid.w / block;
        int64_t y = of / across * block + inside / block, x = of % across * block + inside % block;
        for (int64_t i = 0; i < width; i++) {
            int64_t c = i / (v->temporal * side * side), frame = i / (side * side) % v->temporal,
                    py = y * side + i / side % side, px = x * side + i % side,
                    at = video ? t * v->temporal + frame : 0;
            uint8_t byte = bytes[((at * high + py) * wide + px) * 3 + c];
            *to++ = ((float)byte - mean[c] * 255.0f) / (std[c] * 255.0f);
        }
    }
    return out;
}

/* Images or videos, as the case lists them. */
static bool add_pictures(vision_case *c, const char *list, const char *kind, bool video)
{
    const ares_json *all = ares_json_get(c->root, list);
    for (int64_t i = 0; i < all->count; i++) {
        char name[40];
        (void)snprintf(name, sizeof name, "resized_%s_%d", kind, (int)i);
        const ares_tensor_info *t = c->pictures ? ares_safetensors_find(c->pictures, name) : NULL;
        const ares_json *x = &all->items[i], *thw = ares_json_get(x, "grid_thw"),
                        *seconds = ares_json_get(x, "second_per_grid");
        if (!t || c->x.n_media == MOST) return golden_fail(c->g, "no tensor '%s'", name);
        ares_medium *m = &c->media[c->x.n_media];
        *m =
            (ares_medium){ .video = video,
                           .grid = { (int32_t)thw->items[0].integer, (int32_t)thw->items[1].integer,
                                     (int32_t)thw->items[2].integer },
                           .second_per_grid = seconds ? seconds->number : 0 };
        c->patches[c->x.n_media++] = patches_of(c->g, &c->x.m->cfg.vision, m->grid, t->data, video);
    }
    return true;
}

static bool open_case(vision_case *c, ares_device *d)
{
    golden *g = c->g;
    ares_str text = { 0 };
    const ares_json *root = NULL;
    const char *dir = ares_arena_printf(g->arena, "%s%s", g->folder, golden_z(g, "model")),
               *path = ares_arena_printf(g->arena, "%s/golden.json", dir);
    ares_model_options opt = { .storage = ARES_F32, .trainable = true };
    c->stem = ares_arena_printf(g->arena, "%s/%s", dir, golden_z(g, "case"));
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK) rc = ares_json_parse(g->arena, ares_str_view(&text), path, &root);
    ares_str_fini(&text);
    if (rc == ARES_OK) rc = ares_model_load(dir, d, &opt, &c->x.m);
    path = ares_arena_printf(g->arena, "%s.safetensors", c->stem);
    if (rc == ARES_OK && ares_file_exists(path)) rc = ares_safetensors_open(path, &c->pictures);
    if (!golden_ok(g, rc)) return false;
    c->root = find_case(root, golden_string(g, "case"));
    return (c->root || golden_fail(g, "golden.json has no such case")) &&
           add_pictures(c, "images", "image", false) && add_pictures(c, "videos", "video", true);
}

static const ares_json *member(const vision_case *c, const char *key)
{
    return ares_json_get(c->root, key);
}

static int32_t *ids_of(vision_case *c, int64_t n, int64_t room)
{
    const ares_json *list = member(c, "input_ids");
    int32_t *ids = ares_arena_calloc(c->g->arena, (size_t)(n + room), sizeof *ids);
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)list->items[i].integer;
    return ids;
}

static float *floats_of(vision_case *c, const char *key)
{
    int64_t n;
    const double *list = golden_flat(c->g, member(c, key), &n);
    float *x = ares_arena_calloc(c->g->arena, (size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)list[i];
    return x;
}

/* Fails where `worst` is above the tolerance; a NaN is. */
static void near(vision_case *c, const char *what, double worst, double tolerance)
{
    c->g->checks++;
    if (!(worst <= tolerance))
        golden_fail(c->g, "%s: off by %g, tolerance %g", what, worst, tolerance);
}

static double difference(const float *got, const void *want, int64_t n, double *largest)
{
    double worst = 0;
    *largest = 0;
    for (int64_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, (const char *)want + (size_t)i * sizeof x, sizeof x);
        double off = fabs((double)got[i] - (double)x);
        if (!(off <= worst)) worst = off;
        *largest = fmax(*largest, fabs((double)x));
    }
    return worst;
}

static double deviation(const vision_case *c, const char *group, const char *key)
{
    const ares_json *dev = member(c, "f32_dev"), *of = group ? ares_json_get(dev, group) : dev,
                    *x = of ? ares_json_get(of, key) : NULL;
    return x ? x->number : 0;
}

/* All images, then all videos. */
static void features(vision_case *c)
{
    static const char *const kinds[] = { "image_features", "video_features" };
    const float *at = c->x.features;
    for (int k = 0; k < 2 && c->pictures; k++) {
        const ares_tensor_info *t = ares_safetensors_find(c->pictures, kinds[k]);
        double largest;
        if (!t) continue;
        near(c, kinds[k], difference(at, t->data, t->count, &largest),
             5 * deviation(c, "seen", kinds[k]));
        at += t->count;
    }
}

static void column(vision_case *c, const char *key, const float *got, const char *sum)
{
    int64_t n;
    const double *want = golden_flat(c->g, member(c, key), &n);
    double worst = 0, total = 0;
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - want[i]);
        if (!(off <= worst)) worst = off;
        total += (double)got[i];
    }
    near(c, key, worst, fmax(2e-4, 5 * deviation(c, NULL, key)));
    golden_near(c->g, sum, total, golden_want(c->g, sum));
}

static void loss(vision_case *c)
{
    double sum = 0;
    for (int32_t i = 0; i < c->x.n - 1; i++)
        sum += (double)c->x.a[i] * (double)c->x.log_probs[i] +
               (double)c->x.b[i] * (double)c->x.entropies[i];
    golden_near(c->g, "loss", sum, golden_want(c->g, "loss"));
}

static void positions(vision_case *c)
{
    const ares_json *want = member(c, "position_ids");
    double *got = ares_arena_calloc(c->g->arena, (size_t)c->x.n, sizeof *got);
    for (int axis = 0; axis < 3; axis++) {
        for (int32_t i = 0; i < c->x.n; i++) got[i] = c->x.position[axis][i];
        golden_numbers(c->g, "position_ids", got, c->x.n, &want->items[axis]);
    }
    golden_equal(c->g, "rope_delta", c->x.delta, member(c, "rope_delta"));
}

/* A tensor that the file lacks has gradient zero. */
static void gradients(vision_case *c)
{
    const ares_model *m = c->x.m;
    ares_safetensors *s;
    if (!golden_ok(c->g, ares_safetensors_open(
                             ares_arena_printf(c->g->arena, "%s.grads.safetensors", c->stem), &s)))
        return;
    for (int i = 0; i < m->params.n; i++) {
        const ares_param *p = &m->params.list[i];
        const ares_tensor_info *t = ares_safetensors_find(s, p->name);
        int64_t n = (int64_t)p->weight.n * p->weight.k;
        float *mine = ares_malloc((size_t)n * sizeof *mine), *none = NULL;
        double largest;
        ares_matrix_unpack(&p->grad, mine, ARES_F32);
        if (!t) none = ares_calloc((size_t)n, sizeof *none);
        double worst = difference(mine, t ? t->data : none, n, &largest);
        near(c, p->name, worst, fmax(1e-4 * largest, 5 * deviation(c, "grads", p->name)));
        ares_free(mine);
        ares_free(none);
    }
    ares_safetensors_close(s);
}

static void greedy(vision_case *c)
{
    int32_t prompt = (int32_t)member(c, "prompt_length")->integer, *ids = ids_of(c, prompt, GREEDY);
    double got[GREEDY];
    c->x.n = prompt;
    if (!golden_ok(c->g, vision_row_greedy(&c->x, ids, GREEDY))) return;
    for (int i = 0; i < GREEDY; i++) got[i] = ids[prompt + i];
    golden_numbers(c->g, "greedy", got, GREEDY, golden_want(c->g, "greedy"));
}

static void run(vision_case *c, ares_device *d)
{
    if (!open_case(c, d)) return;
    int64_t n = member(c, "input_ids")->count;
    c->x.n = (int32_t)n;
    c->x.ids = ids_of(c, n, 0);
    c->x.media = c->media;
    c->x.patches = c->patches;
    c->x.a = floats_of(c, "a");
    c->x.b = floats_of(c, "b");
    c->x.keep = ARES_KEEP_INPUTS;
    c->x.arena = c->g->arena;
    if (!golden_ok(c->g, vision_row_run(&c->x))) return;
    features(c);
    positions(c);
    column(c, "log_probs", c->x.log_probs, "log_prob_sum");
    column(c, "entropies", c->x.entropies, "entropy_sum");
    loss(c);
    gradients(c);
    greedy(c);
}

GOLDEN(vision, vision_model)
{
    vision_case c = { .g = g };
    ares_device d;
    if (!golden_ok(g, ares_device_open("cpu", 2, &d))) return;
    run(&c, &d);
    if (c.pictures) ares_safetensors_close(c.pictures);
    ares_model_free(c.x.m);
    ares_device_close(&d);
}
