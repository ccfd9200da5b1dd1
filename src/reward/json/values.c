/* Values as JSON Schema compares them: numbers by value and exactly, objects without order. */
#include "schema.h"

#include <math.h>
#include <stdio.h>

static int sign_of(double x)
{
    return (x > 0) - (x < 0);
}

/* An integer of 64 bits against a finite double. */
static int compare_mixed(int64_t a, double b)
{
    if (fabs(b) >= 0x1p63) return -sign_of(b);
    int64_t whole = (int64_t)b;
    return a != whole ? (a > whole) - (a < whole) : -sign_of(b - (double)whole);
}

/* Integers as digits, without leading zeros; at least one is beyond 64 bits. */
static int compare_digits(ares_view a, ares_view b)
{
    bool minus_a = a.data[0] == '-', minus_b = b.data[0] == '-';
    if (minus_a != minus_b) return minus_a ? -1 : 1;
    int larger = a.len != b.len ? (a.len > b.len ? 1 : -1) : 0;
    for (size_t i = 0; !larger && i < a.len; i++) larger = a.data[i] - b.data[i];
    return minus_a ? -larger : larger;
}

/* A double beyond 64 bits is an integer, and has these digits. */
static ares_view integer_text(const ares_json *v, char *buffer, size_t size)
{
    if (v->type == ARES_JSON_INT) return v->text;
    return (ares_view){ buffer, (size_t)snprintf(buffer, size, "%.0f", v->number) };
}

int schema_compare(const ares_json *a, const ares_json *b)
{
    char digits_a[400], digits_b[400];
    bool int_a = a->type == ARES_JSON_INT, int_b = b->type == ARES_JSON_INT;
    if (!int_a && !int_b) return (a->number > b->number) - (a->number < b->number);
    if ((int_a && a->big) || (int_b && b->big)) {
        if (!int_a && fabs(a->number) < 0x1p63) return b->integer < 0 ? 1 : -1;
        if (!int_b && fabs(b->number) < 0x1p63) return a->integer < 0 ? -1 : 1;
        return compare_digits(integer_text(a, digits_a, sizeof digits_a),
                              integer_text(b, digits_b, sizeof digits_b));
    }
    if (int_a && int_b) return (a->integer > b->integer) - (a->integer < b->integer);
    return int_a ? compare_mixed(a->integer, b->number) : -compare_mixed(b->integer, a->number);
}

ares_str schema_digits(const ares_json *number, int64_t *exponent)
{
    enum { FAR = 1000000000 }; /* further than any double: the rest of the exponent is cut */
    ares_str digits = { 0 };
    ares_view t = number->text;
    bool fraction = false;
    size_t i = 0;
    *exponent = 0;
    for (; i < t.len && t.data[i] != 'e' && t.data[i] != 'E'; i++) {
        char c = t.data[i];
        if (c == '.') fraction = true;
        if (c < '0' || c > '9') continue;
        if (digits.len || c != '0') ares_str_add_char(&digits, c);
        if (fraction) --*exponent;
    }
    bool minus = i + 1 < t.len && t.data[i + 1] == '-';
    int64_t power = 0;
    for (i++; i < t.len; i++)
        if (t.data[i] >= '0' && t.data[i] <= '9' && power < FAR)
            power = power * 10 + t.data[i] - '0';
    *exponent += minus ? -power : power;
    while (digits.len && digits.data[digits.len - 1] == '0') {
        digits.data[--digits.len] = 0;
        ++*exponent;
    }
    return digits;
}

/*
 * n 10^f / (m 10^e) is whole, with neither n nor m divisible by ten: never where f < e, else where
 * m divides n 10^(f - e).
 */
bool schema_is_multiple(const ares_json *number, const ares_json *step)
{
    int64_t f, e;
    ares_str n = schema_digits(number, &f), m_digits = schema_digits(step, &e);
    uint64_t m = 0, rest = 0;
    for (size_t i = 0; i < m_digits.len; i++) m = m * 10 + (uint64_t)(m_digits.data[i] - '0');
    ARES_ASSERT(m > 0 && m_digits.len <= SCHEMA_STEP_DIGITS);
    for (size_t i = 0; i < n.len; i++) rest = (rest * 10 + (uint64_t)(n.data[i] - '0')) % m;
    bool multiple = n.len == 0 || f >= e;
    if (n.len && f >= e) {
        uint64_t ten = 10 % m;
        for (uint64_t k = (uint64_t)(f - e); k; k >>= 1) {
            if (k & 1) rest = rest * ten % m;
            ten = ten * ten % m;
        }
        multiple = rest == 0;
    }
    ares_str_fini(&n);
    ares_str_fini(&m_digits);
    return multiple;
}

bool schema_equal(const ares_json *a, const ares_json *b, int64_t *steps)
{
    if (--*steps < 0) return false;
    if (schema_is_number(a) && schema_is_number(b)) {
        *steps -= (int64_t)((a->text.len + b->text.len) / 16);
        return schema_compare(a, b) == 0;
    }
    if (a->type != b->type || a->count != b->count) return false;
    switch (a->type) {
    case ARES_JSON_BOOL: return a->boolean == b->boolean;
    case ARES_JSON_STRING:
        *steps -= (int64_t)(a->text.len / 16);
        return ares_view_eq(a->text, b->text);
    case ARES_JSON_ARRAY:
        for (int64_t i = 0; i < a->count; i++)
            if (!schema_equal(&a->items[i], &b->items[i], steps)) return false;
        return true;
    case ARES_JSON_OBJECT:
        for (int64_t i = 0; i < a->count; i++) {
            const ares_json *other = ares_json_find(b, a->members[i].key);
            *steps -= b->count;
            if (!other || !schema_equal(a->members[i].value, other, steps)) return false;
        }
        return true;
    case ARES_JSON_NULL:
    case ARES_JSON_INT:
    case ARES_JSON_FLOAT: break;
    }
    return true;
}
