/* Entries of rows: paths, URLs of data, base64, and objects of bytes and path. */
#include "source.h"

#include <string.h>

/* Longer texts are bytes: no path has so many. */
enum { MOST_PATH = 4096, MOST_SHOWN = 200 };

/* "media: images[1] = '...'", with the end of a long text left out and no control characters. */
static const char *name_place(ares_arena *arena, const char *where, ares_view text)
{
    size_t n = ARES_MIN(text.len, (size_t)MOST_SHOWN);
    char *place = ares_arena_printf(arena, "media: %s = '%.*s%s'", where, (int)n, text.data,
                                    n < text.len ? "..." : "");
    for (char *c = place; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    return place;
}

/* The text after "scheme://", or an empty one. */
static ares_view scheme(ares_view text)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-.";
    size_t n = 0;
    while (n < text.len && memchr(allowed, text.data[n], sizeof allowed - 1)) n++;
    ares_view rest = { text.data + n, text.len - n };
    return n && ares_view_starts(rest, ARES_VIEW("://")) ? (ares_view){ text.data, n }
                                                         : (ares_view){ text.data, 0 };
}

/* data:image/png;base64,... */
static int read_data_url(ares_view text, media_entry *out)
{
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

static int read_path(ares_view text, const char *image_dir, ares_arena *arena, media_entry *out)
{
    ares_str joined = { 0 };
    if (ares_view_starts(text, ARES_VIEW("file://")))
        text = (ares_view){ text.data + 7, text.len - 7 };
    ares_view url = scheme(text);
    if (url.len)
        return ares_fail(ARES_EUNSUPPORTED, "URLs (%.*s) are not fetched; give a path",
                         (int)url.len, url.data);
    if (text.len == 0) return ares_fail(ARES_EFORMAT, "an empty path");
    if (memchr(text.data, 0, text.len)) return ares_fail(ARES_EFORMAT, "a path with a NUL in it");
    const char *path = ares_arena_copy(arena, text.data, text.len);
    ares_path_join(&joined, image_dir ? image_dir : "", path);
    out->path = ares_arena_copy(arena, joined.data, joined.len);
    ares_str_fini(&joined);
    return ARES_OK;
}

static int read_text(ares_view text, const char *image_dir, ares_arena *arena, media_entry *out)
{
    if (ares_view_starts(text, ARES_VIEW("data:"))) return read_data_url(text, out);
    if (text.len <= MOST_PATH) return read_path(text, image_dir, arena, out);
    out->base64 = text;
    return ARES_OK;
}

static int read_entry(const ares_json *entry, const char *image_dir, ares_arena *arena,
                      media_entry *out)
{
    if (entry->type == ARES_JSON_STRING) return read_text(entry->text, image_dir, arena, out);
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
    const ares_json *path = ares_json_get(entry, "path");
    ares_str shown = { 0 };
    if (path && path->type == ARES_JSON_STRING) ares_str_add_view(&shown, path->text);
    else if (entry->type == ARES_JSON_STRING) ares_str_add_view(&shown, entry->text);
    else ares_json_write(&shown, entry);
    *out = (media_entry){ .place = name_place(arena, where, ares_str_view(&shown)) };
    ares_str_fini(&shown);
    int rc = read_entry(entry, image_dir, arena, out);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "%s", out->place);
}

int media_entry_open(const media_entry *e, int64_t most, media_input *out)
{
    return e->path ? media_input_file(e->path, most, out)
                   : media_input_base64(e->base64, most, out);
}
