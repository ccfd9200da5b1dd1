/* A server as a program of the tests: started, and stopped before the test ends. */
#ifndef TESTS_SERVED_H
#define TESTS_SERVED_H

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ares/core.h"
#include "test.h"

typedef struct served {
    ares_child child;
    int port;
} served;

/* The Python that has the package openenv; NULL after skipping the test. */
static inline const char *served_openenv(void)
{
    const char *python = test_source(".venv-openenv/bin/python");
    if (ares_file_exists(python) &&
        test_shell(NULL, "'%s' -c 'import openenv, uvicorn'", python) == 0)
        return python;
    test_skip("no package openenv in .venv-openenv; scripts/setup.sh --openenv installs it");
    return NULL;
}

/*
 * argv prints a line that begins with "listening " and ends with its port once it serves. false,
 * and a failed check, where it does not.
 */
static inline bool served_start(served *s, const char *const *argv)
{
    static const char word[] = "listening ";
    ares_str out = { 0 };
    *s = (served){ .child = ARES_CHILD_NONE };
    if (!CHECK_OK(ares_child_start(&s->child, (char *const *)argv, 0))) return false;
    for (int i = 0; i < 120 && !(out.len && out.data[out.len - 1] == '\n'); i++) {
        poll(&(struct pollfd){ .fd = s->child.from, .events = POLLIN }, 1, 1000);
        if (ares_child_receive(&s->child, &out) < 0) break;
    }
    if (CHECK_CONTAINS(out.data ? out.data : "", word)) {
        const char *end = out.data + out.len;
        while (end > out.data && (end[-1] == '\n' || ares_is_digit(end[-1]))) end--;
        s->port = atoi(end);
    }
    ares_str_fini(&out);
    return s->port != 0;
}

static inline void served_stop(served *s)
{
    ares_child_stop(&s->child);
}

#endif
