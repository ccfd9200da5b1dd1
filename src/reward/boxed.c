/*
 * The content of the last \boxed{} equals the ground truth: as numbers where both are numbers, else
 * as text without white space.
 */
#include "details.h"
#include "find_answer.h"

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool same_text(ares_view a, ares_view b)
{
    size_t i = 0, j = 0;
    for (;;) {
        while (i < a.len && blank(a.data[i])) i++;
        while (j < b.len && blank(b.data[j])) j++;
        if (i == a.len || j == b.len) return i == a.len && j == b.len;
        if (a.data[i++] != b.data[j++]) return false;
    }
}

static int boxed(const ares_verify_in *in, ares_verify_out *out)
{
    ares_view answer = grade_last_boxed(in->response), truth = in->ground_truth,
              inner = grade_last_boxed(truth);
    grade_number a, b;
    if (inner.data) truth = inner;
    out->score = out->accuracy = 0;
    out->no_answer = !answer.data;
    if (!answer.data) return ARES_OK;
    bool same = grade_whole_number(answer, &a) && grade_whole_number(truth, &b)
                    ? ares_view_is(ares_view_of(a.text), b.text)
                    : same_text(answer, truth);
    out->score = out->accuracy = same;
    grade_detail(out, "extracted", answer);
    return ARES_OK;
}

const ares_verifier ares_verifier_boxed = {
    .name = "boxed",
    .doc = "the last \\boxed{} equals the ground truth",
    .verify = boxed,
    .right = 1,
};
