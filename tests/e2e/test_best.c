/*
 * Which checkpoint is kept as the best one besides the newest; trainer.save_limit=1 leaves these
 * two. Each run saves and validates at every step, and the best step is found from its metrics.
 */
#include "e2e.h"

#include <math.h>
#include <stdio.h>

enum { STEPS = 6 };
#define SAVED                                                                          \
    "trainer.max_steps=6 trainer.save_freq=1 trainer.val_freq=1 trainer.save_limit=1 " \
    "trainer.save_minutes=null"

/* The first step with the highest sign * metric. */
static int best_by(const char *run, const char *metric, double sign)
{
    int best = 1;
    for (int step = 1; step <= STEPS; step++) {
        double v = sign * e2e_metric(run, step, metric);
        CHECK_MSG(!isnan(v), "no %s at step %d", metric, step);
        if (v > sign * e2e_metric(run, best, metric)) best = step;
    }
    return best;
}

static void check_left(const char *run, int best)
{
    char checkpoints[64], expected[96];
    ares_str left = { 0 };
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", run);
    test_shell(&left, "ls '%s' | tr '\\n' ' '", test_file(checkpoints));
    int n = snprintf(expected, sizeof expected, "latest ");
    if (best != STEPS) n += snprintf(expected + n, sizeof expected - (size_t)n, "step_%06d ", best);
    snprintf(expected + n, sizeof expected - (size_t)n, "step_%06d ", STEPS);
    CHECK_STR(left.data, expected);
    ares_str_fini(&left);
}

/* Trained on one letter, validated on others: the loss rises, falls and rises again. */
TEST(the_best_supervised_checkpoint_has_the_lowest_validation_loss)
{
    ares_str train = { 0 };
    for (int i = 0; i < 8; i++)
        ares_str_addf(&train, "{\"prompt\":\"%d?\",\"response\":\"aaaaaaaa\",\"answer\":\"a\"}\n",
                      i);
    const char *train_file = e2e_write("a.jsonl", train.data),
               *val_file = e2e_write("b.jsonl", "{\"prompt\":\"1?\",\"response\":\"abababac\","
                                                "\"answer\":\"b\"}\n");
    CHECK_EQ(e2e_program(NULL,
                         "sft --config '%s' " SAVED " data.train_files='%s' data.val_files='%s' "
                         "worker.actor.optim.lr=3e-2",
                         e2e_sft_words("run"), train_file, val_file),
             0);
    int best = best_by("run", "val/loss", -1), worst = best_by("run", "val/loss", 1);
    CHECK_MSG(best > 1 && best < STEPS && worst < STEPS, "best %d, worst %d: too easy", best,
              worst);
    check_left("run", best);
    ares_str_fini(&train);
}

#define REWARDS "\"worker.reward.rewards=[%s]\" worker.reward.accuracy=random"

static void trained(const char *run, const char *rewards, const char *more)
{
    CHECK_EQ(e2e_program(NULL,
                         "--config '%s' " SAVED
                         " data.val_files='%s' worker.actor.optim.lr=1e-2 " REWARDS " %s",
                         e2e_train_words(run), test_source("examples/data/sums/val.jsonl"), rewards,
                         more),
             0);
}

TEST(a_checkpoint_that_is_validated_as_well_as_the_best_one_does_not_replace_it)
{
    trained("run", "{name: exact}", "data.val_batch_size=50");
    for (int step = 1; step <= STEPS; step++)
        CHECK_EQ(e2e_metric("run", step, "val/reward_score"), 0);
    check_left("run", 1);
}

/*
 * Accuracy is random and the reward depends on the form of the answer, so they disagree on the best
 * step.
 */
TEST(
    a_run_with_a_shaped_reward_keeps_the_most_accurate_checkpoint_and_another_run_the_best_rewarded)
{
    static const char format[] = "{name: format, pattern: '.*[0-9].*', finished: false}";
    char shaped[200];
    snprintf(shaped, sizeof shaped, "%s, {name: aepo}", format);
    trained("shaped", shaped, "algorithm.aepo=true");
    trained("plain", format, "");
    static const char *const runs[] = { "shaped", "plain" };
    for (int i = 0; i < 2; i++) {
        int by_accuracy = best_by(runs[i], "val/accuracy", 1),
            by_reward = best_by(runs[i], "val/reward_score", 1);
        CHECK_MSG(by_accuracy != by_reward, "both are best at step %d", by_reward);
        check_left(runs[i], i ? by_reward : by_accuracy);
    }
}
