/*
 * Sessions: the ids of answers that later requests continue.
 *
 * Encoding the text of an answer gives other ids than were sampled. A session keeps the ids of an
 * answer under a hash of the conversation that led to it, so that a request which repeats this
 * conversation continues the very ids. What counts of a message is its normal form: clients change
 * white space, ids of calls and the spelling of arguments.
 */
#include "openai.h"

#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ normal form */
static int by_key(const void *a, const void *b)
{
    ares_view x = (*(const ares_json_member *const *)a)->key,
              y = (*(const ares_json_member *const *)b)->key;
    size_t n = ARES_MIN(x.len, y.len);
    int c = n ? memcmp(x.data, y.data, n) : 0;
    return c ? c : ARES_CMP(x.len, y.len);
}

void serve_json_canonical(ares_str *out, const ares_json *v)
{
    if (v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT) {
        ares_json_write_rounded(out, v->number, 17);
    } else if (v->type == ARES_JSON_ARRAY) {
        ares_json_begin(out, '[');
        for (int64_t i = 0; i < v->count; i++) serve_json_canonical(out, &v->items[i]);
        ares_json_end(out, ']');
    } else if (v->type == ARES_JSON_OBJECT) {
        const ares_json_member **sorted = ares_calloc((size_t)v->count + 1, sizeof *sorted);
        for (int64_t i = 0; i < v->count; i++) sorted[i] = &v->members[i];
        qsort(sorted, (size_t)v->count, sizeof *sorted, by_key);
        ares_json_begin(out, '{');
        for (int64_t i = 0; i < v->count; i++)
            serve_json_canonical(ares_json_key_view(out, sorted[i]->key), sorted[i]->value);
        ares_json_end(out, '}');
        ares_free(sorted);
    } else {
        ares_json_write(out, v);
    }
}

/* Arguments of a call as canonical JSON; a text that is none as it is, less white space around. */
static void write_arguments(ares_str *out, const ares_json *arguments, ares_view text)
{
    ares_arena arena = { 0 };
    ares_str canonical = { 0 };
    if (!arguments && ares_json_parse(&arena, text, "arguments", &arguments) != ARES_OK)
        ares_error_clear();
    if (arguments) serve_json_canonical(&canonical, arguments);
    ares_json_write_string(out, arguments ? ares_str_view(&canonical) : ares_view_trim(text));
    ares_str_fini(&canonical);
    ares_arena_fini(&arena);
}

static void write_call(ares_str *out, ares_view name, const ares_json *arguments, ares_view text)
{
    ares_json_begin(out, '[');
    ares_json_write_string(out, name);
    write_arguments(out, arguments, text);
    ares_json_end(out, ']');
}

static ares_view string_or_empty(const ares_json *v)
{
    return v && v->type == ARES_JSON_STRING ? v->text : ARES_VIEW("");
}

void serve_message_normal(ares_str *out, const ares_json *message, const serve_answer *answer)
{
    ares_arena arena = { 0 };
    ares_str text = { 0 };
    const ares_json *content = ares_json_get(message, "content"),
                    *calls = ares_json_get(message, "tool_calls");
    ares_view role =
        message ? string_or_empty(ares_json_get(message, "role")) : ARES_VIEW("assistant");
    ares_json_begin(out, '[');
    ares_json_write_string(out, ares_view_is(role, "developer") ? ARES_VIEW("system") : role);
    if (content && (content->type == ARES_JSON_STRING || content->type == ARES_JSON_ARRAY))
        ares_str_add_view(&text, serve_content_text(&arena, content));
    if (answer) ares_str_add_view(&text, answer->content);
    ares_json_write_string(out, ares_view_trim(ares_str_view(&text)));
    ares_json_begin(out, '[');
    for (int64_t i = 0; calls && calls->type == ARES_JSON_ARRAY && i < calls->count; i++) {
        const ares_json *f = ares_json_get(&calls->items[i], "function"),
                        *arguments = ares_json_get(f, "arguments");
        bool absent = !arguments || arguments->type == ARES_JSON_NULL,
             is_text = !absent && arguments->type == ARES_JSON_STRING;
        write_call(out, string_or_empty(ares_json_get(f, "name")),
                   absent || is_text ? NULL : arguments,
                   is_text ? arguments->text : ARES_VIEW("{}"));
    }
    for (int i = 0; answer && i < answer->n_calls; i++)
        write_call(out, answer->calls[i].name, NULL, answer->calls[i].arguments);
    ares_json_end(out, ']');
    ares_json_write_string(out, string_or_empty(ares_json_get(message, "name")));
    ares_json_begin(out, '[');
    for (int64_t i = 0; content && content->type == ARES_JSON_ARRAY && i < content->count; i++) {
        const ares_json *image = ares_json_get(&content->items[i], "image_url"),
                        *url = ares_json_get(image, "url");
        if (!url || url->type != ARES_JSON_STRING) continue;
        ares_sha256 s;
        unsigned char digest[32];
        char hex[65];
        ares_sha256_init(&s);
        ares_sha256_add(&s, url->text.data, url->text.len);
        ares_sha256_end(&s, digest);
        for (int k = 0; k < 32; k++) snprintf(hex + 2 * k, 3, "%02x", digest[k]);
        ares_json_write_string(out, ares_view_of(hex));
    }
    ares_json_end(out, ']');
    ares_json_end(out, ']');
    ares_str_fini(&text);
    ares_arena_fini(&arena);
}

/* ------------------------------------------------------------------ histories */
typedef struct history {
    unsigned char hash[32];
} history;

static history history_of_scope(const serve_talk *talk)
{
    ares_str scope = { 0 };
    history h;
    ares_sha256 s;
    ares_json_begin(&scope, '[');
    if (talk->tools && talk->tools->count) serve_json_canonical(&scope, talk->tools);
    else ares_json_write_null(&scope);
    if (talk->chat_template_kwargs) serve_json_canonical(&scope, talk->chat_template_kwargs);
    else ares_json_write_null(&scope);
    ares_json_end(&scope, ']');
    ares_sha256_init(&s);
    ares_sha256_add(&s, scope.data, scope.len);
    ares_sha256_end(&s, h.hash);
    ares_str_fini(&scope);
    return h;
}

/* The history that goes on with a message: a hash of the one before and of its normal form. */
static history history_after(history before, const ares_json *message, const serve_answer *answer)
{
    ares_str normal = { 0 };
    ares_sha256 s;
    serve_message_normal(&normal, message, answer);
    ares_sha256_init(&s);
    ares_sha256_add(&s, before.hash, sizeof before.hash);
    ares_sha256_add(&s, normal.data, normal.len);
    ares_sha256_end(&s, before.hash);
    ares_str_fini(&normal);
    return before;
}

/* ------------------------------------------------------------------ what sessions keep */
typedef struct entry {
    history history; /* of a chat */
    char *text;      /* of a completion: prompt and answer; NULL: of a chat */
    size_t len;
    int32_t *ids;
    int64_t n, k, choice;
    char **call_ids; /* [n_calls] */
    int n_calls;
    int64_t used; /* when it was kept or matched */
} entry;

struct serve_session {
    char *name;
    size_t name_len;
    entry *entries;
    int n, cap;
    int64_t bytes, used, *clock;
    int64_t own_clock; /* of an episode's session */
};

struct serve_sessions {
    serve_session **sessions;
    int n, most;
    int64_t most_bytes, clock;
};

serve_session *serve_session_new(void)
{
    serve_session *s = ares_calloc(1, sizeof *s);
    s->clock = &s->own_clock;
    return s;
}

static void entry_fini(entry *e)
{
    ares_free(e->text);
    ares_free(e->ids);
    for (int i = 0; i < e->n_calls; i++) ares_free(e->call_ids[i]);
    ares_free(e->call_ids);
}

void serve_session_free(serve_session *s)
{
    if (!s) return;
    for (int i = 0; i < s->n; i++) entry_fini(&s->entries[i]);
    ares_free(s->entries);
    ares_free(s->name);
    ares_free(s);
}

static int64_t entry_bytes(const entry *e)
{
    return (int64_t)sizeof *e + e->n * (int64_t)sizeof *e->ids + (int64_t)e->len +
           (int64_t)e->n_calls * SERVE_CALL_ID;
}

serve_sessions *serve_sessions_new(int most, int64_t most_bytes)
{
    serve_sessions *t = ares_calloc(1, sizeof *t);
    t->most = most;
    t->most_bytes = most_bytes;
    t->sessions = ares_calloc((size_t)most + 1, sizeof(serve_session *));
    return t;
}

void serve_sessions_free(serve_sessions *t)
{
    if (!t) return;
    for (int i = 0; i < t->n; i++) serve_session_free(t->sessions[i]);
    ares_free(t->sessions);
    ares_free(t);
}

/* The session that was not used for longest. */
static int longest_unused(const serve_sessions *t)
{
    int found = 0;
    for (int i = 1; i < t->n; i++)
        if (t->sessions[i]->used < t->sessions[found]->used) found = i;
    return found;
}

static void forget(serve_sessions *t, int i)
{
    serve_session_free(t->sessions[i]);
    t->sessions[i] = t->sessions[--t->n];
}

serve_session *serve_sessions_open(serve_sessions *t, ares_view name)
{
    for (int i = 0; i < t->n; i++) {
        serve_session *s = t->sessions[i];
        if (!ares_view_eq(name, (ares_view){ s->name, s->name_len })) continue;
        s->used = ++t->clock;
        return s;
    }
    while (t->n >= t->most) forget(t, longest_unused(t));
    serve_session *s = serve_session_new();
    s->clock = &t->clock;
    s->used = ++t->clock;
    s->name = ares_malloc(name.len + 1);
    memcpy(s->name, name.data, name.len);
    s->name_len = name.len;
    return t->sessions[t->n++] = s;
}

void serve_sessions_trim(serve_sessions *t)
{
    int64_t bytes = 0;
    for (int i = 0; i < t->n; i++) bytes += t->sessions[i]->bytes;
    while (bytes > t->most_bytes && t->n > 1) {
        int i = longest_unused(t);
        bytes -= t->sessions[i]->bytes;
        forget(t, i);
    }
    /* one session alone is too large: its answers that were not used for longest */
    serve_session *s = t->n ? t->sessions[0] : NULL;
    while (bytes > t->most_bytes && s->n) {
        int oldest = 0;
        for (int i = 1; i < s->n; i++)
            if (s->entries[i].used < s->entries[oldest].used) oldest = i;
        int64_t freed = entry_bytes(&s->entries[oldest]);
        entry_fini(&s->entries[oldest]);
        memmove(&s->entries[oldest], &s->entries[oldest + 1],
                (size_t)(s->n - oldest - 1) * sizeof *s->entries);
        s->n--;
        s->bytes -= freed;
        bytes -= freed;
    }
}

int serve_sessions_count(const serve_sessions *t)
{
    return t->n;
}

static void add_entry(serve_session *s, entry e, const serve_kept *kept)
{
    e.ids = ares_malloc((size_t)(kept->n + 1) * sizeof *e.ids);
    if (kept->n) memcpy(e.ids, kept->ids, (size_t)kept->n * sizeof *e.ids);
    e.n = kept->n;
    e.k = kept->k;
    e.choice = kept->choice;
    e.used = s->used = ++*s->clock;
    if (s->n == s->cap) {
        s->cap = ARES_MAX(4, 2 * s->cap);
        s->entries = ares_realloc(s->entries, (size_t)s->cap * sizeof *s->entries);
    }
    s->entries[s->n++] = e;
    s->bytes += entry_bytes(&e);
}

static void use(serve_session *s, entry *e, serve_kept *kept)
{
    e->used = s->used = ++*s->clock;
    *kept = (serve_kept){ .ids = e->ids, .n = e->n, .k = e->k, .choice = e->choice };
}

void serve_session_keep(serve_session *s, const serve_talk *talk, const serve_answer *answer,
                        const char *const *call_ids, const serve_kept *kept)
{
    int64_t n = talk->messages ? talk->messages->count : 0,
            before = n - (talk->continue_final_message && n > 0);
    history h = history_of_scope(talk);
    for (int64_t i = 0; i < before; i++) h = history_after(h, &talk->messages->items[i], NULL);
    h = history_after(h, before < n ? &talk->messages->items[before] : NULL, answer);
    entry e = { .history = h, .n_calls = answer->n_calls };
    if (e.n_calls) e.call_ids = ares_calloc((size_t)e.n_calls, sizeof *e.call_ids);
    for (int i = 0; i < e.n_calls; i++) e.call_ids[i] = ares_strdup(call_ids[i]);
    add_entry(s, e, kept);
}

/* Whether the message's calls have the ids that the answer's went out with. */
static bool has_call_ids(const ares_json *message, const entry *e)
{
    const ares_json *calls = ares_json_get(message, "tool_calls");
    if (!e->n_calls || !calls || calls->type != ARES_JSON_ARRAY || calls->count != e->n_calls)
        return false;
    for (int i = 0; i < e->n_calls; i++)
        if (!ares_view_is(string_or_empty(ares_json_get(&calls->items[i], "id")), e->call_ids[i]))
            return false;
    return true;
}

int64_t serve_session_match(serve_session *s, const serve_talk *talk, serve_kept *kept)
{
    int64_t n = talk->messages ? talk->messages->count : 0, last = n, found = -1;
    if (talk->continue_final_message) last--; /* what is continued is no answer */
    history *after = ares_calloc((size_t)n + 1, sizeof *after), h = history_of_scope(talk);
    for (int64_t i = 0; i < n; i++)
        after[i] = h = history_after(h, &talk->messages->items[i], NULL);
    for (int64_t i = last - 1; i >= 0 && found < 0; i--) {
        const ares_json *message = &talk->messages->items[i];
        entry *best = NULL;
        bool best_has_ids = false;
        if (!ares_view_is(string_or_empty(ares_json_get(message, "role")), "assistant")) continue;
        for (int k = 0; k < s->n; k++) {
            entry *e = &s->entries[k];
            if (e->text || memcmp(e->history.hash, after[i].hash, sizeof after[i].hash) != 0)
                continue;
            bool has_ids = has_call_ids(message, e),
                 lower = best && (e->k != best->k ? e->k < best->k : e->choice < best->choice);
            if (!best || has_ids > best_has_ids || (has_ids == best_has_ids && lower)) {
                best = e;
                best_has_ids = has_ids;
            }
        }
        if (!best) continue;
        use(s, best, kept);
        found = i;
    }
    ares_free(after);
    return found;
}

void serve_session_keep_text(serve_session *s, ares_view prompt, ares_view sampled,
                             const serve_kept *kept)
{
    entry e = { .text = ares_malloc(prompt.len + sampled.len + 1),
                .len = prompt.len + sampled.len };
    if (prompt.len) memcpy(e.text, prompt.data, prompt.len);
    if (sampled.len) memcpy(e.text + prompt.len, sampled.data, sampled.len);
    add_entry(s, e, kept);
}

size_t serve_session_match_text(serve_session *s, ares_view prompt, serve_kept *kept)
{
    entry *best = NULL;
    for (int k = 0; k < s->n; k++) {
        entry *e = &s->entries[k];
        if (!e->text || !e->len || !ares_view_starts(prompt, (ares_view){ e->text, e->len }))
            continue;
        bool lower = best && (e->k != best->k ? e->k < best->k : e->choice < best->choice);
        if (!best || e->len > best->len || (e->len == best->len && lower)) best = e;
    }
    if (!best) return 0;
    use(s, best, kept);
    return best->len;
}

/* ------------------------------------------------------------------ what follows a kept answer */
/* Stands for the kept message; no template and no client writes it. */
static const ares_view mark = { "ares:kept:5b1f9e0c7d", 20 };

static ares_json list_of(const ares_json *items, int64_t n)
{
    return (ares_json){ .type = ARES_JSON_ARRAY, .count = n, .items = items };
}

/* What is written after the mark, if the template writes it once; data NULL: it does not. */
static ares_view after_mark(const ares_str *text)
{
    ares_view all = ares_str_view(text);
    int64_t at = ares_view_find(all, mark, 0);
    if (at < 0) return (ares_view){ 0 };
    size_t end = (size_t)at + mark.len;
    if (ares_view_find(all, mark, end) >= 0) return (ares_view){ 0 };
    return (ares_view){ all.data + end, all.len - end };
}

bool serve_text_after(ares_arena *arena, const ares_json *messages, int64_t message,
                      serve_render_fn *render, void *ctx, ares_str *out)
{
    ares_json role = { .type = ARES_JSON_STRING, .text = ARES_VIEW("assistant") },
              content = { .type = ARES_JSON_STRING, .text = mark };
    ares_json_member members[] = { { ARES_VIEW("role"), &role },
                                   { ARES_VIEW("content"), &content } };
    ares_json *marked = ares_arena_calloc(arena, (size_t)messages->count, sizeof *marked);
    for (int64_t i = 0; i < messages->count; i++) marked[i] = messages->items[i];
    marked[message] = (ares_json){ .type = ARES_JSON_OBJECT, .count = 2, .members = members };

    ares_str text = { 0 }, whole = { 0 }, part = { 0 };
    ares_json list = list_of(marked, messages->count);
    ares_view tail = { 0 };
    if (render(ctx, &list, true, &text) == ARES_OK) tail = after_mark(&text);
    bool found = tail.data != NULL;
    if (found) {
        ares_str_add_view(out, tail);
    } else { /* what all messages add to those up to this one */
        ares_json marked_up_to = list_of(marked, message + 1),
                  up_to = list_of(messages->items, message + 1);
        ares_str_clear(&text);
        if (render(ctx, &marked_up_to, false, &text) == ARES_OK) tail = after_mark(&text);
        found = tail.data && render(ctx, messages, true, &whole) == ARES_OK &&
                render(ctx, &up_to, false, &part) == ARES_OK &&
                ares_view_starts(ares_str_view(&whole), ares_str_view(&part));
        if (found) {
            ares_str_add_view(out, tail);
            ares_str_add(out, whole.data + part.len, whole.len - part.len);
        }
    }
    ares_error_clear(); /* a template that raises is no failure here */
    ares_str_fini(&text);
    ares_str_fini(&whole);
    ares_str_fini(&part);
    return found;
}

int serve_ids_after(const ares_tokenizer *t, const serve_kept *kept, ares_view tail,
                    const int32_t *ends, int n_ends, ares_ids *out)
{
    for (int64_t k = 0; k < kept->n; k++) ares_ids_add(out, kept->ids[k], 0, 0);
    int64_t from = out->n;
    ARES_TRY(ares_tokenizer_encode_rest(t, tail, out));
    /* an end token that the model wrote is not written again */
    for (int k = 0; kept->n && out->n > from && k < n_ends; k++) {
        if (out->ids[from] != ends[k] || kept->ids[kept->n - 1] != ends[k]) continue;
        memmove(out->ids + from, out->ids + from + 1,
                (size_t)(out->n - from - 1) * sizeof *out->ids);
        out->n--;
        break;
    }
    return ARES_OK;
}
