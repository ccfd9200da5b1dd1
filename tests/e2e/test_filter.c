/*
 * Groups that teach nothing are replaced until the batch is full, alike with any number of ranks and after any interruption; and a
 * run with a critic, or with a greedy baseline, goes on bit for bit.
 * Seen to fail: with the critic's optimizer not loaded, with the cut to the batch left out.
 */
#include "e2e.h"

#include <math.h>
#include <stdio.h>

/* Right or wrong by the answer's text alone; of four answers exactly two must be right. */
#define FILTERED "'worker.reward.rewards=[{name: random}]' algorithm.online_filtering=true algorithm.filter_key=overall algorithm.filter_low=0.3 algorithm.filter_high=0.7 trainer.max_try_make_batch=0"

TEST(groups_outside_the_bounds_are_replaced_until_the_batch_is_full)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=3 %s", e2e_train_words("run"), FILTERED), 0);
    for (int step = 1; step <= 3; step++) {
        double tries = e2e_metric("run", step, "filter/tries"), kept = e2e_metric("run", step, "filter/kept_groups");
        CHECK_EQ(e2e_metric("run", step, "filter/generated_groups"), 4 * tries);
        CHECK(kept >= 4 && kept < 4 * tries);
        CHECK_EQ(e2e_metric("run", step, "reward/overall"), 0.5);
    }
    CHECK_EQ(test_shell(NULL, "test $(cat '%s'/rollouts/*.jsonl | wc -l) = 48", test_file("run")), 0);
    ares_str_fini(&out);
}

TEST(draws_that_never_fill_a_batch_end_with_their_counts)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=1 'worker.reward.rewards=[{name: exact}]' algorithm.online_filtering=true trainer.max_try_make_batch=3", e2e_train_words("run")), 1);
    CHECK_CONTAINS(out.data, "3 draws gave 12 prompts, of which 0 stay, and a batch takes 4");
    CHECK_CONTAINS(out.data, "raise trainer.max_try_make_batch");
    ares_str_fini(&out);
}

static void resumes(const char *options, int steps, int rows)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_stop("part", "KILL", rows, "--config '%s' trainer.max_steps=%d trainer.save_freq=5 %s", e2e_train_words("part"), steps, options), 137);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=%d trainer.save_freq=5 %s", e2e_train_words("part"), steps, options), 0);
    CHECK_CONTAINS(out.data, "going on from ");
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=%d trainer.save_freq=5 %s", e2e_train_words("whole"), steps, options), 0);
    e2e_same_runs("whole", "part", steps);
    ares_str_fini(&out);
}

TEST(a_filtered_run_goes_on_bit_for_bit) { resumes(FILTERED, 40, 12); }
TEST(a_run_with_a_critic_goes_on_bit_for_bit) { resumes("algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3", 40, 12); }
TEST(a_run_with_a_greedy_baseline_goes_on_bit_for_bit) { resumes("algorithm.adv_estimator=remax", 40, 12); }

TEST(the_critic_learns_its_returns)
{
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=30 algorithm.adv_estimator=gae worker.critic.optim.lr=3e-3 trainer.critic_warmup=30 'worker.reward.rewards=[{name: format, finished: false}]'", e2e_train_words("run")), 0);
    double first = 0, last = 0;
    for (int i = 1; i <= 3; i++) {
        first += e2e_metric("run", i, "critic/vf_loss");
        last += e2e_metric("run", 30 - 3 + i, "critic/vf_loss");
    }
    CHECK(first > 0.5 && last < 0.1 * first); /* every return is 1 */
    CHECK(isnan(e2e_metric("run", 30, "actor/lr"))); /* while it warms up the actor stays as it is */
}

TEST_MPI(two_ranks_filter_and_train_as_one)
{
    if (test_shell(NULL, "command -v mpirun && ldd '%s' | grep libmpi", test_program()) != 0) SKIP("built without MPI, or no mpirun here");
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=1 trainer.threads=1 %s", e2e_train_words("alone"), FILTERED), 0);
    CHECK_EQ(e2e_program(&out, "--ranks 2 --config '%s' trainer.max_steps=1 trainer.threads=1 %s", e2e_train_words("two"), FILTERED), 0);
    CHECK_EQ(test_shell(NULL, "sort '%s' > '%s'; sort '%s' > '%s'; cmp '%s' '%s'", test_file("alone/rollouts/step_000001.jsonl"), test_file("a"),
                        test_file("two/rollouts/step_000001.jsonl"), test_file("b"), test_file("a"), test_file("b")), 0);
    static const char *const same[] = { "filter/tries", "filter/kept_groups", "reward/overall", "response_length/mean" };
    for (int i = 0; i < ARES_COUNT(same); i++) CHECK_NEAR(e2e_metric("two", 1, same[i]), e2e_metric("alone", 1, same[i]), 1e-9);
    double norm = e2e_metric("alone", 1, "actor/grad_norm");
    CHECK(norm > 0);
    CHECK_NEAR(e2e_metric("two", 1, "actor/grad_norm"), norm, 1e-6 * norm);
    ares_str_fini(&out);
}
