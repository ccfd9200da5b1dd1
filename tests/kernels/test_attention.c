/*
 * Attention against plain f64 loops over the same numbers (the reference), its gradients against
 * the reference's derivatives (which are compared with finite differences), and what must not
 * change a bit: paged keys, pieces of a prompt, other sequences, threads, the instruction set, a
 * prompt shared or not.
 */
#include "kernels_test.h"

enum { SEGMENTS_MAX = 8 };
typedef struct shape {
    int segments, rows[SEGMENTS_MAX],
        prefix_of[SEGMENTS_MAX]; /* the segment whose rows are the prefix; -1: none */
    int heads, kv_heads, dim;
    bool causal;
    int window;
    bool bf16;   /* arithmetic */
    float scale; /* of scores; 0: dim^-0.5 */
} shape;

static float scale_of(const shape *s)
{
    return s->scale != 0 ? s->scale : 1.0f / sqrtf((float)s->dim);
}

typedef struct problem {
    const shape *s;
    int total, start[SEGMENTS_MAX + 1], prefix_len[SEGMENTS_MAX], prefix_row[SEGMENTS_MAX];
    float *q, *k, *v, *d_out;        /* inputs */
    float *out, *lse, *dq, *dk, *dv; /* of the kernel */
    double *ref[5], *bound[5];       /* out, lse, dq, dk, dv */
} problem;
enum { OUT, LSE, DQ, DK, DV };

static problem problem_new(const shape *s, uint64_t seed)
{
    problem p = { .s = s };
    for (int i = 0; i < s->segments; i++) {
        p.start[i + 1] = p.start[i] + s->rows[i];
        p.prefix_len[i] = s->prefix_of[i] < 0 ? 0 : s->rows[s->prefix_of[i]];
        p.prefix_row[i] = s->prefix_of[i] < 0 ? 0 : p.start[s->prefix_of[i]];
    }
    p.total = p.start[s->segments];
    int64_t wide = (int64_t)p.total * s->heads * s->dim,
            narrow = (int64_t)p.total * s->kv_heads * s->dim;
    p.q = normals(seed, wide, 1.0);
    p.k = normals(seed + 1, narrow, 1.0);
    p.v = normals(seed + 2, narrow, 1.0);
    p.d_out = normals(seed + 3, wide, 1.0);
    /* in bf16 arithmetic the reference sees what is multiplied */
    float *inputs[] = { p.q, p.k, p.v, p.d_out };
    for (int i = 0; s->bf16 && i < 4; i++)
        for (int64_t j = 0; j < (i == 0 || i == 3 ? wide : narrow); j++)
            inputs[i][j] = kernels_bf16_to_f32(kernels_f32_to_bf16(inputs[i][j]));
    p.out = filled(wide, NAN);
    p.lse = filled((int64_t)p.total * s->heads, NAN);
    p.dq = filled(wide, NAN);
    p.dk = filled(narrow, 0.0f);
    p.dv = filled(narrow, 0.0f);
    int64_t n[5] = { wide, (int64_t)p.total * s->heads, wide, narrow, narrow };
    for (int i = 0; i < 5; i++) {
        p.ref[i] = ares_calloc((size_t)n[i], sizeof(double));
        p.bound[i] = ares_calloc((size_t)n[i], sizeof(double));
    }
    return p;
}
static void problem_free(problem *p)
{
    float *f[] = { p->q, p->k, p->v, p->d_out, p->out, p->lse, p->dq, p->dk, p->dv };
    for (int i = 0; i < ARES_COUNT(f); i++) ares_free(f[i]);
    for (int i = 0; i < 5; i++) ares_free(p->ref[i]), ares_free(p->bound[i]);
}
static ares_attention_args args_of(problem *p)
{
    const shape *s = p->s;
    return (ares_attention_args){ .seg = { .n = s->segments,
                                           .start = p->start,
                                           .prefix_len = p->prefix_len,
                                           .prefix_row = p->prefix_row },
                                  .n_heads = s->heads,
                                  .n_kv_heads = s->kv_heads,
                                  .head_dim = s->dim,
                                  .scale = scale_of(s),
                                  .causal = s->causal,
                                  .window = s->window,
                                  .bf16 = s->bf16,
                                  .q = p->q,
                                  .ldq = s->heads * s->dim,
                                  .k = p->k,
                                  .v = p->v,
                                  .ldkv = s->kv_heads * s->dim,
                                  .out = p->out,
                                  .ldo = s->heads * s->dim,
                                  .lse = p->lse,
                                  .d_out = p->d_out,
                                  .dq = p->dq,
                                  .lddq = s->heads * s->dim,
                                  .dk = p->dk,
                                  .dv = p->dv,
                                  .lddkv = s->kv_heads * s->dim };
}
static bool sees(const shape *s, int position, int key, int keys)
{
    return key < keys && (!s->causal || key <= position) &&
           (s->window == 0 || key > position - s->window);
}

/*
 * The reference, all in f64, with bounds of the f32 errors: a score is a chain of dim products
 * (error ds below), a probability changes by twice that and by the chain over keys, and the rest
 * follows term by term. eps is half an ulp of f32; the factor 4 covers exp, the division and the
 * order of the sums. short_: in bf16 arithmetic, of the probabilities and of the derivatives of
 * scores.
 */
static void reference(problem *p)
{
    const shape *s = p->s;
    const double eps = 4 * ldexp(1.0, -24), short_ = s->bf16 ? ldexp(1.0, -8) : 0;
    int dim = s->dim, group = s->heads / s->kv_heads;
    double scale = (double)scale_of(s);
    double *prob = ares_calloc((size_t)p->total, sizeof(double));
    for (int g = 0; g < s->segments; g++)
        for (int i = 0; i < s->rows[g]; i++)
            for (int h = 0; h < s->heads; h++) {
                int position = p->prefix_len[g] + i, keys = p->prefix_len[g] + s->rows[g],
                    kv = h / group, seen = 0;
                int64_t row = p->start[g] + i, at = (row * s->heads + h) * dim;
#define KEY_AT(j)                                                               \
    ((int64_t)((j) < p->prefix_len[g] ? p->prefix_row[g] + (j)                  \
                                      : p->start[g] + (j) - p->prefix_len[g]) * \
         s->kv_heads +                                                          \
     kv) *                                                                      \
        dim
                double max = -INFINITY, sum = 0.0, ds = 0.0;
                for (int j = 0; j < keys; j++) {
                    if (!sees(s, position, j, keys)) continue;
                    double score = 0.0, size = 0.0;
                    for (int d = 0; d < dim; d++) {
                        double t = (double)p->q[at + d] * p->k[KEY_AT(j) + d];
                        score += t;
                        size += fabs(t);
                    }
                    prob[j] = score * scale;
                    max = fmax(max, prob[j]);
                    ds = fmax(ds, eps * (dim * size * scale / 4 + 2 + fabs(prob[j])));
                    seen++;
                }
                for (int j = 0; j < keys; j++) {
                    prob[j] = sees(s, position, j, keys) ? exp(prob[j] - max) : 0.0;
                    sum += prob[j];
                }
                p->ref[LSE][row * s->heads + h] = max + log(sum);
                p->bound[LSE][row * s->heads + h] = 2 * ds + eps * (seen + fabs(max) + 4);
                double relative = 2 * ds + eps * seen, delta = 0.0, delta_size = 0.0;
                for (int d = 0; d < dim; d++) {
                    double out = 0.0, size = 0.0;
                    for (int j = 0; j < keys; j++) {
                        if (prob[j] == 0.0) continue;
                        double t = prob[j] / sum * p->v[KEY_AT(j) + d];
                        out += t;
                        size += fabs(t);
                    }
                    p->ref[OUT][at + d] = out;
                    p->bound[OUT][at + d] = (relative + short_) * size + 1e-30;
                    delta += out * p->d_out[at + d];
                    delta_size += size * fabs(p->d_out[at + d]);
                }
                for (int j = 0; j < keys; j++) {
                    double pr = prob[j] / sum, dp = 0.0, dp_size = 0.0;
                    if (pr == 0.0) continue;
                    for (int d = 0; d < dim; d++) {
                        double t = (double)p->d_out[at + d] * p->v[KEY_AT(j) + d];
                        dp += t;
                        dp_size += fabs(t);
                    }
                    double dscore = pr * (dp - delta) * scale,
                           loose = pr * (dp_size + delta_size) * scale *
                                   (relative + eps * dim + short_);
                    for (int d = 0; d < dim; d++) {
                        double k = p->k[KEY_AT(j) + d], q = p->q[at + d], o = p->d_out[at + d];
                        p->ref[DQ][at + d] += dscore * k;
                        p->bound[DQ][at + d] +=
                            (loose + (eps * seen + short_) * fabs(dscore)) * fabs(k);
                        p->ref[DK][KEY_AT(j) + d] += dscore * q;
                        p->bound[DK][KEY_AT(j) + d] +=
                            (loose + (eps * p->total * group + short_) * fabs(dscore)) * fabs(q);
                        p->ref[DV][KEY_AT(j) + d] += pr * o;
                        p->bound[DV][KEY_AT(j) + d] +=
                            pr * (relative + eps * p->total * group + short_) * fabs(o);
                    }
                }
            }
    ares_free(prob);
}

static int64_t wide_of(const problem *p)
{
    return (int64_t)p->total * p->s->heads * p->s->dim;
}
static int64_t narrow_of(const problem *p)
{
    return (int64_t)p->total * p->s->kv_heads * p->s->dim;
}

static const shape shapes[] = {
    { 1, { 1 }, { -1 }, 1, 1, 2, true, 0, false, 0 },
    { 3, { 5, 33, 70 }, { -1, -1, -1 }, 4, 2, 16, true, 0, false, 0 },
    { 2, { 130, 31 }, { -1, -1 }, 9, 3, 64, true, 0, false, 0 },
    { 4, { 37, 20, 1, 61 }, { -1, 0, 0, 0 }, 6, 2, 32, true, 0, false, 0 }, /* a prompt and three
                                                                            answers */
    /* two groups; one prompt is a whole block */
    { 6, { 32, 9, 8, 70, 3, 40 }, { -1, 0, 0, -1, 3, 3 }, 3, 1, 24, true, 0, false, 0 },
    { 2, { 50, 90 }, { -1, -1 }, 4, 4, 80, true, 40, false, 0.31f }, /* window */
    { 2, { 40, 70 }, { -1, -1 }, 2, 2, 16, true, 1, false, 0 },      /* the narrowest: a token sees
                                                                      * itself
                                                                      */
    { 2, { 40, 67 }, { -1, -1 }, 2, 1, 18, false, 0, false, 0 },     /* vision: everything sees
                                                                      * everything
                                                                      */
    /* more heads per KV head than attention takes at a time */
    { 3, { 11, 3, 40 }, { -1, 0, 0 }, 20, 1, 6, true, 17, false, 0.09f },
    /* in bf16 arithmetic */
    { 1, { 1 }, { -1 }, 1, 1, 2, true, 0, true, 0 },
    { 2, { 130, 31 }, { -1, -1 }, 9, 3, 64, true, 0, true, 0 },
    { 4, { 37, 20, 1, 61 }, { -1, 0, 0, 0 }, 6, 2, 32, true, 0, true, 0 },
    { 6, { 32, 9, 8, 70, 3, 40 }, { -1, 0, 0, -1, 3, 3 }, 3, 1, 24, true, 0, true, 0 },
    { 2, { 50, 90 }, { -1, -1 }, 4, 4, 80, true, 39, true, 0.31f },
    { 2, { 40, 70 }, { -1, -1 }, 2, 2, 16, true, 1, true, 0 },
    { 2, { 40, 67 }, { -1, -1 }, 2, 1, 18, false, 0, true, 0 },
    { 3, { 11, 3, 40 }, { -1, 0, 0 }, 20, 1, 6, true, 18, true, 0 },
};

TEST(attention_and_its_gradients_equal_an_f64_reference)
{
    for (int i = 0; i < ARES_COUNT(shapes); i++) {
        problem p = problem_new(&shapes[i], 10 + (uint64_t)i);
        reference(&p);
        for (int isa = 0; isa < ISAS; isa++) {
            ares_device d;
            if (!device_of(isas[isa], 2, &d)) continue;
            memset(p.dk, -1, (size_t)narrow_of(&p) * sizeof(float)); /* NaN: they are written */
            memset(p.dv, -1, (size_t)narrow_of(&p) * sizeof(float));
            ares_attention_args a = args_of(&p);
            d.k->attention(&d, &a);
            within("out", p.out, p.ref[OUT], p.bound[OUT], wide_of(&p));
            within("lse", p.lse, p.ref[LSE], p.bound[LSE], (int64_t)p.total * p.s->heads);
            d.k->attention_backward(&d, &a);
            within("dq", p.dq, p.ref[DQ], p.bound[DQ], wide_of(&p));
            within("dk", p.dk, p.ref[DK], p.bound[DK], narrow_of(&p));
            within("dv", p.dv, p.ref[DV], p.bound[DV], narrow_of(&p));
            ares_device_close(&d);
        }
        problem_free(&p);
    }
}

/* The reference's derivatives, by which the kernels are judged, against finite differences of it.
 */
TEST(the_f64_reference_has_the_derivatives_of_its_outputs)
{
    static const shape s = { 3, { 5, 3, 4 }, { -1, 0, 0 }, 4, 2, 6, true, 5, false, 0 };
    problem p = problem_new(&s, 77);
    reference(&p);
    float *inputs[] = { p.q, p.k, p.v };
    int64_t sizes[] = { wide_of(&p), narrow_of(&p), narrow_of(&p) };
    for (int which = 0; which < 3; which++)
        for (int64_t i = 0; i < sizes[which]; i += 7) {
            float kept = inputs[which][i];
            double loss[2], x[2];
            for (int side = 0; side < 2; side++) {
                problem moved = problem_new(&s, 77);
                float *input = which == 0 ? moved.q : which == 1 ? moved.k : moved.v;
                input[i] = kept + (side ? 0.0009765625f : -0.0009765625f);
                x[side] = input[i];
                reference(&moved);
                loss[side] = 0.0;
                for (int64_t j = 0; j < sizes[0]; j++) loss[side] += moved.ref[OUT][j] * p.d_out[j];
                problem_free(&moved);
            }
            CHECK_NEAR((loss[1] - loss[0]) / (x[1] - x[0]), p.ref[DQ + which][i],
                       2e-5); /* h^2/6 of the third derivative */
        }
    problem_free(&p);
}

/* Runs forward and backward on a fresh copy of the problem; the caller frees it. */
static problem run(const shape *s, uint64_t seed, const char *isa, int threads)
{
    problem p = problem_new(s, seed);
    ares_device d;
    if (!device_of(isa, threads, &d)) return p;
    ares_attention_args a = args_of(&p);
    d.k->attention(&d, &a);
    d.k->attention_backward(&d, &a);
    ares_device_close(&d);
    return p;
}
static void same_results(const problem *a, const problem *b)
{
    CHECK_MEM(a->out, b->out, (size_t)wide_of(a) * sizeof(float));
    CHECK_MEM(a->lse, b->lse, (size_t)a->total * (size_t)a->s->heads * sizeof(float));
    CHECK_MEM(a->dq, b->dq, (size_t)wide_of(a) * sizeof(float));
    CHECK_MEM(a->dk, b->dk, (size_t)narrow_of(a) * sizeof(float));
    CHECK_MEM(a->dv, b->dv, (size_t)narrow_of(a) * sizeof(float));
}

/* Seen to fail with the running sum made one FMA in the AVX-512 build. */
TEST(attention_has_the_same_bits_from_every_instruction_set_and_thread_count)
{
    for (int i = 0; i < ARES_COUNT(shapes); i++) {
        problem want = run(&shapes[i], 20 + (uint64_t)i, "plain", 1);
        for (int isa = 0; isa < ISAS; isa++)
            for (int threads = 1; threads <= 3; threads += 2) {
                if (!test_has_isa(isas[isa])) continue;
                problem got = run(&shapes[i], 20 + (uint64_t)i, isas[isa], threads);
                same_results(&got, &want);
                problem_free(&got);
            }
        problem_free(&want);
    }
}

/* The cache of a problem: sequences in blocks of a scrambled table, all other memory NaN. */
typedef struct paged {
    float *cache;
    int32_t *table;
    int stride;
} paged;
static paged page(ares_device *d, problem *p)
{
    const shape *s = p->s;
    paged c = { .stride = 16 };
    int blocks = s->segments * c.stride;
    /* NaN, as f32 and as bf16 */
    size_t bytes = (size_t)(blocks * s->kv_heads * 64 * s->dim) * sizeof(float);
    c.cache = memset(ares_malloc(bytes), -1, bytes);
    c.table = ares_malloc((size_t)blocks * sizeof(int32_t));
    for (int i = 0; i < blocks; i++)
        c.table[i] = (int32_t)((i * 7 + 3) % blocks); /* 7 divides no number of blocks here */
    for (int g = 0; g < s->segments; g++)
        for (int j = 0; j < p->prefix_len[g] + s->rows[g]; j++) {
            int64_t row =
                j < p->prefix_len[g] ? p->prefix_row[g] + j : p->start[g] + j - p->prefix_len[g];
            int32_t slot = c.table[g * c.stride + j / 32] * 32 + j % 32;
            d->k->store_kv(d, 1, s->kv_heads, s->dim, p->k + row * s->kv_heads * s->dim,
                           p->v + row * s->kv_heads * s->dim, s->kv_heads * s->dim, &slot, c.cache,
                           s->bf16);
        }
    return c;
}

/*
 * Seen to fail with all 32 values of the last block read; in bf16 arithmetic with a pair of values
 * whose first key alone is there, and with pairs counted from an odd key on.
 */
TEST(paged_attention_equals_packed_whole_or_in_pieces_of_a_prompt)
{
    for (int i = 0; i < ARES_COUNT(shapes); i++)
        for (int isa = 0; isa < ISAS; isa++) {
            ares_device d;
            if (!shapes[i].causal || !device_of(isas[isa], 2, &d)) continue;
            problem p = problem_new(&shapes[i], 30 + (uint64_t)i);
            const shape *s = p.s;
            ares_attention_args a = args_of(&p);
            d.k->attention(&d, &a);
            paged c = page(&d, &p);
            static const int pieces[] = { 1000, 1, 5, 40 };
            for (int piece = 0; piece < ARES_COUNT(pieces); piece++) {
                float *out = filled(wide_of(&p), NAN),
                      *lse = filled((int64_t)p.total * s->heads, NAN);
                for (int done = 0; done < 1000;
                     /* rows done .. done + piece of every segment at once */
                     done += pieces[piece]) {
                    int32_t start[SEGMENTS_MAX + 1] = { 0 }, prefix[SEGMENTS_MAX];
                    int64_t row = 0, width = s->heads * s->dim;
                    float *q = filled((int64_t)p.total * width, 0.0f),
                          *o = filled((int64_t)p.total * width, NAN);
                    float *l = filled((int64_t)p.total * s->heads, NAN);
                    for (int g = 0; g < s->segments; g++) {
                        int n = s->rows[g] - done < 0               ? 0
                                : s->rows[g] - done < pieces[piece] ? s->rows[g] - done
                                                                    : pieces[piece];
                        memcpy(q + row * width, p.q + (p.start[g] + done) * width * (n > 0),
                               (size_t)(n * width) * sizeof(float));
                        prefix[g] = p.prefix_len[g] + done;
                        start[g + 1] = (int32_t)(row += n);
                    }
                    ares_attention_args b = a;
                    b.seg = (ares_segments){ .n = s->segments,
                                             .start = start,
                                             .prefix_len = prefix,
                                             .block_table = c.table,
                                             .table_stride = c.stride };
                    b.q = q, b.out = o, b.lse = l, b.cache = c.cache, b.k = b.v = NULL;
                    d.k->attention(&d, &b);
                    for (int g = 0; g < s->segments; g++) {
                        size_t n = (size_t)(start[g + 1] - start[g]);
                        if (n == 0) continue;
                        memcpy(out + (p.start[g] + done) * width, o + start[g] * width,
                               n * (size_t)width * sizeof(float));
                        memcpy(lse + (p.start[g] + done) * s->heads, l + start[g] * s->heads,
                               n * (size_t)s->heads * sizeof(float));
                    }
                    ares_free(q), ares_free(o), ares_free(l);
                    if (row == 0) break;
                }
                CHECK_MEM(out, p.out, (size_t)wide_of(&p) * sizeof(float));
                CHECK_MEM(lse, p.lse, (size_t)p.total * (size_t)s->heads * sizeof(float));
                ares_free(out), ares_free(lse);
            }
            ares_free(c.cache), ares_free(c.table);
            problem_free(&p);
            ares_device_close(&d);
        }
}

/* A sequence alone, among others, and with its prompt shared or repeated. */
TEST(other_sequences_and_a_shared_prompt_do_not_change_a_sequence)
{
    static const shape shared = {
        4, { 37, 20, 1, 61 }, { -1, 0, 0, 0 }, 6, 2, 32, true, 0, false, 0
    };
    static const shape whole = { 3, { 57, 38, 98 }, { -1, -1, -1 }, 6, 2, 32, true, 0, false, 0 };
    static const shape alone = { 1, { 98 }, { -1 }, 6, 2, 32, true, 0, false, 0 };
    const char *isa = best_isa();
    ares_device d;
    REQUIRE(device_of(isa, 2, &d));
    problem a = problem_new(&shared, 5), b = problem_new(&whole, 6), c = problem_new(&alone, 7);
    int64_t w = 6 * 32, n = 2 * 32, row = 0;
    for (int g = 1; g < 4;
         g++) { /* b's sequences: the prompt's rows, then the answer's; c: the last of them */
        for (int j = 0; j < 37 + shared.rows[g]; j++, row++) {
            int64_t from = j < 37 ? j : a.start[g] + j - 37;
            memcpy(b.q + row * w, a.q + from * w, (size_t)w * sizeof(float));
            memcpy(b.d_out + row * w, a.d_out + from * w, (size_t)w * sizeof(float));
            if (j < 37 && g > 1)
                memset(b.d_out + row * w, 0,
                       (size_t)w * sizeof(float)); /* the shared prompt's own loss counts once */
            memcpy(b.k + row * n, a.k + from * n, (size_t)n * sizeof(float));
            memcpy(b.v + row * n, a.v + from * n, (size_t)n * sizeof(float));
        }
    }
    memcpy(c.q, b.q + 95 * w, (size_t)(98 * w) * sizeof(float));
    memcpy(c.k, b.k + 95 * n, (size_t)(98 * n) * sizeof(float));
    memcpy(c.v, b.v + 95 * n, (size_t)(98 * n) * sizeof(float));
    memcpy(c.d_out, b.d_out + 95 * w, (size_t)(98 * w) * sizeof(float));
    problem *all[] = { &a, &b, &c };
    for (int i = 0; i < 3; i++) {
        ares_attention_args args = args_of(all[i]);
        d.k->attention(&d, &args);
        d.k->attention_backward(&d, &args);
    }
    CHECK_MEM(c.out, b.out + 95 * w, (size_t)(98 * w) * sizeof(float));
    CHECK_MEM(c.dq, b.dq + 95 * w, (size_t)(98 * w) * sizeof(float));
    CHECK_MEM(c.dk, b.dk + 95 * n, (size_t)(98 * n) * sizeof(float));
    CHECK_MEM(c.dv, b.dv + 95 * n, (size_t)(98 * n) * sizeof(float));
    CHECK_MEM(a.out, b.out, (size_t)(37 * w) * sizeof(float));
    CHECK_MEM(a.out + a.start[3] * w, b.out + (95 + 37) * w, (size_t)(61 * w) * sizeof(float));
    CHECK_MEM(a.out + a.start[1] * w, b.out + 37 * w, (size_t)(20 * w) * sizeof(float));
    CHECK_MEM(a.dq + a.start[3] * w, b.dq + (95 + 37) * w, (size_t)(61 * w) * sizeof(float));
    /* gradients of the shared prompt: the sum over the repeated ones, in another order */
    reference(&a);
    double *dk = ares_calloc((size_t)(37 * n), sizeof(double));
    for (int g = 0; g < 3; g++)
        for (int64_t j = 0; j < 37 * n; j++) dk[j] += b.dk[b.start[g] * n + j];
    within("shared dk", a.dk, dk, a.bound[DK], 37 * n);
    ares_free(dk);
    problem_free(&a), problem_free(&b), problem_free(&c);
    ares_device_close(&d);
}

/* NaN in one sequence must not change a bit of the next. */
TEST(attention_keeps_a_nan_in_its_sequence)
{
    static const shape s = { 2, { 40, 45 }, { -1, -1 }, 2, 1, 16, true, 0, false, 0 };
    ares_device d;
    REQUIRE(device_of("plain", 1, &d));
    problem a = problem_new(&s, 8), b = problem_new(&s, 8);
    b.k[3] = b.v[39 * 16] = b.q[5] = NAN;
    ares_attention_args x = args_of(&a), y = args_of(&b);
    d.k->attention(&d, &x), d.k->attention(&d, &y);
    d.k->attention_backward(&d, &x), d.k->attention_backward(&d, &y);
    CHECK(isnan(b.out[0]));
    CHECK_MEM(a.out + 40 * 32, b.out + 40 * 32, 45 * 32 * sizeof(float));
    CHECK_MEM(a.dq + 40 * 32, b.dq + 40 * 32, 45 * 32 * sizeof(float));
    CHECK_MEM(a.dk + 40 * 16, b.dk + 40 * 16, 45 * 16 * sizeof(float));
    problem_free(&a), problem_free(&b);
    ares_device_close(&d);
}

/* Tasks divide the rows between two keys of a pair, too. */
TEST(rows_stored_together_make_the_bf16_cache_of_rows_stored_one_by_one)
{
    enum { ROWS = 300, HEADS = 3, DIM = 18, BLOCKS = 12 };
    float *k = normals(1, ROWS * HEADS * DIM, 1), *v = normals(2, ROWS * HEADS * DIM, 1);
    int32_t slots[ROWS];
    /* two sequences, the second from an odd slot on */
    for (int r = 0; r < ROWS; r++) slots[r] = r < 151 ? r : r + 32;
    size_t bytes = (size_t)BLOCKS * 64 * HEADS * DIM * 2;
    for (int isa = 0; isa < ISAS; isa++) {
        ares_device d;
        if (!device_of(isas[isa], 2, &d)) continue;
        uint16_t *one = ares_malloc(bytes), *all = ares_malloc(bytes);
        memset(one, -1, bytes), memset(all, -1, bytes); /* NaN */
        for (int r = 0; r < ROWS; r++)
            d.k->store_kv(&d, 1, HEADS, DIM, k + r * HEADS * DIM, v + r * HEADS * DIM, HEADS * DIM,
                          slots + r, one, true);
        d.k->store_kv(&d, ROWS, HEADS, DIM, k, v, HEADS * DIM, slots, all, true);
        CHECK_MEM(all, one, bytes);
        ares_free(one), ares_free(all);
        ares_device_close(&d);
    }
    ares_free(k), ares_free(v);
}
