/*
 * The rewards of EasyR1 and ARES that add a share of accuracy and a share of format: `math` (a
 * boxed answer) and `r1v` (an answer in tags). Their answers are graded by MathRuler, whose rules
 * are those of the judge's reference mode. (aepo.md 3.3 to 3.5)
 */
#include "boxes.h"
#include "instructions/reading.h"
#include "math/math.h"
#include "published.h"

#define MATH_FORMAT_OPTIONS(X)                             \
    X(f64, format_weight, "format_weight", "0.1", "[0,1]", \
      "share of the format; the rest is accuracy")
ARES_OPTION_STRUCT(math_format_options, MATH_FORMAT_OPTIONS);
static ARES_OPTION_TABLE(math_format_table, math_format_options, MATH_FORMAT_OPTIONS);

#define R1V_OPTIONS(X)                                     \
    X(f64, format_weight, "format_weight", "0.5", "[0,1]", \
      "share of the format; the rest is accuracy")
ARES_OPTION_STRUCT(r1v_options, R1V_OPTIONS);
static ARES_OPTION_TABLE(r1v_table, r1v_options, R1V_OPTIONS);

static bool tight(char c)
{
    return c == '<' || c == '>' || c == '/';
}

void published_clean(ares_view response, ares_str *out)
{
    const char *p = response.data, *end = p + response.len;
    ares_str_reserve(out, out->len + response.len);
    while (p < end) {
        const char *run = p, *next = p;
        while (next < end && if_is_space(if_next(&next, end))) p = next;
        bool kept = p > run && !(run > response.data && tight(run[-1])) && !(p < end && tight(*p));
        if (kept) ares_str_add(out, run, (size_t)(p - run));
        run = p;
        while (p < end) {
            next = p;
            if (if_is_space(if_next(&next, end))) break;
            p = next;
        }
        ares_str_add(out, run, (size_t)(p - run));
    }
}

double published_format(ares_view response)
{
    ares_str clean = { 0 };
    published_clean(response, &clean);
    double format = verify_think_boxed(ares_str_view(&clean));
    ares_str_fini(&clean);
    return format;
}

double published_r1v_format(ares_view t)
{
    static const ares_view end = { "</answer>", 9 }, answer = { "<answer>", 8 };
    if (!ares_view_starts(t, ARES_VIEW("<think>")) || t.len < end.len ||
        !ares_view_eq((ares_view){ t.data + t.len - end.len, end.len }, end))
        return 0;
    for (int64_t at = 7; (at = ares_view_find(t, ARES_VIEW("</think>"), (size_t)at)) >= 0;) {
        at += 8;
        ares_view rest = if_trim_left((ares_view){ t.data + at, t.len - (size_t)at });
        if (ares_view_starts(rest, answer)) return rest.len >= answer.len + end.len;
    }
    return 0;
}

static ares_view last_box(ares_view t)
{
    ares_view found = { NULL, 0 };
    for (size_t i = t.len; i-- > 0 && !found.data;) {
        size_t depth = 0;
        if (t.data[i] != '\\' ||
            !ares_view_starts((ares_view){ t.data + i, t.len - i }, ARES_VIEW("\\boxed{")))
            continue;
        for (size_t k = i + 6; k < t.len; k++) {
            depth += t.data[k] == '{';
            if (t.data[k] == '}' && --depth == 0)
                return if_trim((ares_view){ t.data + i + 7, k - i - 7 });
        }
        break; /* it never closes */
    }
    return found;
}

ares_view published_boxed(ares_view response)
{
    ares_view v = last_box(response);
    return v.data ? v : ARES_VIEW("None");
}

static bool right(ares_view given, ares_view truth, ares_verify_out *out)
{
    math_budget budget = { .steps = MATH_STEPS };
    ares_arena arena = { 0 };
    bool equal = math_equal_mathruler(given, truth, &budget, &arena);
    ares_arena_fini(&arena);
    out->exhausted = out->exhausted || budget.exhausted;
    return equal;
}

static void tell(ares_verify_out *out, ares_view extracted, double format)
{
    verify_detail(out, "extracted", extracted);
    ares_str_addf(&out->details, ",\"accuracy\":%d,\"format\":%d", (int)out->accuracy, (int)format);
    ares_verify_add_value(out, "reward/format", format, 1);
}

/* The raw text may be right, or the cleaned one. */
int verify_boxed_accuracy(const ares_verify_in *in, ares_verify_out *out, ares_view *extracted)
{
    *extracted = published_boxed(in->response);
    out->no_answer = !last_box(in->response).data;
    out->accuracy = right(*extracted, in->ground_truth, out);
    return ARES_OK;
}

static int need_truth(const ares_verify_in *in, ares_verify_out *out, const char *who)
{
    out->score = out->accuracy = 0;
    if (!if_trim(in->ground_truth).len)
        return ares_fail(ARES_EFORMAT, "reward: %s: the ground truth is empty", who);
    out->exhausted = in->response.len > IF_TEXT_MAX;
    return ARES_OK;
}

/* Accuracy of a boxed answer, and the format beside it. */
static int boxed_and_format(const ares_verify_in *in, ares_verify_out *out, const char *who,
                            double *format)
{
    ares_view extracted;
    ares_str clean = { 0 };
    *format = 0;
    ARES_TRY(need_truth(in, out, who));
    if (out->exhausted) return ARES_OK;
    verify_boxed_accuracy(in, out, &extracted);
    published_clean(in->response, &clean);
    *format = verify_think_boxed(ares_str_view(&clean));
    if (out->accuracy == 0)
        out->accuracy = right(published_boxed(ares_str_view(&clean)), in->ground_truth, out);
    tell(out, extracted, *format);
    ares_str_fini(&clean);
    return ARES_OK;
}

static int math_format(const ares_verify_in *in, ares_verify_out *out)
{
    const math_format_options *o = in->options;
    double format;
    ARES_TRY(boxed_and_format(in, out, "math_format", &format));
    out->score = published_math(out->accuracy, format, o->format_weight);
    return ARES_OK;
}

/* The format is measured and not part of the score, as published. */
static int aepo(const ares_verify_in *in, ares_verify_out *out)
{
    double format;
    ARES_TRY(boxed_and_format(in, out, "aepo", &format));
    out->score = out->accuracy;
    return ARES_OK;
}

/* The first <answer>..</answer> on one line, else all of it. */
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
    double format = published_r1v_format(in->response);
    out->no_answer = given.len == 0;
    out->accuracy = right(given, if_trim(in->ground_truth), out);
    out->score = published_math(out->accuracy, format, o->format_weight);
    tell(out, given.len <= MATH_MAX_BYTES ? given : (ares_view){ given.data, MATH_MAX_BYTES },
         format);
    return ARES_OK;
}

const ares_verifier ares_verifier_math_format = {
    "math_format",
    "a boxed answer, with a share for <think>..</think>..\\boxed{..} (reward_function math)",
    math_format_table,
    sizeof(math_format_options),
    NULL,
    math_format,
    NULL
};
const ares_verifier ares_verifier_aepo = {
    "aepo",
    "a boxed answer, and AEPO's entropy score by its prompt's difficulty (reward_function aepo)",
    NULL,
    0,
    NULL,
    aepo,
    NULL
};
const ares_verifier ares_verifier_r1v = {
    "r1v",     "an answer in <answer> tags, with a share for the tags (reward_function r1v)",
    r1v_table, sizeof(r1v_options),
    NULL,      r1v,
    NULL
};
