/* Files that a thread writes while the program goes on. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "ares/io.h"

/* What is posted: fn(ctx), on the thread. */
typedef struct job {
    ares_write_queue_fn *fn;
    void *ctx;
} job;

struct ares_write_queue {
    job *jobs;
    int64_t n, cap;
    pthread_t thread;
    bool begun;       /* `thread` runs or has run */
    atomic_bool done; /* all jobs have run */
    int rc;           /* the first failure, and its message */
    char *message;
};

ares_write_queue *ares_write_queue_new(void)
{
    return ares_calloc(1, sizeof(ares_write_queue));
}

/* Only before the thread begins, so the list needs no lock. */
void ares_write_queue_post(ares_write_queue *b, ares_write_queue_fn *fn, void *ctx)
{
    ARES_ASSERT(!b->begun);
    if (b->n == b->cap) {
        b->cap = b->cap * 2 + 64;
        b->jobs = ares_realloc(b->jobs, (size_t)b->cap * sizeof *b->jobs);
    }
    b->jobs[b->n++] = (job){ fn, ctx };
}

/* After a failed job the others run, too, because a job releases what it owns. */
static void *work(void *ctx)
{
    ares_write_queue *b = ctx;
    for (int64_t i = 0; i < b->n; i++) {
        int rc = b->jobs[i].fn(b->jobs[i].ctx);
        if (rc == ARES_OK || b->rc != ARES_OK) continue;
        b->rc = rc;
        b->message = ares_strdup(ares_error_message());
    }
    atomic_store(&b->done, true);
    return NULL;
}

/* Runs the jobs in order on a thread of their own. */
void ares_write_queue_begin(ares_write_queue *b)
{
    sigset_t all, before;
    sigfillset(&all);
    ARES_ASSERT(!b->begun);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the thread that trains */
    b->begun = pthread_create(&b->thread, NULL, work, b) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!b->begun) work(b); /* no thread is to be had: the caller waits */
}

bool ares_write_queue_done(const ares_write_queue *b)
{
    return atomic_load(&b->done);
}

/* Waits for the thread; jobs of a queue that was never begun run here. Frees the queue. */
int ares_write_queue_end(ares_write_queue *b)
{
    if (!b) return ARES_OK;
    if (b->begun) pthread_join(b->thread, NULL);
    else if (!ares_write_queue_done(b)) work(b);
    int rc = b->rc;
    if (rc != ARES_OK) (void)ares_fail(rc, "%s", b->message);
    ares_free(b->message);
    ares_free(b->jobs);
    ares_free(b);
    return rc;
}
