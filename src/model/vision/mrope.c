/* Positions of three axes (Wang et al., arXiv 2409.12191, section 2.1). */
#include "ares/model.h"

/* Steps of time: none in an image, pairs of frames or parts of seconds in a video. */
static int32_t time_of(const ares_vision_config *v, const ares_medium *x, int32_t frame)
{
    if (!x->video) return 0;
    if (v->tokens_per_second <= 0) return frame;
    return (int32_t)((float)frame * (float)x->second_per_grid * (float)v->tokens_per_second);
}

/* Positions stay far from the end of int32_t: no model is as long. */
static bool has_times(const ares_vision_config *v, const ares_medium *x)
{
    double last = (double)x->grid.t * x->second_per_grid * v->tokens_per_second;
    return !x->video || v->tokens_per_second <= 0 || (last >= 0 && last < 1 << 24);
}

static const ares_medium *next_of(const ares_medium *media, int32_t n, bool video, int32_t *at)
{
    while (*at < n && media[*at].video != video) (*at)++;
    return *at < n ? &media[(*at)++] : NULL;
}

int ares_mrope_positions(const ares_vision_config *v, const int32_t *ids, int32_t n,
                         const ares_medium *media, int32_t n_media, int32_t *t, int32_t *h,
                         int32_t *w, int32_t *delta)
{
    int32_t next = 0, at[2] = { 0, 0 }, used = 0;
    for (int32_t i = 0; i < n;) {
        bool video = ids[i] == v->video_token;
        if (!video && ids[i] != v->image_token) {
            t[i] = h[i] = w[i] = next++;
            i++;
            continue;
        }
        const ares_medium *x = next_of(media, n_media, video, &at[video]);
        if (x && !has_times(v, x))
            return ares_fail(ARES_EFORMAT,
                             "model: a video of %d pairs of frames, %g seconds apart: must last "
                             "from 0 to %g seconds",
                             x->grid.t, x->second_per_grid, (1 << 24) / v->tokens_per_second);
        int32_t high = x ? x->grid.h / v->merge : 0, wide = x ? x->grid.w / v->merge : 0;
        int64_t tokens = x ? (int64_t)x->grid.t * high * wide : 0;
        int32_t first = i, last = next;
        for (; i < n && i - first < tokens && ids[i] == ids[first]; i++) {
            int32_t k = i - first, a = time_of(v, x, k / (high * wide));
            t[i] = next + a;
            h[i] = next + k / wide % high;
            w[i] = next + k % wide;
            last = ARES_MAX(last, ARES_MAX(t[i], ARES_MAX(h[i], w[i])));
        }
        if (!x || i - first < tokens)
            return ares_fail(ARES_EFORMAT,
                             "model: the prompt has %d tokens of %s from token %d on, the %s given "
                             "there needs %lld",
                             i - first, video ? "a video" : "an image", first,
                             video ? "video" : "image", (long long)tokens);
        next = last + 1;
        used++;
    }
    if (used < n_media)
        return ares_fail(ARES_EFORMAT,
                         "model: %d images and videos, but places of only %d in the "
                         "prompt",
                         n_media, used);
    *delta = next - n;
    return ARES_OK;
}
