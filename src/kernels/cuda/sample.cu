/*
 * One token per row, by one block per row: statistics, then top-k and top-p where asked, then
 * Gumbel-max over the tokens that are left. Philox, its keys and counters, the Gumbel numbers, the
 * masses and the order of candidates are those of cpu/sample.c. The limit of the tokens that are
 * left (a cut) is found by radix on (logit, token id) instead of selection among gathered
 * candidates, which gives the same set. Atomic additions are only on integers, so their order does
 * not matter.
 */
#include "vocab.cuh"

#include <limits.h>

#include <vector>

typedef struct row_in {
    float inv_temperature, top_p;
    bool greedy;
    int32_t top_k, forced;
    uint32_t key[2];
} row_in;
typedef struct row_out {
    int32_t token;
    float log_prob, entropy, log_prob_1, entropy_1;
} row_out;
typedef struct likely {
    float log_prob; /* at temperature 1; in list_likely first the logit */
    int32_t token;
} likely;

/* ------------------------------------------------------------------ randomness */

/* Words 4 counter to 4 counter + 3 of the row's stream, one per token id (Salmon et al., SC 2011).
 */
static __device__ void philox(uint32_t counter, const uint32_t key[2], uint32_t word[4])
{
    uint32_t c0 = counter, c1 = 0, c2 = 0, c3 = 0, k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uint32_t a_hi = __umulhi(0xD2511F53u, c0), a_lo = 0xD2511F53u * c0;
        uint32_t b_hi = __umulhi(0xCD9E8D57u, c2), b_lo = 0xCD9E8D57u * c2;
        c0 = b_hi ^ c1 ^ k0;
        c2 = a_hi ^ c3 ^ k1;
        c1 = b_lo;
        c3 = a_lo;
    }
    word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
}

/*
 * -log E, with E = -log(1 - u) and u = (w + 1/2) 2^-32, precise for the tiny u that win: see gumbel
 * in cpu/sample.c.
 */
static __device__ float gumbel(uint32_t w)
{
    const float unit = 0x1p-32f;
    float u = (fmaf((float)(w >> 16), 65536.0f, (float)(w & 0xffff)) + 0.5f) * unit;
    uint32_t x = ~w;
    float rest = (fmaf((float)(x >> 16), 65536.0f, (float)(x & 0xffff)) + 0.5f) * unit;
    float y = __fsub_rn(1.0f, u), gap = __fsub_rn(1.0f, y), e;
    if (u > 0.5f) e = -logf(rest);
    else e = gap == 0.0f ? u : -logf(y) * (u / gap);
    return -logf(e);
}

/* ------------------------------------------------------------------ cuts */

/*
 * The tokens of a row that are left: those with logits above z, and of those with logit z the ids
 * up to `id`. place: z as an integer in the order of floats.
 */
typedef struct cut {
    uint32_t place;
    int32_t id;
} cut;

static __device__ uint32_t place_of(float z) /* ascending; z not NaN */
{
    uint32_t u = __float_as_uint(z + 0.0f); /* -0 stands with 0 */
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}
static __device__ float at_place(uint32_t place)
{
    return __uint_as_float(place & 0x80000000u ? place & 0x7fffffffu : ~place);
}
static __device__ bool survives(float z, int32_t id, cut c)
{
    if (z != z) return false;
    uint32_t place = place_of(z);
    return place > c.place || (place == c.place && id <= c.id);
}

/* floor(e 2^40), e = exp(z - max), in two exact steps of 2^20 */
static __device__ unsigned long long mass_of(float z, float max)
{
    float scaled = __fmul_rn(expf(__fsub_rn(z, max)), 0x1p20f), high = truncf(scaled);
    return ((unsigned long long)high << 20) +
           (unsigned long long)__fmul_rn(__fsub_rn(scaled, high), 0x1p20f);
}

/* A row of logits at its temperature, and the block's shared memory for cuts. */
typedef struct row_view {
    const float *logits;
    int32_t vocab;
    float inv_temperature, max;
    unsigned long long *bin; /* [256] */
    uint32_t *found;         /* [2] */
} row_view;
static __device__ float logit_at(const row_view &r, int32_t i)
{
    return vocab_scaled(r.logits[i], r.inv_temperature);
}

static __device__ unsigned long long mass_left(const row_view &r, cut c)
{
    unsigned long long mass = 0;
    __syncthreads();
    if (threadIdx.x == 0) r.bin[0] = 0;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < r.vocab; i += VOCAB_THREADS) {
        float z = logit_at(r, i);
        if (survives(z, i, c)) mass += mass_of(z, r.max);
    }
    atomicAdd(&r.bin[0], mass);
    __syncthreads();
    return r.bin[0];
}

/*
 * Reduces c to the highest tokens, as few as have weights (masses, or 1 each with `count`) that sum
 * to `need`; c itself where all of them do not.
 */
static __device__ cut cut_to(const row_view &r, cut c, bool count, unsigned long long need)
{
    uint32_t place = 0, known = 0;
    /* finds the place of the last token that is needed, byte by byte from the highest */
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        if (threadIdx.x < 256) r.bin[threadIdx.x] = 0;
        __syncthreads();
        for (int32_t i = threadIdx.x; i < r.vocab; i += VOCAB_THREADS) {
            float z = logit_at(r, i);
            if (!survives(z, i, c) || (place_of(z) & known) != place) continue;
            atomicAdd(&r.bin[place_of(z) >> shift & 255], count ? 1ull : mass_of(z, r.max));
        }
        __syncthreads();
        /* every thread reads the same bins: no more barriers, and need stays in a register */
        int b = 255;
        while (b >= 0 && r.bin[b] < need) need -= r.bin[b--];
        if (b < 0) return c;
        place |= (uint32_t)b << shift;
        known |= 255u << shift;
    }
    /* of the tokens at this place, the lowest ids */
    unsigned long long each = count ? 1ull : mass_of(at_place(place), r.max);
    unsigned long long wanted = each ? (need + each - 1) / each : 1, seen = 0;
    cut out = { place, place == c.place ? c.id : INT_MAX };
    for (int32_t first = 0; first < r.vocab; first += VOCAB_THREADS) {
        int32_t i = first + (int32_t)threadIdx.x;
        bool tie =
            i < r.vocab && survives(logit_at(r, i), i, c) && place_of(logit_at(r, i)) == place;
        unsigned long long here = (unsigned long long)__syncthreads_count(tie);
        if (seen + here >= wanted) { /* the last is among these: one thread counts on */
            if (threadIdx.x == 0) {
                for (i = first; seen < wanted; i++)
                    if (survives(logit_at(r, i), i, c) && place_of(logit_at(r, i)) == place) seen++;
                r.found[0] = (uint32_t)(i - 1);
            }
            __syncthreads();
            out.id = (int32_t)r.found[0];
            return out;
        }
        seen += here;
    }
    return out;
}

static __device__ unsigned long long need_of(float top_p, unsigned long long total)
{
    double need = ceil((double)top_p * (double)total);
    return need < 1.0 ? 1 : need >= (double)total ? total : (unsigned long long)need;
}

/* Top-k first, then top-p of the mass that it leaves. */
static __device__ cut nucleus(const row_view &r, const row_in &in)
{
    cut c = { 0, INT_MAX };
    if (in.top_k > 0 && in.top_k < r.vocab) c = cut_to(r, c, true, (unsigned long long)in.top_k);
    if (in.top_p < 1.0f) c = cut_to(r, c, false, need_of(in.top_p, mass_left(r, c)));
    return c;
}

/* ------------------------------------------------------------------ rows */

typedef struct best {
    float key;
    int32_t token; /* -1: none */
} best;
static __device__ best better(best a, best b)
{
    bool second =
        b.token >= 0 && (a.token < 0 || b.key > a.key || (b.key == a.key && b.token < a.token));
    return second ? b : a;
}

static __device__ best pick(const row_view &r, const row_in &in, cut c, bool greedy)
{
    __shared__ best tree[VOCAB_THREADS];
    best b = { -INFINITY, -1 };
    for (int32_t first = 4 * (int32_t)threadIdx.x; first < r.vocab; first += 4 * VOCAB_THREADS) {
        uint32_t word[4];
        if (!greedy) philox((uint32_t)first / 4, in.key, word);
        for (int32_t i = first; i < first + 4 && i < r.vocab; i++) {
            float z = greedy ? r.logits[i] : logit_at(r, i);
            if (!survives(z, i, c)) continue; /* NaN never does */
            b = better(b, { greedy ? z : z + gumbel(word[i - first]), i });
        }
    }
    tree[threadIdx.x] = b;
    for (int half = VOCAB_THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            tree[threadIdx.x] = better(tree[threadIdx.x], tree[threadIdx.x + half]);
    }
    __syncthreads();
    return tree[0];
}

/*
 * The n most likely tokens: a cut to n collects them in any order, then each is written at the
 * index that the number of tokens above it gives.
 */
static __device__ void list_likely(const row_view &r, const vocab_total &one, int32_t n,
                                   likely *out)
{
    __shared__ likely found[ARES_LIKELY_MAX];
    __shared__ int count;
    /* a logit of -inf is no token */
    cut c = cut_to(r, { place_of(-INFINITY), -1 }, true, (unsigned long long)n);
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < r.vocab; i += VOCAB_THREADS)
        if (survives(r.logits[i], i, c)) found[atomicAdd(&count, 1)] = { r.logits[i], i };
    __syncthreads();
    if (threadIdx.x >= n) return;
    int32_t at = (int32_t)threadIdx.x;
    if (at >= count) out[at] = { -INFINITY, -1 };
    else {
        likely own = found[at];
        int32_t above = 0;
        for (int32_t i = 0; i < count; i++)
            above += found[i].log_prob > own.log_prob ||
                     (found[i].log_prob == own.log_prob && found[i].token < own.token);
        out[above] = { vocab_log_prob(one, own.log_prob), own.token };
    }
}

static __global__ void __launch_bounds__(VOCAB_THREADS)
    sample_rows(const float *logits, int32_t vocab, const row_in *in, bool want_1, int32_t n_likely,
                row_out *out, likely *likely_out)
{
    __shared__ unsigned long long bin[256];
    __shared__ uint32_t found[2];
    int64_t row = blockIdx.x;
    const float *z = logits + row * vocab;
    row_in own = in[row];
    bool greedy = own.greedy;
    float inv_temperature = own.inv_temperature;
    vocab_total t = vocab_total_of(z, vocab, inv_temperature), one = t;
    if ((want_1 || n_likely) && inv_temperature != 1.0f) one = vocab_total_of(z, vocab, 1.0f);
    if (n_likely)
        list_likely({ z, vocab, 1.0f, one.max, bin, found }, one, n_likely,
                    likely_out + row * n_likely);
    int32_t token = own.forced;
    if (token < 0) {
        row_view r = { z, vocab, inv_temperature, t.max, bin, found };
        cut all = { 0, INT_MAX };
        token = pick(r, own, greedy ? all : nucleus(r, own), greedy).token;
    }
    if (threadIdx.x) return;
    float logit = token < 0 ? NAN : z[token]; /* every logit is NaN: the log-prob says so */
    out[row] = { token < 0 ? 0 : token, vocab_log_prob(t, vocab_scaled(logit, inv_temperature)),
                 t.entropy, vocab_log_prob(one, logit), one.entropy };
}

static row_in row_of(const ares_sample_args *a, int32_t r)
{
    /* no key is needed where every row is greedy or forced */
    ares_rng_key key = a->key ? a->key[r] : ares_rng_key{};
    return { ares_inv_temperature(a->temperature[r]),
             a->top_p ? a->top_p[r] : 1.0f,
             !(a->temperature[r] > 0.0f),
             a->top_k ? a->top_k[r] : 0,
             a->forced ? a->forced[r] : -1,
             { key.k[0], key.k[1] } };
}

void cuda_sample(ares_device *d, const ares_sample_args *a)
{
    cuda_context *c = cuda_enter(d);
    ARES_ASSERT((a->logits || a->vocab <= a->w->n) && !a->log_prob_1 == !a->entropy_1 &&
                a->n_likely >= 0 && a->n_likely <= ARES_LIKELY_MAX);
    if (a->rows == 0) return;
    size_t rows = (size_t)a->rows, n_likely = rows * (size_t)a->n_likely;
    std::vector<row_in> in(rows);
    std::vector<row_out> out(rows);
    std::vector<likely> most_likely(n_likely);
    for (int32_t r = 0; r < a->rows; r++) {
        in[(size_t)r] = row_of(a, r);
        ARES_ASSERT(in[(size_t)r].forced < a->vocab);
    }
    int32_t most = vocab_rows(a->rows, a->vocab);
    row_out *device_out = (row_out *)cuda_scratch(
        c, CUDA_ROWS, rows * (sizeof(row_in) + sizeof(row_out)) + n_likely * sizeof(likely));
    float *own = NULL;
    if (!a->logits)
        own =
            (float *)cuda_scratch(c, CUDA_LOGITS, (size_t)most * (size_t)a->vocab * sizeof(float));
    if (!device_out || (!a->logits && !own)) return;
    row_in *device_in = (row_in *)(device_out + rows);
    likely *device_likely = (likely *)(device_in + rows);
    cuda_in(c, device_in, in.data(), rows * sizeof(row_in));
    for (int32_t row = 0; row < a->rows; row += most) {
        int32_t n = ARES_MIN(most, a->rows - row);
        const float *logits = a->logits ? a->logits + (int64_t)row * a->vocab : own;
        if (!a->logits) {
            ares_matrix w = vocab_part(a->w, a->vocab);
            cuda_product(c, (const float *)a->x + row * a->ldx, a->ldx, &w, n, own, a->vocab,
                         false);
        }
        cuda_launch(c, "sample", sample_rows, (unsigned)n, VOCAB_THREADS, 0, logits, a->vocab,
                    device_in + row, a->log_prob_1 != NULL, a->n_likely, device_out + row,
                    device_likely + (int64_t)row * a->n_likely);
    }
    if (!cuda_out(c, out.data(), device_out, rows * sizeof(row_out))) return;
    if (n_likely && !cuda_out(c, most_likely.data(), device_likely, n_likely * sizeof(likely)))
        return;
    for (size_t i = 0; i < n_likely; i++) {
        a->likely_token[i] = most_likely[i].token;
        a->likely_log_prob[i] = most_likely[i].log_prob;
    }
    for (int32_t r = 0; r < a->rows; r++) {
        const row_out *o = &out[(size_t)r];
        a->token[r] = o->token;
        a->log_prob[r] = o->log_prob;
        a->entropy[r] = o->entropy;
        if (!a->log_prob_1) continue;
        a->log_prob_1[r] = o->log_prob_1;
        a->entropy_1[r] = o->entropy_1;
    }
}
