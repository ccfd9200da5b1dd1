/*
 * kernels: the arithmetic of a transformer on raw pointers. One function table per kind of device,
 * and one made of libtorch's operators (aten/, in libares_torch.so).
 *
 * Every function has one order of summation per output element, whatever the batch, the tile, the
 * thread count or the instruction set: work is divided over outputs, never over the summed index. A
 * sum is either one chain of fused multiply-adds in index order ("chain"), or 16 lanes (element i
 * goes to lane i mod 16, each lane a chain) joined by the fixed tree ((0+8)+(4+12))+... ("lanes").
 * Sums over tokens continue from the value already in the gradient, so cutting a batch into
 * consecutive micro-batches changes no bit. exp, log and the other elementary functions are our
 * own.
 *
 * Activations, and the gradients of activations, are of the table's type `act`: f32, or bf16 on
 * devices that compute with it. Arguments that point to them are `void *`. A bf16 table computes in
 * f32 and rounds each result once, a product with bias and residual twice. All other floats are
 * f32; weights may be stored as bf16. Arrays are row-major; ld... is the distance between rows, in
 * elements. Functions return nothing: a CPU kernel cannot fail, and another device reports its
 * first failure at sync.
 *
 * A kernel has one implementation per table: the CPU's in cpu/, the CUDA device's in cuda/,
 * libtorch's in aten/. They take the same arguments. The order of summation is the CPU
 * table's promise; libtorch chooses its own.
 */
#ifndef ARES_KERNELS_H
#define ARES_KERNELS_H

#include "ares/core.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    ARES_ROWS, /* [n][k], as in files; what CUDA and libtorch read */
    /*
     * [ceil(n/32)][k][32], on the CPU. A panel holds the weights of 32 outputs, those of one input
     * side by side, so that a vector holds 16 outputs; lanes beyond n are zero and stay zero
     */
    ARES_PANEL32,
    /*
     * [ceil(n/32)][ceil(k/2)][32][2], on the CPU: the same panels with two inputs of an output side
     * by side, input i at [..][i/2][lane][1] and i + 1 before it, at [0]: as a 32-bit word of two
     * bf16 numbers, the first input in the high half, as vdpbf16ps takes them. The partner of the
     * last of an odd k is zero and stays zero. A product with such a weight of bf16 is in bf16
     * arithmetic, whatever computes it (docs/exactness.md#bf16-arithmetic). Its gradient, f32,
     * has the same order of elements, and so have its master and its moments
     */
    ARES_PANEL32_PAIRS
} ares_layout;

/*
 * The weight W of y = x Wt: n outputs, k inputs. A vector (norm weight, bias) has k = 1 and layout
 * ARES_ROWS.
 */
typedef struct ares_matrix {
    void *data;
    ares_dtype dtype;
    ares_layout layout;
    int32_t n, k;
} ares_matrix;
/* Inputs of a row of the layout, the last partner of an odd k included. */
static inline int64_t ares_layout_inputs(ares_layout layout, int64_t k)
{
    return layout == ARES_PANEL32_PAIRS ? k + k % 2 : k;
}
/* Elements of a weight's memory, the padding of the panels included. */
static inline int64_t ares_matrix_elements(ares_layout layout, int64_t n, int64_t k)
{
    return layout == ARES_ROWS ? n * k : (n + 31) / 32 * 32 * ares_layout_inputs(layout, k);
}
/* Where in its memory a weight has input i of output n. */
static inline int64_t ares_matrix_at(ares_layout layout, int64_t k, int64_t n, int64_t i)
{
    int64_t panel = n / 32 * 32 * ares_layout_inputs(layout, k);
    if (layout == ARES_PANEL32_PAIRS) return panel + i / 2 * 64 + n % 32 * 2 + 1 - i % 2;
    return layout == ARES_PANEL32 ? panel + i * 32 + n % 32 : n * k + i;
}
/*
 * Row-major f32, bf16 or f16 numbers [n][k] <-> the matrix's own layout and type, rounded to
 * nearest even. Both lie in host memory.
 */
void ares_matrix_pack(const ares_matrix *w, const void *rows, ares_dtype rows_dtype);
void ares_matrix_unpack(const ares_matrix *w, void *rows, ares_dtype rows_dtype);

struct ares_kernels;
struct ares_card_losses;
/*
 * Where arithmetic happens: one table, and one pool (CPU) or stream (CUDA). An aten device has the
 * memory, pool and index of the CPU.
 */
typedef struct ares_device {
    const struct ares_kernels *k;
    /* the host's threads: the CPU's kernels, and on any device encoding and rewards; NULL: one */
    ares_pool *pool;
    void *scratch;                         /* owned by the device: grows on demand and is kept */
    void *stream;                          /* CUDA */
    const struct ares_card_losses *losses; /* of algo, on a card; NULL: on the CPU */
    void *aten;                            /* what libares_torch.so keeps; NULL: it is not in use */
    int index;                             /* CUDA ordinal; -1 on the CPU */
    size_t allocated, most_allocated; /* bytes handed out by k->alloc: now, and at most so far */
    struct ares_phases *phases;       /* memory that rollout and training share; NULL: none */
    /* of ares_device_open_counting: nothing computes, and no address may be read or written */
    bool counting;
    double total_bytes; /* of a card that is only counted */
} ares_device;

/*
 * Where arrays lie. All arrays of the kernels lie on the device (d->k->alloc), including the index
 * arrays (segments, ids and slots) and the arrays of head and sampler with one number per row
 * (target, log_prob, c_*, temperature, key, token ...); on the CPU the device's memory is the
 * host's. After a failure outputs are not written: call sync before reading them.
 *
 * The CUDA table sums in fixed orders without atomics on floats, so a repeated run gives the same
 * bits. But cuBLAS computes the products, and its order may change with the number of rows: the CPU
 * alone promises equal bits over batches and micro-batches and between rollout and training.
 */

/* ------------------------------------------------------------------ arguments */

/*
 * y = x Wt + bias + residual: x [m][w.k], y and residual [m][w.n], bias [w.n]. bias and residual
 * may be NULL; residual may be y. The sum is one chain over k from 0, then times scale, then +
 * bias, then + residual.
 */
typedef struct ares_linear_args {
    int32_t m;
    const void *x;
    int64_t ldx;
    const ares_matrix *w;
    const void *bias;
    const void *residual;
    int64_t ldr;
    void *y;
    int64_t ldy;
    float scale; /* 0: none; a factor of 0 is the caller's, who has nothing to add then */
} ares_linear_args;

/*
 * dx = dy W, or dx += dy W with accumulate: one chain over n, which then starts at the old dx; the
 * finished sum is multiplied by scale. dy [m][w.n], x and dx [m][w.k].
 */
typedef struct ares_linear_backward_args {
    int32_t m;
    const void *dy;
    int64_t lddy;
    const ares_matrix *w; /* read for dx */
    void *dx;             /* NULL: not wanted */
    int64_t lddx;
    bool accumulate;
    float scale;   /* 0: none */
    const void *x; /* read for dw */
    int64_t ldx;
    /* f32, the weight's layout: += one chain over the m tokens in row order. NULL: not wanted */
    const ares_matrix *dw;
    float *dbias; /* f32 [n], summed in the same way; NULL: not wanted */
} ares_linear_backward_args;

/*
 * y = x * rstd * f(w), rstd = 1/sqrt(mean(x^2) + eps) ("lanes"), for rows of width k (Zhang and
 * Sennrich 2019). f(w) = w; with plus_one 1 + w, rounded to f32 (Gemma). With heads, `heads` rows
 * lie side by side: row r begins at element r / heads * ldx + r % heads * k of x, and likewise in
 * y, residual, dy and dx. In x and dx heads are x_head elements apart where that is not 0.
 */
typedef struct ares_rms_norm_args {
    int32_t rows, k;
    int32_t heads; /* 0: none, row r begins at r * ldx */
    const void *x;
    int64_t ldx;
    int64_t x_head; /* 0: k. Not on cards */
    const float *w; /* [k] */
    bool plus_one;
    float eps;
    void *y;
    int64_t ldy;
    float *rstd; /* [rows]; written by forward, where it may be NULL; read by backward */
    /* forward: y = residual + the norm, which a bf16 table rounds first; may be y. NULL: none */
    const void *residual;
    int64_t ldr;
    /*
     * forward, only where the table has rope_store: sum = x + bias [k] is written, of the type of
     * activations, because the product that follows adds to sum and not to x. Its rows are ldx
     * apart; it may be x. NULL: not wanted
     */
    const void *bias;
    void *sum;
    /* backward: dx += (residual streams meet there), dw += one chain over the rows */
    const void *dy;
    int64_t lddy;
    void *dx;
    int64_t lddx;
    float *dw; /* [k]; NULL: frozen */
} ares_rms_norm_args;

/*
 * y = (x - mean) * rstd * w + bias, rstd = 1/sqrt(mean((x - mean)^2) + eps) ("lanes"), for rows of
 * width k (Ba et al. 2016).
 */
typedef struct ares_layer_norm_args {
    int32_t rows, k;
    const void *x;
    int64_t ldx;
    const float *w, *bias; /* [k] */
    float eps;
    void *y;
    int64_t ldy;
    float *mean, *rstd; /* [rows]; written by forward, where they may be NULL; read by backward */
    /* backward: dx += (residual streams meet there), dw and dbias += one chain over the rows */
    const void *dy;
    int64_t lddy;
    void *dx;
    int64_t lddx;
    float *dw, *dbias; /* [k]; NULL: frozen */
} ares_layer_norm_args;

/*
 * y = f(x), n numbers: x sigmoid(x); x Phi(x) (Hendrycks and Gimpel 2016), their tanh form
 * x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3), x sigmoid(1.702 x), or sigmoid(x).
 */
typedef enum {
    ARES_SILU,
    ARES_GELU,
    ARES_GELU_TANH,
    ARES_QUICK_GELU,
    ARES_SIGMOID /* not on cards */
} ares_activation;
#define ARES_GELU_TANH_BY 1.5957691216f /* 2 sqrt(2 / pi) */
#define ARES_GELU_TANH_CUBE 0.044715f
typedef struct ares_activation_args {
    ares_activation f;
    int64_t n;
    const void *x;
    void *y; /* forward; may be x */
    const void *dy;
    void *dx; /* backward: f'(x) dy, written; may be dy */
} ares_activation_args;

/*
 * y = f(gate) * up, rows of width k (Shazeer 2020); gate and up have the same distance of rows,
 * ldgu, unless ld_up says otherwise.
 */
typedef struct ares_gate_mul_args {
    ares_activation f;
    int32_t rows, k;
    const void *gate, *up;
    int64_t ldgu;
    int64_t ld_up; /* of up and d_up; 0: as gate and d_gate. Not on cards */
    /* [k], added to gate and up, where the table has rope_store. Forward only; NULL: none */
    const void *gate_bias, *up_bias;
    /*
     * written; backward writes the same numbers again, for the gradient of the weight that follows,
     * unless y is NULL
     */
    void *y;
    int64_t ldy;
    /* backward: d_gate and d_up are written and may be gate and up themselves */
    const void *dy;
    int64_t lddy;
    void *d_gate, *d_up;
    int64_t lddgu;
} ares_gate_mul_args;

/*
 * A layer of experts (Shazeer et al. 2017; as in Qwen3-MoE and OLMoE): a row goes to `used` of its
 * `experts`, chosen by the logits of its router, and its output is the weighted sum of theirs. In a
 * block, with rows of width `hidden`, E experts, k used:
 *
 *   linear     logits [rows][E] of the router
 *   route      who goes where. The rows that expert e computes lie packed, one after the other in
 *              row order, in the slots [first[e], first[e + 1]) of rows * k slots
 *   embedding  packed [rows * k][hidden], by row_of, with the rows as a matrix of ARES_ROWS
 *   linear, gate_mul, linear    out [rows * k][hidden]: a product per expert and matrix in one
 * list, with m = first[e + 1] - first[e]. On the CPU and with aten `first` is host memory combine
 * y = residual + the sum of a row's outputs
 *
 * and backward:
 *
 *   combine_backward    c and d_out from dy
 *   linear_backward ... d_packed [rows * k][hidden]
 *   combine    with weight NULL: dh = the sum of a row's d_packed, experts in ascending order
 *   route_backward, then the router's linear_backward, whose dx adds to dh
 *
 * No number of a row depends on other rows, and a weight's gradient is one chain over its rows in
 * row order, so micro-batches and the company of a row change no bit.
 */

/*
 * p = softmax(logits) over all experts in f32 (sum: "lanes"); expert = the `used` ones of largest
 * logit, of equal ones the lower numbers, in ascending order; weight = their p, with norm divided
 * by their sum, which starts at the lowest expert.
 *
 * Backward, with S the sum of weight c over a row's experts: norm: dl_e = weight_e (c_e - S) for
 * its experts and 0 for others; else dl_e = p_e (c_e - S), with c_e = 0 for others.
 */
typedef struct ares_route_args {
    int32_t rows, experts, used;
    bool norm; /* norm_topk_prob */
    const void *logits;
    int64_t ldl;      /* [rows][experts], activations */
    int32_t *expert;  /* [rows][used], ascending; written by forward, read by backward */
    float *weight;    /* [rows][used]; the same */
    int32_t *first;   /* [experts + 1], written by forward, as are the others */
    int32_t *row_of;  /* [rows * used]: the row of a slot */
    int32_t *slot_of; /* [rows][used]: where the row lies for its j-th expert */
    float *entropy;   /* [rows] of p, natural log; NULL: not wanted */
    const float *c;   /* backward: [rows][used] from combine_backward */
    void *dl;
    int64_t lddl; /* backward: [rows][experts], activations, written */
} ares_route_args;

/*
 * y = residual + ((w_a o_a + w_b o_b) + ...), the row's experts in ascending order: a chain of FMAs
 * that starts with the product w_a o_a; a bf16 table rounds it, then the sum with the residual.
 * Backward: c_j = <dy, o_j> ("lanes"), d_out_j = w_j dy.
 */
typedef struct ares_combine_args {
    int32_t rows, used, width;
    const int32_t *slot_of; /* [rows][used] of ares_route_args */
    const float *weight;    /* [rows][used]; NULL, forward only: all 1 */
    const void *out;
    int64_t ldo;          /* [rows * used][width], activations by slot */
    const void *residual; /* NULL: none; may be y */
    int64_t ldr;
    void *y;
    int64_t ldy; /* [rows][width], written by forward */
    const void *dy;
    int64_t lddy; /* [rows][width] */
    float *c;     /* [rows][used], written by backward */
    void *d_out;
    int64_t lddo; /* by slot, written by backward; may be out */
} ares_combine_args;

/*
 * Segments of a packed batch. Segment s owns the query rows [start[s], start[s+1]); its i-th row
 * stands at position prefix_len[s] + i and sees the keys 0 .. prefix_len[s] + i of its sequence
 * (causal), or all of them. Keys are visited in chunks of ARES_KV_BLOCK from position 0; the online
 * softmax rescales once per chunk. Keys lie in one of two places:
 *
 *   packed   key p < prefix_len[s] lies in row prefix_row[s] + p of k and v (a prompt that a group
 *            shares), the others in the segment's own rows
 *   paged    all keys, also the segment's own (store_kv or rope_store ran before), lie in blocks of
 * the KV cache: key p in block block_table[s * table_stride + p / ARES_KV_BLOCK]
 */
#define ARES_KV_BLOCK 32
typedef struct ares_segments {
    int32_t n, rows;           /* rows = start[n], for the host where start lies on a device */
    const int32_t *start;      /* [n+1] */
    const int32_t *prefix_len; /* [n]; NULL: all 0 */
    /*
     * [n], packed only; NULL: no prefixes. It names the first row of an earlier segment with
     * prefix_len 0
     */
    const int32_t *prefix_row;
    const int32_t *block_table; /* [n][table_stride], paged only */
    int32_t table_stride;
    /* ---------------- the same for the host, and what follows from it (ares_segments_measure) */
    const int32_t *host_start, *host_prefix_len, *host_prefix_row;
    int32_t max_rows, max_keys; /* of a segment */
    int32_t keys;               /* of all segments together, a shared key as often as it is seen */
    /*
     * packed only: the keys of segment s, in order, are rows key_row[key_start[s]] to
     * key_row[key_start[s + 1] - 1] of k and v. On the device; NULL: not listed,
     * as the table does not ask for them (lists_keys)
     */
    const int32_t *key_start, *key_row; /* [n + 1], [keys] */
} ares_segments;
/* Fills what the host knows of segments whose arrays lie in host memory. */
void ares_segments_measure(ares_segments *seg);
/* The arrays key_start and key_row of measured segments, in host memory. */
void ares_segments_list_keys(const ares_segments *seg, int32_t *key_start, int32_t *key_row);
/*
 * In one layer of the paged cache a block takes 2 * 32 * n_kv_heads * head_dim numbers. How keys
 * and values lie within a block is the table's own: store_kv or rope_store writes and attention
 * reads them, and a block may be copied as a whole. With bf16 its numbers are bf16, half the bytes.
 */
typedef struct ares_attention_args {
    ares_segments seg;
    int32_t n_heads, n_kv_heads, head_dim;
    float scale;
    bool causal;
    /* 0: none; otherwise a query sees the last `window` keys, its own included */
    int32_t window;
    const void *q;
    int64_t ldq; /* [rows][n_heads * head_dim] */
    const void *k, *v;
    int64_t ldkv;      /* packed: [rows][n_kv_heads * head_dim] */
    const void *cache; /* NULL: packed; otherwise paged, and k and v are not read */
    /*
     * paged and causal, CUDA table only: segments of more than one row are skipped, and their rows
     * of out stay as they are
     */
    bool rows_alone;
    /*
     * CPU table only: scores, values and their gradients are products in bf16 arithmetic, softmax
     * stays in f32; head_dim is even, and the cache holds bf16 (store_kv with bf16)
     */
    bool bf16;
    void *out;
    int64_t ldo; /* [rows][n_heads * head_dim] */
    /*
     * rows * n_heads numbers: natural log of the softmax denominator, in an order of the table's
     * own; written by forward (of paged keys it need not be), where it may be NULL; read by
     * backward
     */
    float *lse;
    /*
     * backward (packed only): dq, dk and dv are written. A key that several segments see gets their
     * sum, in segment order and in f32
     */
    const void *d_out;
    void *dq;
    int64_t lddq;
    void *dk, *dv;
    int64_t lddkv;
} ares_attention_args;

/*
 * The keys and values that segments [first, first + n) of a paged batch see, side by side, for
 * attention that knows no block tables. A segment of more than one row has the keys from
 * max(0, prefix_len + 1 - window) on, or without a window all; others, which decoding serves, have
 * none.
 */
typedef struct ares_gather_args {
    ares_segments seg;
    int32_t first, n;
    int32_t most_keys; /* of one segment, for the host */
    int32_t window;    /* as in ares_attention_args */
    int32_t n_kv_heads, head_dim;
    const void *cache;
    void *k, *v; /* [keys][n_kv_heads * head_dim], written */
    /* [n + 1], written: rows and keys before each segment, from the first one's on */
    int32_t *q_start, *k_start;
} ares_gather_args;

/*
 * Gradients of keys, or of values, that segments list (lists_keys), each to its row: a key that
 * several segments see gets their sum, in segment order and in f32, rounded once.
 */
typedef struct ares_sum_keys_args {
    ares_segments seg; /* packed, with prefixes and key_start */
    int32_t width;
    const void *gradient; /* [keys][width] */
    void *to;
    int64_t ld; /* [rows][width], written */
} ares_sum_keys_args;

/*
 * All steps between the products of q, k, v and attention over the paged cache, on rows [q, k, v]:
 * the products' bias, the norms of the heads of q and k, rope of q and k, and store_kv. q is
 * changed in place; k and v stay as they are.
 */
typedef struct ares_rope_store_args {
    int32_t rows, n_heads, n_kv_heads, head_dim;
    void *qkv;
    int64_t ld;
    const void *q_bias, *k_bias, *v_bias; /* NULL: none */
    const float *q_norm, *k_norm;         /* [head_dim]; NULL: none */
    bool plus_one;                        /* of both norms, as in ares_rms_norm_args */
    float eps;
    const float *cos_sin; /* [rows][head_dim]; NULL: no rotation */
    const int32_t *slots; /* [rows] */
    void *cache;
} ares_rope_store_args;

/*
 * Gated delta nets (Yang et al. 2025, arXiv 2412.06464, as Qwen3.5 has them): layers whose tokens
 * read and write a state instead of keys and values (docs/model.md#gated-delta-nets). All is f32,
 * also where products are in bf16 arithmetic. A segment starts from zeros, or from the state in
 * slot from[s], and leaves its own in slot to[s]; -1: zeros, and nowhere. No slot that a segment
 * writes is another segment's `from`. Of packed segments, one with a prefix (prefix_row) goes on
 * from the end of that earlier segment, which is the whole of its prefix. Backward knows these, and
 * segments that start from zeros. What segments with the same prefix give it is added in their
 * order: the derivatives of its state before its own go on from them, those of its last rows of x
 * after its own.
 *
 * The causal convolution in front of it, per column, a chain over i from 0:
 *
 *   y[t] = silu(sum over i < kernel of w[i] x[t - kernel + 1 + i])
 */
typedef struct ares_conv_args {
    ares_segments seg;     /* start, n, rows, prefix_len, prefix_row */
    int32_t width, kernel; /* kernel at most ARES_CONV_MAX */
    const void *x;
    int64_t ldx;          /* [rows][width] */
    const ares_matrix *w; /* n = width, k = kernel; any layout, f32 or bf16 */
    float *y;
    int64_t ldy;
    /* [slots][kernel - 1][width]: the last rows of x before a segment; NULL: all start from zeros
     */
    float *window;
    const int32_t *from, *to; /* [seg.n] */
    /* backward: dx is written, dw += one chain over the rows (NULL: frozen) */
    const float *dy;
    int64_t lddy;
    void *dx;
    int64_t lddx;
    const ares_matrix *dw; /* f32, w's layout */
} ares_conv_args;
#define ARES_CONV_MAX 16

/*
 * The recurrence. Value head h reads key head h / (v_heads / k_heads); S [k_dim][v_dim] is its
 * state. Per token, with sums over i (of k_dim) as chains from 0, and those over j (of v_dim) in
 * "lanes" of 32 columns, which are added in their order:
 *
 *   q, k of a key head: x / sqrt(sum x^2 + 1e-6) ("lanes"), then q / sqrt(k_dim)
 *   beta = sigmoid(b), g = -exp(a_log) softplus(a + dt_bias), decay = exp(g)
 *   D = decay S      m_j = sum_i D_ij k_i      u_j = beta (v_j - m_j)      S_ij = D_ij + k_i u_j
 *   o_j = sum_i S_ij q_i
 */
typedef struct ares_delta_args {
    ares_segments seg; /* start, n, rows, prefix_len, prefix_row */
    int32_t k_heads, v_heads, k_dim, v_dim;
    /* [rows][q, k: k_heads * k_dim each; v: v_heads * v_dim]; q and k are normed in place */
    float *qkv;
    int64_t ldqkv;
    const void *a, *b;
    int64_t ldab;                 /* [rows][v_heads] */
    const float *a_log, *dt_bias; /* [v_heads] */
    float *gates;                 /* [rows][decay, beta: v_heads each], written */
    float *norms;                 /* [rows][2 k_heads], written: what q and k were multiplied by */
    float *states; /* [slots][v_heads][k_dim][v_dim]; NULL: all segments start from zeros */
    const int32_t *from, *to; /* [seg.n] */
    /*
     * [rows / ARES_DELTA_KEPT][v_heads][k_dim][v_dim]: the states of a segment after every
     * ARES_DELTA_KEPT of its tokens; written by forward, where it may be NULL, read by backward.
     * Those of segment s lie from place start[s] / ARES_DELTA_KEPT on, or without `states`, where
     * `to` is not NULL, from place to[s] on: rows may have moved since
     */
    float *kept;
    float *o;
    int64_t ldo; /* [rows][v_heads * v_dim] */
    /*
     * backward, which norms qkv again (o and states are not used): dqkv, da and db are written,
     * da_log and d_dt_bias += one chain over the rows (NULL: frozen)
     */
    const float *d_o;
    int64_t lddo;
    float *dqkv;
    int64_t lddqkv;
    void *da, *db;
    int64_t lddab;
    float *da_log, *d_dt_bias;
} ares_delta_args;
#define ARES_DELTA_KEPT 64 /* tokens; no bit depends on it */

/*
 * The factor of logits at a temperature; 1 at temperature 0 (greedy). Computed only here: sampler
 * and update agree in every bit only when both round it once, from the f32 temperature.
 */
static inline float ares_inv_temperature(float temperature)
{
    return temperature > 0.0f ? 1.0f / temperature : 1.0f;
}

/*
 * The vocabulary head cut into parts, one per rank of a group: whole chunks of ARES_VOCAB_CHUNK
 * rows, as evenly as that allows, in rank order; the last parts may be empty. gather fills
 * all [parts][bytes] from mine [bytes] on every rank, in the table's memory; it is called once per
 * block of rows, by all parts alike.
 */
#define ARES_VOCAB_CHUNK 512 /* another size gives other bits */
typedef struct ares_vocab_parts {
    int32_t parts, part;
    void (*gather)(void *ctx, const void *mine, void *all, size_t bytes);
    void *ctx;
} ares_vocab_parts;
/* The first row of a part; that of part `parts` is the end of the vocabulary. */
static inline int32_t ares_vocab_part_first(int32_t vocab, int32_t parts, int32_t part)
{
    int64_t chunks = ((int64_t)vocab + ARES_VOCAB_CHUNK - 1) / ARES_VOCAB_CHUNK,
            each = (chunks + parts - 1) / parts;
    return (int32_t)ARES_MIN((int64_t)vocab, part * each * ARES_VOCAB_CHUNK);
}
/* Bytes that each part sends of a row that is sampled. filtered: by top_k or top_p */
size_t ares_sample_sent_bytes(int32_t vocab, int32_t parts, int32_t n_likely, bool filtered);

/*
 * An adapter beside the head's weight (docs/adapters.md): logits are x Wt + u Bt, one chain over k
 * and one over the rank. The caller has made u = scale (x At).
 */
typedef struct ares_head_adapter {
    const ares_matrix *b; /* [vocab][rank]; with parts: this part's rows */
    const void *u;        /* [rows][rank], activations */
    /* head_backward, head_fused: */
    float scale;
    void *du; /* [rows][rank], written: scale (d logits B), one chain over the vocabulary */
    const ares_matrix *db; /* += */
} ares_head_adapter;

/*
 * The divergence of a distribution p from a teacher's q (docs/distillation.md), both softmaxes of
 * logits * inv_temperature over the first `vocab` ids, which both heads have; q is constant.
 *
 *   beta 0        KL(q || p)
 *   beta 1        KL(p || q)
 *   between them  beta KL(q || m) + (1 - beta) KL(p || m), where m = (1 - beta) p + beta q
 *
 * Equal logits give exactly 0, and a gradient of exactly 0.
 */
typedef struct ares_divergence_row {
    float max, log_sum, ref_max, ref_log_sum; /* log p = (z - max) - log_sum; log q likewise */
    float value;                              /* the divergence, never below 0 */
    float reverse_kl, forward_kl;             /* KL(p || q), KL(q || p), whatever beta is */
    float ref_entropy;                        /* of q */
    float mean;                               /* of a logit's derivative, which subtracts it */
    int32_t agrees; /* 1: the likeliest ids of both are the same; of equal ones the lower counts */
} ares_divergence_row;
typedef struct ares_divergence_args {
    float beta, inv_temperature;
    int32_t vocab;
    ares_divergence_row *row; /* [rows], written by head and head_fused, read by head_backward */
    const float *c;           /* [rows] backward: adds c d value to d loss */
} ares_divergence_args;

/*
 * The vocabulary head: logits z = (x Wt) * inv_temperature, log_prob = z[target] - lse, entropy =
 * lse - sum p z, exact over the whole vocabulary. Parts (max, sum e, sum e z) of fixed vocabulary
 * chunks are merged in chunk order. log_prob and entropy are computed from z - max, which is more
 * precise than subtracting the rounded lse.
 */
typedef struct ares_head_args {
    int32_t rows, vocab;
    const void *x;
    int64_t ldx;          /* [rows][w.k] */
    const ares_matrix *w; /* [vocab][k] */
    /*
     * NULL: w is the whole head. Otherwise w is this part's rows, and the results are those of the
     * whole head, in every bit; only the head of the CPU's native table does that, without ref_x
     */
    const ares_vocab_parts *parts;
    const ares_head_adapter *adapter; /* NULL: none */
    float inv_temperature;
    const int32_t *target; /* [rows] */
    /* [rows]; written by forward, read (lse, entropy) by backward */
    float *log_prob, *entropy, *lse;
    /*
     * backward: d loss = c_log_prob d log_prob + c_entropy d entropy; dx is written, dw += (NULL:
     * frozen)
     */
    const float *c_log_prob, *c_entropy; /* [rows]; c_entropy may be NULL */
    void *dx;
    int64_t lddx;
    const ares_matrix *dw;
    /*
     * The exact KL(p || q) to another model's head (the reference) over the same vocabulary and at
     * the same temperature: sum of p (log p - log q). ref_x NULL: not wanted. head writes kl and
     * ref_lse; head_backward reads them and adds c_kl d kl to d loss, with q constant. head_fused
     * does not offer it.
     */
    const void *ref_x;
    int64_t ld_ref; /* [rows][ref_w.k] */
    const ares_matrix *ref_w;
    const ares_head_adapter *ref_adapter; /* b and u; NULL: none */
    float *kl, *ref_lse;                  /* [rows] */
    const float *c_kl;                    /* [rows] */
    /*
     * NULL: ref_x gives the KL above. Otherwise it gives this instead, in head_fused, too, whose
     * loss then writes divergence->c of its rows. Not in the CUDA table.
     */
    const ares_divergence_args *divergence;
    /*
     * backward, only where the table has rows_move: a row whose coefficients are all 0, and whose
     * statistics are finite, gets dx = 0 and adds nothing to dw, which is what computing it gives
     */
    bool skip_zero;
} ares_head_args;
/*
 * head_fused calls it per chunk of rows, in row order and from one thread, to fill c_log_prob and
 * c_entropy (zeroed before) of rows [row, row + n). The arrays lie on the device. Of this table it
 * may call copy, and it may call the losses of the room algo, which compute there; it must not
 * wait.
 */
typedef void ares_head_loss_fn(void *ctx, int32_t row, int32_t n, const float *log_prob,
                               const float *entropy, float *c_log_prob, float *c_entropy);

/*
 * One token per row: the argmax of z + Gumbel(key, token id) over the tokens that top_k and top_p
 * leave. log_prob and entropy are those that training computes again, bit for bit (CPU).
 */
typedef struct ares_sample_args {
    int32_t rows, vocab;
    const void *x;
    int64_t ldx;
    const ares_matrix *w;
    /*
     * NULL: w is the whole head. Otherwise w is this part's rows, and the results are those of the
     * whole head, in every bit; only the CPU's native table does that
     */
    const ares_vocab_parts *parts;
    const ares_head_adapter *adapter; /* b and u; NULL: none */
    /*
     * f32 [rows][vocab] before temperature, on the device; NULL: x Wt. x and w are not read when
     * the logits are there
     */
    const float *logits;
    /* [rows]; 0 is greedy (ties: lower id), and log_prob and entropy are then at temperature 1 */
    const float *temperature;
    /*
     * [rows], 1 = off; NULL: off. Probabilities are summed as integers in units of 2^-40
     * (docs/design.md#sampling)
     */
    const float *top_p;
    /*
     * [rows], 0 = off; NULL: off. Of equal logits at the limit the lower ids are kept. It is
     * applied first: top_p is a share of the probability that top_k leaves
     */
    const int32_t *top_k;
    /*
     * [rows]: of (seed, ..., position); the token id is the last coordinate. NULL where all rows
     * are greedy
     */
    const ares_rng_key *key;
    /* ids that are never drawn; statistics and likely tokens see them as any other */
    int32_t n_barred, barred[2];
    int32_t *token; /* [rows] */
    /* [rows] at the sampling temperature, over the full vocabulary */
    float *log_prob, *entropy;
    float *log_prob_1, *entropy_1; /* [rows] at temperature 1; NULL: not wanted */
    /*
     * The n_likely most likely tokens of each row before top_k and top_p, largest logit first
     * (ties: lower id), and their log-probs at temperature 1. Tokens of probability 0 are left out;
     * -1 and -inf fill a row that has fewer. 0: not wanted
     */
    int32_t n_likely; /* at most ARES_LIKELY_MAX */
    int32_t *likely_token;
    float *likely_log_prob; /* [rows][n_likely] */
} ares_sample_args;
#define ARES_LIKELY_MAX 64

/*
 * Blocks of the paged cache that become copies of others, in all layers. No block that is written
 * is read, too, or written twice.
 */
typedef struct ares_copy_blocks_args {
    void *cache; /* of the first layer; the next one lies layer_bytes after it */
    int32_t layers;
    int64_t layer_bytes;
    size_t block_bytes; /* of a block in one layer, a multiple of 16 */
    int32_t n;
    const int32_t *block; /* [n][2]: from, to; in host memory that may be reused on return */
} ares_copy_blocks_args;

/*
 * Prepares, on the device, a step of decoding that is launched before the host has read the tokens
 * of the step before:
 *
 *   ids[r] = token[from[r]]                  where from[r] is not -1
 *   cos_sin[r] = angles[positions[r]]        in a vision model, angles by row and by column come
 *                                            from rows positions_h[r] and positions_w[r]
 *   table[change[2 i]] = change[2 i + 1]     for i < *changes: block tables stay on the device
 */
typedef struct ares_advance_args {
    int32_t rows, head_dim;
    const int32_t *from, *token, *positions;  /* from, positions: [rows] */
    const int32_t *positions_h, *positions_w; /* NULL: as positions */
    int32_t by_time, by_row; /* angles of a head that turn by time, and by the row after them */
    int32_t *ids;            /* [rows] */
    const float *angles;     /* [positions][head_dim] */
    float *cos_sin;          /* [rows][head_dim], written */
    const int32_t *changes, *change; /* [1], [*changes][2]; on the device, too */
    int32_t *table;
} ares_advance_args;

/*
 * Decoupled AdamW (Loshchilov and Hutter 2019), elementwise, with g = grad * grad_scale, moments m
 * and v, and bias correction by step >= 1:
 *
 *   w -= lr * (m_hat / (sqrt(v_hat) + eps) + weight_decay * w)
 *
 * With a master, the master is updated and then rounded into w. kahan (AnyPrecision AdamW,
 * docs/update.md#optimizers-and-learning-rates): w, m, v and master are bf16 numbers, every
 * operation is rounded to bf16, and master holds c, what the rounding of w has left out:
 *
 *   w *= 1 - lr weight_decay    c -= lr m_hat / (sqrt(v_hat) + eps)    w' = w + c    c += w - w'
 */
typedef struct ares_adamw_args {
    int64_t n;
    void *w;
    ares_dtype dtype;
    bool kahan; /* only where w is bf16 */
    /* [n] f32, or bf16 with kahan; master NULL: w is f32 and is updated itself */
    void *master, *m, *v;
    const float *grad;
    double lr, beta1, beta2, eps, weight_decay, grad_scale;
    int64_t step;
} ares_adamw_args;

#define ARES_SUM_CHUNK 65536
#define ARES_GRAPH_ROWS 512 /* of a step that is kept as a graph */

/* ------------------------------------------------------------------ the table */
typedef struct ares_kernels {
    const char
        *name; /* "cpu plain", "cpu avx2", "cpu avx512", "cpu neon", "cuda", "cuda bf16" ... */
    ares_layout layout; /* of linear weights on this device */
    ares_dtype act;     /* of activations: ARES_F32 or ARES_BF16 */
    bool lists_keys;    /* packed attention reads key_start and key_row of the segments */
    /*
     * What a forward keeps of a row (rstd, lse of attention) lies in that row alone, so that whole
     * rows may move or be left out before a backward
     */
    bool rows_move;
    int8_t pair_words; /* floats that a packed pair of bf16 takes in scratch (1 or 2) */

    /* zeroed memory; NULL: the device has too little (ares_device_full) */
    void *(*alloc)(ares_device *d, size_t bytes);
    void (*release)(ares_device *d, void *p, size_t bytes);
    void (*copy_in)(ares_device *d, void *device, const void *host, size_t bytes);
    /*
     * Zeroed memory of the host that the device reads and writes by itself; NULL: the host has too
     * little. bring copies from it and store to it, beside the kernels: a copy begins when the
     * copies and all else that was launched before it are done, and what is launched after
     * `brought` begins when all copies so far are done. The host finds what was stored after the
     * next sync. None of them waits. brought NULL: bring and store are complete on return
     */
    void *(*alloc_host)(ares_device *d, size_t bytes);
    void (*release_host)(ares_device *d, void *p, size_t bytes);
    void (*bring)(ares_device *d, void *device, const void *host, size_t bytes);
    void (*brought)(ares_device *d);
    void (*store)(ares_device *d, void *host, const void *device, size_t bytes);
    /* complete on return */
    void (*copy_out)(ares_device *d, void *host, const void *device, size_t bytes);
    void (*copy)(ares_device *d, void *to, const void *from, size_t bytes); /* within the device */
    void (*copy_blocks)(ares_device *d, const ares_copy_blocks_args *a);
    void (*zero)(ares_device *d, void *p, size_t bytes);
    /* to[i] = from[i], rounded to nearest even; f32 and bf16 */
    void (*convert)(ares_device *d, void *to, ares_dtype to_type, const void *from,
                    ares_dtype from_type, int64_t n);
    int (*sync)(ares_device *d); /* waits, and returns the first failure since the last sync */

    /*
     * n products in one parallel region: q, k, v; gate, up; those of experts, where m may be 0. No
     * product reads or adds to what another writes.
     */
    void (*linear)(ares_device *d, const ares_linear_args *a, int n);
    void (*linear_backward)(ares_device *d, const ares_linear_backward_args *a, int n);

    /*
     * Row i of y [n][k] = scale * row ids[i] of e, of either layout; a scale of 0 is none.
     * Backward: de += scale * dy in row order, the product rounded to f32 before the sum; de is
     * f32, or, without a scale, of the activations' type where no id comes twice.
     */
    void (*embedding)(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y,
                      int64_t ldy, float scale);
    void (*embedding_backward)(ares_device *d, const ares_matrix *de, const int32_t *ids, int32_t n,
                               const void *dy, int64_t lddy, float scale);

    void (*rms_norm)(ares_device *d, const ares_rms_norm_args *a);
    void (*rms_norm_backward)(ares_device *d, const ares_rms_norm_args *a);
    /* of vision towers */
    void (*layer_norm)(ares_device *d, const ares_layer_norm_args *a);
    void (*layer_norm_backward)(ares_device *d, const ares_layer_norm_args *a);
    void (*activation)(ares_device *d, const ares_activation_args *a);
    void (*activation_backward)(ares_device *d, const ares_activation_args *a);

    /*
     * Rotates the pairs (i, i + turned/2) of every head's first `turned` numbers in place by the
     * angles of its row: cos_sin [rows][turned] holds cosines, then sines; the host makes it, for
     * one, three or no position axes. turned 0: all head_dim; fewer: CPU's native table.
     * NULL: no rotation. inverse: the transpose, for backward.
     */
    void (*rope)(ares_device *d, int32_t rows, int32_t heads, int32_t head_dim, int32_t turned,
                 void *x, int64_t ldx, const float *cos_sin, bool inverse);

    void (*gate_mul)(ares_device *d, const ares_gate_mul_args *a);
    void (*gate_mul_backward)(ares_device *d, const ares_gate_mul_args *a);

    /*
     * Stores row r of k and v [rows][n_kv * head_dim] in slot slots[r] of the paged cache: slot =
     * block * ARES_KV_BLOCK + offset. NULL where the table has rope_store. bf16: the CPU's cache of
     * attention with bf16; rows of a sequence then come in order
     */
    void (*store_kv)(ares_device *d, int32_t rows, int32_t n_kv, int32_t head_dim, const void *k,
                     const void *v, int64_t ldkv, const int32_t *slots, void *cache, bool bf16);
    void (*attention)(ares_device *d, const ares_attention_args *a);
    void (*attention_backward)(ares_device *d, const ares_attention_args *a);

    /*
     * Layers of experts. NULL in the CUDA table, and there alone: check route before a model with
     * experts is opened.
     */
    void (*route)(ares_device *d, const ares_route_args *a);
    void (*route_backward)(ares_device *d, const ares_route_args *a);
    void (*combine)(ares_device *d, const ares_combine_args *a);
    void (*combine_backward)(ares_device *d, const ares_combine_args *a);

    /* gated delta nets; NULL on cards, and in libtorch's table of bf16 */
    void (*conv)(ares_device *d, const ares_conv_args *a);
    void (*conv_backward)(ares_device *d, const ares_conv_args *a);
    void (*delta)(ares_device *d, const ares_delta_args *a);
    void (*delta_backward)(ares_device *d, const ares_delta_args *a);

    void (*head)(ares_device *d, const ares_head_args *a);
    void (*head_backward)(ares_device *d, const ares_head_args *a);
    /*
     * Forward and backward per chunk of rows, so that logits are computed once; the same bits as
     * head, loss, head_backward. Writes log_prob, entropy, lse, dx, dw.
     */
    void (*head_fused)(ares_device *d, const ares_head_args *a, ares_head_loss_fn *loss, void *ctx);
    void (*sample)(ares_device *d, const ares_sample_args *a);

    void (*adamw)(ares_device *d, const ares_adamw_args *a);
    /*
     * of_chunk[c], on the device: the sum of x^2 in f64 of chunk c, elements [c, c + 1) *
     * ARES_SUM_CHUNK up to n; NaN and infinity carry through
     */
    void (*square_sums)(ares_device *d, const float *x, int64_t n, double *of_chunk);
    void (*add)(ares_device *d, float *y, const float *x, int64_t n); /* y += x, f32 */

    /* ---------------- decoding that waits once per token; NULL where a call computes at once */
    /* in place of bias, head norms, rope and store_kv: one launch */
    void (*rope_store)(ares_device *d, const ares_rope_store_args *a);
    void (*advance)(ares_device *d, const ares_advance_args *a);
    void (*gather_kv)(ares_device *d, const ares_gather_args *a);
    void (*sum_keys)(ares_device *d, const ares_sum_keys_args *a);
    /*
     * fetch starts a copy to the host, after all that was launched before it, into one of two slots
     * of the device, and does not wait. fetched waits for that copy alone; *host is valid until the
     * slot's next fetch. It returns the first failure, as sync does.
     */
    void (*fetch)(ares_device *d, int slot, const void *device, size_t bytes);
    int (*fetched)(ares_device *d, int slot, const void **host);
    /*
     * What is launched between graph_begin and graph_end is kept as a graph instead of done.
     * graph_begin: false where the device cannot keep any. graph_end: NULL where something in
     * between cannot be kept; it holds no more than ARES_GRAPH_ROWS rows. graph_refusal: why the
     * last of them kept nothing. graph_launch does all of it, on the same addresses; false, and it
     * does nothing, where memory of the device has been released since: make the graph again.
     */
    bool (*graph_begin)(ares_device *d);
    void *(*graph_end)(ares_device *d);
    const char *(*graph_refusal)(const ares_device *d);
    bool (*graph_launch)(ares_device *d, void *graph);
    void (*graph_free)(ares_device *d, void *graph);
} ares_kernels;

/*
 * Opens "cpu" (threads <= 0: all) or "cuda", "cuda:1". The CPU's instruction set is the best that
 * the machine has, or the one that the environment names:
 * ARES_ISA=plain|avx2|avx512|avx512bf16|neon.
 */
int ares_device_open(const char *name, int threads, ares_device *out);
/*
 * The same with a table by name: "native", or "aten", libtorch's operators (only on "cpu"). Only
 * for "aten" and on a card is libtorch's library opened. act: the type of activations; the CPU's
 * native table ignores it, because its activations are always f32.
 */
int ares_device_open_table(const char *name, const char *table, ares_dtype act, int threads,
                           ares_device *out);
void ares_device_close(ares_device *d);
/*
 * Whether "cuda" may open a device here: there is a driver, or ARES_CUDA_LIB names a library, which
 * then says whether it has a card.
 */
bool ares_cuda_expected(void);
/*
 * With ARES_KERNEL_TIMES=1 a device takes the time of each call of its table, and closing it logs
 * them (docs/cards.md#where-time-goes). begin and end stand around what is no entry of the table;
 * they do nothing where no times are taken. what: a literal
 */
void ares_times_begin(ares_device *d, const char *what);
void ares_times_end(ares_device *d);
const char *ares_device_card(const ares_device *d); /* the product's name; NULL on the CPU */
/* Bytes of the card's memory in use now, by all processes; 0 on the CPU. */
double ares_device_memory_bytes(const ares_device *d);
double ares_device_total_bytes(const ares_device *d); /* of the card; 0 on the CPU */
/*
 * The failure (ARES_ELIMIT) after alloc, or alloc_host (in_host), gave NULL for these bytes:
 * "model: 1.20 GiB of weights do not fit on the device beside 3.10 GiB of this process; remedy".
 * remedy NULL: a hint to `ares-train plan`.
 */
int ares_device_full(const ares_device *d, const char *room, const char *what, size_t bytes,
                     bool in_host, const char *remedy);
/*
 * A device with the layout and types of the named one (as ares_device_open_table) that only counts
 * the memory it hands out: d->allocated is what a run would hold there. total_bytes: of a card.
 */
void ares_device_open_counting(const char *name, const char *table, ares_dtype act,
                               double total_bytes, ares_device *out);
/*
 * Bytes of scratch of all threads that the CPU's kernels keep from call to call, in addition to
 * what the device hands out: the most that calls of these sizes ask for.
 */
typedef struct ares_scratch_args {
    int threads;
    int32_t vocab, hidden, n_heads, n_kv_heads, head_dim;
    int32_t widest;  /* outputs of a product at most */
    int64_t rows;    /* of the head in a pass; 0: no head over the vocabulary */
    int64_t blocks;  /* of 32 packed keys in a pass */
    int64_t longest; /* rows of the longest segment in a pass with a backward */
    bool trained;    /* there is a backward */
    bool fused, ref; /* head_fused is used; the head computes the KL to a reference */
    bool diverges;   /* the head computes a divergence from a teacher */
    int64_t sampled; /* rows that are sampled together */
    bool filters;    /* by top-k or top-p */
    int32_t n_likely;
    int64_t packed_rows;  /* rows of a pass where weights are in pairs; 0: they are not */
    int32_t packed_width; /* of an operand of a product at most; the head packs its own */
    int pair_words;       /* as in ares_kernels */
    int32_t k_dim, v_dim,
        v_per_key; /* of delta nets; value heads of a key head. 0: there are none */
    bool shares;   /* answers share the pass of their prompt */
} ares_scratch_args;
size_t ares_kernels_scratch_bytes(const ares_scratch_args *a);
/*
 * The address that libares_cuda.so exports under a name, for rooms that have CUDA functions of
 * their own; NULL on the CPU and where there is no such name.
 */
void *ares_device_symbol(const ares_device *d, const char *name);
/*
 * f64 functions from polynomials of FMAs in a fixed order, the same bits on every machine: for
 * rotary tables, initialisation, schedules and whatever else reaches a weight.
 */
double ares_f64_sin(double x);
double ares_f64_cos(double x);
double ares_f64_exp(double x);
double ares_f64_log(double x);
double ares_f64_pow(double x, double y);

#ifdef __cplusplus
}
#endif

/*
 * kernels: device memory with two lives (docs/design.md#memory-in-two-phases). Rollout needs the KV
 * cache, training what a backward pass reads, and never both at once: they take turns in one
 * allocation, each from its start. Nothing is mapped, moved or copied when the phase changes.
 *
 * A phase begins when memory is first taken for it; memory taken for the other phase is gone then.
 * Whoever opens the allocation makes it as large as the larger phase needs. Where the device has no
 * such allocation, or it is full, memory comes from the device's alloc and stays valid in both
 * phases.
 */

typedef enum { ARES_PHASE_ROLLOUT, ARES_PHASE_TRAIN } ares_phase;

/* How much of the allocation a request of so many bytes takes. */
size_t ares_phase_size(size_t bytes);

/* Memory that its user keeps from pass to pass; all 0 at first. */
typedef struct ares_held {
    void *data;
    size_t bytes;
    int64_t turn; /* the number of the phase that it belongs to; 0: the user's own memory */
} ares_held;

/* One allocation for both phases of a device; at most one at a time. */
int ares_phases_open(ares_device *d, size_t bytes);
void ares_phases_close(ares_device *d);
size_t ares_phases_bytes(const ares_device *d); /* of the allocation; 0: there is none */
/*
 * At least so many bytes, aligned to 256, in h: the same memory as before where h holds enough. For
 * rollout it is zeroed where training has written, and only there. NULL: the device has too little.
 */
void *ares_phase_take(ares_device *d, ares_phase phase, ares_held *h, size_t bytes);
/* False where h has no memory, or the phase it was taken for has ended. */
bool ares_phase_holds(const ares_device *d, const ares_held *h);
void ares_phase_give_back(ares_device *d, ares_held *h);
#endif
