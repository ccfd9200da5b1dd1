/*
 * Sizes as EasyR1 and the processors of transformers compute them, in double precision and in their
 * order of operations: a picture that lies at a border must fall on the same side of it.
 */
#include "plan.h"

#include <math.h>

/* of qwen-vl-utils, in areas of 28 x 28 pixels whatever the patches are */
#define AREA (28 * 28)
#define VIDEO_MIN (128 * AREA)
#define VIDEO_MAX (768 * AREA)
#define VIDEO_TOTAL (128000 * AREA * 0.9)
enum { FRAME_FACTOR = 2, LEAST_FRAMES = 4, MOST_FRAMES = 768 };

int media_check_aspect(media_size s)
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
    double low = min > 0 ? (double)min : VIDEO_MIN,
           share = fmin(VIDEO_MAX, VIDEO_TOTAL / frames * FRAME_FACTOR),
           high = fmax(share, trunc(low * 1.05));
    if (max > 0) high = fmin((double)max, high);
    return fit(in, true, factor, low, high, out);
}

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
