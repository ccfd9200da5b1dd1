/*
 * core: a user's program in a process of its own, spoken to over its standard input and output
 * (child.c). What it writes to stderr is passed on to ours, and its end is kept. It is started with
 * posix_spawn in a process group of its own, under a limit of address space; stopping it kills the
 * group, and the end of this process kills the child and all that it has started, wherever that has
 * moved (a child without our environment alone escapes). Nothing here waits: the caller polls `to`
 * and `from` with the deadline it keeps.
 */
#ifndef ARES_CORE_CHILD_H
#define ARES_CORE_CHILD_H

#include "ares/core.h"

typedef struct ares_child {
    int pid;       /* 0: not running; its process group has the same number */
    int to, from;  /* its input and output, not blocking; -1: closed */
    int err;       /* what it writes to stderr: whoever polls calls ares_child_listen */
    ares_str said; /* the end of that */
} ares_child;

#define ARES_CHILD_NONE ((ares_child){ .pid = 0, .to = -1, .from = -1, .err = -1 })

/*
 * argv ends with NULL; argv[0] is looked up in PATH. memory_bytes: of address space, 0: no limit.
 * The child has this process's environment and folder. ARES_ECHILD: "<argv[0]>: why".
 * From the first start on this process ignores SIGPIPE.
 */
int ares_child_start(ares_child *c, char *const *argv, int64_t memory_bytes);
/* Kills the process group; fine when nothing runs. */
void ares_child_stop(ares_child *c);
/* Bytes that the pipe took. `to` is closed when the child has closed its input. */
size_t ares_child_send(ares_child *c, const char *data, size_t n);
/* Appends what there is. The bytes; 0: nothing yet; -1: the child has closed its output. */
int64_t ares_child_receive(ares_child *c, ares_str *out);
/* Passes on what there is of its stderr. */
void ares_child_listen(ares_child *c);
/*
 * "ended with exit code 3", "ended by signal 9 (Killed)", "closed its output", and after ": " the
 * last line of its stderr, if it has written any.
 */
void ares_child_describe_end(ares_child *c, char *why, size_t size);

/*
 * Whether n more file descriptors than are open now, and some for the files that any program opens
 * for a moment, fit into this process's limit, which is raised where it may be. *needed, *limit:
 * the limit that this takes, and the one there is.
 */
bool ares_descriptors_reserve(int64_t n, int64_t *needed, int64_t *limit);

#endif
