/*
 * The mark ends with a space. Where the rendered text lacks that space, the template trims the
 * content, and the white space before the mark is cut too. Where a content holds the mark's own
 * words, the last mark of the text counts.
 */
#include "chat_continue.h"

#include <string.h>

#include "jinja/jinja.h"

static const ares_view mark = { "CONTINUE_FINAL_MESSAGE_TAG ", 27 };

/* As Python's bool(). */
static bool truthy(const ares_json *v)
{
    if (!v) return false;
    switch (v->type) {
    case ARES_JSON_NULL: return false;
    case ARES_JSON_BOOL: return v->boolean;
    case ARES_JSON_INT:
    case ARES_JSON_FLOAT: return v->number != 0;
    case ARES_JSON_STRING: return v->text.len > 0;
    default: return v->count > 0;
    }
}

int chat_continue_key(const ares_json *variables, ares_view *key)
{
    const ares_json *v = ares_json_get(variables, "continue_final_message");
    *key = (ares_view){ 0 };
    if (!truthy(v)) return ARES_OK;
    if (v->type != ARES_JSON_BOOL && v->type != ARES_JSON_STRING)
        return ares_fail(
            ARES_EFORMAT,
            "template: continue_final_message is neither true, false nor a key of a message");
    if (truthy(ares_json_get(variables, "add_generation_prompt")))
        return ares_fail(
            ARES_EFORMAT,
            "template: continue_final_message and add_generation_prompt exclude each other: the "
            "first "
            "continues the last message, the second begins a new one; set one of them");
    *key = v->type == ARES_JSON_STRING ? v->text : ARES_VIEW("content");
    return ARES_OK;
}

static const ares_json *marked_text(const ares_json *text, ares_arena *arena)
{
    ares_json *out = ares_arena_calloc(arena, 1, sizeof *out);
    char *data = ares_arena_alloc(arena, text->text.len + mark.len + 1);
    if (text->text.len) memcpy(data, text->text.data, text->text.len);
    memcpy(data + text->text.len, mark.data, mark.len + 1);
    *out = (ares_json){ .type = ARES_JSON_STRING, .text = { data, text->text.len + mark.len } };
    return out;
}

/* A copy of the object in which `key` has another value. */
static ares_json with_member(const ares_json *object, ares_view key, const ares_json *value,
                             ares_arena *arena)
{
    ares_json_member *members =
        ares_arena_alloc(arena, ((size_t)object->count + 1) * sizeof *members);
    ares_json out = *object;
    for (int64_t i = 0; i < object->count; i++) {
        members[i] = object->members[i];
        if (ares_view_eq(members[i].key, key)) members[i].value = value;
    }
    out.members = members;
    return out;
}

static ares_json *with_item(const ares_json *array, int64_t i, ares_json item, ares_arena *arena)
{
    ares_json *out = ares_arena_calloc(arena, 1, sizeof *out);
    ares_json *items = ares_arena_alloc(arena, (size_t)array->count * sizeof *items);
    memcpy(items, array->items, (size_t)array->count * sizeof *items);
    items[i] = item;
    *out = *array;
    out->items = items;
    return out;
}

static int no_text(int64_t message, ares_view key)
{
    return ares_fail(
        ARES_EFORMAT,
        "template: messages[%lld].%.*s: holds no text that continue_final_message could continue",
        (long long)message, (int)ARES_MIN(key.len, 60), key.data);
}

/* Of a content that is a list of parts, the last part with a text is marked. */
static int mark_parts(const ares_json *parts, int64_t message, ares_view key, ares_arena *arena,
                      const ares_json **marked, ares_view *content)
{
    for (int64_t i = parts->count - 1; i >= 0; i--) {
        const ares_json *part = &parts->items[i], *text = ares_json_get(part, "text");
        if (part->type == ARES_JSON_STRING && ares_view_find(part->text, ARES_VIEW("text"), 0) < 0)
            continue;
        if (part->type == ARES_JSON_OBJECT && !text) continue;
        if (!text || text->type != ARES_JSON_STRING) break;
        *content = text->text;
        *marked = with_item(
            parts, i, with_member(part, ARES_VIEW("text"), marked_text(text, arena), arena), arena);
        return ARES_OK;
    }
    return no_text(message, key);
}

int chat_continue_mark(const ares_json *messages, ares_view key, ares_arena *arena,
                       const ares_json **marked, ares_view *content)
{
    int64_t last = messages->count - 1;
    if (last < 0)
        return ares_fail(ARES_EFORMAT,
                         "template: 'messages' is empty: there is no final message to continue");
    const ares_json *message = &messages->items[last], *text = ares_json_find(message, key),
                    *inner = NULL;
    if (!text || text->type == ARES_JSON_NULL) return no_text(last, key);
    if (text->type == ARES_JSON_ARRAY) {
        ARES_TRY(mark_parts(text, last, key, arena, &inner, content));
    } else {
        if (text->type != ARES_JSON_STRING) return no_text(last, key);
        *content = text->text;
        inner = marked_text(text, arena);
    }
    *marked = with_item(messages, last, with_member(message, key, inner, arena), arena);
    return ARES_OK;
}

int chat_continue_cut(ares_str *text, ares_view content)
{
    ares_view all = ares_str_view(text), word = { mark.data, mark.len - 1 };
    int64_t at = -1;
    for (int64_t next = 0; (next = ares_view_find(all, word, (size_t)next)) >= 0; next++) at = next;
    if (at < 0 || ares_view_find(all, jinja_strip(content), 0) < 0)
        return ares_fail(ARES_EFORMAT,
                         "template: the template does not write the final message unchanged, so "
                         "continue_final_message finds no place to continue from; use a template "
                         "that keeps the content");
    ares_view rest = { all.data + at, all.len - (size_t)at }, before = { all.data, (size_t)at };
    if (!ares_view_starts(rest, mark)) {
        ares_view kept = jinja_strip(before);
        before.len = kept.len ? (size_t)(kept.data + kept.len - before.data) : 0;
    }
    text->len = before.len;
    text->data[before.len] = 0;
    return ARES_OK;
}
