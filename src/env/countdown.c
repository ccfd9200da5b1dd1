/*
 * `countdown`: an expression of given numbers that makes a target (docs/environments.md#countdown).
 * Expressions know + - * / and brackets; Python's further operators, which the published judge lets
 * eval compute, count as wrong values.
 */
#include "internal.h"

#include <ctype.h>
#include <math.h>

#include "ares/core.h"

#define COUNTDOWN_OPTIONS(X)                                                                   \
    X(text, path, "path", "null", "nonempty",                                                  \
      "JSON lines of {\"nums\": [..], \"target\": n}; null: problems are made from the seed")  \
    X(i64, max_instances, "max_instances", "20000", "[1,)", "lines of the file that are read") \
    X(f64, format_score, "format_score", "0.1", "",                                            \
      "for an answer with the right numbers and another value")                                \
    X(f64, score, "score", "1.0", "", "for an answer that makes the target")
ARES_OPTION_STRUCT(countdown_options, COUNTDOWN_OPTIONS);
static ARES_OPTION_TABLE(countdown_table, countdown_options, COUNTDOWN_OPTIONS);

enum { DEPTH = 64 }; /* brackets in brackets: the stack is finite */

/* ---------------- expressions, by recursive descent */
/* Where the reading of an answer stands. `failed` is final. */
typedef struct reader {
    const char *at, *end;
    int depth;
    bool failed;
} reader;

/* The next character that is no blank; 0 at the end. */
static char peek(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t')) r->at++;
    return r->at < r->end ? *r->at : '\0';
}

/* Ends the reading: nothing is left for the functions that go on. */
static double fail(reader *r)
{
    r->failed = true;
    r->at = r->end;
    return 0;
}

/* "12", "1.5", "3."; the value is a double, as in Python's division. */
static double number(reader *r)
{
    const char *begin = r->at;
    while (r->at < r->end && isdigit((unsigned char)*r->at)) r->at++;
    bool padded = r->at - begin > 1 && *begin == '0'; /* "007", which Python refuses */
    if (r->at < r->end && *r->at == '.') {
        padded = false;
        do r->at++;
        while (r->at < r->end && isdigit((unsigned char)*r->at));
    }
    ares_view text = { begin, (size_t)(r->at - begin) };
    double x;
    return !padded && ares_parse_double(text, &x) ? x : fail(r);
}

static double sum(reader *r);

/* factor := [+-]* (number | "(" sum ")") */
static double factor(reader *r)
{
    /* signs before a number or bracket, as in 3 - -2 */
    double sign = 1;
    char c;
    while ((c = peek(r)) == '+' || c == '-') {
        if (c == '-') sign = -sign;
        r->at++;
    }
    if (isdigit((unsigned char)c)) return sign * number(r);
    if (c != '(' || ++r->depth > DEPTH) return fail(r);
    r->at++;
    double x = sum(r);
    if (peek(r) != ')') return fail(r);
    r->at++;
    r->depth--;
    return sign * x;
}

/* product := factor (("*" | "/") factor)* */
static double product(reader *r)
{
    double x = factor(r);
    for (char c; (c = peek(r)) == '*' || c == '/';) {
        r->at++;
        double y = factor(r);
        if (c == '/' && y == 0) return fail(r);
        x = c == '*' ? x * y : x / y;
    }
    return x;
}

/* sum := product (("+" | "-") product)* */
static double sum(reader *r)
{
    double x = product(r);
    for (char c; (c = peek(r)) == '+' || c == '-';) {
        r->at++;
        double y = product(r);
        x = c == '+' ? x + y : x - y;
    }
    return x;
}

/* Whether the digits of the answer are the problem's numbers, each used once. */
static bool uses(ares_view answer, const countdown_problem *p)
{
    /* equal numbers of the problem are used one by one */
    bool used[COUNTDOWN_NUMBERS] = { false };
    int n = 0;
    for (size_t i = 0; i < answer.len; n++) {
        while (i < answer.len && !isdigit((unsigned char)answer.data[i])) i++;
        size_t begin = i;
        while (i < answer.len && isdigit((unsigned char)answer.data[i])) i++;
        if (i == begin) break;
        int64_t x;
        int k = 0;
        /* zeros in front do not count: "007" is 7 */
        while (begin + 1 < i && answer.data[begin] == '0') begin++;
        if (!ares_parse_i64((ares_view){ answer.data + begin, i - begin }, &x)) return false;
        while (k < p->n && (used[k] || p->number[k] != x)) k++;
        if (k == p->n) return false;
        used[k] = true;
    }
    return n == p->n;
}

/* Right numbers first: an answer with other numbers gets nothing even where its value is right. */
countdown_verdict countdown_judge(ares_view answer, const countdown_problem *p)
{
    if (!uses(answer, p)) return COUNTDOWN_WRONG_NUMBERS;
    reader r = { answer.data, answer.data + answer.len, 0, false };
    double x = sum(&r);
    bool whole = !r.failed && peek(&r) == '\0' && r.at == r.end; /* the answer is read to its end */
    return whole && fabs(x - p->target) < 1e-5 ? COUNTDOWN_RIGHT : COUNTDOWN_WRONG_VALUE;
}

/* ---------------- problems */
/* The problems of the file. */
typedef struct problems {
    countdown_problem *items;
    int64_t n, capacity;
} problems;

/* Reads a row of the file; a problem without a solution is left out. */
static int add_row(void *ctx, const ares_json *row)
{
    problems *all = ctx;
    const ares_json *nums = ares_json_get(row, "nums");
    countdown_problem p = { 0 };
    if (!nums || nums->type != ARES_JSON_ARRAY || nums->count < 1 ||
        nums->count > COUNTDOWN_NUMBERS)
        return ares_fail(ARES_EFORMAT, "'nums' must be a list of 1 to %d numbers",
                         COUNTDOWN_NUMBERS);
    p.n = (int)nums->count;
    for (int i = 0; i < p.n; i++) {
        const ares_json *x = &nums->items[i];
        if (x->type != ARES_JSON_INT || x->integer < 0 || x->integer > INT32_MAX)
            return ares_fail(ARES_EFORMAT, "'nums' must be whole numbers from 0 on");
        p.number[i] = x->integer;
    }
    ARES_TRY(ares_json_get_double(row, "target", NAN, &p.target));
    if (isnan(p.target)) return ares_fail(ARES_EFORMAT, "the row has no 'target'");
    /* as the published set is filtered: + and - of all numbers must make the target */
    bool solvable = false;
    for (int signs = 0; signs < 1 << p.n && !solvable; signs++) {
        double x = 0;
        for (int i = 0; i < p.n; i++) x += (double)(signs >> i & 1 ? -p.number[i] : p.number[i]);
        solvable = x == p.target;
    }
    if (!solvable) return ARES_OK;
    if (all->n == all->capacity) {
        all->capacity = all->capacity * 2 + 64;
        all->items = ares_realloc(all->items, (size_t)all->capacity * sizeof *all->items);
    }
    all->items[all->n++] = p;
    return ARES_OK;
}

static void unload(void *shared)
{
    problems *all = shared;
    if (!all) return;
    ares_free(all->items);
    ares_free(all);
}

/* Reads the file once; all environments draw from it. */
static int load(const void *options, void **shared)
{
    const countdown_options *o = options;
    ares_arena arena = { 0 };
    *shared = NULL;
    /* no file: problems are made from the seed */
    if (!o->path) return ARES_OK;
    problems *all = *shared = ares_calloc(1, sizeof *all);
    int rc = env_rows_read(o->path, o->max_instances, &arena, add_row, all);
    ares_arena_fini(&arena);
    if (rc != ARES_OK || all->n) return rc;
    return ares_fail(ARES_EFORMAT, "env: %s: no row makes its target by + and - of its numbers",
                     o->path);
}

/* ---------------- the environment */
typedef struct countdown {
    const countdown_options *o;
    const problems *all; /* NULL: problems are made from the seed */
    countdown_problem problem;
    ares_env_reward paid; /* for the answer, once it is there */
    bool answered;
} countdown;

static int open_countdown(const void *options, const void *shared, void **env)
{
    countdown *c = *env = ares_calloc(1, sizeof *c);
    c->o = options;
    c->all = shared;
    return ARES_OK;
}

/* The seed picks a problem of the file, or makes one. */
static int reset(void *env, const ares_env_start *start)
{
    countdown *c = env;
    countdown_problem p;
    ares_mt19937 py; /* CPython's stream, so that a seed gives the same problem everywhere */
    c->answered = false;
    if (c->all) {
        c->problem = c->all->items[start->seed % (uint64_t)c->all->n];
        return ARES_OK;
    }
    ares_py_seed(&py, start->seed);
    do { /* three or four numbers below 100; the target is their sum under random signs */
        p = (countdown_problem){ .n = (int)ares_py_randint(&py, 3, 4) };
        for (int i = 0; i < p.n; i++) {
            p.number[i] = ares_py_randint(&py, 1, 99);
            p.target += (double)(ares_py_below(&py, 2) ? -p.number[i] : p.number[i]);
        }
    } while (p.target < 1);
    c->problem = p;
    return ARES_OK;
}

/* One answer ends the episode. */
static int step(void *env, ares_env_action action, ares_env_outcome *out)
{
    countdown *c = env;
    countdown_verdict verdict = countdown_judge(action.text, &c->problem);
    c->paid = (ares_env_reward){ 0, true };
    if (verdict == COUNTDOWN_WRONG_VALUE) c->paid = (ares_env_reward){ c->o->format_score, false };
    if (verdict == COUNTDOWN_RIGHT) c->paid = (ares_env_reward){ c->o->score, false };
    c->answered = true;
    out->reward = c->paid;
    out->done = true;
    out->success = verdict == COUNTDOWN_RIGHT;
    env_tell(out, "action_is_effective", c->paid.value > 0);
    env_tell(out, "action_is_valid", 1);
    return ARES_OK;
}

/* "Target: 24, nums: [3, 8]", or after the answer what it got; wording is RAGEN's. */
static void render(const void *env, ares_str *out)
{
    const countdown *c = env;
    if (c->answered) {
        ares_str_add_z(out, "Your answer get ");
        ares_env_reward_write(out, c->paid);
        ares_str_add_z(out, " points.");
        return;
    }
    /* an integer is written without a point, as Python does */
    double whole = trunc(c->problem.target);
    ares_str_add_z(out, "Target: ");
    ares_env_reward_write(out, (ares_env_reward){ c->problem.target, whole == c->problem.target });
    ares_str_add_z(out, ", nums: [");
    for (int i = 0; i < c->problem.n; i++)
        ares_str_addf(out, "%s%lld", i ? ", " : "", (long long)c->problem.number[i]);
    ares_str_add_char(out, ']');
}

const ares_env_type ares_env_type_countdown = {
    .name = "countdown",
    .doc = "an expression of given numbers that makes a target",
    .options = countdown_table,
    .options_size = sizeof(countdown_options),
    .load = load,
    .unload = unload,
    .open = open_countdown,
    .close = ares_free,
    .reset = reset,
    .step = step,
    .render = render,
};
