/*
 * A loss of ares_loss_args and its terms, in one launch: a token per thread where the formula needs
 * the token alone, a row per block where it needs the row. Every loss of LOSS_LIST has its kernel
 * from these two; the formulas are those of src/algo/loss. Each thread keeps its own sums, which
 * meet in one tree per block; the block that ends last adds those of all blocks, in an order that
 * does not depend on which it is, to the card's sums. Counts of bins are integers, so the order of
 * their atomic additions changes nothing; lanes of equal bins add once.
 *
 * Derivatives are added to what d_log_prob holds in the order of the CPU: the policy's, then the
 * KL's.
 */
#include "twin.cuh"

#include <math.h>
#include <string.h>

#include <vector>

#include "loss/formula.h"
#include "loss/formulas.h"

typedef struct loss_job {
    int64_t n, rows, row, first; /* rows of the batch: [row, row + rows) */
    const int64_t *start;        /* of the batch; NULL: all n tokens are one row */
    const float *log_prob, *old_log_prob, *advantage, *weight, *rollout_weight, *entropy, *ref,
        *kl_weight, *full;
    const uint8_t *mask, *chosen, *right; /* right: by row of the batch */
    float *d_log_prob, *d_entropy, *kl_out, *d_full;
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

/* Whether token t counts: its mask is 1. What loss_check would refuse is noted and does not count.
 */
static __device__ bool counts(const loss_job &j, int64_t t)
{
    if (j.mask[t] == 0) return false;
    bool good = j.mask[t] == 1 && twin_finite((double)j.log_prob[t]) &&
                twin_finite((double)j.old_log_prob[t]) && twin_finite((double)j.advantage[t]) &&
                twin_finite((double)j.weight[t]) &&
                (!j.rollout_weight || twin_finite((double)j.rollout_weight[t]));
    if (!good) twin_fault(&j.sums->fault, j.first + t);
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
/* Counts the bin of each active lane. All lanes of the warp must call it. */
static __device__ void see_bin(unsigned *bins, bool active, double log_ratio)
{
    double x = ares_loss_bound(log_ratio);
    int bin = x < -2 ? 0 : (int)((x + 2) * 16);
    bin = bin < 0 ? 0 : bin >= ARES_LOSS_BINS ? ARES_LOSS_BINS - 1 : bin;
    unsigned same = __match_any_sync(TWIN_ALL, active ? bin : ARES_LOSS_BINS);
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
        if (!twin_finite(value) || !twin_finite(scale)) twin_fault(&j.sums->fault, j.first + t);
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
        if (!twin_finite(entropy)) twin_fault(&j.sums->fault, j.first + t);
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
        double sum = twin_block_sum(s.v[i]);
        if (threadIdx.x == 0) to[i] = sum;
    }
    double low = -twin_block_max(-s.low), high = twin_block_max(s.high);
    if (threadIdx.x == 0) to[SUM_MIN] = low, to[SUM_MAX] = high;
    if (threadIdx.x < ARES_LOSS_BINS && bins[threadIdx.x])
        twin_count(&j.sums->bins[threadIdx.x], bins[threadIdx.x]);
    if (!twin_last_block(j.sums)) return;
    twin_add_blocks(j.partial, SUM_WIDTH, SUM_COUNT, j.sums);
    low = INFINITY, high = -INFINITY;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += TWIN_THREADS) {
        const double *of = j.partial + (int64_t)b * SUM_WIDTH;
        low = of[SUM_MIN] < low ? of[SUM_MIN] : low;
        high = of[SUM_MAX] > high ? of[SUM_MAX] : high;
    }
    low = -twin_block_max(-low), high = twin_block_max(high);
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
static __global__ void __launch_bounds__(TWIN_THREADS, TWIN_HELD) loss_tokens(loss_job j)
{
    __shared__ unsigned bins[ARES_LOSS_BINS];
    tally s = tally_new();
    bins_new(bins);
    for (int64_t base = (int64_t)blockIdx.x * TWIN_THREADS; base < j.n;
         base += (int64_t)gridDim.x * TWIN_THREADS) {
        int64_t t = base + threadIdx.x;
        bool active = t < j.n && counts(j, t);
        loss_token x = {};
        if (active) x = token_at(j, t);
        see_bin(bins, active, x.log_ratio);
        if (!active) continue; /* the lanes meet again at the loop's next step */
        double w = x.weight * x.correction;
        ares_token_term e = loss::token(&x, &j.settings);
        see(j, &s, x.log_ratio, e.ratio, e, w);
        j.d_log_prob[t] += (float)(e.gradient * w);
        terms(j, t, &s);
    }
    __syncthreads();
    tally_close(j, s, bins);
}

/* The terms of tokens whose loss is computed elsewhere. */
static __global__ void __launch_bounds__(TWIN_THREADS) loss_terms_alone(loss_job j)
{
    __shared__ unsigned bins[ARES_LOSS_BINS];
    tally s = tally_new();
    bins_new(bins);
    for (int64_t t = (int64_t)blockIdx.x * TWIN_THREADS + threadIdx.x; t < j.n;
         t += (int64_t)gridDim.x * TWIN_THREADS)
        if (j.mask[t]) terms(j, t, &s);
    __syncthreads();
    tally_close(j, s, bins);
}

/* ------------------------------------------------------------------ a row per block */

template <class loss>
static __device__ loss_row sums_of_row(const loss_job &j, int64_t from, int64_t to)
{
    loss_row r = {};
    for (int64_t t = from + threadIdx.x; t < to; t += TWIN_THREADS) {
        if (!counts(j, t)) continue;
        loss_token x = token_at(j, t);
        loss::gather(&r, &x, &j.settings);
        r.tokens += 1;
    }
    r.tokens = twin_block_sum(r.tokens);
    r.log_ratio = twin_block_sum(r.log_ratio);
    r.advantage = twin_block_sum(r.advantage);
    r.weight = twin_block_sum(r.weight);
    r.log_correction = twin_block_sum(r.log_correction);
    return r;
}

/* Sums and derivatives of the row's tokens; returns this thread's sum of derivatives. */
template <class loss>
static __device__ double see_row(const loss_job &j, int64_t from, int64_t to, const loss_row &r,
                                 tally *s, unsigned *bins)
{
    double sum = 0;
    for (int64_t base = from; base < to; base += TWIN_THREADS) {
        int64_t t = base + threadIdx.x;
        bool active = t < to && counts(j, t);
        loss_token x = {};
        if (active) x = token_at(j, t);
        see_bin(bins, active, x.log_ratio);
        if (!active) continue;
        loss_row_token e = loss::token(&r, &x, &j.settings);
        see(j, s, x.log_ratio, ares_loss_exp(ares_loss_bound(x.log_ratio)), e.term, e.weight);
        sum += e.derivative;
        if (!loss::SPREAD) j.d_log_prob[t] += (float)e.derivative;
    }
    return sum;
}

template <class loss> static __global__ void __launch_bounds__(TWIN_THREADS) loss_rows(loss_job j)
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
        if (loss::SPREAD) sum = twin_block_sum(sum);
        for (int64_t t = from + threadIdx.x; t < to; t += TWIN_THREADS) {
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

static void add_kl(loss_job *j, const ares_kl_args *k)
{
    j->kl_value = k->kl->value_formula, j->kl_derivative = k->kl->derivative_formula;
    j->kl_coef = k->coef;
    j->kl_weight = k->weight;
    j->kl_out = k->out;
    if (k->kl->value) j->ref = k->ref_log_prob;
    else j->full = k->full, j->d_full = k->d_full;
}

int cuda_algo_loss(ares_device *d, const twin_loss_args *t)
{
    const ares_loss_args *a = t->args;
    const loss_kernel kernel =
        t->loss ? kernel_named(t->loss->name) : loss_kernel{ loss_terms_alone, false };
    ARES_ASSERT(kernel.run && a->card && (!t->loss || !t->loss->choose || a->chosen));
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
    j.entropy_coeff = a->cfg->entropy_coeff;
    if (t->loss) j.settings = loss_settings_of(a, t->loss);
    if (t->kl) add_kl(&j, t->kl);
    j.sums = a->card->sums;
    unsigned blocks =
        twin_blocks(kernel.by_row ? j.rows : (a->n + TWIN_THREADS - 1) / TWIN_THREADS);
    twin_memory m = twin_open(d, (size_t)blocks * SUM_WIDTH * sizeof(double), 1);
    j.partial = twin_take<double>(&m, (int64_t)blocks * SUM_WIDTH);
    if (!m.c) return ARES_OK; /* sync tells */
    twin_begin(&m);
    cuda_launch(m.c, "algo: loss", kernel.run, blocks, TWIN_THREADS, 0, j);
    twin_end(&m);
    return ARES_OK;
}

/* ------------------------------------------------------------------ the critic's loss */

#define VALUE_ONE(name) +1
enum { VALUE_SUMS = TWIN_VALUE_SUMS(VALUE_ONE) };

typedef struct value_job {
    int64_t n, first;
    const float *value, *old_value, *target, *weight;
    const uint8_t *mask;
    double range;
    float *d_value;
    double *partial; /* [blocks][VALUE_SUMS] */
    ares_card_sums *sums;
} value_job;

static __global__ void __launch_bounds__(TWIN_THREADS) value_tokens(value_job j)
{
    double s[VALUE_SUMS] = { 0, 0, 0, 0 };
    for (int64_t t = (int64_t)blockIdx.x * TWIN_THREADS + threadIdx.x; t < j.n;
         t += (int64_t)gridDim.x * TWIN_THREADS) {
        if (!j.mask[t]) continue;
        double v = (double)j.value[t], old = (double)j.old_value[t], r = (double)j.target[t],
               w = (double)j.weight[t];
        if (j.mask[t] != 1 || !twin_finite(v) || !twin_finite(old) || !twin_finite(r) ||
            !twin_finite(w)) {
            twin_fault(&j.sums->fault, j.first + t);
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
        double sum = twin_block_sum(s[i]);
        if (threadIdx.x == 0) j.partial[(int64_t)blockIdx.x * VALUE_SUMS + i] = sum;
    }
    if (twin_last_block(j.sums)) twin_add_blocks(j.partial, VALUE_SUMS, VALUE_SUMS, j.sums);
}

int cuda_algo_value(ares_device *d, const ares_value_args *a)
{
    ARES_ASSERT(a->card);
    if (a->n == 0) return ARES_OK;
    unsigned blocks = twin_blocks((a->n + TWIN_THREADS - 1) / TWIN_THREADS);
    twin_memory m = twin_open(d, (size_t)blocks * VALUE_SUMS * sizeof(double), 1);
    double *partial = twin_take<double>(&m, (int64_t)blocks * VALUE_SUMS);
    const value_job j = { a->n,       a->first,  a->value, a->old_value,
                          a->target,  a->weight, a->mask,  a->cliprange_value,
                          a->d_value, partial,   a->card };
    if (!m.c) return ARES_OK; /* sync tells */
    twin_begin(&m);
    cuda_launch(m.c, "algo: value loss", value_tokens, blocks, TWIN_THREADS, 0, j);
    twin_end(&m);
    return ARES_OK;
}

/* ------------------------------------------------------------------ KL of stored log-probs */

static __global__ void __launch_bounds__(TWIN_THREADS)
    kl_tokens(int kl, int64_t n, const float *log_prob, const float *ref, const uint8_t *mask,
              float *out, unsigned long long *fault)
{
    CUDA_EACH(t, n)
    {
        double x = mask[t] ? kl_of(kl, (double)log_prob[t] - (double)ref[t]) : 0;
        if (!twin_finite(x)) twin_fault(fault, t);
        out[t] = (float)x;
    }
}

int cuda_algo_kl(ares_device *d, const ares_kl *kl, int64_t n, const float *log_prob,
                 const float *ref_log_prob, const uint8_t *mask, float *out)
{
    if (n == 0) return ARES_OK;
    ARES_ASSERT(kl->value);
    unsigned long long fault = TWIN_NO_FAULT;
    twin_memory m = twin_open(d, (size_t)n * (3 * sizeof(float) + 1) + sizeof fault, 5);
    const float *x = twin_up(&m, log_prob, n), *ref = twin_up(&m, ref_log_prob, n);
    const uint8_t *seen = twin_up(&m, mask, n);
    float *y = twin_take<float>(&m, n);
    unsigned long long *at_fault = twin_up(&m, (const unsigned long long *)&fault, 1);
    if (!m.c) return twin_close(&m);
    twin_begin(&m);
    cuda_launch(m.c, "algo: kl", kl_tokens, twin_blocks((n + TWIN_THREADS - 1) / TWIN_THREADS),
                TWIN_THREADS, 0, (int)kl->value_formula, n, x, ref, seen, y, at_fault);
    twin_end(&m);
    if (!twin_down(&m, &fault, at_fault, 1)) return twin_close(&m);
    if (fault != TWIN_NO_FAULT) return TWIN_FAULT;
    twin_down(&m, out, y, n);
    return twin_close(&m);
}

/* ------------------------------------------------------------------ weights of rollout_is */

typedef struct rollout_weights_job {
    int64_t rows;
    const int64_t *start;
    const float *log_prob, *rollout;
    const uint8_t *response_mask;
    bool by_token, mean, mask; /* mask: rollout_is_mode */
    double lower, upper;
    float *weight;
    double *partial; /* [blocks][3] */
    unsigned long long *fault;
} rollout_weights_job;

static __global__ void __launch_bounds__(TWIN_THREADS, TWIN_HELD)
    rollout_weights_rows(rollout_weights_job j)
{
    double s[3] = { 0, 0, 0 };
    for (int64_t row = blockIdx.x; row < j.rows; row += gridDim.x) {
        int64_t from = j.start[row], to = j.start[row + 1];
        double sum = 0, n = 0;
        for (int64_t t = from + threadIdx.x; t < to; t += TWIN_THREADS) {
            if (!j.response_mask[t]) continue;
            double x = (double)j.log_prob[t] - (double)j.rollout[t];
            if (!twin_finite(x)) twin_fault(j.fault, t);
            sum += x;
            n += 1;
        }
        sum = twin_block_sum(sum);
        n = twin_block_sum(n);
        for (int64_t t = from + threadIdx.x; t < to; t += TWIN_THREADS) {
            if (!j.response_mask[t]) {
                j.weight[t] = 0;
                continue;
            }
            double x = j.by_token ? (double)j.log_prob[t] - (double)j.rollout[t]
                       : j.mean   ? sum / n
                                  : sum;
            double w = ares_rollout_weight(x, j.mask, j.lower, j.upper),
                   whole = ares_loss_exp(ares_loss_bound(x));
            j.weight[t] = (float)w;
            s[0] += w;
            s[1] += w < whole || w > whole;
            s[2] += 1;
        }
    }
    for (int i = 0; i < 3; i++) {
        double sum = twin_block_sum(s[i]);
        if (threadIdx.x == 0) j.partial[(int64_t)blockIdx.x * 3 + i] = sum;
    }
}

int cuda_algo_rollout_weights(ares_device *d, const twin_rollout_weights_args *t)
{
    const ares_loss_config *cfg = t->cfg;
    int64_t rows = t->of.rows, n = rows ? t->of.row_start[rows] : 0;
    if (n == 0) return ARES_OK;
    unsigned blocks = twin_blocks(rows);
    std::vector<double> partial((size_t)blocks * 3);
    unsigned long long fault = TWIN_NO_FAULT;
    twin_memory m =
        twin_open(d,
                  (size_t)n * (3 * sizeof(float) + 1) + (size_t)(rows + 1) * sizeof(int64_t) +
                      partial.size() * sizeof(double) + sizeof fault,
                  7);
    rollout_weights_job j = {};
    j.rows = rows;
    j.start = twin_up(&m, t->of.row_start, rows + 1);
    j.log_prob = twin_up(&m, t->log_prob, n);
    j.rollout = twin_up(&m, t->rollout_log_prob, n);
    j.response_mask = twin_up(&m, t->mask, n);
    j.by_token = strcmp(cfg->rollout_is, "token") == 0;
    j.mean = strcmp(cfg->rollout_is, "geometric") == 0;
    j.mask = strcmp(cfg->rollout_is_mode, "mask") == 0;
    j.upper = cfg->rollout_is_threshold;
    j.lower = ares_is_null_f64(cfg->rollout_is_threshold_lower) ? 1 / j.upper
                                                                : cfg->rollout_is_threshold_lower;
    j.weight = twin_take<float>(&m, n);
    j.partial = twin_take<double>(&m, (int64_t)partial.size());
    j.fault = twin_up(&m, (const unsigned long long *)&fault, 1);
    if (!m.c) return twin_close(&m);
    twin_begin(&m);
    cuda_launch(m.c, "algo: rollout_is", rollout_weights_rows, blocks, TWIN_THREADS, 0, j);
    twin_end(&m);
    if (!twin_down(&m, &fault, j.fault, 1)) return twin_close(&m);
    if (fault != TWIN_NO_FAULT) return TWIN_FAULT;
    twin_down(&m, t->weight, j.weight, n);
    twin_down(&m, partial.data(), j.partial, (int64_t)partial.size());
    int rc = twin_close(&m);
    for (size_t i = 0; rc == ARES_OK && t->sums && i < partial.size(); i += 3) {
        t->sums->weight += partial[i];
        t->sums->weight_cut += partial[i + 1];
        t->sums->weight_tokens += partial[i + 2];
    }
    return rc;
}
