/*
 * What libares_cuda.so does for a group of ranks (src/dist/staged.c, src/dist/cuda/group.cu): work
 * on a stream of the group's own, beside the device's.
 */
#ifndef ARES_DIST_TWIN_H
#define ARES_DIST_TWIN_H

#include "ares/dist.h"

/* One rank's side of a group. */
typedef struct ares_dist_side {
    ares_device *device;
    void *context;        /* the library's own */
    char *sent, *arrived; /* pinned host memory, `bytes` each */
    float *on_device;     /* the same, on the device */
    size_t bytes;
} ares_dist_side;

/*
 * Between begin and end, copies and sums are queued in order; they wait for what was launched on
 * the device before begin. A failure is the device's: k->sync has it too.
 */
typedef struct ares_dist_twins {
    int (*open)(ares_dist_side *s); /* device and bytes are set; allocates the pinned memory */
    void (*close)(ares_dist_side *s);
    void (*begin)(ares_dist_side *s);
    /* within the device, or to or from host memory */
    void (*copy)(ares_dist_side *s, void *to, const void *from, size_t bytes);
    /*
     * to [n] = the sum of others[0 * n ...], others[1 * n ...] ... in double, with `own` in the
     * place of `rank`; add: to + that sum. to may be own
     */
    void (*merge)(ares_dist_side *s, const float *own, const float *others, float *to, int64_t n,
                  int size, int rank, bool add);
    ares_ticket (*end)(ares_dist_side *s);
    void (*join)(ares_dist_side *s, ares_ticket t); /* the device's stream waits for it */
    int (*wait)(ares_dist_side *s);                 /* until all that was queued is done */
} ares_dist_twins;

typedef const ares_dist_twins *ares_cuda_dist_twins_fn(void);

#endif
