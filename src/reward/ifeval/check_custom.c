/* Tasks of IFBench that ask for one particular thing: a table, a list of countries, a quiz. */
#include <string.h>

#include "check_tools.h"

/* ---------------------------------------------------------------- lists */
bool if_check_multiples(if_args *a)
{
    static const char *const wanted[] = { "14", "21", "28", "35", "42", "49" };
    ares_view rest = a->text;
    for (int i = 0; i < ARES_COUNT(wanted); i++)
        if (!ares_view_is(if_next_digits(&rest), wanted[i])) return false;
    return !if_next_digits(&rest).data;
}

/*
 * Whether the words in reverse order contain "bald eagle". The task asks for one sentence, which a
 * text without full stops always is.
 */
bool if_check_word_reverse(if_args *a)
{
    ares_view text = if_delete_punct(if_lower(a->text, a->arena), a->arena);
    if_list words = if_words(text, a->arena);
    char *joined = ares_arena_alloc(a->arena, text.len + (size_t)words.n + 1), *w = joined;
    for (int64_t i = words.n; i-- > 0;) {
        if (w > joined) *w++ = ' ';
        w = mempcpy(w, words.items[i].data, words.items[i].len);
    }
    return if_has((ares_view){ joined, (size_t)(w - joined) }, "bald eagle");
}

bool if_check_character_reverse(if_args *a)
{
    return if_has(if_lower(a->text, a->arena), "elgae dlab");
}

static int compare(ares_view a, ares_view b)
{
    size_t n = ARES_MIN(a.len, b.len);
    int c = n ? memcmp(a.data, b.data, n) : 0;
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

bool if_check_reverse_newline(if_args *a)
{
    if_list lines = if_split(a->text, ARES_VIEW("\n"), a->arena);
    ares_view before = { 0 };
    int64_t n = 0;
    bool sorted = true;
    for (int64_t i = 0; i < lines.n; i++) {
        ares_view line = if_strip(lines.items[i]);
        if (!line.len || (n == 0 && !if_has(line, "Zimbabwe"))) continue;
        line = if_ascii(line, a->arena);
        if (n++) sorted = sorted && compare(before, line) >= 0;
        before = line;
    }
    return n >= 52 && sorted;
}

bool if_check_european_capitals_sort(if_args *a)
{
    if_list pieces = if_split(if_ascii(a->text, a->arena), ARES_VIEW(","), a->arena);
    int n = 0, count = if_table_count(IF_CAPITALS);
    for (int64_t i = 0; i < pieces.n; i++) {
        ares_view piece = if_trim(pieces.items[i]);
        if (!piece.len) continue;
        if (n == count || !ares_view_eq(piece, if_table_item(IF_CAPITALS, n))) return false;
        n++;
    }
    return n == count;
}

static bool number(ares_view v, size_t at, size_t digits, int *out)
{
    *out = 0;
    for (size_t i = at; i < at + digits; i++) {
        if (v.data[i] < '0' || v.data[i] > '9') return false;
        *out = *out * 10 + (v.data[i] - '0');
    }
    return true;
}

bool if_check_date_format_list(if_args *a)
{
    if_list pieces = if_split(a->text, ARES_VIEW(","), a->arena);
    for (int64_t i = 0; i < pieces.n; i++) {
        ares_view date = if_trim(pieces.items[i]);
        int year, month, day;
        if (date.len != 10 || date.data[4] != '-' || date.data[7] != '-') return false;
        if (!number(date, 0, 4, &year) || !number(date, 5, 2, &month) || !number(date, 8, 2, &day))
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
    v = if_from(v, label.len);
    if (!v.len || !if_is_digit(if_first(v))) return none;
    if_next_digits(&v);
    return v.len && memchr(".|):;", v.data[0], 5) ? if_from(v, 1) : v;
}

/* [A-Ea-e][.|)]\s*\w at the beginning of a line */
static bool is_option(ares_view line)
{
    if (line.len < 3 || !memchr("ABCDEabcde", line.data[0], 10) || !memchr(".|)", line.data[1], 3))
        return false;
    ares_view answer = if_trim_left(if_from(line, 2));
    return answer.len && if_is_word(if_first(answer));
}

/*
 * Characters of the question before its options, its lines joined by blanks; -1 unless it has five
 * options.
 */
static int64_t question_length(ares_view question, ares_arena *arena)
{
    if_list lines = if_split(question, ARES_VIEW("\n"), arena);
    int64_t options = 0, n = 0, blanks = 0;
    for (int64_t i = 0; i < lines.n; i++) {
        ares_view line = if_trim(lines.items[i]);
        if (is_option(line)) options++;
        else if (!options && line.len) n += (n ? blanks + 1 : 0) + if_length(line), blanks = 0;
        else if (!options) blanks++; /* a blank line adds a blank, unless nothing follows */
    }
    return options == 5 ? n : -1;
}

bool if_check_mcq_count_length(if_args *a)
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
            behind = behind_label(if_from(rest, (size_t)at));
        ares_view question = if_trim(behind.data ? (ares_view){ rest.data, (size_t)at } : rest);
        rest = behind;
        if (!question.len) continue;
        int64_t n = question_length(question, a->arena);
        if (++questions > 4 || n <= before) return false;
        before = n;
    }
    return questions == 4;
}

/* ---------------------------------------------------------------- tables */
bool if_check_csv_city(if_args *a)
{
    static const char *const header[] = { "ID", "Country", "City", "Year", "Count" };
    if_rows rows = if_csv(a->text, ',', a->arena);
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
    ares_view line = if_trim(end >= 0 ? (ares_view){ text.data, (size_t)end } : text);
    for (int i = 0; i < 5; i++) {
        if (i) {
            if (!line.len || line.data[0] != delimiter) return false;
            do line = if_from(line, 1);
            while (line.len && strchr(blanks, line.data[0]) && line.data[0]);
        }
        bool quoted = line.len && line.data[0] == '"';
        if (quoted) line = if_from(line, 1);
        if (!ares_view_starts(line, ares_view_of(names[i]))) return false;
        line = if_from(line, strlen(names[i]));
        if (quoted && (!line.len || line.data[0] != '"')) return false;
        if (quoted) line = if_from(line, 1);
    }
    return line.len == 0;
}

/* Rows with tripled quotes, so that the reader leaves quotes in the fields. */
static if_rows quoted_rows(if_args *a, char delimiter)
{
    return if_csv(if_replace(a->text, ARES_VIEW("\""), ARES_VIEW("\"\"\""), a->arena), delimiter,
                  a->arena);
}

/* ".*[^\d\w\s].*" at the beginning of a field, on its first line */
static bool is_special(ares_view field)
{
    int64_t end = ares_view_find(field, ARES_VIEW("\n"), 0);
    const char *p = field.data, *stop = p + (end >= 0 ? (size_t)end : field.len), *quote;
    if (p == stop || *p != '"' || (quote = memrchr(p, '"', (size_t)(stop - p))) == p) return false;
    for (p++; p < quote;) {
        uint32_t c = if_next(&p, stop);
        if (!if_is_word(c) && !if_is_space(c)) return true;
    }
    return false;
}

bool if_check_csv_special_character(if_args *a)
{
    static const char *const names[] = { "ProductID", "Category", "Brand", "Price", "Stock" };
    if (!is_header(a->text, names, ',', " \t")) return false;
    if_rows rows = quoted_rows(a, ',');
    if (rows.n != 15) return false;
    for (int64_t i = 1; i < rows.n; i++) {
        if (rows.items[i].n != ARES_COUNT(names)) return false;
        /* as in the reference, a row after the first hit is not examined */
        for (int k = 0; k < ARES_COUNT(names); k++)
            if (is_special(rows.items[i].items[k])) return true;
    }
    return false;
}

bool if_check_csv_quotes(if_args *a)
{
    static const char *const names[] = { "StudentID", "Subject", "Grade", "Semester", "Score" };
    if (!is_header(a->text, names, '\t', " ")) return false;
    if_rows rows = quoted_rows(a, '\t');
    if (rows.n != 4) return false;
    for (int64_t i = 0; i < rows.n; i++) {
        if (rows.items[i].n != ARES_COUNT(names)) return false;
        for (int k = 0; k < ARES_COUNT(names); k++) {
            ares_view field = if_trim(rows.items[i].items[k]);
            if (!field.len || field.data[0] != '"' || field.data[field.len - 1] != '"')
                return false;
        }
    }
    return true;
}
