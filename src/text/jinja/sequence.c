/* Length, iteration and slices of values, as in Python. */
#include <string.h>

#include "jinja.h"

bool jinja_has_len(jinja_value v, int64_t *n)
{
    switch (v.kind) {
    case JV_UNDEFINED: *n = 0; return true;
    case JV_STR: *n = -1; return true;
    case JV_LIST:
    case JV_TUPLE: *n = v.u.l->n; return true;
    case JV_DICT:
    case JV_VIEW: *n = v.u.d->n; return true;
    case JV_RANGE: *n = v.u.r->n; return true;
    case JV_LOOP: *n = -1; return true;
    default: return false;
    }
}

int64_t jinja_len(jinja_run *r, jinja_value v)
{
    int64_t n;
    if (!jinja_has_len(v, &n))
        JINJA_FAIL(r, "object of type '%s' has no len()", jinja_type_name(v));
    if (v.kind == JV_STR) return jinja_chars(r, v);
    if (v.kind == JV_LOOP) return jinja_loop_length(r, v.u.loop);
    return n;
}

bool jinja_is_iterable(jinja_value v)
{
    switch (v.kind) {
    case JV_UNDEFINED:
    case JV_STR:
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_VIEW:
    case JV_RANGE:
    case JV_ITER:
    case JV_LOOP: return true;
    default: return false;
    }
}

static bool next_none(jinja_run *r, jinja_iter *it, jinja_value *out)
{
    (void)r, (void)it, (void)out;
    return false;
}

static bool next_item(jinja_run *r, jinja_iter *it, jinja_value *out)
{
    if (it->i >= it->over.u.l->n) return false;
    jinja_work(r, 64);
    *out = it->over.u.l->items[it->i++];
    return true;
}

static bool next_char(jinja_run *r, jinja_iter *it, jinja_value *out)
{
    jinja_string *s = it->over.u.s;
    if ((size_t)it->i >= s->len) return false;
    jinja_work(r, 64);
    uint32_t cp;
    int k = jinja_decode(s->data + it->i, s->len - (size_t)it->i, &cp);
    *out = jinja_str_view(r, s->data + it->i, (size_t)k);
    it->i += k;
    return true;
}

static bool next_entry(jinja_run *r, jinja_iter *it, jinja_value *out)
{
    jinja_dict *d = it->over.u.d;
    if (it->i >= d->n) return false;
    jinja_work(r, 64);
    jinja_pair *e = &d->items[it->i++];
    if (it->over.kind == JV_DICT || it->over.flag == 'k') *out = e->key;
    else if (it->over.flag == 'v') *out = e->value;
    else {
        *out = jinja_list_new(r, 2, JV_TUPLE);
        out->u.l->items[0] = e->key, out->u.l->items[1] = e->value;
    }
    return true;
}

jinja_value jinja_range_at(const jinja_range *g, int64_t i)
{
    return jinja_int((int64_t)((uint64_t)g->start + (uint64_t)g->step * (uint64_t)i));
}

static bool next_number(jinja_run *r, jinja_iter *it, jinja_value *out)
{
    if (it->i >= it->over.u.r->n) return false;
    jinja_work(r, 64);
    *out = jinja_range_at(it->over.u.r, it->i++);
    return true;
}

jinja_value jinja_iter_of_list(jinja_run *r, jinja_value list)
{
    return jinja_iter_new(r, next_item, list, NULL);
}

jinja_iter *jinja_iterate(jinja_run *r, jinja_value v)
{
    switch (v.kind) {
    case JV_ITER: return v.u.it;
    case JV_UNDEFINED: return jinja_iter_new(r, next_none, v, NULL).u.it;
    case JV_LIST:
    case JV_TUPLE: return jinja_iter_new(r, next_item, v, NULL).u.it;
    case JV_STR: return jinja_iter_new(r, next_char, v, NULL).u.it;
    case JV_DICT:
    case JV_VIEW: return jinja_iter_new(r, next_entry, v, NULL).u.it;
    case JV_RANGE: return jinja_iter_new(r, next_number, v, NULL).u.it;
    case JV_LOOP: JINJA_UNSUPPORTED(r, "iterating over the loop variable");
    default: JINJA_FAIL(r, "'%s' object is not iterable", jinja_type_name(v));
    }
}

jinja_value jinja_to_list(jinja_run *r, jinja_value v)
{
    if (v.kind == JV_LIST || v.kind == JV_TUPLE) {
        jinja_value copy = jinja_list_new(r, v.u.l->n, JV_LIST);
        if (v.u.l->n) memcpy(copy.u.l->items, v.u.l->items, (size_t)v.u.l->n * sizeof v);
        return copy;
    }
    jinja_iter *it = jinja_iterate(r, v);
    jinja_value list = jinja_list_new(r, 0, JV_LIST);
    int64_t cap = 0;
    for (jinja_value item; it->next(r, it, &item);) {
        if (list.u.l->n == cap) {
            jinja_value *items = jinja_alloc(r, (size_t)(cap = cap ? 2 * cap : 8) * sizeof *items);
            if (list.u.l->n) memcpy(items, list.u.l->items, (size_t)list.u.l->n * sizeof *items);
            list.u.l->items = items;
        }
        list.u.l->items[list.u.l->n++] = item;
    }
    return list;
}

static int64_t slice_bound(jinja_run *r, jinja_value v, int64_t absent, int64_t low, int64_t high,
                           int64_t n)
{
    if (v.kind == JV_NONE || v.kind == JV_MISSING) return absent;
    int64_t i;
    if (v.kind == JV_BIG) i = v.u.s->data[0] == '-' ? INT64_MIN : INT64_MAX;
    else if (v.kind == JV_UNDEFINED || !jinja_as_index(v, &i))
        JINJA_FAIL(r, "slice indices must be integers or None or have an __index__ method");
    if (i < 0 && __builtin_add_overflow(i, n, &i)) i = low;
    return i < low ? low : i > high ? high : i;
}

jinja_value jinja_slice(jinja_run *r, jinja_value v, jinja_value start, jinja_value stop,
                        jinja_value step)
{
    if (v.kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", v.u.hint);
    if (v.kind != JV_STR && v.kind != JV_LIST && v.kind != JV_TUPLE && v.kind != JV_RANGE)
        JINJA_FAIL(r, "'%s' object cannot be sliced", jinja_type_name(v));
    int64_t n = jinja_len(r, v), by = 1;
    if (step.kind == JV_BIG) by = step.u.s->data[0] == '-' ? -INT64_MAX : INT64_MAX;
    else if (step.kind != JV_NONE && step.kind != JV_MISSING &&
             (step.kind == JV_UNDEFINED || !jinja_as_index(step, &by)))
        JINJA_FAIL(r, "slice indices must be integers or None or have an __index__ method");
    if (by == 0) JINJA_FAIL(r, "slice step cannot be zero");
    if (by == INT64_MIN) by++;
    int64_t low = by > 0 ? 0 : -1, high = by > 0 ? n : n - 1;
    int64_t a = slice_bound(r, start, by > 0 ? low : high, low, high, n),
            b = slice_bound(r, stop, by > 0 ? high : low, low, high, n);
    int64_t count =
        by > 0 ? (b > a ? (b - a - 1) / by + 1 : 0) : (a > b ? (a - b - 1) / -by + 1 : 0);
    if (v.kind == JV_RANGE) {
        jinja_range *g = jinja_alloc(r, sizeof *g);
        g->start = jinja_range_at(v.u.r, a).u.i,
        g->step = (int64_t)((uint64_t)v.u.r->step * (uint64_t)by), g->n = count;
        g->stop = jinja_range_at(v.u.r, b).u.i;
        return (jinja_value){ .kind = JV_RANGE, .u.r = g };
    }
    if (v.kind == JV_STR && by == 1) {
        size_t from = jinja_char_offset(r, v, a), to = count ? jinja_char_offset(r, v, b) : from;
        jinja_value s = jinja_str_view(r, v.u.s->data + from, to - from);
        s.flag = v.flag;
        return s;
    }
    if (v.kind == JV_STR) {
        jinja_buf text = { 0 };
        bool ascii = n == (int64_t)v.u.s->len;
        size_t *offsets = ascii ? NULL : jinja_alloc(r, (size_t)(n + 1) * sizeof *offsets);
        for (size_t i = 0, k = 0; !ascii && i < v.u.s->len; i++)
            if (((unsigned char)v.u.s->data[i] & 0xC0) != 0x80) offsets[k++] = i;
        for (int64_t i = 0; i < count; i++) {
            size_t at = ascii ? (size_t)(a + i * by) : offsets[a + i * by];
            uint32_t cp;
            jinja_add(r, &text, v.u.s->data + at,
                      (size_t)jinja_decode(v.u.s->data + at, v.u.s->len - at, &cp));
        }
        jinja_work(r, (size_t)count * 8);
        jinja_value s = jinja_str_buf(r, &text);
        s.flag = v.flag;
        return s;
    }
    jinja_value out = jinja_list_new(r, count, v.kind);
    for (int64_t i = 0; i < count; i++) out.u.l->items[i] = v.u.l->items[a + i * by];
    return out;
}

int64_t jinja_loop_length(jinja_run *r, jinja_loop *l)
{
    if (l->length >= 0) return l->length;
    int64_t n;
    if (jinja_has_len(l->over, &n)) return l->length = jinja_len(r, l->over);
    jinja_value rest = jinja_to_list(r, (jinja_value){ .kind = JV_ITER, .u.it = l->it });
    l->it = jinja_iterate(r, rest);
    return l->length = rest.u.l->n + l->index0 + 1 + (l->after.kind != JV_MISSING);
}
