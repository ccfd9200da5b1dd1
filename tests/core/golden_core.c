#include "golden.h"

/* Where this program decides otherwise than its sources (a warm-up of 0 steps), `decision` is its
 * value. */
GOLDEN(aepo, lr_factor_constant)
{
    ares_schedule s = { .name = "constant",
                        .base = 1,
                        .warmup_steps = golden_number(g, "warmup"),
                        .total_steps = 100 };
    if (!golden_ok(g, ares_schedule_check(&s))) return;
    golden_near(g, "factor", ares_schedule_at(&s, (int64_t)golden_number(g, "step")),
                golden_want(g, "decision"));
}

GOLDEN(aepo, lr_factor_cosine)
{
    ares_schedule s = { .name = "cosine",
                        .base = 1,
                        .warmup_steps = golden_number(g, "warmup"),
                        .total_steps = golden_number(g, "total"),
                        .min_ratio = golden_number(g, "min_lr_ratio"),
                        .cycles = golden_number_or(g, "num_cycles", 0.5) };
    if (!golden_ok(g, ares_schedule_check(&s))) return;
    golden_near(g, "factor", ares_schedule_at(&s, (int64_t)golden_number(g, "step")), g->expected);
}
