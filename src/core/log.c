/*
 * Messages for people, on stderr. Each is one write, so that lines of several ranks and threads do
 * not interleave.
 */
#include "ares/core.h"
#include "progress.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic int least_level = ARES_LOG_INFO;
static _Atomic int own_rank = 0;

void ares_log_set(ares_log_level least, int rank)
{
    least_level = (int)least;
    own_rank = rank;
}

void ares_log(ares_log_level level, const char *format, ...)
{
    static const char *const prefix[] = { "debug: ", "", "warning: ", "error: " };
    int rank = own_rank;
    if ((int)level < least_level || (rank != 0 && level < ARES_LOG_WARN)) return;
    ares_str line = { 0 };
    if (core_bar_shown && isatty(STDERR_FILENO) && atomic_exchange(&core_bar_shown, 0))
        ares_str_add_z(&line, "\r\033[K");
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
    for (size_t done = 0; done < line.len;) {
        ssize_t wrote = write(STDERR_FILENO, line.data + done, line.len - done);
        if (wrote <= 0) break; /* stderr is closed or full: there is no other place to report it */
        done += (size_t)wrote;
    }
    ares_str_fini(&line);
}
