/*
 * The vocabulary head: cuBLAS computes the logits of a chunk, as many rows as a fixed scratch
 * holds; then one block per row computes its statistics or, in place, its derivatives. head_fused
 * computes a chunk's logits once; head_backward computes those of head again.
 *
 * Targets, statistics and coefficients are host arrays (kernels.h): a few bytes per row are copied
 * here.
 *
 * With a reference a chunk has half as many rows, and the other model's logits beside its own.
 */
#include "vocab.cuh"

#include <vector>

/* Numbers per row on the device, [rows] each. c, ce, ck: coefficients of log_prob, entropy, KL. */
typedef struct head_rows {
    int32_t *target;
    float *log_prob, *entropy, *lse, *c, *ce, *kl, *ref_lse, *ck;
} head_rows;

static bool rows_new(cuda_context *c, int32_t rows, const int32_t *target, head_rows *r)
{
    float *p = (float *)cuda_scratch(c, CUDA_ROWS, (size_t)rows * 9 * sizeof(float));
    if (!p) return false;
    int64_t n = rows;
    *r = { (int32_t *)p, p + n,     p + 2 * n, p + 3 * n, p + 4 * n,
           p + 5 * n,    p + 6 * n, p + 7 * n, p + 8 * n };
    return cuda_in(c, r->target, target, (size_t)rows * sizeof *target);
}

static head_rows rows_from(const head_rows *r, int32_t row)
{
    return { r->target + row, r->log_prob + row, r->entropy + row, r->lse + row, r->c + row,
             r->ce + row,     r->kl + row,       r->ref_lse + row, r->ck + row };
}

static __global__ void __launch_bounds__(VOCAB_THREADS)
    row_statistics(const float *logits, int32_t vocab, float inv_temperature, head_rows r)
{
    int64_t row = blockIdx.x;
    const float *z = logits + row * vocab;
    vocab_total t = vocab_total_of(z, vocab, inv_temperature);
    if (threadIdx.x) return;
    r.log_prob[row] = vocab_log_prob(t, vocab_scaled(z[r.target[row]], inv_temperature));
    r.entropy[row] = t.entropy;
    r.lse[row] = t.max + t.log_sum;
}

static __device__ double block_sum_f64(double v)
{
    __shared__ double of_warp[VOCAB_THREADS / 32];
    __syncthreads(); /* of_warp of the call before may still be read */
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < VOCAB_THREADS / 32; i++) sum += of_warp[i];
    return sum;
}
/* Differences below -128 become -128, where e is 0 anyway; NaN stays. */
static __device__ float above_floor(float d)
{
    return d < -128.0f ? -128.0f : d;
}

/*
 * KL = sum p (z - z_ref) - lse + lse_ref, summed in f64: the terms are as large as the logits, the
 * KL is not.
 */
static __global__ void __launch_bounds__(VOCAB_THREADS)
    row_kl(const float *logits, const float *ref_logits, int32_t vocab, float inv_temperature,
           float *kl, float *ref_lse)
{
    int64_t row = blockIdx.x;
    const float *z = logits + row * vocab, *zr = ref_logits + row * vocab;
    float max = -INFINITY, ref_max = -INFINITY;
    for (int32_t i = threadIdx.x; i < vocab; i += VOCAB_THREADS) {
        max = fmaxf(max, vocab_scaled(z[i], inv_temperature));
        ref_max = fmaxf(ref_max, vocab_scaled(zr[i], inv_temperature));
    }
    max = cuda_block_max(max);
    ref_max = cuda_block_max(ref_max);
    double sum = 0, ref_sum = 0, cross = 0;
    for (int32_t i = threadIdx.x; i < vocab; i += VOCAB_THREADS) {
        float own = vocab_scaled(z[i], inv_temperature),
              other = vocab_scaled(zr[i], inv_temperature);
        double e = (double)expf(above_floor(own - max));
        sum += e;
        ref_sum += (double)expf(above_floor(other - ref_max));
        cross += e * ((double)own - (double)other);
    }
    sum = block_sum_f64(sum);
    ref_sum = block_sum_f64(ref_sum);
    cross = block_sum_f64(cross);
    if (threadIdx.x) return;
    double lse_ref = (double)ref_max + log(ref_sum),
           value = cross / sum - ((double)max + log(sum)) + lse_ref;
    kl[row] = value < 0 ? 0.0f : (float)value; /* only rounding makes it negative */
    ref_lse[row] = (float)lse_ref;
}

/*
 * d loss / d logit: with p = exp(z - lse), -p (c + ce (log p + H)), plus c at the target, all times
 * inv_temperature.
 */
static __global__ void __launch_bounds__(VOCAB_THREADS)
    differentiate(float *logits, int32_t vocab, float inv_temperature, head_rows r)
{
    int64_t row = blockIdx.x;
    float *z = logits + row * vocab, weight = r.c[row], of_entropy = r.ce ? r.ce[row] : 0.0f,
          shift = r.lse[row], h = r.entropy[row];
    int32_t taken = r.target[row];
    for (int32_t i = (int32_t)(blockIdx.y * VOCAB_THREADS + threadIdx.x); i < vocab;
         i += (int32_t)(gridDim.y * VOCAB_THREADS)) {
        float d = vocab_scaled(z[i], inv_temperature) - shift;
        float g = expf(d) * fmaf(of_entropy, d + h, weight) * -inv_temperature;
        z[i] = i == taken ? g + weight * inv_temperature : g;
    }
}

/* The same plus c_kl p (log p - log q - KL), times inv_temperature. */
static __global__ void __launch_bounds__(VOCAB_THREADS)
    differentiate_kl(float *logits, const float *ref_logits, int32_t vocab, float inv_temperature,
                     head_rows r)
{
    int64_t row = blockIdx.x;
    float *z = logits + row * vocab, weight = r.c[row], of_entropy = r.ce ? r.ce[row] : 0.0f,
          of_kl = r.ck[row], shift = r.lse[row], ref_shift = r.ref_lse[row], h = r.entropy[row],
          mean = r.kl[row];
    const float *zr = ref_logits + row * vocab;
    int32_t taken = r.target[row];
    for (int32_t i = (int32_t)(blockIdx.y * VOCAB_THREADS + threadIdx.x); i < vocab;
         i += (int32_t)(gridDim.y * VOCAB_THREADS)) {
        float d = vocab_scaled(z[i], inv_temperature) - shift,
              q = vocab_scaled(zr[i], inv_temperature) - ref_shift;
        float g = expf(d) * fmaf(-of_kl, (d - q) - mean, fmaf(of_entropy, d + h, weight)) *
                  -inv_temperature;
        z[i] = i == taken ? g + weight * inv_temperature : g;
    }
}

typedef struct head_chunk {
    int32_t row, rows;
    float *logits, *ref; /* ref NULL: no reference */
} head_chunk;

static head_chunk chunk_of(cuda_context *c, const ares_head_args *a, int32_t row)
{
    int64_t width = a->ref_x ? 2 * (int64_t)a->vocab : a->vocab;
    int32_t most = vocab_rows(a->rows, width);
    float *logits =
        (float *)cuda_scratch(c, CUDA_LOGITS, (size_t)most * (size_t)width * sizeof(float));
    return { row, ARES_MIN(most, a->rows - row), logits,
             a->ref_x && logits ? logits + (int64_t)most * a->vocab : NULL };
}
static void make_logits(cuda_context *c, const ares_head_args *a, const head_chunk *k)
{
    ares_matrix w = vocab_part(a->w, a->vocab);
    cuda_product(c, (const float *)a->x + k->row * a->ldx, a->ldx, &w, k->rows, k->logits, a->vocab,
                 false);
    if (!k->ref) return;
    w = vocab_part(a->ref_w, a->vocab);
    cuda_product(c, (const float *)a->ref_x + k->row * a->ld_ref, a->ld_ref, &w, k->rows, k->ref,
                 a->vocab, false);
}
static void make_statistics(cuda_context *c, const ares_head_args *a, const head_chunk *k,
                            const head_rows *r)
{
    cuda_launch(c, "head: statistics", row_statistics, (unsigned)k->rows, VOCAB_THREADS, 0,
                k->logits, a->vocab, a->inv_temperature, rows_from(r, k->row));
    if (k->ref)
        cuda_launch(c, "head: kl", row_kl, (unsigned)k->rows, VOCAB_THREADS, 0, k->logits, k->ref,
                    a->vocab, a->inv_temperature, r->kl + k->row, r->ref_lse + k->row);
}
/* The chunk's logits become their derivatives, from which dx and dw are computed. */
static void backward(ares_device *d, cuda_context *c, const ares_head_args *a, const head_chunk *k,
                     const head_rows *r, bool entropy)
{
    head_rows own = rows_from(r, k->row);
    if (!entropy) own.ce = NULL;
    dim3 grid((unsigned)k->rows, 8);
    if (k->ref)
        cuda_launch(c, "head: derivatives", differentiate_kl, grid, VOCAB_THREADS, 0, k->logits,
                    k->ref, a->vocab, a->inv_temperature, own);
    else
        cuda_launch(c, "head: derivatives", differentiate, grid, VOCAB_THREADS, 0, k->logits,
                    a->vocab, a->inv_temperature, own);
    ares_matrix w = vocab_part(a->w, a->vocab),
                dw = a->dw ? vocab_part(a->dw, a->vocab) : ares_matrix{};
    ares_linear_backward_args l = { .m = k->rows,
                                    .dy = k->logits,
                                    .lddy = a->vocab,
                                    .w = &w,
                                    .dx = a->dx ? (float *)a->dx + k->row * a->lddx : NULL,
                                    .lddx = a->lddx,
                                    .accumulate = false,
                                    .x = (const float *)a->x + k->row * a->ldx,
                                    .ldx = a->ldx,
                                    .dw = a->dw ? &dw : NULL,
                                    .dbias = NULL };
    cuda_linear_backward(d, &l);
}
static bool statistics_out(cuda_context *c, const ares_head_args *a, const head_rows *r,
                           int32_t row, int32_t rows)
{
    size_t bytes = (size_t)rows * sizeof(float);
    return cuda_out(c, a->log_prob + row, r->log_prob + row, bytes) &&
           cuda_out(c, a->entropy + row, r->entropy + row, bytes) &&
           cuda_out(c, a->lse + row, r->lse + row, bytes);
}

static void check(const ares_head_args *a)
{
    ARES_ASSERT(a->vocab <= a->w->n && (!a->ref_x || a->vocab <= a->ref_w->n));
    for (int32_t r = 0; r < a->rows; r++) ARES_ASSERT(a->target[r] >= 0 && a->target[r] < a->vocab);
}

void cuda_head(ares_device *d, const ares_head_args *a)
{
    cuda_context *c = cuda_enter(d);
    head_rows r;
    check(a);
    if (a->rows == 0 || !rows_new(c, a->rows, a->target, &r)) return;
    head_chunk k;
    for (int32_t row = 0; row < a->rows && !c->failed; row += k.rows) {
        k = chunk_of(c, a, row);
        make_logits(c, a, &k);
        make_statistics(c, a, &k, &r);
    }
    statistics_out(c, a, &r, 0, a->rows);
    if (!a->ref_x) return;
    cuda_out(c, a->kl, r.kl, (size_t)a->rows * sizeof(float));
    cuda_out(c, a->ref_lse, r.ref_lse, (size_t)a->rows * sizeof(float));
}

void cuda_head_backward(ares_device *d, const ares_head_args *a)
{
    cuda_context *c = cuda_enter(d);
    head_rows r;
    size_t bytes = (size_t)a->rows * sizeof(float);
    check(a);
    if (a->rows == 0 || !rows_new(c, a->rows, a->target, &r)) return;
    cuda_in(c, r.entropy, a->entropy, bytes);
    cuda_in(c, r.lse, a->lse, bytes);
    cuda_in(c, r.c, a->c_log_prob, bytes);
    if (a->c_entropy) cuda_in(c, r.ce, a->c_entropy, bytes);
    if (a->ref_x) {
        cuda_in(c, r.kl, a->kl, bytes);
        cuda_in(c, r.ref_lse, a->ref_lse, bytes);
        cuda_in(c, r.ck, a->c_kl, bytes);
    }
    head_chunk k;
    for (int32_t row = 0; row < a->rows && !c->failed; row += k.rows) {
        k = chunk_of(c, a, row);
        make_logits(c, a, &k);
        backward(d, c, a, &k, &r, a->c_entropy != NULL);
    }
}

void cuda_head_fused(ares_device *d, const ares_head_args *a, ares_head_loss_fn *loss, void *ctx)
{
    cuda_context *c = cuda_enter(d);
    head_rows r;
    check(a);
    ARES_ASSERT(!a->ref_x);
    if (a->rows == 0 || !rows_new(c, a->rows, a->target, &r)) return;
    std::vector<float> weight((size_t)vocab_rows(a->rows, a->vocab)), of_entropy(weight.size());
    head_chunk k;
    for (int32_t row = 0; row < a->rows; row += k.rows) {
        k = chunk_of(c, a, row);
        make_logits(c, a, &k);
        make_statistics(c, a, &k, &r);
        /* after a failure there are no numbers for the loss; sync reports it */
        if (!statistics_out(c, a, &r, row, k.rows)) return;
        size_t bytes = (size_t)k.rows * sizeof(float);
        weight.assign(weight.size(), 0.0f);
        of_entropy.assign(of_entropy.size(), 0.0f);
        loss(ctx, row, k.rows, a->log_prob + row, a->entropy + row, weight.data(),
             of_entropy.data());
        cuda_in(c, r.c + row, weight.data(), bytes);
        cuda_in(c, r.ce + row, of_entropy.data(), bytes);
        backward(d, c, a, &k, &r, true);
    }
}
