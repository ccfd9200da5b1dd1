/*
 * nvcuda::wmma for bf16 tiles of 16 x 16 x 16 with f32 sums. Each thread holds all of a factor and
 * its own eighth of two rows of a sum. On a card the order of a sum is the hardware's: with foreign
 * rounding, here, the 16 products are added backwards, then to what was there.
 */
#ifndef ARES_EMULATE_MMA_H
#define ARES_EMULATE_MMA_H

#include <cuda_bf16.h>

namespace nvcuda
{
namespace wmma
{
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <typename Use, int M, int N, int K, typename T, typename Layout = void> struct fragment;
template <typename Use, typename Layout> struct fragment<Use, 16, 16, 16, __nv_bfloat16, Layout> {
    float x[16][16];
};
template <> struct fragment<accumulator, 16, 16, 16, float, void> {
    float own[8]; /* of row lane / 2, from column 8 (lane % 2) on */
};

static inline void emulate_aligned(const void *p, unsigned ld, size_t bytes)
{
    if ((uintptr_t)p % 32 == 0 && ld * bytes % 16 == 0) return;
    fprintf(stderr, "emulate: wmma: a tile at %p, rows %u apart, is not aligned\n", p, ld);
    abort();
}
template <typename Use, typename Layout>
static inline void load_matrix_sync(fragment<Use, 16, 16, 16, __nv_bfloat16, Layout> &f,
                                    const __nv_bfloat16 *p, unsigned ld)
{
    emulate_aligned(p, ld, sizeof *p);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            f.x[i][j] = (float)p[__is_same(Layout, row_major) ? i * (int)ld + j : j * (int)ld + i];
}
static inline void fill_fragment(fragment<accumulator, 16, 16, 16, float> &f, float v)
{
    for (int i = 0; i < 8; i++) f.own[i] = v;
}
template <typename A, typename B>
static inline void mma_sync(fragment<accumulator, 16, 16, 16, float> &d,
                            const fragment<matrix_a, 16, 16, 16, __nv_bfloat16, A> &a,
                            const fragment<matrix_b, 16, 16, 16, __nv_bfloat16, B> &b,
                            const fragment<accumulator, 16, 16, 16, float> &c)
{
    int lane = (int)threadIdx.x % 32;
    for (int i = 0; i < 8; i++) {
        float sum = emulate_foreign ? 0.0f : c.own[i];
        for (int k = 0; k < 16; k++) {
            int at = emulate_foreign ? 15 - k : k;
            sum = fmaf(a.x[lane / 2][at], b.x[at][lane % 2 * 8 + i], sum);
        }
        d.own[i] = emulate_foreign ? c.own[i] + sum : sum;
    }
}
static inline void store_matrix_sync(float *p, const fragment<accumulator, 16, 16, 16, float> &f,
                                     unsigned ld, layout_t)
{
    int lane = (int)threadIdx.x % 32;
    emulate_aligned(p, ld, sizeof *p);
    for (int i = 0; i < 8; i++) p[lane / 2 * (int)ld + lane % 2 * 8 + i] = f.own[i];
}
} // namespace wmma
} // namespace nvcuda

#endif
