/* Formulas of losses against finite differences, and what selections, weights and spans do. */
#include "loss/formula.h"
#include "loss/formulas.h"
#include "loss/loss.h"
#include "test.h"

#include <math.h>
#include <stdio.h>

#include "algo_test.h"
#include "loss_on_card.h"

/* ---------------------------------------------------------------- formulas, in f64 */

typedef ares_token_term formula(double x, double advantage);
static const loss_settings settings = { .low = 0.8,
                                        .high = 1.28,
                                        .dual = 3,
                                        .tau_positive = 1,
                                        .tau_negative = 1.05,
                                        .ppo_kl_coef = 1,
                                        .dro_beta = 0.05 };
static loss_token token(double x, double a)
{
    return (
        loss_token){ .log_prob = x, .log_ratio = x, .advantage = a, .weight = 1, .correction = 1 };
}
static ares_token_term of_ppo(double x, double a)
{
    loss_token t = token(x, a);
    return default_token(&t, &settings);
}
static ares_token_term of_gspo(double x, double a)
{
    loss_token t = token(x, a);
    loss_row row = { .tokens = 1 };
    gspo_gather(&row, &t, &settings);
    gspo_row(&row, &settings);
    return gspo_row_token(&row, &t, &settings).term;
}
static ares_token_term of_sapo(double x, double a)
{
    loss_token t = token(x, a);
    return sapo_token(&t, &settings);
}
static ares_token_term of_dro(double x, double a)
{
    loss_token t = token(x, a);
    return dro_token(&t, &settings);
}
static ares_token_term of_gmpo(double x, double a)
{
    return gmpo_mean(x, a);
}
static ares_token_term of_cov(double x, double a)
{
    loss_token t = token(x, a);
    return kl_cov_token(&t, &settings);
}
static ares_token_term of_cov_chosen(double x, double a)
{
    loss_token t = token(x, a);
    t.chosen = 1;
    return kl_cov_token(&t, &settings);
}
static ares_token_term of_cispo(double log_prob, double log_ratio, double advantage, double low)
{
    loss_settings s = { .low = low, .high = 5 };
    loss_token t = { .log_prob = log_prob, .log_ratio = log_ratio, .advantage = advantage };
    return cispo_token(&t, &s);
}
static ares_token_term of_value(double x, double a)
{
    return ares_value_token(x, 0.3, a, 0.5);
}
static ares_token_term of_vapor(double x, double a)
{
    ares_vapor_term e = ares_vapor_completion(x, a, 0.2, 0.28, 20);
    return (ares_token_term){ e.objective, e.u, e.ratio, 0, 0, 0 };
}

static ares_token_term of_dpo(double x, double beta)
{
    ares_dpo_term e = ares_dpo_pair(x, beta);
    return (ares_token_term){ e.loss, e.derivative, 1, 0, 0, 0 };
}

TEST(slopes_of_formulas_are_those_of_their_values)
{
    static const struct {
        const char *name;
        formula *of;
    } all[] = {
        { "ppo", of_ppo },     { "gspo", of_gspo },   { "sapo", of_sapo },
        { "gmpo", of_gmpo },   { "kl_cov", of_cov },  { "kl_cov chosen", of_cov_chosen },
        { "value", of_value }, { "vapor", of_vapor }, { "dpo", of_dpo },
        { "dro", of_dro },
    };
    for (int i = 0; i < ARES_COUNT(all); i++) {
        int checked = 0;
        for (double a = -2.1; a < 2.2; a += 0.6)
            for (double x = -21.013; x < 21.5; x += 0.0731) {
                double h = 1e-6, up = all[i].of(x + h, a).loss, mid = all[i].of(x, a).loss,
                       down = all[i].of(x - h, a).loss, slope = (up - down) / (2 * h);
                /* a corner */
                if (fabs((up - mid) - (mid - down)) >
                    1e-7 * h * (1 + fabs(mid)) + 2e-6 * h * fabs(slope))
                    continue;
                checked++;
                if (!CHECK_MSG(fabs(all[i].of(x, a).gradient - slope) <=
                                   1e-5 * (1 + fabs(slope)) + 1e-9 * fabs(mid),
                               "%s at %g, advantage %g: %g, by differences %g", all[i].name, x, a,
                               all[i].of(x, a).gradient, slope))
                    break;
            }
        CHECK_MSG(checked > 3000, "%s: %d points", all[i].name, checked);
    }
}

TEST(no_finite_input_gives_a_nan)
{
    static const double extreme[] = { -1e30, -700, -20.5, -20,  -1,  -1e-30, 0,
                                      1e-30, 1,    20,    20.5, 700, 1e30 };
    static formula *const all[] = { of_ppo,        of_gspo,  of_sapo, of_gmpo, of_cov,
                                    of_cov_chosen, of_vapor, of_dpo,  of_dro };
    for (int i = 0; i < ARES_COUNT(all); i++)
        for (int x = 0; x < ARES_COUNT(extreme); x++)
            for (int a = 0; a < ARES_COUNT(extreme); a++) {
                ares_token_term e = all[i](extreme[x], extreme[a]);
                CHECK_MSG(isfinite(e.loss) && isfinite(e.gradient) && isfinite(e.ratio),
                          "formula %d at %g, %g: %g, %g", i, extreme[x], extreme[a], e.loss,
                          e.gradient);
                e = of_cispo(extreme[x], extreme[x], extreme[a], 0);
                CHECK(!isnan(e.loss) && isfinite(e.gradient));
                loss_token t = { .log_prob = -fabs(extreme[x]),
                                 .log_ratio = extreme[a] < 0 ? 0 : -fabs(extreme[a]),
                                 .advantage = extreme[a] };
                CHECK(isfinite(dppo_tv_token(&t, &settings).gradient));
                CHECK(isfinite(dppo_kl_token(&t, &settings).gradient));
            }
}

TEST(cispo_passes_its_clipped_ratio_and_no_more)
{
    /* clip_ratio_low 0 lifts e^-1 to 1 */
    CHECK_NEAR(of_cispo(-2, -1, 1, 1).gradient, -1, 1e-12);
    CHECK_NEAR(of_cispo(-2, -1, 1, 0).gradient, -exp(-1), 1e-12);
    CHECK_NEAR(of_cispo(-2, 3, -2, 0).gradient, 10, 1e-12);
    CHECK_NEAR(of_cispo(-2, 3, -2, 0).loss, -20, 1e-12);
}

/* By hand: probabilities in binary fractions, log-ratios of 2 and 1/2. */
TEST(dppo_leaves_out_what_has_moved_too_far_towards_its_advantage)
{
    static const struct {
        double old, now, advantage, bound, tv_gradient, kl_gradient;
    } all[] = {
        { 0.25, 0.5, 1, 0.3, -2, -2 },  /* tv 0.25, kl 0.13081 */
        { 0.25, 0.5, 1, 0.2, 0, -2 },   /* beyond the one bound */
        { 0.25, 0.5, 1, 0.13, 0, 0 },   /* beyond both */
        { 0.25, 0.5, -1, 0.13, 2, 2 },  /* against its advantage */
        { 0.5, 0.25, -1, 0.2, 0, 0.5 }, /* kl 0.14384 */
        { 0.5, 0.25, -1, 0.14, 0, 0 },  /* */
        { 0.5, 0.25, 1, 0.14, -0.5, -0.5 },
        { 0.125, 0.5, 1, 0.5, -3, -3 }, /* the ratio 4 weighs 3 */
    };
    for (int i = 0; i < ARES_COUNT(all); i++) {
        loss_settings s = { .log_low = all[i].bound, .log_high = all[i].bound, .dual = 3 };
        loss_token t = { .log_prob = log(all[i].now),
                         .log_ratio = log(all[i].now / all[i].old),
                         .advantage = all[i].advantage };
        ares_token_term tv = dppo_tv_token(&t, &s), kl = dppo_kl_token(&t, &s);
        CHECK_MSG(fabs(tv.gradient - all[i].tv_gradient) < 1e-12, "%d: %g", i, tv.gradient);
        CHECK_MSG(fabs(kl.gradient - all[i].kl_gradient) < 1e-12, "%d: %g", i, kl.gradient);
        CHECK_NEAR(tv.loss, tv.gradient * t.log_prob, 1e-12);
        CHECK_EQ(tv.clip_high, tv.gradient == 0);
        CHECK_EQ(kl.clip_low, kl.gradient == -3);
    }
}

/* By hand: p = -1, q = -3, A = 0.5; -(p A - beta / 2 (p - q)^2) and -(A - beta (p - q)). */
TEST(dro_pulls_a_log_prob_back_to_the_old_one)
{
    loss_token t = { .log_prob = -1, .log_ratio = 2, .advantage = 0.5 };
    ares_token_term e = dro_token(&t, &settings);
    CHECK_NEAR(e.loss, 0.6, 1e-15);
    CHECK_NEAR(e.gradient, -0.4, 1e-15);
    t.advantage = 0; /* nothing to gain: back to the old policy */
    CHECK_NEAR(dro_token(&t, &settings).gradient, 0.1, 1e-15);
    loss_settings free = { .dro_beta = 0 };
    t.advantage = 0.5;
    CHECK_NEAR(dro_token(&t, &free).gradient, gpg_token(&t, &free).gradient, 1e-15);
}

TEST(gpg_knows_no_ratio)
{
    loss_token t = { .log_prob = -2, .log_ratio = 5, .advantage = 0.5 };
    ares_token_term e = gpg_token(&t, &settings);
    CHECK(e.gradient == -0.5 && e.loss == 1 && !e.clip_high && !e.clip_low);
}

TEST(gmpo_clips_logs_on_the_side_that_gains)
{
    CHECK(gmpo_clip(1, 1, 0.4, 0.4).log_ratio == 0.4 && !gmpo_clip(1, 1, 0.4, 0.4).passes);
    CHECK(gmpo_clip(1, -1, 0.4, 0.4).log_ratio == 1 && gmpo_clip(1, -1, 0.4, 0.4).passes);
    CHECK(gmpo_clip(-1, -1, 0.4, 0.4).log_ratio == -0.4 &&
          gmpo_clip(-1, 1, 0.4, 0.4).log_ratio == -1);
    CHECK(gmpo_clip(-1, 0, 0.4, 0.4).log_ratio == 0 && !gmpo_clip(-1, 0, 0.4, 0.4).passes);
}

TEST(gmpo_counts_tokens_beyond_a_bound_by_the_sign_of_the_advantage)
{
    static const double logs[] = { -1, -0.3, 0, 0.3, 1 };
    for (int i = 0; i < ARES_COUNT(logs); i++)
        for (int sign = -1; sign <= 1; sign++) {
            gmpo_term e = gmpo_clip(logs[i], sign, 0.4, 0.5);
            bool beyond = fabs(logs[i]) == 1;
            CHECK_EQ(e.clip_high, beyond && sign > 0);
            CHECK_EQ(e.clip_low, beyond && sign < 0);
        }
}

/* Two completions of which the second is better, with a pair; every sum by hand. */
TEST(vapor_sums_what_its_completions_and_their_tokens_give)
{
    static const float log_prob[3] = { -1, -2, -3 }, ref[3] = { -1.5F, -1.75F, -3 };
    static const ares_vapor_config cfg = { .beta = 0.5,
                                           .epsilon_low = 0.2,
                                           .epsilon_high = 0.2,
                                           .kl_coef = 0.5,
                                           .log_ratio_clamp = 20,
                                           .ratio_reduction = "mean",
                                           .failure_ratio = "neutral" };
    float d[2][3] = { { 0 } };
    ares_vapor_completion_args c[2] = {
        { .text = { 3, 0, 2, log_prob, ref, d[0], NULL }, .reward = 0 },
        { .text = { 3, 1, 3, log_prob, ref, d[1], NULL }, .reward = 1 }
    };
    ares_vapor_prompt p = { .n = 2, .completions = c };
    ares_vapor_sums s;
    ares_vapor_sums_init(&s);
    REQUIRE_OK(ares_vapor_loss(&cfg, ares_kl_find("kl"), &p, 1, NULL, &s));
    CHECK_NEAR(s.prompts, 1, 0);
    CHECK_NEAR(s.completions, 2, 0);
    CHECK_NEAR(s.tokens, 6, 0);
    CHECK_NEAR(s.reward, 1, 0);
    CHECK_NEAR(s.extracted, 2, 0);
    CHECK_NEAR(s.usable, 0, 0);
    CHECK_NEAR(s.equal_groups, 0, 0);
    CHECK_NEAR(s.kl, 2 * (0.5 - 0.25 + 0), 1e-12);
    CHECK_NEAR(c[0].advantage, -0.5, 1e-12);
    CHECK_NEAR(c[1].advantage, 0.5, 1e-12);
    CHECK_NEAR(c[0].log_ratio, (0.5 - 0.25) / 2, 1e-12);
    CHECK_NEAR(c[1].log_ratio, -0.25 / 2, 1e-12);
    CHECK_NEAR(s.ratio, exp(0.125) + exp(-0.125), 1e-12);
    CHECK_NEAR(s.ratio_max, exp(0.125), 1e-12);
    CHECK_NEAR(s.objective, 0.5 * exp(-0.125) - 0.5 * exp(0.125), 1e-12); /* none is clipped */
    CHECK_NEAR(d[0][2], 0.5 / 6, 1e-7); /* outside of the span: the slope of the KL term alone */
    CHECK_NEAR(d[1][0], 0.5 / 6, 1e-7);
    p.chosen = (ares_vapor_text){ 3, 0, 2, log_prob, ref, NULL, NULL };
    p.rejected = (ares_vapor_text){ 3, 1, 3, log_prob, ref, NULL, NULL };
    ares_vapor_sums_init(&s);
    REQUIRE_OK(ares_vapor_loss(&cfg, ares_kl_find("kl"), &p, 1, NULL, &s));
    CHECK_NEAR(s.usable, 1, 0);
    CHECK_NEAR(p.margin, 0.25, 1e-12);
    CHECK_NEAR(p.term, exp(0.5 * 0.25), 1e-12);
}

/*
 * The sign of what a pair learns. The right answer is likelier than under the reference, the wrong
 * one is as it was: within the clip the chosen answer gains, beyond it only the wrong answer's
 * negative term is left, and the chosen answer loses.
 */
TEST(a_clipped_right_answer_turns_the_pair_round_and_a_metric_says_so)
{
    static const float gained[1] = { -1 }, same[1] = { -1.5F }, ref[1] = { -1.5F };
    static const struct {
        double epsilon_high, sum_u;
    } cases[] = { { 4, 0.5 * 1.6487212707001282 - 0.5 }, { 0.2, -0.5 } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const ares_vapor_config cfg = { .beta = 0.5,
                                        .epsilon_low = 0.2,
                                        .epsilon_high = cases[i].epsilon_high,
                                        .log_ratio_clamp = 20,
                                        .ratio_reduction = "sum",
                                        .failure_ratio = "neutral" };
        float won[1] = { 0 }, lost[1] = { 0 };
        ares_vapor_completion_args c[2] = {
            { .text = { 1, 0, 1, gained, ref, NULL, NULL }, .reward = 1 },
            { .text = { 1, 0, 1, same, ref, NULL, NULL }, .reward = 0 },
        };
        ares_vapor_prompt p[2] = { { .n = 2,
                                     .completions = c,
                                     .chosen = { 1, 0, 1, same, ref, won, NULL },
                                     .rejected = { 1, 0, 1, same, ref, lost, NULL } },
                                   { .n = 2, .completions = c } }; /* without a pair */
        ares_vapor_sums s;
        ares_vapor_sums_init(&s);
        REQUIRE_OK(ares_vapor_loss(&cfg, ares_kl_find("kl"), p, 2, NULL, &s));
        CHECK_NEAR(s.u, 0.5 * cases[i].sum_u, 1e-7);
        CHECK_NEAR(won[0], -0.5 * cases[i].sum_u / 4, 1e-7);
        CHECK_NEAR(lost[0], 0.5 * cases[i].sum_u / 4, 1e-7);
        ares_metrics *m = ares_metrics_new();
        ares_vapor_metrics(&cfg, &s, m);
        double mean = NAN;
        ares_metrics_get(m, "vapor/pref_grad_coef_mean", &mean);
        CHECK_NEAR(mean, 0.5 * cases[i].sum_u, 1e-7); /* of the one pair there is */
        ares_metrics_free(m);
    }
}

/*
 * Two prompts: log-ratios of whole answers 0.25 and -0.25, and a pair of which one answer is no
 * number. The loss is in the log-ratios' difference, over all tokens, divided by the pairs there
 * are, and needs no span.
 */
TEST(dpo_learns_from_whole_answers_and_leaves_out_what_is_no_number)
{
    static const float log_prob[3] = { -1, -2, -3 }, ref[3] = { -1.5F, -1.75F, -3 },
                       broken[3] = { -1, NAN, -3 };
    ares_vapor_config cfg = { .beta = 0,
                              .dpo_coef = 2,
                              .dpo_beta = 0.5,
                              .epsilon_low = 0.2,
                              .epsilon_high = 0.2,
                              .log_ratio_clamp = 20,
                              .ratio_reduction = "mean",
                              .failure_ratio = "neutral",
                              .preference_detach = true };
    float d[4][3] = { { 0 } };
    ares_vapor_completion_args c[3] = {
        { .text = { 3, 0, 2, log_prob, ref, NULL, NULL }, .reward = 1 },
        { .text = { 3, 0, 2, log_prob, ref, NULL, NULL }, .reward = 1 },
        { .text = { 3, 0, 2, log_prob, ref, NULL, NULL }, .reward = 1 }
    };
    ares_vapor_prompt p[4] = { { .n = 1,
                                 .completions = c,
                                 .chosen = { 3, 0, 0, log_prob, ref, d[0], NULL },
                                 .rejected = { 3, 0, 0, ref, log_prob, d[1], NULL } },
                               { .n = 1,
                                 .completions = c + 1,
                                 .chosen = { 3, 0, 0, log_prob, ref, d[2], NULL },
                                 .rejected = { 3, 0, 0, broken, ref, d[3], NULL } },
                               { .n = 1, .completions = c + 2 },
                               { .n = 0,
                                 .chosen = { 3, 0, 0, log_prob, ref, d[2], NULL },
                                 .rejected = { 3, 0, 0, ref, log_prob, d[3], NULL } } };
    ares_vapor_sums s;
    ares_vapor_sums_init(&s);
    REQUIRE_OK(ares_vapor_loss(&cfg, ares_kl_find("kl"), p, 4, NULL, &s));
    CHECK_NEAR(s.dpo_pairs, 1, 0);
    CHECK_NEAR(s.nonfinite, 1, 0);
    CHECK_NEAR(s.dpo_margin, 0.5, 1e-12);
    CHECK_NEAR(s.dpo_preferred, 1, 0);
    CHECK_NEAR(s.dpo, log(1 + exp(-0.25)), 1e-12);
    double slope = -2 * 0.5 / (1 + exp(0.25)) / 2; /* two pairs; dpo_coef 2 */
    for (int t = 0; t < 3; t++) {
        CHECK_NEAR(d[0][t], slope, 1e-7);
        CHECK_NEAR(d[1][t], -slope, 1e-7);
        CHECK(d[2][t] == 0 && d[3][t] == 0);
    }
    double base = d[0][0];
    REQUIRE_OK(ares_vapor_loss(&cfg, ares_kl_find("kl"), p, 4, (double[]){ 3, 9, 8 }, &s));
    CHECK_NEAR(d[0][0] - base, slope / 4, 1e-7); /* the pairs of all ranks */
}

static void check_metric(const ares_metrics *m, const char *section, const char *name, double want)
{
    char key[60];
    double value = NAN;
    snprintf(key, sizeof key, "%s/%s", section, name);
    ares_metrics_get(m, key, &value);
    CHECK_MSG(value == want, "%s is %g, expected %g", key, value, want);
}

TEST(metrics_of_vapor_are_means_of_its_sums)
{
    static const ares_vapor_config cfg = {
        .kl_coef = 0.5, .beta = 0.5, .dpo_coef = 0.25, .dpo_beta = 2
    };
    const ares_vapor_sums s = { .prompts = 4,
                                .completions = 8,
                                .tokens = 16,
                                .objective = -2,
                                .kl = 4,
                                .reward = 6,
                                .ratio = 12,
                                .ratio_max = 3,
                                .clip_low = 1,
                                .clip_high = 2,
                                .saturated = 3,
                                .extracted = 7,
                                .usable = 2,
                                .margin = 0.5,
                                .preferred = 1,
                                .term = 6,
                                .u_abs = 3,
                                .u = -1,
                                .equal_groups = 1,
                                .nonfinite = 5,
                                .reward_square = 8,
                                .span_tokens = 21,
                                .lost = 1,
                                .log_ratio = 2,
                                .log_ratio_max = 4,
                                .chosen = 3,
                                .rejected = 1,
                                .dpo_pairs = 2,
                                .dpo = 3,
                                .dpo_margin = 0.5,
                                .dpo_preferred = 1 };
    const struct {
        const char *name;
        double value;
    } want[] = { { "reward_mean", 0.75 },
                 { "extract_success_rate", 0.875 },
                 { "pref_success_rate", 0.5 },
                 { "pref_margin", 0.25 },
                 { "pref_accuracy", 0.5 },
                 { "pref_term_mean", 1.5 },
                 { "hybrid_ratio_mean", 1.5 },
                 { "hybrid_ratio_max", 3 },
                 { "clip_frac_low", 0.125 },
                 { "clip_frac_high", 0.25 },
                 { "kl", 0.25 },
                 { "policy_loss", 0.25 },
                 { "loss", 0.75 },
                 { "dpo_loss", 1.5 },
                 { "dpo_margin", 0.5 },
                 { "dpo_accuracy", 0.5 },
                 { "zero_advantage_group_rate", 0.25 },
                 { "saturated_frac", 0.375 },
                 { "nonfinite", 5 },
                 { "pref_grad_coef_absmean", 0.75 },
                 { "pref_grad_coef_mean", -0.5 },
                 { "reward_std", sqrt(3.5 / 7) },
                 { "span_tokens_mean", 3 },
                 { "map_failed_rate", 0.125 },
                 { "verifiable_log_ratio_mean", 0.25 },
                 { "verifiable_log_ratio_absmax", 4 },
                 { "chosen_logratio", 0.75 },
                 { "rejected_logratio", 0.25 } };
    ares_metrics *m = ares_metrics_new();
    ares_vapor_metrics(&cfg, &s, m);
    CHECK_EQ(ares_metrics_count(m), ARES_COUNT(want));
    for (int i = 0; i < ARES_COUNT(want); i++)
        check_metric(m, "vapor", want[i].name, want[i].value);
    ares_metrics_free(m);
}

/* ---------------------------------------------------------------- whole losses */

enum { ROWS = 12, TOKENS = ROWS * 9 };
typedef struct state {
    ares_loss_config cfg;
    ares_batch b;
    float log_prob[TOKENS], d[TOKENS], weight[TOKENS], is[TOKENS];
    bool corrected; /* by is */
    ares_loss_sums sums;
} state;

static void state_open(state *s)
{
    ares_rng_key key = ares_rng_root(5, ARES_RNG_TEST);
    *s = (state){ .cfg = { .clip_ratio_low = 0.2,
                           .clip_ratio_high = 0.28,
                           .clip_ratio_dual = NAN,
                           ARES_LOSS_DEFAULTS } };
    make_batch(&s->b, ROWS / 4, 4, (const int64_t[]){ 9, 3, 7 }, 3);
    ARES_PUT(&s->b, old_log_probs), ARES_PUT(&s->b, advantages), ARES_PUT(&s->b, rollout_log_probs);
    for (int64_t t = 0; t < s->b.tokens; t++) {
        uint64_t i = (uint64_t)t * 8;
        s->log_prob[t] = -(float)fabs(ares_rng_normal(key, i)) * 2;
        s->b.old_log_probs[t] = s->log_prob[t] + (float)ares_rng_normal(key, i + 1) * 0.3f;
        s->b.rollout_log_probs[t] = s->b.old_log_probs[t] + (float)ares_rng_normal(key, i + 2);
        s->b.advantages[t] = (float)ares_rng_normal(key, i + 3);
        s->weight[t] = 1.0f / 64;
        s->b.response_mask[t] = t % 5 != 3;
    }
}

static int state_run(state *s, const char *name, int64_t row, int64_t end, ares_world *w)
{
    int64_t t = s->b.row_start[row];
    ares_loss_sums_init(&s->sums);
    memset(s->d + t, 0, (size_t)(s->b.row_start[end] - t) * sizeof *s->d);
    ares_loss_args a = { .cfg = &s->cfg,
                         .n = s->b.row_start[end] - t,
                         .log_prob = s->log_prob + t,
                         .old_log_prob = s->b.old_log_probs + t,
                         .advantage = s->b.advantages + t,
                         .weight = s->weight + t,
                         .rollout_weight = s->corrected ? s->is + t : NULL,
                         .mask = s->b.response_mask + t,
                         .d_log_prob = s->d + t,
                         .sums = &s->sums,
                         .row = row,
                         .end = end,
                         .first = t,
                         .row_start = s->b.row_start,
                         .samples = s->b.samples,
                         .world = w,
                         .key = ares_rng_root(3, ARES_RNG_LOSS) };
    return on_host_loss(ares_loss_find(name), &a, NULL);
}

/*
 * The loss moves as its gradient says: one log-prob a little up, a little down, in the product's
 * own f32 arrays.
 */
TEST(gradients_of_row_losses_are_those_of_the_whole_loss)
{
    static const char *const names[] = { "gspo", "gmpo" };
    for (int i = 0; i < ARES_COUNT(names); i++) {
        state s;
        int checked = 0;
        state_open(&s);
        CHECK_OK(state_run(&s, names[i], 0, ROWS, NULL));
        float d[TOKENS];
        memcpy(d, s.d, sizeof d);
        double mid = s.sums.loss;
        for (int64_t t = 0; t < s.b.tokens; t++) {
            float x = s.log_prob[t], h = 0x1p-10f;
            s.log_prob[t] = x + h;
            double hp = (double)s.log_prob[t] - (double)x;
            CHECK_OK(state_run(&s, names[i], 0, ROWS, NULL));
            double up = s.sums.loss - mid;
            s.log_prob[t] = x - h;
            double hm = (double)x - (double)s.log_prob[t];
            CHECK_OK(state_run(&s, names[i], 0, ROWS, NULL));
            double down = mid - s.sums.loss;
            s.log_prob[t] = x;
            /* a clip's corner */
            if (fabs(up / hp - down / hm) > 1e-4 + 0.01 * fabs(up / hp)) continue;
            checked++;
            CHECK_NEAR(d[t], (up + down) / (hp + hm), 1e-6 + 1e-4 * fabs((double)d[t]));
        }
        CHECK(checked > s.b.tokens * 3 / 4);
        ares_batch_fini(&s.b);
    }
}

TEST(clip_cov_leaves_out_as_many_as_its_share_says_by_lots_of_the_tokens_own)
{
    state s;
    state_open(&s);
    s.cfg.clip_cov_lb = 0.1;
    s.cfg.clip_cov_ratio = 0.1;
    CHECK_OK(state_run(&s, "clip_cov", 0, ROWS, NULL));
    double tokens = s.sums.tokens;
    CHECK_NEAR(s.sums.clip_high, floor(0.1 * tokens), 0);
    s.cfg.clip_cov_ratio = 1e-9;
    CHECK_OK(state_run(&s, "clip_cov", 0, ROWS, NULL));
    CHECK_NEAR(s.sums.clip_high, 1, 0); /* at least one */
    s.cfg.clip_cov_lb = 1e6;
    s.cfg.clip_cov_ub = 1e7;
    CHECK_OK(state_run(&s, "clip_cov", 0, ROWS, NULL));
    CHECK_NEAR(s.sums.clip_high, 0, 0); /* nobody is eligible */
    ares_batch_fini(&s.b);
}

TEST(kl_cov_takes_exactly_its_share_among_equals_too)
{
    state s;
    state_open(&s);
    for (int64_t t = 0; t < s.b.tokens; t++) s.b.advantages[t] = 1; /* all covariances are 0 */
    for (int k = 0; k < 4; k++) {
        s.cfg.kl_cov_ratio = k * 0.21;
        CHECK_OK(state_run(&s, "kl_cov", 0, ROWS, NULL));
        CHECK_NEAR(s.sums.clip_high, k ? floor(k * 0.21 * s.sums.tokens) : 0, 0);
    }
    ares_batch_fini(&s.b);
}

TEST(the_kth_smallest_key_is_found)
{
    uint64_t key[100], threshold;
    for (int i = 0; i < 100; i++)
        key[i] = ares_rng_u64(ares_rng_root(1, ARES_RNG_TEST), (uint64_t)i) >> (i % 60);
    for (int k = 1; k < 100; k += 7) {
        CHECK_OK(loss_select(key, 100, k, NULL, &threshold));
        int below = 0, equal = 0;
        for (int i = 0; i < 100; i++) below += key[i] < threshold, equal += key[i] == threshold;
        CHECK(below < k && below + equal >= k);
    }
    CHECK_OK(loss_select(key, 100, 100, NULL, &threshold));
    CHECK(threshold == UINT64_MAX);
    static const double rising[] = {
        -INFINITY, -1e300, -1, -1e-300, 0, 1e-300, 1, 1e300, INFINITY
    };
    for (int i = 1; i < ARES_COUNT(rising); i++)
        CHECK(loss_ordered(rising[i - 1]) < loss_ordered(rising[i]));
    CHECK(loss_ordered(-0.0) == loss_ordered(0.0));
}

TEST_MPI(selections_over_ranks_are_those_of_one)
{
    if (!test_as_ranks(3, "selections_over_ranks_are_those_of_one")) return;
    ares_world *w = NULL;
    REQUIRE_OK(ares_world_open(&w));
    static const char *const names[] = { "clip_cov", "kl_cov" };
    for (int i = 0; i < 2; i++) {
        state s;
        float alone[TOKENS];
        state_open(&s);
        s.cfg.clip_cov_lb = 0.1;
        s.cfg.clip_cov_ratio = s.cfg.kl_cov_ratio = 0.15;
        CHECK_OK(state_run(&s, names[i], 0, ROWS, NULL));
        memcpy(alone, s.d, sizeof alone);
        int64_t row = ares_world_rank(w) * 4, end = row + 4;
        CHECK_OK(state_run(&s, names[i], row, end, w));
        CHECK_MEM(s.d + s.b.row_start[row], alone + s.b.row_start[row],
                  (size_t)(s.b.row_start[end] - s.b.row_start[row]) * sizeof(float));
        ares_batch_fini(&s.b);
    }
    ares_world_close(w);
}

TEST(weights_of_another_sampler_are_cut_off_or_masked)
{
    state s;
    state_open(&s);
    ares_batch *b = &s.b;
    s.cfg.rollout_is = "token";
    int64_t cut = 0, tokens = 0;
    CHECK_OK(correction_weights(&s.cfg, b, 0, ROWS, s.is, &cut));
    for (int64_t t = 0; t < b->tokens; t++) {
        double ratio = exp((double)b->old_log_probs[t] - (double)b->rollout_log_probs[t]);
        CHECK_NEAR(s.is[t], b->response_mask[t] ? fmin(ratio, 2) : 0, 1e-6);
    }
    for (int64_t t = 0; t < b->tokens; t++) tokens += b->response_mask[t];
    CHECK(cut > 0 && cut < tokens);
    s.cfg.rollout_is_mode = "mask";
    CHECK_OK(correction_weights(&s.cfg, b, 0, ROWS, s.is, NULL));
    for (int64_t t = 0; t < b->tokens; t++) {
        double ratio = exp((double)b->old_log_probs[t] - (double)b->rollout_log_probs[t]);
        CHECK_NEAR(s.is[t], b->response_mask[t] && ratio >= 0.5 && ratio <= 2 ? ratio : 0, 1e-6);
    }
    s.cfg.rollout_is_mode = "truncate";
    s.cfg.rollout_is_threshold_lower = 0.9; /* slime's tis_clip_low */
    CHECK_OK(correction_weights(&s.cfg, b, 0, ROWS, s.is, NULL));
    for (int64_t t = 0; t < b->tokens; t++) {
        double ratio = exp((double)b->old_log_probs[t] - (double)b->rollout_log_probs[t]);
        CHECK_NEAR(s.is[t], b->response_mask[t] ? fmax(fmin(ratio, 2), 0.9) : 0, 1e-6);
    }
    s.cfg.rollout_is_threshold_lower = NAN;
    s.cfg.rollout_is = "sequence";
    CHECK_OK(correction_weights(&s.cfg, b, 0, ROWS, s.is, NULL));
    double sum = 0;
    for (int64_t t = 0; t < b->row_start[1]; t++)
        if (b->response_mask[t])
            sum += (double)b->old_log_probs[t] - (double)b->rollout_log_probs[t];
    CHECK_NEAR(s.is[0], fmin(exp(sum), 2), 1e-6);
    CHECK(s.is[1] == s.is[0] && s.is[3] == 0);
    b->rollout_log_probs[b->row_start[2] + 2] = -INFINITY;
    b->response_mask[b->row_start[2] + 2] = 1;
    CHECK_FAIL(correction_weights(&s.cfg, b, 0, ROWS, s.is, NULL), ARES_ENUMERIC, "row 2, token 2");
    ares_batch_fini(b);
}

/* A sampler that is the trainer. */
TEST(weights_of_1_change_no_bit_of_any_loss)
{
    static const char *const ways[] = { "token", "sequence", "geometric" };
    int n;
    const ares_loss *const *all = loss_list(&n);
    for (int i = 0; i < n * ARES_COUNT(ways); i++) {
        const ares_loss *loss = all[i / ARES_COUNT(ways)];
        state plain, s;
        if (loss->flags & ARES_LOSS_PAIRS) continue;
        state_open(&plain), state_open(&s);
        memcpy(s.b.rollout_log_probs, s.b.old_log_probs, (size_t)s.b.tokens * sizeof(float));
        s.cfg.rollout_is = ways[i % ARES_COUNT(ways)];
        CHECK_OK(correction_weights(&s.cfg, &s.b, 0, ROWS, s.is, NULL));
        s.corrected = true;
        CHECK_OK(state_run(&plain, loss->name, 0, ROWS, NULL));
        CHECK_OK(state_run(&s, loss->name, 0, ROWS, NULL));
        CHECK_MSG(s.sums.loss == plain.sums.loss && memcmp(s.d, plain.d, sizeof s.d) == 0,
                  "%s, %s: loss %.17g, without weights %.17g", loss->name, s.cfg.rollout_is,
                  s.sums.loss, plain.sums.loss);
        ares_batch_fini(&plain.b), ares_batch_fini(&s.b);
    }
}

TEST(every_loss_names_the_place_of_what_is_no_number)
{
    int n;
    const ares_loss *const *all = loss_list(&n);
    for (int i = 0; i < n; i++) {
        state s;
        if (all[i]->flags & ARES_LOSS_PAIRS) continue;
        state_open(&s);
        s.log_prob[s.b.row_start[5] + 1] = NAN;
        s.b.response_mask[s.b.row_start[5] + 1] = 1;
        CHECK_FAIL(state_run(&s, all[i]->name, 0, ROWS, NULL), ARES_ENUMERIC,
                   "log_prob of row 5, token 1 is nan");
        s.log_prob[s.b.row_start[5] + 1] = 0;
        s.b.response_mask[s.b.row_start[6]] = 7;
        CHECK_FAIL(state_run(&s, all[i]->name, 0, ROWS, NULL), ARES_ENUMERIC,
                   "mask of row 6, token 0 is 7");
        memset(s.b.response_mask, 0, (size_t)s.b.tokens);
        CHECK_OK(state_run(&s, all[i]->name, 0, ROWS, NULL)); /* all masked: nothing */
        CHECK(s.sums.loss == 0 && s.sums.tokens == 0);
        ares_batch_fini(&s.b);
    }
}

TEST(a_pass_counts_bins_estimators_and_entropies_of_right_and_wrong_answers)
{
    state s;
    float entropy[TOKENS];
    state_open(&s);
    for (int64_t t = 0; t < s.b.tokens; t++) entropy[t] = t < s.b.row_start[2] ? 1 : 3;
    for (int64_t r = 0; r < ROWS; r++) s.b.samples[r].accuracy = r < 2 ? 1 : r < 4 ? 0 : NAN;
    CHECK_OK(state_run(&s, "default", 0, ROWS, NULL));
    ares_loss_args a = { .cfg = &s.cfg,
                         .n = s.b.tokens,
                         .log_prob = s.log_prob,
                         .weight = s.weight,
                         .mask = s.b.response_mask,
                         .entropy = entropy,
                         .d_log_prob = s.d,
                         .sums = &s.sums,
                         .end = ROWS,
                         .row_start = s.b.row_start,
                         .samples = s.b.samples };
    CHECK_OK(loss_terms(&a, NULL));
    double counted = 0, k2 = 0, k3 = 0;
    for (int i = 0; i < ARES_LOSS_BINS; i++) counted += s.sums.bins[i];
    CHECK_NEAR(counted, s.sums.tokens, 0);
    for (int64_t t = 0; t < s.b.tokens; t++) {
        double x = (double)s.log_prob[t] - (double)s.b.old_log_probs[t];
        if (!s.b.response_mask[t]) continue;
        k2 += x * x / 2;
        k3 += exp(x) - 1 - x;
    }
    CHECK_NEAR(s.sums.k2, k2, 1e-9);
    CHECK_NEAR(s.sums.k3, k3, 1e-9);
    CHECK_NEAR(s.sums.entropy_right / s.sums.tokens_right, 1, 0);
    CHECK_NEAR(s.sums.entropy_wrong / s.sums.tokens_wrong, 3, 0);
    CHECK(s.sums.tokens_right + s.sums.tokens_wrong < s.sums.tokens);
    CHECK_NEAR(s.sums.entropy_tokens, s.sums.tokens, 0);
    double first = s.sums.tokens_right; /* of 1, the others of 3 */
    CHECK_NEAR(s.sums.entropy_plain, first + 3 * (s.sums.tokens - first), 0);
    CHECK_NEAR(s.sums.entropy, s.sums.entropy_plain / 64, 1e-12);
    ares_batch_fini(&s.b);
}

TEST(metrics_of_a_loss_are_means_of_its_sums)
{
    const ares_loss_sums s = { .kl = 100, /* of the loss */
                               .entropy = 100,
                               .kl_plain = 3,
                               .kl_tokens = 4,
                               .kl_clamped = 1,
                               .entropy_plain = 5,
                               .entropy_tokens = 10,
                               .tokens = 8,
                               .clip_high = 1,
                               .clip_low = 2,
                               .neg_log_ratio = 3,
                               .k2 = 4,
                               .k3 = 5,
                               .ratio = 6,
                               .ratio_clipped = 7,
                               .ratio_off = 9,
                               .loss_abs = 10,
                               .saturated = 11,
                               .entropy_right = 3,
                               .tokens_right = 2,
                               .entropy_wrong = 7,
                               .tokens_wrong = 4,
                               .ratio_min = 0.5,
                               .ratio_max = 2 };
    static const struct {
        const char *name;
        double value;
    } want[] = { { "entropy_correct", 1.5 },
                 { "entropy_wrong", 1.75 },
                 { "entropy", 0.5 },
                 { "kl", 0.75 },
                 { "kl_clamped_frac", 0.25 },
                 { "policy_loss_abs", 1.25 },
                 { "pg_clipfrac_higher", 0.125 },
                 { "pg_clipfrac_lower", 0.25 },
                 { "ppo_kl", 0.375 },
                 { "ppo_kl_k2", 0.5 },
                 { "ppo_kl_k3", 0.625 },
                 { "ratio_mean", 0.75 },
                 { "ratio_max", 2 },
                 { "ratio_min", 0.5 },
                 { "clipped_ratio", 0.875 },
                 { "ratio_abs", 1.125 },
                 { "ratio_saturated", 1.375 } };
    ares_metrics *m = ares_metrics_new();
    ares_loss_metrics(&s, m);
    CHECK_EQ(ares_metrics_count(m), ARES_COUNT(want));
    for (int i = 0; i < ARES_COUNT(want); i++)
        check_metric(m, "actor", want[i].name, want[i].value);
    ares_metrics_free(m);
}

TEST(bins_of_log_ratios_have_even_edges_from_minus_2_to_2)
{
    for (int i = 0; i <= ARES_LOSS_BINS; i++)
        CHECK_NEAR(ares_loss_bin_edge(i), -2 + 4.0 * i / ARES_LOSS_BINS, 0);
}

/* ---------------------------------------------------------------- VAPOR */

TEST(a_span_that_is_no_number_is_neutral_and_counted)
{
    float fine[3] = { -1, -2, -3 }, ref[3] = { -1.5f, -2, -2.5f }, broken[3] = { -1, NAN, -3 },
          d[2][3] = { { 0 }, { 0 } };
    ares_vapor_completion_args c[2] = { { .text = { 3, 0, 2, fine, ref, d[0], NULL }, .reward = 1 },
                                        { .text = { 3, 0, 2, broken, ref, d[1], NULL },
                                          .reward = 0 } };
    ares_vapor_prompt p = { .n = 2, .completions = c };
    ares_vapor_config cfg = { .beta = 0.1,
                              .epsilon_low = 0.2,
                              .epsilon_high = 0.8,
                              .log_ratio_clamp = 20,
                              .ratio_reduction = "sum",
                              .failure_ratio = "neutral" };
    ares_vapor_sums s;
    ares_vapor_sums_init(&s);
    CHECK_OK(ares_vapor_loss(&cfg, ares_kl_find("k3"), &p, 1, NULL, &s));
    CHECK_NEAR(c[1].ratio, 1, 0);
    CHECK(d[1][0] == 0 && d[1][1] == 0 && s.nonfinite >= 1 && isfinite(s.objective) &&
          isfinite(s.kl));
    CHECK_NEAR(d[0][0], -0.5 * exp(0.5) / 2, 1e-6);
    CHECK_NEAR(d[0][1], d[0][0], 0);
    cfg.ratio_reduction = "mean"; /* half the log-ratio, and each token pulls half as much */
    d[0][0] = 0;
    CHECK_OK(ares_vapor_loss(&cfg, ares_kl_find("k3"), &p, 1, NULL, &s));
    CHECK_NEAR(d[0][0], -0.5 * exp(0.25) / 4, 1e-6);
    CHECK_FAIL(ares_vapor_loss(&cfg, ares_kl_find("full"), &p, 1, NULL, &s), ARES_EUNSUPPORTED,
               "needs the logits of both models");
    CHECK_FAIL(ares_loss_find("vapor")->compute(&(ares_loss_args){ 0 }), ARES_EUNSUPPORTED,
               "chosen and rejected");
}

TEST(a_detached_preference_and_a_failure_that_counts_in_full)
{
    float now[2] = { -1, -1 }, ref[2] = { -1.1f, -1 }, d[2][2] = { { 0 }, { 0 } },
          pair[2] = { -1, -2 }, pair_ref[2] = { -1, -1 }, d_pair[2][2] = { { 0 }, { 0 } };
    for (int detach = 0; detach < 2; detach++) {
        ares_vapor_completion_args c[2] = {
            { .text = { 2, 0, 2, now, ref, d[0], NULL }, .reward = 1 },
            { .text = { 2, 0, 0, now, ref, d[1], NULL }, .reward = 5 }
        };
        ares_vapor_prompt p = { .n = 2,
                                .completions = c,
                                .chosen = { 2, 0, 1, pair, pair_ref, d_pair[0], NULL },
                                .rejected = { 2, 1, 2, pair, pair_ref, d_pair[1], NULL } };
        ares_vapor_config cfg = { .beta = 0.05,
                                  .epsilon_low = 0.2,
                                  .epsilon_high = 0.8,
                                  .log_ratio_clamp = 20,
                                  .preference_detach = detach,
                                  .ratio_reduction = "sum",
                                  .failure_ratio = detach ? "full" : "neutral" };
        ares_vapor_sums s;
        ares_vapor_sums_init(&s);
        memset(d, 0, sizeof d), memset(d_pair, 0, sizeof d_pair);
        CHECK_OK(ares_vapor_loss(&cfg, ares_kl_find("k3"), &p, 1, NULL, &s));
        CHECK(c[1].reward_used == 0); /* no span, no reward */
        CHECK(detach ? d_pair[0][0] == 0 : d_pair[0][0] < 0);
        CHECK(d_pair[0][0] == -d_pair[1][1]);
        CHECK(detach ? d[1][0] > 0 : d[1][0] == 0);
    }
}

/* A prompt of one completion, and what is said of its stored pair. */
static double pair_metrics(const ares_vapor_text *chosen, const ares_vapor_text *rejected, int n,
                           double *margins, ares_metrics *m)
{
    float now[2] = { -1, -1 }, ref[2] = { -1.1f, -1 };
    ares_vapor_config cfg = { .beta = 0.5,
                              .epsilon_low = 0.2,
                              .epsilon_high = 0.8,
                              .log_ratio_clamp = 20,
                              .ratio_reduction = "sum",
                              .failure_ratio = "neutral" };
    ares_vapor_sums s;
    ares_vapor_sums_init(&s);
    for (int i = 0; i < n; i++) {
        ares_vapor_completion_args c = { .text = { 2, 0, 2, now, ref, NULL, NULL }, .reward = 1 };
        ares_vapor_prompt p = {
            .n = 1, .completions = &c, .chosen = chosen[i], .rejected = rejected[i]
        };
        CHECK_OK(ares_vapor_loss(&cfg, ares_kl_find("k3"), &p, 1, NULL, &s));
        CHECK(p.usable || (p.term == 1 && fabs(c.ratio - exp(0.1)) < 1e-6));
        margins[i] = p.margin;
    }
    ares_vapor_metrics(&cfg, &s, m);
    return s.margin;
}

TEST(a_preference_without_its_pair_has_no_difference)
{
    float now[2] = { -1, -3 }, ref[2] = { -1.5f, -3 }, broken[2] = { NAN, -1 };
    const ares_vapor_text none = { 0 }, pair = { 2, 0, 1, now, ref, NULL, NULL },
                          without_span = { 2, 0, 0, now, ref, NULL, NULL },
                          level = { 2, 1, 2, now, ref, NULL, NULL },
                          no_number = { 2, 0, 1, broken, ref, NULL, NULL };
    const ares_vapor_text chosen[] = { none, pair, none, without_span, no_number, pair },
                          rejected[] = { none, none, pair, level, level, level };
    double margins[6], value;
    ares_metrics *m = ares_metrics_new();
    pair_metrics(chosen, rejected, 5, margins, m);
    for (int i = 0; i < 5; i++) CHECK_MSG(isnan(margins[i]), "prompt %d: %g", i, margins[i]);
    CHECK(!ares_metrics_get(m, "vapor/pref_margin", &value) &&
          !ares_metrics_get(m, "vapor/pref_accuracy", &value));
    CHECK(ares_metrics_get(m, "vapor/pref_success_rate", &value) && value == 0);
    CHECK(ares_metrics_get(m, "vapor/pref_term_mean", &value) && value == 1);
    ares_metrics_free(m);
    m = ares_metrics_new(); /* the mean is over the pairs there are */
    CHECK_NEAR(pair_metrics(chosen, rejected, 6, margins, m), 0.5, 0);
    CHECK_NEAR(margins[5], 0.5, 0);
    CHECK(ares_metrics_get(m, "vapor/pref_margin", &value) && value == 0.5);
    CHECK(ares_metrics_get(m, "vapor/pref_accuracy", &value) && value == 1);
    ares_metrics_free(m);
}
