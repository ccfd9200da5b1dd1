/*
 * dist: several processes as one program. Ranks, collectives on host arrays of any size and on the
 * memory of devices, the launcher, signals.
 *
 * A program started without a launcher is a world of one rank and makes no MPI call. A NULL world
 * is a world of one too, so code that may run alone passes NULL. Only the main thread calls these
 * functions (MPI_THREAD_FUNNELED), and all ranks call the collectives in the same order. A
 * collective fails with ARES_EDIST on the rank that saw the failure; after that only
 * ares_world_abort ends the program without leaving the other ranks waiting.
 *
 * No result depends on how MPI orders its messages: every element of a sum is added from rank 0 up.
 */
#ifndef ARES_DIST_H
#define ARES_DIST_H

#include <sys/select.h> /* sigset_t */

#include "ares/core.h"
#include "ares/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ the world (world.c) */
typedef struct ares_world ares_world;

/*
 * Joins the ranks that mpirun started. When there are several, a build without MPI fails with
 * ARES_EUNSUPPORTED.
 */
int ares_world_open(ares_world **out);
void ares_world_close(ares_world *w); /* waits for the other ranks, as MPI_Finalize does */
int ares_world_rank(const ares_world *w);
int ares_world_size(const ares_world *w);
int ares_world_local_rank(const ares_world *w); /* among the ranks of this machine */
int ares_world_local_size(const ares_world *w); /* ranks of this machine */
/* this rank's share of the CPUs that the ranks of this machine may use, at least 1 */
int ares_world_threads(const ares_world *w);
/*
 * How long this rank waits for the others in a collective before it ends the run and says which
 * rank stands where (stall.c). 0, the default: for ever. A rank of this machine that is gone ends
 * the run in any case.
 */
void ares_world_set_timeout(ares_world *w, double seconds);
/*
 * What moves bytes between the cards of groups that are opened from here on, the same on all ranks:
 * "staged": over host memory, "nccl", or "auto": NCCL where every rank has a card of its own and
 * NCCL is there (docs/ranks.md#how-ranks-share-memory).
 */
void ares_world_set_transport(ares_world *w, const char *name);
/* Prints the last error message and ends every rank with the exit code of `code`. */
void ares_world_abort(const ares_world *w, int code) __attribute__((noreturn));

/* ------------------------------------------------------------------ collectives (world.c) */
int ares_world_broadcast(ares_world *w, void *data, size_t bytes, int root);
/* Sums and maxima over ranks, in place; the same bits on every rank. */
int ares_world_sum_f64(ares_world *w, double *x, int64_t n);
int ares_world_sum_i64(ares_world *w, int64_t *x, int64_t n);
int ares_world_max_f64(ares_world *w, double *x, int64_t n); /* a NaN on any rank gives NaN */
int ares_world_max_i64(ares_world *w, int64_t *x, int64_t n);
/*
 * The bytes of all ranks, in rank order, replacing `out`. Rank r's are [start[r], start[r + 1]);
 * start has [size + 1] entries and may be NULL.
 */
int ares_world_gather_all(ares_world *w, const void *data, size_t bytes, ares_str *out,
                          size_t *start);
/*
 * Makes one result of many: when any rank passes a failure, every rank returns the code and the
 * message of the first rank that failed. For stages that can fail on some ranks only:
 *     ARES_TRY(ares_world_share_error(w, load(...)));
 */
int ares_world_share_error(ares_world *w, int rc);

/* ---------------- groups (group.c): the memory of the devices of several ranks
 * Ranks r of equal r / (size * stride) and equal r % stride form a group, in rank order. All ranks
 * of a group make the same calls in the same order; a group of one rank makes no call to MPI.
 *
 * Work is done in the order given, beside the device's kernels: it begins when what was launched on
 * the device before the call is done, and kernels launched after ares_group_join(ticket) begin when
 * it is done. On the CPU it is done on return. A failure of MPI on the CPU is kept for
 * ares_group_sync; on a card a failure ends all ranks, because the others have begun the same call.
 *
 * Sums add the ranks from 0 up in double and round once.
 */
typedef struct ares_group ares_group;
typedef int64_t ares_ticket; /* 1, 2 ...; 0: nothing to wait for */
/*
 * A collective of the world, whose size must be a multiple of size * stride. On a device that only
 * counts memory, this process stands for the first of `size` ranks, and w is not read.
 */
int ares_group_open(ares_world *w, ares_device *d, int size, int stride, ares_group **out);
void ares_group_close(ares_group *g);
int ares_group_rank(const ares_group *g);
int ares_group_size(const ares_group *g);
/* How many ranks compute on this rank's card, this one among them; 1 on the CPU. */
int ares_group_on_card(const ares_group *g);
/* all [size][bytes]; mine may already lie in its place, all + rank * bytes */
ares_ticket ares_group_gather(ares_group *g, const void *mine, void *all, size_t bytes);
/* all [rows][size][bytes] from mine [rows][bytes] */
ares_ticket ares_group_gather_columns(ares_group *g, const void *mine, void *all, int64_t rows,
                                      size_t bytes);
/*
 * mine [n] = the sum over the ranks of all[rank * n ...], or mine + that sum. mine may lie in its
 * place in `all`, whose other parts are left as they are.
 */
ares_ticket ares_group_sum_scatter(ares_group *g, const float *all, float *mine, int64_t n,
                                   bool add);
ares_ticket ares_group_sum(ares_group *g, float *x, int64_t n); /* in place; for small arrays */
void ares_group_join(ares_group *g, ares_ticket t);
int ares_group_sync(ares_group *g); /* waits; the first failure since the last sync */
/* ares_world_share_error among all ranks of the world, which the group is a part of. */
int ares_group_agree(ares_group *g, int rc);
int64_t ares_group_bytes(const ares_group *g); /* bytes sent to other ranks so far */
/* Bytes of host memory that a sum of n elements per rank takes on the CPU. */
int64_t ares_group_sum_bytes(const ares_group *g, int64_t n);

/* ---------------- the launcher (launch.c)
 * Runs this program again as `ranks` processes under mpirun (one: without mpirun), with these
 * arguments (argv[0] is not among them), and waits for them. A signal that asks for the end (see
 * below) is held until all ranks have opened the world, and then sent to each. All processes are
 * ended by force where the ranks have not done so 20 seconds after the signal, where a second
 * signal comes before they have, or a third SIGINT or SIGTERM afterwards. `exit_code` is that of
 * the first rank that ended with another than 0; after an end by force it is that of the signal.
 */
typedef struct ares_launch_plan {
    int ranks;
    /*
     * Most starts after the first. The run is started again after a failure that is neither a
     * signal to this program nor a wrong command or configuration (exit code 2), and only where it
     * has written `latest` since its last start.
     */
    int restarts;
    const char *latest; /* a file that names the run's last checkpoint; NULL: without restarts */
} ares_launch_plan;
int ares_launch(const ares_launch_plan *plan, int argc, char *const *argv, int *exit_code);

/* ---------------- signals (world.c)
 * SIGHUP, SIGINT, SIGTERM, SIGUSR1 and SIGUSR2 ask for the end of a run; the last two stand for
 * SIGINT and SIGTERM. What the first one does depends on the work at hand. A second SIGINT ends the
 * process at once with exit code 130. SIGHUP stays ignored where it is (nohup).
 */
typedef enum {
    ARES_SIGNAL_WAITS, /* it is noted, and the work at hand ends first */
    ARES_SIGNAL_DROPS, /* it is noted, and the work at hand fails at its next ares_signal_poll */
    ARES_SIGNAL_ENDS   /* the process ends at once, with the signal's exit code: nothing is lost */
} ares_signal_effect;
void ares_signal_install(ares_signal_effect of_first);
void ares_signal_expect(ares_signal_effect of_first);
/*
 * ARES_EINTERRUPTED where a signal was noted and the work at hand may be dropped. Long work calls
 * it between its parts, each a second at most; on any thread.
 */
int ares_signal_poll(void);
/*
 * For a program that waits for children: blocks these signals and SIGCHLD, to wait for them. SIGHUP
 * is not among them where it is ignored.
 */
void ares_signal_block(sigset_t *set, sigset_t *before);
/*
 * After SIGHUP: the process that read this program's output through a pipe may be gone too. Writing
 * to it must not end the program before the state is saved. May be called by a signal handler.
 */
void ares_signal_lose_readers(void);
/* noted by this process, or by another rank and agreed upon: 0, SIGHUP, SIGINT or SIGTERM */
int ares_signal_pending(void);
int ares_signal_exit_code(int signal); /* 129 for SIGHUP, 130 for SIGINT, 143 for SIGTERM */
/* A collective: the signal that any rank noted, the same on every rank; the largest wins. */
int ares_world_signal(ares_world *w, int *signal);

#ifdef __cplusplus
}
#endif

/*
 * What libares_cuda.so does for a group of ranks (src/dist/cuda): work on a stream of the group's
 * own, beside the device's. src/dist/group.c calls it.
 */

/* One rank's side of a group. */
typedef struct ares_dist_side {
    ares_device *device;
    void *context;        /* the library's own */
    char *sent, *arrived; /* pinned host memory, `host_bytes` each; NULL: none */
    size_t host_bytes;
    char *on_device; /* `bytes` of the device's memory, which this room allocates */
    size_t bytes;
    int size, rank;
    /*
     * Set where the side is connected. pause: called between two looks while the host waits for the
     * card. at: the ticket that the card is at, which needs the other ranks; 0: the call that is
     * being made; -t: the card still has work of its own before ticket t. resume: the wait is over.
     * fail: NCCL has failed, with the message of ares_fail; it does not return.
     */
    void (*pause)(void *owner, ares_ticket at);
    void (*resume)(void *owner);
    void (*fail)(void *owner);
    void *owner;
} ares_dist_side;

/*
 * Between begin and end, copies, sums and what goes between ranks are queued in order; they wait
 * for what was launched on the device before begin. A failure is the device's: k->sync has it too.
 */
typedef struct ares_dist_ops {
    /* device and host_bytes are set; allocates the pinned memory */
    int (*open)(ares_dist_side *s);
    void (*close)(ares_dist_side *s);
    void (*begin)(ares_dist_side *s);
    /* within the device, or to or from host memory */
    void (*copy)(ares_dist_side *s, void *to, const void *from, size_t bytes);
    /* rows of `bytes`, within the device, that are so many bytes apart */
    void (*copy_rows)(ares_dist_side *s, void *to, size_t to_apart, const void *from,
                      size_t from_apart, size_t bytes, int64_t rows);
    /*
     * to [n] = the sum of others[0 * n ...], others[1 * n ...] ... in double, with `own` in the
     * place of this rank's; add: to + that sum. to may be own
     */
    void (*merge)(ares_dist_side *s, const float *own, const float *others, float *to, int64_t n,
                  bool add);
    ares_ticket (*end)(ares_dist_side *s);
    void (*join)(ares_dist_side *s, ares_ticket t); /* the device's stream waits for it */
    int (*wait)(ares_dist_side *s);                 /* until all that was queued is done */

    /* ---------------- NCCL (src/dist/cuda/nccl.cu); a failure has its message */
    void (*card)(ares_device *d, uint8_t uuid[16]); /* which one it is, on any machine */
    /* Opens libnccl.so.2, once: its version as NCCL writes it, 22703 for 2.27.3. */
    int (*find)(int *version);
    int (*id)(uint8_t id[128]); /* of a new group */
    /* All ranks of the group, with the id that one of them made. */
    int (*connect)(ares_dist_side *s, const uint8_t id[128]);
    /* all [size][bytes]; mine may lie in its place */
    int (*gather)(ares_dist_side *s, const void *mine, void *all, size_t bytes);
    /* to_each + r * apart goes to rank r, and from_each [size][bytes] comes; not the own part */
    int (*exchange)(ares_dist_side *s, const void *to_each, size_t apart, void *from_each,
                    size_t bytes);
    void (*abort)(ares_dist_side *s); /* ends what waits for other ranks; nothing can follow */
} ares_dist_ops;

typedef const ares_dist_ops *ares_cuda_dist_ops_fn(void);
#endif
