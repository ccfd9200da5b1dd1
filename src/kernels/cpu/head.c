/*
 * The vocabulary head. Forward leaves three numbers for each row and chunk; backward makes a block of logits again, turns
 * it into their derivatives in place and hands it to linear_backward; head_fused keeps the logits of as many rows as a
 * fixed scratch holds and so computes them once. Every element is the same chain on all three ways.
 */
#include "vocab.h"

enum {
    FORWARD_ROWS = 4096,  /* rows whose parts are held at once */
    BACKWARD_ROWS = 1024, /* rows, and with them logits, of a block of backward */
    BACKWARD_LOGITS = 1 << 20,
    FUSED_LOGITS = 1 << 24, /* 64 MiB of logits, but never fewer rows than FUSED_ROWS */
    FUSED_ROWS = 128,
    LD_PAD = 16 /* rows a power of two apart would fight for the same cache sets */
};

typedef struct head_job {
    ares_device *d;
    const ares_head_args *a;
    int64_t row, rows, rows_a_task; /* this block of rows */
    int64_t chunk, chunks;          /* this range of the vocabulary */
    float *logits;
    int64_t ld;                          /* [rows][ld] of the range; forward: may be NULL */
    vocab_part *part;                    /* forward: [rows][chunks] */
    const float *c_log_prob, *c_entropy; /* backward: of the block's rows */
} head_job;

/* The task's rows and its chunk. */
typedef struct span {
    int64_t first, rows, chunk;
} span;
static span span_of(const head_job *j, int64_t task)
{
    int64_t first = task / j->chunks * j->rows_a_task;
    return (span){ first, ARES_MIN(j->rows_a_task, j->rows - first), j->chunk + task % j->chunks };
}
static void run_tasks(head_job *j, double work_us, ares_task_fn *fn)
{
    j->rows_a_task = vocab_rows_a_task(j->rows, j->chunks, ares_pool_threads(j->d->pool));
    kernels_run(j->d, work_us, (j->rows + j->rows_a_task - 1) / j->rows_a_task * j->chunks, fn, j);
}
static double work_us(const head_job *j)
{
    return vocab_work_us(j->a->w, j->rows, ARES_MIN((int64_t)VOCAB_CHUNK * j->chunks, (int64_t)j->a->vocab));
}

static void forward_task(void *ctx, int64_t task, int worker)
{
    const head_job *j = ctx;
    const ares_head_args *a = j->a;
    span s = span_of(j, task);
    int width = vocab_width(a->vocab, s.chunk);
    float *z = j->logits ? j->logits + s.first * j->ld + s.chunk * VOCAB_CHUNK
                         : kernels_scratch(j->d, worker, (size_t)s.rows * VOCAB_CHUNK * sizeof(float));
    int64_t ldz = j->logits ? j->ld : VOCAB_CHUNK;
    vocab_logits(a->w, a->vocab, s.chunk, a->x + (j->row + s.first) * a->ldx, a->ldx, s.rows, z, ldz);
    for (int64_t r = 0; r < s.rows; r++) {
        int64_t row = j->row + s.first + r, target = a->target[row] - s.chunk * VOCAB_CHUNK;
        j->part[(s.first + r) * j->chunks + s.chunk] = vocab_part_of(z + r * ldz, width, a->inv_temperature);
        if (target >= 0 && target < width)
            a->log_prob[row] = z[r * ldz + target] * a->inv_temperature; /* rests there until merged */
    }
}

static void merge_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const head_job *j = ctx;
    const ares_head_args *a = j->a;
    for (int64_t r = task * VOCAB_ROWS; r < ARES_MIN(j->rows, (task + 1) * VOCAB_ROWS); r++) {
        int64_t row = j->row + r;
        vocab_total t = vocab_merge(j->part + r * j->chunks, j->chunks);
        a->log_prob[row] = vocab_log_prob(&t, a->log_prob[row]);
        a->entropy[row] = t.entropy;
        a->lse[row] = t.max + t.log_sum;
    }
}

static void forward(head_job *j)
{
    run_tasks(j, work_us(j), forward_task);
    kernels_run(j->d, (double)(j->rows * j->chunks) / 100, (j->rows + VOCAB_ROWS - 1) / VOCAB_ROWS,
                merge_task, j);
}

static void check(const ares_head_args *a)
{
    ARES_ASSERT(a->w->layout == ARES_PANEL32 && a->vocab <= a->w->n && a->w->dtype != ARES_F16);
    for (int32_t r = 0; r < a->rows; r++) ARES_ASSERT(a->target[r] >= 0 && a->target[r] < a->vocab);
}

void ARES_K(head)(ares_device *d, const ares_head_args *a)
{
    check(a);
    int64_t chunks = vocab_chunks(a->vocab);
    for (int64_t row = 0; row < a->rows; row += FORWARD_ROWS) {
        head_job j = {
            .d = d, .a = a, .row = row, .rows = ARES_MIN(FORWARD_ROWS, a->rows - row), .chunks = chunks
        };
        j.part = kernels_scratch(d, KERNELS_SHARED, (size_t)(j.rows * chunks) * sizeof(vocab_part));
        forward(&j);
    }
}

/* Raw logits become d loss / d logits: with p = exp(z - lse), -(p (c + ce (log p + H))) and + c at the target, over the temperature. */
static void differentiate(float *z, int n, float inv_temperature, float lse, float entropy, float c, float ce)
{
    v16 scale = v16_set1(inv_temperature), vc = v16_set1(c), vce = v16_set1(ce), h = v16_set1(entropy),
        shift = v16_set1(lse);
    for (int i = 0; i < n; i += 16) {
        int lanes = ARES_MIN(16, n - i);
        v16 d = v16_sub(v16_mul(lanes == 16 ? v16_load(z + i) : v16_load_first(z + i, lanes), scale), shift);
        v16 g = v16_mul(v16_mul(v16_exp(d), v16_fma(vce, v16_add(d, h), vc)), v16_neg(scale));
        if (lanes == 16) v16_store(z + i, g);
        else v16_store_first(z + i, g, lanes);
    }
}

static void gradient_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const head_job *j = ctx;
    const ares_head_args *a = j->a;
    span s = span_of(j, task);
    int width = vocab_width(a->vocab, s.chunk);
    float *z = j->logits + s.first * j->ld + (s.chunk - j->chunk) * VOCAB_CHUNK;
    if (!j->part)
        vocab_logits(a->w, a->vocab, s.chunk, a->x + (j->row + s.first) * a->ldx, a->ldx, s.rows, z, j->ld);
    for (int64_t r = 0; r < s.rows; r++) {
        int64_t at = s.first + r, row = j->row + at, target = a->target[row] - s.chunk * VOCAB_CHUNK;
        float c = j->c_log_prob[at], ce = j->c_entropy ? j->c_entropy[at] : 0.0f;
        differentiate(z + r * j->ld, width, a->inv_temperature, a->lse[row], a->entropy[row], c, ce);
        if (target >= 0 && target < width) z[r * j->ld + target] += c * a->inv_temperature;
    }
}

/* The logits of the job's block become their derivatives, and these dx and dw. */
static void backward(head_job *j)
{
    const ares_head_args *a = j->a;
    run_tasks(j, work_us(j), gradient_task);
    int64_t first = j->chunk * VOCAB_CHUNK, n = ARES_MIN((int64_t)VOCAB_CHUNK * j->chunks, a->vocab - first);
    ares_matrix w = *a->w, dw;
    w.data = (char *)w.data + (size_t)(first * w.k) * ares_dtype_bytes(w.dtype);
    w.n = (int32_t)n;
    if (a->dw) {
        dw = *a->dw;
        dw.data = (float *)dw.data + first * w.k;
        dw.n = (int32_t)n;
    }
    ARES_K(linear_backward)
    (j->d, &(ares_linear_backward_args){ .m = (int32_t)j->rows,
                                         .dy = j->logits,
                                         .lddy = j->ld,
                                         .w = &w,
                                         .dx = a->dx ? a->dx + j->row * a->lddx : NULL,
                                         .lddx = a->lddx,
                                         .accumulate = first > 0,
                                         .x = a->x + j->row * a->ldx,
                                         .ldx = a->ldx,
                                         .dw = a->dw ? &dw : NULL });
}

void ARES_K(head_backward)(ares_device *d, const ares_head_args *a)
{
    check(a);
    int64_t chunks = vocab_chunks(a->vocab);
    for (int64_t row = 0; row < a->rows; row += BACKWARD_ROWS) {
        head_job j = { .d = d, .a = a, .row = row, .rows = ARES_MIN(BACKWARD_ROWS, a->rows - row) };
        int64_t at_once = ARES_MAX(1, BACKWARD_LOGITS / VOCAB_CHUNK / j.rows);
        j.ld = ARES_MIN(at_once, chunks) * VOCAB_CHUNK + LD_PAD;
        j.logits = kernels_scratch(d, KERNELS_SHARED, (size_t)(j.rows * j.ld) * sizeof(float));
        j.c_log_prob = a->c_log_prob + row;
        j.c_entropy = a->c_entropy ? a->c_entropy + row : NULL;
        for (j.chunk = 0; j.chunk < chunks; j.chunk += at_once) {
            j.chunks = ARES_MIN(at_once, chunks - j.chunk);
            backward(&j);
        }
    }
}

void ARES_K(head_fused)(ares_device *d, const ares_head_args *a, ares_head_loss_fn *loss, void *ctx)
{
    check(a);
    int64_t chunks = vocab_chunks(a->vocab), ld = chunks * VOCAB_CHUNK + LD_PAD;
    int64_t most = ARES_MIN((int64_t)a->rows, ARES_MAX(FUSED_ROWS, FUSED_LOGITS / ld));
    for (int64_t row = 0; row < a->rows; row += most) {
        head_job j = {
            .d = d, .a = a, .row = row, .rows = ARES_MIN(most, a->rows - row), .chunks = chunks, .ld = ld
        };
        j.logits = kernels_scratch(d, KERNELS_SHARED,
                                   (size_t)most * ((size_t)ld + (size_t)chunks * 3 + 2) * sizeof(float));
        j.part = (vocab_part *)(void *)(j.logits + most * ld);
        float *c = (float *)(void *)(j.part + most * chunks), *ce = c + most;
        forward(&j);
        memset(c, 0, (size_t)most * 2 * sizeof(float));
        loss(ctx, (int32_t)row, (int32_t)j.rows, a->log_prob + row, a->entropy + row, c, ce);
        j.c_log_prob = c;
        j.c_entropy = ce;
        backward(&j);
    }
}

typedef struct rows_job {
    ares_device *d;
    const float *logits;
    int64_t ld;
    int32_t rows, vocab;
    float inv_temperature;
    const int32_t *target;
    float *log_prob, *entropy;
} rows_job;

static void row_task(void *ctx, int64_t row, int worker)
{
    const rows_job *j = ctx;
    int64_t chunks = vocab_chunks(j->vocab);
    const float *z = j->logits + row * j->ld;
    vocab_part *part = kernels_scratch(j->d, worker, (size_t)chunks * sizeof(vocab_part));
    for (int64_t c = 0; c < chunks; c++)
        part[c] = vocab_part_of(z + c * VOCAB_CHUNK, vocab_width(j->vocab, c), j->inv_temperature);
    vocab_total t = vocab_merge(part, chunks);
    j->log_prob[row] = vocab_log_prob(&t, z[j->target[row]] * j->inv_temperature);
    if (j->entropy) j->entropy[row] = t.entropy;
}

void ARES_K(token_log_prob)(ares_device *d, const float *logits, int64_t ld, int32_t rows, int32_t vocab,
                            float inv_temperature, const int32_t *target, float *log_prob, float *entropy)
{
    for (int32_t r = 0; r < rows; r++) ARES_ASSERT(target[r] >= 0 && target[r] < vocab);
    rows_job j = { d, logits, ld, rows, vocab, inv_temperature, target, log_prob, entropy };
    kernels_run(d, (double)rows * vocab / 2e3, rows, row_task, &j);
}
