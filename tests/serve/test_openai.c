/* Requests, tool calls and pieces of answers, where serve.json shows too little. */
#include "openai.h"
#include "test.h"

#include <stdio.h>

/* ------------------------------------------------------------------ pieces */
enum { MOST_TOKENS = 64 };

typedef struct tokens {
    ares_view bytes[MOST_TOKENS];
    bool special[MOST_TOKENS];
    int n;
} tokens;

/* What an answer became, and its joined pieces. */
typedef struct outcome {
    serve_cut *cut;
    const serve_answer *answer;
    ares_str content, reasoning;
} outcome;

static outcome play(const serve_cut_options *o, const tokens *t, bool by_eos)
{
    outcome out = { .cut = serve_cut_new(o) };
    serve_piece piece;
    int64_t next = 0;
    bool ended = false;
    for (int i = 0; i < t->n && !ended; i++) {
        serve_token_kind kind = i < t->n - 1 ? SERVE_TOKEN_PLAIN
                                : by_eos     ? SERVE_TOKEN_EOS
                                             : SERVE_TOKEN_LAST;
        ended = serve_cut_add(out.cut, t->bytes[i], t->special[i], kind, &piece);
        if (ended || serve_piece_is_empty(&piece)) continue;
        CHECK(piece.content.len + piece.reasoning.len > 0);
        CHECK_EQ(piece.first, next);
        CHECK(ares_view_is_utf8(piece.content) && ares_view_is_utf8(piece.reasoning));
        next = piece.end;
        ares_str_add_view(&out.content, piece.content);
        ares_str_add_view(&out.reasoning, piece.reasoning);
    }
    serve_cut_finish(out.cut, &piece);
    out.answer = serve_cut_answer(out.cut);
    CHECK_EQ(piece.first, next);
    CHECK_EQ(piece.end, out.answer->n_tokens);
    ares_str_add_view(&out.content, piece.content);
    ares_str_add_view(&out.reasoning, piece.reasoning);
    return out;
}

static void outcome_fini(outcome *o)
{
    serve_cut_free(o->cut);
    ares_str_fini(&o->content);
    ares_str_fini(&o->reasoning);
}

/* The text as tokens of random lengths, also none; characters are cut anywhere. */
static void split(tokens *t, ares_view text, ares_rng_key key)
{
    *t = (tokens){ 0 };
    size_t at = 0;
    for (uint64_t i = 0; t->n < MOST_TOKENS - 1 && at < text.len; i++) {
        size_t n = (size_t)ares_rng_below(key, i, 1 + ARES_MIN(text.len - at, 7));
        t->bytes[t->n++] = (ares_view){ text.data + at, n };
        at += n;
    }
    t->bytes[t->n++] = (ares_view){ text.data + at, text.len - at };
}

/* Texts that are made of what matters: tags, their beginnings, calls, characters, white space. */
static void random_text(ares_str *text, ares_rng_key key)
{
    static const char *const parts[] = {
        "a",
        " ",
        "\n",
        "é",
        "😀",
        "<tool_call>",
        "</tool_call>",
        "<tool",
        "<think>",
        "</think>",
        "</thin",
        "{\"name\": \"f\", \"arguments\": {\"x\": 1}}",
        "{\"name\": \"g\", \"parameters\": {}}",
        "<|python_tag|>",
        "<|py",
        "END",
        "EN",
        "\xc3",
        "\xe6\x97",
        "b c",
        ";",
        "[{\"name\": \"h\"}]",
        "\xff",
        "  ",
        "<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
        "E",
    };
    uint64_t n = ares_rng_below(key, 0, 12);
    for (uint64_t i = 1; i <= n; i++)
        ares_str_add_z(text, parts[ares_rng_below(key, i, ARES_COUNT(parts))]);
}

static bool same_answer(const serve_answer *a, const serve_answer *b)
{
    bool same = a->finish == b->finish && a->stop == b->stop && a->n_calls == b->n_calls &&
                ares_view_eq(a->content, b->content) && ares_view_eq(a->reasoning, b->reasoning) &&
                a->content_is_null == b->content_is_null && a->has_reasoning == b->has_reasoning;
    for (int i = 0; same && i < a->n_calls; i++)
        same = ares_view_eq(a->calls[i].name, b->calls[i].name) &&
               ares_view_eq(a->calls[i].arguments, b->calls[i].arguments);
    return same;
}

/* Without stop strings an answer is a function of its bytes, whatever its tokens are. */
TEST(pieces_of_any_split_join_to_the_whole_answer)
{
    ares_rng_key root = ares_rng_root(1, ARES_RNG_TEST);
    int with_calls = 0, with_thoughts = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        ares_str text = { 0 };
        ares_rng_key key = ares_rng_sub(root, i, 0);
        random_text(&text, key);
        serve_cut_options o = {
            .form = (serve_form)ares_rng_below(key, 100, 3),
            .reasoning = ares_rng_below(key, 101, 2),
            .opened = ares_rng_below(key, 102, 2),
            .skip_special = true,
        };
        tokens whole = { .bytes = { ares_str_view(&text) }, .n = 1 }, parts;
        outcome one = play(&o, &whole, false);
        for (uint64_t k = 0; k < 3; k++) {
            split(&parts, ares_str_view(&text), ares_rng_sub(key, 1, k));
            outcome many = play(&o, &parts, false);
            bool right = same_answer(one.answer, many.answer) &&
                         ares_view_eq(ares_str_view(&many.content), many.answer->content) &&
                         ares_view_eq(ares_str_view(&many.reasoning), many.answer->reasoning);
            CHECK_MSG(right, "case %llu: \"%s\" gave \"%s\" and \"%s\"", (unsigned long long)i,
                      text.data ? text.data : "", one.answer->content.data, many.content.data);
            if (!right) i = 20000;
            outcome_fini(&many);
        }
        with_calls += one.answer->n_calls > 0;
        with_thoughts += one.answer->has_reasoning;
        outcome_fini(&one);
        ares_str_fini(&text);
    }
    CHECK(with_calls > 500); /* the texts are worth reading */
    CHECK(with_thoughts > 500);
}

/* The token at which a text first holds a stop string, by looking at every beginning of it. */
static int token_of_stop(const tokens *t, const serve_cut_options *o, size_t *begins, int *which)
{
    ares_str bytes = { 0 }, text = { 0 };
    int found = -1;
    for (int i = 0; i < t->n && found < 0; i++) {
        ares_str_add_view(&bytes, t->bytes[i]);
        ares_str_clear(&text);
        for (const char *p = bytes.data, *end = p + bytes.len; p < end;) {
            uint32_t c;
            int len = ares_utf8_next(p, end, &c);
            bool open =
                len < 0 && p - len == end && (unsigned char)*p >= 0xC2 && (unsigned char)*p <= 0xF4;
            if (open) break;
            if (len > 0) ares_str_add(&text, p, (size_t)len);
            else ares_str_add_z(&text, "\xEF\xBF\xBD");
            p += abs(len);
        }
        for (int k = 0; k < o->n_stop; k++) {
            int64_t at = ares_view_find(ares_str_view(&text), o->stop[k], 0);
            if (at < 0 || (found >= 0 && (size_t)at >= *begins)) continue;
            found = i;
            *begins = (size_t)at;
            *which = k;
        }
    }
    ares_str_fini(&bytes);
    ares_str_fini(&text);
    return found;
}

TEST(a_stop_string_ends_an_answer_at_the_token_that_completes_it)
{
    static const ares_view stops[] = {
        { "EEN", 3 }, { "a", 1 }, { "é<", 3 }, { "\xEF\xBF\xBD", 3 }
    };
    ares_rng_key root = ares_rng_root(2, ARES_RNG_TEST);
    int stopped = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        ares_str text = { 0 };
        ares_rng_key key = ares_rng_sub(root, i, 0);
        tokens parts;
        random_text(&text, key);
        ares_view chosen[2] = { stops[ares_rng_below(key, 100, 4)],
                                stops[ares_rng_below(key, 101, 4)] };
        serve_cut_options o = { .stop = chosen,
                                .n_stop = 2,
                                .form = (serve_form)ares_rng_below(key, 102, 3),
                                .reasoning = ares_rng_below(key, 103, 2),
                                .include_stop = ares_rng_below(key, 104, 2) };
        split(&parts, ares_str_view(&text), ares_rng_sub(key, 1, 0));
        outcome out = play(&o, &parts, false);
        size_t begins = 0;
        int which = -1, at = token_of_stop(&parts, &o, &begins, &which);
        bool right = out.answer->stop == which &&
                     out.answer->n_tokens == (at < 0 ? parts.n : at + 1) &&
                     ares_view_eq(ares_str_view(&out.content), out.answer->content) &&
                     ares_view_eq(ares_str_view(&out.reasoning), out.answer->reasoning);
        if (right && !o.reasoning && out.answer->n_calls == 0 && at >= 0)
            right = out.answer->content.len == begins + (o.include_stop ? chosen[which].len : 0);
        CHECK_MSG(right, "case %llu: \"%s\"", (unsigned long long)i, text.data ? text.data : "");
        if (!right) i = 20000;
        stopped += at >= 0;
        outcome_fini(&out);
        ares_str_fini(&text);
    }
    CHECK(stopped > 2000);
}

static outcome play_z(const serve_cut_options *o, const char *const *pieces, int n, bool by_eos)
{
    tokens t = { .n = n };
    for (int i = 0; i < n; i++) {
        t.bytes[i] = ares_view_of(pieces[i]);
        t.special[i] = pieces[i][0] == '<' && pieces[i][1] == '|';
    }
    return play(o, &t, by_eos);
}

TEST(a_forced_call_is_read_with_its_opening)
{
    ares_arena arena = { 0 };
    serve_cut_options o = { .form = SERVE_FORM_HERMES, .one_call = true, .skip_special = true };
    o.opening = serve_opening(&arena, o.form, SERVE_CHOOSE_FUNCTION, ARES_VIEW("add"));
    static const char *const call[] = { "{\"a\"", ": 1}", "}\n</tool", "_call>\n", "more" },
                             *const words[] = { "I ", "cannot", "<|im_end|>" };
    outcome out = play_z(&o, call, 5, false);
    CHECK_EQ(out.answer->n_tokens, 4); /* the token that completes the call is the last */
    CHECK_EQ(out.answer->finish, SERVE_FINISH_TOOL_CALLS);
    CHECK(out.answer->content_is_null);
    if (CHECK_EQ(out.answer->n_calls, 1)) {
        CHECK_VIEW(out.answer->calls[0].name, "add");
        CHECK_VIEW(out.answer->calls[0].arguments, "{\"a\": 1}");
    }
    outcome_fini(&out);
    out = play_z(&o, words, 3, true); /* no call: the opening is content */
    CHECK_EQ(out.answer->n_calls, 0);
    CHECK_EQ(out.answer->finish, SERVE_FINISH_STOP);
    CHECK_VIEW(out.answer->content, "<tool_call>\n{\"name\": \"add\", \"arguments\": I cannot");
    CHECK_VIEW(out.answer->sampled, "I cannot"); /* what was sampled alone */
    outcome_fini(&out);

    static const char *const llama[] = { "{\"a\": {}", "}", "}; {" };
    o.form = SERVE_FORM_LLAMA3_JSON;
    o.opening = serve_opening(&arena, o.form, SERVE_CHOOSE_FUNCTION, ARES_VIEW("add"));
    out = play_z(&o, llama, 3, false);
    CHECK_EQ(out.answer->n_tokens, 3);
    if (CHECK_EQ(out.answer->n_calls, 1)) /* what follows in the last token is not read */
        CHECK_VIEW(out.answer->calls[0].arguments, "{\"a\": {}}");
    outcome_fini(&out);
    ares_arena_fini(&arena);
}

TEST(special_tokens_are_read_as_text_but_not_shown)
{
    static const char *const pieces[] = { "Hm ",          "<|x|>",
                                          "<tool_call>",  "{\"name\": \"f\"}",
                                          "</tool_call>", " ok ",
                                          "<|im_end|>" },
                             *const llama[] = { "<|python_tag|>",
                                                "{\"name\": \"f\", \"parameters\": {}}",
                                                "<|eom_id|>" };
    serve_cut_options o = { .form = SERVE_FORM_HERMES, .skip_special = true };
    outcome out = play_z(&o, pieces, 7, true);
    CHECK_EQ(out.answer->n_calls, 1);
    CHECK_VIEW(out.answer->content, "Hm\nok");
    outcome_fini(&out);
    o.skip_special = false; /* now the client sees <|x|>, but not the end token */
    out = play_z(&o, pieces, 7, true);
    CHECK_VIEW(out.answer->content, "Hm <|x|>\nok");
    outcome_fini(&out);
    o = (serve_cut_options){ .form = SERVE_FORM_LLAMA3_JSON, .skip_special = true };
    out = play_z(&o, llama, 3, true);
    CHECK_EQ(out.answer->n_calls, 1);
    CHECK(out.answer->content_is_null);
    outcome_fini(&out);
}

TEST(a_tag_within_a_thought_holds_nothing_back_once_the_thought_is_over)
{
    static const char *const pieces[] = { "a <tool_call>", " b", "</think>", " c", " d" };
    serve_cut *c = serve_cut_new(&(serve_cut_options){ .form = SERVE_FORM_HERMES });
    ares_str out = { 0 };
    serve_piece piece;
    for (int i = 0; i < ARES_COUNT(pieces); i++) {
        CHECK(!serve_cut_add(c, ares_view_of(pieces[i]), false, SERVE_TOKEN_PLAIN, &piece));
        ares_str_add_view(&out, piece.content);
        if (i < 2) CHECK_STR(out.data, "a");
    }
    CHECK_STR(out.data, "a <tool_call> b</think> c d");
    serve_cut_finish(c, &piece);
    serve_cut_free(c);
    ares_str_fini(&out);
}

TEST(an_answer_that_the_client_saw_whole_may_be_kept)
{
    static const char *const inside[] = { "one END", " two" }, *const after[] = { "one ENDS" };
    ares_view stop = ARES_VIEW("END");
    serve_cut_options o = { .stop = &stop, .n_stop = 1 };
    outcome out = play_z(&o, inside, 2, false);
    CHECK(!out.answer->whole);
    CHECK_VIEW(out.answer->sampled, "one END");
    outcome_fini(&out);
    o.include_stop = true;
    out = play_z(&o, inside, 2, false);
    CHECK(out.answer->whole);
    outcome_fini(&out);
    out = play_z(&o, after, 1, false); /* its ids hold an S that the client never saw */
    CHECK(!out.answer->whole);
    CHECK_VIEW(out.answer->sampled, "one ENDS");
    outcome_fini(&out);
    o.n_stop = 0;
    out = play_z(&o, inside, 2, false);
    CHECK(out.answer->whole);
    outcome_fini(&out);
}

/* ------------------------------------------------------------------ forms */
static serve_form form_of(const char *source)
{
    ares_chat *chat;
    serve_form form = SERVE_FORM_NONE;
    if (CHECK_OK(ares_chat_new("t", ares_view_of(source), NULL, &chat))) form = serve_form_of(chat);
    ares_chat_free(chat);
    return form;
}

TEST(a_template_says_which_form_its_calls_have)
{
    CHECK_EQ(form_of("{{ tools }}<tool_call>"), SERVE_FORM_HERMES);
    CHECK_EQ(form_of("{{ tools }}<tool_call><function=f>"), SERVE_FORM_NONE);
    CHECK_EQ(form_of("{{ tools }}<|python_tag|><tool_call>"), SERVE_FORM_LLAMA3_JSON);
    CHECK_EQ(form_of("{{ tools }}"), SERVE_FORM_NONE);
    CHECK_EQ(form_of("{{ messages }}"), SERVE_FORM_HERMES); /* the generic form */
}

static const ares_json *parse(ares_arena *arena, const char *text)
{
    const ares_json *v = NULL;
    CHECK_OK(ares_json_parse(arena, ares_view_of(text), "test", &v));
    return v;
}

static void check_messages(const char *messages, serve_for_template how, const char *tools,
                           const char *want)
{
    ares_arena arena = { 0 };
    ares_str got = { 0 };
    ares_json_write(&got, serve_messages_for_template(&arena, parse(&arena, messages),
                                                      tools ? parse(&arena, tools) : NULL, how));
    CHECK_STR(got.data, want);
    ares_str_fini(&got);
    ares_arena_fini(&arena);
}

TEST(a_template_is_given_parsed_arguments_and_texts)
{
    serve_for_template plain = { 0 }, vision = { .vision = true },
                       generic = { .generic = true, .vision = true };
    check_messages("[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                   "{\"type\":\"text\",\"text\":\"b\"}],\"more\":1}]",
                   plain, NULL, "[{\"role\":\"system\",\"content\":\"a\\nb\",\"more\":1}]");
    check_messages("[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"function\":"
                   "{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]}]",
                   plain, NULL,
                   "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"function\":"
                   "{\"name\":\"f\",\"arguments\":{\"x\":1}}}],\"content\":\"\"}]");
    check_messages("[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":"
                   "{\"name\":\"f\",\"arguments\":\"{x\"}}]}]",
                   plain, NULL,
                   "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":"
                   "{\"name\":\"f\",\"arguments\":\"{x\"}}]}]");
    /* clients send empty lists; templates ask whether the key is there */
    check_messages("[{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[]}]", plain, NULL,
                   "[{\"role\":\"assistant\",\"content\":\"x\"}]");
    const char *image = "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":"
                        "{\"url\":\"data:image/png;base64,AAAA\"}}]}]";
    check_messages(image, vision, NULL, image);
    check_messages("[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"tool\",\"content\":"
                   "\"1\"},{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"2\"}]}]",
                   generic, NULL,
                   "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":"
                   "\"<tool_response>\\n1\\n</tool_response>\\n<tool_response>\\n2\\n"
                   "</tool_response>\"}]");
    ares_arena arena = { 0 };
    const ares_json *m = serve_messages_for_template(
        &arena, parse(&arena, "[{\"role\":\"system\",\"content\":\"S\"}]"),
        parse(&arena, "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"), generic);
    CHECK_EQ(m->count, 1); /* the tools join the system message that is there */
    CHECK(
        ares_view_starts(ares_json_get(&m->items[0], "content")->text, ARES_VIEW("S\n\n# Tools")));
    ares_arena_fini(&arena);
}

/* ------------------------------------------------------------------ requests */
static const char *const models[] = { "base", "mine" };
static const serve_reading reading = {
    .models = models, .n_models = 2, .vocab_size = 512, .vision = true, .form = SERVE_FORM_HERMES
};

static serve_code ask(ares_arena *arena, const serve_reading *with, serve_endpoint endpoint,
                      const char *body, serve_asked *asked, serve_error *e)
{
    *e = (serve_error){ 0 };
    return serve_request_read(arena, with, endpoint, ares_view_of(body), asked, e);
}

static void check_refused(serve_endpoint endpoint, const char *body, const char *code,
                          const char *part)
{
    ares_arena arena = { 0 };
    serve_asked asked;
    serve_error e;
    serve_code got = ask(&arena, &reading, endpoint, body, &asked, &e);
    if (CHECK_STR(serve_code_name(got), code)) CHECK_CONTAINS(e.message, part);
    ares_arena_fini(&arena);
}

#define CHAT(fields) "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]," fields "}"
#define PARTS(parts) "{\"messages\":[{\"role\":\"user\",\"content\":[" parts "]}]}"
#define IMAGE(url) PARTS("{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\"}}")

TEST(a_refusal_says_what_to_do)
{
    check_refused(SERVE_CHAT, CHAT("\"temprature\":1"), "unknown_parameter",
                  "did you mean 'temperature'?");
    check_refused(SERVE_CHAT, CHAT("\"zzzzzzzz\":1"), "unknown_parameter", "leave it out");
    check_refused(SERVE_CHAT, CHAT("\"model\":\"gpt\""), "model_not_found", "base, mine");
    check_refused(SERVE_CHAT, CHAT("\"guided_regex\":\"a\""), "unsupported_parameter",
                  "guided_regex is not offered");
    check_refused(SERVE_CHAT, CHAT("\"top_logprobs\":2"), "invalid_value", "set logprobs to true");
    check_refused(SERVE_CHAT,
                  CHAT("\"continue_final_message\":true,\"add_generation_prompt\":true"),
                  "invalid_value", "set add_generation_prompt to false");
    check_refused(SERVE_CHAT, CHAT("\"seed\":18446744073709551616"), "invalid_value", "64 bits");
    check_refused(SERVE_CHAT, CHAT("\"seed\":-9223372036854775809"), "invalid_value", "64 bits");
    check_refused(SERVE_CHAT, CHAT("\"top_p\":0"), "invalid_value", "above 0 and at most 1");
    check_refused(SERVE_CHAT, CHAT("\"n\":129"), "invalid_value", "from 1 to 128");
    check_refused(SERVE_CHAT, CHAT("\"stop_token_ids\":[512]"), "invalid_value", "0 to 511");
    check_refused(SERVE_CHAT, CHAT("\"n\":2,\"best_of\":3"), "unsupported_parameter", "best_of");
    check_refused(SERVE_CHAT, "{", "invalid_json", "body:1:");
    check_refused(SERVE_CHAT, "", "invalid_json", "body");
    check_refused(SERVE_CHAT, "{\"messages\":[{\"role\":\"user\"}]}", "invalid_type",
                  "messages[0].content");
    check_refused(SERVE_CHAT, IMAGE("file:///etc/passwd"), "unsupported_content",
                  "opens no address and no file");
    check_refused(SERVE_CHAT, IMAGE("data:text/plain;base64,AAAA"), "unsupported_content", "image");
    check_refused(SERVE_CHAT, IMAGE("data:image/png;base64,A"), "invalid_value", "not base64");
    check_refused(SERVE_CHAT, PARTS("{\"type\":\"video_url\"}"), "unsupported_content",
                  "'video_url' (supported: text, image_url)");
    check_refused(SERVE_COMPLETIONS, "{\"prompt\":[]}", "invalid_value", "empty list");
    check_refused(SERVE_TOKENIZE, "{}", "missing_required_parameter", "prompt or messages");
    check_refused(SERVE_TOKENIZE, "{\"prompt\":\"a\",\"temperature\":1}", "unknown_parameter",
                  "temperature");
    check_refused(SERVE_DETOKENIZE, "{\"tokens\":[512]}", "invalid_value", "0 to 511");
}

TEST(a_request_keeps_what_it_says)
{
    ares_arena arena = { 0 };
    serve_asked a;
    serve_error e;
    serve_reading with = reading;
    with.session_header = ARES_VIEW("header");
    CHECK_EQ(ask(&arena, &with, SERVE_CHAT,
                 CHAT("\"tools\":[],\"seed\":null,\"best_of\":1,\"max_tokens\":7,"
                      "\"max_completion_tokens\":5,\"nothing\":null"),
                 &a, &e),
             SERVE_NO_ERROR);
    CHECK(!a.tools && !a.has_seed);
    CHECK_EQ(a.max_tokens, 5);
    CHECK_VIEW(a.session, "header");
    CHECK_EQ(ask(&arena, &with, SERVE_CHAT, CHAT("\"session_id\":\"field\""), &a, &e),
             SERVE_NO_ERROR);
    CHECK_VIEW(a.session, "field");
    with.training = true; /* an episode is the session */
    CHECK_EQ(ask(&arena, &with, SERVE_CHAT, CHAT("\"session_id\":\"field\""), &a, &e),
             SERVE_NO_ERROR);
    CHECK_VIEW(a.session, "");
    CHECK_EQ(ask(&arena, &with, SERVE_CHAT, IMAGE("data:image/png;base64,AAAA"), &a, &e),
             SERVE_unsupported_content);
    CHECK_EQ(ask(&arena, &reading, SERVE_CHAT,
                 PARTS("{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\",\"image_url\":"
                       "{\"url\":\"data:image/png;base64,AAAA\"}}"),
                 &a, &e),
             SERVE_NO_ERROR);
    if (CHECK(a.images && a.images->count == 1))
        CHECK_VIEW(a.images->items[0].text, "data:image/png;base64,AAAA");
    CHECK_EQ(ask(&arena, &reading, SERVE_COMPLETIONS, "{\"prompt\":[[1,2],[3]],\"max_tokens\":0}",
                 &a, &e),
             SERVE_NO_ERROR);
    CHECK(a.n_prompts == 2 && a.prompts[0].n == 2 && a.prompts[1].ids[0] == 3);
    CHECK(a.max_tokens == 0 && a.add_special_tokens);
    CHECK_EQ(ask(&arena, &reading, SERVE_TOKENIZE, "{\"prompt\":\"a\"}", &a, &e), SERVE_NO_ERROR);
    CHECK(a.add_special_tokens);
    CHECK_EQ(ask(&arena, &reading, SERVE_TOKENIZE,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", &a, &e),
             SERVE_NO_ERROR);
    CHECK(!a.add_special_tokens); /* the template names bos */
    CHECK_EQ(ask(&arena, &reading, SERVE_CHAT_TOKENS, "{\"tokens\":[4,5]}", &a, &e),
             SERVE_NO_ERROR);
    CHECK(!a.messages && a.n_prompts == 1 && a.prompts[0].ids[1] == 5);
    ares_arena_fini(&arena);
}

TEST(a_path_without_v1_is_told_where_it_is)
{
    static const struct {
        const char *path, *part;
    } cases[] = { { "/chat/completions", "base_url must end in /v1" },
                  { "/v1/responses", "use /v1/chat/completions" },
                  { "/v1/embeddings", "embeddings are not served" },
                  { "/v1/nothing", "/v1/models" } };
    ares_arena arena = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        serve_error e;
        serve_code code = serve_refuse_path(&e, &arena, ares_view_of(cases[i].path));
        CHECK_EQ(serve_status(code), 404);
        CHECK_CONTAINS(e.message, cases[i].part);
    }
    ares_arena_fini(&arena);
}

TEST(an_error_has_all_four_fields)
{
    ares_arena arena = { 0 };
    ares_str out = { 0 };
    serve_error e;
    serve_refuse_length(&e, &arena, "messages", 2048, 2000, 100);
    serve_error_write(&out, &e);
    const ares_json *error = ares_json_get(parse(&arena, out.data), "error");
    CHECK_CONTAINS(out.data, "This model's maximum context length is 2048 tokens");
    CHECK_CONTAINS(out.data, "2100");
    CHECK_VIEW(ares_json_get(error, "type")->text, "invalid_request_error");
    CHECK_VIEW(ares_json_get(error, "param")->text, "messages");
    CHECK_VIEW(ares_json_get(error, "code")->text, "context_length_exceeded");
    ares_str_clear(&out);
    serve_refuse(&e, &arena, SERVE_queue_full, NULL, "later");
    serve_error_write(&out, &e);
    CHECK_STR(out.data, "{\"error\":{\"message\":\"later\",\"type\":\"rate_limit_error\","
                        "\"param\":null,\"code\":\"queue_full\"}}");
    CHECK_EQ(serve_status(e.code), 429);
    ares_str_fini(&out);
    ares_arena_fini(&arena);
}
