/* silu(gate) * up with silu(g) = g * sigmoid(g), and its gradient (SwiGLU, Shazeer 2020). */
#include "isa.h"

enum { ROW_CHUNK = 4 };

typedef struct silu_job {
    int32_t rows, k;
    const float *dy, *gate, *up;
    int64_t lddy, ldgu, lddgu, ldy;
    float *d_gate, *d_up, *y;
} silu_job;

static void forward_task(void *ctx, int64_t task, int worker)
{
    const silu_job *j = ctx;
    (void)worker;
    int64_t end = ARES_MIN((int64_t)j->rows, (task + 1) * ROW_CHUNK);
    for (int64_t r = task * ROW_CHUNK; r < end; r++)
        for (int32_t i = 0; i < j->k; i += 16) {
            int n = ARES_MIN(16, j->k - i);
            v16 g = v16_load_first(j->gate + r * j->ldgu + i, n),
                u = v16_load_first(j->up + r * j->ldgu + i, n);
            v16_store_first(j->y + r * j->ldy + i, v16_mul(v16_mul(g, v16_sigmoid(g)), u), n);
        }
}

void ARES_K(silu_mul)(ares_device *d, int32_t rows, int32_t k, const float *gate, const float *up,
                      int64_t ldgu, float *y, int64_t ldy)
{
    silu_job j = { .rows = rows, .k = k, .gate = gate, .up = up, .ldgu = ldgu, .y = y, .ldy = ldy };
    kernels_run(d, (double)rows * k / 2e3, (rows + ROW_CHUNK - 1) / ROW_CHUNK, forward_task, &j);
}

/* silu'(g) = s + silu(g) (1 - s), s = sigmoid(g) */
static void backward_task(void *ctx, int64_t task, int worker)
{
    const silu_job *j = ctx;
    const v16 one = v16_set1(1.0f);
    (void)worker;
    int64_t end = ARES_MIN((int64_t)j->rows, (task + 1) * ROW_CHUNK);
    for (int64_t r = task * ROW_CHUNK; r < end; r++)
        for (int32_t i = 0; i < j->k; i += 16) {
            int n = ARES_MIN(16, j->k - i);
            v16 g = v16_load_first(j->gate + r * j->ldgu + i, n),
                u = v16_load_first(j->up + r * j->ldgu + i, n);
            v16 dy = v16_load_first(j->dy + r * j->lddy + i, n);
            v16 s = v16_sigmoid(g), silu = v16_mul(g, s);
            v16_store_first(j->d_up + r * j->lddgu + i, v16_mul(dy, silu), n);
            v16_store_first(j->d_gate + r * j->lddgu + i,
                            v16_mul(v16_mul(dy, u), v16_fma(silu, v16_sub(one, s), s)), n);
            if (j->y) v16_store_first(j->y + r * j->ldy + i, v16_mul(silu, u), n);
        }
}

void ARES_K(silu_mul_backward)(ares_device *d, int32_t rows, int32_t k, const float *dy,
                               int64_t lddy, const float *gate, const float *up, int64_t ldgu,
                               float *d_gate, float *d_up, int64_t lddgu, float *y, int64_t ldy)
{
    silu_job j = { .rows = rows,
                   .k = k,
                   .dy = dy,
                   .lddy = lddy,
                   .gate = gate,
                   .up = up,
                   .ldgu = ldgu,
                   .d_gate = d_gate,
                   .d_up = d_up,
                   .lddgu = lddgu,
                   .y = y,
                   .ldy = ldy };
    kernels_run(d, (double)rows * k / 1.5e3, (rows + ROW_CHUNK - 1) / ROW_CHUNK, backward_task, &j);
}
