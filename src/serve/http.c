/*
 * HTTP/1.1: the service thread with its connections, who may ask, and limits of time and number; a
 * build without libwebsockets has functions that refuse. Answers are made in call.c.
 */
#include "call.h"

#ifndef ARES_HAVE_WEBSOCKETS

int serve_http_open(const serve_http_options *options, serve_http **out)
{
    *out = NULL;
    return ares_fail(ARES_EUNSUPPORTED,
                     "serve: %s:%d: this build has no libwebsockets; install libwebsockets-dev and "
                     "build again",
                     options->host, options->port);
}

/* serve_http_open always fails here, so that there is no server. */
int serve_http_port(const serve_http *h)
{
    ARES_ASSERT(!h);
    return 0;
}

int serve_http_connections(serve_http *h)
{
    return serve_http_port(h);
}

void http_wake(serve_http *h)
{
    serve_http_port(h);
}

void serve_http_stop(serve_http *h)
{
    serve_http_port(h);
}

void serve_http_close(serve_http *h, double wait_s)
{
    (void)wait_s;
    serve_http_port(h);
}

#endif

/*
 * libwebsockets waits for the sockets, wakes this thread and keeps its clock; a connection is a raw
 * one to it, and http_parse.c reads what comes. Its own HTTP would do for most of it, but a request
 * without a body that waits for its answer is read no more: while its client sends another byte or
 * leaves, poll returns at once, for ever, and nobody hears that the client has gone. Chunked bodies
 * end there at 100 MiB, and names in paths are rewritten (http_parse.c).
 *
 * Bytes are sent with send(2), because what lws_write cannot send is kept where nobody counts it,
 * and while it is kept such a connection with bytes to read has poll return at once again. The
 * listening socket is ours, too: then a failure has its errno, and a lack of descriptors does not
 * end in a loop of failing accepts.
 */

#ifdef ARES_HAVE_WEBSOCKETS

#include <errno.h>
#include <fcntl.h>
#include <libwebsockets.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    READ_BYTES = 65536,       /* of one read */
    SEND_BYTES = 1 << 20,     /* of one turn of a connection, so that others have theirs */
    KEEP_BYTES = 65536,       /* that were sent and may still take memory */
    ACCEPTS = 64,             /* of one turn */
    OWN_DESCRIPTORS = 8,      /* listening, waking, spare ... */
    TABLE_DESCRIPTORS = 65536 /* descriptors that the tables of libwebsockets are made for */
};
static const double linger_s = 3; /* for a client to read the answer of a closed connection */
static const double most_tick_s = 1, least_tick_s = 0.01;

/* The next tick, and whose it is. */
struct http_clock {
    lws_sorted_usec_list_t tick;
    serve_http *h;
};

/* Of the service thread alone. */
struct http_connection {
    serve_http *h;
    struct lws *wsi;
    connection *next, **at;
    uint64_t number; /* from 1 */
    enum {
        HEAD,   /* a head is to come, or has come in part */
        BODY,   /* of `call` */
        ANSWER, /* of `call` */
        LINGER  /* our side is closed, the client's is not yet */
    } state;
    ares_str in;   /* a head as far as it has come */
    double until;  /* then HEAD, BODY, LINGER end */
    double active; /* when the last byte was sent, or the request was whole */
    double waits;  /* since when bytes wait and none is taken; 0: none waits */
    serve_call *call;
    bool chunked;
    int64_t length; /* of the body, where it is not chunked */
    http_chunks chunks;
};

/* ---------------- connections: the service thread */
static void kill_connection(connection *k)
{
    lws_set_timeout(k->wsi, PENDING_TIMEOUT_CLOSE_SEND, LWS_TO_KILL_ASYNC);
}

/* The call is over for its connection. */
static void part(connection *k, bool gone)
{
    serve_call *c = k->call;
    if (!c) return;
    k->call = NULL;
    c->conn = NULL;
    pthread_mutex_lock(&c->h->lock);
    c->gone = gone;
    ares_str_fini(&c->out); /* the handler may hold the call for long */
    c->sent = 0;
    serve_call_count(c, false);
    pthread_mutex_unlock(&c->h->lock);
    serve_call_let_go(c);
}

/* The socket is closed. */
static void end_connection(connection *k)
{
    serve_http *h = k->h;
    part(k, true);
    *k->at = k->next;
    if (k->next) k->next->at = k->at;
    pthread_mutex_lock(&h->lock);
    h->open--;
    pthread_mutex_unlock(&h->lock);
    ares_str_fini(&k->in);
    ares_free(k);
}

/* Takes what was read of a head, if anything, into a new call. */
static serve_call *new_call(connection *k)
{
    serve_call *c = ares_calloc(1, sizeof *c);
    c->h = k->h;
    c->conn = k;
    c->text = k->in;
    c->holders = 1;
    c->head = (serve_request_head){
        .method = "", .path = { "", 0 }, .arrived_s = ares_now_s(), .connection = k->number
    };
    k->in = (ares_str){ 0 };
    k->call = c;
    pthread_mutex_lock(&c->h->lock);
    c->h->holders++;
    pthread_mutex_unlock(&c->h->lock);
    return c;
}

/* Answers with an error, after which the connection ends unless all of the request is here. */
static void refuse(connection *k, bool whole, int status, const char *type, const char *code,
                   const char *message)
{
    if (!k->call) new_call(k);
    k->state = ANSWER;
    pthread_mutex_lock(&k->h->lock);
    if (!whole) k->call->closes = true;
    pthread_mutex_unlock(&k->h->lock);
    serve_call_fault(k->call, (http_fault){ status, type, code, message });
}

static void refuse_for(connection *k, http_fault f)
{
    refuse(k, false, f.status, f.type, f.code, f.message);
}

/* In a time that depends on what was sent alone, not on the key. */
static bool is_key(ares_view given, const char *key)
{
    size_t n = strlen(key), different = given.len ^ n;
    for (size_t i = 0; i < given.len; i++)
        different |= (unsigned char)given.data[i] ^ (unsigned char)key[i % n];
    return different == 0;
}

static ares_view or_empty(ares_view v)
{
    return v.data ? v : (ares_view){ "", 0 };
}

/* The request is whole. */
static void hand_over(connection *k)
{
    serve_http *h = k->h;
    serve_call *c = k->call;
    c->head.body = or_empty(ares_str_view(&c->body));
    k->state = ANSWER;
    k->active = ares_now_s();
    k->waits = 0;
    pthread_mutex_lock(&h->lock);
    c->holders++;
    pthread_mutex_unlock(&h->lock);
    h->options.handle(h->options.ctx, c);
}

/* A head is whole: who asks, and may they; what comes next. more: bytes of the body are here. */
static void take_head(connection *k, bool more)
{
    static const char invalid[] = "invalid_request_error";
    serve_http *h = k->h;
    const serve_http_options *o = &h->options;
    http_fault fault;
    http_head in;
    serve_call *c = new_call(k);
    if (!http_head_read(c->text.data, c->text.len, &in, &fault)) {
        refuse_for(k, fault);
        return;
    }
    ((char *)(uintptr_t)in.method.data)[in.method.len] = 0; /* the space after it */
    c->head.method = in.method.data;
    c->head.path = in.path;
    c->head.query = or_empty(in.query);
    c->head.session_id = or_empty(in.session_id);
    c->head.accept = or_empty(in.accept);
    c->head.content_type = or_empty(in.content_type);
    c->head_only = ares_view_is(in.method, "HEAD");
    c->old = in.minor == 0;
    k->chunked = in.chunked;
    k->length = in.length;
    k->chunks = (http_chunks){ 0 };
    bool whole = !in.chunked && in.length == 0 && !in.no_length;
    ares_view bearer = http_bearer(in.authorization);
    bool by_header = !bearer.data || (o->api_key && in.api_key.data && !is_key(bearer, o->api_key));
    c->head.key = or_empty(by_header ? in.api_key : bearer);
    pthread_mutex_lock(&h->lock);
    bool stopping = h->stopping;
    c->closes = in.closes;
    pthread_mutex_unlock(&h->lock);

    if (stopping) {
        refuse(k, false, 503, "server_error", "shutting_down", "the server is shutting down");
        return;
    }
    if (in.origin.data) {
        for (int i = 0; i < o->n_origins && !c->allow_origin; i++)
            if (strcmp(o->origins[i], "*") == 0 || ares_view_is(in.origin, o->origins[i]))
                c->allow_origin = o->origins[i];
        if (!c->allow_origin) {
            refuse(k, whole, 403, "permission_error", "origin_not_allowed",
                   "requests of web pages are refused; start the server with --allow-origin and "
                   "the page's origin");
            return;
        }
        if (ares_view_is(in.method, "OPTIONS")) { /* a browser asks before it sends the request */
            k->state = ANSWER;
            serve_call_header(c, "access-control-allow-methods", "GET, POST");
            serve_call_header(c, "access-control-allow-headers",
                              "authorization, content-type, x-api-key, x-session-id");
            serve_call_header(c, "access-control-max-age", "600");
            pthread_mutex_lock(&h->lock);
            c->closes |= !whole;
            pthread_mutex_unlock(&h->lock);
            serve_call_answer(c, 204, NULL, (ares_view){ "", 0 });
            return;
        }
    }
    if (o->api_key && !ares_view_is(in.path, "/health") && !is_key(c->head.key, o->api_key)) {
        serve_call_header(c, "www-authenticate", "Bearer");
        refuse(k, whole, 401, "authentication_error", "invalid_api_key",
               c->head.key.len ? "this is not the key that the server was started with"
                               : "a key is needed: send Authorization: Bearer KEY, or X-API-Key");
        return;
    }
    if (in.no_length) {
        refuse(k, false, 411, invalid, "length_required",
               "send content-length, or the body in chunks");
        return;
    }
    if (in.length > o->max_body_bytes) {
        refuse(k, false, 413, invalid, "body_too_large",
               "the body is larger than the server takes; send less at once, or start the server "
               "with a larger --max-body-mb");
        return;
    }
    if (whole) {
        hand_over(k);
        return;
    }
    k->state = BODY;
    k->until = ares_now_s() + o->body_timeout_s;
    if (in.expects && !more) { /* curl waits a second for it */
        pthread_mutex_lock(&h->lock);
        ares_str_add_z(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
        pthread_mutex_unlock(&h->lock);
        lws_callback_on_writable(k->wsi);
    }
}

/* What the client sent. */
static void receive(connection *k, ares_view in)
{
    const serve_http_options *o = &k->h->options;
    http_fault fault;
    while (in.len) switch (k->state) {
        case HEAD: {
            /* empty lines before a request are passed over, as RFC 9112, 2.2, wants it */
            while (k->in.len == 0 && in.len && (*in.data == '\r' || *in.data == '\n'))
                in.data++, in.len--;
            if (in.len == 0) return;
            size_t before = k->in.len, n = ARES_MIN(in.len, HTTP_HEAD_BYTES - before);
            if (before == 0) k->until = ares_now_s() + o->head_timeout_s;
            ares_str_add(&k->in, in.data, n);
            size_t end = http_head_end(ares_str_view(&k->in), before);
            if (end == 0 && k->in.len == HTTP_HEAD_BYTES) {
                refuse(k, false, 431, "invalid_request_error", "head_too_large",
                       "the path and the headers are larger than 16 KiB");
                return;
            }
            if (end == 0) return;
            k->in.len = end;
            in.data += end - before, in.len -= end - before;
            take_head(k, in.len > 0);
            break;
        }
        case BODY: {
            serve_call *c = k->call;
            size_t before = c->body.len;
            bool readable = true;
            k->until = ares_now_s() + o->body_timeout_s;
            if (k->chunked) {
                readable = http_chunks_read(&k->chunks, &in, o->max_body_bytes, &c->body, &fault);
            } else {
                size_t n = ARES_MIN(in.len, (size_t)k->length - before);
                ares_str_add(&c->body, in.data, n);
                in.data += n, in.len -= n;
            }
            int64_t more = (int64_t)(c->body.len - before),
                    all = atomic_fetch_add(&k->h->body_bytes, more) + more;
            if (!readable) {
                refuse_for(k, fault);
                return;
            }
            if (all > SERVE_BODIES * o->max_body_bytes) {
                serve_call_free_body(c);
                refuse(k, false, 503, "server_error", "too_many_large_bodies",
                       "the server holds as many bytes of other requests as it may; ask again");
                return;
            }
            if (k->chunked ? k->chunks.state == HTTP_CHUNK_END : c->body.len == (size_t)k->length)
                hand_over(k);
            break;
        }
        case ANSWER: /* a second request before the first is answered: no client does that */
            pthread_mutex_lock(&k->h->lock);
            k->call->closes = true;
            pthread_mutex_unlock(&k->h->lock);
            return;
        case LINGER: return;
        }
}

/* The answer is out. */
static void go_on(connection *k, bool closes)
{
    part(k, false);
    /*
     * What the client still sends is read and thrown away for a while: a socket that is closed with
     * bytes unread makes the client's system forget an answer that it has not handed over yet.
     */
    if (closes) shutdown(lws_get_socket_fd(k->wsi), SHUT_WR);
    k->state = closes ? LINGER : HEAD;
    k->until = ares_now_s() + (closes ? linger_s : k->h->options.idle_timeout_s);
}

/* Sends what the socket takes; -1: the connection is to be closed. */
static int send_some(connection *k)
{
    serve_http *h = k->h;
    serve_call *c = k->call;
    size_t sent = 0;
    bool full = false, failed = false;
    if (!c) return 0;
    pthread_mutex_lock(&h->lock);
    while (c->sent < c->out.len && sent < SEND_BYTES && !full && !failed) {
        ssize_t n = send(lws_get_socket_fd(k->wsi), c->out.data + c->sent,
                         ARES_MIN(c->out.len - c->sent, SEND_BYTES), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0) c->sent += (size_t)n, sent += (size_t)n;
        else full = errno == EAGAIN || errno == EWOULDBLOCK, failed = !full && errno != EINTR;
    }
    bool more = c->sent < c->out.len;
    if (c->sent > KEEP_BYTES && c->sent > c->out.len / 2) {
        memmove(c->out.data, c->out.data + c->sent, c->out.len - c->sent);
        c->out.len -= c->sent;
        c->sent = 0;
    }
    bool over = c->ended && !more, cut = c->cut && !more, closes = c->closes || h->stopping;
    pthread_mutex_unlock(&h->lock);
    if (sent) {
        k->active = ares_now_s();
        k->waits = 0;
    }
    if (failed || cut) return -1;
    if (more) lws_callback_on_writable(k->wsi);
    else if (over) go_on(k, closes);
    return 0;
}

/* Once per tick: what takes too long. */
static void look_at_clock(connection *k, double now)
{
    serve_http *h = k->h;
    const serve_http_options *o = &h->options;
    serve_call *c = k->call;
    if (k->state != ANSWER) {
        if (now < k->until) return;
        bool begun = k->state == BODY || (k->state == HEAD && k->in.len);
        if (!begun) kill_connection(k);
        else
            refuse(k, false, 408, "timeout_error", "request_timeout",
                   k->state == BODY ? "the body stopped coming" : "the head did not come in time");
        return;
    }
    pthread_mutex_lock(&h->lock);
    bool waiting = c->sent < c->out.len;
    if (!waiting && c->events && !c->ended && now - k->active >= o->silence_s) {
        serve_call_chunk(c, ARES_VIEW(": waiting\n\n"));
        lws_callback_on_writable(k->wsi);
    }
    pthread_mutex_unlock(&h->lock);
    if (!waiting) k->waits = 0;
    else if (k->waits == 0) k->waits = now;
    else if (now - k->waits >= o->stall_timeout_s) kill_connection(k);
}

/* Calls the functions of timers whose time has come; when the next one comes. */
static double run_timers(serve_http *h, double now)
{
    for (;;) {
        double next = now + most_tick_s;
        pthread_mutex_lock(&h->lock);
        serve_call *c = h->timed;
        for (; c && c->at_s > now; c = c->next_timed) next = ARES_MIN(next, c->at_s);
        void (*fn)(void *, serve_call *) = c ? c->fn : NULL;
        void *ctx = c ? c->fn_ctx : NULL;
        if (c) {
            serve_call_unset_timer(c);
            c->holders++;
        }
        pthread_mutex_unlock(&h->lock);
        if (!c) return next;
        fn(ctx, c);
        serve_call_let_go(c);
    }
}

static void on_tick(lws_sorted_usec_list_t *tick);

static void set_tick(serve_http *h, double at)
{
    double wait = ARES_MAX(at - ares_now_s(), 0);
    h->next_tick = at;
    lws_sul_schedule(h->context, 0, &h->clock->tick, on_tick,
                     (lws_usec_t)(wait * LWS_USEC_PER_SEC) + 1);
}

static void on_tick(lws_sorted_usec_list_t *tick)
{
    serve_http *h = lws_container_of(tick, struct http_clock, tick)->h;
    double now = ares_now_s();
    for (connection *k = h->connections; k; k = k->next) look_at_clock(k, now);
    double next = run_timers(h, now);
    set_tick(h, ARES_MIN(next, now + h->tick_s));
}

/* Other threads have answered, set timers, or stop the server. */
static void on_wake(serve_http *h)
{
    pthread_mutex_lock(&h->lock);
    serve_call *c = h->woken;
    bool stopping = h->stopping;
    h->woken = NULL;
    pthread_mutex_unlock(&h->lock);
    for (serve_call *next; c; c = next) {
        pthread_mutex_lock(&h->lock);
        next = c->next_woken; /* read before another thread may wake it again */
        c->woken = false;
        bool waits = c->sent < c->out.len || c->ended, drop = c->flooded || (c->cut && !waits);
        double at = c->timed ? c->at_s : h->next_tick;
        pthread_mutex_unlock(&h->lock);
        if (at < h->next_tick) set_tick(h, at);
        if (c->conn && drop) kill_connection(c->conn);
        else if (c->conn && waits) lws_callback_on_writable(c->conn->wsi);
        serve_call_let_go(c);
    }
    if (!stopping) return;
    if (h->listening) lws_set_timeout(h->listening, PENDING_TIMEOUT_CLOSE_SEND, LWS_TO_KILL_ASYNC);
    for (connection *k = h->connections; k; k = k->next)
        if (k->state == HEAD && k->in.len == 0) kill_connection(k);
}

/* Clients that wait at the listening socket. */
static void accept_some(serve_http *h, int listener)
{
    for (int i = 0; i < ACCEPTS; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), one = 1;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
            /* no descriptor is left: this one makes room to turn the client away */
            close(h->spare);
            fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= 0) close(fd);
            h->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
            continue;
        }
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0) return; /* nobody waits */
        pthread_mutex_lock(&h->lock);
        bool taken = h->open < h->options.max_connections && !h->stopping;
        h->open += taken;
        pthread_mutex_unlock(&h->lock);
        if (!taken) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* events are small */
        struct lws *wsi = lws_adopt_descriptor_vhost(
            h->vhost, LWS_ADOPT_SOCKET, (lws_sock_file_fd_type){ .sockfd = fd }, "http", NULL);
        if (!wsi) { /* which has closed fd */
            pthread_mutex_lock(&h->lock);
            h->open--;
            pthread_mutex_unlock(&h->lock);
            continue;
        }
        connection *k = ares_calloc(1, sizeof *k);
        k->h = h;
        k->wsi = wsi;
        k->number = ++h->numbers;
        k->until = ares_now_s() + h->options.head_timeout_s;
        k->at = &h->connections;
        k->next = h->connections;
        if (k->next) k->next->at = &k->next;
        h->connections = k;
        lws_set_opaque_user_data(wsi, k);
    }
}

/* libwebsockets' callback; -1 closes the socket. */
static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t n)
{
    (void)user;
    serve_http *h = wsi ? lws_context_user(lws_get_context(wsi)) : NULL;
    switch ((int)reason) {
    case LWS_CALLBACK_EVENT_WAIT_CANCELLED: on_wake(h); return 0;
    case LWS_CALLBACK_RAW_RX_FILE: accept_some(h, lws_get_socket_fd(wsi)); return 0;
    case LWS_CALLBACK_RAW_CLOSE_FILE: h->listening = NULL; return 0;
    case LWS_CALLBACK_RAW_RX:
    case LWS_CALLBACK_RAW_WRITEABLE:
    case LWS_CALLBACK_RAW_CLOSE: break;
    default: return 0;
    }
    connection *k = lws_get_opaque_user_data(wsi);
    if (!k) return -1;
    if (reason == LWS_CALLBACK_RAW_WRITEABLE) return send_some(k);
    if (reason == LWS_CALLBACK_RAW_RX) receive(k, (ares_view){ in, n });
    else {
        lws_set_opaque_user_data(wsi, NULL);
        end_connection(k);
    }
    return 0;
}

static void *serve(void *x)
{
    serve_http *h = x;
    set_tick(h, ares_now_s() + h->tick_s);
    for (bool ending = false; !ending;) {
        lws_service(h->context, 0); /* sleeps until there is something to do */
        pthread_mutex_lock(&h->lock);
        ending = h->ending;
        pthread_mutex_unlock(&h->lock);
    }
    return NULL;
}

/* ---------------- opening and closing */
static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

/* The listening socket of one address; -1: errno says why. */
static int listen_at(const struct addrinfo *a)
{
    int one = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* Looks the host up, and listens at its first address that can be had, IPv4 before IPv6. */
static int listen_on(const serve_http_options *o, int *listener, int *port)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *all = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", o->port);
    int rc = getaddrinfo(o->host, service, &hints, &all);
    if (rc != 0)
        return ares_fail(ARES_EUSE,
                         "serve: --host = '%s': %s; give an address of this machine, such as "
                         "127.0.0.1",
                         o->host, gai_strerror(rc));
    bool open_to_all = false;
    for (const struct addrinfo *a = all; a; a = a->ai_next) open_to_all |= !is_loopback(a->ai_addr);
    int why = EADDRNOTAVAIL;
    *listener = -1;
    for (int family = 0; family < 2 && (o->api_key || !open_to_all); family++)
        for (const struct addrinfo *a = all; a && *listener < 0; a = a->ai_next) {
            if ((a->ai_family == AF_INET) != (family == 0)) continue;
            *listener = listen_at(a);
            if (*listener < 0) why = errno;
        }
    freeaddrinfo(all);
    if (open_to_all && !o->api_key)
        return ares_fail(ARES_EUSE,
                         "serve: --host = '%s': other machines could ask; add --api-key KEY, or "
                         "leave --host out to serve this machine alone",
                         o->host);
    if (*listener < 0) {
        const char *remedy = why == EADDRINUSE ? "choose another --port, or --port 0 for a free one"
                             : why == EACCES   ? "choose a --port above 1023"
                                             : "give an address of this machine, such as 127.0.0.1";
        return ares_fail(ARES_EUSE, "serve: %s:%d: %s; %s", o->host, o->port, strerror(why),
                         remedy);
    }
    struct sockaddr_storage bound;
    socklen_t n = sizeof bound;
    getsockname(*listener, (struct sockaddr *)(void *)&bound, &n);
    *port = bound.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)(void *)&bound)->sin_port)
                                       : ntohs(((struct sockaddr_in6 *)(void *)&bound)->sin6_port);
    return ARES_OK;
}

/* The library's side: a context whose tables have room for as many descriptors as are allowed. */
static struct lws_context *new_context(serve_http *h)
{
    static const struct lws_protocols protocols[] = { { .name = "http", .callback = on_event },
                                                      { .name = NULL } };
    struct rlimit files, fewer;
    lws_set_log_level(0, NULL);
    /* without a sensible limit it makes tables of gigabytes, or ones that are too small */
    bool changed = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > TABLE_DESCRIPTORS;
    if (changed) {
        fewer = files;
        fewer.rlim_cur = TABLE_DESCRIPTORS;
        setrlimit(RLIMIT_NOFILE, &fewer);
    }
    struct lws_context *context = lws_create_context(&(struct lws_context_creation_info){
        .port = CONTEXT_PORT_NO_LISTEN,
        .protocols = protocols,
        .gid = -1,
        .uid = -1,
        .user = h,
        .http_proxy_address = "",
        .pt_serv_buf_size = READ_BYTES,
        .max_http_header_pool = 1,
    });
    if (changed) setrlimit(RLIMIT_NOFILE, &files);
    return context;
}

int serve_http_open(const serve_http_options *options, serve_http **out)
{
    const serve_http_options *o = options;
    int listener = -1, port = 0;
    *out = NULL;
    ARES_ASSERT(o->error && o->handle && o->max_connections > 0 && o->max_body_bytes >> 50 == 0);
    if (o->api_key && !*o->api_key)
        return ares_fail(ARES_EUSE,
                         "serve: --api-key = '': an empty key; give one, or leave it out");
    for (int i = 0; i < o->n_origins; i++)
        if (strcmp(o->origins[i], "*") == 0 && !o->api_key)
            return ares_fail(ARES_EUSE,
                             "serve: --allow-origin = '*': every web page could ask; add "
                             "--api-key KEY, or name the page's origin");
    ARES_TRY(listen_on(o, &listener, &port));
    serve_http *h = ares_calloc(1, sizeof *h);
    h->options = *o;
    h->options.host = ares_strdup(o->host);
    h->options.api_key = o->api_key ? ares_strdup(o->api_key) : NULL;
    char **origins = ares_calloc((size_t)o->n_origins + 1, sizeof *origins);
    for (int i = 0; i < o->n_origins; i++) origins[i] = ares_strdup(o->origins[i]);
    h->options.origins = (const char *const *)origins;
    h->port = port;
    h->holders = 1;
    int64_t needed, limit, most = o->max_connections;
    if (!ares_descriptors_reserve(most + OWN_DESCRIPTORS, &needed, &limit)) {
        h->options.max_connections = (int)ARES_MAX(most - (needed - limit), 1);
        ares_warn("serve: %d connections at once instead of %lld: %lld open files are allowed; "
                  "raise the limit with 'ulimit -n %lld'",
                  h->options.max_connections, (long long)most, (long long)limit, (long long)needed);
    }
    double shortest =
        ARES_MIN(ARES_MIN(o->head_timeout_s, o->body_timeout_s),
                 ARES_MIN(ARES_MIN(o->idle_timeout_s, o->stall_timeout_s), o->silence_s));
    h->tick_s = ARES_MAX(ARES_MIN(shortest / 10, most_tick_s), least_tick_s);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    pid_t pid = getpid();
    h->salt = ares_fnv1a(ares_fnv1a(ARES_FNV1A, &now, sizeof now), &pid, sizeof pid);
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&h->sent, &monotonic);
    pthread_condattr_destroy(&monotonic);
    h->clock = ares_calloc(1, sizeof *h->clock);
    h->clock->h = h;
    h->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    h->context = new_context(h);
    if (h->context) {
        h->vhost = lws_get_vhost_by_name(h->context, "default");
        h->listening =
            lws_adopt_descriptor_vhost(h->vhost, LWS_ADOPT_RAW_FILE_DESC,
                                       (lws_sock_file_fd_type){ .filefd = listener }, "http", NULL);
    }
    sigset_t every, before;
    sigfillset(&every); /* blocked in the new thread: the main thread takes them */
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int rc = h->listening ? pthread_create(&h->thread, NULL, serve, h) : -1;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) {
        *out = h;
        return ARES_OK;
    }
    if (!h->listening) close(listener);
    h->closed = true;
    if (h->context) lws_context_destroy(h->context);
    ares_free(h->clock);
    close(h->spare);
    serve_http_free(h);
    return ares_fail(ARES_EIO, "serve: the system refuses sockets or a thread for them");
}

void http_wake(serve_http *h)
{
    lws_cancel_service(h->context);
}

int serve_http_port(const serve_http *h)
{
    return h->port;
}

int serve_http_connections(serve_http *h)
{
    pthread_mutex_lock(&h->lock);
    int open = h->open;
    pthread_mutex_unlock(&h->lock);
    return open;
}

void serve_http_stop(serve_http *h)
{
    pthread_mutex_lock(&h->lock);
    h->stopping = true;
    http_wake(h);
    pthread_mutex_unlock(&h->lock);
}

void serve_http_close(serve_http *h, double wait_s)
{
    if (!h) return;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double at = (double)until.tv_sec + (double)until.tv_nsec * 1e-9 + wait_s;
    until.tv_sec = (time_t)at;
    until.tv_nsec = (long)((at - (double)until.tv_sec) * 1e9);
    serve_http_stop(h);
    pthread_mutex_lock(&h->lock);
    while (h->unsent && pthread_cond_timedwait(&h->sent, &h->lock, &until) == 0) {}
    h->ending = true;
    http_wake(h);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    pthread_mutex_lock(&h->lock);
    h->closed = true; /* nobody wakes the thread from now on */
    while (h->timed) serve_call_unset_timer(h->timed);
    serve_call *c = h->woken;
    h->woken = NULL;
    pthread_mutex_unlock(&h->lock);
    lws_sul_cancel(&h->clock->tick);
    lws_context_destroy(h->context); /* closes all sockets: on_event lets the calls go */
    for (serve_call *next; c; c = next) {
        next = c->next_woken;
        serve_call_let_go(c);
    }
    ares_free(h->clock);
    close(h->spare);
    pthread_mutex_lock(&h->lock);
    bool last = --h->holders == 0;
    pthread_mutex_unlock(&h->lock);
    if (last) serve_http_free(h);
}

#endif
