/*
 * The collapse metrics (RAGEN's; docs/diagnostics.md#collapse): how much of the thoughts depends on
 * their prompts, then moving averages of that as a control.
 */
#include <math.h>
#include <stdio.h>

#include "ares/algo.h"
#include "ares/kernels.h"
#include "control.h"
#include "stats.h"

/*
 * How much of a thought depends on its prompt: the mutual information of thoughts Z and prompts X,
 * estimated from the log-prob of every thought after every prompt (RAGEN's collapse metrics, after
 * arXiv 2504.20073; docs/diagnostics.md#collapse). A policy that thinks the same whatever it reads
 * has I(X; Z) = 0. Prompts count as equally likely.
 */

ARES_OPTION_TABLE(ares_collapse_options, ares_collapse_config, ARES_COLLAPSE_OPTIONS);

const int ares_collapse_looks[ARES_COLLAPSE_LOOKS] = { 1, 2, 4, 8 };
static const double STD_EPS = 1e-3; /* RAGEN's */

/* RAGEN's z-score. */
static double zscore(double mi, double deviation)
{
    return mi / (deviation + STD_EPS);
}

void ares_collapse_measure(const ares_collapse_scores *s, double *matched, double *marginal,
                           ares_collapse *out)
{
    double squares = 0, chance = 0;
    *out = (ares_collapse){ 0 };
    for (int64_t i = 0; i < s->thoughts; i++) {
        const double *x = s->log_prob + i * s->prompts;
        matched[i] = x[s->own[i]];
        /* log of the mean over prompts of exp(log-prob), from the largest so that none overflows */
        double largest = x[0], sum = 0;
        for (int64_t j = 1; j < s->prompts; j++) largest = fmax(largest, x[j]);
        for (int64_t j = 0; j < s->prompts; j++) sum += ares_f64_exp(x[j] - largest);
        marginal[i] = isfinite(largest)
                          ? largest + ares_f64_log(sum) - ares_f64_log((double)s->prompts)
                          : largest;
    }
    double of_own = stats_mean(matched, s->thoughts), of_all = stats_mean(marginal, s->thoughts);
    for (int64_t i = 0; i < s->thoughts; i++)
        squares += (marginal[i] - of_all) * (marginal[i] - of_all);
    out->mi = of_own - of_all;
    out->mi_bound = ares_f64_log((double)s->prompts);
    out->conditional_entropy = -of_own;
    out->entropy = -of_all;
    out->marginal_std = sqrt(squares / (double)s->thoughts);
    out->zscore = zscore(out->mi, out->marginal_std);
    for (int64_t i = 0; i < s->thoughts; i++) {
        const double *x = s->log_prob + i * s->prompts;
        /* place: number of prompts likelier than the likeliest one of the own text */
        int64_t text = s->text[s->own[i]], best = -1, place = 0, alike = 0;
        for (int64_t j = 0; j < s->prompts; j++) {
            alike += s->text[j] == text;
            if (s->text[j] == text && (best < 0 || x[j] > x[best])) best = j;
        }
        for (int64_t j = 0; j < s->prompts; j++)
            place += x[j] > x[best] || (x[j] == x[best] && j < best);
        for (int k = 0; k < ARES_COLLAPSE_LOOKS; k++)
            out->accuracy[k] += place < ares_collapse_looks[k];
        chance += (double)alike / (double)s->prompts;
    }
    for (int k = 0; k < ARES_COLLAPSE_LOOKS; k++) {
        double seen = fmin(ares_collapse_looks[k], (double)s->prompts);
        out->accuracy[k] /= (double)s->thoughts;
        out->chance[k] = fmin(1, chance / (double)s->thoughts * seen);
    }
}

/*
 * Moving averages: the deviation of thoughts' log-probs drifts while a policy trains, so a second
 * z-score divides by its average over the steps so far. adapt reads the metrics that the same step
 * has measured; in a step that does not measure it changes nothing.
 */

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
        ares_metrics_set(m, name, zscore(mi, *std));
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
