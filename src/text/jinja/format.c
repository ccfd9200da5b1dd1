/* Values to text: str() and repr() as Python prints them, json.dumps and strftime. */
#include "jinja.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ------------------------------------------------------------------ str and repr */
/* The shortest digits that read back as x, in Python's choice of plain or scientific notation. */
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
    /* more digits until they read back as x; 17 always do */
    int precision = 0;
    do snprintf(digits, sizeof digits, "%.*e", precision, x);
    while (strtod(digits, NULL) != x && ++precision < 17);
    char *mark = strchr(digits, 'e');
    int exponent = atoi(mark + 1);
    /* as in Python: 1e16 but 1000000000000000.0, 1e-05 but 0.0001 */
    if (exponent < -4 || exponent >= 16) {
        *mark = 0;
        snprintf(out, 40, "%.26se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    } else {
        snprintf(out, 40, "%.*f", ARES_MAX(precision - exponent, 0), x);
        if (!strchr(out, '.')) strcat(out, ".0");
    }
}

/*
 * In single quotes, or in double ones where only those need no escape. Python escapes what is not
 * printable.
 */
static void add_repr_string(jinja_run *r, jinja_buf *b, ares_view s)
{
    /* Python prefers single quotes: "it's" but 'say "hi"' */
    bool single = memchr(s.data, '\'', s.len) != NULL, twice = memchr(s.data, '"', s.len) != NULL;
    /* text with both has single quotes, and those in it are escaped */
    char quote = single && !twice ? '"' : '\'', escape[12];
    jinja_add(r, b, &quote, 1);
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        int k = jinja_decode(s.data + i, s.len - i, &cp);
        if (cp == (uint32_t)quote || cp == '\\') snprintf(escape, sizeof escape, "\\%c", (char)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(escape, sizeof escape, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        /* it stands for itself */
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

/* The items of a list or tuple, with ", " between them. */
static void add_items(jinja_run *r, jinja_buf *b, const jinja_value *items, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (i) jinja_add(r, b, ", ", 2);
        jinja_add_repr(r, b, items[i]);
    }
}

/* {'a': 1, 'b': [2]} */
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

/* CPython limits conversions of integers to text, against hostile input. */
static void add_big(jinja_run *r, jinja_buf *b, jinja_value v)
{
    if (v.u.s->len > 4300)
        JINJA_FAIL(r, "Exceeds the limit (4300 digits) for integer string conversion");
    jinja_add(r, b, v.u.s->data, v.u.s->len);
}

/* Python repr(v). */
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
        /* (1,) is a tuple, (1) is not */
        jinja_add_z(r, b, v.u.l->n == 1 ? ",)" : ")");
        break;
    case JV_DICT: add_dict(r, b, v.u.d); break;
    case JV_RANGE:
        jinja_add_z(r, b, "range(");
        add_int(r, b, v.u.r->start);
        jinja_add_z(r, b, ", ");
        add_int(r, b, v.u.r->stop);
        /* Python leaves out a step of 1 */
        if (v.u.r->step != 1) jinja_add_z(r, b, ", "), add_int(r, b, v.u.r->step);
        jinja_add_z(r, b, ")");
        break;
    case JV_VIEW:
        jinja_add_z(r, b,
                    v.flag == 'k'   ? "dict_keys("
                    : v.flag == 'v' ? "dict_values("
                                    : "dict_items(");
        /* dict_keys([...]) */
        jinja_add_repr(r, b, jinja_to_list(r, v));
        jinja_add_z(r, b, ")");
        break;
    case JV_NAMESPACE:
        jinja_add_z(r, b, "<Namespace ");
        add_dict(r, b, v.u.d);
        jinja_add_z(r, b, ">");
        break;
    case JV_MACRO:
        jinja_add_z(r, b, "<Macro ");
        /* the caller of a call block has no name */
        if (v.u.macro->node->kind == JN_MACRO) add_repr_string(r, b, v.u.macro->node->name);
        else jinja_add_z(r, b, "anonymous");
        jinja_add_z(r, b, ">");
        break;
    case JV_LOOP:
        jinja_add_z(r, b, "<LoopContext ");
        add_int(r, b, v.u.loop->index0 + 1);
        jinja_add_z(r, b, "/");
        add_int(r, b, jinja_loop_length(r, v.u.loop));
        jinja_add_z(r, b, ">");
        break;
    default: /* functions, methods and iterators */
        if (v.kind == JV_FUNC && v.u.fn->repr) jinja_add_z(r, b, v.u.fn->repr);
        else
            JINJA_UNSUPPORTED(r, "the text of a %s (Python prints its address)",
                              jinja_type_name(v));
    }
    r->depth--;
}

/* str(v): a text as it is, and nothing for an undefined value. */
void jinja_add_str(jinja_run *r, jinja_buf *b, jinja_value v)
{
    if (v.kind == JV_STR) jinja_add(r, b, v.u.s->data, v.u.s->len);
    else if (v.kind != JV_UNDEFINED && v.kind != JV_MISSING) jinja_add_repr(r, b, v);
}

/* Python str(v); a text marked safe stays so. */
jinja_value jinja_to_str(jinja_run *r, jinja_value v)
{
    if (v.kind == JV_STR) return v;
    jinja_buf b = { 0 };
    jinja_add_str(r, &b, v);
    return jinja_str_buf(r, &b);
}

/* markupsafe.escape: text marked safe stays, other text is escaped and marked. */
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
        /* as markupsafe writes them */
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
/* ascii: characters beyond ASCII, and DEL, as \u escapes, above U+FFFF in two surrogates. */
static void add_json_string(jinja_run *r, jinja_buf *b, ares_view s, bool ascii)
{
    char escape[16];
    jinja_add(r, b, "\"", 1);
    size_t from = 0; /* what stands before an escape is added in one piece */
    for (size_t i = 0; i < s.len;) {
        unsigned char c = (unsigned char)s.data[i];
        uint32_t cp = c;
        /* one byte at a time, unless a code point has to be known */
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

/* Begins a new line where the style is pretty. */
static void add_json_line(jinja_run *r, jinja_buf *b, const jinja_json_style *y, int level)
{
    /* all in one line */
    if (!y->pretty) return;
    jinja_add(r, b, "\n", 1);
    jinja_add_repeat(r, b, y->indent.data, y->indent.len, level);
}

/* A dict as JSON: {"a": 1}. level: how deep it lies, for the indent. */
static void add_json_dict(jinja_run *r, jinja_buf *b, const jinja_dict *d,
                          const jinja_json_style *y, int level)
{
    if (d->n == 0) {
        jinja_add(r, b, "{}", 2);
        return;
    }
    /* the order of the entries: sorted by key where asked, else that of insertion */
    jinja_value keys = jinja_list_new(r, d->n, JV_LIST), at = jinja_list_new(r, d->n, JV_LIST);
    for (int64_t i = 0; i < d->n; i++) /* sorted together: keys decide, at follows */
        keys.u.l->items[i] = d->items[i].key, at.u.l->items[i] = jinja_int(i);
    /* keys of different types cannot be sorted, as in Python */
    if (y->sort) jinja_sort(r, keys.u.l->items, at.u.l->items, d->n, false);
    jinja_add(r, b, "{", 1);
    for (int64_t i = 0; i < d->n; i++) {
        if (i) jinja_add(r, b, y->item.data, y->item.len);
        add_json_line(r, b, y, level + 1);
        const jinja_pair *e = &d->items[at.u.l->items[i].u.i];
        if (e->key.kind == JV_STR) {
            add_json_string(r, b, jinja_text(e->key), y->ascii);
        } else { /* a number, flag or None as a key is the text of its JSON */
            /* 1, 1.5, True and None become "1", "1.5", "true" and "null" */
            if (e->key.kind != JV_NONE && !jinja_is_number(e->key))
                JINJA_FAIL(r, "keys must be str, int, float, bool or None, not %s",
                           jinja_type_name(e->key));
            jinja_add(r, b, "\"", 1);
            jinja_add_json(r, b, e->key, y, 0);
            jinja_add(r, b, "\"", 1);
        }
        jinja_add(r, b, y->key.data, y->key.len);
        jinja_add_json(r, b, e->value, y, level + 1);
    }
    add_json_line(r, b, y, level);
    jinja_add(r, b, "}", 1);
}

/* Python json.dumps(v): NaN and Infinity are written as such, although JSON lacks them. */
void jinja_add_json(jinja_run *r, jinja_buf *b, jinja_value v, const jinja_json_style *y, int level)
{
    char text[40];
    jinja_enter(r);
    switch (v.kind) {
    case JV_NONE: jinja_add_z(r, b, "null"); break;
    case JV_BOOL: jinja_add_z(r, b, v.u.b ? "true" : "false"); break;
    case JV_INT: add_int(r, b, v.u.i); break;
    case JV_BIG: add_big(r, b, v); break;
    case JV_FLOAT:
        jinja_float_repr(v.u.f, text);
        jinja_add_z(r, b,
                    isnan(v.u.f)   ? "NaN"
                    : isinf(v.u.f) ? (v.u.f < 0 ? "-Infinity" : "Infinity")
                                   : text);
        break;
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
            jinja_add_json(r, b, v.u.l->items[i], y, level + 1);
        }
        add_json_line(r, b, y, level);
        jinja_add(r, b, "]", 1);
        break;
    default: JINJA_FAIL(r, "Object of type %s is not JSON serializable", jinja_type_name(v));
    }
    r->depth--;
}

/* ------------------------------------------------------------------ time */
/*
 * Formats a time as datetime.now().strftime does, with the C library for each directive that both
 * have; others are refused. With a given time the microseconds are 0.
 */
jinja_value jinja_strftime(jinja_run *r, jinja_value self, jinja_args *a)
{
    (void)self;
    jinja_value format = a->pos[0];
    struct tm tm;
    struct timespec t = { 0 };
    if (format.kind != JV_STR)
        JINJA_FAIL(r, "strftime() argument 1 must be str, not %s", jinja_type_name(format));
    /* a fixed time, so that a render can be repeated */
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
        /* "%d", or with a flag "%-d" */
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
        /* others depend on the C library of the machine */
        if (!kind || !strchr("aAbBcdDeFgGhHIjklmMnpPrRStTuUVwWxXyYC%", kind))
            JINJA_UNSUPPORTED(r, "'%%%c' in strftime_now", kind ? kind : '0');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        jinja_add(r, &b, text, strftime(text, sizeof text, spec, &tm));
#pragma GCC diagnostic pop
    }
    return jinja_str_buf(r, &b);
}
