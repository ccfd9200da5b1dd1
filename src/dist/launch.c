/*
 * `--ranks N`: runs mpirun as a child in a process group of its own, so that Ctrl-C on the terminal
 * reaches only this process, and waits for signals and for the child's end in one loop.
 * `--restarts K`: does so again after a failure.
 */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * The ranks share a machine and talk through memory; keeps Open MPI from looking for networks, and
 * from spreading the ranks over the machines of a batch system's job.
 */
static void set_defaults(void)
{
    setenv("OMPI_MCA_pml", "ob1", 0);
    setenv("OMPI_MCA_btl", "self,vader", 0);
    setenv("OMPI_MCA_plm", "isolated", 0);
    setenv("OMPI_MCA_ras", "^slurm,gridengine", 0);
}

/* One rank needs no mpirun. */
static char **command(int ranks, int argc, char *const *argv, char count[static 16], char *self)
{
    snprintf(count, 16, "%d", ranks);
    char *const fixed[] = { "mpirun", "-q", "-n", count, "--bind-to", "none", "--oversubscribe" };
    char **words = ares_calloc((size_t)(ARES_COUNT(fixed) + argc + 3), sizeof *words);
    int n = 0;
    for (int i = 0; i < ARES_COUNT(fixed) && ranks > 1; i++) words[n++] = fixed[i];
    if (ranks > 1 && geteuid() == 0) words[n++] = "--allow-run-as-root";
    words[n++] = self;
    for (int i = 0; i < argc; i++) words[n++] = argv[i];
    return words;
}

/*
 * In the child: becomes mpirun. A successful exec closes `error_pipe`; a failed one writes errno to
 * it.
 */
static void exec_mpirun(char **words, const sigset_t *mask, int error_pipe)
{
    setpgid(0, 0);
    /* if the launcher is killed, the ranks must end too */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    /* a process outside the foreground group that reads from the terminal is stopped */
    if (isatty(STDIN_FILENO)) {
        int null = open("/dev/null", O_RDONLY);
        dup2(null, STDIN_FILENO);
        close(null);
    }
    set_defaults();
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(words[0], words);
    int why = errno;
    if (write(error_pipe, &why, sizeof why) < 0) _exit(126);
    _exit(127);
}

/* How a start has ended. */
typedef struct outcome {
    int status;   /* of waitpid */
    int received; /* signals to this program */
} outcome;

/* Passes signals on until mpirun has ended. */
static void forward_signals(pid_t pid, const sigset_t *set, outcome *o)
{
    for (;;) {
        int signal = sigwaitinfo(set, NULL);
        if (signal == SIGCHLD && waitpid(pid, &o->status, WNOHANG) == pid) return;
        if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) continue;
        o->received++;
        kill(pid, o->received > 2 ? SIGKILL : signal == SIGINT ? SIGUSR1 : SIGUSR2);
    }
}

static int exit_code_of(int status, int ranks)
{
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 128 + SIGUSR1) return 130; /* a signal before the ranks had handlers */
    if (code == 128 + SIGUSR2) return 143;
    if (code > 128 && code != 130 && code != 143)
        ares_log(ARES_LOG_ERROR, "dist: %s was killed by signal %d (%s%s)%s",
                 ranks == 1 ? "the run" : "a rank", code - 128, strsignal(code - 128),
                 code == 128 + SIGKILL ? "; the system does so where memory is short, see dmesg"
                                       : "",
                 ranks == 1 ? "" : "; the others were stopped");
    return code;
}

/* Starts the words once and waits for their end. */
static int start(char **words, const sigset_t *set, const sigset_t *before, outcome *o)
{
    int error_pipe[2], why = 0, rc = ARES_OK;
    if (pipe2(error_pipe, O_CLOEXEC) < 0)
        return ares_fail(ARES_EIO, "dist: no pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) exec_mpirun(words, before, error_pipe[1]);
    close(error_pipe[1]);
    if (pid < 0) {
        rc = ares_fail(ARES_EIO, "dist: cannot start %s: %s", words[0], strerror(errno));
    } else if (read(error_pipe[0], &why, sizeof why) == (ssize_t)sizeof why) {
        waitpid(pid, &o->status, 0);
        rc = ares_fail(ARES_EIO, "dist: %s: %s; install Open MPI (openmpi-bin)", words[0],
                       strerror(why));
    } else {
        forward_signals(pid, set, o);
    }
    close(error_pipe[0]);
    return rc;
}

/* ---------------- --restarts */
static struct stat look_at(const char *path)
{
    struct stat st;
    return path && stat(path, &st) == 0 ? st : (struct stat){ 0 };
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Whether the run is started again; says so in a line. `begun`: `latest` at its last start. */
static bool goes_on(const ares_launch_plan *p, int again, const outcome *o, int code,
                    const struct stat *begun)
{
    struct stat now = look_at(p->latest);
    ares_str name = { 0 };
    bool asked_to_end = o->received > 0 || code == 130 || code == 143,
         in_vain =
             code == ares_error_exit_code(ARES_EUSE) || code == ares_error_exit_code(ARES_ENUMERIC);
    if (p->restarts == 0 || code == 0 || asked_to_end || in_vain) return false;
    bool go = again < p->restarts && now.st_ino != 0 && !same(&now, begun);
    if (go) {
        if (ares_file_read(p->latest, &name) != ARES_OK) ares_str_add_z(&name, "latest");
        ares_log(ARES_LOG_INFO,
                 "dist: the run failed (exit code %d); restart %d of %d, from checkpoint %s", code,
                 again + 1, p->restarts, name.data);
    } else if (again >= p->restarts)
        ares_log(ARES_LOG_INFO,
                 "dist: the run failed (exit code %d) after restart %d of %d: it "
                 "is left as it is",
                 code, again, p->restarts);
    else
        ares_log(ARES_LOG_INFO,
                 "dist: the run failed (exit code %d) and has saved no checkpoint since its start: "
                 "no restart",
                 code);
    ares_str_fini(&name);
    return go;
}

static int check(const ares_launch_plan *p)
{
    if (p->ranks < 1)
        return ares_fail(ARES_EUSE, "dist: --ranks = %d: must be 1 or more", p->ranks);
    if (dist_transport_size() > 1)
        return ares_fail(ARES_EUSE,
                         "dist: --%s = %d: this process already runs under mpirun or srun, which "
                         "starts the ranks; leave the option out",
                         p->ranks > 1 ? "ranks" : "restarts",
                         p->ranks > 1 ? p->ranks : p->restarts);
#ifndef ARES_HAVE_MPI
    if (p->ranks > 1)
        return ares_fail(
            ARES_EUNSUPPORTED,
            "dist: --ranks = %d: this build has no MPI; configure it with -DARES_MPI=ON", p->ranks);
#endif
    return ARES_OK;
}

int ares_launch(const ares_launch_plan *p, int argc, char *const *argv, int *exit_code)
{
    ARES_TRY(check(p));
    char self[4096], count[16];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len < 0) return ares_fail(ARES_EIO, "dist: cannot find this program: %s", strerror(errno));
    self[len] = 0;

    sigset_t set, before;
    sigemptyset(&set);
    for (const int *s = (const int[]){ SIGINT, SIGTERM, SIGHUP, SIGCHLD, 0 }; *s; s++)
        sigaddset(&set, *s);
    sigprocmask(SIG_BLOCK, &set, &before);
    char **words = command(p->ranks, argc, argv, count, self);
    outcome o = { 0 };
    struct stat begun;
    int rc = ARES_OK, again = 0;
    do {
        begun = look_at(p->latest);
        rc = start(words, &set, &before, &o);
        if (rc == ARES_OK) *exit_code = exit_code_of(o.status, p->ranks);
    } while (rc == ARES_OK && goes_on(p, again++, &o, *exit_code, &begun));
    ares_free(words);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return rc;
}
