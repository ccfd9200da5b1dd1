/*
 * Checks of a text's form: marks such as bullets and titles, and tasks of IFBench with a form of
 * their own. JSON and CSV are read as Python reads them.
 */
#include "ifeval.h"
#include "words.h"

#include <string.h>

/*
 * Whether Python's json.loads reads a text. White space is blank, tab, newline and return; NaN,
 * Infinity and -Infinity are values; strings hold no control characters; nothing follows the value;
 * nesting goes up to 1000, Python's recursion limit.
 */

enum { MAX_DEPTH = 1000 };

typedef struct reader {
    const char *p, *end;
} reader;

static void space(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

static bool word(reader *r, const char *z)
{
    size_t n = strlen(z);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, z, n) != 0) return false;
    r->p += n;
    return true;
}

/* The rest of a string after its opening quote. */
static bool string(reader *r)
{
    while (r->p < r->end) {
        unsigned char c = (unsigned char)*r->p++;
        if (c == '"') return true;
        if (c < 0x20) return false;
        if (c != '\\') continue;
        if (r->p == r->end) return false;
        char escape = *r->p++;
        if (escape == 'u') {
            if (r->end - r->p < 4) return false;
            for (int i = 0; i < 4; i++)
                if (!memchr("0123456789abcdefABCDEF", *r->p++, 22)) return false;
        } else if (!memchr("\"\\/bfnrt", escape, 8)) {
            return false;
        }
    }
    return false;
}

static bool digits(reader *r)
{
    const char *from = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') r->p++;
    return r->p > from;
}

/*
 * Like Python's, it stops before a point or an exponent without digits, and what is left is then
 * text after the value.
 */
static bool number(reader *r)
{
    if (*r->p == '-') r->p++;
    if (r->p < r->end && *r->p == '0') r->p++;
    else if (!digits(r)) return false;
    reader back = *r;
    if (r->p < r->end && *r->p == '.' && (r->p++, !digits(r))) *r = back;
    back = *r;
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-')) r->p++;
        if (!digits(r)) *r = back;
    }
    return true;
}

/* A string and the colon after it. */
static bool key(reader *r)
{
    space(r);
    if (r->p == r->end || *r->p++ != '"' || !string(r)) return false;
    space(r);
    return r->p < r->end && *r->p++ == ':';
}

bool ifeval_is_json(ares_view text)
{
    reader r = { text.data, text.data + text.len };
    char open[MAX_DEPTH];
    int depth = 0;
    for (;;) {
        space(&r);
        if (r.p == r.end) return false;
        if (*r.p == '{' || *r.p == '[') {
            if (depth == MAX_DEPTH) return false;
            open[depth++] = *r.p++;
            space(&r);
            if (r.p < r.end && *r.p == (open[depth - 1] == '{' ? '}' : ']')) {
                r.p++;
                depth--;
            } else if (open[depth - 1] == '{' && !key(&r)) {
                return false;
            } else {
                continue; /* its first value follows */
            }
        } else { /* a value other than an object or an array, told by its first character */
            bool read;
            switch (*r.p) {
            case '"': r.p++, read = string(&r); break;
            case 't': read = word(&r, "true"); break;
            case 'f': read = word(&r, "false"); break;
            case 'n': read = word(&r, "null"); break;
            case 'N': read = word(&r, "NaN"); break;
            case 'I': read = word(&r, "Infinity"); break;
            default: read = word(&r, "-Infinity") || number(&r);
            }
            if (!read) return false;
        }
        for (;;) { /* a value has ended, and containers may end with it */
            space(&r);
            if (depth == 0) return r.p == r.end;
            if (r.p == r.end) return false;
            char c = *r.p++;
            if (c == ',') break;
            if (c != (open[depth - 1] == '{' ? '}' : ']')) return false;
            depth--;
        }
        if (open[depth - 1] == '{' && !key(&r)) return false;
    }
}

/*
 * Marks in the text: bullets, highlights, brackets, titles, sections. The comment of a scanner
 * gives the regular expression of the reference that it stands for; matches are counted from the
 * left and do not overlap.
 */

/* Whether count reaches the number that the argument gives. */
static bool at_least(ifeval_args *a, const char *key, int64_t count)
{
    double n = 0;
    return ifeval_arg_number(a, key, &n) && (double)count >= n;
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
bool ifeval_check_number_placeholders(ifeval_args *a)
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

/* Without its first character if that is white space. */
static ares_view skip_one_space(ares_view v)
{
    const char *p = v.data, *end = v.data + v.len;
    return p < end && ifeval_is_space(ifeval_next(&p, end)) ? (ares_view){ p, (size_t)(end - p) }
                                                            : v;
}

/* Whether `p\.\s?s\.` or, doubled, `p\.\s?p\.\s?s` stands at i; the text is in lower case. */
static bool is_postscript(ares_view t, size_t i, bool doubled)
{
    for (int letters = doubled ? 2 : 1; letters; letters--) {
        if (i + 1 >= t.len || t.data[i] != 'p' || t.data[i + 1] != '.') return false;
        i = t.len - skip_one_space(ifeval_from(t, i + 2)).len;
    }
    return i < t.len && t.data[i] == 's' && (doubled || (i + 1 < t.len && t.data[i + 1] == '.'));
}

/* The marker occurs in any case; P.S. and P.P.S may have white space between their letters. */
bool ifeval_check_postscript(ifeval_args *a)
{
    ares_view marker = { 0 }, text = ifeval_lower(a->text, a->arena);
    if (!ifeval_arg_text(a, "postscript_marker", &marker)) return false;
    marker = ifeval_trim(marker);
    bool doubled = ares_view_is(marker, "P.P.S");
    if (!doubled && !ares_view_is(marker, "P.S."))
        return ares_view_find(text, ifeval_lower(marker, a->arena), 0) >= 0;
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
        ares_view at = ifeval_trim_left(rest);
        bool bullet =
            at.len && at.data[0] == mark && (mark == '-' || (at.len > 1 && at.data[1] != '*'));
        found += bullet;
        size_t behind = bullet ? (mark == '-' ? 1 : 2) : 0; /* where the rest of the line begins */
        const char *end = at.len > behind ? memchr(at.data + behind, '\n', at.len - behind) : NULL;
        if (!end) break;
        rest = ifeval_from(at, (size_t)(end - at.data) + 1);
    }
    return found;
}

/* Exactly num_bullets bullets. */
bool ifeval_check_number_bullet_lists(ifeval_args *a)
{
    double n = 0;
    return ifeval_arg_number(a, "num_bullets", &n) &&
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
            found += !ifeval_is_blank(between(t, i + stars, to));
            i = to + stars;
        } else {
            i++;
        }
    }
    return found;
}

/* At least num_highlights pieces like *this* or **this**. */
bool ifeval_check_number_highlighted_sections(ifeval_args *a)
{
    return at_least(a, "num_highlights",
                    count_highlights(a->text, 1) + count_highlights(a->text, 2));
}

/* \s?SPLITER\s?\d+\s? */
bool ifeval_check_multiple_sections(ifeval_args *a)
{
    ares_view mark = { 0 };
    int64_t found = 0;
    if (!ifeval_arg_filled(a, "section_spliter", &mark)) return false;
    mark = ifeval_trim(mark);
    if (!mark.len) {
        a->fault = "section_spliter";
        return false;
    }
    size_t from = 0;
    for (int64_t at; (at = ares_view_find(a->text, mark, from)) >= 0;) {
        ares_view behind = ifeval_from(a->text, (size_t)at + mark.len),
                  digits = skip_one_space(behind);
        if (!ifeval_spend(a, 1 + (int64_t)mark.len)) return false;
        from = (size_t)at + 1;
        if (!digits.len || !ifeval_is_digit(ifeval_first(digits))) continue;
        found++;
        ifeval_next_digits(&digits);
        from = a->text.len - digits.len;
    }
    return at_least(a, "num_sections", found);
}

/*
 * <<[^\n]+>> : the longest match of each line; the title is that without the < before it and the >
 * after it
 */
bool ifeval_check_title(ifeval_args *a)
{
    ifeval_list lines = ifeval_split(a->text, ARES_VIEW("\n"), a->arena);
    for (int64_t i = 0; i < lines.n; i++) {
        ares_view line = lines.items[i];
        int64_t from = ares_view_find(line, ARES_VIEW("<<"), 0);
        size_t to = line.len;
        if (from < 0) continue;
        while (to >= (size_t)from + 5 && !(line.data[to - 1] == '>' && line.data[to - 2] == '>'))
            to--;
        if (to < (size_t)from + 5) continue;
        ares_view title = between(line, (size_t)from, to);
        while (title.len && title.data[0] == '<') title = ifeval_from(title, 1);
        while (title.len && title.data[title.len - 1] == '>') title.len--;
        if (!ifeval_is_blank(title)) return true;
    }
    return false;
}

/* The text is JSON, alone or in a code fence. */
bool ifeval_check_json_format(ifeval_args *a)
{
    static const char *const fences[] = { "```json", "```Json", "```JSON", "```" };
    ares_view t = ifeval_trim(a->text);
    /* one after the other, as the reference strips them */
    for (int i = 0; i < ARES_COUNT(fences); i++)
        if (ares_view_starts(t, ares_view_of(fences[i]))) t = ifeval_from(t, strlen(fences[i]));
    if (ifeval_ends(t, ARES_VIEW("```"))) t.len -= 3;
    return ifeval_is_json(ifeval_trim(t));
}

/* ---------------------------------------------------------------- nesting */
/* The bracket that c closes; 0: it closes none. */
static char closes(char c)
{
    return c == ')' ? '(' : c == ']' ? '[' : c == '}' ? '{' : 0;
}

/* Brackets of any kind, nested five deep. */
bool ifeval_check_parentheses(ifeval_args *a)
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

/* Quotes inside quotes, three deep, double and single ones in turn. */
bool ifeval_check_quotes(ifeval_args *a)
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
/* The separator occurs twice or more. */
bool ifeval_check_list(ifeval_args *a)
{
    ares_view mark = { 0 };
    return ifeval_arg_filled(a, "sep", &mark) && ifeval_count(a->text, mark) >= 2;
}

/* Every bullet (*) has a sub-bullet (-). */
bool ifeval_check_sub_bullets(ifeval_args *a)
{
    ifeval_list pieces = ifeval_split(a->text, ARES_VIEW("*"), a->arena);
    for (int64_t i = 1; i < pieces.n; i++)
        if (!ifeval_has(pieces.items[i], "-")) return false;
    return true;
}

/* Empty lines are dropped; lines of blanks count. */
bool ifeval_check_newline(ifeval_args *a)
{
    ares_view text = ifeval_trim(ifeval_delete_punct(a->text, a->arena));
    ifeval_list lines = ifeval_split(text, ARES_VIEW("\n"), a->arena);
    int64_t filled = 0;
    for (int64_t i = 0; i < lines.n; i++) filled += lines.items[i].len > 0;
    return filled == ifeval_words(text, a->arena).n;
}

/*
 * The reference removes blank lines from the list while it walks over it: a blank line that it
 * meets removes the first line equal to it, and the line after is skipped. So of each kind of blank
 * line the first k are removed, where k is how often the walk meets that kind.
 */
bool ifeval_check_line_indent(ifeval_args *a)
{
    ifeval_list lines = ifeval_split(a->text, ARES_VIEW("\n"), a->arena);
    uint32_t *kind = ifeval_group(lines, a->arena),
             *removed = ares_arena_calloc(a->arena, (size_t)lines.n, sizeof *removed);
    for (int64_t i = 0; i < lines.n; i++)
        if (ifeval_is_blank(lines.items[i])) removed[kind[i++]]++;
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

/* An explanation follows every quotation: not another one, and not the end of the text. */
bool ifeval_check_quote_unquote(ifeval_args *a)
{
    ares_view text = ifeval_replace(a->text, ARES_VIEW("'\"'"), ARES_VIEW(""), a->arena);
    ifeval_list words = ifeval_words(text, a->arena);
    char *joined = ares_arena_alloc(a->arena, text.len + 1), *w = joined;
    for (int64_t i = 0; i < words.n; i++) w = mempcpy(w, words.items[i].data, words.items[i].len);
    ares_view v = { joined, (size_t)(w - joined) };
    if (ifeval_has(v, "\"\"")) return false;
    while (v.len) { /* digits and punctuation after the last quote do not count */
        unsigned char c = (unsigned char)v.data[v.len - 1];
        if (c == '"' || c >= 0x80 || !ifeval_is(c, IFEVAL_DIGIT | IFEVAL_PUNCT)) break;
        v.len--;
    }
    return !v.len || v.data[v.len - 1] != '"';
}

/* Offsets as in the reference, which counts both tags as <i> and </i>: "<em></em> x" passes. */
bool ifeval_check_thesis(ifeval_args *a)
{
    int64_t at = ares_view_find(a->text, ARES_VIEW("<i>"), 0);
    if (at < 0) at = ares_view_find(a->text, ARES_VIEW("<em>"), 0);
    if (at < 0) return false;
    ares_view t = ifeval_from(a->text, (size_t)at);
    int64_t end = ares_view_find(t, ARES_VIEW("</i>"), 0);
    if (end < 0) end = ares_view_find(t, ARES_VIEW("</em>"), 0);
    return end >= 3 && !ifeval_is_blank(between(t, 3, (size_t)end)) &&
           !ifeval_is_blank(ifeval_from(t, (size_t)end + 4));
}

/* The three headings in any order. */
bool ifeval_check_output_template(ifeval_args *a)
{
    return ifeval_has(a->text, "My Answer:") && ifeval_has(a->text, "My Conclusion:") &&
           ifeval_has(a->text, "Future Outlook:");
}

bool ifeval_check_constrained_response(ifeval_args *a)
{
    return ifeval_has(a->text, "My answer is yes.") || ifeval_has(a->text, "My answer is no.") ||
           ifeval_has(a->text, "My answer is maybe.");
}

/*
 * CSV as Python's csv.reader takes it from a text stream (Modules/_csv.c): lines end at \n; quotes
 * count only at the start of a field; a field cut by the end of the text is kept. The machine runs
 * twice, to count and to fill.
 */

enum { FIELD_MAX = 131072 }; /* characters: csv.field_size_limit */

typedef struct sink {
    ifeval_list *rows; /* NULL: only count */
    ares_view *fields;
    char *bytes;
    int64_t row_count, field_count;
    int64_t field_chars, row_fields;
    char *field; /* where the open field begins */
} sink;

static void add(sink *s, char c)
{
    if (s->rows) *s->bytes++ = c;
    /* broken characters are counted by bytes, which is close enough */
    if (((unsigned char)c & 0xc0) != 0x80) s->field_chars++;
}

static void end_field(sink *s)
{
    if (s->rows) {
        s->fields[s->field_count] = (ares_view){ s->field, (size_t)(s->bytes - s->field) };
        s->field = s->bytes;
    }
    s->field_count++;
    s->row_fields++;
    s->field_chars = 0;
}

static void end_row(sink *s)
{
    if (s->rows)
        s->rows[s->row_count] =
            (ifeval_list){ s->fields + s->field_count - s->row_fields, s->row_fields };
    s->row_count++;
    s->row_fields = 0;
}

typedef enum place {
    START_ROW,
    START_FIELD,
    IN_FIELD,
    QUOTED,
    QUOTE_IN_QUOTED,
    LINE_END,
    BROKEN /* something follows a \r on its line */
} place;

static bool ends_line(char c)
{
    return c == '\n' || c == '\r';
}

/* Outside quotes a character belongs to the field or ends it. */
static place outside_quotes(char c, char delimiter, sink *s)
{
    if (c == delimiter || ends_line(c)) {
        end_field(s);
        return c == delimiter ? START_FIELD : LINE_END;
    }
    add(s, c);
    return IN_FIELD;
}

/* The place after character c, which goes to the field, ends it, or is a quote. */
static place after(place at, char c, char delimiter, sink *s)
{
    switch (at) {
    case START_ROW:
        if (ends_line(c)) return LINE_END;
        /* fallthrough */
    case START_FIELD:
        if (c == '"') return QUOTED;
        /* fallthrough */
    case IN_FIELD: return outside_quotes(c, delimiter, s);
    case QUOTED:
        if (c == '"') return QUOTE_IN_QUOTED;
        break;
    case QUOTE_IN_QUOTED:
        if (c != '"') return outside_quotes(c, delimiter, s);
        break;
    default: return ends_line(c) ? LINE_END : BROKEN;
    }
    add(s, c);
    return QUOTED;
}

/* Reads the whole text; false: the reference refuses it. */
static bool run(ares_view text, char delimiter, sink *s)
{
    place at = START_ROW;
    for (size_t i = 0; i < text.len; i++) {
        at = after(at, text.data[i], delimiter, s);
        if (at == BROKEN || s->field_chars > FIELD_MAX) return false;
        if (text.data[i] == '\n' && at == LINE_END) { /* the end of one of the stream's lines */
            end_row(s);
            at = START_ROW;
        }
    }
    if (at == START_ROW) return true;
    if (at != LINE_END) end_field(s);
    end_row(s);
    return true;
}

ifeval_rows ifeval_csv(ares_view text, char delimiter, ares_arena *arena)
{
    sink count = { 0 };
    if (!run(text, delimiter, &count)) return (ifeval_rows){ NULL, -1 };
    sink s = {
        .rows = ares_arena_alloc(arena, (size_t)ARES_MAX(count.row_count, 1) * sizeof(ifeval_list)),
        .fields =
            ares_arena_alloc(arena, (size_t)ARES_MAX(count.field_count, 1) * sizeof(ares_view)),
        .bytes = ares_arena_alloc(arena, text.len + 1),
    };
    s.field = s.bytes;
    run(text, delimiter, &s);
    return (ifeval_rows){ s.rows, s.row_count };
}

/* Tasks of IFBench that ask for one particular thing: a table, a list of countries, a quiz. */

/* ---------------------------------------------------------------- lists */
/* The multiples of 7 from 14 to 49 are the numbers of the text, in their order. */
bool ifeval_check_multiples(ifeval_args *a)
{
    static const char *const wanted[] = { "14", "21", "28", "35", "42", "49" };
    ares_view rest = a->text;
    for (int i = 0; i < ARES_COUNT(wanted); i++)
        if (!ares_view_is(ifeval_next_digits(&rest), wanted[i])) return false;
    return !ifeval_next_digits(&rest).data;
}

/*
 * Whether the words in reverse order contain "bald eagle". The task asks for one sentence, which a
 * text without full stops always is.
 */
bool ifeval_check_word_reverse(ifeval_args *a)
{
    ares_view text = ifeval_delete_punct(ifeval_lower(a->text, a->arena), a->arena);
    ifeval_list words = ifeval_words(text, a->arena);
    char *joined = ares_arena_alloc(a->arena, text.len + (size_t)words.n + 1), *w = joined;
    for (int64_t i = words.n; i-- > 0;) {
        if (w > joined) *w++ = ' ';
        w = mempcpy(w, words.items[i].data, words.items[i].len);
    }
    return ifeval_has((ares_view){ joined, (size_t)(w - joined) }, "bald eagle");
}

/* "bald eagle" backwards, in any case. */
bool ifeval_check_character_reverse(ifeval_args *a)
{
    return ifeval_has(ifeval_lower(a->text, a->arena), "elgae dlab");
}

/* The countries of Africa from Zimbabwe on, 52 lines or more in reverse alphabetical order. */
bool ifeval_check_reverse_newline(ifeval_args *a)
{
    ifeval_list lines = ifeval_split(a->text, ARES_VIEW("\n"), a->arena);
    ares_view before = { 0 };
    int64_t n = 0;
    bool sorted = true;
    for (int64_t i = 0; i < lines.n; i++) {
        ares_view line = ifeval_strip(lines.items[i]);
        if (!line.len || (n == 0 && !ifeval_has(line, "Zimbabwe"))) continue;
        line = ifeval_ascii(line, a->arena);
        size_t both = ARES_MIN(before.len, line.len);
        int order = both ? memcmp(before.data, line.data, both) : 0;
        if (n++) sorted = sorted && (order > 0 || (order == 0 && before.len >= line.len));
        before = line;
    }
    return n >= 52 && sorted;
}

/* The capitals of Europe from north to south, with commas between them. */
bool ifeval_check_european_capitals_sort(ifeval_args *a)
{
    ifeval_list pieces = ifeval_split(ifeval_ascii(a->text, a->arena), ARES_VIEW(","), a->arena);
    int n = 0, count = ifeval_table_count(IFEVAL_CAPITALS);
    for (int64_t i = 0; i < pieces.n; i++) {
        ares_view piece = ifeval_trim(pieces.items[i]);
        if (!piece.len) continue;
        if (n == count || !ares_view_eq(piece, ifeval_table_item(IFEVAL_CAPITALS, n))) return false;
        n++;
    }
    return n == count;
}

/* The decimal number of so many digits at byte `at`; false when another character is there. */
static bool digits_as_number(ares_view v, size_t at, size_t digits, int *out)
{
    *out = 0;
    for (size_t i = at; i < at + digits; i++) {
        if (v.data[i] < '0' || v.data[i] > '9') return false;
        *out = *out * 10 + (v.data[i] - '0');
    }
    return true;
}

/* Dates from 1769 to 1821 as YYYY-MM-DD, with commas between them. */
bool ifeval_check_date_format_list(ifeval_args *a)
{
    ifeval_list pieces = ifeval_split(a->text, ARES_VIEW(","), a->arena);
    for (int64_t i = 0; i < pieces.n; i++) {
        ares_view date = ifeval_trim(pieces.items[i]);
        int year, month, day;
        if (date.len != 10 || date.data[4] != '-' || date.data[7] != '-') return false;
        if (!digits_as_number(date, 0, 4, &year) || !digits_as_number(date, 5, 2, &month) ||
            !digits_as_number(date, 8, 2, &day))
            return false;
        /* month 0 passes, with any day, as in the reference */
        if (year < 1769 || year > 1821 || month > 12) return false;
        int days = month == 2                                              ? 29
                   : month == 4 || month == 6 || month == 9 || month == 11 ? 30
                   : month                                                 ? 31
                                                                           : 99;
        if (day > days) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- a quiz */
/*
 * Question \d+[.|):;]? at the beginning of v: returns what follows it; data NULL when it is not
 * there.
 */
static ares_view behind_label(ares_view v)
{
    ares_view label = ARES_VIEW("Question "), none = { NULL, 0 };
    if (!ares_view_starts(v, label)) return none;
    v = ifeval_from(v, label.len);
    if (!v.len || !ifeval_is_digit(ifeval_first(v))) return none;
    ifeval_next_digits(&v);
    return v.len && memchr(".|):;", v.data[0], 5) ? ifeval_from(v, 1) : v;
}

/* Four questions with five options each, every question longer than the one before it. */
bool ifeval_check_mcq_count_length(ifeval_args *a)
{
    ares_view rest = a->text;
    int64_t before = -1;
    int questions = 0;
    if (!ares_view_starts(rest, ARES_VIEW("Question"))) return false;
    while (rest.data) {
        int64_t at = -1;
        ares_view behind = { NULL, 0 };
        for (size_t from = 0;
             !behind.data && (at = ares_view_find(rest, ARES_VIEW("Question "), from)) >= 0;
             from = (size_t)at + 1)
            behind = behind_label(ifeval_from(rest, (size_t)at));
        ares_view question = ifeval_trim(behind.data ? (ares_view){ rest.data, (size_t)at } : rest);
        rest = behind;
        if (!question.len) continue;
        /* characters of the question before its options, its lines joined by blanks */
        ifeval_list lines = ifeval_split(question, ARES_VIEW("\n"), a->arena);
        int64_t options = 0, n = 0, blanks = 0;
        for (int64_t i = 0; i < lines.n; i++) {
            ares_view line = ifeval_trim(lines.items[i]);
            /* [A-Ea-e][.|)]\s*\w at the beginning of the line */
            if (line.len > 2 && memchr("ABCDEabcde", line.data[0], 10) &&
                memchr(".|)", line.data[1], 3) &&
                ifeval_is_word(ifeval_first(ifeval_trim_left(ifeval_from(line, 2)))))
                options++;
            else if (options) continue;
            else if (line.len) n += (n ? blanks + 1 : 0) + ifeval_length(line), blanks = 0;
            else blanks++; /* a blank line adds a blank, unless nothing follows */
        }
        if (++questions > 4 || options != 5 || n <= before) return false;
        before = n;
    }
    return questions == 4;
}

/* ---------------------------------------------------------------- tables */
/* A header and 7 rows of five fields. */
bool ifeval_check_csv_city(ifeval_args *a)
{
    static const char *const header[] = { "ID", "Country", "City", "Year", "Count" };
    ifeval_rows rows = ifeval_csv(a->text, ',', a->arena);
    if (rows.n != 8) return false;
    for (int64_t i = 0; i < rows.n; i++)
        if (rows.items[i].n != ARES_COUNT(header)) return false;
    for (int i = 0; i < ARES_COUNT(header); i++)
        if (!ares_view_is(rows.items[0].items[i], header[i])) return false;
    return true;
}

/*
 * Whether the first line is these names, with or without quotes, with the delimiter and any of
 * `blanks` between them.
 */
static bool is_header(ares_view text, const char *const names[5], char delimiter,
                      const char *blanks)
{
    int64_t end = ares_view_find(text, ARES_VIEW("\n"), 0);
    ares_view line = ifeval_trim(end >= 0 ? (ares_view){ text.data, (size_t)end } : text);
    for (int i = 0; i < 5; i++) {
        if (i) {
            if (!line.len || line.data[0] != delimiter) return false;
            do line = ifeval_from(line, 1);
            while (line.len && strchr(blanks, line.data[0]) && line.data[0]);
        }
        bool quoted = line.len && line.data[0] == '"';
        if (quoted) line = ifeval_from(line, 1);
        if (!ares_view_starts(line, ares_view_of(names[i]))) return false;
        line = ifeval_from(line, strlen(names[i]));
        if (quoted && (!line.len || line.data[0] != '"')) return false;
        if (quoted) line = ifeval_from(line, 1);
    }
    return line.len == 0;
}

/* Rows with tripled quotes, so that the reader leaves quotes in the fields. */
static ifeval_rows quoted_rows(ifeval_args *a, char delimiter)
{
    return ifeval_csv(ifeval_replace(a->text, ARES_VIEW("\""), ARES_VIEW("\"\"\""), a->arena),
                      delimiter, a->arena);
}

/* ".*[^\d\w\s].*" at the beginning of a field, on its first line */
static bool is_special(ares_view field)
{
    int64_t end = ares_view_find(field, ARES_VIEW("\n"), 0);
    const char *p = field.data, *stop = p + (end >= 0 ? (size_t)end : field.len), *quote;
    if (p == stop || *p != '"' || (quote = memrchr(p, '"', (size_t)(stop - p))) == p) return false;
    for (p++; p < quote;) {
        uint32_t c = ifeval_next(&p, stop);
        if (!ifeval_is_word(c) && !ifeval_is_space(c)) return true;
    }
    return false;
}

/* 15 rows of five fields, one of which is quoted and has a special character. */
bool ifeval_check_csv_special_character(ifeval_args *a)
{
    static const char *const names[] = { "ProductID", "Category", "Brand", "Price", "Stock" };
    if (!is_header(a->text, names, ',', " \t")) return false;
    ifeval_rows rows = quoted_rows(a, ',');
    if (rows.n != 15) return false;
    for (int64_t i = 1; i < rows.n; i++) {
        if (rows.items[i].n != ARES_COUNT(names)) return false;
        /* as in the reference, a row after the first hit is not examined */
        for (int k = 0; k < ARES_COUNT(names); k++)
            if (is_special(rows.items[i].items[k])) return true;
    }
    return false;
}

/* 4 rows of five fields between tabs, every field in double quotes. */
bool ifeval_check_csv_quotes(ifeval_args *a)
{
    static const char *const names[] = { "StudentID", "Subject", "Grade", "Semester", "Score" };
    if (!is_header(a->text, names, '\t', " ")) return false;
    ifeval_rows rows = quoted_rows(a, '\t');
    if (rows.n != 4) return false;
    for (int64_t i = 0; i < rows.n; i++) {
        if (rows.items[i].n != ARES_COUNT(names)) return false;
        for (int k = 0; k < ARES_COUNT(names); k++) {
            ares_view field = ifeval_trim(rows.items[i].items[k]);
            if (!field.len || field.data[0] != '"' || field.data[field.len - 1] != '"')
                return false;
        }
    }
    return true;
}
