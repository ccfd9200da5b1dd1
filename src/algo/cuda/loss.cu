/*
 * A loss of ares_loss_args with its KL and entropy terms, in one launch: a token per thread where
 * the formula needs the token alone, a row per block where it needs the row. These two templates
 * give every loss of LOSS_LIST its kernel; the formulas are those of src/algo/loss. Each thread
 * keeps its own sums, which are added in one tree per block. The block that ends last adds the sums
 * of all blocks to the card's, in an order that does not depend on which block is last. Counts of
 * bins are integers, so the order of their atomic additions changes nothing; lanes of equal bins
 * add once.
 *
 * Derivatives are added to what d_log_prob holds in the order of the CPU: the policy's, then the
 * KL's.
 */
#include <math.h>
#include <string.h>

#include "device.cuh"
#include "loss/formula.h"
#include "loss/formulas.h"
#include "loss/on_device.h"

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    BLOCKS = 528, /* 4 on each multiprocessor of an H100 */
    /*
     * Blocks that a multiprocessor must hold of a kernel with many f64 values per thread. It leaves
     * 128 registers per thread; without it ptxas aims lower and spills some of them to memory.
     */
    HELD = 2
};
#define ALL_LANES 0xffffffffu

/* ------------------------------------------------------------------ the clock around kernels */

static cudaEvent_t begun, ended; /* of the process, because a rank has one card */
static bool timed;

static void clock_begin(ares_device *d)
{
    cuda_context *c = cuda_enter(d);
    if (!begun) {
        cuda_check(c, cudaEventCreate(&begun), "event");
        cuda_check(c, cudaEventCreate(&ended), "event");
    }
    timed = false;
    if (!c->failed) cuda_check(c, cudaEventRecord(begun, c->stream), "event");
}
static void clock_end(ares_device *d)
{
    cuda_context *c = cuda_enter(d);
    if (!c->failed) timed = cuda_check(c, cudaEventRecord(ended, c->stream), "event");
}

static double kernel_s(ares_device *d)
{
    float ms = 0;
    cuda_context *c = cuda_enter(d);
    if (!timed || c->failed || !cuda_check(c, cudaEventElapsedTime(&ms, begun, ended), "event"))
        return (double)NAN;
    return (double)ms * 1e-3;
}

/* ------------------------------------------------------------------ sums of a block */

static unsigned blocks_for(int64_t n)
{
    return (unsigned)(n < BLOCKS ? n : (int64_t)BLOCKS);
}

static __device__ bool is_finite(double x)
{
    return x - x == 0;
}

static __device__ double warp_sum(double v)
{
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(ALL_LANES, v, step);
    return v;
}
/* The sum over a block of THREADS, in one tree; every thread gets it. */
static __device__ double block_sum(double v)
{
    __shared__ double of_warp[WARPS];
    __syncthreads(); /* the result of an earlier call may still be read */
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < WARPS; i++) sum += of_warp[i];
    return sum;
}
static __device__ double block_max(double v) /* ignores NaN */
{
    __shared__ double of_warp[WARPS];
    __syncthreads();
    for (int step = 16; step; step /= 2) {
        double other = __shfl_xor_sync(ALL_LANES, v, step);
        v = other > v ? other : v;
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    double most = of_warp[0];
    for (int i = 1; i < WARPS; i++) most = of_warp[i] > most ? of_warp[i] : most;
    return most;
}
/* Notes the first place of an input that cannot be computed with. */
template <typename U> static __device__ void note_fault(U *fault, int64_t t)
{
    atomicMin((unsigned long long *)fault, (unsigned long long)t);
}

/*
 * Whether this block is the last of its launch to get here; it may then read what the others have
 * written.
 */
static __device__ bool last_block(ares_card_sums *s)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd((unsigned long long *)&s->blocks, 1ull) == gridDim.x - 1;
    __syncthreads();
    if (last) __threadfence();
    if (last && threadIdx.x == 0) s->blocks = 0; /* for the next launch */
    return last;
}
/*
 * Adds the first n of the `width` sums of every block to the card's, a warp per sum: lane i adds
 * the blocks i, i + 32 ... in order, and the lanes meet in one tree.
 */
static __device__ void add_blocks(const double *partial, int width, int n, ares_card_sums *to)
{
    for (int i = (int)threadIdx.x / 32; i < n; i += WARPS) {
        double sum = 0;
        for (unsigned b = threadIdx.x % 32; b < gridDim.x; b += 32)
            sum += partial[(int64_t)b * width + i];
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) to->sum[i] += sum;
    }
}

/* ------------------------------------------------------------------ a token */

typedef struct loss_job {
    int64_t n, rows, row, first; /* rows of the batch: [row, row + rows) */
    const int64_t *start;        /* of the batch; NULL: all n tokens are one row */
    const float *log_prob, *old_log_prob, *advantage, *weight, *rollout_weight, *entropy, *ref,
        *kl_weight, *full;
    const uint8_t *mask, *chosen, *right;                    /* right: by row of the batch */
    float *d_log_prob, *d_entropy, *kl_out, *d_full, *ratio; /* ratio NULL: nothing is logged */
    uint8_t *clipped;
    loss_settings settings;
    int kl_value, kl_derivative; /* ares_kl_formula */
    double entropy_coeff, kl_coef;
    double *partial; /* [blocks][SUM_WIDTH] */
    ares_card_sums *sums;
} loss_job;

typedef struct tally {
    double v[SUM_COUNT], low, high;
} tally;

static __device__ double kl_of(int formula, double x)
{
#define VALUE(name) \
    if (formula == ARES_KL_##name) return ares_kl_##name(x);
    ARES_KL_FORMULAS(VALUE)
#undef VALUE
    return 0; /* the exact KL comes from the head */
}
static __device__ double kl_derivative_of(int formula, double x)
{
#define DERIVATIVE(name) \
    if (formula == ARES_KL_##name) return ares_kl_##name##_derivative(x);
    ARES_KL_FORMULAS(DERIVATIVE)
#undef DERIVATIVE
    return 0;
}

static __device__ loss_token token_at(const loss_job &j, int64_t t)
{
    loss_token x;
    x.log_prob = (double)j.log_prob[t];
    x.log_ratio = x.log_prob - (double)j.old_log_prob[t];
    x.advantage = (double)j.advantage[t];
    x.weight = (double)j.weight[t];
    x.correction = j.rollout_weight ? (double)j.rollout_weight[t] : 1;
    x.chosen = j.chosen ? j.chosen[t] : 0;
    return x;
}

/*
 * Whether token t counts, because its mask is 1. A token that loss_check would refuse is noted as a
 * fault and does not count.
 */
static __device__ bool counts(const loss_job &j, int64_t t)
{
    if (j.mask[t] == 0) return false;
    bool good = j.mask[t] == 1 && is_finite((double)j.log_prob[t]) &&
                is_finite((double)j.old_log_prob[t]) && is_finite((double)j.advantage[t]) &&
                is_finite((double)j.weight[t]) &&
                (!j.rollout_weight || is_finite((double)j.rollout_weight[t]));
    if (!good) note_fault(&j.sums->fault, j.first + t);
    return good;
}

/* As loss_count_token of the CPU's, without the bin. */
static __device__ void see(const loss_job &j, tally *s, double log_ratio, double ratio,
                           const ares_token_term &e, double w)
{
    double x = ares_loss_bound(log_ratio);
    s->v[SUM_loss] += e.loss * w;
    s->v[SUM_tokens] += 1;
    s->v[SUM_clip_high] += e.clip_high;
    s->v[SUM_clip_low] += e.clip_low;
    s->v[SUM_neg_log_ratio] -= x;
    s->v[SUM_k2] += 0.5 * x * x;
    s->v[SUM_k3] += ratio - 1 - x;
    s->v[SUM_ratio] += e.ratio;
    s->v[SUM_ratio_clipped] += ares_loss_clamp(e.ratio, j.settings.low, j.settings.high);
    s->v[SUM_ratio_off] += e.ratio < 1 ? 1 - e.ratio : e.ratio - 1;
    s->v[SUM_loss_abs] += e.loss < 0 ? -e.loss : e.loss;
    s->v[SUM_saturated] += ares_loss_beyond(log_ratio);
    s->low = e.ratio < s->low ? e.ratio : s->low;
    s->high = e.ratio > s->high ? e.ratio : s->high;
}
/* As loss_log_token of the CPU's. */
static __device__ void log_token(const loss_job &j, int64_t t, double ratio, int clipped)
{
    if (!j.ratio) return;
    j.ratio[t] = (float)ratio;
    j.clipped[t] = (uint8_t)clipped;
}
/* Counts the bin of each active lane. All lanes of the warp must call it. */
static __device__ void see_bin(unsigned *bins, bool active, double log_ratio)
{
    double x = ares_loss_bound(log_ratio);
    int bin = x < -2 ? 0 : (int)((x + 2) * 16);
    bin = bin < 0 ? 0 : bin >= ARES_LOSS_BINS ? ARES_LOSS_BINS - 1 : bin;
    unsigned same = __match_any_sync(ALL_LANES, active ? bin : ARES_LOSS_BINS);
    if (active && (same & ((1u << (threadIdx.x % 32)) - 1)) == 0)
        atomicAdd(&bins[bin], (unsigned)__popc(same));
}

/* Row i of the arrays owns the tokens [start_of(j, i), start_of(j, i + 1)). */
static __device__ int64_t start_of(const loss_job &j, int64_t i)
{
    return j.start ? j.start[j.row + i] - j.first : i ? j.n : 0;
}
/* The row of the arrays that token t belongs to. */
static __device__ int64_t row_of(const loss_job &j, int64_t t)
{
    /* the last row that starts at or before t: empty ones start there too, before it */
    int64_t low = 0, high = j.rows - 1;
    while (low < high) {
        int64_t mid = low + (high - low + 1) / 2;
        if (start_of(j, mid) <= t) low = mid;
        else high = mid - 1;
    }
    return low;
}

/* loss_terms of one token that counts. */
static __device__ void terms(const loss_job &j, int64_t t, tally *s)
{
    double w = (double)j.weight[t];
    if (j.ref || j.full) {
        double scale = j.kl_weight ? (double)j.kl_weight[t] : 1, x = 0, value;
        if (j.full) value = (double)j.full[t];
        else {
            x = (double)j.log_prob[t] - (double)j.ref[t];
            value = kl_of(j.kl_value, x);
        }
        if (!is_finite(value) || !is_finite(scale)) note_fault(&j.sums->fault, j.first + t);
        s->v[SUM_kl] += w * scale * value;
        s->v[SUM_kl_plain] += value;
        s->v[SUM_kl_tokens] += 1;
        if (!j.full && j.kl_value == ARES_KL_k3) s->v[SUM_kl_clamped] += ares_kl_k3_clamped(x);
        if (j.kl_out) j.kl_out[t] = (float)value;
        if (!j.full)
            j.d_log_prob[t] +=
                (float)(w * j.kl_coef * scale * kl_derivative_of(j.kl_derivative, x));
        else if (j.d_full) j.d_full[t] += (float)(w * j.kl_coef * scale);
    }
    if (j.entropy) {
        double entropy = (double)j.entropy[t];
        int right = j.right ? j.right[j.row + row_of(j, t)] : 2;
        if (!is_finite(entropy)) note_fault(&j.sums->fault, j.first + t);
        s->v[SUM_entropy] += w * entropy;
        s->v[SUM_entropy_plain] += entropy;
        s->v[SUM_entropy_tokens] += 1;
        s->v[SUM_entropy_right] += right == 1 ? entropy : 0;
        s->v[SUM_tokens_right] += right == 1;
        s->v[SUM_entropy_wrong] += right == 0 ? entropy : 0;
        s->v[SUM_tokens_wrong] += right == 0;
    }
    if (j.entropy_coeff != 0 && j.d_entropy) j.d_entropy[t] -= (float)(w * j.entropy_coeff);
}

static __device__ tally tally_new()
{
    tally s;
    for (int i = 0; i < SUM_COUNT; i++) s.v[i] = 0;
    s.low = INFINITY;
    s.high = -INFINITY;
    return s;
}
/* Writes the block's sums, and adds its bins to the total; the last block adds up all of them. */
static __device__ void tally_close(const loss_job &j, const tally &s, const unsigned *bins)
{
    double *to = j.partial + (int64_t)blockIdx.x * SUM_WIDTH;
    for (int i = 0; i < SUM_COUNT; i++) {
        double sum = block_sum(s.v[i]);
        if (threadIdx.x == 0) to[i] = sum;
    }
    double low = -block_max(-s.low), high = block_max(s.high);
    if (threadIdx.x == 0) to[SUM_MIN] = low, to[SUM_MAX] = high;
    if (threadIdx.x < ARES_LOSS_BINS && bins[threadIdx.x])
        atomicAdd((unsigned long long *)&j.sums->bins[threadIdx.x], bins[threadIdx.x]);
    if (!last_block(j.sums)) return;
    add_blocks(j.partial, SUM_WIDTH, SUM_COUNT, j.sums);
    low = INFINITY, high = -INFINITY;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += THREADS) {
        const double *of = j.partial + (int64_t)b * SUM_WIDTH;
        low = of[SUM_MIN] < low ? of[SUM_MIN] : low;
        high = of[SUM_MAX] > high ? of[SUM_MAX] : high;
    }
    low = -block_max(-low), high = block_max(high);
    if (threadIdx.x) return;
    j.sums->sum[SUM_MIN] = low < j.sums->sum[SUM_MIN] ? low : j.sums->sum[SUM_MIN];
    j.sums->sum[SUM_MAX] = high > j.sums->sum[SUM_MAX] ? high : j.sums->sum[SUM_MAX];
}
static __device__ void bins_new(unsigned *bins)
{
    if (threadIdx.x < ARES_LOSS_BINS) bins[threadIdx.x] = 0;
    __syncthreads();
}

/* ------------------------------------------------------------------ a token per thread */

template <class loss>
static __global__ void __launch_bounds__(THREADS, HELD) loss_tokens(loss_job j)
{
    __shared__ unsigned bins[ARES_LOSS_BINS];
    tally s = tally_new();
    bins_new(bins);
    for (int64_t base = (int64_t)blockIdx.x * THREADS; base < j.n;
         base += (int64_t)gridDim.x * THREADS) {
        int64_t t = base + threadIdx.x;
        bool active = t < j.n && counts(j, t);
        loss_token x = {};
        if (active) x = token_at(j, t);
        see_bin(bins, active, x.log_ratio);
        if (!active) continue; /* the lanes meet again at the loop's next step */
        double w = x.weight * x.correction;
        ares_token_term e = loss::token(&x, &j.settings);
        see(j, &s, x.log_ratio, e.ratio, e, w);
        log_token(j, t, e.ratio, e.clipped);
        j.d_log_prob[t] += (float)(e.gradient * w);
        terms(j, t, &s);
    }
    __syncthreads();
    tally_close(j, s, bins);
}

/* The terms of tokens whose loss is computed elsewhere. */
static __global__ void __launch_bounds__(THREADS) loss_terms_alone(loss_job j)
{
    __shared__ unsigned bins[ARES_LOSS_BINS];
    tally s = tally_new();
    bins_new(bins);
    for (int64_t t = (int64_t)blockIdx.x * THREADS + threadIdx.x; t < j.n;
         t += (int64_t)gridDim.x * THREADS)
        if (j.mask[t]) terms(j, t, &s);
    __syncthreads();
    tally_close(j, s, bins);
}

/* ------------------------------------------------------------------ a row per block */

template <class loss>
static __device__ loss_row sums_of_row(const loss_job &j, int64_t from, int64_t to)
{
    loss_row r = {};
    for (int64_t t = from + threadIdx.x; t < to; t += THREADS) {
        if (!counts(j, t)) continue;
        loss_token x = token_at(j, t);
        loss::gather(&r, &x, &j.settings);
        r.tokens += 1;
    }
    r.tokens = block_sum(r.tokens);
    r.log_ratio = block_sum(r.log_ratio);
    r.advantage = block_sum(r.advantage);
    r.weight = block_sum(r.weight);
    r.log_correction = block_sum(r.log_correction);
    return r;
}

/* Sums and derivatives of the row's tokens; returns this thread's sum of derivatives. */
template <class loss>
static __device__ double see_row(const loss_job &j, int64_t from, int64_t to, const loss_row &r,
                                 tally *s, unsigned *bins)
{
    double sum = 0;
    for (int64_t base = from; base < to; base += THREADS) {
        int64_t t = base + threadIdx.x;
        bool active = t < to && counts(j, t);
        loss_token x = {};
        if (active) x = token_at(j, t);
        see_bin(bins, active, x.log_ratio);
        if (!active) continue;
        loss_row_token e = loss::token(&r, &x, &j.settings);
        see(j, s, x.log_ratio, ares_loss_exp(ares_loss_bound(x.log_ratio)), e.term, e.weight);
        log_token(j, t, e.ratio, e.term.clipped);
        sum += e.derivative;
        if (!loss::SPREAD) j.d_log_prob[t] += (float)e.derivative;
    }
    return sum;
}

template <class loss> static __global__ void __launch_bounds__(THREADS) loss_rows(loss_job j)
{
    __shared__ unsigned bins[ARES_LOSS_BINS];
    tally s = tally_new();
    bins_new(bins);
    for (int64_t row = blockIdx.x; row < j.rows; row += gridDim.x) {
        int64_t from = start_of(j, row), to = start_of(j, row + 1);
        loss_row r = sums_of_row<loss>(j, from, to);
        if (r.tokens == 0) continue; /* the same in every thread */
        loss::row(&r, &j.settings);
        double sum = see_row<loss>(j, from, to, r, &s, bins);
        if (loss::SPREAD) sum = block_sum(sum);
        for (int64_t t = from + threadIdx.x; t < to; t += THREADS) {
            if (j.mask[t] != 1) continue;
            if (loss::SPREAD) j.d_log_prob[t] += (float)(sum / r.tokens);
            terms(j, t, &s);
        }
    }
    __syncthreads();
    tally_close(j, s, bins);
}

/* ------------------------------------------------------------------ the losses' kernels */

typedef struct loss_kernel {
    void (*run)(loss_job j); /* NULL: the loss has none */
    bool by_row;
} loss_kernel;
template <class loss> static loss_kernel kernel_of(const loss &, const loss_of_tokens &)
{
    return { loss_tokens<loss>, false };
}
template <class loss> static loss_kernel kernel_of(const loss &, const loss_of_rows &)
{
    return { loss_rows<loss>, true };
}
template <class loss> static loss_kernel kernel_of(const loss &, const loss_of_pairs &)
{
    return { NULL, false };
}
static loss_kernel kernel_named(const char *name)
{
#define KERNEL(word) \
    if (strcmp(name, #word) == 0) return kernel_of(loss_of_##word(), loss_of_##word());
    LOSS_LIST(KERNEL)
#undef KERNEL
    return { NULL, false };
}

/* ------------------------------------------------------------------ the call */

static int loss_pass(ares_device *d, const ares_loss *loss, const ares_loss_args *a,
                     const ares_kl_args *k)
{
    const loss_kernel kernel =
        loss ? kernel_named(loss->name) : loss_kernel{ loss_terms_alone, false };
    ARES_ASSERT(kernel.run && a->card && (!loss || !loss->choose || a->chosen));
    if (a->n == 0) return ARES_OK;
    loss_job j = {};
    j.n = a->n, j.row = a->row, j.first = a->first;
    j.rows = a->row_start ? a->end - a->row : 1;
    j.start = a->row_start ? a->card->row_start : NULL;
    j.log_prob = a->log_prob, j.old_log_prob = a->old_log_prob, j.advantage = a->advantage;
    j.weight = a->weight, j.rollout_weight = a->rollout_weight, j.mask = a->mask;
    j.chosen = a->chosen, j.entropy = a->entropy;
    j.right = a->row_start ? a->card->right : NULL;
    j.d_log_prob = a->d_log_prob, j.d_entropy = a->d_entropy;
    j.ratio = a->ratio, j.clipped = a->clipped;
    j.entropy_coeff = a->cfg->entropy_coeff;
    if (loss) j.settings = loss_settings_of(a, loss);
    if (k) {
        j.kl_value = k->kl->value_formula, j.kl_derivative = k->kl->derivative_formula;
        j.kl_coef = k->coef;
        j.kl_weight = k->weight;
        j.kl_out = k->out;
        if (k->kl->value) j.ref = k->ref_log_prob;
        else j.full = k->full, j.d_full = k->d_full;
    }
    j.sums = a->card->sums;
    unsigned blocks = blocks_for(kernel.by_row ? j.rows : (a->n + THREADS - 1) / THREADS);
    cuda_context *c = cuda_enter(d);
    j.partial =
        (double *)cuda_scratch(c, CUDA_LOSS, (size_t)blocks * SUM_WIDTH * sizeof *j.partial);
    if (!j.partial) return ARES_OK; /* sync tells */
    clock_begin(d);
    cuda_launch(c, "algo: loss", kernel.run, blocks, THREADS, 0, j);
    clock_end(d);
    return ARES_OK;
}

/* ------------------------------------------------------------------ the critic's loss */

#define VALUE_ONE(name) +1
enum { VALUE_SUMS = ARES_VALUE_SUMS(VALUE_ONE) };

typedef struct value_job {
    int64_t n, first;
    const float *value, *old_value, *target, *weight;
    const uint8_t *mask;
    double range;
    float *d_value;
    double *partial; /* [blocks][VALUE_SUMS] */
    ares_card_sums *sums;
} value_job;

static __global__ void __launch_bounds__(THREADS) value_tokens(value_job j)
{
    double s[VALUE_SUMS] = { 0, 0, 0, 0 };
    for (int64_t t = (int64_t)blockIdx.x * THREADS + threadIdx.x; t < j.n;
         t += (int64_t)gridDim.x * THREADS) {
        if (!j.mask[t]) continue;
        double v = (double)j.value[t], old = (double)j.old_value[t], r = (double)j.target[t],
               w = (double)j.weight[t];
        if (j.mask[t] != 1 || !is_finite(v) || !is_finite(old) || !is_finite(r) || !is_finite(w)) {
            note_fault(&j.sums->fault, j.first + t);
            continue;
        }
        ares_token_term e = ares_value_token(v, old, r, j.range);
        j.d_value[t] += (float)(w * e.gradient);
        s[0] += w * e.loss;
        s[1] += 1;
        s[2] += e.clip_high;
        s[3] += v;
    }
    for (int i = 0; i < VALUE_SUMS; i++) {
        double sum = block_sum(s[i]);
        if (threadIdx.x == 0) j.partial[(int64_t)blockIdx.x * VALUE_SUMS + i] = sum;
    }
    if (last_block(j.sums)) add_blocks(j.partial, VALUE_SUMS, VALUE_SUMS, j.sums);
}

static int value_pass(ares_device *d, const ares_value_args *a)
{
    ARES_ASSERT(a->card);
    if (a->n == 0) return ARES_OK;
    unsigned blocks = blocks_for((a->n + THREADS - 1) / THREADS);
    cuda_context *c = cuda_enter(d);
    double *partial =
        (double *)cuda_scratch(c, CUDA_LOSS, (size_t)blocks * VALUE_SUMS * sizeof *partial);
    if (!partial) return ARES_OK; /* sync tells */
    const value_job j = { a->n,       a->first,  a->value, a->old_value,
                          a->target,  a->weight, a->mask,  a->cliprange_value,
                          a->d_value, partial,   a->card };
    clock_begin(d);
    cuda_launch(c, "algo: value loss", value_tokens, blocks, THREADS, 0, j);
    clock_end(d);
    return ARES_OK;
}

/* ------------------------------------------------------------------ the table */

static const struct ares_card_losses table = {
    .loss = loss_pass,
    .value = value_pass,
    .kernel_s = kernel_s,
    .clock_begin = clock_begin,
    .clock_end = clock_end,
};

extern "C" {
const struct ares_card_losses *ares_cuda_losses(void);
}
const struct ares_card_losses *ares_cuda_losses(void)
{
    return &table;
}
