/*
 * How much a response repeats itself, over its token ids: TRL's repetition penalty
 * (docs/rewards.md#repetition).
 */
#include <string.h>

#include "ares/grade.h"

#define REPETITION_OPTIONS(X)                                              \
    X(i64, ngram_size, "ngram_size", "3", "[1,64]", "tokens of an n-gram") \
    X(f64, max_penalty, "max_penalty", "-1.0", "(,0]",                     \
      "score that a response of nothing but repetitions comes close to")
ARES_OPTION_STRUCT(repetition_options, REPETITION_OPTIONS);
static ARES_OPTION_TABLE(repetition_table, repetition_options, REPETITION_OPTIONS);

enum { MAX_TOKENS = 1 << 21 }; /* the table then takes 32 MiB */

static uint64_t hash(const int32_t *ids, int64_t n)
{
    uint64_t h = 0x9E3779B97F4A7C15u;
    for (int64_t i = 0; i < n; i++) {
        h = (h ^ (uint32_t)ids[i]) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    return h;
}

/*
 * Number of different n-grams in ids [tokens]; compared in full, so that no collision of hashes
 * shows.
 */
static int64_t unique(const int32_t *ids, int64_t tokens, int64_t n)
{
    size_t slots = 16;
    int64_t found = 0;
    while (slots < (size_t)tokens * 2) slots *= 2;
    /* index + 1 of the first n-gram of its kind; 0: free */
    uint32_t *table = ares_calloc(slots, sizeof *table);
    for (int64_t i = 0; i + n <= tokens; i++) {
        size_t s = hash(ids + i, n) & (slots - 1);
        while (table[s] && memcmp(ids + table[s] - 1, ids + i, (size_t)n * sizeof *ids) != 0)
            s = (s + 1) & (slots - 1);
        if (table[s]) continue;
        table[s] = (uint32_t)i + 1;
        found++;
    }
    ares_free(table);
    return found;
}

static int repetition(const ares_verify_in *in, ares_verify_out *out)
{
    const repetition_options *o = in->options;
    out->score = 0;
    if (!in->ids || in->response_tokens < 0)
        return ares_fail(
            ARES_EFORMAT,
            "reward: repetition: the response's token ids are not known (in lines: 'output_ids')");
    int64_t tokens = ARES_MIN(in->response_tokens, MAX_TOKENS), total = tokens - o->ngram_size + 1;
    out->exhausted = in->response_tokens > MAX_TOKENS; /* only its beginning is judged */
    if (total < 1) return ARES_OK;
    out->score =
        (1 - (double)unique(in->ids, tokens, o->ngram_size) / (double)total) * o->max_penalty;
    return ARES_OK;
}

const ares_verifier ares_verifier_repetition = {
    .name = "repetition",
    .doc = "share of n-grams of tokens that are repetitions, times max_penalty (TRL)",
    .options = repetition_table,
    .options_size = sizeof(repetition_options),
    .verify = repetition,
    .any_truth = true,
};
