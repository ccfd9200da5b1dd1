#include "kernels_test.h"

static double silu(double g)
{
    return g / (1 + exp(-g));
}

TEST(silu_mul_and_its_gradient_meet_f64_in_place_and_with_every_instruction_set)
{
    static const int widths[] = { 1, 16, 37, 130 };
    for (int s = 0; s < ARES_COUNT(widths); s++) {
        int rows = 11, k = widths[s], n = rows * k;
        size_t bytes = (size_t)n * 4;
        float *gate = normals(1, n, 4), *up = normals(2, n, 1), *dy = normals(3, n, 1),
              *first = filled(4 * n, 0);
        float *y = filled(n, 0), *dg = filled(n, 0), *du = filled(n, 0), *again = filled(n, 0);
        for (int i = 0; i < ISAS; i++) {
            ares_device d;
            if (!device_of(isas[i], 1 + i % 2, &d)) continue;
            d.k->silu_mul(
                &d,
                &(ares_silu_mul_args){
                    .rows = rows, .k = k, .gate = gate, .up = up, .ldgu = k, .y = y, .ldy = k });
            memcpy(dg, gate, bytes);
            memcpy(du, up, bytes);
            d.k->silu_mul_backward(&d, &(ares_silu_mul_args){ .rows = rows,
                                                              .k = k,
                                                              .gate = dg,
                                                              .up = du,
                                                              .ldgu = k,
                                                              .y = again,
                                                              .ldy = k,
                                                              .dy = dy,
                                                              .lddy = k,
                                                              .d_gate = dg,
                                                              .d_up = du,
                                                              .lddgu = k });
            CHECK_MEM(again, y, bytes);
            if (i == 0) {
                memcpy(first, y, bytes), memcpy(first + n, dg, bytes),
                    memcpy(first + 2 * n, du, bytes);
                for (int j = 0; j < n; j++) {
                    double g = gate[j], sig = 1 / (1 + exp(-g)), a = silu(g);
                    double slope = (silu(g + 1e-4) - silu(g - 1e-4)) / 2e-4;
                    CHECK_NEAR(y[j], a * up[j], 6 * 0x1p-24 * fabs(a * up[j]));
                    CHECK_NEAR(du[j], dy[j] * a, 6 * 0x1p-24 * fabs(dy[j] * a));
                    CHECK_NEAR(dg[j], dy[j] * up[j] * slope,
                               1e-6 * fabs((double)dy[j] * up[j]) * (sig + fabs(a)) + 1e-7);
                }
            }
            CHECK_MEM(y, first, bytes);
            CHECK_MEM(dg, first + n, bytes);
            CHECK_MEM(du, first + 2 * n, bytes);
            ares_device_close(&d);
        }
        ares_free(gate), ares_free(up), ares_free(dy), ares_free(first), ares_free(y),
            ares_free(dg), ares_free(du), ares_free(again);
    }
}

TEST(silu_mul_of_extreme_gates_is_finite)
{
    float gate[16] = { -200,   -104,  -90,    -1e-30f, 0, 1e-30f, 90, 200,
                       -88.5f, 88.5f, -3e38f, 3e38f,   1, -1,     20, -20 },
          up[16], y[16];
    for (int i = 0; i < 16; i++) up[i] = 1;
    for (int i = 0; i < ISAS; i++) {
        ares_device d;
        if (!device_of(isas[i], 1, &d)) continue;
        d.k->silu_mul(
            &d, &(ares_silu_mul_args){
                    .rows = 1, .k = 16, .gate = gate, .up = up, .ldgu = 16, .y = y, .ldy = 16 });
        for (int j = 0; j < 16; j++) {
            double want = gate[j] < -103 ? 0 : silu(gate[j]);
            CHECK_NEAR(y[j], want, 4 * 0x1p-24 * fabs(want) + 1e-36);
        }
        ares_device_close(&d);
    }
}

TEST(silu_mul_of_every_width_writes_all_of_a_row_and_nothing_beyond)
{
    enum { MOST = 34, LD = MOST + 16 };
    float *gate = normals(1, MOST, 1), *up = normals(2, MOST, 1), plain[LD], y[LD];
    for (int k = 1; k <= MOST; k++)
        for (int i = 0; i < ISAS; i++) {
            ares_device d;
            if (!device_of(isas[i], 1, &d)) continue;
            for (int j = 0; j < LD; j++) y[j] = -7;
            d.k->silu_mul(
                &d,
                &(ares_silu_mul_args){
                    .rows = 1, .k = k, .gate = gate, .up = up, .ldgu = MOST, .y = y, .ldy = LD });
            if (i == 0)
                for (int j = 0; j < LD; j++) {
                    double want = j < k ? silu(gate[j]) * up[j] : -7;
                    CHECK_NEAR(y[j], want, 6 * 0x1p-24 * fabs(want));
                    plain[j] = y[j];
                }
            CHECK_MEM(y, plain, sizeof y);
            ares_device_close(&d);
        }
    ares_free(gate), ares_free(up);
}
