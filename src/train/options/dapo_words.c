/*
 * DAPO (arXiv 2503.14476) as RLinf and verl spell it: the preset algorithm.name: dapo, and words
 * from which other options follow. They are translated into the options that they stand for after
 * all files and words are read, so that the resolved configuration shows their effect. Of two
 * spellings the one in the later layer counts; in one file, or on one command line, they must
 * agree.
 */
#include "dapo_words.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTROPY "worker.actor.entropy_coeff"
#define MINI_BATCH "worker.actor.global_batch_size"
#define N_MINI_BATCHES "algorithm.n_minibatches"
#define RESAMPLE "algorithm.max_resample"
#define TRIES "trainer.max_try_make_batch"
#define LOSS "worker.actor.loss_type"
#define BUFFER "worker.reward.overlong_buffer."
#define LENGTHS "worker.reward."

static ARES_OPTION_TABLE(dapo_options, ares_dapo_config, ARES_DAPO_OPTIONS);

/* ---------------- values before they are bound
 * A text that is no number is left as it is; binding it reports the fault.
 */
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

/* ---------------------------------------------------------------- one word each */
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

static void mini_batches(ares_config *cfg)
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

/* RLinf's section has one loss, which it calls actor or ppo. */
static void loss_type(ares_config *cfg)
{
    const char *loss = ares_config_given(cfg, LOSS);
    if (loss && strcmp(loss, "ppo") == 0 &&
        strcmp(ares_config_word(cfg, LOSS), "algorithm.loss_type") == 0)
        ares_config_follow(cfg, LOSS, "dapo", LOSS);
}

static bool other_filters(ares_config *cfg)
{
    const char *kind = ares_config_given(cfg, "algorithm.dynamic_sampling_filter"),
               *by = ares_config_given(cfg, "worker.rollout.rollout_filter_strategy");
    const char *share = ares_config_given(cfg, "worker.rollout.rollout_filter_value");
    return is_true(ares_config_given(cfg, "algorithm.online_filtering")) ||
           (kind && strcmp(kind, "none") != 0) || (share && read_number(share) != 1) ||
           is_false(ares_config_given(cfg, "worker.rollout.rollout_filter_include_zero")) ||
           (by && strcmp(by, "none") != 0 && strcmp(by, "top_p") != 0);
}

/*
 * max_resample counts the draws after the first; max_try_make_batch (verl's max_num_gen_batches)
 * counts all.
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
    if (!other_filters(cfg) &&
        ares_config_preset(cfg, "algorithm.filter_groups.enable", "true", RESAMPLE))
        ares_log(ARES_LOG_INFO,
                 "config: %s -> algorithm.filter_groups.enable=true (dynamic sampling)",
                 ares_config_word(cfg, RESAMPLE));
}

/* ---------------------------------------------------------------- overlong_buffer */
static const char *const buffer_keys[] = { BUFFER "enable", BUFFER "len", BUFFER "penalty_factor",
                                           BUFFER "max_resp_len" };
static const char *const length_keys[] = { LENGTHS "safe_length", LENGTHS "max_length",
                                           LENGTHS "len_reward_penalty" };

static void put_buffer(ares_config *cfg, int64_t longest, int64_t buffer)
{
    const char *factor = ares_config_given(cfg, BUFFER "penalty_factor");
    follow_whole(cfg, LENGTHS "safe_length", longest - buffer, BUFFER "len");
    follow_whole(cfg, LENGTHS "max_length", longest, BUFFER "len");
    ares_config_follow(cfg, LENGTHS "len_reward_penalty", factor ? factor : "1.0",
                       factor ? BUFFER "penalty_factor" : BUFFER "len");
}

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
        put_buffer(cfg, longest, buffer);
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

/* One mini-batch: the prompts of a batch, or their rows where mini-batches are counted in rows. */
static void preset_whole_batch(ares_config *cfg, const char *batch, ares_str *done, ares_str *kept)
{
    char rows[32];
    int64_t prompts, n;
    const char *unit = ares_config_given(cfg, "worker.actor.mini_batch_unit"),
               *samples = ares_config_given(cfg, "worker.rollout.n");
    if (!samples) samples = ares_config_get_text(cfg, "worker.rollout.n");
    if (unit && strcmp(unit, "rows") == 0 && read_whole(batch, &prompts) &&
        read_whole(samples, &n) && n > 0 && prompts > 0 && prompts <= INT64_MAX / n) {
        (void)snprintf(rows, sizeof rows, "%lld", (long long)(prompts * n));
        batch = rows;
    }
    preset(cfg, MINI_BATCH, batch, done, kept);
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
    if (!batch) batch = ares_config_get_text(cfg, "data.rollout_batch_size");
    preset_whole_batch(cfg, batch, &done, &kept);
    if (done.len)
        ares_log(ARES_LOG_INFO, "config: algorithm.name: dapo -> %s%s%s", done.data,
                 kept.len ? "; set otherwise: " : "", kept.len ? kept.data : "");
    ares_str_fini(&done);
    ares_str_fini(&kept);
}

static void translate(ares_config *cfg)
{
    bool penalty = !is_false(ares_config_given(cfg, BUFFER "enable")); /* forgotten below */
    entropy(cfg);
    mini_batches(cfg);
    loss_type(cfg);
    overlong_buffer(cfg);
    resampling(cfg);
    dapo(cfg, penalty);
}

void dapo_declare(ares_config *cfg, ares_train_config *out)
{
    ares_config_add_options(cfg, "", dapo_options, &out->dapo);
    ares_config_translate_with(cfg, translate);
}
