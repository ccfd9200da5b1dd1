/*
 * Private to the serve room: what HTTP/1.1 writes as text, read without a socket (http_parse.c).
 * Strict, as RFC 9112 asks of a server: what two readers could understand in two ways is refused.
 */
#ifndef ARES_SERVE_HTTP_PARSE_H
#define ARES_SERVE_HTTP_PARSE_H

#include "ares/core.h"

enum { HTTP_HEAD_BYTES = 16384 }; /* at most, of a request line and its headers */

/* Why a request is refused; the texts are literals. */
typedef struct http_fault {
    int status;
    const char *type, *code, *message;
} http_fault;

/* A head; the views point into the text it was read from, data NULL: the header is absent. */
typedef struct http_head {
    ares_view method, path, query; /* path: percent-decoded */
    int minor;                     /* of the version: HTTP/1.minor */
    bool closes;                   /* the connection ends after the answer */
    bool chunked;                  /* how the body comes, */
    int64_t length;                /* else its length: 0 without a body */
    bool no_length;                /* a method with a body, but nothing says how long it is */
    bool expects;                  /* Expect: 100-continue */
    ares_view host, origin, authorization, api_key, session_id, accept, content_type;
    ares_view content_length, transfer_encoding, content_encoding, expect;
} http_head;

/* Length of the head at the start of `text`, its empty line included; 0: it is not whole yet. */
size_t http_head_end(ares_view text, size_t seen); /* seen: bytes that were looked at before */
/* Reads a whole head; the path is decoded in place. false: *fault says why. */
bool http_head_read(char *text, size_t n, http_head *head, http_fault *fault);
/* KEY of "Bearer KEY"; data NULL: it is something else */
ares_view http_bearer(ares_view authorization);
/* Decodes %41 in place, and returns the new length; -1: a broken escape, or %00 */
int64_t http_percent_decode(char *text, size_t n);
/* Decimal digits alone. false: *fault, 400 for other text, 413 for 19 digits and more. */
bool http_length_read(ares_view text, int64_t *length, http_fault *fault);

/* Decoder of a chunked body, which comes in pieces of any size; {0} is its start. */
typedef struct http_chunks {
    enum {
        HTTP_CHUNK_SIZE,
        HTTP_CHUNK_EXTENSION,
        HTTP_CHUNK_SIZE_LF,
        HTTP_CHUNK_DATA,
        HTTP_CHUNK_DATA_CR,
        HTTP_CHUNK_DATA_LF,
        HTTP_CHUNK_TRAILER,
        HTTP_CHUNK_TRAILER_LF,
        HTTP_CHUNK_END
    } state;
    int64_t left;            /* bytes of the chunk that are still to come */
    int digits, text, empty; /* of a size; of an extension or all trailers; of a trailer's line */
} http_chunks;
/*
 * Takes bytes from the front of *in up to its end or the body's (state HTTP_CHUNK_END), and appends
 * data to `body`, at most `most` bytes in all. false: *fault.
 */
bool http_chunks_read(http_chunks *d, ares_view *in, int64_t most, ares_str *body,
                      http_fault *fault);
#endif
