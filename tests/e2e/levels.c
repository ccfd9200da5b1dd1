/* The levels that are written by hand, and those that follow from the program's own lists. */
#include "levels.h"

#include "../../src/algo/adv/adv.h"
#include "../../src/algo/filter/filter.h"
#include "../../src/algo/loss/loss.h"
#include "ares/algo.h"
#include "ares/algo_control.h"
#include "ares/algo_filter.h"
#include "ares/algo_loss.h"

#include <stdio.h>
#include <string.h>

#define DYNAMIC                                              \
    "algorithm.aepo=true worker.actor.dynamic_kl_loss=true " \
    "algorithm.difficulty_aware_kl_penalty=true "

#define TEACHES_BY "distillation.distillation_loss."
#define TAUGHT_BY "distillation.enabled=true " TEACHES_BY "use_task_rewards=true distillation."

/* The first level of each factor goes with everything, except the estimator's. */
static const factor written[FACTORS] = {
    [ESTIMATOR] = { "estimator", 0, { { 0 } } },
    [LOSS] = { "loss", 0, { { 0 } } },
    [FILTER] = { "filter",
                 6,
                 {
                     { "none", "", 0 },
                     { "accuracy_range of shaped scores",
                       "algorithm.online_filtering=true algorithm.filter_key=overall "
                       "algorithm.filter_low=-1 algorithm.filter_high=1.4",
                       FILTERS },
                     { "informative by score",
                       "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=score",
                       INFORMATIVE | FILTERS },
                     { "rv of each draw",
                       "worker.rollout.rollout_filter_strategy=top_k "
                       "worker.rollout.rollout_filter_value=0.5 algorithm.max_resample=3 "
                       "algorithm.filter_groups.enable=false",
                       BY_DEVIATION | RANKS_DRAWS | FILTERS },
                     { "rv by length",
                       "worker.rollout.rollout_filter_strategy=top_k_abs "
                       "worker.rollout.rollout_filter_value=3 "
                       "worker.rollout.rollout_filter_metric=length",
                       FILTERS },
                     { "rv after nonzero_std",
                       "algorithm.dynamic_sampling_filter=nonzero_std "
                       "worker.rollout.rollout_filter_strategy=top_k "
                       "worker.rollout.rollout_filter_value=0.75 "
                       "worker.actor.filter_loss_scaling=sqrt",
                       NONZERO | BY_DEVIATION | FILTERS | NO_PAIRS },
                 } },
    [CONTROL] = { "control",
                  5,
                  {
                      { "none", "", 0 },
                      { "aepo, shaped reward", "algorithm.aepo=true " REWARD(", {name: aepo}"),
                        SHAPED | NO_PAIRS },
                      { "aepo, dual_ascent", DYNAMIC, DYNAMIC_KL | NO_PAIRS },
                      { "aepo, log_space",
                        DYNAMIC
                        "algorithm.kl_bucket_controller=log_space "
                        "algorithm.kl_beta_update_interval=1 "
                        "worker.actor.enable_second_chance_kl=true "
                        "worker.actor.second_chance_easy_only=false "
                        "worker.actor.second_chance_soft_cost_min=0 algorithm.hwe_kl_scope=window",
                        DYNAMIC_KL | NO_PAIRS },
                      { "aepo, bootstrap",
                        "data.bootstrap=true data.bootstrap_batch_size=5 "
                        "algorithm.drop_easy_prompts=true",
                        0 },
                  } },
    [KL_PLACE] = { "KL",
                   4,
                   {
                       { "in the reward", "", 0 },
                       { "in the loss", "algorithm.use_kl_loss=true", LOSS_KL | NO_PAIRS },
                       { "coefficient 0", "algorithm.use_kl_loss=true algorithm.kl_coef=0",
                         ZERO_KL | NO_PAIRS },
                       { "none", "algorithm.disable_kl=true", NO_KL },
                   } },
    [KL_ESTIMATOR] = { "KL estimator", 0, { { 0 } } },
    [ANSWERS] = { "answers",
                  3,
                  {
                      { "4", "worker.rollout.n=4", 0 },
                      { "2", "worker.rollout.n=2", 0 },
                      { "1", "worker.rollout.n=1", ONE_ANSWER },
                  } },
    [MASKED] = { "masked answers",
                 5,
                 {
                     { "none", "", 0 },
                     { "unfinished", "algorithm.mask_truncated=true", MASKS },
                     { "unfinished, dropped",
                       "algorithm.mask_truncated=true algorithm.over_length_action=drop",
                       MASKS | DROPS },
                     { "long",
                       "worker.reward.max_length=8 worker.reward.safe_length=4 "
                       "worker.reward.len_reward_penalty=0.5",
                       0 },
                     { "all",
                       "algorithm.mask_truncated=true 'worker.rollout.stop_token_ids=[]' "
                       "worker.rollout.ignore_eos=true",
                       MASKS | LEARNS_LITTLE | ALL_MASKED },
                 } },
    [EPOCHS] = { "epochs", 2, { { "1", "", 0 }, { "2", "worker.actor.ppo_epochs=2", 0 } } },
    [MINI_BATCHES] = { "mini-batches",
                       4,
                       {
                           { "1", "", 0 },
                           { "2", "worker.actor.global_batch_size=2", MINI },
                           { "2 rows each",
                             "worker.actor.mini_batch_unit=rows worker.actor.global_batch_size=2",
                             MINI | NO_PAIRS },
                           { "2 rows each, copied",
                             "worker.actor.mini_batch_unit=rows worker.actor.global_batch_size=2 "
                             "algorithm.batch_adjust_mode=copy",
                             MINI | NO_PAIRS },
                       } },
    [ADVANTAGES] = { "advantages",
                     10,
                     {
                         { "as they are", "", 0 },
                         { "normalize_advantages", "algorithm.normalize_advantages=true",
                           NO_PAIRS },
                         { "importance_sampling_fix", "algorithm.importance_sampling_fix=true",
                           CORRECTS | NO_PAIRS },
                         { "zero_task_advantage", "algorithm.zero_task_advantage=true",
                           LEARNS_LITTLE | NO_PAIRS },
                         { "norm_adv_by_std_in_grpo=false",
                           "algorithm.norm_adv_by_std_in_grpo=false", 0 },
                         { "soft_advantage_reweight", "algorithm.soft_advantage_reweight=true",
                           OF_GRPO },
                         { "grpo_advantage_length_weight",
                           "algorithm.grpo_advantage_length_weight=true", OF_GRPO },
                         { "gamma", "algorithm.gamma=0.9", GAMMA },
                         { "lam", "algorithm.lam=0.9", LAM },
                         { "bi_level_gae", "algorithm.bi_level_gae=true", TURNS },
                     } },
    [COUNTS] = { "counts of the loss",
                 6,
                 {
                     { "token-mean", "", 0 },
                     { "seq-mean-token-mean",
                       "worker.actor.loss_avg_mode=seq-mean-token-mean "
                       "worker.critic.loss_avg_mode=seq-mean-token-mean",
                       NO_PAIRS },
                     { "seq-mean-token-sum",
                       "worker.actor.loss_avg_mode=seq-mean-token-sum "
                       "worker.critic.loss_avg_mode=seq-mean-token-sum",
                       NO_PAIRS },
                     { "seq-mean-token-sum-norm",
                       "worker.actor.loss_avg_mode=seq-mean-token-sum-norm", NO_PAIRS },
                     { "loss_norm=micro",
                       "worker.actor.loss_norm=micro "
                       "worker.actor.micro_batch_size_per_device_for_update=2",
                       BY_RANK | NO_PAIRS },
                     { "valid_token_scope=rollout", "worker.actor.valid_token_scope=rollout",
                       NO_PAIRS },
                 } },
    [CORRECTION] = { "stop, correction",
                     6,
                     {
                         { "none", "", 0 },
                         { "early stop", "worker.actor.early_stop_imp_ratio=1.001", NO_PAIRS },
                         { "early stop by micro-batch",
                           "worker.actor.early_stop_imp_ratio=1.001 "
                           "worker.actor.early_stop_scope=micro "
                           "worker.actor.micro_batch_size_per_device_for_update=2",
                           STOPS_MICRO | BY_RANK | NO_PAIRS },
                         { "rollout_is=token", "worker.actor.rollout_is=token",
                           CORRECTS_TOO | NO_PAIRS },
                         { "rollout_is=sequence",
                           "worker.actor.rollout_is=sequence worker.actor.rollout_is_mode=mask",
                           CORRECTS_TOO | NO_PAIRS },
                         { "rollout_is=geometric", "worker.actor.rollout_is=geometric",
                           CORRECTS_TOO | NO_PAIRS },
                     } },
    [EXHAUSTED] = { "draws",
                    8,
                    {
                        { "fill_masked", "algorithm.on_exhausted=fill_masked", FILLS },
                        { "smaller_batch", "algorithm.on_exhausted=smaller_batch", 0 },
                        { "fill_masked, same_prompt",
                          "algorithm.on_exhausted=fill_masked "
                          "algorithm.dynamic_sampling.mode=same_prompt",
                          SAME_PROMPT | FILLS },
                        { "fill_masked, more than the batch",
                          "algorithm.on_exhausted=fill_masked data.mini_rollout_batch_size=6",
                          FILLS },
                        { "over-sampled", "curriculum.over_sampling_batch_size=5", OVERSAMPLES },
                        { "partial",
                          "curriculum.over_sampling_batch_size=6 curriculum.partial_rollout=true "
                          "curriculum.recycle_surplus=true",
                          OVERSAMPLES },
                        { "partial, masked",
                          "curriculum.over_sampling_batch_size=6 curriculum.partial_rollout=true "
                          "curriculum.mask_offpolicy_in_partial_rollout=true",
                          OVERSAMPLES },
                        { "partial, stored",
                          "curriculum.over_sampling_batch_size=6 curriculum.partial_rollout=true "
                          "curriculum.recycle_surplus=true "
                          "curriculum.partial.old_log_probs=stored",
                          OVERSAMPLES | STORED },
                    } },
    [CRITIC] = { "critic",
                 4,
                 {
                     { "1 pass", "", 0 },
                     { "2 passes", "worker.critic.ppo_epochs=2", 0 },
                     { "4 mini-batches", "worker.critic.global_batch_size=1", BY_RANK },
                     { "warm-up", "trainer.critic_warmup=1", WARMS_UP },
                 } },
    [ADAPTERS] = { "adapters",
                   4,
                   {
                       { "none", "", 0 },
                       { "of the policy", "worker.actor.model.lora.rank=2", LORA },
                       { "of the policy and its head",
                         "worker.actor.model.lora.rank=3 "
                         "'worker.actor.model.lora.target_modules=[down_proj,lm_head]'",
                         LORA },
                       { "of policy and critic",
                         "worker.actor.model.lora.rank=2 worker.critic.model.lora.rank=3", LORA },
                   } },
    [TEACHER] = { "teacher",
                  4,
                  {
                      { "none", "", UNTAUGHT },
                      { "another model", TAUGHT_BY "teacher_model.model_path=$ARES_TEST_TEACHER",
                        TAUGHT },
                      { "itself, with hints",
                        TAUGHT_BY "context=row distillation.privileged_context_key=hint", TAUGHT },
                      { "its average, with right answers",
                        TAUGHT_BY "context=group distillation.teacher_model.kind=ema "
                                  "distillation.success_reward_threshold=0.5",
                        TAUGHT | AVERAGE | BY_GROUP },
                  } },
    [DISTILLATION] = { "distillation",
                       6,
                       {
                           { "jsd, beta 1", "", 0 },
                           { "jsd, beta 0", TEACHES_BY "beta=0", TEACHES },
                           { "jsd, beta 0.5", TEACHES_BY "beta=0.5", TEACHES },
                           { "jsd alone", TEACHES_BY "use_task_rewards=false",
                             LEARNS_LITTLE | ALONE },
                           { "k3", TEACHES_BY "loss_mode=k3", TEACHES },
                           { "k1 as an advantage",
                             TEACHES_BY "loss_mode=k1 " TEACHES_BY "use_policy_gradient=true",
                             TEACHES },
                       } },
    [OTHER] = { "other",
                14,
                {
                    { "none", "", 0 },
                    { "gradient analysis", "report.gradient_analysis.every=1", NO_PAIRS },
                    { "entropy bonus", "worker.actor.entropy_coeff=0.01", ENTROPY },
                    { "recompute_log_probs", "worker.actor.recompute_log_probs=true", RECOMPUTES },
                    { "shuffle", "worker.actor.shuffle=true", 0 },
                    { "share_prompts=false",
                      "worker.actor.share_prompts=false worker.critic.share_prompts=false", 0 },
                    { "temperature, top_p",
                      "worker.rollout.temperature=0.8 worker.rollout.top_p=0.95", 0 },
                    { "topk_tail", "worker.rollout.entropy_mode=topk_tail", 0 },
                    { "trigger words", "worker.rollout.trigger_tokens_file=$ARES_TEST_TRIGGERS",
                      0 },
                    { "validation",
                      "data.val_files=examples/data/sums/val.jsonl trainer.val_freq=1 "
                      "data.val_batch_size=100",
                      0 },
                    { "schedules",
                      "worker.actor.optim.lr_scheduler_type=cosine "
                      "worker.actor.optim.lr_warmup_steps=1 worker.actor.max_grad_norm=0.1 "
                      "worker.critic.optim.lr_scheduler_type=linear "
                      "worker.critic.max_grad_norm=0.1",
                      0 },
                    { "bf16",
                      "worker.actor.fsdp.torch_dtype=bf16 worker.critic.fsdp.torch_dtype=bf16 "
                      "worker.ref.fsdp.torch_dtype=bf16",
                      0 },
                    { "products in bf16", "worker.actor.arithmetic=bf16", 0 },
                    { "Kahan sums",
                      "worker.actor.fsdp.torch_dtype=bf16 worker.actor.optim.strategy=adamw_bf16",
                      0 },
                } },
};

/* Pairs that make no sense and are refused; the text is part of the message. */
const rule levels_refused[] = {
    { COMPARES, ONE_ANSWER, "compares the responses of a prompt; set 2 or more" },
    { NOT_GRPO, OF_GRPO, "does not take it; set algorithm.adv_estimator to grpo" },
    { NOT_DISCOUNTED, GAMMA,
      "gives every token of a response the same advantage and discounts nothing" },
    { NOT_GAE, TURNS, "knows no values; set algorithm.adv_estimator to gae" },
    { NO_CRITIC, WARMS_UP, "has no critic" },
    { WARMS_UP, OF_GRPO, "has no critic" },
    { WARMS_UP, ALONE, "nothing would learn in these steps" },
    { ONE_ANSWER, OF_GRPO,
      "does not take it; set algorithm.adv_estimator to grpo" }, /* grpo compares */
    { BASELINE, SHAPED,
      "compares answers with a greedy one, whose score the reward 'aepo' does not shape" },
    { OF_MINI_BATCH, STOPS_MICRO, "is of the mini-batch as a whole" },
    { BY_ACCURACY, ONE_ANSWER,
      "one answer is right or wrong, so no mean lies between the bounds; set worker.rollout.n to 2 "
      "or more" },
    { INFORMATIVE, ONE_ANSWER,
      "one answer is never both right and wrong; set worker.rollout.n to 2 or more" },
    { NONZERO, ONE_ANSWER, "one answer has no deviation; set worker.rollout.n to 2 or more" },
    { BY_DEVIATION, ONE_ANSWER, "one answer has no deviation; set worker.rollout.n to 2 or more" },
    { RANKS_DRAWS, SAME_PROMPT,
      "rollout_filter_* compares the groups of a draw with each other; set new_prompts" },
    { DYNAMIC_KL, NO_KL, "algorithm.disable_kl leaves no KL to weigh; set one of them to false" },
    { CORRECTS, CORRECTS_TOO, "corrects the same difference" },
    { OVERSAMPLES, RANKS_DRAWS, "says how often prompts are drawn; set null" },
    { STORED, RECOMPUTES, "worker.actor.recompute_log_probs computes all of them" },
    { PAIRS, NO_PAIRS, "does not go with worker.actor.loss_type = 'vapor'" },
    { PAIRS, EXACT_KL, "the exact KL needs the logits of both models" },
    { UNTAUGHT | PAIRS | EXACT_KL, TEACHES, "a teacher that nothing asks for" },
    { PAIRS, TAUGHT, "judges whole answers and has no term of a token" },
    { EXACT_KL, TAUGHT, "the head compares the policy with one model over the whole vocabulary" },
    { ONE_ANSWER, BY_GROUP, "an answer learns from others to its prompt" },
    { LORA, AVERAGE, "a moving average of adapters is no adapter of that rank" },
    { 0, 0, NULL },
};

/* Pairs in which one level has no effect; the program warns about it. */
const rule levels_without_effect[] = {
    { ADAPTIVE_KL, LOSS_KL,
      "has no effect: it steers a KL in the reward, and algorithm.use_kl_loss leaves none there" },
    { ADAPTIVE_KL, ZERO_KL,
      "has no effect: it steers a KL in the reward, and algorithm.kl_coef = 0 leaves none there" },
    { ADAPTIVE_KL, NO_KL,
      "has no effect: it steers a KL in the reward, and algorithm.disable_kl leaves none there" },
    { DYNAMIC_KL, ZERO_KL, "has no effect: algorithm.kl_coef is 0" },
    { NOT_GAE, LAM, "has no effect, because nothing in this run reads it" },
    { ADAPTIVE_KL, PAIRS,
      "has no effect: it steers a KL in the reward, and algorithm.disable_kl leaves none there" },
    { 0, 0, NULL },
};

/* Levels that are refused with every other level. */
const refused_level levels_refused_alone[] = {
    { FILTER, "reward_cap", "there are no caps" },
    { 0, 0, NULL },
};

/* ---------------------------------------------------------------- the program's own lists */
factor factors[FACTORS];

static char text[16000], *text_end; /* texts of levels; each levels_build starts anew */

static const char *keep(const char *format, const char *a)
{
    const char *kept = text_end;
    text_end += snprintf(text_end, (size_t)(text + sizeof text - text_end), format, a) + 1;
    ARES_ASSERT(text_end < text + sizeof text);
    return kept;
}

static void put(int f, const char *name, const char *words, uint64_t tags)
{
    factor *to = &factors[f];
    for (const refused_level *l = levels_refused_alone; l->name; l++)
        if (l->factor == f && strcmp(l->name, name) == 0) tags |= NEVER;
    ARES_ASSERT(to->n < COVERING_LEVELS);
    to->levels[to->n++] = (level){ name, words, tags };
}

static bool among(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0) return true;
    return false;
}
#define AMONG(name, ...) among(name, (const char *const[]){ __VA_ARGS__, NULL })

static uint64_t of_estimator(const ares_adv *a)
{
    uint64_t tags = 0;
    if (a->needs & ARES_NEEDS_GROUPS) tags |= COMPARES;
    if (!(a->needs & ARES_NEEDS_VALUES)) tags |= NO_CRITIC;
    if (a->needs & ARES_NEEDS_BASELINE) tags |= BASELINE;
    if (strcmp(a->name, "grpo") != 0) tags |= NOT_GRPO;
    if (strcmp(a->name, "vapor") != 0) tags |= NO_PAIRS;
    if (!AMONG(a->name, "gae", "bi_level_gae")) tags |= NOT_GAE;
    if (!AMONG(a->name, "gae", "bi_level_gae", "reinforce_plus_plus")) tags |= NOT_DISCOUNTED;
    return tags;
}

/*
 * Options without which an entry would have no effect on a model whose tokens are nearly equally
 * likely.
 */
static const char *words_of_loss(const char *name)
{
    if (strcmp(name, "clip_cov") == 0)
        return "worker.actor.clip_cov_ratio=0.2 worker.actor.clip_cov_lb=0";
    if (strcmp(name, "vapor") == 0) return "algorithm.disable_kl=true vapor.failure_ratio=full";
    return strcmp(name, "kl_cov") == 0 ? "worker.actor.kl_cov_ratio=0.2" : "";
}

/* A loss of pairs goes with one estimator, so that it refuses what that one refuses. */
#define OF_PAIRS (PAIRS | LEARNS_LITTLE | NOT_GRPO | NOT_GAE | NOT_DISCOUNTED | NO_CRITIC)

/* Success is seen in validations. */
static const char *words_of_control(const ares_control *c)
{
    return strcmp(c->name, "low_success") == 0
               ? keep("%s data.val_files=examples/data/sums/val.jsonl trainer.val_freq=1 "
                      "data.val_batch_size=100",
                      c->option)
               : c->option;
}

static uint64_t of_control(const char *name)
{
    if (strcmp(name, "adaptive_kl") == 0) return ADAPTIVE_KL;
    if (strcmp(name, "empty_filter") == 0) return COUNTS_EMPTY;
    return strcmp(name, "aepo") == 0 ? NO_PAIRS : 0;
}

static uint64_t of_filter(const char *name)
{
    uint64_t tags = FILTERS;
    if (strcmp(name, "accuracy_range") == 0) tags |= BY_ACCURACY;
    if (strcmp(name, "informative") == 0) tags |= INFORMATIVE;
    if (strcmp(name, "nonzero_std") == 0) tags |= NONZERO;
    if (strcmp(name, "rv") == 0) tags |= BY_DEVIATION;
    return tags;
}

static void put_kl_estimators(void)
{
    int n;
    const char *const *names = ares_kl_names(&n);
    for (int i = 0; i < n; i++) {
        char name[40];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(names[i], "="), names[i]);
        put(KL_ESTIMATOR, keep("%s", name), keep("algorithm.kl_penalty=%s", name),
            strcmp(name, "full") == 0 ? EXACT_KL : 0);
    }
}

void levels_build(void)
{
    int n;
    memset(factors, 0, sizeof factors);
    text_end = text;
    for (int f = 0; f < FACTORS; f++) {
        factors[f].name = written[f].name;
        for (int i = 0; i < written[f].n; i++)
            put(f, written[f].levels[i].name, written[f].levels[i].words,
                written[f].levels[i].tags);
    }
    const ares_adv *const *advs = adv_list(&n);
    for (int i = 0; i < n; i++)
        put(ESTIMATOR, advs[i]->name, keep("algorithm.adv_estimator=%s", advs[i]->name),
            of_estimator(advs[i]));
    const ares_loss *const *losses = loss_list(&n);
    for (int i = 0; i < n; i++) {
        char words[200];
        snprintf(words, sizeof words, "worker.actor.loss_type=%s %s", losses[i]->name,
                 words_of_loss(losses[i]->name));
        put(LOSS, losses[i]->name, keep("%s", words),
            (losses[i]->flags & ARES_LOSS_BATCH ? OF_MINI_BATCH : 0) |
                (losses[i]->flags & ARES_LOSS_PAIRS ? OF_PAIRS : 0));
    }
    const ares_filter *const *filters = ares_filter_list(&n);
    for (int i = 0; i < n; i++)
        put(FILTER, filters[i]->name, filters[i]->option, of_filter(filters[i]->name));
    const ares_control *const *controls = ares_control_list(&n);
    for (int i = 0; i < n; i++)
        put(CONTROL, controls[i]->name, words_of_control(controls[i]),
            of_control(controls[i]->name));
    put_kl_estimators();
}

const rule *levels_rule(const rule *rules, uint64_t a, uint64_t b)
{
    for (; rules->said; rules++)
        if (((a & rules->a) && (b & rules->b)) || ((b & rules->a) && (a & rules->b))) return rules;
    return NULL;
}

/* ---------------------------------------------------------------- the page */
static void names_with(uint64_t tag, ares_str *out)
{
    int n = 0;
    for (int f = 0; f < FACTORS; f++) {
        ares_str found = { 0 };
        for (int l = 0; l < factors[f].n; l++)
            if (factors[f].levels[l].tags & tag)
                ares_str_addf(&found, "%s`%s`", found.len ? ", " : "", factors[f].levels[l].name);
        if (found.len) ares_str_addf(out, "%s%s %s", n++ ? "; " : "", factors[f].name, found.data);
        ares_str_fini(&found);
    }
}

static void print_pair(const rule *r, ares_str *out)
{
    ares_str_add_z(out, "| ");
    names_with(r->a, out);
    ares_str_add_z(out, " | ");
    names_with(r->b, out);
    ares_str_addf(out, " | %s |\n", r->said);
}

void levels_print(ares_str *out)
{
    levels_build();
    ares_str_add_z(out, "| | levels |\n|---|---|\n");
    for (int f = 0; f < FACTORS; f++) {
        ares_str_addf(out, "| %s | ", factors[f].name);
        for (int l = 0, n = 0; l < factors[f].n; l++)
            if (!(factors[f].levels[l].tags & NEVER))
                ares_str_addf(out, "%s`%s`", n++ ? ", " : "", factors[f].levels[l].name);
        ares_str_add_z(out, " |\n");
    }
    ares_str_add_z(out, "\n| refused | with | what is said |\n|---|---|---|\n");
    for (const refused_level *l = levels_refused_alone; l->name; l++)
        ares_str_addf(out, "| %s `%s` | anything | %s |\n", factors[l->factor].name, l->name,
                      l->said);
    for (const rule *r = levels_refused; r->said; r++) print_pair(r, out);
    ares_str_add_z(out, "\n| has no effect | with | what is said |\n|---|---|---|\n");
    for (const rule *r = levels_without_effect; r->said; r++) print_pair(r, out);
}
