/* `none`: keeps the place of an entry in a list of rewards when a run switches that reward off. */
#include "ares/grade.h"

static int nothing(const ares_verify_in *in, ares_verify_out *out)
{
    (void)in;
    out->score = 0;
    return ARES_OK;
}

const ares_verifier ares_verifier_none = {
    .name = "none",
    .doc = "always 0",
    .verify = nothing,
    .any_truth = true,
};
