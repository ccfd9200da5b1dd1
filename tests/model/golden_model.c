/* Where a response ends. The case's response is padded: tokens after its end token do not count. */
#include "golden.h"

#include "ares/model.h"
#include "internal.h"

GOLDEN(aepo, response_mask)
{
    int64_t n, n_eos;
    const double *ids = golden_flat(g, golden_in(g, "ids"), &n),
                 *eos = golden_flat(g, golden_in(g, "eos"), &n_eos);
    double *mask = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *mask);
    ares_model_config c = { .n_eos = (int32_t)n_eos };
    for (int64_t i = 0; i < n_eos && i < ARES_MAX_EOS; i++) c.eos[i] = (int32_t)eos[i];
    bool ended = false;
    for (int64_t t = 0; t < n && !ended; t++) {
        mask[t] = 1;
        ended = ares_model_ends(&c, (int32_t)ids[t]);
    }
    golden_numbers(g, "mask", mask, n, g->expected);
}

/* The moving average of a distillation's teacher. */
GOLDEN(distill, ema_update)
{
    int64_t n;
    double *x = golden_flat(g, golden_in(g, "teacher"), &n),
           *y = golden_flat(g, golden_in(g, "policy"), &n);
    float *teacher = ares_arena_calloc(g->arena, (size_t)n, sizeof *teacher),
          *policy = ares_arena_calloc(g->arena, (size_t)n, sizeof *policy);
    for (int64_t i = 0; i < n; i++) {
        teacher[i] = (float)x[i];
        policy[i] = (float)y[i];
    }
    model_mix(teacher, policy, n, golden_number(g, "update_rate"));
    for (int64_t i = 0; i < n; i++) x[i] = (double)teacher[i];
    golden_in_single(g);
    golden_numbers(g, "teacher", x, n, golden_want(g, "teacher"));
}
