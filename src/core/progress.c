/*
 * A line per step on stdout, and on a terminal a bar below it. The time left is estimated from a
 * running mean of the steps' durations in which recent steps weigh more, because rollouts grow
 * longer as a model learns.
 */
#include "progress.h"
#include "ares/core.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

_Atomic int core_bar_shown;

struct ares_progress {
    char *what;
    int64_t done, total;
    double last_s, mean_s; /* end of the last step; mean duration of a step, 0 before the first */
    bool terminal;
};

/* A launcher of ranks gives them a terminal that shows nothing and has no width. */
static bool is_terminal(int fd)
{
    struct winsize size;
    return isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
}

ares_progress *ares_progress_new(const char *what, int64_t done, int64_t total)
{
    ares_progress *p = ares_calloc(1, sizeof *p);
    *p = (ares_progress){
        .what = ares_strdup(what), .done = done, .total = total, .last_s = ares_now_s()
    };
    p->terminal = is_terminal(STDOUT_FILENO);
    return p;
}

static void add_duration(ares_str *out, double seconds)
{
    long whole = (long)(seconds + 0.5);
    if (whole >= 3600)
        ares_str_addf(out, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    else ares_str_addf(out, "%ld:%02ld", whole / 60, whole % 60);
}

static void add_bar(ares_str *out, const ares_progress *p)
{
    enum { WIDTH = 40 };
    int full = p->total > 0 ? (int)(ARES_MIN(p->done, p->total) * WIDTH / p->total) : WIDTH;
    ares_str_add_char(out, '[');
    for (int i = 0; i < WIDTH; i++) ares_str_add_char(out, i < full ? '=' : ' ');
    ares_str_addf(out, "] %d %%", full * 100 / WIDTH);
}

void ares_progress_step(ares_progress *p, int64_t done, const char *text)
{
    double now = ares_now_s(), took = now - p->last_s;
    double each = done > p->done ? took / (double)(done - p->done) : took;
    p->mean_s = p->mean_s > 0 ? 0.7 * p->mean_s + 0.3 * each : each;
    p->last_s = now;
    p->done = done;

    ares_str line = { 0 };
    if (core_bar_shown) ares_str_add_z(&line, "\r\033[K");
    ares_str_addf(&line, "%s %lld/%lld | ", p->what, (long long)done, (long long)p->total);
    if (text && *text) ares_str_addf(&line, "%s | ", text);
    ares_str_addf(&line, took < 1 ? "%.2f s" : "%.1f s", took);
    if (done < p->total) {
        ares_str_add_z(&line, " | eta ");
        add_duration(&line, p->mean_s * (double)(p->total - done));
    }
    ares_str_add_char(&line, '\n');
    bool bar = p->terminal && done < p->total;
    if (bar) add_bar(&line, p);
    fwrite(line.data, 1, line.len, stdout);
    fflush(stdout);
    core_bar_shown = bar;
    ares_str_fini(&line);
}

void ares_progress_free(ares_progress *p)
{
    if (!p) return;
    if (atomic_exchange(&core_bar_shown, 0)) {
        fputs("\r\033[K", stdout);
        fflush(stdout);
    }
    ares_free(p->what);
    ares_free(p);
}
