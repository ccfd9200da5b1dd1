/* Users' programs: starting, pipes that do not block, how one ended. */
#include "ares/core.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---------------- what ends with this process
 * Users' programs must not outlive this process, also where it is killed. Neither a signal at a
 * parent's death (it comes when the thread that started the child ends) nor the process group (a
 * program may leave it) is enough. So children, and all that they start, have a variable in their
 * environment, and a shell waits for the end of this process and kills every process that has the
 * variable.
 */
#define MARK "ARES_RUN="
static char mark[64];

static void tell_unwatched(int why)
{
    ares_log(ARES_LOG_WARN,
             "programs that this run starts may outlive it if it is killed: /bin/sh, which would "
             "end them, cannot be started: %s",
             strerror(why));
}

/* Starts the shell that waits on a pipe for the end of this process. */
static void start_watcher(void)
{
    static const char script[] =
        "cat >/dev/null\n"
        "for again in 1 2 3; do\n" /* a program may be starting another one */
        "    for file in $(grep -lazsF \"$0\" /proc/[0-9]*/environ); do\n"
        "        file=${file#/proc/}\n"
        "        kill -9 \"${file%/environ}\" 2>/dev/null\n"
        "    done\n"
        "done\n";
    int ends[2], failed;
    pid_t pid;
    snprintf(mark, sizeof mark, MARK "%d.%.0f.", (int)getpid(), ares_now_s() * 1e9);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        tell_unwatched(errno);
        return;
    }
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[0], 0);
    for (int i = 1; i <= 2; i++)
        posix_spawn_file_actions_addopen(&files, i, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID); /* Ctrl-C is not for it */
    char *const argv[] = { (char[]){ "sh" }, (char[]){ "-c" }, (char *)(uintptr_t)script, mark,
                           NULL };
    if ((failed = posix_spawn(&pid, "/bin/sh", &files, &attributes, argv, environ)) != 0) {
        tell_unwatched(failed);
        close(ends[1]);
    }
    close(ends[0]); /* the other end closes with this process */
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
}

/* ---------------- starting and stopping */
/* Whether a variable of the environment is our mark, or has a new value among `more`. */
static bool is_replaced(const char *variable, const char *const *more)
{
    if (strncmp(variable, MARK, strlen(MARK)) == 0) return true;
    for (; more && *more; more++) {
        size_t name = strcspn(*more, "=") + 1;
        if (strncmp(variable, *more, name) == 0) return true;
    }
    return false;
}

/* Starts a program whose stdin, stdout and stderr are these descriptors; returns 0 or an errno. */
static int spawn(pid_t *pid, char *const *argv, const char *const *more, const int ends[3])
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t defaults, none;
    posix_spawn_file_actions_init(&files);
    for (int i = 0; i < 3; i++) posix_spawn_file_actions_adddup2(&files, ends[i], i);
    posix_spawnattr_init(&attributes);
    sigemptyset(&defaults);
    sigemptyset(&none);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETSIGMASK);
    /* the child gets this process's environment with the mark and `more` */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    size_t n = 0, k = 0, added = 0;
    pthread_once(&once, start_watcher);
    while (environ[n]) n++;
    while (more && more[added]) added++;
    char **environment = ares_calloc(n + added + 2, sizeof *environment);
    for (size_t i = 0; i < n; i++)
        if (!is_replaced(environ[i], more)) environment[k++] = environ[i];
    for (size_t i = 0; i < added; i++) environment[k++] = (char *)(uintptr_t)more[i];
    environment[k] = mark;
    int failed = posix_spawnp(pid, argv[0], &files, &attributes, argv, environment);
    ares_free(environment); /* the list alone: its words belong to this process */
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return failed;
}

int ares_child_start(ares_child *c, char *const *argv, int64_t memory_bytes)
{
    return ares_child_start_with(c, argv, NULL, memory_bytes);
}

int ares_child_start_with(ares_child *c, char *const *argv, const char *const *more,
                          int64_t memory_bytes)
{
    int ends[3][2]; /* its input, output, stderr */
    pid_t pid;
    *c = ARES_CHILD_NONE;
    /* a write to a dead child then fails instead of ending this process */
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 3; i++) {
        if (pipe2(ends[i], O_CLOEXEC) == 0) continue;
        ares_fail(ARES_ECHILD, "pipe: %s", strerror(errno));
        for (int k = 0; k < 2 * i; k++) close(ends[k / 2][k % 2]);
        return ARES_ECHILD;
    }
    int failed = spawn(&pid, argv, more, (int[3]){ ends[0][0], ends[1][1], ends[2][1] });
    close(ends[0][0]);
    close(ends[1][1]);
    close(ends[2][1]);
    c->to = ends[0][1];
    c->from = ends[1][0];
    c->err = ends[2][0];
    if (failed) {
        ares_child_stop(c);
        const char *line = failed == ENOENT && !argv[1] && strchr(argv[0], ' ')
                               ? "; a command is a list of words, as in [python3, my.py]"
                               : "";
        return ares_fail(ARES_ECHILD, "%s: %s%s", argv[0], strerror(failed), line);
    }
    c->pid = pid;
    if (memory_bytes > 0) { /* from outside: the program inherits no limit of ours */
        struct rlimit limit = { (rlim_t)memory_bytes, (rlim_t)memory_bytes };
        prlimit(pid, RLIMIT_AS, &limit, NULL);
    }
    fcntl(c->to, F_SETFL, O_NONBLOCK);
    fcntl(c->from, F_SETFL, O_NONBLOCK);
    fcntl(c->err, F_SETFL, O_NONBLOCK);
    return ARES_OK;
}

void ares_child_stop(ares_child *c)
{
    if (c->to >= 0) close(c->to);
    if (c->from >= 0) close(c->from);
    if (c->pid > 0) {
        kill(-c->pid, SIGKILL); /* the whole group: what the program has started, too */
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) {}
    }
    ares_child_listen(c);
    if (c->err >= 0) close(c->err);
    ares_str_fini(&c->said);
    *c = ARES_CHILD_NONE;
}

/* Writes what the pipe takes now; returns how many bytes that were. */
size_t ares_child_send(ares_child *c, const char *data, size_t n)
{
    size_t sent = 0;
    while (c->to >= 0 && sent < n) {
        ssize_t k = write(c->to, data + sent, n - sent);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && errno != EAGAIN) { /* or poll would report it forever */
            close(c->to);
            c->to = -1;
        }
        if (k <= 0) break;
        sent += (size_t)k;
    }
    return sent;
}

/* Bytes read; 0: none is there yet; -1: the child has closed its output. */
int64_t ares_child_receive(ares_child *c, ares_str *out)
{
    char block[1 << 14];
    ssize_t n = read(c->from, block, sizeof block);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    if (n <= 0) return -1;
    ares_str_add(out, block, (size_t)n);
    return n;
}

/* Passes stderr on to ours, and keeps its last bytes for a message. */
void ares_child_listen(ares_child *c)
{
    enum { KEPT = 1000 }; /* bytes */
    char block[1 << 12];
    ssize_t n;
    for (int reads = 0; c->err >= 0 && reads < 64; reads++) { /* some write without end */
        n = read(c->err, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) { /* or poll would report it forever */
            close(c->err);
            c->err = -1;
            return;
        }
        for (ssize_t done = 0, wrote; done < n; done += wrote)
            if ((wrote = write(STDERR_FILENO, block + done, (size_t)(n - done))) <= 0) break;
        ares_str_add(&c->said, block, (size_t)n);
        size_t old = c->said.len > KEPT ? c->said.len - KEPT : 0;
        memmove(c->said.data, c->said.data + old, c->said.len - old);
        c->said.len -= old;
    }
}

/*
 * The process is not reaped here but in ares_child_stop, so that its number, which is its group's
 * too, stays taken.
 */
void ares_child_describe_end(ares_child *c, char *why, size_t size)
{
    char line[250]; /* the last line of its stderr, without control characters */
    siginfo_t end = { 0 };
    /* a child closes its output a moment before it ends: waits up to 0.1 s */
    for (int i = 0;
         i < 100 && waitid(P_PID, (id_t)c->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         end.si_pid == 0;
         i++)
        usleep(1000);
    if (end.si_pid == 0) snprintf(why, size, "closed its output");
    else if (end.si_code == CLD_EXITED)
        snprintf(why, size, "ended with exit code %d", end.si_status);
    else snprintf(why, size, "ended by signal %d (%s)", end.si_status, strsignal(end.si_status));
    ares_child_listen(c);
    ares_view v = ares_view_trim(ares_str_view(&c->said));
    size_t from = v.len, len = 0, n = strlen(why);
    while (from > 0 && v.data[from - 1] != '\n') from--;
    for (; from < v.len && len + 1 < sizeof line; from++)
        line[len++] = (unsigned char)v.data[from] < ' ' ? ' ' : v.data[from];
    line[len] = 0;
    if (*line) snprintf(why + n, size - n, ": %s", line);
}

/* Raises the soft limit of open files where n more would not fit. */
bool ares_descriptors_reserve(int64_t n, int64_t *needed, int64_t *limit)
{
    enum { SPARE = 64, ASSUMED = 64 }; /* ASSUMED: open ones, where the system does not tell */
    struct rlimit now;
    int64_t open_now = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir)) open_now++;
    if (dir) closedir(dir);
    else open_now = ASSUMED;
    *needed = open_now + n + SPARE;
    *limit = INT64_MAX;
    if (getrlimit(RLIMIT_NOFILE, &now) != 0) return true;
    if (now.rlim_cur < (rlim_t)*needed && now.rlim_cur < now.rlim_max) {
        now.rlim_cur = ARES_MIN((rlim_t)*needed, now.rlim_max);
        setrlimit(RLIMIT_NOFILE, &now);
        getrlimit(RLIMIT_NOFILE, &now);
    }
    *limit = (int64_t)ARES_MIN(now.rlim_cur, (rlim_t)INT64_MAX);
    return *limit >= *needed;
}
