/* Between the emulator's own files, and for libnccl_fake.so (nccl.cpp). */
#ifndef ARES_EMULATE_H
#define ARES_EMULATE_H

#include <cuda_runtime.h>

#define OWN __attribute__((visibility("hidden")))

/* Says what the program did wrong, and ends it. */
void emulate_end(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---------------- fibers.cpp: a grid of blocks, one after the other */
OWN void emulate_grid(const char *operation, dim3 grid, dim3 block, size_t shared,
                      const std::function<void()> &thread);
OWN const char *emulate_running(void); /* the kernel that runs and its place, for messages; or "" */

/* ---------------- memory.cpp */
/* Device memory can be touched between these two only; they nest. */
void emulate_memory_open(void);
void emulate_memory_close(void);
bool emulate_on_device(const void *p, size_t bytes);       /* all of it, within one allocation */
OWN bool emulate_near_device(const void *p, size_t bytes); /* some of it in the device's range */
OWN bool emulate_pinned(const void *p, size_t bytes);

/* ---------------- cards.cpp */
int emulate_card(void); /* of this process; -1: none so far */

/* ---------------- streams.cpp */
/* Adds an operation to a stream, or to the graph that it records. False: the capture is lost. */
OWN cudaError_t emulate_push(cudaStream_t stream, std::function<void()> run);
/*
 * The same for an operation in which other processes take part: it is attempted until it gives
 * true, and does at each time what can be done.
 */
cudaError_t emulate_push_attempt(cudaStream_t stream, std::function<bool()> attempt);
bool emulate_advance(cudaStream_t stream);        /* by one operation; false: none could run */
OWN cudaError_t emulate_error(cudaError_t error); /* remembers it for cudaGetLastError */
/* For calls that CUDA forbids while a stream records; true: allowed. */
OWN bool emulate_allowed(void);
/* ARES_EMULATE_SEED of this process, or 0; and a number below n from it. */
OWN uint64_t emulate_seed(void);
unsigned emulate_draw(unsigned n);
OWN void emulate_count(const char *kind, const char *operation, int64_t n);
OWN int64_t *emulate_counter(const char *kind, const char *operation);
OWN void emulate_finish_all(void);

/*
 * One thread at a time: calls lock, and operations run in the thread that waits. It is open while
 * that thread waits for other processes.
 */
struct emulate_lock {
    emulate_lock();
    ~emulate_lock();
};

#endif
