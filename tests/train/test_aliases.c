/* The names that other trainers give to options lead to the options of this program. */
#include "ares/train.h"
#include "faults.h"
#include "test.h"

#include "words.h"

#include <stdio.h>

extern const ares_config_alias train_aliases[];
extern const int train_alias_count;

static int64_t count_of(const char *help)
{
    int64_t n = 0;
    for (; *help; help++) n += *help == '\n';
    return n;
}

/*
 * ares_config_help knows options and sections; a trailing index is an item of a list, and keys of a
 * map, as those of env.definitions, are not known.
 */
static bool leads_somewhere(ares_config *cfg, const char *to)
{
    char path[256];
    snprintf(path, sizeof path, "%s", to);
    path[strcspn(path, "=")] = 0;
    char *any = strstr(path, ".?");
    if (any) *any = 0;
    size_t n = strlen(path);
    if (n > 2 && (strcmp(path + n - 2, ".*") == 0 || strcmp(path + n - 2, ".0") == 0 ||
                  strcmp(path + n - 2, ".1") == 0))
        path[n - 2] = 0;
    /* keys of a map that tables bind later */
    static const char *const maps[] = { "worker.rollout.val_override_config.", "eval.defaults." };
    for (int i = 0; i < ARES_COUNT(maps); i++)
        if (strncmp(path, maps[i], strlen(maps[i])) == 0) path[strlen(maps[i]) - 1] = 0;
    ares_str help = { 0 };
    bool ok = ares_config_help(cfg, path, &help) == ARES_OK && count_of(help.data) > 1;
    ares_str_fini(&help);
    return ok;
}

TEST(every_alias_leads_to_an_option_and_stands_once)
{
    ares_train_config c;
    ares_config *cfg = ares_config_new();
    ares_train_config_declare(cfg, &c);
    for (int i = 0; i < train_alias_count; i++) {
        const ares_config_alias *a = &train_aliases[i];
        for (int k = 0; k < i; k++)
            CHECK_MSG(strcmp(a->from, train_aliases[k].from) != 0 || train_aliases[k].when ||
                          a->when,
                      "%s", a->from);
        if (!a->to || !*a->to) {
            CHECK_MSG(a->note != NULL, "%s: says neither why nor what instead", a->from);
            continue;
        }
        char *list = ares_strdup(a->to), *rest = list;
        for (char *one; (one = strsep(&rest, "&"));)
            CHECK_MSG(strncmp(one, "x-", 2) == 0 || leads_somewhere(cfg, one), "%s -> %s", a->from,
                      one);
        ares_free(list);
    }
    ares_config_free(cfg);
}

/* Names of verl, EasyR1, RLinf, TRL and the curriculum's trainer, by the option that each sets. */
TEST(every_word_of_another_trainer_sets_the_option_that_means_the_same)
{
    static const struct {
        const char *option, *words;
    } cases[] = {
        { "algorithm.adv_estimator", "algorithm.adv_type" },
        { "algorithm.dynamic_sampling_filter", "dynamic_sampling_filter_path" },
        { "algorithm.filter_groups.enable", "algorithm.dynamic_sampling.enable" },
        { "algorithm.kl_horizon", "algorithm.kl_ctrl.horizon" },
        { "algorithm.kl_penalty", "algorithm.kl_penalty_type" },
        { "algorithm.kl_target", "algorithm.kl_ctrl.target_kl" },
        { "algorithm.kl_type", "algorithm.kl_ctrl.type" },
        { "algorithm.lam", "algorithm.gae_lambda" },
        { "algorithm.norm_adv_by_std_in_grpo", "scale_rewards" },
        { "algorithm.on_exhausted", "algorithm.dynamic_sampling.on_exhausted" },
        { "algorithm.use_kl_loss", "actor_rollout_ref.actor.use_kl_loss" },
        { "data.answer_key", "label_key" },
        { "data.apply_chat_template", "apply_chat_template" },
        { "data.max_prompt_length",
          "actor_rollout_ref.rollout.prompt_length max_prompt_length rollout_max_prompt_len" },
        { "data.max_response_length",
          "actor_rollout_ref.rollout.response_length algorithm.sampling_params.max_new_tokens "
          "max_completion_length rollout_max_response_len" },
        { "data.mini_rollout_batch_size", "data.gen_batch_size algorithm.gen_batch_size "
                                          "algorithm.dynamic_sampling.gen_batch_size" },
        { "curriculum.over_sampling_batch_size", "over_sampling_batch_size" },
        { "data.prompt_key", "input_key" },
        { "data.rollout_batch_size", "data.train_batch_size rollout_batch_size" },
        { "data.seed", "seed rollout_seed" },
        { "data.shuffle", "rollout_shuffle" },
        { "trainer.balance_batch", "balance_data" },
        { "trainer.experiment_name", "run_name" },
        { "trainer.max_steps",
          "trainer.total_training_steps runner.max_steps max_steps num_rollout" },
        { "trainer.max_try_make_batch", "algorithm.filter_groups.max_num_gen_batches" },
        { "trainer.run_dir", "trainer.default_local_dir output_dir" },
        { "trainer.save_freq", "runner.save_interval save_steps save_interval" },
        { "trainer.save_limit", "trainer.max_actor_ckpt_to_keep save_total_limit" },
        { "trainer.total_epochs", "runner.max_epochs num_train_epochs num_epoch" },
        { "trainer.val_freq",
          "trainer.test_freq runner.val_check_interval eval_steps eval_interval" },
        { "trainer.val_generations_to_log", "trainer.log_val_generations" },
        { "worker.actor.clip_cov_ratio", "actor_rollout_ref.actor.policy_loss.clip_cov_ratio" },
        { "worker.actor.clip_ratio_dual",
          "actor_rollout_ref.actor.clip_ratio_c algorithm.clip_ratio_c delta" },
        { "worker.actor.clip_ratio_high",
          "actor_rollout_ref.actor.clip_ratio algorithm.clip_ratio_high "
          "algorithm.ratio_clip_eps epsilon epsilon_high" },
        { "worker.actor.clip_ratio_low",
          "actor_rollout_ref.actor.clip_ratio algorithm.clip_ratio_low algorithm.ratio_clip_eps "
          "epsilon epsilon_low" },
        { "worker.actor.early_stop_imp_ratio", "algorithm.early_stop_imp_ratio" },
        { "worker.actor.global_batch_size",
          "actor_rollout_ref.actor.ppo_mini_batch_size ppo_mini_batch_size" },
        { "worker.actor.loss_avg_mode",
          "actor_rollout_ref.actor.loss_agg_mode worker.actor.loss_agg_mode "
          "algorithm.loss_agg_func" },
        { "worker.actor.loss_norm",
          "actor_rollout_ref.actor.loss_agg_scope worker.actor.loss_agg_scope" },
        { "worker.actor.loss_type",
          "actor_rollout_ref.actor.policy_loss.loss_mode algorithm.loss_type" },
        { "worker.actor.max_grad_norm",
          "actor_rollout_ref.actor.grad_clip actor.optim.clip_grad max_grad_norm" },
        { "worker.actor.max_token_len_per_device",
          "actor_rollout_ref.actor.ppo_max_token_len_per_gpu max_tokens_per_gpu" },
        { "worker.actor.micro_batch_size_per_device_for_update",
          "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu micro_batch_size_per_gpu "
          "actor.micro_batch_size" },
        { "worker.actor.model.enable_gradient_checkpointing", "gradient_checkpointing" },
        { "worker.actor.model.model_path",
          "actor_rollout_ref.model.path model_path model_name_or_path hf_checkpoint" },
        { "worker.actor.model.tokenizer_path",
          "data.tokenizer actor_rollout_ref.model.tokenizer_path" },
        { "worker.actor.optim.betas.0", "actor.optim.adam_beta1 adam_beta1" },
        { "worker.actor.optim.betas.1", "actor.optim.adam_beta2 adam_beta2" },
        { "worker.actor.optim.eps", "adam_epsilon" },
        { "worker.actor.optim.lr",
          "actor.optim.lr learning_rate actor_rollout_ref.actor.optim.lr" },
        { "worker.actor.optim.lr_scheduler_type",
          "worker.actor.optim.warmup_style actor_rollout_ref.actor.optim.warmup_style "
          "lr_scheduler_type" },
        { "worker.actor.optim.lr_warmup_ratio",
          "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio warmup_ratio" },
        { "worker.actor.optim.lr_warmup_steps", "warmup_steps" },
        { "worker.actor.optim.weight_decay", "actor.optim.weight_decay weight_decay" },
        { "worker.actor.ppo_epochs", "num_iterations actor_rollout_ref.actor.ppo_epochs" },
        { "worker.actor.recompute_log_probs", "algorithm.recompute_logprobs" },
        { "worker.actor.rollout_is",
          "algorithm.rollout_correction.rollout_is algorithm.rollout_is" },
        { "worker.actor.rollout_is_mode", "algorithm.rollout_is_mode" },
        { "worker.actor.rollout_is_threshold",
          "algorithm.rollout_correction.rollout_is_threshold algorithm.rollout_is_threshold" },
        { "worker.actor.rollout_is_threshold_lower", "algorithm.rollout_is_threshold_lower" },
        { "worker.actor.shuffle", "algorithm.shuffle_rollout" },
        { "worker.actor.tau_negative", "actor_rollout_ref.actor.tau_neg" },
        { "worker.actor.tau_positive", "actor_rollout_ref.actor.tau_pos" },
        { "worker.actor.ulysses_size", "actor_rollout_ref.actor.ulysses_sequence_parallel_size" },
        { "worker.actor.valid_token_scope", "algorithm.valid_token_scope" },
        { "worker.critic.optim.lr_scheduler_type", "worker.critic.optim.warmup_style" },
        { "worker.hybrid_engine", "actor_rollout_ref.hybrid_engine" },
        { "worker.ref.ulysses_size", "actor_rollout_ref.ref.ulysses_sequence_parallel_size "
                                     "actor_rollout_ref.ref.ulysses_size" },
        { "worker.reward.correct", "reward.correct" },
        { "worker.reward.incorrect", "reward.incorrect" },
        { "worker.reward.len_reward_penalty",
          "algorithm.len_reward_penalty reward.len_reward_penalty" },
        { "worker.reward.max_length", "algorithm.max_length reward.max_length" },
        { "worker.reward.safe_length", "algorithm.safe_length reward.safe_length" },
        { "worker.reward.scale", "reward.scale reward.reward_scale" },
        { "worker.reward.skip_special_tokens", "rollout_skip_special_tokens" },
        { "worker.rollout.n", "algorithm.group_size num_generations n_samples_per_prompt "
                              "actor_rollout_ref.rollout.n" },
        { "worker.rollout.seed", "seed rollout_seed" },
        { "worker.rollout.stop", "rollout_stop" },
        { "worker.rollout.stop_token_ids", "rollout_stop_token_ids" },
        { "worker.rollout.temperature",
          "algorithm.sampling_params.temperature temperature rollout_temperature "
          "actor_rollout_ref.rollout.temperature" },
        { "worker.rollout.tensor_parallel_size",
          "actor_rollout_ref.rollout.tensor_model_parallel_size" },
        { "worker.rollout.top_k", "algorithm.sampling_params.top_k top_k rollout_top_k" },
        { "worker.rollout.top_p", "algorithm.sampling_params.top_p top_p rollout_top_p" },
    };
    const char *at[ARES_COUNT(cases)], *now[ARES_COUNT(cases)];
    int left = ARES_COUNT(cases);
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < ARES_COUNT(cases); i++) at[i] = cases[i].words;
    while (left) { /* one word of each option at a time */
        ares_train_config c;
        ares_config *cfg = ares_config_new();
        char word[128];
        left = 0;
        ares_train_config_declare(cfg, &c);
        for (int i = 0; i < ARES_COUNT(cases); i++) {
            now[i] = at[i];
            if (!*at[i]) continue;
            int n = (int)strcspn(at[i], " ");
            snprintf(word, sizeof word, "%.*s=7", n, at[i]);
            ares_config_override(cfg, word);
            at[i] += n + (at[i][n] == ' ');
            left += *at[i] != 0;
        }
        ares_config_resolve(cfg);
        for (int i = 0; i < ARES_COUNT(cases); i++) {
            if (!*now[i]) continue;
            const char *is = ares_config_get_text(cfg, cases[i].option);
            CHECK_MSG(is && strcmp(is, "7") == 0, "%.*s=7: %s is %s", (int)strcspn(now[i], " "),
                      now[i], cases[i].option, is ? is : "not set");
        }
        ares_config_free(cfg);
    }
}

/* ---------------------------------------------------------------- all words, by what they mean */
/* Sets the words of a text in this order or the reverse one. */
static void set_words(ares_config *cfg, const char *words, bool reverse)
{
    char *text = ares_strdup(words), *word[32], *rest = text;
    int n = 0;
    for (char *one; (one = strsep(&rest, " "));) {
        ARES_ASSERT(n < ARES_COUNT(word));
        if (*one) word[n++] = one;
    }
    for (int i = 0; i < n; i++) ares_config_override(cfg, word[reverse ? n - 1 - i : i]);
    ares_free(text);
}

/* Of the trainers whose words the text has, the defaults of options that nothing has set. */
static void set_defaults(ares_config *cfg, const char *words)
{
    char path[128];
    for (int i = 0; i < ARES_COUNT(trainers); i++) {
        bool used = false;
        for (const char *at = words; *at; at += strcspn(at, " "), at += *at == ' ')
            used = used || strncmp(at, trainers[i].mark, strlen(trainers[i].mark)) == 0;
        const char *when = trainers[i].when;
        if (!used || (when && !strstr(words, when))) continue;
        snprintf(path, sizeof path, "%.*s", (int)strcspn(trainers[i].own, "="), trainers[i].own);
        if (!ares_config_is_set(cfg, path)) ares_config_override(cfg, trainers[i].own);
    }
}

/* Every option as it is then; *faults of them. with: also the defaults of the words of this text */
static ares_str options_of(const char *words, const char *with, bool reverse, int *faults)
{
    ares_train_config c;
    ares_config *cfg = ares_config_new();
    ares_str out = { 0 };
    ares_train_config_declare(cfg, &c);
    set_words(cfg, words, reverse);
    if (with) set_defaults(cfg, with);
    ares_config_resolve(cfg);
    *faults = ares_config_fault_count(cfg);
    ares_config_print(cfg, &out);
    ares_config_free(cfg);
    return out;
}

/* Words are to mean what other ones do: every option is compared. */
static void check_options(const char *words, const char *own, bool reverse)
{
    int faults, same;
    ares_str have = options_of(words, NULL, reverse, &faults),
             want = options_of(own, words, reverse, &same);
    const char *a = have.data, *b = want.data;
    while (*a && *a == *b) a++, b++;
    while (a > have.data && a[-1] != '\n') a--, b--; /* the line that differs */
    CHECK_MSG(strcmp(a, b) == 0 && faults == same,
              "%s%s: '%.*s', which means '%.*s' (faults: %d, %d)", words,
              reverse ? ", in reverse" : "", (int)strcspn(a, "\n"), a, (int)strcspn(b, "\n"), b,
              faults, same);
    ares_str_fini(&have);
    ares_str_fini(&want);
}

static bool several(const char *line)
{
    return strchr(line, ' ') != NULL;
}

/* Whether two texts of our own words set an option in common. */
static bool meet(const char *a, const char *b)
{
    for (const char *one = a; *one; one += strcspn(one, " "), one += *one == ' ')
        for (const char *two = b; *two; two += strcspn(two, " "), two += *two == ' ') {
            size_t n = strcspn(one, "="), m = strcspn(two, "=");
            if (n && n == m && memcmp(one, two, n) == 0) return true;
        }
    return false;
}

/*
 * Alone, and up to six lines beside each other in both orders. Seen to fail with one bound for
 * eps_clip, with the seed of training for seed.val, and with one value of skip_eval_before_train.
 */
TEST(words_mean_what_the_trainers_they_come_from_say_alone_and_beside_their_neighbours)
{
    enum { BESIDE = 6 };
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0, first = 0; i < ARES_COUNT(meanings); i++) {
        const meaning *x = &meanings[i];
        ares_str words = { 0 }, own = { 0 };
        bool ends = i + 1 == ARES_COUNT(meanings);
        check_options(x->words, x->own, false);
        if (several(x->words)) check_options(x->words, x->own, true);
        for (int k = first; k <= i; k++) {
            ares_str_addf(&words, "%s ", meanings[k].words);
            ares_str_addf(&own, "%s ", meanings[k].own);
        }
        if (ends || i + 1 - first == BESIDE || several(x->words) || several(x[1].words) ||
            meet(own.data, x[1].own)) {
            for (int reverse = 0; reverse < 2 && i > first; reverse++)
                check_options(words.data, own.data, reverse);
            first = i + 1;
        }
        ares_str_fini(&words);
        ares_str_fini(&own);
    }
}

/* Whether a line sets the word, to the value where that is not NULL. */
static bool stands(const char *word, size_t n, bool section, const char *value)
{
    for (int i = 0; i < ARES_COUNT(meanings); i++)
        for (const char *at = meanings[i].words; *at; at += strcspn(at, " "), at += *at == ' ') {
            size_t k = 0, len = strcspn(at, "=");
            const char *w = word, *end = word + n;
            for (; w < end && k < len; w++) /* ? is any one key */
                if (*w == '?') k += strcspn(at + k, ".=");
                else if (*w != at[k++]) break;
            if (w < end || (section ? at[k] != '.' : k != len)) continue;
            at += len + 1;
            if (!value || (strcspn(at, " ") == strlen(value) && !memcmp(at, value, strlen(value))))
                return true;
        }
    return false;
}

TEST(every_word_stands_in_the_table_of_meanings_and_truth_values_with_both)
{
    for (int i = 0; i < train_alias_count; i++) {
        const ares_config_alias *a = &train_aliases[i];
        size_t n = strlen(a->from);
        bool section = n > 2 && strcmp(a->from + n - 2, ".*") == 0,
             of_value = a->when && *a->when == '=';
        if (!a->to || (!*a->to && !of_value)) continue; /* refused or ignored: e2e */
        const char *values = of_value ? a->when + 1 : "";
        do { /* each of the values that | stands between */
            size_t len = strcspn(values, "|"), star = *values == '*';
            char value[128] = "";
            for (size_t k = star, n = 0; k < len; k++) /* words have no spaces */
                if (values[k] != ' ' && n + 1 < sizeof value) value[n++] = values[k];
            CHECK_MSG(stands(a->from, section ? n - 2 : n, section, of_value ? value : NULL),
                      "%s%s%s stands in no line of words.h", a->from, of_value ? "=" : "", value);
            values += len + (values[len] == '|');
        } while (*values);
    }
    for (int i = 0; i < ARES_COUNT(meanings); i++) {
        const char *words = meanings[i].words, *value = strchr(words, '=') + 1;
        bool yes = strcmp(value, "true") == 0, no = strcmp(value, "false") == 0;
        if (several(words) || !*meanings[i].own || (!yes && !no)) continue;
        size_t n = (size_t)(value - 1 - words);
        CHECK_MSG(stands(words, n, false, yes ? "false" : "true"), "%s stands with one value",
                  words);
    }
}

TEST(a_verl_command_line_is_understood)
{
    static const char *const argv[] = {
        "algorithm.adv_estimator=grpo",
        "data.train_files=[train.jsonl]",
        "data.train_batch_size=128",
        "actor_rollout_ref.model.path=m",
        "actor_rollout_ref.actor.optim.lr=2e-6",
        "actor_rollout_ref.model.use_remove_padding=True",
        "actor_rollout_ref.actor.ppo_mini_batch_size=64",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.actor.kl_loss_coef=0.002",
        "actor_rollout_ref.actor.clip_ratio=0.1",
        "actor_rollout_ref.actor.clip_ratio_high=0.28",
        "actor_rollout_ref.actor.fsdp_config.param_offload=False",
        "actor_rollout_ref.actor.fsdp_config.fsdp_size=2",
        "actor_rollout_ref.ref.fsdp_config.fsdp_size=4",
        "critic.model.fsdp_config.fsdp_size=1",
        "actor_rollout_ref.rollout.n=5",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.rollout.response_length=77",
        "trainer.total_training_steps=9",
        "actor_rollout_ref.actor.optim.betas.1=0.95",
        "trainer.n_gpus_per_node=8",
        "trainer.test_freq=5",
    };
    ares_train_config c;
    ares_log_set(ARES_LOG_ERROR, 0);
    ares_config *cfg = ares_config_new();
    ares_train_config_declare(cfg, &c);
    ares_config_read_args(cfg, ARES_COUNT(argv), argv);
    ares_config_resolve(cfg);
    CHECK_OK(ares_config_finish(cfg));
    CHECK_STR(c.actor.model_path, "m");
    CHECK_EQ(c.data.rollout_batch_size, 128);
    CHECK_EQ(c.actor.global_batch_size, 64);
    CHECK_EQ(c.actor.micro_batch_size, 4);
    CHECK_EQ(c.actor.fsdp_size, 2);
    CHECK_EQ(c.ref.fsdp_size, 4);
    CHECK_EQ(c.critic.fsdp_size, 1);
    CHECK_NEAR(c.optim.lr, 2e-6, 0);
    CHECK_NEAR(c.optim.betas.items[1], 0.95, 0);
    CHECK_NEAR(c.algorithm.kl_coef, 0.002, 0);
    CHECK(c.algorithm.use_kl_loss);
    CHECK_NEAR(c.loss.clip_ratio_low, 0.1, 0);
    CHECK_NEAR(c.loss.clip_ratio_high, 0.28, 0);
    CHECK_EQ(c.rollout.n, 5);
    CHECK_EQ(c.data.max_response_length, 77);
    CHECK_EQ(c.trainer.max_steps, 9);
    CHECK_EQ(c.trainer.val_freq, 5);
    ares_config_free(cfg);
}

/* Of TRL it is the weight of the KL in the loss, which a file that names no model does not tell. */
TEST(a_trl_file_is_understood_and_beta_needs_its_meaning)
{
    static const char yaml[] = "num_generations: 8\nepsilon: "
                               "0.2\nepsilon_high: 0.28\nlearning_rate: 1e-5\n"
                               "adam_beta2: 0.99\nseed: 7\n\nbeta: 0.04\n";
    for (int kl = 0; kl < 3; kl++) {
        ares_train_config c;
        ares_config *cfg = ares_config_new();
        ares_train_config_declare(cfg, &c);
        ares_config_load_text(cfg, "trl.yaml", ares_view_of(yaml));
        ares_config_override(cfg,
                             kl == 2 ? "model_name_or_path=m" : "worker.actor.model.model_path=m");
        if (kl == 1) ares_config_override(cfg, "algorithm.use_kl_loss=True");
        ares_config_resolve(cfg);
        if (kl) CHECK_OK(ares_config_finish(cfg));
        else
            CHECK_FAIL(ares_config_finish(cfg), ARES_ECONFIG,
                       "config: trl.yaml:8: beta = 0.04: not accepted: beta weighs");
        if (kl) CHECK_NEAR(c.algorithm.kl_coef, 0.04, 0);
        CHECK_EQ(c.rollout.n, 8);
        CHECK_NEAR(c.loss.clip_ratio_low, 0.2, 0);
        CHECK_NEAR(c.loss.clip_ratio_high, 0.28, 0);
        CHECK_NEAR(c.optim.betas.items[0], 0.9, 0);
        CHECK_NEAR(c.optim.betas.items[1], 0.99, 0);
        CHECK_EQ(c.rollout.seed + c.data.seed, 14);
        ares_config_free(cfg);
    }
}

TEST(words_of_losses_are_understood)
{
    static const char *const argv[] = {
        "data.train_files=[train.jsonl]",
        "worker.actor.model.model_path=m",
        "actor_rollout_ref.actor.policy_loss.loss_mode=geo_mean",
        "actor_rollout_ref.actor.policy_loss.clip_cov_ratio=0.01",
        "algorithm.kl_penalty=low-var-kl+",
        "algorithm.use_valid_token_scale=False",
        "algorithm.early_stop_imp_ratio=5.0",
        "algorithm.rollout_correction.rollout_is=sequence",
        "algorithm.loss_agg_func=token-mean",
    };
    ares_train_config c;
    ares_config *cfg = ares_config_new();
    ares_train_config_declare(cfg, &c);
    ares_config_read_args(cfg, ARES_COUNT(argv), argv);
    ares_config_resolve(cfg);
    CHECK_STR(faults_text(cfg), "");
    CHECK_STR(c.loss.loss_type, "gmpo");
    CHECK_NEAR(c.loss.clip_cov_ratio, 0.01, 0);
    CHECK_STR(c.algorithm.kl_penalty, "low_var_kl+");
    CHECK_STR(c.loss.loss_norm, "micro");
    CHECK_STR(c.loss.rollout_is, "sequence");
    CHECK_NEAR(c.loss.early_stop_imp_ratio, 5, 0);
    CHECK(ares_is_null_f64(c.loss.clip_ratio_dual) && ares_is_null_f64(c.loss.loss_scale_factor));
    ares_config_free(cfg);
}

static int count_faults(const char *const *extra, int n, const char *option)
{
    const char *argv[12] = { "data.train_files=[train.jsonl]", "worker.actor.model.model_path=m",
                             "worker.rollout.n=4", "worker.reward.rewards=[{name: exact}]" };
    ares_train_config c;
    ares_config *cfg = ares_config_new();
    for (int i = 0; i < n; i++) argv[4 + i] = extra[i];
    ares_train_config_declare(cfg, &c);
    ares_config_read_args(cfg, 4 + n, argv);
    ares_config_resolve(cfg);
    (void)ares_train_config_check(cfg, &c, 1);
    int found = faults_with(cfg, option);
    ares_config_free(cfg);
    return found;
}

TEST(combinations_of_losses_that_mean_nothing_are_refused)
{
    static const struct {
        const char *words[3];
        int n;
        const char *option;
    } wrong[] = {
        { { "worker.actor.clip_ratio_dual=1.2" }, 1, "clip_ratio_dual" },
        { { "worker.actor.clip_ratio_dual=0.5" }, 1, "clip_ratio_dual" },
        { { "worker.actor.clip_ratio_high=4" }, 1, "clip_ratio_dual" },
        { { "worker.actor.loss_type=clip_cov", "worker.actor.clip_cov_lb=6" }, 2, "clip_cov_lb" },
        { { "worker.actor.loss_type=clip_cov", "worker.actor.clip_cov_lb=5" }, 2, "clip_cov_lb" },
        { { "worker.actor.loss_type=kl_cov", "worker.actor.early_stop_imp_ratio=5",
            "worker.actor.early_stop_scope=micro" },
          3,
          "the loss kl_cov is of the mini-batch as a whole" },
        { { "algorithm.importance_sampling_fix=true", "worker.actor.rollout_is=token" },
          2,
          "the same difference of rollout and trainer as worker.actor.rollout_is = 'token'" },
        { { "trainer.critic_warmup=1" }, 1, "grpo has no critic" },
        { { "worker.rollout.n=1", "algorithm.adv_estimator=remax",
            "worker.rollout.rollout_filter_value=0.5" },
          3,
          "one answer has no deviation; set worker.rollout.n to 2 or more" },
        { { "worker.actor.early_stop_imp_ratio=1" }, 1, "early_stop_imp_ratio" },
        { { "worker.actor.loss_norm=micro" },
          1,
          "set worker.actor.micro_batch_size_per_device_for_update" },
        { { "algorithm.use_valid_token_scale=False" },
          1,
          "set worker.actor.micro_batch_size_per_device_for_update" },
        { { "worker.actor.early_stop_imp_ratio=5", "worker.actor.early_stop_scope=micro" },
          2,
          "set worker.actor.micro_batch_size" },
        { { "worker.actor.rollout_is=token", "worker.actor.rollout_is_mode=mask",
            "worker.actor.rollout_is_threshold_lower=3" },
          3,
          "rollout_is_threshold_lower" },
        { { "worker.actor.rollout_rs=token_k1" },
          1,
          "nothing says where rejection begins; set worker.actor.rollout_rs_threshold" },
        { { "worker.actor.rollout_rs=token_k4", "worker.actor.rollout_rs_threshold=2" },
          2,
          "'token_k4': unknown (choices: token_k1, token_k2" },
        { { "worker.actor.rollout_rs=token_k1,token_k1", "worker.actor.rollout_rs_threshold=2" },
          2,
          "'token_k1' stands there twice" },
        { { "worker.actor.rollout_rs=token_k2", "worker.actor.rollout_rs_threshold=0.5_2" },
          2,
          "'0.5_2': token_k2 takes one number; write 2" },
        { { "worker.actor.rollout_rs=geometric", "worker.actor.rollout_rs_threshold=0.5_2" },
          2,
          "'0.5_2': geometric takes one number; write 2" },
        { { "worker.actor.rollout_rs=token_k1", "worker.actor.rollout_rs_threshold=2_0.5" },
          2,
          "'2_0.5': token_k1 takes a number above 0, or two as in 0.5_2.0" },
        { { "worker.actor.rollout_rs=token_k1", "worker.actor.rollout_rs_threshold=0.5" },
          2,
          "its smallest ratio, 2, lies above the largest, 0.5" },
        { { "worker.actor.rollout_rs=token_k2,token_k3,seq_max_k2",
            "worker.actor.rollout_rs_threshold=2,3" },
          2,
          "'2,3' has none for seq_max_k2; give one for all, or one for each" },
        { { "worker.actor.rollout_rs=token_k2", "worker.actor.rollout_rs_threshold=2,3" },
          2,
          "'2,3' has more than the 1 of rollout_rs" },
        { { "algorithm.rollout_correction.bypass_mode=true",
            "algorithm.rollout_correction.rollout_rs=token_k1",
            "algorithm.rollout_correction.rollout_rs_threshold=2" },
          3,
          "bypass_mode=false, which rejects once a step" },
    };
    static const struct {
        const char *words[3];
        int n;
        const char *option;
    } right[] = {
        { { "worker.actor.loss_type=cispo", "worker.actor.clip_ratio_low=1",
            "worker.actor.clip_ratio_high=4" },
          3,
          "clip_ratio" },
        { { "worker.actor.loss_type=dapo", "worker.actor.clip_ratio_high=4" }, 2, "clip_ratio" },
        { { "worker.actor.loss_type=clip_cov" }, 1, "clip_cov_lb" },
        { { "algorithm.kl_penalty=full" }, 1, "kl_penalty" },
        { { "worker.actor.loss_norm=micro", "actor.micro_batch_size=8" }, 2, "micro" },
        { { "worker.actor.early_stop_scope=micro" }, 1, "micro" },
        { { "algorithm.kl_penalty=full", "trainer.device=cuda" }, 2, "kl_penalty" },
        { { "algorithm.kl_penalty=full", "algorithm.disable_kl=true" },
          2,
          "kl_penalty" }, /* no KL: whichever estimator */
        { { "algorithm.kl_penalty=full", "algorithm.kl_coef=0" }, 2, "kl_penalty" },
        { { "algorithm.use_kl_loss=true", "algorithm.kl_coef=0", "algorithm.disable_kl=true" },
          3,
          "use_kl_loss" },
        { { "worker.actor.loss_type=kl_cov", "worker.actor.early_stop_imp_ratio=5" },
          2,
          "early_stop" },
        { { "trainer.critic_warmup=1", "algorithm.adv_estimator=gae" }, 2, "critic_warmup" },
        { { "trainer.critic_warmup=1", "trainer.val_only=true" }, 2, "critic_warmup" },
        { { "worker.rollout.n=1", "algorithm.adv_estimator=remax",
            "worker.rollout.rollout_filter_strategy=none" },
          3,
          "deviation" },
    };
    for (int i = 0; i < ARES_COUNT(wrong); i++)
        CHECK_MSG(count_faults(wrong[i].words, wrong[i].n, wrong[i].option) > 0,
                  "%s is let through", wrong[i].words[wrong[i].n - 1]);
    for (int i = 0; i < ARES_COUNT(right); i++)
        CHECK_MSG(count_faults(right[i].words, right[i].n, right[i].option) == 0, "%s is refused",
                  right[i].words[right[i].n - 1]);
}

TEST(a_kl_in_two_places_or_by_two_dialects_is_refused)
{
#define ACTOR_OF_VERL "actor_rollout_ref.actor."
    static const struct {
        const char *words[4];
        int n;
        const char *says;
    } wrong[] = {
        { { "algorithm.use_kl_loss=true", "algorithm.use_kl_in_reward=true" },
          2,
          "acts in one place only" },
        { { ACTOR_OF_VERL "use_kl_loss=True", "algorithm.use_kl_in_reward=True" },
          2,
          "acts in one place only" },
        { { "algorithm.kl_beta=0.1", "algorithm.use_kl_in_reward=true" },
          2,
          "acts in one place only" },
        { { "algorithm.kl_beta=0.1", "algorithm.use_kl_loss=false" },
          2,
          "algorithm.kl_beta = 0.1 is the weight of a term of the loss" },
        { { "algorithm.kl_beta=0.1", ACTOR_OF_VERL "use_kl_loss=False" },
          2,
          "algorithm.kl_beta = 0.1 is the weight of a term of the loss" },
        { { "algorithm.use_kl_in_reward=maybe" }, 1, "unknown" },
    };
    static const struct {
        const char *words[4];
        int n;
    } right[] = {
        { { "algorithm.kl_beta=0.1" }, 1 },
        /* EasyR1's recipes, whose base file has a KL; there disable_kl wins */
        { { "algorithm.use_kl_loss=true", "algorithm.disable_kl=true" }, 2 },
        { { "algorithm.kl_beta=0.1", "algorithm.disable_kl=true" }, 2 },
        { { "algorithm.use_kl_in_reward=true", "algorithm.disable_kl=true" }, 2 },
        { { "algorithm.kl_beta=0", "algorithm.use_kl_loss=false" }, 2 },
        { { "algorithm.kl_beta=0.0", "algorithm.disable_kl=true" }, 2 },
        { { "algorithm.use_kl_in_reward=false", "algorithm.disable_kl=true" }, 2 },
        { { "algorithm.use_kl_in_reward=true", "algorithm.use_kl_loss=false" }, 2 },
        { { ACTOR_OF_VERL "use_kl_loss=True", "algorithm.use_kl_in_reward=False" }, 2 },
    };
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < ARES_COUNT(wrong); i++)
        CHECK_MSG(count_faults(wrong[i].words, wrong[i].n, wrong[i].says) == 1,
                  "%s with %s is let through", wrong[i].words[0],
                  wrong[i].n > 1 ? wrong[i].words[1] : "");
    for (int i = 0; i < ARES_COUNT(right); i++)
        CHECK_MSG(count_faults(right[i].words, right[i].n, "config:") == 0, "%s with %s is refused",
                  right[i].words[0], right[i].n > 1 ? right[i].words[1] : "");
}

TEST(verls_two_coefficients_in_one_file_are_each_that_of_its_place)
{
    static const struct {
        const char *yaml, *word;
        double coef;
        ares_kl_place place;
    } cases[] = {
        { "actor_rollout_ref: {actor: {use_kl_loss: True, kl_loss_coef: 0.02, kl_loss_type: "
          "k2}}\nalgorithm: {use_kl_in_reward: False, kl_ctrl: {type: fixed, kl_coef: 0.0}}\n",
          NULL, 0.02, ARES_KL_IN_LOSS },
        { "algorithm: {use_kl_in_reward: True, kl_ctrl: {kl_coef: 0.03}}\nactor_rollout_ref: "
          "{actor: {use_kl_loss: False, kl_loss_coef: 0.02}}\n",
          NULL, 0.03, ARES_KL_IN_REWARD },
        { "algorithm: {use_kl_in_reward: True}\n", "actor_rollout_ref.actor.use_kl_loss=False",
          1e-3, ARES_KL_IN_REWARD },
        { "algorithm: {use_kl_in_reward: null, use_kl_loss: false}\n",
          "actor_rollout_ref.actor.use_kl_loss=False", 1e-3, ARES_KL_NOWHERE },
        { "actor_rollout_ref: {actor: {use_kl_loss: False, kl_loss_coef: 0.02}}\n",
          "actor_rollout_ref.actor.use_kl_loss=True", 0.02, ARES_KL_IN_LOSS },
        { "actor_rollout_ref: {actor: {use_kl_loss: True, kl_loss_coef: 0.02}}\n",
          "actor_rollout_ref.actor.kl_loss_coef=0.05", 0.05, ARES_KL_IN_LOSS },
        { "actor_rollout_ref: {actor: {use_kl_loss: True, kl_loss_coef: 0.02}}\n",
          "algorithm.kl_coef=0", 0, ARES_KL_NOWHERE },
        { "actor_rollout_ref: {actor: {use_kl_loss: True, kl_loss_coef: 0.02}}\n",
          "~actor_rollout_ref.actor.kl_loss_coef", 1e-3, ARES_KL_IN_LOSS },
        { "algorithm: {use_kl_loss: true, kl_coef: 0.02}\n", "algorithm.kl_ctrl.kl_coef=0", 0,
          ARES_KL_NOWHERE },
        { "algorithm: {use_kl_loss: true, kl_coef: 0.02}\n",
          "actor_rollout_ref.actor.kl_loss_coef=0.05", 0.05, ARES_KL_IN_LOSS },
        { "algorithm: {kl_beta: 0.02}\n", "~algorithm.kl_beta", 1e-3, ARES_KL_IN_REWARD },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_train_config c;
        ares_config *cfg = ares_config_new();
        ares_train_config_declare(cfg, &c);
        ares_config_load_text(cfg, "verl.yaml", ares_view_of(cases[i].yaml));
        ares_config_override(cfg, "worker.actor.model.model_path=m");
        if (cases[i].word) ares_config_override(cfg, cases[i].word);
        ares_config_resolve(cfg);
        CHECK_OK(ares_config_finish(cfg));
        CHECK_MSG(c.algorithm.kl_coef == cases[i].coef &&
                      ares_kl_acts(&c.algorithm) == cases[i].place,
                  "%s, then %s: coefficient %g, place %d", cases[i].yaml,
                  cases[i].word ? cases[i].word : "nothing", c.algorithm.kl_coef,
                  ares_kl_acts(&c.algorithm));
        ares_config_free(cfg);
    }
    ares_train_config c;
    ares_config *cfg = ares_config_new();
    ares_train_config_declare(cfg, &c);
    ares_config_load_text(
        cfg, "verl.yaml",
        ares_view_of("worker: {actor: {model: {model_path: m}}}\nalgorithm: {use_kl_loss: true, "
                     "kl_coef: 0.02}\nactor_rollout_ref: {actor: {kl_loss_coef: 0.02}}\n"));
    ares_config_resolve(cfg);
    CHECK_FAIL(ares_config_finish(cfg), ARES_ECONFIG,
               "verl.yaml:3: actor_rollout_ref.actor.kl_loss_coef = 0.02: means algorithm.kl_coef "
               "here, which is set as well; keep one");
    ares_config_free(cfg);
}
