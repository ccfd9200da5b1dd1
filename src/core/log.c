/* What the program tells people: errors, progress on the terminal, log lines. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "ares/core.h"

/*
 * The message of the last failure, per thread; exit codes and aborts.
 *
 * Two buffers alternate, so that ares_error_message() may be an argument of ares_fail. They are
 * large because a report of many faults is long; pages that are never written cost no memory.
 */

enum { MESSAGE_BYTES = 32768 }; /* of a message, its NUL included */

static _Thread_local char buffers[2][MESSAGE_BYTES];
static _Thread_local int current;

/* Ends a message that did not fit with "...", never inside a UTF-8 character. */
static void cut(char *text)
{
    size_t end = MESSAGE_BYTES - 4;
    while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80) end--;
    memcpy(text + end, "...", 4);
}

/* Returns the length; MESSAGE_BYTES: the text was too long, and is cut. */
static size_t format_into(char *text, const char *format, va_list args)
{
    int n = vsnprintf(text, MESSAGE_BYTES, format, args);
    size_t len = n > 0 ? (size_t)n : 0;
    if (len < MESSAGE_BYTES) return len;
    cut(text);
    return MESSAGE_BYTES;
}

/* Formats into the other buffer, because the arguments may point into the current one. */
int ares_fail(int code, const char *format, ...)
{
    ARES_ASSERT(code < 0);
    char *text = buffers[1 - current];
    text[0] = 0;
    va_list args;
    va_start(args, format);
    format_into(text, format, args);
    va_end(args);
    current = 1 - current;
    return code;
}

/* "place: cause", where the cause is the message so far. */
int ares_fail_in(int code, const char *format, ...)
{
    ARES_ASSERT(code < 0);
    const char *cause = buffers[current];
    char *text = buffers[1 - current];
    text[0] = 0;
    va_list args;
    va_start(args, format);
    size_t len = format_into(text, format, args);
    va_end(args);
    if (len < MESSAGE_BYTES) {
        for (const char *p = ": "; *p && len < MESSAGE_BYTES; p++) text[len++] = *p;
        while (*cause && len < MESSAGE_BYTES) text[len++] = *cause++;
        if (len < MESSAGE_BYTES) text[len] = 0;
        else cut(text);
    }
    current = 1 - current;
    return code;
}

const char *ares_error_message(void)
{
    return buffers[current];
}

void ares_error_clear(void)
{
    buffers[current][0] = 0;
}

int ares_error_exit_code(int code)
{
    switch (code) {
    case ARES_OK: return 0;
    case ARES_EUSE:
    case ARES_ECONFIG: return 2;
    case ARES_ENUMERIC: return 3;       /* the same run would only fail again */
    case ARES_EINTERRUPTED: return 130; /* SIGINT; main returns 143 for SIGTERM */
    default: return 1;
    }
}

void ares_abort(const char *file, int line, const char *what)
{
    fflush(stdout);
    fprintf(stderr, "ares: %s:%d: %s does not hold; this is a mistake in the program\n", file, line,
            what);
    abort();
}

/*
 * What a run tells people while it works. A thread of its own draws the moving line, so that it
 * moves while a kernel computes or a reward is waited for; it reads counters and the clock, and
 * computes nothing. The time left is estimated from a running mean of the steps' durations in which
 * recent steps weigh more, because rollouts grow longer as a model learns.
 */

enum { DRAWS_PER_S = 4, LINE_EVERY_S = 30 };
/* to the beginning of the line, and clears it to its end */
static const char erase[] = "\r\033[K";

/* ---------------- the terminal, which several threads write to */
/*
 * Every writer to the terminal holds it meanwhile. Where its last line is the moving one
 * (line_shown), the writer erases that line first.
 */
static pthread_mutex_t terminal = PTHREAD_MUTEX_INITIALIZER;
static bool line_shown; /* the moving line is the last one on the terminal */

/* The caller holds the terminal. */
static void write_out(const char *before, const char *text, size_t len)
{
    if (line_shown) fputs(erase, stdout);
    line_shown = false;
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
    pthread_mutex_lock(&terminal);
    if (n >= 0) write_out("", text, (size_t)n);
    pthread_mutex_unlock(&terminal);
    ares_free(text);
}

/* ---------------- what is being done */
/* of `stage` and `stage_began`; taken after `terminal` where both are held */
static pthread_mutex_t work = PTHREAD_MUTEX_INITIALIZER;
static const char *stage = "";
static double stage_began; /* of the clock, in seconds */

/* What a process counts. Ranks that share memory have one each, on lines of cache of their own. */
typedef struct work_counts {
    _Alignas(128) _Atomic uint64_t stage; /* of the name: counts of two ranks add up in one stage */
    _Atomic int64_t done[ARES_WORK_COUNT], expected[ARES_WORK_COUNT];
} work_counts;
static work_counts alone;
static work_counts *of_ranks = &alone, *mine = &alone;
static int ranks_seen = 1, ranks_in_all = 1; /* counts in of_ranks; processes that work */

size_t ares_work_bytes(int ranks)
{
    return (size_t)ranks * sizeof(work_counts);
}

void ares_work_share(void *memory, int ranks, int rank, int seen)
{
    pthread_mutex_lock(&work);
    of_ranks = memory ? memory : &alone;
    mine = memory ? of_ranks + rank : &alone;
    ranks_seen = memory ? seen : 1;
    ranks_in_all = ranks;
    pthread_mutex_unlock(&work);
}

void ares_work_begin(const char *name)
{
    pthread_mutex_lock(&work);
    stage = name;
    stage_began = ares_now_s();
    for (int i = 0; i < ARES_WORK_COUNT; i++) mine->done[i] = mine->expected[i] = 0;
    mine->stage = ares_fnv1a(ARES_FNV1A, name, strlen(name));
    pthread_mutex_unlock(&work);
}

const char *ares_work_stage(void)
{
    pthread_mutex_lock(&work);
    const char *name = *stage ? stage : "start";
    pthread_mutex_unlock(&work);
    return name;
}

void ares_work_expect(ares_work what, int64_t n)
{
    atomic_fetch_add_explicit(&mine->expected[what], n, memory_order_relaxed);
}

void ares_work_done(ares_work what, int64_t n)
{
    atomic_fetch_add_explicit(&mine->done[what], n, memory_order_relaxed);
}

/* "0:07", "12:30", "1:02:03" */
static void add_duration(ares_str *out, double seconds)
{
    long whole = (long)(seconds + 0.5);
    if (whole >= 3600)
        ares_str_addf(out, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    else ares_str_addf(out, "%ld:%02ld", whole / 60, whole % 60);
}

/*
 * Adds "gen: 12 of 64 answers, 8 judged, 345 tokens/s". *elapsed: seconds since the stage began.
 * Returns the fraction of the stage that is done; 0: not known.
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
        long long done = 0, all = 0;
        for (int r = 0; r < (of_ranks == &alone ? 1 : ranks_in_all); r++) {
            if (of_ranks[r].stage != mine->stage) continue; /* it is behind, or ahead */
            done += of_ranks[r].done[i];
            all += of_ranks[r].expected[i];
        }
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
    if (ranks_seen < ranks_in_all && *before == ',')
        ares_str_addf(out, " (on %d of %d ranks)", ranks_seen, ranks_in_all);
    pthread_mutex_unlock(&work);
    return part;
}

/* ---------------- the steps of a run */
struct ares_progress {
    char *what, *told;
    int64_t done, total;   /* total 0: no step has begun */
    double last_s, mean_s; /* end of the last step; mean duration of a step, 0 before the first */
    double printed;        /* when the last line was */
    bool moves, draws;     /* a line that moves, on a terminal; `thread` runs */
    pthread_t thread;
    pthread_cond_t end;
    bool ends;
};

/* 0: no terminal. The one that a launcher of ranks gives them shows nothing and has no width. */
static int terminal_width(void)
{
    struct winsize size;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/*
 * The moving line: what was told, or "step 3/10 gen: .. | time in the step, eta of the step, eta of
 * the run". The caller holds the terminal.
 */
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

void core_progress_tick(ares_progress *p, double now)
{
    ares_str text = { 0 };
    int columns = terminal_width();
    pthread_mutex_lock(&terminal);
    bool line = !p->moves && now - p->printed >= LINE_EVERY_S;
    if (line || p->moves) describe(p, now, &text);
    if (line) p->printed = now;
    if (p->moves && columns > 1) {
        /*
         * Columns of ASCII; of other text no more than so many bytes, and only whole characters.
         */
        size_t n = ARES_MIN(text.len, (size_t)columns - 1);
        while (n < text.len && n > 0 && ((unsigned char)text.data[n] & 0xc0) == 0x80) n--;
        line_shown = false;
        write_out(erase, text.data, n);
        line_shown = true;
    }
    pthread_mutex_unlock(&terminal);
    if (line) ares_log(ARES_LOG_INFO, "%s", text.data);
    ares_str_fini(&text);
}

/* The thread of a progress: a tick every 1 / DRAWS_PER_S seconds until it is freed. */
static void *draw(void *ctx)
{
    ares_progress *p = ctx;
    struct timespec next;
    pthread_mutex_lock(&terminal);
    while (!p->ends) {
        pthread_mutex_unlock(&terminal);
        core_progress_tick(p, ares_now_s());
        clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_nsec += 1000000000 / DRAWS_PER_S;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        pthread_mutex_lock(&terminal);
        while (!p->ends && pthread_cond_timedwait(&p->end, &terminal, &next) != ETIMEDOUT) {}
    }
    pthread_mutex_unlock(&terminal);
    return NULL;
}

ares_progress *ares_progress_new(const char *what, const char *mode)
{
    ares_progress *p = ares_calloc(1, sizeof *p);
    double now = ares_now_s();
    *p = (ares_progress){ .what = ares_strdup(what), .last_s = now, .printed = now };
    p->moves = strcmp(mode, "auto") == 0 && terminal_width() > 0;
    if (strcmp(mode, "none") == 0) return p;
    sigset_t all, before; /* signals stay with the main thread */
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&p->end, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    p->draws = pthread_create(&p->thread, NULL, draw, p) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return p;
}

void ares_progress_begin(ares_progress *p, int64_t done, int64_t total)
{
    pthread_mutex_lock(&terminal);
    p->done = done;
    p->total = total;
    p->last_s = ares_now_s();
    pthread_mutex_unlock(&terminal);
}

void ares_progress_tell(ares_progress *p, const char *text)
{
    pthread_mutex_lock(&terminal);
    ares_free(p->told);
    p->told = ares_strdup(text);
    pthread_mutex_unlock(&terminal);
}

void ares_progress_step(ares_progress *p, int64_t done, const char *text)
{
    ares_str line = { 0 };
    pthread_mutex_lock(&terminal);
    double now = ares_now_s(), took = now - p->last_s;
    double each = done > p->done ? took / (double)(done - p->done) : took;
    /* a running mean: a step weighs 0.3, the one before it 0.21, and so on */
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
    pthread_mutex_unlock(&terminal);
    ares_str_fini(&line);
}

void ares_progress_free(ares_progress *p)
{
    if (!p) return;
    pthread_mutex_lock(&terminal);
    p->ends = true;
    pthread_mutex_unlock(&terminal);
    if (p->draws) {
        pthread_cond_signal(&p->end);
        pthread_join(p->thread, NULL);
        pthread_cond_destroy(&p->end);
    }
    pthread_mutex_lock(&terminal);
    write_out("", "", 0);
    pthread_mutex_unlock(&terminal);
    ares_free(p->what);
    ares_free(p->told);
    ares_free(p);
}

/*
 * Messages for people, on stderr. Each is one write, so that lines of several ranks and threads do
 * not interleave.
 */

static _Atomic int least_level = ARES_LOG_INFO;
static _Atomic int own_rank = 0; /* other ranks log warnings and errors alone */
static char *kept;               /* ares_log_keep; set while one thread runs */

void ares_log_set(ares_log_level least, int rank)
{
    least_level = (int)least;
    own_rank = rank;
}

/* write, until all is written. */
static void put(int fd, const char *line, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t wrote = write(fd, line + done, len - done);
        if (wrote <= 0) break; /* stderr is closed or full: there is no other place to report it */
        done += (size_t)wrote;
    }
}

/* A file that cannot be written to is no reason to stop: the line is on stderr. */
static void keep(ares_view line)
{
    char when[32];
    struct tm now;
    time_t t = time(NULL);
    int fd = open(kept, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S ", localtime_r(&t, &now));
    ares_str whole = { 0 };
    ares_str_add_z(&whole, when);
    ares_str_add_view(&whole, line);
    put(fd, whole.data, whole.len); /* one write: ranks share the file */
    ares_str_fini(&whole);
    close(fd);
}

/* The failure that main prints, in the kept file only. */
void ares_log_note(const char *line)
{
    ares_str whole = { 0 };
    if (!kept) return;
    ares_str_addf(&whole, "error: %s\n", line);
    keep(ares_str_view(&whole));
    ares_str_fini(&whole);
}

void ares_log_keep(const char *path)
{
    ares_free(kept);
    kept = path ? ares_strdup(path) : NULL;
}

void ares_log(ares_log_level level, const char *format, ...)
{
    static const char *const prefix[] = { "debug: ", "", "warning: ", "error: " };
    int rank = own_rank;
    if ((int)level < least_level || (rank != 0 && level < ARES_LOG_WARN)) return;
    ares_str line = { 0 };
    if (rank != 0) ares_str_addf(&line, "[rank %d] ", rank);
    ares_str_add_z(&line, prefix[level]);
    va_list args;
    va_start(args, format);
    char *text = NULL;
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n >= 0) ares_str_add(&line, text, (size_t)n);
    ares_free(text);
    ares_str_add_char(&line, '\n');
    pthread_mutex_lock(&terminal);
    fflush(stdout); /* a file that has both keeps their order */
    if (isatty(STDERR_FILENO) && line_shown) {
        put(STDERR_FILENO, "\r\033[K", 4);
        line_shown = false;
    }
    put(STDERR_FILENO, line.data, line.len);
    if (kept && level >= ARES_LOG_WARN) keep(ares_str_view(&line));
    pthread_mutex_unlock(&terminal);
    ares_str_fini(&line);
}

/* On the stack alone: there is no memory for a string. */
void log_last_words(const char *format, ...)
{
    char line[600];
    int rank = own_rank, n = 0;
    if (rank != 0) n = snprintf(line, sizeof line, "[rank %d] ", rank);
    n += snprintf(line + n, sizeof line - (size_t)n, "error: ");
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + n, 500, format, args);
    va_end(args);
    n += ARES_MAX(0, ARES_MIN(more, 499));
    line[n++] = '\n';
    put(STDERR_FILENO, line, (size_t)n);
}
