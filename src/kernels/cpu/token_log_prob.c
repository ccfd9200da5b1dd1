/*
 * Log-prob and entropy of logits that exist already; backward works in place. Chunks and merges are
 * the head's, so f32 logits give its bits; bf16 logits are widened to f32 chunk by chunk.
 */
#include "vocab.h"

typedef struct rows_job {
    ares_device *d;
    const ares_logits_args *a;
} rows_job;

static void *row_of(const ares_logits_args *a, int64_t row)
{
    return (char *)a->logits + (size_t)(row * a->ld) * ares_dtype_bytes(a->dtype);
}

/* A chunk of a row as f32: the row itself, or its copy in `wide`. */
static float *chunk_of(const ares_logits_args *a, void *row, int64_t chunk, float *wide)
{
    int n = vocab_width(a->vocab, chunk);
    if (a->dtype == ARES_F32) return (float *)row + chunk * VOCAB_CHUNK;
    const uint16_t *from = (const uint16_t *)row + chunk * VOCAB_CHUNK;
    for (int i = 0; i < n; i += 16)
        v16_store(wide + i,
                  n - i >= 16 ? v16_load_bf16(from + i) : v16_load_bf16_first(from + i, n - i));
    return wide;
}

static void forward_row(void *ctx, int64_t row, int worker)
{
    const rows_job *j = ctx;
    const ares_logits_args *a = j->a;
    int64_t chunks = vocab_chunks(a->vocab), target = a->target[row];
    float wide[VOCAB_CHUNK], taken = 0;
    vocab_part *part = kernels_scratch(j->d, worker, (size_t)chunks * sizeof(vocab_part));
    for (int64_t c = 0; c < chunks; c++) {
        const float *z = chunk_of(a, row_of(a, row), c, wide);
        part[c] = vocab_part_of(z, vocab_width(a->vocab, c), a->inv_temperature);
        if (target / VOCAB_CHUNK == c) taken = z[target % VOCAB_CHUNK] * a->inv_temperature;
    }
    vocab_total t = vocab_merge(part, chunks);
    a->log_prob[row] = vocab_log_prob(&t, taken);
    if (a->entropy) a->entropy[row] = t.entropy;
    if (a->lse) a->lse[row] = t.max + t.log_sum;
}

static void backward_row(void *ctx, int64_t row, int worker)
{
    (void)worker;
    const ares_logits_args *a = ((const rows_job *)ctx)->a;
    float wide[VOCAB_CHUNK], c = a->c_log_prob[row], ce = a->c_entropy ? a->c_entropy[row] : 0.0f;
    int64_t target = a->target[row];
    for (int64_t chunk = 0; chunk < vocab_chunks(a->vocab); chunk++) {
        int n = vocab_width(a->vocab, chunk);
        float *z = chunk_of(a, row_of(a, row), chunk, wide);
        vocab_differentiate(z, n, a->inv_temperature, a->lse[row], a->entropy[row], c, ce);
        if (target / VOCAB_CHUNK == chunk) z[target % VOCAB_CHUNK] += c * a->inv_temperature;
        if (a->dtype == ARES_F32) continue;
        uint16_t *to = (uint16_t *)row_of(a, row) + chunk * VOCAB_CHUNK;
        for (int i = 0; i < n; i += 16) {
            if (n - i >= 16) v16_store_bf16(to + i, v16_load(z + i));
            else v16_store_bf16_first(to + i, v16_load_first(z + i, n - i), n - i);
        }
    }
}

static void run(ares_device *d, const ares_logits_args *a, void (*task)(void *, int64_t, int))
{
    ARES_ASSERT(a->dtype != ARES_F16);
    for (int32_t r = 0; r < a->rows; r++) ARES_ASSERT(a->target[r] >= 0 && a->target[r] < a->vocab);
    rows_job j = { d, a };
    kernels_run(d, (double)a->rows * a->vocab / 2e3, a->rows, task, &j);
}

void ARES_K(token_log_prob)(ares_device *d, const ares_logits_args *a)
{
    run(d, a, forward_row);
}
void ARES_K(token_log_prob_backward)(ares_device *d, const ares_logits_args *a)
{
    run(d, a, backward_row);
}
