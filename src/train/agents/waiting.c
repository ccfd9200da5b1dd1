/* A thread per call: starting one takes microseconds, and what it waits for at least as long. */
#include "agents/waiting.h"

#include <signal.h>
#include <stdio.h>

void waiting_init(waiting *w)
{
    *w = (waiting){ 0 };
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->returned, NULL);
}

void waiting_fini(waiting *w)
{
    while (waiting_next(w, true)) {}
    pthread_cond_destroy(&w->returned);
    pthread_mutex_destroy(&w->lock);
}

static void *call(void *x)
{
    wait_call *c = x;
    waiting *w = c->of;
    c->rc = c->ask(c->x);
    /* the message is this thread's */
    if (c->rc != ARES_OK) snprintf(c->message, sizeof c->message, "%s", ares_error_message());
    pthread_mutex_lock(&w->lock);
    c->next = w->done;
    w->done = c;
    pthread_cond_signal(&w->returned);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

void waiting_ask(waiting *w, wait_call *c)
{
    sigset_t every, before;
    c->of = w;
    w->running++;
    sigfillset(&every); /* signals are for the main thread */
    pthread_sigmask(SIG_SETMASK, &every, &before);
    c->threaded = pthread_create(&c->thread, NULL, call, c) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!c->threaded) call(c); /* the system has no more threads: one after the other */
}

wait_call *waiting_next(waiting *w, bool block)
{
    pthread_mutex_lock(&w->lock);
    while (block && w->running && !w->done) pthread_cond_wait(&w->returned, &w->lock);
    wait_call *c = w->done;
    if (c) w->done = c->next;
    pthread_mutex_unlock(&w->lock);
    if (!c) return NULL;
    w->running--;
    if (c->threaded) pthread_join(c->thread, NULL);
    return c;
}
