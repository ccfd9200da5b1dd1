/*
 * Rotary embedding (Su et al. 2021) in the half-split form of GPT-NeoX and Hugging Face: elements i
 * and i + head_dim / 2 are a pair.
 */
#include "isa.h"

enum { ROW_CHUNK = 16 };

typedef struct rope_job {
    int32_t rows, heads, head_dim;
    float *x;
    int64_t ldx;
    const float *cos_sin;
    bool inverse;
} rope_job;

static void rope_task(void *ctx, int64_t task, int worker)
{
    const rope_job *j = ctx;
    int half = j->head_dim / 2;
    (void)worker;
    int64_t end = ARES_MIN((int64_t)j->rows, (task + 1) * ROW_CHUNK);
    for (int64_t r = task * ROW_CHUNK; r < end; r++) {
        const float *c = j->cos_sin + r * j->head_dim;
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

void ARES_K(rope)(ares_device *d, int32_t rows, int32_t heads, int32_t head_dim, void *x,
                  int64_t ldx, const float *cos_sin, bool inverse)
{
    ARES_ASSERT(head_dim % 2 == 0);
    rope_job j = { rows, heads, head_dim, x, ldx, cos_sin, inverse };
    kernels_run(d, (double)rows * heads * head_dim / 5e3, (rows + ROW_CHUNK - 1) / ROW_CHUNK,
                rope_task, &j);
}
