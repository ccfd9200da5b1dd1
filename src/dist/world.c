/*
 * The ranks of a run (MPI). In order: opening and closing the world; collectives on host arrays,
 * whose sums are added in the order of ranks; signals, which all ranks act on together.
 */
#include "internal.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* This process among the ranks. A world of one does not use MPI, whose start takes 0.3 s. */

int ares_world_open(ares_world **out)
{
    ares_world *w = ares_calloc(1, sizeof *w);
    *w = (ares_world){ .size = 1, .local_size = 1 };
    int rc = ARES_OK;
    if (dist_transport_size() > 1) rc = dist_transport_open(w);
    else w->threads = ares_cpu_count();
    if (rc == ARES_OK) dist_launch_answer();
    if (rc != ARES_OK) {
        ares_free(w);
        w = NULL;
    }
    *out = w;
    return rc;
}

void ares_world_close(ares_world *w)
{
    if (!w) return;
    if (w->size > 1) dist_transport_close(w);
    ares_free(w->buffer);
    ares_free(w);
}

/* Functions that take a world take NULL for a run of one rank. */
int ares_world_rank(const ares_world *w)
{
    return w ? w->rank : 0;
}

int ares_world_size(const ares_world *w)
{
    return w ? w->size : 1;
}

int ares_world_local_rank(const ares_world *w)
{
    return w ? w->local_rank : 0;
}

int ares_world_local_size(const ares_world *w)
{
    return w ? w->local_size : 1;
}

int ares_world_threads(const ares_world *w)
{
    return w ? w->threads : ares_cpu_count();
}

void ares_world_set_timeout(ares_world *w, double seconds)
{
    if (w) w->timeout_s = seconds;
}

void ares_world_set_transport(ares_world *w, const char *name)
{
    static const char *const names[] = { "auto", "staged", "nccl" };
    int i;
    /* the option's own check has refused other words, so a failure here is our mistake */
    if (ares_lookup(ARES_ECONFIG, "dist: transport", name, names, ARES_COUNT(names), &i) == ARES_OK)
        w->transport = (dist_transport)i;
    else ARES_ASSERT(false && "the option has no other choices");
}

void ares_world_abort(const ares_world *w, int code)
{
    int exit_code = ares_error_exit_code(code);
    if (ares_world_size(w) == 1) {
        ares_log(ARES_LOG_ERROR, "%s", ares_error_message());
        fflush(NULL);
        _Exit(exit_code);
    }
    dist_watch_end();
    /* one report per machine: ranks that fail together would print the same text many times */
    if (dist_watch_reports())
        ares_log(ARES_LOG_ERROR, "%s; ending all ranks", ares_error_message());
    else nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL); /* the other's message comes first */
    fflush(NULL);
    /*
     * NCCL may wait for ranks that are gone when it is asked to end: then the process ends by
     * SIGALRM.
     */
    enum { ABORT_S = 5 };
    if (w->groups) alarm(ABORT_S);
    for (ares_group *g = w->groups; g; g = g->next) g->ops->abort(&g->side);
    dist_transport_abort(exit_code);
}

/* At least so many bytes, kept from call to call; a larger request loses the contents. */
char *dist_buffer(ares_world *w, size_t bytes)
{
    if (bytes > w->buffer_bytes) {
        ares_free(w->buffer);
        w->buffer = ares_malloc(bytes);
        w->buffer_bytes = bytes;
    }
    return w->buffer;
}

/*
 * Collectives on host arrays. MPI_Allreduce is not used for sums, because its order of addition
 * depends on its algorithm, the message and the machine. Instead an array is cut into one slice per
 * rank; each rank receives its slice from every rank and adds them from rank 0 up; then the sums
 * are gathered. That moves as many bytes as the best all-reduce.
 */

enum { SLICE_BYTES = 1 << 20, BLOCK_BYTES = 1 << 28 };

int ares_world_broadcast(ares_world *w, void *data, size_t bytes, int root)
{
    ARES_ASSERT(root >= 0 && root < ares_world_size(w));
    if (ares_world_size(w) == 1) return ARES_OK;
    dist_watch_name(w, DIST_BROADCAST, (int64_t)bytes);
    /* MPI counts in int, so large arrays go in blocks */
    for (size_t at = 0; at < bytes; at += BLOCK_BYTES)
        ARES_TRY(
            dist_broadcast(w, (char *)data + at, ARES_MIN(bytes - at, (size_t)BLOCK_BYTES), root));
    return ARES_OK;
}

/*
 * Merges `ranks` slices of n numbers that lie one after the other into the first: rank 0 first,
 * then the others in their order.
 */
static void merge(dist_kind kind, void *slices, size_t n, int ranks)
{
    double *f = slices, *other_f = f + n;
    int64_t *k = slices, *other_k = k + n;
    for (int r = 1; r < ranks; r++, other_f += n, other_k += n) switch (kind) {
        case DIST_SUM_F64:
            for (size_t i = 0; i < n; i++) f[i] += other_f[i];
            break;
        case DIST_SUM_I64:
            for (size_t i = 0; i < n; i++) k[i] += other_k[i];
            break;
        case DIST_MAX_F64: /* a NaN on one rank must be seen by all */
            for (size_t i = 0; i < n; i++)
                if (other_f[i] > f[i] || isnan(other_f[i])) f[i] = other_f[i];
            break;
        default:
            for (size_t i = 0; i < n; i++) k[i] = ARES_MAX(k[i], other_k[i]);
        }
}

/* array: of n numbers of 8 bytes */
static int merge_all(ares_world *w, dist_kind kind, void *array, int64_t n)
{
    ARES_ASSERT(n >= 0);
    int ranks = ares_world_size(w);
    if (ranks == 1) return ARES_OK;
    dist_watch_name(w, kind, n);
    char *x = array;
    size_t element = sizeof(double), left = (size_t)n, most = SLICE_BYTES / element;
    while (left > 0) {
        size_t slice = ARES_MIN((left + (size_t)ranks - 1) / (size_t)ranks, most),
               bytes = slice * element;
        size_t block = ARES_MIN(left, slice * (size_t)ranks), block_bytes = block * element;
        char *sent = dist_buffer(w, 2 * bytes * (size_t)ranks),
             *slices = sent + bytes * (size_t)ranks;
        memcpy(sent, x, block_bytes);
        /* the last slice may be shorter: pad with zeros */
        memset(sent + block_bytes, 0, bytes * (size_t)ranks - block_bytes);
        ARES_TRY(dist_exchange(w, sent, slices, bytes));
        /* this rank's slice from every rank; all ranks get the merged slices back in order */
        merge(kind, slices, slice, ranks);
        ARES_TRY(dist_gather_equal(w, slices, sent, bytes));
        memcpy(x, sent, block_bytes);
        x += block_bytes;
        left -= block;
    }
    return ARES_OK;
}

int ares_world_sum_f64(ares_world *w, double *x, int64_t n)
{
    return merge_all(w, DIST_SUM_F64, x, n);
}

int ares_world_sum_i64(ares_world *w, int64_t *x, int64_t n)
{
    return merge_all(w, DIST_SUM_I64, x, n);
}

int ares_world_max_f64(ares_world *w, double *x, int64_t n)
{
    return merge_all(w, DIST_MAX_F64, x, n);
}

int ares_world_max_i64(ares_world *w, int64_t *x, int64_t n)
{
    return merge_all(w, DIST_MAX_I64, x, n);
}

int ares_world_gather_all(ares_world *w, const void *data, size_t bytes, ares_str *out,
                          size_t *start)
{
    int ranks = ares_world_size(w);
    ares_str_clear(out);
    if (ranks == 1) {
        ares_str_add(out, data, bytes);
        if (start) start[0] = 0, start[1] = bytes;
        return ARES_OK;
    }
    dist_watch_name(w, DIST_GATHER, (int64_t)bytes);
    size_t *at = ares_calloc((size_t)ranks + 1, sizeof *at);
    /* sizes first, then the bytes; at [ranks + 1] is where each rank's begin */
    uint64_t mine = bytes, *sizes = ares_calloc((size_t)ranks, sizeof *sizes);
    int rc = dist_gather_equal(w, &mine, sizes, sizeof mine);
    for (int r = 0; r < ranks; r++) at[r + 1] = at[r] + (size_t)sizes[r];
    if (rc == ARES_OK) {
        ares_str_reserve(out, at[ranks]);
        if (at[ranks] <= INT_MAX) {
            int *count = ares_calloc((size_t)ranks * 2, sizeof *count), *from = count + ranks;
            for (int r = 0; r < ranks; r++)
                from[r] = (int)at[r], count[r] = (int)(at[r + 1] - at[r]);
            rc = dist_gather_sized(w, data, out->data, count, from);
            ares_free(count);
        } else { /* MPI counts in int: above 2 GiB each rank broadcasts in turn */
            memcpy(out->data + at[w->rank], data, at[w->rank + 1] - at[w->rank]);
            for (int r = 0; r < ranks && rc == ARES_OK; r++)
                rc = ares_world_broadcast(w, out->data + at[r], at[r + 1] - at[r], r);
        }
    }
    if (rc == ARES_OK) {
        out->len = at[ranks];
        out->data[out->len] = 0;
        if (start) memcpy(start, at, ((size_t)ranks + 1) * sizeof *at);
    }
    ares_free(sizes);
    ares_free(at);
    return rc;
}

/*
 * One gather says who failed, and, as a check for free, whether all ranks have made the same calls
 * on groups. Only a failure costs more: its message is broadcast.
 */
int ares_world_share_error(ares_world *w, int rc)
{
    int ranks = ares_world_size(w);
    if (ranks == 1) return rc;
    dist_watch_name(w, DIST_AGREE, 0);
    struct {
        uint64_t calls;
        int64_t code;
    } mine = { w->calls, rc }, *all = ares_calloc((size_t)ranks, sizeof *all);
    int moved = dist_gather_equal(w, &mine, all, sizeof mine), first = 0, strays = 0;
    /* first: the lowest rank that failed; strays: the lowest one with other calls than rank 0 */
    while (moved == ARES_OK && first < ranks && all[first].code == ARES_OK) first++;
    while (moved == ARES_OK && strays < ranks && all[strays].calls == all[0].calls) strays++;
    int code = moved == ARES_OK && first < ranks ? (int)all[first].code : ARES_OK;
    ares_free(all);
    if (moved != ARES_OK) return moved;
    if (code == ARES_OK && strays < ranks)
        return ares_fail(ARES_EDIST,
                         "dist: rank %d has made other calls on its group than rank 0: this is a "
                         "mistake in the program",
                         strays);
    if (code == ARES_OK) return ARES_OK;

    /* the message travels in two broadcasts, because the others do not know its length */
    ares_str message = { 0 };
    if (first == w->rank) ares_str_add_z(&message, ares_error_message());
    uint64_t len = message.len;
    moved = ares_world_broadcast(w, &len, sizeof len, first);
    if (moved == ARES_OK) {
        ares_str_reserve(&message, (size_t)len);
        moved = ares_world_broadcast(w, message.data, (size_t)len, first);
        message.data[len] = 0;
    }
    if (moved != ARES_OK) code = moved;
    else if (first == 0)
        (void)ares_fail(code, "%s", message.data); /* usually all ranks found the same */
    else (void)ares_fail(code, "rank %d: %s", first, message.data);
    ares_str_fini(&message);
    return code;
}

/*
 * Signals are noted here and handled where nothing is lost. SIGUSR1 and SIGUSR2 stand for SIGINT
 * and SIGTERM, because they are the two that mpirun passes to its ranks without killing them.
 */

static const int ends_run[] = { SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2 };
static volatile sig_atomic_t hangups, interrupts, terminations;
static volatile sig_atomic_t effect; /* ares_signal_effect */
static int agreed;                   /* what another rank noted */

/* Only the first rank of a machine says why. */
static void end_at_once(const char *text, int exit_code)
{
    if (dist_watch_reports() && write(STDERR_FILENO, text, strlen(text)) < 0) {
        /* nothing else to do */
    }
    dist_watch_end();
    _exit(exit_code);
}

/* The handler: only sets flags, and calls what a handler may call. */
static void note(int signal)
{
    if (effect == ARES_SIGNAL_ENDS) {
        if (signal == SIGTERM) dist_watch_tell_gone();
        end_at_once("stopped by a signal before a step was begun: nothing is lost; give the same "
                    "command again\n",
                    ares_signal_exit_code(signal));
    }
    if (signal == SIGHUP) {
        hangups = 1;
        ares_signal_lose_readers();
        return;
    }
    if (signal == SIGTERM || signal == SIGUSR2) {
        terminations = 1;
        if (signal == SIGTERM) dist_watch_tell_gone(); /* mpirun sends it when a rank has died */
        return;
    }
    if (interrupts++ == 0) return;
    end_at_once("interrupted twice: ending at once; the last checkpoint is complete\n", 130);
}

/* nohup ignores SIGHUP for the program that it starts. */
static bool is_unwanted(int signal)
{
    struct sigaction now;
    return signal == SIGHUP && sigaction(signal, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void ares_signal_install(ares_signal_effect of_first)
{
    struct sigaction action = { .sa_handler = note, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    /* a second run in this process (tests) begins without the signals of the first */
    hangups = interrupts = terminations = agreed = 0;
    effect = of_first;
    for (int i = 0; i < ARES_COUNT(ends_run); i++)
        if (!is_unwanted(ends_run[i])) sigaction(ends_run[i], &action, NULL);
}

void ares_signal_block(sigset_t *set, sigset_t *before)
{
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (int i = 0; i < ARES_COUNT(ends_run); i++)
        if (!is_unwanted(ends_run[i])) sigaddset(set, ends_run[i]);
    sigprocmask(SIG_BLOCK, set, before);
}

void ares_signal_lose_readers(void)
{
    signal(SIGPIPE, SIG_IGN);
}

/* The signal that weighs most; 0: none has come. */
int ares_signal_pending(void)
{
    return terminations ? SIGTERM : interrupts ? SIGINT : hangups ? SIGHUP : agreed;
}

void ares_signal_expect(ares_signal_effect of_first)
{
    effect = of_first;
}

int ares_signal_poll(void)
{
    int signal = ares_signal_pending();
    if (effect != ARES_SIGNAL_DROPS || !signal) return ARES_OK;
    return ares_fail(ARES_EINTERRUPTED, "run: stopped by signal %d", signal);
}

int ares_world_signal(ares_world *w, int *signal)
{
    /* a signal may reach one rank before the others: all act on the largest number */
    int64_t most = ares_signal_pending();
    _Static_assert(SIGTERM > SIGINT && SIGINT > SIGHUP, "the larger wins");
    ARES_TRY(ares_world_max_i64(w, &most, 1));
    *signal = agreed = (int)most;
    return ARES_OK;
}

/* 128 + the number, as shells have it; mpirun's stand-ins count as what they stand for. */
int ares_signal_exit_code(int signal)
{
    return 128 + (signal == SIGUSR1 ? SIGINT : signal == SIGUSR2 ? SIGTERM : signal);
}
