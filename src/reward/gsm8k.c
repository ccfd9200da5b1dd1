/*
 * GSM8K as verl scores it: the number after the last "#### " of the last 300 characters (or the
 * last number there) equals the label character by character
 * (docs/rewards.md#dapo-gsm8k-and-the-math-data-set).
 */
#include <string.h>

#include "details.h"
#include "math/answers.h"

#define GSM8K_OPTIONS(X)                                                                      \
    X(choice, method, "method", "strict", "strict|flexible",                                  \
      "strict: the number after \"#### \", without commas; flexible: the last number, as it " \
      "stands")
ARES_OPTION_STRUCT(gsm8k_options, GSM8K_OPTIONS);
static ARES_OPTION_TABLE(gsm8k_table, gsm8k_options, GSM8K_OPTIONS);

static int gsm8k(const ares_verify_in *in, ares_verify_out *out)
{
    const gsm8k_options *o = in->options;
    ARES_TRY(grade_need_truth(in, "gsm8k"));
    ares_arena arena = { 0 };
    bool flexible = o && o->method && strcmp(o->method, "flexible") == 0;
    ares_view truth = in->ground_truth, answer = flexible ? math_gsm8k_flexible(in->response)
                                                          : math_gsm8k_strict(in->response, &arena);
    /* the answer as it stands in the data set, solution included */
    if (ares_view_find(truth, ARES_VIEW("#### "), 0) >= 0) {
        ares_view label = math_gsm8k_strict(truth, &arena);
        if (label.data) truth = label;
    }
    bool same = answer.data && ares_view_eq(answer, truth);
    out->score = out->accuracy = same;
    out->no_answer = !answer.data;
    grade_answer_details(out, answer, same ? "text" : "no");
    ares_arena_fini(&arena);
    return ARES_OK;
}

const ares_verifier ares_verifier_gsm8k = {
    .name = "gsm8k",
    .doc = "the number after \"#### \" is the ground truth (verl)",
    .options = gsm8k_table,
    .options_size = sizeof(gsm8k_options),
    .verify = gsm8k,
    .right = 1,
};
