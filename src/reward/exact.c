/* The response equals the ground truth, apart from white space around both. */
#include "ares/grade.h"

#define EXACT_OPTIONS(X) \
    X(flag, ignore_case, "ignore_case", "false", "", "ASCII letters match in either case")
ARES_OPTION_STRUCT(exact_options, EXACT_OPTIONS);
static ARES_OPTION_TABLE(exact_table, exact_options, EXACT_OPTIONS);

static unsigned char lower(unsigned char c)
{
    return c >= 'A' && c <= 'Z' ? (unsigned char)(c + 32) : c;
}

static int exact(const ares_verify_in *in, ares_verify_out *out)
{
    const exact_options *o = in->options;
    ares_view a = ares_view_trim(in->response), b = ares_view_trim(in->ground_truth);
    bool same = a.len == b.len;
    for (size_t i = 0; same && i < a.len; i++) {
        unsigned char x = (unsigned char)a.data[i], y = (unsigned char)b.data[i];
        same = o->ignore_case ? lower(x) == lower(y) : x == y;
    }
    out->score = out->accuracy = same;
    return ARES_OK;
}

const ares_verifier ares_verifier_exact = {
    .name = "exact",
    .doc = "the response equals the ground truth",
    .options = exact_table,
    .options_size = sizeof(exact_options),
    .verify = exact,
    .right = 1,
};
