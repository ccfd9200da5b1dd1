/*
 * Early stopping on the collapse of the rewards' variance (RAGEN's StarPO, arXiv 2504.20073): where
 * the answers to a prompt all score alike, a group teaches nothing, and training beyond that point
 * makes a policy worse. What is watched is the standard deviation of the scores within a group, its
 * mean over the groups of a step before any of them is filtered out.
 */
#include "control.h"

#include <math.h>

enum { BASE_STEPS = 10 };
static const double COLLAPSED = 0.1; /* of the base, the mean over the first BASE_STEPS steps */

#define EARLY_STOP_OPTIONS(X)                                                                    \
    X(i64, window, "early_stop_rv_window", "null", "[1,)",                                       \
      "end the run after this number of steps in a row in which the mean standard deviation of " \
      "the scores within a group, before any filter, lies below a tenth of its mean over the "   \
      "first 10 steps; null: never")
ARES_OPTION_STRUCT(early_stop_config, EARLY_STOP_OPTIONS);
static ARES_OPTION_TABLE(early_stop_options, early_stop_config, EARLY_STOP_OPTIONS);

typedef struct early_stop {
    const early_stop_config *cfg;
    ares_world *world;
    double sum, groups; /* of this step: deviations of this rank's groups, and their number */
    bool generated;     /* they were seen before filters */
    double base;        /* the sum over the first steps */
    int64_t steps, below;
} early_stop;

static const char who[] = "algo: control early_stop";

static bool wanted(const void *options, const ares_control_env *env)
{
    (void)env;
    return ((const early_stop_config *)options)->window != ARES_NULL_I64;
}

static int open_state(const void *options, const ares_control_env *env, void **state)
{
    early_stop *s = ares_calloc(1, sizeof *s);
    *s = (early_stop){ .cfg = options, .world = env->world };
    *state = s;
    return ARES_OK;
}

/* The deviation of a population: 0 where all scores are equal. */
static void see_group(early_stop *s, const ares_batch *b, int64_t g)
{
    double n = 0, mean = 0, squares = 0;
    for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++) {
        if (!ares_batch_row_counts(b, r)) continue;
        double delta = (double)b->samples[r].score - mean;
        mean += delta / ++n;
        squares += delta * ((double)b->samples[r].score - mean);
    }
    if (n == 0) return;
    s->sum += sqrt(squares / n);
    s->groups++;
}

static int generated(void *state, const ares_batch *b)
{
    early_stop *s = state;
    s->generated = true;
    for (int64_t g = 0; g < b->groups; g++) see_group(s, b, g);
    return ARES_OK;
}

static int observe(void *state, ares_batch *b, ares_metrics *m)
{
    early_stop *s = state;
    for (int64_t g = 0; g < b->groups && !s->generated; g++) see_group(s, b, g);
    double step[2] = { s->sum, s->groups };
    s->sum = s->groups = 0;
    s->generated = false;
    ARES_TRY(ares_world_sum_f64(s->world, step, 2));
    if (step[1] == 0) return ARES_OK; /* no group with a score: not a step that tells anything */
    double deviation = step[0] / step[1];
    if (m) ares_metrics_set(m, "rollout/in_group_reward_std", deviation);
    if (s->steps++ < BASE_STEPS) s->base += deviation;
    else if (deviation < COLLAPSED * s->base / BASE_STEPS) s->below++;
    else s->below = 0;
    return ARES_OK;
}

static const char *stop(const void *state)
{
    const early_stop *s = state;
    return s->below >= s->cfg->window ? "reward_variance_collapse" : NULL;
}

static void save(const void *state, ares_str *json)
{
    const early_stop *s = state;
    ares_json_begin(json, '{');
    ares_json_write_double(ares_json_key(json, "base"), s->base);
    ares_json_write_i64(ares_json_key(json, "steps"), s->steps);
    ares_json_write_i64(ares_json_key(json, "below"), s->below);
    ares_json_end(json, '}');
}

static int load(void *state, const ares_json *json)
{
    early_stop *s = state;
    ARES_TRY(control_number(json, who, "base", &s->base));
    ARES_TRY(control_count(json, who, "steps", &s->steps));
    ARES_TRY(control_count(json, who, "below", &s->below));
    return s->base >= 0 ? ARES_OK : ares_fail(ARES_EFORMAT, "%s: saved state: base below 0", who);
}

const ares_control ares_control_early_stop = {
    .name = "early_stop",
    .doc = "ends a run whose rewards no longer vary within groups",
    .formula = "std_g < 0.1 mean(std_g of the first 10 steps), early_stop_rv_window steps in a row",
    .paper = "arXiv 2504.20073",
    .option = "algorithm.early_stop_rv_window=10",
    .sections = { { "algorithm", early_stop_options, 0 } },
    .options_size = sizeof(early_stop_config),
    .wanted = wanted,
    .open = open_state,
    .observe = observe,
    .save = save,
    .load = load,
    .close = ares_free,
    .generated = generated,
    .stop = stop,
};
