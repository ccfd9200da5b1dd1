/*
 * Ranks that wait for each other. Every rank shows the other ranks of its machine which collective
 * it is in. A rank looks at them while it waits: one that is gone, or that keeps the others waiting
 * for too long, ends the run and is named. No thread is needed for that.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/*
 * A wait begins with polls without a pause, because most waits are short; then pauses grow, so that
 * a rank that waits leaves its CPU to those that work.
 */
static const double spin_s = 1e-3, least_pause_s = 2e-5, most_pause_s = 1e-3, look_s = 0.25;
/*
 * Extra wait before a rank that does not know who is missing reports, so that a rank that knows
 * reports first.
 */
static const double later_s = 5;

/* What a signal handler reads; NULL in a world of one. */
static dist_rank_status *own, *first;
static int ranks;

/* ---------------- a rank that is gone */
/* A rank of this machine whose process does not exist; one that has ended in order is not gone. */
static const dist_rank_status *find_gone(void)
{
    for (int i = 0; i < ranks; i++)
        if (!first[i].ended && first[i].pids == own->pids && kill(first[i].pid, 0) != 0 &&
            errno == ESRCH)
            return &first[i];
    return NULL;
}

/* One rank of a machine reports; the others wait to be ended with it. */
static bool claim_report(void)
{
    return !atomic_exchange(&first->claimed, true);
}

/* True for the first rank of a machine that asks, and where no ranks share a status. */
bool dist_watch_reports(void)
{
    return !first || !atomic_exchange(&first->reported, true);
}

void dist_watch_end(void)
{
    if (own) own->ended = true;
}

void dist_watch_close(void)
{
    dist_watch_end();
    own = first = NULL;
    ranks = 0;
}

void dist_watch_tell_gone(void)
{
    int before = errno;
    const dist_rank_status *gone = own ? find_gone() : NULL;
    if (gone && claim_report() && write(STDERR_FILENO, gone->gone, strlen(gone->gone)) < 0) {
        /* nothing else to do */
    }
    errno = before;
}

/*
 * mpirun sends SIGTERM to the ranks that are left; where the launcher sends it to all, none is
 * missed. Training replaces this handler by its own.
 */
static void tell_and_end(int signal, siginfo_t *from, void *context)
{
    (void)context;
    /* from mpirun, whose child this is */
    if (from->si_pid == getppid()) dist_watch_tell_gone();
    raise(signal); /* handled by the default action, which SA_RESETHAND has restored */
}

void dist_watch_open(ares_world *w)
{
    struct stat pids;
    first = w->status;
    own = &first[w->local_rank];
    ranks = w->local_size;
    *own = (dist_rank_status){ .rank = w->rank, .pid = getpid(), .since = ares_now_s() };
    if (stat("/proc/self/ns/pid", &pids) == 0) own->pids = pids.st_ino;
    snprintf(own->gone, sizeof own->gone,
             "error: dist: rank %d (process %d) is gone; ending all ranks\n", w->rank, own->pid);
    struct sigaction now,
        tell = { .sa_sigaction = tell_and_end, .sa_flags = (int)SA_RESETHAND | SA_SIGINFO };
    sigemptyset(&tell.sa_mask);
    if (sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        sigaction(SIGTERM, &tell, NULL);
}

/* ---------------- what a message says */
/* Adds "collective 12.3 (sum in a group, 400 f32)". */
static void add_name(const dist_rank_status *s, ares_str *out)
{
#define NAME(name, text) text,
    static const char *const names[] = { DIST_KINDS(NAME) };
#undef NAME
    char text[64];
    snprintf(text, sizeof text, names[s->kind], (long long)s->size);
    ares_str_addf(out, "collective %lld", (long long)s->count);
    if (s->inner > 0) ares_str_addf(out, ".%lld", (long long)s->inner);
    ares_str_addf(out, " (%s)", text);
}

/*
 * Whether rank b takes part in the collective that a is in, or was in last: of the world, or of a
 * group.
 */
static bool takes_part(const dist_rank_status *a, const dist_rank_status *b)
{
    int size = a->group_size, stride = a->group_stride;
    return size == 0 || (a->rank / (size * stride) == b->rank / (size * stride) &&
                         a->rank % stride == b->rank % stride);
}

/* Whether rank a is before (< 0) or after (> 0) rank b in the collectives that both take part in.
 */
static int compare(const dist_rank_status *a, const dist_rank_status *b)
{
    int64_t count = a->count - b->count, inner = a->inner - b->inner;
    return count ? (count > 0) - (count < 0) : (inner > 0) - (inner < 0);
}

/* Whether rank b is in the collective that rank a is in. */
static bool together(const dist_rank_status *a, const dist_rank_status *b)
{
    return takes_part(a, b) && compare(a, b) == 0;
}

/* Adds "ranks 0-2, 5": the ranks that are in the collective that `at` is in. Returns how many. */
static int add_ranks(const dist_rank_status *s, int n, const dist_rank_status *at, ares_str *out)
{
    int found = 0;
    ares_str list = { 0 };
    for (int i = 0; i < n; i++) {
        if (!together(at, &s[i])) continue;
        int end = i;
        while (end + 1 < n && together(at, &s[end + 1]) && s[end + 1].rank == s[end].rank + 1)
            end++;
        ares_str_addf(&list, found ? ", %d" : "%d", s[i].rank);
        if (end > i) ares_str_addf(&list, "-%d", s[end].rank);
        found += end - i + 1;
        i = end;
    }
    ares_str_addf(out, "rank%s %s", found > 1 ? "s" : "", list.data);
    ares_str_fini(&list);
    return found;
}

static const char runs[] = "runs", sleeps[] = "sleeps";
/* The state of a process of this machine; NULL: it cannot be seen from here. */
static const char *state_of(const dist_rank_status *s, ino_t pids)
{
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", s->pid);
    if (s->pids != pids) return NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return errno == ENOENT ? "is gone" : NULL;
    ssize_t len = read(file, text, sizeof text - 1);
    close(file);
    text[ARES_MAX(len, 0)] = 0;
    const char *name_end = strrchr(text, ')'); /* "4242 (name) T ..." */
    switch (name_end && name_end[1] ? name_end[2] : 0) {
    case 'R': return runs;
    case 'S': return sleeps;
    case 'D': return "waits for a disk or the network";
    case 'T': return "is stopped";
    case 't': return "is stopped by a debugger";
    case 'Z':
    case 'X': return "is gone";
    default: return NULL;
    }
}

/* A rank whose process is stopped, gone or waits for a disk, and its state; else `me` and NULL. */
static int halted(const dist_rank_status *s, int n, int me, const char **state)
{
    for (int i = 0; i < n; i++) {
        *state = i == me || !takes_part(&s[me], &s[i]) ? NULL : state_of(&s[i], s[me].pids);
        if (*state && *state != runs && *state != sleeps) return i;
    }
    *state = NULL;
    return me;
}

/* Of the ranks that take part in my collective, the first of those that have come least far. */
static int slowest(const dist_rank_status *s, int n, int me)
{
    int least = me;
    for (int i = 0; i < n; i++) {
        /* of equal ones the lowest rank, so that all ranks name the same */
        int order = takes_part(&s[me], &s[i]) ? compare(&s[i], &s[least]) : 1;
        if (order < 0 || (order == 0 && i < least)) least = i;
    }
    return least;
}

void dist_watch_describe(const dist_rank_status *s, int n, int world, int me, double now,
                         ares_str *out)
{
    const dist_rank_status *slow = &s[slowest(s, n, me)];
    bool here = compare(slow, &s[me]) >= 0;
    const char *state = NULL;
    if (here) slow = &s[halted(s, n, me, &state)];
    bool many = !here && add_ranks(s, n, slow, out) > 1;
    if (here) ares_str_addf(out, "rank %d", slow->rank);
    ares_str_addf(out, " %s %s ", many ? "stand" : "stands", slow->inside ? "at" : "behind");
    add_name(slow, out);
    ares_str_addf(out, " for %.0f s", now - slow->since);
    if (here) {
        /*
         * no rank of this machine is behind: all have begun the same collective, or have queued it
         * for their cards. state: what the process of rank `at` does, or NULL
         */
        int at = (int)(slow - s);
        bool same = true;
        for (int i = 0; i < n; i++)
            if (takes_part(&s[at], &s[i]) && (compare(&s[i], &s[at]) != 0 ||
                                              s[i].kind != s[at].kind || s[i].size != s[at].size)) {
                ares_str_addf(out, ", rank %d %s ", s[i].rank, s[i].inside ? "at" : "behind");
                add_name(&s[i], out);
                same = same && compare(&s[i], &s[at]) == 0;
            }
        if (world > n)
            ares_str_add_z(out,
                           ", and so do all ranks of this machine; a rank of another machine does "
                           "not come: is it alive?");
        else if (same) ares_str_add_z(out, ", and so do all ranks");
        if (state) ares_str_addf(out, "; process %d of rank %d %s", s[at].pid, s[at].rank, state);
        else if (world == n) ares_str_add_z(out, ", but it does not end");
        return;
    }
    ares_str_add_z(out, ", ");
    add_ranks(s, n, &s[me], out);
    ares_str_add_z(out, " at ");
    add_name(&s[me], out);
    for (int i = 0; i < n; i++) {
        if (!together(slow, &s[i])) continue;
        const char *why = state_of(&s[i], s[me].pids);
        if (why) ares_str_addf(out, "; process %d of rank %d %s", s[i].pid, s[i].rank, why);
        else ares_str_addf(out, "; is process %d of rank %d alive?", s[i].pid, s[i].rank);
    }
}

/* ---------------- waiting */
void dist_watch_name(ares_world *w, dist_kind kind, int64_t size)
{
    dist_rank_status *s = &w->status[w->local_rank];
    s->kind = (int)kind;
    s->size = size;
}

/* Begins a collective, of the world where size is 0. */
static dist_wait enter(dist_rank_status *s, int size, int stride)
{
    double now = ares_now_s();
    s->since = now;
    s->group_size = size;
    s->group_stride = stride;
    s->inside = true;
    return (dist_wait){ .last = now };
}

dist_wait dist_watch_enter(ares_world *w)
{
    dist_rank_status *s = &w->status[w->local_rank];
    s->inner = 0;
    s->count++;
    return enter(s, 0, 0);
}

dist_wait dist_watch_enter_group(ares_world *w, int size, int stride)
{
    dist_rank_status *s = &w->status[w->local_rank];
    s->inner++;
    return enter(s, size, stride);
}

void dist_watch_leave(ares_world *w)
{
    dist_rank_status *s = &w->status[w->local_rank];
    s->since = ares_now_s();
    s->inside = false;
}

dist_place dist_watch_issue(ares_world *w, int size, int stride)
{
    if (size == w->size) (void)dist_watch_enter(w);
    else (void)dist_watch_enter_group(w, size, stride);
    dist_watch_leave(w);
    return dist_watch_place(w);
}

dist_place dist_watch_place(const ares_world *w)
{
    const dist_rank_status *s = &w->status[w->local_rank];
    return (dist_place){ s->kind, s->size, s->count, s->inner, s->group_size, s->group_stride };
}

/* Shows the others a place that was noted before, not the one that the host is at. */
void dist_watch_stand(ares_world *w, const dist_place *p, bool inside)
{
    dist_rank_status *s = &w->status[w->local_rank];
    s->kind = p->kind;
    s->size = p->size;
    s->count = p->count;
    s->inner = p->inner;
    s->group_size = p->group_size;
    s->group_stride = p->group_stride;
    s->since = ares_now_s();
    s->inside = inside;
}

/* Ends the run when the wait exceeds trainer.comm_timeout_s. */
static void end_if_late(ares_world *w, const dist_wait *wait)
{
    const dist_rank_status *s = w->status;
    int n = w->local_size, me = w->local_rank;
    bool known = compare(&s[slowest(s, n, me)], &s[me]) < 0;
    double over = w->timeout_s > 0 ? wait->waited - w->timeout_s : -1;
    if (over > 2 * later_s) { /* the rank that reported it could not end the run */
        (void)ares_fail(ARES_EDIST, "dist: no rank has come (trainer.comm_timeout_s = %g)",
                        w->timeout_s);
        ares_world_abort(w, ARES_EDIST);
    }
    if (over < (known ? 0 : later_s) || !claim_report()) return;
    ares_str text = { 0 };
    dist_watch_describe(s, n, w->size, me, ares_now_s(), &text);
    (void)ares_fail(ARES_EDIST,
                    "dist: %s (trainer.comm_timeout_s = %g; raise it if the rank was only "
                    "slow)",
                    text.data, w->timeout_s);
    ares_str_fini(&text);
    ares_world_abort(w, ARES_EDIST);
}

void dist_watch_rest(dist_wait *wait)
{
    wait->pause_s = ARES_MIN(most_pause_s, ARES_MAX(least_pause_s, 2 * wait->pause_s));
    nanosleep(&(struct timespec){ .tv_nsec = (long)(wait->pause_s * 1e9) }, NULL);
}

void dist_watch_pause(ares_world *w, dist_wait *wait)
{
    double now = ares_now_s();
    /* time in which this process was stopped itself does not count */
    wait->waited += ARES_MIN(now - wait->last, 1);
    wait->last = now;
    /* short waits are common: give the CPU away, but do not sleep */
    if (wait->waited < spin_s) {
        sched_yield();
        return;
    }
    if (wait->waited >= wait->looked + look_s) {
        wait->looked = wait->waited;
        const dist_rank_status *gone = find_gone(), *before = wait->gone;
        wait->gone = gone;
        /* seen twice, because mpirun may be ending the ranks, and then a signal handler tells */
        if (gone && gone == before && claim_report()) {
            (void)ares_fail(ARES_EDIST, "dist: rank %d (process %d) is gone", gone->rank,
                            gone->pid);
            ares_world_abort(w, ARES_EDIST);
        }
        end_if_late(w, wait);
    }
    dist_watch_rest(wait);
}
