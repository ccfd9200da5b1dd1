/* Heads, lengths and chunks of HTTP as text, without a socket. */
#include <stdio.h>

#include "http_parse.h"
#include "test.h"

TEST(a_head_ends_at_its_first_empty_line_however_it_comes)
{
    const char text[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n\r\n";
    for (size_t seen = 0; seen < 27; seen++) {
        CHECK_EQ(http_head_end((ares_view){ text, strlen(text) }, seen), 27);
        CHECK_EQ(http_head_end((ares_view){ text, seen }, 0), 0);
    }
    CHECK_EQ(http_head_end(ARES_VIEW("GET / HTTP/1.1\n\n"), 0), 0);
    CHECK_EQ(http_head_end((ares_view){ "", 0 }, 0), 0);
}

TEST(a_head_says_who_asks_for_what)
{
    char text[] = "POST /a%2fB%C3%A4?x=%41?y HTTP/1.1\r\nHost: h:1\r\nORIGIN: http://o\r\n"
                  "Authorization:\tBearer k \r\nX-Api-Key:\r\nX-Session-Id: s\r\nAccept: a\r\n"
                  "Accept: b\r\nContent-Type: c\r\nConnection: keep-alive , CLOSE\r\n"
                  "Content-Encoding: Identity\r\nContent-Length: 0012\r\n\r\n";
    http_head h;
    http_fault f;
    REQUIRE(http_head_read(text, strlen(text), &h, &f));
    CHECK_VIEW(h.method, "POST");
    CHECK_VIEW(h.path, "/a/B\xc3\xa4");
    CHECK_VIEW(h.query, "x=%41?y");
    CHECK_VIEW(h.host, "h:1");
    CHECK_VIEW(h.origin, "http://o");
    CHECK_VIEW(h.authorization, "Bearer k");
    CHECK_VIEW(http_bearer(h.authorization), "k");
    CHECK(h.api_key.data && h.api_key.len == 0); /* there, and empty */
    CHECK_VIEW(h.session_id, "s");
    CHECK_VIEW(h.accept, "a");
    CHECK_VIEW(h.content_type, "c");
    CHECK(h.closes && !h.chunked && !h.expects && !h.no_length);
    CHECK_EQ(h.length, 12);
    CHECK(!h.expect.data && !h.transfer_encoding.data);
}

TEST(a_fault_says_status_and_code)
{
    static const struct {
        const char *text;
        int status;
        const char *code;
    } cases[] = {
        { "GET / HTTP/1.1\r\n\r\n", 400, "malformed_request" },
        { "GET / HTTP/3.0\r\n\r\n", 505, "http_version" },
        { "GET / HTTP/1.1\r\nHost: x\r\nContent-Encoding: br\r\n\r\n", 415,
          "unsupported_encoding" },
        { "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1234567890123456789\r\n\r\n", 413,
          "body_too_large" },
        { "GET / HTTP/1.1\r\nHost: x\r\nExpect: x\r\n\r\n", 417, "expectation" },
        { " / HTTP/1.1\r\nHost: x\r\n\r\n", 400, "malformed_request" },
        { "GET http://x HTTP/1.1\r\nHost: x\r\n\r\n", 400, "malformed_request" },
        { "\r\n", 400, "malformed_request" },
        { "GET", 400, "malformed_request" },
        { "GET / HTTP/1.1\r\nHost: x\r\n", 400, "malformed_request" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char text[128];
        http_head h;
        http_fault f = { 0 };
        snprintf(text, sizeof text, "%s", cases[i].text);
        CHECK(!http_head_read(text, strlen(text), &h, &f));
        CHECK_EQ(f.status, cases[i].status);
        CHECK_STR(f.code, cases[i].code);
        CHECK_STR(f.type, "invalid_request_error");
    }
}

TEST(escapes_of_a_path_are_decoded_or_refused)
{
    static const struct {
        const char *text, *decoded; /* NULL: refused */
    } cases[] = {
        { "", "" },
        { "a+b", "a+b" },
        { "%41%6a%6A", "Ajj" },
        { "%25%32%35", "%25" },
        { "%", NULL },
        { "%4", NULL },
        { "a%4", NULL },
        { "%4g", NULL },
        { "%g4", NULL },
        { "%00", NULL },
        { "%0a", "\n" },
        { "%%41", NULL },
        { "%ff", "\xff" },
        { "%2E%2e", ".." },
        { "%a0b", "\xa0"
                  "b" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char text[32];
        snprintf(text, sizeof text, "%s", cases[i].text);
        int64_t n = http_percent_decode(text, strlen(text));
        CHECK_EQ(n < 0, cases[i].decoded == NULL);
        if (n >= 0) CHECK_VIEW(((ares_view){ text, (size_t)n }), cases[i].decoded);
    }
}

TEST(only_digits_are_a_length)
{
    int64_t n;
    http_fault f;
    CHECK(http_length_read(ARES_VIEW("0"), &n, &f) && n == 0);
    CHECK(http_length_read(ARES_VIEW("999999999999999999"), &n, &f) && n == 999999999999999999);
    CHECK(!http_length_read(ARES_VIEW("1000000000000000000"), &n, &f) && f.status == 413);
    const char *const wrong[] = { "", "-1", "+1", " 1", "1 ", "1,1", "0x1", "1e3", "\xd9\xa1" };
    for (int i = 0; i < ARES_COUNT(wrong); i++)
        CHECK(!http_length_read(ares_view_of(wrong[i]), &n, &f) && f.status == 400);
}

TEST(chunks_mean_the_same_wherever_they_are_cut)
{
    static const struct {
        const char *text, *body; /* NULL: refused */
        size_t rest;             /* bytes after the end */
    } cases[] = {
        { "0\r\n\r\n", "", 0 },
        { "3\r\nabc\r\n0\r\n\r\nGET", "abc", 3 },
        { "A;x=\"y\"\r\n0123456789\r\n000\r\nT: u\r\n\r\n", "0123456789", 0 },
        { "1 \r\na\r\n1\t;b\r\nb\r\n0\r\n\r\n", "ab", 0 },
        { "2\r\n\r\n\r\n0\r\n\r\n", "\r\n", 0 },
        { "b\r\n01234567890\r\n0\r\n\r\n", NULL, 0 }, /* 11 where 10 are allowed */
        { "9\r\n012345678\r\n2\r\n", NULL, 0 },
        { "ffffffffffffffff\r\n", NULL, 0 },
        { "7fffffffffffffff\r\n", NULL, 0 },
        { "00000000000000000\r\n\r\n", NULL, 0 },
        { "g\r\n", NULL, 0 },
        { "\r\n", NULL, 0 },
        { "1\ra", NULL, 0 },
        { "1\na\r\n", NULL, 0 },
        { "1\r\nab\r\n", NULL, 0 },
        { "1\r\na\r1", NULL, 0 },
        { "1;\n", NULL, 0 },
        { "0\r\n\n", NULL, 0 },
        { "0\r\n\rx", NULL, 0 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++)
        for (size_t step = 1; step < 20; step++) {
            http_chunks d = { 0 };
            http_fault f = { 0 };
            ares_str body = { 0 };
            ares_view all = ares_view_of(cases[i].text);
            size_t used = 0;
            bool ok = true;
            while (ok && used < all.len && d.state != HTTP_CHUNK_END) {
                ares_view piece = { all.data + used, ARES_MIN(step, all.len - used) };
                size_t before = piece.len;
                ok = http_chunks_read(&d, &piece, 10, &body, &f);
                used += before - piece.len;
            }
            CHECK_EQ(ok, cases[i].body != NULL);
            if (ok) {
                CHECK_EQ(d.state, HTTP_CHUNK_END);
                CHECK_VIEW(ares_str_view(&body), cases[i].body);
                CHECK_EQ(all.len - used, cases[i].rest);
            } else CHECK(f.status == 400 || f.status == 413);
            ares_str_fini(&body);
        }
}

TEST(extensions_and_trailers_have_an_end)
{
    for (int trailer = 0; trailer < 2; trailer++) {
        http_chunks d = { 0 };
        http_fault f = { 0 };
        ares_str body = { 0 };
        ares_view start = ares_view_of(trailer ? "0\r\n" : "1;");
        CHECK(http_chunks_read(&d, &start, 10, &body, &f));
        int n = 0;
        for (ares_view x = ARES_VIEW("x"); http_chunks_read(&d, &x, 10, &body, &f) && n < 10000;
             n++)
            x = ARES_VIEW("x");
        CHECK_EQ(n, trailer ? 4096 : 256);
        CHECK_EQ(f.status, 400);
        ares_str_fini(&body);
    }
}
