/* What HTTP requests may look like, who may ask, and what is answered. */
#include "echo.h"

/* ---------------- answers */
TEST(a_request_gets_what_its_handler_answers)
{
    START(s, usual);
    client c;
    CHECK_EQ(ask(s, &c,
                 "POST /v1/a%2Fb%20c+d&e;f//../g?x=%20&y HTTP/1.1\r\nHost: x\r\n"
                 "X-Session-ID: one\r\nACCEPT:  text/plain \r\nContent-Type:application/json\r\n"
                 "Authorization: bearer tml-1\r\nX-Api-Key: 2\r\nContent-Length: 5\r\n\r\nhello"),
             200);
    CHECK_STR(c.body.data, "POST /v1/a/b c+d&e;f//../g?x=%20&y key=tml-1 session=one "
                           "accept=text/plain type=application/json\nhello");
    CHECK_STR(header(&c, "content-type"), "text/plain");
    CHECK_STR(header(&c, "connection"), "");
    hang_up(&c);
    CHECK_EQ(ask(s, &c, "GET http://127.0.0.1:8000/x HTTP/1.1\r\nHost: x\r\nX-API-Key: 2\r\n\r\n"),
             200);
    CHECK_STR(c.body.data, "GET /x? key=2 session= accept= type=\n");
    hang_up(&c);
    stop(s);
}

TEST(an_answer_may_come_later_from_another_thread)
{
    START(s, usual);
    client c;
    CHECK_EQ(ask(s, &c, "GET /late HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    CHECK_CONTAINS(c.body.data, "chat.completion");
    hang_up(&c);
    stop(s);
}

TEST(an_answer_in_pieces_arrives_as_it_was_written)
{
    START(s, usual);
    client c;
    CHECK_EQ(ask(s, &c, "GET /pieces HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    CHECK_STR(c.body.data, "piece 1\npiece 2\npiece 3\n");
    CHECK_STR(header(&c, "content-type"), "text/plain");
    hang_up(&c);
    stop(s);
}

TEST(a_stream_of_events_has_its_headers_and_its_end)
{
    START(s, usual);
    client c;
    ares_str r = { 0 };
    CHECK(is_right(&c, ask(s, &c, post(&r, "/v1/chat/completions", "", stream)), true));
    CHECK_STR(header(&c, "content-type"), "text/event-stream; charset=utf-8");
    CHECK_STR(header(&c, "cache-control"), "no-cache");
    CHECK_STR(header(&c, "x-accel-buffering"), "no");
    CHECK_STR(header(&c, "content-length"), "");
    hang_up(&c);
    ares_str_fini(&r);
    stop(s);
}

TEST(one_connection_serves_many_requests)
{
    START(s, usual);
    client c = dial(s->port);
    ares_str r = { 0 };
    for (int i = 0; i < 20; i++) {
        say(&c, post(&r, "/v1/chat/completions", "", i % 2 ? stream : whole));
        CHECK(is_right(&c, hear(&c), i % 2));
        say(&c, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n");
        CHECK_EQ(hear(&c), 204);
        CHECK_STR(header(&c, "content-length"), "");
    }
    CHECK_EQ(connections(s), 1);
    say(&c, "GET /x HTTP/1.1\r\nHost: x\r\nConnection: foo, Close\r\n\r\n");
    CHECK_EQ(hear(&c), 200);
    CHECK_STR(header(&c, "connection"), "close");
    CHECK_EQ(hear(&c), CLOSED);
    hang_up(&c);
    ares_str_fini(&r);
    stop(s);
}

TEST(a_pipelined_request_ends_the_connection_after_the_first_answer)
{
    START(s, usual);
    client c = dial(s->port);
    ares_str r = { 0 };
    say(&c, post(&r, "/v1/chat/completions", "",
                 "{\"stream\":true}POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"));
    CHECK(is_right(&c, hear(&c), true)); /* text that looks like one, in the body */
    ares_str two = { 0 };
    ares_str_add_z(&two, post(&r, "/v1/chat/completions", "", whole));
    ares_str_add_z(&two, post(&r, "/v1/chat/completions", "", stream));
    ares_str_add_z(&two, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    say(&c, two.data);
    CHECK(is_right(&c, hear(&c), false));
    CHECK_EQ(hear(&c), CLOSED);
    hang_up(&c);
    CHECK_EQ(wait_for(connections, s, 0), 0);
    ares_str_fini(&r);
    ares_str_fini(&two);
    stop(s);
}

TEST(a_head_request_gets_no_body_and_unknown_methods_reach_the_handler)
{
    START(s, usual);
    client c = dial(s->port);
    say(&c, "HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear_of(&c, true), 200);
    CHECK_STR(header(&c, "content-length"), "37");
    say(&c, "DELETE /x HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear(&c), 200);
    CHECK_STR(c.body.data, "DELETE /x? key= session= accept= type=\n");
    say(&c, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear(&c), 200);
    CHECK_CONTAINS(c.body.data, "OPTIONS *");
    say(&c, "HEAD /pieces HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear_of(&c, true), 200);
    say(&c, "GET /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}");
    CHECK_EQ(hear(&c), 405);
    CHECK_STR(header(&c, "allow"), "post");
    say(&c, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    CHECK_EQ(hear(&c), 200);
    CHECK_STR(c.body.data, "POST /x? key= session= accept= type=\n");
    hang_up(&c);
    stop(s);
}

TEST(every_answer_has_a_request_id)
{
    START(s, usual);
    client c = dial(s->port);
    char first[256];
    say(&c, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear(&c), 200);
    snprintf(first, sizeof first, "%s", header(&c, "x-request-id"));
    CHECK_EQ(strlen(first), 20);
    CHECK(strncmp(first, "req-", 4) == 0 && strspn(first + 4, "0123456789abcdef") == 16);
    say(&c, "GET /named HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear(&c), 429);
    CHECK_STR(header(&c, "x-request-id"), "chatcmpl-7");
    CHECK(!strstr(c.head.data, "req-"));                  /* one is enough */
    CHECK_STR(header(&c, "retry-after"), "1  x-evil: 1"); /* no header of its own */
    say(&c, "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear(&c), 400);
    CHECK(strncmp(header(&c, "x-request-id"), "req-", 4) == 0);
    CHECK(strcmp(header(&c, "x-request-id"), first) != 0);
    hang_up(&c);
    stop(s);
}

TEST(a_call_that_is_dropped_tells_its_client)
{
    START(s, usual);
    client c = dial(s->port);
    say(&c, "GET /drop HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear(&c), 500);
    CHECK_CONTAINS(c.body.data, "\"code\":\"internal_error\",\"path\":\"/drop\"");
    say(&c, "GET /cut HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear(&c), BROKEN);
    CHECK_STR(c.body.data, "half");
    hang_up(&c);
    CHECK_EQ(ask(s, &c, "GET /cut-later HTTP/1.1\r\nHost: x\r\n\r\n"), BROKEN);
    CHECK_STR(c.body.data, "half");
    hang_up(&c);
    stop(s);
}

/* ---------------- bodies */
TEST(a_body_too_large_is_refused_before_it_is_read_and_the_client_hears_why)
{
    serve_http_options o = usual;
    o.max_body_bytes = 1 << 20;
    START(s, o);
    client c = dial(s->port);
    char *x = ares_calloc(1, 4000000);
    say(&c, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n");
    CHECK(say_bytes(&c, x, 4000000)); /* which is read and thrown away: no reset */
    CHECK_EQ(hear(&c), 413);
    CHECK_CONTAINS(c.body.data, "\"code\":\"body_too_large\",\"path\":\"/x\"");
    CHECK_STR(header(&c, "connection"), "close");
    CHECK_EQ(hear(&c), CLOSED);
    hang_up(&c);
    c = dial(s->port);
    say(&c, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n");
    say_bytes(&c, x, 1048576); /* as large as may be */
    CHECK_EQ(hear(&c), 200);
    CHECK_EQ(c.body.len, 1048576 + 37);
    hang_up(&c);
    CHECK_EQ(
        ask(s, &c, "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\nx"),
        413);
    hang_up(&c);
    ares_free(x);
    stop(s);
}

TEST(bodies_of_many_requests_have_a_limit_together)
{
    serve_http_options o = usual;
    o.max_body_bytes = 1 << 20;
    START(s, o);
    char *x = ares_calloc(1, 1 << 20);
    for (int round = 0; round < 2; round++) { /* what is answered is no longer counted */
        client open[SERVE_BODIES + 1];
        int failed = 0, answered = 0;
        for (int i = 0; i <= SERVE_BODIES; i++) { /* all but a byte of each */
            open[i] = dial(s->port);
            say(&open[i], "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n");
            say_bytes(&open[i], x, (1 << 20) - 1);
        }
        for (int i = SERVE_BODIES; i >= 0; i--) {
            say_bytes(&open[i], x, 1);
            int status = hear(&open[i]);
            answered += status == 200;
            failed += status == 503;
            if (status == 503)
                CHECK_CONTAINS(open[i].body.data, "\"code\":\"too_many_large_bodies\"");
            hang_up(&open[i]);
        }
        CHECK_EQ(failed, 1); /* whose bytes were one too many */
        CHECK_EQ(answered, SERVE_BODIES);
    }
    ares_free(x);
    stop(s);
}

TEST(a_request_may_come_in_pieces)
{
    START(s, usual);
    ares_str r = { 0 };
    client c;
    post(&r, "/v1/chat/completions", "X-Long: aaaaaaaaaaaaaaaaaaaaaaa\r\n", stream);
    for (size_t split = 1; split <= 7; split += 3) {
        CHECK(is_right(&c, ask_bytes(s, &c, r.data, r.len, split), true));
        hang_up(&c);
    }
    ares_str_fini(&r);
    stop(s);
}

TEST(a_chunked_body_is_decoded_however_it_is_cut)
{
    static const char *const bodies[] = {
        "5\r\nhello\r\n0\r\n\r\n",
        "1\r\nh\r\n01\r\ne\r\n1;a=b\r\nl\r\n1 ;x\r\nl\r\n1\r\no\r\n0\r\n\r\n",
        "0002\r\nhe\r\n3\r\nllo\r\n0;last\r\nTrailer: x\r\nAnother: y\r\n\r\n",
    };
    START(s, usual);
    client c;
    ares_str r = { 0 };
    for (int i = 0; i < ARES_COUNT(bodies); i++)
        for (size_t split = 0; split < 4; split++) {
            ares_str_clear(&r);
            ares_str_addf(&r, "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n%s",
                          bodies[i]);
            CHECK_EQ(ask_bytes(s, &c, r.data, r.len, split), 200);
            CHECK_STR(c.body.data, "POST /x? key= session= accept= type=\nhello");
            say(&c, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n"); /* its end is known */
            CHECK_EQ(hear(&c), 200);
            CHECK_CONTAINS(c.body.data, "GET /next");
            hang_up(&c);
        }
    ares_str_fini(&r);
    stop(s);
}

TEST(a_client_that_waits_is_told_to_go_on)
{
    START(s, usual);
    client c = dial(s->port);
    say(&c, "POST /x HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n");
    CHECK_EQ(hear(&c), 100);
    say(&c, "hello");
    CHECK_EQ(hear(&c), 200);
    say(&c,
        "POST /x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello");
    CHECK_EQ(hear(&c), 200); /* it did not wait */
    say(&c, "POST /x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            "Content-Length: 99999999999\r\n\r\n");
    CHECK_EQ(hear(&c), 413); /* nor is it asked to send that */
    hang_up(&c);
    CHECK_EQ(ask(s, &c, "POST /x HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n"),
             417);
    hang_up(&c);
    stop(s);
}

TEST(a_refused_requests_body_is_not_the_next_request)
{
    START(s, usual);
    client c;
    ares_str r = { 0 };
    CHECK_EQ(ask(s, &c, post(&r, "/%zz", "", "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")), 400);
    CHECK_EQ(hear(&c), CLOSED);
    hang_up(&c);
    CHECK_EQ(
        ask(s, &c,
            post(&r, "/x", "Origin: http://evil\r\n", "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")),
        403);
    CHECK_EQ(hear(&c), CLOSED);
    hang_up(&c);
    CHECK_EQ(ask(s, &c, "POST /x HTTP/1.1\r\nHost: x\r\nOrigin: http://evil\r\n\r\n"), 403);
    CHECK_EQ(hear(&c), CLOSED); /* nothing said how long its body is */
    hang_up(&c);
    ares_str_fini(&r);
    stop(s);
}

TEST(what_could_be_understood_in_two_ways_is_refused)
{
#define POST_ "POST /x HTTP/1.1\r\nHost: x\r\n"
#define GET_ "GET /x HTTP/1.1\r\nHost: x\r\n"
    static const struct {
        const char *request;
        int status;
    } cases[] = {
        { POST_ "\r\n", 411 },
        { POST_ "Content-Length: -1\r\n\r\n", 400 },
        { POST_ "Content-Length: +2\r\n\r\n{}", 400 },
        { POST_ "Content-Length: 0x2\r\n\r\n{}", 400 },
        { POST_ "Content-Length: \r\n\r\n{}", 400 },
        { POST_ "Content-Length: 2 2\r\n\r\n{}", 400 },
        { POST_ "Content-Length: 2, 2\r\n\r\n{}", 400 },
        { POST_ "Content-Length: 2\r\nContent-Length: 9\r\n\r\n{}", 400 },
        { POST_ "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400 },
        { POST_ "Content-Length: 99999999999\r\n\r\n", 413 },
        { POST_ "Content-Length: 99999999999999999999999\r\n\r\n", 413 },
        { POST_ "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400 },
        { POST_ "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400 },
        { "POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 415 },
        { POST_ "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
        { POST_ "Transfer-Encoding: gzip, chunked\r\n\r\n", 415 },
        { POST_ "Transfer-Encoding: identity\r\n\r\n", 415 },
        { POST_ "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415 },
        { POST_ "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400 },
        { POST_ "Transfer-Encoding: chunked\r\n\r\n4000000000000000\r\n{}", 413 },
        { POST_ "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n{}", 413 },
        { POST_ "Transfer-Encoding: chunked\r\n\r\n00000000000000002\r\n{}", 400 },
        { POST_ "Transfer-Encoding: chunked\r\n\r\n\r\n", 400 },
        { POST_ "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}", 400 },
        { POST_ "Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}", 400 },
        { POST_ "Transfer-Encoding: chunked\r\n\r\n2\n{}", 400 },
        { POST_ "Transfer-Encoding: chunked\r\n\r\n2\r\n{}}", 400 },
        { POST_ "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r0", 400 },
        { POST_ "Transfer-Encoding: chunked\r\n\r\n2;\n{}", 400 },
        { POST_ "Transfer-Encoding: chunked\r\n\r\n0\r\nx\n\r\n", 400 },
        { GET_ "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200 },
        { GET_ "Host: y\r\n\r\n", 400 },
        { GET_ " folded\r\n\r\n", 400 },
        { GET_ "Origin : http://evil\r\n\r\n", 400 },
        { GET_ ": empty\r\n\r\n", 400 },
        { GET_ "no colon\r\n\r\n", 400 },
        { GET_ "X: a\rb\r\n\r\n", 400 },
        { GET_ "X: a\nY: b\r\n\r\n", 400 },
        { GET_ "X: a\x7f\r\n\r\n", 400 },
        { GET_ "X: \xc3\xa4\r\n\r\n", 200 },
        { "\r\n\r\n" GET_ "\r\n", 200 },
        { "GET /x HTTP/1.1\r\n\r\n", 400 },
        { "GET /x HTTP/1.0\r\n\r\n", 200 },
        { "GET /x HTTP/1.2\r\nHost: x\r\n\r\n", 200 },
        { "GET /x HTTP/2.0\r\nHost: x\r\n\r\n", 505 },
        { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505 },
        { "GET /x http/1.1\r\nHost: x\r\n\r\n", 400 },
        { "GET /x HTTP/1.1 \r\nHost: x\r\n\r\n", 400 },
        { "GET  /x HTTP/1.1\r\nHost: x\r\n\r\n", 400 },
        { "GET /x\r\n\r\n", 400 },
        { "GET x HTTP/1.1\r\nHost: x\r\n\r\n", 400 },
        { "GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400 },
        { "GET /x\ty HTTP/1.1\r\nHost: x\r\n\r\n", 400 },
        { "GET /%4 HTTP/1.1\r\nHost: x\r\n\r\n", 400 },
        { "GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400 },
        { "CONNECT evil:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400 },
        { "G@T /x HTTP/1.1\r\nHost: x\r\n\r\n", 400 },
        { "\x16\x03\x01\x02 \x01 \x01\xfc\x03\x03\r\n\r\n", 400 },
        { GET_ "GET /health HTTP/1.1\r\n\r\n", 400 },
        { GET_ "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: "
               "dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
          200 },
        { GET_ "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n"
               "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
          200 },
    };
    START(s, usual);
    client c;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        int status = ask(s, &c, cases[i].request);
        CHECK_MSG(status == cases[i].status, "case %d: %d, expected %d: %s", i, status,
                  cases[i].status, c.body.data ? c.body.data : "");
        if (status >= 400) CHECK_EQ(hear(&c), CLOSED);
        hang_up(&c);
    }
    CHECK_EQ(ask_bytes(s, &c, "GET /x HTTP/1.1\r\nHost: \0x\r\n\r\n", 30, 0), 400);
    hang_up(&c);
    stop(s);
}

TEST(a_head_may_have_sixteen_kilobytes)
{
    START(s, usual);
    client c;
    ares_str r = { 0 };
    ares_str_add_z(&r, "GET /");
    while (r.len < 8000) ares_str_add_char(&r, 'a');
    ares_str_add_z(&r, " HTTP/1.1\r\nHost: x\r\nX: ");
    while (r.len < 16380) ares_str_add_char(&r, 'b');
    ares_str_add_z(&r, "\r\n\r\n");
    CHECK_EQ(ask(s, &c, r.data), 200);
    hang_up(&c);
    ares_str_clear(&r);
    ares_str_add_z(&r, "GET /x HTTP/1.1\r\nHost: x\r\nX: ");
    while (r.len < 16381) ares_str_add_char(&r, 'b');
    ares_str_add_z(&r, "\r\n\r\n");
    for (size_t split = 0; split <= 4000; split += 4000) {
        CHECK_EQ(ask_bytes(s, &c, r.data, r.len, split), 431);
        hang_up(&c);
    }
    while (r.len < 100000) ares_str_add_char(&r, 'b');
    CHECK_EQ(ask(s, &c, r.data), 431);
    hang_up(&c);
    ares_str_fini(&r);
    stop(s);
}

TEST(http_1_0_gets_whole_answers_and_no_streams)
{
    START(s, usual);
    client c;
    CHECK_EQ(ask(s, &c, "GET /health HTTP/1.0\r\n\r\n"), 200);
    CHECK_STR(header(&c, "connection"), "close");
    CHECK_EQ(hear(&c), CLOSED);
    hang_up(&c);
    CHECK_EQ(ask(s, &c,
                 "POST /v1/chat/completions HTTP/1.0\r\nContent-Length: 15\r\n\r\n"
                 "{\"stream\":true}"),
             400);
    CHECK_CONTAINS(c.body.data, "streams need HTTP/1.1");
    CHECK_CONTAINS(c.body.data, "\"code\":\"http_version\"");
    hang_up(&c);
    stop(s);
}

/* ---------------- who may ask */
TEST(a_key_is_asked_for_and_comes_in_either_header)
{
    serve_http_options o = usual;
    char key[] = "tml-secret";
    o.api_key = key;
    START(s, o);
    memset(key, 'x', sizeof key - 1); /* texts are copied */
    static const struct {
        const char *path, *headers;
        int status;
    } cases[] = {
        { "/x", "", 401 },
        { "/x", "Authorization: Bearer tml-secret\r\n", 200 },
        { "/x", "authorization: bearer   tml-secret \r\n", 200 },
        { "/x", "X-API-Key: tml-secret\r\n", 200 },
        { "/x", "Authorization: Bearer any\r\nX-API-Key: tml-secret\r\n", 200 },
        { "/x", "Authorization: Bearer tml-secret\r\nX-API-Key: any\r\n", 200 },
        { "/x", "Authorization: Bearer tml-secre\r\n", 401 },
        { "/x", "Authorization: Bearer tml-secrett\r\n", 401 },
        { "/x", "Authorization: Bearer tml-secretml-secret\r\n", 401 },
        { "/x", "Authorization: Bearer tml-secrEt\r\n", 401 },
        { "/x", "Authorization: Bearer \r\n", 401 },
        { "/x", "Authorization: tml-secret\r\n", 401 },
        { "/x", "Authorization: Basic tml-secret\r\n", 401 },
        { "/x?key=tml-secret", "", 401 },
        { "/healthz", "", 401 },
        { "/health/", "", 401 },
        { "/health", "", 200 },
        { "/health", "Authorization: Bearer any\r\n", 200 },
    };
    client c;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str r = { 0 };
        ares_str_addf(&r, "GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", cases[i].path, cases[i].headers);
        int status = ask(s, &c, r.data);
        CHECK_MSG(status == cases[i].status, "case %d: %d", i, status);
        if (status == 401) CHECK_STR(header(&c, "www-authenticate"), "bearer");
        if (status == 401) CHECK_CONTAINS(c.body.data, "\"code\":\"invalid_api_key\"");
        if (status == 200 && strcmp(cases[i].path, "/x") == 0)
            CHECK_CONTAINS(c.body.data, "key=tml-secret ");
        hang_up(&c);
        ares_str_fini(&r);
    }
    /* before the body is read */
    CHECK_EQ(ask(s, &c, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"), 401);
    hang_up(&c);
    stop(s);
}

TEST(pages_ask_only_from_origins_that_are_named)
{
    serve_http_options o = usual;
    client c;
    START(s, o); /* none is */
    CHECK_EQ(ask(s, &c, "GET /health HTTP/1.1\r\nHost: x\r\nOrigin: http://a.example\r\n\r\n"),
             403);
    CHECK_CONTAINS(c.body.data, "\"code\":\"origin_not_allowed\"");
    CHECK_STR(header(&c, "access-control-allow-origin"), "");
    hang_up(&c);
    CHECK_EQ(ask(s, &c, "GET /health HTTP/1.1\r\nHost: x\r\nOrigin: \r\n\r\n"), 403);
    hang_up(&c);
    stop(s);

    const char *const origins[] = { "http://b.example", "http://a.example:3000" };
    o.origins = origins;
    o.n_origins = 2;
    o.api_key = "k";
    s = start(o);
    c = dial(s->port);
    say(&c, "GET /x HTTP/1.1\r\nHost: x\r\nOrigin: http://a.example:3000\r\nX-Api-Key: k\r\n\r\n");
    CHECK_EQ(hear(&c), 200);
    CHECK_STR(header(&c, "access-control-allow-origin"), "http://a.example:3000");
    CHECK_STR(header(&c, "vary"), "origin");
    say(&c, "OPTIONS /x HTTP/1.1\r\nHost: x\r\nOrigin: http://b.example\r\n"
            "Access-Control-Request-Method: POST\r\n\r\n"); /* browsers send no key with it */
    CHECK_EQ(hear(&c), 204);
    CHECK_STR(header(&c, "access-control-allow-origin"), "http://b.example");
    CHECK_STR(header(&c, "access-control-allow-methods"), "get, post");
    CHECK_STR(header(&c, "access-control-allow-headers"),
              "authorization, content-type, x-api-key, x-session-id");
    CHECK_STR(header(&c, "access-control-max-age"), "600");
    say(&c, "GET /x HTTP/1.1\r\nHost: x\r\nOrigin: http://a.example\r\nX-Api-Key: k\r\n\r\n");
    CHECK_EQ(hear(&c), 403);
    say(&c, "GET /x HTTP/1.1\r\nHost: x\r\nOrigin: http://b.example\r\n\r\n");
    CHECK_EQ(hear(&c), 401);
    hang_up(&c);
    stop(s);

    START(with_body, o);
    CHECK_EQ(ask(with_body, &c,
                 "OPTIONS /x HTTP/1.1\r\nHost: x\r\nOrigin: http://b.example\r\n"
                 "Content-Length: 5\r\n\r\n"),
             204);
    CHECK_EQ(hear(&c), CLOSED); /* the body is not the next request */
    hang_up(&c);
    stop(with_body);

    const char *const any[] = { "*" };
    o.origins = any;
    o.n_origins = 1;
    s = start(o);
    CHECK_EQ(ask(s, &c, "GET /x HTTP/1.1\r\nHost: x\r\nOrigin: null\r\nX-Api-Key: k\r\n\r\n"), 200);
    CHECK_STR(header(&c, "access-control-allow-origin"), "*");
    hang_up(&c);
    stop(s);
}

TEST(a_server_that_others_could_reach_needs_a_key)
{
    START(s, usual);
    stop(s);
    serve_http_options o = usual;
    serve_http *h;
    o.port = 0;
    o.host = "0.0.0.0";
    CHECK_FAIL(serve_http_open(&o, &h), ARES_EUSE, "add --api-key KEY");
    CHECK(h == NULL);
    o.host = "::";
    CHECK_FAIL(serve_http_open(&o, &h), ARES_EUSE, "add --api-key KEY");
    o.host = "127.0.0.1";
    o.api_key = "";
    CHECK_FAIL(serve_http_open(&o, &h), ARES_EUSE, "an empty key");
    o.api_key = NULL;
    o.origins = (const char *const[]){ "*" };
    o.n_origins = 1;
    CHECK_FAIL(serve_http_open(&o, &h), ARES_EUSE, "every web page could ask");
    o.n_origins = 0;
    o.host = "no.such.host.invalid";
    CHECK_FAIL(serve_http_open(&o, &h), ARES_EUSE, "give an address of this machine");
    o.host = "localhost";
    REQUIRE_OK(serve_http_open(&o, &h));
    o.port = serve_http_port(h);
    serve_http *other;
    CHECK_FAIL(serve_http_open(&o, &other), ARES_EUSE, "choose another --port");
    serve_http_close(h, 0);
    REQUIRE_OK(serve_http_open(&o, &h)); /* the port is free again at once */
    serve_http_close(h, 0);
    o.host = "0.0.0.0";
    o.api_key = "k";
    REQUIRE_OK(serve_http_open(&o, &h));
    serve_http_close(h, 0);
}
