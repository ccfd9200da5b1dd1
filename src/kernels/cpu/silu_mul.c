/* silu(gate) * up with silu(g) = g * sigmoid(g), and its gradient (SwiGLU, Shazeer 2020). */
#include "isa.h"

enum { ROW_CHUNK = 4 };

static void forward_task(void *ctx, int64_t task, int worker)
{
    const ares_silu_mul_args *a = ctx;
    const float *gate = a->gate, *up = a->up;
    float *y = a->y;
    (void)worker;
    int64_t end = ARES_MIN((int64_t)a->rows, (task + 1) * ROW_CHUNK);
    for (int64_t r = task * ROW_CHUNK; r < end; r++)
        for (int32_t i = 0; i < a->k; i += 16) {
            int n = ARES_MIN(16, a->k - i);
            v16 g = v16_load_first(gate + r * a->ldgu + i, n),
                u = v16_load_first(up + r * a->ldgu + i, n);
            v16_store_first(y + r * a->ldy + i, v16_mul(v16_mul(g, v16_sigmoid(g)), u), n);
        }
}

void ARES_K(silu_mul)(ares_device *d, const ares_silu_mul_args *a)
{
    ares_silu_mul_args own = *a;
    kernels_run(d, (double)a->rows * a->k / 2e3, (a->rows + ROW_CHUNK - 1) / ROW_CHUNK,
                forward_task, &own);
}

/* silu'(g) = s + silu(g) (1 - s), s = sigmoid(g) */
static void backward_task(void *ctx, int64_t task, int worker)
{
    const ares_silu_mul_args *a = ctx;
    const float *gate = a->gate, *up = a->up, *dys = a->dy;
    float *y = a->y, *d_gate = a->d_gate, *d_up = a->d_up;
    const v16 one = v16_set1(1.0f);
    (void)worker;
    int64_t end = ARES_MIN((int64_t)a->rows, (task + 1) * ROW_CHUNK);
    for (int64_t r = task * ROW_CHUNK; r < end; r++)
        for (int32_t i = 0; i < a->k; i += 16) {
            int n = ARES_MIN(16, a->k - i);
            v16 g = v16_load_first(gate + r * a->ldgu + i, n),
                u = v16_load_first(up + r * a->ldgu + i, n);
            v16 dy = v16_load_first(dys + r * a->lddy + i, n);
            v16 s = v16_sigmoid(g), silu = v16_mul(g, s);
            v16_store_first(d_up + r * a->lddgu + i, v16_mul(dy, silu), n);
            v16_store_first(d_gate + r * a->lddgu + i,
                            v16_mul(v16_mul(dy, u), v16_fma(silu, v16_sub(one, s), s)), n);
            if (y) v16_store_first(y + r * a->ldy + i, v16_mul(silu, u), n);
        }
}

void ARES_K(silu_mul_backward)(ares_device *d, const ares_silu_mul_args *a)
{
    ares_silu_mul_args own = *a;
    kernels_run(d, (double)a->rows * a->k / 1.5e3, (a->rows + ROW_CHUNK - 1) / ROW_CHUNK,
                backward_task, &own);
}
