/*
 * Which state a run goes on from: its own, one that is named, and none of another data set or model unless told to.
 * Seen to fail: with the vectors of a bf16 model rounded by its checkpoint (the resumed run differs).
 */
#include "e2e.h"

#include <stdio.h>

#define STEPS "trainer.max_steps=4 trainer.save_freq=2"

/* What a fresh run says that is to go on from `from`; its exit status. */
static int from(ares_str *out, const char *from, const char *more)
{
    ares_str_clear(out);
    int rc = e2e_program(out, "--config '%s' " STEPS " trainer.load_checkpoint_path='%s' %s", e2e_train_words("next"), from, more);
    ares_dir_remove(test_file("next"));
    return rc;
}

TEST(a_checkpoint_and_a_run_directory_may_be_named_and_an_absent_folder_begins_afresh)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(NULL, "--config '%s' " STEPS, e2e_train_words("first")), 0);
    CHECK_EQ(from(&out, test_file("first/checkpoints/step_000002"), ""), 0);
    CHECK_CONTAINS(out.data, "step_000002, step 2 of 4");
    CHECK_EQ(from(&out, test_file("first"), "trainer.max_steps=5"), 0);
    CHECK_CONTAINS(out.data, "step_000004, step 4 of 5");
    CHECK_EQ(from(&out, test_file("nowhere"), ""), 0);
    CHECK_CONTAINS(out.data, "the run begins afresh");
    CHECK_OK(ares_dir_make(test_file("empty")));
    CHECK(from(&out, test_file("empty"), "") != 0);
    CHECK_CONTAINS(out.data, "neither a checkpoint");
    ares_str_fini(&out);
}

TEST(a_state_of_another_data_set_is_refused_unless_forced)
{
    ares_str out = { 0 };
    const char *rows = e2e_write("rows.jsonl", "{\"prompt\":\"1+1=?\",\"answer\":\"2\"}\n{\"prompt\":\"1+2=?\",\"answer\":\"3\"}\n{\"prompt\":\"1+3=?\",\"answer\":\"4\"}\n"
                                               "{\"prompt\":\"2+2=?\",\"answer\":\"4\"}\n{\"prompt\":\"2+3=?\",\"answer\":\"5\"}\n");
    char files[600], forced[700], controls[700];
    snprintf(files, sizeof files, "data.train_files=['%s']", rows);
    snprintf(forced, sizeof forced, "--force \"%s\"", files);
    snprintf(controls, sizeof controls, "\"%s\" algorithm.aepo=true 'worker.reward.rewards=[{name: exact}]'", files);
    CHECK_EQ(e2e_program(NULL, "--config '%s' " STEPS " algorithm.aepo=true 'worker.reward.rewards=[{name: exact}]'", e2e_train_words("first")), 0);
    CHECK(from(&out, test_file("first/checkpoints/step_000002"), controls) != 0);
    CHECK_CONTAINS(out.data, "controls.json: the state is of another data set");
    char quoted[700];
    snprintf(quoted, sizeof quoted, "\"%s\"", files);
    CHECK(from(&out, test_file("first/checkpoints/step_000002"), quoted) != 0);
    CHECK_CONTAINS(out.data, "training rows, the data set has 5 now");
    CHECK_EQ(from(&out, test_file("first/checkpoints/step_000002"), forced), 0);
    CHECK_CONTAINS(out.data, "going on from");
    ares_str_fini(&out);
}

TEST(other_options_and_an_own_checkpoint_that_shall_not_count_are_refused)
{
    ares_str out = { 0 };
    const char *words = e2e_train_words("run");
    CHECK_EQ(e2e_stop("run", "KILL", 3, "--config '%s' trainer.max_steps=3000 trainer.save_freq=1", words), 137);
    CHECK(e2e_program(&out, "--config '%s' trainer.max_steps=3000 trainer.save_freq=1 worker.actor.optim.lr=0.5", words) != 0);
    CHECK_CONTAINS(out.data, "other options (worker.actor.optim.lr)");
    CHECK_CONTAINS(out.data, "--force");
    ares_str_clear(&out);
    CHECK(e2e_program(&out, "--config '%s' trainer.max_steps=3000 trainer.save_freq=1 trainer.find_last_checkpoint=false", words) != 0);
    CHECK_CONTAINS(out.data, "find_last_checkpoint");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=40 trainer.save_freq=1 --force", words), 0);
    CHECK_CONTAINS(out.data, "goes on with other options");
    ares_str_fini(&out);
}

TEST(a_checkpoint_of_the_model_alone_says_so)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(NULL, "--config '%s' " STEPS " trainer.save_model_only=true", e2e_train_words("first")), 0);
    CHECK(!ares_file_exists(test_file("first/checkpoints/step_000002/optimizer.safetensors")));
    CHECK(from(&out, test_file("first"), "") != 0);
    CHECK_CONTAINS(out.data, "without optimizer states");
    CHECK(from(&out, test_file("first"), "worker.actor.optim.strategy=adamw_bf16 worker.actor.fsdp.torch_dtype=bf16") != 0);
    ares_str_fini(&out);
}

static void goes_on_in_bf16(const char *more)
{
    const char *words = e2e_train_words("part");
    CHECK_EQ(e2e_stop("part", "KILL", 20, "--config '%s' trainer.max_steps=60 trainer.save_freq=5 worker.actor.fsdp.torch_dtype=bf16 %s", words, more), 137);
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=60 trainer.save_freq=5 worker.actor.fsdp.torch_dtype=bf16 %s", words, more), 0);
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=60 trainer.save_freq=5 worker.actor.fsdp.torch_dtype=bf16 %s", e2e_train_words("whole"), more), 0);
    e2e_same_runs("whole", "part", 60);
}

TEST(a_killed_run_in_bf16_goes_on_bit_for_bit) { goes_on_in_bf16(""); }
TEST(a_killed_run_with_kahan_sums_goes_on_bit_for_bit) { goes_on_in_bf16("worker.actor.optim.strategy=adamw_bf16"); }

TEST(the_usual_metrics_and_distributions_are_written)
{
    static const char *const names[] = { "global_seqlen/min", "global_seqlen/balanced_max", "global_seqlen/mean", "timing_per_token_ms/gen", "timing_per_token_ms/update_actor", "perf/mfu_actor",
                                         "critic/returns/mean", "prompt_length/clip_ratio", "response_length/clip_ratio", "reward/accuracy", "epoch/id", "epoch/iter_num", "actor/entropy_loss",
                                         "aepo/tau", "epoch/skip_gid_count", "perf/throughput" };
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=1 trainer.logger=[tensorboard] algorithm.aepo=true 'worker.reward.rewards=[{name: exact}]'", e2e_train_words("run")), 0);
    for (int i = 0; i < ARES_COUNT(names); i++) CHECK_MSG(e2e_metric("run", 1, names[i]) == e2e_metric("run", 1, names[i]), "%s is not there", names[i]);
    CHECK_EQ(test_shell(NULL, "grep -aq rollout/entropy_distribution '%s'/events* && grep -aq rollout/window_entropy_distribution '%s'/events*", test_file("run"), test_file("run")), 0);
}

/* 0.85 and 1.05 are temperatures where 1.0f / (float)T and (float)(1 / T) differ in their last bit. */
TEST(an_update_sees_the_log_probs_of_rollout_bit_for_bit_at_other_temperatures)
{
    static const char *const temperatures[] = { "0.85", "1.05" };
    for (int i = 0; i < ARES_COUNT(temperatures); i++) {
        const char *run = temperatures[i];
        CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=2 worker.rollout.temperature=%s",
                             e2e_train_words(run), run), 0);
        for (int step = 1; step <= 2; step++)
            CHECK_NEAR(e2e_metric(run, step, "exact/rollout_train_max_abs"), 0, 0);
    }
}
