/*
 * Rows of Arrow arrays as JSON. A struct keeps only the fields that are not null, because Parquet
 * gives every row all of them: a row is then what it was as JSON lines. A map is a list of
 * {key, value}; dates and times are ISO 8601 text; integers are written digit by digit; bytes that
 * are no text are base64, and so are those of {bytes, path}, the hub's form of pictures.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow.h"

enum { MAX_DEPTH = 64 };

typedef struct walk {
    ares_str *out;
    const char *place, *column;
    bool not_finite, medium; /* medium: the value is the bytes of a picture or a sound */
    int depth;
    ares_map *left_out;
} walk;

static bool bit(const void *bits, int64_t i)
{
    return ((const uint8_t *)bits)[i >> 3] >> (i & 7) & 1;
}

static int refused(const walk *w, const char *why, const char *format)
{
    return ares_fail(ARES_EUNSUPPORTED,
                     "io: %s: column '%s': %s (Arrow's type '%s'); rows are read without it: write "
                     "it as text where it is needed",
                     w->place, w->column, why, format);
}

/* Element i of an integer array, by the format's letter. */
static bool integer(char format, const void *data, int64_t i, int64_t *x)
{
    switch (format) {
    case 'c': *x = ((const int8_t *)data)[i]; return true;
    case 'C': *x = ((const uint8_t *)data)[i]; return true;
    case 's': *x = ((const int16_t *)data)[i]; return true;
    case 'S': *x = ((const uint16_t *)data)[i]; return true;
    case 'i': *x = ((const int32_t *)data)[i]; return true;
    case 'I': *x = ((const uint32_t *)data)[i]; return true;
    case 'l': *x = ((const int64_t *)data)[i]; return true;
    default: return false;
    }
}

static double half(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double x = e == 31 ? (m ? NAN : INFINITY) : ldexp(e ? m + 1024 : m, (e ? e : 1) - 25);
    return h >> 15 ? -x : x;
}

static bool real(char format, const void *data, int64_t i, double *x)
{
    switch (format) {
    case 'e': *x = half(((const uint16_t *)data)[i]); return true;
    case 'f': *x = (double)((const float *)data)[i]; return true;
    case 'g': *x = ((const double *)data)[i]; return true;
    default: return false;
    }
}

/* Bounds of element i of a string or list, whose offsets have 4 bytes, or 8 for capital letters. */
static void bounds_of(bool large, const void *offsets, int64_t i, int64_t *from, int64_t *to)
{
    const int32_t *small = offsets;
    const int64_t *big = offsets;
    *from = large ? big[i] : small[i];
    *to = large ? big[i + 1] : small[i + 1];
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* The proleptic Gregorian calendar, from days since 1970 (Hinnant, days_from_civil). */
static void add_date(ares_str *s, int64_t days)
{
    days += 719468; /* since 0000-03-01 */
    int64_t era = floor_div(days, 146097), doe = days - era * 146097,
            yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365,
            doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153,
            day = doy - (153 * mp + 2) / 5 + 1, month = mp < 10 ? mp + 3 : mp - 9,
            year = yoe + era * 400 + (month <= 2);
    ares_str_addf(s, "%04" PRId64 "-%02" PRId64 "-%02" PRId64, year, month, day);
}

/* format: "tdD" or "ts", unit, ":", zone; a time with a zone counts in UTC. */
static int put_time(walk *w, const char *f, const void *data, int64_t at)
{
    static const char units[] = "smun";
    ares_str s = { 0 };
    const char *unit = f[1] == 's' && f[2] ? strchr(units, f[2]) : NULL;
    if (!strcmp(f, "tdD")) add_date(&s, ((const int32_t *)data)[at]);
    else if (unit) {
        int digits = (int)(unit - units) * 3;
        int64_t per = 1, x = ((const int64_t *)data)[at];
        for (int i = 0; i < digits; i++) per *= 10;
        int64_t second = floor_div(x, per), day = floor_div(second, 86400),
                t = second - day * 86400;
        add_date(&s, day);
        ares_str_addf(&s, "T%02d:%02d:%02d", (int)(t / 3600), (int)(t / 60 % 60), (int)(t % 60));
        if (digits) ares_str_addf(&s, ".%0*" PRId64, digits, x - second * per);
        if (f[3] == ':' && f[4]) ares_str_add_z(&s, "Z");
    } else return refused(w, "times of this kind are not read", f);
    ares_json_write_string(w->out, ares_str_view(&s));
    ares_str_fini(&s);
    return ARES_OK;
}

static bool is_null(const struct ArrowSchema *schema, const struct ArrowArray *a, int64_t at)
{
    return !strcmp(schema->format, "n") ||
           (a->null_count != 0 && a->n_buffers > 0 && a->buffers[0] && !bit(a->buffers[0], at));
}

static int put_value(walk *w, const struct ArrowSchema *schema, const struct ArrowArray *a,
                     int64_t i);

/* i: counts from the arrays' own offsets, which a child adds again. */
static int put_struct(walk *w, const struct ArrowSchema *schema, const struct ArrowArray *a,
                      int64_t at)
{
    bool has_path = false;
    for (int64_t k = 0; k < schema->n_children; k++)
        has_path = has_path || !strcmp(schema->children[k]->name, "path");
    ares_json_begin(w->out, '{');
    for (int64_t k = 0; k < schema->n_children; k++) {
        const struct ArrowSchema *field = schema->children[k];
        int depth = w->depth;
        size_t before = w->out->len;
        if (!depth) w->column = field->name;
        if (is_null(field, a->children[k], a->children[k]->offset + at)) continue;
        ares_json_key(w->out, field->name);
        w->depth++;
        w->medium = has_path && !strcmp(field->name, "bytes");
        int rc = put_value(w, field, a->children[k], at);
        w->medium = false;
        w->depth = depth;
        if (rc == ARES_OK) continue;
        if (depth) return rc;
        if (!ares_map_get(w->left_out, ares_view_of(field->name), NULL))
            ares_warn("%s", ares_error_message());
        ares_map_put(w->left_out, ares_view_of(field->name), 1);
        ares_error_clear();
        w->out->len = before;
        w->out->data[before] = 0;
    }
    ares_json_end(w->out, '}');
    return ARES_OK;
}

/* d:PRECISION,SCALE: of 16 bytes, the digits before the last SCALE and those after the point. */
static int put_decimal(walk *w, const char *format, const void *data, int64_t at)
{
    char digits[48];
    int n = ARES_COUNT(digits), scale = 0, bits = 128;
    __extension__ typedef unsigned __int128 u128;
    u128 x;
    (void)sscanf(format, "d:%*d,%d,%d", &scale, &bits);
    if (bits != 128 || scale < 0 || scale > 38)
        return refused(w, "decimals of this kind are not read", format);
    memcpy(&x, (const char *)data + at * 16, sizeof x);
    bool negative = x >> 127;
    if (negative) x = -x;
    for (int i = 0; i <= scale || x; i++, x /= 10) {
        if (i == scale && scale) digits[--n] = '.';
        digits[--n] = (char)('0' + (int)(x % 10));
    }
    if (negative) digits[--n] = '-';
    ares_json_splice(w->out, (ares_view){ digits + n, (size_t)(ARES_COUNT(digits) - n) });
    return ARES_OK;
}

static int put_list(walk *w, const struct ArrowSchema *schema, const struct ArrowArray *a,
                    int64_t at)
{
    int64_t from, to;
    if (schema->format[1] == 'w') {
        int64_t size = strtoll(schema->format + 3, NULL, 10);
        from = at * size;
        to = from + size;
    } else bounds_of(schema->format[1] == 'L', a->buffers[1], at, &from, &to);
    ares_json_begin(w->out, '[');
    w->depth++;
    for (int64_t k = from; k < to; k++)
        ARES_TRY(put_value(w, schema->children[0], a->children[0], k));
    w->depth--;
    ares_json_end(w->out, ']');
    return ARES_OK;
}

static void put_base64(ares_str *out, ares_view bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    ares_str text = { 0 };
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t n = ARES_MIN(bytes.len - i, 3);
        uint32_t x = 0;
        for (size_t k = 0; k < 3; k++) x = x << 8 | (k < n ? (uint8_t)bytes.data[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            ares_str_add_char(&text, k <= n ? digits[x >> (18 - 6 * k) & 63] : '=');
    }
    ares_json_write_string(out, ares_str_view(&text));
    ares_str_fini(&text);
}

/* Short ones stand in the view itself, others in one of the buffers after it. */
static ares_view viewed(const struct ArrowArray *a, int64_t at)
{
    struct {
        int32_t length, prefix, buffer, offset;
    } v;
    const char *p = (const char *)a->buffers[1] + at * (int64_t)sizeof v;
    memcpy(&v, p, sizeof v);
    const char *text = v.length <= 12 ? p + 4 : (const char *)a->buffers[2 + v.buffer] + v.offset;
    return (ares_view){ text, (size_t)v.length };
}

/* u, U: text; z, Z, w:N: bytes; vu, vz: views of them. */
static int put_text(walk *w, const char *format, const struct ArrowArray *a, int64_t at)
{
    int64_t from = 0, to = 0;
    ares_view text;
    bool bytes = *format != 'u' && *format != 'U' && strcmp(format, "vu") != 0;
    if (*format == 'v') text = viewed(a, at);
    else if (*format == 'w') {
        to = strtoll(format + 2, NULL, 10);
        text = (ares_view){ (const char *)a->buffers[1] + at * to, (size_t)to };
    } else {
        bounds_of(*format == 'U' || *format == 'Z', a->buffers[1], at, &from, &to);
        text =
            (ares_view){ to > from ? (const char *)a->buffers[2] + from : "", (size_t)(to - from) };
    }
    bool is_text = ares_view_is_utf8(text);
    if (bytes && (w->medium || !is_text)) put_base64(w->out, text);
    else if (is_text) ares_json_write_string(w->out, text);
    else return refused(w, "holds a string that is not UTF-8", format);
    return ARES_OK;
}

static int put_entry(walk *w, const struct ArrowSchema *schema, const struct ArrowArray *a,
                     int64_t at)
{
    int64_t entry;
    if (!integer(*schema->format, a->buffers[1], at, &entry) || entry < 0 ||
        entry >= a->dictionary->length)
        return refused(w, "a dictionary's index is out of its range", schema->format);
    return put_value(w, schema->dictionary, a->dictionary, entry);
}

static int put_value(walk *w, const struct ArrowSchema *schema, const struct ArrowArray *a,
                     int64_t i)
{
    const char *f = schema->format;
    int64_t at = a->offset + i, x;
    double v;
    if (w->depth > MAX_DEPTH) return refused(w, "nested deeper than 64 levels", f);
    if (is_null(schema, a, at)) {
        ares_json_write_null(w->out);
        return ARES_OK;
    }
    const void *data = a->n_buffers > 1 ? a->buffers[1] : NULL;
    if (schema->dictionary) return put_entry(w, schema, a, at);
    if (!strcmp(f, "+s")) return put_struct(w, schema, a, at);
    if (*f == '+' && f[1] && strchr("lLmw", f[1])) return put_list(w, schema, a, at);
    if (*f == 't') return put_time(w, f, data, at);
    if (*f == 'd') return put_decimal(w, f, data, at);
    if (*f == 'w' || !strcmp(f, "vu") || !strcmp(f, "vz")) return put_text(w, f, a, at);
    if (strlen(f) != 1) return refused(w, "values of this kind are not read", f);
    if (strchr("uUzZ", *f)) return put_text(w, f, a, at);
    if (*f == 'b') ares_json_write_bool(w->out, bit(data, at));
    else if (*f == 'L') {
        char digits[24];
        int n = snprintf(digits, sizeof digits, "%" PRIu64, ((const uint64_t *)data)[at]);
        ares_json_splice(w->out, (ares_view){ digits, (size_t)n });
    } else if (integer(*f, data, at, &x)) ares_json_write_i64(w->out, x);
    else if (real(*f, data, at, &v)) {
        w->not_finite |= !isfinite(v);
        ares_json_write_double(w->out, v); /* null where it is not finite */
    } else return refused(w, "values of this kind are not read", f);
    return ARES_OK;
}

void arrow_row(ares_str *out, const struct ArrowSchema *schema, const struct ArrowArray *batch,
               int64_t i, const char *place, bool *not_finite, ares_map *left_out)
{
    walk w = { .out = out, .place = place, .left_out = left_out };
    int rc = put_struct(&w, schema, batch, batch->offset + i);
    ARES_ASSERT(rc == ARES_OK); /* a column fails alone */
    *not_finite |= w.not_finite;
}
