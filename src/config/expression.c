/*
 * Expressions in one number, with Python's grammar and arithmetic (docs/design.md#schedules):
 * "0.2 + 0.6 * min(step / 100, 1)" is 0.5 at step 50. A recursive-descent parser makes a tree, each
 * node with its operation; nothing is ever looked up by name after parsing. Transcendental
 * functions are computed in long double and rounded, so that the instruction set of a machine's
 * double library decides no bit.
 */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* bounds for a hostile text, which no schedule comes near */
enum { MAX_DEPTH = 200, MAX_ARGUMENTS = 16, MAX_WORK = 100000 /* operations */ };

typedef struct node node;
/* One evaluation of the tree, at one step. */
typedef struct run {
    double step;
    int work;          /* operations so far */
    const char *error; /* the first */
} run;
typedef enum {
    OP_NUMBER,
    OP_STEP,
    OP_IF,
    OP_OR,
    OP_AND,
    OP_NOT,
    OP_MINUS,
    OP_CALL,
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_FLOOR_DIVIDE,
    OP_MODULO,
    OP_POWER,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_EQUAL,
    OP_NOT_EQUAL
} operation;
struct node {
    operation op;
    double number;                /* of a constant */
    const node *a, *b, *c;        /* operands; of a conditional the test and both branches */
    const node *const *arguments; /* of a call, [count] */
    int count;
    double (*function)(const double *x, int n, run *r);
    bool none; /* None, or a conditional with a branch that is */
};

struct expression {
    const node *root;
};

/* The value of a failed operation does not matter: expression_at reports the error. */
static double fail(run *r, const char *what)
{
    if (!r->error) r->error = what;
    return 0;
}

/* ---------------------------------------------------------------- operations */
/* The remainder has the sign of the divisor. */
static double modulo(double a, double b)
{
    /* fmod has the sign of a: -7 % 3 is 2 in Python */
    double m = fmod(a, b);
    return m == 0 ? copysign(0, b) : (m < 0) != (b < 0) ? m + b : m;
}

/* Python's a ** b; where its result would be complex, it is an error. */
static double power(double a, double b, run *r)
{
    if (a == 0 && b < 0) return fail(r, "0 to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
        return fail(r, "a negative number to a fractional power");
    /* in long double, as the other functions that round */
    double p = (double)powl(a, b);
    if (isinf(p) && isfinite(a) && isfinite(b)) return fail(r, "a power too large for a float");
    return p;
}

/*
 * The value of a node. The count of operations bounds chains such as a < b < c, whose middle
 * operands are evaluated twice.
 */
static double at(const node *n, run *r)
{
    if (++r->work > MAX_WORK) return fail(r, "too many operations");
    if (r->error) return 0;
    double x[MAX_ARGUMENTS], a = n->a ? at(n->a, r) : 0;
    switch (n->op) { /* those that leave an operand unevaluated, or have but one */
    case OP_NUMBER: return n->number;
    case OP_STEP: return r->step;
    case OP_IF: return at(a != 0 ? n->b : n->c, r);
    case OP_OR: return a != 0 ? a : at(n->b, r);
    case OP_AND: return a != 0 ? at(n->b, r) : a;
    case OP_NOT: return a == 0;
    case OP_MINUS: return -a;
    case OP_CALL:
        for (int i = 0; i < n->count; i++) x[i] = at(n->arguments[i], r);
        return r->error ? 0 : n->function(x, n->count, r);
    default: break;
    }
    double b = at(n->b, r), quotient, whole;
    switch (n->op) {
    case OP_ADD: return a + b;
    case OP_SUBTRACT: return a - b;
    case OP_MULTIPLY: return a * b;
    case OP_DIVIDE: return b != 0 ? a / b : fail(r, "division by zero");
    case OP_MODULO: return b != 0 ? modulo(a, b) : fail(r, "modulo by zero");
    case OP_FLOOR_DIVIDE:
        if (b == 0) return fail(r, "division by zero");
        /* a multiple of b divided by b is nearly whole: round, as float_floor_div of CPython does
         */
        quotient = (a - modulo(a, b)) / b, whole = floor(quotient);
        return quotient - whole > 0.5 ? whole + 1 : whole;
    case OP_POWER: return r->error ? 0 : power(a, b, r);
    case OP_LESS: return a < b;
    case OP_LESS_EQUAL: return a <= b;
    case OP_GREATER: return a > b;
    case OP_GREATER_EQUAL: return a >= b;
    case OP_EQUAL: return a == b;
    default: return a != b; /* OP_NOT_EQUAL */
    }
}

/* ---------------------------------------------------------------- functions */
/* x [n]: the arguments, whose number the table below has bounded. */
#define FUNCTION(name, value)                          \
    static double name(const double *x, int n, run *r) \
    {                                                  \
        (void)n, (void)r;                              \
        return value;                                  \
    }
static double f_min(const double *x, int n, run *r)
{
    (void)r;
    double least = x[0];
    for (int i = 1; i < n; i++)
        if (x[i] < least) least = x[i];
    return least;
}
static double f_max(const double *x, int n, run *r)
{
    (void)r;
    double most = x[0];
    for (int i = 1; i < n; i++)
        if (x[i] > most) most = x[i];
    return most;
}
FUNCTION(f_abs, fabs(x[0]))
/* Numbers are floats here already. */
FUNCTION(f_float, x[0])

/* rounded, the integer of x, unless x is infinite or NaN, for which Python raises an exception. */
static double whole(double x, double rounded, run *r)
{
    return isfinite(x) ? rounded : fail(r, "an integer of a number that is not finite");
}
FUNCTION(f_int, whole(x[0], trunc(x[0]), r))
FUNCTION(f_floor, whole(x[0], floor(x[0]), r))
FUNCTION(f_ceil, whole(x[0], ceil(x[0]), r))

/* Half to even; with digits, of the exact decimal value of the float. */
static double f_round(const double *x, int n, run *r)
{
    char text[400];
    if (n == 1) return whole(x[0], nearbyint(x[0]), r);
    /* round(x, digits) */
    if (!isfinite(x[1]) || x[1] != floor(x[1])) return fail(r, "round to a fraction of a digit");
    if (!isfinite(x[0]) || x[1] > 323) return x[0];
    /* to more digits than a float has before its point */
    if (x[1] < -308) return copysign(0, x[0]);
    if (x[1] < 0) {
        /* round(1250, -2) is 1200: half to even */
        long double unit = powl(10, -x[1]);
        return (double)(nearbyintl(x[0] / unit) * unit);
    }
    int most = 40; /* digits beyond these are zeros of no effect on a float as large as 1e-16 */
    if (x[1] > most && fabs(x[0]) > 1e-16) return x[0];
    /* printf rounds the exact decimal value, as Python does */
    snprintf(text, sizeof text, "%.*f", (int)x[1], x[0]);
    return strtod(text, NULL);
}

/* An infinity from finite arguments is an OverflowError in Python. */
static double f_exp(const double *x, int n, run *r)
{
    (void)n;
    double result = (double)expl(x[0]);
    return isinf(result) && isfinite(x[0]) ? fail(r, "a result too large for a float") : result;
}
FUNCTION(f_sqrt, x[0] < 0 ? fail(r, "the square root of a negative number") : sqrt(x[0]))
/* The logarithm to the base of `log`, with Python's error. */
static double logarithm(double x, long double (*log)(long double), run *r)
{
    return x <= 0 ? fail(r, "the logarithm of a number that is not positive") : (double)log(x);
}
/* log(x) or log(x, base), the quotient of two logarithms. */
static double f_log(const double *x, int n, run *r)
{
    double log = logarithm(x[0], logl, r);
    if (n == 1 || r->error) return log;
    double base = logarithm(x[1], logl, r);
    if (!r->error && base == 0) return fail(r, "a logarithm to base 1");
    return log / base;
}
FUNCTION(f_log2, logarithm(x[0], log2l, r))
FUNCTION(f_log10, logarithm(x[0], log10l, r))
/* pow(a, b), which is a ** b. */
FUNCTION(f_pow, power(x[0], x[1], r))
#define ANGLE(name, function) \
    FUNCTION(name, isinf(x[0]) ? fail(r, "an angle that is not finite") : (double)function(x[0]))
ANGLE(f_sin, sinl)
ANGLE(f_cos, cosl)
ANGLE(f_tan, tanl)
/* For any argument, infinite ones included. */
FUNCTION(f_tanh, (double)tanhl(x[0]))

static const struct {
    const char *name;
    int least, most; /* arguments */
    bool math;       /* in Python's module math */
    double (*function)(const double *x, int n, run *r);
} functions[] = {
    { "abs", 1, 1, false, f_abs },
    { "ceil", 1, 1, true, f_ceil },
    { "cos", 1, 1, true, f_cos },
    { "exp", 1, 1, true, f_exp },
    { "float", 1, 1, false, f_float },
    { "floor", 1, 1, true, f_floor },
    { "int", 1, 1, false, f_int },
    { "log", 1, 2, true, f_log },
    { "log10", 1, 1, true, f_log10 },
    { "log2", 1, 1, true, f_log2 },
    { "max", 2, MAX_ARGUMENTS, false, f_max },
    { "min", 2, MAX_ARGUMENTS, false, f_min },
    { "pow", 2, 2, true, f_pow },
    { "round", 1, 2, false, f_round },
    { "sin", 1, 1, true, f_sin },
    { "sqrt", 1, 1, true, f_sqrt },
    { "tan", 1, 1, true, f_tan },
    { "tanh", 1, 1, true, f_tanh },
};
static const struct {
    const char *name;
    double value;
} constants[] = { { "pi", 3.14159265358979323846 },
                  { "e", 2.7182818284590452354 },
                  { "inf", INFINITY } };
/* words of the grammar, which name neither the step nor a constant */
static const char *const keywords[] = { "if",     "else", "and",   "or",  "not",
                                        "lambda", "True", "False", "None" };

/* ---------------------------------------------------------------- parsing */
/* A parsing function below returns NULL after a fault. Each is a level of Python's grammar. */
typedef struct parser {
    ares_arena *arena;
    const char *text, *p, *end; /* the whole, the next character, the end */
    ares_view parameter;        /* the name of the step */
    int depth;                  /* of the recursion */
    int rc;                     /* of the first fault */
} parser;

/* The first fault counts. Column 1 is the first character. */
static const node *refuse(parser *s, const char *at, const char *what)
{
    if (s->rc == ARES_OK)
        s->rc = ares_fail(ARES_ECONFIG, "column %d: %s", (int)(at - s->text) + 1, what);
    return NULL;
}

/* A character that may begin a name. */
static bool letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Skips white space; a text in YAML may have several lines. */
static void blanks(parser *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

/* Whether the text goes on with the symbol, after white space. */
static bool next_is(parser *s, const char *symbol)
{
    blanks(s);
    size_t n = strlen(symbol);
    return (size_t)(s->end - s->p) >= n && memcmp(s->p, symbol, n) == 0;
}

/* Takes the symbol if it is next. */
static bool take(parser *s, const char *symbol)
{
    bool is = next_is(s, symbol);
    if (is) s->p += strlen(symbol);
    return is;
}

/* The name that is next, or an empty view. */
static ares_view peek_name(parser *s)
{
    blanks(s);
    const char *p = s->p;
    if (p < s->end && letter(*p))
        while (p < s->end && (letter(*p) || ares_is_digit(*p))) p++;
    return (ares_view){ s->p, (size_t)(p - s->p) };
}

static bool is_word(ares_view v, const char *word)
{
    return ares_view_eq(v, ares_view_of(word));
}

/* Takes the word if it is next, and not the beginning of a longer name. */
static bool take_word(parser *s, const char *word)
{
    ares_view v = peek_name(s);
    if (!is_word(v, word)) return false;
    s->p += v.len;
    return true;
}

static bool is_keyword(ares_view v)
{
    for (int i = 0; i < ARES_COUNT(keywords); i++)
        if (is_word(v, keywords[i])) return true;
    return false;
}

/* The node in the arena. */
static const node *make(parser *s, node n)
{
    node *made = ares_arena_alloc(s->arena, sizeof *made);
    *made = n;
    return made;
}

/* None is no number: only a branch may be it. */
static const node *operand(parser *s, const char *where, const node *n)
{
    return n && n->none ? refuse(s, where, "None is only a whole branch of if and else") : n;
}

/* A node with two operands; NULL where one of them failed or is None. */
static const node *binary(parser *s, const char *where, operation op, const node *a, const node *b)
{
    if (!operand(s, where, a) || !operand(s, where, b)) return NULL;
    return make(s, (node){ .op = op, .a = a, .b = b });
}

static const node *conditional(parser *s);
static const node *unary(parser *s);

/* Digits with single underscores between them. */
static bool digits(const char **p, const char *end)
{
    const char *q = *p;
    if (q >= end || !ares_is_digit(*q)) return false;
    while (q < end && (ares_is_digit(*q) || (*q == '_' && q + 1 < end && ares_is_digit(q[1])))) q++;
    *p = q;
    return true;
}

/* As in Python, 1_000 and 1e3 are numbers, and 010 is none. */
static const node *number(parser *s)
{
    /* p runs ahead; s->p moves only when the number is sound */
    const char *start = s->p, *p = start;
    bool whole = digits(&p, s->end), real = false;
    if (p < s->end && *p == '.') {
        p++, real = true;
        if (!digits(&p, s->end) && !whole) return refuse(s, start, "a number was expected");
    }
    if (p < s->end && (*p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        if (q < s->end && (*q == '+' || *q == '-')) q++;
        /* an e without digits belongs to what follows: an error below */
        if (digits(&q, s->end)) p = q, real = true;
    }
    if (p < s->end && (letter(*p) || ares_is_digit(*p) || *p == '.'))
        return refuse(s, start, "not a number");
    /* without underscores, for strtod */
    char plain[64];
    size_t n = 0;
    bool zeros = true; /* only zeros so far */
    for (const char *q = start; q < p; q++) {
        if (*q == '_') continue;
        if (n + 1 >= sizeof plain) return refuse(s, start, "a number has too many digits");
        /* 010 is an error in Python, 00 is not */
        if (!real && n && zeros && *q != '0')
            return refuse(s, start, "a whole number begins with 0");
        zeros &= *q == '0';
        plain[n++] = *q;
    }
    plain[n] = 0;
    s->p = p;
    return make(s, (node){ .op = OP_NUMBER, .number = strtod(plain, NULL) });
}

/* The arguments of functions[f] in brackets. where: the function's name, for errors. */
static const node *call(parser *s, const char *where, int f)
{
    /* none is given by keyword */
    const node *arguments[MAX_ARGUMENTS];
    int n = 0;
    if (!take(s, "(")) return refuse(s, s->p, "'(' was expected after a function");
    do {
        if (n == MAX_ARGUMENTS) return refuse(s, s->p, "too many arguments");
        const char *start = s->p;
        arguments[n] = conditional(s);
        if (!operand(s, start, arguments[n])) return NULL;
        n++;
    } while (take(s, ","));
    if (!take(s, ")")) return refuse(s, s->p, "')' or ',' was expected");
    if (n < functions[f].least || n > functions[f].most)
        return refuse(s, where, "wrong number of arguments");
    /* only as many as there are */
    const node **kept = ares_arena_alloc(s->arena, (size_t)n * sizeof(node *));
    memcpy(kept, arguments, (size_t)n * sizeof(node *));
    return make(
        s,
        (node){ .op = OP_CALL, .function = functions[f].function, .arguments = kept, .count = n });
}

/* The step, a constant, or the call of a function. */
static const node *name(parser *s)
{
    const char *start = s->p;
    ares_view v = peek_name(s);
    /* after "math." only what that module has */
    bool math = false;
    s->p += v.len;
    /* first, so that a lambda may name its step "e" */
    if (ares_view_eq(v, s->parameter)) return make(s, (node){ .op = OP_STEP });
    if (is_word(v, "True")) return make(s, (node){ .op = OP_NUMBER, .number = 1 });
    if (is_word(v, "False")) return make(s, (node){ .op = OP_NUMBER, .number = 0 });
    if (is_word(v, "None")) return make(s, (node){ .op = OP_NUMBER, .number = NAN, .none = true });
    /* math.exp and exp are the same function; math.min does not exist */
    if (is_word(v, "math") && s->p < s->end && *s->p == '.') {
        s->p++;
        v = s->p < s->end && letter(*s->p) ? peek_name(s) : (ares_view){ s->p, 0 };
        s->p += v.len;
        math = true;
    }
    for (int i = 0; i < ARES_COUNT(constants); i++)
        if (is_word(v, constants[i].name))
            return make(s, (node){ .op = OP_NUMBER, .number = constants[i].value });
    for (int i = 0; i < ARES_COUNT(functions); i++)
        if (is_word(v, functions[i].name) && (functions[i].math || !math)) return call(s, start, i);
    if (is_keyword(v)) return refuse(s, start, "a value was expected");
    return refuse(s, start, "unknown name; known are the step, pi, e, inf and some functions");
}

/* A number, a name, or an expression in brackets. */
static const node *atom(parser *s)
{
    blanks(s);
    if (s->p == s->end) return refuse(s, s->p, "the expression is not finished");
    char c = *s->p;
    if (ares_is_digit(c) || c == '.') return number(s);
    if (letter(c)) return name(s);
    if (!take(s, "(")) return refuse(s, s->p, "a number, a name or '(' was expected");
    const node *n = conditional(s);
    /* only one expression: there are no tuples */
    if (n && !take(s, ")")) return refuse(s, s->p, "')' was expected");
    return n;
}

static const node *unary(parser *s)
{
    const char *where = s->p;
    if (++s->depth > MAX_DEPTH) return refuse(s, s->p, "nested too deeply");
    const node *n;
    if (take(s, "-")) {
        n = operand(s, where, unary(s));
        if (n) n = make(s, (node){ .op = OP_MINUS, .a = n });
    } else if (take(s, "+")) {
        n = operand(s, where, unary(s));
    } else {
        /* ** binds tighter than the minus before it: -2 ** 2 is -4; 2 ** -1 is 0.5 */
        n = atom(s);
        const char *sign = s->p;
        if (n && take(s, "**")) n = binary(s, sign, OP_POWER, n, unary(s));
    }
    s->depth--;
    return n;
}

/* * / // %, from the left. */
static const node *term(parser *s)
{
    const node *a = unary(s);
    while (a) {
        const char *where = s->p;
        if (take(s, "//")) a = binary(s, where, OP_FLOOR_DIVIDE, a, unary(s));
        else if (take(s, "/")) a = binary(s, where, OP_DIVIDE, a, unary(s));
        else if (take(s, "%")) a = binary(s, where, OP_MODULO, a, unary(s));
        else if (!next_is(s, "**") && take(s, "*")) a = binary(s, where, OP_MULTIPLY, a, unary(s));
        else break;
    }
    return a;
}

/* + and -, from the left. */
static const node *sum(parser *s)
{
    const node *a = term(s);
    while (a) {
        const char *where = s->p;
        if (take(s, "+")) a = binary(s, where, OP_ADD, a, term(s));
        else if (take(s, "-")) a = binary(s, where, OP_SUBTRACT, a, term(s));
        else break;
    }
    return a;
}

/* a < b < c is a < b and b < c: operands have no side effects, so that b may be evaluated twice. */
static const node *compare(parser *s)
{
    /* the longer first, because the first that fits is taken */
    static const struct {
        const char *symbol;
        operation op;
    } comparisons[] = { { "<=", OP_LESS_EQUAL }, { ">=", OP_GREATER_EQUAL }, { "==", OP_EQUAL },
                        { "!=", OP_NOT_EQUAL },  { "<", OP_LESS },           { ">", OP_GREATER } };
    const node *a = sum(s), *all = NULL;
    while (a) {
        const char *where = s->p;
        int i = 0;
        while (i < ARES_COUNT(comparisons) && !take(s, comparisons[i].symbol)) i++;
        if (i == ARES_COUNT(comparisons)) break;
        const node *b = sum(s);
        const node *one = binary(s, where, comparisons[i].op, a, b);
        if (!one) return NULL;
        all = all ? make(s, (node){ .op = OP_AND, .a = all, .b = one }) : one;
        a = b;
    }
    return a && all ? all : a;
}

/* "not" binds weaker than a comparison. */
static const node *negation(parser *s)
{
    const char *where = s->p;
    if (++s->depth > MAX_DEPTH) return refuse(s, s->p, "nested too deeply");
    const node *n;
    if (take_word(s, "not")) {
        n = operand(s, where, negation(s));
        if (n) n = make(s, (node){ .op = OP_NOT, .a = n });
    } else {
        n = compare(s);
    }
    s->depth--;
    return n;
}

/* and, then or: the levels of Python below "a if test else b". */
static const node *conjunction(parser *s)
{
    const node *a = negation(s);
    for (const char *where = s->p; a && take_word(s, "and"); where = s->p)
        a = binary(s, where, OP_AND, a, negation(s));
    return a;
}

static const node *disjunction(parser *s)
{
    const node *a = conjunction(s);
    for (const char *where = s->p; a && take_word(s, "or"); where = s->p)
        a = binary(s, where, OP_OR, a, conjunction(s));
    return a;
}

static const node *conditional(parser *s)
{
    if (++s->depth > MAX_DEPTH) return refuse(s, s->p, "nested too deeply");
    const node *a = disjunction(s);
    const char *where = s->p;
    if (a && take_word(s, "if")) {
        /* a if test else b: a was read before the if was known */
        const node *test = operand(s, where, disjunction(s));
        if (!test) return NULL;
        if (!take_word(s, "else")) return refuse(s, s->p, "'else' was expected");
        const node *b = conditional(s);
        a = b ? make(s,
                     (node){ .op = OP_IF, .a = test, .b = a, .c = b, .none = a->none || b->none })
              : NULL;
    }
    s->depth--;
    return a;
}

enum { EXPRESSION_BYTES = 4096 }; /* longest text */

/* text: an expression in `step`, or a lambda with a name of its own for it. */
int expression_parse(ares_arena *arena, ares_view text, bool none_allowed, const expression **out)
{
    const char *kept = ares_arena_copy(arena, text.data, text.len);
    parser s = { .arena = arena, .text = kept, .p = kept, .parameter = ares_view_of("step") };
    *out = NULL;
    if (text.len > EXPRESSION_BYTES || memchr(text.data, 0, text.len))
        return ares_fail(ARES_ECONFIG, "an expression has at most %d characters, none of them NUL",
                         EXPRESSION_BYTES);
    s.end = kept + text.len;
    if (take_word(&s, "lambda")) {
        /* lambda t: 0.5 * t */
        s.parameter = peek_name(&s);
        if (!s.parameter.len || is_keyword(s.parameter))
            return (void)refuse(&s, s.p, "the name of the step was expected: lambda step: ..."),
                   s.rc;
        s.p += s.parameter.len;
        if (!take(&s, ":"))
            return (void)refuse(&s, s.p, "':' was expected after the one name"), s.rc;
    }
    const node *root = conditional(&s);
    blanks(&s);
    /* what stands after a whole expression */
    if (root && s.p < s.end) (void)refuse(&s, s.p, "the expression should end here");
    if (root && root->none && !none_allowed)
        (void)refuse(&s, s.text, "None is a value of reward caps only");
    if (s.rc != ARES_OK) return s.rc;
    expression *e = ares_arena_alloc(arena, sizeof *e);
    *e = (expression){ root };
    *out = e;
    return ARES_OK;
}

/* *value: 0 after an error, so that no caller goes on with a number that is half computed. */
int expression_at(const expression *e, int64_t step, double *value)
{
    run r = { .step = (double)step };
    *value = at(e->root, &r);
    if (!r.error) return ARES_OK;
    *value = 0;
    return ares_fail(ARES_ECONFIG, "at step %lld: %s", (long long)step, r.error);
}

bool expression_may_be_none(const expression *e)
{
    return e->root->none;
}
