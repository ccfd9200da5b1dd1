/*
 * The divergence from a teacher in the head. Of given logits through heads that are the identity,
 * so that x is the logits and dx their gradient; and of hidden states through heads of their own,
 * beside a loss of log-probs and entropies. Each by head and head_backward, and by head_fused.
 */
#include "golden.h"

#include <math.h>
#include <string.h>

#include "ares/kernels.h"

/* The generator that the file's header describes. */
static double gen(uint64_t seed, uint64_t i)
{
    uint64_t x = (seed << 32) + i + 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    x = x ^ x >> 31;
    return (double)(x >> 40) / 8388608 - 1;
}

typedef struct matrix {
    int32_t rows, cols;
    float *x;
} matrix;
static double field(const ares_json *v, const char *name)
{
    return golden_value(ares_json_get(v, name));
}
static matrix matrix_of(golden *g, const char *key)
{
    const ares_json *v = golden_in(g, key);
    matrix m = { 0 };
    if (v->type == ARES_JSON_ARRAY) {
        int64_t n;
        const double *z = golden_flat(g, v, &n);
        m = (matrix){ (int32_t)v->count, (int32_t)(n / v->count),
                      ares_arena_alloc(g->arena, (size_t)n * sizeof *m.x) };
        for (int64_t i = 0; i < n; i++) m.x[i] = (float)z[i];
        return m;
    }
    m.rows = (int32_t)field(v, "rows"), m.cols = (int32_t)field(v, "cols");
    int64_t n = (int64_t)m.rows * m.cols;
    m.x = ares_arena_alloc(g->arena, (size_t)n * sizeof *m.x);
    for (int64_t i = 0; i < n; i++)
        m.x[i] = (float)(gen((uint64_t)field(v, "seed"), (uint64_t)i) * field(v, "scale"));
    const ares_json *set = ares_json_get(v, "set");
    for (int64_t i = 0; set && i < set->count; i++) {
        const ares_json *e = &set->items[i];
        m.x[(int64_t)golden_value(&e->items[0]) * m.cols + (int64_t)golden_value(&e->items[1])] =
            (float)golden_value(&e->items[2]);
    }
    return m;
}
static matrix identity(golden *g, int32_t n)
{
    matrix m = { n, n, ares_arena_calloc(g->arena, (size_t)n * (size_t)n, sizeof *m.x) };
    for (int64_t i = 0; i < n; i++) m.x[i * n + i] = 1;
    return m;
}
static ares_matrix packed(golden *g, const ares_device *d, const matrix *m)
{
    size_t n = (size_t)ares_matrix_elements(d->k->layout, m->rows, m->cols) + 16;
    ares_matrix w = { ares_arena_calloc(g->arena, n, sizeof(float)), ARES_F32, d->k->layout,
                      m->rows, m->cols };
    ares_matrix_pack(&w, m->x, ARES_F32);
    return w;
}

/* A list of rows, or their summaries. row: which of g's rows they are; NULL: all */
static void check_rows(golden *g, const char *what, const float *got, int64_t cols,
                       const int32_t *row, int64_t rows, const ares_json *want)
{
    double *x = ares_arena_alloc(g->arena, (size_t)(cols + 1) * sizeof *x);
    for (int64_t r = 0; r < rows; r++) {
        const float *from = got + (row ? row[r] : r) * cols;
        if (want->type == ARES_JSON_ARRAY) {
            for (int64_t c = 0; c < cols; c++) x[c] = (double)from[c];
            golden_numbers(g, what, x, cols, &want->items[r]);
            continue;
        }
        double norm1 = 0, dot = 0;
        const ares_json *at = ares_json_get(want, "at");
        for (int64_t c = 0; c < cols; c++) {
            norm1 += fabs((double)from[c]);
            dot += (double)from[c] * gen((uint64_t)field(want, "seed"), (uint64_t)c);
        }
        golden_near(g, what, norm1, &ares_json_get(want, "norm1")->items[r]);
        golden_near(g, what, dot, &ares_json_get(want, "dot")->items[r]);
        for (int64_t i = 0; i < at->count; i++)
            x[i] = (double)from[(int64_t)golden_value(&at->items[i])];
        golden_numbers(g, what, x, at->count, &ares_json_get(want, "values")->items[r]);
    }
}

/* What the loss of a fused head writes: derivatives that are known before. */
typedef struct given {
    const float *log_prob, *entropy, *divergence;
    float *to;
} given;
static void give(void *ctx, int32_t row, int32_t n, const float *log_prob, const float *entropy,
                 float *c_log_prob, float *c_entropy)
{
    (void)log_prob, (void)entropy;
    const given *x = ctx;
    memcpy(c_log_prob, x->log_prob + row, (size_t)n * sizeof *c_log_prob);
    memcpy(c_entropy, x->entropy + row, (size_t)n * sizeof *c_entropy);
    memcpy(x->to + row, x->divergence + row, (size_t)n * sizeof *c_entropy);
}

typedef struct heads {
    ares_device d;
    matrix x, w, teacher_x, teacher_w;
    ares_head_args h;
    ares_divergence_args by;
    ares_divergence_row row[16];
    float stats[3][16], c[3][16];
    int32_t target[16];
    ares_matrix packed[2], dw;
} heads;

static bool open(golden *g, heads *s, double temperature, double sampling)
{
    if (!golden_ok(g, ares_device_open("cpu", 1, &s->d))) return false;
    s->packed[0] = packed(g, &s->d, &s->w);
    s->packed[1] = packed(g, &s->d, &s->teacher_w);
    s->by = (ares_divergence_args){ .beta = (float)golden_number(g, "beta"),
                                    .inv_temperature = ares_inv_temperature((float)temperature),
                                    .vocab = ARES_MIN(s->w.rows, s->teacher_w.rows),
                                    .row = s->row,
                                    .c = s->c[2] };
    s->h = (ares_head_args){ .rows = s->x.rows,
                             .vocab = s->w.rows,
                             .x = s->x.x,
                             .ldx = s->x.cols,
                             .w = &s->packed[0],
                             .inv_temperature = ares_inv_temperature((float)sampling),
                             .target = s->target,
                             .log_prob = s->stats[0],
                             .entropy = s->stats[1],
                             .lse = s->stats[2],
                             .c_log_prob = s->c[0],
                             .c_entropy = s->c[1],
                             .dx = ares_arena_calloc(
                                 g->arena, (size_t)s->x.rows * (size_t)s->x.cols, sizeof(float)),
                             .lddx = s->x.cols,
                             .ref_x = s->teacher_x.x,
                             .ld_ref = s->teacher_x.cols,
                             .ref_w = &s->packed[1],
                             .divergence = &s->by };
    return true;
}

/* The fused head gives the bits of the two passes. dw (may be NULL) of those, unpacked */
static void check_fused(golden *g, heads *s, const float *dw)
{
    size_t n = (size_t)s->x.rows * (size_t)s->x.cols * sizeof(float);
    float *dx = ares_arena_alloc(g->arena, n), *c = ares_arena_calloc(g->arena, 16, sizeof *c);
    ares_divergence_row row[16];
    memcpy(dx, s->h.dx, n);
    memcpy(row, s->row, sizeof row);
    memset(s->row, 0, sizeof s->row);
    s->by.c = c;
    given x = { s->c[0], s->c[1], s->c[2], c };
    if (dw) memset(s->dw.data, 0, (size_t)ares_matrix_elements(s->dw.layout, s->dw.n, s->dw.k) * 4);
    s->d.k->head_fused(&s->d, &s->h, give, &x);
    if (memcmp(dx, s->h.dx, n) != 0) golden_fail(g, "dx of head_fused has other bits");
    if (memcmp(row, s->row, sizeof row) != 0)
        golden_fail(g, "the divergence of head_fused has other bits");
    if (!dw) return;
    n = (size_t)s->w.rows * (size_t)s->w.cols * sizeof(float);
    float *again = ares_arena_alloc(g->arena, n);
    ares_matrix_unpack(&s->dw, again, ARES_F32);
    if (memcmp(dw, again, n) != 0) golden_fail(g, "dw of head_fused has other bits");
}

GOLDEN(distill, jsd)
{
    heads s = { .x = matrix_of(g, "student_logits"), .teacher_x = matrix_of(g, "teacher_logits") };
    int64_t n;
    const double *weight = golden_flat(g, golden_in(g, "weight"), &n);
    double clamp = golden_number_or(g, "loss_max_clamp", NAN),
           temperature = golden_number(g, "temperature");
    s.w = identity(g, s.x.cols), s.teacher_w = identity(g, s.teacher_x.cols);
    if (!open(g, &s, temperature, temperature)) return;
    s.d.k->head(&s.d, &s.h);
    double value[16], reverse[16], forward[16], agrees[16], loss = 0;
    for (int64_t r = 0; r < n; r++) {
        const ares_divergence_row *x = &s.row[r];
        value[r] = (double)x->value, reverse[r] = (double)x->reverse_kl;
        forward[r] = (double)x->forward_kl, agrees[r] = x->agrees;
        bool past = !isnan(clamp) && value[r] > clamp;
        loss += weight[r] * (past ? clamp : value[r]);
        s.c[2][r] = past ? 0 : (float)weight[r];
    }
    golden_numbers(g, "divergence", value, n, golden_want(g, "divergence"));
    golden_numbers(g, "reverse_kl", reverse, n, golden_want(g, "reverse_kl"));
    golden_numbers(g, "forward_kl", forward, n, golden_want(g, "forward_kl"));
    golden_numbers(g, "argmax_agree", agrees, n, golden_want(g, "argmax_agree"));
    golden_near(g, "loss", loss, golden_want(g, "loss"));
    s.d.k->head_backward(&s.d, &s.h);
    golden_ok(g, s.d.k->sync(&s.d));
    check_rows(g, "d_student_logits", s.h.dx, s.x.cols, NULL, n,
               golden_want(g, "d_student_logits"));
    check_fused(g, &s, NULL);
    ares_device_close(&s.d);
}

GOLDEN(distill, jsd_head)
{
    heads s = { .x = matrix_of(g, "x"),
                .w = matrix_of(g, "w"),
                .teacher_x = matrix_of(g, "teacher_x"),
                .teacher_w = matrix_of(g, "teacher_w") };
    static const char *const names[] = { "c_log_prob", "c_entropy", "weight" };
    int64_t n, n_rows;
    const double *target = golden_flat(g, golden_in(g, "target"), &n);
    for (int64_t r = 0; r < n; r++) s.target[r] = (int32_t)target[r];
    for (int i = 0; i < 3; i++) {
        const double *c = golden_flat(g, golden_in(g, names[i]), &n);
        for (int64_t r = 0; r < n; r++) s.c[i][r] = (float)c[r];
    }
    if (!open(g, &s, golden_number(g, "temperature"), golden_number(g, "sampling_temperature")))
        return;
    size_t elements = (size_t)s.w.rows * (size_t)s.w.cols;
    float *dw = ares_arena_calloc(g->arena, elements, sizeof *dw);
    s.dw = packed(g, &s.d, &(matrix){ s.w.rows, s.w.cols, dw });
    s.h.dw = &s.dw;
    s.d.k->head(&s.d, &s.h);
    double value[3][16];
    for (int64_t r = 0; r < n; r++)
        value[0][r] = (double)s.stats[0][r], value[1][r] = (double)s.stats[1][r],
        value[2][r] = (double)s.row[r].value;
    golden_numbers(g, "log_prob", value[0], n, golden_want(g, "log_prob"));
    golden_numbers(g, "entropy", value[1], n, golden_want(g, "entropy"));
    golden_numbers(g, "divergence", value[2], n, golden_want(g, "divergence"));
    s.d.k->head_backward(&s.d, &s.h);
    golden_ok(g, s.d.k->sync(&s.d));
    check_rows(g, "dx", s.h.dx, s.x.cols, NULL, n, golden_want(g, "dx"));
    ares_matrix_unpack(&s.dw, dw, ARES_F32);
    const double *rows = golden_flat(g, golden_want(g, "dw_rows"), &n_rows);
    int32_t row[16];
    for (int64_t i = 0; i < n_rows; i++) row[i] = (int32_t)rows[i];
    check_rows(g, "dw", dw, s.w.cols, row, n_rows, golden_want(g, "dw"));
    double norm1 = 0;
    for (size_t i = 0; i < elements; i++) norm1 += fabs((double)dw[i]);
    golden_near(g, "dw_norm1", norm1, golden_want(g, "dw_norm1"));
    check_fused(g, &s, dw);
    ares_device_close(&s.d);
}
