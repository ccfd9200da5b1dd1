/* The parts of EasyR1's reward functions: cleaning, formats, boxes, and how a score is combined. */
#include "easyr1.h"

#include "ifeval/text_parts.h"
#include "math/answers.h"

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
        while (next < end && if_is_space(if_next(&next, end))) p = next;
        bool kept = p > run && !(run > response.data && is_tag_char(run[-1])) &&
                    !(p < end && is_tag_char(*p));
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

double easyr1_r1v_format(ares_view t)
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

ares_view easyr1_boxed(ares_view response)
{
    ares_view v = last_box(response);
    return v.data ? v : ARES_VIEW("None");
}

bool easyr1_equal(ares_view given, ares_view truth, ares_verify_out *out)
{
    math_budget budget = { .steps = MATH_STEPS };
    ares_arena arena = { 0 };
    bool equal = math_equal_mathruler(given, truth, &budget, &arena);
    ares_arena_fini(&arena);
    out->exhausted = out->exhausted || budget.exhausted;
    return equal;
}

void easyr1_boxed_accuracy(const ares_verify_in *in, ares_verify_out *out, ares_view *extracted)
{
    *extracted = easyr1_boxed(in->response);
    out->no_answer = !last_box(in->response).data;
    out->accuracy = easyr1_equal(*extracted, in->ground_truth, out);
}
