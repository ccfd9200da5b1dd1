/*
 * Estimators of KL. Values and slopes from tests/golden/aepo.json, cases kl_kl, kl_abs,
 * kl_low_var_kl (verl's code).
 */
#include "test.h"

#include <math.h>
#include <string.h>

#include "ares/algo.h"
#include "ares/algo_control.h"
#include "ares/algo_loss.h"
#include "loss/loss.h"

TEST(estimators_agree_with_the_reference)
{
    static const double log_probs[] = { -1.0, -0.2, -3.0, -30.0, -1.0 },
                        ref[] = { -1.3, -2.0, -0.5, -2.0, -40.0 };
    static const struct {
        const char *name;
        double value[5], slope[5];
    } cases[] = {
        { "kl", { 0.3, 1.8, -2.5, -28.0, 39.0 }, { 1, 1, 1, 1, 1 } },
        { "abs", { 0.3, 1.8, 2.5, 28.0, 39.0 }, { 1, 1, -1, -1, 1 } },
        { "low_var_kl",
          { 0.0408182206817, 0.965298888222, 8.6824939607, 10.0, 10.0 },
          { 0.259181779318, 0.834701111778, -11.1824939607, 0, 0 } },
        { "mse", { 0.045, 1.62, 3.125, 392, 760.5 }, { 0.3, 1.8, -2.5, -28, 39 } },
    };
    for (int c = 0; c < ARES_COUNT(cases); c++) {
        const ares_kl *kl = ares_kl_find(cases[c].name);
        if (!CHECK(kl != NULL)) continue;
        CHECK_STR(kl->name, cases[c].name);
        for (int i = 0; i < 5; i++) {
            CHECK_NEAR(kl->value(log_probs[i] - ref[i]), cases[c].value[i], 1e-10);
            CHECK_NEAR(kl->derivative(log_probs[i] - ref[i]), cases[c].slope[i], 1e-10);
        }
    }
}

TEST(slopes_are_those_of_the_values)
{
    int n;
    const char *const *names = ares_kl_names(&n);
    CHECK_EQ(n, 9);
    for (int k = 0; k < n; k++) {
        const ares_kl *kl = ares_kl_find(names[k]);
        if (!kl->value || strchr(kl->name, '+')) continue; /* theirs are those of k2 */
        /* never within h of 0, of a clamp at +-20, or of k3's at 10 */
        for (double x = -25.003; x < 25; x += 0.0317) {
            double h = 1e-6, slope = (kl->value(x + h) - kl->value(x - h)) / (2 * h);
            if (!CHECK_MSG(fabs(slope - kl->derivative(x)) <= 1e-6 * (1 + fabs(slope)),
                           "%s at %g: %g, by differences %g", names[k], x, kl->derivative(x),
                           slope))
                return;
        }
    }
}

/* Bit for bit; k3's value is clamped below -3.8 and beyond +-20, nowhere else. */
TEST(value_and_slope_at_once_are_those_by_themselves)
{
    int n;
    const char *const *names = ares_kl_names(&n);
    for (int k = 0; k < n; k++) {
        const ares_kl *kl = ares_kl_find(names[k]);
        bool k3 = strncmp(kl->name, "low_var_kl", 10) == 0;
        for (double x = -25.003; kl->value && x < 25; x += 0.0317) {
            double slope;
            bool clamped, beyond = x > 20 || x < -20 || exp(-x) + x - 1 > 10;
            if (!CHECK_MSG(kl->both(x, &slope, &clamped) == kl->value(x) &&
                               slope == kl->derivative(x) && clamped == (k3 && beyond),
                           "%s at %g", names[k], x))
                return;
        }
    }
}

TEST(equal_log_probs_are_no_distance_and_a_nan_stays_one)
{
    int n;
    const char *const *names = ares_kl_names(&n);
    for (int k = 0; k < n; k++) {
        const ares_kl *kl = ares_kl_find(names[k]);
        if (!kl->value) continue;
        CHECK_NEAR(kl->value(0), 0, 0);
        if (strcmp(kl->name, "kl") != 0) CHECK_NEAR(kl->derivative(0), 0, 0);
        CHECK_MSG(isnan(kl->value(NAN)), "%s swallows a NaN", names[k]);
    }
    CHECK(ares_kl_find("k4") == NULL);
    CHECK_CONTAINS(ares_error_message(), "kl, abs, mse, low_var_kl, kl+");
}

TEST(straight_through_forms_have_a_value_of_their_own_and_the_slope_of_k2)
{
    static const struct {
        const char *name, *value;
    } forms[] = { { "kl+", "kl" },         { "abs+", "abs" },
                  { "mse+", "mse" },       { "low_var_kl+", "low_var_kl" },
                  { "low-var-kl+", "k3" }, { "k1+", "k1" } };
    for (int f = 0; f < ARES_COUNT(forms); f++)
        for (double x = -25; x < 25; x += 0.37) {
            CHECK_NEAR(ares_kl_find(forms[f].name)->value(x),
                       ares_kl_find(forms[f].value)->value(x), 0);
            CHECK_NEAR(ares_kl_find(forms[f].name)->derivative(x), x, 0);
        }
}

TEST(tokens_whose_estimate_is_clamped_are_counted)
{
    /*
     * log pi - log ref: the last three are beyond a clamp of k3, the value's (once) or the
     * exponent's
     */
    static const float log_prob[6] = { -1, -2, -9, -5, -40, -1 },
                       ref[6] = { -1, -3, -1, -2, -1, -40 };
    static const uint8_t mask[6] = { 1, 1, 0, 1, 1, 1 };
    static const struct {
        const char *name;
        double clamped;
    } cases[] = { { "low_var_kl", 3 }, { "low_var_kl+", 3 }, { "kl", 0 }, { "mse", 0 } };
    for (int c = 0; c < ARES_COUNT(cases); c++) {
        ares_loss_config cfg = { .clip_ratio_low = 0.2,
                                 .clip_ratio_high = 0.2,
                                 ARES_LOSS_DEFAULTS };
        float weight[6] = { 1, 1, 1, 1, 1, 1 }, zero[6] = { 0 }, d[6] = { 0 };
        ares_loss_sums sums;
        double frac = -1;
        ares_loss_sums_init(&sums);
        ares_loss_args a = { .cfg = &cfg,
                             .n = 6,
                             .log_prob = log_prob,
                             .old_log_prob = log_prob,
                             .advantage = zero,
                             .weight = weight,
                             .mask = mask,
                             .d_log_prob = d,
                             .sums = &sums };
        ares_kl_args k = { .kl = ares_kl_find(cases[c].name), .coef = 1, .ref_log_prob = ref };
        REQUIRE_OK(loss_terms(&a, &k));
        ares_metrics *m = ares_metrics_new();
        ares_loss_metrics(&sums, m);
        CHECK(ares_metrics_get(m, "actor/kl_clamped_frac", &frac));
        CHECK_NEAR(frac, cases[c].clamped / 5, 1e-15);
        ares_metrics_free(m);
    }
}

TEST(other_trainers_words_name_the_same_estimators)
{
    static const struct {
        const char *alias, *name;
    } words[] = { { "k1", "kl" },
                  { "k2", "mse" },
                  { "k3", "low_var_kl" },
                  { "low-var-kl", "low_var_kl" },
                  { "k3+", "low_var_kl+" } };
    for (int i = 0; i < ARES_COUNT(words); i++)
        CHECK_STR(ares_kl_find(words[i].alias)->name, words[i].name);
    CHECK(ares_kl_find("") == NULL && ares_kl_find("k") == NULL && ares_kl_find("low_var") == NULL);
    CHECK(ares_kl_find("full")->value == NULL);
}

/*
 * A tool's output and padding lie between or after the policy's tokens: no KL is taken off there.
 * The last row is a discarded answer's, which counts in no mean.
 */
TEST(a_kl_in_the_reward_is_taken_off_at_the_policys_tokens_alone)
{
    static const float kl[] = { 0.5F, 8, 1, 2, 0.25F, 4 }, scores[] = { 1, 0, 2, 0, 1, 3 };
    static const uint8_t mask[] = { 1, 0, 1, 1, 0, 0 };
    static const double plain[] = { 0.75, 0, 1.5, -1, 1, 3 }, weighed[] = { 0.75, 0, 1, -3, 1, 3 };
    static const float weight[] = { 1, 7, 2, 3, 7, 7 };
    for (int weighs = 0; weighs < 2; weighs++) {
        double sums[2] = { 0 };
        ares_batch b;
        ares_batch_init(&b);
        ares_batch_begin_group(&b);
        ares_batch_add_row(&b, &(ares_sample){ 0 }, 3);
        ares_batch_add_row(&b, &(ares_sample){ 0 }, 2);
        ares_batch_add_row(&b, &(ares_sample){ 0 }, 1);
        ARES_PUT(&b, response_mask), ARES_PUT(&b, kl);
        ARES_PUT(&b, token_level_scores), ARES_PUT(&b, token_level_rewards);
        memcpy(b.response_mask, mask, sizeof mask);
        memcpy(b.kl, kl, sizeof kl);
        memcpy(b.token_level_scores, scores, sizeof scores);
        if (weighs) memcpy(ARES_PUT(&b, kl_weight), weight, sizeof weight);
        ares_kl_in_reward(&b, 0.5, sums);
        for (int t = 0; t < 6; t++)
            CHECK_NEAR(b.token_level_rewards[t], (weighs ? weighed : plain)[t], 1e-7);
        CHECK_NEAR(sums[0], (0.5 + 1) / 2 + 2, 1e-7);
        CHECK_NEAR(sums[1], 2, 0);
        ares_batch_fini(&b);
    }
}
