/* Sums and updates of whole arrays. */
#include "isa.h"

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
