/*
 * The passes with AVX2's multiply-and-add of 16-bit pairs. A weight of more than 16 bits (Pillow's)
 * is taken as two: q = high 2^11 + low, and the sums are put together at the end; all of it is
 * exact, modulo 2^32.
 */
#include "passes.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline, target("avx2")))
enum { PADDING = 64 };

/* sum + pairs of words times a pair of weights, in each lane of 32 bits */
INLINE __m256i add(__m256i sum, __m256i words, int32_t weights)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(words, _mm256_set1_epi32(weights)));
}

/* Sums of bytes times weights, put together and shifted to whole bytes. */
INLINE __m256i sum_up(__m256i low, __m256i high, bool wide, __m128i bits)
{
    if (wide) low = _mm256_add_epi32(low, _mm256_slli_epi32(high, MEDIA_SPLIT));
    return _mm256_sra_epi32(low, bits);
}

/* Four bytes are one store: the pixel after this one overwrites the fourth. */
INLINE void put(uint8_t *out, int32_t pixel, bool last)
{
    if (last) memcpy(out, &pixel, 3);
    else memcpy(out, &pixel, 4);
}

/* Two rows at a time, one in each half of a register; four pixels of each at a step. */
INLINE void rows(const axis *a, const uint8_t *in, media_size from, uint8_t *out, bool wide)
{
    const __m256i first = _mm256_broadcastsi128_si256(
                      _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1)),
                  second = _mm256_broadcastsi128_si256(
                      _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1)),
                  zero = _mm256_setzero_si256(), half = _mm256_set1_epi32(1 << (a->bits - 1));
    const __m128i bits = _mm_cvtsi32_si128(a->bits);
    size_t row = (size_t)from.w * 3, out_row = (size_t)a->n_out * 3;
    /* the last steps read beyond a row, where the weights are 0 */
    uint8_t *two = ares_calloc(2, row + PADDING);
    for (int32_t y = 0; y < from.h; y += 2) {
        int32_t below = ARES_MIN(y + 1, from.h - 1);
        memcpy(two, in + (size_t)y * row, row);
        memcpy(two + row + PADDING, in + (size_t)below * row, row);
        for (int32_t i = 0; i < a->n_out; i++) {
            const int32_t *lows = a->low + (int64_t)i * (a->taps / 2),
                          *highs = a->high + (int64_t)i * (a->taps / 2);
            const uint8_t *at = two + (size_t)a->first[i] * 3;
            __m256i low = half, high = zero;
            for (int32_t k = 0; k < a->n[i]; k += 4, at += 12) {
                __m256i v = _mm256_inserti128_si256(
                    _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)at)),
                    _mm_loadu_si128((const __m128i *)(at + row + PADDING)), 1);
                __m256i p = _mm256_shuffle_epi8(v, first), r = _mm256_shuffle_epi8(v, second);
                low = add(add(low, p, lows[k / 2]), r, lows[k / 2 + 1]);
                if (wide) high = add(add(high, p, highs[k / 2]), r, highs[k / 2 + 1]);
            }
            /* each half holds the three channels of its row's pixel */
            __m256i sum = sum_up(low, high, wide, bits);
            sum = _mm256_packus_epi16(_mm256_packs_epi32(sum, sum), zero);
            int32_t upper = _mm256_extract_epi32(sum, 0), lower = _mm256_extract_epi32(sum, 4);
            put(out + (size_t)y * out_row + (size_t)i * 3, upper, i + 1 == a->n_out);
            put(out + (size_t)below * out_row + (size_t)i * 3, lower, i + 1 == a->n_out);
        }
    }
    ares_free(two);
}

/* 32 bytes side by side, of two rows at a step. */
INLINE void block(const axis *a, int32_t i, const uint8_t *in, int64_t bytes, uint8_t *out,
                  bool wide)
{
    const int32_t *lows = a->low + (int64_t)i * (a->taps / 2),
                  *highs = a->high + (int64_t)i * (a->taps / 2), n = a->n[i];
    const __m256i zero = _mm256_setzero_si256(), half = _mm256_set1_epi32(1 << (a->bits - 1));
    const __m128i bits = _mm_cvtsi32_si128(a->bits);
    __m256i low[4] = { half, half, half, half }, high[4] = { zero, zero, zero, zero };
    for (int32_t k = 0; k < n; k += 2, in += 2 * bytes) {
        /* an odd last row is taken twice, once with weight 0 */
        const uint8_t *below = k + 1 < n ? in + bytes : in;
        __m256i u = _mm256_loadu_si256((const __m256i *)in),
                v = _mm256_loadu_si256((const __m256i *)below), left = _mm256_unpacklo_epi8(u, v),
                right = _mm256_unpackhi_epi8(u, v);
        __m256i word[4] = { _mm256_unpacklo_epi8(left, zero), _mm256_unpackhi_epi8(left, zero),
                            _mm256_unpacklo_epi8(right, zero), _mm256_unpackhi_epi8(right, zero) };
        for (int j = 0; j < 4; j++) {
            low[j] = add(low[j], word[j], lows[k / 2]);
            if (wide) high[j] = add(high[j], word[j], highs[k / 2]);
        }
    }
    for (int j = 0; j < 4; j++) low[j] = sum_up(low[j], high[j], wide, bits);
    _mm256_storeu_si256((__m256i *)out, _mm256_packus_epi16(_mm256_packs_epi32(low[0], low[1]),
                                                            _mm256_packs_epi32(low[2], low[3])));
}

INLINE void column(const axis *a, int32_t i, const uint8_t *in, int64_t bytes, uint8_t *out,
                   bool wide)
{
    enum { WIDTH = 32 };
    for (int64_t x = 0; x < bytes; x += WIDTH) {
        int64_t at = ARES_MIN(x, bytes - WIDTH); /* the last block may overlap the one before */
        block(a, i, in + at, bytes, out + at, wide);
    }
}

/* `wide` is a constant after inlining, so the loops have no branch on it. */
AVX2 void media_rows_avx2(const axis *a, const uint8_t *in, media_size from, uint8_t *out)
{
    if (a->wide) rows(a, in, from, out, true);
    else rows(a, in, from, out, false);
}

AVX2 void media_column_avx2(const axis *a, int32_t i, const uint8_t *in, int64_t bytes,
                            uint8_t *out)
{
    if (bytes < 32) media_column_plain(a, i, in, bytes, out);
    else if (a->wide) column(a, i, in, bytes, out, true);
    else column(a, i, in, bytes, out, false);
}
#endif
