/*
 * Private to the serve room: HTTP/1.1 over libwebsockets (http.c).
 *
 * One thread, the service thread, owns all sockets. It calls `handle` for each request whose body
 * is whole; handle parses and queues, and never waits. An answer may be given from any thread, at
 * once or later, whole or in pieces; what a socket does not take yet waits in the call's buffer. A
 * handler may hold a lock of its own while it calls what is below: nothing here calls back from it,
 * but for `error`.
 *
 * A call has two owners, the connection and whoever handles it. The handler's hold ends with
 * serve_call_drop; the memory is freed when both have let go. Nothing here knows what a path means.
 */
#ifndef ARES_SERVE_HTTP_H
#define ARES_SERVE_HTTP_H

#include "ares/core.h"

typedef struct serve_http serve_http;
typedef struct serve_call serve_call;

/* What a request says, readable by its handler until serve_call_drop. */
typedef struct serve_request_head {
    const char *method; /* "GET" */
    ares_view path;     /* "/v1/models", percent-decoded; without the query */
    ares_view query;    /* after the ?, as sent */
    /* headers, empty where absent. key: of Authorization: Bearer KEY, else of X-API-Key */
    ares_view key, session_id, accept, content_type;
    ares_view body;      /* whole; chunked bodies are decoded */
    double arrived_s;    /* ares_now_s, when the head was whole */
    uint64_t connection; /* number of the connection, from 1: for fair queues */
} serve_request_head;

typedef struct serve_http_options {
    const char *host; /* an address or a name; one that others can reach needs a key */
    int port;         /* 0: any free one */
    /* NULL: none is asked for. /health needs none in any case */
    const char *api_key;
    const char *const *origins; /* allowed Origin headers, "*": any, only with a key */
    int n_origins;              /* 0: every request with an Origin is 403 */
    int64_t max_body_bytes; /* of one request; all bodies that are held: SERVE_BODIES times that */
    /* beyond it a connection is closed at once; RLIMIT_NOFILE is raised first */
    int max_connections;
    double head_timeout_s, body_timeout_s; /* of a head as a whole; of a body without a byte */
    double idle_timeout_s;                 /* of a connection between two requests */
    double stall_timeout_s;                /* a client that takes no byte for so long is dropped */
    double silence_s; /* an open event stream without a byte for so long gets ": waiting" */
    /* of a stream; a client that lets more wait is dropped. A whole answer may be longer */
    int64_t most_waiting_bytes;
    /*
     * The form of errors that http.c answers by itself: appends the JSON of one to `out`. Any
     * thread may call it, and it may call nothing of this header. path is empty where the request
     * cannot be read. status, type, code:
     *   400 413 415 417 431 505      invalid_request_error  malformed_request, body_too_large ...
     *   401 authentication_error     invalid_api_key
     *   403 permission_error         origin_not_allowed
     *   408 timeout_error            request_timeout (head or body)
     *   411 invalid_request_error    length_required
     *   500 server_error             internal_error (a call was dropped without an answer)
     *   503 server_error             shutting_down, too_many_large_bodies
     */
    void (*error)(void *ctx, ares_view path, int status, const char *type, const char *code,
                  const char *message, ares_str *out);
    /* in the service thread; answers the call, or keeps it and answers later */
    void (*handle)(void *ctx, serve_call *call);
    void *ctx;
} serve_http_options;
enum { SERVE_BODIES = 4 };
#define SERVE_HTTP_DEFAULTS                                                                     \
    .host = "127.0.0.1", .port = 8000, .max_body_bytes = (int64_t)256 << 20,                    \
    .max_connections = 4096, .head_timeout_s = 20, .body_timeout_s = 30, .idle_timeout_s = 120, \
    .stall_timeout_s = 60, .silence_s = 10, .most_waiting_bytes = (int64_t)64 << 20

/*
 * Listens, and starts the service thread; options and its texts are copied. ARES_EUSE with the
 * remedy: a port in use, a host that is none of this machine, one that others can reach or the
 * origin "*" without a key.
 */
int serve_http_open(const serve_http_options *options, serve_http **out);
int serve_http_port(const serve_http *h);
int serve_http_connections(serve_http *h); /* open ones */
/*
 * No further connection or request is taken (503 for those that come on open connections); returns
 * at once. serve_http_close waits until what was begun to be answered has gone out, at most
 * `wait_s`, ends the thread and frees everything. Calls that are still held stay valid until they
 * are dropped, with no client; their timers do not fire any more. Close may not be called in the
 * service thread.
 */
void serve_http_stop(serve_http *h);
void serve_http_close(serve_http *h, double wait_s);

const serve_request_head *serve_call_head(const serve_call *c);
/* Handler's own pointer, NULL at first. */
void serve_call_set(serve_call *c, void *own);
void *serve_call_own(const serve_call *c);
/*
 * An extra header of the answer, before it begins: "x-request-id", else req- and 16 hex digits are
 * sent; "allow", "retry-after" ...
 */
void serve_call_header(serve_call *c, const char *name, const char *value);
/*
 * The whole answer. content_type NULL: no body. Does not drop the call. false: an answer had begun
 * before, or the client has gone; nothing is sent then, so a timer and a worker may both answer.
 */
bool serve_call_answer(serve_call *c, int status, const char *content_type, ares_view body);
/*
 * An answer in pieces (chunked): begin, any number of pieces, end. events: a text/event-stream,
 * which gets comments while it is silent. false: as above; also for a client of HTTP/1.0, which
 * cannot read pieces and gets an error.
 */
bool serve_call_begin(serve_call *c, int status, const char *content_type, bool events);
void serve_call_piece(serve_call *c, ares_view bytes);
void serve_call_end(serve_call *c);
/* The client has gone, or was dropped because it does not read: nobody hears an answer. */
bool serve_call_gone(serve_call *c);
/*
 * The handler lets go; it may not touch the call afterwards. A call that has no answer yet gets
 * status 500; pieces without an end are cut, which a client sees as an error.
 */
void serve_call_drop(serve_call *c);
/*
 * Calls fn(ctx, c) once in the service thread when `after_s` have passed, unless the call was
 * answered or dropped before; also when the client has gone meanwhile. A later one replaces it. For
 * polls that wait, and for limits of a request's time. While fn runs another thread may answer or
 * drop the call, whose memory stays until fn returns: the handler's own lock decides between them.
 */
void serve_call_timer(serve_call *c, double after_s, void (*fn)(void *ctx, serve_call *c),
                      void *ctx);
#endif
