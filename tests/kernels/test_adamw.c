/* AdamW, and sums of whole arrays. */
#include "host.h"
#include "kernels_test.h"

TEST(adamw_follows_the_paper_for_many_steps)
{
    enum { N = 1003, STEPS = 20 };
    float *w0 = normals(1, N, 1), *w = filled(N, 0), *m = filled(N, 0), *v = filled(N, 0),
          *first = filled(3 * N, 0);
    double wd[N], md[N], vd[N], most = 0;
    for (int i = 0; i < ISAS; i++) {
        ares_device d;
        if (!device_of(isas[i], 2, &d)) continue;
        memcpy(w, w0, N * 4);
        memset(m, 0, N * 4);
        memset(v, 0, N * 4);
        for (int j = 0; j < N; j++) wd[j] = w0[j], md[j] = vd[j] = 0;
        for (int step = 1; step <= STEPS; step++) {
            float *g = normals(100 + (uint64_t)step, N, 3);
            ares_adamw_args a = adamw_of(N, w, g, m, v, step);
            a.lr = 1e-2, a.grad_scale = 0.25;
            d.k->adamw(&d, &a);
            for (int j = 0; j < N; j++) {
                double x = g[j] * 0.25;
                md[j] = 0.9 * md[j] + 0.1 * x;
                vd[j] = 0.99 * vd[j] + 0.01 * x * x;
                wd[j] -= 1e-2 * (md[j] / (1 - pow(0.9, step)) /
                                     (sqrt(vd[j] / (1 - pow(0.99, step))) + 1e-8) +
                                 0.1 * wd[j]);
            }
            ares_free(g);
        }
        for (int j = 0; j < N; j++) most = fmax(most, fabs(w[j] - wd[j]));
        /* one rounding of |w| <= 4, and ten in the step */
        CHECK_NEAR(most, 0, STEPS * 0x1p-24 * 4 + 1e-7 * STEPS * 1e-2 * 10);
        CHECK(fabs(w[0] - w0[0]) > 1e-3);
        if (i == 0)
            memcpy(first, w, N * 4), memcpy(first + N, m, N * 4), memcpy(first + 2 * N, v, N * 4);
        CHECK_MEM(w, first, N * 4);
        CHECK_MEM(m, first + N, N * 4);
        CHECK_MEM(v, first + 2 * N, N * 4);
        ares_device_close(&d);
    }
    ares_free(w0), ares_free(w), ares_free(m), ares_free(v), ares_free(first);
}

TEST(adamw_keeps_a_master_of_bf16_weights)
{
    enum { N = 77 };
    float *master = normals(5, N, 1), *w = filled(N, 0), *g = normals(6, N, 1);
    for (int i = 0; i < ISAS; i++) {
        ares_device d;
        if (!device_of(isas[i], 1, &d)) continue;
        uint16_t half[N];
        float mm[N], m[N] = { 0 }, v[N] = { 0 }, m2[N] = { 0 }, v2[N] = { 0 };
        memcpy(mm, master, N * 4);
        memcpy(w, master, N * 4);
        ares_adamw_args a = adamw_of(N, w, g, m, v, 1);
        a.lr = 1e-4, a.beta2 = 0.95, a.weight_decay = 0, a.grad_scale = 1;
        d.k->adamw(&d, &a);
        a.w = half, a.dtype = ARES_BF16, a.master = mm, a.m = m2, a.v = v2;
        d.k->adamw(&d, &a);
        CHECK_MEM(mm, w, N * 4);
        for (int j = 0; j < N; j++) CHECK_EQ(half[j], kernels_f32_to_bf16(mm[j]));
        ares_device_close(&d);
    }
    ares_free(master), ares_free(w), ares_free(g);
}

static float rounded(float x)
{
    return kernels_bf16_to_f32(kernels_f32_to_bf16(x));
}

/*
 * The same arithmetic on bf16 numbers in arrays of 32 bits, one number after the other: every
 * operation of f32 rounds correctly, so the bits must agree.
 */
static void kahan_in_32_bits(const ares_adamw_args *a, float *w, float *c, float *m, float *v)
{
    float m_scale = (float)(1 / (1 - ares_f64_pow(a->beta1, (double)a->step))),
          v_scale = (float)(1 / sqrt(1 - ares_f64_pow(a->beta2, (double)a->step))),
          rest1 = (float)(1 - a->beta1), rest2 = (float)(1 - a->beta2), lr = (float)a->lr;
    for (int64_t i = 0; i < a->n; i++) {
        float g = a->grad[i] * (float)a->grad_scale,
              x = rounded(w[i] * (float)(1 - a->lr * a->weight_decay));
        m[i] = rounded(rounded(m[i] * (float)a->beta1) + g * rest1);
        v[i] = rounded(rounded(v[i] * (float)a->beta2) + g * rest2 * g);
        float under = rounded(rounded(rounded(sqrtf(v[i])) * v_scale) + (float)a->eps);
        c[i] = rounded(fmaf(-(lr * m_scale), m[i] / under, c[i]));
        w[i] = rounded(x + c[i]);
        c[i] = rounded(c[i] + rounded(x - w[i]));
    }
}

static bool same_numbers(const uint16_t *half, const float *full, int n)
{
    for (int j = 0; j < n; j++) {
        float wide = kernels_bf16_to_f32(half[j]);
        if (memcmp(&wide, &full[j], sizeof wide) != 0) return false;
    }
    return true;
}

TEST(states_of_16_bits_are_those_of_32_bits_that_are_rounded_after_each_operation)
{
    enum { N = 1003, STEPS = 30, BEHIND = 16 }; /* the last vector of 16 is not full */
    float *start = normals(21, N, 1);
    for (int i = 0; i < ISAS; i++) {
        ares_device d;
        if (!device_of(isas[i], 2, &d)) continue;
        uint16_t w[N + BEHIND], m[N + BEHIND], v[N + BEHIND], c[N + BEHIND],
            *all[] = { w, m, v, c };
        for (int x = 0; x < ARES_COUNT(all); x++)
            for (int j = 0; j < N + BEHIND; j++) all[x][j] = j < N ? 0 : 0x4d5e;
        float w32[N], m32[N] = { 0 }, v32[N] = { 0 }, c32[N] = { 0 };
        for (int j = 0; j < N; j++)
            w32[j] = kernels_bf16_to_f32(w[j] = kernels_f32_to_bf16(start[j]));
        for (int step = 1; step <= STEPS; step++) {
            float *g = normals(200 + (uint64_t)step, N, 3);
            ares_adamw_args a = adamw_kahan_of(N, w, c, g, m, v, step);
            a.grad_scale = 0.25;
            d.k->adamw(&d, &a);
            kahan_in_32_bits(&a, w32, c32, m32, v32);
            ares_free(g);
        }
        CHECK(same_numbers(w, w32, N));
        CHECK(same_numbers(m, m32, N));
        CHECK(same_numbers(v, v32, N));
        CHECK(same_numbers(c, c32, N));
        for (int x = 0; x < ARES_COUNT(all); x++)
            for (int j = N; j < N + BEHIND; j++) CHECK_EQ(all[x][j], 0x4d5e);
        int moved = 0;
        for (int j = 0; j < N; j++) moved += w[j] != kernels_f32_to_bf16(start[j]);
        CHECK(moved > N / 2);
        ares_device_close(&d);
    }
    ares_free(start);
}

TEST(square_sums_and_add_are_the_same_bits_everywhere)
{
    enum { CHUNKS = 4 };
    int64_t n = 3 * ARES_SUM_CHUNK + 3393, bad = ARES_SUM_CHUNK + 34464;
    float *x = normals(7, n, 1), *y = normals(8, n, 1), *z = filled(n, 0);
    double exact[CHUNKS] = { 0 }, first[CHUNKS] = { 0 };
    for (int64_t i = 0; i < n; i++) exact[i / ARES_SUM_CHUNK] += (double)x[i] * x[i];
    for (int i = 0; i < ISAS; i++)
        for (int threads = 1; threads <= 2; threads++) {
            ares_device d;
            double s[CHUNKS + 1] = { 0, 0, 0, 0, -1 };
            if (!device_of(isas[i], threads, &d)) continue;
            d.k->square_sums(&d, x, n, s);
            if (first[0] == 0) memcpy(first, s, sizeof first);
            CHECK_MEM(s, first, sizeof first);
            for (int c = 0; c < CHUNKS; c++) CHECK_NEAR(s[c], exact[c], 1e-12 * exact[c]);
            d.k->square_sums(&d, x, 0, s + CHUNKS); /* writes nothing */
            CHECK_NEAR(s[CHUNKS], -1, 0);
            memcpy(z, y, (size_t)n * 4);
            d.k->add(&d, z, x, n);
            int wrong = 0;
            for (int64_t j = 0; j < n; j++) wrong += z[j] != y[j] + x[j];
            CHECK_EQ(wrong, 0);
            float keep = x[bad];
            x[bad] = NAN;
            d.k->square_sums(&d, x, n, s);
            CHECK(s[0] == first[0] && isnan(s[1]) && s[2] == first[2] && s[3] == first[3]);
            x[bad] = INFINITY;
            d.k->square_sums(&d, x, n, s);
            CHECK(isinf(s[1]));
            x[bad] = keep;
            ares_device_close(&d);
        }
    ares_free(x), ares_free(y), ares_free(z);
}
