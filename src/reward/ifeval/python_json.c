/*
 * Whether Python's json.loads reads a text. White space is blank, tab, newline and return; NaN,
 * Infinity and -Infinity are values; strings hold no control characters; nothing follows the value;
 * nesting goes up to 1000, Python's recursion limit.
 */
#include <string.h>

#include "check_tools.h"

enum { MAX_DEPTH = 1000 };

typedef struct reader {
    const char *p, *end;
} reader;

static void space(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

static bool word(reader *r, const char *z)
{
    size_t n = strlen(z);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, z, n) != 0) return false;
    r->p += n;
    return true;
}

static bool hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool string(reader *r) /* after its opening quote */
{
    while (r->p < r->end) {
        unsigned char c = (unsigned char)*r->p++;
        if (c == '"') return true;
        if (c < 0x20) return false;
        if (c != '\\') continue;
        if (r->p == r->end) return false;
        char escape = *r->p++;
        if (escape == 'u') {
            if (r->end - r->p < 4) return false;
            for (int i = 0; i < 4; i++)
                if (!hex(*r->p++)) return false;
        } else if (!memchr("\"\\/bfnrt", escape, 8)) {
            return false;
        }
    }
    return false;
}

static bool digits(reader *r)
{
    const char *from = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') r->p++;
    return r->p > from;
}

/*
 * Like Python's, it stops before a point or an exponent without digits, and what is left is then
 * text after the value.
 */
static bool number(reader *r)
{
    if (*r->p == '-') r->p++;
    if (r->p < r->end && *r->p == '0') r->p++;
    else if (!digits(r)) return false;
    reader back = *r;
    if (r->p < r->end && *r->p == '.' && (r->p++, !digits(r))) *r = back;
    back = *r;
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-')) r->p++;
        if (!digits(r)) *r = back;
    }
    return true;
}

static bool scalar(reader *r)
{
    switch (*r->p) {
    case '"': r->p++; return string(r);
    case 't': return word(r, "true");
    case 'f': return word(r, "false");
    case 'n': return word(r, "null");
    case 'N': return word(r, "NaN");
    case 'I': return word(r, "Infinity");
    default: return word(r, "-Infinity") || number(r);
    }
}

static bool key(reader *r)
{
    space(r);
    if (r->p == r->end || *r->p++ != '"' || !string(r)) return false;
    space(r);
    return r->p < r->end && *r->p++ == ':';
}

bool if_is_json(ares_view text)
{
    reader r = { text.data, text.data + text.len };
    char open[MAX_DEPTH];
    int depth = 0;
    for (;;) {
        space(&r);
        if (r.p == r.end) return false;
        if (*r.p == '{' || *r.p == '[') {
            if (depth == MAX_DEPTH) return false;
            open[depth++] = *r.p++;
            space(&r);
            if (r.p < r.end && *r.p == (open[depth - 1] == '{' ? '}' : ']')) {
                r.p++;
                depth--;
            } else if (open[depth - 1] == '{' && !key(&r)) {
                return false;
            } else {
                continue; /* its first value follows */
            }
        } else if (!scalar(&r)) {
            return false;
        }
        for (;;) { /* a value has ended, and containers may end with it */
            space(&r);
            if (depth == 0) return r.p == r.end;
            if (r.p == r.end) return false;
            char c = *r.p++;
            if (c == ',') break;
            if (c != (open[depth - 1] == '{' ? '}' : ']')) return false;
            depth--;
        }
        if (open[depth - 1] == '{' && !key(&r)) return false;
    }
}
