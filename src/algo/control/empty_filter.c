/*
 * Ends a run whose filters keep no group (docs/filters.md#no-group-left): RAGEN's first version
 * draws anew a few times and gives up, its later one trains nothing in such steps and gives up
 * after some in a row.
 */
#include "control.h"

#include <string.h>

#include "ares/algo_filter.h"

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

static const char who[] = "algo: control empty_filter";

static bool wanted(const void *options, const ares_control_env *env)
{
    (void)env;
    return ((const empty_filter_config *)options)->empty_policy != NULL;
}

static int open_state(const void *options, const ares_control_env *env, void **state)
{
    (void)env;
    const empty_filter_config *cfg = options;
    empty_filter *s = ares_calloc(1, sizeof *s);
    s->limit = strcmp(cfg->empty_policy, "retry") == 0 ? 1 : cfg->stop_steps;
    *state = s;
    return ARES_OK;
}

static int observe(void *state, ares_batch *b, ares_metrics *m)
{
    (void)m;
    empty_filter *s = state;
    s->empty = b->empty ? s->empty + 1 : 0;
    return ARES_OK;
}

static const char *stop(const void *state)
{
    const empty_filter *s = state;
    return s->empty >= s->limit ? "empty_filtered_steps" : NULL;
}

static void save(const void *state, ares_str *json)
{
    control_save_count(json, "empty", ((const empty_filter *)state)->empty);
}

static int load(void *state, const ares_json *json)
{
    return control_count(json, who, "empty", &((empty_filter *)state)->empty);
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
    .wanted = wanted,
    .open = open_state,
    .observe = observe,
    .save = save,
    .load = load,
    .close = ares_free,
    .stop = stop,
};
