/*
 * reward: the reward manager. Scores responses with built-in verifiers on the thread pool and with
 * users' rewards in child processes (docs/rewards.md).
 */
#ifndef ARES_REWARD_H
#define ARES_REWARD_H

#include "ares/config.h"
#include "ares/core.h"
#include "ares/data.h"
#include "ares/dist.h"
#include "ares/grade.h"

/* ---------------- options: worker.reward.* */
#define ARES_REWARD_OPTIONS(X)                                                                    \
    X(tree, rewards, "rewards", "null", "list",                                                   \
      "rewards that add up, as in [{name: boxed, weight: 0.9}, {name: format, weight: 0.1, "      \
      "pattern: ...}]; null: [{name: exact}]")                                                    \
    X(text, accuracy, "accuracy", "null", "nonempty",                                             \
      "verifier whose 0 or 1 is a sample's accuracy; null: the first of the rewards that judges " \
      "right and wrong")                                                                          \
    X(text, reward_function, "reward_function", "null", "nonempty",                               \
      "in place of rewards: FILE.py:NAME, a Python function of verl's or EasyR1's form; or a "    \
      "published one by name: aepo, math, dapo, r1v")                                             \
    X(text, reward_function_name, "reward_function_name", "null", "nonempty",                     \
      "NAME, where reward_function is a file alone; null: compute_score, or main")                \
    X(tree, reward_function_kwargs, "reward_function_kwargs", "{}", "map",                        \
      "keyword arguments of reward_function, as in {format_weight: 0.1}")                         \
    X(choice, reward_type, "reward_type", "null", "batch|sequential",                             \
      "how EasyR1 calls the reward_function; null: as its REWARD_TYPE says, else batch")          \
    X(texts, reward_funcs, "reward_funcs", "[]", "nonempty",                                      \
      "in place of rewards, as TRL names them: accuracy_reward, think_format_reward, "            \
      "MODULE.NAME or FILE.py:NAME")                                                              \
    X(f64s, reward_weights, "reward_weights", "[]", "", "of reward_funcs; []: 1 for each")        \
    X(text, python, "python", "python3", "nonempty",                                              \
      "interpreter of Python functions: that of the environment with what they import")           \
    X(i64, max_length, "max_length", "null", "[1,)",                                              \
      "tokens from which DAPO's penalty of length is full; longer answers are discarded, "        \
      "whatever "                                                                                 \
      "the algorithm (algorithm.over_length_action)")                                             \
    X(i64, safe_length, "safe_length", "null", "[0,)",                                            \
      "DAPO: tokens without a penalty of length; setting it or len_reward_penalty adds {name: "   \
      "length} with these options to the rewards")                                                \
    X(f64, len_reward_penalty, "len_reward_penalty", "null", "[0,)",                              \
      "DAPO: the full penalty of length; 0 switches it off; null: 0.1")                           \
    X(f64, correct, "correct", "null", "?",                                                       \
      "DAPO: score of a right answer, for each reward that judges right and wrong; null: 1.0, "   \
      "or the reward's own score where incorrect and scale are null too")                         \
    X(f64, incorrect, "incorrect", "null", "?",                                                   \
      "DAPO: score of a wrong answer, for each reward that judges right and wrong; null: -1.0, "  \
      "or the reward's own score where correct and scale are null too")                           \
    X(f64, scale, "scale", "null", "?", "DAPO: factor of correct and incorrect; null: 1.0")       \
    X(choice, on_failure, "on_failure", "discard", "discard|score",                               \
      "a response that could not be judged: discard: no part of its group's comparison and of "   \
      "the "                                                                                      \
      "loss; score: it gets the failure_score of the entry")                                      \
    X(f64, max_failed_frac, "max_failed_frac", "0.5", "[0,1]",                                    \
      "a step in which a larger share of the responses could not be judged ends the run, saved")  \
    X(flag, skip_special_tokens, "skip_special_tokens", "true", "",                               \
      "remove special tokens from a response before it is judged")                                \
    X(f64, unfinished_score, "unfinished_score", "null", "?",                                     \
      "total score of a response cut by length; null: judged like the others")
ARES_OPTION_STRUCT(ares_reward_config, ARES_REWARD_OPTIONS);
ares_option_table ares_reward_options;

/* ---------------- manager
 * An entry of `rewards` names a verifier, or says `function: path.so:symbol` or `command: [words]`.
 * score = sum of weight x the entry's score. A response that an entry cannot judge (bad ground
 * truth, a process that fails) is marked as failed, and training goes on.
 */
typedef struct ares_reward ares_reward;
/*
 * Binds and checks every entry; faults go to cfg. It fails when it has found one itself, not for
 * faults that were there before. Children start with their first response. pool may be NULL:
 * responses are then judged on the calling thread.
 */
int ares_reward_open(ares_config *cfg, const ares_reward_config *rc, ares_pool *pool,
                     ares_reward **out);
/* A manager without rewards: scores come from somewhere else. Never fails. */
ares_reward *ares_reward_open_none(void);
void ares_reward_close(ares_reward *r);
int ares_reward_count(const ares_reward *r);               /* entries */
const char *ares_reward_name(const ares_reward *r, int i); /* as in metrics: reward/<name> */
/*
 * Fails for the first row of a data set that cannot be judged, with its file and line: its ground
 * truth is none for a verifier, it names no verifier, or (need_accuracy) nothing gives its answers
 * an accuracy.
 */
int ares_reward_check_rows(const ares_reward *r, const ares_dataset *d, bool need_accuracy);
/* Whether a row needs a ground truth. Functions of TRL's form read the row's own keys instead. */
bool ares_reward_reads_truth(const ares_reward *r);
/*
 * Tokens beyond which a response is too long, from worker.reward.max_length or the entry that
 * penalises length; ARES_NULL_I64: no limit.
 */
int64_t ares_reward_max_length(const ares_reward *r);
/*
 * What a right and a wrong answer earn, and the full penalty of length. false: no entry has scores
 * that are known beforehand, or one is a user's process, which may give any.
 */
bool ares_reward_worth(const ares_reward *r, double *right, double *wrong, double *penalty);

/* Whether one of the rewards is a function of Python. */
bool ares_reward_calls_python(const ares_reward *r);
/*
 * Whether responses may get an accuracy: a verifier judges right and wrong, worker.reward.accuracy
 * names one, or a user's process may say so.
 */
bool ares_reward_judges(const ares_reward *r);

typedef struct ares_reward_item {
    ares_verify_in in; /* its texts are borrowed until ares_reward_wait */
    /* written by ares_reward_wait: */
    float score, accuracy;
    /* the score without any penalty of length: groups are filtered by it
     * (docs/dapo.md#informative-groups) */
    float unshaped;
    /*
     * [ares_reward_count] the entries' scores; of one that could not judge it failure_score, or NaN
     * where on_failure is discard
     */
    float *parts;
    bool failed;       /* an entry could not judge it */
    ares_arena *arena; /* the caller's, for details; NULL: they are not written */
    /*
     * What users' processes answered, and failures, as a JSON object by entry; empty: nothing
     */
    ares_view details;
    /* what the first user's process that says so has as its "feedback", in the arena; or empty */
    ares_view feedback;
    /*
     * asks_answer is set by the caller, for methods that count the answers of a group. answer is
     * what the verifier has found in the response, or `pred` of a user's process, in the arena;
     * data NULL: no entry tells it.
     */
    bool asks_answer;
    ares_view answer;
} ares_reward_item;
/* Queues one response. Threads of the pool judge it while other responses decode. */
void ares_reward_submit(ares_reward *r, ares_reward_item *item);
/* Waits until all queued responses have their scores. Warns of failures. */
void ares_reward_wait(ares_reward *r);
/* The latest failure, as in "judge: ended with exit code 1"; NULL: there was none. */
const char *ares_reward_last_failure(const ares_reward *r);
/*
 * A collective: writes the metrics of the responses scored since the last report, over all ranks;
 * names begin with prefix.
 *
 *   reward/<name>/mean, reward/<name>/accuracy    per verifier that judged
 *   reward/<name>/<field>                         numbers that a user's process tells beside
 *   reward/failed/<name>                          responses it could not judge
 *   reward/exhausted                              responses whose work budget ended
 *   reward/extract_fail_rate                      share of responses without an answer
 *   reward/replayable                             with users' processes: 0 when a time-out decided
 *                                                 a score, else 1
 *
 * and the verifiers' own values. w may be NULL.
 */
int ares_reward_report(ares_reward *r, ares_world *w, const char *prefix, ares_metrics *m);

bool ares_reward_users(const ares_reward *r); /* whether an entry is a user's process */
/*
 * Starts every process and shows it the row, with its ground truth as the response. ARES_ECHILD:
 * one fails, and why. The scores that they give are not used.
 */
int ares_reward_try(ares_reward *r, const ares_row *row);

/* ---------------- shaping
 * Some verifiers add to their score once the controls have seen the batch, as `aepo` does
 * (docs/aepo.md#entropy-score).
 */
bool ares_reward_shapes(const ares_reward *r); /* whether any entry does */
/*
 * Adds what the shapers give, times the entries' weights, to the scores of the samples that count
 * (ares_batch_row_counts). The next report has the means, and reward/inverted_frac: the share of
 * right answers (accuracy 1) that score below the best other answer of their group; a tie is not
 * below.
 */
void ares_reward_shape(ares_reward *r, ares_batch *b);
/* What shaping would add to the sample's score; no metric counts it. */
double ares_reward_shaping(const ares_reward *r, const ares_sample *s);

/*
 * `ares-train __reward FILE.so SYMBOL`: the child process that runs the C function of a user's
 * shared object, declared
 *
 *     double NAME(const char *response, const char *ground_truth, const char *row_json);
 *
 * NaN counts as a failure. Texts end at their first NUL.
 */
int ares_reward_child_main(int argc, char **argv);
#endif
