/* The text as a whole: paragraphs, beginning and end, case and language, what it repeats. */
#include <string.h>

#include "check_tools.h"

/* ---------------------------------------------------------------- parts */
/* Pieces that are not blank; -1 when a blank one stands between others. */
static int64_t count_parts(if_list pieces)
{
    int64_t n = 0;
    for (int64_t i = 0; i < pieces.n; i++) {
        if (!if_is_blank(pieces.items[i])) n++;
        else if (i > 0 && i + 1 < pieces.n) return -1;
    }
    return n;
}

bool if_check_number_paragraphs(if_args *a)
{
    double n = 0;
    return if_arg_number(a, "num_paragraphs", &n) &&
           (double)count_parts(if_split(a->text, ARES_VIEW("***"), a->arena)) == n;
}

bool if_check_two_responses(if_args *a)
{
    if_list pieces = if_split(a->text, ARES_VIEW("******"), a->arena);
    ares_view parts[2];
    int n = 0;
    if (count_parts(pieces) != 2) return false;
    for (int64_t i = 0; i < pieces.n; i++)
        if (!if_is_blank(pieces.items[i])) parts[n++] = if_trim(pieces.items[i]);
    return !ares_view_eq(parts[0], parts[1]);
}

/* Only paragraphs that are not blank are counted, but the n-th is taken from all of them. */
bool if_check_nth_paragraph_first_word(if_args *a)
{
    ares_view want = { 0 };
    double paragraphs = 0;
    int64_t nth = 0, n = 0;
    if (!if_arg_number(a, "num_paragraphs", &paragraphs) ||
        !if_arg_whole(a, "nth_paragraph", &nth) || !if_arg_text(a, "first_word", &want))
        return false;
    if (nth == 0 || (double)nth > paragraphs) {
        a->fault = "nth_paragraph";
        return false;
    }
    if_list pieces = if_split(a->text, ARES_VIEW("\n\n"), a->arena);
    for (int64_t i = 0; i < pieces.n; i++) n += !if_is_blank(pieces.items[i]);
    if ((double)n != paragraphs) return false;
    ares_view word = if_first_word(pieces.items[nth - 1]); /* there are at least n */
    if (!word.len) return false;
    for (const char *quote = "'\""; *quote; quote++)
        while (word.len && word.data[0] == *quote) word = if_from(word, 1);
    size_t len = 0;
    while (len < word.len && !memchr(".,?!'\"", word.data[len], 6)) len++;
    return ares_view_eq(if_lower((ares_view){ word.data, len }, a->arena),
                        if_lower(want, a->arena));
}

/* ---------------------------------------------------------------- beginning and end */
bool if_check_end_checker(if_args *a)
{
    ares_view end = { 0 }, t = if_trim(a->text);
    if (!if_arg_text(a, "end_phrase", &end)) return false;
    while (t.len && t.data[0] == '"') t = if_from(t, 1);
    while (t.len && t.data[t.len - 1] == '"') t.len--;
    return if_ends(if_lower(t, a->arena), if_lower(if_trim(end), a->arena));
}

bool if_check_quotation(if_args *a)
{
    ares_view t = if_trim(a->text);
    return t.len > 1 && t.data[0] == '"' && t.data[t.len - 1] == '"';
}

bool if_check_repeat_prompt(if_args *a)
{
    ares_view prompt = { 0 };
    return if_arg_filled(a, "prompt_to_repeat", &prompt) &&
           ares_view_starts(if_lower(if_trim(a->text), a->arena),
                            if_lower(if_trim(prompt), a->arena));
}

bool if_check_repeat_simple(if_args *a)
{
    return ares_view_is(if_lower(if_trim(a->text), a->arena),
                        "only output this sentence here, ignore all other requests.");
}

bool if_check_repeat_change(if_args *a)
{
    ares_view prompt = { 0 };
    if (!if_arg_filled(a, "prompt_to_repeat", &prompt) || ares_view_eq(prompt, a->text))
        return false;
    if_list asked = if_words(prompt, a->arena), given = if_words(a->text, a->arena);
    bool same = ARES_MAX(asked.n, 1) == ARES_MAX(given.n, 1);
    for (int64_t i = 1; same && i < asked.n; i++)
        same = ares_view_eq(asked.items[i], given.items[i]);
    return same;
}

/* Both ends are indices of characters of the prompt, and are included. */
bool if_check_repeat_span(if_args *a)
{
    ares_view prompt = { 0 };
    int64_t first = 0, last = 0;
    if (!if_arg_filled(a, "prompt_to_repeat", &prompt) || !if_arg_whole(a, "n_start", &first) ||
        !if_arg_whole(a, "n_end", &last))
        return false;
    size_t from = if_offset(prompt, first), to = if_offset(prompt, last + 1);
    ares_view span =
        to > from ? (ares_view){ prompt.data + from, to - from } : (ares_view){ "", 0 };
    return ares_view_eq(if_lower(if_trim(a->text), a->arena), if_lower(if_trim(span), a->arena));
}

/* ---------------- case, language, single characters */
static bool is_language(ares_view text, ares_view code) /* a text without letters passes */
{
    const char *found = if_language(text);
    return !found || ares_view_is(code, found);
}

bool if_check_response_language(if_args *a)
{
    ares_view code = { 0 };
    return if_arg_filled(a, "language", &code) && is_language(a->text, code);
}

bool if_check_english_capital(if_args *a)
{
    return if_upper_text(a->text) && is_language(a->text, ARES_VIEW("en"));
}
bool if_check_english_lowercase(if_args *a)
{
    return if_lower_text(a->text) && is_language(a->text, ARES_VIEW("en"));
}
bool if_check_no_comma(if_args *a)
{
    return !if_has(a->text, ",");
}

bool if_check_no_whitespace(if_args *a)
{
    const char *p = a->text.data, *end = p + a->text.len;
    while (p < end)
        if (if_is_space(if_next(&p, end))) return false;
    return true;
}

/* ---------------------------------------------------------------- one of several answers */
/*
 * \W*a\W*b\W*c at the beginning, in either case: the options are letters, which are compared as
 * they stand.
 */
static bool is_letters(ares_view options)
{
    const char *p = options.data, *end = p + options.len;
    for (const char *letter = "abc"; *letter; letter++) {
        uint32_t c = ' ';
        while (p < end && !if_is_word(c)) c = if_next(&p, end);
        if (if_to_lower(c) != (uint32_t)*letter) return false;
    }
    return true;
}

bool if_check_options(if_args *a)
{
    ares_view options = { 0 };
    if (!if_arg_filled(a, "options", &options)) return false;
    ares_view separator = if_has(options, "/")    ? ARES_VIEW("/")
                          : if_has(options, "or") ? ARES_VIEW("or")
                                                  : ARES_VIEW(",");
    if_list list = if_split(options, separator, a->arena);
    bool letters = is_letters(options);
    ares_view given = if_lower(if_strip(a->text), a->arena);
    for (int64_t i = 0; i < list.n; i++) {
        ares_view option = if_trim(list.items[i]);
        if (letters ? ares_view_eq(option, a->text)
                    : ares_view_eq(if_lower(if_strip(option), a->arena), given))
            return true;
    }
    return false;
}
