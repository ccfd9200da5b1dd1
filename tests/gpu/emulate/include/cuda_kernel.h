/*
 * What a kernel may call, as C++ on fibers: the names and meanings are CUDA's. What is missing is
 * added when a kernel needs it.
 */
#ifndef ARES_EMULATE_CUDA_KERNEL_H
#define ARES_EMULATE_CUDA_KERNEL_H

#include <algorithm>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
/* blocks run one after the other; fibers.cpp sets all of it to 0xff before each of them */
#define __shared__ static __attribute__((section("emulate_shared")))
#define __launch_bounds__(...)
#define EMULATE_OWN __attribute__((visibility("hidden")))

typedef struct uint3 {
    unsigned x, y, z;
} uint3;
typedef struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
} dim3;
extern EMULATE_OWN uint3 threadIdx, blockIdx; /* of the running fiber */
extern EMULATE_OWN dim3 blockDim, gridDim;

#define EMULATE_VECTOR(T, name, align)                       \
    typedef struct __attribute__((aligned(align))) {         \
        T x, y;                                              \
    } name##2;                                               \
    typedef struct __attribute__((aligned(2 * align))) {     \
        T x, y, z, w;                                        \
    } name##4;                                               \
    static inline name##2 make_##name##2(T x, T y)           \
    {                                                        \
        return { x, y };                                     \
    }                                                        \
    static inline name##4 make_##name##4(T x, T y, T z, T w) \
    {                                                        \
        return { x, y, z, w };                               \
    }
EMULATE_VECTOR(float, float, 8)
EMULATE_VECTOR(int, int, 8)
EMULATE_VECTOR(unsigned, uint, 8)
EMULATE_VECTOR(unsigned short, ushort, 4)

/* ------------------------------------------------------------------ where threads meet */

enum emulate_kind { EMULATE_SYNC = 1, EMULATE_SHUFFLE, EMULATE_VOTE, EMULATE_MATCH, EMULATE_MMA };
/*
 * Waits until every thread of the block that has not ended waits here; returns the sum of what they
 * brought, and how many they were.
 */
EMULATE_OWN int emulate_block(int brought, int *threads);
/* Waits until all lanes of the mask wait here; they must have come for the same thing. */
EMULATE_OWN void emulate_warp(unsigned mask, emulate_kind kind);
/*
 * Shows a word to the other lanes of the mask, waits for theirs and returns them, by lane. They are
 * valid until the second call after this one.
 */
EMULATE_OWN const uint64_t *emulate_words(unsigned mask, emulate_kind kind, uint64_t own);
/* The same for six words of each lane of a whole warp. */
enum { EMULATE_SHOWN = 6 };
EMULATE_OWN const uint32_t (*emulate_show(const uint32_t own[EMULATE_SHOWN]))[EMULATE_SHOWN];
/*
 * Copies of 16 bytes to shared memory beside the thread: done when it waits for their group, NaN
 * bytes until then. A block that ends before one of its threads has waited is refused.
 */
EMULATE_OWN void emulate_copy_begin(void *to, const void *from, bool there);
EMULATE_OWN void emulate_copy_group(void);
EMULATE_OWN void emulate_copy_wait(unsigned left);
/* Ends the program where p is no multiple of 16 bytes in dynamic shared memory. */
EMULATE_OWN void emulate_shared_16(const void *p, const char *what);
EMULATE_OWN unsigned emulate_lane(void);
EMULATE_OWN void *emulate_shared(void);

static inline void __syncthreads(void)
{
    emulate_block(0, NULL);
}
static inline int __syncthreads_count(int p)
{
    return emulate_block(p != 0, NULL);
}
static inline int __syncthreads_or(int p)
{
    return emulate_block(p != 0, NULL) > 0;
}
static inline int __syncthreads_and(int p)
{
    int threads;
    return emulate_block(p != 0, &threads) == threads;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulate_warp(mask, EMULATE_SYNC);
}

/* What lane `from` shows; all bits set where the mask does not have it. */
template <typename T> static inline T emulate_from(unsigned mask, T v, unsigned from)
{
    static_assert(sizeof v <= sizeof(uint64_t), "one word per lane");
    uint64_t word = 0;
    memcpy(&word, &v, sizeof v);
    const uint64_t *words = emulate_words(mask, EMULATE_SHUFFLE, word);
    word = mask >> from & 1 ? words[from] : ~(uint64_t)0;
    memcpy(&v, &word, sizeof v);
    return v;
}
template <typename T> static inline T __shfl_sync(unsigned mask, T v, int lane, int width = 32)
{
    unsigned own = emulate_lane(), part = (unsigned)width;
    return emulate_from(mask, v, own / part * part + (unsigned)lane % part);
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32)
{
    unsigned own = emulate_lane(), part = (unsigned)width, from = own ^ (unsigned)by;
    return emulate_from(mask, v, from / part > own / part ? own : from);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    unsigned own = emulate_lane(), part = (unsigned)width;
    return emulate_from(mask, v, own % part + by < part ? own + by : own);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    unsigned own = emulate_lane(), part = (unsigned)width;
    return emulate_from(mask, v, own % part >= by ? own - by : own);
}
static inline unsigned __ballot_sync(unsigned mask, int p)
{
    unsigned votes = 0;
    const uint64_t *words = emulate_words(mask, EMULATE_VOTE, p != 0);
    for (unsigned i = 0; i < 32; i++) votes |= (mask >> i & 1 && words[i]) ? 1u << i : 0;
    return votes;
}
static inline int __any_sync(unsigned mask, int p)
{
    return __ballot_sync(mask, p) != 0;
}
static inline int __all_sync(unsigned mask, int p)
{
    return __ballot_sync(mask, !p) == 0;
}
template <typename T> static inline unsigned __match_any_sync(unsigned mask, T v)
{
    unsigned same = 0;
    const uint64_t *words = emulate_words(mask, EMULATE_MATCH, (uint64_t)v);
    for (unsigned i = 0; i < 32; i++)
        same |= (mask >> i & 1 && words[i] == (uint64_t)v) ? 1u << i : 0;
    return same;
}
#define EMULATE_REDUCE(name, expression)                                             \
    template <typename T> static inline T __reduce_##name##_sync(unsigned mask, T v) \
    {                                                                                \
        const uint64_t *words = emulate_words(mask, EMULATE_VOTE, (uint64_t)v);      \
        bool first = true;                                                           \
        T a = 0;                                                                     \
        for (unsigned i = 0; i < 32; i++) {                                          \
            if (!(mask >> i & 1)) continue;                                          \
            T b = (T)words[i];                                                       \
            a = first ? b : (expression);                                            \
            first = false;                                                           \
        }                                                                            \
        return a;                                                                    \
    }
EMULATE_REDUCE(add, a + b)
EMULATE_REDUCE(min, a < b ? a : b)
EMULATE_REDUCE(max, a > b ? a : b)

/* ---------------- atomics: fibers change only at barriers, so that these are plain */

template <typename T, typename V> static inline T atomicAdd(T *p, V v)
{
    T old = *p;
    *p = (T)(old + (T)v);
    return old;
}
template <typename T, typename V> static inline T atomicMin(T *p, V v)
{
    T old = *p;
    *p = (T)v < old ? (T)v : old;
    return old;
}
template <typename T, typename V> static inline T atomicMax(T *p, V v)
{
    T old = *p;
    *p = (T)v > old ? (T)v : old;
    return old;
}
template <typename T, typename V> static inline T atomicExch(T *p, V v)
{
    T old = *p;
    *p = (T)v;
    return old;
}
template <typename T, typename V> static inline T atomicOr(T *p, V v)
{
    T old = *p;
    *p = (T)(old | (T)v);
    return old;
}
template <typename T, typename V, typename W> static inline T atomicCAS(T *p, V expected, W v)
{
    T old = *p;
    if (old == (T)expected) *p = (T)v;
    return old;
}
static inline unsigned atomicInc(unsigned *p, unsigned most)
{
    unsigned old = *p;
    *p = old >= most ? 0 : old + 1;
    return old;
}
static inline void __threadfence(void)
{
}

/* ------------------------------------------------------------------ numbers */

template <typename To, typename From> static inline To emulate_bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline uint32_t __float_as_uint(float x)
{
    return emulate_bits<uint32_t>(x);
}
static inline float __uint_as_float(uint32_t x)
{
    return emulate_bits<float>(x);
}
static inline int __float_as_int(float x)
{
    return emulate_bits<int>(x);
}
static inline float __int_as_float(int x)
{
    return emulate_bits<float>(x);
}
static inline long long __double_as_longlong(double x)
{
    return emulate_bits<long long>(x);
}
static inline double __longlong_as_double(long long x)
{
    return emulate_bits<double>(x);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}
/* compiled without contraction, these are what they say */
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
/*
 * Foreign rounding (streams.cpp): exp and log of a card differ from the C library's in the last bit
 * of some numbers. Half of the results move, one unit up or down; which ones follows from their
 * bits. What is exact on a card stays: 0, 1 = exp(0), 0 = log(1), infinity.
 */
extern EMULATE_OWN bool emulate_foreign;
static inline float emulate_ulp(float x)
{
    uint32_t u = __float_as_uint(x), draw = u * 2654435761u >> 30;
    if (!emulate_foreign || (u & 0x7f800000u) == 0x7f800000u || (u & 0x7f800000u) == 0) return x;
    return __uint_as_float(draw == 0 ? u + 1 : draw == 1 ? u - 1 : u);
}
static inline float emulate_expf(float x)
{
    float e = expf(x);
    return x == 0.0f ? e : emulate_ulp(e);
}
static inline float emulate_logf(float x)
{
    return emulate_ulp(logf(x));
}
/* macros: the C library has functions of these names */
#define expf(x) emulate_expf(x)
#define logf(x) emulate_logf(x)
#define __expf(x) expf(x)
#define __logf(x) logf(x)
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <typename T> static inline void __stcs(T *p, T v)
{
    *p = v;
}
using std::max;
using std::min;

#endif
