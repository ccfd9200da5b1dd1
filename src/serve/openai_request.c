/*
 * A request of the OpenAI-compatible endpoint: the bytes of its body to a struct, or an error that
 * names the field, what is wrong and what to do.
 *
 * `fields` is the one list of what a body may hold, per endpoint. Nothing is dropped in silence:
 * a field is honoured, or named in the log as ignored, or refused. Values that would draw from
 * another distribution than the one that is trained are refused, not imitated. null is absent.
 */
#include "openai.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MOST_CHOICES = 4096, /* prompts times n of one request */
    MOST_N = 128,
    MOST_STOPS = 16,
    MOST_LOGPROBS = 20,
    MOST_SESSION = 256, /* bytes of a name */
    MOST_IMAGES = 64,
    MOST_SHOWN = 100 /* bytes of a client's text in a message */
};

/* ------------------------------------------------------------------ errors */
static const struct {
    const char *name, *type;
    int status;
} codes[] = {
#define ENTRY(name, status, type) { #name, type, status },
    { "", "", 500 }, SERVE_ERROR_LIST(ENTRY)
#undef ENTRY
};

int serve_status(serve_code code)
{
    return codes[code].status;
}

const char *serve_code_name(serve_code code)
{
    return codes[code].name;
}

serve_code serve_refuse(serve_error *e, ares_arena *arena, serve_code code, const char *param,
                        const char *format, ...)
{
    ares_str text = { 0 };
    char few[256];
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(few, sizeof few, format, args);
    ares_str_reserve(&text, (size_t)n + 1);
    vsnprintf(text.data, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
    *e = (serve_error){ code, ares_arena_copy(arena, text.data, (size_t)n),
                        param ? ares_arena_copy(arena, param, strlen(param)) : NULL };
    ares_str_fini(&text);
    return code;
}

void serve_error_write_words(ares_str *out, const char *type, const char *code, const char *param,
                             const char *message)
{
    ares_json_begin(out, '{');
    ares_json_begin(ares_json_key(out, "error"), '{');
    ares_json_write_string(ares_json_key(out, "message"), ares_view_of(message));
    ares_json_write_string(ares_json_key(out, "type"), ares_view_of(type));
    if (param) ares_json_write_string(ares_json_key(out, "param"), ares_view_of(param));
    else ares_json_write_null(ares_json_key(out, "param"));
    ares_json_write_string(ares_json_key(out, "code"), ares_view_of(code));
    ares_json_end(out, '}');
    ares_json_end(out, '}');
}

void serve_error_write(ares_str *out, const serve_error *e)
{
    serve_error_write_words(out, codes[e->code].type, codes[e->code].name, e->param, e->message);
}

serve_code serve_refuse_length(serve_error *e, ares_arena *arena, const char *param,
                               int64_t max_model_len, int64_t prompt_tokens, int64_t max_tokens)
{
    return serve_refuse(e, arena, SERVE_context_length_exceeded, param,
                        "This model's maximum context length is %lld tokens. However, you "
                        "requested %lld tokens (%lld in the prompt, %lld in the answer); shorten "
                        "the prompt or lower max_tokens",
                        (long long)max_model_len, (long long)(prompt_tokens + max_tokens),
                        (long long)prompt_tokens, (long long)max_tokens);
}

/* ------------------------------------------------------------------ paths */
static const struct {
    const char *path;
    serve_endpoint endpoint;
} paths[] = {
    { "/v1/chat/completions", SERVE_CHAT },   { "/v1/chat/completions/tokens", SERVE_CHAT_TOKENS },
    { "/v1/completions", SERVE_COMPLETIONS }, { "/tokenize", SERVE_TOKENIZE },
    { "/detokenize", SERVE_DETOKENIZE },
};

serve_endpoint serve_endpoint_of(ares_view path)
{
    for (int i = 0; i < ARES_COUNT(paths); i++)
        if (ares_view_is(path, paths[i].path)) return paths[i].endpoint;
    return 0;
}

serve_code serve_refuse_path(serve_error *e, ares_arena *arena, ares_view path)
{
    static const char served[] =
        "/v1/models, /v1/chat/completions, /v1/chat/completions/tokens, /v1/completions, "
        "/tokenize, /detokenize, /tokenizer_info, /health, /metrics, /version";
    static const struct {
        const char *path, *instead;
    } left_out[] = {
        { "/v1/responses", "the Responses API is not served; use /v1/chat/completions" },
        { "/v1/embeddings", "embeddings are not served: this model writes text; use "
                            "/v1/chat/completions or /v1/completions" },
        { "/v1/messages", "Anthropic's messages are not served; use /v1/chat/completions" },
    };
    static const char *const under_v1[] = { "/models",    "/chat/completions", "/completions",
                                            "/responses", "/embeddings",       "/messages" };
    for (int i = 0; i < ARES_COUNT(left_out); i++)
        if (ares_view_is(path, left_out[i].path))
            return serve_refuse(e, arena, SERVE_not_found, NULL, "%s", left_out[i].instead);
    for (int i = 0; i < ARES_COUNT(under_v1); i++)
        if (ares_view_starts(path, ares_view_of(under_v1[i])))
            return serve_refuse(e, arena, SERVE_not_found, NULL,
                                "base_url must end in /v1: %s is served as /v1%s", under_v1[i],
                                under_v1[i]);
    return serve_refuse(e, arena, SERVE_not_found, NULL, "no such path: %.*s (served: %s)",
                        (int)ARES_MIN(path.len, MOST_SHOWN), path.data, served);
}

/* ------------------------------------------------------------------ reading values */
typedef struct reader {
    serve_asked asked;
    ares_arena *arena;
    const serve_reading *with;
    serve_error *error;
    /* what is joined with others once all fields are read */
    int64_t max_completion_tokens, top_logprobs; /* -1: absent */
    bool wants_logprobs, has_generation_prompt;
    const ares_json *best_of, *tool_choice;
    const ares_json *prompt, *tokens;
} reader;

static const char *kind_of(const ares_json *v)
{
    static const char *const names[] = { "null",     "true or false", "an integer", "a number",
                                         "a string", "a list",        "an object" };
    return names[v->type];
}

static serve_code wrong_type(reader *r, const char *name, const ares_json *v, const char *wanted)
{
    return serve_refuse(r->error, r->arena, SERVE_invalid_type, name, "%s must be %s, not %s", name,
                        wanted, kind_of(v));
}

static bool is_string(const ares_json *v)
{
    return v && v->type == ARES_JSON_STRING;
}

static bool is_absent(const ares_json *v)
{
    return !v || v->type == ARES_JSON_NULL;
}

/* The part of a client's text that a message shows. */
static const char *shown(reader *r, ares_view text)
{
    size_t n = ARES_MIN(text.len, MOST_SHOWN);
    return ares_arena_printf(r->arena, "%.*s%s", (int)n, text.data, n < text.len ? "..." : "");
}

static serve_code read_integer(reader *r, const char *name, const ares_json *v, double least,
                               double most, int64_t *out)
{
    if (v->type != ARES_JSON_INT) return wrong_type(r, name, v, "an integer");
    if (v->number < least || v->number > most)
        return serve_refuse(r->error, r->arena, SERVE_invalid_value, name,
                            "%s is %s; it must be from %.0f %s", name, shown(r, v->text), least,
                            most < 1e15 ? ares_arena_printf(r->arena, "to %.0f", most) : "on");
    *out = v->integer;
    return SERVE_NO_ERROR;
}

static serve_code read_ids(reader *r, const char *name, const ares_json *v, bool may_be_empty,
                           const int32_t **out, int64_t *n)
{
    if (v->type != ARES_JSON_ARRAY) return wrong_type(r, name, v, "a list of token ids");
    if (v->count == 0 && !may_be_empty)
        return serve_refuse(r->error, r->arena, SERVE_invalid_value, name,
                            "%s is empty; give at least one token id", name);
    int32_t *ids = ares_arena_calloc(r->arena, (size_t)v->count + 1, sizeof *ids);
    for (int64_t i = 0; i < v->count; i++) {
        const ares_json *id = &v->items[i];
        if (id->type != ARES_JSON_INT)
            return serve_refuse(r->error, r->arena, SERVE_invalid_type, name,
                                "%s[%lld] must be a token id, not %s", name, (long long)i,
                                kind_of(id));
        if (id->big || id->integer < 0 || id->integer >= r->with->vocab_size)
            return serve_refuse(r->error, r->arena, SERVE_invalid_value, name,
                                "%s[%lld] is %s; token ids are 0 to %lld", name, (long long)i,
                                shown(r, id->text), (long long)r->with->vocab_size - 1);
        ids[i] = (int32_t)id->integer;
    }
    *out = ids;
    *n = v->count;
    return SERVE_NO_ERROR;
}

static serve_code read_model(reader *r, const char *name, const ares_json *v)
{
    if (!is_string(v)) return wrong_type(r, name, v, "a string");
    for (int i = 0; i < r->with->n_models; i++) {
        if (!ares_view_is(v->text, r->with->models[i])) continue;
        r->asked.model = i;
        return SERVE_NO_ERROR;
    }
    if (r->with->training) return SERVE_NO_ERROR; /* there is one policy, whatever it is called */
    ares_str list = { 0 };
    for (int i = 0; i < r->with->n_models; i++)
        ares_str_addf(&list, "%s%s", i ? ", " : "", r->with->models[i]);
    serve_refuse(r->error, r->arena, SERVE_model_not_found, name,
                 "no model is called '%s' (served: %s)", shown(r, v->text), list.data);
    ares_str_fini(&list);
    return SERVE_model_not_found;
}

static serve_code read_seed(reader *r, const char *name, const ares_json *v)
{
    if (v->type != ARES_JSON_INT) return wrong_type(r, name, v, "an integer");
    if (v->big) { /* above 2^63 - 1 there are those of 64 bits without a sign */
        uint64_t seed = 0;
        bool fits = v->text.data[0] != '-';
        for (size_t i = 0; fits && i < v->text.len; i++) {
            uint64_t digit = (uint64_t)(v->text.data[i] - '0');
            fits = digit <= 9 && seed <= (UINT64_MAX - digit) / 10;
            seed = 10 * seed + digit;
        }
        if (!fits)
            return serve_refuse(r->error, r->arena, SERVE_invalid_value, name,
                                "seed is %s; it must have 64 bits, with or without a sign",
                                shown(r, v->text));
        r->asked.seed = seed;
    } else {
        r->asked.seed = (uint64_t)v->integer;
        r->asked.seed_is_signed = v->integer < 0;
    }
    r->asked.has_seed = true;
    return SERVE_NO_ERROR;
}

static serve_code read_stop(reader *r, const char *name, const ares_json *v)
{
    const ares_json *items = is_string(v) ? v : v->items;
    int64_t n = is_string(v) ? 1 : v->count;
    if (!is_string(v) && v->type != ARES_JSON_ARRAY)
        return wrong_type(r, name, v, "a string or a list of strings");
    if (n > MOST_STOPS)
        return serve_refuse(r->error, r->arena, SERVE_invalid_value, name,
                            "stop has %lld strings; give at most %d", (long long)n, MOST_STOPS);
    ares_view *stop = ares_arena_calloc(r->arena, (size_t)n + 1, sizeof *stop);
    for (int64_t i = 0; i < n; i++) {
        if (!is_string(&items[i])) return wrong_type(r, name, &items[i], "strings");
        if (!items[i].text.len)
            return serve_refuse(r->error, r->arena, SERVE_invalid_value, name,
                                "stop has an empty string, which stops before the first token; "
                                "leave it out");
        stop[i] = items[i].text;
    }
    r->asked.stop = stop;
    r->asked.n_stop = (int)n;
    return SERVE_NO_ERROR;
}

static serve_code read_stop_ids(reader *r, const char *name, const ares_json *v)
{
    return read_ids(r, name, v, true, &r->asked.stop_token_ids, &r->asked.n_stop_token_ids);
}

static serve_code read_stream_options(reader *r, const char *name, const ares_json *v)
{
    if (v->type != ARES_JSON_OBJECT) return wrong_type(r, name, v, "an object");
    for (int64_t i = 0; i < v->count; i++) {
        ares_view key = v->members[i].key;
        const ares_json *value = v->members[i].value;
        bool is_usage = ares_view_is(key, "include_usage"),
             is_continuous = ares_view_is(key, "continuous_usage_stats");
        if (is_absent(value)) continue;
        if (!is_usage && !is_continuous && !ares_view_is(key, "include_obfuscation"))
            return serve_refuse(r->error, r->arena, SERVE_unknown_parameter, name,
                                "stream_options has no '%s'; write {\"include_usage\": true}",
                                shown(r, key));
        if (value->type != ARES_JSON_BOOL)
            return serve_refuse(r->error, r->arena, SERVE_invalid_type, name,
                                "stream_options.%s must be true or false, not %s", shown(r, key),
                                kind_of(value));
        if (is_continuous && value->boolean)
            return serve_refuse(r->error, r->arena, SERVE_unsupported_value, name,
                                "stream_options.continuous_usage_stats is not offered; "
                                "include_usage gives the counts at the end");
        if (is_usage) r->asked.include_usage = value->boolean;
    }
    return SERVE_NO_ERROR;
}

static serve_code read_session(reader *r, const char *name, const ares_json *v)
{
    if (!is_string(v)) return wrong_type(r, name, v, "a string");
    if (!v->text.len || v->text.len > MOST_SESSION)
        return serve_refuse(r->error, r->arena, SERVE_invalid_value, name,
                            "session_id has %zu bytes; give 1 to %d", v->text.len, MOST_SESSION);
    r->asked.session = v->text;
    return SERVE_NO_ERROR;
}

static serve_code read_kwargs(reader *r, const char *name, const ares_json *v)
{
    if (v->type != ARES_JSON_OBJECT) return wrong_type(r, name, v, "an object");
    r->asked.chat_template_kwargs = v;
    return SERVE_NO_ERROR;
}

static serve_code read_format(reader *r, const char *name, const ares_json *v)
{
    const ares_json *type = ares_json_get(v, "type");
    if (is_string(type) && ares_view_is(type->text, "text")) return SERVE_NO_ERROR;
    return serve_refuse(r->error, r->arena, SERVE_unsupported_value, name,
                        "response_format other than {\"type\": \"text\"} is not offered: it would "
                        "draw from another distribution than is trained; ask for JSON in the "
                        "prompt");
}

static serve_code read_tool_choice(reader *r, const char *name, const ares_json *v)
{
    if (!is_string(v) && v->type != ARES_JSON_OBJECT)
        return wrong_type(r, name, v, "a string or an object");
    r->tool_choice = v;
    return SERVE_NO_ERROR;
}

static serve_code read_tools(reader *r, const char *name, const ares_json *v)
{
    if (v->type != ARES_JSON_ARRAY) return wrong_type(r, name, v, "a list of objects");
    for (int64_t i = 0; i < v->count; i++) {
        const ares_json *tool = &v->items[i], *type = ares_json_get(tool, "type"),
                        *function = ares_json_get(tool, "function"),
                        *called = ares_json_get(function, "name");
        if (tool->type != ARES_JSON_OBJECT) return wrong_type(r, name, tool, "a list of objects");
        bool is_function =
            is_absent(type) || (is_string(type) && ares_view_is(type->text, "function"));
        if (!is_function || !is_string(called) || !called->text.len)
            return serve_refuse(r->error, r->arena, SERVE_invalid_value, name,
                                "tools[%lld] is no function with a name; write {\"type\": "
                                "\"function\", \"function\": {\"name\": \"add\"}}",
                                (long long)i);
    }
    r->asked.tools = v->count ? v : NULL;
    return SERVE_NO_ERROR;
}

static serve_code read_prompt(reader *r, const char *name, const ares_json *v)
{
    if (r->asked.endpoint == SERVE_TOKENIZE && !is_string(v))
        return wrong_type(r, name, v, "a string");
    bool is_one = is_string(v) ||
                  (v->type == ARES_JSON_ARRAY && v->count > 0 &&
                   v->items[0].type != ARES_JSON_STRING && v->items[0].type != ARES_JSON_ARRAY);
    if (!is_string(v) && v->type != ARES_JSON_ARRAY)
        return wrong_type(r, name, v, "a string, a list of strings, or token ids");
    int64_t n = is_one ? 1 : v->count;
    if (!n)
        return serve_refuse(r->error, r->arena, SERVE_invalid_value, name,
                            "prompt is an empty list; give a text or token ids");
    if (n > MOST_CHOICES)
        return serve_refuse(r->error, r->arena, SERVE_invalid_value, name,
                            "prompt has %lld entries; prompts times n are at most %d", (long long)n,
                            MOST_CHOICES);
    serve_prompt *prompts = ares_arena_calloc(r->arena, (size_t)n, sizeof *prompts);
    for (int64_t i = 0; i < n; i++) {
        const ares_json *one = is_one ? v : &v->items[i];
        if (!is_one && one->type != v->items[0].type)
            return serve_refuse(r->error, r->arena, SERVE_invalid_type, name,
                                "prompt mixes %s and %s; give texts alone or ids alone",
                                kind_of(&v->items[0]), kind_of(one));
        prompts[i].is_text = is_string(one);
        if (is_string(one)) {
            prompts[i].text = one->text;
            continue;
        }
        serve_code code = read_ids(r, name, one, false, &prompts[i].ids, &prompts[i].n);
        if (code) return code;
    }
    r->prompt = v;
    r->asked.prompts = prompts;
    r->asked.n_prompts = n;
    return SERVE_NO_ERROR;
}

static serve_code read_tokens(reader *r, const char *name, const ares_json *v)
{
    serve_prompt *prompt = ares_arena_calloc(r->arena, 1, sizeof *prompt);
    r->tokens = v;
    r->asked.prompts = prompt;
    r->asked.n_prompts = 1;
    return read_ids(r, name, v, r->asked.endpoint == SERVE_DETOKENIZE, &prompt->ids, &prompt->n);
}

/* ------------------------------------------------------------------ messages */
static serve_code refuse_message(reader *r, serve_code code, int64_t at, const char *what)
{
    return serve_refuse(r->error, r->arena, code, "messages", "messages[%lld]%s", (long long)at,
                        what);
}

/* Whether a text is base64 with bytes in it; white space is fine, as the data room reads it. */
static bool is_base64(ares_view text)
{
    size_t n = 0, padding = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == ' ' || (c >= '\t' && c <= '\r')) continue;
        bool digit = ares_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     c == '+' || c == '/';
        if (c == '=') padding++;
        else if (!digit || padding) return false;
        n++;
    }
    size_t digits = n - padding;
    return digits >= 2 && digits % 4 != 1 && padding <= 2 && (!padding || n % 4 == 0);
}

static serve_code read_image(reader *r, int64_t at, const ares_json *part)
{
    const ares_json *image = ares_json_get(part, "image_url"), *url = ares_json_get(image, "url");
    if (!r->with->vision)
        return refuse_message(r, SERVE_unsupported_content, at,
                              " holds an image, but this model sees none; send text alone");
    if (r->with->training)
        return refuse_message(r, SERVE_unsupported_content, at,
                              " holds an image; episodes of agents are text alone");
    if (!is_string(url))
        return refuse_message(r, SERVE_invalid_type, at,
                              ": image_url must be {\"url\": \"data:image/png;base64,...\"}");
    int64_t comma = ares_view_find(url->text, ARES_VIEW(","), 0);
    ares_view head = { url->text.data, comma < 0 ? 0 : (size_t)comma }, base = ARES_VIEW(";base64");
    if (!ares_view_starts(head, ARES_VIEW("data:image/")) || head.len < base.len + 11 ||
        memcmp(head.data + head.len - base.len, base.data, base.len) != 0)
        return refuse_message(r, SERVE_unsupported_content, at,
                              ": an image must be in the request itself, as "
                              "data:image/png;base64,...: the server opens no address and no file");
    if (!is_base64((ares_view){ url->text.data + comma + 1, url->text.len - (size_t)comma - 1 }))
        return refuse_message(r, SERVE_invalid_value, at, ": the image's data are not base64");
    return SERVE_NO_ERROR;
}

static serve_code read_content(reader *r, int64_t at, const ares_json *content, bool may_be_null)
{
    if (is_string(content) || (may_be_null && is_absent(content))) return SERVE_NO_ERROR;
    if (!content || content->type != ARES_JSON_ARRAY)
        return refuse_message(r, SERVE_invalid_type, at,
                              ".content must be a string or a list of parts");
    for (int64_t i = 0; i < content->count; i++) {
        const ares_json *part = &content->items[i], *type = ares_json_get(part, "type");
        if (part->type != ARES_JSON_OBJECT)
            return refuse_message(r, SERVE_invalid_type, at,
                                  ".content: a part is an object such as "
                                  "{\"type\": \"text\", \"text\": \"Hi\"}");
        ares_view of = is_string(type) ? type->text : ARES_VIEW("");
        if (ares_view_is(of, "image_url")) {
            serve_code code = read_image(r, at, part);
            if (code) return code;
        } else if (!ares_view_is(of, "text")) {
            return refuse_message(r, SERVE_unsupported_content, at,
                                  ares_arena_printf(r->arena,
                                                    " holds a part of type '%s' (supported: text, "
                                                    "image_url)",
                                                    shown(r, of)));
        } else if (!is_string(ares_json_get(part, "text"))) {
            return refuse_message(r, SERVE_invalid_type, at,
                                  ".content: the text of a part must be a string");
        }
    }
    return SERVE_NO_ERROR;
}

static serve_code read_messages(reader *r, const char *name, const ares_json *v)
{
    static const char *const roles[] = { "system", "developer", "user", "assistant", "tool" };
    if (v->type != ARES_JSON_ARRAY) return wrong_type(r, name, v, "a list of messages");
    if (!v->count)
        return serve_refuse(r->error, r->arena, SERVE_invalid_value, name,
                            "messages is empty; give at least one message");
    for (int64_t i = 0; i < v->count; i++) {
        const ares_json *m = &v->items[i], *role = ares_json_get(m, "role"),
                        *calls = ares_json_get(m, "tool_calls");
        if (m->type != ARES_JSON_OBJECT)
            return refuse_message(r, SERVE_invalid_type, i, " must be an object");
        int k = 0;
        while (k < ARES_COUNT(roles) && !(is_string(role) && ares_view_is(role->text, roles[k])))
            k++;
        if (k == ARES_COUNT(roles))
            return refuse_message(r, SERVE_invalid_value, i,
                                  ".role must be one of system, developer, user, assistant, tool");
        bool is_answer = ares_view_is(role->text, "assistant");
        serve_code code = read_content(r, i, ares_json_get(m, "content"), is_answer);
        if (code) return code;
        if (!is_answer || is_absent(calls)) continue;
        if (calls->type != ARES_JSON_ARRAY)
            return refuse_message(r, SERVE_invalid_type, i, ".tool_calls must be a list");
        for (int64_t j = 0; j < calls->count; j++) {
            const ares_json *function = ares_json_get(&calls->items[j], "function"),
                            *arguments = ares_json_get(function, "arguments");
            if (!is_string(ares_json_get(function, "name")))
                return refuse_message(r, SERVE_invalid_type, i,
                                      ".tool_calls: a call is {\"id\", \"type\": \"function\", "
                                      "\"function\": {\"name\", \"arguments\"}}");
            if (!is_absent(arguments) && !is_string(arguments) &&
                arguments->type != ARES_JSON_OBJECT)
                return refuse_message(r, SERVE_invalid_type, i,
                                      ".tool_calls: arguments must be JSON in a string");
        }
    }
    r->asked.messages = v;
    return SERVE_NO_ERROR;
}

/* The URLs of all images, as a list of JSON. */
static serve_code gather_images(reader *r)
{
    const ares_json *messages = r->asked.messages;
    int64_t n = 0, most = 0;
    for (int64_t i = 0; messages && i < messages->count; i++) {
        const ares_json *content = ares_json_get(&messages->items[i], "content");
        if (content && content->type == ARES_JSON_ARRAY) most += content->count;
    }
    ares_json *urls = ares_arena_calloc(r->arena, (size_t)most + 1, sizeof *urls), *list;
    for (int64_t i = 0; most && i < messages->count; i++) {
        const ares_json *content = ares_json_get(&messages->items[i], "content");
        for (int64_t j = 0; content && content->type == ARES_JSON_ARRAY && j < content->count;
             j++) {
            const ares_json *type = ares_json_get(&content->items[j], "type");
            if (!ares_view_is(type->text, "image_url")) continue;
            urls[n++] = *ares_json_get(ares_json_get(&content->items[j], "image_url"), "url");
        }
    }
    if (n > MOST_IMAGES)
        return serve_refuse(r->error, r->arena, SERVE_invalid_value, "messages",
                            "messages hold %lld images; send at most %d", (long long)n,
                            MOST_IMAGES);
    if (!n) return SERVE_NO_ERROR;
    list = ares_arena_calloc(r->arena, 1, sizeof *list);
    *list = (ares_json){ .type = ARES_JSON_ARRAY, .count = n, .items = urls };
    r->asked.images = list;
    return SERVE_NO_ERROR;
}

/* ------------------------------------------------------------------ the list of fields */
typedef enum {
    FIELD_TRUTH,
    FIELD_INTEGER, /* from least to most */
    FIELD_NUMBER,  /* the same; top_p is above its least */
    FIELD_READ,    /* by a function */
    FIELD_NEUTRAL, /* only the value that changes nothing */
    FIELD_REFUSED,
    FIELD_IGNORED
} field_kind;

typedef struct field {
    const char *name; /* guided_*: all that begin so */
    int endpoints;
    field_kind kind;
    size_t offset; /* in the reader */
    double least, most;
    serve_code (*read)(reader *r, const char *name, const ares_json *v);
    const char *neutral; /* JSON */
} field;

#define ANSWERS (SERVE_CHAT | SERVE_CHAT_TOKENS | SERVE_COMPLETIONS)
#define CHATS (SERVE_CHAT | SERVE_CHAT_TOKENS)
#define TALKS (CHATS | SERVE_TOKENIZE)
#define ALL (ANSWERS | SERVE_TOKENIZE | SERVE_DETOKENIZE)
#define ASKED(member) offsetof(reader, asked.member)
#define MOST 9e18 /* integers of 64 bits */
#define ENTRY(n, e, k, ...) { .name = n, .endpoints = e, .kind = FIELD_##k, __VA_ARGS__ }
#define TRUTH(n, e, at) ENTRY(n, e, TRUTH, .offset = at)
#define INTEGER(n, e, at, low, high) ENTRY(n, e, INTEGER, .offset = at, .least = low, .most = high)
#define NUMBER(n, e, at, low, high) ENTRY(n, e, NUMBER, .offset = at, .least = low, .most = high)
#define READ(n, e, fn) ENTRY(n, e, READ, .read = fn)
#define NEUTRAL(n, e, json) ENTRY(n, e, NEUTRAL, .neutral = json)
#define REFUSED(n, e) ENTRY(n, e, REFUSED, .neutral = NULL)
#define IGNORED(n, e) ENTRY(n, e, IGNORED, .neutral = NULL)

/* clang-format off: a line per field */
static const field fields[] = {
    READ("model", ALL, read_model),
    READ("messages", TALKS, read_messages),
    READ("tools", TALKS, read_tools),
    READ("tool_choice", CHATS, read_tool_choice),
    TRUTH("parallel_tool_calls", CHATS, ASKED(parallel_tool_calls)),
    READ("chat_template_kwargs", TALKS, read_kwargs),
    TRUTH("add_generation_prompt", TALKS, ASKED(add_generation_prompt)),
    TRUTH("continue_final_message", TALKS, ASKED(continue_final_message)),
    READ("prompt", SERVE_COMPLETIONS | SERVE_TOKENIZE, read_prompt),
    READ("tokens", SERVE_CHAT_TOKENS | SERVE_DETOKENIZE, read_tokens),
    INTEGER("max_completion_tokens", CHATS, offsetof(reader, max_completion_tokens), 1, MOST),
    INTEGER("max_tokens", CHATS, ASKED(max_tokens), 1, MOST),
    INTEGER("max_tokens", SERVE_COMPLETIONS, ASKED(max_tokens), 0, MOST),
    NUMBER("temperature", ANSWERS, ASKED(temperature), 0, 1e4),
    NUMBER("top_p", ANSWERS, ASKED(top_p), 0, 1),
    INTEGER("top_k", ANSWERS, ASKED(top_k), -1, MOST),
    INTEGER("n", ANSWERS, ASKED(n), 1, MOST_N),
    READ("seed", ANSWERS, read_seed),
    READ("stop", ANSWERS, read_stop),
    READ("stop_token_ids", ANSWERS, read_stop_ids),
    TRUTH("ignore_eos", ANSWERS, ASKED(ignore_eos)),
    TRUTH("include_stop_str_in_output", ANSWERS, ASKED(include_stop_str_in_output)),
    TRUTH("stream", ANSWERS, ASKED(stream)),
    READ("stream_options", ANSWERS, read_stream_options),
    TRUTH("logprobs", CHATS, offsetof(reader, wants_logprobs)),
    INTEGER("top_logprobs", CHATS, offsetof(reader, top_logprobs), 0, MOST_LOGPROBS),
    INTEGER("logprobs", SERVE_COMPLETIONS, ASKED(logprobs), 0, MOST_LOGPROBS),
    INTEGER("prompt_logprobs", ANSWERS, ASKED(prompt_logprobs), 0, MOST_LOGPROBS),
    TRUTH("echo", SERVE_COMPLETIONS, ASKED(echo)),
    TRUTH("add_special_tokens", ANSWERS | SERVE_TOKENIZE, ASKED(add_special_tokens)),
    TRUTH("skip_special_tokens", ANSWERS, ASKED(skip_special_tokens)),
    TRUTH("return_token_ids", ANSWERS, ASKED(return_token_ids)),
    TRUTH("return_tokens_as_token_ids", ANSWERS, ASKED(return_tokens_as_token_ids)),
    TRUTH("return_token_strs", SERVE_TOKENIZE, ASKED(return_token_strs)),
    READ("session_id", ANSWERS, read_session),
    READ("response_format", ANSWERS, read_format),
    TRUTH("train", ANSWERS, ASKED(train)),

    IGNORED("user", ANSWERS),
    IGNORED("metadata", ANSWERS),
    IGNORED("store", ANSWERS),
    IGNORED("service_tier", ANSWERS),
    IGNORED("prompt_cache_key", ANSWERS),
    IGNORED("prompt_cache_retention", ANSWERS),
    IGNORED("safety_identifier", ANSWERS),
    IGNORED("reasoning_effort", ANSWERS),
    IGNORED("verbosity", ANSWERS),
    IGNORED("request_id", ANSWERS),
    IGNORED("priority", ANSWERS),
    IGNORED("cache_salt", ANSWERS),
    IGNORED("cache_prompt", ANSWERS),
    IGNORED("spaces_between_special_tokens", ANSWERS),
    IGNORED("mm_processor_kwargs", ANSWERS),
    IGNORED("documents", ANSWERS),
    IGNORED("include_reasoning", ANSWERS),

    NEUTRAL("presence_penalty", ANSWERS, "0"),
    NEUTRAL("frequency_penalty", ANSWERS, "0"),
    NEUTRAL("repetition_penalty", ANSWERS, "1"),
    NEUTRAL("length_penalty", ANSWERS, "1"),
    NEUTRAL("min_p", ANSWERS, "0"),
    NEUTRAL("min_tokens", ANSWERS, "0"),
    NEUTRAL("logit_bias", ANSWERS, "{}"),
    NEUTRAL("suffix", ANSWERS, "\"\""),
    NEUTRAL("modalities", ANSWERS, "[\"text\"]"),
    NEUTRAL("echo", CHATS, "false"),
    NEUTRAL("best_of", ANSWERS, "n"), /* the request's n */

    REFUSED("guided_*", ANSWERS),
    REFUSED("structured_outputs", ANSWERS),
    REFUSED("grammar", ANSWERS),
    REFUSED("json_schema", ANSWERS),
    REFUSED("functions", ANSWERS),
    REFUSED("function_call", ANSWERS),
    REFUSED("audio", ANSWERS),
    REFUSED("prediction", ANSWERS),
    REFUSED("web_search_options", ANSWERS),
    REFUSED("use_beam_search", ANSWERS),
    REFUSED("truncate_prompt_tokens", ANSWERS),
    REFUSED("prompt_embeds", ANSWERS),
    REFUSED("bad_words", ANSWERS),
    REFUSED("allowed_token_ids", ANSWERS),
    REFUSED("mirostat", ANSWERS),
    REFUSED("chat_template", ALL),
};
/* clang-format on */

static const field *find_field(ares_view name, serve_endpoint endpoint)
{
    for (int i = 0; i < ARES_COUNT(fields); i++) {
        const char *known = fields[i].name;
        size_t n = strlen(known);
        if (!(fields[i].endpoints & (int)endpoint)) continue;
        if (ares_view_is(name, known)) return &fields[i];
        if (known[n - 1] == '*' && ares_view_starts(name, (ares_view){ known, n - 1 }))
            return &fields[i];
    }
    return NULL;
}

static serve_code refuse_unknown(reader *r, ares_view name)
{
    const char *names[ARES_COUNT(fields)], *word = shown(r, name);
    int n = 0;
    for (int i = 0; i < ARES_COUNT(fields); i++) {
        bool honoured = fields[i].kind <= FIELD_READ;
        if (honoured && fields[i].endpoints & (int)r->asked.endpoint) names[n++] = fields[i].name;
    }
    const char *near = ares_nearest(word, names, n);
    return serve_refuse(r->error, r->arena, SERVE_unknown_parameter, word,
                        "no such parameter: %s%s%s%s", word, near ? "; did you mean '" : "",
                        near ? near : "; leave it out", near ? "'?" : "");
}

/* Whether a value says the same as the neutral one; 0 and 0.0 do. */
static bool is_neutral(reader *r, const ares_json *v, const char *neutral)
{
    const ares_json *same;
    ares_str text = { 0 };
    if (strcmp(neutral, "n") == 0) return r->best_of = v, true; /* once n is known */
    ARES_ASSERT(ares_json_parse(r->arena, ares_view_of(neutral), "neutral", &same) == ARES_OK);
    if (same->type == ARES_JSON_INT)
        return (v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT) &&
               v->number == same->number;
    if (v->type != same->type) return false;
    ares_json_write(&text, v);
    bool equal = ares_view_is(ares_str_view(&text), neutral);
    ares_str_fini(&text);
    return equal;
}

static serve_code read_field(reader *r, const field *f, ares_view sent, const ares_json *v)
{
    char *at = (char *)r + f->offset;
    switch (f->kind) {
    case FIELD_TRUTH:
        if (v->type != ARES_JSON_BOOL) return wrong_type(r, f->name, v, "true or false");
        *(bool *)at = v->boolean;
        return SERVE_NO_ERROR;
    case FIELD_INTEGER: return read_integer(r, f->name, v, f->least, f->most, (int64_t *)at);
    case FIELD_NUMBER: {
        bool above = f->most == 1; /* top_p: 0 would leave nothing */
        if (v->type != ARES_JSON_INT && v->type != ARES_JSON_FLOAT)
            return wrong_type(r, f->name, v, "a number");
        if (v->number < f->least || v->number > f->most || (above && v->number == f->least))
            return serve_refuse(r->error, r->arena, SERVE_invalid_value, f->name,
                                "%s is %s; it must be %s %g and at most %g", f->name,
                                shown(r, v->text), above ? "above" : "at least", f->least, f->most);
        *(double *)at = v->number;
        return SERVE_NO_ERROR;
    }
    case FIELD_READ: return f->read(r, f->name, v);
    case FIELD_NEUTRAL:
        if (is_neutral(r, v, f->neutral)) return SERVE_NO_ERROR;
        return serve_refuse(r->error, r->arena, SERVE_unsupported_parameter, f->name,
                            "%s other than %s is not offered: it would draw from another "
                            "distribution than is trained; leave it out",
                            f->name, f->neutral);
    case FIELD_REFUSED: {
        const char *name = shown(r, sent);
        return serve_refuse(r->error, r->arena, SERVE_unsupported_parameter, name,
                            "%s is not offered; leave it out", name);
    }
    case FIELD_IGNORED: break;
    }
    return SERVE_NO_ERROR;
}

/* ------------------------------------------------------------------ fields together */
static serve_code missing(reader *r, const char *name, const char *what)
{
    return serve_refuse(r->error, r->arena, SERVE_missing_required_parameter, name,
                        "%s is missing; %s", name, what);
}

static serve_code check_tool_choice(reader *r)
{
    serve_asked *a = &r->asked;
    const ares_json *v = r->tool_choice,
                    *name = v ? ares_json_get(ares_json_get(v, "function"), "name") : NULL;
    const char *wrong = NULL;
    if (!v) return SERVE_NO_ERROR;
    if (is_string(v)) {
        static const char *const words[] = { "auto", "none", "required" };
        int k = 0;
        while (k < 3 && !ares_view_is(v->text, words[k])) k++;
        a->tool_choice = (serve_choose)k;
        if (k == 3) wrong = "write \"auto\", \"none\", \"required\" or a function";
    } else {
        a->tool_choice = SERVE_CHOOSE_FUNCTION;
        const ares_json *type = ares_json_get(v, "type");
        bool is_function =
            is_absent(type) || (is_string(type) && ares_view_is(type->text, "function"));
        if (!is_function || !is_string(name))
            wrong = "write {\"type\": \"function\", \"function\": {\"name\": \"add\"}}";
        else a->tool_name = name->text;
    }
    bool forced = a->tool_choice >= SERVE_CHOOSE_REQUIRED;
    if (!wrong && forced && !a->tools) wrong = "there are no tools; give tools or leave it out";
    if (!wrong && a->tool_choice == SERVE_CHOOSE_FUNCTION) {
        bool known = false;
        for (int64_t i = 0; i < a->tools->count; i++) {
            const ares_json *f = ares_json_get(&a->tools->items[i], "function");
            known = known || ares_view_eq(ares_json_get(f, "name")->text, a->tool_name);
        }
        if (!known) wrong = "tools has no function of that name";
    }
    if (wrong)
        return serve_refuse(r->error, r->arena, SERVE_invalid_value, "tool_choice",
                            "tool_choice: %s", wrong);
    if (forced && r->with->form == SERVE_FORM_NONE)
        return serve_refuse(r->error, r->arena, SERVE_unsupported_value, "tool_choice",
                            "tool_choice: a call cannot be forced, because the form of calls of "
                            "this model's template is not known; write \"auto\", or start the "
                            "server with --tool-parser hermes");
    return SERVE_NO_ERROR;
}

static serve_code check_together(reader *r)
{
    serve_asked *a = &r->asked;
    bool is_chat = a->endpoint & CHATS;
    if (a->endpoint == SERVE_CHAT && !a->messages)
        return missing(r, "messages", "write [{\"role\": \"user\", \"content\": \"Hi\"}]");
    if (a->endpoint & (SERVE_CHAT_TOKENS | SERVE_DETOKENIZE) && !r->tokens)
        return missing(r, "tokens", "give a list of token ids");
    if (a->endpoint == SERVE_COMPLETIONS && !r->prompt)
        return missing(r, "prompt", "give a text or token ids");
    if (a->endpoint == SERVE_TOKENIZE && !r->prompt && !a->messages)
        return missing(r, "prompt", "give prompt or messages");
    if (a->endpoint == SERVE_TOKENIZE && r->prompt && a->messages)
        return serve_refuse(r->error, r->arena, SERVE_invalid_value, "prompt",
                            "prompt and messages exclude each other; give one of them");
    if (a->continue_final_message) {
        if (r->has_generation_prompt && a->add_generation_prompt)
            return serve_refuse(r->error, r->arena, SERVE_invalid_value, "continue_final_message",
                                "continue_final_message and add_generation_prompt exclude each "
                                "other; set add_generation_prompt to false");
        const ares_json *last = a->messages ? &a->messages->items[a->messages->count - 1] : NULL;
        if (last && !ares_view_is(ares_json_get(last, "role")->text, "assistant"))
            return serve_refuse(r->error, r->arena, SERVE_invalid_value, "continue_final_message",
                                "continue_final_message needs a last message of the assistant; "
                                "add one, or leave the field out");
        a->add_generation_prompt = false;
    }
    serve_code code = check_tool_choice(r);
    if (code) return code;
    if (r->max_completion_tokens >= 0) a->max_tokens = r->max_completion_tokens;
    if (a->top_k == 0) a->top_k = -1;
    if (is_chat && r->wants_logprobs) a->logprobs = ARES_MAX(r->top_logprobs, 0);
    if (is_chat && !r->wants_logprobs && r->top_logprobs > 0)
        return serve_refuse(r->error, r->arena, SERVE_invalid_value, "top_logprobs",
                            "top_logprobs needs logprobs; set logprobs to true");
    if (r->best_of && (r->best_of->type != ARES_JSON_INT || r->best_of->integer != a->n))
        return serve_refuse(r->error, r->arena, SERVE_unsupported_parameter, "best_of",
                            "best_of other than n is not offered; leave it out");
    if (a->echo && a->stream)
        return serve_refuse(r->error, r->arena, SERVE_unsupported_value, "echo",
                            "echo is not offered in streams; set stream to false");
    if (a->n_prompts * a->n > MOST_CHOICES)
        return serve_refuse(r->error, r->arena, SERVE_invalid_value, "prompt",
                            "%lld prompts times n = %lld are more than %d answers; send fewer "
                            "prompts in a request",
                            (long long)a->n_prompts, (long long)a->n, MOST_CHOICES);
    if (r->with->training) a->session = ARES_VIEW(""); /* an episode is a session */
    return gather_images(r);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

serve_code serve_request_read(ares_arena *arena, const serve_reading *reading,
                              serve_endpoint endpoint, ares_view body, serve_asked *out,
                              serve_error *e)
{
    const ares_json *v;
    bool is_completion = endpoint == SERVE_COMPLETIONS;
    reader r = {
        .asked = { .endpoint = endpoint,
                   .add_generation_prompt = true,
                   .parallel_tool_calls = true,
                   .max_tokens = is_completion ? 16 : -1,
                   .temperature = 1,
                   .top_p = 1,
                   .top_k = -1,
                   .n = 1,
                   .add_special_tokens = is_completion || endpoint == SERVE_TOKENIZE,
                   .skip_special_tokens = true,
                   .logprobs = -1,
                   .prompt_logprobs = -1,
                   .train = true,
                   .session = ARES_VIEW("") },
        .arena = arena,
        .with = reading,
        .error = e,
        .max_completion_tokens = -1,
        .top_logprobs = -1,
    };
    if (ares_json_parse(arena, body, "body", &v) != ARES_OK) {
        serve_refuse(e, arena, SERVE_invalid_json, NULL, "the body is no JSON: %s",
                     ares_error_message());
        ares_error_clear();
        return SERVE_invalid_json;
    }
    if (v->type != ARES_JSON_OBJECT)
        return serve_refuse(e, arena, SERVE_invalid_json, NULL,
                            "the body must be a JSON object, not %s", kind_of(v));
    r.asked.body = v;
    /* a template writes its special tokens itself; of /tokenize, as in vLLM, only texts get more */
    if (ares_json_get(v, "messages") && endpoint == SERVE_TOKENIZE)
        r.asked.add_special_tokens = false;
    if (reading->session_header.len && !reading->training) {
        if (reading->session_header.len > MOST_SESSION)
            return serve_refuse(e, arena, SERVE_invalid_value, "session_id",
                                "X-Session-ID has %zu bytes; give 1 to %d",
                                reading->session_header.len, MOST_SESSION);
        r.asked.session = reading->session_header;
    }
    const char **ignored = ares_arena_calloc(arena, (size_t)v->count + 1, sizeof *ignored);
    for (int64_t i = 0; i < v->count; i++) {
        const ares_json_member *m = &v->members[i];
        if (m->value->type == ARES_JSON_NULL) continue;
        const field *f = find_field(m->key, endpoint);
        serve_code code = f ? read_field(&r, f, m->key, m->value) : refuse_unknown(&r, m->key);
        if (code) return code;
        if (ares_view_is(m->key, "add_generation_prompt")) r.has_generation_prompt = true;
        bool drops =
            f->kind == FIELD_IGNORED || (!reading->training && ares_view_is(m->key, "train"));
        if (drops) ignored[r.asked.n_ignored++] = f->name;
    }
    qsort(ignored, (size_t)r.asked.n_ignored, sizeof *ignored, by_name);
    r.asked.ignored = ignored;
    serve_code code = check_together(&r);
    if (code) return code;
    *out = r.asked;
    return SERVE_NO_ERROR;
}
