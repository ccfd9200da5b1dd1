/* Verifiers that read a plain answer (number, boxed, exact), on ordinary and on hostile texts. */
#include "test.h"
#include "work.h"

#include <math.h>

#include "ares/grade.h"

/* The score of a response; details (may be NULL) gets the result's details. */
static double score_of(const char *verifier, ares_view response, ares_view truth,
                       const void *options, ares_str *details)
{
    const ares_verifier *v = ares_verifier_find(verifier);
    ares_verify_in in = {
        .response = response, .ground_truth = truth, .stopped = true, .options = options
    };
    ares_verify_out out = { .accuracy = NAN };
    if (!CHECK(v != NULL) || !CHECK_OK(v->verify(&in, &out))) return -1;
    if (details) {
        ares_str_clear(details);
        ares_str_add_view(details, ares_str_view(&out.details));
    }
    ares_str_fini(&out.details);
    if (strcmp(verifier, "format") == 0) CHECK(isnan(out.accuracy));
    else CHECK_NEAR(out.accuracy, out.score, 0);
    return out.score;
}

static double number(const char *response, const char *truth)
{
    return score_of("number", ares_view_of(response), ares_view_of(truth), NULL, NULL);
}
static double boxed(const char *response, const char *truth)
{
    return score_of("boxed", ares_view_of(response), ares_view_of(truth), NULL, NULL);
}

/* The number or box that a verifier took from a response. */
static void check_taken(const char *verifier, const char *response, const char *taken)
{
    ares_str details = { 0 }, expected = { 0 };
    score_of(verifier, ares_view_of(response), ARES_VIEW("1"), NULL, &details);
    if (taken) {
        ares_str_add_z(&expected, "\"extracted\":");
        ares_json_write_string(&expected, ares_view_of(taken));
    }
    CHECK_MSG(ares_view_eq(ares_str_view(&details), ares_str_view(&expected)),
              "'%s' gives %s, expected %s", response, details.data ? details.data : "nothing",
              taken ? expected.data : "nothing");
    ares_str_fini(&details);
    ares_str_fini(&expected);
}

TEST(the_last_number_is_taken_as_it_is_meant)
{
    static const struct {
        const char *text, *number;
    } cases[] = {
        { "7 + 2 = 9", "9" },
        { "7-2", "2" },
        { "7 - 2", "2" },
        { "it is -2", "-2" },
        { "(-2)", "-2" },
        { "x=-2.", "-2" },
        { "(3)-2", "2" },
        { "7\xe2\x88\x92"
          "2",
          "2" },
        { "is \xe2\x88\x92"
          "5",
          "-5" },
        { "costs $7", "7" },
        { "-$7", "-7" },
        { "$-7", "-7" },
        { "1,234", "1234" },
        { "1,234,567.50", "1234567.5" },
        { "1,2345", "2345" },
        { "1000,200", "200" },
        { "1,23", "23" },
        { "12,345,67", "67" },
        { "(1,2,3)", "3" },
        { "007", "7" },
        { "0", "0" },
        { "-0", "0" },
        { "-0.0", "0" },
        { "000", "0" },
        { ".5", "0.5" },
        { "-.5", "-0.5" },
        { "0.50", "0.5" },
        { "3.", "3" },
        { "3.0", "3" },
        { "3.2.1", "1" },
        { "2024-11-21", "21" },
        { "10%", "10" },
        { "5 apples", "5" },
        { "1 234", "234" },
        { "x2", "2" },
        { "no number", NULL },
        { "", NULL },
        { "...", NULL },
        { "-", NULL },
        { "\xd9\xa3", NULL },
        { "\xff\xfe"
          "8\xff",
          "8" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++)
        check_taken("number", cases[i].text, cases[i].number);
}

TEST(numbers_are_compared_as_numbers)
{
    CHECK(number("so 1,000", "1000") == 1 && number("so 1000.00", "1,000") == 1 &&
          number("it is 0.5", ".50") == 1);
    CHECK(number("9 then 8", "9") == 0 && number("-9", "9") == 0 && number("nothing", "9") == 0 &&
          number("7-2", "-2") == 0);
    CHECK(number("9007199254740993", "9007199254740992") == 0); /* equal as doubles */
    CHECK(number("0.1000000000000000055511151231257827", "0.1") == 0);
    CHECK(number("It is 72.", "Natalia sold 48/2 = <<48/2=24>>24 clips.\n#### 72") == 1);
    CHECK(number("#### 24", "24 clips.\n#### 72") == 0 && number("5", "#### 3 #### 5") == 1 &&
          number("1234", "#### 1,234") == 1);
    const ares_verifier *v = ares_verifier_find("number");
    ares_verify_in in = { .response = ARES_VIEW("1"), .ground_truth = ARES_VIEW("none") };
    ares_verify_out out = { 0 };
    CHECK_FAIL(v->verify(&in, &out), ARES_EFORMAT, "ground truth 'none' holds no number");
    /* a NUL does not end a text */
    CHECK(score_of("number",
                   ARES_VIEW("3\0"
                             "4"),
                   ARES_VIEW("4"), NULL, NULL) == 1);
}

TEST(a_number_too_long_to_keep_is_no_number_and_neither_is_its_tail)
{
    ares_str s = { 0 };
    ares_arena arena = { 0 };
    for (int i = 0; i < 300; i++) ares_str_add_char(&s, '1');
    CHECK(number(s.data, "1") == 0);
    CHECK(number(ares_arena_printf(&arena, "7 or %s", s.data), "7") == 0); /* nor the one before */
    ares_str_add_z(&s, ".5");
    CHECK(number(s.data, "5") == 0 && number(s.data, "0.5") == 0);
    ares_str_add_z(&s, " 5");
    CHECK(number(s.data, "5") == 1);
    ares_str_clear(&s);
    ares_str_add_z(&s, "0.");
    for (int i = 0; i < 300; i++) ares_str_add_char(&s, '3');
    CHECK(number(s.data, "3") == 0);
    ares_str_clear(&s);
    for (int i = 0; i < 300; i++) ares_str_add_char(&s, '0');
    ares_str_add_z(&s, "12");
    CHECK(number(s.data, "12") == 1);
    ares_str_fini(&s);
    ares_arena_fini(&arena);
}

TEST(the_last_box_is_taken_and_must_close)
{
    /* boxed_3 to boxed_6 of tests/golden/aepo.json are among them */
    static const struct {
        const char *text, *box;
    } cases[] = {
        { "\\boxed{5}", "5" },
        { "\\boxed{1} or \\boxed{2}", "2" },
        { "\\boxed{\\frac{1}{2}} done", "\\frac{1}{2}" },
        { "no box", NULL },
        { "\\boxed{1 and \\boxed{2", NULL },
        { "\\boxed{\\{1,2\\}}", "\\{1,2\\}" },
        { "\\boxed 5", NULL },
        { "\\boxed{1} then \\boxed{2", NULL },
        { "\\boxed{1 then \\boxed{2}", "2" },
        { "\\boxed{\\boxed{7}}", "7" },
        { "\\boxed {5}", "5" },
        { "\\fbox{6}", "6" },
        { "\\boxed{}", "" },
        { "\\boxed", NULL },
        { "\\boxed{", NULL },
        { "\\boxe{5}", NULL },
        { "boxed{5}", NULL },
        { "\\\\boxed{5}", "5" },
        { "}\\boxed{5}}", "5" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) check_taken("boxed", cases[i].text, cases[i].box);
}

TEST(boxes_are_compared_as_numbers_or_as_text_without_white_space)
{
    CHECK(boxed("\\boxed{1,000}", "1000") == 1 && boxed("\\boxed{ 5.0 }", "5") == 1 &&
          boxed("\\boxed{-$5}", "-5") == 1 &&
          boxed("\\boxed{\xe2\x88\x92"
                "5}",
                "-5") == 1);
    CHECK(boxed("\\boxed{x + 1}", "x+1") == 1 &&
          boxed("\\boxed{\\frac{1}{2}}", "\\boxed{\\frac{1} {2}}") == 1 &&
          boxed("\\boxed{B}", "B") == 1);
    CHECK(boxed("\\boxed{5 apples}", "5") == 0 && boxed("\\boxed{b}", "B") == 0 &&
          boxed("\\boxed{}", "5") == 0 && boxed("5", "5") == 0 && boxed("\\boxed{x}", "xy") == 0);
}

TEST(exact_looks_past_the_white_space_around)
{
    const struct {
        bool ignore_case;
    } strict = { false }, loose = { true };
    CHECK(score_of("exact", ARES_VIEW(" Paris\n"), ARES_VIEW("Paris"), &strict, NULL) == 1);
    CHECK(score_of("exact", ARES_VIEW("paris"), ARES_VIEW("Paris"), &strict, NULL) == 0);
    CHECK(score_of("exact", ARES_VIEW("paris"), ARES_VIEW("Paris"), &loose, NULL) == 1);
    /* only ASCII letters */
    CHECK(score_of("exact", ARES_VIEW("\xc3\xa9"), ARES_VIEW("\xc3\x89"), &loose, NULL) == 0);
    CHECK(score_of("exact", ARES_VIEW("a\0b"), ARES_VIEW("a\0c"), &strict, NULL) == 0);
    CHECK(score_of("exact", ARES_VIEW(""), ARES_VIEW(" "), &strict, NULL) == 1);
}

typedef struct format {
    const char *pattern;
    bool finished;
} format;

TEST(format_matches_the_whole_response)
{
    const format think = { "<think>.*</think>.*\\\\boxed\\{.*\\}.*", true }, any = { "", true },
                 digits = { "\\d+", true };
    CHECK(score_of("format", ARES_VIEW("<think>a\nb</think> so \\boxed{5}\n"), ARES_VIEW(""),
                   &think, NULL) == 1);
    CHECK(score_of("format", ARES_VIEW("so <think>a</think> \\boxed{5}"), ARES_VIEW(""), &think,
                   NULL) == 0);
    CHECK(score_of("format", ARES_VIEW("12"), ARES_VIEW(""), &digits, NULL) == 1);
    CHECK(score_of("format", ARES_VIEW("12\n"), ARES_VIEW(""), &digits, NULL) == 0);
    CHECK(score_of("format", ARES_VIEW(""), ARES_VIEW(""), &any, NULL) == 1);
    /* invalid UTF-8 crashes nothing */
    CHECK(score_of("format", ARES_VIEW("<think>\xff\0\xfe</think>\\boxed{}"), ARES_VIEW(""), &think,
                   NULL) >= 0);
    const ares_verifier *v = ares_verifier_find("format");
    ares_verify_in cut = { .response = ARES_VIEW("12"), .stopped = false, .options = &digits };
    ares_verify_out out = { .accuracy = NAN };
    CHECK_OK(v->verify(&cut, &out));
    CHECK(out.score == 0);
    cut.options = &(const format){ "\\d+", false };
    CHECK_OK(v->verify(&cut, &out));
    CHECK(out.score == 1);
    CHECK_FAIL(v->check(&(const format){ "(unclosed", true }), ARES_ECONFIG,
               "reward: format: pattern = '(unclosed': missing closing parenthesis at character 9");
}

TEST(a_pattern_that_explodes_is_cut_short_and_says_so)
{
    const format bad = { "(a+)+b", true }, groups = { "(?:x|y)*", true };
    ares_str s = { 0 }, details = { 0 };
    for (int i = 0; i < 5000; i++) ares_str_add_char(&s, 'a');
    CHECK(score_of("format", ares_str_view(&s), ARES_VIEW(""), &bad, &details) == 0);
    CHECK_CONTAINS(details.data, "work limit");
    ares_str_clear(&s);
    for (int i = 0; i < 50000; i++) ares_str_add_char(&s, i % 3 ? 'x' : 'y');
    /* a long answer does not take long */
    CHECK(score_of("format", ares_str_view(&s), ARES_VIEW(""), &groups, NULL) == 1);
    ares_str_fini(&s);
    ares_str_fini(&details);
}

/* Work per byte on each kind of hostile text: quadratic work would be millions. */
TEST(work_is_linear_in_the_response)
{
    static const char *const units[] = { "1", "0",         "1,", "12,345 ", "-",  "\\boxed{",
                                         "{", "\\boxed{}", "}",  "\\",      ".1", "\xe2\x88\x92" };
    const format tail = { ".*\\d", true };
    size_t size = 1000000;
    char *text = ares_malloc(size + 16);
    for (int u = 0; u < ARES_COUNT(units); u++) {
        size_t n = strlen(units[u]);
        for (size_t i = 0; i < size; i += n) memcpy(text + i, units[u], n);
        int64_t before = work_done();
        ares_view whole = { text, size };
        score_of("number", whole, ARES_VIEW("1"), NULL, NULL);
        if (strcmp(units[u], "}") != 0) score_of("boxed", whole, ARES_VIEW("x"), NULL, NULL);
        score_of("format", whole, ARES_VIEW(""), &tail, NULL);
        double work = (double)(work_done() - before) / (double)size;
        CHECK_MSG(work < 120, "'%s': %.0f units of work per byte", units[u], work);
    }
    ares_free(text);
}

TEST(ten_thousand_nested_braces_are_a_box_like_any_other)
{
    ares_str s = { 0 };
    ares_str_add_z(&s, "\\boxed");
    for (int i = 0; i < 10000; i++) ares_str_add_char(&s, '{');
    ares_str_add_char(&s, '5');
    for (int i = 0; i < 10000; i++) ares_str_add_char(&s, '}');
    CHECK(boxed(s.data, "5") == 0);
    CHECK(score_of("boxed", ares_str_view(&s), (ares_view){ s.data + 7, s.len - 8 }, NULL, NULL) ==
          1);
    ares_str_clear(&s);
    for (int i = 0; i < 10000; i++) ares_str_add_z(&s, "\\boxed{");
    ares_str_add_char(&s, '5');
    for (int i = 0; i < 10000; i++) ares_str_add_char(&s, '}');
    CHECK(boxed(s.data, "5") == 1);
    ares_str_fini(&s);
}

TEST(an_unknown_verifier_is_answered_with_the_choices)
{
    CHECK(ares_verifier_find("nubmer") == NULL);
    CHECK_CONTAINS(ares_error_message(), "did you mean 'number'? (choices: exact, number, boxed, ");
}
