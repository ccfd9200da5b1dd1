/*
 * Speed of the vision tower as JSON lines beside peers/vision.py: features of a picture, and
 * forward and backward of one, in patches per second; blocks as wide as the real ones, fewer of
 * them.
 *
 *   bench_vision [family=2|2.5] [side=32] [depth=4] [threads=0] [repeat=3] [keep=all|inputs]
 *                [device=cpu] [kernels=native] [dtype=fp32]
 *
 * side: of the picture, in patches; from its bytes on, of which the tower makes the values that
 * transformers' tower is given. GFLOP count products and visible pairs, 2 per multiplication
 * and addition; a backward as twice the forward, so that recomputation lowers the result.
 */
#include "../src/model/internal.h"
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct options {
    bool gated, recompute, bf16;
    int32_t side, depth;
    int threads, repeat;
    const char *device, *kernels;
} options;

static bool word(const char *arg, const char *key, const char **value)
{
    size_t n = strlen(key);
    if (strncmp(arg, key, n) != 0 || arg[n] != '=') return false;
    *value = arg + n + 1;
    return true;
}

static bool read_options(int argc, char **argv, options *o)
{
    *o = (options){ .side = 32, .depth = 4, .repeat = 3, .device = "cpu", .kernels = "native" };
    for (int i = 1; i < argc; i++) {
        const char *v;
        if (word(argv[i], "family", &v)) o->gated = strcmp(v, "2.5") == 0;
        else if (word(argv[i], "side", &v)) o->side = atoi(v);
        else if (word(argv[i], "depth", &v)) o->depth = atoi(v);
        else if (word(argv[i], "threads", &v)) o->threads = atoi(v);
        else if (word(argv[i], "repeat", &v)) o->repeat = atoi(v);
        else if (word(argv[i], "keep", &v)) o->recompute = strcmp(v, "inputs") == 0;
        else if (word(argv[i], "device", &v)) o->device = v;
        else if (word(argv[i], "kernels", &v)) o->kernels = v;
        else if (word(argv[i], "dtype", &v)) o->bf16 = strcmp(v, "bf16") == 0;
        else return false;
    }
    return o->side > 0 && o->side % 2 == 0 && o->depth > 0 && o->repeat > 0;
}

static int open_model(const options *o, ares_device *d, ares_model **m)
{
    ares_model_config c = bench_tiny();
    c.hidden = 2048, c.layers = 1, c.intermediate = 512;
    c.heads = 16, c.kv_heads = 2, c.head_dim = 128;
    c.rope.theta = 1e6;
    c.rope.section[0] = 16, c.rope.section[1] = c.rope.section[2] = 24;
    c.vision = (ares_vision_config){ .depth = o->depth,
                                     .width = 1280,
                                     .heads = 16,
                                     .intermediate = o->gated ? 3420 : 5120,
                                     .out = 2048,
                                     .channels = 3,
                                     .patch = 14,
                                     .merge = 2,
                                     .temporal = 2,
                                     .gated = o->gated,
                                     .window = o->gated ? 112 : 0,
                                     .full_blocks = (uint64_t)1 << (o->depth - 1) };
    (void)snprintf(c.model_type, sizeof c.model_type, o->gated ? "qwen2_5_vl" : "qwen2_vl");
    ares_dtype dtype = o->bf16 ? ARES_BF16 : ARES_F32;
    ares_model_options opt = { .storage = dtype, .trainable = true };
    ARES_TRY(ares_device_open_table(o->device, o->kernels, dtype, o->threads, d));
    return ares_model_new(&c, d, &opt, 1, m);
}

/* Of one forward pass. */
static double gflop(const options *o, const ares_model *m)
{
    const ares_vision_config *v = &m->cfg.vision;
    double n = (double)o->side * o->side, w = v->width, wide = v->intermediate, pairs = 0;
    for (int i = 0; i < v->depth; i++)
        pairs += n * (v->window && !(v->full_blocks >> i & 1) ? ARES_MIN(64, n) : n);
    double block = 4 * w * w + (o->gated ? 3 : 2) * w * wide;
    return 1e-9 * (2 * n * (v->depth * block + 1176 * w + 4 * w * w + w * v->out) + 4 * w * pairs);
}

static void line(const options *o, const ares_device *d, const char *measure, const double *times,
                 double work)
{
    struct rusage use;
    double best = times[0], n = (double)o->side * o->side;
    for (int i = 1; i < o->repeat; i++) best = ARES_MIN(best, times[i]);
    (void)getrusage(RUSAGE_SELF, &use);
    printf("{\"measure\":\"%s\",\"side\":\"ares\",\"value\":%.6g,\"unit\":\"patches/s\",\"all\":[",
           measure, n / best);
    for (int i = 0; i < o->repeat; i++) printf("%s%.6g", i ? "," : "", n / times[i]);
    printf("],\"gflops\":%.1f,\"gflop_per_patch\":%.6g,\"family\":\"%s\",\"patches\":%.0f,"
           "\"depth\":%d,\"keep\":\"%s\","
           "\"kernels\":\"%s\",\"threads\":%d,\"peak_gib\":%.3f}\n",
           work / best, work / n, o->gated ? "2.5" : "2", n, o->depth,
           o->recompute ? "inputs" : "all", d->k->name, ares_pool_threads(d->pool),
           (double)use.ru_maxrss / 1048576);
    (void)fflush(stdout);
}

typedef struct picture {
    ares_medium m;
    ares_processor p;
    uint8_t *pixels;
} picture;

static void write_patches(const void *of, int32_t first, int32_t n, float *values)
{
    const picture *p = of;
    ares_medium_patches(&p->m, &p->p, p->pixels, first, n, values);
}

static int measure(const options *o, ares_device *d, ares_model *m)
{
    ares_grid grid = { 1, o->side, o->side };
    int64_t rows = (int64_t)o->side * o->side, n = rows * 14 * 14 * 3, out = rows / 4 * 2048;
    picture p = { .m = { .grid = grid, .frames = 1 }, .pixels = ares_malloc((size_t)n) };
    const tower_input in = { grid, write_patches, &p };
    float *features = ares_malloc((size_t)out * sizeof *features);
    double *times = ares_calloc((size_t)o->repeat + 1, sizeof *times);
    ares_rng_key key = ares_rng_root(1, ARES_RNG_TEST);
    for (int64_t i = 0; i < n; i++) p.pixels[i] = (uint8_t)ares_rng_below(key, (uint64_t)i, 256);
    int rc = ares_processor_load("/nonexistent", &p.p);     /* the defaults of Qwen2-VL */
    for (int i = 0; i <= o->repeat && rc == ARES_OK; i++) { /* the first does not count */
        times[i] = ares_now_s();
        rc = tower_features(m, NULL, &in, features);
        times[i] = ares_now_s() - times[i];
    }
    if (rc == ARES_OK) line(o, d, "vision", times + 1, gflop(o, m));
    for (int i = 0; i <= o->repeat && rc == ARES_OK; i++) {
        rc = ares_params_zero_grad(&m->params);
        times[i] = ares_now_s();
        if (rc == ARES_OK)
            rc = tower_backward_of(m, NULL, o->recompute ? ARES_KEEP_INPUTS : ARES_KEEP_ALL, &in,
                                   features);
        times[i] = ares_now_s() - times[i];
    }
    if (rc == ARES_OK) line(o, d, "vision, backward", times + 1, 3 * gflop(o, m));
    ares_free(p.pixels);
    ares_free(features);
    ares_free(times);
    return rc;
}

int main(int argc, char **argv)
{
    options o;
    ares_device d = { 0 };
    ares_model *m = NULL;
    if (!read_options(argc, argv, &o)) {
        fprintf(stderr, "usage: see the first lines of benchmarks/vision.c\n");
        return 2;
    }
    int rc = open_model(&o, &d, &m);
    if (rc == ARES_OK) rc = measure(&o, &d, m);
    if (rc != ARES_OK) fprintf(stderr, "%s\n", ares_error_message());
    ares_model_free(m);
    if (d.k) ares_device_close(&d);
    return rc == ARES_OK ? 0 : 1;
}
