/*
 * Option names of other trainers on a command line: one that has no meaning here is reported with
 * the reason and stops no run, one that would mislead is refused with what to write instead, and a
 * preset reports what it sets and what was set otherwise.
 */
#include "e2e.h"

#include <stdio.h>
#include <string.h>

/* Options in the configurations of verl, EasyR1 and TRL, by the reason that is reported. */
static const struct {
    const char *why, *words;
} without_meaning[] = {
    { "prompts are encoded on the threads of trainer.threads",
      "data.filter_overlong_prompts_workers=4" },
    { "batches are always packed",
      "worker.actor.padding_free=true worker.critic.padding_free=true "
      "worker.ref.padding_free=true actor_rollout_ref.model.use_remove_padding=true" },
    { "micro-batches are cut by worker.actor.max_token_len_per_device; no result depends on it",
      "worker.actor.dynamic_batching=true worker.critic.dynamic_batching=true "
      "worker.ref.micro_batch_size_per_device_for_experience=4 "
      "actor_rollout_ref.actor.ppo_micro_batch_size=8 "
      "actor_rollout_ref.actor.use_dynamic_bsz=true "
      "actor_rollout_ref.ref.log_prob_micro_batch_size=8 "
      "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8 "
      "actor_rollout_ref.ref.log_prob_use_dynamic_bsz=true "
      "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=9 "
      "actor_rollout_ref.rollout.log_prob_micro_batch_size=8 "
      "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 "
      "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=true "
      "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=9 "
      "use_dynamic_batch_size=true" },
    { "kernels are compiled ahead of time",
      "worker.actor.use_torch_compile=true worker.ref.use_torch_compile=true" },
    { "no code of a model is run",
      "worker.actor.model.trust_remote_code=false "
      "worker.critic.model.trust_remote_code=false worker.rollout.trust_remote_code=false "
      "data.trust_remote_code=false actor_rollout_ref.model.trust_remote_code=false" },
    { "a critic reads text alone", "worker.critic.model.freeze_vision_tower=false" },
    { "worker.*.fsdp.torch_dtype is how weights are stored, enable_full_shard what ranks share",
      "worker.actor.fsdp.use_orig_params=true worker.critic.fsdp.use_orig_params=true "
      "worker.ref.fsdp.mp_buffer_dtype=fp32 worker.actor.strategy=fsdp2 "
      "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 "
      "critic.veomni.fsdp_size=2" },
    { "worker.*.offload.* says what waits in host memory",
      "worker.ref.fsdp.enable_cpu_offload=true "
      "actor_rollout_ref.model.enable_activation_offload=true" },
    { "the rollout engine is this program's own", "actor_rollout_ref.rollout.name=vllm" },
    { "timing_s/* in metrics.jsonl says where time goes",
      "actor_rollout_ref.actor.profiler.enable=false global_profiler.steps=null "
      "critic.profiler.ranks=[]" },
    { "the critic reads the actor's tokens", "worker.critic.model.tokenizer_path=t" },
    { "rollout reads the actor's own weights: worker.actor.fsdp.torch_dtype",
      "worker.rollout.dtype=bf16" },
    { "a detail of another engine",
      "worker.rollout.enforce_eager=false data.return_raw_chat=false "
      "data.return_raw_input_ids=false data.return_full_prompt=false "
      "actor_rollout_ref.model.use_fused_kernels=true "
      "actor_rollout_ref.model.use_liger=false "
      "actor_rollout_ref.model.external_lib=null "
      "actor_rollout_ref.actor.use_torch_compile=true "
      "actor_rollout_ref.actor.entropy_checkpointing=true "
      "actor_rollout_ref.actor.fsdp_config.wrap_policy.min_num_params=0 "
      "actor_rollout_ref.ref.fsdp_config.forward_prefetch=true "
      "actor_rollout_ref.rollout.free_cache_engine=true "
      "actor_rollout_ref.rollout.mode=sync worker.actor.model.lora.max_loras=2 "
      "actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space=null "
      "actor_rollout_ref.rollout.router_config_path=null trainer.use_v1=true "
      "trainer.v1.colocate_async.num_warmup_batches=1 critic.model.use_liger=false "
      "algorithm.filter_groups.max_inflight_gen_batches=1 "
      "trainer.default_hdfs_dir=null use_vllm=true remove_unused_columns=false" },
    { "rollout/* are always logged", "worker.rollout.disable_log_stats=true" },
    { "trainer.logger says whether the console shows progress",
      "worker.rollout.disable_tqdm=false" },
    { "rewards run on the threads of trainer.threads", "worker.reward.num_cpus=1" },
    { "a run directory goes on by itself, its metrics with it", "trainer.wandb_run_id=x" },
    { "prompts are never cut; a longer one is dropped (data.filter_overlong_prompts) or ends the "
      "run",
      "data.truncation=error" },
    { "KL is no term of the loss",
      "actor_rollout_ref.actor.kl_loss_coef=0.1 actor_rollout_ref.actor.kl_loss_type=k1" },
    { "the schedule spans the run's own steps",
      "actor_rollout_ref.actor.optim.total_training_steps=-1" },
    { "entropy is always computed in chunks",
      "actor_rollout_ref.actor.entropy_from_logits_with_chunking=true" },
    { "a checkpoint holds the whole run", "actor_rollout_ref.actor.checkpoint.contents=[model]" },
    { "worker.reward.rewards says what is rewarded; {name: auto} goes by the data source",
      "reward_model.reward_manager=naive" },
    { "reward/length_penalty is always logged", "reward_model.overlong_buffer.log=false" },
    { "a run directory goes on by itself, else from trainer.load_checkpoint_path",
      "trainer.resume_mode=auto" },
    { "rollouts/*.jsonl in trainer.run_dir hold every answer",
      "trainer.rollout_data_dir=d trainer.validation_data_dir=d num_completions_to_print=1" },
    { "a step samples with the weights that it trains", "async_training.staleness_threshold=1" },
    { "ranks come from --ranks or mpirun", "ray_init.num_cpus=null ray_kwargs.timeline=null" },
    { "every step is logged", "logging_steps=1" },
    { "each file is named with --config, a later one over those before it",
      "defaults=[base] hydra.searchpath=[a]" },
    { "the environment variable of that name, trainer.device and --ranks say which cards are used",
      "system.CUDA_VISIBLE_DEVICES=0" },
    { "actor and rollout read the same weights and adapters, so that nothing has to be "
      "synchronised",
      "actor_rollout_ref.rollout.load_format=safetensors actor_rollout_ref.rollout.layered_summon="
      "true actor_rollout_ref.model.use_shm=false critic.model.use_shm=true "
      "actor_rollout_ref.model.lora.merge=true lora_sync_path=/tmp/a "
      "trainer.policy.model.lora.lora_sync_path=/tmp/b" },
    { "nothing is dropped out here", "actor_rollout_ref.model.lora.dropout_position=pre" },
    { "adapters are stored in fp32", "actor_rollout_ref.model.lora.dtype=null" },
    { "weights are not quantised", "actor_rollout_ref.actor.qat.mode=w4a16" },
    { "there is no sandbox", "sandbox_fusion.max_concurrent=null" },
    { "answers are always made anew", "skip.rollout.dump_dir=d" },
    { "models here hear nothing", "data.audio_key=audios" },
    { "a critic predicts no tokens", "critic.model.mtp.enable=false" },
    { "the model is not quantised", "use_bnb_nested_quant=false" },
    { "a reference model is opened where a KL needs one", "actor_rollout_ref.actor.use_ref=true" },
    { "a checkpoint holds the whole run, the critic with it",
      "critic.checkpoint.save_contents=[model] trainer.max_critic_ckpt_to_keep=1" },
    { "metrics and logs lie in trainer.run_dir", "trainer.local_log_dir=results" },
    { "worker.rollout.* says how answers are sampled", "ctx_manager.generation.top_k=1" },
};

TEST(words_without_a_meaning_here_are_told_with_the_reason_and_stop_no_run)
{
    ares_str all = { 0 }, out = { 0 };
    char told[400];
    for (int i = 0; i < ARES_COUNT(without_meaning); i++)
        ares_str_addf(&all, "%s ", without_meaning[i].words);
    CHECK_EQ(e2e_program(&out, "--config '%s' --check %s", e2e_train_words("run"), all.data), 0);
    for (int i = 0; i < ARES_COUNT(without_meaning); i++) {
        char *list = ares_strdup(without_meaning[i].words), *rest = list;
        for (char *word; (word = strsep(&rest, " "));) {
            snprintf(told, sizeof told, "config: %.*s -> (ignored: %s)\n", (int)strcspn(word, "="),
                     word, without_meaning[i].why);
            CHECK_MSG(strstr(out.data, told), "not told: %s", told);
        }
        ares_free(list);
    }
    CHECK_CONTAINS(out.data, "the configuration is good");
    ares_str_fini(&all);
    ares_str_fini(&out);
}

TEST(a_tracker_that_is_not_written_is_refused_with_those_that_are)
{
    static const char *const words[] = { "'trainer.logger=[console, swanlab]'",
                                         "trainer.logger=comet_ml", "report_to=clearml",
                                         "'report_to=[wandb, neptune]'",
                                         "'runner.logger.logger_backends=[swanlab]'" };
    for (int i = 0; i < ARES_COUNT(words); i++) {
        ares_str out = { 0 };
        CHECK_EQ(e2e_program(&out, "--config '%s' --check %s", e2e_train_words("run"), words[i]),
                 2);
        CHECK_CONTAINS(out.data, "(choices: console, file, tensorboard, trackio, mlflow, wandb)");
        CHECK_CONTAINS(out.data, "TensorBoard files are what they import");
        ares_str_fini(&out);
    }
}

TEST(other_trainers_words_for_trackers_name_those_that_are_written)
{
    static const char *const cases[][2] = {
        { "report_to=wandb", "report_to -> trainer.logger = [console, wandb]" },
        { "report_to=none", "report_to -> trainer.logger = [console]" },
        { "'report_to=[tensorboard, wandb]'",
          "report_to -> trainer.logger = [console, tensorboard, wandb]" },
        { "'runner.logger.logger_backends=[wandb]'", "-> trainer.logger = [console, wandb]" },
        { "use_tensorboard=true use_wandb=true",
          "-> trainer.logger = [console, tensorboard, wandb]" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        CHECK_EQ(e2e_program(&out, "--config '%s' --check ~trainer.logger %s",
                             e2e_train_words("run"), cases[i][0]),
                 0);
        CHECK_CONTAINS(out.data, cases[i][1]);
        ares_str_fini(&out);
    }
}

TEST(words_that_would_mislead_are_refused_with_what_to_write_instead)
{
    static const struct {
        const char *word, *value, *shown, *instead;
    } refused[] = {
        { "actor_rollout_ref.actor.tis_imp_ratio_cap", "2", "2",
          "set worker.actor.rollout_is: token and worker.actor.rollout_is_threshold" },
        { "algorithm.rollout_is_level", "token", "'token'",
          "set worker.actor.rollout_is: token, sequence or geometric" },
        { "actor_rollout_ref.rollout.do_sample", "False", "false",
          "temperature 0 is greedy; leave do_sample out" },
        { "trainer.validation_steps", "2", "2", "set env.val.groups to so many times as much" },
        { "loss_type", "luspo", "'luspo'",
          "worker.actor.loss_type names the token's loss, worker.actor.loss_avg_mode how tokens "
          "are "
          "averaged" },
        { "fp16", "true", "true",
          "not offered; set worker.actor.fsdp.torch_dtype to fp32 or bf16" },
    };
    ares_str all = { 0 }, out = { 0 };
    char told[400];
    for (int i = 0; i < ARES_COUNT(refused); i++)
        ares_str_addf(&all, "%s=%s ", refused[i].word, refused[i].value);
    CHECK_EQ(e2e_program(&out, "--config '%s' --check %s", e2e_train_words("run"), all.data), 2);
    for (int i = 0; i < ARES_COUNT(refused); i++) {
        snprintf(told, sizeof told, "config: command line: %s = %s: not accepted: %s\n",
                 refused[i].word, refused[i].shown, refused[i].instead);
        CHECK_MSG(strstr(out.data, told), "not told: %s", told);
    }
    ares_str_fini(&all);
    ares_str_fini(&out);
}

TEST(words_of_adapters_bring_their_trainers_defaults_and_are_told_where_nothing_reads_them)
{
    static const struct {
        const char *words, *told, *not_told;
    } all[] = {
        { "actor_rollout_ref.model.lora_rank=8", "worker.actor.model.lora.alpha = 16\n", NULL },
        { "actor_rollout_ref.model.lora_rank=0", "", "lora.alpha = 16" },
        { "actor_rollout_ref.model.lora_rank=8 actor_rollout_ref.model.lora_alpha=9", "",
          "lora.alpha = " },
        { "actor_rollout_ref.model.lora.rank=8", "worker.actor.model.lora.alpha = 32\n", NULL },
        { "--use_peft",
          "config: defaults of TRL, whose words are used: worker.actor.model.lora.rank = 16, "
          "worker.actor.model.lora.alpha = 32, worker.actor.model.lora.target_modules = [q_proj, "
          "v_proj]\n",
          "x-trl" },
        { "--use_peft",
          "config: lora_dropout -> 0 (TRL's default, 0.05, is not taken over: the sampler has no "
          "dropout)\n",
          "use_peft ->" },
        { "--use_peft --lora_dropout 0.0 --lora_r 4",
          "config: defaults of TRL, whose words are used: worker.actor.model.lora.alpha = 32, ",
          "lora_dropout" },
        { "use_peft=false lora_r=4 lora_alpha=5 lora_target_modules=[a] lora_dropout=0.1 "
          "use_dora=true",
          "warning: config: lora_r, lora_alpha, lora_target_modules, lora_dropout, use_dora: "
          "nothing "
          "reads it, for without use_peft: true there are no adapters\n",
          "not accepted" },
        { "lora_r=4 lora_alpha=5",
          "warning: config: lora_r, lora_alpha: nothing reads it, for without use_peft: true there "
          "are no adapters\n",
          "defaults of" },
        { "use_peft=false worker.actor.model.lora.rank=8",
          "warning: config: worker.actor.model.lora.rank: nothing reads it, for without use_peft: "
          "true",
          NULL },
        { "actor.model.is_lora=false actor.model.lora_rank=32",
          "warning: config: actor.model.lora_rank: nothing reads it, for without "
          "actor.model.is_lora: true there are no adapters\n",
          "defaults of" },
        { "worker.actor.model.lora.alpha=5 lora.init=gaussian worker.actor.model.lora.dropout=0.1",
          "warning: config: worker.actor.model.lora.alpha, lora.init, "
          "worker.actor.model.lora.dropout: nothing reads it, for with "
          "worker.actor.model.lora.rank = 0 there are no adapters\n",
          "not accepted" },
        { "worker.actor.model.lora.alpha=64.0 lora.target_modules=all-linear "
          "worker.actor.model.lora.exclude_modules=null worker.actor.model.lora.seed=null",
          "", "nothing reads it" },
        { "actor_rollout_ref.model.lora.alpha=5 actor_rollout_ref.model.lora.rank=0",
          "warning: config: actor_rollout_ref.model.lora.alpha: nothing reads it, for with "
          "worker.actor.model.lora.rank = 0 there are no adapters\n",
          "lora.alpha = 32" },
        { "actor_rollout_ref.model.lora_rank=0 actor_rollout_ref.model.lora.rank=8 "
          "actor_rollout_ref.model.lora.alpha=5",
          "config: actor_rollout_ref.model.lora.alpha -> worker.actor.model.lora.alpha\n",
          "x-verl" },
        { "use_peft=yes", "use_peft = 'yes': must be true or false", NULL },
        { "--use_peft --learning_rate 1e-6",
          "config: worker.actor.optim.lr = 1e-06: adapters want about ten times the rate of full "
          "training (docs/adapters.md)\n",
          NULL },
        { "--use_peft --learning_rate 5e-6", "", "adapters want" },
        { "--use_peft --lora_r 64",
          ": rank 64 exceeds a side of 4 layers, such as model.layers.0.self_attn.q_proj [", NULL },
    };
    for (int i = 0; i < ARES_COUNT(all); i++) {
        ares_str out = { 0 };
        e2e_program(&out, "--config '%s' --check %s", e2e_train_words("run"), all[i].words);
        CHECK_CONTAINS(out.data, all[i].told);
        CHECK_MSG(!all[i].not_told || !strstr(out.data, all[i].not_told), "%s: %s", all[i].words,
                  out.data);
        ares_str_fini(&out);
    }
}

TEST(adapters_are_accepted_in_the_words_of_every_trainer)
{
    static const char *const words[] = {
        "actor_rollout_ref.model.lora_rank=8 actor_rollout_ref.rollout.load_format=safetensors "
        "actor_rollout_ref.rollout.layered_summon=True actor_rollout_ref.model.use_shm=True",
        "actor_rollout_ref.model.lora.rank=8 actor_rollout_ref.model.lora.lora_A_init_method="
        "kaiming +actor_rollout_ref.model.lora.merge=True",
        "worker.actor.model.lora.rank=8 worker.actor.model.lora.target_modules=q_proj,k_proj",
        "lora.rank=8 lora.alpha=8 lora.target_modules=all-linear",
        "--use_peft --lora_r 8 --lora_alpha 16 --lora_dropout 0.0 --use_dora=false "
        "--lora_task_type CAUSAL_LM --load_in_4bit=false",
        "peft_config.r=8 'peft_config.target_modules=[q_proj, v_proj]' peft_config.bias=none "
        "peft_config.modules_to_save=null peft_config.init_lora_weights=true",
        "actor.model.is_lora=True actor.model.lora_rank=8",
        "trainer.policy.model.lora.rank=8 trainer.policy.model.lora.lora_sync_path=/tmp/a",
        "algorithm.adv_estimator=gae critic.model.lora_rank=8 critic.model.lora_alpha=16",
    };
    for (int i = 0; i < ARES_COUNT(words); i++) {
        ares_str out = { 0 };
        CHECK_EQ(e2e_program(&out, "--config '%s' --check %s", e2e_train_words("run"), words[i]),
                 0);
        CHECK_CONTAINS(out.data, "the configuration is good");
        ares_str_fini(&out);
    }
}

/* verl and EasyR1 train a tower unless they are told not to, which says nothing of a text model. */
TEST(adapters_in_words_of_trainers_whose_towers_learn_pass_with_a_tower_and_without)
{
    static const char *const words[] = {
        "actor_rollout_ref.model.lora_rank=8",
        "worker.actor.fsdp.enable_rank0_init=true worker.actor.model.lora.rank=8",
    };
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(NULL,
                         "init --arch qwen2_5_vl --hidden 64 --layers 1 --intermediate 16 "
                         "--max-position 4096 --out '%s'",
                         test_file("vl")),
             0);
    for (int i = 0; i < ARES_COUNT(words); i++) {
        CHECK_EQ(e2e_program(&out, "--config '%s' --check %s", e2e_train_words("run"), words[i]),
                 0);
        CHECK_CONTAINS(out.data, "the configuration is good");
        ares_str_clear(&out);
        /* a list of names of the tower alone passes where it is not frozen */
        static const char *const frozen[] = { "", "worker.actor.model.freeze_vision_tower=true" };
        for (int k = 0; k < 2; k++) {
            CHECK_EQ(e2e_program(&out,
                                 "--config '%s' --check %s worker.actor.model.model_path='%s' "
                                 "worker.actor.model.lora.target_modules=[qkv] %s",
                                 e2e_train_words("run"), words[i], test_file("vl"), frozen[k]),
                     k ? 2 : 0);
            CHECK_CONTAINS(out.data, k ? "select no linear layer" : "the configuration is good");
            ares_str_clear(&out);
        }
    }
    ares_str_fini(&out);
}

TEST(help_says_what_becomes_of_a_word_that_leads_to_no_option)
{
    static const char *const all[][2] = {
        { "use_peft", "# use_peft: whether lora_* make adapters; see worker.actor.model.lora\n" },
        { "fp16",
          "# fp16=false: has no effect: asks for nothing\n# fp16: refused: not offered; set "
          "worker.actor.fsdp.torch_dtype to fp32 or bf16\n" },
        { "lora_r", "        rank: 0\n" },
    };
    for (int i = 0; i < ARES_COUNT(all); i++) {
        ares_str out = { 0 };
        CHECK_EQ(e2e_program(&out, "--help-config %s", all[i][0]), 0);
        CHECK_CONTAINS(out.data, all[i][1]);
        ares_str_fini(&out);
    }
}

TEST(a_path_to_go_on_from_is_asked_for_and_no_inner_name_is_shown)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--config '%s' --check trainer.resume_mode=resume_path",
                         e2e_train_words("run")),
             2);
    CHECK_CONTAINS(out.data, "trainer.resume_mode = 'resume_path': nothing says from where; set "
                             "trainer.resume_from_path to a checkpoint\n");
    CHECK_MSG(!strstr(out.data, "x-"), "%s", out.data);
    ares_str_fini(&out);
}

TEST(the_preset_of_dapo_says_what_it_sets_and_what_was_set_otherwise)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(
                 &out,
                 "--check algorithm.name=dapo worker.actor.model.model_path='%s' "
                 "data.train_files='%s' data.rollout_batch_size=8 "
                 "worker.rollout.n=4 worker.actor.clip_ratio_high=0.3 worker.reward.max_length=99 "
                 "worker.reward.safe_length=90",
                 e2e_model(), test_source("examples/data/sums/train.jsonl")),
             0);
    CHECK_CONTAINS(
        out.data,
        "config: algorithm.name: dapo -> algorithm.adv_estimator=grpo, "
        "worker.actor.loss_type=dapo, "
        "worker.actor.loss_avg_mode=token-mean, worker.actor.loss_norm=global, "
        "worker.actor.clip_ratio_low=0.2, "
        "algorithm.normalize_advantages=true, worker.actor.early_stop_imp_ratio=5.0, "
        "algorithm.kl_coef=0.0, "
        "algorithm.filter_groups.enable=true, algorithm.on_exhausted=fill_masked, "
        "worker.actor.shuffle=true, "
        "worker.actor.recompute_log_probs=true, worker.reward.correct=1.0, "
        "worker.reward.incorrect=-1.0, "
        "worker.reward.scale=1.0, worker.reward.len_reward_penalty=0.1, algorithm.max_resample=5, "
        "worker.actor.global_batch_size=8; set otherwise: worker.rollout.n, "
        "worker.actor.clip_ratio_high, "
        "worker.reward.safe_length, worker.reward.max_length\n");
    ares_str_fini(&out);
}

TEST(batches_of_trl_are_counted_in_prompts_and_its_flags_need_no_value)
{
    static const struct {
        const char *words, *told;
    } all[] = {
        { "--per_device_train_batch_size 8 --gradient_accumulation_steps 2 --num_generations 4 "
          "--log_completions --use_vllm",
          "config: per_device_train_batch_size -> data.rollout_batch_size = 4\n"
          "config: per_device_train_batch_size -> worker.actor.global_batch_size = 4\n" },
        { "~data.rollout_batch_size ~worker.actor.global_batch_size --num_generations 2 "
          "--model_name_or_path models/none --num_processes 3",
          "config: TRL's 8 samples for each process -> data.rollout_batch_size = 12\n"
          "config: TRL's 8 samples for each process -> worker.actor.global_batch_size = 12\n" },
        { "~data.rollout_batch_size ~worker.actor.global_batch_size --num_generations 3 "
          "--model_name_or_path models/none",
          "worker.rollout.n = 3 (written num_generations): does not divide the 8 samples of an "
          "optimizer step, TRL's 8 samples for each process; set per_device_train_batch_size" },
        { "--warmup_steps 0.1", "config: warmup_steps -> worker.actor.optim.lr_warmup_steps\n" },
        { "--per_device_train_batch_size 3 --num_generations 2",
          "per_device_train_batch_size = 3: makes optimizer steps of 3 samples (1 processes) and 3 "
          "at once: num_generations = 2 does not divide both" },
        { "--gradient_accumulation_steps 2 --steps_per_generation 1 --num_generations 2",
          "steps_per_generation = 1: makes optimizer steps of 16 samples, of which 8 are sampled "
          "at "
          "once; set steps_per_generation to a multiple of gradient_accumulation_steps" },
        { "--per_device_train_batch_size 0",
          "per_device_train_batch_size = 0: must be an integer in [1,1000000000]" },
        { "--use_peft",
          "defaults of TRL, whose words are used: worker.actor.model.lora.rank = 16" },
    };
    for (int i = 0; i < ARES_COUNT(all); i++) {
        ares_str out = { 0 };
        e2e_program(&out, "--config '%s' --check %s", e2e_train_words("run"), all[i].words);
        CHECK_CONTAINS(out.data, all[i].told);
        ares_str_fini(&out);
    }
}
