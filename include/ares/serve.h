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
#include "ares/text.h"

/* A further name, behind which the model answers with an adapter. */
typedef struct ares_serve_adapter {
    const char *name;
    ares_adapter *adapter;
} ares_serve_adapter;

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
    uint64_t seed;           /* of requests without one */
    const char *tool_parser; /* auto, hermes, llama3_json, none */
    const char *reasoning;   /* none, think */
    const char *request_log; /* a JSON line per request; NULL: none */
    const char *version;     /* of the program */
} ares_serve_options;
#define ARES_SERVE_DEFAULTS                                                                       \
    .host = "127.0.0.1", .port = 8000, .max_body_mb = 256, .max_queue = 1024, .max_num_seqs = 64, \
    .seed = 1, .tool_parser = "auto", .reasoning = "none"

typedef struct ares_server ares_server;
/*
 * Options that contradict each other or the model fail with the remedy. model and tokenizer are
 * borrowed; the tokenizer's eos has been told to the model (ares_model_add_eos).
 */
int ares_server_open(const ares_serve_options *o, ares_model *m, const ares_tokenizer *tokenizer,
                     ares_server **out);
int ares_server_port(const ares_server *s);
/*
 * One round: takes what is queued, makes a step of decoding where samples are under way, and
 * answers. Waits up to wait_s where there is nothing to do. *worked: there was something.
 */
int ares_server_pump(ares_server *s, double wait_s, bool *worked);
/* Pumps until a signal comes, finishes what is in work (at most 5 s), and answers 503 from then on.
 */
int ares_server_run(ares_server *s);
void ares_server_close(ares_server *s);
#endif
