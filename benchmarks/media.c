/*
 * Pictures per second on one thread, from a file to a tower's patches: decoding, the processor's
 * resize, pixel values. A JSON line per picture, the best and all of several runs.
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

#include "ares/media.h"

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

/* Where the time goes, of one run. */
typedef struct seconds {
    double open, read, patches;
} seconds;

static int run(const ares_json *list, const ares_processor *p, float **patches, seconds *s,
               int32_t *tokens)
{
    ares_arena arena = { 0 };
    ares_media media;
    uint8_t *pixels;
    uint64_t key;
    double begin = ares_now_s();
    int rc = ares_media_open(list, NULL, p, &(ares_media_options){ 0 }, &arena, &media);
    double opened = ares_now_s(), read = opened;
    if (rc == ARES_OK) rc = ares_medium_read(&media.items[0], p, &pixels, &key);
    if (rc == ARES_OK) {
        const ares_medium *m = &media.items[0];
        read = ares_now_s();
        if (!*patches)
            *patches = ares_malloc((size_t)m->grid.h * (size_t)m->grid.w * 1176 * sizeof(float));
        ares_medium_patches(m, p, pixels, *patches);
        *tokens = ares_medium_tokens(m, p->merge);
        ares_free(pixels);
    }
    *s = (seconds){ opened - begin, read - opened, ares_now_s() - read };
    ares_arena_fini(&arena);
    return rc;
}

static int bench(const char *name, const char *path, int repeat)
{
    static double all[RUNS];
    ares_arena arena = { 0 };
    ares_processor p;
    const ares_json *list;
    float *patches = NULL;
    int32_t tokens = 0;
    seconds best = { 0 };
    ARES_TRY(ares_processor_load("/nonexistent", &p)); /* the defaults of Qwen2-VL */
    p.image_max = 12845056;                            /* of the published models */
    char *text = ares_arena_printf(&arena, "[\"%s\"]", path);
    ARES_TRY(ares_json_parse(&arena, ares_view_of(text), "list", &list));
    for (int i = -1; i < repeat; i++) { /* the first does not count */
        seconds s;
        ARES_TRY(run(list, &p, &patches, &s, &tokens));
        double total = s.open + s.read + s.patches, before = best.open + best.read + best.patches;
        if (i >= 0) all[i] = 1 / total;
        if (i == 0 || (i > 0 && total < before)) best = s;
    }
    printf("{\"measure\":\"media\",\"side\":\"ares\",\"case\":\"%s\",\"value\":%.5g,"
           "\"unit\":\"pictures/s\",\"tokens\":%d,\"open_ms\":%.3f,\"read_ms\":%.3f,"
           "\"patches_ms\":%.3f,\"all\":[",
           name, 1 / (best.open + best.read + best.patches), tokens, best.open * 1e3,
           best.read * 1e3, best.patches * 1e3);
    for (int i = 0; i < repeat; i++) printf("%s%.5g", i ? "," : "", all[i]);
    printf("]}\n");
    ares_free(patches);
    ares_arena_fini(&arena);
    return ARES_OK;
}

int main(int argc, char **argv)
{
    int repeat = argc > 2 ? atoi(argv[2]) : 20;
    ares_str jpeg = { 0 }, png = { 0 };
    if (argc < 2 || repeat < 1 || repeat > RUNS)
        return fprintf(stderr, "usage: bench_media FOLDER [REPEAT]\n"), 2;
    ares_path_join(&jpeg, argv[1], "a.jpg");
    ares_path_join(&png, argv[1], "b.png");
    if (!ares_file_exists(jpeg.data)) {
        uint8_t *rgb = scene(640, 480);
        write_jpeg(jpeg.data, rgb, 640, 480);
        ares_free(rgb);
    }
    if (!ares_file_exists(png.data)) {
        uint8_t *rgb = scene(1024, 1024);
        write_png(png.data, rgb, 1024, 1024);
        ares_free(rgb);
    }
    int rc = bench("JPEG 640 x 480", jpeg.data, repeat);
    if (rc == ARES_OK) rc = bench("PNG 1024 x 1024", png.data, repeat);
    if (rc != ARES_OK) fprintf(stderr, "%s\n", ares_error_message());
    ares_str_fini(&jpeg);
    ares_str_fini(&png);
    return rc == ARES_OK ? 0 : 1;
}
