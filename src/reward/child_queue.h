/* A user's reward in a process of its own, which answers JSON lines with JSON lines in order. */
#ifndef ARES_REWARD_CHILD_QUEUE_H
#define ARES_REWARD_CHILD_QUEUE_H

#include "ares/reward.h"

typedef struct reward_child reward_child;
typedef struct reward_child_options {
    const char *name;     /* for messages */
    char *const *argv;    /* NULL-terminated; argv[0] is looked up in PATH */
    double timeout_s;     /* for one response, counted from when it is next in line */
    int64_t memory_bytes; /* address space; 0: no limit */
} reward_child_options;

/* The result of one response. */
typedef struct reward_call {
    double score, accuracy;
    bool failed;
    char why[160]; /* why it failed */
} reward_call;

reward_child *reward_child_new(const reward_child_options *o); /* starts nothing yet */
void reward_child_free(reward_child *c);
/*
 * Queues one line and sends what the pipe takes without waiting. reward_child_wait writes the
 * result.
 */
void reward_child_send(reward_child *c, ares_view line, reward_call *result);
/*
 * Waits until every queued line has its result; starts the process again after a failure.
 * *timed_out is set when a time-out decided a result.
 */
void reward_child_wait(reward_child *c, bool *timed_out);
#endif
