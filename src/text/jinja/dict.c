/*
 * Dicts, in order of insertion, with a hash index beyond eight entries, and the equality of values,
 * by which keys are found.
 */
#include <math.h>
#include <string.h>

#include "jinja.h"

jinja_dict *jinja_dict_new(jinja_run *r)
{
    jinja_dict *d = jinja_alloc(r, sizeof *d);
    memset(d, 0, sizeof *d);
    return d;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33, x *= 0xff51afd7ed558ccdULL, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

static uint64_t hash_bytes(jinja_run *r, ares_view s)
{
    uint64_t h = 0x9E3779B97F4A7C15ULL ^ s.len, w;
    jinja_work(r, s.len);
    size_t i = 0;
    for (; i + 8 <= s.len; i += 8) memcpy(&w, s.data + i, 8), h = mix(h ^ w);
    w = 0;
    if (i < s.len) memcpy(&w, s.data + i, s.len - i);
    return mix(h ^ w);
}

static uint64_t hash_of(jinja_run *r, jinja_value v)
{
    switch (v.kind) {
    case JV_STR: return hash_bytes(r, jinja_text(v));
    case JV_BIG: return hash_bytes(r, jinja_text(v)) + 1;
    case JV_BOOL: return mix((uint64_t)v.u.b);
    case JV_INT: return mix((uint64_t)v.u.i);
    case JV_FLOAT:
        if (v.u.f == floor(v.u.f) && fabs(v.u.f) < 9e18) return mix((uint64_t)(int64_t)v.u.f);
        {
            uint64_t w;
            memcpy(&w, &v.u.f, 8);
            return mix(w);
        }
    case JV_NONE: return 11;
    case JV_UNDEFINED:
    case JV_MISSING: return 13;
    case JV_TUPLE: {
        uint64_t h = 17;
        jinja_enter(r);
        for (int64_t i = 0; i < v.u.l->n; i++) h = mix(h ^ hash_of(r, v.u.l->items[i])) + 1;
        r->depth--;
        return h;
    }
    case JV_RANGE: return mix((uint64_t)v.u.r->n) + 19;
    case JV_LIST:
    case JV_DICT:
    case JV_VIEW: JINJA_FAIL(r, "unhashable type: '%s'", jinja_type_name(v));
    case JV_METHOD: JINJA_UNSUPPORTED(r, "a method as a key");
    default: return mix((uint64_t)(uintptr_t)v.u.l);
    }
}

static void index_put(jinja_dict *d, uint64_t h, int32_t at)
{
    int64_t i = (int64_t)(h & (uint64_t)d->mask);
    while (d->index[i] >= 0) i = (i + 1) & d->mask;
    d->index[i] = at;
}

jinja_value *jinja_dict_find(jinja_run *r, const jinja_dict *d, jinja_value key)
{
    uint64_t h = hash_of(r, key);
    if (!d->index) {
        for (int64_t i = 0; i < d->n; i++)
            if (jinja_equal(r, d->items[i].key, key)) return &d->items[i].value;
        return NULL;
    }
    for (int64_t i = (int64_t)(h & (uint64_t)d->mask); d->index[i] >= 0; i = (i + 1) & d->mask)
        if (jinja_equal(r, d->items[d->index[i]].key, key)) return &d->items[d->index[i]].value;
    return NULL;
}

jinja_value *jinja_dict_find_name(jinja_run *r, const jinja_dict *d, ares_view name)
{
    jinja_string s = { name.data, name.len, -1 };
    return jinja_dict_find(r, d, (jinja_value){ .kind = JV_STR, .u.s = &s });
}

void jinja_dict_put(jinja_run *r, jinja_dict *d, jinja_value key, jinja_value value)
{
    jinja_value *old = jinja_dict_find(r, d, key);
    if (old) {
        *old = value;
        return;
    }
    if (d->n == d->cap) {
        d->cap = d->cap ? 2 * d->cap : 8;
        jinja_pair *items = jinja_alloc(r, (size_t)d->cap * sizeof *items);
        if (d->n) memcpy(items, d->items, (size_t)d->n * sizeof *items);
        d->items = items;
        if (d->cap > 8) {
            d->mask = 2 * d->cap - 1;
            d->index = jinja_alloc(r, (size_t)(d->mask + 1) * sizeof *d->index);
            for (int64_t i = 0; i <= d->mask; i++) d->index[i] = -1;
            for (int64_t i = 0; i < d->n; i++) index_put(d, hash_of(r, items[i].key), (int32_t)i);
        }
    }
    d->items[d->n] = (jinja_pair){ key, value };
    if (d->index) index_put(d, hash_of(r, key), (int32_t)d->n);
    d->n++;
}

/* ------------------------------------------------------------------ equality */
bool jinja_same_object(jinja_value a, jinja_value b)
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
        return jinja_order_numbers(r, a, b) == 0;
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
    if (jinja_same_object(a, b)) return true;
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
