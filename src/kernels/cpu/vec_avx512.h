/* v16 as one AVX-512 register. Read vec.h. */
#include <immintrin.h>

typedef __m512 v16;
typedef __m512i v16i;
typedef __mmask16 v16m;

V16_OP(v16m, v16m_first, (int n), (v16m)(n >= 16 ? 0xffffu : (1u << n) - 1u))
V16_OP(v16m, v16m_of, (uint32_t bits), (v16m)bits)
V16_OP(uint32_t, v16m_bits, (v16m m), (uint32_t)m)
V16_OP(v16m, v16m_not, (v16m a), (v16m)~a)

V16_OP(v16, v16_zero, (void), _mm512_setzero_ps())
V16_OP(v16, v16_set1, (float x), _mm512_set1_ps(x))
V16_OP(v16, v16_load, (const float *p), _mm512_loadu_ps(p))
V16_INLINE void v16_store(float *p, v16 v)
{
    _mm512_storeu_ps(p, v);
}
V16_OP(v16, v16_load_first, (const float *p, int n), _mm512_maskz_loadu_ps(v16m_first(n), p))
V16_INLINE void v16_store_first(float *p, v16 v, int n)
{
    _mm512_mask_storeu_ps(p, v16m_first(n), v);
}

V16_OP(v16, v16_fma, (v16 a, v16 b, v16 c), _mm512_fmadd_ps(a, b, c))
V16_OP(v16, v16_fnma, (v16 a, v16 b, v16 c), _mm512_fnmadd_ps(a, b, c))
V16_OP(v16, v16_add, (v16 a, v16 b), _mm512_add_ps(a, b))
V16_OP(v16, v16_sub, (v16 a, v16 b), _mm512_sub_ps(a, b))
V16_OP(v16, v16_mul, (v16 a, v16 b), _mm512_mul_ps(a, b))
V16_OP(v16, v16_div, (v16 a, v16 b), _mm512_div_ps(a, b))
V16_OP(v16, v16_sqrt, (v16 a), _mm512_sqrt_ps(a))
V16_OP(v16, v16_neg, (v16 a), _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)))
V16_OP(v16, v16_min, (v16 a, v16 b), _mm512_min_ps(a, b))
V16_OP(v16, v16_max, (v16 a, v16 b), _mm512_max_ps(a, b))
V16_OP(v16m, v16_lt, (v16 a, v16 b), _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ))
V16_OP(v16m, v16_gt, (v16 a, v16 b), _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ))
V16_OP(v16m, v16_ge, (v16 a, v16 b), _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ))
V16_OP(v16m, v16_eq, (v16 a, v16 b), _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ))
V16_OP(v16, v16_select, (v16m m, v16 a, v16 b), _mm512_mask_blend_ps(m, b, a))

V16_OP(v16i, v16_bits, (v16 v), _mm512_castps_si512(v))
V16_OP(v16, v16_from_bits, (v16i v), _mm512_castsi512_ps(v))
V16_OP(v16, v16_from_int, (v16i v), _mm512_cvtepi32_ps(v))
V16_OP(v16i, v16_trunc, (v16 v), _mm512_cvttps_epi32(v))

V16_OP(v16i, v16i_set1, (uint32_t x), _mm512_set1_epi32((int)x))
V16_OP(v16i, v16i_iota, (void),
       _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
V16_OP(v16i, v16i_load, (const void *p), _mm512_loadu_si512(p))
V16_INLINE void v16i_store(void *p, v16i v)
{
    _mm512_storeu_si512(p, v);
}
V16_OP(v16i, v16i_add, (v16i a, v16i b), _mm512_add_epi32(a, b))
V16_OP(v16i, v16i_sub, (v16i a, v16i b), _mm512_sub_epi32(a, b))
V16_OP(v16i, v16i_and, (v16i a, v16i b), _mm512_and_si512(a, b))
V16_OP(v16i, v16i_xor, (v16i a, v16i b), _mm512_xor_si512(a, b))
V16_OP(v16i, v16i_shl, (v16i v, int n), _mm512_sll_epi32(v, _mm_cvtsi32_si128(n)))
V16_OP(v16i, v16i_shr, (v16i v, int n), _mm512_srl_epi32(v, _mm_cvtsi32_si128(n)))
V16_OP(v16i, v16i_sar, (v16i v, int n), _mm512_sra_epi32(v, _mm_cvtsi32_si128(n)))
V16_INLINE void v16i_mul_wide(v16i a, v16i b, v16i *hi, v16i *lo)
{
    __m512i even = _mm512_mul_epu32(a, b);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
    *hi = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
    *lo = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}

/* vscalefps rounds once, as the two products of the other builds do. */
V16_INLINE v16 v16_scale2(v16 p, v16 nf, v16i n)
{
    (void)n;
    return _mm512_scalef_ps(p, nf);
}

V16_OP(v16, v16_load_bf16, (const uint16_t *p),
       _mm512_castsi512_ps(
           _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16)))
V16_INLINE v16 v16_load_bf16_first(const uint16_t *p, int n)
{
    __m256i h = _mm256_maskz_loadu_epi16(v16m_first(n), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
V16_INLINE __m256i v16_to_bf16(v16 v)
{
    __m512i u = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}
V16_INLINE void v16_store_bf16(uint16_t *p, v16 v)
{
    _mm256_storeu_si256((void *)p, v16_to_bf16(v));
}
V16_INLINE void v16_store_bf16_first(uint16_t *p, v16 v, int n)
{
    _mm256_mask_storeu_epi16(p, v16m_first(n), v16_to_bf16(v));
}

V16_INLINE float v16_sum(v16 v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
V16_INLINE float v16_max_lane(v16 v)
{
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

/* dst[j * ld_dst + i] = src[i * ld_src + j], 16 by 16 */
V16_INLINE void v16_transpose(const float *src, int64_t ld_src, float *dst, int64_t ld_dst)
{
    __m512 a[16], b[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_ps(src + i * ld_src);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) { /* pairs of rows, within each quarter */
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 4
    /* fours of rows: a[i + c] holds column 4 q + c in quarter q */
    for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) { /* gather quarter q of the four fours */
        __m512 lo02 = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88),
               lo13 = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xdd);
        __m512 hi02 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88),
               hi13 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xdd);
        _mm512_storeu_ps(dst + (c + 0) * ld_dst, _mm512_shuffle_f32x4(lo02, hi02, 0x88));
        _mm512_storeu_ps(dst + (c + 4) * ld_dst, _mm512_shuffle_f32x4(lo13, hi13, 0x88));
        _mm512_storeu_ps(dst + (c + 8) * ld_dst, _mm512_shuffle_f32x4(lo02, hi02, 0xdd));
        _mm512_storeu_ps(dst + (c + 12) * ld_dst, _mm512_shuffle_f32x4(lo13, hi13, 0xdd));
    }
}

V16_INLINE void v16_store_zip(float *p, v16 a, v16 b)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
                  eight = _mm512_set1_epi32(8);
    _mm512_storeu_ps(p, _mm512_permutex2var_ps(a, low, b));
    _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(a, _mm512_add_epi32(low, eight), b));
}
V16_OP(v16, v16_swap, (v16 v), _mm512_permute_ps(v, 0xb1))
V16_INLINE v16 v16_set1_two(const float *p)
{
    int64_t two;
    memcpy(&two, p, sizeof two);
    return _mm512_castsi512_ps(_mm512_set1_epi64(two));
}
