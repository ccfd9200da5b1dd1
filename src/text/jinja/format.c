/* Values to text: str(), repr() and JSON first, then "%" and strftime, then str.format. */
#include "jinja.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Values to text: str() and repr() as Python prints them, and json.dumps. */

/* ------------------------------------------------------------------ str and repr */
static void jinja_float_repr(double x, char out[40])
{
    if (isnan(x)) {
        memcpy(out, "nan", 4);
        return;
    }
    if (isinf(x)) {
        strcpy(out, x < 0 ? "-inf" : "inf");
        return;
    }
    char digits[40];
    int precision = 0;
    do snprintf(digits, sizeof digits, "%.*e", precision, x);
    while (strtod(digits, NULL) != x && ++precision < 17);
    char *mark = strchr(digits, 'e');
    int exponent = atoi(mark + 1);
    if (exponent < -4 || exponent >= 16) {
        *mark = 0;
        snprintf(out, 40, "%.26se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    } else {
        snprintf(out, 40, "%.*f", ARES_MAX(precision - exponent, 0), x);
        if (!strchr(out, '.')) strcat(out, ".0");
    }
}

static void add_repr_string(jinja_run *r, jinja_buf *b, ares_view s)
{
    bool single = memchr(s.data, '\'', s.len) != NULL, twice = memchr(s.data, '"', s.len) != NULL;
    char quote = single && !twice ? '"' : '\'', escape[12];
    jinja_add(r, b, &quote, 1);
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        int k = jinja_decode(s.data + i, s.len - i, &cp);
        if (cp == (uint32_t)quote || cp == '\\') snprintf(escape, sizeof escape, "\\%c", (char)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(escape, sizeof escape, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (jinja_is_printable(cp)) escape[0] = 0;
        else
            snprintf(escape, sizeof escape,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     cp);
        if (escape[0]) jinja_add_z(r, b, escape);
        else jinja_add(r, b, s.data + i, (size_t)k);
        i += (size_t)k;
    }
    jinja_add(r, b, &quote, 1);
}

static void add_items(jinja_run *r, jinja_buf *b, const jinja_value *items, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (i) jinja_add(r, b, ", ", 2);
        jinja_add_repr(r, b, items[i]);
    }
}

static void add_dict(jinja_run *r, jinja_buf *b, const jinja_dict *d)
{
    jinja_add(r, b, "{", 1);
    for (int64_t i = 0; i < d->n; i++) {
        if (i) jinja_add(r, b, ", ", 2);
        jinja_add_repr(r, b, d->items[i].key);
        jinja_add(r, b, ": ", 2);
        jinja_add_repr(r, b, d->items[i].value);
    }
    jinja_add(r, b, "}", 1);
}

static void add_int(jinja_run *r, jinja_buf *b, int64_t i)
{
    char text[32];
    jinja_add(r, b, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)i));
}

static void add_big(jinja_run *r, jinja_buf *b, jinja_value v)
{
    if (v.u.s->len > 4300)
        JINJA_FAIL(r, "Exceeds the limit (4300 digits) for integer string conversion");
    jinja_add(r, b, v.u.s->data, v.u.s->len);
}

static void add_range(jinja_run *r, jinja_buf *b, const jinja_range *x)
{
    jinja_add_z(r, b, "range(");
    add_int(r, b, x->start);
    jinja_add_z(r, b, ", ");
    add_int(r, b, x->stop);
    if (x->step != 1) jinja_add_z(r, b, ", "), add_int(r, b, x->step);
    jinja_add_z(r, b, ")");
}

static void add_macro(jinja_run *r, jinja_buf *b, const jinja_macro *macro)
{
    jinja_add_z(r, b, "<Macro ");
    if (macro->node->kind == JN_MACRO) add_repr_string(r, b, macro->node->name);
    else jinja_add_z(r, b, "anonymous");
    jinja_add_z(r, b, ">");
}

static void add_loop(jinja_run *r, jinja_buf *b, jinja_loop *loop)
{
    jinja_add_z(r, b, "<LoopContext ");
    add_int(r, b, loop->index0 + 1);
    jinja_add_z(r, b, "/");
    add_int(r, b, jinja_loop_length(r, loop));
    jinja_add_z(r, b, ">");
}

void jinja_add_repr(jinja_run *r, jinja_buf *b, jinja_value v)
{
    char text[40];
    jinja_enter(r);
    switch (v.kind) {
    case JV_MISSING:
    case JV_UNDEFINED: jinja_add_z(r, b, "Undefined"); break;
    case JV_NONE: jinja_add_z(r, b, "None"); break;
    case JV_BOOL: jinja_add_z(r, b, v.u.b ? "True" : "False"); break;
    case JV_INT: add_int(r, b, v.u.i); break;
    case JV_BIG: add_big(r, b, v); break;
    case JV_FLOAT:
        jinja_float_repr(v.u.f, text);
        jinja_add_z(r, b, text);
        break;
    case JV_STR:
        if (v.flag) jinja_add_z(r, b, "Markup(");
        add_repr_string(r, b, jinja_text(v));
        if (v.flag) jinja_add_z(r, b, ")");
        break;
    case JV_LIST:
        jinja_add_z(r, b, "[");
        add_items(r, b, v.u.l->items, v.u.l->n);
        jinja_add_z(r, b, "]");
        break;
    case JV_TUPLE:
        jinja_add_z(r, b, "(");
        add_items(r, b, v.u.l->items, v.u.l->n);
        jinja_add_z(r, b, v.u.l->n == 1 ? ",)" : ")");
        break;
    case JV_DICT: add_dict(r, b, v.u.d); break;
    case JV_RANGE: add_range(r, b, v.u.r); break;
    case JV_VIEW:
        jinja_add_z(r, b,
                    v.flag == 'k'   ? "dict_keys("
                    : v.flag == 'v' ? "dict_values("
                                    : "dict_items(");
        jinja_add_repr(r, b, jinja_to_list(r, v));
        jinja_add_z(r, b, ")");
        break;
    case JV_NAMESPACE:
        jinja_add_z(r, b, "<Namespace ");
        add_dict(r, b, v.u.d);
        jinja_add_z(r, b, ">");
        break;
    case JV_MACRO: add_macro(r, b, v.u.macro); break;
    case JV_LOOP: add_loop(r, b, v.u.loop); break;
    default:
        if (v.kind == JV_FUNC && v.u.fn->repr) jinja_add_z(r, b, v.u.fn->repr);
        else
            JINJA_UNSUPPORTED(r, "the text of a %s (Python prints its address)",
                              jinja_type_name(v));
    }
    r->depth--;
}

void jinja_add_str(jinja_run *r, jinja_buf *b, jinja_value v)
{
    if (v.kind == JV_STR) jinja_add(r, b, v.u.s->data, v.u.s->len);
    else if (v.kind != JV_UNDEFINED && v.kind != JV_MISSING) jinja_add_repr(r, b, v);
}

jinja_value jinja_to_str(jinja_run *r, jinja_value v)
{
    if (v.kind == JV_STR) return v;
    jinja_buf b = { 0 };
    jinja_add_str(r, &b, v);
    return jinja_str_buf(r, &b);
}

jinja_value jinja_plain(jinja_run *r, jinja_value v)
{
    v = jinja_to_str(r, v);
    v.flag = 0;
    return v;
}

jinja_value jinja_escape(jinja_run *r, jinja_value v)
{
    if (v.kind == JV_STR && v.flag) return v;
    jinja_value s = jinja_to_str(r, v);
    jinja_buf b = { 0 };
    for (size_t i = 0; i < s.u.s->len; i++) {
        char c = s.u.s->data[i];
        switch (c) {
        case '&': jinja_add_z(r, &b, "&amp;"); break;
        case '<': jinja_add_z(r, &b, "&lt;"); break;
        case '>': jinja_add_z(r, &b, "&gt;"); break;
        case '"': jinja_add_z(r, &b, "&#34;"); break;
        case '\'': jinja_add_z(r, &b, "&#39;"); break;
        default: jinja_add(r, &b, &c, 1);
        }
    }
    jinja_value out = jinja_str_buf(r, &b);
    out.flag = 1;
    return out;
}

/* ------------------------------------------------------------------ json.dumps */
static void add_json_string(jinja_run *r, jinja_buf *b, ares_view s, bool ascii)
{
    char escape[16];
    jinja_add(r, b, "\"", 1);
    size_t from = 0;
    for (size_t i = 0; i < s.len;) {
        unsigned char c = (unsigned char)s.data[i];
        uint32_t cp = c;
        int k = c < 0x80 || !ascii ? 1 : jinja_decode(s.data + i, s.len - i, &cp);
        static const char from_char[] = "\"\\\b\f\n\r\t", to_char[] = "\"\\bfnrt";
        const char *simple = c < 0x80 && c ? memchr(from_char, c, sizeof from_char - 1) : NULL;
        escape[0] = 0;
        if (simple) snprintf(escape, sizeof escape, "\\%c", to_char[simple - from_char]);
        else if (c < 0x20 || (ascii && cp >= 0x7F && cp < 0x10000))
            snprintf(escape, sizeof escape, "\\u%04x", cp);
        else if (ascii && cp >= 0x10000)
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10),
                     0xDC00 + ((cp - 0x10000) & 0x3FF));
        if (escape[0]) {
            jinja_add(r, b, s.data + from, i - from);
            jinja_add_z(r, b, escape);
            from = i + (size_t)k;
        }
        i += (size_t)k;
    }
    jinja_add(r, b, s.data + from, s.len - from);
    jinja_add(r, b, "\"", 1);
}

static void add_json_line(jinja_run *r, jinja_buf *b, const jinja_json_style *y, int level)
{
    if (!y->pretty) return;
    jinja_add(r, b, "\n", 1);
    jinja_add_repeat(r, b, y->indent.data, y->indent.len, level);
}

static void add_json_float(jinja_run *r, jinja_buf *b, double x)
{
    char text[40];
    jinja_float_repr(x, text);
    jinja_add_z(r, b, isnan(x) ? "NaN" : isinf(x) ? (x < 0 ? "-Infinity" : "Infinity") : text);
}

static void add_json(jinja_run *r, jinja_buf *b, jinja_value v, const jinja_json_style *y,
                     int level);

static void add_json_key(jinja_run *r, jinja_buf *b, jinja_value k, const jinja_json_style *y)
{
    if (k.kind == JV_STR) {
        add_json_string(r, b, jinja_text(k), y->ascii);
        return;
    }
    if (k.kind != JV_NONE && !jinja_is_number(k))
        JINJA_FAIL(r, "keys must be str, int, float, bool or None, not %s", jinja_type_name(k));
    jinja_add(r, b, "\"", 1);
    add_json(r, b, k, y, 0);
    jinja_add(r, b, "\"", 1);
}

static void add_json_dict(jinja_run *r, jinja_buf *b, const jinja_dict *d,
                          const jinja_json_style *y, int level)
{
    if (d->n == 0) {
        jinja_add(r, b, "{}", 2);
        return;
    }
    jinja_value keys = jinja_list_new(r, d->n, JV_LIST), at = jinja_list_new(r, d->n, JV_LIST);
    for (int64_t i = 0; i < d->n; i++)
        keys.u.l->items[i] = d->items[i].key, at.u.l->items[i] = jinja_int(i);
    if (y->sort) jinja_sort(r, keys.u.l->items, at.u.l->items, d->n, false);
    jinja_add(r, b, "{", 1);
    for (int64_t i = 0; i < d->n; i++) {
        if (i) jinja_add(r, b, y->item.data, y->item.len);
        add_json_line(r, b, y, level + 1);
        const jinja_pair *e = &d->items[at.u.l->items[i].u.i];
        add_json_key(r, b, e->key, y);
        jinja_add(r, b, y->key.data, y->key.len);
        add_json(r, b, e->value, y, level + 1);
    }
    add_json_line(r, b, y, level);
    jinja_add(r, b, "}", 1);
}

static void add_json(jinja_run *r, jinja_buf *b, jinja_value v, const jinja_json_style *y,
                     int level)
{
    jinja_enter(r);
    switch (v.kind) {
    case JV_NONE: jinja_add_z(r, b, "null"); break;
    case JV_BOOL: jinja_add_z(r, b, v.u.b ? "true" : "false"); break;
    case JV_INT: add_int(r, b, v.u.i); break;
    case JV_BIG: add_big(r, b, v); break;
    case JV_FLOAT: add_json_float(r, b, v.u.f); break;
    case JV_STR: add_json_string(r, b, jinja_text(v), y->ascii); break;
    case JV_DICT: add_json_dict(r, b, v.u.d, y, level); break;
    case JV_LIST:
    case JV_TUPLE:
        if (v.u.l->n == 0) {
            jinja_add(r, b, "[]", 2);
            break;
        }
        jinja_add(r, b, "[", 1);
        for (int64_t i = 0; i < v.u.l->n; i++) {
            if (i) jinja_add(r, b, y->item.data, y->item.len);
            add_json_line(r, b, y, level + 1);
            add_json(r, b, v.u.l->items[i], y, level + 1);
        }
        add_json_line(r, b, y, level);
        jinja_add(r, b, "]", 1);
        break;
    default: JINJA_FAIL(r, "Object of type %s is not JSON serializable", jinja_type_name(v));
    }
    r->depth--;
}

void jinja_add_json(jinja_run *r, jinja_buf *b, jinja_value v, const jinja_json_style *y)
{
    add_json(r, b, v, y, 0);
}

/* Text from a format: "%", str.format and strftime, as in Python. */

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

/* a value in the format that follows the colon of a field */
static void jinja_add_formatted(jinja_run *r, jinja_buf *b, jinja_value v, ares_view text)
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

/* str.format: fields of a text, filled from arguments, their attributes and items. */

/* next -1: none taken */
typedef struct fields {
    jinja_args *args;
    jinja_dict *named;
    int64_t next;
    bool manual;
} fields;

static jinja_value field_value(jinja_run *r, fields *q, ares_view name)
{
    size_t end = 0;
    while (end < name.len && name.data[end] != '.' && name.data[end] != '[') end++;
    ares_view first = { name.data, end };
    int64_t at = -1;
    bool number = first.len > 0;
    for (size_t i = 0; i < first.len; i++)
        number = number && first.data[i] >= '0' && first.data[i] <= '9';
    if (first.len == 0) {
        if (q->manual)
            JINJA_FAIL(
                r, "cannot switch from manual field specification to automatic field numbering");
        at = ++q->next;
    } else if (number) {
        if (q->next >= 0)
            JINJA_FAIL(
                r, "cannot switch from automatic field numbering to manual field specification");
        q->manual = true;
        if (!ares_parse_i64(first, &at)) JINJA_FAIL(r, "Too many decimal digits in format string");
    }
    jinja_value v;
    if (at >= 0) {
        if (q->named || at >= q->args->n)
            JINJA_FAIL(r, "Replacement index %lld out of range for positional args tuple",
                       (long long)at);
        v = q->args->pos[at];
    } else {
        jinja_value *found = q->named ? jinja_dict_find_name(r, q->named, first) : NULL;
        for (int64_t i = 0; !q->named && i < q->args->n_kw; i++)
            if (ares_view_eq(q->args->kw[i].name, first)) found = &q->args->kw[i].value;
        if (!found)
            JINJA_FAIL(r, "the format has no argument '%.*s'", (int)ARES_MIN(first.len, 80),
                       first.data);
        v = *found;
    }
    for (size_t i = end; i < name.len;) {
        bool dot = name.data[i++] == '.';
        size_t from = i;
        while (i < name.len &&
               (dot ? name.data[i] != '.' && name.data[i] != '[' : name.data[i] != ']'))
            i++;
        ares_view part = { name.data + from, i - from };
        if (part.len == 0) JINJA_FAIL(r, "Empty attribute in format string");
        if (dot) {
            v = jinja_getattr(r, v, part);
            continue;
        }
        if (i >= name.len) JINJA_FAIL(r, "Missing ']' in format string");
        if (++i < name.len && name.data[i] != '.' && name.data[i] != '[')
            JINJA_FAIL(r, "Only '.' or '[' may follow ']' in format field specifier");
        int64_t index;
        bool digits = part.data[0] != '+' && part.data[0] != '-' && ares_parse_i64(part, &index);
        v = jinja_getitem(r, v, digits ? jinja_int(index) : jinja_str_view(r, part.data, part.len));
    }
    return v;
}

static void add_format(jinja_run *r, jinja_buf *b, ares_view s, fields *q, int depth)
{
    if (depth > 1) JINJA_FAIL(r, "Max string recursion exceeded");
    for (size_t i = 0; i < s.len;) {
        size_t from = i;
        while (i < s.len && s.data[i] != '{' && s.data[i] != '}') i++;
        jinja_add(r, b, s.data + from, i - from);
        if (i >= s.len) break;
        if (i + 1 < s.len && s.data[i + 1] == s.data[i]) {
            jinja_add(r, b, s.data + i, 1);
            i += 2;
            continue;
        }
        if (s.data[i] == '}') JINJA_FAIL(r, "Single '}' encountered in format string");
        from = ++i;
        int nest = 1, brackets = 0;
        size_t name_end = SIZE_MAX;
        for (; i < s.len; i++) {
            char c = s.data[i];
            if (name_end == SIZE_MAX && c == '[') brackets = 1;
            if (name_end == SIZE_MAX && c == ']') brackets = 0;
            if (name_end == SIZE_MAX && !brackets && (c == '!' || c == ':')) name_end = i;
            nest += c == '{' ? 1 : c == '}' ? -1 : 0;
            if (nest == 0) break;
            if (name_end == SIZE_MAX && c == '{') JINJA_FAIL(r, "unexpected '{' in field name");
        }
        if (nest) JINJA_FAIL(r, "expected '}' before end of string");
        if (name_end == SIZE_MAX) name_end = i;
        jinja_value v = field_value(r, q, (ares_view){ s.data + from, name_end - from });
        size_t at = name_end;
        if (at < i && s.data[at] == '!') {
            char c = at + 1 < i ? s.data[at + 1] : 0;
            if (at + 2 < i && s.data[at + 2] != ':')
                JINJA_FAIL(r, "expected ':' after conversion specifier");
            jinja_buf text = { 0 };
            if (c == 'r') jinja_add_repr(r, &text, v);
            else if (c == 's') jinja_add_str(r, &text, v);
            else if (c == 'a') JINJA_UNSUPPORTED(r, "'!a' in a format");
            else JINJA_FAIL(r, "Unknown conversion specifier");
            v = jinja_str_buf(r, &text);
            at += 2;
        }
        jinja_buf inner = { 0 };
        if (at < i) add_format(r, &inner, (ares_view){ s.data + at + 1, i - at - 1 }, q, depth + 1);
        jinja_add_formatted(r, b, v, (ares_view){ inner.data, inner.len });
        i++;
    }
}

jinja_value jinja_str_format(jinja_run *r, jinja_value format, jinja_args *args, jinja_dict *named)
{
    if (format.flag) JINJA_UNSUPPORTED(r, "format on text marked safe");
    jinja_buf b = { 0 };
    fields q = { .args = args, .named = named, .next = -1 };
    add_format(r, &b, jinja_text(format), &q, 0);
    return jinja_str_buf(r, &b);
}
