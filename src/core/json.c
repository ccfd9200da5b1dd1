/* JSON: the reader, then the writer. */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/core.h"

/*
 * The strict JSON reader. The text is copied into the arena once and strings are unescaped in place
 * (an escape is never shorter than the bytes it stands for), so a document consists of that copy
 * and of the arrays of values.
 */

/* brackets within brackets: reading recurses, and the C stack is finite */
enum { MAX_DEPTH = 512 };

/*
 * Values and keys of the open arrays and objects lie on one stack. When an array or object closes,
 * its part of the stack is copied to the arena.
 */
typedef struct pending {
    ares_view key;
    ares_json value;
} pending;

typedef struct reader {
    ares_arena *arena;
    ares_view text; /* the caller's text, unchanged, for line and column of errors */
    const char *name;
    int64_t first_line;     /* number of the line that the text begins with */
    char *start, *p, *end;  /* the copy in the arena; p: the next byte */
    pending *stack;         /* [cap], of which `top` are in use */
    size_t depth, top, cap; /* depth: brackets that are open */
} reader;

static int read_value(reader *r, ares_json *out);

/* The failure at a byte: "train.jsonl:3:17: not JSON: ..". Columns count characters, from 1. */
static int bad_at(const reader *r, const char *at, const char *what)
{
    size_t offset = (size_t)(at - r->start), column = 1;
    int64_t line = r->first_line;
    for (size_t i = 0; i < offset; i++) {
        if (r->text.data[i] == '\n') line++, column = 1;
        else if (((unsigned char)r->text.data[i] & 0xC0) != 0x80) column++;
    }
    return ares_fail(ARES_EFORMAT, "%s:%lld:%zu: not JSON: %s", r->name, (long long)line, column,
                     what);
}

static int bad(const reader *r, const char *what)
{
    return bad_at(r, r->p, what);
}

/* The byte at p may not stand there. */
static int unexpected(const reader *r, const char *wanted)
{
    char what[96];
    unsigned char c = r->p < r->end ? (unsigned char)*r->p : 0;
    if (r->p == r->end) snprintf(what, sizeof what, "the text ends where %s should be", wanted);
    else if (c > 0x20 && c < 0x7F)
        snprintf(what, sizeof what, "'%c' where %s should be", c, wanted);
    else snprintf(what, sizeof what, "byte 0x%02x where %s should be", c, wanted);
    return bad(r, what);
}

/* The four blanks of RFC 8259; isspace would also take a form feed and others. */
static void skip_space(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r'))
        r->p++;
}

/* The four hexadecimal digits of an escape. */
static bool read_hex4(const char *p, const char *end, uint32_t *out)
{
    if (end - p < 4) return false;
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

/*
 * At a backslash: writes the bytes that the escape stands for and moves past it. `\u00e9` becomes
 * the two bytes c3 a9, the pair `\ud83d\ude00` the four bytes f0 9f 98 80; half of a pair alone
 * becomes U+FFFD, because UTF-8 has no form for it.
 */
static int read_escape(reader *r, char **to)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    char *escape = r->p;
    if (r->end - r->p < 2) return bad(r, "the text ends inside a string");
    const char *hit = r->p[1] ? strchr(names, r->p[1]) : NULL;
    r->p += 2;
    if (hit) {
        *(*to)++ = bytes[hit - names];
        return ARES_OK;
    }
    uint32_t c, low;
    if (escape[1] != 'u') return bad_at(r, escape, "unknown escape in a string");
    if (!read_hex4(r->p, r->end, &c)) return bad_at(r, escape, "\\u needs four hexadecimal digits");
    r->p += 4;
    /* a high surrogate and the low one after it are one character above U+FFFF */
    if (c >= 0xD800 && c < 0xDC00 && r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u' &&
        read_hex4(r->p + 2, r->end, &low) && low >= 0xDC00 && low < 0xE000) {
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        r->p += 6;
    }
    if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;
    char *byte = *to; /* c as UTF-8: one to four bytes */
    if (c < 0x80) *byte++ = (char)c;
    else {
        if (c < 0x800) *byte++ = (char)(0xC0 | c >> 6);
        else if (c < 0x10000) *byte++ = (char)(0xE0 | c >> 12);
        else {
            *byte++ = (char)(0xF0 | c >> 18);
            *byte++ = (char)(0x80 | (c >> 12 & 0x3F));
        }
        if (c >= 0x800) *byte++ = (char)(0x80 | (c >> 6 & 0x3F));
        *byte++ = (char)(0x80 | (c & 0x3F));
    }
    *to = byte;
    return ARES_OK;
}

/*
 * p is at the opening quote. The bytes end with a NUL, which overwrites the closing quote or a byte
 * before it.
 */
static int read_string(reader *r, ares_view *out)
{
    char *from = ++r->p, *to = from;
    for (;;) {
        if (r->p == r->end) return bad_at(r, from - 1, "the string does not end");
        unsigned char c = (unsigned char)*r->p;
        if (c == '"') break;
        if (c == '\\') {
            ARES_TRY(read_escape(r, &to));
        } else if (c < 0x20) {
            return bad(r, "a control character in a string must be escaped");
        } else if (c < 0x80) {
            *to++ = *r->p++;
        } else { /* moved towards the front where escapes before it have become shorter */
            uint32_t code;
            int len = ares_utf8_next(r->p, r->end, &code);
            if (len < 0) return bad(r, "a string holds bytes that are not UTF-8");
            if (to != r->p) memmove(to, r->p, (size_t)len);
            to += len;
            r->p += len;
        }
    }
    r->p++;
    *to = 0;
    *out = (ares_view){ from, (size_t)(to - from) };
    return ARES_OK;
}

/* Moves past digits; at least one must stand there. */
static int need_digits(reader *r)
{
    char *before = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') r->p++;
    return r->p > before ? ARES_OK : unexpected(r, "a digit");
}

/*
 * RFC 8259: no leading zero, no plus sign, digits on both sides of a point. 12 is an integer, 12.0
 * and 1e5 are floats, -0 reads as -0.0 too; an integer beyond 64 bits is `big` and keeps its text.
 */
static int read_number(reader *r, ares_json *out)
{
    char *from = r->p;
    out->type = ARES_JSON_INT;
    if (*r->p == '-') r->p++;
    if (r->p < r->end && *r->p == '0') r->p++;
    else ARES_TRY(need_digits(r));
    if (r->p < r->end && *r->p >= '0' && *r->p <= '9')
        return bad_at(r, from, "a number with a leading zero");
    if (r->p < r->end && *r->p == '.') {
        out->type = ARES_JSON_FLOAT;
        r->p++;
        ARES_TRY(need_digits(r));
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        out->type = ARES_JSON_FLOAT;
        r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-')) r->p++;
        ARES_TRY(need_digits(r));
    }
    out->text = (ares_view){ from, (size_t)(r->p - from) };
    if (out->type == ARES_JSON_INT && ares_parse_i64(out->text, &out->integer)) {
        out->number = out->integer == 0 && *from == '-' ? -0.0 : (double)out->integer;
        return ARES_OK;
    }
    bool finite = ares_parse_double(out->text, &out->number);
    if (out->type == ARES_JSON_INT) { /* clamped, for readers that do not look at `big` */
        out->big = true;
        out->integer = *from == '-' ? INT64_MIN : INT64_MAX;
        if (!finite) /* the text has every digit */
            out->number = *from == '-' ? -INFINITY : INFINITY;
        return ARES_OK;
    }
    if (!finite) return bad_at(r, from, "the number is too large for a double");
    /* without its fraction, for ares_json_get_i64; a cast of a larger number is undefined */
    if (fabs(out->number) < 0x1p63) out->integer = (int64_t)out->number;
    return ARES_OK;
}

/* A new entry at the top of the stack; valid until the next one. */
static pending *push(reader *r)
{
    if (r->top == r->cap) {
        r->cap = r->cap ? r->cap * 2 : 8;
        r->stack = ares_realloc(r->stack, r->cap * sizeof *r->stack);
    }
    r->stack[r->top] = (pending){ 0 };
    return &r->stack[r->top++];
}

/* After a value: *more tells whether another one follows or the container closed. */
static int read_comma(reader *r, char close, bool *more)
{
    skip_space(r);
    *more = r->p < r->end && *r->p == ',';
    if (!*more && !(r->p < r->end && *r->p == close))
        return unexpected(r, close == ']' ? "',' or ']'" : "',' or '}'");
    r->p++;
    return ARES_OK;
}

/* p is at the bracket. Values wait on the stack until it closes. */
static int read_array(reader *r, ares_json *out)
{
    size_t base = r->top;
    out->type = ARES_JSON_ARRAY;
    r->p++;
    skip_space(r);
    bool more = !(r->p < r->end && *r->p == ']');
    if (!more) r->p++;
    while (more) {
        ares_json value = { 0 };
        ARES_TRY(read_value(r, &value));
        push(r)->value = value;
        ARES_TRY(read_comma(r, ']', &more));
    }
    size_t n = r->top - base;
    ares_json *items = ares_arena_alloc(r->arena, n * sizeof *items);
    for (size_t i = 0; i < n; i++) items[i] = r->stack[base + i].value;
    r->top = base;
    out->count = (int64_t)n;
    out->items = items;
    return ARES_OK;
}

/* Keys and values wait on the stack until the bracket closes. */
static int read_object(reader *r, ares_json *out)
{
    size_t base = r->top;
    out->type = ARES_JSON_OBJECT;
    r->p++;
    skip_space(r);
    bool more = !(r->p < r->end && *r->p == '}');
    if (!more) r->p++;
    while (more) {
        ares_view key;
        ares_json value = { 0 };
        skip_space(r);
        if (!(r->p < r->end && *r->p == '"')) return unexpected(r, "a key in double quotes");
        ARES_TRY(read_string(r, &key));
        skip_space(r);
        if (!(r->p < r->end && *r->p == ':')) return unexpected(r, "':'");
        r->p++;
        ARES_TRY(read_value(r, &value));
        *push(r) = (pending){ key, value };
        ARES_TRY(read_comma(r, '}', &more));
    }
    size_t n = r->top - base;
    /* slots of merge_duplicates have 32 bits */
    if (n >= UINT32_MAX / 2) return bad(r, "the object has too many keys");
    if (n > 1) {
        /* a repeated key keeps its first place and its last value, as in Python */
        pending *member = r->stack + base;
        size_t slots = 4, kept = 0;
        while (slots < n * 2) slots *= 2; /* at most half full, so that probes stay short */
        /* slots hold a place in member + 1; 0 is free. A small table lies on the stack */
        uint32_t few[64] = { 0 }, *table = slots <= (size_t)ARES_COUNT(few)
                                               ? few
                                               : ares_calloc(slots, sizeof *table);
        for (size_t i = 0; i < n; i++) {
            size_t at = core_hash(member[i].key.data, member[i].key.len) & (slots - 1);
            while (table[at] && !ares_view_eq(member[table[at] - 1].key, member[i].key))
                at = (at + 1) & (slots - 1);
            if (table[at]) {
                member[table[at] - 1].value = member[i].value;
            } else {
                member[kept++] = member[i];
                table[at] = (uint32_t)kept;
            }
        }
        if (table != few) ares_free(table);
        n = kept;
    }
    ares_json *values = ares_arena_alloc(r->arena, n * sizeof *values);
    ares_json_member *members = ares_arena_alloc(r->arena, n * sizeof *members);
    for (size_t i = 0; i < n; i++) {
        values[i] = r->stack[base + i].value;
        members[i] = (ares_json_member){ r->stack[base + i].key, &values[i] };
    }
    r->top = base;
    out->count = (int64_t)n;
    out->members = members;
    return ARES_OK;
}

/* Moves past the word if it stands at p. */
static bool read_word(reader *r, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(r->end - r->p) < len || memcmp(r->p, word, len) != 0) return false;
    r->p += len;
    return true;
}

static int read_value(reader *r, ares_json *out)
{
    skip_space(r);
    char c = r->p < r->end ? *r->p : 0;
    if (c == '"') {
        out->type = ARES_JSON_STRING;
        return read_string(r, &out->text);
    }
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(r, out);
    if (c == '{' || c == '[') {
        if (r->depth == MAX_DEPTH) return bad(r, "nested deeper than 512 levels");
        r->depth++;
        int rc = c == '{' ? read_object(r, out) : read_array(r, out);
        r->depth--;
        return rc;
    }
    if (read_word(r, "true")) {
        out->type = ARES_JSON_BOOL;
        out->boolean = true;
    } else if (read_word(r, "false")) {
        out->type = ARES_JSON_BOOL;
    } else if (read_word(r, "null")) {
        out->type = ARES_JSON_NULL;
    } else {
        return unexpected(r, "a value");
    }
    return ARES_OK;
}

int ares_json_parse_line(ares_arena *arena, ares_view text, const char *name, int64_t line,
                         const ares_json **out)
{
    char *copy = ares_arena_copy(arena, text.data, text.len);
    reader r = { .arena = arena,
                 .text = text,
                 .name = name ? name : "json",
                 .first_line = line,
                 .start = copy,
                 .p = copy,
                 .end = copy + text.len };
    ares_json *value = ares_arena_calloc(arena, 1, sizeof *value);
    int rc = ares_view_starts(text, ARES_VIEW("\xEF\xBB\xBF"))
                 ? bad(&r, "it starts with a byte order mark; save it as UTF-8 without one")
                 : read_value(&r, value);
    if (rc == ARES_OK) {
        skip_space(&r);
        if (r.p < r.end) rc = bad(&r, "something follows the value");
    }
    ares_free(r.stack);
    *out = rc == ARES_OK ? value : NULL;
    return rc;
}

/* A text of its own begins with line 1. */
int ares_json_parse(ares_arena *arena, ares_view text, const char *name, const ares_json **out)
{
    return ares_json_parse_line(arena, text, name, 1, out);
}

/* A linear search: objects of rows and configurations have few members. */
const ares_json *ares_json_find(const ares_json *object, ares_view key)
{
    if (!object || object->type != ARES_JSON_OBJECT) return NULL;
    for (int64_t i = 0; i < object->count; i++)
        if (ares_view_eq(object->members[i].key, key)) return object->members[i].value;
    return NULL;
}

const ares_json *ares_json_get(const ares_json *object, const char *key)
{
    return ares_json_find(object, ares_view_of(key));
}

/* The member, or NULL when it is absent or null. */
static const ares_json *present(const ares_json *o, const char *key)
{
    const ares_json *v = ares_json_get(o, key);
    return v && v->type != ARES_JSON_NULL ? v : NULL;
}

/* "key 'n' is a string, not a number" */
static int wrong_type(const ares_json *v, const char *key, const char *wanted)
{
    static const char *const names[] = { "null",     "a boolean", "an integer", "a number",
                                         "a string", "an array",  "an object" };
    return ares_fail(ARES_EFORMAT, "key '%s' is %s, not %s", key, names[v->type], wanted);
}

int ares_json_get_i64(const ares_json *o, const char *key, int64_t absent, int64_t *out)
{
    const ares_json *v = present(o, key);
    *out = v ? v->integer : absent;
    /* 3.0 is the integer 3: programs that keep all numbers as floats write it so */
    if (!v || (v->type == ARES_JSON_INT && !v->big)) return ARES_OK;
    if (v->type == ARES_JSON_FLOAT && fabs(v->number) < 0x1p63 && v->number == trunc(v->number))
        return ARES_OK;
    return wrong_type(v, key, "an integer of 64 bits");
}

int ares_json_get_double(const ares_json *o, const char *key, double absent, double *out)
{
    const ares_json *v = present(o, key);
    *out = v ? v->number : absent;
    if (!v || v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT) return ARES_OK;
    return wrong_type(v, key, "a number");
}

int ares_json_get_bool(const ares_json *o, const char *key, bool absent, bool *out)
{
    const ares_json *v = present(o, key);
    *out = v ? v->boolean : absent;
    return !v || v->type == ARES_JSON_BOOL ? ARES_OK : wrong_type(v, key, "true or false");
}

int ares_json_get_string(const ares_json *o, const char *key, const char *absent, ares_view *out)
{
    const ares_json *v = present(o, key);
    *out = v ? v->text : ares_view_of(absent);
    return !v || v->type == ARES_JSON_STRING ? ARES_OK : wrong_type(v, key, "a string");
}

/*
 * JSON as text: compact, and as Python's json.dumps(ensure_ascii=False, separators=(",", ":"))
 * writes it.
 *
 * The writer keeps no state but the text. The last byte tells whether a comma is needed, because a
 * value can only end in a quote, a bracket, a digit or the last letter of true, false or null.
 */

/* Adds a comma if the text ends in a value. */
static void separate(ares_str *out)
{
    if (!out->len) return;
    char c = out->data[out->len - 1];
    if (c == '"' || c == ']' || c == '}' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'))
        ares_str_add_char(out, ',');
}

void ares_json_begin(ares_str *out, char bracket)
{
    separate(out);
    ares_str_add_char(out, bracket);
}

void ares_json_end(ares_str *out, char bracket)
{
    ares_str_add_char(out, bracket);
}

ares_str *ares_json_key_view(ares_str *out, ares_view key)
{
    ares_json_write_string(out, key);
    ares_str_add_char(out, ':');
    return out;
}

ares_str *ares_json_key(ares_str *out, const char *key)
{
    return ares_json_key_view(out, ares_view_of(key));
}

void ares_json_splice(ares_str *out, ares_view json)
{
    if (json.len) separate(out);
    ares_str_add_view(out, json);
}

void ares_json_write_null(ares_str *out)
{
    separate(out);
    ares_str_add_z(out, "null");
}

void ares_json_write_bool(ares_str *out, bool x)
{
    separate(out);
    ares_str_add_z(out, x ? "true" : "false");
}

void ares_json_write_i64(ares_str *out, int64_t x)
{
    char digits[24];
    int at = sizeof digits;
    uint64_t left = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    do digits[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (x < 0) digits[--at] = '-';
    separate(out);
    ares_str_add(out, digits + at, sizeof digits - (size_t)at);
}

/* Runs of bytes that need no escape are added at once. */
void ares_json_write_string(ares_str *out, ares_view s)
{
    static const char names[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    const char *p = s.data, *end = p + s.len;
    separate(out);
    ares_str_add_char(out, '"');
    while (p < end) {
        const char *plain = p;
        while (p < end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80 && *p != '"' &&
               *p != '\\')
            p++;
        ares_str_add(out, plain, (size_t)(p - plain));
        if (p == end) break;
        unsigned char c = (unsigned char)*p;
        uint32_t code;
        int len = ares_utf8_next(p, end, &code);
        const char *hit = c ? strchr(names, c) : NULL;
        if (hit) {
            ares_str_add_char(out, '\\');
            ares_str_add_char(out, letters[hit - names]);
        } else if (c < 0x20) {
            ares_str_addf(out, "\\u%04x", c); /* a control character without a letter */
        } else if (len > 0) {
            ares_str_add(out, p, (size_t)len);
        } else {
            ares_str_add_z(out, "\xEF\xBF\xBD"); /* U+FFFD in place of bytes that are not UTF-8 */
        }
        p += abs(len); /* negative: how many bytes are not UTF-8 */
    }
    ares_str_add_char(out, '"');
}

/* NaN and the infinities become null, because JSON has no form for them. */
void ares_json_write_double(ares_str *out, double x)
{
    separate(out);
    if (isfinite(x)) ares_str_add_double(out, x);
    else ares_str_add_z(out, "null");
}

void ares_json_write_float(ares_str *out, float x)
{
    separate(out);
    if (isfinite(x)) ares_str_add_float(out, x);
    else ares_str_add_z(out, "null");
}

/*
 * printf's %.<digits>g by one product, which files of many numbers are written with. False where
 * that might differ in a digit, or the number is none of the usual ones: printf then writes it.
 */
static bool add_rounded(ares_str *out, double x, int digits)
{
    static const double tens[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 }; /* all exact */
    enum { MOST = 6 };
    double size = fabs(x);
    char text[MOST + 16];
    int n = 0, exponent = 0;
    if (!(size >= 1e-12 && size < 1e6) || digits < 1 || digits > MOST) return false;
    if (size >= 1)
        while (size >= tens[exponent + 1]) exponent++;
    else
        while (size * tens[-exponent] < 1) exponent--;
    int shift = digits - 1 - exponent; /* so that all digits stand before the point */
    double scaled = shift >= 0 ? size * tens[shift] : size / tens[-shift], whole = floor(scaled),
           rest = scaled - whole;
    /* the product is off by less than 1e-9: near a half the exact value decides */
    if (fabs(rest - 0.5) < 1e-6) return false;
    int64_t number = (int64_t)whole + (rest > 0.5);
    if (number >= (int64_t)tens[digits]) { /* 9.9996 is 10 */
        number /= 10;
        exponent++;
    }
    int last = digits; /* zeros at the end are not written */
    while (last > 1 && number % 10 == 0) number /= 10, last--;
    char figures[MOST];
    for (int i = last; i-- > 0; number /= 10) figures[i] = (char)('0' + number % 10);
    if (exponent >= digits) return false;
    if (x < 0) text[n++] = '-';
    if (exponent < -4) { /* 1.25e-07 */
        text[n++] = figures[0];
        if (last > 1) text[n++] = '.';
        for (int i = 1; i < last; i++) text[n++] = figures[i];
        text[n++] = 'e';
        text[n++] = '-';
        text[n++] = (char)('0' + -exponent / 10);
        text[n++] = (char)('0' + -exponent % 10);
    } else {
        if (exponent < 0) text[n++] = '0', text[n++] = '.';
        for (int i = -1; i > exponent; i--) text[n++] = '0';
        for (int i = 0; i < last; i++) {
            if (i == exponent + 1 && i > 0) text[n++] = '.';
            text[n++] = figures[i];
        }
        for (int i = last; i <= exponent; i++) text[n++] = '0';
    }
    ares_str_add(out, text, (size_t)n);
    return true;
}

void ares_json_write_rounded(ares_str *out, double x, int digits)
{
    separate(out);
    if (!isfinite(x)) ares_str_add_z(out, "null");
    else if (!add_rounded(out, x, digits)) ares_str_addf(out, "%.*g", digits, x);
}

void ares_json_write(ares_str *out, const ares_json *value)
{
    switch (value->type) {
    case ARES_JSON_NULL: ares_json_write_null(out); break;
    case ARES_JSON_BOOL: ares_json_write_bool(out, value->boolean); break;
    case ARES_JSON_INT:
        if (value->big) ares_json_splice(out, value->text); /* all its digits */
        else ares_json_write_i64(out, value->integer);
        break;
    case ARES_JSON_FLOAT: ares_json_write_double(out, value->number); break;
    case ARES_JSON_STRING: ares_json_write_string(out, value->text); break;
    case ARES_JSON_ARRAY:
        ares_json_begin(out, '[');
        for (int64_t i = 0; i < value->count; i++) ares_json_write(out, &value->items[i]);
        ares_json_end(out, ']');
        break;
    case ARES_JSON_OBJECT:
        ares_json_begin(out, '{');
        for (int64_t i = 0; i < value->count; i++) {
            const ares_json_member *m = &value->members[i];
            ares_json_write(ares_json_key_view(out, m->key), m->value);
        }
        ares_json_end(out, '}');
        break;
    }
}

/* A line end and two blanks per level. */
static void new_line(ares_str *out, int depth)
{
    ares_str_add_char(out, '\n');
    for (int i = 0; i < depth; i++) ares_str_add_z(out, "  ");
}

/*
 * Works on the text: every bracket, comma and colon outside a string is one of the document.
 * levels 1 makes of {"a":[1,2]}
 *
 *     {
 *       "a": [1, 2]
 *     }
 */
void ares_json_indent(ares_str *out, ares_view json, int levels)
{
    int depth = 0;
    bool inside = false; /* a string */
    for (size_t i = 0; i < json.len; i++) {
        char c = json.data[i], before = i ? json.data[i - 1] : 0;
        /* empty brackets stay together: {} and [] */
        if (!inside && (c == '}' || c == ']') && --depth < levels && before != '{' && before != '[')
            new_line(out, depth);
        ares_str_add_char(out, c);
        if (c == '"') inside = !inside;
        else if (c == '\\' && inside) ares_str_add_char(out, json.data[++i]); /* may be a quote */
        if (inside) continue;
        if (c == '{' || c == '[') {
            char next = i + 1 < json.len ? json.data[i + 1] : 0;
            if (++depth <= levels && next != '}' && next != ']') new_line(out, depth);
        } else if (c == ',' && depth <= levels) new_line(out, depth);
        else if (c == ',' || c == ':') ares_str_add_char(out, ' ');
    }
}
