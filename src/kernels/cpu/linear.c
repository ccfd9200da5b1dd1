/*
 * y = x Wt and its two gradients. A tile, the block of sums that registers hold, has up to
 * TILE_ROWS rows by 32 columns and keeps them over the whole of k, so that every output is one
 * chain of FMAs. Small batches take several panels at once, to hide the latency of a chain.
 */
#include "isa.h"

#if defined ARES_ISA_AVX512
enum { TILE_ROWS = 14, TILE_WIDE_ROWS = 14 }; /* 28 sums, 2 weights, 1 input of 32 registers */
#elif defined ARES_ISA_AVX2
/* of 16 registers of 8 lanes: above 3 rows a panel is computed in two halves */
enum { TILE_ROWS = 6, TILE_WIDE_ROWS = 3 };
#elif defined ARES_ISA_NEON
/* of 32 registers of 4 lanes: 20 sums, 4 weights, 5 inputs for half a panel; 16, 8, 2 for a whole
 * one */
enum { TILE_ROWS = 5, TILE_WIDE_ROWS = 2 };
#else
enum { TILE_ROWS = 4, TILE_WIDE_ROWS = 4 };
#endif
enum { TILE_MAX_PANELS = 4, PREFETCH_BYTES = 2048, NEXT_LINE = 64 };

/* BY_K: x_row = 1 */
typedef enum {
    TILE_F32,
    TILE_BF16,
    TILE_F32_BY_K,
    TILE_PAIRS,
    TILE_PAIRS_BY_K,
    TILE_KINDS
} tile_kind;
#define TILE_IS_BY_K(kind) ((kind) == TILE_F32_BY_K || (kind) == TILE_PAIRS_BY_K)
#define TILE_IS_PAIRS(kind) ((kind) == TILE_PAIRS || (kind) == TILE_PAIRS_BY_K)

/*
 * A tile's rows of x against its panels of w; the parameters are named as in product_args. next:
 * memory that is read soon after, prefetched next_step bytes further at each step. Parameters
 * rather than a struct: with one, GCC keeps two more of them in memory inside the loop.
 */
typedef void tile_fn(int64_t k, const float *x, int64_t xs, const void *w, int64_t w_k,
                     int64_t w_panel, const char *next, int64_t next_step, const float *from,
                     int64_t from_row, int64_t from_panel, float *y, int64_t y_row,
                     int64_t y_panel);

/* nv vectors of 16 lanes by rows. The first three are constants after inlining. */
V16_INLINE void tile_pass(const int rows, const int nv, const tile_kind kind, int64_t k,
                          const float *x, int64_t xs, const void *w, int64_t w_k, int64_t w_panel,
                          const char *next, int64_t next_step, const float *from, int64_t from_row,
                          int64_t from_panel, float *y, int64_t y_row, int64_t y_panel)
{
    const bool by_k = TILE_IS_BY_K(kind), pairs = TILE_IS_PAIRS(kind);
    const int steps = pairs ? V16_DOT_STEPS : 1;
    v16 sum[TILE_ROWS][2 * TILE_MAX_PANELS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < nv; v++) {
            sum[r][v] =
                from ? v16_load(from + r * from_row + v / 2 * from_panel + v % 2 * 16) : v16_zero();
            if (pairs) sum[r][v] = v16_flush(sum[r][v]);
        }
    /* one of both is used: the kind is a constant here */
    const float *wf = w;
    const uint16_t *wh = w;
    for (int64_t i = 0; i < k; i++) {
        v16 b[2 * TILE_MAX_PANELS];
        /* tall tiles leave the memory idle while they compute; small ones read it all the time */
        if (rows > 4 && !by_k) {
            __builtin_prefetch(next, 0, 2);
            next += next_step;
        }
#pragma GCC unroll 2
        for (int step = 0; step < steps; step++) {
#pragma GCC unroll 8
            for (int v = 0; v < nv; v++) {
                if (kind == TILE_BF16) {
                    b[v] = v16_load_bf16(wh + v / 2 * w_panel + v % 2 * 16);
                    if (rows <= 4 && v % 2 == 0)
                        __builtin_prefetch((const char *)(wh + v / 2 * w_panel) + PREFETCH_BYTES);
                } else {
                    const float *word = wf + v / 2 * w_panel + v % 2 * 16;
                    b[v] = pairs ? v16_pairs(word, step) : v16_load(word);
                    if (rows <= 4 && step == 0)
                        __builtin_prefetch((const char *)word + PREFETCH_BYTES);
                }
            }
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++) {
                v16 a = kind == TILE_PAIRS_BY_K ? v16_set1_two(x + 2 * r)
                                                : v16_set1(by_k ? x[r] : x[r * xs]);
#pragma GCC unroll 8
                for (int v = 0; v < nv; v++)
                    sum[r][v] = pairs ? v16_dot(a, b[v], sum[r][v]) : v16_fma(a, b[v], sum[r][v]);
            }
            x += by_k ? xs : 1;
        }
        wf += w_k;
        wh += w_k;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < nv; v++)
            v16_store(y + r * y_row + v / 2 * y_panel + v % 2 * 16, sum[r][v]);
}

#define TILE(kind, rows, panels)                                                                 \
    static TILE_UNWATCHED void tile_##kind##_##rows##x##panels(                                  \
        int64_t k, const float *x, int64_t xs, const void *w, int64_t w_k, int64_t w_panel,      \
        const char *next, int64_t next_step, const float *from, int64_t from_row,                \
        int64_t from_panel, float *y, int64_t y_row, int64_t y_panel)                            \
    {                                                                                            \
        const int64_t bytes = TILE_##kind == TILE_BF16 ? 2 : 4;                                  \
        const bool by_k = TILE_IS_BY_K(TILE_##kind), pairs = TILE_IS_PAIRS(TILE_##kind);         \
        const int64_t words = pairs ? k * V16_DOT_STEPS : k, across = pairs ? 2 * rows : rows;   \
        watch(false, x, by_k ? words : rows, xs, by_k ? across : words, 4);                      \
        for (int p = 0; p < panels; p++) {                                                       \
            watch(false, (const char *)w + p * w_panel * bytes, k, w_k, 32, bytes);              \
            if (from) watch(false, from + p * from_panel, rows, from_row, 32, 4);                \
            watch(true, y + p * y_panel, rows, y_row, 32, 4);                                    \
        }                                                                                        \
        if (rows <= TILE_WIDE_ROWS) {                                                            \
            tile_pass(rows, 2 * panels, TILE_##kind, k, x, xs, w, w_k, w_panel, next, next_step, \
                      from, from_row, from_panel, y, y_row, y_panel);                            \
            return;                                                                              \
        }                                                                                        \
        for (int half = 0; half < 32; half += 16)                                                \
            tile_pass(rows, 1, TILE_##kind, k, x, xs, (const char *)w + half * bytes, w_k,       \
                      w_panel, next, next_step, from ? from + half : NULL, from_row, from_panel, \
                      y + half, y_row, y_panel);                                                 \
    }
/* Several panels at once only where their sums fit the registers. */
/* clang-format off */
#if defined ARES_ISA_AVX512
#define TILE_LIST(X, kind) \
    X(kind, 1, 1) X(kind, 2, 1) X(kind, 3, 1) X(kind, 4, 1) X(kind, 5, 1) X(kind, 6, 1) \
    X(kind, 7, 1) X(kind, 8, 1) X(kind, 9, 1) X(kind, 10, 1) X(kind, 11, 1) X(kind, 12, 1) \
    X(kind, 13, 1) X(kind, 14, 1) X(kind, 1, 2) X(kind, 2, 2) X(kind, 3, 2) X(kind, 4, 2) \
    X(kind, 1, 4) X(kind, 2, 4)
#elif defined ARES_ISA_NEON
#define TILE_LIST(X, kind) \
    X(kind, 1, 1) X(kind, 2, 1) X(kind, 3, 1) X(kind, 4, 1) X(kind, 5, 1) X(kind, 1, 2)
#elif defined ARES_ISA_AVX2
#define TILE_LIST(X, kind) \
    X(kind, 1, 1) X(kind, 2, 1) X(kind, 3, 1) X(kind, 4, 1) X(kind, 5, 1) X(kind, 6, 1) \
    X(kind, 1, 2)
#else
#define TILE_LIST(X, kind) X(kind, 1, 1) X(kind, 2, 1) X(kind, 3, 1) X(kind, 4, 1)
#endif
/* clang-format on */
TILE_LIST(TILE, F32)
TILE_LIST(TILE, BF16)
TILE_LIST(TILE, F32_BY_K)
TILE_LIST(TILE, PAIRS)
TILE_LIST(TILE, PAIRS_BY_K)

#define TILE_ENTRY(kind, rows, panels) \
    [TILE_##kind][rows][panels] = tile_##kind##_##rows##x##panels,
static tile_fn *const tiles[TILE_KINDS][TILE_ROWS + 1][TILE_MAX_PANELS + 1] = {
    TILE_LIST(TILE_ENTRY, F32) TILE_LIST(TILE_ENTRY, BF16) TILE_LIST(TILE_ENTRY, F32_BY_K)
        TILE_LIST(TILE_ENTRY, PAIRS) TILE_LIST(TILE_ENTRY, PAIRS_BY_K)
};

/* out[r][c] = scale tile[r][c] + bias[c] + residual[r][c], each step rounded, and flushed with
 * pairs */
static void finish(const product_args *a, int64_t row, int64_t rows, int64_t col, int cols,
                   const float *tile, float *y)
{
    for (int64_t r = 0; r < rows; r++)
        for (int c = 0; c < cols; c += 16) {
            int n = ARES_MIN(16, cols - c);
            v16 v = v16_load(tile + r * 32 + c), scale = v16_set1(a->scale);
            if (a->scale != 0)
                v = a->pairs ? v16_fma_flush(v, scale, v16_set1(-0.0f)) : v16_mul(v, scale);
            for (int i = 0; i < 2; i++) {
                const float *more = i == 0 ? a->bias ? a->bias + col + c : NULL
                                    : a->residual
                                        ? a->residual + (row + r) * a->residual_row + col + c
                                        : NULL;
                if (!more) continue;
                v16 m = v16_load_first(more, n);
                v = a->pairs ? v16_flush(v16_add(v, v16_flush(m))) : v16_add(v, m);
            }
            v16_store_first(y + r * a->y_row + c, v, n);
        }
}

/* Not inlined: the mode in which x86 flushes begins before it and ends after it. */
static __attribute__((noinline)) void product(const product_args *a)
{
    bool by_k = a->x_k != 1;
    tile_kind kind = a->bf16    ? TILE_BF16
                     : a->pairs ? by_k ? TILE_PAIRS_BY_K : TILE_PAIRS
                     : by_k     ? TILE_F32_BY_K
                                : TILE_F32;
    int64_t xs = by_k ? a->x_k : a->x_row, w_bytes = a->bf16 ? 2 : 4;
    ARES_ASSERT(by_k ? a->x_row == 1 && !a->bf16 : a->x_k == 1);
    int64_t n_tiles = (a->rows + TILE_ROWS - 1) / TILE_ROWS, panels = (a->cols + 31) / 32;
    /* few rows wait for memory: two tiles prefetch both lines of the next panel's rows */
    if (n_tiles == 1 && a->rows > TILE_WIDE_ROWS) n_tiles = 2;
    int np = 1;
    for (int64_t p = 0; p < panels; p += np) {
        if (n_tiles == 1) { /* the most panels that such a tile takes, of those that are whole */
            np = TILE_MAX_PANELS;
            while (np > 1 && (!tiles[kind][a->rows][np] || a->cols - p * 32 < np * 32)) np /= 2;
        }
        int cols = (int)ARES_MIN(32 * np, a->cols - p * 32);
        bool direct = !a->bias && !a->residual && a->scale == 0 && cols == 32 * np;
        const void *w = (const char *)a->w + p * a->w_panel * w_bytes;
        /* While the first tiles of a panel compute, they prefetch the next panel from memory. */
        const char *after =
            p + np < panels ? (const char *)w + np * a->w_panel * w_bytes : a->after;
        /* tiles of nearly equal height: 16 rows are 8 + 8, not 14 + 2 */
        for (int64_t t = 0; t < n_tiles; t++) {
            int64_t row = t * a->rows / n_tiles, rows = (t + 1) * a->rows / n_tiles - row;
            const float *x = a->x + row * (kind == TILE_PAIRS_BY_K ? 2 : a->x_row);
            const float *from = a->from ? a->from + row * a->from_row + p * a->from_panel : NULL;
            float *y = a->y + row * a->y_row + p * a->y_panel;
            tile_fn *f = tiles[kind][rows][np];
            const char *next = NEXT_LINE * t < 32 * w_bytes ? after : NULL;
            int64_t next_step = next ? NEXT_LINE : 0;
            next = next ? next + t * NEXT_LINE * a->k : w; /* w is in the cache anyway */
            /* the tile writes y itself; else into a buffer, from which `finish` adds the rest */
            if (direct) {
                f(a->k, x, xs, w, a->w_k, a->w_panel, next, next_step, from, a->from_row,
                  a->from_panel, y, a->y_row, a->y_panel);
                continue;
            }
            float tile[TILE_ROWS * 32];
            /* sums that go on (from) in the last panel: load only the columns that exist */
            if (from && cols < 32) {
                for (int64_t r = 0; r < rows; r++) {
                    v16_store(tile + r * 32,
                              v16_load_first(from + r * a->from_row, ARES_MIN(16, cols)));
                    v16_store(tile + r * 32 + 16,
                              cols > 16 ? v16_load_first(from + r * a->from_row + 16, cols - 16)
                                        : v16_zero());
                }
                f(a->k, x, xs, w, a->w_k, a->w_panel, next, next_step, tile, 32, 0, tile, 32, 0);
            } else {
                f(a->k, x, xs, w, a->w_k, a->w_panel, next, next_step, from, a->from_row,
                  a->from_panel, tile, 32, rows * 32);
            }
            for (int q = 0; q < np; q++)
                finish(a, row, rows, (p + q) * 32, ARES_MIN(32, cols - q * 32),
                       tile + q * rows * 32, y + q * a->y_panel);
        }
    }
}

void ARES_K(product)(const product_args *a)
{
    if (!a->pairs) {
        product(a);
        return;
    }
    uint32_t mode = v16_flush_begin();
    product(a);
    v16_flush_end(mode);
}

void ARES_K(transpose_panel)(const ares_matrix *w, int64_t n0, int64_t n1, int64_t k0, float *out)
{
    float wide[32 * 32];
    int64_t have = ARES_MIN(32, w->k - k0);
    for (int64_t p = n0 / 32; p * 32 < n1; p++) {
        int64_t at = (p * w->k + k0) * 32;
        const float *src = (const float *)w->data + at;
        /* as f32, with zeros beyond the last input, so that the blocks below are whole */
        if (w->dtype == ARES_BF16 || have < 32) {
            for (int64_t i = 0; i < 32 * 32; i += 16)
                v16_store(wide + i, i >= have * 32 ? v16_zero()
                                    : w->dtype == ARES_BF16
                                        ? v16_load_bf16((const uint16_t *)w->data + at + i)
                                        : v16_load(src + i));
            src = wide;
        }
        int64_t lo = ARES_MAX(n0, p * 32) - p * 32, hi = ARES_MIN(n1, p * 32 + 32) - p * 32;
        float *to = out + (p * 32 + lo - n0) * 32;
        /* a whole panel by blocks of registers; the ends of a range number by number */
        if (hi - lo == 32) {
            for (int i = 0; i < 32; i += 16)
                for (int j = 0; j < 32; j += 16)
                    v16_transpose(src + i * 32 + j, 32, to + j * 32 + i, 32);
            continue;
        }
        for (int64_t n = lo; n < hi; n++)
            for (int j = 0; j < 32; j++) to[(n - lo) * 32 + j] = src[j * 32 + n];
    }
}

/* ---------------- bf16 arithmetic: operands rounded and in pairs, as isa.h and kernels.h say */

/* n numbers, `other` in the lanes beyond them. */
static inline v16 load_or(const float *x, int64_t n, float other)
{
    if (n >= 16) return v16_load(x);
    if (n <= 0) return v16_set1(other);
    return v16_select(v16m_first((int)n), v16_load_first(x, (int)n), v16_set1(other));
}
void ARES_K(pack_rows)(const float *x, int64_t ldx, int64_t rows, int64_t k, float *to)
{
    for (int64_t r = 0; r < rows; r++, x += ldx, to += packed_words(k))
        for (int64_t i = 0; i < k; i += 32)
            v16_store_dot(to + i / 2 * V16_DOT_STEPS, load_or(x + i, k - i, -0.0f),
                          load_or(x + i + 16, k - i - 16, -0.0f));
}

/*
 * Two rows of x, tokens t and t + 1, for the product that sums over tokens: the words of columns 1,
 * 0, 3, 2 and so on, because that is the order of dw. The last of an odd number has a partner of
 * -0, dy one of +0; columns beyond k are 0, which leaves the padding of dw at 0.
 */
static void pack_tokens(const float *x, int64_t ldx, int64_t tokens, int64_t k, float *to,
                        int64_t ld)
{
    for (int64_t t = 0; t < tokens; t += 2, x += 2 * ldx, to += V16_DOT_STEPS * ld)
        for (int64_t i = 0; i < k; i += 16) {
            v16 a = v16_swap(load_or(x + i, k - i, 0.0f)),
                b = v16_swap(t + 1 < tokens ? load_or(x + ldx + i, k - i, 0.0f) : v16_set1(-0.0f));
            v16_store(to + i, V16_DOT_STEPS == 1 ? v16_pair(a, b) : v16_round_bf16(a));
            if (V16_DOT_STEPS == 2) v16_store(to + ld + i, v16_round_bf16(b));
        }
}

static inline int64_t packed_tokens_ld(int64_t k)
{
    return (k + 15) / 16 * 16 + 16;
}
typedef struct packing {
    const float *x;
    int64_t ldx, rows, k;
    float *rows_to, *tokens_to; /* NULL: not wanted */
} packing;

enum { PACKED_AT_ONCE = 32 };
static void pack_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const packing *p = ctx;
    for (int64_t first; p->rows; p++) {
        int64_t tasks = (p->rows + PACKED_AT_ONCE - 1) / PACKED_AT_ONCE;
        if (task >= tasks) {
            task -= tasks;
            continue;
        }
        first = task * PACKED_AT_ONCE;
        int64_t rows = ARES_MIN(PACKED_AT_ONCE, p->rows - first);
        const float *x = p->x + first * p->ldx;
        if (p->rows_to)
            ARES_K(pack_rows)(x, p->ldx, rows, p->k, p->rows_to + first * packed_words(p->k));
        if (p->tokens_to) {
            int64_t ld = packed_tokens_ld(p->k);
            pack_tokens(x, p->ldx, rows, p->k, p->tokens_to + first / 2 * V16_DOT_STEPS * ld, ld);
        }
        return;
    }
}
/* The list ends with a packing of no rows. */
static void pack_all(ares_device *d, const packing *list)
{
    int64_t tasks = 0, numbers = 0;
    for (const packing *p = list; p->rows; p++) {
        tasks += (p->rows + PACKED_AT_ONCE - 1) / PACKED_AT_ONCE;
        numbers += p->rows * p->k;
    }
    kernels_run(d, (double)numbers / 5e3, tasks, pack_task, (void *)list);
}

/*
 * As transpose_panel, of pairs: word j of pair p of outputs is W[n0 + 2 p][k0 + j] in the high half
 * and W[n0 + 2 p + 1][k0 + j] in the low one. n0 and k0 are multiples of 32.
 */
static void turn_panel(const ares_matrix *w, int64_t n0, int64_t n1, int64_t k0, float *out)
{
    const v16i high = v16i_set1(0xffff0000u), low = v16i_set1(0xffffu);
    int64_t pairs = (w->k + 1) / 2, have = ARES_MIN(16, pairs - k0 / 2);
    float whole[16 * 32], by_output[32 * 16];
    for (int64_t first = n0; first < n1; first += 32) {
        const float *src = (const float *)w->data + first * pairs + k0 / 2 * 32;
        if (have < 16) { /* so that the blocks are whole */
            memset(whole, 0, sizeof whole);
            src = memcpy(whole, src, (size_t)have * 32 * sizeof *src);
        }
        for (int j = 0; j < 32; j += 16) v16_transpose(src + j, 32, by_output + j * 16, 16);
        for (int64_t n = 0; n < ARES_MIN(32, n1 - first); n += 2) {
            /* inputs 2 i and 2 i + 1 of an output are one word; the last output may lack a partner
             */
            v16i a = v16i_load(by_output + n * 16),
                 b = first + n + 1 < n1 ? v16i_load(by_output + n * 16 + 16) : v16i_set1(0);
            v16i even = v16i_xor(v16i_and(a, high), v16i_shr(b, 16)),
                 odd = v16i_xor(v16i_shl(a, 16), v16i_and(b, low));
            v16_store_zip(out + (first + n - n0) / 2 * 32, v16_from_bits(even), v16_from_bits(odd));
        }
    }
}

/* ------------------------------------------------------------------ y = x Wt + bias + residual */

enum {
    BLOCK_ROWS = 8 * TILE_ROWS, /* rows of x that stay in the second-level cache over all panels */
    BLOCK_K = 1024,             /* steps of k at once, so that a panel stays there beside them */
    FEW_PRODUCTS = 8,           /* at once whose plans need no scratch: those of experts are many */
    SHARED_BY = 3               /* products that may read one input: q, k, v; gate, up */
};
/* Rough speeds of a thread, to decide whether waking the others pays and how finely to divide. */
static const double FLOPS_PER_US = 2e5, BYTES_PER_US = 3e4;

/* How a weight is read by steps of k: one input, or in bf16 arithmetic a pair of them. */
typedef struct stepping {
    int64_t steps, step_bytes; /* of a panel: 32 numbers or words */
    int64_t x;                 /* words of x for a step */
    bool pairs;
} stepping;
static stepping stepping_of(const ares_matrix *w)
{
    bool pairs = w->layout == ARES_PANEL32_PAIRS;
    ARES_ASSERT(pairs ? w->dtype == ARES_BF16 : w->layout == ARES_PANEL32 && w->dtype != ARES_F16);
    if (pairs) return (stepping){ ((int64_t)w->k + 1) / 2, 128, V16_DOT_STEPS, true };
    return (stepping){ w->k, w->dtype == ARES_BF16 ? 64 : 128, 1, false };
}

typedef struct forward_plan {
    ares_device *d;
    const ares_linear_args *a;
    const float *packed; /* x, of a weight in pairs */
    double us;           /* of one thread, roughly */
    int64_t row_blocks, groups, panels_per_group, first_task;
} forward_plan;
typedef struct forward {
    int n;
    forward_plan *plan;
} forward;

/*
 * A product whose k is long, panel by panel in pieces of k that fit the cache. Between pieces the
 * sums lie in scratch, because y may be the residual.
 */
static void long_product(const forward_plan *p, const product_args *g, int64_t col, int worker)
{
    const ares_matrix *w = p->a->w;
    stepping s = stepping_of(w);
    float *sum = kernels_scratch(p->d, worker, (size_t)g->rows * 32 * sizeof(float));
    for (int64_t c = 0; c < g->cols; c += 32)
        for (int64_t k = 0; k < s.steps; k += BLOCK_K) {
            bool last = k + BLOCK_K >= s.steps;
            product_args part = *g;
            part.k = ARES_MIN(BLOCK_K, s.steps - k);
            part.cols = last ? ARES_MIN(32, g->cols - c) : 32;
            /* the first piece begins at 0, the last one adds bias and residual and writes y */
            part.x = g->x + k * s.x;
            part.w = (const char *)w->data + ((col + c) / 32 * s.steps + k) * s.step_bytes;
            part.from = k ? sum : NULL;
            part.from_row = 32;
            if (last) {
                part.y = g->y + c;
                part.bias = g->bias ? g->bias + c : NULL;
                part.residual = g->residual ? g->residual + c : NULL;
            } else {
                part.y = sum;
                part.y_row = 32;
                part.bias = part.residual = NULL;
                part.scale = 0;
            }
            ARES_K(product)(&part);
        }
}

/* A block of rows and a group of panels of one of the products. */
static void forward_task(void *ctx, int64_t task, int worker)
{
    const forward *f = ctx;
    /* which of the products the task belongs to: the last that begins at or before it */
    int i = 0;
    for (int end = f->n; end - i > 1;) {
        int middle = (i + end) / 2;
        if (f->plan[middle].first_task <= task) i = middle;
        else end = middle;
    }
    const forward_plan *p = &f->plan[i];
    const ares_linear_args *a = p->a;
    const ares_matrix *w = a->w;
    task -= p->first_task;
    int64_t block = task / p->groups, group = task % p->groups;
    int64_t row = block * a->m / p->row_blocks, rows = (block + 1) * a->m / p->row_blocks - row;
    int64_t panel = group * p->panels_per_group,
            end = ARES_MIN((int64_t)w->n, (panel + p->panels_per_group) * 32);
    int64_t col = panel * 32;
    stepping s = stepping_of(w);
    product_args g = {
        .rows = rows,
        .k = s.steps,
        .cols = end - col,
        .x = s.pairs ? p->packed + row * packed_words(w->k) : (const float *)a->x + row * a->ldx,
        .x_row = s.pairs ? packed_words(w->k) : a->ldx,
        .x_k = 1,
        .w = (const char *)w->data + panel * s.steps * s.step_bytes,
        .w_k = 32,
        .w_panel = s.steps * 32,
        .bf16 = w->dtype == ARES_BF16 && !s.pairs,
        .pairs = s.pairs,
        .y = (float *)a->y + row * a->ldy + col,
        .y_row = a->ldy,
        .y_panel = 32,
        .bias = a->bias ? (const float *)a->bias + col : NULL,
        .residual = a->residual ? (const float *)a->residual + row * a->ldr + col : NULL,
        .residual_row = a->ldr,
        .scale = a->scale,
    };
    /* the task that this thread most likely takes next */
    int64_t then = group + ares_pool_threads(p->d->pool);
    if (then < p->groups)
        g.after = (const char *)w->data + then * p->panels_per_group * s.steps * s.step_bytes;
    if (rows <= TILE_ROWS || s.steps <= BLOCK_K + BLOCK_K / 2) ARES_K(product)(&g);
    else long_product(p, &g, col, worker);
}

/* Whether two products read the same input in the same way; in pairs it is packed once. */
static bool same_input(const ares_linear_args *a, const ares_linear_args *b)
{
    return a->w->layout == b->w->layout && a->w->k == b->w->k && a->x == b->x && a->ldx == b->ldx &&
           a->m == b->m;
}

/*
 * Packs the inputs of weights in pairs, one that neighbours read once. list has room for one more
 * than the products.
 */
static void pack_inputs(ares_device *d, forward *f, packing *list)
{
    int64_t words = 0, n = 0;
    for (int pass = 0; pass < 2; pass++) { /* first how much memory they need */
        float *memory =
            pass && n ? kernels_scratch(d, KERNELS_PACKED, (size_t)words * sizeof(float)) : NULL;
        words = n = 0;
        for (int i = 0; i < f->n; i++) {
            const ares_linear_args *a = f->plan[i].a;
            if (a->w->layout != ARES_PANEL32_PAIRS || a->m <= 0) continue;
            int same = i - 1;
            while (same >= 0 && same > i - SHARED_BY && !same_input(f->plan[same].a, a)) same--;
            if (same >= 0 && same > i - SHARED_BY) {
                f->plan[i].packed = f->plan[same].packed;
                continue;
            }
            float *to = memory ? memory + words : NULL;
            list[n++] = (packing){ a->x, a->ldx, a->m, a->w->k, to, NULL };
            words += (a->m * packed_words(a->w->k) + 15) / 16 * 16;
            f->plan[i].packed = to;
        }
        list[n].rows = 0;
    }
    if (n) pack_all(d, list);
}

/* All of them in one parallel region. */
static void products(ares_device *d, const ares_linear_args *a, int n)
{
    forward_plan few[FEW_PRODUCTS];
    packing few_lists[FEW_PRODUCTS + 1];
    forward f = { n, few };
    packing *lists = few_lists;
    if (n > FEW_PRODUCTS) {
        size_t plans = (size_t)n * sizeof *f.plan;
        f.plan = kernels_scratch(d, KERNELS_SHARED, plans + (size_t)(n + 1) * sizeof *lists);
        lists = (packing *)(void *)((char *)f.plan + plans);
    }
    double all_us = 0;
    for (int i = 0; i < n; i++) {
        const ares_matrix *w = a[i].w;
        double flops = 2.0 * a[i].m * w->k * w->n,
               bytes = a[i].m > 0 ? (double)ares_dtype_bytes(w->dtype) * w->k * w->n : 0;
        f.plan[i] = (forward_plan){ .d = d,
                                    .a = &a[i],
                                    .us = ARES_MAX(flops / FLOPS_PER_US, bytes / BYTES_PER_US) };
        all_us += f.plan[i].us;
    }
    int64_t tasks = 0;
    int threads = ares_pool_threads(d->pool);
    /* about six tasks per thread even out their ends; each long enough to be worth taking */
    double task_us = ARES_MIN(40.0, ARES_MAX(2.0, all_us / (6.0 * threads)));
    for (int i = 0; i < n; i++) {
        forward_plan *p = &f.plan[i];
        int64_t panels = ((int64_t)a[i].w->n + 31) / 32;
        p->row_blocks =
            a[i].m <= BLOCK_ROWS * 5 / 4 ? a[i].m > 0 : (a[i].m + BLOCK_ROWS - 1) / BLOCK_ROWS;
        p->first_task = tasks;
        /* few rows: several panels per tile, as ARES_K(product) takes them */
        int64_t at_once = a[i].m <= 4 ? TILE_MAX_PANELS / (a[i].m <= 2 ? 1 : 2) : 1;
        /* no fewer groups than threads */
        while (n == 1 && at_once > 1 && panels < at_once * threads) at_once /= 2;
        double panel_us = p->us / (double)(panels * ARES_MAX(p->row_blocks, 1));
        int64_t wanted = a[i].m > 0 ? ARES_MIN(panels, (int64_t)(task_us / panel_us + 0.5)) : 0;
        p->panels_per_group = ARES_MAX(1, (wanted + at_once - 1) / at_once) * at_once;
        p->groups = (panels + p->panels_per_group - 1) / p->panels_per_group;
        tasks += p->row_blocks * p->groups;
    }
    pack_inputs(d, &f, lists);
    kernels_run(d, all_us, tasks, forward_task, &f);
}

void ARES_K(linear)(ares_device *d, const ares_linear_args *a, int n)
{
    /* what is packed of products in bf16 arithmetic is bounded: very many rows go by parts, and
     * lists by parts of so many rows */
    for (int from = 0, to; from < n; from = to) {
        bool pairs = a[from].w->layout == ARES_PANEL32_PAIRS;
        int64_t rows = a[from].m;
        to = from + 1;
        for (int32_t row = 0; pairs && rows > PACKED_ROWS && row < a[from].m; row += PACKED_ROWS) {
            ares_linear_args part = a[from];
            part.m = ARES_MIN((int32_t)PACKED_ROWS, part.m - row);
            part.x = (const float *)part.x + row * part.ldx;
            part.y = (float *)part.y + row * part.ldy;
            if (part.residual) part.residual = (const float *)part.residual + row * part.ldr;
            products(d, &part, 1);
        }
        if (pairs && rows > PACKED_ROWS) continue;
        for (; to < n; to++) {
            bool packs = a[to].w->layout == ARES_PANEL32_PAIRS && !same_input(&a[to - 1], &a[to]);
            if (packs && rows + a[to].m > PACKED_ROWS) break;
            rows += packs ? a[to].m : 0;
        }
        products(d, &a[from], to - from);
    }
}

/* ---------------- dx = dy W, dw += dyT x, dbias += sum of dy */

enum {
    DX_ROWS = 512, /* rows of dx per transposed panel */
    /*
     * DW_TOKENS tokens of dy (packed) and x stay in the second-level cache while DW_PANELS panels
     * of dw, DW_K inputs each, are updated from them
     */
    DW_TOKENS = 128,
    DW_PANELS = 4,
    DW_K = 512
};

typedef struct backward {
    ares_device *d;
    const ares_linear_backward_args *a;
    int64_t n, k, row_blocks, dx_tasks, dw_panels, dw_parts, first_task;
    bool pairs;
    const float *dy, *x; /* with pairs: packed by rows for dx, by tokens for dw */
} backward;
typedef struct backwards {
    int n;
    backward *each;
} backwards;

/* dx of some rows and 32 inputs: the panel of W is transposed into scratch, piece by piece of n. */
static void dx_task(const backward *b, int64_t task, int worker)
{
    const ares_linear_backward_args *a = b->a;
    int64_t blocks = b->row_blocks, k0 = task / blocks * 32, block = task % blocks;
    int64_t row = block * a->m / blocks, rows = (block + 1) * a->m / blocks - row;
    float *transposed = kernels_scratch(b->d, worker, scratch_panel(b->n));
    float *dx = (float *)a->dx + row * a->lddx + k0;
    for (int64_t n = 0; n < b->n; n += DX_N) {
        int64_t end = ARES_MIN(b->n, n + DX_N);
        int64_t ld = packed_words(b->n);
        if (b->pairs) turn_panel(a->w, n, end, k0, transposed);
        else ARES_K(transpose_panel)(a->w, n, end, k0, transposed);
        ARES_K(product)
        (&(product_args){
            .rows = rows,
            .k = b->pairs ? (end - n + 1) / 2 : end - n,
            .cols = ARES_MIN(32, b->k - k0),
            .x = b->pairs ? b->dy + row * ld + n / 2 * V16_DOT_STEPS
                          : (const float *)a->dy + row * a->lddy + n,
            .x_row = b->pairs ? ld : a->lddy,
            .x_k = 1,
            .w = transposed,
            .w_k = 32,
            .pairs = b->pairs,
            .from = n || a->accumulate ? dx : NULL,
            .from_row = a->lddx,
            .y = dx,
            .y_row = a->lddx,
            .scale = end == b->n ? a->scale : 0,
        });
    }
}

/* dw of some panels and a part of their inputs; the first part also adds dbias. */
static void dw_task(const backward *b, int64_t task, int worker)
{
    const ares_linear_backward_args *a = b->a;
    int64_t part = task % b->dw_parts, first = task / b->dw_parts * b->dw_panels * 32;
    int64_t end = ARES_MIN(b->n, first + b->dw_panels * 32);
    /* in rows of dw's panels: of an input, or with pairs of two, whose 64 numbers take turns */
    int64_t wide = b->pairs ? 2 : 1, all = (b->k + wide - 1) / wide, k0 = part * all / b->dw_parts,
            k1 = (part + 1) * all / b->dw_parts;
    /* with pairs, the word of two tokens and a column comes twice, for the two inputs */
    float *dy = kernels_scratch(b->d, worker, DW_TOKENS * 32 * sizeof(float));
    for (int64_t m = 0; m < a->m; m += DW_TOKENS) {
        int64_t tokens = ARES_MIN(DW_TOKENS, a->m - m);
        for (int64_t col = first; col < end; col += 32) {
            int64_t cols = ARES_MIN(32, b->n - col);
            /* dy of some tokens and 32 columns, 0 beyond the last; its sum for the bias */
            bool bias = a->dbias && part == 0;
            for (int half = 0; half < 32; half += 16) {
                int n = (int)ARES_MIN(16, cols - half);
                v16 sum = v16_zero();
                if (n <= 0) {
                    for (int64_t t = 0; t < (tokens + wide - 1) / wide; t++)
                        for (int i = 0; i < wide; i++)
                            v16_store(dy + (t * 32 + half) * wide + 16 * i, sum);
                    continue;
                }
                if (bias) sum = v16_load_first(a->dbias + col + half, n);
                v16 first_of_two = v16_zero();
                for (int64_t t = 0; t < tokens; t++) {
                    v16 v =
                        v16_load_first((const float *)a->dy + (m + t) * a->lddy + col + half, n);
                    sum = v16_add(sum, v);
                    if (!b->pairs) v16_store(dy + t * 32 + half, v);
                    else if (t % 2 == 0) first_of_two = v;
                    if (!b->pairs || (t % 2 == 0 && t + 1 < tokens)) continue;
                    v16 word = v16_pair(first_of_two, t % 2 ? v : v16_zero());
                    v16_store_zip(dy + t / 2 * 64 + half * 2, word, word);
                }
                if (bias) v16_store_first(a->dbias + col + half, sum, n);
            }
            /* frozen weights with a bias that trains: dy is read for its sum alone */
            if (!a->dw) continue;
            float *dw = (float *)a->dw->data + (col * all + k0 * 32) * wide;
            int64_t ld = packed_tokens_ld(b->k);
            ARES_K(product)
            (&(product_args){
                .rows = k1 - k0,
                .k = (tokens + wide - 1) / wide,
                .cols = cols * wide,
                .x = b->pairs ? b->x + m / 2 * V16_DOT_STEPS * ld + 2 * k0
                              : (const float *)a->x + m * a->ldx + k0,
                /* x by columns: the product sums over tokens */
                .x_row = 1,
                .x_k = b->pairs ? ld : a->ldx,
                .w = dy,
                .w_k = 32 * wide,
                .w_panel = 32,
                .pairs = b->pairs,
                .from = dw,
                .from_row = 32 * wide,
                .from_panel = 32,
                .y = dw,
                .y_row = 32 * wide,
                .y_panel = 32,
            });
        }
    }
}

/* Of each product dx first, then dw and dbias; all tasks are independent. */
static void backward_task(void *ctx, int64_t task, int worker)
{
    const backwards *all = ctx;
    int i = 0;
    for (int end = all->n; end - i > 1;) { /* as in forward_task */
        int middle = (i + end) / 2;
        if (all->each[middle].first_task <= task) i = middle;
        else end = middle;
    }
    const backward *b = &all->each[i];
    task -= b->first_task;
    if (task < b->dx_tasks) dx_task(b, task, worker);
    else dw_task(b, task - b->dx_tasks, worker);
}

/* The words that a product in pairs packs: of dy by rows for dx, of x by tokens for dw. */
static int64_t words_of_dy(const ares_linear_backward_args *a)
{
    return a->dx ? (a->m * packed_words(a->w->n) + 15) / 16 * 16 : 0;
}
static int64_t words_of_x(const ares_linear_backward_args *a)
{
    return a->dw ? (a->m + 1) / 2 * V16_DOT_STEPS * packed_tokens_ld(a->dw->k) : 0;
}

/* Packs the operands of products in pairs; list has room for two of each and one more. */
static void pack_operands(ares_device *d, backwards *all, packing *list)
{
    int64_t words = 0;
    packing *next = list;
    for (int i = 0; i < all->n; i++)
        if (all->each[i].pairs) words += words_of_dy(all->each[i].a) + words_of_x(all->each[i].a);
    if (!words) return;
    float *packed = kernels_scratch(d, KERNELS_PACKED, (size_t)words * sizeof(float));
    for (int i = 0; i < all->n; i++) {
        backward *b = &all->each[i];
        const ares_linear_backward_args *a = b->a;
        if (!b->pairs || a->m <= 0) continue;
        float *dy = packed, *x = packed += words_of_dy(a);
        b->dy = dy, b->x = x, packed += words_of_x(a);
        if (a->dx) *next++ = (packing){ a->dy, a->lddy, a->m, b->n, dy, NULL };
        if (a->dw) *next++ = (packing){ a->x, a->ldx, a->m, b->k, NULL, x };
    }
    next->rows = 0;
    pack_all(d, list);
}

/* All of them in one parallel region. */
static void backward_products(ares_device *d, const ares_linear_backward_args *args, int n)
{
    backward few[FEW_PRODUCTS];
    packing few_lists[2 * FEW_PRODUCTS + 1];
    backwards all = { n, few };
    packing *lists = few_lists;
    if (n > FEW_PRODUCTS) {
        size_t bytes = (size_t)n * sizeof *all.each;
        all.each = kernels_scratch(d, KERNELS_SHARED, bytes + (size_t)(2 * n + 1) * sizeof *lists);
        lists = (packing *)(void *)((char *)all.each + bytes);
    }
    int64_t tasks = 0;
    /* tasks of a product that even out the threads' ends; of many, fewer each */
    const int64_t wanted = (4 * ares_pool_threads(d->pool) + n - 1) / n;
    double us = 0;
    for (int i = 0; i < n; i++) {
        const ares_linear_backward_args *a = &args[i];
        const ares_matrix *w = a->dx ? a->w : a->dw ? a->dw : a->w;
        backward *b = &all.each[i];
        *b = (backward){ .d = d,
                         .a = a,
                         .n = w->n,
                         .k = w->k,
                         .pairs = w->layout == ARES_PANEL32_PAIRS,
                         .first_task = tasks };
        ARES_ASSERT(w->layout != ARES_ROWS && w->dtype != ARES_F16 &&
                    (!a->dw || (a->dw->dtype == ARES_F32 && a->dw->layout == w->layout)));
        if (a->m <= 0) continue;
        double product_us = 2.0 * a->m * w->k * w->n / FLOPS_PER_US;
        if (a->dx) {
            int64_t panels = (b->k + 31) / 32;
            b->row_blocks = (a->m + DX_ROWS - 1) / DX_ROWS;
            /* divide the rows of a panel among tasks, as long as each has 128 rows */
            if (panels * b->row_blocks < wanted)
                b->row_blocks = ARES_MAX(
                    b->row_blocks, ARES_MIN((int64_t)a->m / 128, (wanted + panels - 1) / panels));
            b->dx_tasks = panels * b->row_blocks;
            us += product_us + (double)w->k * w->n * 4 / BYTES_PER_US;
        }
        tasks += b->dx_tasks;
        if (!a->dw && !a->dbias) continue;
        int64_t panels = (b->n + 31) / 32;
        b->dw_parts = a->dw ? (b->k + DW_K - 1) / DW_K : 1;
        b->dw_panels = ARES_MAX(1, ARES_MIN(DW_PANELS, panels * b->dw_parts / wanted));
        int64_t groups = (panels + b->dw_panels - 1) / b->dw_panels;
        if (a->dw && groups * b->dw_parts < wanted)
            b->dw_parts =
                ARES_MAX(b->dw_parts, ARES_MIN((wanted + groups - 1) / groups,
                                               b->k / (b->pairs ? 2 : 1) / (4 * TILE_ROWS)));
        tasks += groups * b->dw_parts;
        us += a->dw ? product_us + (double)w->k * w->n * 8 / BYTES_PER_US
                    : (double)a->m * w->n * 4 / BYTES_PER_US;
    }
    pack_operands(d, &all, lists);
    kernels_run(d, us, tasks, backward_task, &all);
}

void ARES_K(linear_backward)(ares_device *d, const ares_linear_backward_args *args, int n)
{
    /* what is packed of products in bf16 arithmetic is bounded, as in linear */
    for (int from = 0, to; from < n; from = to) {
        const ares_linear_backward_args *a = &args[from];
        const ares_matrix *w = a->dx ? a->w : a->dw ? a->dw : a->w;
        bool pairs = w->layout == ARES_PANEL32_PAIRS;
        int64_t rows = a->m;
        to = from + 1;
        if (pairs && a->m > PACKED_ROWS) { /* PACKED_ROWS is even */
            for (int32_t row = 0; row < a->m; row += PACKED_ROWS) {
                ares_linear_backward_args part = *a;
                part.m = ARES_MIN((int32_t)PACKED_ROWS, a->m - row);
                part.dy = (const float *)a->dy + row * a->lddy;
                if (a->x) part.x = (const float *)a->x + row * a->ldx;
                if (a->dx) part.dx = (float *)a->dx + row * a->lddx;
                backward_products(d, &part, 1);
            }
            continue;
        }
        while (to < n && (!pairs || rows + args[to].m <= PACKED_ROWS)) rows += args[to++].m;
        backward_products(d, a, to - from);
    }
}
