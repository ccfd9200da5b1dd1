/*
 * What ares_train_config_check refuses and warns about, and beside each the nearest configuration
 * that it takes: every case has exactly the faults and warnings that it names.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ares/train.h"
#include "faults.h"
#include "test.h"
#include "trainer.h"

/* A run of answers to rows: 8 prompts with 4 answers each. */
#define ROWS                                                                              \
    "worker.actor.model.model_path=m|data.train_files=[t.jsonl]|"                         \
    "worker.reward.rewards=[{name: exact}]|data.rollout_batch_size=8|worker.rollout.n=4|" \
    "worker.actor.global_batch_size=8|algorithm.adv_estimator=rloo|algorithm.kl_coef=0|"
/* A run in environments of two tags. */
#define ENVS                                                                                    \
    "worker.actor.model.model_path=m|env.train.tags=[CoordSokoban, Bandit]|env.train.groups=8|" \
    "env.train.group_size=4|worker.actor.global_batch_size=8|trainer.max_steps=5|"              \
    "algorithm.adv_estimator=rloo|algorithm.kl_coef=0|"

/* Checks the words between bars for a number of ranks; *warnings: what it told on stderr. */
static ares_config *checked(const char *base, const char *words, int world, ares_str *warnings)
{
    static ares_train_config c;
    char all[4096], path[300], *rest = all;
    ares_config *cfg = ares_config_new();
    snprintf(all, sizeof all, "%s%s", base, words);
    snprintf(path, sizeof path, "%s", test_file("stderr"));
    int kept = dup(STDERR_FILENO), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    ares_log_set(ARES_LOG_WARN, 0);
    memset(&c, 0, sizeof c);
    ares_train_config_declare(cfg, &c);
    for (char *one; (one = strsep(&rest, "|"));)
        if (*one) ares_config_override(cfg, one);
    ares_config_resolve(cfg);
    if (ares_config_fault_count(cfg) == 0) (void)ares_train_config_check(cfg, &c, world);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept), close(file);
    ares_log_set(ARES_LOG_ERROR, 0);
    ares_str_clear(warnings);
    CHECK_OK(ares_file_read(path, warnings));
    return cfg;
}

/* Whether a text says "option: why" of an option that it names with its value. */
static bool says(const char *text, const char *part)
{
    char option[80];
    const char *colon = strstr(part, ": ");
    size_t length = colon ? (size_t)(colon - part) : 0;
    if (!colon || strcspn(part, " ") < length || strncmp(part, "config", 6) == 0)
        return strstr(text, part) != NULL;
    snprintf(option, sizeof option, ": %.*s = ", (int)length, part);
    const char *at = strstr(text, option);
    return at && strstr(at, colon);
}

static int lines_of(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '\n' || !text[1];
    return n;
}

typedef struct check_case {
    const char *words, *fault, *warning; /* NULL: none; "2*" before: of two, "*": of several */
    int world;                           /* 0: one */
} check_case;

static void check_cases(const char *base, const check_case *cases, int n)
{
    ares_str warnings = { 0 };
    for (int i = 0; i < n; i++) {
        const check_case *x = &cases[i];
        ares_config *cfg = checked(base, x->words, x->world ? x->world : 1, &warnings);
        const char *told[] = { faults_text(cfg), warnings.data ? warnings.data : "" },
                   *wanted[] = { x->fault, x->warning };
        for (int k = 0; k < 2; k++) {
            const char *part = wanted[k] ? wanted[k] : "";
            int count = wanted[k] ? 1 : 0;
            bool several = *part == '*';
            if (*part == '2' && part[1] == '*') count = *part++ - '0';
            part += *part == '*';
            CHECK_MSG(says(told[k], part) && (several || lines_of(told[k]) == count),
                      "%s: not '%s', but:\n%s", x->words, part, told[k]);
        }
        ares_config_free(cfg);
    }
    ares_str_fini(&warnings);
}

TEST(sizes_of_a_step_are_checked_against_each_other_and_the_ranks)
{
    static const check_case cases[] = {
        { "", NULL, NULL, 0 },
        { "worker.actor.global_batch_size=4", NULL, NULL, 4 },
        { "worker.actor.global_batch_size=3", "rollout_batch_size = 8 is no multiple of it", NULL,
          0 },
        { "worker.actor.global_batch_size=4",
          "worker.actor.global_batch_size: prompts are dealt out to 8 ranks; set a multiple of 8",
          NULL, 8 },
        { "worker.actor.global_batch_size=2|worker.actor.mini_batch_unit=rows", NULL, NULL, 8 },
        { "worker.actor.global_batch_size=3|worker.actor.mini_batch_unit=rows",
          "the 32 rows of a step", NULL, 0 },
        { "worker.actor.global_batch_size=32|worker.actor.mini_batch_unit=rows",
          "*data.rollout_batch_size: prompts are dealt out to 3 ranks", NULL, 3 },
        { "data.mini_rollout_batch_size=6|algorithm.dynamic_sampling_filter=nonzero_std",
          "data.mini_rollout_batch_size: prompts are dealt out to 4 ranks", NULL, 4 },
        { "data.mini_rollout_batch_size=4|algorithm.dynamic_sampling_filter=nonzero_std", NULL,
          NULL, 4 },
        { "worker.critic.global_batch_size=3|algorithm.adv_estimator=gae",
          "worker.critic.global_batch_size: data.rollout_batch_size = 8 is no multiple of it", NULL,
          0 },
        { "worker.critic.mini_batch_unit=rows|worker.critic.global_batch_size=16|"
          "algorithm.adv_estimator=gae",
          NULL, NULL, 0 },
        { "worker.critic.mini_batch_unit=rows|worker.critic.global_batch_size=5|"
          "algorithm.adv_estimator=gae",
          "worker.critic.global_batch_size: the 32 rows of a step", NULL, 0 },
        { "data.rollout_batch_size=536870912|worker.actor.global_batch_size=536870912",
          "a step would have more than 2147483647 responses", NULL, 0 },
        { "data.rollout_batch_size=536870911|worker.actor.global_batch_size=536870911", NULL, NULL,
          0 },
        { "data.max_prompt_length=10|data.max_response_length=20|worker.rollout.max_model_len=30",
          NULL, NULL, 0 },
        { "data.max_prompt_length=10|data.max_response_length=20|worker.rollout.max_model_len=29",
          "data.max_prompt_length + data.max_response_length = 30 do not fit", NULL, 0 },
        { "data.max_prompt_length=10|data.max_response_length=20|worker.rollout.cache_tokens=94",
          NULL, NULL, 0 },
        { "data.max_prompt_length=10|data.max_response_length=20|worker.rollout.cache_tokens=93",
          "one sample of data.max_prompt_length + data.max_response_length tokens needs 94", NULL,
          0 },
        { "", "2*worker.actor.global_batch_size: prompts are dealt out to 3 ranks", NULL, 3 },
        { "worker.actor.mini_batch_unit=rows|worker.actor.global_batch_size=16|"
          "worker.critic.mini_batch_unit=prompts|algorithm.adv_estimator=gae",
          "worker.critic.global_batch_size: data.rollout_batch_size = 8 is no multiple of it", NULL,
          0 },
        { "data.max_prompt_length=10|data.max_response_length=20|worker.rollout.max_model_len=100|"
          "worker.rollout.cache_tokens=94",
          NULL, NULL, 0 },
    };
    check_cases(ROWS, cases, ARES_COUNT(cases));
}

TEST(what_is_asked_for_in_two_ways_or_in_none_is_refused)
{
    static const check_case cases[] = {
        { "data.train_files=[]", "data.train_files: no training rows", NULL, 0 },
        { "data.train_files=[]|trainer.val_only=true|data.val_files=[v.jsonl]", NULL, NULL, 0 },
        { "trainer.val_only=true", "data.val_files: validation is asked for and has no rows", NULL,
          0 },
        { "trainer.val_freq=1", "data.val_files: validation is asked for and has no rows", NULL,
          0 },
        { "trainer.val_freq=1|data.val_files=[v.jsonl]", NULL, NULL, 0 },
        { "trainer.val_freq=1|eval.datasets={a: {path: x}}", NULL, NULL, 0 },
        { "worker.rollout.temperature=0", "greedy samples of a prompt are all the same", NULL, 0 },
        { "worker.rollout.temperature=0|trainer.val_only=true|data.val_files=[v.jsonl]", NULL, NULL,
          0 },
        { "trainer.critic_warmup=1", "rloo has no critic", NULL, 0 },
        { "trainer.critic_warmup=1|algorithm.adv_estimator=gae", NULL, NULL, 0 },
        { "trainer.critic_warmup=1|trainer.val_only=true|data.val_files=[v.jsonl]", NULL, NULL, 0 },
        { "algorithm.importance_sampling_fix=true|worker.actor.rollout_is=token",
          "*algorithm.importance_sampling_fix: corrects the same difference", NULL, 0 },
        { "report.gradient_analysis.only=true", "nothing would be trained and nothing measured",
          NULL, 0 },
        { "report.gradient_analysis.only=true|report.gradient_analysis.every=2", NULL, NULL, 0 },
        { "report.collapse.freq=1|report.collapse.first_turn=false|report.collapse.multi_turn="
          "false",
          "report.collapse.freq: nothing is drawn", NULL, 0 },
        { "report.collapse.freq=1|report.collapse.first_turn=false|report.collapse.multi_turn=true",
          NULL, NULL, 0 },
        { "report.collapse.freq=1|report.collapse.first_turn=true|report.collapse.multi_turn=false",
          NULL, NULL, 0 },
        { "report.collapse.freq=0|report.collapse.first_turn=false|report.collapse.multi_turn="
          "false",
          NULL, NULL, 0 },
        { "worker.actor.loss_norm=micro", "worker.actor.loss_norm: counts per micro-batch", NULL,
          0 },
        { "worker.actor.loss_norm=micro|worker.actor.micro_batch_size_per_device_for_update=2",
          NULL, NULL, 0 },
        { "worker.actor.early_stop_imp_ratio=5|worker.actor.early_stop_scope=micro",
          "worker.actor.early_stop_scope: counts per micro-batch", NULL, 0 },
        { "worker.actor.early_stop_imp_ratio=5|worker.actor.early_stop_scope=minibatch", NULL, NULL,
          0 },
        { "algorithm.dynamic_sampling_filter=nonzero_std|algorithm.dynamic_sampling.mode=same_"
          "prompt",
          NULL, NULL, 0 },
        { "algorithm.dynamic_sampling_filter=nonzero_std|algorithm.dynamic_sampling.mode=same_"
          "prompt|"
          "data.mini_rollout_batch_size=8",
          "same_prompt draws the whole batch once; set null", NULL, 0 },
        { "algorithm.dynamic_sampling_filter=reward_cap", "there are no caps", NULL, 0 },
        { "curriculum.reward_caps=[0.5]", "*nothing applies them", NULL, 0 },
        { "worker.reward.correct=-1|worker.reward.incorrect=1",
          "*worker.reward.correct: a right answer would earn -1 and a wrong one 1", NULL, 0 },
        { "worker.reward.scale=-1",
          "worker.reward.scale: a right answer would earn -1 and a wrong one 1", NULL, 0 },
        { "worker.reward.scale=0.5|worker.reward.incorrect=0", NULL, NULL, 0 },
        { "worker.reward.correct=0|worker.reward.incorrect=0",
          "worker.reward.correct: a right answer would earn 0 and a wrong one 0", NULL, 0 },
        { "worker.reward.incorrect=1",
          "worker.reward.incorrect: a right answer would earn 1 and a wrong one 1", NULL, 0 },
        { "worker.reward.scale=-0.5|worker.reward.correct=-1|worker.reward.incorrect=1", NULL, NULL,
          0 },
        { "worker.rollout.n=1", "worker.rollout.n: rloo compares the responses of a prompt", NULL,
          0 },
        { "worker.rollout.n=1|trainer.val_only=true|data.val_files=[v.jsonl]", NULL, NULL, 0 },
        { "worker.reward.scale=2|worker.reward.correct=-1|worker.reward.incorrect=1",
          "worker.reward.correct: a right answer would earn -2 and a wrong one 2", NULL, 0 },
        { "algorithm.dynamic_sampling_filter=reward_cap|curriculum.reward_caps=[0.5]", NULL, NULL,
          0 },
        { "algorithm.adv_estimator=remax|worker.reward.rewards=null|worker.reward.reward_function="
          "aepo",
          "*compares answers with a greedy one", NULL, 0 },
        { "worker.actor.fsdp.torch_dtype=bf16|trainer.kernels=aten|algorithm.adv_estimator=gae|"
          "worker.critic.fsdp.torch_dtype=fp32",
          "worker.critic.fsdp.torch_dtype: worker.actor.fsdp.torch_dtype=bf16 makes this device",
          NULL, 0 },
        { "worker.actor.fsdp.torch_dtype=bf16|trainer.kernels=aten|algorithm.adv_estimator=gae",
          NULL, NULL, 0 }, /* what is left open follows */
        { "worker.actor.arithmetic=bf16|worker.actor.fsdp.torch_dtype=fp32",
          "worker.actor.fsdp.torch_dtype: worker.actor.arithmetic=bf16 multiplies weights in bf16",
          NULL, 0 },
        { "worker.actor.arithmetic=bf16|worker.actor.fsdp.torch_dtype=bf16", NULL, NULL, 0 },
        { "worker.actor.arithmetic=fp32|worker.actor.fsdp.torch_dtype=bf16", NULL, NULL, 0 },
        { "worker.actor.arithmetic=bf16|algorithm.adv_estimator=gae|"
          "worker.critic.fsdp.torch_dtype=fp32",
          "worker.critic.fsdp.torch_dtype: worker.critic.arithmetic=bf16 multiplies", NULL, 0 },
        { "worker.actor.arithmetic=bf16|algorithm.adv_estimator=gae|worker.critic.arithmetic=fp32",
          NULL, NULL, 0 },
        { "worker.actor.arithmetic=bf16|worker.ref.fsdp.torch_dtype=fp32", NULL, NULL,
          0 }, /* there is no reference */
        { "worker.actor.arithmetic=bf16|trainer.kernels=aten", NULL, NULL, 0 },
        { "worker.actor.arithmetic=fp32|worker.actor.fsdp.torch_dtype=bf16|trainer.device=cuda",
          "worker.actor.arithmetic: with trainer.device=cuda products have the type of the "
          "weights",
          NULL, 0 },
        { "worker.actor.fsdp.torch_dtype=bf16|trainer.device=cuda", NULL, NULL, 0 },
        { "worker.actor.arithmetic=fp32|worker.actor.fsdp.torch_dtype=bf16|trainer.kernels=aten",
          "worker.actor.arithmetic: with trainer.kernels=aten products have the type of the "
          "weights",
          NULL, 0 },
        { "worker.actor.fsdp.torch_dtype=bf16|trainer.kernels=aten|algorithm.adv_estimator=gae|"
          "worker.critic.fsdp.torch_dtype=bf16",
          NULL, NULL, 0 },
        { "worker.actor.fsdp.torch_dtype=bf16|algorithm.adv_estimator=gae", NULL, NULL, 0 },
        { "worker.actor.fsdp.torch_dtype=bf16|trainer.kernels=aten", NULL, NULL, 0 },
        { "trainer.kernels=aten|algorithm.adv_estimator=gae|worker.critic.fsdp.torch_dtype=bf16",
          NULL, NULL, 0 },
        { "worker.actor.fsdp.torch_dtype=bf16|trainer.kernels=aten|algorithm.kl_coef=0.1|"
          "algorithm.use_kl_loss=true|worker.ref.fsdp.torch_dtype=fp32",
          "worker.ref.fsdp.torch_dtype: worker.actor.fsdp.torch_dtype=bf16 makes this device", NULL,
          0 },
        { "worker.actor.fsdp.torch_dtype=bf16|trainer.kernels=aten|algorithm.kl_coef=0.1|"
          "algorithm.use_kl_loss=true|worker.ref.fsdp.torch_dtype=null",
          NULL, NULL, 0 },
    };
    check_cases(ROWS, cases, ARES_COUNT(cases));
}

TEST(a_kl_acts_in_one_place_or_says_that_it_does_not)
{
    static const check_case cases[] = {
        { "algorithm.kl_coef=0.1|algorithm.use_kl_loss=true", NULL, NULL, 0 },
        { "algorithm.kl_coef=0.1|algorithm.use_kl_loss=true|algorithm.use_kl_in_reward=true",
          "*algorithm.use_kl_in_reward: algorithm.use_kl_loss makes the KL a term of the loss",
          NULL, 0 },
        { "algorithm.kl_coef=0.1|algorithm.use_kl_loss=true|algorithm.use_kl_in_reward=false", NULL,
          NULL, 0 },
        { "algorithm.kl_coef=0.1|algorithm.use_kl_loss=true|algorithm.disable_kl=true", NULL,
          "*config: algorithm.use_kl_loss = true: algorithm.disable_kl = true wins", 0 },
        { "algorithm.kl_coef=0.1|algorithm.use_kl_loss=false|algorithm.use_kl_in_reward=true|"
          "algorithm.disable_kl=true",
          NULL, "*config: algorithm.use_kl_in_reward = true: algorithm.disable_kl = true wins", 0 },
        { "algorithm.kl_coef=0.1|algorithm.use_kl_loss=false|algorithm.use_kl_in_reward=true|"
          "algorithm.kl_type=adaptive",
          NULL, NULL, 0 },
        { "algorithm.kl_coef=0.1|algorithm.use_kl_loss=true|algorithm.kl_type=adaptive", NULL,
          "*it steers a KL in the reward, and algorithm.use_kl_loss leaves none there", 0 },
        { "algorithm.kl_coef=0|algorithm.use_kl_loss=false|algorithm.use_kl_in_reward=true|"
          "algorithm.kl_type=adaptive",
          NULL, "*it steers a KL in the reward, and algorithm.kl_coef = 0 leaves none there", 0 },
        { "algorithm.kl_coef=0.1|algorithm.use_kl_loss=false|algorithm.disable_kl=true|"
          "algorithm.kl_type=adaptive",
          NULL, "*it steers a KL in the reward, and algorithm.disable_kl leaves none there", 0 },
        { "algorithm.kl_coef='0.1 if step < 3 else 0'|algorithm.use_kl_loss=true", NULL, NULL, 0 },
        { "algorithm.kl_coef='0 if step < 3 else 0.1'|algorithm.use_kl_loss=true",
          "is 0 at step 0, and 0 switches the KL off", NULL, 0 },
        { "algorithm.kl_coef='0.1 if step < 3 else 0'|algorithm.use_kl_loss=false|"
          "algorithm.use_kl_in_reward=true|algorithm.kl_type=adaptive",
          "a schedule and algorithm.kl_type = adaptive cannot both move it", NULL, 0 },
        { "algorithm.kl_coef='0.1 if step < 3 else 0'|algorithm.use_kl_loss=true|"
          "algorithm.disable_kl=true",
          NULL, "*algorithm.disable_kl = true wins", 0 },
        { "algorithm.kl_coef=0.1|algorithm.use_kl_loss=false|algorithm.use_kl_in_reward=false|"
          "algorithm.kl_type=adaptive",
          NULL, "*and algorithm.use_kl_in_reward = false leaves none there", 0 },
        { "algorithm.kl_coef='0 if step < 3 else 0.1'|algorithm.use_kl_loss=true|"
          "algorithm.disable_kl=true",
          NULL, "*algorithm.disable_kl = true wins", 0 },
        { "~algorithm.kl_coef|algorithm.kl_beta=0.1|algorithm.use_kl_loss=false",
          "algorithm.use_kl_loss: algorithm.kl_beta = 0.1 is the weight of a term of the loss", "*",
          0 },
        { "~algorithm.kl_coef|algorithm.kl_beta=0.1", NULL, "*", 0 },
    };
    check_cases(ROWS, cases, ARES_COUNT(cases));
}

TEST(adjusting_a_batch_needs_rows_and_a_rule_that_can_bear_it)
{
#define UNIT "worker.actor.mini_batch_unit=rows|worker.actor.global_batch_size=16|"
    static const check_case cases[] = {
        { UNIT "algorithm.batch_adjust_mode=copy", NULL, NULL, 0 },
        { UNIT "algorithm.batch_adjust_mode=delete", "delete may leave a single answer", NULL, 0 },
        { UNIT "algorithm.batch_adjust_mode=delete|algorithm.adv_estimator=gae", NULL, NULL, 0 },
        { "algorithm.batch_adjust_mode=copy", "makes whole mini-batches of rows, and these count",
          NULL, 0 },
        { "algorithm.batch_adjust_mode=copy|trainer.val_only=true|data.val_files=[v.jsonl]", NULL,
          NULL, 0 },
        { UNIT "algorithm.batch_adjust_mode=copy|algorithm.adv_estimator=gae|"
               "worker.critic.mini_batch_unit=prompts|worker.critic.global_batch_size=8",
          "and the critic's count prompts", NULL, 0 },
        { UNIT "algorithm.batch_adjust_mode=copy|worker.rollout.rollout_filter_strategy=top_p|"
               "worker.rollout.rollout_filter_value=0.5",
          NULL, NULL, 0 },
        { UNIT "algorithm.batch_adjust_mode=copy|worker.rollout.rollout_filter_strategy=top_p|"
               "worker.rollout.rollout_filter_value=0.49",
          "that share of the step's 32 rows is less than a mini-batch", NULL, 0 },
        { UNIT "algorithm.batch_adjust_mode=copy|worker.rollout.rollout_filter_strategy=top_k|"
               "worker.rollout.rollout_filter_value=0.49",
          NULL, NULL, 0 },
        { "algorithm.batch_adjust_mode=copy|worker.rollout.rollout_filter_strategy=top_p|"
          "worker.rollout.rollout_filter_value=0.1",
          "makes whole mini-batches of rows, and these count", NULL, 0 },
        { UNIT "algorithm.batch_adjust_mode=delete|worker.rollout.rollout_filter_strategy=top_p|"
               "worker.rollout.rollout_filter_value=0.49|algorithm.adv_estimator=gae",
          NULL, NULL, 0 },
    };
#undef UNIT
    check_cases(ROWS, cases, ARES_COUNT(cases));
}

TEST(over_sampling_takes_the_place_of_rounds_of_draws)
{
#define OVER "curriculum.over_sampling_batch_size=8|"
    static const check_case cases[] = {
        { OVER, NULL, NULL, 0 },
        { "curriculum.over_sampling_batch_size=7", "a fetch must fill the batch", NULL, 0 },
        { "curriculum.over_sampling_batch_size=536870911", NULL, NULL, 0 },
        { "curriculum.over_sampling_batch_size=536870912", "more than 2147483647 responses", NULL,
          0 },
        { OVER "data.mini_rollout_batch_size=8",
          "with curriculum.over_sampling_batch_size a draw is", NULL, 0 },
        { OVER "algorithm.dynamic_sampling_filter=nonzero_std|algorithm.max_resample=3",
          "algorithm.max_resample: with curriculum.over_sampling_batch_size", NULL, 0 },
        { OVER "algorithm.dynamic_sampling_filter=nonzero_std|"
               "algorithm.dynamic_sampling.mode=same_prompt",
          "algorithm.dynamic_sampling.mode: with curriculum.over_sampling_batch_size", NULL, 0 },
        { OVER "algorithm.dynamic_sampling_filter=nonzero_std|algorithm.on_exhausted=smaller_batch",
          "algorithm.on_exhausted: with curriculum.over_sampling_batch_size", NULL, 0 },
        { OVER "algorithm.dynamic_sampling_filter=nonzero_std|algorithm.on_exhausted=error", NULL,
          NULL, 0 },
        { "curriculum.partial_rollout=true|algorithm.dynamic_sampling_filter=nonzero_std|"
          "algorithm.max_resample=3",
          "algorithm.max_resample: with curriculum.partial_rollout", NULL, 0 },
        { "curriculum.partial_rollout=true|curriculum.partial.old_log_probs=stored", NULL, NULL,
          0 },
        { "curriculum.partial_rollout=true|curriculum.partial.old_log_probs=stored|"
          "worker.actor.recompute_log_probs=true",
          "worker.actor.recompute_log_probs computes all of them", NULL, 0 },
        { OVER "curriculum.partial_rollout=true|curriculum.mask_offpolicy_in_partial_rollout=true",
          NULL, NULL, 0 },
        { OVER "curriculum.recycle_surplus=true|curriculum.partial.old_log_probs=stored", NULL,
          NULL, 0 },
        { "curriculum.recycle_surplus=true|trainer.val_only=true|data.val_files=[v.jsonl]", NULL,
          NULL, 0 },
        { "curriculum.over_sampling_batch_size=7|trainer.val_only=true|data.val_files=[v.jsonl]",
          NULL, NULL, 0 },
    };
#undef OVER
    check_cases(ROWS, cases, ARES_COUNT(cases));
}

TEST(environments_have_their_own_sizes_prompts_and_scores)
{
    static const check_case cases[] = {
        { "", NULL, NULL, 0 },
        { "env.train.groups=9|worker.actor.global_batch_size=9",
          "env.train.groups: 2 tags cannot share them evenly", NULL, 0 },
        { "env.train.groups=9|worker.actor.global_batch_size=9|env.train.n_groups=[4, 5]", NULL,
          NULL, 0 },
        { "env.train.n_groups=[4, 5]", "they add up to 9, and env.train.groups is 8", NULL, 0 },
        { "env.train.n_groups=[8]", "1 numbers for 2 tags; give one for each", NULL, 0 },
        { "env.train.tags=[CoordSokoban, Bandti]", "*did you mean 'Bandit'?", NULL, 0 },
        { "env.val.tags=[Bandit, CoordSokoban]|env.val.groups=3",
          "env.val.groups: 2 tags cannot share them evenly", NULL, 0 },
        { "env.val.tags=[Bandit, CoordSokoban]|env.val.groups=3|env.val.n_groups=[1, 2]|"
          "trainer.val_freq=1",
          NULL, NULL, 0 },
        { "data.train_files=[t.jsonl]", "data.train_files: env.train.tags says", NULL, 0 },
        { "data.val_files=[v.jsonl]", "data.val_files: the run trains in environments", NULL, 0 },
        { "data.val_files=[v.jsonl]|env.val.tags=[Bandit]", "*data.val_files: env.val.tags says",
          NULL, 0 },
        { "data.apply_chat_template=false", "needs a chat template", NULL, 0 },
        { "worker.reward.rewards=[{name: exact}]", "worker.reward.rewards: environments score",
          NULL, 0 },
        { "worker.reward.max_length=9", "*worker.reward.max_length: environments score", NULL, 0 },
        { "worker.reward.unfinished_score=0", "*worker.reward.unfinished_score: environments score",
          NULL, 0 },
        { "data.rollout_batch_size=8|worker.rollout.n=4", NULL, NULL, 0 },
        { "data.rollout_batch_size=16|worker.actor.global_batch_size=16",
          "env.train.groups = 8 says how many prompts a step has", NULL, 0 },
        { "worker.rollout.n=5", "env.train.group_size = 4 says how many episodes a group has", NULL,
          0 },
        { "trainer.max_steps=null", "trainer.max_steps: environments never end", NULL, 0 },
        { "trainer.max_steps=null|trainer.val_only=true|env.val.tags=[Bandit]", NULL, NULL, 0 },
        { "report.collapse.freq=1|env.enable_think=false", "*it measures thoughts", NULL, 0 },
        { "report.collapse.freq=1", NULL, NULL, 0 },
        { "env.enable_response_mask=false|env.token_exact=false|env.mask_template_tokens=false",
          "env.mask_template_tokens: env.enable_response_mask: false trains on all", NULL, 0 },
        { "env.enable_response_mask=false|env.token_exact=false|env.mask_template_tokens=true",
          NULL, NULL, 0 },
        { "env.enable_response_mask=true|env.token_exact=false|env.mask_template_tokens=false",
          NULL, NULL, 0 },
        { "env.use_turn_scores=true|env.reward_normalization.method=mean",
          "*the scores of turns are not normalised", NULL, 0 },
        { "curriculum.over_sampling_batch_size=8",
          "curriculum.over_sampling_batch_size: an episode with an environment cannot be cut", NULL,
          0 },
        { "curriculum.partial_rollout=true",
          "curriculum.partial_rollout: an episode with an environment cannot be cut", NULL, 0 },
        { "eval.datasets={a: {path: x}}", "eval.datasets: this run acts in environments", NULL, 0 },
        { "worker.rollout.max_model_len=100|worker.rollout.cache_tokens=163",
          "one conversation of worker.rollout.max_model_len tokens needs 164", NULL, 0 },
        { "worker.rollout.max_model_len=100|worker.rollout.cache_tokens=164", NULL, NULL, 0 },
        { "env.train.tags=Bandit", NULL, NULL, 0 },
        { "data.val_files=[v.jsonl]|env.val.tags=[Bandit]", "2*data.val_files: the run trains in",
          NULL, 0 },
        { "env.enable_think=false", NULL, NULL, 0 },
    };
    check_cases(ENVS, cases, ARES_COUNT(cases));
}

TEST(data_sets_of_evaluations_are_checked)
{
#define LIMITS \
    "data.max_prompt_length=10|data.max_response_length=20|worker.rollout.max_model_len=40|"
    static const check_case cases[] = {
        { "eval.datasets=[{name: a, path: x}, {name: b, path: x}]", NULL, NULL, 0 },
        { "eval.datasets=[{name: a, path: x}, {name: b, path: x}, {name: a, path: y}]",
          "'a' is the name of two data sets", NULL, 0 },
        { "eval.datasets={a: x}", "eval.datasets.a: a data set is a map", NULL, 0 },
        { "eval.datasets=[{path: x}]", "eval.datasets.0: a data set has a name and a path", NULL,
          0 },
        { "eval.datasets={a: {rm_type: exact}}",
          "eval.datasets.a: a data set has a name and a path", NULL, 0 },
        { "eval.datasets={a: {path: x, name: 'b c'}}", "name 'b c' is part of names of metrics",
          NULL, 0 },
        { "eval.datasets={a/b: {path: x}}", "name 'a/b' is part of names of metrics", NULL, 0 },
        { "eval.datasets={a.b: {path: x}}", "the key 'a.b' has a dot in it", NULL, 0 },
        { "eval.datasets={a: {path: x, tool_key: t}}", "eval.datasets.a: tool_key is not offered",
          NULL, 0 },
        { "eval.defaults={custom_generate_function_path: f}|eval.datasets={a: {path: x}}",
          "eval.defaults: custom_generate_function_path is not offered", NULL, 0 },
        { "eval.defaults={path: x}|eval.datasets={a: {path: x}}",
          "name, path and metadata_overrides are those of one data set", NULL, 0 },
        { "eval.defaults={metadata_overrides: {k: 1}}|eval.datasets={a: {path: x}}",
          "name, path and metadata_overrides are those of one data set", NULL, 0 },
        { LIMITS "eval.datasets={a: {path: x, max_response_len: 30}}", NULL, NULL, 0 },
        { LIMITS "eval.datasets={a: {path: x, max_response_len: 31}}",
          "eval.datasets.a: max_response_len = 31 and data.max_prompt_length = 10 do not fit", NULL,
          0 },
        { LIMITS "eval.defaults={max_response_len: 31}|eval.datasets={a: {path: x}, b: {path: y, "
                 "max_response_len: 5}}",
          "eval.datasets.a: max_response_len = 31", NULL, 0 },
        { LIMITS "data.val_files=[v]|worker.rollout.val_override_config={max_new_tokens: 30}", NULL,
          NULL, 0 },
        { LIMITS "data.val_files=[v]|worker.rollout.val_override_config={max_new_tokens: 31}",
          "worker.rollout.val_override_config: max_new_tokens = 31", NULL, 0 },
        { LIMITS "worker.rollout.val_override_config={max_new_tokens: 31}", NULL, NULL, 0 },
    };
#undef LIMITS
    check_cases(ROWS, cases, ARES_COUNT(cases));
}

TEST(penalties_of_length_that_do_nothing_are_told)
{
#define LENGTH "data.max_response_length=100|"
    static const check_case cases[] = {
        { LENGTH "worker.reward.rewards=[{name: exact}]|worker.reward.max_length=100|"
                 "worker.reward.safe_length=50",
          NULL, NULL, 0 },
        { LENGTH "worker.reward.rewards=[{name: exact}]|worker.reward.max_length=200|"
                 "worker.reward.safe_length=100",
          NULL, "worker.reward.safe_length = 100: no answer of training is longer", 0 },
        { LENGTH "algorithm.over_length_action=drop|worker.reward.rewards=[{name: "
                 "exact}]|worker.reward.max_length=99|worker.reward.safe_length=50",
          NULL, "the rewards' limit of length is 99 tokens", 0 },
        { LENGTH "algorithm.over_length_action=keep|worker.reward.rewards=[{name: "
                 "exact}]|worker.reward.max_length=99|worker.reward.safe_length=50",
          NULL, NULL, 0 },
        { LENGTH "algorithm.over_length_action=drop", NULL,
          "algorithm.over_length_action = 'drop': has no effect", 0 },
        { LENGTH "worker.reward.max_length=100|worker.reward.safe_length=50|"
                 "worker.reward.len_reward_penalty=0.99",
          NULL, NULL, 0 },
        { LENGTH "worker.reward.max_length=100|worker.reward.safe_length=50|"
                 "worker.reward.len_reward_penalty=1",
          NULL, "the full penalty of length is 1, and a right answer earns 1, a wrong one 0", 0 },
        { LENGTH "worker.reward.max_length=100|worker.reward.safe_length=50|"
                 "worker.reward.len_reward_penalty=1|worker.reward.correct=1|"
                 "worker.reward.incorrect=-1",
          NULL, NULL, 0 },
    };
#undef LENGTH
    check_cases(ROWS, cases, ARES_COUNT(cases));
}

/* Positions that the model does not have, of whatever the run may make longest. */
TEST(sequences_have_positions_in_the_model)
{
    static const char config[] =
        "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":32,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
        "\"intermediate_size\":64,\"vocab_size\":512,\"max_position_embeddings\":100,"
        "\"rms_norm_eps\":1e-5,\"rope_theta\":10000,\"eos_token_id\":2}";
#define SHORT "data.max_prompt_length=40|data.max_response_length=60|"
    static const check_case cases[] = {
        { SHORT, NULL, NULL, 0 },
        { "data.max_prompt_length=40|data.max_response_length=61",
          "data.max_response_length: data.max_prompt_length and it take 101 tokens", NULL, 0 },
        { "data.max_prompt_length=40|data.max_response_length=61|trainer.val_only=true|"
          "data.val_files=[v]|worker.rollout.val_override_config={max_new_tokens: 60}",
          NULL, NULL, 0 },
        { SHORT "data.val_files=[v]|worker.rollout.val_override_config={max_new_tokens: 61}",
          "worker.rollout.val_override_config: data.max_prompt_length and max_new_tokens take 101",
          NULL, 0 },
        { SHORT "worker.rollout.val_override_config={max_new_tokens: 61}", NULL, NULL, 0 },
        { SHORT "eval.datasets={a: {path: x, max_response_len: 61}, b: {path: y}}",
          "eval.datasets: data.max_prompt_length and max_response_len take 101", NULL, 0 },
        { SHORT "worker.rollout.max_model_len=101",
          "worker.rollout.max_model_len: prompt and response take 101", NULL, 0 },
        { SHORT "worker.rollout.max_model_len=100", NULL, NULL, 0 },
        { "data.max_prompt_length=41|data.max_response_length=60|"
          "worker.actor.model.override_config.max_position_embeddings=101",
          NULL, NULL, 0 },
        { "data.max_prompt_length=40|data.max_response_length=61|data.val_files=[v]|"
          "eval.datasets={a: {path: x}}",
          "data.max_response_length: data.max_prompt_length and it take 101 tokens", NULL, 0 },
        { "data.max_prompt_length=40|data.max_response_length=61|trainer.val_only=true|"
          "data.val_files=[v]",
          "worker.rollout.val_override_config: data.max_prompt_length and max_new_tokens take 101",
          NULL, 0 },
        { "data.max_prompt_length=40|data.max_response_length=61|trainer.val_only=true|"
          "eval.datasets={a: {path: x}, b: {path: y, max_response_len: 60}}",
          "eval.datasets: data.max_prompt_length and max_response_len take 101", NULL, 0 },
    };
#undef SHORT
    char base[600];
    CHECK_OK(ares_dir_make(test_file("model")));
    CHECK_OK(ares_file_write(test_file("model/config.json"), config, sizeof config - 1));
    snprintf(base, sizeof base, "%sworker.actor.model.model_path=%s|", ROWS, test_file("model"));
    check_cases(base, cases, ARES_COUNT(cases));
}

/* What a data set says wins over eval.defaults, and these over the options of validation. */
TEST(a_data_set_of_evaluations_takes_its_own_words_first)
{
    static const char words[] =
        "data.prompt_key=p|data.answer_key=a|data.metadata_key=m|data.max_response_length=50|"
        "worker.rollout.val_override_config={n: 2, temperature: 0.5, top_p: 0.9}|"
        "eval.defaults={n_samples_per_eval_prompt: 3, top_k: 7, input_key: dp, rm_type: boxed, "
        "stop: "
        "[x, yy]}|"
        "eval.datasets={own: {path: f1, n_samples_per_eval_prompt: 4, temperature: 0, top_p: 0.8, "
        "top_k: 9, max_response_len: 30, stop: [z], stop_token_ids: [5, 6], input_key: ip, "
        "label_key: "
        "ia, metadata_key: im, rm_type: exact, metadata_overrides: {k: 1}}, "
        "plain: {path: f2}, named: {path: f3, name: n3, metadata_overrides: {rm_type: number, l: "
        "2}}}";
    static ares_train_config c;
    char all[4096], *rest = all;
    ares_config *cfg = ares_config_new();
    eval_sets e;
    ares_str text = { 0 };
    snprintf(all, sizeof all, "%s%s", ROWS, words);
    ares_train_config_declare(cfg, &c);
    for (char *one; (one = strsep(&rest, "|"));) ares_config_override(cfg, one);
    ares_config_resolve(cfg);
    eval_sets_read(cfg, &c, &e);
    CHECK_STR(faults_text(cfg), "");
    REQUIRE(e.n == 3);
    static const char *const names[] = { "own", "plain", "n3" }, *const paths[] = { "f1", "f2",
                                                                                    "f3" };
    static const struct {
        int64_t n;
        float temperature, top_p;
        int32_t top_k, tokens, stops, ids;
        const char *prompt, *answer, *metadata_key, *metadata;
    } want[] = {
        { 4, 0, 0.8F, 9, 30, 1, 2, "ip", "ia", "im", "{\"rm_type\":\"exact\",\"k\":1}" },
        { 3, 0.5F, 0.9F, 7, 50, 2, 0, "dp", "a", "m", "{\"rm_type\":\"boxed\"}" },
        { 3, 0.5F, 0.9F, 7, 50, 2, 0, "dp", "a", "m", "{\"rm_type\":\"number\",\"l\":2}" },
    };
    for (int i = 0; i < 3; i++) {
        const eval_set *x = &e.items[i];
        CHECK_STR(x->name, names[i]);
        CHECK_STR(x->path, paths[i]);
        CHECK_EQ(x->n, want[i].n);
        CHECK_EQ(x->sampling.temperature, want[i].temperature);
        CHECK_EQ(x->sampling.top_p, want[i].top_p);
        CHECK_EQ(x->sampling.top_k, want[i].top_k);
        CHECK_EQ(x->sampling.max_new_tokens, want[i].tokens);
        CHECK_EQ(x->sampling.n_stop_strings, want[i].stops);
        CHECK_STR(x->sampling.stop_strings[0], i ? "x" : "z");
        CHECK_EQ(x->sampling.n_stop_ids, want[i].ids);
        if (!i) CHECK_EQ(x->sampling.stop_ids[1], 6);
        CHECK_STR(x->data.prompt_key, want[i].prompt);
        CHECK_STR(x->data.answer_key, want[i].answer);
        CHECK_STR(x->data.metadata_key, want[i].metadata_key);
        ares_str_clear(&text);
        ares_json_write(&text, x->metadata);
        CHECK_STR(text.data, want[i].metadata);
    }
    CHECK_EQ(eval_sets_longest(&e), 50);
    ares_config_free(cfg);
    /* a data set that says nothing, without defaults: all is that of validations */
    static const char bare[] =
        "data.prompt_key=p|data.answer_key=a|"
        "worker.rollout.val_override_config={n: 2, temperature: 0.5, top_k: 6}|"
        "eval.datasets={set: {path: f, name: null}}";
    cfg = ares_config_new();
    rest = all;
    snprintf(all, sizeof all, "%s%s", ROWS, bare);
    ares_train_config_declare(cfg, &c);
    for (char *one; (one = strsep(&rest, "|"));) ares_config_override(cfg, one);
    ares_config_resolve(cfg);
    eval_sets_read(cfg, &c, &e);
    CHECK_STR(faults_text(cfg), "");
    REQUIRE(e.n == 1);
    CHECK_STR(e.items[0].name, "set");
    CHECK_EQ(e.items[0].n, 2);
    CHECK_EQ(e.items[0].sampling.temperature, 0.5F);
    CHECK_EQ(e.items[0].sampling.top_k, 6);
    CHECK_EQ(e.items[0].sampling.n_stop_strings, 0);
    CHECK_STR(e.items[0].data.prompt_key, "p");
    CHECK_STR(e.items[0].data.answer_key, "a");
    CHECK(!e.items[0].metadata);
    ares_config_free(cfg);
    ares_str_fini(&text);
}

/* Of actor, reference and critic, each as weights, then products. */
TEST(a_card_computes_in_bf16_unless_fp32_is_said_somewhere)
{
    static const struct {
        const char *words[3], *types;
    } cases[] = {
        { { "trainer.device=cuda" }, "bf16 bf16 bf16 bf16 bf16 bf16" },
        { { "trainer.device=cuda:1", "worker.actor.fsdp.mp_param_dtype=bf16",
            "worker.actor.fsdp.torch_dtype=fp32" },
          "bf16 bf16 bf16 bf16 bf16 bf16" }, /* the fp32 weights are the optimizer's copy */
        { { "trainer.device=cuda", "worker.actor.fsdp.mp_param_dtype=fp32" },
          "fp32 fp32 fp32 fp32 fp32 fp32" },
        { { "trainer.device=cuda", "worker.critic.fsdp.torch_dtype=fp32" },
          "fp32 fp32 fp32 fp32 fp32 fp32" },
        { { "trainer.device=cuda", "worker.ref.arithmetic=fp32" },
          "fp32 fp32 fp32 fp32 fp32 fp32" },
        { { "trainer.device=cpu" }, "fp32 fp32 fp32 fp32 fp32 fp32" },
        { { "trainer.kernels=aten" }, "fp32 fp32 fp32 fp32 fp32 fp32" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_train_config c;
        ares_config *cfg = ares_config_new();
        int n = 0;
        char types[64];
        ares_train_config_declare(cfg, &c);
        while (n < ARES_COUNT(cases[i].words) && cases[i].words[n]) n++;
        ares_config_read_args(cfg, n, cases[i].words);
        ares_config_resolve(cfg);
        snprintf(types, sizeof types, "%s %s %s %s %s %s", c.actor.dtype, c.actor.arithmetic,
                 c.ref.dtype, c.ref.arithmetic, c.critic.dtype, c.critic.arithmetic);
        CHECK_MSG(strcmp(types, cases[i].types) == 0, "case %d: %s", i, types);
        ares_config_free(cfg);
    }
}
