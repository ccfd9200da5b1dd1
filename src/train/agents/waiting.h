/*
 * Calls that wait for somebody else, side by side: each on a thread of its own, because it mostly
 * sleeps (the threads that compute are the pool's). (waiting.c)
 */
#ifndef ARES_TRAIN_AGENTS_WAITING_H
#define ARES_TRAIN_AGENTS_WAITING_H

#include <pthread.h>

#include "ares/core.h"

typedef struct waiting waiting;

/* One call, in memory of the caller's that lives until waiting_next has returned it. */
typedef struct wait_call {
    int (*ask)(void *x);
    void *x;
    int rc; /* what ask returned */
    char message[512];
    /* private */
    waiting *of;
    pthread_t thread;
    bool threaded;
    struct wait_call *next;
} wait_call;

struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t returned;
    wait_call *done;
    int64_t running; /* asked, and not returned by waiting_next */
};

void waiting_init(waiting *w);
/* Waits for all that are running. */
void waiting_fini(waiting *w);
/* Calls ask(x) on another thread. */
void waiting_ask(waiting *w, wait_call *call);
/* A call that has returned, in no special order. NULL: none; with `block`, only if none is running.
 */
wait_call *waiting_next(waiting *w, bool block);

#endif
