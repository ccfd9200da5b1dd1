/*
 * Pictures and videos of a row: the entries that name them, the parts of messages that stand for
 * them, and the prompt's ids with as many tokens as they have (docs/vision.md#prompts).
 */
#include <string.h>

#include "prompt.h"
#include "sight.h"

typedef struct kind {
    const char *name, *url, *mark; /* of parts, and in strings */
} kind;
static const kind kinds[] = { { "image", "image_url", "<image>" },
                              { "video", "video_url", "<video>" } };
enum { IMAGE, VIDEO, KINDS };

static bool is_null(const ares_json *v)
{
    return !v || v->type == ARES_JSON_NULL;
}

static bool is_part(const ares_json *part, const kind *k)
{
    const ares_json *type = ares_json_get(part, "type");
    return (type && type->type == ARES_JSON_STRING && ares_view_is(type->text, k->name)) ||
           ares_json_get(part, k->name) || ares_json_get(part, k->url);
}

static const char *const places[] = { "url", "path", "base64" };

/* What a part itself says of where its picture is; NULL: nothing. */
static const ares_json *entry_of(const ares_json *part, const kind *k)
{
    const ares_json *v = ares_json_get(part, k->name);
    if (is_null(v)) v = ares_json_get(part, k->url);
    if (v && v->type == ARES_JSON_OBJECT && ares_json_get(v, "url")) v = ares_json_get(v, "url");
    /* {"type": "image", "url": ..}, as transformers has it */
    for (int i = 0; i < ARES_COUNT(places) && is_null(v); i++) v = ares_json_get(part, places[i]);
    if (!is_null(v)) return v;
    return k == &kinds[VIDEO] && ares_json_get(part, "frames") ? part : NULL;
}

static void append(ares_arena *arena, ares_json **list, const ares_json *v)
{
    if (!*list) {
        *list = ares_arena_calloc(arena, 1, sizeof **list);
        (*list)->type = ARES_JSON_ARRAY;
    }
    ares_json *items = ares_arena_alloc(arena, (size_t)((*list)->count + 1) * sizeof *items);
    if ((*list)->count) memcpy(items, (*list)->items, (size_t)(*list)->count * sizeof *items);
    items[(*list)->count++] = *v;
    (*list)->items = items;
}

/* The entries that parts of messages hold; *bare: a part that holds none. */
static const ares_json *entries_of(const ares_json *messages, const kind *k, ares_arena *arena,
                                   const ares_json **bare)
{
    ares_json *list = NULL;
    bool given = messages && messages->type == ARES_JSON_ARRAY;
    for (int64_t i = 0; given && i < messages->count; i++) {
        const ares_json *content = ares_json_get(&messages->items[i], "content");
        if (!content || content->type != ARES_JSON_ARRAY) continue;
        for (int64_t p = 0; p < content->count; p++) {
            const ares_json *part = &content->items[p],
                            *entry = is_part(part, k) ? entry_of(part, k) : NULL;
            if (entry) append(arena, &list, entry);
            else if (is_part(part, k)) *bare = part;
        }
    }
    return list;
}

/* The list under a row's key: one entry counts as a list of one, an empty list as none. */
static const ares_json *listed(const ares_json *row, const char *key, ares_arena *arena)
{
    const ares_json *v = key ? ares_row_at(row, key) : NULL;
    if (is_null(v) || (v->type == ARES_JSON_ARRAY && !v->count)) return NULL;
    if (v->type == ARES_JSON_ARRAY) return v;
    ares_json *list = NULL;
    append(arena, &list, v);
    return list;
}

int ares_prompt_media_of(const ares_data_config *cfg, const ares_json *row,
                         const ares_json *messages, ares_arena *arena, ares_prompt_media *out)
{
    const char *const keys[] = { cfg->image_key, cfg->video_key };
    const ares_json **const to[] = { &out->images, &out->videos };
    out->bare = NULL;
    out->unread = out->key = NULL;
    for (int k = 0; k < KINDS; k++) {
        const ares_json *list = listed(row, keys[k], arena), *bare = NULL,
                        *parts = entries_of(messages, &kinds[k], arena, &bare);
        if (!list && bare) out->bare = bare;
        if (list && parts)
            return ares_fail(ARES_EFORMAT,
                             "both '%s' and parts of messages name %ss; name them in one place",
                             keys[k], kinds[k].name);
        *to[k] = list ? list : parts;
        bool other = keys[k] && strcmp(keys[k], kinds[k].name) != 0;
        if (*to[k] || !other || is_null(ares_json_get(row, kinds[k].name))) continue;
        out->unread = kinds[k].name;
        out->key = keys[k];
    }
    return ARES_OK;
}

int ares_prompt_check_media(const ares_prompt_encoder *e, const ares_prompt_media *m)
{
    if (m->bare) {
        ares_str part = { 0 };
        ares_json_write(&part, m->bare);
        int rc = ares_fail(ARES_EFORMAT,
                           "a part of a message names no image or video: %.100s; give it 'image', "
                           "'image_url', 'url' or 'path' (of a video: 'video' ..), or list them "
                           "under '%s' or '%s' of the row",
                           part.data, e->cfg->image_key, e->cfg->video_key);
        ares_str_fini(&part);
        return rc;
    }
    if (e->sight && m->unread)
        return ares_fail(ARES_EFORMAT,
                         "row has '%s' and nothing under '%s', where it would be read; set "
                         "data.%s_key=%s, or rename it",
                         m->unread, m->key, m->unread, m->unread);
    if (e->sight || (!m->images && !m->videos)) return ARES_OK;
    return ares_fail(ARES_EUNSUPPORTED,
                     "'%s' holds images or videos, and the model reads text alone; choose a vision "
                     "model, or leave such rows out",
                     m->images ? e->cfg->image_key : e->cfg->video_key);
}

/* ------------------------------------------------------------------ strings -> parts */
static ares_json *object(ares_arena *arena, int64_t members)
{
    ares_json *j = ares_arena_calloc(arena, 1, sizeof *j);
    *j = (ares_json){ .type = ARES_JSON_OBJECT,
                      .members = ares_arena_calloc(arena, (size_t)members, sizeof *j->members) };
    return j;
}

static void member(ares_arena *arena, ares_json *to, const char *key, ares_view text)
{
    ares_json *v = ares_arena_calloc(arena, 1, sizeof *v);
    *v = (ares_json){ .type = ARES_JSON_STRING, .text = text };
    ((ares_json_member *)to->members)[to->count++] = (ares_json_member){ ares_view_of(key), v };
}

/* The first mark from `at` on of a kind that the row has; -1: none. */
static int64_t find_mark(ares_view text, size_t at, const ares_prompt_media *m, const kind **which)
{
    const bool has[] = { m->images != NULL, m->videos != NULL };
    int64_t first = -1;
    for (int k = 0; k < KINDS; k++) {
        int64_t found = has[k] ? ares_view_find(text, ares_view_of(kinds[k].mark), at) : -1;
        if (found < 0 || (first >= 0 && found > first)) continue;
        first = found;
        *which = &kinds[k];
    }
    return first;
}

static const ares_json *parts_of(ares_view text, const ares_prompt_media *m, ares_arena *arena)
{
    ares_json *list = NULL, *part;
    const kind *k = NULL;
    size_t at = 0;
    for (bool more = true; more;) {
        int64_t mark = find_mark(text, at, m, &k);
        size_t end = mark < 0 ? text.len : (size_t)mark;
        more = mark >= 0;
        if (end > at) {
            part = object(arena, 2);
            member(arena, part, "type", ARES_VIEW("text"));
            member(arena, part, "text", (ares_view){ text.data + at, end - at });
            append(arena, &list, part);
        }
        if (!more) break;
        part = object(arena, 1);
        member(arena, part, "type", ares_view_of(k->name));
        append(arena, &list, part);
        at = end + strlen(k->mark);
    }
    return list;
}

/* A message whose text holds places of media, as parts. The assistant's stay as they are. */
static ares_json with_parts(const ares_json *message, const ares_prompt_media *m, ares_arena *arena)
{
    const ares_json *role = ares_json_get(message, "role"),
                    *content = ares_json_get(message, "content");
    const kind *k;
    bool own = role && role->type == ARES_JSON_STRING && ares_view_is(role->text, "assistant");
    if (own || !content || content->type != ARES_JSON_STRING ||
        find_mark(content->text, 0, m, &k) < 0)
        return *message;
    ares_json out = *message;
    ares_json_member *members = ares_arena_alloc(arena, (size_t)out.count * sizeof *members);
    for (int64_t i = 0; i < out.count; i++) {
        members[i] = message->members[i];
        if (ares_view_is(members[i].key, "content"))
            members[i].value = parts_of(content->text, m, arena);
    }
    out.members = members;
    return out;
}

const ares_json *ares_prompt_place_media(const ares_json *variables, const ares_prompt_media *m,
                                         ares_arena *arena)
{
    const ares_json *messages = ares_json_get(variables, "messages");
    if ((!m->images && !m->videos) || !messages || messages->type != ARES_JSON_ARRAY)
        return variables;
    ares_json *list = ares_arena_calloc(arena, 2, sizeof *list), *root = list + 1;
    ares_json *items = ares_arena_alloc(arena, (size_t)(messages->count + 1) * sizeof *items);
    for (int64_t i = 0; i < messages->count; i++)
        items[i] = with_parts(&messages->items[i], m, arena);
    *list = (ares_json){ .type = ARES_JSON_ARRAY, .items = items, .count = messages->count };
    ares_json_member *members =
        ares_arena_alloc(arena, (size_t)(variables->count + 1) * sizeof *members);
    *root = *variables;
    for (int64_t i = 0; i < root->count; i++) {
        members[i] = variables->members[i];
        if (ares_view_is(members[i].key, "messages")) members[i].value = list;
    }
    root->members = members;
    return root;
}

/* ------------------------------------------------------------------ ids */
int ares_prompt_see(const ares_prompt_encoder *e, const ares_prompt_media *m, ares_arena *arena,
                    ares_ids *ids, const ares_sight **sight)
{
    const ares_data_config *c = e->cfg;
    const ares_media_options o = {
        .min_pixels = c->min_pixels == ARES_NULL_I64 ? 0 : c->min_pixels,
        .max_pixels = c->max_pixels == ARES_NULL_I64 ? 0 : c->max_pixels,
        .video_fps = c->video_fps,
        .image_dir = c->image_dir,
    };
    *sight = NULL;
    ARES_TRY(ares_prompt_check_media(e, m));
    if (!e->sight) return ARES_OK;
    int64_t images = m->images ? m->images->count : 0;
    if (e->limit_images && images > e->limit_images)
        return ares_fail(ARES_EFORMAT,
                         "%lld images, and worker.rollout.limit_images allows %lld; raise it, or "
                         "leave the row out",
                         (long long)images, (long long)e->limit_images);
    ares_media *media = ares_arena_calloc(arena, 1, sizeof *media);
    ares_sight *out = ares_arena_calloc(arena, 1, sizeof *out);
    ares_ids expanded = { .want_offsets = ids->want_offsets };
    int rc = ares_media_open(m->images, m->videos, &e->sight->processor, &o, arena, media);
    if (rc == ARES_OK)
        rc = sight_expand(e->sight, media, ids->ids, ids->n, (const int64_t(*)[2])ids->offsets,
                          &expanded);
    if (rc == ARES_OK && expanded.n > INT32_MAX / 4)
        rc = ares_fail(ARES_ELIMIT, "%lld tokens of images and videos", (long long)expanded.n);
    if (rc == ARES_OK && media->n)
        rc = sight_of(e->sight, media, expanded.ids, (int32_t)expanded.n, arena, out);
    if (rc != ARES_OK) {
        ares_ids_fini(&expanded);
        return rc;
    }
    ares_ids_fini(ids);
    *ids = expanded;
    out->turned = media->turned;
    if (media->n) *sight = out;
    return ARES_OK;
}
