/*
 * The published recipes of DAPO with a tiny model, its data and fewer prompts: they pass --check,
 * train, and the resolved configuration shows what each of their options does.
 */
#include "ares/train.h"
#include "e2e.h"

#include <stdio.h>

/* What a test must replace: sizes and machines. Model and data are in files(). */
#define SMALL(prompt, response)                                                             \
    "data.max_prompt_length=" prompt " data.max_response_length=" response                  \
    " data.train_batch_size=4 actor_rollout_ref.rollout.n=4 "                               \
    "actor_rollout_ref.actor.ppo_mini_batch_size=2 data.val_batch_size=8 trainer.nnodes=1 " \
    "trainer.n_gpus_per_node=1 trainer.total_training_steps=2 trainer.test_freq=-1 "        \
    "trainer.val_before_train=False "
/*
 * volcengine/verl, recipe/dapo/run_dapo_qwen2.5_32b.sh as published, except that values which count
 * tokens are scaled.
 */
#define VERL                                                                                     \
    "data.prompt_key=prompt data.truncation=left algorithm.adv_estimator=grpo "                  \
    "algorithm.kl_ctrl.kl_coef=0.0 actor_rollout_ref.actor.use_kl_loss=False "                   \
    "actor_rollout_ref.actor.kl_loss_coef=0.0 actor_rollout_ref.actor.clip_ratio_low=0.2 "       \
    "actor_rollout_ref.actor.clip_ratio_high=0.28 "                                              \
    "actor_rollout_ref.actor.clip_ratio_c=10.0 actor_rollout_ref.model.use_remove_padding=True " \
    "actor_rollout_ref.actor.use_dynamic_bsz=True "                                              \
    "actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True "                                       \
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True "                                   \
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=22528 "                                   \
    "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=22528 "                                \
    "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=22528 "                            \
    "actor_rollout_ref.model.enable_gradient_checkpointing=True "                                \
    "actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.optim.lr_warmup_steps=10 "    \
    "actor_rollout_ref.actor.optim.weight_decay=0.1 "                                            \
    "actor_rollout_ref.actor.fsdp_config.param_offload=True "                                    \
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True "                                \
    "actor_rollout_ref.actor.entropy_coeff=0 actor_rollout_ref.actor.grad_clip=1.0 "             \
    "actor_rollout_ref.actor.loss_agg_mode=token-mean "                                          \
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size=8 "                                  \
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.80 "                                     \
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1 "                                    \
    "actor_rollout_ref.rollout.enable_chunked_prefill=True "                                     \
    "actor_rollout_ref.rollout.max_num_batched_tokens=22528 "                                    \
    "actor_rollout_ref.rollout.temperature=1.0 "                                                 \
    "actor_rollout_ref.rollout.top_p=1.0 "                                                       \
    "actor_rollout_ref.rollout.top_k=-1 actor_rollout_ref.rollout.val_kwargs.temperature=1.0 "   \
    "actor_rollout_ref.rollout.val_kwargs.top_p=0.7 "                                            \
    "actor_rollout_ref.rollout.val_kwargs.top_k=-1 "                                             \
    "actor_rollout_ref.rollout.val_kwargs.do_sample=True "                                       \
    "actor_rollout_ref.rollout.val_kwargs.n=1 "                                                  \
    "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.ref.fsdp_config.param_offload=True "  \
    "actor_rollout_ref.ref.ulysses_sequence_parallel_size=8 "                                    \
    "actor_rollout_ref.actor.fsdp_config.fsdp_size=-1 reward_model.reward_manager=dapo "         \
    "'trainer.logger=[\"console\",\"wandb\"]' trainer.project_name=DAPO trainer.save_freq=25 "   \
    "trainer.total_epochs=1 trainer.resume_mode=auto "
#define VERL_32B                                                                              \
    VERL "data.gen_batch_size=12 algorithm.filter_groups.enable=True "                        \
         "algorithm.filter_groups.max_num_gen_batches=10 algorithm.filter_groups.metric=acc " \
         "reward_model.overlong_buffer.enable=True reward_model.overlong_buffer.len=4 "       \
         "reward_model.overlong_buffer.penalty_factor=1.0 "
/* recipe/dapo/test_dapo_7b_math.sh */
#define VERL_7B                                                                        \
    VERL "+reward_model.reward_kwargs.overlong_buffer_cfg.enable=True "                \
         "+reward_model.reward_kwargs.overlong_buffer_cfg.len=6 "                      \
         "+reward_model.reward_kwargs.overlong_buffer_cfg.penalty_factor=1.0 "         \
         "+reward_model.reward_kwargs.overlong_buffer_cfg.log=False "                  \
         "+reward_model.reward_kwargs.max_resp_len=12 trainer.log_val_generations=10 " \
         "algorithm.use_kl_in_reward=False "                                           \
         "+actor_rollout_ref.model.override_config.max_position_embeddings=32768 "
/* What earlier versions of these scripts have in place of words above. */
#define VERL_BEFORE                                                                               \
    "+actor_rollout_ref.model.override_config.attention_dropout=0. "                              \
    "+actor_rollout_ref.model.override_config.embd_pdrop=0. "                                     \
    "+actor_rollout_ref.model.override_config.resid_pdrop=0. "                                    \
    "custom_reward_function.overlong_buffer.enable=True "                                         \
    "custom_reward_function.overlong_buffer.len=4 "                                               \
    "custom_reward_function.overlong_buffer.penalty_factor=1.0 reward_model.reward_manager=dapo " \
    "algorithm.adv_estimator=grpo algorithm.kl_ctrl.kl_coef=0.0 "                                 \
    "actor_rollout_ref.actor.kl_loss_coef=0.0 actor_rollout_ref.actor.clip_ratio_low=0.2 "        \
    "actor_rollout_ref.actor.clip_ratio_high=0.28 data.gen_batch_size=4 "                         \
    "actor_rollout_ref.actor.ppo_micro_batch_size=null "                                          \
    "actor_rollout_ref.rollout.log_prob_micro_batch_size=null "                                   \
    "actor_rollout_ref.ref.log_prob_micro_batch_size=null algorithm.filter_groups.enable=False "

/*
 * Answers are judged by their text. Hardly any answer of a random model is right; the filters must
 * cope with that.
 */
static const char *files(void)
{
    static char words[1500];
    snprintf(words, sizeof words,
             "data.train_files='%s' data.val_files='%s' actor_rollout_ref.model.path='%s' "
             "'worker.reward.rewards=[{name: dapo}]' ",
             test_source("examples/data/sums/train.jsonl"),
             test_source("examples/data/sums/val.jsonl"), e2e_model());
    return words;
}

typedef struct shown {
    const char *path, *value;
} shown;

/*
 * Checks that the recipe passes --check, resolves to these values, which can be read back, and
 * trains two steps.
 */
static void follow(const char *words, const char *run, const shown *lines, int n)
{
    ares_str out = { 0 };
    ares_train_config c;
    CHECK_EQ(e2e_program(&out, "--check %s", words), 0);
    CHECK_CONTAINS(out.data, "the configuration is good");
    CHECK_EQ(test_shell(NULL, "cd '%s' && '%s' --print-config %s > '%s'", test_source("."),
                        test_program(), words, test_file("print.yaml")),
             0);
    CHECK_EQ(test_shell(NULL, "cd '%s' && '%s' --print-config --config '%s' | cmp - '%s'",
                        test_source("."), test_program(), test_file("print.yaml"),
                        test_file("print.yaml")),
             0);
    ares_config *cfg = ares_config_new();
    ares_train_config_declare(cfg, &c);
    ares_config_load_file(cfg, test_file("print.yaml"));
    ares_config_resolve(cfg);
    for (int i = 0; i < n; i++) {
        const char *is = ares_config_get_text(cfg, lines[i].path);
        CHECK_MSG(strcmp(is ? is : "null", lines[i].value) == 0, "%s is %s, expected %s",
                  lines[i].path, is ? is : "null", lines[i].value);
    }
    ares_config_free(cfg);
    CHECK_EQ(e2e_program(NULL, "%s trainer.run_dir='%s'", words, test_file(run)), 0);
    CHECK(e2e_metric(run, 2, "actor/lr") > 0);
    ares_str_fini(&out);
}

TEST(the_recipe_of_32_billion_weights_runs_as_published)
{
    static const shown lines[] = {
        { "data.rollout_batch_size", "4" },
        { "data.mini_rollout_batch_size", "12" },
        { "worker.rollout.n", "4" },
        { "worker.actor.global_batch_size", "2" },
        { "algorithm.adv_estimator", "grpo" },
        { "algorithm.kl_coef", "0.0" },
        { "worker.actor.clip_ratio_low", "0.2" },
        { "worker.actor.clip_ratio_high", "0.28" },
        { "worker.actor.clip_ratio_dual", "10.0" },
        { "worker.actor.loss_avg_mode", "token-mean" },
        { "worker.actor.entropy_coeff", "0" },
        { "worker.actor.max_grad_norm", "1.0" },
        { "algorithm.filter_groups.enable", "true" },
        { "algorithm.filter_groups.metric", "acc" },
        { "trainer.max_try_make_batch", "10" },
        { "worker.actor.optim.lr", "1e-6" },
        { "worker.actor.optim.lr_warmup_steps", "10" },
        { "worker.actor.optim.weight_decay", "0.1" },
        { "worker.reward.safe_length", "12" },
        { "worker.reward.max_length", "16" },
        { "worker.reward.len_reward_penalty", "1.0" },
        { "worker.reward.overlong_buffer.enable", "false" },
        { "worker.rollout.val_override_config.top_p", "0.7" },
        { "trainer.save_freq", "25" },
    };
    char words[6000];
    snprintf(words, sizeof words, "%s %s %s trainer.experiment_name=DAPO-Qwen2.5-32B", VERL_32B,
             SMALL("48", "16"), files());
    follow(words, "run", lines, ARES_COUNT(lines));
    /* no answer of this model is right */
    CHECK_EQ(e2e_metric("run", 1, "dapo/num_gen_rounds"), 10);
    /* each rank computes whole sequences, which changes memory alone, and is told */
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--check %s", words), 0);
    CHECK_CONTAINS(out.data, "worker.actor.ulysses_size = 8: has no effect: each rank computes");
    CHECK_CONTAINS(out.data, "worker.ref.ulysses_size = 8: has no effect");
    ares_str_fini(&out);
}

TEST(the_recipe_of_7_billion_weights_runs_as_published)
{
    static const shown lines[] = {
        { "worker.reward.safe_length", "6" },
        { "worker.reward.max_length", "12" },
        { "worker.reward.len_reward_penalty", "1.0" },
        { "algorithm.filter_groups.enable", "false" },
        { "worker.actor.clip_ratio_dual", "10.0" },
        { "trainer.val_generations_to_log", "10" },
        { "trainer.max_steps", "2" },
    };
    char words[6000];
    snprintf(words, sizeof words, "%s %s %s", VERL_7B, SMALL("48", "12"), files());
    follow(words, "run", lines, ARES_COUNT(lines));
    CHECK(e2e_metric("run", 1, "reward/length_penalty") < 0);
}

/* The section on RLinf's page, word by word, which names the preset; and the preset alone. */
TEST(the_section_of_the_published_page_runs)
{
    static const char section[] =
        "algorithm: { name: dapo, adv_type: grpo, loss_type: actor, loss_agg_func: "
        "token-mean, use_valid_token_scale: true,\n"
        "  group_size: 16, clip_ratio_low: 0.20, clip_ratio_high: 0.28, "
        "len_reward_penalty: 0.1, safe_length: 16384, max_length: 20480,\n"
        "  max_resample: 5, kl_beta: 0.0, kl_penalty_type: low_var_kl, "
        "calculate_entropy: false, entropy_bonus: 0.0,\n"
        "  normalize_advantages: true, early_stop_imp_ratio: 5.0 }\n";
    static const shown lines[] = {
        { "algorithm.name", "dapo" },
        { "algorithm.adv_estimator", "grpo" },
        { "worker.actor.loss_type", "dapo" },
        { "worker.actor.loss_avg_mode", "token-mean" },
        { "worker.actor.loss_norm", "global" },
        { "worker.rollout.n", "16" },
        { "worker.actor.clip_ratio_low", "0.20" },
        { "worker.actor.clip_ratio_high", "0.28" },
        { "worker.actor.clip_ratio_dual", "null" },
        { "worker.reward.len_reward_penalty", "0.1" },
        { "worker.reward.safe_length", "16384" },
        { "worker.reward.max_length", "20480" },
        { "algorithm.max_resample", "5" },
        { "algorithm.filter_groups.enable", "true" },
        { "algorithm.on_exhausted", "fill_masked" },
        { "algorithm.kl_coef", "0.0" },
        { "algorithm.kl_penalty", "low_var_kl" },
        { "worker.actor.entropy_coeff", "0.0" },
        { "algorithm.normalize_advantages", "true" },
        { "worker.actor.early_stop_imp_ratio", "5.0" },
        { "worker.actor.shuffle", "true" },
        { "worker.actor.recompute_log_probs", "true" },
        { "worker.reward.correct", "1.0" },
        { "worker.reward.incorrect", "-1.0" },
        { "worker.actor.global_batch_size", "4" },
    };
    char words[3000];
    const char *file = e2e_write("section.yaml", section), *base = files();
    snprintf(words, sizeof words,
             "--config '%s' %s data.max_prompt_length=48 data.max_response_length=12 "
             "data.rollout_batch_size=4 trainer.max_steps=2",
             file, base);
    follow(words, "run", lines, ARES_COUNT(lines));
    CHECK_EQ(e2e_metric("run", 1, "dapo/num_gen_rounds"), 6);
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--check algorithm.name=dapo %s", base), 0);
    const char *first = out.data ? strstr(out.data, "config: algorithm.name: dapo -> ") : NULL;
    CHECK(first && !strstr(first + 1, "config: algorithm.name: dapo -> ")); /* announced once */
    CHECK_CONTAINS(out.data, "worker.actor.clip_ratio_high=0.28");
    ares_str_fini(&out);
}

/* Every key of the page, with values that differ from its defaults. */
TEST(every_key_of_the_published_page_works)
{
    static const char section[] =
        "algorithm: { adv_type: grpo, loss_type: ppo, loss_agg_func: seq-mean-token-mean, "
        "use_valid_token_scale: true, valid_token_scope: rollout,\n"
        "  group_size: 4, ratio_clip_eps: 0.1, clip_ratio_high: 0.3, clip_ratio_c: 4.0, "
        "len_reward_penalty: "
        "0.5, safe_length: 4, max_length: 10, over_length_action: drop,\n"
        "  mask_truncated: false, max_resample: 2, kl_beta: 0.0, kl_penalty_type: k2, "
        "calculate_entropy: "
        "false, entropy_bonus: 0.01, normalize_advantages: true,\n"
        "  early_stop_imp_ratio: 3.0, n_minibatches: 2, shuffle_rollout: true, recompute_logprobs: "
        "true, "
        "importance_sampling_fix: true, importance_sampling_clip: 1.5,\n"
        "  dynamic_sampling: {mode: new_prompts, gen_batch_size: 0, on_exhausted: smaller_batch}, "
        "filter_groups: {metric: score} }\n"
        "reward: {correct: 2.0, incorrect: -0.5, scale: 3.0}\n";
    static const shown lines[] = {
        { "worker.actor.loss_type", "dapo" },
        { "worker.actor.loss_avg_mode", "seq-mean-token-mean" },
        { "worker.actor.valid_token_scope", "rollout" },
        { "worker.actor.clip_ratio_low", "0.1" },
        { "worker.actor.clip_ratio_high", "0.3" },
        { "worker.actor.clip_ratio_dual", "4.0" },
        { "worker.reward.safe_length", "4" },
        { "worker.reward.max_length", "10" },
        { "algorithm.over_length_action", "drop" },
        { "algorithm.max_resample", "2" },
        { "algorithm.filter_groups.enable", "true" },
        { "algorithm.filter_groups.metric", "score" },
        { "algorithm.kl_penalty", "mse" },
        { "worker.actor.entropy_coeff", "0.0" },
        { "worker.actor.global_batch_size", "2" },
        { "worker.actor.shuffle", "true" },
        { "worker.actor.recompute_log_probs", "true" },
        { "algorithm.importance_sampling_fix", "true" },
        { "algorithm.importance_sampling_clip", "1.5" },
        { "data.mini_rollout_batch_size", "0" },
        { "algorithm.on_exhausted", "smaller_batch" },
        { "worker.reward.correct", "2.0" },
        { "worker.reward.incorrect", "-0.5" },
        { "worker.reward.scale", "3.0" },
    };
    char words[3000];
    snprintf(words, sizeof words,
             "--config '%s' %s 'worker.reward.rewards=[{name: dapo}, {name: random}]' "
             "data.max_prompt_length=48 "
             "data.max_response_length=10 data.rollout_batch_size=4 trainer.max_steps=2",
             e2e_write("section.yaml", section), files());
    follow(words, "run", lines, ARES_COUNT(lines));
    CHECK_EQ(e2e_metric("run", 1, "reward/dapo"), -1.5); /* all wrong */
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--check %s", words), 0);
    CHECK_CONTAINS(
        out.data,
        "algorithm.entropy_bonus = 0.01: has no effect while algorithm.calculate_entropy is false");
    ares_str_fini(&out);
}

TEST(the_recipes_of_earlier_scripts_run_as_published)
{
    static const struct {
        const char *flag, *mode;
    } losses[] = { { "True", "token-mean" }, { "False", "seq-mean-token-mean" } };
    char words[6000];
    for (int i = 0; i < ARES_COUNT(losses); i++) {
        const shown lines[] = {
            { "worker.actor.loss_avg_mode", losses[i].mode },
            { "worker.reward.safe_length", "12" },
            { "worker.reward.max_length", "16" },
            { "algorithm.filter_groups.enable", "false" },
        };
        snprintf(words, sizeof words,
                 VERL_BEFORE "%s %s "
                             "actor_rollout_ref.actor.use_token_level_loss=%s",
                 SMALL("48", "16"), files(), losses[i].flag);
        follow(words, losses[i].mode, lines, ARES_COUNT(lines));
    }
}

/* The listings of verl's page on DAPO; the command line scales what counts prompts and tokens. */
TEST(the_listings_of_verls_page_run)
{
    static const char listings[] =
        "data:\n  gen_batch_size: 1536\n  train_batch_size: 512\n"
        "  max_response_length: 20480 # 16384 + 4096\n"
        "algorithm:\n  filter_groups:\n    enable: True\n"
        "    metric: acc # score / seq_reward / seq_final_reward / ...\n"
        "    max_num_gen_batches: 10 # Non-positive values mean no upper limit\n"
        "actor_rollout_ref:\n  actor:\n    clip_ratio_low: 0.2\n    clip_ratio_high: 0.28\n"
        "    loss_agg_mode: \"token-mean\" # / \"seq-mean-token-sum\" / ...\n"
        "reward_model:\n  overlong_buffer:\n    enable: True\n    len: 4096\n"
        "    penalty_factor: 1.0\n";
    static const shown lines[] = {
        { "data.mini_rollout_batch_size", "8" },
        { "worker.actor.clip_ratio_high", "0.28" },
        { "trainer.max_try_make_batch", "2" },
        { "worker.actor.loss_avg_mode", "token-mean" },
        { "worker.reward.safe_length", "8" },
        { "worker.reward.max_length", "12" },
        { "worker.reward.len_reward_penalty", "1.0" },
    };
    char words[4000];
    const char *file = e2e_write("listings.yaml", listings), *base = files();
    CHECK_EQ(e2e_program(NULL,
                         "--check --config '%s' %s actor_rollout_ref.rollout.n=16 "
                         "data.max_response_length=1536 reward_model.overlong_buffer.len=256",
                         file, base),
             0);
    snprintf(words, sizeof words,
             "--config '%s' %s %s data.gen_batch_size=8 "
             "algorithm.filter_groups.max_num_gen_batches=2 reward_model.overlong_buffer.len=4",
             file, SMALL("48", "12"), base);
    follow(words, "run", lines, ARES_COUNT(lines));
}

/*
 * RLinf's page has had three versions, which name the estimator and the loss otherwise, and mean
 * the same. None of them names the preset.
 */
TEST(the_listing_of_the_page_means_the_same_in_all_its_versions)
{
    static const char *const names[] = {
        "    adv_type: grpo\n    loss_type: actor\n",
        "    adv_type: grpo\n    loss_type: ppo\n",
        "    adv_type: math_grpo\n    loss_type: math_ppo_actor\n",
    };
    static const char rest[] =
        "    loss_agg_func: \"token-mean\"\n    use_valid_token_scale: True\n\n"
        "    group_size: 16\n    clip_ratio_high: 0.28\n    clip_ratio_low: 0.20\n\n"
        "    len_reward_penalty: 0.1\n    safe_length: 16384\n    max_length: 20480\n"
        "    max_resample: 5\n\n    kl_beta: 0.0\n"
        "    kl_penalty_type: low_var_kl # low_var_kl, kl, abs, mse\n\n"
        "    calculate_entropy: False\n    entropy_bonus: 0.0\n\n"
        "    normalize_advantages: True\n    early_stop_imp_ratio: 5.0\n";
    static const shown lines[] = {
        { "algorithm.adv_estimator", "grpo" },
        { "worker.actor.loss_type", "dapo" },
        { "worker.actor.loss_avg_mode", "token-mean" },
        { "worker.actor.loss_norm", "global" },
        { "worker.rollout.n", "16" },
        { "worker.actor.clip_ratio_high", "0.28" },
        { "worker.reward.len_reward_penalty", "0.1" },
        { "algorithm.filter_groups.enable", "true" },
        { "trainer.max_try_make_batch", "6" },
        { "algorithm.normalize_advantages", "true" },
        { "worker.actor.early_stop_imp_ratio", "5.0" },
    };
    char words[3000], yaml[2000];
    ares_str first = { 0 }, other = { 0 };
    for (int i = 0; i < ARES_COUNT(names); i++) {
        snprintf(yaml, sizeof yaml, "algorithm:\n%s%s", names[i], rest);
        snprintf(words, sizeof words,
                 "--config '%s' %s data.max_prompt_length=48 data.max_response_length=12 "
                 "data.rollout_batch_size=4 worker.actor.global_batch_size=2 trainer.max_steps=2",
                 e2e_write("page.yaml", yaml), files());
        ares_str *printed = i ? &other : &first;
        ares_str_clear(printed);
        CHECK_EQ(test_shell(printed, "cd '%s' && '%s' --print-config %s 2>'%s'", test_source("."),
                            test_program(), words, test_file("said")),
                 0);
        if (i) CHECK_STR(other.data, first.data);
    }
    follow(words, "run", lines, ARES_COUNT(lines));
    ares_str_fini(&first);
    ares_str_fini(&other);
}

/* DAPO in the words of TRL's GRPOConfig, which are flat. */
TEST(dapo_in_the_words_of_trl_runs)
{
    static const char listing[] =
        "num_generations: 4\nmax_prompt_length: 48\nmax_completion_length: 12\n"
        "temperature: 1.0\ntop_p: 1.0\nepsilon: 0.2\nepsilon_high: 0.28\nloss_type: dapo\n"
        "mask_truncated_completions: true\nscale_rewards: true\nnum_iterations: 1\n"
        "learning_rate: 1e-6\nlr_scheduler_type: constant\nmax_grad_norm: 1.0\nmax_steps: 2\n"
        "seed: 42\nlogging_steps: 1\nuse_vllm: true\n";
    static const shown lines[] = {
        { "worker.rollout.n", "4" },
        { "worker.actor.clip_ratio_low", "0.2" },
        { "worker.actor.clip_ratio_high", "0.28" },
        { "worker.actor.loss_avg_mode", "token-mean" },
        { "algorithm.mask_truncated", "true" },
        { "worker.actor.optim.lr", "1e-6" },
    };
    char words[3000];
    snprintf(words, sizeof words,
             "--config '%s' %s data.rollout_batch_size=4 worker.actor.global_batch_size=2",
             e2e_write("trl.yaml", listing), files());
    follow(words, "run", lines, ARES_COUNT(lines));
}
