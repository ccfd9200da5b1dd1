/*
 * What tests/gpu/emulate has its own of, in C++, so that it is included as <launch.cuh>: what only
 * nvcc's language has, the start of a kernel and its dynamic shared memory; the reduction over a
 * warp, where the emulator's lanes meet once instead of five times; and instructions of a card that
 * C++ has no word for: tensor cores with their loads, and copies that run beside the thread.
 */
#ifndef ARES_KERNELS_CUDA_LAUNCH_CUH
#define ARES_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

/* In a kernel: `name` is its dynamic shared memory. One name has one type in a file. */
#define CUDA_SHARED(type, name) extern __shared__ __align__(128) type name[]

template <typename... P>
static inline void cuda_start(const char *, void (*kernel)(P...), dim3 grid, dim3 block,
                              size_t shared, cudaStream_t stream, P... args)
{
    kernel<<<grid, block, shared, stream>>>(args...);
}

/* Of all 32 lanes, by halves: v = merge(v, that of the lane 16, 8, 4, 2, 1 further). */
template <typename T, typename F> static __device__ inline T cuda_warp_tree(T v, F merge)
{
    for (int step = 16; step; step /= 2) v = merge(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}

/*
 * d += a b, a warp's tile of 16 x 8 numbers over 16 steps (mma.m16n8k16 of the PTX ISA). With g =
 * lane / 4 and t = lane % 4, a lane holds d of row g, columns 2 t and 2 t + 1, then the same of row
 * g + 8; of a, pairs of bf16: steps 2 t and 2 t + 1 of rows g and g + 8, then steps 2 t + 8 and 2 t
 * + 9 of both; of b the same steps, 2 t and 2 t + 8, of column g.
 */
static __device__ inline void cuda_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                       uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/*
 * Four tiles of 8 x 8 bf16 from shared memory: lane i names row i % 8 of tile i / 8, 16 bytes. A
 * lane gets, of each tile, the pair at row lane / 4, columns 2 (lane % 4) and the next; turned, the
 * pair at column lane / 4, rows 2 (lane % 4) and the next.
 */
template <bool TURNED>
static __device__ inline void cuda_load_tiles(uint32_t (&r)[4], const void *row)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
}
/*
 * Begins to copy 16 bytes to shared memory, or where there is nothing to copy, 16 zeros. The thread
 * may read them after a wait for the group they belong to, others after a barrier that follows it.
 */
static __device__ inline void cuda_copy_begin(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
/* Ends a group: the copies that the thread has begun since the last one. */
static __device__ inline void cuda_copy_group(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most LEFT of the thread's groups are under way. */
template <int LEFT> static __device__ inline void cuda_copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#endif
