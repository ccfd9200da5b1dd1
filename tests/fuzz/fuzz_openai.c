/*
 * libFuzzer entry for what a client or an agent sends to the OpenAI endpoint. The first byte says
 * what the rest is: `r` a request's body, `l` an agent's line, else an answer's text, whose second
 * byte chooses options. Checks, besides that nothing crashes: an error has a message, a kept
 * history is found again, pieces join to the whole answer and do not depend on where tokens end.
 */
#include "../../src/serve/openai.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_session(const serve_asked *a)
{
    serve_session *s = serve_session_new();
    serve_talk talk = { .messages = a->messages,
                        .tools = a->tools,
                        .chat_template_kwargs = a->chat_template_kwargs,
                        .continue_final_message = a->continue_final_message };
    ares_json role = { .type = ARES_JSON_STRING, .text = ARES_VIEW("assistant") },
              content = { .type = ARES_JSON_STRING, .text = ARES_VIEW("A") };
    ares_json_member members[] = { { ARES_VIEW("role"), &role },
                                   { ARES_VIEW("content"), &content } };
    serve_answer answer = { .content = content.text };
    serve_kept kept;
    int64_t n = a->messages->count;
    serve_session_match(s, &talk, &kept);
    if (!a->continue_final_message) {
        ares_json *items = ares_calloc((size_t)n + 1, sizeof *items), longer = *a->messages;
        for (int64_t i = 0; i < n; i++) items[i] = a->messages->items[i];
        items[n] = (ares_json){ .type = ARES_JSON_OBJECT, .count = 2, .members = members };
        serve_session_keep(s, &talk, &answer, NULL, &(serve_kept){ .k = 3 });
        longer.items = items;
        longer.count = n + 1;
        talk.messages = &longer;
        ARES_ASSERT(serve_session_match(s, &talk, &kept) == n && kept.k == 3);
        ares_free(items);
    } else {
        serve_session_keep(s, &talk, &answer, NULL, &(serve_kept){ 0 });
    }
    serve_session_free(s);
}

static void try_request(ares_view body)
{
    static const char *const models[] = { "m" };
    static const serve_endpoint endpoints[] = { SERVE_CHAT, SERVE_CHAT_TOKENS, SERVE_COMPLETIONS,
                                                SERVE_TOKENIZE, SERVE_DETOKENIZE };
    serve_reading reading = { .models = models, .n_models = 1, .vocab_size = 512 };
    for (int i = 0; i < 2 * ARES_COUNT(endpoints); i++) {
        ares_arena arena = { 0 };
        serve_asked a;
        serve_error e;
        reading.vision = i % 2 == 0;
        reading.training = i % 2 == 1;
        reading.form = i % 2 ? SERVE_FORM_NONE : SERVE_FORM_HERMES;
        if (serve_request_read(&arena, &reading, endpoints[i / 2], body, &a, &e)) {
            ares_str out = { 0 };
            const ares_json *v;
            serve_error_write(&out, &e);
            ARES_ASSERT(e.message[0] && serve_status(e.code) >= 400);
            ARES_ASSERT(ares_json_parse(&arena, ares_str_view(&out), "error", &v) == ARES_OK);
            ares_str_fini(&out);
        } else if (a.messages) {
            ares_str normal = { 0 };
            serve_for_template how = { .generic = i % 2, .vision = reading.vision };
            serve_messages_for_template(&arena, a.messages, a.tools, how);
            for (int64_t k = 0; k < a.messages->count; k++) {
                const ares_json *v;
                ares_str_clear(&normal);
                serve_message_normal(&normal, &a.messages->items[k], NULL);
                ARES_ASSERT(ares_json_parse(&arena, ares_str_view(&normal), "normal", &v) ==
                            ARES_OK);
            }
            try_session(&a);
            ares_str_fini(&normal);
        }
        ares_arena_fini(&arena);
    }
}

/* The answer in tokens of `step` bytes; the caller frees it. */
static serve_cut *answer_of(const serve_cut_options *o, ares_view text, size_t step)
{
    serve_cut *c = serve_cut_new(o);
    ares_str content = { 0 }, reasoning = { 0 };
    serve_piece piece;
    bool ended = false;
    for (size_t i = 0; i < text.len && !ended; i += step) {
        ares_view token = { text.data + i, ARES_MIN(step, text.len - i) };
        ended = serve_cut_add(c, token, false,
                              i + step < text.len ? SERVE_TOKEN_PLAIN : SERVE_TOKEN_LAST, &piece);
        if (ended) break;
        ares_str_add_view(&content, piece.content);
        ares_str_add_view(&reasoning, piece.reasoning);
    }
    serve_cut_finish(c, &piece);
    ares_str_add_view(&content, piece.content);
    ares_str_add_view(&reasoning, piece.reasoning);
    const serve_answer *a = serve_cut_answer(c);
    ARES_ASSERT(ares_view_eq(ares_str_view(&content), a->content));
    ARES_ASSERT(ares_view_eq(ares_str_view(&reasoning), a->reasoning));
    ARES_ASSERT(ares_view_is_utf8(a->content) && ares_view_is_utf8(a->reasoning));
    ares_str_fini(&content);
    ares_str_fini(&reasoning);
    return c;
}

static void try_text(unsigned bits, ares_view text)
{
    static const ares_view stops[] = { { "END", 3 }, { "aab", 3 } };
    serve_cut_options o = { .form = (serve_form)(bits % 3),
                            .reasoning = bits & 4,
                            .opened = bits & 8,
                            .one_call = bits & 16,
                            .include_stop = bits & 32,
                            .stop = stops,
                            .n_stop = bits & 64 ? 2 : 0,
                            .opening = bits & 128 ? ARES_VIEW("<tool_call>\n{\"name\": \"")
                                                  : ARES_VIEW("") };
    serve_cut *whole = answer_of(&o, text, text.len + 1), *bytes = answer_of(&o, text, 1),
              *few = answer_of(&o, text, 5);
    if (!o.one_call && !o.n_stop) {
        const serve_answer *a = serve_cut_answer(whole);
        const serve_cut *others[] = { bytes, few };
        for (int i = 0; i < 2; i++) {
            const serve_answer *b = serve_cut_answer(others[i]);
            ARES_ASSERT(ares_view_eq(a->content, b->content) && a->n_calls == b->n_calls &&
                        ares_view_eq(a->reasoning, b->reasoning) && a->finish == b->finish);
        }
    }
    serve_cut_free(whole);
    serve_cut_free(bytes);
    serve_cut_free(few);
}

static void try_line(ares_view text)
{
    for (int with_id = 0; with_id < 2; with_id++) {
        ares_arena arena = { 0 };
        ares_serve_line line;
        ares_serve_line_read(&arena, text, with_id, &line);
        ARES_ASSERT(line.kind != ARES_SERVE_LINE_REWARD ||
                    (line.reward >= -1e30 && line.reward <= 1e30 && (!with_id || line.id)));
        ARES_ASSERT((line.kind == ARES_SERVE_LINE_FAILURE) == (line.why != NULL));
        ares_arena_fini(&arena);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 20000) return 0;
    ares_view rest = { (const char *)data + 1, size - 1 };
    if (data[0] == 'r') try_request(rest);
    else if (data[0] == 'l') try_line(rest);
    else try_text(data[1], (ares_view){ rest.data + 1, rest.len - 1 });
    return 0;
}
