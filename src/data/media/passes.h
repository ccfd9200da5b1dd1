/* The two passes of a resize over bytes, for the processor at hand (resample.c, passes_avx2.c). */
#ifndef ARES_MEDIA_PASSES_H
#define ARES_MEDIA_PASSES_H

#include "internal.h"

enum { MEDIA_SPLIT = 11 };

/* The weights of one side: output i sums weight[i * taps + k] * input[first[i] + k], k < n[i]. */
typedef struct axis {
    int32_t n_out, taps; /* taps: a multiple of 4; weights from n[i] on are 0 */
    int32_t *first, *n;
    double *weight;
    int32_t *q; /* the same as integers of `bits` fractional bits */
    float *f;
    int bits;
    /*
     * q for multiply-and-add: weights 2 j and 2 j + 1 as halves of 32 bits. wide: some of q need
     * more than 16 bits, and all are high 2^MEDIA_SPLIT + low.
     */
    bool wide;
    int32_t *low, *high; /* [n_out][taps / 2] */
    /* of passes_avx512.c, for its pass over rows; NULL: it has none for this axis */
    int32_t *blocks, pairs;
    bool two;
} axis;

/* in [h][w][3] to out [h][a->n_out][3] */
typedef void media_rows_fn(const axis *a, const uint8_t *in, media_size from, uint8_t *out);
/* Row i of the output, of rows in [a->n[i]][bytes], the first of which is a->first[i]. */
typedef void media_column_fn(const axis *a, int32_t i, const uint8_t *in, int64_t bytes,
                             uint8_t *out);

media_rows_fn media_rows_plain;
media_column_fn media_column_plain;
#ifdef __x86_64__
media_rows_fn media_rows_avx2, media_rows_avx512;
media_column_fn media_column_avx2, media_column_avx512;
void media_blocks_init(axis *a); /* of weights that are rounded */
#endif
#endif
