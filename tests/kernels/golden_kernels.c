/*
 * Entropy and log-prob of given logits, through the head: its weight is the identity, so x is the
 * logits and dx their gradient. Then AdamW in bf16. Each through the native and the aten table.
 */
#include "golden.h"

#include <math.h>

#include "../../src/kernels/host.h"
#include "ares/kernels.h"

#ifdef ARES_HAVE_TORCH
static const char *const tables[] = { "native", "aten" };
#else
static const char *const tables[] = { "native" };
#endif

static void check_head_of(const char *table, golden *g, const ares_json *logits, int64_t rows,
                          double temperature, const int32_t *target, const ares_json *entropy,
                          const ares_json *d_entropy, const ares_json *log_prob,
                          const ares_json *d_log_prob)
{
    int64_t n;
    const double *z = golden_flat(g, logits, &n);
    int32_t vocab = (int32_t)(n / rows);
    float *x = ares_arena_alloc(g->arena, (size_t)n * sizeof *x),
          *identity = ares_arena_calloc(g->arena, (size_t)vocab * (size_t)vocab, sizeof *identity);
    float *stats = ares_arena_calloc(g->arena, (size_t)rows * 5, sizeof *stats),
          *dx = ares_arena_calloc(g->arena, (size_t)n, sizeof *dx);
    double *wide = ares_arena_alloc(g->arena, (size_t)n * sizeof *wide);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)z[i];
        /* backward reads an lse as large as the logits, in f32 */
        g->single_absolute = fmax(g->single_absolute, 0x1p-24 * fabs(z[i]));
    }
    for (int32_t i = 0; i < vocab; i++) identity[i * vocab + i] = 1;
    ares_device d;
    if (!golden_ok(g, ares_device_open_table("cpu", table, ARES_F32, 1, &d))) return;
    ares_matrix w = { ares_calloc((size_t)ares_matrix_elements(d.k->layout, vocab, vocab),
                                  sizeof(float)),
                      ARES_F32, d.k->layout, vocab, vocab };
    ares_matrix_pack(&w, identity, ARES_F32);
    ares_head_args h = { .rows = (int32_t)rows,
                         .vocab = vocab,
                         .x = x,
                         .ldx = vocab,
                         .w = &w,
                         .inv_temperature = ares_inv_temperature((float)temperature),
                         .target = target,
                         .log_prob = stats,
                         .entropy = stats + rows,
                         .lse = stats + 2 * rows,
                         .c_log_prob = stats + 3 * rows,
                         .c_entropy = stats + 4 * rows,
                         .dx = dx,
                         .lddx = vocab };
    golden_in_single(g);
    d.k->head(&d, &h);
    for (int which = 0; which < 2; which++) {
        const ares_json *value = which ? log_prob : entropy,
                        *gradient = which ? d_log_prob : d_entropy;
        if (!value) continue;
        for (int64_t i = 0; i < rows; i++) {
            wide[i] = (double)(which ? h.log_prob : h.entropy)[i];
            stats[3 * rows + i] = (float)which;
            stats[4 * rows + i] = (float)!which;
        }
        golden_numbers(g, which ? "log_prob" : "entropy", wide, rows, value);
        if (!gradient) continue;
        d.k->head_backward(&d, &h);
        for (int64_t i = 0; i < n; i++) wide[i] = (double)dx[i];
        golden_numbers(g, which ? "log_prob's gradient" : "entropy's gradient", wide, n, gradient);
    }
    golden_ok(g, d.k->sync(&d));
    ares_free(w.data);
    ares_device_close(&d);
}

static void check_head(golden *g, const ares_json *logits, int64_t rows, double temperature,
                       const int32_t *target, const ares_json *entropy, const ares_json *d_entropy,
                       const ares_json *log_prob, const ares_json *d_log_prob)
{
    for (int i = 0; i < ARES_COUNT(tables); i++)
        check_head_of(tables[i], g, logits, rows, temperature, target, entropy, d_entropy, log_prob,
                      d_log_prob);
}

GOLDEN(aepo, entropy_full)
{
    check_head(g, golden_in(g, "logits"), 1, 1, (int32_t[]){ 0 }, g->expected, NULL, NULL, NULL);
}

GOLDEN(dapo, token_entropy)
{
    check_head(g, golden_in(g, "logits"), 1, 1, (int32_t[]){ 0 }, golden_want(g, "entropy"),
               golden_want(g, "grad"), NULL, NULL);
}

GOLDEN(agentic, entropy_and_logprob_from_logits)
{
    int64_t rows;
    const double *labels = golden_flat(g, golden_in(g, "labels"), &rows);
    int32_t *target = ares_arena_alloc(g->arena, (size_t)(rows + 1) * sizeof *target);
    for (int64_t i = 0; i < rows; i++) target[i] = (int32_t)labels[i];
    check_head(g, golden_in(g, "logits"), rows, golden_number(g, "temperature"), target,
               golden_want(g, "entropy"), golden_want(g, "d_entropy_d_raw_logits"),
               golden_want(g, "log_prob"), golden_want(g, "d_logprob_d_raw_logits"));
}

static void check_adamw(const char *table, golden *g)
{
    int64_t n, n_betas;
    const double *grads = golden_flat(g, golden_in(g, "grads"), &n),
                 *betas = golden_flat(g, golden_in(g, "betas"), &n_betas);
    ares_device d;
    if (!golden_ok(g, ares_device_open_table("cpu", table, ARES_F32, 1, &d))) return;
    uint16_t w = kernels_f32_to_bf16((float)golden_number(g, "param")), left_out = 0, m = 0, v = 0;
    for (int64_t i = 0; i < n && i < g->expected->count; i++) {
        float grad = (float)grads[i];
        ares_adamw_args a = { .n = 1,
                              .w = &w,
                              .dtype = ARES_BF16,
                              .kahan = true,
                              .master = &left_out,
                              .grad = &grad,
                              .m = &m,
                              .v = &v,
                              .lr = golden_number(g, "lr"),
                              .beta1 = betas[0],
                              .beta2 = betas[1],
                              .eps = golden_number(g, "eps"),
                              .weight_decay = golden_number(g, "weight_decay"),
                              .grad_scale = 1,
                              .step = i + 1 };
        d.k->adamw(&d, &a);
        const ares_json *want = &g->expected->items[i];
        golden_near(g, "param", (double)kernels_bf16_to_f32(w), ares_json_get(want, "param"));
        golden_near(g, "exp_avg", (double)kernels_bf16_to_f32(m), ares_json_get(want, "exp_avg"));
        golden_near(g, "exp_avg_sq", (double)kernels_bf16_to_f32(v),
                    ares_json_get(want, "exp_avg_sq"));
        golden_near(g, "compensation", (double)kernels_bf16_to_f32(left_out),
                    ares_json_get(want, "compensation"));
    }
    golden_ok(g, d.k->sync(&d));
    ares_device_close(&d);
}

GOLDEN(aepo, anyprecision_adamw)
{
    for (int i = 0; i < ARES_COUNT(tables); i++) check_adamw(tables[i], g);
}
