/*
 * LaTeX -> tree, after latex2sympy2_extended's grammar: factors that stand side by side bind
 * tighter than "/" (1/2x is 1/(2x)); a whole number before a fraction is a mixed number; powers
 * associate to the left; \log is decimal; e is Euler's number; every other letter is a variable, in
 * either case the same.
 */
#include <string.h>

#include "math.h"

/* What is known of an operand while it is being parsed: whether it is one number, and which. */
typedef struct operand {
    enum { OTHER, WHOLE, FRACTION, DECIMAL } kind;
    int64_t n, d; /* of WHOLE and FRACTION */
} operand;

typedef struct reader {
    claim_book *book;
    ares_view text;
    size_t at, end; /* the span in hand is [at, end) of the text */
    int depth;
    /* the argument of a function without brackets, which ends before the next function */
    bool in_argument;
    bool in_bars; /* inside |..|, where the next bar closes and opens nothing */
} reader;

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '~';
}

/* ------------------------------------------------------------------ nodes */
/* The book lists all nodes, because their GMP numbers must be freed one by one. */
claim_node *claim_new(claim_book *b, claim_kind kind)
{
    claim_node *n = ares_arena_calloc(b->arena, 1, sizeof *n);
    n->kind = kind;
    value_init(&n->expression, b->arena);
    n->next = b->nodes;
    b->nodes = n;
    return n;
}

/* sign: of a relation, between the item before and this one; 0 elsewhere. */
void claim_add(claim_book *b, claim_node *to, claim_node *item, char sign)
{
    if (to->count == to->capacity) {
        int capacity = to->capacity ? 2 * to->capacity : 4;
        claim_node **items = ares_arena_alloc(b->arena, (size_t)capacity * sizeof *items);
        char *signs = ares_arena_alloc(b->arena, (size_t)capacity);
        if (to->count) {
            memcpy(items, to->items, (size_t)to->count * sizeof *items);
            memcpy(signs, to->signs, (size_t)to->count);
        }
        to->items = items;
        to->signs = signs;
        to->capacity = capacity;
    }
    if (to->count) to->signs[to->count - 1] = sign;
    to->items[to->count++] = item;
}

/* ------------------------------------------------------------------ scanning */
/* Skips blanks and the LaTeX words that only set space or style. */
static void skip(reader *r)
{
    static const char *const spaces[] = { "\\,",     "\\;", "\\:",      "\\!",           "\\quad",
                                          "\\qquad", "\\ ", "\\limits", "\\displaystyle" };
    for (bool more = true; more;) {
        more = false;
        while (r->at < r->end && blank(r->text.data[r->at])) r->at++;
        if (r->at >= r->end || r->text.data[r->at] != '\\') return;
        for (int i = ARES_COUNT(spaces); i-- > 0 && !more;) {
            size_t n = strlen(spaces[i]);
            if (r->end - r->at < n || memcmp(r->text.data + r->at, spaces[i], n) != 0) continue;
            if (edit_letter(spaces[i][n - 1]) && r->at + n < r->end &&
                edit_letter(r->text.data[r->at + n]))
                continue;
            r->at += n;
            more = true;
        }
    }
}
/* The next character after blanks; 0 at the end. */
static char peek(reader *r)
{
    skip(r);
    return r->at < r->end ? r->text.data[r->at] : 0;
}
/* The control word at the current place, without its backslash; empty when there is none. */
static ares_view command(reader *r)
{
    skip(r);
    size_t i = r->at + 1;
    if (r->at >= r->end || r->text.data[r->at] != '\\') return (ares_view){ "", 0 };
    while (i < r->end && edit_letter(r->text.data[i])) i++;
    if (i == r->at + 1 && i < r->end) i++; /* \{ and others of one character */
    return (ares_view){ r->text.data + r->at + 1, i - r->at - 1 };
}
/* Whether the control word is the next one; then it is read. */
static bool take_command(reader *r, const char *name)
{
    ares_view c = command(r);
    if (!ares_view_is(c, name)) return false;
    r->at += c.len + 1;
    return true;
}
/* The same for a character. */
static bool take(reader *r, char c)
{
    if (peek(r) != c) return false;
    r->at++;
    return true;
}

/* Change of the bracket depth by the character at i; *i moves over escaped braces. */
static int bracket_step(ares_view t, size_t *i)
{
    char c = t.data[*i];
    if (c == '\\' && *i + 1 < t.len) {
        ++*i;
        c = t.data[*i];
        if (c != '{' && c != '}') return 0;
    }
    return c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
}

/*
 * The index of the character that closes the bracket opened at `at` (its last byte); the end of the
 * text when none does.
 */
static size_t closing(const reader *r, size_t at)
{
    ares_view t = { r->text.data, r->end };
    int depth = 1;
    for (size_t i = at + 1; i < t.len; i++) {
        if (!value_spend(r->book->budget, 1)) return r->end;
        size_t here = i;
        depth += bracket_step(t, &i);
        if (depth == 0) return i;
        if (here == t.len) break;
    }
    return r->end;
}

/*
 * The span of the argument that follows: a brace group, a character or a control word; false when
 * there is none.
 */
static bool argument_span(reader *r, size_t *from, size_t *to)
{
    char c = peek(r);
    if (c == 0) return false;
    if (c == '{') {
        size_t close = closing(r, r->at);
        if (close >= r->end) return false;
        *from = r->at + 1;
        *to = close;
        r->at = close + 1;
        return true;
    }
    *from = r->at;
    if (c == '\\') r->at += command(r).len + 1;
    else if ((unsigned char)c < 0x80) r->at++;
    else return false;
    *to = r->at;
    return true;
}

/* ------------------------------------------------------------------ expressions */
static bool sum(reader *r, value_program *p, operand *o);

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a < 0 ? -a : a;
}
/* What is known of a / b, in lowest terms and with a positive denominator. */
static operand fraction(operand a, operand b)
{
    if (a.kind != WHOLE || b.kind != WHOLE || b.n == 0) return (operand){ .kind = OTHER };
    int64_t g = gcd(a.n, b.n);
    if (b.n < 0) g = -g;
    a.n /= g;
    b.n /= g;
    return (operand){ b.n == 1 ? WHOLE : FRACTION, a.n, b.n };
}
/* Parses a whole span as one expression; false where something is left over. */
static bool span(reader *r, value_program *p, size_t from, size_t to, operand *o)
{
    reader inner = *r;
    inner.at = from;
    inner.end = to;
    inner.in_argument = inner.in_bars = false;
    if (++inner.depth > MATH_MAX_DEPTH || from >= to || !value_spend(r->book->budget, 4))
        return false;
    return sum(&inner, p, o) && peek(&inner) == 0;
}

/* The argument that follows, as one expression. */
static bool argument(reader *r, value_program *p, operand *o)
{
    size_t from, to;
    return argument_span(r, &from, &to) && span(r, p, from, to, o);
}

/* The expression between the bracket at `open` and the one that closes it, escaped or not. */
static bool bracketed(reader *r, value_program *p, size_t open, operand *o)
{
    size_t close = closing(r, open);
    if (close >= r->end) return false;
    size_t to = close;
    if (r->text.data[close] == '}' && r->text.data[open] == '{' && open > 0 &&
        r->text.data[open - 1] == '\\' && r->text.data[close - 1] == '\\')
        to--;
    if (!span(r, p, open + 1, to, o)) return false;
    r->at = close + 1;
    return true;
}

/* A number with what may follow it: the base as an index, a percent sign. */
static bool number(reader *r, value_program *p, operand *o)
{
    size_t n = value_emit_number(p, (ares_view){ r->text.data, r->end }, r->at, false);
    if (n == 0 || p->failed || r->text.data[r->at + n - 1] == '.') return false;
    value_op last = p->ops[p->count - 1];
    /* a long whole number counts as a decimal: it is no part of a mixed number */
    *o = last.kind == VALUE_INTEGER ? (operand){ WHOLE, last.argument, 1 }
                                    : (operand){ .kind = DECIMAL };
    r->at += n;
    size_t from, to;
    if (peek(r) == '_') { /* the base of a number is ignored: 101_2 is 101 */
        r->at++;
        if (!argument_span(r, &from, &to)) return false;
    }
    size_t mark = r->at;
    if (take(r, '%') || take_command(r, "%")) {
        value_emit(p, VALUE_INTEGER, 100);
        value_emit(p, VALUE_DIV, 0);
        /* n = 0: no whole number before "5%" makes a mixed number of it */
        if (o->kind != DECIMAL) *o = (operand){ .kind = FRACTION, .n = 0, .d = 1 };
    } else {
        r->at = mark;
    }
    return true;
}

/*
 * A variable by its name and the subscript that may follow: a letter's code is the letter in lower
 * case, any other name's is CLAIM_FIRST_NAME + the index of prefix and name in the book's list.
 */
static bool variable(reader *r, value_program *p, const char *prefix, ares_view name)
{
    size_t mark = r->at;
    if (peek(r) == '_') {
        size_t from, to;
        r->at++;
        if (!argument_span(r, &from, &to)) return false;
        ares_view under = { r->text.data + from, to - from };
        name = ares_view_of(ares_arena_printf(r->book->arena, "%s%.*s_%.*s", prefix, (int)name.len,
                                              name.data, (int)under.len, under.data));
        prefix = "\\";
    } else {
        r->at = mark;
    }
    if (name.len == 1 && edit_letter(name.data[0]) && !prefix[0]) {
        value_emit(p, VALUE_VARIABLE, edit_lower_char(name.data[0]));
        return true;
    }
    claim_book *b = r->book;
    char *plain = ares_arena_alloc(b->arena, strlen(prefix) + name.len + 1);
    size_t n = 0;
    for (; *prefix; prefix++) plain[n++] = *prefix;
    for (size_t i = 0; i < name.len; i++)
        if (!blank(name.data[i])) plain[n++] = edit_lower_char(name.data[i]);
    int known = 0;
    while (known < b->name_count && !ares_view_eq(b->names[known], (ares_view){ plain, n }))
        known++;
    /* beyond the limit all names are the same one, and no comparison with it is trusted */
    if (known == b->name_count && known < CLAIM_MAX_NAMES)
        b->names[b->name_count++] = (ares_view){ plain, n };
    value_emit(p, VALUE_VARIABLE, CLAIM_FIRST_NAME + known);
    return true;
}

static const struct {
    const char *name;
    value_kind kind;
} functions[] = {
    { "sin", VALUE_SIN },       { "cos", VALUE_COS },       { "tan", VALUE_TAN },
    { "cot", VALUE_COT },       { "sec", VALUE_SEC },       { "csc", VALUE_CSC },
    { "arcsin", VALUE_ARCSIN }, { "arccos", VALUE_ARCCOS }, { "arctan", VALUE_ARCTAN },
    { "ln", VALUE_LN },         { "log", VALUE_LOG_BASE },  { "exp", VALUE_EXP },
};
/* Index of the function whose name stands here; -1: none. */
static int function_here(reader *r)
{
    ares_view c = command(r);
    for (int i = 0; i < ARES_COUNT(functions); i++)
        if (ares_view_is(c, functions[i].name)) return i;
    return -1;
}

static bool product(reader *r, value_program *p, operand *o);

/*
 * A function with its power, its base, and its argument: in brackets, or the product that follows.
 */
static bool function(reader *r, value_program *p, int which)
{
    value_kind kind = functions[which].kind;
    value_program power, base;
    operand unused, exponent = { .kind = OTHER };
    bool powered = false, based = false, ok = true;
    value_init(&power, r->book->arena);
    value_init(&base, r->book->arena);
    r->at += command(r).len + 1;
    for (char c = peek(r); ok && (c == '^' || c == '_') && !(c == '^' ? powered : based);
         c = peek(r)) {
        r->at++;
        if (c == '^') ok = powered = argument(r, &power, &exponent);
        else ok = based = argument(r, &base, &unused);
    }
    /* \sin^{-1} is the inverse function, not the reciprocal */
    if (powered && exponent.kind == WHOLE && exponent.n == -1 &&
        (kind == VALUE_SIN || kind == VALUE_COS || kind == VALUE_TAN)) {
        kind = kind == VALUE_SIN ? VALUE_ARCSIN : kind == VALUE_COS ? VALUE_ARCCOS : VALUE_ARCTAN;
        powered = false;
    }
    char c = peek(r);
    if (ok && (c == '(' || c == '{')) {
        ok = bracketed(r, p, r->at, &unused);
    } else if (ok) {
        bool before = r->in_argument;
        r->in_argument = true;
        ok = ++r->depth <= MATH_MAX_DEPTH && product(r, p, &unused);
        r->depth--;
        r->in_argument = before;
    }
    if (ok && kind == VALUE_LOG_BASE) {
        if (based) value_emit_program(p, &base);
        else value_emit(p, VALUE_INTEGER, 10);
    }
    if (ok) value_emit(p, kind, 0);
    if (ok && powered) {
        value_emit_program(p, &power);
        value_emit(p, VALUE_POW, 0);
    }
    value_free(&power);
    value_free(&base);
    return ok && (!based || functions[which].kind == VALUE_LOG_BASE);
}

/* |x|, \lfloor x\rfloor, \lceil x\rceil; the sign that opens is read already. */
static bool enclosed(reader *r, value_program *p, const char *close, value_kind kind)
{
    operand unused;
    bool bars = r->in_bars, argument_before = r->in_argument;
    r->in_bars = kind == VALUE_ABS || r->in_bars;
    r->in_argument = false;
    bool ok = ++r->depth <= MATH_MAX_DEPTH && sum(r, p, &unused);
    r->depth--;
    r->in_bars = bars;
    r->in_argument = argument_before;
    if (!ok || !(kind == VALUE_ABS ? take(r, '|') : take_command(r, close))) return false;
    value_emit(p, kind, 0);
    return true;
}

/* After \sqrt: [index] and an argument, in brackets of either kind. */
static bool root_arguments(reader *r, value_program *p)
{
    operand unused;
    if (peek(r) != '[') {
        if (peek(r) == '(' ? !bracketed(r, p, r->at, &unused) : !argument(r, p, &unused))
            return false;
        value_emit(p, VALUE_SQRT, 0);
        return true;
    }
    size_t close = closing(r, r->at), index = r->at + 1;
    if (close >= r->end) return false;
    r->at = close + 1;
    if (!argument(r, p, &unused) || !span(r, p, index, close, &unused)) return false;
    value_emit(p, VALUE_ROOT, 0);
    return true;
}

/*
 * A variable whose name stands in the braces after \text, \bar and their like. prefix tells \bar x
 * from x; it is empty for words that set only the font, which drop parentheses from the name.
 */
static bool styled_variable(reader *r, value_program *p, const char *prefix)
{
    size_t from, to, n = 0;
    if (peek(r) != '{' || !argument_span(r, &from, &to)) return false;
    char *name = ares_arena_alloc(r->book->arena, to - from + 1);
    for (size_t k = from; k < to; k++)
        if (!blank(r->text.data[k]) &&
            (*prefix || (r->text.data[k] != '(' && r->text.data[k] != ')')))
            name[n++] = r->text.data[k];
    return n && variable(r, p, prefix, (ares_view){ name, n });
}

/* What a control word begins: a function, a fraction, a root, ... or a variable of that name. */
static bool named(reader *r, value_program *p, operand *o)
{
    static const struct {
        const char *word, *prefix;
    } styles[] = {
        { "text", "" },         { "mbox", "" },
        { "mathbf", "" },       { "mathrm", "" },
        { "mathit", "" },       { "textbf", "" },
        { "textit", "" },       { "textrm", "" },
        { "operatorname", "" }, { "overline", "bar:" },
        { "bar", "bar:" },      { "hat", "accent:" },
        { "vec", "vec:" },      { "overrightarrow", "vec:" },
        { "tilde", "accent:" }, { "boldsymbol", "" },
        { "boxed", "" },
    };
    static const char *const no_variables[] = {
        "cdots", "ldots", "dots",       "left",    "right",  "begin",  "end", "mid",    "text",
        "quad",  "to",    "rightarrow", "implies", "cup",    "cap",    "in",  "forall", "exists",
        "int",   "sum",   "prod",       "lim",     "langle", "rangle", "pm",  "mp"
    };
    ares_view c = command(r);
    int f = function_here(r);
    if (f >= 0) return function(r, p, f);
    r->at += c.len + 1;
    operand a, b;
    if (LATEX_IS(c, "frac", "dfrac", "tfrac", "cfrac")) {
        if (!argument(r, p, &a)) return false;
        /* \frac123 is 1/23: one digit is the numerator, all digits after it the denominator */
        if (ares_is_digit(peek(r)) && ares_is_digit(r->text.data[r->at - 1]) ? !number(r, p, &b)
                                                                             : !argument(r, p, &b))
            return false;
        value_emit(p, VALUE_DIV, 0);
        *o = fraction(a, b);
        return true;
    }
    if (ares_view_is(c, "sqrt")) return root_arguments(r, p);
    if (LATEX_IS(c, "binom", "dbinom", "tbinom")) {
        if (!argument(r, p, &a) || !argument(r, p, &b)) return false;
        value_emit(p, VALUE_BINOMIAL, 0);
        return true;
    }
    if (ares_view_is(c, "lfloor")) return enclosed(r, p, "rfloor", VALUE_FLOOR);
    if (ares_view_is(c, "lceil")) return enclosed(r, p, "rceil", VALUE_CEIL);
    if (ares_view_is(c, "pi")) return value_emit(p, VALUE_PI, 0), true;
    if (ares_view_is(c, "infty")) return value_emit(p, VALUE_INF, 0), true;
    if (ares_view_is(c, "{")) return bracketed(r, p, r->at - 1, o);
    for (int i = 0; i < ARES_COUNT(styles); i++)
        if (ares_view_is(c, styles[i].word)) return styled_variable(r, p, styles[i].prefix);
    if (latex_is(c, no_variables, ARES_COUNT(no_variables))) return false;
    if (c.len < 2 || !edit_letter(c.data[0]) || (r->at < r->end && r->text.data[r->at] == '{'))
        return false;
    return variable(r, p, "\\", c);
}

/* A number, a bracket, a control word or a letter. */
static bool atom(reader *r, value_program *p, operand *o)
{
    char c = peek(r);
    *o = (operand){ .kind = OTHER };
    if (!value_spend(r->book->budget, 2)) return false;
    if (ares_is_digit(c) ||
        (c == '.' && r->at + 1 < r->end && ares_is_digit(r->text.data[r->at + 1])))
        return number(r, p, o);
    if (c == '(' || c == '[' || c == '{') return bracketed(r, p, r->at, o);
    if (c == '|') {
        r->at++;
        return enclosed(r, p, "|", VALUE_ABS);
    }
    if (c == '\\') return named(r, p, o);
    if (!edit_letter(c)) return false;
    size_t from = r->at++;
    if (c == 'e') {
        value_emit(p, VALUE_E, 0);
        return true;
    }
    /* a differential: dx is one name */
    if (c == 'd' && r->at < r->end && edit_letter(r->text.data[r->at])) r->at++;
    return variable(r, p, "", (ares_view){ r->text.data + from, r->at - from });
}

/* Skips ^\circ and \degree, which have no meaning here. */
static bool degree(reader *r)
{
    size_t mark = r->at;
    if (take(r, '^')) { /* 90^\circ, 90^{\circ}, 90^\degree */
        bool braced = take(r, '{');
        if ((take_command(r, "circ") || take_command(r, "degree")) && (!braced || take(r, '}')))
            return true;
    } else if (take_command(r, "degree")) {
        return true;
    }
    r->at = mark;
    return false;
}

/* An atom with its factorials and powers, which associate to the left: x^2^3 is (x^2)^3. */
static bool factor(reader *r, value_program *p, operand *o)
{
    if (!atom(r, p, o)) return false;
    for (;;) {
        char c = peek(r);
        operand unused;
        if (degree(r)) continue;
        if (c == '!') {
            r->at++;
            value_emit(p, VALUE_FACTORIAL, 0);
        } else if (c == '^') {
            r->at++;
            c = peek(r);
            if (c == '{'           ? !argument(r, p, &unused)
                : c == '('         ? !bracketed(r, p, r->at, &unused)
                : ares_is_digit(c) ? !number(r, p, &unused)
                                   : !atom(r, p, &unused))
                return false;
            value_emit(p, VALUE_POW, 0);
        } else {
            return true;
        }
        *o = (operand){ .kind = OTHER };
    }
}

/* Whether another factor follows without a sign of multiplication. */
static bool factor_ahead(reader *r)
{
    static const char *const stops[] = {
        "times",  "cdot",  "div",      "bmod",     "le",    "leq", "ge",       "geq", "ne", "neq",
        "lt",     "gt",    "in",       "approx",   "cup",   "cap", "setminus", "pm",  "mp", "}",
        "rfloor", "rceil", "leqslant", "geqslant", "equiv", "sim", "mid",      "end", "\\"
    };
    char c = peek(r);
    if (ares_is_digit(c) || c == '.' || c == '(' || c == '[' || c == '{' || edit_letter(c))
        return true;
    if (c == '|') return !r->in_bars;
    if (c != '\\') return false;
    return !latex_is(command(r), stops, ARES_COUNT(stops)) &&
           !(r->in_argument && function_here(r) >= 0);
}

/*
 * Signs, then factors side by side. An even number of minus signs cancels out. Factors are combined
 * from the right: 2\frac12 is 2 + 1/2, and so "2 3" and "2(3)" are sums, as in
 * latex2sympy2_extended.
 */
static bool signed_factors(reader *r, value_program *p, operand *o)
{
    enum { MOST = 64 };
    operand list[MOST];
    int n = 0;
    bool negative = false;
    for (char c = peek(r); c == '+' || c == '-'; c = peek(r)) {
        negative ^= c == '-';
        r->at++;
    }
    do {
        if (n == MOST || !factor(r, p, &list[n])) return false;
        n++;
    } while (factor_ahead(r));
    *o = list[n - 1];
    for (int i = n - 2; i >= 0; i--) {
        bool mixed = list[i].kind == WHOLE && (o->kind == WHOLE || o->kind == FRACTION) && o->n > 0;
        value_emit(p, mixed ? VALUE_ADD : VALUE_MUL, 0);
        int64_t limit = 1 << 30;
        if (mixed && o->n < limit && o->d < limit)
            *o = (operand){ o->d == 1 ? WHOLE : FRACTION, list[i].n * o->d + o->n, o->d };
        else *o = (operand){ .kind = OTHER };
    }
    if (negative) {
        value_emit(p, VALUE_NEG, 0);
        o->n = -o->n;
    }
    return true;
}

/* Factors with signs of multiplication or division between them, from left to right. */
static bool product(reader *r, value_program *p, operand *o)
{
    if (!signed_factors(r, p, o)) return false;
    for (;;) {
        operand b;
        char c = peek(r);
        bool times =
            c == '*' || ares_view_is(command(r), "times") || ares_view_is(command(r), "cdot");
        bool over = c == '/' || c == ':' || ares_view_is(command(r), "div");
        if (!times && !over) return true;
        r->at += c == '\\' ? command(r).len + 1 : 1;
        if (!signed_factors(r, p, &b)) return false;
        value_emit(p, times ? VALUE_MUL : VALUE_DIV, 0);
        *o = over ? fraction(*o, b) : (operand){ .kind = OTHER };
    }
}

/* Products with signs between them; false too when p has failed. */
static bool sum(reader *r, value_program *p, operand *o)
{
    if (!product(r, p, o)) return false;
    for (char c = peek(r); c == '+' || c == '-'; c = peek(r)) {
        operand b;
        r->at++;
        if (!product(r, p, &b)) return false;
        value_emit(p, c == '+' ? VALUE_ADD : VALUE_SUB, 0);
        *o = (operand){ .kind = OTHER };
    }
    return !p->failed;
}

/* ------------------------------------------------------------------ sets, relations, lists */
static claim_node *elements(reader *r, size_t from, size_t to, claim_kind kind);

/* The span as one expression; NULL when it is none. */
static claim_node *expression(reader *r, size_t from, size_t to)
{
    claim_node *n = claim_new(r->book, CLAIM_EXPRESSION);
    operand o = { .kind = OTHER };
    if (!span(r, &n->expression, from, to, &o)) return NULL;
    n->number = o.kind != OTHER;
    n->decimal = o.kind == DECIMAL && n->expression.decimals > 0;
    return n;
}

/* Moves both ends of a span over its blanks. */
static void trim(const reader *r, size_t *from, size_t *to)
{
    while (*from < *to && blank(r->text.data[*from])) ++*from;
    while (*from < *to && blank(r->text.data[*to - 1])) --*to;
}

/*
 * The matrix that fills the span, or NULL: \begin{pmatrix}1&2\\3&4\end{pmatrix} has four items in
 * two columns.
 */
static claim_node *read_matrix(reader *r, size_t from, size_t to)
{
    ares_view t = { r->text.data + from, to - from };
    static const char *const kinds[] = { "pmatrix", "bmatrix", "matrix",
                                         "Bmatrix", "array",   "smallmatrix" };
    while (t.len && (t.data[0] == '(' || t.data[0] == '[')) { /* \left( \begin{array} */
        if (t.len < 2 || (t.data[t.len - 1] != ')' && t.data[t.len - 1] != ']')) return NULL;
        t = ares_view_trim((ares_view){ t.data + 1, t.len - 2 });
    }
    if (!ares_view_starts(t, ARES_VIEW("\\begin{"))) return NULL;
    /* the whole text must be one environment of a kind; cells are expressions */
    for (int i = 0; i < ARES_COUNT(kinds); i++) {
        ares_view open = ares_view_of(ares_arena_printf(r->book->arena, "\\begin{%s}", kinds[i])),
                  close = ares_view_of(ares_arena_printf(r->book->arena, "\\end{%s}", kinds[i]));
        if (!ares_view_starts(t, open) || t.len < open.len + close.len ||
            memcmp(t.data + t.len - close.len, close.data, close.len) != 0)
            continue;
        size_t at = (size_t)(t.data - r->text.data) + open.len,
               end = at + t.len - open.len - close.len;
        if (i == 4) { /* {cc}: alignment */
            while (at < end && r->text.data[at] != '}') at++;
            at = ARES_MIN(at + 1, end);
        }
        claim_node *m = claim_new(r->book, CLAIM_MATRIX);
        int column = 0, depth = 0;
        size_t cell = at;
        for (size_t k = at; k <= end; k++) {
            if (!value_spend(r->book->budget, 1)) return NULL;
            bool row = k + 1 < end && r->text.data[k] == '\\' && r->text.data[k + 1] == '\\';
            if (k < end && !row && !(r->text.data[k] == '&' && depth == 0)) {
                depth += r->text.data[k] == '{' ? 1 : r->text.data[k] == '}' ? -1 : 0;
                continue;
            }
            size_t a = cell, b = k;
            trim(r, &a, &b);
            /* a row end after the last row */
            if (k == end && a == b && column == 0 && m->count) break;
            claim_node *item = m->count < CLAIM_MAX_ITEMS ? expression(r, a, b) : NULL;
            if (!item) return NULL;
            claim_add(r->book, m, item, 0);
            column++;
            if (row || k == end) {
                if (m->columns == 0) m->columns = column;
                if (m->columns != column) return NULL;
                column = 0;
            }
            if (row) k++;
            cell = k + 1;
        }
        return m->count ? m : NULL;
    }
    return NULL;
}

/* Whether b <= a (strict: b < a), so that no number lies between them. */
static bool below_or_equal(reader *r, const claim_node *a, const claim_node *b, bool strict)
{
    value_names none = { .count = 0 };
    value_float x, y;
    int left = value_infinity(&a->expression), right = value_infinity(&b->expression);
    if (left || right) return left > right || (left == right && !strict);
    value_collect_names(&a->expression, &none);
    value_collect_names(&b->expression, &none);
    if (none.count) return false;
    value_float_init(&x);
    value_float_init(&y);
    if (value_at(&a->expression, &none, 0, r->book->budget, &x) != VALUE_DONE ||
        value_at(&b->expression, &none, 0, r->book->budget, &y) != VALUE_DONE)
        return false;
    return strict ? mpfr_less_p(y.v, x.v) : mpfr_lessequal_p(y.v, x.v);
}

/*
 * Whether the span is one bracket with a comma inside, one {...}, or \emptyset; then *node is the
 * set, tuple or interval, or NULL when its inside is not understood.
 */
static bool set_atom(reader *r, size_t from, size_t to, claim_node **node)
{
    ares_view t = { r->text.data + from, to - from };
    *node = NULL;
    if (ares_view_is(t, "\\emptyset") || ares_view_is(t, "\\{\\}") || ares_view_is(t, "{}")) {
        *node = claim_new(r->book, CLAIM_SET);
        return true;
    }
    bool escaped = t.len > 3 && t.data[0] == '\\' && t.data[1] == '{';
    char open = t.len ? t.data[escaped] : 0;
    /* the bracket that opens the span must close at its end, and not before */
    if (t.len < 3 || !strchr("([{", open)) return false;
    reader inner = *r;
    inner.end = to;
    if (closing(&inner, from + escaped) != to - 1) return false;
    char close = t.data[t.len - 1];
    size_t a = from + 1 + escaped, b = to - 1 - (escaped && t.data[t.len - 2] == '\\');
    int commas = 0, depth = 0;
    for (size_t i = a; i < b; i++) {
        ares_view all = { r->text.data, b };
        if (depth == 0 && (r->text.data[i] == ',' || r->text.data[i] == ';')) commas++;
        depth += bracket_step(all, &i);
    }
    if (open == '{') {
        if (close != '}') return false;
        *node = elements(r, a, b, CLAIM_SET);
        return true;
    }
    if (commas == 0) return false;
    *node = elements(r, a, b, CLAIM_TUPLE);
    if (!*node || commas != 1 || (*node)->count != 2 ||
        (*node)->items[0]->kind != CLAIM_EXPRESSION ||
        (*node)->items[1]->kind != CLAIM_EXPRESSION) {
        if (*node && (open == '[' || close == ']') && (*node)->count != 2)
            *node = open == '[' && close == ']' ? *node : NULL;
        return true;
    }
    /* "(1, 2]" and "[1, 2)" can only be intervals; "(1, 2)" is read as one, too */
    bool opens = open == '(', closes = close == ')';
    /* an empty interval is a pair instead */
    if (opens == closes && below_or_equal(r, (*node)->items[0], (*node)->items[1], !opens))
        return true;
    (*node)->kind = CLAIM_INTERVAL;
    (*node)->open[0] = opens;
    (*node)->open[1] = closes;
    return true;
}

/* Sets joined by \cup, or one set, or an expression. */
static claim_node *term(reader *r, size_t from, size_t to)
{
    trim(r, &from, &to);
    claim_node *n = NULL, *joined = NULL;
    if (from >= to || r->depth >= MATH_MAX_DEPTH) return NULL;
    int depth = 0;
    size_t start = from;
    ares_view all = { r->text.data, to };
    for (size_t i = from; i < to; i++) {
        if (!value_spend(r->book->budget, 1)) return NULL;
        size_t here = i;
        depth += bracket_step(all, &i);
        if (depth || r->text.data[here] != '\\' || to - here < 4 ||
            memcmp(r->text.data + here, "\\cup", 4) != 0 ||
            (here + 4 < to && edit_letter(r->text.data[here + 4])))
            continue;
        if (!joined) joined = claim_new(r->book, CLAIM_UNION);
        reader one = *r;
        one.depth++;
        n = term(&one, start, here);
        if (!n || joined->count == CLAIM_MAX_ITEMS) return NULL;
        claim_add(r->book, joined, n, 0);
        start = here + 4;
    }
    if (joined) {
        reader one = *r;
        one.depth++;
        n = term(&one, start, to);
        if (!n) return NULL;
        claim_add(r->book, joined, n, 0);
        return joined;
    }
    if (set_atom(r, from, to, &n)) return n;
    if ((n = read_matrix(r, from, to))) return n;
    return expression(r, from, to);
}

/* The letter of the relation sign at i, and its bytes; 0 when there is none. */
static char relation_at(ares_view t, size_t i, size_t *bytes)
{
    static const struct {
        const char *text;
        char sign;
    } signs[] = {
        { "\\leqslant", 'l' }, { "\\geqslant", 'g' }, { "\\leq", 'l' }, { "\\le", 'l' },
        { "\\geq", 'g' },      { "\\ge", 'g' },       { "\\neq", '!' }, { "\\ne", '!' },
        { "\\lt", '<' },       { "\\gt", '>' },       { "\\in", '=' },  { "\\approx", '~' },
        { "<=", 'l' },         { ">=", 'g' },         { "!=", '!' },    { "=", '=' },
        { "<", '<' },          { ">", '>' },
    };
    if (!strchr("\\<>=!", t.data[i])) return 0;
    for (int k = 0; k < ARES_COUNT(signs); k++) {
        size_t n = strlen(signs[k].text);
        if (t.len - i < n || memcmp(t.data + i, signs[k].text, n) != 0) continue;
        if (signs[k].text[0] == '\\' && i + n < t.len && edit_letter(t.data[i + n])) continue;
        *bytes = n;
        return signs[k].sign;
    }
    return 0;
}

/* Adds both values of a \pm b to the set; false when the span has no such sign at its top level. */
static bool plus_minus(reader *r, size_t from, size_t to, claim_node *into, bool *ok)
{
    ares_view all = { r->text.data, to };
    int depth = 0;
    for (size_t i = from; i < to; i++) {
        size_t here = i;
        depth += bracket_step(all, &i);
        if (depth || r->text.data[here] != '\\' || to - here < 3 ||
            (memcmp(r->text.data + here, "\\pm", 3) != 0 &&
             memcmp(r->text.data + here, "\\mp", 3) != 0) ||
            (here + 3 < to && edit_letter(r->text.data[here + 3])))
            continue;
        size_t a = from, b = here, c = here + 3, d = to;
        trim(r, &a, &b);
        trim(r, &c, &d);
        *ok = false;
        for (int sign = 0; sign < 2; sign++) {
            claim_node *left = a < b ? expression(r, a, b) : NULL, *right = expression(r, c, d);
            if (!right || (a < b && !left)) return true;
            claim_node *n = left ? left : right;
            if (left) {
                value_emit_program(&n->expression, &right->expression);
                value_emit(&n->expression, sign ? VALUE_ADD : VALUE_SUB, 0);
                n->number = false;
            } else if (!sign) {
                value_emit(&n->expression, VALUE_NEG, 0);
            }
            claim_add(r->book, into, n, 0);
        }
        *ok = true;
        return true;
    }
    return false;
}

/*
 * One element of a list: a term, or terms with relation signs between them ("1 < x \leq 2" has
 * three items and two signs).
 */
static claim_node *element(reader *r, size_t from, size_t to)
{
    claim_node *chain = NULL;
    size_t start = from, bytes = 0;
    int depth = 0;
    ares_view all = { r->text.data, to };
    char last = 0;
    for (size_t i = from; i <= to; i++) {
        if (!value_spend(r->book->budget, 1)) return NULL;
        char sign = i < to && depth == 0 ? relation_at(all, i, &bytes) : 0;
        if (i < to && !sign) {
            depth += bracket_step(all, &i);
            continue;
        }
        if (i == to && !chain) return term(r, from, to);
        claim_node *pair = claim_new(r->book, CLAIM_SET), *n;
        bool ok;
        size_t a = start, b = i;
        trim(r, &a, &b);
        if (plus_minus(r, a, b, pair, &ok)) n = ok ? pair : NULL;
        else n = term(r, a, b);
        if (!n) return NULL;
        if (!chain) chain = claim_new(r->book, CLAIM_RELATION);
        if (chain->count == CLAIM_MAX_ITEMS) return NULL;
        claim_add(r->book, chain, n, last);
        last = sign;
        start = i + bytes;
        if (i < to) i += bytes - 1;
    }
    /* of a \approx b, a is the answer; of x \approx b with a single letter x, b is */
    if (chain->count == 2 && chain->signs[0] == '~') {
        claim_node *left = chain->items[0];
        return left->kind == CLAIM_EXPRESSION && left->expression.count == 1 &&
                       left->expression.ops[0].kind == VALUE_VARIABLE
                   ? chain->items[1]
                   : left;
    }
    return chain;
}

/*
 * Elements between commas and semicolons. Groups between semicolons are tuples when one of them has
 * commas.
 */
static claim_node *elements(reader *r, size_t from, size_t to, claim_kind kind)
{
    claim_node *list = claim_new(r->book, kind), *group = claim_new(r->book, CLAIM_TUPLE);
    ares_view all = { r->text.data, to };
    bool groups = false;
    int depth = 0;
    size_t start = from;
    reader inner = *r;
    if (++inner.depth > MATH_MAX_DEPTH) return NULL;
    claim_node *tuples = claim_new(r->book, kind); /* the groups; list has the elements of all */
    for (size_t i = from; i <= to; i++) {
        if (!value_spend(r->book->budget, 1)) return NULL;
        char c = i < to ? r->text.data[i] : ';';
        if (i < to && (depth || (c != ',' && c != ';'))) {
            depth += bracket_step(all, &i);
            if (i >= to) return NULL;
            continue;
        }
        size_t a = start, b = i;
        trim(&inner, &a, &b);
        int before = list->count;
        bool ok = true;
        if (list->count + 2 > CLAIM_MAX_ITEMS) return NULL;
        if (!plus_minus(&inner, a, b, list, &ok)) {
            claim_node *n = element(&inner, a, b);
            if (!n) return NULL;
            claim_add(r->book, list, n, 0);
        }
        if (!ok) return NULL;
        for (int k = before; k < list->count; k++) claim_add(r->book, group, list->items[k], 0);
        if (c == ';') {
            groups |= group->count > 1;
            claim_add(r->book, tuples, group, 0);
            group = claim_new(r->book, CLAIM_TUPLE);
        }
        start = i + 1;
    }
    return groups && tuples->count > 1 && kind == CLAIM_SET ? tuples : list;
}

/*
 * Whether the whole text is a number with thousands separators, as in 1,234,567.5. "1,234" could be
 * a list of two numbers; it is read as one.
 */
static bool thousands(ares_view t)
{
    size_t i = t.len && t.data[0] == '-', digits = 0, groups = 0;
    for (; i < t.len && ares_is_digit(t.data[i]); i++) digits++;
    if (digits < 1 || digits > 3) return false;
    while (i + 3 < t.len && t.data[i] == ',' && ares_is_digit(t.data[i + 1]) &&
           ares_is_digit(t.data[i + 2]) && ares_is_digit(t.data[i + 3]))
        i += 4, groups++;
    if (i + 1 < t.len && t.data[i] == '.' && ares_is_digit(t.data[i + 1]))
        for (i++; i < t.len && ares_is_digit(t.data[i]); i++) {}
    return groups && i == t.len;
}

claim_node *claim_parse(claim_book *b, ares_view latex, bool percent)
{
    latex = ares_view_trim(latex);
    if (latex.len == 0 || latex.len > MATH_MAX_BYTES || memchr(latex.data, 0, latex.len))
        return NULL;
    if (thousands(latex)) {
        char *plain = ares_arena_alloc(b->arena, latex.len + 1);
        size_t n = 0;
        for (size_t i = 0; i < latex.len; i++)
            if (latex.data[i] != ',') plain[n++] = latex.data[i];
        latex = (ares_view){ plain, n };
    }
    reader r = { .book = b, .text = latex, .end = latex.len };
    claim_node *list = elements(&r, 0, latex.len, CLAIM_SET);
    if (!list || b->budget->exhausted) return NULL;
    claim_node *n = list->count == 1 ? list->items[0] : list;
    if (percent && n->kind == CLAIM_EXPRESSION) {
        value_emit(&n->expression, VALUE_INTEGER, 100);
        value_emit(&n->expression, VALUE_DIV, 0);
    }
    return n;
}
