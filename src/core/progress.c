/*
 * What a run tells people while it works. A thread of its own draws the moving line, so that it
 * moves while a kernel computes or a reward is waited for; it reads counters and the clock, and
 * computes nothing. The time left is estimated from a running mean of the steps' durations in which
 * recent steps weigh more, because rollouts grow longer as a model learns.
 */
#include "progress.h"
#include "ares/core.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { DRAWS_PER_S = 4, LINE_EVERY_S = 30 };
static const char erase[] = "\r\033[K";

/* ---------------- the terminal, which several threads write to */
static pthread_mutex_t terminal = PTHREAD_MUTEX_INITIALIZER;
static bool line_shown; /* its last line is the moving one */

void core_terminal_take(void)
{
    pthread_mutex_lock(&terminal);
}

bool core_terminal_line(void)
{
    bool shown = line_shown;
    line_shown = false;
    return shown;
}

void core_terminal_give(void)
{
    pthread_mutex_unlock(&terminal);
}

/* Holds the terminal. */
static void write_out(const char *before, const char *text, size_t len)
{
    if (core_terminal_line()) fputs(erase, stdout);
    fputs(before, stdout);
    fwrite(text, 1, len, stdout);
    fflush(stdout);
}

void ares_say(const char *format, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    core_terminal_take();
    if (n >= 0) write_out("", text, (size_t)n);
    core_terminal_give();
    ares_free(text);
}

/* ---------------- what is being done */
static pthread_mutex_t work = PTHREAD_MUTEX_INITIALIZER; /* of these two; taken last */
static const char *stage = "";
static double stage_began;
static _Atomic int64_t done_of[ARES_WORK_COUNT], expected_of[ARES_WORK_COUNT];

void ares_work_begin(const char *name)
{
    pthread_mutex_lock(&work);
    stage = name;
    stage_began = ares_now_s();
    for (int i = 0; i < ARES_WORK_COUNT; i++) done_of[i] = expected_of[i] = 0;
    pthread_mutex_unlock(&work);
}

void ares_work_expect(ares_work what, int64_t n)
{
    atomic_fetch_add_explicit(&expected_of[what], n, memory_order_relaxed);
}

void ares_work_done(ares_work what, int64_t n)
{
    atomic_fetch_add_explicit(&done_of[what], n, memory_order_relaxed);
}

static void add_duration(ares_str *out, double seconds)
{
    long whole = (long)(seconds + 0.5);
    if (whole >= 3600)
        ares_str_addf(out, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    else ares_str_addf(out, "%ld:%02ld", whole / 60, whole % 60);
}

/*
 * "gen: 12 of 64 answers, 8 judged, 345 tokens/s". Returns which part of the stage is done; 0: it
 * is not known.
 */
static double add_stage(ares_str *out, double now, double *elapsed)
{
#define NAME(id, name) name,
    static const char *const names[] = { ARES_WORK_LIST(NAME) };
#undef NAME
    double part = 0;
    const char *before = ": ";
    pthread_mutex_lock(&work);
    ares_str_add_z(out, stage);
    *elapsed = now - stage_began;
    for (int i = 0; i < ARES_WORK_COUNT; i++) {
        long long done = done_of[i], all = expected_of[i];
        if (!done && !all) continue;
        ares_str_add_z(out, before);
        before = ", ";
        all = all ? ARES_MAX(all, done) : 0;
        if (i == ARES_WORK_SAMPLED)
            ares_str_addf(out, "%.0f %s", (double)done / *elapsed, names[i]);
        else if (i != ARES_WORK_MICRO_BATCHES && all)
            ares_str_addf(out, "%lld of %lld %s", done, all, names[i]);
        else if (i != ARES_WORK_MICRO_BATCHES) ares_str_addf(out, "%lld %s", done, names[i]);
        else if (all) ares_str_addf(out, "%s %lld of %lld", names[i], ARES_MAX(done, 1), all);
        else ares_str_addf(out, "%s %lld", names[i], done);
        /* the last micro-batch has begun, not ended */
        if (all && part == 0) part = (double)(done - (i == ARES_WORK_MICRO_BATCHES)) / (double)all;
    }
    pthread_mutex_unlock(&work);
    return part;
}

/* ---------------- the steps of a run */
struct ares_progress {
    char *what, *told;
    int64_t done, total;   /* total 0: no step has begun */
    double last_s, mean_s; /* end of the last step; mean duration of a step, 0 before the first */
    double printed;        /* when the last line was */
    bool moves, draws;     /* on a terminal; anything at all between steps */
    pthread_t thread;
    pthread_cond_t end;
    bool ends;
};

/* A launcher of ranks gives them a terminal that shows nothing and has no width. */
static int terminal_width(void)
{
    struct winsize size;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* Holds the terminal. */
static void describe(const ares_progress *p, double now, ares_str *out)
{
    double elapsed, in_step = now - p->last_s, rest = p->mean_s - in_step;
    bool steps = p->done < p->total;
    if (p->told) {
        ares_str_add_z(out, p->told);
        return;
    }
    if (steps)
        ares_str_addf(out, "%s %lld/%lld ", p->what, (long long)p->done + 1, (long long)p->total);
    double part = add_stage(out, now, &elapsed);
    ares_str_add_z(out, " | ");
    add_duration(out, steps ? in_step : elapsed);
    if (!steps || !(p->mean_s > 0)) {
        if (part > 0) {
            ares_str_add_z(out, ", eta ");
            add_duration(out, elapsed * (1 - part) / part);
        }
        return;
    }
    if (rest > 0) {
        ares_str_add_z(out, ", eta ");
        add_duration(out, rest);
    }
    ares_str_add_z(out, ", run eta ");
    add_duration(out, ARES_MAX(rest, 0) + p->mean_s * (double)(p->total - p->done - 1));
}

/* Columns of ASCII; of other text no more than so many bytes, and whole characters. */
static size_t cut_to(const ares_str *text, size_t columns)
{
    size_t n = ARES_MIN(text->len, columns);
    while (n < text->len && n > 0 && ((unsigned char)text->data[n] & 0xc0) == 0x80) n--;
    return n;
}

void core_progress_tick(ares_progress *p, double now)
{
    ares_str text = { 0 };
    int columns = terminal_width();
    core_terminal_take();
    bool line = !p->moves && now - p->printed >= LINE_EVERY_S;
    if (line || p->moves) describe(p, now, &text);
    if (line) p->printed = now;
    if (p->moves && columns > 1) {
        core_terminal_line();
        write_out(erase, text.data, cut_to(&text, (size_t)columns - 1));
        line_shown = true;
    }
    core_terminal_give();
    if (line) ares_log(ARES_LOG_INFO, "%s", text.data);
    ares_str_fini(&text);
}

static void *draw(void *ctx)
{
    ares_progress *p = ctx;
    struct timespec next;
    core_terminal_take();
    while (!p->ends) {
        core_terminal_give();
        core_progress_tick(p, ares_now_s());
        clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_nsec += 1000000000 / DRAWS_PER_S;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        core_terminal_take();
        while (!p->ends && pthread_cond_timedwait(&p->end, &terminal, &next) != ETIMEDOUT) {}
    }
    core_terminal_give();
    return NULL;
}

/* Signals are the main thread's. */
static void start_thread(ares_progress *p)
{
    sigset_t all, before;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&p->end, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    p->draws = pthread_create(&p->thread, NULL, draw, p) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

ares_progress *ares_progress_new(const char *what, const char *mode)
{
    ares_progress *p = ares_calloc(1, sizeof *p);
    double now = ares_now_s();
    *p = (ares_progress){ .what = ares_strdup(what), .last_s = now, .printed = now };
    p->moves = strcmp(mode, "auto") == 0 && terminal_width() > 0;
    if (strcmp(mode, "none") != 0) start_thread(p);
    return p;
}

void ares_progress_begin(ares_progress *p, int64_t done, int64_t total)
{
    core_terminal_take();
    p->done = done;
    p->total = total;
    p->last_s = ares_now_s();
    core_terminal_give();
}

void ares_progress_tell(ares_progress *p, const char *text)
{
    core_terminal_take();
    ares_free(p->told);
    p->told = ares_strdup(text);
    core_terminal_give();
}

void ares_progress_step(ares_progress *p, int64_t done, const char *text)
{
    ares_str line = { 0 };
    core_terminal_take();
    double now = ares_now_s(), took = now - p->last_s;
    double each = done > p->done ? took / (double)(done - p->done) : took;
    p->mean_s = p->mean_s > 0 ? 0.7 * p->mean_s + 0.3 * each : each;
    p->last_s = p->printed = now;
    p->done = done;
    ares_str_addf(&line, "%s %lld/%lld | ", p->what, (long long)done, (long long)p->total);
    if (text && *text) ares_str_addf(&line, "%s | ", text);
    ares_str_addf(&line, took < 1 ? "%.2f s" : "%.1f s", took);
    if (done < p->total) {
        ares_str_add_z(&line, " | eta ");
        add_duration(&line, p->mean_s * (double)(p->total - done));
    }
    ares_str_add_char(&line, '\n');
    write_out("", line.data, line.len);
    core_terminal_give();
    ares_str_fini(&line);
}

void ares_progress_free(ares_progress *p)
{
    if (!p) return;
    core_terminal_take();
    p->ends = true;
    core_terminal_give();
    if (p->draws) {
        pthread_cond_signal(&p->end);
        pthread_join(p->thread, NULL);
        pthread_cond_destroy(&p->end);
    }
    core_terminal_take();
    write_out("", "", 0);
    core_terminal_give();
    ares_free(p->what);
    ares_free(p->told);
    ares_free(p);
}
