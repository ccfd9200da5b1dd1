/*
 * The usual metrics of a step are those of the answers in its rollouts without discarded ones;
 * limits between options are exact; an epoch has as many steps as its draws fill.
 */
#include "ares/kernels.h"
#include "e2e.h"

#include <math.h>
#include <stdio.h>

/* The score depends on the answer's text alone; answers have many lengths, at most 12 tokens. */
#define WORDS                                                                                   \
    "trainer.max_steps=1 worker.reward.accuracy=random 'worker.reward.rewards=[{name: random, " \
    "weight: 0.5}, {name: format, pattern: \".*[0-9].*\", finished: false, weight: 0.25}]' "    \
    "'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t]' "

typedef struct tally {
    double sum, count, most, least;
} tally;

static void tally_add(tally *y, double x, double weight)
{
    y->most = y->count > 0 ? fmax(y->most, x) : x;
    y->least = y->count > 0 ? fmin(y->least, x) : x;
    y->sum += weight * x;
    y->count += weight;
}

static void check(const char *run, const char *name, const char *of, double want)
{
    char key[80];
    snprintf(key, sizeof key, "%s%s", name, of);
    double have = e2e_metric(run, 1, key);
    CHECK_MSG(fabs(have - want) <= 1e-6, "%s: %s is %g, expected %g", run, key, have, want);
}

static void check_all(const char *run, const char *name, const tally *y)
{
    check(run, name, "/mean", y->sum / y->count);
    check(run, name, "/max", y->most);
    check(run, name, "/min", y->least);
}

/* Checks the time of a stage per token: of the answers, or of all sequences. */
static void check_pace(const char *run, const char *stage, double tokens)
{
    char key[60], pace[60];
    snprintf(key, sizeof key, "timing_s/%s", stage);
    snprintf(pace, sizeof pace, "timing_per_token_ms/%s", stage);
    double have = e2e_metric(run, 1, pace) * tokens, want = e2e_metric(run, 1, key) * 1000;
    CHECK_MSG(fabs(have - want) <= 1e-6 * want, "%s: %g tokens of %s make %g ms, expected %g", run,
              tokens, pace, have, want);
}

/* Checks that each stage reports its time, and that together they take no longer than the step. */
static void check_stages(const char *run)
{
    static const char *const stages[] = { "gen", "observe",      "score", "old",   "shape",
                                          "adv", "update_actor", "adapt", "report" };
    double sum = 0;
    for (int i = 0; i < ARES_COUNT(stages); i++) {
        char key[60];
        snprintf(key, sizeof key, "timing_s/%s", stages[i]);
        double seconds = e2e_metric(run, 1, key);
        CHECK_MSG(seconds >= 0, "%s is %g", key, seconds);
        sum += seconds;
    }
    double all = e2e_metric(run, 1, "timing_s/step");
    CHECK_MSG(sum <= all, "the stages took %g s, the step %g s", sum, all);
}

/* longest: longer answers are discarded */
static void check_step(const char *run, double longest)
{
    ares_arena arena = { 0 };
    tally score = { 0 }, length = { 0 }, advantage = { 0 }, right = { 0 }, random = { 0 },
          format = { 0 }, all = { 0 };
    double clipped = 0, mixed = 0, low[4], high[4];
    int64_t n;
    const ares_json **rows = e2e_rows(&arena, run, "rollouts/step_000001.jsonl", &n);
    CHECK_EQ(n, 16);
    for (int g = 0; g < 4; g++) low[g] = INFINITY, high[g] = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double tokens = e2e_number(rows[i], "n_tokens"), of_row = e2e_number(rows[i], "score");
        const ares_json *parts = ares_json_get(rows[i], "rewards");
        tally_add(&all, tokens, 1);
        if (tokens > longest) continue;
        tally_add(&score, of_row, 1);
        tally_add(&length, tokens, 1);
        tally_add(&advantage, e2e_number(rows[i], "advantage"), tokens);
        tally_add(&right, e2e_number(rows[i], "accuracy"), 1);
        tally_add(&random, e2e_number(parts, "random"), 1);
        tally_add(&format, e2e_number(parts, "format"), 1);
        clipped += tokens >= 12;
        low[i / 4] = fmin(low[i / 4], of_row);
        high[i / 4] = fmax(high[i / 4], of_row);
    }
    for (int g = 0; g < 4; g++) mixed += low[g] < high[g];
    CHECK(score.most > score.least && length.most > length.least && right.sum > 0);
    check_all(run, "critic/score", &score);
    check_all(run, "critic/rewards", &score); /* no KL is part of the reward */
    check_all(run, "critic/advantages", &advantage);
    check_all(run, "response_length", &length);
    check(run, "response_length/clip_ratio", "", clipped / length.count);
    check(run, "reward/overall", "", score.sum / score.count);
    check(run, "reward/random", "", random.sum / random.count);
    check(run, "reward/format", "", format.sum / format.count);
    check(run, "reward/batch_accuracy", "", right.sum / right.count);
    check(run, "reward/accuracy", "", right.sum / right.count); /* nothing was filtered */
    check(run, "rollout/mixed_groups_frac", "", mixed / 4);
    if (length.count == all.count) {
        double total = all.sum + all.count * e2e_metric(run, 1, "prompt_length/mean");
        check(run, "perf/total_num_tokens", "", total);
        check(run, "global_seqlen/mean", "", total); /* one rank has them all */
        check(run, "global_seqlen/balanced_max", "", total);
        check_pace(run, "gen", all.sum);
        check_pace(run, "reward", all.sum);
        check_pace(run, "adv", total);
        check_pace(run, "update_actor", total);
    }
    ares_arena_fini(&arena);
}

/* Sixteen rows are three batches of five; the last row of an epoch is left out. */
TEST(the_step_that_uses_up_an_epoch_belongs_to_it)
{
    ares_str rows = { 0 };
    for (int i = 0; i < 16; i++)
        ares_str_addf(&rows, "{\"prompt\":\"%d+1=?\",\"answer\":\"2\"}\n", i);
    const char *path = e2e_write("rows.jsonl", rows.data);
    ares_str_fini(&rows);
    REQUIRE(e2e_program(NULL,
                        "--config '%s' 'data.train_files=%s' data.rollout_batch_size=5 "
                        "worker.actor.global_batch_size=5 trainer.max_steps=7",
                        e2e_train_words("epochs"), path) == 0);
    for (int step = 1; step <= 7; step++) {
        CHECK_EQ(e2e_metric("epochs", step, "epoch/id"), (step - 1) / 3);
        CHECK_EQ(e2e_metric("epochs", step, "epoch/iter_num"), 3);
    }
}

TEST(the_metrics_of_a_step_are_those_of_its_answers)
{
    const char *prompts = e2e_write("prompts.jsonl", "{\"prompt\":\"1+1=?\",\"answer\":\"2\"}\n"
                                                     "{\"prompt\":\"10+10=?\",\"answer\":\"20\"}\n"
                                                     "{\"prompt\":\"2+2=?\",\"answer\":\"4\"}\n"
                                                     "{\"prompt\":\"3+3=?\",\"answer\":\"6\"}\n");
    char words[400];
    snprintf(words, sizeof words, "'data.train_files=[%s]'", prompts);
    REQUIRE(e2e_program(NULL, "--config '%s' " WORDS "%s", e2e_train_words("all"), words) == 0);
    check_step("all", 12);
    check_stages("all");
    CHECK(e2e_metric("all", 1, "response_length/clip_ratio") > 0);
    CHECK_EQ(e2e_metric("all", 1, "prompt_length/clip_ratio"), 0);
    double longest = e2e_metric("all", 1, "prompt_length/max");
    CHECK_EQ(e2e_metric("all", 1, "prompt_length/min"), longest - 2);
    CHECK_EQ(e2e_metric("all", 1, "prompt_length/mean"), longest - 1.5);
    snprintf(words, sizeof words,
             "'data.train_files=[%s]' data.max_prompt_length=%d algorithm.max_length=11", prompts,
             (int)longest);
    REQUIRE(e2e_program(NULL, "--config '%s' " WORDS "%s", e2e_train_words("limit"), words) == 0);
    check_step("limit", 11);
    double full = e2e_metric("limit", 1, "prompt_length/clip_ratio");
    CHECK_MSG(full > 0 && full < 1, "%g of the prompts are as long as allowed", full);
    CHECK_EQ(e2e_metric("limit", 1, "perf/total_num_tokens"),
             e2e_metric("all", 1, "perf/total_num_tokens"));
}

TEST(the_only_answer_of_a_step_is_its_mean_its_longest_and_its_shortest)
{
    ares_arena arena = { 0 };
    int64_t n;
    REQUIRE(e2e_program(NULL,
                        "--config '%s' trainer.max_steps=1 data.rollout_batch_size=1 "
                        "algorithm.adv_estimator=reinforce_plus_plus worker.rollout.n=1 "
                        "worker.actor.global_batch_size=1",
                        e2e_train_words("one")) == 0);
    const ares_json **rows = e2e_rows(&arena, "one", "rollouts/step_000001.jsonl", &n);
    REQUIRE(n == 1);
    tally score = { 0 }, length = { 0 };
    tally_add(&score, e2e_number(rows[0], "score"), 1);
    tally_add(&length, e2e_number(rows[0], "n_tokens"), 1);
    check_all("one", "critic/score", &score);
    check_all("one", "critic/rewards", &score);
    check_all("one", "response_length", &length);
    check("one", "prompt_length", "/min", e2e_metric("one", 1, "prompt_length/mean"));
    check("one", "prompt_length", "/max", e2e_metric("one", 1, "prompt_length/mean"));
    ares_arena_fini(&arena);
}

/* ---------------------------------------------------------------- options */
TEST(limits_between_options_are_exact)
{
    static const struct {
        const char *words, *refused; /* NULL: accepted */
    } cases[] = {
        { "worker.rollout.max_model_len=60", NULL },
        { "worker.rollout.max_model_len=59", "worker.rollout.max_model_len" },
        { "algorithm.adv_estimator=gae worker.critic.global_batch_size=2", NULL },
        { "algorithm.adv_estimator=gae worker.critic.global_batch_size=3",
          "worker.critic.global_batch_size = 3: data.rollout_batch_size = 4 is no multiple of it" },
        { "worker.actor.global_batch_size=3", "is no multiple of it" },
        { "worker.actor.mini_batch_unit=rows worker.rollout.n=3 worker.actor.global_batch_size=6",
          NULL },
        { "worker.actor.mini_batch_unit=rows worker.rollout.n=3 worker.actor.global_batch_size=5",
          "worker.actor.global_batch_size = 5: the 12 rows of a step (data.rollout_batch_size x "
          "worker.rollout.n) are no multiple of it" },
        { "worker.critic.mini_batch_unit=rows worker.rollout.n=3 "
          "worker.critic.global_batch_size=8",
          "worker.critic.global_batch_size = 8: the 12 rows of a step" },
        { "worker.actor.mini_batch_unit=rows algorithm.n_minibatches=2",
          "algorithm.n_minibatches = 2: makes mini-batches of prompts" },
        { "reward.overlong_buffer.enable=true reward.overlong_buffer.len=12", NULL },
        { "reward.overlong_buffer.enable=true reward.overlong_buffer.len=13",
          "must lie in 1 .. 12" },
        { "reward.overlong_buffer.enable=true reward.overlong_buffer.len=0",
          "must lie in 1 .. 12" },
        { "worker.rollout.enable_chunked_prefill=false worker.rollout.max_num_batched_tokens=60",
          NULL },
        { "worker.rollout.enable_chunked_prefill=false worker.rollout.max_num_batched_tokens=59",
          "= 60 do not fit" },
    };
    ares_str out = { 0 };
    const char *config = e2e_train_words("run");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str_clear(&out);
        int rc = e2e_program(&out, "--check --config '%s' %s", config, cases[i].words);
        CHECK_MSG(rc == (cases[i].refused ? 2 : 0), "%s: status %d\n%s", cases[i].words, rc,
                  out.data);
        if (cases[i].refused) CHECK_CONTAINS(out.data, cases[i].refused);
    }
    /* the smallest cache holds one sample and two more blocks */
    char words[80];
    for (int less = 0; less < 2; less++) {
        snprintf(words, sizeof words, "worker.rollout.cache_tokens=%d",
                 60 + 2 * ARES_KV_BLOCK - less);
        CHECK_EQ(e2e_program(NULL, "--check --config '%s' %s", config, words), less ? 2 : 0);
    }
    ares_str_fini(&out);
}

/* 20 rows in draws of eight: two draws fill four steps, and the rest of the epoch is left out. */
TEST(an_epoch_has_the_steps_that_its_draws_fill)
{
    const char *rows = test_file("rows.jsonl");
    CHECK_EQ(test_shell(NULL, "head -20 '%s' > '%s'", test_source("examples/data/sums/train.jsonl"),
                        rows),
             0);
    REQUIRE(
        e2e_program(
            NULL,
            "--config '%s' 'data.train_files=[%s]' trainer.max_steps=null trainer.total_epochs=2 "
            "data.mini_rollout_batch_size=8",
            e2e_train_words("run"), rows) == 0);
    CHECK(!isnan(e2e_metric("run", 8, "reward/overall")));
    CHECK(isnan(e2e_metric("run", 9, "reward/overall")));
}

/* More rows than are scored at once. */
TEST(the_loss_of_a_supervised_validation_is_of_all_its_rows)
{
    static const char *const names[] = { "forth", "back" };
    const char *rows = test_source("examples/data/sums/sft.jsonl");
    double loss[2];
    CHECK_EQ(test_shell(NULL, "head -67 '%s' > '%s'; tac '%s' > '%s'", rows,
                        test_file("forth.jsonl"), test_file("forth.jsonl"),
                        test_file("back.jsonl")),
             0);
    for (int i = 0; i < 2; i++) {
        char file[20];
        snprintf(file, sizeof file, "%s.jsonl", names[i]);
        REQUIRE(
            e2e_program(
                NULL,
                "sft --config '%s' trainer.max_steps=1 trainer.val_freq=1 'data.val_files=[%s]'",
                e2e_sft_words(names[i]), test_file(file)) == 0);
        loss[i] = e2e_metric(names[i], 0, "val/loss");
    }
    CHECK_NEAR(loss[0], loss[1], 1e-9 * loss[1]);
}

/* Later questions of a conversation are given, as the first is: neither loss counts them. */
TEST(supervised_training_and_validation_tell_the_same_loss_of_the_same_rows)
{
    static const char *const runs[] = { "short", "long" }, *const questions[] = { "1+1=?",
                                                                                  "11+11=?" };
    for (int i = 0; i < 2; i++) {
        ares_str rows = { 0 };
        for (int r = 0; r < 8; r++)
            ares_str_addf(&rows,
                          "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"},"
                          "{\"role\":\"assistant\",\"content\":\"answer %d\"},"
                          "{\"role\":\"user\",\"content\":\"and then, please?\"},"
                          "{\"role\":\"assistant\",\"content\":\"no %d\"}]}\n",
                          questions[i], r, r);
        const char *file = e2e_write("rows.jsonl", rows.data);
        ares_str_fini(&rows);
        REQUIRE(e2e_program(NULL,
                            "sft --config '%s' trainer.max_steps=1 trainer.val_freq=1 "
                            "'data.train_files=[%s]' 'data.val_files=[%s]'",
                            e2e_sft_words(runs[i]), file, file) == 0);
        CHECK_NEAR(e2e_metric(runs[i], 1, "train/loss"), e2e_metric(runs[i], 0, "val/loss"), 1e-5);
    }
    CHECK_EQ(e2e_metric("long", 1, "train/tokens"), e2e_metric("short", 1, "train/tokens"));
    CHECK_EQ(e2e_metric("long", 1, "perf/total_num_tokens"), /* a character is a token here */
             e2e_metric("short", 1, "perf/total_num_tokens") + 8 * 2);
}
