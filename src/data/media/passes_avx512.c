/*
 * The passes for processors with AVX-512's byte permutations (VBMI) and its multiply-and-add of
 * 16-bit pairs that adds to a sum (VNNI). Weights of more than 16 bits, and pictures that shrink to
 * less than MOST_SHRINK of a side, go to the passes for AVX2. Exact sums, so the same bytes.
 */
#include "passes.h"

#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))
#define INLINE    \
    static inline \
        __attribute__((always_inline, target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))

/*
 * The pass over rows makes blocks of PIXELS pixels, which are BYTES bytes, of ROWS rows at a time.
 * The bytes of a block stand in the 32-bit lanes of three registers, so that packing them once
 * leaves 12 of every 16 bytes in order.
 */
enum { PIXELS = 16, BYTES = 3 * PIXELS, ROWS = 4, WIDTH = 64, SPARE = 3 * WIDTH };

/*
 * For each block: which bytes of the input, counted from its first pixel's first, meet a lane's
 * first two weights, and the weights themselves, two of 16 bits per lane. The next two weights meet
 * the bytes two pixels on. Leaves a->blocks NULL where a block would need more than two registers
 * of input.
 */
void media_blocks_init(axis *a)
{
    int32_t n = (a->n_out + PIXELS - 1) / PIXELS, most = 0, span = 0;
    for (int32_t i = 0; i < a->n_out; i++) {
        int32_t last = ARES_MIN(i / PIXELS * PIXELS + PIXELS, a->n_out) - 1;
        most = ARES_MAX(most, a->n[i]);
        span = ARES_MAX(span, a->first[last] - a->first[i]);
    }
    span = 3 * span + 5; /* the last byte of the pixel after the last one */
    if (a->wide || span >= 2 * WIDTH) return;
    a->pairs = (most + 1) / 2;
    a->two = span >= WIDTH;
    size_t each = (size_t)(a->pairs + 1) * BYTES;
    a->blocks = ares_calloc((size_t)n * each, sizeof *a->blocks);
    for (int32_t b = 0; b < n; b++) {
        int32_t *where = a->blocks + (size_t)b * each, *weights = where + BYTES,
                begin = a->first[b * PIXELS];
        for (int j = 0; j < 3; j++)
            for (int lane = 0; lane < 16; lane++) {
                /* the byte of its block that the lane of register j holds */
                int byte = lane / 4 * 12 + 4 * j + lane % 4, at = j * 16 + lane;
                int32_t i = ARES_MIN(b * PIXELS + byte / 3, a->n_out - 1),
                        from = (a->first[i] - begin) * 3 + byte % 3;
                where[at] = from | (from + 3) << 16;
                for (int32_t p = 0; p < a->pairs; p++)
                    weights[p * BYTES + at] = a->low[i * (a->taps / 2) + p];
            }
    }
}

/* The bytes of `where` in the words of a register. */
INLINE __m512i spread(const uint8_t *at, __m512i where, bool two)
{
    const __mmask64 low = 0x5555555555555555;
    __m512i v = _mm512_loadu_si512(at);
    if (!two) return _mm512_maskz_permutexvar_epi8(low, where, v);
    return _mm512_maskz_permutex2var_epi8(low, v, where, _mm512_loadu_si512(at + WIDTH));
}

/* Block b of ROWS rows; bytes: of the block, as many as the picture has. */
INLINE void make_block(const axis *a, int32_t b, const uint8_t *const in[ROWS],
                       uint8_t *const out[ROWS], int bytes, bool two)
{
    const __m512i zero = _mm512_setzero_si512(), half = _mm512_set1_epi32(1 << (a->bits - 1)),
                  order = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
    const __m128i bits = _mm_cvtsi32_si128(a->bits);
    const int32_t *table = a->blocks + (size_t)b * (size_t)(a->pairs + 1) * BYTES;
    size_t begin = (size_t)a->first[b * PIXELS] * 3;
    __m512i where[3], weight[3], sum[ROWS][3];
    for (int j = 0; j < 3; j++) where[j] = _mm512_loadu_si512(table + 16 * j);
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < 3; j++) sum[r][j] = half;
    for (int32_t p = 0; p < a->pairs; p++) {
        table += BYTES;
        for (int j = 0; j < 3; j++) weight[j] = _mm512_loadu_si512(table + 16 * j);
        for (int r = 0; r < ROWS; r++)
            for (int j = 0; j < 3; j++)
                sum[r][j] = _mm512_dpwssd_epi32(
                    sum[r][j], spread(in[r] + begin + 6 * p, where[j], two), weight[j]);
    }
    for (int r = 0; r < ROWS; r++) {
        for (int j = 0; j < 3; j++) sum[r][j] = _mm512_sra_epi32(sum[r][j], bits);
        __m512i v = _mm512_packus_epi16(_mm512_packs_epi32(sum[r][0], sum[r][1]),
                                        _mm512_packs_epi32(sum[r][2], zero));
        _mm512_mask_storeu_epi8(out[r] + (size_t)b * BYTES, ((uint64_t)1 << bytes) - 1,
                                _mm512_permutexvar_epi32(order, v));
    }
}

INLINE void rows(const axis *a, const uint8_t *in, media_size from, uint8_t *out, bool two)
{
    size_t row = (size_t)from.w * 3, out_row = (size_t)a->n_out * 3;
    /* a block's loads may reach beyond its row: into the next ones, of which the last have none */
    uint8_t *spare = ares_calloc(ROWS, row + SPARE);
    for (int32_t y = 0; y < from.h; y += ROWS) {
        const uint8_t *at[ROWS];
        uint8_t *to[ROWS];
        bool last = (size_t)(from.h - ARES_MIN(from.h, y + ROWS)) * row < SPARE;
        for (int r = 0; r < ROWS; r++) {
            size_t line = (size_t)ARES_MIN(y + r, from.h - 1);
            at[r] = in + line * row;
            to[r] = out + line * out_row;
            if (last) at[r] = memcpy(spare + (size_t)r * (row + SPARE), at[r], row);
        }
        for (int32_t b = 0; b * PIXELS < a->n_out; b++)
            make_block(a, b, at, to, 3 * ARES_MIN(PIXELS, a->n_out - b * PIXELS), two);
    }
    ares_free(spare);
}

AVX512 void media_rows_avx512(const axis *a, const uint8_t *in, media_size from, uint8_t *out)
{
    if (!a->blocks) media_rows_avx2(a, in, from, out);
    else if (a->two) rows(a, in, from, out, true);
    else rows(a, in, from, out, false);
}

/* WIDTH bytes side by side, of two rows at a step. */
INLINE void make_column(const axis *a, int32_t i, const uint8_t *in, int64_t bytes, uint8_t *out)
{
    const int32_t *weights = a->low + (int64_t)i * (a->taps / 2), n = a->n[i];
    const __m512i zero = _mm512_setzero_si512(), half = _mm512_set1_epi32(1 << (a->bits - 1));
    const __m128i bits = _mm_cvtsi32_si128(a->bits);
    __m512i sum[4] = { half, half, half, half };
    for (int32_t k = 0; k < n; k += 2, in += 2 * bytes) {
        /* an odd last row is taken twice, once with weight 0 */
        const uint8_t *below = k + 1 < n ? in + bytes : in;
        __m512i u = _mm512_loadu_si512(in), v = _mm512_loadu_si512(below),
                left = _mm512_unpacklo_epi8(u, v), right = _mm512_unpackhi_epi8(u, v),
                weight = _mm512_set1_epi32(weights[k / 2]);
        sum[0] = _mm512_dpwssd_epi32(sum[0], _mm512_unpacklo_epi8(left, zero), weight);
        sum[1] = _mm512_dpwssd_epi32(sum[1], _mm512_unpackhi_epi8(left, zero), weight);
        sum[2] = _mm512_dpwssd_epi32(sum[2], _mm512_unpacklo_epi8(right, zero), weight);
        sum[3] = _mm512_dpwssd_epi32(sum[3], _mm512_unpackhi_epi8(right, zero), weight);
    }
    for (int j = 0; j < 4; j++) sum[j] = _mm512_sra_epi32(sum[j], bits);
    _mm512_storeu_si512(out, _mm512_packus_epi16(_mm512_packs_epi32(sum[0], sum[1]),
                                                 _mm512_packs_epi32(sum[2], sum[3])));
}

AVX512 void media_column_avx512(const axis *a, int32_t i, const uint8_t *in, int64_t bytes,
                                uint8_t *out)
{
    if (a->wide || bytes < WIDTH) {
        media_column_avx2(a, i, in, bytes, out);
        return;
    }
    for (int64_t x = 0; x < bytes; x += WIDTH) {
        int64_t at = ARES_MIN(x, bytes - WIDTH); /* the last block may overlap the one before */
        make_column(a, i, in + at, bytes, out + at);
    }
}
#endif
