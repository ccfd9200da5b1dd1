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

/* As src/kernels/cuda/launch.cuh has it; with foreign rounding the steps are added backwards. */
static inline void cuda_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    const uint32_t own[EMULATE_SHOWN] = { a[0], a[1], a[2], a[3], b0, b1 };
    const uint32_t(*of)[EMULATE_SHOWN] = emulate_show(own);
    unsigned lane = emulate_lane(), g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; i++) {
        float sum = emulate_foreign ? 0.0f : d[i];
        for (unsigned j = 0; j < 16; j++) {
            unsigned k = emulate_foreign ? 15 - j : j, half = k % 2 * 16;
            uint32_t x = of[g * 4 + k % 8 / 2][i / 2 + k / 8 * 2],
                     y = of[(2 * t + i % 2) * 4 + k % 8 / 2][4 + k / 8];
            sum = fmaf(__uint_as_float(x >> half << 16), __uint_as_float(y >> half << 16), sum);
        }
        d[i] = emulate_foreign ? d[i] + sum : sum;
    }
}
template <bool TURNED> static inline void cuda_load_tiles(uint32_t (&r)[4], const void *row)
{
    emulate_shared_16(row, "a load of tiles");
    const uint64_t *rows = emulate_words(0xffffffffu, EMULATE_MMA, (uint64_t)row);
    unsigned lane = emulate_lane(), along = lane / 4, pair = lane % 4 * 2;
    for (unsigned i = 0; i < 4; i++) {
        const uint16_t *first = (const uint16_t *)rows[8 * i + (TURNED ? pair : along)],
                       *second = (const uint16_t *)rows[8 * i + (TURNED ? pair + 1 : along)];
        r[i] = first[TURNED ? along : pair] | (uint32_t)second[TURNED ? along : pair + 1] << 16;
    }
}
static inline void cuda_copy_begin(void *to, const void *from, bool there)
{
    emulate_copy_begin(to, from, there);
}
static inline void cuda_copy_group(void)
{
    emulate_copy_group();
}
template <int LEFT> static inline void cuda_copy_wait(void)
{
    emulate_copy_wait(LEFT);
}

#endif
