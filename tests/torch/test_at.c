#include "ares/at.h"
#include "test.h"
#include "torch/scarce.h"

#include <math.h>

static at_tensor row(const double *x, int64_t n)
{
    return at_clone(at_from_blob((void *)x, AT_F64, AT_DIMS(n)));
}

TEST(a_scope_frees_its_tensors_and_hands_one_out)
{
    int64_t before = at_live_count();
    at_scope *outer = at_scope_open("outer");
    at_tensor sum = NULL;
    at_scope *inner = at_scope_open("inner");
    for (int i = 0; i < 10; i++)
        sum = at_add(at_full(i, AT_F64, AT_DIMS(3)), sum ? sum : at_zeros(AT_F64, AT_DIMS(3)));
    CHECK_EQ(at_live_count() - before, 21);
    CHECK_OK(at_scope_close(inner, &sum));
    CHECK_EQ(at_live_count() - before, 1);
    CHECK_NEAR(at_item(at_mean(sum)), 45, 0);
    CHECK_OK(at_scope_close(outer, NULL));
    CHECK_EQ(at_live_count(), before);
}

TEST(an_owned_tensor_outlives_every_scope)
{
    int64_t before = at_live_count();
    at_scope *s = at_scope_open("owner");
    at_tensor kept = at_own(at_add_s(at_full(2, AT_F32, AT_DIMS(2, 3)), 1));
    CHECK_OK(at_scope_close(s, NULL));
    CHECK_EQ(at_live_count() - before, 1);
    CHECK_EQ(at_numel(kept), 6); /* may be looked at without a scope */
    CHECK_NEAR(((float *)at_data(kept))[5], 3, 0);
    s = at_scope_open("again");
    CHECK_NEAR(at_item(at_sum(kept)), 18, 0);
    CHECK_OK(at_scope_close(s, &kept)); /* stays owned */
    REQUIRE(kept != NULL);
    at_free(kept);
    at_free(NULL);
    CHECK_EQ(at_live_count(), before);
}

TEST(a_scope_left_open_is_closed_by_the_one_around_it)
{
    int64_t before = at_live_count();
    at_scope *outermost = at_scope_open("outermost");
    at_scope *outer = at_scope_open("outer");
    at_scope_open("forgotten");
    at_tensor t = at_full(7, AT_F64, AT_DIMS(1)), other = at_full(8, AT_F64, AT_DIMS(1));
    CHECK(other != NULL);
    CHECK_OK(at_scope_close(outer, &t));
    CHECK_NEAR(at_item(t), 7, 0);
    CHECK_OK(at_scope_close(outermost, NULL));
    CHECK_EQ(at_live_count(), before);
}

TEST(the_first_failed_operation_is_named_with_its_shapes)
{
    at_scope *s = at_scope_open("oracle_ppo");
    at_tensor a = at_zeros(AT_F32, AT_DIMS(2, 4)), b = at_zeros(AT_F64, AT_DIMS(2, 3)), grad;
    at_tensor bad = at_sub(a, b);
    CHECK(bad == NULL && at_scope_failed());
    CHECK(at_mul(bad, at_exp(a)) == NULL); /* does nothing, even if its operands are good */
    CHECK(at_reshape(a, AT_DIMS(5)) == NULL);
    CHECK(isnan(at_item(bad)));
    CHECK_EQ(at_size(a, 0), 0);
    CHECK(at_grad(bad, NULL, &a, 1, false, &grad) != ARES_OK);
    CHECK(grad == NULL);
    at_tensor out = bad;
    int rc = at_scope_close(s, &out);
    CHECK_EQ(rc, ARES_EDEVICE);
    CHECK(out == NULL);
    CHECK_STR(ares_error_message(), "torch: oracle_ppo: at_sub: The size of tensor a (4) must "
                                    "match the size of tensor b (3) at "
                                    "non-singleton dimension 1 (f32 [2, 4], f64 [2, 3])");
    CHECK(!at_scope_failed());
}

TEST(an_inner_failure_can_be_survived_and_is_remembered_by_its_null)
{
    for (int survive = 0; survive < 2; survive++) {
        at_scope *outer = at_scope_open("outer"), *inner = at_scope_open("inner");
        at_tensor t = at_matmul(at_zeros(AT_F32, AT_DIMS(2, 3)), at_zeros(AT_F32, AT_DIMS(4, 5)));
        CHECK_FAIL(
            at_scope_close(inner, &t), ARES_EDEVICE,
            "torch: inner: at_matmul: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)");
        CHECK(!at_scope_failed());
        at_tensor next = at_add_s(survive ? at_zeros(AT_F32, AT_DIMS(1)) : t, 1);
        CHECK_EQ(next != NULL, survive);
        if (survive) CHECK_OK(at_scope_close(outer, NULL));
        else
            CHECK_FAIL(
                at_scope_close(outer, NULL), ARES_EDEVICE,
                "torch: outer: at_add_s: operand 1 is NULL after inner: at_matmul: mat1 and mat2");
    }
}

TEST(memory_of_ours_is_borrowed_and_conversions_copy)
{
    float x[6] = { 1, 2, 3, 4, 5, 6 };
    at_scope *s = at_scope_open("blob");
    at_tensor t = at_from_blob(x, AT_F32, AT_DIMS(2, 3)), turned = at_transpose(t, 0, 1);
    x[1] = 20;
    CHECK_NEAR(at_item(at_select(at_select(t, 0, 0), 0, 1)), 20, 0);
    CHECK(at_data(t) == x && at_is_contiguous(t) && !at_is_contiguous(turned));
    CHECK_EQ(at_ndim(turned), 2);
    CHECK_EQ(at_size(turned, 0), 3);
    CHECK_EQ(at_size(turned, -1), 2);
    double wide[6];
    CHECK_OK(at_read(turned, AT_F64, wide)); /* row-major whatever the strides */
    CHECK_NEAR(wide[1], 4, 0);
    CHECK_NEAR(wide[2], 20, 0);
    int32_t whole[6];
    CHECK_OK(at_read(t, AT_I32, whole));
    CHECK_EQ(whole[5], 6);
    at_copy_(t, at_full(0.5, AT_F64, AT_DIMS(2, 3)));
    CHECK_NEAR(x[4], 0.5, 0);
    static const at_dtype all[] = {
        AT_F32, AT_F64, AT_BF16, AT_F16, AT_I32, AT_I64, AT_U8, AT_BOOL
    };
    for (int i = 0; i < ARES_COUNT(all); i++) CHECK_EQ(at_dtype_of(at_to(t, all[i])), all[i]);
    CHECK_OK(at_scope_close(s, NULL));
}

TEST(every_operation_computes_what_its_name_says)
{
    const double x[6] = { -2, -0.5, 0, 0.25, 1, 3 };
    at_scope *s = at_scope_open("ops");
    at_tensor t = row(x, 6), half = at_full(0.5, AT_F64, AT_SCALAR),
              m = at_reshape(t, AT_DIMS(2, 3)), mt = at_transpose(m, 0, 1);
    at_tensor below = at_lt(t, half),
              index = at_to(at_from_blob((int32_t[]){ 2, 0 }, AT_I32, AT_DIMS(2, 1)), AT_I64);
    double got[6];
#define SAME(expr, formula)                                                 \
    do {                                                                    \
        if (CHECK_OK(at_read((expr), AT_F64, got)))                         \
            for (int i = 0; i < 6; i++)                                     \
                CHECK_NEAR(got[i], (formula), 1e-15 * (1 + fabs(formula))); \
    } while (0)
    SAME(at_add(t, half), x[i] + 0.5);
    SAME(at_sub(half, t), 0.5 - x[i]);
    SAME(at_mul(t, t), x[i] * x[i]);
    SAME(at_div(t, half), x[i] * 2);
    SAME(at_minimum(t, half), fmin(x[i], 0.5));
    SAME(at_maximum(t, half), fmax(x[i], 0.5));
    SAME(at_where(below, t, half), x[i] < 0.5 ? x[i] : 0.5);
    SAME(at_masked_fill(t, below, 9), x[i] < 0.5 ? 9 : x[i]);
    SAME(at_add_s(t, 3), x[i] + 3);
    SAME(at_mul_s(t, 3), x[i] * 3);
    SAME(at_pow_s(t, 2), x[i] * x[i]);
    SAME(at_clamp(t, -1, 1), fmax(-1, fmin(1, x[i])));
    SAME(at_neg(t), -x[i]);
    SAME(at_abs(t), fabs(x[i]));
    SAME(at_exp(t), exp(x[i]));
    SAME(at_log(at_exp(t)), x[i]);
    SAME(at_sqrt(at_mul(t, t)), fabs(x[i]));
    SAME(at_rsqrt(at_exp(t)), 1 / sqrt(exp(x[i])));
    SAME(at_sigmoid(t), 1 / (1 + exp(-x[i])));
    SAME(at_silu(t), x[i] / (1 + exp(-x[i])));
    SAME(at_gelu(t), x[i] * erfc(-x[i] / sqrt(2)) / 2);
    SAME(at_softmax(t, 0), exp(x[i]) / (exp(-2) + exp(-0.5) + 1 + exp(0.25) + exp(1) + exp(3)));
    SAME(at_exp(at_log_softmax(t, 0)),
         exp(x[i]) / (exp(-2) + exp(-0.5) + 1 + exp(0.25) + exp(1) + exp(3)));
    SAME(at_rms_norm(t, at_full(2, AT_F64, AT_DIMS(6)), 1e-6), 2 * x[i] / sqrt(14.3125 / 6 + 1e-6));
    SAME(at_cat((at_tensor[]){ at_narrow(t, 0, 2, 4), at_narrow(t, 0, 0, 2) }, 2, 0),
         x[(i + 2) % 6]);
    SAME(at_permute(m, AT_DIMS(1, 0)), x[i % 2 * 3 + i / 2]);
    SAME(at_expand(at_unsqueeze(at_narrow(t, 0, 1, 3), 0), AT_DIMS(2, 3)), x[1 + i % 3]);
    SAME(at_embedding(mt, at_to(at_from_blob((int32_t[]){ 2, 0, 1 }, AT_I32, AT_DIMS(3)), AT_I64)),
         x[i % 2 * 3 + (i / 2 + 2) % 3]);
    SAME(at_index_select(m, 1,
                         at_to(at_from_blob((int32_t[]){ 2, 0, 1 }, AT_I32, AT_DIMS(3)), AT_I64)),
         x[i / 3 * 3 + (i % 3 + 2) % 3]);
    SAME(
        at_index_add(m, 0, at_to(at_from_blob((int32_t[]){ 1, 1 }, AT_I32, AT_DIMS(2)), AT_I64), m),
        i < 3 ? x[i] : x[i] + x[i] + x[i - 3]);
    SAME(at_add_(at_clone(t), half), x[i] + 0.5);
    SAME(at_mul_(at_clone(t), half), x[i] * 0.5);
    SAME(at_arange(6, AT_F32), (double)i);
    CHECK_NEAR(at_item(at_sum(t)), 1.75, 0);
    CHECK_NEAR(at_item(at_mean(t)), 1.75 / 6, 1e-16);
    CHECK_NEAR(at_item(at_argmax(t, 0)), 5, 0);
    CHECK_OK(at_read(at_cat((at_tensor[]){ at_sum_dim(m, 1, false), at_mean_dim(m, 1, false),
                                           at_squeeze(at_max_dim(m, 1, true), 1) },
                            3, 0),
                     AT_F64, got));
    for (int i = 0; i < 6; i++)
        CHECK_NEAR(got[i], ((double[]){ -2.5, 4.25, -2.5 / 3, 4.25 / 3, 0, 3 })[i], 1e-15);
    CHECK_OK(at_read(at_gather(m, 1, index), AT_F64, got));
    CHECK_NEAR(got[0] * 10 + got[1], 0.25, 0);
    CHECK_OK(at_read(at_matmul(m, mt), AT_F64, got));
    for (int i = 0; i < 4; i++) CHECK_NEAR(got[i], ((double[]){ 4.25, -1, -1, 10.0625 })[i], 1e-15);
    at_tensor bias = at_full(1, AT_F64, AT_DIMS(2));
    CHECK_OK(at_read(at_sub(at_linear(m, m, bias), at_linear(m, m, NULL)), AT_F64, got));
    for (int i = 0; i < 4; i++) CHECK_NEAR(got[i], 1, 1e-15);
    CHECK_OK(at_scope_close(s, NULL));
}

TEST(sdpa_with_fewer_key_heads_equals_softmax_by_hand)
{
    at_scope *s = at_scope_open("sdpa");
    at_manual_seed(1);
    at_tensor q = at_randn(AT_F64, AT_DIMS(4, 5, 3)), k = at_randn(AT_F64, AT_DIMS(2, 5, 3)),
              v = at_randn(AT_F64, AT_DIMS(2, 5, 3));
    at_tensor twice[2] = {
        at_reshape(at_expand(at_unsqueeze(k, 1), AT_DIMS(2, 2, 5, 3)), AT_DIMS(4, 5, 3)),
        at_reshape(at_expand(at_unsqueeze(v, 1), AT_DIMS(2, 2, 5, 3)), AT_DIMS(4, 5, 3))
    };
    at_tensor place = at_arange(5, AT_F64),
              future = at_lt(at_unsqueeze(place, 1), at_unsqueeze(place, 0));
    at_tensor scores = at_masked_fill(at_mul_s(at_matmul(q, at_transpose(twice[0], 1, 2)), 0.3),
                                      future, -INFINITY);
    at_tensor by_hand = at_matmul(at_softmax(scores, -1), twice[1]),
              past = at_lt(at_to(future, AT_F64), at_full(0.5, AT_F64, AT_SCALAR));
    CHECK_NEAR(
        at_item(at_max_dim(
            at_reshape(at_abs(at_sub(at_sdpa(q, k, v, NULL, true, 0.3), by_hand)), AT_DIMS(-1)), 0,
            false)),
        0, 1e-14);
    CHECK_NEAR(
        at_item(at_max_dim(
            at_reshape(at_abs(at_sub(at_sdpa(q, k, v, past, false, 0.3), by_hand)), AT_DIMS(-1)), 0,
            false)),
        0, 1e-14);
    at_manual_seed(1);
    CHECK_NEAR(at_item(at_sum(at_sub(at_randn(AT_F64, AT_DIMS(4, 5, 3)), q))), 0, 0);
    CHECK_OK(at_scope_close(s, NULL));
}

TEST(gradients_of_leaves_come_in_order_and_zeros_where_nothing_depends)
{
    at_scope *s = at_scope_open("grad");
    at_tensor a = at_requires_grad_(at_full(3, AT_F64, AT_DIMS(2)), true),
              b = at_requires_grad_(at_full(5, AT_F64, AT_DIMS(2)), true);
    at_tensor idle = at_requires_grad_(at_full(1, AT_F64, AT_DIMS(4)), true), in[] = { a, idle, b },
              g[3];
    at_tensor y = at_mul(at_mul(a, a), b), weights = at_full(10, AT_F64, AT_DIMS(2));
    CHECK_OK(at_grad(y, weights, in, 3, true, g));
    CHECK_NEAR(at_item(at_select(g[0], 0, 1)), 10 * 2 * 3 * 5, 0);
    CHECK_NEAR(at_item(at_sum(g[1])), 0, 0);
    CHECK_EQ(at_numel(g[1]), 4);
    CHECK_NEAR(at_item(at_select(g[2], 0, 0)), 90, 0);
    CHECK_OK(at_grad(at_sum(y), NULL, in, 3, false, g)); /* the graph was kept */
    CHECK_NEAR(at_item(at_select(g[0], 0, 0)), 30, 0);
    CHECK(at_set_grad_enabled(false));
    at_tensor cold = at_mul(a, b);
    CHECK(!at_set_grad_enabled(true));
    CHECK_EQ(at_grad(at_sum(cold), NULL, in, 1, false, g), ARES_EDEVICE);
    CHECK_FAIL(at_scope_close(s, NULL), ARES_EDEVICE,
               "torch: grad: at_grad: element 0 of tensors does not require grad");
}

TEST(a_result_of_another_shape_is_not_written)
{
    float a[6] = { 1, 2, 3, 4, 5, 6 }, out[8] = { 0 };
    at_scope *s = at_scope_open_no_grad("shapes");
    at_tensor x = at_from_blob(a, AT_F32, AT_DIMS(2, 3)),
              y = at_from_blob(a, AT_F32, AT_DIMS(3, 2)),
              strided =
                  at_view(out, AT_F32, -1, (const int64_t[]){ 2, 2 }, (const int64_t[]){ 4, 1 }, 2);
    CHECK(at_mm_out(strided, x, y) == strided);
    const float product[8] = { 22, 28, 0, 0, 49, 64, 0, 0 };
    CHECK_MEM(out, product, sizeof out);
    CHECK(!at_mul_out(strided, x, x)); /* 2 x 3 into 2 x 2 */
    CHECK_FAIL(at_scope_close(s, NULL), ARES_EDEVICE, "shapes: at_mul_out");
    CHECK_MEM(out, product, sizeof out);
}

/* Powers of two and small sums: every product and sum is exact, and so is its rounding. */
TEST(products_take_and_give_f32_and_bf16_and_round_once)
{
    const float a[6] = { 1, 2, 0.5f, 4, -1, 0.25f }, b[6] = { 256, 1, 1, 2, 0.5f, 1 },
                self[2] = { 0.5f, 1 }, want[4] = { 258.25f, 5.5f, 1023.125f, 2.25f };
    for (int types = 0; types < 16; types++) {
        at_dtype of[4];
        for (int i = 0; i < 4; i++) of[i] = types >> i & 1 ? AT_BF16 : AT_F32;
        at_scope *s = at_scope_open_no_grad("types");
        at_tensor x = at_to(at_from_blob((void *)a, AT_F32, AT_DIMS(2, 3)), of[0]),
                  y = at_to(at_from_blob((void *)b, AT_F32, AT_DIMS(3, 2)), of[1]),
                  row = at_to(at_from_blob((void *)self, AT_F32, AT_DIMS(2)), of[2]),
                  plain = at_zeros(of[3], AT_DIMS(2, 2)), sum = at_zeros(of[3], AT_DIMS(2, 2));
        at_mm_out(plain, x, y);
        at_addmm_out(sum, row, x, y);
        float got[2][4];
        CHECK_OK(at_read(plain, AT_F32, got[0]));
        CHECK_OK(at_read(sum, AT_F32, got[1]));
        for (int i = 0; i < 4; i++) {
            bool half = of[3] == AT_BF16; /* eight bits: 258, 1024 */
            CHECK_NEAR(got[0][i], half && i % 2 == 0 ? (i ? 1024 : 258) : want[i], 0);
            double with = want[i] + self[i % 2];
            CHECK_NEAR(got[1][i], half && i % 2 == 0 ? (i ? 1024 : 258) : with, 0);
        }
        CHECK_OK(at_scope_close(s, NULL));
    }
}

TEST(a_sum_of_bf16_into_f32_is_one_of_f32)
{
    at_scope *s = at_scope_open_no_grad("sum");
    at_tensor x = at_full(1, AT_BF16, AT_DIMS(1000, 3)), sum = at_zeros(AT_F32, AT_DIMS(3));
    CHECK_NEAR(at_item(at_select(at_sum_dim_out(sum, x, 0), 0, 2)), 1000, 0); /* bf16: 1000, 1004 */
    CHECK_NEAR(
        at_item(at_sum(at_sum_dim_out(sum, at_full(1.0 / 256, AT_BF16, AT_DIMS(257, 3)), 0))),
        3 * 257.0 / 256, 0);
    CHECK(!at_sum_dim_out(sum, x, 1));
    CHECK_FAIL(at_scope_close(s, NULL), ARES_EDEVICE, "sum: at_sum_dim_out");
}

/* libtorch itself would end the process. */
TEST(attention_without_keys_is_an_error)
{
    for (int packed = 0; packed < 2; packed++) {
        static const int32_t rows[] = { 0, 3 }, keys[] = { 0, 2 };
        at_tensor lse, out;
        at_scope *s = at_scope_open_no_grad("attention");
        if (packed) {
            at_varlen of = { .q_start = at_from_blob((void *)rows, AT_I32, AT_DIMS(2)),
                             .k_start = at_from_blob((void *)keys, AT_I32, AT_DIMS(2)),
                             .most_q = 3,
                             .most_k = 2,
                             .scale = 1 };
            out = at_attend_varlen(at_zeros(AT_F32, AT_DIMS(3, 2, 4)),
                                   at_zeros(AT_F32, AT_DIMS(2, 2, 4)),
                                   at_zeros(AT_F32, AT_DIMS(2, 2, 4)), &of, &lse);
        } else {
            at_tensor q = at_zeros(AT_F32, AT_DIMS(1, 2, 3, 4)),
                      k = at_zeros(AT_F32, AT_DIMS(1, 2, 0, 4));
            out = at_attend(q, k, k, NULL, 1, &lse);
        }
        CHECK(!out && !lse);
        CHECK_FAIL(at_scope_close(s, NULL), ARES_EDEVICE,
                   packed ? "no sequence of 3 rows and 2 keys" : "at least one query and one key");
    }
}

/* The row that at_sdpa takes for one sequence: [1][H][n][D]. */
static at_tensor part(at_tensor x, const int32_t *start)
{
    return at_unsqueeze(at_transpose(at_narrow(x, 0, start[0], start[1] - start[0]), 0, 1), 0);
}

/* Whole sequences, one with keys before its rows, an empty one, one without keys, and a window. */
TEST(attention_of_packed_sequences_equals_autograds_of_each)
{
    enum { H = 4, HK = 2, D = 6, N = 5, T = 14, TK = 15 };
    static const int32_t q_start[N + 1] = { 0, 5, 5, 6, 8, T },
                                     k_start[N + 1] = { 0, 5, 5, 9, 9, TK };
    for (int way = 0; way < 3; way++) { /* all keys, causal, a window */
        at_scope *s = at_scope_open("packed");
        at_manual_seed(3);
        at_tensor in[] = { at_randn(AT_F32, AT_DIMS(T, H, D)), at_randn(AT_F32, AT_DIMS(TK, HK, D)),
                           at_randn(AT_F32, AT_DIMS(TK, HK, D)) };
        at_tensor d_out = at_randn(AT_F32, AT_DIMS(T, H, D)), lse, got[3], want[3];
        at_varlen of = { .q_start = at_from_blob((void *)q_start, AT_I32, AT_DIMS(N + 1)),
                         .k_start = at_from_blob((void *)k_start, AT_I32, AT_DIMS(N + 1)),
                         .most_q = 6,
                         .most_k = 6,
                         .causal = way > 0,
                         .window = way == 2 ? 3 : 0,
                         .scale = 0.4 };
        at_tensor out = at_attend_varlen(in[0], in[1], in[2], &of, &lse);
        CHECK_OK(at_attend_varlen_backward(d_out, in[0], in[1], in[2], out, lse, &of, got));
        CHECK(at_size(lse, 0) == H && at_size(lse, 1) == T && at_is_contiguous(out));
        for (int i = 0; i < 3; i++) at_requires_grad_(in[i], true);
        for (int i = 0; i < N; i++) {
            int32_t rows = q_start[i + 1] - q_start[i], keys = k_start[i + 1] - k_start[i];
            if (!rows) continue;
            if (!keys) {
                CHECK_NEAR(at_item(at_sum(at_abs(part(out, q_start + i)))), 0, 0);
                CHECK_NEAR(at_item(at_sum(at_abs(part(got[0], q_start + i)))), 0, 0);
                continue;
            }
            float seen[36] = { 0 };
            for (int r = 0; r < rows; r++)
                for (int k = 0; k < keys; k++) {
                    int own = keys - rows + r;
                    if (way && (k > own || (way == 2 && k <= own - 3))) seen[r * keys + k] = -1e30f;
                }
            at_tensor one = at_sdpa(part(in[0], q_start + i), part(in[1], k_start + i),
                                    part(in[2], k_start + i),
                                    at_from_blob(seen, AT_F32, AT_DIMS(rows, keys)), false, 0.4);
            CHECK_NEAR(at_item(at_sum(at_abs(at_sub(part(out, q_start + i), one)))), 0, 1e-5);
            CHECK_OK(at_grad(one, part(d_out, q_start + i), in, 3, false, want));
            for (int j = 0; j < 3; j++) {
                const int32_t *start = j ? k_start + i : q_start + i;
                at_tensor mine = part(got[j], start), theirs = part(want[j], start);
                double size = at_item(at_sum(at_abs(theirs)));
                CHECK(size > 1 || (j < 2 && size == 0)); /* one key: v alone has a gradient */
                CHECK_NEAR(at_item(at_sum(at_abs(at_sub(mine, theirs)))), 0, 1e-5 * (1 + size));
            }
        }
        CHECK_OK(at_scope_close(s, NULL));
    }
}

TEST(a_scope_without_gradients_keeps_nothing_and_ends_with_its_close)
{
    at_scope *outer = at_scope_open("outer");
    at_tensor x = at_requires_grad_(at_full(3, AT_F64, AT_DIMS(1)), true), d;
    at_scope *inner = at_scope_open_no_grad("inner");
    at_tensor y = at_mul_s(x, 2);
    CHECK_OK(at_scope_close(inner, &y));
    at_scope *failing = at_scope_open("failing");
    CHECK(at_grad(y, NULL, &x, 1, false, &d) != ARES_OK); /* y knows nothing of x */
    CHECK(at_scope_close(failing, NULL) != ARES_OK);
    CHECK_OK(at_grad(at_mul_s(x, 2), NULL, &x, 1, false, &d));
    CHECK_NEAR(at_item(d), 2, 0);
    CHECK_OK(at_scope_close(outer, NULL));
}

TEST(at_call_reaches_any_operator)
{
    const double x[4] = { 1, 2, 3, 4 };
    at_scope *s = at_scope_open("call");
    at_value in[] = { AT_T(row(x, 4)), AT_INT(0) }, out;
    CHECK_OK(at_call("aten::cumsum", "", in, 2, &out, 1));
    REQUIRE(out.kind == AT_V_TENSOR);
    CHECK_NEAR(at_item(at_select(out.as.tensor, 0, 3)), 10, 0);
    at_value ends[] = { AT_T(row(x, 4)), AT_INTS(((const int64_t[]){ 0 }), 1) };
    CHECK_OK(at_call("aten::flip", "", ends, 2, &out, 1));
    CHECK_NEAR(at_item(at_select(out.as.tensor, 0, 0)), 4, 0);
    CHECK_EQ(at_call("aten::no_such_thing", "", in, 2, &out, 1), ARES_EDEVICE);
    CHECK_FAIL(at_scope_close(s, NULL), ARES_EDEVICE,
               "torch: call: aten::no_such_thing: libtorch has no operator of this name");
    s = at_scope_open("call");
    at_value few = AT_T(row(x, 4));
    at_call("aten::cumsum", "", &few, 1, &out, 1);
    CHECK_FAIL(at_scope_close(s, NULL), ARES_EDEVICE,
               "torch: call: aten::cumsum: needs its argument 2, 'dim' (f64 [4])");
}

static bool give_back(void *calls)
{
    return ++*(int *)calls < 3;
}

/* 2 + 2, eight times, where so many allocations are refused; calls NULL: nothing is given back. */
static int add_without_memory(int refusals, int *calls)
{
    at_scope *s = at_scope_open("scarce");
    at_tensor x = at_full(2, AT_F32, AT_DIMS(8));
    if (calls) at_scope_retry(s, give_back, calls);
    scarce(0, refusals);
    at_tensor sum = at_add(x, x);
    CHECK_EQ(scarce_end(), refusals);
    if (sum) CHECK_NEAR(at_item(at_sum(sum)), 32, 0);
    return at_scope_close(s, NULL);
}

TEST(an_operation_without_memory_is_done_once_more_where_some_is_given_back)
{
    static const char *const says =
        "torch: scarce: at_add: CUDA out of memory. Tried to allocate 32 bytes. GPU 0 has a total "
        "capacity of 139.80 GiB of which 3.00 MiB is free (f32 [8], f32 [8])";
    int calls = 0;
    CHECK_OK(add_without_memory(1, &calls));
    CHECK_EQ(calls, 1);
    CHECK_FAIL(add_without_memory(2, &calls), ARES_ELIMIT, says); /* the second time, too */
    CHECK_EQ(calls, 2);
    CHECK_FAIL(add_without_memory(1, &calls), ARES_ELIMIT, says); /* give_back has none */
    CHECK_EQ(calls, 3);
    CHECK_FAIL(add_without_memory(1, NULL), ARES_ELIMIT, says);
}

TEST(cuda_is_opened_only_when_asked_and_says_what_is_missing)
{
    int rc = at_cuda_open();
    if (rc == ARES_OK) SKIP("a CUDA device is here");
    CHECK_EQ(rc, ARES_EDEVICE);
    CHECK_CONTAINS(ares_error_message(), "torch: device = 'cuda': ");
    CHECK_CONTAINS(ares_error_message(), "use device cpu");
    CHECK(strchr(ares_error_message(), '\n') == NULL);
    at_scope *s = at_scope_open("elsewhere");
    CHECK(at_to_device(at_zeros(AT_F32, AT_DIMS(2)), "cuda") == NULL);
    CHECK(at_scope_close(s, NULL) != ARES_OK);
}

TEST_GPU(a_product_on_a_cuda_device_equals_the_cpus)
{
    /* as for a device that is opened (src/kernels/device.c); else libtorch refuses the product */
    REQUIRE(setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0) == 0);
    if (at_cuda_open() != ARES_OK) SKIP(ares_error_message());
    at_scope *s = at_scope_open("gpu");
    at_tensor a = at_randn(AT_F64, AT_DIMS(7, 9)), b = at_randn(AT_F64, AT_DIMS(9, 5));
    at_tensor far = at_matmul(at_to_device(a, "cuda"), at_to_device(b, "cuda"));
    at_tensor off = at_abs(at_sub(at_to_device(far, "cpu"), at_matmul(a, b)));
    CHECK_NEAR(at_item(at_max_dim(at_reshape(off, AT_DIMS(-1)), 0, false)), 0, 1e-13);
    CHECK_OK(at_scope_close(s, NULL));
}

TEST(the_version_is_that_of_the_headers)
{
    CHECK_CONTAINS(at_version(), ".");
}
