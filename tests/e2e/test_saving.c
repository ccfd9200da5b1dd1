/*
 * Nothing is lost: a step that fails leaves the state with which it began, an update whose gradient
 * is not finite changes nothing, a killed run has a rolling checkpoint, and none of this changes a
 * number of the run. These tests failed when the controls or the source of a failed step were saved
 * as they were at the failure.
 */
#include "disk.h"
#include "e2e.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 8, LINES = 16 }; /* LINES: responses that a step judges */

/*
 * A reward command that scores by the length of the line, and misbehaves while the file `broken` is
 * in its folder: after the first FROM lines of a rank, up to line TO. dead: it ends. huge: scores
 * of 1e38 and 0. opposite: scores whose difference does not fit a float. most: always 3e38. stop:
 * it scores as usual, but at line FROM it interrupts the run and waits.
 */
static const char script[] =
    "n=$(cat \"$4/count.$OMPI_COMM_WORLD_RANK\" 2>/dev/null || echo 0)\n"
    "while read -r line; do\n"
    "  n=$((n + 1)); echo $n >\"$4/count.$OMPI_COMM_WORLD_RANK\"; s=$((${#line} % 10))\n"
    "  if [ $1 = stop ] && [ $n = $2 ]; then kill -INT $PPID; exec sleep 60; fi\n"
    "  if [ -e \"$4/broken\" ] && [ $n -gt $2 ] && [ $n -le $3 ]; then\n"
    "    case $1 in dead) exit 3;; huge) s=$((n % 2))e38;; opposite) [ $((n % 2)) = 1 ] && s=3e38 "
    "|| "
    "s=-3e38;; most) s=3e38;; esac\n"
    "    echo \"{\\\"score\\\": $s, \\\"accuracy\\\": 1}\"\n"
    "  else echo \"{\\\"score\\\": 0.$s, \\\"accuracy\\\": $((s % 2))}\"; fi\n"
    "done\n";

/*
 * The arguments of a run with that reward, which misbehaves from the given line on; more: further
 * options. The text is valid until the call after the next one.
 */
static const char *broken_reward(const char *run, const char *how, int from, int to,
                                 const char *more)
{
    static char words[2][3000];
    static int at;
    char dir[64];
    at = !at;
    snprintf(dir, sizeof dir, "reward_%s", run);
    CHECK_OK(ares_dir_make(test_file(dir)));
    snprintf(dir, sizeof dir, "reward_%s/broken", run);
    e2e_write(dir, "");
    snprintf(dir, sizeof dir, "reward_%s", run);
    const char *file = e2e_write("reward.sh", script);
    snprintf(words[at], sizeof words[at],
             "--config '%s' trainer.max_steps=%d \"worker.reward.rewards=[{name: own, command: "
             "[sh, '%s', %s, '%d', '%d', '%s']}]\" %s",
             e2e_train_words(run), STEPS, file, how, from, to, test_file(dir), more);
    return words[at];
}

static void mend_reward(const char *run)
{
    char path[64];
    snprintf(path, sizeof path, "reward_%s/broken", run);
    CHECK_EQ(test_shell(NULL, "rm '%s'", test_file(path)), 0);
}

static bool exists_in(const char *run, const char *file)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", run, file);
    return test_shell(NULL, "test -e '%s'", test_file(path)) == 0;
}

static int64_t rows_of(const char *run)
{
    char path[200];
    ares_str text = { 0 };
    int64_t n = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    if (CHECK_OK(ares_file_read(test_file(path), &text)))
        for (size_t i = 0; i < text.len; i++) n += text.data[i] == '\n';
    ares_str_fini(&text);
    return n;
}

static bool holds_null(const char *run)
{
    char path[200];
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    return test_shell(NULL, "grep -q null '%s'", test_file(path)) == 0;
}

/* ---------------- a step that fails before its update */

/*
 * Step 5 fails. The run resumes from the state with which that step began, and equals a run that
 * never failed.
 */
static void check_one_failure(const char *ranks, const char *how, const char *why, const char *more)
{
    ares_str out = { 0 };
    int before = 4 * LINES / (*ranks ? 2 : 1), code = strcmp(how, "opposite") == 0 ? 3 : 1;
    const char *words = broken_reward("part", how, before, 1000000, more);
    CHECK_EQ(e2e_program(&out, "%s %s", ranks, words), code); /* 3: numbers that are not finite */
    CHECK_CONTAINS(out.data, why);
    CHECK_CONTAINS(out.data, "step 5 failed before its update; what it began with is saved in");
    CHECK(exists_in("part", "checkpoints/rolling_000004/state.json"));
    CHECK(exists_in("part", "checkpoints/rolling_000004/source.json"));
    mend_reward("part");
    ares_str_clear(&out);
    CHECK_MSG(e2e_program(&out, "%s %s", ranks, words) == 0, "%s", out.data ? out.data : "");
    CHECK_CONTAINS(out.data, "rolling_000004, step 4 of 8");
    CHECK(!exists_in("part", "checkpoints/rolling_000004"));
    words = broken_reward("whole", how, 0, 0, more);
    CHECK_EQ(e2e_program(NULL, "%s %s", ranks, words), 0);
    e2e_same_runs("whole", "part", STEPS);
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && if [ -e whole/checkpoints/step_000008/controls.json ]; then "
                        "cmp whole/checkpoints/step_000008/controls.json "
                        "part/checkpoints/step_000008/controls.json; fi",
                        test_file(".")),
             0);
    ares_str_fini(&out);
}

#define FILTERED                                                                \
    "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=score " \
    "algorithm.max_resample=1 algorithm.on_exhausted=error"
#define SHAPED "algorithm.adv_estimator=rloo algorithm.aepo=true"

TEST(a_reward_that_stays_dead_costs_no_step_that_was_made)
{
    check_one_failure("", "dead", "could not be judged", FILTERED);
}
TEST(a_step_that_fails_after_its_controls_have_looked_saves_them_as_they_were)
{
    check_one_failure("", "opposite", "does not fit a float", SHAPED);
}
TEST(a_step_that_fails_with_a_critic_goes_on_bit_for_bit)
{
    check_one_failure("", "dead", "could not be judged", FILTERED " algorithm.adv_estimator=gae");
}
TEST_MPI(a_step_that_fails_on_two_ranks_saves_what_it_began_with)
{
    E2E_NEEDS_MPI();
    check_one_failure("--ranks 2", "opposite", "does not fit a float", SHAPED " trainer.threads=1");
}

TEST(the_first_step_and_one_whose_checkpoint_is_there_are_saved_once)
{
    ares_str out = { 0 };
    const char *words = broken_reward("part", "dead", 0, 1000000, FILTERED);
    CHECK_EQ(e2e_program(&out, "%s", words), 1);
    CHECK_CONTAINS(out.data, "checkpoints/rolling_000000");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "%s", words), 1);
    CHECK_CONTAINS(out.data,
                   "step 1 failed before its update; the last checkpoint holds what it began with");
    mend_reward("part");
    CHECK_EQ(e2e_program(NULL, "%s", words), 0);
    CHECK_EQ(e2e_program(NULL, "%s", broken_reward("whole", "dead", 0, 0, FILTERED)), 0);
    e2e_same_runs("whole", "part", STEPS);
    ares_str_fini(&out);
}

/* ---------------- gradients that are no numbers */

#define HUGE_STEPS                                                                     \
    "algorithm.adv_estimator=rloo worker.actor.loss_avg_mode=seq-mean-token-sum-norm " \
    "worker.actor.loss_scale_factor=1e-3"

TEST(an_update_whose_gradient_is_not_finite_changes_neither_weights_nor_moments)
{
    ares_str out = { 0 };
    CHECK_MSG(e2e_program(&out, "%s trainer.save_freq=1",
                          broken_reward("run", "huge", 4 * LINES, 5 * LINES, HUGE_STEPS)) == 0,
              "%s", out.data ? out.data : "");
    CHECK_CONTAINS(out.data, "actor: step 5, optimizer step 5: gradient norm is ");
    CHECK_CONTAINS(out.data, "the update is left out, 1 in a row now");
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && cmp step_000004/model/model.safetensors "
                        "step_000005/model/model.safetensors && cmp "
                        "step_000004/optimizer.safetensors step_000005/optimizer.safetensors",
                        test_file("run/checkpoints")),
             0);
    CHECK_EQ(
        test_shell(NULL,
                   "cd '%s' && ! cmp -s step_000005/model/model.safetensors "
                   "step_000006/model/model.safetensors && grep -q "
                   "'\"optimizer_steps\":[^0-9]*7,' step_000008/state.json "
                   "&& grep -q '\"skipped_updates\":[^0-9]*1,*$' step_000005/state.json && grep "
                   "-q '\"skipped_updates\":[^0-9]*0,*$' step_000006/state.json",
                   test_file("run/checkpoints")),
        0);
    CHECK_EQ(e2e_metric("run", 5, "actor/skipped_updates"), 1);
    CHECK_EQ(e2e_metric("run", 6, "actor/skipped_updates"), 0);
    CHECK_EQ(e2e_metric("run", 5, "exact/rollout_train_max_abs"), 0);
    CHECK(isnan(e2e_metric("run", 5, "actor/grad_norm")) &&
          e2e_metric("run", 6, "actor/grad_norm") > 0);
    CHECK(!holds_null("run"));
    ares_str_fini(&out);
}

/*
 * Updates are left out in steps 5, 6 and 7: the run saves and ends. Started again it ends after the
 * next step; with the reward mended it goes on.
 */
static void check_three_in_a_row(const char *ranks, const char *how, const char *who,
                                 const char *more)
{
    ares_str out = { 0 };
    char metric[64];
    const char *words = broken_reward("run", how, 4 * LINES / (*ranks ? 2 : 1), 1000000, more);
    CHECK_EQ(e2e_program(&out, "%s %s trainer.max_steps=10", ranks, words), 3);
    snprintf(metric, sizeof metric, "%s: step 7: 3 updates in a row were left out", who);
    CHECK_CONTAINS(out.data, metric);
    CHECK_CONTAINS(out.data,
                   "or begin from an earlier checkpoint with trainer.load_checkpoint_path");
    CHECK(exists_in("run", "checkpoints/rolling_000007/optimizer.safetensors"));
    CHECK_EQ(rows_of("run"), 7);
    snprintf(metric, sizeof metric, "%s/skipped_updates", who);
    for (int step = 4; step <= 7; step++) CHECK_EQ(e2e_metric("run", step, metric), step > 4);
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "%s %s trainer.max_steps=10", ranks, words), 3);
    CHECK_CONTAINS(out.data, "4 in a row now");
    CHECK_EQ(rows_of("run"), 8);
    mend_reward("run");
    CHECK_EQ(e2e_program(NULL, "%s %s trainer.max_steps=10", ranks, words), 0);
    CHECK_EQ(rows_of("run"), 10);
    CHECK(!holds_null("run"));
    ares_str_fini(&out);
}

TEST(three_updates_left_out_in_a_row_save_and_end_the_run)
{
    check_three_in_a_row("", "huge", "actor", HUGE_STEPS);
}
TEST(three_updates_of_the_critic_left_out_end_the_run_as_well)
{
    check_three_in_a_row(
        "", "most", "critic",
        "algorithm.adv_estimator=gae worker.critic.loss_avg_mode=seq-mean-token-sum");
}
TEST_MPI(two_ranks_leave_the_same_updates_out)
{
    E2E_NEEDS_MPI();
    check_three_in_a_row("--ranks 2", "huge", "actor", HUGE_STEPS " trainer.threads=1");
}

/*
 * The first update makes the weights so large that the next passes over the batch have no finite
 * log-prob, or value.
 */
static void check_no_finite_loss(const char *who, const char *words, const char *ranks)
{
    ares_str out = { 0 };
    char text[96];
    CHECK_EQ(
        e2e_program(&out, "--restarts 2 %s --config '%s' %s", ranks, e2e_train_words("run"), words),
        3);
    CHECK(!strstr(out.data, "restart 1 of 2")); /* it would only fail again */
    snprintf(text, sizeof text, "%s: step 1, optimizer step 2: loss: ", who);
    CHECK_CONTAINS(out.data, text);
    snprintf(text, sizeof text, "%s: step 1: 3 updates in a row were left out", who);
    CHECK_CONTAINS(out.data, text);
    CHECK(exists_in("run", "checkpoints/rolling_000001/optimizer.safetensors"));
    snprintf(text, sizeof text, "%s/skipped_updates", who);
    CHECK_EQ(e2e_metric("run", 1, text), 3);
    CHECK(!holds_null("run"));
    ares_str_fini(&out);
}

TEST(updates_whose_loss_is_not_finite_are_left_out_as_well)
{
    check_no_finite_loss("actor", "worker.actor.ppo_epochs=4 worker.actor.optim.lr=1e30", "");
}
TEST(updates_of_the_critic_whose_loss_is_not_finite_are_left_out_as_well)
{
    check_no_finite_loss(
        "critic",
        "algorithm.adv_estimator=gae worker.critic.ppo_epochs=4 worker.critic.optim.lr=1e30", "");
}
/* The rounds of a mini-batch, whose ends are collectives, are left out together. */
TEST_MPI(two_ranks_leave_out_updates_of_rounds_whose_loss_is_not_finite)
{
    E2E_NEEDS_MPI();
    check_no_finite_loss("actor",
                         "worker.actor.ppo_epochs=4 worker.actor.optim.lr=1e30 trainer.threads=1 "
                         "worker.actor.round_tokens=30 trainer.comm_timeout_s=20",
                         "--ranks 2");
}

TEST(supervised_training_ends_saved_when_its_loss_stays_infinite)
{
    ares_str out = { 0 };
    CHECK_EQ(
        e2e_program(&out, "sft --config '%s' worker.actor.optim.lr=1e30", e2e_sft_words("run")), 3);
    CHECK_CONTAINS(out.data, "actor: step 4: 3 updates in a row were left out");
    CHECK(exists_in("run", "checkpoints/rolling_000004/optimizer.safetensors"));
    CHECK_EQ(e2e_metric("run", 1, "actor/skipped_updates"), 0);
    for (int step = 2; step <= 4; step++)
        CHECK_EQ(e2e_metric("run", step, "actor/skipped_updates"), 1);
    CHECK(isnan(e2e_metric("run", 3, "train/loss")) && !holds_null("run"));
    ares_str_fini(&out);
}

/* ------------------------------------------------------------------ rolling checkpoints */

static void check_saved_often(const char *verb, const char *words, const char *other,
                              const char *steps)
{
    CHECK_EQ(e2e_program(NULL,
                         "%s --config '%s' %s trainer.save_minutes=1e-9 trainer.save_freq=3 "
                         "trainer.save_limit=2",
                         verb, words, steps),
             0);
    CHECK_EQ(e2e_program(NULL, "%s --config '%s' %s trainer.save_minutes=null", verb, other, steps),
             0);
    e2e_same_runs("often", "never", 10);
    CHECK_EQ(test_shell(NULL,
                        "test \"$(ls '%s' | tr '\\n' ' ')\" = 'latest step_000009 step_000010 '",
                        test_file("often/checkpoints")),
             0);
    CHECK_EQ(test_shell(NULL, "test \"$(ls '%s' | tr '\\n' ' ')\" = 'latest step_000010 '",
                        test_file("never/checkpoints")),
             0);
    for (int step = 1; step <= 10; step++)
        CHECK(e2e_metric("often", step, "timing_s/save_checkpoint") > 0);
    for (int step = 1; step < 10; step++)
        CHECK(isnan(e2e_metric("never", step, "timing_s/save_checkpoint")));
    CHECK(e2e_metric("never", 10, "timing_s/save_checkpoint") > 0);
}

TEST(when_a_checkpoint_is_written_decides_no_number)
{
    check_saved_often("train", e2e_train_words("often"), e2e_train_words("never"),
                      "trainer.max_steps=10");
}
TEST(when_a_supervised_checkpoint_is_written_decides_no_number)
{
    check_saved_often("sft", e2e_sft_words("often"), e2e_sft_words("never"),
                      "trainer.max_steps=10");
}

/*
 * The signal comes in step 4, while its answers are judged: the step is dropped, and what it began
 * with is saved, though step 2 has a checkpoint by then.
 */
TEST(a_signal_drops_the_step_at_hand_and_saves_what_it_began_with)
{
    ares_str out = { 0 };
    char more[700];
    snprintf(
        more, sizeof more,
        "trainer.save_freq=2 trainer.save_minutes=null trainer.val_freq=3 "
        "trainer.val_before_train=false data.val_files='%s'",
        e2e_write(
            "val.jsonl",
            "{\"prompt\":\"1+1=?\",\"answer\":\"2\"}\n{\"prompt\":\"1+2=?\",\"answer\":\"3\"}\n"
            "{\"prompt\":\"1+3=?\",\"answer\":\"4\"}\n"));
    const char *words = broken_reward("part", "stop", 3 * LINES + 3 + 1, 0, more);
    CHECK_EQ(e2e_program(&out, "%s", words), 130);
    CHECK_CONTAINS(out.data, "stopped by signal 2 after step 3 of 8");
    CHECK(exists_in("part", "checkpoints/step_000002") &&
          exists_in("part", "checkpoints/rolling_000003/state.json"));
    CHECK_EQ(rows_of("part"), 3);
    CHECK(e2e_metric("part", 3, "val/reward_score") > 0);
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "%s", words), 0);
    CHECK_CONTAINS(out.data, "checkpoints/rolling_000003, step 3 of 8");
    words = broken_reward("whole", "stop", 0, 0, more);
    CHECK_EQ(e2e_program(NULL, "%s", words), 0);
    e2e_same_runs("whole", "part", 4);
    e2e_same_runs("whole", "part", STEPS);
    ares_str_fini(&out);
}

/*
 * Twelve rows in batches of five: the signal comes while answers of the second or of the last batch
 * are judged.
 */
TEST(a_signal_in_the_bootstrap_pass_saves_it_and_says_how_many_prompts_it_has_seen)
{
    ares_str out = { 0 }, rows = { 0 };
    char more[700];
    for (int i = 0; i < 12; i++)
        ares_str_addf(&rows, "{\"prompt\":\"%d+1=?\",\"answer\":\"%d\"}\n", i, i + 1);
    snprintf(
        more, sizeof more,
        "algorithm.aepo=true data.bootstrap=true data.bootstrap_batch_size=5 trainer.max_steps=2 "
        "data.train_files='%s'",
        e2e_write("rows.jsonl", rows.data));
    const char *words = broken_reward("part", "stop", 4 * 5 + 3, 0, more);
    CHECK_EQ(e2e_program(&out, "%s", words), 130);
    CHECK_CONTAINS(out.data,
                   "run: stopped by signal 2 in the bootstrap pass, after 5 of 12 prompts; the "
                   "same command goes on from there");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "%s", words), 0);
    CHECK(!strstr(out.data, "bootstrap: 5 of"));
    CHECK_CONTAINS(out.data, "bootstrap: 10 of 12 prompts");
    CHECK_EQ(e2e_program(NULL, "%s", broken_reward("whole", "stop", 0, 0, more)), 0);
    e2e_same_runs("whole", "part", 2);
    ares_str_clear(&out);
    words = broken_reward("last", "stop", 4 * 10 + 3, 0, more);
    CHECK_EQ(e2e_program(&out, "%s", words), 130);
    CHECK_CONTAINS(out.data, "in the bootstrap pass, after 10 of 12 prompts;");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "%s", words), 0);
    CHECK(!strstr(out.data, "bootstrap: 10 of"));
    CHECK_CONTAINS(out.data, "bootstrap: 12 of 12 prompts");
    e2e_same_runs("whole", "last", 2);
    ares_str_fini(&out);
    ares_str_fini(&rows);
}

/*
 * The first row is made so long that the file reaches the limit with row 3; the files of a
 * checkpoint stay below the limit.
 */
TEST(a_step_whose_row_cannot_be_written_has_no_checkpoint)
{
    enum { LIMIT = 1 << 20 };
    ares_str out = { 0 }, rows = { 0 }, padded = { 0 };
    const char *words = e2e_train_words("part"), *file = test_file("part/metrics.jsonl");
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=3 trainer.save_freq=1", words), 0);
    if (!e2e_go_back("part", "whole", 2) || !CHECK_OK(ares_file_read(file, &rows))) return;
    ares_str_addf(&padded, "{\"pad\":\"%*s\",%s", (int)(LIMIT - 40 - rows.len), "", rows.data + 1);
    CHECK_OK(ares_file_write(file, padded.data, padded.len));
    int rc = test_shell(&out,
                        "trap '' XFSZ; ulimit -f %d && '%s' --config '%s' trainer.max_steps=3 "
                        "trainer.save_freq=1 2>&1",
                        LIMIT / 512, test_program(), words);
    CHECK_EQ(rc, 1);
    CHECK_CONTAINS(out.data, "metrics.jsonl: File too large");
    CHECK(!exists_in("part", "checkpoints/step_000003") &&
          exists_in("part", "checkpoints/step_000002"));
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out, "ls -A '%s'", test_file("part/checkpoints")), 0);
    CHECK_STR(out.data, "latest\nstep_000001\nstep_000002\n"); /* nothing is left of its files */
    CHECK_EQ(test_shell(NULL, "sed -i 's/\"pad\":\" *\",//' '%s'", file), 0);
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=3 trainer.save_freq=1", words), 0);
    CHECK_EQ(rows_of("part"), 3);
    e2e_same_runs("whole", "part", 3);
    ares_str_fini(&out), ares_str_fini(&rows), ares_str_fini(&padded);
}

TEST(a_run_killed_with_the_default_options_of_saving_goes_on_from_its_rolling_checkpoint)
{
    ares_str out = { 0 };
    const char *words = e2e_train_words("part");
    CHECK_EQ(e2e_stop("part", "KILL", 20,
                      "--config '%s' trainer.max_steps=60 trainer.save_minutes=1e-9", words),
             137);
    CHECK_EQ(test_shell(NULL, "! ls '%s' | grep step_", test_file("part/checkpoints")), 0);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=60 trainer.save_minutes=10", words),
             0);
    CHECK_CONTAINS(out.data, "checkpoints/rolling_0000");
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=60", e2e_train_words("whole")), 0);
    e2e_same_runs("whole", "part", 60);
    ares_str_fini(&out);
}

TEST(a_rolling_checkpoint_has_what_save_model_only_leaves_out)
{
    ares_str out = { 0 };
    const char *words = e2e_train_words("part");
    CHECK_EQ(
        e2e_stop(
            "part", "INT", 5,
            "--config '%s' trainer.max_steps=60 trainer.save_model_only=true trainer.save_freq=1",
            words),
        130);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=60", words), 0);
    CHECK_CONTAINS(out.data, "checkpoints/rolling_0000");
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=60", e2e_train_words("whole")), 0);
    e2e_same_runs("whole", "part", 60);
    CHECK(!exists_in("part", "checkpoints/rolling_*"));
    ares_str_fini(&out);
}

TEST(a_run_that_saves_models_alone_goes_on_from_its_first_checkpoint_when_it_is_killed)
{
    ares_str out = { 0 };
    const char *words = e2e_train_words("part");
    CHECK_EQ(
        e2e_stop(
            "part", "KILL", 5,
            "--config '%s' trainer.max_steps=60 trainer.save_model_only=true trainer.save_freq=1",
            words),
        137);
    /* a validation takes the latest model, and needs no states */
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.val_only=true data.val_files='%s'", words,
                         e2e_write("val.jsonl", "{\"prompt\":\"1+1=?\",\"answer\":\"2\"}\n")),
             0);
    CHECK_MSG(strstr(out.data, "checkpoints/step_0000") && !strstr(out.data, "rolling"), "%s",
              out.data);
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=60", words), 0);
    CHECK_CONTAINS(out.data, "checkpoints/rolling_000001, step 1 of 60");
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=60", e2e_train_words("whole")), 0);
    e2e_same_runs("whole", "part", 60);
    ares_str_fini(&out);
}

TEST(a_checkpoint_has_the_tokenizer_of_the_model_that_it_began_with)
{
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=1", e2e_train_words("run")), 0);
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && test -e tokenizer.json && for file in tokenizer*; do cmp "
                        "\"$file\" '%s/checkpoints/step_000001/model/'\"$file\" || exit 1; done",
                        e2e_model(), test_file("run")),
             0);
}

/* ------------------------------------------------------------------ what validation judges */
#define VALIDATED "trainer.max_steps=10 data.val_files='%s' data.val_batch_size=7"

TEST(the_best_checkpoint_is_judged_by_the_latest_validation)
{
    const char *rows = test_source("examples/data/sums/val.jsonl");
    CHECK_EQ(e2e_program(NULL,
                         "--config '%s' " VALIDATED
                         " trainer.val_freq=3 trainer.save_freq=4 trainer.val_before_train=false",
                         e2e_train_words("run"), rows),
             0);
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && grep -q '\"validated_step\":[^0-9]*3,' step_000004/state.json "
                        "&& grep -q '\"best_step\":[^0-9]*4,' step_000004/state.json "
                        "&& grep -q '\"validated_step\":[^0-9]*6,' step_000008/state.json",
                        test_file("run/checkpoints")),
             0);
}

/*
 * Step 4 of another run is the best so far. Step 5 is validated better, and a signal ends the run
 * before the next regular checkpoint, which is the best by that validation.
 */
TEST(a_run_that_goes_on_remembers_the_latest_validation_beside_the_best)
{
    static const char *const runs[] = { "first", "run", "run" };
    for (int i = 0; i < 3; i++) {
        char from[600] = "trainer.max_steps=4";
        if (i)
            snprintf(from, sizeof from, "trainer.max_steps=9 trainer.load_checkpoint_path='%s'",
                     test_file("first"));
        if (i == 1) {
            disk_record(test_file("log"), true);
            setenv("ARES_RECORD_SIGNAL", "/metrics.jsonl 1 ", 1);
        }
        int rc = e2e_program(NULL,
                             "--config '%s' data.val_files='%s' trainer.val_freq=5 "
                             "trainer.save_freq=4 trainer.val_before_train=false "
                             "'worker.reward.rewards=[{name: random}]' %s",
                             e2e_train_words(runs[i]), test_source("examples/data/sums/val.jsonl"),
                             from);
        if (i == 1) disk_record_end();
        CHECK_EQ(rc, i == 1 ? 130 : 0);
        if (i == 1) CHECK(ares_file_exists(test_file("run/checkpoints/rolling_000005/state.json")));
    }
    CHECK(e2e_metric("run", 5, "val/reward_score") > e2e_metric("first", 4, "val/reward_score"));
    CHECK_EQ(test_shell(NULL, "grep -q '\"best_step\":[^0-9]*8,' '%s'",
                        test_file("run/checkpoints/step_000008/state.json")),
             0);
}

TEST(a_run_that_begins_from_another_ones_state_validates_it_unless_that_one_did)
{
    const char *rows = test_source("examples/data/sums/val.jsonl");
    CHECK_EQ(e2e_program(NULL, "--config '%s' " VALIDATED " trainer.val_freq=4 trainer.save_freq=2",
                         e2e_train_words("first"), rows),
             0);
    CHECK_EQ(e2e_program(NULL, "--config '%s' " VALIDATED " trainer.load_checkpoint_path='%s'",
                         e2e_train_words("next"), rows, test_file("first/checkpoints/step_000002")),
             0);
    CHECK(e2e_metric("next", 2, "val/reward_score") >= 0);
    CHECK_EQ(e2e_program(NULL, "--config '%s' " VALIDATED " trainer.load_checkpoint_path='%s'",
                         e2e_train_words("again"), rows,
                         test_file("first/checkpoints/step_000004")),
             0);
    CHECK(isnan(e2e_metric("again", 4, "val/reward_score")));
    CHECK(e2e_metric("first", 4, "val/reward_score") >= 0);
}

TEST(a_validated_run_goes_on_bit_for_bit)
{
    const char *rows = test_source("examples/data/sums/val.jsonl"),
               *words = e2e_train_words("part");
    CHECK_EQ(e2e_stop("part", "INT", 7,
                      "--config '%s' trainer.max_steps=60 data.val_files='%s' trainer.val_freq=5 "
                      "trainer.save_freq=4",
                      words, rows),
             130);
    CHECK_EQ(e2e_program(NULL,
                         "--config '%s' trainer.max_steps=60 data.val_files='%s' "
                         "trainer.val_freq=5 trainer.save_freq=4",
                         words, rows),
             0);
    CHECK_EQ(e2e_program(NULL,
                         "--config '%s' trainer.max_steps=60 data.val_files='%s' "
                         "trainer.val_freq=5 trainer.save_freq=4",
                         e2e_train_words("whole"), rows),
             0);
    e2e_same_runs("whole", "part", 60);
}

/* Step 28 is the first with both a checkpoint and a validation. */
#define APART                                                                          \
    "trainer.max_steps=40 data.val_files='%s' trainer.val_freq=7 trainer.save_freq=4 " \
    "trainer.save_minutes=null"

TEST(a_run_that_goes_on_shows_what_it_is_worth_at_a_step_that_was_not_validated)
{
    const char *rows = test_source("examples/data/sums/val.jsonl");
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(NULL, "--config '%s' " APART, e2e_train_words("part"), rows), 0);
    if (!e2e_go_back("part", "whole", 8)) return;
    CHECK_EQ(e2e_program(&out, "--config '%s' " APART " 'trainer.logger=[console]'",
                         e2e_train_words("part"), rows),
             0);
    CHECK_CONTAINS(out.data, "before going on from step 8: ");
    CHECK_CONTAINS(out.data, "val reward ");
    e2e_same_runs("whole", "part", 40);
    /* the checkpoint before the next validation names the one before step 8 */
    CHECK_EQ(
        test_shell(NULL,
                   "step=checkpoints/step_000012/state.json; cd '%s' && cmp part/$step whole/$step",
                   test_dir()),
        0);
    CHECK_EQ(e2e_stop("quiet", "KILL", 8, "--config '%s' " APART " trainer.val_before_train=false",
                      e2e_train_words("quiet"), rows),
             137);
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' " APART
                         " trainer.val_before_train=false 'trainer.logger=[console]'",
                         e2e_train_words("quiet"), rows),
             0);
    CHECK(!strstr(out.data, "before going on"));
    ares_str_fini(&out);
}
