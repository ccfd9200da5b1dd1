/* A build without libwebsockets has no connections. */
#include "sockets.h"

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

/* Without a `sockets` there is no connection. */
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
