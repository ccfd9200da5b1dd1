/*
 * Pictures and videos in prompts. In order: one token becomes as many as the picture has;
 * positions of tokens on three axes; reading a row's media and placing them in its prompt.
 */
#include "internal.h"
#include "media/internal.h"

#include <stdlib.h>
#include <string.h>

/* One token per picture and video, as a template writes them -> as many as it has. */

typedef struct token_kind {
    int32_t token;
    int64_t found, wanted, media; /* tokens in the ids, tokens and number of the media */
    const ares_medium *items;
    const char *name, *option;
} token_kind;

static token_kind kind_of(const ares_media_rules *r, const ares_media *m, bool video)
{
    token_kind k = { .token = video ? r->video_token : r->image_token,
                     .media = video ? m->n_videos : m->n_images,
                     .items = m->items + (video ? m->n_images : 0),
                     .name = video ? "video" : "image",
                     .option = video ? "<video>" : "<image>" };
    for (int64_t i = 0; i < k.media; i++)
        k.wanted += ares_medium_tokens(&k.items[i], r->processor.merge);
    return k;
}
int media_expand(const ares_media_rules *r, const ares_media *media, const int32_t *ids, int64_t n,
                 const int64_t (*offsets)[2], ares_ids *out)
{
    /* ids and media of a kind are in the same order, so that media are counted off */
    token_kind kinds[] = { kind_of(r, media, false), kind_of(r, media, true) };
    int64_t next[ARES_COUNT(kinds)] = { 0 };
    for (int k = 0; k < ARES_COUNT(kinds); k++) {
        for (int64_t i = 0; i < n; i++) kinds[k].found += ids[i] == kinds[k].token;
        if (kinds[k].found == kinds[k].media || kinds[k].found == kinds[k].wanted) continue;
        return ares_fail(ARES_EFORMAT,
                         "%lld %ss and %lld places for them in the prompt; put %s into it once "
                         "for each",
                         (long long)kinds[k].media, kinds[k].name, (long long)kinds[k].found,
                         kinds[k].option);
    }
    for (int64_t i = 0; i < n;) {
        const token_kind *k = ids[i] == kinds[0].token   ? &kinds[0]
                              : ids[i] == kinds[1].token ? &kinds[1]
                                                         : NULL;
        int64_t copies = 1, taken = 1;
        if (k) {
            copies = ares_medium_tokens(&k->items[next[k - kinds]++], r->processor.merge);
            if (k->found != k->media) taken = copies; /* the ids are expanded already */
            int64_t run = 1;
            while (run < taken && i + run < n && ids[i + run] == k->token) run++;
            if (run < taken)
                return ares_fail(ARES_EFORMAT,
                                 "the %lld tokens of %s number %lld, from token %lld on, do not "
                                 "stand together",
                                 (long long)copies, k->name, (long long)next[k - kinds],
                                 (long long)i);
        }
        for (int64_t c = 0; c < copies; c++)
            ares_ids_add(out, ids[i], offsets ? offsets[i][0] : 0, offsets ? offsets[i][1] : 0);
        i += taken;
    }
    return ARES_OK;
}

/*
 * Where pictures stand in a sequence, and positions of three axes (Wang et al., arXiv 2409.12191,
 * section 2.1): a picture's tokens have its rows and columns, and what follows it begins behind the
 * largest position used.
 */

/* Positions stay far from the end of int32_t: no model is as long. */
static const double last_time = 1 << 24;
typedef struct walk {
    const ares_media_rules *rules;
    const ares_media *media;
    const int32_t *ids;
    int32_t n, i, next;     /* tokens, the token at hand, the next position */
    int32_t images, videos; /* media that have their places */
    int32_t *t, *h, *w;
    ares_place *places;
    int32_t n_places;
} walk;

/* The places and positions of one picture's or video's tokens, the first of which is at k->i. */
static int place(walk *k)
{
    bool video = k->ids[k->i] == k->rules->video_token;
    const ares_media *m = k->media;
    const ares_medium *x = NULL; /* the next that has no place yet */
    if (video && k->videos < m->n_videos) x = &m->items[m->n_images + k->videos++];
    if (!video && k->images < m->n_images) x = &m->items[k->images++];
    int32_t merge = k->rules->processor.merge, tokens = x ? ares_medium_tokens(x, merge) : 0,
            high = x ? x->grid.h / merge : 1, wide = x ? x->grid.w / merge : 1, first = k->i,
            s = k->next, last = s;
    /* steps of time: none in an image, pairs of frames or parts of seconds in a video */
    double steps_per_s = k->rules->tokens_per_second,
           end = x ? (double)x->grid.t * x->second_per_grid * steps_per_s : 0;
    bool timed = x && x->video && steps_per_s > 0;
    if (timed && !(end >= 0 && end < last_time))
        return ares_fail(ARES_EFORMAT,
                         "a video of %d pairs of frames, %g seconds apart: must last from 0 to "
                         "%g seconds",
                         x->grid.t, x->second_per_grid, last_time / steps_per_s);
    for (; k->i < k->n && k->i - first < tokens && k->ids[k->i] == k->ids[first]; k->i++) {
        int32_t at = k->i - first, frame = at / (high * wide);
        k->t[k->i] =
            s + (timed ? (int32_t)((float)frame * (float)x->second_per_grid * (float)steps_per_s)
                 : x->video ? frame
                            : 0);
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

int row_media_of(const ares_media_rules *r, const ares_media *media, const int32_t *ids, int32_t n,
                 ares_arena *arena, ares_row_media *out)
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
    *out = (ares_row_media){ .n = n,
                             .t = k.t,
                             .h = k.h,
                             .w = k.w,
                             .delta = k.next - n,
                             .n_places = k.n_places,
                             .places = k.places };
    return ARES_OK;
}

/* Tokens after the row's own (its response) go on from the highest position, on all three axes. */
void ares_media_position(const ares_row_media *s, int32_t i, int32_t *t, int32_t *h, int32_t *w)
{
    bool inside = s && i < s->n;
    int32_t behind = s ? i + s->delta : i;
    *t = inside ? s->t[i] : behind;
    *h = inside ? s->h[i] : behind;
    *w = inside ? s->w[i] : behind;
}

/*
 * Pictures and videos of a row: the entries that name them, the parts of messages that stand for
 * them, and the prompt's ids with as many tokens as they have (docs/vision.md#prompts).
 */

typedef struct part_kind {
    const char *name, *url, *mark; /* of parts, and in strings */
} part_kind;
static const part_kind part_kinds[] = { { "image", "image_url", "<image>" },
                                        { "video", "video_url", "<video>" } };
enum { IMAGE, VIDEO, KINDS };
/* Whether a part of a message stands for an image, or a video, by its type or one of its keys. */
static bool is_part(const ares_json *part, const part_kind *k)
{
    const ares_json *type = ares_json_get(part, "type");
    return (type && type->type == ARES_JSON_STRING && ares_view_is(type->text, k->name)) ||
           ares_json_get(part, k->name) || ares_json_get(part, k->url);
}

/* Keys of a part, of {"type": "image", "url": ..} as transformers has it. */
static const char *const places[] = { "url", "path", "base64" };

/* What a part itself says of where its picture is; NULL: nothing. */
static const ares_json *entry_of(const ares_json *part, const part_kind *k)
{
    const ares_json *v = ares_json_get(part, k->name);
    /* {"image": ..}, or {"image_url": {"url": ..}} as OpenAI has it, or a key of `places` */
    if (!is_there(v)) v = ares_json_get(part, k->url);
    if (v && v->type == ARES_JSON_OBJECT && ares_json_get(v, "url")) v = ares_json_get(v, "url");
    for (int i = 0; i < ARES_COUNT(places) && !is_there(v); i++) v = ares_json_get(part, places[i]);
    if (is_there(v)) return v;
    /* the part itself is an entry: {"type": "video", "frames": [..], "sample_fps": 2} */
    return k == &part_kinds[VIDEO] && ares_json_get(part, "frames") ? part : NULL;
}

/* Copies the whole list each time: lists of media are short. *list NULL: an empty one */
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
static const ares_json *entries_of(const ares_json *messages, const part_kind *k, ares_arena *arena,
                                   const ares_json **bare)
{
    ares_json *list = NULL;
    bool given = messages && messages->type == ARES_JSON_ARRAY;
    for (int64_t i = 0; given && i < messages->count; i++) {
        const ares_json *content = ares_json_get(&messages->items[i], "content");
        /* a content that is a string has marks instead, which parts_of finds */
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

int ares_prompt_media_of(const ares_data_config *cfg, const ares_json *row,
                         const ares_json *messages, ares_arena *arena, ares_prompt_media *out)
{
    const char *const keys[] = { cfg->image_key, cfg->video_key };
    const ares_json **const to[] = { &out->images, &out->videos };
    out->bare = NULL;
    out->unread = out->key = NULL;
    for (int k = 0; k < KINDS; k++) {
        const ares_json *list = keys[k] ? ares_row_at(row, keys[k]) : NULL, *bare = NULL,
                        *parts = entries_of(messages, &part_kinds[k], arena, &bare);
        /* one entry counts as a list of one, an empty list as none */
        if (!is_there(list) || (list->type == ARES_JSON_ARRAY && !list->count)) list = NULL;
        if (list && list->type != ARES_JSON_ARRAY) {
            ares_json *one = NULL;
            append(arena, &one, list);
            list = one;
        }
        if (!list && bare) out->bare = bare; /* else the part takes the next of the row's list */
        if (list && parts)
            return ares_fail(ARES_EFORMAT,
                             "both '%s' and parts of messages name %ss; name them in one place",
                             keys[k], part_kinds[k].name);
        *to[k] = list ? list : parts;
        /* a row with "image" under a data.image_key of "images" is likely a mistake: remember it */
        bool other = keys[k] && strcmp(keys[k], part_kinds[k].name) != 0;
        if (*to[k] || !other || !is_there(ares_json_get(row, part_kinds[k].name))) continue;
        out->unread = part_kinds[k].name;
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
    if (e->row_media && m->unread)
        return ares_fail(ARES_EFORMAT,
                         "row has '%s' and nothing under '%s', where it would be read; set "
                         "data.%s_key=%s, or rename it",
                         m->unread, m->key, m->unread, m->unread);
    if (e->row_media || (!m->images && !m->videos)) return ARES_OK;
    return ares_fail(ARES_EUNSUPPORTED,
                     "'%s' holds images or videos, and the model reads text alone; choose a vision "
                     "model, or leave such rows out",
                     m->images ? e->cfg->image_key : e->cfg->video_key);
}

/* ------------------------------------------------------------------ strings -> parts */
/* An empty object with room for so many members, which `member` appends. */
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
static int64_t find_mark(ares_view text, size_t at, const ares_prompt_media *m,
                         const part_kind **which)
{
    const bool has[] = { m->images != NULL, m->videos != NULL };
    int64_t first = -1;
    for (int k = 0; k < KINDS; k++) {
        int64_t found = has[k] ? ares_view_find(text, ares_view_of(part_kinds[k].mark), at) : -1;
        /* a mark of a kind that the row lacks is text that somebody wrote */
        if (found < 0 || (first >= 0 && found > first)) continue;
        first = found;
        *which = &part_kinds[k];
    }
    return first;
}

/* "<image>How many?" -> [{"type": "image"}, {"type": "text", "text": "How many?"}] */

/* A message whose text holds places of media, as parts. The assistant's stay as they are. */
static ares_json with_parts(const ares_json *message, const ares_prompt_media *m, ares_arena *arena)
{
    const ares_json *role = ares_json_get(message, "role"),
                    *content = ares_json_get(message, "content");
    const part_kind *k;
    bool own = role && role->type == ARES_JSON_STRING && ares_view_is(role->text, "assistant");
    if (own || !content || content->type != ARES_JSON_STRING ||
        find_mark(content->text, 0, m, &k) < 0)
        return *message;
    ares_json out = *message;
    ares_json_member *members = ares_arena_alloc(arena, (size_t)out.count * sizeof *members);
    for (int64_t i = 0; i < out.count; i++) {
        members[i] = message->members[i];
        if (ares_view_is(members[i].key, "content")) {
            /* each mark becomes a part of its own, and so do the texts between them */
            ares_json *list = NULL, *part;
            const part_kind *kind = NULL;
            size_t at = 0;
            for (bool more = true; more;) {
                int64_t mark = find_mark(content->text, at, m, &kind);
                size_t end = mark < 0 ? content->text.len : (size_t)mark;
                more = mark >= 0;
                if (end > at) {
                    part = object(arena, 2);
                    member(arena, part, "type", ARES_VIEW("text"));
                    member(arena, part, "text", (ares_view){ content->text.data + at, end - at });
                    append(arena, &list, part);
                }
                if (!more) break;
                part = object(arena, 1);
                member(arena, part, "type", ares_view_of(kind->name));
                append(arena, &list, part);
                at = end + strlen(kind->mark);
            }
            members[i].value = list;
        }
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
                    ares_ids *ids, const ares_row_media **row_media)
{
    const ares_data_config *c = e->cfg;
    const ares_media_options o = {
        .min_pixels = c->min_pixels == ARES_NULL_I64 ? 0 : c->min_pixels,
        .max_pixels = c->max_pixels == ARES_NULL_I64 ? 0 : c->max_pixels,
        .video_fps = c->video_fps,
        .image_dir = c->image_dir,
    };
    *row_media = NULL;
    ARES_TRY(ares_prompt_check_media(e, m));
    if (!e->row_media) return ARES_OK;
    int64_t images = m->images ? m->images->count : 0;
    /* videos are not limited: a row has few */
    if (e->limit_images && images > e->limit_images)
        return ares_fail(ARES_EFORMAT,
                         "%lld images, and worker.rollout.limit_images allows %lld; raise it, or "
                         "leave the row out",
                         (long long)images, (long long)e->limit_images);
    ares_media *media = ares_arena_calloc(arena, 1, sizeof *media);
    ares_row_media *out = ares_arena_calloc(arena, 1, sizeof *out);
    ares_ids expanded = { .want_offsets = ids->want_offsets };
    int rc = media_open(m->images, m->videos, &e->row_media->processor, &o, arena, media);
    if (rc == ARES_OK)
        rc = media_expand(e->row_media, media, ids->ids, ids->n, (const int64_t(*)[2])ids->offsets,
                          &expanded);
    /* ids and positions count in int32, with room for a response */
    if (rc == ARES_OK && expanded.n > INT32_MAX / 4)
        rc = ares_fail(ARES_ELIMIT, "%lld tokens of images and videos", (long long)expanded.n);
    if (rc == ARES_OK && media->n)
        rc = row_media_of(e->row_media, media, expanded.ids, (int32_t)expanded.n, arena, out);
    if (rc != ARES_OK) {
        ares_ids_fini(&expanded);
        return rc;
    }
    ares_ids_fini(ids);
    *ids = expanded;
    out->turned = media->turned;
    if (media->n) *row_media = out;
    return ARES_OK;
}
