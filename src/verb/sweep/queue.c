/*
 * The queue: a fixed number of workers, each a group of cards or a share of the CPUs, take the next
 * run of one list until it is empty. Every run is a child in a process group of its own, so that
 * Ctrl-C on the terminal reaches this process alone, which passes it on: the children save and end.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "ares/dist.h"
#include "queue.h"

/* ---------------------------------------------------------------- beginning and end of a run */
static void say(const sweep_queue *q, const sweep_run *r, const char *what)
{
    printf("[%d/%d] %s %s\n", (int)(r - q->s->runs) + 1, q->s->n, what, r->name);
    fflush(stdout);
}

static int start(sweep_queue *q, sweep_worker *w)
{
    while (q->next < q->s->n && q->s->runs[q->next].state == SWEEP_DONE)
        say(q, &q->s->runs[q->next++], "is finished:");
    if (q->next == q->s->n) return ARES_OK;
    sweep_run *r = &q->s->runs[q->next++];
    ARES_TRY(sweep_spawn(q, w, r));
    w->run = r;
    w->started = ares_now_s();
    r->state = SWEEP_RUNNING;
    r->gpu = w->label;
    say(q, r, r->goes_on ? "goes on:" : "starts:");
    return sweep_write_manifest(q->s);
}

/* The last line of a log that has text, of what came after its first `from` bytes. */
static const char *last_line(sweep *s, const char *path, size_t from)
{
    ares_str text = { 0 };
    if (ares_file_read(path, &text) != ARES_OK) return "no log";
    from = ARES_MIN(from, text.len);
    ares_view all = ares_view_trim((ares_view){ text.data + from, text.len - from });
    size_t begin = all.len;
    while (begin && all.data[begin - 1] != '\n') begin--;
    const char *line = "it wrote nothing";
    if (all.len > begin)
        line = ares_arena_copy(&s->arena, all.data + begin, ARES_MIN(all.len - begin, (size_t)400));
    ares_str_fini(&text);
    return line;
}

static bool has_done(const sweep_run *r)
{
    ares_str path = { 0 };
    bool done = ares_file_exists(ares_path_join(&path, r->run_dir, "DONE"));
    ares_str_fini(&path);
    return done;
}

static bool by_signal(const sweep_queue *q, int status)
{
    int code = WIFSIGNALED(status) ? ares_signal_exit_code(WTERMSIG(status)) : WEXITSTATUS(status);
    return q->signals && (code == 128 + SIGHUP || code == 128 + SIGINT || code == 128 + SIGTERM ||
                          code == 128 + SIGKILL);
}

static int end(sweep_queue *q, sweep_worker *w, int status)
{
    sweep_run *r = w->run;
    r->wall_s += ares_now_s() - w->started;
    w->free_at = ares_now_s() + q->s->o.cooldown;
    w->pid = 0;
    w->run = NULL;
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (good && has_done(r)) r->state = SWEEP_DONE;
    else if (by_signal(q, status)) r->state = SWEEP_STOPPED;
    else {
        r->state = SWEEP_FAILED;
        r->why = WIFSIGNALED(status)
                     ? ares_arena_printf(&q->s->arena, "killed by signal %d (%s)", WTERMSIG(status),
                                         strsignal(WTERMSIG(status)))
                     : last_line(q->s, r->log, w->log_bytes);
    }
    say(q, r,
        r->state == SWEEP_DONE     ? "finished:"
        : r->state == SWEEP_FAILED ? "failed:"
                                   : "stopped:");
    /* first the manifest: a result that is missing is made from it */
    ARES_TRY(sweep_write_manifest(q->s));
    return r->state == SWEEP_STOPPED ? ARES_OK : sweep_record(q->s, r);
}

static int reap(sweep_queue *q)
{
    for (int i = 0; i < q->n_workers; i++) {
        int status;
        sweep_worker *w = &q->workers[i];
        if (w->pid && waitpid(w->pid, &status, WNOHANG) == w->pid) ARES_TRY(end(q, w, status));
    }
    return ARES_OK;
}

/* ---------------------------------------------------------------- the loop */
static int running(const sweep_queue *q)
{
    int n = 0;
    for (int i = 0; i < q->n_workers; i++) n += q->workers[i].pid != 0;
    return n;
}

static void pass_on(sweep_queue *q, int signal)
{
    int n = running(q);
    if (signal == SIGHUP && q->signals) return; /* it comes twice where a terminal closes */
    if (signal == SIGHUP) ares_signal_lose_readers();
    if (!q->signals++) q->first_signal = signal;
    if (q->signals == 1 && n)
        printf("stopping: %d %s to the end of a step and %s; a second Ctrl-C ends at once\n", n,
               n > 1 ? "runs go on" : "run goes on", n > 1 ? "save" : "saves");
    fflush(stdout);
    for (int i = 0; i < q->n_workers; i++)
        if (q->workers[i].pid) kill(q->workers[i].pid, q->signals > 2 ? SIGKILL : signal);
}

/* Waits for a signal, at most until a worker has cooled down. */
static int wait_for(const sweep_queue *q, const sigset_t *set)
{
    double until = 0, now = ares_now_s();
    for (int i = 0; i < q->n_workers; i++) {
        const sweep_worker *w = &q->workers[i];
        if (!w->pid && w->free_at > now && (!until || w->free_at < until)) until = w->free_at;
    }
    if (!until) return sigwaitinfo(set, NULL);
    double seconds = until - now;
    struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
    return sigtimedwait(set, NULL, &t);
}

static int start_idle(sweep_queue *q)
{
    for (int i = 0; i < q->n_workers && !q->signals; i++)
        if (!q->workers[i].pid && q->workers[i].free_at <= ares_now_s())
            ARES_TRY(start(q, &q->workers[i]));
    return ARES_OK;
}

static bool is_over(const sweep_queue *q)
{
    return !running(q) && (q->signals || q->next == q->s->n);
}

static int loop(sweep_queue *q, const sigset_t *set)
{
    ARES_TRY(start_idle(q));
    while (!is_over(q)) {
        int signal = wait_for(q, set);
        if (signal == SIGCHLD) ARES_TRY(reap(q));
        else if (signal > 0) pass_on(q, signal);
        ARES_TRY(start_idle(q));
    }
    return ARES_OK;
}

/* After a failure of the sweep itself, such as a full disk, children are not left behind. */
static void stop_children(sweep_queue *q)
{
    for (int i = 0; i < q->n_workers; i++)
        if (q->workers[i].pid) kill(q->workers[i].pid, SIGTERM);
    for (int i = 0; i < q->n_workers; i++)
        while (q->workers[i].pid && waitpid(q->workers[i].pid, NULL, 0) < 0 && errno == EINTR) {}
}

int sweep_work(sweep *s, int *signal)
{
    sweep_queue q;
    sigset_t set, before;
    ARES_TRY(sweep_open_queue(&q, s));
    ares_signal_block(&set, &before);
    int rc = loop(&q, &set);
    if (rc != ARES_OK) stop_children(&q);
    sigprocmask(SIG_SETMASK, &before, NULL);
    *signal = q.first_signal;
    return rc;
}
