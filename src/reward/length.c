/* Verifiers that look at a response's tokens only: penalties of length and of repetition. */
#include "verifier.h"

#include <string.h>

#include "ares/grade.h"

/*
 * `length` and `overlong`: one penalty of overlong responses with two sets of options, to be added
 * to a task's reward (docs/dapo.md#penalty-of-length; DAPO, arXiv 2503.14476).
 */

double length_reward(int64_t length, int64_t safe_length, int64_t max_length)
{
    if (length >= max_length) return -1;
    return length <= safe_length
               ? 0
               : -(double)(length - safe_length) / (double)(max_length - safe_length);
}

/* verl's, which keeps falling beyond max_response_length. */
static double overlong_unclamped(int64_t length, int64_t max_response_length, int64_t buffer_length)
{
    int64_t expected = max_response_length - buffer_length;
    return length <= expected ? 0 : -(double)(length - expected) / (double)buffer_length;
}

double length_overlong(int64_t length, int64_t max_response_length, int64_t buffer_length)
{
    return length > max_response_length
               ? -1
               : overlong_unclamped(length, max_response_length, buffer_length);
}

static ARES_OPTION_TABLE(length_table, ares_length_options, ARES_LENGTH_OPTIONS);

static int check_length(const void *options)
{
    const ares_length_options *o = options;
    if (o->safe_length < o->max_length) return ARES_OK;
    return ares_fail(ARES_ECONFIG,
                     "reward: length: safe_length = %lld: not below max_length = %lld",
                     (long long)o->safe_length, (long long)o->max_length);
}

static int judge_length(const ares_verify_in *in, ares_verify_out *out)
{
    const ares_length_options *o = in->options;
    ARES_TRY(grade_need_length(in, "length"));
    out->plain = 0; /* without the penalty of length, nothing is left */
    out->score =
        o->len_reward_penalty * length_reward(in->response_tokens, o->safe_length, o->max_length);
    grade_add_value(out, "reward/length_penalty", out->score);
    return ARES_OK;
}

/* The tokens beyond which the penalty is full; *penalty: that one. */
static int64_t length_limit(const void *options, double *penalty)
{
    const ares_length_options *o = options;
    *penalty = o->len_reward_penalty;
    return o->max_length;
}

#define OVERLONG_OPTIONS(X)                                                   \
    X(i64, max_response_length, "max_response_length", "20480", "[1,)",       \
      "tokens from which the penalty is full")                                \
    X(i64, overlong_buffer_length, "overlong_buffer_length", "4096", "[1,)",  \
      "the penalty grows over this many tokens before max_response_length")   \
    X(f64, overlong_penalty_factor, "overlong_penalty_factor", "1.0", "[0,)", \
      "the full penalty; 0 switches it off")                                  \
    X(flag, clamp, "clamp", "true", "",                                       \
      "never more than the full penalty; false: the penalty keeps growing, as in verl")
ARES_OPTION_STRUCT(overlong_options, OVERLONG_OPTIONS);
static ARES_OPTION_TABLE(overlong_table, overlong_options, OVERLONG_OPTIONS);

static int check_overlong(const void *options)
{
    const overlong_options *o = options;
    if (o->overlong_buffer_length <= o->max_response_length) return ARES_OK;
    return ares_fail(
        ARES_ECONFIG,
        "reward: overlong: overlong_buffer_length = %lld: above max_response_length = %lld",
        (long long)o->overlong_buffer_length, (long long)o->max_response_length);
}

/* reward/overlong becomes the share of responses with a penalty. */
static int judge_overlong(const ares_verify_in *in, ares_verify_out *out)
{
    const overlong_options *o = in->options;
    ARES_TRY(grade_need_length(in, "overlong"));
    double share = (o->clamp ? length_overlong : overlong_unclamped)(
        in->response_tokens, o->max_response_length, o->overlong_buffer_length);
    out->plain = 0;
    out->score = o->overlong_penalty_factor * share;
    grade_add_value(out, "reward/overlong_reward", out->score);
    grade_add_value(out, "reward/overlong", share < 0);
    return ARES_OK;
}

static int64_t overlong_limit(const void *options, double *penalty)
{
    const overlong_options *o = options;
    *penalty = o->overlong_penalty_factor;
    return o->max_response_length;
}

const ares_verifier ares_verifier_length = {
    .name = "length",
    .doc = "a penalty of length that grows from safe_length tokens to max_length",
    .options = length_table,
    .options_size = sizeof(ares_length_options),
    .check = check_length,
    .verify = judge_length,
    .limit = length_limit,
    .any_truth = true,
};
const ares_verifier ares_verifier_overlong = {
    .name = "overlong",
    .doc = "the same penalty, given by the maximum and a buffer before it (DAPO)",
    .options = overlong_table,
    .options_size = sizeof(overlong_options),
    .check = check_overlong,
    .verify = judge_overlong,
    .limit = overlong_limit,
    .any_truth = true,
};

/*
 * How much a response repeats itself, over its token ids: TRL's repetition penalty
 * (docs/rewards.md#repetition).
 */

#define REPETITION_OPTIONS(X)                                              \
    X(i64, ngram_size, "ngram_size", "3", "[1,64]", "tokens of an n-gram") \
    X(f64, max_penalty, "max_penalty", "-1.0", "(,0]",                     \
      "score that a response of nothing but repetitions comes close to")
ARES_OPTION_STRUCT(repetition_options, REPETITION_OPTIONS);
static ARES_OPTION_TABLE(repetition_table, repetition_options, REPETITION_OPTIONS);

enum { MAX_TOKENS = 1 << 21 }; /* the table then takes 32 MiB */

/* max_penalty times the share of n-grams that occurred before. */
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
    if (total < 1) return ARES_OK;                     /* shorter than one n-gram */
    /* n-grams are compared in full, so that no collision of hashes shows */
    const int32_t *ids = in->ids;
    size_t slots = 16;
    int64_t n = o->ngram_size, different = 0;
    while (slots < (size_t)tokens * 2) slots *= 2; /* a power of two, at most half full */
    /* index + 1 of the first n-gram of its kind; 0: free */
    uint32_t *table = ares_calloc(slots, sizeof *table);
    for (int64_t i = 0; i + n <= tokens; i++) {
        uint64_t hash = 0x9E3779B97F4A7C15u;
        for (int64_t k = 0; k < n; k++) {
            hash = (hash ^ (uint32_t)ids[i + k]) * 0xD6E8FEB86659FD93u;
            hash ^= hash >> 32;
        }
        size_t s = hash & (slots - 1);
        while (table[s] && memcmp(ids + table[s] - 1, ids + i, (size_t)n * sizeof *ids) != 0)
            s = (s + 1) & (slots - 1);
        if (table[s]) continue;
        table[s] = (uint32_t)i + 1;
        different++;
    }
    ares_free(table);
    out->score = (1 - (double)different / (double)total) * o->max_penalty;
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
