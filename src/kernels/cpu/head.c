/*
 * The vocabulary head. Forward keeps three numbers per row and chunk. Backward computes a block of
 * logits again, turns them into their derivatives in place and passes these to linear_backward.
 * head_fused keeps the logits of as many rows as a fixed scratch holds, and so computes them once.
 * Every element is the same chain in all three. A divergence from a teacher needs both models'
 * sums before its own, so a forward with one keeps the logits of both for a block of rows.
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
    float *ref_logits;                   /* of a kept block with a divergence, as logits */
    divergence_part *divergence;         /* its forward: [rows][all] */
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
    int64_t vocab = a->divergence ? a->divergence->vocab : a->vocab;
    if (s->chunk < vocab_chunks(vocab))
        vocab_logits(a->ref_w, vocab, s->chunk,
                     (const float *)a->ref_x + (j->row + s->first) * a->ld_ref, a->ld_ref, s->rows,
                     memory->zr, VOCAB_CHUNK, memory->packed, a->ref_adapter, j->row + s->first);
    return memory->zr;
}

/*
 * The divergence from a teacher. Logits are raw in all of these. Sums within a chunk are f32, over
 * chunks f64 in chunk order, each logit less the largest of its chunk: so equal logits cancel
 * exactly, and a shift between the models costs no digits.
 */

/* The sum of exp(z - max) ((z - max) - (zr - ref_max)). */
static float shifted_cross(const float *z, const float *zr, int n, float inv_temperature, float max,
                           float ref_max)
{
    v16 scale = v16_set1(inv_temperature), shift = v16_set1(max), ref_shift = v16_set1(ref_max),
        least = v16_set1(-128.0f), sum = v16_zero();
    for (int i = 0; i < n; i += 16) {
        int lanes = ARES_MIN(16, n - i);
        v16 a = v16_sub(vocab_load(z + i, lanes, scale), shift), e = v16_exp(v16_max(least, a));
        v16 d = v16_sub(a, v16_sub(vocab_load(zr + i, lanes, scale), ref_shift));
        if (lanes < 16) d = v16_select(v16m_first(lanes), d, v16_zero()); /* -inf less -inf */
        sum = v16_fma(e, d, sum);
    }
    return v16_sum(sum);
}

/* The id of the largest logit of a chunk, the lower of equal ones. */
static int32_t top_of(const float *z, int n, int64_t chunk)
{
    int at = 0;
    for (int i = 1; i < n; i++)
        if (z[i] > z[at]) at = i;
    return (int32_t)(chunk * VOCAB_CHUNK + at);
}

/* own: vocab_part_of the first n logits; NULL: not known yet */
static divergence_part divergence_part_of(const ares_divergence_args *a, const float *z,
                                          const float *zr, int n, int64_t chunk,
                                          const vocab_part *own)
{
    divergence_part p = { .own = own ? *own : vocab_part_of(z, n, a->inv_temperature),
                          .ref = vocab_part_of(zr, n, a->inv_temperature),
                          .top = top_of(z, n, chunk),
                          .ref_top = top_of(zr, n, chunk) };
    p.cross = shifted_cross(z, zr, n, a->inv_temperature, p.own.max, p.ref.max);
    p.ref_cross = shifted_cross(zr, z, n, a->inv_temperature, p.ref.max, p.own.max);
    return p;
}

static float not_below_0(double x)
{
    return x < 0 ? 0.0f : (float)x; /* only rounding makes it negative; NaN stays */
}

/* Both KLs and both softmaxes of a row, from all its chunks that both models have. */
static ares_divergence_row divergence_merge(float beta, const divergence_part *p, int64_t chunks)
{
    double max = -INFINITY, ref_max = -INFINITY, sum = 0, ref_sum = 0, cross = 0, ref_cross = 0,
           ref_z = 0;
    int64_t top = 0, ref_top = 0;
    for (int64_t c = 0; c < chunks; c++) {
        if ((double)p[c].own.max > max) max = (double)p[c].own.max, top = c;
        if ((double)p[c].ref.max > ref_max) ref_max = (double)p[c].ref.max, ref_top = c;
    }
    for (int64_t c = 0; c < chunks; c++) {
        double own = (double)p[c].own.max, ref = (double)p[c].ref.max,
               e = ares_f64_exp(ARES_MAX(own - max, -700.0)),
               f = ares_f64_exp(ARES_MAX(ref - ref_max, -700.0));
        sum += e * (double)p[c].own.sum;
        ref_sum += f * (double)p[c].ref.sum;
        cross += e * ((double)p[c].cross + (own - ref) * (double)p[c].own.sum);
        ref_cross += f * ((double)p[c].ref_cross + (ref - own) * (double)p[c].ref.sum);
        ref_z += f * ((double)p[c].ref.sum_z + (ref - ref_max) * (double)p[c].ref.sum);
    }
    /* KL(p || q) = sum p (z - z_ref) - (lse - lse_ref) */
    double log_sum = ares_f64_log(sum), ref_log_sum = ares_f64_log(ref_sum),
           apart = (max - ref_max) + (log_sum - ref_log_sum), reverse = cross / sum - apart,
           forward = ref_cross / ref_sum + apart;
    ares_divergence_row r = { .max = (float)max,
                              .log_sum = (float)log_sum,
                              .ref_max = (float)ref_max,
                              .ref_log_sum = (float)ref_log_sum,
                              .reverse_kl = not_below_0(reverse),
                              .forward_kl = not_below_0(forward),
                              .ref_entropy = (float)(ref_log_sum - ref_z / ref_sum),
                              .agrees = p[top].top == p[ref_top].ref_top };
    r.value = beta == 0 ? r.forward_kl : r.reverse_kl;
    r.mean = beta == 0 ? 0.0f : (float)reverse; /* not cut at 0 */
    return r;
}

/* Of 16 logits: log p, log q - log p, and of 0 < beta < 1 log(m / p). */
typedef struct mixed {
    v16 log_p, d, log_m;
} mixed;
static inline mixed mixed_of(const float *z, const float *zr, int lanes, v16 scale,
                             const ares_divergence_row *r, float beta)
{
    /* lanes beyond the last are 0, and left out by who sums */
    v16 a = v16_mul(lanes == 16 ? v16_load(z) : v16_load_first(z, lanes), scale),
        b = v16_mul(lanes == 16 ? v16_load(zr) : v16_load_first(zr, lanes), scale);
    a = v16_sub(a, v16_set1(r->max));
    b = v16_sub(b, v16_set1(r->ref_max));
    mixed m = { .log_p = v16_sub(a, v16_set1(r->log_sum)) };
    /* differences of logits and of log-sums first: 0 where the models agree */
    m.d = v16_sub(v16_sub(b, a), v16_set1(r->ref_log_sum - r->log_sum));
    /* log((1 - beta) + beta e^d), or d + log(beta + (1 - beta) e^-d) where d > 0: no overflow */
    v16m up = v16_gt(m.d, v16_zero());
    v16 teacher = v16_set1(beta), student = v16_set1(1.0f - beta),
        e = v16_exp(v16_max(v16_set1(-128.0f), v16_select(up, v16_neg(m.d), m.d)));
    m.log_m =
        v16_log(v16_fma(v16_select(up, student, teacher), e, v16_select(up, teacher, student)));
    m.log_m = v16_add(m.log_m, v16_select(up, m.d, v16_zero()));
    return m;
}

/* The sums of p (log p - log m) and q (log q - log m) of a chunk. */
static void mixed_sums(const ares_divergence_args *a, const float *z, const float *zr, int n,
                       const ares_divergence_row *r, float *of_p, float *of_q)
{
    v16 scale = v16_set1(a->inv_temperature), least = v16_set1(-128.0f), p = v16_zero(), q = p;
    for (int i = 0; i < n; i += 16) {
        int lanes = ARES_MIN(16, n - i);
        mixed m = mixed_of(z + i, zr + i, lanes, scale, r, a->beta);
        v16 e = v16_exp(v16_max(least, m.log_p)),
            f = v16_exp(v16_max(least, v16_add(m.log_p, m.d)));
        if (lanes < 16) {
            e = v16_select(v16m_first(lanes), e, v16_zero());
            f = v16_select(v16m_first(lanes), f, v16_zero());
        }
        p = v16_fma(e, v16_neg(m.log_m), p);
        q = v16_fma(f, v16_sub(m.d, m.log_m), q);
    }
    *of_p = v16_sum(p);
    *of_q = v16_sum(q);
}

/* c d value by the raw logits of a chunk takes the place of the teacher's logits. */
static void differentiate_divergence(const ares_divergence_args *a, const float *z, float *zr,
                                     int n, const ares_divergence_row *r, float c)
{
    v16 scale = v16_set1(a->inv_temperature), least = v16_set1(-128.0f), mean = v16_set1(r->mean);
    bool between = a->beta > 0 && a->beta < 1;
    v16 factor = v16_set1((between ? 1.0f - a->beta : 1.0f) * c * a->inv_temperature);
    for (int i = 0; i < n; i += 16) {
        int lanes = ARES_MIN(16, n - i);
        mixed m = mixed_of(z + i, zr + i, lanes, scale, r, a->beta);
        v16 p = v16_exp(v16_max(least, m.log_p)), g;
        if (a->beta == 0) g = v16_sub(p, v16_exp(v16_max(least, v16_add(m.log_p, m.d))));
        else g = v16_mul(p, v16_neg(v16_add(between ? m.log_m : m.d, mean)));
        g = v16_mul(g, factor);
        if (lanes == 16) v16_store(zr + i, g);
        else v16_store_first(zr + i, g, lanes);
    }
}

/* Ids of a chunk that both models have; at least 0. */
static int common_width(const ares_divergence_args *a, int64_t chunk)
{
    return ARES_MAX(0, (int)ARES_MIN((int64_t)VOCAB_CHUNK, a->vocab - chunk * VOCAB_CHUNK));
}

/* Both KLs of some rows of a kept block from all their chunks. */
static void divergence_merge_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const head_job *j = ctx;
    const ares_divergence_args *a = j->a->divergence;
    for (int64_t r = task * VOCAB_ROWS; r < ARES_MIN(j->rows, (task + 1) * VOCAB_ROWS); r++)
        a->row[j->row + r] =
            divergence_merge(a->beta, j->divergence + r * j->all, vocab_chunks(a->vocab));
}

/* The second pass over a kept block: sums by m, in the place of the cross sums. */
static void mixed_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const head_job *j = ctx;
    const ares_divergence_args *a = j->a->divergence;
    span s = span_of(j, task);
    int width = common_width(a, s.chunk);
    for (int64_t r = s.first; r < s.first + s.rows && width; r++) {
        int64_t at = r * j->ld + s.chunk * VOCAB_CHUNK;
        divergence_part *p = &j->divergence[r * j->all + s.chunk];
        mixed_sums(a, j->logits + at, j->ref_logits + at, width, &a->row[j->row + r], &p->cross,
                   &p->ref_cross);
    }
}

/* The teacher's logits of a task in a kept block. */
static void keep_reference_logits(const head_job *j, const span *s, const vocab_memory *memory)
{
    const ares_head_args *a = j->a;
    if (common_width(a->divergence, s->chunk))
        vocab_logits(a->ref_w, a->divergence->vocab, s->chunk,
                     (const float *)a->ref_x + (j->row + s->first) * a->ld_ref, a->ld_ref, s->rows,
                     j->ref_logits + s->first * j->ld + s->chunk * VOCAB_CHUNK, j->ld,
                     memory->packed, a->ref_adapter, j->row + s->first);
}

static void add_to(float *z, const float *more, int n)
{
    for (int i = 0; i < n; i += 16) {
        int lanes = ARES_MIN(16, n - i);
        if (lanes == 16) v16_store(z + i, v16_add(v16_load(z + i), v16_load(more + i)));
        else
            v16_store_first(z + i,
                            v16_add(v16_load_first(z + i, lanes), v16_load_first(more + i, lanes)),
                            lanes);
    }
}

/* Statistics of one chunk of some rows, and the logit of a target that lies in it. */
static void forward_task(void *ctx, int64_t task, int worker)
{
    const head_job *j = ctx;
    const ares_head_args *a = j->a;
    span s = span_of(j, task);
    int width = vocab_width(a->vocab, s.chunk);
    vocab_memory memory =
        vocab_memory_of(j->d, worker, s.rows, a->w, j->kl_part || j->divergence ? a->ref_w : NULL);
    float *z = j->logits ? j->logits + s.first * j->ld + s.chunk * VOCAB_CHUNK : memory.z;
    const float *zr = j->kl_part ? reference_logits(j, &s, &memory) : NULL;
    /* the fused head keeps its logits for the gradient; the others need them for this task only */
    int64_t ldz = j->logits ? j->ld : VOCAB_CHUNK;
    if (j->divergence) keep_reference_logits(j, &s, &memory);
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
        int common = j->divergence ? common_width(a->divergence, s.chunk) : 0;
        if (common) {
            const ares_divergence_args *by = a->divergence;
            bool same = common == width && by->inv_temperature == a->inv_temperature;
            j->divergence[(s.first + r) * j->all + s.chunk] = divergence_part_of(
                by, z + r * ldz, j->ref_logits + (s.first + r) * j->ld + s.chunk * VOCAB_CHUNK,
                common, s.chunk, same ? &part : NULL);
        }
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

/* The divergence of a kept block's rows, after the first pass over their chunks. */
static void diverge(head_job *j)
{
    const ares_divergence_args *a = j->a->divergence;
    kernels_run(j->d, (double)(j->rows * j->all) / 50, (j->rows + VOCAB_ROWS - 1) / VOCAB_ROWS,
                divergence_merge_task, j);
    if (a->beta == 0 || a->beta == 1) return;
    run_tasks(j, (double)(j->rows * a->vocab) / 200, mixed_task);
    for (int64_t r = 0; r < j->rows; r++) {
        const divergence_part *p = j->divergence + r * j->all;
        ares_divergence_row *row = &a->row[j->row + r];
        double sum = 0, ref_sum = 0;
        for (int64_t c = 0; c < vocab_chunks(a->vocab); c++) {
            sum += (double)p[c].cross;
            ref_sum += (double)p[c].ref_cross;
        }
        row->value = not_below_0((double)a->beta * ref_sum + (1.0 - (double)a->beta) * sum);
        row->mean = (float)sum;
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
    if (j->divergence) diverge(j);
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
    const ares_divergence_args *by = a->divergence;
    int32_t vocab = by ? by->vocab : a->vocab;
    ARES_ASSERT(!by || (a->ref_x && vocab > 0 && vocab <= a->vocab));
    ARES_ASSERT(!a->ref_x || (vocab_serves(a->ref_w) && vocab <= a->ref_w->n));
}

/* Places of a kept block of `most` rows in the scratch. more [2][most]: for the caller */
static void keep_block(head_job *j, int64_t most, float **more)
{
    int64_t kept = most * j->ld;
    bool both = j->a->divergence;
    j->logits =
        kernels_scratch(j->d, KERNELS_SHARED,
                        both ? scratch_diverging(most, j->all) : scratch_head_fused(most, j->all));
    j->ref_logits = both ? j->logits + kept : NULL;
    float *end = j->logits + (both ? 2 : 1) * kept;
    j->divergence = both ? (divergence_part *)(void *)end : NULL;
    if (both) end = (float *)(void *)(j->divergence + most * j->all);
    j->part = (vocab_part *)(void *)end;
    *more = (float *)(void *)(j->part + most * j->all);
}

/* A forward with a divergence, which keeps blocks of logits of both models. */
static void head_diverging(ares_device *d, const ares_head_args *a)
{
    int64_t chunks = vocab_chunks(a->vocab), most = scratch_diverging_rows(a->rows, chunks);
    for (int64_t row = 0; row < a->rows; row += most) {
        head_job j = { .d = d,
                       .a = a,
                       .row = row,
                       .rows = ARES_MIN(most, a->rows - row),
                       .chunks = chunks,
                       .all = chunks,
                       .ld = chunks * VOCAB_CHUNK + LD_PAD };
        float *unused;
        keep_block(&j, most, &unused);
        forward(&j);
    }
}

void ARES_K(head)(ares_device *d, const ares_head_args *a)
{
    check(a);
    if (a->divergence) {
        head_diverging(d, a);
        return;
    }
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
    const ares_divergence_args *by = a->divergence;
    int64_t ldr = j->ref_logits ? j->ld : VOCAB_CHUNK;
    float *zr = j->ref_logits ? j->ref_logits + s.first * j->ld + s.chunk * VOCAB_CHUNK
                : a->ref_x    ? reference_logits(j, &s, &memory)
                              : NULL;
    for (int64_t r = 0; r < s.rows; r++) {
        int64_t at = s.first + r, row = j->row + at,
                target = a->target[row] - s.chunk * VOCAB_CHUNK;
        float c = j->c_log_prob[at], ce = j->c_entropy ? j->c_entropy[at] : 0.0f;
        int common = by ? common_width(by, s.chunk) : 0;
        if (common)
            differentiate_divergence(by, z + r * j->ld, zr + r * ldr, common, &by->row[row],
                                     by->c[row]);
        if (zr && !by)
            differentiate_kl(z + r * j->ld, zr + r * VOCAB_CHUNK, width, a->inv_temperature,
                             (float[]){ a->lse[row], a->entropy[row] }, c, ce,
                             (float[]){ a->ref_lse[row], a->kl[row], a->c_kl[row] });
        else
            differentiate(z + r * j->ld, width, a->inv_temperature, a->lse[row], a->entropy[row], c,
                          ce);
        if (common) add_to(z + r * j->ld, zr + r * ldr, common);
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
    (j->d,
     &(ares_linear_backward_args){ .m = (int32_t)j->rows,
                                   .dy = j->logits,
                                   .lddy = j->ld,
                                   .w = &w,
                                   .dx = a->dx ? (float *)a->dx + j->row * a->lddx : NULL,
                                   .lddx = a->lddx,
                                   .accumulate = first > 0,
                                   .x = (const float *)a->x + j->row * a->ldx,
                                   .ldx = a->ldx,
                                   .dw = a->dw ? &dw : NULL },
     1);
    const ares_head_adapter *l = a->adapter;
    if (!l) return;
    w = rows_of(l->b, first, n);
    dw = rows_of(l->db, first, n);
    ARES_K(linear_backward)
    (j->d,
     &(ares_linear_backward_args){ .m = (int32_t)j->rows,
                                   .dy = j->logits,
                                   .lddy = j->ld,
                                   .w = &w,
                                   .dx = (float *)l->du + j->row * w.k,
                                   .lddx = w.k,
                                   .accumulate = first > 0,
                                   .scale = first + n == a->vocab ? l->scale : 0,
                                   .x = (const float *)l->u + j->row * w.k,
                                   .ldx = w.k,
                                   .dw = &dw },
     1);
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
    const ares_divergence_row *by = a->divergence ? &a->divergence->row[row] : NULL;
    if (by && (a->divergence->c[row] != 0 || !isfinite(by->value) || !isfinite(by->mean)))
        return true;
    if (a->ref_x && !by &&
        (a->c_kl[row] != 0 || !isfinite(a->ref_lse[row]) || !isfinite(a->kl[row])))
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
        if (run.ref_logits) run.ref_logits += first * block->ld;
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
    ARES_ASSERT((!a->ref_x || a->divergence) && !a->parts);
    int64_t chunks = vocab_chunks(a->vocab), ld = chunks * VOCAB_CHUNK + LD_PAD;
    int64_t most = a->divergence ? scratch_diverging_rows(a->rows, chunks)
                                 : scratch_fused_rows(a->rows, chunks);
    for (int64_t row = 0; row < a->rows; row += most) {
        head_job j = { .d = d,
                       .a = a,
                       .row = row,
                       .rows = ARES_MIN(most, a->rows - row),
                       .chunks = chunks,
                       .all = chunks,
                       .ld = ld };
        float *c;
        keep_block(&j, most, &c);
        float *ce = c + most;
        forward(&j);
        /* c and ce: what the loss writes for rows that train; 0 for the others */
        memset(c, 0, (size_t)most * 2 * sizeof(float));
        loss(ctx, (int32_t)row, (int32_t)j.rows, a->log_prob + row, a->entropy + row, c, ce);
        j.c_log_prob = c;
        j.c_entropy = ce;
        backward_runs(&j, backward);
    }
}
