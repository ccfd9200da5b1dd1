/* Sentences: their ends, their order, their lengths. */
#include "check_tools.h"

static void count_ends(if_args *a, int64_t counts[3])
{
    if_list s = if_sentences(a->text, a->arena);
    for (int64_t i = 0; i < s.n; i++)
        for (int k = 0; k < 3; k++) counts[k] += if_ends(s.items[i], (ares_view){ &".?!"[k], 1 });
}

bool if_check_sentence_type(if_args *a)
{
    int64_t n[3] = { 0 };
    count_ends(a, n);
    return n[0] == 2 * n[1];
}

bool if_check_sentence_balance(if_args *a)
{
    int64_t n[3] = { 0 };
    count_ends(a, n);
    return n[0] == n[1] && n[1] == n[2];
}

/*
 * Two points for the first pair of words in a run with the same letter, one for each further word.
 */
static int64_t alliteration(ares_view sentence, ares_arena *arena)
{
    if_list words = if_words(if_lower(sentence, arena), arena);
    int64_t score = 0;
    uint32_t before = 0;
    bool matched = false;
    for (int64_t i = 0; i < words.n; i++) {
        ares_view word = if_strip_left(words.items[i]);
        if (!word.len) continue;
        bool match = before && if_first(word) == before - 1;
        if (match) score += matched ? 1 : 2;
        matched = match;
        before = if_first(word) + 1; /* 0: no word yet */
    }
    return score;
}

bool if_check_alliteration_increment(if_args *a)
{
    if_list s = if_sentences(a->text, a->arena);
    for (int64_t i = 0, before = -1; i < s.n; i++) {
        int64_t score = alliteration(s.items[i], a->arena);
        if (score <= before) return false;
        before = score;
    }
    return true;
}

/* The last character or the one before it: a variation selector may follow an emoji. */
static bool ends_in_emoji(ares_view plain)
{
    uint32_t before = 0, last = 0;
    for (const char *p = plain.data, *end = p + plain.len; p < end; last = if_next(&p, end))
        before = last;
    return if_is_emoji(last) || (before && if_is_emoji(before));
}

static ares_view plain(ares_view sentence, ares_arena *arena)
{
    return if_trim(if_delete_punct(sentence, arena));
}

bool if_check_emoji(if_args *a)
{
    if_list s = if_sentences(a->text, a->arena);
    for (int64_t i = 0; i < s.n; i++) {
        ares_view own = plain(s.items[i], a->arena);
        if (!own.len) return false;
        if (ends_in_emoji(own)) continue;
        if (i + 1 == s.n) return false;
        ares_view next = plain(s.items[i + 1], a->arena);
        if (!next.len || !if_is_emoji(if_first(next))) return false;
    }
    return true;
}

/* As in the reference, the words themselves may be the same. */
bool if_check_sentence_words(if_args *a)
{
    if_list s = if_sentences(a->text, a->arena);
    if (s.n != 3) return false;
    int64_t n = if_length(if_trim(s.items[0]));
    return if_length(if_trim(s.items[1])) == n && if_length(if_trim(s.items[2])) == n;
}

bool if_check_last_first(if_args *a)
{
    if_list s = if_sentences(a->text, a->arena);
    for (int64_t i = 1; i < s.n; i++) {
        ares_view last = if_last_word(if_strip_right(s.items[i - 1])),
                  first = if_first_word(if_strip_left(s.items[i]));
        if (!last.len || !first.len ||
            !ares_view_eq(if_lower(last, a->arena), if_lower(first, a->arena)))
            return false;
    }
    return true;
}

bool if_check_increment(if_args *a)
{
    double n = 0, before = 0;
    if (!if_arg_number(a, "small_n", &n)) return false;
    if_list s = if_sentences(a->text, a->arena);
    for (int64_t i = 0; i < s.n; i++) {
        double words = (double)if_words(if_delete_punct(s.items[i], a->arena), a->arena).n;
        if (i && words != before + n) return false;
        before = words;
    }
    return s.n > 0;
}

bool if_check_sentence_alphabet(if_args *a)
{
    if_list s = if_sentences(a->text, a->arena);
    if (s.n != 26) return false;
    for (int64_t i = 0; i < s.n; i++)
        if (if_to_lower(if_first(if_first_word(s.items[i]))) != 'a' + (uint32_t)i) return false;
    return true;
}

/*
 * Text with at least two sentences, then at least two bullets, and nothing else, not even a blank
 * line.
 */
bool if_check_no_bullets_bullets(if_args *a)
{
    if_list lines = if_split(a->text, ARES_VIEW("\n"), a->arena);
    int64_t sentences = 0, bullets = 0;
    bool in_text = true;
    for (int64_t i = 0; i < lines.n; i++) {
        ares_view line = if_trim(lines.items[i]);
        if (line.len && line.data[0] == '*') {
            in_text = false;
            bullets++;
            if (sentences < 2) return false;
        } else if (in_text) {
            int64_t n = line.len ? if_sentences(line, a->arena).n : 0;
            sentences += n;
            in_text = n > 0;
        } else {
            return false;
        }
    }
    return bullets >= 2;
}
