/* Runs whose filtered batches are brought to whole mini-batches, or left without any group. */
#include <math.h>
#include <stdio.h>

#include "e2e.h"

/* Steps of 4 x 4 rows, of which the ranking keeps some groups, and mini-batches of 8 rows. */
#define ROWS "worker.actor.mini_batch_unit=rows worker.actor.global_batch_size=8 "
#define COPY ROWS "algorithm.batch_adjust_mode=copy "
#define RANKED                                                                               \
    "'worker.reward.rewards=[{name: random}]' worker.rollout.rollout_filter_strategy=top_k " \
    "worker.rollout.rollout_filter_value="
#define GAE "algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3 "

static int run_of(const char *launch, const char *run, int steps, const char *words)
{
    return e2e_program(NULL, "%s --config '%s' trainer.max_steps=%d trainer.threads=1 %s", launch,
                       e2e_train_words(run), steps, words);
}

static int64_t rows_of(const char *run)
{
    int64_t n;
    ares_arena arena = { 0 };
    (void)e2e_rows(&arena, run, "rollouts/step_000001.jsonl", &n);
    ares_arena_fini(&arena);
    return n;
}

static void check_sizes(const char *words, double rows, double minis)
{
    static int run;
    char name[16];
    snprintf(name, sizeof name, "run%d", run++);
    CHECK_EQ(run_of("", name, 1, words), 0);
    CHECK_MSG(e2e_metric(name, 1, "train/batch_size") == rows &&
                  e2e_metric(name, 1, "train/num_mini_batches") == minis &&
                  rows_of(name) == (int64_t)rows,
              "%s: %g rows, %g mini-batches, %lld written", words,
              e2e_metric(name, 1, "train/batch_size"),
              e2e_metric(name, 1, "train/num_mini_batches"), (long long)rows_of(name));
    CHECK(e2e_metric(name, 1, "actor/grad_norm") > 0);
}

TEST(a_filtered_batch_has_whole_mini_batches)
{
    check_sizes(GAE COPY RANKED "0.25", 8, 1);
    check_sizes(GAE COPY RANKED "0.75", 16, 2);
    check_sizes(GAE COPY RANKED "1", 16, 2);
    check_sizes(COPY RANKED "0.75", 16, 2); /* grpo: a copy is an answer of its group */
    check_sizes(COPY RANKED "0.75 worker.rollout.n=3 worker.actor.global_batch_size=6", 12, 2);
    check_sizes(GAE ROWS RANKED "0.75 algorithm.batch_adjust_mode=delete", 8, 1);
    /* more than the rows of the step are masked: they are no part of a mini-batch */
    check_sizes(GAE COPY RANKED "0.25 algorithm.on_exhausted=fill_masked", 8, 1);
}

TEST(by_default_a_filtered_batch_stays_as_it_is)
{
    CHECK_EQ(run_of("", "run", 1, GAE ROWS RANKED "0.75"), 0);
    CHECK_EQ(rows_of("run"), 12);
    CHECK(isnan(e2e_metric("run", 1, "train/batch_size")));
}

TEST(a_batch_that_is_deleted_whole_trains_nothing)
{
    CHECK_EQ(run_of("", "run", 1, GAE ROWS RANKED "0.25 algorithm.batch_adjust_mode=delete"), 0);
    CHECK_EQ(e2e_metric("run", 1, "train/batch_size"), 0);
    CHECK_EQ(e2e_metric("run", 1, "actor/empty_minibatches"), 1);
}

TEST(adjusting_is_refused_where_it_makes_no_sense)
{
    static const char *const cases[][2] = {
        { "algorithm.batch_adjust_mode=copy",
          "copy makes whole mini-batches of rows, and these count prompts" },
        { GAE COPY "worker.critic.mini_batch_unit=prompts worker.critic.global_batch_size=4",
          "and the critic's count prompts" },
        { ROWS "algorithm.batch_adjust_mode=delete",
          "delete may leave a single answer to a prompt, and grpo compares them; set copy" },
    };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str_clear(&out);
        CHECK_EQ(e2e_program(&out, "--config '%s' %s", e2e_train_words("run"), cases[i][0]), 2);
        CHECK_CONTAINS(out.data, cases[i][1]);
    }
    ares_str_fini(&out);
}

TEST(an_adjusted_run_goes_on_bit_for_bit)
{
    static const char words[] = "trainer.save_freq=1 " COPY GAE RANKED "0.75";
    CHECK_EQ(run_of("", "part", 6, words), 0);
    CHECK(e2e_go_back("part", "whole", 3));
    CHECK_EQ(run_of("", "part", 6, words), 0);
    e2e_same_runs("whole", "part", 6);
}

TEST(copies_go_with_aepo_and_its_controls)
{
    CHECK_EQ(run_of("", "run", 3,
                    COPY RANKED
                    "0.75 algorithm.aepo=true algorithm.disable_kl=false worker.actor.dynamic_kl_"
                    "loss=true algorithm.use_kl_loss=true worker.reward.accuracy=random "
                    "'worker.reward.rewards=[{name: random}, {name: aepo}]'"),
             0);
    CHECK_EQ(e2e_metric("run", 3, "train/batch_size"), 16);
    CHECK(e2e_metric("run", 3, "actor/grad_norm") > 0);
}

/* ---------------------------------------------------------------- no group left */

/*
 * Four prompts for each letter, in the order of the file: answers to those of 'z' score 0, and such
 * groups are dropped.
 */
static const char *rows_with(const char *letters)
{
    ares_str rows = { 0 };
    for (int i = 0; letters[i / 4]; i++)
        ares_str_addf(&rows, "{\"prompt\":\"%d\",\"answer\":\"1\",\"rm_type\":\"%s\"}\n", i,
                      letters[i / 4] == 'z' ? "none" : "random");
    const char *path = e2e_write("rows.jsonl", rows.data);
    ares_str_fini(&rows);
    return path;
}

static int dropping(ares_str *out, const char *run, const char *launch, const char *letters,
                    const char *more)
{
    ares_str_clear(out);
    return e2e_program(out,
                       "%s --config '%s' data.train_files='%s' data.shuffle=false "
                       "'worker.reward.rewards=[{name: auto}]' trainer.threads=1 "
                       "trainer.save_freq=1 worker.rollout.rollout_filter_include_zero=false %s",
                       launch, e2e_train_words(run), rows_with(letters), more);
}

static void check_end(const char *run, int64_t last)
{
    ares_arena arena = { 0 };
    int64_t n;
    CHECK_EQ(e2e_metric(run, last, "early_stopped/empty_filtered_steps"), 1);
    CHECK(isnan(e2e_metric(run, last, "actor/lr")));
    const ares_json **end = e2e_rows(&arena, run, "DONE", &n);
    if (CHECK_EQ(n, 1)) {
        CHECK_EQ(ares_json_get(end[0], "step")->integer, last);
        CHECK_VIEW(ares_json_get(end[0], "stopped")->text, "empty_filtered_steps");
    }
    ares_arena_fini(&arena);
}

#define SKIPS                                                 \
    "trainer.max_steps=9 algorithm.filter_empty_policy=skip " \
    "algorithm.filter_empty_stop_steps=3 " GAE

TEST(steps_without_a_group_train_nothing_until_the_run_ends)
{
    ares_str out = { 0 };
    CHECK_EQ(dropping(&out, "run", "", "szzszzzzz", SKIPS), 0);
    CHECK_CONTAINS(out.data, "stopped in step 7 of 9: empty_filtered_steps");
    check_end("run", 7);
    for (int step = 1; step <= 7; step++) {
        bool trained = step == 1 || step == 4;
        CHECK_EQ(e2e_metric("run", step, "rollout/empty_after_filter"), !trained);
        CHECK_EQ(isnan(e2e_metric("run", step, "actor/grad_norm")), !trained);
        CHECK_EQ(isnan(e2e_metric("run", step, "critic/grad_norm")), !trained);
        CHECK(!isnan(e2e_metric("run", step, "rollout/generated_tokens")));
    }
    CHECK_EQ(test_shell(NULL,
                        "cd '%s/checkpoints' && cmp step_000001/model/model.safetensors "
                        "step_000003/model/model.safetensors && "
                        "cmp step_000001/critic/model.safetensors "
                        "step_000003/critic/model.safetensors",
                        test_file("run")),
             0);
    CHECK(e2e_go_back("run", "whole", 6)); /* killed after the second of the last three */
    CHECK_EQ(dropping(&out, "run", "", "szzszzzzz", SKIPS), 0);
    check_end("run", 7);
    e2e_same_runs("whole", "run", 7);
    /* by default the run goes to its end */
    CHECK_EQ(dropping(&out, "default", "", "szzszzzzz", GAE "trainer.max_steps=9"), 0);
    CHECK_EQ(e2e_metric("default", 9, "actor/empty_minibatches"), 1);
    ares_str_fini(&out);
}

/* Schedules follow the training steps, as they do where a step trains on nothing. */
TEST(a_step_without_a_group_moves_the_schedules)
{
    static const char words[] =
        SKIPS "worker.actor.optim.lr_scheduler_type=cosine worker.actor.optim.lr_warmup_steps=2 "
              "worker.critic.optim.lr_scheduler_type=cosine worker.critic.optim.lr_warmup_steps=2 ";
    ares_str out = { 0 };
    CHECK_EQ(dropping(&out, "run", "", "szzszzzzz", words), 0);
    CHECK_EQ(dropping(&out, "default", "", "szzszzzzz",
                      GAE "trainer.max_steps=9 "
                          "worker.actor.optim.lr_scheduler_type=cosine "
                          "worker.actor.optim.lr_warmup_steps=2 "),
             0);
    CHECK_EQ(e2e_metric("run", 4, "actor/lr"), e2e_metric("default", 4, "actor/lr"));
    CHECK(e2e_metric("run", 4, "actor/lr") != e2e_metric("run", 1, "actor/lr"));
    CHECK(e2e_go_back("run", "whole", 3)); /* killed after two without a group */
    CHECK_EQ(dropping(&out, "run", "", "szzszzzzz", words), 0);
    CHECK(e2e_same_runs("whole", "run", 7));
    ares_str_fini(&out);
}

TEST(a_batch_without_a_group_is_drawn_again_ten_times)
{
    static const char words[] = "trainer.max_steps=2 algorithm.filter_empty_policy=retry "
                                "worker.actor.filter_loss_scaling=linear algorithm.disable_kl=true";
    ares_str out = { 0 };
    /* of three rounds the third has scores */
    CHECK_EQ(dropping(&out, "run", "", "zzssssssssssss", words), 0);
    CHECK_EQ(e2e_metric("run", 1, "train/rollout_attempts"), 3);
    CHECK_EQ(e2e_metric("run", 2, "train/rollout_attempts"), 1);
    CHECK_EQ(e2e_metric("run", 1, "filter/generated_groups"), 12);
    CHECK_EQ(e2e_metric("run", 1, "rollout/filter_zero_count"), 8);
    CHECK(e2e_metric("run", 1, "actor/grad_norm") > 0);
    CHECK(isnan(e2e_metric("run", 2, "train/early_stopped")));
    ares_str_clear(&out);
    e2e_values("run/rollouts/step_000001.jsonl", "row", &out);
    CHECK_STR(out.data, " 8 8 8 8 9 9 9 9 10 10 10 10 11 11 11 11");
    CHECK_EQ(dropping(&out, "ninth", "", "zzzzzzzzzssss", words), 0);
    CHECK_EQ(e2e_metric("ninth", 1, "train/rollout_attempts"), 10);
    CHECK(e2e_metric("ninth", 1, "actor/grad_norm") > 0);
    CHECK_EQ(dropping(&out, "tenth", "", "zzzzzzzzzzssss", words), 0);
    CHECK_CONTAINS(out.data, "stopped in step 1 of 2: empty_filtered_steps");
    CHECK_EQ(e2e_metric("tenth", 1, "train/rollout_attempts"), 10);
    check_end("tenth", 1);
    ares_str_fini(&out);
}

TEST_MPI(two_ranks_pass_over_and_draw_again_as_one)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    CHECK_EQ(dropping(&out, "skips", "--ranks 2", "szzszzzzz", SKIPS), 0);
    check_end("skips", 7);
    CHECK(e2e_metric("skips", 4, "critic/grad_norm") > 0);
    CHECK_EQ(dropping(&out, "again", "--ranks 2", "zzssssssssssss",
                      "trainer.max_steps=2 algorithm.filter_empty_policy=retry"),
             0);
    CHECK_EQ(e2e_metric("again", 1, "train/rollout_attempts"), 3);
    CHECK(e2e_metric("again", 1, "actor/grad_norm") > 0);
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- ranks */

TEST_MPI(two_ranks_train_on_the_copies_of_one)
{
    /* with one group of four left, a rank has no row */
    static const char *const words[] = { GAE COPY RANKED "0.25", GAE COPY RANKED "0.75",
                                         COPY RANKED "0.25",
                                         GAE ROWS RANKED
                                         "0.75 algorithm.batch_adjust_mode=delete" };
    static const char *const near[] = { "actor/grad_norm",       "actor/pg_loss",
                                        "critic/score/mean",     "critic/advantages/max",
                                        "reward/overall",        "train/batch_size",
                                        "train/num_mini_batches" };
    E2E_NEEDS_MPI();
    for (int i = 0; i < ARES_COUNT(words); i++) {
        char one[16], two[16];
        snprintf(one, sizeof one, "one%d", i);
        snprintf(two, sizeof two, "two%d", i);
        CHECK_EQ(run_of("", one, 2, words[i]), 0);
        CHECK_EQ(run_of("--ranks 2", two, 2, words[i]), 0);
        for (int step = 1; step <= 2; step++)
            for (int k = 0; k < ARES_COUNT(near); k++) {
                double want = e2e_metric(one, step, near[k]), have = e2e_metric(two, step, near[k]);
                CHECK_MSG(fabs(have - want) <= 1e-5 * fmax(1e-2, fabs(want)),
                          "%s: %s of step %d: %.9g, not %.9g", words[i], near[k], step, have, want);
            }
    }
}
