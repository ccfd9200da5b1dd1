/*
 * Keys and values of pieces of prompts, from their blocks of the paged cache into rows side by
 * side. A block copies what a segment sees of one block of the cache. Where it goes follows from
 * the lengths of the segments before it, which each block sums by itself: nothing needs to come
 * from the host, and the first block of a segment writes the sums.
 */
#include "device.cuh"

enum { THREADS = 128 };

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
    for (int i = a.first + (int)threadIdx.x; i < s; i += THREADS) own += keys_of(a, i, &from);
    if (own) atomicAdd(&sum, own);
    __syncthreads();
    return sum;
}

/* A row of a head is `units` of type T. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) gather_rows(ares_gather_args a, int units)
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
    for (int i = (int)threadIdx.x; i < 2 * a.n_kv_heads * n * units; i += THREADS) {
        int unit = i % units, r = i / units % n, part = i / units / n, h = part / 2;
        T *out = (T *)(part % 2 ? a.v : a.k);
        out[((row + r) * a.n_kv_heads + h) * units + unit] =
            cache[((int64_t)part * ARES_KV_BLOCK + skipped + r) * units + unit];
    }
}

void cuda_gather_kv(ares_device *d, const ares_gather_args *a)
{
    cuda_context *c = cuda_enter(d);
    size_t bytes = (size_t)a->head_dim * ares_dtype_bytes(d->k->act);
    /* keys may begin and end within a block */
    dim3 grid((unsigned)a->n, (unsigned)(a->most_keys / ARES_KV_BLOCK + 2));
    if (bytes % sizeof(uint4) == 0)
        cuda_launch(c, "gather_kv", gather_rows<uint4>, grid, THREADS, 0, *a,
                    (int)(bytes / sizeof(uint4)));
    else
        cuda_launch(c, "gather_kv", gather_rows<uint16_t>, grid, THREADS, 0, *a,
                    (int)(bytes / sizeof(uint16_t)));
}
