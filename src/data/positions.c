/*
 * Where pictures stand in a sequence, and positions of three axes (Wang et al., arXiv 2409.12191,
 * section 2.1): a picture's tokens have its rows and columns, and what follows it begins behind the
 * largest position used.
 */
#include <stdlib.h>

#include "sight.h"

/* Positions stay far from the end of int32_t: no model is as long. */
static const double last_time = 1 << 24;

/* Steps of time: none in an image, pairs of frames or parts of seconds in a video. */
static int32_t time_of(const ares_sight_rules *r, const ares_medium *x, int32_t frame)
{
    if (!x->video) return 0;
    if (r->tokens_per_second <= 0) return frame;
    return (int32_t)((float)frame * (float)x->second_per_grid * (float)r->tokens_per_second);
}

static int check_times(const ares_sight_rules *r, const ares_medium *x)
{
    double last = (double)x->grid.t * x->second_per_grid * r->tokens_per_second;
    if (!x->video || r->tokens_per_second <= 0 || (last >= 0 && last < last_time)) return ARES_OK;
    return ares_fail(ARES_EFORMAT,
                     "a video of %d pairs of frames, %g seconds apart: must last from 0 to "
                     "%g seconds",
                     x->grid.t, x->second_per_grid, last_time / r->tokens_per_second);
}

typedef struct walk {
    const ares_sight_rules *rules;
    const ares_media *media;
    const int32_t *ids;
    int32_t n, i, next;     /* tokens, the token at hand, the next position */
    int32_t images, videos; /* media that have their places */
    int32_t *t, *h, *w;
    ares_place *places;
    int32_t n_places;
} walk;

/* The next picture or video that has no place yet; NULL: there is none. */
static const ares_medium *next_medium(walk *k, bool video)
{
    const ares_media *m = k->media;
    if (video) return k->videos < m->n_videos ? &m->items[m->n_images + k->videos++] : NULL;
    return k->images < m->n_images ? &m->items[k->images++] : NULL;
}

/* The tokens of one picture or video, of which the token at hand is the first. */
static int place(walk *k)
{
    bool video = k->ids[k->i] == k->rules->video_token;
    const ares_medium *x = next_medium(k, video);
    int32_t merge = k->rules->processor.merge, tokens = x ? ares_medium_tokens(x, merge) : 0,
            high = x ? x->grid.h / merge : 1, wide = x ? x->grid.w / merge : 1, first = k->i,
            s = k->next, last = s;
    if (x) ARES_TRY(check_times(k->rules, x));
    for (; k->i < k->n && k->i - first < tokens && k->ids[k->i] == k->ids[first]; k->i++) {
        int32_t at = k->i - first;
        k->t[k->i] = s + time_of(k->rules, x, at / (high * wide));
        k->h[k->i] = s + at / wide % high;
        k->w[k->i] = s + at % wide;
        last = ARES_MAX(last, ARES_MAX(k->t[k->i], ARES_MAX(k->h[k->i], k->w[k->i])));
    }
    if (!x || k->i - first < tokens)
        return ares_fail(ARES_EFORMAT,
                         "the prompt has %d tokens of %s from token %d on, and what is given "
                         "for that place needs %d",
                         k->i - first, video ? "a video" : "an image", first, tokens);
    k->places[k->n_places++] = (ares_place){ .medium = x, .first = first, .n = tokens };
    k->next = last + 1;
    return ARES_OK;
}

int sight_of(const ares_sight_rules *r, const ares_media *media, const int32_t *ids, int32_t n,
             ares_arena *arena, ares_sight *out)
{
    int32_t *axes = ares_arena_alloc(arena, ((size_t)n * 3 + 1) * sizeof *axes);
    walk k = { .rules = r,
               .media = media,
               .ids = ids,
               .n = n,
               .t = axes,
               .h = axes + n,
               .w = axes + 2 * (int64_t)n,
               .places = ares_arena_alloc(arena, ((size_t)media->n + 1) * sizeof *k.places) };
    while (k.i < n) {
        if (ids[k.i] == r->image_token || ids[k.i] == r->video_token) ARES_TRY(place(&k));
        else {
            k.t[k.i] = k.h[k.i] = k.w[k.i] = k.next++;
            k.i++;
        }
    }
    if (k.n_places < media->n)
        return ares_fail(ARES_EFORMAT, "%d images and videos, and places of only %d in the prompt",
                         media->n, k.n_places);
    *out = (ares_sight){ .n = n,
                         .t = k.t,
                         .h = k.h,
                         .w = k.w,
                         .delta = k.next - n,
                         .n_places = k.n_places,
                         .places = k.places };
    return ARES_OK;
}

void ares_sight_position(const ares_sight *s, int32_t i, int32_t *t, int32_t *h, int32_t *w)
{
    bool inside = s && i < s->n;
    int32_t behind = s ? i + s->delta : i;
    *t = inside ? s->t[i] : behind;
    *h = inside ? s->h[i] : behind;
    *w = inside ? s->w[i] : behind;
}
