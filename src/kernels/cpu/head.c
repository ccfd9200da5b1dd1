/*
 * The vocabulary head. Forward keeps three numbers per row and chunk. Backward computes a block of
 * logits again, turns them into their derivatives in place and passes these to linear_backward.
 * head_fused keeps the logits of as many rows as a fixed scratch holds, and so computes them once.
 * Every element is the same chain in all three.
 */
#include "vocab.h"

typedef struct head_job {
    ares_device *d;
    const ares_head_args *a;
    int64_t row, rows, rows_per_task; /* this block of rows */
    int64_t chunk, chunks;            /* this range of the vocabulary */
    int64_t all;                      /* forward: chunks of the vocabulary */
    int64_t skipped;                  /* forward: chunks before the first row of w */
    float *logits;                    /* [rows][ld] of the range; forward: may be NULL */
    int64_t ld;
    vocab_part *part;                    /* forward: [rows][all] */
    kl_part *kl_part;                    /* forward with a reference: [rows][all] */
    const float *c_log_prob, *c_entropy; /* backward: of the block's rows */
} head_job;

/* The task's rows and its chunk. */
typedef struct span {
    int64_t first, rows, chunk;
} span;
static span span_of(const head_job *j, int64_t task)
{
    int64_t first = task / j->chunks * j->rows_per_task;
    return (span){ first, ARES_MIN(j->rows_per_task, j->rows - first),
                   j->chunk + task % j->chunks };
}
/* One task per chunk of the vocabulary and some rows. */
static void run_tasks(head_job *j, double work_us, ares_task_fn *fn)
{
    j->rows_per_task = vocab_rows_per_task(j->rows, j->chunks, ares_pool_threads(j->d->pool));
    kernels_run(j->d, work_us, (j->rows + j->rows_per_task - 1) / j->rows_per_task * j->chunks, fn,
                j);
}
static double work_us(const head_job *j)
{
    return vocab_work_us(j->a->w, j->rows,
                         ARES_MIN((int64_t)VOCAB_CHUNK * j->chunks, (int64_t)j->a->vocab));
}

/* The sum of e (z - z_ref), with e = exp(z - max) as in vocab_part_of; logits are raw. */
static float cross_of(const float *z, const float *zr, int n, float inv_temperature, float max)
{
    v16 scale = v16_set1(inv_temperature), shift = v16_set1(max), least = v16_set1(-128.0f),
        sum = v16_zero();
    for (int i = 0; i < n; i += 16) {
        int lanes = ARES_MIN(16, n - i);
        v16 a = lanes == 16 ? v16_load(z + i) : v16_load_first(z + i, lanes),
            /* lanes beyond n: 0 - 0 */
            b = lanes == 16 ? v16_load(zr + i) : v16_load_first(zr + i, lanes);
        a = v16_mul(a, scale);
        sum = v16_fma(v16_exp(v16_max(least, v16_min(v16_zero(), v16_sub(a, shift)))),
                      v16_sub(a, v16_mul(b, scale)), sum);
    }
    return v16_sum(sum);
}

/* The reference's logits of a task. */
static float *reference_logits(const head_job *j, const span *s, const vocab_memory *memory)
{
    const ares_head_args *a = j->a;
    vocab_logits(a->ref_w, a->vocab, s->chunk,
                 (const float *)a->ref_x + (j->row + s->first) * a->ld_ref, a->ld_ref, s->rows,
                 memory->zr, VOCAB_CHUNK, memory->packed, a->ref_adapter, j->row + s->first);
    return memory->zr;
}

/* Statistics of one chunk of some rows, and the logit of a target that lies in it. */
static void forward_task(void *ctx, int64_t task, int worker)
{
    const head_job *j = ctx;
    const ares_head_args *a = j->a;
    span s = span_of(j, task);
    int width = vocab_width(a->vocab, s.chunk);
    vocab_memory memory = vocab_memory_of(j->d, worker, s.rows, a->w, j->kl_part ? a->ref_w : NULL);
    float *z = j->logits ? j->logits + s.first * j->ld + s.chunk * VOCAB_CHUNK : memory.z;
    const float *zr = j->kl_part ? reference_logits(j, &s, &memory) : NULL;
    /* the fused head keeps its logits for the gradient; the others need them for this task only */
    int64_t ldz = j->logits ? j->ld : VOCAB_CHUNK;
    vocab_logits(a->w, a->vocab - j->skipped * VOCAB_CHUNK, s.chunk - j->skipped,
                 (const float *)a->x + (j->row + s.first) * a->ldx, a->ldx, s.rows, z, ldz,
                 memory.packed, a->adapter, j->row + s.first);
    for (int64_t r = 0; r < s.rows; r++) {
        int64_t row = j->row + s.first + r, target = a->target[row] - s.chunk * VOCAB_CHUNK;
        vocab_part part = vocab_part_of(z + r * ldz, width, a->inv_temperature);
        j->part[(s.first + r) * j->all + s.chunk] = part;
        if (zr)
            j->kl_part[(s.first + r) * j->all + s.chunk] =
                (kl_part){ vocab_part_of(zr + r * VOCAB_CHUNK, width, a->inv_temperature),
                           cross_of(z + r * ldz, zr + r * VOCAB_CHUNK, width, a->inv_temperature,
                                    part.max) };
        if (target >= 0 && target < width) /* the target's logit, until merge_task */
            a->log_prob[row] = z[r * ldz + target] * a->inv_temperature;
    }
}

/* The results of some rows, from the statistics of all their chunks. */
static void merge_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const head_job *j = ctx;
    const ares_head_args *a = j->a;
    for (int64_t r = task * VOCAB_ROWS; r < ARES_MIN(j->rows, (task + 1) * VOCAB_ROWS); r++) {
        int64_t row = j->row + r;
        vocab_total t = vocab_merge(j->part + r * j->all, j->all);
        a->log_prob[row] = vocab_log_prob(&t, a->log_prob[row]);
        a->entropy[row] = t.entropy;
        a->lse[row] = t.max + t.log_sum;
        if (j->kl_part) {
            /* in f64: the terms of KL = sum p (z - z_ref) - lse + lse_ref are as large as logits */
            const vocab_part *p = j->part + r * j->all;
            const kl_part *k = j->kl_part + r * j->all;
            double sum = 0, cross = 0, ref_max = -INFINITY, ref_sum = 0;
            for (int64_t c = 0; c < j->all; c++) ref_max = ARES_MAX(ref_max, (double)k[c].ref.max);
            for (int64_t c = 0; c < j->all; c++) {
                double e = ares_f64_exp(ARES_MAX((double)p[c].max - (double)t.max, -700.0));
                sum += e * (double)p[c].sum;
                cross += e * (double)k[c].cross;
                ref_sum += ares_f64_exp(ARES_MAX((double)k[c].ref.max - ref_max, -700.0)) *
                           (double)k[c].ref.sum;
            }
            double lse_ref = ref_max + ares_f64_log(ref_sum),
                   kl = cross / sum - ((double)t.max + ares_f64_log(sum)) + lse_ref;
            a->kl[row] = kl < 0 ? 0.0f : (float)kl; /* only rounding makes it negative */
            a->ref_lse[row] = (float)lse_ref;
        }
    }
}

/* Log-probs, entropies and lse of the job's rows. */
static void forward(head_job *j)
{
    if (j->chunks) run_tasks(j, work_us(j), forward_task);
    if (j->a->parts) {
        /* every part gets what all parts know of the rows; each sends as much as the largest */
        const ares_vocab_parts *parts = j->a->parts;
        int64_t each = vocab_chunks(ares_vocab_part_first(j->a->vocab, parts->parts, 1)),
                n = j->rows * each;
        size_t bytes = (size_t)n * sizeof(vocab_part) + (size_t)j->rows * sizeof(float);
        char *mine = ares_calloc(1, bytes), *all = ares_malloc(bytes * (size_t)parts->parts);
        const ares_head_args *a = j->a;
        /* target [rows]: its logit, where its chunk is here */
        vocab_part *part = (void *)mine;
        float *target = (void *)(part + n);
        for (int64_t r = 0; r < j->rows; r++) {
            int64_t at = a->target[j->row + r] / VOCAB_CHUNK - j->chunk;
            memcpy(part + r * each, j->part + r * j->all + j->chunk,
                   (size_t)j->chunks * sizeof *part);
            if (at >= 0 && at < j->chunks) target[r] = a->log_prob[j->row + r];
        }
        /* [parts][rows][each] statistics, then [rows] logits of targets */
        parts->gather(parts->ctx, mine, all, bytes);
        for (int i = 0; i < parts->parts; i++) {
            int64_t first = vocab_chunks(ares_vocab_part_first(j->a->vocab, parts->parts, i)),
                    end = vocab_chunks(ares_vocab_part_first(j->a->vocab, parts->parts, i + 1));
            part = (void *)(all + (size_t)i * bytes);
            target = (void *)(part + n);
            for (int64_t r = 0; r < j->rows; r++) {
                int64_t at = a->target[j->row + r] / VOCAB_CHUNK - first;
                memcpy(j->part + r * j->all + first, part + r * each,
                       (size_t)(end - first) * sizeof *part);
                if (at >= 0 && at < end - first) a->log_prob[j->row + r] = target[r];
            }
        }
        ares_free(mine);
        ares_free(all);
    }
    kernels_run(j->d, (double)(j->rows * j->all) / 100, (j->rows + VOCAB_ROWS - 1) / VOCAB_ROWS,
                merge_task, j);
}

/* The first row of w among those of the vocabulary, and their number. */
typedef struct own_rows {
    int32_t first, n;
} own_rows;
static own_rows own_rows_of(const ares_head_args *a)
{
    const ares_vocab_parts *p = a->parts;
    if (!p) return (own_rows){ 0, a->vocab };
    int32_t first = ares_vocab_part_first(a->vocab, p->parts, p->part);
    return (own_rows){ first, ares_vocab_part_first(a->vocab, p->parts, p->part + 1) - first };
}

/* A target outside of the vocabulary would write elsewhere. */
static void check(const ares_head_args *a)
{
    ARES_ASSERT(vocab_serves(a->w) && own_rows_of(a).n <= a->w->n);
    ARES_ASSERT(!a->parts || !a->ref_x);
    for (int32_t r = 0; r < a->rows; r++) ARES_ASSERT(a->target[r] >= 0 && a->target[r] < a->vocab);
    ARES_ASSERT(!a->ref_x || (vocab_serves(a->ref_w) && a->vocab <= a->ref_w->n));
}

void ARES_K(head)(ares_device *d, const ares_head_args *a)
{
    check(a);
    own_rows own = own_rows_of(a);
    int64_t all = vocab_chunks(a->vocab), first = vocab_chunks(own.first);
    for (int64_t row = 0; row < a->rows; row += FORWARD_ROWS) {
        head_job j = { .d = d,
                       .a = a,
                       .row = row,
                       .rows = ARES_MIN(FORWARD_ROWS, a->rows - row),
                       .chunk = first,
                       .chunks = vocab_chunks(own.n),
                       .all = all,
                       .skipped = first };
        j.part = kernels_scratch(d, KERNELS_SHARED, scratch_head(j.rows, all, a->ref_x));
        j.kl_part = a->ref_x ? (kl_part *)(void *)(j.part + j.rows * all) : NULL;
        forward(&j);
    }
}

/*
 * Raw logits become d loss / d logits without the target's part: with p = exp(z - lse), it is
 * -p (c + ce (log p + H)), times inv_temperature. The caller adds c, times inv_temperature, at the
 * target.
 */
static void differentiate(float *z, int n, float inv_temperature, float lse, float entropy, float c,
                          float ce)
{
    v16 scale = v16_set1(inv_temperature), vc = v16_set1(c), vce = v16_set1(ce),
        h = v16_set1(entropy), shift = v16_set1(lse),
        least = v16_set1(-128.0f); /* where p is 0, and 0 (d + H) too */
    for (int i = 0; i < n; i += 16) {
        int lanes = ARES_MIN(16, n - i);
        v16 d = v16_max(
            least,
            v16_sub(v16_mul(lanes == 16 ? v16_load(z + i) : v16_load_first(z + i, lanes), scale),
                    shift));
        v16 g = v16_mul(v16_mul(v16_exp(d), v16_fma(vce, v16_add(d, h), vc)), v16_neg(scale));
        if (lanes == 16) v16_store(z + i, g);
        else v16_store_first(z + i, g, lanes);
    }
}

/*
 * As differentiate, plus the KL's part p c_kl (log p - log q - KL), times inv_temperature.
 * stats: lse, entropy; kl: ref_lse, kl, c_kl.
 */
static void differentiate_kl(float *z, const float *zr, int n, float inv_temperature,
                             const float stats[2], float c, float ce, const float kl[3])
{
    v16 scale = v16_set1(inv_temperature), vc = v16_set1(c), vce = v16_set1(ce),
        lse = v16_set1(stats[0]), h = v16_set1(stats[1]), lse_ref = v16_set1(kl[0]),
        mean = v16_set1(kl[1]), ck = v16_set1(-kl[2]);
    for (int i = 0; i < n; i += 16) {
        int lanes = ARES_MIN(16, n - i);
        v16 d = v16_sub(
            v16_mul(lanes == 16 ? v16_load(z + i) : v16_load_first(z + i, lanes), scale), lse);
        v16 q =
            v16_sub(v16_mul(lanes == 16 ? v16_load(zr + i) : v16_load_first(zr + i, lanes), scale),
                    lse_ref);
        v16 weight = v16_fma(ck, v16_sub(v16_sub(d, q), mean), v16_fma(vce, v16_add(d, h), vc));
        v16 g = v16_mul(v16_mul(v16_exp(d), weight), v16_neg(scale));
        if (lanes == 16) v16_store(z + i, g);
        else v16_store_first(z + i, g, lanes);
    }
}

/* The logits of one chunk of some rows become their derivatives. */
static void gradient_task(void *ctx, int64_t task, int worker)
{
    const head_job *j = ctx;
    const ares_head_args *a = j->a;
    span s = span_of(j, task);
    int width = vocab_width(a->vocab, s.chunk);
    float *z = j->logits + s.first * j->ld + (s.chunk - j->chunk) * VOCAB_CHUNK;
    vocab_memory memory = { 0 };
    if (!j->part || a->ref_x)
        memory = vocab_memory_of(j->d, worker, s.rows, a->w, a->ref_x ? a->ref_w : NULL);
    /* without the forward's statistics its logits are not there either: make them again */
    if (!j->part)
        vocab_logits(a->w, a->vocab, s.chunk, (const float *)a->x + (j->row + s.first) * a->ldx,
                     a->ldx, s.rows, z, j->ld, memory.packed, a->adapter, j->row + s.first);
    const float *zr = a->ref_x ? reference_logits(j, &s, &memory) : NULL;
    for (int64_t r = 0; r < s.rows; r++) {
        int64_t at = s.first + r, row = j->row + at,
                target = a->target[row] - s.chunk * VOCAB_CHUNK;
        float c = j->c_log_prob[at], ce = j->c_entropy ? j->c_entropy[at] : 0.0f;
        if (zr)
            differentiate_kl(z + r * j->ld, zr + r * VOCAB_CHUNK, width, a->inv_temperature,
                             (float[]){ a->lse[row], a->entropy[row] }, c, ce,
                             (float[]){ a->ref_lse[row], a->kl[row], a->c_kl[row] });
        else
            differentiate(z + r * j->ld, width, a->inv_temperature, a->lse[row], a->entropy[row], c,
                          ce);
        if (target >= 0 && target < width) z[r * j->ld + target] += c * a->inv_temperature;
    }
}

/* Rows [first, first + n) of a matrix, whole panels before them. */
static ares_matrix rows_of(const ares_matrix *w, int64_t first, int64_t n)
{
    ares_matrix part = *w;
    part.data = (char *)w->data +
                (size_t)(first * ares_layout_inputs(w->layout, w->k)) * ares_dtype_bytes(w->dtype);
    part.n = (int32_t)n;
    return part;
}

/*
 * The logits of the job's block become their derivatives, from which dx and dw are computed, and
 * those of an adapter.
 */
static void backward(head_job *j)
{
    const ares_head_args *a = j->a;
    run_tasks(j, work_us(j), gradient_task);
    int64_t first = j->chunk * VOCAB_CHUNK,
            n = ARES_MIN((int64_t)VOCAB_CHUNK * j->chunks, a->vocab - first);
    ares_matrix w = rows_of(a->w, first, n), dw;
    if (a->dw) dw = rows_of(a->dw, first, n);
    ARES_K(linear_backward)
    (j->d, &(ares_linear_backward_args){ .m = (int32_t)j->rows,
                                         .dy = j->logits,
                                         .lddy = j->ld,
                                         .w = &w,
                                         .dx = a->dx ? (float *)a->dx + j->row * a->lddx : NULL,
                                         .lddx = a->lddx,
                                         .accumulate = first > 0,
                                         .x = (const float *)a->x + j->row * a->ldx,
                                         .ldx = a->ldx,
                                         .dw = a->dw ? &dw : NULL });
    const ares_head_adapter *l = a->adapter;
    if (!l) return;
    w = rows_of(l->b, first, n);
    dw = rows_of(l->db, first, n);
    ARES_K(linear_backward)
    (j->d, &(ares_linear_backward_args){ .m = (int32_t)j->rows,
                                         .dy = j->logits,
                                         .lddy = j->ld,
                                         .w = &w,
                                         .dx = (float *)l->du + j->row * w.k,
                                         .lddx = w.k,
                                         .accumulate = first > 0,
                                         .scale = first + n == a->vocab ? l->scale : 0,
                                         .x = (const float *)l->u + j->row * w.k,
                                         .ldx = w.k,
                                         .dw = &dw });
}

/*
 * Whether row r of the block has derivatives. Where a statistic is not finite it has some even if
 * its coefficients are 0: 0 times infinity is NaN, which must reach the gradient.
 */
static bool derives(const head_job *j, int64_t r)
{
    const ares_head_args *a = j->a;
    int64_t row = j->row + r;
    if (j->c_log_prob[r] != 0 || (j->c_entropy && j->c_entropy[r] != 0)) return true;
    if (a->ref_x && (a->c_kl[row] != 0 || !isfinite(a->ref_lse[row]) || !isfinite(a->kl[row])))
        return true;
    return !isfinite(a->lse[row]) || !isfinite(a->entropy[row]);
}

/*
 * `each` of the block's rows, or with skip_zero of its runs of rows that have derivatives, in their
 * order. A run has no more than RUN_GAP rows without any in between: shorter runs would transpose
 * the weight more often.
 */
static void backward_runs(const head_job *block, void (*each)(head_job *run))
{
    const ares_head_args *a = block->a;
    enum { RUN_GAP = 32 };
    for (int64_t r = 0, first, end; r < block->rows; r = end) {
        first = r;
        end = block->rows;
        if (a->skip_zero) {
            while (first < block->rows && !derives(block, first)) first++;
            end = first;
            for (int64_t i = first; i < block->rows && i - end <= RUN_GAP; i++)
                if (derives(block, i)) end = i + 1;
        }
        for (int64_t i = r; i < first; i++) {
            if (a->dx)
                memset((float *)a->dx + (block->row + i) * a->lddx, 0,
                       (size_t)a->w->k * sizeof(float));
            if (a->adapter)
                memset((float *)a->adapter->du + (block->row + i) * a->adapter->b->k, 0,
                       (size_t)a->adapter->b->k * sizeof(float));
        }
        if (first == block->rows) return;
        head_job run = *block;
        run.row += first;
        run.rows = end - first;
        if (run.logits) run.logits += first * block->ld;
        run.c_log_prob += first;
        if (run.c_entropy) run.c_entropy += first;
        each(&run);
    }
}

/* Without logits: a range of the vocabulary at a time; dx adds up over the ranges. */
static void backward_ranges(head_job *j)
{
    int64_t chunks = vocab_chunks(j->a->vocab), at_once = scratch_backward_chunks(j->rows);
    j->ld = scratch_backward_ld(j->rows, chunks);
    j->logits = kernels_scratch(j->d, KERNELS_SHARED, scratch_head_backward(j->rows, chunks));
    for (j->chunk = 0; j->chunk < chunks; j->chunk += at_once) {
        j->chunks = ARES_MIN(at_once, chunks - j->chunk);
        backward(j);
    }
}

void ARES_K(head_backward)(ares_device *d, const ares_head_args *a)
{
    check(a);
    ARES_ASSERT(!a->parts);
    for (int64_t row = 0; row < a->rows; row += BACKWARD_ROWS) {
        head_job j = { .d = d, .a = a, .row = row, .rows = ARES_MIN(BACKWARD_ROWS, a->rows - row) };
        j.c_log_prob = a->c_log_prob + row;
        j.c_entropy = a->c_entropy ? a->c_entropy + row : NULL;
        backward_runs(&j, backward_ranges);
    }
}

void ARES_K(head_fused)(ares_device *d, const ares_head_args *a, ares_head_loss_fn *loss, void *ctx)
{
    check(a);
    ARES_ASSERT(!a->ref_x && !a->parts);
    int64_t chunks = vocab_chunks(a->vocab), ld = chunks * VOCAB_CHUNK + LD_PAD;
    int64_t most = scratch_fused_rows(a->rows, chunks);
    for (int64_t row = 0; row < a->rows; row += most) {
        head_job j = { .d = d,
                       .a = a,
                       .row = row,
                       .rows = ARES_MIN(most, a->rows - row),
                       .chunks = chunks,
                       .all = chunks,
                       .ld = ld };
        j.logits = kernels_scratch(d, KERNELS_SHARED, scratch_head_fused(most, chunks));
        j.part = (vocab_part *)(void *)(j.logits + most * ld);
        float *c = (float *)(void *)(j.part + most * chunks), *ce = c + most;
        forward(&j);
        /* c and ce: what the loss writes for rows that train; 0 for the others */
        memset(c, 0, (size_t)most * 2 * sizeof(float));
        loss(ctx, (int32_t)row, (int32_t)j.rows, a->log_prob + row, a->entropy + row, c, ce);
        j.c_log_prob = c;
        j.c_entropy = ce;
        backward_runs(&j, backward);
    }
}
