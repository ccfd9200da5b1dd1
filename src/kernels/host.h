/*
 * Private to kernels: what the CPU tables share (memory, threads, short floats, scratch, a row's
 * logits chunk by chunk) and the device that only counts.
 */
#ifndef ARES_KERNELS_HOST_H
#define ARES_KERNELS_HOST_H

#include <stdint.h>

#include "ares/kernels.h"
#include "count.h"

/* Memory and threads of a CPU device, shared by all its instruction sets. */

/*
 * Runs tasks 0 .. tasks - 1 on the device's pool, or one after the other where waking the other
 * threads would not pay. work_us: the microseconds that one thread needs for all of them.
 */
void kernels_run(ares_device *d, double work_us, int64_t tasks, ares_task_fn *fn, void *ctx);
/*
 * At least `bytes` of memory of one worker (0 <= worker < threads), 64-byte aligned and not zeroed.
 * A later call for the same worker returns the same memory again, or larger memory in its place.
 * Worker KERNELS_SHARED is the calling thread, for what all workers read; KERNELS_PACKED the same,
 * for operands of a product in bf16 arithmetic, whose others may lie in the first.
 */
enum { KERNELS_SHARED = -1, KERNELS_PACKED = -2 };
void *kernels_scratch(ares_device *d, int worker, size_t bytes);
void kernels_scratch_new(ares_device *d); /* once the device has its pool */
void kernels_scratch_free(ares_device *d);

void *kernels_host_alloc(ares_device *d, size_t bytes);
void kernels_host_release(ares_device *d, void *p, size_t bytes);
void kernels_host_copy(ares_device *d, void *to, const void *from, size_t bytes);
void kernels_host_copy_blocks(ares_device *d, const ares_copy_blocks_args *a);
void kernels_host_zero(ares_device *d, void *p, size_t bytes);
void kernels_host_convert(ares_device *d, void *to, ares_dtype to_type, const void *from,
                          ares_dtype from_type, int64_t n);
int kernels_host_sync(ares_device *d);
/*
 * The CPU's table of one instruction set ("plain", "avx2", "avx512", "neon"); NULL where the
 * machine lacks it. For tests.
 */
const ares_kernels *kernels_cpu(const char *isa);

/*
 * Rows by expert, from route's `expert`: a counting sort, which keeps their order, writes first,
 * row_of and slot_of. next [experts] is scratch.
 */
static inline void kernels_sort_rows(const ares_route_args *a, int32_t *next)
{
    int64_t pairs = (int64_t)a->rows * a->used;
    for (int32_t e = 0; e <= a->experts; e++) a->first[e] = 0;
    for (int64_t i = 0; i < pairs; i++) a->first[a->expert[i] + 1]++;
    for (int32_t e = 0; e < a->experts; e++) {
        next[e] = a->first[e];
        a->first[e + 1] += a->first[e];
    }
    for (int64_t i = 0; i < pairs; i++) {
        a->slot_of[i] = next[a->expert[i]]++;
        a->row_of[a->slot_of[i]] = (int32_t)(i / a->used);
    }
}

/* Puts a table that takes times on an open device where ARES_KERNEL_TIMES asks for it. (times.c) */
void times_open(ares_device *d);
/* Logs the times and takes that table off; nothing where there is none. */
void times_close(ares_device *d);

/* Half-precision numbers, rounded to nearest even (host.c). */

float kernels_bf16_to_f32(uint16_t x);
uint16_t kernels_f32_to_bf16(float x);
float kernels_f16_to_f32(uint16_t x);
uint16_t kernels_f32_to_f16(float x);

/* Statistics of a row's logits per chunk of the vocabulary, and what ranks exchange of them. */

/* Of a chunk, with e = exp(z - max): the sum of e, and of e (z - max). */
typedef struct vocab_part {
    float max, sum, sum_z;
} vocab_part;

typedef struct best {
    float key, logit;
    int32_t token;
} best; /* logit: before temperature; token -1: none */

typedef struct likely {
    float z;
    int32_t token;
} likely; /* z before temperature */

/* A chunk of a row as one part of the vocabulary has computed it. */
typedef struct chunk_result {
    vocab_part part, part_1;
    best best;
} chunk_result;

/*
 * Bytes of scratch that the CPU's kernels take beside a device's memory, each as its kernel asks
 * for it; ares-train plan counts the largest (host.c).
 */

enum {
    FORWARD_ROWS = 4096,       /* of the head's forward: rows whose parts are held at once */
    BACKWARD_ROWS = 1024,      /* rows of a block of its backward, at most */
    BACKWARD_LOGITS = 1 << 20, /* its logits, at most */
    FUSED_LOGITS = 1 << 24,    /* 64 MiB of logits, but never fewer rows than FUSED_ROWS */
    FUSED_ROWS = 128,
    LD_PAD = 16, /* rows at a distance of a power of two would share the same cache sets */
    /* rows of a task at most: x, a panel and a chunk of logits share the second-level cache */
    VOCAB_ROWS = 56,
    VOCAB_K = 1024,         /* steps of k at once, so that a panel stays in that cache */
    COPIES_BYTES = 8 << 20, /* most that attention copies: what a core has of the last cache */
    SAMPLED_ROWS = 256,     /* rows sampled at once */
    SAMPLED_LOGITS = 1 << 24,
    BACKWARD_QUERIES = 48, /* of attention's backward at once */
    DX_N = 1024,           /* steps of a transposed panel held at once */
    PACKED_ROWS = 2048     /* of the operands of a product in bf16 arithmetic at once */
};

/* Of a chunk, in addition to its vocab_part: the reference's part, and the sum of e (z - z_ref). */
typedef struct kl_part {
    vocab_part ref;
    float cross;
} kl_part;
/* Of a chunk: both softmaxes, the sums of e (z - z_ref) and e_ref (z_ref - z), each logit less the
 * largest of its own chunk, and the likeliest ids. */
typedef struct divergence_part {
    vocab_part own, ref;
    float cross, ref_cross;
    int32_t top, ref_top;
} divergence_part;
typedef struct candidate {
    float z;
    int32_t token;
    uint64_t mass;
} candidate; /* z at the sampling temperature */
typedef enum { GUMBEL, GREEDY, FILTERED } row_kind;
typedef struct row_plan {
    row_kind kind;
    float inv_temperature;
    float *logits; /* FILTERED: [vocab] */
} row_plan;
typedef struct query_rows {
    const float *q, *d_out;
    int64_t ldq, ldo, lddq;
    float *dq;
    float *delta; /* [rows]: d_out . out */
} query_rows;

/* ---------------- shared by all threads */
/* chunks: of the vocabulary */
static inline size_t scratch_head(int64_t rows, int64_t chunks, bool ref)
{
    return (size_t)(ARES_MIN(rows, FORWARD_ROWS) * chunks) *
           (sizeof(vocab_part) + (ref ? sizeof(kl_part) : 0));
}
/* Chunks of the vocabulary whose logits are held at once for a block of rows. */
static inline int64_t scratch_backward_chunks(int64_t rows)
{
    return ARES_MAX(1, BACKWARD_LOGITS / ARES_VOCAB_CHUNK / rows);
}
static inline int64_t scratch_backward_ld(int64_t rows, int64_t chunks)
{
    return ARES_MIN(scratch_backward_chunks(rows), chunks) * ARES_VOCAB_CHUNK + LD_PAD;
}
static inline size_t scratch_head_backward(int64_t rows, int64_t chunks)
{
    int64_t block = ARES_MIN(rows, BACKWARD_ROWS);
    return (size_t)(block * scratch_backward_ld(block, chunks)) * sizeof(float);
}
static inline int64_t scratch_fused_rows(int64_t rows, int64_t chunks)
{
    return ARES_MIN(rows,
                    ARES_MAX(FUSED_ROWS, FUSED_LOGITS / (chunks * ARES_VOCAB_CHUNK + LD_PAD)));
}
static inline size_t scratch_head_fused(int64_t rows, int64_t chunks)
{
    size_t ld = (size_t)(chunks * ARES_VOCAB_CHUNK + LD_PAD);
    return (size_t)scratch_fused_rows(rows, chunks) *
           ((ld + 2) * sizeof(float) + (size_t)chunks * sizeof(vocab_part));
}
/* The same where a divergence keeps the logits of two models: half as many rows at once. */
static inline int64_t scratch_diverging_rows(int64_t rows, int64_t chunks)
{
    return ARES_MIN(rows,
                    ARES_MAX(FUSED_ROWS, FUSED_LOGITS / 2 / (chunks * ARES_VOCAB_CHUNK + LD_PAD)));
}
static inline size_t scratch_diverging(int64_t rows, int64_t chunks)
{
    size_t ld = (size_t)(chunks * ARES_VOCAB_CHUNK + LD_PAD);
    return (size_t)scratch_diverging_rows(rows, chunks) *
           (2 * (ld + 1) * sizeof(float) +
            (size_t)chunks * (sizeof(vocab_part) + sizeof(divergence_part)));
}
/* blocks: of 32 packed keys, in the layout of the cache */
static inline size_t scratch_attention(int64_t blocks, int64_t kv_heads, int64_t head_dim)
{
    return (size_t)(blocks * kv_heads * 64 * head_dim) * sizeof(float);
}
static inline int64_t scratch_filtered(int64_t vocab)
{
    return ARES_MAX(16, SAMPLED_LOGITS / vocab); /* rows at once */
}
static inline size_t scratch_sample(int64_t rows, int64_t chunks, int64_t filtered, int64_t vocab)
{
    return (size_t)(rows * chunks) * (2 * sizeof(vocab_part) + sizeof(best)) +
           (size_t)rows * sizeof(row_plan) + (size_t)(filtered * vocab) * sizeof(float);
}
static inline size_t scratch_likely(int64_t lists, int64_t n_likely)
{
    return (size_t)lists * ((size_t)n_likely * sizeof(likely) + sizeof(int32_t));
}

/* Rows of k numbers as a product in bf16 arithmetic reads them. pair_words: of two numbers */
static inline size_t scratch_packed(int64_t rows, int64_t k, int pair_words)
{
    return (size_t)((rows + 1) * ((k + 31) / 32 * 16 * pair_words + 16)) * sizeof(float);
}

/* ---------------- of each thread */
/* pairs: a weight is in pairs, and x is packed in each task */
static inline size_t scratch_vocab_task(int64_t rows, bool ref, bool pairs)
{
    return (size_t)rows * ARES_VOCAB_CHUNK * (ref ? 2 : 1) * sizeof(float) +
           (pairs ? scratch_packed(VOCAB_ROWS, VOCAB_K, 2) : 0);
}
static inline size_t scratch_panel(int64_t n)
{
    return (size_t)ARES_MIN(DX_N, n) * 32 * sizeof(float);
}
/*
 * Of a delta net. Backward: dS of the value heads of a key head, the states of ARES_DELTA_KEPT
 * tokens, their m and u; where answers share a prompt, S and dS at its end as well.
 */
static inline size_t scratch_delta(int64_t k_dim, int64_t v_dim, int64_t per_key, bool back,
                                   bool shared)
{
    int64_t tile = k_dim * 32, set = per_key * ((v_dim + 31) / 32) * tile,
            floats =
                (shared ? 3 : 1) * set + (ARES_DELTA_KEPT + 1) * tile + 2 * ARES_DELTA_KEPT * 32;
    return (size_t)(back ? floats : 2 * tile) * sizeof(float);
}
/* Floats for the queries of a segment and one head; with copies of them, or without. */
static inline int64_t scratch_floats_of_rows(int64_t rows, int64_t head_dim, bool copies)
{
    return (rows + 15) / 16 * 16 * (1 + (copies ? 3 * head_dim : 0));
}
static inline bool scratch_copies(int64_t group, int64_t rows, int64_t head_dim)
{
    return group * scratch_floats_of_rows(rows, head_dim, true) * (int64_t)sizeof(float) <=
           COPIES_BYTES;
}
static inline size_t scratch_query_rows(int64_t group)
{
    return ((size_t)group * sizeof(query_rows) + 63) / 64 * 64;
}
/* Floats for the queries of a block as a product in bf16 arithmetic reads them. */
static inline int64_t scratch_packed_queries(int64_t head_dim)
{
    return BACKWARD_QUERIES * ((head_dim + 31) / 32 * 32 + 16);
}
/* group: query heads of a KV head; rows: of the longest segment */
static inline size_t scratch_attention_back(int64_t group, int64_t rows, int64_t head_dim)
{
    int64_t each = scratch_floats_of_rows(rows, head_dim, scratch_copies(group, rows, head_dim));
    return scratch_query_rows(group) +
           (size_t)(192 * head_dim + scratch_packed_queries(head_dim) + group * each) *
               sizeof(float);
}
#endif
