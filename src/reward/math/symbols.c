/* LaTeX control words that stand for one character. Those marked are relations and operators, which the target keeps too. */
#include "latex.h"

#include <stdlib.h>
#include <string.h>

typedef struct symbol { const char *name, *text; bool target; } symbol;

/* Sorted by name, for bsearch. */
static const symbol table[] = {
    { "AA", "\xc3\x85", false }, { "AE", "\xc3\x86", false }, { "Alpha", "\xce\x91", true },
    { "Beta", "\xce\x92", true }, { "Chi", "\xce\xa7", true }, { "Delta", "\xce\x94", true },
    { "Epsilon", "\xce\x95", true }, { "Eta", "\xce\x97", true }, { "Gamma", "\xce\x93", true },
    { "Iota", "\xce\x99", true }, { "Kappa", "\xce\x9a", true }, { "L", "\xc5\x81", false },
    { "Lambda", "\xce\x9b", true }, { "Leftarrow", "\xe2\x87\x90", true },
    { "Leftrightarrow", "\xe2\x87\x94", true }, { "Mu", "\xce\x9c", true }, { "Nu", "\xce\x9d", true },
    { "O", "\xc3\x98", false }, { "OE", "\xc5\x92", false }, { "Omega", "\xce\xa9", true },
    { "Omicron", "\xce\x9f", true }, { "Phi", "\xce\xa6", true }, { "Pi", "\xce\xa0", true },
    { "Psi", "\xce\xa8", true }, { "Rho", "\xce\xa1", true }, { "Rightarrow", "\xe2\x87\x92", true },
    { "Sigma", "\xce\xa3", true }, { "Tau", "\xce\xa4", true }, { "Theta", "\xce\x98", true },
    { "Upsilon", "\xce\xa5", true }, { "Vert", "\xe2\x80\x96", false }, { "Xi", "\xce\x9e", true },
    { "Zeta", "\xce\x96", true }, { "aa", "\xc3\xa5", false }, { "ae", "\xc3\xa6", false },
    { "aleph", "\xe2\x84\xb5", false }, { "alpha", "\xce\xb1", true }, { "angle", "\xe2\x88\xa0", false },
    { "approx", "\xe2\x89\x88", true }, { "ast", "\xe2\x88\x97", true }, { "asymp", "\xe2\x89\x8d", false },
    { "backslash", "\\", false }, { "because", "\xe2\x88\xb5", false }, { "beta", "\xce\xb2", true },
    { "bigcap", "\xe2\x8b\x82", false }, { "bigcup", "\xe2\x8b\x83", false },
    { "bigoplus", "\xe2\x8a\x95", false }, { "bigotimes", "\xe2\x8a\x97", false },
    { "blacksquare", "\xe2\x96\xaa", false }, { "bullet", "\xe2\x88\x99", true },
    { "cap", "\xe2\x88\xa9", true }, { "cdot", "\xc2\xb7", false }, { "cdots", "\xe2\x8b\xaf", false },
    { "chi", "\xcf\x87", true }, { "circ", "\xe2\x88\x98", false }, { "complement", "\xe2\x88\x81", false },
    { "cong", "\xe2\x89\x85", true }, { "coprod", "\xe2\x88\x90", false }, { "cup", "\xe2\x88\xaa", true },
    { "dag", "\xe2\x80\xa0", false }, { "dagger", "\xe2\x80\xa0", false }, { "ddots", "\xe2\x8b\xb1", false },
    { "delta", "\xce\xb4", true }, { "div", "\xc3\xb7", true }, { "doteq", "\xe2\x89\x90", false },
    { "dots", "\xe2\x80\xa6", false }, { "dotsb", "\xe2\x80\xa6", false }, { "dotsc", "\xe2\x80\xa6", false },
    { "downarrow", "\xe2\x86\x93", false }, { "ell", "\xe2\x84\x93", false },
    { "emptyset", "\xe2\x88\x85", true }, { "epsilon", "\xcf\xb5", true }, { "equiv", "\xe2\x89\xa1", true },
    { "eta", "\xce\xb7", true }, { "exists", "\xe2\x88\x83", true }, { "forall", "\xe2\x88\x80", true },
    { "gamma", "\xce\xb3", true }, { "ge", "\xe2\x89\xa5", true }, { "geq", "\xe2\x89\xa5", true },
    { "geqq", "\xe2\x89\xa7", true }, { "geqslant", "\xe2\xa9\xbe", true }, { "gg", "\xe2\x89\xab", true },
    { "gt", ">", true }, { "gtrsim", "\xe2\x89\xb3", true }, { "hbar", "\xc4\xa7", false },
    { "i", "\xc4\xb1", false }, { "iiint", "\xe2\x88\xad", false }, { "iint", "\xe2\x88\xac", false },
    { "in", "\xe2\x88\x88", true }, { "infty", "\xe2\x88\x9e", true }, { "int", "\xe2\x88\xab", true },
    { "iota", "\xce\xb9", true }, { "j", "\xc8\xb7", false }, { "kappa", "\xce\xba", true },
    { "l", "\xc5\x82", false }, { "lVert", "\xe2\x80\x96", false }, { "lambda", "\xce\xbb", true },
    { "langle", "\xe2\x9f\xa8", false }, { "lbrace", "{", false }, { "lceil", "\xe2\x8c\x88", false },
    { "ldots", "\xe2\x80\xa6", false }, { "le", "\xe2\x89\xa4", true }, { "leftarrow", "\xe2\x86\x90", true },
    { "leftrightarrow", "\xe2\x86\x94", true }, { "leq", "\xe2\x89\xa4", true },
    { "leqq", "\xe2\x89\xa6", true }, { "leqslant", "\xe2\xa9\xbd", true },
    { "lesssim", "\xe2\x89\xb2", true }, { "lfloor", "\xe2\x8c\x8a", false }, { "ll", "\xe2\x89\xaa", true },
    { "longleftarrow", "\xe2\x9f\xb5", true }, { "longrightarrow", "\xe2\x9f\xb6", true },
    { "lt", "<", true }, { "lvert", "|", false }, { "mapsto", "\xe2\x86\xa6", true },
    { "measuredangle", "\xe2\x88\xa1", false }, { "mid", "|", true }, { "mp", "\xe2\x88\x93", true },
    { "mu", "\xce\xbc", true }, { "nabla", "\xe2\x88\x87", true }, { "ne", "\xe2\x89\xa0", true },
    { "nearrow", "\xe2\x86\x97", false }, { "neq", "\xe2\x89\xa0", true },
    { "nexists", "\xe2\x88\x84", true }, { "ngeq", "\xe2\x89\xb1", true }, { "ngtr", "\xe2\x89\xaf", true },
    { "ni", "\xe2\x88\x8b", true }, { "nleq", "\xe2\x89\xb0", true }, { "nless", "\xe2\x89\xae", true },
    { "nmid", "\xe2\x88\xa4", true }, { "notin", "\xe2\x88\x89", true },
    { "nparallel", "\xe2\x88\xa6", true }, { "nsubseteq", "\xe2\x8a\x88", true },
    { "nsupseteq", "\xe2\x8a\x89", true }, { "nu", "\xce\xbd", true }, { "o", "\xc3\xb8", false },
    { "odot", "\xe2\x8a\x99", true }, { "oe", "\xc5\x93", false }, { "oint", "\xe2\x88\xae", false },
    { "omega", "\xcf\x89", true }, { "omicron", "\xce\xbf", true }, { "ominus", "\xe2\x8a\x96", true },
    { "oplus", "\xe2\x8a\x95", true }, { "otimes", "\xe2\x8a\x97", true },
    { "parallel", "\xe2\x88\xa5", true }, { "partial", "\xe2\x88\x82", true },
    { "perp", "\xe2\x8a\xa5", true }, { "phi", "\xcf\x95", true }, { "pi", "\xcf\x80", false },
    { "pm", "\xc2\xb1", true }, { "prec", "\xe2\x89\xba", true }, { "preceq", "\xe2\x89\xbc", true },
    { "prime", "'", false }, { "prod", "\xe2\x88\x8f", true }, { "propto", "\xe2\x88\x9d", true },
    { "psi", "\xcf\x88", true }, { "rVert", "\xe2\x80\x96", false }, { "rangle", "\xe2\x9f\xa9", false },
    { "rbrace", "}", false }, { "rceil", "\xe2\x8c\x89", false }, { "rfloor", "\xe2\x8c\x8b", false },
    { "rho", "\xcf\x81", true }, { "rightangle", "\xe2\x88\x9f", false },
    { "rightarrow", "\xe2\x86\x92", true }, { "rvert", "|", false }, { "searrow", "\xe2\x86\x98", false },
    { "setminus", "\xe2\x88\x96", true }, { "sigma", "\xcf\x83", true }, { "sim", "\xe2\x88\xbc", true },
    { "simeq", "\xe2\x89\x83", true }, { "smallsetminus", "\xe2\x88\x96", true },
    { "square", "\xe2\x96\xa1", false }, { "ss", "\xc3\x9f", false }, { "star", "\xe2\x8b\x86", true },
    { "subset", "\xe2\x8a\x82", true }, { "subseteq", "\xe2\x8a\x86", true },
    { "subsetneq", "\xe2\x8a\x8a", true }, { "succ", "\xe2\x89\xbb", true },
    { "succeq", "\xe2\x89\xbd", true }, { "sum", "\xe2\x88\x91", true }, { "supset", "\xe2\x8a\x83", true },
    { "supseteq", "\xe2\x8a\x87", true }, { "supsetneq", "\xe2\x8a\x8b", true },
    { "surd", "\xe2\x88\x9a", false }, { "tau", "\xcf\x84", true }, { "textbackslash", "\\", false },
    { "textdegree", "\xc2\xb0", false }, { "textdiv", "\xc3\xb7", false },
    { "textemdash", "\xe2\x80\x94", false }, { "textendash", "\xe2\x80\x93", false },
    { "texteuro", "\xe2\x82\xac", false }, { "textmp", "\xe2\x88\x93", false },
    { "textpm", "\xc2\xb1", false }, { "texttimes", "\xc3\x97", false },
    { "therefore", "\xe2\x88\xb4", false }, { "theta", "\xce\xb8", true }, { "times", "\xc3\x97", false },
    { "to", "\xe2\x86\x92", true }, { "top", "\xe2\x8a\xa4", false }, { "triangleq", "\xe2\x89\x9c", false },
    { "uparrow", "\xe2\x86\x91", false }, { "upsilon", "\xcf\x85", true }, { "varepsilon", "\xce\xb5", true },
    { "varkappa", "\xcf\xb0", true }, { "varnothing", "\xe2\x88\x85", true }, { "varphi", "\xcf\x86", true },
    { "varpi", "\xcf\x96", true }, { "varrho", "\xcf\xb1", true }, { "varsigma", "\xcf\x82", true },
    { "vartheta", "\xcf\x91", true }, { "vdots", "\xe2\x8b\xae", false }, { "vee", "\xe2\x88\xa8", true },
    { "vert", "|", false }, { "wedge", "\xe2\x88\xa7", true }, { "xi", "\xce\xbe", true },
    { "zeta", "\xce\xb6", true },
};

static int by_name(const void *key, const void *entry)
{
    const ares_view *name = key;
    const char *other = ((const symbol *)entry)->name;
    size_t n = strlen(other);
    int order = memcmp(name->data, other, ARES_MIN(name->len, n));
    return order ? order : (name->len > n) - (name->len < n);
}

const char *latex_symbol(ares_view name, math_mode mode)
{
    static const char *const newer[] = { "ne", "lt", "gt" }; /* words the original does not know */
    const symbol *s = bsearch(&name, table, ARES_COUNT(table), sizeof *table, by_name);
    if (!s || (mode == MATH_TARGET && !s->target)) return NULL;
    for (int i = 0; i < ARES_COUNT(newer) && mode == MATH_REFERENCE; i++)
        if (ares_view_is(name, newer[i])) return NULL;
    return s->text;
}
