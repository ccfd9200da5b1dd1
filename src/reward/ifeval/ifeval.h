/*
 * Private to reward: the checks of IFEval and IFBench with the score of a row, and what a check
 * uses.
 */
#ifndef ARES_REWARD_IFEVAL_IFEVAL_H
#define ARES_REWARD_IFEVAL_IFEVAL_H

#include "words.h"

/*
 * The 83 checks of IFEval (Zhou et al., arXiv 2311.07911) and IFBench (Pyatkin et al., arXiv
 * 2507.02833), and the score of a row that names some of them
 * (docs/rewards.md#instruction-following). Verdicts are the reference code's, its oddities
 * included; where that code draws random parameters or raises an exception, an instruction counts
 * as not followed.
 *
 * All of it is pure, thread-safe and bounded by counted work: bytes of text read, weighted by what
 * a check costs.
 */

/*
 * X(instruction id, function, cost): the function is ifeval_check_<function> in checks_text.c or
 * checks_form.c; cost is in steps per byte, 1 for the cheapest scan.
 */
#define IFEVAL_CHECK_LIST(X)                                                           \
    /* IFEval */                                                                       \
                                                                                       \
    X("keywords:existence", existence, 1)                                              \
    X("keywords:frequency", frequency, 1)                                              \
    X("keywords:forbidden_words", forbidden_words, 1)                                  \
    X("keywords:letter_frequency", letter_frequency, 1)                                \
    X("language:response_language", response_language, 4)                              \
    X("length_constraints:number_sentences", number_sentences, 4)                      \
    X("length_constraints:number_paragraphs", number_paragraphs, 2)                    \
    X("length_constraints:number_words", number_words, 2)                              \
    X("length_constraints:nth_paragraph_first_word", nth_paragraph_first_word, 2)      \
    X("detectable_content:number_placeholders", number_placeholders, 1)                \
    X("detectable_content:postscript", postscript, 1)                                  \
    X("detectable_format:number_bullet_lists", number_bullet_lists, 1)                 \
    X("detectable_format:constrained_response", constrained_response, 1)               \
    X("detectable_format:number_highlighted_sections", number_highlighted_sections, 1) \
    X("detectable_format:multiple_sections", multiple_sections, 1)                     \
    X("detectable_format:json_format", json_format, 1)                                 \
    X("detectable_format:title", title, 2)                                             \
    X("combination:two_responses", two_responses, 1)                                   \
    X("combination:repeat_prompt", repeat_prompt, 1)                                   \
    X("startend:end_checker", end_checker, 1)                                          \
    X("change_case:capital_word_frequency", capital_word_frequency, 8)                 \
    X("change_case:english_capital", english_capital, 4)                               \
    X("change_case:english_lowercase", english_lowercase, 4)                           \
    X("punctuation:no_comma", no_comma, 1)                                             \
    X("startend:quotation", quotation, 1)                                              \
    /* IFBench */                                                                      \
                                                                                       \
    X("count:word_count_range", word_count_range, 2)                                   \
    X("count:unique_word_count", unique_word_count, 2)                                 \
    X("ratio:stop_words", stop_words, 2)                                               \
    X("ratio:sentence_type", sentence_type, 4)                                         \
    X("ratio:sentence_balance", sentence_balance, 4)                                   \
    X("count:conjunctions", conjunctions, 2)                                           \
    X("count:person_names", person_names, 4)                                           \
    X("ratio:overlap", overlap, 4)                                                     \
    X("count:numbers", numbers, 2)                                                     \
    X("words:alphabet", alphabet, 2)                                                   \
    X("words:vowel", vowel, 1)                                                         \
    X("words:consonants", consonants, 2)                                               \
    X("sentence:alliteration_increment", alliteration_increment, 8)                    \
    X("words:palindrome", palindrome, 2)                                               \
    X("count:punctuation", punctuation, 1)                                             \
    X("format:parentheses", parentheses, 1)                                            \
    X("format:quotes", quotes, 1)                                                      \
    X("words:prime_lengths", prime_lengths, 2)                                         \
    X("format:options", options, 1)                                                    \
    X("format:newline", newline, 2)                                                    \
    X("format:emoji", emoji, 8)                                                        \
    X("ratio:sentence_words", sentence_words, 4)                                       \
    X("count:words_japanese", words_japanese, 2)                                       \
    X("words:start_verb", start_verb, 1)                                               \
    X("words:repeats", repeats, 2)                                                     \
    X("sentence:keyword", sentence_keyword, 4)                                         \
    X("count:pronouns", pronouns, 8)                                                   \
    X("words:odd_even_syllables", odd_even_syllables, 4)                               \
    X("words:last_first", last_first, 8)                                               \
    X("words:paragraph_last_first", paragraph_last_first, 2)                           \
    X("sentence:increment", increment, 8)                                              \
    X("words:no_consecutive", no_consecutive, 2)                                       \
    X("format:line_indent", line_indent, 2)                                            \
    X("format:quote_unquote", quote_unquote, 2)                                        \
    X("format:list", list, 1)                                                          \
    X("format:thesis", thesis, 1)                                                      \
    X("format:sub-bullets", sub_bullets, 2)                                            \
    X("format:no_bullets_bullets", no_bullets_bullets, 4)                              \
    X("custom:multiples", multiples, 1)                                                \
    X("custom:mcq_count_length", mcq_count_length, 2)                                  \
    X("custom:reverse_newline", reverse_newline, 2)                                    \
    X("custom:word_reverse", word_reverse, 2)                                          \
    X("custom:character_reverse", character_reverse, 1)                                \
    X("custom:sentence_alphabet", sentence_alphabet, 4)                                \
    X("custom:european_capitals_sort", european_capitals_sort, 2)                      \
    X("custom:csv_city", csv_city, 2)                                                  \
    X("custom:csv_special_character", csv_special_character, 4)                        \
    X("custom:csv_quotes", csv_quotes, 4)                                              \
    X("custom:date_format_list", date_format_list, 1)                                  \
    X("count:keywords_multiple", keywords_multiple, 4)                                 \
    X("words:keywords_specific_position", keywords_specific_position, 8)               \
    X("words:words_position", words_position, 8)                                       \
    X("repeat:repeat_change", repeat_change, 2)                                        \
    X("repeat:repeat_simple", repeat_simple, 1)                                        \
    X("repeat:repeat_span", repeat_span, 1)                                            \
    X("format:title_case", title_case, 8)                                              \
    X("format:output_template", output_template, 1)                                    \
    X("format:no_whitespace", no_whitespace, 1)

/* Work for one response, all instructions and variants together; well under a second. */
enum { IFEVAL_STEPS = 64 << 20 };
typedef struct ifeval_budget {
    int64_t steps;  /* left */
    bool exhausted; /* an instruction was not judged for lack of steps; it counts as not followed */
} ifeval_budget;

/* ---------------- judging one instruction (ifeval.c) */
int ifeval_check_count(void);
const char *ifeval_check_id(int i);  /* in the order of the list */
int ifeval_check_find(ares_view id); /* -1 when unknown */
/*
 * Whether the text itself follows the instruction; a blank text follows none. Warns of unknown ids
 * and of missing or wrong arguments once per id and process. scratch is memory for the duration of
 * the call.
 */
bool ifeval_check(ares_view id, const ares_json *kwargs, ares_view text, ifeval_budget *budget,
                  ares_arena *scratch);
/*
 * Whether any of 8 variants of the text does: the whole text, the text without its first line,
 * without its last, without both, and each of these without "*".
 */
bool ifeval_check_loose(ares_view id, const ares_json *kwargs, ares_view text,
                        ifeval_budget *budget, ares_arena *scratch);
/*
 * The argument of a known instruction that is missing or wrong, whatever the text; NULL: all are
 * right.
 */
const char *ifeval_check_fault(ares_view id, const ares_json *kwargs);

/* ------------------------------------------------------------------ arguments (ifeval.c) */
/*
 * An array of n objects without nulls, from what rows have as kwargs: a list, one object for all
 * instructions, or anything else.
 */
const ares_json *ifeval_coerce_kwargs(const ares_json *kwargs, int64_t n, ares_arena *arena);

/* ------------------------------------------------------------------ judging a row (ifeval.c) */
/* The text after the last </think>, untrimmed; the whole text when there is none. */
ares_view ifeval_strip_think(ares_view text);

#define IFEVAL_MODE_LIST(X) X(strict_all) X(strict_fraction) X(loose_all) X(loose_fraction)
#define IFEVAL_MODE_ENTRY_(name) IFEVAL_MODE_##name,
typedef enum { IFEVAL_MODE_LIST(IFEVAL_MODE_ENTRY_) IFEVAL_MODE_COUNT } ifeval_mode;
#undef IFEVAL_MODE_ENTRY_

typedef struct ifeval_verdict {
    int64_t n;            /* instructions: the ids that are not blank */
    ares_view *ids;       /* [n] trimmed */
    bool *strict, *loose; /* [n] */
    bool exhausted;
} ifeval_verdict;
/* ids: a list of texts, or one text. The verdict lies in the arena. */
void ifeval_judge(const ares_json *ids, const ares_json *kwargs, ares_view text, ares_arena *arena,
                  ifeval_verdict *out);
double ifeval_fraction(int64_t followed, int64_t n); /* 0 of 0 is 0 */
/* *_all: 1 when every instruction is followed, else 0; 0 without instructions. */
double ifeval_score(const ifeval_verdict *v, ifeval_mode mode);

/* What a check is given, how it reads its arguments, and helpers that several checks use. */

typedef struct ifeval_args {
    ares_view text;          /* not blank */
    const ares_json *kwargs; /* an object, or NULL */
    ares_arena *arena;
    ifeval_budget *budget;
    /*
     * set by a check: the argument that is missing or wrong; the instruction counts as not followed
     */
    const char *fault;
} ifeval_args;
#define IFEVAL_CHECK_DECLARE_(id, function, cost) bool ifeval_check_##function(ifeval_args *a);
IFEVAL_CHECK_LIST(IFEVAL_CHECK_DECLARE_)
#undef IFEVAL_CHECK_DECLARE_

/* ---------------- arguments (ifeval.c): false, and a->fault is set, when missing or wrong */
/* finite and not negative; 2.0 is 2 */
bool ifeval_arg_number(ifeval_args *a, const char *key, double *out);
/* the same without a fraction */
bool ifeval_arg_whole(ifeval_args *a, const char *key, int64_t *out);
bool ifeval_arg_text(ifeval_args *a, const char *key, ares_view *out);   /* may be empty */
bool ifeval_arg_filled(ifeval_args *a, const char *key, ares_view *out); /* not empty */
/* an array of one or more strings */
bool ifeval_arg_texts(ifeval_args *a, const char *key, const ares_json **out);
/* Whether count stands to the number in the relation, which is "less than" or "at least". */
bool ifeval_arg_relation(ifeval_args *a, const char *relation_key, const char *number_key,
                         double count);
/* Takes steps beyond the check's own cost; false when none are left. */
bool ifeval_spend(ifeval_args *a, int64_t steps);

/* ---------------- helpers that several checks use (words.c) */
bool ifeval_has(ares_view text, const char *part);
bool ifeval_ends(ares_view text, ares_view end);
ares_view ifeval_from(ares_view v, size_t at); /* without the first `at` bytes */
/* every occurrence, from the left; part is not empty */
ares_view ifeval_replace(ares_view text, ares_view part, ares_view by, ares_arena *arena);
/* the next run of decimal digits, and v moves past it; data NULL at the end */
ares_view ifeval_next_digits(ares_view *v);
ares_view ifeval_next_run(ares_view *v); /* the same for word characters */
/* the first run of characters that are no white space; may be empty */
ares_view ifeval_first_word(ares_view v);
ares_view ifeval_last_word(ares_view v);
/* for each item, the index of the first item equal to it */
uint32_t *ifeval_group(ifeval_list list, ares_arena *arena);
/* whether Python's json.loads reads it, nested up to 1000 deep (checks_form.c) */
bool ifeval_is_json(ares_view text);
#endif
