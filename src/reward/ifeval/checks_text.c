/* Checks of what a text says: counts, keywords, sentences, words, and the text as a whole. */
#include "ifeval.h"

#include <string.h>

/* How many words, sentences, names; what share of them. */

/* Runs of word characters are counted, and compared with num_words by `relation`. */
bool ifeval_check_number_words(ifeval_args *a)
{
    return ifeval_arg_relation(a, "relation", "num_words", (double)ifeval_count_words(a->text));
}

/* Sentences as NLTK finds them are counted. */
bool ifeval_check_number_sentences(ifeval_args *a)
{
    return ifeval_arg_relation(a, "relation", "num_sentences",
                               (double)ifeval_sentences(a->text, a->arena).n);
}

/* From min_words to max_words words. */
bool ifeval_check_word_count_range(ifeval_args *a)
{
    double least = 0, most = 0, n = (double)ifeval_count_words(a->text);
    return ifeval_arg_number(a, "min_words", &least) && ifeval_arg_number(a, "max_words", &most) &&
           least <= n && n <= most;
}

/* The number of different items; *most (may be NULL): how often the commonest occurs. */
static int64_t distinct(ifeval_list list, int64_t *most, ares_arena *arena)
{
    uint32_t *first = ifeval_group(list, arena),
             *times = ares_arena_calloc(arena, (size_t)list.n + 1, sizeof *times);
    int64_t different = 0, top = 0;
    for (int64_t i = 0; i < list.n; i++) {
        different += first[i] == i;
        times[first[i]]++;
        top = ARES_MAX(top, times[first[i]]);
    }
    if (most) *most = top;
    return different;
}

/* Words of punctuation only are all one word, the empty one. */
bool ifeval_check_unique_word_count(ifeval_args *a)
{
    double n = 0;
    if (!ifeval_arg_number(a, "N", &n)) return false;
    ifeval_list words = ifeval_words(ifeval_lower(a->text, a->arena), a->arena);
    for (int64_t i = 0; i < words.n; i++) words.items[i] = ifeval_strip(words.items[i]);
    return (double)distinct(words, NULL, a->arena) >= n;
}

/* At most `percentage` of the words are stop words. */
bool ifeval_check_stop_words(ifeval_args *a)
{
    double percentage = 0;
    if (!ifeval_arg_number(a, "percentage", &percentage)) return false;
    ares_view rest = ifeval_lower(a->text, a->arena);
    int64_t words = ifeval_count_words(a->text), stop = 0;
    for (ares_view word; (word = ifeval_next_run(&rest)).data;)
        stop += ifeval_table_has(IFEVAL_STOP_WORDS, word);
    return words && (double)stop / (double)words * 100 <= percentage;
}

/* Conjunctions differ by their spelling in the text: "And" and "and," are two. */
bool ifeval_check_conjunctions(ifeval_args *a)
{
    double n = 0;
    if (!ifeval_arg_number(a, "small_n", &n)) return false;
    /* found overwrites the list from its start: it never grows past the word in hand */
    ifeval_list words = ifeval_words(a->text, a->arena), found = { words.items, 0 };
    for (int64_t i = 0; i < words.n; i++) {
        ares_view word = ifeval_strip(words.items[i]);
        if (word.len && word.len <= 4 &&
            ifeval_table_has(IFEVAL_CONJUNCTIONS, ifeval_lower(word, a->arena)))
            found.items[found.n++] = words.items[i];
    }
    return (double)distinct(found, NULL, a->arena) >= n;
}

/* Names have letters only, so a name between word boundaries is a whole run of word characters. */
bool ifeval_check_person_names(ifeval_args *a)
{
    double n = 0;
    bool seen[64] = { 0 };
    int found = 0, names = ifeval_table_count(IFEVAL_PERSON_NAMES);
    ares_view rest = a->text;
    if (!ifeval_arg_number(a, "N", &n)) return false;
    for (ares_view word; (word = ifeval_next_run(&rest)).data;) {
        if (!ifeval_table_has(IFEVAL_PERSON_NAMES, word)) continue;
        for (int i = 0; i < names && i < ARES_COUNT(seen); i++) {
            if (seen[i] || !ares_view_eq(word, ifeval_table_item(IFEVAL_PERSON_NAMES, i))) continue;
            seen[i] = true;
            found++;
        }
    }
    return found >= n;
}

/* At least N pronouns; "he/she" is two. */
bool ifeval_check_pronouns(ifeval_args *a)
{
    double n = 0;
    int64_t found = 0;
    if (!ifeval_arg_number(a, "N", &n)) return false;
    ares_view text =
        ifeval_lower(ifeval_replace(a->text, ARES_VIEW("/"), ARES_VIEW(" "), a->arena), a->arena);
    ifeval_list tokens = ifeval_tokens(text, a->arena);
    for (int64_t i = 0; i < tokens.n; i++)
        found += ifeval_table_has(IFEVAL_PRONOUNS, tokens.items[i]);
    return (double)found >= n;
}

/* Exactly N runs of digits; without punctuation 1,234.5 is one. */
bool ifeval_check_numbers(ifeval_args *a)
{
    double n = 0;
    int64_t found = 0;
    if (!ifeval_arg_number(a, "N", &n)) return false;
    ares_view rest = ifeval_delete_punct(a->text, a->arena);
    while (ifeval_next_digits(&rest).data) found++;
    return (double)found == n;
}

/* Tokens in capitals are counted. */
bool ifeval_check_capital_word_frequency(ifeval_args *a)
{
    int64_t count = 0;
    ifeval_list tokens = ifeval_tokens(a->text, a->arena);
    for (int64_t i = 0; i < tokens.n; i++) count += ifeval_upper_text(tokens.items[i]);
    return ifeval_arg_relation(a, "capital_relation", "capital_frequency", (double)count);
}

/* Each of . , ! ? ; : and an interrobang, which may be written ?! or !?. */
bool ifeval_check_punctuation(ifeval_args *a)
{
    int64_t question = ares_view_find(a->text, ARES_VIEW("?!"), 0),
            bang = ares_view_find(a->text, ARES_VIEW("!?"), 0);
    if (question < 0 && bang < 0 && !ifeval_has(a->text, "\xe2\x80\xbd")) return false;
    /* the two characters of the interrobang do not count again */
    int64_t cut = question >= 0 ? question : bang;
    for (const char *mark = ".,!?;:"; *mark; mark++) {
        bool found = false;
        for (size_t i = 0; i < a->text.len && !found; i++)
            found =
                a->text.data[i] == *mark && (cut < 0 || (int64_t)i < cut || (int64_t)i > cut + 1);
        if (!found) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- character trigrams */
/* A set of trigrams, three characters of 21 bits each. */
typedef struct grams {
    uint64_t *slot; /* [mask + 1] trigram + 1, 0: free; linear probing */
    size_t mask;
    int64_t n;
} grams;

/* Whether the trigram is there already; insert: it is there from now on. */
static bool add(grams *g, uint64_t gram, bool insert)
{
    size_t at = (size_t)((gram * 0x9e3779b97f4a7c15u) >> 20) & g->mask;
    while (g->slot[at] && g->slot[at] != gram + 1) at = (at + 1) & g->mask;
    if (g->slot[at]) return true;
    if (insert) g->slot[at] = gram + 1, g->n++;
    return false;
}

/* All trigrams of a text; with `in` given, *common counts the different ones that `in` has too. */
static grams trigrams(ares_view text, grams *in, int64_t *common, ares_arena *arena)
{
    grams g = { .mask = 15 };
    while (g.mask < text.len * 3 / 2) g.mask = g.mask * 2 + 1;
    g.slot = ares_arena_calloc(arena, g.mask + 1, sizeof *g.slot);
    const char *p = text.data, *end = p + text.len;
    uint64_t gram = 0;
    for (int64_t i = 0; p < end; i++) {
        gram = (gram << 21 | ifeval_next(&p, end)) & (((uint64_t)1 << 63) - 1);
        /* from the third character on; a trigram that came before does not count again */
        if (i >= 2 && !add(&g, gram, true) && in && add(in, gram, false)) ++*common;
    }
    return g;
}

/* Of the text's different trigrams, reference_text has `percentage` percent, give or take 2. */
bool ifeval_check_overlap(ifeval_args *a)
{
    ares_view reference = { 0 };
    double percentage = 0;
    int64_t common = 0;
    if (!ifeval_arg_text(a, "reference_text", &reference) ||
        !ifeval_arg_number(a, "percentage", &percentage) ||
        !ifeval_spend(a, (int64_t)reference.len * 4))
        return false;
    if (reference.len > IFEVAL_TEXT_MAX) return false;
    grams theirs = trigrams(reference, NULL, NULL, a->arena),
          own = trigrams(a->text, &theirs, &common, a->arena);
    if (!own.n) return false;
    double overlap = (double)common / (double)own.n * 100;
    return percentage - 2 <= overlap && overlap <= percentage + 2;
}

/*
 * Words that must, or must not, be there. Keywords are literal text; the reference's regular
 * expressions are not supported.
 */

/* Every keyword occurs, also inside a word. */
bool ifeval_check_existence(ifeval_args *a)
{
    const ares_json *keywords = NULL;
    if (!ifeval_arg_texts(a, "keywords", &keywords)) return false;
    ares_view text = ifeval_lower(a->text, a->arena);
    for (int64_t i = 0; i < keywords->count; i++)
        if (!ifeval_spend(a, (int64_t)a->text.len) ||
            ares_view_find(text, ifeval_lower(keywords->items[i].text, a->arena), 0) < 0)
            return false;
    return true;
}

/* No forbidden word occurs as a word. */
bool ifeval_check_forbidden_words(ifeval_args *a)
{
    const ares_json *words = NULL;
    if (!ifeval_arg_texts(a, "forbidden_words", &words)) return false;
    ares_view text = ifeval_lower(a->text, a->arena);
    for (int64_t i = 0; i < words->count; i++)
        if (!ifeval_spend(a, (int64_t)a->text.len) ||
            ifeval_has_word(text, ifeval_lower(words->items[i].text, a->arena)))
            return false;
    return true;
}

/* Occurrences of the keyword are counted, also those inside words. */
bool ifeval_check_frequency(ifeval_args *a)
{
    ares_view keyword = { 0 };
    if (!ifeval_arg_filled(a, "keyword", &keyword)) return false;
    keyword = ifeval_lower(ifeval_trim(keyword), a->arena);
    double count = (double)ifeval_count(ifeval_lower(a->text, a->arena), keyword);
    return ifeval_arg_relation(a, "relation", "frequency", count);
}

/* Occurrences of the letter are counted, in either case; it may be any character. */
bool ifeval_check_letter_frequency(ifeval_args *a)
{
    ares_view letter = { 0 };
    if (!ifeval_arg_filled(a, "letter", &letter)) return false;
    if (ifeval_length(letter) != 1) {
        a->fault = "letter";
        return false;
    }
    double count =
        (double)ifeval_count(ifeval_lower(a->text, a->arena), ifeval_lower(letter, a->arena));
    return ifeval_arg_relation(a, "let_relation", "let_frequency", count);
}

/* Five keywords occur once, twice, three, five and seven times. */
bool ifeval_check_keywords_multiple(ifeval_args *a)
{
    static const struct {
        const char *key;
        int times;
    } wanted[] = { { "keyword1", 1 },
                   { "keyword2", 2 },
                   { "keyword3", 3 },
                   { "keyword4", 5 },
                   { "keyword5", 7 } };
    ares_view text = ifeval_lower(a->text, a->arena), keyword = { 0 };
    bool holds = true;
    for (int i = 0; i < ARES_COUNT(wanted); i++)
        holds =
            ifeval_arg_filled(a, wanted[i].key, &keyword) &&
            ifeval_count(text, ifeval_lower(ifeval_trim(keyword), a->arena)) == wanted[i].times &&
            holds;
    return holds;
}

/* Sentence 0 is the last one, as Python counts. */
bool ifeval_check_sentence_keyword(ifeval_args *a)
{
    ares_view word = { 0 };
    int64_t n = 0;
    if (!ifeval_arg_filled(a, "word", &word) || !ifeval_arg_whole(a, "N", &n)) return false;
    ifeval_list s = ifeval_sentences(a->text, a->arena);
    if (s.n < n || s.n == 0) return false;
    return ifeval_has_word(ifeval_lower(s.items[n ? n - 1 : s.n - 1], a->arena),
                           ifeval_lower(word, a->arena));
}

/* Equal in any case; punctuation counts, because tokens have none around them. */
static bool same_word(ares_view a, ares_view b, ares_arena *arena)
{
    return ares_view_eq(ifeval_lower(a, arena), ifeval_lower(b, arena));
}

/* The m-th word of the n-th sentence is the keyword. */
bool ifeval_check_keywords_specific_position(ifeval_args *a)
{
    ares_view keyword = { 0 };
    int64_t n = 0, m = 0;
    if (!ifeval_arg_filled(a, "keyword", &keyword) || !ifeval_arg_whole(a, "n", &n) ||
        !ifeval_arg_whole(a, "m", &m))
        return false;
    if (n == 0 || m == 0) {
        a->fault = n ? "m" : "n";
        return false;
    }
    ifeval_list s = ifeval_sentences(a->text, a->arena);
    if (s.n < n) return false;
    ifeval_list tokens = ifeval_tokens(s.items[n - 1], a->arena);
    for (int64_t i = 0; i < tokens.n; i++) {
        bool sound = false; /* only tokens with a letter or a number count as words */
        for (const char *p = tokens.items[i].data, *end = p + tokens.items[i].len;
             p < end && !sound;) {
            uint32_t c = ifeval_next(&p, end);
            sound = c != '_' && ifeval_is_word(c);
        }
        if (sound && --m == 0) return same_word(tokens.items[i], ifeval_trim(keyword), a->arena);
    }
    return false;
}

/*
 * The second token and the second to last; a last token of punctuation (one character, or a piece
 * of this list in its order) does not count.
 */
bool ifeval_check_words_position(ifeval_args *a)
{
    ares_view keyword = { 0 };
    if (!ifeval_arg_text(a, "keyword", &keyword)) return false;
    ifeval_list t = ifeval_tokens(a->text, a->arena);
    if (t.n < 2) return false;
    bool mark =
        ares_view_find(ARES_VIEW("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"), t.items[t.n - 1], 0) >= 0;
    if (mark && t.n < 3) return false;
    keyword = ifeval_trim(keyword);
    return same_word(t.items[1], keyword, a->arena) &&
           same_word(t.items[t.n - (mark ? 3 : 2)], keyword, a->arena);
}

/* Sentences: their ends, their order, their lengths. */

/* How many sentences end in ".", "?" and "!". */
static void count_ends(ifeval_args *a, int64_t counts[3])
{
    ifeval_list s = ifeval_sentences(a->text, a->arena);
    for (int64_t i = 0; i < s.n; i++)
        for (int k = 0; k < 3; k++)
            counts[k] += ifeval_ends(s.items[i], (ares_view){ &".?!"[k], 1 });
}

/* Twice as many statements as questions. */
bool ifeval_check_sentence_type(ifeval_args *a)
{
    int64_t n[3] = { 0 };
    count_ends(a, n);
    return n[0] == 2 * n[1];
}

/* As many statements as questions and exclamations. */
bool ifeval_check_sentence_balance(ifeval_args *a)
{
    int64_t n[3] = { 0 };
    count_ends(a, n);
    return n[0] == n[1] && n[1] == n[2];
}

/*
 * Each sentence has a higher score of alliteration than the one before it: two points for the first
 * pair of words in a run with the same letter, one for each further word.
 */
bool ifeval_check_alliteration_increment(ifeval_args *a)
{
    ifeval_list s = ifeval_sentences(a->text, a->arena);
    for (int64_t i = 0, least = 0; i < s.n; i++) {
        ifeval_list words = ifeval_words(ifeval_lower(s.items[i], a->arena), a->arena);
        int64_t score = 0;
        uint32_t before = 0; /* first character of the last word, plus one; 0: no word yet */
        bool matched = false;
        for (int64_t k = 0; k < words.n; k++) {
            ares_view word = ifeval_strip_left(words.items[k]);
            if (!word.len) continue;
            bool match = before && ifeval_first(word) == before - 1;
            if (match) score += matched ? 1 : 2;
            matched = match;
            before = ifeval_first(word) + 1;
        }
        if (score < least) return false;
        least = score + 1;
    }
    return true;
}

/* The sentence without its punctuation, so that its last character is of a word or an emoji. */
static ares_view plain(ares_view sentence, ares_arena *arena)
{
    return ifeval_trim(ifeval_delete_punct(sentence, arena));
}

/* Every sentence has an emoji at its end, or the next one begins with it. */
bool ifeval_check_emoji(ifeval_args *a)
{
    ifeval_list s = ifeval_sentences(a->text, a->arena);
    for (int64_t i = 0; i < s.n; i++) {
        ares_view own = plain(s.items[i], a->arena);
        if (!own.len) return false;
        uint32_t before = 0, last = 0;
        for (const char *p = own.data, *end = p + own.len; p < end; last = ifeval_next(&p, end))
            before = last;
        /* a variation selector may follow an emoji */
        if (ifeval_is_emoji(last) || (before && ifeval_is_emoji(before))) continue;
        if (i + 1 == s.n) return false;
        ares_view next = plain(s.items[i + 1], a->arena);
        if (!next.len || !ifeval_is_emoji(ifeval_first(next))) return false;
    }
    return true;
}

/* As in the reference, the words themselves may be the same. */
bool ifeval_check_sentence_words(ifeval_args *a)
{
    ifeval_list s = ifeval_sentences(a->text, a->arena);
    if (s.n != 3) return false;
    int64_t n = ifeval_length(ifeval_trim(s.items[0]));
    return ifeval_length(ifeval_trim(s.items[1])) == n &&
           ifeval_length(ifeval_trim(s.items[2])) == n;
}

/* Each sentence begins with the last word of the one before it. */
bool ifeval_check_last_first(ifeval_args *a)
{
    ifeval_list s = ifeval_sentences(a->text, a->arena);
    for (int64_t i = 1; i < s.n; i++) {
        ares_view last = ifeval_last_word(ifeval_strip_right(s.items[i - 1])),
                  first = ifeval_first_word(ifeval_strip_left(s.items[i]));
        if (!last.len || !first.len || !same_word(last, first, a->arena)) return false;
    }
    return true;
}

/* Each sentence has small_n words more than the one before it. */
bool ifeval_check_increment(ifeval_args *a)
{
    double n = 0, before = 0;
    if (!ifeval_arg_number(a, "small_n", &n)) return false;
    ifeval_list s = ifeval_sentences(a->text, a->arena);
    for (int64_t i = 0; i < s.n; i++) {
        double words = (double)ifeval_words(ifeval_delete_punct(s.items[i], a->arena), a->arena).n;
        if (i && words != before + n) return false;
        before = words;
    }
    return s.n > 0;
}

/* 26 sentences that begin with a, b, .. z. */
bool ifeval_check_sentence_alphabet(ifeval_args *a)
{
    ifeval_list s = ifeval_sentences(a->text, a->arena);
    if (s.n != 26) return false;
    for (int64_t i = 0; i < s.n; i++)
        if (ifeval_to_lower(ifeval_first(ifeval_first_word(s.items[i]))) != 'a' + (uint32_t)i)
            return false;
    return true;
}

/*
 * Text with at least two sentences, then at least two bullets, and nothing else, not even a blank
 * line.
 */
bool ifeval_check_no_bullets_bullets(ifeval_args *a)
{
    ifeval_list lines = ifeval_split(a->text, ARES_VIEW("\n"), a->arena);
    int64_t sentences = 0, bullets = 0;
    bool in_text = true;
    for (int64_t i = 0; i < lines.n; i++) {
        ares_view line = ifeval_trim(lines.items[i]);
        if (line.len && line.data[0] == '*') {
            in_text = false;
            bullets++;
            if (sentences < 2) return false;
        } else if (in_text) {
            int64_t n = line.len ? ifeval_sentences(line, a->arena).n : 0;
            sentences += n;
            in_text = n > 0;
        } else {
            return false;
        }
    }
    return bullets >= 2;
}

/* What every word of a text must be like. */

/* The words of the text in lower case, without punctuation. */
static ifeval_list plain_words(ifeval_args *a)
{
    return ifeval_words(ifeval_delete_punct(ifeval_lower(a->text, a->arena), a->arena), a->arena);
}

/* Each word begins with the letter after the one that the word before it begins with. */
bool ifeval_check_alphabet(ifeval_args *a)
{
    ifeval_list words = plain_words(a);
    if (!words.n) return false;
    uint32_t want = ifeval_first(words.items[0]);
    if (want < 'a' || want > 'z') return false;
    for (int64_t i = 1; i < words.n; i++) {
        want = want == 'z' ? 'a' : want + 1;
        if (ifeval_first(words.items[i]) != want) return false;
    }
    return true;
}

/* One line with at most three different vowels. */
bool ifeval_check_vowel(ifeval_args *a)
{
    ares_view text = ifeval_trim(a->text);
    int kinds = 0;
    if (ifeval_has(text, "\n")) return false;
    for (const char *v = "aeiou"; *v; v++)
        kinds += memchr(text.data, *v, text.len) || memchr(text.data, *v - 32, text.len);
    return kinds <= 3;
}

/* Of ASCII in lower case; y is one. */
static bool is_consonant(char c)
{
    return c >= 'a' && c <= 'z' && !strchr("aeiou", c);
}

/* Every word has two consonants side by side. */
bool ifeval_check_consonants(ifeval_args *a)
{
    ifeval_list words = ifeval_words(ifeval_lower(a->text, a->arena), a->arena);
    for (int64_t i = 0; i < words.n; i++) {
        ares_view w = words.items[i];
        bool cluster = false;
        for (size_t k = 0; k + 1 < w.len && !cluster; k++)
            cluster = is_consonant(w.data[k]) && is_consonant(w.data[k + 1]);
        if (!cluster) return false;
    }
    return true;
}

/* Ten palindromes of five or more characters. */
bool ifeval_check_palindrome(ifeval_args *a)
{
    ifeval_list words = plain_words(a);
    uint32_t *chars = ares_arena_alloc(a->arena, (a->text.len + 1) * sizeof *chars);
    int found = 0;
    for (int64_t i = 0; i < words.n; i++) {
        const char *p = words.items[i].data, *end = p + words.items[i].len;
        size_t n = 0, k = 0;
        while (p < end) chars[n++] = ifeval_next(&p, end);
        while (k < n / 2 && chars[k] == chars[n - 1 - k]) k++;
        found += n >= 5 && k == n / 2;
    }
    return found >= 10;
}

/* The length of every word is a prime number. */
bool ifeval_check_prime_lengths(ifeval_args *a)
{
    static const char primes[] = { 2,  3,  5,  7,  11, 13, 17, 19, 23, 29, 31, 37, 41,
                                   43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97 };
    ifeval_list words = ifeval_words(ifeval_delete_punct(a->text, a->arena), a->arena);
    for (int64_t i = 0; i < words.n; i++) {
        int64_t n = ifeval_length(words.items[i]);
        if (n > 97 || !memchr(primes, (int)n, sizeof primes)) return false;
    }
    return true;
}

/* Every N-th word is Japanese; numbers and punctuation pass. */
bool ifeval_check_words_japanese(ifeval_args *a)
{
    int64_t n = 0;
    if (!ifeval_arg_whole(a, "N", &n)) return false;
    if (n == 0) {
        a->fault = "N";
        return false;
    }
    ifeval_list words = ifeval_words(a->text, a->arena);
    for (int64_t i = n - 1; i < words.n; i += n) {
        ares_view word = ifeval_strip(words.items[i]);
        bool number = true, japanese = false;
        for (const char *p = word.data, *end = p + word.len; p < end;) {
            uint32_t c = ifeval_next(&p, end);
            number = number && ifeval_is_digit(c);
            japanese = japanese || (c >= 0x3040 && c <= 0x30ff) || (c >= 0x4e00 && c <= 0x9fff);
        }
        if (word.len && !number && !japanese) return false;
    }
    return true;
}

/* The first word is a verb: of the list, or an -ing form that is none of its exceptions. */
bool ifeval_check_start_verb(ifeval_args *a)
{
    return ifeval_is_verb(a->text);
}

/* No word occurs more than small_n times. */
bool ifeval_check_repeats(ifeval_args *a)
{
    double n = 0;
    int64_t most = 0;
    if (!ifeval_arg_number(a, "small_n", &n)) return false;
    distinct(plain_words(a), &most, a->arena);
    return (double)most <= n;
}

/* Words with an odd and an even number of syllables alternate. */
bool ifeval_check_odd_even_syllables(ifeval_args *a)
{
    ifeval_list words = plain_words(a);
    for (int64_t i = 0, before = -1; i < words.n; i++) {
        int parity = ifeval_syllables(words.items[i]) % 2;
        if (parity == before) return false;
        before = parity;
    }
    return true;
}

/* No two neighbouring words begin with the same character. */
bool ifeval_check_no_consecutive(ifeval_args *a)
{
    ifeval_list words = plain_words(a);
    for (int64_t i = 1; i < words.n; i++)
        if (ifeval_first(words.items[i]) == ifeval_first(words.items[i - 1])) return false;
    return true;
}

/* Every line ends with the word that it begins with. */
bool ifeval_check_paragraph_last_first(ifeval_args *a)
{
    ifeval_list lines = ifeval_split(ifeval_lower(a->text, a->arena), ARES_VIEW("\n"), a->arena);
    for (int64_t i = 0; i < lines.n; i++) {
        ares_view line = ifeval_strip(ifeval_trim(lines.items[i]));
        if (!ares_view_eq(ifeval_first_word(line), ifeval_last_word(line))) return false;
    }
    return true;
}

/*
 * Only clear violations count: a lower-case letter followed by lower case alone, by upper case
 * alone, or by nothing. "iPhone" passes, and "Don't" fails by its token "n't".
 */
bool ifeval_check_title_case(ifeval_args *a)
{
    ifeval_list tokens = ifeval_tokens(a->text, a->arena);
    for (int64_t i = 0; i < tokens.n; i++) {
        const char *p = tokens.items[i].data, *end = p + tokens.items[i].len;
        uint32_t first = ifeval_next(&p, end);
        ares_view rest = { p, (size_t)(end - p) };
        if (ifeval_is_letter(first) && ifeval_is_lower(first) &&
            (!rest.len || ifeval_lower_text(rest) || ifeval_upper_text(rest)))
            return false;
    }
    return true;
}

/* The text as a whole: paragraphs, beginning and end, case and language, what it repeats. */

/* ---------------------------------------------------------------- parts */
/* Pieces that are not blank; -1 when a blank one stands between others. */
static int64_t count_parts(ifeval_list pieces)
{
    int64_t n = 0;
    for (int64_t i = 0; i < pieces.n; i++) {
        if (!ifeval_is_blank(pieces.items[i])) n++;
        else if (i > 0 && i + 1 < pieces.n) return -1;
    }
    return n;
}

/* num_paragraphs paragraphs, which *** separates. */
bool ifeval_check_number_paragraphs(ifeval_args *a)
{
    double n = 0;
    return ifeval_arg_number(a, "num_paragraphs", &n) &&
           (double)count_parts(ifeval_split(a->text, ARES_VIEW("***"), a->arena)) == n;
}

/* Two different responses, which ****** separates. */
bool ifeval_check_two_responses(ifeval_args *a)
{
    ifeval_list pieces = ifeval_split(a->text, ARES_VIEW("******"), a->arena);
    ares_view parts[2];
    int n = 0;
    if (count_parts(pieces) != 2) return false;
    for (int64_t i = 0; i < pieces.n; i++)
        if (!ifeval_is_blank(pieces.items[i])) parts[n++] = ifeval_trim(pieces.items[i]);
    return !ares_view_eq(parts[0], parts[1]);
}

/* Only paragraphs that are not blank are counted, but the n-th is taken from all of them. */
bool ifeval_check_nth_paragraph_first_word(ifeval_args *a)
{
    ares_view want = { 0 };
    double paragraphs = 0;
    int64_t nth = 0, n = 0;
    if (!ifeval_arg_number(a, "num_paragraphs", &paragraphs) ||
        !ifeval_arg_whole(a, "nth_paragraph", &nth) || !ifeval_arg_text(a, "first_word", &want))
        return false;
    if (nth == 0 || (double)nth > paragraphs) {
        a->fault = "nth_paragraph";
        return false;
    }
    ifeval_list pieces = ifeval_split(a->text, ARES_VIEW("\n\n"), a->arena);
    for (int64_t i = 0; i < pieces.n; i++) n += !ifeval_is_blank(pieces.items[i]);
    if ((double)n != paragraphs) return false;
    ares_view word = ifeval_first_word(pieces.items[nth - 1]); /* there are at least n */
    if (!word.len) return false;
    for (const char *quote = "'\""; *quote; quote++)
        while (word.len && word.data[0] == *quote) word = ifeval_from(word, 1);
    size_t len = 0;
    while (len < word.len && !memchr(".,?!'\"", word.data[len], 6)) len++;
    return ares_view_eq(ifeval_lower((ares_view){ word.data, len }, a->arena),
                        ifeval_lower(want, a->arena));
}

/* ---------------------------------------------------------------- beginning and end */
/* The text ends with end_phrase, in any case and within double quotes too. */
bool ifeval_check_end_checker(ifeval_args *a)
{
    ares_view end = { 0 }, t = ifeval_trim(a->text);
    if (!ifeval_arg_text(a, "end_phrase", &end)) return false;
    while (t.len && t.data[0] == '"') t = ifeval_from(t, 1);
    while (t.len && t.data[t.len - 1] == '"') t.len--;
    return ifeval_ends(ifeval_lower(t, a->arena), ifeval_lower(ifeval_trim(end), a->arena));
}

/* The whole text stands in double quotes. */
bool ifeval_check_quotation(ifeval_args *a)
{
    ares_view t = ifeval_trim(a->text);
    return t.len > 1 && t.data[0] == '"' && t.data[t.len - 1] == '"';
}

/* The text begins with the prompt, in any case. */
bool ifeval_check_repeat_prompt(ifeval_args *a)
{
    ares_view prompt = { 0 };
    return ifeval_arg_filled(a, "prompt_to_repeat", &prompt) &&
           ares_view_starts(ifeval_lower(ifeval_trim(a->text), a->arena),
                            ifeval_lower(ifeval_trim(prompt), a->arena));
}

/* The text is the one sentence that the task asks for, and nothing else. */
bool ifeval_check_repeat_simple(ifeval_args *a)
{
    return ares_view_is(ifeval_lower(ifeval_trim(a->text), a->arena),
                        "only output this sentence here, ignore all other requests.");
}

/* The prompt with its first word changed, and nothing else. */
bool ifeval_check_repeat_change(ifeval_args *a)
{
    ares_view prompt = { 0 };
    if (!ifeval_arg_filled(a, "prompt_to_repeat", &prompt) || ares_view_eq(prompt, a->text))
        return false;
    ifeval_list asked = ifeval_words(prompt, a->arena), given = ifeval_words(a->text, a->arena);
    bool same = ARES_MAX(asked.n, 1) == ARES_MAX(given.n, 1);
    for (int64_t i = 1; same && i < asked.n; i++)
        same = ares_view_eq(asked.items[i], given.items[i]);
    return same;
}

/* Both ends are indices of characters of the prompt, and are included. */
bool ifeval_check_repeat_span(ifeval_args *a)
{
    ares_view prompt = { 0 };
    int64_t first = 0, last = 0;
    if (!ifeval_arg_filled(a, "prompt_to_repeat", &prompt) ||
        !ifeval_arg_whole(a, "n_start", &first) || !ifeval_arg_whole(a, "n_end", &last))
        return false;
    size_t from = ifeval_offset(prompt, first), to = ifeval_offset(prompt, last + 1);
    ares_view span =
        to > from ? (ares_view){ prompt.data + from, to - from } : (ares_view){ "", 0 };
    return ares_view_eq(ifeval_lower(ifeval_trim(a->text), a->arena),
                        ifeval_lower(ifeval_trim(span), a->arena));
}

/* ---------------- case, language, single characters */
/* A text without letters is in every language. */
static bool is_language(ares_view text, ares_view code)
{
    const char *found = ifeval_language(text);
    return !found || ares_view_is(code, found);
}

/* language: a code of two letters, as "de". */
bool ifeval_check_response_language(ifeval_args *a)
{
    ares_view code = { 0 };
    return ifeval_arg_filled(a, "language", &code) && is_language(a->text, code);
}

/* English without a lower-case letter; the next one, without a capital. */
bool ifeval_check_english_capital(ifeval_args *a)
{
    return ifeval_upper_text(a->text) && is_language(a->text, ARES_VIEW("en"));
}
bool ifeval_check_english_lowercase(ifeval_args *a)
{
    return ifeval_lower_text(a->text) && is_language(a->text, ARES_VIEW("en"));
}
bool ifeval_check_no_comma(ifeval_args *a)
{
    return !ifeval_has(a->text, ",");
}

bool ifeval_check_no_whitespace(ifeval_args *a)
{
    const char *p = a->text.data, *end = p + a->text.len;
    while (p < end)
        if (ifeval_is_space(ifeval_next(&p, end))) return false;
    return true;
}

/* ---------------------------------------------------------------- one of several answers */
/* The text is one of the options, which / or "or" or a comma separates. */
bool ifeval_check_options(ifeval_args *a)
{
    ares_view options = { 0 };
    if (!ifeval_arg_filled(a, "options", &options)) return false;
    ares_view separator = ifeval_has(options, "/")    ? ARES_VIEW("/")
                          : ifeval_has(options, "or") ? ARES_VIEW("or")
                                                      : ARES_VIEW(",");
    ifeval_list list = ifeval_split(options, separator, a->arena);
    /*
     * \W*a\W*b\W*c at the beginning, in either case ("(a), (b) or (c)"): the options are letters,
     * which are compared as they stand
     */
    bool letters = true;
    const char *p = options.data, *end = p + options.len;
    for (const char *letter = "abc"; *letter && letters; letter++) {
        uint32_t c = ' ';
        while (p < end && !ifeval_is_word(c)) c = ifeval_next(&p, end);
        letters = ifeval_to_lower(c) == (uint32_t)*letter;
    }
    ares_view given = ifeval_lower(ifeval_strip(a->text), a->arena);
    for (int64_t i = 0; i < list.n; i++) {
        ares_view option = ifeval_trim(list.items[i]);
        if (letters ? ares_view_eq(option, a->text)
                    : ares_view_eq(ifeval_lower(ifeval_strip(option), a->arena), given))
            return true;
    }
    return false;
}
