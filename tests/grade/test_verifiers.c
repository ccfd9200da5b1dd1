/*
 * The verifiers without mathematics: format, patterns, F1, multiple choice, length, repetition,
 * random.
 */
#include "test.h"
#include "verifier.h"
#include "work.h"

#include <math.h>
#include <stdio.h>

#include "ares/grade.h"

/*
 * Runs a verifier with option=value words (up to a NULL) on one response; a failure gives NaN and
 * leaves its message.
 */
static double judge(const char *name, const ares_verify_in *in, ares_verify_out *out,
                    const char *const *words)
{
    ares_judge *j;
    void *options;
    ares_verify_out own = { .accuracy = NAN };
    if (!CHECK_OK(ares_judge_new(name, &j))) return NAN;
    ares_config *cfg = ares_config_new();
    ares_option_table *table = ares_judge_options(j, &options);
    if (table) ares_config_add_options(cfg, "", table, options);
    for (; words && *words; words++) ares_config_override(cfg, *words);
    ares_config_resolve(cfg);
    if (ares_config_fault_count(cfg) == 0) ares_judge_check(j, cfg, "");
    int rc = ares_config_finish(cfg);
    if (rc == ARES_OK) rc = ares_judge_run(j, in, &own);
    double score = rc == ARES_OK ? own.score : NAN;
    ares_str_fini(&own.details);
    if (out) *out = own;
    ares_judge_free(j);
    ares_config_free(cfg);
    return score;
}

static double text_score(const char *name, const char *response, const char *truth)
{
    ares_verify_in in = { .response = ares_view_of(response),
                          .ground_truth = ares_view_of(truth),
                          .stopped = true,
                          .response_tokens = -1 };
    return judge(name, &in, NULL, NULL);
}

/* ---------------------------------------------------------------- several right answers */
TEST(a_list_of_texts_has_several_answers_where_math_takes_any_of_them)
{
    static const char *const any[] = { "any_of=true", NULL };
    static const struct {
        const char *response, *truth;
        double score; /* NAN: refused */
    } all[] = {
        { "\\boxed{2}", "[\"1\",\"2\",\"3\"]", 1 },
        { "\\boxed{4}", "[\"1\",\"2\",\"3\"]", 0 },
        { "\\boxed{0.5}", "[\"\\\\boxed{\\\\frac{1}{2}}\"]", 1 },
        { "\\boxed{2}", "[\"1\",2]", NAN },
        { "\\boxed{2}", "[]", NAN },
        { "\\boxed{2}", "{\"a\":\"2\"}", NAN },
    };
    for (int i = 0; i < ARES_COUNT(all); i++) {
        ares_verify_in in = { .response = ares_view_of(all[i].response),
                              .ground_truth = ares_view_of(all[i].truth),
                              .structured = true,
                              .stopped = true,
                              .response_tokens = -1 };
        double score = judge("math", &in, NULL, any);
        CHECK_MSG(isnan(all[i].score) ? isnan(score) : score == all[i].score, "%d: %g", i, score);
        if (isnan(all[i].score)) CHECK_CONTAINS(ares_error_message(), "is no list of texts");
        CHECK(isnan(judge("math", &in, NULL, NULL))); /* as before, where nobody asks for it */
        CHECK_CONTAINS(ares_error_message(), "is a list or an object");
    }
}

/* ---------------------------------------------------------------- format */
TEST(think_tags_open_once_and_close)
{
    static const struct {
        const char *text;
        double think, boxed;
    } cases[] = {
        { "<think>a</think>b", 1, 0 },
        { "<think></think>\\boxed{}", 1, 1 },
        { "<think>a</think>\\boxed{1}</think>", 1, 1 },
        { "<think>\\boxed{1}</think>", 1, 0 },
        { "<think>a</think>\\boxed{1", 1, 0 },
        { "<think>a<think></think>", 0, 0 },
        { "<think></think><think>\\boxed{1}", 0, 1 },
        { "a<think></think>\\boxed{1}", 0, 0 },
        { "<think>", 0, 0 },
        { "<think></think", 0, 0 },
        { "", 0, 0 },
        { "<think>}</think>\\boxed{", 1, 0 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        CHECK_MSG(text_score("format_think", cases[i].text, "") == cases[i].think,
                  "format_think of '%s'", cases[i].text);
        CHECK_MSG(text_score("format_think_boxed", cases[i].text, "") == cases[i].boxed,
                  "format_think_boxed of '%s'", cases[i].text);
    }
}

static double found(const char *pattern, ares_view text, const char *more, bool *exhausted)
{
    char word[512];
    const char *words[] = { word, more, NULL };
    ares_verify_in in = { .response = text, .stopped = true };
    ares_verify_out out;
    snprintf(word, sizeof word, "pattern=%s", pattern);
    double score = judge("regex", &in, &out, words);
    if (exhausted) *exhausted = out.exhausted;
    return score;
}

TEST(a_pattern_is_found_anywhere_or_covers_the_whole)
{
    CHECK(found("b+", ARES_VIEW("abbc"), NULL, NULL) == 1 &&
          found("b+", ARES_VIEW("ac"), NULL, NULL) == 0);
    CHECK(found("b+", ARES_VIEW("abbc"), "whole=true", NULL) == 0 &&
          found("b+", ARES_VIEW("bb"), "whole=true", NULL) == 1);
    /* alternatives stay together */
    CHECK(found("^a|c$", ARES_VIEW("xc"), NULL, NULL) == 1 &&
          found("^a|c$", ARES_VIEW("xcx"), NULL, NULL) == 0);
    CHECK(found("a.c", ARES_VIEW("xa\ncx"), NULL, NULL) == 1 &&
          found("(?i)PARIS", ARES_VIEW("in paris"), NULL, NULL) == 1);
    CHECK(found("b", ARES_VIEW("a\0b"), NULL, NULL) == 1 &&
          found("b", ARES_VIEW("\xff\xfe b"), NULL, NULL) == 1 &&
          found("", ARES_VIEW(""), NULL, NULL) != 0);
    CHECK(isnan(found("(", ARES_VIEW("a"), NULL, NULL)));
    CHECK_CONTAINS(ares_error_message(), "missing closing parenthesis");
}

TEST(citations_are_found_by_their_form)
{
    /* those of docs/rewards.md */
    const char *form = "'\\[[1-9][0-9]*\\]|\\([A-Z][^()]*, (19|20)[0-9]{2}\\)'",
               *each = "'\\s*([^.\\[\\]]+\\[[1-9][0-9]*\\]\\.\\s*)+'";
    CHECK(found(form, ARES_VIEW("as shown [12]"), NULL, NULL) == 1 &&
          found(form, ARES_VIEW("known (Rajpurkar et al., 2016)."), NULL, NULL) == 1);
    CHECK(found(form, ARES_VIEW("a[0] and (see 2016)"), NULL, NULL) == 0);
    CHECK(found(each, ARES_VIEW("One [1]. Two [2].\n"), "whole=true", NULL) == 1 &&
          found(each, ARES_VIEW("One [1]. Two."), "whole=true", NULL) == 0 &&
          found(each, ARES_VIEW(""), "whole=true", NULL) == 0);
}

TEST(a_search_that_explodes_is_cut_short_and_counted)
{
    ares_str s = { 0 };
    bool exhausted;
    for (int i = 0; i < 200000; i++) ares_str_add_char(&s, 'a');
    CHECK(found("(a+)+b", ares_str_view(&s), NULL, &exhausted) == 0 && exhausted);
    CHECK(found("a*a*a*a*b", ares_str_view(&s), NULL, &exhausted) == 0 && exhausted);
    ares_str_add_char(&s, 'b');
    CHECK(found("b", ares_str_view(&s), NULL, &exhausted) == 1 && !exhausted);
    ares_str_fini(&s);
}

/* ---------------------------------------------------------------- F1 */
TEST(words_are_compared_without_case_punctuation_and_articles)
{
    CHECK_NEAR(text_score("f1", "The capital, Paris!", "paris"), 2.0 / 3, 1e-15);
    CHECK_NEAR(text_score("f1", "an apple a day", "day apple"), 1, 0);
    /* punctuation is removed before words are split */
    CHECK_NEAR(text_score("f1", "it's", "its"), 1, 0);
    /* '_' is punctuation, so "the" is not a word of its own here */
    CHECK_NEAR(text_score("f1", "the_end", "theend"), 1, 0);
    CHECK_NEAR(text_score("f1", "\xc3\x89tude", "\xc3\xa9tude"), 1, 0);
    /* a dash is not a word character */
    CHECK_NEAR(text_score("f1",
                          "cat\xe2\x80\x94"
                          "a\xe2\x80\x94"
                          "dog",
                          "cat\xe2\x80\x94 \xe2\x80\x94"
                          "dog"),
               1, 0);
    /* yes and no match only as the whole answer */
    CHECK_NEAR(text_score("f1", "yes", "yes it is"), 0, 0);
    CHECK_NEAR(text_score("f1", "Yes.", "yes"), 1, 0);
    CHECK_NEAR(text_score("f1", "a a b b c", "b c c"), 2.0 * (2.0 / 3) * (2.0 / 3) / (4.0 / 3),
               1e-15);
    CHECK_NEAR(text_score("f1", "", "paris"), 0, 0);
    CHECK(isnan(text_score("f1", "paris", " ")));
    CHECK_CONTAINS(ares_error_message(), "f1: the ground truth is empty");
    CHECK_NEAR(text_score("f1", "\xff\xfe paris", "paris"), 2.0 / 3, 1e-15);
}

/* ---------------------------------------------------------------- multiple choice */
static double choice(const char *response, const char *label, const char *row)
{
    ares_arena arena = { 0 };
    ares_verify_in in = { .response = ares_view_of(response),
                          .ground_truth = ares_view_of(label),
                          .stopped = true };
    double score = NAN;
    if (!row || CHECK_OK(ares_json_parse(&arena, ares_view_of(row), "row", &in.row)))
        score = judge("gpqa", &in, NULL, NULL);
    ares_arena_fini(&arena);
    return score;
}

TEST(the_letter_that_is_announced_wins)
{
    CHECK(choice("The answer is B.", "B", NULL) == 1 && choice("ANSWER: b", "B", NULL) == 1 &&
          choice("option C, not D", "C", NULL) == 1 &&
          choice("I choose choice\n:\tD", "D", NULL) == 1);
    CHECK(choice("The answer is B. Or C", "C", NULL) == 0 &&
          choice("A or B or C", "C", NULL) == 1 && choice("A or B or C", "A", NULL) == 0);
    CHECK(choice("Answer: C. My final answer is D", "C", NULL) == 1); /* the first, final or not */
    CHECK(choice("<think>the answer is A</think>the answer is B", "B", NULL) == 1 &&
          choice("<think>A</think>", "A", NULL) == 0);
    CHECK(choice("D is the correct one", "D", NULL) == 1 &&
          choice("D is correct, C is not", "D", NULL) == 1);
    /* no such letter among the choices: the letter that stands alone counts */
    CHECK(choice("Answer: Z, I mean B", "B", NULL) == 1);
    CHECK(choice("answer: Z", "A", NULL) == 0);      /* "a" occurs in "answer" */
    CHECK(choice("answer depends", "D", NULL) == 1); /* as the original reads it */
    CHECK(choice("final option is B", "B", NULL) == 1 && choice("the Alphabet", "A", NULL) == 0 &&
          choice("\xc3\x89"
                 "A\xc3\x89 B",
                 "B", NULL) == 1 &&
          choice("B \xc3\x89"
                 "A",
                 "A", NULL) == 0);
}

TEST(a_label_is_a_letter_an_index_or_the_text_of_a_choice)
{
    const char *row = "{\"metadata\":{\"choices\":[\"Paris\",\"Rome\",\"10\"]}}";
    CHECK(choice("The answer is B", "1", NULL) == 1 && choice("The answer is B", "2", NULL) == 0);
    CHECK(choice("The answer is B", "Rome", row) == 1 &&
          choice("The answer is A", "Rome", row) == 0);
    /* the text of a choice takes precedence over its index */
    CHECK(choice("The answer is C", "10", row) == 1);
    CHECK(choice("The answer is D", "B", row) == 0); /* only three choices */
    CHECK(choice("It is Rome!", "B", row) == 1 && choice("It is in rome, really", "1", row) == 1 &&
          choice("It is Paris", "B", row) == 0);
    CHECK(choice("The answer is B", "", "{\"metadata\":{\"correct_letter\":\"b\"}}") == 1);
    CHECK(choice("The answer is X", "Y", "{\"valid_letters\":[\"X\",\"Y\"]}") == 0 &&
          choice("The answer is Y", "Y", "{\"valid_letters\":[\"X\",\"Y\"]}") == 1 &&
          choice("The answer is Y", "y", "{\"valid_letters\":[\"x\",\"y\"]}") == 1);
    CHECK(choice("It is Rome", "B", "{\"choices\":{\"a\":\"Paris\",\"b\":\"Rome\"}}") == 1);
    CHECK(isnan(choice("B", "", NULL)));
    CHECK(choice("B", "Z9", "{\"choices\":5}") == 0 &&
          choice("B", "B", "{\"choices\":[null,{}]}") == 1);
    ares_verify_in in = { .response = ARES_VIEW("The answer is K"),
                          .ground_truth = ARES_VIEW("K"),
                          .stopped = true };
    CHECK(judge("multiple_choice", &in, NULL, NULL) == 0 &&
          judge("multiple_choice", &in, NULL,
                (const char *const[]){ "letters=ABCDEFGHIJK", NULL }) == 1);
}

/* ---------------------------------------------------------------- options and rows */
typedef struct row_case {
    const char *name, *words[2], *row, *response, *truth; /* words, row, truth: NULL: none */
    double score, accuracy;                               /* score NAN: a failure, `why` tells it */
    const char *why;
} row_case;

static void check_rows(const row_case *cases, int n)
{
    for (int i = 0; i < n; i++) {
        const row_case *x = &cases[i];
        const char *words[] = { x->words[0], x->words[1], NULL };
        ares_arena arena = { 0 };
        ares_verify_out out;
        ares_verify_in in = { .response = ares_view_of(x->response), .response_tokens = -1 };
        if (x->truth) in.ground_truth = ares_view_of(x->truth);
        if (x->row) CHECK_OK(ares_json_parse(&arena, ares_view_of(x->row), "row", &in.row));
        double score = judge(x->name, &in, &out, words);
        CHECK_MSG(score == x->score || (isnan(score) && isnan(x->score)), "%s %s %s '%s': %g",
                  x->name, x->words[0] ? x->words[0] : "", x->row ? x->row : "", x->response,
                  score);
        if (isnan(x->score)) CHECK_CONTAINS(ares_error_message(), x->why);
        else
            CHECK_MSG(out.accuracy == x->accuracy || (isnan(out.accuracy) && isnan(x->accuracy)),
                      "%s '%s': accuracy %g", x->name, x->response, out.accuracy);
        ares_arena_fini(&arena);
    }
}

TEST(integers_and_boxes_are_judged_as_the_options_of_dapo_say)
{
#define INTEGER { "integer_labels=true" }
#define BOX { "strict_box=true" }
#define LONG                                                                                       \
    "01234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901" \
    "23456789"
    static const row_case cases[] = {
        { "dapo", { NULL }, NULL, "Answer: 7", "7", 1, 1, NULL },
        { "dapo", { NULL }, NULL, "Answer: 007", "7", -1, 0, NULL },
        { "dapo", INTEGER, NULL, "Answer: 007", "7", 1, 1, NULL },
        { "dapo", INTEGER, NULL, "Answer: 7.0", "7", 1, 1, NULL },
        { "dapo", INTEGER, NULL, "Answer: 7", "7.000", 1, 1, NULL },
        { "dapo", INTEGER, NULL, "Answer: 7.05", "7", -1, 0, NULL },
        { "dapo", INTEGER, NULL, "Answer: 70", "7", -1, 0, NULL },
        { "dapo", INTEGER, NULL, "Answer: -7", "7", -1, 0, NULL },
        { "dapo", INTEGER, NULL, "Answer: -07", "-7", 1, 1, NULL },
        { "dapo", INTEGER, NULL, "Answer: +7", "7", 1, 1, NULL },
        { "dapo", INTEGER, NULL, "Answer: -0", "0", 1, 1, NULL },
        { "dapo", INTEGER, NULL, "Answer: 000", "0", 1, 1, NULL },
        { "dapo", INTEGER, NULL, "Answer: -", "0", -1, 0, NULL },
        { "dapo", INTEGER, NULL, "Answer: 7x", "7", -1, 0, NULL },
        { "dapo", INTEGER, NULL, "Answer: x", "y", -1, 0, NULL },
        { "dapo", INTEGER, NULL, "Answer: x", "x", 1, 1, NULL },
        { "dapo", INTEGER, NULL, "no such word", "7", -1, 0, NULL },
        { "dapo", BOX, NULL, "Answer: 8 \\boxed{7}", "7", 1, 1, NULL },
        { "dapo", BOX, NULL, "Answer: 7 \\boxed{8}", "7", -1, 0, NULL },
        { "dapo", BOX, NULL, "Answer: 7", "7", -1, 0, NULL },
        { "dapo", BOX, NULL, "\\boxed{1} \\boxed{7}", "7", 1, 1, NULL },
        { "dapo", BOX, NULL, "\\boxed{07}", "7", -1, 0, NULL },
        { "dapo", BOX, NULL, "\\boxed{\\frac12}", "\\frac{1}{2}", -1, 0, NULL }, /* as it is */
        { "dapo",
          { "strict_box=true", "integer_labels=true" },
          NULL,
          "\\boxed{07}",
          "7",
          1,
          1,
          NULL },
        { "dapo", BOX, NULL, "\\boxed{7}" LONG, "7", -1, 0, NULL },
        { "dapo", { NULL }, NULL, "Answer: 7", NULL, NAN, 0, "dapo: the row has no ground truth" },
        { "gsm8k", { NULL }, NULL, "it is 72", "72", 0, 0, NULL },
        { "gsm8k", { "method=flexible" }, NULL, "it is 72", "72", 1, 1, NULL },
        { "gsm8k", { "method=flexible" }, NULL, "it is 72 .", "72", 1, 1, NULL },
        { "gsm8k", { "method=flexible" }, NULL, "#### 72 or 73", "72", 0, 0, NULL },
        { "gsm8k", { "method=strict" }, NULL, "#### 1,000", "1000", 1, 1, NULL },
        { "gsm8k", { "method=flexible" }, NULL, "#### 1,000", "1000", 0, 0, NULL },
        { "gsm8k", { "method=flexible" }, NULL, "#### 1,000", "1,000", 1, 1, NULL },
        { "gsm8k", { NULL }, NULL, "#### 72", "48 + 24 = 72\n#### 72", 1, 1, NULL },
        { "gsm8k", { NULL }, NULL, "#### 48", "48 + 24 = 72\n#### 72", 0, 0, NULL },
        { "gsm8k", { NULL }, NULL, "#### 72", NULL, NAN, 0, "gsm8k: the row has no ground truth" },
    };
#undef INTEGER
#undef BOX
#undef LONG
    check_rows(cases, ARES_COUNT(cases));
}

TEST(what_is_judged_of_a_response_is_what_the_options_say)
{
    static const row_case cases[] = {
        { "deepscaler", { NULL }, NULL, "\\boxed{5}", "5", 0, 0, NULL },
        { "deepscaler", { "require_think=false" }, NULL, "\\boxed{5}", "5", 1, 1, NULL },
        { "deepscaler", { NULL }, NULL, "\\boxed{4}</think>\\boxed{5}", "5", 1, 1, NULL },
        { "deepscaler", { NULL }, NULL, "\\boxed{5}</think>so", "5", 0, 0, NULL },
        { "deepscaler", { "require_think=false" }, NULL, "\\boxed{5}</think>so", "5", 1, 1, NULL },
        { "deepscaler", { NULL }, NULL, "\\boxed{4}###Response\\boxed{5}", "5", 1, 1, NULL },
        { "deepscaler", { NULL }, NULL, "</think>\\boxed{5}", "so \\boxed{5}", 1, 1, NULL },
        { "deepscaler", { NULL }, NULL, "</think>\\boxed{5}", "5 or \\boxed{6}", 0, 0, NULL },
        { "deepscaler", { NULL }, NULL, "5", NULL, NAN, 0, "deepscaler: the row has no ground" },
        { "math", { NULL }, NULL, "\\boxed{5}</think>so", "5", 1, 1, NULL },
        { "math", { NULL }, NULL, "5", NULL, NAN, 0, "math: the row has no ground truth" },
        /* of the defects that the reference mode keeps */
        { "math", { NULL }, NULL, "\\boxed{5^{1/2}}", "\\sqrt{5}", 1, 1, NULL },
        { "math", { "mode=reference" }, NULL, "\\boxed{5^{1/2}}", "\\sqrt{5}", 0, 0, NULL },
        { "deepscaler",
          { "mode=target" },
          NULL,
          "</think>\\boxed{0.\\overline{3}}",
          "\\frac13",
          1,
          1,
          NULL },
        { "deepscaler",
          { "mode=reference" },
          NULL,
          "</think>\\boxed{0.\\overline{3}}",
          "\\frac13",
          0,
          0,
          NULL },
        { "math_format", { NULL }, NULL, "\\boxed{5}", "5", 0.9, 1, NULL },
        { "math_format", { NULL }, NULL, "<think>a</think>\\boxed{5}", "5", 1, 1, NULL },
        { "math_format", { NULL }, NULL, "<think>a</think>\\boxed{4}", "5", 0.1, 0, NULL },
        { "math_format", { "format_weight=0.25" }, NULL, "\\boxed{5}", "5", 0.75, 1, NULL },
        { "math_format",
          { NULL },
          NULL,
          "\\boxed{5}",
          " ",
          NAN,
          0,
          "math_format: the ground truth is" },
        { "aepo", { NULL }, NULL, "\\boxed{5}", "5", 1, 1, NULL },
        { "aepo", { NULL }, NULL, "<think>a</think>\\boxed{4}", "5", 0, 0, NULL },
        { "aepo", { NULL }, NULL, "\\boxed{5}", "", NAN, 0, "aepo: the ground truth is empty" },
        { "r1v", { NULL }, NULL, "<answer> 5 </answer>", "5", 0.5, 1, NULL },
        { "r1v", { NULL }, NULL, "<think>a</think><answer>5</answer>", "5", 1, 1, NULL },
        { "r1v", { NULL }, NULL, "<think>a</think><answer>4</answer>", "5", 0.5, 0, NULL },
        { "r1v", { "format_weight=0.25" }, NULL, "<answer>5</answer>", " 5 ", 0.75, 1, NULL },
        /* the first that closes in its line; without one the whole text */
        { "r1v", { NULL }, NULL, "<answer>4\n</answer><answer>5</answer>", "5", 0.5, 1, NULL },
        { "r1v", { NULL }, NULL, "<answer>5</answer><answer>4</answer>", "5", 0.5, 1, NULL },
        { "r1v", { NULL }, NULL, "x\n<answer>5</answer>\ny", "5", 0.5, 1, NULL },
        { "r1v", { NULL }, NULL, " 5\n", "5", 0.5, 1, NULL },
        { "r1v", { NULL }, NULL, "5<answer>", "5", 0, 0, NULL },
        { "r1v",
          { NULL },
          NULL,
          "<answer>5</answer>",
          "",
          NAN,
          0,
          "r1v: the ground truth is empty" },
        { "f1", { NULL }, NULL, "yes", "yes", 1, NAN, NULL },
        { "f1", { NULL }, NULL, "yes it is", "yes", 0, NAN, NULL }, /* a verdict is whole or wrong
                                                                     */
        { "f1", { NULL }, NULL, "no", "no way", 0, NAN, NULL },
        { "f1", { NULL }, NULL, "noanswer", "noanswer here", 0, NAN, NULL },
        { "f1", { NULL }, NULL, "x x y", "x y y", 2.0 / 3, NAN, NULL },
        { "f1", { NULL }, NULL, "", "x", 0, NAN, NULL },
        { "f1", { NULL }, NULL, "x", " ", NAN, NAN, "f1: the ground truth is empty" },
    };
    check_rows(cases, ARES_COUNT(cases));
}

/* Two instructions, of which a text follows none, one or both; wherever a row keeps them. */
TEST(instructions_are_found_in_every_place_and_judged_in_every_mode)
{
#define TWO                                                                                 \
    "\"instruction_id_list\":[\"punctuation:no_comma\",\"change_case:english_lowercase\"]," \
    "\"kwargs\":[{},{}]"
#define CHECKERS(more) "{\"checkers\":[{\"id\":\"punctuation:no_comma\"}" more "]"
    static const char text[] = "\"{\\\"instruction_id_list\\\":[\\\"punctuation:no_comma\\\"],"
                               "\\\"kwargs\\\":[{}]}\"";
    static const row_case cases[] = {
        { "ifbench", { NULL }, "{" TWO "}", "a b", NULL, 1, 1, NULL },
        { "ifbench", { NULL }, "{" TWO "}", "a, b", NULL, 0, 0, NULL },
        { "ifbench", { "mode=strict_fraction" }, "{" TWO "}", "a, b", NULL, 0.5, 0, NULL },
        { "ifbench", { "mode=loose_fraction" }, "{" TWO "}", "a, b", NULL, 0.5, 0, NULL },
        /* without its first line the text follows both */
        { "ifbench", { "mode=strict_fraction" }, "{" TWO "}", "A, b\nc", NULL, 0, 0, NULL },
        { "ifbench", { "mode=loose_fraction" }, "{" TWO "}", "A, b\nc", NULL, 1, 1, NULL },
        { "ifbench", { "mode=loose_all" }, "{" TWO "}", "A, b\nc", NULL, 1, 1, NULL },
        { "ifbench", { NULL }, "{" TWO "}", "<think>A, b</think>c", NULL, 1, 1, NULL },
        { "ifbench",
          { "strip_think=false" },
          "{" TWO "}",
          "<think>A, b</think>c",
          NULL,
          0,
          0,
          NULL },
        { "format_verify", { NULL }, "{" TWO "}", "A, b</think>a, c", NULL, 0.5, 0, NULL },
        { "ifeval", { NULL }, "{\"metadata\":{" TWO "}}", "a", NULL, 1, 1, NULL },
        { "ifeval", { NULL }, "{\"extra_info\":{" TWO "}}", "a,", NULL, 0, 0, NULL },
        { "ifeval", { NULL }, "{\"label\":{" TWO "}}", "a", NULL, 1, 1, NULL },
        { "ifeval",
          { NULL },
          "{\"reward_model\":{\"ground_truth\":{" TWO "}}}",
          "a",
          NULL,
          1,
          1,
          NULL },
        { "ifeval", { NULL }, "{}", "a", "{" TWO "}", 1, 1, NULL },
        { "ifeval",
          { NULL },
          "{\"instruction_id\":[\"punctuation:no_comma\"]}",
          "a",
          NULL,
          1,
          1,
          NULL },
        /* the row's own come first, and an empty list of checkers is none */
        { "ifeval",
          { NULL },
          "{\"instruction_id_list\":[\"punctuation:no_comma\"],\"metadata\":{" TWO "}}",
          "A",
          NULL,
          1,
          1,
          NULL },
        { "ifeval", { NULL }, "{\"checkers\":[]," TWO "}", "A", NULL, 0, 0, NULL },
        { "ifeval", { NULL }, CHECKERS("") "," TWO "}", "A", NULL, 1, 1, NULL },
        { "ifeval",
          { NULL },
          CHECKERS(",{\"id\":\" length_constraints:number_words \",\"kwargs\":{"
                   "\"relation\":\"at least\",\"num_words\":2}}") "}",
          "one",
          NULL,
          0,
          0,
          NULL },
        { "ifeval",
          { "mode=strict_fraction" },
          CHECKERS(",{\"id\":\"length_constraints:number_words\",\"kwargs\":{\"relation\":\"at "
                   "least\",\"num_words\":2}}") "}",
          "one",
          NULL,
          0.5,
          0,
          NULL },
        { "ifeval", { NULL }, CHECKERS("") ",\"functions\":[\"f\"]}", "a", NULL, 1, 1, NULL },
        { "ifeval", { NULL }, CHECKERS("") ",\"functions\":[]}", "a", NULL, 1, 1, NULL },
        { "ifeval",
          { NULL },
          CHECKERS("") ",\"functions\":[\"f\",\"g\"]}",
          "a",
          NULL,
          NAN,
          0,
          "the row has 2 functions and 1 checkers" },
        { "ifeval", { NULL }, "{\"functions\":[\"f\"]," TWO "}", "a", NULL, 1, 1, NULL },
        { "ifeval",
          { NULL },
          "{\"functions\":[\"f\"],\"instruction_id\":[\"punctuation:no_comma\"]}",
          "a",
          NULL,
          1,
          1,
          NULL },
        { "ifeval",
          { NULL },
          "{\"functions\":[\"f\"],\"checkers\":null}",
          "a",
          NULL,
          NAN,
          0,
          "the row has 'functions' in Python" },
        { "ifeval",
          { NULL },
          "{\"checkers\":{\"id\":1}}",
          "a",
          NULL,
          NAN,
          0,
          "'checkers' is no list" },
        { "ifeval",
          { NULL },
          CHECKERS(",{\"kwargs\":{}}") "}",
          "a",
          NULL,
          NAN,
          0,
          "checkers[1] has no 'id'" },
        { "ifeval",
          { NULL },
          CHECKERS(",{\"id\":7}") "}",
          "a",
          NULL,
          NAN,
          0,
          "checkers[1] has no 'id'" },
        { "ifeval",
          { NULL },
          CHECKERS(",{\"id\":\"no:such\"}") "}",
          "a",
          NULL,
          NAN,
          0,
          "checkers[1].id = 'no:such': no such check" },
        { "ifeval",
          { NULL },
          CHECKERS(",{\"id\":\"punctuation:no_comma\",\"kwargs\":3}") "}",
          "a",
          NULL,
          NAN,
          0,
          "checkers[1].kwargs: not an object" },
        { "ifeval",
          { NULL },
          CHECKERS(",{\"id\":\"punctuation:no_comma\",\"kwargs\":null}") "}",
          "a",
          NULL,
          1,
          1,
          NULL },
        { "ifeval",
          { NULL },
          CHECKERS(",{\"id\":\"length_constraints:number_words\"}") "}",
          "a",
          NULL,
          NAN,
          0,
          "checkers[1].kwargs: '" },
        { "ifeval",
          { NULL },
          "{\"instruction_id_list\":[],\"kwargs\":[]}",
          "a",
          NULL,
          NAN,
          0,
          "the row names no instruction" },
        { "ifeval",
          { NULL },
          "{\"instruction_id_list\":null}",
          "a",
          "7",
          NAN,
          0,
          "the row names no instruction" },
    };
    char row[200];
    check_rows(cases, ARES_COUNT(cases));
    snprintf(row, sizeof row, "{\"ground_truth\":%s}", text);
    const row_case in_text = { "ifeval", { NULL }, row, "A", NULL, 1, 1, NULL };
    check_rows(&in_text, 1);
#undef TWO
#undef CHECKERS
}

TEST(choices_letters_and_labels_are_read_wherever_a_row_has_them)
{
#define RED "{\"choices\":[\"red hat\",\"blue hat\"]"
    static const row_case cases[] = {
        { "gpqa", { NULL }, RED "}", "answer: B", "blue hat", 1, 1, NULL },
        { "gpqa", { NULL }, RED "}", "answer: B", "1", 1, 1, NULL },
        { "gpqa", { NULL }, RED "}", "answer: A", "1", 0, 0, NULL },
        { "gpqa", { NULL }, RED "}", "answer: B", "2", 0, 0, NULL }, /* no such index */
        { "gpqa", { NULL }, RED "}", "answer: B", "-1", 0, 0, NULL },
        { "gpqa", { NULL }, "{\"choices\":[10,20.5,true]}", "answer: B", "20.5", 1, 1, NULL },
        { "gpqa", { NULL }, "{\"choices\":[10,20.5,true]}", "answer: A", "10", 1, 1, NULL },
        { "gpqa", { NULL }, "{\"choices\":[10,20.5,true]}", "answer: C", "true", 0, 0, NULL },
        { "gpqa", { NULL }, "{\"choices\":[\" x \",\"y\"]}", "answer: A", "x", 1, 1, NULL },
        /* letters of the row, without what is no letter */
        { "gpqa",
          { NULL },
          RED ",\"valid_letters\":[\"P\",\"Q\"]}",
          "answer: Q",
          "blue hat",
          1,
          1,
          NULL },
        { "gpqa",
          { NULL },
          RED ",\"valid_letters\":[\"P\",\"Q\"]}",
          "answer: B",
          "blue hat",
          0,
          0,
          NULL },
        { "gpqa", { NULL }, RED ",\"valid_letters\":[]}", "answer: B", "blue hat", 1, 1, NULL },
        { "gpqa",
          { NULL },
          RED ",\"valid_letters\":{\"B\":1}}",
          "answer: B",
          "blue hat",
          1,
          1,
          NULL },
        { "gpqa",
          { NULL },
          "{\"valid_letters\":[\"AB\",3,\"[\",\"c\",\"D\"]}",
          "answer: D",
          "1",
          1,
          1,
          NULL },
        { "gpqa", { "letters=XY1Z" }, "{}", "answer: Y", "Y", 1, 1, NULL },
        { "gpqa", { "letters=XY1Z" }, "{}", "answer: Z", "Z", 0, 0, NULL },
        { "gpqa", { "letters=XY" }, RED "}", "answer: B", "B", 1, 1, NULL }, /* for rows without any
                                                                              */
        /* the letter that the row says wins over the label */
        { "gpqa", { NULL }, "{\"correct_letter\":\" b \"}", "answer: B", "A", 1, 1, NULL },
        { "gpqa", { NULL }, "{\"correct_letter\":\"BC\"}", "answer: A", "A", 1, 1, NULL },
        { "gpqa", { NULL }, "{\"correct_letter\":2}", "answer: A", "A", 1, 1, NULL },
        { "gpqa", { NULL }, "{\"correct_letter\":\"Z\"}", "answer: A", "A", 1, 1, NULL },
        { "gpqa",
          { NULL },
          "{\"correct_letter\":\"A\",\"metadata\":{\"correct_letter\":\"B\"}}",
          "answer: B",
          "",
          1,
          1,
          NULL },
        /* phrases, in their order, and the text where no letter stands */
        { "gpqa", { NULL }, NULL, "B is correct, A is not", "B", 1, 1, NULL },
        { "gpqa", { NULL }, NULL, "B is the correct one", "B", 1, 1, NULL },
        { "gpqa", { NULL }, NULL, "B is the best; C", "C", 1, 1, NULL },
        { "gpqa", { NULL }, NULL, "answer A, and B is correct", "A", 1, 1, NULL },
        { "gpqa",
          { NULL },
          NULL,
          "the answer is that B is correct, final answer: C",
          "C",
          0,
          0,
          NULL },
        { "gpqa", { NULL }, NULL, "choice is C, or D", "C", 1, 1, NULL },
        { "gpqa", { NULL }, NULL, "AB and C, not Dx", "C", 1, 1, NULL },
        { "gpqa", { NULL }, RED "}", "it is the blue - hat.", "B", 1, 1, NULL },
        { "gpqa", { NULL }, RED "}", "it is the BLUE HAT", "1", 1, 1, NULL },
        { "gpqa", { NULL }, RED "}", "it is the bluehat", "B", 0, 0, NULL },
        { "gpqa", { NULL }, RED "}", "it is the red hat", "B", 0, 0, NULL },
        { "gpqa", { NULL }, NULL, "it is 42 km", "42 km", 1, 1, NULL },
        { "gpqa", { NULL }, NULL, "it is 4", "4.", 0, 0, NULL }, /* one character is in any text */
        { "gpqa", { NULL }, NULL, "", "no such", 0, 0, NULL },
        { "gpqa", { NULL }, NULL, "answer: B", " ", NAN, 0, "gpqa: the ground truth is empty" },
        { "gpqa", { NULL }, NULL, "a</think>answer: A</think>answer: B", "B", 1, 1, NULL },
    };
#undef RED
    check_rows(cases, ARES_COUNT(cases));
}

/* ---------------------------------------------------------------- length */
static double length_score(const char *name, int64_t tokens, const char *const *words)
{
    ares_verify_in in = { .response = ARES_VIEW("x"), .response_tokens = tokens };
    return judge(name, &in, NULL, words);
}

TEST(both_spellings_of_the_penalty_of_length_agree)
{
    const char *length[] = { "safe_length=6", "max_length=10", "len_reward_penalty=0.5", NULL },
               *overlong[] = { "max_response_length=10", "overlong_buffer_length=4",
                               "overlong_penalty_factor=0.5", NULL };
    for (int64_t n = 0; n < 15; n++)
        CHECK_NEAR(length_score("length", n, length), length_score("overlong", n, overlong), 1e-15);
    CHECK_NEAR(length_score("length", 8, length), -0.25, 0);
    CHECK_NEAR(length_score("length", 20000000000, length), -0.5, 0);
    /* the numbers of the published code */
    CHECK_NEAR(length_score("length", 17000, NULL), -0.0150390625, 1e-15);
    CHECK(isnan(length_score("length", -1, length)));
    CHECK_CONTAINS(ares_error_message(), "number of tokens is not known");
    CHECK(isnan(length_score("length", 1,
                             (const char *const[]){ "safe_length=10", "max_length=10", NULL })));
    CHECK_CONTAINS(ares_error_message(), "not below max_length");
    CHECK(isnan(length_score("overlong", 1,
                             (const char *const[]){ "overlong_buffer_length=99999", NULL })));
}

/* ---------------------------------------------------------------- repetition */
static double repetition(const int32_t *ids, int64_t n, const char *const *words)
{
    ares_verify_in in = { .ids = ids, .response_tokens = n };
    return judge("repetition", &in, NULL, words);
}

TEST(repeated_pieces_are_a_share_of_all)
{
    static const int32_t same[] = { 7, 7, 7, 7, 7, 7 }, different[] = { 1, 2, 3, 4, 5 },
                         twice[] = { 1, 2, 3, 1, 2, 3 };
    CHECK_NEAR(repetition(same, 6, NULL), -0.75, 1e-15);
    CHECK_NEAR(repetition(different, 5, NULL), 0, 0);
    CHECK_NEAR(repetition(twice, 6, NULL), -0.25, 1e-15);
    CHECK_NEAR(repetition(same, 2, NULL), 0, 0);
    CHECK_NEAR(repetition(same, 0, NULL), 0, 0);
    CHECK_NEAR(repetition(same, 6, (const char *const[]){ "ngram_size=1", "max_penalty=-2", NULL }),
               -2 * (1 - 1.0 / 6), 1e-15);
    CHECK(isnan(repetition(NULL, 6, NULL)) && isnan(repetition(same, -1, NULL)));
    int32_t ids[400];
    for (int round = 0; round < 20; round++) { /* compared with a simple count */
        int64_t n = 3 +
                    (int64_t)ares_rng_below(ares_rng_root(1, ARES_RNG_TEST), (uint64_t)round, 390),
                unique = 0;
        for (int64_t i = 0; i < n; i++)
            ids[i] = (int32_t)ares_rng_below(ares_rng_root(2, ARES_RNG_TEST),
                                             (uint64_t)(round * 1000 + i), (uint64_t)(2 + round));
        for (int64_t i = 0; i + 3 <= n; i++) {
            bool seen = false;
            for (int64_t k = 0; k < i; k++)
                seen = seen || memcmp(ids + k, ids + i, 3 * sizeof *ids) == 0;
            unique += !seen;
        }
        CHECK_NEAR(repetition(ids, n, NULL), -(1 - (double)unique / (double)(n - 2)), 1e-15);
    }
}

/* ---------------------------------------------------------------- chance */
TEST(chance_depends_on_the_texts_and_the_seed_alone)
{
    int ones = 0, changed = 0, rare = 0;
    for (int i = 0; i < 2000; i++) {
        char text[32];
        snprintf(text, sizeof text, "response %d", i);
        ares_verify_in in = { .response = ares_view_of(text), .stopped = true }, other = in;
        other.ground_truth = ARES_VIEW("5");
        other.stopped = false;
        double a = judge("random", &in, NULL, NULL);
        CHECK(a == judge("random", &other, NULL, NULL));
        ones += a == 1;
        changed += a != judge("random", &in, NULL, (const char *const[]){ "seed=2", NULL });
        rare += judge("random", &in, NULL, (const char *const[]){ "p=0.1", NULL }) == 1;
    }
    CHECK_MSG(ones > 900 && ones < 1100, "%d ones of 2000", ones);
    CHECK_MSG(changed > 900 && changed < 1100, "%d of 2000 scores changed with the seed", changed);
    CHECK_MSG(rare > 150 && rare < 250, "%d ones of 2000 at p = 0.1", rare);
    CHECK(text_score("none", "anything", "anything") == 0);
}

/* ---------------------------------------------------------------- hostile texts */
TEST(small_verifiers_are_linear_in_the_response)
{
    static const char *const pieces[] = { "<think>", "answer ",  "final",     "\xff",
                                          "A ",      "<answer>", "\\boxed{",  "a b ",
                                          " ",       "</think>", "option :  " };
    static const char *const names[] = { "format_think", "format_think_boxed", "f1",    "gpqa",
                                         "random",       "boxed_exact",        "regex", "json" };
    for (int p = 0; p < ARES_COUNT(pieces); p++) {
        ares_str s = { 0 };
        while (s.len < 1000000) ares_str_add_z(&s, pieces[p]);
        for (int k = 0; k < ARES_COUNT(names); k++) {
            ares_verify_in in = { .response = ares_str_view(&s),
                                  .ground_truth = ARES_VIEW("B"),
                                  .stopped = true };
            int64_t before = work_done();
            CHECK(!isnan(judge(
                names[k], &in, NULL,
                strcmp(names[k], "regex") ? NULL : (const char *const[]){ "pattern=x$", NULL })));
            double work = (double)(work_done() - before) / (double)s.len;
            CHECK_MSG(work < 400, "%s of '%s': %.0f units of work per byte", names[k], pieces[p],
                      work);
        }
        ares_str_fini(&s);
    }
}

/* What judge_judges says of a verifier is what it does, of `auto` what it hands rows to. */
TEST(verifiers_that_judge_give_an_accuracy_and_others_none)
{
    static const char row_text[] = "{\"instruction_id_list\": [\"detectable_format:title\"], "
                                   "\"kwargs\": [{}], \"choices\": [\"3\", \"4\"]}";
    ares_arena arena = { 0 };
    const ares_json *row;
    int n, judged = 0, others = 0;
    const char *const *names = ares_verifier_names(&n);
    REQUIRE_OK(ares_json_parse(&arena, ares_view_of(row_text), "row", &row));
    for (int i = 0; i < n; i++) {
        ares_judge *j;
        ares_verify_out out = { .accuracy = NAN };
        const ares_verify_in in = { .response = ARES_VIEW("<think>2+2</think> \\boxed{4}"),
                                    .ground_truth = ARES_VIEW("4"),
                                    .row = row,
                                    .stopped = true };
        REQUIRE_OK(ares_judge_new(names[i], &j));
        judge_use_defaults(j);
        bool judges = judge_judges(j), ran = ares_judge_run(j, &in, &out) == ARES_OK;
        if (ran)
            CHECK_MSG(isnan(out.accuracy) == !judges, "%s: accuracy %g", names[i], out.accuracy);
        if (!ran) ares_error_clear();
        judged += ran && judges;
        others += ran && !judges;
        ares_str_fini(&out.details);
        ares_judge_free(j);
    }
    CHECK_MSG(judged >= 16 && others >= 6, "%d judge and %d do not", judged, others);
    ares_arena_fini(&arena);
}
