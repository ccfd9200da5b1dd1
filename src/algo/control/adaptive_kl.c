/*
 * The KL coefficient that is adapted to the KL (algorithm.kl_type: adaptive;
 * docs/update.md#kl-controllers). Only for KL in the reward, as in verl: with use_kl_loss the
 * coefficient is constant. The step is made after the coefficient was used; n is the number of
 * samples.
 */
#include "aepo.h"
#include "control.h"

#include <math.h>

#define ADAPTIVE_KL_OPTIONS(X)                                     \
    CONTROL_KL_TYPE(X)                                             \
    X(f64, kl_target, "kl_target", "0.1", "(0,)",                  \
      "kl_type adaptive: the KL towards which kl_coef is adapted") \
    X(f64, kl_horizon, "kl_horizon", "10000", "(0,)",              \
      "kl_type adaptive: kl_coef may change by up to 20 % per this many samples, and per step")
ARES_OPTION_STRUCT(adaptive_kl_config, ADAPTIVE_KL_OPTIONS);
static ARES_OPTION_TABLE(adaptive_kl_options, adaptive_kl_config, ADAPTIVE_KL_OPTIONS);

typedef struct adaptive_kl {
    const adaptive_kl_config *cfg;
    ares_control_env env;
    double coef;
} adaptive_kl;

static const char who[] = "algo: control adaptive_kl";

/*
 * Without the bound of n a step of more than 5 horizons would make the coefficient negative, and
 * the reward would pay for divergence.
 */
double adaptive_kl_step(double coef, double kl, double target, double n, double horizon)
{
    double error = fmin(fmax(kl / target - 1, -0.2), 0.2);
    return coef * (1 + error * fmin(n, horizon) / horizon);
}

static bool wanted(const void *options, const ares_control_env *env)
{
    const adaptive_kl_config *cfg = options;
    /* a KL that is no part of the reward has kl_coef elsewhere, at a constant */
    return ares_view_is(ares_view_of(cfg->kl_type), "adaptive") &&
           ares_kl_acts(env->algorithm) == ARES_KL_IN_REWARD;
}

static int open_state(const void *options, const ares_control_env *env, void **state)
{
    adaptive_kl *s = ares_calloc(1, sizeof *s);
    *s = (adaptive_kl){ .cfg = options, .env = *env, .coef = env->algorithm->kl_coef };
    *state = s;
    return ARES_OK;
}

static int observe(void *state, ares_batch *b, ares_metrics *m)
{
    (void)m;
    /* as adapted after the step before */
    b->kl_coef = ((const adaptive_kl *)state)->coef;
    return ARES_OK;
}

static int adapt(void *state, const ares_batch *b, ares_metrics *m)
{
    adaptive_kl *s = state;
    ares_arena arena = { 0 };
    double *kl = ares_arena_calloc(&arena, (size_t)b->rows + 1, sizeof *kl), sum = 0;
    control_sample *local = ares_arena_calloc(&arena, (size_t)b->rows + 1, sizeof *local);
    control_gathered all = { 0 };
    /* a rank that fails must not leave the others waiting in the gather below */
    int rc = ares_world_share_error(s->env.world, control_row_kl(b, s->env.algorithm, who, kl));
    for (int64_t r = 0; r < b->rows; r++)
        local[r] = (control_sample){ .index = b->samples[r].index, .kl = kl[r] };
    if (rc == ARES_OK) rc = control_gather(s->env.world, b, local, &all);
    /* summed in the order of samples, so that the number of ranks changes no bit */
    if (rc == ARES_OK && all.n_samples) {
        for (int64_t i = 0; i < all.n_samples; i++) sum += all.samples[i].kl;
        double n = (double)all.n_samples;
        s->coef = adaptive_kl_step(s->coef, sum / n, s->cfg->kl_target, n, s->cfg->kl_horizon);
        if (m) ares_metrics_set(m, "critic/kl_coef_next", s->coef);
    }
    control_gathered_fini(&all);
    ares_arena_fini(&arena);
    return rc;
}

static void save(const void *state, ares_str *json)
{
    ares_json_begin(json, '{');
    ares_json_write_double(ares_json_key(json, "kl_coef"), ((const adaptive_kl *)state)->coef);
    ares_json_end(json, '}');
}

static int load(void *state, const ares_json *json)
{
    double coef;
    ARES_TRY(control_number(json, who, "kl_coef", &coef));
    if (coef < 0)
        return ares_fail(ARES_EFORMAT, "%s: saved state: 'kl_coef' = %g: below 0", who, coef);
    ((adaptive_kl *)state)->coef = coef;
    return ARES_OK;
}

const ares_control ares_control_adaptive_kl = {
    .name = "adaptive_kl",
    .doc = "the coefficient of KL in the reward follows the KL",
    .formula = "coef <- coef (1 + clip(KL / target - 1, -0.2, 0.2) min(n / horizon, 1))",
    .paper = "arXiv 1909.08593, 2.2",
    .option = "algorithm.kl_type=adaptive",
    .reads = "algorithm.kl_target algorithm.kl_horizon",
    .sections = { { "algorithm", adaptive_kl_options, 0 } },
    .options_size = sizeof(adaptive_kl_config),
    .wanted = wanted,
    .open = open_state,
    .observe = observe,
    .adapt = adapt,
    .save = save,
    .load = load,
    .close = ares_free,
};
