/*
 * The vocabulary head. cuBLAS computes the logits of a chunk in f32: of as many rows as a fixed
 * scratch holds. Then thread blocks compute the statistics, and others the derivatives; both read
 * the logits once. head_fused computes a chunk's logits once; head_backward computes those of head
 * again.
 *
 * Derivatives of f32 activations take the place of their logits; those of bf16 activations are
 * rounded to bf16 beside them, for the two products that follow.
 *
 * With a reference a chunk has half as many rows, and the other model's logits beside its own.
 */
#include "vocab.cuh"

/* Numbers per row on the device, [rows] each. c, ce, ck: coefficients of log_prob, entropy, KL. */
typedef struct head_rows {
    const int32_t *target;
    float *log_prob, *entropy, *lse, *kl, *ref_lse;
    const float *c, *ce, *ck; /* ce NULL: all 0 */
} head_rows;

static head_rows rows_from(const ares_head_args *a, int32_t row)
{
    head_rows r = {
        a->target + row, a->log_prob, a->entropy, a->lse, NULL, NULL, NULL, NULL, NULL
    };
    if (r.log_prob) r.log_prob += row;
    if (r.entropy) r.entropy += row;
    if (r.lse) r.lse += row;
    if (a->c_log_prob) r.c = a->c_log_prob + row;
    if (a->c_entropy) r.ce = a->c_entropy + row;
    if (a->ref_x) r.kl = a->kl + row, r.ref_lse = a->ref_lse + row;
    if (a->ref_x && a->c_kl) r.ck = a->c_kl + row;
    return r;
}

/* of_chunk: [rows][chunks] */
static __global__ void __launch_bounds__(VOCAB_THREADS)
    row_statistics(const float *logits, int32_t vocab, int32_t chunks, float inv_temperature,
                   head_rows r, vocab_sums *of_chunk, unsigned *ticket)
{
    vocab_place at = vocab_place_of(vocab, chunks);
    int64_t row = at.row;
    const float *z = logits + row * vocab;
    vocab_sums s = vocab_none();
    float x[VOCAB_FOURS][4];
    vocab_read(z, at, vocab, x);
    for (int f = 0; f < VOCAB_FOURS && vocab_first(at, f) < at.to; f++)
        s = vocab_added(s, x[f], inv_temperature);
    s = vocab_block_merged(s);
    of_chunk += row * chunks;
    if (threadIdx.x == 0) of_chunk[at.chunk] = s;
    if (!cuda_is_last(&ticket[row], (unsigned)chunks) || threadIdx.x) return;
    s = of_chunk[0];
    for (int32_t c = 1; c < chunks; c++) s = vocab_merged(s, of_chunk[c]);
    vocab_total t = vocab_total_of(s);
    r.log_prob[row] = vocab_log_prob(t, vocab_scaled(z[r.target[row]], inv_temperature));
    r.entropy[row] = t.entropy;
    r.lse[row] = t.max + t.log_sum;
}

/*
 * KL = sum p (z - z_ref) - lse + lse_ref, of sums over e = exp(z - max) and over the reference's.
 * They are in f64, because the terms are as large as the logits and the KL is not, and move along
 * when a maximum does.
 */
typedef struct kl_sums {
    float max, ref_max;
    double sum, ref_sum, cross; /* cross: of e (z - z_ref) */
} kl_sums;
static __device__ double moved_by(float from, float to)
{
    return from == -INFINITY || from == to ? 1 : exp((double)from - (double)to);
}
static __device__ kl_sums kl_merged(kl_sums a, kl_sums b)
{
    float max = fmaxf(a.max, b.max), ref_max = fmaxf(a.ref_max, b.ref_max);
    double of_a = moved_by(a.max, max), of_b = moved_by(b.max, max);
    return { max, ref_max, __dadd_rn(__dmul_rn(a.sum, of_a), __dmul_rn(b.sum, of_b)),
             __dadd_rn(__dmul_rn(a.ref_sum, moved_by(a.ref_max, ref_max)),
                       __dmul_rn(b.ref_sum, moved_by(b.ref_max, ref_max))),
             __dadd_rn(__dmul_rn(a.cross, of_a), __dmul_rn(b.cross, of_b)) };
}
/* Differences below -128 become -128, where e is 0 anyway; NaN stays. */
static __device__ float above_floor(float d)
{
    return d < -128.0f ? -128.0f : d;
}
/* Adds four neighbouring logits of both models, n of which are there. */
static __device__ kl_sums kl_added(kl_sums s, const float (&z)[4], const float (&zr)[4], int n,
                                   float scale)
{
    float max = s.max, ref_max = s.ref_max;
    for (int i = 0; i < n; i++) {
        max = fmaxf(max, vocab_scaled(z[i], scale));
        ref_max = fmaxf(ref_max, vocab_scaled(zr[i], scale));
    }
    double by = moved_by(s.max, max);
    s = { max, ref_max, s.sum * by, s.ref_sum * moved_by(s.ref_max, ref_max), s.cross * by };
    for (int i = 0; i < n; i++) {
        float own = vocab_scaled(z[i], scale), other = vocab_scaled(zr[i], scale);
        double e = (double)expf(above_floor(own - max));
        s.sum += e;
        s.ref_sum += (double)expf(above_floor(other - ref_max));
        s.cross += e * ((double)own - (double)other);
    }
    return s;
}
static __device__ kl_sums kl_warp_merged(kl_sums s, int from)
{
    for (int step = from; step; step /= 2)
        s = kl_merged(s, { __shfl_xor_sync(0xffffffffu, s.max, step),
                           __shfl_xor_sync(0xffffffffu, s.ref_max, step),
                           __shfl_xor_sync(0xffffffffu, s.sum, step),
                           __shfl_xor_sync(0xffffffffu, s.ref_sum, step),
                           __shfl_xor_sync(0xffffffffu, s.cross, step) });
    return s;
}

static __global__ void __launch_bounds__(VOCAB_THREADS)
    row_kl(const float *logits, const float *ref_logits, int32_t vocab, float inv_temperature,
           float *kl, float *ref_lse)
{
    __shared__ kl_sums of_warp[VOCAB_THREADS / 32];
    int64_t row = blockIdx.x;
    const float *z = logits + row * vocab, *zr = ref_logits + row * vocab;
    kl_sums s = { -INFINITY, -INFINITY, 0, 0, 0 };
    bool whole = vocab_whole(z, vocab) && vocab_whole(zr, vocab);
    for (int32_t i = 4 * (int32_t)threadIdx.x; i < vocab; i += 4 * VOCAB_THREADS) {
        float own[4], other[4];
        vocab_four(z, i, vocab, whole, own);
        vocab_four(zr, i, vocab, whole, other);
        s = kl_added(s, own, other, ARES_MIN(vocab - i, 4), inv_temperature);
    }
    s = kl_warp_merged(s, 16);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = s;
    __syncthreads();
    s = kl_warp_merged(of_warp[threadIdx.x % (VOCAB_THREADS / 32)], VOCAB_THREADS / 64);
    if (threadIdx.x) return;
    double lse_ref = (double)s.ref_max + log(s.ref_sum),
           value = s.cross / s.sum - ((double)s.max + log(s.sum)) + lse_ref;
    kl[row] = value < 0 ? 0.0f : (float)value; /* only rounding makes it negative */
    ref_lse[row] = (float)lse_ref;
}

/* Writes derivatives i to i + 3 of a row of `vocab`, at once where the logits are whole. */
static __device__ inline void put_four(float *to, int32_t i, int32_t vocab, bool whole,
                                       const float (&g)[4])
{
    if (whole) *(float4 *)(to + i) = make_float4(g[0], g[1], g[2], g[3]);
    else
        for (int j = 0; j < 4 && i + j < vocab; j++) to[i + j] = g[j];
}
static __device__ inline void put_four(uint16_t *to, int32_t i, int32_t vocab, bool whole,
                                       const float (&g)[4])
{
    if (whole)
        *(uint2 *)(to + i) = make_uint2(cuda_two_bf16(g[0], g[1]), cuda_two_bf16(g[2], g[3]));
    else
        for (int j = 0; j < 4 && i + j < vocab; j++) to[i + j] = cuda_to_bf16(g[j]);
}

/*
 * d loss / d logit: with p = exp(z - lse), -p (c + ce (log p + H)), plus c at the target, all times
 * inv_temperature. With KL: plus c_kl p (log p - log q - KL). out may be the logits.
 */
template <typename T, bool KL>
static __global__ void __launch_bounds__(VOCAB_THREADS)
    differentiate(const float *logits, const float *ref_logits, int32_t vocab,
                  float inv_temperature, head_rows r, T *out)
{
    int64_t row = blockIdx.x;
    const float *z = logits + row * vocab, *zr = KL ? ref_logits + row * vocab : z;
    float weight = r.c[row], of_entropy = r.ce ? r.ce[row] : 0.0f, of_kl = KL ? r.ck[row] : 0.0f,
          shift = r.lse[row], ref_shift = KL ? r.ref_lse[row] : 0.0f, h = r.entropy[row],
          mean = KL ? r.kl[row] : 0.0f;
    int32_t taken = r.target[row];
    T *to = out + row * vocab;
    /* derivatives of bf16 begin at 8 bytes where logits begin at 16 */
    bool whole =
        vocab_whole(z, vocab) && vocab_whole(zr, vocab) && (uintptr_t)to % (4 * sizeof(T)) == 0;
    for (int32_t i = 4 * (int32_t)(blockIdx.y * VOCAB_THREADS + threadIdx.x); i < vocab;
         i += 4 * (int32_t)(gridDim.y * VOCAB_THREADS)) {
        float x[4], y[4], g[4];
        vocab_four(z, i, vocab, whole, x);
        if (KL) vocab_four(zr, i, vocab, whole, y);
        for (int j = 0; j < 4; j++) {
            float d = vocab_scaled(x[j], inv_temperature) - shift,
                  of_p = fmaf(of_entropy, d + h, weight);
            if (KL) {
                float q = vocab_scaled(y[j], inv_temperature) - ref_shift;
                of_p = fmaf(-of_kl, (d - q) - mean, of_p);
            }
            g[j] = expf(d) * of_p * -inv_temperature;
            if (i + j == taken) g[j] += weight * inv_temperature;
        }
        put_four(to, i, vocab, whole, g);
    }
}

typedef struct head_chunk {
    int32_t row, rows;
    float *logits, *ref;   /* ref NULL: no reference */
    uint16_t *derivatives; /* of bf16 activations; NULL: in the logits' place, or not wanted */
} head_chunk;

/* backward: with room for derivatives. logits NULL after a recorded failure. */
static head_chunk chunk_of(cuda_context *c, const ares_head_args *a, ares_dtype act, bool backward,
                           int32_t row)
{
    bool rounds = backward && act == ARES_BF16;
    int64_t width = a->ref_x ? 2 * (int64_t)a->vocab : a->vocab;
    int32_t most = vocab_rows(a->rows, width);
    int64_t floats = most * width, halves = rounds ? (int64_t)most * a->vocab : 0;
    float *logits = (float *)cuda_scratch(
        c, CUDA_LOGITS, (size_t)floats * sizeof(float) + (size_t)halves * sizeof(uint16_t));
    return { row, ARES_MIN(most, a->rows - row), logits,
             a->ref_x && logits ? logits + (int64_t)most * a->vocab : NULL,
             rounds && logits ? (uint16_t *)(logits + floats) : NULL };
}

/* The row of an array of activations. */
static const void *act_row(const void *x, ares_dtype act, int64_t row, int64_t ld)
{
    return x ? (const char *)x + row * ld * (int64_t)ares_dtype_bytes(act) : NULL;
}

/* Adds an adapter's part to the chunk's logits; l NULL: there is none. */
static void add_adapter(cuda_context *c, const ares_head_args *a, const ares_head_adapter *l,
                        ares_dtype act, const head_chunk *k, float *logits)
{
    if (!l) return;
    ares_matrix b = vocab_part(l->b, a->vocab);
    cuda_product(c, act_row(l->u, act, k->row, b.k), b.k, &b, k->rows, logits, a->vocab, true);
}

static void make_logits(cuda_context *c, const ares_head_args *a, ares_dtype act,
                        const head_chunk *k)
{
    ares_matrix w = vocab_part(a->w, a->vocab);
    cuda_product(c, act_row(a->x, act, k->row, a->ldx), a->ldx, &w, k->rows, k->logits, a->vocab,
                 false);
    add_adapter(c, a, a->adapter, act, k, k->logits);
    if (!k->ref) return;
    w = vocab_part(a->ref_w, a->vocab);
    cuda_product(c, act_row(a->ref_x, act, k->row, a->ld_ref), a->ld_ref, &w, k->rows, k->ref,
                 a->vocab, false);
    add_adapter(c, a, a->ref_adapter, act, k, k->ref);
}
static void make_statistics(cuda_context *c, const ares_head_args *a, const head_chunk *k)
{
    const head_rows r = rows_from(a, k->row);
    int32_t chunks = vocab_chunks(a->vocab);
    size_t parts = (size_t)k->rows * (size_t)chunks;
    vocab_sums *of_chunk = (vocab_sums *)cuda_scratch(c, CUDA_PARTS, parts * sizeof *of_chunk);
    unsigned *ticket = cuda_tickets(c, (size_t)k->rows);
    if (!of_chunk || !ticket) return;
    cuda_launch(c, "head: statistics", row_statistics, (unsigned)parts, VOCAB_THREADS, 0, k->logits,
                a->vocab, chunks, a->inv_temperature, r, of_chunk, ticket);
    if (k->ref)
        cuda_launch(c, "head: kl", row_kl, (unsigned)k->rows, VOCAB_THREADS, 0, k->logits, k->ref,
                    a->vocab, a->inv_temperature, r.kl, r.ref_lse);
}

/* The chunk's derivatives from its logits, of the type of `to`. */
template <typename T>
static void make_derivatives(cuda_context *c, const ares_head_args *a, const head_chunk *k,
                             const head_rows &r, T *to)
{
    cuda_launch(c, "head: derivatives", k->ref ? differentiate<T, true> : differentiate<T, false>,
                dim3((unsigned)k->rows, 8), VOCAB_THREADS, 0, k->logits, k->ref, a->vocab,
                a->inv_temperature, r, to);
}
/* dx and dw from the chunk's logits, and those of an adapter. */
static void backward(ares_device *d, cuda_context *c, const ares_head_args *a, const head_chunk *k,
                     const head_rows &r)
{
    ares_dtype act = d->k->act;
    if (k->derivatives) make_derivatives(c, a, k, r, k->derivatives);
    else make_derivatives(c, a, k, r, k->logits);
    ares_matrix w = vocab_part(a->w, a->vocab),
                dw = a->dw ? vocab_part(a->dw, a->vocab) : ares_matrix{};
    ares_linear_backward_args l = {};
    l.m = k->rows;
    l.dy = k->derivatives ? (const void *)k->derivatives : k->logits;
    l.lddy = a->vocab;
    l.w = &w;
    l.dx = (void *)act_row(a->dx, act, k->row, a->lddx);
    l.lddx = a->lddx;
    l.x = act_row(a->x, act, k->row, a->ldx);
    l.ldx = a->ldx;
    l.dw = a->dw ? &dw : NULL;
    cuda_linear_backward(d, &l, 1);
    const ares_head_adapter *n = a->adapter;
    if (!n) return;
    w = vocab_part(n->b, a->vocab);
    dw = vocab_part(n->db, a->vocab);
    l.dx = (void *)act_row(n->du, act, k->row, w.k);
    l.scale = n->scale;
    l.x = act_row(n->u, act, k->row, w.k);
    l.lddx = l.ldx = w.k;
    l.dw = &dw;
    cuda_linear_backward(d, &l, 1);
}

static void check(const ares_head_args *a)
{
    ARES_ASSERT(!a->parts && a->vocab <= a->w->n && (!a->ref_x || a->vocab <= a->ref_w->n));
}

static void head(ares_device *d, const ares_head_args *a)
{
    cuda_context *c = cuda_enter(d);
    head_chunk k;
    check(a);
    for (int32_t row = 0; row < a->rows && !c->failed; row += k.rows) {
        k = chunk_of(c, a, d->k->act, false, row);
        make_logits(c, a, d->k->act, &k);
        make_statistics(c, a, &k);
    }
}

static void head_backward(ares_device *d, const ares_head_args *a)
{
    cuda_context *c = cuda_enter(d);
    head_chunk k;
    check(a);
    for (int32_t row = 0; row < a->rows && !c->failed; row += k.rows) {
        k = chunk_of(c, a, d->k->act, true, row);
        make_logits(c, a, d->k->act, &k);
        backward(d, c, a, &k, rows_from(a, row));
    }
}

static void head_fused(ares_device *d, const ares_head_args *a, ares_head_loss_fn *loss, void *ctx)
{
    cuda_context *c = cuda_enter(d);
    head_chunk k;
    check(a);
    ARES_ASSERT(!a->ref_x);
    for (int32_t row = 0; row < a->rows && !c->failed; row += k.rows) {
        k = chunk_of(c, a, d->k->act, true, row);
        make_logits(c, a, d->k->act, &k);
        make_statistics(c, a, &k);
        head_rows r = rows_from(a, row);
        float *weight = (float *)cuda_scratch(c, CUDA_ROWS, (size_t)k.rows * 2 * sizeof(float)),
              *of_entropy = weight + k.rows;
        if (!weight) return;
        d->k->zero(d, weight, (size_t)k.rows * 2 * sizeof(float));
        loss(ctx, row, k.rows, r.log_prob, r.entropy, weight, of_entropy);
        r.c = weight;
        r.ce = of_entropy;
        backward(d, c, a, &k, r);
    }
}

void cuda_fill_head(ares_kernels *k)
{
    k->head = head;
    k->head_backward = head_backward;
    k->head_fused = head_fused;
}
