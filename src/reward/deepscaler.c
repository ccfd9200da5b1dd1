/*
 * slime's deepscaler judge: the last \boxed{} of the response, or of the text after its </think>,
 * against the ground truth, whose own box counts when it has one
 * (docs/rewards.md#the-deepscaler-judge). `math` is the same without </think>.
 */
#include <string.h>

#include "details.h"
#include "math/answers.h"

#define MODE_DOC                                                                                \
    "target: exact by our rules; reference: with the defects of the original code, to compare " \
    "scores with it"
#define DEEPSCALER_OPTIONS(X)                                       \
    X(choice, mode, "mode", "target", "target|reference", MODE_DOC) \
    X(flag, require_think, "require_think", "true", "",             \
      "judge only the text after </think> (or ###Response); without one of them the score is 0")
ARES_OPTION_STRUCT(deepscaler_options, DEEPSCALER_OPTIONS);
static ARES_OPTION_TABLE(deepscaler_table, deepscaler_options, DEEPSCALER_OPTIONS);

#define MATH_OPTIONS(X) X(choice, mode, "mode", "target", "target|reference", MODE_DOC)
ARES_OPTION_STRUCT(math_options, MATH_OPTIONS);
static ARES_OPTION_TABLE(math_table, math_options, MATH_OPTIONS);

static int judge(const char *mode, ares_view text, ares_view truth, ares_verify_out *out)
{
    ares_arena arena = { 0 };
    math_budget budget = { .steps = MATH_STEPS };
    const char *by = "no";
    ares_view answer = text.data ? math_last_boxed(text) : text;
    if (ares_view_find(truth, ARES_VIEW("\\boxed"), 0) >= 0) truth = math_last_boxed(truth);
    bool reference = mode && strcmp(mode, "reference") == 0;
    bool same =
        answer.data && truth.len &&
        math_equal(answer, truth, reference ? MATH_REFERENCE : MATH_TARGET, &budget, &arena, &by);
    out->score = out->accuracy = same;
    out->no_answer = !answer.data;
    out->exhausted = budget.exhausted;
    grade_answer_details(out, answer, by);
    ares_arena_fini(&arena);
    return ARES_OK;
}

static int deepscaler(const ares_verify_in *in, ares_verify_out *out)
{
    const deepscaler_options *o = in->options;
    bool behind = !o || o->require_think;
    ARES_TRY(grade_need_truth(in, "deepscaler"));
    return judge(o ? o->mode : NULL, behind ? math_after_think(in->response) : in->response,
                 in->ground_truth, out);
}

static int math(const ares_verify_in *in, ares_verify_out *out)
{
    const math_options *o = in->options;
    ARES_TRY(grade_need_truth(in, "math"));
    return judge(o ? o->mode : NULL, in->response, in->ground_truth, out);
}

const ares_verifier ares_verifier_deepscaler = {
    .name = "deepscaler",
    .doc = "the last \\boxed{} after </think> is the ground truth, as mathematics (slime)",
    .options = deepscaler_table,
    .options_size = sizeof(deepscaler_options),
    .verify = deepscaler,
    .right = 1,
};
const ares_verifier ares_verifier_math = {
    .name = "math",
    .doc = "the last \\boxed{} is the ground truth, as mathematics",
    .options = math_table,
    .options_size = sizeof(math_options),
    .verify = math,
    .right = 1,
};
