/* Runs whose filtered batches are brought to whole mini-batches, or left without any group. */
#include <math.h>
#include <stdio.h>

#include "e2e.h"

/* Steps of 4 x 4 rows, of which the ranking keeps some groups, and mini-batches of 8 rows. */
#define ROWS "worker.actor.mini_batch_unit=rows worker.actor.global_batch_size=8 "
#define COPY ROWS "algorithm.batch_adjust_mode=copy "
#define RANKED                                                                               \
    "'worker.reward.rewards=[{name: random}]' worker.rollout.rollout_filter_strategy=top_k " \
    "worker.rollout.rollout_filter_value="
#define GAE "algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3 "

static int run_of(const char *launch, const char *run, int steps, const char *words)
{
    return e2e_program(NULL, "%s --config '%s' trainer.max_steps=%d trainer.threads=1 %s", launch,
                       e2e_train_words(run), steps, words);
}

static int64_t rows_of(const char *run)
{
    int64_t n;
    ares_arena arena = { 0 };
    (void)e2e_rows(&arena, run, "rollouts/step_000001.jsonl", &n);
    ares_arena_fini(&arena);
    return n;
}

static void check_sizes(const char *words, double rows, double minis)
{
    static int run;
    char name[16];
    snprintf(name, sizeof name, "run%d", run++);
    CHECK_EQ(run_of("", name, 1, words), 0);
    CHECK_MSG(e2e_metric(name, 1, "train/batch_size") == rows &&
                  e2e_metric(name, 1, "train/num_mini_batches") == minis &&
                  rows_of(name) == (int64_t)rows,
              "%s: %g rows, %g mini-batches, %lld written", words,
              e2e_metric(name, 1, "train/batch_size"),
              e2e_metric(name, 1, "train/num_mini_batches"), (long long)rows_of(name));
    CHECK(e2e_metric(name, 1, "actor/grad_norm") > 0);
}

TEST(a_filtered_batch_has_whole_mini_batches)
{
    check_sizes(GAE COPY RANKED "0.25", 8, 1);
    check_sizes(GAE COPY RANKED "0.75", 16, 2);
    check_sizes(GAE COPY RANKED "1", 16, 2);
    check_sizes(COPY RANKED "0.75", 16, 2); /* grpo: a copy is an answer of its group */
    check_sizes(COPY RANKED "0.75 worker.rollout.n=3 worker.actor.global_batch_size=6", 12, 2);
    check_sizes(GAE ROWS RANKED "0.75 algorithm.batch_adjust_mode=delete", 8, 1);
    check_sizes(GAE ROWS RANKED "0.75", 12, 2);
    /* more than the rows of the step are masked: they are no part of a mini-batch */
    check_sizes(GAE COPY RANKED "0.25 algorithm.on_exhausted=fill_masked", 8, 1);
}

TEST(a_batch_that_is_deleted_whole_trains_nothing)
{
    CHECK_EQ(run_of("", "run", 1, GAE ROWS RANKED "0.25 algorithm.batch_adjust_mode=delete"), 0);
    CHECK_EQ(e2e_metric("run", 1, "train/batch_size"), 0);
    CHECK_EQ(e2e_metric("run", 1, "actor/empty_minibatches"), 1);
}

TEST(adjusting_is_refused_where_it_makes_no_sense)
{
    static const char *const cases[][2] = {
        { "algorithm.batch_adjust_mode=copy",
          "copy makes whole mini-batches of rows, and these count prompts" },
        { GAE COPY "worker.critic.mini_batch_unit=prompts worker.critic.global_batch_size=4",
          "and the critic's count prompts" },
        { ROWS "algorithm.batch_adjust_mode=delete",
          "delete may leave a single answer to a prompt, and grpo compares them; set copy" },
    };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str_clear(&out);
        CHECK_EQ(e2e_program(&out, "--config '%s' %s", e2e_train_words("run"), cases[i][0]), 2);
        CHECK_CONTAINS(out.data, cases[i][1]);
    }
    ares_str_fini(&out);
}

TEST(an_adjusted_run_goes_on_bit_for_bit)
{
    static const char words[] = "trainer.save_freq=1 " COPY GAE RANKED "0.75";
    CHECK_EQ(run_of("", "part", 6, words), 0);
    CHECK(e2e_go_back("part", "whole", 3));
    CHECK_EQ(run_of("", "part", 6, words), 0);
    e2e_same_runs("whole", "part", 6);
}

TEST(copies_go_with_aepo_and_its_controls)
{
    CHECK_EQ(run_of("", "run", 3,
                    COPY RANKED
                    "0.75 algorithm.aepo=true algorithm.disable_kl=false worker.actor.dynamic_kl_"
                    "loss=true algorithm.use_kl_loss=true worker.reward.accuracy=random "
                    "'worker.reward.rewards=[{name: random}, {name: aepo}]'"),
             0);
    CHECK_EQ(e2e_metric("run", 3, "train/batch_size"), 16);
    CHECK(e2e_metric("run", 3, "actor/grad_norm") > 0);
}

TEST_MPI(two_ranks_train_on_the_copies_of_one)
{
    /* with one group of four left, a rank has no row */
    static const char *const words[] = { GAE COPY RANKED "0.25", GAE COPY RANKED "0.75",
                                         COPY RANKED "0.25",
                                         GAE ROWS RANKED
                                         "0.75 algorithm.batch_adjust_mode=delete" };
    static const char *const near[] = { "actor/grad_norm",       "actor/pg_loss",
                                        "critic/score/mean",     "critic/advantages/max",
                                        "reward/overall",        "train/batch_size",
                                        "train/num_mini_batches" };
    E2E_NEEDS_MPI();
    for (int i = 0; i < ARES_COUNT(words); i++) {
        char one[16], two[16];
        snprintf(one, sizeof one, "one%d", i);
        snprintf(two, sizeof two, "two%d", i);
        CHECK_EQ(run_of("", one, 2, words[i]), 0);
        CHECK_EQ(run_of("--ranks 2", two, 2, words[i]), 0);
        for (int step = 1; step <= 2; step++)
            for (int k = 0; k < ARES_COUNT(near); k++) {
                double want = e2e_metric(one, step, near[k]), have = e2e_metric(two, step, near[k]);
                CHECK_MSG(fabs(have - want) <= 1e-5 * fmax(1e-2, fabs(want)),
                          "%s: %s of step %d: %.9g, not %.9g", words[i], near[k], step, have, want);
            }
    }
}
