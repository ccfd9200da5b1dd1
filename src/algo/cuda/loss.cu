/*
 * The loss pass of ares_loss_args and its terms, in one launch: a token a thread where the formula
 * needs the token alone, a row a block where it needs the row. Each thread keeps its own sums,
 * which meet in one tree a block; blocks are added on the host, in order. Counts of bins are
 * integers, so their atomic additions have no order to lose; lanes of equal bins add once.
 *
 * Derivatives are added to what d_log_prob holds in the order of the CPU: the policy's, then the
 * KL's.
 */
#include "twin.cuh"

#include <math.h>
#include <string.h>

#include <vector>

#include "loss/cispo.h"
#include "loss/cov.h"
#include "loss/gmpo.h"
#include "loss/gspo.h"
#include "loss/is.h"
#include "loss/kl.h"
#include "loss/ppo.h"
#include "loss/sapo.h"
#include "loss/value_loss.h"

/* Members of ares_loss_sums that a pass adds up. */
/* clang-format off */
#define LOSS_SUMS(X) \
    X(loss) X(kl) X(kl_plain) X(kl_tokens) X(kl_clamped) X(entropy) X(neg_log_prob) X(tokens) \
    X(clip_high) X(clip_low) X(neg_log_ratio) X(k2) X(k3) X(ratio) X(ratio_clipped) X(ratio_off) \
    X(loss_abs) X(saturated) X(entropy_right) X(tokens_right) X(entropy_wrong) X(tokens_wrong)
/* clang-format on */
#define NUMBER(name) SUM_##name,
enum { LOSS_SUMS(NUMBER) SUM_COUNT, SUM_MIN = SUM_COUNT, SUM_MAX, SUM_WIDTH };
#undef NUMBER

typedef struct loss_job {
    int formula, kl_value, kl_derivative;
    bool terms;
    int64_t n, rows;
    const int64_t *start; /* [rows + 1] of the arrays; NULL: one row */
    const float *log_prob, *old_log_prob, *advantage, *weight, *is_weight, *entropy, *ref,
        *kl_weight, *full;
    const uint8_t *mask, *chosen, *right; /* right: by row, 2 is unknown */
    float *d_log_prob, *d_entropy, *kl_out, *d_full;
    double low, high, dual, log_low, log_high, tau_positive, tau_negative, ppo_kl_coef,
        entropy_coeff, kl_coef;
    double *partial; /* [blocks][SUM_WIDTH] */
    unsigned long long *bins, *fault;
} loss_job;

typedef struct tally {
    double v[SUM_COUNT], low, high;
} tally;

static __device__ double kl_of(int kl, double x)
{
    return kl == ARES_TWIN_K1    ? ares_kl_k1(x)
           : kl == ARES_TWIN_ABS ? ares_kl_abs(x)
           : kl == ARES_TWIN_K2  ? ares_kl_k2(x)
                                 : ares_kl_k3(x);
}
static __device__ double kl_derivative_of(int kl, double x)
{
    return kl == ARES_TWIN_K1    ? ares_kl_k1_derivative(x)
           : kl == ARES_TWIN_ABS ? ares_kl_abs_derivative(x)
           : kl == ARES_TWIN_K2  ? ares_kl_k2_derivative(x)
                                 : ares_kl_k3_derivative(x);
}

static __device__ double log_ratio_at(const loss_job &j, int64_t t)
{
    return (double)j.log_prob[t] - (double)j.old_log_prob[t];
}
static __device__ double weight_at(const loss_job &j, int64_t t)
{
    double w = (double)j.weight[t];
    return j.is_weight ? w * (double)j.is_weight[t] : w;
}

/* Whether token t counts; a place that loss_check would refuse is noted, and does not. */
static __device__ bool counts(const loss_job &j, int64_t t)
{
    if (j.mask[t] == 0) return false;
    bool good = j.mask[t] == 1;
    if (j.formula != ARES_TWIN_NO_LOSS)
        good = good && twin_finite((double)j.log_prob[t]) &&
               twin_finite((double)j.old_log_prob[t]) && twin_finite((double)j.advantage[t]) &&
               twin_finite((double)j.weight[t]) &&
               (!j.is_weight || twin_finite((double)j.is_weight[t]));
    if (!good) twin_fault(j.fault, t);
    return good;
}

/* As loss_see of the CPU's, without the bin. */
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
    s->v[SUM_ratio_clipped] += ares_loss_clamp(e.ratio, j.low, j.high);
    s->v[SUM_ratio_off] += e.ratio < 1 ? 1 - e.ratio : e.ratio - 1;
    s->v[SUM_loss_abs] += e.loss < 0 ? -e.loss : e.loss;
    s->v[SUM_saturated] += ares_loss_beyond(log_ratio);
    s->low = e.ratio < s->low ? e.ratio : s->low;
    s->high = e.ratio > s->high ? e.ratio : s->high;
}
/* All lanes of the warp call it; those that do not count are outside every bin. */
static __device__ void see_bin(unsigned *bins, bool active, double log_ratio)
{
    double x = ares_loss_bound(log_ratio);
    int bin = x < -2 ? 0 : (int)((x + 2) * 16);
    bin = bin < 0 ? 0 : bin >= ARES_LOSS_BINS ? ARES_LOSS_BINS - 1 : bin;
    unsigned same = __match_any_sync(TWIN_ALL, active ? bin : ARES_LOSS_BINS);
    if (active && (same & ((1u << (threadIdx.x % 32)) - 1)) == 0)
        atomicAdd(&bins[bin], (unsigned)__popc(same));
}

/* The row of the arrays that token t belongs to. */
static __device__ int64_t row_of(const loss_job &j, int64_t t)
{
    /* the last row that starts at or before t: empty ones start there too, before it */
    int64_t low = 0, high = j.rows - 1;
    while (low < high) {
        int64_t mid = low + (high - low + 1) / 2;
        if (j.start[mid] <= t) low = mid;
        else high = mid - 1;
    }
    return low;
}

/* ares_loss_terms of one token that counts. */
static __device__ void terms(const loss_job &j, int64_t t, tally *s)
{
    double w = (double)j.weight[t];
    s->v[SUM_neg_log_prob] -= w * (double)j.log_prob[t];
    if (j.ref || j.full) {
        double scale = j.kl_weight ? (double)j.kl_weight[t] : 1, x = 0, value;
        if (j.full) value = (double)j.full[t];
        else {
            x = (double)j.log_prob[t] - (double)j.ref[t];
            value = kl_of(j.kl_value, x);
        }
        if (!twin_finite(value) || !twin_finite(scale)) twin_fault(j.fault, t);
        s->v[SUM_kl] += w * scale * value;
        s->v[SUM_kl_plain] += w * value;
        s->v[SUM_kl_tokens] += 1;
        if (!j.full && j.kl_value == ARES_TWIN_K3) s->v[SUM_kl_clamped] += ares_kl_k3_clamped(x);
        if (j.kl_out) j.kl_out[t] = (float)value;
        if (!j.full)
            j.d_log_prob[t] +=
                (float)(w * j.kl_coef * scale * kl_derivative_of(j.kl_derivative, x));
        else if (j.d_full) j.d_full[t] += (float)(w * j.kl_coef * scale);
    }
    if (j.entropy) {
        double entropy = (double)j.entropy[t];
        int right = j.right ? j.right[row_of(j, t)] : 2;
        if (!twin_finite(entropy)) twin_fault(j.fault, t);
        s->v[SUM_entropy] += w * entropy;
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
/* The block's sums and bins, out. */
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
        atomicAdd(&j.bins[threadIdx.x], (unsigned long long)bins[threadIdx.x]);
}
static __device__ void bins_new(unsigned *bins)
{
    if (threadIdx.x < ARES_LOSS_BINS) bins[threadIdx.x] = 0;
    __syncthreads();
}

/* ------------------------------------------------------------------ a token a thread */

static __device__ ares_token_term term_of(const loss_job &j, int64_t t, double log_ratio)
{
    double advantage = (double)j.advantage[t];
    if (j.formula == ARES_TWIN_PPO)
        return ares_ppo_token(log_ratio, advantage, j.low, j.high, j.dual);
    if (j.formula == ARES_TWIN_CISPO)
        return ares_cispo_token((double)j.log_prob[t], log_ratio, advantage, j.low, j.high);
    if (j.formula == ARES_TWIN_SAPO)
        return ares_sapo_token(log_ratio, advantage, j.tau_positive, j.tau_negative);
    if (j.formula == ARES_TWIN_KL_COV)
        return ares_kl_cov_token(log_ratio, advantage, j.chosen[t], j.ppo_kl_coef);
    /* clip_cov */
    ares_token_term e = ares_ppo_token(log_ratio, advantage, j.low, j.high, INFINITY);
    e.clip_low = e.clip_high;
    e.clip_high = j.chosen[t];
    if (j.chosen[t]) e.loss = e.gradient = 0;
    return e;
}

static __global__ void __launch_bounds__(TWIN_THREADS) loss_tokens(loss_job j)
{
    __shared__ unsigned bins[ARES_LOSS_BINS];
    tally s = tally_new();
    bins_new(bins);
    for (int64_t base = (int64_t)blockIdx.x * TWIN_THREADS; base < j.n;
         base += (int64_t)gridDim.x * TWIN_THREADS) {
        int64_t t = base + threadIdx.x;
        bool active = t < j.n && counts(j, t);
        double log_ratio = active && j.formula != ARES_TWIN_NO_LOSS ? log_ratio_at(j, t) : 0;
        if (j.formula != ARES_TWIN_NO_LOSS) see_bin(bins, active, log_ratio);
        if (!active) continue; /* the lanes meet again at the loop's next step */
        if (j.formula != ARES_TWIN_NO_LOSS) {
            double w = weight_at(j, t);
            ares_token_term e = term_of(j, t, log_ratio);
            see(j, &s, log_ratio, e.ratio, e, w);
            j.d_log_prob[t] += (float)(e.gradient * w);
        }
        if (j.terms) terms(j, t, &s);
    }
    __syncthreads();
    tally_close(j, s, bins);
}

/* ------------------------------------------------------------------ a row a block */

typedef struct row_sums {
    double tokens, log_ratio, advantage, weight, log_is;
} row_sums;

static __device__ row_sums sums_of_row(const loss_job &j, int64_t from, int64_t to)
{
    row_sums r = { 0, 0, 0, 0, 0 };
    bool geometric = j.formula == ARES_TWIN_GMPO;
    for (int64_t t = from + threadIdx.x; t < to; t += TWIN_THREADS) {
        if (!counts(j, t)) continue;
        double x = log_ratio_at(j, t), advantage = (double)j.advantage[t];
        r.tokens += 1;
        r.log_ratio +=
            geometric ? ares_gmpo_token(x, advantage, j.log_low, j.log_high).log_ratio : x;
        r.advantage += advantage;
        r.weight += (double)j.weight[t];
        if (geometric && j.is_weight) r.log_is += ares_loss_log((double)j.is_weight[t] + 1e-10);
    }
    r.tokens = twin_block_sum(r.tokens);
    r.log_ratio = twin_block_sum(r.log_ratio);
    if (!geometric) return r;
    r.advantage = twin_block_sum(r.advantage);
    r.weight = twin_block_sum(r.weight);
    r.log_is = twin_block_sum(r.log_is);
    return r;
}

/* Sums of the row's tokens; returns gspo's sum of weighted gradients of this thread. */
static __device__ double see_row(const loss_job &j, int64_t from, int64_t to, const row_sums &r,
                                 const ares_token_term &whole, tally *s, unsigned *bins)
{
    double gradient = 0;
    for (int64_t base = from; base < to; base += TWIN_THREADS) {
        int64_t t = base + threadIdx.x;
        bool active = t < to && counts(j, t);
        double x = active ? log_ratio_at(j, t) : 0;
        see_bin(bins, active, x);
        if (!active) continue;
        double ratio = ares_loss_exp(ares_loss_bound(x)), advantage = (double)j.advantage[t];
        if (j.formula == ARES_TWIN_GMPO) {
            ares_gmpo_term token = ares_gmpo_token(x, advantage, j.log_low, j.log_high);
            ares_token_term e = { whole.loss, 0, whole.ratio, token.clip_high, token.clip_low };
            see(j, s, x, ratio, e, r.weight / r.tokens);
            if (token.passes) j.d_log_prob[t] += (float)(r.weight * whole.gradient / r.tokens);
        } else {
            double w = weight_at(j, t);
            ares_token_term e =
                ares_gspo_token(r.log_ratio / r.tokens, advantage, j.low, j.high, j.dual);
            see(j, s, x, ratio, e, w);
            gradient += w * e.gradient;
            if (j.formula == ARES_TWIN_GSPO_TOKEN) j.d_log_prob[t] += (float)(w * e.gradient);
        }
    }
    return gradient;
}

static __global__ void __launch_bounds__(TWIN_THREADS) loss_rows(loss_job j)
{
    __shared__ unsigned bins[ARES_LOSS_BINS];
    tally s = tally_new();
    bins_new(bins);
    for (int64_t row = blockIdx.x; row < j.rows; row += gridDim.x) {
        int64_t from = j.start[row], to = j.start[row + 1];
        row_sums r = sums_of_row(j, from, to);
        if (r.tokens == 0) continue; /* the same in every thread */
        ares_token_term whole = { 0, 0, 0, 0, 0 };
        if (j.formula == ARES_TWIN_GMPO) {
            whole = ares_gmpo_row(r.log_ratio / r.tokens, r.advantage / r.tokens);
            if (j.is_weight) r.weight *= ares_loss_exp(r.log_is / r.tokens);
        }
        double gradient = see_row(j, from, to, r, whole, &s, bins);
        if (j.formula == ARES_TWIN_GSPO) gradient = twin_block_sum(gradient);
        for (int64_t t = from + threadIdx.x; t < to; t += TWIN_THREADS) {
            if (j.mask[t] != 1) continue;
            if (j.formula == ARES_TWIN_GSPO) j.d_log_prob[t] += (float)(gradient / r.tokens);
            if (j.terms) terms(j, t, &s);
        }
    }
    __syncthreads();
    tally_close(j, s, bins);
}

/* ------------------------------------------------------------------ the call */

/*
 * Row starts counted from the arrays' first token, and what is known of rows' answers: 1 right, 0
 * wrong, 2 unknown.
 */
static std::vector<int64_t> starts_of(const ares_loss_args *a)
{
    int64_t rows = a->row_start ? a->end - a->row : 1;
    std::vector<int64_t> start((size_t)rows + 1);
    for (int64_t i = 0; i <= rows; i++)
        start[(size_t)i] = a->row_start ? a->row_start[a->row + i] - a->first : i ? a->n : 0;
    return start;
}
static std::vector<uint8_t> right_of(const ares_loss_args *a)
{
    std::vector<uint8_t> right((size_t)(a->end - a->row));
    for (size_t i = 0; i < right.size(); i++) {
        float accuracy = a->samples[(size_t)a->row + i].accuracy;
        right[i] = accuracy != accuracy ? 2 : accuracy > 0.5f;
    }
    return right;
}

static void add_sums(ares_loss_sums *s, const std::vector<double> &partial,
                     const unsigned long long *bins)
{
    for (size_t at = 0; at < partial.size(); at += SUM_WIDTH) {
        const double *p = &partial[at];
#define ADD(name) s->name += p[SUM_##name];
        LOSS_SUMS(ADD)
#undef ADD
        s->ratio_min = p[SUM_MIN] < s->ratio_min ? p[SUM_MIN] : s->ratio_min;
        s->ratio_max = p[SUM_MAX] > s->ratio_max ? p[SUM_MAX] : s->ratio_max;
    }
    for (int i = 0; i < ARES_LOSS_BINS; i++) s->bins[i] += (double)bins[i];
}

int cuda_algo_loss(ares_device *d, const ares_twin_loss *t)
{
    const ares_loss_args *a = t->args;
    const ares_loss_config *cfg = a->cfg;
    const ares_kl_args *k =
        t->terms && t->kl && (t->kl_value == ARES_TWIN_FULL ? t->kl->full : t->kl->ref_log_prob)
            ? t->kl
            : NULL;
    bool by_row = t->formula >= ARES_TWIN_GSPO, full = k && t->kl_value == ARES_TWIN_FULL;
    int64_t n = a->n, rows = a->row_start ? a->end - a->row : 1;
    if (n == 0) return ARES_OK;
    std::vector<int64_t> start = starts_of(a);
    ARES_ASSERT(!by_row || (start[0] == 0 && start[(size_t)rows] == n));
    ARES_ASSERT((t->formula != ARES_TWIN_CLIP_COV && t->formula != ARES_TWIN_KL_COV) || t->chosen);
    unsigned blocks = twin_blocks(by_row ? rows : (n + TWIN_THREADS - 1) / TWIN_THREADS);
    std::vector<double> partial((size_t)blocks * SUM_WIDTH);
    unsigned long long counts[ARES_LOSS_BINS + 1] = {};
    counts[ARES_LOSS_BINS] = TWIN_NO_FAULT;
    twin_room m = twin_open(d,
                            (size_t)n * (13 * sizeof(float) + 2) + (size_t)rows * 9 +
                                partial.size() * sizeof(double) + sizeof counts + sizeof(int64_t),
                            20);
    loss_job j = {};
    bool policy = t->formula != ARES_TWIN_NO_LOSS;
    j.formula = t->formula, j.kl_value = t->kl_value, j.kl_derivative = t->kl_derivative;
    j.terms = t->terms;
    j.n = n, j.rows = rows;
    j.start = twin_up(&m, start.data(), rows + 1);
    j.log_prob = twin_up(&m, a->log_prob, n);
    j.weight = twin_up(&m, a->weight, n);
    j.mask = twin_up(&m, a->mask, n);
    j.d_log_prob = twin_up(&m, (const float *)a->d_log_prob, n);
    if (policy) {
        j.old_log_prob = twin_up(&m, a->old_log_prob, n);
        j.advantage = twin_up(&m, a->advantage, n);
        j.is_weight = twin_up(&m, a->is_weight, n);
        j.chosen = twin_up(&m, t->chosen, n);
    }
    if (t->terms) {
        j.entropy = twin_up(&m, a->entropy, n);
        if (cfg->entropy_coeff != 0) j.d_entropy = twin_up(&m, (const float *)a->d_entropy, n);
        if (a->entropy && a->samples && a->row_start) {
            std::vector<uint8_t> right = right_of(a);
            j.right = twin_up(&m, right.data(), rows);
        }
    }
    if (k) {
        j.kl_weight = twin_up(&m, k->weight, n);
        j.kl_out = twin_up(&m, (const float *)k->out, n);
        if (full)
            j.full = twin_up(&m, k->full, n), j.d_full = twin_up(&m, (const float *)k->d_full, n);
        else j.ref = twin_up(&m, k->ref_log_prob, n);
    }
    j.low = 1 - cfg->clip_ratio_low, j.high = 1 + cfg->clip_ratio_high, j.dual = t->dual;
    j.log_low = cfg->clip_ratio_low, j.log_high = cfg->clip_ratio_high;
    j.tau_positive = cfg->tau_positive, j.tau_negative = cfg->tau_negative,
    j.ppo_kl_coef = cfg->ppo_kl_coef;
    j.entropy_coeff = cfg->entropy_coeff, j.kl_coef = k ? k->coef : 0;
    j.partial = twin_take<double>(&m, (int64_t)partial.size());
    j.bins = twin_up(&m, counts, ARES_LOSS_BINS + 1);
    j.fault = j.bins + ARES_LOSS_BINS;
    if (!m.c) return twin_close(&m);
    twin_begin(&m);
    cuda_launch(m.c, "algo: loss", by_row ? loss_rows : loss_tokens, blocks, TWIN_THREADS, 0, j);
    twin_end(&m);
    if (!twin_down(&m, counts, j.bins, ARES_LOSS_BINS + 1) ||
        !twin_down(&m, partial.data(), j.partial, (int64_t)partial.size()))
        return twin_close(&m);
    if (counts[ARES_LOSS_BINS] != TWIN_NO_FAULT) return ARES_TWIN_FAULT;
    twin_down(&m, a->d_log_prob, j.d_log_prob, n);
    if (j.d_entropy) twin_down(&m, a->d_entropy, j.d_entropy, n);
    if (j.kl_out) twin_down(&m, k->out, j.kl_out, n);
    if (j.d_full) twin_down(&m, k->d_full, j.d_full, n);
    int rc = twin_close(&m);
    if (rc == ARES_OK) add_sums(a->sums, partial, counts);
    return rc;
}

/* ------------------------------------------------------------------ the critic's */

static __global__ void __launch_bounds__(TWIN_THREADS)
    value_tokens(int64_t n, const float *value, const float *old_value, const float *target,
                 const float *weight, const uint8_t *mask, double range, float *d_value,
                 double *partial, unsigned long long *fault)
{
    double s[4] = { 0, 0, 0, 0 };
    for (int64_t t = (int64_t)blockIdx.x * TWIN_THREADS + threadIdx.x; t < n;
         t += (int64_t)gridDim.x * TWIN_THREADS) {
        if (!mask[t]) continue;
        double v = (double)value[t], old = (double)old_value[t], r = (double)target[t],
               w = (double)weight[t];
        if (mask[t] != 1 || !twin_finite(v) || !twin_finite(old) || !twin_finite(r) ||
            !twin_finite(w)) {
            twin_fault(fault, t);
            continue;
        }
        ares_token_term e = ares_value_token(v, old, r, range);
        d_value[t] += (float)(w * e.gradient);
        s[0] += w * e.loss;
        s[1] += 1;
        s[2] += e.clip_high;
        s[3] += v;
    }
    for (int i = 0; i < 4; i++) {
        double sum = twin_block_sum(s[i]);
        if (threadIdx.x == 0) partial[(int64_t)blockIdx.x * 4 + i] = sum;
    }
}

int cuda_algo_value(ares_device *d, const ares_value_args *a)
{
    int64_t n = a->n;
    if (n == 0) return ARES_OK;
    unsigned blocks = twin_blocks((n + TWIN_THREADS - 1) / TWIN_THREADS);
    std::vector<double> partial((size_t)blocks * 4);
    unsigned long long fault = TWIN_NO_FAULT;
    twin_room m = twin_open(
        d, (size_t)n * (5 * sizeof(float) + 1) + partial.size() * sizeof(double) + sizeof fault, 8);
    const float *value = twin_up(&m, a->value, n), *old_value = twin_up(&m, a->old_value, n),
                *target = twin_up(&m, a->target, n), *weight = twin_up(&m, a->weight, n);
    const uint8_t *mask = twin_up(&m, a->mask, n);
    float *d_value = twin_up(&m, (const float *)a->d_value, n);
    double *sums = twin_take<double>(&m, (int64_t)partial.size());
    unsigned long long *at_fault = twin_up(&m, (const unsigned long long *)&fault, 1);
    if (!m.c) return twin_close(&m);
    twin_begin(&m);
    cuda_launch(m.c, "algo: value loss", value_tokens, blocks, TWIN_THREADS, 0, n, value, old_value,
                target, weight, mask, a->cliprange_value, d_value, sums, at_fault);
    twin_end(&m);
    if (!twin_down(&m, &fault, at_fault, 1)) return twin_close(&m);
    if (fault != TWIN_NO_FAULT) return ARES_TWIN_FAULT;
    twin_down(&m, partial.data(), sums, (int64_t)partial.size());
    twin_down(&m, a->d_value, d_value, n);
    int rc = twin_close(&m);
    for (size_t i = 0; rc == ARES_OK && i < partial.size(); i += 4) {
        a->sums->loss += partial[i];
        a->sums->tokens += partial[i + 1];
        a->sums->clip += partial[i + 2];
        a->sums->value += partial[i + 3];
    }
    return rc;
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

int cuda_algo_kl(ares_device *d, ares_twin_kl kl, int64_t n, const float *log_prob,
                 const float *ref_log_prob, const uint8_t *mask, float *out)
{
    if (n == 0) return ARES_OK;
    ARES_ASSERT(kl != ARES_TWIN_FULL);
    unsigned long long fault = TWIN_NO_FAULT;
    twin_room m = twin_open(d, (size_t)n * (3 * sizeof(float) + 1) + sizeof fault, 5);
    const float *x = twin_up(&m, log_prob, n), *ref = twin_up(&m, ref_log_prob, n);
    const uint8_t *seen = twin_up(&m, mask, n);
    float *y = twin_take<float>(&m, n);
    unsigned long long *at_fault = twin_up(&m, (const unsigned long long *)&fault, 1);
    if (!m.c) return twin_close(&m);
    twin_begin(&m);
    cuda_launch(m.c, "algo: kl", kl_tokens, twin_blocks((n + TWIN_THREADS - 1) / TWIN_THREADS),
                TWIN_THREADS, 0, (int)kl, n, x, ref, seen, y, at_fault);
    twin_end(&m);
    if (!twin_down(&m, &fault, at_fault, 1)) return twin_close(&m);
    if (fault != TWIN_NO_FAULT) return ARES_TWIN_FAULT;
    twin_down(&m, out, y, n);
    return twin_close(&m);
}

/* ------------------------------------------------------------------ weights of rollout_is */

typedef struct is_job {
    int64_t rows;
    const int64_t *start;
    const float *log_prob, *rollout;
    const uint8_t *hidden; /* the mask */
    bool by_token, mean, mask;
    double lower, upper;
    float *weight;
    double *partial; /* [blocks][3] */
    unsigned long long *fault;
} is_job;

static __global__ void __launch_bounds__(TWIN_THREADS) is_rows(is_job j)
{
    double s[3] = { 0, 0, 0 };
    for (int64_t row = blockIdx.x; row < j.rows; row += gridDim.x) {
        int64_t from = j.start[row], to = j.start[row + 1];
        double sum = 0, n = 0;
        for (int64_t t = from + threadIdx.x; t < to; t += TWIN_THREADS) {
            if (!j.hidden[t]) continue;
            double x = (double)j.log_prob[t] - (double)j.rollout[t];
            if (!twin_finite(x)) twin_fault(j.fault, t);
            sum += x;
            n += 1;
        }
        sum = twin_block_sum(sum);
        n = twin_block_sum(n);
        for (int64_t t = from + threadIdx.x; t < to; t += TWIN_THREADS) {
            if (!j.hidden[t]) {
                j.weight[t] = 0;
                continue;
            }
            double x = j.by_token ? (double)j.log_prob[t] - (double)j.rollout[t]
                       : j.mean   ? sum / n
                                  : sum;
            double w = ares_is_weight(x, j.mask, j.lower, j.upper),
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

int cuda_algo_is_weights(ares_device *d, const ares_twin_is *t)
{
    const ares_loss_config *cfg = t->cfg;
    int64_t rows = t->of.rows, n = rows ? t->of.row_start[rows] : 0;
    if (n == 0) return ARES_OK;
    unsigned blocks = twin_blocks(rows);
    std::vector<double> partial((size_t)blocks * 3);
    unsigned long long fault = TWIN_NO_FAULT;
    twin_room m =
        twin_open(d,
                  (size_t)n * (3 * sizeof(float) + 1) + (size_t)(rows + 1) * sizeof(int64_t) +
                      partial.size() * sizeof(double) + sizeof fault,
                  7);
    is_job j = {};
    j.rows = rows;
    j.start = twin_up(&m, t->of.row_start, rows + 1);
    j.log_prob = twin_up(&m, t->log_prob, n);
    j.rollout = twin_up(&m, t->rollout_log_prob, n);
    j.hidden = twin_up(&m, t->mask, n);
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
    cuda_launch(m.c, "algo: rollout_is", is_rows, blocks, TWIN_THREADS, 0, j);
    twin_end(&m);
    if (!twin_down(&m, &fault, j.fault, 1)) return twin_close(&m);
    if (fault != TWIN_NO_FAULT) return ARES_TWIN_FAULT;
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
