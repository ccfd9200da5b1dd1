#include "kernels_test.h"

static double silu(double g)
{
    return g / (1 + exp(-g));
}
static double exact(ares_activation f, double g)
{
    if (f == ARES_SILU) return silu(g);
    if (f == ARES_GELU) return g * 0.5 * erfc(-g / sqrt(2));
    if (f == ARES_QUICK_GELU) return g / (1 + exp(-1.702 * g));
    return 0.5 * g * (1 + tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
}

/*
 * Of the activation alone: 5 roundings for SiLU, and 12 for the tanh form, where those of the
 * sigmoid's argument count by its size; the fit of erfc is within 1.2e-7. And the bits of
 * `activation` in all of them, because both have one source.
 */
static void gate_case(ares_activation f, int k)
{
    enum { ROWS = 11 };
    int n = ROWS * k;
    size_t bytes = (size_t)n * 4;
    float *gate = normals(1, n, 4), *up = normals(2, n, 1), *dy = normals(3, n, 1),
          *first = filled(4 * n, 0), *ones = filled(n, 1);
    float *y = filled(n, 0), *dg = filled(n, 0), *du = filled(n, 0), *again = filled(n, 0);
    for (int i = 0; i < ISAS; i++) {
        ares_device d;
        if (!device_of(isas[i], 1 + i % 2, &d)) continue;
        ares_gate_mul_args a = { .f = f,
                                 .rows = ROWS,
                                 .k = k,
                                 .gate = gate,
                                 .up = ones,
                                 .ldgu = k,
                                 .y = y,
                                 .ldy = k,
                                 .dy = ones,
                                 .lddy = k,
                                 .d_gate = dg,
                                 .d_up = du,
                                 .lddgu = k };
        ares_activation_args alone = { .f = f, .n = n, .x = gate, .y = again, .dy = ones };
        alone.dx = first + 3 * n;
        d.k->gate_mul(&d, &a);
        d.k->gate_mul_backward(&d, &a);
        d.k->activation(&d, &alone);
        d.k->activation_backward(&d, &alone);
        CHECK_MEM(y, again, bytes);
        CHECK_MEM(dg, first + 3 * n, bytes);
        a.up = up, a.dy = dy;
        d.k->gate_mul(&d, &a);
        memcpy(dg, gate, bytes);
        memcpy(du, up, bytes);
        a.gate = dg, a.up = du, a.y = again;
        d.k->gate_mul_backward(&d, &a);
        CHECK_MEM(again, y, bytes);
        for (int j = 0; j < n && i == 0; j++) {
            double g = gate[j], of_g = exact(f, g);
            double off = f == ARES_SILU ? 5 * 0x1p-24 * fabs(of_g) : 6e-7 * (1 + fabs(g));
            double slope = (exact(f, g + 1e-4) - exact(f, g - 1e-4)) / 2e-4;
            CHECK_NEAR(y[j], of_g * up[j], (off + 0x1p-24 * fabs(of_g)) * fabs(up[j]) + 1e-38);
            CHECK_NEAR(du[j], dy[j] * of_g, (off + 0x1p-24 * fabs(of_g)) * fabs(dy[j]) + 1e-38);
            CHECK_NEAR(dg[j], dy[j] * up[j] * slope,
                       (f == ARES_SILU ? 1e-6 : 3e-6) * fabs((double)dy[j] * up[j]) *
                               (1 + fabs(of_g)) +
                           1e-7);
        }
        if (i == 0)
            memcpy(first, y, bytes), memcpy(first + n, dg, bytes), memcpy(first + 2 * n, du, bytes);
        CHECK_MEM(y, first, bytes);
        CHECK_MEM(dg, first + n, bytes);
        CHECK_MEM(du, first + 2 * n, bytes);
        ares_device_close(&d);
    }
    float *all[] = { gate, up, dy, first, ones, y, dg, du, again };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
}

TEST(gate_mul_and_its_gradient_meet_f64_in_place_and_with_every_instruction_set)
{
    static const int widths[] = { 1, 16, 37, 130 };
    for (int s = 0; s < ARES_COUNT(widths); s++)
        for (int f = ARES_SILU; f <= ARES_QUICK_GELU; f++) gate_case((ares_activation)f, widths[s]);
}

TEST(gate_mul_of_extreme_gates_is_finite)
{
    float gate[16] = { -200,   -104,  -90,    -1e-30f, 0, 1e-30f, 90, 200,
                       -88.5f, 88.5f, -3e38f, 3e38f,   1, -1,     20, -20 },
          up[16], y[16];
    for (int i = 0; i < 16; i++) up[i] = 1;
    for (int i = 0; i < ISAS; i++) {
        ares_device d;
        if (!device_of(isas[i], 1, &d)) continue;
        d.k->gate_mul(
            &d, &(ares_gate_mul_args){
                    .rows = 1, .k = 16, .gate = gate, .up = up, .ldgu = 16, .y = y, .ldy = 16 });
        for (int j = 0; j < 16; j++) {
            double want = gate[j] < -103 ? 0 : silu(gate[j]);
            CHECK_NEAR(y[j], want, 4 * 0x1p-24 * fabs(want) + 1e-36);
        }
        ares_device_close(&d);
    }
}

TEST(gate_mul_of_every_width_writes_all_of_a_row_and_nothing_beyond)
{
    enum { MOST = 34, LD = MOST + 16 };
    float *gate = normals(1, MOST, 1), *up = normals(2, MOST, 1), plain[LD], y[LD];
    for (int k = 1; k <= MOST; k++)
        for (int i = 0; i < ISAS; i++) {
            ares_device d;
            if (!device_of(isas[i], 1, &d)) continue;
            for (int j = 0; j < LD; j++) y[j] = -7;
            d.k->gate_mul(
                &d,
                &(ares_gate_mul_args){
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
