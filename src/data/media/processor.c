/*
 * The processor's files of a model directory. processor_config.json holds both processors, or
 * preprocessor_config.json that of images and video_preprocessor_config.json that of videos; where
 * a model has only the first of these two, its videos follow the limits of its images.
 */
#include <math.h>
#include <string.h>

#include "ares/media.h"

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

/* Pictures and frames pass through one set of these. */
static int check_same(const ares_processor *a, const ares_processor *b)
{
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

/* Beside the limits of a video, one for each of its frames. */
static int check_cap(const ares_json *video)
{
    bool cap;
    ARES_TRY(ares_json_get_bool(video, "cap_pixels_per_frame", false, &cap));
    return cap ? ares_fail(ARES_EUNSUPPORTED,
                           "cap_pixels_per_frame = true: a further limit of pixels for each frame "
                           "is not offered; set it to false, and lower max_pixels where frames "
                           "become too large")
               : ARES_OK;
}

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
    ARES_TRY(check_cap(video));
    ARES_TRY(read_limits(video, VIDEO_MIN, VIDEO_MAX, &out->video_min, &out->video_max));
    return check_same(out, &of_video);
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
