/*
 * `--ranks N`: runs mpirun as a child in a process group of its own, so that Ctrl-C on the terminal
 * reaches only this process, and waits for signals and for the child's end in one loop.
 */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The ranks share a machine and talk through memory; keeps Open MPI from looking for networks. */
static void set_defaults(void)
{
    setenv("OMPI_MCA_pml", "ob1", 0);
    setenv("OMPI_MCA_btl", "self,vader", 0);
}

static char **command(int ranks, int argc, char *const *argv, char count[static 16], char *self)
{
    snprintf(count, 16, "%d", ranks);
    char *const fixed[] = { "mpirun", "-q", "-n", count, "--bind-to", "none", "--oversubscribe" };
    char **words = ares_calloc((size_t)(ARES_COUNT(fixed) + argc + 3), sizeof *words);
    int n = 0;
    for (int i = 0; i < ARES_COUNT(fixed); i++) words[n++] = fixed[i];
    if (geteuid() == 0) words[n++] = "--allow-run-as-root";
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

/* Passes signals on until mpirun has ended; returns its wait status. */
static int forward_signals(pid_t pid, const sigset_t *set)
{
    for (int received = 0, status;;) {
        int signal = sigwaitinfo(set, NULL);
        if (signal == SIGCHLD && waitpid(pid, &status, WNOHANG) == pid) return status;
        if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) continue;
        received++;
        kill(pid, received > 2 ? SIGKILL : signal == SIGINT ? SIGUSR1 : SIGUSR2);
    }
}

static int exit_code_of(int status)
{
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 128 + SIGUSR1) return 130; /* a signal before the ranks had handlers */
    if (code == 128 + SIGUSR2) return 143;
    if (code > 128 && code != 130 && code != 143)
        ares_log(ARES_LOG_ERROR,
                 "dist: a rank was killed by signal %d (%s); the others were stopped", code - 128,
                 strsignal(code - 128));
    return code;
}

int ares_launch(int ranks, int argc, char *const *argv, int *exit_code)
{
    if (ranks < 1) return ares_fail(ARES_EUSE, "dist: --ranks = %d: must be 1 or more", ranks);
    if (dist_transport_size() > 1)
        return ares_fail(
            ARES_EUSE,
            "dist: --ranks = %d: this process already runs under mpirun; use one of the two",
            ranks);
#ifndef ARES_HAVE_MPI
    if (ranks > 1)
        return ares_fail(
            ARES_EUNSUPPORTED,
            "dist: --ranks = %d: this build has no MPI; configure it with -DARES_MPI=ON", ranks);
#endif
    char self[4096], count[16];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len < 0) return ares_fail(ARES_EIO, "dist: cannot find this program: %s", strerror(errno));
    self[len] = 0;
    int error_pipe[2], why = 0, status = 0;
    if (pipe2(error_pipe, O_CLOEXEC) < 0)
        return ares_fail(ARES_EIO, "dist: no pipe: %s", strerror(errno));

    sigset_t set, before;
    sigemptyset(&set);
    for (const int *s = (const int[]){ SIGINT, SIGTERM, SIGHUP, SIGCHLD, 0 }; *s; s++)
        sigaddset(&set, *s);
    sigprocmask(SIG_BLOCK, &set, &before);
    char **words = command(ranks, argc, argv, count, self);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) exec_mpirun(words, &before, error_pipe[1]);
    close(error_pipe[1]);
    ares_free(words);
    int rc = ARES_OK;
    if (pid < 0) {
        rc = ares_fail(ARES_EIO, "dist: cannot start mpirun: %s", strerror(errno));
    } else if (read(error_pipe[0], &why, sizeof why) == (ssize_t)sizeof why) {
        waitpid(pid, &status, 0);
        rc = ares_fail(ARES_EIO, "dist: mpirun: %s; install Open MPI (openmpi-bin)", strerror(why));
    } else {
        *exit_code = exit_code_of(forward_signals(pid, &set));
    }
    close(error_pipe[0]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return rc;
}
