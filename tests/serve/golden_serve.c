/* The pure parts of the OpenAI endpoint: serve.json. */
#include "golden.h"
#include "openai.h"

#include <stdio.h>
#include <string.h>

static const ares_json *input_or_null(golden *g, const char *key)
{
    const ares_json *v = ares_json_get(g->inputs, key);
    return v && v->type != ARES_JSON_NULL ? v : NULL;
}

static bool input_flag(golden *g, const char *key, bool absent)
{
    const ares_json *v = input_or_null(g, key);
    return v ? v->boolean : absent;
}

static int32_t *ids_of(golden *g, const ares_json *list, int64_t *n)
{
    *n = list->count;
    int32_t *ids = ares_arena_calloc(g->arena, (size_t)list->count + 1, sizeof *ids);
    for (int64_t i = 0; i < list->count; i++) ids[i] = (int32_t)list->items[i].integer;
    return ids;
}

/* A value of the case as canonical JSON, compared with one that was made. */
static void check_json(golden *g, const char *what, const ares_json *got, const ares_json *want)
{
    ares_str a = { 0 }, b = { 0 };
    g->checks++;
    serve_json_canonical(&a, got);
    serve_json_canonical(&b, want);
    if (!ares_view_eq(ares_str_view(&a), ares_str_view(&b)))
        golden_fail(g, "%s is %s, expected %s", what, a.data, b.data);
    ares_str_fini(&a);
    ares_str_fini(&b);
}

static void check_u64(golden *g, const char *what, uint64_t got)
{
    const char *text = ares_arena_printf(g->arena, "%llu", (unsigned long long)got);
    golden_text(g, what, ares_view_of(text), g->expected);
}

static serve_form form_of(golden *g, serve_form absent)
{
    const ares_json *form = input_or_null(g, "form");
    if (!form) return absent;
    for (int i = 0; i < ARES_COUNT(serve_form_names); i++)
        if (ares_view_is(form->text, serve_form_names[i])) return (serve_form)i;
    golden_unknown(g);
    return SERVE_FORM_NONE;
}

/* ---------------- tools and thoughts */
GOLDEN(serve, serve_tool_calls)
{
    ares_view text = golden_string(g, "text");
    serve_form form = form_of(g, SERVE_FORM_NONE);
    /* by the reader, with the content joined as the cut joins it */
    serve_cut *c = serve_cut_new(&(serve_cut_options){ .form = form });
    serve_piece piece;
    serve_cut_add(c, text, false, SERVE_TOKEN_PLAIN, &piece);
    serve_cut_finish(c, &piece);
    const serve_answer *a = serve_cut_answer(c);
    const ares_json *calls = golden_want(g, "calls");
    golden_text(g, "content", a->content_is_null ? (ares_view){ 0 } : a->content,
                golden_want(g, "content"));
    golden_equal(g, "calls", a->n_calls,
                 &(ares_json){ .type = ARES_JSON_INT,
                               .integer = calls->count,
                               .number = (double)calls->count });
    for (int i = 0; i < a->n_calls && i < calls->count; i++) {
        golden_text(g, "name", a->calls[i].name, ares_json_get(&calls->items[i], "name"));
        golden_text(g, "arguments", a->calls[i].arguments,
                    ares_json_get(&calls->items[i], "arguments"));
    }
    serve_cut_free(c);
}

GOLDEN(serve, serve_generic_tools)
{
    serve_for_template how = { .generic = true };
    check_json(g, "messages",
               serve_messages_for_template(g->arena, golden_in(g, "messages"),
                                           input_or_null(g, "tools"), how),
               g->expected);
}

GOLDEN(serve, serve_opening)
{
    const ares_json *choice = golden_in(g, "tool_choice"),
                    *name = ares_json_get(ares_json_get(choice, "function"), "name");
    serve_choose choose = name                                 ? SERVE_CHOOSE_FUNCTION
                          : ares_view_is(choice->text, "auto") ? SERVE_CHOOSE_AUTO
                          : ares_view_is(choice->text, "none") ? SERVE_CHOOSE_NONE
                                                               : SERVE_CHOOSE_REQUIRED;
    golden_text(g, "opening",
                serve_opening(g->arena, form_of(g, SERVE_FORM_NONE), choose,
                              name ? name->text : ARES_VIEW("")),
                g->expected);
}

GOLDEN(serve, serve_reasoning)
{
    ares_view text = golden_string(g, "text");
    bool opened = input_flag(g, "opened", false);
    serve_cut *c = serve_cut_new(&(serve_cut_options){ .reasoning = true, .opened = opened });
    serve_piece piece;
    serve_cut_add(c, text, false, SERVE_TOKEN_PLAIN, &piece);
    serve_cut_finish(c, &piece);
    const serve_answer *a = serve_cut_answer(c);
    golden_text(g, "reasoning", a->has_reasoning ? a->reasoning : (ares_view){ 0 },
                golden_want(g, "reasoning"));
    golden_text(g, "content", a->content, golden_want(g, "content"));
    serve_cut_free(c);
}

GOLDEN(serve, serve_call_id)
{
    int64_t n_prompt, n;
    char id[SERVE_CALL_ID];
    const int32_t *prompt = ids_of(g, golden_in(g, "prompt"), &n_prompt),
                  *ids = ids_of(g, golden_in(g, "ids"), &n);
    serve_call_id(prompt, n_prompt, ids, n, (int32_t)golden_number(g, "number"), id);
    golden_text(g, "id", ares_view_of(id), g->expected);
}

/* ---------------- text of an answer */
static void check_delta(golden *g, int64_t k, const serve_piece *p, const ares_json *want)
{
    const char *what = ares_arena_printf(g->arena, "delta %lld", (long long)k);
    if (k >= want->count) {
        golden_fail(g, "%s: none is expected, there is \"%.*s\"", what, (int)p->content.len,
                    p->content.data);
        return;
    }
    const ares_json *d = &want->items[k];
    golden_text(g, what, p->content, &d->items[0]);
    golden_equal(g, what, p->first, &d->items[1]);
    golden_equal(g, what, p->end, &d->items[2]);
}

GOLDEN(serve, serve_cut)
{
    const ares_json *pieces = golden_in(g, "pieces"), *special = input_or_null(g, "special"),
                    *stop = input_or_null(g, "stop"), *ends = input_or_null(g, "ends"),
                    *deltas = golden_want(g, "deltas");
    serve_cut_options o = { .include_stop = input_flag(g, "include_stop", false),
                            .skip_special = input_flag(g, "skip_special", true),
                            .n_stop = stop ? (int)stop->count : 0 };
    ares_view *stops = ares_arena_calloc(g->arena, (size_t)o.n_stop + 1, sizeof *stops);
    for (int i = 0; i < o.n_stop; i++) stops[i] = stop->items[i].text;
    o.stop = stops;
    serve_token_kind last = !ends || !ends->text.len          ? SERVE_TOKEN_LAST
                            : ares_view_is(ends->text, "eos") ? SERVE_TOKEN_EOS
                                                              : SERVE_TOKEN_STOP;
    serve_cut *c = serve_cut_new(&o);
    serve_piece piece;
    bool ended = false;
    int64_t k = 0;
    for (int64_t i = 0; i < pieces->count && !ended; i++) {
        ares_str bytes = { 0 };
        const char *hex = pieces->items[i].text.data;
        for (unsigned value; sscanf(hex, "%2x", &value) == 1; hex += 2)
            ares_str_add_char(&bytes, (char)value);
        ended = serve_cut_add(c, ares_str_view(&bytes), special && special->items[i].boolean,
                              i == pieces->count - 1 ? last : SERVE_TOKEN_PLAIN, &piece);
        if (!ended && !serve_piece_is_empty(&piece)) check_delta(g, k++, &piece, deltas);
        ares_str_fini(&bytes);
    }
    serve_cut_finish(c, &piece);
    if (!serve_piece_is_empty(&piece)) check_delta(g, k++, &piece, deltas);
    if (k < deltas->count) golden_fail(g, "only %lld deltas", (long long)k);
    const serve_answer *a = serve_cut_answer(c);
    golden_equal(g, "tokens", a->n_tokens, golden_want(g, "tokens"));
    golden_text(g, "text", a->content, golden_want(g, "text"));
    golden_text(g, "finish", ares_view_of(serve_finish_names[a->finish]), golden_want(g, "finish"));
    golden_text(g, "stop_reason", a->stop >= 0 ? o.stop[a->stop] : (ares_view){ 0 },
                golden_want(g, "stop_reason"));
    serve_cut_free(c);
}

/* ---------------- sessions */
GOLDEN(serve, serve_normal)
{
    ares_str normal = { 0 };
    const ares_json *got;
    serve_message_normal(&normal, golden_in(g, "message"), NULL);
    if (golden_ok(g, ares_json_parse(g->arena, ares_str_view(&normal), "normal", &got)))
        check_json(g, "normal form", got, g->expected);
    ares_str_fini(&normal);
}

GOLDEN(serve, serve_match)
{
    const ares_json *kept = golden_in(g, "kept");
    serve_session *s = serve_session_new();
    for (int64_t i = 0; i < kept->count; i++) {
        const ares_json *k = &kept->items[i], *messages = ares_json_get(k, "messages");
        const ares_json *last = &messages->items[messages->count - 1],
                        *content = ares_json_get(last, "content"),
                        *calls = ares_json_get(last, "tool_calls");
        ares_json before = *messages;
        before.count--;
        serve_talk talk = { .messages = &before,
                            .tools = ares_json_get(k, "tools"),
                            .chat_template_kwargs = ares_json_get(k, "chat_template_kwargs") };
        serve_answer answer = { .content = content && content->type == ARES_JSON_STRING
                                               ? content->text
                                               : ARES_VIEW(""),
                                .n_calls = calls ? (int)calls->count : 0 };
        serve_tool_call *said =
            ares_arena_calloc(g->arena, (size_t)answer.n_calls + 1, sizeof *said);
        const char **ids = ares_arena_calloc(g->arena, (size_t)answer.n_calls + 1, sizeof *ids);
        for (int c = 0; c < answer.n_calls; c++) {
            const ares_json *f = ares_json_get(&calls->items[c], "function");
            said[c] = (serve_tool_call){ ares_json_get(f, "name")->text,
                                         ares_json_get(f, "arguments")->text };
            ids[c] = ares_json_get(&calls->items[c], "id")->text.data;
        }
        answer.calls = said;
        serve_session_keep(s, &talk, &answer, ids, &(serve_kept){ .k = i });
    }
    serve_talk talk = { .messages = golden_in(g, "messages"),
                        .tools = input_or_null(g, "tools"),
                        .chat_template_kwargs = input_or_null(g, "chat_template_kwargs"),
                        .continue_final_message = input_flag(g, "continue_final_message", false) };
    serve_kept found;
    int64_t message = serve_session_match(s, &talk, &found);
    bool none = g->expected->type == ARES_JSON_NULL;
    g->checks++;
    if (none != (message < 0)) golden_fail(g, "message %lld", (long long)message);
    if (!none && message >= 0) {
        golden_equal(g, "message", message, golden_want(g, "message"));
        golden_equal(g, "kept", found.k, golden_want(g, "kept"));
    }
    serve_session_free(s);
}

/* ---------------- requests */
static void check_asked(golden *g, const serve_reading *reading, const serve_asked *a,
                        const ares_json *want)
{
#define WANT(key) ares_json_get(want, key)
    static const ares_json absent = { .type = ARES_JSON_NULL };
    golden_text(g, "model", ares_view_of(reading->models[a->model]), WANT("model"));
    golden_near(g, "temperature", a->temperature, WANT("temperature"));
    golden_near(g, "top_p", a->top_p, WANT("top_p"));
    golden_equal(g, "top_k", a->top_k, WANT("top_k"));
    golden_equal(g, "n", a->n, WANT("n"));
    const char *seed = !a->has_seed ? NULL
                       : a->seed_is_signed
                           ? ares_arena_printf(g->arena, "%lld", (long long)a->seed)
                           : ares_arena_printf(g->arena, "%llu", (unsigned long long)a->seed);
    golden_text(g, "seed", seed ? ares_view_of(seed) : (ares_view){ 0 }, WANT("seed"));
    golden_equal(g, "stream", a->stream, WANT("stream"));
    golden_equal(g, "ignore_eos", a->ignore_eos, WANT("ignore_eos"));
    golden_equal(g, "train", a->train, WANT("train"));
    golden_equal(g, "include_usage", a->include_usage, WANT("include_usage"));
    golden_equal(g, "stops", a->n_stop == (int)WANT("stop")->count,
                 &(ares_json){ .type = ARES_JSON_BOOL, .boolean = true });
    for (int i = 0; i < a->n_stop && i < WANT("stop")->count; i++)
        golden_text(g, "stop", a->stop[i], &WANT("stop")->items[i]);
    golden_equal(g, "stop ids", a->n_stop_token_ids == WANT("stop_token_ids")->count,
                 &(ares_json){ .type = ARES_JSON_BOOL, .boolean = true });
    for (int64_t i = 0; i < a->n_stop_token_ids && i < WANT("stop_token_ids")->count; i++)
        golden_equal(g, "stop id", a->stop_token_ids[i], &WANT("stop_token_ids")->items[i]);
    struct {
        const char *name;
        int64_t value;
    } counts[] = { { "prompt_logprobs", a->prompt_logprobs },
                   { "max_tokens", a->max_tokens },
                   { "logprobs", a->logprobs } };
    for (int i = 0; i < ARES_COUNT(counts); i++) {
        const ares_json *v = WANT(counts[i].name);
        if (v->type == ARES_JSON_NULL)
            golden_equal(g, counts[i].name, counts[i].value,
                         &(ares_json){ .type = ARES_JSON_INT, .integer = -1, .number = -1 });
        else golden_equal(g, counts[i].name, counts[i].value, v);
    }
    if (WANT("prompts")) golden_equal(g, "prompts", a->n_prompts, WANT("prompts"));
    const ares_json *choice = WANT("tool_choice") ? WANT("tool_choice") : &absent;
    static const char *const words[] = { "auto", "none", "required" };
    if (choice->type == ARES_JSON_STRING)
        golden_text(g, "tool_choice",
                    a->tool_choice < SERVE_CHOOSE_FUNCTION ? ares_view_of(words[a->tool_choice])
                                                           : (ares_view){ 0 },
                    choice);
    if (choice->type == ARES_JSON_OBJECT)
        golden_text(g, "tool_choice", a->tool_name,
                    ares_json_get(ares_json_get(choice, "function"), "name"));
    ares_str ignored = { 0 };
    const ares_json *got;
    ares_json_begin(&ignored, '[');
    for (int i = 0; i < a->n_ignored; i++)
        ares_json_write_string(&ignored, ares_view_of(a->ignored[i]));
    ares_json_end(&ignored, ']');
    if (golden_ok(g, ares_json_parse(g->arena, ares_str_view(&ignored), "ignored", &got)))
        check_json(g, "ignored", got, WANT("ignored"));
    ares_str_fini(&ignored);
#undef WANT
}

GOLDEN(serve, serve_request)
{
    static const char *const models[] = { "m", "a/b" };
    serve_reading reading = { .models = models,
                              .n_models = 2,
                              .vocab_size = 512,
                              .vision = input_flag(g, "vision", false),
                              .training = input_flag(g, "training", false),
                              .form = form_of(g, SERVE_FORM_HERMES) };
    serve_asked asked;
    serve_error e;
    serve_endpoint endpoint = serve_endpoint_of(golden_string(g, "path"));
    if (!endpoint) {
        golden_fail(g, "no endpoint");
        return;
    }
    serve_code code =
        serve_request_read(g->arena, &reading, endpoint, golden_string(g, "body"), &asked, &e);
    const ares_json *ok = ares_json_get(g->expected, "ok");
    if (code && ok) {
        golden_fail(g, "refused: %s (%s)", e.message, serve_code_name(code));
    } else if (ok) {
        check_asked(g, &reading, &asked, ok);
    } else if (!code) {
        golden_fail(g, "accepted");
    } else {
        golden_equal(g, "status", serve_status(e.code), golden_want(g, "status"));
        golden_text(g, "code", ares_view_of(serve_code_name(e.code)), golden_want(g, "code"));
        golden_text(g, "param", e.param ? ares_view_of(e.param) : (ares_view){ 0 },
                    golden_want(g, "param"));
    }
}

/* ---------------- seeds, rows, lines */
GOLDEN(serve, serve_seed)
{
    int64_t n;
    const int32_t *ids = ids_of(g, golden_in(g, "ids"), &n);
    check_u64(g, "seed",
              serve_seed(golden_in(g, "server_seed")->integer, ids, n,
                         golden_number(g, "temperature"), golden_number(g, "top_p"),
                         (int64_t)golden_number(g, "top_k"), (int64_t)golden_number(g, "k")));
}

GOLDEN(serve, serve_turn)
{
    int64_t n;
    const int32_t *ids = ids_of(g, golden_in(g, "ids"), &n);
    check_u64(
        g, "turn",
        serve_turn(ids, n, (int64_t)golden_number(g, "k"), (int64_t)golden_number(g, "choice")));
}

GOLDEN(serve, serve_rows)
{
    const ares_json *in = golden_in(g, "records");
    ares_serve_record *records =
        ares_arena_calloc(g->arena, (size_t)in->count + 1, sizeof *records);
    for (int64_t i = 0; i < in->count; i++) {
        const ares_json *r = &in->items[i], *log_probs = ares_json_get(r, "log_probs"),
                        *train = ares_json_get(r, "train");
        float *numbers = ares_arena_calloc(g->arena, (size_t)log_probs->count + 1, sizeof *numbers);
        for (int64_t k = 0; k < log_probs->count; k++)
            numbers[k] = (float)log_probs->items[k].number;
        records[i] = (ares_serve_record){ .log_probs = numbers,
                                          .k = ares_json_get(r, "k")->integer,
                                          .index = ares_json_get(r, "index")->integer,
                                          .weights = ares_json_get(r, "weights")->integer,
                                          .train = !train || train->boolean };
        records[i].prompt = ids_of(g, ares_json_get(r, "prompt"), &records[i].n_prompt);
        records[i].ids = ids_of(g, ares_json_get(r, "ids"), &records[i].n);
    }
    ares_serve_row *rows;
    int n = ares_serve_rows(g->arena, records, (int)in->count, &rows);
    ares_str text = { 0 };
    ares_json_begin(&text, '[');
    for (int i = 0; i < n; i++) {
        const ares_serve_row *r = &rows[i];
        ares_json_begin(&text, '{');
#define LIST(key, member, count, write)                                \
    ares_json_begin(ares_json_key(&text, key), '[');                   \
    for (int64_t k = 0; k < r->count; k++) write(&text, r->member[k]); \
    ares_json_end(&text, ']')
        LIST("prompt", prompt, n_prompt, ares_json_write_i64);
        LIST("responses", responses, n, ares_json_write_i64);
        LIST("mask", mask, n, ares_json_write_i64);
        LIST("log_probs", log_probs, n, ares_json_write_float);
        LIST("weights", weights, n, ares_json_write_i64);
        LIST("records", records, n_records, ares_json_write_i64);
        ares_json_end(&text, '}');
#undef LIST
    }
    ares_json_end(&text, ']');
    const ares_json *got;
    if (golden_ok(g, ares_json_parse(g->arena, ares_str_view(&text), "rows", &got)))
        check_json(g, "rows", got, g->expected);
    ares_str_fini(&text);
}

GOLDEN(serve, serve_line)
{
    static const char *const kinds[] = { "chatter", "reward", "failure" };
    ares_serve_line line;
    ares_serve_line_read(g->arena, golden_string(g, "line"), input_flag(g, "with_id", false),
                         &line);
    if (!golden_text(g, "kind", ares_view_of(kinds[line.kind]), golden_want(g, "kind"))) return;
    if (line.kind != ARES_SERVE_LINE_REWARD) return;
    const ares_json *info = golden_want(g, "info");
    golden_near(g, "reward", line.reward, golden_want(g, "reward"));
    golden_equal(g, "success", line.success, golden_want(g, "success"));
    int64_t n = line.info ? line.info->count : 0;
    g->checks++;
    if (n != info->count) golden_fail(g, "info has %lld entries", (long long)n);
    for (int64_t i = 0; i < n && i < info->count; i++)
        golden_near(g, "info", golden_value(line.info->members[i].value),
                    ares_json_find(info, line.info->members[i].key));
}
