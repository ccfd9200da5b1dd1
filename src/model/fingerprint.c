/*
 * Two numbers that tell weights apart. One says which weights a directory holds, from the names,
 * types and shapes of all tensors and some bytes of each. Reading all bytes of a large model would
 * take seconds, and two models that were trained apart differ nearly everywhere. The other is of
 * everything that a checkpoint holds: the sum of a hash per number, keyed by tensor and position,
 * so that ranks may add any parts of it in any order.
 */
#include <stdatomic.h>
#include <string.h>

#include "ares/io.h"
#include "pieces.h"

enum { PLACES = 16, PIECE = 64 }; /* places in a tensor, bytes at each */

static uint64_t tensor(uint64_t h, const ares_tensor_info *t)
{
    h = ares_fnv1a(h, t->name, strlen(t->name) + 1);
    h = ares_fnv1a(h, t->dtype_name, strlen(t->dtype_name) + 1);
    h = ares_fnv1a(h, t->shape, (size_t)t->rank * sizeof *t->shape);
    for (int64_t i = 0; i < PLACES; i++) {
        int64_t at = t->bytes / PLACES * i;
        h = ares_fnv1a(h, (const char *)t->data + at, (size_t)ARES_MIN(PIECE, t->bytes - at));
    }
    return h;
}

int ares_model_fingerprint(const char *dir, uint64_t *out)
{
    ares_safetensors *s;
    uint64_t h = ARES_FNV1A;
    ARES_TRY(ares_safetensors_open(dir, &s));
    for (int64_t i = 0; i < ares_safetensors_count(s); i++)
        h = tensor(h, ares_safetensors_at(s, i));
    ares_safetensors_close(s);
    *out = h;
    return ARES_OK;
}

/* ---------------------------------------------------------------- of all numbers */
typedef struct hash_job {
    uint64_t key;
    const void *rows;
    ares_dtype dtype;
    int64_t n, columns, at, stride; /* element i stands at `at` + its row x stride + its column */
    _Atomic uint64_t sum;
} hash_job;

enum { HASH_CHUNK = 1 << 16 };

static uint64_t hash_of(uint64_t key, int64_t at, uint64_t bits)
{
    uint64_t h = key + (uint64_t)at * 0x9e3779b97f4a7c15u;
    h = (h ^ bits) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 32) * 0x94d049bb133111ebu;
    return h ^ h >> 29;
}

static void hash_chunk(void *ctx, int64_t task, int worker)
{
    (void)worker;
    hash_job *j = ctx;
    int64_t i = task * HASH_CHUNK, end = ARES_MIN(j->n, i + HASH_CHUNK);
    uint64_t sum = 0;
    while (i < end) { /* row by row */
        int64_t column = i % j->columns, stop = ARES_MIN(end, i + j->columns - column),
                at = j->at + i / j->columns * j->stride + column;
        if (j->dtype == ARES_F32)
            for (const uint32_t *x = j->rows; i < stop; i++) sum += hash_of(j->key, at++, x[i]);
        else
            for (const uint16_t *x = j->rows; i < stop; i++) sum += hash_of(j->key, at++, x[i]);
    }
    atomic_fetch_add(&j->sum, sum);
}

void fingerprint_add(const ares_model *m, const piece *x, piece_kind kind, const void *rows,
                     ares_dtype dtype, uint64_t *sum)
{
    int64_t k = x->p->weight.k;
    uint64_t name = ares_fnv1a(ARES_FNV1A, x->p->name, strlen(x->p->name));
    hash_job j = { .key = ares_fnv1a(name, &(char){ (char)kind }, 1),
                   .rows = rows,
                   .dtype = dtype,
                   .n = x->rows * x->columns,
                   .columns = x->columns,
                   .at = x->row * k + x->column,
                   .stride = k };
    ares_pool_run(m->device->pool, (j.n + HASH_CHUNK - 1) / HASH_CHUNK, hash_chunk, &j);
    *sum += j.sum;
}
