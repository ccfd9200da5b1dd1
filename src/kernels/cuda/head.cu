/*
 * The vocabulary head: logits of as many rows as a fixed scratch holds, by cuBLAS, then a block a row for its statistics
 * or, in place, its derivatives. head_fused makes a chunk's logits once; the others make the same ones again.
 *
 * Targets, statistics and coefficients are host arrays (kernels.h): they travel here, a few bytes a row.
 */
#include "vocab.cuh"

#include <vector>

/* Columns of a row's numbers on the device, [rows] each. */
typedef struct head_rows {
    int32_t *target;
    float *log_prob, *entropy, *lse, *c, *ce;
} head_rows;

static bool rows_new(cuda_context *c, int32_t rows, const int32_t *target, head_rows *r)
{
    float *p = (float *)cuda_scratch(c, CUDA_ROWS, (size_t)rows * 6 * sizeof(float));
    if (!p) return false;
    *r = { (int32_t *)p, p + rows, p + 2 * (int64_t)rows, p + 3 * (int64_t)rows, p + 4 * (int64_t)rows, p + 5 * (int64_t)rows };
    return cuda_in(c, r->target, target, (size_t)rows * sizeof *target);
}

static __global__ void __launch_bounds__(VOCAB_THREADS) row_statistics(const float *logits, int64_t ld, int32_t vocab, float inv_temperature,
                                                                       const int32_t *target, float *log_prob, float *entropy, float *lse)
{
    int64_t row = blockIdx.x;
    const float *z = logits + row * ld;
    vocab_total t = vocab_total_of(z, vocab, inv_temperature);
    if (threadIdx.x) return;
    log_prob[row] = vocab_log_prob(t, vocab_scaled(z[target[row]], inv_temperature));
    entropy[row] = t.entropy;
    if (lse) lse[row] = t.max + t.log_sum;
}

/* d loss / d logit: with p = exp(z - lse), -(p (c + ce (log p + H))), and + c at the target, over the temperature. */
static __global__ void __launch_bounds__(VOCAB_THREADS) differentiate(float *logits, int32_t vocab, float inv_temperature, const int32_t *target,
                                                                      const float *entropy, const float *lse, const float *c, const float *ce)
{
    int64_t row = blockIdx.x;
    float *z = logits + row * vocab, weight = c[row], of_entropy = ce ? ce[row] : 0.0f, shift = lse[row], h = entropy[row];
    int32_t taken = target[row];
    for (int32_t i = (int32_t)(blockIdx.y * VOCAB_THREADS + threadIdx.x); i < vocab; i += (int32_t)(gridDim.y * VOCAB_THREADS)) {
        float d = vocab_scaled(z[i], inv_temperature) - shift;
        float g = expf(d) * fmaf(of_entropy, d + h, weight) * -inv_temperature;
        z[i] = i == taken ? g + weight * inv_temperature : g;
    }
}

typedef struct head_chunk {
    int32_t row, rows;
    float *logits;
} head_chunk;

static head_chunk chunk_of(cuda_context *c, const ares_head_args *a, int32_t row)
{
    int32_t most = vocab_rows(a->rows, a->vocab);
    float *logits = (float *)cuda_scratch(c, CUDA_LOGITS, (size_t)most * (size_t)a->vocab * sizeof(float));
    return { row, ARES_MIN(most, a->rows - row), logits };
}
static void make_logits(cuda_context *c, const ares_head_args *a, const head_chunk *k)
{
    ares_matrix w = vocab_part(a->w, a->vocab);
    cuda_product(c, a->x + k->row * a->ldx, a->ldx, &w, k->rows, k->logits, a->vocab, false);
}
static void make_statistics(cuda_context *c, const ares_head_args *a, const head_chunk *k, const head_rows *r)
{
    cuda_launch(c, "head: statistics", row_statistics, (unsigned)k->rows, VOCAB_THREADS, 0, k->logits, a->vocab, a->vocab, a->inv_temperature,
                r->target + k->row, r->log_prob + k->row, r->entropy + k->row, r->lse + k->row);
}
/* The chunk's logits become their derivatives, and these dx and dw. */
static void backward(ares_device *d, cuda_context *c, const ares_head_args *a, const head_chunk *k, const head_rows *r, bool entropy)
{
    cuda_launch(c, "head: derivatives", differentiate, dim3((unsigned)k->rows, 8), VOCAB_THREADS, 0, k->logits, a->vocab, a->inv_temperature,
                r->target + k->row, r->entropy + k->row, r->lse + k->row, r->c + k->row, entropy ? r->ce + k->row : NULL);
    ares_matrix w = vocab_part(a->w, a->vocab), dw = a->dw ? vocab_part(a->dw, a->vocab) : ares_matrix{};
    ares_linear_backward_args l = { .m = k->rows,
                                    .dy = k->logits,
                                    .lddy = a->vocab,
                                    .w = &w,
                                    .dx = a->dx ? a->dx + k->row * a->lddx : NULL,
                                    .lddx = a->lddx,
                                    .accumulate = false,
                                    .x = a->x + k->row * a->ldx,
                                    .ldx = a->ldx,
                                    .dw = a->dw ? &dw : NULL,
                                    .dbias = NULL };
    cuda_linear_backward(d, &l);
}
static bool statistics_out(cuda_context *c, const ares_head_args *a, const head_rows *r, int32_t row, int32_t rows)
{
    size_t bytes = (size_t)rows * sizeof(float);
    return cuda_out(c, a->log_prob + row, r->log_prob + row, bytes) && cuda_out(c, a->entropy + row, r->entropy + row, bytes) &&
           cuda_out(c, a->lse + row, r->lse + row, bytes);
}

static void check(const ares_head_args *a)
{
    ARES_ASSERT(a->vocab <= a->w->n);
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
    if (a->rows == 0 || !rows_new(c, a->rows, a->target, &r)) return;
    std::vector<float> weight((size_t)vocab_rows(a->rows, a->vocab)), of_entropy(weight.size());
    head_chunk k;
    for (int32_t row = 0; row < a->rows; row += k.rows) {
        k = chunk_of(c, a, row);
        make_logits(c, a, &k);
        make_statistics(c, a, &k, &r);
        if (!statistics_out(c, a, &r, row, k.rows)) return; /* there is nothing to call the loss with; sync reports */
        size_t bytes = (size_t)k.rows * sizeof(float);
        weight.assign(weight.size(), 0.0f);
        of_entropy.assign(of_entropy.size(), 0.0f);
        loss(ctx, row, k.rows, a->log_prob + row, a->entropy + row, weight.data(), of_entropy.data());
        cuda_in(c, r.c + row, weight.data(), bytes);
        cuda_in(c, r.ce + row, of_entropy.data(), bytes);
        backward(d, c, a, &k, &r, true);
    }
}
