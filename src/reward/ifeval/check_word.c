/* What every word of a text must be like. */
#include <string.h>

#include "check_tools.h"

static if_list plain_words(if_args *a) /* lower case, without punctuation */
{
    return if_words(if_delete_punct(if_lower(a->text, a->arena), a->arena), a->arena);
}

bool if_check_alphabet(if_args *a)
{
    if_list words = plain_words(a);
    if (!words.n) return false;
    uint32_t want = if_first(words.items[0]);
    if (want < 'a' || want > 'z') return false;
    for (int64_t i = 1; i < words.n; i++) {
        want = want == 'z' ? 'a' : want + 1;
        if (if_first(words.items[i]) != want) return false;
    }
    return true;
}

bool if_check_vowel(if_args *a)
{
    ares_view text = if_trim(a->text);
    int kinds = 0;
    if (if_has(text, "\n")) return false;
    for (const char *v = "aeiou"; *v; v++)
        kinds += memchr(text.data, *v, text.len) || memchr(text.data, *v - 32, text.len);
    return kinds <= 3;
}

static bool is_consonant(char c)
{
    return c >= 'a' && c <= 'z' && !strchr("aeiou", c);
}

bool if_check_consonants(if_args *a)
{
    if_list words = if_words(if_lower(a->text, a->arena), a->arena);
    for (int64_t i = 0; i < words.n; i++) {
        ares_view w = words.items[i];
        bool cluster = false;
        for (size_t k = 0; k + 1 < w.len && !cluster; k++)
            cluster = is_consonant(w.data[k]) && is_consonant(w.data[k + 1]);
        if (!cluster) return false;
    }
    return true;
}

bool if_check_palindrome(if_args *a)
{
    if_list words = plain_words(a);
    uint32_t *chars = ares_arena_alloc(a->arena, (a->text.len + 1) * sizeof *chars);
    int found = 0;
    for (int64_t i = 0; i < words.n; i++) {
        const char *p = words.items[i].data, *end = p + words.items[i].len;
        size_t n = 0, k = 0;
        while (p < end) chars[n++] = if_next(&p, end);
        while (k < n / 2 && chars[k] == chars[n - 1 - k]) k++;
        found += n >= 5 && k == n / 2;
    }
    return found >= 10;
}

bool if_check_prime_lengths(if_args *a)
{
    static const char primes[] = { 2,  3,  5,  7,  11, 13, 17, 19, 23, 29, 31, 37, 41,
                                   43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97 };
    if_list words = if_words(if_delete_punct(a->text, a->arena), a->arena);
    for (int64_t i = 0; i < words.n; i++) {
        int64_t n = if_length(words.items[i]);
        if (n > 97 || !memchr(primes, (int)n, sizeof primes)) return false;
    }
    return true;
}

static bool is_number(ares_view word)
{
    const char *p = word.data, *end = p + word.len;
    while (p < end)
        if (!if_is_digit(if_next(&p, end))) return false;
    return true;
}

static bool is_japanese(ares_view word)
{
    const char *p = word.data, *end = p + word.len;
    while (p < end) {
        uint32_t c = if_next(&p, end);
        if ((c >= 0x3040 && c <= 0x30ff) || (c >= 0x4e00 && c <= 0x9fff)) return true;
    }
    return false;
}

bool if_check_words_japanese(if_args *a)
{
    int64_t n = 0;
    if (!if_arg_whole(a, "N", &n)) return false;
    if (n == 0) {
        a->fault = "N";
        return false;
    }
    if_list words = if_words(a->text, a->arena);
    for (int64_t i = n - 1; i < words.n; i += n) {
        ares_view word = if_strip(words.items[i]);
        if (word.len && !is_number(word) && !is_japanese(word)) return false;
    }
    return true;
}

bool if_check_start_verb(if_args *a)
{
    return if_is_verb(a->text);
}

bool if_check_repeats(if_args *a)
{
    double n = 0;
    int64_t most = 0;
    if (!if_arg_number(a, "small_n", &n)) return false;
    if_distinct(plain_words(a), &most, a->arena);
    return (double)most <= n;
}

bool if_check_odd_even_syllables(if_args *a)
{
    if_list words = plain_words(a);
    for (int64_t i = 0, before = -1; i < words.n; i++) {
        int parity = if_syllables(words.items[i]) % 2;
        if (parity == before) return false;
        before = parity;
    }
    return true;
}

bool if_check_no_consecutive(if_args *a)
{
    if_list words = plain_words(a);
    for (int64_t i = 1; i < words.n; i++)
        if (if_first(words.items[i]) == if_first(words.items[i - 1])) return false;
    return true;
}

bool if_check_paragraph_last_first(if_args *a)
{
    if_list lines = if_split(if_lower(a->text, a->arena), ARES_VIEW("\n"), a->arena);
    for (int64_t i = 0; i < lines.n; i++) {
        ares_view line = if_strip(if_trim(lines.items[i]));
        if (!ares_view_eq(if_first_word(line), if_last_word(line))) return false;
    }
    return true;
}

/* Whether a lower-case letter is followed by lower case only, by upper case only, or by nothing. */
static bool is_untitled(ares_view w)
{
    const char *p = w.data, *end = p + w.len;
    uint32_t first = if_next(&p, end);
    ares_view rest = { p, (size_t)(end - p) };
    return if_is_lower(first) && (!rest.len || if_lower_text(rest) || if_upper_text(rest));
}

/* Only clear violations count: "iPhone" passes, and "Don't" fails by its token "n't". */
bool if_check_title_case(if_args *a)
{
    if_list tokens = if_tokens(a->text, a->arena);
    for (int64_t i = 0; i < tokens.n; i++)
        if (if_is_letter(if_first(tokens.items[i])) && is_untitled(tokens.items[i])) return false;
    return true;
}
