/* AdamW as Tinker's clients ask for it, by the trainer's optimizer over one region of numbers. */
#include "golden.h"

#include <math.h>
#include <string.h>

#include "../../src/serve/tinker.h"
#include "learner.h"

GOLDEN(tinker, tinker_adam)
{
    const ares_json *gradients = golden_in(g, "gradients"), *want = golden_want(g, "parameters"),
                    *norms = golden_want(g, "grad_norm");
    ares_device d;
    ares_tinker_adam a;
    int64_t n, steps = gradients->count;
    const double *start = golden_flat(g, golden_in(g, "parameters"), &n);
    if (!golden_ok(g, tinker_adam_read(golden_in(g, "adam_params"), &a)) ||
        !golden_ok(g, ares_device_open("cpu", 1, &d)))
        return;
    float *memory = ares_arena_calloc(g->arena, (size_t)(4 * n), sizeof *memory);
    double *got = ares_arena_alloc(g->arena, (size_t)n * sizeof *got), square;
    ares_region r = { .dtype = ARES_F32,
                      .decay = true,
                      .elements = n,
                      .own = n,
                      .weights = memory,
                      .own_weights = memory,
                      .grad = memory + n,
                      .own_grad = memory + n,
                      .m = memory + 2 * n,
                      .v = memory + 3 * n };
    ares_params ps = { .device = &d,
                       .regions = &r,
                       .n_regions = 1,
                       .trainable = true,
                       .grad_squares = &square,
                       .n_squares = 1 };
    optim o = { 0 };
    for (int64_t i = 0; i < n; i++) memory[i] = (float)start[i];
    for (int64_t k = 0; k < steps; k++) {
        double norm;
        int64_t count;
        const double *of = golden_flat(g, &gradients->items[k], &count);
        for (int64_t i = 0; i < n; i++) r.own_grad[i] = (float)of[i];
        if (!golden_ok(g, optim_step_given(&o, &ps, &a, &norm))) break;
        for (int64_t i = 0; i < n; i++) got[i] = (double)memory[i];
        golden_numbers(g, "parameters", got, n, &want->items[k]);
        golden_near(g, "grad_norm", norm, &norms->items[k]);
    }
    ares_device_close(&d);
}
