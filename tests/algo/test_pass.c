/*
 * ares_loss_pass: the derivatives of the two calls bit for bit, their sums, and no difference from
 * the number of threads.
 */
#include "test.h"

#include <math.h>

#include "ares/algo.h"
#include "ares/kernels.h"

enum { N = 20011, ROWS = 17 };

typedef struct inputs {
    float log_prob[N], old[N], ref[N], advantage[N], weight[N], is_weight[N], kl_weight[N],
        entropy[N];
    uint8_t mask[N];
    int64_t row_start[ROWS + 1];
    ares_sample samples[ROWS];
} inputs;
typedef struct results {
    float d_log_prob[N], d_entropy[N], kl[N];
    ares_loss_sums sums;
} results;

static inputs *make(void)
{
    inputs *in = ares_calloc(1, sizeof *in);
    ares_rng_key key = ares_rng_root(3, ARES_RNG_TEST);
    for (int i = 0; i < N; i++) {
        double z[6];
        for (int j = 0; j < 6; j++)
            z[j] = ares_rng_normal(ares_rng_sub(key, (uint64_t)j, 0), (uint64_t)i);
        in->log_prob[i] = (float)(-2 + z[0]);
        /* some beyond every clamp */
        in->old[i] = in->log_prob[i] + (float)(i % 97 == 0 ? 30 * z[1] : 0.3 * z[1]);
        in->ref[i] = in->log_prob[i] + (float)(i % 89 == 0 ? 30 * z[2] : 0.3 * z[2]);
        in->advantage[i] = i % 11 == 0 ? 0 : (float)z[3];
        in->entropy[i] = (float)fabs(z[4]);
        in->kl_weight[i] = i % 7 == 0 ? 0.5f : 1;
        in->is_weight[i] = i % 13 == 0 ? 0.25f : 1;
        in->mask[i] = i % 5 != 4;
        in->weight[i] = in->mask[i] ? 1e-4f : 0;
        if (!in->mask[i]) in->log_prob[i] = in->advantage[i] = in->ref[i] = NAN;
    }
    for (int r = 0; r <= ROWS; r++) in->row_start[r] = 100 + (int64_t)N * r / ROWS;
    for (int r = 0; r < ROWS; r++) in->samples[r].accuracy = r % 3 == 2 ? NAN : (float)(r % 3);
    return in;
}

/* pool NULL and whole false: the two calls. */
static int run(const inputs *in, const ares_loss_config *cfg, const char *kl, bool pass,
               ares_pool *pool, results *out)
{
    memset(out, 0, sizeof *out);
    ares_loss_sums_init(&out->sums);
    ares_loss_args a = { .cfg = cfg,
                         .n = N,
                         .log_prob = in->log_prob,
                         .old_log_prob = in->old,
                         .advantage = in->advantage,
                         .weight = in->weight,
                         .is_weight = in->is_weight,
                         .mask = in->mask,
                         .entropy = in->entropy,
                         .d_log_prob = out->d_log_prob,
                         .d_entropy = out->d_entropy,
                         .sums = &out->sums,
                         .end = ROWS,
                         .first = 100,
                         .row_start = in->row_start,
                         .samples = in->samples };
    ares_kl_args k = {
        .coef = 0.04, .ref_log_prob = in->ref, .weight = in->kl_weight, .out = out->kl
    };
    if (kl) k.kl = ares_kl_find(kl);
    const ares_loss *loss = ares_loss_find(cfg->loss_type);
    if (pass) return ares_loss_pass(pool, loss, &a, kl ? &k : NULL);
    ARES_TRY(loss->compute(&a));
    return ares_loss_terms(&a, kl ? &k : NULL);
}

static const ares_loss_config defaults = { .loss_type = "default",
                                           .clip_ratio_low = 0.2,
                                           .clip_ratio_high = 0.3,
                                           .clip_ratio_dual = NAN,
                                           .loss_avg_mode = "token-mean",
                                           .entropy_coeff = 0.01,
                                           ARES_LOSS_DEFAULTS };

static void check_equal(const inputs *in, const char *loss, const char *kl)
{
    results *one = ares_malloc(sizeof *one), *two = ares_malloc(sizeof *two),
            *three = ares_malloc(sizeof *three);
    ares_pool *pool = ares_pool_new(3);
    ares_loss_config cfg = defaults;
    cfg.loss_type = loss;
    REQUIRE_OK(run(in, &cfg, kl, false, NULL, one));
    REQUIRE_OK(run(in, &cfg, kl, true, NULL, two));
    REQUIRE_OK(run(in, &cfg, kl, true, pool, three));
    CHECK_MSG(memcmp(one, two, offsetof(results, sums)) == 0, "%s, %s: other derivatives", loss,
              kl ? kl : "no kl");
    CHECK_MSG(memcmp(two, three, sizeof *two) == 0, "%s, %s: threads change a bit", loss,
              kl ? kl : "no kl");
    const double *x = (const double *)&one->sums, *y = (const double *)&two->sums;
    for (size_t i = 0; i < sizeof one->sums / sizeof *x; i++)
        CHECK_MSG(fabs(x[i] - y[i]) <= 1e-11 * (1 + fabs(x[i])),
                  "%s, %s: sum %zu is %.17g, not %.17g", loss, kl ? kl : "no kl", i, y[i], x[i]);
    CHECK(one->sums.tokens_right > 0 && one->sums.clip_high > 0 && one->sums.saturated > 0);
    ares_pool_free(pool);
    ares_free(one), ares_free(two), ares_free(three);
}

TEST(a_pass_is_the_loss_and_its_terms)
{
    inputs *in = make();
    int n;
    const ares_loss *const *losses = ares_loss_list(&n);
    for (int i = 0; i < n; i++)
        if (losses[i]->flags & ARES_LOSS_LOCAL && strcmp(losses[i]->name, "sapo") != 0 &&
            strcmp(losses[i]->name, "cispo") != 0)
            check_equal(in, losses[i]->name, "low_var_kl");
    check_equal(in, "cispo", "kl+");
    check_equal(in, "default", NULL);
    check_equal(in, "default", "abs");
    ares_free(in);
}

TEST(a_pass_names_the_place_of_what_is_no_number)
{
    inputs *in = make();
    results *out = ares_malloc(sizeof *out);
    in->advantage[9000] = NAN;
    CHECK_FAIL(run(in, &defaults, "low_var_kl", true, NULL, out), ARES_ENUMERIC,
               "loss: default: advantage of row 7, token 761 is nan");
    in->advantage[9000] = 0;
    in->ref[10] = NAN;
    CHECK_FAIL(run(in, &defaults, "low_var_kl", true, NULL, out), ARES_ENUMERIC, "row 0, token 10");
    in->ref[10] = 0;
    in->mask[9000] = 3;
    CHECK_FAIL(run(in, &defaults, "low_var_kl", true, NULL, out), ARES_ENUMERIC,
               "row 7, token 761 is 3: must be 0 or 1");
    ares_free(out);
    ares_free(in);
}

TEST(exponentials_of_many_are_those_of_one)
{
    double x[4099], y[4099];
    ares_rng_key key = ares_rng_root(4, ARES_RNG_TEST);
    for (int i = 0; i < ARES_COUNT(x); i++)
        x[i] =
            i < 5 ? (i - 2) * 350.0 : (i % 3 ? 1 : 200) * ares_rng_normal(key, (uint64_t)i) / 1.5;
    for (int i = 0; i < ARES_COUNT(x); i++) x[i] = fmin(fmax(x[i], -700), 700);
    for (int64_t n = 0; n < 20; n++) { /* every tail */
        ares_f64_exp_all(n, x, y);
        for (int64_t i = 0; i < n; i++) CHECK_EQ(y[i] == ares_f64_exp(x[i]), 1);
    }
    ares_f64_exp_all(ARES_COUNT(x), x, y);
    for (int i = 0; i < ARES_COUNT(x); i++)
        CHECK_MSG(y[i] == ares_f64_exp(x[i]), "exp(%.17g) = %.17g, not %.17g", x[i], y[i],
                  ares_f64_exp(x[i]));
}
