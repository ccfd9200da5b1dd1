/*
 * Which text of a response is its answer, and that text without units and remarks: Math-Verify's
 * extraction (by trust: "final answer is ... I hope", boxes, "final answer ... is", "answer:",
 * "answer", anything; the last match of each kind) and its normalisation of LaTeX. Math-Verify
 * tries every match of a regular expression; this takes the last one of each kind.
 */
#include <string.h>

#include "math.h"

/* Part of a word, as \w of Python; every character outside ASCII counts. */
static bool word(char c)
{
    return edit_letter(c) || ares_is_digit(c) || c == '_' || (unsigned char)c >= 0x80;
}
/* ASCII white space, as \s of Python. */
static bool blank(char c)
{
    return c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31);
}

/* The index of the first character from i on that is no blank. */
static size_t blanks(ares_view t, size_t i)
{
    while (i < t.len && blank(t.data[i])) i++;
    return i;
}

/* ------------------------------------------------------------------ boxes */
/*
 * The last \boxed{} or \fbox{}, joined by commas with those before it that stand close or are
 * separated by "and", "or" or a comma.
 */
static bool boxes(ares_view t, ares_arena *arena, math_budget *budget, ares_view *out)
{
    enum { MOST = 32 };
    ares_view found[MOST];
    int n = 0;
    size_t limit = t.len, last_start = 0; /* where the box after this one begins */
    for (size_t i = t.len; i-- > 0 && n < MOST;) {
        if (t.data[i] != '\\') continue;
        size_t open = edit_at(t, i, "\\boxed") ? i + 6 : edit_at(t, i, "\\fbox") ? i + 5 : 0;
        if (open == 0) continue;
        open = blanks(t, open);
        if (open >= limit) break;
        size_t close = open, depth = 0;
        for (; close < limit; close++) { /* to the brace that closes it */
            depth += t.data[close] == '{';
            if (t.data[close] == '}' && --depth == 0) break;
        }
        bool closed = t.data[open] == '{' && close < limit;
        if (!value_spend(budget, (int64_t)(close - open) / 64 + 1)) return false;
        if (!closed) { /* an unclosed last box reaches to the end of the text */
            if (n == 0) found[n++] = (ares_view){ t.data + open, t.len - open };
            break;
        }
        ares_view content = ares_view_trim((ares_view){ t.data + open + 1, close - open - 1 });
        if (n) { /* joined only when near to the box after it, or separated from it by a word */
            ares_view between = { t.data + close + 1, last_start - close - 1 };
            bool separated = false;
            for (size_t k = 0; k < between.len && between.len < 70; k++) {
                bool start = k == 0 || !word(between.data[k - 1]);
                size_t bytes = edit_at(between, k, "and") ? 3 : edit_at(between, k, "or") ? 2 : 0;
                separated |= between.data[k] == ',' || between.data[k] == ';' ||
                             (start && bytes &&
                              (k + bytes == between.len || !word(between.data[k + bytes])));
            }
            if (between.len >= 10 && (ares_view_eq(content, found[n - 1]) || !separated)) break;
        }
        if (n == 0 || !ares_view_eq(content, found[n - 1])) found[n++] = content;
        last_start = limit = i;
    }
    if (n == 0) return false;
    size_t bytes = 0, w = 0;
    for (int k = 0; k < n; k++) bytes += found[k].len + 1;
    if (bytes > MATH_MAX_BYTES + MOST) { /* too long to be judged: the last box alone */
        *out = found[0];
        return true;
    }
    char *joined = ares_arena_alloc(arena, bytes + 1);
    for (int k = n; k-- > 0;) {
        memcpy(joined + w, found[k].data, found[k].len);
        w += found[k].len;
        if (k) joined[w++] = ',';
    }
    *out = (ares_view){ joined, w };
    return true;
}

/* ------------------------------------------------------------------ candidates */
typedef struct match {
    size_t start, end; /* with the signs around the text and a percent sign after it */
    ares_view text;
    bool percent;
} match;

/* The index after a percent sign or word that follows i; i when there is none. */
static size_t percent_behind(ares_view t, size_t i, bool *percent)
{
    static const char *const words[] = { "\\%",     "%",       "percentage", "Percentage",
                                         "percent", "Percent", "pct",        "Pct" };
    size_t j = blanks(t, i);
    for (int k = 0; k < ARES_COUNT(words); k++)
        if (edit_at(t, j, words[k])) return *percent = true, j + strlen(words[k]);
    return i;
}

/* LaTeX between $ $, $$ $$, \[ \], \( \): the match that starts at i. */
static bool latex_at(ares_view t, size_t i, match *m)
{
    static const struct {
        const char *open, *close;
        bool lines;
    } signs[] = {
        { "$$", "$$", true }, { "\\[", "\\]", true }, { "$", "$", false }, { "\\(", "\\)", false }
    };
    if (t.data[i] != '$' && t.data[i] != '\\') return false;
    if (i && t.data[i - 1] == '\\') return false; /* \$5 is money */
    for (int k = 0; k < ARES_COUNT(signs); k++) {
        if (!edit_at(t, i, signs[k].open) || (k == 2 && i && ares_is_digit(t.data[i - 1])))
            continue;
        size_t from = i + strlen(signs[k].open);
        for (size_t j = from; j < t.len && j - from <= MATH_MAX_BYTES; j++) {
            if (t.data[j] == '\n' && !signs[k].lines) break;
            if (j == from || !edit_at(t, j, signs[k].close) || t.data[j - 1] == '\\') continue;
            *m = (match){ .start = i, .text = { t.data + from, j - from } };
            m->end = percent_behind(t, j + strlen(signs[k].close), &m->percent);
            return true;
        }
    }
    return false;
}

/* Joins "$2$, $3$ and $4$" to one answer, "2,3,4", up to six of them. */
static void join_latex(ares_view t, match *m, ares_arena *arena)
{
    for (int i = 1; i < 6 && m->end < t.len; i++) {
        match next = { 0 };
        /* a comma, "and" or "or", or a comma and one of these */
        size_t j = blanks(t, m->end), comma = j < t.len && t.data[j] == ',';
        size_t n = edit_at(t, j + comma, "and") ? 3 : edit_at(t, j + comma, "or") ? 2 : 0;
        size_t from = comma + n ? blanks(t, j + comma + n) : t.len;
        if (from == t.len || !latex_at(t, from, &next)) return;
        if (m->text.len + next.text.len + 1 > MATH_MAX_BYTES) return;
        char *both = ares_arena_alloc(arena, m->text.len + next.text.len + 1);
        memcpy(both, m->text.data, m->text.len);
        both[m->text.len] = ',';
        memcpy(both + m->text.len + 1, next.text.data, next.text.len);
        *m = (match){ m->start, next.end, { both, m->text.len + next.text.len + 1 }, false };
    }
}

/* A \frac of two numbers without LaTeX signs around it, as in "so -\frac{1}{2}". */
static bool fraction_at(ares_view t, size_t i, match *m)
{
    size_t j = i + (t.data[i] == '-');
    if (!edit_at(t, j, "\\frac{")) return false;
    j += 5;
    for (int k = 0; k < 2; k++) {
        if (j >= t.len || t.data[j] != '{') return false;
        size_t from = ++j;
        while (j < t.len &&
               (ares_is_digit(t.data[j]) || t.data[j] == '.' || (j == from && t.data[j] == '-')))
            j++;
        if (j >= t.len || t.data[j] != '}' || j == from) return false;
        j++;
    }
    *m = (match){ .start = i, .text = { t.data + i, j - i } };
    m->end = percent_behind(t, j, &m->percent);
    return true;
}

static bool operator_char(char c)
{
    return c != 0 && strchr("+-*/^()", c) != NULL;
}

/*
 * A number, or arithmetic with numbers, that follows the start of the text, white space, "=" or
 * "**".
 */
static bool number_at(ares_view t, size_t i, match *m)
{
    size_t j = i, w = i;
    if (i) {
        char c = t.data[i - 1];
        if (!blank(c) && c != '=' && !(i > 1 && c == '*' && t.data[i - 2] == '*') &&
            !(c == '$' && (i == 1 || blank(t.data[i - 2]))))
            return false;
    }
    size_t sign = t.data[j] == '-';
    /* arithmetic: digits and operators up to a delimiter, as "2*(3+4)" in "is 2*(3+4)." */
    size_t k = j + sign;
    if (k < t.len && t.data[k] == '(') k++;
    if (k < t.len && t.data[k] == '-') k++;
    if (k < t.len && ares_is_digit(t.data[k])) {
        size_t end = k, operators = 0;
        while (end < t.len && end - i < MATH_MAX_BYTES &&
               (ares_is_digit(t.data[end]) || t.data[end] == '.' || blank(t.data[end]) ||
                operator_char(t.data[end])))
            end++;
        while (end > k && !ares_is_digit(t.data[end - 1]) && t.data[end - 1] != ')') end--;
        for (size_t x = k; x < end; x++) operators += operator_char(t.data[x]);
        bool stopped = end == t.len || blank(t.data[end]) || strchr(".,:$*)", t.data[end]);
        if (operators && stopped && end > k + 1) {
            *m = (match){ .start = i, .end = end, .text = { t.data + i, end - i } };
            return true;
        }
    }
    j += sign;
    if (j >= t.len || (!ares_is_digit(t.data[j]) &&
                       !(t.data[j] == '.' && j + 1 < t.len && ares_is_digit(t.data[j + 1]))))
        return false;
    for (w = j; w < t.len && w - j < MATH_MAX_BYTES; w++) {
        if (ares_is_digit(t.data[w])) continue;
        /* a separator of thousands before exactly three digits */
        bool grouped = (t.data[w] == ',' || t.data[w] == ' ') && w + 3 < t.len &&
                       ares_is_digit(t.data[w + 1]) && ares_is_digit(t.data[w + 2]) &&
                       ares_is_digit(t.data[w + 3]) &&
                       (w + 4 == t.len || !ares_is_digit(t.data[w + 4]));
        if (!grouped && !(t.data[w] == '.' && w + 1 < t.len && ares_is_digit(t.data[w + 1]))) break;
    }
    *m = (match){ .start = i, .text = { t.data + i, w - i } };
    m->end = percent_behind(t, w, &m->percent);
    return true;
}

/* Whether the words, in lower case, stand at i in any case. */
static bool says(ares_view t, size_t i, const char *words)
{
    for (; *words; words++, i++)
        if (i >= t.len || edit_lower_char(t.data[i]) != *words) return false;
    return true;
}

/*
 * Rank by the words before a match, the most trusted first: 0 "final answer is ... I hope", 50
 * "final answer ... is", 100 "answer:", 200 "answer", 300 nothing.
 */
static int trust(ares_view t, const match *m)
{
    int best = 300;
    size_t from = m->start > 130 ? m->start - 130 : 0;
    for (size_t i = from; i + 6 <= m->start; i++) {
        if (edit_lower_char(t.data[i]) != 'a' && edit_lower_char(t.data[i]) != 'f') continue;
        if (says(t, i, "final answer")) {
            size_t end = m->start; /* back over white space and ":" to "is" */
            while (end > i && blank(t.data[end - 1])) end--;
            if (end > i && t.data[end - 1] == ':') end--;
            if (end >= i + 15 && says(t, end - 2, "is") && blank(t.data[end - 3])) {
                size_t after = m->end;
                if (after < t.len && t.data[after] == '.') after++;
                if (after < t.len && blank(t.data[after])) after++;
                best = ARES_MIN(best, end == i + 15 && edit_at(t, after, "I hope") ? 0 : 50);
            }
        }
        if (says(t, i, "answer") && m->start - i <= 57) {
            bool colon = i + 6 < t.len && t.data[i + 6] == ':';
            best = ARES_MIN(best, colon ? 100 : 200);
        }
    }
    return best;
}

/* Plain numbers may be answers too, so a long text is read from its last bytes only. */
enum { LOOKED_AT = 1 << 16 };

int claim_candidates(ares_view response, claim_candidate *out, int most, ares_arena *arena,
                     math_budget *budget)
{
    ares_view t = response;
    int n = 0; /* of out, the most trusted first */
    enum { LATEX, PROSE, KINDS };
    static const int levels[] = { 0, 50, 100, 200, 300 };
    /* the last match of each trust and kind: a later one overwrites it */
    match best[ARES_COUNT(levels)][KINDS];
    bool have[ARES_COUNT(levels)][KINDS] = { { false } }, answer = false;
    size_t answer_at = 0; /* where the last "answer" before i stands */
    if (t.len > LOOKED_AT) t = (ares_view){ t.data + t.len - LOOKED_AT, LOOKED_AT };
    for (size_t i = 0; i < t.len;) {
        match m = { 0 };
        if (!value_spend(budget, 1)) return 0;
        bool latex = latex_at(t, i, &m) || fraction_at(t, i, &m),
             prose = !latex &&
                     (ares_is_digit(t.data[i]) || t.data[i] == '-' || t.data[i] == '.' ||
                      t.data[i] == '(') &&
                     number_at(t, i, &m);
        if (!latex && !prose) {
            if ((t.data[i] == 'a' || t.data[i] == 'A') && says(t, i, "answer"))
                answer = true, answer_at = i;
            i++;
            continue;
        }
        if (!value_spend(budget, 32 + (int64_t)m.text.len / 8)) return 0;
        if (latex) join_latex(t, &m, arena);
        int level = answer && m.start - answer_at <= 130 ? trust(t, &m) : 300;
        for (int k = 0; k < ARES_COUNT(levels); k++) {
            if (levels[k] != level) continue;
            best[k][latex ? LATEX : PROSE] = m;
            have[k][latex ? LATEX : PROSE] = true;
        }
        i = latex ? m.end : ARES_MAX(m.start + m.text.len, i + 1);
    }
    /* boxes are trusted less than "final answer is .. I hope" and more than all other words */
    for (int k = 0; k < ARES_COUNT(levels); k++) {
        ares_view box;
        bool boxed = levels[k] == 50 && boxes(t, arena, budget, &box);
        if (boxed && n < most) out[n++] = (claim_candidate){ box, false };
        /* of LaTeX and prose with the same trust, the one that ends later comes first */
        bool later = have[k][PROSE] && (!have[k][LATEX] || best[k][PROSE].end > best[k][LATEX].end);
        for (int side = 0; side < KINDS; side++) {
            int kind = later ? KINDS - 1 - side : side;
            if (have[k][kind] && n < most)
                out[n++] = (claim_candidate){ best[k][kind].text, best[k][kind].percent };
        }
    }
    return n;
}

/* ------------------------------------------------------------------ normalisation */
/* One left-to-right pass: a rule that matches replaces what it matches. */
typedef struct rule {
    const char *from, *to;
} rule;
static const rule plain_rules[] = {
    /* longer texts come before those that they begin with: \mathrm{T} before \mathrm */
    { "\\mathrm{T}", "T" },
    { "\\mathrm{d}", "d" },
    { "{\\rm d}", "d" },
    { "\\mathrm{th}", "" },
    { "\\mathrm", "\\text" },
    { "\\mathit", "\\text" },
    { "\\mathbf", "\\text" },
    { "\\textnormal", "\\text" },
    { "\\textbf", "\\text" },
    { "\\textit", "\\text" },
    { "\\textrm", "\\text" },
    { "\\dfrac", "\\frac" },
    { "\\tfrac", "\\frac" },
    { "\\cfrac", "\\frac" },
    { "~=", "\\approx" },
    { "\\displaystyle", "" },
    { "\\$", "" },
    { "$", "" },
    { "\\!", "" },
    { "infinity", "\\infty" },
    { " sqrt", "\\sqrt" },
    { "{.", "{0." },
    { ",\\ldots", " " },
    { "\\ldots", " " },
    { "\\text{percentage}", "%" },
    { "\\text{percent}", "%" },
    { "\\text{pct}", "%" },
    { "\\text{}", "" },
    { "\n", " " },
    { "\t", " " },
};

/*
 * Bytes of ",? and" or ",? or" at i, outside words, or of the same as \text{ and }; 0 when there is
 * none.
 */
static size_t conjunction(ares_view t, size_t i)
{
    size_t j = i;
    bool inside = i && edit_letter(t.data[i - 1]);
    if (j < t.len && t.data[j] == ',') j++;
    j = blanks(t, j);
    if (edit_at(t, j, "\\text{")) {
        size_t k = blanks(t, j + 6);
        k += edit_at(t, k, "and") ? 3 : edit_at(t, k, "or") ? 2 : 0;
        if (k > j + 6 && edit_letter(t.data[k - 1])) {
            k = blanks(t, k);
            if (k < t.len && t.data[k] == '}') return k + 1 - i;
        }
    }
    size_t n = edit_at(t, j, "and") ? 3 : edit_at(t, j, "or") ? 2 : 0;
    return n && !inside && (j + n >= t.len || !edit_letter(t.data[j + n])) ? j + n - i : 0;
}

/* The bytes that a rule matches at i, and in *to what replaces them; 0 when no rule matches. */
static size_t rewrite(ares_view t, size_t i, const char **to)
{
    static const char *const delimiters[] = {
        "(",       ")",        "[",        "]",        "|",        "{",        "}",       "\\{",
        "\\}",     "\\|",      "\\lfloor", "\\rfloor", "\\lceil",  "\\rceil",  "\\vert",  "\\lvert",
        "\\rvert", "\\langle", "\\rangle", "\\lbrace", "\\rbrace", "\\lbrack", "\\rbrack"
    };
    static const char *const percents[] = { "percentage", "percent", "pct" };
    size_t n;
    *to = "";
    /* no rule starts with these */
    if ((edit_letter(t.data[i]) && !strchr("aiop", t.data[i])) || ares_is_digit(t.data[i]))
        return 0;
    /* \left or \right before a delimiter, which stays */
    n = edit_at(t, i, "\\left")     ? 5
        : edit_at(t, i, "\\mleft")  ? 6
        : edit_at(t, i, "\\right")  ? 6
        : edit_at(t, i, "\\mright") ? 7
                                    : 0;
    for (int k = 0; n && k < ARES_COUNT(delimiters); k++)
        if (edit_at(t, i + n, delimiters[k])) return n;
    for (int k = 0; k < ARES_COUNT(plain_rules); k++) {
        if (!edit_at(t, i, plain_rules[k].from)) continue;
        *to = plain_rules[k].to;
        n = strlen(plain_rules[k].from);
        return plain_rules[k].from[1] == '!' ? blanks(t, i + n) - i : n;
    }
    char c = t.data[i];
    if ((c == '"' || c == '\'') && !(i && t.data[i - 1] == '\\')) return 1;
    if (blank(c) && i + 1 < t.len && t.data[i + 1] == '.') return *to = " 0.", 2; /* " .5" */
    /* "1{,}234" -> "1,234" */
    size_t open = blanks(t, i),
           comma = open < t.len && t.data[open] == '{' ? blanks(t, open + 1) : t.len;
    if (comma < t.len && t.data[comma] == ',') {
        size_t close = blanks(t, comma + 1);
        if (close < t.len && t.data[close] == '}') return *to = ",", close + 1 - i;
    }
    if ((n = conjunction(t, i))) return *to = ",", n;
    /* white space and "percent" or its like, as a word: "5 pct" -> "5\%" */
    for (int k = 0; k < ARES_COUNT(percents); k++) {
        n = strlen(percents[k]);
        if (edit_at(t, open, percents[k]) && (open == 0 || !word(t.data[open - 1])) &&
            (open + n == t.len || !word(t.data[open + n])))
            return *to = "\\%", open + n - i;
    }
    if (c == '\\' && i + 1 < t.len && blank(t.data[i + 1]) && !(i && t.data[i - 1] == '\\'))
        return *to = " ", 2;
    if (edit_at(t, i, "inf") && !(i && t.data[i - 1] == '\\')) return *to = "\\infty", 3;
    if (c == '\\' && i + 2 < t.len && t.data[i + 1] == '\\' && edit_letter(t.data[i + 2]) &&
        ares_view_find(t, ARES_VIEW("matrix"), 0) < 0)
        return *to = "\\", 2;
    return 0;
}

/*
 * Cuts the text before the first \text{ when the text ends with a \text{...} (or with a power of
 * it): a unit or a remark.
 */
static ares_view without_text_tail(ares_view t)
{
    size_t end = t.len; /* without the power of the unit: \text{cm}^2, \text{cm}^{2} */
    if (end >= 2 && t.data[end - 2] == '^' && ares_is_digit(t.data[end - 1])) end -= 2;
    else if (end >= 4 && t.data[end - 1] == '}' && ares_is_digit(t.data[end - 2]) &&
             t.data[end - 3] == '^' && t.data[end - 4] == '{')
        end -= 4;
    if (end == 0 || t.data[end - 1] != '}') return t;
    for (size_t i = 0; i < end; i++) {
        if (!edit_at(t, i, "\\text{") && !edit_at(t, i, "\\mbox{")) continue;
        ares_view head = ares_view_trim((ares_view){ t.data, i });
        return head.len ? head : t;
    }
    return t;
}

/* Math-Verify's list; "." there stands for any character. */
static const char *const units[] = {
    "integerpoint",
    "feet",
    "sue",
    "digit",
    "pound",
    "meal",
    "edge",
    "student",
    "children ticket",
    "multiple",
    "east",
    "degree",
    "mph",
    "kmph",
    "ft",
    "m square",
    " m east",
    "sq m",
    "deg",
    "mile",
    "q .",
    "monkey",
    "prime",
    "ratio",
    "profit of rs",
    "rd",
    "o",
    "gm",
    "p . m",
    "lb",
    "tile",
    "per",
    "dm",
    "lt",
    "gain",
    "ab",
    "way",
    "west",
    "a .",
    "b .",
    "c .",
    "d .",
    "e .",
    "f .",
    "g .",
    "h .",
    "t",
    "h",
    "no change",
    "men",
    "soldier",
    "pie",
    "bc",
    "excess",
    "st",
    "inches",
    "noon",
    "cent",
    "by",
    "gal",
    "kmh",
    "c",
    "acre",
    "rise",
    "a . m",
    "th",
    "\xcf\x80 r 2",
    "sq",
    "mark",
    "l",
    "toy",
    "coin",
    "sq . m",
    "gallon",
    "\xc2\xb0 f",
    "profit",
    "minw",
    "yr",
    "women",
    "am",
    "pm",
    "hr",
    "cu cm",
    "square",
    "are",
    "rupee",
    "rounds",
    "cubic",
    "cc",
    "mtr",
    "s",
    "ohm",
    "number",
    "day",
    "hour",
    "minute",
    "min",
    "second",
    "man",
    "woman",
    "sec",
    "cube",
    "mt",
    "sq inch",
    "mp",
    "hectare",
    "more",
    "unit",
    "cu . m",
    "cm 2",
    "rs .",
    "rs",
    "kg",
    "g",
    "month",
    "km",
    "m",
    "cm",
    "mm",
    "apple",
    "liter",
    "loss",
    "yard",
    "pure",
    "year",
    "increase",
    "decrease",
    "d",
    "less",
    "Surface",
    "litre",
    "pi sq m",
    "s .",
    "metre",
    "meter",
    "inch",
};

/* Whether the text is a unit of the list, or its plural. */
static bool unit(ares_view t)
{
    if (t.len == 0 || ares_is_digit(t.data[0])) return false;
    for (int k = 0; k < ARES_COUNT(units); k++) {
        size_t n = strlen(units[k]), i = 0;
        if (t.len < n || t.len > n + 2) continue;
        while (i < n && (units[k][i] == t.data[i] || units[k][i] == '.')) i++;
        if (i == n && (t.len == n || (t.len == n + 1 && t.data[n] == 's') ||
                       (t.len == n + 2 && t.data[n] == 'e' && t.data[n + 1] == 's')))
            return true;
    }
    return false;
}

/*
 * Without a unit at the end that follows a digit, a brace or white space: "5 cm" and "5cm" -> "5",
 * while "xcm" stays.
 */
static ares_view without_unit(ares_view t)
{
    ares_view whole = t;
    while (whole.len && blank(whole.data[whole.len - 1])) whole.len--;
    for (size_t i = whole.len > 24 ? whole.len - 24 : 0; i < whole.len; i++) {
        char c = whole.data[i];
        if (!ares_is_digit(c) && c != '}' && !blank(c)) continue;
        for (size_t j = blanks(whole, i + 1); j > i; j--)
            if (unit((ares_view){ whole.data + j, whole.len - j }))
                return (ares_view){ t.data, i + 1 };
    }
    return t;
}

ares_view claim_normalize(ares_view text, ares_arena *arena, math_budget *budget)
{
    if (text.len > MATH_MAX_BYTES || !value_spend(budget, (int64_t)text.len))
        return (ares_view){ "", 0 };
    ares_str s = { 0 };
    for (size_t i = 0; i < text.len;) {
        const char *to;
        size_t n = rewrite(text, i, &to);
        if (n) ares_str_add_z(&s, to);
        else ares_str_add_char(&s, text.data[i]), n = 1;
        i += n;
    }
    ares_view t = { ares_arena_copy(arena, s.data ? s.data : "", s.len), s.len };
    ares_str_fini(&s);
    t = without_text_tail(t);
    for (int i = 0; i < 2; i++) { /* a second unit may stand before the first */
        ares_view shorter = without_unit(t);
        if (shorter.len) t = shorter;
    }
    return ares_view_trim(t);
}
