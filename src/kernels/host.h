/*
 * Private to the kernels room: memory and threads of a CPU device, shared by all its instruction
 * sets.
 */
#ifndef ARES_KERNELS_HOST_H
#define ARES_KERNELS_HOST_H

#include "ares/kernels.h"

/*
 * Runs tasks 0..n-1 over the device's pool, or one after the other where work, the time of all of
 * them on one thread in microseconds, would not repay waking the others.
 */
void kernels_run(ares_device *d, double work_us, int64_t tasks, ares_task_fn *fn, void *ctx);
/*
 * At least bytes of memory of one worker (0 <= worker < threads), 64-byte aligned, not zeroed, kept
 * from call to call: a later call for the same worker hands the same memory out again. worker
 * KERNELS_SHARED is the calling thread's, for what all workers read.
 */
enum { KERNELS_SHARED = -1 };
void *kernels_scratch(ares_device *d, int worker, size_t bytes);
void kernels_scratch_new(ares_device *d); /* of a device whose pool is open */
void kernels_scratch_free(ares_device *d);

void *kernels_host_alloc(ares_device *d, size_t bytes);
void kernels_host_release(ares_device *d, void *p, size_t bytes);
void kernels_host_copy(ares_device *d, void *to, const void *from, size_t bytes);
void kernels_host_zero(ares_device *d, void *p, size_t bytes);
int kernels_host_sync(ares_device *d);

#endif
