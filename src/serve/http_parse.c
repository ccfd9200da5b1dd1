/*
 * Heads, lengths and chunks of HTTP/1.1 (RFC 9112), without a socket.
 *
 * libwebsockets could read heads, but not as a server of names needs it: in a path it makes a space
 * of +, cuts at & and ;, folds // and /../, and it takes a second method for a header, a second
 * content-length for a part of the first. So it only carries bytes (http.c), and here is what they
 * mean.
 */
#include "http_parse.h"

#include <strings.h>

enum { EXTENSION_BYTES = 256, TRAILER_BYTES = 4096, METHOD_BYTES = 32 };

/* Says why, and returns false, for `return refuse(...)`. */
static bool refuse(http_fault *f, int status, const char *code, const char *message)
{
    *f = (http_fault){ status, "invalid_request_error", code, message };
    return false;
}

static bool malformed(http_fault *f, const char *message)
{
    return refuse(f, 400, "malformed_request", message);
}

/* A character of methods and of headers' names (RFC 9110, 5.6.2). */
static bool is_token_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || ares_is_digit(c) ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_word(ares_view v, const char *word)
{
    return v.len == strlen(word) && strncasecmp(v.data, word, v.len) == 0;
}

/* Spaces and tabs around it are cut. */
static ares_view trim(ares_view v)
{
    while (v.len && (*v.data == ' ' || *v.data == '\t')) v.data++, v.len--;
    while (v.len && (v.data[v.len - 1] == ' ' || v.data[v.len - 1] == '\t')) v.len--;
    return v;
}

/* What stands before the first c, which is taken away with it; false: there is none. */
static bool cut_at(ares_view *rest, char c, ares_view *front)
{
    const char *at = rest->len ? memchr(rest->data, c, rest->len) : NULL;
    if (!at) return false;
    *front = (ares_view){ rest->data, (size_t)(at - rest->data) };
    *rest = (ares_view){ at + 1, rest->len - front->len - 1 };
    return true;
}

size_t http_head_end(ares_view text, size_t seen)
{
    for (size_t i = seen < 3 ? 0 : seen - 3; i + 4 <= text.len; i++)
        if (memcmp(text.data + i, "\r\n\r\n", 4) == 0) return i + 4;
    return 0;
}

static int hex_digit(char c)
{
    return ares_is_digit(c)       ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

int64_t http_percent_decode(char *text, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '%') {
            text[out++] = text[i];
            continue;
        }
        int high = i + 2 < n ? hex_digit(text[i + 1]) : -1;
        int low = i + 2 < n ? hex_digit(text[i + 2]) : -1;
        if (high < 0 || low < 0 || high + low == 0) return -1;
        text[out++] = (char)(high * 16 + low);
        i += 2;
    }
    return (int64_t)out;
}

bool http_length_read(ares_view text, int64_t *length, http_fault *fault)
{
    *length = 0;
    for (size_t i = 0; i < text.len; i++)
        if (!ares_is_digit(text.data[i])) text.len = 0;
    if (text.len == 0)
        return malformed(fault, "content-length is no number; send it once, in decimal digits");
    if (text.len > 18)
        return refuse(fault, 413, "body_too_large", "content-length has more than 18 digits");
    for (size_t i = 0; i < text.len; i++) *length = *length * 10 + (text.data[i] - '0');
    return true;
}

ares_view http_bearer(ares_view authorization)
{
    ares_view scheme, rest = authorization;
    if (!cut_at(&rest, ' ', &scheme) || !is_word(scheme, "bearer")) return (ares_view){ 0 };
    return trim(rest);
}

/* "GET /path?query HTTP/1.1". The target may also be a whole URL, or * for OPTIONS. */
static bool read_request_line(ares_view line, http_head *head, http_fault *fault)
{
    ares_view target, version = line;
    if (!cut_at(&version, ' ', &head->method) || !cut_at(&version, ' ', &target))
        return malformed(fault, "this is no HTTP request line; speak HTTP/1.1, without TLS");
    if (head->method.len == 0 || head->method.len > METHOD_BYTES)
        return malformed(fault, "the request line has no method, or a very long one");
    for (size_t i = 0; i < head->method.len; i++)
        if (!is_token_char(head->method.data[i]))
            return malformed(fault, "this is no HTTP request line; speak HTTP/1.1, without TLS");
    if (version.len != 8 || memcmp(version.data, "HTTP/", 5) != 0 ||
        !ares_is_digit(version.data[5]) || version.data[6] != '.' ||
        !ares_is_digit(version.data[7]))
        return malformed(fault, "the request line does not end in HTTP/1.1");
    if (version.data[5] != '1')
        return refuse(fault, 505, "http_version", "only HTTP/1.1 and HTTP/1.0 are served");
    head->minor = ARES_MIN(version.data[7] - '0', 1);
    for (size_t i = 0; i < target.len; i++) /* bytes of UTF-8 pass */
        if ((unsigned char)target.data[i] <= ' ' || target.data[i] == 127)
            return malformed(fault, "the path holds a control character; write it as %XX");
    if (target.len > 7 && strncasecmp(target.data, "http://", 7) == 0) {
        const char *slash = memchr(target.data + 7, '/', target.len - 7);
        target.len = slash ? target.len - (size_t)(slash - target.data) : 0;
        target.data = slash;
    }
    if (!ares_view_is(head->method, "OPTIONS") || !ares_view_is(target, "*"))
        if (target.len == 0 || *target.data != '/')
            return malformed(fault, "the path does not begin with /");
    ares_view path;
    if (cut_at(&target, '?', &path)) head->query = target;
    else path = target;
    /* the text is the caller's, who gave it to http_head_read to be changed */
    int64_t n = http_percent_decode((char *)(uintptr_t)path.data, path.len);
    if (n < 0) return malformed(fault, "the path holds a broken %XX, or %00");
    head->path = (ares_view){ path.data, (size_t)n };
    return true;
}

/* A header that is known is kept; twice the same one is refused, where only one can count. */
static bool keep_header(ares_view name, ares_view value, http_head *head, http_fault *fault)
{
    const struct {
        const char *name;
        ares_view *value;
    } once[] = {
        { "host", &head->host },
        { "origin", &head->origin },
        { "authorization", &head->authorization },
        { "x-api-key", &head->api_key },
        { "x-session-id", &head->session_id },
        { "content-type", &head->content_type },
        { "content-length", &head->content_length },
        { "content-encoding", &head->content_encoding },
        { "transfer-encoding", &head->transfer_encoding },
        { "expect", &head->expect },
    };
    for (int i = 0; i < ARES_COUNT(once); i++) {
        if (!is_word(name, once[i].name)) continue;
        if (once[i].value->data)
            return malformed(fault, "a header that can count once only is there twice");
        *once[i].value = value;
        return true;
    }
    if (is_word(name, "accept") && !head->accept.data) head->accept = value;
    if (!is_word(name, "connection")) return true;
    for (ares_view word; value.len;) { /* a list: "keep-alive, upgrade" */
        if (!cut_at(&value, ',', &word)) word = value, value.len = 0;
        if (is_word(trim(word), "close")) head->closes = true;
    }
    return true;
}

/* How the body comes. Two ways to say it are two messages for two readers: refused. */
static bool read_framing(http_head *head, http_fault *fault)
{
    ares_view coding = head->content_encoding;
    if (coding.len && !is_word(coding, "identity"))
        return refuse(fault, 415, "unsupported_encoding",
                      "content-encoding is not served; send the body as it is");
    if (head->transfer_encoding.data) {
        if (head->content_length.data)
            return malformed(fault, "content-length and transfer-encoding exclude each other");
        if (!is_word(head->transfer_encoding, "chunked") || head->minor == 0)
            return refuse(fault, 415, "unsupported_encoding",
                          "of transfer-encodings only chunked is served, in HTTP/1.1");
        head->chunked = true;
    } else if (head->content_length.data) {
        if (!http_length_read(head->content_length, &head->length, fault)) return false;
    } else
        head->no_length = ares_view_is(head->method, "POST") || ares_view_is(head->method, "PUT") ||
                          ares_view_is(head->method, "PATCH");
    if (head->expect.len && head->minor > 0) {
        if (!is_word(head->expect, "100-continue"))
            return refuse(fault, 417, "expectation", "only Expect: 100-continue is known");
        head->expects = true;
    }
    return true;
}

bool http_head_read(char *text, size_t n, http_head *head, http_fault *fault)
{
    ares_view rest = { text, n }, line, name;
    bool ended = false;
    *head = (http_head){ 0 };
    for (bool first = true; cut_at(&rest, '\n', &line); first = false) {
        if (line.len == 0 || line.data[line.len - 1] != '\r')
            return malformed(fault, "a line of the head does not end in CR LF");
        line.len--;
        if (first) {
            if (!read_request_line(line, head, fault)) return false;
            continue;
        }
        ended = line.len == 0;
        if (ended) break;
        /* a line that begins with a space would go on with the one before: refused here, too */
        ares_view value = line;
        if (!cut_at(&value, ':', &name) || name.len == 0)
            return malformed(fault, "a line of the head is no header");
        for (size_t i = 0; i < name.len; i++)
            if (!is_token_char(name.data[i]))
                return malformed(fault, "the name of a header holds a space or another separator");
        value = trim(value);
        for (size_t i = 0; i < value.len; i++)
            if ((unsigned char)value.data[i] < ' ' ? value.data[i] != '\t' : value.data[i] == 127)
                return malformed(fault, "a header holds a control character");
        if (!keep_header(name, value, head, fault)) return false;
    }
    if (!ended) return malformed(fault, "the head has no end");
    if (head->minor == 0) head->closes = true;
    else if (!head->host.data) return malformed(fault, "HTTP/1.1 needs the header host");
    return read_framing(head, fault);
}

bool http_chunks_read(http_chunks *d, ares_view *in, int64_t most, ares_str *body,
                      http_fault *fault)
{
    while (in->len && d->state != HTTP_CHUNK_END) {
        if (d->state == HTTP_CHUNK_DATA) {
            size_t n = ARES_MIN(in->len, (size_t)d->left);
            ares_str_add(body, in->data, n);
            in->data += n, in->len -= n;
            if ((d->left -= (int64_t)n) == 0) d->state = HTTP_CHUNK_DATA_CR;
            continue;
        }
        char c = *in->data++;
        int digit = hex_digit(c);
        in->len--;
        switch (d->state) {
        case HTTP_CHUNK_SIZE:
            if (digit >= 0) {
                if (++d->digits > 16) return malformed(fault, "the size of a chunk is too long");
                d->left = d->left * 16 + digit;
            } else if (d->digits == 0)
                return malformed(fault, "the size of a chunk is no hexadecimal number");
            else if (c == '\r') d->state = HTTP_CHUNK_SIZE_LF;
            else if (c == ';' || c == ' ' || c == '\t') d->state = HTTP_CHUNK_EXTENSION;
            else return malformed(fault, "the size of a chunk is no hexadecimal number");
            break;
        case HTTP_CHUNK_EXTENSION: /* means nothing here */
            if (c == '\r') d->state = HTTP_CHUNK_SIZE_LF;
            else if (c == '\n' || ++d->text > EXTENSION_BYTES)
                return malformed(fault, "the extension of a chunk is too long, or ends in LF");
            break;
        case HTTP_CHUNK_SIZE_LF:
            if (c != '\n') return malformed(fault, "the size of a chunk does not end in CR LF");
            if (d->left > most - (int64_t)body->len)
                return refuse(fault, 413, "body_too_large", "the chunks are too large in all");
            d->state = d->left ? HTTP_CHUNK_DATA : HTTP_CHUNK_TRAILER;
            d->digits = d->text = 0;
            d->empty = 1;
            break;
        case HTTP_CHUNK_DATA_CR:
            if (c != '\r') return malformed(fault, "a chunk is longer than it says");
            d->state = HTTP_CHUNK_DATA_LF;
            break;
        case HTTP_CHUNK_DATA_LF:
            if (c != '\n') return malformed(fault, "a chunk is longer than it says");
            d->state = HTTP_CHUNK_SIZE;
            break;
        case HTTP_CHUNK_TRAILER: /* headers that nobody reads, up to an empty line */
            if (c == '\r') d->state = HTTP_CHUNK_TRAILER_LF;
            else if (c == '\n' || ++d->text > TRAILER_BYTES)
                return malformed(fault, "what follows the chunks is too long, or has a lone LF");
            else d->empty = 0;
            break;
        case HTTP_CHUNK_TRAILER_LF:
            if (c != '\n') return malformed(fault, "what follows the chunks has a lone CR");
            d->state = d->empty ? HTTP_CHUNK_END : HTTP_CHUNK_TRAILER;
            d->empty = 1;
            break;
        case HTTP_CHUNK_DATA: /* above */
        case HTTP_CHUNK_END: break;
        }
        /* as soon as it is known, before it overflows */
        if (d->state == HTTP_CHUNK_SIZE && d->left > most)
            return refuse(fault, 413, "body_too_large", "the chunks are too large in all");
    }
    return true;
}
