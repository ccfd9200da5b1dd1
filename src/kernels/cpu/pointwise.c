/*
 * CPU kernels that visit each number once: storing keys and values in the paged cache,
 * activations, gated activations, sums of arrays, rotary embedding, and rows of the embedding.
 */
#include "isa.h"

/*
 * New keys and values into the paged cache. In one layer the keys of block b and KV head h begin at
 * ((b * n_kv_heads + h) * 2) * 32 * head_dim, transposed, [head_dim][32], so that attention's lanes
 * are keys. The values [32][head_dim] follow.
 */

typedef struct store_job {
    int32_t rows, n_kv, head_dim;
    const float *k, *v;
    int64_t ldkv;
    const int32_t *slots;
    float *cache;
    bool bf16;
} store_job;

enum { ROWS_PER_TASK = 64 };

/* Rows are divided among tasks; each row has a slot of its own, so no two tasks write one place. */
/*
 * A row of keys and values of one head in the layout of bf16 arithmetic: keys [dim/2][32] words of
 * two numbers, values [16][dim] words of two keys. The first key of such a word clears its partner,
 * which would be read before it is there, unless the next row brings it.
 */
static void store_pairs(uint16_t *block, int64_t at, int64_t dim, const float *k, const float *v,
                        bool next_follows)
{
    uint16_t *values = block + ARES_KV_BLOCK * dim;
    for (int64_t i = 0; i < dim; i += 16) {
        uint32_t key[16], value[16];
        int n = (int)ARES_MIN(16, dim - i);
        v16i_store(key, v16_bits(v16_round_bf16(v16_load_first(k + i, n))));
        v16i_store(value, v16_bits(v16_round_bf16(v16_load_first(v + i, n))));
        for (int j = 0; j < n; j++) {
            /* the first of a word is its high half */
            uint16_t *word = values + (at / 2 * dim + i + j) * 2;
            block[((i + j) / 2 * ARES_KV_BLOCK + at) * 2 + 1 - j % 2] = (uint16_t)(key[j] >> 16);
            word[1 - at % 2] = (uint16_t)(value[j] >> 16);
            if (at % 2 == 0 && !next_follows) word[0] = 0;
        }
    }
}

static void store_rows(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const store_job *j = ctx;
    int64_t dim = j->head_dim, first = task * ROWS_PER_TASK,
            end = first + ROWS_PER_TASK < j->rows ? first + ROWS_PER_TASK : j->rows;
    for (int64_t r = first; r < end; r++) {
        int64_t block = j->slots[r] / ARES_KV_BLOCK, at = j->slots[r] % ARES_KV_BLOCK;
        for (int64_t h = 0; h < j->n_kv; h++) {
            if (j->bf16) {
                store_pairs((uint16_t *)(void *)j->cache +
                                (block * j->n_kv + h) * 2 * ARES_KV_BLOCK * dim,
                            at, dim, j->k + r * j->ldkv + h * dim, j->v + r * j->ldkv + h * dim,
                            r + 1 < j->rows && j->slots[r + 1] == j->slots[r] + 1);
                continue;
            }
            float *keys = j->cache + (block * j->n_kv + h) * 2 * ARES_KV_BLOCK * dim,
                  *values = keys + ARES_KV_BLOCK * dim;
            const float *k = j->k + r * j->ldkv + h * dim;
            /* one column of the transposed keys, and one row of the values */
            for (int64_t i = 0; i < dim; i++) keys[i * ARES_KV_BLOCK + at] = k[i];
            memcpy(values + at * dim, j->v + r * j->ldkv + h * dim, (size_t)dim * sizeof(float));
        }
    }
}

void ARES_K(store_kv)(ares_device *d, int32_t rows, int32_t n_kv, int32_t head_dim, const void *k,
                      const void *v, int64_t ldkv, const int32_t *slots, void *cache, bool bf16)
{
    store_job job = { rows, n_kv, head_dim, k, v, ldkv, slots, cache, bf16 };
    ARES_ASSERT(!bf16 || head_dim % 2 == 0);
    kernels_run(d, (double)rows * n_kv * head_dim / 1e3, (rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK,
                store_rows, &job);
}

/*
 * GELU by the normal distribution itself, and its two forms by a sigmoid. Phi comes from erfc by
 * the Chebyshev fit of Numerical Recipes (section 6.2), whose relative error is below 1.2e-7
 * everywhere.
 */

enum { ACTIVATION_CHUNK = 4096 };

/* Phi(x) */
V16_INLINE v16 normal_cdf(v16 x)
{
    static const float fit[] = {
        0.17087277f,  -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f,
        -0.18628806f, 0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f
    };
    const v16 one = v16_set1(1.0f);
    /* z = |x| / sqrt(2); erfc(z) = t exp(-z^2 + polynomial in t), t = 1 / (1 + z / 2) */
    v16 z = v16_mul(v16_max(x, v16_neg(x)), v16_set1(0.70710678f));
    v16 t = v16_div(one, v16_fma(z, v16_set1(0.5f), one)), p = v16_set1(fit[0]);
    for (int i = 1; i < ARES_COUNT(fit); i++) p = v16_fma(p, t, v16_set1(fit[i]));
    /* e^-z^2 apart, from x itself, because the rounding of z grows in the square */
    v16 half = v16_mul(v16_mul(x, x), v16_set1(-0.5f));
    v16 tail = v16_mul(v16_mul(t, v16_set1(0.5f)), v16_mul(v16_exp(half), v16_exp(p)));
    /* Phi(-x) = 1 - Phi(x) */
    return v16_select(v16_lt(x, v16_zero()), tail, v16_sub(one, tail));
}

/*
 * What the sigmoid is taken of: x for SiLU, u = by x (1 + cube x^2) for the tanh form, 1.702 x for
 * the quick one. With 3 cube it is x u', x times the derivative.
 */
V16_INLINE v16 inner(ares_activation f, v16 x, float cube)
{
    if (f == ARES_SILU) return x;
    if (f == ARES_QUICK_GELU) return v16_mul(x, v16_set1(1.702f));
    v16 square = v16_mul(x, x);
    v16 cubic = v16_fma(square, v16_set1(cube), v16_set1(1.0f));
    return v16_mul(v16_mul(x, v16_set1(ARES_GELU_TANH_BY)), cubic);
}

/* f(x), and f'(x) where slope is not NULL */
V16_INLINE v16 activated(ares_activation f, v16 x, v16 *slope)
{
    const v16 one = v16_set1(1.0f);
    if (f == ARES_GELU) {
        v16 phi = normal_cdf(x);
        /* (x Phi(x))' = Phi(x) + x phi(x); 0.39894228 = 1 / sqrt(2 pi) */
        if (slope) {
            v16 square = v16_mul(v16_mul(x, x), v16_set1(-0.5f));
            *slope = v16_fma(x, v16_mul(v16_exp(square), v16_set1(0.39894228f)), phi);
        }
        return v16_mul(x, phi);
    }
    if (f == ARES_SIGMOID) {
        v16 s = v16_sigmoid(x);
        if (slope) *slope = v16_mul(s, v16_sub(one, s));
        return s;
    }
    /* (x s(u))' = s + x u' s (1 - s) */
    v16 s = v16_sigmoid(inner(f, x, ARES_GELU_TANH_CUBE));
    if (slope)
        *slope = v16_fma(v16_mul(inner(f, x, 3.0f * ARES_GELU_TANH_CUBE), s), v16_sub(one, s), s);
    return v16_mul(x, s);
}

static void activation_task(void *ctx, int64_t task, int worker)
{
    const ares_activation_args *a = ctx;
    const float *x = a->x;
    float *y = a->y;
    (void)worker;
    int64_t end = ARES_MIN(a->n, (task + 1) * ACTIVATION_CHUNK);
    for (int64_t i = task * ACTIVATION_CHUNK; i < end; i += 16) {
        int n = (int)ARES_MIN(16, end - i);
        v16_store_first(y + i, activated(a->f, v16_load_first(x + i, n), NULL), n);
    }
}

static void activation_backward_task(void *ctx, int64_t task, int worker)
{
    const ares_activation_args *a = ctx;
    const float *x = a->x, *dy = a->dy;
    float *dx = a->dx;
    (void)worker;
    int64_t end = ARES_MIN(a->n, (task + 1) * ACTIVATION_CHUNK);
    for (int64_t i = task * ACTIVATION_CHUNK; i < end; i += 16) {
        int n = (int)ARES_MIN(16, end - i);
        v16 slope;
        activated(a->f, v16_load_first(x + i, n), &slope);
        v16_store_first(dx + i, v16_mul(slope, v16_load_first(dy + i, n)), n);
    }
}

void ARES_K(activation)(ares_device *d, const ares_activation_args *a)
{
    ares_activation_args own = *a;
    kernels_run(d, (double)a->n / 1e3, (a->n + ACTIVATION_CHUNK - 1) / ACTIVATION_CHUNK,
                activation_task, &own);
}
void ARES_K(activation_backward)(ares_device *d, const ares_activation_args *a)
{
    ares_activation_args own = *a;
    kernels_run(d, (double)a->n / 8e2, (a->n + ACTIVATION_CHUNK - 1) / ACTIVATION_CHUNK,
                activation_backward_task, &own);
}

/* f(gate) * up, and its gradient (SwiGLU and its kin, Shazeer 2020). */

enum { GATE_ROWS = 4 };

V16_INLINE void gate_rows(const ares_gate_mul_args *a, ares_activation f, int64_t task)
{
    const float *gate = a->gate, *up = a->up;
    float *y = a->y;
    int64_t end = ARES_MIN((int64_t)a->rows, (task + 1) * GATE_ROWS),
            ld_up = a->ld_up ? a->ld_up : a->ldgu;
    for (int64_t r = task * GATE_ROWS; r < end; r++)
        for (int32_t i = 0; i < a->k; i += 16) {
            int n = ARES_MIN(16, a->k - i);
            v16 g = v16_load_first(gate + r * a->ldgu + i, n),
                u = v16_load_first(up + r * ld_up + i, n);
            v16_store_first(y + r * a->ldy + i, v16_mul(activated(f, g, NULL), u), n);
        }
}

V16_INLINE void gate_rows_back(const ares_gate_mul_args *a, ares_activation f, int64_t task)
{
    const float *gate = a->gate, *up = a->up, *dys = a->dy;
    float *y = a->y, *d_gate = a->d_gate, *d_up = a->d_up;
    int64_t end = ARES_MIN((int64_t)a->rows, (task + 1) * GATE_ROWS),
            ld_up = a->ld_up ? a->ld_up : a->ldgu, ld_d_up = a->ld_up ? a->ld_up : a->lddgu;
    for (int64_t r = task * GATE_ROWS; r < end; r++)
        for (int32_t i = 0; i < a->k; i += 16) {
            int n = ARES_MIN(16, a->k - i);
            v16 g = v16_load_first(gate + r * a->ldgu + i, n),
                u = v16_load_first(up + r * ld_up + i, n);
            v16 dy = v16_load_first(dys + r * a->lddy + i, n), slope,
                of_g = activated(f, g, &slope);
            v16_store_first(d_up + r * ld_d_up + i, v16_mul(dy, of_g), n);
            v16_store_first(d_gate + r * a->lddgu + i, v16_mul(v16_mul(dy, u), slope), n);
            if (y) v16_store_first(y + r * a->ldy + i, v16_mul(of_g, u), n);
        }
}

/* The two activations of language models each get a loop of their own. */
static void gate_mul_task(void *ctx, int64_t task, int worker)
{
    const ares_gate_mul_args *a = ctx;
    (void)worker;
    if (a->f == ARES_SILU) gate_rows(a, ARES_SILU, task);
    else if (a->f == ARES_GELU_TANH) gate_rows(a, ARES_GELU_TANH, task);
    else gate_rows(a, a->f, task);
}
static void gate_mul_backward_task(void *ctx, int64_t task, int worker)
{
    const ares_gate_mul_args *a = ctx;
    (void)worker;
    if (a->f == ARES_SILU) gate_rows_back(a, ARES_SILU, task);
    else if (a->f == ARES_GELU_TANH) gate_rows_back(a, ARES_GELU_TANH, task);
    else gate_rows_back(a, a->f, task);
}

void ARES_K(gate_mul)(ares_device *d, const ares_gate_mul_args *a)
{
    ares_gate_mul_args own = *a;
    kernels_run(d, (double)a->rows * a->k / 2e3, (a->rows + GATE_ROWS - 1) / GATE_ROWS,
                gate_mul_task, &own);
}
void ARES_K(gate_mul_backward)(ares_device *d, const ares_gate_mul_args *a)
{
    ares_gate_mul_args own = *a;
    kernels_run(d, (double)a->rows * a->k / 1.5e3, (a->rows + GATE_ROWS - 1) / GATE_ROWS,
                gate_mul_backward_task, &own);
}

/* Sums and updates of whole arrays. */

enum { CHUNK = 65536, SUM_LANES = 16 };

typedef struct array_job {
    int64_t n;
    const float *x;
    float *y;
    double *of_chunk;
} array_job;

static void add_task(void *ctx, int64_t task, int worker)
{
    const array_job *j = ctx;
    (void)worker;
    int64_t end = ARES_MIN(j->n, (task + 1) * CHUNK);
    for (int64_t i = task * CHUNK; i < end; i++) j->y[i] += j->x[i];
}
/* The square of an f32 is exact in f64, so a product and an addition round like one FMA. */
static void square_sums_task(void *ctx, int64_t task, int worker)
{
    const array_job *j = ctx;
    (void)worker;
    int64_t i = task * ARES_SUM_CHUNK, end = ARES_MIN(j->n, i + ARES_SUM_CHUNK);
    double lane[SUM_LANES] = { 0 };
    for (; i + SUM_LANES <= end; i += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++) lane[l] += (double)j->x[i + l] * (double)j->x[i + l];
    for (int l = 0; i < end; i++, l++) lane[l] += (double)j->x[i] * (double)j->x[i];
    for (int half = SUM_LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    j->of_chunk[task] = lane[0];
}

void ARES_K(add)(ares_device *d, float *y, const float *x, int64_t n)
{
    array_job j = { .n = n, .x = x, .y = y };
    kernels_run(d, (double)n / 2.5e3, (n + CHUNK - 1) / CHUNK, add_task, &j);
}
void ARES_K(square_sums)(ares_device *d, const float *x, int64_t n, double *of_chunk)
{
    array_job j = { .n = n, .x = x, .of_chunk = of_chunk };
    kernels_run(d, (double)n / 5e3, (n + ARES_SUM_CHUNK - 1) / ARES_SUM_CHUNK, square_sums_task,
                &j);
}

/*
 * Rotary embedding (Su et al. 2021) in the half-split form of GPT-NeoX and Hugging Face: elements i
 * and i + head_dim / 2 are a pair.
 */

enum { ROPE_ROWS = 16 };

typedef struct rope_job {
    int32_t rows, heads, head_dim, turned;
    float *x;
    int64_t ldx;
    const float *cos_sin;
    bool inverse;
} rope_job;

static void rope_task(void *ctx, int64_t task, int worker)
{
    const rope_job *j = ctx;
    int half = j->turned / 2;
    (void)worker;
    int64_t end = ARES_MIN((int64_t)j->rows, (task + 1) * ROPE_ROWS);
    for (int64_t r = task * ROPE_ROWS; r < end; r++) {
        const float *c = j->cos_sin + r * j->turned;
        for (int h = 0; h < j->heads; h++) {
            float *x = j->x + r * j->ldx + (int64_t)h * j->head_dim;
            for (int i = 0; i < half; i += 16) {
                int n = ARES_MIN(16, half - i);
                v16 cosine = v16_load_first(c + i, n), sine = v16_load_first(c + half + i, n);
                v16 a = v16_load_first(x + i, n), b = v16_load_first(x + half + i, n);
                if (j->inverse) sine = v16_neg(sine);
                v16_store_first(x + i, v16_fnma(b, sine, v16_mul(a, cosine)), n);
                v16_store_first(x + half + i, v16_fma(a, sine, v16_mul(b, cosine)), n);
            }
        }
    }
}

void ARES_K(rope)(ares_device *d, int32_t rows, int32_t heads, int32_t head_dim, int32_t turned,
                  void *x, int64_t ldx, const float *cos_sin, bool inverse)
{
    if (!turned) turned = head_dim;
    ARES_ASSERT(turned % 2 == 0 && turned <= head_dim);
    if (!cos_sin) return;
    rope_job j = { rows, heads, head_dim, turned, x, ldx, cos_sin, inverse };
    kernels_run(d, (double)rows * heads * head_dim / 5e3, (rows + ROPE_ROWS - 1) / ROPE_ROWS,
                rope_task, &j);
}

/*
 * Rows of the embedding by token id. Those of a tied model lie in the head's panels, where the
 * numbers of a row are 32 apart, or pairs of them 64, each before its predecessor. The gradient is
 * divided by columns, so that each task adds all tokens in row order, also where ids repeat.
 */

enum { EMBEDDING_ROWS = 16 };

typedef struct embedding_job {
    const ares_matrix *e;
    const int32_t *ids;
    int32_t n;
    float *y;
    const float *dy;
    int64_t ld, columns;
    float scale;
} embedding_job;

/* The first number of a row, and the distances of an even number of it and of the odd one after. */
typedef struct embedding_row {
    int64_t at, step, odd;
} embedding_row;
static embedding_row row_of(const ares_matrix *e, int64_t id)
{
    ARES_ASSERT(id >= 0 && id < e->n);
    int64_t step = e->layout == ARES_ROWS ? 1 : 32;
    return (embedding_row){ ares_matrix_at(e->layout, e->k, id, 0), step,
                            e->layout == ARES_PANEL32_PAIRS ? -1 : step };
}
static inline int64_t place(embedding_row q, int64_t i)
{
    return i / 2 * 2 * q.step + (i % 2 ? q.odd : 0);
}

static void embedding_task(void *ctx, int64_t task, int worker)
{
    const embedding_job *j = ctx;
    const ares_matrix *e = j->e;
    (void)worker;
    int64_t end = ARES_MIN((int64_t)j->n, (task + 1) * EMBEDDING_ROWS);
    for (int64_t r = task * EMBEDDING_ROWS; r < end; r++) {
        embedding_row q = row_of(e, j->ids[r]);
        float *y = j->y + r * j->ld;
        if (e->dtype == ARES_F32 && e->layout == ARES_ROWS && j->scale == 1.0f)
            memcpy(y, (const float *)e->data + q.at, (size_t)e->k * sizeof *y);
        else if (e->dtype == ARES_F32) {
            const float *from = (const float *)e->data + q.at;
            for (int64_t i = 0; i < e->k; i++) y[i] = j->scale * from[place(q, i)];
        } else {
            const uint16_t *from = (const uint16_t *)e->data + q.at;
            for (int64_t i = 0; i < e->k; i++) {
                uint32_t bits = (uint32_t)from[place(q, i)] << 16;
                memcpy(&y[i], &bits, 4);
                y[i] *= j->scale;
            }
        }
    }
}

void ARES_K(embedding)(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y,
                       int64_t ldy, float scale)
{
    embedding_job j = {
        .e = e, .ids = ids, .n = n, .y = y, .ld = ldy, .scale = scale != 0 ? scale : 1.0f
    };
    ARES_ASSERT(e->dtype != ARES_F16);
    kernels_run(d, (double)n * e->k / 500, (n + EMBEDDING_ROWS - 1) / EMBEDDING_ROWS,
                embedding_task, &j);
}

static void embedding_backward_task(void *ctx, int64_t task, int worker)
{
    const embedding_job *j = ctx;
    const ares_matrix *e = j->e;
    int64_t from = task * j->columns, to = ARES_MIN((int64_t)e->k, from + j->columns);
    (void)worker;
    for (int64_t r = 0; r < j->n; r++) {
        embedding_row q = row_of(e, j->ids[r]);
        float *row = (float *)e->data + q.at;
        const float *dy = j->dy + r * j->ld;
        for (int64_t i = from; i < to; i++) row[place(q, i)] += j->scale * dy[i];
    }
}

void ARES_K(embedding_backward)(ares_device *d, const ares_matrix *de, const int32_t *ids,
                                int32_t n, const void *dy, int64_t lddy, float scale)
{
    ARES_ASSERT(de->dtype == ARES_F32);
    int64_t tasks = ARES_MIN((int64_t)de->k, 4 * ares_pool_threads(d->pool));
    int64_t columns = (de->k + tasks - 1) / tasks;
    embedding_job j = { .e = de,
                        .ids = ids,
                        .n = n,
                        .dy = dy,
                        .ld = lddy,
                        .columns = (columns + 15) / 16 * 16,
                        .scale = scale != 0 ? scale : 1.0f };
    kernels_run(d, (double)n * de->k / 250, (de->k + j.columns - 1) / j.columns,
                embedding_backward_task, &j);
}
