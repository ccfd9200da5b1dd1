/* Checks by the metrics of a run that every part of AEPO had an effect. */
#ifndef TESTS_AEPO_AT_WORK_H
#define TESTS_AEPO_AT_WORK_H

#include "e2e.h"

#include <math.h>
#include <stdio.h>

static const char *const buckets[] = { "easy", "medium", "hard" };

static inline const char *bucket_metric(const char *prefix, int k, const char *suffix)
{
    static char name[96];
    snprintf(name, sizeof name, "%s/%s%s", prefix, buckets[k], suffix);
    return name;
}

/* Whether the metric was reported in several steps and was not always the same. */
static inline bool has_changed(const char *run, int steps, const char *name)
{
    double first = NAN;
    for (int i = 1; i <= steps; i++) {
        double v = e2e_metric(run, i, name);
        if (isnan(first)) first = v;
        else if (!isnan(v) && v != first) return true;
    }
    return false;
}

static inline double highest(const char *run, int steps, const char *name)
{
    double best = -INFINITY;
    for (int i = 1; i <= steps; i++) best = fmax(best, e2e_metric(run, i, name));
    return best;
}

/*
 * Tau, targets, alphas and lambdas change, groups are drawn again, and each difficulty has prompts
 * and HWE tokens.
 */
static inline void check_aepo_at_work(const char *run, int steps)
{
    CHECK(has_changed(run, steps, "aepo/tau"));
    CHECK(highest(run, steps, "filter/tries") > 1);
    for (int k = 0; k < 3; k++) {
        CHECK_MSG(e2e_metric(run, 0, bucket_metric("bootstrap", k, "/count")) > 0, "%s",
                  buckets[k]);
        CHECK_MSG(highest(run, steps, bucket_metric("aepo/hwe_num", k, "")) > 0, "%s", buckets[k]);
        CHECK_MSG(has_changed(run, steps, bucket_metric("aepo/alpha", k, "")), "%s", buckets[k]);
        CHECK_MSG(has_changed(run, steps, bucket_metric("aepo/target", k, "")), "%s", buckets[k]);
        CHECK_MSG(has_changed(run, steps, bucket_metric("aepo/kl_lambda", k, "")), "%s",
                  buckets[k]);
    }
}
#endif
