/* Rows brought to whole mini-batches: how many, which, and on which rank. */
#include <string.h>

#include "collect/collect.h"
#include "test.h"

enum { N = 16, GROUPS_OF_A_STEP = 8, MINI = 32 };

static ares_train_config config_of(const char *mode, const char *estimator)
{
    ares_train_config cfg = { .data = { .rollout_batch_size = GROUPS_OF_A_STEP },
                              .actor = { .global_batch_size = MINI, .mini_batch_unit = "rows" },
                              .loss = { .loss_norm = "global", .early_stop_scope = "minibatch" },
                              .critic = { .global_batch_size = ARES_NULL_I64 },
                              .rollout = { .n = N, .seed = 3 } };
    cfg.filter.batch_adjust = mode;
    cfg.algorithm.adv_estimator = (char *)(uintptr_t)estimator;
    return cfg;
}

/* Groups [first, end) at their places: rows of one token whose id is the number of the row. */
static void make(ares_batch *b, int first, int end, int n)
{
    ares_batch_init(b);
    for (int g = first; g < end; g++) {
        ares_batch_begin_group(b);
        for (int i = 0; i < n; i++)
            ares_batch_add_row(b, &(ares_sample){ .draw = g, .place = 3 * g, .index = i }, 1);
    }
    ARES_PUT(b, responses), ARES_PUT(b, response_mask);
    for (int64_t t = 0; t < b->tokens; t++) {
        b->responses[t] = (int32_t)(first * n + t);
        b->response_mask[t] = 1;
    }
}

/* Rows of a batch of `kept` groups, as often as they are there: times [kept * N]. */
static int64_t adjusted(const char *mode, int kept, int64_t step, int *times)
{
    ares_train_config cfg = config_of(mode, "gae");
    ares_metrics *m = ares_metrics_new();
    ares_batch b;
    double size = -1, minis = -1;
    make(&b, 0, kept, N);
    memset(times, 0, (size_t)(kept * N) * sizeof *times);
    CHECK_OK(adjust_batch(&cfg, ares_adv_find(cfg.algorithm.adv_estimator), NULL, step, &b, m));
    ares_metrics_get(m, "train/batch_size", &size);
    ares_metrics_get(m, "train/num_mini_batches", &minis);
    CHECK_EQ(minis, (size + MINI - 1 - (double)((int64_t)(size + MINI - 1) % MINI)) / MINI);
    for (int64_t r = 0; r < b.rows; r++) {
        int32_t id = b.responses[b.row_start[r]];
        times[id]++;
        CHECK_EQ(b.samples[r].index, id % N);
        CHECK_EQ(b.samples[r].place, 3 * (id / N));
        if (r) CHECK(id >= b.responses[b.row_start[r - 1]]); /* beside its row */
    }
    int64_t rows = 0;
    for (int64_t t = 0; t < b.tokens; t++) rows += b.response_mask[t];
    CHECK_EQ(rows, size);
    ares_batch_fini(&b);
    ares_metrics_free(m);
    return rows;
}

TEST(a_smaller_batch_grows_to_whole_mini_batches_or_shrinks_to_them)
{
    static const int copied[] = { 32, 32, 64, 64, 96, 96, 128, 128 },
                     left[] = { 0, 32, 32, 64, 64, 96, 96, 128 };
    int times[GROUPS_OF_A_STEP * N];
    for (int kept = 1; kept <= GROUPS_OF_A_STEP; kept++) {
        CHECK_EQ(adjusted("copy", kept, 0, times), copied[kept - 1]);
        for (int i = 0; i < kept * N; i++) /* no row has two copies before each has one */
            CHECK(times[i] >= 1 && times[i] <= (kept == 1 ? 2 : kept % 2 ? 2 : 1));
        CHECK_EQ(adjusted("delete", kept, 0, times), left[kept - 1]);
        for (int i = 0; i < kept * N; i++) CHECK(times[i] <= 1);
    }
}

TEST(a_batch_is_whole_for_the_critic_too_where_its_mini_batches_are_others)
{
    static const int64_t of_critic[] = { 16, 48 };
    for (int i = 0; i < ARES_COUNT(of_critic); i++) {
        ares_train_config cfg = config_of("copy", "gae");
        ares_metrics *m = ares_metrics_new();
        ares_batch b;
        cfg.critic.global_batch_size = of_critic[i];
        make(&b, 0, 1, N);
        CHECK_OK(adjust_batch(&cfg, ares_adv_find(cfg.algorithm.adv_estimator), NULL, 0, &b, m));
        CHECK_EQ(b.rows, i ? 96 : 32);
        ares_batch_fini(&b);
        ares_metrics_free(m);
    }
}

TEST(which_rows_are_copied_depends_on_the_step_alone)
{
    int one[3 * N], again[3 * N], other[3 * N], copied[3] = { 0 };
    adjusted("copy", 3, 5, one);
    adjusted("copy", 3, 5, again);
    adjusted("copy", 3, 6, other);
    CHECK_MEM(again, one, sizeof one);
    CHECK(memcmp(one, other, sizeof one) != 0);
    for (int i = 0; i < 3 * N; i++) copied[i / N] += one[i] - 1;
    for (int g = 0; g < 3; g++) CHECK_MSG(copied[g] > 0, "no row of group %d", g);
}

/* 3 rows become 32: 29 copies, chosen one by one. */
TEST(more_copies_than_rows_are_chosen_with_replacement)
{
    ares_train_config cfg = config_of("copy", "gae");
    ares_metrics *m = ares_metrics_new();
    ares_batch b;
    int64_t times[3] = { 0 };
    make(&b, 0, 1, 3);
    CHECK_OK(adjust_batch(&cfg, ares_adv_find(cfg.algorithm.adv_estimator), NULL, 1, &b, m));
    CHECK_EQ(b.rows, 32);
    CHECK_EQ(b.groups, 1);
    for (int64_t r = 0; r < b.rows; r++) times[b.responses[r]]++;
    for (int i = 0; i < 3; i++) CHECK(times[i] >= 2 && times[i] < 29);
    ares_batch_fini(&b);
    ares_metrics_free(m);
}

TEST(rows_that_train_nothing_are_neither_copied_nor_counted)
{
    ares_metrics *m = ares_metrics_new();
    ares_train_config cfg = config_of("copy", "gae"), grouped = config_of("copy", "grpo");
    ares_batch b;
    make(&b, 0, 3, N);
    memset(b.response_mask, 0, N);
    memset(b.response_mask + N + 1, 0, N - 1); /* of the second group one answer is left */
    CHECK_OK(adjust_batch(&cfg, ares_adv_find(cfg.algorithm.adv_estimator), NULL, 1, &b, m));
    CHECK_EQ(b.rows, 32);
    CHECK_EQ(b.groups, 2);
    for (int64_t r = 0; r < b.rows; r++) CHECK(b.responses[r] == N || b.responses[r] >= 2 * N);
    ares_batch_fini(&b);
    /* an estimator that compares answers has none to compare it with */
    make(&b, 0, 3, N);
    memset(b.response_mask, 0, N);
    memset(b.response_mask + N + 1, 0, N - 1);
    CHECK_OK(
        adjust_batch(&grouped, ares_adv_find(grouped.algorithm.adv_estimator), NULL, 1, &b, m));
    CHECK_EQ(b.rows, 32);
    for (int64_t r = 0; r < b.rows; r++) CHECK(b.responses[r] >= 2 * N);
    ares_batch_fini(&b);
    /* nor where the one that is left has two rows, as an episode of two turns has */
    make(&b, 0, 3, N);
    memset(b.response_mask, 0, N);
    memset(b.response_mask + N + 2, 0, N - 2);
    b.samples[N].episode = b.samples[N + 1].episode = 5;
    CHECK_OK(
        adjust_batch(&grouped, ares_adv_find(grouped.algorithm.adv_estimator), NULL, 1, &b, m));
    CHECK_EQ(b.rows, 32);
    for (int64_t r = 0; r < b.rows; r++) CHECK(b.responses[r] >= 2 * N);
    ares_batch_fini(&b);
    make(&b, 0, 1, N);
    memset(b.response_mask, 0, N);
    CHECK_OK(adjust_batch(&cfg, ares_adv_find(cfg.algorithm.adv_estimator), NULL, 1, &b, m));
    CHECK_EQ(b.rows, N);
    ares_batch_fini(&b);
    ares_metrics_free(m);
}

TEST_MPI(two_ranks_choose_the_rows_that_one_chooses)
{
    static const char name[] = "two_ranks_choose_the_rows_that_one_chooses";
    if (!test_as_ranks(2, name)) return;
    ares_world *w = NULL;
    REQUIRE_OK(ares_world_open(&w));
    for (int kept = 1; kept <= 5; kept += 2) {
        ares_train_config cfg = config_of("copy", "gae");
        ares_metrics *m = ares_metrics_new();
        int alone[GROUPS_OF_A_STEP * N] = { 0 };
        int64_t mine[GROUPS_OF_A_STEP * N] = { 0 };
        double size = 0;
        ares_batch b;
        int64_t want = adjusted("copy", kept, 7, alone);
        /* the first rank has one group; the second, where it has none, one that trains nothing */
        bool lead = ares_world_rank(w) == 0;
        make(&b, lead ? 0 : 1, lead ? 1 : ARES_MAX(kept, 2), N);
        if (!lead && kept == 1) memset(b.response_mask, 0, N);
        CHECK_OK(adjust_batch(&cfg, ares_adv_find(cfg.algorithm.adv_estimator), w, 7, &b, m));
        for (int64_t r = 0; r < b.rows; r++) mine[b.responses[r]]++;
        CHECK_OK(ares_world_sum_i64(w, mine, kept * N));
        for (int i = 0; i < kept * N; i++) CHECK_EQ(mine[i], alone[i]);
        ares_metrics_get(m, "train/batch_size", &size);
        CHECK_EQ(size, want);
        ares_batch_fini(&b);
        ares_metrics_free(m);
    }
    ares_world_close(w);
}
