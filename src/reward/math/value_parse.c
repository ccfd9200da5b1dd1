/*
 * Normalised text -> postfix program. Sums, products (factors side by side bind like "*", so 1/2x
 * is (1/2)x), signs, powers (right associative), postfix "!", brackets, functions with a bracket
 * after their name, pi, inf, single letters, decimal numbers.
 *
 * Chains of signs and of left-associative operators are loops; brackets, exponents and arguments
 * count against MATH_MAX_DEPTH.
 */
#include "value.h"

#include <string.h>
#include <utf8proc.h>

#include "edit.h"

typedef struct parser {
    value_program *p;
    ares_view text;
    size_t at;
    int depth;
    bool reference;
    math_budget *budget;
} parser;

typedef struct word {
    const char *name;
    value_kind kind;
    int operands;
} word;
static const word words[] = {
    { "arcsin", VALUE_ARCSIN, 1 }, { "arccos", VALUE_ARCCOS, 1 },
    { "arctan", VALUE_ARCTAN, 1 }, { "binomial", VALUE_BINOMIAL, 2 },
    { "sqrt", VALUE_SQRT, 1 },     { "root", VALUE_ROOT, 2 },
    { "sin", VALUE_SIN, 1 },       { "cos", VALUE_COS, 1 },
    { "tan", VALUE_TAN, 1 },       { "cot", VALUE_COT, 1 },
    { "sec", VALUE_SEC, 1 },       { "csc", VALUE_CSC, 1 },
    { "log", VALUE_LN, 1 },        { "ln", VALUE_LN, 1 },
    { "exp", VALUE_EXP, 1 },       { "pi", VALUE_PI, 0 },
    { "inf", VALUE_INF, 0 },
};

/* ------------------------------------------------------------------ programs */
void value_init(value_program *p, ares_arena *arena)
{
    *p = (value_program){ .arena = arena };
}

void value_free(value_program *p)
{
    for (int i = 0; i < p->literal_count; i++) mpq_clear(p->literals[i]);
    p->literal_count = 0;
}

void value_emit(value_program *p, value_kind kind, int32_t argument)
{
    if (p->count == p->capacity) {
        int capacity = p->capacity ? 2 * p->capacity : 32;
        value_op *ops = ares_arena_alloc(p->arena, (size_t)capacity * sizeof *ops);
        if (p->count) memcpy(ops, p->ops, (size_t)p->count * sizeof *ops);
        p->ops = ops;
        p->capacity = capacity;
    }
    p->ops[p->count++] = (value_op){ kind, argument };
    p->depth += kind < VALUE_NEG ? 1 : kind < VALUE_ADD ? 0 : -1;
    p->max_depth = ARES_MAX(p->max_depth, p->depth);
    if (p->depth < 1) p->failed = true;
}

/* Appends a literal with the value 0. */
static mpq_ptr literal(value_program *p)
{
    if (p->literal_count == p->literal_capacity) {
        int capacity = p->literal_capacity ? 2 * p->literal_capacity : 8;
        mpq_t *literals = ares_arena_alloc(p->arena, (size_t)capacity * sizeof *literals);
        /* GMP numbers may be moved in memory */
        if (p->literal_count)
            memcpy(literals, p->literals, (size_t)p->literal_count * sizeof *literals);
        p->literals = literals;
        p->literal_capacity = capacity;
    }
    mpq_init(p->literals[p->literal_count]);
    value_emit(p, VALUE_LITERAL, p->literal_count);
    return p->literals[p->literal_count++];
}

void value_emit_program(value_program *p, const value_program *from)
{
    for (int i = 0; i < from->count; i++) {
        if (from->ops[i].kind == VALUE_LITERAL)
            mpq_set(literal(p), from->literals[from->ops[i].argument]);
        else value_emit(p, from->ops[i].kind, from->ops[i].argument);
    }
    p->decimals += from->decimals;
    p->decimal_digits = ARES_MAX(p->decimal_digits, from->decimal_digits);
    p->failed |= from->failed;
}

/* ------------------------------------------------------------------ numbers */
/*
 * The exponent after the digits of a number; *end: where it stands, then after it. Without one *end
 * stays.
 */
static int read_exponent(value_program *p, ares_view text, size_t *end)
{
    size_t j = *end;
    if (j >= text.len || (text.data[j] != 'e' && text.data[j] != 'E')) return 0;
    j++;
    bool negative = j < text.len && text.data[j] == '-';
    if (j < text.len && (text.data[j] == '-' || text.data[j] == '+')) j++;
    if (j >= text.len || !edit_digit(text.data[j])) return 0;
    int exponent = 0;
    for (; j < text.len && edit_digit(text.data[j]); j++)
        exponent = exponent > VALUE_MAX_EXPONENT ? exponent : exponent * 10 + (text.data[j] - '0');
    if (exponent > VALUE_MAX_EXPONENT) p->failed = true, exponent = 0;
    *end = j;
    return negative ? -exponent : exponent;
}

/* digits (with one point at most among them) times ten to the power of scale, exactly */
static void emit_scaled(value_program *p, ares_view digits, int64_t scale)
{
    mpq_ptr q = literal(p);
    char *plain = ares_arena_alloc(p->arena, digits.len + 1);
    size_t n = 0;
    for (size_t k = 0; k < digits.len; k++)
        if (digits.data[k] != '.') plain[n++] = digits.data[k];
    plain[n] = 0;
    mpz_set_str(mpq_numref(q), plain, 10);
    mpz_t ten;
    mpz_init(ten);
    mpz_ui_pow_ui(ten, 10, (unsigned long)(scale < 0 ? -scale : scale));
    if (scale < 0) mpz_set(mpq_denref(q), ten);
    else mpz_mul(mpq_numref(q), mpq_numref(q), ten);
    mpz_clear(ten);
    mpq_canonicalize(q);
}

size_t value_emit_number(value_program *p, ares_view text, size_t at, bool scientific)
{
    size_t i = at, digits = 0, point = 0; /* point: digits after the decimal point */
    bool pointed = false;
    int32_t whole = 0;
    for (; i < text.len; i++) {
        if (edit_digit(text.data[i])) {
            if (digits++ < 9) whole = whole * 10 + (text.data[i] - '0');
            point += pointed;
        } else if (text.data[i] == '.' && !pointed) {
            pointed = true;
        } else {
            break;
        }
    }
    if (digits == 0) return 0;
    ares_view written = { text.data + at, i - at };
    int exponent = scientific ? read_exponent(p, text, &i) : 0;
    bool powered = i - at > written.len;
    if (!pointed && !powered && digits <= 9) {
        value_emit(p, VALUE_INTEGER, whole);
        return i - at;
    }
    if (digits > MATH_MAX_BYTES) {
        p->failed = true;
        return i - at;
    }
    emit_scaled(p, written, (int64_t)exponent - (int64_t)point);
    if (pointed || powered) {
        p->decimals++;
        p->decimal_digits = ARES_MAX(p->decimal_digits, (int)digits);
    }
    return i - at;
}

/* ------------------------------------------------------------------ the grammar */
static char peek(const parser *s)
{
    return s->at < s->text.len ? s->text.data[s->at] : 0;
}
static bool fail(parser *s)
{
    s->p->failed = true;
    return false;
}
static bool sum(parser *s);

static bool bracketed(parser *s, int operands)
{
    if (peek(s) != '(' || ++s->depth > MATH_MAX_DEPTH) return fail(s);
    for (int i = 0; i < operands; i++) {
        s->at++; /* "(" or "," */
        if (!sum(s) || peek(s) != (i + 1 < operands ? ',' : ')')) return fail(s);
    }
    s->at++;
    s->depth--;
    return true;
}

/* The word at the current place, functions only before a bracket; NULL when there is none. */
static const word *word_here(const parser *s)
{
    for (int i = 0; i < ARES_COUNT(words); i++) {
        size_t n = strlen(words[i].name), left = s->text.len - s->at;
        if (n > left || memcmp(s->text.data + s->at, words[i].name, n) != 0) continue;
        if (words[i].operands == 0 || (n < left && s->text.data[s->at + n] == '('))
            return &words[i];
    }
    return NULL;
}

/*
 * The same for the reference, whose tokenizer takes a whole name (letters and digits) at once: a
 * name that is not known as a whole is read letter by letter. *bytes: of the name.
 */
static const word *name_here(const parser *s, size_t *bytes)
{
    size_t end = s->at;
    while (end < s->text.len && (edit_letter(s->text.data[end]) || edit_digit(s->text.data[end]) ||
                                 s->text.data[end] == '_'))
        end++;
    ares_view name = { s->text.data + s->at, end - s->at };
    *bytes = name.len;
    for (int i = 0; i < ARES_COUNT(words); i++) {
        bool called = end < s->text.len && s->text.data[end] == '(';
        if (words[i].kind != VALUE_INF && ares_view_is(name, words[i].name) &&
            (words[i].operands == 0 || (called && words[i].operands == 1)))
            return &words[i];
    }
    return NULL;
}

/* A letter outside ASCII, which is one variable: returns its bytes, 0 when it is no letter. */
static size_t wide_letter(const parser *s, int32_t *code)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)s->text.data + s->at,
                                          (utf8proc_ssize_t)(s->text.len - s->at), &c);
    if (n < 2) return 0;
    utf8proc_category_t category = utf8proc_category(c);
    if (category < UTF8PROC_CATEGORY_LU || category > UTF8PROC_CATEGORY_LO) return 0;
    *code = c;
    return (size_t)n;
}

static bool letters_of_name(parser *s, size_t bytes)
{
    ares_view name = { s->text.data + s->at, bytes };
    /* sympy takes these Greek names for one symbol */
    static const char *const whole[] = { "mu", "nu", "xi" };
    for (int i = 0; i < ARES_COUNT(whole); i++) {
        if (!ares_view_is(name, whole[i])) continue;
        value_emit(s->p, VALUE_VARIABLE, 0x110000 + i);
        s->at += bytes;
        return true;
    }
    if (memchr(name.data, '_', name.len) || ares_view_is(name, "oo")) return fail(s);
    size_t end = s->at + bytes, factors = 0;
    while (s->at < end) {
        if (edit_digit(peek(s))) {
            size_t stop = s->at;
            while (stop < end && edit_digit(s->text.data[stop])) stop++;
            s->at += value_emit_number(s->p, (ares_view){ s->text.data, stop }, s->at, false);
        } else {
            value_emit(s->p, VALUE_VARIABLE, peek(s));
            s->at++;
        }
        if (factors++) value_emit(s->p, VALUE_MUL, 0);
    }
    return true;
}

static bool primary(parser *s)
{
    char c = peek(s);
    if (!value_spend(s->budget, 1)) return fail(s);
    if (c == '(') return bracketed(s, 1);
    if (edit_digit(c) || c == '.') {
        /* the reference reads "05" as 0 and 5 */
        if (s->reference && c == '0' && s->at + 1 < s->text.len &&
            edit_digit(s->text.data[s->at + 1])) {
            size_t end = s->at;
            while (end < s->text.len && edit_digit(s->text.data[end])) end++;
            if (end == s->text.len || (s->text.data[end] != '.' && s->text.data[end] != 'e')) {
                s->at++;
                value_emit(s->p, VALUE_INTEGER, 0);
                return true;
            }
        }
        size_t n = value_emit_number(s->p, s->text, s->at, true);
        s->at += n;
        return n && !s->p->failed ? true : fail(s);
    }
    if (edit_letter(c)) {
        size_t bytes = 0;
        const word *w = s->reference ? name_here(s, &bytes) : word_here(s);
        if (!w && s->reference) return letters_of_name(s, bytes);
        if (!w) {
            value_emit(s->p, VALUE_VARIABLE, c);
            s->at++;
            return true;
        }
        s->at += strlen(w->name);
        if (w->operands && !bracketed(s, w->operands)) return false;
        value_emit(s->p, w->kind, 0);
        return true;
    }
    int32_t code = 0;
    size_t n = (unsigned char)c >= 0x80 ? wide_letter(s, &code) : 0;
    if (n == 0) return fail(s);
    value_emit(s->p, VALUE_VARIABLE, code);
    s->at += n;
    return true;
}

/* Skips the signs before an operand; true when together they are negative. */
static bool signs(parser *s)
{
    bool negative = false;
    for (; peek(s) == '-' || peek(s) == '+'; s->at++) negative ^= peek(s) == '-';
    return negative;
}

static bool power_sign(const parser *s, size_t *bytes)
{
    *bytes = peek(s) == '^'                                                                ? 1
             : peek(s) == '*' && s->at + 1 < s->text.len && s->text.data[s->at + 1] == '*' ? 2
                                                                                           : 0;
    return *bytes != 0;
}

static bool power(parser *s)
{
    size_t n;
    if (!primary(s)) return false;
    for (; peek(s) == '!'; s->at++) value_emit(s->p, VALUE_FACTORIAL, 0);
    if (!power_sign(s, &n)) return true;
    s->at += n;
    bool negative = signs(s);
    if (++s->depth > MATH_MAX_DEPTH || !power(s)) return fail(s);
    s->depth--;
    if (negative) value_emit(s->p, VALUE_NEG, 0);
    value_emit(s->p, VALUE_POW, 0);
    return true;
}

static bool operand(parser *s)
{
    bool negative = signs(s);
    if (!power(s)) return false;
    if (negative) value_emit(s->p, VALUE_NEG, 0);
    return true;
}

static bool product(parser *s)
{
    if (!operand(s)) return false;
    for (;;) {
        char c = peek(s);
        bool number_before =
            s->at > 0 && (edit_digit(s->text.data[s->at - 1]) || s->text.data[s->at - 1] == '.');
        if (c == '*' || c == '/') {
            s->at++;
            if (!operand(s)) return false;
            value_emit(s->p, c == '*' ? VALUE_MUL : VALUE_DIV, 0);
        } else if (c == '(' || edit_letter(c) || (unsigned char)c >= 0x80 ||
                   ((edit_digit(c) || c == '.') && (s->reference || !number_before))) {
            if (!power(s)) return false;
            value_emit(s->p, VALUE_MUL, 0);
        } else {
            return true;
        }
    }
}

static bool sum(parser *s)
{
    if (!product(s)) return false;
    while (peek(s) == '+' || peek(s) == '-') {
        char c = peek(s);
        s->at++;
        if (!product(s)) return false;
        value_emit(s->p, c == '+' ? VALUE_ADD : VALUE_SUB, 0);
    }
    return true;
}

void value_parse(value_program *p, ares_view text, bool reference, math_budget *budget)
{
    parser s = { .p = p, .text = text, .reference = reference, .budget = budget };
    if (text.len == 0 || text.len > MATH_MAX_BYTES || !sum(&s) || s.at != text.len)
        p->failed = true;
}
