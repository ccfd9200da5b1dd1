/*
 * libFuzzer entry for heads and chunked bodies of HTTP. The first byte says in what pieces the rest
 * comes, which is a request as a socket would give it. Checks, besides that nothing crashes: where
 * bytes are cut changes nothing, a request that is taken has one length said once, and what is read
 * lies in what was sent.
 */
#include <strings.h>

#include "../../src/serve/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 4096 };

static void check_fault(const http_fault *f)
{
    ARES_ASSERT(f->type && f->code && f->message && f->status >= 400 && f->status <= 505);
}

static void check_inside(ares_view v, ares_view text)
{
    if (!v.data) return;
    ARES_ASSERT(v.data >= text.data && v.data + v.len <= text.data + text.len);
    for (size_t i = 0; i < v.len; i++) ARES_ASSERT(v.data[i] != '\n' && v.data[i] != '\r');
}

/* Lines that begin with this name, as a careless reader in front of the server finds them. */
static int count_headers(ares_view text, const char *name)
{
    int n = 0;
    size_t len = strlen(name);
    for (size_t i = 0; i + len < text.len; i++)
        n += text.data[i] == '\n' && strncasecmp(text.data + i + 1, name, len) == 0;
    return n;
}

/* Where the body ends; -1: it is refused, -2: it has no end. */
static int64_t decode(ares_view in, size_t step, ares_str *body, http_fault *fault)
{
    http_chunks d = { 0 };
    ares_view rest = in;
    while (rest.len && d.state != HTTP_CHUNK_END) {
        size_t n = step ? ARES_MIN(step, rest.len) : rest.len;
        ares_view piece = { rest.data, n };
        if (!http_chunks_read(&d, &piece, MOST, body, fault)) return -1;
        ARES_ASSERT(body->len <= MOST && (piece.len == 0 || d.state == HTTP_CHUNK_END));
        rest.data += n - piece.len, rest.len -= n - piece.len;
    }
    return d.state == HTTP_CHUNK_END ? (int64_t)(in.len - rest.len) : -2;
}

static void try_chunks(ares_view in, size_t step)
{
    ares_str whole = { 0 }, pieces = { 0 };
    http_fault a = { 0 }, b = { 0 };
    int64_t end = decode(in, 0, &whole, &a), again = decode(in, step, &pieces, &b);
    ARES_ASSERT(end == again && ares_view_eq(ares_str_view(&whole), ares_str_view(&pieces)));
    if (end == -1) {
        check_fault(&a);
        ARES_ASSERT(a.status == b.status && a.message == b.message);
    }
    ARES_ASSERT((int64_t)whole.len <= (int64_t)in.len);
    ares_str_fini(&whole);
    ares_str_fini(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 20000) return 0;
    size_t step = data[0] % 16 + 1u;
    ares_view in = { (const char *)data + 1, size - 1 };
    size_t end = http_head_end(in, 0);
    for (size_t seen = step; seen < in.len && (end == 0 || seen < end); seen += step) {
        ARES_ASSERT(http_head_end((ares_view){ in.data, seen }, 0) == 0);
        ARES_ASSERT(http_head_end(in, seen) == end);
    }
    try_chunks(in, step);
    size_t n = end ? end : in.len; /* a head without its end is read, too */
    ares_str text = { 0 };
    http_head head;
    http_fault fault = { 0 };
    ares_str_add(&text, in.data, n);
    if (!http_head_read(text.data, n, &head, &fault)) check_fault(&fault);
    else {
        ares_view sent = { in.data, n }, all = ares_str_view(&text);
        const ares_view inside[] = { head.method,     head.query,         head.host,
                                     head.origin,     head.authorization, head.api_key,
                                     head.session_id, head.accept,        head.content_type,
                                     head.expect,     head.content_length };
        for (int i = 0; i < ARES_COUNT(inside); i++) check_inside(inside[i], all);
        ARES_ASSERT(head.path.data >= all.data && head.path.len <= n && head.method.len > 0);
        ARES_ASSERT(head.path.len == 0 || !memchr(head.path.data, 0, head.path.len));
        int lengths = count_headers(sent, "content-length:"),
            codings = count_headers(sent, "transfer-encoding:");
        ARES_ASSERT(end && lengths + codings <= 1 && count_headers(sent, "host:") <= 1);
        ARES_ASSERT(!head.chunked || (head.length == 0 && codings == 1));
        ARES_ASSERT(head.length >= 0 && (head.length == 0 || lengths == 1));
        if (head.chunked) try_chunks((ares_view){ in.data + n, in.len - n }, step);
    }
    ares_str_fini(&text);
    return 0;
}
