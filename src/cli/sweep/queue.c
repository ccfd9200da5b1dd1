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
#include <unistd.h>

#include "ares/core_file.h"
#include "ares/dist.h"
#include "queue.h"

/* ---------------------------------------------------------------- beginning and end of a run */
static void say(const sweep_queue *q, const sweep_run *r, const char *what)
{
    ares_say("[%d/%d] %s %s\n", (int)(r - q->s->runs) + 1, q->s->n, what, r->name);
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
    w->step = w->steps = w->first_step = 0;
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
    if (good && has_done(r)) {
        r->state = SWEEP_DONE;
        q->took += ares_now_s() - w->started;
        q->ended++;
    } else if (by_signal(q, status)) r->state = SWEEP_STOPPED;
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
        ares_say("stopping: %d %s to the end of a step and %s; a second Ctrl-C ends at once\n", n,
                 n > 1 ? "runs go on" : "run goes on", n > 1 ? "save" : "saves");
    for (int i = 0; i < q->n_workers; i++)
        if (q->workers[i].pid) kill(q->workers[i].pid, q->signals > 2 ? SIGKILL : signal);
}

/* ---------------------------------------------------------------- how far they are */
enum { TAIL = 8192, LOOK_EVERY_S = 1 };

/* The last "step 12/40 | .." of its log, as a run prints it at the end of a step. */
static void read_step(sweep_worker *w)
{
    char tail[TAIL + 1];
    const char *why;
    int log = ares_file_open(w->run->log, &why);
    if (log < 0) return;
    off_t from = ARES_MAX((off_t)w->log_bytes, lseek(log, 0, SEEK_END) - TAIL);
    ssize_t n = pread(log, tail, TAIL, from);
    close(log);
    tail[ARES_MAX(n, 0)] = 0;
    for (char *at = tail; at; at = strchr(at, '\n')) {
        long long step, steps;
        int read = 0;
        at += *at == '\n';
        if (sscanf(at, "step %lld/%lld |%n", &step, &steps, &read) < 2 || !read) continue;
        if (!w->first_step) {
            w->first_step = step;
            w->first_seen = ares_now_s();
        }
        w->step = step;
        w->steps = steps;
    }
}

/* Seconds that its run goes on; -1: nobody knows yet. */
static double rest_of(const sweep_worker *w)
{
    double done = (double)(w->step - w->first_step);
    if (!(done > 0)) return -1;
    return (ares_now_s() - w->first_seen) / done * (double)(w->steps - w->step);
}

/* Of all runs: those that wait take as long as others took, or will have taken. */
static double rest_of_all(const sweep_queue *q)
{
    double rest = 0, longest = 0, took = q->took;
    int known = q->ended, waiting = 0;
    for (int i = q->next; i < q->s->n; i++) waiting += q->s->runs[i].state != SWEEP_DONE;
    for (int i = 0; i < q->n_workers; i++) {
        const sweep_worker *w = &q->workers[i];
        double own = w->pid ? rest_of(w) : 0;
        if (own < 0) return -1;
        rest += own;
        longest = ARES_MAX(longest, own);
        if (w->pid) took += own + ares_now_s() - w->started, known++;
    }
    if (!known) return -1;
    return ARES_MAX(longest, (rest + waiting * took / known) / q->n_workers);
}

/* "2 of 6 runs | lr_1e-5-seed_1 12/40, lr_1e-6-seed_1 3/40 | eta 0:12" */
static void tell(sweep_queue *q)
{
    ares_str text = { 0 };
    const char *before = " | ";
    int over = 0;
    for (int i = 0; i < q->s->n; i++)
        over += q->s->runs[i].state == SWEEP_DONE || q->s->runs[i].state == SWEEP_FAILED;
    ares_str_addf(&text, "%d of %d runs", over, q->s->n);
    for (int i = 0; i < q->n_workers; i++) {
        sweep_worker *w = &q->workers[i];
        if (!w->pid) continue;
        read_step(w);
        ares_str_addf(&text, "%s%s ", before, w->run->name);
        if (w->steps) ares_str_addf(&text, "%lld/%lld", w->step, w->steps);
        else ares_str_add_z(&text, "begins");
        before = ", ";
    }
    double rest = rest_of_all(q);
    if (rest >= 0)
        ares_str_addf(&text, " | eta %ld:%02ld:%02ld", (long)rest / 3600, (long)rest / 60 % 60,
                      (long)rest % 60);
    ares_progress_tell(q->progress, text.data);
    ares_str_fini(&text);
}

/* Waits for a signal, at most until a worker has cooled down, or it is time to look at logs. */
static int wait_for(const sweep_queue *q, const sigset_t *set)
{
    double now = ares_now_s(), until = now + LOOK_EVERY_S;
    for (int i = 0; i < q->n_workers; i++) {
        const sweep_worker *w = &q->workers[i];
        if (!w->pid && w->free_at > now) until = ARES_MIN(until, w->free_at);
    }
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
        tell(q);
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
    ares_work_begin("sweep");
    q.progress = ares_progress_new("run", "auto");
    int rc = loop(&q, &set);
    ares_progress_free(q.progress);
    if (rc != ARES_OK) stop_children(&q);
    sigprocmask(SIG_SETMASK, &before, NULL);
    *signal = q.first_signal;
    return rc;
}
