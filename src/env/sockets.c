/*
 * WebSocket connections to a server of environments, served by one thread; a build without
 * libwebsockets has functions that refuse.
 */
#include "internal.h"

#ifndef ARES_HAVE_WEBSOCKETS

bool sockets_offered(void)
{
    return false;
}

int sockets_new(const char *host, int port, size_t answer_bytes, sockets **out)
{
    (void)answer_bytes;
    *out = NULL;
    return ares_fail(ARES_EUNSUPPORTED,
                     "env: %s:%d: this build has no libwebsockets; install libwebsockets-dev and "
                     "build again",
                     host, port);
}

void sockets_free(sockets *all)
{
    ARES_ASSERT(!all);
}

/* sockets_new always fails here, so that `all` is NULL, and so is every connection. */
connection *connection_new(sockets *all)
{
    sockets_free(all);
    return NULL;
}

void connection_free(connection *c)
{
    ARES_ASSERT(!c);
}

bool connection_is_open(connection *c)
{
    connection_free(c);
    return false;
}

void connection_close(connection *c)
{
    connection_free(c);
}

void connection_ask(connection *c, ares_view question, double timeout_s, socket_reply *r)
{
    connection_free(c);
    *r = (socket_reply){ .failed = true };
    (void)question, (void)timeout_s;
}

void connection_open(connection *c, const char *path, ares_view question, double timeout_s,
                     socket_reply *r)
{
    (void)path;
    connection_ask(c, question, timeout_s, r);
}

void connection_get(connection *c, const char *path, double timeout_s, socket_reply *r)
{
    connection_open(c, path, (ares_view){ "", 0 }, timeout_s, r);
}

#endif

/*
 * libwebsockets wants one thread: callers leave an order in a queue, wake the thread and wait. The
 * thread answers every order: with what the server sent, with why the connection ended, or when the
 * time is up. A connection whose answer is late is closed, because that answer would be taken for
 * the next one's.
 */

#ifdef ARES_HAVE_WEBSOCKETS

#include <libwebsockets.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "ares/dist.h"

enum { CONNECTIONS = 8192 };      /* at most, of one server */
static const double look_s = 0.5; /* how often to look for a signal that ends the work */

/* what a caller asks of the thread */
typedef enum { ORDER_OPEN, ORDER_ASK, ORDER_GET, ORDER_CLOSE } order;

struct connection {
    sockets *all;
    connection *next; /* in the queue of orders */
    order order;
    const char *path;
    double timeout_s, until;   /* until: then an answer is late */
    bool waiting, taken, open; /* under the lock; taken: the thread has its order */
    socket_reply *reply;
    pthread_cond_t told;
    /* used by the thread while a caller waits, else by the caller */
    ares_str out, in; /* out: LWS_PRE free bytes, then the question */
    /* used by the thread alone */
    struct lws *wsi;
    bool document, unsent; /* document: GET; unsent: `out` waits until the socket is writable */
    lws_sorted_usec_list_t late; /* the timer */
    char end[160];               /* how it was closed */
};

/* The thread and the connections of one server. */
struct sockets {
    char *host;
    int port;
    size_t answer_bytes; /* a longer answer ends its connection */
    struct lws_context *context;
    pthread_t thread;
    pthread_mutex_t lock;
    connection *orders; /* the queue, oldest first */
    bool stop;
};

bool sockets_offered(void)
{
    return true;
}

/* ---------------- the thread's side */
/* The order is done: wakes the caller that waits for it. */
static void finish(connection *c)
{
    lws_sul_cancel(&c->late);
    c->unsent = false;
    pthread_mutex_lock(&c->all->lock);
    c->waiting = false;
    c->open = c->wsi && !c->document;
    pthread_cond_signal(&c->told);
    pthread_mutex_unlock(&c->all->lock);
}

/* Whether a caller waits for an order that the thread has taken from the queue. */
static bool is_waiting(connection *c)
{
    pthread_mutex_lock(&c->all->lock);
    bool waiting = c->waiting && c->taken;
    pthread_mutex_unlock(&c->all->lock);
    return waiting;
}

/* Parts the connection from its socket: whatever else comes from that is dropped. */
static void let_go(connection *c)
{
    if (!c->wsi) return;
    lws_set_opaque_user_data(c->wsi, NULL);
    c->wsi = NULL;
}

/* Notes that the connection has ended, and tells a caller that waits why. */
static void end(connection *c, bool by_clock, const char *why)
{
    if (why != c->end) snprintf(c->end, sizeof c->end, "%s", why);
    let_go(c);
    if (!is_waiting(c)) {
        pthread_mutex_lock(&c->all->lock);
        c->open = false;
        pthread_mutex_unlock(&c->all->lock);
        return;
    }
    c->reply->failed = true;
    c->reply->by_clock = by_clock;
    snprintf(c->reply->why, sizeof c->reply->why, "%s", why);
    finish(c);
}

/* Closes the socket as well. */
static void drop(connection *c, bool by_clock, const char *why)
{
    if (c->wsi) lws_set_timeout(c->wsi, PENDING_TIMEOUT_CLOSE_SEND, LWS_TO_KILL_ASYNC);
    end(c, by_clock, why);
}

static void wait_until_late(connection *c, double left);

/* A timer's call: looks for a signal, and ends an order whose time is up. */
static void on_late(lws_sorted_usec_list_t *timer)
{
    connection *c = lws_container_of(timer, connection, late);
    char why[96];
    double left = c->until - ares_now_s();
    if (ares_signal_poll() != ARES_OK) drop(c, true, ares_error_message());
    else if (left > 0) wait_until_late(c, left);
    else {
        snprintf(why, sizeof why, "gave no answer within %g s", c->timeout_s);
        drop(c, true, why);
    }
}

/* Sets the timer, at most look_s ahead. */
static void wait_until_late(connection *c, double left)
{
    lws_sul_schedule(c->all->context, 0, &c->late, on_late,
                     (lws_usec_t)(ARES_MIN(left, look_s) * LWS_USEC_PER_SEC) + 1);
}

/* Begins what the order asks for; on_event ends it. */
static void execute(connection *c)
{
    if (c->order == ORDER_CLOSE) {
        if (c->wsi) lws_set_timeout(c->wsi, PENDING_TIMEOUT_CLOSE_SEND, LWS_TO_KILL_ASYNC);
        let_go(c);
        finish(c);
        return;
    }
    c->document = c->order == ORDER_GET;
    c->unsent = !c->document;
    c->until = ares_now_s() + c->timeout_s;
    wait_until_late(c, c->timeout_s);
    if (c->order == ORDER_ASK) {
        if (c->wsi) lws_callback_on_writable(c->wsi);
        else end(c, false, c->end);
        return;
    }
    struct lws_client_connect_info info = {
        .context = c->all->context,
        .address = c->all->host,
        .host = c->all->host,
        .port = c->all->port,
        .path = c->path,
        .method = c->document ? "GET" : NULL,
        .ssl_connection = LCCSCF_HTTP_NO_FOLLOW_REDIRECT,
        .local_protocol_name = "env",
        .opaque_user_data = c,
    };
    /* libwebsockets may call on_event before it returns, which may already have ended the order */
    struct lws *wsi = lws_client_connect_via_info(&info);
    if (!is_waiting(c)) return; /* it failed at once, and on_event has said why */
    if (wsi) c->wsi = wsi;
    else end(c, false, "cannot be reached");
}

/* Takes the oldest order from the queue; NULL: it is empty. */
static connection *next_order(sockets *all)
{
    pthread_mutex_lock(&all->lock);
    connection *c = all->orders;
    if (c) {
        all->orders = c->next;
        c->taken = true;
    }
    pthread_mutex_unlock(&all->lock);
    return c;
}

/* A piece of a message or document; whole: its last one, which completes the answer. */
static void receive(connection *c, const char *data, size_t n, bool whole)
{
    if (!is_waiting(c)) {
        drop(c, false, "sent a message that nobody asked for");
        return;
    }
    if (c->in.len + n > c->all->answer_bytes) {
        char why[96];
        snprintf(why, sizeof why, "sent a message of more than %zu bytes", c->all->answer_bytes);
        drop(c, false, why);
        return;
    }
    ares_str_add(&c->in, data, n);
    if (!whole) return;
    c->reply->text = ares_str_view(&c->in);
    finish(c);
}

/* Events of a connection that gets a document. */
static int on_document(connection *c, struct lws *wsi, enum lws_callback_reasons reason,
                       const void *in, size_t n)
{
    char buffer[LWS_PRE + 4096], *at = buffer + LWS_PRE;
    int room = sizeof buffer - LWS_PRE;
    switch ((int)reason) {
    case LWS_CALLBACK_RECEIVE_CLIENT_HTTP: /* reading here brings the next case */
        return lws_http_client_read(wsi, &at, &room) < 0 ? -1 : 0;
    case LWS_CALLBACK_RECEIVE_CLIENT_HTTP_READ: receive(c, in, n, false); break;
    case LWS_CALLBACK_COMPLETED_CLIENT_HTTP:
        c->reply->status = (int)lws_http_client_http_response(wsi);
        let_go(c);
        c->reply->text = ares_str_view(&c->in);
        finish(c);
        break;
    case LWS_CALLBACK_CLOSED_CLIENT_HTTP: end(c, false, "closed the connection"); break;
    default: break;
    }
    return 0;
}

/* Events of a WebSocket, and failures to connect of both kinds. */
static int on_message(connection *c, struct lws *wsi, enum lws_callback_reasons reason,
                      const void *in, size_t n)
{
    char why[160];
    switch ((int)reason) {
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
        snprintf(why, sizeof why, "cannot be reached (%.*s)", in ? (int)n : 7,
                 in ? (const char *)in : "no hint");
        end(c, false, why);
        break;
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        c->wsi = wsi;
        snprintf(c->end, sizeof c->end, "closed the connection");
        lws_callback_on_writable(wsi);
        break;
    case LWS_CALLBACK_CLIENT_WRITEABLE: {
        if (!c->unsent) break;
        size_t length = c->out.len - LWS_PRE;
        c->unsent = false;
        int sent =
            lws_write(c->wsi, (unsigned char *)c->out.data + LWS_PRE, length, LWS_WRITE_TEXT);
        return sent < (int)length ? -1 : 0; /* -1 closes the socket */
    }
    case LWS_CALLBACK_CLIENT_RECEIVE:
        if (lws_frame_is_binary(wsi)) { /* the protocol's messages are texts */
            drop(c, false, "sent a binary message");
            break;
        }
        receive(c, in, n, lws_is_final_fragment(wsi) && !lws_remaining_packet_payload(wsi));
        break;
    case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE: {
        if (n < 2) break; /* no code */
        const unsigned char *code = in;
        char quote[160];
        ares_view text = { (const char *)in + 2, ARES_MIN(n - 2, (size_t)80) };
        /* "closed the connection (1011 keepalive ping timeout)" */
        snprintf(c->end, sizeof c->end, "closed the connection (%d%s%.80s)", code[0] << 8 | code[1],
                 text.len ? " " : "", foreign_quote(text, quote));
        break;
    }
    case LWS_CALLBACK_CLIENT_CLOSED: end(c, false, c->end); break;
    default: break;
    }
    return 0;
}

/* libwebsockets' callback, on the thread; -1 closes the socket. */
static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t n)
{
    (void)user;
    if (reason == LWS_CALLBACK_EVENT_WAIT_CANCELLED) {
        sockets *all = lws_context_user(lws_get_context(wsi));
        for (connection *o = next_order(all); o; o = next_order(all)) execute(o);
        return 0;
    }
    connection *c = wsi ? lws_get_opaque_user_data(wsi) : NULL;
    if (!c) /* a socket that was let go: close it */
        return reason == LWS_CALLBACK_CLIENT_RECEIVE || reason == LWS_CALLBACK_CLIENT_WRITEABLE ||
                       reason == LWS_CALLBACK_RECEIVE_CLIENT_HTTP
                   ? -1
                   : 0;
    if (c->document && reason != LWS_CALLBACK_CLIENT_CONNECTION_ERROR)
        return on_document(c, wsi, reason, in, n);
    return on_message(c, wsi, reason, in, n);
}

/* The thread: serves until `stop`; sockets_free wakes it. */
static void *serve(void *x)
{
    sockets *all = x;
    for (bool stop = false; !stop;) {
        lws_service(all->context, 0); /* sleeps until there is something to do */
        pthread_mutex_lock(&all->lock);
        stop = all->stop;
        pthread_mutex_unlock(&all->lock);
    }
    return NULL;
}

/* ---------------- the callers' side */
int sockets_new(const char *host, int port, size_t answer_bytes, sockets **out)
{
    static const struct lws_protocols protocols[] = { { .name = "env", .callback = on_event },
                                                      { .name = NULL } };
    sockets *all = *out = ares_calloc(1, sizeof *all);
    all->host = ares_strdup(host);
    all->port = port;
    all->answer_bytes = answer_bytes;
    pthread_mutex_init(&all->lock, NULL);
    lws_set_log_level(0, NULL);
    all->context = lws_create_context(&(struct lws_context_creation_info){
        .port = CONTEXT_PORT_NO_LISTEN,
        .protocols = protocols,
        .gid = (gid_t)-1,
        .uid = (uid_t)-1,
        .user = all,
        .http_proxy_address = "", /* not the one of $http_proxy */
        .fd_limit_per_thread = CONNECTIONS + 8,
    });
    sigset_t every, before;
    sigfillset(&every); /* blocked in the new thread: the main thread takes them */
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int rc = all->context ? pthread_create(&all->thread, NULL, serve, all) : -1;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) return ARES_OK;
    if (all->context) lws_context_destroy(all->context);
    all->context = NULL;
    sockets_free(all);
    *out = NULL;
    return ares_fail(ARES_EIO, "env: the system refuses sockets or a thread for them");
}

void sockets_free(sockets *all)
{
    if (!all) return;
    if (all->context) {
        pthread_mutex_lock(&all->lock);
        all->stop = true;
        pthread_mutex_unlock(&all->lock);
        lws_cancel_service(all->context);
        pthread_join(all->thread, NULL);
        lws_context_destroy(all->context);
    }
    pthread_mutex_destroy(&all->lock);
    ares_free(all->host);
    ares_free(all);
}

/* Opens nothing yet. */
connection *connection_new(sockets *all)
{
    connection *c = ares_calloc(1, sizeof *c);
    c->all = all;
    pthread_cond_init(&c->told, NULL);
    return c;
}

/* Appends the order to the queue, wakes the thread, and waits until it is done. */
static void give_order(connection *c, order order)
{
    sockets *all = c->all;
    pthread_mutex_lock(&all->lock);
    c->order = order;
    c->waiting = true;
    c->taken = false;
    c->next = NULL;
    connection **last = &all->orders;
    while (*last) last = &(*last)->next;
    *last = c;
    lws_cancel_service(all->context);
    while (c->waiting) pthread_cond_wait(&c->told, &all->lock);
    pthread_mutex_unlock(&all->lock);
}

/* Closes it first, so that the thread keeps no pointer to it. */
void connection_free(connection *c)
{
    if (!c) return;
    connection_close(c);
    pthread_cond_destroy(&c->told);
    ares_str_fini(&c->out);
    ares_str_fini(&c->in);
    ares_free(c);
}

bool connection_is_open(connection *c)
{
    pthread_mutex_lock(&c->all->lock);
    bool open = c->open;
    pthread_mutex_unlock(&c->all->lock);
    return open;
}

void connection_close(connection *c)
{
    give_order(c, ORDER_CLOSE);
}

/* Empties the buffers, gives the order, and waits; *r is the answer. */
static void ask(connection *c, order order, ares_view question, double timeout_s, socket_reply *r)
{
    static const char room[LWS_PRE];
    *r = (socket_reply){ 0 };
    c->reply = r;
    c->timeout_s = timeout_s;
    ares_str_clear(&c->in);
    ares_str_clear(&c->out);
    ares_str_add(&c->out, room, sizeof room);
    ares_str_add_view(&c->out, question);
    give_order(c, order);
}

void connection_open(connection *c, const char *path, ares_view question, double timeout_s,
                     socket_reply *r)
{
    c->path = path;
    ask(c, ORDER_OPEN, question, timeout_s, r);
}

void connection_ask(connection *c, ares_view question, double timeout_s, socket_reply *r)
{
    ask(c, ORDER_ASK, question, timeout_s, r);
}

void connection_get(connection *c, const char *path, double timeout_s, socket_reply *r)
{
    c->path = path;
    ask(c, ORDER_GET, (ares_view){ "", 0 }, timeout_s, r);
}

#endif
