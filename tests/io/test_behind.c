/*
 * Jobs of a thread beside the program: what is promised of them holds; and where it did not, these
 * checks would see it. To show that, write_queue.c is here once more, with faults that a test
 * plants.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "ares/io.h"
#include "test.h"

static void set(atomic_bool *x)
{
    atomic_store(x, true);
}
static bool is_set(const atomic_bool *x)
{
    return atomic_load(x);
}

/* ------------------------------------------------------------------ write_queue.c with faults */
typedef enum {
    NO_FAULT,
    NO_THREAD, /* none is to be had, which is no fault */
    WAITS,     /* begin waits for the jobs */
    REVERSED,  /* the last job first */
    STOPS,     /* at the first failure */
    TELLS_LAST,
    FORGETS_MESSAGE,
    NEVER_DONE,
    DONE_AT_ONCE,
    TAKES_SIGNALS
} fault;
static fault planted;
static atomic_bool in_vain; /* who waits for the other thread waits in vain */

static int create(pthread_t *thread, const pthread_attr_t *how, void *(*work)(void *), void *ctx);
static inline int join(pthread_t thread, void **result)
{
    return planted == WAITS ? 0 : pthread_join(thread, result);
}
static inline int mask(int how, const sigset_t *to, sigset_t *before)
{
    return planted == TAKES_SIGNALS ? 0 : pthread_sigmask(how, to, before);
}
static inline const char *message_of(void)
{
    return planted == FORGETS_MESSAGE ? "" : ares_error_message();
}
static inline void store(atomic_bool *to, bool value)
{
    (void)value;
    set(planted == NEVER_DONE ? &in_vain : to);
}
static inline bool load(const atomic_bool *from)
{
    return planted == DONE_AT_ONCE || is_set(from);
}

#define ares_write_queue_new faulty_new
#define ares_write_queue_post faulty_post
#define ares_write_queue_begin faulty_begin
#define ares_write_queue_done faulty_done
#define ares_write_queue_end faulty_end
#define pthread_create create
#define pthread_join join
#define pthread_sigmask mask
#define ares_error_message message_of
#undef atomic_store
#define atomic_store store
#undef atomic_load
#define atomic_load load
ares_write_queue *faulty_new(void);
void faulty_post(ares_write_queue *b, ares_write_queue_fn *fn, void *ctx);
void faulty_begin(ares_write_queue *b);
bool faulty_done(const ares_write_queue *b);
int faulty_end(ares_write_queue *b);
#include "../../src/core/write_queue.c"
#undef ares_write_queue_new
#undef ares_write_queue_post
#undef ares_write_queue_begin
#undef ares_write_queue_done
#undef ares_write_queue_end
#undef pthread_create
#undef pthread_join
#undef pthread_sigmask
#undef ares_error_message

/* As work, in another order, or to the first failure, or with the message of the last. */
static void *work_wrongly(void *ctx)
{
    ares_write_queue *b = ctx;
    for (int64_t i = 0; i < b->n && !(planted == STOPS && b->rc != ARES_OK); i++) {
        const job *j = &b->jobs[planted == REVERSED ? b->n - 1 - i : i];
        int rc = j->fn(j->ctx);
        if (rc == ARES_OK || (b->rc != ARES_OK && planted != TELLS_LAST)) continue;
        b->rc = rc;
        ares_free(b->message);
        b->message = ares_strdup(ares_error_message());
    }
    set(&b->done);
    return NULL;
}

static int create(pthread_t *thread, const pthread_attr_t *how, void *(*right)(void *), void *ctx)
{
    bool wrong = planted == REVERSED || planted == STOPS || planted == TELLS_LAST;
    if (planted == NO_THREAD) return EAGAIN;
    int rc = pthread_create(thread, how, wrong ? work_wrongly : right, ctx);
    if (planted != WAITS || rc != 0) return rc;
    set(&in_vain);
    return pthread_join(*thread, NULL);
}

typedef struct functions {
    ares_write_queue *(*new)(void);
    void (*post)(ares_write_queue *b, ares_write_queue_fn *fn, void *ctx);
    void (*begin)(ares_write_queue *b);
    bool (*done)(const ares_write_queue *b);
    int (*end)(ares_write_queue *b);
} functions;
static const functions real = { ares_write_queue_new, ares_write_queue_post, ares_write_queue_begin,
                                ares_write_queue_done, ares_write_queue_end },
                       faulty = { faulty_new, faulty_post, faulty_begin, faulty_done, faulty_end };

/* ------------------------------------------------------------------ what is promised */
enum {
    IN_ORDER = 1, /* and each once */
    FIRST_FAILURE = 2,
    GOES_ON = 4, /* who begins jobs, while they are done */
    TOLD = 8,    /* when they are done, and not before */
    NO_SIGNALS = 16
};

enum { JOBS = 100 };
typedef struct task {
    int *order, *n; /* who was done, in order */
    int number, rc;
} task;

static int do_task(void *ctx)
{
    task *t = ctx;
    if (t->number == JOBS - 1) usleep(10000); /* end waits for it */
    if (*t->n < 2 * JOBS) t->order[(*t->n)++] = t->number;
    return t->rc == ARES_OK ? ARES_OK : ares_fail(t->rc, "task %d failed", t->number);
}

/* Which promises a hundred jobs break of which two fail, begun beside the program or done at end.
 */
static int broken_by_tasks(const functions *f, bool begun)
{
    int order[2 * JOBS], n = 0, broken = 0;
    task tasks[JOBS];
    ares_write_queue *b = f->new();
    for (int i = 0; i < JOBS; i++) {
        tasks[i] = (task){ order, &n, i, i == 40 ? ARES_EIO : i == 70 ? ARES_ELIMIT : ARES_OK };
        f->post(b, do_task, &tasks[i]);
    }
    if (f->done(b)) broken |= TOLD;
    if (begun) f->begin(b);
    (void)ares_fail(ARES_EFORMAT, "what the caller failed in before");
    if (f->end(b) != ARES_EIO || strcmp(ares_error_message(), "task 40 failed") != 0)
        broken |= FIRST_FAILURE;
    for (int i = 0; i < n; i++)
        if (order[i] != i) broken |= IN_ORDER;
    return n == JOBS ? broken : broken | IN_ORDER;
}

typedef struct waiting {
    pthread_t caller;
    atomic_bool go, over;
    bool blocked; /* signals are, where the job is done */
    bool beside;  /* the caller went on */
} waiting;

static int wait_for(void *ctx)
{
    waiting *w = ctx;
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    w->blocked = sigismember(&now, SIGINT) == 1 && sigismember(&now, SIGUSR1) == 1;
    if (!pthread_equal(pthread_self(), w->caller))
        while (!is_set(&w->go) && !is_set(&in_vain)) continue;
    w->beside = is_set(&w->go);
    set(&w->over);
    return ARES_OK;
}

static int broken_by_waiting(const functions *f)
{
    waiting w = { .caller = pthread_self() };
    int broken = 0;
    sigset_t before, after;
    atomic_init(&in_vain, false);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    ares_write_queue *b = f->new();
    f->post(b, wait_for, &w);
    f->begin(b);
    if (!is_set(&w.over) && f->done(b)) broken |= TOLD;
    set(&w.go);
    while (!f->done(b) && !is_set(&in_vain)) continue;
    if (!f->done(b)) broken |= TOLD;
    if (f->end(b) != ARES_OK) broken |= FIRST_FAILURE;
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    if (!w.beside) broken |= GOES_ON;
    if (!w.blocked || sigismember(&before, SIGINT) != sigismember(&after, SIGINT))
        broken |= NO_SIGNALS;
    return broken;
}

static int broken_promises(const functions *f)
{
    return broken_by_tasks(f, false) | broken_by_tasks(f, true) | broken_by_waiting(f);
}

TEST(jobs_are_done_in_order_beside_the_program_and_the_first_failure_is_told)
{
    CHECK_EQ(broken_promises(&real), 0);
    CHECK_OK(ares_write_queue_end(NULL));
}

TEST(a_fault_of_what_is_done_beside_the_program_is_seen)
{
    static const struct {
        fault fault;
        int broken;
    } cases[] = {
        { NO_FAULT, 0 },
        { NO_THREAD, GOES_ON | NO_SIGNALS }, /* and nothing else */
        { WAITS, GOES_ON },
        { REVERSED, IN_ORDER | FIRST_FAILURE },
        { STOPS, IN_ORDER },
        { TELLS_LAST, FIRST_FAILURE },
        { FORGETS_MESSAGE, FIRST_FAILURE },
        { NEVER_DONE, TOLD },
        { DONE_AT_ONCE, TOLD | IN_ORDER | FIRST_FAILURE },
        { TAKES_SIGNALS, NO_SIGNALS },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        planted = cases[i].fault;
        int broken = broken_promises(&faulty);
        CHECK_MSG(broken == cases[i].broken, "fault %d breaks %d, not %d", (int)cases[i].fault,
                  broken, cases[i].broken);
    }
    planted = NO_FAULT;
}
