/* Tinker's requests in JSON, and the names of its checkpoints. */
#include "tinker.h"

#include <string.h>

/* ---------------- names */

static bool word(ares_view v, const char *others)
{
    for (size_t i = 0; i < v.len; i++) {
        char c = v.data[i];
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!letter && !ares_is_digit(c) && (!c || !strchr(others, c))) return false;
    }
    return v.len > 0;
}

bool tinker_name_ok(ares_view name)
{
    return name.len <= 128 && word(name, "._-") && !ares_view_is(name, ".") &&
           !ares_view_is(name, "..");
}

/* What stands before the first c, which is taken away with it; all of it where there is none. */
static ares_view before(ares_view *rest, char c)
{
    const char *at = rest->len ? memchr(rest->data, c, rest->len) : NULL;
    ares_view v = { rest->data, at ? (size_t)(at - rest->data) : rest->len };
    *rest = at ? (ares_view){ at + 1, rest->len - v.len - 1 } : (ares_view){ "", 0 };
    return v;
}

bool tinker_model_id_ok(ares_view id)
{
    ares_view session = before(&id, ':'), train = before(&id, ':');
    if (!word(session, "-") || session.len > 64 || !ares_view_is(train, "train")) return false;
    for (size_t i = 0; i < id.len; i++)
        if (!ares_is_digit(id.data[i])) return false;
    return id.len > 0 && id.len <= 19;
}

bool tinker_path_read(ares_view text, tinker_path *out)
{
    if (!ares_view_starts(text, ARES_VIEW("tinker://"))) return false;
    ares_view rest = { text.data + 9, text.len - 9 };
    out->model_id = before(&rest, '/');
    ares_view kind = before(&rest, '/');
    out->name = rest;
    out->sampler = ares_view_is(kind, "sampler_weights");
    return tinker_model_id_ok(out->model_id) && (out->sampler || ares_view_is(kind, "weights")) &&
           tinker_name_ok(out->name);
}
