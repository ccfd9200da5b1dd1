/* The tests (after "is") and the filters (after "|") of templates, each with its table. */
#include "jinja.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARG(i) (a->pos[i])

/* Jinja's tests: what a template may write after "is". */

#define TEST(name) static jinja_value name(jinja_run *r, jinja_value self, jinja_args *a)

/* Whether the value has one of the kinds in a->how, a set of bits 1 << kind. */
#define KIND(word) (1 << JV_##word)
#define TEST_IS(name, truth)      \
    TEST(name)                    \
    {                             \
        (void)r, (void)a;         \
        return jinja_bool(truth); \
    }
TEST_IS(test_kind, (a->how & 1 << self.kind) != 0)
/* "is true" and "is false", by a->how: the value itself, where "is true" of 1 is false. */
TEST_IS(test_flag, self.kind == JV_BOOL && self.u.b == (a->how != 0))
TEST_IS(test_number, jinja_is_number(self))
TEST_IS(test_iterable, jinja_is_iterable(self))
/* a->how: the remainder of odd (1) or even (0), by 2, and of divisibleby, by its argument. */
TEST(test_remainder)
{
    jinja_value by = a->n ? ARG(0) : jinja_int(2);
    return jinja_bool(jinja_equal(r, jinja_binary(r, JOP_MOD, self, by), jinja_int(a->how)));
}
/* a->how: the operator. */
TEST_IS(test_compare, jinja_compare(r, (jinja_op)a->how, self, ARG(0)))
/*
 * Identity. In Python equal numbers or strings may or may not be one object; where the result would
 * depend on it, it is an error.
 */
TEST(test_sameas)
{
    jinja_value b = ARG(0);
    if (self.kind != b.kind) return jinja_bool(false);
    switch (self.kind) {
    case JV_NONE: return jinja_bool(true);
    case JV_BOOL: return jinja_bool(self.u.b == b.u.b);
    case JV_INT:
        if (self.u.i != b.u.i) return jinja_bool(false);
        if (self.u.i >= -5 && self.u.i <= 256)
            return jinja_bool(true); /* CPython keeps one of each */
        break;
    case JV_STR:
    case JV_FLOAT:
    case JV_BIG:
        if (!jinja_equal(r, self, b)) return jinja_bool(false);
        /* the same value of the template is one object for certain */
        if (self.kind == JV_STR && self.u.s == b.u.s) return jinja_bool(true);
        break;
    case JV_METHOD:
    case JV_UNDEFINED:
    case JV_TUPLE:
    case JV_RANGE: break;
    default: return jinja_bool(self.u.l == b.u.l);
    }
    JINJA_UNSUPPORTED(r, "sameas of two equal values of type %s", jinja_type_name(self));
}

static const jinja_builtin tests[] = {
    { "odd", test_remainder, "", .how = 1 },
    { "even", test_remainder, .spec = "" },
    { "divisibleby", test_remainder, .spec = "num" },
    { "defined", test_kind, "", .how = ~KIND(UNDEFINED) },
    { "undefined", test_kind, "", .how = KIND(UNDEFINED) },
    { "none", test_kind, "", .how = KIND(NONE) },
    { "boolean", test_kind, "", .how = KIND(BOOL) },
    { "false", test_flag, .spec = "" },
    { "true", test_flag, "", .how = true },
    { "integer", test_kind, "", .how = KIND(INT) | KIND(BIG) },
    { "float", test_kind, "", .how = KIND(FLOAT) },
    { "string", test_kind, "", .how = KIND(STR) },
    { "mapping", test_kind, "", .how = KIND(DICT) },
    { "number", test_number, .spec = "" },
    { "sequence", test_kind, "",
      .how = KIND(STR) | KIND(LIST) | KIND(TUPLE) | KIND(DICT) | KIND(RANGE) | KIND(UNDEFINED) },
    { "iterable", test_iterable, .spec = "" },
    { "callable", test_kind, "/",
      .how = KIND(UNDEFINED) | KIND(MACRO) | KIND(LOOP) | KIND(FUNC) | KIND(METHOD) },
    { "sameas", test_sameas, .spec = "other" },
    { "in", test_compare, "seq", .how = JOP_IN },
    { "==", test_compare, "/b", .how = JOP_EQ },
    { "eq", test_compare, "/b", .how = JOP_EQ },
    { "equalto", test_compare, "/b", .how = JOP_EQ },
    { "!=", test_compare, "/b", .how = JOP_NE },
    { "ne", test_compare, "/b", .how = JOP_NE },
    { ">", test_compare, "/b", .how = JOP_GT },
    { "gt", test_compare, "/b", .how = JOP_GT },
    { "greaterthan", test_compare, "/b", .how = JOP_GT },
    { "ge", test_compare, "/b", .how = JOP_GE },
    { ">=", test_compare, "/b", .how = JOP_GE },
    { "<", test_compare, "/b", .how = JOP_LT },
    { "lt", test_compare, "/b", .how = JOP_LT },
    { "lessthan", test_compare, "/b", .how = JOP_LT },
    { "<=", test_compare, "/b", .how = JOP_LE },
    { "le", test_compare, "/b", .how = JOP_LE },
};

const jinja_builtin *jinja_find_test(ares_view name)
{
    for (int i = 0; i < ARES_COUNT(tests); i++)
        if (ares_view_is(name, tests[i].name)) return &tests[i];
    return NULL;
}

/*
 * Filters. map, select, unique and the like are lazy and can be read once, as in Python: an error
 * in them appears only when they are read.
 */

/* Whether the argument was given, and whether as something other than None. */
#define GIVEN(i) (a->pos[i].kind != JV_MISSING)
#define SET(i) (a->pos[i].kind != JV_MISSING && a->pos[i].kind != JV_NONE)
#define FILTER(name) static jinja_value name(jinja_run *r, jinja_value self, jinja_args *a)

/* An optional argument as a flag; absent is false. */
static bool bool_arg(jinja_run *r, jinja_value v)
{
    return v.kind != JV_MISSING && jinja_truth(r, v);
}

/* str(v) without the mark of safe text. */
static jinja_value plain(jinja_run *r, jinja_value v)
{
    v = jinja_to_str(r, v);
    v.flag = 0;
    return v;
}

/* ---------------- attribute paths: "a.b.0", or a number */
typedef struct path {
    jinja_value *parts;
    int64_t n;
} path;

/* The parts of an attribute path; a part of digits is an index. No parts: the value itself. */
static path path_of(jinja_run *r, jinja_value v)
{
    path p = { 0 };
    if (v.kind == JV_MISSING || v.kind == JV_NONE) return p;
    /* map(attribute=0): an index */
    if (v.kind != JV_STR) {
        p.parts = jinja_alloc(r, sizeof *p.parts);
        *p.parts = v;
        p.n = 1;
        return p;
    }
    jinja_value dot = jinja_str_view(r, ".", 1),
                list = jinja_str_call(r, "split", plain(r, v), &dot, 1);
    /* split at dots */
    p = (path){ list.u.l->items, list.u.l->n };
    for (int64_t i = 0; i < p.n; i++) {
        int64_t number;
        bool digits = p.parts[i].u.s->len > 0;
        for (size_t k = 0; k < p.parts[i].u.s->len; k++) /* "a.0" -> "a", 0 */
            digits = digits && p.parts[i].u.s->data[k] >= '0' && p.parts[i].u.s->data[k] <= '9';
        if (digits && ares_parse_i64(jinja_text(p.parts[i]), &number))
            p.parts[i] = jinja_int(number);
    }
    return p;
}

/* The value at the path from v; where a step of it is undefined, `absent` takes its place. */
static jinja_value follow(jinja_run *r, path p, jinja_value v, jinja_value absent)
{
    for (int64_t i = 0; i < p.n; i++) {
        v = jinja_getitem(r, v, p.parts[i]);
        if (v.kind == JV_UNDEFINED && absent.kind != JV_MISSING && absent.kind != JV_NONE)
            v = absent;
    }
    return v;
}

/* The key to compare by: a text in lower case, unless case counts. */
static jinja_value folded(jinja_run *r, jinja_value v, bool case_sensitive)
{
    return case_sensitive || v.kind != JV_STR ? v : jinja_str_call(r, "lower", v, NULL, 0);
}

static const jinja_value missing = { .kind = JV_MISSING }; /* stands for an argument not given */

/* ------------------------------------------------------------------ text */
/* Filters that are a method of str, called with the text of the value: a->how says which. */
enum { UPPER, LOWER, CAPITALIZE, TRIM };
FILTER(filter_by_method)
{
    static const char *const methods[] = { "upper", "lower", "capitalize", "strip" };
    /* only trim declares an argument; for the others none is given */
    return jinja_str_call(r, methods[a->how], jinja_to_str(r, self), a->pos, GIVEN(0));
}
FILTER(filter_string)
{
    (void)a;
    return jinja_to_str(r, self);
}
FILTER(filter_escape)
{
    (void)a;
    return jinja_escape(r, self);
}
/* Marks the text as HTML that needs no escape. */
FILTER(filter_safe)
{
    (void)a;
    jinja_value v = jinja_to_str(r, self);
    v.flag = 1;
    return v;
}

/* As jinja2: a word begins after white space or one of - ( { [ <, and the rest is lower case. */
FILTER(filter_title)
{
    (void)a;
    jinja_value s = plain(r, self);
    ares_view t = jinja_text(s);
    jinja_buf b = { 0 };
    for (size_t i = 0; i < t.len;) {
        size_t from = i;
        uint32_t cp = 0;
        int k = 0;
        while (i < t.len && (k = jinja_decode(t.data + i, t.len - i, &cp),
                             !jinja_is_space(cp) && !(cp < 0x80 && cp && strchr("-({[<", (int)cp))))
            i += (size_t)k;
        if (i > from) {
            /* the first character in upper case, the rest in lower case */
            int first = jinja_decode(t.data + from, t.len - from, &cp);
            uint32_t out[3];
            int n = jinja_map_case(JINJA_UPPER, cp, out);
            for (int j = 0; j < n; j++) jinja_add_cp(r, &b, out[j]);
            jinja_value rest = jinja_str_view(r, t.data + from + first, i - from - (size_t)first);
            jinja_add_str(r, &b, jinja_str_call(r, "lower", rest, NULL, 0));
        } else {
            jinja_add(r, &b, t.data + i, (size_t)k);
            i += (size_t)k;
        }
    }
    return jinja_str_buf(r, &b);
}

/* The count None means all, as in jinja2. */
FILTER(filter_replace)
{
    jinja_value args[3] = { plain(r, ARG(0)), plain(r, ARG(1)), SET(2) ? ARG(2) : jinja_int(-1) };
    return jinja_str_call(r, "replace", plain(r, self), args, 3);
}

/* [1, 2] | join(", ") -> "1, 2"; attribute: that of each item. */
FILTER(filter_join)
{
    jinja_value d = GIVEN(0) ? plain(r, ARG(0)) : jinja_str_view(r, "", 0);
    path p = path_of(r, ARG(1));
    if (!jinja_is_iterable(self)) JINJA_FAIL(r, "can only join an iterable");
    jinja_iter *it = jinja_iterate(r, self);
    jinja_buf b = { 0 };
    bool first = true;
    for (jinja_value v; it->next(r, it, &v); first = false) {
        if (!first) jinja_add_str(r, &b, d);
        jinja_add_str(r, &b, follow(r, p, v, missing));
    }
    return jinja_str_buf(r, &b);
}

/* Indents all lines but the first and empty ones; width: a number of spaces, or the text itself. */
FILTER(filter_indent)
{
    if (self.kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", self.u.hint);
    if (self.kind != JV_STR) JINJA_FAIL(r, "indent() needs a str, not %s", jinja_type_name(self));
    if (self.flag) JINJA_UNSUPPORTED(r, "indent of text marked safe");
    /* by: what each line begins with */
    jinja_buf by = { 0 }, b = { 0 };
    if (GIVEN(0) && ARG(0).kind == JV_STR) jinja_add_str(r, &by, ARG(0));
    else jinja_add_repeat(r, &by, " ", 1, jinja_int_arg(r, ARG(0), 4));
    /* whether the first line and empty lines are indented too */
    bool first = bool_arg(r, ARG(1)), blank = bool_arg(r, ARG(2));
    /* as jinja2 does: with this newline, splitlines keeps an empty last line */
    jinja_value text = jinja_binary(r, JOP_ADD, self, jinja_str_view(r, "\n", 1));
    jinja_value lines = jinja_str_call(r, "splitlines", text, NULL, 0);
    for (int64_t i = 0; i < lines.u.l->n; i++) {
        jinja_value line = lines.u.l->items[i];
        if (i) jinja_add(r, &b, "\n", 1);
        if (i ? blank || line.u.s->len : first) jinja_add(r, &b, by.data ? by.data : "", by.len);
        jinja_add_str(r, &b, line);
    }
    return jinja_str_buf(r, &b);
}

/*
 * transformers' tojson: json.dumps with the arguments ensure_ascii, indent, separators, sort_keys.
 */
FILTER(filter_tojson)
{
    jinja_buf b = { 0 }, by = { 0 };
    jinja_value item = jinja_str_view(r, ", ", 2), key = jinja_str_view(r, ": ", 2);
    bool pretty = SET(1);
    /* with an indent the default separator has no space: the line ends after it */
    if (pretty) {
        if (ARG(1).kind == JV_STR) jinja_add_str(r, &by, ARG(1));
        else jinja_add_repeat(r, &by, " ", 1, jinja_int_arg(r, ARG(1), 0));
        item = jinja_str_view(r, ",", 1);
    }
    /* separators=(",", ":"), between items and after keys */
    if (SET(2)) {
        jinja_value pair = jinja_to_list(r, ARG(2));
        if (pair.u.l->n != 2 || pair.u.l->items[0].kind != JV_STR ||
            pair.u.l->items[1].kind != JV_STR)
            JINJA_FAIL(r, "tojson: separators must be two strings");
        item = pair.u.l->items[0], key = pair.u.l->items[1];
    }
    bool ascii = bool_arg(r, ARG(0)), sort = bool_arg(r, ARG(3));
    jinja_add_json(r, &b, self,
                   &(jinja_json_style){ .ascii = ascii,
                                        .sort = sort,
                                        .pretty = pretty,
                                        .indent = { by.data ? by.data : "", by.len },
                                        .item = jinja_text(item),
                                        .key = jinja_text(key) },
                   0);
    return jinja_str_buf(r, &b);
}

/* jinja2's own tojson: escaped for HTML, ASCII, sorted keys. */
FILTER(filter_tojson_html)
{
    /* ensure_ascii, indent, separators, sort_keys */
    jinja_value args[4] = { jinja_bool(true), ARG(0), missing, jinja_bool(true) }, out;
    jinja_args all = { .pos = args, .n = 4 };
    ares_view t = jinja_text(filter_tojson(r, self, &all));
    jinja_buf b = { 0 };
    for (size_t i = 0; i < t.len; i++) {
        char c = t.data[i], escaped[8];
        /* so that the text cannot end a script element of HTML */
        bool unsafe = c == '<' || c == '>' || c == '&' || c == '\'';
        if (unsafe) snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)c);
        jinja_add(r, &b, unsafe ? escaped : &c, unsafe ? 6 : 1);
    }
    out = jinja_str_buf(r, &b);
    out.flag = 1;
    return out;
}

/* ------------------------------------------------------------------ numbers */

/* Python int(v) of a number, toward zero: -1.9 -> -1. *ok: v is a number other than NaN. */
static jinja_value int_of(jinja_run *r, jinja_value v, bool *ok)
{
    int64_t i;
    *ok = true;
    if (v.kind == JV_BIG) return v;
    if (jinja_as_index(v, &i)) return jinja_int(i);
    *ok = v.kind == JV_FLOAT && !isnan(v.u.f);
    if (!*ok) return v;
    /* as Python says it */
    if (isinf(v.u.f)) JINJA_FAIL(r, "cannot convert float infinity to integer");
    /* INT64_MAX is 9.22e18 */
    if (fabs(v.u.f) >= 9.2e18) JINJA_UNSUPPORTED(r, "an integer beyond 64 bits");
    return jinja_int((int64_t)v.u.f);
}

/*
 * Python's int() and float() read the digits of any script; we read ASCII's and refuse the others.
 */
static void refuse_other_digits(jinja_run *r, ares_view s)
{
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        i += (size_t)jinja_decode(s.data + i, s.len - i, &cp);
        if (cp >= 0x80 && jinja_is_decimal(cp))
            JINJA_UNSUPPORTED(r, "a number in digits other than 0 to 9");
    }
}

/*
 * False: int() would raise ValueError. The grammar is that of Python: white space around, a sign, a
 * prefix that fits the base, single underscores between digits.
 */
static bool parse_int(jinja_run *r, ares_view s, int base, jinja_value *out)
{
    if (base != 0 && (base < 2 || base > 36)) return false;
    jinja_work(r, s.len);
    refuse_other_digits(r, s);
    s = jinja_strip(s);
    bool negative = s.len && s.data[0] == '-', big = false, any = false;
    size_t i = s.len && (s.data[0] == '-' || s.data[0] == '+');
    /* base 0: the prefix decides, else 10; "0x1f" -> 31 */
    bool prefixed = false, zero_based = base == 0;
    if (i + 1 < s.len && s.data[i] == '0') {
        char mark = (char)(s.data[i + 1] | 32);
        int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
        if (marked && (base == 0 || base == marked)) base = marked, i += 2, prefixed = true;
    }
    if (base == 0) base = 10;
    size_t first = i;
    /* "0x_1f" is allowed, "_1f" is not */
    if (prefixed && i < s.len && s.data[i] == '_') i++;
    int64_t v = 0;
    bool under = false, nonzero = false;
    for (; i < s.len; i++) {
        char c = s.data[i];
        if (c == '_') {
            if (under || !any) return false;
            under = true;
            continue;
        }
        /* 99: no digit of any base */
        int d = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10
                                                     : 99;
        if (d >= base) return false;
        /* an underscore may follow this digit */
        under = false, any = true, nonzero |= d != 0;
        /* negative: reaches INT64_MIN */
        big = big || __builtin_mul_overflow(v, base, &v) || __builtin_sub_overflow(v, d, &v);
    }
    if (!any || under) return false;
    /* "010" in base 0 */
    if (zero_based && !prefixed && s.data[first] == '0' && nonzero) return false;
    if (big || (!negative && v == INT64_MIN))
        JINJA_UNSUPPORTED(r, "an integer beyond 64 bits from text");
    *out = jinja_int(negative ? v : -v);
    return true;
}

/*
 * False: float() would raise ValueError. strtod alone would take hexadecimal numbers, and no
 * underscores.
 */
static bool parse_float(jinja_run *r, ares_view s, double *out)
{
    jinja_work(r, s.len);
    refuse_other_digits(r, s);
    s = jinja_strip(s);
    /* without underscores, and with a NUL for strtod */
    char *text = jinja_alloc(r, s.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        if (c == '_') {
            if (i == 0 || i + 1 >= s.len || s.data[i - 1] < '0' || s.data[i - 1] > '9' ||
                s.data[i + 1] < '0' || s.data[i + 1] > '9')
                return false;
            continue;
        }
        text[n++] = c;
    }
    text[n] = 0;
    const char *p = text + (text[0] == '-' || text[0] == '+');
    /* in whatever case, as Python reads them */
    static const char *const words[] = { "inf", "infinity", "nan" };
    for (int w = 0; w < ARES_COUNT(words); w++) {
        size_t len = strlen(words[w]), i = 0;
        while (i < len && (p[i] | 32) == words[w][i]) i++;
        if (i == len && p + len == text + n) {
            *out = w == 2 ? NAN : text[0] == '-' ? -INFINITY : INFINITY;
            return true;
        }
    }
    /* digits [. digits] [e [sign] digits], with at least one digit before the e */
    size_t digits = 0;
    const char *q = p;
    while (*q >= '0' && *q <= '9') q++, digits++;
    if (*q == '.')
        for (q++; *q >= '0' && *q <= '9'; q++) digits++;
    if (!digits) return false;
    if ((*q | 32) == 'e') {
        q++;
        if (*q == '-' || *q == '+') q++;
        if (*q < '0' || *q > '9') return false;
        while (*q >= '0' && *q <= '9') q++;
    }
    if (q != text + n) return false;
    *out = strtod(text, NULL);
    return true;
}

/* "3.7" | int -> 3; what is no number gives the default. */
FILTER(filter_int)
{
    jinja_value v, absent = GIVEN(0) ? ARG(0) : jinja_int(0);
    bool ok;
    double x;
    if (self.kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", self.u.hint);
    if (self.kind != JV_STR) {
        v = int_of(r, self, &ok);
        return ok ? v : absent;
    }
    /* of the text: "0x1f" | int(0, 16) is 31 */
    int64_t base = jinja_int_arg(r, ARG(1), 10);
    if (base >= 0 && base <= 36 && parse_int(r, jinja_text(self), (int)base, &v)) return v;
    /* "1.5" is 1: jinja2 tries int(float(text)) where int(text) fails */
    if (!parse_float(r, jinja_text(self), &x) || !isfinite(x)) return absent;
    return int_of(r, jinja_float(x), &ok);
}

FILTER(filter_float)
{
    double x;
    if (self.kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", self.u.hint);
    if (jinja_is_number(self)) return jinja_float(jinja_as_double(r, self));
    if (self.kind == JV_STR && parse_float(r, jinja_text(self), &x)) return jinja_float(x);
    return GIVEN(0) ? ARG(0) : jinja_float(0);
}

/* Python abs(v). */
FILTER(filter_abs)
{
    (void)a;
    int64_t i;
    if (self.kind == JV_FLOAT) return jinja_float(fabs(self.u.f));
    if (self.kind == JV_BIG) JINJA_UNSUPPORTED(r, "arithmetic beyond 64-bit integers");
    if (!jinja_as_index(self, &i))
        JINJA_FAIL(r, "bad operand type for abs(): '%s'", jinja_type_name(self));
    return i < 0 ? jinja_negate(r, jinja_int(i)) : jinja_int(i);
}

/* Python's round() of an int to tens, hundreds ...: half to even. */
static jinja_value round_int(jinja_run *r, int64_t i, int64_t digits)
{
    /* an int has no digits after its point */
    if (digits >= 0) return jinja_int(i);
    if (digits < -18)
        return digits < -19 ? jinja_int(0)
                            : (JINJA_UNSUPPORTED(r, "rounding to so many digits"), jinja_none());
    int64_t unit = 1;
    for (int64_t k = 0; k < -digits; k++) unit *= 10;
    int64_t rest = i % unit, low;
    if (rest < 0) rest += unit;
    if (__builtin_sub_overflow(i, rest, &low))
        JINJA_UNSUPPORTED(r, "arithmetic beyond 64-bit integers");
    bool up = rest > unit - rest || (rest == unit - rest && (low / unit) % 2 != 0);
    if (up && __builtin_add_overflow(low, unit, &low))
        JINJA_UNSUPPORTED(r, "arithmetic beyond 64-bit integers");
    return jinja_int(low);
}

/* method: common (Python round), ceil or floor; the result of the last two is a float too. */
FILTER(filter_round)
{
    int64_t i;
    ares_view method = GIVEN(1) && ARG(1).kind == JV_STR ? jinja_text(ARG(1)) : ARES_VIEW("common");
    if (!ares_view_is(method, "common") && !ares_view_is(method, "ceil") &&
        !ares_view_is(method, "floor"))
        JINJA_FAIL(r, "method must be common, ceil or floor");
    if (GIVEN(1) && ARG(1).kind != JV_STR) JINJA_FAIL(r, "method must be common, ceil or floor");
    if (ares_view_is(method, "common")) {
        /* round(x, None) gives an int in Python */
        bool whole = GIVEN(0) && ARG(0).kind == JV_NONE;
        int64_t digits = whole ? 0 : jinja_int_arg(r, ARG(0), 0);
        if (jinja_as_index(self, &i)) return round_int(r, i, digits);
        if (self.kind != JV_FLOAT)
            JINJA_FAIL(r, "type %s doesn't define __round__ method", jinja_type_name(self));
        if (whole) JINJA_UNSUPPORTED(r, "round to None digits");
        double x = self.u.f;
        /* nothing to round: a double has no digits there */
        if (!isfinite(x) || digits > 330) return self;
        if (digits < 0) {
            if (digits < -308) return jinja_float(copysign(0.0, x));
            if (x != floor(x) || fabs(x) >= 9e15)
                JINJA_UNSUPPORTED(r, "rounding this float to tens");
            return jinja_float(copysign((double)round_int(r, (int64_t)x, digits).u.i, x));
        }
        /* printf rounds the exact decimal value half to even, as Python's round() does */
        char text[700];
        snprintf(text, sizeof text, "%.*f", (int)digits, x);
        return jinja_float(strtod(text, NULL));
    }
    /* ceil and floor as jinja2 writes them: func(value * 10 ** precision) / 10 ** precision */
    jinja_value scale = jinja_power(r, jinja_int(10), GIVEN(0) ? ARG(0) : jinja_int(0));
    jinja_value scaled = jinja_binary(r, JOP_MUL, self, scale);
    if (scaled.kind == JV_FLOAT) {
        double x = ares_view_is(method, "ceil") ? ceil(scaled.u.f) : floor(scaled.u.f);
        if (!isfinite(x))
            JINJA_FAIL(r, "cannot convert float %s to integer", isnan(x) ? "NaN" : "infinity");
        if (fabs(x) >= 9e15) JINJA_UNSUPPORTED(r, "arithmetic beyond 64-bit integers");
        scaled = jinja_int((int64_t)x);
    } else if (!jinja_is_number(scaled)) {
        JINJA_FAIL(r, "must be real number, not %s", jinja_type_name(scaled));
    }
    return jinja_binary(r, JOP_DIV, scaled, scale);
}

/* ------------------------------------------------------------------ sequences */
FILTER(filter_length)
{
    (void)a;
    return jinja_int(jinja_len(r, self));
}
FILTER(filter_list)
{
    (void)a;
    return jinja_to_list(r, self);
}

/* Undefined values, and where boolean is true all false ones, become the default. */
FILTER(filter_default)
{
    if (self.kind != JV_UNDEFINED && !(bool_arg(r, ARG(1)) && !jinja_truth(r, self))) return self;
    return GIVEN(0) ? ARG(0) : jinja_str_view(r, "", 0);
}

/* An empty sequence gives an undefined value, not an error. */
FILTER(filter_first)
{
    (void)a;
    jinja_iter *it = jinja_iterate(r, self);
    jinja_value v;
    return it->next(r, it, &v) ? v : jinja_undefined("No first item, sequence was empty.");
}

/* The last item; a generator cannot be read from its end. */
FILTER(filter_last)
{
    (void)a;
    /* as Python's reversed(v), which refuses generators */
    if (self.kind == JV_ITER || !jinja_is_iterable(self))
        JINJA_FAIL(r, "'%s' object is not reversible", jinja_type_name(self));
    jinja_value v = jinja_to_list(r, self);
    return v.u.l->n ? v.u.l->items[v.u.l->n - 1]
                    : jinja_undefined("No last item, sequence was empty.");
}

FILTER(filter_reverse)
{
    (void)a;
    /* "abc" | reverse -> "cba" */
    if (self.kind == JV_STR) return jinja_slice(r, self, jinja_none(), jinja_none(), jinja_int(-1));
    if (!jinja_is_iterable(self)) JINJA_FAIL(r, "argument must be iterable");
    jinja_value v = jinja_to_list(r, self);
    for (int64_t i = 0, j = v.u.l->n - 1; i < j; i++, j--) {
        jinja_value t = v.u.l->items[i];
        v.u.l->items[i] = v.u.l->items[j], v.u.l->items[j] = t;
    }
    /* jinja2 gives a reversed list for what it has to read, and an iterator for the others */
    return self.kind == JV_ITER ? v : jinja_iter_of_list(r, v);
}

/* The (key, value) tuples of a dict; of an undefined value none. */
FILTER(filter_items)
{
    (void)a;
    if (self.kind == JV_UNDEFINED) return jinja_iter_of_list(r, jinja_list_new(r, 0, JV_LIST));
    if (self.kind != JV_DICT) JINJA_FAIL(r, "Can only get item pairs from a mapping.");
    jinja_value view = { .kind = JV_VIEW, .flag = 'i', .u.d = self.u.d };
    return (jinja_value){ .kind = JV_ITER, .u.it = jinja_iterate(r, view) };
}

/* The (key, value) tuples of a dict, sorted by key or value. */
FILTER(filter_dictsort)
{
    /* 0: key, 1: value */
    int by = !GIVEN(1)                                                            ? 0
             : ARG(1).kind == JV_STR && ares_view_is(jinja_text(ARG(1)), "key")   ? 0
             : ARG(1).kind == JV_STR && ares_view_is(jinja_text(ARG(1)), "value") ? 1
                                                                                  : -1;
    if (by < 0) JINJA_FAIL(r, "You can only sort by either \"key\" or \"value\"");
    if (self.kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", self.u.hint);
    if (self.kind != JV_DICT)
        JINJA_FAIL(r, "'%s' object has no attribute 'items'", jinja_type_name(self));
    const jinja_dict *d = self.u.d;
    jinja_value list = jinja_list_new(r, d->n, JV_LIST), keys = jinja_list_new(r, d->n, JV_LIST);
    for (int64_t i = 0; i < d->n; i++) {
        jinja_value pair = jinja_list_new(r, 2, JV_TUPLE);
        pair.u.l->items[0] = d->items[i].key, pair.u.l->items[1] = d->items[i].value;
        list.u.l->items[i] = pair;
        keys.u.l->items[i] =
            folded(r, by ? d->items[i].value : d->items[i].key, bool_arg(r, ARG(0)));
    }
    jinja_sort(r, keys.u.l->items, list.u.l->items, d->n, bool_arg(r, ARG(2)));
    return list;
}

/* Sorts by a list of keys per item, one per attribute in "a,b.c". */
FILTER(filter_sort)
{
    jinja_value list = jinja_to_list(r, self), keys = jinja_list_new(r, list.u.l->n, JV_LIST);
    jinja_value names = jinja_list_new(r, 1, JV_LIST);
    /* None, a number or one path: a key of one part */
    names.u.l->items[0] = ARG(2);
    if (SET(2) && ARG(2).kind == JV_STR) {
        jinja_value comma = jinja_str_view(r, ",", 1);
        names = jinja_str_call(r, "split", plain(r, ARG(2)), &comma, 1);
    }
    int64_t n = names.u.l->n;
    /* one per attribute, parsed once */
    path *paths = jinja_alloc(r, (size_t)n * sizeof *paths);
    for (int64_t k = 0; k < n; k++) paths[k] = path_of(r, names.u.l->items[k]);
    for (int64_t i = 0; i < list.u.l->n; i++) {
        jinja_value key = jinja_list_new(r, n, JV_LIST);
        for (int64_t k = 0; k < n; k++)
            key.u.l->items[k] =
                folded(r, follow(r, paths[k], list.u.l->items[i], missing), bool_arg(r, ARG(1)));
        keys.u.l->items[i] = key;
    }
    jinja_sort(r, keys.u.l->items, list.u.l->items, list.u.l->n, bool_arg(r, ARG(0)));
    return list;
}

/* min, and with a->how set max: the first of equal items. */
FILTER(filter_min)
{
    bool most = a->how;
    jinja_iter *it = jinja_iterate(r, self);
    path p = path_of(r, ARG(1));
    jinja_value best, v, best_key, key;
    /* an empty sequence has no least item */
    if (!it->next(r, it, &best)) return jinja_undefined("No aggregated item, sequence was empty.");
    best_key = folded(r, follow(r, p, best, missing), bool_arg(r, ARG(0)));
    while (it->next(r, it, &v)) {
        key = folded(r, follow(r, p, v, missing), bool_arg(r, ARG(0)));
        if (jinja_compare(r, most ? JOP_GT : JOP_LT, key, best_key)) best = v, best_key = key;
    }
    return best;
}

/* start + the items, or an attribute of each. */
FILTER(filter_sum)
{
    path p = path_of(r, ARG(0));
    jinja_value total = GIVEN(1) ? ARG(1) : jinja_int(0), v;
    jinja_iter *it = jinja_iterate(r, self);
    /* as Python: texts are joined, not summed */
    if (total.kind == JV_STR) JINJA_FAIL(r, "sum() can't sum strings [use ''.join(seq) instead]");
    while (it->next(r, it, &v)) total = jinja_binary(r, JOP_ADD, total, follow(r, p, v, missing));
    return total;
}

/* ------------------------------------------------------------------ lazy ones */
typedef struct lazy {
    jinja_args args;
    bool attribute, negate; /* selectattr, rejectattr; reject, rejectattr */
    bool ready;             /* args have been read, which waits for the first item */
    const jinja_builtin *f; /* filter or test; NULL: the path alone */
    path p;
    jinja_value absent; /* map's default */
    jinja_iter *from;
    jinja_dict *seen; /* unique: the keys so far */
    bool case_sensitive;
} lazy;

/* The iterator of a lazy filter, with a copy of its state. */
static jinja_value lazy_new(jinja_run *r, bool (*next)(jinja_run *, jinja_iter *, jinja_value *),
                            jinja_value self, lazy state)
{
    lazy *z = jinja_alloc(r, sizeof *z);
    *z = state;
    return jinja_iter_new(r, next, self, z);
}

/* Opens the sequence at the first read; a false value counts as an empty one. */
static bool opened(jinja_run *r, jinja_iter *it, lazy *z)
{
    /* asked at the first item, when the iterator is read */
    if (!z->from && !jinja_truth(r, it->over)) return false;
    if (!z->from) z->from = jinja_iterate(r, it->over);
    return true;
}

/* Applies the filter or test with the arguments after the first `skip`. */
static jinja_value apply_to(jinja_run *r, const lazy *z, jinja_value item, int64_t skip)
{
    jinja_args rest = z->args;
    /* the name of the filter or test stands first */
    rest.pos += skip, rest.n -= skip;
    jinja_enter(r);
    jinja_value v = jinja_apply(r, z->f, item, &rest);
    r->depth--;
    return v;
}

/* The filter or test of this name. */
static const jinja_builtin *named(jinja_run *r, jinja_value name, bool filter)
{
    const jinja_builtin *f = name.kind != JV_STR ? NULL
                             : filter ? jinja_find_filter(jinja_text(name), r->t->dialect)
                                      : jinja_find_test(jinja_text(name));
    if (f) return f;
    if (name.kind != JV_STR)
        JINJA_FAIL(r, "No %s named by this value.", filter ? "filter" : "test");
    JINJA_FAIL(r, "No %s named '%.*s'.", filter ? "filter" : "test",
               (int)ARES_MIN(name.u.s->len, 80), name.u.s->data);
}

static bool next_mapped(jinja_run *r, jinja_iter *it, jinja_value *out)
{
    lazy *z = it->extra;
    if (!opened(r, it, z)) return false;
    if (!z->ready) {
        z->ready = true;
        z->absent = missing;
        /* map(attribute="a.b", default=x) */
        if (z->args.n == 0) {
            bool found = false;
            for (int64_t i = 0; i < z->args.n_kw; i++)
                if (ares_view_is(z->args.kw[i].name, "attribute"))
                    z->p = path_of(r, z->args.kw[i].value), found = true;
            if (!found) JINJA_FAIL(r, "map requires a filter argument");
            for (int64_t i = 0; i < z->args.n_kw; i++) {
                if (ares_view_is(z->args.kw[i].name, "attribute")) continue;
                if (!ares_view_is(z->args.kw[i].name, "default"))
                    JINJA_FAIL(r, "Unexpected keyword argument in map");
                z->absent = z->args.kw[i].value;
            }
        } else {
            /* map("upper"): the name of a filter, then its arguments */
            z->f = named(r, z->args.pos[0], true);
        }
    }
    jinja_value item;
    if (!z->from->next(r, z->from, &item)) return false;
    *out = z->f ? apply_to(r, z, item, 1) : follow(r, z->p, item, z->absent);
    return true;
}

static bool next_selected(jinja_run *r, jinja_iter *it, jinja_value *out)
{
    lazy *z = it->extra;
    if (!opened(r, it, z)) return false;
    /* selectattr names an attribute before the test */
    int64_t skip = z->attribute;
    if (!z->ready) {
        z->ready = true;
        /* not before the first item: an empty list is no error */
        if (z->attribute && z->args.n == 0) JINJA_FAIL(r, "Missing parameter for attribute name");
        if (z->attribute) z->p = path_of(r, z->args.pos[0]);
        if (z->args.n > skip) z->f = named(r, z->args.pos[skip], false);
    }
    while (z->from->next(r, z->from, out)) {
        jinja_value v = follow(r, z->p, *out, missing);
        /* without a test the value itself is one */
        if (jinja_truth(r, z->f ? apply_to(r, z, v, skip + 1) : v) != z->negate) return true;
    }
    return false;
}

static bool next_unique(jinja_run *r, jinja_iter *it, jinja_value *out)
{
    lazy *z = it->extra;
    if (!z->from) z->from = jinja_iterate(r, it->over), z->seen = jinja_dict_new(r);
    while (z->from->next(r, z->from, out)) {
        jinja_value key = folded(r, follow(r, z->p, *out, missing), z->case_sensitive);
        /* only the first of equal items is given */
        if (jinja_dict_find(r, z->seen, key)) continue;
        jinja_dict_put(r, z->seen, key, jinja_none());
        return true;
    }
    return false;
}

/* All arguments are looked at when the first item is read, as in jinja2. */
FILTER(filter_map)
{
    return lazy_new(r, next_mapped, self, (lazy){ .args = *a });
}
/* select, reject, selectattr and rejectattr: a->how has a bit for each half of the name. */
enum { ATTRIBUTE = 1, NEGATE = 2 };
FILTER(filter_select)
{
    return lazy_new(r, next_selected, self,
                    (lazy){ .args = *a,
                            .attribute = (a->how & ATTRIBUTE) != 0,
                            .negate = (a->how & NEGATE) != 0 });
}
FILTER(filter_unique)
{
    return lazy_new(r, next_unique, self,
                    (lazy){ .p = path_of(r, ARG(1)), .case_sensitive = bool_arg(r, ARG(0)) });
}

/* ------------------------------------------------------------------ the table */
static const jinja_builtin filters[] = {
    { "abs", filter_abs, .spec = "/" },
    { "capitalize", filter_by_method, "", .how = CAPITALIZE },
    { "count", filter_length, .spec = "/" },
    { "d", filter_default, .spec = "|default_value boolean" },
    { "default", filter_default, .spec = "|default_value boolean" },
    { "dictsort", filter_dictsort, .spec = "|case_sensitive by reverse" },
    { "e", filter_escape, .spec = "/" },
    { "escape", filter_escape, .spec = "/" },
    { "first", filter_first, .spec = "" },
    { "float", filter_float, .spec = "|default" },
    { "indent", filter_indent, .spec = "|width first blank" },
    { "int", filter_int, .spec = "|default base" },
    { "items", filter_items, .spec = "" },
    { "join", filter_join, .spec = "|d attribute" },
    { "last", filter_last, .spec = "" },
    { "length", filter_length, .spec = "/" },
    { "list", filter_list, .spec = "" },
    { "lower", filter_by_method, "", .how = LOWER },
    { "map", filter_map, .spec = "*" },
    { "max", filter_min, "|case_sensitive attribute", .how = true },
    { "min", filter_min, .spec = "|case_sensitive attribute" },
    { "reject", filter_select, "*", .how = NEGATE },
    { "rejectattr", filter_select, "*", .how = ATTRIBUTE | NEGATE },
    { "replace", filter_replace, .spec = "old new|count" },
    { "reverse", filter_reverse, .spec = "" },
    { "round", filter_round, .spec = "|precision method" },
    { "safe", filter_safe, .spec = "" },
    { "select", filter_select, .spec = "*" },
    { "selectattr", filter_select, "*", .how = ATTRIBUTE },
    { "sort", filter_sort, .spec = "|reverse case_sensitive attribute" },
    { "string", filter_string, .spec = "" },
    { "sum", filter_sum, .spec = "|attribute start" },
    { "title", filter_title, .spec = "" },
    { "trim", filter_by_method, "|chars", .how = TRIM },
    { "unique", filter_unique, .spec = "|case_sensitive attribute" },
    { "upper", filter_by_method, "", .how = UPPER },
};

/* tojson differs: transformers replaces that of jinja2. */
const jinja_builtin *jinja_find_filter(ares_view name, template_dialect dialect)
{
    static const jinja_builtin tojson[] = {
        [TEMPLATE_CHAT] = { "tojson", filter_tojson,
                            .spec = "|ensure_ascii indent separators sort_keys" },
        [TEMPLATE_PLAIN] = { "tojson", filter_tojson_html, .spec = "|indent" },
    };
    if (ares_view_is(name, "tojson")) return &tojson[dialect];
    for (int i = 0; i < ARES_COUNT(filters); i++)
        if (ares_view_is(name, filters[i].name)) return &filters[i];
    return NULL;
}
