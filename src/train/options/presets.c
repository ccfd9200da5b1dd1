/*
 * Options that other programs use, translated into ours or checked. In order: DAPO as verl and
 * RLinf write it; slime's curriculum; options of EasyR1 and ARES that have no effect here or are
 * refused.
 */
#include "options.h"
#include "plan/plan.h"
#include "trainer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * DAPO (arXiv 2503.14476) as RLinf and verl spell it: the preset algorithm.name: dapo, and words
 * from which other options follow. They are translated into the options that they stand for after
 * all files and words are read, so that the resolved configuration shows their effect. Of two
 * spellings the one in the later layer counts; in one file, or on one command line, they must
 * agree.
 */

#define ENTROPY "worker.actor.entropy_coeff"
#define MINI_BATCH "worker.actor.global_batch_size"
#define N_MINI_BATCHES "algorithm.n_minibatches"
#define RESAMPLE "algorithm.max_resample"
#define TRIES "trainer.max_try_make_batch"
#define LOSS "worker.actor.loss_type"
#define BUFFER "worker.reward.overlong_buffer."
#define LENGTHS "worker.reward."

static ARES_OPTION_TABLE(dapo_options, ares_dapo_config, ARES_DAPO_OPTIONS);

/*
 * Values before they are bound. A text that is no number is left as it is; binding it reports the
 * fault.
 */

/* false: no text, or none of a whole number */
static bool read_whole(const char *text, int64_t *out)
{
    char *end;
    if (!text || !*text) return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return !*end && !errno;
}

static double read_number(const char *text) /* NaN: none */
{
    char *end;
    double x = text ? strtod(text, &end) : NAN;
    return text && *text && !*end ? x : NAN;
}

static bool is_true(const char *text)
{
    return text && strcmp(text, "true") == 0;
}
static bool is_false(const char *text)
{
    return text && strcmp(text, "false") == 0;
}

static void follow_whole(ares_config *cfg, const char *path, int64_t value, const char *from)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    ares_config_follow(cfg, path, text, from);
}

/* ---------------- options that follow from one word */
/* RLinf's entropy bonus acts only while algorithm.calculate_entropy is true. */
static void entropy(ares_config *cfg)
{
    const char *bonus = ares_config_given(cfg, ENTROPY),
               *calculate = ares_config_given(cfg, "algorithm.calculate_entropy");
    bool off = calculate ? is_false(calculate)
                         : strcmp(ares_config_word(cfg, ENTROPY), "algorithm.entropy_bonus") == 0;
    double weight = read_number(bonus);
    if (!off || isnan(weight) || weight == 0) return;
    ares_log(ARES_LOG_WARN,
             "config: %s = %s: has no effect while algorithm.calculate_entropy is %s; set that to "
             "true for "
             "an entropy bonus",
             ares_config_word(cfg, ENTROPY), bonus,
             calculate ? "false" : "not set, which in RLinf means false");
    ares_config_follow(cfg, ENTROPY, "0.0", ENTROPY);
}

/* RLinf's number of mini-batches, from which their size follows. */
static void translate_mini_batches(ares_config *cfg)
{
    int64_t n, mini, batch;
    const char *rows = ares_config_given(cfg, "data.rollout_batch_size");
    if (!rows) rows = ares_config_get_text(cfg, "data.rollout_batch_size");
    if (!read_whole(ares_config_given(cfg, N_MINI_BATCHES), &n) || n < 1 ||
        !read_whole(rows, &batch))
        return;
    const char *unit = ares_config_given(cfg, "worker.actor.mini_batch_unit");
    if (unit && strcmp(unit, "rows") == 0)
        ares_config_fault(cfg, N_MINI_BATCHES,
                          "makes mini-batches of prompts, and "
                          "worker.actor.mini_batch_unit is rows; set %s instead",
                          MINI_BATCH);
    bool both = read_whole(ares_config_given(cfg, MINI_BATCH), &mini);
    if (both && ares_config_later(cfg, MINI_BATCH, N_MINI_BATCHES)) {
        ares_config_forget(cfg, N_MINI_BATCHES);
        return;
    }
    if (batch % n)
        ares_config_fault(cfg, N_MINI_BATCHES,
                          "does not divide data.rollout_batch_size = %lld, which counts prompts",
                          (long long)batch);
    else if (both && ares_config_together(cfg, MINI_BATCH, N_MINI_BATCHES) && mini != batch / n)
        ares_config_fault(
            cfg, N_MINI_BATCHES,
            "makes mini-batches of %lld prompts, and %s = %lld says otherwise; keep one of them",
            (long long)(batch / n), ares_config_word(cfg, MINI_BATCH), (long long)mini);
    else {
        follow_whole(cfg, MINI_BATCH, batch / n, N_MINI_BATCHES);
        ares_config_forget(cfg, N_MINI_BATCHES);
    }
}

/*
 * The limit of draws of a step: max_resample counts the draws after the first, max_try_make_batch
 * (verl's max_num_gen_batches) counts all. A limit asks for a filter, so dynamic sampling is
 * switched on unless another filter is.
 */
static void resampling(ares_config *cfg)
{
    int64_t n = 0, tries = 0;
    bool resample = read_whole(ares_config_given(cfg, RESAMPLE), &n),
         limit = read_whole(ares_config_given(cfg, TRIES), &tries);
    if (!resample) return;
    if (limit && ares_config_later(cfg, TRIES, RESAMPLE))
        follow_whole(cfg, RESAMPLE, n = tries > 0 ? tries - 1 : -1, TRIES);
    else if (limit && ares_config_together(cfg, TRIES, RESAMPLE) &&
             (tries > 0 ? n != tries - 1 : n >= 0))
        ares_config_fault(
            cfg, RESAMPLE,
            "is the limit of draws, less the first, and %s = %lld is another; keep one of them",
            ares_config_word(cfg, TRIES), (long long)tries);
    if (n < INT64_MAX) follow_whole(cfg, TRIES, n < 0 ? 0 : n + 1, RESAMPLE);
    const char *kind = ares_config_given(cfg, "algorithm.dynamic_sampling_filter"),
               *by = ares_config_given(cfg, "worker.rollout.rollout_filter_strategy"),
               *share = ares_config_given(cfg, "worker.rollout.rollout_filter_value");
    bool filtered =
        is_true(ares_config_given(cfg, "algorithm.online_filtering")) ||
        (kind && strcmp(kind, "none") != 0) || (share && read_number(share) != 1) ||
        is_false(ares_config_given(cfg, "worker.rollout.rollout_filter_include_zero")) ||
        (by && strcmp(by, "none") != 0 && strcmp(by, "top_p") != 0);
    if (!filtered && ares_config_preset(cfg, "algorithm.filter_groups.enable", "true", RESAMPLE))
        ares_log(ARES_LOG_INFO,
                 "config: %s -> algorithm.filter_groups.enable=true (dynamic sampling)",
                 ares_config_word(cfg, RESAMPLE));
}

/* ---------------------------------------------------------------- overlong_buffer */
static const char *const buffer_keys[] = { BUFFER "enable", BUFFER "len", BUFFER "penalty_factor",
                                           BUFFER "max_resp_len" };
static const char *const length_keys[] = { LENGTHS "safe_length", LENGTHS "max_length",
                                           LENGTHS "len_reward_penalty" };

/* DAPO's penalty of length: it grows over the last `len` tokens of the longest answer. */
static void overlong_buffer(ares_config *cfg)
{
    int64_t buffer, longest;
    const char *enable = ares_config_given(cfg, BUFFER "enable"),
               *end = ares_config_given(cfg, BUFFER "max_resp_len");
    bool any = false;
    if (!end) end = ares_config_given(cfg, "data.max_response_length");
    if (!end) end = ares_config_get_text(cfg, "data.max_response_length");
    for (int i = 1; i < ARES_COUNT(buffer_keys); i++)
        any = any || ares_config_given(cfg, buffer_keys[i]);
    if (!enable && any)
        ares_config_fault(
            cfg, BUFFER "enable",
            "is not set, and without it the other keys of overlong_buffer have no effect; set "
            "it to true or false");
    if (enable && !is_true(enable) && !is_false(enable)) return;
    if (is_true(enable)) {
        for (int i = 0; i < ARES_COUNT(length_keys); i++) {
            if (!ares_config_given(cfg, length_keys[i])) continue;
            ares_config_fault(cfg, BUFFER "enable", "%s spells the same penalty; keep one spelling",
                              ares_config_word(cfg, length_keys[i]));
            return;
        }
        if (!ares_config_given(cfg, BUFFER "len")) {
            ares_config_fault(
                cfg, BUFFER "len",
                "is not set; name the tokens before the longest answer in which the penalty grows");
            return;
        }
        if (!read_whole(ares_config_given(cfg, BUFFER "len"), &buffer) ||
            !read_whole(end, &longest))
            return;
        if (buffer < 1 || buffer > longest) {
            ares_config_fault(cfg, BUFFER "len",
                              "must lie in 1 .. %lld, the tokens of the longest answer",
                              (long long)longest);
            return;
        }
        const char *factor = ares_config_given(cfg, BUFFER "penalty_factor");
        follow_whole(cfg, LENGTHS "safe_length", longest - buffer, BUFFER "len");
        follow_whole(cfg, LENGTHS "max_length", longest, BUFFER "len");
        ares_config_follow(cfg, LENGTHS "len_reward_penalty", factor ? factor : "1.0",
                           factor ? BUFFER "penalty_factor" : BUFFER "len");
    }
    for (int i = 0; i < ARES_COUNT(buffer_keys); i++) ares_config_forget(cfg, buffer_keys[i]);
}

/* ---------------------------------------------------------------- algorithm.name: dapo */
/* Whether a reward of the configuration penalises length by itself. */
static bool rewards_length(ares_config *cfg)
{
    static const char *const names[] = { "length", "overlong", "dapo_overlong" };
    const char *function = ares_config_given(cfg, LENGTHS "reward_function");
    char path[64];
    if (function && strstr(function, "dapo")) return true;
    for (int i = 0; i < 64; i++) {
        (void)snprintf(path, sizeof path, LENGTHS "rewards.%d.name", i);
        const char *name = ares_config_get_text(cfg, path);
        for (int k = 0; name && k < ARES_COUNT(names); k++)
            if (strcmp(name, names[k]) == 0) return true;
    }
    return false;
}

/* A value of the preset. done, kept: lists for the log of options set and of options set before. */
static void preset(ares_config *cfg, const char *path, const char *value, ares_str *done,
                   ares_str *kept)
{
    ares_str *s = ares_config_preset(cfg, path, value, "algorithm.name: dapo") ? done : kept;
    ares_str_addf(s, "%s%s", s->len ? ", " : "", path);
    if (s == done) ares_str_addf(s, "=%s", value);
}

/* penalty: false where overlong_buffer switches the penalty of length off */
static void dapo(ares_config *cfg, bool penalty)
{
    static const char *const values[][2] = {
        { "algorithm.adv_estimator", "grpo" },
        { LOSS, "dapo" },
        { "worker.actor.loss_avg_mode", "token-mean" },
        { "worker.actor.loss_norm", "global" },
        { "worker.rollout.n", "16" },
        { "worker.actor.clip_ratio_low", "0.2" },
        { "worker.actor.clip_ratio_high", "0.28" },
        { "algorithm.normalize_advantages", "true" },
        { "worker.actor.early_stop_imp_ratio", "5.0" },
        { "algorithm.kl_coef", "0.0" },
        { "algorithm.filter_groups.enable", "true" },
        { "algorithm.on_exhausted", "fill_masked" },
        { "worker.actor.shuffle", "true" },
        { "worker.actor.recompute_log_probs", "true" },
        { LENGTHS "correct", "1.0" },
        { LENGTHS "incorrect", "-1.0" },
        { LENGTHS "scale", "1.0" },
    };
    static const char *const lengths[][2] = { { LENGTHS "safe_length", "16384" },
                                              { LENGTHS "max_length", "20480" },
                                              { LENGTHS "len_reward_penalty", "0.1" } };
    const char *name = ares_config_given(cfg, "algorithm.name"),
               *batch = ares_config_given(cfg, "data.rollout_batch_size");
    double kl = read_number(ares_config_given(cfg, "algorithm.kl_coef"));
    ares_str done = { 0 }, kept = { 0 };
    if (!name || strcmp(name, "dapo") != 0) return;
    for (int i = 0; i < ARES_COUNT(values); i++)
        preset(cfg, values[i][0], values[i][1], &done, &kept);
    bool acts = ares_config_given(cfg, "env.train.tags") || /* environments score their episodes */
                ares_config_given(cfg, "env.train.tags.0");
    penalty = penalty && !acts && !rewards_length(cfg);
    for (int i = 0; i < ARES_COUNT(lengths) && penalty; i++)
        preset(cfg, lengths[i][0], lengths[i][1], &done, &kept);
    if (kl > 0) /* DAPO's KL is a term of the loss */
        preset(cfg, "algorithm.use_kl_loss", "true", &done, &kept);
    if (!ares_config_given(cfg, TRIES)) {
        preset(cfg, RESAMPLE, "5", &done, &kept);
        if (!ares_config_is_set(cfg, RESAMPLE))
            ares_config_preset(cfg, TRIES, "6", "algorithm.name: dapo");
    }
    /* one mini-batch: the prompts of a batch, or their rows where mini-batches count rows */
    char rows[32];
    int64_t prompts, n;
    const char *unit = ares_config_given(cfg, "worker.actor.mini_batch_unit"),
               *samples = ares_config_given(cfg, "worker.rollout.n");
    if (!batch) batch = ares_config_get_text(cfg, "data.rollout_batch_size");
    if (!samples) samples = ares_config_get_text(cfg, "worker.rollout.n");
    if (unit && strcmp(unit, "rows") == 0 && read_whole(batch, &prompts) &&
        read_whole(samples, &n) && n > 0 && prompts > 0 && prompts <= INT64_MAX / n) {
        (void)snprintf(rows, sizeof rows, "%lld", (long long)(prompts * n));
        batch = rows;
    }
    preset(cfg, MINI_BATCH, batch, &done, &kept);
    if (done.len)
        ares_log(ARES_LOG_INFO, "config: algorithm.name: dapo -> %s%s%s", done.data,
                 kept.len ? "; set otherwise: " : "", kept.len ? kept.data : "");
    ares_str_fini(&done);
    ares_str_fini(&kept);
}

static void translate_dapo(ares_config *cfg)
{
    /* asked now: overlong_buffer forgets the word */
    bool penalty = !is_false(ares_config_given(cfg, BUFFER "enable"));
    entropy(cfg);
    translate_mini_batches(cfg);
    /* RLinf's section has one loss, which it calls actor or ppo */
    const char *loss = ares_config_given(cfg, LOSS);
    if (loss && strcmp(loss, "ppo") == 0 &&
        strcmp(ares_config_word(cfg, LOSS), "algorithm.loss_type") == 0)
        ares_config_follow(cfg, LOSS, "dapo", LOSS);
    overlong_buffer(cfg);
    resampling(cfg);
    dapo(cfg, penalty);
}

/*
 * Words of slime's curriculum from which other options follow (docs/curriculum.md#slimes-files). Of
 * a path to one of its functions the last part counts; no code is loaded.
 */

#define SAMPLES "worker.actor.global_batch_samples"
#define REWARDS "worker.reward.rewards"

static ARES_OPTION_TABLE(slime_options, ares_slime_config, ARES_SLIME_OPTIONS);

/* The option's value; 0: not given, or no whole number, for which binding it reports the fault */
static long long whole(ares_config *cfg, const char *path)
{
    const char *text = ares_config_given(cfg, path);
    return text ? strtoll(text, NULL, 10) : 0;
}

/* slime's --eval-prompt-data, a list of names and files by turns, as eval.datasets. */
static void translate_eval_sets(ares_config *cfg)
{
    static const char word[] = "x-slime.eval_prompt_data";
    ares_str sets = { 0 };
    char path[64];
    /* slime takes a file without a name for rows of aime */
    const char *alone = ares_config_given(cfg, word), *name;
    if (!ares_config_given(cfg, "x-slime.eval_prompt_data.1") && !alone)
        alone = ares_config_given(cfg, "x-slime.eval_prompt_data.0");
    const char *const pair[] = { "aime", alone, NULL };
    int i = 0;
    for (; snprintf(path, sizeof path, "%s.%d", word, i),
           (name = alone ? pair[i] : ares_config_given(cfg, path));
         i++) {
        bool quoted = strpbrk(name, "'\n") != NULL;
        if (quoted) ares_config_fault(cfg, word, "names and files have no quotes here");
        ares_str_addf(&sets, i % 2 ? ", path: '%s'}" : i ? ", {name: '%s'" : "[{name: '%s'", name);
    }
    if (i % 2) ares_config_fault(cfg, word, "is a name and a file each, as in [aime, aime.jsonl]");
    else if (i) {
        ares_str_add_z(&sets, "]");
        ares_config_follow(cfg, "eval.datasets", sets.data, word);
    }
    ares_str_fini(&sets);
}

static void translate_slime(ares_config *cfg)
{
    translate_eval_sets(cfg);
    char value[200];
    long long samples = whole(cfg, SAMPLES), n = whole(cfg, "worker.rollout.n");
    const char *type = ares_config_given(cfg, "curriculum.rm_type");
    if (n < 1) n = 1;
    if (samples > 0 && samples % n == 0) {
        (void)snprintf(value, sizeof value, "%lld", samples / n);
        ares_config_follow(cfg, "worker.actor.global_batch_size", value, SAMPLES);
    }
    if (type && (strlen(type) > 150 || strpbrk(type, "'\n")))
        ares_config_fault(cfg, "curriculum.rm_type",
                          "is the name of a verifier: at most 150 characters, no quotes");
    else if (type) {
        (void)snprintf(value, sizeof value, "[{name: auto, rm_type: '%s'}]", type);
        ares_config_preset(cfg, REWARDS, value, "curriculum.rm_type");
    } else if (ares_config_given(cfg, "curriculum.custom_rm_path"))
        ares_config_preset(cfg, REWARDS, "[{name: auto}]", "curriculum.custom_rm_path");
}

void presets_declare(ares_config *cfg, ares_train_config *out)
{
    ares_config_add_options(cfg, "", slime_options, &out->slime);
    ares_config_translate_with(cfg, translate_slime);
    ares_config_add_options(cfg, "", dapo_options, &out->dapo);
    ares_config_translate_with(cfg, translate_dapo);
}

static void check_slime(ares_config *cfg, const ares_train_config *c)
{
    const ares_slime_config *s = &c->slime;
    const ares_json *rewards = c->reward.rewards,
                    *first = rewards && rewards->type == ARES_JSON_ARRAY && rewards->count
                                 ? &rewards->items[0]
                                 : NULL,
                    *type = ares_json_get(first, "rm_type");
    const char *dot = s->custom_rm ? strrchr(s->custom_rm, '.') : NULL;
    if (s->samples != ARES_NULL_I64 && s->samples % c->rollout.n)
        ares_config_fault(cfg, SAMPLES,
                          "worker.rollout.n = %lld does not divide it, and the samples of a prompt "
                          "stay together; set a multiple",
                          (long long)c->rollout.n);
    /* the user's own rewards take the place of those that rm_type stands for */
    if (s->rm_type &&
        !(type && type->type == ARES_JSON_STRING && ares_view_is(type->text, s->rm_type)))
        ares_log(ARES_LOG_WARN,
                 "config: curriculum.rm_type: has no effect beside worker.reward.rewards; write "
                 "{name: auto, rm_type: %s} there",
                 s->rm_type);
    if (s->custom_rm && strcmp(dot ? dot + 1 : s->custom_rm, "async_rm_math_if") != 0)
        ares_config_fault(cfg, "curriculum.custom_rm_path",
                          "no code is loaded; there is only async_rm_math_if; "
                          "worker.reward.rewards says what is rewarded");
}

/*
 * Options of EasyR1 and of ARES for which this program has no choice, and the checks that those
 * trainers make at start (docs/design.md#options-of-published-configurations). A value that asks
 * for something the program cannot do, and whose absence would matter, is refused; other values
 * without effect are reported once.
 */

int ares_train_named_ranks(const ares_train_config *c)
{
    const ares_published_config *p = &c->published;
    if (p->n_gpus_per_node == ARES_NULL_I64) return 1;
    int64_t nodes = p->nnodes == ARES_NULL_I64 ? 1 : p->nnodes;
    return nodes > 4096 || p->n_gpus_per_node > 4096
               ? 4096
               : (int)ARES_MIN(4096, nodes * p->n_gpus_per_node);
}

/* The options that actor and critic have in common. */
typedef struct side {
    const char *name, *optimizer, *dtype, *reduce;
    bool used; /* false: no critic */
    int64_t ulysses, micro_update, micro_experience;
    mini_batch_size mini_batch;
} side;

/* The option's full name, in memory of the block around the call. */
#define PATH(s, key) path_of((char[96]){ 0 }, (s)->name, key)
static const char *path_of(char *out, const char *name, const char *key)
{
    snprintf(out, 96, "worker.%s.%s", name, key);
    return out;
}

static bool ends_with(ares_view text, const char *end)
{
    size_t n = strlen(end);
    return text.len >= n && memcmp(text.data + text.len - n, end, n) == 0;
}

/*
 * What published scripts change of a model: its longest sequence, and dropouts, which they switch
 * off and which are never on here.
 */
static void check_override(ares_config *cfg, const ares_json *map)
{
    static const char path[] = "worker.actor.model.override_config";
    for (int64_t i = 0; i < map->count; i++) {
        ares_view key = map->members[i].key;
        const ares_json *value = map->members[i].value;
        bool number = value->type == ARES_JSON_INT || value->type == ARES_JSON_FLOAT;
        if (ares_view_is(key, PUBLISHED_POSITIONS) && value->type == ARES_JSON_INT &&
            value->integer >= 1 && value->integer <= INT32_MAX)
            continue;
        if ((ends_with(key, "dropout") || ends_with(key, "pdrop")) && number &&
            value->number == 0) {
            ares_log(ARES_LOG_INFO, "config: %s -> (ignored: nothing is dropped out here)", path);
            continue;
        }
        ares_config_fault(cfg, path,
                          "%.*s: a model is what its config.json says, but for a whole number "
                          "as " PUBLISHED_POSITIONS
                          " and dropouts of 0; change a copy of that file, "
                          "and leave this out",
                          (int)key.len, key.data);
    }
}

/* No result depends on which ranks compute a sequence; the memory of one does. */
static void warn_of_long_rows(const char *option, int64_t ranks)
{
    if (ranks > 1)
        ares_warn("config: %s = %lld: has no effect: each rank computes whole sequences, with the "
                  "same result and %lld times as many tokens of a long one in its memory; where it "
                  "does not fit, set worker.actor.model.enable_gradient_checkpointing=true and "
                  "worker.actor.share_prompts=false (docs/ranks.md#long-rows)",
                  option, (long long)ranks, (long long)ranks);
}

static void check_side(ares_config *cfg, const ares_train_config *c, const side *s, int world)
{
    int64_t batch = c->data.rollout_batch_size, n = c->rollout.n;
    if (strcmp(s->optimizer, "adamw_bf16") == 0 && (!s->dtype || strcmp(s->dtype, "bf16") != 0))
        ares_config_fault(
            cfg, PATH(s, "optim.strategy"),
            "keeps weights in bf16; set worker.%s.fsdp.torch_dtype=bf16, or take adamw", s->name);
    if (s->reduce && strcmp(s->reduce, "fp32") != 0)
        ares_config_fault(cfg, PATH(s, "fsdp.mp_reduce_dtype"),
                          "gradients are added in double and rounded once to fp32, so that no "
                          "result depends on how ranks share them; set fp32, or leave it out");
    if (!s->used) return;
    warn_of_long_rows(PATH(s, "ulysses_size"), s->ulysses);
    if (s->micro_experience != ARES_NULL_I64 && batch * n % s->micro_experience)
        ares_config_fault(cfg, PATH(s, "micro_batch_size_per_device_for_experience"),
                          "the %lld samples of a batch (data.rollout_batch_size x "
                          "worker.rollout.n) are no multiple of it",
                          (long long)(batch * n));
    if (s->micro_update != ARES_NULL_I64) {
        int64_t samples = s->mini_batch.rows ? 1 : n; /* of what a mini-batch counts */
        train_sizes z = train_sizes_of(batch * n / samples, s->mini_batch.count, samples, world, 1,
                                       s->micro_update);
        if (z.per_device == 0 || z.per_device % s->micro_update)
            ares_config_fault(cfg, PATH(s, "micro_batch_size_per_device_for_update"),
                              "the %lld samples a rank has of an optimizer step (global_batch_size"
                              "%s over %d ranks) are no multiple of it",
                              (long long)z.per_device,
                              s->mini_batch.rows ? "" : " x worker.rollout.n", world);
    }
    bool by_micro =
        strcmp(c->loss.loss_norm, "micro") == 0 || strcmp(c->loss.early_stop_scope, "micro") == 0;
    bool counted = by_micro && strcmp(s->name, "actor") == 0;
    if (!counted && (s->micro_update != ARES_NULL_I64 || s->micro_experience != ARES_NULL_I64))
        ares_log(ARES_LOG_INFO,
                 "config: %s -> (ignored: micro-batches are cut by max_token_len_per_device; no "
                 "result depends on it)",
                 PATH(s, "micro_batch_size_per_device_for_*"));
}

static void check_published(ares_config *cfg, const ares_train_config *c, int world)
{
    const ares_published_config *p = &c->published;
    const side actor = { .name = "actor",
                         .optimizer = c->optim.strategy,
                         .dtype = c->actor.dtype,
                         .reduce = p->actor_reduce,
                         .used = true,
                         .ulysses = p->actor_ulysses,
                         .micro_update = c->actor.micro_batch_size,
                         .micro_experience = p->actor_micro_experience,
                         .mini_batch = mini_batch_size_of_actor(c) };
    const side critic = { .name = "critic",
                          .optimizer = c->critic_optim.strategy,
                          .dtype = c->critic.dtype,
                          .reduce = p->critic_reduce,
                          .used = trainer_needs_critic(c),
                          .ulysses = p->critic_ulysses,
                          .micro_update = p->critic_micro_update,
                          .micro_experience = p->critic_micro_experience,
                          .mini_batch = mini_batch_size_of_critic(c) };
    if (!p->hybrid_engine)
        ares_config_fault(
            cfg, "worker.hybrid_engine",
            "actor and rollout always share their weights; set true, or leave it out");
    int64_t nodes = p->nnodes == ARES_NULL_I64 ? 1 : p->nnodes;
    if (p->n_gpus_per_node != ARES_NULL_I64 &&
        (nodes > world || p->n_gpus_per_node > world || nodes * p->n_gpus_per_node != world))
        ares_config_fault(
            cfg, "trainer.n_gpus_per_node",
            "with trainer.nnodes = %lld that makes another number of ranks than the %d started; "
            "start them with --ranks %lld or mpirun, or leave both options out",
            (long long)nodes, world,
            (long long)ARES_MIN(p->n_gpus_per_node, 4096) * ARES_MIN(nodes, 4096));
    if (p->n_gpus_per_node == ARES_NULL_I64 && p->nnodes != ARES_NULL_I64 && world % p->nnodes)
        ares_config_fault(cfg, "trainer.nnodes",
                          "the %d ranks started do not spread evenly over as many machines; leave "
                          "it out, or start a multiple",
                          world);
    check_side(cfg, c, &actor, world);
    check_side(cfg, c, &critic, world);
    check_override(cfg, p->actor_override);
    warn_of_long_rows("worker.ref.ulysses_size", p->ref_ulysses);
    /* without chunked prefill one pass feeds a whole row */
    int64_t row = c->data.max_prompt_length + c->data.max_response_length,
            forward = c->rollout.max_num_batched_tokens;
    if (p->chunked_prefill->type == ARES_JSON_BOOL && !p->chunked_prefill->boolean &&
        forward != ARES_NULL_I64 && forward < row)
        ares_config_fault(cfg, "worker.rollout.max_num_batched_tokens",
                          "data.max_prompt_length + data.max_response_length = %lld do not fit; "
                          "raise it, or leave enable_chunked_prefill out",
                          (long long)row);
}

void presets_check(ares_config *cfg, const ares_train_config *c, int world)
{
    check_slime(cfg, c);
    check_published(cfg, c, world);
}
