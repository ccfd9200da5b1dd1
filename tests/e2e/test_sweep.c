/*
 * ares-train sweep: what it runs is what the commands alone would run; it skips what is finished,
 * goes on with what was stopped, repairs what was half-written, and is not stopped by a run that
 * fails.
 */
#include "e2e.h"
#include "vision_runs.h"

#include <stdio.h>

/* A sweep in the folder `name` of this test; more words follow. */
static int sweep(ares_str *out, const char *name, const char *words)
{
    ares_str_clear(out);
    return e2e_program(out, "sweep --config '%s' --dir '%s' trainer.max_steps=3 %s",
                       e2e_train_words("unused"), test_file(name), words);
}

static bool read(const char *file, ares_str *out)
{
    return CHECK_OK(ares_file_read(test_file(file), out));
}

static int lines(const ares_str *text)
{
    int n = 0;
    for (size_t i = 0; i < text->len; i++) n += text->data[i] == '\n';
    return n;
}

TEST(a_sweep_runs_what_its_commands_alone_would_and_skips_what_is_finished)
{
    static const char *const words = "--over worker.actor.optim.lr=0,1e-2 --seeds 5,6 --jobs 2";
    ares_str out = { 0 }, before = { 0 }, after = { 0 };
    int rc = sweep(&out, "s", words);
    CHECK_MSG(rc == 0, "%s", out.data);
    CHECK_CONTAINS(out.data, "[1/4] starts: lr_0-seed_5\n[2/4] starts: lr_1e-2-seed_5\n");
    CHECK_CONTAINS(out.data, "4 runs: 4 finished, 0 failed, 0 to go");
    CHECK_CONTAINS(out.data, "figure3.svg");
    REQUIRE(read("s/results.log", &before));
    CHECK_EQ(lines(&before), 4);
    CHECK_CONTAINS(before.data, "worker.actor.optim.lr=1e-2 | seed=6 | train_time=");
    CHECK_CONTAINS(before.data, "| eval_time=N/As | total_time=");
    CHECK_CONTAINS(before.data, "| gpu=1xCPU | status=success\n");
    /* the second seed is another run, and a command of its own gives the same one */
    CHECK(e2e_metric("s/lr_1e-2-seed_5", 3, "reward/overall") !=
          e2e_metric("s/lr_1e-2-seed_6", 3, "reward/overall"));
    CHECK_EQ(e2e_program(NULL,
                         "--config '%s' trainer.max_steps=3 worker.actor.optim.lr=1e-2 data.seed=6 "
                         "worker.rollout.seed=6 env.train.seed=610000",
                         e2e_train_words("alone")),
             0);
    CHECK(e2e_same_runs("alone", "s/lr_1e-2-seed_6", 3));
    /* again: nothing runs, nothing changes; options of speed do not count */
    CHECK_EQ(sweep(&out, "s", "--over worker.actor.optim.lr=0,1e-2 --seeds 5,6 trainer.threads=1"),
             0);
    CHECK_CONTAINS(out.data, "[4/4] is finished: lr_1e-2-seed_6");
    CHECK(!strstr(out.data, "starts:") && !strstr(out.data, "repaired"));
    REQUIRE(read("s/results.log", &after));
    CHECK_STR(after.data, before.data);
    ares_str_fini(&out);
    ares_str_fini(&before);
    ares_str_fini(&after);
}

/* On a terminal, which the test makes of a program that records one. */
TEST(a_sweep_shows_the_steps_of_its_runs_and_the_time_that_is_left)
{
    ares_str out = { 0 };
    if (test_shell(NULL, "command -v script >/dev/null") != 0) SKIP("no script(1) here");
    ares_str text = { 0 };
    ares_str_addf(&text, "worker: {reward: {rewards: [{command: [sh, %s]}]}}\n",
                  e2e_write("slow.sh", "while read -r l; do sleep 0.05; echo ${#l}; done\n"));
    const char *config = e2e_write("slow.yaml", text.data);
    ares_str_fini(&text);
    CHECK_EQ(test_shell(&out,
                        "cd '%s' && script -qec \"stty cols 200; exec '%s' sweep --config '%s' "
                        "--config '%s' --dir '%s' trainer.max_steps=6 --seeds 1,2 --jobs 2\" "
                        "/dev/null </dev/null",
                        test_source("."), test_program(), e2e_train_words("unused"), config,
                        test_file("s")),
             0);
    CHECK_CONTAINS(out.data, "0 of 2 runs | seed_1 begins, seed_2 ");
    CHECK_CONTAINS(out.data, "/6, seed_2 ");
    CHECK_CONTAINS(out.data, "/6 | eta 0:00:0");
    CHECK_CONTAINS(out.data, "\r\033[K[");
    ares_str_fini(&out);
}

TEST(a_dry_run_prints_commands_and_makes_nothing)
{
    ares_str out = { 0 };
    CHECK_EQ(sweep(&out, "s", "--over worker.actor.optim.lr=0,1 --over data.seed=1,2 --dry-run"),
             0);
    CHECK_CONTAINS(out.data, "[2/4] lr_0-seed_2\n");
    CHECK_CONTAINS(out.data, " train --config ");
    CHECK_CONTAINS(out.data, "worker.actor.optim.lr=0 data.seed=2 "
                             "trainer.experiment_name=lr_0-seed_2 trainer.run_dir=");
    CHECK(!ares_dir_exists(test_file("s")));
    /* runs side by side share the CPUs, unless threads are named */
    CHECK_EQ(sweep(&out, "s", "--seeds 1,2 --jobs 2 --dry-run"), 0);
    CHECK_CONTAINS(out.data, " trainer.threads=");
    CHECK_EQ(sweep(&out, "s", "--seeds 1,2 --jobs 2 --dry-run trainer.threads=3"), 0);
    CHECK(strstr(out.data, " trainer.threads=3 ") && !strstr(out.data, "trainer.threads=1"));
    /* and so do the ranks of each */
    char share[40];
    snprintf(share, sizeof share, " trainer.threads=%d\n", ARES_MAX(1, ares_cpu_count() / 4));
    CHECK_EQ(sweep(&out, "s", "--seeds 1,2 --jobs 2 --ranks 2 --dry-run"), 0);
    CHECK_CONTAINS(out.data, share);
    /* cards: groups that follow one another */
    CHECK_EQ(sweep(&out, "s", "--seeds 1 --gpus 4,5,6,7 --ranks 2 --dry-run"), 0);
    CHECK_CONTAINS(out.data, "worker 1: CUDA_VISIBLE_DEVICES=4,5\n");
    CHECK_CONTAINS(out.data, "worker 2: CUDA_VISIBLE_DEVICES=6,7\n");
    CHECK_CONTAINS(out.data, " train --ranks 2 ");
    CHECK_EQ(sweep(&out, "s", "--seeds 1 --gpus 4,5,6 --ranks 2 --dry-run"), 2);
    CHECK_CONTAINS(out.data, "does not divide the 3 cards");
    ares_str_fini(&out);
}

TEST(a_run_sees_the_cards_of_its_worker)
{
    ares_str out = { 0 }, text = { 0 };
    ares_str_addf(&text,
                  "worker: {reward: {rewards: [{command: [sh, -c, 'echo $CUDA_VISIBLE_DEVICES >> "
                  "%s; while read l; do echo 1; done']}]}}\n",
                  test_file("cards"));
    const char *reward = e2e_write("reward.yaml", text.data);
    ares_str_clear(&text);
    ares_str_addf(&text, "--config '%s' --seeds 1,2 --gpus 7,5 trainer.max_steps=1", reward);
    CHECK_EQ(sweep(&out, "s", text.data), 0);
    CHECK(strstr(out.data, "| gpu=1x") && !strstr(out.data, "gpu=1xCPU"));
    CHECK_EQ(
        test_shell(NULL, "test \"$(sort -u '%s' | tr '\\n' ' ')\" = '5 7 '", test_file("cards")),
        0);
    ares_str_fini(&out);
    ares_str_fini(&text);
}

TEST(a_stopped_sweep_lets_its_runs_save_and_the_same_command_goes_on)
{
    static const char *const grid =
        "--over worker.actor.optim.lr=1e-4,1e-3,1e-2 --jobs 2 trainer.max_steps=60";
    ares_str out = { 0 };
    CHECK_OK(ares_dir_make(test_file("s")));
    int rc = e2e_stop("s/lr_1e-3", "INT", 3, "sweep --config '%s' --dir '%s' %s",
                      e2e_train_words("unused"), test_file("s"), grid);
    CHECK_EQ(rc, 130);
    REQUIRE(read("s/lr_1e-3.out", &out));
    CHECK_CONTAINS(out.data, "stopped by signal 2; the same command goes on");
    CHECK_CONTAINS(out.data, "stopped: lr_1e-3\n");
    CHECK(!strstr(out.data, "starts: lr_1e-2"));
    CHECK(!ares_file_exists(test_file("s/lr_1e-3/DONE")));
    CHECK(ares_file_exists(test_file("s/lr_1e-3/checkpoints/latest")) ||
          test_shell(NULL, "ls '%s'/checkpoints/rolling_*", test_file("s/lr_1e-3")) == 0);
    /* the time that its first attempt took, as if it had been long */
    CHECK_EQ(test_shell(NULL, "sed -i 's/\"wall_s\": [0-9.e-]*/\"wall_s\": 5000/' '%s'",
                        test_file("s/sweep.json")),
             0);
    rc = sweep(&out, "s", grid);
    CHECK_MSG(rc == 0, "%s", out.data);
    CHECK_CONTAINS(out.data, "goes on: lr_1e-3\n");
    CHECK_CONTAINS(out.data, "starts: lr_1e-2\n");
    CHECK_CONTAINS(out.data, "3 finished, 0 failed, 0 to go");
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=60 worker.actor.optim.lr=1e-3",
                         e2e_train_words("alone")),
             0);
    CHECK(e2e_same_runs("alone", "s/lr_1e-3", 60));
    REQUIRE(read("s/results.log", &out));
    CHECK_EQ(lines(&out), 3);
    CHECK_EQ(test_shell(NULL, "test $(grep -c 'wall_time=50[0-9][0-9]s' '%s') -eq 3",
                        test_file("s/results.log")),
             0);
    ares_str_fini(&out);
}

/* What a check cannot know: weights that are missing, and a file that cannot be written. */
TEST(a_run_that_fails_does_not_stop_the_others_and_is_tried_again)
{
    ares_str out = { 0 };
    char words[700];
    REQUIRE(test_shell(NULL, "cp -r '%s' '%s' && mv '%s/model.safetensors' '%s'", e2e_model(),
                       test_file("later"), test_file("later"), test_file("weights")) == 0);
    snprintf(words, sizeof words, "--over 'worker.actor.model.model_path=%s,%s'",
             test_file("later"), e2e_model());
    CHECK_EQ(sweep(&out, "s", words), 1);
    CHECK_CONTAINS(out.data, "sweep: 1 of 2 runs failed; the same command tries them again:");
    CHECK_CONTAINS(out.data, "later");
    CHECK_CONTAINS(out.data, "2 runs: 1 finished, 1 failed, 0 to go");
    REQUIRE(read("s/results.log", &out));
    CHECK_CONTAINS(out.data, "train_time=N/As");
    CHECK_CONTAINS(out.data, "status=fail\n  error: ");
    CHECK_CONTAINS(out.data, "status=success\n");
    CHECK_EQ(test_shell(NULL, "mv '%s' '%s/model.safetensors'", test_file("weights"),
                        test_file("later")),
             0);
    CHECK_EQ(sweep(&out, "s", words), 0);
    CHECK_CONTAINS(out.data, "2 runs: 2 finished, 0 failed, 0 to go");
    ares_str_fini(&out);
}

TEST(the_reason_of_a_failure_is_what_the_last_attempt_said_last)
{
    static const char *const words =
        "--over worker.actor.optim.lr=1e-3 trainer.max_steps=200 trainer.save_freq=1";
    ares_str out = { 0 };
    const char *run = test_file("s/lr_1e-3");
    CHECK_OK(ares_dir_make(test_file("s")));
    CHECK_EQ(e2e_stop("s/lr_1e-3", "INT", 2, "sweep --config '%s' --dir '%s' %s",
                      e2e_train_words("unused"), test_file("s"), words),
             130);
    CHECK_EQ(test_shell(NULL, "rm '%s/metrics.jsonl' && mkdir '%s/metrics.jsonl'", run, run), 0);
    for (int attempt = 0; attempt < 2; attempt++) {
        CHECK_EQ(sweep(&out, "s", words), 1);
        CHECK_CONTAINS(out.data, "the same command tries them again:\n  lr_1e-3: ");
        const char *why = strstr(out.data, "\n  lr_1e-3: ");
        CHECK_MSG(why && strstr(why, "metrics.jsonl") && !strstr(why, "going on"), "%s", out.data);
    }
    ares_str_fini(&out);
}

TEST(what_a_run_opens_is_opened_before_the_first_one_starts)
{
    static const struct {
        const char *words, *says;
    } cases[] = {
        { "--over data.train_files=missing.jsonl", "run train_files_missingjsonl: " },
        { "--over worker.actor.model.model_path=missing", "missing: no such directory" },
        { "--over worker.rollout.temperature=1,0.5 algorithm.early_stop_rv_window=2 "
          "algorithm.early_stop_low_success=0.1 trainer.val_freq=-1",
          "no validation is made during training" },
        { "--over data.seed=1 env.train.tags=Bandit env.train.groups=4 "
          "env.train.group_size=4 env.token_exact=true data.train_files=[] "
          "worker.reward.rewards=null worker.rollout.max_model_len=900 "
          "worker.rollout.cache_tokens=600 data.max_prompt_length=200",
          "one conversation of" },
    };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        int rc = sweep(&out, "s", cases[i].words);
        CHECK_MSG(rc == 1 || rc == 2, "%s: exit status %d: %s", cases[i].words, rc, out.data);
        CHECK_CONTAINS(out.data, cases[i].says);
        CHECK(!strstr(out.data, "starts:") && !ares_dir_exists(test_file("s")));
    }
    ares_str_fini(&out);
}

/* The first value is opened whole before the second is found wrong. */
TEST(runs_with_pictures_critics_references_and_ranks_can_be_opened_without_weights)
{
    static const struct {
        bool sees;
        const char *words;
    } cases[] = {
        { true, "worker.actor.model.freeze_vision_tower=false algorithm.disable_kl=false" },
        { false,
          "algorithm.adv_estimator=gae algorithm.disable_kl=false worker.critic.optim.lr=1" },
        { false, "--ranks 2" },
    };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str_clear(&out);
        int rc =
            e2e_program(&out, "sweep --config '%s' --dir '%s' --over trainer.max_steps=3,-1 %s",
                        cases[i].sees ? vision_words("v") : e2e_train_words("w"), test_file("s"),
                        cases[i].words);
        CHECK_EQ(rc, 2);
        CHECK_CONTAINS(out.data, "run max_steps_-1: config: command line: trainer.max_steps = -1");
    }
    ares_str_fini(&out);
}

TEST(a_second_command_with_other_values_keeps_the_runs_of_the_first)
{
    ares_str out = { 0 };
    CHECK_EQ(sweep(&out, "s", "--over worker.actor.optim.lr=1e-4,1e-3"), 0);
    CHECK_EQ(sweep(&out, "s", "--over worker.actor.optim.lr=1e-2"), 0);
    CHECK_CONTAINS(out.data, "1 runs: 1 finished");
    REQUIRE(read("s/figure3.svg", &out));
    CHECK(strstr(out.data, ">1e-4<") && strstr(out.data, ">1e-3<") && strstr(out.data, ">1e-2<"));
    ares_str_fini(&out);
}

TEST(half_written_results_are_repaired)
{
    static const char *const words = "--over worker.actor.optim.lr=0,1e-3";
    ares_str out = { 0 }, whole = { 0 }, one = { 0 };
    REQUIRE(sweep(&out, "s", words) == 0);
    REQUIRE(read("s/results.log", &whole) && read("s/logs/lr_0.result", &one));
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && printf '%%s' \"$(cut -c1-30 logs/lr_0.result)\" > t && mv t "
                        "logs/lr_0.result && rm logs/lr_1e-3.result && head -c -25 results.log > t "
                        "&& mv t results.log",
                        test_file("s")),
             0);
    CHECK_EQ(sweep(&out, "s", words), 0);
    CHECK_CONTAINS(out.data, "repaired:");
    REQUIRE(read("s/results.log", &out));
    CHECK_STR(out.data, whole.data);
    REQUIRE(read("s/logs/lr_0.result", &out));
    CHECK_STR(out.data, one.data);
    CHECK(ares_file_exists(test_file("s/logs/lr_1e-3.result")));
    /* a list of runs that cannot be read is said, and made again */
    CHECK_EQ(test_shell(NULL, "head -c 100 '%s/sweep.json' > '%s/t' && mv '%s/t' '%s/sweep.json'",
                        test_file("s"), test_file("s"), test_file("s"), test_file("s")),
             0);
    CHECK_EQ(sweep(&out, "s", words), 0);
    CHECK_CONTAINS(out.data, "sweep.json cannot be read");
    CHECK_EQ(sweep(&out, "s", words), 0);
    CHECK(!strstr(out.data, "cannot be read"));
    ares_str_fini(&out);
    ares_str_fini(&whole);
    ares_str_fini(&one);
}

TEST(a_changed_configuration_is_refused_before_anything_runs_unless_forced)
{
    static const char *const words = "--over worker.actor.optim.lr=0,1e-3";
    ares_str out = { 0 };
    char other[200];
    REQUIRE(sweep(&out, "s", words) == 0);
    snprintf(other, sizeof other, "%s worker.rollout.n=2", words);
    CHECK_EQ(sweep(&out, "s", other), 1);
    CHECK_CONTAINS(out.data, "sweep: these hold runs with other options:");
    CHECK_CONTAINS(out.data, "s/lr_0 (worker.rollout.n: 4, now 2)");
    CHECK_CONTAINS(out.data, "or pass --force");
    CHECK(!strstr(out.data, "starts:"));
    snprintf(other, sizeof other, "%s worker.rollout.n=2 --force", words);
    CHECK_EQ(sweep(&out, "s", other), 0);
    CHECK_CONTAINS(out.data, "starts: lr_0\n");
    CHECK(ares_file_exists(test_file("s/lr_0.before_1/DONE")));
    /* a wrong configuration stops the sweep before its first run, too */
    CHECK_EQ(sweep(&out, "t", "--over worker.rollout.n=4,-1"), 2);
    CHECK_CONTAINS(out.data, "run n_-1: config: command line: worker.rollout.n");
    CHECK(!strstr(out.data, "starts:") && !ares_dir_exists(test_file("t")));
    CHECK_EQ(sweep(&out, "t", "--over worker.rollout.n=4 --jbos 2"), 2);
    CHECK_CONTAINS(out.data, "did you mean '--jobs'");
    ares_str_fini(&out);
}

TEST(a_second_sweep_in_a_folder_in_use_is_told_of_the_sweep_and_not_of_its_runs)
{
    ares_str out = { 0 };
    int rc = test_shell(
        &out,
        "cd '%s'; words=\"sweep --config %s --dir %s --over worker.actor.optim.lr=1e-3\"\n"
        "'%s' $words trainer.max_steps=100000 >/dev/null 2>&1 & pid=$!\n"
        "while kill -0 $pid 2>/dev/null && [ ! -e '%s/lr_1e-3/metrics.jsonl' ]; do sleep 0.01; "
        "done\n"
        "timeout 20 '%s' $words trainer.max_steps=100000; second=$?\n"
        "kill -INT $pid; wait $pid; exit $second",
        test_source("."), e2e_train_words("unused"), test_file("s"), test_program(), test_file("s"),
        test_program());
    CHECK_EQ(rc, 1);
    CHECK(strncmp(out.data, "sweep: ", 7) == 0);
    CHECK_CONTAINS(out.data, "/s is in use by process ");
    CHECK_CONTAINS(out.data, "or give this sweep another --name or --dir");
    ares_str_fini(&out);
}

TEST(a_sweep_gives_runs_their_cards_and_refuses_one_that_they_name)
{
    ares_str out = { 0 };
    CHECK_EQ(sweep(&out, "s", "--over worker.actor.optim.lr=1e-3 trainer.device=cuda:1"), 2);
    CHECK_CONTAINS(out.data, "run lr_1e-3: trainer.device = 'cuda:1': a sweep gives each run");
    CHECK_CONTAINS(out.data, "set trainer.device=cuda, and name the cards with --gpus 1");
    ares_str_fini(&out);
}

/* A killed sweep leaves its children; the next one does not train beside them. */
TEST(a_run_that_a_living_process_trains_is_left_alone)
{
    ares_str out = { 0 };
    CHECK_OK(ares_dir_make(test_file("s")));
    CHECK_EQ(e2e_stop("s/lr_1e-3", "KILL", 2,
                      "sweep --config '%s' --dir '%s' --over worker.actor.optim.lr=1e-3 "
                      "trainer.max_steps=100000",
                      e2e_train_words("unused"), test_file("s")),
             137);
    CHECK_EQ(sweep(&out, "s", "--over worker.actor.optim.lr=1e-3 trainer.max_steps=100000"), 1);
    CHECK_CONTAINS(out.data, "lr_1e-3 is in use by process ");
    CHECK(!strstr(out.data, "starts:"));
    CHECK_EQ(test_shell(NULL, "kill -KILL $(sed 's/process \\([0-9]*\\) .*/\\1/' '%s/lock')",
                        test_file("s/lr_1e-3")),
             0);
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- the published scripts */
/*
 * What a script would run. Its preset and the options of environments may be missing in this
 * build; the names are printed all the same.
 */
static void script(ares_str *out, const char *words)
{
    ares_str_clear(out);
    int rc = test_shell(out, "cd '%s' && ARES_TRAIN='%s' scripts/runs/%s --dry-run 2>&1",
                        test_source("."), test_program(), words);
    bool whole = ares_file_exists(test_source("configs/presets/_2_sokoban.yaml"));
    CHECK_MSG(rc == 0 || (rc == 2 && !whole), "%s: exit status %d: %s", words, rc, out->data);
}

TEST(the_scripts_of_the_study_have_its_flags_names_and_paths)
{
    ares_str out = { 0 };
    script(&out, "run_entropy_sweep.sh --gpus 0,1 --steps=7 --save-freq 5");
    CHECK_CONTAINS(out.data, "entropy_sweep_Qwen2.5-3B: 6 runs, 2 at a time");
    CHECK_CONTAINS(out.data, "[2/6] sokoban_entropy_sweep_nofilter_0001-Qwen2.5-3B\n  log: "
                             "logs/entropy_sweep_Qwen2.5-3B/nofilter/0001/"
                             "sokoban_entropy_sweep_nofilter_0001-Qwen2.5-3B.log\n  run directory: "
                             "model_saving/entropy_sweep_Qwen2.5-3B/0001/"
                             "sokoban_entropy_sweep_nofilter_0001-Qwen2.5-3B\n");
    CHECK_CONTAINS(out.data, " trainer.max_steps=7 trainer.save_freq=5 ");
    CHECK_CONTAINS(out.data, " worker.actor.entropy_coeff=0.001 ");
    CHECK_CONTAINS(out.data, "results: logs/entropy_sweep_Qwen2.5-3B.log\n");
    script(&out, "run_entropy_sweep.sh --entropy-values 0.5 --rollout_filter_include_zero no "
                 "--gpus 0");
    CHECK_CONTAINS(out.data, "1 runs");
    CHECK_CONTAINS(out.data, "sokoban_entropy_sweep_filter_zero_05-Qwen2.5-3B");
    CHECK_CONTAINS(out.data, "rollout_filter_include_zero=False");
    script(&out, "run_kl_sweep.sh --kl-values 0.0,0.03 --gpus 0 --seeds 1,2 --model models/Mine");
    CHECK_CONTAINS(out.data, "[4/4] sokoban_kl_sweep_nofilter_003-Mine-seed_2\n");
    CHECK_CONTAINS(out.data, "algorithm.use_kl_loss=False");
    CHECK_CONTAINS(out.data, "algorithm.use_kl_loss=True");
    script(&out, "run_top_p_sweep.sh --gpus 0,1,2,3 --gpus-per-exp 2");
    CHECK_CONTAINS(out.data, "8 runs, 2 at a time");
    CHECK_CONTAINS(out.data, "[8/8] sokoban_top_p_nofilter-Qwen2.5-3B\n");
    CHECK_CONTAINS(out.data, "rollout_filter_value=0.98 ");
    script(&out, "run_frozen_lake_rand_top_p_sweep.sh --rand low --top-p 0.9,1.0 --gpus 0");
    CHECK_CONTAINS(out.data, "[1/2] frozenlake_top_p_0p9-sr0p98-Qwen2.5-3B-Instruct\n  log: "
                             "logs/frozenlake_low_rand_top_p_sweep_Qwen2.5-3B-Instruct/0p9/");
    CHECK_CONTAINS(out.data, "trainer.project_name=ragen_frozenlake_low_rand_top_p_sweep");
    /* a trial has names of its own, and runs the names of their model */
    script(&out, "run_kl_sweep.sh --kl-values 0.03 --gpus 0 --name trial --model models/Mine");
    CHECK_CONTAINS(out.data, "[1/1] sokoban_kl_sweep_nofilter_003-Mine\n  log: logs/trial/");
    CHECK_CONTAINS(out.data, "  run directory: model_saving/trial/");
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out,
                        "cd '%s' && scripts/runs/run_kl_sweep.sh "
                        "worker.actor.model.model_path=models/Mine --dry-run",
                        test_source(".")),
             2);
    CHECK_CONTAINS(out.data, "runs are named after their model; say --model models/Mine");
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out,
                        "cd '%s' && scripts/runs/run_frozen_lake_rand_top_p_sweep.sh --top-p 1",
                        test_source(".")),
             2);
    CHECK_CONTAINS(out.data, "--rand is required (high or low)");
    ares_str_clear(&out);
    CHECK_EQ(
        test_shell(&out, "cd '%s' && scripts/runs/run_kl_sweep.sh --kl-value 1", test_source(".")),
        2);
    CHECK_CONTAINS(out.data, "'--kl-value': no such option");
    ares_str_fini(&out);
}
