/* How many words, sentences, names; what share of them. */
#include "check_tools.h"

bool if_check_number_words(if_args *a)
{
    bool holds = false;
    return if_arg_relation(a, "relation", "num_words", (double)if_count_words(a->text), &holds) &&
           holds;
}

bool if_check_number_sentences(if_args *a)
{
    bool holds = false;
    return if_arg_relation(a, "relation", "num_sentences",
                           (double)if_sentences(a->text, a->arena).n, &holds) &&
           holds;
}

bool if_check_word_count_range(if_args *a)
{
    double least = 0, most = 0, n = (double)if_count_words(a->text);
    return if_arg_number(a, "min_words", &least) && if_arg_number(a, "max_words", &most) &&
           least <= n && n <= most;
}

/* Words of punctuation only are all one word, the empty one. */
bool if_check_unique_word_count(if_args *a)
{
    double n = 0;
    if (!if_arg_number(a, "N", &n)) return false;
    if_list words = if_words(if_lower(a->text, a->arena), a->arena);
    for (int64_t i = 0; i < words.n; i++) words.items[i] = if_strip(words.items[i]);
    return (double)if_distinct(words, NULL, a->arena) >= n;
}

bool if_check_stop_words(if_args *a)
{
    double percentage = 0;
    if (!if_arg_number(a, "percentage", &percentage)) return false;
    ares_view rest = if_lower(a->text, a->arena);
    int64_t words = if_count_words(a->text), stop = 0;
    for (ares_view word; (word = if_next_run(&rest)).data;)
        stop += if_table_has(IF_STOP_WORDS, word);
    return words && (double)stop / (double)words * 100 <= percentage;
}

/* Conjunctions differ by their spelling in the text: "And" and "and," are two. */
bool if_check_conjunctions(if_args *a)
{
    double n = 0;
    if (!if_arg_number(a, "small_n", &n)) return false;
    if_list words = if_words(a->text, a->arena), found = { words.items, 0 };
    for (int64_t i = 0; i < words.n; i++) {
        ares_view word = if_strip(words.items[i]);
        if (word.len && word.len <= 4 && if_table_has(IF_CONJUNCTIONS, if_lower(word, a->arena)))
            found.items[found.n++] = words.items[i];
    }
    return (double)if_distinct(found, NULL, a->arena) >= n;
}

/* Names have letters only, so a name between word boundaries is a whole run of word characters. */
bool if_check_person_names(if_args *a)
{
    double n = 0;
    bool seen[64] = { 0 };
    int found = 0, names = if_table_count(IF_PERSON_NAMES);
    ares_view rest = a->text;
    if (!if_arg_number(a, "N", &n)) return false;
    for (ares_view word; (word = if_next_run(&rest)).data;) {
        if (!if_table_has(IF_PERSON_NAMES, word)) continue;
        for (int i = 0; i < names && i < ARES_COUNT(seen); i++) {
            if (seen[i] || !ares_view_eq(word, if_table_item(IF_PERSON_NAMES, i))) continue;
            seen[i] = true;
            found++;
        }
    }
    return found >= n;
}

bool if_check_pronouns(if_args *a)
{
    double n = 0;
    int64_t found = 0;
    if (!if_arg_number(a, "N", &n)) return false;
    ares_view text =
        if_lower(if_replace(a->text, ARES_VIEW("/"), ARES_VIEW(" "), a->arena), a->arena);
    if_list tokens = if_tokens(text, a->arena);
    for (int64_t i = 0; i < tokens.n; i++) found += if_table_has(IF_PRONOUNS, tokens.items[i]);
    return (double)found >= n;
}

bool if_check_numbers(if_args *a)
{
    double n = 0;
    int64_t found = 0;
    if (!if_arg_number(a, "N", &n)) return false;
    ares_view rest = if_delete_punct(a->text, a->arena);
    while (if_next_digits(&rest).data) found++;
    return (double)found == n;
}

bool if_check_capital_word_frequency(if_args *a)
{
    bool holds = false;
    int64_t count = 0;
    if_list tokens = if_tokens(a->text, a->arena);
    for (int64_t i = 0; i < tokens.n; i++) count += if_upper_text(tokens.items[i]);
    return if_arg_relation(a, "capital_relation", "capital_frequency", (double)count, &holds) &&
           holds;
}

bool if_check_punctuation(if_args *a)
{
    int64_t question = ares_view_find(a->text, ARES_VIEW("?!"), 0),
            bang = ares_view_find(a->text, ARES_VIEW("!?"), 0);
    if (question < 0 && bang < 0 && !if_has(a->text, "\xe2\x80\xbd")) return false;
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
typedef struct grams {
    uint64_t *slot;
    size_t mask;
    int64_t n;
} grams;

static bool add(grams *g, uint64_t gram, bool insert) /* true when it is there already */
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
        gram = (gram << 21 | if_next(&p, end)) & (((uint64_t)1 << 63) - 1);
        if (i >= 2 && !add(&g, gram, true) && in && add(in, gram, false)) ++*common;
    }
    return g;
}

bool if_check_overlap(if_args *a)
{
    ares_view reference = { 0 };
    double percentage = 0;
    int64_t common = 0;
    if (!if_arg_text(a, "reference_text", &reference) ||
        !if_arg_number(a, "percentage", &percentage) || !if_spend(a, (int64_t)reference.len * 4))
        return false;
    if (reference.len > IF_TEXT_MAX) return false;
    grams theirs = trigrams(reference, NULL, NULL, a->arena),
          own = trigrams(a->text, &theirs, &common, a->arena);
    if (!own.n) return false;
    double overlap = (double)common / (double)own.n * 100;
    return percentage - 2 <= overlap && overlap <= percentage + 2;
}
