/*
 * The handler's side of HTTP: answers, from any thread, whole, in pieces or as events. They wait in
 * the call's buffer, as they go over the wire, until the service thread (http.c) has sent them.
 */
#include "call.h"

#include <string.h>
#include <strings.h>

enum {
    LONG_BYTES = 65536, /* of a body that is not copied under the lock */
    HEAD_ROOM = 8192    /* before it, for what is sent first */
};

void serve_http_free(serve_http *h)
{
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->sent);
    char **origins = (char **)(uintptr_t)h->options.origins;
    for (int i = 0; i < h->options.n_origins; i++) ares_free(origins[i]);
    ares_free(origins);
    ares_free((char *)(uintptr_t)h->options.host);
    ares_free((char *)(uintptr_t)h->options.api_key);
    ares_free(h);
}

/* Under the lock. */
void serve_call_unset_timer(serve_call *c)
{
    if (!c->timed) return;
    *c->timed = c->next_timed;
    if (c->next_timed) c->next_timed->timed = c->timed;
    c->timed = NULL;
}

void serve_call_free_body(serve_call *c)
{
    c->h->body_bytes -= (int64_t)c->body.len;
    ares_str_fini(&c->body);
}

/* One holder less. The last one frees the call, and with the last call of a closed server that. */
void serve_call_let_go(serve_call *c)
{
    serve_http *h = c->h;
    pthread_mutex_lock(&h->lock);
    bool last = --c->holders == 0, server = last && --h->holders == 0;
    if (last) serve_call_unset_timer(c);
    pthread_mutex_unlock(&h->lock);
    if (last) {
        ares_str_fini(&c->text);
        serve_call_free_body(c);
        ares_str_fini(&c->headers);
        ares_str_fini(&c->out);
        ares_free(c);
    }
    if (server) serve_http_free(h);
}

/* Has the service thread look at the call. Under the lock. */
static void wake(serve_call *c)
{
    serve_http *h = c->h;
    if (c->woken || h->closed) return;
    if (!h->woken) http_wake(h);
    c->woken = true;
    c->holders++;
    c->next_woken = h->woken;
    h->woken = c;
}

/* Under the lock. */
void serve_call_count(serve_call *c, bool unsent)
{
    if (c->unsent == unsent) return;
    c->unsent = unsent;
    c->h->unsent += unsent ? 1 : -1;
    if (c->h->unsent == 0) pthread_cond_broadcast(&c->h->sent);
}

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        { 200, "OK" },
        { 204, "No Content" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 408, "Request Timeout" },
        { 410, "Gone" },
        { 411, "Length Required" },
        { 413, "Content Too Large" },
        { 415, "Unsupported Media Type" },
        { 417, "Expectation Failed" },
        { 422, "Unprocessable Content" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" },
        { 503, "Service Unavailable" },
        { 505, "HTTP Version Not Supported" },
    };
    for (int i = 0; i < ARES_COUNT(reasons); i++)
        if (reasons[i].status == status) return reasons[i].text;
    return "Other";
}

static void add_header(ares_str *out, const char *name, const char *value)
{
    ares_str_addf(out, "%s: ", name);
    for (; *value; value++) /* which may not begin a line of its own */
        ares_str_add_char(out, (unsigned char)*value < ' ' ? ' ' : *value);
    ares_str_add_z(out, "\r\n");
}

/* Begins the answer, where none had begun; length -1: in chunks. Under the lock. */
static bool begin(serve_call *c, int status, const char *type, int64_t length)
{
    serve_http *h = c->h;
    ares_str *out = &c->out;
    if (c->begun || c->gone || c->dropped) return false;
    if (h->stopping) c->closes = true;
    ares_str_addf(out, "HTTP/1.1 %d %s\r\n", status, reason(status));
    if (type) add_header(out, "content-type", type);
    if (length < 0) add_header(out, "transfer-encoding", "chunked");
    else if (status != 204) ares_str_addf(out, "content-length: %lld\r\n", (long long)length);
    if (c->closes) add_header(out, "connection", "close");
    if (c->allow_origin) {
        add_header(out, "access-control-allow-origin", c->allow_origin);
        add_header(out, "vary", "Origin");
    }
    ares_str_add_view(out, ares_str_view(&c->headers));
    uint64_t id = ares_fnv1a(h->salt, &h->answers, sizeof h->answers);
    h->answers++;
    if (!c->has_id) ares_str_addf(out, "x-request-id: req-%016llx\r\n", (unsigned long long)id);
    ares_str_add_z(out, "\r\n");
    c->begun = true;
    serve_call_count(c, true);
    return true;
}

/* Under the lock. */
static void end(serve_call *c)
{
    c->ended = true;
    serve_call_unset_timer(c);
    wake(c);
}

bool serve_call_answer(serve_call *c, int status, const char *content_type, ares_view body)
{
    serve_http *h = c->h;
    ares_str copy = { 0 };
    if (!content_type) body.len = 0;
    if (!c->head_only &&
        body.len > LONG_BYTES) { /* not under the lock: others want to write, too */
        ares_str_reserve(&copy, HEAD_ROOM + body.len);
        memset(copy.data, 0, HEAD_ROOM);
        copy.len = HEAD_ROOM;
        ares_str_add_view(&copy, body);
    }
    pthread_mutex_lock(&h->lock);
    bool first = begin(c, status, content_type, (int64_t)body.len);
    size_t waits = c->out.len - c->sent;
    if (first && copy.data && waits <= HEAD_ROOM) {
        ares_str head = c->out;
        memcpy(copy.data + HEAD_ROOM - waits, head.data + c->sent, waits);
        c->out = copy;
        c->sent = HEAD_ROOM - waits;
        copy = head;
    } else if (first && !c->head_only) ares_str_add_view(&c->out, body);
    if (first) end(c);
    pthread_mutex_unlock(&h->lock);
    ares_str_fini(&copy);
    return first;
}

/* An answer of this file's own. */
void serve_call_fault(serve_call *c, http_fault f)
{
    const serve_http_options *o = &c->h->options;
    ares_str json = { 0 };
    o->error(o->ctx, c->head.path, f.status, f.type, f.code, f.message, &json);
    serve_call_answer(c, f.status, "application/json", ares_str_view(&json));
    ares_str_fini(&json);
}

bool serve_call_begin(serve_call *c, int status, const char *content_type, bool events)
{
    serve_http *h = c->h;
    if (c->old) {
        serve_call_fault(c, (http_fault){ 400, "invalid_request_error", "http_version",
                                          "streams need HTTP/1.1; of a proxy set its version "
                                          "(nginx: proxy_http_version 1.1)" });
        return false;
    }
    pthread_mutex_lock(&h->lock);
    if (events && !c->begun) {
        add_header(&c->headers, "cache-control", "no-cache");
        add_header(&c->headers, "x-accel-buffering", "no"); /* nginx passes pieces on */
        if (!content_type) content_type = "text/event-stream; charset=utf-8";
    }
    bool first = begin(c, status, content_type, -1);
    if (first) {
        c->events = events;
        if (c->head_only) end(c); /* pieces would follow, and are not sent */
        else wake(c);
    }
    pthread_mutex_unlock(&h->lock);
    return first;
}

/* Under the lock. */
void serve_call_chunk(serve_call *c, ares_view bytes)
{
    ares_str_addf(&c->out, "%zx\r\n", bytes.len);
    ares_str_add_view(&c->out, bytes);
    ares_str_add_z(&c->out, "\r\n");
}

void serve_call_piece(serve_call *c, ares_view bytes)
{
    serve_http *h = c->h;
    pthread_mutex_lock(&h->lock);
    if (c->begun && !c->ended && !c->gone && !c->flooded && bytes.len) {
        c->flooded = (int64_t)(c->out.len - c->sent) > h->options.most_waiting_bytes;
        if (!c->flooded) serve_call_chunk(c, bytes);
        wake(c);
    }
    pthread_mutex_unlock(&h->lock);
}

void serve_call_end(serve_call *c)
{
    serve_http *h = c->h;
    pthread_mutex_lock(&h->lock);
    if (c->begun && !c->ended) {
        ares_str_add_z(&c->out, "0\r\n\r\n");
        end(c);
    }
    pthread_mutex_unlock(&h->lock);
}

void serve_call_drop(serve_call *c)
{
    serve_http *h = c->h;
    pthread_mutex_lock(&h->lock);
    bool silent = !c->begun && !c->gone;
    pthread_mutex_unlock(&h->lock);
    if (silent)
        serve_call_fault(c, (http_fault){ 500, "server_error", "internal_error",
                                          "the server dropped this request without an answer" });
    pthread_mutex_lock(&h->lock);
    c->dropped = true;
    serve_call_unset_timer(c);
    if (!c->ended && !c->gone) {
        c->cut = true;
        wake(c);
    }
    pthread_mutex_unlock(&h->lock);
    serve_call_free_body(c); /* may be large, and the client slow to read the answer */
    serve_call_let_go(c);
}

void serve_call_header(serve_call *c, const char *name, const char *value)
{
    pthread_mutex_lock(&c->h->lock);
    add_header(&c->headers, name, value);
    if (strcasecmp(name, "x-request-id") == 0) c->has_id = true;
    pthread_mutex_unlock(&c->h->lock);
}

void serve_call_timer(serve_call *c, double after_s, void (*fn)(void *ctx, serve_call *c),
                      void *ctx)
{
    serve_http *h = c->h;
    pthread_mutex_lock(&h->lock);
    serve_call_unset_timer(c);
    if (!c->ended && !c->dropped && !h->closed) {
        c->at_s = ares_now_s() + after_s;
        c->fn = fn;
        c->fn_ctx = ctx;
        c->next_timed = h->timed;
        if (h->timed) h->timed->timed = &c->next_timed;
        c->timed = &h->timed;
        h->timed = c;
        wake(c);
    }
    pthread_mutex_unlock(&h->lock);
}

bool serve_call_gone(serve_call *c)
{
    pthread_mutex_lock(&c->h->lock);
    bool gone = c->gone;
    pthread_mutex_unlock(&c->h->lock);
    return gone;
}

const serve_request_head *serve_call_head(const serve_call *c)
{
    return &c->head;
}

void serve_call_set(serve_call *c, void *own)
{
    c->own = own;
}

void *serve_call_own(const serve_call *c)
{
    return c->own;
}
