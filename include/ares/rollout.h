/*
 * rollout: the engine that samples answers, by continuous batching over a paged KV cache.
 *
 * A sample is a function of (weights, prompt ids, sampling options, key) alone: other samples, the
 * size of the cache, what it already holds and the number of threads do not change it. Its
 * log-probs are those that training computes, bit for bit (on the CPU).
 *
 * A page of the cache is a block: keys and values of ARES_KV_BLOCK consecutive tokens in every
 * layer. Samples of one prompt share its whole blocks. Later requests find a full block, and the
 * last block of a finished sample, again by its tokens (of a picture: by what it shows) and all
 * tokens before them, until ares_rollout_clear. So a conversation is a new request per turn whose
 * prompt is everything said so far; it costs the tokens that are new. Of a model with delta nets a
 * prefix is found where a prompt or an answer ended, and its state was kept
 * (docs/design.md#rollout-engine).
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

/*
 * CUT: ended by ares_rollout_cut; a later request may go on from there. BROKEN: its log-probs are
 * not finite, because the weights or the adapter hold NaN or infinity; only in an engine that
 * serves.
 */
typedef enum {
    ARES_FINISH_STOP,
    ARES_FINISH_LENGTH,
    ARES_FINISH_CUT,
    ARES_FINISH_BROKEN
} ares_finish;

/*
 * What a request wants to know of its own prompt: log-probs, at temperature 1 over the full
 * vocabulary, of tokens after each of its positions. Row i is about position i + 1; there are
 * prompt_len - 1 rows. All zero: nothing.
 */
typedef struct ares_prompt_scores_wanted {
    int32_t from;  /* the first row that is wanted */
    int32_t width; /* tokens per row whose log-probs are wanted */
    /* [rows][width], -1: none there; NULL, and width 1: the prompt's own next token */
    const int32_t *targets;
    int32_t n_likely; /* most likely tokens of each row, at most ARES_LIKELY_MAX */
    bool logits;      /* `look` is shown each row */
    bool ranks;       /* of targets: 1 is the most likely; ties: the lower id is before */
} ares_prompt_scores_wanted;
/* They lie as wanted, from row 0 on; what is before `from`, and of targets of -1, is 0. */
typedef struct ares_prompt_scores {
    int32_t rows, width, n_likely;
    const float *log_probs;       /* [rows][width] */
    const int32_t *ranks;         /* [rows][width]; NULL: not wanted */
    const int32_t *likely_tokens; /* [rows][n_likely], most likely first; -1: fewer are possible */
    const float *likely_log_probs;
} ares_prompt_scores;

/*
 * n samples of one prompt. key: of (seed, SAMPLE, step, draw number, attempt); the engine adds the
 * sample's number, the turn and the position in the response. Samples are numbered from
 * first_index, so that a request may go on with one sample of several.
 *
 * The last response_len tokens of the prompt are the beginning of the response: positions in the
 * response, max_new_tokens and stop strings count from there, and the rest is drawn as if the
 * engine had never stopped. Completions hold the tokens that are new.
 */
typedef struct ares_request {
    const int32_t *prompt;
    int32_t prompt_len, response_len;
    int32_t n, first_index;
    int64_t start; /* where its samples begin on the clock of ares_rollout_hold */
    uint64_t turn;
    ares_sampling sampling;
    ares_rng_key key;
    /*
     * images and videos of the prompt, and what stands in each of its places; NULL: it is text.
     * Borrowed until the next clear, features included.
     */
    const ares_row_media *row_media;
    const ares_seen *seen; /* [row_media->n_places] */
    /*
     * whose answers these are; NULL: the model's alone. It lives, and keeps its numbers, until the
     * request's samples have finished. Requests of several adapters decode side by side, and find
     * in the cache what the same version of the same adapter has computed.
     */
    const ares_adapter *adapter;
    int32_t n_likely; /* of each token, so many most likely ones are recorded; options.n_likely */
    ares_prompt_scores_wanted scores; /* on the CPU; its prompt is then computed whole */
    /*
     * Shown, within ares_rollout_step, the logits [vocab], before temperature, that a token was
     * drawn from: token number `at` of sample `index`; and, where scores.logits says so, those of
     * row `at` of the prompt, with index and token -1. On the CPU; NULL: nobody looks.
     */
    void (*look)(void *ctx, int32_t index, int32_t at, int32_t token, const float *logits);
    void *look_ctx;
} ares_request;

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
    int32_t index;    /* first_index .. first_index + n - 1 */
    int32_t n_tokens; /* the stop token included */
#define ARES_COLUMN(type, name, recorded, text) const type *name;
    ARES_ROLLOUT_COLUMNS(ARES_COLUMN)
#undef ARES_COLUMN
    ares_finish finish;
    int32_t cached_tokens; /* of the prompt, found in the cache instead of computed */
    int32_t n_likely;
    const int32_t *likely_tokens;  /* [n_tokens][n_likely], as request.n_likely asks; -1: no more */
    const float *likely_log_probs; /* at temperature 1 */
} ares_completion;

/*
 * Shown some tokens of any request as they are drawn, on the CPU, by a rank that decodes alone.
 * `wants` is asked of each with its sampling key and its place in the response, which name it
 * whatever the order of decoding.
 */
typedef struct ares_watched {
    const int32_t *prompt, *ids; /* [prompt_len]; [n] the sample's new tokens before it */
    int32_t prompt_len, n;
    const ares_row_media *row_media; /* of the request */
    int32_t token;                   /* what was drawn after them, */
    const float *logits;             /* from these [vocab], before temperature */
} ares_watched;
typedef struct ares_rollout_watch {
    bool (*wants)(void *ctx, ares_rng_key sample, int64_t place);
    void (*show)(void *ctx, const ares_watched *x);
    void *ctx;
} ares_rollout_watch;

typedef struct ares_rollout_options {
    /*
     * size of the KV cache in tokens; 0: as many as max_num_seqs samples of full length need, or as
     * fit in the training_bytes that are taken anyway, and at most cache_bytes
     */
    int64_t cache_tokens;
    int64_t cache_bytes; /* 0: 6 GiB, or one sample where that needs more */
    /*
     * between the last token and the next clear, training uses the memory of the cache, and that of
     * a slice's weights (ares_model_slice_take)
     */
    bool lends_cache;
    size_t training_bytes; /* what training takes there at most: so much memory is shared */
    int32_t max_num_seqs;  /* most samples decoded at once */
    int32_t held_seqs;     /* and held beside them (ares_rollout_hold), as far as is known */
    int32_t max_num_batched_tokens; /* most rows of one forward; a longer prefill is divided */
    int32_t max_model_len;          /* tokens of prompt and response; 0: the model's max_position */
    /*
     * 0: entropies_1 are exact. Otherwise they are those of ares_entropy_top_k over this many most
     * likely tokens (at most ARES_LIKELY_MAX) and the drawn one, all other tokens being one
     * outcome, as in the published AEPO (docs/aepo.md#token-entropy)
     */
    int32_t entropy_top_k;
    bool most_likely; /* record the most likely tokens */
    int32_t n_likely; /* how many likely tokens a request may ask for */
    /*
     * The engine of a server: requests have memory of their own, which ares_rollout_drop frees, and
     * numbers that are not finite end their sample alone. Not for ranks that decode as one.
     */
    bool serves;
    int32_t adapter_rank;        /* largest of adapters to come; a larger one takes memory anew */
    const ares_adapter *adapter; /* of ranks that decode as one: the only one that requests name */
    /*
     * with the CPU's own kernels, compute tokens that a sample may draw next beside its last one,
     * where that pays (docs/performance.md#speculation); the samples are the same
     */
    bool drafts_tokens;
    bool no_prefix_cache; /* every request computes its whole prompt; the samples are the same */
    /*
     * of a model with delta nets: states that are kept at the ends of prompts and answers, to go on
     * from there; 0: max_num_seqs; -1: none, and nothing is found in the cache
     */
    int32_t state_snapshots;
    const ares_rollout_watch *watch; /* borrowed; NULL: nobody looks */
} ares_rollout_options;

typedef struct ares_rollout ares_rollout;
/* tokenizer may be NULL where no stop strings are used. */
int ares_rollout_new(ares_model *m, const ares_tokenizer *tokenizer,
                     const ares_rollout_options *opt, ares_rollout **out);
void ares_rollout_free(ares_rollout *r);

/*
 * Where the model is a slice (ares_model_slice), the ranks of its group decode as one: each asks
 * for samples of its own, all compute all of them, and each is handed its own. Every rank of the
 * group then makes the same number of calls of step between two calls of clear; `active` counts
 * the samples of all ranks, and hold is called with the same times. The samples are those of the
 * whole model, in every bit, wherever they were asked for.
 */
/*
 * Queues a request, also while others decode. *id (may be NULL): its number since the last clear.
 * Fails when the prompt and one token cannot fit in the cache or the model's length. Everything is
 * copied.
 */
int ares_rollout_add(ares_rollout *r, const ares_request *request, int64_t *id);
/*
 * Ends a sample at n new tokens (0 or more): at once where it has as many, else when it gets there
 * and has not stopped before. false: it has finished already, and stays as it is. In a group of
 * ranks no step may follow before the next clear.
 */
bool ares_rollout_cut(ares_rollout *r, int64_t id, int32_t index, int32_t n);
/*
 * To be called when this rank asks for nothing more: it makes steps until all ranks of its group
 * have called this. rc: this rank's own failure, which the steps of the others then return. Returns
 * the first failure; of a rank alone: rc.
 */
int ares_rollout_finish(ares_rollout *r, int rc);
/*
 * A clock that counts tokens: no sample gets more than until - start of them before this is called
 * again with a later time. A sample that is held keeps its cache while there is room, and no place
 * among those decoded at once. Without a call nothing is held.
 */
void ares_rollout_hold(ares_rollout *r, int64_t until);
/* One forward pass: prefill, decode or both. *active: samples neither finished nor held. */
int ares_rollout_step(ares_rollout *r, int64_t *active);
/*
 * The next sample that has finished; false when there is none. Samples that finish in the same step
 * come in the order (tokens, request, index).
 */
bool ares_rollout_next(ares_rollout *r, ares_completion *out);
/* A sample that has not finished, with its tokens so far; they move with the next step. */
void ares_rollout_look(const ares_rollout *r, int64_t id, int32_t index, ares_completion *out);
/* Of a request whose prompt is computed: at the latest when its first sample has a token. */
void ares_rollout_prompt_scores(const ares_rollout *r, int64_t id, ares_prompt_scores *out);
/*
 * Of an engine that serves: forgets a request whose samples have all been handed out by
 * ares_rollout_next, and with it what those point to.
 */
void ares_rollout_drop(ares_rollout *r, int64_t id);
/*
 * Forgets all samples and the cache, because the weights change. The cache's memory is kept, or
 * taken again after training used it; a slice's weights must have been taken before.
 */
void ares_rollout_clear(ares_rollout *r);

typedef struct ares_rollout_stats {
    int64_t steps, prefill_tokens, decoded_tokens, preemptions, peak_seqs, peak_blocks,
        total_blocks;
    int64_t used_blocks;   /* now: those that samples hold, without what is only kept to be found */
    int64_t reused_tokens; /* prompt tokens found in the cache instead of computed */
    int64_t drafted_tokens,
        accepted_tokens;    /* those computed ahead; those of them that were drawn */
    int64_t graph_steps;    /* steps that were launched as one graph */
    int64_t refused_graphs; /* sizes of steps of which the device keeps no graph; never reset */
} ares_rollout_stats;
size_t ares_rollout_cache_bytes(const ares_rollout *r);
/*
 * Of a model with delta nets: bytes that the states of one sequence take, and for how many
 * sequences and snapshots there is room. Memory of states that were never there is not touched.
 */
size_t ares_rollout_state_bytes(const ares_rollout *r, int32_t *room);
/* Whether it may compute tokens ahead, as the option drafts_tokens asks. */
bool ares_rollout_drafts(const ares_rollout *r);
/* Since the last clear. */
void ares_rollout_get_stats(const ares_rollout *r, ares_rollout_stats *out);
#endif
