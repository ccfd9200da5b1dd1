/*
 * New keys and values into the paged cache. In one layer the keys of block b and KV head h begin at
 * ((b * n_kv_heads + h) * 2) * 32 * head_dim, transposed, [head_dim][32], so that attention's lanes
 * are keys. The values [32][head_dim] follow.
 */
#include "isa.h"

typedef struct store_job {
    int32_t rows, n_kv, head_dim;
    const float *k, *v;
    int64_t ldkv;
    const int32_t *slots;
    float *cache;
} store_job;

enum { ROWS_PER_TASK = 64 };

static void store_rows(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const store_job *j = ctx;
    int64_t dim = j->head_dim, first = task * ROWS_PER_TASK,
            end = first + ROWS_PER_TASK < j->rows ? first + ROWS_PER_TASK : j->rows;
    for (int64_t r = first; r < end; r++) {
        int64_t block = j->slots[r] / ARES_KV_BLOCK, at = j->slots[r] % ARES_KV_BLOCK;
        for (int64_t h = 0; h < j->n_kv; h++) {
            float *keys = j->cache + (block * j->n_kv + h) * 2 * ARES_KV_BLOCK * dim,
                  *values = keys + ARES_KV_BLOCK * dim;
            const float *k = j->k + r * j->ldkv + h * dim;
            for (int64_t i = 0; i < dim; i++) keys[i * ARES_KV_BLOCK + at] = k[i];
            memcpy(values + at * dim, j->v + r * j->ldkv + h * dim, (size_t)dim * sizeof(float));
        }
    }
}

void ARES_K(store_kv)(ares_device *d, int32_t rows, int32_t n_kv, int32_t head_dim, const void *k,
                      const void *v, int64_t ldkv, const int32_t *slots, void *cache)
{
    store_job job = { rows, n_kv, head_dim, k, v, ldkv, slots, cache };
    kernels_run(d, (double)rows * n_kv * head_dim / 1e3, (rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK,
                store_rows, &job);
}
