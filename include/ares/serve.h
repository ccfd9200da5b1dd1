/*
 * serve: a model behind HTTP (docs/serve.md). OpenAI's chat and completions and the Tinker training
 * API are answered by one engine with continuous batching; the same door stands in a training run,
 * where users' programs are the players of an environment.
 *
 * One service thread owns the sockets: it parses and queues. Whoever calls ares_server_pump owns
 * model and engine: it takes what is queued, makes one step of decoding, and answers.
 */
#ifndef ARES_SERVE_H
#define ARES_SERVE_H

#include "ares/core.h"
#include "ares/model.h"
#include "ares/rollout.h"
#include "ares/serve_tinker.h"
#include "ares/text.h"

/* A further name, behind which the model answers with an adapter. */
typedef struct ares_serve_adapter {
    const char *name;
    ares_adapter *adapter;
} ares_serve_adapter;

struct serve_session; /* private: what is kept of an episode's answers */

typedef struct ares_serve_options {
    /* ---------------- who may ask */
    const char *host; /* NULL: 127.0.0.1; another needs a key */
    int port;         /* 0: any free one */
    const char *api_key;
    const char *const *origins;
    int n_origins;
    int64_t max_body_mb, max_queue; /* 256, 1024 */
    double request_timeout_s;       /* 0: none */
    /* ---------------- what is served */
    const char *model_dir, *tokenizer_dir;
    const char *const *names; /* the model's; a request without one gets the first */
    int n_names;
    const ares_adapter *adapter; /* what the model's own names answer with; NULL: the model alone */
    const ares_serve_adapter *adapters; /* borrowed */
    int n_adapters;
    int32_t max_model_len, max_num_seqs; /* 0: the model's; 64 */
    int64_t cache_tokens;
    bool drafts_tokens;      /* as ares_rollout_options */
    int32_t state_snapshots; /* likewise */
    uint64_t seed;           /* of requests without one */
    const char *tool_parser; /* auto, hermes, llama3_json, none */
    const char *reasoning;   /* none, think */
    const char *request_log; /* a JSON line per request; NULL: none */
    const char *version;     /* of the program */
    const ares_chat *chat;   /* in place of the tokenizer's chat template; NULL: that one */
    /* ---------------- the Tinker training API; learner NULL: it is not served */
    const ares_tinker_learner *learner;
    const char *state_dir; /* NULL: ares-serve, made when the first client of the API comes */
    int64_t max_lora_rank, max_models;
    double session_timeout_s; /* 0: never */
    /* a training run's engine, which it lends to the server; NULL: the server has one of its own */
    ares_rollout *rollout;
} ares_serve_options;
#define ARES_SERVE_DEFAULTS                                                                        \
    .host = "127.0.0.1", .port = 8000, .max_body_mb = 256, .max_queue = 1024, .max_num_seqs = 64,  \
    .seed = 1, .tool_parser = "auto", .reasoning = "none", .max_lora_rank = 128, .max_models = 32, \
    .session_timeout_s = 3600

/* ---------------- the endpoint of a training run
 * Users' programs play episodes: a request's key says whose it is, sampling is the run's own, and
 * what was sampled goes back to the run as records (docs/serve.md#agents). Everything
 * here is called by the thread that pumps.
 */
/* A complete choice of an episode. */
typedef struct ares_serve_record {
    const int32_t *prompt, *ids;
    const float *log_probs; /* [n], at the sampling temperature */
    int64_t n_prompt, n;
    int64_t k, index, weights; /* weights: their version */
    bool train;
    bool by_length; /* it was ended by its length */
} ares_serve_record;
typedef struct ares_serve_row {
    int32_t *prompt, *responses;
    uint8_t *mask;       /* 1: sampled for this row */
    float *log_probs;    /* 0 where mask is 0 */
    int64_t *weights;    /* -1 where mask is 0 */
    int64_t n_prompt, n; /* n: of responses, mask, log_probs, weights */
    int *records;        /* [n_records] indices of the records that it holds, in their order */
    int n_records;
} ares_serve_row;
/* The order in which rows are made of records: of prompt length, prompt, k and index. */
int ares_serve_record_cmp(const ares_serve_record *a, const ares_serve_record *b);
/* The rows of an episode, whatever the order in which its records came; returns how many. */
int ares_serve_rows(ares_arena *arena, const ares_serve_record *records, int n,
                    ares_serve_row **rows);

/* A line that an agent wrote. */
typedef enum {
    ARES_SERVE_LINE_CHATTER,
    ARES_SERVE_LINE_REWARD,
    ARES_SERVE_LINE_FAILURE
} ares_serve_line_kind;
typedef struct ares_serve_line {
    ares_serve_line_kind kind;
    double reward;
    bool success;
    const ares_json *info; /* an object of numbers and truth values; NULL: none */
    const ares_json *id;   /* with_id: the line's id; NULL: it has none that can be read */
    const char *why;       /* of a failure */
} ares_serve_line;
/* with_id: the process plays several episodes, and a line without an id is chatter. */
void ares_serve_line_read(ares_arena *arena, ares_view line, bool with_id, ares_serve_line *out);

/* What the server asks of the run while a draw is played. */
typedef struct ares_serve_play {
    void *ctx;
    const ares_sampling
        *sampling; /* the run's: temperature, top_p, top_k, longest answer, stop ids */
    const ares_adapter *adapter; /* NULL: the model alone */
    int64_t weight_version;
    /* The episode of a key that is being played; NULL: there is none, the request is 401. */
    void *(*episode)(void *ctx, ares_view key);
    /*
     * A request of the episode is taken, which came at arrived_s (ares_now_s): its own time stands
     * still from then on until `ended` was called as often. false: it has asked max_requests times,
     * the request is 403. *session: where its answers are kept; *key, *index: of its samples
     * (ares_request); *line: a number of its own
     */
    bool (*begun)(void *ctx, void *episode, double arrived_s, struct serve_session **session,
                  ares_rng_key *key, int32_t *index, uint64_t *line);
    void (*ended)(void *ctx, void *episode, bool encoded_anew);
    /*
     * A complete choice. entropies, entropies_1 [r->n]: at the sampling temperature and at 1. All
     * is borrowed for the call.
     */
    void (*record)(void *ctx, void *episode, const ares_serve_record *r, const float *entropies,
                   const float *entropies_1);
    /* How many requests of the episode had the same ids before. */
    int64_t (*equal)(void *ctx, void *episode, const int32_t *ids, int64_t n);
} ares_serve_play;

typedef struct ares_server ares_server;
/*
 * Options that contradict each other or the model fail with the remedy. model and tokenizer are
 * borrowed; the tokenizer's eos has been told to the model (ares_model_add_eos).
 */
int ares_server_open(const ares_serve_options *o, ares_model *m, const ares_tokenizer *tokenizer,
                     ares_server **out);
int ares_server_port(const ares_server *s);
/* Of a run: a descriptor that can be read once a request is queued; for poll alone. */
int ares_server_event(const ares_server *s);
/*
 * One round: takes what is queued, makes a step of decoding where samples are under way, and
 * answers. Waits up to wait_s where there is nothing to do. *worked: there was something.
 */
int ares_server_pump(ares_server *s, double wait_s, bool *worked);
/*
 * Of a run: from now on requests are those of episodes of this play; NULL: no episode is being
 * played, and what the engine still samples is ended. ares_server_forget ends the requests of an
 * episode that is over: they leave no record. Neither is called from functions of the play.
 */
int ares_server_play(ares_server *s, const ares_serve_play *play);
void ares_server_forget(ares_server *s, const void *episode);
/* What an episode keeps of its answers (begun). */
struct serve_session *ares_serve_session_new(void);
void ares_serve_session_free(struct serve_session *session);
/*
 * Pumps until a signal comes (ares_signal_install), finishes what is in work (at most 5 s), and
 * answers 503 from then on.
 */
int ares_server_run(ares_server *s);
void ares_server_close(ares_server *s);
#endif
