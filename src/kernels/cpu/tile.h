/*
 * C[r][j] (+)= sum over t of A[r][t] B[t][j]: one chain of FMAs in the order of t per element,
 * lanes over j. It is attention's product: small, of any width, and it never reads past the end of
 * a row, because the last value of a cache may be the end of its memory; product (linear.h) needs
 * whole panels. Both strides of A are free; rows of B are contiguous. A tile is the block of rows x
 * lanes that registers hold: its size differs between instruction sets and at the edges, the chain
 * does not.
 */
#ifndef ARES_KERNELS_CPU_TILE_H
#define ARES_KERNELS_CPU_TILE_H

#include "vec.h"
#include "watch.h"

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

#endif
