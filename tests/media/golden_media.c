/* Pictures and videos: sizes, resampling, pixel values, decoding, entries of rows. */
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "media/internal.h"
#include "pictures.h"

static bool wants_error(golden *g)
{
    const ares_json *e = ares_json_get(g->expected, "error");
    return e && e->boolean;
}

/* Whether results are to be compared: both agree on whether there are any. */
static bool right(golden *g, int rc)
{
    if (!wants_error(g)) return golden_ok(g, rc);
    g->checks++;
    if (rc == ARES_OK) golden_fail(g, "expected an error");
    else if (!ares_error_message()[0]) golden_fail(g, "an error without a message");
    return false;
}

static int64_t limit(golden *g, const char *key)
{
    return (int64_t)golden_number_or(g, key, 0);
}

static media_size size_of(golden *g)
{
    return (media_size){ (int32_t)golden_number(g, "width"), (int32_t)golden_number(g, "height") };
}

static void check_size(golden *g, int rc, media_size got)
{
    if (!right(g, rc)) return;
    if (g->expected->type == ARES_JSON_ARRAY) {
        golden_numbers(g, "size", (double[]){ got.w, got.h }, 2, g->expected);
        return;
    }
    golden_equal(g, "height", got.h, golden_want(g, "height"));
    golden_equal(g, "width", got.w, golden_want(g, "width"));
}

/* ---------------------------------------------------------------- sizes */

GOLDEN(vision, smart_resize)
{
    media_size out;
    check_size(g,
               media_smart_resize(size_of(g), (int32_t)golden_number(g, "factor"),
                                  limit(g, "min_pixels"), limit(g, "max_pixels"), &out),
               out);
}

GOLDEN(vision, easyr1_dims)
{
    media_size out;
    check_size(g,
               media_easyr1_size(size_of(g), limit(g, "min_pixels"), limit(g, "max_pixels"), &out),
               out);
}
GOLDEN_ALSO(aepo, image_target_dims, vision, easyr1_dims)

GOLDEN(vision, video_dims)
{
    media_size out;
    check_size(g,
               media_video_size(size_of(g), (int32_t)golden_number(g, "frames"),
                                (int32_t)golden_number(g, "factor"), limit(g, "min_pixels"),
                                limit(g, "max_pixels"), &out),
               out);
}

GOLDEN(vision, video_frames)
{
    media_frames f;
    if (!right(g, media_video_frames((int64_t)golden_number(g, "total_frames"),
                                     golden_number(g, "video_fps"), golden_number(g, "fps"),
                                     g->arena, &f)))
        return;
    double *index = ares_arena_calloc(g->arena, (size_t)f.n, sizeof *index);
    for (int32_t i = 0; i < f.n; i++) index[i] = f.index[i];
    golden_numbers(g, "indices", index, f.n, golden_want(g, "indices"));
    golden_near(g, "sample_fps", f.sample_fps, golden_want(g, "sample_fps"));
    golden_near(g, "second_per_grid", 2 / f.sample_fps, golden_want(g, "second_per_grid"));
}

/* ---------------------------------------------------------------- through the room's own door */

static ares_processor processor(golden *g)
{
    int64_t n;
    ares_processor p = { .patch = (int32_t)golden_number(g, "patch_size"),
                         .merge = (int32_t)golden_number(g, "merge_size"),
                         .temporal = (int32_t)golden_number(g, "temporal_patch_size"),
                         .resize = true,
                         .rescale = true,
                         .normalize = true,
                         .rescale_factor = 1 / 255.0 };
    p.image_min = p.video_min = limit(g, "min_pixels");
    p.image_max = p.video_max = limit(g, "max_pixels");
    const ares_json *mean = ares_json_get(g->inputs, "image_mean"),
                    *std = ares_json_get(g->inputs, "image_std");
    for (int i = 0; mean && std && i < 3; i++) {
        p.mean[i] = (float)golden_flat(g, mean, &n)[i];
        p.std[i] = (float)golden_flat(g, std, &n)[i];
    }
    return p;
}

static void check_grid(golden *g, ares_grid grid)
{
    golden_numbers(g, "grid_thw", (double[]){ grid.t, grid.h, grid.w }, 3,
                   golden_want(g, "grid_thw"));
}

/* The first bytes of a PNG file say enough for a plan. */
GOLDEN(vision, image_plan)
{
    ares_media media;
    ares_processor p = processor(g);
    media_size in = size_of(g);
    ares_media_options o = { .min_pixels = limit(g, "data_min_pixels"),
                             .max_pixels = limit(g, "data_max_pixels") };
    ares_view file =
        picture_base64(g->arena, picture_png_header(g->arena, (uint32_t)in.w, (uint32_t)in.h));
    const ares_json *images = picture_json(g->arena, "[{\"bytes\": \"%s\"}]", file.data);
    if (!right(g, media_open(images, NULL, &p, &o, g->arena, &media))) return;
    const ares_medium *m = media.items;
    golden_numbers(g, "pre", (double[]){ m->source->sized.w, m->source->sized.h }, 2,
                   golden_want(g, "pre"));
    golden_numbers(g, "resized", (double[]){ m->grid.w * p.patch, m->grid.h * p.patch }, 2,
                   golden_want(g, "resized"));
    check_grid(g, m->grid);
    golden_equal(g, "patches", m->grid.h * m->grid.w, golden_want(g, "patches"));
    golden_equal(g, "tokens", ares_medium_tokens(m, p.merge), golden_want(g, "tokens"));
}

/* samples: [index ..., value], of rows of `width` values (patches) or of pixels [w][3] */
static void check_samples(golden *g, int64_t columns, int channels, const float *values,
                          const uint8_t *bytes)
{
    const ares_json *list = golden_want(g, "samples");
    for (int64_t i = 0; i < list->count; i++) {
        const ares_json *x = list->items[i].items;
        int64_t at = x[0].integer * columns + x[1].integer;
        if (channels > 1) at = at * channels + x[2].integer;
        golden_near(g, "sample", values ? (double)values[at] : bytes[at],
                    &x[list->items[i].count - 1]);
    }
}

/* The case counts the frame that stands in for the one that lacks. */
static void check_resized(golden *g, const ares_processor *p, const ares_medium *m,
                          const uint8_t *pixels)
{
    int32_t frames = m->video ? m->grid.t * p->temporal : 1;
    size_t frame = (size_t)(m->grid.h * m->grid.w * p->patch * p->patch) * 3;
    uint8_t *all = ares_arena_alloc(g->arena, frame * (size_t)frames);
    for (int32_t i = 0; i < frames; i++)
        memcpy(all + (size_t)i * frame, pixels + (size_t)ARES_MIN(i, m->frames - 1) * frame, frame);
    golden_equal(g, "resized_crc32", picture_crc32(all, frame * (size_t)frames),
                 golden_want(g, "resized_crc32"));
}

static void check_patches(golden *g, const ares_processor *p, const ares_medium *m)
{
    uint8_t *pixels;
    uint64_t key, again;
    if (!golden_ok(g, ares_medium_read(m, p, &pixels, &key))) return;
    int64_t columns = 3 * p->temporal * p->patch * p->patch,
            n = (int64_t)m->grid.t * m->grid.h * m->grid.w * columns;
    float *patches = ares_malloc((size_t)n * sizeof *patches);
    ares_medium_patches(m, p, pixels, 0, m->grid.t * m->grid.h * m->grid.w, patches);
    check_grid(g, m->grid);
    check_resized(g, p, m, pixels);
    golden_equal(g, "crc32", picture_crc32(patches, (size_t)n * sizeof *patches),
                 golden_want(g, "crc32"));
    check_samples(g, columns, 1, patches, NULL);
    ares_free(patches);
    ares_free(pixels);
    if (golden_ok(g, ares_medium_read(m, p, &pixels, &again)) && key != again)
        golden_fail(g, "two keys of one picture");
    ares_free(pixels);
}

static void pixel_values(golden *g, bool video)
{
    ares_media media;
    ares_processor p = processor(g);
    ares_media_options o = { 0 };
    media_size in = size_of(g);
    int64_t frames = video ? (int64_t)golden_number(g, "frames") : 1,
            bytes = (int64_t)in.w * in.h * 3;
    const uint8_t *rgb = picture_bytes(g->arena, golden_z(g, "pixels"),
                                       (uint32_t)golden_number(g, "seed"), frames * bytes);
    ares_str list = { 0 };
    for (int64_t i = 0; i < frames; i++) {
        ares_view file = picture_png(g->arena, rgb + i * bytes, in.w, in.h);
        ares_str_addf(&list, "%s{\"bytes\": \"%s\"}", i ? "," : "",
                      picture_base64(g->arena, file).data);
    }
    const ares_json *entries = picture_json(g->arena, video ? "[[%s]]" : "[%s]", list.data);
    ares_str_fini(&list);
    if (golden_ok(g, media_open(video ? NULL : entries, video ? entries : NULL, &p, &o, g->arena,
                                &media)))
        check_patches(g, &p, media.items);
}

GOLDEN(vision, pixel_values)
{
    pixel_values(g, false);
}
GOLDEN(vision, pixel_values_video)
{
    pixel_values(g, true);
}

static void check_medium(golden *g, const ares_processor *p, const ares_medium *m,
                         const ares_json *want)
{
    uint8_t *pixels;
    uint64_t key;
    g->expected = want;
    check_grid(g, m->grid);
    golden_equal(g, "tokens", ares_medium_tokens(m, p->merge), golden_want(g, "tokens"));
    if (m->video)
        golden_near(g, "second_per_grid", m->second_per_grid, golden_want(g, "second_per_grid"));
    if (!golden_ok(g, ares_medium_read(m, p, &pixels, &key))) return;
    size_t n = (size_t)(m->grid.t * m->grid.h * m->grid.w * 3 * p->temporal * p->patch * p->patch);
    float *patches = ares_malloc(n * sizeof *patches);
    ares_medium_patches(m, p, pixels, 0, m->grid.t * m->grid.h * m->grid.w, patches);
    check_resized(g, p, m, pixels);
    golden_equal(g, "pixel_values_crc32", picture_crc32(patches, n * sizeof *patches),
                 golden_want(g, "pixel_values_crc32"));
    ares_free(patches);
    ares_free(pixels);
}

/* A whole row: the processor's files, the entries, the files they name. */
GOLDEN(media, media_row)
{
    ares_media media;
    ares_processor p;
    const ares_json *data = golden_in(g, "data"), *want = golden_want(g, "media");
    char *dir = ares_arena_printf(g->arena, "%s%s", g->folder, golden_z(g, "image_dir"));
    ares_media_options o = { .image_dir = dir };
    if (!golden_ok(g, ares_json_get_i64(data, "min_pixels", 0, &o.min_pixels)) ||
        !golden_ok(g, ares_json_get_i64(data, "max_pixels", 0, &o.max_pixels)) ||
        !golden_ok(g, ares_json_get_double(data, "video_fps", 2, &o.video_fps)) ||
        !golden_ok(
            g, ares_processor_load(
                   ares_arena_printf(g->arena, "%s%s", g->folder, golden_z(g, "processor")), &p)))
        return;
    int rc = media_open(golden_in(g, "images"), golden_in(g, "videos"), &p, &o, g->arena, &media);
    if (rc == ARES_EUNSUPPORTED && strstr(ares_error_message(), "this build does not read files"))
        golden_unknown(g);
    else if (golden_ok(g, rc) &&
             golden_equal(g, "media", media.n,
                          &(ares_json){ .type = ARES_JSON_INT, .number = (double)want->count }))
        for (int32_t i = 0; i < media.n; i++) check_medium(g, &p, &media.items[i], &want->items[i]);
}

/* ---------------------------------------------------------------- bytes */

/*
 * near: the case's own tolerance, by which each byte may differ and the sum by as much per byte;
 * otherwise every byte is right. Decoders of JPEG and WebP may differ, resampling may not, although
 * the cases of f32 name a tolerance.
 */
static void check_bytes(golden *g, const uint8_t *rgb, media_size size, bool near)
{
    const ares_json *value = near ? ares_json_get(g->root, "tolerance_value") : NULL;
    int64_t n = (int64_t)size.w * size.h * 3;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += rgb[i];
    g->absolute = value ? value->number : 0;
    g->relative = 0;
    check_samples(g, size.w, 3, NULL, rgb);
    if (!value) {
        golden_equal(g, "crc32", picture_crc32(rgb, (size_t)n), golden_want(g, "crc32"));
        golden_equal(g, "sum", (long long)sum, golden_want(g, "sum"));
        return;
    }
    g->absolute *= (double)n;
    golden_near(g, "sum", sum, golden_want(g, "sum"));
}

GOLDEN(vision, resize_bicubic)
{
    static const char *const names[] = { "pillow", "torch_u8", "torch_f32" };
    media_size in = size_of(g), out = { (int32_t)golden_number(g, "out_width"),
                                        (int32_t)golden_number(g, "out_height") };
    int filter;
    if (!golden_ok(g, ares_lookup(ARES_EUSE, "filter", golden_z(g, "filter"), names,
                                  ARES_COUNT(names), &filter)))
        return;
    uint8_t *from = picture_bytes(g->arena, golden_z(g, "pixels"),
                                  (uint32_t)golden_number(g, "seed"), (int64_t)in.w * in.h * 3),
            *to = ares_malloc((size_t)out.w * (size_t)out.h * 3);
    media_resample((media_filter)filter, from, in, to, out);
    check_bytes(g, to, out, false);
    ares_free(to);
}

GOLDEN(vision, decode)
{
    media_input in;
    media_header header;
    ares_view file = golden_string(g, "file");
    const char *path = ares_arena_printf(g->arena, "%s%.*s", g->folder, (int)file.len, file.data);
    uint8_t *rgb = NULL;
    int rc = media_input_file(path, MEDIA_MOST_FILE, &in);
    if (rc == ARES_OK) rc = media_header_read(&in, &header);
    if (rc == ARES_OK) rc = media_input_load(&in);
    if (rc == ARES_OK) {
        rgb = ares_malloc((size_t)header.size.w * (size_t)header.size.h * 3);
        rc = media_decode(&in, &header, path, rgb);
    }
    if (rc == ARES_EIO) golden_fail(g, "%s", ares_error_message()); /* no file */
    media_input_close(&in);
    if (right(g, rc)) {
        golden_equal(g, "width", header.size.w, golden_want(g, "width"));
        golden_equal(g, "height", header.size.h, golden_want(g, "height"));
        check_bytes(g, rgb, header.size, true);
    }
    ares_free(rgb);
}

/* ---------------------------------------------------------------- rows */

GOLDEN(vision, media_source)
{
    media_entry e;
    media_input in;
    const ares_json *dir = golden_in(g, "image_dir");
    int rc = media_entry_read(golden_in(g, "value"), "images[0]",
                              dir->type == ARES_JSON_STRING ? dir->text.data : NULL, g->arena, &e);
    if (rc == ARES_OK && e.path) {
        if (right(g, rc)) golden_text(g, "path", ares_view_of(e.path), golden_want(g, "path"));
        return;
    }
    if (rc == ARES_OK) rc = media_entry_open(&e, MEDIA_MOST_FILE, &in);
    if (!right(g, rc)) return;
    golden_equal(g, "bytes", in.size, golden_want(g, "bytes"));
    golden_equal(g, "bytes_crc32", picture_crc32(in.data, (size_t)in.size),
                 golden_want(g, "bytes_crc32"));
    media_input_close(&in);
}
