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
#include <string.h>

#include <vector>

typedef struct row_in {
    float inv_temperature, top_p;
    bool greedy;
    int32_t top_k, forced;
    uint32_t key[2];
} row_in;
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

/* Not below gumbel(w): from the exponent of u, at a margin. */
static __device__ float gumbel_bound(uint32_t w)
{
    float u = fmaf((float)(w >> 16), 65536.0f, (float)(w & 0xffff)) + 0.5f;
    int exponent = (int)(__float_as_uint(u) >> 23) - 127 - 32;
    return fmaf((float)exponent, -0.69314718f, 0.01f);
}

/* The best of all threads. */
static __device__ best best_of_block(best b)
{
    __shared__ best tree[VOCAB_THREADS];
    __syncthreads();
    tree[threadIdx.x] = b;
    for (int half = VOCAB_THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            tree[threadIdx.x] = better(tree[threadIdx.x], tree[threadIdx.x + half]);
    }
    __syncthreads();
    return tree[0];
}

/* b, or one of n <= 4 tokens from `first` on that survive c. The logarithms of most are not taken.
 */
static __device__ best pick_of(const row_view &r, const row_in &in, cut c, int32_t first, int n,
                               best b)
{
    uint32_t word[4];
    if (!in.greedy) philox((uint32_t)first / 4, in.key, word);
    for (int i = 0; i < n; i++) {
        float z = in.greedy ? r.logits[first + i] : logit_at(r, first + i);
        if (!survives(z, first + i, c)) continue; /* NaN never does */
        if (in.greedy) b = better(b, { z, first + i });
        else if (b.token < 0 || !(z + gumbel_bound(word[i]) < b.key))
            b = better(b, { z + gumbel(word[i]), first + i });
    }
    return b;
}
static __device__ best pick(const row_view &r, const row_in &in, cut c)
{
    best b = { -INFINITY, -1 };
    for (int32_t i = 4 * (int32_t)threadIdx.x; i < r.vocab; i += 4 * VOCAB_THREADS)
        b = pick_of(r, in, c, i, ARES_MIN(r.vocab - i, 4), b);
    return best_of_block(b);
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

static __device__ row_in row_of(const ares_sample_args &a, int64_t r)
{
    row_in in = { 1.0f, 1.0f, !(a.temperature[r] > 0.0f), 0, -1, { 0, 0 } };
    if (!in.greedy) in.inv_temperature = 1.0f / a.temperature[r]; /* ares_inv_temperature */
    if (a.top_p) in.top_p = a.top_p[r];
    if (a.top_k) in.top_k = a.top_k[r];
    if (a.forced) in.forced = a.forced[r];
    /* no key is needed where every row is greedy or forced */
    if (a.key) in.key[0] = a.key[r].k[0], in.key[1] = a.key[r].k[1];
    return in;
}

/*
 * Rows from `first` on, whose logits begin at `logits`; all arrays of a lie on the device. One pass
 * over a row gives its statistics at both temperatures and, where nothing is cut, the token.
 */
static __global__ void __launch_bounds__(VOCAB_THREADS)
    sample_rows(ares_sample_args a, const float *logits, int32_t first, likely *likely_out)
{
    __shared__ unsigned long long bin[256];
    __shared__ uint32_t found[2];
    int64_t row = first + (int64_t)blockIdx.x;
    const float *z = logits + (int64_t)blockIdx.x * a.vocab;
    row_in own = row_of(a, row);
    bool two = (a.log_prob_1 || a.n_likely) && own.inv_temperature != 1.0f;
    bool draws = own.forced < 0,
         cuts =
             draws && !own.greedy && (own.top_p < 1.0f || (own.top_k > 0 && own.top_k < a.vocab));
    row_view r = { z, a.vocab, own.inv_temperature, 0.0f, bin, found };
    vocab_sums s = vocab_none(), s_1 = s;
    best b = { -INFINITY, -1 };
    for (int32_t i = 4 * (int32_t)threadIdx.x; i < a.vocab; i += 4 * VOCAB_THREADS) {
        int n = ARES_MIN(a.vocab - i, 4);
        s = vocab_added(s, z + i, n, own.inv_temperature);
        if (two) s_1 = vocab_added(s_1, z + i, n, 1.0f);
        if (draws && !cuts) b = pick_of(r, own, { 0, INT_MAX }, i, n, b);
    }
    vocab_total t = vocab_block_total(s), one = two ? vocab_block_total(s_1) : t;
    if (a.n_likely)
        list_likely({ z, a.vocab, 1.0f, one.max, bin, found }, one, a.n_likely,
                    likely_out + row * a.n_likely);
    r.max = t.max;
    int32_t token = !draws ? own.forced
                    : cuts ? pick(r, own, nucleus(r, own)).token
                           : best_of_block(b).token;
    if (threadIdx.x) return;
    float logit = token < 0 ? NAN : z[token]; /* every logit is NaN: the log-prob says so */
    a.token[row] = token < 0 ? 0 : token;
    a.log_prob[row] = vocab_log_prob(t, vocab_scaled(logit, own.inv_temperature));
    a.entropy[row] = t.entropy;
    if (a.log_prob_1)
        a.log_prob_1[row] = vocab_log_prob(one, logit), a.entropy_1[row] = one.entropy;
}

/* Numbers of likely tokens as the caller wants them. */
static __global__ void part_likely(const likely *from, int64_t n, int32_t *token, float *log_prob)
{
    CUDA_EACH(i, n) token[i] = from[i].token, log_prob[i] = from[i].log_prob;
}

/* All arrays of a lie on the device; nothing waits. */
static void sample_on_device(cuda_context *c, ares_dtype act, const ares_sample_args *a)
{
    int32_t most = vocab_rows(a->rows, a->vocab);
    int64_t n_likely = (int64_t)a->rows * a->n_likely;
    likely *found = NULL;
    float *own = NULL;
    if (n_likely) found = (likely *)cuda_scratch(c, CUDA_PARTS, (size_t)n_likely * sizeof *found);
    if (!a->logits)
        own =
            (float *)cuda_scratch(c, CUDA_LOGITS, (size_t)most * (size_t)a->vocab * sizeof(float));
    if ((n_likely && !found) || (!a->logits && !own)) return;
    for (int32_t row = 0; row < a->rows; row += most) {
        int32_t n = ARES_MIN(most, a->rows - row);
        const float *logits = a->logits ? a->logits + (int64_t)row * a->vocab : own;
        if (!a->logits) {
            ares_matrix w = vocab_part(a->w, a->vocab);
            const char *x = (const char *)a->x + row * a->ldx * (int64_t)ares_dtype_bytes(act);
            cuda_product(c, x, a->ldx, &w, n, own, a->vocab, false);
        }
        cuda_launch(c, "sample", sample_rows, (unsigned)n, VOCAB_THREADS, 0, *a, logits, row,
                    found);
    }
    if (n_likely)
        cuda_launch(c, "sample: likely", part_likely, cuda_blocks(n_likely), CUDA_THREADS, 0, found,
                    n_likely, a->likely_token, a->likely_log_prob);
}

/* The same arrays, of which a caller may have some: X(name, numbers of 4 bytes per row). */
#define SAMPLE_INPUTS(X) X(temperature, 1) X(top_p, 1) X(top_k, 1) X(key, 2) X(forced, 1)
#define SAMPLE_OUTPUTS(X) \
    X(token, 1)           \
    X(log_prob, 1)        \
    X(entropy, 1)         \
    X(log_prob_1, 1)      \
    X(entropy_1, 1) X(likely_token, (size_t)a->n_likely) X(likely_log_prob, (size_t)a->n_likely)

void cuda_sample(ares_device *d, const ares_sample_args *a)
{
    cuda_context *c = cuda_enter(d);
    ARES_ASSERT((a->logits || a->vocab <= a->w->n) && !a->log_prob_1 == !a->entropy_1 &&
                a->n_likely >= 0 && a->n_likely <= ARES_LIKELY_MAX);
    if (a->rows == 0) return;
    if (a->on_device) {
        sample_on_device(c, d->k->act, a);
        return;
    }
    size_t row_bytes = 4 * (11 + 2 * (size_t)a->n_likely), rows = (size_t)a->rows, in = 0, at;
    char *device = (char *)cuda_scratch(c, CUDA_ROWS, rows * row_bytes);
    std::vector<char> host(rows * row_bytes);
    ares_sample_args b = *a;
    if (!device) return;
    for (size_t r = 0; a->forced && r < rows; r++) ARES_ASSERT(a->forced[r] < a->vocab);
#define PLACE(name, width)                                     \
    if (a->name && (width)) {                                  \
        *(const void **)&b.name = device + in;                 \
        memcpy(host.data() + in, a->name, rows * (width) * 4); \
        in += rows * (width) * 4;                              \
    }
    SAMPLE_INPUTS(PLACE)
#undef PLACE
    at = in;
#define PLACE(name, width)               \
    if (a->name && (width)) {            \
        *(void **)&b.name = device + at; \
        at += rows * (width) * 4;        \
    }
    SAMPLE_OUTPUTS(PLACE)
#undef PLACE
    cuda_in(c, device, host.data(), in);
    sample_on_device(c, d->k->act, &b);
    if (!cuda_out(c, host.data() + in, device + in, at - in)) return;
    at = in;
#define READ(name, width)                                      \
    if (a->name && (width)) {                                  \
        memcpy(a->name, host.data() + at, rows * (width) * 4); \
        at += rows * (width) * 4;                              \
    }
    SAMPLE_OUTPUTS(READ)
#undef READ
}
