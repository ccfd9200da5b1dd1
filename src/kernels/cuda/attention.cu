/*
 * Attention on a card, forward and backward, and the gathering of keys and values from the paged
 * cache.
 */
#include "device.cuh"

/*
 * Attention in tiles of 32 queries by 32 keys, on packed or paged keys; a row alone on paged keys,
 * as in decoding, is decode.cu's. A block computes the queries of one tile and head against all
 * keys they see. Each warp has four queries; its lanes are keys, then columns of the output. A
 * query's numbers come from the same chain whatever tile it lies in: keys in order, one rescale per
 * chunk, as on the CPU. So packed and paged agree bit for bit here too, except for a segment of one
 * row on paged keys.
 *
 * Backward, from the saved log-sum-exp (Dao et al., arXiv 2205.14135, section 3.1), has two
 * kernels: one computes dq, a block per tile of queries; the other dk and dv, a block per tile of a
 * segment's own keys, to which it adds the queries of all segments that see them, in the order of
 * segments, heads, queries. Both compute the scores and probabilities; nothing is added atomically.
 */

enum { TILE = 32, EACH = 4, THREADS = TILE / EACH * 32 }; /* EACH: queries (or keys) of a warp */

/* ------------------------------------------------------------------ which tile */

typedef struct tile {
    int s, first, n;  /* the segment, the tile's first row in it, its number of rows */
    int prefix, keys; /* of the segment: keys of its prefix, and all it may see */
    int64_t start;    /* first row of the segment */
} tile;

static __device__ int prefix_of(const ares_segments *seg, int s)
{
    return seg->prefix_len ? seg->prefix_len[s] : 0;
}

/*
 * The tile of block b in a grid of rows / TILE + segments blocks. The blocks of segment s begin at
 * start / TILE + s: enough for every segment, and no table is needed. False for surplus blocks.
 */
static __device__ bool find_tile(const ares_segments *seg, int b, tile *t)
{
    int low = 0, high = seg->n - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (seg->start[mid] / TILE + mid <= b) low = mid;
        else high = mid - 1;
    }
    int rows = seg->start[low + 1] - seg->start[low];
    t->s = low;
    t->start = seg->start[low];
    t->first = (b - (seg->start[low] / TILE + low)) * TILE;
    t->n = rows - t->first < TILE ? rows - t->first : TILE;
    t->prefix = prefix_of(seg, low);
    t->keys = t->prefix + rows;
    return t->n > 0;
}
static dim3 tiles(const ares_attention_args *a, int heads)
{
    return dim3((unsigned)(a->seg.rows / TILE + a->seg.n), (unsigned)heads);
}

static __device__ bool sees(const ares_attention_args *a, int position, int key, int keys)
{
    return key < keys && (!a->causal || key <= position) &&
           (a->window == 0 || key > position - a->window);
}

/* ---------------- tiles in shared memory: [TILE][dim + 1] */

/* n rows; zeros after them. */
template <typename T>
static __device__ void load_rows(float *to, int dim, const T *from, int64_t ld, int n)
{
    for (int i = threadIdx.x; i < TILE * dim; i += THREADS) {
        int r = i / dim, d = i % dim;
        to[r * (dim + 1) + d] = r < n ? cuda_get(from + r * ld + d) : 0.0f;
    }
}
/* Keys and values [first, first + 32) of the tile's segment and KV head h. */
template <typename T>
static __device__ void load_keys(const ares_attention_args *a, const tile *t, int h, int first,
                                 float *k, float *v)
{
    int dim = a->head_dim, n = t->keys - first;
    if (a->cache) {
        int64_t block = a->seg.block_table[(int64_t)t->s * a->seg.table_stride + first / TILE];
        const T *keys = (const T *)a->cache + (block * a->n_kv_heads + h) * 2 * TILE * dim;
        load_rows(k, dim, keys, dim, n);
        load_rows(v, dim, keys + TILE * dim, dim, n);
        return;
    }
    for (int i = threadIdx.x; i < TILE * dim; i += THREADS) {
        int r = i / dim, d = i % dim, key = first + r;
        float key_value = 0.0f, value = 0.0f;
        if (r < n) {
            int64_t row = key < t->prefix ? (int64_t)a->seg.prefix_row[t->s] + key
                                          : t->start + key - t->prefix;
            key_value = cuda_get((const T *)a->k + row * a->ldkv + (int64_t)h * dim + d);
            value = cuda_get((const T *)a->v + row * a->ldkv + (int64_t)h * dim + d);
        }
        k[r * (dim + 1) + d] = key_value;
        v[r * (dim + 1) + d] = value;
    }
}
/* out[j] = row j of `four` . row `lane` of `rows` */
static __device__ void dots(const float *four, const float *rows, int dim, float out[EACH])
{
    const float *own = rows + threadIdx.x % 32 * (dim + 1);
    for (int j = 0; j < EACH; j++) out[j] = 0.0f;
    for (int d = 0; d < dim; d++)
        for (int j = 0; j < EACH; j++) out[j] = fmaf(four[j * (dim + 1) + d], own[d], out[j]);
}
/*
 * sum[j][..] += factor[j] of lane i times row i, in the order of i; lane l has the columns l, l +
 * 32, and so on.
 */
template <int COLUMNS>
static __device__ void add_products(const float factor[EACH], const float *rows, int dim,
                                    float sum[EACH][COLUMNS])
{
    for (int i = 0; i < TILE; i++) {
        float by[EACH];
        for (int j = 0; j < EACH; j++) by[j] = __shfl_sync(0xffffffffu, factor[j], i);
#pragma unroll
        for (int column = 0; column < COLUMNS; column++) {
            int d = column * 32 + threadIdx.x % 32;
            float x = d < dim ? rows[i * (dim + 1) + d] : 0.0f;
            for (int j = 0; j < EACH; j++) sum[j][column] = fmaf(by[j], x, sum[j][column]);
        }
    }
}

/* Chunks of keys that some query of the tile sees: [*from, *to). */
static __device__ void chunks_of(const ares_attention_args *a, const tile *t, int *from, int *to)
{
    int last = a->causal ? t->prefix + t->first + t->n : t->keys;
    int first = a->window > 0 ? t->prefix + t->first + 1 - a->window : 0;
    *from = first > 0 ? first / TILE : 0;
    *to = (last + TILE - 1) / TILE;
}

/* ------------------------------------------------------------------ forward */

template <typename T, int COLUMNS>
static __global__ void __launch_bounds__(THREADS) attend(ares_attention_args a, bool split)
{
    CUDA_SHARED(float, shared);
    tile t;
    if (!find_tile(&a.seg, (int)blockIdx.x, &t)) return;
    if (split && t.keys - t.prefix == 1) return; /* a row alone is decode.cu's */
    int dim = a.head_dim, size = TILE * (dim + 1), head = (int)blockIdx.y,
        h = head / (a.n_heads / a.n_kv_heads);
    float *q = shared, *k = q + size, *v = k + size;
    int own = (int)threadIdx.x / 32 * EACH, lane = (int)threadIdx.x % 32, from, to;
    int64_t row = t.start + t.first + own;
    float max[EACH], sum[EACH], out[EACH][COLUMNS];
    for (int j = 0; j < EACH; j++) {
        max[j] = -INFINITY;
        sum[j] = 0.0f;
        for (int i = 0; i < COLUMNS; i++) out[j][i] = 0.0f;
    }
    load_rows(q, dim, (const T *)a.q + (t.start + t.first) * a.ldq + (int64_t)head * dim, a.ldq,
              t.n);
    chunks_of(&a, &t, &from, &to);
    for (int c = from; c < to; c++) {
        __syncthreads();
        load_keys<T>(&a, &t, h, c * TILE, k, v);
        __syncthreads();
        if (own >= t.n) continue; /* a warp without queries only helps to load */
        float p[EACH];
        dots(q + own * (dim + 1), k, dim, p);
        for (int j = 0; j < EACH; j++) {
            float score = sees(&a, t.prefix + t.first + own + j, c * TILE + lane, t.keys)
                              ? p[j] * a.scale
                              : -INFINITY;
            float top = fmaxf(max[j], cuda_warp_max(score)), base = top == -INFINITY ? 0.0f : top;
            float rescale = expf(max[j] - base);
            p[j] = expf(score - base);
            max[j] = top;
            sum[j] = sum[j] * rescale + cuda_warp_sum(p[j]);
            for (int i = 0; i < COLUMNS; i++) out[j][i] *= rescale;
        }
        add_products<COLUMNS>(p, v, dim, out);
    }
    for (int j = 0; j < EACH && own + j < t.n; j++) {
        for (int i = 0; i < COLUMNS; i++)
            if (i * 32 + lane < dim)
                cuda_put((T *)a.out + (row + j) * a.ldo + (int64_t)head * dim + i * 32 + lane,
                         out[j][i] / sum[j]);
        if (a.lse && lane == 0) a.lse[(row + j) * a.n_heads + head] = max[j] + logf(sum[j]);
    }
}

/* The instance of a kernel for 1, 2, 4 or 8 columns per lane: head_dim up to 32, 64, 128, 256. */
#define LAUNCH(T, operation, kernel, grid, shared, ...)                                   \
    do {                                                                                  \
        if (a->head_dim <= 32)                                                            \
            cuda_launch(c, operation, kernel<T, 1>, grid, THREADS, shared, __VA_ARGS__);  \
        else if (a->head_dim <= 64)                                                       \
            cuda_launch(c, operation, kernel<T, 2>, grid, THREADS, shared, __VA_ARGS__);  \
        else if (a->head_dim <= 128)                                                      \
            cuda_launch(c, operation, kernel<T, 4>, grid, THREADS, shared, __VA_ARGS__);  \
        else cuda_launch(c, operation, kernel<T, 8>, grid, THREADS, shared, __VA_ARGS__); \
    } while (0)

static size_t shared_bytes(const ares_attention_args *a, int tiles_held)
{
    return (size_t)(tiles_held * TILE * (a->head_dim + 1)) * sizeof(float);
}

static void check(const ares_attention_args *a)
{
    ARES_ASSERT(a->n_heads % a->n_kv_heads == 0 && a->head_dim <= 256 && ARES_KV_BLOCK == TILE);
}

static void attention(ares_device *d, const ares_attention_args *args)
{
    const ares_attention_args on_card = cuda_without_host(*args), *a = &on_card;
    cuda_context *c = cuda_enter(d);
    check(a);
    if (a->seg.rows == 0) return;
    bool split = cuda_decodes(a);
    ARES_ASSERT(split || !a->rows_alone);
    if (split) cuda_decode(d, a);
    if (split && (a->seg.max_rows == 1 || a->rows_alone)) return;
    if (d->k->act == ARES_BF16)
        LAUNCH(uint16_t, "attention", attend, tiles(a, a->n_heads), shared_bytes(a, 3), *a, split);
    else LAUNCH(float, "attention", attend, tiles(a, a->n_heads), shared_bytes(a, 3), *a, split);
}

/* ------------------------------------------------------------------ backward */

/* delta [rows][n_heads] = dO . out, a warp per number */
template <typename T> static __global__ void dot_outputs(ares_attention_args a, float *delta)
{
    int64_t at = (int64_t)blockIdx.x * (CUDA_THREADS / 32) + threadIdx.x / 32, row = at / a.n_heads,
            head = at % a.n_heads;
    if (row >= a.seg.rows) return;
    const T *x = (const T *)a.d_out + row * a.ldo + head * a.head_dim,
            *y = (const T *)a.out + row * a.ldo + head * a.head_dim;
    float sum = 0.0f;
    for (int d = (int)threadIdx.x % 32; d < a.head_dim; d += 32)
        sum = fmaf(cuda_get(x + d), cuda_get(y + d), sum);
    sum = cuda_warp_sum(sum);
    if (threadIdx.x % 32 == 0) delta[at] = sum;
}

template <typename T, int COLUMNS>
static __global__ void __launch_bounds__(THREADS)
    queries_back(ares_attention_args a, const float *delta)
{
    CUDA_SHARED(float, shared);
    tile t;
    if (!find_tile(&a.seg, (int)blockIdx.x, &t)) return;
    int dim = a.head_dim, size = TILE * (dim + 1), head = (int)blockIdx.y,
        h = head / (a.n_heads / a.n_kv_heads);
    float *q = shared, *d_out = q + size, *k = d_out + size, *v = k + size;
    int own = (int)threadIdx.x / 32 * EACH, lane = (int)threadIdx.x % 32, from, to;
    int64_t row = t.start + t.first, column = (int64_t)head * dim;
    float dq[EACH][COLUMNS];
    for (int j = 0; j < EACH; j++)
        for (int i = 0; i < COLUMNS; i++) dq[j][i] = 0.0f;
    load_rows(q, dim, (const T *)a.q + row * a.ldq + column, a.ldq, t.n);
    load_rows(d_out, dim, (const T *)a.d_out + row * a.ldo + column, a.ldo, t.n);
    row += own;
    chunks_of(&a, &t, &from, &to);
    for (int c = from; c < to; c++) {
        __syncthreads();
        load_keys<T>(&a, &t, h, c * TILE, k, v);
        __syncthreads();
        if (own >= t.n) continue;
        float p[EACH], ds[EACH];
        dots(q + own * (dim + 1), k, dim, p);
        dots(d_out + own * (dim + 1), v, dim, ds);
        for (int j = 0; j < EACH; j++) {
            bool seen =
                own + j < t.n && sees(&a, t.prefix + t.first + own + j, c * TILE + lane, t.keys);
            int64_t at = (row + j) * a.n_heads + head;
            ds[j] = seen ? expf(p[j] * a.scale - a.lse[at]) * (ds[j] - delta[at]) * a.scale : 0.0f;
        }
        add_products<COLUMNS>(ds, k, dim, dq);
    }
    for (int j = 0; j < EACH && own + j < t.n; j++)
        for (int i = 0; i < COLUMNS; i++)
            if (i * 32 + lane < dim)
                cuda_put((T *)a.dq + (row + j) * a.lddq + column + i * 32 + lane, dq[j][i]);
}

/* Here each warp has four keys, and its lanes are queries. */
template <typename T, int COLUMNS>
static __global__ void __launch_bounds__(THREADS)
    keys_back(ares_attention_args a, const float *delta)
{
    CUDA_SHARED(float, shared);
    tile t; /* of keys: rows [first, first + n) of segment s */
    if (!find_tile(&a.seg, (int)blockIdx.x, &t)) return;
    int dim = a.head_dim, size = TILE * (dim + 1), h = (int)blockIdx.y,
        group = a.n_heads / a.n_kv_heads;
    float *k = shared, *v = k + size, *q = v + size, *d_out = q + size;
    int own = (int)threadIdx.x / 32 * EACH, lane = (int)threadIdx.x % 32;
    int64_t key_row = t.start + t.first;
    float dk[EACH][COLUMNS], dv[EACH][COLUMNS];
    for (int j = 0; j < EACH; j++)
        for (int i = 0; i < COLUMNS; i++) dk[j][i] = dv[j][i] = 0.0f;
    load_rows(k, dim, (const T *)a.k + key_row * a.ldkv + (int64_t)h * dim, a.ldkv, t.n);
    load_rows(v, dim, (const T *)a.v + key_row * a.ldkv + (int64_t)h * dim, a.ldkv, t.n);
    for (int s = t.s; s < a.seg.n; s++) {
        int prefix = prefix_of(&a.seg, s), rows = a.seg.start[s + 1] - a.seg.start[s];
        bool shares = s != t.s && prefix > t.first && a.seg.prefix_row[s] == t.start;
        if (s != t.s && !shares) continue;
        /* positions of the tile's keys in s, and the queries that may see one of them */
        int key0 = shares ? t.first : prefix + t.first, keys = shares ? prefix : prefix + rows;
        int from = a.causal && key0 > prefix ? key0 - prefix : 0, to = rows;
        if (a.window > 0 && key0 + t.n + a.window - 1 - prefix < to)
            to = key0 + t.n + a.window - 1 - prefix;
        for (int g = 0; g < group; g++)
            for (int first = from; first < to; first += TILE) {
                int n = to - first < TILE ? to - first : TILE;
                int64_t row = a.seg.start[s] + first, column = (int64_t)(h * group + g) * dim;
                __syncthreads();
                load_rows(q, dim, (const T *)a.q + row * a.ldq + column, a.ldq, n);
                load_rows(d_out, dim, (const T *)a.d_out + row * a.ldo + column, a.ldo, n);
                __syncthreads();
                if (own >= t.n) continue;
                float p[EACH], ds[EACH];
                int64_t at = (row + lane) * a.n_heads + h * group + g;
                float lse = lane < n ? a.lse[at] : 0.0f, shift = lane < n ? delta[at] : 0.0f;
                dots(k + own * (dim + 1), q, dim, p);
                dots(v + own * (dim + 1), d_out, dim, ds);
                for (int j = 0; j < EACH; j++) {
                    bool seen = lane < n && own + j < t.n &&
                                sees(&a, prefix + first + lane, key0 + own + j, keys);
                    p[j] = seen ? expf(p[j] * a.scale - lse) : 0.0f;
                    ds[j] = p[j] * (ds[j] - shift) * a.scale;
                }
                add_products<COLUMNS>(p, d_out, dim, dv);
                add_products<COLUMNS>(ds, q, dim, dk);
            }
    }
    for (int j = 0; j < EACH && own + j < t.n; j++)
        for (int i = 0; i < COLUMNS; i++)
            if (i * 32 + lane < dim) {
                int64_t at = (key_row + own + j) * a.lddkv + (int64_t)h * dim + i * 32 + lane;
                cuda_put((T *)a.dk + at, dk[j][i]);
                cuda_put((T *)a.dv + at, dv[j][i]);
            }
}

template <typename T>
static void backward(cuda_context *c, const ares_attention_args *a, float *delta)
{
    int64_t dots_wanted = (int64_t)a->seg.rows * a->n_heads;
    cuda_launch(c, "attention_backward: delta", dot_outputs<T>, (unsigned)((dots_wanted + 7) / 8),
                CUDA_THREADS, 0, *a, delta);
    LAUNCH(T, "attention_backward: dq", queries_back, tiles(a, a->n_heads), shared_bytes(a, 4), *a,
           delta);
    LAUNCH(T, "attention_backward: dk, dv", keys_back, tiles(a, a->n_kv_heads), shared_bytes(a, 4),
           *a, delta);
}

static void attention_backward(ares_device *d, const ares_attention_args *args)
{
    const ares_attention_args on_card = cuda_without_host(*args), *a = &on_card;
    cuda_context *c = cuda_enter(d);
    check(a);
    ARES_ASSERT(!a->cache && a->lse);
    size_t dots_wanted = (size_t)a->seg.rows * (size_t)a->n_heads;
    if (dots_wanted == 0) return;
    float *delta = (float *)cuda_scratch(c, CUDA_ROWS, dots_wanted * sizeof(float));
    if (d->k->act == ARES_BF16) backward<uint16_t>(c, a, delta);
    else backward<float>(c, a, delta);
}

/* ------------------------------------------------------------------ gradients of listed keys */

/* The segment that row r belongs to. */
static __device__ int segment_of(const ares_segments *seg, int r)
{
    int low = 0, high = seg->n - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (seg->start[mid] <= r) low = mid;
        else high = mid - 1;
    }
    return low;
}

/* A block per row. Segments that see it lie after its own, whose prefix is empty then. */
template <typename T> static __global__ void add_keys(ares_sum_keys_args a)
{
    const ares_segments *seg = &a.seg;
    int row = (int)blockIdx.x, own = segment_of(seg, row), prefix = prefix_of(seg, own);
    const T *gradient = (const T *)a.gradient,
            *first = gradient +
                     (int64_t)(seg->key_start[own] + prefix + row - seg->start[own]) * a.width;
    for (int32_t i = (int32_t)threadIdx.x; i < a.width; i += (int32_t)blockDim.x) {
        float sum = cuda_get(first + i);
        for (int s = prefix ? seg->n : own + 1; s < seg->n; s++) {
            int key = row - seg->prefix_row[s];
            if (key >= 0 && key < prefix_of(seg, s))
                sum += cuda_get(gradient + (int64_t)(seg->key_start[s] + key) * a.width + i);
        }
        cuda_put((T *)a.to + row * a.ld + i, sum);
    }
}

static void sum_keys(ares_device *d, const ares_sum_keys_args *a)
{
    cuda_context *c = cuda_enter(d);
    cuda_launch(c, "attention_backward: sum keys", CUDA_BY_TYPE(c, add_keys), (unsigned)a->seg.rows,
                a->width <= 64 ? 64 : 128, 0, cuda_without_host(*a));
}

/*
 * Keys and values of pieces of prompts, from their blocks of the paged cache into rows side by
 * side. A block copies what a segment sees of one block of the cache. Where it goes follows from
 * the lengths of the segments before it, which each block sums by itself: nothing needs to come
 * from the host, and the first block of a segment writes the sums.
 */

enum { GATHER_THREADS = 128 };

/* How many keys of segment s are gathered; *from: the first of them. */
static __device__ int keys_of(const ares_gather_args &a, int s, int *from)
{
    int prefix = a.seg.prefix_len ? a.seg.prefix_len[s] : 0,
        rows = a.seg.start[s + 1] - a.seg.start[s];
    *from = a.window > 0 && prefix + 1 > a.window ? prefix + 1 - a.window : 0;
    return rows > 1 ? prefix + rows - *from : 0;
}

/* Of segments [first, s), summed by the whole block. */
static __device__ int keys_before(const ares_gather_args &a, int s)
{
    __shared__ int sum;
    int own = 0, from;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    for (int i = a.first + (int)threadIdx.x; i < s; i += GATHER_THREADS)
        own += keys_of(a, i, &from);
    if (own) atomicAdd(&sum, own);
    __syncthreads();
    return sum;
}

/* A row of a head is `units` of type T. */
template <typename T>
static __global__ void __launch_bounds__(GATHER_THREADS) gather_rows(ares_gather_args a, int units)
{
    int s = a.first + (int)blockIdx.x, from, keys = keys_of(a, s, &from), chunk = (int)blockIdx.y;
    int first = (from / ARES_KV_BLOCK + chunk) * ARES_KV_BLOCK,
        to = ARES_MIN(first + ARES_KV_BLOCK, from + keys);
    if (chunk > 0 && first >= to) return;
    int before = keys_before(a, s);
    if (chunk == 0 && threadIdx.x == 0) {
        int i = (int)blockIdx.x;
        a.q_start[i] = a.seg.start[s] - a.seg.start[a.first];
        a.k_start[i] = before;
        if (i == a.n - 1) {
            a.q_start[a.n] = a.seg.start[s + 1] - a.seg.start[a.first];
            a.k_start[a.n] = before + keys;
        }
    }
    int skipped = ARES_MAX(from - first, 0), n = to - first - skipped;
    if (keys == 0 || n <= 0) return;
    int64_t block = a.seg.block_table[(int64_t)s * a.seg.table_stride + first / ARES_KV_BLOCK],
            row = before + first + skipped - from;
    /* of a head: the keys of a block's 32 rows, then the values */
    const T *cache = (const T *)a.cache + block * a.n_kv_heads * 2 * ARES_KV_BLOCK * units;
    for (int i = (int)threadIdx.x; i < 2 * a.n_kv_heads * n * units; i += GATHER_THREADS) {
        int unit = i % units, r = i / units % n, part = i / units / n, h = part / 2;
        T *out = (T *)(part % 2 ? a.v : a.k);
        out[((row + r) * a.n_kv_heads + h) * units + unit] =
            cache[((int64_t)part * ARES_KV_BLOCK + skipped + r) * units + unit];
    }
}

static void gather_kv(ares_device *d, const ares_gather_args *a)
{
    cuda_context *c = cuda_enter(d);
    size_t bytes = (size_t)a->head_dim * ares_dtype_bytes(d->k->act);
    /* keys may begin and end within a block */
    dim3 grid((unsigned)a->n, (unsigned)(a->most_keys / ARES_KV_BLOCK + 2));
    if (bytes % sizeof(uint4) == 0)
        cuda_launch(c, "gather_kv", gather_rows<uint4>, grid, GATHER_THREADS, 0,
                    cuda_without_host(*a), (int)(bytes / sizeof(uint4)));
    else
        cuda_launch(c, "gather_kv", gather_rows<uint16_t>, grid, GATHER_THREADS, 0,
                    cuda_without_host(*a), (int)(bytes / sizeof(uint16_t)));
}

void cuda_fill_attention(ares_kernels *k)
{
    k->attention = attention;
    k->attention_backward = attention_backward;
    k->sum_keys = sum_keys;
    k->gather_kv = gather_kv;
}
