/*
 * A run that was stopped and resumed equals an uninterrupted one: weights, optimizer, metrics and
 * rollouts have the same bytes. These tests failed when the number of prompts drawn was not
 * restored (rollouts differed), and when the step count of AdamW was not restored (weights
 * differed).
 */
#include "e2e.h"

#include <stdio.h>

enum { STEPS = 300 };

/*
 * Compares an uninterrupted run with one that got `signal` and was started again with the same
 * arguments.
 */
static void stopped_equals_whole(const char *verb, const char *whole, const char *part,
                                 const char *signal, int rows, int exit_code, const char *more)
{
    const char *sft = strcmp(verb, "sft") == 0 ? e2e_sft_words(part) : NULL,
               *words = sft ? sft : e2e_train_words(part);
    ares_str out = { 0 };
    CHECK_EQ(e2e_stop(part, signal, rows, "%s --config '%s' trainer.max_steps=%d %s", verb, words,
                      STEPS, more),
             exit_code);
    CHECK(!ares_file_exists(test_file("part/DONE")));
    CHECK_EQ(
        e2e_program(&out, "%s --config '%s' trainer.max_steps=%d %s", verb, words, STEPS, more), 0);
    CHECK_CONTAINS(out.data, "going on from ");
    ares_str_clear(&out);
    words = sft ? e2e_sft_words(whole) : e2e_train_words(whole);
    if (CHECK_EQ(e2e_program(&out, "%s --config '%s' trainer.max_steps=%d", verb, words, STEPS), 0))
        e2e_same_runs(whole, part, STEPS);
    else printf("%s\n", out.data);
    ares_str_fini(&out);
}

TEST(an_interrupted_run_goes_on_bit_for_bit)
{
    stopped_equals_whole("train", "whole", "part", "INT", 20, 130, "");
}
TEST(a_terminated_run_goes_on_bit_for_bit)
{
    stopped_equals_whole("train", "whole", "part", "TERM", 20, 143, "");
}
TEST(a_killed_run_goes_on_from_its_last_checkpoint_bit_for_bit)
{
    stopped_equals_whole("train", "whole", "part", "KILL", 60, 137, "trainer.save_freq=25");
}
TEST(an_interrupted_sft_goes_on_bit_for_bit)
{
    stopped_equals_whole("sft", "whole", "part", "INT", 20, 130, "");
}
TEST(a_killed_sft_goes_on_from_its_last_checkpoint_bit_for_bit)
{
    stopped_equals_whole("sft", "whole", "part", "KILL", 60, 137, "trainer.save_freq=25");
}

/* Every option that is marked as changing no result, with its value in each part of a run. */
static const struct {
    const char *option, *first, *then;
} no_result[] = {
    { "data.val_batch_size", "-1", "3" },
    { "data.vision_cache_gb", "2", "0" },
    { "worker.rollout.max_num_seqs", "128", "3" },
    { "worker.rollout.max_num_batched_tokens", "null", "70" },
    { "worker.rollout.cache_tokens", "null", "256" },
    { "worker.rollout.gpu_memory_utilization", "0.6", "0.5" },
    { "trainer.comm_timeout_s", "600", "500" },
    { "trainer.comm_transport", "auto", "staged" },
    { "worker.rollout.enable_prefix_caching", "true", "false" },
    { "worker.rollout.speculation", "none", "auto" },
    { "worker.rollout.tensor_parallel_size", "null", "1" },
    { "worker.rollout.enable_chunked_prefill", "null", "true" },
    { "worker.actor.max_token_len_per_device", "1024", "200" },
    { "worker.actor.skip_zero_gradients", "true", "false" },
    { "worker.actor.model.enable_gradient_checkpointing", "false", "true" },
    { "worker.actor.model.parameters", "null", "1e6" },
    { "worker.actor.fsdp.enable_full_shard", "null", "false" },
    { "worker.actor.fsdp.fsdp_size", "-1", "1" },
    { "worker.actor.offload.offload_params", "true", "false" },
    { "worker.actor.offload.offload_optimizer", "false", "true" },
    { "worker.rollout.state_snapshots", "null", "3" },
    { "worker.actor.ulysses_size", "1", "2" },
    { "worker.critic.ulysses_size", "2", "1" },
    { "worker.ref.ulysses_size", "1", "2" },
    { "worker.actor.micro_batch_size_per_device_for_experience", "null", "8" },
    { "worker.critic.max_token_len_per_device", "1024", "150" },
    { "worker.critic.model.enable_gradient_checkpointing", "true", "false" },
    { "worker.critic.fsdp.enable_full_shard", "true", "null" },
    { "worker.critic.fsdp.fsdp_size", "1", "-1" },
    { "worker.critic.offload.offload_params", "false", "true" },
    { "worker.critic.offload.offload_optimizer", "true", "false" },
    { "worker.critic.micro_batch_size_per_device_for_update", "16", "null" },
    { "worker.critic.micro_batch_size_per_device_for_experience", "null", "4" },
    { "worker.ref.fsdp.enable_full_shard", "null", "true" },
    { "worker.ref.fsdp.fsdp_size", "-1", "1" },
    { "worker.ref.offload.offload_params", "true", "false" },
    { "trainer.threads", "1", "2" },
    { "trainer.logger", "[console]", "[file]" },
    { "trainer.progress", "none", "line" },
    { "trainer.val_generations_to_log", "0", "2" },
    { "trainer.rollout_log", "text", "tokens" },
    { "trainer.rollout_log_freq", "2", "1" },
    { "trainer.rollout_log_tokens", "1", "16384" },
    { "trainer.save_freq", "-1", "1000" },
    { "trainer.report", "true", "false" },
    { "trainer.save_minutes", "10", "1e-9" },
    { "trainer.save_async", "false", "true" },
    { "trainer.save_limit", "-1", "3" },
    { "trainer.save_model_only", "true", "false" },
    { "trainer.load_checkpoint_path", "null", "nowhere" },
    { "trainer.find_last_checkpoint", "false", "true" },
    { "trainer.force", "false", "true" },
};

TEST(what_changes_no_result_may_change_between_two_parts_of_a_run)
{
    ares_str first = { 0 }, then = { 0 }, out = { 0 };
    for (int i = 0; i < ARES_COUNT(no_result); i++) {
        ares_str_addf(&first, " '%s=%s'", no_result[i].option, no_result[i].first);
        ares_str_addf(&then, " '%s=%s'", no_result[i].option, no_result[i].then);
    }
    char same[500];
    snprintf(
        same, sizeof same,
        "trainer.max_steps=60 algorithm.adv_estimator=gae data.val_files='%s' trainer.val_freq=20",
        test_source("examples/data/sums/val.jsonl"));
    const char *words = e2e_train_words("part");
    CHECK_EQ(e2e_stop("part", "INT", 20, "--config '%s' %s %s", words, same, first.data), 130);
    CHECK_MSG(e2e_program(&out, "--config '%s' %s %s", words, same, then.data) == 0, "%s",
              out.data);
    CHECK(!strstr(out.data, "other options")); /* trainer.force would accept any option */
    CHECK_EQ(e2e_program(NULL, "--config '%s' %s", e2e_train_words("whole"), same), 0);
    /* of rollouts, the files that the second part has certainly written */
    CHECK_EQ(
        test_shell(NULL,
                   "cd '%s' && rm -f whole/rollouts/step_0000[0-4]* part/rollouts/step_0000[0-4]*",
                   test_dir()),
        0);
    e2e_same_runs("whole", "part", 60);
    ares_str_fini(&first), ares_str_fini(&then), ares_str_fini(&out);
}

TEST(the_table_of_options_without_a_result_is_whole)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--help-config | tr -s '\\n #' ' '"), 0);
    int marked = 0;
    for (const char *at = out.data; (at = strstr(at, "may change when a run goes on)")); at++)
        marked++;
    /* three of them are a teacher's: test_distill.c */
    CHECK_EQ(ARES_COUNT(no_result) + 3, marked);
    ares_str_fini(&out);
}

TEST(a_run_that_counts_micro_batches_goes_on_with_other_cuts_of_memory_and_no_other_count)
{
    static const char micro[] =
        "worker.actor.loss_norm=micro worker.actor.micro_batch_size_per_device_for_update=4";
    ares_str out = { 0 };
    const char *words = e2e_train_words("part");
    CHECK_EQ(
        e2e_stop("part", "INT", 20, "--config '%s' trainer.max_steps=%d %s", words, STEPS, micro),
        130);
    int rc = e2e_program(&out,
                         "--config '%s' trainer.max_steps=%d worker.actor.loss_norm=micro "
                         "worker.actor.micro_batch_size_per_device_for_update=8",
                         words, STEPS);
    CHECK_EQ(rc, 1);
    CHECK_CONTAINS(out.data, "worker.actor.micro_batch_size_per_device_for_update");
    CHECK_EQ(e2e_program(
                 NULL,
                 "--config '%s' trainer.max_steps=%d %s worker.actor.max_token_len_per_device=60",
                 words, STEPS, micro),
             0);
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=%d %s", e2e_train_words("whole"),
                         STEPS, micro),
             0);
    e2e_same_runs("whole", "part", STEPS);
    ares_str_fini(&out);
}

TEST(a_run_that_trains_a_part_goes_on_with_the_same_part_bit_for_bit)
{
    static const char some[] =
        "algorithm.adv_estimator=gae 'worker.critic.model.trainable=[score]' "
        "worker.actor.model.trainable=",
                      part[] = "'[layers.1.mlp, q_proj, norm]'";
    ares_str out = { 0 };
    const char *words = e2e_train_words("part");
    CHECK_EQ(e2e_stop("part", "INT", 20, "--config '%s' trainer.max_steps=%d %s%s", words, STEPS,
                      some, part),
             130);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=%d %s'[layers.1.mlp, q_proj]'",
                         words, STEPS, some),
             1);
    CHECK_CONTAINS(out.data, "other options (worker.actor.model.trainable: ");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' trainer.max_steps=%d %s'[layers.1.mlp, q_proj]' "
                         "trainer.force=true",
                         words, STEPS, some),
             1);
    CHECK_CONTAINS(out.data, "has states of 'model.layers.0.input_layernorm.weight', which "
                             "model.trainable leaves out");
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=%d %s%s", words, STEPS, some, part),
             0);
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=%d %s%s", e2e_train_words("whole"),
                         STEPS, some, part),
             0);
    e2e_same_runs("whole", "part", STEPS);
    ares_str_fini(&out);
}

TEST(a_second_run_in_the_same_directory_is_refused_while_the_first_lives)
{
    ares_str out = { 0 };
    const char *words = e2e_train_words("run"), *dir = test_file("run");
    char message[500];
    int rc = test_shell(
        &out,
        "'%s' --config '%s' trainer.max_steps=100000 >/dev/null 2>&1 & pid=$!\n"
        "while kill -0 $pid 2>/dev/null && [ ! -e '%s/metrics.jsonl' ]; do sleep 0.01; done\n"
        "timeout 20 '%s' --config '%s' trainer.max_steps=100000; second=$?\n"
        "kill -INT $pid; wait $pid; echo \"first $?\"; exit $second",
        test_program(), words, dir, test_program(), words);
    CHECK_EQ(rc, 1);
    snprintf(message, sizeof message, "run: %s is in use by process ", dir);
    CHECK_CONTAINS(out.data, message);
    CHECK_CONTAINS(out.data, "; wait for it, or stop it, or set another trainer.experiment_name");
    /* the first run continued, and was stopped by its own signal */
    CHECK_CONTAINS(out.data, "first 130");
    ares_str_fini(&out);
}

/* In its own directory, or in another; a learning rate that follows the length is told. */
TEST(a_finished_run_is_lengthened_by_more_steps_or_trained_further_elsewhere)
{
    static const char *const shapes[] = { "constant", "cosine" };
    ares_str out = { 0 };
    for (int i = 0; i < 2; i++) {
        char words[400], more[1000], way[600];
        const char *run = i ? "cosine" : "constant", *further = i ? "cosine_on" : "constant_on";
        snprintf(words, sizeof words,
                 "worker.actor.optim.lr_scheduler_type=%s worker.actor.optim.lr_warmup_ratio=0.5",
                 shapes[i]);
        if (!i) snprintf(words, sizeof words, "worker.actor.optim.lr_warmup_ratio=0");
        CHECK_EQ(
            e2e_program(NULL, "--config '%s' trainer.max_steps=2 %s", e2e_train_words(run), words),
            0);
        ares_str_clear(&out);
        CHECK_EQ(
            e2e_program(&out, "--config '%s' trainer.max_steps=2 %s", e2e_train_words(run), words),
            1);
        snprintf(way, sizeof way, "trainer.load_checkpoint_path=%s ", test_file(run));
        CHECK_CONTAINS(out.data, way);
        CHECK_CONTAINS(out.data, "raise trainer.max_steps to train it further");
        snprintf(more, sizeof more, "trainer.load_checkpoint_path='%s'", test_file(run));
        const char *told =
            "train: the run has 6 steps, and had 2 when the checkpoint was saved: the "
            "learning rate of worker.actor (cosine, with its warm-up) goes on with "
            "0.000666667 instead of 0\n";
        for (int own = 0; own < 2; own++) {
            ares_str_clear(&out);
            CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=6 %s %s",
                                 e2e_train_words(own ? run : further), words, own ? "" : more),
                     0);
            CHECK_CONTAINS(out.data, "step 2 of 6");
            if (i) CHECK_CONTAINS(out.data, told);
            else CHECK(!strstr(out.data, "goes on with"));
        }
        if (i) continue;
        CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=6 %s", e2e_train_words("whole"),
                             words),
                 0);
        e2e_same_runs("whole", run, 6);
        CHECK_EQ(
            e2e_program(&out, "--config '%s' trainer.max_steps=4 %s", e2e_train_words(run), words),
            1);
    }
    ares_str_fini(&out);
}

TEST(a_run_under_way_is_lengthened_and_not_shortened)
{
    ares_str out = { 0 };
    const char *words = e2e_train_words("run");
    CHECK_EQ(e2e_stop("run", "INT", 2, "--config '%s' trainer.max_steps=100000", words), 130);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=99999", words), 1);
    CHECK_CONTAINS(out.data, "other options (trainer.max_steps: 100000, now 99999)");
    CHECK_EQ(e2e_stop("run", "INT", 80, "--config '%s' trainer.max_steps=100001", words), 130);
    ares_str_fini(&out);
}

/*
 * Inputs that turn out to be bad, in the order in which a start meets them: a key that rows lack, a
 * batch larger than the file, a reward that fails in the first step.
 */
TEST(a_start_that_made_no_step_does_not_hold_the_corrected_command_up)
{
    static const struct {
        const char *verb, *bad, *message, *good;
    } cases[] = {
        { "train", "data.prompt_key=nothing", "row has no key 'nothing'", "" },
        { "sft", "sft.batch_size=4096", "rows are fewer than sft.batch_size", "" },
        { "train", "'~worker.reward.rewards' 'worker.reward.rewards=[{command: [false]}]'",
          "none of the 16 answers could be judged",
          "'~worker.reward.rewards' 'worker.reward.rewards=[{command: [sh, -c, \"while read l; do "
          "echo 1; done\"]}]'" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        char run[16];
        snprintf(run, sizeof run, "run_%d", i);
        const char *words =
            strcmp(cases[i].verb, "sft") == 0 ? e2e_sft_words(run) : e2e_train_words(run);
        CHECK_EQ(e2e_program(&out, "%s --config '%s' trainer.max_steps=1 %s", cases[i].verb, words,
                             cases[i].bad) != 0,
                 true);
        CHECK_CONTAINS(out.data, cases[i].message);
        ares_str_clear(&out);
        int rc = e2e_program(&out, "%s --config '%s' trainer.max_steps=1 %s", cases[i].verb, words,
                             cases[i].good);
        CHECK_MSG(rc == 0, "%s", out.data ? out.data : "");
        CHECK(!strstr(out.data, "going on from"));
        ares_str_fini(&out);
    }
}

TEST(a_finished_run_and_a_changed_one_are_refused_with_the_remedy)
{
    ares_str out = { 0 };
    const char *words = e2e_train_words("run");
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=2", words), 0);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=2", words), 1);
    CHECK_CONTAINS(out.data, "is finished");
    CHECK_CONTAINS(out.data, "trainer.experiment_name");
    ares_str_clear(&out);
    CHECK_EQ(test_shell(NULL, "rm '%s'", test_file("run/DONE")), 0);
    CHECK_EQ(
        e2e_program(&out, "--config '%s' trainer.max_steps=2 worker.actor.optim.lr=2e-3", words),
        1);
    CHECK_CONTAINS(out.data, "worker.actor.optim.lr");
    ares_str_clear(&out);
    CHECK_EQ(
        e2e_program(&out, "--config '%s' trainer.max_steps=2 worker.actor.arithmetic=bf16", words),
        1);
    CHECK_CONTAINS(out.data, "worker.actor.arithmetic: \"fp32\", now \"bf16\"");
    ares_str_fini(&out);
    /* a run that began before there was this option */
    CHECK_EQ(test_shell(NULL, "sed -i '/ arithmetic: /d' '%s' && ! grep -q arithmetic '%s'",
                        test_file("run/config.yaml"), test_file("run/config.yaml")),
             0);
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=3", words), 0);
    CHECK(e2e_metric("run", 3, "actor/grad_norm") > 0);
}

/* What DONE says of a run, and of runs that do the same or something else. */
TEST(done_names_the_run_its_options_and_its_last_step)
{
    static const struct {
        const char *run, *words;
        bool same;
    } runs[] = {
        { "first", "", true },
        { "threads", "trainer.threads=1 worker.rollout.max_num_seqs=3", true },
        { "named", "trainer.project_name=p trainer.experiment_name=e", true },
        { "rate", "worker.actor.optim.lr=2e-3", false },
    };
    ares_arena arena = { 0 };
    ares_view first = { 0 };
    for (int i = 0; i < ARES_COUNT(runs); i++) {
        int64_t n;
        CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=2 trainer.logger=[file] %s",
                             e2e_train_words(runs[i].run), runs[i].words),
                 0);
        const ares_json **end = e2e_rows(&arena, runs[i].run, "DONE", &n);
        if (!CHECK_EQ(n, 1)) continue;
        ares_view hash = ares_json_get(end[0], "config")->text;
        CHECK_EQ(ares_json_get(end[0], "step")->integer, 2);
        CHECK_EQ(hash.len, 16);
        if (i == 0) first = hash;
        CHECK_EQ(ares_view_eq(hash, first), runs[i].same);
        if (i == 2) CHECK_VIEW(ares_json_get(end[0], "run")->text, "p/e");
    }
    ares_arena_fini(&arena);
}

/* A limit of 128 kB per file stands for a full disk: the weights take 165 kB. */
TEST(a_full_disk_during_a_checkpoint_leaves_the_old_one_usable)
{
    ares_str out = { 0 }, before = { 0 }, after = { 0 };
    const char *words = e2e_train_words("part");
    CHECK_EQ(e2e_stop("part", "INT", 20, "--config '%s' trainer.max_steps=%d", words, STEPS), 130);
    CHECK_EQ(test_shell(&before, "ls '%s'", test_file("part/checkpoints")), 0);
    int rc = test_shell(&out,
                        "trap '' XFSZ; ulimit -f 250; '%s' --config '%s' trainer.max_steps=%d "
                        "trainer.save_freq=1 2>&1",
                        test_program(), words, STEPS);
    CHECK_EQ(rc, 1);
    CHECK_CONTAINS(out.data, "model.safetensors");
    CHECK_EQ(test_shell(&after, "ls '%s'", test_file("part/checkpoints")), 0);
    CHECK_STR(after.data, before.data);
    /* the disk has space again */
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=%d", words, STEPS), 0);
    CHECK_EQ(
        e2e_program(NULL, "--config '%s' trainer.max_steps=%d", e2e_train_words("whole"), STEPS),
        0);
    e2e_same_runs("whole", "part", STEPS);
    ares_str_fini(&out);
    ares_str_fini(&before);
    ares_str_fini(&after);
}
