/*
 * Number literals as the graders read them: a decimal with sign, point and exponent, single
 * underscores between digits, white space around it. Within 1e-7 of an integer it is that integer.
 * The target computes this exactly, the reference in binary floats, as the original does.
 */
#include "edit.h"

#include <gmp.h>
#include <string.h>

enum { MAX_DIGITS = 309 }; /* digits of the largest double */

/* Reads digits of t from *i on, with single underscores between them; false when there are none. */
static bool digits(ares_view t, size_t *i, edit_out *out)
{
    size_t from = *i;
    while (*i < t.len &&
           (edit_digit(t.data[*i]) || (t.data[*i] == '_' && *i > from && *i + 1 < t.len &&
                                       edit_digit(t.data[*i - 1]) && edit_digit(t.data[*i + 1])))) {
        if (t.data[*i] != '_') edit_add(out, edit_cut(t, *i, *i + 1));
        (*i)++;
    }
    return *i > from;
}

/* digits x 10^exponent */
typedef struct decimal {
    bool negative;
    ares_view digits;
    int64_t exponent;
} decimal;

static bool read_decimal(ares_view t, ares_arena *arena, decimal *d)
{
    edit_out all = { .arena = arena }, power = { .arena = arena };
    size_t i = 0;
    int64_t exponent = 0;
    t = edit_trim(t);
    d->negative = t.len && t.data[0] == '-';
    if (t.len && (t.data[0] == '-' || t.data[0] == '+')) i++;
    bool some = digits(t, &i, &all);
    size_t whole = all.len;
    if (i < t.len && t.data[i] == '.') {
        i++;
        some |= digits(t, &i, &all);
    }
    if (!some) return false;
    if (i < t.len && (t.data[i] == 'e' || t.data[i] == 'E')) {
        bool minus = i + 1 < t.len && t.data[i + 1] == '-';
        i += 1 + (i + 1 < t.len && (t.data[i + 1] == '-' || t.data[i + 1] == '+'));
        if (!digits(t, &i, &power)) return false;
        for (size_t k = 0; k < power.len; k++)
            exponent = ARES_MIN(exponent * 10 + (power.data[k] - '0'), 1000000);
        if (minus) exponent = -exponent;
    }
    d->digits = edit_view(&all);
    d->exponent = exponent - (int64_t)(all.len - whole);
    while (d->digits.len && d->digits.data[0] == '0') d->digits = edit_from(d->digits, 1);
    return i == t.len;
}

bool math_integer(ares_view t, math_mode mode, ares_arena *arena, ares_view *text)
{
    decimal d;
    if (!read_decimal(t, arena, &d)) return false;
    int64_t whole = (int64_t)d.digits.len + d.exponent; /* digits before the point */
    if (whole > MAX_DIGITS) return false;
    if (!d.digits.len || whole < -7) { /* below 1e-7 */
        *text = ARES_VIEW("0");
        return true;
    }
    mpz_t n, scale, rest;
    mpz_inits(n, scale, rest, NULL);
    bool integer = true;
    if (mode == MATH_REFERENCE) {
        double x;
        char *plain = ares_arena_printf(arena, "%.*se%lld", (int)d.digits.len, d.digits.data,
                                        (long long)d.exponent);
        integer = ares_parse_double(ares_view_of(plain), &x) && x <= 1.7976931348623157e308;
        if (integer) {
            mpz_set_d(n, x);
            /* exact: a double with a fraction is below 2^53 */
            double down = mpz_get_d(n), gap = x - down;
            if (gap > 0.5) {
                mpz_add_ui(n, n, 1);
                gap = mpz_get_d(n) - x;
            }
            integer = gap <= 1e-7;
        }
    } else {
        char *plain = ares_arena_copy(arena, d.digits.data, d.digits.len);
        mpz_set_str(n, plain, 10);
        mpz_ui_pow_ui(scale, 10, (unsigned long)(d.exponent < 0 ? -d.exponent : d.exponent));
        if (d.exponent >= 0) mpz_mul(n, n, scale);
        else {
            mpz_fdiv_qr(n, rest, n, scale);
            mpz_mul_ui(rest, rest, 10000000); /* rest / scale against 1e-7 and 1 - 1e-7 */
            if (mpz_cmp(rest, scale) > 0) {
                mpz_submul_ui(rest, scale, 10000000);
                mpz_neg(rest, rest);
                integer = mpz_cmp(rest, scale) <= 0;
                mpz_add_ui(n, n, 1);
            }
        }
    }
    if (integer) {
        size_t size = mpz_sizeinbase(n, 10) + 3;
        char *out = ares_arena_alloc(arena, size);
        size_t sign = d.negative && mpz_sgn(n) ? 1 : 0;
        out[0] = '-';
        mpz_get_str(out + sign, 10, n);
        *text = ares_view_of(out);
    }
    mpz_clears(n, scale, rest, NULL);
    return integer;
}

bool math_is_integer(ares_view t, math_mode mode, ares_arena *arena)
{
    ares_view text;
    return math_integer(math_strip_thousands(t, arena), mode, arena, &text);
}

bool math_is_fraction(ares_view t)
{
    size_t i = t.len && t.data[0] == '-', from = i, slash;
    while (i < t.len && edit_digit(t.data[i])) i++;
    if (i == from) return false;
    if (i < t.len && t.data[i] == '/' && !edit_at(t, i, "//")) slash = i;
    else {
        if (i == t.len || t.data[i] == '\n') return false;
        slash = i + edit_char(t, i); /* one arbitrary character */
        if (slash >= t.len || t.data[slash] != '/') return false;
    }
    for (i = slash + 1; i < t.len && t.data[i] == '0';) i++;
    if (i == t.len || !edit_digit(t.data[i])) return false;
    while (i < t.len && edit_digit(t.data[i])) i++;
    if (i < t.len && t.data[i] != '\n') i += edit_char(t, i);
    return i == t.len || (t.data[i] == '\n' && i + 1 == t.len);
}

/*
 * One pass: digit, comma, three digits, then the end of the text or a character that is no digit
 * (which belongs to the match).
 */
static ares_view strip_once(ares_view t, ares_arena *arena)
{
    edit_out out = { .arena = arena };
    size_t i = 0;
    while (i < t.len) {
        bool match = i + 4 < t.len && edit_digit(t.data[i]) && t.data[i + 1] == ',' &&
                     edit_digit(t.data[i + 2]) && edit_digit(t.data[i + 3]) &&
                     edit_digit(t.data[i + 4]) && (i + 5 == t.len || !edit_digit(t.data[i + 5]));
        if (match) {
            size_t end = ARES_MIN(i + 6, t.len);
            edit_add(&out, edit_cut(t, i, i + 1));
            edit_add(&out, edit_cut(t, i + 2, end));
            i = end;
        } else {
            edit_add(&out, edit_cut(t, i, i + 1));
            i++;
        }
    }
    return edit_view(&out);
}

ares_view math_strip_thousands(ares_view t, ares_arena *arena)
{
    if (!edit_count(t, ",")) return t;
    for (;;) {
        ares_view next = strip_once(t, arena);
        if (next.len == t.len) return next;
        t = next;
    }
}
