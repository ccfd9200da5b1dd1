/* Workers and their children (worker.c), for the queue that feeds them (queue.c). */
#ifndef ARES_VERB_SWEEP_QUEUE_H
#define ARES_VERB_SWEEP_QUEUE_H

#include <sys/types.h>

#include "sweep.h"

typedef struct sweep_worker {
    const char *cards; /* "0,1"; NULL: the CPU */
    const char *label;
    pid_t pid; /* 0: idle */
    sweep_run *run;
    size_t log_bytes;        /* of its log before it began: those of earlier attempts */
    double started, free_at; /* free_at: when its cooldown is over */
    /* what its log says of its steps: the last one, and the first one that was seen, with its time
     */
    long long step, steps, first_step;
    double first_seen;
} sweep_worker;

typedef struct sweep_queue {
    sweep *s;
    sweep_worker *workers;
    int n_workers, next; /* next: the run to start next */
    int signals, first_signal;
    ares_progress *progress;
    double took; /* seconds of the runs that this command has finished, */
    int ended;   /* and how many they are */
    char self[4096];
} sweep_queue;

/* Finds this program and makes the workers of a sweep, in its arena. */
int sweep_open_queue(sweep_queue *q, sweep *s);
/* Starts a run as a child of the worker; what it prints is appended to its log. */
int sweep_spawn(sweep_queue *q, sweep_worker *w, const sweep_run *r);
#endif
