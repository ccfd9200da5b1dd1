/*
 * kernels: device memory with two lives (docs/design.md#memory-in-two-phases). Rollout needs the KV
 * cache, training what a backward pass reads, and never both at once: they take turns in one
 * allocation, each from its start. Nothing is mapped, moved or copied when the phase changes.
 *
 * A phase begins when somebody takes memory for it; what was taken for the other one is gone then.
 * Whoever opens the allocation makes it as large as the larger phase.
 * Where the device has no such allocation, or it is full, memory is taken from the device as usual
 * and stays.
 */
#ifndef ARES_KERNELS_PHASES_H
#define ARES_KERNELS_PHASES_H

#include "ares/kernels.h"

typedef enum { ARES_PHASE_ROLLOUT, ARES_PHASE_TRAIN } ares_phase;

/* What bytes taken for a phase take of the allocation. */
size_t ares_phase_size(size_t bytes);

/* Memory that its user keeps from pass to pass; all 0 at first. */
typedef struct ares_held {
    void *data;
    size_t bytes;
    int64_t turn; /* the number of the phase that it belongs to; 0: the user's own memory */
} ares_held;

/* One allocation for both phases of a device; at most one at a time. */
int ares_phases_open(ares_device *d, size_t bytes);
void ares_phases_close(ares_device *d);
size_t ares_phases_bytes(const ares_device *d); /* of the allocation; 0: there is none */
/*
 * At least so many bytes, aligned to 256, in h: the same memory as before where h holds enough. For
 * rollout it is zeroed where training has written, and only there. NULL: the device has too little.
 */
void *ares_phase_take(ares_device *d, ares_phase phase, ares_held *h, size_t bytes);
/* False where h has no memory, or the phase it was taken for has ended. */
bool ares_phase_holds(const ares_device *d, const ares_held *h);
void ares_phase_give_back(ares_device *d, ares_held *h);

#endif
