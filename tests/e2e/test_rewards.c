/* A run whose rows name their verifiers: what its metrics say, on one rank and on two. */
#include "e2e.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char rows[] = "{\"prompt\":\"1\",\"answer\":\"1\",\"rm_type\":\"number\"}\n"
                           "{\"prompt\":\"2\",\"answer\":\"2\",\"rm_type\":\"number\"}\n"
                           "{\"prompt\":\"3\",\"rm_type\":\"ifbench\",\"instruction_id_list\":["
                           "\"punctuation:no_comma\"],\"kwargs\":[{}]}\n"
                           "{\"prompt\":\"4\",\"answer\":\"4\",\"rm_type\":\"random\"}\n";
#define WORDS                                                                                  \
    "data.shuffle=false trainer.max_steps=2 trainer.threads=1 'worker.reward.rewards=[{name: " \
    "auto, failure_score: -1}, {name: length, weight: 0.1, safe_length: 4, max_length: 12}]' " \
    "worker.reward.on_failure=score"

static void check_run(const char *run, const char *ranks)
{
    ares_str out = { 0 };
    CHECK_MSG(e2e_program(&out, "%s --config '%s' 'data.train_files=[%s]' " WORDS, ranks,
                          e2e_train_words(run), e2e_write("rows.jsonl", rows)) == 0,
              "%s", out.data ? out.data : "");
    CHECK_NEAR(e2e_metric(run, 1, "reward/failed/auto"), 0, 0);
    CHECK_NEAR(e2e_metric(run, 1, "reward/exhausted"), 0, 0);
    CHECK_NEAR(e2e_metric(run, 1, "reward/ifbench/mean"), e2e_metric(run, 1, "if/punctuation/rate"),
               0);
    CHECK(e2e_metric(run, 1, "reward/number/accuracy") >= 0 &&
          e2e_metric(run, 1, "reward/random/mean") >= 0 &&
          e2e_metric(run, 1, "reward/length/mean") < 0);
    CHECK(isnan(e2e_metric(run, 1, "reward/random/accuracy")));
    ares_str_fini(&out);
}

/* Before a run begins, and where --check opens its rows. */
TEST(a_row_that_cannot_be_judged_is_named)
{
    static const struct {
        const char *row, *words, *message;
    } cases[] = {
        { "{\"prompt\":\"2\",\"answer\":\"none\"}", "'worker.reward.rewards=[{name: number}]'",
          "rows.jsonl:2: number: ground truth 'none' holds no number; mend the row, or leave it "
          "out" },
        { "{\"prompt\":\"2\",\"answer\":\"2\"}",
          "'worker.reward.rewards=[{name: auto, rm_type: ifeval}]'",
          "rows.jsonl:2: the row names no instruction: neither 'instruction_id_list' nor" },
        { "{\"prompt\":\"2\",\"answer\":[\"2\"]}", "'worker.reward.rewards=[{name: gsm8k}]'",
          "rows.jsonl:2: gsm8k: the ground truth [\"2\"] is a list or an object" },
        { "{\"prompt\":\"2\",\"answer\":\"2\",\"rm_type\":\"random\"}",
          "'worker.reward.rewards=[{name: auto, rm_type: number}]' "
          "algorithm.online_filtering=true algorithm.filter_key=accuracy",
          "rows.jsonl:2: nothing says of its answers whether they are right, and a filter" },
    };
    static const char good[] = "{\"prompt\":\"1\",\"answer\":\"1\",\"instruction_id_list\":["
                               "\"punctuation:no_comma\"],\"kwargs\":[{}]}\n";
    for (int i = 0; i < 2 * ARES_COUNT(cases); i++) {
        ares_str out = { 0 }, text = { 0 };
        ares_str_addf(&text, "%s%s\n", good, cases[i / 2].row);
        CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("run")), 0);
        int rc = e2e_program(&out, "%s --config '%s' 'data.train_files=[%s]' %s",
                             i % 2 ? "--check" : "", e2e_train_words("run"),
                             e2e_write("rows.jsonl", text.data), cases[i / 2].words);
        CHECK_MSG(rc == 1, "%s: exit code %d\n%s", cases[i / 2].row, rc, out.data);
        CHECK_CONTAINS(out.data, cases[i / 2].message);
        ares_str_fini(&out);
        ares_str_fini(&text);
    }
}

TEST_MPI(two_ranks_report_the_rewards_that_one_does)
{
    static const char *const same[] = { "reward/number/mean",       "reward/number/accuracy",
                                        "reward/ifbench/mean",      "reward/random/mean",
                                        "reward/length/mean",       "reward/length_penalty",
                                        "reward/extract_fail_rate", "if/punctuation/rate" };
    E2E_NEEDS_MPI();
    check_run("alone", "");
    check_run("two", "--ranks 2");
    for (int i = 0; i < ARES_COUNT(same); i++)
        CHECK_NEAR(e2e_metric("two", 1, same[i]), e2e_metric("alone", 1, same[i]), 1e-9);
}

/* A grader of -1 and 1 that crashes on answers with a digit; no answer is right. */
TEST(an_answer_that_could_not_be_judged_has_no_part_in_its_group)
{
    static const char *const runs[] = { "discards", "scores" };
    const char *grader =
        e2e_write("crash.sh", "while read l; do case $l in '{\"response\":'*[0-9]*"
                              "'\"ground_truth\"'*) exit 1;; esac; echo -1; done\n");
    for (int k = 0; k < 2; k++) {
        ares_arena arena = { 0 };
        ares_str out = { 0 };
        int64_t n, failed = 0;
        CHECK_MSG(e2e_program(&out,
                              "--config '%s' '~worker.reward.rewards' 'worker.reward.rewards=[{"
                              "command: [sh, %s]}]' trainer.max_steps=1%s",
                              e2e_train_words(runs[k]), grader,
                              k ? " worker.reward.on_failure=score" : "") == 0,
                  "%s", out.data ? out.data : "");
        CHECK_CONTAINS(out.data, k ? "crash: ended with exit code 1; scored 0"
                                   : "crash: ended with exit code 1; discarded");
        const ares_json **rows = e2e_rows(&arena, runs[k], "rollouts/step_000001.jsonl", &n);
        CHECK_EQ(n, 16);
        for (int64_t r = 0; r < n; r++) {
            bool fails = ares_json_get(rows[r], "failed") != NULL;
            failed += fails;
            CHECK_EQ(ares_json_get(rows[r], "details") != NULL, fails);
            if (k) continue;
            CHECK_EQ(isnan(e2e_number(rows[r], "score")), fails);
            CHECK_NEAR(e2e_number(rows[r], "advantage"), 0, 0); /* -1 is compared with -1 */
        }
        CHECK(failed > 0 && failed < 16);
        CHECK_NEAR(e2e_metric(runs[k], 1, "reward/failed/crash"), (double)failed, 0);
        CHECK_NEAR(e2e_metric(runs[k], 1, "rollout/failed_frac"), (double)failed / 16, 1e-12);
        CHECK_NEAR(e2e_metric(runs[k], 1, "critic/score/max"), k ? 0 : -1, 0);
        CHECK_EQ(test_shell(NULL, "grep -q 'warning: reward: crash: ended' '%s/log.txt'",
                            test_file(runs[k])),
                 0);
        ares_str_fini(&out);
        ares_arena_fini(&arena);
    }
    CHECK(e2e_metric("scores", 1, "critic/advantages/max") > 0.1);
}

/* Answers that could not be judged, and such as are beyond the limit, leave the same steps. */
TEST(a_run_resumes_after_steps_with_discarded_answers)
{
    char words[700];
    const char *grader = e2e_write("crash.sh", "while read l; do case $l in '{\"response\":'*3*"
                                               "'\"ground_truth\"'*) exit 1;; *) echo ${#l};; "
                                               "esac; done\n");
    static const char *const runs[] = { "whole", "again", "again" };
    for (int k = 0; k < 3; k++) {
        ares_str out = { 0 };
        snprintf(words, sizeof words,
                 "--config '%s' '~worker.reward.rewards' 'worker.reward.rewards=[{command: [sh, "
                 "%s]}]' trainer.max_steps=3 trainer.save_freq=1 worker.reward.max_failed_frac=1 "
                 "algorithm.mask_truncated=true",
                 e2e_train_words(runs[k]), grader);
        if (k == 2) CHECK(e2e_go_back("again", "kept", 2));
        CHECK_MSG(e2e_program(&out, "%s", words) == 0, "%s", out.data ? out.data : "");
        ares_str_fini(&out);
    }
    for (int step = 1; step <= 3; step++) {
        double failed = e2e_metric("whole", step, "rollout/failed_frac");
        CHECK(failed > 0 && failed < 1);
        CHECK(e2e_metric("whole", step, "dapo/discarded_frac") > 0);
    }
    CHECK(e2e_same_runs("whole", "again", 3));
}

/* The reward that README.md prints, and what it says of right and wrong. */
TEST(the_reward_of_the_readme_gives_an_accuracy)
{
    ares_str readme = { 0 }, out = { 0 };
    ares_arena arena = { 0 };
    int64_t n;
    REQUIRE_OK(ares_file_read(test_source("README.md"), &readme));
    char *begin = strstr(readme.data, "cat > my_reward.py <<'END'\n"), *end = NULL;
    REQUIRE(begin && (end = strstr(begin, "\nEND\n")));
    end[1] = 0;
    const char *program = e2e_write("my_reward.py", strchr(begin, '\n') + 1);
    CHECK_MSG(
        e2e_program(&out,
                    "--config '%s' '~worker.reward.rewards' 'worker.reward.rewards=[{command: "
                    "[python3, %s]}]' trainer.max_steps=1 trainer.val_freq=1 "
                    "data.val_files=examples/data/sums/val.jsonl",
                    e2e_train_words("run"), program) == 0,
        "%s", out.data);
    CHECK(e2e_metric("run", 1, "reward/accuracy") >= 0);
    CHECK(e2e_metric("run", 1, "reward/my_reward/accuracy") >= 0);
    CHECK(e2e_metric("run", 1, "val/accuracy") >= 0 &&
          e2e_metric("run", 1, "val/failed_frac") == 0);
    const ares_json **rows = e2e_rows(&arena, "run", "rollouts/step_000001.jsonl", &n);
    REQUIRE(n > 0);
    CHECK(e2e_number(rows[0], "accuracy") >= 0 && ares_json_get(rows[0], "details"));
    rows = e2e_rows(&arena, "run", "validation/step_000001.jsonl", &n);
    CHECK(ares_json_get(ares_json_get(rows[0], "rewards"), "my_reward"));
    ares_str_fini(&readme);
    ares_str_fini(&out);
    ares_arena_fini(&arena);
}

TEST(a_first_validation_that_judges_nothing_ends_the_run_saved_and_a_later_one_warns)
{
    ares_str out = { 0 };
    /* judges as many validations as its argument says */
    const char *program = e2e_write(
        "val.py", "import json, os, sys\n"
                  "for line in sys.stdin:\n"
                  "    row = json.loads(line)['row']\n"
                  "    judged = 'val' not in row\n"
                  "    if not judged and sys.argv[1] == '1' and not os.path.exists(sys.argv[0] + "
                  "'.was'):\n"
                  "        judged = True\n"
                  "        open(sys.argv[0] + '.was', 'w')\n"
                  "    print(json.dumps(1 if judged else {'error': 'no'}), flush=True)\n");
    const char *rows =
        e2e_write("val.jsonl", "{\"prompt\":\"1+1\",\"answer\":\"2\",\"val\":true}\n");
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' '~worker.reward.rewards' 'worker.reward.rewards=[{command: "
                         "[python3, %s, 0]}]' trainer.max_steps=2 trainer.val_before_train=false "
                         "trainer.val_freq=1 trainer.save_freq=-1 'data.val_files=%s'",
                         e2e_train_words("run"), program, rows),
             1);
    CHECK_CONTAINS(out.data, "validation: step 1: nothing could be judged");
    CHECK_EQ(test_shell(NULL, "test -d '%s'/checkpoints/rolling_000001", test_file("run")), 0);
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' '~worker.reward.rewards' 'worker.reward.rewards=[{command: "
                         "[python3, %s, 1]}]' trainer.max_steps=2 trainer.val_freq=1 "
                         "trainer.save_freq=-1 'data.val_files=%s'",
                         e2e_train_words("later"), program, rows),
             0);
    CHECK_CONTAINS(out.data, "validation: nothing could be judged; there is no score");
    CHECK(!isnan(e2e_metric("later", 0, "val/reward_score")) &&
          isnan(e2e_metric("later", 1, "val/reward_score")) &&
          e2e_metric("later", 2, "val/failed_frac") == 1);
    ares_str_fini(&out);
}

static int64_t characters(ares_view text)
{
    int64_t n = 0;
    for (size_t i = 0; i < text.len; i++) n += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return n;
}

/* One function of each form, which gives every answer its length, as each trainer names it. */
TEST(words_of_three_trainers_run_a_python_function)
{
    static const struct {
        const char *source, *words;
        double length; /* times the mean length of the responses */
    } cases[] = {
        { "def compute_score(data_source, solution_str, ground_truth, extra_info, by=1):\n"
          "    return by * len(solution_str)\n"
          "def other(data_source, solution_str, ground_truth, extra_info, by=1):\n"
          "    return 2 * by * len(solution_str)\n",
          "custom_reward_function.path=%s custom_reward_function.name=other "
          "custom_reward_function.reward_kwargs.by=3",
          6 },
        { "def main(reward_inputs, by=1):\n"
          "    return [{'overall': by * len(x['response'])} for x in reward_inputs]\n",
          "worker.reward.reward_function=%s:main worker.reward.reward_function_kwargs.by=4", 4 },
        { "def own(prompts, completions, **kwargs):\n"
          "    return [float(len(c)) for c in completions]\n",
          "'reward_funcs=[%s:own, think_format_reward]' 'reward_weights=[5, 1]'", 5 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        ares_arena arena = { 0 };
        char name[40], words[600];
        int64_t n;
        snprintf(name, sizeof name, "f%d.py", i);
        snprintf(words, sizeof words, cases[i].words, e2e_write(name, cases[i].source));
        CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("run")), 0);
        CHECK_MSG(e2e_program(&out,
                              "--config '%s' '~worker.reward.rewards' %s trainer.max_steps=1 "
                              "worker.reward.python=python3",
                              e2e_train_words("run"), words) == 0,
                  "%s", out.data);
        const ares_json **rows = e2e_rows(&arena, "run", "rollouts/step_000001.jsonl", &n);
        CHECK_EQ(n, 16);
        for (int64_t r = 0; r < n; r++)
            CHECK_NEAR(e2e_number(rows[r], "score"),
                       cases[i].length *
                           (double)characters(ares_json_get(rows[r], "response")->text),
                       1e-6);
        ares_str_clear(&out);
        CHECK_EQ(e2e_program(&out,
                             "--config '%s' '~worker.reward.rewards' %s trainer.max_steps=1 "
                             "worker.reward.python=/no/such/python",
                             e2e_train_words("other"), words),
                 1);
        CHECK_CONTAINS(out.data, "cannot be started: /no/such/python: No such file");
        CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("other")), 0);
        ares_str_fini(&out);
        ares_arena_fini(&arena);
    }
}

/* Its accuracy_reward reads `solution`, a function of one's own what it likes. */
TEST(rows_of_trl_need_what_their_functions_read)
{
    const char *own = e2e_write("own.py", "def own(completions, topic, **kwargs):\n"
                                          "    return [float(t == 'b') for t in topic]\n");
    const char *rows = e2e_write("rows.jsonl", "{\"prompt\":\"1\",\"solution\":\"$1$\"}\n"
                                               "{\"prompt\":\"2\",\"topic\":\"b\"}\n");
    const struct {
        const char *rows, *functions, *said; /* NULL: it trains */
    } cases[] = {
        { "@[0:1]", "accuracy_reward", NULL },
        { "@[0:1]", "[accuracy_reward,think_format_reward]", NULL },
        { "@[1:2]", "[accuracy_reward,think_format_reward]", "row has no key 'solution'" },
        { "@[0:1]", "accuracy_reward data.answer_key=topic", "row has no key 'topic'" },
        { "@[1:2]", "think_format_reward", NULL },
        { "@[1:2]", NULL, NULL },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        char functions[300];
        snprintf(functions, sizeof functions, "%s:own", own);
        int rc =
            e2e_program(&out,
                        "--force --config '%s' '~worker.reward.rewards' data.train_files='%s%s' "
                        "data.rollout_batch_size=1 worker.actor.global_batch_size=1 "
                        "trainer.max_steps=1 reward_funcs=%s",
                        e2e_train_words("run"), rows, cases[i].rows,
                        cases[i].functions ? cases[i].functions : functions);
        CHECK_MSG(rc == (cases[i].said != NULL), "%d: %s", i, out.data ? out.data : "");
        if (cases[i].said) CHECK_CONTAINS(out.data, cases[i].said);
        else if (!cases[i].functions) CHECK_EQ(e2e_metric("run", 1, "reward/overall"), 1);
        CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("run")), 0);
        ares_str_fini(&out);
    }
}

/* A program that is not there, and one that does not know the row, before any run. */
TEST(check_starts_each_program_once_and_shows_it_a_row)
{
    static const char reward[] = "--check --config '%s' '~worker.reward.rewards' "
                                 "'worker.reward.rewards=[{command: [%s]}]'%s";
    static const char env[] = "--check --config '%s' data.train_files=[] '~worker.reward.rewards' "
                              "'~data.rollout_batch_size' '~worker.rollout.n' env.train.tags=Own "
                              "worker.actor.global_batch_size=8 env.token_exact=true "
                              "'env.definitions.Own={type: command, options: {command: [python3, "
                              "%s]}}'";
    ares_str out = { 0 };
    const char *words = e2e_train_words("run");
    const char *reads = e2e_write("reads.py", "import sys, json\n"
                                              "for l in sys.stdin:\n"
                                              "    open(sys.argv[1], 'a').write(l)\n"
                                              "    print(int('row' in json.loads(l)))\n"
                                              "    sys.stdout.flush()\n");
    char command[600];
    CHECK_EQ(e2e_program(&out, reward, words, "python3, nosuch.py", ""), 1);
    CHECK_CONTAINS(out.data, "--check (--no-programs starts none): reward: nosuch: ended with exit "
                             "code 2: ");
    CHECK_CONTAINS(out.data, "nosuch.py': [Errno 2] No such file");
    CHECK_EQ(e2e_program(&out, reward, words, "python3, nosuch.py", " --no-programs"), 0);
    snprintf(command, sizeof command, "python3, %s, %s", reads, test_file("asked"));
    CHECK_MSG(e2e_program(&out, reward, words, command, "") == 0, "%s", out.data);
    CHECK_EQ(test_shell(&out, "wc -l < '%s'", test_file("asked")), 0);
    CHECK_MSG(strcmp(out.data + out.len - 2, "1\n") == 0, "%s", out.data);
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, env, words, e2e_write("dies.py", "import no_such_module\n")), 1);
    CHECK_CONTAINS(out.data, "env: Own: the program ended with exit code 1: ModuleNotFoundError");
    ares_str_fini(&out);
}

/* Answers of a file, rows without answers, and the rollouts of a run. */
TEST(grade_tries_a_reward_of_ones_own)
{
    const char *judge = e2e_write("judge.py", "import json, sys\n"
                                              "for l in sys.stdin:\n"
                                              "    x = json.loads(l)\n"
                                              "    if x['response'] == 'bad': sys.exit('boom')\n"
                                              "    right = x['response'] == x['ground_truth']\n"
                                              "    print(json.dumps({'score': right, 'accuracy': "
                                              "right, 'n': x['row'].get('n')}), flush=True)\n"),
               *function = e2e_write("f.py", "def main(reward_inputs, by=1):\n"
                                             "    return [{'overall': by * len(x['response'])} for "
                                             "x in reward_inputs]\n"),
               *lines =
                   e2e_write("lines.jsonl", "{\"response\":\"5\",\"ground_truth\":\"5\",\"n\":7}\n"
                                            "{\"response\":\"bad\",\"ground_truth\":\"5\"}\n"
                                            "{\"answer\":\"6\",\"prompt\":\"q\"}\n");
    ares_str out = { 0 };
    CHECK_EQ(
        e2e_program(&out, "grade --command 'python3 %s' --input '%s' processes=2", judge, lines),
        1);
    CHECK_CONTAINS(out.data,
                   "{\"score\":1.0,\"accuracy\":1.0,\"details\":{\"command\":{\"score\":true,"
                   "\"accuracy\":true,\"n\":7}}}\n");
    CHECK_CONTAINS(out.data, "{\"score\":null,\"accuracy\":null,\"failed\":true,\"details\":{"
                             "\"command\":{\"failure\":\"ended with exit code 1: boom\"}}}\n");
    CHECK_CONTAINS(out.data,
                   "{\"score\":1.0,\"accuracy\":1.0,\"details\":{\"command\":{\"score\":true,"
                   "\"accuracy\":true,\"n\":null}}}\n");
    CHECK_CONTAINS(out.data, "1 of 3 could not be judged (command: ended with exit code 1: boom)");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=1", e2e_train_words("run")), 0);
    ares_str_clear(&out);
    CHECK_MSG(e2e_program(&out, "grade --function '%s:main' --input '%s' 'kwargs={by: 2}'",
                          function, test_file("run")) == 0,
              "%s", out.data);
    CHECK_CONTAINS(out.data, "{\"score\":");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "grade --command true --verifier exact"), 2);
    CHECK_CONTAINS(out.data, "exclude each other");
    ares_str_fini(&out);
}

TEST(grade_gives_no_score_to_a_row_that_cannot_be_judged)
{
    static const struct {
        const char *verifier, *line, *message;
    } cases[] = {
        { "auto", "{\"response\":\"5\"}", "the row has neither rm_type nor data_source" },
        { "auto", "{\"response\":\"5\",\"rm_type\":\"nubmer\"}", "did you mean 'number'?" },
        { "ifbench", "{\"response\":\"5\",\"metadata\":{\"functions\":[\"a\"]}}", "no 'checkers'" },
        { "auto", "{\"response\":\"5\",\"rm_type\":\"format_verify\",\"functions\":[\"a\"]}",
          "no 'checkers'" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        CHECK(e2e_program(&out, "grade --verifier %s --input '%s'", cases[i].verifier,
                          e2e_write("line.jsonl", cases[i].line)) == 1);
        CHECK_MSG(strncmp(out.data, "{\"error\":", 9) == 0, "%s", out.data);
        CHECK_CONTAINS(out.data, cases[i].message);
        ares_str_fini(&out);
    }
}

/* Where nothing of the sources or of the build folder is near. */
TEST(an_installed_program_and_a_moved_one_call_functions_of_python)
{
    static const char ask[] = "'%s' grade --function '%s:main' --input '%s' 2>&1";
    const char *function = e2e_write("f.py", "def main(reward_inputs):\n"
                                             "    return [{'overall': len(x['response'])} for x in "
                                             "reward_inputs]\n"),
               *lines = e2e_write("lines.jsonl", "{\"response\":\"abc\",\"ground_truth\":\"5\"}\n");
    const char *const programs[] = { "prefix/bin/ares-train", "moved/ares-train" };
    ares_str out = { 0 };
    int rc = test_shell(&out,
                        "command -v cmake >/dev/null || exit 77; cmake --install '%s' --prefix "
                        "'%s' 2>&1",
                        ARES_BINARY_DIR, test_file("prefix"));
    if (rc == 77) {
        ares_str_fini(&out);
        SKIP("no cmake here");
    }
    CHECK_MSG(rc == 0, "%s", out.data);
    CHECK_EQ(test_shell(NULL, "mkdir '%s' && cp '%s/ares-train' '%s/python_reward.py' '%s'",
                        test_file("moved"), ARES_BINARY_DIR, ARES_BINARY_DIR, test_file("moved")),
             0);
    for (int i = 0; i < ARES_COUNT(programs); i++) {
        ares_str_clear(&out);
        CHECK_EQ(test_shell(&out, ask, test_file(programs[i]), function, lines), 0);
        CHECK_CONTAINS(out.data, "{\"score\":3.0");
    }
    CHECK_EQ(test_shell(NULL, "rm '%s'", test_file("moved/python_reward.py")), 0);
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out, ask, test_file("moved/ares-train"), function, lines), 2);
    CHECK_CONTAINS(out.data, "/moved/python_reward.py, which calls Python functions");
    ares_str_fini(&out);
}
