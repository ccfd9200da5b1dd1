/*
 * Marks in the text: bullets, highlights, brackets, titles, sections. The comment of a scanner
 * gives the regular expression of the reference that it stands for; matches are counted from the
 * left and do not overlap.
 */
#include <string.h>

#include "check_tools.h"

static bool at_least(if_args *a, const char *key, int64_t count)
{
    double n = 0;
    return if_arg_number(a, key, &n) && (double)count >= n;
}

/* The index of the first x or y from i on; text.len when there is neither. */
static size_t find_either(ares_view t, size_t i, char x, char y)
{
    while (i < t.len && t.data[i] != x && t.data[i] != y) i++;
    return i;
}

static ares_view between(ares_view t, size_t from, size_t to)
{
    return (ares_view){ t.data + from, to - from };
}

/* \[.*?\] : a bracket that closes on its line */
bool if_check_number_placeholders(if_args *a)
{
    ares_view t = a->text;
    int64_t found = 0;
    for (size_t i = 0; i < t.len; i++) {
        if (t.data[i] != '[') continue;
        /* no other bracket of this line closes if this one does not */
        i = find_either(t, i, ']', '\n');
        found += i < t.len && t.data[i] == ']';
    }
    return at_least(a, "num_placeholders", found);
}

static size_t skip_one(ares_view t, size_t i)
{
    return t.len - if_skip_one_space(if_from(t, i)).len;
}

/* Whether `p\.\s?s\.` or, doubled, `p\.\s?p\.\s?s` stands at i; the text is in lower case. */
static bool is_postscript(ares_view t, size_t i, bool doubled)
{
    for (int letters = doubled ? 2 : 1; letters; letters--) {
        if (i + 1 >= t.len || t.data[i] != 'p' || t.data[i + 1] != '.') return false;
        i = skip_one(t, i + 2);
    }
    return i < t.len && t.data[i] == 's' && (doubled || (i + 1 < t.len && t.data[i + 1] == '.'));
}

bool if_check_postscript(if_args *a)
{
    ares_view marker = { 0 }, text = if_lower(a->text, a->arena);
    if (!if_arg_text(a, "postscript_marker", &marker)) return false;
    marker = if_trim(marker);
    bool doubled = ares_view_is(marker, "P.P.S");
    if (!doubled && !ares_view_is(marker, "P.S."))
        return ares_view_find(text, if_lower(marker, a->arena), 0) >= 0;
    for (size_t i = 0; i < text.len; i++)
        if (is_postscript(text, i, doubled)) return true;
    return false;
}

/*
 * ^\s*\*[^*].*$ and ^\s*-.*$ : white space may span lines, and the character after the star may be
 * the end of its line
 */
static int64_t count_bullets(ares_view t, char mark)
{
    int64_t found = 0;
    for (ares_view rest = t; rest.len;) {
        ares_view at = if_trim_left(rest);
        bool bullet =
            at.len && at.data[0] == mark && (mark == '-' || (at.len > 1 && at.data[1] != '*'));
        found += bullet;
        size_t behind = bullet ? (mark == '-' ? 1 : 2) : 0; /* where the rest of the line begins */
        const char *end = at.len > behind ? memchr(at.data + behind, '\n', at.len - behind) : NULL;
        if (!end) break;
        rest = if_from(at, (size_t)(end - at.data) + 1);
    }
    return found;
}

bool if_check_number_bullet_lists(if_args *a)
{
    double n = 0;
    return if_arg_number(a, "num_bullets", &n) &&
           (double)(count_bullets(a->text, '*') + count_bullets(a->text, '-')) == n;
}

/* \*[^\n*]*\* with one star at either side, or with two */
static int64_t count_highlights(ares_view t, size_t stars)
{
    int64_t found = 0;
    for (size_t i = 0; i + 2 * stars <= t.len;) {
        size_t to =
            memcmp(t.data + i, "**", stars) == 0 ? find_either(t, i + stars, '*', '\n') : t.len;
        if (to + stars <= t.len && memcmp(t.data + to, "**", stars) == 0) {
            found += !if_is_blank(between(t, i + stars, to));
            i = to + stars;
        } else {
            i++;
        }
    }
    return found;
}

bool if_check_number_highlighted_sections(if_args *a)
{
    return at_least(a, "num_highlights",
                    count_highlights(a->text, 1) + count_highlights(a->text, 2));
}

/* \s?SPLITER\s?\d+\s? */
bool if_check_multiple_sections(if_args *a)
{
    ares_view mark = { 0 };
    int64_t found = 0;
    if (!if_arg_filled(a, "section_spliter", &mark)) return false;
    mark = if_trim(mark);
    if (!mark.len) {
        a->fault = "section_spliter";
        return false;
    }
    size_t from = 0;
    for (int64_t at; (at = ares_view_find(a->text, mark, from)) >= 0;) {
        ares_view behind = if_from(a->text, (size_t)at + mark.len),
                  digits = if_skip_one_space(behind);
        if (!if_spend(a, 1 + (int64_t)mark.len)) return false;
        from = (size_t)at + 1;
        if (!digits.len || !if_is_digit(if_first(digits))) continue;
        found++;
        if_next_digits(&digits);
        from = a->text.len - digits.len;
    }
    return at_least(a, "num_sections", found);
}

/*
 * <<[^\n]+>> : the longest match of each line; the title is that without the < before it and the >
 * after it
 */
bool if_check_title(if_args *a)
{
    if_list lines = if_split(a->text, ARES_VIEW("\n"), a->arena);
    for (int64_t i = 0; i < lines.n; i++) {
        ares_view line = lines.items[i];
        int64_t from = ares_view_find(line, ARES_VIEW("<<"), 0);
        size_t to = line.len;
        if (from < 0) continue;
        while (to >= (size_t)from + 5 && !(line.data[to - 1] == '>' && line.data[to - 2] == '>'))
            to--;
        if (to < (size_t)from + 5) continue;
        ares_view title = between(line, (size_t)from, to);
        while (title.len && title.data[0] == '<') title = if_from(title, 1);
        while (title.len && title.data[title.len - 1] == '>') title.len--;
        if (!if_is_blank(title)) return true;
    }
    return false;
}

bool if_check_json_format(if_args *a)
{
    static const char *const fences[] = { "```json", "```Json", "```JSON", "```" };
    ares_view t = if_trim(a->text);
    /* one after the other, as the reference strips them */
    for (int i = 0; i < ARES_COUNT(fences); i++)
        if (ares_view_starts(t, ares_view_of(fences[i]))) t = if_from(t, strlen(fences[i]));
    if (if_ends(t, ARES_VIEW("```"))) t.len -= 3;
    return if_is_json(if_trim(t));
}

/* ---------------------------------------------------------------- nesting */
static char closes(char c)
{
    return c == ')' ? '(' : c == ']' ? '[' : c == '}' ? '{' : 0;
}

bool if_check_parentheses(if_args *a)
{
    char *open = ares_arena_alloc(a->arena, a->text.len + 1);
    size_t depth = 0, deepest = 0;
    for (size_t i = 0; i < a->text.len; i++) {
        char c = a->text.data[i];
        if (c == '(' || c == '[' || c == '{') {
            open[depth++] = c;
            deepest = ARES_MAX(deepest, depth);
        } else if (closes(c) && depth && open[depth - 1] == closes(c)) {
            depth--;
            if (deepest >= 5) return true;
        } else if (closes(c)) {
            depth = deepest = 0;
        }
    }
    return false;
}

bool if_check_quotes(if_args *a)
{
    char *open = ares_arena_alloc(a->arena, a->text.len + 1);
    size_t depth = 0, deepest = 0;
    for (size_t i = 0; i < a->text.len; i++) {
        char c = a->text.data[i];
        if (c != '"' && c != '\'') continue;
        if (depth && open[depth - 1] == c) {
            depth--;
            if (deepest - depth >= 3) return true;
        } else {
            open[depth++] = c;
            deepest = ARES_MAX(deepest, depth);
        }
    }
    return false;
}

/* ---------------------------------------------------------------- lists and lines */
bool if_check_list(if_args *a)
{
    ares_view mark = { 0 };
    return if_arg_filled(a, "sep", &mark) && if_count(a->text, mark) >= 2;
}

bool if_check_sub_bullets(if_args *a)
{
    if_list pieces = if_split(a->text, ARES_VIEW("*"), a->arena);
    for (int64_t i = 1; i < pieces.n; i++)
        if (!if_has(pieces.items[i], "-")) return false;
    return true;
}

/* Empty lines are dropped; lines of blanks count. */
bool if_check_newline(if_args *a)
{
    ares_view text = if_trim(if_delete_punct(a->text, a->arena));
    if_list lines = if_split(text, ARES_VIEW("\n"), a->arena);
    int64_t filled = 0;
    for (int64_t i = 0; i < lines.n; i++) filled += lines.items[i].len > 0;
    return filled == if_words(text, a->arena).n;
}

/*
 * The reference removes blank lines from the list while it walks over it: a blank line that it
 * meets removes the first line equal to it, and the line after is skipped. So of each kind of blank
 * line the first k are removed, where k is how often the walk meets that kind.
 */
bool if_check_line_indent(if_args *a)
{
    if_list lines = if_split(a->text, ARES_VIEW("\n"), a->arena);
    uint32_t *kind = if_group(lines, a->arena),
             *removed = ares_arena_calloc(a->arena, (size_t)lines.n, sizeof *removed);
    for (int64_t i = 0; i < lines.n; i++)
        if (if_is_blank(lines.items[i])) removed[kind[i++]]++;
    int64_t before = -1;
    for (int64_t i = 0; i < lines.n; i++) {
        ares_view line = lines.items[i];
        int64_t indent = 0;
        if (removed[kind[i]]) {
            removed[kind[i]]--;
            continue;
        }
        while (indent < (int64_t)line.len && line.data[indent] == ' ') indent++;
        if (indent <= before) return false;
        before = indent;
    }
    return true;
}

static bool is_margin(char c) /* a digit, or punctuation other than the quote */
{
    return c != '"' && ((c >= '0' && c <= '9') || (c > 0 && if_is_punct((uint32_t)c)));
}

bool if_check_quote_unquote(if_args *a)
{
    ares_view text = if_replace(a->text, ARES_VIEW("'\"'"), ARES_VIEW(""), a->arena);
    if_list words = if_words(text, a->arena);
    char *joined = ares_arena_alloc(a->arena, text.len + 1), *w = joined;
    for (int64_t i = 0; i < words.n; i++) w = mempcpy(w, words.items[i].data, words.items[i].len);
    ares_view v = { joined, (size_t)(w - joined) };
    if (if_has(v, "\"\"")) return false;
    while (v.len && is_margin(v.data[v.len - 1])) v.len--;
    return !v.len || v.data[v.len - 1] != '"';
}

/* Offsets as in the reference, which counts both tags as <i> and </i>: "<em></em> x" passes. */
bool if_check_thesis(if_args *a)
{
    int64_t at = ares_view_find(a->text, ARES_VIEW("<i>"), 0);
    if (at < 0) at = ares_view_find(a->text, ARES_VIEW("<em>"), 0);
    if (at < 0) return false;
    ares_view t = if_from(a->text, (size_t)at);
    int64_t end = ares_view_find(t, ARES_VIEW("</i>"), 0);
    if (end < 0) end = ares_view_find(t, ARES_VIEW("</em>"), 0);
    return end >= 3 && !if_is_blank(between(t, 3, (size_t)end)) &&
           !if_is_blank(if_from(t, (size_t)end + 4));
}

bool if_check_output_template(if_args *a)
{
    return if_has(a->text, "My Answer:") && if_has(a->text, "My Conclusion:") &&
           if_has(a->text, "Future Outlook:");
}

bool if_check_constrained_response(if_args *a)
{
    return if_has(a->text, "My answer is yes.") || if_has(a->text, "My answer is no.") ||
           if_has(a->text, "My answer is maybe.");
}
