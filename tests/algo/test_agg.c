/*
 * Weights of tokens. Cases avg_loss_* and loss_norm_global of tests/golden/aepo.json; they divide
 * by counts + 1e-8, we by counts.
 */
#include "test.h"

#include "algo_test.h"

static const char *const modes[] = { "token-mean", "seq-mean-token-mean", "seq-mean-token-sum",
                                     "seq-mean-token-sum-norm" };

/* Sum of weight x value over rows cut into micro-batches of `cut`. */
static double weighted(const ares_batch *b, const char *mode, const double *values, int64_t cut)
{
    ares_agg_counts counts = { .max_len = 8 };
    float weight[64];
    double sum = 0;
    ares_agg_count(b, 0, b->rows, &counts);
    for (int64_t row = 0; row < b->rows; row += cut) {
        int64_t end = ARES_MIN(row + cut, b->rows), first = b->row_start[row];
        if (!CHECK_OK(ares_agg_weights(mode, b, row, end, &counts, weight))) return 0;
        for (int64_t t = first; t < b->row_start[end]; t++)
            sum += (double)weight[t - first] * values[t];
    }
    return sum;
}

TEST(averages_agree_with_the_reference)
{
    static const double values[] = { 1, 2, 3, 9, 4, 5, 9, 9 };
    ares_batch b;
    make_batch(&b, 1, 2, (const int64_t[]){ 4 }, 1);
    b.response_mask[3] = b.response_mask[6] = b.response_mask[7] = 0;
    /* avg_loss_token */
    CHECK_NEAR(weighted(&b, "token-mean", values, 2), 2.999999994, 1e-7);
    /* avg_loss_seq */
    CHECK_NEAR(weighted(&b, "seq-mean-token-mean", values, 2), 3.24999998542, 1e-7);
    CHECK_NEAR(weighted(&b, "seq-mean-token-sum", values, 2), 7.5, 1e-6);
    /* verl: the sum over all tokens by the width */
    CHECK_NEAR(weighted(&b, "seq-mean-token-sum-norm", values, 2), 15.0 / 8, 1e-6);
    ares_batch_fini(&b);
}

TEST(micro_batches_of_any_size_give_the_global_mean)
{
    static const double values[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    ares_batch b;
    make_batch(&b, 2, 2, (const int64_t[]){ 3, 1, 2, 3 }, 4);
    /* loss_norm_global */
    for (int64_t cut = 1; cut <= 4; cut++)
        CHECK_NEAR(weighted(&b, "token-mean", values, cut), 4.99999998944, 1e-6);
    for (int m = 0; m < ARES_COUNT(modes); m++) {
        double whole = weighted(&b, modes[m], values, 4);
        for (int64_t cut = 1; cut < 4; cut++)
            CHECK_NEAR(weighted(&b, modes[m], values, cut), whole, 1e-14 * 10);
    }
    ares_batch_fini(&b);
}

/* The weights themselves, not only their sums: a cut changes no bit of a gradient. */
TEST(a_token_has_the_same_weight_whatever_the_cut)
{
    ares_batch b;
    make_batch(&b, 2, 3, (const int64_t[]){ 3, 1, 2, 5, 7 }, 5);
    b.response_mask[1] = 0;
    for (int m = 0; m < ARES_COUNT(modes); m++) {
        ares_agg_counts counts = { .max_len = 7 };
        float whole[64], part[64];
        ares_agg_count(&b, 0, 2, &counts);
        ares_agg_count(&b, 2, b.rows, &counts); /* counts add up, as over ranks */
        CHECK_NEAR(counts.tokens, (double)b.tokens - 1, 0);
        CHECK_NEAR(counts.rows, 6, 0);
        REQUIRE_OK(ares_agg_weights(modes[m], &b, 0, b.rows, &counts, whole));
        for (int64_t row = 0; row < b.rows; row++) {
            CHECK_OK(ares_agg_weights(modes[m], &b, row, row + 1, &counts, part));
            CHECK_MEM(part, whole + b.row_start[row],
                      sizeof(float) * (size_t)(b.row_start[row + 1] - b.row_start[row]));
        }
        CHECK(whole[1] == 0 && whole[0] > 0);
    }
    ares_batch_fini(&b);
}

TEST(rows_without_a_token_of_the_policy_weigh_nothing_and_count_for_nothing)
{
    ares_batch b;
    ares_agg_counts counts = { .max_len = 4 };
    float weight[8];
    make_batch(&b, 1, 3, (const int64_t[]){ 2, 0, 2 }, 3);
    b.response_mask[2] = b.response_mask[3] = 0;
    ares_agg_count(&b, 0, 3, &counts);
    CHECK(counts.tokens == 2 && counts.rows == 1);
    for (int m = 0; m < ARES_COUNT(modes); m++) {
        CHECK_OK(ares_agg_weights(modes[m], &b, 0, 3, &counts, weight));
        CHECK(weight[0] > 0 && weight[2] == 0 && weight[3] == 0);
    }
    b.response_mask[0] = b.response_mask[1] = 0;
    counts = (ares_agg_counts){ .max_len = 4 };
    ares_agg_count(&b, 0, 3, &counts);
    for (int m = 0; m < ARES_COUNT(modes); m++) { /* no token at all: no weight, and no division */
        CHECK_OK(ares_agg_weights(modes[m], &b, 0, 3, &counts, weight));
        CHECK(weight[0] == 0 && weight[1] == 0 && weight[2] == 0 && weight[3] == 0);
    }
    ares_batch_fini(&b);
}

TEST(modes_that_are_unknown_or_lack_a_length_are_refused)
{
    ares_batch b;
    ares_agg_counts counts = { 0 };
    float weight[8];
    make_batch(&b, 1, 2, (const int64_t[]){ 2 }, 1);
    ares_agg_count(&b, 0, 2, &counts);
    CHECK_FAIL(ares_agg_weights("mean", &b, 0, 2, &counts, weight), ARES_ECONFIG,
               "loss_avg_mode = 'mean': unknown");
    CHECK_FAIL(ares_agg_weights("seq-mean-token-sum-norm", &b, 0, 2, &counts, weight), ARES_ECONFIG,
               "longest possible response");
    ares_batch_fini(&b);
}
