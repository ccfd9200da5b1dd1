/*
 * Math-Verify's verdicts: the golden pairs against the original's, the rules one by one
 * (docs/rewards.md#math-verify), and hostile answers.
 */
#include "test.h"
#include "work.h"

#include <stdio.h>

#include "math/math.h"

static bool verify_views(ares_view gold, ares_view response, ares_str *taken, int64_t *steps)
{
    ares_arena arena = { 0 };
    math_budget budget = { .steps = MATH_STEPS };
    ares_view extracted;
    const char *decided_by;
    bool same = claim_verify(gold, response, &budget, &arena, &extracted, &decided_by);
    if (taken) {
        ares_str_clear(taken);
        if (extracted.data) ares_str_add_view(taken, extracted);
    }
    if (steps) *steps = MATH_STEPS - budget.steps;
    ares_arena_fini(&arena);
    return same;
}
static bool verify(const char *gold, const char *response)
{
    return verify_views(ares_view_of(gold), ares_view_of(response), NULL, NULL);
}
/* Both texts in boxes, as the golden pairs were judged. */
static bool boxed(ares_view gold, ares_view given)
{
    ares_str g = { 0 }, r = { 0 };
    ares_str_add_z(&g, "\\boxed{");
    ares_str_add_view(&g, gold);
    ares_str_add_char(&g, '}');
    ares_str_add_z(&r, "\\boxed{");
    ares_str_add_view(&r, given);
    ares_str_add_char(&r, '}');
    bool same = verify_views(ares_str_view(&g), ares_str_view(&r), NULL, NULL);
    ares_str_fini(&g);
    ares_str_fini(&r);
    return same;
}

TEST(the_golden_pairs_differ_from_the_original_in_three_of_a_hundred_at_most)
{
    ares_str text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *root;
    REQUIRE_OK(ares_file_read(test_source("tests/golden/math_equal.json"), &text));
    REQUIRE_OK(ares_json_parse(&arena, ares_str_view(&text), "math_equal.json", &root));
    const ares_json *cases = ares_json_get(root, "cases");
    int pairs = 0, accepted = 0, refused = 0;
    for (int64_t i = 0; i < cases->count; i++) {
        const ares_json *c = &cases->items[i], *inputs = ares_json_get(c, "inputs"),
                        *reference = ares_json_get(c, "reference");
        if (!ares_view_is(ares_json_get(c, "function")->text, "math_equal") ||
            !ares_json_get(reference, "math_verify"))
            continue;
        ares_view given = ares_json_get(inputs, "given")->text,
                  truth = ares_json_get(inputs, "truth")->text;
        bool want = ares_json_get(reference, "math_verify")->boolean, got = boxed(truth, given);
        pairs++;
        if (want == got) continue;
        *(got ? &accepted : &refused) += 1;
        printf("  math_verify %s: given '%.*s', truth '%.*s'\n", got ? "accepts" : "refuses",
               (int)given.len, given.data, (int)truth.len, truth.data);
    }
    printf("  math_verify differs from the original in %d of %d pairs (%d accepted, %d refused)\n",
           accepted + refused, pairs, accepted, refused);
    CHECK(pairs >= 300);
    CHECK_MSG((accepted + refused) * 100 <= 3 * pairs, "%d of %d differ", accepted + refused,
              pairs);
    ares_arena_fini(&arena);
    ares_str_fini(&text);
}

typedef struct pair {
    const char *gold, *given;
    bool same;
} pair;

TEST(each_rule_of_math_verify_holds)
{
    static const pair pairs[] = {
        { "5", "x=5", true },
        { "x=5", "5", true },
        { "x=5", "y=5", false },
        { "5", "a=b=5", true },
        { "x=1=2", "2", true },
        { "2x+z=1", "1", false },
        { "1", "2x+z=1", true },
        { "1/3", "0.333333", true },
        { "1/3", "0.33333", false },
        { "\\sqrt{2}", "1.414214", true },
        { "\\sqrt{2}", "1.41421", false },
        { "\\frac{22}{7}", "3.142857", true },
        { "50\\%", "0.5", true },
        { "50\\%", "\\frac12", true },
        { "50\\%", "50", false },
        { "50\\%", "50 percent", true },
        { "10", "\\frac{20}{2}", true },
        { "\\frac24", "\\frac12", true },
        { "\\{1,2\\}", "2,1", true },
        { "1,2", "\\{2,1\\}", true },
        { "(1,2)", "(2,1)", false },
        { "(1,2)", "1,2", true },
        { "1,2", "(1,2)", true },
        { "[1,2]", "1,2", false },
        { "(1,2,3)", "3,2,1", false },
        { "1,1,2", "1,2", true },
        { "\\pm 2", "2,-2", true },
        { "1\\pm\\sqrt2", "1-\\sqrt2, 1+\\sqrt{2}", true },
        { "(1,2]", "(1,2]", true },
        { "(1,2]", "[1,2]", false },
        { "(-\\infty,3]", "(-\\infty, \\frac{6}{2}]", true },
        { "(-\\infty,3]", "[-\\infty,3]",
          true }, /* an infinite end is open however it is written */
        { "(-\\infty,3]", "(-\\infty,3)", false },
        { "x>-5", "(-5,\\infty)", true },
        { "(-5,\\infty)", "x>-5", false },
        { "1<x\\le2", "(1,2]", true },
        { "x>3", "3<x", true },
        { "x>3", "x\\ge3", false },
        { "2x>6", "x>3", true },
        { "x>3", "-x>-3", false },
        { "x+y=3", "y=3-x", true },
        { "2x=4", "x=2", true },
        { "x\\in[1,2]", "[1,2]", true },
        { "[1,2]\\cup[3,4]", "[3,4]\\cup[1,2]", true },
        { "[1,2]\\cup[3,4]", "[1,2]\\cup[3,5]", false },
        { "\\emptyset", "\\{\\}", true },
        { "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
          "\\begin{bmatrix} 1 \\\\ \\frac{4}{2} \\end{bmatrix}", true },
        { "\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}1&2\\end{pmatrix}", false },
        { "\\text{yes}", "yes", true },
        { "\\text{Monday}", "monday", true },
        { "yes", "no", false },
        { "xy", "yx", true },
        { "\\text{(A)}", "A", true },
        { "A", "B", false },
        { "5", "5 apples", true },
        { "5", "\\$5", true },
        { "1{,}000", "1000", true },
        { "1000", "1,000", true },
        { "2\\frac12", "2.5", true },
        { "-1\\frac12", "-\\frac32", true },
        { "1/(2x)", "1/2x", true },
        { "x/2", "\\frac12x", true },
        { "x^2+2x+1", "(x+1)^2", true },
        { "\\log_2 8", "3", true },
        { "\\log 100", "2", true },
        { "\\sin^2 x+\\cos^2 x", "1", true },
        { "\\sin 2x", "2\\sin x\\cos x", true },
        { "\\binom52", "10", true },
        { "\\sqrt[3]{8}", "2", true },
        { "5!", "120", true },
        { "|{-3}|", "3", true },
        { "\\lfloor 3.7\\rfloor", "3", true },
        { "3:4", "\\frac34", true },
        { "90^\\circ", "90", true },
        { "1e3", "1000", false },
        { "113", "113.", false },
        { "x_1", "x_2", false },
        { "17_8", "17", true },
        { "\\frac{1}{0}", "\\frac{2}{0}", false },
        { "\\infty", "-\\infty", false },
        { "a+b", "b+a", true },
        { "\\alpha+1", "1+\\alpha", true },
        { "\\alpha", "\\beta", false },
        { "x=1,y=2", "y=2,x=1", true },
        { "1;2", "1,2", true },
    };
    for (int i = 0; i < ARES_COUNT(pairs); i++)
        CHECK_MSG(boxed(ares_view_of(pairs[i].gold), ares_view_of(pairs[i].given)) == pairs[i].same,
                  "gold '%s', given '%s'", pairs[i].gold, pairs[i].given);
}

TEST(the_answer_is_found_where_it_is_given)
{
    static const struct {
        const char *response, *taken;
    } cases[] = {
        { "It is \\boxed{5}.", "5" },
        { "\\boxed{5} is what I thought until I read the question once more: it is \\boxed{6}",
          "6" },
        { "\\boxed{1} and \\boxed{2}", "1,2" },
        { "so $x=3$", "x=3" },
        { "$2$, $3$ and $4$", "2,3,4" },
        { "it is \\frac{3}{4} then", "\\frac{3}{4}" },
        { "first $3$ then $4$", "4" },
        { "The final answer is $7$. I hope it is correct. \\boxed{8}", "7" },
        { "Answer: 12. Much later, more than fifty characters behind that word: $13$", "12" },
        { "it costs 72 dollars", "72" },
        { "1,234 apples", "1,234" },
        { "\\[ x^2 \\]", " x^2 " },
        { "\\(\\frac{1}{2}\\)", "\\frac{1}{2}" },
        { "no number here", "" },
        { "", "" },
        { "\\boxed{\\frac{1}{2}}", "\\frac{1}{2}" },
        { "$\\boxed{5}$ cm", "5" },
        { "\\boxed{{5}}", "{5}" },
    };
    ares_str taken = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        verify_views(ARES_VIEW("1"), ares_view_of(cases[i].response), &taken, NULL);
        CHECK_MSG(ares_view_is(ares_str_view(&taken), cases[i].taken), "'%s': took '%s', not '%s'",
                  cases[i].response, taken.data ? taken.data : "", cases[i].taken);
    }
    ares_str_fini(&taken);
    CHECK(verify("72", "so 48 + 24 = 72 clips in total") &&
          verify("\\frac{1}{2}", "The answer is $0.5$") && verify("$x^2$", "\\boxed{x^2}") &&
          !verify("72", "I do not know"));
    CHECK(verify("0.25", "a rate of 25%") && !verify("5", "\\boxed{}") &&
          !verify("", "\\boxed{5}") && !verify("", ""));
}

/* Several boxes, lists, and copies of the question gain nothing. */
TEST(answers_that_guess_are_wrong)
{
    CHECK(!verify("5", "\\boxed{4} \\boxed{5}") && !verify("5", "\\boxed{4,5}") &&
          !verify("5", "\\boxed{5,4,3,2,1}") && !verify("5", "\\boxed{\\{5, 4\\}}") &&
          !verify("5", "\\boxed{\\emptyset}"));
    CHECK(!verify("5", "\\boxed{x}") && !verify("5", "\\boxed{[0,10]}") &&
          !verify("5", "\\boxed{5 \\text{ or } 6}") && !verify("5", "\\boxed{\\pm 5}") &&
          !verify("x", "\\boxed{y}"));
}

TEST(hostile_answers_end_within_their_budget_as_verify_sees_them)
{
    static const char *const units[] = { "\\boxed{",
                                         "}",
                                         "{",
                                         "(",
                                         "[",
                                         "$",
                                         "$$",
                                         "\\frac",
                                         "\\frac{",
                                         "\\sqrt",
                                         "^",
                                         "^{",
                                         "_",
                                         "_{",
                                         "|",
                                         "\\|",
                                         "\\left(",
                                         "\\right)",
                                         "9^",
                                         "9!",
                                         "!",
                                         ",",
                                         ";",
                                         "=",
                                         "<",
                                         "1,",
                                         "x=",
                                         "\\pm",
                                         "\\cup",
                                         "1\\cup",
                                         "&",
                                         "\\\\",
                                         "\\begin{pmatrix}",
                                         "1&",
                                         "\\end{pmatrix}",
                                         "\\text{",
                                         "\\text{a}",
                                         "\\sin",
                                         "\\sin ",
                                         "\\log_",
                                         "-",
                                         "+",
                                         "\\",
                                         "answer",
                                         "answer: 1 ",
                                         "final answer is ",
                                         "\\boxed{1} and ",
                                         "1/",
                                         "ab",
                                         "\xce\xb8",
                                         "\xff",
                                         "%",
                                         "5%",
                                         " and ",
                                         "\"",
                                         "e",
                                         "d" };
    static const size_t sizes[] = { 60, 1900, 100000 };
    ares_str text = { 0 }, box = { 0 };
    for (int u = 0; u < ARES_COUNT(units); u++) {
        for (int k = 0; k < ARES_COUNT(sizes); k++) {
            int64_t steps;
            ares_str_clear(&text);
            ares_str_clear(&box);
            while (text.len < sizes[k]) ares_str_add_z(&text, units[u]);
            ares_str_add_z(&box, "\\boxed{");
            ares_str_add_view(&box, ares_str_view(&text));
            ares_str_add_z(&box, "7}");
            int64_t before = work_done();
            verify_views(ARES_VIEW("8"), ares_str_view(&box), NULL, &steps);
            verify_views(ARES_VIEW("8"), ares_str_view(&text), NULL, NULL);
            verify_views(ares_str_view(&text), ares_str_view(&box), NULL, NULL);
            CHECK(steps <= MATH_STEPS);
            double work = (double)(work_done() - before) / (double)ARES_MAX(text.len, 2000);
            CHECK_MSG(work < 6000, "'%s' %zu bytes: %.0f units of work per byte, %lld steps",
                      units[u], sizes[k], work, (long long)steps);
        }
    }
    static const char *const answers[] = { "9^9^9^9",
                                           "9^{9^{9^9}}",
                                           "10^{1000}!",
                                           "\\binom{10^{9}}{10^{8}}",
                                           "\\sqrt[10^9]{2}",
                                           "1e999999999",
                                           "\\exp(\\exp(\\exp(10)))",
                                           "\\frac{1}{0}",
                                           "0^{-1}",
                                           "\\sin(10^{999})",
                                           "\\log_1 5",
                                           "\\log_0 0",
                                           "\\infty-\\infty",
                                           "\\lfloor 10^{1000}/3\\rfloor" };
    for (int i = 0; i < ARES_COUNT(answers); i++) {
        int64_t before = work_done();
        CHECK_MSG(!boxed(ARES_VIEW("7"), ares_view_of(answers[i])), "%s", answers[i]);
        CHECK_MSG(work_done() - before < 100000, "%s: %lld units of work", answers[i],
                  (long long)(work_done() - before));
    }
    ares_str_fini(&text);
    ares_str_fini(&box);
}

/* Random bytes from LaTeX's characters: nothing crashes, and a text equals itself. */
TEST(random_latex_is_judged_without_harm)
{
    static const char *const parts[] = { "\\frac",
                                         "\\sqrt",
                                         "{",
                                         "}",
                                         "(",
                                         ")",
                                         "[",
                                         "]",
                                         "1",
                                         "2",
                                         "12",
                                         ".",
                                         ",",
                                         ";",
                                         "x",
                                         "y",
                                         "e",
                                         "d",
                                         "+",
                                         "-",
                                         "*",
                                         "/",
                                         "^",
                                         "_",
                                         "=",
                                         "<",
                                         "\\le",
                                         "\\pm",
                                         "\\cup",
                                         "\\pi",
                                         "\\infty",
                                         "\\text{ab}",
                                         "\\sin",
                                         "\\log",
                                         "|",
                                         "\\lfloor",
                                         "\\rfloor",
                                         "\\{",
                                         "\\}",
                                         "%",
                                         "\\%",
                                         " ",
                                         "!",
                                         "\\begin{pmatrix}",
                                         "\\end{pmatrix}",
                                         "&",
                                         "\\\\",
                                         "\\boxed{",
                                         "$",
                                         "\\in",
                                         "\\approx",
                                         "\\binom",
                                         "\\overline",
                                         "^\\circ",
                                         "\\,",
                                         "\\left(",
                                         "\\right)" };
    ares_rng_key key = ares_rng_root(11, ARES_RNG_TEST);
    uint64_t at = 0;
    ares_str a = { 0 }, b = { 0 };
    for (int i = 0; i < 20000; i++) {
        ares_str *both[] = { &a, &b };
        for (int k = 0; k < 2; k++) {
            ares_str_clear(both[k]);
            int n = 1 + (int)ares_rng_below(key, at++, 14);
            for (int j = 0; j < n; j++)
                ares_str_add_z(both[k], parts[ares_rng_below(key, at++, ARES_COUNT(parts))]);
        }
        boxed(ares_str_view(&a), ares_str_view(&b));
        verify_views(ares_str_view(&a), ares_str_view(&b), NULL, NULL);
    }
    ares_str_fini(&a);
    ares_str_fini(&b);
}
