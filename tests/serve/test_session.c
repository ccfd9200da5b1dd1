/* Sessions: what is kept, what is forgotten, what follows a kept answer. */
#include "openai.h"
#include "test.h"

#include <dirent.h>
#include <stdio.h>

static const ares_json *parse(ares_arena *arena, const char *text)
{
    const ares_json *v = NULL;
    CHECK_OK(ares_json_parse(arena, ares_view_of(text), "test", &v));
    return v;
}

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define SAID(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"

static void keep(serve_session *s, ares_arena *arena, const char *messages, const char *said,
                 const int32_t *ids, int64_t n, int64_t k)
{
    serve_talk talk = { .messages = parse(arena, messages) };
    serve_answer answer = { .content = ares_view_of(said) };
    serve_session_keep(s, &talk, &answer, NULL, &(serve_kept){ .ids = ids, .n = n, .k = k });
}

static int64_t match(serve_session *s, ares_arena *arena, const char *messages, bool continues,
                     serve_kept *kept)
{
    serve_talk talk = { .messages = parse(arena, messages), .continue_final_message = continues };
    return serve_session_match(s, &talk, kept);
}

TEST(a_kept_answer_gives_its_ids_back)
{
    ares_arena arena = { 0 };
    serve_session *s = serve_session_new();
    serve_kept kept;
    int32_t ids[] = { 5, 6, 7 };
    keep(s, &arena, "[" USER("q") "]", "A", ids, 3, 2);
    keep(s, &arena, "[" USER("q") "]", "A", ids, 2, 1);
    ids[0] = 9; /* the session has its own */
    CHECK_EQ(match(s, &arena, "[" USER("q") "," SAID(" A ") "," USER("r") "]", false, &kept), 1);
    CHECK(kept.n == 2 && kept.k == 1 && kept.ids[0] == 5); /* of equal ones the lowest k */
    CHECK_EQ(match(s, &arena, "[" USER("q") "," SAID("B") "," USER("r") "]", false, &kept), -1);
    serve_session_free(s);
    ares_arena_fini(&arena);
}

TEST(a_continued_message_is_kept_whole)
{
    ares_arena arena = { 0 };
    serve_session *s = serve_session_new();
    serve_kept kept;
    int32_t ids[] = { 1, 2 };
    serve_talk talk = { .messages = parse(&arena, "[" USER("q") "," SAID("It is ") "]"),
                        .continue_final_message = true };
    serve_answer answer = { .content = ARES_VIEW("four.") };
    serve_session_keep(s, &talk, &answer, NULL, &(serve_kept){ .ids = ids, .n = 2 });
    CHECK_EQ(
        match(s, &arena, "[" USER("q") "," SAID("It is four.") "," USER("r") "]", false, &kept), 1);
    CHECK_EQ(match(s, &arena, "[" USER("q") "," SAID("It is four.") "]", true, &kept), -1);
    CHECK_EQ(match(s, &arena, "[" USER("q") "," SAID("four.") "," USER("r") "]", false, &kept), -1);
    serve_session_free(s);
    ares_arena_fini(&arena);
}

TEST(the_longest_kept_text_begins_a_prompt)
{
    serve_session *s = serve_session_new();
    serve_kept kept;
    int32_t ids[] = { 1, 2, 3 };
    serve_session_keep_text(s, ARES_VIEW("a"), ARES_VIEW("b"), &(serve_kept){ .ids = ids, .n = 2 });
    serve_session_keep_text(s, ARES_VIEW("ab"), ARES_VIEW("\0c"),
                            &(serve_kept){ .ids = ids, .n = 3 });
    CHECK_EQ(serve_session_match_text(s, ARES_VIEW("ab\0cd"), &kept), 4);
    CHECK_EQ(kept.n, 3);
    CHECK_EQ(serve_session_match_text(s, ARES_VIEW("ab\0d"), &kept), 2);
    CHECK_EQ(kept.n, 2);
    CHECK_EQ(serve_session_match_text(s, ARES_VIEW("b"), &kept), 0);
    /* texts and chats of a session do not meet */
    ares_arena arena = { 0 };
    CHECK_EQ(match(s, &arena, "[" SAID("") "]", false, &kept), -1);
    ares_arena_fini(&arena);
    serve_session_free(s);
}

TEST(the_longest_unused_session_is_forgotten)
{
    ares_arena arena = { 0 };
    serve_sessions *t = serve_sessions_new(3, 1 << 20);
    serve_kept kept;
    char name[2] = "a";
    int32_t ids[4] = { 0 };
    for (; name[0] < 'd'; name[0]++)
        keep(serve_sessions_open(t, ares_view_of(name)), &arena, "[" USER("q") "]", "A", ids, 4, 0);
    serve_sessions_open(t, ARES_VIEW("a")); /* used again: b is the one to go */
    serve_sessions_open(t, ARES_VIEW("d"));
    CHECK_EQ(serve_sessions_count(t), 3);
    static const char asked[] = "[" USER("q") "," SAID("A") "]";
    CHECK_EQ(match(serve_sessions_open(t, ARES_VIEW("a")), &arena, asked, false, &kept), 1);
    CHECK_EQ(match(serve_sessions_open(t, ARES_VIEW("c")), &arena, asked, false, &kept), 1);
    CHECK_EQ(match(serve_sessions_open(t, ARES_VIEW("b")), &arena, asked, false, &kept), -1);
    serve_sessions_free(t);
    ares_arena_fini(&arena);
}

TEST(sessions_hold_no_more_ids_than_they_may)
{
    ares_arena arena = { 0 };
    serve_sessions *t = serve_sessions_new(100, 40000);
    serve_kept kept;
    int32_t *ids = ares_arena_calloc(&arena, 2000, sizeof *ids); /* 8,000 bytes */
    static const char *const said[] = { "A", "B", "C", "D", "E", "F", "G", "H" };
    for (int i = 0; i < 3; i++)
        keep(serve_sessions_open(t, ARES_VIEW("other")), &arena, "[" USER("q") "]", said[i], ids,
             2000, 0);
    serve_sessions_trim(t);
    CHECK_EQ(serve_sessions_count(t), 1);
    for (int i = 0; i < 8; i++) {
        serve_session *s = serve_sessions_open(t, ARES_VIEW("mine"));
        keep(s, &arena, "[" USER("q") "]", said[i], ids, 2000, 0);
        if (i > 0) /* the first answer stays in use */
            CHECK_EQ(match(s, &arena, "[" USER("q") "," SAID("A") "]", false, &kept), 1);
        serve_sessions_trim(t);
    }
    CHECK_EQ(serve_sessions_count(t), 1); /* other went first, then answers of this one */
    int left = 0;
    serve_session *s = serve_sessions_open(t, ARES_VIEW("mine"));
    for (int i = 0; i < 8; i++) {
        const char *asked = ares_arena_printf(&arena, "[" USER("q") "," SAID("%s") "]", said[i]);
        left += match(s, &arena, asked, false, &kept) == 1;
    }
    CHECK_EQ(left, 4); /* 40,000 bytes hold four of them beside what each needs itself */
    CHECK_EQ(match(s, &arena, "[" USER("q") "," SAID("A") "]", false, &kept), 1);
    CHECK_EQ(match(s, &arena, "[" USER("q") "," SAID("B") "]", false, &kept), -1);
    serve_sessions_free(t);
    ares_arena_fini(&arena);
}

/* ------------------------------------------------------------------ what follows a kept answer */
typedef struct renderer {
    ares_chat *chat;
    ares_arena *arena;
    bool generic;
} renderer;

static int render(void *ctx, const ares_json *messages, bool last, ares_str *out)
{
    renderer *r = ctx;
    serve_for_template how = { .generic = r->generic };
    messages = serve_messages_for_template(r->arena, messages, NULL, how);
    ares_json generate = { .type = ARES_JSON_BOOL, .boolean = last };
    ares_json_member members[] = { { ARES_VIEW("messages"), messages },
                                   { ARES_VIEW("add_generation_prompt"), &generate } };
    ares_json variables = { .type = ARES_JSON_OBJECT, .count = 2, .members = members };
    return ares_chat_render(r->chat, &variables, NULL, out);
}

#define CHATML                                                                    \
    "{% for m in messages %}<s>{{ m.role }}:{{ m.content|trim }}</s>{% endfor %}" \
    "{% if add_generation_prompt %}<s>assistant:{% endif %}"

static void check_after(const char *template, const char *messages, int64_t message,
                        const char *want)
{
    ares_arena arena = { 0 };
    renderer r = { .arena = &arena };
    ares_str out = { 0 };
    if (CHECK_OK(ares_chat_new("t", ares_view_of(template), NULL, &r.chat))) {
        bool found = serve_text_after(&arena, parse(&arena, messages), message, render, &r, &out);
        CHECK_EQ(found, want != NULL);
        if (want) CHECK_STR(out.data, want);
    }
    ares_chat_free(r.chat);
    ares_str_fini(&out);
    ares_arena_fini(&arena);
}

TEST(what_a_template_writes_after_a_kept_answer)
{
    static const char talk[] = "[" USER("q") "," SAID("A") "," USER("r") "]";
    check_after(CHATML, talk, 1, "</s><s>user:r</s><s>assistant:");
    check_after(CHATML, "[" USER("q") "," SAID("A") "]", 1, "</s><s>assistant:");
    /* writes the answer twice: what all messages add to those up to it, after the mark's ending */
    check_after("{% for m in messages %}[{{ m.role }}:{{ m.content }}|{{ m.content|length }}]"
                "{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}",
                talk, 1, "|20][user:r|1][assistant:"); /* once: its length is no mark */
    /* raises where the answer to a tool's message is a plain text */
    check_after(
        "{% for m in messages %}{% if m.role == 'tool' and not messages[loop.index0 - "
        "1].tool_calls %}{{ raise_exception('no calls') }}{% endif %}<{{ m.content }}>"
        "{% endfor %}{% if add_generation_prompt %}!{% endif %}",
        "[" USER(
            "q") ",{\"role\":\"assistant\",\"content\":\"A\",\"tool_calls\":[{\"function\":"
                 "{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"content\":\"5\"}]",
        1, "><5>!");
    /* writes each text twice: the ending is not told apart */
    check_after("{% for m in messages %}{{ m.content }}{{ m.content }};{% endfor %}", talk, 1,
                NULL);
    /* rewrites earlier messages: no prefix */
    check_after("{{ messages|length }}{% for m in messages %}{% if messages|length > 2 and "
                "loop.index0 == 1 %}{{ raise_exception('x') }}{% endif %}{{ m.content }}"
                "{% endfor %}",
                talk, 1, NULL);
    CHECK_STR(ares_error_message(), "");
}

/* After a text and after a call: what is written after the mark ends the text of the answer, too.
 */
TEST(what_follows_a_mark_follows_the_answer_in_every_template)
{
    static const char folder[] = ARES_SOURCE_DIR "/tests/golden/chat/templates";
    static const char *const talks[] = {
        "[" USER("q") "," SAID("Answer") "," USER("r") "]",
        "[" USER("q") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":"
                      "\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                      "\"arguments\":\"{\\\"x\\\":1}\"}}]},{\"role\":\"tool\","
                      "\"tool_call_id\":\"abcdefghi\",\"name\":\"f\",\"content\":\"5\"}]"
    };
    DIR *dir = opendir(folder);
    int tried = 0;
    REQUIRE(dir != NULL);
    for (struct dirent *file; (file = readdir(dir));) {
        if (file->d_name[0] == '.') continue;
        ares_arena arena = { 0 };
        ares_str path = { 0 }, source = { 0 };
        renderer r = { .arena = &arena };
        const ares_json *config = parse(&arena, "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
        if (CHECK_OK(ares_file_read(ares_path_join(&path, folder, file->d_name), &source)) &&
            CHECK_OK(ares_chat_new("t", ares_str_view(&source), config, &r.chat))) {
            r.generic = !ares_chat_reads(r.chat, ARES_VIEW("tools"));
            for (int k = 0; k < ARES_COUNT(talks); k++) {
                const ares_json *messages = parse(&arena, talks[k]);
                ares_str all = { 0 }, tail = { 0 };
                if (CHECK_OK(render(&r, messages, true, &all))) {
                    bool found = serve_text_after(&arena, messages, 1, render, &r, &tail);
                    CHECK_MSG(found && all.len > tail.len &&
                                  strcmp(all.data + all.len - tail.len, tail.data) == 0,
                              "%s, talk %d: '%s'", file->d_name, k, tail.data ? tail.data : "");
                    tried++;
                }
                ares_str_fini(&all);
                ares_str_fini(&tail);
            }
            ares_chat_free(r.chat);
        }
        ares_str_fini(&path);
        ares_str_fini(&source);
        ares_arena_fini(&arena);
    }
    closedir(dir);
    CHECK(tried >= 40);
}

TEST(an_end_token_that_the_model_wrote_is_not_written_again)
{
    ares_tokenizer *t;
    REQUIRE_OK(ares_tokenizer_load(ARES_SOURCE_DIR "/tests/golden/tokenizer/added", &t));
    ares_ids tail = { 0 }, out = { 0 };
    REQUIRE_OK(ares_tokenizer_encode(t, ARES_VIEW("<|im_end|>\nx"), false, &tail));
    if (CHECK(tail.n > 2)) {
        int32_t end = tail.ids[0], ids[] = { 7, end };
        serve_kept kept = { .ids = ids, .n = 2 };
        CHECK_OK(serve_ids_after(t, &kept, ARES_VIEW("<|im_end|>\nx"), &end, 1, &out));
        CHECK_EQ(out.n, 2 + tail.n - 1);
        CHECK_MEM(out.ids + 2, tail.ids + 1, (size_t)(tail.n - 1) * sizeof *out.ids);
        ares_ids_clear(&out);
        kept.n = 1; /* cut at its length: the template ends the message */
        CHECK_OK(serve_ids_after(t, &kept, ARES_VIEW("<|im_end|>\nx"), &end, 1, &out));
        CHECK_EQ(out.n, 1 + tail.n);
        CHECK_EQ(out.ids[1], end);
    }
    ares_ids_fini(&tail);
    ares_ids_fini(&out);
    ares_tokenizer_free(t);
}

/* ------------------------------------------------------------------ rows */
TEST(a_record_extends_the_longest_row_that_begins_its_prompt)
{
    ares_arena arena = { 0 };
    static const int32_t ids[] = { 1, 2, 3, 4, 5 };
    static const float log_probs[] = { -1, -2 };
    ares_serve_record records[] = {
        { .prompt = ids, .n_prompt = 1, .ids = ids + 1, .n = 1 },
        { .prompt = ids, .n_prompt = 1, .ids = ids + 1, .n = 2, .index = 1 },
        { .prompt = ids, .n_prompt = 4, .ids = ids + 4, .n = 1 },
    };
    ares_serve_row *rows;
    for (int i = 0; i < ARES_COUNT(records); i++)
        records[i].log_probs = log_probs, records[i].train = true;
    if (CHECK_EQ(ares_serve_rows(&arena, records, ARES_COUNT(records), &rows), 2)) {
        CHECK_EQ(rows[0].n_records, 1);
        CHECK_EQ(rows[1].n_records, 2);
        CHECK_EQ(rows[1].n, 4);
    }
    ares_arena_fini(&arena);
}

TEST(every_sampled_token_is_trained_on_in_one_row)
{
    ares_rng_key root = ares_rng_root(3, ARES_RNG_TEST);
    for (uint64_t i = 0; i < 2000; i++) {
        ares_arena arena = { 0 };
        ares_rng_key key = ares_rng_sub(root, i, 0);
        enum { N = 12 };
        ares_serve_record records[N], shuffled[N];
        int64_t sampled = 0, trained = 0, order[N];
        for (int r = 0; r < N; r++) {
            int32_t *ids = ares_arena_calloc(&arena, 64, sizeof *ids), n = 1;
            float *log_probs = ares_arena_calloc(&arena, 64, sizeof *log_probs);
            uint64_t at = (uint64_t)r * 100;
            ids[0] = 1;
            int from = (int)ares_rng_below(key, at, (uint64_t)r + 1);
            if (r && ares_rng_below(key, at + 1, 4)) { /* goes on from another */
                const ares_serve_record *p = &records[ARES_MIN(from, r - 1)];
                n = (int32_t)(p->n_prompt + p->n);
                memcpy(ids, p->prompt, (size_t)n * sizeof *ids);
                if (n < 40) ids[n++] = (int32_t)ares_rng_below(key, at + 2, 2);
            }
            int32_t own = 1 + (int32_t)ares_rng_below(key, at + 3, 3);
            for (int k = 0; k < own; k++) {
                ids[n + k] = (int32_t)ares_rng_below(key, at + 4 + (uint64_t)k, 2);
                log_probs[k] = -(float)(k + 1);
            }
            records[r] = (ares_serve_record){ .prompt = ids,
                                              .ids = ids + n,
                                              .n_prompt = n,
                                              .n = own,
                                              .log_probs = log_probs,
                                              .k = r,
                                              .train = true };
            sampled += own;
            order[r] = r;
        }
        ares_rng_shuffle(ares_rng_sub(key, 9, 9), order, N);
        for (int r = 0; r < N; r++) shuffled[r] = records[order[r]];
        ares_serve_row *rows, *again;
        int n = ares_serve_rows(&arena, records, N, &rows),
            m = ares_serve_rows(&arena, shuffled, N, &again);
        CHECK_EQ(m, n);
        for (int r = 0; r < n && n == m; r++) {
            CHECK_EQ(rows[r].n, again[r].n); /* the order of arrival changes nothing */
            CHECK_MEM(rows[r].responses, again[r].responses, (size_t)rows[r].n * 4);
            CHECK_MEM(rows[r].mask, again[r].mask, (size_t)rows[r].n);
            CHECK_MEM(rows[r].log_probs, again[r].log_probs, (size_t)rows[r].n * 4);
            for (int64_t k = 0; k < rows[r].n; k++) trained += rows[r].mask[k];
        }
        CHECK_EQ(trained, sampled);
        ares_arena_fini(&arena);
    }
}
