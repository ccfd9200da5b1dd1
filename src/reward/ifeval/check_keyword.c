/*
 * Words that must, or must not, be there. Keywords are literal text; the reference's regular
 * expressions are not supported.
 */
#include "check_tools.h"

bool if_check_existence(if_args *a)
{
    const ares_json *keywords = NULL;
    if (!if_arg_texts(a, "keywords", &keywords)) return false;
    ares_view text = if_lower(a->text, a->arena);
    for (int64_t i = 0; i < keywords->count; i++)
        if (!if_spend(a, (int64_t)a->text.len) ||
            ares_view_find(text, if_lower(keywords->items[i].text, a->arena), 0) < 0)
            return false;
    return true;
}

bool if_check_forbidden_words(if_args *a)
{
    const ares_json *words = NULL;
    if (!if_arg_texts(a, "forbidden_words", &words)) return false;
    ares_view text = if_lower(a->text, a->arena);
    for (int64_t i = 0; i < words->count; i++)
        if (!if_spend(a, (int64_t)a->text.len) ||
            if_has_word(text, if_lower(words->items[i].text, a->arena)))
            return false;
    return true;
}

bool if_check_frequency(if_args *a)
{
    ares_view keyword = { 0 };
    bool holds = false;
    if (!if_arg_filled(a, "keyword", &keyword)) return false;
    keyword = if_lower(if_trim(keyword), a->arena);
    double count = (double)if_count(if_lower(a->text, a->arena), keyword);
    return if_arg_relation(a, "relation", "frequency", count, &holds) && holds;
}

bool if_check_letter_frequency(if_args *a)
{
    ares_view letter = { 0 };
    bool holds = false;
    if (!if_arg_filled(a, "letter", &letter)) return false;
    if (if_length(letter) != 1) {
        a->fault = "letter";
        return false;
    }
    double count = (double)if_count(if_lower(a->text, a->arena), if_lower(letter, a->arena));
    return if_arg_relation(a, "let_relation", "let_frequency", count, &holds) && holds;
}

bool if_check_keywords_multiple(if_args *a)
{
    static const struct {
        const char *key;
        int times;
    } wanted[] = { { "keyword1", 1 },
                   { "keyword2", 2 },
                   { "keyword3", 3 },
                   { "keyword4", 5 },
                   { "keyword5", 7 } };
    ares_view text = if_lower(a->text, a->arena), keyword = { 0 };
    bool holds = true;
    for (int i = 0; i < ARES_COUNT(wanted); i++)
        holds = if_arg_filled(a, wanted[i].key, &keyword) &&
                if_count(text, if_lower(if_trim(keyword), a->arena)) == wanted[i].times && holds;
    return holds;
}

/* Sentence 0 is the last one, as Python counts. */
bool if_check_sentence_keyword(if_args *a)
{
    ares_view word = { 0 };
    int64_t n = 0;
    if (!if_arg_filled(a, "word", &word) || !if_arg_whole(a, "N", &n)) return false;
    if_list s = if_sentences(a->text, a->arena);
    if (s.n < n || s.n == 0) return false;
    return if_has_word(if_lower(s.items[n ? n - 1 : s.n - 1], a->arena), if_lower(word, a->arena));
}

static bool same_word(ares_view a, ares_view b, ares_arena *arena)
{
    return ares_view_eq(if_lower(a, arena), if_lower(b, arena));
}

static bool is_sound(ares_view token) /* has a letter or a number */
{
    const char *p = token.data, *end = p + token.len;
    while (p < end) {
        uint32_t c = if_next(&p, end);
        if (c != '_' && if_is_word(c)) return true;
    }
    return false;
}

bool if_check_keywords_specific_position(if_args *a)
{
    ares_view keyword = { 0 };
    int64_t n = 0, m = 0;
    if (!if_arg_filled(a, "keyword", &keyword) || !if_arg_whole(a, "n", &n) ||
        !if_arg_whole(a, "m", &m))
        return false;
    if (n == 0 || m == 0) {
        a->fault = n ? "m" : "n";
        return false;
    }
    if_list s = if_sentences(a->text, a->arena);
    if (s.n < n) return false;
    if_list tokens = if_tokens(s.items[n - 1], a->arena);
    for (int64_t i = 0; i < tokens.n; i++)
        if (is_sound(tokens.items[i]) && --m == 0)
            return same_word(tokens.items[i], if_trim(keyword), a->arena);
    return false;
}

/*
 * The second token and the second to last; a last token of punctuation (one character, or a piece
 * of this list in its order) does not count.
 */
bool if_check_words_position(if_args *a)
{
    ares_view keyword = { 0 };
    if (!if_arg_text(a, "keyword", &keyword)) return false;
    if_list t = if_tokens(a->text, a->arena);
    if (t.n < 2) return false;
    bool mark =
        ares_view_find(ARES_VIEW("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"), t.items[t.n - 1], 0) >= 0;
    if (mark && t.n < 3) return false;
    keyword = if_trim(keyword);
    return same_word(t.items[1], keyword, a->arena) &&
           same_word(t.items[t.n - (mark ? 3 : 2)], keyword, a->arena);
}
