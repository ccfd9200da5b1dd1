/* Text from a format: "%", str.format and strftime, as in Python. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jinja.h"

/* ---------------- one number with sign, grouping and padding */
typedef struct spec {
    char fill[4];
    int fill_len;
    char align, sign, group, type;
    bool alternate, zero;
    int64_t width, precision;
} spec;

static void add_padded(jinja_run *r, jinja_buf *out, const spec *f, ares_view text, int64_t chars,
                       char align)
{
    int64_t pad = f->width - chars, left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    if (pad <= 0) {
        jinja_add(r, out, text.data, text.len);
        return;
    }
    jinja_add_repeat(r, out, f->fill, (size_t)f->fill_len, left);
    jinja_add(r, out, text.data, text.len);
    jinja_add_repeat(r, out, f->fill, (size_t)f->fill_len, pad - left);
}

/*
 * Sign and prefix before the digits. '=' puts the padding between them and the digits; a fill of
 * zeros is grouped with the digits.
 */
static void add_number(jinja_run *r, jinja_buf *out, const spec *f, bool negative,
                       const char *prefix, const char *digits)
{
    char head[8];
    snprintf(head, sizeof head, "%s%s",
             negative         ? "-"
             : f->sign == '+' ? "+"
             : f->sign == ' ' ? " "
                              : "",
             prefix);
    size_t whole = strspn(digits, f->type == 'x' || f->type == 'X' ? "0123456789abcdefABCDEF"
                                                                   : "0123456789"),
           rest = strlen(digits) - whole;
    int every = f->type == 'x' || f->type == 'X' || f->type == 'b' || f->type == 'o' ? 4 : 3;
    char align = f->align ? f->align : '>';
    bool zeros = align == '=' && f->fill_len == 1 && f->fill[0] == '0';
    int64_t columns = f->width - (int64_t)strlen(head) - (int64_t)rest;
    jinja_buf body = { 0 };
    int64_t n = (int64_t)whole;
    if (zeros) { /* as many zeros as keep the groups whole */
        if (!f->group) n = ARES_MAX(n, columns);
        else
            while (n + (n - 1) / every < columns) n++;
    }
    for (int64_t i = 0; i < n; i++) {
        if (i && f->group && (n - i) % every == 0) jinja_add(r, &body, &f->group, 1);
        jinja_add(r, &body, i < n - (int64_t)whole ? "0" : digits + (i - (n - (int64_t)whole)), 1);
    }
    jinja_add_z(r, &body, digits + whole);
    jinja_buf all = { 0 };
    jinja_add_z(r, &all, head);
    if (align == '=' && !zeros)
        jinja_add_repeat(r, &all, f->fill, (size_t)f->fill_len,
                         f->width - (int64_t)strlen(head) - (int64_t)body.len);
    jinja_add(r, &all, body.data, body.len);
    add_padded(r, out, f, (ares_view){ all.data, all.len },
               align == '=' ? f->width : (int64_t)all.len, align);
}

static void int_digits(uint64_t v, int base, bool upper, char out[72])
{
    char reversed[72];
    int n = 0;
    do
        reversed[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[v % (unsigned)base],
        v /= (unsigned)base;
    while (v);
    for (int i = 0; i < n; i++) out[i] = reversed[n - 1 - i];
    out[n] = 0;
}

/*
 * The digits of |x| for a conversion letter; '\0' is str.format without a letter (with a precision:
 * as g, but with a decimal point).
 */
static char *float_digits(jinja_run *r, double x, char type, int64_t precision, bool alternate)
{
    if (precision > 2000) JINJA_UNSUPPORTED(r, "a precision of %lld", (long long)precision);
    size_t capacity = (size_t)ARES_MAX(precision, 0) + 400;
    char *out = jinja_alloc(r, capacity);
    ARES_ASSERT(
        out); /* tells the compiler that out is not NULL, which it doubts in sanitizer builds */
    x = fabs(x);
    bool upper = type == 'F' || type == 'E' || type == 'G';
    if (!isfinite(x))
        return strcpy(out, isnan(x) ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf");
    if (!type && precision < 0) {
        jinja_float_repr(x, out);
        return out;
    }
    int p = (int)(precision < 0 ? 6 : precision);
    if (!type) {
        p = ARES_MAX(p, 1);
        snprintf(out, capacity, "%.*e", p - 1, x);
        int exponent = atoi(strchr(out, 'e') + 1);
        if (exponent < -4 || exponent + 1 > p - 1) {
            char *mark = strchr(out, 'e'), tail[8];
            snprintf(tail, sizeof tail, "%s", mark);
            while (p > 1 && mark[-1] == '0') mark--;
            if (mark[-1] == '.') mark--;
            strcpy(mark, tail);
        } else {
            snprintf(out, capacity, "%.*g", p, x);
            if (!strchr(out, '.')) strcat(out, ".0");
        }
        return out;
    }
    if (type == '%') x *= 100, type = 'f';
    if (type == 'n') type = 'g';
    char format[8];
    snprintf(format, sizeof format, "%%%s.*%c", alternate ? "#" : "", type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(out, capacity, format, p, x);
#pragma GCC diagnostic pop
    return out;
}

/* ------------------------------------------------------------------ "..." % args */
typedef struct percent {
    jinja_value args;
    jinja_dict *named;
    int64_t next, n;
} percent;

static jinja_value next_arg(jinja_run *r, percent *q)
{
    if (q->args.kind == JV_TUPLE) {
        if (q->next >= q->args.u.l->n) JINJA_FAIL(r, "not enough arguments for format string");
        return q->args.u.l->items[q->next++];
    }
    if (q->next++) JINJA_FAIL(r, "not enough arguments for format string");
    return q->args;
}

static void add_percent_int(jinja_run *r, jinja_buf *b, spec *f, jinja_value v)
{
    char digits[72];
    bool decimal = f->type == 'd' || f->type == 'i' || f->type == 'u';
    if (v.kind == JV_FLOAT && decimal) {
        bool ok;
        v = jinja_int_of(r, v, &ok);
        if (!ok) JINJA_FAIL(r, "cannot convert this float to an integer");
    }
    if (v.kind == JV_BIG) JINJA_UNSUPPORTED(r, "formatting an integer beyond 64 bits");
    int64_t i;
    if (!jinja_as_index(v, &i))
        JINJA_FAIL(r, "%%%c format: %s is required, not %s", f->type,
                   decimal ? "a real number" : "an integer", jinja_type_name(v));
    int_digits(i < 0 ? 0 - (uint64_t)i : (uint64_t)i,
               decimal          ? 10
               : f->type == 'o' ? 8
                                : 16,
               f->type == 'X', digits);
    char padded[400];
    int64_t zeros = ARES_MAX(f->precision - (int64_t)strlen(digits), 0);
    if (zeros > 300) JINJA_UNSUPPORTED(r, "a precision of %lld", (long long)f->precision);
    memset(padded, '0', (size_t)zeros);
    strcpy(padded + zeros, digits);
    char prefix[3] = { 0 };
    if (f->alternate && !decimal) prefix[0] = '0', prefix[1] = f->type;
    if (decimal) f->type = 'd';
    add_number(r, b, f, i < 0, prefix, padded);
}

static void add_percent(jinja_run *r, jinja_buf *b, spec *f, jinja_value v)
{
    jinja_buf text = { 0 };
    switch (f->type) {
    case 's': jinja_add_str(r, &text, v); break;
    case 'r': jinja_add_repr(r, &text, v); break;
    case 'a': JINJA_UNSUPPORTED(r, "%%a in a format");
    case 'c': {
        int64_t i;
        if (v.kind == JV_STR && jinja_chars(r, v) == 1) {
            jinja_add_str(r, &text, v);
        } else {
            if (!jinja_as_index(v, &i)) JINJA_FAIL(r, "%%c requires int or char");
            if (i < 0 || i > 0x10FFFF) JINJA_FAIL(r, "%%c arg not in range(0x110000)");
            if (i >= 0xD800 && i < 0xE000) JINJA_UNSUPPORTED(r, "a surrogate has no UTF-8 form");
            jinja_add_cp(r, &text, (uint32_t)i);
        }
        f->precision = -1;
        break;
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': add_percent_int(r, b, f, v); return;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': {
        if (v.kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", v.u.hint);
        double x = jinja_as_double(r, v);
        add_number(r, b, f, signbit(x) && !isnan(x), "",
                   float_digits(r, x, f->type, f->precision, f->alternate));
        return;
    }
    default: JINJA_FAIL(r, "unsupported format character '%c'", f->type);
    }
    jinja_value s = jinja_str_buf(r, &text);
    if (f->precision >= 0 && jinja_chars(r, s) > f->precision)
        s = jinja_slice(r, s, jinja_none(), jinja_int(f->precision), jinja_none());
    f->fill[0] = ' ';
    add_padded(r, b, f, jinja_text(s), jinja_chars(r, s), f->align == '<' ? '<' : '>');
}

static int64_t star_or_number(jinja_run *r, percent *q, ares_view s, size_t *i)
{
    int64_t v = 0;
    if (*i < s.len && s.data[*i] == '*') {
        ++*i;
        jinja_value arg = next_arg(r, q);
        if (arg.kind != JV_INT) JINJA_FAIL(r, "* wants int");
        v = arg.u.i;
    } else {
        for (; *i < s.len && s.data[*i] >= '0' && s.data[*i] <= '9'; ++*i)
            if (__builtin_mul_overflow(v, 10, &v) || (v += s.data[*i] - '0') > INT32_MAX)
                JINJA_FAIL(r, "width too big");
    }
    if (v > INT32_MAX || v < -INT32_MAX) JINJA_FAIL(r, "width too big");
    return v;
}

/* The value of `(key)`; *i: after the opening bracket, then after the closing one. */
static jinja_value keyed_value(jinja_run *r, const percent *q, ares_view s, size_t *i, bool mapping)
{
    int depth = 1;
    size_t from = *i;
    for (; *i < s.len && depth; ++*i) depth += s.data[*i] == '(' ? 1 : s.data[*i] == ')' ? -1 : 0;
    if (depth) JINJA_FAIL(r, "incomplete format key");
    if (!mapping) JINJA_FAIL(r, "format requires a mapping");
    const jinja_dict *d = q->named ? q->named : q->args.kind == JV_DICT ? q->args.u.d : NULL;
    jinja_value *found =
        d ? jinja_dict_find_name(r, d, (ares_view){ s.data + from, *i - 1 - from }) : NULL;
    if (!found) JINJA_FAIL(r, "no such key in the format's mapping");
    return *found;
}

/* Flags, width, precision and the letter of the type. */
static spec percent_spec(jinja_run *r, percent *q, ares_view s, size_t *i)
{
    spec f = { .fill = " ", .fill_len = 1, .precision = -1 };
    for (; *i < s.len && strchr("-+ #0", s.data[*i]) && s.data[*i]; ++*i) {
        char c = s.data[*i];
        if (c == '-') f.align = '<';
        if (c == '+' || (c == ' ' && f.sign != '+')) f.sign = c;
        f.alternate |= c == '#', f.zero |= c == '0';
    }
    f.width = star_or_number(r, q, s, i);
    if (f.width < 0) f.align = '<', f.width = -f.width;
    if (*i < s.len && s.data[*i] == '.') {
        ++*i;
        f.precision = star_or_number(r, q, s, i);
        if (f.precision < 0) f.precision = 0;
    }
    if (*i < s.len && (s.data[*i] == 'h' || s.data[*i] == 'l' || s.data[*i] == 'L')) ++*i;
    if (*i >= s.len) JINJA_FAIL(r, "incomplete format");
    f.type = s.data[(*i)++];
    if (f.zero && f.align != '<' && f.type != 's' && f.type != 'r' && f.type != 'c')
        f.align = '=', f.fill[0] = '0';
    return f;
}

jinja_value jinja_percent(jinja_run *r, jinja_value format, jinja_value args, jinja_dict *named)
{
    ares_view s = jinja_text(format);
    percent q = { .args = args, .named = named };
    bool mapping = named || args.kind == JV_DICT || args.kind == JV_LIST || args.kind == JV_RANGE ||
                   args.kind == JV_UNDEFINED;
    jinja_buf b = { 0 };
    for (size_t i = 0; i < s.len;) {
        const char *hit = memchr(s.data + i, '%', s.len - i);
        size_t end = hit ? (size_t)(hit - s.data) : s.len;
        jinja_add(r, &b, s.data + i, end - i);
        if (!hit) break;
        i = end + 1;
        bool keyed = i < s.len && s.data[i] == '(';
        jinja_value value = jinja_none();
        if (keyed) {
            i++;
            value = keyed_value(r, &q, s, &i, mapping);
        }
        spec f = percent_spec(r, &q, s, &i);
        if (f.type == '%') {
            jinja_add(r, &b, "%", 1);
            continue;
        }
        if (!keyed) {
            if (named) JINJA_FAIL(r, "not enough arguments for format string");
            value = next_arg(r, &q);
        } else {
            q.next = ARES_MAX(q.next, 1);
        }
        add_percent(r, &b, &f, value);
    }
    bool left = args.kind == JV_TUPLE ? q.next < args.u.l->n : q.next == 0;
    if (!mapping && left) JINJA_FAIL(r, "not all arguments converted during string formatting");
    return jinja_str_buf(r, &b);
}

/* ------------------------------------------------------------------ format specifications */
static spec parse_spec(jinja_run *r, ares_view s)
{
    spec f = { .fill = " ", .fill_len = 1, .precision = -1 };
    size_t i = 0;
    uint32_t cp;
    int k = s.len ? jinja_decode(s.data, s.len, &cp) : 0;
    if (s.len > (size_t)k && strchr("<>=^", s.data[k])) {
        memcpy(f.fill, s.data, (size_t)k);
        f.fill_len = k, f.align = s.data[k], i = (size_t)k + 1;
    } else if (s.len && s.data[0] && strchr("<>=^", s.data[0])) {
        f.align = s.data[i++];
    }
    bool filled = i > 1;
    if (i < s.len && s.data[i] && strchr("+- ", s.data[i])) f.sign = s.data[i++];
    if (i < s.len && s.data[i] == 'z') JINJA_UNSUPPORTED(r, "'z' in a format specification");
    if (i < s.len && s.data[i] == '#') f.alternate = true, i++;
    if (i < s.len && s.data[i] == '0') {
        i++, f.zero = true;
        if (!filled) f.fill[0] = '0', f.fill_len = 1;
        if (!f.align) f.align = '=';
    }
    percent none = { .args = jinja_none() };
    if (i < s.len && s.data[i] == '*') JINJA_FAIL(r, "Invalid format specifier");
    f.width = star_or_number(r, &none, s, &i);
    if (i < s.len && (s.data[i] == ',' || s.data[i] == '_')) f.group = s.data[i++];
    if (i < s.len && s.data[i] == '.') {
        i++;
        if (i >= s.len || s.data[i] < '0' || s.data[i] > '9')
            JINJA_FAIL(r, "Format specifier missing precision");
        f.precision = star_or_number(r, &none, s, &i);
    }
    if (i < s.len) f.type = s.data[i++];
    if (i < s.len) JINJA_FAIL(r, "Invalid format specifier");
    return f;
}

void jinja_add_formatted(jinja_run *r, jinja_buf *b, jinja_value v, ares_view text)
{
    if (text.len == 0) {
        jinja_add_str(r, b, v);
        return;
    }
    if (v.kind == JV_STR && v.flag) JINJA_UNSUPPORTED(r, "formatting text marked safe");
    spec f = parse_spec(r, text);
    char digits[72], prefix[3] = { 0 };
    if (v.kind == JV_STR) {
        if (f.type && f.type != 's')
            JINJA_FAIL(r, "Unknown format code '%c' for object of type 'str'", f.type);
        if (f.sign || f.group || f.alternate || (f.align == '=' && !f.zero))
            JINJA_FAIL(r, "this format option is not allowed for a string");
        if (f.zero) JINJA_UNSUPPORTED(r, "'0' in the format of a string");
        if (f.precision >= 0 && jinja_chars(r, v) > f.precision)
            v = jinja_slice(r, v, jinja_none(), jinja_int(f.precision), jinja_none());
        add_padded(r, b, &f, jinja_text(v), jinja_chars(r, v), f.align ? f.align : '<');
        return;
    }
    int64_t i;
    if (jinja_as_index(v, &i) && (!f.type || strchr("bcdoxXn", f.type))) {
        if (f.precision >= 0) JINJA_FAIL(r, "Precision not allowed in integer format specifier");
        if (f.type == 'c') JINJA_UNSUPPORTED(r, "'c' in a format specification");
        if (f.type == 'n') f.type = 'd';
        if (f.group == ',' && f.type && f.type != 'd')
            JINJA_FAIL(r, "Cannot specify ',' with '%c'.", f.type);
        int base = f.type == 'b' ? 2 : f.type == 'o' ? 8 : f.type == 'x' || f.type == 'X' ? 16 : 10;
        if (f.alternate && base != 10) prefix[0] = '0', prefix[1] = f.type;
        int_digits(i < 0 ? 0 - (uint64_t)i : (uint64_t)i, base, f.type == 'X', digits);
        add_number(r, b, &f, i < 0, prefix, digits);
        return;
    }
    if (v.kind == JV_BIG) JINJA_UNSUPPORTED(r, "formatting an integer beyond 64 bits");
    if (v.kind == JV_UNDEFINED || !jinja_is_number(v))
        JINJA_FAIL(r, "unsupported format string passed to %s.__format__", jinja_type_name(v));
    if (f.type && !strchr("eEfFgG%n", f.type))
        JINJA_FAIL(r, "Unknown format code '%c' for object of type '%s'", f.type,
                   jinja_type_name(v));
    double x = jinja_as_double(r, v);
    char *text_digits = float_digits(r, x, f.type, f.precision, f.alternate);
    if (f.type == '%') strcat(text_digits, "%");
    if (f.alternate && !f.type) JINJA_UNSUPPORTED(r, "'#' in this format specification");
    add_number(r, b, &f, signbit(x) && !isnan(x), "", text_digits);
}

/* ------------------------------------------------------------------ time */
jinja_value jinja_strftime(jinja_run *r, jinja_value format)
{
    struct tm tm;
    struct timespec t = { 0 };
    if (format.kind != JV_STR)
        JINJA_FAIL(r, "strftime() argument 1 must be str, not %s", jinja_type_name(format));
    if (r->now) {
        tm = *r->now;
    } else {
        clock_gettime(CLOCK_REALTIME, &t);
        localtime_r(&t.tv_sec, &tm);
    }
    ares_view s = jinja_text(format);
    jinja_buf b = { 0 };
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] != '%' || i + 1 >= s.len) {
            jinja_add(r, &b, s.data + i, 1);
            continue;
        }
        char spec[4] = { '%', s.data[++i], 0, 0 }, text[128];
        if (spec[1] == '-' || spec[1] == '_' || spec[1] == '^' || spec[1] == '0' ||
            spec[1] == '#') {
            if (i + 1 >= s.len) JINJA_UNSUPPORTED(r, "this strftime format");
            spec[2] = s.data[++i];
        }
        char kind = spec[2] ? spec[2] : spec[1];
        if (!spec[2] && (kind == 'z' || kind == 'Z')) continue; /* a time without a zone */
        if (!spec[2] && kind == 'f') {
            snprintf(text, sizeof text, "%06ld", t.tv_nsec / 1000);
            jinja_add_z(r, &b, text);
            continue;
        }
        if (!kind || !strchr("aAbBcdDeFgGhHIjklmMnpPrRStTuUVwWxXyYC%", kind))
            JINJA_UNSUPPORTED(r, "'%%%c' in strftime_now", kind ? kind : '0');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        jinja_add(r, &b, text, strftime(text, sizeof text, spec, &tm));
#pragma GCC diagnostic pop
    }
    return jinja_str_buf(r, &b);
}
