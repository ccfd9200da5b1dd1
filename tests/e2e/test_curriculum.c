/*
 * Runs over several weighted data sets: what is drawn follows the weights, what is kept the caps,
 * and a run that was stopped goes on as if nothing had happened.
 */
#include "e2e.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* a: 7 rows, b: 4; an epoch of either ends within the run. Scores are 0 or 1, at random. */
#define WORDS                                                                               \
    "'data.train_files=[%s, %s]' data.rollout_batch_size=6 data.mini_rollout_batch_size=4 " \
    "worker.actor.global_batch_size=6 trainer.save_freq=1 trainer.threads=1 "               \
    "algorithm.dynamic_sampling_filter=reward_cap trainer.max_try_make_batch=0 "            \
    "'worker.reward.rewards=[{name: random}]' "                                             \
    "'curriculum.weights=[\"0.8 - 0.1 * step\", increasing_weight]' "                       \
    "'curriculum.reward_caps=[0.6, \"0.4 + step / 20\"]' "

static const char *rows_of(const char *name, int n)
{
    char file[64];
    ares_str rows = { 0 };
    for (int i = 0; i < n; i++)
        ares_str_addf(&rows, "{\"prompt\":\"%s %d\",\"answer\":\"%d\"}\n", name, i, i);
    snprintf(file, sizeof file, "%s.jsonl", name);
    const char *path = e2e_write(file, rows.data);
    ares_str_fini(&rows);
    return path;
}

static int mixed_run(ares_str *out, const char *run, const char *before, const char *more)
{
    char a[300], b[300];
    snprintf(a, sizeof a, "%s", rows_of("a", 7));
    snprintf(b, sizeof b, "%s", rows_of("b", 4));
    return e2e_program(out, "%s --config '%s' " WORDS "%s", before, e2e_train_words(run), a, b,
                       more);
}

static void works(ares_str *out, const char *run, const char *before, const char *more)
{
    ares_str_clear(out);
    int rc = mixed_run(out, run, before, more);
    CHECK_MSG(rc == 0, "%s", out->data ? out->data : "");
}

TEST(a_mixture_that_was_stopped_goes_on_as_if_nothing_had_happened)
{
    ares_str out = { 0 };
    works(&out, "run", "", "trainer.max_steps=6");
    for (int step = 1; step < 6; step += 2) {
        REQUIRE(e2e_go_back("run", "whole", step));
        works(&out, "run", "", "trainer.max_steps=6");
        CHECK(e2e_same_runs("whole", "run", 6));
    }
    ares_str_fini(&out);
}

/* Caps and weights of answers that are cut, given back to their data set, and go on. */
#define CUT                                                                              \
    "trainer.max_steps=5 '~data.mini_rollout_batch_size' trainer.max_try_make_batch=20 " \
    "curriculum.over_sampling_batch_size=12 curriculum.partial_rollout=true "            \
    "curriculum.recycle_surplus=true data.max_response_length=40 "                       \
    "'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, j, k, l, m]' "

TEST(a_mixture_with_cut_answers_goes_on_as_if_nothing_had_happened)
{
    ares_str out = { 0 };
    works(&out, "run", "", CUT);
    for (int step = 1; step < 5; step++) {
        REQUIRE(e2e_go_back("run", "whole", step));
        works(&out, "run", "", CUT);
        CHECK(e2e_same_runs("whole", "run", 5));
    }
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out, "grep -c '\"local\"' '%s'",
                        test_file("run/checkpoints/step_000005/source.json")),
             0); /* some are waiting */
    works(&out, "one", "", CUT "trainer.max_steps=1");
    if (e2e_has_mpi()) {
        works(&out, "two", "--ranks 2", CUT "trainer.max_steps=1");
        CHECK(e2e_same_rollouts("one", "two", 1));
    }
    ares_str_fini(&out);
}

TEST_MPI(two_ranks_draw_and_keep_of_a_mixture_what_one_does)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    works(&out, "one", "", "trainer.max_steps=1");
    works(&out, "two", "--ranks 2", "trainer.max_steps=1");
    CHECK(e2e_same_rollouts("one", "two", 1));
    ares_str_fini(&out);
}

TEST_MPI(four_ranks_learn_from_a_mixture_whatever_they_share)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    char run[16], more[500];
    for (int i = 0; i < E2E_SHARED; i++) {
        snprintf(run, sizeof run, "share%d", i);
        snprintf(more, sizeof more,
                 "trainer.max_steps=3 data.rollout_batch_size=8 "
                 "worker.actor.global_batch_size=4 %s",
                 e2e_shared[i]);
        works(&out, run, "--ranks 4", more);
        if (i) CHECK(e2e_same_runs("share0", run, 3));
    }
    ares_str_fini(&out);
}

TEST(other_data_sets_are_refused_unless_they_are_forced)
{
    ares_str out = { 0 };
    works(&out, "run", "", "trainer.max_steps=2");
    REQUIRE(e2e_go_back("run", "whole", 1));
    CHECK(mixed_run(&out, "run", "", "trainer.max_steps=2 'curriculum.names=[b, c]'") != 0);
    CHECK_CONTAINS(out.data, "curriculum.names");
    works(&out, "run", "", "trainer.max_steps=2 'curriculum.names=[b, c]' --force");
    CHECK_CONTAINS(out.data, "'a' is gone, 'b' goes on where it was, 'c' begins anew");
    ares_str_fini(&out);
}

TEST(another_number_of_caps_is_refused_or_forced_to_be_none)
{
    ares_str out = { 0 };
    const char *words = "trainer.max_steps=1 curriculum.reward_caps=[0]";
    CHECK_EQ(mixed_run(&out, "run", "", words), 2);
    CHECK_CONTAINS(out.data, "curriculum.reward_caps = [0]: has 1 entries, and data.train_files 2");
    works(&out, "run", "--force", words);
    CHECK_CONTAINS(out.data, "so no data set has a cap");
    CHECK(isnan(e2e_metric("run", 1, "rollout/a/reward_cap")));
    CHECK_EQ(e2e_metric("run", 1, "filter/tries"), 2); /* of 4 prompts each, for a batch of 6 */
    ares_str_fini(&out);
}

TEST(a_batch_that_caps_leave_empty_ends_the_run_with_what_was_dropped_for_which_reason)
{
    ares_str out = { 0 };
    CHECK_EQ(mixed_run(&out, "run", "",
                       "trainer.max_steps=1 curriculum.reward_caps=[0,0] "
                       "trainer.max_try_make_batch=3"),
             1);
    CHECK_CONTAINS(out.data, "3 draws gave 12 prompts, of which 0 stay, and a batch takes 6");
    CHECK_CONTAINS(out.data, "(dropped: ");
    CHECK_CONTAINS(out.data, "reward_cap_a: ");
    ares_str_fini(&out);
}

TEST(a_weight_that_fails_during_a_run_ends_it_and_names_data_set_and_step)
{
    ares_str out = { 0 };
    CHECK(mixed_run(&out, "run", "",
                    "trainer.max_steps=2 'curriculum.weights=[1, \"1 / (step - 3)\"]'") != 0);
    CHECK_CONTAINS(out.data, "weight of 'b'");
    CHECK_CONTAINS(out.data, "at step 3: division by zero");
    ares_str_fini(&out);
}

/* Groups that were judged of a data set. Checks its metrics: mean reward and number of samples of a
 * data set, by the rows of the run. */
static double check_source(const ares_json *const *rows, int64_t n, int step, const char *name)
{
    double sum = 0, samples = 0, groups = 0;
    char key[100];
    for (int64_t i = 0; i < n; i++) {
        if (!ares_view_is(ares_json_get(rows[i], "data_source")->text, name)) continue;
        sum += e2e_number(rows[i], "score");
        samples++;
        groups += i % 4 == 0;
    }
    snprintf(key, sizeof key, "rollout/%s/sample_count", name);
    CHECK_EQ(e2e_metric("run", step, key), samples);
    snprintf(key, sizeof key, "rollout/%s/raw_reward/mean", name);
    if (samples > 0) CHECK_NEAR(e2e_metric("run", step, key), sum / samples, 1e-12);
    snprintf(key, sizeof key, "rollout/dynamic_filter/drop_reward_cap_%s", name);
    double capped = e2e_metric("run", step, key);
    snprintf(key, sizeof key, "rollout/dynamic_filter/drop_all_zero_%s", name);
    double zero = e2e_metric("run", step, key);
    capped = isnan(capped) ? 0 : capped;
    zero = isnan(zero) ? 0 : zero;
    snprintf(key, sizeof key, "rollout/%s/drop_rate_reward_cap", name);
    double rate = e2e_metric("run", step, key);
    snprintf(key, sizeof key, "rollout/%s/judged_groups", name);
    double all = e2e_metric("run", step, key);
    all = isnan(all) ? 0 : all;
    CHECK(all >= capped + zero + groups);
    CHECK_NEAR(rate, all > 0 ? capped / all : 0, 1e-12);
    return all;
}

/* Tokens per second, by the rows of the run. */
static void check_speed(const ares_json *const *rows, int64_t n, int step)
{
    double seconds = e2e_metric("run", step, "perf/rollout_time"), sum = 0, longest = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += e2e_number(rows[i], "n_tokens");
        longest = fmax(longest, e2e_number(rows[i], "n_tokens"));
    }
    CHECK_EQ(seconds, e2e_metric("run", step, "timing_s/gen"));
    const struct {
        const char *name;
        double tokens;
    } rates[] = { { "perf/tokens_per_gpu_per_sec", sum },
                  { "perf/effective_tokens_per_gpu_per_sec", sum },
                  { "perf/longest_sample_tokens_per_sec", longest },
                  { "perf/longest_effective_sample_tokens_per_sec", longest } };
    for (int i = 0; i < ARES_COUNT(rates); i++)
        CHECK_NEAR(e2e_metric("run", step, rates[i].name), rates[i].tokens / seconds,
                   1e-9 * longest / seconds);
    double repeats = e2e_metric("run", step, "rollout/repetition_frac");
    CHECK(repeats == 0 || isnan(repeats)); /* no zlib in this build */
}

TEST(metrics_of_data_sets_are_those_of_the_rows_of_the_run)
{
    ares_arena arena = { 0 };
    int64_t n, fetches = 0, later = 0;
    CHECK_EQ(mixed_run(NULL, "run", "", "trainer.max_steps=4"), 0);
    for (int step = 1; step <= 4; step++) {
        char file[64];
        snprintf(file, sizeof file, "rollouts/step_%06d.jsonl", step);
        const ares_json **rows = e2e_rows(&arena, "run", file, &n);
        double judged = check_source(rows, n, step, "a") + check_source(rows, n, step, "b");
        CHECK_EQ(judged, e2e_metric("run", step, "filter/generated_groups"));
        double at = e2e_metric("run", step, "rollout/b/rollout_step"), before = (double)fetches;
        fetches += (int64_t)e2e_metric("run", step, "filter/tries");
        if (e2e_metric("run", step, "rollout/b/sample_count") > 0) {
            later += at > 0;
            CHECK(at >= before && at < (double)fetches);
            CHECK_NEAR(e2e_metric("run", step, "rollout/b/weight"), 0.1 + 0.8 * at / 200, 1e-12);
        } else at = 0;
        CHECK_NEAR(e2e_metric("run", step, "rollout/b/reward_cap"), 0.4 + at / 20, 1e-12);
        CHECK_EQ(e2e_metric("run", step, "rollout/a/reward_cap"), 0.6);
        CHECK_EQ(e2e_metric("run", step, "rollout/step"), step - 1);
        check_speed(rows, n, step);
    }
    CHECK(later > 0);
    ares_arena_fini(&arena);
}

/* The share of a score above the cap, by the rows of the run itself. */
TEST(groups_above_the_cap_of_their_data_set_are_not_trained_on)
{
    ares_arena arena = { 0 };
    int64_t n;
    CHECK_EQ(mixed_run(NULL, "run", "", "trainer.max_steps=3"), 0);
    for (int step = 1; step <= 3; step++) {
        char file[64];
        snprintf(file, sizeof file, "rollouts/step_%06d.jsonl", step);
        const ares_json **rows = e2e_rows(&arena, "run", file, &n);
        CHECK_EQ(n, 24);
        for (int64_t i = 0; i < n; i += 4) {
            double sum = 0;
            bool a = ares_view_is(ares_json_get(rows[i], "data_source")->text, "a");
            for (int64_t k = i; k < i + 4; k++) sum += e2e_number(rows[k], "score");
            CHECK_MSG(sum > 0 && sum / 4 <= (a ? 0.6 : 0.75), "step %d, row %lld: %g", step,
                      (long long)i, sum / 4);
        }
    }
    ares_arena_fini(&arena);
}

/* Groups that only fill the batch are no part of how many answers were cut. */
TEST(the_share_of_cut_answers_is_of_groups_that_are_trained_on)
{
    ares_arena arena = { 0 };
    int64_t n;
    double cut = 0, trained = 0, others = 0;
    CHECK_EQ(mixed_run(NULL, "run", "",
                       "trainer.max_steps=1 curriculum.reward_caps=[0.3,0.3] "
                       "trainer.max_try_make_batch=2 algorithm.on_exhausted=fill_masked "
                       "'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, j]'"),
             0);
    const ares_json **rows = e2e_rows(&arena, "run", "rollouts/step_000001.jsonl", &n);
    CHECK_EQ(n, 24);
    for (int64_t i = 0; i < n; i++) {
        bool whole = ares_json_get(rows[i], "finished")->boolean;
        if (ares_json_get(rows[i], "discarded")) others += !whole;
        else trained++, cut += !whole;
    }
    CHECK(trained > 0 && trained < 24 && cut > 0 && others > 0);
    CHECK_NEAR(e2e_metric("run", 1, "rollout/truncated_ratio"), cut / trained, 1e-12);
    ares_arena_fini(&arena);
}

/* A cap of 0 drops all of the first fetch, and the next one keeps what it draws. */
TEST(a_group_meets_the_cap_of_the_fetch_that_drew_it)
{
    CHECK_EQ(mixed_run(NULL, "run", "",
                       "'curriculum.reward_caps=[step, step]' trainer.max_try_make_batch=9 "
                       "trainer.max_steps=1"),
             0);
    CHECK(e2e_metric("run", 1, "filter/tries") >= 2);
    CHECK_EQ(e2e_metric("run", 1, "rollout/a/sample_count") +
                 e2e_metric("run", 1, "rollout/b/sample_count"),
             24);
}

/* ---------------------------------------------------------------- evaluation */
static int eval_run(ares_str *out, const char *run, const char *before, const char *more)
{
    char a[300], b[300];
    snprintf(a, sizeof a, "%s",
             e2e_write("digits.jsonl", "{\"ask\":\"1\",\"key\":\"1\"}\n"
                                       "{\"ask\":\"2\",\"key\":\"2\"}\n"
                                       "{\"ask\":\"3\",\"key\":\"3\",\"metadata\":{\"k\":1}}\n"));
    snprintf(
        b, sizeof b, "%s",
        e2e_write("words.jsonl", "{\"prompt\":\"a\",\"answer\":\"7\",\"rm_type\":\"exact\"}\n"));
    return e2e_program(
        out,
        "%s --config '%s' trainer.threads=1 'worker.reward.rewards=[{name: auto, rm_type: "
        "random}]' "
        "trainer.val_freq=2 trainer.save_freq=1 'eval.defaults={temperature: 0.7, "
        "max_response_len: 9}' "
        "'eval.datasets=[{name: digits, path: %s, rm_type: random, input_key: ask, label_key: key, "
        "n_samples_per_eval_prompt: 4, max_response_len: 30}, {name: words, path: %s, "
        "temperature: 0, metadata_overrides: {rm_type: number}}, {name: again, path: %s, rm_type: "
        "random, input_key: ask, label_key: key, n_samples_per_eval_prompt: 4, max_response_len: "
        "30}]' %s",
        before, e2e_train_words(run), a, b, a, more);
}

TEST(every_data_set_of_an_evaluation_has_its_own_sampling_and_verifier)
{
    ares_str out = { 0 };
    ares_arena arena = { 0 };
    int64_t n;
    CHECK_MSG(eval_run(&out, "run", "", "trainer.max_steps=2") == 0, "%s",
              out.data ? out.data : "");
    const ares_json **rows = e2e_rows(&arena, "run", "validation/step_000002.jsonl", &n);
    double score = 0, most = 0, any = 0, group = 0;
    int same = 0;
    CHECK_EQ(n, 3 * 4 + 1 + 3 * 4);
    for (int64_t i = 0; i < n; i++) {
        bool digits = ares_view_is(ares_json_get(rows[i], "data_set")->text, "digits"),
             again = ares_view_is(ares_json_get(rows[i], "data_set")->text, "again");
        CHECK_EQ(digits, i < 12);
        CHECK_EQ(again, i > 12);
        CHECK(e2e_number(rows[i], "n_tokens") <= (digits || again ? 30 : 9));
        if (again) /* the rows and options of digits, and random numbers of its own */
            same += ares_view_eq(ares_json_get(rows[i], "response")->text,
                                 ares_json_get(rows[i - 13], "response")->text);
        if (!digits) continue;
        most = fmax(most, e2e_number(rows[i], "n_tokens"));
        score += e2e_number(rows[i], "score");
        group = i % 4 ? fmax(group, e2e_number(rows[i], "score")) : e2e_number(rows[i], "score");
        if (i % 4 == 3) any += group;
    }
    CHECK_MSG(same < 6, "%d of 12 answers of two data sets are the same", same);
    CHECK(most > 12); /* beyond data.max_response_length */
    CHECK_NEAR(e2e_metric("run", 2, "eval/digits"), score / 12, 1e-12);
    CHECK_NEAR(e2e_metric("run", 2, "eval/digits-pass@1"), score / 12, 1e-12);
    CHECK_NEAR(e2e_metric("run", 2, "eval/digits-pass@4"), any / 3, 1e-12);
    CHECK(isnan(e2e_metric("run", 2, "eval/words-pass@1")));
    CHECK_NEAR(
        e2e_metric("run", 2, "val/reward_score"),
        (score / 12 + e2e_metric("run", 2, "eval/words") + e2e_metric("run", 2, "eval/again")) / 3,
        1e-12);
    CHECK(!isnan(e2e_metric("run", 0, "eval/digits")) &&
          isnan(e2e_metric("run", 1, "eval/digits")));
    ares_arena_fini(&arena);
    ares_str_fini(&out);
}

TEST_MPI(two_ranks_evaluate_as_one_does)
{
    E2E_NEEDS_MPI();
    static const char *const names[] = { "eval/digits", "eval/digits-pass@2",
                                         "eval/digits/response_len/median", "eval/words" };
    CHECK_EQ(eval_run(NULL, "one", "", "trainer.max_steps=1"), 0);
    CHECK_EQ(eval_run(NULL, "two", "--ranks 2", "trainer.max_steps=1"), 0);
    for (int i = 0; i < ARES_COUNT(names); i++)
        CHECK_EQ(e2e_metric("two", 0, names[i]), e2e_metric("one", 0, names[i]));
}

TEST(an_evaluation_that_makes_no_sense_is_refused)
{
    static const struct {
        const char *words, *message;
    } cases[] = {
        { "'eval.datasets=[{name: a}]'", "has a name and a path" },
        { "'eval.datasets=[{name: a, path: x}, {name: a, path: y}]'", "'a' is the name of two" },
        { "'eval.datasets=[{name: a/b, path: x}]'", "neither '/' nor blanks" },
        { "'eval.datasets=[{name: a, path: x, temprature: 1}]'", "eval.datasets.0.temprature" },
        { "'eval.datasets={a: {path: x, tool_key: t}}'", "tool_key is not offered" },
        { "'eval.datasets={a.b: {path: x}}'", "the key 'a.b' has a dot in it; write a list" },
        { "'eval.datasets=[{name: "
          "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggghhhhhhhhhhi, "
          "path: "
          "x}]'",
          "use 1 to 80 characters" },
        { "\"curriculum.rm_type=a'b\"", "is the name of a verifier" },
        { "'eval.datasets=[5]'", "eval.datasets.0 = 5: a data set is a map" },
        { "'eval.datasets={a: x}'", "eval.datasets.a = 'x': a data set is a map" },
        { "'eval.datasets={a: {path: x, max_response_len: 99999999999}}'",
          "max_response_len = 99999999999: must be in" },
        { "'eval.datasets={a: {path: x, n_samples_per_eval_prompt: 99999999999}}'",
          "n_samples_per_eval_prompt = 99999999999: must be in" },
        { "'eval.defaults={path: x}'", "are those of one data set" },
        { "'eval.datasets=[{name: a, path: none.jsonl}]'", "none.jsonl: no such file" },
        { "'eval.datasets=[{name: a, path: examples/data/sums/train.jsonl, metadata_key: prompt}]'",
          "train.jsonl:1: 'prompt' is no map" },
        { "'eval.datasets=[{name: a, path: x, max_response_len: 99}]' "
          "worker.rollout.max_model_len=80",
          "do not fit" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        char run[16];
        snprintf(run, sizeof run, "run_%d", i); /* some begin one */
        CHECK(eval_run(&out, run, "", cases[i].words) != 0);
        CHECK_CONTAINS(out.data, cases[i].message);
        ares_str_fini(&out);
    }
}

/* 11 rows make two batches of four; all are drawn on, whatever a draw takes. */
static void epochs(const char *run, const char *more)
{
    ares_str out = { 0 }, words = { 0 };
    ares_str_addf(&words,
                  "data.rollout_batch_size=4 data.mini_rollout_batch_size=6 "
                  "worker.actor.global_batch_size=4 trainer.val_freq=3 "
                  "trainer.save_freq=3 trainer.total_epochs=2 'eval.datasets=[{name: a, path: %s}]'"
                  " %s",
                  rows_of("a", 7), more);
    works(&out, run, "", words.data);
    ares_str_fini(&out);
    ares_str_fini(&words);
}

TEST(a_curriculum_that_epochs_end_is_validated_and_saved_at_the_end_of_each)
{
    static const struct {
        const char *run, *words;
        bool at[5];
    } cases[] = { { "by_epochs", "trainer.max_steps=null", { [2] = true, [3] = true, [4] = true } },
                  { "by_steps", "trainer.max_steps=4", { [3] = true, [4] = true } } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        epochs(cases[i].run, cases[i].words);
        for (int step = 1; step <= 4; step++) {
            char saved[100];
            snprintf(saved, sizeof saved, "%s/checkpoints/step_%06d", cases[i].run, step);
            CHECK_EQ(!isnan(e2e_metric(cases[i].run, step, "eval/a")), cases[i].at[step]);
            CHECK_EQ(ares_dir_exists(test_file(saved)), cases[i].at[step]);
        }
        CHECK(isnan(e2e_metric(cases[i].run, 5, "reward/overall")));
    }
}

TEST(a_weight_that_fails_within_the_epochs_of_a_run_is_refused_before_it)
{
    ares_str out = { 0 };
    CHECK_EQ(mixed_run(&out, "run", "",
                       "trainer.max_steps=null trainer.total_epochs=4 "
                       "'curriculum.weights=[\"3 - step\", 0]'"),
             2);
    CHECK_CONTAINS(out.data, "at step 3 no data set has a weight above 0");
    CHECK(!ares_file_exists(test_file("run/metrics.jsonl")));
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- the example */
TEST(slimes_published_configuration_passes_as_it_stands)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--check --print-config "
                               "--config examples/curriculum_learning/math_if_qwen3_8b.yaml "
                               "--config examples/curriculum_learning/eval_math_if.yaml"),
             0);
    static const char *const lines[] = { "names: [dapo_math_17k, verinstruct]",
                                         "over_sampling_batch_size: 256",
                                         "dynamic_sampling_filter: reward_cap",
                                         "name: auto",
                                         "global_batch_size: 32",
                                         "rollout_batch_size: 128" };
    for (int i = 0; i < ARES_COUNT(lines); i++) CHECK_CONTAINS(out.data, lines[i]);
    ares_str_fini(&out);
}

TEST(slimes_defaults_may_be_written_out)
{
    static const char words[] =
        "rollout_seed=42 rollout_top_k=-1 rollout_stop=null rollout_stop_token_ids=null "
        "partial_rollout=false buffer_filter_path=null reward_key=null group_rm=false rm_type=null "
        "metadata_key=metadata 'apply_chat_template_kwargs={}' dynamic_sampling_filter_path=null "
        "data_source_reward_caps=null num_epoch=null start_rollout_id=null save_interval=null "
        "eval_interval=null eval_config=null eval_prompt_data=null log_passrate=false "
        "skip_eval_before_train=true";
    ares_str out = { 0 };
    CHECK_EQ(
        e2e_program(&out, "--check --print-config --config '%s' %s", e2e_train_words("run"), words),
        0);
    CHECK_CONTAINS(out.data, "val_before_train: false");
    CHECK_CONTAINS(out.data, "dynamic_sampling_filter: none");
    ares_str_fini(&out);
    CHECK_EQ(e2e_program(NULL, "--check --config '%s' start_rollout_id=3", e2e_train_words("run")),
             2);
}

TEST(a_verifier_that_has_no_effect_beside_rewards_is_warned_of)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--check --config '%s' rm_type=math", e2e_train_words("run")), 0);
    CHECK_CONTAINS(out.data, "curriculum.rm_type: has no effect beside worker.reward.rewards; "
                             "write {name: auto, rm_type: math} there");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "--check --config '%s' '~worker.reward.rewards' rm_type=math",
                         e2e_train_words("run")),
             0);
    CHECK(!strstr(out.data, "no effect"));
    ares_str_fini(&out);
}

TEST(a_function_of_ones_own_in_slimes_words_is_refused)
{
    static const char *const words[] = { "custom_rm_path=mine.reward",
                                         "data_source_path=mine.Source",
                                         "custom_rollout_log_function_path=mine.log",
                                         "buffer_filter_path=mine.pop", "global_batch_size=513" };
    for (int i = 0; i < ARES_COUNT(words); i++)
        CHECK_EQ(e2e_program(
                     NULL, "--check --config examples/curriculum_learning/math_if_qwen3_8b.yaml %s",
                     words[i]),
                 2);
}

TEST(checks_written_in_python_become_native_ones_and_those_rows_are_judged)
{
    if (test_shell(NULL, "python3 -c pass") != 0) SKIP("no python3 here");
    ares_str out = { 0 };
    const char *rows = e2e_write(
        "functions.jsonl",
        "{\"prompt\":\"1\",\"metadata\":{\"rm_type\":\"format_verify\",\"functions\":[\"def "
        "check_following(instruction, response):\\n    return len(response.split()) <= 3 and ',' "
        "not in response\\n\"]}}\n"
        "{\"prompt\":\"2\",\"metadata\":{\"rm_type\":\"format_verify\",\"functions\":[\"def "
        "check_following(instruction, response):\\n    return weird(response)\\n\"]}}\n");
    CHECK_EQ(test_shell(&out, "python3 '%s' '%s' '%s' --rest '%s'",
                        test_source("scripts/data/checkers.py"), rows, test_file("native.jsonl"),
                        test_file("rest.jsonl")),
             0);
    CHECK_CONTAINS(out.data, "1 rows; not understood: 1");
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out, "cat '%s'", test_file("native.jsonl")), 0);
    CHECK_CONTAINS(out.data, "{\"id\": \"length_constraints:number_words\", \"kwargs\": "
                             "{\"num_words\": 4, \"relation\": \"less than\"}}");
    CHECK_CONTAINS(out.data, "{\"id\": \"punctuation:no_comma\", \"kwargs\": {}}");
    CHECK(!strstr(out.data, "functions"));
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' data.train_files='%s' data.rollout_batch_size=1 "
                         "worker.actor.global_batch_size=1 trainer.max_steps=1 "
                         "'worker.reward.rewards=[{name: auto}]'",
                         e2e_train_words("run"), test_file("native.jsonl")),
             0);
    CHECK(!isnan(e2e_metric("run", 1, "reward/overall")));
    ares_str_fini(&out);
}
