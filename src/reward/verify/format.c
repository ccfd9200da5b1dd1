/* The whole response matches a regular expression (PCRE2, `.` matches newlines too), within a fixed amount of matching work. */
#include <pcre2.h>
#include <pthread.h>
#include <string.h>

#include "ares/reward.h"

#define FORMAT_OPTIONS(X)                                                                                   \
    X(text, pattern, "pattern", "", "", "PCRE2 expression for the whole response; empty: any finished response") \
    X(flag, finished, "finished", "true", "", "a response cut by length fails")
ARES_OPTION_STRUCT(format_options, FORMAT_OPTIONS);
static ARES_OPTION_TABLE(format_table, format_options, FORMAT_OPTIONS)

enum { MATCH_LIMIT = 1000000, HEAP_LIMIT_KIB = 20000 }; /* the heap bounds the depth of backtracking too */

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

/* Each thread keeps the expression it used last, and drops it when it ends. */
typedef struct expression { char *pattern; pcre2_code *code; pcre2_match_data *data; pcre2_match_context *context; } expression;
static pthread_key_t last_used;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void drop(void *last)
{
    expression *e = last;
    if (!e) return;
    pcre2_code_free(e->code);
    pcre2_match_data_free(e->data);
    pcre2_match_context_free(e->context);
    ares_free(e->pattern);
    ares_free(e);
}

static void make_key(void)
{
    int failed = pthread_key_create(&last_used, drop);
    ARES_ASSERT(!failed);
}

static int prepare(const char *pattern, const expression **out)
{
    pthread_once(&once, make_key);
    expression *e = pthread_getspecific(last_used);
    *out = e;
    if (e && strcmp(e->pattern, pattern) == 0) return ARES_OK;
    pcre2_code *code;
    ARES_TRY(compile(pattern, &code));
    drop(e);
    e = ares_calloc(1, sizeof *e);
    *e = (expression){ ares_strdup(pattern), code, pcre2_match_data_create(1, NULL), pcre2_match_context_create(NULL) };
    pcre2_set_match_limit(e->context, MATCH_LIMIT);
    pcre2_set_depth_limit(e->context, MATCH_LIMIT);
    pcre2_set_heap_limit(e->context, HEAP_LIMIT_KIB);
    pthread_setspecific(last_used, e);
    *out = e;
    return ARES_OK;
}

static int format(const ares_verify_in *in, ares_verify_out *out)
{
    const format_options *o = in->options;
    out->score = 0;
    if (o->finished && !in->stopped) return ARES_OK;
    out->score = 1;
    if (!o->pattern || !*o->pattern) return ARES_OK;
    const expression *e;
    ARES_TRY(prepare(o->pattern, &e));
    const char *text = in->response.data ? in->response.data : "";
    int rc = pcre2_match(e->code, (PCRE2_SPTR)text, in->response.len, 0, PCRE2_NO_JIT, e->data, e->context);
    out->score = rc >= 0;
    if (rc < PCRE2_ERROR_NOMATCH - 1) ares_str_add_z(&out->details, "\"reason\":\"the work limit of matching was reached\"");
    return ARES_OK;
}

const ares_verifier ares_verifier_format = { "format", "the response is finished and matches a pattern", format_table, sizeof(format_options), check, format };
