/* What whole sections of DAPO and VAPOR may say: each key alone, on both sides of its bound. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "ares/algo_loss.h"
#include "test.h"

/* The option that was complained of; ctx: of the severity that is asked for. */
typedef struct heard {
    char severity;
    const char *option;
    int n;
} heard;

static void hear(void *ctx, char severity, const char *option, const char *message)
{
    heard *h = ctx;
    (void)message;
    h->severity = severity;
    h->option = option;
    h->n++;
}

/* want: "e option" of a refusal, "w option" of a warning, "" where nothing is said. */
static void check_heard(const heard *h, const char *want, double value)
{
    char said[64] = "";
    if (h->n) (void)snprintf(said, sizeof said, "%c %s", h->severity, h->option);
    CHECK_MSG(h->n <= 1 && strcmp(said, want) == 0, "%g: said '%s' (%d times), expected '%s'",
              value, said, h->n, want);
}

static const ares_dapo_keys dapo = { .adv_type = "grpo",
                                     .loss_type = "actor",
                                     .loss_agg_func = "token-mean",
                                     .kl_penalty_type = "low_var_kl",
                                     .group_size = 16,
                                     .clip_ratio_high = NAN,
                                     .clip_ratio_low = NAN,
                                     .ratio_clip_eps = NAN,
                                     .clip_ratio_c = NAN,
                                     .len_reward_penalty = 0.1,
                                     .safe_length = 16384,
                                     .max_length = 20480,
                                     .early_stop_imp_ratio = NAN,
                                     .n_minibatches = 1,
                                     .importance_sampling_clip = 2 };

TEST(every_number_of_a_dapo_section_has_its_bounds)
{
    static const struct {
        size_t at;
        double value;
        const char *want;
    } cases[] = {
        { offsetof(ares_dapo_keys, group_size), 2, "" },
        { offsetof(ares_dapo_keys, group_size), 1, "e group_size" },
        { offsetof(ares_dapo_keys, ratio_clip_eps), 0, "" },
        { offsetof(ares_dapo_keys, ratio_clip_eps), 0.999, "" },
        { offsetof(ares_dapo_keys, clip_ratio_low), 0, "" },
        { offsetof(ares_dapo_keys, clip_ratio_low), -0.1, "e clip_ratio_low" },
        { offsetof(ares_dapo_keys, clip_ratio_high), 0.28, "" },
        { offsetof(ares_dapo_keys, clip_ratio_high), 0.2, "" },
        { offsetof(ares_dapo_keys, clip_ratio_high), 0.1,
          "w clip_ratio_high" }, /* below the lower one */
        { offsetof(ares_dapo_keys, clip_ratio_high), -0.1, "e clip_ratio_high" },
        { offsetof(ares_dapo_keys, clip_ratio_c), 1.5, "" },
        { offsetof(ares_dapo_keys, clip_ratio_c), 1, "e clip_ratio_c" },
        { offsetof(ares_dapo_keys, len_reward_penalty), 0, "" },
        { offsetof(ares_dapo_keys, len_reward_penalty), -0.1, "e len_reward_penalty" },
        { offsetof(ares_dapo_keys, safe_length), 0, "" },
        { offsetof(ares_dapo_keys, safe_length), 20479, "" },
        { offsetof(ares_dapo_keys, safe_length), 20480, "e safe_length" },
        { offsetof(ares_dapo_keys, safe_length), -1, "e safe_length" },
        { offsetof(ares_dapo_keys, kl_beta), 0.5, "" },
        { offsetof(ares_dapo_keys, kl_beta), -0.5, "e kl_beta" },
        { offsetof(ares_dapo_keys, entropy_bonus), 0.1,
          "w entropy_bonus" }, /* nothing calculates it */
        { offsetof(ares_dapo_keys, entropy_bonus), -0.1, "e entropy_bonus" },
        { offsetof(ares_dapo_keys, early_stop_imp_ratio), 1.5, "" },
        { offsetof(ares_dapo_keys, early_stop_imp_ratio), 1, "e early_stop_imp_ratio" },
        { offsetof(ares_dapo_keys, n_minibatches), 2, "" },
        { offsetof(ares_dapo_keys, n_minibatches), 0, "e n_minibatches" },
        { offsetof(ares_dapo_keys, importance_sampling_clip), 0.1, "" },
        { offsetof(ares_dapo_keys, importance_sampling_clip), 0, "e importance_sampling_clip" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_dapo_keys k = dapo;
        heard h = { 0 };
        memcpy((char *)&k + cases[i].at, &cases[i].value, sizeof cases[i].value);
        ares_dapo_check(&k, hear, &h);
        check_heard(&h, cases[i].want, cases[i].value);
    }
}

TEST(every_word_of_a_dapo_section_is_one_of_its_choices)
{
    static const struct {
        size_t at;
        const char *value, *want;
    } cases[] = {
        { offsetof(ares_dapo_keys, adv_type), "gae", "e adv_type" },
        { offsetof(ares_dapo_keys, adv_type), "rloo", "e adv_type" },
        { offsetof(ares_dapo_keys, loss_type), "ppo", "" },
        { offsetof(ares_dapo_keys, loss_type), "gspo", "e loss_type" },
        { offsetof(ares_dapo_keys, loss_agg_func), "seq-mean-token-sum-norm", "" },
        { offsetof(ares_dapo_keys, loss_agg_func), "mean", "e loss_agg_func" },
        { offsetof(ares_dapo_keys, kl_penalty_type), "k1", "" },
        { offsetof(ares_dapo_keys, kl_penalty_type), "k4", "e kl_penalty_type" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_dapo_keys k = dapo;
        heard h = { 0 };
        memcpy((char *)&k + cases[i].at, &cases[i].value, sizeof cases[i].value);
        ares_dapo_check(&k, hear, &h);
        check_heard(&h, cases[i].want, i);
    }
    ares_dapo_keys k = dapo; /* an entropy that is calculated may be rewarded */
    heard h = { 0 };
    k.entropy_bonus = 0.1, k.calculate_entropy = true;
    ares_dapo_check(&k, hear, &h);
    check_heard(&h, "", k.entropy_bonus);
}

TEST(every_number_of_a_vapor_section_has_its_bounds)
{
    static const char *const tags[2] = { "<A>", "</A>" };
    static const ares_vapor_config fine = {
        .beta = 0.1, .epsilon_low = 0.2, .epsilon_high = 0.2, .kl_coef = 0.04, .log_ratio_clamp = 20
    };
    static const struct {
        size_t at;
        double value;
        const char *want;
    } cases[] = {
        { offsetof(ares_vapor_config, beta), 0, "" },
        { offsetof(ares_vapor_config, beta), -1, "e beta" },
        { offsetof(ares_vapor_config, kl_coef), 0, "" },
        { offsetof(ares_vapor_config, kl_coef), -1, "e kl_coef" },
        { offsetof(ares_vapor_config, epsilon_low), 0, "" },
        { offsetof(ares_vapor_config, epsilon_low), 1, "e epsilon_low" },
        { offsetof(ares_vapor_config, epsilon_low), -0.1, "e epsilon_low" },
        { offsetof(ares_vapor_config, epsilon_high), 0, "" },
        { offsetof(ares_vapor_config, epsilon_high), -0.1, "e epsilon_high" },
        { offsetof(ares_vapor_config, log_ratio_clamp), 0.1, "" },
        { offsetof(ares_vapor_config, log_ratio_clamp), 0, "e log_ratio_clamp" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_vapor_config c = fine;
        heard h = { 0 };
        memcpy((char *)&c + cases[i].at, &cases[i].value, sizeof cases[i].value);
        ares_vapor_check(&c, 8, tags, tags, hear, &h);
        check_heard(&h, cases[i].want, cases[i].value);
    }
    static const struct {
        int64_t n;
        const char *want;
    } numbers[] = { { 2, "" }, { 1, "w num_generations" }, { 0, "e num_generations" } };
    for (int i = 0; i < ARES_COUNT(numbers); i++) {
        heard h = { 0 };
        ares_vapor_check(&fine, numbers[i].n, tags, tags, hear, &h);
        check_heard(&h, numbers[i].want, (double)numbers[i].n);
    }
    static const struct {
        const char *tags[2];
        char severity;
    } splits[] = { { { "<A>", "<A>" }, 'w' }, { { "<B>", "<A>" }, 0 }, { { "<A>", "<B>" }, 0 },
                   { { "", "</A>" }, 'e' },   { { "<A>", "" }, 'e' },  { { "", "" }, 'e' } };
    for (int i = 0; i < ARES_COUNT(splits); i++)
        for (int which = 0; which < 2; which++) {
            heard h = { 0 };
            char want[64] = "";
            if (splits[i].severity)
                (void)snprintf(want, sizeof want, "%c %s_term_split", splits[i].severity,
                               which ? "preference" : "verifiable");
            ares_vapor_check(&fine, 8, which ? tags : splits[i].tags, which ? splits[i].tags : tags,
                             hear, &h);
            check_heard(&h, want, i);
        }
}
