/*
 * A user's reward in processes of its own, which answer JSON lines with JSON lines in order
 * (docs/rewards.md#a-reward-of-your-own).
 */
#ifndef ARES_REWARD_CHILD_QUEUE_H
#define ARES_REWARD_CHILD_QUEUE_H

#include "ares/reward.h"

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
 * result. left (may be NULL): as of reward_judged.
 */
void reward_child_send(reward_child *c, ares_view line, reward_call *result, _Atomic int *left);
/* One of the verdicts that a response waits for is there; the last of them is progress. */
void reward_judged(_Atomic int *left);
/*
 * Waits until every line queued for the children [n] has its result; starts processes again after a
 * failure. *timed_out is set when a time-out decided a result.
 */
void reward_child_wait(reward_child *const *children, int n, bool *timed_out);
#endif
