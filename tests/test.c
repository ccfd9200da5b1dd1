/*
 * The runner of every test program. Tests run in the order of their files and lines, in this
 * process, one by one; with --jobs N in N processes, of which each takes the next test.
 */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

ares_dtype test_arithmetic = ARES_F32;

const char *test_arithmetic_word(void)
{
    return test_arithmetic == ARES_BF16 ? "worker.actor.arithmetic=bf16"
                                        : "worker.actor.arithmetic=fp32";
}

#ifndef ARES_SOURCE_DIR
#define ARES_SOURCE_DIR "."
#endif
#ifndef ARES_BINARY_DIR
#define ARES_BINARY_DIR "build"
#endif

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { TEST_SECONDS = 300 };
#else
enum { TEST_SECONDS = 60 };
#endif
enum { TEST_LABELLED_SECONDS = 300, TEST_SLOW_SECONDS = 1800, SHOWN_FAILURES = 20 };
enum { SHOWN_SECONDS = 5 }; /* a test that takes longer shows how long */
#define ROOM_BYTES 4e9      /* what the folders of all tests that run side by side may take */

/* Present only in programs that link the torch room. */
extern int64_t at_live_count(void) __attribute__((weak));
/* Present only in programs that link the kernels. */
struct ares_kernels;
extern const struct ares_kernels *kernels_cpu(const char *isa) __attribute__((weak));

static test_case *all;
static const test_case *current;
static const char *program = "test", *self = "";
/* What the processes of --jobs share. */
typedef struct totals {
    atomic_int next; /* the test that is taken next, by its place in the order */
    atomic_int passed, failed, skipped;
    atomic_int ended; /* tests that have said how they ended */
} totals;
static totals *shared;
static int jobs = 1, failures;
static bool skipping;
static double limit_s; /* of the test that runs */
static pid_t runner;
static volatile pid_t shell;         /* started by test_shell, leads a process group; 0: none */
static ares_str skips;               /* reasons that the running test gave for skipping */
static char dir[256], kept_dir[256]; /* of the running test; of all tests */
static ares_arena strings;
static const char *seed; /* of emulated cards, as this program got it, or NULL */

void test_register(test_case *t)
{
    t->next = all;
    all = t;
}

/* ---------------------------------------------------------------- checks */

static bool fail(const char *file, int line, const char *format, ...) ARES_PRINTF(3, 4);

static bool fail(const char *file, int line, const char *format, ...)
{
    if (++failures > SHOWN_FAILURES) return false;
    const char *base = strrchr(file, '/');
    printf("  %s:%d: ", base ? base + 1 : file, line);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    if (failures == SHOWN_FAILURES) printf("  (more failures of this test are not shown)\n");
    fflush(stdout);
    return false;
}

bool test_check(bool held, const char *expr, const char *file, int line)
{
    return held || fail(file, line, "%s is false", expr);
}

bool test_check_msg(bool held, const char *expr, const char *file, int line, const char *format,
                    ...)
{
    enum { ENDS = 6000 }; /* a program's output begins with warnings and ends with its error */
    if (held) return true;
    va_list args;
    va_start(args, format);
    char *text = NULL;
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n > 2 * ENDS)
        fail(file, line, "%s is false: %.*s\n[...]\n%s", expr, ENDS, text, text + n - ENDS);
    else fail(file, line, "%s is false: %s", expr, n < 0 ? format : text);
    free(text);
    return false;
}

bool test_eq(long long a, long long b, const char *ea, const char *eb, const char *file, int line)
{
    return a == b || fail(file, line, "%s is %lld, expected %s = %lld", ea, a, eb, b);
}

bool test_near(double a, double b, double tol, const char *ea, const char *eb, const char *file,
               int line)
{
    if (a == b || fabs(a - b) <= tol || (isnan(a) && isnan(b))) return true;
    return fail(file, line, "%s is %.9g, expected %s = %.9g within %.3g (off by %.3g)", ea, a, eb,
                b, tol, fabs(a - b));
}

bool test_str(const char *a, const char *b, const char *ea, const char *eb, const char *file,
              int line)
{
    if (a == b || (a && b && strcmp(a, b) == 0)) return true;
    return fail(file, line, "%s differs from %s\n    is       \"%s\"\n    expected \"%s\"", ea, eb,
                a ? a : "(null)", b ? b : "(null)");
}

bool test_view(ares_view a, ares_view b, const char *ea, const char *eb, const char *file, int line)
{
    if (a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0)) return true;
    return fail(
        file, line,
        "%s differs from %s\n    is       \"%.*s\" (%zu bytes)\n    expected \"%.*s\" (%zu bytes)",
        ea, eb, (int)a.len, a.data ? a.data : "", a.len, (int)b.len, b.data ? b.data : "", b.len);
}

bool test_mem(const void *a, const void *b, size_t n, const char *ea, const char *eb,
              const char *file, int line)
{
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < n; i++) {
        if (x[i] == y[i]) continue;
        size_t different = 0;
        for (size_t j = i; j < n; j++) different += x[j] != y[j];
        /* most arrays compared this way hold floats: show the two that differ */
        float fx = 0, fy = 0;
        if (i / 4 * 4 + 4 <= n) {
            memcpy(&fx, x + i / 4 * 4, 4);
            memcpy(&fy, y + i / 4 * 4, 4);
        }
        return fail(
            file, line,
            "%s differs from %s from byte %zu of %zu on (%zu bytes differ; as floats [%zu]: %.9g, "
            "expected %.9g)",
            ea, eb, i, n, different, i / 4, (double)fx, (double)fy);
    }
    return true;
}

bool test_contains(const char *text, const char *part, const char *expr, const char *file, int line)
{
    if (text && strstr(text, part)) return true;
    return fail(file, line, "%s does not contain \"%s\"\n    is       \"%s\"", expr, part,
                text ? text : "(null)");
}

bool test_ok(int rc, const char *expr, const char *file, int line)
{
    return rc == ARES_OK || fail(file, line, "%s failed (%d): %s", expr, rc, ares_error_message());
}

bool test_fails(int rc, int code, const char *code_name, const char *part, const char *expr,
                const char *file, int line)
{
    if (rc == ARES_OK) return fail(file, line, "%s succeeded, expected %s", expr, code_name);
    if (rc != code)
        return fail(file, line, "%s gave %d, expected %s = %d: %s", expr, rc, code_name, code,
                    ares_error_message());
    if (part && !strstr(ares_error_message(), part))
        return fail(file, line, "%s: message lacks \"%s\"\n    is       \"%s\"", expr, part,
                    ares_error_message());
    return true;
}

static bool has_label(const char *labels, const char *label, size_t len)
{
    for (const char *p = labels; *p;) {
        size_t n = strcspn(p, ",");
        if (n == len && strncmp(p, label, n) == 0) return true;
        p += n + (p[n] == ',');
    }
    return false;
}

static bool shares_label(const char *labels, const char *list)
{
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        if (has_label(labels, p, n)) return true;
        p += n + (p[n] == ',');
    }
    return false;
}

void test_skip(const char *why)
{
    const char *line = ares_arena_printf(&strings, "SKIP %s: %s\n", current->name, why);
    skipping = true;
    if (strstr(skips.data ? skips.data : "", line)) return; /* once per test, also from a loop */
    ares_str_add_z(&skips, line);
    fputs(line, stdout);
}

bool test_isa_here(const char *isa)
{
    const char *without = getenv("ARES_TEST_WITHOUT_ISA");
    return kernels_cpu && kernels_cpu(isa) && !(without && shares_label(isa, without));
}

bool test_has_isa(const char *isa)
{
    char why[80];
    if (test_isa_here(isa)) return true;
    snprintf(why, sizeof why, "%s left out: this machine's CPU lacks it", isa);
    test_skip(why);
    return false;
}

/* ---------------------------------------------------------------- where things are */

const char *test_source(const char *relative)
{
    return ares_arena_printf(&strings, "%s/%s", ARES_SOURCE_DIR, relative);
}

const char *test_program(void)
{
    return ARES_BINARY_DIR "/ares-train";
}

void test_emulated_order(int n)
{
    char text[24];
    unsigned long long first = seed ? strtoull(seed, NULL, 10) : 0;
    snprintf(text, sizeof text, "%llu", first + (unsigned long long)n);
    setenv("ARES_EMULATE_SEED", text, 1);
}

/*
 * A new folder: in TMPDIR, else in memory where there is room, since a run waits for the disk at
 * each file that it makes durable, else in /tmp.
 */
static bool make_dir(char *path, size_t size, const char *name)
{
    const char *root = getenv("TMPDIR");
    struct statvfs fs;
    bool in_memory =
        statvfs("/dev/shm", &fs) == 0 && (double)fs.f_bavail * (double)fs.f_frsize >= ROOM_BYTES;
    if (!root || !*root) root = in_memory ? "/dev/shm" : "/tmp";
    int n = snprintf(path, size, "%s/ares-%s-XXXXXX", root, name);
    errno = ENAMETOOLONG;
    if (n < (int)size && mkdtemp(path)) return true;
    perror(path);
    path[0] = '\0';
    return false;
}

const char *test_dir(void)
{
    if (!dir[0] && !make_dir(dir, sizeof dir, "test")) exit(1);
    return dir;
}

const char *test_file(const char *name)
{
    return ares_arena_printf(&strings, "%s/%s", test_dir(), name);
}

const char *test_kept(const char *name, const char *made, void (*make)(const char *path))
{
    const char *path = ares_arena_printf(&strings, "%s/%s", kept_dir, name);
    struct stat st;
    int lock =
        open(ares_arena_printf(&strings, "%s.lock", path), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX) != 0) fail(__FILE__, __LINE__, "no lock for %s", path);
    if (stat(ares_arena_printf(&strings, "%s/%s", path, made), &st) != 0) make(path);
    if (lock >= 0) close(lock);
    return path;
}

static bool in_ci(void)
{
    const char *ci = getenv("CI");
    return ci && strcmp(ci, "true") == 0;
}

const char *test_smollm2(void)
{
    const char *path = test_source("models/SmolLM2-135M-Instruct");
    struct stat st;
    if (stat(ares_arena_printf(&strings, "%s/model.safetensors", path), &st) == 0) return path;
    if (in_ci()) {
        fail(__FILE__, __LINE__, "no %s; scripts/fetch_smollm2.sh makes it", path);
        return NULL;
    }
    test_skip("no models/SmolLM2-135M-Instruct; scripts/fetch_smollm2.sh makes it");
    return NULL;
}

int test_shell(ares_str *out, const char *format, ...)
{
    char command[8192];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof command) {
        fail(__FILE__, __LINE__, "test_shell: command too long");
        return -1;
    }
    fflush(stdout);
    int ends[2];
    if (pipe(ends) != 0) return -1;
    pid_t child = fork();
    if (child < 0) return -1;
    if (child == 0) {
        setpgid(0, 0);
        dup2(open("/dev/null", O_RDONLY), 0); /* a group of its own may not read a terminal */
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    setpgid(child, child); /* here and in the child, whichever runs first */
    shell = child;
    close(ends[1]);
    char buffer[4096];
    ssize_t got;
    while ((got = read(ends[0], buffer, sizeof buffer)) > 0)
        if (out) ares_str_add(out, buffer, (size_t)got);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    shell = 0;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int test_mpirun(ares_str *out, int ranks, const char *test_name)
{
    return test_shell(out,
                      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ARES_TEST_MPI=1 "
                      "mpirun --oversubscribe --bind-to none -n %d '%s' %s",
                      ranks, self, test_name);
}

bool test_in_mpi(void)
{
    return getenv("ARES_TEST_MPI") != NULL;
}

bool test_as_ranks(int ranks, const char *test_name)
{
    if (test_in_mpi()) return true;
    ares_str out = { 0 };
    int status = test_mpirun(&out, ranks, test_name);
    CHECK_MSG(status == 0, "%s", ares_str_view(&out).data);
    ares_str_fini(&out);
    return false;
}

/* ---------------------------------------------------------------- running */

static void remove_tree(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0) return;
    if (!S_ISDIR(st.st_mode)) {
        unlink(path);
        return;
    }
    DIR *d = opendir(path);
    if (d) {
        for (struct dirent *e; (e = readdir(d));) {
            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
            char inner[4096];
            if (snprintf(inner, sizeof inner, "%s/%s", path, e->d_name) < (int)sizeof inner)
                remove_tree(inner);
        }
        closedir(d);
    }
    rmdir(path);
}

/* With dprintf, because a test that hangs or crashes may hold the lock of stdout. */
static void summary(void)
{
    if (shared->failed && seed && getenv("ARES_CUDA_LIB"))
        dprintf(1, "on a card in the order of ARES_EMULATE_SEED=%s\n", seed);
    dprintf(1, "%s: %d passed, %d failed, %d skipped\n", program, shared->passed, shared->failed,
            shared->skipped);
}

/*
 * A crash, a hang or a signal from outside ends the program and what the test has started. A crash
 * or a hang is counted as a failure of the test, which is named.
 */
static void die_of(int sig)
{
    signal(sig, SIG_DFL);
    if (getpid() != runner) raise(sig); /* a child of a test */
    signal(SIGALRM, SIG_DFL);
    alarm(10); /* what follows may hang if the test was stopped inside malloc */
    sigset_t late;
    sigemptyset(&late);
    sigaddset(&late, SIGALRM); /* blocked where this is the handler of an alarm */
    sigprocmask(SIG_UNBLOCK, &late, NULL);
    if (shell > 0) kill(-shell, sig == SIGINT || sig == SIGTERM ? sig : SIGKILL);
    const char *name = current ? current->name : "(no test)",
               *rest = jobs > 1 ? "" : "; the tests after it did not run";
    if (sig == SIGALRM) dprintf(1, "FAIL %s: took more than %g s%s\n", name, limit_s, rest);
    else if (sig != SIGINT && sig != SIGTERM)
        dprintf(1, "FAIL %s: crashed (%s)%s\n", name, strsignal(sig), rest);
    shared->failed += sig != SIGINT && sig != SIGTERM;
    shared->ended += current && sig != SIGINT && sig != SIGTERM;
    if (dir[0]) remove_tree(dir);
    if (jobs == 1) {
        summary();
        if (!getenv("ARES_TEST_KEPT")) remove_tree(kept_dir);
    }
    raise(sig);
}

/* ARES_TEST_PATIENCE is a factor of all limits. Tests side by side share the processors. */
static double limit_of(const test_case *t)
{
    const char *patience = getenv("ARES_TEST_PATIENCE");
    double factor = (patience ? atof(patience) : 1) * jobs;
    int seconds = has_label(t->labels, "slow", 4) ? TEST_SLOW_SECONDS
                  : t->labels[0]                  ? TEST_LABELLED_SECONDS
                                                  : TEST_SECONDS;
    return seconds * (factor > 0 ? factor : 1);
}

static void end_after(double seconds)
{
    struct itimerval timer = { .it_value.tv_sec = (time_t)seconds };
    timer.it_value.tv_usec = (suseconds_t)(1e6 * (seconds - (double)timer.it_value.tv_sec));
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* Of this process and of those that it has waited for. */
static double cpu_seconds(void)
{
    double seconds = 0;
    for (int i = 0; i < 2; i++) {
        struct rusage used;
        getrusage(i ? RUSAGE_CHILDREN : RUSAGE_SELF, &used);
        seconds += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    }
    return seconds;
}

static void run(const test_case *t)
{
    current = t;
    failures = 0;
    skipping = false;
    ares_str_clear(&skips);
    ares_error_clear();
    int64_t live = at_live_count ? at_live_count() : 0;
    limit_s = limit_of(t);
    end_after(limit_s);
    double start = ares_now_s(), cpu = cpu_seconds();
    t->run();
    double took = ares_now_s() - start;
    end_after(0);
    if (at_live_count && at_live_count() != live)
        fail(t->file, t->line, "%lld libtorch handles more than before",
             (long long)(at_live_count() - live));
    if (dir[0]) remove_tree(dir);
    dir[0] = '\0';
    ares_arena_reset(&strings);
    if (failures) printf("FAIL %s\n", t->name);
    else if (!skipping && took < SHOWN_SECONDS) printf("ok   %s\n", t->name);
    else if (!skipping)
        printf("ok   %s (%.0f s, %.0f of a CPU)\n", t->name, took, cpu_seconds() - cpu);
    fflush(stdout);
    if (failures) shared->failed++;
    else if (skipping) shared->skipped++;
    else shared->passed++;
    shared->ended++;
    current = NULL;
}

static int by_place(const void *a, const void *b)
{
    const test_case *x = *(test_case *const *)a, *y = *(test_case *const *)b;
    int files = strcmp(x->file, y->file);
    return files ? files : (x->line > y->line) - (x->line < y->line);
}

static bool chosen(const test_case *t, const char *label, const char *without, char **names, int n)
{
    if (label && !shares_label(t->labels, label)) return false;
    if (without && shares_label(t->labels, without)) return false;
    if (n == 0) return true;
    for (int i = 0; i < n; i++)
        if (names[i][0] == '=' ? strcmp(t->name, names[i] + 1) == 0
                               : strstr(t->name, names[i]) || strstr(t->file, names[i]))
            return true;
    return false;
}

/*
 * A file with the name of a test per line, `#` begins a comment: keeps the tests of order[0..n)
 * that it names (or the others); gives their number, or -1 where it names a test that all[] has
 * not.
 */
static int those_of(const char *file, bool named, test_case **order, int n)
{
    ares_str text = { 0 };
    if (ares_file_read(file, &text) != ARES_OK) {
        fprintf(stderr, "%s: %s\n", program, ares_error_message());
        ares_str_fini(&text);
        return -1;
    }
    int unknown = 0, kept = 0;
    bool *is_named = ares_calloc((size_t)n + 1, sizeof *is_named);
    char *save = NULL, *line = text.data ? strtok_r(text.data, "\n", &save) : NULL;
    for (; line; line = strtok_r(NULL, "\n", &save)) {
        if (line[0] == '#') continue;
        const test_case *t = all;
        while (t && strcmp(t->name, line) != 0) t = t->next;
        if (!t) fprintf(stderr, "%s: %s: there is no test '%s'\n", program, file, line);
        unknown += !t;
        for (int i = 0; i < n; i++) is_named[i] |= order[i] == t;
    }
    for (int i = 0; i < n; i++)
        if (is_named[i] == named) order[kept++] = order[i];
    ares_free(is_named);
    ares_str_fini(&text);
    return unknown ? -1 : kept;
}

static void run_next(test_case *const *order, int n)
{
    for (int i; (i = shared->next++) < n;) run(order[i]);
}

/* Sends a signal on to the processes of --jobs. They clean up; this process waits for them. */
static pid_t workers[16];
static volatile sig_atomic_t asked; /* the signal that ends this program */

static void pass_on(int sig)
{
    asked = sig;
    for (int i = 0; i < jobs; i++)
        if (workers[i] > 0) kill(workers[i], sig);
}

static pid_t start_worker(test_case *const *order, int n)
{
    fflush(stdout);
    pid_t parent = getpid(), child = fork();
    if (child != 0) return child;
    runner = getpid();
    signal(SIGTERM, die_of);
    if (signal(SIGINT, die_of) == SIG_IGN) signal(SIGINT, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* ends with the program, however that ends */
    if (getppid() != parent) raise(SIGTERM);
    run_next(order, n);
    exit(0); /* a sanitizer that found something gives another status */
}

/* A process that a test has crashed or that a test has stopped is replaced by another. */
static void run_side_by_side(test_case *const *order, int n)
{
    signal(SIGTERM, pass_on);
    if (signal(SIGINT, pass_on) == SIG_IGN) signal(SIGINT, SIG_IGN);
    for (int i = 0; i < jobs; i++) workers[i] = start_worker(order, n);
    for (int left = jobs; left > 0;) {
        int status = 0;
        pid_t ended = waitpid(-1, &status, 0);
        if (ended < 0 && errno == EINTR) continue;
        if (ended < 0) break;
        for (int i = 0; i < jobs; i++) {
            if (workers[i] != ended) continue;
            bool again = !asked && shared->next < n;
            shared->failed += WIFEXITED(status) && WEXITSTATUS(status) != 0;
            workers[i] = again ? start_worker(order, n) : 0;
            left -= !again;
        }
    }
    /* a test that was killed, or ended its process, has said nothing */
    int lost = asked ? 0 : n - shared->ended;
    if (lost > 0) dprintf(1, "FAIL %d of the tests never ended\n", lost);
    shared->failed += ARES_MAX(lost, 0);
}

int main(int argc, char **argv)
{
    const char *label = NULL, *without = NULL, *only = NULL, *except = NULL;
    bool list = false;
    int n_names = 0;
    char *names[64];
    self = argv[0];
    runner = getpid();
    const char *given = getenv("ARES_EMULATE_SEED");
    seed = given && *given ? strdup(given) : NULL; /* tests set another */
    program = strrchr(self, '/') ? strrchr(self, '/') + 1 : self;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) list = true;
        else if (strcmp(argv[i], "--label") == 0 && i + 1 < argc) label = argv[++i];
        else if (strcmp(argv[i], "--without") == 0 && i + 1 < argc) without = argv[++i];
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[++i];
        else if (strcmp(argv[i], "--except") == 0 && i + 1 < argc) except = argv[++i];
        else if (strcmp(argv[i], "--jobs") == 0 && i + 1 < argc) jobs = atoi(argv[++i]);
        else if (argv[i][0] == '-' || n_names == ARES_COUNT(names)) {
            fprintf(stderr,
                    "usage: %s [--list] [--label L] [--without L,L] [--only FILE] [--except FILE] "
                    "[--jobs N] [NAME ...]\n",
                    program);
            return 2;
        } else names[n_names++] = argv[i];
    }

    jobs = ARES_MIN(ARES_MAX(jobs, 1), ARES_COUNT(workers));
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ARES_ASSERT(shared != MAP_FAILED);
    const char *shared_dir = getenv("ARES_TEST_KEPT");
    if (shared_dir) snprintf(kept_dir, sizeof kept_dir, "%s", shared_dir);
    else if (!make_dir(kept_dir, sizeof kept_dir, "kept")) return 1;
    int count = 0, matched = 0;
    for (test_case *t = all; t; t = t->next) count++;
    test_case **order = ares_calloc((size_t)count + 1, sizeof *order);
    int at = 0;
    for (test_case *t = all; t; t = t->next) order[at++] = t;
    qsort(order, (size_t)count, sizeof *order, by_place);

    signal(SIGALRM, die_of);
    signal(SIGABRT, die_of);
    if (signal(SIGINT, die_of) == SIG_IGN) signal(SIGINT, SIG_IGN); /* a shell's `&` */
    signal(SIGTERM, die_of);
#ifndef __SANITIZE_ADDRESS__ /* its own report tells more */
    signal(SIGSEGV, die_of);
    signal(SIGBUS, die_of);
    signal(SIGFPE, die_of);
    signal(SIGILL, die_of);
#endif
    for (int i = 0; i < count; i++)
        if (chosen(order[i], label, without, names, n_names)) order[matched++] = order[i];
    if (only) matched = those_of(only, true, order, matched);
    if (except && matched >= 0) matched = those_of(except, false, order, matched);
    for (int i = 0; list && i < matched; i++)
        printf("%s%s%s%s\n", order[i]->name, order[i]->labels[0] ? " [" : "", order[i]->labels,
               order[i]->labels[0] ? "]" : "");
    if (!list && jobs > 1) run_side_by_side(order, matched);
    else if (!list) run_next(order, matched);
    if (!shared_dir) remove_tree(kept_dir);
    ares_free(order);
    ares_str_fini(&skips);
    ares_arena_fini(&strings);
    if (matched < 0) return 2; /* no such file, or a test that is not there */
    if (list) return 0;
    if (n_names && !matched) {
        fprintf(stderr, "%s: no test matches %s\n", program, names[0]);
        return 1;
    }
    summary();
    if (asked) {
        signal(asked, SIG_DFL);
        raise(asked);
    }
    return shared->failed ? 1 : 0;
}
