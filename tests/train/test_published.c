/*
 * Every option of EasyR1 and ARES is known under its name; values that ask for something this
 * program cannot do are refused.
 */
#include "ares/train.h"
#include "faults.h"
#include "plan/plan.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

extern const ares_config_alias train_aliases[];
extern const int train_alias_count;

/* A key and the value it has in the published AEPO run, or its default there. */
#define OPTIM(p)                                                                                 \
    p "optim.lr=1e-6", p "optim.betas=[0.9, 0.999]", p "optim.weight_decay=1e-2",                \
        p "optim.strategy=adamw", p "optim.lr_warmup_ratio=0.0", p "optim.lr_warmup_steps=null", \
        p "optim.min_lr_ratio=null", p "optim.warmup_style=constant",                            \
        p "optim.lr_scheduler_type=constant"
#define FSDP(p)                                                                                 \
    p "fsdp.enable_full_shard=true", p "fsdp.enable_cpu_offload=false",                         \
        p "fsdp.enable_rank0_init=true", p "fsdp.use_orig_params=false",                        \
        p "fsdp.torch_dtype=null", p "fsdp.torch_dtype=bfloat16", p "fsdp.torch_dtype=float32", \
        p "fsdp.fsdp_size=-1", p "fsdp.mp_param_dtype=bf16", p "fsdp.mp_reduce_dtype=fp32",     \
        p "fsdp.mp_buffer_dtype=fp32"
#define OFFLOAD(p) p "offload.offload_params=false", p "offload.offload_optimizer=true"
#define MODEL(p)                                                                                  \
    p "model.model_path=Qwen/Qwen2.5-7B-Instruct", p "model.tokenizer_path=null",                 \
        p "model.override_config={}", p "model.enable_gradient_checkpointing=true",               \
        p "model.trust_remote_code=false", p "model.freeze_vision_tower=false",                   \
        p "model.lora.rank=0", p "model.lora.alpha=64", p "model.lora.target_modules=all-linear", \
        p "model.lora.exclude_modules=null"
#define SIDE(p)                                                                                 \
    p "strategy=fsdp", p "global_batch_size=128", p "micro_batch_size_per_device_for_update=4", \
        p "micro_batch_size_per_device_for_experience=16", p "max_grad_norm=1.0",               \
        p "loss_avg_mode=token", p "ppo_epochs=1", p "padding_free=true", p "ulysses_size=1",   \
        MODEL(p), OPTIM(p), FSDP(p), OFFLOAD(p)
static const char *const keys[] = {
    "data.train_files=hiyouga/math12k@train",
    "data.val_files=hiyouga/math12k@test",
    "data.prompt_key=problem",
    "data.answer_key=answer",
    "data.image_key=images",
    "data.video_key=videos",
    "data.image_dir=null",
    "data.video_fps=2.0",
    "data.max_prompt_length=4096",
    "data.max_response_length=8192",
    "data.rollout_batch_size=512",
    "data.mini_rollout_batch_size=null",
    "data.val_batch_size=8192",
    "data.format_prompt=./examples/format_prompt/math.jinja",
    "data.override_chat_template=null",
    "data.shuffle=true",
    "data.seed=1",
    "data.min_pixels=262144",
    "data.max_pixels=4194304",
    "data.filter_overlong_prompts=true",
    "data.filter_overlong_prompts_workers=16",
    "data.bootstrap=false",
    "data.bootstrap_batch_size=1024",
    "algorithm.gamma=1.0",
    "algorithm.lam=1.0",
    "algorithm.adv_estimator=grpo",
    "algorithm.disable_kl=false",
    "algorithm.use_kl_loss=true",
    "algorithm.kl_penalty=low_var_kl",
    "algorithm.kl_coef=1e-2",
    "algorithm.kl_type=fixed",
    "algorithm.kl_horizon=10000",
    "algorithm.kl_target=0.1",
    "algorithm.difficulty_aware_kl_penalty=false",
    "algorithm.online_filtering=true",
    "algorithm.filter_key=accuracy",
    "algorithm.filter_low=0.01",
    "algorithm.filter_high=0.99",
    "algorithm.entropy_percentile=95.0",
    "algorithm.entropy_threshold_ema=0.99",
    "algorithm.target_update_interval=1",
    "algorithm.target_coef_easy=1.0",
    "algorithm.target_coef_medium=1.0",
    "algorithm.target_coef_hard=1.0",
    "algorithm.alpha_entropy_lr=0.05",
    "algorithm.alpha_entropy_min=0",
    "algorithm.alpha_entropy_max=2",
    "algorithm.alpha_entropy_init_easy=0.5",
    "algorithm.alpha_entropy_init_medium=0.5",
    "algorithm.alpha_entropy_init_hard=0.5",
    "algorithm.drop_easy_prompts=false",
    "algorithm.drop_easy_ratio=0.8",
    "algorithm.hwe_kl_scale=0.5",
    "algorithm.hwe_kl_scope=token",
    "algorithm.kl_bucket_controller=dual_ascent",
    "algorithm.kl_lambda_lr=0.01",
    "algorithm.kl_budget_easy=0.05",
    "algorithm.kl_budget_medium=0.1",
    "algorithm.kl_budget_hard=0.2",
    "algorithm.kl_beta_init=1.0",
    "algorithm.kl_beta_lr=0.05",
    "algorithm.kl_beta_clip=0.2",
    "algorithm.kl_beta_ema=0.97",
    "algorithm.kl_beta_deadzone=0.02",
    "algorithm.kl_beta_min=1e-4",
    "algorithm.kl_beta_max=100",
    "algorithm.kl_beta_update_interval=100",
    "algorithm.kl_target_easy=0.01",
    "algorithm.kl_target_medium=0.01",
    "algorithm.kl_target_hard=0.01",
    "worker.hybrid_engine=true",
    SIDE("worker.actor."),
    "worker.actor.clip_ratio_low=0.2",
    "worker.actor.clip_ratio_high=0.3",
    "worker.actor.clip_ratio_dual=3.0",
    "worker.actor.use_torch_compile=true",
    "worker.actor.dynamic_kl_loss=true",
    "worker.actor.enable_second_chance_kl=true",
    "worker.actor.second_chance_easy_only=true",
    "worker.actor.second_chance_incorrect_only=true",
    "worker.actor.second_chance_soft_cost_min=0.5",
    "worker.actor.second_chance_kl_relax=0.67",
    "worker.actor.loss_type=default",
    "worker.actor.loss_norm=global",
    "worker.actor.tau_positive=1.0",
    "worker.actor.tau_negative=1.05",
    "worker.actor.dynamic_batching=true",
    SIDE("worker.critic."),
    "worker.critic.cliprange_value=0.5",
    "worker.critic.dynamic_batching=true",
    "worker.ref.strategy=fsdp",
    FSDP("worker.ref."),
    "worker.ref.fsdp.enable_cpu_offload=true",
    "worker.ref.offload.offload_params=false",
    "worker.reward.reward_type=batch",
    "worker.reward.reward_function=./examples/reward_function/aepo.py:compute_score",
    "worker.reward.reward_function_kwargs={}",
    "worker.reward.skip_special_tokens=true",
    "worker.reward.num_cpus=1",
    "worker.rollout.name=vllm",
    "worker.rollout.n=8",
    "worker.rollout.temperature=1.0",
    "worker.rollout.top_p=0.99",
    "worker.rollout.top_k=-1",
    "worker.rollout.seed=1",
    "worker.rollout.limit_images=0",
    "worker.rollout.dtype=bf16",
    "worker.rollout.gpu_memory_utilization=0.65",
    "worker.rollout.ignore_eos=false",
    "worker.rollout.enforce_eager=false",
    "worker.rollout.enable_chunked_prefill=false",
    "worker.rollout.disable_log_stats=true",
    "worker.rollout.disable_tqdm=false",
    "worker.rollout.tensor_parallel_size=2",
    "worker.rollout.max_model_len=null",
    "worker.rollout.max_num_batched_tokens=40000",
    "worker.rollout.window_size=4",
    "worker.rollout.entropy_mode=full",
    "worker.rollout.entropy_topk=10",
    "worker.rollout.trigger_tokens_file=null",
    "worker.rollout.trigger_match=argmax",
    "worker.rollout.val_override_config={temperature: 0.5, n: 1}",
    "trainer.total_epochs=50",
    "trainer.max_steps=null",
    "trainer.project_name=easy_r1",
    "trainer.experiment_name=qwen2_5_7b_math_grpo",
    "trainer.logger=[console, wandb]",
    "trainer.logger=[mlflow, wandb, tensorboard, file]",
    "trainer.nnodes=1",
    "trainer.n_gpus_per_node=8",
    "trainer.max_try_make_batch=20",
    "trainer.critic_warmup=0",
    "trainer.val_freq=5",
    "trainer.val_before_train=true",
    "trainer.val_only=false",
    "trainer.val_generations_to_log=3",
    "trainer.save_freq=5",
    "trainer.save_limit=3",
    "trainer.save_model_only=false",
    "trainer.save_checkpoint_path=null",
    "trainer.load_checkpoint_path=null",
    "trainer.find_last_checkpoint=true",
    "trainer.wandb_run_id=null",
};

/* Checks a small run with these overrides for a number of ranks; faults stay in cfg. */
static ares_config *checked(const char *const *words, int n, int world, ares_train_config *c)
{
    static const char *const base[] = { "worker.actor.model.model_path=m",
                                        "data.train_files=[t.jsonl]", "data.val_files=[v.jsonl]",
                                        "worker.rollout.n=8",
                                        "worker.reward.rewards=[{name: exact}]" };
    const char *argv[32];
    ares_config *cfg = ares_config_new();
    int at = 0;
    for (; at < ARES_COUNT(base); at++) argv[at] = base[at];
    for (int i = 0; i < n; i++) argv[at++] = words[i];
    ares_train_config_declare(cfg, c);
    ares_config_read_args(cfg, at, argv);
    ares_config_resolve(cfg);
    (void)ares_train_config_check(cfg, c, world);
    return cfg;
}

static const ares_config_alias *alias_of(const char *key)
{
    for (int i = 0; i < train_alias_count; i++) {
        size_t n = strlen(train_aliases[i].from);
        bool section = n > 2 && strcmp(train_aliases[i].from + n - 2, ".*") == 0;
        if (strcmp(train_aliases[i].from, key) == 0 ||
            (section && strncmp(train_aliases[i].from, key, n - 1) == 0))
            return &train_aliases[i];
    }
    return NULL;
}

TEST(every_published_key_is_taken_with_its_published_value)
{
    int options = 0, told = 0;
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < ARES_COUNT(keys); i++) {
        ares_train_config c;
        const char *words[] = { keys[i], "worker.reward.rewards=null" };
        bool reward = strstr(keys[i], "reward_type") || strstr(keys[i], "reward_function=");
        const char *with_function[] = { keys[i], "worker.reward.rewards=null",
                                        "worker.reward.reward_function=aepo" };
        if (strstr(keys[i], "reward_function=")) with_function[2] = keys[i];
        ares_config *cfg = checked(reward ? with_function : words, reward ? 3 : 1, 8, &c);
        CHECK_MSG(ares_config_fault_count(cfg) == 0, "%s: %s", keys[i], faults_text(cfg));
        char key[96];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(keys[i], "="), keys[i]);
        const ares_config_alias *a = alias_of(key);
        bool empty = strcmp(strchr(keys[i], '=') + 1, "{}") == 0; /* a section of words */
        bool option = ares_config_get(cfg, key) != NULL;
        CHECK_MSG(option || empty || (a && a->to && (*a->to || a->note)),
                  "%s: neither an option nor told what replaces it", key);
        options += option;
        told += !option;
        ares_config_free(cfg);
    }
    CHECK_MSG(options > 137 && told > 33, "%d options, %d told", options, told);
}

TEST(the_published_file_is_good_without_data_and_model)
{
    ares_train_config c;
    const char *words[] = { "--config", test_source("experiments/AEPO/qwen2_5_7b.yaml") };
    ares_log_set(ARES_LOG_ERROR, 0);
    ares_config *cfg = ares_config_new();
    ares_train_config_declare(cfg, &c);
    ares_config_read_args(cfg, 2, words);
    ares_config_resolve(cfg);
    CHECK_EQ(ares_train_named_ranks(&c), 8);
    CHECK_OK(ares_train_config_check(cfg, &c, ares_train_named_ranks(&c)));
    static const int64_t nodes[] = { ARES_NULL_I64, 1, 3, 4096 }, ranks[] = { 8, 8, 24, 4096 };
    for (int i = 0; i < ARES_COUNT(nodes); i++) {
        c.published.nnodes = nodes[i];
        CHECK_EQ(ares_train_named_ranks(&c), ranks[i]);
    }
    CHECK_EQ(c.data.rollout_batch_size, 512);
    CHECK_EQ(c.rollout.n, 8);
    CHECK_NEAR(c.rollout.top_p, 0.99, 0);
    CHECK_NEAR(c.algorithm.kl_coef, 0.01, 0);
    CHECK_STR(c.algorithm.kl_penalty, "low_var_kl");
    CHECK_STR(c.actor.dtype, "bf16");
    CHECK_STR(c.actor.arithmetic, "bf16"); /* fsdp.mp_param_dtype */
    CHECK_STR(c.ref.dtype, "bf16");        /* null there, and here as its arithmetic is */
    CHECK_STR(c.reward.reward_function, "./examples/reward_function/aepo.py:compute_score");
    CHECK_EQ(c.trainer.save_limit, 3);
    /* the files of the repository that it names exist */
    CHECK(ares_file_exists(test_source(c.data.format_prompt)));
    ares_config_free(cfg);
}

static int faults_of(const char *const *words, int n, int world, const char *option)
{
    ares_train_config c;
    ares_log_set(ARES_LOG_ERROR, 0);
    ares_config *cfg = checked(words, n, world, &c);
    int found = faults_with(cfg, option);
    ares_config_free(cfg);
    return found;
}

TEST(what_cannot_be_honoured_is_refused)
{
    static const struct {
        const char *words[4];
        int n, world;
        const char *option;
    } wrong[] = {
        { { "worker.hybrid_engine=false" }, 1, 1, "worker.hybrid_engine" },
        { { "worker.actor.model.lora.rank=16", "worker.actor.model.lora.use_dora=true" },
          2,
          1,
          "use_dora" },
        { { "worker.critic.model.override_config={hidden_size: 64}" },
          1,
          1,
          "worker.critic.model.override_config.hidden_size" },
        { { "worker.actor.model.override_config={rope_theta: 1e6}" },
          1,
          1,
          "worker.actor.model.override_config" },
        { { "worker.actor.model.override_config={attention_dropout: 0.1}" },
          1,
          1,
          "override_config" },
        { { "worker.actor.model.override_config={max_position_embeddings: 0}" },
          1,
          1,
          "override_config" },
        { { "worker.actor.model.override_config={max_position_embeddings: 64.5}" },
          1,
          1,
          "override_config" },
        { { "worker.actor.fsdp.torch_dtype=fp16" }, 1, 1, "worker.actor.fsdp.torch_dtype" },
        { { "worker.actor.fsdp.fsdp_size=3" }, 1, 4, "worker.actor.fsdp.fsdp_size" },
        { { "worker.critic.fsdp.fsdp_size=4" }, 1, 6, "worker.critic.fsdp.fsdp_size" },
        { { "worker.ref.fsdp.fsdp_size=5" }, 1, 8, "worker.ref.fsdp.fsdp_size" },
        { { "actor_rollout_ref.actor.fsdp_config.fsdp_size=3" },
          1,
          4,
          "worker.actor.fsdp.fsdp_size" },
        { { "trainer.n_gpus_per_node=8" }, 1, 1, "--ranks 8" },
        { { "trainer.nnodes=2", "trainer.n_gpus_per_node=4" }, 2, 4, "trainer.n_gpus_per_node" },
        { { "trainer.n_gpus_per_node=2" }, 1, 4, "trainer.n_gpus_per_node" },
        { { "worker.rollout.tensor_parallel_size=2" },
          1,
          3,
          "worker.rollout.tensor_parallel_size" },
        { { "data.rollout_batch_size=512", "worker.actor.global_batch_size=100" },
          2,
          1,
          "worker.actor.global_batch_size" },
        { { "worker.actor.micro_batch_size_per_device_for_experience=12" },
          1,
          1,
          "micro_batch_size_per_device_for_experience" },
        { { "worker.actor.micro_batch_size_per_device_for_update=12" },
          1,
          1,
          "micro_batch_size_per_device_for_update" },
        { { "algorithm.adv_estimator=gae",
            "worker.critic.micro_batch_size_per_device_for_experience=12" },
          2,
          1,
          "worker.critic.micro_batch_size_per_device_for_experience" },
        { { "algorithm.adv_estimator=gae", "worker.actor.micro_batch_size_per_device_for_update=4",
            "worker.critic.micro_batch_size_per_device_for_update=12" },
          3,
          1,
          "worker.critic.micro_batch_size_per_device_for_update" },
        { { "algorithm.adv_estimator=grpo", "worker.rollout.n=1" }, 2, 1, "worker.rollout.n" },
        { { "algorithm.adv_estimator=grpo_passk", "worker.rollout.n=1" },
          2,
          1,
          "worker.rollout.n" },
        { { "algorithm.adv_estimator=rlo" }, 1, 1, "rloo" },
        { { "worker.rollout.enable_chunked_prefill=false",
            "worker.rollout.max_num_batched_tokens=512" },
          2,
          1,
          "max_num_batched_tokens" },
        { { "trainer.logger=[consol]" }, 1, 1, "trainer.logger" },
        { { "worker.rollout.gpu_memory_utilisation=0.5" }, 1, 1, "no such option" },
    };
    static const struct {
        const char *words[4];
        int n, world;
        const char *option;
    } right[] = {
        { { "trainer.nnodes=2", "trainer.n_gpus_per_node=4" }, 2, 8, "trainer" },
        { { "worker.rollout.max_num_batched_tokens=64" }, 1, 1, "max_num_batched_tokens" },
        { { "worker.actor.model.override_config={attention_dropout: 0.0, embd_pdrop: 0, "
            "max_position_embeddings: 64}" },
          1,
          1,
          "override_config" },
        { { "worker.critic.model.override_config={attention_dropout: 0.0, "
            "max_position_embeddings: 64}" },
          1,
          1,
          "override_config" },
        { { "worker.actor.fsdp.fsdp_size=1" }, 1, 4, "fsdp_size" },
        { { "worker.actor.fsdp.fsdp_size=4" }, 1, 4, "fsdp_size" },
        { { "worker.actor.fsdp.fsdp_size=2" }, 1, 4, "fsdp_size" },
        { { "worker.critic.fsdp.fsdp_size=null" }, 1, 3, "fsdp_size" },
        { { "worker.critic.fsdp.fsdp_size=8" }, 1, 4, "fsdp_size" },
        { { "worker.ref.fsdp.fsdp_size=2" }, 1, 1, "fsdp_size" },
        { { "actor_rollout_ref.actor.fsdp_config.fsdp_size=8",
            "actor_rollout_ref.ref.fsdp_config.fsdp_size=8",
            "critic.model.fsdp_config.fsdp_size=8" },
          3,
          6,
          "fsdp_size" },
        { { "worker.critic.micro_batch_size_per_device_for_experience=12" },
          1,
          1,
          "worker.critic" },
    };
    for (int i = 0; i < ARES_COUNT(wrong); i++)
        CHECK_MSG(faults_of(wrong[i].words, wrong[i].n, wrong[i].world, wrong[i].option) > 0,
                  "%s is let through", wrong[i].words[wrong[i].n - 1]);
    for (int i = 0; i < ARES_COUNT(right); i++)
        CHECK_MSG(faults_of(right[i].words, right[i].n, right[i].world, right[i].option) == 0,
                  "%s is refused", right[i].words[right[i].n - 1]);
}

TEST(sizes_follow_from_the_options)
{
    CHECK_EQ(train_total_steps(12000, 128, 512, 15, ARES_NULL_I64), 345);
    CHECK_EQ(train_total_steps(12000, ARES_NULL_I64, 512, 50, 7), 7);
    CHECK_EQ(train_total_steps(511, ARES_NULL_I64, 512, 3, ARES_NULL_I64), 0);
    train_sizes z = train_sizes_of(512, 128, 8, 8, 1, 4);
    CHECK_EQ(z.global_samples, 1024);
    CHECK_EQ(z.per_device, 128);
    CHECK_EQ(z.accumulation, 32);
    CHECK_EQ(z.updates, 4);
}

/* Qwen2.5-7B: 6 operations per token and weight, 12 per pair of tokens, head and its width. */
TEST(operations_are_counted_from_the_sizes_of_the_model)
{
    flops_config c = { .hidden = 3584,
                       .vocab = 152064,
                       .layers = 28,
                       .heads = 28,
                       .kv_heads = 4,
                       .intermediate = 18944 };
    double weights = 7615283200;
    CHECK_NEAR(train_tflops(&c, 1000, 0, 1), 6 * weights * 1e3 / 1e12, 1e-9);
    CHECK_NEAR(train_tflops(&c, 1000, 5e5, 2),
               (6 * weights * 1e3 + 12.0 * 128 * 28 * 28 * 5e5) / 2 / 1e12, 1e-9);
    c.head_dim = 64; /* half of the products of attention with weights, and of those of pairs */
    weights -= 28 * 3584.0 * (2 * 28 + 2 * 4) * 64;
    CHECK_NEAR(train_tflops(&c, 1000, 5e5, 1),
               (6 * weights * 1e3 + 12.0 * 64 * 28 * 28 * 5e5) / 1e12, 1e-9);
}

/* TFLOP/s of dense bf16 products and GB, as the makers publish them. */
TEST(a_card_is_known_by_its_name)
{
    static const struct {
        const char *name;
        double tflops, gigabytes;
    } cards[] = {
        { "NVIDIA H200", 989, 141 },          { "NVIDIA H20", 148, 141 },
        { "NVIDIA H100 80GB HBM3", 989, 96 }, { "NVIDIA H800 PCIe", 989, 94 },
        { "NVIDIA A100-SXM4-80GB", 312, 80 }, { "NVIDIA A800-SXM4-80GB", 312, 80 },
        { "NVIDIA L40", 181.05, 48 },         { "NVIDIA L20", 119.5, 48 },
        { "Ascend 910B", 354, 64 },
    };
    for (int i = 0; i < ARES_COUNT(cards); i++) {
        CHECK_NEAR(train_peak_tflops(cards[i].name), cards[i].tflops, 0);
        CHECK_NEAR(train_card_bytes(cards[i].name), cards[i].gigabytes * 1e9, 0);
    }
    CHECK(isinf(train_peak_tflops("a card of the future")));
    CHECK(isinf(train_card_bytes("a card of the future")) && isinf(train_card_bytes(NULL)));
}
