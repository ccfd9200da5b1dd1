/*
 * Trigger words: the column of candidates against the texts of the tokens and an arg-max of our
 * own, and what a file is refused for. Seen to fail with the sampled tokens taken for argmax, and
 * with words compared as the vocabulary spells them.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "../../src/text/tokenizer.h"
#include "ares/algo.h"
#include "collect/collect.h"
#include "test.h"
#include "tiny_trainer.h"

/*
 * Half of the bytes that print, some as people would write them; a word of two tokens and one of
 * none.
 */
static const char words[] =
    "[\" A\", \"c\", \"E\", \"g\", \"i\", \"K\", \"m\", \"o\", \"q\", \"S \", \"u\", \"w\", \"y\", "
    "\"1\", \"3\", \"5\", \"7\", \"9\", \"the\", \"notatoken\"]";

static const char *with_file(const char *text)
{
    static char word[700];
    CHECK_OK(ares_file_write(test_file("words.json"), text, strlen(text)));
    snprintf(word, sizeof word, "worker.rollout.trigger_tokens_file=%s", test_file("words.json"));
    return word;
}

/*
 * Whether the bytes of a token, without blanks around them and in lower case, are one of the words
 * above.
 */
static bool is_trigger(const ares_tokenizer *tok, int32_t id)
{
    char text[64], word[70];
    ares_view bytes = ares_tokenizer_token_bytes(tok, id);
    size_t n = 0;
    if (bytes.len > 60) return false;
    for (size_t i = 0; i < bytes.len; i++)
        if (!isspace((unsigned char)bytes.data[i]))
            text[n++] = (char)tolower((unsigned char)bytes.data[i]);
    text[n] = 0;
    snprintf(word, sizeof word, "|%s|", text);
    return n && n == strlen(text) && !strchr(text, '|') &&
           strstr("|a|c|e|g|i|k|m|o|q|s|u|w|y|1|3|5|7|9|the|", word);
}

/* The arg-max of the model's logits where each token of a row was drawn. */
static void most_likely(ares_model *m, const ares_batch *b, int64_t row, int32_t *out)
{
    const ares_sample *s = &b->samples[row];
    int32_t ids[200], positions[200], rows[100],
        n = (int32_t)(b->row_start[row + 1] - b->row_start[row]),
        start[2] = { 0, s->prompt_len + n }, vocab = m->cfg.vocab;
    for (int32_t i = 0; i < start[1]; i++) {
        ids[i] =
            i < s->prompt_len ? s->prompt[i] : b->responses[b->row_start[row] + i - s->prompt_len];
        positions[i] = i;
    }
    for (int32_t i = 0; i < n; i++) rows[i] = s->prompt_len + i - 1;
    ares_packed p = { .rows = start[1],
                      .ids = ids,
                      .positions = positions,
                      .seg = { .n = 1, .rows = start[1], .start = start },
                      .n_out = n,
                      .out_rows = rows };
    float *z = ares_calloc((size_t)(n * vocab), sizeof *z);
    void *hidden;
    ares_workspace *w;
    CHECK_OK(ares_workspace_new(m, ARES_KEEP_NOTHING, &w));
    CHECK_OK(ares_model_forward(m, w, &p, &hidden));
    ares_linear_args a = {
        .m = n, .x = hidden, .ldx = m->cfg.hidden, .w = ares_model_head(m), .y = z, .ldy = vocab
    };
    m->device->k->linear(m->device, &a, 1);
    for (int32_t t = 0; t < n; t++) {
        out[t] = 0;
        for (int32_t v = 1; v < vocab; v++)
            if (z[t * vocab + v] > z[t * vocab + out[t]]) out[t] = v;
    }
    ares_workspace_free(w);
    ares_free(z);
}

static void candidates_are_right(bool sampled)
{
    opened o;
    int marked = 0, wrong = 0, differ = 0;
    if (CHECK_OK(open_trainer(&o, with_file(words),
                              sampled ? "worker.rollout.trigger_match=sampled"
                                      : "worker.rollout.trigger_match=argmax"))) {
        const ares_batch *b = &o.t.batch;
        CHECK_OK(collect_groups(&o.t, &o.t.batch, o.m));
        REQUIRE(b->rows == 16 && b->hwe_candidates);
        for (int64_t r = 0; r < b->rows; r++) {
            int32_t likely[100];
            most_likely(o.t.run.model, b, r, likely);
            for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
                int32_t top = likely[i - b->row_start[r]];
                marked += b->hwe_candidates[i];
                wrong += b->hwe_candidates[i] !=
                         is_trigger(o.t.run.tokenizer, sampled ? b->responses[i] : top);
                differ += is_trigger(o.t.run.tokenizer, b->responses[i]) !=
                          is_trigger(o.t.run.tokenizer, top);
            }
        }
        CHECK_EQ(wrong, 0);
        CHECK_MSG(marked > 0 && differ > 0,
                  "%d candidates, %d where the two ways differ: the case shows nothing", marked,
                  differ);
    }
    close_trainer(&o);
}

TEST(candidates_are_where_the_likeliest_token_is_a_trigger_word)
{
    candidates_are_right(false);
}
TEST(candidates_are_where_the_sampled_token_is_a_trigger_word)
{
    candidates_are_right(true);
}

TEST(without_a_list_every_token_may_count_and_nothing_is_recorded)
{
    opened o;
    if (CHECK_OK(open_trainer(&o, "worker.rollout.trigger_tokens_file=null",
                              "worker.rollout.trigger_match=argmax"))) {
        CHECK(!o.t.triggers);
        CHECK_OK(collect_groups(&o.t, &o.t.batch, o.m));
        CHECK(o.t.batch.rows == 16 && !o.t.batch.hwe_candidates);
    }
    close_trainer(&o);
}

TEST(a_list_that_is_none_is_refused_before_anything_loads)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "{\"wait\": 1}", "holds no list" },
        { "[]", "the list is empty" },
        { "[\"wait\", 3]", "entry 2 is no string" },
        { "[\"wait\", \" \"]", "entry 2 is empty" },
        { "[\"wait\"", "words.json:1:8" },
        { "[3, \"wait\"]", "entry 1 is no string" }, /* whatever stands before it */
    };
    opened o;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        CHECK_FAIL(open_trainer(&o, with_file(cases[i].text), "trainer.threads=1"), ARES_ECONFIG,
                   cases[i].message);
        CHECK_CONTAINS(ares_error_message(), "worker.rollout.trigger_tokens_file");
        CHECK(!o.world);
        close_trainer(&o);
    }
    CHECK_FAIL(open_trainer(&o, "worker.rollout.trigger_tokens_file=/no/such/words.json",
                            "worker.rollout.entropy_topk=65"),
               ARES_ECONFIG, "/no/such/words.json");
    CHECK_CONTAINS(ares_error_message(), "worker.rollout.entropy_topk");
    close_trainer(&o);
}

TEST(words_that_are_no_token_are_named_and_a_list_of_them_alone_is_refused)
{
    opened o;
    CHECK_FAIL(open_trainer(&o, with_file("[\"albeit\", \"reconsider\"]"), "trainer.threads=1"),
               ARES_ECONFIG, "none of its 2 words is a single token");
    close_trainer(&o);
}

TEST(the_published_words_are_174_in_the_form_they_are_compared_in)
{
    ares_arena arena = { 0 };
    ares_str text = { 0 }, word = { 0 };
    const ares_json *list;
    CHECK_OK(ares_file_read(test_source("examples/trigger_words.json"), &text));
    REQUIRE_OK(ares_json_parse(&arena, ares_str_view(&text), "trigger_words.json", &list));
    CHECK_EQ(list->count, 174);
    for (int64_t i = 0; i < list->count; i++) {
        ares_trigger_normalize(list->items[i].text, &word);
        CHECK(ares_view_eq(ares_str_view(&word), list->items[i].text));
    }
    ares_str_fini(&word);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
}
