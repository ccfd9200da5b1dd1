/* A regular expression is found in the response. */
#include "bounded_regex.h"
#include "details.h"

#define REGEX_OPTIONS(X)                                     \
    X(text, pattern, "pattern", "???", "nonempty",           \
      "PCRE2 expression; start it with (?i) to ignore case") \
    X(flag, whole, "whole", "false", "",                     \
      "the pattern must match the whole response, not some part of it")
ARES_OPTION_STRUCT(regex_options, REGEX_OPTIONS);
static ARES_OPTION_TABLE(regex_table, regex_options, REGEX_OPTIONS);

static int check(const void *options)
{
    const regex_options *o = options;
    return o->pattern ? bounded_regex_check("regex", o->pattern) : ARES_OK;
}

static int regex(const ares_verify_in *in, ares_verify_out *out)
{
    const regex_options *o = in->options;
    int matched = bounded_regex_match(o->pattern, o->whole, in->response);
    out->score = matched == 1;
    out->exhausted = matched < 0;
    if (out->exhausted)
        grade_detail(out, "reason", ARES_VIEW("the work limit of matching was reached"));
    return ARES_OK;
}

const ares_verifier ares_verifier_regex = {
    .name = "regex",
    .doc = "a pattern is found in the response",
    .options = regex_table,
    .options_size = sizeof(regex_options),
    .check = check,
    .verify = regex,
    .any_truth = true,
};
