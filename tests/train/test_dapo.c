/*
 * DAPO's own options become the options that they stand for; explicit options win, and
 * contradictions are reported.
 */
#include "ares/train.h"
#include "faults.h"
#include "test.h"

#define BASE "data.train_files=[train.jsonl]", "worker.actor.model.model_path=m"

static ares_config *read_words(ares_train_config *c, const char *yaml, const char *const *words,
                               int n, bool check)
{
    static const char *const base[] = { BASE };
    ares_config *cfg = ares_config_new();
    ares_log_set(ARES_LOG_ERROR, 0);
    memset(c, 0, sizeof *c);
    ares_train_config_declare(cfg, c);
    if (yaml) ares_config_load_text(cfg, "a.yaml", ares_view_of(yaml));
    ares_config_read_args(cfg, ARES_COUNT(base), base);
    for (int i = 0; i < n; i++) ares_config_override(cfg, words[i]);
    ares_config_resolve(cfg);
    if (check) (void)ares_train_config_check(cfg, c, 1);
    return cfg;
}

/* The resolved configuration as text. Reading that text must give the same configuration. */
static void check_stable(ares_config *cfg)
{
    ares_train_config c;
    ares_str text = { 0 }, again = { 0 };
    ares_config_print(cfg, &text);
    ares_config *second = ares_config_new();
    ares_train_config_declare(second, &c);
    ares_config_load_text(second, "config.yaml", ares_str_view(&text));
    ares_config_resolve(second);
    CHECK_OK(ares_config_finish(second));
    ares_config_print(second, &again);
    CHECK_STR(again.data, text.data);
    ares_config_free(second);
    ares_str_fini(&text);
    ares_str_fini(&again);
}

TEST(the_preset_of_dapo_sets_what_nothing_else_does)
{
    ares_train_config c;
    static const char *const words[] = { "algorithm.name=dapo" };
    ares_config *cfg = read_words(&c, NULL, words, 1, true);
    CHECK_STR(faults_text(cfg), "");
    CHECK_STR(c.loss.loss_type, "dapo");
    CHECK_EQ(c.rollout.n, 16);
    CHECK_NEAR(c.loss.clip_ratio_low, 0.2, 0);
    CHECK_NEAR(c.loss.clip_ratio_high, 0.28, 0);
    CHECK(ares_is_null_f64(c.loss.clip_ratio_dual));
    CHECK_NEAR(c.loss.early_stop_imp_ratio, 5, 0);
    CHECK_NEAR(c.algorithm.kl_coef, 0, 0);
    CHECK(c.algorithm.normalize_advantages && c.filter.informative && c.actor.shuffle &&
          c.actor.recompute_log_probs);
    CHECK_EQ(c.filter.max_resample, 5);
    CHECK_EQ(c.trainer.max_try_make_batch, 6);
    CHECK_STR(c.filter.on_exhausted, "fill_masked");
    CHECK_EQ(c.reward.safe_length, 16384);
    CHECK_EQ(c.reward.max_length, 20480);
    CHECK_NEAR(c.reward.len_reward_penalty, 0.1, 0);
    CHECK_NEAR(c.reward.correct, 1, 0);
    CHECK_NEAR(c.reward.incorrect, -1, 0);
    CHECK_EQ(c.actor.global_batch_size, c.data.rollout_batch_size);
    check_stable(cfg);
    ares_config_free(cfg);
}

TEST(a_weight_of_the_kl_makes_it_a_term_of_dapos_loss)
{
    static const char *const weights[] = { "algorithm.kl_coef=0.01", "algorithm.kl_coef=0" };
    for (int i = 0; i < 2; i++) {
        ares_train_config c;
        const char *const words[] = { "algorithm.name=dapo", weights[i] };
        ares_config *cfg = read_words(&c, NULL, words, 2, true);
        CHECK_STR(faults_text(cfg), "");
        CHECK_EQ(c.algorithm.use_kl_loss, i == 0);
        ares_config_free(cfg);
    }
}

TEST(the_preset_makes_one_mini_batch_in_the_unit_that_is_asked_for)
{
    static const struct {
        const char *words[4];
        int n;
        int64_t size;
    } cases[] = {
        { { "algorithm.name=dapo", "data.rollout_batch_size=64" }, 2, 64 },
        { { "algorithm.name=dapo", "data.rollout_batch_size=64",
            "worker.actor.mini_batch_unit=rows" },
          3,
          64 * 16 },
        { { "algorithm.name=dapo", "worker.rollout.n=4", "data.rollout_batch_size=64",
            "worker.actor.mini_batch_unit=rows" },
          4,
          64 * 4 },
        { { "algorithm.name=dapo", "worker.actor.mini_batch_unit=rows",
            "data.rollout_batch_size=64", "worker.actor.global_batch_size=128" },
          4,
          128 },
        { { "algorithm.name=dapo", "env.train.tags=Bandit", "worker.actor.mini_batch_unit=rows" },
          3,
          8 * 16 },
        { { "algorithm.name=dapo", "env.train.tags=[Bandit]", "env.train.group_size=4",
            "worker.actor.mini_batch_unit=rows" },
          4,
          8 * 4 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_train_config c;
        ares_config *cfg = ares_config_new();
        ares_train_config_declare(cfg, &c);
        ares_config_read_args(cfg, cases[i].n, cases[i].words);
        ares_config_resolve(cfg);
        CHECK_EQ(c.actor.global_batch_size, cases[i].size);
        ares_config_free(cfg);
    }
}

TEST(explicit_options_win_over_the_preset)
{
    ares_train_config c;
    static const char yaml[] =
        "algorithm: {name: dapo, group_size: 4, clip_ratio_low: 0.1, ratio_clip_eps: 0.3, kl_beta: "
        "0.01, "
        "shuffle_rollout: false, dynamic_sampling: {enable: false}}\n"
        "worker: {reward: {rewards: [{name: dapo}, {name: overlong, max_response_length: 1024}], "
        "reward_type: null}}\n";
    static const char *const words[] = { "algorithm.filter_groups.max_num_gen_batches=10",
                                         "data.rollout_batch_size=64",
                                         "algorithm.n_minibatches=4" };
    ares_config *cfg = read_words(&c, yaml, words, 3, false);
    CHECK_STR(faults_text(cfg), "");
    CHECK_EQ(c.rollout.n, 4);
    CHECK_NEAR(c.loss.clip_ratio_low, 0.1, 0);
    CHECK_NEAR(c.loss.clip_ratio_high, 0.3, 0);
    CHECK_NEAR(c.algorithm.kl_coef, 0.01, 0);
    CHECK(c.algorithm.use_kl_loss);
    CHECK(!c.actor.shuffle && !c.filter.informative);
    CHECK_EQ(c.filter.max_resample, ARES_NULL_I64);
    CHECK_EQ(c.trainer.max_try_make_batch, 10);
    CHECK_EQ(c.actor.global_batch_size, 16);
    /* the rewards have a penalty of length of their own */
    CHECK_EQ(c.reward.safe_length, ARES_NULL_I64);
    CHECK_STR(c.loss.loss_type, "dapo");
    check_stable(cfg);
    ares_config_free(cfg);
}

TEST(max_resample_alone_switches_dynamic_sampling_on)
{
    static const struct {
        const char *words[3];
        int n;
        bool on;
        int64_t tries;
    } cases[] = {
        { { "algorithm.max_resample=5" }, 1, true, 6 },
        { { "algorithm.max_resample=0" }, 1, true, 1 },
        { { "algorithm.dynamic_sampling.max_resample=-1" }, 1, true, 0 },
        { { "algorithm.max_resample=null" }, 1, false, 20 },
        { { "algorithm.max_resample=5", "algorithm.filter_groups.enable=false" }, 2, false, 6 },
        { { "algorithm.max_resample=5", "algorithm.online_filtering=true" }, 2, false, 6 },
        { { "algorithm.max_resample=5", "worker.rollout.rollout_filter_value=0.9" }, 2, false, 6 },
        { { "algorithm.max_resample=5", "algorithm.dynamic_sampling_filter=nonzero_std" },
          2,
          false,
          6 },
        { { "algorithm.max_resample=5", "algorithm.filter_groups.max_num_gen_batches=6" },
          2,
          true,
          6 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_train_config c;
        ares_config *cfg = read_words(&c, NULL, cases[i].words, cases[i].n, false);
        CHECK_STR(faults_text(cfg), "");
        CHECK_EQ(c.filter.informative, cases[i].on);
        CHECK_EQ(c.trainer.max_try_make_batch, cases[i].tries);
        check_stable(cfg);
        ares_config_free(cfg);
    }
}

TEST(the_words_of_dapo_have_their_published_effect)
{
    static const struct {
        const char *words[4];
        int n;
        const char *path, *value;
    } cases[] = {
        { { "algorithm.loss_type=actor" }, 1, "worker.actor.loss_type", "dapo" },
        { { "algorithm.loss_type=ppo" }, 1, "worker.actor.loss_type", "dapo" },
        { { "worker.actor.loss_type=ppo" }, 1, "worker.actor.loss_type", "default" },
        { { "worker.actor.loss_type=actor" }, 1, "worker.actor.loss_type", "dapo" },
        { { "algorithm.entropy_bonus=0.01" }, 1, "worker.actor.entropy_coeff", "0.0" },
        { { "algorithm.entropy_bonus=0.01", "algorithm.calculate_entropy=True" },
          2,
          "worker.actor.entropy_coeff",
          "0.01" },
        { { "worker.actor.entropy_coeff=0.01" }, 1, "worker.actor.entropy_coeff", "0.01" },
        { { "actor_rollout_ref.actor.entropy_coeff=0.01" },
          1,
          "worker.actor.entropy_coeff",
          "0.01" },
        { { "worker.actor.entropy_coeff=0.01", "algorithm.calculate_entropy=False" },
          2,
          "worker.actor.entropy_coeff",
          "0.0" },
        { { "algorithm.shuffle_rollout=True" }, 1, "worker.actor.shuffle", "True" },
        { { "algorithm.recompute_logprobs=True" }, 1, "worker.actor.recompute_log_probs", "True" },
        { { "algorithm.n_minibatches=4", "data.rollout_batch_size=512" },
          2,
          "worker.actor.global_batch_size",
          "128" },
        { { "reward.overlong_buffer.enable=True", "reward.overlong_buffer.len=4",
            "data.max_response_length=20", "reward.overlong_buffer.penalty_factor=0.5" },
          4,
          "worker.reward.safe_length",
          "16" },
        { { "algorithm.overlong_buffer.enable=True", "algorithm.overlong_buffer.len=4",
            "data.max_response_length=20" },
          3,
          "worker.reward.len_reward_penalty",
          "1.0" },
        { { "reward_model.overlong_buffer.enable=True", "reward_model.overlong_buffer.len=4",
            "+reward_model.reward_kwargs.max_resp_len=10" },
          3,
          "worker.reward.max_length",
          "10" },
        { { "reward_model.overlong_buffer.enable=True", "reward_model.overlong_buffer.len=4",
            "+reward_model.reward_kwargs.max_resp_len=10", "data.max_response_length=20" },
          4,
          "worker.reward.max_length",
          "10" },
        { { "reward.overlong_buffer.enable=False", "reward.overlong_buffer.len=4" },
          2,
          "worker.reward.safe_length",
          NULL },
        { { "reward.correct=2" }, 1, "worker.reward.correct", "2" },
        { { "reward.incorrect=0" }, 1, "worker.reward.incorrect", "0" },
        { { "reward.scale=5" }, 1, "worker.reward.scale", "5" },
        { { "algorithm.over_length_action=drop" }, 1, "algorithm.over_length_action", "drop" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_train_config c;
        ares_config *cfg = read_words(&c, NULL, cases[i].words, cases[i].n, false);
        const char *is = ares_config_get_text(cfg, cases[i].path);
        CHECK_STR(faults_text(cfg), "");
        if (strcmp(cases[i].path, "worker.actor.loss_type") == 0) is = c.loss.loss_type;
        if (cases[i].value) CHECK_STR(is ? is : "(null)", cases[i].value);
        else CHECK_MSG(!is, "%s is %s", cases[i].path, is);
        check_stable(cfg);
        ares_config_free(cfg);
    }
}

/* Flags and whole numbers mean the same however YAML lets them be written. */
TEST(the_words_of_dapo_are_read_in_every_spelling)
{
    static const struct {
        const char *words[3];
        int n;
        const char *path, *value;
    } cases[] = {
        { { "worker.actor.entropy_coeff=0.01", "algorithm.calculate_entropy=FALSE" },
          2,
          "worker.actor.entropy_coeff",
          "0.0" },
        { { "algorithm.entropy_bonus=0.01", "algorithm.calculate_entropy=TRUE" },
          2,
          "worker.actor.entropy_coeff",
          "0.01" },
        { { "reward.overlong_buffer.enable=TRUE", "reward.overlong_buffer.len=0x4",
            "data.max_response_length=20.0" },
          3,
          "worker.reward.safe_length",
          "16" },
        { { "algorithm.n_minibatches=4.0", "data.rollout_batch_size=512" },
          2,
          "worker.actor.global_batch_size",
          "128" },
        { { "algorithm.use_valid_token_scale=TRUE" }, 1, "worker.actor.loss_norm", "global" },
        { { "algorithm.use_kl_in_reward=FALSE" }, 1, "algorithm.use_kl_in_reward", "false" },
        { { "algorithm.n_minibatches=0x4" }, 1, "worker.actor.global_batch_size", "128" },
        { { "algorithm.max_resample=5e0" }, 1, "algorithm.filter_groups.enable", "true" },
        { { "algorithm.max_resample=5", "algorithm.online_filtering=TRUE" },
          2,
          "algorithm.filter_groups.enable",
          "false" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_train_config c;
        ares_config *cfg = read_words(&c, NULL, cases[i].words, cases[i].n, false);
        const char *is = ares_config_get_text(cfg, cases[i].path);
        CHECK_STR(faults_text(cfg), "");
        CHECK_STR(is ? is : "(null)", cases[i].value);
        check_stable(cfg);
        ares_config_free(cfg);
    }
}

TEST(a_buffer_that_is_off_leaves_the_penalty_of_the_preset_out)
{
    ares_train_config c;
    static const char *const words[] = { "algorithm.name=dapo",
                                         "reward_model.overlong_buffer.enable=False" };
    ares_config *cfg = read_words(&c, NULL, words, 2, true);
    CHECK_STR(faults_text(cfg), "");
    CHECK_EQ(c.reward.safe_length, ARES_NULL_I64);
    CHECK_EQ(c.reward.max_length, ARES_NULL_I64);
    CHECK(ares_is_null_f64(c.reward.len_reward_penalty));
    check_stable(cfg);
    ares_config_free(cfg);
}

TEST(two_spellings_that_disagree_are_named)
{
    static const struct {
        const char *words[4];
        int n;
        const char *fault;
    } cases[] = {
        { { "algorithm.max_resample=3", "algorithm.dynamic_sampling.max_resample=5" },
          2,
          "algorithm.max_resample = 5 (written algorithm.dynamic_sampling.max_resample): set as "
          "algorithm.max_resample too" },
        { { "worker.actor.loss_type=default", "algorithm.loss_type=actor" },
          2,
          "worker.actor.loss_type = 'actor' (written algorithm.loss_type): set as "
          "worker.actor.loss_type too" },
        { { "algorithm.max_length=9", "reward.max_length=8" },
          2,
          "worker.reward.max_length = 8 (written reward.max_length): set as algorithm.max_length "
          "too" },
        { { "algorithm.n_minibatches=4", "worker.actor.global_batch_size=100" },
          2,
          "algorithm.n_minibatches = 4: makes mini-batches of 128 prompts, and "
          "worker.actor.global_batch_size = 100" },
        { { "algorithm.n_minibatches=3" },
          1,
          "algorithm.n_minibatches = 3: does not divide data.rollout_batch_size = 512" },
        { { "algorithm.max_resample=3", "algorithm.filter_groups.max_num_gen_batches=10" },
          2,
          "algorithm.max_resample = 3: is the limit of draws, less the first, and "
          "algorithm.filter_groups.max_num_gen_batches = 10" },
        { { "reward.overlong_buffer.enable=true", "reward.overlong_buffer.len=4",
            "algorithm.safe_length=5" },
          3,
          "worker.reward.overlong_buffer.enable = true (written reward.overlong_buffer.enable): "
          "algorithm.safe_length spells the same penalty" },
        { { "reward.overlong_buffer.enable=true" },
          1,
          "worker.reward.overlong_buffer.len = null: is not set" },
        { { "reward.overlong_buffer.len=4" }, 1, "worker.reward.overlong_buffer.enable" },
        { { "reward.overlong_buffer.enable=true", "reward.overlong_buffer.len=4000",
            "data.max_response_length=1000" },
          3,
          "must lie in 1 .. 1000" },
        { { "algorithm.n_minibatches=none" }, 1, "algorithm.n_minibatches" },
        { { "algorithm.name=dppo" }, 1, "did you mean 'dapo'" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_train_config c;
        ares_config *cfg = read_words(&c, NULL, cases[i].words, cases[i].n, false);
        CHECK_MSG(strstr(faults_text(cfg), cases[i].fault), "%s\n    is %s", cases[i].fault,
                  faults_text(cfg));
        ares_config_free(cfg);
    }
    /* A later layer is no contradiction. */
    ares_train_config c;
    static const char *const words[] = { "algorithm.n_minibatches=2" };
    ares_config *cfg =
        read_words(&c,
                   "data: {rollout_batch_size: 8}\nworker: {actor: {global_batch_size: "
                   "8}}\nalgorithm: {max_resample: 2}\n",
                   words, 1, false);
    CHECK_STR(faults_text(cfg), "");
    CHECK_EQ(c.actor.global_batch_size, 4);
    ares_config_free(cfg);
}

/* max_try_make_batch counts the first draw too, 0: no limit; max_resample does not, -1: no limit.
 */
TEST(a_limit_of_draws_in_its_two_spellings_is_one_and_the_later_one_counts)
{
    static const struct {
        const char *yaml, *word;
        int64_t resample, tries;
    } cases[] = {
        { "algorithm: {max_resample: 2}\n", "trainer.max_try_make_batch=9", 8, 9 },
        { "algorithm: {max_resample: 2}\n", "trainer.max_try_make_batch=1", 0, 1 },
        { "algorithm: {max_resample: 2}\n", "trainer.max_try_make_batch=0", -1, 0 },
        { "trainer: {max_try_make_batch: 9}\n", "algorithm.max_resample=2", 2, 3 },
        { "trainer: {max_try_make_batch: 9}\n", "algorithm.max_resample=0", 0, 1 },
        { "trainer: {max_try_make_batch: 9}\n", "algorithm.max_resample=-1", -1, 0 },
        { "trainer: {max_try_make_batch: 0}\nalgorithm: {max_resample: -1}\n", NULL, -1, 0 },
        { "trainer: {max_try_make_batch: 1}\nalgorithm: {max_resample: 0}\n", NULL, 0, 1 },
        { "trainer: {max_try_make_batch: 3}\nalgorithm: {max_resample: 2}\n", NULL, 2, 3 },
    };
    static const char *const apart[] = {
        "trainer: {max_try_make_batch: 0}\nalgorithm: {max_resample: 0}\n",
        "trainer: {max_try_make_batch: 3}\nalgorithm: {max_resample: -1}\n",
        "trainer: {max_try_make_batch: 3}\nalgorithm: {max_resample: 3}\n"
    };
    ares_train_config c;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_config *cfg =
            read_words(&c, cases[i].yaml, &cases[i].word, cases[i].word != NULL, false);
        CHECK_STR(faults_text(cfg), "");
        CHECK_EQ(c.filter.max_resample, cases[i].resample);
        CHECK_EQ(c.trainer.max_try_make_batch, cases[i].tries);
        CHECK(c.filter.informative);
        check_stable(cfg);
        ares_config_free(cfg);
    }
    for (int i = 0; i < ARES_COUNT(apart); i++) {
        ares_config *cfg = read_words(&c, apart[i], NULL, 0, false);
        CHECK_CONTAINS(faults_text(cfg),
                       "is the limit of draws, less the first, and trainer.max_try_make_batch");
        ares_config_free(cfg);
    }
}
