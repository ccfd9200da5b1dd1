/* CUDA kernels that visit each number once, and rows of the embedding by token id. */
#include "device.cuh"

#include <math.h>

/* Kernels that visit each number once: rotation, activations, conversion. */

/*
 * Where rows allow it, a thread takes 16 bytes of numbers of a row at once (V: 8 bf16 or 4 floats),
 * else one. Numbers of threads fit 32 bits, so that a thread finds its row by divisions of 32 bits.
 */
template <typename T> static constexpr int MANY = 16 / (int)sizeof(T);
static uint32_t threads_of(int64_t rows, int64_t each)
{
    ARES_ASSERT(rows * each <= UINT32_MAX - CUDA_THREADS);
    return (uint32_t)(rows * each);
}
static __device__ inline uint32_t own_thread(void)
{
    return blockIdx.x * CUDA_THREADS + threadIdx.x;
}

/* A thread has V pairs (i, i + half) of a head; sign -1 turns back, for the gradient. */
template <typename T, int V>
static __global__ void __launch_bounds__(CUDA_THREADS)
    rotate(uint32_t n, uint32_t heads, uint32_t half, void *x, int64_t ldx, const float *cos_sin,
           float sign)
{
    uint32_t at = own_thread(), each = half / V;
    if (at >= n) return;
    uint32_t head = at / each, i = at % each * V, r = head / heads, h = head % heads;
    T *p = (T *)x + r * ldx + h * 2 * half + i;
    const float *angle = cos_sin + (int64_t)r * 2 * half + i;
    float a[V], b[V], cosine[V], sine[V], first[V], second[V];
    cuda_get_all(p, a);
    cuda_get_all(p + half, b);
    cuda_get_all(angle, cosine);
    cuda_get_all(angle + half, sine);
    for (int j = 0; j < V; j++) {
        first[j] = fmaf(-b[j], sign * sine[j], a[j] * cosine[j]);
        second[j] = fmaf(a[j], sign * sine[j], b[j] * cosine[j]);
    }
    cuda_put_all(p, first);
    cuda_put_all(p + half, second);
}
template <typename T>
static void turn(cuda_context *c, int32_t rows, int32_t heads, int32_t half, void *x, int64_t ldx,
                 const float *cos_sin, float sign)
{
    bool many = half % MANY<T> == 0 && cuda_in_16s<T>(x, ldx) && cuda_in_16s<float>(cos_sin, half);
    uint32_t n = threads_of((int64_t)rows * heads, half / (many ? MANY<T> : 1));
    cuda_launch(c, "rope", many ? rotate<T, MANY<T>> : rotate<T, 1>, cuda_blocks_of(n),
                CUDA_THREADS, 0, n, (uint32_t)heads, (uint32_t)half, x, ldx, cos_sin, sign);
}
static void rope(ares_device *d, int32_t rows, int32_t heads, int32_t head_dim, int32_t turned,
                 void *x, int64_t ldx, const float *cos_sin, bool inverse)
{
    cuda_context *c = cuda_enter(d);
    float sign = inverse ? -1.0f : 1.0f;
    ARES_ASSERT(head_dim % 2 == 0 && (!turned || turned == head_dim));
    if (!cos_sin) return;
    if (c->act == ARES_BF16) turn<uint16_t>(c, rows, heads, head_dim / 2, x, ldx, cos_sin, sign);
    else turn<float>(c, rows, heads, head_dim / 2, x, ldx, cos_sin, sign);
}

/* 0 and 1 at the ends, where expf gives infinity and 0. The quotient has an error of 2 ulp. */
static __device__ float sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + expf(-x));
}

/* Phi(x) */
static __device__ float normal_cdf(float x)
{
    return 0.5f * erfcf(-0.70710678f * x);
}

/* What the sigmoid is taken of, and x times its derivative. */
static __device__ float inner(ares_activation f, float x)
{
    if (f == ARES_SILU) return x;
    if (f == ARES_QUICK_GELU) return 1.702f * x;
    return ARES_GELU_TANH_BY * x * fmaf(x * x, ARES_GELU_TANH_CUBE, 1.0f);
}
static __device__ float inner_slope(ares_activation f, float x)
{
    if (f == ARES_SILU) return x;
    if (f == ARES_QUICK_GELU) return 1.702f * x;
    return ARES_GELU_TANH_BY * x * fmaf(x * x, 3.0f * ARES_GELU_TANH_CUBE, 1.0f);
}

/* f(x) */
static __device__ float activated(ares_activation f, float x)
{
    return x * (f == ARES_GELU ? normal_cdf(x) : sigmoid(inner(f, x)));
}

/* f'(x). At a saturated sigmoid its own value is the slope: inf * 0 would be NaN. */
static __device__ float slope(ares_activation f, float x)
{
    if (f == ARES_GELU) return fmaf(x, 0.39894228f * expf(-0.5f * x * x), normal_cdf(x));
    float s = sigmoid(inner(f, x));
    return s == 0.0f || s == 1.0f ? s : fmaf(inner_slope(f, x) * s, 1.0f - s, s);
}
template <typename T> static __global__ void activate(ares_activation_args a)
{
    CUDA_EACH(i, a.n)
    {
        float x = cuda_get((const T *)a.x + i);
        cuda_put((T *)a.y + i, activated(a.f, x));
    }
}
static void activation(ares_device *d, const ares_activation_args *a)
{
    cuda_context *c = cuda_enter(d);
    cuda_launch(c, "activation", CUDA_BY_TYPE(c, activate), cuda_blocks(a->n), CUDA_THREADS, 0, *a);
}

template <typename T> static __global__ void activate_back(ares_activation_args a)
{
    CUDA_EACH(i, a.n)
    cuda_put((T *)a.dx + i,
             slope(a.f, cuda_get((const T *)a.x + i)) * cuda_get((const T *)a.dy + i));
}
static void activation_backward(ares_device *d, const ares_activation_args *a)
{
    cuda_context *c = cuda_enter(d);
    cuda_launch(c, "activation_backward", CUDA_BY_TYPE(c, activate_back), cuda_blocks(a->n),
                CUDA_THREADS, 0, *a);
}

/* x = numbers of a product's result with the bias it lacks, each rounded as the product would. */
template <typename T, int V>
static __device__ void get_with_bias(const T *from, const void *bias, uint32_t i, float (&x)[V])
{
    cuda_get_all(from + i, x);
    if (!bias) return;
    float b[V];
    cuda_get_all((const T *)bias + i, b);
    for (int j = 0; j < V; j++) x[j] = cuda_rounded<T>(x[j] + b[j]);
}

/*
 * y = f(gate + bias) (up + bias). SILU: the function is known when the kernel is compiled, so that
 * a thread's numbers take no branches.
 */
template <typename T, int V, bool SILU>
static __global__ void __launch_bounds__(CUDA_THREADS) gated(ares_gate_mul_args a, uint32_t n)
{
    uint32_t at = own_thread(), each = (uint32_t)a.k / V;
    if (at >= n) return;
    uint32_t r = at / each, i = at % each * V;
    float g[V], u[V], y[V];
    get_with_bias<T>((const T *)a.gate + r * a.ldgu, a.gate_bias, i, g);
    get_with_bias<T>((const T *)a.up + r * a.ldgu, a.up_bias, i, u);
    for (int j = 0; j < V; j++) y[j] = activated(SILU ? ARES_SILU : a.f, g[j]) * u[j];
    cuda_put_all((T *)a.y + r * a.ldy + i, y);
}

/* d_up = dy f(gate), d_gate = dy up f'(gate); y is made again if asked. */
template <typename T, int V, bool SILU>
static __global__ void __launch_bounds__(CUDA_THREADS) gated_back(ares_gate_mul_args a, uint32_t n)
{
    uint32_t at = own_thread(), each = (uint32_t)a.k / V;
    if (at >= n) return;
    uint32_t r = at / each, i = at % each * V;
    ares_activation f = SILU ? ARES_SILU : a.f;
    float g[V], u[V], e[V], d_up[V], d_gate[V], y[V];
    cuda_get_all((const T *)a.gate + r * a.ldgu + i, g);
    cuda_get_all((const T *)a.up + r * a.ldgu + i, u);
    cuda_get_all((const T *)a.dy + r * a.lddy + i, e);
    for (int j = 0; j < V; j++) {
        float of_g = activated(f, g[j]);
        d_up[j] = e[j] * of_g;
        d_gate[j] = e[j] * u[j] * slope(f, g[j]);
        y[j] = of_g * u[j];
    }
    cuda_put_all((T *)a.d_up + r * a.lddgu + i, d_up);
    cuda_put_all((T *)a.d_gate + r * a.lddgu + i, d_gate);
    if (a.y) cuda_put_all((T *)a.y + r * a.ldy + i, y);
}

typedef void gate_kernel(ares_gate_mul_args, uint32_t);
/* Launches the instance for the rows' alignment and for silu, which nearly all models have. */
template <typename T>
static void launch_gate(cuda_context *c, const char *operation, const ares_gate_mul_args *a,
                        bool many, gate_kernel *one[2], gate_kernel *some[2])
{
    uint32_t n = threads_of(a->rows, a->k / (many ? MANY<T> : 1));
    cuda_launch(c, operation, (many ? some : one)[a->f == ARES_SILU], cuda_blocks_of(n),
                CUDA_THREADS, 0, *a, n);
}
template <typename T> static void gate(cuda_context *c, const ares_gate_mul_args *a, bool back)
{
    bool many = a->k % MANY<T> == 0 && cuda_in_16s<T>(a->gate, a->ldgu) &&
                cuda_in_16s<T>(a->up, a->ldgu) && cuda_in_16s<T>(a->y, a->ldy);
    if (back) {
        gate_kernel *one[2] = { gated_back<T, 1, false>, gated_back<T, 1, true> },
                    *some[2] = { gated_back<T, MANY<T>, false>, gated_back<T, MANY<T>, true> };
        many = many && cuda_in_16s<T>(a->dy, a->lddy) && cuda_in_16s<T>(a->d_gate, a->lddgu) &&
               cuda_in_16s<T>(a->d_up, a->lddgu);
        launch_gate<T>(c, "gate_mul_backward", a, many, one, some);
        return;
    }
    gate_kernel *one[2] = { gated<T, 1, false>, gated<T, 1, true> },
                *some[2] = { gated<T, MANY<T>, false>, gated<T, MANY<T>, true> };
    many = many && cuda_in_16s<T>(a->gate_bias, 0) && cuda_in_16s<T>(a->up_bias, 0);
    launch_gate<T>(c, "gate_mul", a, many, one, some);
}
static void gate_mul(ares_device *d, const ares_gate_mul_args *a)
{
    cuda_context *c = cuda_enter(d);
    if (c->act == ARES_BF16) gate<uint16_t>(c, a, false);
    else gate<float>(c, a, false);
}
static void gate_mul_backward(ares_device *d, const ares_gate_mul_args *a)
{
    cuda_context *c = cuda_enter(d);
    if (c->act == ARES_BF16) gate<uint16_t>(c, a, true);
    else gate<float>(c, a, true);
}

static __global__ void widen(float *to, const uint16_t *from, int64_t n)
{
    CUDA_EACH(i, n) to[i] = cuda_from_bf16(from[i]);
}
static __global__ void narrow(uint16_t *to, const float *from, int64_t n)
{
    CUDA_EACH(i, n) to[i] = cuda_to_bf16(from[i]);
}
static void convert(ares_device *d, void *to, ares_dtype to_type, const void *from,
                    ares_dtype from_type, int64_t n)
{
    ARES_ASSERT(to_type != ARES_F16 && from_type != ARES_F16);
    if (to_type == from_type) d->k->copy(d, to, from, (size_t)n * ares_dtype_bytes(to_type));
    else if (to_type == ARES_F32)
        cuda_launch(cuda_enter(d), "convert", widen, cuda_blocks(n), CUDA_THREADS, 0, (float *)to,
                    (const uint16_t *)from, n);
    else
        cuda_launch(cuda_enter(d), "convert", narrow, cuda_blocks(n), CUDA_THREADS, 0,
                    (uint16_t *)to, (const float *)from, n);
}

/*
 * Rows of the embedding by token id. For the gradient, rows are put in the order of their ids, and
 * of one id in their own; then blocks add the rows of an id, one column per thread, in that order,
 * so that the bits are the CPU's. The sum stays in a register, and the next rows are on their way:
 * an id that thousands of rows share, as that of a picture's tokens, takes as many loads, not
 * waits.
 */

template <typename E, typename T>
static __global__ void look_up(const void *e, int32_t k, const int32_t *ids, void *y, int64_t ldy,
                               float scale)
{
    int64_t row = blockIdx.x, from = (int64_t)ids[row] * k;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x)
        cuda_put((T *)y + row * ldy + i, scale * cuda_get((const E *)e + from + i));
}

static void embedding(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y,
                      int64_t ldy, float scale)
{
    cuda_context *c = cuda_enter(d);
    bool wide = e->dtype == ARES_F32, of_wide = c->act == ARES_F32;
    ARES_ASSERT(e->layout == ARES_ROWS && e->dtype != ARES_F16 && (of_wide || !wide));
    cuda_launch(c, "embedding",
                !of_wide ? look_up<uint16_t, uint16_t>
                : wide   ? look_up<float, float>
                         : look_up<uint16_t, float>,
                (unsigned)n, CUDA_THREADS, 0, e->data, e->k, ids, y, ldy,
                scale != 0.0f ? scale : 1.0f);
}

enum { PLACE_THREADS = 128, ADD_THREADS = 128, AHEAD = 16 };

/* order[p] = the row whose (id, row) has p smaller ones. Every thread counts for one row. */
static __global__ void __launch_bounds__(PLACE_THREADS)
    place_rows(const int32_t *ids, int32_t n, int32_t *order)
{
    __shared__ int32_t tile[PLACE_THREADS];
    int32_t row = (int32_t)(blockIdx.x * PLACE_THREADS + threadIdx.x), at = (int32_t)threadIdx.x,
            own = row < n ? ids[row] : 0, place = 0;
    for (int32_t first = 0; first < n; first += PLACE_THREADS) {
        __syncthreads();
        tile[at] = first + at < n ? ids[first + at] : INT32_MAX; /* no row comes after it */
        __syncthreads();
        /* of rows before this one equal ids count, too */
        int32_t before = ARES_MAX(ARES_MIN(row - first, (int32_t)PLACE_THREADS), 0);
        for (int32_t j = 0; j < before; j++) place += tile[j] <= own;
        for (int32_t j = before; j < PLACE_THREADS; j++) place += tile[j] < own;
    }
    if (row < n) order[place] = row;
}

/* blockIdx.x: a place in the order, where an id begins or nothing is done; blockIdx.y: columns. */
template <typename E, typename T>
static __global__ void __launch_bounds__(ADD_THREADS)
    add_rows(void *de, int32_t k, const int32_t *ids, const int32_t *order, int32_t n,
             const void *dy, int64_t lddy, float scale)
{
    int32_t at = (int32_t)blockIdx.x, id = ids[order[at]],
            i = (int32_t)(blockIdx.y * ADD_THREADS + threadIdx.x);
    if ((at > 0 && ids[order[at - 1]] == id) || i >= k) return;
    E *to = (E *)de + (int64_t)id * k + i;
    float sum = cuda_get(to), x[AHEAD];
    for (bool more = true; more; at += AHEAD) {
        int32_t rows[AHEAD], held = 0;
        for (int j = 0; j < AHEAD; j++) rows[j] = at + j < n ? order[at + j] : -1;
        for (int j = 0; j < AHEAD; j++) {
            more = more && rows[j] >= 0 && ids[rows[j]] == id;
            held += more;
        }
        for (int j = 0; j < AHEAD; j++)
            x[j] = j < held ? cuda_get((const T *)dy + rows[j] * lddy + i) : 0.0f;
        for (int j = 0; j < AHEAD; j++)
            if (j < held) sum = cuda_rounded<E>(sum + __fmul_rn(scale, x[j]));
    }
    cuda_put(to, sum);
}

static void embedding_backward(ares_device *d, const ares_matrix *de, const int32_t *ids, int32_t n,
                               const void *dy, int64_t lddy, float scale)
{
    cuda_context *c = cuda_enter(d);
    ARES_ASSERT(de->layout == ARES_ROWS &&
                (de->dtype == ARES_F32 || (de->dtype == c->act && scale == 0.0f)));
    if (n == 0) return;
    int32_t *order = (int32_t *)cuda_scratch(c, CUDA_ROWS, (size_t)n * sizeof *order);
    if (!order) return;
    cuda_launch(c, "embedding_backward: order", place_rows,
                (unsigned)((n + PLACE_THREADS - 1) / PLACE_THREADS), PLACE_THREADS, 0, ids, n,
                order);
    cuda_launch(c, "embedding_backward",
                c->act == ARES_F32       ? add_rows<float, float>
                : de->dtype == ARES_BF16 ? add_rows<uint16_t, uint16_t>
                                         : add_rows<float, uint16_t>,
                dim3((unsigned)n, (unsigned)((de->k + ADD_THREADS - 1) / ADD_THREADS)), ADD_THREADS,
                0, de->data, de->k, ids, (const int32_t *)order, n, dy, lddy,
                scale != 0.0f ? scale : 1.0f);
}

void cuda_fill_pointwise(ares_kernels *k)
{
    k->rope = rope;
    k->gate_mul = gate_mul;
    k->gate_mul_backward = gate_mul_backward;
    k->activation = activation;
    k->activation_backward = activation_backward;
    k->convert = convert;
    k->embedding = embedding;
    k->embedding_backward = embedding_backward;
}
