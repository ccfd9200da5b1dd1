/*
 * The values of templates, as Python has them. In order: making values; numbers; dicts;
 * sequences; comparison and sorting; arithmetic.
 */
#include "jinja.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * Values: allocation, making values, text under construction, strings. Integers have 64 bits;
 * larger ones from JSON or the source keep their digits and can be printed and compared.
 */

/* Memory of the render, counted with 16 bytes for alignment; an error at the limit. */
void *jinja_alloc(jinja_run *r, size_t bytes)
{
    if (bytes > r->memory_limit || r->used > r->memory_limit - bytes)
        jinja_fail(r, ARES_ELIMIT, "the template needs more than %zu bytes of memory",
                   r->memory_limit);
    r->used += bytes + 16;
    return ares_arena_alloc(&r->arena, bytes);
}

/* Counts work that grows with a text: 64 bytes are one step. */
void jinja_work(jinja_run *r, size_t bytes)
{
    r->steps += (int64_t)(bytes / 64);
    if (r->steps > r->step_limit)
        jinja_fail(r, ARES_ELIMIT, "the template runs longer than %lld steps",
                   (long long)r->step_limit);
}

/* The limit of depth protects the C stack, the limit of steps the time. */
void jinja_enter(jinja_run *r)
{
    if (++r->depth > JINJA_RUN_DEPTH) jinja_fail(r, ARES_ELIMIT, "recursion too deep");
    r->steps++;
    jinja_work(r, 0);
}

/* ------------------------------------------------------------------ making values */
jinja_value jinja_none(void)
{
    return (jinja_value){ .kind = JV_NONE };
}
jinja_value jinja_bool(bool b)
{
    return (jinja_value){ .kind = JV_BOOL, .u.b = b };
}
jinja_value jinja_int(int64_t i)
{
    return (jinja_value){ .kind = JV_INT, .u.i = i };
}
jinja_value jinja_float(double f)
{
    return (jinja_value){ .kind = JV_FLOAT, .u.f = f };
}
jinja_value jinja_undefined(const char *hint)
{
    return (jinja_value){ .kind = JV_UNDEFINED, .u.hint = hint };
}

/* The text is not copied: it must live as long as the render. */
jinja_value jinja_str_view(jinja_run *r, const char *data, size_t len)
{
    jinja_string *s = jinja_alloc(r, sizeof *s);
    *s = (jinja_string){ data, len, -1 };
    return (jinja_value){ .kind = JV_STR, .u.s = s };
}

/* The text of the buffer, which is not copied and must not grow any more. */
jinja_value jinja_str_buf(jinja_run *r, jinja_buf *b)
{
    return jinja_str_view(r, b->data ? b->data : "", b->len);
}

/* n elements that the caller sets; kind: JV_LIST or JV_TUPLE. The elements are not initialised. */
jinja_value jinja_list_new(jinja_run *r, int64_t n, jinja_kind kind)
{
    jinja_list *l = jinja_alloc(r, sizeof *l);
    /* before the size in bytes could overflow */
    if (n > (int64_t)1 << 32) jinja_fail(r, ARES_ELIMIT, "a list of %lld elements", (long long)n);
    l->n = n;
    /* + 1, so that an empty list has memory too */
    l->items = jinja_alloc(r, (size_t)n * sizeof *l->items + 1);
    r->steps += n / 8;
    return (jinja_value){ .kind = (uint8_t)kind, .u.l = l };
}

/* A lazy sequence: next gives its items one by one; over and extra are its state. */
jinja_value jinja_iter_new(jinja_run *r, bool (*next)(jinja_run *, jinja_iter *, jinja_value *),
                           jinja_value over, void *extra)
{
    jinja_iter *it = jinja_alloc(r, sizeof *it);
    *it = (jinja_iter){ next, over, 0, extra };
    return (jinja_value){ .kind = JV_ITER, .u.it = it };
}

/* ------------------------------------------------------------------ text under construction */
/* Makes space for `more` bytes and a NUL; the old memory stays in the arena. */
static void jinja_grow(jinja_run *r, jinja_buf *b, size_t more)
{
    if (more > r->memory_limit) jinja_alloc(r, more); /* fails, before the sums below overflow */
    if (b->len + more + 1 <= b->cap) return;
    /* doubling: n additions copy O(n) bytes in all */
    size_t cap = ARES_MAX(b->cap * 2, b->len + more + 64);
    char *data = jinja_alloc(r, cap);
    if (b->len) memcpy(data, b->data, b->len);
    b->data = data, b->cap = cap;
}

void jinja_add(jinja_run *r, jinja_buf *b, const char *data, size_t len)
{
    /* only the text of the whole render has this limit; others have that of memory */
    if (b == r->top && b->len + len > r->output_limit)
        jinja_fail(r, ARES_ELIMIT, "the text grows beyond %zu bytes", r->output_limit);
    jinja_grow(r, b, len);
    if (len) memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
    jinja_work(r, len);
}

/* A text that ends with a NUL. */
void jinja_add_z(jinja_run *r, jinja_buf *b, const char *z)
{
    jinja_add(r, b, z, strlen(z));
}

void jinja_add_repeat(jinja_run *r, jinja_buf *b, const char *data, size_t len, int64_t times)
{
    /* as in Python "ab" * -1 is empty */
    if (times <= 0 || len == 0) return;
    size_t total;
    /* fails at the limit of memory */
    if (__builtin_mul_overflow(len, (size_t)times, &total)) jinja_alloc(r, SIZE_MAX / 2);
    jinja_grow(r, b, total);
    for (int64_t i = 0; i < times; i++) jinja_add(r, b, data, len);
}

/* Appends a code point as UTF-8. */
void jinja_add_cp(jinja_run *r, jinja_buf *b, uint32_t cp)
{
    char bytes[4];
    jinja_add(r, b, bytes, (size_t)jinja_encode(cp, bytes));
}

/* ------------------------------------------------------------------ strings */
ares_view jinja_text(jinja_value v)
{
    return (ares_view){ v.u.s->data, v.u.s->len };
}

/* Length in code points, as Python counts it; found once and kept in the string. */
int64_t jinja_chars(jinja_run *r, jinja_value v)
{
    jinja_string *s = v.u.s;
    if (s->chars >= 0) return s->chars;
    jinja_work(r, s->len);
    return s->chars = jinja_count_chars(s->data, s->len);
}

/* The byte at which character `index` begins; the end of the text where it has fewer. */
size_t jinja_char_offset(jinja_run *r, jinja_value v, int64_t index)
{
    jinja_string *s = v.u.s;
    /* all characters have one byte */
    if (jinja_chars(r, v) == (int64_t)s->len) return (size_t)index; /* ASCII */
    size_t i = 0;
    for (; index > 0 && i < s->len; index--) do
            i++;
        while (i < s->len && ((unsigned char)s->data[i] & 0xC0) == 0x80);
    jinja_work(r, i);
    return i;
}

/* What Python's type(v).__name__ says, for messages that follow Python's. */
const char *jinja_type_name(jinja_value v)
{
    static const char *const names[] = {
        [JV_MISSING] = "missing",
        [JV_UNDEFINED] = "Undefined",
        [JV_NONE] = "NoneType",
        [JV_BOOL] = "bool",
        [JV_INT] = "int",
        [JV_BIG] = "int",
        [JV_FLOAT] = "float",
        [JV_STR] = "str",
        [JV_LIST] = "list",
        [JV_TUPLE] = "tuple",
        [JV_DICT] = "dict",
        [JV_RANGE] = "range",
        [JV_VIEW] = "dict view",
        [JV_ITER] = "generator",
        [JV_NAMESPACE] = "Namespace",
        [JV_MACRO] = "Macro",
        [JV_LOOP] = "LoopContext",
        [JV_FUNC] = "function",
        [JV_METHOD] = "builtin_function_or_method",
    };
    return names[v.kind];
}

/* Numbers among values, and their order. */

bool jinja_is_number(jinja_value v)
{
    return v.kind == JV_BOOL || v.kind == JV_INT || v.kind == JV_FLOAT || v.kind == JV_BIG;
}

/* In Python a bool is an int. */
bool jinja_as_index(jinja_value v, int64_t *out)
{
    if (v.kind != JV_BOOL && v.kind != JV_INT) return false;
    *out = v.kind == JV_BOOL ? v.u.b : v.u.i;
    return true;
}

/* An optional integer argument of a builtin; a float is refused, as by Python. */
int64_t jinja_int_arg(jinja_run *r, jinja_value v, int64_t absent)
{
    int64_t i;
    if (v.kind == JV_MISSING) return absent;
    if (!jinja_as_index(v, &i))
        JINJA_FAIL(r, "'%s' object cannot be interpreted as an integer", jinja_type_name(v));
    return i;
}

/* Python float(v) of a number; of an integer beyond the doubles it is an error there too. */
double jinja_as_double(jinja_run *r, jinja_value v)
{
    if (v.kind == JV_BOOL) return v.u.b;
    if (v.kind == JV_INT) return (double)v.u.i;
    if (v.kind == JV_FLOAT) return v.u.f;
    if (v.kind != JV_BIG) JINJA_FAIL(r, "must be real number, not %s", jinja_type_name(v));
    /* the digits of an integer beyond 64 bits */
    double x = strtod(v.u.s->data, NULL);
    if (isinf(x)) JINJA_FAIL(r, "int too large to convert to float");
    return x;
}

/*
 * -1, 0 or 1, and 2 where one is NaN. long double holds every int64 and every double exactly, so a
 * comparison of an int with a float rounds nothing.
 */
static int jinja_order_numbers(jinja_run *r, jinja_value a, jinja_value b)
{
    if (a.kind == JV_BIG || b.kind == JV_BIG) {
        if (a.kind == JV_FLOAT || b.kind == JV_FLOAT)
            JINJA_UNSUPPORTED(r, "comparing a float with an integer beyond 64 bits");
        /* beside the other, an integer beyond 64 bits is larger, or where negative smaller */
        bool a_minus = a.kind == JV_BIG && a.u.s->data[0] == '-',
             b_minus = b.kind == JV_BIG && b.u.s->data[0] == '-';
        if (a.kind != JV_BIG) return b_minus ? 1 : -1;
        if (b.kind != JV_BIG || a_minus != b_minus) return a_minus ? -1 : 1;
        ares_view s = jinja_text(a), t = jinja_text(b);
        int c = s.len != t.len ? (s.len < t.len ? -1 : 1) : memcmp(s.data, t.data, s.len);
        c = c < 0 ? -1 : c > 0;
        return a_minus ? -c : c;
    }
    /* 0 where the value is a float */
    int64_t i = 0, j = 0;
    bool whole = jinja_as_index(a, &i);
    if (jinja_as_index(b, &j) && whole) return i < j ? -1 : i > j;
    long double x = a.kind == JV_FLOAT ? (long double)a.u.f : (long double)i;
    long double y = b.kind == JV_FLOAT ? (long double)b.u.f : (long double)j;
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

/* ------------------------------------------------------------------ white space around a text */
size_t jinja_strip_right(const char *s, size_t n)
{
    while (n) {
        size_t i = n - 1;
        /* back to the first byte of the last character */
        while (i && ((unsigned char)s[i] & 0xC0) == 0x80) i--;
        uint32_t cp;
        jinja_decode(s + i, n - i, &cp);
        if (!jinja_is_space(cp)) break;
        n = i;
    }
    return n;
}

ares_view jinja_strip(ares_view s)
{
    uint32_t cp;
    while (s.len) {
        int k = jinja_decode(s.data, s.len, &cp);
        if (!jinja_is_space(cp)) break;
        s.data += k, s.len -= (size_t)k;
    }
    s.len = jinja_strip_right(s.data, s.len);
    return s;
}

/*
 * Dicts, in order of insertion, with a hash index beyond eight entries, and the equality of values,
 * by which keys are found.
 */

jinja_dict *jinja_dict_new(jinja_run *r)
{
    jinja_dict *d = jinja_alloc(r, sizeof *d);
    /* no entries and no index yet */
    memset(d, 0, sizeof *d);
    return d;
}

/* The finalizer of MurmurHash3: each bit of x changes about half of the bits of the result. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 33, x *= 0xff51afd7ed558ccdULL, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

/* Eight bytes at a time; the length is mixed in, so "a" and "a\0" differ. */
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

/* Equal values of different types, 1, 1.0 and True, have one hash, because they are one key. */
static uint64_t hash_of(jinja_run *r, jinja_value v)
{
    switch (v.kind) {
    case JV_STR: return hash_bytes(r, jinja_text(v));
    case JV_BIG: return hash_bytes(r, jinja_text(v)) + 1;
    case JV_BOOL: return mix((uint64_t)v.u.b);
    case JV_INT: return mix((uint64_t)v.u.i);
    case JV_FLOAT:
        /* below 9e18 the cast to int64 is defined */
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
    /* ranges are equal by their items: the length is a hash of those */
    case JV_RANGE: return mix((uint64_t)v.u.r->n) + 19;
    case JV_LIST:
    case JV_DICT:
    case JV_VIEW: JINJA_FAIL(r, "unhashable type: '%s'", jinja_type_name(v));
    case JV_METHOD: JINJA_UNSUPPORTED(r, "a method as a key");
    default: return mix((uint64_t)(uintptr_t)v.u.l);
    }
}

/* The table has at least two slots per entry, so that the search for a free one ends. */
static void index_put(jinja_dict *d, uint64_t h, int32_t at)
{
    int64_t i = (int64_t)(h & (uint64_t)d->mask);
    /* -1: a free slot */
    while (d->index[i] >= 0) i = (i + 1) & d->mask;
    d->index[i] = at;
}

jinja_value *jinja_dict_find(jinja_run *r, const jinja_dict *d, jinja_value key)
{
    /* also for a small dict: hashing refuses keys that Python cannot hash */
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

/* A key that is a text, without making a value in the memory of the render. */
jinja_value *jinja_dict_find_name(jinja_run *r, const jinja_dict *d, ares_view name)
{
    jinja_string s = { name.data, name.len, -1 };
    return jinja_dict_find(r, d, (jinja_value){ .kind = JV_STR, .u.s = &s });
}

void jinja_dict_put(jinja_run *r, jinja_dict *d, jinja_value key, jinja_value value)
{
    /* a key keeps its place when its value changes */
    jinja_value *old = jinja_dict_find(r, d, key);
    if (old) {
        *old = value;
        return;
    }
    if (d->n == d->cap) {
        d->cap = d->cap ? 2 * d->cap : 8;
        jinja_pair *items = jinja_alloc(r, (size_t)d->cap * sizeof *items);
        if (d->n) memcpy(items, d->items, (size_t)d->n * sizeof *items);
        /* the old array stays in the arena */
        d->items = items;
        if (d->cap > 8) {
            /* cap is a power of two, so that the mask is all ones */
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
/* Python's `is`, as far as it decides a result; values without identity here are never the same. */
static bool jinja_same_object(jinja_value a, jinja_value b)
{
    return a.kind == b.kind && a.kind != JV_FLOAT && a.kind != JV_BOOL && a.kind != JV_METHOD &&
           a.u.l == b.u.l;
}

bool jinja_equal(jinja_run *r, jinja_value a, jinja_value b)
{
    if (jinja_is_number(a) && jinja_is_number(b)) {
        /* an int of 64 bits is never one beyond them */
        if ((a.kind == JV_BIG) != (b.kind == JV_BIG) && a.kind != JV_FLOAT && b.kind != JV_FLOAT)
            return false;
        return jinja_order_numbers(r, a, b) == 0;
    }
    if (a.kind != b.kind) return false;
    if (a.kind == JV_STR) {
        jinja_work(r, ARES_MIN(a.u.s->len, b.u.s->len));
        return ares_view_eq(jinja_text(a), jinja_text(b));
    }
    /* jinja2: two undefined values are equal */
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
    case JV_DICT:
        same = a.u.d->n == b.u.d->n;
        for (int64_t i = 0; same && i < a.u.d->n; i++) {
            jinja_value *other = jinja_dict_find(r, b.u.d, a.u.d->items[i].key);
            same = other && jinja_equal(r, a.u.d->items[i].value, *other);
        }
        break;
    case JV_RANGE:
        /* as sequences: range(0) == range(2, 1), and the step of one item does not count */
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

/* Length, iteration and slices of values, as in Python. */

/* False: the value has no len(). *n is -1 for a str and a loop, whose length has to be counted. */
static bool jinja_has_len(jinja_value v, int64_t *n)
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

/* The next_ functions give the items of each kind; false: there is none left. */
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

/* An item of a dict or of a view of it: key, value, or a tuple of both. */
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
        /* an (key, value) tuple per item, as items() gives */
        out->u.l->items[0] = e->key, out->u.l->items[1] = e->value;
    }
    return true;
}

/* In unsigned arithmetic, because the step beyond the last item may overflow. */
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

/* Python iter(v). A generator is its own iterator, so its items can be read once. */
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

/* Python list(v); a list or tuple is copied in one piece. */
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

/* A bound of a slice, as PySlice_AdjustIndices clips it: negative ones count from the end. */
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

/* v[start:stop:step] as Python has it: "hello"[::-1] -> "olleh", (1, 2, 3)[-2:] -> (2, 3). */
jinja_value jinja_slice(jinja_run *r, jinja_value v, jinja_value start, jinja_value stop,
                        jinja_value step)
{
    if (v.kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", v.u.hint);
    if (v.kind != JV_STR && v.kind != JV_LIST && v.kind != JV_TUPLE && v.kind != JV_RANGE)
        JINJA_FAIL(r, "'%s' object cannot be sliced", jinja_type_name(v));
    /* by: the step */
    int64_t n = jinja_len(r, v), by = 1;
    if (step.kind == JV_BIG) by = step.u.s->data[0] == '-' ? -INT64_MAX : INT64_MAX;
    else if (step.kind != JV_NONE && step.kind != JV_MISSING &&
             (step.kind == JV_UNDEFINED || !jinja_as_index(step, &by)))
        JINJA_FAIL(r, "slice indices must be integers or None or have an __index__ method");
    if (by == 0) JINJA_FAIL(r, "slice step cannot be zero");
    if (by == INT64_MIN) by++; /* so that -by below is a number; any step as large has one item */
    /* backwards, -1 is the place before the first item */
    int64_t low = by > 0 ? 0 : -1, high = by > 0 ? n : n - 1;
    int64_t a = slice_bound(r, start, by > 0 ? low : high, low, high, n),
            b = slice_bound(r, stop, by > 0 ? high : low, low, high, n);
    /* items from a in steps of `by`, up to but without b */
    int64_t count =
        by > 0 ? (b > a ? (b - a - 1) / by + 1 : 0) : (a > b ? (a - b - 1) / -by + 1 : 0);
    if (v.kind == JV_RANGE) {
        jinja_range *g = jinja_alloc(r, sizeof *g);
        /* range(10)[2:8:2] is range(2, 8, 2): no items are made */
        g->start = jinja_range_at(v.u.r, a).u.i,
        g->step = (int64_t)((uint64_t)v.u.r->step * (uint64_t)by), g->n = count;
        g->stop = jinja_range_at(v.u.r, b).u.i;
        return (jinja_value){ .kind = JV_RANGE, .u.r = g };
    }
    if (v.kind == JV_STR && by == 1) {
        /* a part of the same text: nothing is copied */
        size_t from = jinja_char_offset(r, v, a), to = count ? jinja_char_offset(r, v, b) : from;
        jinja_value s = jinja_str_view(r, v.u.s->data + from, to - from);
        s.flag = v.flag;
        return s;
    }
    if (v.kind == JV_STR) {
        jinja_buf text = { 0 };
        bool ascii = n == (int64_t)v.u.s->len; /* else the byte of each character is looked up */
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

/*
 * An iterator has no length: the items still to come are read into a list, over which the loop then
 * goes on.
 */
int64_t jinja_loop_length(jinja_run *r, jinja_loop *l)
{
    if (l->length >= 0) return l->length;
    int64_t n;
    /* a sequence: no item has to be read */
    if (jinja_has_len(l->over, &n)) return l->length = jinja_len(r, l->over);
    jinja_value rest = jinja_to_list(r, (jinja_value){ .kind = JV_ITER, .u.it = l->it });
    l->it = jinja_iterate(r, rest);
    return l->length = rest.u.l->n + l->index0 + 1 + (l->after.kind != JV_MISSING);
}

/* Truth, order and sorting of values, as in Python. */

/* Python bool(v): empty sequences, zeros, None and undefined values are false. */
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
    /* a loop is true while it has items */
    case JV_LOOP: return jinja_loop_length(r, v.u.loop) > 0;
    default: return true;
    }
}

/* -1, 0 or 1, and 2 where a NaN decides it. op is for the message. */
static int jinja_order(jinja_run *r, jinja_value a, jinja_value b, jinja_op op)
{
    static const char *const words[] = { "==", "!=", "<", "<=", ">", ">=" };
    if (jinja_is_number(a) && jinja_is_number(b)) return jinja_order_numbers(r, a, b);
    if (a.kind == JV_STR && b.kind == JV_STR) {
        /* bytes of UTF-8 have the order of code points */
        size_t n = ARES_MIN(a.u.s->len, b.u.s->len);
        jinja_work(r, n);
        int c = n ? memcmp(a.u.s->data, b.u.s->data, n) : 0;
        return c ? (c < 0 ? -1 : 1) : a.u.s->len < b.u.s->len ? -1 : a.u.s->len > b.u.s->len;
    }
    if (a.kind == b.kind && (a.kind == JV_LIST || a.kind == JV_TUPLE)) {
        jinja_enter(r);
        int64_t n = ARES_MIN(a.u.l->n, b.u.l->n), i = 0;
        /* the first items that differ decide, else the lengths */
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

/* One comparison, or `in`. */
bool jinja_compare(jinja_run *r, jinja_op op, jinja_value a, jinja_value b)
{
    switch (op) {
    case JOP_EQ: return jinja_equal(r, a, b);
    case JOP_NE: return !jinja_equal(r, a, b);
    /* a in b */
    case JOP_IN: return jinja_contains(r, a, b);
    case JOP_NOTIN: return !jinja_contains(r, a, b);
    default: break;
    }
    int c = jinja_order(r, a, b, op);
    if (c == 2) return false; /* every order with a NaN is false */
    return op == JOP_LT ? c < 0 : op == JOP_LE ? c <= 0 : op == JOP_GT ? c > 0 : c >= 0;
}

/* Python `item in in`: of a text a part, of a dict a key. */
bool jinja_contains(jinja_run *r, jinja_value item, jinja_value in)
{
    if (in.kind == JV_STR) {
        /* 1 in "123" is an error in Python too */
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
    for (jinja_value v; it->next(r, it, &v);) /* identity first, as Python's `in` does */
        if (jinja_same_object(item, v) || jinja_equal(r, item, v)) return true;
    return false;
}

/* ---------------- sorting: stable; equal keys keep their order, reversed or not */
static bool before(jinja_run *r, jinja_value a, jinja_value b, bool reverse)
{
    jinja_work(r, 64);
    /* reversed, b before a; equal keys keep their order either way */
    int c = jinja_order(r, reverse ? b : a, reverse ? a : b, JOP_LT);
    if (c == 2) JINJA_UNSUPPORTED(r, "sorting NaN");
    return c < 0;
}

/* Merge sort from below: it is stable, and its time has a bound whatever the keys. */
void jinja_sort(jinja_run *r, jinja_value *keys, jinja_value *items, int64_t n, bool reverse)
{
    jinja_value *k2 = jinja_alloc(r, (size_t)n * sizeof *k2 + 1),
                *i2 = jinja_alloc(r, (size_t)n * sizeof *i2 + 1);
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t low = 0; low < n; low += 2 * width) {
            int64_t mid = ARES_MIN(low + width, n), high = ARES_MIN(low + 2 * width, n), a = low,
                    b = mid;
            for (int64_t k = low; k < high; k++) {
                /* from the right half only what is truly before: equal keys keep their order */
                bool right = a >= mid || (b < high && before(r, keys[b], keys[a], reverse));
                int64_t from = right ? b++ : a++;
                k2[k] = keys[from], i2[k] = items[from];
            }
        }
        memcpy(keys, k2, (size_t)n * sizeof *keys);
        memcpy(items, i2, (size_t)n * sizeof *items);
    }
}

/* Arithmetic of values, as in Python, but an integer beyond 64 bits is an error. */

static void too_big(jinja_run *r) __attribute__((noreturn));
static void too_big(jinja_run *r)
{
    JINJA_UNSUPPORTED(r, "arithmetic beyond 64-bit integers");
}

/* Python's //: rounds towards minus infinity, where C's division rounds towards 0. */
static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - (a % b != 0 && (a % b < 0) != (b < 0));
}

static jinja_value int_binary(jinja_run *r, jinja_op op, int64_t a, int64_t b)
{
    int64_t v = 0;
    bool over = false;
    if ((op == JOP_DIV || op == JOP_FLOORDIV || op == JOP_MOD) && b == 0)
        JINJA_FAIL(r, op == JOP_DIV ? "division by zero" : "integer division or modulo by zero");
    switch (op) {
    case JOP_ADD: over = __builtin_add_overflow(a, b, &v); break;
    case JOP_SUB: over = __builtin_sub_overflow(a, b, &v); break;
    case JOP_MUL: over = __builtin_mul_overflow(a, b, &v); break;
    case JOP_DIV:
        /* Python divides exactly and rounds once; up to 2^53 both operands are doubles */
        if (a > (int64_t)1 << 53 || a < -((int64_t)1 << 53) || b > (int64_t)1 << 53 ||
            b < -((int64_t)1 << 53))
            too_big(r);
        return jinja_float((double)a / (double)b);
    case JOP_FLOORDIV:
        if (a == INT64_MIN && b == -1) too_big(r);
        v = floor_div(a, b);
        break;
    default:
        if (b == -1) return jinja_int(0); /* INT64_MIN % -1 overflows in C */
        v = a - floor_div(a, b) * b;
    }
    if (over) too_big(r);
    return jinja_int(v);
}

/* // and % as float_floor_div and float_rem of CPython compute them, signed zeros included. */
static jinja_value float_binary(jinja_run *r, jinja_op op, double a, double b)
{
    switch (op) {
    case JOP_ADD: return jinja_float(a + b);
    case JOP_SUB: return jinja_float(a - b);
    case JOP_MUL: return jinja_float(a * b);
    case JOP_DIV:
        if (b == 0) JINJA_FAIL(r, "float division by zero");
        return jinja_float(a / b);
    default: break;
    }
    if (b == 0) JINJA_FAIL(r, op == JOP_MOD ? "float modulo" : "float floor division by zero");
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0) {
        if ((b < 0) != (mod < 0)) mod += b, div -= 1;
    } else {
        mod = copysign(0.0, b);
    }
    if (op == JOP_MOD) return jinja_float(mod);
    if (div == 0) return jinja_float(copysign(0.0, a / b));
    double floored = floor(div);
    return jinja_float(div - floored > 0.5 ? floored + 1 : floored);
}

jinja_value jinja_power(jinja_run *r, jinja_value a, jinja_value b)
{
    int64_t x, y;
    if (jinja_as_index(a, &x) && jinja_as_index(b, &y) && y >= 0) {
        if (y > 64 && x != 0 && x != 1 && x != -1) too_big(r);
        if (y > 64) y = 64 + (y & 1); /* of 0, 1 and -1 only the parity of y matters */
        int64_t v = 1;
        for (int64_t i = 0; i < y; i++)
            if (__builtin_mul_overflow(v, x, &v)) too_big(r);
        return jinja_int(v);
    }
    double p = jinja_as_double(r, a), q = jinja_as_double(r, b);
    if (p == 0 && q < 0) JINJA_FAIL(r, "0.0 cannot be raised to a negative power");
    if (p < 0 && isfinite(p) && isfinite(q) && q != floor(q))
        JINJA_UNSUPPORTED(r, "a complex number");
    double v = pow(p, q);
    if (isinf(v) && isfinite(p) && isfinite(q)) JINJA_FAIL(r, "Numerical result out of range");
    return jinja_float(v);
}

static jinja_value repeat(jinja_run *r, jinja_value seq, int64_t times)
{
    times = ARES_MAX(times, 0);
    if (seq.kind == JV_STR) {
        jinja_buf b = { 0 };
        jinja_add_repeat(r, &b, seq.u.s->data, seq.u.s->len, times);
        jinja_value v = jinja_str_buf(r, &b);
        v.flag = seq.flag;
        return v;
    }
    int64_t n;
    if (__builtin_mul_overflow(seq.u.l->n, times, &n)) jinja_alloc(r, SIZE_MAX / 2);
    jinja_value v = jinja_list_new(r, n, seq.kind);
    for (int64_t i = 0; i < n; i++) v.u.l->items[i] = seq.u.l->items[i % seq.u.l->n];
    return v;
}

/* What + joins and * repeats. */
static bool is_sequence(jinja_value v)
{
    return v.kind == JV_STR || v.kind == JV_LIST || v.kind == JV_TUPLE;
}

/* a + b of two sequences of one type. Where one text is marked safe, the other is escaped. */
static jinja_value concat(jinja_run *r, jinja_value a, jinja_value b)
{
    if (a.kind == JV_STR) {
        bool markup = a.flag || b.flag;
        if (markup && !a.flag) a = jinja_escape(r, a);
        if (markup && !b.flag) b = jinja_escape(r, b);
        jinja_buf text = { 0 };
        jinja_grow(r, &text, a.u.s->len + b.u.s->len);
        jinja_add(r, &text, a.u.s->data, a.u.s->len);
        jinja_add(r, &text, b.u.s->data, b.u.s->len);
        jinja_value v = jinja_str_buf(r, &text);
        v.flag = markup;
        return v;
    }
    jinja_value v = jinja_list_new(r, a.u.l->n + b.u.l->n, a.kind);
    if (a.u.l->n) memcpy(v.u.l->items, a.u.l->items, (size_t)a.u.l->n * sizeof v);
    if (b.u.l->n) memcpy(v.u.l->items + a.u.l->n, b.u.l->items, (size_t)b.u.l->n * sizeof v);
    return v;
}

/* a op b for the arithmetic operators, with Python messages for types that do not fit. */
jinja_value jinja_binary(jinja_run *r, jinja_op op, jinja_value a, jinja_value b)
{
    static const char *const words[] = {
        /* as the messages write them */
        [JOP_ADD] = "+",       [JOP_SUB] = "-", [JOP_MUL] = "*", [JOP_DIV] = "/",
        [JOP_FLOORDIV] = "//", [JOP_MOD] = "%", [JOP_POW] = "**"
    };
    int64_t i, j;
    if (op == JOP_MOD && a.kind == JV_STR)
        JINJA_UNSUPPORTED(r, "'%%' of a str (formatting) is not supported; join with '~'");
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a.kind == JV_BIG || b.kind == JV_BIG) too_big(r);
        /* int ** int may be a float: 2 ** -1 is 0.5 */
        if (op == JOP_POW) return jinja_power(r, a, b);
        if (jinja_as_index(a, &i) && jinja_as_index(b, &j)) return int_binary(r, op, i, j);
        return float_binary(r, op, jinja_as_double(r, a), jinja_as_double(r, b));
    }
    if (op == JOP_ADD && is_sequence(a) && a.kind == b.kind) return concat(r, a, b);
    /* "ab" * 2 and 2 * "ab" are both "abab" */
    if (op == JOP_MUL && is_sequence(a) && jinja_as_index(b, &j)) return repeat(r, a, j);
    if (op == JOP_MUL && is_sequence(b) && jinja_as_index(a, &i)) return repeat(r, b, i);
    if (op == JOP_MUL &&
        ((is_sequence(a) && b.kind == JV_BIG) || (is_sequence(b) && a.kind == JV_BIG)))
        too_big(r);
    if ((a.kind == JV_VIEW || b.kind == JV_VIEW) && op == JOP_SUB)
        JINJA_UNSUPPORTED(r, "set operations");
    if (a.kind == JV_UNDEFINED || b.kind == JV_UNDEFINED)
        JINJA_FAIL(r, "%s", (a.kind == JV_UNDEFINED ? a : b).u.hint);
    /* Python has a message of its own for this */
    if (op == JOP_ADD && a.kind == JV_STR)
        JINJA_FAIL(r, "can only concatenate str (not \"%s\") to str", jinja_type_name(b));
    JINJA_FAIL(r, "unsupported operand type(s) for %s: '%s' and '%s'", words[op],
               jinja_type_name(a), jinja_type_name(b));
}

jinja_value jinja_negate(jinja_run *r, jinja_value a)
{
    int64_t i;
    if (a.kind == JV_FLOAT) return jinja_float(-a.u.f);
    if (a.kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", a.u.hint);
    if (a.kind == JV_BIG) {
        ares_view digits = jinja_text(a);
        /* the one integer beyond 64 bits whose negative is within */
        if (ares_view_is(digits, "9223372036854775808")) return jinja_int(INT64_MIN);
        jinja_buf b = { 0 };
        /* the sign is part of its text */
        if (digits.data[0] != '-') jinja_add(r, &b, "-", 1);
        jinja_add(r, &b, digits.data + (digits.data[0] == '-'),
                  digits.len - (digits.data[0] == '-'));
        jinja_value v = jinja_str_buf(r, &b);
        v.kind = JV_BIG;
        return v;
    }
    if (a.kind == JV_INT && a.u.i == INT64_MIN) too_big(r);
    if (!jinja_as_index(a, &i))
        JINJA_FAIL(r, "bad operand type for unary -: '%s'", jinja_type_name(a));
    return jinja_int(-i);
}
