/*
 * Private to the serve room: the server's state, and the life of a request to OpenAI's endpoints.
 * server.c: the door (paths, queue, rounds of the worker, watching); openai_job.c: from a request's
 * body to its answer.
 */
#ifndef ARES_SERVE_SERVER_H
#define ARES_SERVE_SERVER_H

#include <pthread.h>
#include <stdio.h>

#include "ares/serve.h"
#include "http.h"
#include "openai.h"
#include "tinker.h"

/* Most entries of top_logprobs, and of prompt_logprobs. */
enum { SERVE_MOST_LIKELY = 20 };

/* One prompt of a request. */
typedef struct job_prompt {
    ares_ids ids; /* the opening of a forced call included */
    uint64_t k;   /* equal requests before it, or what stands for it where nothing counts them */
    uint64_t seed;
    ares_view text;                  /* of /v1/completions, where it was one */
    const ares_row_media *row_media; /* NULL: text alone */
    const ares_seen *seen;
    bool opened;    /* it ends with <think> */
    int32_t cached; /* tokens found in the cache; -1: not known yet */
    /* of position i + 1, or NULL: not asked for; in the job's arena */
    int32_t rows, n_likely;
    float *log_probs, *likely_log_probs;
    int32_t *ranks, *likely_tokens;
} job_prompt;

/* One sample. Its columns grow as the engine hands tokens out. */
typedef struct job_choice {
    serve_cut *cut;
    int32_t n, cap; /* tokens taken over */
    int32_t *ids;
    float *log_probs, *log_probs_1; /* at the sampling temperature, at 1 */
    float *entropies, *entropies_1; /* likewise */
    int32_t *likely_tokens;         /* [cap][n_likely] */
    float *likely_log_probs;
    bool begun, ended; /* its first chunk is out; it has no further token */
    int64_t offset;    /* code points of completions' text that are out */
} job_choice;

/* A request to one of OpenAI's endpoints, from its body to the last byte of its answer. */
typedef struct serve_job {
    struct serve_job *next;
    struct ares_server *server;
    serve_call *call;
    ares_arena arena;
    serve_asked asked;
    serve_code code; /* SERVE_NO_ERROR: none so far */
    serve_error error;
    char id[48];
    int64_t created;
    double arrived_s, first_s; /* first_s: of the first token; 0: none */
    const ares_adapter *adapter;
    int32_t n_likely; /* recorded per token */
    bool encoded;     /* by the reader: the prompts have their ids */
    bool prepared, streams, sees;
    /* of a training run: whose request it is, and what the run says of its samples */
    void *episode;
    serve_session *kept;
    ares_rng_key key;
    int32_t index;
    bool encoded_anew;
    bool lost;           /* the client cannot be told: it went, or reads no streams (HTTP/1.0) */
    job_prompt *prompts; /* [asked.n_prompts], one for chat */
    job_choice *choices; /* [prompts][n] */
    int64_t n_choices, next_choice, running, ended; /* next_choice: not yet asked of the engine */
    uint64_t line; /* whose turn it is: the connection, in training the episode */
} serve_job;

/* One sampling call of Tinker's clients (tinker_draw.c). */
typedef struct serve_draw serve_draw;

/* Samples of one prompt that were asked of the engine together, for a job or a draw. */
typedef struct serve_run {
    int64_t id;
    serve_job *job;      /* NULL: it is a draw's, or nobody waits for it any more */
    serve_draw *draw;    /* NULL: it is a job's */
    int64_t first;       /* its choices are [first, first + n) of the job */
    int32_t first_index; /* of its samples in the engine */
    int32_t n, left;
} serve_run;

/* How often who was served, of those that have a request: fair turns. */
typedef struct serve_turn_of {
    uint64_t line;
    uint64_t served;
} serve_turn_of;

/* Counts for /metrics: X(name, text). */
#define SERVE_COUNTERS(X)                                                                 \
    X(prompt_tokens, "ares:prompt_tokens_total", "tokens of prompts")                     \
    X(generation_tokens, "ares:generation_tokens_total", "tokens sampled")                \
    X(cached_tokens, "ares:cached_tokens_total", "prompt tokens found in the cache")      \
    X(drafted_tokens, "ares:spec_decode_num_draft_tokens_total", "tokens computed ahead") \
    X(accepted_tokens, "ares:spec_decode_num_accepted_tokens_total",                      \
      "of those, tokens that were then sampled")                                          \
    X(cancelled, "ares:cancelled_total", "requests whose client went away")               \
    X(reencoded, "ares:reencoded_total", "prompts of a session that were encoded anew")
enum { SERVE_BUCKETS = 10 }; /* of histograms, +Inf included */
typedef struct serve_histogram {
    int64_t count[SERVE_BUCKETS];
    double sum;
} serve_histogram;

struct ares_server {
    ares_serve_options o;
    ares_arena arena; /* strings of o */
    ares_model *model;
    const ares_tokenizer *tokenizer;
    const ares_chat *chat; /* NULL: the model has no chat template */
    ares_chat *own_chat;   /* NULL: it is the caller's */
    char *chat_error;
    bool generic_tools;
    serve_form form;
    ares_prompt_encoder *encoder; /* of a vision model, else NULL */
    ares_data_config data;
    ares_media_rules rules;
    ares_features **features; /* [1 + n_adapters]: of the model, of each adapter; NULL: not yet */
    bool shown;               /* features were asked for since the engine was last cleared */
    serve_job *keeps;         /* ended jobs whose pictures the features still name */
    ares_rollout *rollout;
    const ares_serve_play *play; /* of a training run, while a draw is played */
    serve_sessions *sessions;
    ares_map *seen_before; /* requests without a seed, by what they ask: how often */
    const char **models;   /* names of model and adapters */
    int n_models;
    int event; /* of a training run: an eventfd that tells of queued requests; -1: none */
    serve_http *http;
    tinker *tinker; /* NULL: not served */
    tinker_engine engine;
    double decode_until_s; /* when the next training call may begin, while answers are decoded */
    FILE *log;
    _Atomic bool log_failed; /* a line could not be written, which was told; by any thread */
    ares_map *ignored;       /* fields named in the log already */

    /* of the worker alone */
    serve_job *jobs; /* taken over, in order of arrival */
    serve_draw *draws;
    serve_run *runs;
    int n_runs, runs_cap;
    serve_turn_of *turns;
    int n_turns, turns_cap;
    uint64_t served;

    pthread_t reader; /* reads large bodies, for which the service thread has no time */
    bool has_reader;

    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t wake, comes; /* comes: a large body, or the reader's end */
    serve_call **large;         /* whole requests in order of arrival */
    int n_large, cap_large;
    bool reading, reader_ends; /* reading: a request that is no longer in `large` */
    serve_job *queued, *queued_last;
    int64_t unfinished; /* accepted and not answered */
    bool stopping, woken;
    ares_map *answered; /* "path status" -> requests */
#define COUNTER(name, shown, text) int64_t name;
    SERVE_COUNTERS(COUNTER)
#undef COUNTER
    int64_t running, waiting, n_sessions;
    int64_t drafted_before, accepted_before; /* of the engine, counted already */
    double cache_use;
    serve_histogram first_token, whole;
    double started;
    uint64_t errors; /* numbers of x-request-id */
};

/* ---------------- server.c */
/* The answer to the job goes out, or its failure; it is logged and counted. `status` is what the
 * log says. */
void serve_job_end(serve_job *j, int status);

/* ---------------- openai_job.c */
/* Of a training run: finds the episode, and puts the run's sampling in place of the request's. */
void serve_job_enter(serve_job *j);
/*
 * In the reader: renders and encodes prompts that are a function of the body alone, and refuses
 * others that are much too long.
 */
void serve_job_encode(serve_job *j);
/* Renders, encodes and checks the prompts; a failure is in j->code and j->error. */
void serve_job_prepare(serve_job *j);
/* What the engine is asked for choice number `choice` and those after it, n of them. */
ares_request serve_job_request(serve_job *j, int64_t choice, int32_t n);
/*
 * Takes over the tokens of a choice that are new, and sends what of its text is certain. True: the
 * answer ends with token c->n, whatever the engine says.
 */
bool serve_job_take(serve_job *j, int64_t choice, const ares_completion *c);
/* The choice has no further token. */
void serve_job_close_choice(serve_job *j, int64_t choice);
/* All choices have ended, or the request failed: the answer, or the end of the stream. */
int serve_job_answer(serve_job *j);
void serve_job_free(serve_job *j);
/* Scores of the prompt of this choice. */
void serve_job_scores(serve_job *j, int64_t choice, const ares_prompt_scores *s);
/* ---------------- tinker_draw.c; the first two are tinker_engine's */
int serve_draw_begin(void *ctx, const ares_adapter *adapter, const tinker_sample *what,
                     void (*done)(void *own, int rc, const tinker_sampled *result), void *own);
void serve_draw_cancel(void *ctx, void *own);
/* The first that has samples which the engine was not asked for. */
serve_draw *serve_draw_next(const ares_server *s);
/* Asks the engine for the next samples, at most `room`; returns how many, 0 with *rc. */
int32_t serve_draw_ask(serve_draw *d, int32_t room, int64_t *id, int64_t *first, int *rc);
/* A sample has ended; `id` is that of its request. */
void serve_draw_take(serve_draw *d, int64_t id, const ares_completion *c);
/* The engine refused it: whoever asked is told rc, whose message is this thread's. */
void serve_draw_fail(serve_draw *d, int rc);
/* Ends samples of draws that were cancelled, and tells whoever asked of draws that are over. */
void serve_draws_end(ares_server *s);
/* /tokenize and /detokenize: the whole answer. */
int serve_job_tokens(serve_job *j);
#endif
