/* Truth, numbers, equality and order of values, as in Python. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jinja.h"

bool jinja_truth(jinja_run *r, jinja_value v)
{
    switch (v.kind) {
    case JV_MISSING:
    case JV_UNDEFINED:
    case JV_NONE: return false;
    case JV_BOOL: return v.u.b;
    case JV_INT: return v.u.i != 0;
    case JV_FLOAT: return v.u.f != 0;
    case JV_STR: return v.u.s->len > 0;
    case JV_LIST:
    case JV_TUPLE: return v.u.l->n > 0;
    case JV_DICT:
    case JV_VIEW: return v.u.d->n > 0;
    case JV_RANGE: return v.u.r->n > 0;
    case JV_LOOP: return jinja_loop_length(r, v.u.loop) > 0;
    default: return true;
    }
}

bool jinja_is_number(jinja_value v)
{
    return v.kind == JV_BOOL || v.kind == JV_INT || v.kind == JV_FLOAT || v.kind == JV_BIG;
}

bool jinja_as_index(jinja_value v, int64_t *out)
{
    if (v.kind != JV_BOOL && v.kind != JV_INT) return false;
    *out = v.kind == JV_BOOL ? v.u.b : v.u.i;
    return true;
}

int64_t jinja_int_arg(jinja_run *r, jinja_value v, int64_t absent)
{
    int64_t i;
    if (v.kind == JV_MISSING) return absent;
    if (!jinja_as_index(v, &i))
        JINJA_FAIL(r, "'%s' object cannot be interpreted as an integer", jinja_type_name(v));
    return i;
}

double jinja_as_double(jinja_run *r, jinja_value v)
{
    if (v.kind == JV_BOOL) return v.u.b;
    if (v.kind == JV_INT) return (double)v.u.i;
    if (v.kind == JV_FLOAT) return v.u.f;
    if (v.kind != JV_BIG) JINJA_FAIL(r, "must be real number, not %s", jinja_type_name(v));
    double x = strtod(v.u.s->data, NULL);
    if (isinf(x)) JINJA_FAIL(r, "int too large to convert to float");
    return x;
}

static int order_big(ares_view a, ares_view b)
{
    bool na = a.data[0] == '-', nb = b.data[0] == '-';
    if (na != nb) return na ? -1 : 1;
    int c = a.len != b.len ? (a.len < b.len ? -1 : 1) : memcmp(a.data, b.data, a.len);
    c = c < 0 ? -1 : c > 0;
    return na ? -c : c;
}

/* Numbers: -1, 0, 1, or 2 when one is NaN. long double holds every int64 and every double. */
static int order_numbers(jinja_run *r, jinja_value a, jinja_value b)
{
    if (a.kind == JV_BIG || b.kind == JV_BIG) {
        if (a.kind == JV_FLOAT || b.kind == JV_FLOAT)
            JINJA_UNSUPPORTED(r, "comparing a float with an integer beyond 64 bits");
        if (a.kind == JV_BIG && b.kind == JV_BIG) return order_big(jinja_text(a), jinja_text(b));
        return a.kind == JV_BIG ? (a.u.s->data[0] == '-' ? -1 : 1)
                                : (b.u.s->data[0] == '-' ? 1 : -1);
    }
    int64_t i = 0, j = 0;
    bool whole = jinja_as_index(a, &i);
    if (jinja_as_index(b, &j) && whole) return i < j ? -1 : i > j;
    long double x = a.kind == JV_FLOAT ? (long double)a.u.f : (long double)i;
    long double y = b.kind == JV_FLOAT ? (long double)b.u.f : (long double)j;
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

static bool same_object(jinja_value a, jinja_value b)
{
    return a.kind == b.kind && a.kind != JV_FLOAT && a.kind != JV_BOOL && a.kind != JV_METHOD &&
           a.u.l == b.u.l;
}

static bool equal_dicts(jinja_run *r, const jinja_dict *a, const jinja_dict *b)
{
    if (a->n != b->n) return false;
    for (int64_t i = 0; i < a->n; i++) {
        jinja_value *other = jinja_dict_find(r, b, a->items[i].key);
        if (!other || !jinja_equal(r, a->items[i].value, *other)) return false;
    }
    return true;
}

bool jinja_equal(jinja_run *r, jinja_value a, jinja_value b)
{
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if ((a.kind == JV_BIG) != (b.kind == JV_BIG) && a.kind != JV_FLOAT && b.kind != JV_FLOAT)
            return false;
        return order_numbers(r, a, b) == 0;
    }
    if (a.kind != b.kind) {
        if ((a.kind == JV_VIEW || b.kind == JV_VIEW)) return false;
        return false;
    }
    if (a.kind == JV_STR) {
        jinja_work(r, ARES_MIN(a.u.s->len, b.u.s->len));
        return ares_view_eq(jinja_text(a), jinja_text(b));
    }
    if (a.kind == JV_NONE || a.kind == JV_UNDEFINED) return true;
    if (a.kind == JV_VIEW) JINJA_UNSUPPORTED(r, "comparing two dict views");
    if (same_object(a, b)) return true;
    bool same = false;
    jinja_enter(r);
    switch (a.kind) {
    case JV_LIST:
    case JV_TUPLE:
        same = a.u.l->n == b.u.l->n;
        for (int64_t i = 0; same && i < a.u.l->n; i++)
            same = jinja_equal(r, a.u.l->items[i], b.u.l->items[i]);
        break;
    case JV_DICT: same = equal_dicts(r, a.u.d, b.u.d); break;
    case JV_RANGE:
        same = a.u.r->n == b.u.r->n &&
               (a.u.r->n == 0 ||
                (a.u.r->start == b.u.r->start && (a.u.r->n == 1 || a.u.r->step == b.u.r->step)));
        break;
    case JV_METHOD: JINJA_UNSUPPORTED(r, "comparing two methods");
    default: break;
    }
    r->depth--;
    return same;
}

int jinja_order(jinja_run *r, jinja_value a, jinja_value b, jinja_op op)
{
    static const char *const words[] = { "==", "!=", "<", "<=", ">", ">=" };
    if (jinja_is_number(a) && jinja_is_number(b)) return order_numbers(r, a, b);
    if (a.kind == JV_STR && b.kind == JV_STR) {
        size_t n = ARES_MIN(a.u.s->len, b.u.s->len);
        jinja_work(r, n);
        int c = n ? memcmp(a.u.s->data, b.u.s->data, n) : 0;
        return c ? (c < 0 ? -1 : 1) : a.u.s->len < b.u.s->len ? -1 : a.u.s->len > b.u.s->len;
    }
    if (a.kind == b.kind && (a.kind == JV_LIST || a.kind == JV_TUPLE)) {
        jinja_enter(r);
        int64_t n = ARES_MIN(a.u.l->n, b.u.l->n), i = 0;
        while (i < n && jinja_equal(r, a.u.l->items[i], b.u.l->items[i])) i++;
        int c = i < n                 ? jinja_order(r, a.u.l->items[i], b.u.l->items[i], op)
                : a.u.l->n < b.u.l->n ? -1
                                      : a.u.l->n > b.u.l->n;
        r->depth--;
        return c;
    }
    if (a.kind == JV_UNDEFINED || b.kind == JV_UNDEFINED)
        JINJA_FAIL(r, "%s", (a.kind == JV_UNDEFINED ? a : b).u.hint);
    if (a.kind == JV_VIEW && b.kind == JV_VIEW) JINJA_UNSUPPORTED(r, "comparing two dict views");
    JINJA_FAIL(r, "'%s' not supported between instances of '%s' and '%s'", words[op],
               jinja_type_name(a), jinja_type_name(b));
}

bool jinja_compare(jinja_run *r, jinja_op op, jinja_value a, jinja_value b)
{
    switch (op) {
    case JOP_EQ: return jinja_equal(r, a, b);
    case JOP_NE: return !jinja_equal(r, a, b);
    case JOP_IN: return jinja_contains(r, a, b);
    case JOP_NOTIN: return !jinja_contains(r, a, b);
    default: break;
    }
    int c = jinja_order(r, a, b, op);
    if (c == 2) return false;
    return op == JOP_LT ? c < 0 : op == JOP_LE ? c <= 0 : op == JOP_GT ? c > 0 : c >= 0;
}

bool jinja_contains(jinja_run *r, jinja_value item, jinja_value in)
{
    if (in.kind == JV_STR) {
        if (item.kind != JV_STR)
            JINJA_FAIL(r, "'in <string>' requires string as left operand, not %s",
                       jinja_type_name(item));
        jinja_work(r, in.u.s->len);
        return ares_view_find(jinja_text(in), jinja_text(item), 0) >= 0;
    }
    if (in.kind == JV_DICT || (in.kind == JV_VIEW && in.flag == 'k'))
        return jinja_dict_find(r, in.u.d, item) != NULL;
    if (!jinja_is_iterable(in))
        JINJA_FAIL(r, "argument of type '%s' is not iterable", jinja_type_name(in));
    jinja_iter *it = jinja_iterate(r, in);
    for (jinja_value v; it->next(r, it, &v);)
        if (same_object(item, v) || jinja_equal(r, item, v)) return true;
    return false;
}
