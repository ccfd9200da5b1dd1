/*
 * PPO with a critic in Sokoban, from a model that experiments/intervention_sweep makes: two
 * seeds must win more often than the model they began with, which is the run at a learning rate of
 * 0, in the same rooms.
 */
#include "e2e.h"

#include <stdio.h>

enum { STEPS = 45, LAST = 10 };

/* Share of episodes won in the last steps. */
static double won(const char *run, int steps)
{
    double sum = 0;
    for (int i = 0; i < LAST; i++)
        sum += e2e_metric(run, steps - i, "train/CoordSokoban/success") / LAST;
    printf("  %s: won in the last %d steps: %.3f\n", run, LAST, sum);
    return sum;
}

static bool program(const char *words)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "%s", words);
    CHECK_MSG(rc == 0, "%s", out.data ? out.data : "");
    ares_str_fini(&out);
    return rc == 0;
}

/* A model that has seen rooms solved, with four actions of ten at random. */
static bool make_model(void)
{
    ares_str words = { 0 };
    bool made = CHECK_EQ(
        test_shell(NULL,
                   "cd '%s' && python3 experiments/intervention_sweep/prepare.py --program '%s' "
                   "--env CoordSokoban --noise 0.4 --out '%s' dim_x=5 dim_y=5",
                   test_source("."), test_program(), test_file("data")),
        0);
    ares_str_addf(&words,
                  "init --arch qwen2 --hidden 64 --layers 2 --heads 2 --kv-heads 2 --vocab 384 "
                  "--tokenizer '%s' --out '%s'",
                  test_file("data/tokenizer"), test_file("random"));
    made = made && program(words.data);
    ares_str_clear(&words);
    ares_str_addf(&words,
                  "sft --config experiments/intervention_sweep/sft.yaml data.train_files='%s' "
                  "worker.actor.model.model_path='%s' trainer.run_dir='%s'",
                  test_file("data/sft.jsonl"), test_file("random"), test_file("start"));
    made = made && program(words.data);
    ares_str_fini(&words);
    return made;
}

static double train(const char *run, int seed, const char *lr, int steps)
{
    ares_str words = { 0 };
    ares_str_addf(&words,
                  "--config configs/presets/_2_sokoban.yaml --config "
                  "experiments/intervention_sweep/config.yaml env.train.group_size=16 "
                  "worker.actor.global_batch_size=16 worker.critic.global_batch_size=16 "
                  "worker.rollout.rollout_filter_value=1 worker.actor.entropy_coeff=0 "
                  "trainer.val_freq=-1 trainer.val_before_train=false "
                  "algorithm.early_stop_low_success=null trainer.max_steps=%d "
                  "worker.actor.model.model_path='%s' worker.actor.optim.lr=%s data.seed=%d "
                  "worker.rollout.seed=%d trainer.logger=[console] trainer.run_dir='%s'",
                  steps, test_file("start"), lr, seed, seed, test_file(run));
    bool ran = program(words.data);
    ares_str_fini(&words);
    return ran ? won(run, steps) : -1;
}

TEST_SLOW(ppo_wins_more_often_and_a_learning_rate_of_zero_does_not)
{
    char run[32];
    if (!make_model()) return;
    double before = train("still", 1, "0", LAST); /* any ten steps: none changes the weights */
    CHECK(before > 0.25 && before < 0.5);
    for (int seed = 1; seed <= 2; seed++) {
        snprintf(run, sizeof run, "seed_%d", seed);
        CHECK(train(run, seed, "3e-4", STEPS) - before > 0.12);
    }
}
