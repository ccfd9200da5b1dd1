/* Shares of unequal lengths: what holds for any lengths. */
#include "test.h"

#include "ares/data.h"
#include "internal.h"

enum { N = 96 };

static void lengths_of(uint64_t seed, int64_t *length)
{
    ares_rng_key key = ares_rng_root(seed, ARES_RNG_TEST);
    /* with and without ties */
    for (uint64_t i = 0; i < N; i++)
        length[i] = 1 + (int64_t)ares_rng_below(key, i, seed % 2 ? 7 : 3000);
}

TEST(parts_of_equal_size_are_even_in_number_and_nearly_so_in_length)
{
    for (uint64_t seed = 0; seed < 20; seed++)
        for (int64_t k = 1; k <= 8; k *= 2) {
            int64_t length[N], part[N], count[8] = { 0 }, sum[8] = { 0 }, longest = 0;
            lengths_of(seed, length);
            REQUIRE_OK(ares_balance_parts(length, N, k, true, part));
            for (int i = 0; i < N; i++) {
                REQUIRE(part[i] >= 0 && part[i] < k);
                count[part[i]]++;
                sum[part[i]] += length[i];
                longest = ARES_MAX(longest, length[i]);
            }
            for (int64_t j = 0; j < k; j++) {
                CHECK_EQ(count[j], N / k);
                if (j) CHECK(sum[j] <= sum[j - 1] && sum[0] - sum[j] <= longest);
            }
        }
}

TEST(every_row_is_in_one_micro_batch)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        int64_t length[N], part[N], k, total = 0;
        lengths_of(seed, length);
        for (int i = 0; i < N; i++) total += length[i];
        REQUIRE_OK(balance_micro_batches(length, N, total / 5, 1, &k, part));
        CHECK(k == 5 || k == 6);
        for (int i = 0; i < N; i++) CHECK(part[i] >= 0 && part[i] < k);
        REQUIRE_OK(balance_micro_batches(length, N, total, 3, &k, part));
        CHECK_EQ(k, 3); /* another rank needs three */
    }
}

/* How many items stand before item i by (24576 L + L^2, index), as verl writes it. */
static int64_t rank_of(const int64_t *length, int64_t n, int64_t i)
{
    int64_t before = 0, work = 24576 * length[i] + length[i] * length[i];
    for (int64_t k = 0; k < n; k++) {
        int64_t other = 24576 * length[k] + length[k] * length[k];
        before += other < work || (other == work && k < i);
    }
    return before;
}

TEST(rows_of_like_work_are_neighbours_as_in_verl)
{
    for (uint64_t seed = 0; seed < 20; seed++)
        for (int64_t n = 0; n <= N; n = n < 6 ? n + 1 : n + 45) {
            int64_t length[N], order[N + 1], sorted[N], want[N + 1], at = 0;
            lengths_of(seed, length);
            if (n) length[n / 2] = 0;
            for (int64_t i = 0; i < n; i++) sorted[rank_of(length, n, i)] = i;
            for (int64_t i = 0; i < n; i += 2) want[at++] = sorted[i];
            for (int64_t i = n - 1; i > 0; i--)
                if (i % 2) want[at++] = sorted[i];
            order[n] = want[n] = -1; /* which is not written */
            ares_balance_order(length, n, order);
            CHECK_MEM(order, want, (size_t)(n + 1) * sizeof *order);
        }
}

TEST(what_cannot_be_shared_out_is_refused)
{
    const int64_t length[] = { 1, 2, -3 };
    int64_t part[3], k;
    CHECK_FAIL(ares_balance_parts(length, 2, 3, false, part), ARES_EFORMAT, "2 rows for 3 parts");
    CHECK_FAIL(ares_balance_parts(length, 3, 2, true, part), ARES_EFORMAT,
               "do not make 2 parts of equal size");
    CHECK_FAIL(ares_balance_parts(length, 3, 2, false, part), ARES_EFORMAT, "row 2: length = -3");
    CHECK_FAIL(balance_micro_batches(length, 2, 0, 1, &k, part), ARES_ECONFIG, "max_tokens = 0");
    CHECK_FAIL(ares_balance_parts(length, 2, 0, false, part), ARES_EFORMAT, "for 0 parts");
}

TEST(sums_of_ranks_count_every_row_where_ranks_do_not_divide_the_rows)
{
    static const int64_t length[] = { 1, 2, 3, 5, 8 }, part[] = { 0, 1, 0, 1, 1 };
    static const struct {
        const char *name;
        double value;
    } want[] = { { "x/min", 6 }, /* as they lie: 1 + 2 + 3, and 5 + 8 */
                 { "x/max", 13 },          { "x/minmax_diff", 7 }, { "x/balanced_min", 4 },
                 { "x/balanced_max", 15 }, { "x/mean", 9.5 } };
    ares_metrics *m = ares_metrics_new();
    ares_balance_report(length, 5, 2, part, "x", m);
    for (int i = 0; i < ARES_COUNT(want); i++) {
        double value = 0;
        CHECK(ares_metrics_get(m, want[i].name, &value));
        CHECK_NEAR(value, want[i].value, 0);
    }
    ares_metrics_free(m);
}
