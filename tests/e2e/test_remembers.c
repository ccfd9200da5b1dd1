/*
 * What a resumed run has kept of its first part, where the usual run would not show it: learning
 * rates that change, the critic's own step count, the best checkpoint so far, rows that are no
 * longer drawn.
 */
#include "e2e.h"

#include <math.h>
#include <stdio.h>

static void trains(const char *run, const char *more)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "--config '%s' trainer.save_freq=1 %s", e2e_train_words(run), more);
    CHECK_MSG(rc == 0, "%s", out.data ? out.data : "");
    ares_str_fini(&out);
}

static bool same_file(const char *a, const char *b, const char *file)
{
    char path[2][200];
    for (int i = 0; i < 2; i++) snprintf(path[i], sizeof path[i], "%s/%s", i ? b : a, file);
    return CHECK_EQ(test_shell(NULL, "cmp '%s' '%s'", test_file(path[0]), test_file(path[1])), 0);
}

static void same_rate(int step, const char *name)
{
    double want = e2e_metric("whole", step, name), got = e2e_metric("run", step, name);
    CHECK_MSG(isnan(want) ? isnan(got) : got == want, "%s of step %d: %.9g, uninterrupted %.9g",
              name, step, got, want);
}

/* Step 1 is within the critic's warm-up, step 3 after it. */
TEST(a_resumed_run_has_the_learning_rates_of_actor_and_critic_that_an_uninterrupted_one_has)
{
    static const char words[] =
        "trainer.max_steps=5 trainer.critic_warmup=2 algorithm.adv_estimator=gae"
        " worker.actor.optim.lr_scheduler_type=cosine worker.actor.optim.lr_warmup_steps=1"
        " worker.critic.optim.lr=1e-3 worker.critic.optim.lr_scheduler_type=linear";
    static const char *const files[] = { "critic/model.safetensors",
                                         "critic_optimizer.safetensors" };
    trains("run", words);
    for (int from = 1; from <= 3; from += 2) {
        if (!e2e_go_back("run", "whole", from)) return;
        trains("run", words);
        for (int step = 1; step <= 5; step++)
            same_rate(step, "actor/lr"), same_rate(step, "critic/lr");
        e2e_same_runs("whole", "run", 5);
        for (int i = 0; i < ARES_COUNT(files); i++) {
            char file[100];
            snprintf(file, sizeof file, "checkpoints/step_000005/%s", files[i]);
            same_file("whole", "run", file);
        }
    }
    CHECK(isnan(e2e_metric("whole", 2, "actor/lr")) && e2e_metric("whole", 4, "actor/lr") > 0);
    /* otherwise an old step count would give the same rates */
    for (int step = 4; step <= 5; step++) {
        CHECK(e2e_metric("whole", step, "critic/lr") < e2e_metric("whole", step - 1, "critic/lr"));
        CHECK(e2e_metric("whole", step, "actor/lr") != e2e_metric("whole", step - 1, "actor/lr"));
    }
}

/*
 * Every answer scores 1, so no checkpoint is better than the first; only the newest and the best
 * are kept.
 */
TEST(a_resumed_run_keeps_the_checkpoint_that_was_best_before_it_stopped)
{
    char words[700];
    ares_str kept = { 0 };
    snprintf(words, sizeof words,
             "trainer.max_steps=4 trainer.val_freq=1 data.val_files='%s'"
             " \"worker.reward.rewards=[{name: format, pattern: '.*', finished: false}]\"",
             e2e_write("val.jsonl", "{\"prompt\":\"1+1=?\",\"answer\":\"2\"}\n"));
    trains("run", words);
    for (int step = 1; step <= 4; step++) CHECK_EQ(e2e_metric("run", step, "val/reward_score"), 1);
    if (!e2e_go_back("run", "whole", 2)) return;
    snprintf(words + strlen(words), sizeof words - strlen(words), " trainer.save_limit=1");
    trains("run", words);
    CHECK_EQ(test_shell(&kept, "cd '%s' && ls | tr '\\n' ' '", test_file("run/checkpoints")), 0);
    CHECK_STR(kept.data, "latest step_000001 step_000004 ");
    e2e_same_runs("whole", "run", 4); /* state.json, too */
    ares_str_fini(&kept);
}

/*
 * Rows 0 and 3 are always answered right and dropped the second time that one of them is seen: row
 * 3 in step 2, row 0 in step 3.
 */
TEST(a_resumed_run_draws_no_row_that_was_dropped_before_the_last_of_the_file_included)
{
    char words[1500];
    const char *rows =
        e2e_write("rows.jsonl", "{\"prompt\":\"a\",\"answer\":\"easy\",\"global_id\":\"a\"}\n"
                                "{\"prompt\":\"b\",\"answer\":\"hard\",\"global_id\":\"b\"}\n"
                                "{\"prompt\":\"c\",\"answer\":\"hard\",\"global_id\":\"c\"}\n"
                                "{\"prompt\":\"d\",\"answer\":\"easy\",\"global_id\":\"d\"}\n");
    const char *judge = e2e_write(
        "judge.sh", "while read -r line; do\n"
                    "  case \"$line\" in\n"
                    "    *'\"ground_truth\":\"easy\"'*) echo '{\"score\": 1, \"accuracy\": 1}';;\n"
                    "    *) echo '{\"score\": 0, \"accuracy\": 0}';;\n"
                    "  esac\n"
                    "done\n");
    snprintf(
        words, sizeof words,
        "trainer.max_steps=4 'data.train_files=[%s]' data.shuffle=false data.rollout_batch_size=2"
        " worker.actor.global_batch_size=2 algorithm.drop_easy_prompts=true"
        " algorithm.drop_easy_ratio=1 algorithm.target_coef_easy=10"
        " \"worker.reward.rewards=[{name: own, command: [sh, '%s']}]\"",
        rows, judge);
    trains("run", words);
    static const int dropped[] = { 0, 1, 2, 2 };
    for (int step = 1; step <= 4; step++)
        CHECK_EQ(e2e_metric("run", step, "epoch/skip_gid_count"), dropped[step - 1]);
    CHECK_EQ(test_shell(NULL, "! grep -q '\"row\":[03],' '%s'",
                        test_file("run/rollouts/step_000004.jsonl")),
             0);
    if (!e2e_go_back("run", "whole", 2)) return;
    trains("run", words);
    CHECK_EQ(test_shell(NULL, "! grep '\"row\":[03],' '%s'",
                        test_file("run/rollouts/step_000004.jsonl")),
             0);
    e2e_same_runs("whole", "run", 4);
}
