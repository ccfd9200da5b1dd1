/*
 * Sizes of pictures and videos: what the limits make of them, the processor's files that state
 * the limits, and pixels as the numbers that a tower reads.
 */
#include "internal.h"

#include <math.h>
#include <string.h>

#include "ares/media.h"

/*
 * Sizes as EasyR1 and the processors of transformers compute them, in double precision and in their
 * order of operations: a picture that lies at a border must fall on the same side of it.
 */

/* of qwen-vl-utils, in areas of 28 x 28 pixels whatever the patches are */
#define AREA (28 * 28)
#define FRAME_MIN (128 * AREA)
#define FRAME_MAX (768 * AREA)
#define VIDEO_TOTAL (128000 * AREA * 0.9)
enum { FRAME_FACTOR = 2, LEAST_FRAMES = 4, MOST_FRAMES = 768 };

#define MEDIA_MOST_ASPECT 200

/* ARES_ELIMIT when a side is more than 200 times the other. */
static int media_check_aspect(media_size s)
{
    int32_t large = ARES_MAX(s.w, s.h), small = ARES_MIN(s.w, s.h);
    if ((double)large / small <= MEDIA_MOST_ASPECT) return ARES_OK;
    return ares_fail(ARES_ELIMIT, "%d x %d pixels: one side is more than %d times the other", s.w,
                     s.h, MEDIA_MOST_ASPECT);
}

int media_check_size(media_size s, const char *what)
{
    if (s.w < 1 || s.h < 1)
        return ares_fail(ARES_EFORMAT, "%s %d x %d pixels: a picture has at least one", what, s.w,
                         s.h);
    if (s.w > MEDIA_MOST_SIDE || s.h > MEDIA_MOST_SIDE)
        return ares_fail(ARES_EUNSUPPORTED, "%s %d x %d pixels: a side may have %d at most", what,
                         s.w, s.h, MEDIA_MOST_SIDE);
    if ((int64_t)s.w * s.h > MEDIA_MOST_PIXELS)
        return ares_fail(ARES_EUNSUPPORTED, "%s %d x %d pixels: more than %d", what, s.w, s.h,
                         MEDIA_MOST_PIXELS);
    return ARES_OK;
}

/* Scales both sides so that their product is about `pixels`. */
static media_size scaled(media_size s, int64_t pixels)
{
    /* both sides are cut off to whole pixels, as int() does in EasyR1 */
    double f = sqrt((double)pixels / (double)((int64_t)s.w * s.h));
    return (media_size){ (int32_t)fmin(s.w * f, INT32_MAX), (int32_t)fmin(s.h * f, INT32_MAX) };
}

int media_easyr1_size(media_size in, int64_t min, int64_t max, media_size *out)
{
    media_size s = in;
    if (max > 0 && (int64_t)s.w * s.h > max) s = scaled(s, max);
    if (s.w > 0 && s.h > 0 && min > 0 && (int64_t)s.w * s.h < min) s = scaled(s, min);
    *out = s;
    if (s.w > 0 && s.h > 0) return ARES_OK;
    ARES_TRY(media_check_aspect(in));
    return ares_fail(ARES_EUNSUPPORTED,
                     "%d x %d pixels: at most %lld pixels leave none of a side; raise "
                     "data.max_pixels",
                     in.w, in.h, (long long)max);
}

/*
 * To multiples of factor, between min and max pixels. A side of less than half a factor: in a
 * picture it is rounded to 0, which the minimum mends; in a video it begins as one factor, and
 * nothing keeps it from becoming 0 where there are too many pixels.
 */
static int fit(media_size in, bool video, int32_t factor, double min, double max, media_size *out)
{
    double least = video ? factor : 0, least_of_large = video ? 0 : factor,
           h = fmax(least, rint((double)in.h / factor) * factor),
           w = fmax(least, rint((double)in.w / factor) * factor),
           area = (double)((int64_t)in.w * in.h);
    ARES_TRY(media_check_aspect(in));
    if (h * w > max) {
        double beta = sqrt(area / max);
        h = fmax(least_of_large, floor(in.h / beta / factor) * factor);
        w = fmax(least_of_large, floor(in.w / beta / factor) * factor);
    } else if (h * w < min) {
        double beta = sqrt(min / area);
        h = ceil(in.h * beta / factor) * factor;
        w = ceil(in.w * beta / factor) * factor;
    }
    *out = (media_size){ (int32_t)fmin(w, INT32_MAX), (int32_t)fmin(h, INT32_MAX) };
    if (out->w > 0 && out->h > 0) return ARES_OK;
    return ares_fail(ARES_EUNSUPPORTED,
                     "%d x %d pixels: at most %.0f pixels leave none of a side; raise the limit",
                     in.w, in.h, max);
}

int media_smart_resize(media_size in, int32_t factor, int64_t min, int64_t max, media_size *out)
{
    return fit(in, false, factor, (double)min, (double)max, out);
}

/* A square of the most pixels that are read at all stands for the largest picture. */
int ares_media_largest(const ares_processor *p, const ares_media_options *o, int32_t *patches)
{
    int32_t factor = p->patch * p->merge, side = (int32_t)sqrt(MEDIA_MOST_PIXELS);
    media_size s = { side, side };
    ARES_TRY(media_easyr1_size(s, o->min_pixels, o->max_pixels, &s));
    if (p->resize) ARES_TRY(media_smart_resize(s, factor, p->image_min, p->image_max, &s));
    *patches = s.w / factor * (s.h / factor) * p->merge * p->merge;
    return ARES_OK;
}

int media_video_size(media_size in, int32_t frames, int32_t factor, int64_t min, int64_t max,
                     media_size *out)
{
    double low = min > 0 ? (double)min : FRAME_MIN,
           share = fmin(FRAME_MAX, VIDEO_TOTAL / frames * FRAME_FACTOR),
           high = fmax(share, trunc(low * 1.05));
    if (max > 0) high = fmin((double)max, high);
    return fit(in, true, factor, low, high, out);
}

/* Frames are counted in pairs. */
static double even_floor(double x)
{
    return floor(x / FRAME_FACTOR) * FRAME_FACTOR;
}

int media_video_frames(int64_t total, double rate, double fps, ares_arena *arena, media_frames *out)
{
    double least = LEAST_FRAMES, most = even_floor((double)ARES_MIN(total, MOST_FRAMES)),
           wanted = (double)total / rate * fps;
    if (!(rate > 0 && isfinite(rate)))
        return ares_fail(ARES_EFORMAT, "%g frames per second: not a rate", rate);
    if (!(fps > 0 && isfinite(fps)))
        return ares_fail(ARES_ECONFIG, "data.video_fps = %g: not a number above 0", fps);
    int32_t n = (int32_t)even_floor(fmin(fmin(fmax(wanted, least), most), (double)total));
    if (n < FRAME_FACTOR)
        return ares_fail(ARES_EFORMAT, "a video of %lld frames: at least %d are needed",
                         (long long)total, FRAME_FACTOR);
    if (total > INT32_MAX) /* beyond it their numbers are no floats */
        return ares_fail(ARES_EUNSUPPORTED, "a video of %lld frames: more than %d",
                         (long long)total, INT32_MAX);
    *out = (media_frames){ .n = n, .index = ares_arena_calloc(arena, (size_t)n, sizeof(int32_t)) };
    /* torch.linspace in f32, which builds its second half from the end */
    float last = (float)(total - 1), step = last / (float)(n - 1);
    for (int32_t i = 0; i < n; i++) {
        float x = i < n / 2 ? step * (float)i : last - step * (float)(n - 1 - i);
        out->index[i] = (int32_t)ARES_MIN((int64_t)rintf(x), total - 1);
    }
    out->sample_fps = n / (double)total * rate;
    return ARES_OK;
}

/*
 * The processor's files of a model directory. processor_config.json holds both processors, or
 * preprocessor_config.json that of images and video_preprocessor_config.json that of videos; where
 * a model has only the first of these two, its videos follow the limits of its images.
 */

/* A processor's limits where its file gives none: those of Qwen2-VL's own. */
enum { IMAGE_MIN = 3136, IMAGE_MAX = 1003520, VIDEO_MIN = 100352, VIDEO_MAX = 602112 };
/* Larger ones are a mistake, and would overflow. */
enum { MOST_PATCH = 1024, MOST_MERGE = 64, MOST_TEMPORAL = 64, BICUBIC = 3 };
static const double MOST_PIXELS = 1e12;

/* NULL and ARES_OK: no such file, or no such key in it. */
static int read_options(ares_arena *arena, const char *dir, const char *file, const char *key,
                        const ares_json **out, char **name)
{
    ares_str path = { 0 }, text = { 0 };
    int rc = ARES_OK;
    *out = NULL;
    if (ares_file_exists(ares_path_join(&path, dir, file))) {
        *name = ares_arena_copy(arena, path.data, path.len);
        rc = ares_file_read(path.data, &text);
        if (rc == ARES_OK) rc = ares_json_parse(arena, ares_str_view(&text), *name, out);
        if (rc == ARES_OK && (*out)->type != ARES_JSON_OBJECT)
            rc = ares_fail(ARES_EFORMAT, "media: %s: not a JSON object", *name);
        if (rc == ARES_OK && key) *out = ares_json_get(*out, key);
        if (rc == ARES_OK && *out && (*out)->type != ARES_JSON_OBJECT)
            rc = (*out)->type == ARES_JSON_NULL
                     ? (*out = NULL, ARES_OK)
                     : ares_fail(ARES_EFORMAT, "media: %s: '%s' is not a JSON object", *name, key);
    }
    ares_str_fini(&path);
    ares_str_fini(&text);
    return rc;
}

static int read_number(const ares_json *o, const char *key, double absent, double least,
                       double most, double *out)
{
    ARES_TRY(ares_json_get_double(o, key, absent, out));
    if (*out >= least && *out <= most) return ARES_OK;
    return ares_fail(ARES_EFORMAT, "%s = %g: not from %g to %g", key, *out, least, most);
}

static int read_i32(const ares_json *o, const char *key, int32_t absent, int32_t most, int32_t *out)
{
    int64_t value;
    ARES_TRY(ares_json_get_i64(o, key, absent, &value));
    if (value < 1 || value > most)
        return ares_fail(ARES_EFORMAT, "%s = %lld: not from 1 to %d", key, (long long)value, most);
    *out = (int32_t)value;
    return ARES_OK;
}

static int read_three(const ares_json *o, const char *key, const float absent[3], float out[3])
{
    const ares_json *list = ares_json_get(o, key);
    bool none = !list || list->type == ARES_JSON_NULL;
    bool right = none || (list->type == ARES_JSON_ARRAY && list->count == 3);
    for (int i = 0; right && i < 3; i++) {
        const ares_json *x = none ? NULL : &list->items[i];
        out[i] = none ? absent[i] : (float)x->number;
        right =
            none || ((x->type == ARES_JSON_INT || x->type == ARES_JSON_FLOAT) && isfinite(out[i]));
    }
    return right ? ARES_OK : ares_fail(ARES_EFORMAT, "'%s' is not a list of three numbers", key);
}

/* `size` holds areas, whatever its keys say; min_pixels and max_pixels beside it win. */
static int read_limits(const ares_json *o, int64_t least, int64_t most, int64_t *min, int64_t *max)
{
    const ares_json *size = ares_json_get(o, "size");
    double low = (double)least, high = (double)most;
    if (size && size->type != ARES_JSON_NULL) {
        if (!ares_json_get(size, "shortest_edge") || !ares_json_get(size, "longest_edge"))
            return ares_fail(ARES_EUNSUPPORTED,
                             "'size' has no shortest_edge or no longest_edge; other ways to give "
                             "a size are not read");
        ARES_TRY(read_number(size, "shortest_edge", low, 0, MOST_PIXELS, &low));
        ARES_TRY(read_number(size, "longest_edge", high, 1, MOST_PIXELS, &high));
    }
    ARES_TRY(read_number(o, "min_pixels", low, 0, MOST_PIXELS, &low));
    ARES_TRY(read_number(o, "max_pixels", high, 1, MOST_PIXELS, &high));
    if (low > high)
        return ares_fail(ARES_EFORMAT, "at least %.0f pixels and at most %.0f", low, high);
    *min = (int64_t)low;
    *max = (int64_t)high;
    return ARES_OK;
}

static int read_processor(const ares_json *o, ares_processor *p)
{
    static const float mean[] = { .48145466f, .4578275f, .40821073f },
                       std[] = { .26862954f, .26130258f, .27577711f };
    int64_t resample;
    ARES_TRY(read_i32(o, "patch_size", 14, MOST_PATCH, &p->patch));
    ARES_TRY(read_i32(o, "merge_size", 2, MOST_MERGE, &p->merge));
    ARES_TRY(read_i32(o, "temporal_patch_size", 2, MOST_TEMPORAL, &p->temporal));
    ARES_TRY(read_three(o, "image_mean", mean, p->mean));
    ARES_TRY(read_three(o, "image_std", std, p->std));
    ARES_TRY(read_number(o, "rescale_factor", 1 / 255.0, 1e-9, 1e9, &p->rescale_factor));
    ARES_TRY(ares_json_get_bool(o, "do_resize", true, &p->resize));
    ARES_TRY(ares_json_get_bool(o, "do_rescale", true, &p->rescale));
    ARES_TRY(ares_json_get_bool(o, "do_normalize", true, &p->normalize));
    ARES_TRY(ares_json_get_i64(o, "resample", BICUBIC, &resample));
    if (resample != BICUBIC)
        return ares_fail(ARES_EUNSUPPORTED, "resample = %lld: only 3 (bicubic) is offered",
                         (long long)resample);
    if (!(p->std[0] > 0 && p->std[1] > 0 && p->std[2] > 0))
        return ares_fail(ARES_EFORMAT, "'image_std' has a number that is not above 0");
    return ARES_OK;
}

/* *name: the file at hand, which the caller puts before an error */
static int load(const char *dir, ares_arena *arena, char **name, ares_processor *out)
{
    const ares_json *image, *video;
    char *image_name = NULL;
    ares_processor of_video = { 0 };
    ARES_TRY(read_options(arena, dir, "processor_config.json", "image_processor", &image, name));
    if (!image) ARES_TRY(read_options(arena, dir, "preprocessor_config.json", NULL, &image, name));
    image_name = *name;
    ARES_TRY(read_processor(image, out));
    ARES_TRY(read_limits(image, IMAGE_MIN, IMAGE_MAX, &out->image_min, &out->image_max));
    ARES_TRY(read_options(arena, dir, "processor_config.json", "video_processor", &video, name));
    if (!video)
        ARES_TRY(read_options(arena, dir, "video_preprocessor_config.json", NULL, &video, name));
    if (!video) {
        ARES_TRY(read_options(arena, dir, "preprocessor_config.json", NULL, &video, name));
        if (!video) *name = image_name;
    }
    ARES_TRY(read_processor(video, &of_video));
    bool cap; /* beside the limits of a video, one for each of its frames */
    ARES_TRY(ares_json_get_bool(video, "cap_pixels_per_frame", false, &cap));
    if (cap)
        return ares_fail(ARES_EUNSUPPORTED,
                         "cap_pixels_per_frame = true: a further limit of pixels for each frame "
                         "is not offered; set it to false, and lower max_pixels where frames "
                         "become too large");
    ARES_TRY(read_limits(video, VIDEO_MIN, VIDEO_MAX, &out->video_min, &out->video_max));
    /* pictures and frames pass through one set of all but the limits */
    const ares_processor *a = out, *b = &of_video;
    bool same = a->patch == b->patch && a->merge == b->merge && a->temporal == b->temporal &&
                a->resize == b->resize && a->rescale == b->rescale &&
                a->normalize == b->normalize && a->rescale_factor == b->rescale_factor;
    for (int i = 0; i < 3; i++) same &= a->mean[i] == b->mean[i] && a->std[i] == b->std[i];
    return same ? ARES_OK
                : ares_fail(ARES_EUNSUPPORTED,
                            "videos differ from images in more than their limits of pixels (%d x "
                            "%d x %d and %d x %d x %d pixels to a patch and its merge, or others)",
                            a->patch, a->merge, a->temporal, b->patch, b->merge, b->temporal);
}

int ares_processor_load(const char *dir, ares_processor *out)
{
    ares_arena arena = { 0 };
    char *name = NULL;
    ares_error_clear();
    int rc = load(dir, &arena, &name, out);
    /* a file that is no JSON is named already */
    if (rc != ARES_OK && name && !strstr(ares_error_message(), name))
        rc = ares_fail_in(rc, "media: %s", name);
    ares_arena_fini(&arena);
    return rc;
}

int32_t ares_medium_tokens(const ares_medium *m, int32_t merge)
{
    return m->grid.t * m->grid.h * m->grid.w / (merge * merge);
}

/* One time of one patch: three planes, `plane` floats apart. at: its upper left pixel. */
static void write_patch(const float table[3][256], const uint8_t *at, int64_t row, int32_t side,
                        float *out, int64_t plane)
{
    for (int c = 0; c < 3; c++, out += plane)
        for (int32_t y = 0; y < side; y++) {
            const uint8_t *pixel = at + y * row + c;
            float *to = out + (int64_t)y * side;
            for (int32_t x = 0; x < side; x++) to[x] = table[c][pixel[3 * x]];
        }
}

void ares_medium_patches(const ares_medium *m, const ares_processor *p, const uint8_t *pixels,
                         int32_t first, int32_t n, float *patches)
{
    float table[3][256], scale = p->rescale ? (float)(1 / p->rescale_factor) : 1;
    for (int c = 0; c < 3; c++) {
        float mean = p->mean[c] * scale, std = p->std[c] * scale;
        /* a byte has 256 values, so each channel is a table; mean and std are scaled to bytes */
        for (int b = 0; b < 256; b++)
            table[c][b] = p->normalize ? ((float)b - mean) / std
                          : p->rescale ? (float)b * (float)p->rescale_factor
                                       : (float)b;
    }
    int32_t merge = p->merge, each = merge * merge, wide = m->grid.w / merge,
            frame = m->grid.h * m->grid.w; /* patches of a time */
    int64_t pixel = (int64_t)p->patch * 3, line = pixel * m->grid.w, row = line * p->patch,
            frame_bytes = row * m->grid.h, area = (int64_t)p->patch * p->patch,
            plane = p->temporal * area, width = 3 * plane;
    for (int32_t i = first; i < first + n; i++, patches += width) {
        /* patches come in blocks of merge x merge, block after block, as the merger reads them */
        int32_t block = i % frame / each, in = i % each, y = block / wide * merge + in / merge,
                x = block % wide * merge + in % merge;
        const uint8_t *at = pixels + y * row + x * pixel; /* in the first frame */
        float *out = patches;
        for (int32_t k = 0; k < p->temporal; k++, out += area) {
            int32_t f = i / frame * p->temporal + k;
            if (k == 0 || f < m->frames)
                write_patch(table, at + ARES_MIN(f, m->frames - 1) * frame_bytes, line, p->patch,
                            out, plane);
            else /* no frame is left: the one of the time before */
                for (int c = 0; c < 3; c++)
                    memcpy(out + c * plane, out + c * plane - area, (size_t)area * sizeof *out);
        }
    }
}
