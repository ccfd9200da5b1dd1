/*
 * LaTeX -> text as the original's pylatexenc 2.10 converts it, to compare scores with it: no
 * parentheses around numerators, roots without index, matrices as [a b; c d], unknown words dropped
 * (docs/rewards.md#from-latex-to-text).
 */
#include "latex.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/*
 * bytes under one accent: every character gets the mark, so accents within accents double the text
 */
enum { MAX_ACCENTED = 64 };

typedef struct reader {
    math_budget *budget;
    ares_arena *arena;
    int depth;
} reader;

static bool convert(reader *r, ares_view t, edit_out *out);
static bool control(reader *r, ares_view t, size_t *i, bool alone, edit_out *out);

static bool converted(reader *r, ares_view t, ares_view *out)
{
    edit_out text = { .arena = r->arena };
    if (!convert(r, t, &text)) return false;
    *out = edit_view(&text);
    return true;
}

/*
 * Reads an argument; 1: there was one; 0: there was none; -1: it cannot be converted. A control
 * word as an argument takes no arguments of its own.
 */
static int argument(reader *r, ares_view t, size_t *i, ares_view *out)
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

static void skip_option(ares_view t, size_t *i)
{
    size_t at = latex_blanks(t, *i);
    int64_t close = at < t.len && t.data[at] == '[' ? ares_view_find(t, ARES_VIEW("]"), at) : -1;
    if (close >= 0) *i = (size_t)close + 1;
}

/* ---------------- letters with style or accent */

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

static void add_styled(const alphabet *s, ares_view t, edit_out *out)
{
    for (size_t i = 0; i < t.len; i++) {
        char c = t.data[i];
        const char *special = c ? strchr(s->at, c) : NULL;
        int32_t point = special                     ? s->exceptions[special - s->at]
                        : c >= 'A' && c <= 'Z'      ? s->upper + (c - 'A')
                        : c >= 'a' && c <= 'z'      ? s->lower + (c - 'a')
                        : edit_digit(c) && s->digit ? s->digit + (c - '0')
                                                    : 0;
        utf8proc_uint8_t bytes[4] = { (utf8proc_uint8_t)c };
        edit_add(out, (ares_view){ (const char *)bytes,
                                   point ? (size_t)utf8proc_encode_char(point, bytes) : 1 });
    }
}

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
 * Appends every character of the argument with the mark, composed where Unicode has the letter with
 * its mark.
 */
static void add_accented(ares_view t, const char *mark, edit_out *out)
{
    for (size_t i = 0, n; i < t.len; i += n) {
        n = edit_char(t, i);
        ares_view both =
            edit_join(edit_cut(t, i, i + n), ares_view_of(mark), ARES_VIEW(""), out->arena);
        utf8proc_uint8_t *composed = NULL;
        utf8proc_ssize_t size =
            utf8proc_map((const utf8proc_uint8_t *)both.data, (utf8proc_ssize_t)both.len, &composed,
                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        edit_add(out, size >= 0 ? (ares_view){ (const char *)composed, (size_t)size } : both);
        free(composed); /* utf8proc's own malloc */
    }
}

/* ------------------------------------------------------------------ environments */

/*
 * The index of the \end of the environment whose body begins at i; the end of the text when there
 * is none.
 */
static size_t body_end(ares_view t, size_t i)
{
    for (size_t depth = 0; i < t.len; i++) {
        if (t.data[i] != '\\') continue;
        if (edit_at(t, i, "\\begin{")) depth++;
        else if (edit_at(t, i, "\\end{") && depth-- == 0) break;
        else if (i + 1 < t.len) i++;
    }
    return ARES_MIN(i, t.len);
}

static bool matrix(reader *r, ares_view t, edit_out *out)
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

static bool environment(reader *r, ares_view t, size_t *i, edit_out *out)
{
    size_t at = latex_blanks(t, *i),
           close = at < t.len && t.data[at] == '{' ? edit_closing_brace(t, at) : 0;
    ares_view ignored;
    if (!close) return true;
    ares_view name = edit_cut(t, at + 1, close - 1);
    bool array = ares_view_is(name, "array");
    if (array) {
        skip_option(t, &close);
        if (argument(r, t, &close, &ignored) < 0) return false;
    }
    size_t end = body_end(t, close), behind = end < t.len ? edit_closing_brace(t, end) : end;
    *i = behind ? behind : t.len;
    ares_view body = edit_cut(t, close, end);
    return array || LATEX_IS(name, "pmatrix", "bmatrix", "smallmatrix", "psmallmatrix",
                             "bsmallmatrix")
               ? matrix(r, body, out)
               : convert(r, body, out);
}

/* ------------------------------------------------------------------ control sequences */

static bool sign(reader *r, char c, ares_view t, size_t *i, edit_out *out)
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

/* Names have letters of any alphabet in pylatexenc. */
static ares_view control_name(ares_view t, size_t *i)
{
    ares_view name;
    size_t end = *i + 1;
    while (end < t.len && edit_alpha(t, end)) end += edit_char(t, end);
    if (end == *i + 1) end = *i + latex_control(t, *i, &name);
    name = edit_cut(t, *i + 1, end);
    *i = end;
    return name;
}

/* Converts the control sequence at *i. alone: it stands as an argument itself and takes none. */
static bool control(reader *r, ares_view t, size_t *i, bool alone, edit_out *out)
{
    ares_view a, b, name = control_name(t, i);
    if (!name.len) return true;
    if (!edit_alpha(name, 0) && !accent(name))
        return !name.data[0] || sign(r, name.data[0], t, i, out);
    if (LATEX_IS(name, "frac", "nicefrac")) {
        size_t at = *i;
        int first = alone ? 0 : argument(r, t, &at, &a),
            second = first > 0 ? argument(r, t, &at, &b) : first;
        if (second < 0) return false;
        if (second) *i = at;
        edit_add(out, second ? edit_join(a, ARES_VIEW("/"), b, r->arena) : ARES_VIEW("%s/%s"));
        return true;
    }
    if (ares_view_is(name, "sqrt")) {
        if (alone) return false;
        skip_option(t, i);
        if (argument(r, t, i, &a) <= 0) return false;
        edit_add(out, edit_join(ARES_VIEW("sqrt("), a, ARES_VIEW(")"), r->arena));
        return true;
    }
    if (ares_view_is(name, "begin")) return environment(r, t, i, out);
    if (ares_view_is(name, "end")) return argument(r, t, i, &a) >= 0;
    bool dropped = LATEX_IS(name, "mbox", "texttt", "textsf", "textmd", "textup", "label", "hspace",
                            "hphantom", "vphantom", "color");
    bool content = LATEX_IS(name, "text", "textrm", "textit", "textbf", "textsc", "textsl", "emph",
                            "mathrm", "overline", "underline", "widehat", "widetilde", "overbrace",
                            "underbrace", "overrightarrow", "overleftarrow");
    if (ares_view_is(name, "textcolor") && !alone) {
        if (argument(r, t, i, &a) < 0) return false;
        content = true;
    }
    const char *mark = accent(name), *symbol = latex_symbol(name, MATH_REFERENCE);
    const alphabet *style = NULL;
    for (int k = 0; k < ARES_COUNT(alphabets); k++)
        if (ares_view_is(name, alphabets[k].name)) style = &alphabets[k];
    if (dropped || content || mark || style) {
        int got = alone ? 0 : argument(r, t, i, &a);
        if (got > 0 && content) edit_add(out, a);
        if (got > 0 && mark && a.len > MAX_ACCENTED) return false;
        if (got > 0 && mark) add_accented(a, mark, out);
        if (got > 0 && style) add_styled(style, a, out);
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

static bool convert(reader *r, ares_view t, edit_out *out)
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
    t = edit_replace(t, "\\tfrac", "\\frac", arena);
    t = edit_replace(t, "\\dfrac", "\\frac", arena);
    t = edit_replace(t, "\\frac", " \\frac", arena);
    if (!converted(&r, t, &t)) return false;
    for (int i = 0; i < ARES_COUNT(last); i++) t = edit_replace(t, last[i].from, last[i].to, arena);
    *out = edit_trim(t);
    return true;
}
