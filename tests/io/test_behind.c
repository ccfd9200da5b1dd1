/* Jobs of a thread beside the program. */
#include <stdatomic.h>

#include "ares/io.h"
#include "test.h"

typedef struct task {
    int *order, *n; /* who was done, in order */
    int number, rc;
} task;

static int do_task(void *ctx)
{
    task *t = ctx;
    t->order[(*t->n)++] = t->number;
    return t->rc == ARES_OK ? ARES_OK : ares_fail(t->rc, "task %d failed", t->number);
}

TEST(jobs_are_done_in_order_and_the_first_failure_is_told)
{
    enum { JOBS = 100 };
    for (int begun = 0; begun < 2; begun++) {
        int order[JOBS], n = 0;
        task tasks[JOBS];
        ares_behind *b = ares_behind_new();
        for (int i = 0; i < JOBS; i++) {
            tasks[i] = (task){ order, &n, i, i == 40 ? ARES_EIO : i == 70 ? ARES_ELIMIT : ARES_OK };
            ares_behind_post(b, do_task, &tasks[i]);
        }
        CHECK(!ares_behind_done(b));
        if (begun) ares_behind_begin(b);
        CHECK_FAIL(ares_behind_end(b), ARES_EIO, "task 40 failed");
        CHECK_EQ(n, JOBS);
        for (int i = 0; i < n; i++) CHECK_EQ(order[i], i);
    }
    CHECK_OK(ares_behind_end(NULL));
}

static int wait_for(void *ctx)
{
    while (!atomic_load((atomic_bool *)ctx)) continue;
    return ARES_OK;
}

TEST(who_begins_jobs_goes_on_while_they_are_done)
{
    atomic_bool go = false;
    ares_behind *b = ares_behind_new();
    ares_behind_post(b, wait_for, &go);
    ares_behind_begin(b);
    CHECK(!ares_behind_done(b));
    atomic_store(&go, true);
    CHECK_OK(ares_behind_end(b));
}
