/*
 * Messages for people, on stderr. Each is one write, so that lines of several ranks and threads do
 * not interleave.
 */
#include "ares/core_file.h"
#include "last_words.h"
#include "progress.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static _Atomic int least_level = ARES_LOG_INFO;
static _Atomic int own_rank = 0;
static char *kept; /* ares_log_keep; set while one thread runs */

void ares_log_set(ares_log_level least, int rank)
{
    least_level = (int)least;
    own_rank = rank;
}

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
    core_terminal_take();
    fflush(stdout); /* a file that has both keeps their order */
    if (isatty(STDERR_FILENO) && core_terminal_line()) put(STDERR_FILENO, "\r\033[K", 4);
    put(STDERR_FILENO, line.data, line.len);
    if (kept && level >= ARES_LOG_WARN) keep(ares_str_view(&line));
    core_terminal_give();
    ares_str_fini(&line);
}

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
