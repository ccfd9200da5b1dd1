/*
 * The weights of both passes, and the passes in plain C. The integer sums are exact in 32 bits, so
 * that the order in which they are added up makes no difference, and the passes for AVX2 give the
 * same bytes.
 *
 * Both passes run along contiguous memory: the one over columns adds whole rows, the one over rows
 * takes LANES of them side by side, transposed.
 */
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "passes.h"

enum { LANES = 16, PILLOW_BITS = 22, BLOCK = 64, CHUNK = 64 };

#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define FOR_THIS_CPU __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define FOR_THIS_CPU
#endif

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

/* The outputs' weights in double precision, each over its own few inputs; their sum is 1. */
static void axis_init(axis *a, int32_t n_in, int32_t n_out)
{
    double scale = (double)n_in / n_out, widen = fmax(scale, 1), support = 2 * widen;
    *a = (axis){ .n_out = n_out, .taps = ((int32_t)ceil(support) * 2 + 4) / 4 * 4 };
    size_t outs = (size_t)n_out, all = outs * (size_t)a->taps;
    a->first = ares_calloc(outs, sizeof *a->first);
    a->n = ares_calloc(outs, sizeof *a->n);
    a->weight = ares_calloc(all, sizeof *a->weight);
    a->q = ares_calloc(all, sizeof *a->q);
    a->f = ares_calloc(all, sizeof *a->f);
    a->low = ares_calloc(all / 2, sizeof *a->low);
    a->high = ares_calloc(all / 2, sizeof *a->high);
    for (int32_t i = 0; i < n_out; i++) {
        double centre = (i + 0.5) * scale, sum = 0, *w = a->weight + (int64_t)i * a->taps;
        int32_t lo = ARES_MAX((int32_t)(centre - support + 0.5), 0),
                hi = ARES_MIN((int32_t)(centre + support + 0.5), n_in);
        a->first[i] = lo;
        a->n[i] = hi - lo;
        /* a picture that shrinks is smoothed: the curve is as many times as wide */
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
    /* torch: the largest weight must still fit int16 */
    while (a->bits < PILLOW_BITS && (int32_t)(0.5 + most * (1 << (a->bits + 1))) < 1 << 15)
        a->bits++;
    for (int64_t i = 0; i < all; i++) {
        double v = a->weight[i] * (1 << a->bits);
        a->q[i] = (int32_t)(v < 0 ? v - 0.5 : v + 0.5);
        a->wide |= a->q[i] != (int16_t)a->q[i];
    }
    for (int64_t i = 0; i < all; i += 2) {
        /* pairs of weights side by side, as multiply-and-add of 16-bit pairs takes them */
        uint32_t one = (uint32_t)a->q[i], two = (uint32_t)a->q[i + 1],
                 mask = a->wide ? (1 << MEDIA_SPLIT) - 1 : 0xffff;
        a->low[i / 2] = (int32_t)((one & mask) | (two & mask) << 16);
        one = (uint32_t)(a->q[i] >> MEDIA_SPLIT);
        two = (uint32_t)(a->q[i + 1] >> MEDIA_SPLIT);
        a->high[i / 2] = (int32_t)((one & 0xffff) | two << 16);
    }
}

static void axis_fini(axis *a)
{
    ares_free(a->first);
    ares_free(a->n);
    ares_free(a->weight);
    ares_free(a->q);
    ares_free(a->f);
    ares_free(a->low);
    ares_free(a->high);
    ares_free(a->blocks);
}

static inline uint8_t clamp(int32_t x)
{
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

void media_column_plain(const axis *a, int32_t i, const uint8_t *in, int64_t bytes, uint8_t *out)
{
    const int32_t *q = a->q + (int64_t)i * a->taps, n = a->n[i], half = 1 << (a->bits - 1);
    /* in blocks, so that the sums stay in registers or the first cache */
    int32_t sum[BLOCK];
    for (int64_t x = 0; x < bytes; x += BLOCK) {
        int wide = (int)ARES_MIN(bytes - x, (int64_t)BLOCK);
        const uint8_t *at = in + x;
        for (int j = 0; j < wide; j++) sum[j] = half;
        for (int32_t k = 0; k < n; k++, at += bytes)
            for (int j = 0; j < wide; j++) sum[j] += q[k] * at[j];
        for (int j = 0; j < wide; j++) out[x + j] = clamp(sum[j] >> a->bits);
    }
}

void media_rows_plain(const axis *a, const uint8_t *in, media_size from, uint8_t *out)
{
    int64_t in_bytes = (int64_t)from.w * 3, out_bytes = (int64_t)a->n_out * 3;
    uint8_t *lanes = ares_malloc((size_t)(in_bytes + out_bytes) * LANES),
            *summed = lanes + in_bytes * LANES;
    for (int32_t y = 0; y < from.h; y += LANES) {
        int32_t rows = ARES_MIN(LANES, from.h - y);
        /* rows beyond the last repeat it, so that every lane holds numbers */
        for (int64_t c = 0; c < in_bytes; c++)
            for (int r = 0; r < LANES; r++)
                lanes[c * LANES + r] = in[(y + ARES_MIN(r, rows - 1)) * in_bytes + c];
        /* LANES rows side by side: lanes [pixels][3][LANES], summed [n_out][3][LANES] */
        uint8_t *to = summed;
        for (int32_t i = 0; i < a->n_out; i++, to += 3 * LANES) {
            const int32_t *q = a->q + (int64_t)i * a->taps;
            const uint8_t *at = lanes + (int64_t)a->first[i] * 3 * LANES;
            int32_t acc[3 * LANES];
            for (int j = 0; j < 3 * LANES; j++) acc[j] = 1 << (a->bits - 1);
            for (int32_t k = 0; k < a->n[i]; k++, at += 3 * LANES)
                for (int j = 0; j < 3 * LANES; j++) acc[j] += q[k] * at[j];
            for (int j = 0; j < 3 * LANES; j++) to[j] = clamp(acc[j] >> a->bits);
        }
        for (int32_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < out_bytes; c++)
                out[(y + r) * out_bytes + c] = summed[c * LANES + r];
    }
    ares_free(lanes);
}

/* The passes for this processor, or for a lesser one that ARES_ISA names, as for the kernels. */
typedef struct passes {
    media_rows_fn *rows;
    media_column_fn *column;
    void (*init)(axis *across); /* NULL: nothing to do */
} passes;

static passes passes_of(void)
{
#ifdef __x86_64__
    const char *isa = getenv("ARES_ISA");
    bool plain = isa && strcmp(isa, "plain") == 0, avx2 = isa && strcmp(isa, "avx2") == 0;
    if (!plain && !avx2 && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512vnni"))
        return (passes){ media_rows_avx512, media_column_avx512, media_blocks_init };
    if (!plain && __builtin_cpu_supports("avx2"))
        return (passes){ media_rows_avx2, media_column_avx2, NULL };
#endif
    /* all give the same bytes */
    return (passes){ media_rows_plain, media_column_plain, NULL };
}

/* Videos alone take this way, and of them those that EasyR1 resizes. FMAs, as torch's build has. */
FOR_THIS_CPU
static void resample_floats(const axis *across, const axis *down, const uint8_t *in,
                            media_size from, uint8_t *out, media_size to)
{
    int64_t row = (int64_t)to.w * 3;
    float *between = ares_malloc((size_t)from.h * (size_t)row * sizeof *between),
          *sum = ares_malloc((size_t)row * sizeof *sum);
    for (int64_t y = 0; y < from.h; y++) {
        const uint8_t *line = in + y * from.w * 3;
        float *x = between + y * row;
        for (int64_t i = 0; from.w == to.w && i < row; i++) x[i] = line[i];
        for (int32_t i = 0; from.w != to.w && i < across->n_out; i++, x += 3) {
            const float *w = across->f + (int64_t)i * across->taps;
            const uint8_t *pixel = line + (int64_t)across->first[i] * 3;
            x[0] = x[1] = x[2] = 0;
            for (int32_t k = 0; k < across->n[i]; k++, pixel += 3)
                for (int c = 0; c < 3; c++) x[c] = fmaf((float)pixel[c], w[k], x[c]);
        }
    }
    for (int64_t i = 0; i < to.h; i++) {
        memset(sum, 0, (size_t)row * sizeof *sum);
        if (from.h == to.h) memcpy(sum, between + i * row, (size_t)row * sizeof *sum);
        for (int32_t k = 0; from.h != to.h && k < down->n[i]; k++) {
            const float *line = between + (down->first[i] + k) * row,
                        w = down->f[i * down->taps + k];
            for (int64_t x = 0; x < row; x++) sum[x] = fmaf(line[x], w, sum[x]);
        }
        for (int64_t x = 0; x < row; x++)
            /* to nearest even, clamped: what torch does before it stores bytes */
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
        const passes p = passes_of();
        int64_t row = (int64_t)to.w * 3;
        /* a side that keeps its length has no pass: weights of 1 would give the same bytes */
        if (p.init && from.w != to.w) p.init(&across);
        if (from.w != to.w && from.h != to.h) {
            /*
             * Both passes, a few rows at a time: as many as an output needs and CHUNK more lie
             * between them, so that they stay in a cache.
             */
            int64_t in_row = (int64_t)from.w * 3, out_row = (int64_t)across.n_out * 3;
            int32_t room = ARES_MIN(from.h, down.taps + CHUNK), start = 0, held = 0;
            uint8_t *between = ares_malloc((size_t)(room * out_row));
            for (int32_t i = 0; i < down.n_out; i++) {
                int32_t first = down.first[i];
                if (first + down.n[i] >
                    start + held) { /* keep what is still needed, and make more */
                    held -= first - start;
                    ARES_ASSERT(held >= 0 && down.n[i] <= room);
                    memmove(between, between + (first - start) * out_row, (size_t)(held * out_row));
                    start = first;
                    int32_t more = ARES_MIN(room - held, from.h - start - held);
                    p.rows(&across, in + (start + held) * in_row, (media_size){ from.w, more },
                           between + held * out_row);
                    held += more;
                }
                p.column(&down, i, between + (first - start) * out_row, out_row, out + i * out_row);
            }
            ares_free(between);
        } else if (from.w != to.w) p.rows(&across, in, from, out);
        else if (from.h != to.h)
            for (int32_t i = 0; i < to.h; i++)
                p.column(&down, i, in + down.first[i] * row, row, out + i * row);
        else memcpy(out, in, (size_t)from.w * (size_t)from.h * 3);
    }
    axis_fini(&across);
    axis_fini(&down);
}
