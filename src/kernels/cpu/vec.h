/*
 * Private to kernels/cpu: sixteen f32 lanes with the same bits on every machine, then exp, log
 * and sigmoid.
 */
#ifndef ARES_KERNELS_CPU_VEC_H
#define ARES_KERNELS_CPU_VEC_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/*
 * Sixteen f32 lanes with the same bits from four builds: AVX-512 (one register), AVX2 (two, with
 * FMA), NEON (four; Advanced SIMD of aarch64), plain C (an array, with fmaf). Every operation below
 * is exact or correctly rounded lane by lane, so a kernel written over v16 gives one result on
 * every machine; only NaN payloads may differ.
 *
 *   v16   f32 lanes      v16i  32-bit integers, wrapping      v16m  a truth value per lane
 *
 *   v16_zero() v16_set1(x) v16_load(p) v16_store(p, v)             any alignment
 *   v16_load_first(p, n) v16_store_first(p, v, n)   lanes below n: memory beyond is not touched,
 *                                                   lanes beyond read 0
 *   v16_load_bf16(p) v16_store_bf16(p, v) and _first               to nearest even; NaN stays NaN
 *   v16_fma(a, b, c) = a b + c    v16_fnma(a, b, c) = c - a b      one rounding
 *   v16_add v16_sub v16_mul v16_div v16_sqrt v16_neg
 *   v16_min(a, b) = a < b ? a : b    v16_max(a, b) = a > b ? a : b    a NaN in b stays, one in a
 *                                                                     does not
 *   v16_lt v16_gt v16_ge v16_eq (false on NaN)    v16_select(m, a, b) = m ? a : b
 *   v16_bits(v) v16_from_bits(i)    v16_from_int(i) signed, to nearest even
 *   v16_trunc(v)       to signed integers; only for values that fit
 *   v16i_set1 v16i_iota v16i_load v16i_store v16i_add v16i_sub v16i_and v16i_xor
 *   v16i_shl(v, n) v16i_shr(v, n) v16i_sar(v, n)
 *   v16i_mul_wide(a, b, &hi, &lo)    the 64-bit product of unsigned lanes
 *   v16m_first(n) v16m_of(bits) v16m_bits(m) v16m_not
 *   v16_scale2(p, nf, n)    p 2^n rounded once; p in [1/2, 2) or NaN, n in [-151, 129], nf = n
 *   v16_sum(v)         (((0+8)+(4+12))+((2+10)+(6+14))) + (((1+9)+(5+13))+((3+11)+(7+15)))
 *   v16_max_lane(v)    the same tree with v16_max
 *   v16_transpose(src, ld_src, dst, ld_dst)    16 by 16 floats, apart
 *   v16_store_zip(p, a, b)    a0 b0 a1 b1 ...    v16_swap(v)    lanes 1 0 3 2 ...
 *   v16_set1_two(p)           p[0] p[1] p[0] p[1] ...
 *
 * bf16 arithmetic (docs/exactness.md#bf16-arithmetic): a sum is a chain of FMAs on operands rounded
 * to bf16, denormals are zero before and after each. x86 has a mode for it, between v16_flush_begin
 * and v16_flush_end(what it returned); Arm's flushes what rounding would lift to 2^-126, so NEON
 * and plain C flush by themselves and need no mode.
 *
 *   v16_flush(v)               denormals are zeros of their sign
 *   v16_fma_flush(a, b, c)     flush(a b + c), operands without denormals
 *   v16_round_bf16(v)          as vcvtneps2bf16: denormals to zero, NaN quiet; in f32
 *   v16_pair(a, b)             a 32-bit word per lane, of both rounded: a in the high half
 *
 * The product of a pair of inputs x and 16 pairs of weights, 32-bit words with the first in the
 * high half, takes V16_DOT_STEPS steps: two FMAs, or one vdpbf16ps. The packed x of a pair is as
 * many words.
 *
 *   v16_pairs(p, step)         the weights of a step from 16 words, denormals zero where no mode is
 *   v16_dot(x, w, sum)         x: v16_set1 of the step's word, or v16_set1_two of two inputs' words
 *   v16_store_dot(p, a, b)     32 numbers as packed x: 16 V16_DOT_STEPS words
 */

#if defined __SANITIZE_ADDRESS__ && defined ARES_ISA_PLAIN
/* Watched inline at every use, an operation of 16 lanes takes the compiler four times as long. */
#define V16_INLINE static inline __attribute__((unused))
#else
#define V16_INLINE static inline __attribute__((always_inline, unused))
#endif
/* An operation in a line: the type of its result, name, parameters, result. */
#define V16_OP(type, name, parameters, ...) \
    V16_INLINE type name parameters         \
    {                                       \
        return __VA_ARGS__;                 \
    }

/* Four of the lanes of a, which are 0 to 3, and of b, 4 to 7; GCC 11 has no clang's name for it. */
#ifdef __clang__
#define V4_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t v4_lanes __attribute__((vector_size(16)));
#define V4_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (v4_lanes){ __VA_ARGS__ })
#endif

#if defined ARES_ISA_AVX512
#include "vec_avx512.h"
#elif defined ARES_ISA_AVX2
#include "vec_avx2.h"
#elif defined ARES_ISA_NEON
#include "vec_neon.h"
#else
#include "vec_plain.h"
#endif

#if defined ARES_ISA_AVX512 || defined ARES_ISA_AVX2
/* MXCSR: denormals are zero (DAZ), flush to zero (FTZ) */
V16_INLINE uint32_t v16_flush_begin(void)
{
    uint32_t mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);
    return mode;
}
V16_INLINE void v16_flush_end(uint32_t mode)
{
    _mm_setcsr(mode);
}
V16_OP(v16, v16_flush, (v16 v), v)
V16_OP(v16, v16_fma_flush, (v16 a, v16 b, v16 c), v16_fma(a, b, c))
#else
V16_OP(uint32_t, v16_flush_begin, (void), 0)
V16_INLINE void v16_flush_end(uint32_t mode)
{
    (void)mode;
}
V16_INLINE v16 v16_flush(v16 v)
{
    v16 size = v16_from_bits(v16i_and(v16_bits(v), v16i_set1(0x7fffffffu))),
        zero = v16_from_bits(v16i_and(v16_bits(v), v16i_set1(0x80000000u)));
    return v16_select(v16_lt(size, v16_set1(0x1p-126f)), zero, v);
}
/*
 * What a denormal's rounding has lifted to 2^-126 was tiny where 24 bits and any exponent would
 * not have: the sum times 2^64 says so. No sum of operands that this overflows is tiny.
 */
V16_INLINE v16 v16_flush_sum(v16 a, v16 b, v16 c, v16 sum)
{
    const v16 up = v16_set1(0x1p64f);
    v16i large = v16_bits(v16_fma(v16_mul(a, up), b, v16_mul(c, up)));
    v16 size = v16_from_bits(v16i_and(large, v16i_set1(0x7fffffffu))),
        zero = v16_from_bits(v16i_and(large, v16i_set1(0x80000000u)));
    return v16_select(v16_lt(size, v16_set1(0x1p-62f)), zero, sum);
}
V16_INLINE v16 v16_fma_flush(v16 a, v16 b, v16 c)
{
    v16 sum = v16_fma(a, b, c);
    return v16_any_tiny(sum) ? v16_flush_sum(a, b, c, sum) : sum;
}
#endif

V16_INLINE v16 v16_round_bf16(v16 v)
{
    v16i u = v16_bits(v), high = v16i_set1(0xffff0000u), odd = v16i_set1(1);
    v16i nearest = v16i_add(v16i_add(u, v16i_set1(0x7fff)), v16i_and(v16i_shr(u, 16), odd));
    v16i quiet = v16i_xor(v16i_and(u, v16i_set1(0xffbf0000u)), v16i_set1(0x400000u));
    v16 size = v16_from_bits(v16i_and(u, v16i_set1(0x7fffffffu))),
        zero = v16_from_bits(v16i_and(u, v16i_set1(0x80000000u)));
    v16 r = v16_select(v16_eq(v, v), v16_from_bits(v16i_and(nearest, high)), v16_from_bits(quiet));
    return v16_select(v16_lt(size, v16_set1(0x1p-126f)), zero, r);
}

V16_OP(v16, v16_pair, (v16 a, v16 b),
       v16_from_bits(v16i_xor(v16_bits(v16_round_bf16(a)),
                              v16i_shr(v16_bits(v16_round_bf16(b)), 16))))

#if defined ARES_ISA_AVX512BF16
enum { V16_DOT_STEPS = 1 };
V16_INLINE v16 v16_pairs(const float *p, int step)
{
    (void)step;
    return v16_load(p);
}
V16_OP(v16, v16_dot, (v16 x, v16 w, v16 sum), _mm512_dpbf16_ps(sum, (__m512bh)(x), (__m512bh)(w)))
/* the instruction packs the first of two in the low half */
V16_INLINE void v16_store_dot(float *p, v16 a, v16 b)
{
    _mm512_storeu_si512(p, _mm512_rol_epi32((__m512i)_mm512_cvtne2ps_pbh(b, a), 16));
}
#elif !defined V16_LANES || V16_LANES == 16
enum { V16_DOT_STEPS = 2 };
V16_INLINE v16 v16_pairs(const float *p, int step)
{
    v16i w = v16i_load(p);
    return v16_flush(v16_from_bits(step ? v16i_shl(w, 16) : v16i_and(w, v16i_set1(0xffff0000u))));
}
V16_OP(v16, v16_dot, (v16 x, v16 w, v16 sum), v16_fma_flush(x, w, sum))
V16_INLINE void v16_store_dot(float *p, v16 a, v16 b)
{
    v16_store(p, v16_round_bf16(a));
    v16_store(p + 16, v16_round_bf16(b));
}
#endif

#ifndef ARES_ISA_AVX512
/* In two steps, because 2^n itself may overflow or be denormal; the first step is exact. */
V16_INLINE v16 v16_scale2(v16 p, v16 nf, v16i n)
{
    v16i half = v16i_sar(n, 1), bias = v16i_set1(127);
    v16i rest = v16i_sub(n, half);
    (void)nf;
    p = v16_mul(p, v16_from_bits(v16i_shl(v16i_add(half, bias), 23)));
    return v16_mul(p, v16_from_bits(v16i_shl(v16i_add(rest, bias), 23)));
}
#endif

#define ARES_K_JOIN(name, isa) name##_##isa
#define ARES_K_EXPAND(name, isa) ARES_K_JOIN(name, isa)
/* The name of this build's copy: ARES_K(linear) is linear_avx512 in the AVX-512 build. */
#define ARES_K(name) ARES_K_EXPAND(name, ARES_ISA)

/* exp, log and sigmoid over v16: explicit FMAs only, so every build gives the same bits. */

/*
 * e^x, within 1.01 ulp. x = n ln 2 + r; e^r = 1 + r + r^2 P(r) with Cephes' polynomial (Moshier,
 * expf). Denormal results are rounded once; below -104 it is 0 (so exp(-inf) = 0), above 88.73
 * infinity; NaN stays NaN.
 */
V16_INLINE v16 v16_exp(v16 x)
{
    /* 1.5 * 2^23: adding it rounds to an integer, held in the low bits */
    const v16 magic = v16_set1(12582912.0f);
    x = v16_min(v16_set1(89.0f), v16_max(v16_set1(-104.0f), x));
    v16 t = v16_fma(x, v16_set1(1.44269504088896341f), magic);
    v16i n = v16i_sub(v16_bits(t), v16_bits(magic));
    v16 nf = v16_sub(t, magic);
    v16 r = v16_fnma(nf, v16_set1(0.693359375f), x);
    r = v16_fnma(nf, v16_set1(-2.12194440e-4f), r);
    v16 p = v16_set1(1.9875691500e-4f);
    p = v16_fma(p, r, v16_set1(1.3981999507e-3f));
    p = v16_fma(p, r, v16_set1(8.3334519073e-3f));
    p = v16_fma(p, r, v16_set1(4.1665795894e-2f));
    p = v16_fma(p, r, v16_set1(1.6666665459e-1f));
    p = v16_fma(p, r, v16_set1(5.0000001201e-1f));
    p = v16_add(v16_fma(v16_mul(r, r), p, r), v16_set1(1.0f));
    return v16_scale2(p, nf, n);
}

/*
 * ln x, within 1 ulp. x = 2^n (1 + f), 1 + f in [sqrt 1/2, sqrt 2); ln(1 + f) = f - f^2/2 + f^3
 * P(f) with Cephes' logf. 0 gives -infinity, a negative number NaN, infinity itself; denormals are
 * exact.
 */
V16_INLINE v16 v16_log(v16 x)
{
    v16m tiny = v16_lt(x, v16_set1(1.17549435e-38f));
    v16 y = v16_select(tiny, v16_mul(x, v16_set1(8388608.0f)), x);
    /* exponent such that the rest lies in [sqrt 1/2, sqrt 2): count from the bits of sqrt 1/2 */
    v16i above = v16i_sub(v16_bits(y), v16i_set1(0x3f3504f3u));
    v16i n = v16i_sar(above, 23);
    v16 f = v16_sub(v16_from_bits(v16i_sub(v16_bits(y), v16i_shl(n, 23))), v16_set1(1.0f));
    v16 e = v16_sub(v16_from_int(n), v16_select(tiny, v16_set1(23.0f), v16_zero()));
    v16 p = v16_set1(7.0376836292e-2f);
    p = v16_fma(p, f, v16_set1(-1.1514610310e-1f));
    p = v16_fma(p, f, v16_set1(1.1676998740e-1f));
    p = v16_fma(p, f, v16_set1(-1.2420140846e-1f));
    p = v16_fma(p, f, v16_set1(1.4249322787e-1f));
    p = v16_fma(p, f, v16_set1(-1.6668057665e-1f));
    p = v16_fma(p, f, v16_set1(2.0000714765e-1f));
    p = v16_fma(p, f, v16_set1(-2.4999993993e-1f));
    p = v16_fma(p, f, v16_set1(3.3333331174e-1f));
    v16 f2 = v16_mul(f, f);
    v16 q = v16_mul(v16_mul(f2, f), p);
    q = v16_fma(e, v16_set1(-2.12194440e-4f), q);
    q = v16_fma(f2, v16_set1(-0.5f), q);
    v16 r = v16_fma(e, v16_set1(0.693359375f), v16_add(f, q));
    const v16 inf = v16_from_bits(v16i_set1(0x7f800000u));
    r = v16_select(v16_lt(x, inf), r, x); /* infinity and NaN */
    r = v16_select(v16_lt(x, v16_zero()), v16_from_bits(v16i_set1(0x7fc00000u)), r);
    return v16_select(v16_eq(x, v16_zero()), v16_neg(inf), r);
}

/* 1 / (1 + e^-x) */
V16_INLINE v16 v16_sigmoid(v16 x)
{
    const v16 one = v16_set1(1.0f);
    return v16_div(one, v16_add(one, v16_exp(v16_neg(x))));
}
#endif
