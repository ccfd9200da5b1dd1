/*
 * Weights between files (row-major, f32, bf16 or f16) and memory (rows, or panels of 32 outputs),
 * and the short floats.
 */
#include "layout.h"
#include "ares/kernels.h"

#include <string.h>

float kernels_bf16_to_f32(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
uint16_t kernels_f32_to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (x != x) return (uint16_t)((u | 0x400000u) >> 16);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
float kernels_f16_to_f32(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, rest = x & 0x7fffu, u;
    float f;
    if (rest >= 0x7c00u) { /* infinity, NaN */
        u = sign | 0x7f800000u | (rest & 0x3ffu) << 13;
    } else if (rest >= 0x400u) {
        u = sign | ((rest << 13) + (112u << 23));
    } else { /* a multiple of 2^-24 */
        f = (float)rest * 0x1p-24f;
        memcpy(&u, &f, sizeof u);
        u |= sign;
    }
    memcpy(&f, &u, sizeof f);
    return f;
}
uint16_t kernels_f32_to_f16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    uint32_t sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (mag >> 13 & 0x3ffu));
    /* 65520 and above round to infinity */
    if (mag >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    /* below 2^-14: adding 1/2 leaves the multiple of 2^-24, to nearest even, in the low bits */
    if (mag < 0x38800000u) {
        float f;
        memcpy(&f, &mag, sizeof f);
        f += 0.5f;
        memcpy(&mag, &f, sizeof mag);
        return (uint16_t)(sign | (mag - 0x3f000000u));
    }
    return (uint16_t)(sign | ((mag + 0xfffu + (mag >> 13 & 1) - (112u << 23)) >> 13));
}

static void load_row(float *out, const void *from, ares_dtype dtype, int64_t at, int64_t n)
{
    const uint16_t *h = (const uint16_t *)from + at;
    switch (dtype) {
    case ARES_F32: memcpy(out, (const float *)from + at, (size_t)n * sizeof(float)); break;
    case ARES_BF16:
        for (int64_t i = 0; i < n; i++) out[i] = kernels_bf16_to_f32(h[i]);
        break;
    case ARES_F16:
        for (int64_t i = 0; i < n; i++) out[i] = kernels_f16_to_f32(h[i]);
        break;
    }
}
static void store_row(void *to, ares_dtype dtype, int64_t at, const float *in, int64_t n)
{
    uint16_t *h = (uint16_t *)to + at;
    switch (dtype) {
    case ARES_F32: memcpy((float *)to + at, in, (size_t)n * sizeof(float)); break;
    case ARES_BF16:
        for (int64_t i = 0; i < n; i++) h[i] = kernels_f32_to_bf16(in[i]);
        break;
    case ARES_F16:
        for (int64_t i = 0; i < n; i++) h[i] = kernels_f32_to_f16(in[i]);
        break;
    }
}

/*
 * A panel is transposed in blocks of 32 outputs by PIECE inputs, in a buffer that stays in the
 * first-level cache.
 */
enum { PIECE = 64 };

void ares_matrix_pack(const ares_matrix *w, const void *rows, ares_dtype rows_dtype)
{
    int64_t k = w->k, n = w->n;
    float row[PIECE], block[PIECE * 32];
    if (w->layout == ARES_ROWS) {
        for (int64_t at = 0; at < n * k; at += PIECE) {
            int64_t count = ARES_MIN(PIECE, n * k - at);
            load_row(row, rows, rows_dtype, at, count);
            store_row(w->data, w->dtype, at, row, count);
        }
        return;
    }
    for (int64_t first = 0; first < n; first += 32)
        for (int64_t from = 0; from < k; from += PIECE) {
            int64_t count = ARES_MIN(PIECE, k - from);
            memset(block, 0, sizeof block);
            for (int64_t lane = 0; lane < ARES_MIN(32, n - first); lane++) {
                load_row(row, rows, rows_dtype, (first + lane) * k + from, count);
                for (int64_t i = 0; i < count; i++) block[i * 32 + lane] = row[i];
            }
            store_row(w->data, w->dtype, first * k + from * 32, block, count * 32);
        }
}

void ares_matrix_unpack(const ares_matrix *w, void *rows, ares_dtype rows_dtype)
{
    int64_t k = w->k, n = w->n;
    float row[PIECE], block[PIECE * 32];
    if (w->layout == ARES_ROWS) {
        for (int64_t at = 0; at < n * k; at += PIECE) {
            int64_t count = ARES_MIN(PIECE, n * k - at);
            load_row(row, w->data, w->dtype, at, count);
            store_row(rows, rows_dtype, at, row, count);
        }
        return;
    }
    for (int64_t first = 0; first < n; first += 32)
        for (int64_t from = 0; from < k; from += PIECE) {
            int64_t count = ARES_MIN(PIECE, k - from);
            load_row(block, w->data, w->dtype, first * k + from * 32, count * 32);
            for (int64_t lane = 0; lane < ARES_MIN(32, n - first); lane++) {
                for (int64_t i = 0; i < count; i++) row[i] = block[i * 32 + lane];
                store_row(rows, rows_dtype, (first + lane) * k + from, row, count);
            }
        }
}
