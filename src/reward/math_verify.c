/*
 * Math-Verify's judgement: sets in any order, unsimplified values, percentages, intervals
 * (docs/rewards.md#math-verify).
 */
#include "details.h"
#include "math/claim.h"

static int math_verify_entry(const ares_verify_in *in, ares_verify_out *out)
{
    ares_arena arena = { 0 };
    math_budget budget = { .steps = MATH_STEPS };
    ares_view extracted;
    const char *by;
    ARES_TRY(grade_need_truth(in, "math_verify"));
    bool same = claim_verify(in->ground_truth, in->response, &budget, &arena, &extracted, &by);
    out->score = out->accuracy = same;
    out->no_answer = !extracted.data;
    out->exhausted = budget.exhausted;
    grade_answer_details(out, extracted, by);
    ares_arena_fini(&arena);
    return ARES_OK;
}

const ares_verifier ares_verifier_math_verify = {
    .name = "math_verify",
    .doc = "the answer is the ground truth by Math-Verify's rules (boxes first, then LaTeX, then "
           "numbers)",
    .verify = math_verify_entry,
    .right = 1,
};
