/*
 * Whether two normalised texts have the same value (docs/rewards.md#equal-values): by our rules,
 * and as the original judges, which is sympy's parse of (truth)-(given) with its own refusals; here
 * the evaluators decide whether that is zero.
 */
#include "value.h"

#include <utf8proc.h>

bool math_same_value(ares_view a, ares_view b, math_budget *budget, ares_arena *arena)
{
    if (a.len > MATH_MAX_BYTES || b.len > MATH_MAX_BYTES) return false;
    if (ares_view_eq(a, b)) return true;
    value_program x, y;
    value_init(&x, arena);
    value_init(&y, arena);
    value_parse(&x, a, false, budget);
    if (!x.failed) value_parse(&y, b, false, budget);
    bool same = !x.failed && !y.failed && value_same(&x, &y, 2, budget);
    value_free(&x);
    value_free(&y);
    return same;
}

/* ------------------------------------------------------------------ the original */
/*
 * Collects the different letters of the text, the words sqrt and frac aside; a third one refuses
 * it.
 */
static void count_letters(ares_view t, int32_t seen[3], int *count)
{
    for (size_t i = 0; i < t.len;) {
        ares_view rest = { t.data + i, t.len - i };
        if (ares_view_starts(rest, ARES_VIEW("sqrt")) ||
            ares_view_starts(rest, ARES_VIEW("frac"))) {
            i += 4;
            continue;
        }
        utf8proc_int32_t c;
        utf8proc_ssize_t n =
            utf8proc_iterate((const utf8proc_uint8_t *)rest.data, (utf8proc_ssize_t)rest.len, &c);
        i += n > 0 ? (size_t)n : 1;
        if (n <= 0 || utf8proc_category(c) < UTF8PROC_CATEGORY_LU ||
            utf8proc_category(c) > UTF8PROC_CATEGORY_LO)
            continue;
        int k = 0;
        while (k < *count && seen[k] != c) k++;
        if (k == *count && k < 3) seen[(*count)++] = c;
    }
}

/*
 * Whether the original refuses the text: for "^{", "^(", ^digits^, or "^" followed by two digits.
 */
static bool refused(ares_view t)
{
    for (size_t i = 0; i + 1 < t.len; i++) {
        if (t.data[i] != '^') continue;
        char c = t.data[i + 1];
        if (c == '{' || c == '(') return true;
        size_t end = i + 1;
        while (end < t.len && t.data[end] >= '0' && t.data[end] <= '9') end++;
        if (end >= i + 3 || (end == i + 2 && end < t.len && t.data[end] == '^')) return true;
    }
    return false;
}

/*
 * The original's decimals are binary floats: literals are rounded first, and a difference of
 * rationals is zero when both sides round to the same float.
 */
static void round_literals(value_program *p, mpfr_ptr rounded)
{
    for (int i = 0; i < p->literal_count; i++) {
        if (mpz_cmp_ui(mpq_denref(p->literals[i]), 1) == 0) continue;
        mpfr_set_q(rounded, p->literals[i], MPFR_RNDN);
        mpfr_get_q(p->literals[i], rounded);
    }
}

static bool same_rounded(value_program *x, value_program *y, math_budget *budget, bool *decided)
{
    int digits = ARES_MAX(x->decimal_digits, y->decimal_digits);
    mpfr_prec_t precision =
        digits <= 15 ? 53 : (mpfr_prec_t)((digits + 1) * 3.3219280948873626 + 0.5);
    mpq_t a, b;
    mpfr_t p, q;
    mpq_inits(a, b, NULL);
    mpfr_inits2(precision, p, q, (mpfr_ptr)0);
    /* with roots or letters, decimals stay exact */
    *decided = value_exact(x, budget, a) == VALUE_DONE && value_exact(y, budget, b) == VALUE_DONE;
    if (*decided) {
        round_literals(x, p);
        round_literals(y, p);
        *decided =
            value_exact(x, budget, a) == VALUE_DONE && value_exact(y, budget, b) == VALUE_DONE;
    }
    mpfr_set_q(p, a, MPFR_RNDN);
    mpfr_set_q(q, b, MPFR_RNDN);
    bool same = *decided && mpfr_equal_p(p, q);
    mpfr_clears(p, q, (mpfr_ptr)0);
    mpq_clears(a, b, NULL);
    return same;
}

bool math_same_value_reference(ares_view given, ares_view truth, math_budget *budget,
                               ares_arena *arena)
{
    int32_t seen[3];
    int letters = 0;
    if (given.len > MATH_MAX_BYTES || truth.len > MATH_MAX_BYTES) return false;
    count_letters(truth, seen, &letters);
    count_letters(given, seen, &letters);
    if (letters > 2 || refused(truth) || refused(given)) return false;
    value_program x, y;
    value_init(&x, arena);
    value_init(&y, arena);
    value_parse(&x, truth, true, budget);
    if (!x.failed) value_parse(&y, given, true, budget);
    bool same = false;
    if (!x.failed && !y.failed) {
        bool decided = false;
        if (x.decimals + y.decimals) same = same_rounded(&x, &y, budget, &decided);
        if (!decided) same = value_same(&x, &y, VALUE_MAX_NAMES, budget);
    }
    value_free(&x);
    value_free(&y);
    return same && !budget->exhausted;
}
