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
#include "attention.h"

enum { QUERIES = 48 };

typedef struct backward_job {
    ares_device *d;
    const ares_attention_args *a;
    int32_t *next; /* [segments] the next segment with the same prefix, -1 at the end */
    int32_t *lead; /* [tasks / n_kv_heads] the first segment of each prefix */
} backward_job;

/* One chunk of keys in the layouts that the products need, 32 * dim floats each. */
typedef struct chunk {
    float *kt, *vt, *k; /* keys and values transposed, keys */
    float *dk, *dv;     /* [32][dim], started from what a->dk and a->dv hold */
    int first, keys;
} chunk;

static float dot(const float *a, const float *b, int n)
{
    v16 sum = v16_zero();
    int i = 0;
    for (; i + 16 <= n; i += 16) sum = v16_fma(v16_load(a + i), v16_load(b + i), sum);
    if (i < n) sum = v16_fma(v16_load_first(a + i, n - i), v16_load_first(b + i, n - i), sum);
    return v16_sum(sum);
}

/* c = rows of a [n][dim] times a chunk's keys or values, transposed [dim][32] */
static void times_chunk(float (*c)[32], const float *a, int64_t lda, const float *b, int n, int dim)
{
    tile_product((tile_args){ .c = c[0],
                              .ldc = 32,
                              .a = a,
                              .row = lda,
                              .step = 1,
                              .b = b,
                              .ldb = 32,
                              .steps = dim,
                              .fresh = true },
                 n, 32);
}

/* c [keys][dim] += a [n][32], transposed, times b [n][dim] */
static void add_to_keys(float *c, const float (*a)[32], const float *b, int64_t ldb, int n,
                        int keys, int dim)
{
    tile_product(
        (tile_args){
            .c = c, .ldc = dim, .a = a[0], .row = 1, .step = 32, .b = b, .ldb = ldb, .steps = n },
        keys, dim);
}

/*
 * One row, from scores to probabilities and from their derivatives to those of the scores. seen: a
 * bit per key.
 */
static void differentiate_row(float *p, float *ds, uint32_t seen, v16 lse, v16 delta, v16 scale)
{
    for (int half = 0; half < 2; half++, seen >>= 16) {
        float *pp = p + 16 * half, *dd = ds + 16 * half;
        v16 e = v16_exp(v16_sub(v16_mul(v16_load(pp), scale), lse));
        e = v16_select(v16m_of(seen & 0xffff), e, v16_zero());
        v16_store(pp, e);
        v16_store(dd, v16_mul(v16_mul(e, v16_sub(v16_load(dd), delta)), scale));
    }
}

/*
 * The queries of a segment and one head: where they lie, or copies without gaps. Rows that are far
 * apart meet in a few sets of the cache, and every chunk of keys visits all of them.
 */
/* Rows [first, first + n) of segment s and query head `head` against one chunk. */
static void rows_back(const ares_attention_args *a, const query_rows *x, int s, int head, int first,
                      int n, const chunk *c)
{
    float p[QUERIES][32], ds[QUERIES][32];
    int dim = a->head_dim, prefix = segment_prefix(&a->seg, s);
    int64_t row = a->seg.start[s] + first;
    const float *q = x->q + first * x->ldq, *d_out = x->d_out + first * x->ldo;
    float *dq = x->dq + first * x->lddq;

    times_chunk(p, q, x->ldq, c->kt, n, dim);
    times_chunk(ds, d_out, x->ldo, c->vt, n, dim);
    const v16 scale = v16_set1(a->scale);
    for (int r = 0; r < n; r++) {
        int position = prefix + first + r, high = a->causal ? position + 1 - c->first : 32,
            low = a->window > 0 ? position + 1 - a->window - c->first : 0;
        if (high > c->keys) high = c->keys;
        uint32_t seen = keys_between(ARES_MAX(low, 0), ARES_MAX(high, 0));
        differentiate_row(p[r], ds[r], seen, v16_set1(a->lse[(row + r) * a->n_heads + head]),
                          v16_set1(x->delta[first + r]), scale);
    }
    tile_product((tile_args){ .c = dq,
                              .ldc = x->lddq,
                              .a = ds[0],
                              .row = 32,
                              .step = 1,
                              .b = c->k,
                              .ldb = dim,
                              .steps = c->keys },
                 n, dim);
    add_to_keys(c->dv, p, d_out, x->ldo, n, c->keys, dim);
    add_to_keys(c->dk, ds, q, x->ldq, n, c->keys, dim);
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

/* scratch: as scratch_floats_of_rows says */
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

static void close_rows(const ares_attention_args *a, const query_rows *x, int s, int head)
{
    int64_t row = a->seg.start[s], dim = a->head_dim;
    float *dq = (float *)a->dq + row * a->lddq + head * dim;
    for (int64_t r = 0; r < segment_rows(&a->seg, s) && dq != x->dq; r++)
        memcpy(dq + r * a->lddq, x->dq + r * dim, (size_t)dim * sizeof *dq);
}

/* dq, dk and dv of a segment's own rows, for KV head h and its query heads, begin at 0. */
static void zero_gradients(const ares_attention_args *a, int s, int h)
{
    int64_t dim = a->head_dim, group = a->n_heads / a->n_kv_heads;
    for (int64_t row = a->seg.start[s]; row < a->seg.start[s + 1]; row++) {
        memset((float *)a->dq + row * a->lddq + h * group * dim, 0,
               (size_t)(group * dim) * sizeof(float));
        memset((float *)a->dk + row * a->lddkv + h * dim, 0, (size_t)dim * sizeof(float));
        memset((float *)a->dv + row * a->lddkv + h * dim, 0, (size_t)dim * sizeof(float));
    }
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
        if (first >= last) continue;
        gather_transposed(&a->seg, s, c->first, c->keys, k, a->ldkv, dim, c->kt);
        gather_transposed(&a->seg, s, c->first, c->keys, v, a->ldkv, dim, c->vt);
        gather_rows(&a->seg, s, c->first, c->keys, k, a->ldkv, dim, c->k);
        move_gradients(a, s, h, c, true);
        for (int g = 0; g < group; g++)
            for (int r = first; r < last; r += QUERIES)
                rows_back(a, &x[g], s, h * group + g, r, last - r < QUERIES ? last - r : QUERIES,
                          c);
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
    float *scratch = (float *)((char *)x + scratch_query_rows(group)), *rows = scratch + 5 * size;
    /* lanes beyond the last key are computed and not used; they must hold numbers */
    memset(scratch, 0, (size_t)size * 2 * sizeof(float));
    chunk c = { .kt = scratch,
                .vt = scratch + size,
                .k = scratch + 2 * size,
                .dk = scratch + 3 * size,
                .dv = scratch + 4 * size };
    for (int s = lead; s >= 0; s = job->next[s]) zero_gradients(a, s, h);
    for (int s = lead; s >= 0; s = job->next[s]) {
        for (int g = 0; g < group; g++)
            x[g] = open_rows(a, s, h * group + g, copies, rows + g * each);
        segment_back(a, x, s, h, &c);
        for (int g = 0; g < group; g++) close_rows(a, &x[g], s, h * group + g);
    }
}

void ARES_K(attention_backward)(ares_device *d, const ares_attention_args *a)
{
    const ares_segments *seg = &a->seg;
    ARES_ASSERT(!a->cache && a->n_heads % a->n_kv_heads == 0);
    int32_t *next = kernels_scratch(d, KERNELS_SHARED, (size_t)seg->n * 3 * sizeof(int32_t) + 1);
    int32_t *tail = next + seg->n, *lead = tail + seg->n, groups = 0;
    double work = 0.0;
    for (int s = 0; s < seg->n; s++) {
        int32_t leader = segment_leader(seg, s), rows = segment_rows(seg, s);
        next[s] = -1;
        if (leader == s) lead[groups++] = s;
        else next[tail[leader]] = s;
        tail[leader] = s;
        work += (double)rows * (segment_prefix(seg, s) + (a->causal ? rows / 2 + 16 : rows)) *
                a->n_heads * a->head_dim * 10.0;
    }
    backward_job job = { d, a, next, lead };
    kernels_run(d, work / 100000, (int64_t)groups * a->n_kv_heads, back_task, &job);
}
