/* What attention's forward and backward share: where the keys of a segment lie. */
#ifndef ARES_KERNELS_CPU_ATTENTION_H
#define ARES_KERNELS_CPU_ATTENTION_H

#include "isa.h"
#include "scratch.h"
#include "tile.h"

static inline int32_t segment_prefix(const ares_segments *seg, int s)
{
    return seg->prefix_len ? seg->prefix_len[s] : 0;
}
static inline int32_t segment_rows(const ares_segments *seg, int s)
{
    return seg->start[s + 1] - seg->start[s];
}

/* Packed: the row of k and v that holds key p of segment s. */
static inline int64_t key_row(const ares_segments *seg, int s, int64_t p)
{
    int32_t prefix = segment_prefix(seg, s);
    return p < prefix ? seg->prefix_row[s] + p : seg->start[s] + p - prefix;
}

/* The segment that is the prefix of s; s itself when it has none. */
static inline int32_t segment_leader(const ares_segments *seg, int s)
{
    if (segment_prefix(seg, s) == 0) return s;
    int lo = 0, hi = s;
    while (lo < hi) { /* the first segment that ends after the prefix's first row */
        int mid = (lo + hi) / 2;
        if (seg->start[mid + 1] > seg->prefix_row[s]) hi = mid;
        else lo = mid + 1;
    }
    ARES_ASSERT(lo < s && seg->start[lo] == seg->prefix_row[s] && segment_prefix(seg, lo) == 0 &&
                segment_rows(seg, lo) >= segment_prefix(seg, s));
    return lo;
}

/* A bit for each key of a chunk in [low, high), which lie in [0, 32]. */
static inline uint32_t keys_between(int low, int high)
{
    return low >= high ? 0 : (0xffffffffu << low) & (0xffffffffu >> (32 - high));
}

/* to[j][i] = from[i][j] for i < rows, j < columns; rows of `to` are 32 apart. */
static inline void transpose_to_32(const float *from, int64_t ld, int rows, int columns, float *to)
{
    typedef float f4 __attribute__((vector_size(16), aligned(4), may_alias));
    typedef int32_t i4 __attribute__((vector_size(16)));
    int full = rows & ~3, wide = columns & ~3;
    for (int i = 0; i < full; i += 4)
        for (int j = 0; j < wide; j += 4) {
            const float *p = from + i * ld + j;
            f4 a = *(const f4 *)p, b = *(const f4 *)(p + ld), c = *(const f4 *)(p + 2 * ld),
               e = *(const f4 *)(p + 3 * ld);
            f4 ab0 = __builtin_shuffle(a, b, (i4){ 0, 4, 1, 5 }),
               ab1 = __builtin_shuffle(a, b, (i4){ 2, 6, 3, 7 });
            f4 ce0 = __builtin_shuffle(c, e, (i4){ 0, 4, 1, 5 }),
               ce1 = __builtin_shuffle(c, e, (i4){ 2, 6, 3, 7 });
            float *q = to + (int64_t)j * 32 + i;
            *(f4 *)q = __builtin_shuffle(ab0, ce0, (i4){ 0, 1, 4, 5 });
            *(f4 *)(q + 32) = __builtin_shuffle(ab0, ce0, (i4){ 2, 3, 6, 7 });
            *(f4 *)(q + 64) = __builtin_shuffle(ab1, ce1, (i4){ 0, 1, 4, 5 });
            *(f4 *)(q + 96) = __builtin_shuffle(ab1, ce1, (i4){ 2, 3, 6, 7 });
        }
    for (int i = 0; i < rows; i++)
        for (int j = i < full ? wide : 0; j < columns; j++)
            to[(int64_t)j * 32 + i] = from[i * ld + j];
}

/* Packed: keys [first, first + n) of segment s, transposed, n <= 32; lanes from n on are not
 * written. */
static inline void gather_transposed(const ares_segments *seg, int s, int64_t first, int n,
                                     const float *rows, int64_t ld, int dim, float *to)
{
    for (int i = 0; i < n;) { /* at most two runs: the end of the prefix, the segment's own */
        int64_t at = key_row(seg, s, first + i);
        int run = 1;
        while (i + run < n && key_row(seg, s, first + i + run) == at + run) run++;
        transpose_to_32(rows + at * ld, ld, run, dim, to + i);
        i += run;
    }
}
static inline void gather_rows(const ares_segments *seg, int s, int64_t first, int n,
                               const float *rows, int64_t ld, int dim, float *to)
{
    for (int i = 0; i < n; i++)
        memcpy(to + (int64_t)i * dim, rows + key_row(seg, s, first + i) * ld,
               (size_t)dim * sizeof(float));
}

#endif
