/*
 * JSON as text: compact, and as Python's json.dumps(ensure_ascii=False, separators=(",", ":"))
 * writes it.
 *
 * The writer keeps no state but the text. The last byte tells whether a comma is needed, because a
 * value can only end in a quote, a bracket, a digit or the last letter of true, false or null.
 */
#include "ares/core.h"
#include "utf8.h"

#include <math.h>
#include <string.h>

/* Adds a comma if the text ends in a value. */
static void separate(ares_str *out)
{
    if (!out->len) return;
    char c = out->data[out->len - 1];
    if (c == '"' || c == ']' || c == '}' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'))
        ares_str_add_char(out, ',');
}

static void add_word(ares_str *out, const char *word)
{
    separate(out);
    ares_str_add_z(out, word);
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
    add_word(out, "null");
}

void ares_json_write_bool(ares_str *out, bool x)
{
    add_word(out, x ? "true" : "false");
}

void ares_json_write_i64(ares_str *out, int64_t x)
{
    separate(out);
    ares_str_addf(out, "%lld", (long long)x);
}

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
        size_t len = 1;
        const char *hit = c ? strchr(names, c) : NULL;
        if (hit) {
            ares_str_add_char(out, '\\');
            ares_str_add_char(out, letters[hit - names]);
        } else if (c < 0x20) {
            ares_str_addf(out, "\\u%04x", c);
        } else if (core_utf8_step(p, end, &len)) {
            ares_str_add(out, p, len);
        } else {
            ares_str_add_z(out, "\xEF\xBF\xBD");
        }
        p += len;
    }
    ares_str_add_char(out, '"');
}

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

void ares_json_write_rounded(ares_str *out, double x, int digits)
{
    separate(out);
    if (isfinite(x)) ares_str_addf(out, "%.*g", digits, x);
    else ares_str_add_z(out, "null");
}

void ares_json_write(ares_str *out, const ares_json *value)
{
    switch (value->type) {
    case ARES_JSON_NULL: ares_json_write_null(out); break;
    case ARES_JSON_BOOL: ares_json_write_bool(out, value->boolean); break;
    case ARES_JSON_INT:
        if (value->big) ares_json_splice(out, value->text);
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

static void new_line(ares_str *out, int depth)
{
    ares_str_add_char(out, '\n');
    for (int i = 0; i < depth; i++) ares_str_add_z(out, "  ");
}

void ares_json_indent(ares_str *out, ares_view json, int levels)
{
    int depth = 0;
    bool inside = false; /* a string */
    for (size_t i = 0; i < json.len; i++) {
        char c = json.data[i], before = i ? json.data[i - 1] : 0;
        if (!inside && (c == '}' || c == ']') && --depth < levels && before != '{' && before != '[')
            new_line(out, depth);
        ares_str_add_char(out, c);
        if (c == '"') inside = !inside;
        else if (c == '\\' && inside) ares_str_add_char(out, json.data[++i]);
        if (inside) continue;
        if (c == '{' || c == '[') {
            char next = i + 1 < json.len ? json.data[i + 1] : 0;
            if (++depth <= levels && next != '}' && next != ']') new_line(out, depth);
        } else if (c == ',' && depth <= levels) new_line(out, depth);
        else if (c == ',' || c == ':') ares_str_add_char(out, ' ');
    }
}
