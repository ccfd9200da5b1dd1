/*
 * The message of the last failure, per thread; exit codes and aborts.
 *
 * Two buffers alternate, so that ares_error_message() may be an argument of ares_fail. They are
 * large because a report of many faults is long; pages that are never written cost no memory.
 */
#include "ares/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = 32768 };

static _Thread_local char buffers[2][MESSAGE_BYTES];
static _Thread_local int current;

/* Ends a message that did not fit with "...", never inside a UTF-8 character. */
static void cut(char *text)
{
    size_t end = MESSAGE_BYTES - 4;
    while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80) end--;
    memcpy(text + end, "...", 4);
}

static size_t format_into(char *text, const char *format, va_list args)
{
    int n = vsnprintf(text, MESSAGE_BYTES, format, args);
    size_t len = n > 0 ? (size_t)n : 0;
    if (len < MESSAGE_BYTES) return len;
    cut(text);
    return MESSAGE_BYTES;
}

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
