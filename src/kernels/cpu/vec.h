/*
 * Sixteen f32 lanes with the same bits from three builds: AVX-512 (one register), AVX2 (two, with
 * FMA), plain C (an array, with fmaf). Every operation below is exact or correctly rounded lane by
 * lane, so a kernel written over v16 gives one result on every machine; only NaN payloads may
 * differ.
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
 */
#ifndef ARES_KERNELS_CPU_VEC_H
#define ARES_KERNELS_CPU_VEC_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined __SANITIZE_ADDRESS__ && defined ARES_ISA_PLAIN
/* Watched inline at every use, an operation of 16 lanes takes the compiler four times as long. */
#define V16_INLINE static inline __attribute__((unused))
#else
#define V16_INLINE static inline __attribute__((always_inline, unused))
#endif

#if defined ARES_ISA_AVX512
#include "vec_avx512.h"
#elif defined ARES_ISA_AVX2
#include "vec_avx2.h"
#else
#include "vec_plain.h"
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

#endif
