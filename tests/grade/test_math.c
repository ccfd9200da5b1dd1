/*
 * Math answers: every GSM8K gold answer in many spellings and with a digit changed, attempts to
 * cheat the judge, and hostile texts. ARES_GSM8K=FOLDER (with train.jsonl and test.jsonl) runs the
 * first over the whole data set; the suite has a sample of it (tests/grade/data/gsm8k.jsonl, by
 * OpenAI, MIT licence).
 */
#include "test.h"
#include "work.h"

#include <math.h>
#include <stdio.h>

#include "ares/grade.h"
#include "math/math.h"

/* ------------------------------------------------------------------ judging */

static double score_of(const char *verifier, ares_view response, ares_view truth,
                       ares_verify_out *out)
{
    const ares_verifier *v = ares_verifier_find(verifier);
    ares_verify_in in = {
        .response = response, .ground_truth = truth, .stopped = true, .response_tokens = -1
    };
    *out = (ares_verify_out){ .accuracy = NAN };
    if (!CHECK(v != NULL) || !CHECK_OK(v->verify(&in, out))) return NAN;
    return out->score;
}

static double score(const char *verifier, const char *response, const char *truth)
{
    ares_verify_out out;
    double s = score_of(verifier, ares_view_of(response), ares_view_of(truth), &out);
    ares_str_fini(&out.details);
    return s;
}

static bool equal(const char *given, const char *truth)
{
    ares_arena arena = { 0 };
    math_budget budget = { .steps = MATH_STEPS };
    bool same =
        math_equal(ares_view_of(given), ares_view_of(truth), MATH_TARGET, &budget, &arena, NULL);
    ares_arena_fini(&arena);
    return same;
}

/* ------------------------------------------------------------------ GSM8K */

/*
 * %s is the number, %c the number with thousands commas, %k with LaTeX's thousands commas; integer:
 * only for whole numbers.
 */
typedef struct spelling {
    const char *verifier, *text;
    double right;
    bool integer;
} spelling;
static const spelling spellings[] = {
    { "math", "\\boxed{%s}", 1, false },
    { "math", "\\boxed{ %s }", 1, false },
    { "math", "\\boxed{%c}", 1, false },
    { "math", "\\boxed{%k}", 1, false },
    { "math", "\\boxed{\\$%s}", 1, false },
    { "math", "\\boxed{$%c}", 1, false },
    { "math", "\\boxed{%s.00}", 1, true },
    { "math", "\\boxed{%s.}", 1, true },
    { "math", "\\boxed{%se0}", 1, false },
    { "math", "\\boxed{%s\\text{ dollars}}", 1, false },
    { "math", "\\boxed{%s \\text{ apples per day}}", 1, false },
    { "math", "\\boxed{%s hours}", 1, false },
    { "math", "\\boxed{%s\\%}", 1, false },
    { "math", "\\boxed{%s^\\circ}", 1, false },
    { "math", "\\boxed{\\text{%s}}", 1, false },
    { "math", "\\boxed{\\mathbf{%s}}", 1, false },
    { "math", "\\boxed{\\,%s\\;}", 1, false },
    { "math", "\\boxed{\\displaystyle %s}", 1, false },
    { "math", "\\boxed{x = %s}", 1, false },
    { "math",
      "<think>17 and \\boxed{1}</think>So she earns $\\boxed{%s}$ dollars every day, 20 of them on "
      "Monday.",
      1, false },
    { "math", "\\boxed{%s dollars}", 0, false }, /* words that are no unit stay */
    { "math", "\\boxed{%s apples}", 0, false },
    { "math", "\\boxed{\\frac{%s}{1}}", 0, true }, /* an integer matches only an integer */
    { "math", "\\boxed{%s+0}", 0, true },
    { "math", "\\boxed{\\sqrt{%s^2}}", 0, true },
    { "math", "The answer is %s.", 0, false },
    { "deepscaler", "<think>so</think> \\boxed{%s}", 1, false },
    { "deepscaler", "\\boxed{%s}", 0, false },
    { "math_hendrycks", "it is \\boxed{%s}", 1, false },
    { "math_hendrycks", "it is \\boxed{n=%s\\text{ eggs}}", 1, false },
    { "dapo", "Answer: %s", 1, false },
    { "dapo", "so\nAnswer: \\boxed{%c}\n", 1, false },
    { "dapo", "Answer: $%s$", 1, false },
    { "dapo", "Answer: %s dollars", 1, false },
    { "dapo", "Answer: %s.", -1, false },
    { "dapo", "%s", -1, false },
    { "gsm8k", "steps\n#### %s", 1, false },
    { "gsm8k", "steps\n#### %c", 1, false },
    { "gsm8k", "steps\n####%s", 0, false },
    { "gsm8k", "steps\n#### %s.", 0, false },
};

/* The digits before the point in groups of three with sep between them. */
static void add_grouped(ares_str *out, const char *number, const char *sep)
{
    size_t from = number[0] == '-', whole = strcspn(number, ".") - from;
    ares_str_add(out, number, from);
    for (size_t i = 0; i < whole; i++) {
        if (i && (whole - i) % 3 == 0) ares_str_add_z(out, sep);
        ares_str_add_char(out, number[from + i]);
    }
    ares_str_add_z(out, number + from + whole);
}

static void spell(ares_str *out, const char *pattern, const char *number)
{
    ares_str_clear(out);
    for (const char *p = pattern; *p; p++) {
        if (*p != '%' || !p[1] || !strchr("sck", p[1])) ares_str_add_char(out, *p);
        else if (*++p == 's') ares_str_add_z(out, number);
        else add_grouped(out, number, *p == 'c' ? "," : "{,}");
    }
}

/*
 * Each spelling of the gold answer scores as it should, and 0 (-1) with any one of its digits
 * changed.
 */
static int64_t check_gold(ares_view answer, ares_str *text, int64_t *wrong)
{
    ares_arena arena = { 0 };
    ares_view label = math_gsm8k_strict(answer, &arena);
    int64_t judged = 0;
    if (!CHECK(label.data != NULL)) return 0;
    char *gold = ares_arena_copy(&arena, label.data, label.len);
    bool integer = !strchr(gold, '.');
    for (int k = 0; k < ARES_COUNT(spellings); k++) {
        const spelling *s = &spellings[k];
        if (s->integer && !integer) continue;
        /* the last round changes nothing */
        for (size_t change = 0; change <= label.len; change++) {
            char *number = ares_arena_copy(&arena, label.data, label.len);
            if (change < label.len && (number[change] < '0' || number[change] > '9')) continue;
            if (change < label.len)
                number[change] = (char)(number[change] == '9' ? '1' : number[change] + 1);
            spell(text, s->text, number);
            double got = score(s->verifier, text->data, gold),
                   want = change == label.len                ? s->right
                          : strcmp(s->verifier, "dapo") == 0 ? -1
                                                             : 0;
            judged++;
            if (got == want) continue;
            if (++*wrong < 20)
                CHECK_MSG(false, "%s: '%s' for %s gives %g, expected %g", s->verifier, text->data,
                          gold, got, want);
        }
    }
    ares_arena_fini(&arena);
    return judged;
}

static int64_t check_file(const char *path, int64_t *judged, int64_t *wrong)
{
    ares_str file = { 0 }, text = { 0 };
    ares_arena arena = { 0 };
    int64_t rows = 0;
    if (!CHECK_OK(ares_file_read(path, &file))) return 0;
    ares_view rest = ares_str_view(&file);
    for (int64_t end; (end = ares_view_find(rest, ARES_VIEW("\n"), 0)) >= 0;
         rest = (ares_view){ rest.data + end + 1, rest.len - (size_t)end - 1 }) {
        const ares_json *row;
        ares_arena_reset(&arena);
        if (!CHECK_OK(ares_json_parse(&arena, (ares_view){ rest.data, (size_t)end }, path, &row)))
            break;
        *judged += check_gold(ares_json_get(row, "answer")->text, &text, wrong);
        rows++;
    }
    ares_arena_fini(&arena);
    ares_str_fini(&text);
    ares_str_fini(&file);
    return rows;
}

TEST(every_spelling_of_a_gsm8k_gold_scores_as_it_should_and_no_changed_digit_does)
{
    int64_t judged = 0, wrong = 0, rows = 0;
    const char *folder = getenv("ARES_GSM8K");
    ares_str path = { 0 };
    if (folder) {
        rows += check_file(ares_path_join(&path, folder, "train.jsonl"), &judged, &wrong);
        rows += check_file(ares_path_join(&path, folder, "test.jsonl"), &judged, &wrong);
        CHECK_EQ(rows, 8792);
        printf("%lld answers judged, %lld wrongly\n", (long long)judged, (long long)wrong);
    } else {
        rows = check_file(test_source("tests/grade/data/gsm8k.jsonl"), &judged, &wrong);
        CHECK(rows > 200);
    }
    CHECK_EQ(wrong, 0);
    ares_str_fini(&path);
}

/* ------------------------------------------------------------------ cheats */

TEST(one_answer_counts_however_many_are_given)
{
    /* the last box */
    CHECK(score("math", "\\boxed{7} or \\boxed{5}", "5") == 1 &&
          score("math", "\\boxed{5} or \\boxed{7}", "5") == 0);
    /* a last box that never closes is no answer */
    CHECK(score("math", "\\boxed{5} \\boxed{6", "5") == 0);
    CHECK(score("math", "\\boxed{4, 5, 6}", "5") == 0 &&
          score("math", "\\boxed{4 or 5}", "5") == 0 &&
          score("math", "\\boxed{\\{4,5\\}}", "5") == 0);
    /* where a unit may stand: as in the original */
    CHECK(score("math", "\\boxed{5=5=6}", "5") == 0 &&
          score("math", "\\boxed{5\\text{ or }6}", "5") == 1);
    CHECK(score("math", "\\boxed{}", "5") == 0 && score("math", "\\boxed{\\emptyset}", "5") == 0 &&
          score("math", "\\boxed{\\text{}}", "5") == 0 && score("math", "\\boxed{$}", "5") == 0);
    CHECK(score("math", "\\boxed{x}", "5") == 0 && score("math", "\\boxed{?}", "5") == 0 &&
          score("math", "\\boxed{0/0}", "5") == 0);
    CHECK(score("dapo", "Answer: 5 or 6", "5") == -1 &&
          score("dapo", "Answer: 5\nAnswer: 6", "5") == -1);
    CHECK(score("gsm8k", "#### 5 #### 6", "5") == 0 && score("gsm8k", "#### 5,6", "5") == 0);
}

TEST(copying_the_prompt_is_no_answer)
{
    const char *prompt = "How many? Put the answer in \\boxed{}. Answer: write it behind #### ";
    CHECK(score("math", prompt, "5") == 0 && score("gsm8k", prompt, "5") == 0 &&
          score("dapo", prompt, "5") == -1 && score("math_hendrycks", prompt, "5") == 0);
    CHECK(score("math", "\\boxed{answer}", "5") == 0 &&
          score("math", "\\boxed{\\boxed{5}}", "5") == 1);
}

TEST(an_empty_ground_truth_is_met_by_nothing)
{
    CHECK(score("math", "\\boxed{}", "") == 0 &&
          score("deepscaler", "</think>\\boxed{}", "") == 0 &&
          score("math", "\\boxed{5}", "\\boxed{5") == 0);
    CHECK(score("math", "\\boxed{5}", "so \\boxed{5}.") == 1);
    static const char *const names[] = { "math", "deepscaler", "dapo", "gsm8k", "math_hendrycks" };
    for (int i = 0; i < ARES_COUNT(names); i++) {
        ares_verify_in in = { .response = ARES_VIEW("\\boxed{5}") };
        ares_verify_out out = { .accuracy = NAN };
        CHECK_FAIL(ares_verifier_find(names[i])->verify(&in, &out), ARES_EFORMAT,
                   "the row has no ground truth");
    }
}

/* ---------------- what equals what beyond the goldens */

TEST(numbers_are_recognised_exactly)
{
    CHECK(!equal("9007199254740993", "9007199254740992")); /* equal as doubles */
    CHECK(equal("9007199254740993.0", "9007199254740993") &&
          equal("1e20", "100000000000000000000") && !equal("1e400", "1e401"));
    CHECK(equal("1,234,567", "1234567") && equal("12{,}345{,}678", "12345678") &&
          !equal("1,2345", "12345"));
    CHECK(equal("1.2345678 million", "1234567.8") && equal("0.5 billion", "500000000") &&
          equal("$1,500 million", "1500000000") && !equal("1.5 million", "15000000"));
    CHECK(equal("1 trillion", "1000000000000") && !equal("million", "1000000"));
    CHECK(equal("0.\\overline{9}", "1") && equal("0.1\\overline{6}", "\\frac{1}{6}") &&
          equal("2.\\overline{142857}", "\\frac{15}{7}") && !equal("0.\\overline{3}", "0.3"));
}

TEST(latex_is_grouped_as_it_is_read)
{
    CHECK(equal("\\frac{x+1}{2}", "0.5x+0.5") && !equal("\\frac{x+1}{2}", "x+0.5") &&
          equal("\\cfrac{1}{1+\\cfrac{1}{2}}", "\\frac{2}{3}"));
    CHECK(equal("-2\\frac{1}{2}", "-2.5") && equal("-2 \\frac12", "-\\frac{5}{2}") &&
          equal("3 - 1\\frac{1}{2}", "1.5") && equal("(-1\\frac12, 2)", "(-1.5,2)"));
    CHECK(equal("\\sqrt[3]{54}", "3\\sqrt[3]{2}") && equal("2^{\\frac{1}{2}}", "\\sqrt2") &&
          equal("x^{-1}", "\\frac{1}{x}") && equal("2^{2n}", "4^n"));
    CHECK(equal("\\sin 2x", "2\\sin x\\cos x") && equal("\\ln\\left(2\\right)", "\\ln 2") &&
          equal("\\sin\\frac{\\pi}{6}+x", "x+\\frac12") && equal("x\\sin x", "\\sin(x)x"));
    CHECK(equal("\\pi r^2", "r^2\\pi") && equal("3\xe2\x88\x92\xcf\x80", "3-\\pi") &&
          equal("x\\leqslant 3", "x\\le3") && equal("1\\lt x", "1<x"));
    CHECK(!equal("A\\cap B", "A\\setminus B") && !equal("A\\subset B", "A\\supset B") &&
          !equal("\\pm 2", "\\mp 2") && !equal("x\\in S", "x\\notin S"));
}

static ares_view in_environment(ares_arena *arena, const char *name, const char *body)
{
    const char *columns = strcmp(name, "array") == 0 ? "{cc}" : "";
    return ares_view_of(
        ares_arena_printf(arena, "\\begin{%s}%s%s\\end{%s}", name, columns, body, name));
}

static bool equal_views(ares_view a, ares_view b)
{
    ares_arena arena = { 0 };
    math_budget budget = { .steps = MATH_STEPS };
    bool same = math_equal(a, b, MATH_TARGET, &budget, &arena, NULL);
    ares_arena_fini(&arena);
    return same;
}

TEST(matrices_are_compared_entry_by_entry)
{
    CHECK(equal("\\begin{pmatrix}0.5&1\\\\2&3\\end{pmatrix}",
                "$\\begin{pmatrix} \\frac12 & 1 \\\\ 2 & 3 \\\\ \\end{pmatrix}$"));
    CHECK(equal("\\begin{bmatrix}1\\\\2\\end{bmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}") &&
          !equal("\\begin{pmatrix}1&2\\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}"));
    CHECK(!equal("\\begin{pmatrix}2/4\\\\2\\end{pmatrix}",
                 "\\begin{pmatrix}1/2\\\\2\\end{pmatrix}") &&
          !equal("(1,2)", "\\begin{pmatrix}1\\\\2\\end{pmatrix}"));
    CHECK(equal("\\begin{pmatrix}\\begin{pmatrix}.5\\end{pmatrix}&{1\\\\2}\\end{pmatrix}",
                "\\begin{pmatrix}\\begin{pmatrix}1/2\\end{pmatrix}&{1\\\\2}\\end{pmatrix}"));
    CHECK(!equal("\\begin{pmatrix}1\\end{pmatrix}\\begin{pmatrix}1\\end{pmatrix}",
                 "\\begin{pmatrix}1\\end{pmatrix}"));
    CHECK(
        equal("\\begin{pmatrix}\\frac12\\\\[4pt]3\\end{pmatrix}",
              "\\begin{pmatrix}.5\\\\3\\end{pmatrix}") &&
        !equal("\\begin{pmatrix}1\\\\[2]3\\end{pmatrix}", "\\begin{pmatrix}1\\\\3\\end{pmatrix}"));
}

TEST(a_matrix_is_equal_in_every_environment)
{
    static const char *const names[] = { "matrix",   "pmatrix",     "bmatrix",      "Bmatrix",
                                         "Vmatrix",  "smallmatrix", "psmallmatrix", "bsmallmatrix",
                                         "pmatrix*", "array" };
    for (int a = 0; a < ARES_COUNT(names); a++)
        for (int b = 0; b < ARES_COUNT(names); b++) {
            ares_arena m = { 0 };
            ares_view x = in_environment(&m, names[a], "0.5 & -1 \\\\ \\frac{3}{4} & x+1"),
                      y = in_environment(&m, names[b], "\\frac12&-1\\\\.75&1+x\\\\");
            CHECK_MSG(equal_views(x, y), "%s and %s", names[a], names[b]);
            CHECK_MSG(
                !equal_views(x, in_environment(&m, names[b], "0.5 & -1 \\\\ \\frac{3}{4} & x-1")),
                "%s and %s: another entry", names[a], names[b]);
            CHECK_MSG(!equal_views(x, in_environment(&m, names[b], "0.5 & -1 \\\\ \\frac{3}{4}")),
                      "%s and %s: a cell less", names[a], names[b]);
            CHECK_MSG(
                !equal_views(x, in_environment(&m, names[b], "0.5 & -1 & \\frac{3}{4} & x+1")),
                "%s and %s: one row", names[a], names[b]);
            CHECK_MSG(!equal_views(in_environment(&m, names[b], "0.5 & -1"), x),
                      "%s and %s: a row less", names[b], names[a]);
            ares_arena_fini(&m);
        }
}

TEST(a_determinant_is_no_matrix)
{
    static const char *const names[] = { "matrix",  "pmatrix",     "bmatrix", "Bmatrix",
                                         "Vmatrix", "smallmatrix", "array" };
    for (int a = 0; a < ARES_COUNT(names); a++) {
        ares_arena m = { 0 };
        ares_view bars = in_environment(&m, "vmatrix", "1&2\\\\3&4"),
                  other = in_environment(&m, names[a], "1&2\\\\3&4");
        CHECK_MSG(!equal_views(bars, other) && !equal_views(other, bars), "%s", names[a]);
        bars = in_environment(&m, "vmatrix", "1&2"),
        other = in_environment(&m, names[a], "1&2"); /* has no determinant */
        CHECK_MSG(equal_views(bars, other) && equal_views(other, bars), "%s, not square", names[a]);
        ares_arena_fini(&m);
    }
    CHECK(equal("\\begin{vmatrix}1&.5\\\\3&4\\end{vmatrix}",
                "\\left|\\begin{matrix}1&\\frac12\\\\3&4\\end{matrix}\\right|") &&
          !equal("\\begin{vmatrix}1&2\\\\3&4\\end{vmatrix}", "-2"));
    CHECK(!equal("\\det\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
                 "\\begin{bmatrix}1&2\\\\3&4\\end{bmatrix}") &&
          !equal("\\begin{pmatrix}1\\end{pmatrix}", "1"));
    CHECK(equal("\\det\\begin{pmatrix}1&.5\\end{pmatrix}",
                "\\det \\begin{bmatrix}1&\\frac12\\end{bmatrix}") &&
          !equal("\\begin{pmatrix}1&2\\end{pmatrix}^T", "\\begin{pmatrix}1&2\\end{pmatrix}"));
}

#define COLUMN(name, a, b) "\\begin{" name "}" a "\\\\" b "\\end{" name "}"

TEST(matrices_are_found_inside_an_answer)
{
    CHECK(equal("A = " COLUMN("bmatrix", "1", "2"), COLUMN("pmatrix", "1", "2")) &&
          equal("\\left(" COLUMN("matrix", "1", "2") "\\right)", COLUMN("bmatrix", "1", "2")));
    CHECK(
        equal("\\left[\\begin{array}{c}1\\\\2\\end{array}\\right]", COLUMN("pmatrix", "1", "2")) &&
        equal("\\left\\{" COLUMN("matrix", "1", "2") "\\right\\}", COLUMN("Bmatrix", "1", "2")));
    CHECK(equal("\\frac{1}{3}" COLUMN("bmatrix", "1", "2"),
                "\\frac13 " COLUMN("pmatrix", "1", "2")) &&
          !equal("2" COLUMN("bmatrix", "1", "2"), COLUMN("bmatrix", "1", "2")));
    CHECK(equal(COLUMN("bmatrix", ".5", "2") " + t" COLUMN("bmatrix", "3", "4"),
                COLUMN("pmatrix", "\\frac12", "2") "+t" COLUMN("pmatrix", "3", "4")));
    CHECK(equal("\\left(" COLUMN("bmatrix", ".5", "2") ", " COLUMN("bmatrix", "3", "4") "\\right)",
                "(" COLUMN("pmatrix", "1/2", "2") "," COLUMN("pmatrix", "3", "4") ")"));
    CHECK(!equal("(" COLUMN("bmatrix", "3", "4") "," COLUMN("bmatrix", "1", "2") ")",
                 "(" COLUMN("bmatrix", "1", "2") "," COLUMN("bmatrix", "3", "4") ")"));
    CHECK(!equal(COLUMN("bmatrix", "3", "4") "-" COLUMN("bmatrix", "1", "2"),
                 COLUMN("bmatrix", "3", "4") "+" COLUMN("bmatrix", "1", "2")));
    CHECK(score("math", "So it is \\boxed{" COLUMN("bmatrix", "0.5", "2") "}.",
                COLUMN("pmatrix", "\\frac{1}{2}", "2")) == 1);
    CHECK(score("deepscaler",
                "<think>\\boxed{1}</think> It is $\\boxed{" COLUMN("pmatrix", "\\frac12", "2") "}$",
                "$\\boxed{" COLUMN("bmatrix", "0.5", "2") "}$") == 1);
    CHECK(score("deepscaler", "</think> \\boxed{" COLUMN("pmatrix", "\\frac12", "3") "}",
                COLUMN("bmatrix", "0.5", "2")) == 0);
}

TEST(lists_keep_their_order_and_their_brackets)
{
    CHECK(equal("(\\frac{1}{2},\\sqrt{8})", "(0.5,2\\sqrt2)") &&
          !equal("(\\sqrt{8},1)", "(1,2\\sqrt2)") && !equal("[1,2)", "[1,2]") &&
          !equal("1,2", "2,1"));
    CHECK(equal("((1,2),0.5)", "((1,2),\\frac12)") && !equal("(1,2,3)", "(1,2)") &&
          !equal("(1,)", "(1,2)") && !equal("(,)", "(1,2)"));
}

TEST(dapo_opens_a_box_with_the_braces_in_it)
{
    ares_verify_out out;
    static const char *const boxed[] = { "Answer: \\boxed{\\frac{1}{2}}",
                                         "Answer: $\\boxed{\\frac{1}{2}}$", "Answer: \\frac12" };
    for (int i = 0; i < ARES_COUNT(boxed); i++) {
        double score = score_of("dapo", ares_view_of(boxed[i]), ARES_VIEW("\\frac{1}{2}"), &out);
        CHECK_MSG(score == 1, "%s: %g, %s", boxed[i], score, out.details.data);
        ares_str_fini(&out.details);
    }
}

TEST(dapo_reads_integers_as_numbers_only_when_told)
{
    ares_verify_out out;
    CHECK_NEAR(score_of("dapo", ARES_VIEW("Answer: 042"), ARES_VIEW("42"), &out), -1, 0);
    CHECK_CONTAINS(out.details.data,
                   "\"acc\":false,\"pred\":\"042\",\"extracted\":\"042\",\"decided_by\":\"no\"");
    ares_str_fini(&out.details);
    static const struct {
        const char *text, *truth;
        double want;
    } cases[] = { { "Answer: 042", "42", 1 },    { "Answer: 42.0", "42", 1 },
                  { "Answer: -42", "42", -1 },   { "Answer: -042", "-42", 1 },
                  { "Answer: 42.5", "42", -1 },  { "Answer: -0", "0", 1 },
                  { "Answer: forty", "42", -1 }, { "Answer: 0", "-00.0", 1 } };
    const ares_verifier *v = ares_verifier_find("dapo");
    struct {
        bool integer_labels, strict_box;
    } options = { true, false };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_verify_in in = { .response = ares_view_of(cases[i].text),
                              .ground_truth = ares_view_of(cases[i].truth),
                              .options = &options };
        out = (ares_verify_out){ .accuracy = NAN };
        CHECK_OK(v->verify(&in, &out));
        CHECK_NEAR(out.score, cases[i].want, 0);
        ares_str_fini(&out.details);
    }
}

/* ------------------------------------------------------------------ hostile texts */

TEST(hostile_answers_are_wrong_and_end)
{
    static const char *const patterns[] = { "{",
                                            "\\frac",
                                            "\\sqrt{",
                                            "\\boxed{",
                                            "(",
                                            "[",
                                            "-",
                                            "^",
                                            "^{",
                                            "9^",
                                            "9",
                                            "\\begin{pmatrix}",
                                            "\\left(",
                                            "\\overline{3}",
                                            "1,000,",
                                            "\xff",
                                            "\xe2\x80\x8f",
                                            "$",
                                            "\\text{",
                                            "x+",
                                            "!",
                                            "\\\\",
                                            "&" };
    ares_str s = { 0 };
    for (int mode = MATH_TARGET; mode <= MATH_REFERENCE; mode++) {
        for (int i = 0; i < ARES_COUNT(patterns); i++) {
            ares_arena arena = { 0 };
            math_budget budget = { .steps = MATH_STEPS };
            ares_str_clear(&s);
            while (s.len + strlen(patterns[i]) <= MATH_MAX_BYTES) ares_str_add_z(&s, patterns[i]);
            int64_t before = work_done();
            CHECK_MSG(!math_equal(ares_str_view(&s), ARES_VIEW("5"), (math_mode)mode, &budget,
                                  &arena, NULL),
                      "%s", patterns[i]);
            CHECK_MSG(work_done() - before < 8000000, "%s: %lld units of work", patterns[i],
                      (long long)(work_done() - before));
            ares_arena_fini(&arena);
        }
    }
    ares_str_fini(&s);
}

TEST(what_is_too_long_to_be_an_answer_equals_nothing)
{
    ares_str s = { 0 };
    ares_verify_out out;
    ares_str_add_z(&s, "\\boxed{");
    for (int i = 0; i < 100000; i++) ares_str_add_char(&s, '1');
    ares_str_add_z(&s, "}");
    CHECK_NEAR(score_of("math", ares_str_view(&s), ares_str_view(&s), &out), 0, 0);
    CHECK(out.exhausted && !out.no_answer && out.details.len < 3000);
    ares_str_fini(&out.details);
    CHECK_NEAR(score_of("math", ARES_VIEW("no box"), ARES_VIEW("5"), &out), 0, 0);
    CHECK(out.no_answer && !out.exhausted);
    ares_str_fini(&out.details);
    ares_str_fini(&s);
}

/* Work per byte, which bounds texts of any length. */
TEST(a_long_response_is_judged_in_linear_work_and_no_memory)
{
    static const char *const patterns[] = { "\\boxed{",     "{",       "}",       "</think>\\boxed",
                                            "#### ",        "Answer:", "answer ", "-1,2.",
                                            "\xe2\x80\x83", "\\",      "x",       "\\boxed ",
                                            "###Response " };
    static const char *const names[] = { "math", "deepscaler", "dapo", "gsm8k", "math_hendrycks" };
    enum { LENGTH = 1 << 20 };
    ares_str s = { 0 };
    ares_str_reserve(&s, LENGTH + 64);
    for (int i = 0; i < ARES_COUNT(patterns); i++) {
        ares_str_clear(&s);
        while (s.len < LENGTH) ares_str_add_z(&s, patterns[i]);
        for (int k = 0; k < ARES_COUNT(names); k++) {
            ares_verify_out out;
            int64_t work = work_done(), memory = work_allocated();
            double got = score_of(names[k], ares_str_view(&s), ARES_VIEW("5"), &out),
                   per_byte = (double)(work_done() - work) / (double)s.len;
            memory = work_allocated() - memory;
            CHECK_MSG(got <= 0 && per_byte < 40, "%s of %s: %g by %g units of work per byte",
                      names[k], patterns[i], got, per_byte);
            CHECK_MSG(memory < LENGTH / 2, "%s of %s: %lld bytes", names[k], patterns[i],
                      (long long)memory);
            ares_str_fini(&out.details);
        }
    }
    ares_str_fini(&s);
}
