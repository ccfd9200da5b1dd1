#include "kernels_test.h"

static void by_hand(int rows, int k, const float *x, const float *w, double one, double eps,
                    double *y, double *rstd)
{
    for (int r = 0; r < rows; r++) {
        double s = 0;
        for (int i = 0; i < k; i++) s += (double)x[r * k + i] * x[r * k + i];
        rstd[r] = 1 / sqrt(s / k + eps);
        for (int i = 0; i < k; i++) y[r * k + i] = x[r * k + i] * rstd[r] * (one + w[i]);
    }
}

/*
 * Each width as it is, with 1 + w, added to rows beside, and both, added to y itself. The weight of
 * 0 with a sign shows whether a norm without plus_one adds +0 to it.
 */
TEST(rms_norm_meets_f64_and_every_instruction_set_gives_its_bits)
{
    static const int widths[] = { 1, 15, 16, 17, 64, 100, 577 };
    for (int s = 0; s < 4 * ARES_COUNT(widths); s++) {
        int rows = 37, k = widths[s / 4], ld = k + 3;
        bool plus_one = s % 2, adds = s / 2 % 2, itself = s % 4 == 3;
        float *x = normals(1, (int64_t)rows * ld, 2), *w = normals(2, k, 1),
              *tight = filled((int64_t)rows * k, 0), *first = NULL, rstd[37];
        double *want = ares_malloc((size_t)(rows * k) * 8),
               *bound = ares_malloc((size_t)(rows * k) * 8), want_rstd[37];
        for (int r = 0; r < rows; r++) memcpy(tight + r * k, x + r * ld, (size_t)k * 4);
        float *beside = normals(8, (int64_t)rows * k, 3);
        w[k / 2] = k > 1 ? -0.0f : w[k / 2];
        by_hand(rows, k, tight, w, plus_one, 1e-6, want, want_rstd);
        /*
         * the sum, its mean, the root, 1 / it, two products: k / 16 + 9 roundings, the sum's halved
         * by the root; 1 + w is one more, and so is the sum
         */
        for (int i = 0; i < rows * k; i++) {
            bound[i] = (k / 16 + 10) * 0x1p-24 * fabs(want[i]) + 1e-38;
            if (!adds) continue;
            want[i] += beside[i];
            bound[i] += 0x1p-24 * fabs(want[i]);
        }
        for (int i = 0; i < ISAS; i++)
            for (int threads = 1; threads <= 2; threads++) {
                ares_device d;
                if (!device_of(isas[i], threads, &d)) continue;
                float *y = filled((int64_t)rows * k, 0);
                if (itself) memcpy(y, beside, (size_t)(rows * k) * 4);
                d.k->rms_norm(&d, &(ares_rms_norm_args){ .rows = rows,
                                                         .k = k,
                                                         .x = x,
                                                         .ldx = ld,
                                                         .w = w,
                                                         .plus_one = plus_one,
                                                         .eps = 1e-6f,
                                                         .y = y,
                                                         .ldy = k,
                                                         .residual = itself ? y
                                                                     : adds ? beside
                                                                            : NULL,
                                                         .ldr = k,
                                                         .rstd = rstd });
                if (!plus_one && !adds && k > 1)
                    for (int r = 0; r < rows; r++)
                        CHECK(!signbit(y[r * k + k / 2]) == !!signbit(x[r * ld + k / 2]));
                if (!first) {
                    first = filled((int64_t)rows * k, 0);
                    memcpy(first, y, (size_t)(rows * k) * 4);
                    within("y", y, want, bound, (int64_t)rows * k);
                    for (int r = 0; r < rows; r++)
                        CHECK_NEAR(rstd[r], want_rstd[r], (k / 16 + 9) * 0x1p-24 * want_rstd[r]);
                }
                CHECK_MEM(y, first, (size_t)(rows * k) * 4);
                ares_free(y);
                ares_device_close(&d);
            }
        ares_free(x), ares_free(w), ares_free(tight), ares_free(first), ares_free(want),
            ares_free(bound), ares_free(beside);
    }
}

/* loss = sum of c * y, in f64 */
static double loss(int rows, int k, const float *x, const float *w, double one, const float *c)
{
    double *y = ares_malloc((size_t)(rows * k) * 8), rstd[64], s = 0;
    by_hand(rows, k, x, w, one, 1e-5, y, rstd);
    for (int i = 0; i < rows * k; i++) s += c[i] * y[i];
    ares_free(y);
    return s;
}

TEST(rms_norm_backward_meets_finite_differences_adds_and_survives_cuts)
{
    enum { ROWS = 21, K = 67 };
    float *x = normals(3, ROWS * K, 1), *w = normals(4, K, 1), *dy = normals(5, ROWS * K, 1),
          rstd[ROWS], *y = filled(ROWS * K, 0);
    float *dx0 = normals(6, ROWS * K, 1), *dw0 = normals(7, K, 1), *dx = filled(ROWS * K, 0),
          *dw = filled(K, 0), *first = filled(ROWS * K + K, 0);
    for (int i = 0; i < 2 * ISAS; i++)
        for (int pieces = 1; pieces <= 3; pieces++) {
            bool plus_one = i >= ISAS;
            ares_device d;
            if (!device_of(isas[i % ISAS], 1 + pieces % 2, &d)) continue;
            d.k->rms_norm(&d, &(ares_rms_norm_args){ .rows = ROWS,
                                                     .k = K,
                                                     .x = x,
                                                     .ldx = K,
                                                     .w = w,
                                                     .plus_one = plus_one,
                                                     .eps = 1e-5f,
                                                     .y = y,
                                                     .ldy = K,
                                                     .rstd = rstd });
            memcpy(dx, dx0, ROWS * K * 4);
            memcpy(dw, dw0, K * 4);
            for (int p = 0; p < pieces; p++) {
                int from = p * ROWS / pieces, rows = (p + 1) * ROWS / pieces - from;
                d.k->rms_norm_backward(&d, &(ares_rms_norm_args){ .rows = rows,
                                                                  .k = K,
                                                                  .x = x + from * K,
                                                                  .ldx = K,
                                                                  .w = w,
                                                                  .plus_one = plus_one,
                                                                  .rstd = rstd + from,
                                                                  .dy = dy + from * K,
                                                                  .lddy = K,
                                                                  .dx = dx + from * K,
                                                                  .lddx = K,
                                                                  .dw = dw });
            }
            if (i % ISAS == 0 && pieces == 1) {
                memcpy(first, dx, ROWS * K * 4);
                memcpy(first + ROWS * K, dw, K * 4);
                for (int j = 0; j < ROWS * K; j += 7) {
                    float keep = x[j], h = 1e-3f;
                    x[j] = keep + h;
                    double up = loss(ROWS, K, x, w, plus_one, dy), at_up = x[j];
                    x[j] = keep - h;
                    double slope = (up - loss(ROWS, K, x, w, plus_one, dy)) / (at_up - x[j]);
                    x[j] = keep;
                    /* h^2 of the third derivative */
                    CHECK_NEAR(dx[j] - dx0[j], slope, 1e-5 * (1 + fabs(slope)));
                }
                for (int j = 0; j < K; j++) {
                    float keep = w[j];
                    w[j] = keep + 1;
                    double up = loss(ROWS, K, x, w, plus_one, dy), at_up = w[j]; /* linear in w */
                    w[j] = keep;
                    double slope = (up - loss(ROWS, K, x, w, plus_one, dy)) / (at_up - keep);
                    CHECK_NEAR(dw[j] - dw0[j], slope, 1e-5 * (1 + fabs(slope)));
                }
            }
            CHECK_MEM(dx, first, ROWS * K * 4);
            CHECK_MEM(dw, first + ROWS * K, K * 4);
            ares_device_close(&d);
        }
    ares_free(x), ares_free(w), ares_free(dy), ares_free(y), ares_free(dx0), ares_free(dw0),
        ares_free(dx), ares_free(dw), ares_free(first);
}
