/*
 * Early stopping on low success (RAGEN's StarPO, arXiv 2504.20073): a policy that has forgotten the
 * task does not find back. What is watched is the accuracy of the validations during training; the
 * one before the first step does not count.
 */
#include "control.h"

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

static const char who[] = "algo: control low_success";

static bool wanted(const void *options, const ares_control_env *env)
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

static int open_state(const void *options, const ares_control_env *env, void **state)
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

static const char *stop(const void *state)
{
    const low_success *s = state;
    return s->low >= s->cfg->patience ? "low_validation_success" : NULL;
}

static void save(const void *state, ares_str *json)
{
    control_save_count(json, "low", ((const low_success *)state)->low);
}

static int load(void *state, const ares_json *json)
{
    return control_count(json, who, "low", &((low_success *)state)->low);
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
    .wanted = wanted,
    .check = check,
    .open = open_state,
    .save = save,
    .load = load,
    .close = ares_free,
    .stop = stop,
    .validated = validated,
};
