/* Math answers (math_equal.json), and MathRuler's grading, formats and boxes (aepo.json). */
#include "golden.h"

#include <math.h>

#include "../../src/reward/math/math.h"
#include "../../src/reward/verifier.h"
#include "ares/grade.h"

static math_budget fresh(void)
{
    return (math_budget){ .steps = MATH_STEPS };
}

GOLDEN(math_equal, math_equal)
{
    ares_view given = golden_string(g, "given"), truth = golden_string(g, "truth");
    math_budget budget = fresh();
    golden_equal(g, "target", math_equal(given, truth, MATH_TARGET, &budget, g->arena, NULL),
                 g->expected);
    /* a count or a boolean */
    const ares_json *reference = ares_json_get(ares_json_get(g->root, "reference"), "deepscaler");
    if (!reference) return;
    budget = fresh();
    ares_json want = { .type = ARES_JSON_BOOL,
                       .boolean = reference->type == ARES_JSON_BOOL
                                      ? reference->boolean
                                      : golden_value(reference) != 0 };
    golden_equal(g, "reference", math_equal(given, truth, MATH_REFERENCE, &budget, g->arena, NULL),
                 &want);
}

GOLDEN(math_equal, mathd_normalize)
{
    golden_text(g, "text", math_mathd(golden_string(g, "text"), g->arena), g->expected);
}

static void normalize(golden *g)
{
    math_budget budget = fresh();
    golden_text(g, "text",
                math_normalize(golden_string(g, "text"), MATH_REFERENCE, &budget, g->arena),
                g->expected);
}
GOLDEN(math_equal, sympy_normalize_plain)
{
    normalize(g);
}
GOLDEN(math_equal, sympy_normalize_latex_reference)
{
    normalize(g);
}
GOLDEN(math_equal, dapo_normalize_final_answer)
{
    golden_text(g, "text", math_dapo_normal(golden_string(g, "text"), g->arena), g->expected);
}

GOLDEN(math_equal, split_tuple_reference)
{
    int64_t n;
    ares_view *elements = math_elements(golden_string(g, "text"), MATH_REFERENCE, g->arena, &n);
    if (!golden_equal(g, "elements", n,
                      &(ares_json){ .type = ARES_JSON_INT,
                                    .integer = g->expected->count,
                                    .number = (double)g->expected->count }))
        return;
    for (int64_t i = 0; i < n; i++) golden_text(g, "element", elements[i], &g->expected->items[i]);
}

GOLDEN(math_equal, is_fraction_literal)
{
    golden_equal(g, "fraction", math_is_fraction(golden_string(g, "text")), g->expected);
}
GOLDEN(math_equal, is_integer_literal)
{
    golden_equal(g, "integer", math_is_integer(golden_string(g, "text"), MATH_REFERENCE, g->arena),
                 g->expected);
}
GOLDEN(math_equal, strip_thousands)
{
    golden_text(g, "text", math_strip_thousands(golden_string(g, "text"), g->arena), g->expected);
}
GOLDEN(math_equal, extract_last_boxed)
{
    golden_text(g, "box", verifier_last_boxed(golden_string(g, "text"), BOX_BRACE_NEEDED),
                g->expected);
}
GOLDEN(math_equal, gsm8k_extract_strict)
{
    golden_text(g, "number", math_gsm8k_strict(golden_string(g, "text"), g->arena), g->expected);
}
GOLDEN(math_equal, gsm8k_extract_flexible)
{
    golden_text(g, "number", math_gsm8k_flexible(golden_string(g, "text")), g->expected);
}

/* ---------------- whole scores, by the verifiers that users name */

/*
 * Runs a verifier with one option set (NULL: none); label: text, or a number as it is written. The
 * caller frees details.
 */
static bool judge(golden *g, const char *verifier, const char *option, ares_verify_out *out)
{
    ares_config *cfg = ares_config_new();
    ares_judge *j = NULL;
    void *options = NULL;
    ares_verify_in in = { .response = golden_string(g, "response"),
                          .ground_truth = golden_in(g, "label")->text,
                          .stopped = true,
                          .response_tokens = -1 };
    *out = (ares_verify_out){ .accuracy = NAN };
    bool ok = golden_ok(g, ares_judge_new(verifier, &j));
    if (ok) {
        ares_option_table *table = ares_judge_options(j, &options);
        if (table) ares_config_add_options(cfg, "", table, options);
        if (option) ares_config_override(cfg, option);
        ares_config_resolve(cfg);
        ok = golden_ok(g, ares_config_finish(cfg)) && golden_ok(g, ares_judge_run(j, &in, out));
    }
    ares_judge_free(j);
    ares_config_free(cfg);
    return ok;
}

static void score(golden *g, const char *verifier, const char *option)
{
    ares_verify_out out;
    if (judge(g, verifier, option, &out)) golden_near(g, "score", out.score, g->expected);
    ares_str_fini(&out.details);
}

GOLDEN(math_equal, reward_deepscaler)
{
    score(g, "deepscaler", NULL);
}
GOLDEN(math_equal, reward_math)
{
    score(g, "math", NULL);
}
GOLDEN(math_equal, reward_gsm8k_strict)
{
    score(g, "gsm8k", NULL);
}
GOLDEN(math_equal, reward_gsm8k_flexible)
{
    score(g, "gsm8k", "method=flexible");
}
GOLDEN(math_equal, reward_math_hendrycks)
{
    score(g, "math_hendrycks", NULL);
}

static void dapo(golden *g, const char *option)
{
    ares_verify_out out;
    const ares_json *details;
    ares_str object = { 0 };
    if (judge(g, "dapo", option, &out)) {
        golden_near(g, "score", out.score, golden_want(g, "score"));
        golden_equal(g, "acc", out.accuracy == 1, golden_want(g, "acc"));
        ares_str_addf(&object, "{%s}", out.details.data);
        if (golden_ok(g, ares_json_parse(g->arena, ares_str_view(&object), "details", &details))) {
            const ares_json *pred = ares_json_get(details, "pred");
            golden_text(g, "pred",
                        pred && pred->type == ARES_JSON_STRING ? pred->text
                                                               : (ares_view){ NULL, 0 },
                        golden_want(g, "pred"));
        }
    }
    ares_str_fini(&out.details);
    ares_str_fini(&object);
}
GOLDEN(math_equal, reward_dapo_minerva)
{
    dapo(g, NULL);
}
GOLDEN(math_equal, reward_dapo_strict_box)
{
    dapo(g, "strict_box=true");
}

/* ---------------- MathRuler (docs/rewards.md#mathruler) */

GOLDEN(aepo, extract_boxed)
{
    golden_text(g, "box", easyr1_boxed(golden_string(g, "text")), g->expected);
}
GOLDEN(aepo, r1v_format_reward)
{
    golden_near(g, "format", easyr1_r1v_format(golden_string(g, "response")), g->expected);
}

GOLDEN(aepo, format_reward)
{
    ares_str cleaned = { 0 };
    easyr1_clean(golden_string(g, "response"), &cleaned);
    golden_text(g, "cleaned", ares_str_view(&cleaned), golden_want(g, "cleaned"));
    golden_near(g, "format", easyr1_think_boxed(ares_str_view(&cleaned)), golden_want(g, "format"));
    ares_str_fini(&cleaned);
}

GOLDEN(aepo, grade_answer)
{
    ares_view given = golden_string(g, "given"), truth = golden_string(g, "truth");
    math_budget budget = fresh();
    golden_equal(g, "correct", math_equal_mathruler(given, truth, &budget, g->arena),
                 golden_want(g, "correct"));
    golden_text(g, "norm_a_given", math_mathruler_a(given, g->arena),
                golden_want(g, "norm_a_given"));
    golden_text(g, "norm_a_truth", math_mathruler_a(truth, g->arena),
                golden_want(g, "norm_a_truth"));
    golden_text(g, "norm_b_given", math_normalize(given, MATH_REFERENCE, &budget, g->arena),
                golden_want(g, "norm_b_given"));
    golden_text(g, "norm_b_truth", math_normalize(truth, MATH_REFERENCE, &budget, g->arena),
                golden_want(g, "norm_b_truth"));
}
