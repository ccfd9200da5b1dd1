/*
 * What is to be said of a run: a verdict per rule, with its reason in numbers. The thresholds and
 * where they come from stand in docs/report.md#verdicts.
 */
#include "look.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const ares_look_level_names[ARES_LOOK_LEVELS] = { "bad", "warn", "good", "off" };

enum { MOST = 20, FEWEST_STEPS = 4, RULES = 16 };

typedef struct judge {
    ares_arena *arena;
    const ares_look *l;
    const ares_look_paired *p;
    ares_look_verdicts *out;
} judge;

/* A metric of the steps after 0: its values without gaps, and what is made of them. */
typedef struct course {
    int64_t n;
    const double *value;     /* [n] */
    double start, end, most; /* means over the first and the last quarter; the largest */
} course;

static int64_t quarter(int64_t n)
{
    return ARES_MAX(1, ARES_MIN(n / 4, MOST));
}

static course course_of_values(const judge *j, const double *value)
{
    double *kept = ares_arena_alloc(j->arena, (size_t)(j->l->rows + 1) * sizeof *kept);
    course c = { .value = kept, .start = 0, .end = 0, .most = -INFINITY };
    for (int64_t i = 0; value && i < j->l->rows; i++) {
        if (j->l->step[i] <= 0 || isnan(value[i])) continue;
        kept[c.n++] = value[i];
        c.most = fmax(c.most, value[i]);
    }
    int64_t k = quarter(c.n);
    for (int64_t i = 0; i < k && c.n; i++) {
        c.start += kept[i];
        c.end += kept[c.n - k + i];
    }
    if (isinf(c.start) || isinf(c.end)) { /* a sum of the largest doubles */
        c.start = c.end = 0;
        for (int64_t i = 0; i < k; i++) {
            c.start += kept[i] / (double)k;
            c.end += kept[c.n - k + i] / (double)k;
        }
        return c;
    }
    c.start /= (double)k;
    c.end /= (double)k;
    return c;
}

static course course_of(const judge *j, const char *metric)
{
    return course_of_values(j, ares_look_values(j->l, metric));
}

/* A number for people: three digits. */
static const char *num(const judge *j, double x)
{
    ares_str text = { 0 };
    double size = fabs(x);
    if (size >= 1000 && size < 1e10) ares_str_addf(&text, "%.0f", x);
    else ares_str_addf(&text, "%.3g", x);
    const char *kept = ares_arena_copy(j->arena, text.data, text.len);
    ares_str_fini(&text);
    return kept;
}

static const char *pct(const judge *j, double share)
{
    return ares_arena_printf(j->arena, "%.1f %%", 100 * share);
}

/* "unchanged", "+12 %", "−24 %": of a value against what it was. */
static const char *change(const judge *j, double from, double to)
{
    double by = 100 * (to / from - 1);
    if (from == to) return "unchanged";
    if (!isfinite(by)) return "from nothing";
    if (fabs(by) < 0.5) return "unchanged";
    if (by >= 100) return ares_arena_printf(j->arena, "%s times as much", num(j, to / from));
    return ares_arena_printf(j->arena, "%s%.0f %%", by < 0 ? "−" : "+", fabs(by));
}

#define WHY(...) ares_arena_printf(j->arena, __VA_ARGS__)

static void add(judge *j, const char *id, ares_look_level level, const char *title, const char *why,
                const char *metric, const char *rule)
{
    ARES_ASSERT(j->out->n < RULES);
    j->out->each[j->out->n++] = (ares_look_verdict){ id, level, title, why, metric, rule };
    j->out->count[level]++;
}

/* The level of a number that is to stay low. */
static ares_look_level above(double x, double warn, double bad)
{
    return x > bad ? ARES_VERDICT_BAD : x > warn ? ARES_VERDICT_WARN : ARES_VERDICT_GOOD;
}

/* Says so of a rule for which the run is too short; false: it is long enough. */
static bool too_short(judge *j, const char *id, const char *title, const char *metric,
                      const char *rule)
{
    if (j->l->steps >= FEWEST_STEPS) return false;
    add(j, id, ARES_VERDICT_OFF, title,
        WHY("too few steps: %lld of at least %d", (long long)j->l->steps, FEWEST_STEPS), metric,
        rule);
    return true;
}

/* The first and the last value of a metric, step 0 too. Returns how many values there are. */
static int64_t ends_of(const judge *j, const char *metric, double *first, double *last)
{
    const double *x = ares_look_values(j->l, metric);
    int64_t n = 0;
    for (int64_t i = 0; x && i < j->l->rows; i++) {
        if (isnan(x[i])) continue;
        if (!n++) *first = x[i];
        *last = x[i];
    }
    return n;
}

/* What was learnt, where no accuracies can be paired. */
static void learning_unpaired(judge *j, const char *rule)
{
    ares_look_verdicts *v = j->out;
    bool trained = ares_look_values(j->l, "reward/accuracy") != NULL,
         scored = ares_look_values(j->l, "critic/score/mean") != NULL;
    const char *steps = WHY("%lld step%s", (long long)j->l->steps, j->l->steps == 1 ? "" : "s"),
               *why = "no validation at both ends; set data.val_files and trainer.val_freq";
    double first = 0, last = 0;
    int64_t accuracies = ends_of(j, "val/accuracy", &first, &last),
            losses = ends_of(j, "val/loss", &first, &last), scores = 0;
    course loss = course_of(j, "train/loss");
    v->level = ARES_VERDICT_OFF;
    if (j->l->steps == 0) v->headline = "No step has ended";
    else if (losses > 1) {
        v->level = last < first ? ARES_VERDICT_GOOD : ARES_VERDICT_WARN;
        v->headline =
            WHY("Validation loss %s, then %s after %s", num(j, first), num(j, last), steps);
        add(j, "learning", v->level,
            last < first ? "Validation loss falls" : "Validation loss does not fall",
            WHY("%s → %s (%s)", num(j, first), num(j, last), change(j, first, last)), "val/loss",
            "warns where the last validation's loss is not below the first one's");
        return;
    } else if (accuracies < 2 && (scores = ends_of(j, "val/reward_score", &first, &last)) > 1) {
        v->headline = WHY("%s; validation reward %s, then %s, without an accuracy", steps,
                          num(j, first), num(j, last));
        why = "the validations have no accuracy to compare by question; worker.reward.accuracy "
              "names the reward that is one";
    } else if (accuracies == 1 || losses == 1 || scores == 1) {
        v->headline = WHY("%s, with one validation alone", steps);
        why = "one validation alone; trainer.val_freq makes more";
    } else if (loss.n)
        v->headline = WHY("Training loss from %s to %s in %s, without a validation at both ends",
                          num(j, loss.start), num(j, loss.end), steps);
    else v->headline = WHY("%s, without a validation at both ends", steps);
    if (trained || scored)
        add(j, "learning", ARES_VERDICT_OFF, "Learning not judged", why,
            trained ? "reward/accuracy" : "critic/score/mean", rule);
}

static void learning(judge *j)
{
    static const char rule[] = "the 95 % interval of the paired difference lies above 0";
    const ares_look_paired *p = j->p;
    ares_look_verdicts *v = j->out;
    if (!p || !p->n) {
        learning_unpaired(j, rule);
        return;
    }
    const char *before = pct(j, p->accuracy[0]), *after = pct(j, p->accuracy[1]),
               *questions = p->n == 1 ? "question" : "questions";
    long long n = (long long)p->n;
    double low = p->mean - p->half_width, high = p->mean + p->half_width;
    v->level = low > 0 ? ARES_VERDICT_GOOD : high < 0 ? ARES_VERDICT_BAD : ARES_VERDICT_WARN;
    v->headline =
        low > 0
            ? WHY("Accuracy rose from %s to %s on %lld validation %s", before, after, n, questions)
        : high < 0
            ? WHY("Accuracy fell from %s to %s on %lld validation %s", before, after, n, questions)
            : WHY("No difference shown: accuracy %s, then %s on %lld validation %s", before, after,
                  n, questions);
    add(j, "learning", v->level,
        low > 0    ? "It learnt"
        : high < 0 ? "It got worse"
                   : "No difference shown",
        WHY("validation accuracy %s → %s; paired difference %s%.1f ± %.1f points over %lld %s",
            before, after, p->mean < 0 ? "−" : "+", 100 * fabs(p->mean), 100 * p->half_width, n,
            questions),
        "val/accuracy", rule);
}

static void entropy(judge *j)
{
    /* of texts that were encoded anew only the update has entropies (env.token_exact) */
    const char *metric =
        ares_look_values(j->l, "rollout/entropy") ? "rollout/entropy" : "actor/entropy";
    static const char rule[] = "warns below half or above twice the start, bad below a tenth";
    course c = course_of(j, metric);
    if (!c.n || too_short(j, "entropy", "Entropy", metric, rule)) return;
    double ratio = c.end / c.start;
    ares_look_level level = c.start <= 0                 ? ARES_VERDICT_OFF
                            : ratio < 0.1                ? ARES_VERDICT_BAD
                            : ratio < 0.5 || ratio > 2.0 ? ARES_VERDICT_WARN
                                                         : ARES_VERDICT_GOOD;
    add(j, "entropy", level,
        c.start <= 0  ? "Entropy not judged"
        : ratio < 0.1 ? "Entropy has collapsed"
        : ratio < 0.5 ? "Entropy falls"
        : ratio > 2   ? "Entropy rises"
                      : "Entropy holds",
        WHY("%s → %s nats a token (%s)", num(j, c.start), num(j, c.end), change(j, c.start, c.end)),
        metric, rule);
}

static void diversity(judge *j)
{
    static const char rule[] = "warns below 40 %, bad below 15 %";
    course c = course_of(j, ARES_LOOK_DISTINCT);
    if (!c.n || too_short(j, "diversity", "Different answers", ARES_LOOK_DISTINCT, rule)) return;
    ares_look_level level = c.end < 0.15  ? ARES_VERDICT_BAD
                            : c.end < 0.4 ? ARES_VERDICT_WARN
                                          : ARES_VERDICT_GOOD;
    add(j, "diversity", level,
        level == ARES_VERDICT_GOOD   ? "Answers of a group differ"
        : level == ARES_VERDICT_WARN ? "Answers of a group repeat"
                                     : "Answers of a group are the same",
        WHY("%s of a group's answers are distinct texts at the end (%s at first)", pct(j, c.end),
            pct(j, c.start)),
        ARES_LOOK_DISTINCT, rule);
}

static void kl(judge *j)
{
    static const char metric[] = "actor/kl", rule[] = "warns above 0.2 nats a token, bad above 1";
    course c = course_of(j, metric);
    if (!c.n || too_short(j, "kl", "KL to the reference", metric, rule)) return;
    ares_look_level level = above(c.end, 0.2, 1);
    add(j, "kl", level,
        level == ARES_VERDICT_GOOD   ? "Close to the reference"
        : level == ARES_VERDICT_WARN ? "Far from the reference"
                                     : "Out of the reference's reach",
        WHY("KL %s nats a token at the end, %s at most", num(j, c.end), num(j, c.most)), metric,
        rule);
}

/* Whether a step makes one update of all its rows, as far as the options say. */
static bool one_update(const judge *j)
{
    double batch = look_option_number(j->l, "data.rollout_batch_size", 1);
    return look_option_number(j->l, "worker.actor.ppo_epochs", 1) <= 1 &&
           look_option_number(j->l, "worker.actor.global_batch_size", batch) >= batch;
}

static void step_size(judge *j)
{
    static const char metric[] = "actor/ppo_kl_k3",
                      rule[] = "warns above KL 0.02 or 20 % clipped, bad above 0.1 or 50 %";
    course k3 = course_of(j, metric), up = course_of(j, "actor/pg_clipfrac_higher"),
           down = course_of(j, "actor/pg_clipfrac_lower");
    if (!k3.n && !up.n && !down.n) return;
    const char *shown = k3.n   ? metric
                        : up.n ? "actor/pg_clipfrac_higher"
                               : "actor/pg_clipfrac_lower";
    if (too_short(j, "step_size", "Size of steps", shown, rule)) return;
    double kl_most = k3.n ? k3.most : 0, clipped = fmax(up.n ? up.most : 0, down.n ? down.most : 0);
    if (kl_most == 0 && clipped == 0 && one_update(j)) {
        add(j, "step_size", ARES_VERDICT_OFF, "Strictly on policy",
            "one update a step: every ratio is 1, nothing can be clipped", shown, rule);
        return;
    }
    ares_look_level level = ARES_MIN(above(kl_most, 0.02, 0.1), above(clipped, 0.2, 0.5));
    add(j, "step_size", level,
        level == ARES_VERDICT_GOOD   ? "Steps are small"
        : level == ARES_VERDICT_WARN ? "Steps are large"
                                     : "Steps are far too large",
        WHY("KL of a step's update %s at most; clipped tokens %s at most", num(j, kl_most),
            pct(j, clipped)),
        shown, rule);
}

/*
 * Whether a teacher alone teaches. *judged: whether it reads rewards all the same, as that of a
 * group's right answers does; without it answers are not judged, and their rewards are 0
 */
static bool teacher_alone(const judge *j, bool *judged)
{
    const ares_json *context = look_option(j->l, "distillation.context");
    *judged = context && ares_view_eq(context->text, ares_view_of("group"));
    return look_option_true(j->l, "distillation.enabled") &&
           !look_option_true(j->l, "distillation.distillation_loss.use_task_rewards");
}

static void signal_of_groups(judge *j)
{
    static const char rule[] = "warns above 50 % of groups without signal, bad above 80 %";
    const ares_look *l = j->l;
    const double *zero = ares_look_values(l, "rollout/filter_zero_count"),
                 *drawn = ares_look_values(l, "filter/generated_groups"),
                 *mixed = ares_look_values(l, "rollout/mixed_groups_frac");
    double *share = ares_arena_alloc(j->arena, (size_t)(l->rows + 1) * sizeof *share);
    bool filtered = zero && drawn, judged;
    if ((!filtered && !mixed) || teacher_alone(j, &judged)) return; /* every answer teaches */
    for (int64_t i = 0; i < l->rows; i++)
        share[i] = !filtered ? 1 - mixed[i] : drawn[i] > 0 ? zero[i] / drawn[i] : NAN;
    course c = course_of_values(j, share);
    const char *metric = filtered ? "rollout/filter_zero_count" : "rollout/mixed_groups_frac";
    if (!c.n || too_short(j, "signal", "Signal of groups", metric, rule)) return;
    /* shares are quotients of counts: their mean may lie a rounding above the limit it is */
    ares_look_level level = above(c.end - 1e-9, 0.5, 0.8);
    add(j, "signal", level,
        level == ARES_VERDICT_GOOD   ? "Groups carry signal"
        : level == ARES_VERDICT_WARN ? "Many groups carry no signal"
                                     : "Few groups carry signal",
        WHY("%s of the groups%s had equal rewards at the end (%s at first)%s", pct(j, c.end),
            filtered ? " drawn" : "", pct(j, c.start),
            filtered ? "; they are dropped" : "; nothing is learnt from them"),
        metric, rule);
}

static void cut(judge *j)
{
    static const char metric[] = "response_length/clip_ratio",
                      rule[] = "warns above 25 %, bad above 50 %";
    course c = course_of(j, metric);
    if (!c.n || too_short(j, "cut", "Cut answers", metric, rule)) return;
    double longest = look_option_number(j->l, "data.max_response_length", NAN);
    ares_look_level level = above(c.end, 0.25, 0.5);
    add(j, "cut", level,
        level == ARES_VERDICT_GOOD   ? "Answers end by themselves"
        : level == ARES_VERDICT_WARN ? "Many answers are cut"
                                     : "Most answers are cut",
        isnan(longest) ? WHY("%s reach the longest length at the end, %s at most", pct(j, c.end),
                             pct(j, c.most))
                       : WHY("%s reach data.max_response_length = %.0f at the end, %s at most",
                             pct(j, c.end), longest, pct(j, c.most)),
        metric, rule);
}

static void length(judge *j)
{
    static const char metric[] = "response_length/mean",
                      rule[] = "warns below half, or above 1.5 times without a gain in accuracy";
    course c = course_of(j, metric), accuracy = course_of(j, "reward/accuracy");
    if (!c.n || too_short(j, "length", "Length", metric, rule)) return;
    if (!accuracy.n) accuracy = course_of(j, "critic/score/mean");
    double ratio = c.end / c.start;
    bool shrinks = ratio < 0.5, grows = ratio > 1.5,
         gains = accuracy.n && accuracy.end - accuracy.start > 0.01;
    add(j, "length", shrinks || (grows && !gains) ? ARES_VERDICT_WARN : ARES_VERDICT_GOOD,
        shrinks           ? "Answers shrink"
        : grows && !gains ? "Answers grow for nothing"
        : grows           ? "Answers grow, and gain"
                          : "Length is steady",
        WHY("%s → %s tokens (%s)", num(j, c.start), num(j, c.end), change(j, c.start, c.end)),
        metric, rule);
}

static void failures(judge *j)
{
    static const char rule[] = "warns at 1 failure or 10 % without an answer, bad where more than "
                               "5 % of a step's answers fail",
                      prefix[] = "reward/failed/";
    bool judged;
    if (look_option(j->l, "sft")) return; /* supervised training has no rewards */
    if (j->l->steps == 0 || (teacher_alone(j, &judged) && !judged)) return; /* nothing was judged */
    course found = course_of(j, "reward/extract_fail_rate");
    double most = 0, missing = found.n ? fmax(found.most, 0) : 0;
    const char *metric = found.n ? "reward/extract_fail_rate" : "";
    for (int64_t k = 0; k < j->l->n_series; k++) {
        if (!ares_view_starts(j->l->series[k].name, ares_view_of(prefix))) continue;
        course c = course_of_values(j, j->l->series[k].value);
        if (!c.n || (c.most <= most && *metric && strcmp(metric, "reward/extract_fail_rate") != 0))
            continue;
        most = fmax(most, c.most);
        metric = j->l->series[k].name.data;
    }
    double answers = look_option_number(j->l, "data.rollout_batch_size", NAN) *
                     look_option_number(j->l, "worker.rollout.n", NAN);
    ares_look_level level = most > 0.05 * answers        ? ARES_VERDICT_BAD
                            : most >= 1 || missing > 0.1 ? ARES_VERDICT_WARN
                                                         : ARES_VERDICT_GOOD;
    add(j, "failures", level,
        level == ARES_VERDICT_GOOD ? "Rewards work"
        : most >= 1                ? "Judgements fail"
                                   : "Answers are not found",
        found.n ? WHY("%s judgements failed in the worst step; no answer found in %s of the texts "
                      "at most",
                      num(j, most), pct(j, missing))
                : WHY("%s judgements failed in the worst step", num(j, most)),
        metric, rule);
}

static void gradient(judge *j)
{
    static const char metric[] = "actor/grad_norm",
                      rule[] = "warns above 10 times the median, bad where an update was skipped";
    course c = course_of(j, metric), skipped = course_of(j, "actor/skipped_updates");
    if (!c.n && !skipped.n) return;
    double *sorted = ares_arena_alloc(j->arena, (size_t)(c.n + 1) * sizeof *sorted), left_out = 0;
    memcpy(sorted, c.value, (size_t)c.n * sizeof *sorted);
    ares_sort_f64(sorted, c.n);
    double median = !c.n      ? 0
                    : c.n % 2 ? sorted[c.n / 2]
                              : sorted[c.n / 2 - 1] / 2 + sorted[c.n / 2] / 2;
    for (int64_t i = 0; i < skipped.n; i++) left_out += skipped.value[i];
    ares_look_level level = left_out > 0                                ? ARES_VERDICT_BAD
                            : c.n && median > 0 && c.most > 10 * median ? ARES_VERDICT_WARN
                                                                        : ARES_VERDICT_GOOD;
    double limit = look_option_number(j->l, "worker.actor.max_grad_norm", NAN);
    add(j, "gradient", level,
        level == ARES_VERDICT_BAD    ? "Updates were left out"
        : level == ARES_VERDICT_WARN ? "A gradient sticks out"
                                     : "Gradients are even",
        left_out > 0
            ? WHY("%s updates left out: NaN or infinity in the loss or gradient", num(j, left_out))
        : isnan(limit) ? WHY("norm %s in the middle, %s at most", num(j, median), num(j, c.most))
                       : WHY("norm %s in the middle, %s at most; limit %s", num(j, median),
                             num(j, c.most), num(j, limit)),
        c.n ? metric : "actor/skipped_updates", rule);
}

static void exactness(judge *j)
{
    static const char metric[] = "exact/rollout_train_max_abs",
                      rule[] = "0 on the CPU; bad at 0.05 or above";
    course c = course_of(j, metric);
    if (!c.n) return;
    ares_look_level level = c.most == 0     ? ARES_VERDICT_GOOD
                            : c.most < 0.05 ? ARES_VERDICT_WARN
                                            : ARES_VERDICT_BAD;
    add(j, "exactness", level,
        level == ARES_VERDICT_GOOD   ? "Sampled is trained"
        : level == ARES_VERDICT_WARN ? "Sampled is nearly trained"
                                     : "Sampled is not what is trained",
        c.most == 0
            ? "rollout and training log-probabilities are equal in every bit"
            : WHY("rollout and training log-probabilities differ by %s at most", num(j, c.most)),
        metric, rule);
}

static void hacking(judge *j)
{
    static const char metric[] = "critic/score/mean",
                      rule[] = "warns where the reward rises by a tenth while accuracy falls by "
                               "2 points";
    course score = course_of(j, metric), accuracy = course_of(j, "reward/accuracy");
    if (!score.n || !accuracy.n || j->l->steps < FEWEST_STEPS) return;
    if (!(score.end > score.start + 0.1 * fabs(score.start)) ||
        !(accuracy.end - accuracy.start < -0.02))
        return;
    add(j, "hacking", ARES_VERDICT_WARN, "Reward rises, accuracy falls",
        WHY("reward %s → %s, accuracy %s → %s: the reward is met without being right",
            num(j, score.start), num(j, score.end), pct(j, accuracy.start), pct(j, accuracy.end)),
        metric, rule);
}

static void constant_reward(judge *j)
{
    course high = course_of(j, "critic/score/max"), low = course_of(j, "critic/score/min");
    int64_t k = quarter(high.n);
    bool judged;
    if (teacher_alone(j, &judged) && !judged) return;
    if (!high.n || high.n != low.n || j->l->steps < FEWEST_STEPS) return;
    double all = high.value[high.n - 1];
    for (int64_t i = high.n - k; i < high.n; i++)
        if (high.value[i] != all || low.value[i] != all) return;
    add(j, "constant_reward", ARES_VERDICT_BAD, "Every answer has the same reward",
        k == 1
            ? WHY("%s in the last step: look at the judge or the format, not the task", num(j, all))
            : WHY("%s in each of the last %lld steps: look at the judge or the format, not the "
                  "task",
                  num(j, all), (long long)k),
        "critic/score/max", "bad where the last quarter of steps knows one reward");
}

static void end(judge *j)
{
    static const char rule[] = "warns where a run has stopped early or died";
    const ares_look *l = j->l;
    long long at = (long long)l->last_step, of = (long long)l->planned;
    const char *where = of > 0 ? WHY("%lld of %lld steps", at, of) : WHY("%lld steps", at);
    switch (l->state) {
    case ARES_LOOK_FINISHED:
        add(j, "end", ARES_VERDICT_GOOD, "Finished", where, "timing_s/step", rule);
        break;
    case ARES_LOOK_RUNNING:
        add(j, "end", ARES_VERDICT_OFF, "Running", where, "timing_s/step", rule);
        break;
    case ARES_LOOK_STOPPED:
        add(j, "end", ARES_VERDICT_WARN, "Stopped early",
            l->stopped ? WHY("%s: %s", where, l->stopped) : where, "timing_s/step", rule);
        break;
    case ARES_LOOK_DIED:
        add(j, "end", ARES_VERDICT_WARN, "Not finished",
            WHY("its process is gone after %s; the same command goes on", where), "timing_s/step",
            rule);
    }
}

void ares_look_judge(ares_arena *arena, const ares_look *l, const ares_look_paired *p,
                     ares_look_verdicts *out)
{
    static void (*const rules[])(judge *) = {
        learning, constant_reward, entropy,  diversity, kl,        step_size, signal_of_groups,
        cut,      length,          failures, gradient,  exactness, hacking,   end
    };
    judge j = { arena, l, p, out };
    *out = (ares_look_verdicts){ .each = ares_arena_alloc(arena, RULES * sizeof *out->each) };
    for (int i = 0; i < ARES_COUNT(rules); i++) rules[i](&j);
    /* bad ones first; of a level, in the order of the rules */
    ares_look_verdict *sorted = ares_arena_alloc(arena, RULES * sizeof *sorted);
    int n = 0;
    for (int level = 0; level < ARES_LOOK_LEVELS; level++)
        for (int i = 0; i < out->n; i++)
            if (out->each[i].level == (ares_look_level)level) sorted[n++] = out->each[i];
    out->each = sorted;
}

/* ---------------------------------------------------------------- numbers of the page */

uint16_t look_half(double x)
{
    if (isnan(x)) return 0x7e00;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double size = fmin(fabs(x), 65504);
    if (size == 0) return sign;
    /* the unit of the last of 11 bits: of numbers below 2^-14 that of 2^-14 */
    int exponent;
    (void)frexp(size, &exponent);
    exponent = ARES_MAX(exponent, -13);
    double units = nearbyint(ldexp(size, 11 - exponent)); /* ties to even; at most 2^11 */
    return (uint16_t)(sign | (uint16_t)((exponent + 13) * 1024 + (int)units));
}

void look_add_base64(ares_str *out, const void *data, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *b = data;
    ares_str_reserve(out, out->len + (n + 2) / 3 * 4 + 1);
    for (size_t i = 0; i < n; i += 3) {
        size_t left = ARES_MIN(n - i, 3);
        uint32_t x = (uint32_t)b[i] << 16 | (left > 1 ? (uint32_t)b[i + 1] << 8 : 0) |
                     (left > 2 ? b[i + 2] : 0);
        char four[4] = { digits[x >> 18], digits[x >> 12 & 63], digits[x >> 6 & 63],
                         digits[x & 63] };
        for (size_t k = left + 1; k < 4; k++) four[k] = '=';
        ares_str_add(out, four, 4);
    }
}
