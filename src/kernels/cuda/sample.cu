/*
 * One token per row: statistics, then top-k and top-p where asked, then Gumbel-max over the tokens
 * that are left. Philox, its keys and counters, the Gumbel numbers, the masses and the order of
 * candidates are those of cpu/sample.c. Atomic additions are only on integers, so their order does
 * not matter.
 *
 * A row is read once, in chunks (vocab.cuh), for its statistics and, where nothing is cut, its
 * token. For a row that top-k or top-p cuts, or whose most likely tokens are asked for, that read
 * also gives a threshold that every token which may be chosen or listed reaches. A second kernel
 * collects the ids of the tokens that reach it, usually few, and the masses of all tokens where
 * top-p needs their total: masses are relative to the row's maximum, which the first read finds.
 * The last block of the row to end then works on the collected tokens alone.
 */
#include "vocab.cuh"

typedef unsigned long long u64;
typedef struct row_in {
    float inv_temperature, top_p;
    bool greedy;
    int32_t top_k; /* 0: off */
    uint32_t key[2];
} row_in;

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

/* ------------------------------------------------------------------ candidates */

/* z as an integer in the order of floats. */
static __device__ uint32_t place_of(float z) /* ascending; z not NaN */
{
    uint32_t u = __float_as_uint(z + 0.0f); /* -0 stands with 0 */
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}
static __device__ float at_place(uint32_t place)
{
    return __uint_as_float(place & 0x80000000u ? place & 0x7fffffffu : ~place);
}
/* floor(e 2^40), e = exp(z - max), in two exact steps of 2^20 */
static __device__ u64 mass_of(float z, float max)
{
    float scaled = __fmul_rn(expf(__fsub_rn(z, max)), 0x1p20f), high = truncf(scaled);
    return ((u64)high << 20) + (u64)__fmul_rn(__fsub_rn(scaled, high), 0x1p20f);
}

/* Logits z[id[i]], or z[i] where id is NULL, at a temperature. NaN is none, and what is barred. */
typedef struct candidates {
    const float *z;
    const int32_t *id;
    int32_t n;
    float scale, max; /* max: of the row, for masses */
    int32_t n_barred, barred[2];
} candidates;
static __device__ bool bars(int32_t n, const int32_t barred[2], int32_t id)
{
    return (n > 0 && barred[0] == id) || (n > 1 && barred[1] == id);
}
/* Higher for higher logits, and of equal logits for lower ids; 0: none. */
static __device__ u64 key_of(const candidates &c, int32_t i)
{
    int32_t id = c.id ? c.id[i] : i;
    float z = vocab_scaled(c.z[id], c.scale);
    return z != z || bars(c.n_barred, c.barred, id) ? 0 : (u64)place_of(z) << 32 | ~(uint32_t)id;
}
static __device__ int32_t id_of_key(u64 key)
{
    return (int32_t)~(uint32_t)key;
}
static __device__ float logit_of_key(u64 key)
{
    return at_place((uint32_t)(key >> 32));
}
static __device__ u64 mass_of_key(const candidates &c, u64 key)
{
    return mass_of(logit_of_key(key), c.max);
}
/* Every candidate but NaN has this key or a higher one. */
static const u64 LOWEST = 1;

enum { BINS_EACH = 4, BINS = BINS_EACH * VOCAB_THREADS };
typedef struct cut_room {
    u64 bin[BINS], of_thread[VOCAB_THREADS], of_warp[2][VOCAB_THREADS / 32];
} cut_room;

static __device__ u64 warp_sum(u64 v)
{
    return cuda_warp_tree(v, [](u64 a, u64 b) { return a + b; });
}
/* Narrows [*lo, *hi] to the keys that lie in it; false where none does. */
static __device__ bool narrow(const candidates &c, u64 *lo, u64 *hi, cut_room *m)
{
    u64 least = ~(u64)0, most = 0;
    for (int32_t i = (int32_t)threadIdx.x; i < c.n; i += VOCAB_THREADS) {
        u64 key = key_of(c, i);
        if (key < *lo || key > *hi) continue;
        least = ARES_MIN(least, key);
        most = ARES_MAX(most, key);
    }
    for (int step = 16; step; step /= 2) {
        u64 l = __shfl_xor_sync(0xffffffffu, least, step),
            h = __shfl_xor_sync(0xffffffffu, most, step);
        least = ARES_MIN(least, l);
        most = ARES_MAX(most, h);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        m->of_warp[0][threadIdx.x / 32] = least;
        m->of_warp[1][threadIdx.x / 32] = most;
    }
    __syncthreads();
    for (int w = 0; w < VOCAB_THREADS / 32; w++) {
        least = ARES_MIN(least, m->of_warp[0][w]);
        most = ARES_MAX(most, m->of_warp[1][w]);
    }
    *lo = least;
    *hi = most;
    return least <= most;
}
/* The weights (masses, or 1 each) of keys in [lo, hi] by (key - lo) >> shift. */
static __device__ void fill_bins(const candidates &c, u64 lo, u64 hi, int shift, bool mass,
                                 cut_room *m)
{
    for (int i = 0; i < BINS_EACH; i++) m->bin[i * VOCAB_THREADS + threadIdx.x] = 0;
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; i < c.n; i += VOCAB_THREADS) {
        u64 key = key_of(c, i);
        if (key >= lo && key <= hi)
            atomicAdd(&m->bin[key - lo >> shift], mass ? mass_of_key(c, key) : (u64)1);
    }
    __syncthreads();
}
/*
 * The bin at which the weights, added from the highest bin down, reach *need, from which the bins
 * above it are subtracted; -1: all together do not reach it.
 */
static __device__ int bin_of(u64 *need, cut_room *m)
{
    u64 own = 0;
    for (int i = 0; i < BINS_EACH; i++) own += m->bin[BINS_EACH * threadIdx.x + i];
    m->of_thread[threadIdx.x] = own;
    own = warp_sum(own);
    if (threadIdx.x % 32 == 0) m->of_warp[0][threadIdx.x / 32] = own;
    __syncthreads();
    int at = VOCAB_THREADS / 32 - 1;
    while (at >= 0 && m->of_warp[0][at] < *need) *need -= m->of_warp[0][at--];
    if (at < 0) return -1;
    for (at = 32 * at + 31; m->of_thread[at] < *need; at--) *need -= m->of_thread[at];
    for (at = BINS_EACH * at + BINS_EACH - 1; m->bin[at] < *need; at--) *need -= m->bin[at];
    return at;
}
/*
 * Candidates of key `from` or above are taken from the highest down until their weights (masses, or
 * 1 each) reach `need` > 0: returns the key of the last one taken, or `from` where all together do
 * not reach it. Each round counts the remaining range of keys in BINS equal parts and goes on with
 * one of them.
 */
static __device__ u64 cut_of(const candidates &c, u64 from, bool mass, u64 need, cut_room *m)
{
    u64 lo = from, hi = ~(u64)0;
    while (narrow(c, &lo, &hi, m)) {
        int shift = 64 - __clzll((long long)(hi - lo)) - 11; /* BINS = 2^11 */
        if (shift < 0) shift = 0;
        fill_bins(c, lo, hi, shift, mass, m);
        int b = bin_of(&need, m);
        if (b < 0) return from;
        lo += (u64)b << shift;
        if (shift == 0) return lo;
        hi = ARES_MIN(hi, lo + (((u64)1 << shift) - 1));
    }
    return from;
}
static __device__ u64 mass_from(const candidates &c, u64 from, cut_room *m)
{
    u64 mass = 0;
    for (int32_t i = (int32_t)threadIdx.x; i < c.n; i += VOCAB_THREADS) {
        u64 key = key_of(c, i);
        if (key >= from) mass += mass_of_key(c, key);
    }
    mass = warp_sum(mass);
    __syncthreads();
    if (threadIdx.x % 32 == 0) m->of_warp[0][threadIdx.x / 32] = mass;
    __syncthreads();
    mass = 0;
    for (int w = 0; w < VOCAB_THREADS / 32; w++) mass += m->of_warp[0][w];
    return mass;
}

static __device__ u64 need_of(float top_p, u64 total)
{
    double need = ceil((double)top_p * (double)total);
    return need < 1.0 ? 1 : need >= (double)total ? total : (u64)need;
}

/* ------------------------------------------------------------------ the first read */

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

/* An upper bound of gumbel(w), from the exponent of u alone: no logarithm is taken. */
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

/*
 * The best of b and of n <= 4 tokens from `first` on, whose logits are z. Most tokens cannot beat b
 * by their bound, so that few logarithms are taken.
 */
static __device__ best pick_of(const ares_sample_args &a, const float (&z)[4], const row_in &in,
                               int32_t first, int n, best b)
{
    uint32_t word[4];
    if (!in.greedy) philox((uint32_t)first / 4, in.key, word);
    for (int i = 0; i < n; i++) {
        float x = vocab_scaled(z[i], in.inv_temperature);
        if (x != x || bars(a.n_barred, a.barred, first + i)) continue;
        if (in.greedy) b = better(b, { x, first + i });
        else if (b.token < 0 || !(x + gumbel_bound(word[i]) < b.key))
            b = better(b, { x + gumbel(word[i]), first + i });
    }
    return b;
}

static __device__ row_in row_of(const ares_sample_args &a, int64_t r)
{
    row_in in = { 1.0f, 1.0f, !(a.temperature[r] > 0.0f), 0, { 0, 0 } };
    if (in.greedy) return in;
    in.inv_temperature = 1.0f / a.temperature[r]; /* ares_inv_temperature */
    if (a.top_p) in.top_p = a.top_p[r];
    if (a.top_k && a.top_k[r] > 0 && a.top_k[r] < a.vocab) in.top_k = a.top_k[r];
    in.key[0] = a.key[r].k[0], in.key[1] = a.key[r].k[1];
    return in;
}
static __device__ bool cuts(const row_in &in)
{
    return in.top_k || in.top_p < 1.0f;
}

/* What a chunk leaves: sums at the row's temperature and at 1, the best token where nothing cuts.
 */
typedef struct chunk_part {
    vocab_sums sums, sums_1;
    best found;
} chunk_part;
/* What the first kernel leaves to the second. */
typedef struct row_state {
    u64 mass; /* of all tokens, where top-p alone cuts; this and n are 0 at first */
    int32_t n;
    float threshold; /* all tokens in question have logits from it on */
    vocab_total total, total_1;
} row_state;
/* Memory of the rows that are sampled at once. */
typedef struct work {
    row_state *state;
    chunk_part *part; /* [rows][chunks] */
    unsigned *ticket;
    float *most; /* [rows][chunks][VOCAB_THREADS]: the highest logit that a thread has read */
    int32_t *id; /* [rows][vocab] */
    int32_t chunks;
} work;

static __device__ void finish(const ares_sample_args &a, const row_in &in, int64_t row,
                              const float *z, int32_t token, const vocab_total &t,
                              const vocab_total &one)
{
    float logit = token < 0 ? NAN : z[token]; /* every logit is NaN: the log-prob says so */
    a.token[row] = token < 0 ? 0 : token;
    a.log_prob[row] = vocab_log_prob(t, vocab_scaled(logit, in.inv_temperature));
    a.entropy[row] = t.entropy;
    if (a.log_prob_1)
        a.log_prob_1[row] = vocab_log_prob(one, logit), a.entropy_1[row] = one.entropy;
}

/*
 * A logit that all tokens in question reach. For the k highest: the k-th of the highest logits that
 * each thread has read, because at least k tokens reach it. For top-p alone: tokens with
 * probabilities below (1 - top_p) / vocab hold less than 1 - top_p together; half of that allows
 * for rounding.
 */
static __device__ float threshold_of(const row_in &in, const vocab_total &t, const float *most,
                                     int32_t n, int32_t k, int32_t vocab, bool bars_some,
                                     cut_room *m)
{
    float least = INFINITY;
    if (k) {
        u64 key = cut_of({ most, NULL, n, 1.0f, 0.0f, 0, { 0, 0 } }, LOWEST, false, (u64)k, m);
        least = key == LOWEST ? -INFINITY : vocab_scaled(logit_of_key(key), in.inv_temperature);
    }
    if (in.top_p < 1.0f && !in.top_k && bars_some) least = -INFINITY; /* they may hold it all */
    else if (in.top_p < 1.0f && !in.top_k)
        least = fminf(least, t.max + (t.log_sum + logf((1.0f - in.top_p) * 0.5f / (float)vocab)));
    return least > -INFINITY ? least : -INFINITY; /* NaN, too */
}

/*
 * Rows from `first` on, whose logits begin at `logits`: statistics at both temperatures and, where
 * nothing cuts, the token.
 */
static __global__ void __launch_bounds__(VOCAB_THREADS)
    sample_chunks(ares_sample_args a, const float *logits, int32_t first, work w)
{
    __shared__ cut_room room;
    vocab_place at = vocab_place_of(a.vocab, w.chunks);
    const float *z = logits + at.row * a.vocab;
    row_in in = row_of(a, first + at.row);
    bool two = (a.log_prob_1 || a.n_likely) && in.inv_temperature != 1.0f, draws = !cuts(in);
    int32_t k = ARES_MAX(in.top_k ? in.top_k + a.n_barred : 0, a.n_likely),
            threads = w.chunks * VOCAB_THREADS;
    vocab_sums s = vocab_none(), s_1 = s;
    best b = { -INFINITY, -1 };
    float most = -INFINITY;
    float x[VOCAB_FOURS][4];
    vocab_read(z, at, a.vocab, x);
    for (int f = 0; f < VOCAB_FOURS; f++) {
        int32_t i = vocab_first(at, f);
        if (i >= at.to) break;
        s = vocab_added(s, x[f], in.inv_temperature);
        if (two) s_1 = vocab_added(s_1, x[f], 1.0f);
        if (draws) b = pick_of(a, x[f], in, i, ARES_MIN(at.to - i, 4), b);
        for (int j = 0; k && j < 4; j++) most = fmaxf(most, x[f][j]);
    }
    if (k) w.most[at.row * threads + at.chunk * VOCAB_THREADS + threadIdx.x] = most;
    chunk_part own = { vocab_block_merged(s), s_1, b }, *part = w.part + at.row * w.chunks;
    if (two) own.sums_1 = vocab_block_merged(s_1);
    if (draws) own.found = best_of_block(b);
    if (threadIdx.x == 0) part[at.chunk] = own;
    if (!cuda_is_last(&w.ticket[at.row], (unsigned)w.chunks)) return;
    own = part[0];
    for (int32_t c = 1; c < w.chunks; c++) {
        own.sums = vocab_merged(own.sums, part[c].sums);
        if (two) own.sums_1 = vocab_merged(own.sums_1, part[c].sums_1);
        own.found = better(own.found, part[c].found);
    }
    vocab_total t = vocab_total_of(own.sums), one = two ? vocab_total_of(own.sums_1) : t;
    if (!draws || k) {
        float threshold = threshold_of(in, t, w.most + at.row * threads, threads, k, a.vocab,
                                       a.n_barred > 0, &room);
        if (threadIdx.x == 0) w.state[at.row] = { 0, 0, threshold, t, one };
    }
    if (draws && threadIdx.x == 0) finish(a, in, first + at.row, z, own.found.token, t, one);
}

/* ------------------------------------------------------------------ the second */

/* The ids of the chunk's tokens in question, in any order, and where asked the mass of all. */
static __device__ void collect(const ares_sample_args &a, const float *z, const row_in &in,
                               const vocab_place &at, bool masses, row_state *state, int32_t *id)
{
    u64 mass = 0;
    float threshold = state->threshold, max = state->total.max;
    int32_t lane = (int32_t)threadIdx.x % 32;
    float z4[VOCAB_FOURS][4];
    vocab_read(z, at, a.vocab, z4);
    for (int f = 0; f < VOCAB_FOURS; f++)
        for (int j = 0; j < 4; j++) {
            int32_t i = vocab_first(at, f) + j;
            float x = i < at.to ? vocab_scaled(z4[f][j], in.inv_temperature) : NAN;
            if (masses && x == x && !bars(a.n_barred, a.barred, i)) mass += mass_of(x, max);
            unsigned votes = __ballot_sync(0xffffffffu, x >= threshold);
            if (!votes) continue;
            int32_t place = 0;
            if (lane == 0) place = atomicAdd(&state->n, __popc(votes));
            place = __shfl_sync(0xffffffffu, place, 0) + __popc(votes & ((1u << lane) - 1));
            if (x >= threshold) id[place] = i;
        }
    mass = warp_sum(mass);
    if (masses && lane == 0 && mass) atomicAdd(&state->mass, mass);
}

/* Top-k first, then top-p of the mass that it leaves. */
static __device__ u64 nucleus(const candidates &c, const row_in &in, u64 mass, cut_room *m)
{
    u64 from = LOWEST;
    if (in.top_k) {
        from = cut_of(c, from, false, (u64)in.top_k, m);
        if (in.top_p < 1.0f) mass = mass_from(c, from, m);
    }
    return in.top_p < 1.0f ? cut_of(c, from, true, need_of(in.top_p, mass), m) : from;
}

static __device__ int32_t pick(const candidates &c, const row_in &in, u64 from)
{
    best b = { -INFINITY, -1 };
    for (int32_t i = (int32_t)threadIdx.x; i < c.n; i += VOCAB_THREADS) {
        u64 key = key_of(c, i);
        if (key < from) continue;
        int32_t id = id_of_key(key);
        uint32_t word[4];
        philox((uint32_t)id / 4, in.key, word);
        b = better(b, { vocab_scaled(c.z[id], c.scale) + gumbel(word[id % 4]), id });
    }
    return best_of_block(b).token;
}

/* The n most likely tokens: each is written at the index that the number of those above gives. */
static __device__ void list_likely(const candidates &c, const vocab_total &one, int32_t n,
                                   int32_t *token, float *log_prob, cut_room *m)
{
    __shared__ u64 found[ARES_LIKELY_MAX];
    __shared__ int count;
    /* a logit of -inf is no token */
    u64 from = cut_of(c, (u64)(place_of(-INFINITY) + 1) << 32, false, (u64)n, m);
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; i < c.n; i += VOCAB_THREADS) {
        u64 key = key_of(c, i);
        if (key >= from) found[atomicAdd(&count, 1)] = key;
    }
    __syncthreads();
    int32_t at = (int32_t)threadIdx.x, above = 0;
    if (at >= n) return;
    if (at >= count) {
        token[at] = -1;
        log_prob[at] = -INFINITY;
        return;
    }
    for (int32_t i = 0; i < count; i++) above += found[i] > found[at];
    token[above] = id_of_key(found[at]);
    log_prob[above] = vocab_log_prob(one, c.z[id_of_key(found[at])]);
}

static __global__ void __launch_bounds__(VOCAB_THREADS)
    sample_cuts(ares_sample_args a, const float *logits, int32_t first, work w)
{
    __shared__ cut_room room;
    vocab_place at = vocab_place_of(a.vocab, w.chunks);
    int64_t row = first + at.row;
    const float *z = logits + at.row * a.vocab;
    row_in in = row_of(a, row);
    if (!cuts(in) && !a.n_likely) return;
    row_state *state = &w.state[at.row];
    int32_t *id = w.id + at.row * a.vocab;
    collect(a, z, in, at, in.top_p < 1.0f && !in.top_k, state, id);
    if (!cuda_is_last(&w.ticket[at.row], (unsigned)w.chunks)) return;
    row_state s = *state;
    if (a.n_likely)
        list_likely({ z, id, s.n, 1.0f, s.total_1.max, 0, { 0, 0 } }, s.total_1, a.n_likely,
                    a.likely_token + row * a.n_likely, a.likely_log_prob + row * a.n_likely, &room);
    if (!cuts(in)) return;
    candidates c = {
        z, id, s.n, in.inv_temperature, s.total.max, a.n_barred, { a.barred[0], a.barred[1] }
    };
    int32_t token = pick(c, in, nucleus(c, in, s.mass, &room));
    if (threadIdx.x == 0) finish(a, in, row, z, token, s.total, s.total_1);
}

/* ------------------------------------------------------------------ rows */

/* Memory for `rows` at once; cut: whether any may need the second kernel. False after a failure. */
static bool work_of(cuda_context *c, const ares_sample_args *a, int32_t rows, bool cut, work *w,
                    float **logits)
{
    w->chunks = vocab_chunks(a->vocab);
    size_t parts = (size_t)rows * (size_t)w->chunks, all = (size_t)rows * (size_t)a->vocab,
           most = cut ? parts * VOCAB_THREADS * sizeof *w->most : 0,
           floats = (a->logits ? 0 : all) + (cut ? all : 0);
    w->state = (row_state *)cuda_scratch(
        c, CUDA_PARTS, (size_t)rows * sizeof *w->state + parts * sizeof *w->part + most);
    w->ticket = cuda_tickets(c, (size_t)rows);
    *logits = floats ? (float *)cuda_scratch(c, CUDA_LOGITS, floats * sizeof **logits) : NULL;
    if (!w->state || !w->ticket || (floats && !*logits)) return false;
    w->part = (chunk_part *)(w->state + rows);
    w->most = (float *)(w->part + parts);
    w->id = (int32_t *)(*logits + (a->logits ? 0 : all));
    return true;
}

static void sample(ares_device *d, const ares_sample_args *a)
{
    cuda_context *c = cuda_enter(d);
    bool cut = a->top_p || a->top_k || a->n_likely;
    int32_t most = vocab_rows(a->rows, a->vocab);
    work w;
    float *own;
    ARES_ASSERT((a->logits || a->vocab <= a->w->n) && !a->log_prob_1 == !a->entropy_1 &&
                a->n_likely >= 0 && a->n_likely <= ARES_LIKELY_MAX);
    if (a->rows == 0 || !work_of(c, a, most, cut, &w, &own)) return;
    ares_sample_args of_rows = *a; /* what the kernels read: no addresses of host memory */
    of_rows.w = NULL;
    of_rows.adapter = NULL;
    for (int32_t row = 0; row < a->rows; row += most) {
        int32_t n = ARES_MIN(most, a->rows - row);
        const float *logits = a->logits ? a->logits + (int64_t)row * a->vocab : own;
        if (!a->logits) {
            ares_matrix part = vocab_part(a->w, a->vocab);
            const char *x =
                (const char *)a->x + row * a->ldx * (int64_t)ares_dtype_bytes(d->k->act);
            cuda_product(c, x, a->ldx, &part, n, own, a->vocab, false);
            if (const ares_head_adapter *l = a->adapter) {
                part = vocab_part(l->b, a->vocab);
                x = (const char *)l->u +
                    (int64_t)row * part.k * (int64_t)ares_dtype_bytes(d->k->act);
                cuda_product(c, x, part.k, &part, n, own, a->vocab, true);
            }
        }
        unsigned blocks = (unsigned)(n * w.chunks);
        cuda_launch(c, "sample", sample_chunks, blocks, VOCAB_THREADS, 0, of_rows, logits, row, w);
        if (cut)
            cuda_launch(c, "sample: cuts", sample_cuts, blocks, VOCAB_THREADS, 0, of_rows, logits,
                        row, w);
    }
}

void cuda_fill_sample(ares_kernels *k)
{
    k->sample = sample;
}
