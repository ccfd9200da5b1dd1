/*
 * The last number of the response equals the last number of the ground truth, which for GSM8K
 * stands after "####". The response's first number would be a bad reward, because it can be copied
 * from the question.
 */
#include "details.h"
#include "find_answer.h"

static int number(const ares_verify_in *in, ares_verify_out *out)
{
    grade_number want, have;
    ares_view truth = in->ground_truth;
    for (int64_t at; (at = ares_view_find(truth, ARES_VIEW("####"), 0)) >= 0;)
        truth = (ares_view){ truth.data + at + 4, truth.len - (size_t)at - 4 };
    if (!grade_last_number(truth, &want))
        return ares_fail(ARES_EFORMAT, "reward: number: ground truth '%.*s' holds no number",
                         (int)ARES_MIN(in->ground_truth.len, 60),
                         in->ground_truth.data ? in->ground_truth.data : "");
    bool found = grade_last_number(in->response, &have);
    out->no_answer = !found;
    out->score = out->accuracy = found && ares_view_is(ares_view_of(have.text), want.text);
    if (found) grade_detail(out, "extracted", ares_view_of(have.text));
    return ARES_OK;
}

const ares_verifier ares_verifier_number = {
    .name = "number",
    .doc = "the last number equals the ground truth's (GSM8K: the one after ####)",
    .verify = number,
    .right = 1,
};
