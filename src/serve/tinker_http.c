/*
 * Tinker's calls over http.h: the one file of its server that knows a connection. Its state is
 * tested without (tests/serve/test_tinker.c), with times that tests set.
 */
#include "tinker.h"

static void expire(void *ctx, serve_call *c)
{
    tinker_expire(ctx, c);
}

void tinker_handle(tinker *t, serve_call *c)
{
    const serve_request_head *head = serve_call_head(c);
    tinker_answer a;
    /* before it is asked: the worker may answer and drop the call while tinker_ask returns */
    if (ares_view_is(head->path, "/api/v1/retrieve_future"))
        serve_call_timer(c, TINKER_POLL_S, expire, t);
    if (tinker_ask(t, head, c, &a)) {
        if (a.retry_after) serve_call_header(c, "retry-after", "1");
        serve_call_answer(c, a.status, a.content_type, ares_str_view(&a.body));
        serve_call_drop(c);
    }
    ares_str_fini(&a.body);
}

void tinker_answer_call(void *ctx, void *call, int status, const char *content_type, ares_view body)
{
    (void)ctx;
    serve_call_answer(call, status, content_type, body);
    serve_call_drop(call);
}
