/*
 * Private to http.c and call.c: a request with its answer, and the server, which both have to do
 * with. Fields are of the service thread where nothing else is said.
 */
#ifndef ARES_SERVE_CALL_H
#define ARES_SERVE_CALL_H

#include <pthread.h>

#include "http.h"
#include "http_parse.h"

typedef struct http_connection connection; /* http.c */

struct serve_call {
    serve_http *h;
    serve_request_head head;
    ares_str text, body; /* what the views of `head` point into */
    void *own;
    bool head_only, old;      /* of the method HEAD; of HTTP/1.0 */
    const char *allow_origin; /* a text of h, or NULL */
    connection *conn;         /* of the service thread; NULL: it is over */
    /* below: under the lock */
    int holders; /* the connection, the handler, the list of the woken, a timer that runs */
    bool begun, ended, events;  /* of the answer */
    bool gone, dropped;         /* the client; the handler */
    bool cut, flooded;          /* close: without the end of an answer; too much waits */
    bool closes;                /* the connection ends after the answer */
    bool woken, has_id, unsent; /* unsent: counted in h->unsent */
    ares_str headers, out;
    size_t sent; /* bytes of `out` */
    serve_call *next_woken;
    double at_s; /* the timer */
    void (*fn)(void *ctx, serve_call *c);
    void *fn_ctx;
    serve_call *next_timed, **timed; /* timed: what points here; NULL: no timer is set */
};

struct serve_http {
    serve_http_options options; /* texts are copies */
    int port, spare;            /* spare: a descriptor that gives way when there is no other */
    uint64_t salt;              /* of the numbers of answers */
    pthread_t thread;
    struct lws_context *context;
    struct lws_vhost *vhost;
    struct lws *listening;
    connection *connections;
    uint64_t numbers; /* connections so far */
    struct http_clock *clock;
    double tick_s, next_tick;
    /* below: under the lock */
    pthread_mutex_t lock;
    pthread_cond_t sent; /* `unsent` has become 0 */
    int holders;         /* who opened it, and each call */
    int open, unsent;    /* connections; answers that have begun and not gone out */
    bool stopping, ending, closed;
    serve_call *woken, *timed;
    uint64_t answers; /* so far */
    /* without the lock: bytes of all bodies, of requests that come or are in work */
    _Atomic int64_t body_bytes;
};

void http_wake(serve_http *h); /* has the service thread run; under the lock */

/* One holder less; the last one frees the call, and of a closed server the last call frees that. */
void serve_call_let_go(serve_call *c);
void serve_http_free(serve_http *h);
void serve_call_free_body(serve_call *c);
/* Answers with an error of our own. */
void serve_call_fault(serve_call *c, http_fault f);
/* Under the lock: */
void serve_call_unset_timer(serve_call *c);
void serve_call_count(serve_call *c, bool unsent); /* in h->unsent */
void serve_call_chunk(serve_call *c, ares_view bytes);
#endif
