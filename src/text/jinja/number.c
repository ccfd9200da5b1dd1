/* Numbers among values, their order, and text to numbers as Python's int() and float() read it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jinja.h"

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

jinja_value jinja_int_of(jinja_run *r, jinja_value v, bool *ok)
{
    int64_t i;
    *ok = true;
    if (v.kind == JV_BIG) return v;
    if (jinja_as_index(v, &i)) return jinja_int(i);
    *ok = v.kind == JV_FLOAT && !isnan(v.u.f);
    if (!*ok) return v;
    if (isinf(v.u.f)) JINJA_FAIL(r, "cannot convert float infinity to integer");
    if (fabs(v.u.f) >= 9.2e18) JINJA_UNSUPPORTED(r, "an integer beyond 64 bits");
    return jinja_int((int64_t)v.u.f);
}

static int order_big(ares_view a, ares_view b)
{
    bool na = a.data[0] == '-', nb = b.data[0] == '-';
    if (na != nb) return na ? -1 : 1;
    int c = a.len != b.len ? (a.len < b.len ? -1 : 1) : memcmp(a.data, b.data, a.len);
    c = c < 0 ? -1 : c > 0;
    return na ? -c : c;
}

int jinja_order_numbers(jinja_run *r, jinja_value a, jinja_value b)
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

/* ------------------------------------------------------------------ from text */
ares_view jinja_strip(ares_view s)
{
    uint32_t cp;
    while (s.len) {
        int k = jinja_decode(s.data, s.len, &cp);
        if (!jinja_is_space(cp)) break;
        s.data += k, s.len -= (size_t)k;
    }
    while (s.len) {
        size_t i = s.len - 1;
        while (i && ((unsigned char)s.data[i] & 0xC0) == 0x80) i--;
        jinja_decode(s.data + i, s.len - i, &cp);
        if (!jinja_is_space(cp)) break;
        s.len = i;
    }
    return s;
}

static void refuse_other_digits(jinja_run *r, ares_view s)
{
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        i += (size_t)jinja_decode(s.data + i, s.len - i, &cp);
        if (cp >= 0x80 && jinja_is_decimal(cp))
            JINJA_UNSUPPORTED(r, "a number in digits other than 0 to 9");
    }
}

bool jinja_parse_int(jinja_run *r, ares_view s, int base, jinja_value *out)
{
    if (base != 0 && (base < 2 || base > 36)) return false;
    jinja_work(r, s.len);
    refuse_other_digits(r, s);
    s = jinja_strip(s);
    bool negative = s.len && s.data[0] == '-', big = false, any = false;
    size_t i = s.len && (s.data[0] == '-' || s.data[0] == '+');
    bool prefixed = false, zero_based = base == 0;
    if (i + 1 < s.len && s.data[i] == '0') {
        char mark = (char)(s.data[i + 1] | 32);
        int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
        if (marked && (base == 0 || base == marked)) base = marked, i += 2, prefixed = true;
    }
    if (base == 0) base = 10;
    size_t first = i;
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
        int d = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10
                                                     : 99;
        if (d >= base) return false;
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

bool jinja_parse_float(jinja_run *r, ares_view s, double *out)
{
    jinja_work(r, s.len);
    refuse_other_digits(r, s);
    s = jinja_strip(s);
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
    static const char *const words[] = { "inf", "infinity", "nan" };
    for (int w = 0; w < ARES_COUNT(words); w++) {
        size_t len = strlen(words[w]), i = 0;
        while (i < len && (p[i] | 32) == words[w][i]) i++;
        if (i == len && p + len == text + n) {
            *out = w == 2 ? NAN : text[0] == '-' ? -INFINITY : INFINITY;
            return true;
        }
    }
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
