/*
 * bf16 arithmetic: products with weights in pairs against a scalar model of vdpbf16ps, made of
 * exact double arithmetic, bit for bit on every instruction set; and against f64.
 */
#include "kernels_test.h"

/* One more than elsewhere: only its products in bf16 arithmetic are others than avx512's. */
static const char *const sets[] = { "plain", "avx2", "avx512", "avx512bf16", "neon" };

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static float flushed(float x)
{
    return bits_of(x) & 0x7f800000 ? x : float_of(bits_of(x) & 0x80000000);
}
/* vcvtneps2bf16, widened */
static float rounded(float x)
{
    return kernels_bf16_to_f32(kernels_f32_to_bf16(flushed(x)));
}

/* flush(a b + c), tiny as x86 says: below 2^-126 after rounding to 24 bits with any exponent */
static float step(float a, float b, float c)
{
    a = flushed(a), b = flushed(b), c = flushed(c);
    double p = (double)a * (double)b, s = p + (double)c; /* p is exact: 16 bits */
    if (!isfinite(s)) return (float)s;
    double t = s - p, low = (p - (s - t)) + ((double)c - t);
    uint64_t u;
    memcpy(&u, &s, sizeof u);
    /* to odd: a later rounding to 24 bits is then right */
    if (low != 0 && !(u & 1)) u += (s > 0) == (low > 0) ? 1 : (uint64_t)-1;
    memcpy(&s, &u, sizeof s);
    if (fabs(s) >= 0x1p-100 || s == 0) return (float)s;
    float up = (float)(s * 0x1p64);
    return fabsf(up) < 0x1p-62f ? copysignf(0, up) : up * 0x1p-64f;
}

/* Equal bits, but for the payload of a NaN. */
static int differ(const float *a, const float *b, int64_t n)
{
    int wrong = 0;
    for (int64_t i = 0; i < n; i++)
        wrong += isnan(a[i]) ? !isnan(b[i]) : bits_of(a[i]) != bits_of(b[i]);
    return wrong;
}

typedef enum { ORDINARY, TINY, HUGE_ONES, SPECIAL, KINDS } numbers;
/* n numbers of a kind; products of two tiny ones end near 2^-126 */
static float *some(numbers kind, uint64_t seed, int64_t n, double scale)
{
    static const float special[] = { 0.0f,   -0.0f,     0x1p-126f,    -0x1p-127f, 0x1.fffffep-127f,
                                     1e-45f, INFINITY,  -INFINITY,    NAN,        0x1.fep127f,
                                     1.0f,   -0x1p-40f, 0x1.018p-63f, 0x1p-86f,   -1.0f };
    float *x = normals(seed, n, scale);
    ares_rng_key key = ares_rng_root(seed + 77, ARES_RNG_TEST);
    for (int64_t i = 0; i < n; i++) {
        double u = ares_rng_uniform(key, (uint64_t)i);
        if (kind == TINY) x[i] = ldexpf(x[i], -63 + (int)(u * 6) - 3);
        if (kind == HUGE_ONES) x[i] = ldexpf(x[i], 62);
        if (kind == SPECIAL && u < 0.02)
            x[i] = special[(int)(u * 50 * ARES_COUNT(special)) % ARES_COUNT(special)];
    }
    return x;
}

typedef struct pairs {
    ares_matrix w;
    float *rows; /* [n][k], as the weight holds them */
} pairs;
static pairs pairs_of(numbers kind, uint64_t seed, int32_t n, int32_t k, ares_dtype dtype)
{
    int64_t elements = ares_matrix_elements(ARES_PANEL32_PAIRS, n, k);
    pairs q = { { ares_calloc((size_t)elements, 4), dtype, ARES_PANEL32_PAIRS, n, k },
                some(kind, seed, (int64_t)n * k, 0.5) };
    ares_matrix_pack(&q.w, q.rows, ARES_F32);
    ares_matrix_unpack(&q.w, q.rows, ARES_F32);
    return q;
}
static void pairs_free(pairs *q)
{
    ares_free(q->w.data), ares_free(q->rows);
}
/* Lanes beyond n and the partner of an odd k. */
static bool padding_is_zero(const ares_matrix *w)
{
    int64_t elements = ares_matrix_elements(w->layout, w->n, w->k), zero = 0,
            inputs = ares_layout_inputs(w->layout, w->k);
    for (int64_t at = 0; at < elements; at++) {
        int64_t n = at / (32 * inputs) * 32 + at / 2 % 32,
                k = at / 64 % (inputs / 2) * 2 + 1 - at % 2;
        if (n >= w->n || k >= w->k) zero += ((const float *)w->data)[at] != 0;
    }
    return zero == 0;
}

static void forward_by_hand(int m, const pairs *q, const float *x, float scale, const float *bias,
                            const float *residual, float *y)
{
    int n = q->w.n, k = q->w.k;
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++) {
            float s = 0;
            for (int i = 0; i < k; i++) s = step(rounded(x[r * k + i]), q->rows[c * k + i], s);
            /* a product with -0 added is the product */
            if (scale != 0) s = flushed((float)((double)s * (double)scale));
            if (bias) s = flushed(s + flushed(bias[c]));
            if (residual) s = flushed(s + flushed(residual[r * n + c]));
            y[r * n + c] = s;
        }
}

TEST(linear_with_pairs_is_the_chain_of_the_definition_on_every_instruction_set)
{
    /*
     * seen to fail: with x not rounded; with denormals kept; with the order of a pair turned round
     */
    static const int shapes[][3] = { { 1, 1, 1 },    { 1, 130, 33 }, { 2, 40, 64 },  { 3, 65, 77 },
                                     { 4, 96, 129 }, { 6, 33, 17 },  { 7, 31, 128 }, { 15, 70, 31 },
                                     { 50, 64, 63 }, { 70, 33, 40 }, { 9, 35, 3301 } };
    for (int kind = 0; kind < KINDS; kind++)
        for (int s = 0; s < ARES_COUNT(shapes); s++) {
            int m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
            pairs q = pairs_of((numbers)kind, 3, n, k, ARES_BF16);
            float *x = some((numbers)kind, 4, (int64_t)m * k, 1),
                  *bias = some((numbers)kind, 5, n, 1),
                  *residual = some((numbers)kind, 6, (int64_t)m * n, 1);
            float *want = filled((int64_t)m * n, 0), *y = filled((int64_t)m * (n + 3), 0);
            for (int extras = 0; extras < 4; extras++) {
                const float *b = extras ? bias : NULL, *res = extras > 1 ? residual : NULL;
                float scale = extras == 3 ? 0.5f : 0;
                forward_by_hand(m, &q, x, scale, b, res, want);
                for (int i = 0; i < ARES_COUNT(sets); i++) {
                    ares_device d;
                    if (!device_of(sets[i], 1 + extras % 2, &d)) continue;
                    for (int at = 0; at < m * (n + 3); at++) y[at] = 7;
                    d.k->linear(&d,
                                &(ares_linear_args){ .m = m,
                                                     .x = x,
                                                     .ldx = k,
                                                     .w = &q.w,
                                                     .bias = b,
                                                     .residual = res,
                                                     .ldr = n,
                                                     .y = y,
                                                     .ldy = n + 3,
                                                     .scale = scale },
                                1);
                    int wrong = 0;
                    for (int r = 0; r < m; r++) {
                        wrong += differ(y + r * (n + 3), want + r * n, n);
                        for (int c = n; c < n + 3; c++) wrong += y[r * (n + 3) + c] != 7;
                    }
                    CHECK_MSG(wrong == 0, "%s kind %d m %d n %d k %d extras %d: %d wrong", sets[i],
                              kind, m, n, k, extras, wrong);
                    ares_device_close(&d);
                }
            }
            ares_free(x), ares_free(bias), ares_free(residual), ares_free(want), ares_free(y);
            pairs_free(&q);
        }
}

TEST(linear_with_pairs_gives_a_row_the_same_bits_in_every_batch)
{
    enum { M = 70 };
    int n = 100, k = 131;
    pairs q = pairs_of(ORDINARY, 12, n, k, ARES_BF16);
    float *x = normals(13, M * k, 1), *alone = filled(M * n, 0), *y = filled(M * n, 0),
          *z = filled(M * n, 0), *f32 = filled(M * n, 0);
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 2, &d));
    for (int r = 0; r < M; r++)
        d.k->linear(&d,
                    &(ares_linear_args){
                        .m = 1, .x = x + r * k, .ldx = k, .w = &q.w, .y = alone + r * n, .ldy = n },
                    1);
    ares_matrix wide = { normals(14, 128 * k, 1), ARES_F32, ARES_PANEL32, n, k };
    for (int m = 1; m <= M; m++) {
        memset(y, 0, M * (size_t)n * 4);
        /* beside another of the same x, and one in f32 arithmetic */
        ares_linear_args a[3] = { { .m = m, .x = x, .ldx = k, .w = &wide, .y = f32, .ldy = n },
                                  { .m = m, .x = x, .ldx = k, .w = &q.w, .y = z, .ldy = n },
                                  { .m = m, .x = x, .ldx = k, .w = &q.w, .y = y, .ldy = n } };
        d.k->linear(&d, a, 3);
        CHECK_MEM(y, alone, (size_t)(m * n) * 4);
        CHECK_MEM(z, alone, (size_t)(m * n) * 4);
    }
    ares_device_close(&d);
    ares_free(x), ares_free(alone), ares_free(y), ares_free(z), ares_free(f32),
        ares_free(wide.data);
    pairs_free(&q);
}

static void backward_by_hand(int m, const pairs *q, const float *dy, const float *x, float *dx,
                             float *dw, float *dbias)
{
    int n = q->w.n, k = q->w.k;
    for (int r = 0; r < m; r++)
        for (int i = 0; i < k; i++)
            for (int c = 0; c < n; c++)
                dx[r * k + i] = step(rounded(dy[r * n + c]), q->rows[c * k + i], dx[r * k + i]);
    for (int c = 0; c < n; c++)
        for (int r = 0; r < m; r++) {
            for (int i = 0; i < k; i++)
                dw[c * k + i] = step(rounded(dy[r * n + c]), rounded(x[r * k + i]), dw[c * k + i]);
            dbias[c] += dy[r * n + c];
        }
}

TEST(linear_backward_with_pairs_is_the_chain_whatever_the_cut_of_tokens)
{
    /*
     * seen to fail: with x one token late after a cut of the kernel's own; with a padded token of
     * +0 times +0 in place of -0
     */
    static const int shapes[][3] = { { 1, 1, 1 },    { 3, 33, 7 },     { 16, 70, 65 },
                                     { 40, 31, 48 }, { 17, 1101, 35 }, { 133, 64, 97 } };
    for (int kind = 0; kind < KINDS; kind++)
        for (int s = 0; s < ARES_COUNT(shapes); s++) {
            int m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
            pairs q = pairs_of((numbers)kind, 30, n, k, ARES_BF16),
                  g = pairs_of(kind == SPECIAL ? ORDINARY : (numbers)kind, 31, n, k, ARES_F32);
            /* tiny ones begin at a zero or below what counts as one */
            for (int64_t e = 0; kind == TINY && e < (int64_t)n * k; e++)
                g.rows[e] = ldexpf(g.rows[e], -66);
            float *dy = some((numbers)kind, 32, (int64_t)m * n, 1),
                  *x = some((numbers)kind, 33, (int64_t)m * k, 1),
                  *dx0 = some((numbers)kind, 34, (int64_t)m * k, 1), *bias0 = normals(35, n, 1);
            float *dx_want = filled((int64_t)m * k, 0), *dw_want = filled((int64_t)n * k, 0),
                  *bias_want = filled(n, 0), *dx = filled((int64_t)m * k, 0),
                  *dw = filled((int64_t)n * k, 0), *dbias = filled(n, 0);
            memcpy(dx_want, dx0, (size_t)(m * k) * 4);
            memcpy(dw_want, g.rows, (size_t)(n * k) * 4);
            memcpy(bias_want, bias0, (size_t)n * 4);
            backward_by_hand(m, &q, dy, x, dx_want, dw_want, bias_want);
            for (int i = 0; i < ARES_COUNT(sets); i++) /* 7 + 9 tokens of 16, among others */
                for (int cut = 0; cut <= m; cut += cut < 9 ? 1 : 31) {
                    ares_device d;
                    if (!device_of(sets[i], 1 + cut % 2, &d)) continue;
                    ares_matrix_pack(&g.w, g.rows, ARES_F32);
                    memcpy(dx, dx0, (size_t)(m * k) * 4);
                    memcpy(dbias, bias0, (size_t)n * 4);
                    for (int p = 0; p < 2; p++) {
                        int from = p ? cut : 0, rows = p ? m - cut : cut;
                        d.k->linear_backward(&d,
                                             &(ares_linear_backward_args){ .m = rows,
                                                                           .dy = dy + from * n,
                                                                           .lddy = n,
                                                                           .w = &q.w,
                                                                           .dx = dx + from * k,
                                                                           .lddx = k,
                                                                           .accumulate = true,
                                                                           .x = x + from * k,
                                                                           .ldx = k,
                                                                           .dw = &g.w,
                                                                           .dbias = dbias },
                                             1);
                    }
                    ares_matrix_unpack(&g.w, dw, ARES_F32);
                    int of_dx = differ(dx, dx_want, m * k), of_dw = differ(dw, dw_want, n * k),
                        of_bias = differ(dbias, bias_want, n);
                    bool pad = kind == SPECIAL || padding_is_zero(&g.w);
                    CHECK_MSG(!of_dx && !of_dw && !of_bias && pad,
                              "%s kind %d m %d n %d k %d cut at %d: wrong dx %d dw %d dbias %d, "
                              "padding zero: %d",
                              sets[i], kind, m, n, k, cut, of_dx, of_dw, of_bias, pad);
                    ares_device_close(&d);
                }
            ares_free(dy), ares_free(x), ares_free(dx0), ares_free(bias0), ares_free(dx_want);
            ares_free(dw_want), ares_free(bias_want), ares_free(dx), ares_free(dw),
                ares_free(dbias);
            pairs_free(&q), pairs_free(&g);
        }
}

TEST(products_with_pairs_of_many_rows_are_those_of_their_parts)
{
    /* more rows than are packed at once; the parts here are odd */
    int m = PACKED_ROWS + 203, n = 33, k = 19;
    pairs q = pairs_of(ORDINARY, 50, n, k, ARES_BF16), g = pairs_of(ORDINARY, 51, n, k, ARES_F32),
          h = pairs_of(ORDINARY, 51, n, k, ARES_F32);
    float *x = normals(52, m * k, 1), *dy = normals(53, m * n, 1), *y = filled(m * n, 0),
          *want = filled(m * n, 0), *dx = filled(m * k, 0), *dx_want = filled(m * k, 0);
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 2, &d));
    for (int from = 0, rows; from < m; from += rows) {
        rows = ARES_MIN(301, m - from);
        d.k->linear(
            &d,
            &(ares_linear_args){
                .m = rows, .x = x + from * k, .ldx = k, .w = &q.w, .y = want + from * n, .ldy = n },
            1);
        d.k->linear_backward(&d,
                             &(ares_linear_backward_args){ .m = rows,
                                                           .dy = dy + from * n,
                                                           .lddy = n,
                                                           .w = &q.w,
                                                           .dx = dx_want + from * k,
                                                           .lddx = k,
                                                           .x = x + from * k,
                                                           .ldx = k,
                                                           .dw = &h.w },
                             1);
    }
    d.k->linear(&d, &(ares_linear_args){ .m = m, .x = x, .ldx = k, .w = &q.w, .y = y, .ldy = n },
                1);
    d.k->linear_backward(&d,
                         &(ares_linear_backward_args){ .m = m,
                                                       .dy = dy,
                                                       .lddy = n,
                                                       .w = &q.w,
                                                       .dx = dx,
                                                       .lddx = k,
                                                       .x = x,
                                                       .ldx = k,
                                                       .dw = &g.w },
                         1);
    CHECK_MEM(y, want, (size_t)(m * n) * 4);
    CHECK_MEM(dx, dx_want, (size_t)(m * k) * 4);
    CHECK_MEM(g.w.data, h.w.data, (size_t)ares_matrix_elements(g.w.layout, n, k) * 4);
    ares_device_close(&d);
    ares_free(x), ares_free(dy), ares_free(y), ares_free(want), ares_free(dx), ares_free(dx_want);
    pairs_free(&q), pairs_free(&g), pairs_free(&h);
}

TEST(linear_with_pairs_meets_f64_within_the_roundings_of_its_operands)
{
    int m = 19, n = 77, k = 611;
    pairs q = pairs_of(ORDINARY, 5, n, k, ARES_BF16);
    float *x = normals(6, (int64_t)m * k, 1), *y = filled((int64_t)m * n, 0);
    double *want = ares_malloc((size_t)(m * n) * 8), *bound = ares_malloc((size_t)(m * n) * 8);
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++) {
            double s = 0, size = 0;
            for (int i = 0; i < k; i++) {
                double p = (double)x[r * k + i] * q.rows[c * k + i];
                s += p;
                size += fabs(p);
            }
            want[r * n + c] = s;
            /* x to 8 bits, then k roundings of partial sums */
            bound[r * n + c] = size * (0x1p-8 + k * 0x1p-24);
        }
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    d.k->linear(&d, &(ares_linear_args){ .m = m, .x = x, .ldx = k, .w = &q.w, .y = y, .ldy = n },
                1);
    within("y", y, want, bound, (int64_t)m * n);
    ares_device_close(&d);
    ares_free(x), ares_free(y), ares_free(want), ares_free(bound);
    pairs_free(&q);
}
