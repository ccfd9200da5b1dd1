/*
 * JSON as text: compact, and as Python's json.dumps(ensure_ascii=False, separators=(",", ":"))
 * writes it.
 */
#include "ares/core.h"
#include "utf8.h"

#include <math.h>
#include <string.h>

void ares_json_write_string(ares_str *out, ares_view s)
{
    static const char names[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    const char *p = s.data, *end = p + s.len;
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
    if (isfinite(x)) ares_str_add_double(out, x);
    else ares_str_add_z(out, "null");
}

void ares_json_write_float(ares_str *out, float x)
{
    if (isfinite(x)) ares_str_add_float(out, x);
    else ares_str_add_z(out, "null");
}

void ares_json_write(ares_str *out, const ares_json *value)
{
    switch (value->type) {
    case ARES_JSON_NULL: ares_str_add_z(out, "null"); break;
    case ARES_JSON_BOOL: ares_str_add_z(out, value->boolean ? "true" : "false"); break;
    case ARES_JSON_INT:
        if (value->big) ares_str_add_view(out, value->text);
        else ares_str_addf(out, "%lld", (long long)value->integer);
        break;
    case ARES_JSON_FLOAT: ares_json_write_double(out, value->number); break;
    case ARES_JSON_STRING: ares_json_write_string(out, value->text); break;
    case ARES_JSON_ARRAY:
        ares_str_add_char(out, '[');
        for (int64_t i = 0; i < value->count; i++) {
            if (i) ares_str_add_char(out, ',');
            ares_json_write(out, &value->items[i]);
        }
        ares_str_add_char(out, ']');
        break;
    case ARES_JSON_OBJECT:
        ares_str_add_char(out, '{');
        for (int64_t i = 0; i < value->count; i++) {
            if (i) ares_str_add_char(out, ',');
            ares_json_write_string(out, value->members[i].key);
            ares_str_add_char(out, ':');
            ares_json_write(out, value->members[i].value);
        }
        ares_str_add_char(out, '}');
        break;
    }
}
