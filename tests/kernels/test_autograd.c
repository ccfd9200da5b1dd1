/*
 * Every kernel that has a backward, against libtorch's autograd of the plain formula in f64. The
 * tolerance is a multiple of the difference between libtorch's f32 and f64 for the same formula,
 * plus some ulps of the tensor's largest entry, because in a lucky order that difference may be 0.
 * AdamW against libtorch's own. Seen to fail: with the rotation reversed, the entropy left out of
 * the head's loss, a prefix taken from row 0, a window one key wider, the norm's mean held
 * constant, 0.1 % more weight decay.
 */
#include "ares/at.h"
#include "host.h"
#include "kernels_test.h"

#include <stdio.h>

/* One input of a formula, and the gradient that a kernel gave for it. */
typedef struct leaf {
    const char *name;
    const float *x, *gradient;
    int64_t rows, columns; /* columns 0: a vector */
} leaf;
enum { LEAVES_MAX = 4 };
typedef at_tensor formula(const at_tensor *in, const void *ctx);

static int64_t count_of(const leaf *l)
{
    return l->rows * (l->columns ? l->columns : 1);
}

static at_tensor tensor_of(const float *x, int64_t rows, int64_t columns, at_dtype dtype)
{
    at_tensor t = at_to(columns ? at_from_blob((void *)x, AT_F32, AT_DIMS(rows, columns))
                                : at_from_blob((void *)x, AT_F32, AT_DIMS(rows)),
                        dtype);
    return at_detach(at_clone(t));
}

/* out and the gradients of sum(d_out * out), one array after the other. */
static bool differentiate(const char *what, formula *f, const void *ctx, const leaf *leaves, int n,
                          const float *d_out, int64_t n_out, at_dtype dtype, double *result)
{
    at_scope *s = at_scope_open(what);
    at_tensor in[LEAVES_MAX], gradients[LEAVES_MAX];
    for (int i = 0; i < n; i++)
        in[i] = at_requires_grad_(tensor_of(leaves[i].x, leaves[i].rows, leaves[i].columns, dtype),
                                  true);
    at_tensor out = at_reshape(f(in, ctx), AT_DIMS(-1));
    if (at_numel(out) == n_out) at_read(out, AT_F64, result);
    else
        CHECK_MSG(at_scope_failed(), "%s: the formula gives %lld numbers, the kernel %lld", what,
                  (long long)at_numel(out), (long long)n_out);
    at_grad(out, tensor_of(d_out, n_out, 0, dtype), in, n, false, gradients);
    result += n_out;
    for (int i = 0; i < n; i++) {
        if (gradients[i]) at_read(gradients[i], AT_F64, result);
        result += count_of(&leaves[i]);
    }
    return CHECK_OK(at_scope_close(s, NULL));
}

static void near_as_f32(const char *what, const char *name, const float *got, const double *exact,
                        const double *single, int64_t n)
{
    double off = 0, largest = 0, *bound = ares_malloc((size_t)n * sizeof *bound);
    for (int64_t i = 0; i < n; i++) {
        off = fmax(off, fabs(single[i] - exact[i]));
        largest = fmax(largest, fabs(exact[i]));
    }
    CHECK(largest > 0); /* a gradient of zeros would show nothing */
    for (int64_t i = 0; i < n; i++) bound[i] = 8 * off + 4 * 0x1p-23 * largest;
    char label[96];
    snprintf(label, sizeof label, "%s: %s", what, name);
    within(label, got, exact, bound, n);
    ares_free(bound);
}

static void agrees(const char *what, formula *f, const void *ctx, const leaf *leaves, int n,
                   const float *out, const float *d_out, int64_t n_out)
{
    int64_t total = n_out;
    for (int i = 0; i < n; i++) total += count_of(&leaves[i]);
    double *exact = ares_calloc((size_t)total, sizeof *exact),
           *single = ares_calloc((size_t)total, sizeof *single);
    if (differentiate(what, f, ctx, leaves, n, d_out, n_out, AT_F64, exact) &&
        differentiate(what, f, ctx, leaves, n, d_out, n_out, AT_F32, single)) {
        near_as_f32(what, "out", out, exact, single, n_out);
        int64_t at = n_out;
        for (int i = 0; i < n; at += count_of(&leaves[i++]))
            near_as_f32(what, leaves[i].name, leaves[i].gradient, exact + at, single + at,
                        count_of(&leaves[i]));
    }
    ares_free(exact), ares_free(single);
}

/* A weight in the device's layout and its gradient; bf16 weights round `rows` in place. */
static ares_matrix weight_of(float *rows, int32_t n, int32_t k, ares_dtype dtype)
{
    ares_matrix w = { ares_calloc((size_t)ares_matrix_elements(ARES_PANEL32, n, k), 4), dtype,
                      ARES_PANEL32, n, k };
    if (dtype == ARES_BF16)
        for (int64_t i = 0; i < (int64_t)n * k; i++)
            rows[i] = kernels_bf16_to_f32(kernels_f32_to_bf16(rows[i]));
    if (rows) ares_matrix_pack(&w, rows, ARES_F32);
    return w;
}
static float *rows_of(const ares_matrix *w)
{
    float *rows = filled((int64_t)w->n * w->k, NAN);
    ares_matrix_unpack(w, rows, ARES_F32);
    return rows;
}

/* ---------------------------------------------------------------- linear, embedding */

static at_tensor linear_formula(const at_tensor *in, const void *ctx)
{
    (void)ctx;
    return at_add(at_add(at_matmul(in[0], at_transpose(in[1], 0, 1)), in[2]), in[3]);
}

TEST(linear_and_its_gradients_equal_autograd)
{
    static const struct {
        int m, n, k;
        ares_dtype dtype;
    } shapes[] = { { 1, 5, 3, ARES_F32 },
                   { 17, 33, 70, ARES_F32 },
                   { 64, 96, 65, ARES_F32 },
                   { 19, 70, 40, ARES_BF16 } };
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 2, &d));
    for (int i = 0; i < ARES_COUNT(shapes); i++) {
        int m = shapes[i].m, n = shapes[i].n, k = shapes[i].k;
        float *x = normals(1, m * k, 1), *rows = normals(2, n * k, 1), *bias = normals(3, n, 1),
              *residual = normals(4, m * n, 1), *dy = normals(5, m * n, 1);
        float *y = filled(m * n, NAN), *dx = filled(m * k, NAN), *dbias = filled(n, 0);
        ares_matrix w = weight_of(rows, n, k, shapes[i].dtype),
                    dw = weight_of(NULL, n, k, ARES_F32);
        ares_linear_args forward = { .m = m,
                                     .x = x,
                                     .ldx = k,
                                     .w = &w,
                                     .bias = bias,
                                     .residual = residual,
                                     .ldr = n,
                                     .y = y,
                                     .ldy = n };
        d.k->linear(&d, &forward, 1);
        ares_linear_backward_args backward = { .m = m,
                                               .dy = dy,
                                               .lddy = n,
                                               .w = &w,
                                               .dx = dx,
                                               .lddx = k,
                                               .x = x,
                                               .ldx = k,
                                               .dw = &dw,
                                               .dbias = dbias };
        d.k->linear_backward(&d, &backward, 1);
        float *dw_rows = rows_of(&dw);
        leaf leaves[] = { { "dx", x, dx, m, k },
                          { "dw", rows, dw_rows, n, k },
                          { "dbias", bias, dbias, n, 0 },
                          { "d_residual", residual, dy, m, n } };
        agrees("linear", linear_formula, NULL, leaves, 4, y, dy, m * n);
        void *all[] = { x, rows, bias, residual, dy, y, dx, dbias, w.data, dw.data, dw_rows };
        for (int j = 0; j < ARES_COUNT(all); j++) ares_free(all[j]);
    }
    ares_device_close(&d);
}

typedef struct ids {
    const int32_t *ids;
    int n;
} ids;

static at_tensor embedding_formula(const at_tensor *in, const void *ctx)
{
    const ids *c = ctx;
    return at_embedding(in[0], at_from_blob((void *)c->ids, AT_I32, AT_DIMS(c->n)));
}

TEST(embedding_and_its_gradient_equal_autograd)
{
    enum { VOCAB = 75, K = 37, N = 90 };
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 2, &d));
    int32_t tokens[N];
    for (int i = 0; i < N; i++)
        tokens[i] = (int32_t)ares_rng_below(ares_rng_root(6, ARES_RNG_TEST), (uint64_t)i, VOCAB);
    float *rows = normals(7, VOCAB * K, 1), *dy = normals(8, N * K, 1), *y = filled(N * K, NAN);
    ares_matrix e = weight_of(rows, VOCAB, K, ARES_F32), de = weight_of(NULL, VOCAB, K, ARES_F32);
    d.k->embedding(&d, &e, tokens, N, y, K, 0);
    d.k->embedding_backward(&d, &de, tokens, N, dy, K, 0);
    float *de_rows = rows_of(&de);
    leaf leaves[] = { { "de", rows, de_rows, VOCAB, K } };
    agrees("embedding", embedding_formula, &(ids){ tokens, N }, leaves, 1, y, dy, N * K);
    ares_free(rows), ares_free(dy), ares_free(y), ares_free(e.data), ares_free(de.data),
        ares_free(de_rows);
    ares_device_close(&d);
}

/* ---------------------------------------------------------------- rms_norm, rope, gate_mul */

static at_tensor rms_norm_formula(const at_tensor *in, const void *ctx)
{
    at_tensor rstd =
        at_rsqrt(at_add_s(at_mean_dim(at_mul(in[0], in[0]), -1, true), *(const double *)ctx));
    return at_mul(at_mul(in[0], rstd), in[1]);
}

TEST(rms_norm_and_its_gradients_equal_autograd)
{
    static const int widths[] = { 1, 16, 67, 128 };
    enum { ROWS = 23 };
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 2, &d));
    for (int i = 0; i < ARES_COUNT(widths); i++) {
        int k = widths[i];
        const double eps = (double)1e-2f; /* large, so that its place shows */
        float *x = normals(1, ROWS * k, 1), *w = normals(2, k, 1), *dy = normals(3, ROWS * k, 1),
              *y = filled(ROWS * k, NAN), *dx = filled(ROWS * k, 0), *dw = filled(k, 0), rstd[ROWS];
        d.k->rms_norm(&d, &(ares_rms_norm_args){ .rows = ROWS,
                                                 .k = k,
                                                 .x = x,
                                                 .ldx = k,
                                                 .w = w,
                                                 .eps = (float)eps,
                                                 .y = y,
                                                 .ldy = k,
                                                 .rstd = rstd });
        d.k->rms_norm_backward(&d, &(ares_rms_norm_args){ .rows = ROWS,
                                                          .k = k,
                                                          .x = x,
                                                          .ldx = k,
                                                          .w = w,
                                                          .rstd = rstd,
                                                          .dy = dy,
                                                          .lddy = k,
                                                          .dx = dx,
                                                          .lddx = k,
                                                          .dw = dw });
        leaf leaves[] = { { "dx", x, dx, ROWS, k }, { "dw", w, dw, k, 0 } };
        agrees("rms_norm", rms_norm_formula, &eps, leaves, 2, y, dy, ROWS * k);
        ares_free(x), ares_free(w), ares_free(dy), ares_free(y), ares_free(dx), ares_free(dw);
    }
    ares_device_close(&d);
}

typedef struct turn {
    const float *cos_sin;
    int rows, heads, dim;
} turn;

/* x cos + rotate_half(x) sin, as transformers writes it. */
static at_tensor rope_formula(const at_tensor *in, const void *ctx)
{
    const turn *c = ctx;
    at_tensor table = at_to(at_from_blob((void *)c->cos_sin, AT_F32, AT_DIMS(c->rows, 1, c->dim)),
                            at_dtype_of(in[0]));
    at_tensor cosines = at_narrow(table, 2, 0, c->dim / 2),
              sines = at_narrow(table, 2, c->dim / 2, c->dim / 2);
    at_tensor x = at_reshape(in[0], AT_DIMS(c->rows, c->heads, c->dim)),
              first = at_narrow(x, 2, 0, c->dim / 2),
              second = at_narrow(x, 2, c->dim / 2, c->dim / 2);
    at_tensor turned = at_cat((at_tensor[]){ at_neg(second), first }, 2, 2);
    return at_add(at_mul(x, at_cat((at_tensor[]){ cosines, cosines }, 2, 2)),
                  at_mul(turned, at_cat((at_tensor[]){ sines, sines }, 2, 2)));
}

TEST(rope_and_its_inverse_equal_autograd)
{
    enum { ROWS = 29, HEADS = 3, DIM = 18, WIDE = HEADS * DIM };
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 2, &d));
    float *x = normals(1, ROWS * WIDE, 1), *dy = normals(2, ROWS * WIDE, 1),
          *y = filled(ROWS * WIDE, 0), *dx = filled(ROWS * WIDE, 0), table[ROWS * DIM];
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < DIM / 2; i++) {
            table[r * DIM + i] = cosf((float)r / (float)(1 + i));
            table[r * DIM + DIM / 2 + i] = sinf((float)r / (float)(1 + i));
        }
    memcpy(y, x, sizeof(float) * ROWS * WIDE);
    memcpy(dx, dy, sizeof(float) * ROWS * WIDE);
    d.k->rope(&d, ROWS, HEADS, DIM, 0, y, WIDE, table, false);
    d.k->rope(&d, ROWS, HEADS, DIM, 0, dx, WIDE, table, true);
    leaf leaves[] = { { "dx", x, dx, ROWS, WIDE } };
    agrees("rope", rope_formula, &(turn){ table, ROWS, HEADS, DIM }, leaves, 1, y, dy, ROWS * WIDE);
    ares_free(x), ares_free(dy), ares_free(y), ares_free(dx);
    ares_device_close(&d);
}

static at_tensor gate_mul_formula(const at_tensor *in, const void *ctx)
{
    const ares_activation *f = ctx;
    if (*f == ARES_GELU_TANH) {
        at_tensor g = in[0], cube = at_mul(at_mul(g, g), g),
                  u = at_mul_s(at_add(g, at_mul_s(cube, 0.044715)), 2 * 0.7978845608028654);
        return at_mul(at_mul(g, at_sigmoid(u)), in[1]);
    }
    return at_mul(at_mul(in[0], at_sigmoid(in[0])), in[1]);
}

TEST(gate_mul_and_its_gradients_equal_autograd)
{
    enum { ROWS = 31, K = 45, N = ROWS * K };
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 2, &d));
    float *gate = normals(1, N, 3), *up = normals(2, N, 1), *dy = normals(3, N, 1),
          *y = filled(N, NAN), *dg = filled(N, NAN), *du = filled(N, NAN);
    static const ares_activation fs[] = { ARES_SILU, ARES_GELU_TANH };
    for (int i = 0; i < ARES_COUNT(fs); i++) {
        d.k->gate_mul(&d, &(ares_gate_mul_args){ .f = fs[i],
                                                 .rows = ROWS,
                                                 .k = K,
                                                 .gate = gate,
                                                 .up = up,
                                                 .ldgu = K,
                                                 .y = y,
                                                 .ldy = K });
        d.k->gate_mul_backward(&d, &(ares_gate_mul_args){ .f = fs[i],
                                                          .rows = ROWS,
                                                          .k = K,
                                                          .gate = gate,
                                                          .up = up,
                                                          .ldgu = K,
                                                          .y = NULL,
                                                          .ldy = 0,
                                                          .dy = dy,
                                                          .lddy = K,
                                                          .d_gate = dg,
                                                          .d_up = du,
                                                          .lddgu = K });
        leaf leaves[] = { { "d_gate", gate, dg, ROWS, K }, { "d_up", up, du, ROWS, K } };
        agrees("gate_mul", gate_mul_formula, &fs[i], leaves, 2, y, dy, N);
    }
    ares_free(gate), ares_free(up), ares_free(dy), ares_free(y), ares_free(dg), ares_free(du);
    ares_device_close(&d);
}

/* ---------------------------------------------------------------- attention */

enum { SEGMENTS_MAX = 6 };
typedef struct layout {
    const char *name;
    int segments, rows[SEGMENTS_MAX], prefix_of[SEGMENTS_MAX]; /* -1: none */
    int heads, kv_heads, dim;
    bool causal;
    int window;
} layout;
static const layout layouts[] = {
    { "attention", 2, { 5, 40 }, { -1, -1 }, 4, 4, 16, true, 0 },
    { "attention with grouped heads", 2, { 33, 64 }, { -1, -1 }, 6, 2, 20, true, 0 },
    { "attention with shared prompts",
      6,
      { 37, 20, 1, 32, 9, 8 },
      { -1, 0, 0, -1, 3, 3 },
      4,
      2,
      16,
      true,
      0 },
    { "attention with a window", 3, { 40, 11, 50 }, { -1, 0, 0 }, 4, 1, 8, true, 13 },
    { "attention both ways", 2, { 19, 40 }, { -1, -1 }, 3, 1, 10, false, 0 },
};

/* softmax(q kT scale + mask) v of each segment over its keys: the prefix's rows, then its own. */
static at_tensor attention_formula(const at_tensor *in, const void *ctx)
{
    const layout *s = ctx;
    int start[SEGMENTS_MAX + 1] = { 0 }, group = s->heads / s->kv_heads;
    for (int g = 0; g < s->segments; g++) start[g + 1] = start[g] + s->rows[g];
    double scale = (double)(1.0f / sqrtf((float)s->dim));
    at_tensor q = at_reshape(in[0], AT_DIMS(-1, s->heads, s->dim)), parts[SEGMENTS_MAX], kv[2];
    for (int g = 0; g < s->segments; g++) {
        int of = s->prefix_of[g], prefix = of < 0 ? 0 : s->rows[of], keys = prefix + s->rows[g];
        for (int i = 0; i < 2; i++) {
            at_tensor all = at_reshape(in[1 + i], AT_DIMS(-1, s->kv_heads, 1, s->dim)),
                      own = at_narrow(all, 0, start[g], s->rows[g]);
            at_tensor whole =
                prefix ? at_cat((at_tensor[]){ at_narrow(all, 0, start[of], prefix), own }, 2, 0)
                       : own;
            kv[i] =
                at_transpose(at_reshape(at_expand(whole, AT_DIMS(keys, s->kv_heads, group, s->dim)),
                                        AT_DIMS(keys, s->heads, s->dim)),
                             0, 1);
        }
        uint8_t *hidden = ares_calloc((size_t)(s->rows[g] * keys), 1);
        for (int i = 0; i < s->rows[g]; i++)
            for (int j = 0; j < keys; j++)
                hidden[i * keys + j] =
                    (s->causal && j > prefix + i) || (s->window && j <= prefix + i - s->window);
        at_tensor mask = at_clone(at_from_blob(hidden, AT_BOOL, AT_DIMS(s->rows[g], keys)));
        ares_free(hidden);
        at_tensor queries = at_transpose(at_narrow(q, 0, start[g], s->rows[g]), 0, 1);
        at_tensor scores = at_masked_fill(
            at_mul_s(at_matmul(queries, at_transpose(kv[0], 1, 2)), scale), mask, -INFINITY);
        parts[g] = at_transpose(at_matmul(at_softmax(scores, -1), kv[1]), 0, 1);
    }
    return at_cat(parts, s->segments, 0);
}

TEST(attention_and_its_gradients_equal_autograd)
{
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 2, &d));
    for (int i = 0; i < ARES_COUNT(layouts); i++) {
        const layout *s = &layouts[i];
        int32_t start[SEGMENTS_MAX + 1] = { 0 }, prefix_len[SEGMENTS_MAX], prefix_row[SEGMENTS_MAX];
        for (int g = 0; g < s->segments; g++) {
            start[g + 1] = start[g] + s->rows[g];
            prefix_len[g] = s->prefix_of[g] < 0 ? 0 : s->rows[s->prefix_of[g]];
            prefix_row[g] = s->prefix_of[g] < 0 ? 0 : start[s->prefix_of[g]];
        }
        int rows = start[s->segments], wide = s->heads * s->dim, narrow = s->kv_heads * s->dim;
        float *q = normals(11, rows * wide, 1), *k = normals(12, rows * narrow, 1),
              *v = normals(13, rows * narrow, 1), *d_out = normals(14, rows * wide, 1);
        float *out = filled(rows * wide, NAN), *lse = filled(rows * s->heads, NAN),
              *dq = filled(rows * wide, NAN), *dk = filled(rows * narrow, 0),
              *dv = filled(rows * narrow, 0);
        ares_attention_args a = { .seg = { .n = s->segments,
                                           .rows = rows,
                                           .start = start,
                                           .prefix_len = prefix_len,
                                           .prefix_row = prefix_row },
                                  .n_heads = s->heads,
                                  .n_kv_heads = s->kv_heads,
                                  .head_dim = s->dim,
                                  .scale = 1.0f / sqrtf((float)s->dim),
                                  .causal = s->causal,
                                  .window = s->window,
                                  .q = q,
                                  .ldq = wide,
                                  .k = k,
                                  .v = v,
                                  .ldkv = narrow,
                                  .out = out,
                                  .ldo = wide,
                                  .lse = lse,
                                  .d_out = d_out,
                                  .dq = dq,
                                  .lddq = wide,
                                  .dk = dk,
                                  .dv = dv,
                                  .lddkv = narrow };
        d.k->attention(&d, &a);
        d.k->attention_backward(&d, &a);
        leaf leaves[] = { { "dq", q, dq, rows, wide },
                          { "dk", k, dk, rows, narrow },
                          { "dv", v, dv, rows, narrow } };
        agrees(s->name, attention_formula, s, leaves, 3, out, d_out, rows * wide);
        float *all[] = { q, k, v, d_out, out, lse, dq, dk, dv };
        for (int j = 0; j < ARES_COUNT(all); j++) ares_free(all[j]);
    }
    ares_device_close(&d);
}

/* ---------------------------------------------------------------- head */

typedef struct head_case {
    const int32_t *target;
    int rows;
    double inv_temperature;
} head_case;

/* log-probs of the targets, then entropies */
static at_tensor head_formula(const at_tensor *in, const void *ctx)
{
    const head_case *c = ctx;
    at_tensor log_p = at_log_softmax(
        at_mul_s(at_matmul(in[0], at_transpose(in[1], 0, 1)), c->inv_temperature), 1);
    at_tensor target = at_to(at_from_blob((void *)c->target, AT_I32, AT_DIMS(c->rows, 1)), AT_I64);
    at_tensor entropy = at_neg(at_sum_dim(at_mul(at_exp(log_p), log_p), 1, false));
    return at_cat((at_tensor[]){ at_squeeze(at_gather(log_p, 1, target), 1), entropy }, 2, 0);
}

typedef struct coefficients {
    const float *d_out;
    int rows;
} coefficients;

static void give(void *ctx, int32_t row, int32_t n, const float *log_prob, const float *entropy,
                 float *c_log_prob, float *c_entropy)
{
    (void)log_prob, (void)entropy;
    const coefficients *c = ctx;
    memcpy(c_log_prob, c->d_out + row, (size_t)n * sizeof(float));
    memcpy(c_entropy, c->d_out + c->rows + row, (size_t)n * sizeof(float));
}

TEST(head_with_its_entropy_term_equals_autograd_fused_or_in_two_passes)
{
    static const struct {
        int rows, vocab, k;
        ares_dtype dtype;
        float inv_temperature;
    } shapes[] = { { 21, 75, 20, ARES_F32, 1 },
                   { 70, 1100, 33, ARES_F32, 1.25f },
                   { 9, 600, 16, ARES_BF16, 1 } };
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 2, &d));
    for (int i = 0; i < ARES_COUNT(shapes); i++)
        for (int fused = 0; fused < 2; fused++) {
            int rows = shapes[i].rows, vocab = shapes[i].vocab, k = shapes[i].k;
            float *x = normals(21, rows * k, 1), *w_rows = normals(22, vocab * k, 2 / sqrt(k)),
                  *d_out = normals(23, 2 * rows, 1), *out = filled(2 * rows, NAN);
            float *lse = filled(rows, NAN), *c = filled(2 * rows, 0), *dx = filled(rows * k, NAN);
            int32_t *target = ares_malloc((size_t)rows * sizeof *target);
            for (int r = 0; r < rows; r++)
                target[r] = (int32_t)ares_rng_below(ares_rng_root(24, ARES_RNG_TEST), (uint64_t)r,
                                                    (uint64_t)vocab);
            ares_matrix w = weight_of(w_rows, vocab, k, shapes[i].dtype),
                        dw = weight_of(NULL, vocab, k, ARES_F32);
            ares_head_args h = { .rows = rows,
                                 .vocab = vocab,
                                 .x = x,
                                 .ldx = k,
                                 .w = &w,
                                 .inv_temperature = shapes[i].inv_temperature,
                                 .target = target,
                                 .log_prob = out,
                                 .entropy = out + rows,
                                 .lse = lse,
                                 .c_log_prob = c,
                                 .c_entropy = c + rows,
                                 .dx = dx,
                                 .lddx = k,
                                 .dw = &dw };
            if (fused) d.k->head_fused(&d, &h, give, &(coefficients){ d_out, rows });
            else {
                d.k->head(&d, &h);
                memcpy(c, d_out, (size_t)(2 * rows) * sizeof(float));
                d.k->head_backward(&d, &h);
            }
            float *dw_rows = rows_of(&dw);
            leaf leaves[] = { { "dx", x, dx, rows, k }, { "dw", w_rows, dw_rows, vocab, k } };
            agrees(fused ? "head_fused" : "head", head_formula,
                   &(head_case){ target, rows, (double)shapes[i].inv_temperature }, leaves, 2, out,
                   d_out, 2 * rows);
            void *all[] = { x, w_rows, d_out, out, lse, c, dx, target, w.data, dw.data, dw_rows };
            for (int j = 0; j < ARES_COUNT(all); j++) ares_free(all[j]);
        }
    ares_device_close(&d);
}

/* ---------------------------------------------------------------- AdamW */

TEST(adamw_follows_libtorchs_over_twenty_steps)
{
    enum { N = 301, STEPS = 20 };
    static const struct {
        double lr, beta1, beta2, eps, decay;
        bool master;
    } cases[] = { { 1e-3, 0.9, 0.999, 1e-8, 0.01, false },
                  { 2e-2, 0.8, 0.99, 1e-4, 0.3, false },
                  { 1e-3, 0.9, 0.95, 1e-8, 0, true } };
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 2, &d));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        at_scope *s = at_scope_open("adamw");
        float *w = normals(31, N, 1), *m = filled(N, 0), *v = filled(N, 0), *g;
        uint16_t stored[N];
        at_tensor tw = tensor_of(w, N, 0, AT_F64), tm = at_zeros(AT_F64, AT_DIMS(N)),
                  tv = at_zeros(AT_F64, AT_DIMS(N)), count = at_zeros(AT_F32, AT_SCALAR);
        for (int step = 1; step <= STEPS; step++) {
            g = normals(100 + (uint64_t)step, N, step % 5 == 0 ? 10 : 0.1);
            ares_adamw_args a = adamw_of(N, w, g, m, v, step);
            a.lr = cases[i].lr, a.eps = cases[i].eps, a.weight_decay = cases[i].decay;
            a.beta1 = cases[i].beta1, a.beta2 = cases[i].beta2;
            if (cases[i].master) a.w = stored, a.dtype = ARES_BF16, a.master = w;
            d.k->adamw(&d, &a);
            at_tensor tg = at_mul_s(tensor_of(g, N, 0, AT_F64), 0.5);
            at_value in[] = { AT_TS(&tw, 1),
                              AT_TS(&tg, 1),
                              AT_TS(&tm, 1),
                              AT_TS(&tv, 1),
                              AT_TS(NULL, 0),
                              AT_TS(&count, 1),
                              AT_DOUBLE(cases[i].lr),
                              AT_DOUBLE(cases[i].beta1),
                              AT_DOUBLE(cases[i].beta2),
                              AT_DOUBLE(cases[i].decay),
                              AT_DOUBLE(cases[i].eps),
                              AT_FLAG(false),
                              AT_FLAG(false) };
            at_add_(count, at_full(1, AT_F32, AT_SCALAR)); /* libtorch's caller counts */
            at_call("aten::_fused_adamw_", "", in, ARES_COUNT(in), NULL, 0);
            ares_free(g);
        }
        double want[N], bound[N];
        const struct {
            const char *name;
            const float *got;
            at_tensor t;
        } states[] = { { "w", w, tw }, { "m", m, tm }, { "v", v, tv } };
        for (int j = 0; j < 3; j++) {
            if (!CHECK_OK(at_read(states[j].t, AT_F64, want))) break;
            /* a step rounds a few times; errors of m and v decay, those of w add up, lr at a time
             */
            for (int e = 0; e < N; e++)
                bound[e] = STEPS * 4 * 0x1p-24 *
                               (fabs(want[e]) + (j == 0   ? 1 + 10 * cases[i].lr
                                                 : j == 1 ? 5
                                                          : 0)) +
                           1e-30;
            within(states[j].name, states[j].got, want, bound, N);
        }
        for (int e = 0; cases[i].master && e < N; e++)
            CHECK_EQ(stored[e], kernels_f32_to_bf16(w[e]));
        ares_free(w), ares_free(m), ares_free(v);
        CHECK_OK(at_scope_close(s, NULL));
    }
    ares_device_close(&d);
}

/*
 * a += scale b c, or scale b / c: a tensor of bf16 is rounded once. (add_ would round a scale to
 * bf16 first.)
 */
static void into(const char *op, at_tensor a, at_tensor b, at_tensor c, double scale)
{
    at_value in[] = { AT_T(a), AT_T(b), AT_T(c), AT_DOUBLE(scale) }, out;
    at_call(op, "", in, ARES_COUNT(in), &out, 1);
}

/*
 * AdamW with weights and moments in bf16 and a Kahan sum of what rounding leaves out, as
 * torchdistx's AnyPrecisionAdamW writes it on tensors of bf16: every line rounds once.
 */
typedef struct kahan {
    at_tensor w, m, v, c;
} kahan;
static void kahan_step(kahan *k, at_tensor g, const ares_adamw_args *a)
{
    double up = 1 - pow(a->beta1, (double)a->step),
           under = sqrt(1 - pow(a->beta2, (double)a->step));
    at_copy_(k->w, at_mul_s(k->w, 1 - a->lr * a->weight_decay));
    at_copy_(k->m, at_mul_s(k->m, a->beta1));
    into("aten::addcmul_", k->m, g, at_full(1, AT_BF16, AT_SCALAR), 1 - a->beta1);
    at_copy_(k->v, at_mul_s(k->v, a->beta2));
    into("aten::addcmul_", k->v, g, g, 1 - a->beta2);
    at_tensor root = at_add_s(at_mul_s(at_sqrt(k->v), 1 / under), a->eps), before = at_clone(k->w);
    into("aten::addcdiv_", k->c, k->m, root, -a->lr / up);
    at_copy_(k->w, at_add(k->w, k->c));
    at_copy_(k->c, at_add(k->c, at_sub(before, k->w)));
}

/* Gradients that mostly have one sign and are bf16 numbers. */
static float *bf16_gradients(int step, int n)
{
    float *g = normals(100 + (uint64_t)step, n, 1);
    for (int e = 0; e < n; e++)
        g[e] = kernels_bf16_to_f32(kernels_f32_to_bf16(g[e] + (e % 2 ? 1.0f : -1.0f)));
    return g;
}

/* At the first rate, the step of almost every weight is below half the distance of bf16 numbers. */
static void check_kahan(const char *isa, double lr)
{
    enum { N = 301, STEPS = 60 };
    ares_device d;
    if (!device_of(isa, 2, &d)) return;
    at_scope *s = at_scope_open("adamw_bf16");
    float *start = normals(31, N, 1);
    double x[N], mean[N] = { 0 }, square[N] = { 0 }, tw[N], tm[N], tv[N], tc[N], off = 0, moved = 0;
    uint16_t w[N], m[N] = { 0 }, v[N] = { 0 }, c[N] = { 0 };
    for (int e = 0; e < N; e++)
        x[e] = (double)(start[e] = kernels_bf16_to_f32(w[e] = kernels_f32_to_bf16(start[e])));
    kahan k = { at_to(tensor_of(start, N, 0, AT_F32), AT_BF16), at_zeros(AT_BF16, AT_DIMS(N)),
                at_zeros(AT_BF16, AT_DIMS(N)), at_zeros(AT_BF16, AT_DIMS(N)) };
    for (int step = 1; step <= STEPS; step++) {
        float *g = bf16_gradients(step, N);
        ares_adamw_args a = adamw_kahan_of(N, w, c, g, m, v, step);
        a.lr = lr, a.weight_decay = 0.01, a.grad_scale = 1;
        d.k->adamw(&d, &a);
        kahan_step(&k, at_to(tensor_of(g, N, 0, AT_F32), AT_BF16), &a);
        for (int e = 0; e < N; e++) { /* in f64, without any rounding */
            mean[e] = 0.9 * mean[e] + 0.1 * (double)g[e];
            square[e] = 0.99 * square[e] + 0.01 * (double)g[e] * (double)g[e];
            double under = sqrt(square[e] / (1 - pow(0.99, step))) + 1e-8;
            x[e] -= lr * (mean[e] / (1 - pow(0.9, step)) / under + 0.01 * x[e]);
        }
        ares_free(g);
    }
    at_read(k.w, AT_F64, tw), at_read(k.m, AT_F64, tm), at_read(k.v, AT_F64, tv),
        at_read(k.c, AT_F64, tc);
    for (int e = 0; e < N; e++) {
        /*
         * Where an f32 result lies halfway between two bf16 numbers, libtorch's order of operations
         * may give the other one: an ulp of m, v or c.
         */
        double now = (double)kernels_bf16_to_f32(w[e]),
               left_out = (double)kernels_bf16_to_f32(c[e]), ulp = 0x1p-7 * (fabs(tw[e]) + lr);
        CHECK_NEAR(kernels_bf16_to_f32(m[e]), tm[e], 0x1p-7 * (1 + fabs(tm[e])));
        CHECK_NEAR(kernels_bf16_to_f32(v[e]), tv[e], 0x1p-7 * fabs(tv[e]));
        CHECK_NEAR(now, tw[e], ulp);
        CHECK_NEAR(now + left_out, tw[e] + tc[e], 0x1p-6 * (ulp + lr));
        off = fmax(off, fabs(now + left_out - x[e]));
        moved = fmax(moved, fabs(x[e] - (double)start[e]));
    }
    CHECK_MSG(off < 0.1 * moved, "%s, lr %g: off by %g after a way of %g", isa, lr, off, moved);
    ares_free(start);
    CHECK_OK(at_scope_close(s, NULL));
    ares_device_close(&d);
}

TEST(adamw_in_bf16_keeps_what_rounding_leaves_out_as_in_libtorch)
{
    static const double rates[] = { 1e-4, 2e-3, 5e-2 };
    for (int i = 0; i < ISAS; i++)
        for (int r = 0; r < ARES_COUNT(rates); r++) check_kahan(isas[i], rates[r]);
}
