/* All options of training, and what must hold between them. */
#include <stdio.h>
#include <string.h>

#include "agents/agents.h"
#include "aliases.h"
#include "collect/triggers.h"
#include "controls.h"
#include "dapo_words.h"
#include "device.h"
#include "oversampling.h"
#include "pixels.h"
#include "published.h"
#include "roles/mini_batches.h"
#include "sharing.h"
#include "slime_words.h"
#include "unread.h"
#include "vapor/vapor.h"

ARES_OPTION_TABLE(actor_options, ares_actor_config, ARES_ACTOR_OPTIONS);
ARES_OPTION_TABLE(optim_options, ares_optim_config, ARES_OPTIM_OPTIONS);
ARES_OPTION_TABLE(ref_options, ares_ref_config, ARES_REF_OPTIONS);
ARES_OPTION_TABLE(critic_options, ares_critic_config, ARES_CRITIC_OPTIONS);
ARES_OPTION_TABLE(rollout_options, ares_rollout_config, ARES_ROLLOUT_OPTIONS);
ARES_OPTION_TABLE(trainer_options, ares_trainer_config, ARES_TRAINER_OPTIONS);
ARES_OPTION_TABLE(eval_options, ares_eval_config, ARES_EVAL_OPTIONS);
ARES_OPTION_TABLE(gradients_options, ares_gradients_config, ARES_GRADIENTS_OPTIONS);

void ares_train_config_declare(ares_config *cfg, ares_train_config *out)
{
    ares_config_add_options(cfg, "data", ares_data_options, &out->data);
    ares_config_add_options(cfg, "curriculum", ares_curriculum_options, &out->curriculum);
    ares_config_add_options(cfg, "algorithm", ares_algorithm_options, &out->algorithm);
    ares_config_add_options(cfg, "", ares_filter_options, &out->filter);
    ares_config_add_options(cfg, "worker.actor", actor_options, &out->actor);
    ares_config_add_options(cfg, "worker.actor", ares_loss_options, &out->loss);
    ares_config_add_options(cfg, "worker.actor.optim", optim_options, &out->optim);
    ares_config_add_options(cfg, "worker.ref", ref_options, &out->ref);
    ares_config_add_options(cfg, "worker.critic", critic_options, &out->critic);
    ares_config_add_options(cfg, "worker.critic.optim", optim_options, &out->critic_optim);
    ares_config_add_options(cfg, "worker.rollout", rollout_options, &out->rollout);
    ares_config_add_options(cfg, "worker.reward", ares_reward_options, &out->reward);
    ares_config_add_options(cfg, "trainer", trainer_options, &out->trainer);
    ares_config_add_options(cfg, "report.collapse", ares_collapse_options, &out->collapse);
    ares_config_add_options(cfg, "report.gradient_analysis", gradients_options, &out->gradients);
    ares_config_add_options(cfg, "eval", eval_options, &out->eval);
    published_declare(cfg, out);
    agents_declare(cfg, out); /* its translations come first: others read sizes that it sets */
    slime_declare(cfg, out);
    dapo_declare(cfg, out);
    oversampling_declare(cfg, out);
    vapor_declare(cfg, out);
    controls_declare(cfg, out);
    int n;
    const char *const *names = ares_adv_names(&n);
    ares_config_add_choices(cfg, "algorithm.adv_estimator", names, n);
    names = ares_kl_names(&n);
    ares_config_add_choices(cfg, "algorithm.kl_penalty", names, n);
    ares_config_add_choices(cfg, "vapor.kl_penalty_type", names, n);
    names = ares_loss_names(&n);
    ares_config_add_choices(cfg, "worker.actor.loss_type", names, n);
    train_add_aliases(cfg);
}

/*
 * Prompts of a mini-batch are dealt out to ranks evenly. Its rows are where their groups are, and a
 * rank may have none.
 */
static void check_mini_batch(ares_config *cfg, const ares_train_config *c, const char *option,
                             mini_batch_size size, int world)
{
    int64_t prompts = c->data.rollout_batch_size, rows = prompts * c->rollout.n;
    if (size.rows && rows % size.count)
        ares_config_fault(cfg, option,
                          "the %lld rows of a step (data.rollout_batch_size x worker.rollout.n) "
                          "are no multiple of it; mini_batch_unit says that it counts rows",
                          (long long)rows);
    if (size.rows && prompts % world)
        ares_config_fault(cfg, "data.rollout_batch_size",
                          "prompts are dealt out to %d ranks; set a multiple of %d", world, world);
    if (size.rows) return;
    if (prompts % size.count)
        ares_config_fault(cfg, option,
                          "data.rollout_batch_size = %lld is no multiple of it; both count prompts",
                          (long long)prompts);
    if (size.count % world)
        ares_config_fault(cfg, option, "prompts are dealt out to %d ranks; set a multiple of %d",
                          world, world);
}

/* The cache holds one row, and the blocks that it shares with no other at either end. */
static void check_cache(ares_config *cfg, const ares_train_config *c, const char *row,
                        int64_t tokens)
{
    int64_t least = tokens + 2 * ARES_KV_BLOCK;
    if (c->rollout.cache_tokens != ARES_NULL_I64 && c->rollout.cache_tokens < least)
        ares_config_fault(cfg, "worker.rollout.cache_tokens", "one %s tokens needs %lld", row,
                          (long long)least);
}

static void check_sizes(ares_config *cfg, const ares_train_config *c, int world)
{
    int64_t batch = c->data.rollout_batch_size;
    if (batch > INT32_MAX / c->rollout.n) {
        ares_config_fault(cfg, "worker.rollout.n",
                          "a step would have more than %d responses to its %lld prompts "
                          "(data.rollout_batch_size); lower one of them",
                          INT32_MAX, (long long)batch);
        return;
    }
    check_mini_batch(cfg, c, "worker.actor.global_batch_size", mini_batch_size_of_actor(c), world);
    if (c->critic.global_batch_size != ARES_NULL_I64 || c->critic.mini_batch_unit)
        check_mini_batch(cfg, c, "worker.critic.global_batch_size", mini_batch_size_of_critic(c),
                         world);
    int64_t drawn =
        c->data.mini_rollout_batch_size == ARES_NULL_I64 ? batch : c->data.mini_rollout_batch_size;
    if (drawn % world)
        ares_config_fault(cfg, "data.mini_rollout_batch_size",
                          "prompts are dealt out to %d ranks; set a multiple of %d", world, world);
    if (c->rollout.max_model_len != ARES_NULL_I64 && !agents_wanted(c) &&
        c->rollout.max_model_len < c->data.max_prompt_length + c->data.max_response_length)
        ares_config_fault(cfg, "worker.rollout.max_model_len",
                          "data.max_prompt_length + data.max_response_length = %lld do not fit; "
                          "raise it, or set it to null",
                          (long long)(c->data.max_prompt_length + c->data.max_response_length));
    if (!agents_wanted(c))
        check_cache(cfg, c, "sample of data.max_prompt_length + data.max_response_length",
                    c->data.max_prompt_length + c->data.max_response_length);
    else if (c->rollout.max_model_len != ARES_NULL_I64) /* it grows up to the whole context */
        check_cache(cfg, c, "conversation of worker.rollout.max_model_len",
                    c->rollout.max_model_len);
}

/* Rows are copied and dropped one by one, so mini-batches must count them one by one. */
static void check_adjusting(ares_config *cfg, const ares_train_config *c)
{
    static const char option[] = "algorithm.batch_adjust_mode";
    const ares_adv *adv = ares_adv_find(c->algorithm.adv_estimator);
    const char *mode = c->filter.batch_adjust;
    if (c->trainer.val_only || !adv || strcmp(mode, "none") == 0) return;
    mini_batch_size mini = mini_batch_size_of_actor(c);
    int64_t rows = c->data.rollout_batch_size * c->rollout.n;
    /* RAGEN's check; a share of the mass of deviations is about that share of the groups */
    if (mini.rows && strcmp(mode, "copy") == 0 && strcmp(c->filter.rv_strategy, "top_p") == 0 &&
        c->filter.rv_value * (double)rows < (double)mini.count)
        ares_config_fault(cfg, "worker.rollout.rollout_filter_value",
                          "that share of the step's %lld rows is less than a mini-batch, whose "
                          "rows would be copies; set %.3g or more, or lower "
                          "worker.actor.global_batch_size, now %lld",
                          (long long)rows, (double)mini.count / (double)rows,
                          (long long)mini.count);
    if (!mini.rows)
        ares_config_fault(cfg, option,
                          "%s makes whole mini-batches of rows, and these count prompts; set "
                          "worker.actor.mini_batch_unit to rows",
                          mode);
    else if ((adv->needs & ARES_NEEDS_VALUES) && !mini_batch_size_of_critic(c).rows)
        ares_config_fault(cfg, option,
                          "%s makes whole mini-batches of rows, and the critic's count prompts; "
                          "set worker.critic.mini_batch_unit to rows",
                          mode);
    if (strcmp(mode, "delete") == 0 && (adv->needs & ARES_NEEDS_GROUPS))
        ares_config_fault(cfg, option,
                          "delete may leave a single answer to a prompt, and %s compares them; "
                          "set copy",
                          adv->name);
}

/* An option that counts per micro-batch needs the number of samples in one. */
static void check_micro_batches(ares_config *cfg, const ares_train_config *c)
{
    const char *by = strcmp(c->loss.loss_norm, "micro") == 0 ? "worker.actor.loss_norm" : NULL;
    if (!by && !ares_is_null_f64(c->loss.early_stop_imp_ratio) &&
        strcmp(c->loss.early_stop_scope, "micro") == 0)
        by = "worker.actor.early_stop_scope";
    if (by && c->actor.micro_batch_size == ARES_NULL_I64)
        ares_config_fault(
            cfg, by,
            "counts per micro-batch, and nothing says how many samples one has; set "
            "worker.actor.micro_batch_size_per_device_for_update, or take the default");
}

static void loss_complaint(void *ctx, char severity, const char *option, const char *message)
{
    if (severity == 'e') ares_config_fault(ctx, option, "%s", message);
    else ares_log(ARES_LOG_WARN, "config: %s: %s", option, message);
}

/*
 * A greedy answer is judged like the sampled ones, penalties of length included, but no control
 * counts its HWE tokens. Its score would lack what shaping adds to the scores of the sampled
 * answers, also of wrong ones, and those would be reinforced wherever the greedy answer is wrong.
 */
static void check_baseline(ares_config *cfg, const ares_train_config *c, const ares_reward *reward)
{
    const ares_adv *adv = ares_adv_find(c->algorithm.adv_estimator);
    if (!c->trainer.val_only && adv && (adv->needs & ARES_NEEDS_BASELINE) &&
        ares_reward_shapes(reward))
        ares_config_fault(
            cfg, "algorithm.adv_estimator",
            "compares answers with a greedy one, whose score the reward 'aepo' does not shape as "
            "it shapes theirs; set grpo or rloo, or take a reward that is not shaped, such as "
            "math");
}

/*
 * Penalties of length that do not do what they are for, and answers that are discarded
 * (docs/dapo.md#penalty-of-length).
 */
static void check_lengths(ares_config *cfg, const ares_train_config *c, const ares_reward *reward)
{
    static const char action[] = "algorithm.over_length_action";
    int64_t limit = ares_reward_max_length(reward), longest = c->data.max_response_length,
            safe = c->reward.safe_length;
    double right, wrong, penalty;
    bool keep = strcmp(c->filter.over_length_action, "keep") == 0;
    if (limit != ARES_NULL_I64 && longest > limit && !keep)
        ares_log(
            ARES_LOG_WARN,
            "config: the rewards' limit of length is %lld tokens: data.max_response_length = %lld "
            "allows longer answers, from which nothing is learnt",
            (long long)limit, (long long)longest);
    if (ares_config_given(cfg, action) && limit == ARES_NULL_I64)
        ares_log(ARES_LOG_WARN,
                 "config: %s = '%s': has no effect, because nothing says when an answer is too "
                 "long; set worker.reward.max_length",
                 action, c->filter.over_length_action);
    bool worth = ares_reward_worth(reward, &right, &wrong, &penalty);
    if (penalty > 0 && safe != ARES_NULL_I64 && safe >= longest)
        ares_log(
            ARES_LOG_WARN,
            "config: worker.reward.safe_length = %lld: no answer of training is longer, because "
            "data.max_response_length = %lld ends it, and nothing is taken off for length; "
            "set safe_length and max_length for the lengths of this run",
            (long long)safe, (long long)longest);
    else if (worth && right > wrong && penalty >= right - wrong)
        ares_log(ARES_LOG_WARN,
                 "config: the full penalty of length is %g, and a right answer earns %g, a wrong "
                 "one %g: a right answer of full length scores no more than a short wrong one; "
                 "lower the penalty, or set worker.reward.correct and incorrect (DAPO: 1 and -1)",
                 penalty, right, wrong);
}

/* A right answer must earn more than a wrong one, where the options say what both earn. */
static void check_worth(ares_config *cfg, const ares_reward_config *r)
{
    static const char *const paths[] = { "worker.reward.scale", "worker.reward.correct",
                                         "worker.reward.incorrect" };
    const double given[] = { r->scale, r->correct, r->incorrect };
    double right = ares_is_null_f64(r->correct) ? 1 : r->correct,
           wrong = ares_is_null_f64(r->incorrect) ? -1 : r->incorrect,
           scale = ares_is_null_f64(r->scale) ? 1 : r->scale;
    if (right * scale > wrong * scale) return;
    for (int i = 0; i < ARES_COUNT(paths); i++) {
        if (ares_is_null_f64(given[i]) || (i == 0 && scale > 0)) continue;
        ares_config_fault(cfg, paths[i],
                          "a right answer would earn %g and a wrong one %g; let correct x scale "
                          "be more than incorrect x scale",
                          right * scale + 0, wrong * scale + 0); /* never -0 */
        return;
    }
}

/* In the steps of critic_warmup only the critic learns: without a critic nothing would. */
static void check_warmup(ares_config *cfg, const ares_train_config *c)
{
    const ares_adv *adv = ares_adv_find(c->algorithm.adv_estimator);
    if (c->trainer.val_only || !adv || (adv->needs & ARES_NEEDS_VALUES) ||
        c->trainer.critic_warmup == 0)
        return;
    ares_config_fault(cfg, "trainer.critic_warmup",
                      "%s has no critic, so that nothing would learn in these steps; set 0, or "
                      "algorithm.adv_estimator to gae",
                      adv->name);
}

static void check_diagnostics(ares_config *cfg, const ares_train_config *c)
{
    if (c->gradients.only && c->gradients.every == 0)
        ares_config_fault(cfg, "report.gradient_analysis.only",
                          "nothing would be trained and nothing measured; set "
                          "report.gradient_analysis.every as well");
    if (c->collapse.freq > 0 && !c->collapse.first_turn && !c->collapse.multi_turn)
        ares_config_fault(cfg, "report.collapse.freq",
                          "nothing is drawn: report.collapse.first_turn and "
                          "report.collapse.multi_turn are false; set one of them to true, or this "
                          "to 0");
}

/* Both options weigh by exp(old - rollout log-prob). */
static void check_corrections(ares_config *cfg, const ares_train_config *c)
{
    if (c->algorithm.importance_sampling_fix && strcmp(c->loss.rollout_is, "none") != 0)
        ares_config_fault(
            cfg, "algorithm.importance_sampling_fix",
            "corrects the same difference of rollout and trainer as worker.actor.rollout_is = "
            "'%s'; set one of them only",
            c->loss.rollout_is);
}

/*
 * There is one KL with one coefficient, in the loss or in the reward. own_kl: the loss has a KL of
 * its own, and says itself what does not go with it.
 */
static void check_kl(ares_config *cfg, const ares_algorithm_config *a, bool own_kl)
{
    static const char beta[] = "algorithm.kl_beta";
    bool in_reward = a->use_kl_in_reward && strcmp(a->use_kl_in_reward, "true") == 0;
    const char *type = ares_config_get_text(cfg, "algorithm.kl_type");
    const char *written = ares_config_written(cfg, "algorithm.kl_coef");
    bool weighs = a->kl_coef > 0 || ares_config_scheduled(cfg, "algorithm.kl_coef");
    if (a->disable_kl && weighs && (a->use_kl_loss || in_reward) && !own_kl)
        ares_log(ARES_LOG_WARN,
                 "config: %s = true: algorithm.disable_kl = true wins: there is no KL and no "
                 "reference model",
                 a->use_kl_loss ? "algorithm.use_kl_loss" : "algorithm.use_kl_in_reward");
    if (type && strcmp(type, "adaptive") == 0 && ares_kl_acts(a) != ARES_KL_IN_REWARD)
        ares_log(ARES_LOG_WARN,
                 "config: algorithm.kl_type = adaptive: has no effect: it steers a KL in the "
                 "reward, and %s "
                 "leaves none there",
                 a->disable_kl     ? "algorithm.disable_kl"
                 : a->kl_coef == 0 ? "algorithm.kl_coef = 0"
                 : a->use_kl_loss  ? "algorithm.use_kl_loss"
                                   : "algorithm.use_kl_in_reward = false");
    if (a->disable_kl) return;
    if (ares_config_scheduled(cfg, "algorithm.kl_coef") && a->kl_coef == 0)
        ares_config_fault(
            cfg, "algorithm.kl_coef",
            "is 0 at step 0, and 0 switches the KL off: no reference model is opened; "
            "begin above 0");
    if (ares_config_scheduled(cfg, "algorithm.kl_coef") && type && strcmp(type, "adaptive") == 0)
        ares_config_fault(
            cfg, "algorithm.kl_coef",
            "a schedule and algorithm.kl_type = adaptive cannot both move it; keep one");
    if (a->use_kl_loss && in_reward)
        ares_config_fault(cfg, "algorithm.use_kl_in_reward",
                          "algorithm.use_kl_loss makes the KL a term of the loss, and it acts in "
                          "one place only; set one of them to false");
    if (!a->use_kl_loss && a->kl_coef > 0 && written && strcmp(written, beta) == 0)
        ares_config_fault(cfg, "algorithm.use_kl_loss",
                          "%s = %g is the weight of a term of the loss; leave this option out, or "
                          "set algorithm.kl_coef instead",
                          beta, a->kl_coef);
}

static void check_curriculum(ares_config *cfg, const ares_train_config *c)
{
    static const char filter[] = "algorithm.dynamic_sampling_filter";
    ares_curriculum curriculum;
    bool filtered = strcmp(c->filter.dynamic_sampling, "reward_cap") == 0,
         capped = c->curriculum.reward_caps->type != ARES_JSON_NULL;
    int64_t steps = c->trainer.max_steps == ARES_NULL_I64 ? 1 : c->trainer.max_steps;
    ares_curriculum_read(cfg, &c->curriculum, &c->data.train_files, steps, c->trainer.force,
                         &curriculum);
    if (curriculum.caps_left_out)
        ares_log(ARES_LOG_WARN, "config: curriculum.reward_caps: not one for each of "
                                "data.train_files, so no data set has a cap");
    if (filtered && !capped)
        ares_config_fault(cfg, filter,
                          "there are no caps; set curriculum.reward_caps, or choose nonzero_std");
    if (capped && !filtered)
        ares_config_fault(cfg, "curriculum.reward_caps",
                          "nothing applies them; set %s to reward_cap", filter);
    if (curriculum.n && agents_wanted(c))
        ares_config_fault(cfg, "curriculum.names",
                          "a curriculum is of data sets, and this run acts in environments");
}

static void check_validation(ares_config *cfg, const ares_train_config *c)
{
    ares_sampling sampling;
    int64_t n;
    validation_sampling(cfg, c, &sampling, &n);
    if (c->data.val_files.count && sampling.max_new_tokens > c->data.max_response_length &&
        c->rollout.max_model_len != ARES_NULL_I64 &&
        c->data.max_prompt_length + sampling.max_new_tokens > c->rollout.max_model_len)
        ares_config_fault(cfg, "worker.rollout.val_override_config",
                          "max_new_tokens = %d and data.max_prompt_length = %lld do not fit in "
                          "worker.rollout.max_model_len = %lld; raise that, or lower one of them",
                          sampling.max_new_tokens, (long long)c->data.max_prompt_length,
                          (long long)c->rollout.max_model_len);
}

static void check_room(ares_config *cfg, const char *option, const char *what, int64_t tokens,
                       const char *model, int64_t positions)
{
    if (tokens > positions)
        ares_config_fault(cfg, option,
                          "%s take %lld tokens, and the model has %lld positions "
                          "(" PUBLISHED_POSITIONS " of %s/config.json): answers would end early; "
                          "lower it, or set worker.actor.model.override_config." PUBLISHED_POSITIONS
                          "=%lld if the model can read so much",
                          what, (long long)tokens, (long long)positions, model, (long long)tokens);
}

/* Sequences that the options allow and the model has no positions for. */
static void check_positions(ares_config *cfg, const ares_train_config *c, const eval_sets *evals)
{
    ares_str dir = { 0 };
    ares_model_config m;
    int64_t prompt = c->data.max_prompt_length, most = c->rollout.max_model_len, n;
    ares_sampling sampling;
    bool known = c->actor.model_path && ares_model_find(c->actor.model_path, &dir) == ARES_OK &&
                 ares_model_config_load(dir.data, &m) == ARES_OK &&
                 training_set_positions(&m, c->published.actor_override) == ARES_OK;
    ares_error_clear(); /* a fault of the model is told where it is loaded */
    if (known && most != ARES_NULL_I64)
        check_room(cfg, "worker.rollout.max_model_len", "prompt and response", most, dir.data,
                   m.max_position);
    else if (known && agents_wanted(c)) {
        char row[160];
        int64_t turns = agents_turns_shown(c),
                tokens = turns * (prompt + c->data.max_response_length);
        tokens = ARES_MIN(tokens, m.max_position);
        snprintf(row, sizeof row,
                 "conversation of %lld turns (worker.rollout.max_model_len: null) of %lld",
                 (long long)turns, (long long)tokens);
        check_cache(cfg, c, row, tokens);
    } else if (known) {
        validation_sampling(cfg, c, &sampling, &n);
        if (!c->trainer.val_only)
            check_room(cfg, "data.max_response_length", "data.max_prompt_length and it",
                       prompt + c->data.max_response_length, dir.data, m.max_position);
        if (c->data.val_files.count &&
            (c->trainer.val_only || sampling.max_new_tokens > c->data.max_response_length))
            check_room(cfg, "worker.rollout.val_override_config",
                       "data.max_prompt_length and max_new_tokens",
                       prompt + sampling.max_new_tokens, dir.data, m.max_position);
        for (int64_t i = 0; i < evals->n; i++)
            if (c->trainer.val_only ||
                evals->items[i].sampling.max_new_tokens > c->data.max_response_length)
                check_room(cfg, "eval.datasets", "data.max_prompt_length and max_response_len",
                           prompt + evals->items[i].sampling.max_new_tokens, dir.data,
                           m.max_position);
    }
    if (known && vapor_wanted(c))
        check_room(cfg, "vapor.max_pair_length", "prompt and stored answer",
                   c->vapor.max_pair_length, dir.data, m.max_position);
    ares_str_fini(&dir);
}

static bool stored_in_bf16(const char *dtype)
{
    return dtype && strcmp(dtype, "bf16") == 0;
}

/* Where activations are bf16, every model must be stored so: products take one type. */
static void check_storage(ares_config *cfg, const ares_train_config *c)
{
    static const char text[] = "worker.actor.fsdp.torch_dtype=bf16 makes this device compute in "
                               "bf16, and its products take one type; set bf16 here too";
    bool cpu = strncmp(c->trainer.device, "cpu", 3) == 0;
    const ares_adv *adv = ares_adv_find(c->algorithm.adv_estimator);
    if (!stored_in_bf16(c->actor.dtype) || (cpu && strcmp(c->trainer.kernels, "aten") != 0)) return;
    if (trainer_needs_reference(c) && c->ref.dtype && !stored_in_bf16(c->ref.dtype))
        ares_config_fault(cfg, "worker.ref.fsdp.torch_dtype", "%s", text);
    if (adv && (adv->needs & ARES_NEEDS_VALUES) && !stored_in_bf16(c->critic.dtype))
        ares_config_fault(cfg, "worker.critic.fsdp.torch_dtype", "%s", text);
}

int ares_train_config_check(ares_config *cfg, const ares_train_config *c, int world)
{
    if (!c->trainer.val_only && !c->data.train_files.count && !c->agents_train.tags.count)
        ares_config_fault(cfg, "data.train_files",
                          "no training rows; name a JSONL file, environments in env.train.tags, "
                          "or set trainer.val_only=true");
    if ((c->trainer.val_only || c->trainer.val_freq > 0) && !c->data.val_files.count &&
        !c->eval.datasets->count && !c->agents_val.tags.count)
        ares_config_fault(
            cfg, "data.val_files",
            "validation is asked for and has no rows; name a JSONL file, data sets in "
            "eval.datasets, environments in env.val.tags%s",
            c->trainer.val_only ? "" : ", or set trainer.val_freq=-1");
    if (!c->trainer.val_only) ares_adv_check(cfg, &c->algorithm, c->rollout.n);
    if (c->rollout.temperature == 0 && !c->trainer.val_only)
        ares_config_fault(cfg, "worker.rollout.temperature",
                          "greedy samples of a prompt are all the same; set a temperature above 0 "
                          "(val_override_config may be greedy)");
    ares_loss_check(&c->loss, loss_complaint, cfg);
    check_kl(cfg, &c->algorithm, vapor_wanted(c));
    check_warmup(cfg, c);
    check_corrections(cfg, c);
    check_diagnostics(cfg, c);
    device_check(cfg, &c->trainer);
    if (!c->trainer.val_only) check_curriculum(cfg, c);
    slime_check(cfg, c);
    check_sizes(cfg, c, world);
    pixels_check(cfg, &c->data);
    check_adjusting(cfg, c);
    check_micro_batches(cfg, c);
    if (strcmp(c->filter.resample_mode, "same_prompt") == 0 &&
        c->data.mini_rollout_batch_size != ARES_NULL_I64 && c->data.mini_rollout_batch_size != 0)
        ares_config_fault(
            cfg, "data.mini_rollout_batch_size",
            "algorithm.dynamic_sampling.mode: same_prompt draws the whole batch once; set null");
    device_check_parallel(cfg, c, world);
    published_check(cfg, c, world);
    sharing_check(cfg, c, world);
    triggers_check(cfg, &c->rollout);
    check_validation(cfg, c);
    check_storage(cfg, c);
    eval_sets evals;
    eval_sets_read(cfg, c, &evals);
    if (evals.n && agents_wanted(c))
        ares_config_fault(cfg, "eval.datasets",
                          "this run acts in environments; set env.val.tags instead");
    check_positions(cfg, c, &evals);
    agents_check(cfg, c);
    oversampling_check(cfg, c);
    vapor_check(cfg, c);
    check_worth(cfg, &c->reward);
    ares_reward *reward = NULL; /* environments score their episodes */
    if (!agents_wanted(c) && ares_reward_open(cfg, &c->reward, NULL, &reward) == ARES_OK) {
        check_lengths(cfg, c, reward);
        check_baseline(cfg, c, reward);
        if (vapor_wanted(c) && ares_reward_shapes(reward))
            ares_config_fault(
                cfg, "worker.reward.rewards",
                "the reward 'aepo' is shaped by the entropies of whole responses, and "
                "worker.actor.loss_type = 'vapor' judges a part of them; leave it out");
    }
    const ares_filter_run run = {
        .n = c->rollout.n, .judges = c->trainer.val_only || !reward || ares_reward_judges(reward)
    };
    ares_filter_check(cfg, &c->filter, &run);
    controls_check(cfg, c, reward);
    unread_tell(cfg, c, reward);
    ares_reward_close(reward);
    return ares_config_finish(cfg);
}
