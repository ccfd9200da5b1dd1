/*
 * The CUDA table with bf16 activations against the one with f32, from the same numbers, which bf16
 * holds exactly. Both compute in f32 and the bf16 table rounds once, so a result differs by half a
 * unit in the last of 8 places, at most 2^-8 of itself; sums in another order add far less than
 * that of the largest. What is f32 in both tables (rstd, gradients of weights) agrees as closely as
 * f32.
 */
#include "host.h"
#include "kernels_test.h"

enum { ROWS = 7, HEADS = 3, DIM = 32, WIDE = HEADS * DIM, N = 24, LD = 104 };

/* An array on both devices: f32 on the first, activations on the second. */
typedef struct both {
    float *f32;
    uint16_t *bf16;
    int64_t n;
} both;
static ares_device d[2];

static bool open_both(void)
{
    int rc = ares_device_open("cuda", 0, &d[0]);
    const char *required = getenv("ARES_REQUIRE_CUDA");
    if (rc != ARES_OK && !(required && *required)) {
        test_skip(ares_error_message());
        return false;
    }
    return CHECK_OK(rc) && CHECK_OK(ares_device_open_table("cuda", "native", ARES_BF16, 0, &d[1]));
}
static void close_both(void)
{
    for (int i = 0; i < 2; i++) {
        CHECK_OK(d[i].k->sync(&d[i]));
        ares_device_close(&d[i]);
    }
}
static void *up(int i, const void *host, size_t bytes)
{
    void *p = d[i].k->alloc(&d[i], bytes);
    d[i].k->copy_in(&d[i], p, host, bytes);
    return p;
}
static both numbers(uint64_t seed, int64_t n)
{
    float *x = normals(seed, n, 1.0);
    uint16_t *half = ares_malloc((size_t)n * sizeof *half);
    for (int64_t i = 0; i < n; i++) x[i] = kernels_bf16_to_f32(half[i] = kernels_f32_to_bf16(x[i]));
    both b = { up(0, x, (size_t)n * sizeof *x), up(1, half, (size_t)n * sizeof *half), n };
    ares_free(x);
    ares_free(half);
    return b;
}
static void *of(const both *b, int i, int64_t at)
{
    return i ? (void *)(b->bf16 + at) : (void *)(b->f32 + at);
}
/* n f32 numbers on each device, and their comparison. */
static void floats(float *on[2], uint64_t seed, int64_t n)
{
    float *x = normals(seed, n, 1.0);
    for (int i = 0; i < 2; i++) on[i] = up(i, x, (size_t)n * sizeof *x);
    ares_free(x);
}
static void compare(const char *what, const float *got, const float *want, int64_t n, double each,
                    double of_largest)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= each * fabs(want[i]) + of_largest * most)) {
            CHECK_MSG(false, "%s[%lld] = %.9g, f32 has %.9g (largest %.3g)", what, (long long)i,
                      got[i], want[i], most);
            return;
        }
}
static void same_floats(const char *what, float *on[2], int64_t n)
{
    float *x[2];
    for (int i = 0; i < 2; i++) {
        x[i] = ares_malloc((size_t)n * sizeof *x[i]);
        d[i].k->copy_out(&d[i], x[i], on[i], (size_t)n * sizeof *x[i]);
    }
    compare(what, x[1], x[0], n, 0, 1e-5);
    ares_free(x[0]);
    ares_free(x[1]);
}
/* roundings: how often a result was rounded to bf16 on its way */
static void same(const char *what, const both *b, int roundings)
{
    size_t n = (size_t)b->n;
    float *want = ares_malloc(n * sizeof *want), *got = ares_malloc(n * sizeof *got);
    uint16_t *half = ares_malloc(n * sizeof *half);
    d[0].k->copy_out(&d[0], want, b->f32, n * sizeof *want);
    d[1].k->copy_out(&d[1], half, b->bf16, n * sizeof *half);
    for (size_t i = 0; i < n; i++) got[i] = kernels_bf16_to_f32(half[i]);
    compare(what, got, want, b->n, 1.0 / 256, 1e-5 + (roundings - 1) / 256.0);
    ares_free(want);
    ares_free(got);
    ares_free(half);
}

static ares_matrix weight(const both *b, int i, int64_t at, int32_t n, int32_t k)
{
    return (ares_matrix){ of(b, i, at), i ? ARES_BF16 : ARES_F32, ARES_ROWS, n, k };
}

TEST_GPU(cuda_bf16_products_round_once_and_adjacent_weights_are_one)
{
    if (!open_both()) return;
    both x = numbers(1, ROWS * LD), w = numbers(2, 2 * N * WIDE), bias = numbers(3, 2 * N),
         y = numbers(4, ROWS * LD), r = numbers(5, ROWS * LD), z = numbers(6, ROWS * LD);
    int64_t launched[2] = { 0 };
    for (int i = 0; i < 2; i++) {
        ares_matrix first = weight(&w, i, 0, N, WIDE), second = weight(&w, i, N * WIDE, N, WIDE);
        ares_linear_args a[2] = {
            { ROWS, of(&x, i, 0), LD, &first, of(&bias, i, 0), NULL, 0, of(&y, i, 0), LD, 0 },
            { ROWS, of(&x, i, 0), LD, &second, of(&bias, i, N), NULL, 0, of(&y, i, N), LD, 0 }
        };
        int64_t (*count)(const char *, const char *);
        *(void **)&count = ares_device_symbol(&d[i], "ares_emulate_count"); /* NULL on a card */
        /* bias and residual go along with the product */
        if (count) launched[0] = count("launch", NULL);
        d[i].k->linear(&d[i], a, 2);
        if (count) launched[1] = count("launch", NULL);
        if (count) CHECK_EQ(launched[1] - launched[0], 1);
        a[0].bias = NULL; /* in place, then beside */
        a[0].y = (void *)(a[0].residual = of(&r, i, 0));
        a[0].ldr = LD;
        d[i].k->linear(&d[i], a, 1);
        a[0].y = of(&z, i, 0);
        d[i].k->linear(&d[i], a, 1);
    }
    same("y with bias", &y, 1);
    same("y += residual", &r, 1);
    same("y and a residual", &z, 2);
    close_both();
}

/*
 * Whatever the weight's shape: outputs of one column block and of many, steps that are no whole 32,
 * and steps that several blocks share.
 */
TEST_GPU(cuda_bf16_products_of_up_to_64_rows_have_the_bits_of_a_row_alone)
{
    if (!open_both()) return;
    static const struct {
        int32_t n, k;
    } shapes[] = { { 5, 8 }, { 33, 40 }, { 100, 264 }, { 2200, 72 }, { 4300, 16 } };
    static const int32_t counts[] = { 64, 1, 5, 16, 17, 32, 33 };
    enum { MOST = 64 };
    for (int i = 0; i < ARES_COUNT(shapes); i++) {
        int32_t n = shapes[i].n, k = shapes[i].k;
        both x = numbers(1, MOST * k), w = numbers(2, (int64_t)n * k), bias = numbers(3, n),
             r = numbers(4, (int64_t)MOST * n), y = numbers(5, (int64_t)MOST * n);
        size_t bytes = (size_t)MOST * (size_t)n * sizeof(uint16_t);
        uint16_t *first = ares_malloc(bytes), *got = ares_malloc(bytes);
        for (int j = 0; j < ARES_COUNT(counts); j++) {
            int32_t rows = counts[j], from = MOST - rows; /* the last rows of 64 */
            for (int on = j > 0; on < 2; on++) {
                ares_matrix m = weight(&w, on, 0, n, k);
                ares_linear_args a = { rows,
                                       of(&x, on, (int64_t)from * k),
                                       k,
                                       &m,
                                       of(&bias, on, 0),
                                       of(&r, on, (int64_t)from * n),
                                       n,
                                       of(&y, on, (int64_t)from * n),
                                       n,
                                       0 };
                d[on].k->linear(&d[on], &a, 1);
            }
            d[1].k->copy_out(&d[1], j ? got : first, y.bf16, bytes);
            if (j == 0) same("y", &y, 1);
            else
                CHECK_MSG(memcmp(got, first, bytes) == 0, "%d x %d: %d rows have other bits", n, k,
                          rows);
        }
        ares_free(first), ares_free(got);
    }
    close_both();
}

/* The logits, in f32, are such products. Seen to fail where only few rows divide the steps. */
TEST_GPU(cuda_bf16_head_of_up_to_64_rows_has_the_bits_of_a_row_alone)
{
    if (!open_both()) return;
    enum { MOST = 64, VOCAB = 300, K = 328 };
    both x = numbers(1, MOST * K), w = numbers(2, VOCAB * K);
    int32_t target[MOST];
    for (int i = 0; i < MOST; i++) target[i] = i * 7 % VOCAB;
    int32_t *target_on = up(1, target, sizeof target);
    float *on = d[1].k->alloc(&d[1], 3 * MOST * sizeof *on), first[3 * MOST], got[3 * MOST];
    ares_matrix m = weight(&w, 1, 0, VOCAB, K);
    static const int32_t counts[] = { 64, 1, 31, 48 };
    for (int j = 0; j < ARES_COUNT(counts); j++) {
        int32_t rows = counts[j], from = MOST - rows;
        ares_head_args a = { .rows = rows,
                             .vocab = VOCAB,
                             .x = of(&x, 1, from * K),
                             .ldx = K,
                             .w = &m,
                             .inv_temperature = 1,
                             .target = target_on + from,
                             .log_prob = on + from,
                             .entropy = on + MOST + from,
                             .lse = on + 2 * MOST + from };
        d[1].k->head(&d[1], &a);
        d[1].k->copy_out(&d[1], j ? got : first, on, sizeof got);
        if (j) CHECK_MSG(memcmp(got, first, sizeof got) == 0, "%d rows have other bits", rows);
    }
    close_both();
}

TEST_GPU(cuda_bf16_products_give_gradients_of_weights_in_f32)
{
    if (!open_both()) return;
    both x = numbers(1, ROWS * LD), w = numbers(2, N * WIDE), dy = numbers(3, ROWS * LD),
         dx = numbers(4, ROWS * LD), more = numbers(5, ROWS * LD);
    float *dw[2], *dbias[2];
    floats(dw, 6, N * WIDE), floats(dbias, 7, N);
    for (int i = 0; i < 2; i++) {
        ares_matrix wi = weight(&w, i, 0, N, WIDE), dwi = { dw[i], ARES_F32, ARES_ROWS, N, WIDE };
        ares_linear_backward_args a = { .m = ROWS,
                                        .dy = of(&dy, i, 0),
                                        .lddy = LD,
                                        .w = &wi,
                                        .dx = of(&dx, i, 0),
                                        .lddx = LD,
                                        .x = of(&x, i, 0),
                                        .ldx = LD,
                                        .dw = &dwi,
                                        .dbias = dbias[i] };
        d[i].k->linear_backward(&d[i], &a, 1);
        a.dw = NULL, a.dbias = NULL, a.accumulate = true, a.dx = of(&more, i, 0);
        d[i].k->linear_backward(&d[i], &a, 1);
    }
    same("dx", &dx, 1);
    same("dx +=", &more, 1);
    same_floats("dw", dw, N * WIDE);
    same_floats("dbias", dbias, N);
    close_both();
}

TEST_GPU(cuda_bf16_norms_of_rows_and_of_heads)
{
    if (!open_both()) return;
    for (int heads = 0; heads <= HEADS; heads += HEADS) {
        both x = numbers(1, ROWS * LD), y = numbers(2, ROWS * LD), dy = numbers(3, ROWS * LD),
             dx = numbers(4, ROWS * LD);
        int32_t rows = heads ? ROWS * heads : ROWS, k = heads ? DIM : WIDE;
        float *w[2], *rstd[2], *dw[2];
        floats(w, 5, WIDE), floats(rstd, 6, ROWS * HEADS), floats(dw, 7, WIDE);
        for (int i = 0; i < 2; i++) {
            ares_rms_norm_args a = { .rows = rows,
                                     .k = k,
                                     .heads = heads,
                                     .x = of(&x, i, 0),
                                     .ldx = LD,
                                     .w = w[i],
                                     .eps = 1e-6f,
                                     .y = of(&y, i, 0),
                                     .ldy = LD,
                                     .rstd = rstd[i],
                                     .dy = of(&dy, i, 0),
                                     .lddy = LD,
                                     .dx = of(&dx, i, 0),
                                     .lddx = LD,
                                     .dw = dw[i] };
            d[i].k->rms_norm(&d[i], &a);
            d[i].k->rms_norm_backward(&d[i], &a);
        }
        same("y", &y, 1);
        same("dx", &dx, 1);
        same_floats("rstd", rstd, rows);
        same_floats("dw", dw, k);
    }
    close_both();
}

/* Rows 16 bytes apart, of which a thread takes 8 numbers at once, and rows that are not. */
TEST_GPU(cuda_bf16_rotations_and_swiglu)
{
    if (!open_both()) return;
    for (int64_t ld = LD - 4; ld <= LD; ld += 4) {
        both x = numbers(1, ROWS * ld), gate_up = numbers(2, ROWS * ld), y = numbers(3, ROWS * ld),
             dy = numbers(4, ROWS * ld), d_gate_up = numbers(5, ROWS * ld),
             z = numbers(6, ROWS * ld);
        float *angles[2];
        floats(angles, 7, ROWS * DIM);
        for (int i = 0; i < 2; i++) {
            d[i].k->rope(&d[i], ROWS, HEADS, DIM, 0, of(&x, i, 0), ld, angles[i], false);
            ares_gate_mul_args a = { .rows = ROWS,
                                     .k = N,
                                     .gate = of(&gate_up, i, 0),
                                     .up = of(&gate_up, i, N),
                                     .ldgu = ld,
                                     .y = of(&y, i, 0),
                                     .ldy = ld,
                                     .dy = of(&dy, i, 0),
                                     .lddy = ld,
                                     .d_gate = of(&d_gate_up, i, 0),
                                     .d_up = of(&d_gate_up, i, N),
                                     .lddgu = ld };
            d[i].k->gate_mul(&d[i], &a);
            a.y = of(&z, i, 0);
            d[i].k->gate_mul_backward(&d[i], &a);
        }
        same("rope", &x, 1);
        same("silu_mul", &y, 1);
        same("silu_mul again", &z, 1);
        same("d_gate, d_up", &d_gate_up, 1);
    }
    close_both();
}

TEST_GPU(cuda_bf16_look_ups_conversions_and_their_gradients)
{
    if (!open_both()) return;
    static const int32_t ids[] = { 5, 0, 5, 23, 1, 5, 2 }, once[] = { 5, 0, 4, 23, 1, 3, 2 };
    both e = numbers(1, N * WIDE), y = numbers(2, ROWS * LD), dy = numbers(3, ROWS * LD),
         scattered = numbers(4, N * WIDE);
    float *de[2], *wide[2];
    floats(de, 5, N * WIDE), floats(wide, 6, ROWS * LD);
    for (int i = 0; i < 2; i++) {
        ares_matrix table = weight(&e, i, 0, N, WIDE), to = weight(&scattered, i, 0, N, WIDE),
                    gradient = { de[i], ARES_F32, ARES_ROWS, N, WIDE };
        const int32_t *on = up(i, ids, sizeof ids), *each = up(i, once, sizeof once);
        d[i].k->embedding(&d[i], &table, on, ROWS, of(&y, i, 0), LD, 0);
        d[i].k->embedding_backward(&d[i], &gradient, on, ROWS, of(&dy, i, 0), LD, 0);
        d[i].k->embedding_backward(&d[i], &to, each, ROWS, of(&dy, i, 0), LD, 0);
        d[i].k->convert(&d[i], wide[i], ARES_F32, of(&dy, i, 0), d[i].k->act, ROWS * LD);
    }
    same("rows", &y, 1);
    same_floats("de", de, N * WIDE);
    same("scattered", &scattered, 1);
    same_floats("widened", wide, ROWS * LD);
    for (int i = 0; i < 2; i++)
        d[i].k->convert(&d[i], of(&dy, i, 0), d[i].k->act, wide[i], ARES_F32, ROWS * LD);
    same("narrowed", &dy, 1);
    close_both();
}

/* Two prompts, one after the other's answers, the last answer to the first one. */
TEST_GPU(cuda_gradients_of_listed_keys_are_summed_in_segment_order_and_rounded_once)
{
    enum { SEGMENTS = 7, ALL = 64, KEYS = 200 };
    static const int32_t start[SEGMENTS + 1] = { 0, 9, 14, 15, 15, 40, 43, 64 },
                                          prefix_len[SEGMENTS] = { 0, 9, 4, 9, 0, 25, 9 },
                                          prefix_row[SEGMENTS] = { 0, 0, 0, 0, 0, 15, 0 };
    ares_segments seg = {
        .n = SEGMENTS, .start = start, .prefix_len = prefix_len, .prefix_row = prefix_row
    };
    int32_t key_start[SEGMENTS + 1], key_row[KEYS];
    if (!open_both()) return;
    ares_segments_measure(&seg);
    REQUIRE(seg.rows == ALL && seg.keys <= KEYS);
    ares_segments_list_keys(&seg, key_start, key_row);
    both gradient = numbers(1, KEYS * WIDE), to = numbers(2, ALL * LD);
    float *in = ares_malloc(KEYS * WIDE * sizeof *in), want[ALL * WIDE] = { 0 }, got[ALL * LD];
    uint16_t half[ALL * LD];
    d[0].k->copy_out(&d[0], in, gradient.f32, KEYS * WIDE * sizeof *in);
    for (int32_t k = 0; k < seg.keys; k++)
        for (int i = 0; i < WIDE; i++) want[key_row[k] * WIDE + i] += in[k * WIDE + i];
    for (int i = 0; i < 2; i++) {
        ares_segments on = seg;
        on.start = up(i, start, sizeof start);
        on.prefix_len = up(i, prefix_len, sizeof prefix_len);
        on.prefix_row = up(i, prefix_row, sizeof prefix_row);
        on.key_start = up(i, key_start, sizeof key_start);
        on.key_row = up(i, key_row, sizeof key_row);
        d[i].k->sum_keys(&d[i], &(ares_sum_keys_args){ .seg = on,
                                                       .width = WIDE,
                                                       .gradient = of(&gradient, i, 0),
                                                       .to = of(&to, i, 0),
                                                       .ld = LD });
    }
    d[0].k->copy_out(&d[0], got, to.f32, sizeof got);
    d[1].k->copy_out(&d[1], half, to.bf16, sizeof half);
    for (int r = 0; r < ALL; r++)
        for (int i = 0; i < WIDE; i++) {
            float x = want[r * WIDE + i];
            REQUIRE(got[r * LD + i] == x);
            REQUIRE(half[r * LD + i] == kernels_f32_to_bf16(x));
        }
    ares_free(in);
    close_both();
}
