/*
 * Private to the kernels room: memory and threads of a CPU device, shared by all its instruction
 * sets.
 */
#ifndef ARES_KERNELS_HOST_H
#define ARES_KERNELS_HOST_H

#include "ares/kernels.h"

/*
 * Runs tasks 0 .. tasks - 1 on the device's pool, or one after the other where waking the other
 * threads would not pay. work_us: the microseconds that one thread needs for all of them.
 */
void kernels_run(ares_device *d, double work_us, int64_t tasks, ares_task_fn *fn, void *ctx);
/*
 * At least `bytes` of memory of one worker (0 <= worker < threads), 64-byte aligned and not zeroed.
 * A later call for the same worker returns the same memory again, or larger memory in its place.
 * Worker KERNELS_SHARED is the calling thread, for what all workers read.
 */
enum { KERNELS_SHARED = -1 };
void *kernels_scratch(ares_device *d, int worker, size_t bytes);
void kernels_scratch_new(ares_device *d); /* once the device has its pool */
void kernels_scratch_free(ares_device *d);

void *kernels_host_alloc(ares_device *d, size_t bytes);
void kernels_host_release(ares_device *d, void *p, size_t bytes);
void kernels_host_copy(ares_device *d, void *to, const void *from, size_t bytes);
void kernels_host_copy_blocks(ares_device *d, const ares_copy_blocks_args *a);
void kernels_host_zero(ares_device *d, void *p, size_t bytes);
void kernels_host_convert(ares_device *d, void *to, ares_dtype to_type, const void *from,
                          ares_dtype from_type, int64_t n);
int kernels_host_sync(ares_device *d);
/*
 * The CPU's table of one instruction set ("plain", "avx2", "avx512"); NULL where the machine lacks
 * it. For tests.
 */
const ares_kernels *kernels_cpu(const char *isa);
#endif
