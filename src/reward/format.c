/* The whole response matches a regular expression. */
#include "bounded_regex.h"
#include "details.h"

#define FORMAT_OPTIONS(X)                                                                  \
    X(text, pattern, "pattern", "", "",                                                    \
      "PCRE2 expression that the whole response must match; empty: any finished response") \
    X(flag, finished, "finished", "true", "", "a response cut by length fails")
ARES_OPTION_STRUCT(format_options, FORMAT_OPTIONS);
static ARES_OPTION_TABLE(format_table, format_options, FORMAT_OPTIONS);

static int check(const void *options)
{
    const format_options *o = options;
    return o->pattern && *o->pattern ? bounded_regex_check("format", o->pattern) : ARES_OK;
}

static int format(const ares_verify_in *in, ares_verify_out *out)
{
    const format_options *o = in->options;
    out->score = 0;
    if (o->finished && !in->stopped) return ARES_OK;
    int matched =
        o->pattern && *o->pattern ? bounded_regex_match(o->pattern, true, in->response) : 1;
    out->score = matched == 1;
    out->exhausted = matched < 0;
    if (out->exhausted)
        grade_detail(out, "reason", ARES_VIEW("the work limit of matching was reached"));
    return ARES_OK;
}

const ares_verifier ares_verifier_format = {
    .name = "format",
    .doc = "the response is finished and matches a pattern",
    .options = format_table,
    .options_size = sizeof(format_options),
    .check = check,
    .verify = format,
    .any_truth = true,
};
