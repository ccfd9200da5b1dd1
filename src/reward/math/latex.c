/*
 * From LaTeX to plain text, by two sets of rules: our own (target) and those of pylatexenc, which
 * published scores depend on (reference). First the table of symbols that both use.
 */
#include "math.h"

#include <gmp.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/*
 * LaTeX control words that stand for one character. true marks relations, operators and letters
 * that the target keeps too.
 */

typedef struct symbol {
    const char *name, *text;
    bool target;
} symbol;

/* Sorted by name, for bsearch. */
static const symbol table[] = {
    { "AA", "\xc3\x85", false },
    { "AE", "\xc3\x86", false },
    { "Alpha", "\xce\x91", true },
    { "Beta", "\xce\x92", true },
    { "Chi", "\xce\xa7", true },
    { "Delta", "\xce\x94", true },
    { "Epsilon", "\xce\x95", true },
    { "Eta", "\xce\x97", true },
    { "Gamma", "\xce\x93", true },
    { "Iota", "\xce\x99", true },
    { "Kappa", "\xce\x9a", true },
    { "L", "\xc5\x81", false },
    { "Lambda", "\xce\x9b", true },
    { "Leftarrow", "\xe2\x87\x90", true },
    { "Leftrightarrow", "\xe2\x87\x94", true },
    { "Mu", "\xce\x9c", true },
    { "Nu", "\xce\x9d", true },
    { "O", "\xc3\x98", false },
    { "OE", "\xc5\x92", false },
    { "Omega", "\xce\xa9", true },
    { "Omicron", "\xce\x9f", true },
    { "Phi", "\xce\xa6", true },
    { "Pi", "\xce\xa0", true },
    { "Psi", "\xce\xa8", true },
    { "Rho", "\xce\xa1", true },
    { "Rightarrow", "\xe2\x87\x92", true },
    { "Sigma", "\xce\xa3", true },
    { "Tau", "\xce\xa4", true },
    { "Theta", "\xce\x98", true },
    { "Upsilon", "\xce\xa5", true },
    { "Vert", "\xe2\x80\x96", false },
    { "Xi", "\xce\x9e", true },
    { "Zeta", "\xce\x96", true },
    { "aa", "\xc3\xa5", false },
    { "ae", "\xc3\xa6", false },
    { "aleph", "\xe2\x84\xb5", false },
    { "alpha", "\xce\xb1", true },
    { "angle", "\xe2\x88\xa0", false },
    { "approx", "\xe2\x89\x88", true },
    { "ast", "\xe2\x88\x97", true },
    { "asymp", "\xe2\x89\x8d", false },
    { "backslash", "\\", false },
    { "because", "\xe2\x88\xb5", false },
    { "beta", "\xce\xb2", true },
    { "bigcap", "\xe2\x8b\x82", false },
    { "bigcup", "\xe2\x8b\x83", false },
    { "bigoplus", "\xe2\x8a\x95", false },
    { "bigotimes", "\xe2\x8a\x97", false },
    { "blacksquare", "\xe2\x96\xaa", false },
    { "bullet", "\xe2\x88\x99", true },
    { "cap", "\xe2\x88\xa9", true },
    { "cdot", "\xc2\xb7", false },
    { "cdots", "\xe2\x8b\xaf", false },
    { "chi", "\xcf\x87", true },
    { "circ", "\xe2\x88\x98", false },
    { "complement", "\xe2\x88\x81", false },
    { "cong", "\xe2\x89\x85", true },
    { "coprod", "\xe2\x88\x90", false },
    { "cup", "\xe2\x88\xaa", true },
    { "dag", "\xe2\x80\xa0", false },
    { "dagger", "\xe2\x80\xa0", false },
    { "ddots", "\xe2\x8b\xb1", false },
    { "delta", "\xce\xb4", true },
    { "div", "\xc3\xb7", true },
    { "doteq", "\xe2\x89\x90", false },
    { "dots", "\xe2\x80\xa6", false },
    { "dotsb", "\xe2\x80\xa6", false },
    { "dotsc", "\xe2\x80\xa6", false },
    { "downarrow", "\xe2\x86\x93", false },
    { "ell", "\xe2\x84\x93", false },
    { "emptyset", "\xe2\x88\x85", true },
    { "epsilon", "\xcf\xb5", true },
    { "equiv", "\xe2\x89\xa1", true },
    { "eta", "\xce\xb7", true },
    { "exists", "\xe2\x88\x83", true },
    { "forall", "\xe2\x88\x80", true },
    { "gamma", "\xce\xb3", true },
    { "ge", "\xe2\x89\xa5", true },
    { "geq", "\xe2\x89\xa5", true },
    { "geqq", "\xe2\x89\xa7", true },
    { "geqslant", "\xe2\xa9\xbe", true },
    { "gg", "\xe2\x89\xab", true },
    { "gt", ">", true },
    { "gtrsim", "\xe2\x89\xb3", true },
    { "hbar", "\xc4\xa7", false },
    { "i", "\xc4\xb1", false },
    { "iiint", "\xe2\x88\xad", false },
    { "iint", "\xe2\x88\xac", false },
    { "in", "\xe2\x88\x88", true },
    { "infty", "\xe2\x88\x9e", true },
    { "int", "\xe2\x88\xab", true },
    { "iota", "\xce\xb9", true },
    { "j", "\xc8\xb7", false },
    { "kappa", "\xce\xba", true },
    { "l", "\xc5\x82", false },
    { "lVert", "\xe2\x80\x96", false },
    { "lambda", "\xce\xbb", true },
    { "langle", "\xe2\x9f\xa8", false },
    { "lbrace", "{", false },
    { "lceil", "\xe2\x8c\x88", false },
    { "ldots", "\xe2\x80\xa6", false },
    { "le", "\xe2\x89\xa4", true },
    { "leftarrow", "\xe2\x86\x90", true },
    { "leftrightarrow", "\xe2\x86\x94", true },
    { "leq", "\xe2\x89\xa4", true },
    { "leqq", "\xe2\x89\xa6", true },
    { "leqslant", "\xe2\xa9\xbd", true },
    { "lesssim", "\xe2\x89\xb2", true },
    { "lfloor", "\xe2\x8c\x8a", false },
    { "ll", "\xe2\x89\xaa", true },
    { "longleftarrow", "\xe2\x9f\xb5", true },
    { "longrightarrow", "\xe2\x9f\xb6", true },
    { "lt", "<", true },
    { "lvert", "|", false },
    { "mapsto", "\xe2\x86\xa6", true },
    { "measuredangle", "\xe2\x88\xa1", false },
    { "mid", "|", true },
    { "mp", "\xe2\x88\x93", true },
    { "mu", "\xce\xbc", true },
    { "nabla", "\xe2\x88\x87", true },
    { "ne", "\xe2\x89\xa0", true },
    { "nearrow", "\xe2\x86\x97", false },
    { "neq", "\xe2\x89\xa0", true },
    { "nexists", "\xe2\x88\x84", true },
    { "ngeq", "\xe2\x89\xb1", true },
    { "ngtr", "\xe2\x89\xaf", true },
    { "ni", "\xe2\x88\x8b", true },
    { "nleq", "\xe2\x89\xb0", true },
    { "nless", "\xe2\x89\xae", true },
    { "nmid", "\xe2\x88\xa4", true },
    { "notin", "\xe2\x88\x89", true },
    { "nparallel", "\xe2\x88\xa6", true },
    { "nsubseteq", "\xe2\x8a\x88", true },
    { "nsupseteq", "\xe2\x8a\x89", true },
    { "nu", "\xce\xbd", true },
    { "o", "\xc3\xb8", false },
    { "odot", "\xe2\x8a\x99", true },
    { "oe", "\xc5\x93", false },
    { "oint", "\xe2\x88\xae", false },
    { "omega", "\xcf\x89", true },
    { "omicron", "\xce\xbf", true },
    { "ominus", "\xe2\x8a\x96", true },
    { "oplus", "\xe2\x8a\x95", true },
    { "otimes", "\xe2\x8a\x97", true },
    { "parallel", "\xe2\x88\xa5", true },
    { "partial", "\xe2\x88\x82", true },
    { "perp", "\xe2\x8a\xa5", true },
    { "phi", "\xcf\x95", true },
    { "pi", "\xcf\x80", false },
    { "pm", "\xc2\xb1", true },
    { "prec", "\xe2\x89\xba", true },
    { "preceq", "\xe2\x89\xbc", true },
    { "prime", "'", false },
    { "prod", "\xe2\x88\x8f", true },
    { "propto", "\xe2\x88\x9d", true },
    { "psi", "\xcf\x88", true },
    { "rVert", "\xe2\x80\x96", false },
    { "rangle", "\xe2\x9f\xa9", false },
    { "rbrace", "}", false },
    { "rceil", "\xe2\x8c\x89", false },
    { "rfloor", "\xe2\x8c\x8b", false },
    { "rho", "\xcf\x81", true },
    { "rightangle", "\xe2\x88\x9f", false },
    { "rightarrow", "\xe2\x86\x92", true },
    { "rvert", "|", false },
    { "searrow", "\xe2\x86\x98", false },
    { "setminus", "\xe2\x88\x96", true },
    { "sigma", "\xcf\x83", true },
    { "sim", "\xe2\x88\xbc", true },
    { "simeq", "\xe2\x89\x83", true },
    { "smallsetminus", "\xe2\x88\x96", true },
    { "square", "\xe2\x96\xa1", false },
    { "ss", "\xc3\x9f", false },
    { "star", "\xe2\x8b\x86", true },
    { "subset", "\xe2\x8a\x82", true },
    { "subseteq", "\xe2\x8a\x86", true },
    { "subsetneq", "\xe2\x8a\x8a", true },
    { "succ", "\xe2\x89\xbb", true },
    { "succeq", "\xe2\x89\xbd", true },
    { "sum", "\xe2\x88\x91", true },
    { "supset", "\xe2\x8a\x83", true },
    { "supseteq", "\xe2\x8a\x87", true },
    { "supsetneq", "\xe2\x8a\x8b", true },
    { "surd", "\xe2\x88\x9a", false },
    { "tau", "\xcf\x84", true },
    { "textbackslash", "\\", false },
    { "textdegree", "\xc2\xb0", false },
    { "textdiv", "\xc3\xb7", false },
    { "textemdash", "\xe2\x80\x94", false },
    { "textendash", "\xe2\x80\x93", false },
    { "texteuro", "\xe2\x82\xac", false },
    { "textmp", "\xe2\x88\x93", false },
    { "textpm", "\xc2\xb1", false },
    { "texttimes", "\xc3\x97", false },
    { "therefore", "\xe2\x88\xb4", false },
    { "theta", "\xce\xb8", true },
    { "times", "\xc3\x97", false },
    { "to", "\xe2\x86\x92", true },
    { "top", "\xe2\x8a\xa4", false },
    { "triangleq", "\xe2\x89\x9c", false },
    { "uparrow", "\xe2\x86\x91", false },
    { "upsilon", "\xcf\x85", true },
    { "varepsilon", "\xce\xb5", true },
    { "varkappa", "\xcf\xb0", true },
    { "varnothing", "\xe2\x88\x85", true },
    { "varphi", "\xcf\x86", true },
    { "varpi", "\xcf\x96", true },
    { "varrho", "\xcf\xb1", true },
    { "varsigma", "\xcf\x82", true },
    { "vartheta", "\xcf\x91", true },
    { "vdots", "\xe2\x8b\xae", false },
    { "vee", "\xe2\x88\xa8", true },
    { "vert", "|", false },
    { "wedge", "\xe2\x88\xa7", true },
    { "xi", "\xce\xbe", true },
    { "zeta", "\xce\xb6", true },
};

static int by_name(const void *key, const void *entry)
{
    const ares_view *name = key;
    const char *other = ((const symbol *)entry)->name;
    size_t n = strlen(other); /* the name has no NUL, so strcmp cannot compare them */
    int order = memcmp(name->data, other, ARES_MIN(name->len, n));
    return order ? order : ARES_CMP(name->len, n);
}

/* The character that a control word stands for (name without backslash), or NULL. */
static const char *latex_symbol(ares_view name, math_mode mode)
{
    /* words that the original does not know */
    static const char *const newer[] = { "ne", "lt", "gt" };
    const symbol *s = bsearch(&name, table, ARES_COUNT(table), sizeof *table, by_name);
    if (!s || (mode == MATH_TARGET && !s->target)) return NULL;
    for (int i = 0; i < ARES_COUNT(newer) && mode == MATH_REFERENCE; i++)
        if (ares_view_is(name, newer[i])) return NULL;
    return s->text;
}

/*
 * LaTeX -> text, the target's way (docs/rewards.md#from-latex-to-text). One walk from left to
 * right; arguments are converted by recursion, MATH_MAX_DEPTH deep. After a failure (a missing
 * argument, a brace that never closes) the text stays unconverted.
 *
 * Unknown words vanish, but relations and operators (\cap, \subset, \mp ...) stay one character
 * each, so that A \cap B and A \setminus B are not the same answer.
 */

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

size_t latex_option_end(ares_view t, size_t i)
{
    int64_t close = i < t.len && t.data[i] == '[' ? ares_view_find(t, ARES_VIEW("]"), i) : -1;
    return close < 0 ? i : (size_t)close + 1;
}

/* Control words of two arguments. */
static bool is_fraction(ares_view name)
{
    return LATEX_IS(name, "frac", "dfrac", "tfrac", "cfrac");
}
static bool is_binomial(ares_view name)
{
    return LATEX_IS(name, "binom", "dbinom", "tbinom");
}
/* Functions whose argument needs no brackets in LaTeX. */
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
    /* \sqrt\frac12: the argument of \sqrt ends after both arguments of \frac */
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

/* ---------------- shapes of converted arguments, which decide whether they need brackets */

/* The index after the digits and points at i; i when there are none. */
static size_t skip_number(ares_view t, size_t i)
{
    while (i < t.len && (ares_is_digit(t.data[i]) || t.data[i] == '.')) i++;
    return i;
}

/* U+0340 to U+03FF in UTF-8. */
static bool greek_letter(ares_view t, size_t i)
{
    return (unsigned char)t.data[i] >= 0xcd && (unsigned char)t.data[i] <= 0xcf &&
           edit_char(t, i) == 2;
}

/* Whether only letters, Latin or Greek, stand from i on; true at the end of the text. */
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

/* Whether a text is one letter, one number, one root or pi, and so can follow a "/". */
static bool single_atom(ares_view t)
{
    bool letter = t.len && letters_only(t, 0) && edit_char(t, 0) == t.len;
    return letter || (t.len && skip_number(t, 0) == t.len) || one_root(t, 0) ||
           ares_view_is(t, "pi");
}

/* Appends the text, in brackets unless it binds as one: \frac{a+b}2 is (a+b)/2. */
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
    size_t letters = skip_number(a, a.len && a.data[0] == '-');
    add_grouped(&piece, a, letters_only(a, letters) || one_root(a, letters)); /* -2ab, 3sqrt(2) */
    edit_add_z(&piece, "/");
    add_grouped(&piece, b, single_atom(b));
    ares_view p = edit_view(&piece);
    size_t end = out->len, from, over = 0, under;
    while (over < p.len && ares_is_digit(p.data[over])) over++;
    for (under = over + 1; under < p.len && ares_is_digit(p.data[under]);) under++;
    /* digits, "/", digits, and nothing else */
    bool integers =
        over && over < p.len && p.data[over] == '/' && under == p.len && under > over + 1;
    while (end && out->data[end - 1] == ' ') end--;
    for (from = end; from && ares_is_digit(out->data[from - 1]);) from--;
    /* 2\frac12 is mixed; in 1.2\frac12 and x^2\frac12 the 2 is part of something else */
    bool number =
        from < end && (!from || (out->data[from - 1] != '.' && out->data[from - 1] != '^'));
    if (number && integers) {
        ares_view whole = { ares_arena_copy(arena, out->data + from, end - from), end - from };
        out->len = from;
        add_grouped(out, edit_join(whole, ARES_VIEW("+"), p, arena), false);
    } else edit_add(out, p);
}

/* A name after a letter needs a "*": x\sin y is x*sin(y), not the name xsin. */
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

/* Converts what follows a "^"; a degree sign (^\circ) vanishes. */
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

/* Converts the control word `name`, which ends at *i, with its arguments. */
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
    if (ares_view_is(name, "sqrt")) { /* \sqrt{x} -> sqrt(x), \sqrt[n]{x} -> root(x,n) */
        ares_view index = { NULL, 0 };
        size_t at = latex_blanks(t, *i);
        if (at < t.len && t.data[at] == '[') {
            int64_t close = ares_view_find(t, ARES_VIEW("]"), at);
            edit_out text = { .arena = r->arena };
            if (close < 0 || !convert(r, edit_cut(t, at + 1, (size_t)close), &text)) return false;
            index = edit_delete(edit_view(&text), " ", r->arena);
            *i = (size_t)close + 1;
        }
        if (!argument(r, t, i, &a)) return false;
        edit_add_z(out, index.data ? "root(" : "sqrt(");
        edit_add(out, a);
        if (index.data) {
            edit_add_z(out, ",");
            edit_add(out, index);
        }
        edit_add_z(out, ")");
        return true;
    }
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
        edit_add_z(out, next < t.len && (edit_letter(t.data[next]) || ares_is_digit(t.data[next]))
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

/* Appends the text converted; false when it cannot be, or the budget or the depth ends. */
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
            char c = name.len ? name.data[0] : 0; /* 0: a backslash at the end */
            if (edit_letter(c)) ok = word(r, name, t, &i, out);
            else if (c == '\\') edit_add_z(out, ";"); /* the end of a row */
            else if (c && strchr(",;: ", c)) edit_add_z(out, " ");
            else if (c && strchr("{}&#_|", c)) edit_add(out, edit_cut(name, 0, 1));
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

bool latex_to_text(ares_view t, math_budget *budget, ares_arena *arena, ares_view *out)
{
    static const char mark[] = "\\overline{";
    reader r = { budget, arena, 0 };
    edit_out plain = { .arena = arena }, text = { .arena = arena };
    /* first every repeating decimal: 0.1\overline{6} -> (1/6) */
    size_t done = 0;
    for (int64_t at = 0; (at = ares_view_find(t, ares_view_of(mark), (size_t)at)) >= 0; at++) {
        size_t point = (size_t)at, from, open = (size_t)at + sizeof mark - 1, close = open;
        while (point > done && ares_is_digit(t.data[point - 1])) point--;
        while (close < t.len && ares_is_digit(t.data[close])) close++;
        if (point == done || t.data[point - 1] != '.' || close == open || close == t.len ||
            t.data[close] != '}')
            continue;
        for (from = point - 1; from > done && ares_is_digit(t.data[from - 1]);) from--;
        edit_add(&plain, edit_cut(t, done, from));
        edit_add(&plain, repeating(edit_cut(t, from, point - 1), edit_cut(t, point, (size_t)at),
                                   edit_cut(t, open, close), arena));
        done = close + 1;
    }
    if (done) {
        edit_add(&plain, edit_from(t, done));
        t = edit_view(&plain);
    }
    if (!convert(&r, t, &text)) return false;
    *out = edit_view(&text);
    return true;
}

/*
 * LaTeX -> text as the original's pylatexenc 2.10 converts it, to compare scores with it: no
 * parentheses around numerators, roots without index, matrices as [a b; c d], unknown words dropped
 * (docs/rewards.md#from-latex-to-text).
 */

/* Bytes under one accent. Every character gets the mark, so nested accents double the text. */
enum { MAX_ACCENTED = 64 };

static bool reference_convert(reader *r, ares_view t, edit_out *out);
static bool control(reader *r, ares_view t, size_t *i, bool alone, edit_out *out);

/* reference_convert into a text of its own. */
static bool converted(reader *r, ares_view t, ares_view *out)
{
    edit_out text = { .arena = r->arena };
    if (!reference_convert(r, t, &text)) return false;
    *out = edit_view(&text);
    return true;
}

/*
 * Reads an argument; 1: there was one; 0: there was none; -1: it cannot be converted. A control
 * word as an argument takes no arguments of its own.
 */
static int reference_argument(reader *r, ares_view t, size_t *i, ares_view *out)
{
    edit_out text = { .arena = r->arena };
    size_t at = latex_blanks(t, *i);
    if (at >= t.len || t.data[at] == '}') return 0;
    if (t.data[at] == '\\') {
        *i = at;
        if (!control(r, t, i, true, &text)) return -1;
        *out = edit_view(&text);
        return 1;
    }
    size_t end = t.data[at] == '{' ? edit_closing_brace(t, at) : at + edit_char(t, at);
    if (!end) end = t.len + 1; /* an unclosed group goes to the end */
    *i = ARES_MIN(end, t.len);
    if (t.data[at] != '{') *out = edit_cut(t, at, end);
    else if (!converted(r, edit_cut(t, at + 1, end - 1), out)) return -1;
    return 1;
}

/* ---------------- letters with style or accent */

/*
 * Where Unicode has an alphabet's A, a and 0 (0: no digits); the letters in `at` have code points
 * elsewhere, in exceptions.
 */
typedef struct alphabet {
    const char *name;
    int32_t upper, lower, digit;
    const char *at;
    int32_t exceptions[12];
} alphabet;
static const alphabet alphabets[] = {
    { "mathbf", 0x1d400, 0x1d41a, 0x1d7ce, "", { 0 } },
    { "mathit", 0x1d434, 0x1d44e, 0, "h", { 0x210e } },
    { "mathsf", 0x1d5a0, 0x1d5ba, 0x1d7e2, "", { 0 } },
    { "mathtt", 0x1d670, 0x1d68a, 0x1d7f6, "", { 0 } },
    { "mathbb",
      0x1d538,
      0x1d552,
      0x1d7d8,
      "CHNPQRZ",
      { 0x2102, 0x210d, 0x2115, 0x2119, 0x211a, 0x211d, 0x2124 } },
    { "mathcal",
      0x1d49c,
      0x1d4b6,
      0,
      "BEFHILMRego",
      { 0x212c, 0x2130, 0x2131, 0x210b, 0x2110, 0x2112, 0x2133, 0x211b, 0x212f, 0x210a, 0x2134 } },
    { "mathscr",
      0x1d49c,
      0x1d4b6,
      0,
      "BEFHILMRego",
      { 0x212c, 0x2130, 0x2131, 0x210b, 0x2110, 0x2112, 0x2133, 0x211b, 0x212f, 0x210a, 0x2134 } },
    { "mathfrak", 0x1d504, 0x1d51e, 0, "CHIRZ", { 0x212d, 0x210c, 0x2111, 0x211c, 0x2128 } },
};

/* The combining mark that an accent's control word puts on a letter; NULL: it is no accent. */
static const char *accent(ares_view name)
{
    static const struct {
        const char *name, *mark;
    } marks[] = {
        { "vec", "\xe2\x83\x97" }, { "hat", "\xcc\x82" },   { "bar", "\xcc\x85" },
        { "dot", "\xcc\x87" },     { "tilde", "\xcc\x83" }, { "ddot", "\xcc\x88" },
        { "check", "\xcc\x8c" },   { "breve", "\xcc\x86" }, { "acute", "\xcc\x81" },
        { "grave", "\xcc\x80" },   { "not", "\xcc\xb8" },   { "^", "\xcc\x82" },
        { "~", "\xcc\x83" },       { ".", "\xcc\x87" },     { "'", "\xcc\x81" },
        { "`", "\xcc\x80" },       { "\"", "\xcc\x88" },    { "=", "\xcc\x84" },
        { "c", "\xcc\xa7" },       { "b", "\xcc\xb1" },     { "r", "\xcc\x8a" },
        { "H", "\xcc\x8b" },       { "k", "\xcc\xa8" },     { "d", "\xcc\xa3" },
        { "u", "\xcc\x86" },       { "v", "\xcc\x8c" },
    };
    for (int i = 0; i < ARES_COUNT(marks); i++)
        if (ares_view_is(name, marks[i].name)) return marks[i].mark;
    return NULL;
}

/*
 * Appends every character of the text in the style, or with the mark on it: \mathbb{R} is U+211D,
 * \hat{x} is x and U+0302. One of style and mark is NULL.
 */
static void add_dressed(ares_view t, const alphabet *style, const char *mark, edit_out *out)
{
    for (size_t i = 0, n; mark && i < t.len; i += n) {
        n = edit_char(t, i);
        ares_view both =
            edit_join(edit_cut(t, i, i + n), ares_view_of(mark), ARES_VIEW(""), out->arena);
        utf8proc_uint8_t *composed = NULL; /* one character, where Unicode has it with its mark */
        utf8proc_ssize_t size =
            utf8proc_map((const utf8proc_uint8_t *)both.data, (utf8proc_ssize_t)both.len, &composed,
                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        edit_add(out, size >= 0 ? (ares_view){ (const char *)composed, (size_t)size } : both);
        free(composed); /* utf8proc's own malloc */
    }
    for (size_t i = 0; style && i < t.len; i++) {
        char c = t.data[i];
        const char *special = c ? strchr(style->at, c) : NULL;
        int32_t point = special                            ? style->exceptions[special - style->at]
                        : c >= 'A' && c <= 'Z'             ? style->upper + (c - 'A')
                        : c >= 'a' && c <= 'z'             ? style->lower + (c - 'a')
                        : ares_is_digit(c) && style->digit ? style->digit + (c - '0')
                                                           : 0; /* stays as it is */
        utf8proc_uint8_t bytes[4] = { (utf8proc_uint8_t)c };
        edit_add(out, (ares_view){ (const char *)bytes,
                                   point ? (size_t)utf8proc_encode_char(point, bytes) : 1 });
    }
}

/* ------------------------------------------------------------------ environments */

/* Environments inside it are skipped with their own \end. */
size_t latex_environment_end(ares_view t, size_t i)
{
    for (size_t depth = 0; i < t.len; i++) {
        if (t.data[i] != '\\') continue;
        if (edit_at(t, i, "\\begin{")) depth++;
        else if (edit_at(t, i, "\\end{") && depth-- == 0) break;
        else if (i + 1 < t.len) i++; /* \\ is one sign */
    }
    return i;
}

/* Appends the body of a matrix as pylatexenc writes it: [ a b; c d ]. */
static bool convert_matrix(reader *r, ares_view t, edit_out *out)
{
    size_t from = 0, braces = 0, inner = 0;
    bool first = true;
    edit_add_z(out, "[ ");
    for (size_t i = 0; i <= t.len; i++) {
        bool end = i == t.len, row = !end && !braces && !inner && edit_at(t, i, "\\\\"),
             cell = !end && !braces && !inner && t.data[i] == '&';
        if (end || row || cell) {
            ares_view text;
            if (i > from) { /* an empty cell adds nothing */
                if (!converted(r, edit_cut(t, from, i), &text)) return false;
                if (!first) edit_add_z(out, " ");
                edit_add(out, edit_trim(text));
                first = false;
            }
            if (row) {
                edit_add_z(out, ";");
                first = false;
                i++;
            }
            from = i + 1;
        } else if (t.data[i] == '\\') {
            inner += edit_at(t, i, "\\begin{");
            inner -= inner && edit_at(t, i, "\\end{");
            i++;
        } else {
            braces += t.data[i] == '{';
            braces -= braces && t.data[i] == '}';
        }
    }
    edit_add_z(out, " ]");
    return true;
}

/* Converts \begin{name} ... \end{name}; *i stands after \begin. */
static bool environment(reader *r, ares_view t, size_t *i, edit_out *out)
{
    size_t at = latex_blanks(t, *i),
           close = at < t.len && t.data[at] == '{' ? edit_closing_brace(t, at) : 0;
    ares_view ignored;
    if (!close) return true;
    ares_view name = edit_cut(t, at + 1, close - 1);
    bool array = ares_view_is(name, "array");
    if (array) {
        size_t option = latex_blanks(t, close), after = latex_option_end(t, option);
        if (after > option) close = after;
        if (reference_argument(r, t, &close, &ignored) < 0) return false;
    }
    size_t end = latex_environment_end(t, close),
           behind = end < t.len ? edit_closing_brace(t, end) : end;
    *i = behind ? behind : t.len;
    ares_view body = edit_cut(t, close, end);
    return array || LATEX_IS(name, "pmatrix", "bmatrix", "smallmatrix", "psmallmatrix",
                             "bsmallmatrix")
               ? convert_matrix(r, body, out)
               : reference_convert(r, body, out);
}

/* ------------------------------------------------------------------ control sequences */

/* Converts a control sequence of one character that is no letter. */
static bool reference_sign(reader *r, char c, ares_view t, size_t *i, edit_out *out)
{
    ares_view inner;
    if (c == '\\') {
        if (*i < t.len && t.data[*i] == '*') (*i)++;
        edit_add_z(out, "\n");
    } else if (c == '(' || c == '[') {
        int64_t close = ares_view_find(t, c == '(' ? ARES_VIEW("\\)") : ARES_VIEW("\\]"), *i);
        size_t end = close < 0 ? t.len : (size_t)close;
        if (!converted(r, edit_cut(t, *i, end), &inner)) return false;
        if (c == '[') edit_add_z(out, "\n    ");
        edit_add(out, edit_trim(inner));
        if (c == '[') edit_add_z(out, "\n");
        *i = ARES_MIN(end + 2, t.len);
    } else if (strchr(",;: ", c)) edit_add_z(out, " ");
    else if (strchr("{}&#_$%", c)) edit_add(out, (ares_view){ &c, 1 });
    return true;
}

/* Converts the control sequence at *i. alone: it stands as an argument itself and takes none. */
static bool control(reader *r, ares_view t, size_t *i, bool alone, edit_out *out)
{
    ares_view a, b, name;
    size_t end = *i + 1;
    /* in pylatexenc, names have letters of any alphabet */
    while (end < t.len && edit_alpha(t, end)) end += edit_char(t, end);
    if (end == *i + 1) end = *i + latex_control(t, *i, &name);
    name = edit_cut(t, *i + 1, end);
    *i = end;
    if (!name.len) return true;
    if (!edit_alpha(name, 0) && !accent(name))
        return !name.data[0] || reference_sign(r, name.data[0], t, i, out);
    if (LATEX_IS(name, "frac", "nicefrac")) { /* without arguments the template itself stays */
        size_t at = *i;
        int first = alone ? 0 : reference_argument(r, t, &at, &a),
            second = first > 0 ? reference_argument(r, t, &at, &b) : first;
        if (second < 0) return false;
        if (second) *i = at;
        edit_add(out, second ? edit_join(a, ARES_VIEW("/"), b, r->arena) : ARES_VIEW("%s/%s"));
        return true;
    }
    if (ares_view_is(name, "sqrt")) {
        if (alone) return false;
        size_t option = latex_blanks(t, *i), after = latex_option_end(t, option);
        if (after > option) *i = after; /* the n of \sqrt[n]{x} is lost, as in the original */
        if (reference_argument(r, t, i, &a) <= 0) return false;
        edit_add(out, edit_join(ARES_VIEW("sqrt("), a, ARES_VIEW(")"), r->arena));
        return true;
    }
    if (ares_view_is(name, "begin")) return environment(r, t, i, out);
    if (ares_view_is(name, "end")) return reference_argument(r, t, i, &a) >= 0;
    bool dropped = LATEX_IS(name, "mbox", "texttt", "textsf", "textmd", "textup", "label", "hspace",
                            "hphantom", "vphantom", "color");
    bool content = LATEX_IS(name, "text", "textrm", "textit", "textbf", "textsc", "textsl", "emph",
                            "mathrm", "overline", "underline", "widehat", "widetilde", "overbrace",
                            "underbrace", "overrightarrow", "overleftarrow");
    if (ares_view_is(name, "textcolor") && !alone) {
        if (reference_argument(r, t, i, &a) < 0) return false;
        content = true;
    }
    const char *mark = accent(name), *symbol = latex_symbol(name, MATH_REFERENCE);
    const alphabet *style = NULL;
    for (int k = 0; k < ARES_COUNT(alphabets); k++)
        if (ares_view_is(name, alphabets[k].name)) style = &alphabets[k];
    if (dropped || content || mark || style) {
        int got = alone ? 0 : reference_argument(r, t, i, &a);
        if (got > 0 && content) edit_add(out, a);
        if (got > 0 && mark && a.len > MAX_ACCENTED) return false;
        if (got > 0) add_dressed(a, style, mark, out);
        return got >= 0;
    }
    *i = latex_blanks(t, *i);
    if (LATEX_IS(name, "cos", "sin", "tan", "arccos", "arcsin", "arctan", "cosh", "sinh", "tanh",
                 "arccosh", "arcsinh", "arctanh", "ln", "log", "exp", "max", "min", "sup", "inf",
                 "lim"))
        edit_add(out, name);
    else if (ares_view_is(name, "limsup")) edit_add_z(out, "lim sup");
    else if (ares_view_is(name, "liminf")) edit_add_z(out, "lim inf");
    else if (ares_view_is(name, "quad")) edit_add_z(out, "  ");
    else if (ares_view_is(name, "qquad")) edit_add_z(out, "    ");
    else if (ares_view_is(name, "pi")) edit_add_z(out, "pi");
    else if (symbol) edit_add_z(out, symbol);
    return true;
}

/* The reference: control sequences and ligatures are converted, the braces of groups vanish. */
static bool reference_convert(reader *r, ares_view t, edit_out *out)
{
    static const struct {
        const char *from, *to;
    } ligatures[] = {
        { "---", "\xe2\x80\x94" }, { "--", "\xe2\x80\x93" }, { "``", "\xe2\x80\x9c" },
        { "''", "\xe2\x80\x9d" },  { "~", "\xc2\xa0" },      { "&", "   " },
    };
    r->budget->steps -= (int64_t)t.len + 1;
    if (r->budget->steps < 0) r->budget->exhausted = true;
    if (r->budget->exhausted || r->depth >= MATH_MAX_DEPTH) return false;
    r->depth++;
    bool ok = true;
    for (size_t i = 0; i < t.len && ok;) {
        int k = 0;
        while (k < ARES_COUNT(ligatures) && !edit_at(t, i, ligatures[k].from)) k++;
        if (t.data[i] == '\\') ok = control(r, t, &i, false, out);
        else if (k < ARES_COUNT(ligatures)) {
            edit_add_z(out, ligatures[k].to);
            i += strlen(ligatures[k].from);
        } else {
            /* the braces of a group go, its content stays */
            if (t.data[i] != '{' && t.data[i] != '}') edit_add(out, edit_cut(t, i, i + 1));
            i++;
        }
    }
    r->depth--;
    return ok;
}

bool latex_to_text_reference(ares_view t, math_budget *budget, ares_arena *arena, ares_view *out)
{
    static const struct {
        const char *from, *to;
    } last[] = {
        { "\xe2\x88\x9a", "sqrt" }, { "\xcf\x80", "pi" }, { "\xe2\x88\x9e", "inf" },
        { "\xe2\x88\xaa", "U" },    { "\xc2\xb7", "*" },  { "\xc3\x97", "*" },
    };
    reader r = { budget, arena, 0 };
    /* the blank before \frac makes "2 1/2" of 2\frac12, which the normal form reads as mixed */
    t = edit_replace(t, "\\tfrac", "\\frac", arena);
    t = edit_replace(t, "\\dfrac", "\\frac", arena);
    t = edit_replace(t, "\\frac", " \\frac", arena);
    if (!converted(&r, t, &t)) return false;
    for (int i = 0; i < ARES_COUNT(last); i++) t = edit_replace(t, last[i].from, last[i].to, arena);
    *out = edit_trim(t);
    return true;
}
