/*
 * The weights of both passes, and the passes. The integer sums are exact in 32 bits, so that the
 * order in which a compiler adds them up makes no difference.
 *
 * Both passes run along contiguous memory: the one over columns adds whole rows, the one over rows
 * takes LANES of them side by side, transposed.
 */
#include "resample.h"

#include <math.h>
#include <string.h>

enum { LANES = 16, PILLOW_BITS = 22, BLOCK = 64 };

#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define FOR_THIS_CPU __attribute__((target_clones("arch=haswell", "default")))
#else
#define FOR_THIS_CPU
#endif

/* The weights of one axis: output i sums weight[i * taps + k] * input[first[i] + k], k < n[i]. */
typedef struct axis {
    int32_t n_out, taps;
    int32_t *first, *n;
    double *weight;
    int32_t *q; /* the same as integers of `bits` fractional bits */
    float *f;
    int bits;
} axis;

/* Keys' cubic convolution with a = -1/2, in the order of operations of Pillow and torch. */
static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

/*
 * The same in f32, with a product and a sum in one rounding each, as torch's build for processors
 * of today computes it.
 */
static float cubic_f32(float x)
{
    const float a = -0.5f;
    x = fabsf(x);
    if (x < 1) return fmaf(fmaf(a + 2, x, -(a + 3)) * x, x, 1);
    if (x < 2) return fmaf(fmaf(fmaf(a, x, -5 * a), x, 8 * a), x, -4 * a);
    return 0;
}

/* torch computes where weights begin in double and single precision by turns; so does this. */
static void axis_floats(axis *a, int32_t n_in)
{
    float scale = (float)n_in / (float)a->n_out, support = scale >= 1 ? 2 * scale : 2,
          inverse = scale >= 1 ? (float)(1.0 / scale) : 1;
    for (int32_t i = 0; i < a->n_out; i++) {
        float centre = (float)(scale * (i + 0.5)), sum = 0, *w = a->f + (int64_t)i * a->taps;
        int32_t lo = ARES_MAX((int32_t)((double)(centre - support) + 0.5), 0),
                hi = ARES_MIN((int32_t)((double)(centre + support) + 0.5), n_in);
        a->first[i] = lo;
        a->n[i] = ARES_MIN(hi - lo, a->taps);
        for (int32_t k = 0; k < a->n[i]; k++) {
            w[k] = cubic_f32((float)(((double)((float)(k + lo) - centre) + 0.5) * inverse));
            sum += w[k];
        }
        for (int32_t k = 0; k < a->n[i]; k++) w[k] /= sum;
    }
}

static void axis_init(axis *a, int32_t n_in, int32_t n_out)
{
    double scale = (double)n_in / n_out, widen = fmax(scale, 1), support = 2 * widen;
    *a = (axis){ .n_out = n_out, .taps = (int32_t)ceil(support) * 2 + 1 };
    size_t outs = (size_t)n_out, all = outs * (size_t)a->taps;
    a->first = ares_calloc(outs, sizeof *a->first);
    a->n = ares_calloc(outs, sizeof *a->n);
    a->weight = ares_calloc(all, sizeof *a->weight);
    a->q = ares_calloc(all, sizeof *a->q);
    a->f = ares_calloc(all, sizeof *a->f);
    for (int32_t i = 0; i < n_out; i++) {
        double centre = (i + 0.5) * scale, sum = 0, *w = a->weight + (int64_t)i * a->taps;
        int32_t lo = ARES_MAX((int32_t)(centre - support + 0.5), 0),
                hi = ARES_MIN((int32_t)(centre + support + 0.5), n_in);
        a->first[i] = lo;
        a->n[i] = hi - lo;
        for (int32_t k = 0; k < hi - lo; k++) sum += w[k] = cubic((k + lo - centre + 0.5) / widen);
        for (int32_t k = 0; k < hi - lo; k++) w[k] /= sum;
    }
}

/* Pillow has one precision; torch takes as many bits as the largest weight leaves of 15. */
static void axis_round(axis *a, media_filter filter)
{
    int64_t all = (int64_t)a->n_out * a->taps;
    double most = 0;
    for (int64_t i = 0; i < all; i++) most = fmax(most, a->weight[i]);
    a->bits = filter == MEDIA_PILLOW ? PILLOW_BITS : 0;
    while (a->bits < PILLOW_BITS && (int32_t)(0.5 + most * (1 << (a->bits + 1))) < 1 << 15)
        a->bits++;
    for (int64_t i = 0; i < all; i++) {
        double v = a->weight[i] * (1 << a->bits);
        a->q[i] = (int32_t)(v < 0 ? v - 0.5 : v + 0.5);
    }
}

static void axis_fini(axis *a)
{
    ares_free(a->first);
    ares_free(a->n);
    ares_free(a->weight);
    ares_free(a->q);
    ares_free(a->f);
}

static inline uint8_t clamp(int32_t x)
{
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

/* out[x] = sum over k of q[k] * in[k * stride + x], of `bytes` bytes side by side */
FOR_THIS_CPU
static void sum_rows(const uint8_t *in, int64_t stride, const int32_t *q, int32_t n, int bits,
                     uint8_t *out, int64_t bytes)
{
    for (int64_t x = 0; x < bytes; x += BLOCK) {
        int32_t acc[BLOCK];
        const uint8_t *at = in + x;
        if (bytes - x >= BLOCK) {
            for (int j = 0; j < BLOCK; j++) acc[j] = 1 << (bits - 1);
            for (int32_t k = 0; k < n; k++, at += stride)
                for (int j = 0; j < BLOCK; j++) acc[j] += q[k] * at[j];
            for (int j = 0; j < BLOCK; j++) out[x + j] = clamp(acc[j] >> bits);
        } else
            for (int64_t j = x; j < bytes; j++) {
                int32_t sum = 1 << (bits - 1);
                for (int32_t k = 0; k < n; k++) sum += q[k] * in[k * stride + j];
                out[j] = clamp(sum >> bits);
            }
    }
}

/* LANES rows of pixels side by side: in [pixels][3][LANES], out [n_out][3][LANES] */
FOR_THIS_CPU
static void sum_pixels(const uint8_t *in, const axis *a, uint8_t *out)
{
    for (int32_t i = 0; i < a->n_out; i++, out += 3 * LANES) {
        const int32_t *q = a->q + (int64_t)i * a->taps;
        const uint8_t *at = in + (int64_t)a->first[i] * 3 * LANES;
        int32_t acc[3 * LANES];
        for (int j = 0; j < 3 * LANES; j++) acc[j] = 1 << (a->bits - 1);
        for (int32_t k = 0; k < a->n[i]; k++, at += 3 * LANES)
            for (int j = 0; j < 3 * LANES; j++) acc[j] += q[k] * at[j];
        for (int j = 0; j < 3 * LANES; j++) out[j] = clamp(acc[j] >> a->bits);
    }
}

/* out[c][r] = in[r][c]; rows beyond `rows` repeat the last, so that every lane holds numbers */
static void transpose_in(const uint8_t *in, int32_t rows, int64_t bytes, uint8_t *out)
{
    for (int64_t c = 0; c < bytes; c++)
        for (int r = 0; r < LANES; r++)
            out[c * LANES + r] = in[(int64_t)ARES_MIN(r, rows - 1) * bytes + c];
}
static void transpose_out(const uint8_t *in, int32_t rows, int64_t bytes, uint8_t *out)
{
    for (int32_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < bytes; c++) out[r * bytes + c] = in[c * LANES + r];
}

static void pass_rows(const axis *a, const uint8_t *in, media_size from, uint8_t *out)
{
    int64_t in_bytes = (int64_t)from.w * 3, out_bytes = (int64_t)a->n_out * 3;
    uint8_t *lanes = ares_malloc((size_t)(in_bytes + out_bytes) * LANES),
            *summed = lanes + in_bytes * LANES;
    for (int32_t y = 0; y < from.h; y += LANES) {
        int32_t rows = ARES_MIN(LANES, from.h - y);
        transpose_in(in + y * in_bytes, rows, in_bytes, lanes);
        sum_pixels(lanes, a, summed);
        transpose_out(summed, rows, out_bytes, out + y * out_bytes);
    }
    ares_free(lanes);
}

static void pass_columns(const axis *a, const uint8_t *in, int32_t w, uint8_t *out)
{
    int64_t bytes = (int64_t)w * 3;
    for (int32_t i = 0; i < a->n_out; i++)
        sum_rows(in + a->first[i] * bytes, bytes, a->q + (int64_t)i * a->taps, a->n[i], a->bits,
                 out + i * bytes, bytes);
}

static void resample_bytes(const axis *across, const axis *down, const uint8_t *in, media_size from,
                           uint8_t *out, media_size to)
{
    bool rows = from.w != to.w, columns = from.h != to.h;
    if (rows && columns) {
        uint8_t *between = ares_malloc((size_t)from.h * (size_t)to.w * 3);
        pass_rows(across, in, from, between);
        pass_columns(down, between, to.w, out);
        ares_free(between);
    } else if (rows) pass_rows(across, in, from, out);
    else if (columns) pass_columns(down, in, to.w, out);
    else memcpy(out, in, (size_t)from.w * (size_t)from.h * 3);
}

/* out[x] += w * in[x], in one rounding as torch's build computes it */
FOR_THIS_CPU
static void add_row(const float *in, float w, float *out, int64_t n)
{
    for (int64_t x = 0; x < n; x++) out[x] = fmaf(in[x], w, out[x]);
}

FOR_THIS_CPU
static void sum_row_floats(const uint8_t *in, const axis *a, float *out)
{
    for (int32_t i = 0; i < a->n_out; i++, out += 3) {
        const float *w = a->f + (int64_t)i * a->taps;
        const uint8_t *pixel = in + (int64_t)a->first[i] * 3;
        out[0] = out[1] = out[2] = 0;
        for (int32_t k = 0; k < a->n[i]; k++, pixel += 3)
            for (int c = 0; c < 3; c++) out[c] = fmaf((float)pixel[c], w[k], out[c]);
    }
}

/* Videos alone take this way, and of them those that EasyR1 resizes. */
static void resample_floats(const axis *across, const axis *down, const uint8_t *in,
                            media_size from, uint8_t *out, media_size to)
{
    int64_t row = (int64_t)to.w * 3;
    float *between = ares_malloc((size_t)from.h * (size_t)row * sizeof *between),
          *sum = ares_malloc((size_t)row * sizeof *sum);
    for (int64_t y = 0; y < from.h; y++)
        if (from.w != to.w) sum_row_floats(in + y * from.w * 3, across, between + y * row);
        else
            for (int64_t x = 0; x < row; x++) between[y * row + x] = in[y * row + x];
    for (int64_t i = 0; i < to.h; i++) {
        memset(sum, 0, (size_t)row * sizeof *sum);
        if (from.h == to.h) memcpy(sum, between + i * row, (size_t)row * sizeof *sum);
        for (int32_t k = 0; from.h != to.h && k < down->n[i]; k++)
            add_row(between + (down->first[i] + k) * row, down->f[i * down->taps + k], sum, row);
        for (int64_t x = 0; x < row; x++)
            out[i * row + x] = (uint8_t)rintf(fminf(fmaxf(sum[x], 0), 255));
    }
    ares_free(sum);
    ares_free(between);
}

void media_resample(media_filter filter, const uint8_t *in, media_size from, uint8_t *out,
                    media_size to)
{
    axis across, down;
    axis_init(&across, from.w, to.w);
    axis_init(&down, from.h, to.h);
    if (filter == MEDIA_TORCH_F32) {
        axis_floats(&across, from.w);
        axis_floats(&down, from.h);
        resample_floats(&across, &down, in, from, out, to);
    } else {
        axis_round(&across, filter);
        axis_round(&down, filter);
        resample_bytes(&across, &down, in, from, out, to);
    }
    axis_fini(&across);
    axis_fini(&down);
}
