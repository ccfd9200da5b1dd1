/*
 * Values: allocation, making values, text under construction, strings. Integers have 64 bits;
 * larger ones from JSON or the source keep their digits and can be printed and compared.
 */
#include <string.h>

#include "jinja.h"

void *jinja_alloc(jinja_run *r, size_t bytes)
{
    if (bytes > r->memory_limit || r->used > r->memory_limit - bytes)
        jinja_fail(r, ARES_ELIMIT, "the template needs more than %zu bytes of memory",
                   r->memory_limit);
    r->used += bytes + 16;
    return ares_arena_alloc(&r->arena, bytes);
}

void jinja_work(jinja_run *r, size_t bytes)
{
    r->steps += (int64_t)(bytes / 64);
    if (r->steps > r->step_limit)
        jinja_fail(r, ARES_ELIMIT, "the template runs longer than %lld steps",
                   (long long)r->step_limit);
}

void jinja_enter(jinja_run *r)
{
    if (++r->depth > JINJA_RUN_DEPTH) jinja_fail(r, ARES_ELIMIT, "recursion too deep");
    if (++r->steps > r->step_limit)
        jinja_fail(r, ARES_ELIMIT, "the template runs longer than %lld steps",
                   (long long)r->step_limit);
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

jinja_value jinja_str_view(jinja_run *r, const char *data, size_t len)
{
    jinja_string *s = jinja_alloc(r, sizeof *s);
    *s = (jinja_string){ data, len, -1 };
    return (jinja_value){ .kind = JV_STR, .u.s = s };
}

jinja_value jinja_str(jinja_run *r, const char *data, size_t len)
{
    char *copy = jinja_alloc(r, len + 1);
    if (len) memcpy(copy, data, len);
    copy[len] = 0;
    return jinja_str_view(r, copy, len);
}

jinja_value jinja_str_buf(jinja_run *r, jinja_buf *b)
{
    return jinja_str_view(r, b->data ? b->data : "", b->len);
}

jinja_value jinja_list_new(jinja_run *r, int64_t n, jinja_kind kind)
{
    jinja_list *l = jinja_alloc(r, sizeof *l);
    if (n > (int64_t)1 << 32) jinja_fail(r, ARES_ELIMIT, "a list of %lld elements", (long long)n);
    l->n = n;
    l->items = jinja_alloc(r, (size_t)n * sizeof *l->items + 1);
    r->steps += n / 8;
    return (jinja_value){ .kind = (uint8_t)kind, .u.l = l };
}

jinja_value jinja_iter_new(jinja_run *r, bool (*next)(jinja_run *, jinja_iter *, jinja_value *),
                           jinja_value over, void *extra)
{
    jinja_iter *it = jinja_alloc(r, sizeof *it);
    *it = (jinja_iter){ next, over, 0, extra };
    return (jinja_value){ .kind = JV_ITER, .u.it = it };
}

/* ------------------------------------------------------------------ text under construction */
void jinja_grow(jinja_run *r, jinja_buf *b, size_t more)
{
    if (more > r->memory_limit) jinja_alloc(r, more);
    if (b->len + more + 1 <= b->cap) return;
    size_t cap = ARES_MAX(b->cap * 2, b->len + more + 64);
    char *data = jinja_alloc(r, cap);
    if (b->len) memcpy(data, b->data, b->len);
    b->data = data, b->cap = cap;
}

void jinja_add(jinja_run *r, jinja_buf *b, const char *data, size_t len)
{
    if (b == r->top && b->len + len > r->output_limit)
        jinja_fail(r, ARES_ELIMIT, "the text grows beyond %zu bytes", r->output_limit);
    jinja_grow(r, b, len);
    if (len) memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
    jinja_work(r, len);
}

void jinja_add_z(jinja_run *r, jinja_buf *b, const char *z)
{
    jinja_add(r, b, z, strlen(z));
}

void jinja_add_repeat(jinja_run *r, jinja_buf *b, const char *data, size_t len, int64_t times)
{
    if (times <= 0 || len == 0) return;
    size_t total;
    if (__builtin_mul_overflow(len, (size_t)times, &total)) jinja_alloc(r, SIZE_MAX / 2);
    jinja_grow(r, b, total);
    for (int64_t i = 0; i < times; i++) jinja_add(r, b, data, len);
}

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

int64_t jinja_chars(jinja_run *r, jinja_value v)
{
    jinja_string *s = v.u.s;
    if (s->chars >= 0) return s->chars;
    jinja_work(r, s->len);
    int64_t n = 0;
    for (size_t i = 0; i < s->len; i++) n += ((unsigned char)s->data[i] & 0xC0) != 0x80;
    return s->chars = n;
}

size_t jinja_char_offset(jinja_run *r, jinja_value v, int64_t index)
{
    jinja_string *s = v.u.s;
    if (jinja_chars(r, v) == (int64_t)s->len) return (size_t)index;
    size_t i = 0;
    for (; index > 0 && i < s->len; index--) do
            i++;
        while (i < s->len && ((unsigned char)s->data[i] & 0xC0) == 0x80);
    jinja_work(r, i);
    return i;
}

jinja_value jinja_char_at(jinja_run *r, jinja_value v, int64_t index)
{
    size_t a = jinja_char_offset(r, v, index);
    uint32_t cp;
    return jinja_str_view(r, v.u.s->data + a,
                          (size_t)jinja_decode(v.u.s->data + a, v.u.s->len - a, &cp));
}

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
        [JV_CYCLER] = "Cycler",
        [JV_JOINER] = "Joiner",
        [JV_FUNC] = "function",
        [JV_METHOD] = "builtin_function_or_method",
    };
    return names[v.kind];
}

bool jinja_is_callable(jinja_value v)
{
    return v.kind == JV_UNDEFINED || v.kind == JV_MACRO || v.kind == JV_LOOP ||
           v.kind == JV_JOINER || v.kind == JV_FUNC || v.kind == JV_METHOD;
}
