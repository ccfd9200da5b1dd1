/* What options ask of adapters and of parameters that are trained: what is refused, what follows.
 */
#include "ares/train.h"
#include "faults.h"
#include "test.h"

#include <string.h>

#define L "worker.actor.model.lora."
#define C "worker.critic.model.lora."
#define MODEL "tests/golden/lora/base_qwen2_gqa"

/* A checked configuration of words with spaces between them. */
static ares_config *checked(const char *words, ares_train_config *c)
{
    ares_config *cfg = ares_config_new();
    ares_str all = { 0 };
    ares_train_config_declare(cfg, c);
    ares_str_addf(&all, "worker.actor.model.model_path=%s data.train_files=[r.jsonl] %s",
                  test_source(MODEL), words);
    char *rest = all.data;
    for (char *word; (word = strsep(&rest, " "));)
        if (*word) ares_config_override(cfg, word);
    ares_config_resolve(cfg);
    (void)ares_train_config_check(cfg, c, 1);
    ares_str_fini(&all);
    return cfg;
}

TEST(what_adapters_cannot_do_is_refused_where_there_are_adapters_and_by_the_users_word)
{
    static const struct {
        const char *words, *fault; /* words: beside a rank */
    } cases[] = {
        { L "lora_dropout=0.1", L "lora_dropout = 0.1: not accepted: the sampler has no dropout: "
                                  "sampled and trained log-probs would differ; set 0" },
        { L "dropout=0.1", L "dropout = 0.1: not accepted: the sampler has no dropout" },
        { "lora_dropout=0.05", "command line: lora_dropout = 0.05: not accepted: the sampler" },
        { "actor_rollout_ref.model.lora.dropout=0.1",
          "actor_rollout_ref.model.lora.dropout = 0.1" },
        { "use_dora=true", "use_dora = true: not accepted: not offered: DoRA" },
        { "actor_rollout_ref.model.lora.type=dora", "lora.type = 'dora': not accepted: only LoRA" },
        { "bias=all", "bias = 'all': not accepted: not offered: adapters that train biases" },
        { L "lora_bias=true", "lora_bias = true: not accepted" },
        { "lora_modules_to_save=[lm_head]", "lora_modules_to_save = [lm_head]: not accepted" },
        { "lora_target_parameters=[a]", "lora_target_parameters = [a]: not accepted" },
        { "lora_task_type=SEQ_CLS", "lora_task_type = 'SEQ_CLS': not accepted" },
        { "fan_in_fan_out=true", "fan_in_fan_out = true: not accepted" },
        { "ensure_weight_tying=true", "ensure_weight_tying = true: not accepted" },
        { L "lora_B_init_method=normal", "lora_B_init_method = 'normal': not accepted" },
        { L "freeze_vision_model=false", "freeze_vision_model = false: not accepted" },
        { L "target_modules=[q_porj]", "select no linear layer; did you mean 'q_proj'?" },
        { L "target_modules=[linear_qkv]", "select no linear layer" },
        { L "rank_pattern.q_proj=-1", "rank_pattern: a rank is a whole number" },
        { L "alpha=1e40", L "alpha = 1e40: " },
        { L "alpha_pattern.q_proj=0", L "alpha_pattern" },
        { "worker.ref.fsdp.torch_dtype=bf16", "worker.ref.fsdp.torch_dtype = 'bf16': the reference "
                                              "is the actor's own model" },
        { "algorithm.name=vapor worker.rollout.n=4 vapor.sync_ref_model=true",
          "vapor.sync_ref_model = true: a mixture of two "
          "adapters" },
        { "worker.actor.model.trainable=[norm]", "worker.actor.model.trainable = [norm]: "
                                                 "worker.actor.model.lora.rank asks for" },
    };
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str words = { 0 };
        for (int with = 0; with < 2; with++) {
            ares_train_config c;
            ares_str_clear(&words);
            ares_str_addf(&words, "%s%s", with ? L "rank=8 " : "", cases[i].words);
            ares_config *cfg = checked(words.data, &c);
            CHECK_MSG(faults_with(cfg, cases[i].fault) == with, "%s: %s", words.data,
                      faults_text(cfg));
            ares_config_free(cfg);
        }
        ares_str_fini(&words);
    }
}

TEST(a_fault_of_the_layers_names_the_option_that_is_wrong)
{
    /* seen to fail: rank, alpha and an expression of rank_pattern with the keys of PEFT searched in
     * the message */
    static const struct {
        const char *words, *fault;
    } cases[] = {
        { L "rank=65537", L "rank = 65537: " },
        { L "rank=8 " L "rank_pattern={'(':3}", L "rank_pattern = {\"(\": 3}: " },
        { "algorithm.adv_estimator=gae " C "rank=8 " C "target_modules=[q_proj,lm_head]",
          C "target_modules = [q_proj, lm_head]: " },
        { L "rank=8 " L "alpha=1e-46", L "alpha = 1e-46: " },
        { L "rank=8 " L "alpha_pattern.q_proj=0", L "alpha_pattern = {q_proj: 0}: " },
    };
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_train_config c;
        ares_config *cfg = checked(cases[i].words, &c);
        CHECK_MSG(faults_with(cfg, cases[i].fault) == 1, "%s: %s", cases[i].words,
                  faults_text(cfg));
        ares_config_free(cfg);
    }
}

/* Of init alone the values themselves are refused: they would start from the weights or from data.
 */
TEST(starts_of_adapters_that_are_not_built_are_refused_by_name)
{
    static const char *const names[] = { "pissa", "olora",   "eva",       "corda",
                                         "loftq", "lora_ga", "orthogonal" };
    static const char *const words[] = { L "init", C "init", "init_lora_weights",
                                         "peft_config.init_lora_weights",
                                         "critic.model.lora.init_lora_weights" };
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < ARES_COUNT(names); i++)
        for (int k = 0; k < ARES_COUNT(words); k++) {
            ares_train_config c;
            ares_str word = { 0 }, fault = { 0 };
            ares_str_addf(&word, "%s=%s", words[k], names[i]);
            ares_str_addf(&fault, "%s = '%s': not accepted: not built: ", words[k], names[i]);
            ares_config *cfg = checked(word.data, &c);
            CHECK_MSG(faults_with(cfg, fault.data) == 1, "%s: %s", word.data, faults_text(cfg));
            ares_config_free(cfg);
            ares_str_fini(&word);
            ares_str_fini(&fault);
        }
}

/* One model is in memory in one type: what the user leaves open follows the actor. */
TEST(models_that_are_the_actors_base_are_stored_as_it_is)
{
    static const struct {
        const char *words, *ref, *critic;
        int faults;
    } cases[] = {
        { "worker.actor.fsdp.torch_dtype=bf16", "fp32", "fp32", 0 },
        { L "rank=8 worker.actor.fsdp.torch_dtype=bf16", "bf16", "fp32", 0 },
        { "use_peft=true bf16=true", "bf16", "bf16", 0 }, /* asks all for products in bf16 */
        { L "rank=8 worker.actor.arithmetic=bf16 worker.ref.arithmetic=fp32", "bf16", "bf16", 1 },
        { L "rank=8 worker.ref.arithmetic=bf16", "fp32", "fp32", 1 },
        { L "adapter_path=p worker.actor.fsdp.torch_dtype=bf16 worker.ref.fsdp.torch_dtype=null",
          "bf16", "fp32", 0 },
        { L "rank=8 worker.ref.fsdp.torch_dtype=null", "fp32", "fp32", 0 },
        { L "rank=8 worker.actor.fsdp.torch_dtype=bf16 worker.ref.fsdp.torch_dtype=bfloat16",
          "bf16", "fp32", 0 },
        { L "rank=8 worker.actor.fsdp.torch_dtype=bf16 worker.ref.fsdp.torch_dtype=fp32", "fp32",
          "fp32", 1 },
        { L "rank=8 worker.actor.fsdp.torch_dtype=bf16 worker.ref.model.model_path=other", "fp32",
          "fp32", 0 }, /* a model of its own */
        { L "rank=8 worker.actor.fsdp.torch_dtype=bf16 worker.ref.fsdp.torch_dtype=fp32 "
            "algorithm.disable_kl=true",
          "fp32", "fp32", 0 }, /* there is no reference */
        { L "rank=8 " C "rank=8 algorithm.adv_estimator=gae worker.actor.fsdp.torch_dtype=bf16",
          "bf16", "bf16", 0 },
        { L "rank=8 " C "rank=8 algorithm.adv_estimator=gae worker.critic.fsdp.torch_dtype=bf16",
          "fp32", "bf16", 1 },
        { L "rank=8 " C "rank=8 algorithm.adv_estimator=gae worker.critic.fsdp.torch_dtype=bf16 "
            "worker.critic.model.model_path=other",
          "fp32", "bf16", 0 }, /* it has a base of its own */
        { L "rank=8 algorithm.adv_estimator=gae worker.critic.fsdp.torch_dtype=bf16", "fp32",
          "bf16", 0 }, /* it is trained in full */
    };
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_train_config c;
        ares_config *cfg = checked(cases[i].words, &c);
        CHECK_STR(c.ref.dtype, cases[i].ref);
        CHECK_STR(c.critic.dtype, cases[i].critic);
        CHECK_MSG(faults_with(cfg, "is the actor's own model") == cases[i].faults, "%s: %s",
                  cases[i].words, faults_text(cfg));
        ares_config_free(cfg);
    }
}

/* A word of a later layer counts, whichever trainer's it is. */
TEST(of_two_layers_that_speak_of_adapters_the_later_counts)
{
    static const struct {
        const char *yaml, *word;
        int64_t rank;
        double alpha;
    } cases[] = {
        { "actor_rollout_ref: {model: {lora: {rank: 8, alpha: 5}, lora_rank: 0, lora_alpha: 16}}",
          L "alpha=9", 8, 9 },
        { "actor_rollout_ref: {model: {lora: {rank: 0, alpha: 5}, lora_rank: 0, lora_alpha: 7}}",
          "actor_rollout_ref.model.lora_rank=8", 8, 7 },
        { "actor_rollout_ref: {model: {lora: {rank: 0, alpha: 5}, lora_rank: 0, lora_alpha: 7}}",
          "actor_rollout_ref.model.lora.rank=8", 8, 5 },
        { "use_peft: false\nlora_r: 4\nlora_alpha: 5", L "rank=8", 8, 5 },
        { "use_peft: false\nlora_r: 4\nlora_alpha: 5", "use_peft=true", 4, 5 },
        { "use_peft: true\nlora_r: 4\nlora_alpha: 5", "use_peft=false", 0, 5 },
        { "worker: {actor: {model: {lora: {rank: 4}}}}", "use_peft=false", 0, 64 },
    };
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_train_config c;
        ares_config *cfg = ares_config_new();
        ares_train_config_declare(cfg, &c);
        ares_config_load_text(cfg, "a.yaml", ares_view_of(cases[i].yaml));
        ares_config_override(cfg, "worker.actor.model.model_path=m");
        ares_config_override(cfg, cases[i].word);
        ares_config_resolve(cfg);
        CHECK_OK(ares_config_finish(cfg));
        CHECK_EQ(c.actor_lora.rank, cases[i].rank);
        CHECK_NEAR(c.actor_lora.alpha, cases[i].alpha, 0);
        ares_config_free(cfg);
    }
}
