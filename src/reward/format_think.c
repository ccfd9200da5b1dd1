/*
 * The format of a response with its reasoning in <think> tags: 1 or 0, without regard to
 * correctness (docs/rewards.md#formats-with-think-tags).
 */
#include "easyr1.h"

/* TRL: the response starts with <think>, which does not occur again, and </think> follows. */
static int think(const ares_verify_in *in, ares_verify_out *out)
{
    ares_view t = in->response, open = ARES_VIEW("<think>");
    out->score = ares_view_starts(t, open) && ares_view_find(t, open, 1) < 0 &&
                 ares_view_find(t, ARES_VIEW("</think>"), open.len) >= 0;
    return ARES_OK;
}

static int think_boxed(const ares_verify_in *in, ares_verify_out *out)
{
    out->score = easyr1_think_boxed(in->response);
    return ARES_OK;
}

const ares_verifier ares_verifier_format_think = {
    .name = "format_think",
    .doc = "the response is <think>..</think>.., with one <think> (TRL)",
    .verify = think,
    .any_truth = true,
};
const ares_verifier ares_verifier_format_think_boxed = {
    .name = "format_think_boxed",
    .doc = "the response is <think>..</think>..\\boxed{..}.. (EasyR1)",
    .verify = think_boxed,
    .any_truth = true,
};
