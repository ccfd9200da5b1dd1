/* The line that a run prints for a step shows the same numbers as its row of metrics. */
#include "e2e.h"

#include <math.h>
#include <stdio.h>

typedef struct shown {
    const char *label, *format, *metric;
} shown;

/* Writes "reward 0.375 acc 0.375" from the metrics of a step; absent metrics are left out. */
static void line_of(const char *run, int step, const shown *of, int n, ares_str *out)
{
    ares_str_clear(out);
    for (int i = 0; i < n; i++) {
        double x = e2e_metric(run, step, of[i].metric);
        char number[32];
        if (isnan(x)) continue;
        snprintf(number, sizeof number, of[i].format, x);
        ares_str_addf(out, "%s%s %s", out->len ? "  " : "", of[i].label, number);
    }
}

TEST(the_line_of_a_step_shows_its_row_of_metrics)
{
    static const shown by_rewards[] = {
        { "reward", "%.3f", "reward/overall" },
        { "acc", "%.3f", "reward/accuracy" },
        { "len", "%.1f", "response_length/mean" },
        { "entropy", "%.3f", "actor/entropy" },
        { "grad", "%.2f", "actor/grad_norm" },
        { "kl", "%.4f", "actor/kl" },
        { "lr", "%.2e", "actor/lr" },
        { "val acc", "%.3f", "val/accuracy" },
        { "val reward", "%.3f", "val/reward_score" },
    };
    static const shown supervised[] = {
        { "grad", "%.2f", "actor/grad_norm" },
        { "lr", "%.2e", "actor/lr" },
        { "loss", "%.4f", "train/loss" },
        { "val loss", "%.4f", "val/loss" },
    };
    ares_str out = { 0 }, line = { 0 }, told = { 0 };
    const char *rows = e2e_write("val.jsonl", "{\"prompt\":\"1+1=?\",\"answer\":\"2\"}\n"
                                              "{\"prompt\":\"1+2=?\",\"answer\":\"3\"}\n"
                                              "{\"prompt\":\"1+3=?\",\"answer\":\"4\"}\n");
    CHECK_EQ(
        e2e_program(&out,
                    "--config '%s' trainer.max_steps=2 trainer.val_freq=2 data.val_files='%s' "
                    "algorithm.disable_kl=false algorithm.use_kl_loss=true algorithm.kl_coef=0.01 "
                    "worker.reward.accuracy=random 'worker.reward.rewards=[{name: random}]'",
                    e2e_train_words("run"), rows),
        0);
    line_of("run", 0, by_rewards, ARES_COUNT(by_rewards), &line);
    ares_str_addf(&told, "before training: %s\n", line.data);
    CHECK_CONTAINS(line.data, "val reward ");
    CHECK_CONTAINS(out.data, told.data);
    for (int step = 1; step <= 2; step++) {
        line_of("run", step, by_rewards, ARES_COUNT(by_rewards), &line);
        ares_str_clear(&told);
        ares_str_addf(&told, "step %d/2 | %s | ", step, line.data);
        CHECK(strstr(line.data, "kl ") && !strstr(line.data, "val ") == (step == 1));
        CHECK_CONTAINS(out.data, told.data);
    }
    ares_str_clear(&out);
    rows = e2e_write("val.jsonl", "{\"prompt\":\"1+1=?\",\"response\":\"2\"}\n"
                                  "{\"prompt\":\"1+2=?\",\"response\":\"3\"}\n");
    CHECK_EQ(e2e_program(&out, "sft --config '%s' trainer.max_steps=1 data.val_files='%s'",
                         e2e_sft_words("sft"), rows),
             0);
    line_of("sft", 1, supervised, ARES_COUNT(supervised), &line);
    ares_str_clear(&told);
    ares_str_addf(&told, "step 1/1 | %s | ", line.data);
    CHECK(strstr(line.data, "loss ") && strstr(line.data, "val loss "));
    CHECK_CONTAINS(out.data, told.data);
    ares_str_fini(&out);
    ares_str_fini(&line);
    ares_str_fini(&told);
}
