/*
 * The MATH data set as verl scores it: the last box and the ground truth are the same text after
 * the data set's own normalisation (docs/rewards.md#dapo-gsm8k-and-the-math-data-set).
 */
#include "details.h"
#include "math/answers.h"

static int math_hendrycks(const ares_verify_in *in, ares_verify_out *out)
{
    ARES_TRY(grade_need_truth(in, "math_hendrycks"));
    ares_arena arena = { 0 };
    ares_view answer = math_last_boxed_hendrycks(in->response);
    bool fits = answer.len <= MATH_MAX_BYTES && in->ground_truth.len <= MATH_MAX_BYTES;
    bool same = answer.data && fits && math_same_hendrycks(answer, in->ground_truth, &arena);
    out->score = out->accuracy = same;
    out->no_answer = !answer.data;
    out->exhausted = !fits;
    grade_answer_details(out, answer, same ? "text" : "no");
    ares_arena_fini(&arena);
    return ARES_OK;
}

const ares_verifier ares_verifier_math_hendrycks = {
    .name = "math_hendrycks",
    .doc = "the last \\boxed{} is the ground truth in the MATH data set's normal form (verl)",
    .verify = math_hendrycks,
    .right = 1,
};
