/*
 * reward: the RewardManager. Response text -> scores, by built-in verifiers on the pool and users'
 * rewards in children.
 */
#ifndef ARES_REWARD_H
#define ARES_REWARD_H

#include "ares/config.h"
#include "ares/core.h"
#include "ares/data.h"
#include "ares/dist.h"
#include "ares/grade.h"

/* ------------------------------------------------------------------ options: worker.reward.* */
#define ARES_REWARD_OPTIONS(X)                                                                    \
    X(tree, rewards, "rewards", "null", "list",                                                   \
      "rewards that add up: [{name: boxed, weight: 0.9}, {name: format, weight: 0.1, pattern: "   \
      "...}]; null: [{name: exact}]")                                                             \
    X(text, accuracy, "accuracy", "null", "nonempty",                                             \
      "the verifier whose 0 or 1 is a sample's accuracy; null: the first reward that says "       \
      "something of it")                                                                          \
    X(text, reward_function, "reward_function", "null", "nonempty",                               \
      "in place of rewards: aepo, math, dapo, r1v, or a published file: "                         \
      ".../math.py:compute_score")                                                                \
    X(tree, reward_function_kwargs, "reward_function_kwargs", "{}", "map",                        \
      "options of reward_function: {format_weight: 0.1}")                                         \
    X(choice, reward_type, "reward_type", "null", "batch|sequential",                             \
      "how the published reward_function was called; checked against it")                         \
    X(i64, max_length, "max_length", "null", "[1,)",                                              \
      "DAPO: tokens of the full penalty; longer answers: algorithm.over_length_action")           \
    X(i64, safe_length, "safe_length", "null", "[0,)",                                            \
      "DAPO: tokens without a penalty. It or len_reward_penalty adds {name: length} with these "  \
      "options to the rewards")                                                                   \
    X(f64, len_reward_penalty, "len_reward_penalty", "null", "[0,)",                              \
      "DAPO: the full penalty; 0 switches it off; null: 0.1")                                     \
    X(f64, correct, "correct", "null", "?",                                                       \
      "DAPO: score of a right answer, of each reward that judges right and wrong; it, incorrect " \
      "and scale null: as each reward scores; one of them set: 1.0")                              \
    X(f64, incorrect, "incorrect", "null", "?", "of a wrong one; null beside the others: -1.0")   \
    X(f64, scale, "scale", "null", "?", "factor of both; null beside the others: 1.0")            \
    X(flag, skip_special_tokens, "skip_special_tokens", "true", "",                               \
      "judge the response without special tokens")                                                \
    X(f64, unfinished_score, "unfinished_score", "null", "?",                                     \
      "total score of a response cut by length; null: judged like others")
ARES_OPTION_STRUCT(ares_reward_config, ARES_REWARD_OPTIONS);
ares_option_table ares_reward_options;

/* ---------------- manager (reward.c)
 * An entry of `rewards` names a verifier, or says `function: path.so:symbol`, or `command:
 * [words]`. score = sum of weight x score. A response that an entry cannot judge (bad ground truth,
 * a process that fails) gets the entry's failure_score; training goes on.
 */
typedef struct ares_reward ares_reward;
/* Binds and checks every entry (faults go to cfg); starts children lazily. pool may be NULL. */
int ares_reward_open(ares_config *cfg, const ares_reward_config *rc, ares_pool *pool,
                     ares_reward **out);
void ares_reward_close(ares_reward *r);
int ares_reward_count(const ares_reward *r);
const char *ares_reward_name(const ares_reward *r, int i); /* as in metrics: reward/<name> */
/* Every row of a data set can be judged; the first that cannot is named with file and line. */
int ares_reward_check_rows(const ares_reward *r, const ares_dataset *d);
/*
 * Tokens beyond which an answer is too long, from worker.reward.max_length or the entry that
 * penalises length; ARES_NULL_I64: no limit.
 */
int64_t ares_reward_max_length(const ares_reward *r);
/*
 * Queues one response (score and parts are filled by ares_reward_wait); it may be judged while
 * others decode. Texts are borrowed until then.
 */
typedef struct ares_reward_item {
    ares_verify_in in;
    float score, accuracy;
    /* the score without any penalty of length: by which groups are filtered (dapo.md 5.1) */
    float unshaped;
    float *parts; /* [ares_reward_count] */
    bool failed;  /* a reward could not judge it; scored by its policy */
} ares_reward_item;
void ares_reward_submit(ares_reward *r, ares_reward_item *item);
/* All queued are done. What could not be judged has its entry's failure_score, and is told. */
void ares_reward_wait(ares_reward *r);
/*
 * A collective: what the responses waited for since the last report were, over all ranks; names
 * begin with prefix. Of every verifier that judged: reward/<name>/mean, reward/<name>/accuracy,
 * reward/failed/<name> (a number); of all: reward/exhausted (a number), reward/extract_fail_rate,
 * the verifiers' own values; with users' processes reward/replayable, 0 when a clock decided a
 * score. w may be NULL.
 */
int ares_reward_report(ares_reward *r, ares_world *w, const char *prefix, ares_metrics *m);

/* ---------------- shapers (shape.c, shape/): what the verifier of the same name adds to a score
 * later */
typedef struct ares_shaper {
    const char *name, *doc, *metric; /* metric: what the mean of what it adds is called */
    /* from what the controls have written of the sample */
    double (*shape)(const ares_sample *s);
} ares_shaper;
const ares_shaper *ares_shaper_find(const char *name); /* NULL: that verifier has none */

/*
 * The controls have seen the batch: shaping rewards add to the scores of samples that count, times
 * their weights. Means go to the metrics of the next report, with reward/inverted_frac: the share
 * of right answers (accuracy 1) that score below the best other one of their group; a tie is not
 * below.
 */
void ares_reward_shape(ares_reward *r, ares_batch *b);
bool ares_reward_shapes(const ares_reward *r); /* whether any does */
/* what shaping would add to the sample's score; counted nowhere */
double ares_reward_shaping(const ares_reward *r, const ares_sample *s);

/*
 * The C function of a user's shared object, declared `double NAME(const char *response, const char
 * *ground_truth, const char *row_json);` NaN counts as a failure. Texts end at their first NUL. It
 * runs in a child process (`ares-train __reward`), never in the trainer.
 */
int ares_reward_child_main(int argc, char **argv);
#endif
