/*
 * LaTeX -> text, the target's way (docs/rewards.md#from-latex-to-text). One walk from left to
 * right; arguments are converted by recursion, MATH_MAX_DEPTH deep. After a failure (a missing
 * argument, a brace that never closes) the text stays unconverted.
 *
 * Unknown words vanish, but relations and operators (\cap, \subset, \mp ...) stay one character
 * each, so that A \cap B and A \setminus B are not the same answer.
 */
#include "latex.h"

#include <gmp.h>
#include <string.h>

typedef struct reader {
    math_budget *budget;
    ares_arena *arena;
    int depth;
} reader;

static bool convert(reader *r, ares_view t, edit_out *out);

bool latex_is(ares_view name, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (ares_view_is(name, words[i])) return true;
    return false;
}
size_t latex_control(ares_view t, size_t i, ares_view *name)
{
    size_t end = i + 1;
    while (end < t.len && edit_letter(t.data[end])) end++;
    if (end == i + 1 && end < t.len) end += edit_char(t, end);
    *name = edit_cut(t, i + 1, end);
    return end - i;
}

static bool is_fraction(ares_view name)
{
    return LATEX_IS(name, "frac", "dfrac", "tfrac", "cfrac");
}
static bool is_binomial(ares_view name)
{
    return LATEX_IS(name, "binom", "dbinom", "tbinom");
}
static bool is_function(ares_view name)
{
    return LATEX_IS(name, "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan",
                    "ln", "log", "exp");
}

/*
 * The index after the argument at i: a brace group, a control word with its own arguments, or a
 * character; 0 when there is none.
 */
static size_t argument_end(ares_view t, size_t i, int depth)
{
    ares_view name;
    if (i >= t.len || t.data[i] == '}' || depth > MATH_MAX_DEPTH) return 0;
    if (t.data[i] == '{') return edit_closing_brace(t, i);
    if (t.data[i] != '\\') return i + edit_char(t, i);
    i += latex_control(t, i, &name);
    int arguments = is_fraction(name) || is_binomial(name) ? 2 : ares_view_is(name, "sqrt");
    for (int k = 0; k < arguments && i; k++) {
        size_t at = latex_blanks(t, i);
        if (ares_view_is(name, "sqrt") && at < t.len && t.data[at] == '[') {
            int64_t close = ares_view_find(t, ARES_VIEW("]"), at);
            if (close < 0) return 0;
            at = latex_blanks(t, (size_t)close + 1);
        }
        i = argument_end(t, at, depth + 1);
    }
    return i;
}

/* Converts the argument at *i (blanks skipped) and removes its blanks. */
static bool argument(reader *r, ares_view t, size_t *i, ares_view *out)
{
    edit_out text = { .arena = r->arena };
    size_t at = latex_blanks(t, *i), end = argument_end(t, at, r->depth);
    if (!end) return false;
    *i = end;
    if (!convert(r, t.data[at] == '{' ? edit_cut(t, at + 1, end - 1) : edit_cut(t, at, end), &text))
        return false;
    *out = edit_delete(edit_view(&text), " ", r->arena);
    return true;
}

/* ---------------- shapes of converted arguments */

static size_t skip_number(ares_view t, size_t i)
{
    while (i < t.len && (edit_digit(t.data[i]) || t.data[i] == '.')) i++;
    return i;
}

static bool greek_letter(ares_view t, size_t i)
{
    return (unsigned char)t.data[i] >= 0xcd && (unsigned char)t.data[i] <= 0xcf &&
           edit_char(t, i) == 2;
}

static bool letters_only(ares_view t, size_t i)
{
    for (; i < t.len; i += greek_letter(t, i) ? 2 : 1)
        if (!edit_letter(t.data[i]) && !greek_letter(t, i)) return false;
    return true;
}

/* Whether sqrt(...) reaches from i to the end, with its bracket closed there and not before. */
static bool one_root(ares_view t, size_t i)
{
    if (!edit_at(t, i, "sqrt(")) return false;
    size_t depth = 0;
    for (i += 4; i < t.len; i++) {
        depth += t.data[i] == '(';
        if (t.data[i] == ')' && --depth == 0) break;
    }
    return i + 1 == t.len;
}

static bool single_factor(ares_view t)
{
    size_t i = skip_number(t, t.len && t.data[0] == '-');
    return letters_only(t, i) || one_root(t, i);
}

static bool single_atom(ares_view t)
{
    bool letter = t.len && letters_only(t, 0) && edit_char(t, 0) == t.len;
    return letter || (t.len && skip_number(t, 0) == t.len) || one_root(t, 0) ||
           ares_view_is(t, "pi");
}

static bool integers_over(ares_view t)
{
    size_t i = 0, from;
    while (i < t.len && edit_digit(t.data[i])) i++;
    if (!i || i == t.len || t.data[i] != '/') return false;
    for (from = ++i; i < t.len && edit_digit(t.data[i]);) i++;
    return i == t.len && i > from;
}

static void add_grouped(edit_out *out, ares_view t, bool bare)
{
    if (!bare) edit_add_z(out, "(");
    edit_add(out, t);
    if (!bare) edit_add_z(out, ")");
}

/* ------------------------------------------------------------------ pieces */

/*
 * Appends a fraction. After an integer it makes a mixed number, whose sign is that of the integer.
 */
static void add_fraction(edit_out *out, ares_view a, ares_view b, ares_arena *arena)
{
    edit_out piece = { .arena = arena };
    add_grouped(&piece, a, single_factor(a));
    edit_add_z(&piece, "/");
    add_grouped(&piece, b, single_atom(b));
    size_t end = out->len, from;
    while (end && out->data[end - 1] == ' ') end--;
    for (from = end; from && edit_digit(out->data[from - 1]);) from--;
    bool number =
        from < end && (!from || (out->data[from - 1] != '.' && out->data[from - 1] != '^'));
    if (number && integers_over(edit_view(&piece))) {
        ares_view whole = { ares_arena_copy(arena, out->data + from, end - from), end - from };
        out->len = from;
        add_grouped(out, edit_join(whole, ARES_VIEW("+"), edit_view(&piece), arena), false);
    } else edit_add(out, edit_view(&piece));
}

static bool root(reader *r, ares_view t, size_t *i, edit_out *out)
{
    ares_view index = { NULL, 0 }, x;
    size_t at = latex_blanks(t, *i);
    if (at < t.len && t.data[at] == '[') {
        int64_t close = ares_view_find(t, ARES_VIEW("]"), at);
        edit_out text = { .arena = r->arena };
        if (close < 0 || !convert(r, edit_cut(t, at + 1, (size_t)close), &text)) return false;
        index = edit_delete(edit_view(&text), " ", r->arena);
        *i = (size_t)close + 1;
    }
    if (!argument(r, t, i, &x)) return false;
    edit_add_z(out, index.data ? "root(" : "sqrt(");
    edit_add(out, x);
    if (index.data) {
        edit_add_z(out, ",");
        edit_add(out, index);
    }
    edit_add_z(out, ")");
    return true;
}

static bool ends_in_letter(const edit_out *out)
{
    return out->len && edit_letter(out->data[out->len - 1]);
}

/* sin x, sin{x}, sin(x), sin 2x: puts the argument into brackets. */
static bool function(reader *r, ares_view name, ares_view t, size_t *i, edit_out *out)
{
    size_t at = latex_blanks(t, *i), end;
    ares_view x, word;
    if (edit_at(t, at, "\\left")) at = latex_blanks(t, at + 5);
    if (ends_in_letter(out)) edit_add_z(out, "*");
    edit_add(out, name);
    if (at < t.len && t.data[at] == '(') {
        *i = at;
        return true;
    }
    end = skip_number(t, at);
    if (at < t.len && t.data[at] == '\\') {
        latex_control(t, at, &word);
        if (is_function(word) || !edit_letter(word.len ? word.data[0] : 0)) return true;
        *i = at;
        if (!argument(r, t, i, &x)) return false;
    } else if (at < t.len && t.data[at] == '{') {
        *i = at;
        if (!argument(r, t, i, &x)) return false;
    } else {
        if (end < t.len && edit_letter(t.data[end])) end++;
        if (end == at) return true; /* \log_2, \sin^2: the name alone */
        x = edit_cut(t, at, end);
        *i = end;
    }
    add_grouped(out, x, false);
    return true;
}

static bool power(reader *r, ares_view t, size_t *i, edit_out *out)
{
    ares_view x;
    size_t at = latex_blanks(t, *i);
    /* plain text's own spelling: x^-1, x^(n+1) */
    if (at < t.len && t.data[at] != '{' && t.data[at] != '\\') {
        edit_add_z(out, "^");
        *i = at;
        return true;
    }
    if (edit_at(t, at, "\\circ") && !(at + 5 < t.len && edit_letter(t.data[at + 5]))) {
        *i = latex_blanks(t, at + 5);
        return true;
    }
    if (!argument(r, t, i, &x)) return false;
    edit_add_z(out, "^");
    ares_view unsigned_x = x.len && x.data[0] == '-' ? edit_from(x, 1) : x;
    add_grouped(out, x, single_atom(unsigned_x) && !one_root(unsigned_x, 0));
    return true;
}

static bool word(reader *r, ares_view name, ares_view t, size_t *i, edit_out *out)
{
    ares_view a, b;
    if (is_fraction(name) || is_binomial(name)) {
        if (!argument(r, t, i, &a) || !argument(r, t, i, &b)) return false;
        if (is_fraction(name)) add_fraction(out, a, b, r->arena);
        else
            edit_add(out, edit_join(edit_join(ARES_VIEW("binomial("), a, ARES_VIEW(","), r->arena),
                                    b, ARES_VIEW(")"), r->arena));
        return true;
    }
    if (ares_view_is(name, "sqrt")) return root(r, t, i, out);
    if (is_function(name)) return function(r, name, t, i, out);
    size_t next = latex_blanks(t, *i);
    if (LATEX_IS(name, "text", "mathrm", "textbf", "mathbf", "textit", "mathit", "mbox",
                 "operatorname", "overline", "boxed", "textrm") &&
        next < t.len && t.data[next] == '{') {
        size_t end = edit_closing_brace(t, next);
        edit_out inner = { .arena = r->arena };
        if (!end || !convert(r, edit_cut(t, next + 1, end - 1), &inner)) return false;
        edit_add(out, edit_view(&inner));
        *i = end;
        return true;
    }
    *i = next; /* as in TeX, a control word takes the blanks after it */
    if (ares_view_is(name, "pi")) {
        if (ends_in_letter(out)) edit_add_z(out, "*");
        edit_add_z(out, next < t.len && (edit_letter(t.data[next]) || edit_digit(t.data[next]))
                            ? "pi*"
                            : "pi");
    } else if (LATEX_IS(name, "cdot", "times")) edit_add_z(out, "*");
    else if (ares_view_is(name, "infty")) edit_add_z(out, "inf");
    else if (ares_view_is(name, "cup")) edit_add_z(out, "u");
    else if (LATEX_IS(name, "quad", "qquad")) edit_add_z(out, " ");
    else if (LATEX_IS(name, "leqslant", "geqslant"))
        edit_add_z(out, name.data[0] == 'l' ? "\xe2\x89\xa4" : "\xe2\x89\xa5");
    else if (latex_symbol(name, MATH_TARGET)) edit_add_z(out, latex_symbol(name, MATH_TARGET));
    return true;
}

static void sign(char c, edit_out *out)
{
    if (c == '{') edit_add_z(out, "{");
    else if (c == '}') edit_add_z(out, "}");
    else if (strchr(",;: ", c)) edit_add_z(out, " ");
    else if (c == '\\') edit_add_z(out, ";");
    else if (strchr("&#_|", c)) edit_add(out, (ares_view){ &c, 1 });
}

static bool convert(reader *r, ares_view t, edit_out *out)
{
    r->budget->steps -= (int64_t)t.len + 1;
    if (r->budget->steps < 0) r->budget->exhausted = true;
    if (r->budget->exhausted || r->depth >= MATH_MAX_DEPTH) return false;
    r->depth++;
    bool ok = true;
    for (size_t i = 0; i < t.len && ok;) {
        ares_view name;
        if (t.data[i] == '^') {
            i++;
            ok = power(r, t, &i, out);
        } else if (t.data[i] == '\\') {
            i += latex_control(t, i, &name);
            if (!name.len) ok = true; /* a backslash at the end */
            else if (edit_letter(name.data[0])) ok = word(r, name, t, &i, out);
            else if (name.data[0]) sign(name.data[0], out);
        } else {
            edit_add(out, edit_cut(t, i, i + 1));
            i++;
        }
    }
    r->depth--;
    return ok;
}

/* ------------------------------------------------------------------ repeating decimals */

/*
 * 1.2\overline{34} as a fraction: all digits as one number, less the digits before the period, over
 * as many nines as the period has digits and as many zeros as decimals stand before it.
 */
static ares_view repeating(ares_view whole, ares_view before, ares_view period, ares_arena *arena)
{
    mpz_t p, q, other;
    mpz_inits(p, q, other, NULL);
    ares_view head = edit_join(ARES_VIEW("0"), whole, before, arena),
              all = edit_join(head, period, ARES_VIEW(""), arena);
    mpz_set_str(p, ares_arena_copy(arena, all.data, all.len), 10);
    mpz_set_str(other, ares_arena_copy(arena, head.data, head.len), 10);
    mpz_sub(p, p, other);
    mpz_ui_pow_ui(q, 10, (unsigned long)period.len);
    mpz_sub_ui(q, q, 1);
    mpz_ui_pow_ui(other, 10, (unsigned long)before.len);
    mpz_mul(q, q, other);
    mpz_gcd(other, p, q);
    mpz_divexact(p, p, other);
    mpz_divexact(q, q, other);
    bool integer = mpz_cmp_ui(q, 1) == 0;
    char *a = ares_arena_alloc(arena, mpz_sizeinbase(p, 10) + 2),
         *b = ares_arena_alloc(arena, mpz_sizeinbase(q, 10) + 2);
    mpz_get_str(a, 10, p);
    mpz_get_str(b, 10, q);
    mpz_clears(p, q, other, NULL);
    return ares_view_of(integer ? a : ares_arena_printf(arena, "(%s/%s)", a, b));
}

static ares_view rewrite_repeating(ares_view t, ares_arena *arena)
{
    static const char mark[] = "\\overline{";
    edit_out out = { .arena = arena };
    size_t done = 0;
    for (int64_t at = 0; (at = ares_view_find(t, ares_view_of(mark), (size_t)at)) >= 0; at++) {
        size_t point = (size_t)at, from, open = (size_t)at + sizeof mark - 1, close = open;
        while (point > done && edit_digit(t.data[point - 1])) point--;
        while (close < t.len && edit_digit(t.data[close])) close++;
        if (point == done || t.data[point - 1] != '.' || close == open || close == t.len ||
            t.data[close] != '}')
            continue;
        for (from = point - 1; from > done && edit_digit(t.data[from - 1]);) from--;
        edit_add(&out, edit_cut(t, done, from));
        edit_add(&out, repeating(edit_cut(t, from, point - 1), edit_cut(t, point, (size_t)at),
                                 edit_cut(t, open, close), arena));
        done = close + 1;
    }
    if (!done) return t;
    edit_add(&out, edit_from(t, done));
    return edit_view(&out);
}

bool latex_to_text(ares_view t, math_budget *budget, ares_arena *arena, ares_view *out)
{
    reader r = { budget, arena, 0 };
    edit_out text = { .arena = arena };
    if (!convert(&r, rewrite_repeating(t, arena), &text)) return false;
    *out = edit_view(&text);
    return true;
}
