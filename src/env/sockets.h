/*
 * Connections to one server of messages (WebSocket), served by a thread of their own: servers drop
 * a connection that leaves their pings unanswered, and a run may be busy for minutes. Callers on
 * any thread ask one question per connection at a time and wait for its answer.
 */
#ifndef ARES_ENV_SOCKETS_H
#define ARES_ENV_SOCKETS_H

#include "ares/core.h"

typedef struct sockets sockets;       /* all connections to a server */
typedef struct connection connection; /* one of them, open or not */

/* Whether this build has libwebsockets; without it sockets_new fails and says so. */
bool sockets_offered(void);
/* answer_bytes: a longer message closes its connection. */
int sockets_new(const char *host, int port, size_t answer_bytes, sockets **out);
void sockets_free(sockets *all); /* after its connections; NULL is fine */

connection *connection_new(sockets *all);
void connection_free(connection *c); /* NULL is fine */
bool connection_is_open(connection *c);
void connection_close(connection *c);

typedef struct socket_reply {
    ares_view text; /* lives until the connection's next question */
    bool failed;    /* there is no answer, and the connection is closed */
    bool by_clock;  /* because it was late */
    int status;     /* of a document, as HTTP numbers them */
    char why[200];  /* "gave no answer within 2 s" */
} socket_reply;
/* Opens the connection and asks its first question. It must be closed. */
void connection_open(connection *c, const char *path, ares_view question, double timeout_s,
                     socket_reply *r);
/* A connection that was closed since the last question fails with the reason. */
void connection_ask(connection *c, ares_view question, double timeout_s, socket_reply *r);
/* Fetches a document by HTTP GET. The connection must be closed, and is closed afterwards. */
void connection_get(connection *c, const char *path, double timeout_s, socket_reply *r);

#endif
