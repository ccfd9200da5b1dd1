/*
 * All stages with a model made here: init, supervised start, reinforcement learning, eval. Three
 * seeds must learn, and a learning rate of 0 must not.
 */
#include "e2e.h"

#include <math.h>
#include <stdio.h>

enum { STEPS = 60, WINDOW = 5 };

/* Mean reward of the last steps minus that of the first. */
static double gain(const char *run)
{
    double first = 0, last = 0;
    for (int i = 0; i < WINDOW; i++) {
        first += e2e_metric(run, 1 + i, "reward/overall") / WINDOW;
        last += e2e_metric(run, STEPS - i, "reward/overall") / WINDOW;
    }
    printf("  %s: mean reward of %d steps %.3f at first, %.3f at last\n", run, WINDOW, first, last);
    return last - first;
}

/* Sums of two digits below 5, which a model of two layers can learn in a minute. */
static void write_rows(void)
{
    ares_str sft = { 0 }, rl = { 0 };
    for (int i = 0; i < 300; i++) {
        int a = i * 7 % 5, b = i * 11 / 5 % 5;
        ares_str_addf(&sft,
                      "{\"prompt\":\"%d+%d=?\",\"response\":\"\\\\boxed{%d}\",\"answer\":\"%d\"}\n",
                      a, b, i % 3 ? (i * 13) % 9 : a + b, a + b);
        ares_str_addf(&rl, "{\"prompt\":\"%d+%d=?\",\"answer\":\"%d\"}\n", a, b, a + b);
    }
    e2e_write("sft.jsonl", sft.data);
    e2e_write("rl.jsonl", rl.data);
    ares_str_fini(&sft);
    ares_str_fini(&rl);
}

static double train(const char *name, int seed, const char *lr)
{
    ares_str out = { 0 };
    int rc = e2e_program(
        &out,
        "data.train_files='%s' data.seed=%d data.apply_chat_template=false "
        "data.max_prompt_length=16 data.max_response_length=16 data.rollout_batch_size=8 "
        "worker.actor.global_batch_size=8 worker.actor.model.model_path='%s' "
        "worker.actor.optim.lr=%s worker.actor.optim.betas=[0.9,0.99] "
        "worker.actor.optim.weight_decay=0 "
        "worker.rollout.n=8 worker.rollout.seed=%d algorithm.adv_estimator=grpo "
        "algorithm.disable_kl=true 'worker.reward.rewards=[{name: boxed}]' trainer.max_steps=%d "
        "trainer.run_dir='%s'",
        test_file("rl.jsonl"), seed, test_file("warm"), lr, seed, STEPS, test_file(name));
    CHECK_MSG(rc == 0, "%s", out.data);
    ares_str_fini(&out);
    return rc == 0 ? gain(name) : NAN;
}

TEST_SLOW(reinforcement_learning_raises_the_reward_and_a_learning_rate_of_zero_does_not)
{
    ares_str out = { 0 };
    char name[32];
    write_rows();
    CHECK_EQ(e2e_program(NULL,
                         "init --arch qwen2 --hidden 64 --layers 2 --heads 4 --kv-heads 2 --vocab "
                         "512 --seed 1 --out '%s'",
                         test_file("tiny")),
             0);
    int rc = e2e_program(
        &out,
        "sft data.train_files='%s' data.apply_chat_template=false sft.batch_size=32 "
        "sft.max_length=64 worker.actor.model.model_path='%s' worker.actor.optim.lr=3e-3 "
        "worker.actor.optim.betas=[0.9,0.99] worker.actor.optim.weight_decay=0 "
        "trainer.max_steps=500 trainer.run_dir='%s'",
        test_file("sft.jsonl"), test_file("tiny"), test_file("warm"));
    if (!CHECK_MSG(rc == 0, "%s", out.data)) return;
    for (int seed = 1; seed <= 3; seed++) {
        snprintf(name, sizeof name, "seed_%d", seed);
        CHECK(train(name, seed, "1e-3") > 0.15);
    }
    CHECK(!(train("still", 1, "0") > 0.15));
    ares_str_clear(&out);
    CHECK_EQ(
        e2e_program(
            &out,
            "eval data.val_files='%s' data.apply_chat_template=false data.max_prompt_length=16 "
            "data.max_response_length=16 worker.actor.model.model_path='%s' "
            "'worker.reward.rewards=[{name: boxed}]'",
            test_file("rl.jsonl"), test_file("seed_1")),
        0);
    CHECK_CONTAINS(out.data, "val/accuracy");
    ares_str_fini(&out);
}
