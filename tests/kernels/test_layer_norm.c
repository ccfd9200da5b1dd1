/*
 * Layer norm and the activations of vision towers. Seen to fail: with the mean of g left out of the
 * backward, with lanes beyond a row counted in the variance, with the density's factor left out.
 */
#include "kernels_test.h"

enum { ROWS = 21, K = 67 };
#define EPS 0.5 /* large enough to see whether it stands below the root */

static void by_hand(const float *x, const float *w, const float *bias, double *y)
{
    for (int r = 0; r < ROWS; r++) {
        double mean = 0, squares = 0;
        for (int i = 0; i < K; i++) mean += (double)x[r * K + i] / K;
        for (int i = 0; i < K; i++) squares += (x[r * K + i] - mean) * (x[r * K + i] - mean) / K;
        for (int i = 0; i < K; i++)
            y[r * K + i] = (x[r * K + i] - mean) / sqrt(squares + EPS) * w[i] + bias[i];
    }
}

static double loss(const float *x, const float *w, const float *bias, const float *c)
{
    double y[ROWS * K], s = 0;
    by_hand(x, w, bias, y);
    for (int i = 0; i < ROWS * K; i++) s += c[i] * y[i];
    return s;
}

/* Central differences of the loss in numbers of x, w or bias; in f64, so 1e-6 of the largest. */
static void meets_differences(float *of, int n, const float *got, const float *before, float *x,
                              float *w, float *bias, const float *c)
{
    for (int i = 0; i < n; i += 7) {
        float old = of[i], step = 0x1p-7f;
        of[i] = old + step;
        double up = loss(x, w, bias, c), above = of[i];
        of[i] = old - step;
        double down = loss(x, w, bias, c), want = (up - down) / (above - of[i]);
        of[i] = old;
        CHECK_NEAR(got[i] - before[i], want, 3e-4 * (1 + fabs(want)));
    }
}

TEST(layer_norm_meets_f64_and_finite_differences_on_every_instruction_set)
{
    float *x = normals(1, ROWS * K, 2), *w = normals(2, K, 1), *bias = normals(3, K, 1),
          *dy = normals(4, ROWS * K, 1), *before = normals(5, ROWS * K, 1), mean[ROWS], rstd[ROWS];
    float first[2 * ROWS * K + 2 * K];
    bool any = false;
    double want[ROWS * K];
    for (int i = 0; i < ROWS * K; i++) x[i] += 3;
    by_hand(x, w, bias, want);
    for (int i = 0; i < ISAS; i++)
        for (int threads = 1; threads <= 2; threads++) {
            ares_device d;
            float out[2 * ROWS * K + 2 * K], *y = out, *dx = y + ROWS * K, *dw = dx + ROWS * K,
                                             *db = dw + K;
            if (!device_of(isas[i], threads, &d)) continue;
            memcpy(dx, before, ROWS * K * sizeof *dx);
            memcpy(dw, before, K * sizeof *dw);
            memcpy(db, before, K * sizeof *db);
            ares_layer_norm_args a = { .rows = ROWS,
                                       .k = K,
                                       .x = x,
                                       .ldx = K,
                                       .w = w,
                                       .bias = bias,
                                       .eps = (float)EPS,
                                       .y = y,
                                       .ldy = K,
                                       .mean = mean,
                                       .rstd = rstd,
                                       .dy = dy,
                                       .lddy = K,
                                       .dx = dx,
                                       .lddx = K,
                                       .dw = dw,
                                       .dbias = db };
            d.k->layer_norm(&d, &a);
            d.k->layer_norm_backward(&d, &a);
            if (!any) {
                /* about 20 roundings of numbers below 16 */
                for (int e = 0; e < ROWS * K; e++) CHECK_NEAR(y[e], want[e], 2e-5);
                meets_differences(x, ROWS * K, dx, before, x, w, bias, dy);
                meets_differences(w, K, dw, before, x, w, bias, dy);
                meets_differences(bias, K, db, before, x, w, bias, dy);
                memcpy(first, out, sizeof out);
                any = true;
            }
            CHECK_MEM(out, first, sizeof out);
            ares_device_close(&d);
        }
    ares_free(x), ares_free(w), ares_free(bias), ares_free(dy), ares_free(before);
}

static double exact(ares_activation f, double x)
{
    if (f == ARES_SILU) return x / (1 + exp(-x));
    if (f == ARES_GELU) return x * 0.5 * erfc(-x / sqrt(2));
    if (f == ARES_QUICK_GELU) return x / (1 + exp(-1.702 * x));
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

TEST(activations_meet_f64_and_their_differences_on_every_instruction_set)
{
    enum { N = 4099 };
    float *x = normals(6, N, 3), *dy = filled(N, 1), *first = filled(2 * N, 0);
    for (int f = ARES_SILU; f <= ARES_QUICK_GELU; f++) {
        bool any = false;
        for (int i = 0; i < ISAS; i++) {
            ares_device d;
            float *y = filled(2 * N, 0);
            if (device_of(isas[i], 2, &d)) {
                ares_activation_args a = {
                    .f = (ares_activation)f, .n = N, .x = x, .y = y, .dy = dy, .dx = y + N
                };
                d.k->activation(&d, &a);
                d.k->activation_backward(&d, &a);
                for (int e = 0; e < N && !any; e++) {
                    double h = 1e-5, at = x[e];
                    double slope = (exact(a.f, at + h) - exact(a.f, at - h)) / (2 * h);
                    /* the fit of erfc is within 1.2e-7, and a few roundings */
                    CHECK_NEAR(y[e], exact(a.f, at), 6e-7 * (1 + fabs(at)));
                    CHECK_NEAR(y[N + e], slope, 2e-6);
                }
                if (!any) memcpy(first, y, 2 * N * sizeof *y);
                any = true;
                CHECK_MEM(y, first, 2 * N * sizeof *y);
                ares_device_close(&d);
            }
            ares_free(y);
        }
    }
    ares_free(x), ares_free(dy), ares_free(first);
}
