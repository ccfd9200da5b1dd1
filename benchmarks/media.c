/*
 * Pictures per second on one thread: from a file to what is kept of it (decoding, the processor's
 * resize, the key of its bytes); the same without the decoding, for which both sides use the same
 * libraries; and on to the values of its patches in one array, as transformers' processor leaves
 * them. Here the tower makes the values where its first product reads them, a few rows at a time,
 * which bench_vision counts. JSON lines, the best and all of several runs.
 *
 *   bench_media FOLDER [REPEAT]
 *
 * The folder holds a.jpg and b.png, which are made where they are missing: a scene of 640 x 480 as
 * JPEG (4:2:0, quality 90) and one of 1024 x 1024 as PNG. benchmarks/peers/media.py measures the
 * same files with transformers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>

#include "media/internal.h"

enum { RUNS = 1000 };

/* Smooth light and colour, edges, and a sensor's noise: what photographs cost. */
static uint8_t *scene(int w, int h)
{
    uint8_t *rgb = ares_malloc((size_t)w * (size_t)h * 3);
    ares_rng_key key = ares_rng_root(1, ARES_RNG_TEST);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++) {
                double light = 120 + 60 * sin(x * 0.011 + c) * cos(y * 0.017 - c),
                       edge = (x / 90 + y / 70) % 3 == c ? 40 : 0;
                uint64_t at = (uint64_t)(y * w + x) * 3 + (uint64_t)c;
                double noise = 3 * ares_rng_normal(key, at);
                rgb[at] = (uint8_t)fmin(fmax(light + edge + noise, 0), 255);
            }
    return rgb;
}

static void write_jpeg(const char *path, const uint8_t *rgb, int w, int h)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    FILE *f = fopen(path, "wb");
    ARES_ASSERT(f);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, f);
    jpeg.image_width = (JDIMENSION)w;
    jpeg.image_height = (JDIMENSION)h;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 90, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < h; y++) {
        JSAMPROW row = (JSAMPROW)(rgb + (size_t)y * (size_t)w * 3);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    ARES_ASSERT(fclose(f) == 0);
}

static void write_png(const char *path, const uint8_t *rgb, int w, int h)
{
    png_image image = { .version = PNG_IMAGE_VERSION,
                        .width = (png_uint_32)w,
                        .height = (png_uint_32)h,
                        .format = PNG_FORMAT_RGB };
    ARES_ASSERT(png_image_write_to_file(&image, path, 0, rgb, 0, NULL));
}

/* One picture, and what its runs reuse, as a program that reads many does. */
typedef struct job {
    const ares_json *list;
    ares_processor p;
    ares_medium m; /* of the last run */
    uint8_t *pixels;
    float *patches;
} job;

static int from_file(job *j)
{
    ares_arena arena = { 0 };
    ares_media media;
    uint64_t key;
    ares_free(j->pixels);
    j->pixels = NULL;
    int rc = media_open(j->list, NULL, &j->p, &(ares_media_options){ 0 }, &arena, &media);
    if (rc == ARES_OK) {
        j->m = media.items[0];
        rc = ares_medium_read(&j->m, &j->p, &j->pixels, &key);
    }
    ares_arena_fini(&arena);
    return rc;
}

/* What ares_medium_read does after decoding. */
static void from_pixels(job *j, const uint8_t *rgb, media_size size)
{
    media_size to = { j->m.grid.w * j->p.patch, j->m.grid.h * j->p.patch };
    size_t n = (size_t)to.w * (size_t)to.h * 3;
    volatile uint64_t key;
    media_resample(MEDIA_TORCH_U8, rgb, size, j->pixels, to);
    key = media_hash(j->pixels, n, 0);
    (void)key;
}

static void to_values(job *j, const uint8_t *rgb, media_size size)
{
    from_pixels(j, rgb, size);
    ares_medium_patches(&j->m, &j->p, j->pixels, 0, j->m.grid.h * j->m.grid.w, j->patches);
}

static void print(const char *name, const char *what, const job *j, const double *rate, int n)
{
    double best = 0;
    for (int i = 0; i < n; i++) best = fmax(best, rate[i]);
    printf("{\"measure\":\"media\",\"side\":\"ares\",\"case\":\"%s, %s\",\"value\":%.5g,"
           "\"unit\":\"pictures/s\",\"tokens\":%d,\"all\":[",
           name, what, best, ares_medium_tokens(&j->m, j->p.merge));
    for (int i = 0; i < n; i++) printf("%s%.5g", i ? "," : "", rate[i]);
    printf("]}\n");
}

static int bench(const char *name, const char *path, const uint8_t *rgb, media_size size,
                 int repeat)
{
    static double rate[RUNS];
    ares_arena arena = { 0 };
    job j = { 0 };
    ARES_TRY(ares_processor_load("/nonexistent", &j.p)); /* the defaults of Qwen2-VL */
    j.p.image_max = 12845056;                            /* of the published models */
    char *text = ares_arena_printf(&arena, "[\"%s\"]", path);
    ARES_TRY(ares_json_parse(&arena, ares_view_of(text), "list", &j.list));
    for (int i = -1; i < repeat; i++) { /* the first does not count */
        double begin = ares_now_s();
        ARES_TRY(from_file(&j));
        if (i >= 0) rate[i] = 1 / (ares_now_s() - begin);
    }
    print(name, "from its file", &j, rate, repeat);
    static const struct {
        const char *what;
        void (*run)(job *j, const uint8_t *rgb, media_size size);
    } parts[] = { { "from its pixels", from_pixels }, { "from its pixels to values", to_values } };
    j.patches = ares_malloc((size_t)j.m.grid.h * (size_t)j.m.grid.w * 1176 * sizeof *j.patches);
    for (int k = 0; k < ARES_COUNT(parts); k++) {
        for (int i = -1; i < repeat; i++) {
            double begin = ares_now_s();
            parts[k].run(&j, rgb, size);
            if (i >= 0) rate[i] = 1 / (ares_now_s() - begin);
        }
        print(name, parts[k].what, &j, rate, repeat);
    }
    ares_free(j.pixels);
    ares_free(j.patches);
    ares_arena_fini(&arena);
    return ARES_OK;
}

int main(int argc, char **argv)
{
    int repeat = argc > 2 ? atoi(argv[2]) : 20;
    ares_str path = { 0 };
    if (argc < 2 || repeat < 1 || repeat > RUNS)
        return fprintf(stderr, "usage: bench_media FOLDER [REPEAT]\n"), 2;
    uint8_t *small = scene(640, 480), *large = scene(1024, 1024);
    ares_path_join(&path, argv[1], "a.jpg");
    if (!ares_file_exists(path.data)) write_jpeg(path.data, small, 640, 480);
    int rc = bench("JPEG 640 x 480", path.data, small, (media_size){ 640, 480 }, repeat);
    ares_path_join(&path, argv[1], "b.png");
    if (!ares_file_exists(path.data)) write_png(path.data, large, 1024, 1024);
    if (rc == ARES_OK)
        rc = bench("PNG 1024 x 1024", path.data, large, (media_size){ 1024, 1024 }, repeat);
    if (rc != ARES_OK) fprintf(stderr, "%s\n", ares_error_message());
    ares_str_fini(&path);
    ares_free(small);
    ares_free(large);
    return rc == ARES_OK ? 0 : 1;
}
