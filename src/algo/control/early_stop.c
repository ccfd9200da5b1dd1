/*
 * Three controls that end a run: variance of rewards that collapses, validations of low success,
 * and filters that keep no group.
 */
#include "control.h"

#include <math.h>
#include <string.h>

#include "ares/algo_filter.h"

/* A member that counts: 0 or more. */
static int load_count(const ares_json *o, const char *who, const char *key, int64_t *out)
{
    ARES_TRY(control_integer(o, who, key, out));
    return *out >= 0 ? ARES_OK : ares_fail(ARES_EFORMAT, "%s: saved state: %s below 0", who, key);
}

/* {"steps": 12}: the whole state of a control that only counts. */
static void save_count(ares_str *json, const char *key, int64_t n)
{
    ares_json_begin(json, '{');
    ares_json_write_i64(ares_json_key(json, key), n);
    ares_json_end(json, '}');
}

/*
 * Early stopping on the collapse of the rewards' variance (RAGEN's StarPO, arXiv 2504.20073): where
 * the answers to a prompt all score alike, a group teaches nothing, and training beyond that point
 * makes a policy worse. What is watched is the standard deviation of the scores within a group, its
 * mean over the groups of a step before any of them is filtered out.
 */

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
    double sum, groups;   /* of this step: deviations of this rank's groups, and their number */
    bool generated;       /* the groups were seen as generated, before any filter */
    double base;          /* sum of the step means over the first BASE_STEPS steps */
    int64_t steps, below; /* steps counted; steps in a row below the bound */
} early_stop;

static const char early_stop_who[] = "algo: control early_stop";

static bool early_stop_wanted(const void *options, const ares_control_env *env)
{
    (void)env;
    return ((const early_stop_config *)options)->window != ARES_NULL_I64;
}

static int early_stop_open(const void *options, const ares_control_env *env, void **state)
{
    early_stop *s = ares_calloc(1, sizeof *s);
    *s = (early_stop){ .cfg = options, .world = env->world };
    *state = s;
    return ARES_OK;
}

/*
 * Adds a group's standard deviation (divisor n), by Welford's update, so that equal scores give
 * exactly 0.
 */
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

/* Called for each batch that was generated, before filters drop groups of equal scores. */
static int generated(void *state, const ares_batch *b)
{
    early_stop *s = state;
    s->generated = true;
    for (int64_t g = 0; g < b->groups; g++) see_group(s, b, g);
    return ARES_OK;
}

static int early_stop_observe(void *state, ares_batch *b, ares_metrics *m)
{
    early_stop *s = state;
    /* without a filter nothing was seen before: look at the batch itself */
    for (int64_t g = 0; g < b->groups && !s->generated; g++) see_group(s, b, g);
    /* over all ranks: each has its own groups */
    double step[2] = { s->sum, s->groups };
    s->sum = s->groups = 0;
    s->generated = false;
    ARES_TRY(ares_world_sum_f64(s->world, step, 2));
    if (step[1] == 0) return ARES_OK; /* no group with a score: the step counts neither way */
    double deviation = step[0] / step[1];
    if (m) ares_metrics_set(m, "rollout/in_group_reward_std", deviation);
    /* the first steps make the base; from then on a step is below the bound, or begins anew */
    if (s->steps++ < BASE_STEPS) s->base += deviation;
    else if (deviation < COLLAPSED * s->base / BASE_STEPS) s->below++;
    else s->below = 0;
    return ARES_OK;
}

static const char *early_stop_reason(const void *state)
{
    const early_stop *s = state;
    return s->below >= s->cfg->window ? "reward_variance_collapse" : NULL;
}

static void early_stop_save(const void *state, ares_str *json)
{
    const early_stop *s = state;
    ares_json_begin(json, '{');
    ares_json_write_double(ares_json_key(json, "base"), s->base);
    ares_json_write_i64(ares_json_key(json, "steps"), s->steps);
    ares_json_write_i64(ares_json_key(json, "below"), s->below);
    ares_json_end(json, '}');
}

static int early_stop_load(void *state, const ares_json *json)
{
    early_stop *s = state;
    ARES_TRY(control_number(json, early_stop_who, "base", &s->base));
    ARES_TRY(load_count(json, early_stop_who, "steps", &s->steps));
    ARES_TRY(load_count(json, early_stop_who, "below", &s->below));
    return s->base >= 0 ? ARES_OK
                        : ares_fail(ARES_EFORMAT, "%s: saved state: base below 0", early_stop_who);
}

const ares_control ares_control_early_stop = {
    .name = "early_stop",
    .doc = "ends a run whose rewards no longer vary within groups",
    .formula = "std_g < 0.1 mean(std_g of the first 10 steps), early_stop_rv_window steps in a row",
    .paper = "arXiv 2504.20073",
    .option = "algorithm.early_stop_rv_window=10",
    .sections = { { "algorithm", early_stop_options, 0 } },
    .options_size = sizeof(early_stop_config),
    .wanted = early_stop_wanted,
    .open = early_stop_open,
    .observe = early_stop_observe,
    .save = early_stop_save,
    .load = early_stop_load,
    .close = ares_free,
    .generated = generated,
    .stop = early_stop_reason,
};

/*
 * Early stopping on low success (RAGEN's StarPO, arXiv 2504.20073): a policy that has forgotten the
 * task does not find back. What is watched is the accuracy of the validations during training; the
 * one before the first step does not count.
 */

#define LOW_SUCCESS_OPTIONS(X)                                                                   \
    X(f64, below, "early_stop_low_success", "null", "(0,1]",                                     \
      "end the run when val/accuracy is below this in early_stop_low_success_validations "       \
      "validations in a row, the one before training not counted; null: never. RAGEN's is 0.01") \
    X(i64, patience, "early_stop_low_success_validations", "5", "[1,)",                          \
      "validations in a row below early_stop_low_success that end the run")
ARES_OPTION_STRUCT(low_success_config, LOW_SUCCESS_OPTIONS);
static ARES_OPTION_TABLE(low_success_options, low_success_config, LOW_SUCCESS_OPTIONS);

typedef struct low_success {
    const low_success_config *cfg;
    int64_t low; /* validations in a row below the threshold */
} low_success;

static const char low_success_who[] = "algo: control low_success";

static bool low_success_wanted(const void *options, const ares_control_env *env)
{
    (void)env;
    return !ares_is_null_f64(((const low_success_config *)options)->below);
}

static void check(ares_config *cfg, const void *options, const ares_control_env *env)
{
    (void)options;
    if (!env->validates)
        ares_config_fault(cfg, "algorithm.early_stop_low_success",
                          "no validation is made during training; set data.val_files, or "
                          "env.val.tags in environments, and trainer.val_freq");
    if (!env->judges)
        ares_config_fault(cfg, "algorithm.early_stop_low_success",
                          "the validation gives no accuracy; set worker.reward.accuracy to a "
                          "reward that judges answers");
}

static int low_success_open(const void *options, const ares_control_env *env, void **state)
{
    (void)env;
    const low_success_config *cfg = options;
    low_success *s = ares_calloc(1, sizeof *s);
    s->cfg = cfg;
    *state = s;
    return ARES_OK;
}

static int validated(void *state, const ares_metrics *m)
{
    low_success *s = state;
    double success;
    if (!ares_metrics_get(m, "val/accuracy", &success))
        return ares_fail(ARES_ECONFIG,
                         "config: algorithm.early_stop_low_success = %g: the validation gives no "
                         "accuracy; set worker.reward.accuracy to a reward that judges answers",
                         s->cfg->below);
    s->low = success < s->cfg->below ? s->low + 1 : 0;
    return ARES_OK;
}

static const char *low_success_reason(const void *state)
{
    const low_success *s = state;
    return s->low >= s->cfg->patience ? "low_validation_success" : NULL;
}

static void low_success_save(const void *state, ares_str *json)
{
    save_count(json, "low", ((const low_success *)state)->low);
}

static int low_success_load(void *state, const ares_json *json)
{
    return load_count(json, low_success_who, "low", &((low_success *)state)->low);
}

const ares_control ares_control_low_success = {
    .name = "low_success",
    .doc = "ends a run whose validations hardly succeed",
    .formula = "val/accuracy < early_stop_low_success, in early_stop_low_success_validations "
               "validations in a row",
    .paper = "arXiv 2504.20073",
    .option = "algorithm.early_stop_low_success=0.01",
    .sections = { { "algorithm", low_success_options, 0 } },
    .options_size = sizeof(low_success_config),
    .wanted = low_success_wanted,
    .check = check,
    .open = low_success_open,
    .save = low_success_save,
    .load = low_success_load,
    .close = ares_free,
    .stop = low_success_reason,
    .validated = validated,
};

/*
 * Ends a run whose filters keep no group (docs/filters.md#no-group-left): RAGEN's first version
 * draws anew a few times and gives up, its later one trains nothing in such steps and gives up
 * after some in a row.
 */

#define EMPTY_FILTER_OPTIONS(X)                                                             \
    ARES_FILTER_EMPTY_POLICY(X)                                                             \
    X(i64, stop_steps, "algorithm.filter_empty_stop_steps", "5", "[1,)",                    \
      "filter_empty_policy skip: end the run after this number of steps in a row in which " \
      "filters kept no group")
ARES_OPTION_STRUCT(empty_filter_config, EMPTY_FILTER_OPTIONS);
static ARES_OPTION_TABLE(empty_filter_options, empty_filter_config, EMPTY_FILTER_OPTIONS);

typedef struct empty_filter {
    int64_t limit, empty; /* steps in a row without a group: those that end the run, and so far */
} empty_filter;

static const char empty_filter_who[] = "algo: control empty_filter";

static bool empty_filter_wanted(const void *options, const ares_control_env *env)
{
    (void)env;
    return ((const empty_filter_config *)options)->empty_policy != NULL;
}

static int empty_filter_open(const void *options, const ares_control_env *env, void **state)
{
    (void)env;
    const empty_filter_config *cfg = options;
    empty_filter *s = ares_calloc(1, sizeof *s);
    s->limit = strcmp(cfg->empty_policy, "retry") == 0 ? 1 : cfg->stop_steps;
    *state = s;
    return ARES_OK;
}

static int empty_filter_observe(void *state, ares_batch *b, ares_metrics *m)
{
    (void)m;
    empty_filter *s = state;
    s->empty = b->empty ? s->empty + 1 : 0;
    return ARES_OK;
}

static const char *empty_filter_reason(const void *state)
{
    const empty_filter *s = state;
    return s->empty >= s->limit ? "empty_filtered_steps" : NULL;
}

static void empty_filter_save(const void *state, ares_str *json)
{
    save_count(json, "empty", ((const empty_filter *)state)->empty);
}

static int empty_filter_load(void *state, const ares_json *json)
{
    return load_count(json, empty_filter_who, "empty", &((empty_filter *)state)->empty);
}

const ares_control ares_control_empty_filter = {
    .name = "empty_filter",
    .doc = "ends a run whose filters keep no group",
    .formula = "no group after 10 rounds (retry), or in filter_empty_stop_steps steps in a row "
               "(skip)",
    .paper = "RAGEN, arXiv 2504.20073",
    .option = "algorithm.filter_empty_policy=skip",
    .sections = { { "", empty_filter_options, 0 } },
    .options_size = sizeof(empty_filter_config),
    .wanted = empty_filter_wanted,
    .open = empty_filter_open,
    .observe = empty_filter_observe,
    .save = empty_filter_save,
    .load = empty_filter_load,
    .close = ares_free,
    .stop = empty_filter_reason,
};
