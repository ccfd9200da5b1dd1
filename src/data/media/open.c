/* The pass over headers: sizes of a row's images and videos, and what is too large. */
#include <math.h>
#include <stdio.h>

#include "source.h"

typedef struct opener {
    const ares_processor *p;
    const ares_media_options *o;
    ares_arena *arena;
    ares_media *media;
} opener;

static int read_header(const opener *a, const media_entry *e, media_header *header)
{
    media_input in;
    int rc = media_entry_open(e, MEDIA_MOST_FILE, &in);
    if (rc == ARES_OK) {
        rc = media_header_read(&in, header);
        media_input_close(&in);
    }
    if (rc == ARES_OK) a->media->turned += header->turned;
    return rc;
}

/* The last resize, and what follows from it. */
static int finish(const opener *a, const media_source *s, int32_t frames, ares_medium *m)
{
    const ares_processor *p = a->p;
    media_size to = s->sized;
    int32_t factor = p->patch * p->merge;
    ARES_TRY(media_check_size(to, "resized to"));
    if (p->resize)
        ARES_TRY(media_smart_resize(s->sized, factor, m->video ? p->video_min : p->image_min,
                                    m->video ? p->video_max : p->image_max, &to));
    else if (to.w % factor || to.h % factor)
        return ares_fail(ARES_EUNSUPPORTED,
                         "%d x %d pixels: the processor does not resize (do_resize), and its "
                         "blocks have %d pixels",
                         to.w, to.h, factor);
    ARES_TRY(media_check_size(to, "resized to"));
    if ((int64_t)to.w * to.h > MEDIA_MOST_VIDEO / 3 / frames)
        return ares_fail(ARES_EUNSUPPORTED,
                         "%d frames resized to %d x %d pixels: more than %lld "
                         "bytes",
                         frames, to.w, to.h, (long long)MEDIA_MOST_VIDEO);
    m->frames = frames;
    m->grid = (ares_grid){ m->video ? (frames + p->temporal - 1) / p->temporal : 1, to.h / p->patch,
                           to.w / p->patch };
    m->source = s;
    return ARES_OK;
}

static int open_image(const opener *a, const ares_json *entry, int64_t i, ares_medium *m)
{
    media_header header;
    media_entry *e = ares_arena_calloc(a->arena, 1, sizeof *e);
    media_source *s = ares_arena_calloc(a->arena, 1, sizeof *s);
    char where[64];
    snprintf(where, sizeof where, "images[%lld]", (long long)i);
    ARES_TRY(media_entry_read(entry, where, a->o->image_dir, a->arena, e));
    *s = (media_source){ .entries = e, .n = 1, .filter = MEDIA_PILLOW };
    int rc = read_header(a, e, &header);
    if (rc == ARES_OK) {
        s->size = header.size;
        rc = media_easyr1_size(s->size, a->o->min_pixels, a->o->max_pixels, &s->sized);
    }
    if (rc == ARES_OK) rc = finish(a, s, 1, m);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "%s", e->place);
}

/* frames: of the video's whole list, or those chosen from its file */
static int size_video(const opener *a, media_source *s, int32_t frames, ares_medium *m)
{
    ARES_TRY(media_check_size(s->size, "frames of"));
    if ((int64_t)s->size.w * s->size.h > MEDIA_MOST_VIDEO / 3 / frames)
        return ares_fail(ARES_EUNSUPPORTED, "%d frames of %d x %d pixels: more than %lld bytes",
                         frames, s->size.w, s->size.h, (long long)MEDIA_MOST_VIDEO);
    s->sized = s->size;
    s->filter = MEDIA_TORCH_F32;
    if (a->o->min_pixels > 0 || a->o->max_pixels > 0)
        ARES_TRY(media_video_size(s->size, frames, a->p->patch * a->p->merge, a->o->min_pixels,
                                  a->o->max_pixels, &s->sized));
    return finish(a, s, frames, m);
}

static int set_seconds(const opener *a, double fps, ares_medium *m)
{
    m->second_per_grid = a->p->temporal / fps;
    if (fps > 0 && isfinite(fps) && isfinite(m->second_per_grid)) return ARES_OK;
    return ares_fail(ARES_EFORMAT, "sample_fps = %g: not a number above 0", fps);
}

static int open_frames(const opener *a, const ares_json *list, double fps, const char *where,
                       media_source *s, ares_medium *m)
{
    int64_t n = list->count;
    if (n < 1) return ares_fail(ARES_EFORMAT, "media: %s: a video without frames", where);
    if (n > MEDIA_MOST_VIDEO / 3)
        return ares_fail(ARES_EUNSUPPORTED, "media: %s: %lld frames", where, (long long)n);
    media_entry *e = ares_arena_calloc(a->arena, (size_t)n, sizeof *e);
    *s = (media_source){ .entries = e, .n = (int32_t)n };
    for (int64_t i = 0; i < n; i++) {
        media_header header;
        char inner[96];
        snprintf(inner, sizeof inner, "%s[%lld]", where, (long long)i);
        ARES_TRY(media_entry_read(&list->items[i], inner, a->o->image_dir, a->arena, &e[i]));
        int rc = read_header(a, &e[i], &header);
        if (rc == ARES_OK && i == 0) s->size = header.size;
        if (rc == ARES_OK && (header.size.w != s->size.w || header.size.h != s->size.h))
            rc = ares_fail(ARES_EFORMAT,
                           "%d x %d pixels, where the video's first frame has %d x "
                           "%d",
                           header.size.w, header.size.h, s->size.w, s->size.h);
        if (rc != ARES_OK) return ares_fail_in(rc, "%s", e[i].place);
    }
    int rc = size_video(a, s, (int32_t)n, m);
    if (rc == ARES_OK) rc = set_seconds(a, fps, m);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "media: %s", where);
}

static int open_file(const opener *a, const ares_json *entry, const char *where, media_source *s,
                     ares_medium *m)
{
    int64_t total = 0;
    double rate = 0;
    media_entry *e = ares_arena_calloc(a->arena, 1, sizeof *e);
    ARES_TRY(media_entry_read(entry, where, a->o->image_dir, a->arena, e));
    *s = (media_source){ .entries = e, .n = 1, .file = true };
    int rc = media_video_open(e, &total, &rate, &s->size);
    if (rc == ARES_OK) rc = media_video_frames(total, rate, a->o->video_fps, a->arena, &s->chosen);
    if (rc == ARES_OK) rc = size_video(a, s, s->chosen.n, m);
    if (rc == ARES_OK) rc = set_seconds(a, s->chosen.sample_fps, m);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "%s", e->place);
}

static int open_video(const opener *a, const ares_json *entry, int64_t i, ares_medium *m)
{
    double fps = 2; /* of a list that does not say */
    char where[64];
    media_source *s = ares_arena_calloc(a->arena, 1, sizeof *s);
    const ares_json *frames = ares_json_get(entry, "frames");
    snprintf(where, sizeof where, "videos[%lld]", (long long)i);
    m->video = true;
    if (entry->type == ARES_JSON_ARRAY) return open_frames(a, entry, fps, where, s, m);
    if (!frames) return open_file(a, entry, where, s, m);
    if (frames->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "media: %s: 'frames' is not a list", where);
    int rc = ares_json_get_double(entry, "sample_fps", fps, &fps);
    return rc == ARES_OK ? open_frames(a, frames, fps, where, s, m)
                         : ares_fail_in(rc, "media: %s", where);
}

static int count(const ares_json *list, const char *what, int32_t *n)
{
    *n = 0;
    if (!list || list->type == ARES_JSON_NULL) return ARES_OK;
    if (list->type != ARES_JSON_ARRAY || list->count > 1 << 20)
        return ares_fail(ARES_EFORMAT, "media: %s: not a list of %s", what, what);
    *n = (int32_t)list->count;
    return ARES_OK;
}

int ares_media_open(const ares_json *images, const ares_json *videos, const ares_processor *p,
                    const ares_media_options *o, ares_arena *arena, ares_media *out)
{
    opener a = { p, o, arena, out };
    *out = (ares_media){ 0 };
    ARES_TRY(count(images, "images", &out->n_images));
    ARES_TRY(count(videos, "videos", &out->n_videos));
    out->n = out->n_images + out->n_videos;
    ares_medium *items = ares_arena_calloc(arena, (size_t)out->n + 1, sizeof *items);
    out->items = items;
    for (int32_t i = 0; i < out->n_images; i++)
        ARES_TRY(open_image(&a, &images->items[i], i, &items[i]));
    for (int32_t i = 0; i < out->n_videos; i++)
        ARES_TRY(open_video(&a, &videos->items[i], i, &items[out->n_images + i]));
    return ARES_OK;
}
