/*
 * The reward functions of EasyR1 and ARES as verifiers: first the parts that they are made of,
 * then math_format, aepo and r1v, last dapo_overlong.
 */
#include "ifeval/words.h"
#include "math/math.h"
#include "verifier.h"

/* The parts of EasyR1's reward functions: cleaning, formats, boxes, and how a score is combined. */

double easyr1_math(double accuracy, double format, double format_weight)
{
    return (1 - format_weight) * accuracy + format_weight * format;
}

double easyr1_dapo(double accuracy, double overlong, double overlong_penalty_factor)
{
    return accuracy + overlong * overlong_penalty_factor;
}

double easyr1_normalized(double accuracy)
{
    return (accuracy + 1) / 2;
}

/* The characters around which easyr1_clean deletes white space. */
static bool is_tag_char(char c)
{
    return c == '<' || c == '>' || c == '/';
}

void easyr1_clean(ares_view response, ares_str *out)
{
    const char *p = response.data, *end = p + response.len;
    ares_str_reserve(out, out->len + response.len);
    while (p < end) {
        const char *run = p, *next = p;
        while (next < end && ifeval_is_space(ifeval_next(&next, end))) p = next;
        /* "< / think >" -> "</think>"; other white space stays as it is */
        bool kept = p > run && !(run > response.data && is_tag_char(run[-1])) &&
                    !(p < end && is_tag_char(*p));
        if (kept) ares_str_add(out, run, (size_t)(p - run));
        run = p;
        while (p < end) {
            next = p;
            if (ifeval_is_space(ifeval_next(&next, end))) break;
            p = next;
        }
        ares_str_add(out, run, (size_t)(p - run));
    }
}

/* The marks must occur in this order, each after the one before it; what ends the text is free. */
double easyr1_think_boxed(ares_view t)
{
    static const ares_view marks[] = { { "</think>", 8 }, { "\\boxed{", 7 }, { "}", 1 } };
    if (!ares_view_starts(t, ARES_VIEW("<think>"))) return 0;
    t = (ares_view){ t.data + 7, t.len - 7 };
    for (int i = 0; i < ARES_COUNT(marks); i++) {
        int64_t at = ares_view_find(t, marks[i], 0);
        if (at < 0) return 0;
        size_t after = (size_t)at + marks[i].len;
        t = (ares_view){ t.data + after, t.len - after };
    }
    return 1;
}

/* A </think> that <answer> does not follow is part of the thought: the next one is tried. */
double easyr1_r1v_format(ares_view t)
{
    static const ares_view end = { "</answer>", 9 }, answer = { "<answer>", 8 };
    if (!ares_view_starts(t, ARES_VIEW("<think>")) || t.len < end.len ||
        !ares_view_eq((ares_view){ t.data + t.len - end.len, end.len }, end))
        return 0;
    for (int64_t at = 7; (at = ares_view_find(t, ARES_VIEW("</think>"), (size_t)at)) >= 0;) {
        at += 8;
        ares_view rest = ifeval_trim_left((ares_view){ t.data + at, t.len - (size_t)at });
        if (ares_view_starts(rest, answer)) return rest.len >= answer.len + end.len;
    }
    return 0;
}

ares_view easyr1_boxed(ares_view response)
{
    ares_view v = verifier_last_boxed(response, 0);
    return v.data ? ifeval_trim(v) : ARES_VIEW("None");
}

/* Whether two answers are equal for MathRuler; sets out->exhausted when the budget ended first. */
static bool easyr1_equal(ares_view given, ares_view truth, ares_verify_out *out)
{
    math_budget budget = { .steps = MATH_STEPS };
    ares_arena arena = { 0 };
    bool equal = math_equal_mathruler(given, truth, &budget, &arena);
    ares_arena_fini(&arena);
    out->exhausted = out->exhausted || budget.exhausted;
    return equal;
}

/*
 * Fills out->accuracy and out->no_answer from the last \boxed{} of the response, graded as
 * MathRuler does; *extracted is the box's content.
 */
static void easyr1_boxed_accuracy(const ares_verify_in *in, ares_verify_out *out,
                                  ares_view *extracted)
{
    *extracted = easyr1_boxed(in->response);
    out->no_answer = !verifier_last_boxed(in->response, 0).data;
    out->accuracy = easyr1_equal(*extracted, in->ground_truth, out);
}

/*
 * The rewards of EasyR1 and ARES that add a share of accuracy and a share of format: `math` (a
 * boxed answer) and `r1v` (an answer in tags). Their answers are graded by MathRuler, whose rules
 * are those of the deepscaler judge's reference mode (docs/rewards.md#published-reward-functions).
 */

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

/* Writes what all of them tell: the answer, its accuracy, and the format as a metric too. */
static void report(ares_verify_out *out, ares_view extracted, double format)
{
    grade_detail(out, "extracted", extracted);
    ares_json_write_i64(ares_json_key(&out->details, "accuracy"), (int64_t)out->accuracy);
    ares_json_write_i64(ares_json_key(&out->details, "format"), (int64_t)format);
    grade_add_value(out, "reward/format", format);
}

/* Fails without a ground truth; sets out->exhausted for a response too long to judge. */
static int need_truth(const ares_verify_in *in, ares_verify_out *out, const char *who)
{
    out->score = out->accuracy = 0;
    if (!ifeval_trim(in->ground_truth).len)
        return ares_fail(ARES_EFORMAT, "reward: %s: the ground truth is empty", who);
    out->exhausted = in->response.len > IFEVAL_TEXT_MAX;
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
        if (close < line) return ifeval_trim((ares_view){ t.data + at, (size_t)(close - at) });
    }
    return ifeval_trim(t);
}

/* The answer in its tags, graded by MathRuler; the tags count by format_weight. */
static int r1v(const ares_verify_in *in, ares_verify_out *out)
{
    const r1v_options *o = in->options;
    ARES_TRY(need_truth(in, out, "r1v"));
    if (out->exhausted) return ARES_OK;
    ares_view given = tagged(in->response);
    double format = easyr1_r1v_format(in->response);
    out->no_answer = given.len == 0;
    out->accuracy = easyr1_equal(given, ifeval_trim(in->ground_truth), out);
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

/*
 * ARES's dapo reward: a boxed answer scores 1 or -1, less a penalty of length
 * (docs/rewards.md#published-reward-functions). EasyR1's, which reads the line "Answer:", is the
 * sum of two entries: [{name: dapo}, {name: overlong, ...}].
 */

#define DAPO_OPTIONS(X)                                                     \
    X(i64, max_response_length, "max_response_length", "???", "[1,)",       \
      "tokens from which the penalty is full")                              \
    X(i64, overlong_buffer_length, "overlong_buffer_length", "???", "[1,)", \
      "the penalty grows over this many tokens before max_response_length") \
    X(f64, overlong_penalty_factor, "overlong_penalty_factor", "???", "[0,)", "the full penalty")
ARES_OPTION_STRUCT(dapo_options, DAPO_OPTIONS);
static ARES_OPTION_TABLE(dapo_table, dapo_options, DAPO_OPTIONS);

/* The ramp of the penalty cannot be longer than the longest response. */
static int check(const void *options)
{
    const dapo_options *o = options;
    if (o->overlong_buffer_length <= o->max_response_length) return ARES_OK;
    return ares_fail(
        ARES_ECONFIG,
        "reward: dapo_overlong: overlong_buffer_length = %lld: above max_response_length = %lld",
        (long long)o->overlong_buffer_length, (long long)o->max_response_length);
}

static int dapo_overlong(const ares_verify_in *in, ares_verify_out *out)
{
    const dapo_options *o = in->options;
    ares_view extracted;
    ARES_TRY(grade_need_length(in, "dapo_overlong"));
    if (!ifeval_trim(in->ground_truth).len)
        return ares_fail(ARES_EFORMAT, "reward: dapo_overlong: the ground truth is empty");
    easyr1_boxed_accuracy(in, out, &extracted);
    double overlong =
        length_overlong(in->response_tokens, o->max_response_length, o->overlong_buffer_length);
    double accuracy = out->accuracy > 0 ? 1 : -1; /* of the score; out->accuracy stays 1 or 0 */
    out->plain = accuracy;
    out->score = easyr1_dapo(accuracy, overlong, o->overlong_penalty_factor);
    grade_detail(out, "extracted", extracted);
    ares_json_write_i64(ares_json_key(&out->details, "accuracy"), (int64_t)accuracy);
    ares_json_write_double(ares_json_key(&out->details, "overlong"), overlong);
    ares_json_write_i64(ares_json_key(&out->details, "accuracy_normalized"),
                        (int64_t)easyr1_normalized(accuracy));
    grade_add_value(out, "reward/overlong", overlong);
    grade_add_value(out, "reward/accuracy_normalized", easyr1_normalized(accuracy));
    return ARES_OK;
}

static int64_t limit(const void *options, double *penalty)
{
    const dapo_options *o = options;
    *penalty = o->overlong_penalty_factor;
    return o->max_response_length;
}

const ares_verifier ares_verifier_dapo_overlong = {
    .name = "dapo_overlong",
    .doc = "1 or -1 for a boxed answer, less a penalty of length (reward_function dapo)",
    .options = dapo_table,
    .options_size = sizeof(dapo_options),
    .check = check,
    .verify = dapo_overlong,
    .right = 1,
    .wrong = -1,
    .limit = limit,
};
