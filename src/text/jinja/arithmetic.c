/* Arithmetic of values, as in Python, but an integer beyond 64 bits is an error. */
#include <math.h>
#include <string.h>

#include "jinja.h"

static void unlike(jinja_run *r, jinja_op op, jinja_value a, jinja_value b)
    __attribute__((noreturn));
static void unlike(jinja_run *r, jinja_op op, jinja_value a, jinja_value b)
{
    static const char *const words[] = {
        [JOP_ADD] = "+",       [JOP_SUB] = "-", [JOP_MUL] = "*", [JOP_DIV] = "/",
        [JOP_FLOORDIV] = "//", [JOP_MOD] = "%", [JOP_POW] = "**"
    };
    if (a.kind == JV_UNDEFINED || b.kind == JV_UNDEFINED)
        JINJA_FAIL(r, "%s", (a.kind == JV_UNDEFINED ? a : b).u.hint);
    if (op == JOP_ADD && a.kind == JV_STR)
        JINJA_FAIL(r, "can only concatenate str (not \"%s\") to str", jinja_type_name(b));
    JINJA_FAIL(r, "unsupported operand type(s) for %s: '%s' and '%s'", words[op],
               jinja_type_name(a), jinja_type_name(b));
}

static void too_big(jinja_run *r) __attribute__((noreturn));
static void too_big(jinja_run *r)
{
    JINJA_UNSUPPORTED(r, "arithmetic beyond 64-bit integers");
}

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
        if (a > (int64_t)1 << 53 || a < -((int64_t)1 << 53) || b > (int64_t)1 << 53 ||
            b < -((int64_t)1 << 53))
            too_big(r);
        return jinja_float((double)a / (double)b);
    case JOP_FLOORDIV:
        if (a == INT64_MIN && b == -1) too_big(r);
        v = floor_div(a, b);
        break;
    default:
        if (b == -1) return jinja_int(0);
        v = a - floor_div(a, b) * b;
    }
    if (over) too_big(r);
    return jinja_int(v);
}

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
        if (y > 64) y = 64 + (y & 1);
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

static bool is_sequence(jinja_value v)
{
    return v.kind == JV_STR || v.kind == JV_LIST || v.kind == JV_TUPLE;
}

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

jinja_value jinja_binary(jinja_run *r, jinja_op op, jinja_value a, jinja_value b)
{
    int64_t i, j;
    if (op == JOP_MOD && a.kind == JV_STR) {
        if (a.flag || (b.kind == JV_STR && b.flag))
            JINJA_UNSUPPORTED(r, "%% with text marked safe");
        return jinja_percent(r, a, b, NULL);
    }
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a.kind == JV_BIG || b.kind == JV_BIG) too_big(r);
        if (op == JOP_POW) return jinja_power(r, a, b);
        if (jinja_as_index(a, &i) && jinja_as_index(b, &j)) return int_binary(r, op, i, j);
        return float_binary(r, op, jinja_as_double(r, a), jinja_as_double(r, b));
    }
    if (op == JOP_ADD && is_sequence(a) && a.kind == b.kind) return concat(r, a, b);
    if (op == JOP_MUL && is_sequence(a) && jinja_as_index(b, &j)) return repeat(r, a, j);
    if (op == JOP_MUL && is_sequence(b) && jinja_as_index(a, &i)) return repeat(r, b, i);
    if (op == JOP_MUL &&
        ((is_sequence(a) && b.kind == JV_BIG) || (is_sequence(b) && a.kind == JV_BIG)))
        too_big(r);
    if ((a.kind == JV_VIEW || b.kind == JV_VIEW) && op == JOP_SUB)
        JINJA_UNSUPPORTED(r, "set operations");
    unlike(r, op, a, b);
}

jinja_value jinja_negate(jinja_run *r, jinja_value a)
{
    int64_t i;
    if (a.kind == JV_FLOAT) return jinja_float(-a.u.f);
    if (a.kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", a.u.hint);
    if (a.kind == JV_BIG) {
        ares_view digits = jinja_text(a);
        if (ares_view_is(digits, "9223372036854775808")) return jinja_int(INT64_MIN);
        jinja_buf b = { 0 };
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
