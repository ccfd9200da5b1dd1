/*
 * Early stopping of agentic.json: the step in which the variance of rewards has collapsed, and the
 * validation after which success has been low for too long.
 */
#include "golden.h"

#include <stdio.h>

#include "ares/data.h"
#include "control_test.h"

/* A batch of one group of two answers whose scores deviate by `deviation`. */
static void one_group(ares_batch *b, double deviation)
{
    static const ares_row row = { 0 };
    ares_batch_clear(b);
    ares_batch_begin_group(b);
    for (int i = 0; i < 2; i++)
        ares_batch_add_row(
            b,
            &(ares_sample){ .row = &row, .index = i, .score = (float)(i ? deviation : -deviation) },
            0);
}

/* The first step (from 1) that is stopped with a window of so many steps; -1: none. */
static int64_t stops_at(golden *g, int64_t window, const double *x, int64_t n)
{
    const ares_control *control = control_named("early_stop");
    ares_batch b;
    void *state;
    int64_t at = -1;
    ares_batch_init(&b);
    /* its only option is the window, the first member of the struct */
    golden_ok(g, control->open(&window, &(ares_control_env){ 0 }, &state));
    for (int64_t i = 0; i < n && at < 0; i++) {
        one_group(&b, x[i]);
        golden_ok(g, control->observe(state, &b, NULL));
        if (control->stop(state)) at = i + 1;
    }
    control->close(state);
    ares_batch_fini(&b);
    return at;
}

GOLDEN(agentic, rv_collapse_early_stop)
{
    int64_t n;
    const double *x = golden_flat(g, golden_in(g, "in_group_reward_std_per_successful_step"), &n);
    golden_equal(g, "window 5", stops_at(g, 5, x, n),
                 golden_want(g, "stop_step_window5_seed_time"));
    golden_equal(g, "window 10", stops_at(g, 10, x, n), golden_want(g, "stop_step_window10_newer"));
}

GOLDEN(agentic, low_success_early_stop)
{
    const ares_control *control = control_named("low_success");
    int64_t n, at = -1;
    const double *x = golden_flat(g, golden_in(g, "val_success_sequence"), &n);
    char below[64], patience[64];
    snprintf(below, sizeof below, "algorithm.early_stop_low_success=%g",
             golden_number(g, "threshold"));
    snprintf(patience, sizeof patience, "algorithm.early_stop_low_success_validations=%g",
             golden_number(g, "patience"));
    const char *const words[] = { below, patience };
    ares_config *cfg;
    void *options = control_options(control, words, 2, &cfg), *state;
    ares_metrics *m = ares_metrics_new();
    if (!options) {
        golden_fail(g, "the options are refused");
        return;
    }
    golden_ok(g, control->open(options, &(ares_control_env){ .validates = true }, &state));
    for (int64_t i = 0; i < n && at < 0; i++) {
        ares_metrics_set(m, "val/accuracy", x[i]);
        golden_ok(g, control->validated(state, m));
        if (control->stop(state)) at = i;
    }
    golden_equal(g, "stop", at, golden_want(g, "stop_index_0based"));
    control->close(state);
    ares_metrics_free(m);
    ares_config_free(cfg);
    ares_free(options);
}
