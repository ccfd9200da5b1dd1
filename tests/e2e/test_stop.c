/*
 * A stop string ends an answer with the token that completes it, wherever the tokens begin and end.
 */
#include "ares/rollout.h"
#include "e2e.h"

#include "ares/text.h"

#include <ctype.h>
#include <stdio.h>

enum { SAMPLES = 8, TOKENS = 24 };
typedef struct answers {
    int n[SAMPLES];
    int32_t ids[SAMPLES][TOKENS];
    bool stopped[SAMPLES];
} answers;

/* Generates the same samples whatever the stop string. */
static void generate(const char *model, const char *stop, answers *out)
{
    ares_str text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *row = NULL;
    *out = (answers){ 0 };
    int rc = e2e_program(&text,
                         "generate --model '%s' --input '%s' --raw --ignore-eos --n %d "
                         "--max-new-tokens %d %s%s%s",
                         model, e2e_write("prompt.jsonl", "{\"prompt\":\"the\"}\n"), SAMPLES,
                         TOKENS, stop ? "--stop '" : "", stop ? stop : "", stop ? "'" : "");
    if (CHECK_MSG(rc == 0, "%s", text.data) &&
        CHECK_OK(ares_json_parse(&arena, ares_str_view(&text), "answers", &row))) {
        const ares_json *samples = ares_json_get(row, "samples");
        for (int i = 0; i < SAMPLES && CHECK(samples && samples->count == SAMPLES); i++) {
            const ares_json *ids = ares_json_get(&samples->items[i], "output_ids"),
                            *why = ares_json_get(&samples->items[i], "finish_reason");
            if (!CHECK(ids && ids->count <= TOKENS && why)) break;
            out->n[i] = (int)ids->count;
            out->stopped[i] = ares_view_is(why->text, "stop");
            for (int k = 0; k < out->n[i]; k++) out->ids[i][k] = (int32_t)ids->items[k].integer;
        }
    }
    ares_arena_fini(&arena);
    ares_str_fini(&text);
}

/* The text of tokens as stop strings are searched in it. */
static void text_of(const ares_tokenizer *tok, const int32_t *ids, int n, ares_str *out)
{
    ares_decoder d;
    ares_decoder_init(&d, tok, false);
    d.eager = true;
    for (int k = 0; k < n; k++) ares_decoder_add(&d, ids[k], out);
    ares_decoder_finish(&d, out);
}

/* Where token k of an answer begins in the whole text. False where it begins within a character. */
static bool begin_of(const ares_tokenizer *tok, const int32_t *ids, int k, const char *whole,
                     size_t *at)
{
    ares_str before = { 0 };
    text_of(tok, ids, k, &before);
    *at = before.len;
    bool begins = before.len == 0 || strncmp(before.data, whole, before.len) == 0;
    ares_str_fini(&before);
    return begins;
}

/* The number of tokens up to the one that completes the string; all of them where none does. */
static int tokens_until(const ares_tokenizer *tok, const int32_t *ids, const char *stop,
                        bool *found)
{
    ares_str text = { 0 };
    int n = 0;
    for (*found = false; n < TOKENS && !*found; n++) {
        ares_str_clear(&text);
        text_of(tok, ids, n + 1, &text);
        *found = strstr(text.data ? text.data : "", stop) != NULL;
    }
    ares_str_fini(&text);
    return n;
}

static void check_stopped(const char *model, const ares_tokenizer *tok, const answers *whole,
                          const char *stop)
{
    answers cut;
    generate(model, stop, &cut);
    for (int i = 0; i < SAMPLES; i++) {
        bool found;
        int n = tokens_until(tok, whole->ids[i], stop, &found);
        CHECK_MSG(cut.n[i] == n && cut.stopped[i] == found,
                  "stop '%s': %d tokens, %s; expected %d, %s", stop, cut.n[i],
                  cut.stopped[i] ? "stopped" : "full", n, found ? "stopped" : "full");
        CHECK_MEM(cut.ids[i], whole->ids[i], (size_t)cut.n[i] * sizeof(int32_t));
    }
}

/*
 * Makes a stop string from `tokens` adjacent tokens: from the last character of the first to the
 * first character of the last. False where they are not suitable.
 */
static bool straddling(const ares_tokenizer *tok, const answers *a, int sample, int first,
                       int tokens, char stop[8])
{
    ares_str text = { 0 };
    const int32_t *ids = a->ids[sample];
    size_t from, to;
    text_of(tok, ids, TOKENS, &text);
    bool good = begin_of(tok, ids, first + 1, text.data, &from) &&
                begin_of(tok, ids, first + tokens - 1, text.data, &to) && from > 0 && to >= from &&
                to - from < 5 && to + 1 <= text.len;
    for (size_t i = good ? from - 1 : to; good && i <= to; i++)
        good = isalnum((unsigned char)text.data[i]) || strchr(" .,:;!?+*=()", text.data[i]);
    if (good) snprintf(stop, 8, "%.*s", (int)(to + 2 - from), text.data + from - 1);
    ares_str_fini(&text);
    return good;
}

static void stops_where_tokens_meet(const char *name, int vocab)
{
    answers whole;
    ares_tokenizer *tok;
    char model[600], stop[8];
    snprintf(model, sizeof model, "%s", test_file(name));
    CHECK_EQ(
        e2e_program(
            NULL,
            "init --arch qwen2 --hidden 32 --layers 1 --heads 2 --kv-heads 1 --seed 3 --vocab %d "
            "--tokenizer '%s/%s' --out '%s'",
            vocab, test_source("tests/golden/tokenizer"), name, model),
        0);
    REQUIRE_OK(ares_tokenizer_load(model, &tok));
    generate(model, NULL, &whole);
    for (int tokens = 2; tokens <= 3; tokens++) {
        int tried = 0;
        for (int at = 0; at < SAMPLES * (TOKENS - 2) && tried < 4; at++)
            if (straddling(tok, &whole, at % SAMPLES, at / SAMPLES, tokens, stop)) {
                check_stopped(model, tok, &whole, stop);
                tried++;
            }
        CHECK_EQ(tried, 4);
    }
    ares_tokenizer_free(tok);
}

TEST(a_stop_string_ends_an_answer_also_where_it_spans_two_or_three_tokens)
{
    stops_where_tokens_meet("bos_eos", 402);
}
TEST(a_stop_string_ends_an_answer_of_a_sentencepiece_style_tokenizer)
{
    stops_where_tokens_meet("llama2_small", 659);
}

/* One answer of at most 24 tokens, to a prompt whose last `begun` tokens begin it. */
static ares_completion answer_of(ares_rollout *r, const int32_t *ids, int32_t n, int32_t begun,
                                 const char *stop)
{
    ares_completion c = { 0 };
    int64_t active = 1;
    ares_request q = { .prompt = ids,
                       .prompt_len = n,
                       .response_len = begun,
                       .n = 1,
                       .sampling = { .temperature = 1,
                                     .top_p = 1,
                                     .max_new_tokens = 24,
                                     .ignore_eos = true,
                                     .n_stop_strings = stop != NULL,
                                     .stop_strings = &stop },
                       .key = ares_rng_root(6, ARES_RNG_SAMPLE) };
    CHECK_OK(ares_rollout_add(r, &q, NULL));
    while (active && CHECK_OK(ares_rollout_step(r, &active))) {}
    CHECK(ares_rollout_next(r, &c));
    return c;
}

/* The string is the text of tokens 0 to 13; the request that goes on begins with the first ten. */
TEST(a_stop_string_that_began_before_a_request_ends_its_answer_too)
{
    ares_device d;
    ares_model *m;
    ares_tokenizer *t;
    ares_rollout *r;
    ares_model_options opt = { .storage = ARES_F32 };
    ares_rollout_options o = {
        .cache_tokens = 1024, .max_num_seqs = 2, .max_num_batched_tokens = 64, .max_model_len = 64
    };
    int32_t ids[32] = { 5, 9, 14, 20 };
    ares_str stop = { 0 }, later = { 0 };
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    REQUIRE_OK(ares_model_load(e2e_model(), &d, &opt, &m));
    REQUIRE_OK(ares_tokenizer_load(e2e_model(), &t));
    REQUIRE_OK(ares_rollout_new(m, t, &o, &r));
    ares_completion whole = answer_of(r, ids, 4, 0, NULL);
    memcpy(ids + 4, whole.ids, 10 * sizeof *ids);
    CHECK_OK(ares_tokenizer_decode(t, whole.ids, 14, false, &stop));
    CHECK_OK(ares_tokenizer_decode(t, whole.ids + 10, 14, false, &later));
    CHECK(later.len > 0 && ares_view_find(ares_str_view(&later), ares_str_view(&stop), 0) < 0);
    int32_t end = answer_of(r, ids, 4, 0, stop.data).n_tokens; /* the last may add no text */
    CHECK(end > 10 && end <= 14);
    ares_completion rest = answer_of(r, ids, 14, 10, stop.data);
    CHECK_EQ(rest.n_tokens, end - 10);
    CHECK_EQ(rest.finish, ARES_FINISH_STOP);
    ares_str_fini(&stop);
    ares_str_fini(&later);
    ares_rollout_free(r);
    ares_tokenizer_free(t);
    ares_model_free(m);
    ares_device_close(&d);
}
