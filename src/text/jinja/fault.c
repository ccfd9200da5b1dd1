/* How parsing and rendering end on a fault: the message names the place in the source. */
#include <stdarg.h>
#include <stdio.h>

#include "jinja.h"

void jinja_position(const ares_template *t, uint32_t pos, int64_t *line, int64_t *column)
{
    *line = 1, *column = 1;
    for (uint32_t i = 0; i < pos && i < t->source.len; i++) {
        if (t->source.data[i] == '\n') ++*line, *column = 1;
        else if (((unsigned char)t->source.data[i] & 0xC0) != 0x80) ++*column;
    }
}

void jinja_syntax_fail(jinja_parser *p, int code, uint32_t pos, const char *format, ...)
{
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    int64_t line, column;
    jinja_position(p->t, pos, &line, &column);
    p->code = ares_fail(code, "template: %s:%lld:%lld: %s", p->t->name, (long long)line,
                        (long long)column, message);
    longjmp(p->fail, 1);
}

void jinja_fail(jinja_run *r, int code, const char *format, ...)
{
    char message[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (!r->at) {
        r->code = ares_fail(code, "template: %s: %s", r->t->name, message);
    } else {
        int64_t line, column;
        jinja_position(r->t, r->at->pos, &line, &column);
        r->code = ares_fail(code, "template: %s:%lld:%lld: %s", r->t->name, (long long)line,
                            (long long)column, message);
    }
    longjmp(r->fail, 1);
}
