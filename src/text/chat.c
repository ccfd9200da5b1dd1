/*
 * From a conversation to the text of a prompt: first the continuation of a final message, then
 * chat templates and the spans that the assistant wrote, last format prompts. The templates run
 * in jinja/.
 */
#include "jinja/jinja.h"
#include "tokenizer.h"

#include <string.h>

#include "ares/core.h"
#include "ares/text.h"

/*
 * continue_final_message, as transformers 5.17 does it: a mark is put after the final message's
 * content before rendering, and the rendered text is cut at the mark.
 *
 * The mark ends with a space. Where the rendered text lacks that space, the template trims the
 * content, and the white space before the mark is cut too. Where a content holds the mark's own
 * words, the last mark of the text counts.
 */
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

/*
 * The key of the final message that is to be continued: "content" where continue_final_message is
 * true, or the key that it names; data NULL where it is false. With add_generation_prompt it is an
 * error.
 */
static int chat_continue_key(const ares_json *variables, ares_view *key)
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

/* The text with the mark after it. */
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

/* A copy of the array with another item i. */
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

/* Cuts the text at the mark, and the white space before it where the template trims the content. */
static int chat_continue_cut(ares_str *text, ares_view content)
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

/*
 * Chat templates of a model directory, and which part of a conversation's text the assistant wrote.
 */

struct ares_chat {
    ares_template *template;
    ares_view source; /* of the template */
    ares_arena arena;
    ares_json_member *tokens; /* bos_token ...: what a template may name */
    int64_t n_tokens;
    const ares_json *variables; /* of every conversation; NULL: none */
    ares_chat *with_tools;      /* of conversations with tools; NULL: this one */
};

/* A string in memory that lives as long as the chat. */
static const ares_json *copy_string(ares_arena *a, ares_view from)
{
    ares_json *j = ares_arena_calloc(a, 1, sizeof *j);
    *j = (ares_json){ .type = ARES_JSON_STRING,
                      .text = { ares_arena_copy(a, from.data, from.len), from.len } };
    return j;
}

/* The name becomes a variable of the template. */
static void add_token(ares_chat *c, ares_view name, const ares_json *text)
{
    for (int64_t i = 0; i < c->n_tokens; i++)
        if (ares_view_eq(c->tokens[i].key, name)) return; /* the key itself wins */
    ares_json_member *tokens =
        ares_arena_alloc(&c->arena, (size_t)(c->n_tokens + 1) * sizeof *tokens);
    if (c->n_tokens) memcpy(tokens, c->tokens, (size_t)c->n_tokens * sizeof *tokens);
    tokens[c->n_tokens++] =
        (ares_json_member){ { ares_arena_copy(&c->arena, name.data, name.len), name.len }, text };
    c->tokens = tokens;
}

/* A chat of one template; tokenizer_config: the special tokens that it may name, or NULL. */
int ares_chat_new(const char *name, ares_view source, const ares_json *tokenizer_config,
                  ares_chat **out)
{
    *out = NULL;
    ares_template *t;
    ARES_TRY(template_parse(name, source, TEMPLATE_CHAT, &t));
    ares_chat *c = ares_calloc(1, sizeof *c);
    c->template = t;
    c->source = (ares_view){ ares_arena_copy(&c->arena, source.data, source.len), source.len };
    *out = c;
    if (!tokenizer_config) return ARES_OK;
    /* the special tokens that it names, as transformers gives them to templates: bos_token .. */
    for (int64_t i = 0; i < tokenizer_config->count; i++) {
        ares_view key = tokenizer_config->members[i].key;
        ares_view text = tokenizer_token_text(tokenizer_config->members[i].value);
        if (text.data && key.len > 6 && memcmp(key.data + key.len - 6, "_token", 6) == 0)
            add_token(c, key, copy_string(&c->arena, text));
    }
    /* {"image_token": "<image>"} */
    const ares_json *extra = ares_json_get(tokenizer_config, "extra_special_tokens");
    for (int64_t i = 0; extra && extra->type == ARES_JSON_OBJECT && i < extra->count; i++) {
        ares_view text = tokenizer_token_text(extra->members[i].value);
        if (text.data) add_token(c, extra->members[i].key, copy_string(&c->arena, text));
    }
    const ares_json *more = ares_json_get(tokenizer_config, "additional_special_tokens");
    if (!more || more->type != ARES_JSON_ARRAY || more->count == 0) return ARES_OK;
    ares_json *list = ares_arena_calloc(&c->arena, 1, sizeof *list),
              *items = ares_arena_calloc(&c->arena, (size_t)more->count, sizeof *items);
    *list = (ares_json){ .type = ARES_JSON_ARRAY, .items = items };
    for (int64_t i = 0; i < more->count; i++) {
        ares_view text = tokenizer_token_text(&more->items[i]);
        if (text.data) items[list->count++] = *copy_string(&c->arena, text);
    }
    add_token(c, ARES_VIEW("additional_special_tokens"), list);
    return ARES_OK;
}

void ares_chat_free(ares_chat *c)
{
    if (!c) return;
    ares_chat_free(c->with_tools);
    ares_template_free(c->template);
    ares_arena_fini(&c->arena);
    ares_free(c);
}

void ares_chat_set_variables(ares_chat *c, const ares_json *variables)
{
    ares_str text = { 0 };
    ares_json_write(&text, variables); /* a copy in the chat's own memory */
    int rc = ares_json_parse(&c->arena, ares_str_view(&text), "variables", &c->variables);
    ARES_ASSERT(rc == ARES_OK);
    ares_str_fini(&text);
    if (c->with_tools) ares_chat_set_variables(c->with_tools, variables);
}

/* Whether the template may read a variable: its source holds the name. */
bool ares_chat_reads(const ares_chat *c, ares_view name)
{
    return ares_view_find(c->source, name, 0) >= 0 ||
           (c->with_tools && ares_chat_reads(c->with_tools, name));
}

/* ------------------------------------------------------------------ a model directory */
/* The source in `chat_template`: a string, or a list of named ones. Data NULL: there is none. */
static int template_in(const ares_json *config, const char *path, const char *name,
                       ares_view *source)
{
    const ares_json *t = config ? ares_json_get(config, "chat_template") : NULL;
    *source = (ares_view){ 0 };
    if (!t || t->type == ARES_JSON_NULL) return ARES_OK;
    /* one template without a name counts as "default" */
    if (t->type == ARES_JSON_STRING && (!name || strcmp(name, "default") == 0))
        return *source = t->text, ARES_OK;
    if (t->type == ARES_JSON_STRING)
        return ares_fail(ARES_EFORMAT,
                         "template: %s: chat template = '%s': the file has one template, without a "
                         "name; leave the name out",
                         path, name);
    const ares_json *text = tokenizer_template_named(t, name ? name : "default");
    if (text) return *source = text->text, ARES_OK;
    return ares_fail(ARES_EFORMAT,
                     "template: %s: chat template = '%s': the file has no template of this name",
                     path, name ? name : "default");
}

/* text and arena hold the files until the chat has its own copy. */
static int load(const char *path, const char *name, ares_str *text, ares_arena *arena,
                ares_chat **out)
{
    ares_str config_path = { 0 }, template_path = { 0 }, processor_path = { 0 };
    const ares_json *config = NULL, *processor = NULL;
    ares_view source = { 0 };
    bool dir = ares_dir_exists(path), usual = !name || strcmp(name, "default") == 0;
    int rc = ARES_OK;
    if (dir) {
        ares_path_join(&config_path, path, "tokenizer_config.json");
        /* save_pretrained writes further templates into a folder of their own */
        if (!usual) {
            ares_str_addf(&template_path, "%s/additional_chat_templates/%s.jinja", path, name);
        } else {
            ares_path_join(&template_path, path, "chat_template.jinja");
        }
        rc = tokenizer_config_read(path, arena, false, &config);
    } else {
        ares_str_add_z(&template_path, path);
    }
    const char *from = template_path.data;
    /* a vision model has a template that knows images beside its processor: it comes first */
    if (rc == ARES_OK && dir && usual &&
        ares_file_exists(ares_path_join(&processor_path, path, "chat_template.json"))) {
        rc = ares_file_read(processor_path.data, text);
        if (rc == ARES_OK)
            rc = ares_json_parse(arena, ares_str_view(text), processor_path.data, &processor);
        if (rc == ARES_OK) rc = template_in(processor, processor_path.data, NULL, &source);
    }
    if (rc == ARES_OK && !source.data && (!dir || ares_file_exists(from))) {
        rc = ares_file_read(from, text);
        source = ares_str_view(text);
        if (!source.data) source.data = "";
        /* last the key chat_template of tokenizer_config.json */
    } else if (rc == ARES_OK && !source.data) {
        from = config_path.data;
        rc = template_in(config, from, name, &source);
    }
    if (rc == ARES_OK && !source.data)
        rc = ares_fail(
            ARES_EFORMAT,
            "template: %s: the model has no chat template; give one as chat_template.jinja", path);
    if (rc == ARES_OK) rc = ares_chat_new(from, source, config, out);
    ares_str_fini(&config_path);
    ares_str_fini(&template_path);
    ares_str_fini(&processor_path);
    return rc;
}

#define WITH_TOOLS                                                                \
    "tool_use" /* transformers' name of the template for conversations with tools \
                */

/* path: a model directory, or the file of a template. */
int ares_chat_load(const char *path, const char *name, ares_chat **out)
{
    ares_arena arena = { 0 };
    ares_str text = { 0 }, tools_path = { 0 };
    bool tools = false;
    *out = NULL;
    int rc = load(path, name, &text, &arena, out);
    if (rc == ARES_OK && !name && ares_dir_exists(path)) {
        /* the directory may have a template of its own for conversations with tools */
        const ares_json *config = NULL;
        ares_str_addf(&tools_path, "%s/additional_chat_templates/" WITH_TOOLS ".jinja", path);
        rc = tokenizer_config_read(path, &arena, false, &config);
        tools =
            ares_file_exists(tools_path.data) ||
            tokenizer_template_named(ares_json_get(config, "chat_template"), WITH_TOOLS) != NULL;
    }
    if (rc == ARES_OK && tools) rc = ares_chat_load(path, WITH_TOOLS, &(*out)->with_tools);
    if (rc != ARES_OK) ares_chat_free(*out), *out = NULL;
    ares_str_fini(&text);
    ares_str_fini(&tools_path);
    ares_arena_fini(&arena);
    return rc;
}

/* ------------------------------------------------------------------ rendering */
static const ares_json json_null = { .type = ARES_JSON_NULL };

/*
 * The variables of the template: special tokens, defaults, the caller's variables. messages (may be
 * NULL) replaces the caller's; prompt, 0 or 1, replaces add_generation_prompt, and -1 keeps it. Of
 * two variables of one name the later holds.
 */
static const ares_json *context_of(const ares_chat *c, ares_arena *arena,
                                   const ares_json *variables, const ares_json *messages,
                                   int prompt)
{
    ares_json *j = ares_arena_calloc(arena, 1, sizeof *j),
              *flag = ares_arena_calloc(arena, 1, sizeof *flag);
    ares_json_member *m =
        ares_arena_alloc(arena, (size_t)(c->n_tokens + variables->count + 5) * sizeof *m);
    int64_t n = 0;
    *flag = (ares_json){ .type = ARES_JSON_BOOL, .boolean = prompt > 0 };
    for (int64_t i = 0; i < c->n_tokens; i++) m[n++] = c->tokens[i];
    /* transformers passes these three to every template */
    m[n++] = (ares_json_member){ ARES_VIEW("tools"), &json_null };
    m[n++] = (ares_json_member){ ARES_VIEW("documents"), &json_null };
    m[n++] = (ares_json_member){ ARES_VIEW("add_generation_prompt"), flag };
    for (int64_t i = 0; i < variables->count; i++) /* templates do not read this one */
        if (!ares_view_is(variables->members[i].key, "continue_final_message"))
            m[n++] = variables->members[i];
    if (messages) m[n++] = (ares_json_member){ ARES_VIEW("messages"), messages };
    if (prompt >= 0) m[n++] = (ares_json_member){ ARES_VIEW("add_generation_prompt"), flag };

    *j = (ares_json){ .type = ARES_JSON_OBJECT, .count = n, .members = m };
    return j;
}

/*
 * Checks tools or documents: null or a list of objects, as transformers takes them, or the JSON of
 * that, as data sets store it, which *v then becomes.
 */
static int read_objects(const char *name, ares_arena *arena, const ares_json **v)
{
    if ((*v)->type == ARES_JSON_STRING && ares_view_trim((*v)->text).len) {
        int rc = ares_json_parse(arena, (*v)->text, "it", v);
        if (rc != ARES_OK) return ares_fail_in(rc, "template: '%s' is a text and no JSON", name);
    } else if ((*v)->type == ARES_JSON_STRING) *v = &json_null;
    bool good = (*v)->type == ARES_JSON_NULL || (*v)->type == ARES_JSON_ARRAY;
    for (int64_t i = 0; good && i < (*v)->count; i++)
        good = (*v)->items[i].type == ARES_JSON_OBJECT;
    return good ? ARES_OK
                : ares_fail(ARES_EFORMAT,
                            "template: '%s' is no list of objects, which the template reads; give "
                            "it such a list, or its JSON",
                            name);
}

/* Adds a member to m [n], in the place of one of the same name; a null does not replace a value. */
static void put(ares_json_member *m, int64_t *n, ares_json_member with)
{
    int64_t i = 0;
    while (i < *n && !ares_view_eq(m[i].key, with.key)) i++;
    /* a row of a data set has null where it says nothing */
    if (i < *n && with.value->type == ARES_JSON_NULL) return;
    m[i] = with;
    *n += i == *n;
}

/*
 * The variables of a conversation: those of the chat, then the caller's, then those of
 * chat_template_kwargs; a later one wins. Variables that the template's source does not name are
 * left out: to convert them costs time, and what they hold need not be valid.
 */
static int gather(const ares_chat *c, ares_arena *arena, const ares_json *given,
                  const ares_json **variables, const ares_json **messages)
{
    static const char kwargs[] = "chat_template_kwargs";
    static const char *const own[] = { "messages", "add_generation_prompt",
                                       "continue_final_message" };
    if (!given || given->type != ARES_JSON_OBJECT)
        return ares_fail(
            ARES_EFORMAT,
            "template: a conversation is a JSON object with 'messages'; this is not one");
    const ares_json *more = ares_json_get(given, kwargs);
    /* data sets store it as text */
    if (more && more->type == ARES_JSON_STRING && more->text.len)
        ARES_TRY(ares_json_parse(arena, more->text, kwargs, &more));
    if (more && more->type != ARES_JSON_OBJECT && more->type != ARES_JSON_NULL &&
        more->type != ARES_JSON_STRING)
        return ares_fail(ARES_EFORMAT, "template: '%s' is no object of variables", kwargs);
    const ares_json *const from[] = { c->variables, given, more };
    int64_t n = 0, most = 0, kept = 0;
    for (int k = 0; k < ARES_COUNT(from); k++) most += from[k] ? from[k]->count : 0;
    ares_json_member *m = ares_arena_alloc(arena, (size_t)(most + 1) * sizeof *m);
    for (int k = 0; k < ARES_COUNT(from); k++)
        for (int64_t i = 0; from[k] && from[k]->type == ARES_JSON_OBJECT && i < from[k]->count; i++)
            if (!ares_view_is(from[k]->members[i].key, kwargs)) put(m, &n, from[k]->members[i]);
    for (int64_t i = 0; i < n; i++) {
        bool wanted = ares_chat_reads(c, m[i].key);
        for (int k = 0; k < ARES_COUNT(own); k++) {
            bool is_own = ares_view_is(m[i].key, own[k]);
            /* the conversation itself is not a variable */
            if (is_own && ares_json_get(more, own[k]))
                return ares_fail(ARES_EFORMAT,
                                 "template: %s: '%s' is no variable of its own; "
                                 "leave it out there",
                                 kwargs, own[k]);
            wanted = wanted || is_own;
        }
        if (!wanted) continue;
        if (ares_view_is(m[i].key, "tools")) ARES_TRY(read_objects("tools", arena, &m[i].value));
        if (ares_view_is(m[i].key, "documents"))
            ARES_TRY(read_objects("documents", arena, &m[i].value));
        m[kept++] = m[i];
    }
    ares_json *all = ares_arena_calloc(arena, 1, sizeof *all);
    *all = (ares_json){ .type = ARES_JSON_OBJECT, .count = kept, .members = m };
    *variables = all;
    *messages = ares_json_get(all, "messages");
    if (!*messages || (*messages)->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "template: 'messages' is not a list");
    return ARES_OK;
}

static bool has_tools(const ares_json *variables)
{
    const ares_json *tools = variables ? ares_json_get(variables, "tools") : NULL;
    return tools && tools->type != ARES_JSON_NULL;
}

/* The chat whose template a conversation takes. */
static const ares_chat *chosen(const ares_chat *c, const ares_json *given)
{
    bool tools = has_tools(c->variables) || has_tools(given) ||
                 (given && has_tools(ares_json_get(given, "chat_template_kwargs")));
    return tools && c->with_tools ? c->with_tools : c;
}

/* Renders the conversation up to the end of the text that the final message has in `key`. */
static int render_open(const ares_chat *c, ares_arena *arena, const ares_json *variables,
                       const ares_json *messages, ares_view key, const struct tm *now,
                       ares_str *out)
{
    const ares_json *marked = NULL;
    ares_view content;
    ares_str text = { 0 };
    /* marked: the messages with the mark after the text of the final one, which is `content` */
    int64_t last = messages->count - 1;
    if (last < 0)
        return ares_fail(ARES_EFORMAT,
                         "template: 'messages' is empty: there is no final message to continue");
    const ares_json *message = &messages->items[last], *all = ares_json_find(message, key),
                    *inner = NULL;
    if (all && all->type == ARES_JSON_STRING) {
        content = all->text;
        inner = marked_text(all, arena);
    }
    /* of a content that is a list of parts, the last part with a text is marked */
    for (int64_t i = all && all->type == ARES_JSON_ARRAY ? all->count - 1 : -1; i >= 0 && !inner;
         i--) {
        const ares_json *part = &all->items[i], *part_text = ares_json_get(part, "text");
        if (part->type == ARES_JSON_STRING && ares_view_find(part->text, ARES_VIEW("text"), 0) < 0)
            continue;
        if (part->type == ARES_JSON_OBJECT && !part_text) continue;
        if (!part_text || part_text->type != ARES_JSON_STRING) break;
        content = part_text->text;
        inner = with_item(
            all, i, with_member(part, ARES_VIEW("text"), marked_text(part_text, arena), arena),
            arena);
    }
    if (!inner)
        return ares_fail(ARES_EFORMAT,
                         "template: messages[%lld].%.*s: holds no text that "
                         "continue_final_message could continue",
                         (long long)last, (int)ARES_MIN(key.len, 60), key.data);
    marked = with_item(messages, last, with_member(message, key, inner, arena), arena);
    if (ares_view_find(c->source, key, 0) < 0)
        return ares_fail(
            ARES_EFORMAT,
            "template: continue_final_message = '%.*s': the template does not read that "
            "key of a message",
            (int)ARES_MIN(key.len, 60), key.data);
    int rc = ares_template_render(c->template, context_of(c, arena, variables, marked, -1), now,
                                  NULL, &text, NULL);
    if (rc == ARES_OK) rc = chat_continue_cut(&text, content);
    if (rc == ARES_OK) ares_str_add_view(out, ares_str_view(&text));
    ares_str_fini(&text);
    return rc;
}

/* The text of a conversation, appended to out. */
int ares_chat_render(const ares_chat *c, const ares_json *variables, const struct tm *now,
                     ares_str *out)
{
    const ares_json *messages = NULL;
    ares_view key = { 0 };
    ares_arena arena = { 0 };
    c = chosen(c, variables);
    int rc = gather(c, &arena, variables, &variables, &messages);
    if (rc == ARES_OK) rc = chat_continue_key(variables, &key);
    if (rc == ARES_OK)
        rc = key.data
                 ? render_open(c, &arena, variables, messages, key, now, out)
                 : ares_template_render(c->template, context_of(c, &arena, variables, NULL, -1),
                                        now, NULL, out, NULL);
    ares_arena_fini(&arena);
    return rc;
}

/* The variable that asks for an answer: a last message of the assistant is continued. */
ares_view ares_chat_prompt_variable(const ares_json *messages)
{
    const ares_json *role =
        messages->count ? ares_json_get(&messages->items[messages->count - 1], "role") : NULL;
    bool open = role && role->type == ARES_JSON_STRING && ares_view_is(role->text, "assistant");
    return open ? ARES_VIEW("continue_final_message") : ARES_VIEW("add_generation_prompt");
}

/* State of finding the assistant's spans by rendering longer and longer conversations. */
typedef struct splitter {
    const ares_chat *chat;
    const ares_json *variables, *messages;
    const struct tm *now;
    ares_arena arena;
    ares_str whole, part; /* the text of all messages, and of the first ones */
} splitter;

/*
 * Length in bytes of the text of the first n messages, which must begin the whole text; prompt:
 * with the generation prompt. `message` is for errors.
 */
static int prefix_length(splitter *s, int64_t n, bool prompt, int64_t message, int64_t *len)
{
    ares_json *some = ares_arena_calloc(&s->arena, 1, sizeof *some);
    /* the first n, which share the items */
    *some = *s->messages;
    some->count = n;
    ares_str_clear(&s->part);
    int rc = ares_template_render(s->chat->template,
                                  context_of(s->chat, &s->arena, s->variables, some, prompt),
                                  s->now, NULL, &s->part, NULL);
    if (rc != ARES_OK)
        return ares_fail_in(rc, "template: messages[%lld]: the conversation up to this message",
                            (long long)message);
    ares_view whole = ares_str_view(&s->whole), part = ares_str_view(&s->part);
    if (!ares_view_starts(whole, part))
        return ares_fail(
            ARES_EUNSUPPORTED,
            "template: messages[%lld]: the whole text does not begin with the text of the messages "
            "%s this one, so what the assistant wrote cannot be found; use a template with "
            "{%% generation %%} blocks",
            (long long)message, prompt ? "before" : "up to");
    *len = (int64_t)part.len;
    return ARES_OK;
}

/* The spans of a template without {% generation %} blocks. */
static int split(splitter *s, ares_text_spans *spans)
{
    const char *text = s->whole.data ? s->whole.data : "";
    int64_t byte = 0, chars = 0;
    for (int64_t i = 0; i < s->messages->count; i++) {
        const ares_json *role = ares_json_get(&s->messages->items[i], "role");
        if (!role || role->type != ARES_JSON_STRING || !ares_view_is(role->text, "assistant"))
            continue;
        int64_t a, b;
        /* the answer of message i begins after the prompt for it, and ends with the message */
        ARES_TRY(prefix_length(s, i, true, i, &a));
        ARES_TRY(prefix_length(s, i + 1, false, i, &b));
        if (b < a || a < byte)
            return ares_fail(
                ARES_EUNSUPPORTED,
                "template: messages[%lld]: its text is shorter than the generation prompt",
                (long long)i);
        ares_text_span span = { .byte_start = a, .byte_end = b };
        span.char_start = chars + jinja_count_chars(text + byte, (size_t)(a - byte));
        span.char_end = span.char_start + jinja_count_chars(text + a, (size_t)(b - a));
        byte = b, chars = span.char_end;
        if (spans->n == spans->cap) {
            spans->cap = spans->cap ? 2 * spans->cap : 8;
            spans->items = ares_realloc(spans->items, (size_t)spans->cap * sizeof *spans->items);
        }
        spans->items[spans->n++] = span;
    }
    return ARES_OK;
}

int ares_chat_assistant_spans(const ares_chat *c, const ares_json *variables, const struct tm *now,
                              ares_str *out, ares_text_spans *spans)
{
    c = chosen(c, variables);
    splitter s = { .chat = c, .now = now };
    ares_view key = { 0 };
    int64_t first = spans->n;
    bool blocks = c->template->generation;
    int rc = gather(c, &s.arena, variables, &s.variables, &s.messages);
    if (rc == ARES_OK) rc = chat_continue_key(s.variables, &key);
    if (rc == ARES_OK && key.data)
        rc = ares_fail(ARES_EFORMAT,
                       "template: continue_final_message leaves the last message open, "
                       "which has no span yet; leave out one of the two");
    if (rc == ARES_OK)
        rc = ares_template_render(c->template, context_of(c, &s.arena, s.variables, NULL, -1), now,
                                  NULL, &s.whole, blocks ? spans : NULL);
    /* without blocks in the template: by the texts of ever more messages */
    if (rc == ARES_OK && !blocks) rc = split(&s, spans);
    if (rc == ARES_OK) {
        jinja_shift_spans(spans, first, out);
        ares_str_add_view(out, ares_str_view(&s.whole));
    } else {
        spans->n = first;
    }
    ares_str_fini(&s.whole);
    ares_str_fini(&s.part);
    ares_arena_fini(&s.arena);
    return rc;
}

/* Format prompts: the file of a template around the text of a prompt, as EasyR1 reads it. */

/* White space around the file is dropped, as by EasyR1. */
int ares_format_prompt_load(const char *path, ares_template **out)
{
    ares_str text = { 0 };
    *out = NULL;
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK)
        rc = template_parse(path, ares_view_trim(ares_str_view(&text)), TEMPLATE_PLAIN, out);
    ares_str_fini(&text);
    return rc;
}

/* The one variable of such a template is content. */
int ares_format_prompt_render(const ares_template *t, ares_view content, ares_str *out)
{
    ares_json value = { .type = ARES_JSON_STRING, .text = content };
    ares_json_member member = { ARES_VIEW("content"), &value };
    ares_json context = { .type = ARES_JSON_OBJECT, .count = 1, .members = &member };
    return ares_template_render(t, &context, NULL, NULL, out, NULL);
}
