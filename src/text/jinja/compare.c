/* Truth, order and sorting of values, as in Python. */
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

int jinja_order(jinja_run *r, jinja_value a, jinja_value b, jinja_op op)
{
    static const char *const words[] = { "==", "!=", "<", "<=", ">", ">=" };
    if (jinja_is_number(a) && jinja_is_number(b)) return jinja_order_numbers(r, a, b);
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
        if (jinja_same_object(item, v) || jinja_equal(r, item, v)) return true;
    return false;
}

/* ---------------- sorting: stable; equal keys keep their order, reversed or not */
static bool before(jinja_run *r, jinja_value a, jinja_value b, bool reverse)
{
    jinja_work(r, 64);
    int c = jinja_order(r, reverse ? b : a, reverse ? a : b, JOP_LT);
    if (c == 2) JINJA_UNSUPPORTED(r, "sorting NaN");
    return c < 0;
}

void jinja_sort(jinja_run *r, jinja_value *keys, jinja_value *items, int64_t n, bool reverse)
{
    jinja_value *k2 = jinja_alloc(r, (size_t)n * sizeof *k2 + 1),
                *i2 = jinja_alloc(r, (size_t)n * sizeof *i2 + 1);
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t low = 0; low < n; low += 2 * width) {
            int64_t mid = ARES_MIN(low + width, n), high = ARES_MIN(low + 2 * width, n), a = low,
                    b = mid;
            for (int64_t k = low; k < high; k++) {
                bool right = a >= mid || (b < high && before(r, keys[b], keys[a], reverse));
                int64_t from = right ? b++ : a++;
                k2[k] = keys[from], i2[k] = items[from];
            }
        }
        memcpy(keys, k2, (size_t)n * sizeof *keys);
        memcpy(items, i2, (size_t)n * sizeof *items);
    }
}
