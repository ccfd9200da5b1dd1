/*
 * Verifiers of a response's form: format, format_think and format_think_boxed. First the regular
 * expressions with a bound on their work, which other verifiers use too.
 */
#include "verifier.h"

#include <pcre2.h>
#include <pthread.h>
#include <string.h>

/*
 * PCRE2's match limit holds separately for each place where a match may start. A search is
 * therefore written as one match of the whole text with `.*?` before the expression, so that one
 * limit bounds all of it.
 */

/* the heap limit bounds the depth of backtracking too */
enum { MATCH_LIMIT = 1000000, SEARCH_LIMIT = 4000000, HEAP_LIMIT_KIB = 20000 };

/* Compiles a pattern that must match a whole text; who: the verifier, for the message. */
static int compile(const char *who, const char *pattern, pcre2_code **out)
{
    int code;
    PCRE2_SIZE at;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_DOTALL | PCRE2_ANCHORED | PCRE2_ENDANCHORED |
                             PCRE2_MATCH_INVALID_UTF,
                         &code, &at, NULL);
    if (*out) return ARES_OK;
    PCRE2_UCHAR text[128];
    pcre2_get_error_message(code, text, sizeof text);
    return ares_fail(ARES_ECONFIG, "reward: %s: pattern = '%s': %s at character %zu", who, pattern,
                     (const char *)text, (size_t)at);
}

int bounded_regex_check(const char *who, const char *pattern)
{
    pcre2_code *code;
    ARES_TRY(compile(who, pattern, &code));
    pcre2_code_free(code);
    return ARES_OK;
}

/* Each thread keeps the expression it used last, and frees it when the thread ends. */
typedef struct expression {
    char *pattern;
    bool whole;
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
} expression;
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

int bounded_regex_match(const char *pattern, bool whole, ares_view text)
{
    pthread_once(&once, make_key);
    expression *e = pthread_getspecific(last_used);
    if (!e || e->whole != whole || strcmp(e->pattern, pattern) != 0) {
        ares_str wrapped = { 0 };
        pcre2_code *code;
        ares_str_addf(&wrapped, whole ? "%s" : "(?s:.*?)(?:%s)(?s:.*)", pattern);
        int rc = compile("pattern", wrapped.data, &code);
        ares_str_fini(&wrapped);
        if (rc != ARES_OK) return -1;
        drop(e);
        e = ares_calloc(1, sizeof *e);
        *e = (expression){ ares_strdup(pattern), whole, code, pcre2_match_data_create(1, NULL),
                           pcre2_match_context_create(NULL) };
        pcre2_set_match_limit(e->context, whole ? MATCH_LIMIT : SEARCH_LIMIT);
        pcre2_set_depth_limit(e->context, whole ? MATCH_LIMIT : SEARCH_LIMIT);
        pcre2_set_heap_limit(e->context, HEAP_LIMIT_KIB);
        pthread_setspecific(last_used, e);
    }
    int rc = pcre2_match(e->code, (PCRE2_SPTR)(text.data ? text.data : ""), text.len, 0,
                         PCRE2_NO_JIT, e->data, e->context);
    /* below "no match" and "partial match" stand errors: a limit was reached */
    return rc >= 0 ? 1 : rc < PCRE2_ERROR_NOMATCH - 1 ? -1 : 0;
}

/* The whole response matches a regular expression. */

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

/*
 * The format of a response with its reasoning in <think> tags: 1 or 0, without regard to
 * correctness (docs/rewards.md#formats-with-think-tags).
 */

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
