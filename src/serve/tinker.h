/*
 * Private to the serve room: the Tinker training API: protocol, state and queue. Nothing here knows
 * a socket or a model: requests come as heads of http.h, training goes to an ares_tinker_learner,
 * sampling to a tinker_engine.
 *
 * The service thread calls tinker_ask: it parses, answers at once or queues, and never waits. The
 * worker thread, which owns the model, calls tinker_work.
 */
#ifndef ARES_SERVE_TINKER_PRIVATE_H
#define ARES_SERVE_TINKER_PRIVATE_H

#include "ares/core.h"
#include "ares/serve_tinker.h"
#include "http.h"

/* ---------------- the binary part (tinker_wire.c)
 * Protocol buffers by hand: one message is read and two are written. Fields that a reader does not
 * know are skipped, of a field that comes twice the last counts, and numbers are little-endian.
 */
enum { TINKER_F32 = 1, TINKER_I64 = 2 }; /* DType */
typedef struct tinker_tensor {
    ares_view name;   /* "target_tokens" */
    int dtype;        /* TINKER_F32 or TINKER_I64 */
    int axes;         /* 1 or 2 */
    int64_t shape[2]; /* [1] is 1 where axes is 1 */
    const float *f32; /* [shape[0]][shape[1]], every cell finite; NULL for integers */
    const int64_t *i64;
} tinker_tensor;
typedef struct tinker_datum {
    int64_t n;             /* tokens of all chunks, 1 or more */
    const int32_t *tokens; /* [n] */
    int n_inputs;
    const tinker_tensor *inputs; /* [n_inputs], no two of one name */
} tinker_datum;
typedef struct tinker_option {
    ares_view name;
    bool is_text;
    double number;
    ares_view text;
} tinker_option;
typedef struct tinker_forward {
    ares_view model_id, loss_fn;
    int64_t seq_id;
    bool forward_only;
    int n_options;
    const tinker_option *options;
    int64_t n_data;
    const tinker_datum *data;
} tinker_forward;
/*
 * Reads a ForwardBackwardRequest; everything it gives lies in the arena or in `bytes`.
 * ARES_EFORMAT: no such message. ARES_EUSE: one that is refused; model_id and seq_id are there all
 * the same, seq_id 0 where it is not 1 or more.
 */
int tinker_forward_read(ares_arena *arena, ares_view bytes, tinker_forward *out);

typedef struct tinker_metric {
    const char *name; /* "loss:sum": exactly one colon */
    double value;
} tinker_metric;
/* The log-probs of a datum: [n] where axes is 1, [n][k] where it is 2. */
typedef struct tinker_log_probs {
    int axes;
    int64_t n, k;
    const float *x;
} tinker_log_probs;
/* A ForwardBackwardOutput; metrics ascend by name. */
void tinker_forward_write(const tinker_log_probs *data, int64_t n, const tinker_metric *metrics,
                          int n_metrics, ares_str *out);

/* ---------------- sampling: what the engine is asked, and what it gives */
typedef struct tinker_sample {
    int32_t prompt_len;
    const int32_t *prompt; /* [prompt_len], in the vocabulary */
    int32_t n;             /* samples; sample i depends on (seed, i), not on n */
    int32_t max_tokens;    /* 1 or more; prompt_len + max_tokens lies within the context */
    uint64_t seed;
    double temperature, top_p; /* 0: greedy; 1: off */
    int32_t top_k;             /* -1: off */
    /* false: max_tokens alone ends a sample. true: the model's end-of-sequence ids do, and these */
    bool stops;
    int n_stop_ids, n_stop_strings;
    const int32_t *stop_ids;
    const char *const *stop_strings;
    int32_t topk_sampled; /* most likely tokens to be told of each position, 0: none */
    /* log-probs of prompt tokens, under the untempered full distribution */
    bool prompt_log_probs;
    int32_t topk_prompt; /* most likely tokens at each position of the prompt, 0: none */
    int32_t last_n;      /* the two above: of these last positions; position 0 never has any */
    /* targets per position, 0: none; row i is about position i + 1; -1: none */
    int32_t n_targets;
    const int32_t *targets; /* [prompt_len - 1][n_targets] */
    /* the answer's cells where they were asked for as CSR; crow NULL: all */
    int64_t n_cells;
    const int64_t *crow, *col; /* [prompt_len], [n_cells] */
} tinker_sample;
/*
 * Cells without a value: NaN in prompt_log_probs, token TINKER_NO_TOKEN with TINKER_NO_LOG_PROB in
 * lists of most likely tokens, 0 for a target of -1. tinker_top fills its lists so.
 */
#define TINKER_NO_TOKEN 0
#define TINKER_NO_LOG_PROB (-99999.0F)
typedef struct tinker_sequence {
    int32_t n; /* tokens, the stop token included */
    const int32_t *tokens;
    const float *log_probs;      /* [n], in the distribution each was drawn from */
    const int32_t *topk;         /* [n][topk_sampled] */
    const float *topk_log_probs; /* the same */
    bool length;                 /* max_tokens ended it */
} tinker_sequence;
/* The answer to a tinker_sample `a`. */
typedef struct tinker_sampled {
    const tinker_sequence *sequences;   /* [a.n], by sample number */
    const float *prompt_log_probs;      /* [a.prompt_len], where asked for */
    const int32_t *topk_prompt;         /* [a.prompt_len][a.topk_prompt] */
    const float *topk_prompt_log_probs; /* the same */
    const float *target_log_probs;      /* [a.prompt_len - 1][a.n_targets] */
    int32_t cache_hit_tokens;
} tinker_sampled;
/* A SampleResponse. */
void tinker_sample_write(const tinker_sample *asked, const tinker_sampled *s, ares_str *out);

typedef struct tinker_engine {
    void *ctx;
    /*
     * Begins to sample and returns at once. adapter NULL: the base model. `what` and the adapter
     * live until done(own, rc, result) was called, once, from the worker thread: also before this
     * returns, or after a cancel. rc not ARES_OK: the message is the error's of this thread, and
     * result is NULL. result is borrowed for the call. A failure returned here: done is not called.
     */
    int (*sample)(void *ctx, const ares_adapter *adapter, const tinker_sample *what,
                  void (*done)(void *own, int rc, const tinker_sampled *result), void *own);
    /* Ends one early; done is still called, with any rc. */
    void (*cancel)(void *ctx, void *own);
} tinker_engine;

/* ---------------- the distribution a token is drawn from (tinker_loss.c)
 * log_probs [vocab], written: of logits / temperature, the top_k largest (-1: all), then the
 * smallest set of largest whose probabilities sum to at least top_p, renormalised; -INFINITY for
 * what is left out. Ties: the lower id. Temperature 0: that of temperature 1 without cuts. `drawn`
 * is kept whatever rounding says of the limits; -1: none.
 */
void tinker_distribution(const float *logits, int32_t vocab, double temperature, int32_t top_k,
                         double top_p, int32_t drawn, double *log_probs);
/* The k largest, best first, ties by the lower id; sentinels where -INFINITY follows. */
void tinker_top(const double *log_probs, int32_t vocab, int32_t k, int32_t *tokens,
                float *of_tokens);

/* ---------------- losses (tinker_loss.c) */
/* Inputs of a datum, [n][k] each; NULL where absent. */
typedef struct tinker_loss_inputs {
    int64_t cells; /* n k */
    const float *log_probs, *weights, *old_log_probs, *advantages, *ratio_mask;
} tinker_loss_inputs;
typedef struct tinker_loss {
    int kind; /* place in the table of losses */
    double low, high, beta;
    bool clips; /* counts clipped tokens */
} tinker_loss;
/* ARES_EUSE: no such loss, or an option that it does not have; the message names it. */
int tinker_loss_find(ares_view loss_fn, const tinker_option *options, int n, tinker_loss *out);
/*
 * Whether a datum has what the loss needs and nothing else, with lengths and ids that agree; fills
 * *inputs but for log_probs, and *datum, whose targets come from the arena. index: for messages
 */
int tinker_loss_check(const tinker_loss *l, const tinker_datum *d, int64_t index, int32_t vocab,
                      int32_t context, ares_arena *arena, tinker_loss_inputs *inputs,
                      ares_tinker_datum *datum);
/* Axes of its targets, and so of its log-probs: 1 or 2. */
int tinker_loss_axes(const tinker_datum *d);
/*
 * Adds the losses of positions to *sum, one after the other, and clipped ones to *clipped.
 * derivative [cells], written; each [cells] of losses, written; both may be NULL.
 */
void tinker_loss_of(const tinker_loss *l, const tinker_loss_inputs *in, double *sum,
                    int64_t *clipped, float *derivative, double *each);

/* ---------------- names, and requests in JSON (tinker_request.c) */
typedef struct tinker_path {
    ares_view model_id; /* "s0123456789ab:train:0" */
    ares_view name;     /* "final" */
    bool sampler;       /* sampler_weights, not weights */
} tinker_path;
/* tinker://MODEL_ID/weights/NAME or .../sampler_weights/NAME, and nothing else. */
bool tinker_path_read(ares_view text, tinker_path *out);
/* 1 to 128 of A-Z a-z 0-9 . _ -, not . or .. */
bool tinker_name_ok(ares_view name);
/* SESSION:train:NUMBER, with nothing that a path of files could take for more than a name */
bool tinker_model_id_ok(ares_view id);

/* X(name, method, path below /api/v1/): * stands for one part of a path */
#define TINKER_CALLS(X)                                               \
    X(HEALTHZ, "GET", "healthz")                                      \
    X(CAPABILITIES, "GET", "get_server_capabilities")                 \
    X(CONFIG, "POST", "client/config")                                \
    X(DYNAMIC_CONFIG, "POST", "client/dynamic_config")                \
    X(CREATE_SESSION, "POST", "create_session")                       \
    X(HEARTBEAT, "POST", "session_heartbeat")                         \
    X(FINISH, "POST", "sessions/*/finish")                            \
    X(CREATE_MODEL, "POST", "create_model")                           \
    X(INFO, "POST", "get_info")                                       \
    X(FORWARD, "POST", "forward_backward")                            \
    X(STEP, "POST", "optim_step")                                     \
    X(SAVE, "POST", "save_weights")                                   \
    X(LOAD, "POST", "load_weights")                                   \
    X(SAVE_EXTERNAL, "POST", "save_weights_external")                 \
    X(SAVE_FOR_SAMPLER, "POST", "save_weights_for_sampler")           \
    X(CREATE_SAMPLER, "POST", "create_sampling_session")              \
    X(SAMPLER, "GET", "samplers/*")                                   \
    X(SAMPLE, "POST", "asample")                                      \
    X(FUTURE, "POST", "retrieve_future")                              \
    X(CANCEL, "POST", "cancel_future")                                \
    X(TELEMETRY, "POST", "telemetry")                                 \
    X(WEIGHTS_INFO, "POST", "weights_info")                           \
    X(RUN, "GET", "training_runs/*")                                  \
    X(RUNS, "GET", "training_runs")                                   \
    X(RUN_CHECKPOINTS, "GET", "training_runs/*/checkpoints")          \
    X(CHECKPOINTS, "GET", "checkpoints")                              \
    X(DELETE_CHECKPOINT, "DELETE", "training_runs/*/checkpoints/*/*") \
    X(SESSION, "GET", "sessions/*")                                   \
    X(UNLOAD, "POST", "unload_model")
#define TINKER_CALL_ENUM(name, method, path) TINKER_##name,
typedef enum { TINKER_CALLS(TINKER_CALL_ENUM) TINKER_N_CALLS } tinker_call;

/* Texts that are absent have data NULL, numbers are -1, values NULL. All lies in the arena. */
typedef struct tinker_request {
    tinker_call call;
    ares_view id[3]; /* parts of the path that * stands for */
    ares_view session_id, model_id, base_model, model_path, path, tinker_path, request_id,
        sampling_session_id;
    int64_t seq_id, model_seq_id, sampler_seq_id, ttl_seconds, limit, offset;
    bool optimizer, overwrite;
    const ares_json *user_metadata; /* an object */
    ares_tinker_lora lora;          /* create_model */
    ares_tinker_adam adam;          /* optim_step */
    tinker_sample sample;           /* asample, as tinker_sample_check leaves it */
    bool has_seed;                  /* of lora or sample */
    const ares_json *prompt, *sampling_params, *targets; /* asample */
    int64_t num_samples, topk_prompt, topk_sampled, last_n, alt_tokens;
    bool prompt_log_probs;
    tinker_forward forward;
} tinker_request;
/*
 * Which call it is; 0, or the status of an error, 404 or 405, whose message is the thread's. id
 * borrows from the path.
 */
int tinker_route(const char *method, ares_view path, tinker_request *out);
const char *tinker_call_path(tinker_call call); /* "optim_step" */
/*
 * Reads the body of the call that tinker_route found. 0, or a status, 400 or 422; model_id and
 * seq_id are there where they could be read, seq_id only where it is in its range.
 */
int tinker_request_read(ares_arena *arena, ares_view body, ares_view query, tinker_request *out);
/* What a model of such sizes can sample; fills out->sample but for a seed that is absent. */
int tinker_sample_check(ares_arena *arena, int32_t vocab, int32_t context, tinker_request *out);
/* adam_params; ARES_EUSE */
int tinker_adam_read(const ares_json *object, ares_tinker_adam *out);

/* ---------------- checkpoints on disk (tinker_store.c)
 * STATE_DIR/RUN/weights/NAME and STATE_DIR/RUN/sampler_weights/NAME, RUN being the model's id with
 * _ for each colon: what ares_tinker_learner.save wrote, and checkpoint.json. A folder appears
 * whole or not at all. STATE_DIR/tmp is emptied when the server starts.
 */
typedef struct tinker_checkpoint {
    tinker_path path;
    ares_view base_model, fingerprint, time;
    ares_tinker_lora lora;
    int64_t ttl_seconds;    /* -1: none */
    ares_view metadata;     /* of the checkpoint: an object as JSON */
    ares_view run_metadata; /* of the model */
    int64_t size_bytes;     /* of all files, where it was read */
} tinker_checkpoint;
/* The folder of a checkpoint, there or not. Returns out->data. */
const char *tinker_store_dir(ares_str *out, const char *state_dir, const tinker_path *path);
/* ARES_EUSE: there is none. All of it lies in the arena. */
int tinker_store_read(ares_arena *arena, const char *state_dir, const tinker_path *path,
                      tinker_checkpoint *out);
/*
 * Adds checkpoint.json to the folder `from`, in which the learner has written, and makes it the
 * checkpoint, in place of one of that name; durable on return.
 */
int tinker_store_commit(const char *state_dir, const char *from, const tinker_checkpoint *c);
int tinker_store_remove(const char *state_dir, const tinker_path *path);
/* Checkpoints of a model, weights first, by name; model_id empty: of all. Others are left out. */
void tinker_store_list(ares_arena *arena, const char *state_dir, ares_view model_id,
                       tinker_checkpoint **out, int64_t *n);

/* ---------------- the server's state (tinker.c) */
typedef struct tinker tinker;
typedef struct tinker_options {
    const char *const *names; /* base models are asked for by these; the first is told */
    int n_names;
    const char *model_dir; /* absolute */
    const char *arch;      /* "qwen3" */
    char fingerprint[17];  /* ares_model_fingerprint, in hexadecimal */
    int32_t vocab, context;
    bool local;            /* clients are on this machine: the tokenizer's id is model_dir */
    const char *state_dir; /* it is made */
    bool state_later;      /* only when the first session comes */
    int64_t max_lora_rank, max_models, max_queue;
    double session_timeout_s; /* 0: never */
    uint64_t seed;
    const ares_tinker_learner *learner;
    const tinker_engine *engine;
    /* from any thread, with the lock held: there is work for the worker; it calls nothing here */
    void (*wake)(void *ctx);
    /*
     * The answer to a call that tinker_ask has kept; from any thread, once for each, without a lock
     * that tinker_ask needs. body is borrowed.
     */
    void (*answer)(void *ctx, void *call, int status, const char *content_type, ares_view body);
    void *ctx;             /* of wake and answer */
    double (*now_s)(void); /* ares_now_s */
} tinker_options;
#define TINKER_DEFAULTS                                                                   \
    .state_dir = "ares-serve", .max_lora_rank = 128, .max_models = 32, .max_queue = 1024, \
    .session_timeout_s = 3600, .seed = 1, .now_s = ares_now_s
enum { TINKER_POLL_S = 30, TINKER_HOLD_S = 60 };

/* Copies the options' strings; the functions stay the caller's. */
int tinker_open(const tinker_options *o, tinker **out);
typedef struct tinker_answer {
    int status;
    const char *content_type;
    ares_str body;
    bool retry_after; /* add the header retry-after: 1 */
} tinker_answer;
/*
 * A request whose path begins with /api/v1/. true: *out is the answer. false: `call` is kept, being
 * a long poll; options.answer gets the answer, maybe before this returns, unless tinker_expire
 * comes first.
 */
bool tinker_ask(tinker *t, const serve_request_head *head, void *call, tinker_answer *out);
/* A long poll has waited TINKER_POLL_S: answered 408, unless it has been answered. */
void tinker_expire(tinker *t, void *call);
/* In the service thread: asks, answers, and lets the call go (tinker_http.c). */
void tinker_handle(tinker *t, serve_call *c);
/* For options.answer, where calls are those of http.h. */
void tinker_answer_call(void *ctx, void *call, int status, const char *content_type,
                        ares_view body);
/* An error in the API's form: {"detail": message}. */
void tinker_error_body(const char *message, ares_str *out);

typedef enum {
    TINKER_SAMPLING = 1, /* hand all samples that wait to the engine */
    TINKER_TRAINING = 2  /* do the next training call */
} tinker_kind;
/* Kinds of which something waits. */
int tinker_waits(tinker *t);
/*
 * Does it, and whatever is overdue: held calls, sessions without heartbeat. To be called by the
 * worker whenever it was woken, and now and then otherwise. Returns whether anything was done.
 */
bool tinker_work(tinker *t, int kinds);
/* Answers waiting polls with 503, as all requests from now on. */
void tinker_stop(tinker *t);
/* By the worker, when the engine has called done for all samples. Stops first. */
void tinker_close(tinker *t);
#endif
