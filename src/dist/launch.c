/*
 * `--ranks N`: runs mpirun as a child in a process group of its own, so that Ctrl-C on the terminal
 * reaches only this process, and waits for signals, ranks and the child's end in one loop.
 * `--restarts K`: does so again after a failure.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---------------- ranks that have started
 * A rank that can take signals says so with a datagram to a socket of the launcher, whose name is
 * in the rank's environment; the system adds which process sent it. The launcher sends signals to
 * these processes and not through mpirun, which loses signals while it starts or waits for ever
 * after them, and which ends its ranks a second after SIGINT, SIGTERM or SIGHUP.
 */
static const char variable[] = "ARES_LAUNCHER";
typedef struct roll_call {
    int socket, ranks, there; /* there: how many ranks have answered */
    pid_t *pids;              /* [ranks], of which the first `there` are set */
    char name[16];
} roll_call;

static int open_roll_call(int ranks, roll_call *r)
{
    struct sockaddr_un own = { .sun_family = AF_UNIX };
    socklen_t size = sizeof own.sun_family; /* the system chooses a name */
    const int yes = 1;
    *r = (roll_call){ .ranks = ranks };
    r->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (r->socket < 0 || bind(r->socket, (struct sockaddr *)&own, size) != 0 ||
        setsockopt(r->socket, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0 ||
        (size = sizeof own, getsockname(r->socket, (struct sockaddr *)&own, &size)) != 0) {
        int why = errno;
        if (r->socket >= 0) close(r->socket);
        return ares_fail(ARES_EIO, "dist: no socket for the ranks: %s", strerror(why));
    }
    r->pids = ares_calloc((size_t)ranks, sizeof *r->pids);
    snprintf(r->name, sizeof r->name, "%.*s",
             (int)(size - offsetof(struct sockaddr_un, sun_path) - 1), own.sun_path + 1);
    return ARES_OK;
}

/* Only ranks that have answered: a process that has not would die of the signal. */
static void signal_ranks(const roll_call *r, int signal)
{
    for (int i = 0; i < r->there; i++) kill(r->pids[i], signal);
}

void dist_launch_answer(void)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    const char *name = getenv(variable);
    if (!name) return;
    size_t len = ARES_MIN(strlen(name), sizeof to.sun_path - 1);
    memcpy(to.sun_path + 1, name, len);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
    int from = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (from < 0 || sendto(from, "", 1, 0, (struct sockaddr *)&to, size) < 0)
        ares_log(ARES_LOG_WARN,
                 "dist: the launcher cannot be reached: %s; a signal to it ends the "
                 "run without saving",
                 strerror(errno));
    if (from >= 0) close(from);
    unsetenv(variable); /* programs that this one starts are no ranks */
}

/* ---------------- a start */
/*
 * In the child: becomes mpirun. A successful exec closes `error_pipe`; a failed one writes errno to
 * it.
 */
static void exec_mpirun(char **words, const char *name, pid_t launcher, const sigset_t *mask,
                        int error_pipe)
{
    setpgid(0, 0);
    /* if the launcher is killed, the ranks must end too */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != launcher) _exit(126);
    /* a process outside the foreground group that reads from the terminal is stopped */
    if (isatty(STDIN_FILENO)) {
        int null = open("/dev/null", O_RDONLY);
        dup2(null, STDIN_FILENO);
        close(null);
    }
    /*
     * The ranks share a machine and talk through memory: Open MPI need not look for networks, nor
     * spread the ranks over the machines of a batch system's job. Users' own settings stay.
     */
    setenv("OMPI_MCA_pml", "ob1", 0);
    setenv("OMPI_MCA_btl", "self,vader", 0);
    setenv("OMPI_MCA_plm", "isolated", 0);
    setenv("OMPI_MCA_ras", "^slurm,gridengine", 0);
    setenv(variable, name, 1);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(words[0], words);
    int why = errno;
    if (write(error_pipe, &why, sizeof why) < 0) _exit(126);
    _exit(127);
}

/* How a start has ended. */
typedef struct outcome {
    int status;    /* of waitpid */
    int received;  /* number of signals to this program */
    int last;      /* the last signal; of several that came together the largest */
    bool by_force; /* this program has ended all processes, for such a signal */
} outcome;

enum {
    COME_S = 20,
    END_S = 3
}; /* for ranks to start after a signal; for mpirun to end its ranks */

/* Reaps what has ended, which may also be a process that mpirun has left. */
static bool has_ended(pid_t child, int *status)
{
    int one;
    bool ended = false;
    for (pid_t pid; (pid = waitpid(-1, &one, WNOHANG)) > 0;)
        if (pid == child) {
            *status = one;
            ended = true;
        }
    return ended;
}

/* Passes signals on, once all ranks are there, until the child has ended. */
static void attend(pid_t child, roll_call *r, int signals, outcome *o)
{
    int held = 0;
    double until = 0; /* when processes are ended by force; 0: nothing is due */
    while (!has_ended(child, &o->status)) {
        /* until a signal, a rank's answer or the end of a child; `until` 0: for ever */
        struct pollfd wait[] = { { .fd = signals, .events = POLLIN },
                                 { .fd = r->socket, .events = POLLIN } };
        double left_ms = 1000 * (until - ares_now_s());
        poll(wait, ARES_COUNT(wait), until > 0 ? (int)ARES_MAX(left_ms, 0) + 1 : -1);
        for (;;) { /* the ranks that have answered since */
            char byte, space[CMSG_SPACE(sizeof(struct ucred))];
            struct iovec into = { &byte, 1 };
            struct msghdr m = { .msg_iov = &into,
                                .msg_iovlen = 1,
                                .msg_control = space,
                                .msg_controllen = sizeof space };
            struct ucred from = { 0 };
            if (recvmsg(r->socket, &m, 0) < 0) break;
            const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
            if (c && c->cmsg_type == SCM_CREDENTIALS) memcpy(&from, CMSG_DATA(c), sizeof from);
            if (from.pid > 0 && from.uid == getuid() && r->there < r->ranks)
                r->pids[r->there++] = from.pid;
        }
        int signal = 0;
        for (struct signalfd_siginfo s; read(signals, &s, sizeof s) == (ssize_t)sizeof s;) {
            if (s.ssi_signo == SIGCHLD) continue;
            if (s.ssi_signo == SIGHUP && o->received)
                continue; /* a terminal that closes sends two */
            signal = (int)s.ssi_signo;
            o->received++;
        }
        if (signal) o->last = signal;
        if (signal == SIGHUP) ares_signal_lose_readers();
        double now = ares_now_s();
        bool all = r->there == r->ranks;
        /* a signal waits until all ranks can take it */
        if (signal) held = signal;
        if (held && all && !o->by_force) {
            signal_ranks(r, held);
            held = 0;
            until = 0;
        }
        if (held && until == 0) until = now + COME_S;
        bool late = until > 0 && now >= until;
        if (!late && (o->by_force || o->received <= (all ? 2 : 1))) continue;
        if (o->by_force) kill(child, SIGKILL);
        else {
            if (late)
                ares_log(ARES_LOG_WARN,
                         "dist: %d of %d ranks have started %d s after signal %d; ending them",
                         r->there, r->ranks, COME_S, o->last);
            o->by_force = true;
            signal_ranks(r, SIGKILL);
            kill(child, r->ranks > 1 ? SIGTERM : SIGKILL); /* mpirun then removes its files */
        }
        until = now + END_S;
    }
}

/*
 * Processes whose parent has ended have become this one's children (PR_SET_CHILD_SUBREAPER): ranks
 * of an mpirun that had to be killed, and theirs.
 */
static void kill_children(void)
{
    DIR *all = opendir("/proc");
    for (struct dirent *e; all && (e = readdir(all));) {
        char path[64], text[512];
        int parent = 0;
        if (!strchr("123456789", e->d_name[0]) || strlen(e->d_name) > 12) continue;
        snprintf(path, sizeof path, "/proc/%.12s/stat", e->d_name);
        FILE *f = fopen(path, "re");
        size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
        if (f) fclose(f);
        text[n] = 0;
        const char *name_end = strrchr(text, ')'); /* "4242 (name) S 4200 ..." */
        if (name_end && sscanf(name_end, ") %*c %d", &parent) == 1 && parent == getpid())
            kill(atoi(e->d_name), SIGKILL);
    }
    if (all) closedir(all);
}

/* Whether an exit code says that a signal asked for the end. */
static bool asks_for_the_end(int code)
{
    return code == ares_signal_exit_code(SIGHUP) || code == ares_signal_exit_code(SIGINT) ||
           code == ares_signal_exit_code(SIGTERM);
}

/* The exit code of this program; a death by a signal is also logged. */
static int exit_code_of(const outcome *o, int ranks)
{
    int signal = WIFSIGNALED(o->status) ? WTERMSIG(o->status) : WEXITSTATUS(o->status) - 128;
    if (o->by_force) return ares_signal_exit_code(o->last);
    if (signal <= 0) return WEXITSTATUS(o->status);
    int code = ares_signal_exit_code(signal);
    if (!asks_for_the_end(code))
        ares_log(ARES_LOG_ERROR, "dist: %s was killed by signal %d (%s%s)%s",
                 ranks == 1 ? "the run" : "a rank", signal, strsignal(signal),
                 signal == SIGKILL ? "; the system does so where memory is short, see dmesg" : "",
                 ranks == 1 ? "" : "; the others were stopped");
    return code;
}

/* Starts the words once and waits for their end. */
static int start(char **words, roll_call *r, int signals, const sigset_t *before, outcome *o)
{
    int error_pipe[2], why = 0, rc = ARES_OK;
    if (pipe2(error_pipe, O_CLOEXEC) < 0)
        return ares_fail(ARES_EIO, "dist: no pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t self = getpid(), pid = fork();
    if (pid == 0) exec_mpirun(words, r->name, self, before, error_pipe[1]);
    close(error_pipe[1]);
    if (pid < 0) {
        rc = ares_fail(ARES_EIO, "dist: cannot start %s: %s", words[0], strerror(errno));
    } else if (read(error_pipe[0], &why, sizeof why) == (ssize_t)sizeof why) {
        waitpid(pid, &o->status, 0);
        rc = ares_fail(ARES_EIO, "dist: %s: %s; install Open MPI (openmpi-bin)", words[0],
                       strerror(why));
    } else {
        attend(pid, r, signals, o);
        double until = ares_now_s() + END_S;
        for (pid_t one;
             o->by_force && (one = waitpid(-1, NULL, WNOHANG)) >= 0 && ares_now_s() < until;) {
            if (one > 0) continue;
            kill_children();
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        }
    }
    close(error_pipe[0]);
    return rc;
}

/* ---------------- --restarts */
/* All 0 where there is no such file. */
static struct stat look_at(const char *path)
{
    struct stat st;
    return path && stat(path, &st) == 0 ? st : (struct stat){ 0 };
}

/*
 * Whether the run is started again, which it is only where it has saved a checkpoint since its last
 * start; logs the decision. begun: the file `latest` at that start.
 */
static bool goes_on(const ares_launch_plan *p, int again, const outcome *o, int code,
                    const struct stat *begun)
{
    struct stat now = look_at(p->latest);
    ares_str name = { 0 };
    bool asked_to_end = o->received > 0 || asks_for_the_end(code),
         in_vain =
             code == ares_error_exit_code(ARES_EUSE) || code == ares_error_exit_code(ARES_ENUMERIC);
    if (p->restarts == 0 || code == 0 || asked_to_end || in_vain) return false;
    bool saved = now.st_ino != 0 &&
                 (now.st_ino != begun->st_ino || now.st_mtim.tv_sec != begun->st_mtim.tv_sec ||
                  now.st_mtim.tv_nsec != begun->st_mtim.tv_nsec);
    bool go = again < p->restarts && saved;
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

int ares_launch(const ares_launch_plan *p, int argc, char *const *argv, int *exit_code)
{
    /* whether this process may launch ranks at all */
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
    char self[4096], count[16];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len < 0) return ares_fail(ARES_EIO, "dist: cannot find this program: %s", strerror(errno));
    self[len] = 0;

    sigset_t set, before;
    ares_signal_block(&set, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), rc = ARES_OK, again = 0;
    if (signals < 0) rc = ares_fail(ARES_EIO, "dist: no signalfd: %s", strerror(errno));
    snprintf(count, sizeof count, "%d", p->ranks);
    char *const fixed[] = { "mpirun", "-q", "-n", count, "--bind-to", "none", "--oversubscribe" };
    char **words = ares_calloc((size_t)(ARES_COUNT(fixed) + argc + 3), sizeof *words);
    int n = 0;
    /* one rank needs no mpirun */
    for (int i = 0; i < ARES_COUNT(fixed) && p->ranks > 1; i++) words[n++] = fixed[i];
    if (p->ranks > 1 && geteuid() == 0) words[n++] = "--allow-run-as-root";
    words[n++] = self;
    for (int i = 0; i < argc; i++) words[n++] = argv[i];
    outcome o = { 0 };
    for (bool go = rc == ARES_OK; go;) {
        roll_call r;
        struct stat begun = look_at(p->latest);
        rc = open_roll_call(p->ranks, &r);
        if (rc != ARES_OK) break;
        rc = start(words, &r, signals, &before, &o);
        close(r.socket);
        ares_free(r.pids);
        if (rc == ARES_OK) *exit_code = exit_code_of(&o, p->ranks);
        go = rc == ARES_OK && goes_on(p, again++, &o, *exit_code, &begun);
    }
    ares_free(words);
    if (signals >= 0) close(signals);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return rc;
}
