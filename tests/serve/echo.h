/*
 * A server whose handler answers at once, late from another thread, in pieces, as events, or not at
 * all, and clients that speak to it with raw sockets.
 */
#ifndef TESTS_SERVE_ECHO_H
#define TESTS_SERVE_ECHO_H

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "http.h"
#include "test.h"

static inline void sleep_s(double s)
{
    nanosleep(
        &(struct timespec){ .tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9) },
        NULL);
}

/* ---------------- the server of these tests */
enum { EVENTS = 50 };

typedef struct job {
    struct job *next;
    serve_call *call;
    enum { LATE, PIECES, STREAM, FLOOD, CUT, HOLD } kind;
    int made;
} job;

/* A server, and a worker that makes a token per running request and step, as an engine does. */
typedef struct server {
    serve_http *http;
    int port;
    pthread_t worker;
    pthread_mutex_t lock;
    job *jobs; /* under the lock, as all below */
    bool stop;
    int running, timers, vanished;
    double last_timer_s;
} server;

static inline void keep(server *s, serve_call *call, int kind)
{
    job *j = ares_calloc(1, sizeof *j);
    j->call = call;
    j->kind = kind;
    pthread_mutex_lock(&s->lock);
    j->next = s->jobs;
    s->jobs = j;
    s->running++;
    pthread_mutex_unlock(&s->lock);
}

/* One step of a request; true: it is done. */
static inline bool advance(job *j)
{
    static char flood[65536];
    char text[128];
    serve_call *c = j->call;
    if (serve_call_gone(c)) return true;
    j->made++;
    switch (j->kind) {
    case LATE:
        if (j->made < 5) return false;
        snprintf(text, sizeof text, "{\"object\":\"chat.completion\",\"made\":%d}", j->made);
        serve_call_answer(c, 200, "application/json", ares_view_of(text));
        return true;
    case PIECES:
        if (j->made == 1) serve_call_begin(c, 200, "text/plain", false);
        snprintf(text, sizeof text, "piece %d\n", j->made);
        serve_call_piece(c, ares_view_of(text));
        if (j->made < 3) return false;
        serve_call_end(c);
        return true;
    case STREAM:
        if (j->made == 1 && !serve_call_begin(c, 200, NULL, true)) return true;
        snprintf(text, sizeof text, "data: {\"delta\":\"t%d \"}\n\n", j->made);
        serve_call_piece(c, ares_view_of(text));
        if (j->made < EVENTS) return false;
        serve_call_piece(c, ARES_VIEW("data: [DONE]\n\n"));
        serve_call_end(c);
        return true;
    case FLOOD:
        if (j->made == 1) serve_call_begin(c, 200, NULL, true);
        for (int i = 0; i < 16; i++) serve_call_piece(c, (ares_view){ flood, sizeof flood });
        return false;
    case CUT: /* dropped without its end when all of it is out */
        if (j->made > 1) return j->made == 100;
        serve_call_begin(c, 200, "text/plain", false);
        serve_call_piece(c, ARES_VIEW("half"));
        return false;
    default: return false;
    }
}

static inline void *work(void *x)
{
    server *s = x;
    for (bool stop = false; !stop;) {
        sleep_s(0.001);
        pthread_mutex_lock(&s->lock);
        stop = s->stop;
        for (job **at = &s->jobs; *at;) {
            job *j = *at;
            if (!stop && !advance(j)) {
                at = &j->next;
                continue;
            }
            *at = j->next;
            s->running--;
            if (serve_call_gone(j->call)) s->vanished++;
            serve_call_drop(j->call);
            ares_free(j);
        }
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

/* The form of an error: OpenAI's, with the path for the tests to see. */
static inline void write_error(void *ctx, ares_view path, int status, const char *type,
                               const char *code, const char *message, ares_str *out)
{
    (void)ctx;
    ares_json_begin(out, '{');
    ares_json_begin(ares_json_key(out, "error"), '{');
    ares_json_write_string(ares_json_key(out, "message"), ares_view_of(message));
    ares_json_write_string(ares_json_key(out, "type"), ares_view_of(type));
    ares_json_write_string(ares_json_key(out, "code"), ares_view_of(code));
    ares_json_write_string(ares_json_key(out, "path"), path);
    ares_json_write_i64(ares_json_key(out, "status"), status);
    ares_json_end(out, '}');
    ares_json_end(out, '}');
}

/* What was asked, so that a test can compare all of it. */
static inline void echo(serve_call *c)
{
    const serve_request_head *h = serve_call_head(c);
    ares_str out = { 0 };
    ares_str_addf(&out, "%s %.*s?%.*s key=%.*s session=%.*s accept=%.*s type=%.*s\n", h->method,
                  (int)h->path.len, h->path.data, (int)h->query.len, h->query.data, (int)h->key.len,
                  h->key.data, (int)h->session_id.len, h->session_id.data, (int)h->accept.len,
                  h->accept.data, (int)h->content_type.len, h->content_type.data);
    ares_str_add_view(&out, h->body);
    serve_call_answer(c, 200, "text/plain", ares_str_view(&out));
    ares_str_fini(&out);
}

static inline void on_timer(void *ctx, serve_call *c)
{
    server *s = ctx;
    pthread_mutex_lock(&s->lock);
    s->timers++;
    s->last_timer_s = ares_now_s();
    pthread_mutex_unlock(&s->lock);
    serve_call_answer(c, 408, "application/json", ARES_VIEW("{\"type\":\"try_again\"}"));
    serve_call_drop(c);
}

static inline void handle(void *ctx, serve_call *c)
{
    server *s = ctx;
    const serve_request_head *h = serve_call_head(c);
    ares_view path = h->path;
    if (ares_view_is(path, "/health")) {
        char text[96];
        pthread_mutex_lock(&s->lock);
        snprintf(text, sizeof text, "{\"status\":\"ok\",\"open\":%d,\"running\":%d}",
                 serve_http_connections(s->http), s->running);
        pthread_mutex_unlock(&s->lock);
        serve_call_answer(c, 200, "application/json", ares_view_of(text));
    } else if (ares_view_is(path, "/v1/chat/completions")) {
        bool posted = strcmp(h->method, "POST") == 0;
        if (posted && h->body.len) {
            bool stream = ares_view_find(h->body, ARES_VIEW("\"stream\":true"), 0) >= 0;
            keep(s, c, stream ? STREAM : LATE);
            return;
        }
        if (!posted) serve_call_header(c, "allow", "POST");
        serve_call_answer(c, posted ? 400 : 405, "application/json", ARES_VIEW("{}"));
    } else if (ares_view_is(path, "/late")) {
        keep(s, c, LATE);
        return;
    } else if (ares_view_is(path, "/pieces")) {
        keep(s, c, PIECES);
        return;
    } else if (ares_view_is(path, "/flood")) {
        keep(s, c, FLOOD);
        return;
    } else if (ares_view_is(path, "/cut-later")) {
        keep(s, c, CUT);
        return;
    } else if (ares_view_is(path, "/hold")) {
        keep(s, c, HOLD);
        return;
    } else if (ares_view_is(path, "/silent")) {
        serve_call_begin(c, 200, NULL, true);
        keep(s, c, HOLD);
        return;
    } else if (ares_view_is(path, "/poll")) {
        serve_call_timer(c, 100, on_timer, s);
        serve_call_timer(c, atof(h->query.data), on_timer, s); /* replaces the one before */
        return;
    } else if (ares_view_is(path, "/answered")) { /* a timer may not fire, set before or after */
        serve_call_timer(c, 0.05, on_timer, s);
        serve_call_answer(c, 200, "text/plain", ARES_VIEW("first"));
        CHECK(!serve_call_answer(c, 200, "text/plain", ARES_VIEW("second")));
        CHECK(!serve_call_begin(c, 200, NULL, true));
        if (h->query.len) serve_call_timer(c, 0.05, on_timer, s);
        keep(s, c, HOLD);
        return;
    } else if (ares_view_is(path, "/named")) {
        CHECK(serve_call_own(c) == NULL);
        serve_call_set(c, s);
        CHECK(serve_call_own(c) == s);
        serve_call_header(c, "x-request-id", "chatcmpl-7");
        serve_call_header(c, "retry-after", "1\r\nx-evil: 1");
        serve_call_answer(c, 429, "application/json", ARES_VIEW("{}"));
    } else if (ares_view_is(path, "/nothing")) {
        serve_call_answer(c, 204, NULL, ARES_VIEW("not sent"));
    } else if (ares_view_is(path, "/large")) {
        size_t n = (size_t)atoi(h->query.data);
        char *x = ares_malloc(n);
        memset(x, 'x', n);
        serve_call_answer(c, 200, "text/plain", (ares_view){ x, n });
        ares_free(x);
    } else if (ares_view_is(path, "/cut")) {
        serve_call_begin(c, 200, "text/plain", false);
        serve_call_piece(c, ARES_VIEW("half"));
    } else if (!ares_view_is(path, "/drop")) echo(c);
    serve_call_drop(c);
}

static const serve_http_options usual = { SERVE_HTTP_DEFAULTS, .error = write_error,
                                          .handle = handle };

/* The port is any free one. NULL after skipping the test, in a build that cannot serve. */
static inline server *start(serve_http_options options)
{
    server *s = ares_calloc(1, sizeof *s);
    options.port = 0;
    options.ctx = s;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_lock(&s->lock);
    int rc = serve_http_open(&options, &s->http);
    pthread_mutex_unlock(&s->lock);
    if (rc == ARES_EUNSUPPORTED) {
        CHECK_CONTAINS(ares_error_message(), "this build has no libwebsockets; install ");
        test_skip("no libwebsockets in this build; install libwebsockets-dev");
    } else CHECK_OK(rc);
    if (rc != ARES_OK) {
        pthread_mutex_destroy(&s->lock);
        ares_free(s);
        return NULL;
    }
    s->port = serve_http_port(s->http);
    pthread_create(&s->worker, NULL, work, s);
    return s;
}

#define START(s, options)       \
    server *s = start(options); \
    if (!s) return

static inline void stop_worker(server *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->worker, NULL);
}

static inline void stop(server *s)
{
    stop_worker(s);
    serve_http_close(s->http, 0);
    pthread_mutex_destroy(&s->lock);
    ares_free(s);
}

static inline int running(server *s)
{
    pthread_mutex_lock(&s->lock);
    int n = s->running;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static inline int timers(server *s)
{
    pthread_mutex_lock(&s->lock);
    int n = s->timers;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* Waits for a number to become another; what it is in the end. */
static inline int wait_for(int (*number)(server *s), server *s, int wanted)
{
    for (int i = 0; i < 2000 && number(s) != wanted; i++) sleep_s(0.005);
    return number(s);
}

static inline int connections(server *s)
{
    return serve_http_connections(s->http);
}

/* ---------------- the clients of these tests */
typedef struct client {
    int fd;
    ares_str in;         /* read, and not yet part of an answer */
    ares_str head, body; /* of the last answer; the head in lower case */
    int pieces;          /* chunks of the last answer */
} client;

enum { CLOSED = 0, BROKEN = -1, SILENT = -2, RESET = -3 }; /* instead of a status */

static inline client dial_slow(int port, int receive_bytes)
{
    client c = { .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct timeval limit = { .tv_sec = 30 };
    if (receive_bytes)
        setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(c.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    CHECK(connect(c.fd, (struct sockaddr *)(void *)&to, sizeof to) == 0);
    return c;
}

static inline client dial(int port)
{
    return dial_slow(port, 0);
}

static inline void be_patient(client *c, double s)
{
    struct timeval limit = { .tv_sec = (time_t)s,
                             .tv_usec = (long)((s - (double)(time_t)s) * 1e6) };
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

static inline void hang_up(client *c)
{
    close(c->fd);
    ares_str_fini(&c->in);
    ares_str_fini(&c->head);
    ares_str_fini(&c->body);
}

/* All of it, or what the server takes before it closes. */
static inline bool say_bytes(client *c, const char *data, size_t n)
{
    for (ssize_t k; n; data += k, n -= (size_t)k)
        if ((k = send(c->fd, data, n, MSG_NOSIGNAL)) <= 0) return false;
    return true;
}

static inline bool say(client *c, const char *text)
{
    return say_bytes(c, text, strlen(text));
}

static const char whole[] = "{\"messages\":[],\"stream\":false}",
                  stream[] = "{\"messages\":[],\"stream\":true}";

/* A request with this body; `extra` are further headers, each with its line's end. */
static inline const char *post(ares_str *out, const char *path, const char *extra, const char *body)
{
    ares_str_clear(out);
    ares_str_addf(out, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n%s\r\n%s", path,
                  strlen(body), extra, body);
    return out->data;
}

/* Reads more. 1, or CLOSED, SILENT, RESET. */
static inline int fill(client *c)
{
    char data[65536];
    ssize_t n = recv(c->fd, data, sizeof data, 0);
    if (n <= 0) return n == 0 ? CLOSED : errno == EAGAIN ? SILENT : RESET;
    ares_str_add(&c->in, data, (size_t)n);
    return 1;
}

static inline void take(client *c, size_t n)
{
    memmove(c->in.data, c->in.data + n, c->in.len - n + 1);
    c->in.len -= n;
}

/* Takes what stands before a mark, and the mark, to the end of `out`. 1, or why there is none. */
static inline int until(client *c, const char *mark, ares_str *out)
{
    for (int rc;;) {
        int64_t at = ares_view_find(ares_str_view(&c->in), ares_view_of(mark), 0);
        if (at >= 0) {
            ares_str_add(out, c->in.data, (size_t)at);
            take(c, (size_t)at + strlen(mark));
            return 1;
        }
        if ((rc = fill(c)) != 1) return rc;
    }
}

static inline int take_bytes(client *c, size_t n, ares_str *out)
{
    for (int rc; c->in.len < n;)
        if ((rc = fill(c)) != 1) return rc;
    ares_str_add(out, c->in.data, n);
    take(c, n);
    return 1;
}

/* Value of a header of the last answer; "" where there is none. */
static inline const char *header(client *c, const char *name)
{
    static _Thread_local char value[256];
    char mark[80];
    snprintf(mark, sizeof mark, "\r\n%s: ", name);
    const char *at = c->head.data ? strstr(c->head.data, mark) : NULL;
    if (!at) return "";
    at += strlen(mark);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

/* The next answer: its status, or CLOSED, BROKEN (before its end, or no HTTP), SILENT, RESET. */
static inline int hear_of(client *c, bool head_only)
{
    ares_str line = { 0 };
    ares_str_clear(&c->head);
    ares_str_clear(&c->body);
    ares_str_add_z(&c->body, "");
    c->pieces = 0;
    int rc = until(c, "\r\n\r\n", &c->head);
    if (rc != 1) return rc == CLOSED && c->in.len ? BROKEN : rc;
    for (size_t i = 0; i < c->head.len; i++)
        c->head.data[i] = (char)tolower((unsigned char)c->head.data[i]);
    if (strncmp(c->head.data, "http/1.1 ", 9) != 0) return BROKEN;
    int status = atoi(c->head.data + 9);
    if (status == 100 || status == 204 || head_only) return status;
    if (strcmp(header(c, "transfer-encoding"), "chunked") == 0) {
        for (long n = 1; rc == 1 && n;) {
            ares_str_clear(&line);
            if ((rc = until(c, "\r\n", &line)) != 1) break;
            n = strtol(line.data, NULL, 16);
            rc = take_bytes(c, (size_t)n, &c->body);
            c->pieces += n > 0;
            ares_str_clear(&line);
            if (rc == 1) rc = until(c, "\r\n", &line);
            if (line.len) rc = BROKEN;
        }
    } else rc = take_bytes(c, (size_t)atol(header(c, "content-length")), &c->body);
    ares_str_fini(&line);
    return rc == 1 ? status : rc == SILENT ? SILENT : BROKEN;
}

static inline int hear(client *c)
{
    return hear_of(c, false);
}

/* One request on a connection of its own, sent in pieces of `split` bytes (0: at once). */
static inline int ask_bytes(server *s, client *c, const char *data, size_t n, size_t split)
{
    *c = dial(s->port);
    for (size_t i = 0, k; i < n; i += k) {
        k = split ? ARES_MIN(split, n - i) : n;
        if (!say_bytes(c, data + i, k)) break;
        if (split) sleep_s(0.0005);
    }
    return hear(c);
}

static inline int ask(server *s, client *c, const char *request)
{
    return ask_bytes(s, c, request, strlen(request), 0);
}

static inline bool is_right(client *c, int status, bool streamed)
{
    if (status != 200) return false;
    if (!streamed) return strstr(c->body.data, "\"object\":\"chat.completion\"") != NULL;
    int events = 0;
    for (const char *p = c->body.data; (p = strstr(p, "data: ")); p++) events++;
    return events == EVENTS + 1 && ares_ends_with(c->body.data, "data: [DONE]\n\n");
}

#endif
