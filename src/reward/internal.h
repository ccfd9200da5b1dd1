/*
 * Private to reward: the reward manager from inside, with users' programs, sums for metrics,
 * shapers and AEPO's entropy score. Verifiers include verifier.h instead.
 */
#ifndef ARES_REWARD_INTERNAL_H
#define ARES_REWARD_INTERNAL_H

#include "ares/data.h"
#include "ares/dist.h"
#include "ares/reward.h"

/*
 * A user's reward in processes of its own, which answer JSON lines with JSON lines in order
 * (docs/rewards.md#a-reward-of-your-own).
 */

typedef struct reward_child reward_child;
typedef struct reward_child_options {
    const char *name;       /* for messages */
    char *const *argv;      /* NULL-terminated; argv[0] is looked up in PATH */
    double timeout_s;       /* for one response, counted from when it is next in line */
    double start_timeout_s; /* more for the first answer of a process */
    int64_t memory_bytes;   /* address space of a process; 0: no limit */
    int64_t processes;      /* lines go to them in turn; 0: one */
    bool batch;             /* a line is an array of what was sent, its answer an array as long */
} reward_child_options;

/* The result of one response. */
typedef struct reward_call {
    double score, accuracy; /* accuracy NaN: the answer has none */
    char *said;             /* the answer, where it is an object; ares_free it */
    bool abstains;          /* it has no score, and leaves the response to the other rewards */
    bool failed;
    char why[400]; /* why it failed */
} reward_call;

reward_child *reward_child_new(const reward_child_options *o); /* starts nothing yet */
void reward_child_free(reward_child *c);
/*
 * Queues one line and sends what the pipe takes without waiting. reward_child_wait writes the
 * result and calls reward_judged(left), where left is not NULL.
 */
void reward_child_send(reward_child *c, ares_view line, reward_call *result, _Atomic int *left);
/* Counts one of the verdicts that a response waits for; the last one is shown as progress. */
void reward_judged(_Atomic int *left);
/*
 * Waits until every line queued for the children [n] has its result; starts processes again after a
 * failure. *timed_out is set when a time-out decided a result.
 */
void reward_child_wait(reward_child *const *children, int n, bool *timed_out);

/*
 * Sums that the metrics of rewards are made of: name -> (sum, count), added up over batches and
 * over ranks.
 */

/* the metric is sum / count; the sum; or 1 while the sum is 0, else 0 */
typedef enum { TALLY_MEAN, TALLY_TOTAL, TALLY_NEVER } tally_kind;
typedef struct tally tally;
tally *tally_new(void);
void tally_free(tally *t);
void tally_add(tally *t, tally_kind kind, double sum, double count, const char *format, ...)
    ARES_PRINTF(5, 6);
/*
 * A collective: merges the ranks' sums in rank order, sets the metrics prefix + name, and clears t.
 */
int tally_report(tally *t, ares_world *w, const char *prefix, ares_metrics *m);

/*
 * The reward manager from inside. A response is a job: each entry of worker.reward.rewards judges
 * it and leaves a verdict; ares_reward_wait adds the verdicts up (reward.c).
 */

#define REWARD_ENTRY_OPTIONS(X)                                                                    \
    X(text, name, "name", "null", "",                                                              \
      "a built-in verifier; with function or command: its name in metrics")                        \
    X(text, as, "as", "null", "nonempty",                                                          \
      "its name in metrics, where two entries have the same verifier; null: name")                 \
    X(f64, weight, "weight", "1.0", "",                                                            \
      "factor of its score in the sum; 0: it judges for its metrics alone")                        \
    X(text, function, "function", "null", "nonempty",                                              \
      "FILE.so:SYMBOL, a C function of your own (examples/reward_function), or FILE.py:NAME, a "   \
      "Python function (docs/rewards.md#a-python-function)")                                       \
    X(tree, kwargs, "kwargs", "{}", "map", "keyword arguments of a Python function")               \
    X(choice, form, "form", "auto", "auto|verl|easyr1|trl",                                        \
      "whose form a Python function has; auto: as its parameters say")                             \
    X(texts, command, "command", "[]", "",                                                         \
      "program and arguments: reads JSON lines, answers each with one "                            \
      "(examples/reward_command)")                                                                 \
    X(f64, timeout_s, "timeout_s", "10", "(0,)", "function and command: seconds for one response") \
    X(f64, start_timeout_s, "start_timeout_s", "60", "[0,)",                                       \
      "function and command: seconds more for the first answer of a process, its start included")  \
    X(i64, processes, "processes", "1", "[1,1024]",                                                \
      "function and command: processes that are asked side by side")                               \
    X(flag, batch, "batch", "false", "",                                                           \
      "command: a line is an array of questions, its answer an array as long, in their order")     \
    X(i64, memory_mb, "memory_mb", "null", "[16,)",                                                \
      "function and command: MiB of address space; null: 4096, for Python functions no limit")     \
    X(f64, failure_score, "failure_score", "null", "",                                             \
      "with on_failure: score, the score of a response that could not be judged (bad ground "      \
      "truth, a failed process); null: 0")
ARES_OPTION_STRUCT(reward_entry_options, REWARD_ENTRY_OPTIONS);

/* Either a verifier in this process (judge) or a user's process (child). */
typedef struct reward_entry {
    reward_entry_options o;
    ares_judge *judge;
    reward_child *child;
    char *name;       /* in metrics */
    ares_map *fields; /* numbers of its answers that are metrics; NULL: none yet */
    bool told_fields; /* that there are too many of them */
} reward_entry;

/* What one entry found about one response. */
typedef struct reward_verdict {
    double score, plain, accuracy; /* as in ares_verify_out */
    const char *judged_by;
    char *failure;                       /* why it could not judge; NULL: it did */
    char *said;                          /* a process's answer, where it is an object; else NULL */
    bool no_answer, exhausted, abstains; /* abstains: has no score, and that is no failure */
    ares_verify_value *values;
    int n_values;
    char *answer; /* where the item asks for it; NULL: it tells none */
} reward_verdict;

typedef struct reward_job {
    struct ares_reward *owner;
    ares_reward_item *item;
    reward_call *calls;       /* [entries], filled for users' processes */
    reward_verdict *verdicts; /* [entries + 1], the last one of worker.reward.accuracy */
    _Atomic int left;         /* verdicts to come; those of built-in verifiers are one */
} reward_job;

struct ares_reward {
    ares_reward_config cfg;
    int64_t max_length; /* ares_reward_max_length */
    ares_pool *pool;
    reward_entry *entries;
    int n;
    bool users; /* an entry is a process */
    bool calls_python;
    bool tells_ids; /* a Python function reads the token ids of responses */
    /* entry whose accuracy counts; -1: the first that judges right and wrong, or accuracy_judge */
    int accuracy_entry;
    ares_judge *accuracy_judge;
    reward_job **jobs;
    int64_t n_jobs, capacity;
    bool discards; /* on_failure: what could not be judged has no score */
    char *last_failure;
    tally *tally;
    ares_str line; /* the line in hand for users' processes */
};

/* The reward functions published with EasyR1 and ARES, by their names in configurations. */

/*
 * The verifier that worker.reward.reward_function stands for; NULL after a fault. Checks
 * reward_type too (docs/rewards.md#published-reward-functions).
 */
const char *reward_function_verifier(ares_config *cfg, const ares_reward_config *rc);

/* Shapers: what the verifier of the same name adds to a score once the controls have seen the
 * batch. */

typedef struct reward_shaper {
    const char *name, *doc;
    const char *metric; /* name of the mean of what it adds */
    /* what to add, from what the controls have written into the sample */
    double (*shape)(const ares_sample *s);
} reward_shaper;

/*
 * AEPO's entropy score (docs/aepo.md#entropy-score), in double. Right answers to easy prompts get a
 * penalty for too many HWE tokens, those to medium prompts one for being off the target in either
 * direction, those to hard prompts a bonus that turns into a penalty far below the target. Wrong
 * answers get a share of the cap for exploring.
 */

/* x^2 / (2 kappa) up to kappa, then x - kappa / 2; 0 below 0 */
double entropy_huber(double x, double kappa);
/* 1 / (1 + exp(-x / temperature)), the temperature at least 1e-6 */
double entropy_sigmoid(double x, double temperature);
/* max(least, frac x max(target, 1)) */
double entropy_margin(double target, double frac, double least);

typedef struct entropy_score_parts {
    double delta;         /* hwe - target */
    double margin;        /* deviation without a penalty */
    double cap;           /* the largest penalty or bonus */
    double entropy_score; /* 0 for a difficulty that is none of the three */
    double overall;       /* accuracy + entropy_score */
} entropy_score_parts;
/*
 * hwe: the answer's number of HWE tokens; target: what it should be; alpha: weight of the score. An
 * answer is right when its accuracy is exactly 1.
 */
entropy_score_parts entropy_score(ares_difficulty d, double accuracy, double hwe, double target,
                                  double alpha);
#endif
