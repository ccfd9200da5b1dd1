/*
 * What libares_cuda.so does for a group of ranks (src/dist/cuda): work on a stream of the group's
 * own, beside the device's. src/dist/staged.c and src/dist/nccl.c call it.
 */
#ifndef ARES_DIST_TWIN_H
#define ARES_DIST_TWIN_H

#include "ares/dist.h"

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
     * Of a side that is connected: what a wait for the card does between two looks. at: the ticket
     * that the card is at, which needs the other ranks; 0: the call that is being made; -t: the
     * card has work of its own before it comes to ticket t. resume: the wait is over. fail: NCCL
     * has failed, with the message of ares_fail; it does not return.
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
typedef struct ares_dist_twins {
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
} ares_dist_twins;

typedef const ares_dist_twins *ares_cuda_dist_twins_fn(void);

#endif
