/* RMS norm and layer norm on the CPU, forward and backward. */
#include "isa.h"

/* Root mean square norm (Zhang and Sennrich 2019) as in Llama: (x * rstd) * f(w). */

enum {
    ROW_CHUNK = 16,
    /* columns per task of the weight's gradient: whole cache lines, enough for the prefetcher */
    COLUMN_CHUNK = 64
};

typedef struct rms_norm_job {
    ares_rms_norm_args a;
    int64_t row_tasks; /* backward: the tasks before those of the columns */
} rms_norm_job;

/* 16 numbers of a row of width k from i on, and back; lanes beyond the row read 0. */
V16_INLINE v16 at(const float *p, int32_t i, int32_t k)
{
    return k - i >= 16 ? v16_load(p + i) : v16_load_first(p + i, k - i);
}
V16_INLINE void put(float *p, int32_t i, int32_t k, v16 v)
{
    if (k - i >= 16) v16_store(p + i, v);
    else v16_store_first(p + i, v, k - i);
}

/* 16 numbers of f(w); adding -0 changes no number, not even one of the zeros. */
V16_INLINE v16 weight_at(const ares_rms_norm_args *a, int32_t i)
{
    return v16_add(at(a->w, i, a->k), v16_set1(a->plus_one ? 1.0f : -0.0f));
}

/* Where row r begins. */
static inline int64_t row_at(const ares_rms_norm_args *a, int64_t r, int64_t ld)
{
    return a->heads ? r / a->heads * ld + r % a->heads * a->k : r * ld;
}
/* The same in x and dx. */
static inline int64_t x_at(const ares_rms_norm_args *a, int64_t r, int64_t ld)
{
    return a->x_head ? r / a->heads * ld + r % a->heads * a->x_head : row_at(a, r, ld);
}

/* ROW_CHUNK rows: y = residual + x rstd f(w), and rstd is kept for the backward pass. */
static void rms_norm_task(void *ctx, int64_t task, int worker)
{
    const ares_rms_norm_args *a = &((const rms_norm_job *)ctx)->a;
    (void)worker;
    int64_t end = ARES_MIN((int64_t)a->rows, (task + 1) * ROW_CHUNK);
    for (int64_t r = task * ROW_CHUNK; r < end; r++) {
        const float *x = (const float *)a->x + x_at(a, r, a->ldx);
        float *y = (float *)a->y + row_at(a, r, a->ldy);
        v16 sum = v16_zero();
        for (int32_t i = 0; i < a->k; i += 16) {
            v16 v = at(x, i, a->k);
            sum = v16_fma(v, v, sum);
        }
        float rstd = 1.0f / sqrtf(v16_sum(sum) / (float)a->k + a->eps);
        if (a->rstd) a->rstd[r] = rstd;
        v16 scale = v16_set1(rstd);
        const float *to = (const float *)a->residual;
        if (to) to += row_at(a, r, a->ldr);
        for (int32_t i = 0; i < a->k; i += 16) {
            v16 v = v16_mul(v16_mul(at(x, i, a->k), scale), weight_at(a, i));
            put(y, i, a->k, to ? v16_add(at(to, i, a->k), v) : v);
        }
    }
}

void ARES_K(rms_norm)(ares_device *d, const ares_rms_norm_args *a)
{
    rms_norm_job j = { .a = *a };
    /* the work in microseconds, as measured roughly; below WORTH_WAKING_US one thread does it */
    kernels_run(d, (double)a->rows * a->k / 5e3, (a->rows + ROW_CHUNK - 1) / ROW_CHUNK,
                rms_norm_task, &j);
}

/*
 * dx += rstd * (g - x * rstd^2 / k * sum(g x)) with g = f(w) dy; dw += (x * rstd) * dy, row after
 * row
 */
static void rms_norm_backward_task(void *ctx, int64_t task, int worker)
{
    const rms_norm_job *j = ctx;
    const ares_rms_norm_args *a = &j->a;
    int32_t k = a->k;
    (void)worker;
    /* the first tasks make dx of some rows, the others dw of some columns over all rows */
    if (task < j->row_tasks) {
        int64_t end = ARES_MIN((int64_t)a->rows, (task + 1) * ROW_CHUNK);
        for (int64_t r = task * ROW_CHUNK; r < end; r++) {
            const float *x = (const float *)a->x + x_at(a, r, a->ldx),
                        *dy = (const float *)a->dy + row_at(a, r, a->lddy);
            float *dx = (float *)a->dx + x_at(a, r, a->lddx), rstd = a->rstd[r];
            v16 sum = v16_zero();
            for (int32_t i = 0; i < k; i += 16)
                sum = v16_fma(v16_mul(at(dy, i, k), weight_at(a, i)), at(x, i, k), sum);
            v16 scale = v16_set1(rstd), pull = v16_set1(v16_sum(sum) * (rstd * rstd) / (float)k);
            for (int32_t i = 0; i < k; i += 16) {
                v16 g = v16_fnma(at(x, i, k), pull, v16_mul(at(dy, i, k), weight_at(a, i)));
                put(dx, i, k, v16_fma(g, scale, at(dx, i, k)));
            }
        }
        return;
    }
    int32_t from = (int32_t)(task - j->row_tasks) * COLUMN_CHUNK,
            to = ARES_MIN(k, from + COLUMN_CHUNK);
    const float *x = a->x, *dy = a->dy;
    /* one chain over the rows per column: the same bits for any number of threads */
    v16 sum[COLUMN_CHUNK / 16];
    for (int32_t i = from; i < to; i += 16) sum[(i - from) / 16] = at(a->dw, i, k);
    for (int64_t r = 0; r < a->rows; r++) {
        v16 scale = v16_set1(a->rstd[r]);
        for (int32_t i = from; i < to; i += 16) {
            v16 *s = &sum[(i - from) / 16];
            *s = v16_fma(v16_mul(at(x + x_at(a, r, a->ldx), i, k), scale),
                         at(dy + row_at(a, r, a->lddy), i, k), *s);
        }
    }
    for (int32_t i = from; i < to; i += 16) put(a->dw, i, k, sum[(i - from) / 16]);
}

void ARES_K(rms_norm_backward)(ares_device *d, const ares_rms_norm_args *a)
{
    rms_norm_job j = { .a = *a, .row_tasks = (a->rows + ROW_CHUNK - 1) / ROW_CHUNK };
    int64_t column_tasks = a->dw ? (a->k + COLUMN_CHUNK - 1) / COLUMN_CHUNK : 0;
    kernels_run(d, (double)a->rows * a->k / 2e3, j.row_tasks + column_tasks, rms_norm_backward_task,
                &j);
}

/* Layer norm with weight and bias (Ba et al. 2016). The variance is biased, of x - mean. */

typedef struct layer_norm_job {
    ares_layer_norm_args a;
    int64_t row_tasks; /* backward: the tasks before those of the columns */
} layer_norm_job;

/* x - mean; 0 in the lanes beyond the row. */
V16_INLINE v16 centred(const float *x, int32_t i, int32_t k, v16 mean)
{
    v16 v = v16_sub(at(x, i, k), mean);
    return k - i >= 16 ? v : v16_select(v16m_first(k - i), v, v16_zero());
}

/* Two passes over a row: the mean, then the squares around it, which does not cancel. */
static void layer_norm_task(void *ctx, int64_t task, int worker)
{
    const ares_layer_norm_args *a = &((const layer_norm_job *)ctx)->a;
    int32_t k = a->k;
    (void)worker;
    int64_t end = ARES_MIN((int64_t)a->rows, (task + 1) * ROW_CHUNK);
    for (int64_t r = task * ROW_CHUNK; r < end; r++) {
        const float *x = (const float *)a->x + r * a->ldx;
        float *y = (float *)a->y + r * a->ldy;
        v16 sum = v16_zero(), squares = v16_zero();
        for (int32_t i = 0; i < k; i += 16) sum = v16_add(sum, at(x, i, k));
        float mean = v16_sum(sum) / (float)k;
        v16 m = v16_set1(mean);
        for (int32_t i = 0; i < k; i += 16) {
            v16 v = centred(x, i, k, m);
            squares = v16_fma(v, v, squares);
        }
        float rstd = 1.0f / sqrtf(v16_sum(squares) / (float)k + a->eps);
        if (a->mean) a->mean[r] = mean;
        if (a->rstd) a->rstd[r] = rstd;
        v16 scale = v16_set1(rstd);
        for (int32_t i = 0; i < k; i += 16)
            put(y, i, k,
                v16_fma(v16_mul(v16_sub(at(x, i, k), m), scale), at(a->w, i, k),
                        at(a->bias, i, k)));
    }
}

void ARES_K(layer_norm)(ares_device *d, const ares_layer_norm_args *a)
{
    layer_norm_job j = { .a = *a };
    kernels_run(d, (double)a->rows * a->k / 4e3, (a->rows + ROW_CHUNK - 1) / ROW_CHUNK,
                layer_norm_task, &j);
}

/*
 * With x^ = (x - mean) rstd and g = w dy: dx += rstd (g - mean(g) - x^ mean(g x^)); dw += x^ dy and
 * dbias += dy, row after row. As in rms_norm_backward_task rows come first, then columns.
 */
static void layer_norm_backward_task(void *ctx, int64_t task, int worker)
{
    const layer_norm_job *j = ctx;
    const ares_layer_norm_args *a = &j->a;
    int32_t k = a->k;
    (void)worker;
    if (task < j->row_tasks) {
        int64_t end = ARES_MIN((int64_t)a->rows, (task + 1) * ROW_CHUNK);
        for (int64_t r = task * ROW_CHUNK; r < end; r++) {
            const float *x = (const float *)a->x + r * a->ldx,
                        *dy = (const float *)a->dy + r * a->lddy;
            float *dx = (float *)a->dx + r * a->lddx;
            v16 mean = v16_set1(a->mean[r]), rstd = v16_set1(a->rstd[r]), sum = v16_zero(),
                product = v16_zero();
            for (int32_t i = 0; i < k; i += 16) {
                v16 g = v16_mul(at(dy, i, k), at(a->w, i, k));
                sum = v16_add(sum, g);
                product = v16_fma(g, v16_mul(centred(x, i, k, mean), rstd), product);
            }
            v16 shift = v16_set1(v16_sum(sum) / (float)k),
                pull = v16_set1(v16_sum(product) / (float)k);
            for (int32_t i = 0; i < k; i += 16) {
                v16 hat = v16_mul(centred(x, i, k, mean), rstd),
                    g = v16_sub(v16_mul(at(dy, i, k), at(a->w, i, k)), shift);
                put(dx, i, k, v16_fma(v16_fnma(hat, pull, g), rstd, at(dx, i, k)));
            }
        }
        return;
    }
    int32_t from = (int32_t)(task - j->row_tasks) * COLUMN_CHUNK,
            to = ARES_MIN(k, from + COLUMN_CHUNK);
    v16 dw[COLUMN_CHUNK / 16], db[COLUMN_CHUNK / 16]; /* one chain over the rows per element */
    for (int32_t i = from; i < to; i += 16) {
        dw[(i - from) / 16] = a->dw ? at(a->dw, i, k) : v16_zero();
        db[(i - from) / 16] = a->dbias ? at(a->dbias, i, k) : v16_zero();
    }
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = (const float *)a->x + r * a->ldx, *dy = (const float *)a->dy + r * a->lddy;
        v16 mean = v16_set1(a->mean[r]), rstd = v16_set1(a->rstd[r]);
        for (int32_t i = from; i < to; i += 16) {
            v16 *w = &dw[(i - from) / 16], *b = &db[(i - from) / 16], g = at(dy, i, k);
            *w = v16_fma(v16_mul(centred(x, i, k, mean), rstd), g, *w);
            *b = v16_add(*b, g);
        }
    }
    for (int32_t i = from; i < to; i += 16) {
        if (a->dw) put(a->dw, i, k, dw[(i - from) / 16]);
        if (a->dbias) put(a->dbias, i, k, db[(i - from) / 16]);
    }
}

void ARES_K(layer_norm_backward)(ares_device *d, const ares_layer_norm_args *a)
{
    layer_norm_job j = { .a = *a, .row_tasks = (a->rows + ROW_CHUNK - 1) / ROW_CHUNK };
    int64_t column_tasks = a->dw || a->dbias ? (a->k + COLUMN_CHUNK - 1) / COLUMN_CHUNK : 0;
    kernels_run(d, (double)a->rows * a->k / 1.5e3, j.row_tasks + column_tasks,
                layer_norm_backward_task, &j);
}
