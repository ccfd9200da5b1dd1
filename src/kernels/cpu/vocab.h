/*
 * The vocabulary in chunks of 512: logits of a chunk, its softmax statistics, and their merge in
 * chunk order. Head and sampler both use these functions, so their log-probs agree in every bit.
 */
#ifndef ARES_KERNELS_CPU_VOCAB_H
#define ARES_KERNELS_CPU_VOCAB_H

#include "isa.h"

#include <math.h>

enum { VOCAB_CHUNK = ARES_VOCAB_CHUNK };

/* Of the vocabulary: the log-prob of a logit z is (z - max) - log_sum. */
typedef struct vocab_total {
    float max, log_sum, entropy;
} vocab_total;

static inline int64_t vocab_chunks(int64_t vocab)
{
    return (vocab + VOCAB_CHUNK - 1) / VOCAB_CHUNK;
}
static inline int vocab_width(int64_t vocab, int64_t chunk)
{
    return (int)ARES_MIN(VOCAB_CHUNK, vocab - chunk * VOCAB_CHUNK);
}

/* Whether the CPU computes with the weight: in f32 arithmetic, or in pairs in bf16. */
static inline bool vocab_serves(const ares_matrix *w)
{
    return w->layout == ARES_PANEL32_PAIRS ? w->dtype == ARES_BF16
                                           : w->layout == ARES_PANEL32 && w->dtype != ARES_F16;
}

/* A task's memory: logits of its rows, those of a reference, and x packed; zr and packed or NULL.
 */
typedef struct vocab_memory {
    float *z, *zr, *packed;
} vocab_memory;
static inline vocab_memory vocab_memory_of(ares_device *d, int worker, int64_t rows,
                                           const ares_matrix *w, const ares_matrix *ref_w)
{
    bool pairs =
        (w && w->layout == ARES_PANEL32_PAIRS) || (ref_w && ref_w->layout == ARES_PANEL32_PAIRS);
    float *z = kernels_scratch(d, worker, scratch_vocab_task(rows, ref_w, pairs)),
          *end = z + rows * VOCAB_CHUNK * (ref_w ? 2 : 1);
    return (vocab_memory){ z, ref_w ? z + rows * VOCAB_CHUNK : NULL, pairs ? end : NULL };
}

/*
 * z[r][..] = the logits x Wt of one chunk, before any temperature. packed: of the task's memory;
 * adapter: NULL: none; row: of its u, the first of these rows
 */
static inline void vocab_logits(const ares_matrix *w, int64_t vocab, int64_t chunk, const float *x,
                                int64_t ldx, int64_t rows, float *z, int64_t ldz, float *packed,
                                const ares_head_adapter *adapter, int64_t row)
{
    bool pairs = w->layout == ARES_PANEL32_PAIRS;
    int64_t step = rows <= 14 ? w->k : VOCAB_K, bytes = (int64_t)ares_dtype_bytes(w->dtype),
            inputs = ares_layout_inputs(w->layout, w->k);
    if (pairs && w->k > 4 * VOCAB_K) step = VOCAB_K; /* as much as packed holds */
    product_args p = { .rows = rows,
                       .cols = vocab_width(vocab, chunk),
                       .x_row = ldx,
                       .x_k = 1,
                       .w_k = 32,
                       .w_panel = inputs * (pairs ? 16 : 32), /* in words, or numbers */
                       .bf16 = w->dtype == ARES_BF16 && !pairs,
                       .pairs = pairs,
                       .from_row = ldz,
                       .from_panel = 32,
                       .y = z,
                       .y_row = ldz,
                       .y_panel = 32 };
    for (int64_t k = 0; k < w->k; k += step) {
        p.k = ARES_MIN(step, w->k - k);
        p.x = x + k;
        if (pairs) {
            ARES_K(pack_rows)(p.x, ldx, rows, p.k, packed);
            p.x = packed;
            p.x_row = packed_words(p.k);
            p.k = (p.k + 1) / 2;
        }
        p.w = (const char *)w->data + (chunk * VOCAB_CHUNK * inputs + k * 32) * bytes;
        p.from = k ? z : NULL;
        ARES_K(product)(&p);
    }
    if (!adapter) return;
    const ares_matrix *b = adapter->b;
    p.k = p.x_row = b->k;
    p.x = (const float *)adapter->u + row * b->k;
    p.w = (const char *)b->data + chunk * VOCAB_CHUNK * b->k * (int64_t)ares_dtype_bytes(b->dtype);
    p.w_panel = (int64_t)b->k * 32;
    p.bf16 = b->dtype == ARES_BF16;
    p.pairs = false;
    p.from = NULL;
    p.residual = z;
    p.residual_row = ldz;
    ARES_K(product)(&p);
}

static inline v16 vocab_load(const float *z, int n, v16 scale) /* lanes from n on are -infinity */
{
    if (n >= 16) return v16_mul(v16_load(z), scale);
    return v16_select(v16m_first(n), v16_mul(v16_load_first(z, n), scale), v16_set1(-INFINITY));
}

/*
 * Not inlined, like vocab_merge: many inlined exponentials are slow to compile, above all under the
 * sanitizers.
 */
static __attribute__((noinline, unused)) vocab_part vocab_part_of(const float *z, int n,
                                                                  float inv_temperature)
{
    v16 scale = v16_set1(inv_temperature), a = v16_set1(-INFINITY), b = a, sum = v16_zero(),
        sum_z = v16_zero();
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        a = v16_max(a, v16_mul(v16_load(z + i), scale));
        b = v16_max(b, v16_mul(v16_load(z + i + 16), scale));
    }
    for (; i < n; i += 16) a = v16_max(a, vocab_load(z + i, n - i, scale));
    float max = v16_max_lane(v16_max(a, b));
    v16 shift = v16_set1(max == -INFINITY ? 0.0f : max),
        least = v16_set1(-128.0f); /* where e is 0, and 0 * least too */
    for (i = 0; i + 16 <= n; i += 16) {
        v16 d = v16_max(least, v16_sub(v16_mul(v16_load(z + i), scale), shift)), e = v16_exp(d);
        sum = v16_add(sum, e);
        sum_z = v16_fma(e, d, sum_z);
    }
    if (i < n) {
        v16 d = v16_max(least, v16_sub(vocab_load(z + i, n - i, scale), shift)), e = v16_exp(d);
        sum = v16_add(sum, e);
        sum_z = v16_fma(e, d, sum_z);
    }
    return (vocab_part){ max, v16_sum(sum), v16_sum(sum_z) };
}

static __attribute__((noinline, unused)) vocab_total vocab_merge(const vocab_part *part, int64_t n)
{
    float max = -INFINITY, sum = 0.0f, sum_z = 0.0f;
    for (int64_t c = 0; c < n; c++)
        if (part[c].max > max) max = part[c].max;
    for (int64_t c = 0; c < n; c += 16) {
        float d[16], e[16];
        int width = (int)ARES_MIN(16, n - c);
        for (int i = 0; i < 16; i++) {
            d[i] = i < width ? part[c + i].max - max : 0.0f;
            if (!(d[i] > -128.0f)) d[i] = -128.0f; /* also for a chunk of -infinities */
        }
        v16_store(e, v16_exp(v16_load(d)));
        for (int i = 0; i < width; i++) {
            const vocab_part *p = &part[c + i];
            sum = fmaf(e[i], p->sum, sum);
            sum_z = fmaf(e[i], fmaf(d[i], p->sum, p->sum_z), sum_z);
        }
    }
    float log_sum = v16_max_lane(v16_log(v16_set1(sum)));
    return (vocab_total){ max, log_sum, log_sum - sum_z / sum };
}

static inline float vocab_log_prob(const vocab_total *t, float z)
{
    return (z - t->max) - t->log_sum;
}

/* Rows per task when rows x chunks are divided among so many threads. */
static inline int64_t vocab_rows_per_task(int64_t rows, int64_t chunks, int threads)
{
    int64_t tiles = (rows + VOCAB_ROWS - 1) / VOCAB_ROWS, wanted = threads > 1 ? 4 * threads : 1;
    while (tiles * chunks < wanted && rows / tiles > 16) tiles++;
    return (rows + tiles - 1) / tiles;
}
static inline double vocab_work_us(const ares_matrix *w, int64_t rows, int64_t vocab)
{
    double bytes = (double)vocab * w->k * (double)ares_dtype_bytes(w->dtype);
    return ARES_MAX(2.0 * (double)rows * (double)vocab * w->k / 2e5, bytes / 3e4);
}

#endif
