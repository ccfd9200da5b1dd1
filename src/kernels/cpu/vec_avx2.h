/* v16 as two AVX2 registers, lanes 0 to 7 and 8 to 15. Read vec.h. */
#include <immintrin.h>

typedef struct v16 {
    __m256 lo, hi;
} v16;
typedef struct v16i {
    __m256i lo, hi;
} v16i;
typedef struct v16m {
    __m256 lo, hi;
} v16m; /* all bits of a true lane are set */

#define V16_UNARY(name, op)                 \
    V16_INLINE v16 name(v16 a)              \
    {                                       \
        return (v16){ op(a.lo), op(a.hi) }; \
    }
#define V16_BINARY(name, op)                            \
    V16_INLINE v16 name(v16 a, v16 b)                   \
    {                                                   \
        return (v16){ op(a.lo, b.lo), op(a.hi, b.hi) }; \
    }
#define V16_COMPARE(name, how)                                                           \
    V16_INLINE v16m name(v16 a, v16 b)                                                   \
    {                                                                                    \
        return (v16m){ _mm256_cmp_ps(a.lo, b.lo, how), _mm256_cmp_ps(a.hi, b.hi, how) }; \
    }
#define V16I_BINARY(name, op)                            \
    V16_INLINE v16i name(v16i a, v16i b)                 \
    {                                                    \
        return (v16i){ op(a.lo, b.lo), op(a.hi, b.hi) }; \
    }
#define V16I_COMPARE(name, op)                                                                     \
    V16_INLINE v16m name(v16i a, v16i b)                                                           \
    {                                                                                              \
        return (v16m){ _mm256_castsi256_ps(op(a.lo, b.lo)), _mm256_castsi256_ps(op(a.hi, b.hi)) }; \
    }

V16_OP(v16i, v16i_iota, (void),
       (v16i){ _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
               _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15) })
V16_OP(v16i, v16i_set1, (uint32_t x),
       (v16i){ _mm256_set1_epi32((int)x), _mm256_set1_epi32((int)x) })
V16I_BINARY(v16i_add, _mm256_add_epi32)
V16I_BINARY(v16i_sub, _mm256_sub_epi32)
V16I_BINARY(v16i_and, _mm256_and_si256)
V16I_BINARY(v16i_xor, _mm256_xor_si256)
V16I_COMPARE(v16i_eq, _mm256_cmpeq_epi32) /* these two for the masks below only */
V16I_COMPARE(v16i_gt, _mm256_cmpgt_epi32)

V16_OP(v16m, v16m_first, (int n), v16i_gt(v16i_set1((uint32_t)n), v16i_iota()))
V16_INLINE v16m v16m_of(uint32_t bits)
{
    v16i one = { _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128),
                 _mm256_setr_epi32(256, 512, 1024, 2048, 4096, 8192, 16384, 32768) };
    return v16i_eq(v16i_and(v16i_set1(bits), one), one);
}
V16_OP(uint32_t, v16m_bits, (v16m m),
       (uint32_t)_mm256_movemask_ps(m.lo) | (uint32_t)_mm256_movemask_ps(m.hi) << 8)
V16_INLINE v16m v16m_not(v16m a)
{
    __m256 ones = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    return (v16m){ _mm256_xor_ps(a.lo, ones), _mm256_xor_ps(a.hi, ones) };
}

V16_OP(v16, v16_zero, (void), (v16){ _mm256_setzero_ps(), _mm256_setzero_ps() })
V16_OP(v16, v16_set1, (float x), (v16){ _mm256_set1_ps(x), _mm256_set1_ps(x) })
V16_OP(v16, v16_load, (const float *p), (v16){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) })
V16_INLINE void v16_store(float *p, v16 v)
{
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
}
V16_INLINE v16 v16_load_first(const float *p, int n)
{
    if (n >= 16) return v16_load(p);
    v16m m = v16m_first(n);
    return (v16){ _mm256_maskload_ps(p, _mm256_castps_si256(m.lo)),
                  n > 8 ? _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.hi))
                        : _mm256_setzero_ps() };
}
/* Without masked stores, which take AMD's processors some twenty cycles each. */
V16_INLINE void v16_store_first(float *p, v16 v, int n)
{
    if (n >= 16) {
        v16_store(p, v);
        return;
    }
    __m256 half = v.lo;
    if (n & 8) {
        _mm256_storeu_ps(p, half);
        half = v.hi;
        p += 8;
    }
    __m128 quarter = _mm256_castps256_ps128(half);
    if (n & 4) {
        _mm_storeu_ps(p, quarter);
        quarter = _mm256_extractf128_ps(half, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)(void *)p, quarter);
        quarter = _mm_movehl_ps(quarter, quarter);
        p += 2;
    }
    if (n & 1) _mm_store_ss(p, quarter);
}

V16_OP(v16, v16_fma, (v16 a, v16 b, v16 c),
       (v16){ _mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi) })
V16_OP(v16, v16_fnma, (v16 a, v16 b, v16 c),
       (v16){ _mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi) })
V16_BINARY(v16_add, _mm256_add_ps)
V16_BINARY(v16_sub, _mm256_sub_ps)
V16_BINARY(v16_mul, _mm256_mul_ps)
V16_BINARY(v16_div, _mm256_div_ps)
V16_BINARY(v16_min, _mm256_min_ps)
V16_BINARY(v16_max, _mm256_max_ps)
V16_UNARY(v16_sqrt, _mm256_sqrt_ps)
V16_INLINE v16 v16_neg(v16 a)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){ _mm256_xor_ps(sign, a.lo), _mm256_xor_ps(sign, a.hi) };
}
V16_COMPARE(v16_lt, _CMP_LT_OQ)
V16_COMPARE(v16_gt, _CMP_GT_OQ)
V16_COMPARE(v16_ge, _CMP_GE_OQ)
V16_COMPARE(v16_eq, _CMP_EQ_OQ)
V16_OP(v16, v16_select, (v16m m, v16 a, v16 b),
       (v16){ _mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi) })

V16_OP(v16i, v16_bits, (v16 v), (v16i){ _mm256_castps_si256(v.lo), _mm256_castps_si256(v.hi) })
V16_OP(v16, v16_from_bits, (v16i v), (v16){ _mm256_castsi256_ps(v.lo), _mm256_castsi256_ps(v.hi) })
V16_OP(v16, v16_from_int, (v16i v), (v16){ _mm256_cvtepi32_ps(v.lo), _mm256_cvtepi32_ps(v.hi) })
V16_OP(v16i, v16_trunc, (v16 v), (v16i){ _mm256_cvttps_epi32(v.lo), _mm256_cvttps_epi32(v.hi) })

V16_OP(v16i, v16i_load, (const void *p),
       (v16i){ _mm256_loadu_si256(p), _mm256_loadu_si256((const __m256i *)p + 1) })
V16_INLINE void v16i_store(void *p, v16i v)
{
    _mm256_storeu_si256(p, v.lo);
    _mm256_storeu_si256((__m256i *)p + 1, v.hi);
}
V16_INLINE v16i v16i_shl(v16i v, int n)
{
    __m128i c = _mm_cvtsi32_si128(n);
    return (v16i){ _mm256_sll_epi32(v.lo, c), _mm256_sll_epi32(v.hi, c) };
}
V16_INLINE v16i v16i_shr(v16i v, int n)
{
    __m128i c = _mm_cvtsi32_si128(n);
    return (v16i){ _mm256_srl_epi32(v.lo, c), _mm256_srl_epi32(v.hi, c) };
}
V16_INLINE v16i v16i_sar(v16i v, int n)
{
    __m128i c = _mm_cvtsi32_si128(n);
    return (v16i){ _mm256_sra_epi32(v.lo, c), _mm256_sra_epi32(v.hi, c) };
}
V16_INLINE void v16i_mul_wide_half(__m256i a, __m256i b, __m256i *hi, __m256i *lo)
{
    __m256i even = _mm256_mul_epu32(a, b);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
    *hi = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    *lo = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
V16_INLINE void v16i_mul_wide(v16i a, v16i b, v16i *hi, v16i *lo)
{
    v16i h, l;
    v16i_mul_wide_half(a.lo, b.lo, &h.lo, &l.lo);
    v16i_mul_wide_half(a.hi, b.hi, &h.hi, &l.hi);
    *hi = h;
    *lo = l;
}

V16_INLINE v16 v16_load_bf16(const uint16_t *p)
{
    __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p + 8)));
    return (v16){ _mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
                  _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16)) };
}
V16_INLINE v16 v16_load_bf16_first(const uint16_t *p, int n)
{
    if (n >= 16) return v16_load_bf16(p);
    uint16_t t[16] = { 0 };
    memcpy(t, p, (size_t)n * 2);
    return v16_load_bf16(t);
}
V16_INLINE __m256i v16_to_bf16_half(__m256 v)
{
    __m256i u = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(r, quiet, nan), 16);
}
V16_INLINE void v16_store_bf16(uint16_t *p, v16 v)
{
    /* packus works in 128-bit halves: the permutation puts the quarters back in order */
    __m256i packed = _mm256_packus_epi32(v16_to_bf16_half(v.lo), v16_to_bf16_half(v.hi));
    _mm256_storeu_si256((void *)p, _mm256_permute4x64_epi64(packed, 0xd8));
}
V16_INLINE void v16_store_bf16_first(uint16_t *p, v16 v, int n)
{
    if (n >= 16) {
        v16_store_bf16(p, v);
        return;
    }
    uint16_t t[16];
    v16_store_bf16(t, v);
    memcpy(p, t, (size_t)n * 2);
}

V16_INLINE float v16_sum(v16 v)
{
    __m256 a = _mm256_add_ps(v.lo, v.hi);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
V16_INLINE float v16_max_lane(v16 v)
{
    __m256 a = _mm256_max_ps(v.lo, v.hi);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

V16_INLINE void v16_transpose_8x8(const float *src, int64_t ld_src, float *dst, int64_t ld_dst)
{
    __m256 a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_ps(src + i * ld_src);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) { /* pairs of rows, within each half */
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) { /* fours of rows: a[i + c] holds column 4 h + c in half h */
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        _mm256_storeu_ps(dst + c * ld_dst, _mm256_permute2f128_ps(a[c], a[4 + c], 0x20));
        _mm256_storeu_ps(dst + (c + 4) * ld_dst, _mm256_permute2f128_ps(a[c], a[4 + c], 0x31));
    }
}
/* dst[j * ld_dst + i] = src[i * ld_src + j], 16 by 16 */
V16_INLINE void v16_transpose(const float *src, int64_t ld_src, float *dst, int64_t ld_dst)
{
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 16; j += 8)
            v16_transpose_8x8(src + i * ld_src + j, ld_src, dst + j * ld_dst + i, ld_dst);
}

V16_INLINE void v16_store_zip(float *p, v16 a, v16 b)
{
    __m256 x = _mm256_unpacklo_ps(a.lo, b.lo), y = _mm256_unpackhi_ps(a.lo, b.lo),
           z = _mm256_unpacklo_ps(a.hi, b.hi), w = _mm256_unpackhi_ps(a.hi, b.hi);
    _mm256_storeu_ps(p, _mm256_permute2f128_ps(x, y, 0x20));
    _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(x, y, 0x31));
    _mm256_storeu_ps(p + 16, _mm256_permute2f128_ps(z, w, 0x20));
    _mm256_storeu_ps(p + 24, _mm256_permute2f128_ps(z, w, 0x31));
}
V16_OP(v16, v16_swap, (v16 v),
       (v16){ _mm256_permute_ps(v.lo, 0xb1), _mm256_permute_ps(v.hi, 0xb1) })
V16_INLINE v16 v16_set1_two(const float *p)
{
    int64_t two;
    memcpy(&two, p, sizeof two);
    __m256 v = _mm256_castsi256_ps(_mm256_set1_epi64x(two));
    return (v16){ v, v };
}
