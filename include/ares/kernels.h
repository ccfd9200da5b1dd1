/*
 * kernels: the arithmetic of a transformer on raw pointers, one function table per device. No
 * libtorch here.
 *
 * Every function has one order of summation for each output element, whatever the batch, the tile,
 * the thread count or the instruction set: parallel over outputs, never over the summed index. A
 * sum is either one chain of fused multiply-adds in index order ("chain"), or 16 lanes (element i
 * goes to lane i mod 16, each lane a chain) closed by the fixed tree ((0+8)+(4+12))+... ("lanes").
 * Sums over tokens continue the value already in the gradient, so that cutting a batch into
 * consecutive micro-batches changes no bit. exp, log and their kin are our own.
 *
 * All floats are f32 unless said; weights may be stored bf16. Row-major, ld = distance of rows in
 * elements. Functions return nothing: a CPU kernel cannot fail, and a device reports its first
 * failure at sync.
 */
#ifndef ARES_KERNELS_H
#define ARES_KERNELS_H

#include "ares/core.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { ARES_F32, ARES_BF16, ARES_F16 } ares_dtype;
typedef enum {
    ARES_ROWS, /* [n][k], as in files; what CUDA and libtorch read */
    /* [ceil(n/32)][k][32]: panels of 32 outputs; lanes beyond n are zero and stay zero. CPU */
    ARES_PANEL32
} ares_layout;
static inline size_t ares_dtype_bytes(ares_dtype t)
{
    return t == ARES_F32 ? 4 : 2;
}

/*
 * A weight y = x Wt: n outputs, k inputs. A vector (norm weight, bias) has k = 1 and layout ROWS.
 */
typedef struct ares_matrix {
    void *data;
    ares_dtype dtype;
    ares_layout layout;
    int32_t n, k;
} ares_matrix;
/* Elements that data holds, padding of the panels included. */
static inline int64_t ares_matrix_elements(ares_layout layout, int64_t n, int64_t k)
{
    return layout == ARES_PANEL32 ? (n + 31) / 32 * 32 * k : n * k;
}
/*
 * Row-major f32/bf16/f16 [n][k] <-> the matrix's own layout and dtype (bf16 rounds to nearest
 * even). Host memory.
 */
void ares_matrix_pack(const ares_matrix *w, const void *rows, ares_dtype rows_dtype);
void ares_matrix_unpack(const ares_matrix *w, void *rows, ares_dtype rows_dtype);
float ares_bf16_to_f32(uint16_t x);
uint16_t ares_f32_to_bf16(float x);
float ares_f16_to_f32(uint16_t x);
uint16_t ares_f32_to_f16(float x);

struct ares_kernels;
/* Where arithmetic happens: one table, one pool (CPU) or stream (CUDA). */
typedef struct ares_device {
    const struct ares_kernels *k;
    ares_pool *pool;                  /* CPU: the threads; may be NULL for one */
    void *scratch;                    /* grows on demand, kept; owned by the device */
    void *stream;                     /* CUDA */
    int index;                        /* CUDA ordinal; -1 on the CPU */
    size_t allocated, most_allocated; /* bytes given out by k->alloc: now, and at most so far */
} ares_device;
static inline void ares_device_count(ares_device *d, size_t taken,
                                     size_t given_back) /* by the tables' alloc and release */
{
    d->allocated += taken - given_back;
    d->most_allocated = d->allocated > d->most_allocated ? d->allocated : d->most_allocated;
}

/*
 * Whose memory. In linear, attention, norms and whatever else a layer is made of, every array lies
 * on the device (d->k->alloc), the index arrays of segments, ids and slots among them. head,
 * head_backward, head_fused, token_log_prob and sample take x, dx, logits, w and dw there, and all
 * their arrays of one number a row (target, log_prob, entropy, lse, c_*, temperature, top_*, key,
 * forced, token ...) in host memory: a CUDA device copies them itself, and what it writes to the
 * host is complete on return. After a failure these outputs are not written: call sync before
 * reading them. sum_squares is then NaN.
 *
 * The CUDA table sums in fixed orders without atomics, so a run repeats itself; but products are
 * cuBLAS's, whose order may change with the number of rows. Equality over batches, micro-batches
 * and between rollout and training is promised on the CPU only.
 */

/* ------------------------------------------------------------------ arguments */

/*
 * y = x Wt + bias + residual.   x [m][w.k], y [m][w.n]; residual (may be y itself) and bias may be
 *                               NULL.
 * Sum: one chain over k from 0, then + bias, then + residual.
 */
typedef struct ares_linear_args {
    int32_t m;
    const float *x;
    int64_t ldx;
    const ares_matrix *w;
    const float *bias;
    const float *residual;
    int64_t ldr;
    float *y;
    int64_t ldy;
} ares_linear_args;

/*
 * dx = dy W (+ dx when accumulate): one chain over n, continuing the old dx.  dy [m][w.n], dx
 *                                         [m][w.k]
 */
typedef struct ares_linear_backward_args {
    int32_t m;
    const float *dy;
    int64_t lddy;
    const ares_matrix *w; /* for dx */
    float *dx;
    int64_t lddx;
    bool accumulate; /* dx NULL: not wanted */
    const float *x;
    int64_t ldx; /* for dw */
    /* f32, the weight's layout; += one chain over the m tokens in row order; NULL: not wanted */
    const ares_matrix *dw;
    float *dbias; /* [n]; the same; may be NULL */
} ares_linear_backward_args;

/*
 * y = x * rstd * w, rstd = 1/sqrt(mean(x^2) + eps) ("lanes"), for rows of width k (Zhang and
 * Sennrich 2019).
 */
typedef struct ares_rms_norm_args {
    int32_t rows, k;
    const float *x;
    int64_t ldx;
    const float *w; /* [k] */
    float eps;
    float *y;
    int64_t ldy;
    float *rstd; /* [rows]; written by forward, where it may be NULL; read by backward */
    /* backward: dx += (residual streams meet there), dw += one chain over the rows */
    const float *dy;
    int64_t lddy;
    float *dx;
    int64_t lddx;
    float *dw; /* [k]; NULL: frozen */
} ares_rms_norm_args;

/* y = silu(gate) * up, rows of width k; gate and up have the same distance of rows, ldgu. */
typedef struct ares_silu_mul_args {
    int32_t rows, k;
    const float *gate, *up;
    int64_t ldgu;
    /* written; in backward the same numbers again, for the gradient of the weight that follows, or
     * NULL */
    float *y;
    int64_t ldy;
    /* backward: d_gate and d_up are written and may be gate and up themselves */
    const float *dy;
    int64_t lddy;
    float *d_gate, *d_up;
    int64_t lddgu;
} ares_silu_mul_args;

/*
 * Segments of a packed batch. Segment s owns the query rows [start[s], start[s+1]); its i-th row
 * stands at position prefix_len[s] + i and sees the keys 0 .. prefix_len[s] + i of its sequence
 * (causal), or all of them. Keys are walked in chunks of ARES_KV_BLOCK from position 0, online
 * softmax with one rescale a chunk. Packed: key p < prefix_len lies in row prefix_row[s] + p of k
 * and v (prompt shared by a group), others in the segment's own rows.
 * Paged:  all keys, the segment's own included (store_kv ran before), lie in cache blocks
 *         block_table[s * table_stride + p / ARES_KV_BLOCK].
 */
#define ARES_KV_BLOCK 32
typedef struct ares_segments {
    int32_t n, rows;           /* rows = start[n], also known where start lies on a device */
    const int32_t *start;      /* [n+1] */
    const int32_t *prefix_len; /* [n], NULL: all 0 */
    /*
     * [n], packed only; NULL: no prefixes. A prefix is itself a whole segment before s, with
     * prefix_len 0
     */
    const int32_t *prefix_row;
    const int32_t *block_table; /* [n][table_stride], paged only */
    int32_t table_stride;
} ares_segments;
/*
 * One layer of the paged cache: block b, kv head h: keys transposed [head_dim][32] at ((b * n_kv +
 * h) * 2) * 32 * head_dim, values [32][head_dim] right after.
 */
typedef struct ares_attention_args {
    ares_segments seg;
    int32_t n_heads, n_kv_heads, head_dim;
    float scale;
    bool causal;
    /* 0: none; else a query sees its last window keys, itself included */
    int32_t window;
    const float *q;
    int64_t ldq; /* [rows][n_heads * head_dim] */
    const float *k, *v;
    int64_t ldkv;       /* packed: [rows][n_kv * head_dim] */
    const float *cache; /* paged (k and v are then unused); NULL: packed */
    float *out;
    int64_t ldo; /* [rows][n_heads * head_dim] */
    /*
     * [rows][n_heads] natural log of the softmax denominator; may be NULL forward; read by backward
     */
    float *lse;
    /* backward (packed only): dq written; dk, dv += (zeroed by the caller), segments in order */
    const float *d_out;
    float *dq;
    int64_t lddq;
    float *dk, *dv;
    int64_t lddkv;
} ares_attention_args;

/* The factor of logits at a temperature; 1 where it is 0 (greedy). The only place that computes it:
 * sampler and update agree in every bit only when both round it once, from the f32 temperature. */
static inline float ares_inv_temperature(float temperature)
{
    return temperature > 0.0f ? 1.0f / temperature : 1.0f;
}

/*
 * The vocabulary head. Logit z = (x Wt) * inv_temperature. log_prob = z[target] - lse, entropy =
 * lse - sum p z, exact over the whole vocabulary: partial (max, sum e, sum e z) of fixed vocabulary
 * chunks, merged in chunk order. Both are made from z - max, so they are finer than the rounded
 * lse.
 */
typedef struct ares_head_args {
    int32_t rows, vocab;
    const float *x;
    int64_t ldx;          /* [rows][w.k] */
    const ares_matrix *w; /* [vocab][k] */
    float inv_temperature;
    const int32_t *target; /* [rows] */
    /* [rows]; written by forward, read (lse, entropy) by backward */
    float *log_prob, *entropy, *lse;
    /*
     * backward: d loss = c_log_prob d log_prob + c_entropy d entropy; dx written, dw += (NULL:
     * frozen)
     */
    const float *c_log_prob, *c_entropy; /* c_entropy may be NULL */
    float *dx;
    int64_t lddx;
    const ares_matrix *dw;
    /*
     * The exact KL(p || q) to another model's head over the same vocabulary, at the same
     * temperature: sum of p (log p - log q). ref_x NULL: not wanted. head writes kl and ref_lse;
     * head_backward reads them and adds c_kl d kl, q constant. Not of head_fused.
     */
    const float *ref_x;
    int64_t ld_ref; /* [rows][ref_w.k] */
    const ares_matrix *ref_w;
    float *kl, *ref_lse; /* [rows] */
    const float *c_kl;   /* [rows] */
} ares_head_args;
/*
 * Rows of logits that exist already, f32 or bf16, on the device; all statistics are f32. A logit of
 * -inf is a probability of 0.
 */
typedef struct ares_logits_args {
    int32_t rows, vocab;
    /* [rows][vocab]; backward writes over them, rounded to their type */
    void *logits;
    ares_dtype dtype;
    int64_t ld;
    float inv_temperature;
    const int32_t *target; /* [rows] */
    /*
     * [rows]; written by forward (entropy and lse may be NULL); entropy and lse read by backward
     */
    float *log_prob, *entropy, *lse;
    /*
     * [rows] backward: d loss = c_log_prob d log_prob + c_entropy d entropy; c_entropy may be NULL
     */
    const float *c_log_prob, *c_entropy;
} ares_logits_args;
/*
 * Called per row chunk by head_fused, in row order, from one thread, and may call no kernel but, on
 * a card, algo's twins: fills c_log_prob and c_entropy (zeroed before) of rows [row, row + n).
 */
typedef void ares_head_loss_fn(void *ctx, int32_t row, int32_t n, const float *log_prob,
                               const float *entropy, float *c_log_prob, float *c_entropy);

/*
 * One token for each row: argmax of z + Gumbel(key, token id) over the nucleus. Records what
 * training will recompute, bit for bit.
 */
typedef struct ares_sample_args {
    int32_t rows, vocab;
    const float *x;
    int64_t ldx;
    const ares_matrix *w;
    /* [rows]; 0 is greedy (ties: lower id); log_prob and entropy are then at 1 */
    const float *temperature;
    /* [rows], 1 = off; NULL: off. Masses are integers of 2^-40: see DESIGN 5 */
    const float *top_p;
    /*
     * [rows], 0 = off; NULL: off. Ties at the cut: lower id. Cuts first: top_p is then of what is
     * left
     */
    const int32_t *top_k;
    /* [rows]: of (seed, ..., position); the token id is the last coordinate */
    const ares_rng_key *key;
    /* [rows], -1 = sample; else this token is taken (its log_prob is recorded); NULL */
    const int32_t *forced;
    int32_t *token; /* [rows] */
    /* [rows] at the sampling temperature, over the full vocabulary */
    float *log_prob, *entropy;
    float *log_prob_1, *entropy_1; /* [rows] at temperature 1; NULL: not wanted */
    /*
     * The n_likely most likely tokens of each row before any cut, the largest logit first (ties:
     * lower id), and their log-probs at temperature 1. Tokens of probability 0 are none: where a
     * row has fewer, -1 and -inf fill it. 0: not wanted
     */
    int32_t n_likely; /* at most ARES_LIKELY_MAX */
    int32_t *likely_token;
    float *likely_log_prob; /* [rows][n_likely] */
} ares_sample_args;
#define ARES_LIKELY_MAX 64

/*
 * Decoupled AdamW (Loshchilov and Hutter 2019), elementwise: g = grad * grad_scale; m, v moments;
 * bias-corrected by step >= 1; w -= lr * (m_hat / (sqrt(v_hat) + eps) + weight_decay * w). On
 * master when given, then rounded into w. kahan: w, m and v are bf16 numbers (the latter two in f32
 * arrays), each operation is rounded, and master holds what the rounding of w has left out
 * (AnyPrecision AdamW; aepo.md 6.4): w *= 1 - lr weight_decay; c -= lr m_hat / (sqrt(v_hat) + eps);
 * w' = w + c; c += w - w'.
 */
typedef struct ares_adamw_args {
    int64_t n;
    void *w;
    ares_dtype dtype;
    bool kahan;    /* w is bf16 */
    float *master; /* NULL when w is f32 */
    const float *grad;
    float *m, *v;
    double lr, beta1, beta2, eps, weight_decay, grad_scale;
    int64_t step;
} ares_adamw_args;

/* ------------------------------------------------------------------ the table */
typedef struct ares_kernels {
    const char *name;   /* "cpu plain", "cpu avx2", "cpu avx512", "cuda" */
    ares_layout layout; /* of linear weights on this device */

    /* zeroed; NULL: out of device memory (the host aborts) */
    void *(*alloc)(ares_device *d, size_t bytes);
    void (*release)(ares_device *d, void *p, size_t bytes);
    void (*copy_in)(ares_device *d, void *device, const void *host, size_t bytes);
    /* complete on return */
    void (*copy_out)(ares_device *d, void *host, const void *device, size_t bytes);
    void (*copy)(ares_device *d, void *to, const void *from, size_t bytes); /* within the device */
    void (*zero)(ares_device *d, void *p, size_t bytes);
    int (*sync)(ares_device *d); /* waits; the first failure since the last sync */

    /* Several products at once (q, k, v; gate, up), one parallel region. */
    void (*linear)(ares_device *d, const ares_linear_args *a, int n);
    void (*linear_backward)(ares_device *d, const ares_linear_backward_args *a);

    /* y [n][k] = row ids[i] of e (PANEL32 or ROWS); de += dy in row order. */
    void (*embedding)(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, float *y,
                      int64_t ldy);
    void (*embedding_backward)(ares_device *d, const ares_matrix *de, const int32_t *ids, int32_t n,
                               const float *dy, int64_t lddy);

    void (*rms_norm)(ares_device *d, const ares_rms_norm_args *a);
    void (*rms_norm_backward)(ares_device *d, const ares_rms_norm_args *a);

    /*
     * Rotates pairs (i, i + head_dim/2) of every head in place, by row r's angles: cos_sin
     * [rows][head_dim] = cosines then sines (made by the host for one, three or no position axes).
     * inverse: the transpose, for backward.
     */
    void (*rope)(ares_device *d, int32_t rows, int32_t heads, int32_t head_dim, float *x,
                 int64_t ldx, const float *cos_sin, bool inverse);

    void (*silu_mul)(ares_device *d, const ares_silu_mul_args *a);
    void (*silu_mul_backward)(ares_device *d, const ares_silu_mul_args *a);

    /*
     * Row r of k and v [rows][n_kv * head_dim] goes to cache slot slots[r] = block * ARES_KV_BLOCK
     * + offset.
     */
    void (*store_kv)(ares_device *d, int32_t rows, int32_t n_kv, int32_t head_dim, const float *k,
                     const float *v, int64_t ldkv, const int32_t *slots, float *cache);
    void (*attention)(ares_device *d, const ares_attention_args *a);
    void (*attention_backward)(ares_device *d, const ares_attention_args *a);

    void (*head)(ares_device *d, const ares_head_args *a); /* forward */
    void (*head_backward)(ares_device *d, const ares_head_args *a);
    /*
     * Both, in row chunks, the logits computed once; the same bits as head, loss, head_backward.
     * Writes log_prob, entropy, lse, dx, dw.
     */
    void (*head_fused)(ares_device *d, const ares_head_args *a, ares_head_loss_fn *loss, void *ctx);
    void (*sample)(ares_device *d, const ares_sample_args *a);
    /*
     * Of rows of logits that exist already, read once: of f32 logits the head's bits. Backward
     * writes d loss / d logit over the logits.
     */
    void (*token_log_prob)(ares_device *d, const ares_logits_args *a);
    void (*token_log_prob_backward)(ares_device *d, const ares_logits_args *a);

    void (*adamw)(ares_device *d, const ares_adamw_args *a);
    /* f64 lanes over fixed chunks; NaN and infinity survive */
    double (*sum_squares)(ares_device *d, const float *x, int64_t n);
    void (*add)(ares_device *d, float *y, const float *x, int64_t n); /* y += x */
} ares_kernels;

/*
 * Opens "cpu" (threads <= 0: all) or "cuda", "cuda:1". The instruction set is the best this machine
 * has, or ARES_ISA=plain|avx2|avx512.
 */
int ares_device_open(const char *name, int threads, ares_device *out);
void ares_device_close(ares_device *d);
const char *ares_device_card(const ares_device *d); /* what its maker calls it; NULL on the CPU */
/* of the card in use now, by whomever; 0 on the CPU */
double ares_device_memory_bytes(const ares_device *d);
/*
 * What the device's library exports under a name, for rooms that have twins of their own in it;
 * NULL on the CPU, and where there is no such name.
 */
void *ares_device_symbol(const ares_device *d, const char *name);
/*
 * The CPU table of one instruction set ("plain", "avx2", "avx512"), NULL where the machine lacks
 * it: for tests.
 */
const ares_kernels *ares_kernels_cpu(const char *isa);

/* f64, by fixed FMA polynomials: rotary tables, initialisation, schedules that reach a weight. */
double ares_f64_sin(double x);
double ares_f64_cos(double x);
double ares_f64_exp(double x);
/* y[i] = ares_f64_exp(x[i]), the same bits, several at once; |x[i]| <= 700. y may be x */
void ares_f64_exp_all(int64_t n, const double *x, double *y);
double ares_f64_log(double x);
double ares_f64_pow(double x, double y);

#ifdef __cplusplus
}
#endif
#endif
