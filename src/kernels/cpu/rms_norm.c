/* Root mean square norm (Zhang and Sennrich 2019) as in Llama: (x * rstd) * w. */
#include "isa.h"

/*
 * Columns of one task of the weight's gradient: whole cache lines, and enough of them for the
 * prefetcher.
 */
enum { ROW_CHUNK = 16, COLUMN_CHUNK = 64 };

typedef struct rms_norm_job {
    int32_t rows, k;
    const float *dy, *x, *w, *rstd_in;
    int64_t lddy, ldx, ldy, lddx;
    float eps, *y, *rstd, *dx, *dw;
    int64_t row_tasks;
} rms_norm_job;

V16_INLINE v16 at(const float *p, int32_t i, int32_t k)
{
    return k - i >= 16 ? v16_load(p + i) : v16_load_first(p + i, k - i);
}
V16_INLINE void put(float *p, int32_t i, int32_t k, v16 v)
{
    if (k - i >= 16) v16_store(p + i, v);
    else v16_store_first(p + i, v, k - i);
}

static void forward_task(void *ctx, int64_t task, int worker)
{
    const rms_norm_job *j = ctx;
    (void)worker;
    int64_t end = ARES_MIN((int64_t)j->rows, (task + 1) * ROW_CHUNK);
    for (int64_t r = task * ROW_CHUNK; r < end; r++) {
        const float *x = j->x + r * j->ldx;
        float *y = j->y + r * j->ldy;
        v16 sum = v16_zero();
        for (int32_t i = 0; i < j->k; i += 16) {
            v16 v = at(x, i, j->k);
            sum = v16_fma(v, v, sum);
        }
        float rstd = 1.0f / sqrtf(v16_sum(sum) / (float)j->k + j->eps);
        if (j->rstd) j->rstd[r] = rstd;
        v16 scale = v16_set1(rstd);
        for (int32_t i = 0; i < j->k; i += 16)
            put(y, i, j->k, v16_mul(v16_mul(at(x, i, j->k), scale), at(j->w, i, j->k)));
    }
}

void ARES_K(rms_norm)(ares_device *d, int32_t rows, int32_t k, const float *x, int64_t ldx,
                      const float *w, float eps, float *y, int64_t ldy, float *rstd)
{
    rms_norm_job j = { .rows = rows,
                       .k = k,
                       .x = x,
                       .ldx = ldx,
                       .w = w,
                       .eps = eps,
                       .y = y,
                       .ldy = ldy,
                       .rstd = rstd };
    kernels_run(d, (double)rows * k / 5e3, (rows + ROW_CHUNK - 1) / ROW_CHUNK, forward_task, &j);
}

/* dx += rstd * (w dy - x * rstd^2 / k * sum(w dy x)); dw += (x * rstd) * dy, row after row */
static void backward_task(void *ctx, int64_t task, int worker)
{
    const rms_norm_job *j = ctx;
    int32_t k = j->k;
    (void)worker;
    if (task < j->row_tasks) {
        int64_t end = ARES_MIN((int64_t)j->rows, (task + 1) * ROW_CHUNK);
        for (int64_t r = task * ROW_CHUNK; r < end; r++) {
            const float *x = j->x + r * j->ldx, *dy = j->dy + r * j->lddy;
            float *dx = j->dx + r * j->lddx, rstd = j->rstd_in[r];
            v16 sum = v16_zero();
            for (int32_t i = 0; i < k; i += 16)
                sum = v16_fma(v16_mul(at(dy, i, k), at(j->w, i, k)), at(x, i, k), sum);
            v16 scale = v16_set1(rstd), pull = v16_set1(v16_sum(sum) * (rstd * rstd) / (float)k);
            for (int32_t i = 0; i < k; i += 16) {
                v16 g = v16_fnma(at(x, i, k), pull, v16_mul(at(dy, i, k), at(j->w, i, k)));
                put(dx, i, k, v16_fma(g, scale, at(dx, i, k)));
            }
        }
        return;
    }
    int32_t from = (int32_t)(task - j->row_tasks) * COLUMN_CHUNK,
            to = ARES_MIN(k, from + COLUMN_CHUNK);
    v16 sum[COLUMN_CHUNK / 16];
    for (int32_t i = from; i < to; i += 16) sum[(i - from) / 16] = at(j->dw, i, k);
    for (int64_t r = 0; r < j->rows; r++) {
        v16 scale = v16_set1(j->rstd_in[r]);
        for (int32_t i = from; i < to; i += 16) {
            v16 *s = &sum[(i - from) / 16];
            *s = v16_fma(v16_mul(at(j->x + r * j->ldx, i, k), scale), at(j->dy + r * j->lddy, i, k),
                         *s);
        }
    }
    for (int32_t i = from; i < to; i += 16) put(j->dw, i, k, sum[(i - from) / 16]);
}

void ARES_K(rms_norm_backward)(ares_device *d, int32_t rows, int32_t k, const float *dy,
                               int64_t lddy, const float *x, int64_t ldx, const float *w,
                               const float *rstd, float *dx, int64_t lddx, float *dw)
{
    rms_norm_job j = { .rows = rows,
                       .k = k,
                       .dy = dy,
                       .lddy = lddy,
                       .x = x,
                       .ldx = ldx,
                       .w = w,
                       .rstd_in = rstd,
                       .dx = dx,
                       .lddx = lddx,
                       .dw = dw,
                       .row_tasks = (rows + ROW_CHUNK - 1) / ROW_CHUNK };
    int64_t column_tasks = dw ? (k + COLUMN_CHUNK - 1) / COLUMN_CHUNK : 0;
    kernels_run(d, (double)rows * k / 2e3, j.row_tasks + column_tasks, backward_task, &j);
}
