/*
 * Private to kernels/cuda: the device with its stream and scratch, what its kernels share, and
 * numbers of the activations' type.
 */
#ifndef ARES_KERNELS_CUDA_DEVICE_CUH
#define ARES_KERNELS_CUDA_DEVICE_CUH

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <launch.cuh>
#include <string.h>

#include "ares/kernels.h"

/*
 * Private to libares_cuda.so: one device's stream, scratch and first failure, and what its kernels
 * share.
 *
 * Only cuda_launch launches kernels. After a failure nothing is launched until sync has reported
 * it. No kernel adds floats atomically: every sum has one order, given by its shape. Where cuBLAS
 * sums (linear, head), the order may depend on the number of rows, unlike on the CPU; so rollout
 * and training agree closely here, not bit for bit.
 */

/* What scratch is for. CUDA_LOSS belongs to src/algo/cuda, which head_fused's callback may call. */
enum cuda_slot {
    CUDA_WEIGHT,
    CUDA_LOGITS,
    CUDA_ROWS,
    CUDA_LOSS,
    CUDA_PARTS,   /* of what several blocks compute: decode.cu, head.cu, sample.cu, columns */
    CUDA_TICKETS, /* which of these blocks ends last: all 0 between kernels */
    CUDA_SLOTS
};

/* Pinned host memory in pieces; an event tells when the card is done with a piece. (device.cu) */
enum { CUDA_PIECES = 4 };
typedef struct cuda_ring {
    char *memory;
    cudaEvent_t done[CUDA_PIECES];
    int now;     /* the piece that is written, */
    size_t used; /* and how far */
} cuda_ring;

/* Pinned memory of a copy that is read later. (device.cu) */
enum { CUDA_FETCHES = 2 };
typedef struct cuda_fetched_bytes {
    void *pinned;
    size_t bytes;
    cudaEvent_t done;
} cuda_fetched_bytes;

/*
 * Work beside the stream that needs other processes, which may never come (dist/cuda/nccl.cu).
 * While it is under way, a wait for the card asks again and again instead of blocking.
 */
typedef struct cuda_beside {
    bool (*under_way)(struct cuda_beside *b);
    void (*pause)(struct cuda_beside *b);  /* between two looks at the card */
    void (*waited)(struct cuda_beside *b); /* the wait is over */
    void *side;
    struct cuda_beside *next;
} cuda_beside;

typedef struct cuda_context {
    int index;
    ares_dtype act; /* of activations */
    cudaStream_t stream;
    cublasLtHandle_t blas;
    void *blas_workspace;    /* CUDA_BLAS_BYTES */
    struct cuda_plan *plans; /* of products: linear.cu */
    struct {
        void *p;
        size_t bytes;
    } slot[CUDA_SLOTS];
    cuda_ring in, out;
    /* the stream on which bring and store copy, beside `stream`; made by the first alloc_host */
    cudaStream_t copies;
    cudaEvent_t copies_begin, copies_end;
    bool storing;    /* store was called since `stream` last joined the copies */
    void **released; /* [n_released] given back, but kernels that are running may use it still */
    int n_released, released_capacity;
    int64_t releases; /* number so far: graphs made before the last one hold stale addresses */
    cuda_fetched_bytes fetched[CUDA_FETCHES];
    cudaEvent_t *stamps; /* [n_stamps] of ares_cuda_stamp */
    int n_stamps;
    cuda_beside *beside;
    void (*trim)(void); /* frees memory that another library keeps of the card; NULL: none does */
    const char *last;   /* the operation launched last; a kernel's failure may show only after it */
    bool failed;
    char message[256], refusal[256]; /* refusal: of the last graph that was not made */
} cuda_context;

/* The context of d, with its device current in this thread. */
cuda_context *cuda_enter(ares_device *d);
/* Records the first failure; true when there was none. */
bool cuda_check(cuda_context *c, cudaError_t error, const char *operation);
bool cuda_check_blas(cuda_context *c, cublasStatus_t status, const char *operation);
/* What NVIDIA recommends for Hopper. */
static const size_t CUDA_BLAS_BYTES = 32 << 20;
void cuda_plans_free(cuda_context *c);
/* Waits for all that a stream has. A failure may be that of any kernel before. */
bool cuda_wait_stream(cuda_context *c, cudaStream_t stream);
/*
 * At least so many bytes; each slot has memory of its own, kept from call to call. NULL after a
 * recorded failure.
 */
void *cuda_scratch(cuda_context *c, cuda_slot slot, size_t bytes);
/* Tickets for n rows, all 0, which the kernels leave as they found them; NULL after a failure. */
unsigned *cuda_tickets(cuda_context *c, size_t n);

/* Lets the kernel alone determine P, so that arguments convert to its parameters. */
template <typename T> struct cuda_same {
    typedef T type;
};
template <typename... P>
void cuda_launch(cuda_context *c, const char *operation, void (*kernel)(P...), dim3 grid,
                 dim3 block, size_t shared, typename cuda_same<P>::type... args)
{
    if (c->failed || !grid.x || !grid.y) return;
    c->last = operation;
    if (shared > 48 * 1024 &&
        !cuda_check(
            c,
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
            operation))
        return;
    cuda_start<P...>(operation, kernel, grid, block, shared, c->stream, args...);
    cuda_check(c, cudaGetLastError(), operation);
}

/* The instance of a kernel for the type of activations: float, or uint16_t that holds a bf16. */
#define CUDA_BY_TYPE(c, kernel) ((c)->act == ARES_BF16 ? kernel<uint16_t> : kernel<float>)

/* Arguments with segments as a kernel is handed them: without addresses of host memory. */
template <typename A> static inline A cuda_without_host(A a)
{
    a.seg.host_start = a.seg.host_prefix_len = a.seg.host_prefix_row = NULL;
    return a;
}

enum { CUDA_THREADS = 256 };
/* Blocks for n elements, which CUDA_EACH divides among their threads. */
static inline dim3 cuda_blocks(int64_t n)
{
    int64_t blocks = (n + CUDA_THREADS - 1) / CUDA_THREADS;
    return dim3((unsigned)(blocks < 8192 ? blocks : 8192));
}
/* Blocks for one thread per element. */
static inline dim3 cuda_blocks_of(int64_t n)
{
    return dim3((unsigned)((n + CUDA_THREADS - 1) / CUDA_THREADS));
}
#define CUDA_EACH(i, n)                                                       \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
         i += (int64_t)gridDim.x * blockDim.x)

/* y [m][n] = x [m][k] Wt in f32, x of activations, W [n][k], or += when accumulate: linear.cu */
void cuda_product(cuda_context *c, const void *x, int64_t ldx, const ares_matrix *w, int32_t m,
                  float *y, int64_t ldy, bool accumulate);
/*
 * Sums over the rows of columns, for blocks of 32 x 32 threads, one x per column. blockIdx.x counts
 * the columns by 32, blockIdx.y chunks of the rows, whose number follows from that of the rows
 * alone. Thread y sums the rows y, y + 32 ... of its chunk in order.
 */
typedef struct cuda_columns {
    int64_t each;      /* rows of a chunk */
    float *parts;      /* [chunks][sums of a column][columns] */
    unsigned *tickets; /* [gridDim.x] */
} cuda_columns;
/* False after a failure. (device.cu) */
bool cuda_columns_open(cuda_context *c, int64_t rows, int32_t columns, int sums, cuda_columns *s,
                       dim3 *grid);

/*
 * Adds the 32 sums of a column in one tree. Only the threads with y = 0 may use the result; the
 * tile may be written again after a __syncthreads.
 */
static __device__ inline float cuda_column_tree(float *tile, float sum)
{
    tile[threadIdx.y * 33 + threadIdx.x] = sum;
    for (int half = 16; half; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half)
            tile[threadIdx.y * 33 + threadIdx.x] += tile[(threadIdx.y + half) * 33 + threadIdx.x];
    }
    return tile[threadIdx.x];
}

static __device__ inline float cuda_warp_sum(float v)
{
    return cuda_warp_tree(v, [](float a, float b) { return a + b; });
}
static __device__ inline float cuda_warp_max(float v)
{
    return cuda_warp_tree(v, [](float a, float b) { return fmaxf(a, b); });
}
/* Over a whole block of up to 32 warps, the same in every thread. */
static __device__ inline float cuda_block_sum(float v)
{
    __shared__ float of_warp[32];
    __syncthreads(); /* of_warp of the call before may still be read */
    v = cuda_warp_sum(v);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    return cuda_warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : 0.0f);
}
static __device__ inline float cuda_block_max(float v)
{
    __shared__ float of_warp[32];
    __syncthreads();
    v = cuda_warp_max(v);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    return cuda_warp_max(threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32]
                                                            : -INFINITY);
}

/*
 * Whether this block is the last to get here of `of` blocks that share a ticket; it may then read
 * what the others have written. The last one leaves the ticket at 0.
 */
static __device__ inline bool cuda_is_last(unsigned *ticket, unsigned of)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) last = atomicInc(ticket, of - 1) == of - 1;
    __syncthreads();
    __threadfence();
    return last;
}

/*
 * The sums of all rows, from those of each thread: true in one thread per column, of the last block
 * to end. It adds the chunks as a chunk adds rows.
 */
template <int N>
static __device__ inline bool cuda_sum_columns(float (&sum)[N], int32_t column, int32_t columns,
                                               const cuda_columns &s)
{
    __shared__ float tile[32 * 33];
    bool first = threadIdx.y == 0 && column < columns;
    for (int i = 0; i < N; i++) {
        __syncthreads(); /* the tile is read by one row of threads and then written by all */
        sum[i] = cuda_column_tree(tile, sum[i]);
    }
    if (gridDim.y == 1) return first;
    if (first)
        for (int i = 0; i < N; i++)
            s.parts[((int64_t)blockIdx.y * N + i) * columns + column] = sum[i];
    if (!cuda_is_last(&s.tickets[blockIdx.x], gridDim.y)) return false;
    for (int i = 0; i < N; i++) {
        float all = 0.0f;
        if (column < columns)
            for (int64_t chunk = threadIdx.y; chunk < gridDim.y; chunk += 32)
                all += s.parts[(chunk * N + i) * columns + column];
        __syncthreads();
        sum[i] = cuda_column_tree(tile, all);
    }
    return first;
}

static __device__ inline float cuda_from_bf16(uint16_t x)
{
    return __uint_as_float((uint32_t)x << 16);
}
static __device__ inline uint16_t
cuda_to_bf16(float x) /* to nearest even, as kernels_f32_to_bf16 */
{
    uint32_t u = __float_as_uint(x);
    return (uint16_t)((x != x ? u | 0x400000u : u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* What each file puts into the table. */
void cuda_fill_attention(ares_kernels *k);
void cuda_fill_decode(ares_kernels *k);
void cuda_fill_head(ares_kernels *k);
void cuda_fill_linear(ares_kernels *k);
void cuda_fill_norm(ares_kernels *k);
void cuda_fill_optim(ares_kernels *k);
void cuda_fill_pointwise(ares_kernels *k);
void cuda_fill_sample(ares_kernels *k);

int cuda_sync(ares_device *d);
void cuda_linear_backward(ares_device *d, const ares_linear_backward_args *args, int count);
/* Whether segments with one row are computed by cuda_decode. */
bool cuda_decodes(const ares_attention_args *a);
void cuda_decode(ares_device *d, const ares_attention_args *a);

/* Numbers of the activations' type: float, or uint16_t that holds a bf16. Arithmetic is in f32. */

static __device__ inline float cuda_get(const float *x)
{
    return *x;
}
static __device__ inline float cuda_get(const uint16_t *x)
{
    return cuda_from_bf16(*x);
}
static __device__ inline void cuda_put(float *to, float x)
{
    *to = x;
}
static __device__ inline void cuda_put(uint16_t *to, float x)
{
    *to = cuda_to_bf16(x);
}

template <typename T> static __device__ inline float cuda_rounded(float x);
template <> __device__ inline float cuda_rounded<float>(float x)
{
    return x;
}
template <> __device__ inline float cuda_rounded<uint16_t>(float x)
{
    return cuda_from_bf16(cuda_to_bf16(x));
}

/*
 * N neighbouring numbers in one or more loads of 16 bytes, where p is a multiple of that; one by
 * one where they are fewer (N = 1).
 */
template <int N> static __device__ inline void cuda_get_all(const float *p, float (&x)[N])
{
    if constexpr (N % 4 != 0)
        for (int i = 0; i < N; i++) x[i] = p[i];
    else
        for (int i = 0; i < N; i += 4) {
            float4 v = *(const float4 *)(p + i);
            x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
        }
}
template <int N> static __device__ inline void cuda_get_all(const uint16_t *p, float (&x)[N])
{
    if constexpr (N % 8 != 0)
        for (int i = 0; i < N; i++) x[i] = cuda_from_bf16(p[i]);
    else
        for (int i = 0; i < N; i += 8) {
            uint4 v = *(const uint4 *)(p + i);
            const uint32_t pair[4] = { v.x, v.y, v.z, v.w };
            for (int j = 0; j < 4; j++) {
                x[i + 2 * j] = __uint_as_float(pair[j] << 16);
                x[i + 2 * j + 1] = __uint_as_float(pair[j] & 0xffff0000u);
            }
        }
}
/* Two numbers rounded to bf16, in one instruction of a card. */
static __device__ inline uint32_t cuda_two_bf16(float low, float high)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    uint32_t u;
    memcpy(&u, &both, sizeof u);
    return u;
}
template <int N> static __device__ inline void cuda_put_all(float *p, const float (&x)[N])
{
    if constexpr (N % 4 != 0)
        for (int i = 0; i < N; i++) p[i] = x[i];
    else
        for (int i = 0; i < N; i += 4)
            *(float4 *)(p + i) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
}
template <int N> static __device__ inline void cuda_put_all(uint16_t *p, const float (&x)[N])
{
    if constexpr (N % 8 != 0)
        for (int i = 0; i < N; i++) p[i] = cuda_to_bf16(x[i]);
    else
        for (int i = 0; i < N; i += 8)
            *(uint4 *)(p + i) =
                make_uint4(cuda_two_bf16(x[i], x[i + 1]), cuda_two_bf16(x[i + 2], x[i + 3]),
                           cuda_two_bf16(x[i + 4], x[i + 5]), cuda_two_bf16(x[i + 6], x[i + 7]));
}
/* Whether rows of type T that begin at p, ld apart, begin at multiples of 16 bytes. NULL does. */
template <typename T> static inline bool cuda_in_16s(const void *p, int64_t ld)
{
    return (uintptr_t)p % 16 == 0 && ld * (int64_t)sizeof(T) % 16 == 0;
}

/* Number i of a product's result, with the bias it lacks, rounded as where the product adds it. */
template <typename T>
static __device__ inline float cuda_with_bias(const T *x, const T *bias, int64_t i)
{
    return bias ? cuda_rounded<T>(cuda_get(x + i) + cuda_get(bias + i)) : cuda_get(x + i);
}
#endif
