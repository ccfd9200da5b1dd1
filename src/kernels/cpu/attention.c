/*
 * Attention on the CPU, over packed keys or over the paged cache: first the small product that
 * attention uses and where the keys of a segment lie, then the backward, last the forward.
 */
#include <math.h>

#include "host.h"
#include "isa.h"
#include "vec.h"

/*
 * C[r][j] (+)= sum over t of A[r][t] B[t][j]: one chain of FMAs in the order of t per element,
 * lanes over j. It is attention's product: small, of any width, and it never reads past the end of
 * a row, because the last value of a cache may be the end of its memory; product (linear.c) needs
 * whole panels. Both strides of A are free; rows of B are contiguous. A tile is the block of rows x
 * lanes that registers hold: its size differs between instruction sets and at the edges, the chain
 * does not.
 */

#ifdef ARES_ISA_AVX512
enum { TILE_ROWS = 12 }; /* by 32 lanes: 24 sums, two of B, one of A, 27 of 32 registers */
enum { TILE_WIDE_ROWS = 1 << 30 }; /* every tile is so wide where there are lanes for it */
#elif defined ARES_ISA_NEON
enum { TILE_ROWS = 5 };      /* by 16 lanes: 20 + 4 + 5 of 32 (a v16 is four registers) */
enum { TILE_WIDE_ROWS = 2 }; /* by 32 lanes: 16 + 8 + 2 */
#else
enum { TILE_ROWS = 6 };      /* by 16 lanes: 12 + 2 + 1 of 16 (a v16 is two registers) */
enum { TILE_WIDE_ROWS = 3 }; /* by 32 lanes: 12 + 2 + 1; decoding has as many as a KV head serves */
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
    /*
     * bf16 arithmetic: steps counts pairs, b has a 32-bit word for each, and a has V16_DOT_STEPS
     * words, `step` apart, as the products of linear.c read them
     */
    bool pairs;
} tile_args;

V16_INLINE void tile_kernel(const tile_args *p, int rows, int vectors, const bool pairs)
{
    const int parts = pairs ? V16_DOT_STEPS : 1;
    v16 sum[12][2];
    float *c = p->c;
    int64_t ldc = p->ldc;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            sum[r][j] = p->fresh ? v16_zero() : v16_load(c + r * ldc + 16 * j);
            if (pairs) sum[r][j] = v16_flush(sum[r][j]);
        }
    const float *a0 = p->a, *a1 = a0 + 3 * p->row, *a2 = a1 + 3 * p->row, *a3 = a2 + 3 * p->row,
                *b = p->b;
    int64_t row = p->row, step = p->step, ldb = p->ldb;
    for (int t = p->steps; t > 0; t--) {
#pragma GCC unroll 2
        for (int part = 0; part < parts; part++) {
            v16 bv[2];
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                bv[j] = pairs ? v16_pairs(b + 16 * j, part) : v16_load(b + 16 * j);
#pragma GCC unroll 12
            for (int r = 0; r < rows; r++) {
                v16 av = v16_set1((r < 3 ? a0 : r < 6 ? a1 : r < 9 ? a2 : a3)[r % 3 * row]);
#pragma GCC unroll 2
                for (int j = 0; j < vectors; j++)
                    sum[r][j] =
                        pairs ? v16_dot(av, bv[j], sum[r][j]) : v16_fma(av, bv[j], sum[r][j]);
            }
            a0 += step, a1 += step, a2 += step, a3 += step;
        }
        b += ldb;
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) v16_store(c + r * ldc + 16 * j, sum[r][j]);
}

/* clang-format off */
#define TILE_CASE(n, vectors, pairs) case n: tile_kernel(p, n, vectors, pairs); break;
#ifdef ARES_ISA_AVX512
#define TILE_MORE_CASES(vectors, pairs) \
    TILE_CASE(7, vectors, pairs) TILE_CASE(8, vectors, pairs) TILE_CASE(9, vectors, pairs) \
    TILE_CASE(10, vectors, pairs) TILE_CASE(11, vectors, pairs) TILE_CASE(12, vectors, pairs)
#else
#define TILE_MORE_CASES(vectors, pairs)
#endif
#define TILE_CASES(vectors, pairs) \
    switch (rows) { \
        TILE_CASE(1, vectors, pairs) TILE_CASE(2, vectors, pairs) TILE_CASE(3, vectors, pairs) \
        TILE_CASE(4, vectors, pairs) TILE_CASE(5, vectors, pairs) TILE_CASE(6, vectors, pairs) \
        TILE_MORE_CASES(vectors, pairs) \
    }
#ifdef ARES_ISA_AVX512
#define TILE_WIDE_CASES(pairs) TILE_CASES(2, pairs)
#else
#define TILE_WIDE_CASES(pairs) \
    switch (rows) { \
        TILE_CASE(1, 2, pairs) TILE_CASE(2, 2, pairs) TILE_CASE(3, 2, pairs) \
    }
#endif
/* clang-format on */

static inline TILE_UNWATCHED void watch_tile(const tile_args *p, int rows, int lanes)
{
    int words = p->pairs ? p->steps * V16_DOT_STEPS : p->steps; /* of a row of A */
    if (p->row == 1) watch(false, p->a, words, p->step, rows, 4);
    else
        for (int r = 0; r < rows; r++) watch(false, p->a + r * p->row, words, p->step, 1, 4);
    watch(false, p->b, p->steps, p->ldb, lanes, 4);
    watch(true, p->c, rows, p->ldc, lanes, 4);
}

/* Not inlined: at every product, they would compile for minutes under the sanitizers. */
static __attribute__((noinline)) TILE_UNWATCHED void tile_16(const tile_args *p, int rows)
{
    watch_tile(p, rows, 16);
    TILE_CASES(1, false)
}
static __attribute__((noinline)) TILE_UNWATCHED void tile_16_pairs(const tile_args *p, int rows)
{
    watch_tile(p, rows, 16);
    TILE_CASES(1, true)
}
static __attribute__((noinline)) TILE_UNWATCHED void tile_32(const tile_args *p, int rows)
{
    watch_tile(p, rows, 32);
    TILE_WIDE_CASES(false)
}
static __attribute__((noinline)) TILE_UNWATCHED void tile_32_pairs(const tile_args *p, int rows)
{
    watch_tile(p, rows, 32);
    TILE_WIDE_CASES(true)
}

/* Fewer than 16 lanes, row by row: rare (a head_dim or a width that 16 does not divide). */
static __attribute__((noinline)) void tile_first(const tile_args *p, int rows, int lanes)
{
    for (int r = 0; r < rows; r++) {
        float *c = p->c + r * p->ldc;
        const float *a = p->a + r * p->row, *b = p->b;
        v16 sum = p->fresh ? v16_zero() : v16_load_first(c, lanes);
        for (int t = 0; t < p->steps && !p->pairs; t++, a += p->step, b += p->ldb)
            sum = v16_fma(v16_set1(*a), v16_load_first(b, lanes), sum);
        if (p->pairs) sum = v16_flush(sum);
        for (int t = 0; t < p->steps && p->pairs; t++, b += p->ldb) {
            float words[16];
            v16_store(words, v16_load_first(b, lanes));
            for (int part = 0; part < V16_DOT_STEPS; part++, a += p->step)
                sum = v16_dot(v16_set1(*a), v16_pairs(words, part), sum);
        }
        v16_store_first(c, sum, lanes);
    }
}

/* rows x lanes of C, any numbers of both. With no steps C stays, or is zeroed when fresh. */
static __attribute__((noinline, unused)) void tile_product(tile_args p, int rows, int lanes)
{
    uint32_t mode =
        p.pairs ? v16_flush_begin() : 0; /* its tiles are calls, too: none begins before */
    const float *a = p.a;
    float *c = p.c;
    for (int j = 0; j < lanes;) {
        int width = lanes - j >= 32 && rows <= TILE_WIDE_ROWS ? 32
                    : lanes - j >= 16                         ? 16
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
            if (width == 32) (p.pairs ? tile_32_pairs : tile_32)(&p, n);
            else if (width == 16) (p.pairs ? tile_16_pairs : tile_16)(&p, n);
            else tile_first(&p, n, width);
            r += n;
        }
        p.b += width;
        j += width;
    }
    if (p.pairs) v16_flush_end(mode);
}

/* Rows 2 p and 2 p + 1 of x as a row of words, the first in the high half; a partner that is not
 * there is +0. */
static void pair_rows(const float *x, int64_t ld, int rows, int width, float *to, int64_t ldto)
{
    for (int r = 0; r < rows; r += 2, x += 2 * ld, to += ldto)
        for (int i = 0; i < width; i += 16) {
            int n = width - i < 16 ? width - i : 16;
            v16 b = r + 1 < rows ? v16_load_first(x + ld + i, n) : v16_zero();
            v16_store_first(to + i, v16_pair(v16_load_first(x + i, n), b), n);
        }
}

/* Rows of 32 numbers as the A of a product that sums over them: V16_DOT_STEPS rows for two. */
static void pack_by_rows(float (*x)[32], int rows, float (*to)[32])
{
    if (V16_DOT_STEPS == 1) {
        pair_rows(x[0], 32, rows, 32, to[0], 32);
        return;
    }
    for (int r = 0; r < rows + rows % 2; r++)
        for (int i = 0; i < 32; i += 16)
            v16_store(to[r] + i, r < rows ? v16_round_bf16(v16_load(x[r] + i)) : v16_set1(-0.0f));
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
    int full = rows & ~3, wide = columns & ~3;
    for (int i = 0; i < full; i += 4)
        for (int j = 0; j < wide; j += 4) {
            const float *p = from + i * ld + j;
            f4 a = *(const f4 *)p, b = *(const f4 *)(p + ld), c = *(const f4 *)(p + 2 * ld),
               e = *(const f4 *)(p + 3 * ld);
            f4 ab0 = V4_SHUFFLE(a, b, 0, 4, 1, 5), ab1 = V4_SHUFFLE(a, b, 2, 6, 3, 7);
            f4 ce0 = V4_SHUFFLE(c, e, 0, 4, 1, 5), ce1 = V4_SHUFFLE(c, e, 2, 6, 3, 7);
            float *q = to + (int64_t)j * 32 + i;
            *(f4 *)q = V4_SHUFFLE(ab0, ce0, 0, 1, 4, 5);
            *(f4 *)(q + 32) = V4_SHUFFLE(ab0, ce0, 2, 3, 6, 7);
            *(f4 *)(q + 64) = V4_SHUFFLE(ab1, ce1, 0, 1, 4, 5);
            *(f4 *)(q + 96) = V4_SHUFFLE(ab1, ce1, 2, 3, 6, 7);
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

/*
 * Attention's backward: the probabilities are computed again from the saved log-sum-exp (Dao et
 * al., arXiv 2205.14135, section 3.1), then
 *
 *   dv += P^T dO    dP = dO V^T    dS = P (dP - sum(dO out)) scale    dq += dS K    dk += dS^T q
 *
 * A task owns a prefix with all segments that share it, for one KV head, and therefore every row of
 * dk and dv that it adds to. The order is: segments, the chunks of keys in each, the query heads of
 * a chunk, their rows.
 */

typedef struct backward_job {
    ares_device *d;
    const ares_attention_args *a;
    int32_t *next; /* [segments] the next segment with the same prefix, -1 at the end */
    int32_t *lead; /* [tasks / n_kv_heads] the first segment of each prefix */
} backward_job;

/*
 * One chunk of keys in the layouts that the products need, 32 * dim floats each; in bf16 arithmetic
 * half as many words: kt and vt [dim/2][32], k [16][dim].
 */
typedef struct chunk {
    float *kt, *vt, *k; /* keys and values transposed, keys */
    float *dk, *dv;     /* [32][dim], started from what a->dk and a->dv hold */
    float *wide;        /* with bf16: keys or values in f32, [dim][32] or [32][dim] */
    float *packed;      /* with bf16: BACKWARD_QUERIES rows of queries */
    int first, keys;
} chunk;

/* delta of a row: d_out . out, which is the mean of dp over its probabilities. */
static float dot(const float *a, const float *b, int n)
{
    v16 sum = v16_zero();
    int i = 0;
    for (; i + 16 <= n; i += 16) sum = v16_fma(v16_load(a + i), v16_load(b + i), sum);
    if (i < n) sum = v16_fma(v16_load_first(a + i, n - i), v16_load_first(b + i, n - i), sum);
    return v16_sum(sum);
}

/* c = rows of a [n][dim], packed with pairs, times a chunk's keys or values, transposed [dim][32]
 */
static void times_chunk(float (*c)[32], const float *a, int64_t lda, const float *b, int n, int dim,
                        bool pairs)
{
    tile_product((tile_args){ .c = c[0],
                              .ldc = 32,
                              .a = a,
                              .row = lda,
                              .step = 1,
                              .b = b,
                              .ldb = 32,
                              .steps = pairs ? dim / 2 : dim,
                              .fresh = true,
                              .pairs = pairs },
                 n, 32);
}

/*
 * c [keys][dim] += a [n][32], transposed, times b [n][dim]. With pairs both are packed by two rows.
 */
static void add_to_keys(float *c, const float (*a)[32], const float *b, int64_t ldb, int n,
                        int keys, int dim, bool pairs)
{
    tile_product((tile_args){ .c = c,
                              .ldc = dim,
                              .a = a[0],
                              .row = 1,
                              .step = 32,
                              .b = b,
                              .ldb = ldb,
                              .steps = pairs ? (n + 1) / 2 : n,
                              .pairs = pairs },
                 keys, dim);
}

/* Rows [first, first + n) of segment s and query head `head` against one chunk. */
static void rows_back(const ares_attention_args *a, const query_rows *x, int s, int head, int first,
                      int n, const chunk *c)
{
    float p[BACKWARD_QUERIES][32], ds[BACKWARD_QUERIES][32];
    int dim = a->head_dim, prefix = segment_prefix(&a->seg, s);
    int64_t row = a->seg.start[s] + first;
    const float *q = x->q + first * x->ldq, *d_out = x->d_out + first * x->ldo;
    float *dq = x->dq + first * x->lddq;
    int64_t ldq = x->ldq, ldo = x->ldo, words = packed_words(dim);

    if (a->bf16) { /* rows of q and d_out as what is multiplied, in c->packed */
        ARES_K(pack_rows)(q, ldq, n, dim, c->packed);
        times_chunk(p, c->packed, words, c->kt, n, dim, true);
        ARES_K(pack_rows)(d_out, ldo, n, dim, c->packed);
        times_chunk(ds, c->packed, words, c->vt, n, dim, true);
    } else {
        times_chunk(p, q, ldq, c->kt, n, dim, false);
        times_chunk(ds, d_out, ldo, c->vt, n, dim, false);
    }
    const v16 scale = v16_set1(a->scale);
    for (int r = 0; r < n; r++) {
        int position = prefix + first + r, high = a->causal ? position + 1 - c->first : 32,
            low = a->window > 0 ? position + 1 - a->window - c->first : 0;
        if (high > c->keys) high = c->keys;
        uint32_t seen = keys_between(ARES_MAX(low, 0), ARES_MAX(high, 0));
        /* from scores to probabilities, and from their derivatives to those of the scores */
        v16 lse = v16_set1(a->lse[(row + r) * a->n_heads + head]);
        v16 delta = v16_set1(x->delta[first + r]);
        for (int half = 0; half < 2; half++, seen >>= 16) {
            float *pp = p[r] + 16 * half, *dd = ds[r] + 16 * half;
            v16 e = v16_exp(v16_sub(v16_mul(v16_load(pp), scale), lse));
            e = v16_select(v16m_of(seen & 0xffff), e, v16_zero());
            v16_store(pp, e);
            /* ds = p (dp - delta) scale; p comes from the lse that the forward kept */
            v16_store(dd, v16_mul(v16_mul(e, v16_sub(v16_load(dd), delta)), scale));
        }
    }
    /* dq += ds k; then dv += p^T d_out and dk += ds^T q */
    float packed[BACKWARD_QUERIES][32 + 16];
    if (a->bf16) ARES_K(pack_rows)(ds[0], 32, n, 32, packed[0]);
    tile_product((tile_args){ .c = dq,
                              .ldc = x->lddq,
                              .a = a->bf16 ? packed[0] : ds[0],
                              .row = a->bf16 ? packed_words(32) : 32,
                              .step = 1,
                              .b = c->k,
                              .ldb = dim,
                              .steps = a->bf16 ? (c->keys + 1) / 2 : c->keys,
                              .pairs = a->bf16 },
                 n, dim);
    if (a->bf16) {
        float by_rows[BACKWARD_QUERIES][32];
        pack_by_rows(p, n, by_rows);
        pair_rows(d_out, ldo, n, dim, c->packed, dim);
        add_to_keys(c->dv, by_rows, c->packed, dim, n, c->keys, dim, true);
        pack_by_rows(ds, n, by_rows);
        pair_rows(q, ldq, n, dim, c->packed, dim);
        add_to_keys(c->dk, by_rows, c->packed, dim, n, c->keys, dim, true);
        return;
    }
    add_to_keys(c->dv, p, d_out, ldo, n, c->keys, dim, false);
    add_to_keys(c->dk, ds, q, ldq, n, c->keys, dim, false);
}

/* dk and dv of the chunk: from a->dk and a->dv into the chunk (load), or back. */
static void move_gradients(const ares_attention_args *a, int s, int h, const chunk *c, bool load)
{
    size_t bytes = (size_t)a->head_dim * sizeof(float);
    for (int i = 0; i < c->keys; i++) {
        int64_t at = key_row(&a->seg, s, c->first + i) * a->lddkv + (int64_t)h * a->head_dim;
        float *dk = c->dk + (int64_t)i * a->head_dim, *dv = c->dv + (int64_t)i * a->head_dim,
              *all_dk = (float *)a->dk + at, *all_dv = (float *)a->dv + at;
        memcpy(load ? dk : all_dk, load ? all_dk : dk, bytes);
        memcpy(load ? dv : all_dv, load ? all_dv : dv, bytes);
    }
}

/*
 * The queries of a segment and one head: where they lie, or copies without gaps. Rows that are far
 * apart meet in a few sets of the cache, and every chunk of keys visits all of them. scratch: as
 * scratch_floats_of_rows says.
 */
static query_rows open_rows(const ares_attention_args *a, int s, int head, bool copies,
                            float *scratch)
{
    int64_t row = a->seg.start[s], rows = segment_rows(&a->seg, s), dim = a->head_dim,
            column = head * dim;
    const float *out = (const float *)a->out + row * a->ldo + column;
    query_rows x = { .q = (const float *)a->q + row * a->ldq + column,
                     .d_out = (const float *)a->d_out + row * a->ldo + column,
                     .ldq = a->ldq,
                     .ldo = a->ldo,
                     .lddq = a->lddq,
                     .dq = (float *)a->dq + row * a->lddq + column,
                     .delta = scratch };
    for (int64_t r = 0; r < rows; r++)
        x.delta[r] = dot(x.d_out + r * x.ldo, out + r * a->ldo, (int)dim);
    if (!copies) return x;
    float *q = scratch + (rows + 15) / 16 * 16, *d_out = q + rows * dim;
    for (int64_t r = 0; r < rows; r++) {
        memcpy(q + r * dim, x.q + r * x.ldq, (size_t)dim * sizeof *q);
        memcpy(d_out + r * dim, x.d_out + r * x.ldo, (size_t)dim * sizeof *q);
    }
    x.q = q;
    x.d_out = d_out;
    x.dq = d_out + rows * dim;
    x.ldq = x.ldo = x.lddq = dim;
    memset(x.dq, 0, (size_t)(rows * dim) * sizeof *q);
    return x;
}

/* x: of the query heads of KV head h */
static void segment_back(const ares_attention_args *a, const query_rows *x, int s, int h, chunk *c)
{
    int dim = a->head_dim, prefix = segment_prefix(&a->seg, s), rows = segment_rows(&a->seg, s),
        keys = prefix + rows;
    int group = a->n_heads / a->n_kv_heads;
    const float *k = (const float *)a->k + (int64_t)h * dim,
                *v = (const float *)a->v + (int64_t)h * dim;
    for (c->first = 0; c->first < keys; c->first += 32) {
        c->keys = keys - c->first < 32 ? keys - c->first : 32;
        int first = a->causal && c->first > prefix ? c->first - prefix : 0,
            last = rows; /* queries that see the chunk */
        if (a->window > 0 && c->first + c->keys + a->window - 1 - prefix < last)
            last = c->first + c->keys + a->window - 1 - prefix;
        /* a chunk outside of every query's window */
        if (first >= last) continue;
        gather_transposed(&a->seg, s, c->first, c->keys, k, a->ldkv, dim,
                          a->bf16 ? c->wide : c->kt);
        if (a->bf16) pair_rows(c->wide, 32, dim, 32, c->kt, 32);
        gather_transposed(&a->seg, s, c->first, c->keys, v, a->ldkv, dim,
                          a->bf16 ? c->wide : c->vt);
        if (a->bf16) pair_rows(c->wide, 32, dim, 32, c->vt, 32);
        gather_rows(&a->seg, s, c->first, c->keys, k, a->ldkv, dim, a->bf16 ? c->wide : c->k);
        if (a->bf16) pair_rows(c->wide, dim, c->keys, dim, c->k, dim);
        move_gradients(a, s, h, c, true);
        for (int g = 0; g < group; g++)
            for (int r = first; r < last; r += BACKWARD_QUERIES)
                rows_back(a, &x[g], s, h * group + g, r,
                          last - r < BACKWARD_QUERIES ? last - r : BACKWARD_QUERIES, c);
        move_gradients(a, s, h, c, false);
    }
}

static void back_task(void *ctx, int64_t task, int worker)
{
    const backward_job *job = ctx;
    const ares_attention_args *a = job->a;
    int group = a->n_heads / a->n_kv_heads, dim = a->head_dim;
    int64_t size = 32 * (int64_t)dim, most = 0;
    int lead = job->lead[task / a->n_kv_heads], h = (int)(task % a->n_kv_heads);
    for (int s = lead; s >= 0; s = job->next[s]) most = ARES_MAX(most, segment_rows(&a->seg, s));
    bool copies = scratch_copies(group, most, dim);
    int64_t each = scratch_floats_of_rows(most, dim, copies);
    query_rows *x = kernels_scratch(job->d, worker, scratch_attention_back(group, most, dim));
    float *scratch = (float *)((char *)x + scratch_query_rows(group)), *wide = scratch + 5 * size,
          *packed = wide + size, *rows = packed + scratch_packed_queries(dim);
    /* lanes beyond the last key are computed and not used; they must hold numbers */
    memset(scratch, 0, (size_t)size * 2 * sizeof(float));
    memset(wide, 0, (size_t)size * sizeof(float));
    chunk c = { .kt = scratch,
                .vt = scratch + size,
                .k = scratch + 2 * size,
                .dk = scratch + 3 * size,
                .dv = scratch + 4 * size,
                .wide = wide,
                .packed = packed };
    /* dq, dk and dv of every segment's own rows, for KV head h and its query heads, begin at 0 */
    for (int s = lead; s >= 0; s = job->next[s])
        for (int64_t row = a->seg.start[s]; row < a->seg.start[s + 1]; row++) {
            memset((float *)a->dq + row * a->lddq + (int64_t)h * group * dim, 0,
                   (size_t)(group * dim) * sizeof(float));
            memset((float *)a->dk + row * a->lddkv + (int64_t)h * dim, 0,
                   (size_t)dim * sizeof(float));
            memset((float *)a->dv + row * a->lddkv + (int64_t)h * dim, 0,
                   (size_t)dim * sizeof(float));
        }
    for (int s = lead; s >= 0; s = job->next[s]) {
        for (int g = 0; g < group; g++)
            x[g] = open_rows(a, s, h * group + g, copies, rows + g * each);
        segment_back(a, x, s, h, &c);
        for (int g = 0; g < group; g++) { /* copies of dq go back to where dq lies */
            float *dq = (float *)a->dq + a->seg.start[s] * a->lddq + (int64_t)(h * group + g) * dim;
            for (int64_t r = 0; r < segment_rows(&a->seg, s) && dq != x[g].dq; r++)
                memcpy(dq + r * a->lddq, x[g].dq + r * dim, (size_t)dim * sizeof *dq);
        }
    }
}

void ARES_K(attention_backward)(ares_device *d, const ares_attention_args *a)
{
    const ares_segments *seg = &a->seg;
    ARES_ASSERT(!a->cache && a->n_heads % a->n_kv_heads == 0 && !(a->bf16 && a->head_dim % 2));
    int32_t *next = kernels_scratch(d, KERNELS_SHARED, (size_t)seg->n * 3 * sizeof(int32_t) + 1);
    int32_t *tail = next + seg->n, *lead = tail + seg->n, groups = 0;
    double work = 0.0;
    for (int s = 0; s < seg->n; s++) {
        int32_t leader = segment_leader(seg, s), rows = segment_rows(seg, s);
        next[s] = -1;
        /* segments that share a prefix add to the same dk and dv: one task does them in order */
        if (leader == s) lead[groups++] = s;
        else next[tail[leader]] = s;
        tail[leader] = s;
        work += (double)rows * (segment_prefix(seg, s) + (a->causal ? rows / 2 + 16 : rows)) *
                a->n_heads * a->head_dim * 10.0;
    }
    backward_job job = { d, a, next, lead };
    kernels_run(d, work / 100000, (int64_t)groups * a->n_kv_heads, back_task, &job);
}

/*
 * Attention over packed or paged keys. Packed keys are first copied into scratch in the layout of
 * the cache (it costs about a hundredth of a layer), so that one loop serves both: a query row
 * meets the chunks of 32 keys in order, and its numbers do not depend on the rows beside it.
 * Packed, paged and token by token give the same bits.
 *
 * A masked key has probability 0 and adds 0 * v to a chain. That can only turn a sum of -0 into +0,
 * which the final "+ 0" does for every sum anyway. Values beyond the last key of a segment are
 * never read.
 */

enum {
    /* queries of a task: a chunk of keys and values stays in L1 for all of them and their heads */
    QUERIES = 48,
    HEADS = 16, /* query heads of one KV head at a time */
    STRIP = 12, /* rows that go through scores, softmax and values together */
    FLOPS_PER_US = 100000
};

/*
 * Where the blocks of a segment's packed keys lie in scratch: the first `shared` ones, whole blocks
 * of its prefix, are those of segment `leader`; the others begin at block `first`.
 */
typedef struct block_range {
    int32_t leader, shared, first;
} block_range;

/* Queries of a segment from `first` on, at most QUERIES, and the heads of one KV head. */
typedef struct attention_unit {
    int32_t s, first, h;
} attention_unit;

typedef struct attention_job {
    ares_device *d;
    const ares_attention_args *a;
    const float *cache; /* numbers, or with bf16 words of two */
    float *laid_out;    /* packed: the keys and values as a cache, in scratch */
    block_range *range; /* packed: [segments] */
    attention_unit *unit;
    int64_t *first_unit; /* [tasks + 1] a task's units */
} attention_job;

/* The block of the cache, or of scratch, with keys 32 chunk .. of segment s. */
static int64_t block_of(const attention_job *job, int s, int chunk)
{
    if (job->a->cache)
        return job->a->seg.block_table[(int64_t)s * job->a->seg.table_stride + chunk];
    const block_range *range = &job->range[s];
    if (chunk < range->shared) range = &job->range[range->leader];
    return range->first + chunk - range->shared;
}

/* Of a chunk and KV head: keys transposed [dim][32] and values [32][dim]; with bf16 words of two
 * numbers of a key, [dim/2][32], and of two values, [16][dim]. */
static int64_t chunk_words(const ares_attention_args *a)
{
    return (a->bf16 ? 32 : 64) * (int64_t)a->head_dim;
}

/* The keys of a chunk for one KV head, transposed, and then its values. */
static const float *chunk_at(const attention_job *job, int s, int chunk, int h)
{
    const ares_attention_args *a = job->a;
    return job->cache + (block_of(job, s, chunk) * a->n_kv_heads + h) * chunk_words(a);
}

/* Blocks that a segment has beside those it shares: from the prefix's last, partial one on. */
static int32_t blocks_of(const ares_segments *seg, int s)
{
    int32_t prefix = segment_prefix(seg, s);
    return (prefix + segment_rows(seg, s) + 31) / 32 - prefix / 32;
}

/* Copies one segment's own packed keys and values of a KV head into the layout of the cache. */
static void lay_out_task(void *ctx, int64_t task, int worker)
{
    const attention_job *job = ctx;
    const ares_attention_args *a = job->a;
    const float *k = a->k, *v = a->v;
    int s = (int)(task / a->n_kv_heads), h = (int)(task % a->n_kv_heads), dim = a->head_dim;
    int32_t keys = segment_prefix(&a->seg, s) + segment_rows(&a->seg, s);
    for (int c = job->range[s].shared; c * 32 < keys; c++) {
        float *block = job->laid_out + (block_of(job, s, c) * a->n_kv_heads + h) * chunk_words(a);
        int n = keys - c * 32 < 32 ? keys - c * 32 : 32;
        if (a->bf16) {
            float *wide = kernels_scratch(job->d, worker, (size_t)dim * 32 * sizeof(float));
            memset(wide, 0, (size_t)dim * 32 * sizeof(float));
            gather_transposed(&a->seg, s, c * 32, n, k + h * dim, a->ldkv, dim, wide);
            pair_rows(wide, 32, dim, 32, block, 32);
            gather_rows(&a->seg, s, c * 32, n, v + h * dim, a->ldkv, dim, wide);
            pair_rows(wide, dim, n, dim, block + 16 * dim, dim);
            continue;
        }
        if (n < 32) memset(block, 0, (size_t)dim * 32 * sizeof(float));
        gather_transposed(&a->seg, s, c * 32, n, k + h * dim, a->ldkv, dim, block);
        gather_rows(&a->seg, s, c * 32, n, v + h * dim, a->ldkv, dim, block + 32 * dim);
    }
}

/* A strip: its row r is query r of one head, or head r of one query. */
typedef struct strip {
    const float *q;
    int64_t ldq;
    float *out;
    int64_t ldo;
    float *max, *sum; /* running, of every row */
    int rows;
    int low[STRIP], high[STRIP]; /* visible keys of the chunk, each in [0, 32] */
    bool pairs;                  /* bf16 arithmetic: q is packed */
} strip;

static size_t round_up(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* out times a factor, in rows whose bit is set. */
static void rescale_rows(const strip *s, uint32_t bits, const float *factor, int head_dim)
{
    for (; bits; bits &= bits - 1) {
        int r = __builtin_ctz(bits);
        float *out = s->out + r * s->ldo;
        v16 by = v16_set1(factor[r]);
        int d = 0;
        for (; d + 16 <= head_dim; d += 16) v16_store(out + d, v16_mul(v16_load(out + d), by));
        if (d < head_dim)
            v16_store_first(out + d, v16_mul(v16_load_first(out + d, head_dim - d), by),
                            head_dim - d);
    }
}

/* Online softmax: the strip's running maxima, sums and outputs take in one chunk of keys. */
static void strip_chunk(strip *s, const float *keys, const float *values, int head_dim, float scale)
{
    float p[STRIP][32];
    int low = 32, high = 0;
    for (int r = 0; r < s->rows; r++) {
        if (s->low[r] < low) low = s->low[r];
        if (s->high[r] > high) high = s->high[r];
    }
    if (low >= high) return;
    times_chunk(p, s->q, s->ldq, keys, s->rows, head_dim, s->pairs);
    /* Each step for all rows, so that no row waits for a sum or maximum across its own lanes. */
    const v16 minus_infinity = v16_set1(-INFINITY), factor = v16_set1(scale);
    float top[16] = { 0 }, total[16] = { 0 }, shift[16], rescale[16];
    for (int r = 0; r < s->rows; r++) {
        v16 a = v16_mul(v16_load(p[r]), factor), b = v16_mul(v16_load(p[r] + 16), factor);
        if (s->low[r] > 0 || s->high[r] < 32) {
            uint32_t seen = keys_between(s->low[r], s->high[r]);
            a = v16_select(v16m_of(seen & 0xffff), a, minus_infinity);
            b = v16_select(v16m_of(seen >> 16), b, minus_infinity);
        }
        v16_store(p[r], a);
        v16_store(p[r] + 16, b);
        top[r] = v16_max_lane(v16_max(a, b));
    }
    v16 old = v16_load_first(s->max, s->rows), max = v16_max(v16_load(top), old);
    /* a row that has seen no key yet: -inf less -inf would be NaN */
    v16 base = v16_select(v16_eq(max, minus_infinity), v16_zero(), max),
        factors = v16_exp(v16_sub(old, base));
    v16_store(shift, base);
    v16_store(rescale, factors);
    v16_store_first(s->max, max, s->rows);
    for (int r = 0; r < s->rows; r++) {
        v16 by = v16_set1(shift[r]), a = v16_exp(v16_sub(v16_load(p[r]), by)),
            b = v16_exp(v16_sub(v16_load(p[r] + 16), by));
        v16_store(p[r], a);
        v16_store(p[r] + 16, b);
        total[r] = v16_sum(v16_add(a, b));
    }
    v16_store_first(s->sum,
                    v16_add(v16_mul(v16_load_first(s->sum, s->rows), factors), v16_load(total)),
                    s->rows);
    uint32_t moved = v16m_bits(v16m_not(v16_eq(max, old))) &
                     ((1u << s->rows) - 1); /* for the others the factor is exactly 1 */
    rescale_rows(s, moved, rescale, head_dim);
    if (s->pairs) {
        /* whole pairs: a key that is not seen has probability 0, and one beyond the last is 0 */
        float packed[STRIP][32 + 16];
        low = low / 2 * 2;
        ARES_K(pack_rows)(p[0], 32, s->rows, 32, packed[0]);
        tile_product((tile_args){ .c = s->out,
                                  .ldc = s->ldo,
                                  .a = packed[0] + low / 2 * V16_DOT_STEPS,
                                  .row = packed_words(32),
                                  .step = 1,
                                  .b = values + (int64_t)low / 2 * head_dim,
                                  .ldb = head_dim,
                                  .steps = (high - low + 1) / 2,
                                  .pairs = true },
                     s->rows, head_dim);
        return;
    }
    tile_product((tile_args){ .c = s->out,
                              .ldc = s->ldo,
                              .a = p[0] + low,
                              .row = 32,
                              .step = 1,
                              .b = values + (int64_t)low * head_dim,
                              .ldb = head_dim,
                              .steps = high - low },
                 s->rows, head_dim);
}

/* out / sum; the + 0 turns -0 into 0 (see above). */
static void finish_row(float *out, int head_dim, float sum)
{
    v16 divisor = v16_set1(sum);
    for (int d = 0; d < head_dim; d += 16) {
        int n = head_dim - d < 16 ? head_dim - d : 16;
        v16_store_first(out + d, v16_add(v16_div(v16_load_first(out + d, n), divisor), v16_zero()),
                        n);
    }
}

/*
 * Queries [first, first + n) of segment s against all keys they see, for query heads [head, head +
 * heads), which belong to KV head h.
 */
static void attend(const attention_job *job, int worker, int s, int first, int n, int h, int head,
                   int heads)
{
    const ares_attention_args *a = job->a;
    int dim = a->head_dim, prefix = segment_prefix(&a->seg, s),
        keys = prefix + segment_rows(&a->seg, s);
    int64_t row = a->seg.start[s] + first, column = (int64_t)head * dim;
    const float *q = (const float *)a->q + row * a->ldq + column;
    float *out = (float *)a->out + row * a->ldo + column;
    float max[QUERIES * HEADS], sum[QUERIES * HEADS], *to = out;

    /* Rows of a strip: queries of one head or, when they are few (decoding), heads of a query. */
    bool across = n < heads;
    int bands = across ? n : heads, rows = across ? heads : n;
    int64_t band_q = across ? a->ldq : dim, row_q = across ? dim : a->ldq,
            band_o = across ? a->ldo : dim, row_o = across ? dim : a->ldo;
    /*
     * many queries: copies without gaps, so that rows do not meet in a few sets of the cache; in
     * bf16 arithmetic always, of q as it is multiplied
     */
    if (!across || a->bf16) {
        int64_t wide = a->bf16 ? packed_words(dim) : dim;
        float *own =
            kernels_scratch(job->d, worker, (size_t)(bands * rows * (wide + dim)) * sizeof *own);
        for (int band = 0; band < bands; band++)
            for (int r = 0; r < rows; r++) {
                float *copy = own + (band * rows + r) * wide;
                const float *from = q + band * band_q + r * row_q;
                if (a->bf16) ARES_K(pack_rows)(from, dim, 1, dim, copy);
                else memcpy(copy, from, (size_t)dim * sizeof *own);
            }
        q = own;
        row_q = wide;
        band_q = rows * wide;
        if (!across) {
            out = own + bands * rows * wide;
            row_o = dim;
            band_o = (int64_t)rows * dim;
        }
    }
    for (int band = 0; band < bands; band++)
        for (int r = 0; r < rows; r++) {
            max[band * rows + r] = -INFINITY;
            sum[band * rows + r] = 0.0f;
            memset(out + band * band_o + r * row_o, 0, (size_t)dim * sizeof(float));
        }

    int last_seen = a->causal ? prefix + first + n : keys;
    int first_seen = a->window > 0 ? prefix + first + 1 - a->window : 0;
    for (int c = first_seen > 0 ? first_seen / 32 : 0; c * 32 < last_seen; c++) {
        const float *block = chunk_at(job, s, c, h);
        /* decoding reads each block once: fetch the next one while this one is used */
        if (across && (c + 1) * 32 < last_seen) {
            const char *next = (const char *)chunk_at(job, s, c + 1, h);
            for (int i = 0; i < (a->bf16 ? 128 : 256) * dim; i += 64)
                __builtin_prefetch(next + i, 0, 2);
        }
        for (int band = 0; band < bands; band++)
            for (int r0 = 0; r0 < rows; r0 += STRIP) {
                strip st = { .q = q + band * band_q + r0 * row_q,
                             .ldq = row_q,
                             .out = out + band * band_o + r0 * row_o,
                             .ldo = row_o,
                             .max = max + band * rows + r0,
                             .sum = sum + band * rows + r0,
                             .rows = rows - r0 < STRIP ? rows - r0 : STRIP,
                             .pairs = a->bf16 };
                for (int r = 0; r < st.rows; r++) {
                    int position = prefix + first + (across ? band : r0 + r);
                    int high = (a->causal ? position + 1 : keys) - c * 32,
                        low = a->window > 0 ? position + 1 - a->window - c * 32 : 0;
                    st.high[r] = high < 0 ? 0 : high > 32 ? 32 : high;
                    st.low[r] = low < 0 ? 0 : low > 32 ? 32 : low;
                }
                strip_chunk(&st, block, block + chunk_words(a) / 2, dim, a->scale);
            }
    }
    for (int band = 0; band < bands; band++)
        for (int r = 0; r < rows; r++) {
            float total = sum[band * rows + r];
            finish_row(out + band * band_o + r * row_o, dim, total);
            if (!across)
                memcpy(to + band * dim + r * a->ldo, out + band * band_o + r * row_o,
                       (size_t)dim * sizeof *out);
            if (a->lse) {
                int64_t query = row + (across ? band : r);
                a->lse[query * a->n_heads + head + (across ? r : band)] =
                    max[band * rows + r] + v16_max_lane(v16_log(v16_set1(total)));
            }
        }
}

static void attend_task(void *ctx, int64_t task, int worker)
{
    const attention_job *job = ctx;
    const ares_attention_args *a = job->a;
    int group = a->n_heads / a->n_kv_heads;
    for (int64_t i = job->first_unit[task]; i < job->first_unit[task + 1]; i++) {
        const attention_unit *u = &job->unit[i];
        int left = segment_rows(&a->seg, u->s) - u->first;
        for (int g = 0; g < group; g += HEADS)
            attend(job, worker, u->s, u->first, left < QUERIES ? left : QUERIES, u->h,
                   u->h * group + g, group - g < HEADS ? group - g : HEADS);
    }
}

/* FLOPs of a block of queries for one KV head: the measure of a task's work. */
static double cost_of(const ares_attention_args *a, int s, int first)
{
    int n = segment_rows(&a->seg, s), rows = n - first < QUERIES ? n - first : QUERIES;
    double keys = segment_prefix(&a->seg, s) + (a->causal ? first + rows : n);
    if (a->window > 0 && keys > a->window + rows) keys = a->window + rows;
    return (keys + 16.0) * rows * (a->n_heads / a->n_kv_heads) * (4.0 * a->head_dim + 64.0);
}

/* Divides the units into tasks of about equal work; returns how many. */
static int64_t divide_units(const attention_job *job, int64_t units, double share)
{
    const ares_attention_args *a = job->a;
    int64_t tasks = 0;
    double load = 0.0;
    job->first_unit[0] = 0;
    for (int64_t u = 0; u < units; u++) {
        load += cost_of(a, job->unit[u].s, job->unit[u].first);
        if (load >= share || u + 1 == units) {
            job->first_unit[++tasks] = u + 1;
            load = 0.0;
        }
    }
    return tasks;
}

void ARES_K(attention)(ares_device *d, const ares_attention_args *a)
{
    const ares_segments *seg = &a->seg;
    ARES_ASSERT(a->n_heads % a->n_kv_heads == 0 && !(a->bf16 && a->head_dim % 2));
    int64_t items = 0, blocks = 0;
    for (int s = 0; s < seg->n; s++) {
        items += (segment_rows(seg, s) + QUERIES - 1) / QUERIES;
        if (!a->cache) blocks += blocks_of(seg, s);
    }
    if (items == 0) return;
    int64_t units = items * a->n_kv_heads;

    size_t blocks_bytes = round_up(scratch_attention(blocks, a->n_kv_heads, a->head_dim));
    size_t range_bytes = round_up((size_t)seg->n * sizeof(block_range)),
           unit_bytes = round_up((size_t)units * sizeof(attention_unit));
    char *scratch = kernels_scratch(d, KERNELS_SHARED,
                                    blocks_bytes + range_bytes + unit_bytes +
                                        (size_t)(units + 1) * sizeof(int64_t));
    attention_job job = { .d = d,
                          .a = a,
                          .cache = a->cache,
                          .laid_out = (void *)scratch,
                          .range = (void *)(scratch + blocks_bytes),
                          .unit = (void *)(scratch + blocks_bytes + range_bytes),
                          .first_unit =
                              (void *)(scratch + blocks_bytes + range_bytes + unit_bytes) };
    double total = 0.0;
    int64_t count = 0;
    /* head after head, so that the keys of one stay in cache for all queries of a segment */
    for (int s = 0; s < seg->n; s++)
        for (int h = 0; h < a->n_kv_heads; h++)
            for (int first = 0; first < segment_rows(seg, s); first += QUERIES) {
                job.unit[count++] = (attention_unit){ s, first, h };
                total += cost_of(a, s, first);
            }
    /* eight tasks per thread even out their ends, of no less than 10 us each */
    double share = total / (8.0 * ares_pool_threads(d->pool));
    int64_t tasks = divide_units(&job, units, share < 1e6 ? 1e6 : share);

    if (!a->cache) {
        int32_t block = 0;
        for (int s = 0; s < seg->n; s++) {
            job.range[s] = (block_range){ .leader = segment_leader(seg, s),
                                          .shared = segment_prefix(seg, s) / 32,
                                          .first = block };
            block += blocks_of(seg, s);
        }
        kernels_run(d, (double)blocks * a->n_kv_heads * a->head_dim * 64 / 4e3,
                    (int64_t)seg->n * a->n_kv_heads, lay_out_task, &job);
        job.cache = job.laid_out;
    }
    kernels_run(d, total / FLOPS_PER_US, tasks, attend_task, &job);
}
