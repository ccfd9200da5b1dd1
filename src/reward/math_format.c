/*
 * The rewards of EasyR1 and ARES that add a share of accuracy and a share of format: `math` (a
 * boxed answer) and `r1v` (an answer in tags). Their answers are graded by MathRuler, whose rules
 * are those of the deepscaler judge's reference mode (docs/rewards.md#published-reward-functions).
 */
#include "details.h"
#include "easyr1.h"
#include "ifeval/text_parts.h"
#include "math/answers.h"

#define MATH_FORMAT_OPTIONS(X)                             \
    X(f64, format_weight, "format_weight", "0.1", "[0,1]", \
      "share of the format in the score; the rest is accuracy")
ARES_OPTION_STRUCT(math_format_options, MATH_FORMAT_OPTIONS);
static ARES_OPTION_TABLE(math_format_table, math_format_options, MATH_FORMAT_OPTIONS);

#define R1V_OPTIONS(X)                                     \
    X(f64, format_weight, "format_weight", "0.5", "[0,1]", \
      "share of the format in the score; the rest is accuracy")
ARES_OPTION_STRUCT(r1v_options, R1V_OPTIONS);
static ARES_OPTION_TABLE(r1v_table, r1v_options, R1V_OPTIONS);

static void report(ares_verify_out *out, ares_view extracted, double format)
{
    grade_detail(out, "extracted", extracted);
    ares_json_write_i64(ares_json_key(&out->details, "accuracy"), (int64_t)out->accuracy);
    ares_json_write_i64(ares_json_key(&out->details, "format"), (int64_t)format);
    grade_add_value(out, "reward/format", format);
}

static int need_truth(const ares_verify_in *in, ares_verify_out *out, const char *who)
{
    out->score = out->accuracy = 0;
    if (!if_trim(in->ground_truth).len)
        return ares_fail(ARES_EFORMAT, "reward: %s: the ground truth is empty", who);
    out->exhausted = in->response.len > IF_TEXT_MAX;
    return ARES_OK;
}

/* Fills the accuracy of a boxed answer; *format: 1 or 0. */
static int boxed_and_format(const ares_verify_in *in, ares_verify_out *out, const char *who,
                            double *format)
{
    ares_view extracted;
    ares_str clean = { 0 };
    *format = 0;
    ARES_TRY(need_truth(in, out, who));
    if (out->exhausted) return ARES_OK;
    easyr1_boxed_accuracy(in, out, &extracted);
    easyr1_clean(in->response, &clean);
    *format = easyr1_think_boxed(ares_str_view(&clean));
    if (out->accuracy == 0) /* the cleaned text may be right where the raw one is not */
        out->accuracy = easyr1_equal(easyr1_boxed(ares_str_view(&clean)), in->ground_truth, out);
    report(out, extracted, *format);
    ares_str_fini(&clean);
    return ARES_OK;
}

static int math_format(const ares_verify_in *in, ares_verify_out *out)
{
    const math_format_options *o = in->options;
    double format;
    ARES_TRY(boxed_and_format(in, out, "math_format", &format));
    out->score = easyr1_math(out->accuracy, format, o->format_weight);
    return ARES_OK;
}

/* As published: the format is reported as a metric and is no part of the score. */
static int aepo(const ares_verify_in *in, ares_verify_out *out)
{
    double format;
    ARES_TRY(boxed_and_format(in, out, "aepo", &format));
    out->score = out->accuracy;
    return ARES_OK;
}

/* The trimmed content of the first <answer>..</answer> on one line, else the whole text. */
static ares_view tagged(ares_view t)
{
    static const ares_view open = { "<answer>", 8 };
    int64_t close = -1, line = -1;
    for (int64_t at = 0; (at = ares_view_find(t, open, (size_t)at)) >= 0;) {
        at += (int64_t)open.len;
        if (close < at) close = ares_view_find(t, ARES_VIEW("</answer>"), (size_t)at);
        if (close < 0) break;
        if (line < at) line = ares_view_find(t, ARES_VIEW("\n"), (size_t)at);
        if (line < 0) line = (int64_t)t.len;
        if (close < line) return if_trim((ares_view){ t.data + at, (size_t)(close - at) });
    }
    return if_trim(t);
}

static int r1v(const ares_verify_in *in, ares_verify_out *out)
{
    const r1v_options *o = in->options;
    ARES_TRY(need_truth(in, out, "r1v"));
    if (out->exhausted) return ARES_OK;
    ares_view given = tagged(in->response);
    double format = easyr1_r1v_format(in->response);
    out->no_answer = given.len == 0;
    out->accuracy = easyr1_equal(given, if_trim(in->ground_truth), out);
    out->score = easyr1_math(out->accuracy, format, o->format_weight);
    report(out, given.len <= MATH_MAX_BYTES ? given : (ares_view){ given.data, MATH_MAX_BYTES },
           format);
    return ARES_OK;
}

const ares_verifier ares_verifier_math_format = {
    .name = "math_format",
    .doc = "a boxed answer, with a share for <think>..</think>..\\boxed{..} (reward_function math)",
    .options = math_format_table,
    .options_size = sizeof(math_format_options),
    .verify = math_format,
    .judges = true,
};
const ares_verifier ares_verifier_aepo = {
    .name = "aepo",
    .doc = "a boxed answer, and AEPO's entropy score by its prompt's difficulty (reward_function "
           "aepo)",
    .verify = aepo,
    .judges = true,
};
const ares_verifier ares_verifier_r1v = {
    .name = "r1v",
    .doc = "an answer in <answer> tags, with a share for the tags (reward_function r1v)",
    .options = r1v_table,
    .options_size = sizeof(r1v_options),
    .verify = r1v,
    .judges = true,
};
