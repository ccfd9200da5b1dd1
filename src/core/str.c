/*
 * Strings and views, numbers as text, hashes.
 *
 * A number is written as Python's repr writes it: the fewest digits that read back as the same
 * value, an exponent from 1e+16 up and below 1e-04, and always a point or an exponent, so that 1.0
 * does not turn into the integer 1.
 */
#include "ares/core.h"

#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* FNV-1a: h is the hash so far, ARES_FNV1A at first. */
uint64_t ares_fnv1a(uint64_t h, const void *data, size_t len)
{
    for (size_t i = 0; i < len; i++) h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

/* NULL gives an empty view, never a NULL pointer. */
ares_view ares_view_of(const char *s)
{
    return s ? (ares_view){ s, strlen(s) } : (ares_view){ "", 0 };
}

ares_view ares_str_view(const ares_str *s)
{
    return s->data ? (ares_view){ s->data, s->len } : (ares_view){ "", 0 };
}

bool ares_view_eq(ares_view a, ares_view b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

bool ares_view_is(ares_view a, const char *s)
{
    return ares_view_eq(a, ares_view_of(s));
}

bool ares_view_starts(ares_view a, ares_view prefix)
{
    return a.len >= prefix.len && ares_view_eq((ares_view){ a.data, prefix.len }, prefix);
}

bool ares_view_is_utf8(ares_view a)
{
    uint32_t c;
    int bytes;
    for (const char *p = a.data, *end = a.data + a.len; p < end; p += bytes)
        if ((bytes = ares_utf8_next(p, end, &c)) < 0) return false;
    return true;
}

/* An empty needle is found at once, as by Python's find. */
int64_t ares_view_find(ares_view a, ares_view needle, size_t from)
{
    if (from > a.len) return -1;
    if (needle.len == 0) return (int64_t)from;
    const char *hit =
        a.len > from ? memmem(a.data + from, a.len - from, needle.data, needle.len) : NULL;
    return hit ? hit - a.data : -1;
}

/* ASCII white space, as in the C locale. */
static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Without white space at both ends; the same bytes. */
ares_view ares_view_trim(ares_view a)
{
    while (a.len && is_space(a.data[0])) a.data++, a.len--;
    while (a.len && is_space(a.data[a.len - 1])) a.len--;
    return a;
}

void ares_str_fini(ares_str *s)
{
    ares_free(s->data);
    *s = (ares_str){ 0 };
}

/* Keeps the memory. */
void ares_str_clear(ares_str *s)
{
    s->len = 0;
    if (s->data) s->data[0] = 0;
}

/* Grows by half at least, so that adding byte by byte stays linear. */
void ares_str_reserve(ares_str *s, size_t cap)
{
    if (s->data && cap < s->cap) return;
    ARES_ASSERT(cap < SIZE_MAX / 2);
    size_t grown = ARES_MAX(ARES_MAX(cap + 1, s->cap + s->cap / 2), (size_t)32);
    s->data = ares_realloc(s->data, grown);
    s->cap = grown;
    s->data[s->len] = 0;
}

void ares_str_add(ares_str *s, const char *data, size_t len)
{
    ARES_ASSERT(len < SIZE_MAX / 4);
    ares_str_reserve(s, s->len + len);
    if (len) memcpy(s->data + s->len, data, len);
    s->len += len;
    s->data[s->len] = 0;
}

void ares_str_add_view(ares_str *s, ares_view v)
{
    ares_str_add(s, v.data, v.len);
}

void ares_str_add_z(ares_str *s, const char *z)
{
    ares_str_add(s, z, strlen(z));
}

/* Reserves only where the buffer is full: JSON is written a byte at a time. */
void ares_str_add_char(ares_str *s, char c)
{
    if (s->len + 1 >= s->cap) ares_str_reserve(s, s->len + 1);
    s->data[s->len++] = c;
    s->data[s->len] = 0;
}

/* Tries 64 free bytes first; most texts fit, and are then formatted once. */
void ares_str_addf(ares_str *s, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    ares_str_reserve(s, s->len + 64);
    int n = vsnprintf(s->data + s->len, s->cap - s->len, format, args);
    ARES_ASSERT(n >= 0);
    if ((size_t)n >= s->cap - s->len) {
        ares_str_reserve(s, s->len + (size_t)n);
        vsnprintf(s->data + s->len, s->cap - s->len, format, again);
    }
    s->len += (size_t)n;
    va_end(again);
    va_end(args);
}

/* Reserves first, so that even an empty string gives memory with a NUL. */
char *ares_str_take(ares_str *s)
{
    ares_str_reserve(s, s->len);
    char *data = s->data;
    *s = (ares_str){ 0 };
    return data;
}

/* A library may call setlocale; numbers in files must not get decimal commas from it. */
static locale_t c_locale(void)
{
    static _Atomic(locale_t) shared;
    locale_t known = shared;
    if (known) return known;
    /* several threads may make one: the first one stays */
    locale_t made = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    ARES_ASSERT(made != (locale_t)0);
    if (atomic_compare_exchange_strong(&shared, &known, made)) return made;
    freelocale(made);
    return known;
}

/*
 * x as a double, or as a float (single): repr of Python, of the shorter type. 0.1f is "0.1", though
 * as a double it is 0.10000000149011612; 100000 is "100000.0", 1e16 is "1e+16".
 */
static void add_number(ares_str *s, double x, bool single)
{
    if (isnan(x)) {
        ares_str_add_z(s, "nan");
        return;
    }
    if (isinf(x)) {
        ares_str_add_z(s, x < 0 ? "-inf" : "inf");
        return;
    }
    /* small whole numbers, most of what is written, need no search; -0.0 keeps its sign */
    if (fabs(x) < 1e9 && x == (double)(int32_t)x && !(x == 0 && signbit(x))) {
        ares_str_addf(s, "%d.0", (int32_t)x);
        return;
    }

    char text[40], digits[40];
    /* snprintf has no variant that takes a locale */
    locale_t before = uselocale(c_locale());
    /*
     * "d.ddde+xx" with the fewest digits that read back as x. If some number of digits does, so
     * does every larger one, hence the bisection.
     */
    int fails = -1, good = single ? 8 : 16; /* digits after the first; these are always enough */
    while (good - fails > 1) {
        int middle = (fails + good) / 2;
        snprintf(text, 40, "%.*e", middle, x);
        bool same = single ? strtof_l(text, NULL, c_locale()) == (float)x
                           : strtod_l(text, NULL, c_locale()) == x;
        if (same) good = middle;
        else fails = middle;
    }
    snprintf(text, 40, "%.*e", good, x);
    uselocale(before);

    /* the digits of "-1.25e+02" as "125", and the exponent of the first one, 2 */
    const char *p = text;
    if (*p == '-') ares_str_add_char(s, *p++);
    int n = 0;
    for (; *p != 'e'; p++)
        if (*p != '.') digits[n++] = *p;
    int exponent = atoi(p + 1);
    /* zeros at the end carry nothing */
    while (n > 1 && digits[n - 1] == '0') n--;

    /* 1e-05, 1.5e+16; 0.00015; 125.0 */
    if (exponent < -4 || exponent >= 16) {
        ares_str_add_char(s, digits[0]);
        if (n > 1) ares_str_add_char(s, '.');
        ares_str_add(s, digits + 1, (size_t)n - 1);
        ares_str_addf(s, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        ares_str_add_z(s, "0.");
        for (int i = exponent + 1; i < 0; i++) ares_str_add_char(s, '0');
        ares_str_add(s, digits, (size_t)n);
    } else {
        for (int i = 0; i <= exponent; i++) ares_str_add_char(s, i < n ? digits[i] : '0');
        ares_str_add_char(s, '.');
        if (n > exponent + 1) ares_str_add(s, digits + exponent + 1, (size_t)(n - exponent - 1));
        else ares_str_add_char(s, '0');
    }
}

void ares_str_add_double(ares_str *s, double x)
{
    add_number(s, x, false);
}

void ares_str_add_float(ares_str *s, float x)
{
    add_number(s, (double)x, true);
}

/*
 * Reads "12", "-0.5", ".5", "1e-3" to their ends; no blanks, no "inf", no hexadecimal. Exact for up
 * to 18 digits and small exponents; the C library reads the rest.
 */
bool ares_parse_double(ares_view text, double *out)
{
    static const double power[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    const char *p = text.data, *end = p + text.len;
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) p++;
    /* digits without the point, and how far the point is from their end */
    uint64_t mantissa = 0;
    int digits = 0, significant = 0, exponent = 0;
    for (bool fraction = false; p < end && (ares_is_digit(*p) || (*p == '.' && !fraction)); p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        digits++;
        if (significant < 18) {
            mantissa = mantissa * 10 + (uint64_t)(*p - '0');
            if (mantissa) significant++;
        } else significant = 19;                        /* too many for the quick way */
        if (fraction && exponent > -100000) exponent--; /* bounded: no overflow by long texts */
    }
    if (digits == 0) return false;
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        bool minus = p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+')) p++;
        if (p == end || !ares_is_digit(*p)) return false;
        int written = 0;
        for (; p < end && ares_is_digit(*p); p++)
            if (written < 100000) written = written * 10 + (*p - '0');
        exponent += minus ? -written : written;
    }
    if (p != end) return false;

    /* both factors are exact doubles here, so the single rounding is correct (Clinger 1990) */
    double value;
    if (significant < 19 && mantissa <= (uint64_t)1 << 53 && abs(exponent) <= 22) {
        value =
            exponent < 0 ? (double)mantissa / power[-exponent] : (double)mantissa * power[exponent];
        *out = negative ? -value : value;
        return true;
    }
    /* strtod reads up to a NUL, which a view may not have */
    char small[128], *copy = text.len < sizeof small ? small : ares_malloc(text.len + 1);
    memcpy(copy, text.data, text.len);
    copy[text.len] = 0;
    value = strtod_l(copy, NULL, c_locale());
    if (copy != small) ares_free(copy);
    if (isinf(value)) return false;
    *out = value;
    return true;
}

/* Digits with at most one sign, nothing around them; false also beyond 64 bits. */
bool ares_parse_i64(ares_view text, int64_t *out)
{
    size_t i = 0;
    bool negative = text.len && text.data[0] == '-';
    if (text.len && (text.data[0] == '-' || text.data[0] == '+')) i++;
    if (i == text.len) return false;
    int64_t value = 0; /* accumulated as a negative number, whose range is larger by one */
    for (; i < text.len; i++) {
        if (!ares_is_digit(text.data[i])) return false;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, text.data[i] - '0', &value))
            return false;
    }
    if (!negative && value == INT64_MIN) return false;
    *out = negative ? value : -value;
    return true;
}

/* ------------------------------------------------------------------ SHA-256 (FIPS 180-4) */
static uint32_t turn_right(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void sha256_block(ares_sha256 *s)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2
    };
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) {
        const unsigned char *b = s->block + 4 * i;
        w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn_right(a, 7) ^ turn_right(a, 18) ^ a >> 3) + w[i - 7] +
               (turn_right(b, 17) ^ turn_right(b, 19) ^ b >> 10);
    }
    memcpy(v, s->h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t t1 = v[7] + (turn_right(e, 6) ^ turn_right(e, 11) ^ turn_right(e, 25)) +
                      ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
        uint32_t t2 = (turn_right(a, 2) ^ turn_right(a, 13) ^ turn_right(a, 22)) +
                      ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[0] = t1 + t2;
        v[4] += t1;
    }
    for (int i = 0; i < 8; i++) s->h[i] += v[i];
}

void ares_sha256_init(ares_sha256 *s)
{
    *s = (ares_sha256){ .h = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                               0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } };
}

void ares_sha256_add(ares_sha256 *s, const void *data, size_t len)
{
    const unsigned char *p = data;
    while (len) {
        size_t at = s->len % 64, n = ARES_MIN(len, 64 - at);
        memcpy(s->block + at, p, n);
        s->len += n;
        p += n;
        len -= n;
        if (at + n == 64) sha256_block(s);
    }
}

void ares_sha256_end(ares_sha256 *s, unsigned char out[32])
{
    uint64_t bits = s->len * 8;
    unsigned char one = 0x80, zero = 0, length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    ares_sha256_add(s, &one, 1);
    while (s->len % 64 != 56) ares_sha256_add(s, &zero, 1);
    ares_sha256_add(s, length, 8);
    for (int i = 0; i < 32; i++) out[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}
