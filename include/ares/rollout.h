/*
 * rollout: continuous batching over a paged KV cache.
 *
 * A sample is a function of (weights, prompt ids, sampling options, key) alone: never of its
 * neighbours, the cache size or the thread count. Its log-probs are those that training computes,
 * bit for bit (on the CPU).
 */
#ifndef ARES_ROLLOUT_H
#define ARES_ROLLOUT_H

#include "ares/core.h"
#include "ares/model.h"
#include "ares/text.h"

typedef struct ares_sampling {
    float temperature; /* 0 is greedy */
    float top_p;       /* 1 is off */
    int32_t top_k;     /* 0 or -1 is off */
    int32_t max_new_tokens;
    bool ignore_eos;
    int32_t n_stop_ids; /* on top of the model's eos ids */
    const int32_t *stop_ids;
    /* the response ends with the token that completes one of them; the token is kept */
    int32_t n_stop_strings;
    const char *const *stop_strings;
} ares_sampling;

typedef enum { ARES_FINISH_STOP, ARES_FINISH_LENGTH } ares_finish;

/*
 * What the engine records per token of a sample: X(type, name, recorded, text). A column is an
 * array [n_tokens] of numbers of 4 bytes, or NULL where `recorded`, a condition on the engine's
 * options `o`, is false. Everything that holds, grows, copies or sends samples loops over this
 * list.
 */
#define ARES_ROLLOUT_COLUMNS(X)                                                            \
    X(int32_t, ids, true, "the token")                                                     \
    X(float, log_probs, true,                                                              \
      "its log-prob at the sampling temperature (greedy: at 1), over the full vocabulary") \
    X(float, entropies, true, "the entropy it was drawn from, at the same temperature")    \
    X(float, log_probs_1, true, "its log-prob at temperature 1")                           \
    X(float, entropies_1, true, "the entropy at temperature 1, as entropy_top_k says")     \
    X(int32_t, most_likely, o->most_likely, "the most likely token there (ties: lower id)")

/* One finished sample. Its columns belong to the engine and live until ares_rollout_clear. */
typedef struct ares_completion {
    int64_t request;  /* as given by ares_rollout_add */
    int32_t index;    /* 0 .. n-1 within the request */
    int32_t n_tokens; /* the stop token included */
#define ARES_COLUMN(type, name, recorded, text) const type *name;
    ARES_ROLLOUT_COLUMNS(ARES_COLUMN)
#undef ARES_COLUMN
    ares_finish finish;
} ares_completion;

typedef struct ares_rollout_options {
    /*
     * size of the KV cache in tokens; 0: what max_num_seqs full-length samples need, within 6 GiB,
     * and one sample at least
     */
    int64_t cache_tokens;
    int32_t max_num_seqs;           /* samples decoded at once */
    int32_t max_num_batched_tokens; /* rows of one forward: prefill is cut to this */
    int32_t max_model_len;          /* prompt + response; 0: the model's max_position */
    int32_t entropy_top_k; /* 0: entropies_1 are exact; else those of ares_entropy_top_k over so
                            * many most likely tokens (at most ARES_LIKELY_MAX) and the drawn one,
                            * everything else being one outcome: the published AEPO's */
    bool most_likely;      /* record the most likely tokens */
} ares_rollout_options;

typedef struct ares_rollout ares_rollout;
/* tokenizer may be NULL when no stop strings are used. */
int ares_rollout_new(ares_model *m, const ares_tokenizer *tokenizer,
                     const ares_rollout_options *opt, ares_rollout **out);
void ares_rollout_free(ares_rollout *r);

/*
 * Queues n samples of one prompt. key: of (seed, SAMPLE, step, draw number, attempt); the engine
 * adds sample, turn and position. Fails when the prompt and one token cannot fit in the cache or
 * the model's length. Everything is copied.
 */
int ares_rollout_add(ares_rollout *r, const int32_t *prompt, int32_t prompt_len, int32_t n,
                     const ares_sampling *s, ares_rng_key key, int64_t *request);
/* One forward pass: prefill, decode or both. *active = samples not yet finished. */
int ares_rollout_step(ares_rollout *r, int64_t *active);
/*
 * Finished samples since the last call, in the fixed order (tokens, request, index) within a step's
 * finishers; false when none is left.
 */
bool ares_rollout_next(ares_rollout *r, ares_completion *out);
/* Forgets finished and running samples and the cache: after the weights changed. Memory is kept. */
void ares_rollout_clear(ares_rollout *r);

typedef struct ares_rollout_stats {
    int64_t steps, prefill_tokens, decoded_tokens, preemptions, peak_seqs, peak_blocks,
        total_blocks;
    double forward_s, sample_s, schedule_s;
} ares_rollout_stats;
/* since the last clear */
void ares_rollout_get_stats(const ares_rollout *r, ares_rollout_stats *out);
#endif
