/*
 * Moving averages of the collapse metrics (RAGEN's; docs/diagnostics.md#collapse): the deviation of
 * thoughts' log-probs drifts while a policy trains, so a second z-score divides by its average over
 * the steps so far. adapt reads the metrics that the same step has measured; in a step that does
 * not measure it changes nothing.
 */
#include <math.h>
#include <stdio.h>

#include "ares/algo.h"
#include "control.h"
#include "stats.h"

static const double DECAY = 0.9; /* RAGEN's */
enum { KINDS = 2, SUMS = 2 };
static const char *const kinds[KINDS] = { "first_turn", "trajectory" };
/* ends of metric names: log-probs as means over a thought's tokens, and as sums over them */
static const char *const endings[SUMS] = { "", "_seq" };

typedef struct collapse {
    double std[KINDS][SUMS];
    bool known[KINDS][SUMS];
} collapse;

static bool wanted(const void *options, const ares_control_env *env)
{
    (void)env;
    return ((const ares_collapse_config *)options)->freq > 0;
}

/* No average is known yet: memory of zeros says so. */
static int open_state(const void *options, const ares_control_env *env, void **state)
{
    (void)options;
    (void)env;
    *state = ares_calloc(1, sizeof(collapse));
    return ARES_OK;
}

static int adapt(void *state, const ares_batch *b, ares_metrics *m)
{
    collapse *s = state;
    (void)b;
    for (int i = 0; i < KINDS * SUMS; i++) {
        char name[96];
        const char *kind = kinds[i / SUMS], *ending = endings[i % SUMS];
        double *std = &s->std[i / SUMS][i % SUMS], now, mi;
        bool *known = &s->known[i / SUMS][i % SUMS];
        (void)snprintf(name, sizeof name, "collapse_%s_sample/marginal_std%s", kind, ending);
        /* report.collapse.freq: most steps measure nothing, and leave the average as it is */
        if (!ares_metrics_get(m, name, &now) || !isfinite(now)) continue;
        (void)snprintf(name, sizeof name, "collapse_%s_sample/mi%s_estimate", kind, ending);
        if (!ares_metrics_get(m, name, &mi)) continue;
        /* the first measurement begins the average */
        *std = *known ? DECAY * *std + (1 - DECAY) * now : now;
        *known = true;
        (void)snprintf(name, sizeof name, "collapse_%s_sample/marginal_std_ema%s", kind, ending);
        ares_metrics_set(m, name, *std);
        (void)snprintf(name, sizeof name, "collapse_%s_sample/mi_zscore_ema%s", kind, ending);
        ares_metrics_set(m, name, collapse_zscore(mi, *std));
    }
    return ARES_OK;
}

/* Name of average i in a saved state: "first_turn", "first_turn_seq" .. */
static const char *member(int i, char text[32])
{
    (void)snprintf(text, 32, "%s%s", kinds[i / SUMS], endings[i % SUMS]);
    return text;
}

/* An average without a value yet is not written. */
static void save(const void *state, ares_str *json)
{
    const collapse *s = state;
    char name[32];
    ares_json_begin(json, '{');
    for (int i = 0; i < KINDS * SUMS; i++)
        if (s->known[i / SUMS][i % SUMS])
            ares_json_write_double(ares_json_key(json, member(i, name)),
                                   s->std[i / SUMS][i % SUMS]);
    ares_json_end(json, '}');
}

static int load(void *state, const ares_json *json)
{
    static const char who[] = "algo: control collapse";
    collapse *s = state;
    char name[32];
    for (int i = 0; i < KINDS * SUMS; i++) {
        double *std = &s->std[i / SUMS][i % SUMS];
        s->known[i / SUMS][i % SUMS] = ares_json_get(json, member(i, name)) != NULL;
        if (!s->known[i / SUMS][i % SUMS]) continue;
        ARES_TRY(control_number(json, who, name, std));
        if (!(*std >= 0)) return ares_fail(ARES_EFORMAT, "%s: saved state: %s below 0", who, name);
    }
    return ARES_OK;
}

const ares_control ares_control_collapse = {
    .name = "collapse",
    .doc = "how much of the thoughts depends on their prompts, with moving averages",
    .formula = "I(X; Z) = mean(log p(z | own x) - log mean_x p(z | x))",
    .paper = "RAGEN, arXiv 2504.20073",
    .option = "report.collapse.freq=5",
    .sections = { { "report.collapse", ares_collapse_options, 0 } },
    .options_size = sizeof(ares_collapse_config),
    .wanted = wanted,
    .open = open_state,
    .save = save,
    .load = load,
    .close = ares_free,
    .adapt = adapt,
};
