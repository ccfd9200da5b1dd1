/*
 * Private to tinker.c and tinker_work.c: the objects of Tinker's server, and what both files do
 * with them. Every function is called with the lock held.
 *
 * Every object belongs to a session and goes with it. A future is a call that was accepted; it is
 * known by a number, and by its owner and seq_id, so that a retry finds it. Training calls of a
 * model are done in the order of seq_id, those of different models as they came; samples go to the
 * engine at once and end in any order.
 *
 * One lock guards all of it. It is never held while the learner or the engine works, nor while a
 * call is answered: answers are collected, and given when the lock is free. Only the worker frees
 * what the learner has made; what a session leaves is put on lists for it.
 */
#ifndef ARES_SERVE_TINKER_STATE_H
#define ARES_SERVE_TINKER_STATE_H

#include <pthread.h>

#include "tinker.h"

enum {
    RESULTS_BYTES = 64 << 20, /* so many newer ones, and a result is dropped */
    FUTURE_BYTES = 1024,      /* that a result counts besides its own */
    SNAPSHOTS_IN_MEMORY = 8   /* of a session */
};

typedef struct model {
    struct model *next;
    char id[64];
    uint64_t number; /* by which futures know it */
    struct session *session;
    int64_t seq;  /* model_seq_id */
    void *handle; /* the learner's; NULL: not made yet */
    char *failed; /* why it could not be made */
    bool dead;    /* to be freed by the worker */
    ares_tinker_lora lora;
    int64_t next_seq; /* of the training call that comes next */
    char *metadata;   /* JSON */
    char time[24];    /* of its last request */
} model;

typedef struct sampler {
    struct sampler *next;
    char id[80];
    uint64_t number;
    struct session *session;
    int64_t seq; /* sampling_session_seq_id */
    bool base;   /* the model alone */
    char *path;  /* tinker://..., NULL: a snapshot, or the base */
    /* weights: in memory, or in `dir`, from which they are loaded when they are asked for */
    ares_adapter *adapter;
    char *dir;
    bool own_dir;   /* in STATE_DIR/tmp: goes with the sampler */
    uint64_t used;  /* grows with every use */
    int64_t active; /* samples that the engine has */
    bool dead;
} sampler;

typedef struct session {
    struct session *next;
    char id[16];
    uint64_t ordinal; /* since the start, from 1 */
    double heard_s;
    bool finished; /* it stays, so that its id is known to be gone */
    model *models;
    sampler *samplers;
} session;

typedef enum { QUEUED, RUNNING, DONE } future_state;
typedef struct future {
    struct future *next; /* in a queue, or among those that are done */
    struct future *same; /* in its bucket */
    int64_t number;
    future_state state;
    uint64_t owner; /* number of its model, sampler or session */
    int64_t seq;
    uint64_t hash; /* of the request */
    struct tinker *of;
    session *session;
    model *model;
    sampler *sampler;
    double arrived_s;
    char *refusal;         /* the call was refused when it was read: its error, in its turn */
    bool dropped, cancels; /* nobody wants the result; the engine is to be told */
    ares_arena arena;      /* of the request, until it is done */
    tinker_request request;
    ares_str result;
    bool binary; /* application/x-protobuf */
} future;

typedef struct queue {
    future *first, **last; /* in order of arrival */
} queue;

typedef struct poll {
    void *call;
    int64_t number;
} poll;

typedef struct reply {
    void *call;
    int status;
    const char *type;
    ares_str body;
} reply;

struct tinker {
    tinker_options o;
    ares_arena arena; /* of the options */
    int lock_fd;      /* of the state directory */
    pthread_mutex_t lock;
    bool stopping;
    char nonce[9]; /* in the ids of futures: those of another process are unknown */
    uint64_t numbers, uses, sessions, folders;
    session *session;
    model *dead_models;
    sampler *dead_samplers;
    queue training, sampling; /* that wait */
    queue running, done;      /* samples that the engine has; results */
    size_t done_bytes;
    int64_t unfinished; /* queued or running */
    /* futures by number: [number - first], NULL where one is gone */
    future **futures;
    int64_t first, n, cap;
    future **bucket; /* by owner and seq */
    int64_t buckets, known;
    poll *polls;
    int n_polls, cap_polls;
    reply *replies; /* to be given once the lock is free */
    int n_replies, cap_replies;
};

/* Makes the state directory and locks it, unless that was done. */
int tinker_open_state(tinker *t);
/* Gives back the lock, and then the answers that were collected. */
void tinker_unlock(tinker *t);
void tinker_push(queue *q, future *f);
void tinker_take_out(queue *q, future *f);
/* Answers all polls of a future, or every poll (-1), with JSON. */
void tinker_answer_polls(tinker *t, int64_t number, int status, ares_view body);
/* Makes the first buckets, or twice as many. */
void tinker_grow_buckets(tinker *t);
void tinker_random(void *out, size_t bytes);
/* f->result is there: polls are answered, and the oldest results may go. f may be gone. */
void tinker_complete(tinker *t, future *f);
void tinker_fail(tinker *t, future *f, int rc, const char *message);
sampler *tinker_new_sampler(tinker *t, session *s, int64_t seq);
/* Ends sessions that have been silent too long; all: every one. */
void tinker_end_sessions(tinker *t, bool all);
/* RFC 3339, to the second. */
void tinker_time(char text[24]);
#endif
