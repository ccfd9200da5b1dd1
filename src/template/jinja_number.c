/* Text to numbers, as Python's int() and float() read it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jinja.h"

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
