/*
 * A library for LD_PRELOAD. Each call of a program that changes a file in the folder
 * ARES_RECORD_ROOT is written to the file ARES_RECORD_LOG after it succeeded, one per line, in
 * order; tests/e2e/disk.c reads the lines. With ARES_RECORD_NO_EXCHANGE set, two names cannot be
 * exchanged, as on file systems without RENAME_EXCHANGE. After the first line that contains the
 * text of ARES_RECORD_SIGNAL, the program gets the signal SIGINT. After it has written a row of
 * metrics.jsonl, it dies as it enters the function of its own that ARES_RECORD_TRAP names, at once
 * as after a kill. For the rank of ARES_RECORD_FULL the folder has no space for tensors. Each
 * piece of a tensor takes 40 ms in files whose path contains ARES_RECORD_SLOW. With an
 * empty ARES_RECORD_FAIL each call is written before it is done, as "call WHAT PATH", where WHAT is
 * one of the words below or "close" (after writing) and PATH is below the root, without process
 * ids. With "N WHAT PATH" the Nth call of that text fails with EIO, and "fail WHAT PATH" is
 * written.
 *
 *   make DIR    open FILE (for writing)    empty FILE (its length was set)    write FILE LINES TEXT
 *   sync PATH   rename FROM TO             exchange ONE OTHER                 remove PATH
 *
 * LINES is the number of newlines written; TEXT is what was written where that is short and has no
 * blanks, otherwise "-".
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LONGEST = 4096, SHORT_TEXT = 60 };

#define REAL(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)

/* The absolute path of `name` in the folder `at`; 0: outside the root. */
static int below_root(int at, const char *name, char path[LONGEST])
{
    const char *root = getenv("ARES_RECORD_ROOT");
    char folder[LONGEST] = "", link[64];
    if (!root) return 0;
    if (name[0] != '/') {
        snprintf(link, sizeof link, at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
        ssize_t n = readlink(link, folder, sizeof folder - 1);
        folder[n > 0 ? n : 0] = 0;
    }
    if (snprintf(path, LONGEST, "%s%s%s", folder, *folder && *name ? "/" : "", name) >= LONGEST)
        return 0;
    size_t n = strlen(path), root_n = strlen(root);
    while (n > 1 && path[n - 1] == '/') path[--n] = 0;
    return strncmp(path, root, root_n) == 0 && (path[root_n] == '/' || !path[root_n]);
}

/* Puts an instruction that ends the program (SIGTRAP) where the function begins. */
static void set_trap(const char *function)
{
#ifdef __x86_64__
    static const unsigned char trap[] = { 0xCC };
#elif defined __aarch64__
    static const unsigned char trap[] = { 0x00, 0x00, 0x20, 0xD4 };
#endif
    char *at = dlsym(RTLD_DEFAULT, function);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *from = at - (size_t)at % page;
    if (!at || mprotect(from, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
        (void)fprintf(stderr, "no trap in %s\n", function);
        abort();
    }
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
    memcpy(at, trap, sizeof trap);
    __builtin___clear_cache(at, at + sizeof trap);
}

static void record(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void record(const char *format, ...)
{
    static int log = -1;
    char line[3 * LONGEST];
    int kept = errno;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const char *file = getenv("ARES_RECORD_LOG");
    if (log < 0 && file)
        log = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                           0644);
    if (syscall(SYS_write, log, line, (size_t)n) != n) abort();
    const char *signal_after = getenv("ARES_RECORD_SIGNAL");
    static int signalled;
    if (signal_after && !signalled && strstr(line, signal_after)) {
        signalled = 1;
        kill(getpid(), SIGINT);
    }
    const char *trap = getenv("ARES_RECORD_TRAP");
    static int trapped;
    if (trap && !trapped && strstr(line, "/metrics.jsonl 1 ")) {
        trapped = 1;
        set_trap(trap);
    }
    errno = kept;
}

static void record_path(const char *what, int at, const char *name)
{
    char path[LONGEST];
    if (below_root(at, name, path)) record("%s %s\n", what, path);
}

/* The path below the root without what differs between two runs: process ids and times. */
static void shorten(char *path)
{
    char *pid = strrchr(path, '.'), *events = strstr(path, "tfevents");
    if (pid && pid[1] && strspn(pid + 1, "0123456789") == strlen(pid + 1)) *pid = 0;
    if (events) events[8] = 0;
}

/* Whether the call at hand is the one that is to fail. */
static int fails(const char *what, int at, const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int calls;
    const char *wanted = getenv("ARES_RECORD_FAIL");
    char path[LONGEST], call[LONGEST + 16];
    if (!wanted || !below_root(at, name, path)) return 0;
    shorten(path);
    (void)snprintf(call, sizeof call, "%s %s", what, path + strlen(getenv("ARES_RECORD_ROOT")));
    if (!*wanted) {
        record("call %s\n", call);
        return 0;
    }
    char *text;
    long number = strtol(wanted, &text, 10);
    if (strcmp(text + 1, call) != 0) return 0;
    pthread_mutex_lock(&lock);
    int now = ++calls == number;
    pthread_mutex_unlock(&lock);
    if (!now) return 0;
    record("fail %s\n", call);
    errno = EIO;
    return 1;
}

static int opened(int fd, int flags)
{
    if (fd < 0 || (flags & O_ACCMODE) == O_RDONLY) return fd;
    record_path("open", fd, "");
    if (flags & O_TRUNC) record_path("empty", fd, "");
    return fd;
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & O_CREAT ? va_arg(args, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    if ((flags & O_ACCMODE) != O_RDONLY && fails("open", AT_FDCWD, path)) return -1;
    return opened(REAL(open, path, flags, mode), flags);
}

int openat(int at, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    if ((flags & O_ACCMODE) != O_RDONLY && fails("open", at, path)) return -1;
    return opened(REAL(openat, at, path, flags, mode), flags);
}

static void wrote(int fd, const char *bytes, ssize_t n)
{
    char path[LONGEST], text[SHORT_TEXT + 1] = "-";
    int lines = 0, plain = n <= SHORT_TEXT;
    if (n <= 0 || !below_root(fd, "", path)) return;
    for (ssize_t i = 0; i < n; i++) {
        lines += bytes[i] == '\n';
        plain = plain && bytes[i] > ' ' && bytes[i] <= '~';
    }
    if (plain) snprintf(text, sizeof text, "%.*s", (int)n, bytes);
    record("write %s %d %s\n", path, lines, text);
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    if (fails("write", fd, "")) return -1;
    ssize_t n = REAL(write, fd, bytes, size);
    wrote(fd, bytes, n);
    return n;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    const char *full = getenv("ARES_RECORD_FULL"), *rank = getenv("OMPI_COMM_WORLD_RANK"),
               *slow = getenv("ARES_RECORD_SLOW");
    char path[LONGEST];
    if (slow && below_root(fd, "", path) && strstr(path, slow)) usleep(40000);
    if (full && rank && strcmp(full, rank) == 0 && below_root(fd, "", path)) {
        errno = ENOSPC;
        return -1;
    }
    if (fails("write", fd, "")) return -1;
    ssize_t n = REAL(pwrite, fd, bytes, size, at);
    wrote(fd, bytes, n);
    return n;
}

int close(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    int failed = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && fails("close", fd, "");
    int rc = REAL(close, fd); /* closed in any case, as Linux does */
    if (failed) errno = EIO;
    return failed ? -1 : rc;
}

int ftruncate(int fd, off_t size)
{
    if (fails("empty", fd, "")) return -1;
    int rc = REAL(ftruncate, fd, size);
    if (rc == 0) record_path("empty", fd, "");
    return rc;
}

/* A sync is recorded but not done, so that no test waits for the machine's own disk. */
static int synced(int fd)
{
    char path[LONGEST];
    if (!below_root(fd, "", path)) return 0;
    record("sync %s\n", path);
    return 1;
}

int fsync(int fd)
{
    if (fails("sync", fd, "")) return -1;
    return synced(fd) ? 0 : REAL(fsync, fd);
}

int fdatasync(int fd)
{
    if (fails("sync", fd, "")) return -1;
    return synced(fd) ? 0 : REAL(fdatasync, fd);
}

int mkdir(const char *path, mode_t mode)
{
    if (access(path, F_OK) != 0 && fails("make", AT_FDCWD, path)) return -1;
    int rc = REAL(mkdir, path, mode);
    if (rc == 0) record_path("make", AT_FDCWD, path);
    return rc;
}

static void renamed(const char *how, int from_at, const char *from, int to_at, const char *to)
{
    char one[LONGEST], other[LONGEST];
    if (below_root(from_at, from, one) && below_root(to_at, to, other))
        record("%s %s %s\n", how, one, other);
}

int rename(const char *from, const char *to)
{
    if (fails("rename", AT_FDCWD, from)) return -1;
    int rc = REAL(rename, from, to);
    if (rc == 0) renamed("rename", AT_FDCWD, from, AT_FDCWD, to);
    return rc;
}

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    if (fails("rename", from_at, from)) return -1;
    int rc = REAL(renameat, from_at, from, to_at, to);
    if (rc == 0) renamed("rename", from_at, from, to_at, to);
    return rc;
}

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
    int exchange = (flags & RENAME_EXCHANGE) != 0;
    if (exchange && getenv("ARES_RECORD_NO_EXCHANGE")) {
        errno = EINVAL;
        return -1;
    }
    if (fails(exchange ? "exchange" : "rename", from_at, from)) return -1;
    int rc = REAL(renameat2, from_at, from, to_at, to, flags);
    if (rc == 0) renamed(exchange ? "exchange" : "rename", from_at, from, to_at, to);
    return rc;
}

int unlink(const char *path)
{
    if (fails("remove", AT_FDCWD, path)) return -1;
    int rc = REAL(unlink, path);
    if (rc == 0) record_path("remove", AT_FDCWD, path);
    return rc;
}

int rmdir(const char *path)
{
    if (fails("remove", AT_FDCWD, path)) return -1;
    int rc = REAL(rmdir, path);
    if (rc == 0) record_path("remove", AT_FDCWD, path);
    return rc;
}

int unlinkat(int at, const char *path, int flags)
{
    if (fails("remove", at, path)) return -1;
    int rc = REAL(unlinkat, at, path, flags);
    if (rc == 0) record_path("remove", at, path);
    return rc;
}
