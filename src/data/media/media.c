/*
 * Pictures and videos of a row. In order: bytes of a file or of memory; what a row's entry names;
 * whether a video's file is complete; videos by FFmpeg; the pass over headers; decoding and
 * resizing.
 */
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ares/core.h"

static int too_large(int64_t size, int64_t most)
{
    return ares_fail(ARES_EUNSUPPORTED, "%lld bytes: more than %lld", (long long)size,
                     (long long)most);
}

int media_input_file(const char *path, int64_t most, media_input *out)
{
    struct stat st;
    const char *why;
    *out = (media_input){ .fd = -1 };
    int fd = ares_file_open(path, &why);
    if (why) return ares_fail(ARES_EIO, "%s", why);
    int rc = ARES_OK;
    if (fstat(fd, &st) != 0) rc = ares_fail(ARES_EIO, "%s", strerror(errno));
    else if (st.st_size == 0) rc = ares_fail(ARES_EFORMAT, "an empty file");
    else if (st.st_size > most) rc = too_large(st.st_size, most);
    if (rc != ARES_OK) close(fd);
    else *out = (media_input){ .size = st.st_size, .fd = fd };
    return rc;
}

int media_input_base64(ares_view text, int64_t most, media_input *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
                      blanks[] = " \t\r\n";
    enum { BLANK = 64, PADDING, NEITHER }; /* what a character may be beside a digit's 0 to 63 */
    uint32_t bits = 0;
    int n = 0, padding = 0; /* of the group of four at hand */
    *out = (media_input){ .fd = -1 };
    if (text.len > (uint64_t)most / 3 * 4 + 4) return too_large((int64_t)(text.len / 4 * 3), most);
    /* three bytes per group of four characters, and less at the end */
    uint8_t value[256], *data = ares_malloc(text.len / 4 * 3 + 3), *to = data;
    memset(value, NEITHER, sizeof value);
    for (int k = 0; digits[k]; k++) value[(unsigned char)digits[k]] = (uint8_t)k;
    for (int k = 0; blanks[k]; k++) value[(unsigned char)blanks[k]] = BLANK;
    value['='] = PADDING;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t v = value[(unsigned char)text.data[i]];
        if (v == BLANK) continue; /* lines of MIME */
        /* padding: one or two signs, only after two or three characters of the last group */
        bool right =
            v < BLANK ? padding == 0 : v == PADDING && n + padding >= 2 && padding < 2 && n;
        if (!right) {
            ares_free(data);
            return ares_fail(ARES_EFORMAT, "not base64: byte 0x%02x at character %zu",
                             (unsigned char)text.data[i], i + 1);
        }
        if (v == PADDING) padding++;
        else bits = bits << 6 | v, n++;
        /* four digits of 6 bits are three bytes */
        if (n == 4) {
            *to++ = (uint8_t)(bits >> 16);
            *to++ = (uint8_t)(bits >> 8);
            *to++ = (uint8_t)bits;
            n = 0;
        }
    }
    if (n + padding != 0 && n + padding != 4) {
        ares_free(data);
        return ares_fail(ARES_EFORMAT, "not base64: it ends within a group of four characters");
    }
    /* a last group of 2 or 3 characters, with or without its padding, is 1 or 2 bytes */
    if (n >= 2) *to++ = (uint8_t)(n == 2 ? bits >> 4 : bits >> 10);
    if (n == 3) *to++ = (uint8_t)(bits >> 2);
    *out = (media_input){ .data = data, .owned = data, .size = to - data, .fd = -1 };
    if (out->size > 0 && out->size <= most) return ARES_OK;
    int rc = out->size ? too_large(out->size, most) : ares_fail(ARES_EFORMAT, "no bytes");
    media_input_close(out);
    return rc;
}

void media_input_close(media_input *in)
{
    ares_free(in->owned);
    if (in->fd >= 0) close(in->fd);
    *in = (media_input){ .fd = -1 };
}

size_t media_input_at(const media_input *in, int64_t offset, void *to, size_t n)
{
    if (offset < 0 || offset >= in->size) return 0;
    n = (size_t)ARES_MIN((int64_t)n, in->size - offset);
    if (in->data) {
        memcpy(to, in->data + offset, n);
        return n;
    }
    size_t got = 0;
    while (got < n) {
        ssize_t r = pread(in->fd, (char *)to + got, n - got, offset + (int64_t)got);
        if (r < 0 && errno == EINTR) continue; /* a signal came between */
        if (r <= 0) break;
        got += (size_t)r;
    }
    return got;
}

int media_input_load(media_input *in)
{
    if (in->data) return ARES_OK;
    uint8_t *data = ares_malloc((size_t)in->size);
    size_t got = media_input_at(in, 0, data, (size_t)in->size);
    if (got != (size_t)in->size) {
        ares_free(data);
        return ares_fail(ARES_EIO, "only %zu of its %lld bytes could be read", got,
                         (long long)in->size);
    }
    in->data = in->owned = data;
    return ARES_OK;
}

/* Entries of rows: paths, URLs of data, base64, and objects of bytes and path. */

/* Longer texts are bytes: no path has so many. */
enum { MOST_PATH = 4096, MOST_SHOWN = 200 };

/* "file:///a/b.png" or "b.png" -> a path, which image_dir precedes unless it is absolute. */
static int read_path(ares_view text, const char *image_dir, ares_arena *arena, media_entry *out)
{
    ares_str joined = { 0 };
    if (ares_view_starts(text, ARES_VIEW("file://")))
        text = (ares_view){ text.data + 7, text.len - 7 };
    static const char of_scheme[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-.";
    size_t n = 0;
    /* the scheme: "https" of "https://.." */
    while (n < text.len && memchr(of_scheme, text.data[n], sizeof of_scheme - 1)) n++;
    if (n && ares_view_starts((ares_view){ text.data + n, text.len - n }, ARES_VIEW("://")))
        return ares_fail(ARES_EUNSUPPORTED, "URLs (%.*s) are not fetched; give a path", (int)n,
                         text.data);
    if (text.len == 0) return ares_fail(ARES_EFORMAT, "an empty path");
    if (memchr(text.data, 0, text.len)) return ares_fail(ARES_EFORMAT, "a path with a NUL in it");
    const char *path = ares_arena_copy(arena, text.data, text.len);
    ares_path_join(&joined, image_dir ? image_dir : "", path);
    out->path = ares_arena_copy(arena, joined.data, joined.len);
    ares_str_fini(&joined);
    return ARES_OK;
}
/* The forms of an entry: a string, or Hugging Face's {"bytes": "..", "path": ".."}. */
static int read_entry(const ares_json *entry, const char *image_dir, ares_arena *arena,
                      media_entry *out)
{
    if (entry->type == ARES_JSON_STRING) {
        ares_view text = entry->text;
        if (ares_view_starts(text, ARES_VIEW("data:"))) {
            /* data:image/png;base64,... */
            int64_t comma = ares_view_find(text, ARES_VIEW(","), 0);
            ares_view head = { text.data + 5, comma < 0 ? 0 : (size_t)comma - 5 },
                      base = ARES_VIEW(";base64");
            bool right = comma >= 0 && head.len >= base.len &&
                         memcmp(head.data + head.len - base.len, base.data, base.len) == 0;
            ares_view type = { head.data, right ? head.len - base.len : 0 };
            right &= type.len == 0 || ares_view_starts(type, ARES_VIEW("image/")) ||
                     ares_view_starts(type, ARES_VIEW("video/"));
            if (!right)
                return ares_fail(ARES_EUNSUPPORTED, "not data of a picture in base64; write "
                                                    "data:image/png;base64,...");
            out->base64 = (ares_view){ text.data + comma + 1, text.len - (size_t)comma - 1 };
            return ARES_OK;
        }
        if (text.len <= MOST_PATH) return read_path(text, image_dir, arena, out);
        out->base64 = text;
        return ARES_OK;
    }
    const ares_json *bytes = ares_json_get(entry, "bytes"), *path = ares_json_get(entry, "path");
    if (bytes && bytes->type == ARES_JSON_STRING) {
        out->base64 = bytes->text;
        return ARES_OK;
    }
    bool no_bytes = !bytes || bytes->type == ARES_JSON_NULL;
    if (no_bytes && path && path->type == ARES_JSON_STRING)
        return read_path(path->text, image_dir, arena, out);
    return ares_fail(ARES_EFORMAT, "neither a path, nor bytes in base64, nor an object with "
                                   "'bytes' or 'path'");
}

int media_entry_read(const ares_json *entry, const char *where, const char *image_dir,
                     ares_arena *arena, media_entry *out)
{
    /* the place that messages give shows the path, or the beginning of what is there instead */
    const ares_json *path = ares_json_get(entry, "path");
    ares_str shown = { 0 };
    if (path && path->type == ARES_JSON_STRING) ares_str_add_view(&shown, path->text);
    else if (entry->type == ARES_JSON_STRING) ares_str_add_view(&shown, entry->text);
    else ares_json_write(&shown, entry);
    /* "media: images[1] = '...'", with the end of a long text left out and no control characters */
    size_t n = ARES_MIN(shown.len, (size_t)MOST_SHOWN);
    char *place = ares_arena_printf(arena, "media: %s = '%.*s%s'", where, (int)n,
                                    ares_str_view(&shown).data, n < shown.len ? "..." : "");
    for (char *c = place; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    *out = (media_entry){ .place = place };
    ares_str_fini(&shown);
    int rc = read_entry(entry, image_dir, arena, out);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "%s", out->place);
}

int media_entry_open(const media_entry *e, int64_t most, media_input *out)
{
    return e->path ? media_input_file(e->path, most, out)
                   : media_input_base64(e->base64, most, out);
}

/*
 * Whether the file of a video ends early. FFmpeg takes the frames that are there and says nothing;
 * but MP4, Matroska and AVI say at their outermost level how long their parts are.
 */

static int ends_early(int64_t said, int64_t size)
{
    return ares_fail(ARES_EFORMAT, "it ends early: a part of it ends at byte %lld of %lld",
                     (long long)said, (long long)size);
}

/* A big-endian number of n bytes. */
static uint64_t big(const uint8_t *at, int n)
{
    uint64_t x = 0;
    for (int i = 0; i < n; i++) x = x << 8 | at[i];
    return x;
}

/* Boxes: size (0: to the end, 1: in 8 bytes behind the name), name. */
static int check_boxes(const media_input *in)
{
    uint8_t head[16];
    int64_t at = 0;
    while (at < in->size) {
        size_t n = media_input_at(in, at, head, sizeof head);
        if (n < 8) return ends_early(at + 8, in->size);
        uint64_t bytes = big(head, 4), least = 8;
        if (bytes == 0) return ARES_OK;
        /* a size of 1: the real one follows the name in 8 bytes, as in files above 4 GiB */
        if (bytes == 1) bytes = n == 16 ? big(head + 8, 8) : 0, least = 16;
        if (bytes < least || bytes > INT64_MAX / 2)
            return ares_fail(ARES_EFORMAT, "a part of it at byte %lld has no size", (long long)at);
        /* subtracted and not added, so that a huge size cannot overflow */
        if ((int64_t)bytes > in->size - at) return ends_early(at + (int64_t)bytes, in->size);
        at += (int64_t)bytes;
    }
    return ARES_OK;
}

/* Elements of EBML at the top: the header and the segment, each with a size of 1 to 8 bytes. */
static int check_elements(const media_input *in)
{
    int64_t at = 0;
    for (int i = 0; i < 2; i++) { /* the header, the segment */
        uint8_t head[12] = { 0 };
        if (media_input_at(in, at, head, sizeof head) < 5) return ends_early(at + 5, in->size);
        int n = 1; /* bytes of the size: as many as its first byte has leading zeros, and one */
        while (n < 8 && !(head[4] & 0x80 >> (n - 1))) n++;
        uint64_t all = ((uint64_t)1 << 7 * n) - 1, bytes = big(head + 4, n) & all;
        if (bytes == all) return ARES_OK; /* written without a size */
        at += 4 + n;
        if ((int64_t)bytes > in->size - at) return ends_early(at + (int64_t)bytes, in->size);
        at += (int64_t)bytes;
    }
    return ARES_OK;
}

/* RIFF: a list after the other, where there is more than one */
static int check_lists(const media_input *in)
{
    uint8_t head[8];
    int64_t at = 0;
    while (media_input_at(in, at, head, 8) == 8 && memcmp(head, "RIFF", 4) == 0) {
        int64_t bytes = (int64_t)head[7] << 24 | head[6] << 16 | head[5] << 8 | head[4];
        /* a chunk of an odd size is followed by a byte of padding */
        if (bytes > in->size - at - 8) return ends_early(at + 8 + bytes, in->size);
        at += 8 + bytes + (bytes & 1);
    }
    return ARES_OK;
}

int media_container_check(const media_input *in)
{
    uint8_t head[12] = { 0 };
    size_t n = media_input_at(in, 0, head, sizeof head);
    /* MP4; Matroska and WebM; AVI. Other containers are taken as they are. */
    if (n == 12 && memcmp(head + 4, "ftyp", 4) == 0) return check_boxes(in);
    if (n == 12 && memcmp(head, "\x1a\x45\xdf\xa3", 4) == 0) return check_elements(in);
    if (n == 12 && memcmp(head, "RIFF", 4) == 0 && memcmp(head + 8, "AVI ", 4) == 0)
        return check_lists(in);
    return ARES_OK;
}

/*
 * A video's file by FFmpeg, which only libares_video.so knows. It is opened when the first such
 * file is: the program starts, and builds, without it.
 */

/* A function of libares_video.so. dlopen gives every caller the same library: nothing is kept. */
static int find(const char *name, void **function)
{
    char path[4200];
    ares_path_of_program("ARES_VIDEO_LIB", "libares_video.so", path, sizeof path);
    if (access(path, R_OK) != 0)
        return ares_fail(ARES_EUNSUPPORTED,
                         "this build does not read files of videos (no %s); install "
                         "libavformat-dev, libavcodec-dev and libswscale-dev and build again, or "
                         "give the video as a list of frames",
                         path);
    /* RTLD_LOCAL: FFmpeg's names stay out of the way of others' */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return ares_fail(ARES_EUNSUPPORTED,
                         "files of videos: %s; install FFmpeg's libraries, or build again",
                         dlerror());
    *function = dlsym(library, name);
    if (*function) return ARES_OK;
    return ares_fail(ARES_EUNSUPPORTED, "%s is of another version; build it again", path);
}

/* Opens a video. A file is read piece by piece, so that only a text in base64 has a limit. */
static int open_input(const media_entry *e, media_input *in)
{
    return media_entry_open(e, e->path ? INT64_MAX : MEDIA_MOST_FILE, in);
}

/* The pass over headers: sizes of a row's images and videos, and what is too large. */

typedef struct opener {
    const ares_processor *p;
    const ares_media_options *o;
    ares_arena *arena;
    ares_media *media;
} opener;

/* Reads the header of a picture, and counts it where its EXIF data ask for a turn. */
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

/* 2 GiB: all frames of a medium lie in memory at once, at their last size */
#define MEDIA_MOST_VIDEO ((int64_t)1 << 31) /* bytes of the frames that are kept */

/* The last resize, and what follows from it. */
static int finish(const opener *a, const media_source *s, int32_t frames, ares_medium *m)
{
    const ares_processor *p = a->p;
    media_size to = s->sized;
    int32_t factor = p->patch * p->merge;
    ARES_TRY(media_check_size(to, "resized to")); /* after EasyR1's resize */
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
    /* in patches; a last group of fewer frames than `temporal` repeats its last one */
    m->grid = (ares_grid){ m->video ? (frames + p->temporal - 1) / p->temporal : 1, to.h / p->patch,
                           to.w / p->patch };
    m->source = s;
    return ARES_OK;
}

/* The resizes of a video. frames: how many its list has, or are chosen from its file */
static int size_video(const opener *a, media_source *s, int32_t frames, ares_medium *m)
{
    /* a limit before the resize, because a frame is decoded at this size first */
    ARES_TRY(media_check_size(s->size, "frames of"));
    if ((int64_t)s->size.w * s->size.h > MEDIA_MOST_VIDEO / 3 / frames)
        return ares_fail(ARES_EUNSUPPORTED, "%d frames of %d x %d pixels: more than %lld bytes",
                         frames, s->size.w, s->size.h, (long long)MEDIA_MOST_VIDEO);
    s->sized = s->size;
    /* EasyR1 resizes videos as tensors of floats, and pictures by Pillow */
    s->filter = MEDIA_TORCH_F32;
    if (a->o->min_pixels > 0 || a->o->max_pixels > 0)
        ARES_TRY(media_video_size(s->size, frames, a->p->patch * a->p->merge, a->o->min_pixels,
                                  a->o->max_pixels, &s->sized));
    return finish(a, s, frames, m);
}

/* fps: of the frames that are taken */
static int set_seconds(const opener *a, double fps, ares_medium *m)
{
    m->second_per_grid = a->p->temporal / fps;
    if (fps > 0 && isfinite(fps) && isfinite(m->second_per_grid)) return ARES_OK;
    return ares_fail(ARES_EFORMAT, "sample_fps = %g: not a number above 0", fps);
}

/* A video as a list of pictures, which all have the size of the first. */
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

/* [frames], {"frames": [..], "sample_fps": 2}, or a file in any form of read_entry. */
static int open_video(const opener *a, const ares_json *entry, int64_t i, ares_medium *m)
{
    double fps = 2; /* of a list that does not say */
    char where[64];
    media_source *s = ares_arena_calloc(a->arena, 1, sizeof *s);
    const ares_json *frames = ares_json_get(entry, "frames");
    snprintf(where, sizeof where, "videos[%lld]", (long long)i);
    m->video = true;
    /* a bare list of pictures has 2 per second */
    if (entry->type == ARES_JSON_ARRAY) return open_frames(a, entry, fps, where, s, m);
    if (!frames) {
        /* the file is decoded once to count its frames: what its header says need not be true */
        media_video_count_fn *count;
        media_video_facts facts = { 0 };
        media_input in;
        char why[256] = "";
        media_entry *e = ares_arena_calloc(a->arena, 1, sizeof *e);
        ARES_TRY(media_entry_read(entry, where, a->o->image_dir, a->arena, e));
        *s = (media_source){ .entries = e, .n = 1, .file = true };
        int rc = open_input(e, &in);
        if (rc == ARES_OK) {
            rc = find("ares_video_count", (void **)&count);
            if (rc == ARES_OK) rc = media_container_check(&in);
            if (rc == ARES_OK && count(&in, MEDIA_MOST_PIXELS, &facts, why, sizeof why) != 0)
                rc = ares_fail(ARES_EFORMAT, "%s", why);
            media_input_close(&in);
        }
        s->size = (media_size){ facts.w, facts.h };
        if (rc == ARES_OK)
            rc =
                media_video_frames(facts.frames, facts.rate, a->o->video_fps, a->arena, &s->chosen);
        if (rc == ARES_OK) rc = size_video(a, s, s->chosen.n, m);
        if (rc == ARES_OK) rc = set_seconds(a, s->chosen.sample_fps, m);
        return rc == ARES_OK ? rc : ares_fail_in(rc, "%s", e->place);
    }
    if (frames->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "media: %s: 'frames' is not a list", where);
    int rc = ares_json_get_double(entry, "sample_fps", fps, &fps);
    return rc == ARES_OK ? open_frames(a, frames, fps, where, s, m)
                         : ares_fail_in(rc, "media: %s", where);
}

/* The length of a row's list; no list is 0. A million media in a row are taken for a mistake. */
static int count(const ares_json *list, const char *what, int32_t *n)
{
    *n = 0;
    if (!list || list->type == ARES_JSON_NULL) return ARES_OK;
    if (list->type != ARES_JSON_ARRAY || list->count > 1 << 20)
        return ares_fail(ARES_EFORMAT, "media: %s: not a list of %s", what, what);
    *n = (int32_t)list->count;
    return ARES_OK;
}

int media_open(const ares_json *images, const ares_json *videos, const ares_processor *p,
               const ares_media_options *o, ares_arena *arena, ares_media *out)
{
    opener a = { p, o, arena, out };
    *out = (ares_media){ 0 };
    /* images first: the order of ares_media.items */
    ARES_TRY(count(images, "images", &out->n_images));
    ARES_TRY(count(videos, "videos", &out->n_videos));
    out->n = out->n_images + out->n_videos;
    ares_medium *items = ares_arena_calloc(arena, (size_t)out->n + 1, sizeof *items);
    out->items = items;
    for (int32_t i = 0; i < out->n_images; i++) {
        /* reads only the header, so that sizes are known and nothing large is decoded yet */
        const ares_json *entry = &images->items[i];
        ares_medium *m = &items[i];
        media_header header;
        media_entry *e = ares_arena_calloc(a.arena, 1, sizeof *e);
        media_source *s = ares_arena_calloc(a.arena, 1, sizeof *s);
        char where[64];
        snprintf(where, sizeof where, "images[%lld]", (long long)i);
        ARES_TRY(media_entry_read(entry, where, a.o->image_dir, a.arena, e));
        *s = (media_source){ .entries = e, .n = 1, .filter = MEDIA_PILLOW };
        int rc = read_header(&a, e, &header);
        if (rc == ARES_OK) {
            s->size = header.size;
            rc = media_easyr1_size(s->size, a.o->min_pixels, a.o->max_pixels, &s->sized);
        }
        if (rc == ARES_OK) rc = finish(&a, s, 1, m);
        ARES_TRY(rc == ARES_OK ? rc : ares_fail_in(rc, "%s", e->place));
    }
    for (int32_t i = 0; i < out->n_videos; i++)
        ARES_TRY(open_video(&a, &videos->items[i], i, &items[out->n_images + i]));
    return ARES_OK;
}

/* Decodes and resizes, one frame after the other: no more than one is held at its first size. */

/* ---------------- XXH64 (Yann Collet's xxHash), which reads 8 bytes at a time */
#define P1 11400714785074694791u
#define P2 14029467366897019727u
#define P3 1609587929392839161u
#define P4 9650029242287828579u
#define P5 2870177450012600261u

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}
static uint64_t word(const uint8_t *at)
{
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return x;
}
static uint64_t round_of(uint64_t acc, uint64_t x)
{
    return rotate(acc + x * P2, 31) * P1;
}

uint64_t media_hash(const uint8_t *data, size_t n, uint64_t seed)
{
    uint64_t lane[4] = { seed + P1 + P2, seed + P2, seed, seed - P1 }, h = seed + P5;
    const uint8_t *end = data + n;
    if (n >= 32) {
        for (; end - data >= 32; data += 32)
            for (int i = 0; i < 4; i++) lane[i] = round_of(lane[i], word(data + 8 * i));
        h = rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12) + rotate(lane[3], 18);
        for (int i = 0; i < 4; i++) h = (h ^ round_of(0, lane[i])) * P1 + P4;
    }
    h += n;
    for (; end - data >= 8; data += 8) h = rotate(h ^ round_of(0, word(data)), 27) * P1 + P4;
    if (end - data >= 4) {
        uint32_t x;
        memcpy(&x, data, sizeof x);
        h = rotate(h ^ x * P1, 23) * P2 + P3;
        data += 4;
    }
    for (; data < end; data++) h = rotate(h ^ *data * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

/* ---------------- one frame */
typedef struct reading {
    const media_source *s;
    media_size to;
    uint8_t *spare; /* a frame of the size between both resizes; NULL: there is no first */
    uint8_t *out;
} reading;

/* Both resizes of frame i. */
static void take_frame(void *ctx, int32_t i, const uint8_t *rgb)
{
    const reading *r = ctx;
    if (r->spare) media_resample(r->s->filter, rgb, r->s->size, r->spare, r->s->sized);
    media_resample(MEDIA_TORCH_U8, r->spare ? r->spare : rgb, r->s->sized,
                   r->out + (size_t)i * (size_t)r->to.w * (size_t)r->to.h * 3, r->to);
}

/* A picture at its first size, `want`, which its header said when the row was opened. */
static int decode(const media_entry *e, media_size want, uint8_t *rgb)
{
    media_input in;
    media_header header;
    ARES_TRY(media_entry_open(e, MEDIA_MOST_FILE, &in));
    int rc = media_header_read(&in, &header);
    if (rc == ARES_OK && (header.size.w != want.w || header.size.h != want.h)) rc = media_changed();
    if (rc == ARES_OK) rc = media_input_load(&in);
    if (rc == ARES_OK) rc = media_decode(&in, &header, e->place, rgb);
    media_input_close(&in);
    return rc;
}

/* Memory for [frames][h][w][3] bytes. */
static uint8_t *room(media_size s, int32_t frames)
{
    return ares_malloc((size_t)s.w * (size_t)s.h * 3 * (size_t)frames);
}
int ares_medium_read(const ares_medium *m, const ares_processor *p, uint8_t **pixels, uint64_t *key)
{
    const media_source *s = m->source;
    media_size to = { m->grid.w * p->patch, m->grid.h * p->patch };
    bool first = s->size.w != s->sized.w || s->size.h != s->sized.h;
    uint8_t *rgb = room(s->size, 1);
    reading r = { s, to, first ? room(s->sized, 1) : NULL, room(to, m->frames) };
    int rc = ARES_OK;
    if (s->file) {
        media_video_frames_fn *read;
        media_input in;
        char why[256] = "";
        rc = open_input(s->entries, &in);
        if (rc == ARES_OK) {
            rc = find("ares_video_frames", (void **)&read);
            if (rc == ARES_OK && read(&in, s->chosen.index, s->chosen.n, s->size.w, s->size.h, rgb,
                                      take_frame, &r, why, sizeof why) != 0)
                rc = ares_fail(ARES_EFORMAT, "%s", why);
            media_input_close(&in);
        }
        if (rc != ARES_OK) rc = ares_fail_in(rc, "%s", s->entries->place);
    }
    for (int32_t i = 0; i < m->frames && !s->file && rc == ARES_OK; i++) {
        /* one frame after the other in the same memory */
        rc = decode(&s->entries[i], s->size, rgb);
        if (rc == ARES_OK) take_frame(&r, i, rgb);
        else rc = ares_fail_in(rc, "%s", s->entries[i].place);
    }
    ares_free(rgb);
    ares_free(r.spare);
    /* the caller frees them; after a failure there are none */
    *pixels = r.out;
    if (rc == ARES_OK) {
        /* the same bytes in other sizes are another picture */
        uint64_t sizes[] = { m->video, (uint64_t)m->frames, (uint64_t)to.w, (uint64_t)to.h };
        *key = media_hash(r.out, (size_t)m->frames * (size_t)to.w * (size_t)to.h * 3,
                          media_hash((const uint8_t *)sizes, sizeof sizes, 0));
    } else {
        ares_free(r.out);
        *pixels = NULL;
    }
    return rc;
}
