/*
 * The reward manager from inside. A response is a job: each entry of worker.reward.rewards judges
 * it and leaves a verdict; ares_reward_wait adds the verdicts up.
 *
 *   entries.c   opens the entries          judging.c   runs them
 *   scores.c    verdicts -> scores         shaping.c   what the batch adds to a score
 */
#ifndef ARES_REWARD_MANAGER_H
#define ARES_REWARD_MANAGER_H

#include "ares/reward.h"

#include "child_queue.h"
#include "tally.h"

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
/* The answer that details tell, for majorities; NULL: they tell none. (judging.c) */
char *reward_answer_of(ares_view members);

typedef struct reward_job {
    struct ares_reward *owner;
    ares_reward_item *item;
    reward_call *calls;       /* [entries], filled for users' processes */
    reward_verdict *verdicts; /* [entries + 1], the last one of worker.reward.accuracy */
    _Atomic int left;         /* verdicts to come; those of built-in verifiers are one */
} reward_job;
void reward_job_free(reward_job *j);

struct ares_reward {
    ares_reward_config cfg;
    int64_t max_length; /* ares_reward_max_length */
    ares_pool *pool;
    reward_entry *entries;
    int n;
    bool users; /* an entry is a process */
    bool calls_python;
    bool tells_ids; /* one of them reads the token ids of responses */
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

/* Fills r->entries, r->n, r->users and r->tells_ids from r->cfg; faults go to cfg. */
void reward_open_entries(ares_config *cfg, ares_reward *r);
void reward_entry_fini(reward_entry *e);
/*
 * The score of a right or a wrong answer: worker.reward.correct, incorrect and scale in place of
 * the verifier's own (docs/dapo.md#reward-of-an-answer). (scores.c)
 */
double reward_score(const ares_reward_config *c, bool right, double own);
/* ares_judge_new; a name that is no verifier's is a fault of the option at path. */
int reward_open_judge(ares_config *cfg, const char *path, const char *name, ares_judge **out);
#endif
