/*
 * The clipped surrogate and the terms beside it. Cases ppo_default_* of tests/golden/aepo.json
 * (verl's code).
 */
#include "test.h"

#include <math.h>
#include <stdio.h>

#include "algo_test.h"
#include "loss/loss.h"

enum { MOST = 64 };
typedef struct state {
    ares_loss_config cfg;
    int64_t n;
    float log_prob[MOST], old[MOST], advantage[MOST], weight[MOST], entropy[MOST], d_log_prob[MOST],
        d_entropy[MOST], ref[MOST], kl_weight[MOST];
    uint8_t mask[MOST];
    ares_loss_sums sums;
} state;

static void init(state *s, int64_t n)
{
    *s = (state){ .cfg = { .clip_ratio_low = 0.2, .clip_ratio_high = 0.3, .clip_ratio_dual = 3 },
                  .n = n };
    for (int64_t t = 0; t < n; t++) {
        s->mask[t] = 1;
        s->weight[t] = 1;
    }
}

static ares_loss_args args(state *s)
{
    return (ares_loss_args){ .cfg = &s->cfg,
                             .n = s->n,
                             .log_prob = s->log_prob,
                             .old_log_prob = s->old,
                             .advantage = s->advantage,
                             .weight = s->weight,
                             .mask = s->mask,
                             .entropy = s->entropy,
                             .d_log_prob = s->d_log_prob,
                             .d_entropy = s->d_entropy,
                             .sums = &s->sums };
}

/* Loss and gradients from nothing; kl NULL: the surrogate alone. */
static double compute(state *s, const ares_kl *kl, double kl_coef)
{
    ares_loss_args a = args(s);
    ares_loss_sums_init(&s->sums);
    memset(s->d_log_prob, 0, sizeof s->d_log_prob);
    memset(s->d_entropy, 0, sizeof s->d_entropy);
    CHECK_OK(ares_loss_find("default")->compute(&a));
    if (kl)
        CHECK_OK(loss_terms(
            &a, &(ares_kl_args){
                    .kl = kl, .coef = kl_coef, .ref_log_prob = s->ref, .weight = s->kl_weight }));
    return s->sums.loss;
}

/* One token of weight 1. */
static double token(double log_ratio, double advantage, double *gradient, state *s)
{
    s->n = 1;
    s->log_prob[0] = (float)log_ratio;
    s->old[0] = 0;
    s->advantage[0] = (float)advantage;
    double loss = compute(s, NULL, 0);
    *gradient = (double)s->d_log_prob[0];
    return loss;
}

TEST(losses_and_metrics_agree_with_the_reference)
{
    static const float old[] = { -1.0f, -0.5f, -2.0f, -0.7f, -1.4f, -0.2f },
                       now[] = { -0.6f, -0.9f, -2.0f, -1.6f, -0.2f, -9.0f },
                       adv[] = { 1, 1, -1, -1, -1, 2 };
    static const double losses[] = { -1.3, -0.670320046036, 1.0, 0.8, 3.0 };
    static const struct {
        const char *mode;
        double loss;
    } cases[] = { { "token-mean", 0.565935989661 }, { "seq-mean-token-mean", 0.788279988116 } };
    state s;
    for (int c = 0; c < 2; c++) {
        ares_batch b;
        ares_agg_counts counts = { 0 };
        init(&s, 6);
        memcpy(s.old, old, sizeof old);
        memcpy(s.log_prob, now, sizeof now);
        memcpy(s.advantage, adv, sizeof adv);
        s.mask[5] = 0;
        make_batch(&b, 1, 2, (const int64_t[]){ 3 }, 1);
        b.response_mask[5] = 0;
        ares_agg_count(&b, 0, 2, &counts);
        REQUIRE_OK(ares_agg_weights(cases[c].mode, &b, 0, 2, &counts, s.weight));
        CHECK_NEAR(compute(&s, NULL, 0), cases[c].loss, 1e-6);
        CHECK_NEAR(s.sums.tokens, 5, 0);
        CHECK_NEAR(s.sums.clip_high / 5, 0.3999999992, 1e-8);
        CHECK_NEAR(s.sums.clip_low / 5, 0.1999999996, 1e-8);
        CHECK_NEAR(s.sums.neg_log_ratio / 5, -0.05999999988, 1e-7);
        CHECK_NEAR(s.d_log_prob[5], 0, 0);
        ares_batch_fini(&b);
    }
    for (int t = 0; t < 5; t++) {
        double gradient;
        init(&s, 1);
        CHECK_NEAR(token((double)now[t] - (double)old[t], (double)adv[t], &gradient, &s), losses[t],
                   1e-6);
    }
}

TEST(clips_act_beyond_their_bounds_alone)
{
    state s;
    double g;
    init(&s, 1);
    /* a good token: bounded above only */
    CHECK_NEAR(token(log(1.29), 2, &g, &s), -2.58, 1e-6);
    CHECK_NEAR(g, -2.58, 1e-6);
    CHECK_NEAR(token(log(1.31), 2, &g, &s), -2.6, 1e-6);
    CHECK_NEAR(g, 0, 0);
    CHECK(s.sums.clip_high == 1 && s.sums.clip_low == 0);
    CHECK_NEAR(token(log(0.1), 2, &g, &s), -0.2, 1e-6);
    CHECK_NEAR(g, -0.2, 1e-6);
    /* a bad one: bounded below, and by the dual clip far above */
    CHECK_NEAR(token(log(0.81), -2, &g, &s), 1.62, 1e-6);
    CHECK_NEAR(g, 1.62, 1e-6);
    CHECK_NEAR(token(log(0.79), -2, &g, &s), 1.6, 1e-6);
    CHECK_NEAR(g, 0, 0);
    CHECK(s.sums.clip_high == 1 && s.sums.clip_low == 0);
    CHECK_NEAR(token(log(2.9), -2, &g, &s), 5.8, 1e-5);
    CHECK_NEAR(g, 5.8, 1e-5);
    CHECK_NEAR(token(log(3.1), -2, &g, &s), 6, 0);
    CHECK_NEAR(g, 0, 0);
    CHECK(s.sums.clip_low == 1 && s.sums.clip_high == 0);
    /* an advantage of 0 pulls nowhere */
    CHECK_NEAR(token(1, 0, &g, &s), 0, 0);
    CHECK_NEAR(g, 0, 0);
    CHECK(s.sums.clip_high == 0 && s.sums.clip_low == 0);
}

TEST(the_gradient_at_the_old_policy_is_minus_the_advantage)
{
    state s;
    double g;
    init(&s, 1);
    for (double a = -2; a <= 2; a += 0.5) {
        CHECK_NEAR(token(0, a, &g, &s), -a, 0);
        CHECK_NEAR(g, -a, 0);
        CHECK_NEAR(s.sums.ratio, 1, 0);
    }
}

TEST(far_ratios_are_bounded_and_a_lower_bound_of_one_removes_the_clip)
{
    state s;
    double g;
    init(&s, 1);
    CHECK_NEAR(token(300, 1, &g, &s), -1.3, 1e-12);
    CHECK_NEAR(g, 0, 0);
    CHECK_NEAR(token(-300, 1, &g, &s), 0, 1e-8);
    CHECK_NEAR(g, 0, 0); /* the exponent is clamped at -20, and passes nothing */
    s.cfg.clip_ratio_low = 1;
    CHECK_NEAR(token(log(0.01), -1, &g, &s), 0.01, 1e-8);
    CHECK_NEAR(g, 0.01, 1e-8);
    CHECK(s.sums.clip_high == 0);
}

TEST(input_that_is_no_number_is_an_error_with_its_place)
{
    state s;
    const int64_t row_start[] = { 0, 10, 12, 20 };
    static const struct {
        const char *name;
        float x;
    } bad[] = { { "log_prob", NAN },
                { "old_log_prob", -INFINITY },
                { "advantage", NAN },
                { "weight", INFINITY } };
    for (int i = 0; i < ARES_COUNT(bad); i++) {
        init(&s, 20);
        float *const arrays[] = { s.log_prob, s.old, s.advantage, s.weight };
        ares_loss_args a = args(&s);
        a.row_start = row_start, a.end = 3;
        arrays[i][11] = bad[i].x;
        char text[80];
        snprintf(text, sizeof text, "default: %s of row 1, token 1 is %g", bad[i].name,
                 (double)bad[i].x);
        CHECK_FAIL(ares_loss_find("default")->compute(&a), ARES_ENUMERIC, text);
        s.mask[11] = 0; /* where the mask is 0 any value is allowed */
        CHECK_OK(ares_loss_find("default")->compute(&a));
        CHECK(isfinite(s.sums.loss));
        s.mask[11] = 2;
        CHECK_FAIL(ares_loss_find("default")->compute(&a), ARES_ENUMERIC,
                   "mask of row 1, token 1 is 2: must be 0 or 1");
    }
}

static void randomise(state *s, uint64_t seed)
{
    ares_rng_key key = ares_rng_root(seed, ARES_RNG_TEST);
    for (int64_t t = 0; t < s->n; t++) {
        uint64_t i = (uint64_t)t * 8;
        s->old[t] = -(float)ares_rng_uniform(key, i);
        s->log_prob[t] = s->old[t] + (float)ares_rng_normal(key, i + 1);
        s->ref[t] = s->log_prob[t] + (float)ares_rng_normal(key, i + 2);
        s->advantage[t] = (float)ares_rng_normal(key, i + 3);
        s->weight[t] = (float)ares_rng_uniform(key, i + 4);
        s->entropy[t] = (float)ares_rng_uniform(key, i + 5);
        s->kl_weight[t] = (float)ares_rng_uniform(key, i + 6);
        s->mask[t] = ares_rng_uniform(key, i + 7) > 0.2;
    }
}

/*
 * The loss of one token with both terms, in f64, from the product's own estimator and the formula
 * of docs/update.md#ppo-with-low-high-and-dual-clip.
 */
static double reference(const state *s, int64_t t, double log_prob, double entropy,
                        const ares_kl *kl, double coef)
{
    double a = (double)s->advantage[t], lr = log_prob - (double)s->old[t],
           clamped = fmin(fmax(lr, -20), 20);
    double bounded =
        fmin(fmax(clamped, log(1 - s->cfg.clip_ratio_low)), log(1 + s->cfg.clip_ratio_high));
    double h = fmax(-a * exp(clamped), -a * exp(bounded)), w = (double)s->weight[t];
    if (a < 0) h = fmin(h, -a * s->cfg.clip_ratio_dual);
    return w * (h + coef * (double)s->kl_weight[t] * kl->value(log_prob - (double)s->ref[t]) -
                s->cfg.entropy_coeff * entropy);
}

TEST(gradients_are_those_of_the_loss_by_finite_differences)
{
    static const char *const estimators[] = { "kl", "abs", "mse", "low_var_kl" };
    state s;
    int checked = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        const ares_kl *kl = ares_kl_find(estimators[seed % 4]);
        init(&s, MOST);
        s.cfg.entropy_coeff = 0.03;
        randomise(&s, seed);
        compute(&s, kl, 0.2);
        for (int64_t t = 0; t < s.n; t++) {
            double h = 1e-6, x = (double)s.log_prob[t], e = (double)s.entropy[t];
            if (!s.mask[t]) {
                CHECK(s.d_log_prob[t] == 0 && s.d_entropy[t] == 0);
                continue;
            }
            double up = reference(&s, t, x + h, e, kl, 0.2), mid = reference(&s, t, x, e, kl, 0.2),
                   down = reference(&s, t, x - h, e, kl, 0.2);
            if (fabs((up - mid) - (mid - down)) > 1e-9) continue; /* a corner: two slopes */
            double slope = (up - down) / (2 * h);
            CHECK_NEAR(s.d_log_prob[t], slope, 1e-6 * (1 + fabs(slope)));
            slope = (reference(&s, t, x, e + h, kl, 0.2) - reference(&s, t, x, e - h, kl, 0.2)) /
                    (2 * h);
            CHECK_NEAR(s.d_entropy[t], slope, 1e-7);
            checked++;
        }
    }
    CHECK(checked > 1500);
}

TEST(the_terms_add_up_to_the_loss)
{
    state s;
    const ares_kl *kl = ares_kl_find("low_var_kl");
    init(&s, MOST);
    s.cfg.entropy_coeff = 0.03;
    randomise(&s, 99);
    for (int64_t t = 0; t < s.n; t++) s.kl_weight[t] = 1;
    compute(&s, kl, 0.2);
    double expected = 0;
    for (int64_t t = 0; t < s.n; t++)
        if (s.mask[t])
            expected += reference(&s, t, (double)s.log_prob[t], (double)s.entropy[t], kl, 0.2);
    CHECK_NEAR(ares_loss_total(&s.sums, 0.03, 0.2), expected, 1e-12 * MOST);
}

TEST(terms_that_are_not_asked_for_do_nothing)
{
    state s;
    init(&s, 8);
    randomise(&s, 5);
    compute(&s, NULL, 0);
    float before[MOST];
    memcpy(before, s.d_log_prob, sizeof before);
    ares_loss_args a = args(&s);
    /* no reference model; entropy_coeff 0 */
    CHECK_OK(loss_terms(&a, &(ares_kl_args){ .kl = ares_kl_find("kl"), .coef = 0.5 }));
    CHECK_MEM(s.d_log_prob, before, sizeof before);
    CHECK_NEAR(s.sums.kl, 0, 0);
    CHECK(s.sums.entropy > 0 && s.d_entropy[0] == 0); /* told all the same */
    a.entropy = NULL;
    a.d_entropy = NULL;
    s.cfg.entropy_coeff = 1;
    CHECK_OK(loss_terms(&a, &(ares_kl_args){ .kl = ares_kl_find("kl"), .coef = 0.5 }));
}

/* Micro-batches that add to the same sums give what one gives; gradients to the bit. */
TEST(micro_batches_add_up_to_the_whole)
{
    state s, cut;
    init(&s, MOST);
    randomise(&s, 11);
    compute(&s, NULL, 0);
    cut = s;
    memset(cut.d_log_prob, 0, sizeof cut.d_log_prob);
    ares_loss_sums_init(&cut.sums);
    for (int64_t from = 0, n; from < MOST; from += n) {
        n = ARES_MIN(MOST - from, 5 + from % 3);
        ares_loss_args a = args(&cut);
        a.n = n;
        a.log_prob += from, a.old_log_prob += from, a.advantage += from, a.weight += from,
            a.mask += from, a.d_log_prob += from;
        CHECK_OK(ares_loss_find("default")->compute(&a));
    }
    CHECK_MEM(cut.d_log_prob, s.d_log_prob, sizeof s.d_log_prob);
    CHECK_NEAR(cut.sums.loss, s.sums.loss, 1e-13);
    CHECK_NEAR(cut.sums.ratio, s.sums.ratio, 1e-12);
    CHECK(cut.sums.tokens == s.sums.tokens && cut.sums.clip_high == s.sums.clip_high &&
          cut.sums.clip_low == s.sums.clip_low);
    CHECK(cut.sums.ratio_min == s.sums.ratio_min && cut.sums.ratio_max == s.sums.ratio_max);
}

TEST(an_unknown_loss_is_answered_with_the_choices)
{
    CHECK(ares_loss_find("defualt") == NULL);
    CHECK_CONTAINS(ares_error_message(),
                   "worker.actor.loss_type = 'defualt': unknown; did you mean 'default'?");
}
