/*
 * GRPO's advantages. Cases grpo_1 and grpo_2 of tests/golden/aepo.json (verl's code), groups
 * brought together.
 */
#include "test.h"

#include <math.h>

#include "algo_test.h"

static const int64_t lengths[] = { 3, 1, 4, 2 };

static int compute(ares_batch *b, bool by_std)
{
    ares_algorithm_config cfg = { .norm_adv_by_std_in_grpo = by_std, .gamma = 1, .lam = 1 };
    const ares_adv *adv = ares_adv_find("grpo");
    return adv ? adv->compute(&cfg, NULL, b) : ARES_ECONFIG;
}

static void check_advantages(int64_t groups, int64_t n, const float *scores, const double *expected)
{
    ares_batch b;
    make_batch(&b, groups, n, lengths, ARES_COUNT(lengths));
    put_scores(&b, scores);
    if (CHECK_OK(compute(&b, true)))
        for (int64_t r = 0; r < b.rows; r++)
            for (int64_t t = b.row_start[r]; t < b.row_start[r + 1]; t++) {
                /* f32 of a number near 1.5, and scores that came as f32 */
                CHECK_NEAR(b.advantages[t], expected[r], 2e-7);
                CHECK_NEAR(b.returns[t], (double)b.advantages[t], 0);
            }
    ares_batch_fini(&b);
}

TEST(advantages_agree_with_the_reference)
{
    check_advantages(2, 4, (const float[]){ 1.15f, 0.15f, 0.3f, 0.3f, 0.15f, 1.0f, 0.3f, 1.3f },
                     (const double[]){ 1.48181425686, -0.713466123671, -0.384174066592,
                                       -0.384174066592, -0.974923757374, 0.566816138008,
                                       -0.70285201113, 1.1109596305 });
    check_advantages(
        1, 4, (const float[]){ 1, 0, 0, 0 },
        (const double[]){ 1.49999700001, -0.499999000002, -0.499999000002, -0.499999000002 });
}

TEST(a_group_of_equal_scores_gets_exactly_zero)
{
    ares_batch b;
    float scores[14];
    for (int i = 0; i < 14; i++) scores[i] = i < 7 ? 0.1f : -0.3f;
    for (int by_std = 0; by_std < 2; by_std++) {
        make_batch(&b, 2, 7, lengths, ARES_COUNT(lengths));
        put_scores(&b, scores);
        CHECK_OK(compute(&b, by_std));
        for (int64_t t = 0; t < b.tokens; t++) CHECK(b.advantages[t] == 0 && b.returns[t] == 0);
        ares_batch_fini(&b);
    }
}

/* The deviations of the groups are 1 and 2; the larger one's advantages stay almost as they are. */
TEST(soft_reweighting_scales_a_group_by_its_deviation_over_the_largest_one)
{
    ares_algorithm_config cfg = { .norm_adv_by_std_in_grpo = true, .gamma = 1, .lam = 1 };
    ares_batch plain, weighed;
    static const float scores[] = { 1, 2, 3, 2, 4, 6 };
    make_batch(&plain, 2, 3, lengths, ARES_COUNT(lengths));
    put_scores(&plain, scores);
    make_batch(&weighed, 2, 3, lengths, ARES_COUNT(lengths));
    put_scores(&weighed, scores);
    CHECK_OK(ares_adv_find("grpo")->compute(&cfg, NULL, &plain));
    cfg.soft_advantage_reweight = true;
    CHECK_OK(ares_adv_find("grpo")->compute(&cfg, NULL, &weighed));
    for (int64_t r = 0; r < plain.rows; r++)
        for (int64_t t = plain.row_start[r]; t < plain.row_start[r + 1]; t++)
            CHECK_NEAR(weighed.advantages[t],
                       (double)plain.advantages[t] * (r < 3 ? 1 : 2) / (2 + 1e-6), 2e-7);
    ares_batch_fini(&plain);
    ares_batch_fini(&weighed);
}

TEST(without_the_division_advantages_are_distances_from_the_mean)
{
    ares_batch b;
    make_batch(&b, 1, 4, lengths, ARES_COUNT(lengths));
    put_scores(&b, (const float[]){ 1, 0, 0.5f, 0.5f });
    REQUIRE_OK(compute(&b, false));
    const double expected[] = { 0.5, -0.5, 0, 0 };
    for (int64_t r = 0; r < 4; r++) CHECK_NEAR(b.advantages[b.row_start[r]], expected[r], 0);
    ares_batch_fini(&b);
}

/* 4 answers that count, 5 tokens each on average; a masked one makes no difference to them. */
TEST(weights_by_length_take_the_mean_over_answers_that_count)
{
    static const int64_t even[] = { 5, 2, 8, 5, 5, 2, 8, 5 };
    static const double length[] = { 5, 2, 8, 5 };
    const float scores[] = { 1, 0, 1, 0, 9, 9, 9, 9 };
    for (int masked = 0; masked < 2; masked++) {
        ares_batch b;
        ares_algorithm_config cfg = { .norm_adv_by_std_in_grpo = false,
                                      .grpo_advantage_length_weight = true,
                                      .gamma = 1,
                                      .lam = 1 };
        make_batch(&b, masked ? 2 : 1, 4, even, ARES_COUNT(even));
        put_scores(&b, scores);
        for (int64_t t = b.row_start[4]; t < b.tokens; t++) b.response_mask[t] = 0;
        CHECK_OK(ares_adv_find("grpo")->compute(&cfg, NULL, &b));
        for (int64_t r = 0; r < 4; r++)
            CHECK_NEAR(b.advantages[b.row_start[r]], (r % 2 ? -0.5 : 0.5) * 5 / length[r], 1e-6);
        ares_batch_fini(&b);
    }
}

TEST(masked_tokens_get_no_advantage_but_their_rewards_count)
{
    ares_batch b;
    make_batch(&b, 1, 2, (const int64_t[]){ 3 }, 1);
    put_scores(&b, (const float[]){ 1, 0 });
    b.token_level_rewards[1] = 0.5f; /* of the first row, on a token the policy did not write */
    b.response_mask[1] = 0;
    REQUIRE_OK(compute(&b, false));
    CHECK(b.advantages[0] == 0.75f && b.advantages[1] == 0 && b.advantages[2] == 0.75f &&
          b.advantages[5] == -0.75f);
    CHECK(b.returns[1] == 0);
    ares_batch_fini(&b);
}

TEST(answers_of_one_length_have_the_length_weight_1_to_the_bit)
{
    const float scores[] = { 1, 0.3F, 0, 0.7F };
    ares_batch plain, weighed;
    make_batch(&plain, 1, 4, (const int64_t[]){ 5 }, 1);
    make_batch(&weighed, 1, 4, (const int64_t[]){ 5 }, 1);
    put_scores(&plain, scores), put_scores(&weighed, scores);
    const ares_algorithm_config cfg = { .norm_adv_by_std_in_grpo = true },
                                with = { .norm_adv_by_std_in_grpo = true,
                                         .grpo_advantage_length_weight = true };
    REQUIRE_OK(ares_adv_find("grpo")->compute(&cfg, NULL, &plain));
    REQUIRE_OK(ares_adv_find("grpo")->compute(&with, NULL, &weighed));
    CHECK_MEM(weighed.advantages, plain.advantages, (size_t)plain.tokens * sizeof(float));
    ares_batch_fini(&plain), ares_batch_fini(&weighed);
}

/* Lengths 3, 1, 0 and 4: the mean is 2, over all four answers. */
TEST(the_length_weight_counts_an_empty_answer_in_the_mean)
{
    static const double want[] = { 0.5 * 2 / 3, -0.5 * 2, 0,
                                   0 }; /* the last one has nothing to be compared with */
    ares_algorithm_config cfg = { .gamma = 1, .lam = 1, .grpo_advantage_length_weight = true };
    ares_batch b;
    make_batch(&b, 2, 2, (const int64_t[]){ 3, 1, 0, 4 }, 4);
    put_scores(&b, (const float[]){ 1, 0, 0, 0.5F });
    REQUIRE_OK(ares_adv_find("grpo")->compute(&cfg, NULL, &b));
    for (int64_t r = 0; r < b.rows; r++)
        if (r != 2) CHECK_NEAR(b.advantages[b.row_start[r]], want[r], 2e-6);
    ares_batch_fini(&b);
}

/* The rows of each group in another order: every row keeps its advantage, to the bit. */
TEST(the_order_of_rows_changes_nothing)
{
    enum { G = 3, N = 9 };
    ares_rng_key key = ares_rng_root(3, ARES_RNG_TEST);
    float scores[G * N], before[G * N], shuffled[G * N];
    ares_batch b;
    for (int i = 0; i < G * N; i++) scores[i] = (float)ares_rng_normal(key, (uint64_t)i);
    make_batch(&b, G, N, (const int64_t[]){ 2 }, 1);
    put_scores(&b, scores);
    REQUIRE_OK(compute(&b, true));
    for (int r = 0; r < G * N; r++) before[r] = b.advantages[b.row_start[r]];
    ares_batch_fini(&b);
    for (uint64_t k = 0; k < 20; k++) {
        int64_t order[G * N];
        for (int i = 0; i < G * N; i++) order[i] = i;
        for (int g = 0; g < G; g++)
            ares_rng_shuffle(ares_rng_sub(key, k, (uint64_t)g), order + g * N, N);
        for (int i = 0; i < G * N; i++) shuffled[i] = scores[order[i]];
        make_batch(&b, G, N, (const int64_t[]){ 2 }, 1);
        put_scores(&b, shuffled);
        CHECK_OK(compute(&b, true));
        for (int i = 0; i < G * N; i++)
            CHECK_MEM(&b.advantages[b.row_start[i]], &before[order[i]], sizeof(float));
        ares_batch_fini(&b);
    }
}

/*
 * As verl has it: mean 0 and deviation 1. Options that would sample such groups are refused before
 * (test_adv_options).
 */
TEST(a_group_of_one_is_compared_with_nothing)
{
    ares_batch b;
    make_batch(&b, 2, 1, lengths, ARES_COUNT(lengths));
    put_scores(&b, (const float[]){ 2, 0 });
    REQUIRE_OK(compute(&b, true));
    CHECK_NEAR(b.advantages[0], 2 / (1 + 1e-6), 1e-7);
    CHECK(b.advantages[b.row_start[1]] == 0);
    ares_batch_fini(&b);
}

TEST(rewards_that_are_no_numbers_are_refused)
{
    ares_batch b;
    make_batch(&b, 1, 3, lengths, ARES_COUNT(lengths));
    put_scores(&b, (const float[]){ 1, NAN, 0 });
    CHECK_FAIL(compute(&b, true), ARES_ENUMERIC,
               "adv: grpo: row 1, token 0: token_level_rewards = nan: no finite number");
    ares_batch_fini(&b);
    make_batch(&b, 1, 2, lengths, ARES_COUNT(lengths));
    CHECK_FAIL(compute(&b, true), ARES_ESTATE,
               "adv: grpo: needs column 'token_level_rewards', which stage 'shape' makes");
    ares_batch_fini(&b);
}

TEST(an_unknown_estimator_is_answered_with_the_choices)
{
    CHECK(ares_adv_find("grop") == NULL);
    CHECK_CONTAINS(ares_error_message(),
                   "algorithm.adv_estimator = 'grop': unknown; did you mean 'grpo'?");
}
