/*
 * Private to dist: the world and what uses MPI, then groups and the transports of their bytes.
 */
#ifndef ARES_DIST_INTERNAL_H
#define ARES_DIST_INTERNAL_H

#include <stdatomic.h>
#include <sys/types.h>

#include "ares/dist.h"

/* What the files of this room share: the world, and the few operations that use MPI. */

/* Kinds of collectives, and how a message names one; %lld is the number of elements or bytes. */
#define DIST_KINDS(X)                                            \
    X(START, "start")                                            \
    X(BROADCAST, "broadcast, %lld bytes")                        \
    X(SUM_F64, "sum of %lld f64")                                \
    X(SUM_I64, "sum of %lld i64")                                \
    X(MAX_F64, "maximum of %lld f64")                            \
    X(MAX_I64, "maximum of %lld i64")                            \
    X(GATHER, "gather, %lld bytes")                              \
    X(AGREE, "agreement")                                        \
    X(GROUP_OPEN, "opening of a group of %lld ranks")            \
    X(GROUP_GATHER, "gather in a group, %lld bytes")             \
    X(GROUP_COLUMNS, "gather of columns in a group, %lld bytes") \
    X(GROUP_SUM_SCATTER, "scattered sum in a group, %lld f32")   \
    X(GROUP_SUM, "sum in a group, %lld f32")                     \
    X(END, "end")
#define DIST_KIND_(name, text) DIST_##name,
typedef enum { DIST_KINDS(DIST_KIND_) } dist_kind;
#undef DIST_KIND_

/*
 * Where a rank stands, for the other ranks of its machine to read. It lies in shared memory, and
 * only its own rank writes it, except the last two members of the first entry.
 */
typedef struct dist_rank_status {
    int rank; /* in the world */
    pid_t pid;
    ino_t pids;            /* its pid namespace: in another one its pid says nothing */
    char gone[96];         /* what the signal handler of another rank says when this one is gone */
    _Atomic int kind;      /* of the current or last collective */
    _Atomic int64_t size;  /* its elements or bytes */
    _Atomic int64_t count; /* MPI's collectives of the world that this rank has begun */
    /*
     * collectives, since the last one of the world, of a group that is a part of it. Other groups
     * may make more or fewer. Which ranks are in the group: as in ares_group_open
     */
    _Atomic int64_t inner;
    _Atomic int group_size, group_stride; /* 0: the last collective was one of the world */
    _Atomic double since;                 /* when it began or left the last one, by ares_now_s */
    _Atomic bool inside;                  /* in the last collective, and not yet out of it */
    _Atomic bool ended;                   /* it ends as planned, or has reported why not */
    /*
     * Of the first entry, set by the first rank of this machine that does so: claimed, to report
     * which rank is missing; reported, to report why all ranks end.
     */
    _Atomic bool claimed, reported;
} dist_rank_status;

/* Where a rank stood or stands: of a dist_rank_status, what changes with each collective. */
typedef struct dist_place {
    int kind;
    int64_t size, count, inner;
    int group_size, group_stride;
} dist_place;

typedef enum { DIST_AUTO, DIST_STAGED, DIST_NCCL } dist_transport;

/* Ranks that exchange bytes by MPI; transport.c. */
typedef struct dist_comm dist_comm;

struct ares_world {
    int rank, size, local_rank, local_size, threads;
    /* hash of the kinds and sizes of all calls on groups that are the whole world, in order */
    uint64_t calls;
    char *buffer; /* of the collectives; kept, because gradients are summed in every step */
    size_t buffer_bytes;
    dist_rank_status *status; /* [local_size]; NULL in a world of one */
    double timeout_s;         /* 0: wait for ever */
    dist_transport transport; /* what trainer.comm_transport asks for */
    ares_group *groups;       /* list of the open groups that use NCCL */
};

char *dist_buffer(ares_world *w, size_t bytes);
void dist_launch_answer(void); /* tells a launcher that this rank is there (launch.c) */

/* transport.c, with and without MPI. Sizes are in bytes, each block below 2^31. */
int dist_transport_size(void); /* ranks that a launcher announced; 1 without one */
/* fills rank, size, local_rank, local_size, threads, status */
int dist_transport_open(ares_world *w);
void dist_transport_close(ares_world *w);
void dist_transport_abort(int exit_code) __attribute__((noreturn));
int dist_broadcast(ares_world *w, void *data, size_t bytes, int root);
/* mine may be NULL: it already lies in its place in `all` */
int dist_gather_equal(ares_world *w, const void *mine, void *all, size_t bytes_each);
int dist_gather_sized(ares_world *w, const void *mine, void *all, const int *bytes,
                      const int *starts);
int dist_exchange(ares_world *w, const void *to_each, void *from_each, size_t bytes_each);
/* The ranks of a group: `size` of them, `stride` apart. A collective of the world. */
int dist_comm_open(ares_world *w, int size, int stride, dist_comm **out);
void dist_comm_close(dist_comm *c);
/*
 * Every rank's `rows` rows of `bytes` arrive at all + r * apart, with `stride` bytes from one row
 * to the next. mine NULL: the own rows already lie there.
 */
int dist_comm_gather(ares_world *w, dist_comm *c, const void *mine, void *all, int64_t rows,
                     size_t bytes, size_t stride, size_t apart);
/* to_each + r * apart goes to rank r, and from_each [size][bytes] comes from all. */
int dist_comm_exchange(ares_world *w, dist_comm *c, const void *to_each, size_t apart,
                       void *from_each, size_t bytes);

/* ---------------- who waits for whom (stall.c) */
/* Begins to show this rank in w->status. */
void dist_watch_open(ares_world *w);
/* What the collectives that follow are called. */
void dist_watch_name(ares_world *w, dist_kind kind, int64_t size);
/* A wait for one collective of MPI. */
typedef struct dist_wait {
    double last;                  /* when it was polled last */
    double waited;                /* seconds of waiting until then */
    double looked;                /* `waited` at the last look at the other ranks */
    double pause_s;               /* between two polls */
    const dist_rank_status *gone; /* the rank that the last look found gone; NULL: none */
} dist_wait;
/* Before, while and after a collective of MPI runs. */
dist_wait dist_watch_enter(ares_world *w);
dist_wait dist_watch_enter_group(ares_world *w, int size, int stride);
void dist_watch_pause(ares_world *w, dist_wait *wait);
void dist_watch_rest(dist_wait *wait); /* the pause alone: no look at the other ranks */
void dist_watch_leave(ares_world *w);
/*
 * Calls that a card executes later, in their order. dist_watch_issue counts one and returns its
 * place. While the host waits for the card, dist_watch_stand shows the other ranks the place that
 * the card has come to (inside), or has not reached; afterwards the place before the wait.
 */
dist_place dist_watch_issue(ares_world *w, int size, int stride);
dist_place dist_watch_place(const ares_world *w);
void dist_watch_stand(ares_world *w, const dist_place *p, bool inside);
/* Whether this rank is the first of its machine to say why all ranks end. */
bool dist_watch_reports(void);
/* This rank ends: others need not report that it is gone. May be called by a signal handler. */
void dist_watch_end(void);
/* The same, and lets signal handlers no longer read the shared memory, which is about to go. */
void dist_watch_close(void);
/* Says which rank of this machine is gone, if one is. May be called by a signal handler. */
void dist_watch_tell_gone(void);
/* Appends which rank keeps s[me] waiting; s: the n ranks of this machine, of `world` in all. */
void dist_watch_describe(const dist_rank_status *s, int n, int world, int me, double now,
                         ares_str *out);

/* A group, for the transports of its bytes (group.c). */

/* The functions of dist.h between cards; begin has counted the call. */
typedef struct dist_card_transport {
    const char *name;
    /* this rank's side, with all that a call needs; host memory is the side's */
    int (*open)(ares_group *g);
    int (*connect)(ares_group *g); /* with the others', once all are open; NULL: by MPI */
    ares_ticket (*gather)(ares_group *g, const void *mine, void *all, size_t bytes);
    ares_ticket (*gather_columns)(ares_group *g, const void *mine, void *all, int64_t rows,
                                  size_t bytes);
    ares_ticket (*sum_scatter)(ares_group *g, const float *all, float *mine, int64_t n, bool add);
    ares_ticket (*sum)(ares_group *g, float *x, int64_t n);
} dist_card_transport;
extern const dist_card_transport dist_staged, dist_nccl;

enum { DIST_PLACES = 64, DIST_NCCL_ID = 128 };

struct ares_group {
    ares_world *world;
    ares_device *device;
    dist_comm *comm; /* NULL: one rank */
    int size, stride, rank;
    int64_t bytes;
    int failure; /* the first since the last sync, and its message */
    ares_str message;
    /* the rest is set only where the group has several ranks, each with a card */
    const dist_card_transport *transport; /* NULL: the CPU's */
    const ares_dist_ops *ops;
    ares_dist_side side;
    int on_card; /* ranks of the world, this one among them, that use this rank's card */
    /*
     * NCCL: the number of tickets so far, and for ticket t at t % DIST_PLACES the place that this
     * rank shows while its card is at t (at) and before the card has come to it (behind).
     */
    ares_ticket tickets;
    dist_place at[DIST_PLACES], behind[DIST_PLACES];
    bool waits;           /* the host waits for the card, */
    ares_ticket waits_at; /* at this ticket, */
    dist_wait wait;
    dist_place stood; /* and showed this place before */
    ares_group *next; /* of world->groups */
};

#endif
