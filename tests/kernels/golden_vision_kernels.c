/* Norms and activations of vision towers, through the native and the aten table. */
#include "ares/kernels.h"
#include "golden.h"

#ifdef ARES_HAVE_TORCH
static const char *const tables[] = { "native", "aten" };
#else
static const char *const tables[] = { "native" };
#endif

static float *floats(golden *g, const ares_json *list, int64_t *n)
{
    const double *wide = golden_flat(g, list, n);
    float *out = ares_arena_calloc(g->arena, (size_t)*n + 1, sizeof *out);
    for (int64_t i = 0; i < *n; i++) out[i] = (float)wide[i];
    return out;
}

static void compare(golden *g, const char *key, const float *x, int64_t n)
{
    double *wide = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *wide);
    for (int64_t i = 0; i < n; i++) wide[i] = (double)x[i];
    golden_numbers(g, key, wide, n, golden_want(g, key));
}

GOLDEN(vision, activation)
{
    int64_t n;
    ares_view name = golden_string(g, "activation");
    float *x = floats(g, golden_in(g, "x"), &n),
          *y = ares_arena_calloc(g->arena, (size_t)n * 3, sizeof *y), *one = y + n, *dx = one + n;
    for (int64_t i = 0; i < n; i++) one[i] = 1;
    for (int i = 0; i < ARES_COUNT(tables); i++) {
        ares_device d;
        if (!golden_ok(g, ares_device_open_table("cpu", tables[i], ARES_F32, 1, &d))) return;
        ares_activation_args a = {
            .f = ares_view_is(name, "gelu")        ? ARES_GELU
                 : ares_view_is(name, "gelu_tanh") ? ARES_GELU_TANH
                                                   : ARES_QUICK_GELU,
            .n = n,
            .x = x,
            .y = y,
            .dy = one,
            .dx = dx,
        };
        d.k->activation(&d, &a);
        d.k->activation_backward(&d, &a);
        golden_ok(g, d.k->sync(&d));
        compare(g, "y", y, n);
        compare(g, "dy", dx, n);
        ares_device_close(&d);
    }
}

GOLDEN(vision, layer_norm)
{
    int64_t n, k;
    float *x = floats(g, golden_in(g, "x"), &n), *w = floats(g, golden_in(g, "weight"), &k),
          *bias = floats(g, golden_in(g, "bias"), &k), *dy = floats(g, golden_in(g, "dy"), &n);
    for (int i = 0; i < ARES_COUNT(tables); i++) {
        ares_device d;
        float *y = ares_arena_calloc(g->arena, (size_t)(4 * n + 2 * k), sizeof *y);
        if (!golden_ok(g, ares_device_open_table("cpu", tables[i], ARES_F32, 1, &d))) return;
        ares_layer_norm_args a = { .rows = (int32_t)(n / k),
                                   .k = (int32_t)k,
                                   .x = x,
                                   .ldx = k,
                                   .w = w,
                                   .bias = bias,
                                   .eps = (float)golden_number(g, "eps"),
                                   .y = y,
                                   .ldy = k,
                                   .mean = y + n,
                                   .rstd = y + 2 * n,
                                   .dy = dy,
                                   .lddy = k,
                                   .dx = y + 3 * n,
                                   .lddx = k,
                                   .dw = y + 4 * n,
                                   .dbias = y + 4 * n + k };
        d.k->layer_norm(&d, &a);
        d.k->layer_norm_backward(&d, &a);
        golden_ok(g, d.k->sync(&d));
        compare(g, "y", y, n);
        compare(g, "dx", a.dx, n);
        compare(g, "dweight", a.dw, k);
        compare(g, "dbias", a.dbias, k);
        ares_device_close(&d);
    }
}
