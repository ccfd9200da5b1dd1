/* The start of a kernel where the device is emulated: its threads are fibers (fibers.cpp). */
#ifndef ARES_KERNELS_CUDA_LAUNCH_CUH
#define ARES_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include <type_traits>

#define CUDA_SHARED(type, name) type *name = (type *)emulate_shared()

/* Zeros between the fields of a struct, where old addresses may be left. Numbers hold none. */
template <typename T> static inline void emulate_padding(T *argument)
{
    if constexpr (std::is_class<T>::value) __builtin_clear_padding(argument);
    else if constexpr (!std::is_pointer<T>::value)
        static_assert(sizeof(T) <= 8, "a number, or a pointer, or a struct");
}
template <typename... P>
static inline void cuda_start(const char *operation, void (*kernel)(P...), dim3 grid, dim3 block,
                              size_t shared, cudaStream_t stream, P... args)
{
    int number = 0;
    (emulate_padding(&args), ...);
    (emulate_argument(operation, number++, &args, sizeof args), ...);
    emulate_launch(operation, (const void *)kernel, grid, block, shared, stream,
                   [=]() { kernel(args...); });
}

/*
 * The same sums as with five shuffles: what the lanes that this one depends on hold after each
 * step, from what all of them held at first.
 */
template <typename T, typename F> static inline T cuda_warp_tree(T v, F merge)
{
    static_assert(sizeof v <= sizeof(uint64_t), "one word per lane");
    uint64_t word = 0;
    memcpy(&word, &v, sizeof v);
    const uint64_t *words = emulate_words(0xffffffffu, EMULATE_SHUFFLE, word);
    unsigned own = emulate_lane();
    T held[32];
    for (unsigned i = 0; i < 32; i++) memcpy(&held[i], &words[own ^ i], sizeof v);
    for (unsigned step = 16; step; step /= 2)
        for (unsigned i = 0; i < step; i++) held[i] = merge(held[i], held[i + step]);
    return held[0];
}

#endif
