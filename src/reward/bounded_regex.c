/*
 * PCRE2's match limit holds separately for each place where a match may start. A search is
 * therefore written as one match of the whole text with `.*?` before the expression, so that one
 * limit bounds all of it.
 */
#include "bounded_regex.h"

#include <pcre2.h>
#include <pthread.h>
#include <string.h>

/* the heap limit bounds the depth of backtracking too */
enum { MATCH_LIMIT = 1000000, SEARCH_LIMIT = 4000000, HEAP_LIMIT_KIB = 20000 };

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

static const expression *prepare(const char *pattern, bool whole)
{
    pthread_once(&once, make_key);
    expression *e = pthread_getspecific(last_used);
    if (e && e->whole == whole && strcmp(e->pattern, pattern) == 0) return e;
    ares_str text = { 0 };
    pcre2_code *code;
    ares_str_addf(&text, whole ? "%s" : "(?s:.*?)(?:%s)(?s:.*)", pattern);
    int rc = compile("pattern", text.data, &code);
    ares_str_fini(&text);
    if (rc != ARES_OK) return NULL;
    drop(e);
    e = ares_calloc(1, sizeof *e);
    *e = (expression){ ares_strdup(pattern), whole, code, pcre2_match_data_create(1, NULL),
                       pcre2_match_context_create(NULL) };
    pcre2_set_match_limit(e->context, whole ? MATCH_LIMIT : SEARCH_LIMIT);
    pcre2_set_depth_limit(e->context, whole ? MATCH_LIMIT : SEARCH_LIMIT);
    pcre2_set_heap_limit(e->context, HEAP_LIMIT_KIB);
    pthread_setspecific(last_used, e);
    return e;
}

int bounded_regex_match(const char *pattern, bool whole, ares_view text)
{
    const expression *e = prepare(pattern, whole);
    if (!e) return -1;
    int rc = pcre2_match(e->code, (PCRE2_SPTR)(text.data ? text.data : ""), text.len, 0,
                         PCRE2_NO_JIT, e->data, e->context);
    return rc >= 0 ? 1 : rc < PCRE2_ERROR_NOMATCH - 1 ? -1 : 0;
}
