/* The whole response matches a regular expression (PCRE2, `.` matches newlines too), within a fixed amount of matching work. */
#include <pcre2.h>
#include <string.h>
#include <pthread.h>

#include "ares/reward.h"

#define FORMAT_OPTIONS(X)                                                                                   \
    X(text, pattern, "pattern", "", "", "PCRE2 expression for the whole response; empty: any finished response") \
    X(flag, finished, "finished", "true", "", "a response cut by length fails")
ARES_OPTION_STRUCT(format_options, FORMAT_OPTIONS);
static ARES_OPTION_TABLE(format_table, format_options, FORMAT_OPTIONS)

enum { MATCH_LIMIT = 1000000, DEPTH_LIMIT = 10000, HEAP_LIMIT_KIB = 20000 };

static int compile(const char *pattern, pcre2_code **out)
{
    int code;
    PCRE2_SIZE at;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_DOTALL | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_MATCH_INVALID_UTF, &code, &at, NULL);
    if (*out) return ARES_OK;
    PCRE2_UCHAR text[128];
    pcre2_get_error_message(code, text, sizeof text);
    return ares_fail(ARES_ECONFIG, "reward: format: pattern = '%s': %s at character %zu", pattern, (const char *)text, (size_t)at);
}

static int check(const void *options)
{
    const format_options *o = options;
    pcre2_code *code;
    if (!o->pattern || !*o->pattern) return ARES_OK;
    ARES_TRY(compile(o->pattern, &code));
    pcre2_code_free(code);
    return ARES_OK;
}

/* Each thread keeps the expression it used last. */
static _Thread_local struct { char *pattern; pcre2_code *code; pcre2_match_data *data; pcre2_match_context *context; } cache;

static int prepare(const char *pattern)
{
    if (cache.pattern && strcmp(cache.pattern, pattern) == 0) return ARES_OK;
    if (cache.code) {
        pcre2_code_free(cache.code);
        pcre2_match_data_free(cache.data);
        pcre2_match_context_free(cache.context);
        ares_free(cache.pattern);
        cache.pattern = NULL;
        cache.code = NULL;
    }
    ARES_TRY(compile(pattern, &cache.code));
    cache.data = pcre2_match_data_create(1, NULL);
    cache.context = pcre2_match_context_create(NULL);
    pcre2_set_match_limit(cache.context, MATCH_LIMIT);
    pcre2_set_depth_limit(cache.context, DEPTH_LIMIT);
    pcre2_set_heap_limit(cache.context, HEAP_LIMIT_KIB);
    cache.pattern = ares_strdup(pattern);
    return ARES_OK;
}

static int format(const ares_verify_in *in, ares_verify_out *out)
{
    const format_options *o = in->options;
    out->score = 0;
    if (o->finished && !in->stopped) return ARES_OK;
    out->score = 1;
    if (!o->pattern || !*o->pattern) return ARES_OK;
    ARES_TRY(prepare(o->pattern));
    const char *text = in->response.data ? in->response.data : "";
    int rc = pcre2_match(cache.code, (PCRE2_SPTR)text, in->response.len, 0, PCRE2_NO_JIT, cache.data, cache.context);
    out->score = rc >= 0;
    if (rc < PCRE2_ERROR_NOMATCH - 1) ares_str_add_z(&out->details, "\"reason\":\"the work limit of matching was reached\"");
    return ARES_OK;
}

const ares_verifier ares_verifier_format = { "format", "the response is finished and matches a pattern", format_table, sizeof(format_options), check, format };
