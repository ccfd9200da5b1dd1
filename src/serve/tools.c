/*
 * Tools of a chat: what a template is given, the text that begins a forced call, and the calls that
 * an answer holds.
 *
 * An answer's calls are all read or none: one that is malformed makes the whole answer content, so
 * that a client never gets half of what a model wanted. Arguments are the bytes that were sampled:
 * a number written as 1.50 stays so, and a later turn can be found again.
 */
#include "openai.h"

#include <stdio.h>

const char *const serve_form_names[] = { "none", "hermes", "llama3_json" };

const ares_view serve_think_end = { "</think>", 8 }, serve_call_tag = { "<tool_call>", 11 },
                serve_call_close = { "</tool_call>", 12 },
                serve_python_tag = { "<|python_tag|>", 14 };

serve_form serve_form_of(const ares_chat *chat)
{
    if (ares_chat_reads(chat, serve_python_tag)) return SERVE_FORM_LLAMA3_JSON;
    if (!ares_chat_reads(chat, ARES_VIEW("tools"))) return SERVE_FORM_HERMES; /* the generic form */
    bool hermes =
        ares_chat_reads(chat, serve_call_tag) && !ares_chat_reads(chat, ARES_VIEW("<function="));
    return hermes ? SERVE_FORM_HERMES : SERVE_FORM_NONE;
}

static bool is_string(const ares_json *v)
{
    return v && v->type == ARES_JSON_STRING;
}

static ares_view from(ares_view text, size_t at)
{
    return (ares_view){ text.data + at, text.len - at };
}

/* ------------------------------------------------------------------ messages for a template */
static ares_json *string_of(ares_arena *arena, ares_view text)
{
    ares_json *v = ares_arena_calloc(arena, 1, sizeof *v);
    *v = (ares_json){ .type = ARES_JSON_STRING, .text = text };
    return v;
}

/* Takes the bytes of s into the arena. */
static ares_view keep(ares_arena *arena, ares_str *s)
{
    ares_view v = { ares_arena_copy(arena, s->data ? s->data : "", s->len), s->len };
    ares_str_fini(s);
    return v;
}

/* As Python's json.dumps(ensure_ascii=False): ", " and ": ". */
static void write_spaced(ares_str *out, const ares_json *v)
{
    ares_str compact = { 0 };
    ares_json_write(&compact, v);
    ares_json_indent(out, ares_str_view(&compact), 0);
    ares_str_fini(&compact);
}

ares_view serve_content_text(ares_arena *arena, const ares_json *content)
{
    if (!content || content->type == ARES_JSON_NULL) return ARES_VIEW("");
    if (content->type != ARES_JSON_ARRAY) return content->text;
    ares_str text = { 0 };
    int n = 0;
    for (int64_t i = 0; i < content->count; i++) {
        const ares_json *part = ares_json_get(&content->items[i], "text");
        if (!is_string(part)) continue;
        if (n++) ares_str_add_char(&text, '\n');
        ares_str_add_view(&text, part->text);
    }
    return keep(arena, &text);
}

static const ares_json *parsed_or_text(ares_arena *arena, const ares_json *arguments)
{
    const ares_json *parsed;
    if (!is_string(arguments)) return arguments;
    return ares_json_parse(arena, arguments->text, "arguments", &parsed) == ARES_OK ? parsed
                                                                                    : arguments;
}

/* The object with `value` in place of, or added as, its member `key`. */
static const ares_json *with(ares_arena *arena, const ares_json *object, const char *key,
                             const ares_json *value)
{
    ares_json *copy = ares_arena_calloc(arena, 1, sizeof *copy);
    ares_json_member *m = ares_arena_calloc(arena, (size_t)object->count + 1, sizeof *m);
    *copy = *object;
    copy->members = m;
    int64_t i = 0;
    for (; i < object->count; i++) m[i] = object->members[i];
    for (i = 0; i < object->count && !ares_view_is(m[i].key, key); i++) {}
    if (i == object->count) m[copy->count++].key = ares_view_of(key);
    m[i].value = value;
    return copy;
}

static const ares_json *without(ares_arena *arena, const ares_json *object, const char *key)
{
    ares_json *copy = ares_arena_calloc(arena, 1, sizeof *copy);
    ares_json_member *m = ares_arena_calloc(arena, (size_t)object->count + 1, sizeof *m);
    *copy = *object;
    copy->members = m;
    copy->count = 0;
    for (int64_t i = 0; i < object->count; i++)
        if (!ares_view_is(object->members[i].key, key)) m[copy->count++] = object->members[i];
    return copy;
}

/* The calls of a message as the text that the generic form asks for. */
static void write_calls(ares_arena *arena, const ares_json *calls, ares_str *out)
{
    for (int64_t i = 0; i < calls->count; i++) {
        const ares_json *function = ares_json_get(&calls->items[i], "function"),
                        *name = ares_json_get(function, "name"),
                        *arguments = ares_json_get(function, "arguments");
        if (out->len) ares_str_add_char(out, '\n');
        ares_str_add_z(out, "<tool_call>\n{\"name\": ");
        ares_str name_json = { 0 }; /* apart: the writer would put a comma before it */
        ares_json_write_string(&name_json, is_string(name) ? name->text : ARES_VIEW(""));
        ares_str_add_view(out, ares_str_view(&name_json));
        ares_str_fini(&name_json);
        ares_str_add_z(out, ", \"arguments\": ");
        if (arguments) write_spaced(out, parsed_or_text(arena, arguments));
        else ares_str_add_z(out, "{}");
        ares_str_add_z(out, "}\n</tool_call>");
    }
}

/* Calls with parsed arguments, as templates expect them. */
static const ares_json *parse_calls(ares_arena *arena, const ares_json *calls)
{
    ares_json *copy = ares_arena_calloc(arena, 1, sizeof *copy),
              *items = ares_arena_calloc(arena, (size_t)calls->count, sizeof *items);
    *copy = *calls;
    copy->items = items;
    for (int64_t i = 0; i < calls->count; i++) {
        const ares_json *call = &calls->items[i], *function = ares_json_get(call, "function"),
                        *arguments = ares_json_get(function, "arguments");
        items[i] = *call;
        if (!is_string(arguments)) continue;
        function = with(arena, function, "arguments", parsed_or_text(arena, arguments));
        items[i] = *with(arena, call, "function", function);
    }
    return copy;
}

static void write_tools(ares_str *out, const ares_json *tools)
{
    ares_str_add_z(out, "# Tools\n\nYou may call one or more functions to assist with the user "
                        "query.\n\nYou are provided with function signatures within "
                        "<tools></tools> XML tags:\n<tools>\n");
    for (int64_t i = 0; i < tools->count; i++) {
        write_spaced(out, &tools->items[i]);
        ares_str_add_char(out, '\n');
    }
    ares_str_add_z(out, "</tools>\n\nFor each function call, return a json object with function "
                        "name and arguments within <tool_call></tool_call> XML tags:\n"
                        "<tool_call>\n{\"name\": <function-name>, \"arguments\": "
                        "<args-json-object>}\n</tool_call>");
}

static ares_json *message_of(ares_arena *arena, const char *role, ares_view text)
{
    ares_json_member *m = ares_arena_calloc(arena, 2, sizeof *m);
    ares_json *v = ares_arena_calloc(arena, 1, sizeof *v);
    m[0] = (ares_json_member){ ARES_VIEW("role"), string_of(arena, ares_view_of(role)) };
    m[1] = (ares_json_member){ ARES_VIEW("content"), string_of(arena, text) };
    *v = (ares_json){ .type = ARES_JSON_OBJECT, .count = 2, .members = m };
    return v;
}

const ares_json *serve_messages_for_template(ares_arena *arena, const ares_json *messages,
                                             const ares_json *tools, serve_for_template how)
{
    if (!messages) return NULL;
    ares_json *list = ares_arena_calloc(arena, 1, sizeof *list),
              *items = ares_arena_calloc(arena, (size_t)messages->count + 1, sizeof *items);
    int64_t n = 0;
    bool with_tools = how.generic && tools && tools->count > 0;
    for (int64_t i = 0; i < messages->count; i++) {
        const ares_json *m = &messages->items[i], *role = ares_json_get(m, "role"),
                        *content = ares_json_get(m, "content"),
                        *calls = ares_json_get(m, "tool_calls");
        ares_view text = serve_content_text(arena, content), who = role->text;
        bool has_calls = calls && calls->type == ARES_JSON_ARRAY && calls->count > 0;
        if (how.generic && ares_view_is(who, "tool")) {
            ares_str results = { 0 }; /* neighbours are one message */
            for (int64_t first = i; i < messages->count; i++) {
                const ares_json *next = &messages->items[i];
                if (!ares_view_is(ares_json_get(next, "role")->text, "tool")) break;
                if (i > first) ares_str_add_char(&results, '\n');
                ares_str_add_z(&results, "<tool_response>\n");
                ares_str_add_view(&results,
                                  serve_content_text(arena, ares_json_get(next, "content")));
                ares_str_add_z(&results, "\n</tool_response>");
            }
            i--;
            items[n++] = *message_of(arena, "user", keep(arena, &results));
            continue;
        }
        if (ares_view_is(who, "developer")) who = ARES_VIEW("system");
        if (who.data != role->text.data) m = with(arena, m, "role", string_of(arena, who));
        bool is_list = content && content->type == ARES_JSON_ARRAY;
        if (with_tools && i == 0) {
            ares_str system = { 0 };
            if (ares_view_is(who, "system")) {
                ares_str_add_view(&system, text);
                ares_str_add_z(&system, "\n\n");
            }
            write_tools(&system, tools);
            text = keep(arena, &system);
            if (ares_view_is(who, "system")) is_list = false; /* its text is new */
            else {
                items[n++] = *message_of(arena, "system", text);
                text = serve_content_text(arena, content);
            }
        }
        if (how.generic && has_calls) {
            ares_str said = { 0 };
            ares_str_add_view(&said, text);
            write_calls(arena, calls, &said);
            text = keep(arena, &said);
            is_list = false;
        }
        if (!is_list || !how.vision) m = with(arena, m, "content", string_of(arena, text));
        if (calls && (how.generic || !has_calls)) m = without(arena, m, "tool_calls");
        else if (has_calls) m = with(arena, m, "tool_calls", parse_calls(arena, calls));
        items[n++] = *m;
    }
    *list = (ares_json){ .type = ARES_JSON_ARRAY, .count = n, .items = items };
    return list;
}

ares_view serve_opening(ares_arena *arena, serve_form form, serve_choose choose, ares_view name)
{
    ares_str out = { 0 }, quoted = { 0 };
    if (form == SERVE_FORM_NONE || choose == SERVE_CHOOSE_AUTO || choose == SERVE_CHOOSE_NONE)
        return ARES_VIEW("");
    ares_str_add_z(&out, form == SERVE_FORM_HERMES ? "<tool_call>\n{\"name\": " : "{\"name\": ");
    if (choose == SERVE_CHOOSE_FUNCTION) {
        ares_json_write_string(&quoted, name);
        ares_str_add_view(&out, ares_str_view(&quoted));
        ares_str_fini(&quoted);
        ares_str_add_z(&out,
                       form == SERVE_FORM_HERMES ? ", \"arguments\": " : ", \"parameters\": ");
    } else {
        ares_str_add_char(&out, '"');
    }
    return keep(arena, &out);
}

/* ------------------------------------------------------------------ calls of an answer */
static bool is_white(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static size_t skip_white(ares_view text, size_t i)
{
    while (i < text.len && is_white(text.data[i])) i++;
    return i;
}

size_t serve_json_end(ares_view text, size_t i)
{
    int64_t depth = 0;
    bool inside = false; /* a string */
    for (size_t first = i; i < text.len; i++) {
        char c = text.data[i];
        if (inside) {
            if (c == '\\') i++; /* what follows may be a quote */
            else if (c == '"') inside = false;
            if (!inside && depth == 0) return i + 1;
        } else if (c == '"') {
            inside = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth == 0) return i; /* of the value around a number or a word */
            if (--depth == 0) return i + 1;
        } else if (depth == 0 && i > first && (c == ',' || is_white(c))) {
            return i;
        }
    }
    return 0;
}

/* The bytes of the last member `key` of an object whose text is valid JSON. */
static ares_view member_text(ares_arena *arena, ares_view object, const char *key)
{
    ares_view found = { 0 };
    for (size_t i = skip_white(object, 1); i < object.len && object.data[i] == '"';) {
        const ares_json *name;
        size_t end = serve_json_end(object, i);
        ares_view quoted = { object.data + i, end - i };
        bool is_key = ares_json_parse(arena, quoted, "key", &name) == ARES_OK &&
                      ares_view_is(name->text, key);
        i = skip_white(object, end);
        i = skip_white(object, i + 1); /* the colon */
        end = serve_json_end(object, i);
        if (is_key) found = (ares_view){ object.data + i, end - i };
        i = skip_white(object, end);
        if (i < object.len && object.data[i] == ',') i = skip_white(object, i + 1);
    }
    return found;
}

static void add_call(ares_arena *arena, serve_calls *out, ares_view name, ares_view arguments)
{
    if ((out->n & (out->n - 1)) == 0) { /* room for 1, 2, 4 ... */
        serve_tool_call *more =
            ares_arena_calloc(arena, (size_t)ARES_MAX(1, 2 * out->n), sizeof *more);
        if (out->n) memcpy(more, out->calls, (size_t)out->n * sizeof *more);
        out->calls = more;
    }
    out->calls[out->n++] = (serve_tool_call){ name, arguments };
}

static void add_part(ares_arena *arena, serve_calls *out, size_t first, size_t end)
{
    int n = out->n_parts;
    if ((n & (n - 1)) == 0) {
        size_t(*more)[2] = ares_arena_calloc(arena, (size_t)ARES_MAX(1, 2 * n), sizeof *more);
        if (n) memcpy(more, out->parts, (size_t)n * sizeof *more);
        out->parts = more;
    }
    out->parts[out->n_parts][0] = first;
    out->parts[out->n_parts++][1] = end;
}

/* One object {"name": ..., "arguments": {...}}; `o` is what `text` says. */
static bool read_call(ares_arena *arena, serve_form form, ares_view text, const ares_json *o,
                      serve_calls *out)
{
    const char *key = form == SERVE_FORM_LLAMA3_JSON && ares_json_get(o, "parameters")
                          ? "parameters"
                          : "arguments";
    const ares_json *name = ares_json_get(o, "name"), *arguments = ares_json_get(o, key), *inner;
    if (o->type != ARES_JSON_OBJECT || !is_string(name) || !name->text.len) return false;
    ares_view bytes = ARES_VIEW("{}");
    if (!arguments) {
        /* a JSON object with a name is an answer like another where no tag says that it is a call
         */
        if (form == SERVE_FORM_LLAMA3_JSON) return false;
    } else if (arguments->type == ARES_JSON_OBJECT) {
        bytes = member_text(arena, text, key);
    } else if (is_string(arguments) &&
               ares_json_parse(arena, arguments->text, key, &inner) == ARES_OK &&
               inner->type == ARES_JSON_OBJECT) {
        bytes = arguments->text;
    } else {
        return false;
    }
    add_call(arena, out, name->text, bytes);
    return true;
}

/* What stands between the tags: an object, or a list of them. */
static bool read_tagged(ares_arena *arena, ares_view text, serve_calls *out)
{
    const ares_json *v;
    text = ares_view_trim(text);
    if (ares_json_parse(arena, text, "call", &v) != ARES_OK) return false;
    if (v->type != ARES_JSON_ARRAY) return read_call(arena, SERVE_FORM_HERMES, text, v, out);
    size_t i = 1;
    for (int64_t k = 0; k < v->count; k++) {
        i = skip_white(text, i);
        size_t end = serve_json_end(text, i);
        ares_view item = { text.data + i, end - i };
        if (!read_call(arena, SERVE_FORM_HERMES, item, &v->items[k], out)) return false;
        i = skip_white(text, end) + 1; /* the comma */
    }
    return v->count > 0;
}

static bool read_hermes(ares_arena *arena, ares_view text, size_t at, serve_calls *out)
{
    size_t part = 0;
    for (;;) {
        int64_t tag = ares_view_find(text, serve_call_tag, at);
        if (tag < 0) break;
        size_t inner = (size_t)tag + serve_call_tag.len;
        int64_t end = ares_view_find(text, serve_call_close, inner);
        size_t stop = end < 0 ? text.len : (size_t)end;
        if (!read_tagged(arena, (ares_view){ text.data + inner, stop - inner }, out)) return false;
        add_part(arena, out, part, (size_t)tag);
        part = at = end < 0 ? text.len : stop + serve_call_close.len;
    }
    add_part(arena, out, part, text.len);
    return true;
}

static bool read_llama(ares_arena *arena, ares_view text, size_t at, serve_calls *out)
{
    size_t first = at = skip_white(text, at);
    if (ares_view_starts(from(text, at), serve_python_tag)) at += serve_python_tag.len;
    else if (at == text.len || text.data[at] != '{') return false;
    for (;;) {
        const ares_json *o;
        while (at < text.len &&
               (is_white(text.data[at]) || text.data[at] == ';' || text.data[at] == ','))
            at++;
        if (at == text.len) break;
        size_t end = text.data[at] == '{' ? serve_json_end(text, at) : 0;
        ares_view object = { text.data + at, end ? end - at : 0 };
        if (!end || ares_json_parse(arena, object, "call", &o) != ARES_OK ||
            !read_call(arena, SERVE_FORM_LLAMA3_JSON, object, o, out))
            return false;
        at = end;
    }
    add_part(arena, out, 0, first);
    return true;
}

void serve_calls_read(ares_arena *arena, serve_form form, ares_view text, serve_calls *out)
{
    int64_t thought = ares_view_find(text, serve_think_end, 0);
    size_t at = thought < 0 ? 0 : (size_t)thought + serve_think_end.len;
    *out = (serve_calls){ 0 };
    bool right = form == SERVE_FORM_HERMES        ? read_hermes(arena, text, at, out)
                 : form == SERVE_FORM_LLAMA3_JSON ? read_llama(arena, text, at, out)
                                                  : false;
    ares_error_clear(); /* a text that is no JSON is no failure */
    if (!right || !out->n) *out = (serve_calls){ 0 };
}

void serve_content_add(ares_str *content, int k, ares_view part)
{
    ares_view trimmed = ares_view_trim(part);
    if (!trimmed.len) return;
    /* the first part keeps the white space before it */
    if (k == 0)
        trimmed = (ares_view){ part.data, (size_t)(trimmed.data - part.data) + trimmed.len };
    if (content->len) ares_str_add_char(content, '\n');
    ares_str_add_view(content, trimmed);
}

void serve_call_id(const int32_t *prompt, int64_t n_prompt, const int32_t *ids, int64_t n,
                   int32_t number, char out[SERVE_CALL_ID])
{
    /* little end first, as the machine has them */
    uint64_t h = ares_fnv1a(ARES_FNV1A, prompt, (size_t)n_prompt * sizeof *prompt);
    h = ares_fnv1a(h, ids, (size_t)n * sizeof *ids);
    h = ares_fnv1a(h, &number, sizeof number);
    snprintf(out, SERVE_CALL_ID, "call_%016llx", (unsigned long long)h);
}
