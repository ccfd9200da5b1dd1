/* LaTeX control words that stand for one character. Those marked are relations and operators, which the target keeps too. */
#include "latex.h"

#include <stdlib.h>
#include <string.h>

typedef struct symbol { const char *name, *text; bool target; } symbol;

/* Sorted by name, for bsearch. */
static const symbol table[] = {
    { "Alpha", "\xce\x91", 1 }, { "Beta", "\xce\x92", 1 }, { "Chi", "\xce\xa7", 1 },
    { "Delta", "\xce\x94", 1 }, { "Epsilon", "\xce\x95", 1 }, { "Eta", "\xce\x97", 1 },
    { "Gamma", "\xce\x93", 1 }, { "Iota", "\xce\x99", 1 }, { "Kappa", "\xce\x9a", 1 },
    { "Lambda", "\xce\x9b", 1 }, { "Leftarrow", "\xe2\x87\x90", 1 }, { "Leftrightarrow", "\xe2\x87\x94", 1 },
    { "Mu", "\xce\x9c", 1 }, { "Nu", "\xce\x9d", 1 }, { "Omega", "\xce\xa9", 1 },
    { "Omicron", "\xce\x9f", 1 }, { "Phi", "\xce\xa6", 1 }, { "Pi", "\xce\xa0", 1 }, { "Psi", "\xce\xa8", 1 },
    { "Rho", "\xce\xa1", 1 }, { "Rightarrow", "\xe2\x87\x92", 1 }, { "Sigma", "\xce\xa3", 1 },
    { "Tau", "\xce\xa4", 1 }, { "Theta", "\xce\x98", 1 }, { "Upsilon", "\xce\xa5", 1 },
    { "Vert", "\xe2\x80\x96", 0 }, { "Xi", "\xce\x9e", 1 }, { "Zeta", "\xce\x96", 1 },
    { "aleph", "\xe2\x84\xb5", 0 }, { "alpha", "\xce\xb1", 1 }, { "angle", "\xe2\x88\xa0", 0 },
    { "approx", "\xe2\x89\x88", 1 }, { "ast", "\xe2\x88\x97", 1 }, { "asymp", "\xe2\x89\x8d", 0 },
    { "backslash", "\\", 0 }, { "because", "\xe2\x88\xb5", 0 }, { "beta", "\xce\xb2", 1 },
    { "bigcap", "\xe2\x8b\x82", 0 }, { "bigcup", "\xe2\x8b\x83", 0 }, { "bigoplus", "\xe2\x8a\x95", 0 },
    { "bigotimes", "\xe2\x8a\x97", 0 }, { "blacksquare", "\xe2\x96\xaa", 0 }, { "bullet", "\xe2\x88\x99", 1 },
    { "cap", "\xe2\x88\xa9", 1 }, { "cdot", "\xc2\xb7", 0 }, { "cdots", "\xe2\x8b\xaf", 0 },
    { "chi", "\xcf\x87", 1 }, { "circ", "\xe2\x88\x98", 0 }, { "complement", "\xe2\x88\x81", 0 },
    { "cong", "\xe2\x89\x85", 1 }, { "coprod", "\xe2\x88\x90", 0 }, { "cup", "\xe2\x88\xaa", 1 },
    { "dag", "\xe2\x80\xa0", 0 }, { "dagger", "\xe2\x80\xa0", 0 }, { "ddots", "\xe2\x8b\xb1", 0 },
    { "delta", "\xce\xb4", 1 }, { "div", "\xc3\xb7", 1 }, { "doteq", "\xe2\x89\x90", 0 },
    { "dots", "\xe2\x80\xa6", 0 }, { "dotsb", "\xe2\x80\xa6", 0 }, { "dotsc", "\xe2\x80\xa6", 0 },
    { "downarrow", "\xe2\x86\x93", 0 }, { "ell", "\xe2\x84\x93", 0 }, { "emptyset", "\xe2\x88\x85", 1 },
    { "epsilon", "\xcf\xb5", 1 }, { "equiv", "\xe2\x89\xa1", 1 }, { "eta", "\xce\xb7", 1 },
    { "exists", "\xe2\x88\x83", 1 }, { "forall", "\xe2\x88\x80", 1 }, { "gamma", "\xce\xb3", 1 },
    { "ge", "\xe2\x89\xa5", 1 }, { "geq", "\xe2\x89\xa5", 1 }, { "geqq", "\xe2\x89\xa7", 1 },
    { "geqslant", "\xe2\xa9\xbe", 1 }, { "gg", "\xe2\x89\xab", 1 }, { "gt", ">", 1 },
    { "gtrsim", "\xe2\x89\xb3", 1 }, { "hbar", "\xc4\xa7", 0 }, { "iiint", "\xe2\x88\xad", 0 },
    { "iint", "\xe2\x88\xac", 0 }, { "in", "\xe2\x88\x88", 1 }, { "infty", "\xe2\x88\x9e", 1 },
    { "int", "\xe2\x88\xab", 1 }, { "iota", "\xce\xb9", 1 }, { "kappa", "\xce\xba", 1 },
    { "lVert", "\xe2\x80\x96", 0 }, { "lambda", "\xce\xbb", 1 }, { "langle", "\xe2\x9f\xa8", 0 },
    { "lbrace", "{", 0 }, { "lceil", "\xe2\x8c\x88", 0 }, { "ldots", "\xe2\x80\xa6", 0 },
    { "le", "\xe2\x89\xa4", 1 }, { "leftarrow", "\xe2\x86\x90", 1 }, { "leftrightarrow", "\xe2\x86\x94", 1 },
    { "leq", "\xe2\x89\xa4", 1 }, { "leqq", "\xe2\x89\xa6", 1 }, { "leqslant", "\xe2\xa9\xbd", 1 },
    { "lesssim", "\xe2\x89\xb2", 1 }, { "lfloor", "\xe2\x8c\x8a", 0 }, { "ll", "\xe2\x89\xaa", 1 },
    { "longleftarrow", "\xe2\x9f\xb5", 1 }, { "longrightarrow", "\xe2\x9f\xb6", 1 }, { "lt", "<", 1 },
    { "lvert", "|", 0 }, { "mapsto", "\xe2\x86\xa6", 1 }, { "measuredangle", "\xe2\x88\xa1", 0 },
    { "mid", "|", 1 }, { "mp", "\xe2\x88\x93", 1 }, { "mu", "\xce\xbc", 1 }, { "nabla", "\xe2\x88\x87", 1 },
    { "ne", "\xe2\x89\xa0", 1 }, { "nearrow", "\xe2\x86\x97", 0 }, { "neq", "\xe2\x89\xa0", 1 },
    { "nexists", "\xe2\x88\x84", 1 }, { "ngeq", "\xe2\x89\xb1", 1 }, { "ngtr", "\xe2\x89\xaf", 1 },
    { "ni", "\xe2\x88\x8b", 1 }, { "nleq", "\xe2\x89\xb0", 1 }, { "nless", "\xe2\x89\xae", 1 },
    { "nmid", "\xe2\x88\xa4", 1 }, { "notin", "\xe2\x88\x89", 1 }, { "nparallel", "\xe2\x88\xa6", 1 },
    { "nsubseteq", "\xe2\x8a\x88", 1 }, { "nsupseteq", "\xe2\x8a\x89", 1 }, { "nu", "\xce\xbd", 1 },
    { "odot", "\xe2\x8a\x99", 1 }, { "oint", "\xe2\x88\xae", 0 }, { "omega", "\xcf\x89", 1 },
    { "omicron", "\xce\xbf", 1 }, { "ominus", "\xe2\x8a\x96", 1 }, { "oplus", "\xe2\x8a\x95", 1 },
    { "otimes", "\xe2\x8a\x97", 1 }, { "parallel", "\xe2\x88\xa5", 1 }, { "partial", "\xe2\x88\x82", 1 },
    { "perp", "\xe2\x8a\xa5", 1 }, { "phi", "\xcf\x95", 1 }, { "pi", "\xcf\x80", 0 }, { "pm", "\xc2\xb1", 1 },
    { "prec", "\xe2\x89\xba", 1 }, { "preceq", "\xe2\x89\xbc", 1 }, { "prime", "'", 0 },
    { "prod", "\xe2\x88\x8f", 1 }, { "propto", "\xe2\x88\x9d", 1 }, { "psi", "\xcf\x88", 1 },
    { "rVert", "\xe2\x80\x96", 0 }, { "rangle", "\xe2\x9f\xa9", 0 }, { "rbrace", "}", 0 },
    { "rceil", "\xe2\x8c\x89", 0 }, { "rfloor", "\xe2\x8c\x8b", 0 }, { "rho", "\xcf\x81", 1 },
    { "rightangle", "\xe2\x88\x9f", 0 }, { "rightarrow", "\xe2\x86\x92", 1 }, { "rvert", "|", 0 },
    { "searrow", "\xe2\x86\x98", 0 }, { "setminus", "\xe2\x88\x96", 1 }, { "sigma", "\xcf\x83", 1 },
    { "sim", "\xe2\x88\xbc", 1 }, { "simeq", "\xe2\x89\x83", 1 }, { "smallsetminus", "\xe2\x88\x96", 1 },
    { "square", "\xe2\x96\xa1", 0 }, { "star", "\xe2\x8b\x86", 1 }, { "subset", "\xe2\x8a\x82", 1 },
    { "subseteq", "\xe2\x8a\x86", 1 }, { "subsetneq", "\xe2\x8a\x8a", 1 }, { "succ", "\xe2\x89\xbb", 1 },
    { "succeq", "\xe2\x89\xbd", 1 }, { "sum", "\xe2\x88\x91", 1 }, { "supset", "\xe2\x8a\x83", 1 },
    { "supseteq", "\xe2\x8a\x87", 1 }, { "supsetneq", "\xe2\x8a\x8b", 1 }, { "surd", "\xe2\x88\x9a", 0 },
    { "tau", "\xcf\x84", 1 }, { "textbackslash", "\\", 0 }, { "textdegree", "\xc2\xb0", 0 },
    { "textdiv", "\xc3\xb7", 0 }, { "textemdash", "\xe2\x80\x94", 0 }, { "textendash", "\xe2\x80\x93", 0 },
    { "texteuro", "\xe2\x82\xac", 0 }, { "textmp", "\xe2\x88\x93", 0 }, { "textpm", "\xc2\xb1", 0 },
    { "texttimes", "\xc3\x97", 0 }, { "therefore", "\xe2\x88\xb4", 0 }, { "theta", "\xce\xb8", 1 },
    { "times", "\xc3\x97", 0 }, { "to", "\xe2\x86\x92", 1 }, { "top", "\xe2\x8a\xa4", 0 },
    { "triangleq", "\xe2\x89\x9c", 0 }, { "uparrow", "\xe2\x86\x91", 0 }, { "upsilon", "\xcf\x85", 1 },
    { "varepsilon", "\xce\xb5", 1 }, { "varkappa", "\xcf\xb0", 1 }, { "varnothing", "\xe2\x88\x85", 1 },
    { "varphi", "\xcf\x86", 1 }, { "varpi", "\xcf\x96", 1 }, { "varrho", "\xcf\xb1", 1 },
    { "varsigma", "\xcf\x82", 1 }, { "vartheta", "\xcf\x91", 1 }, { "vdots", "\xe2\x8b\xae", 0 },
    { "vee", "\xe2\x88\xa8", 1 }, { "vert", "|", 0 }, { "wedge", "\xe2\x88\xa7", 1 }, { "xi", "\xce\xbe", 1 },
    { "zeta", "\xce\xb6", 1 },
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
