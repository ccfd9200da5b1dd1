/*
 * For each option of configs/base.yaml, what a run shows of the effect that base.yaml promises.
 *
 * A situation is a run of e2e_train_words with the options given here. An entry runs its situation
 * a second time with option=value added, and `seen` says what must be seen, as conditions separated
 * by "; ":
 *
 *   actor/lr@2 == 2 * base:actor/lr   metrics of this run, and with base: of the situation's run,
 *                                     at step 1 unless another is named. An absent metric is NaN,
 *                                     and no condition on it holds. == and != compare f64,
 *                                     ~ to 1e-5. Also numbers of a checkpoint: see of_checkpoint
 *   there NAME; absent NAME           the metric is there, or is not
 *   same                              every metric except those of speed, every answer and the
 *                                     checkpoint have the same bits as in the situation's run
 *   says TEXT; says not TEXT          printed with the option only, or without it only
 *   fails CODE TEXT                   the run is refused, or ends, with this exit code and text
 *   $ COMMAND                         a shell command, only as the last condition. It may use
 *                                     $RUN, $BASE, rollouts, base_rollouts, column KEY
 *
 * An entry without a value is tested elsewhere: `in` names the test program and `seen` the test. If
 * `in` is "-", `seen` says why no test can show the option.
 */
#ifndef TESTS_OPTIONS_H
#define TESTS_OPTIONS_H

#include <stddef.h>

typedef struct situation {
    const char *name, *words;
} situation;
typedef struct option_case {
    const char *option, *value, *in, *seen;
} option_case;

/*
 * The score depends on the answer's text alone. Answers end at a letter, so that they have many
 * lengths.
 */
#define RANDOM "'worker.reward.rewards=[{name: random}]' worker.reward.accuracy=random "
#define LENGTHS                                                                                   \
    "'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w, x, " \
    "z, A, B, C, D, E, F, G, H]' "
#define ROWS "data.train_files=$DIR/rows.jsonl data.shuffle=false data.max_prompt_length=100 "
#define AEPO                                                          \
    LENGTHS "'worker.reward.rewards=[{name: random}, {name: aepo}]' " \
            "worker.reward.accuracy=random algorithm.aepo=true worker.rollout.window_size=2 "
#define KL "algorithm.disable_kl=false "
#define GAE                                                    \
    "algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3 " \
    "worker.critic.optim.weight_decay=0 "
#define DYNAMIC                                                        \
    KL "algorithm.use_kl_loss=true worker.actor.dynamic_kl_loss=true " \
       "data.rollout_batch_size=12 worker.actor.global_batch_size=4 "
#define LOG_SPACE "algorithm.kl_bucket_controller=log_space algorithm.kl_beta_update_interval=1 "
#define OVER "curriculum.over_sampling_batch_size=8 "
#define OVER_LONG OVER "data.max_response_length=40 "
#define VAL ROWS "data.val_files=$DIR/rows.jsonl "

/* Two data sets, eight rows and two. */
#define MIXED                                                                       \
    "data.train_files=[$DIR/rows.jsonl,$DIR/two.jsonl] data.max_prompt_length=100 " \
    "data.shuffle=false "

/* The model of vision_model sees the rows of vision_rows. */
#define SEEN                                                                            \
    "data.image_dir=$DIR data.min_pixels=null data.max_pixels=null data.shuffle=false " \
    "data.max_prompt_length=100 worker.actor.model.model_path=$DIR/sees "

/* The model of agent_model acts on ice. */
#define AGENTS                                                                             \
    "env.train.tags=FrozenLake env.train.groups=4 env.train.group_size=4 env.max_turns=3 " \
    "env.enable_think=false env.token_exact=true '~data.rollout_batch_size' "              \
    "'~worker.rollout.n' '~worker.reward.rewards' '~data.train_files' "                    \
    "'env.definitions.FrozenLake.instruction=You act on ice.' "                            \
    "env.definitions.FrozenLake.options.is_slippery=false data.max_response_length=24 "    \
    "worker.rollout.max_model_len=2000 "                                                   \
    "worker.actor.model.model_path=$DIR/agent_model/checkpoints/step_000120/model "
#define AGENTS_TEXT AGENTS "env.token_exact=false "
#define AGENTS_VAL AGENTS "env.val.tags=FrozenLake env.val.groups=4 trainer.val_freq=1 "
#define AGENTS_TWO "'env.train.tags=[FrozenLake, Bandit]' 'env.val.tags=[FrozenLake, Bandit]' "

/* The model of vapor_model writes both tags; two passes, so that the second sees ratios. */
#define VAPOR                                                                            \
    "worker.actor.loss_type=vapor algorithm.adv_estimator=vapor data.train_files=$DIR/"  \
    "vapor_rows.jsonl 'vapor.verifiable_term_split=[<N>, </N>]' "                        \
    "'vapor.preference_term_split=[<S>, </S>]' 'worker.reward.rewards=[{name: exact}]' " \
    "data.max_response_length=20 worker.rollout.n=8 worker.actor.ppo_epochs=2 "          \
    "trainer.max_steps=2 "                                                               \
    "worker.actor.model.model_path=$DIR/vapor_model/checkpoints/step_000120/model "

/* The row's "solution" is what the teacher reads besides. */
#define TAUGHT                                                 \
    ROWS "distillation.enabled=true distillation.context=row " \
         "distillation.privileged_context_key=solution "
/* Some answers to a prompt are right ones. */
#define TAUGHT_GROUP                                                            \
    ROWS LENGTHS RANDOM "distillation.enabled=true distillation.context=group " \
                        "distillation.privileged_context_key=solution "         \
                        "distillation.success_reward_threshold=0.5 "
#define TEACHES "distillation.teacher_model."
#define TAUGHT_LOSS "distillation.distillation_loss."

static const situation situations[] = {
    { "taught", TAUGHT },
    { "taught_base", TAUGHT TEACHES "kind=base" },
    { "taught_ema", TAUGHT TEACHES "kind=ema" },
    { "taught_k1", TAUGHT TAUGHT_LOSS "loss_mode=k1 " TAUGHT_LOSS "use_policy_gradient=true" },
    { "taught_tasks", TAUGHT LENGTHS RANDOM TAUGHT_LOSS "use_task_rewards=true" },
    { "taught_stored", TAUGHT "distillation.response_key=answer distillation.lmbda=0" },
    { "taught_answer", TAUGHT "distillation.response_key=answer" },
    { "taught_group", TAUGHT_GROUP },
    { "taught_told", TAUGHT_GROUP "distillation.include_environment_feedback=true" },
    { "vapor", VAPOR },
    { "vapor_dpo", VAPOR "vapor.dpo_coef=1" },
    { "vapor_each_step", VAPOR "vapor.ref_model_sync_steps=1" },
    { "agents", AGENTS },
    { "agents_text", AGENTS_TEXT },
    { "agents_limited", AGENTS "env.context_window_mode=limited_multi_turn" },
    { "agents_mean", AGENTS "env.reward_normalization.method=mean" },
    { "agents_val", AGENTS_VAL },
    { "agents_two", AGENTS_VAL AGENTS_TWO },
    { "plain", "" },
    { "lora", "worker.actor.model.lora.rank=4" },
    { "pictures", SEEN "data.train_files=$DIR/pictures.jsonl " },
    { "unreadable", SEEN "data.train_files=$DIR/pictures_and_none.jsonl " },
    { "rows", ROWS },
    { "unrewarded", ROWS LENGTHS "'~worker.reward.rewards'" },
    { "evaluated", ROWS "'eval.datasets={two: {path: '$DIR'/two.jsonl}}'" },
    { "mixed", MIXED "'curriculum.weights=[3, 1]'" },
    { "mixed_by_name", MIXED "'curriculum.weights=[increasing_weight, 0.3]'" },
    { "mixed_twice", MIXED "data.mini_rollout_batch_size=2 "
                           "'curriculum.weights=[\"step < 1\", \"step > 0\"]'" },
    { "capped", MIXED RANDOM "trainer.max_try_make_batch=1 algorithm.on_exhausted=fill_masked "
                             "algorithm.dynamic_sampling_filter=reward_cap "
                             "'curriculum.reward_caps=[null, null]'" },
    /* every second answer; failure_score counts where on_failure is score */
    { "half_judged",
      "trainer.max_steps=2 '~worker.reward.rewards' 'worker.reward.rewards=[{name: own, command: "
      "[sh, -c, \"read a; echo 1; read a; exit 3\"]}]'" },
    { "two_val_rows",
      ROWS "data.val_files=$DIR/two.jsonl trainer.val_only=true worker.reward.accuracy=null "
           "'worker.reward.rewards=[{name: own, timeout_s: 0.1, start_timeout_s: 0, command: [sh, "
           "-c, \"while read -r "
           "a && read -r b; do echo 1; echo 1; done\"]}]'" },
    { "val", VAL "trainer.max_steps=2" },
    { "collapse", RANDOM LENGTHS "report.collapse.freq=1" },
    { "gradients", RANDOM LENGTHS "report.gradient_analysis.every=1" },
    { "long", ROWS "data.max_prompt_length=60" },
    { "aepo_rows", ROWS AEPO },
    { "bootstrap", ROWS AEPO "data.bootstrap=true" },
    { "gae_of_ones", GAE "'worker.reward.rewards=[{name: format, finished: false}]'" },
    { "random", RANDOM LENGTHS },
    { "half_factor", RANDOM LENGTHS "algorithm.importance_sampling_clip=0.5" },
    { "fixed_factor", RANDOM LENGTHS "algorithm.importance_sampling_fix=true" },
    { "kl", RANDOM LENGTHS KL "trainer.max_steps=2" },
    { "kl_loss", RANDOM LENGTHS KL "algorithm.use_kl_loss=true trainer.max_steps=2" },
    { "unfiltered", "algorithm.filter_key=overall trainer.max_try_make_batch=0" },
    { "weighed",
      LENGTHS "'worker.reward.rewards=[{name: random, weight: 2}]' worker.reward.accuracy=random "
              "algorithm.online_filtering=true trainer.max_try_make_batch=0" },
    { "filtered", RANDOM LENGTHS "algorithm.online_filtering=true trainer.max_try_make_batch=0" },
    { "groups", "algorithm.filter_groups.metric=score" },
    { "two_rewards", "algorithm.filter_groups.enable=true algorithm.max_resample=0 "
                     "'worker.reward.rewards=[{name: exact}, {name: random, weight: 0.5}]'" },
    { "resampled", "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=score "
                   "algorithm.max_resample=3" },
    { "hopeless", "'worker.reward.rewards=[{name: exact}]' algorithm.filter_groups.enable=true" },
    { "hopeless_once",
      "'worker.reward.rewards=[{name: exact}]' algorithm.filter_groups.enable=true "
      "algorithm.max_resample=1" },
    { "too_long", RANDOM LENGTHS "worker.reward.max_length=8" },
    { "deviating", "algorithm.dynamic_sampling_filter=nonzero_std" },
    { "bonus", "worker.actor.entropy_coeff=0.1" },
    { "adaptive",
      RANDOM LENGTHS KL "trainer.max_steps=2 algorithm.kl_type=adaptive algorithm.kl_horizon=100" },
    { "aepo", AEPO },
    { "aepo_2", AEPO "trainer.max_steps=2" },
    { "aepo_3", AEPO "trainer.max_steps=3" },
    { "not_dropped",
      AEPO ROWS "worker.reward.accuracy=format 'worker.reward.rewards=[{name: format, finished: "
                "false}, {name: aepo}]' trainer.max_steps=3" },
    { "easy",
      AEPO ROWS "worker.reward.accuracy=format 'worker.reward.rewards=[{name: format, finished: "
                "false}, {name: aepo}]' trainer.max_steps=3 algorithm.drop_easy_prompts=true" },
    { "dynamic", AEPO DYNAMIC },
    { "log_space", AEPO DYNAMIC LOG_SPACE },
    { "log_space_2", AEPO DYNAMIC LOG_SPACE "trainer.max_steps=2" },
    { "log_space_up", AEPO DYNAMIC LOG_SPACE "trainer.max_steps=2 algorithm.kl_target_easy=1e-6" },
    { "shares", RANDOM LENGTHS "worker.rollout.rollout_filter_strategy=top_k" },
    { "ranked_zeros",
      "worker.rollout.rollout_filter_strategy=top_k_abs worker.rollout.rollout_filter_value=1" },
    { "ranked", RANDOM LENGTHS
      "worker.rollout.rollout_filter_strategy=top_k_abs worker.rollout.rollout_filter_value=1" },
    { "masses", "worker.rollout.rollout_filter_value=0.9" },
    { "linear_masses", RANDOM LENGTHS "worker.rollout.rollout_filter_top_p_prob_mode=linear "
                                      "worker.rollout.rollout_filter_value=0.77" },
    { "with_ends", "worker.rollout.n=64" },
    { "two_at_once", "worker.rollout.max_num_seqs=2" },
    { "alike", "worker.rollout.max_num_seqs=2 worker.rollout.temperature=0.03 "
               "data.max_response_length=40" },
    { "topk_tail", AEPO "worker.rollout.entropy_mode=topk_tail" },
    { "small_forwards", "worker.rollout.max_num_batched_tokens=40" },
    { "same_beginning", "data.format_prompt=$DIR/long.jinja data.max_prompt_length=140 "
                        "worker.rollout.max_num_batched_tokens=140" },
    { "no_group_left", "'worker.reward.rewards=[{name: exact}]' "
                       "worker.rollout.rollout_filter_include_zero=false" },
    { "half_in_rows", RANDOM LENGTHS
      "worker.rollout.rollout_filter_strategy=top_k worker.rollout.rollout_filter_value=0.5 "
      "worker.actor.mini_batch_unit=rows worker.actor.global_batch_size=16" },
    { "half", RANDOM LENGTHS
      "worker.rollout.rollout_filter_strategy=top_k worker.rollout.rollout_filter_value=0.5" },
    { "check_only", "worker.actor.model.model_path=nowhere --check" },
    { "by_micro_batch", RANDOM LENGTHS
      "worker.actor.loss_norm=micro worker.actor.micro_batch_size_per_device_for_update=16" },
    { "small_steps", "worker.actor.optim.eps=1 worker.actor.optim.lr=1e-2" },
    { "two_passes", RANDOM LENGTHS "worker.actor.ppo_epochs=2 worker.actor.optim.lr=1e-2" },
    { "tight", RANDOM LENGTHS "worker.actor.ppo_epochs=2 worker.actor.optim.lr=1e-2 "
                              "worker.actor.clip_ratio_high=0.001" },
    { "sapo", RANDOM LENGTHS "worker.actor.loss_type=sapo" },
    { "dro", RANDOM LENGTHS "worker.actor.loss_type=dro worker.actor.ppo_epochs=2 "
                            "worker.actor.optim.lr=1e-2" },
    { "clip_cov", RANDOM LENGTHS "worker.actor.loss_type=clip_cov worker.actor.clip_cov_ratio=0.2 "
                                 "worker.actor.clip_cov_lb=-5" },
    { "kl_cov", RANDOM LENGTHS
      "worker.actor.loss_type=kl_cov worker.actor.kl_cov_ratio=0.2 worker.actor.ppo_epochs=2 "
      "worker.actor.optim.lr=1e-2" },
    { "stops_early", RANDOM LENGTHS "worker.actor.ppo_epochs=2 worker.actor.optim.lr=1e-2 "
                                    "worker.actor.early_stop_imp_ratio=1.02 "
                                    "worker.actor.micro_batch_size_per_device_for_update=2" },
    { "single_rows", RANDOM LENGTHS "worker.actor.micro_batch_size_per_device_for_update=1" },
    { "two_minis", RANDOM LENGTHS "worker.actor.global_batch_size=2" },
    { "scaled_sums", RANDOM LENGTHS "worker.actor.loss_avg_mode=seq-mean-token-sum-norm" },
    { "low_weights", RANDOM LENGTHS "worker.actor.rollout_is_threshold=0.5" },
    { "low_token_weights",
      RANDOM LENGTHS "worker.actor.rollout_is=token worker.actor.rollout_is_threshold=0.5 "
                     "worker.actor.rollout_is_threshold_lower=0.1" },
    { "token_weights", RANDOM LENGTHS "worker.actor.rollout_is=token" },
    /* a ratio of 1 everywhere is too small here */
    { "rejects", RANDOM LENGTHS "worker.actor.rollout_rs=token worker.actor.rollout_rs_threshold=3 "
                                "worker.actor.rollout_rs_threshold_lower=2" },
    { "rejects_rows", RANDOM LENGTHS "worker.actor.rollout_rs=seq_mean_k1 "
                                     "worker.actor.rollout_rs_threshold=2_3" },
    { "masked_weights",
      RANDOM LENGTHS "worker.actor.rollout_is=token worker.actor.rollout_is_mode=mask" },
    { "decaying", "algorithm.zero_task_advantage=true" },
    { "bf16", "worker.actor.fsdp.torch_dtype=bf16" },
    { "two_steps", "trainer.max_steps=2" },
    { "linear", "trainer.max_steps=2 worker.actor.optim.lr_scheduler_type=linear" },
    { "undynamic", AEPO KL "algorithm.use_kl_loss=true" },
    { "no_chance", AEPO DYNAMIC "worker.actor.second_chance_soft_cost_min=0" },
    { "second_chance", AEPO DYNAMIC
      "worker.actor.enable_second_chance_kl=true worker.actor.second_chance_soft_cost_min=0 " },
    { "gae", LENGTHS RANDOM GAE },
    { "gae_lora", LENGTHS RANDOM GAE "worker.critic.model.lora.rank=4" },
    { "gae_small_steps",
      LENGTHS RANDOM GAE "worker.critic.optim.eps=1 worker.critic.optim.lr=1e-2" },
    { "gae_two_passes",
      LENGTHS RANDOM GAE "worker.critic.ppo_epochs=2 worker.critic.optim.lr=1e-2" },
    { "gae_bf16", LENGTHS RANDOM GAE "worker.critic.fsdp.torch_dtype=bf16" },
    { "gae_2", LENGTHS RANDOM GAE "trainer.max_steps=2" },
    { "gae_linear",
      LENGTHS RANDOM GAE "trainer.max_steps=2 worker.critic.optim.lr_scheduler_type=linear" },
    { "judged", "'worker.reward.rewards=[{name: random}, {name: exact}]'" },
    { "nothing", "worker.reward.rewards=null" },
    { "named_overlong", "worker.reward.rewards=null worker.reward.reward_function=dapo "
                        "worker.reward.reward_function_kwargs.max_response_length=12 "
                        "worker.reward.reward_function_kwargs.overlong_buffer_length=12" },
    { "named", "worker.reward.rewards=null worker.reward.reward_function=math" },
    { "too_long_rewards", LENGTHS RANDOM "worker.reward.max_length=12" },
    { "safe", LENGTHS "worker.reward.safe_length=6 worker.reward.max_length=12" },
    { "digits",
      "data.train_files=$DIR/digits.jsonl worker.rollout.n=64 'worker.reward.rewards=[{name: "
      "number}]'" },
    { "wrong", "'worker.reward.rewards=[{name: exact}]'" },
    { "ends", "worker.rollout.n=64 'worker.reward.rewards=[{name: format, pattern: "
              "\".*<.im_end.>.*\", finished: false}]'" },
    { "buffer", "worker.reward.overlong_buffer.len=6" },
    { "buffer_lengths", LENGTHS RANDOM
      "worker.reward.overlong_buffer.enable=true worker.reward.overlong_buffer.len=6" },
    { "buffer_on",
      "worker.reward.overlong_buffer.enable=true worker.reward.overlong_buffer.len=6" },
    { "own_dir", "trainer.run_dir=null" },
    { "oversampled", RANDOM LENGTHS OVER_LONG "trainer.max_steps=2" },
    { "ties", RANDOM OVER "trainer.max_steps=2" },
    { "partial", RANDOM LENGTHS OVER_LONG "curriculum.partial_rollout=true trainer.max_steps=3" },
    { "partial_corrected", RANDOM LENGTHS OVER_LONG
      "curriculum.partial_rollout=true worker.actor.rollout_is=token trainer.max_steps=3" },
    { "two_fetches", "'worker.reward.rewards=[{name: exact}]' algorithm.filter_groups.enable=true "
                     "curriculum.over_sampling_batch_size=5 "
                     "curriculum.max_fetches_per_rollout=2" },
    { "epoch", ROWS "trainer.max_steps=null trainer.total_epochs=1" },
    { "counted_threads", "\"worker.reward.rewards=[{name: own, command: [sh, -c, 'while read -r a; "
                         "do ls /proc/\\$PPID/task | wc -l >> $DIR/threads; echo 1; done']}]\"" },
    { "logged", VAL "trainer.logger=[tensorboard]" },
    { "often", "trainer.max_steps=3 trainer.save_freq=1" },
    { "hopeless_filter",
      "'worker.reward.rewards=[{name: exact}]' algorithm.online_filtering=true" },
    { "finished", VAL "trainer.run_dir=$DIR/often trainer.max_steps=3 trainer.val_only=true" },
    { "another_data",
      ROWS "trainer.max_steps=3 trainer.load_checkpoint_path=$DIR/often/checkpoints/step_000001" },
};

static const option_case options[] = {
    { "distillation.enabled", "true", "plain",
      "fails 2 the policy would be its own teacher with the same prompt" },
    { TEACHES "model_path", "$DIR/wide", "taught",
      "distillation/reverse_kl != base:distillation/reverse_kl" },
    { TEACHES "kind", "ema", "taught", "$ ls \"$RUN\"/checkpoints/step_000001/teacher" },
    { TEACHES "update_rate", "1", "taught_ema",
      "$ ! cmp -s \"$RUN\"/checkpoints/step_000001/teacher/model.safetensors "
      "\"$BASE\"/checkpoints/step_000001/teacher/model.safetensors" },
    { TEACHES "sync_steps", "2", "taught_ema",
      "$ ! cmp -s \"$RUN\"/checkpoints/step_000001/teacher/model.safetensors "
      "\"$BASE\"/checkpoints/step_000001/teacher/model.safetensors" },
    { TEACHES "fsdp.torch_dtype", "bf16", "taught_base",
      "distillation/reverse_kl != base:distillation/reverse_kl" },
    { TEACHES "fsdp.enable_full_shard", NULL, "test_e2e", "two_ranks_distil_as_one_does" },
    { TEACHES "fsdp.fsdp_size", "1", "taught_base", "same" },
    { TEACHES "offload.offload_params", "true", "taught_base", "same" },
    { TAUGHT_LOSS "loss_mode", "k3", "taught",
      "there base:distillation/forward_kl; absent distillation/forward_kl" },
    { TAUGHT_LOSS "beta", "0", "taught",
      "distillation/loss == distillation/forward_kl; distillation/loss != "
      "base:distillation/loss" },
    { TAUGHT_LOSS "temperature", "5", "taught",
      "distillation/reverse_kl < 0.5 * base:distillation/reverse_kl" },
    { TAUGHT_LOSS "use_task_rewards", "true", "taught_told",
      "actor/grad_norm != base:actor/grad_norm" },
    { TAUGHT_LOSS "distillation_loss_coef", "3", "taught_tasks", "distillation/coef == 3" },
    { TAUGHT_LOSS "use_policy_gradient", NULL, "test_e2e",
      "a_student_comes_near_its_teacher_on_its_own_answers" },
    { TAUGHT_LOSS "kl_discount_factor", "0.9", "taught_k1",
      "actor/grad_norm != base:actor/grad_norm" },
    { TAUGHT_LOSS "loss_max_clamp", "1e-9", "taught", "distillation/clamped_frac > 0.5" },
    { TAUGHT_LOSS "is_clip", "0.5", "taught", "distillation/is_weight_mean == 0.5" },
    { TAUGHT_LOSS "num_loss_tokens_to_skip", "2", "taught",
      "distillation/tokens < base:distillation/tokens" },
    { "distillation.positive_advantage_only", "true", "taught_tasks",
      "distillation/tokens < base:distillation/tokens" },
    { "distillation.lmbda", "0", "taught_answer", "distillation/stored_frac == 1" },
    { "distillation.response_key", "question", "taught_stored",
      "distillation/loss != base:distillation/loss" },
    { "distillation.context", "group", "taught", "there distillation/success_group_fraction" },
    { "distillation.privileged_context_key", "question", "taught",
      "$ rollouts | grep -q 'teacher_prompt.*say 0'" },
    { "distillation.teacher_prompt_template", "HINT {privileged_context}", "taught",
      "$ rollouts | grep -q 'teacher_prompt.*HINT sol 0'" },
    { "distillation.reprompt_template", "AGAIN {prompt}", "taught_group",
      "$ rollouts | grep -q 'teacher_prompt.*AGAIN ask'" },
    { "distillation.solution_template", "LIKE {successful_previous_attempt}", "taught_group",
      "$ rollouts | grep -q 'teacher_prompt.*LIKE '" },
    { "distillation.feedback_template", "TOLD {feedback_raw}", "taught_told",
      "$ rollouts | grep -q 'teacher_prompt.*TOLD sol 0'" },
    { "distillation.success_reward_threshold", "2", "taught_group",
      "distillation/success_group_fraction == 0; base:distillation/success_group_fraction > 0" },
    { "distillation.use_successful_as_teacher", "false", "taught_told",
      "distillation/success_sample_fraction == 0" },
    { "distillation.dont_reprompt_on_self_success", NULL, "test_train",
      "a_group_shows_its_first_right_answer_and_feedback_to_the_others" },
    { "distillation.include_environment_feedback", "true", "taught_group",
      "distillation/feedback_used_fraction == 1; base:distillation/feedback_used_fraction == 0" },
    { "distillation.environment_feedback_only_without_solution", "true", "taught_told",
      "distillation/feedback_used_fraction < base:distillation/feedback_used_fraction" },
    { "distillation.remove_thinking_from_demonstration", NULL, "test_train",
      "a_group_shows_its_first_right_answer_and_feedback_to_the_others" },
    { "distillation.max_reprompt_len", "5", "taught", "distillation/overlong_frac == 1" },
    { "vapor.beta", "0", "vapor",
      "vapor/pref_success_rate == 0; base:vapor/pref_success_rate == 0.75" },
    { "vapor.epsilon_low", "0.001", "vapor", "vapor/clip_frac_low > base:vapor/clip_frac_low" },
    { "vapor.epsilon_high", "0.001", "vapor", "vapor/clip_frac_high > base:vapor/clip_frac_high" },
    { "vapor.kl_coef", "10", "vapor", "vapor/kl@2 < base:vapor/kl@2" },
    { "vapor.kl_penalty_type", "abs", "vapor", "vapor/kl > 2 * base:vapor/kl" },
    { "vapor.ratio_reduction", "mean", "vapor",
      "vapor/verifiable_log_ratio_absmax < base:vapor/verifiable_log_ratio_absmax" },
    { "vapor.log_ratio_clamp", "1e-4", "vapor",
      "vapor/saturated_frac > 0; base:vapor/saturated_frac == 0" },
    { "vapor.preference_detach", "true", "vapor",
      "vapor/pref_margin@2 != base:vapor/pref_margin@2; vapor/reward_mean == "
      "base:vapor/reward_mean" },
    { "vapor.dpo_coef", "1", "vapor",
      "vapor/dpo_loss@2 < 0.69; vapor/pref_margin@2 > "
      "base:vapor/pref_margin@2" },
    { "vapor.dpo_beta", "1", "vapor_dpo", "vapor/dpo_margin@2 > 3 * base:vapor/dpo_margin@2" },
    { "vapor.failure_ratio", "full", "vapor",
      "vapor/extract_success_rate < 1; actor/grad_norm != base:actor/grad_norm" },
    { "vapor.verifiable_term_split", "[<S>, </S>]", "vapor",
      "vapor/reward_mean == 0; base:vapor/reward_mean > 0" },
    { "vapor.preference_term_split", "[<N>, </N>]", "vapor",
      "vapor/pref_margin@2 == 0; base:vapor/pref_margin@2 != 0" },
    { "vapor.chosen_key", "better", "vapor", "says 0 of 4 rows have a pair" },
    { "vapor.rejected_key", "worse", "vapor", "says 0 of 4 rows have a pair" },
    { "vapor.max_pair_length", "12", "vapor", "says are cut: longer than vapor.max_pair_length" },
    { "vapor.sync_ref_model", "false", "vapor_each_step", "vapor/kl@2 > base:vapor/kl@2" },
    { "vapor.ref_model_sync_steps", "1", "vapor", "vapor/kl@2 < base:vapor/kl@2" },
    { "vapor.ref_model_mixup_alpha", "0", "vapor_each_step", "vapor/kl@2 > base:vapor/kl@2" },
    { "env.definitions",
      "{FrozenLake: {instruction: You act on ice., max_actions: 1, options: "
      "{is_slippery: false}}}",
      "agents", "train/FrozenLake/num_actions < base:train/FrozenLake/num_actions" },
    { "env.max_turns", "1", "agents",
      "$ ! rollouts | grep -q 'Turn 2' && base_rollouts | grep -q 'Turn 2'" },
    { "env.max_actions_per_turn", "1", "agents",
      "train/FrozenLake/num_actions < base:train/FrozenLake/num_actions" },
    { "env.action_separator", ">>", "agents",
      "$ rollouts | grep -q 'separator .* >> ' && ! base_rollouts | grep -q ' >> '" },
    { "env.enable_think", "true", "agents",
      "$ rollouts | grep -q 'assistant.n<think>' && ! base_rollouts | grep -q '<think>'" },
    { "env.format_penalty", "-3", "agents", "critic/score/min < -2; base:critic/score/min > -2" },
    { "env.on_failure", NULL, "test_e2e", "a_failed_episode_is_not_one_that_scored_nothing" },
    { "env.failure_score", NULL, "test_e2e", "a_failed_episode_is_not_one_that_scored_nothing" },
    { "env.max_failed_frac", NULL, "test_e2e", "a_failed_episode_is_not_one_that_scored_nothing" },
    { "env.token_exact", "false", "agents",
      "says answers are written anew; absent exact/rollout_train_max_abs; "
      "base:exact/rollout_train_max_abs == 0" },
    { "env.train_text_include_warning", "false", "agents_text",
      "$ ! rollouts | grep -q 'No valid action provided' && base_rollouts | grep -q 'No valid "
      "action provided'" },
    { "env.enable_response_mask", "false", "agents_text",
      "train/response_length > 2 * base:train/response_length" },
    { "env.mask_template_tokens", "false", "agents_text",
      "train/response_length < base:train/response_length" },
    { "env.use_turn_scores", "true", "agents", "critic/score/min == 0; base:critic/score/min < 0" },
    { "env.context_window_mode", "single_turn", "agents",
      "$ rollouts | grep -q 'step(s) completed so far' && ! base_rollouts | grep -q 'so far'" },
    { "env.max_context_window", "1", "agents_limited",
      "prompt_length/max < base:prompt_length/max" },
    { "env.reward_normalization.grouping", "batch", "agents_mean",
      "critic/score/max != base:critic/score/max" },
    { "env.reward_normalization.method", "mean", "agents",
      "critic/score/mean ~ 0; base:critic/score/mean != 0" },
    { "env.train.tags", "Bandit", "agents",
      "there train/Bandit/success; absent train/FrozenLake/success" },
    { "env.train.groups", "8", "agents",
      "$ test $(rollouts | wc -l) = 32 && test $(base_rollouts | wc -l) = 16" },
    { "env.train.n_groups", "[1, 3]", "agents_two",
      "$ test $(rollouts | grep -c 'source\":\"Bandit') = 12 && test $(base_rollouts | grep -c "
      "'source\":\"Bandit') = 8" },
    { "env.train.group_size", "2", "agents",
      "$ test $(rollouts | wc -l) = 8 && test $(base_rollouts | wc -l) = 16" },
    { "env.train.seed", "20000", "agents",
      "$ test \"$(rollouts | head -1 | tr -dc _OGP)\" != \"$(base_rollouts | head -1 | tr -dc "
      "_OGP)\"" },
    { "env.val.tags", "Bandit", "agents_val",
      "there val-env/Bandit/success; absent val-env/FrozenLake/success" },
    { "env.val.groups", "3", "agents_val",
      "val-env/response_length != base:val-env/response_length" },
    { "env.val.n_groups", "[3, 1]", "agents_two",
      "val-env/response_length != base:val-env/response_length" },
    { "env.val.group_size", "2", "agents_val",
      "$ grep -q FrozenLake/pass@2 $RUN/metrics.jsonl && grep -q FrozenLake/pass@1 "
      "$BASE/metrics.jsonl" },
    { "env.val.seed", "5000", "agents_val",
      "$ test -s $RUN/validation/step_000001.jsonl && ! cmp -s $RUN/validation/step_000001.jsonl "
      "$BASE/validation/step_000001.jsonl" },
    /* ------------------------------------------------------------ data */
    { "data.train_files", "[$DIR/rows.jsonl]", "plain", "$ rollouts | grep -q 'user.nask [0-7]'" },
    { "data.val_files", "[$DIR/rows.jsonl]", "rows",
      "there val/reward_score@0; absent base:val/reward_score@0; "
      "$ test $(wc -l < $RUN/validation/step_000000.jsonl) = 8" },
    { "data.prompt_key", "question", "rows",
      "$ test $(rollouts | grep -c 'user.nsay [0-7]') = 16" },
    { "data.answer_key", "solution", "rows",
      "$ test $(rollouts | grep -c '\"ground_truth\":\"sol [0-7]\"') = 16" },
    { "data.metadata_key", "question", "rows", "fails 1 rows.jsonl:1: 'question' is no map" },
    { "data.image_key", "pictures", "rows",
      "fails 1 rows.jsonl:1: 'pictures' holds images or videos, and the model reads text alone" },
    { "data.video_key", "films", "rows",
      "fails 1 rows.jsonl:1: 'films' holds images or videos, and the model reads text alone" },
    { "data.image_dir", "$DIR/nowhere", "pictures",
      "fails 1 pictures.jsonl:1: media: images[0] = 'a.png': " },
    { "data.video_fps", NULL, "test_e2e",
      "more_frames_per_second_of_a_clip_are_more_tokens_of_the_prompt" },
    { "data.min_pixels", "2000", "pictures", "data/image_tokens > base:data/image_tokens" },
    { "data.max_pixels", "300", "pictures", "data/image_tokens < base:data/image_tokens" },
    { "data.vision_cache_gb", "0", "pictures", "same" },
    { "data.filter_unreadable_media", "true", "unreadable",
      "data/image_tokens > 0; says 1 of 9 rows dropped: their images or videos cannot be read" },
    { "data.system_prompt", "'Be brief.'", "rows",
      "$ test $(rollouts | grep -c 'system.nBe brief.<.im_end.>.n<.im_start.>user.nask') = 16" },
    { "data.format_prompt", "$DIR/format.jinja", "rows",
      "$ test $(rollouts | grep -c 'user.n<<ask [^>]*>><.im_end') = 16" },
    { "data.override_chat_template", "$DIR/chat.jinja", "rows",
      "$ test $(rollouts | grep -c '\"prompt\":\"\\[user\\] ask') = 16" },
    { "data.chat_template_kwargs", NULL, "test_e2e",
      "what_a_row_brings_for_the_template_reaches_the_model" },
    { "data.apply_chat_template", "false", "rows",
      "$ test $(rollouts | grep -c '\"prompt\":\"ask [0-7]') = 16" },
    { "data.max_prompt_length", "60", "rows",
      "prompt_length/max <= 60; base:prompt_length/max > 60" },
    { "data.max_response_length", "5", "plain",
      "response_length/max == 5; base:response_length/max == 12" },
    { "data.rollout_batch_size", "8", "plain",
      "filter/generated_groups == 8; $ test $(rollouts | wc -l) = 32" },
    { "data.mini_rollout_batch_size", "2", "plain",
      "filter/tries == 2; base:filter/tries == 1; filter/generated_groups == 4" },
    { "data.val_batch_size", "1", "two_val_rows",
      "fails 1 reward: validation: nothing could be judged (own: gave no answer within 0.1 s)" },
    { "data.val_group_key", "level", "val",
      "there val/level=0/reward_score@0; there val/level=1/reward_score@0; "
      "val/level=0/reward_score@0 + val/level=1/reward_score@0 == 2 * val/reward_score@0" },
    { "worker.actor.global_batch_samples", "8", "plain",
      "saved:optimizer_steps == 2; base:saved:optimizer_steps == 1" },
    { "curriculum.rm_type", "random", "unrewarded",
      "reward/overall > 0; base:reward/overall == 0" },
    { "curriculum.custom_rm_path", "my.module.reward", "plain", "fails 2 no code is loaded" },
    { "curriculum.names", "[these, those]", "mixed",
      "$ test $(rollouts | grep -c these) = 12 && test $(rollouts | grep -c those) = 4" },
    { "curriculum.weights", "[1, 3]", "mixed",
      "$ test $(rollouts | grep -c '\"two\"') = 12 && test $(base_rollouts | grep -c '\"two\"') = "
      "4" },
    { "curriculum.schedules", "{increasing_weight: 0}", "mixed_by_name",
      "$ test $(rollouts | grep -c '\"two\"') = 16 && test $(base_rollouts | grep -c '\"two\"') = "
      "12" },
    { "curriculum.step_unit", "rollout", "mixed_twice",
      "$ test $(rollouts | grep -c '\"two\"') = 0 && test $(base_rollouts | grep -c '\"two\"') = "
      "8" },
    { "curriculum.reward_caps", "[0, null]", "capped",
      "rollout/dynamic_filter/drop_reward_cap_rows > 0; absent "
      "rollout/dynamic_filter/drop_reward_cap_two" },
    { "eval.defaults", "{max_response_len: 3}", "evaluated", "eval/two/response_len/max@1 <= 3" },
    { "eval.datasets", "[{name: a, path: $DIR/two.jsonl}]", "plain",
      "there eval/a@0; there eval/a@1" },
    { "data.shuffle", "false", "plain",
      "$ test \"$(rollouts | column row | uniq | tr '\\n' ' ')\" = '0 1 2 3 '" },
    { "data.seed", "2", "plain",
      "$ test \"$(rollouts | column row)\" != \"$(base_rollouts | column row)\"" },
    { "data.filter_overlong_prompts", "false", "long", "fails 1 rows.jsonl:1: " },
    { "data.bootstrap", "true", "aepo_rows",
      "says bootstrap: 8 of 8 prompts; there bootstrap/medium/count@0" },
    { "data.bootstrap_batch_size", "3", "bootstrap", "says bootstrap: 3 of 8 prompts" },

    /* ------------------------------------------------------------ curriculum */
    { "curriculum.over_sampling_batch_size", "6", "random",
      "over_sampling/groups == 6; absent base:over_sampling/groups; "
      "$ test $(rollouts | wc -l) = 16" },
    { "curriculum.max_fetches_per_rollout", "3", "two_fetches",
      "fails 1 (dropped: all_wrong: 15)" },
    { "curriculum.recycle_surplus", "true", "ties",
      "over_sampling/surplus_groups == 4; over_sampling/given_back_groups == 4; "
      "base:over_sampling/given_back_groups == 0; over_sampling/old_token_frac@2 == 1" },
    { "curriculum.partial_rollout", "true", "oversampled",
      "over_sampling/cut_groups > 0; over_sampling/given_back_groups == over_sampling/cut_groups; "
      "base:over_sampling/given_back_groups == 0; over_sampling/old_token_frac@2 > 0; "
      "exact/rollout_train_max_abs@2 == 0" },
    { "curriculum.mask_offpolicy_in_partial_rollout", "true", "partial",
      "over_sampling/old_token_frac@2 < base:over_sampling/old_token_frac@2; "
      "over_sampling/length@2 == base:over_sampling/length@2" },
    { "curriculum.partial.old_log_probs", "stored", "partial_corrected",
      "actor/rollout_is_mean@2 == 1; base:actor/rollout_is_mean@2 != 1; "
      "exact/rollout_train_max_abs@2 == 0" },

    /* ------------------------------------------------------------ algorithm */
    { "algorithm.adv_estimator", "rloo", "plain",
      "critic/advantages/max ~ 1; critic/advantages/min ~ 0 - 1 / 3; "
      "base:critic/advantages/max ~ 1.5" },
    { "algorithm.norm_adv_by_std_in_grpo", "false", "plain",
      "critic/advantages/max ~ 0.75; critic/advantages/min ~ -0.25" },
    { "algorithm.gamma", "0.5", "gae_of_ones",
      "critic/returns/max ~ 1; critic/returns/min < 0.0005; critic/returns/min > 0.0004; "
      "base:critic/returns/min ~ 1" },
    { "algorithm.lam", "0", "gae_of_ones",
      "critic/returns/max ~ 1; critic/returns/min >= critic/values/min; "
      "critic/returns/min < 0.5" },
    { "algorithm.bi_level_gae", "true", "plain",
      "fails 2 algorithm.bi_level_gae = true: grpo knows no values" },
    { "algorithm.high_level_gamma", NULL, "test_algo", "every_estimator_is_its_formula" },
    { "algorithm.normalize_advantages", "true", "random",
      "critic/advantages/mean ~ 0; base:critic/advantages/mean < -0.01" },
    { "algorithm.soft_advantage_reweight", "true", "random",
      "critic/advantages/max ~ base:critic/advantages/max * 0.8660254" },
    { "algorithm.grpo_advantage_length_weight", "true", "random",
      "$ rollouts | column advantage > a; base_rollouts | column advantage > b; "
      "rollouts | column n_tokens | paste -d ' ' a b - | awk '{ e = $2 * 8 / $3 - $1; "
      "n += e * e < 1e-8 } END { exit n != 16 }'" },
    { "algorithm.zero_task_advantage", "true", "random",
      "critic/advantages/max == 0; critic/advantages/min == 0; base:critic/advantages/max > 1" },
    { "algorithm.importance_sampling_fix", "true", "half_factor",
      "critic/advantages/max ~ base:critic/advantages/max / 2" },
    { "algorithm.importance_sampling_clip", "0.25", "fixed_factor",
      "critic/advantages/max ~ base:critic/advantages/max / 4" },
    { "algorithm.disable_kl", "true", "kl", "absent critic/kl; base:critic/kl >= 0" },
    { "algorithm.use_kl_loss", "true", "kl",
      "absent critic/kl; actor/kl_loss@2 > 0; actor/final_loss@2 > actor/pg_loss@2" },
    { "algorithm.use_kl_in_reward", "false", "kl",
      "absent critic/kl; critic/rewards/max@2 == critic/score/max@2; "
      "base:critic/rewards/max@2 < 1" },
    { "algorithm.kl_penalty", "abs", "kl_loss", "actor/kl_loss@2 > 3 * base:actor/kl_loss@2" },
    { "algorithm.kl_coef", "0.02", "kl_loss",
      "actor/kl_coef == 0.02; actor/final_loss@2 - actor/pg_loss@2 ~ 0.02 * actor/kl_loss@2" },
    { "algorithm.online_filtering", "true", "unfiltered",
      "rollout/mixed_groups_frac == 1; base:rollout/mixed_groups_frac == 0.25; filter/tries > 1" },
    { "algorithm.filter_key", "overall", "weighed",
      "reward/overall == 0.5; base:reward/overall > 0.5" },
    { "algorithm.filter_low", "0.6", "filtered", "reward/overall == 0.75" },
    { "algorithm.filter_high", "0.3", "filtered", "reward/overall == 0.25" },
    { "algorithm.filter_groups.enable", "true", "groups",
      "rollout/mixed_groups_frac == 1; base:rollout/mixed_groups_frac == 0.25; "
      "dapo/groups_kept >= 4" },
    { "algorithm.filter_groups.metric", "score", "two_rewards",
      "dapo/groups_kept > 0; base:dapo/groups_kept == 0" },
    { "algorithm.dynamic_sampling.mode", "same_prompt", "resampled",
      "$ test -z \"$(rollouts | column draw | grep '[4-9]')\" && test -n \"$(base_rollouts | "
      "column draw | grep '[4-9]')\"" },
    { "algorithm.max_resample", "2", "hopeless", "dapo/num_gen_rounds == 3" },
    { "algorithm.on_exhausted", "error", "hopeless_once",
      "fails 1 2 draws gave 8 prompts, of which 0 stay" },
    { "algorithm.over_length_action", "keep", "too_long",
      "dapo/discarded_frac == 0; base:dapo/discarded_frac > 0" },
    { "algorithm.mask_truncated", "true", "random",
      "dapo/discarded_frac == base:response_length/clip_ratio; dapo/discarded_frac > 0" },
    { "algorithm.dynamic_sampling_filter", "nonzero_std", "plain",
      "rollout/mixed_groups_frac == 1; filter/tries > 1" },
    { "algorithm.keep_when_insufficient", "true", "deviating",
      "filter/tries == 1; base:filter/tries > 1" },
    { "algorithm.batch_adjust_mode", "copy", "half_in_rows",
      "train/batch_size == 16; train/num_mini_batches == 1; absent base:train/batch_size; "
      "$ test $(rollouts | grep -c step) = 16 && test $(base_rollouts | grep -c step) = 8" },
    { "algorithm.filter_empty_policy", "retry", "no_group_left",
      "train/rollout_attempts == 10; filter/tries == 10; absent actor/lr; "
      "base:actor/empty_minibatches == 1; "
      "$ grep -q empty_filtered_steps $RUN/DONE" },
    { "algorithm.filter_empty_stop_steps", NULL, "test_e2e",
      "steps_without_a_group_train_nothing_until_the_run_ends" },
    { "algorithm.name", "dapo", "random",
      "says config: algorithm.name: dapo -> ; $ grep -q 'clip_ratio_high: 0.28' "
      "$RUN/config.yaml" },
    { "algorithm.n_minibatches", "2", "plain",
      "saved:optimizer_steps == 2; base:saved:optimizer_steps == 1" },
    { "algorithm.calculate_entropy", "false", "bonus",
      "actor/final_loss == actor/pg_loss; base:actor/final_loss < base:actor/pg_loss - 0.5" },
    { "algorithm.kl_type", "adaptive", "kl",
      "critic/kl_coef_next ~ 0.00099968; critic/kl_coef@2 == critic/kl_coef_next; "
      "absent base:critic/kl_coef_next" },
    { "algorithm.kl_target", "1e-4", "adaptive",
      "critic/kl_coef_next@2 > critic/kl_coef@2; base:critic/kl_coef_next@2 < "
      "base:critic/kl_coef@2" },
    { "algorithm.kl_horizon", "32", "adaptive", "critic/kl_coef_next == 0.0009" },
    { "algorithm.early_stop_low_success", NULL, "test_e2e",
      "a_run_whose_validations_hardly_succeed_ends_after_logging_with_its_reason" },
    { "algorithm.early_stop_low_success_validations", NULL, "test_e2e",
      "a_run_whose_validations_hardly_succeed_ends_after_logging_with_its_reason" },
    { "algorithm.early_stop_rv_window", NULL, "test_e2e",
      "a_run_whose_rewards_stop_varying_ends_before_an_update_with_its_reason" },

    /* ------------------------------------------------------------ algorithm: AEPO */
    { "algorithm.aepo", "true", "random", "there aepo/tau; absent base:aepo/tau" },
    { "algorithm.entropy_percentile", "50", "aepo",
      "aepo/tau < base:aepo/tau; aepo/hwe_frac > base:aepo/hwe_frac" },
    { "algorithm.entropy_threshold_ema", "0.5", "aepo_2",
      "aepo/tau@2 == 0.5 * aepo/tau + 0.5 * aepo/tau_batch_median@2" },
    { "algorithm.target_update_interval", "2", "aepo_3",
      "aepo/target/easy@3 == aepo/target/easy@2; base:aepo/target/easy@3 > "
      "base:aepo/target/easy@2" },
    { "algorithm.target_coef_easy", "3", "aepo",
      "aepo/target/easy > base:aepo/target/easy; aepo/target/medium == "
      "base:aepo/target/medium; aepo/target/hard == base:aepo/target/hard" },
    { "algorithm.target_coef_medium", "3", "aepo",
      "aepo/target/easy == base:aepo/target/easy; aepo/target/medium > "
      "base:aepo/target/medium; aepo/target/hard == base:aepo/target/hard" },
    { "algorithm.target_coef_hard", "3", "aepo",
      "aepo/target/easy == base:aepo/target/easy; aepo/target/medium == "
      "base:aepo/target/medium; aepo/target/hard > base:aepo/target/hard" },
    { "algorithm.alpha_entropy_lr", "0.1", "aepo_2",
      "aepo/alpha/easy@2 - 0.5 == 2 * base:aepo/alpha/easy@2 - 2 * 0.5; "
      "aepo/alpha/easy@2 != 0.5" },
    { "algorithm.alpha_entropy_min", "0.49", "aepo_2",
      "aepo/alpha/hard@2 == 0.49; base:aepo/alpha/hard@2 < 0.49" },
    { "algorithm.alpha_entropy_max", "0.505", "aepo_2",
      "aepo/alpha/easy@2 == 0.505; base:aepo/alpha/easy@2 > 0.505" },
    { "algorithm.alpha_entropy_init_easy", "1", "aepo",
      "aepo/alpha/easy == 1; aepo/alpha/medium == 0.5; aepo/alpha/hard == 0.5" },
    { "algorithm.alpha_entropy_init_medium", "1", "aepo",
      "aepo/alpha/easy == 0.5; aepo/alpha/medium == 1; aepo/alpha/hard == 0.5" },
    { "algorithm.alpha_entropy_init_hard", "1", "aepo",
      "aepo/alpha/easy == 0.5; aepo/alpha/medium == 0.5; aepo/alpha/hard == 1" },
    { "algorithm.drop_easy_prompts", "true", "not_dropped",
      "epoch/skip_gid_count@3 > 0; base:epoch/skip_gid_count@3 == 0" },
    { "algorithm.drop_easy_ratio", "0", "easy",
      "epoch/skip_gid_count@3 < base:epoch/skip_gid_count@3" },
    { "algorithm.hwe_kl_scale", "0.25", "dynamic",
      "$ rollouts | grep -q '\"kl_weight\":.*\\[0.25,' && base_rollouts | grep -q "
      "'\"kl_weight\":.*\\[0.5,'" },
    { "algorithm.hwe_kl_scope", "window", "dynamic",
      "$ low() { grep -o '\\[0.5,[0-9]*' | tr -d '[' | awk -F, '{ n += $2 } END { print n }'; "
      "}; test $(rollouts | low) -gt $(base_rollouts | low)" },
    { "algorithm.kl_bucket_controller", "log_space", "dynamic",
      "there aepo/kl_beta/easy; absent aepo/kl_lambda/easy; there base:aepo/kl_lambda/easy" },
    { "algorithm.difficulty_aware_kl_penalty", "true", "dynamic",
      "$ of() { rollouts | grep '\"difficulty\":\"'$1 | sed 's/.*kl_weight//'; }; "
      "of easy | grep -q '\\[2,' && of medium | grep -q '\\[1,' && of hard | grep -q "
      "'\\[0.25,' && ! of hard | grep -q '\\[1,'" },
    { "algorithm.kl_lambda_lr", "0.1", "dynamic",
      "aepo/kl_lambda/medium == 1 + 0.1 * aepo/kl/medium - 0.1 * 0.1" },
    { "algorithm.kl_budget_easy", "1", "dynamic",
      "aepo/kl_lambda/easy == 1 + 0.01 * aepo/kl/easy - 0.01; "
      "aepo/kl_lambda/hard == base:aepo/kl_lambda/hard" },
    { "algorithm.kl_budget_medium", "1", "dynamic",
      "aepo/kl_lambda/medium == 1 + 0.01 * aepo/kl/medium - 0.01; "
      "aepo/kl_lambda/easy == base:aepo/kl_lambda/easy" },
    { "algorithm.kl_budget_hard", "1", "dynamic",
      "aepo/kl_lambda/hard == 1 + 0.01 * aepo/kl/hard - 0.01; "
      "aepo/kl_lambda/medium == base:aepo/kl_lambda/medium" },
    { "algorithm.kl_beta_init", "2", "log_space",
      "aepo/kl_beta/easy ~ 2 * base:aepo/kl_beta/easy; "
      "$ rollouts | grep -q '\"kl_weight\":.*\\[2,'" },
    { "algorithm.kl_beta_lr", "0", "log_space",
      "aepo/kl_beta/easy == 1; base:aepo/kl_beta/easy < 1" },
    { "algorithm.kl_beta_clip", "0.001", "log_space",
      "aepo/kl_beta/easy > base:aepo/kl_beta/easy; aepo/kl_beta/easy < 1" },
    { "algorithm.kl_beta_ema", "0", "log_space", "aepo/kl_beta/easy < base:aepo/kl_beta/easy" },
    { "algorithm.kl_beta_deadzone", "2", "log_space",
      "aepo/kl_beta/easy == 1; base:aepo/kl_beta/easy < 1" },
    { "algorithm.kl_beta_min", "0.999", "log_space", "aepo/kl_beta/easy == 0.999" },
    { "algorithm.kl_beta_max", "1", "log_space_up",
      "aepo/kl_beta/easy@2 == 1; base:aepo/kl_beta/easy@2 > 1" },
    { "algorithm.kl_beta_update_interval", "100", "log_space",
      "aepo/kl_beta/easy == 1; base:aepo/kl_beta/easy < 1" },
    { "algorithm.kl_target_easy", "1e-6", "log_space_2",
      "aepo/kl_beta/easy@2 > base:aepo/kl_beta/easy@2; "
      "aepo/kl_beta/hard == base:aepo/kl_beta/hard" },
    { "algorithm.kl_target_medium", "1e-6", "log_space_2",
      "aepo/kl_beta/medium@2 > base:aepo/kl_beta/medium@2; "
      "aepo/kl_beta/easy == base:aepo/kl_beta/easy" },
    { "algorithm.kl_target_hard", "1e-6", "log_space_2",
      "aepo/kl_beta/hard@2 > base:aepo/kl_beta/hard@2; "
      "aepo/kl_beta/medium == base:aepo/kl_beta/medium" },

    /* ------------------------------------------------------------ rollout */
    { "worker.rollout.rollout_filter_strategy", "top_k_abs", "random",
      "rollout/filter_kept_count == 1; $ test $(rollouts | wc -l) = 4 && test $(base_rollouts "
      "| wc -l) = 16" },
    { "worker.rollout.rollout_filter_value", "0.5", "shares",
      "rollout/filter_kept_count == 2; base:rollout/filter_kept_count == 4" },
    { "worker.rollout.rollout_filter_type", "smallest", "ranked_zeros",
      "reward/overall == 0; base:reward/overall == 0.25" },
    { "worker.rollout.rollout_filter_metric", "reward", "ranked",
      "reward/overall == 0.75; base:reward/overall == 0.5" },
    { "worker.rollout.rollout_filter_include_zero", "false", "plain",
      "rollout/filter_kept_count == 1; rollout/filter_zero_count == 3" },
    { "worker.rollout.rollout_filter_top_p_prob_mode", "linear", "masses",
      "rollout/filter_kept_count == 1; base:rollout/filter_kept_count == 4" },
    { "worker.rollout.rollout_filter_selection_eps", "1", "linear_masses",
      "rollout/filter_kept_count == 2; base:rollout/filter_kept_count == 3" },
    { "worker.rollout.n", "6", "plain",
      "$ test $(rollouts | wc -l) = 24 && test $(rollouts | column row | sort -u | wc -l) = 4" },
    { "worker.rollout.temperature", "0.5", "plain",
      "rollout/entropy < base:rollout/entropy - 0.01" },
    { "worker.rollout.top_p", "1e-9", "plain",
      "$ test $(rollouts | cut -d, -f4-7 | sort -u | wc -l) = 4 && test $(base_rollouts | cut "
      "-d, -f4-7 | sort -u | wc -l) = 16" },
    { "worker.rollout.top_k", "1", "plain",
      "$ test $(rollouts | cut -d, -f4-7 | sort -u | wc -l) = 4 && test $(base_rollouts | cut "
      "-d, -f4-7 | sort -u | wc -l) = 16" },
    { "worker.rollout.seed", "2", "plain",
      "$ test \"$(rollouts | column row)\" = \"$(base_rollouts | column row)\" && test $( "
      "(rollouts; base_rollouts) | cut -d, -f4-7 | sort -u | wc -l) = 32" },
    { "worker.rollout.ignore_eos", "true", "with_ends",
      "response_length/min == 12; base:response_length/min < 12" },
    { "worker.rollout.stop", "[K, L, M, N]", "with_ends",
      "$ test $(rollouts | grep -c '\"response\":\"[^\"]*[K-N]\".*\"finished\":true') -gt 10 "
      "&& ! rollouts | grep -q '\"response\":\"[^\"]*[K-N][^\"]' && base_rollouts | grep -q "
      "'\"response\":\"[^\"]*[K-N][^\"]'" },
    { "worker.rollout.stop_token_ids", "[97, 98, 99, 100]", "plain",
      "$ rollouts | grep -q '\"finished\":true' && ! base_rollouts | grep -q "
      "'\"finished\":true'" },
    { "worker.rollout.limit_images", "1", "pictures",
      "fails 1 pictures.jsonl:3: 2 images, and worker.rollout.limit_images allows 1" },
    { "worker.rollout.max_num_seqs", "2", "plain",
      "rollout/forward_passes >= 8 * 12; base:rollout/forward_passes == 12; same" },
    { "worker.rollout.max_num_batched_tokens", "40", "two_at_once",
      "rollout/forward_passes != base:rollout/forward_passes; same" },
    { "worker.rollout.max_model_len", "34", "plain",
      "fails 2 worker.rollout.max_model_len = 34: data.max_prompt_length + "
      "data.max_response_length = 60 do not fit" },
    { "worker.rollout.entropy_mode", "topk_tail", "aepo",
      "aepo/tau < base:aepo/tau / 2; actor/entropy == base:actor/entropy" },
    { "worker.rollout.entropy_topk", "40", "topk_tail", "aepo/tau > base:aepo/tau + 0.1" },
    { "worker.rollout.trigger_tokens_file", "$DIR/letters.json", "aepo",
      "aepo/hwe_frac < base:aepo/hwe_frac; aepo/tau == base:aepo/tau" },
    { "worker.rollout.trigger_match", NULL, "test_e2e",
      "with_trigger_words_a_part_of_the_high_entropy_tokens_counts" },
    { "worker.rollout.cache_tokens", "128", "plain",
      "rollout/forward_passes > base:rollout/forward_passes; same" },
    { "worker.rollout.gpu_memory_utilization", "0.5", "plain", "same" },
    { "worker.rollout.enable_prefix_caching", "false", "same_beginning",
      "rollout/forward_passes > base:rollout/forward_passes; same" },
    { "worker.rollout.state_snapshots", NULL, "test_e2e",
      "episodes_with_delta_nets_go_on_from_their_last_turn" },
    { "worker.rollout.speculation", "none", "alike",
      "rollout/forward_passes > 1.2 * base:rollout/forward_passes; absent rollout/drafted_tokens; "
      "base:rollout/accepted_tokens > 10; same" },
    { "worker.rollout.tensor_parallel_size", NULL, "test_e2e",
      "ranks_that_decode_as_one_train_as_each_by_itself" },
    { "worker.rollout.val_override_config", "{n: 3}", "val",
      "$ test $(wc -l < $RUN/validation/step_000000.jsonl) = 24 && test $(wc -l < "
      "$BASE/validation/step_000000.jsonl) = 8" },
    { "worker.rollout.enable_chunked_prefill", "false", "small_forwards",
      "fails 2 worker.rollout.max_num_batched_tokens = 40: data.max_prompt_length + "
      "data.max_response_length = 60 do not fit" },
    { "worker.rollout.window_size", "13", "aepo", "aepo/hwe_frac == 0; base:aepo/hwe_frac > 0" },

    /* ------------------------------------------------------------ actor */
    { "worker.actor.filter_loss_scaling", "linear", "half",
      "actor/grad_norm ~ base:actor/grad_norm / 2" },
    { "worker.actor.model.model_path", "$DIR/wide", "plain",
      "$ grep -q '\"hidden_size\": *48' $RUN/checkpoints/step_000001/model/config.json" },
    { "worker.actor.model.tokenizer_path", "$DIR/asker", "plain",
      "$ rollouts | grep -q 'im_start.>asker' && ! base_rollouts | grep -q asker" },
    { "worker.actor.model.eos_token", "<|im_start|>", "plain",
      "$ grep -q '\"eos_token_id\": *\\[' \"$RUN\"/checkpoints/step_000001/model/config.json && "
      "! grep -q '\"eos_token_id\": *\\[' \"$BASE\"/checkpoints/step_000001/model/config.json" },
    { "worker.actor.model.freeze_vision_tower", "false", "pictures",
      "actor/grad_norm > base:actor/grad_norm; weights:visual. != base:weights:visual.; "
      "m:visual. > 0; there exact/vision_max_abs" },
    { "worker.actor.model.trainable", "[mlp]", "plain",
      "actor/grad_norm < base:actor/grad_norm; moved:mlp > 0; moved:attn == 0; moved:norm == 0; "
      "moved:embed == 0; base:moved:attn > 0; m:mlp > 0; m:attn == 0; m:norm == 0; m:embed == 0" },
    { "worker.actor.model.parameters", "1e13", "check_only", "fails 2 GB" },
    { "worker.actor.model.enable_gradient_checkpointing", "true", "plain",
      "perf/max_memory_allocated_gb < base:perf/max_memory_allocated_gb; same" },
    { "worker.actor.model.override_config", "{max_position_embeddings: 80}", "plain",
      "$ grep -q '\"max_position_embeddings\": *80' "
      "$RUN/checkpoints/step_000001/model/config.json" },
    { "worker.actor.model.lora.rank", "8", "plain",
      "actor/adapter_norm == 0; $ grep -q '\"r\":8' "
      "$RUN/checkpoints/step_000001/adapter/adapter_config.json" },
    { "worker.actor.model.lora.init", "gaussian", "lora",
      "actor/grad_norm != base:actor/grad_norm" },
    { "worker.actor.model.lora.seed", "9", "lora", "actor/grad_norm != base:actor/grad_norm" },
    { "worker.actor.model.lora.adapter_path", NULL, "test_e2e",
      "a_checkpoint_of_an_adapter_is_used_with_its_model" },
    { "worker.actor.model.lora.alpha", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.actor.model.lora.target_modules", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.actor.model.lora.exclude_modules", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.actor.model.lora.use_rslora", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.actor.model.lora.rank_pattern", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.actor.model.lora.alpha_pattern", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.actor.model.lora.layers_to_transform", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.actor.model.lora.layers_pattern", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.actor.arithmetic", "bf16", "plain",
      "actor/entropy_loss != base:actor/entropy_loss; exact/rollout_train_max_abs == 0; $ grep -aq "
      "'\"BF16\"' $RUN/checkpoints/step_000001/model/model.safetensors" },
    { "worker.actor.fsdp.torch_dtype", "bf16", "plain",
      "$ grep -aq '\"BF16\"' $RUN/checkpoints/step_000001/model/model.safetensors && ! grep "
      "-aq '\"BF16\"' $BASE/checkpoints/step_000001/model/model.safetensors" },
    { "worker.actor.fsdp.enable_full_shard", NULL, "test_train",
      "what_two_ranks_share_changes_no_bit" },
    { "worker.actor.round_tokens", NULL, "test_train",
      "rounds_of_two_ranks_have_the_same_bits_whatever_is_shared" },
    { "worker.actor.fsdp.fsdp_size", NULL, "test_train",
      "what_pairs_of_four_ranks_share_changes_no_bit" },
    { "worker.actor.offload.offload_params", "true", "plain", "same" },
    { "worker.actor.offload.offload_optimizer", "true", "plain", "same" },
    { "worker.actor.global_batch_size", "2", "plain",
      "saved:optimizer_steps == 2; base:saved:optimizer_steps == 1" },
    { "worker.actor.mini_batch_unit", "rows", "plain",
      "saved:optimizer_steps == 4; base:saved:optimizer_steps == 1" },
    { "worker.actor.max_token_len_per_device", "100", "plain",
      "perf/max_memory_allocated_gb < base:perf/max_memory_allocated_gb; same" },
    { "worker.actor.micro_batch_size_per_device_for_update", "1", "by_micro_batch",
      "actor/pg_loss ~ 0; base:actor/pg_loss > 0.01" },
    { "worker.actor.share_prompts", "false", "plain",
      "perf/max_memory_allocated_gb > base:perf/max_memory_allocated_gb" },
    { "worker.actor.skip_zero_gradients", "false", "plain", "same" },
    { "worker.actor.ppo_epochs", "2", "plain",
      "saved:optimizer_steps == 2; base:saved:optimizer_steps == 1" },
    { "worker.actor.max_grad_norm", "1e-3", "small_steps",
      "moved: < 1.01 * 1e-2 * 1e-3; base:moved: > 1e-3" },
    { "worker.actor.shuffle", NULL, "test_e2e", "mini_batches_are_cut_from_a_random_order" },
    { "worker.actor.recompute_log_probs", NULL, "-",
      "what it computes again has the same bits; it costs time, which no test may measure" },
    { "worker.actor.loss_type", "gspo", "two_passes",
      "actor/ratio_max < base:actor/ratio_max; actor/ratio_min > base:actor/ratio_min" },
    { "worker.actor.clip_ratio_low", "0.001", "two_passes",
      "actor/pg_clipfrac_higher > base:actor/pg_clipfrac_higher; "
      "actor/clipped_ratio > base:actor/clipped_ratio" },
    { "worker.actor.clip_ratio_high", "0.001", "two_passes",
      "actor/pg_clipfrac_higher > base:actor/pg_clipfrac_higher; "
      "actor/clipped_ratio < base:actor/clipped_ratio" },
    { "worker.actor.clip_ratio_dual", "1.0011", "tight",
      "actor/pg_clipfrac_lower > base:actor/pg_clipfrac_lower" },
    { "worker.actor.tau_positive", "10", "sapo", "actor/pg_loss > base:actor/pg_loss + 0.1" },
    { "worker.actor.tau_negative", "10", "sapo", "actor/pg_loss < base:actor/pg_loss - 0.1" },
    { "worker.actor.clip_cov_ratio", "0.5", "clip_cov",
      "actor/pg_clipfrac_higher == 0.5; base:actor/pg_clipfrac_higher < 0.2" },
    { "worker.actor.clip_cov_lb", "4", "clip_cov",
      "actor/pg_clipfrac_higher == 0; base:actor/pg_clipfrac_higher > 0.1" },
    { "worker.actor.clip_cov_ub", "-4", "clip_cov",
      "actor/pg_clipfrac_higher == 0; base:actor/pg_clipfrac_higher > 0.1" },
    { "worker.actor.kl_cov_ratio", "0.5", "kl_cov",
      "actor/pg_clipfrac_higher == 0.5; base:actor/pg_clipfrac_higher < 0.2" },
    { "worker.actor.ppo_kl_coef", "10", "kl_cov", "actor/pg_loss > base:actor/pg_loss + 0.1" },
    { "worker.actor.dro_beta", "100", "dro",
      "actor/pg_loss > base:actor/pg_loss + 0.1; actor/ratio_max == base:actor/ratio_max" },
    { "worker.actor.early_stop_imp_ratio", "1.0001", "two_passes",
      "actor/abandoned_minibatches > 0; saved:optimizer_steps == 1; "
      "base:saved:optimizer_steps == 2" },
    { "worker.actor.early_stop_scope", "micro", "stops_early",
      "actor/abandoned_microbatches > 0; actor/abandoned_microbatches < 16; "
      "absent base:actor/abandoned_microbatches" },
    { "worker.actor.loss_avg_mode", "seq-mean-token-mean", "random",
      "actor/pg_loss ~ 0; base:actor/pg_loss > 0.01" },
    { "worker.actor.loss_norm", "micro", "single_rows",
      "actor/pg_loss ~ 0; base:actor/pg_loss > 0.01" },
    { "worker.actor.valid_token_scope", "rollout", "two_minis",
      "actor/grad_norm < 0.7 * base:actor/grad_norm" },
    { "worker.actor.loss_scale_factor", "24", "scaled_sums",
      "actor/pg_loss ~ base:actor/pg_loss / 2; actor/grad_norm ~ base:actor/grad_norm / 2" },
    { "worker.actor.entropy_coeff", "0.1", "random",
      "actor/final_loss ~ actor/pg_loss - 0.1 * actor/entropy_loss" },
    { "worker.actor.rollout_is", "token", "low_weights",
      "actor/grad_norm ~ base:actor/grad_norm / 2" },
    { "worker.actor.rollout_is_mode", "mask", "low_token_weights",
      "actor/pg_loss == 0; base:actor/pg_loss > 0.01" },
    { "worker.actor.rollout_is_threshold", "0.25", "token_weights",
      "actor/grad_norm ~ base:actor/grad_norm / 4" },
    { "worker.actor.rollout_is_threshold_lower", "1.5", "masked_weights",
      "actor/pg_loss == 0; base:actor/pg_loss > 0.01" },
    { "worker.actor.rollout_is_batch_normalize", "true", "low_token_weights",
      "rollout_corr/rollout_is_batch_norm_factor == 0.5; "
      "actor/grad_norm ~ 2 * base:actor/grad_norm" },
    { "worker.actor.rollout_rs", "seq_max_k2", "rejects",
      "rollout_corr/rollout_rs_masked_fraction == 0; "
      "base:rollout_corr/rollout_rs_masked_fraction == 1" },
    { "worker.actor.rollout_rs_threshold", "0.5_3", "rejects_rows",
      "rollout_corr/rollout_rs_seq_masked_fraction == 0; actor/grad_norm > 0; "
      "base:rollout_corr/rollout_rs_seq_masked_fraction == 1; base:actor/empty_minibatches == 1" },
    { "worker.actor.rollout_rs_threshold_lower", "0.5", "rejects",
      "rollout_corr/rollout_rs_masked_fraction == 0; "
      "base:rollout_corr/rollout_rs_token_k1_masked_fraction == 1" },
    { "worker.actor.rollout_token_veto_threshold", "2", "token_weights",
      "rollout_corr/rollout_is_veto_fraction == 1; actor/empty_minibatches == 1" },
    { "worker.actor.optim.lr", "2e-3", "plain", "actor/lr == 0.002; moved: ~ 2 * base:moved:" },
    { "worker.actor.optim.betas", "[0.8, 0.99]", "plain", "m: ~ 2 * base:m:; v: ~ 10 * base:v:" },
    { "worker.actor.optim.eps", "1", "plain", "moved: < base:moved: / 10" },
    { "worker.actor.optim.weight_decay", "100", "decaying",
      "weights:embed_tokens ~ 0.9 * base:weights:embed_tokens; "
      "weights:norm == base:weights:norm; weights:bias == base:weights:bias" },
    { "worker.actor.optim.strategy", "adamw_bf16", "bf16",
      "master:embed > 0; master:embed < base:master:embed / 50" },
    { "worker.actor.optim.lr_scheduler_type", "linear", "two_steps",
      "actor/lr@2 < actor/lr; base:actor/lr@2 == base:actor/lr" },
    { "worker.actor.optim.lr_warmup_ratio", "1", "two_steps",
      "actor/lr < actor/lr@2; actor/lr@2 < 1e-3" },
    { "worker.actor.optim.lr_warmup_steps", "2", "two_steps",
      "actor/lr < actor/lr@2; actor/lr@2 < 1e-3" },
    { "worker.actor.optim.min_lr_ratio", "0.5", "linear",
      "actor/lr@2 > base:actor/lr@2; actor/lr@2 < actor/lr" },
    { "worker.actor.fsdp.mp_reduce_dtype", "bf16", "plain",
      "fails 2 worker.actor.fsdp.mp_reduce_dtype = 'bf16': gradients are added in double" },
    { "worker.actor.ulysses_size", "2", "plain",
      "says worker.actor.ulysses_size = 2: has no effect: each rank computes; same" },
    { "worker.actor.micro_batch_size_per_device_for_experience", "3", "plain",
      "fails 2 worker.actor.micro_batch_size_per_device_for_experience = 3: the 16 samples of "
      "a batch" },
    { "worker.actor.dynamic_kl_loss", "true", "undynamic",
      "$ rollouts | grep -q kl_weight && ! base_rollouts | grep -q kl_weight" },
    { "worker.actor.enable_second_chance_kl", "true", "no_chance",
      "$ rollouts | grep -q '\"accuracy\":0.*\"easy\".*kl_weight.*\\[0.67,' && ! base_rollouts "
      "| grep -q '\\[0.67,'" },
    { "worker.actor.second_chance_easy_only", "false", "second_chance",
      "$ rollouts | grep -q '\"medium\".*\\[0.67,' && ! base_rollouts | grep -q "
      "'\"medium\".*\\[0.67,'" },
    { "worker.actor.second_chance_incorrect_only", "false", "second_chance",
      "$ rollouts | grep -q '\"accuracy\":1.*\\[0.67,' && ! base_rollouts | grep -q "
      "'\"accuracy\":1.*\\[0.67,'" },
    { "worker.actor.second_chance_soft_cost_min", "100", "second_chance",
      "$ ! rollouts | grep -q '\\[0.67,' && base_rollouts | grep -q '\\[0.67,'" },
    { "worker.actor.second_chance_kl_relax", "0.6", "second_chance",
      "$ rollouts | grep -q '\\[0.6,' && ! rollouts | grep -q '\\[0.67,'" },

    /* ------------------------------------------------------------ reference */
    { "worker.ref.model.model_path", NULL, "test_e2e",
      "a_checkpoint_of_an_adapter_is_used_with_its_model" },
    { "worker.ref.model.adapter", NULL, "test_e2e",
      "a_checkpoint_of_an_adapter_is_used_with_its_model" },
    { "worker.ref.arithmetic", "bf16", "kl_loss", "actor/kl > 0; base:actor/kl == 0" },
    { "worker.ref.fsdp.torch_dtype", "bf16", "kl_loss", "actor/kl > 0; base:actor/kl == 0" },
    { "worker.ref.fsdp.enable_full_shard", NULL, "test_train",
      "what_two_ranks_share_changes_no_bit" },
    { "worker.ref.fsdp.fsdp_size", NULL, "test_train",
      "what_pairs_of_four_ranks_share_changes_no_bit" },
    { "worker.ref.offload.offload_params", "true", "kl_loss", "same" },
    { "worker.ref.ulysses_size", "2", "kl_loss",
      "says worker.ref.ulysses_size = 2: has no effect: each rank computes; same" },

    /* ------------------------------------------------------------ critic */
    { "worker.critic.model.model_path", "$DIR/wide", "gae",
      "$ grep -q '\"hidden_size\": *48' $RUN/checkpoints/step_000001/critic/config.json" },
    { "worker.critic.model.trainable", "[score]", "gae",
      "critic/grad_norm < base:critic/grad_norm; critic_moved:layers == 0; "
      "base:critic_moved:layers > 0; critic_m:score > 0; critic_m:layers == 0" },
    { "worker.critic.model.enable_gradient_checkpointing", "false", "gae",
      "perf/max_memory_allocated_gb > base:perf/max_memory_allocated_gb; same" },
    { "worker.critic.model.lora.rank", "8", "gae",
      "$ grep -q TOKEN_CLS $RUN/checkpoints/step_000001/critic/adapter_config.json" },
    { "worker.critic.model.lora.init", "gaussian", "gae_lora",
      "critic/grad_norm != base:critic/grad_norm" },
    { "worker.critic.model.lora.seed", "9", "gae_lora",
      "critic/grad_norm != base:critic/grad_norm" },
    { "worker.critic.model.lora.adapter_path", NULL, "test_e2e",
      "a_run_of_adapters_goes_on_bit_for_bit_and_only_as_one" },
    { "worker.critic.model.lora.alpha", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.critic.model.lora.target_modules", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.critic.model.lora.exclude_modules", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.critic.model.lora.use_rslora", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.critic.model.lora.rank_pattern", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.critic.model.lora.alpha_pattern", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.critic.model.lora.layers_to_transform", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.critic.model.lora.layers_pattern", NULL, "test_model",
      "options_of_adapters_are_written_in_the_keys_of_peft" },
    { "worker.critic.arithmetic", "bf16", "gae",
      "critic/grad_norm != base:critic/grad_norm; $ grep -aq '\"BF16\"' "
      "$RUN/checkpoints/step_000001/critic/model.safetensors" },
    { "worker.critic.fsdp.torch_dtype", "bf16", "gae",
      "$ grep -aq '\"BF16\"' $RUN/checkpoints/step_000001/critic/model.safetensors && ! grep "
      "-aq '\"BF16\"' $BASE/checkpoints/step_000001/critic/model.safetensors" },
    { "worker.critic.fsdp.enable_full_shard", NULL, "test_train",
      "what_two_ranks_share_changes_no_bit" },
    { "worker.critic.round_tokens", NULL, "test_train",
      "rounds_of_two_ranks_have_the_same_bits_whatever_is_shared" },
    { "worker.critic.fsdp.fsdp_size", NULL, "test_train",
      "what_pairs_of_four_ranks_share_changes_no_bit" },
    { "worker.critic.global_batch_size", "2", "gae",
      "saved:critic_optimizer_steps == 2; saved:optimizer_steps == 1; "
      "base:saved:critic_optimizer_steps == 1" },
    { "worker.critic.mini_batch_unit", "rows", "gae",
      "saved:critic_optimizer_steps == 4; saved:optimizer_steps == 1; "
      "base:saved:critic_optimizer_steps == 1" },
    { "worker.critic.ppo_epochs", "2", "gae",
      "saved:critic_optimizer_steps == 2; saved:optimizer_steps == 1" },
    { "worker.critic.max_grad_norm", "1e-3", "gae_small_steps",
      "critic_moved: < base:critic_moved: / 100" },
    { "worker.critic.cliprange_value", "1e-4", "gae_two_passes",
      "critic/vf_clipfrac > base:critic/vf_clipfrac" },
    { "worker.critic.loss_avg_mode", "seq-mean-token-sum", "gae",
      "critic/vf_loss > 4 * base:critic/vf_loss" },
    { "worker.critic.max_token_len_per_device", "100", "gae",
      "perf/max_memory_allocated_gb < base:perf/max_memory_allocated_gb; same" },
    { "worker.critic.offload.offload_params", "true", "gae", "same" },
    { "worker.critic.offload.offload_optimizer", "true", "gae", "same" },
    { "worker.critic.share_prompts", "false", "gae",
      "perf/max_memory_allocated_gb > base:perf/max_memory_allocated_gb" },
    { "worker.critic.optim.lr", "2e-3", "gae",
      "critic/lr == 0.002; critic_moved: ~ 2 * base:critic_moved:" },
    { "worker.critic.optim.betas", "[0.8, 0.99]", "gae",
      "critic_m: ~ 2 * base:critic_m:; critic_v: ~ 10 * base:critic_v:" },
    { "worker.critic.optim.eps", "1", "gae", "critic_moved: < base:critic_moved: / 10" },
    { "worker.critic.optim.weight_decay", "100", "gae",
      "critic_weights:embed_tokens < 0.95 * base:critic_weights:embed_tokens; "
      "critic_weights:norm == base:critic_weights:norm" },
    { "worker.critic.optim.strategy", "adamw_bf16", "gae_bf16",
      "critic_master:embed > 0; critic_master:embed < base:critic_master:embed / 50" },
    { "worker.critic.optim.lr_scheduler_type", "linear", "gae_2",
      "critic/lr@2 < critic/lr; base:critic/lr@2 == base:critic/lr" },
    { "worker.critic.optim.lr_warmup_ratio", "1", "gae_2",
      "critic/lr < critic/lr@2; critic/lr@2 < 1e-3" },
    { "worker.critic.optim.lr_warmup_steps", "2", "gae_2",
      "critic/lr < critic/lr@2; critic/lr@2 < 1e-3" },
    { "worker.critic.optim.min_lr_ratio", "0.5", "gae_linear",
      "critic/lr@2 > base:critic/lr@2; critic/lr@2 < critic/lr" },
    { "worker.critic.fsdp.mp_reduce_dtype", "fp16", "gae",
      "fails 2 worker.critic.fsdp.mp_reduce_dtype = 'fp16': gradients are added in double" },
    { "worker.critic.ulysses_size", "2", "gae",
      "says worker.critic.ulysses_size = 2: has no effect: each rank computes; same" },
    { "worker.critic.micro_batch_size_per_device_for_update", "3", "gae",
      "fails 2 worker.critic.micro_batch_size_per_device_for_update = 3: the 16 samples" },
    { "worker.critic.micro_batch_size_per_device_for_experience", "3", "gae",
      "fails 2 worker.critic.micro_batch_size_per_device_for_experience = 3: the 16 samples of "
      "a batch" },

    /* ------------------------------------------------------------ rewards */
    { "worker.reward.rewards", "[{name: random}, {name: exact, weight: 0.5}]", "plain",
      "there reward/random; there reward/exact; absent reward/format" },
    { "worker.reward.accuracy", "random", "judged",
      "reward/accuracy > 0; base:reward/accuracy == 0" },
    { "worker.reward.reward_function", "math", "nothing",
      "absent reward/exact; there base:reward/exact" },
    { "worker.reward.reward_function_name", NULL, "test_e2e",
      "words_of_three_trainers_run_a_python_function" },
    { "worker.reward.reward_funcs", NULL, "test_e2e",
      "words_of_three_trainers_run_a_python_function" },
    { "worker.reward.reward_weights", NULL, "test_e2e",
      "words_of_three_trainers_run_a_python_function" },
    { "worker.reward.python", NULL, "test_e2e", "words_of_three_trainers_run_a_python_function" },
    { "worker.reward.reward_function_kwargs", "{overlong_penalty_factor: 2}", "named_overlong",
      "reward/overall == -3" },
    { "worker.reward.reward_type", "sequential", "named",
      "fails 2 worker.reward.reward_type = 'sequential': reward_function 'math' is batch" },
    { "worker.reward.max_length", "8", "random",
      "dapo/discarded_frac > 0; response_length/max <= 8" },
    { "worker.reward.safe_length", "4", "too_long_rewards", "reward/length_penalty < 0" },
    { "worker.reward.len_reward_penalty", "0.5", "safe",
      "reward/length_penalty ~ 5 * base:reward/length_penalty" },
    { "worker.reward.correct", "2", "digits",
      "critic/score/max == 2; critic/score/min == -1; base:critic/score/max == 1" },
    { "worker.reward.incorrect", "-0.5", "wrong", "reward/overall == -0.5" },
    { "worker.reward.scale", "3", "wrong", "reward/overall == -3" },
    { "worker.reward.on_failure", "score", "half_judged",
      "critic/score/min == 0; base:critic/score/min == 1; rollout/failed_frac == 0.5" },
    { "worker.reward.max_failed_frac", "0.4", "half_judged",
      "fails 1 reward: 8 of 16 answers could not be judged (own: ended with exit code 3" },
    { "worker.reward.skip_special_tokens", "false", "ends",
      "reward/format > 0; base:reward/format == 0" },
    { "worker.reward.unfinished_score", "-1", "plain", "reward/overall == -1" },
    { "worker.reward.overlong_buffer.enable", "true", "buffer",
      "reward/length_penalty == -1; absent base:reward/length_penalty" },
    { "worker.reward.overlong_buffer.len", "12", "buffer_lengths",
      "reward/length_penalty < base:reward/length_penalty" },
    { "worker.reward.overlong_buffer.penalty_factor", "0.5", "buffer_on",
      "reward/length_penalty == -0.5; base:reward/length_penalty == -1" },
    { "worker.reward.overlong_buffer.max_resp_len", "24", "buffer_on",
      "reward/length_penalty == 0" },
    { "worker.hybrid_engine", "false", "plain",
      "fails 2 worker.hybrid_engine = false: actor and rollout always share their weights" },

    /* ------------------------------------------------------------ the run */
    { "trainer.project_name", "mine", "own_dir", "$ test -e $DIR/runs/mine/demo/DONE" },
    { "trainer.experiment_name", "this", "own_dir", "$ test -e $DIR/runs/ares/this/DONE" },
    { "trainer.run_dir", "$DIR/elsewhere", "plain",
      "$ test -e $DIR/elsewhere/DONE && test ! -e $RUN" },
    { "trainer.total_epochs", "2", "epoch",
      "$ test $(grep -c step $RUN/metrics.jsonl) = 4 && test $(grep -c step "
      "$BASE/metrics.jsonl) = 2" },
    { "trainer.max_steps", "2", "plain",
      "there actor/lr@2; absent actor/lr@3; absent base:actor/lr@2" },
    { "trainer.device", NULL, "test_e2e", "cuda_where_there_is_none_is_told_in_a_line" },
    { "trainer.kernels", "aten", "plain",
      "actor/grad_norm ~ base:actor/grad_norm; base:exact/rollout_train_max_abs == 0; "
      "exact/rollout_train_max_abs != 0" },
    { "trainer.threads", "3", "counted_threads",
      "$ test $(($(tail -n 1 threads) - $(head -n 1 threads))) = 2" },
    { "trainer.comm_timeout_s", NULL, "test_e2e",
      "a_run_whose_rank_was_killed_or_stopped_goes_on_bit_for_bit" },
    { "trainer.comm_transport", NULL, "test_e2e",
      "what_goes_by_nccl_trains_the_bits_of_what_goes_over_the_host" },
    { "trainer.logger", "[tensorboard]", "plain",
      "says not step 1/1 |; $ test -e $RUN/events* && ! ls $BASE/events*" },
    { "trainer.progress", NULL, "test_e2e",
      "on_a_terminal_a_line_moves_between_two_steps_and_changes_no_bit" },
    { "trainer.balance_batch", NULL, "test_e2e",
      "ranks_share_the_tokens_of_each_mini_batch_evenly_and_learn_what_one_does" },
    { "trainer.val_freq", "1", "val",
      "there val/reward_score@1; absent base:val/reward_score@1; there base:val/reward_score@2" },
    { "trainer.val_before_train", "false", "val",
      "absent val/reward_score@0; there base:val/reward_score@0" },
    { "trainer.val_only", "true", "val", "says validating; $ test ! -e $RUN" },
    { "trainer.val_generations_to_log", "2", "logged",
      "$ grep -aq val/sample_1 $RUN/events* && ! grep -aq val/sample_2 $RUN/events* && ! grep "
      "-aq val/sample_ $BASE/events*" },
    { "trainer.report", "false", "plain",
      "$ test ! -e $RUN/report.html && grep -q '<script type=\"application/json\"' "
      "$BASE/report.html" },
    { "trainer.rollout_log", "text", "plain",
      "$ ! rollouts | grep -q token_ids && test $(rollouts | wc -l) = 16 && base_rollouts | grep "
      "-q token_ids" },
    { "trainer.rollout_log_freq", "5", "often",
      "$ test \"$(cd $RUN/rollouts; echo *)\" = 'step_000001.jsonl step_000003.jsonl' && test -e "
      "$BASE/rollouts/step_000002.jsonl" },
    { "trainer.rollout_log_tokens", "1", "plain",
      "$ test $(rollouts | grep -c token_ids) = 4 && test $(base_rollouts | grep -c token_ids) = "
      "16" },
    { "trainer.save_freq", "1", "two_steps",
      "$ test -e $RUN/checkpoints/step_000001 && test ! -e $BASE/checkpoints/step_000001" },
    { "trainer.save_async", "true", "plain", "same" },
    { "trainer.save_minutes", "1e-9", "two_steps",
      "there timing_s/save_checkpoint; absent base:timing_s/save_checkpoint; "
      "there base:timing_s/save_checkpoint@2" },
    { "trainer.save_limit", "1", "often",
      "$ test \"$(ls $RUN/checkpoints | tr '\\n' ' ')\" = 'latest step_000003 ' && test -e "
      "$BASE/checkpoints/step_000001" },
    { "trainer.critic_warmup", "1", "gae",
      "absent actor/lr; there critic/lr; moved: == 0; critic_moved: > 0" },
    { "trainer.max_try_make_batch", "2", "hopeless_filter",
      "fails 1 2 draws gave 8 prompts, of which 0 stay, and a batch takes 4" },
    { "trainer.save_model_only", "true", "plain",
      "$ test ! -e $RUN/checkpoints/step_000001/optimizer.safetensors && test -e "
      "$RUN/checkpoints/step_000001/model/model.safetensors" },
    { "trainer.load_checkpoint_path", "$DIR/often/checkpoints/step_000001", "often",
      "says going on from; absent actor/lr; there actor/lr@2; weights: == base:weights:" },
    { "trainer.find_last_checkpoint", "false", "finished",
      "$ grep -q 'validating .*/model$' $RUN.said && "
      "grep -q 'validating .*/step_000003' $BASE.said" },
    { "trainer.force", "true", "another_data", "there actor/lr@2; absent base:actor/lr@2" },
    { "trainer.nnodes", "2", "plain",
      "fails 2 trainer.nnodes = 2: the 1 ranks started do not spread evenly" },
    { "trainer.n_gpus_per_node", "2", "plain",
      "fails 2 trainer.n_gpus_per_node = 2: with trainer.nnodes = 1 that makes another number "
      "of ranks" },

    /* ------------------------------------------------------------ diagnostics */
    { "report.collapse.freq", "1", "random",
      "there collapse_first_turn_sample/mi_estimate; there "
      "collapse_trajectory_sample/mi_zscore_ema; "
      "there timing_s/collapse; absent base:timing_s/collapse; moved: == base:moved:" },
    { "report.collapse.samples", "2", "collapse",
      "collapse_trajectory_sample/mi_upper_bound < "
      "base:collapse_trajectory_sample/mi_upper_bound / 2" },
    { "report.collapse.first_turn", "false", "collapse",
      "absent collapse_first_turn_sample/mi_estimate; "
      "there collapse_trajectory_sample/mi_estimate" },
    { "report.collapse.multi_turn", "false", "collapse",
      "absent collapse_trajectory_sample/mi_estimate; "
      "there collapse_first_turn_sample/mi_estimate" },
    { "report.gradient_analysis.every", "1", "random",
      "grad_norm/all/task == actor/grad_norm; absent base:grad_norm/all/task; "
      "moved: == base:moved:" },
    { "report.gradient_analysis.buckets", "2", "gradients",
      "grad_norm/bucket_2/group_rv_count == 2; absent grad_norm/bucket_3/task; "
      "there base:grad_norm/bucket_4/task" },
    { "report.gradient_analysis.bucket_mode", "fixed", "gradients",
      "grad_norm/bucket_1/group_rv_count == 4; base:grad_norm/bucket_1/group_rv_count == 1" },
    { "report.gradient_analysis.only", "true", "gradients",
      "absent actor/lr; moved: == 0; there grad_norm/all/task; base:moved: > 0" },
};
#endif
