/* ifeval_rewards.json: sentences, tokens, words and syllables. */
#include "golden.h"

#include "../../src/reward/ifeval/words.h"

static void list_equal(golden *g, const char *what, ifeval_list got, const ares_json *want)
{
    golden_equal(g, "count", got.n,
                 &(ares_json){ .type = ARES_JSON_INT,
                               .integer = want->count,
                               .number = (double)want->count });
    for (int64_t i = 0; i < got.n && i < want->count; i++)
        golden_text(g, what, got.items[i], &want->items[i]);
}

GOLDEN(if_rewards, split_sentences)
{
    list_equal(g, "sentence", ifeval_sentences(golden_string(g, "text"), g->arena), g->expected);
}

GOLDEN(if_rewards, word_tokenize)
{
    list_equal(g, "token", ifeval_tokens(golden_string(g, "text"), g->arena), g->expected);
}

GOLDEN(if_rewards, count_words)
{
    golden_equal(g, "words", ifeval_count_words(golden_string(g, "text")), g->expected);
}

GOLDEN(if_rewards, syllables)
{
    golden_equal(g, "syllables", ifeval_syllables(golden_string(g, "word")), g->expected);
}

/*
 * ifeval_text.json: the same of random texts, and CSV; count is -1 where the reference refuses the
 * text.
 */
GOLDEN_ALSO(if_text, split_sentences, if_rewards, split_sentences)
GOLDEN_ALSO(if_text, word_tokenize, if_rewards, word_tokenize)
GOLDEN_ALSO(if_text, syllables, if_rewards, syllables)

GOLDEN(if_text, csv)
{
    ifeval_rows got = ifeval_csv(golden_string(g, "text"), ',', g->arena);
    const ares_json *rows = golden_want(g, "rows");
    golden_equal(g, "count", got.n, golden_want(g, "count"));
    for (int64_t i = 0; i < got.n && i < rows->count; i++)
        list_equal(g, "field", got.items[i], &rows->items[i]);
}
