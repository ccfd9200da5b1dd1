/*
 * Private to kernels/cpu: the small product that attention uses, and where the keys of a segment
 * are.
 */
#ifndef ARES_KERNELS_CPU_ATTENTION_H
#define ARES_KERNELS_CPU_ATTENTION_H

#include "host.h"
#include "isa.h"
#include "vec.h"

/*
 * C[r][j] (+)= sum over t of A[r][t] B[t][j]: one chain of FMAs in the order of t per element,
 * lanes over j. It is attention's product: small, of any width, and it never reads past the end of
 * a row, because the last value of a cache may be the end of its memory; product (linear.h) needs
 * whole panels. Both strides of A are free; rows of B are contiguous. A tile is the block of rows x
 * lanes that registers hold: its size differs between instruction sets and at the edges, the chain
 * does not.
 */

#ifdef ARES_ISA_AVX512
enum { TILE_ROWS = 12, TILE_VECTORS = 2 }; /* 24 sums, two of B, one of A: 27 of 32 registers */
#else
enum { TILE_ROWS = 6, TILE_VECTORS = 1 }; /* 12 + 2 + 1 of 16 (a v16 is two registers) */
#endif

typedef struct tile_args {
    float *c;
    int64_t ldc;
    const float *a;
    int64_t row, step; /* A[r][t] = a[r * row + t * step] */
    const float *b;
    int64_t ldb;
    int steps;
    bool fresh; /* start at zero; otherwise the chain continues from C */
} tile_args;

V16_INLINE void tile_kernel(const tile_args *p, int rows, int vectors)
{
    v16 sum[12][2];
    float *c = p->c;
    int64_t ldc = p->ldc;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            sum[r][j] = p->fresh ? v16_zero() : v16_load(c + r * ldc + 16 * j);
    const float *a0 = p->a, *a1 = a0 + 3 * p->row, *a2 = a1 + 3 * p->row, *a3 = a2 + 3 * p->row,
                *b = p->b;
    int64_t row = p->row, step = p->step, ldb = p->ldb;
    for (int t = p->steps; t > 0; t--) {
        v16 bv[2];
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) bv[j] = v16_load(b + 16 * j);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            v16 av = v16_set1((r < 3 ? a0 : r < 6 ? a1 : r < 9 ? a2 : a3)[r % 3 * row]);
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) sum[r][j] = v16_fma(av, bv[j], sum[r][j]);
        }
        a0 += step, a1 += step, a2 += step, a3 += step, b += ldb;
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) v16_store(c + r * ldc + 16 * j, sum[r][j]);
}

/* clang-format off */
#define TILE_CASE(n, vectors) case n: tile_kernel(p, n, vectors); break;
#ifdef ARES_ISA_AVX512
#define TILE_MORE_CASES(vectors) \
    TILE_CASE(7, vectors) TILE_CASE(8, vectors) TILE_CASE(9, vectors) \
    TILE_CASE(10, vectors) TILE_CASE(11, vectors) TILE_CASE(12, vectors)
#else
#define TILE_MORE_CASES(vectors)
#endif
#define TILE_CASES(vectors) \
    switch (rows) { \
        TILE_CASE(1, vectors) TILE_CASE(2, vectors) TILE_CASE(3, vectors) \
        TILE_CASE(4, vectors) TILE_CASE(5, vectors) TILE_CASE(6, vectors) TILE_MORE_CASES(vectors) \
    }
/* clang-format on */

static inline TILE_UNWATCHED void watch_tile(const tile_args *p, int rows, int lanes)
{
    if (p->row == 1) watch(false, p->a, p->steps, p->step, rows, 4);
    else
        for (int r = 0; r < rows; r++) watch(false, p->a + r * p->row, p->steps, p->step, 1, 4);
    watch(false, p->b, p->steps, p->ldb, lanes, 4);
    watch(true, p->c, rows, p->ldc, lanes, 4);
}

/* Not inlined: at every product, they would compile for minutes under the sanitizers. */
static __attribute__((noinline)) TILE_UNWATCHED void tile_16(const tile_args *p, int rows)
{
    watch_tile(p, rows, 16);
    TILE_CASES(1)
}
#ifdef ARES_ISA_AVX512
static __attribute__((noinline)) TILE_UNWATCHED void tile_32(const tile_args *p, int rows)
{
    watch_tile(p, rows, 32);
    TILE_CASES(2)
}
#endif

/* Fewer than 16 lanes, row by row: rare (a head_dim or a width that 16 does not divide). */
static inline void tile_first(const tile_args *p, int rows, int lanes)
{
    for (int r = 0; r < rows; r++) {
        float *c = p->c + r * p->ldc;
        const float *a = p->a + r * p->row, *b = p->b;
        v16 sum = p->fresh ? v16_zero() : v16_load_first(c, lanes);
        for (int t = 0; t < p->steps; t++, a += p->step, b += p->ldb)
            sum = v16_fma(v16_set1(*a), v16_load_first(b, lanes), sum);
        v16_store_first(c, sum, lanes);
    }
}

/* rows x lanes of C, any numbers of both. With no steps C stays, or is zeroed when fresh. */
static __attribute__((noinline, unused)) void tile_product(tile_args p, int rows, int lanes)
{
    const float *a = p.a;
    float *c = p.c;
    for (int j = 0; j < lanes;) {
        int width = lanes - j >= 16 * TILE_VECTORS ? 16 * TILE_VECTORS
                    : lanes - j >= 16              ? 16
                                                   : lanes - j;
        for (int r = 0; r < rows;) {
            /*
             * Tiles of nearly equal height: 13 rows are 7 + 6, not 12 + 1, because a tile of one
             * row has one chain and waits for it at every step.
             */
            int left = rows - r, tiles = (left + TILE_ROWS - 1) / TILE_ROWS,
                n = (left + tiles - 1) / tiles;
            p.a = a + r * p.row;
            p.c = c + r * p.ldc + j;
#ifdef ARES_ISA_AVX512
            if (width == 32) tile_32(&p, n);
            else
#endif
                if (width == 16)
                tile_16(&p, n);
            else tile_first(&p, n, width);
            r += n;
        }
        p.b += width;
        j += width;
    }
}

/* What attention's forward and backward share: where the keys of a segment lie. */

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
