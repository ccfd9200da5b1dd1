/* if_rewards.json: sentences, tokens, words and syllables. */
#include "golden.h"

#include "../../src/reward/if/text.h"

static void list_equal(golden *g, const char *what, if_list got, const ares_json *want)
{
    golden_equal(g, "count", got.n, &(ares_json){ .type = ARES_JSON_INT, .integer = want->count, .number = (double)want->count });
    for (int64_t i = 0; i < got.n && i < want->count; i++) golden_text(g, what, got.items[i], &want->items[i]);
}

GOLDEN(if_rewards, split_sentences) { list_equal(g, "sentence", if_sentences(golden_string(g, "text"), g->arena), g->expected); }

GOLDEN(if_rewards, word_tokenize) { list_equal(g, "token", if_tokens(golden_string(g, "text"), g->arena), g->expected); }

GOLDEN(if_rewards, count_words) { golden_equal(g, "words", if_count_words(golden_string(g, "text")), g->expected); }

GOLDEN(if_rewards, syllables) { golden_equal(g, "syllables", if_syllables(golden_string(g, "word")), g->expected); }
