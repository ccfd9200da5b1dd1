/*
 * Gated delta nets on the CPU (docs/model.md#gated-delta-nets): the convolution, and the recurrence
 * token after token. Training runs the same recurrence as decoding, not the usual chunked form,
 * whose sums depend on where chunks begin.
 */
#include "isa.h"

/* The causal convolution: a task has some columns of all rows, so that dw is one chain over rows.
 */

/* of rows that lie far apart a task reads so much at once that their first lines' delay is small */
enum { CONV_COLUMNS = 256 };

typedef struct conv_job {
    ares_conv_args a;
} conv_job;

/* 16 numbers of a row that has n left, 0 beyond. */
V16_INLINE v16 some(const float *p, int32_t n)
{
    return n >= 16 ? v16_load(p) : v16_load_first(p, n);
}
V16_INLINE void put(float *p, int32_t n, v16 v)
{
    if (n >= 16) v16_store(p, v);
    else v16_store_first(p, v, n);
}

/* The weights of columns [c, c + CONV_COLUMNS), column by column in vectors: w[i][CONV_COLUMNS]. */
static void conv_weights(const ares_conv_args *a, int32_t c, int32_t n, float *w)
{
    for (int32_t i = 0; i < a->kernel; i++)
        for (int32_t j = 0; j < CONV_COLUMNS; j++) {
            int64_t at = j < n ? ares_matrix_at(a->w->layout, a->kernel, c + j, i) : 0;
            float x = a->w->dtype == ARES_BF16
                          ? kernels_bf16_to_f32(((const uint16_t *)a->w->data)[at])
                          : ((const float *)a->w->data)[at];
            w[i * CONV_COLUMNS + j] = j < n ? x : 0.0f;
        }
}

/* Rows of an earlier segment that segment s goes on from: all that it has, or 0. */
static int32_t prefix_of(const ares_segments *seg, int32_t s)
{
    return seg->prefix_row ? seg->prefix_len[s] : 0;
}

/* before[i]: the column's part of row i - (kernel - 1) of segment s, in front of its first one. */
static void conv_before(const ares_conv_args *a, int32_t s, int32_t c, int32_t n, float *before)
{
    int32_t rows = a->kernel - 1, slot = a->window ? a->from[s] : -1,
            prefix = prefix_of(&a->seg, s);
    memset(before, 0, (size_t)rows * CONV_COLUMNS * sizeof *before);
    for (int32_t i = slot >= 0 ? 0 : ARES_MAX(rows - prefix, 0); i < rows; i++) {
        const float *from = NULL;
        if (slot >= 0) from = a->window + ((int64_t)slot * rows + i) * a->width;
        else from = (const float *)a->x + (a->seg.prefix_row[s] + prefix - rows + i) * a->ldx;
        memcpy(before + i * CONV_COLUMNS, from + c, (size_t)n * sizeof *before);
    }
}

/* Row r, which may lie before the segment's first row. */
V16_INLINE v16 conv_row(const ares_conv_args *a, const float *before, int64_t start, int64_t r,
                        int32_t c, int32_t j, int32_t n)
{
    if (r >= start) return some((const float *)a->x + r * a->ldx + c + j, n - j);
    return v16_load(before + (r - start + a->kernel - 1) * CONV_COLUMNS + j);
}

/* The sum of row r, before silu. */
V16_INLINE v16 conv_sum(const ares_conv_args *a, const float *w, const float *before, int64_t start,
                        int64_t r, int32_t c, int32_t j, int32_t n)
{
    v16 sum = v16_zero();
    for (int32_t i = 0; i < a->kernel; i++)
        sum = v16_fma(v16_load(w + i * CONV_COLUMNS + j),
                      conv_row(a, before, start, r - a->kernel + 1 + i, c, j, n), sum);
    return sum;
}

static void conv_task(void *ctx, int64_t task, int worker)
{
    const ares_conv_args *a = &((const conv_job *)ctx)->a;
    float w[ARES_CONV_MAX * CONV_COLUMNS], before[ARES_CONV_MAX * CONV_COLUMNS];
    int32_t c = (int32_t)task * CONV_COLUMNS, n = ARES_MIN(CONV_COLUMNS, a->width - c),
            keeps = a->kernel - 1;
    (void)worker;
    conv_weights(a, c, n, w);
    for (int32_t s = 0; s < a->seg.n; s++) {
        int64_t start = a->seg.start[s], end = a->seg.start[s + 1];
        conv_before(a, s, c, n, before);
        for (int64_t r = start; r < end; r++)
            for (int32_t j = 0; j < n; j += 16) {
                v16 x = conv_sum(a, w, before, start, r, c, j, n);
                put(a->y + r * a->ldy + c + j, n - j, v16_mul(x, v16_sigmoid(x)));
            }
        if (!a->window || a->to[s] < 0) continue;
        for (int32_t i = 0; i < keeps; i++)
            for (int32_t j = 0; j < n; j += 16)
                put(a->window + ((int64_t)a->to[s] * keeps + i) * a->width + c + j, n - j,
                    conv_row(a, before, start, end - keeps + i, c, j, n));
    }
}

/*
 * With ds[t] = dy[t] silu'(sum[t]): dx[t] = sum over i of w[i] ds[t + kernel - 1 - i], and dw[i] +=
 * ds[t] x[t - kernel + 1 + i], row after row. A ring holds the last ds. The last rows of a prefix
 * get the sum over the rows of each segment that goes on from it, added in the segments' order.
 */
static void conv_backward_task(void *ctx, int64_t task, int worker)
{
    const ares_conv_args *a = &((const conv_job *)ctx)->a;
    float w[ARES_CONV_MAX * CONV_COLUMNS], before[ARES_CONV_MAX * CONV_COLUMNS],
        ds[ARES_CONV_MAX * CONV_COLUMNS], dw[ARES_CONV_MAX * CONV_COLUMNS];
    int32_t c = (int32_t)task * CONV_COLUMNS, n = ARES_MIN(CONV_COLUMNS, a->width - c),
            k = a->kernel;
    const v16 one = v16_set1(1.0f);
    (void)worker;
    conv_weights(a, c, n, w);
    memset(dw, 0, sizeof dw);
    for (int32_t i = 0; i < k && a->dw; i++)
        for (int32_t j = 0; j < n; j++)
            dw[i * CONV_COLUMNS + j] =
                ((const float *)a->dw->data)[ares_matrix_at(a->dw->layout, k, c + j, i)];
    for (int32_t s = 0; s < a->seg.n; s++) {
        int64_t start = a->seg.start[s], end = a->seg.start[s + 1], prefix = prefix_of(&a->seg, s),
                lowest = start - prefix;
        conv_before(a, s, c, n, before);
        /* row r - (k - 1) gets its last part with row r; behind the end there are none */
        for (int64_t r = start; r < end + k - 1; r++) {
            for (int32_t j = 0; j < n && r < end; j += 16) {
                v16 x = conv_sum(a, w, before, start, r, c, j, n), y = v16_sigmoid(x),
                    slope = v16_fma(v16_mul(x, y), v16_sub(one, y), y),
                    d = v16_mul(some(a->dy + r * a->lddy + c + j, n - j), slope);
                v16_store(ds + r % k * CONV_COLUMNS + j, d);
                for (int32_t i = 0; i < k && a->dw; i++) {
                    float *to = dw + i * CONV_COLUMNS + j;
                    v16_store(to, v16_fma(d, conv_row(a, before, start, r - k + 1 + i, c, j, n),
                                          v16_load(to)));
                }
            }
            int64_t t = r - k + 1, row = t;
            if (prefix && t < start) row = a->seg.prefix_row[s] + t - lowest;
            for (int32_t j = 0; j < n && t >= lowest && t < end; j += 16) {
                float *dx = (float *)a->dx + row * a->lddx + c + j;
                v16 sum = v16_zero();
                for (int32_t i = 0; i < k; i++)
                    if (t + k - 1 - i >= start && t + k - 1 - i < end)
                        sum = v16_fma(v16_load(w + i * CONV_COLUMNS + j),
                                      v16_load(ds + (t + k - 1 - i) % k * CONV_COLUMNS + j), sum);
                put(dx, n - j, t < start ? v16_add(some(dx, n - j), sum) : sum);
            }
        }
    }
    for (int32_t i = 0; i < k && a->dw; i++)
        for (int32_t j = 0; j < n; j++)
            ((float *)a->dw->data)[ares_matrix_at(a->dw->layout, k, c + j, i)] =
                dw[i * CONV_COLUMNS + j];
}

static void run_conv(ares_device *d, const ares_conv_args *a, double us, ares_task_fn *fn)
{
    conv_job j = { *a };
    ARES_ASSERT(a->kernel >= 1 && a->kernel <= ARES_CONV_MAX);
    kernels_run(d, us * a->seg.rows * a->width, (a->width + CONV_COLUMNS - 1) / CONV_COLUMNS, fn,
                &j);
}
void ARES_K(conv)(ares_device *d, const ares_conv_args *a)
{
    run_conv(d, a, 1e-3, conv_task);
}
void ARES_K(conv_backward)(ares_device *d, const ares_conv_args *a)
{
    run_conv(d, a, 3e-3, conv_backward_task);
}

/*
 * The recurrence. A tile is 32 columns of the state of a value head: [k_dim][32], which stays in
 * the first cache. Columns do not see each other, so forward has a task per tile.
 */

enum {
    TILE = 32,
    PREPARED_ROWS = 4 /* per task of norms and gates */
};

typedef struct delta_job {
    ares_device *d;
    ares_delta_args a;
    int32_t per_key; /* value heads of a key head */
    int32_t tiles;   /* of a value head */
} delta_job;

/* What a task of the backward needs, in floats; dS of all tiles comes first. */
static inline int64_t tile_floats(const ares_delta_args *a)
{
    return (int64_t)a->k_dim * TILE;
}

/* ln(1 + e^x), which is x above 20, as torch's softplus */
V16_INLINE v16 softplus(v16 x)
{
    const v16 one = v16_set1(1.0f);
    v16 e = v16_exp(x), u = v16_add(one, e);
    /* ln(u) e / (u - 1) undoes the rounding of u (Kahan) */
    v16 exact = v16_mul(v16_log(u), v16_div(e, v16_sub(u, one)));
    return v16_select(v16_gt(x, v16_set1(20.0f)), x, v16_select(v16_eq(u, one), e, exact));
}

/* x *= factor / sqrt(sum x^2 + 1e-6); returns 1 / sqrt of it. */
V16_INLINE float unit(float *x, int32_t k, float factor)
{
    v16 sum = v16_zero();
    for (int32_t i = 0; i < k; i += 16) {
        v16 v = some(x + i, k - i);
        sum = v16_fma(v, v, sum);
    }
    float norm = 1.0f / sqrtf(v16_sum(sum) + 1e-6f);
    for (int32_t i = 0; i < k; i += 16)
        put(x + i, k - i, v16_mul(v16_mul(some(x + i, k - i), v16_set1(norm)), v16_set1(factor)));
    return norm;
}

/* The norms of q and k, and the gates, once per token and head. */
static void prepare_task(void *ctx, int64_t task, int worker)
{
    const ares_delta_args *a = &((const delta_job *)ctx)->a;
    float root = 1.0f / sqrtf((float)a->k_dim);
    (void)worker;
    int64_t end = ARES_MIN((int64_t)a->seg.rows, (task + 1) * PREPARED_ROWS);
    for (int64_t r = task * PREPARED_ROWS; r < end; r++) {
        float *x = a->qkv + r * a->ldqkv, *decay = a->gates + r * 2 * a->v_heads,
              *beta = decay + a->v_heads;
        for (int32_t h = 0; h < 2 * a->k_heads; h++)
            a->norms[r * 2 * a->k_heads + h] =
                unit(x + (int64_t)h * a->k_dim, a->k_dim, h < a->k_heads ? root : 1.0f);
        const float *from_a = (const float *)a->a + r * a->ldab,
                    *from_b = (const float *)a->b + r * a->ldab;
        for (int32_t h = 0; h < a->v_heads; h += 16) {
            int32_t n = a->v_heads - h;
            v16 rate = v16_exp(some(a->a_log + h, n)),
                z = v16_add(some(from_a + h, n), some(a->dt_bias + h, n));
            put(decay + h, n, v16_exp(v16_neg(v16_mul(rate, softplus(z)))));
            put(beta + h, n, v16_sigmoid(some(from_b + h, n)));
        }
    }
}

/* A tile of the state of value head h <-> states [v_heads][k_dim][v_dim]. */
static inline int64_t state_at(const ares_delta_args *a, int64_t place, int32_t h)
{
    return (place * a->v_heads + h) * a->k_dim * a->v_dim;
}
static void load_tile(const ares_delta_args *a, const float *states, int64_t place, int32_t h,
                      int32_t column, float *tile)
{
    int32_t n = a->v_dim - column;
    const float *from = states + state_at(a, place, h) + column;
    for (int32_t i = 0; i < a->k_dim; i++, from += a->v_dim, tile += TILE) {
        v16_store(tile, some(from, n));
        v16_store(tile + 16, n > 16 ? some(from + 16, n - 16) : v16_zero());
    }
}
static void store_tile(const ares_delta_args *a, float *states, int64_t place, int32_t h,
                       int32_t column, const float *tile)
{
    int32_t n = a->v_dim - column;
    float *to = states + state_at(a, place, h) + column;
    for (int32_t i = 0; i < a->k_dim; i++, to += a->v_dim, tile += TILE) {
        put(to, n, v16_load(tile));
        if (n > 16) put(to + 16, n - 16, v16_load(tile + 16));
    }
}

/* 32 columns. */
typedef struct two {
    v16 a, b;
} two;
V16_INLINE two two_of(const float *p, int32_t n)
{
    return (two){ some(p, n), n > 16 ? some(p + 16, n - 16) : v16_zero() };
}
V16_INLINE void two_put(float *p, int32_t n, two v)
{
    put(p, n, v.a);
    if (n > 16) put(p + 16, n - 16, v.b);
}
V16_INLINE two two_load(const float *p)
{
    return (two){ v16_load(p), v16_load(p + 16) };
}
V16_INLINE void two_store(float *p, two v)
{
    v16_store(p, v.a);
    v16_store(p + 16, v.b);
}
V16_INLINE two two_fma(v16 x, two y, two z)
{
    return (two){ v16_fma(x, y.a, z.a), v16_fma(x, y.b, z.b) };
}
V16_INLINE two two_mul(v16 x, two y)
{
    return (two){ v16_mul(x, y.a), v16_mul(x, y.b) };
}

/* One token of one value head. */
typedef struct token {
    const float *q, *k, *v;
    float decay, beta;
} token;
static inline token token_of(const delta_job *j, int64_t r, int32_t h, int32_t column)
{
    const ares_delta_args *a = &j->a;
    int64_t keys = (int64_t)a->k_heads * a->k_dim;
    const float *x = a->qkv + r * a->ldqkv, *q = x + (int64_t)(h / j->per_key) * a->k_dim,
                *gates = a->gates + r * 2 * a->v_heads + h;
    return (token){ q, q + keys, x + 2 * keys + (int64_t)h * a->v_dim + column, gates[0],
                    gates[a->v_heads] };
}

/*
 * Asks for what a token reads: rows lie so far apart that nothing else fetches them, or their
 * pages, before they are needed.
 */
V16_INLINE void fetch(const delta_job *j, int64_t r, int32_t h, int32_t column)
{
    const token t = token_of(j, r, h, column);
    __builtin_prefetch(t.v);
    __builtin_prefetch(t.v + 16);
    for (int32_t i = 0; i < j->a.k_dim; i += 16) {
        __builtin_prefetch(t.q + i);
        __builtin_prefetch(t.k + i);
    }
}

/* u = beta (v - m) */
V16_INLINE two change_of(token t, int32_t n, two m)
{
    two v = two_of(t.v, n);
    return two_mul(v16_set1(t.beta), (two){ v16_sub(v.a, m.a), v16_sub(v.b, m.b) });
}

/*
 * The tile after rows [first, last), and with `gives` their o. In between it has D of the row to
 * come, so that a row is one pass over it, in which the sums over i of this row and the next grow.
 */
V16_INLINE void advance(const delta_job *j, float *tile, int32_t h, int32_t column, int64_t first,
                        int64_t last, bool gives)
{
    const ares_delta_args *a = &j->a;
    int32_t k_dim = a->k_dim, n = a->v_dim - column;
    if (first >= last) return;
    token t = token_of(j, first, h, column);
    two m = { v16_zero(), v16_zero() };
    for (int32_t i = 0; i < k_dim; i++) {
        two d = two_mul(v16_set1(t.decay), two_load(tile + i * TILE));
        m = two_fma(v16_set1(t.k[i]), d, m);
        two_store(tile + i * TILE, d);
    }
    for (int64_t r = first; r < last; r++) {
        two u = change_of(t, n, m), o = { v16_zero(), v16_zero() };
        bool more = r + 1 < last;
        if (r + 2 < last) fetch(j, r + 2, h, column);
        token next = more ? token_of(j, r + 1, h, column) : t;
        m = o;
        for (int32_t i = 0; i < k_dim && more; i++) {
            two s = two_fma(v16_set1(t.k[i]), u, two_load(tile + i * TILE)),
                d = two_mul(v16_set1(next.decay), s);
            two_store(tile + i * TILE, d);
            if (gives) o = two_fma(v16_set1(t.q[i]), s, o);
            m = two_fma(v16_set1(next.k[i]), d, m);
        }
        for (int32_t i = 0; i < k_dim && !more; i++) {
            two s = two_fma(v16_set1(t.k[i]), u, two_load(tile + i * TILE));
            two_store(tile + i * TILE, s);
            if (gives) o = two_fma(v16_set1(t.q[i]), s, o);
        }
        if (gives) two_put(a->o + r * a->ldo + (int64_t)h * a->v_dim + column, n, o);
        t = next;
    }
}

/* The place of a segment's state after 64 tokens. */
static int64_t first_kept(const ares_delta_args *a, int32_t s)
{
    return a->to && !a->states ? a->to[s] : a->seg.start[s] / ARES_DELTA_KEPT;
}

/*
 * Whether segment `of` goes on from segment s, with whom it then shares a task: its state begins as
 * s leaves it.
 */
static bool follows(const ares_segments *seg, int32_t of, int32_t s)
{
    bool own = prefix_of(seg, of) && seg->prefix_row[of] == seg->start[s] &&
               seg->start[s] < seg->start[s + 1];
    ARES_ASSERT(!own || prefix_of(seg, of) == seg->start[s + 1] - seg->start[s]);
    return own;
}

/* A tile over all rows of a segment, whose states are kept where they are asked for. */
static void run_segment(const delta_job *j, int32_t s, int32_t h, int32_t column, float *tile)
{
    const ares_delta_args *a = &j->a;
    int64_t start = a->seg.start[s], end = a->seg.start[s + 1];
    for (int64_t r = start, stop; r < end; r = stop) {
        stop = a->kept ? ARES_MIN(end, r + ARES_DELTA_KEPT) : end;
        advance(j, tile, h, column, r, stop, true);
        if (a->kept && stop - r == ARES_DELTA_KEPT)
            store_tile(a, a->kept, first_kept(a, s) + (r - start) / ARES_DELTA_KEPT, h, column,
                       tile);
    }
}

static void delta_task(void *ctx, int64_t task, int worker)
{
    const delta_job *j = ctx;
    const ares_delta_args *a = &j->a;
    int32_t s = (int32_t)(task / j->tiles / a->v_heads),
            h = (int32_t)(task / j->tiles % a->v_heads), column = (int32_t)(task % j->tiles) * TILE,
            from = a->states ? a->from[s] : -1;
    int64_t n = tile_floats(a);
    size_t bytes = (size_t)n * sizeof(float);
    float *tile = kernels_scratch(j->d, worker, 2 * bytes), *next = tile + n;
    if (prefix_of(&a->seg, s)) return; /* with the segment that it goes on from */
    if (from >= 0) load_tile(a, a->states, from, h, column, tile);
    else memset(tile, 0, bytes);
    run_segment(j, s, h, column, tile);
    if (a->states && a->to[s] >= 0) store_tile(a, a->states, a->to[s], h, column, tile);
    for (int32_t i = s + 1; i < a->seg.n && a->seg.prefix_row; i++)
        if (follows(&a->seg, i, s)) run_segment(j, i, h, column, memcpy(next, tile, bytes));
}

static delta_job delta_of(ares_device *d, const ares_delta_args *a)
{
    ARES_ASSERT(a->v_heads % a->k_heads == 0);
    return (delta_job){ d, *a, a->v_heads / a->k_heads, (a->v_dim + TILE - 1) / TILE };
}
/* Microseconds of a pass of the recurrence over one token after the other. */
static double delta_us(const ares_delta_args *a)
{
    return (double)a->seg.rows * a->v_heads * a->k_dim * a->v_dim / 1.2e4;
}
static void prepare(delta_job *j)
{
    const ares_delta_args *a = &j->a;
    kernels_run(j->d, (double)a->seg.rows * (a->k_heads * a->k_dim / 2e3 + a->v_heads / 1e2),
                (a->seg.rows + PREPARED_ROWS - 1) / PREPARED_ROWS, prepare_task, j);
}

void ARES_K(delta)(ares_device *d, const ares_delta_args *a)
{
    delta_job j = delta_of(d, a);
    prepare(&j);
    kernels_run(d, delta_us(a), (int64_t)a->seg.n * a->v_heads * j.tiles, delta_task, &j);
}

/*
 * Backward. From the last token to the first, with dS from the future:
 *
 *   dS += q do^T     dq = S do     du = dS^T k     dk = dS u     db = sum_j du_j (v_j - m_j)
 *   dv = beta du     dm = -beta du     dk += D dm     dS += k dm^T     dg = sum_ij dS_ij D_ij
 *   dS <- decay dS   (left for the token before)
 *
 * A task has the value heads of one key head in one segment, since they add to the same dq and dk,
 * in their order, tile by tile; and before it the segments that go on from that one, whose dS it
 * begins with: their sum, in their order.
 */

/*
 * Scratch of a task: 1.2 MB for a net of 128 x 128. A set of tiles is [value heads of a key
 * head][tiles][k_dim][32].
 */
typedef struct undo {
    float *ds;    /* a set */
    float *s;     /* [ARES_DELTA_KEPT + 1][k_dim][32]: S before each token, and after the last */
    float *m, *u; /* [ARES_DELTA_KEPT][32] */
    float *prefix, *to; /* sets: S and dS where other segments go on, if there are any */
} undo;
static int64_t set_floats(const delta_job *j)
{
    return (int64_t)j->per_key * j->tiles * tile_floats(&j->a);
}
static undo undo_of(const delta_job *j, int worker)
{
    int64_t tile = tile_floats(&j->a), set = set_floats(j);
    bool shared = j->a.seg.prefix_row;
    undo w = { .s = kernels_scratch(
                   j->d, worker, scratch_delta(j->a.k_dim, j->a.v_dim, j->per_key, true, shared)) };
    w.m = w.s + (ARES_DELTA_KEPT + 1) * tile;
    w.u = w.m + ARES_DELTA_KEPT * TILE;
    w.ds = w.u + ARES_DELTA_KEPT * TILE;
    w.prefix = shared ? w.ds + set : NULL;
    w.to = shared ? w.prefix + set : NULL;
    return w;
}

/* Rows [first, last) once more, from w->s[0]: all states, m and u. */
static void replay(const delta_job *j, const undo *w, int32_t h, int32_t column, int64_t first,
                   int64_t last)
{
    int32_t k_dim = j->a.k_dim, n = j->a.v_dim - column;
    int64_t tile = tile_floats(&j->a);
    token t = token_of(j, first, h, column);
    const two zero = { v16_zero(), v16_zero() };
    two m = zero;
    for (int32_t i = 0; i < k_dim; i++)
        m = two_fma(v16_set1(t.k[i]), two_mul(v16_set1(t.decay), two_load(w->s + i * TILE)), m);
    for (int64_t r = first; r < last; r++) {
        const float *from = w->s + (r - first) * tile;
        float *to = w->s + (r + 1 - first) * tile;
        two u = change_of(t, n, m);
        if (r + 2 < last) fetch(j, r + 2, h, column);
        two_store(w->m + (r - first) * TILE, m);
        two_store(w->u + (r - first) * TILE, u);
        token next = r + 1 < last ? token_of(j, r + 1, h, column) : t; /* the last m is not used */
        v16 decay = v16_set1(t.decay), then = v16_set1(next.decay);
        m = zero;
        for (int32_t i = 0; i < k_dim; i++) {
            two s = two_fma(v16_set1(t.k[i]), u, two_mul(decay, two_load(from + i * TILE)));
            two_store(to + i * TILE, s);
            m = two_fma(v16_set1(next.k[i]), two_mul(then, s), m);
        }
        t = next;
    }
}

/* v16_sum of each of 16 vectors p[16][16]. */
#if defined ARES_ISA_AVX512 || defined ARES_ISA_AVX2
V16_INLINE __m256 sums_of_8(const float *p)
{
    __m256 x[8], y[4], z[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        x[i] = _mm256_add_ps(_mm256_loadu_ps(p + i * 16), _mm256_loadu_ps(p + i * 16 + 8));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) /* four lanes of vector i, then of i + 4 */
        y[i] = _mm256_add_ps(_mm256_permute2f128_ps(x[i], x[i + 4], 0x20),
                             _mm256_permute2f128_ps(x[i], x[i + 4], 0x31));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) /* two of each of four */
        z[i] = _mm256_add_ps(_mm256_shuffle_ps(y[2 * i], y[2 * i + 1], 0x44),
                             _mm256_shuffle_ps(y[2 * i], y[2 * i + 1], 0xee));
    return _mm256_add_ps(_mm256_shuffle_ps(z[0], z[1], 0x88), _mm256_shuffle_ps(z[0], z[1], 0xdd));
}
V16_INLINE v16 sums_of_16(const float *p)
{
    float sums[16];
    _mm256_storeu_ps(sums, sums_of_8(p));
    _mm256_storeu_ps(sums + 8, sums_of_8(p + 128));
    return v16_load(sums);
}
#else
V16_INLINE v16 sums_of_16(const float *p)
{
    float t[16 * 16];
    v16 x[16];
    v16_transpose(p, 16, t, 16);
    for (int l = 0; l < 16; l++) x[l] = v16_load(t + l * 16);
    for (int half = 8; half; half /= 2)
        for (int l = 0; l < half; l++) x[l] = v16_add(x[l], x[l + half]);
    return x[0];
}
#endif

/* What a row hands to the pass that ends it. */
typedef struct ending {
    two u, dm;
} ending;

/*
 * A pass over S as it was between rows p and t (p before t), and over dS. Of t, whose beginning was
 * in the pass before, the end; of p the beginning. With D = decay S:
 *
 *   end         dk = dS u + D dm, dS += k dm^T, dg = sum_ij dS_ij D_ij, dS <- decay dS
 *   beginning   dS += q do^T, dq = S do, du = dS^T k
 *
 * dk and dq get sums over 32 columns, or with `add` more of them.
 */
V16_INLINE void back_pass(const float *s, float *ds, int32_t k_dim, bool ends, token t, ending of_t,
                          float *dk, two *dg, bool begins, token p, two d_o, float *dq, two *du,
                          bool add)
{
    _Alignas(64) float of_k[16 * 16], of_q[16 * 16];
    for (int32_t first = 0; first < k_dim; first += 16) {
        int32_t n = ARES_MIN(16, k_dim - first);
        if (n < 16) { /* the rest of their lanes is summed and not used */
            memset(of_k, 0, sizeof of_k);
            memset(of_q, 0, sizeof of_q);
        }
        for (int32_t l = 0; l < n; l++) {
            int32_t i = first + l;
            two state = two_load(s + i * TILE), g = two_load(ds + i * TILE);
            if (ends) {
                two d = two_mul(v16_set1(t.decay), state);
                v16 sum = v16_fma(g.b, of_t.u.b, v16_mul(g.a, of_t.u.a));
                sum = v16_fma(d.b, of_t.dm.b, v16_fma(d.a, of_t.dm.a, sum));
                v16_store(of_k + l * 16, sum);
                g = two_fma(v16_set1(t.k[i]), of_t.dm, g);
                *dg = (two){ v16_fma(g.a, d.a, dg->a), v16_fma(g.b, d.b, dg->b) };
                g = two_mul(v16_set1(t.decay), g);
            }
            if (begins) {
                g = two_fma(v16_set1(p.q[i]), d_o, g);
                *du = two_fma(v16_set1(p.k[i]), g, *du);
                v16_store(of_q + l * 16, v16_fma(state.b, d_o.b, v16_mul(state.a, d_o.a)));
            }
            two_store(ds + i * TILE, g);
        }
        for (int which = 0; which < 2; which++) {
            if (which ? !begins : !ends) continue;
            float *to = (which ? dq : dk) + first;
            v16 sums = sums_of_16(which ? of_q : of_k);
            put(to, n, add ? v16_add(some(to, n), sums) : sums);
        }
    }
}

/* The same of what a row back reads and adds to; replay has just read the rest. */
static void fetch_back(const delta_job *j, int64_t r, int32_t h, int32_t column)
{
    const ares_delta_args *a = &j->a;
    const float *d_o = a->d_o + r * a->lddo + (int64_t)h * a->v_dim + column,
                *dq = a->dqkv + r * a->lddqkv + (int64_t)(h / j->per_key) * a->k_dim,
                *dk = dq + (int64_t)a->k_heads * a->k_dim;
    fetch(j, r, h, column);
    __builtin_prefetch(d_o);
    __builtin_prefetch(d_o + 16);
    for (int32_t i = 0; i < a->k_dim; i += 16) {
        __builtin_prefetch(dq + i, 1);
        __builtin_prefetch(dk + i, 1);
    }
}

/* The rows of a tile from the last to the first, after replay. */
static void rows_back(const delta_job *j, const undo *w, int32_t h, int32_t column, int64_t first,
                      int64_t last, float *ds)
{
    const ares_delta_args *a = &j->a;
    int32_t k_dim = a->k_dim, n = a->v_dim - column;
    int64_t tile = tile_floats(a), keys = (int64_t)a->k_heads * k_dim,
            own_key = (int64_t)(h / j->per_key) * k_dim,
            own = (int64_t)h * a->v_dim + column;  /* among the values */
    bool add = h % j->per_key != 0 || column != 0; /* what other tiles gave q and k */
    const two zero = { v16_zero(), v16_zero() };
    token t = token_of(j, last - 1, h, column);
    float *dx = a->dqkv + (last - 1) * a->lddqkv;
    two du = zero, dg = zero, d_o = two_of(a->d_o + (last - 1) * a->lddo + own, n);
    back_pass(w->s + (last - first) * tile, ds, k_dim, false, t, (ending){ zero, zero }, NULL, &dg,
              true, t, d_o, dx + own_key, &du, add);
    for (int64_t r = last; r-- > first;) {
        const float *s = w->s + (r - first) * tile;
        two v = two_of(t.v, n), m = two_load(w->m + (r - first) * TILE),
            dv = two_mul(v16_set1(t.beta), du);
        ending of_t = { two_load(w->u + (r - first) * TILE), { v16_neg(dv.a), v16_neg(dv.b) } };
        v16 of_beta = v16_fma(du.b, v16_sub(v.b, m.b), v16_mul(du.a, v16_sub(v.a, m.a)));
        float *dk = dx + own_key + keys;
        two_put(dx + 2 * keys + own, n, dv);
        du = dg = zero;
        if (r > first) {
            token p = token_of(j, r - 1, h, column);
            if (r > first + 1) fetch_back(j, r - 2, h, column);
            dx -= a->lddqkv;
            d_o = two_of(a->d_o + (r - 1) * a->lddo + own, n);
            back_pass(s, ds, k_dim, true, t, of_t, dk, &dg, true, p, d_o, dx + own_key, &du, add);
            t = p;
        } else back_pass(s, ds, k_dim, true, t, of_t, dk, &dg, false, t, zero, NULL, &du, add);

        /* of g and beta so far; gates_back goes on from here */
        float *da = (float *)a->da + r * a->lddab + h, *db = (float *)a->db + r * a->lddab + h;
        float g = v16_sum(v16_add(dg.a, dg.b)), b = v16_sum(of_beta);
        *da = column ? *da + g : g;
        *db = column ? *db + b : b;
    }
}

/*
 * Through the norm: of y = x norm factor, dx = norm (factor dy - y (y . dy) / factor), in place.
 */
static void unit_back(float *dy, const float *y, int32_t k, float norm, float factor)
{
    v16 sum = v16_zero();
    for (int32_t i = 0; i < k; i += 16) sum = v16_fma(some(y + i, k - i), some(dy + i, k - i), sum);
    v16 pull = v16_set1(v16_sum(sum) / factor);
    for (int32_t i = 0; i < k; i += 16) {
        v16 d = v16_mul(some(dy + i, k - i), v16_set1(factor));
        put(dy + i, k - i, v16_mul(v16_fnma(some(y + i, k - i), pull, d), v16_set1(norm)));
    }
}

/* The state of tile i of a key head before chunk c of segment s: S of the prefix, kept, or 0. */
static void state_before(const delta_job *j, const undo *w, int32_t s, int64_t c, int32_t h,
                         int32_t column, int32_t i)
{
    const ares_delta_args *a = &j->a;
    int64_t n = tile_floats(a);
    size_t bytes = (size_t)n * sizeof *w->s;
    if (c) load_tile(a, a->kept, first_kept(a, s) + c - 1, h, column, w->s);
    else if (prefix_of(&a->seg, s)) memcpy(w->s, w->prefix + i * n, bytes);
    else memset(w->s, 0, bytes);
}

/* A segment back, from w->ds at its end to that at its beginning. */
static void segment_back(const delta_job *j, const undo *w, int32_t s, int32_t key)
{
    const ares_delta_args *a = &j->a;
    int64_t start = a->seg.start[s], end = a->seg.start[s + 1],
            keys = (int64_t)a->k_heads * a->k_dim;
    float root = 1.0f / sqrtf((float)a->k_dim);
    for (int64_t c = (end - start - 1) / ARES_DELTA_KEPT; c >= 0 && end > start; c--) {
        int64_t first = start + c * ARES_DELTA_KEPT, last = ARES_MIN(end, first + ARES_DELTA_KEPT);
        for (int32_t i = 0; i < j->per_key * j->tiles; i++) {
            int32_t h = key * j->per_key + i / j->tiles, column = i % j->tiles * TILE;
            state_before(j, w, s, c, h, column, i);
            replay(j, w, h, column, first, last);
            rows_back(j, w, h, column, first, last, w->ds + i * tile_floats(a));
        }
        for (int64_t r = first; r < last; r++) {
            const float *y = a->qkv + r * a->ldqkv + (int64_t)key * a->k_dim,
                        *norm = a->norms + r * 2 * a->k_heads + key;
            float *dy = a->dqkv + r * a->lddqkv + (int64_t)key * a->k_dim;
            unit_back(dy, y, a->k_dim, norm[0], root);
            unit_back(dy + keys, y + keys, a->k_dim, norm[a->k_heads], 1.0f);
        }
    }
}

/* S after segment s, of all tiles: from the last that was kept on. */
static void find_prefix(const delta_job *j, const undo *w, int32_t s, int32_t key)
{
    const ares_delta_args *a = &j->a;
    int64_t start = a->seg.start[s], end = a->seg.start[s + 1], n = tile_floats(a),
            c = (end - start) / ARES_DELTA_KEPT;
    for (int32_t i = 0; i < j->per_key * j->tiles; i++) {
        int32_t h = key * j->per_key + i / j->tiles, column = i % j->tiles * TILE;
        state_before(j, w, s, c, h, column, i);
        memcpy(w->prefix + i * n, w->s, (size_t)n * sizeof *w->s);
        advance(j, w->prefix + i * n, h, column, start + c * ARES_DELTA_KEPT, end, false);
    }
}

static void delta_backward_task(void *ctx, int64_t task, int worker)
{
    const delta_job *j = ctx;
    const ares_segments *seg = &j->a.seg;
    int32_t s = (int32_t)(task / j->a.k_heads), key = (int32_t)(task % j->a.k_heads);
    int64_t set = set_floats(j);
    size_t bytes = (size_t)set * sizeof(float);
    bool any = false;
    if (prefix_of(seg, s)) return; /* with the segment that it goes on from */
    undo w = undo_of(j, worker);
    for (int32_t i = s + 1; i < seg->n && seg->prefix_row; i++) {
        if (!follows(seg, i, s)) continue;
        if (!any) {
            find_prefix(j, &w, s, key);
            memset(w.to, 0, bytes);
        }
        any = true;
        memset(w.ds, 0, bytes);
        segment_back(j, &w, i, key);
        for (int64_t k = 0; k < set; k += 16)
            v16_store(w.to + k, v16_add(v16_load(w.to + k), v16_load(w.ds + k)));
    }
    if (any) memcpy(w.ds, w.to, bytes);
    else memset(w.ds, 0, bytes);
    segment_back(j, &w, s, key);
}

/* From the gradients of g and beta to those of a, b, a_log and dt_bias; 16 heads, row by row. */
static void gates_back_task(void *ctx, int64_t task, int worker)
{
    const ares_delta_args *a = &((const delta_job *)ctx)->a;
    int32_t h = (int32_t)task * 16, n = a->v_heads - h;
    const v16 one = v16_set1(1.0f);
    (void)worker;
    v16 rate = v16_exp(some(a->a_log + h, n)), bias = some(a->dt_bias + h, n),
        of_log = a->da_log ? some(a->da_log + h, n) : v16_zero(),
        of_bias = a->d_dt_bias ? some(a->d_dt_bias + h, n) : v16_zero();
    for (int64_t r = 0; r < a->seg.rows; r++) {
        float *da = (float *)a->da + r * a->lddab + h, *db = (float *)a->db + r * a->lddab + h;
        v16 z = v16_add(some((const float *)a->a + r * a->ldab + h, n), bias), dg = some(da, n),
            beta = some(a->gates + r * 2 * a->v_heads + a->v_heads + h, n);
        of_log = v16_fma(dg, v16_neg(v16_mul(rate, softplus(z))), of_log);
        v16 d = v16_neg(v16_mul(v16_mul(dg, rate), v16_sigmoid(z)));
        of_bias = v16_add(of_bias, d);
        put(da, n, d);
        put(db, n, v16_mul(v16_mul(some(db, n), beta), v16_sub(one, beta)));
    }
    if (a->da_log) put(a->da_log + h, n, of_log);
    if (a->d_dt_bias) put(a->d_dt_bias + h, n, of_bias);
}

void ARES_K(delta_backward)(ares_device *d, const ares_delta_args *a)
{
    delta_job j = delta_of(d, a);
    prepare(&j);
    kernels_run(d, 4 * delta_us(a), (int64_t)a->seg.n * a->k_heads, delta_backward_task, &j);
    kernels_run(d, a->seg.rows * a->v_heads / 1e2, (a->v_heads + 15) / 16, gates_back_task, &j);
}
