/*
 * Rows of the embedding by token id. Those of a tied model lie in the head's panels, where the
 * numbers of a row are 32 apart. The gradient is divided by columns, so that each task adds all
 * tokens in row order, also where ids repeat.
 */
#include "isa.h"

enum { ROW_CHUNK = 16 };

typedef struct embedding_job {
    const ares_matrix *e;
    const int32_t *ids;
    int32_t n;
    float *y;
    const float *dy;
    int64_t ld, columns;
} embedding_job;

static void forward_task(void *ctx, int64_t task, int worker)
{
    const embedding_job *j = ctx;
    const ares_matrix *e = j->e;
    int64_t step = e->layout == ARES_PANEL32 ? 32 : 1;
    (void)worker;
    int64_t end = ARES_MIN((int64_t)j->n, (task + 1) * ROW_CHUNK);
    for (int64_t r = task * ROW_CHUNK; r < end; r++) {
        int64_t id = j->ids[r], at = step == 32 ? id / 32 * 32 * e->k + id % 32 : id * e->k;
        float *y = j->y + r * j->ld;
        ARES_ASSERT(id >= 0 && id < e->n);
        if (e->dtype == ARES_F32) {
            const float *from = (const float *)e->data + at;
            for (int64_t i = 0; i < e->k; i++) y[i] = from[i * step];
        } else {
            const uint16_t *from = (const uint16_t *)e->data + at;
            for (int64_t i = 0; i < e->k; i++) {
                uint32_t bits = (uint32_t)from[i * step] << 16;
                memcpy(&y[i], &bits, 4);
            }
        }
    }
}

void ARES_K(embedding)(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y,
                       int64_t ldy)
{
    embedding_job j = { .e = e, .ids = ids, .n = n, .y = y, .ld = ldy };
    ARES_ASSERT(e->dtype != ARES_F16);
    kernels_run(d, (double)n * e->k / 500, (n + ROW_CHUNK - 1) / ROW_CHUNK, forward_task, &j);
}

static void backward_task(void *ctx, int64_t task, int worker)
{
    const embedding_job *j = ctx;
    const ares_matrix *e = j->e;
    int64_t step = e->layout == ARES_PANEL32 ? 32 : 1;
    int64_t from = task * j->columns, to = ARES_MIN((int64_t)e->k, from + j->columns);
    (void)worker;
    for (int64_t r = 0; r < j->n; r++) {
        int64_t id = j->ids[r];
        float *row = (float *)e->data + (step == 32 ? id / 32 * 32 * e->k + id % 32 : id * e->k);
        const float *dy = j->dy + r * j->ld;
        ARES_ASSERT(id >= 0 && id < e->n);
        for (int64_t i = from; i < to; i++) row[i * step] += dy[i];
    }
}

void ARES_K(embedding_backward)(ares_device *d, const ares_matrix *de, const int32_t *ids,
                                int32_t n, const void *dy, int64_t lddy)
{
    ARES_ASSERT(de->dtype == ARES_F32);
    int64_t tasks = ARES_MIN((int64_t)de->k, 4 * ares_pool_threads(d->pool));
    int64_t columns = (de->k + tasks - 1) / tasks;
    embedding_job j = {
        .e = de, .ids = ids, .n = n, .dy = dy, .ld = lddy, .columns = (columns + 15) / 16 * 16
    };
    kernels_run(d, (double)n * de->k / 250, (de->k + j.columns - 1) / j.columns, backward_task, &j);
}
