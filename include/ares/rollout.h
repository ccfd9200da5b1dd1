/*
 * rollout: the engine that samples answers, by continuous batching over a paged KV cache.
 *
 * A sample is a function of (weights, prompt ids, sampling options, key) alone: other samples, the
 * size of the cache and the number of threads do not change it. Its log-probs are those that
 * training computes, bit for bit (on the CPU).
 *
 * A page of the cache is a block: keys and values of ARES_KV_BLOCK consecutive tokens in every
 * layer. Samples of one prompt share its whole blocks.
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
    int32_t n_stop_ids; /* in addition to the model's eos ids */
    const int32_t *stop_ids;
    /* the response ends with the token that completes one of these; the token is kept */
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
    int64_t request;  /* the number that ares_rollout_add returned */
    int32_t index;    /* 0 .. n-1 within the request */
    int32_t n_tokens; /* the stop token included */
#define ARES_COLUMN(type, name, recorded, text) const type *name;
    ARES_ROLLOUT_COLUMNS(ARES_COLUMN)
#undef ARES_COLUMN
    ares_finish finish;
} ares_completion;

typedef struct ares_rollout_options {
    /*
     * size of the KV cache in tokens; 0: what max_num_seqs samples of full length need, but at most
     * 6 GiB, and at least one sample
     */
    int64_t cache_tokens;
    int32_t max_num_seqs;           /* samples decoded at once */
    int32_t max_num_batched_tokens; /* rows of one forward; a longer prefill is divided */
    int32_t max_model_len;          /* tokens of prompt and response; 0: the model's max_position */
    /*
     * 0: entropies_1 are exact. Otherwise they are those of ares_entropy_top_k over this many most
     * likely tokens (at most ARES_LIKELY_MAX) and the drawn one, all other tokens being one
     * outcome, as in the published AEPO (docs/aepo.md#token-entropy)
     */
    int32_t entropy_top_k;
    bool most_likely; /* record the most likely tokens */
} ares_rollout_options;

typedef struct ares_rollout ares_rollout;
/* tokenizer may be NULL where no stop strings are used. */
int ares_rollout_new(ares_model *m, const ares_tokenizer *tokenizer,
                     const ares_rollout_options *opt, ares_rollout **out);
void ares_rollout_free(ares_rollout *r);

/*
 * Queues n samples of one prompt; everything is copied. key: of (seed, SAMPLE, step, draw number,
 * attempt); the engine adds sample, turn and position. Fails where the prompt leaves no token of
 * max_model_len for a response, or where the cache cannot hold one sample of full length.
 */
int ares_rollout_add(ares_rollout *r, const int32_t *prompt, int32_t prompt_len, int32_t n,
                     const ares_sampling *s, ares_rng_key key, int64_t *request);
/* One forward pass: prefill, decode or both. *active: samples not yet finished. */
int ares_rollout_step(ares_rollout *r, int64_t *active);
/*
 * The next sample that has finished; false when there is none. Samples that finish in the same step
 * come in the order (tokens, request, index).
 */
bool ares_rollout_next(ares_rollout *r, ares_completion *out);
/* Forgets all samples and the cache, for new weights. Memory is kept. */
void ares_rollout_clear(ares_rollout *r);

typedef struct ares_rollout_stats {
    int64_t steps, prefill_tokens, decoded_tokens, preemptions, peak_seqs, peak_blocks,
        total_blocks;
    double forward_s, sample_s, schedule_s;
} ares_rollout_stats;
/* Since the last clear. */
void ares_rollout_get_stats(const ares_rollout *r, ares_rollout_stats *out);
#endif
