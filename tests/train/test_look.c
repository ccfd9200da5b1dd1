/* A run directory as `report`, `watch` and `runs` read it: whole, torn, under way, killed. */
#include "look/look.h"
#include "test.h"

#include <math.h>
#include <stdio.h>

#include "ares/io.h"

static void put(const char *name, const char *text)
{
    CHECK_OK(ares_file_write_atomic(test_file(name), text, strlen(text)));
}

TEST(a_step_logged_twice_counts_once_and_its_last_values_hold)
{
    ares_arena arena = { 0 };
    ares_look l;
    put("metrics.jsonl", "{\"step\":0,\"val/accuracy\":0.25}\n{\"step\":0,\"aepo/tau\":3}\n"
                         "{\"step\":1,\"a\":1}\n{\"step\":3,\"a\":9,\"b\":2}\n"
                         "{\"step\":2,\"a\":5}\n{\"step\":3,\"a\":4}\n");
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    CHECK_EQ(l.rows, 4);
    CHECK_EQ(l.steps, 3);
    CHECK_EQ(l.last_step, 3);
    const double *a = ares_look_values(&l, "a"), *b = ares_look_values(&l, "b");
    REQUIRE(a && b);
    CHECK(isnan(a[0]) && isnan(b[2]));
    CHECK_NEAR(a[1], 1, 0);
    CHECK_NEAR(a[2], 5, 0);
    CHECK_NEAR(a[3], 4, 0); /* the later line's */
    CHECK_NEAR(b[3], 2, 0); /* which the later line lacks */
    CHECK_NEAR(ares_look_last(&l, "aepo/tau"), 3, 0);
    CHECK(!ares_look_values(&l, "step"));
    CHECK_EQ(l.n_notes, 0);
    ares_arena_fini(&arena);
}

TEST(a_torn_last_line_is_left_out_and_a_bad_one_ends_the_reading)
{
    ares_arena arena = { 0 };
    ares_look l;
    put("metrics.jsonl", "{\"step\":1,\"a\":1}\n{\"step\":2,\"a\":2");
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    CHECK_EQ(l.last_step, 1);
    REQUIRE(l.n_notes == 1);
    CHECK_CONTAINS(l.notes[0], "metrics.jsonl:2: the last line has no end");
    put("metrics.jsonl", "{\"step\":1,\"a\":1}\n{\"step\":2,\"a\":\n{\"step\":3,\"a\":3}\n");
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    CHECK_EQ(l.last_step, 1);
    REQUIRE(l.n_notes == 1);
    CHECK_CONTAINS(l.notes[0], "metrics.jsonl:2:");
    CHECK_CONTAINS(l.notes[0], "read up to there");
    put("metrics.jsonl", "{\"step\":1,\"a\":1}\n[1]\n");
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    CHECK_CONTAINS(l.notes[0], "metrics.jsonl:2: no step in this line");
    put("metrics.jsonl", "");
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    CHECK_EQ(l.rows, 0);
    ares_arena_fini(&arena);
}

TEST(the_ends_of_a_long_file_are_read_without_its_middle)
{
    ares_arena arena = { 0 };
    ares_look l;
    ares_str text = { 0 };
    for (int i = 1; i <= 5000; i++)
        ares_str_addf(&text, "{\"step\":%d,\"reward/accuracy\":%d}\n", i, 2 * i);
    put("metrics.jsonl", text.data);
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 1000, &l));
    CHECK(l.rows > 50 && l.rows < 200);
    CHECK_NEAR(ares_look_values(&l, "reward/accuracy")[0], 2, 0);
    CHECK_NEAR(ares_look_last(&l, "reward/accuracy"), 10000, 0);
    CHECK_EQ(l.n_notes, 0);
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 1 << 20, &l));
    CHECK_EQ(l.rows, 5000);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
}

/* Rows that make every rule speak; filtered: of a run that drops groups without signal. */
static void put_judged(bool filtered)
{
    ares_str text = { 0 };
    for (int s = 1; s <= 8; s++) {
        ares_str_addf(&text,
                      "{\"step\":%d,\"other\":1e-3,\"gone\":null,\"critic/score/mean\":0.%d,"
                      "\"critic/score/max\":1,\"critic/score/min\":1.0,\"reward/accuracy\":%g,"
                      "\"rollout/entropy\":%g,\"actor/kl\":0.%d,\"actor/ppo_kl_k3\":1.5e-1,"
                      "\"actor/pg_clipfrac_higher\":0.6,\"actor/pg_clipfrac_lower\":0.7,"
                      "\"response_length/clip_ratio\":0.%d,\"response_length/mean\":%d,"
                      "\"reward/failed/a\":%d,\"reward/extract_fail_rate\":0.2,"
                      "\"actor/grad_norm\":%d,\"actor/skipped_updates\":%d,"
                      "\"exact/rollout_train_max_abs\":0.001,\"reward/overall\":0.%d,"
                      "\"timing_s/step\":%d,\"val/accuracy\":0.5,\"%s\":0.%d%s}\n",
                      s, s, 1 - 0.1 * s, 3.0 / s, s, s, 10 * s, s, s, s == 5, s, s,
                      filtered ? "rollout/filter_zero_count" : "rollout/mixed_groups_frac", s,
                      filtered ? ",\"filter/generated_groups\":1" : "");
        /* what a brief reading leaves to the reader of JSON */
        if (s == 3) ares_str_add_z(&text, "{\"step\":3,\"b\\u0041\":1,\"actor/kl\": 0.25}\n");
        if (s == 4) ares_str_add_z(&text, "{\"a\":true,\"actor/kl\":0.35,\"step\":4.0}\n");
    }
    put("metrics.jsonl", text.data);
    ares_str_fini(&text);
}

TEST(a_brief_reading_gives_the_same_verdicts)
{
    for (int filtered = 0; filtered < 2; filtered++) {
        ares_arena arena = { 0 };
        ares_look l[2];
        ares_look_verdicts v[2];
        put_judged(filtered);
        for (int brief = 0; brief < 2; brief++) {
            REQUIRE_OK(ares_look_read(&arena, test_dir(), brief ? 64 << 10 : 0, &l[brief]));
            ares_look_judge(&arena, &l[brief], NULL, &v[brief]);
        }
        REQUIRE(v[0].n == 13 && v[1].n == 13);
        for (int i = 0; i < v[0].n; i++) {
            CHECK_STR(v[1].each[i].id, v[0].each[i].id);
            CHECK_STR(v[1].each[i].why, v[0].each[i].why);
            CHECK_EQ(v[1].each[i].level, v[0].each[i].level);
        }
        CHECK_EQ(ares_look_values(&l[1], "actor/kl")[2], 0.25);
        CHECK_EQ(ares_look_values(&l[1], "actor/kl")[3], 0.35);
        CHECK(!ares_look_values(&l[1], "other"));
        ares_arena_fini(&arena);
    }
}

/* Its answers have rewards of 0 that nobody gave, or that no loss reads. */
TEST(rewards_that_teach_nothing_are_not_judged)
{
    enum { CONSTANT = 1, SIGNAL = 2, FAILURES = 4 };
    static const struct {
        const char *options;
        int judged;
    } cases[] = {
        { "{}", CONSTANT | SIGNAL | FAILURES },
        { "{enabled: true, context: row, distillation_loss: {use_task_rewards: false}}", 0 },
        { "{enabled: true, context: group, distillation_loss: {use_task_rewards: false}}",
          CONSTANT | FAILURES },
        { "{enabled: true, context: row, distillation_loss: {use_task_rewards: true}}",
          CONSTANT | SIGNAL | FAILURES },
        { "{enabled: false, context: row, distillation_loss: {use_task_rewards: false}}",
          CONSTANT | SIGNAL | FAILURES },
    };
    static const char *const rules[] = { "constant_reward", "signal", "failures" };
    put_judged(false);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_arena arena = { 0 };
        ares_look l;
        ares_look_verdicts v;
        int judged = 0;
        put("config.yaml", ares_arena_printf(&arena, "distillation: %s\n", cases[i].options));
        REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
        ares_look_judge(&arena, &l, NULL, &v);
        for (int k = 0; k < v.n; k++)
            for (int r = 0; r < ARES_COUNT(rules); r++)
                if (strcmp(v.each[k].id, rules[r]) == 0) judged |= 1 << r;
        CHECK_EQ(judged, cases[i].judged);
        ares_arena_fini(&arena);
    }
}

TEST(a_brief_reading_ends_at_a_line_that_is_none)
{
    static const char *const bad[] = { "{\"step\":2,\"actor/kl\":1.2.3}",
                                       "{\"step\":2 \"a\":1}",
                                       "{\"step\":2,\"a\"}",
                                       "{\"step\":2,\"a\":1,}",
                                       "{}",
                                       "{\"actor/kl\":1}",
                                       "{\"step\":null}",
                                       "{\"step\":\"2\"}",
                                       "{\"step\":1e308}",
                                       "{\"step\":-1e17}" };
    for (int i = 0; i < 2 * ARES_COUNT(bad); i++) { /* and the whole reading at the same */
        ares_arena arena = { 0 };
        ares_look l;
        char text[200];
        snprintf(text, sizeof text, "{\"step\":1,\"actor/kl\":0.5}\n%s\n{\"step\":3}\n",
                 bad[i / 2]);
        put("metrics.jsonl", text);
        REQUIRE_OK(ares_look_read(&arena, test_dir(), i % 2 ? 64 << 10 : 0, &l));
        CHECK_EQ(l.rows, 1);
        CHECK_EQ(ares_look_values(&l, "actor/kl")[0], 0.5);
        REQUIRE(l.n_notes == 1);
        CHECK_CONTAINS(l.notes[0], "metrics.jsonl:2");
        ares_arena_fini(&arena);
    }
}

TEST(done_the_lock_and_run_json_say_how_a_run_stands)
{
    ares_arena arena = { 0 };
    ares_look l;
    int lock;
    put("metrics.jsonl", "{\"step\":1}\n");
    put("config.yaml", "trainer:\n  max_steps: 12\ndata:\n  answer_key: \"a: b\"\n"
                       "  names: [x, y]\nworker:\n  rollout:\n    n: 4\n");
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    CHECK_EQ(l.state, ARES_LOOK_DIED);
    CHECK_EQ(l.planned, 12);
    CHECK_NEAR(look_option_number(&l, "worker.rollout.n", 0), 4, 0);
    CHECK_NEAR(look_option_number(&l, "worker.rollout.m", -7), -7, 0);
    REQUIRE(look_option(&l, "data.answer_key"));
    CHECK_STR(look_option(&l, "data.answer_key")->text.data, "a: b");
    /* this process's own lock stays its own although the directory is read */
    REQUIRE_OK(ares_lock_take(test_dir(), &lock));
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    CHECK_EQ(l.state, ARES_LOOK_RUNNING);
    CHECK(ares_lock_held(test_dir()));
    ares_lock_drop(lock);
    put("run.json", "{\"stopped\":\"signal 15\"}");
    put("config.yaml", "trainer:\n  max_steps: null\n");
    REQUIRE_OK(ares_dir_make(test_file("checkpoints/step_000001")));
    put("checkpoints/step_000001/state.json", "{\"total_steps\":40}");
    put("checkpoints/latest", "step_000001");
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    CHECK_EQ(l.state, ARES_LOOK_STOPPED);
    CHECK_STR(l.stopped, "signal 15");
    CHECK_EQ(l.planned, 40);
    put("DONE", "{\"step\":1,\"stopped\":\"collapse\"}\n");
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    CHECK_EQ(l.state, ARES_LOOK_STOPPED);
    CHECK_STR(l.stopped, "collapse");
    put("DONE", "");
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    CHECK_EQ(l.state, ARES_LOOK_FINISHED);
    /* what is not readable is said, and the rest is read */
    put("config.yaml", "a: [1\n");
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    CHECK(!l.config);
    CHECK_CONTAINS(l.notes[0], "config.yaml: not readable");
    CHECK_FAIL(ares_look_read(&arena, test_file("metrics.jsonl"), 0, &l), ARES_EUSE,
               "no metrics.jsonl: not a run directory, or its first step has not ended");
    ares_arena_fini(&arena);
}

TEST(validations_are_paired_by_question_over_its_samples)
{
    REQUIRE_OK(ares_dir_make(test_file("validation")));
    CHECK_EQ(look_validation(test_dir()).n, 0);
    /* row 1 of two data sets is two questions; row 2 has no accuracy at first, and does not count
     */
    put("validation/step_000000.jsonl",
        "{\"data_set\":\"a\",\"row\":1,\"sample\":0,\"accuracy\":0}\n"
        "{\"data_set\":\"a\",\"row\":1,\"sample\":1,\"accuracy\":1}\n"
        "{\"data_set\":\"b\",\"row\":1,\"accuracy\":0}\n{\"row\":2,\"accuracy\":null}\n");
    put("validation/step_000004.jsonl", "{\"row\":9,\"accuracy\":1}\n");
    put("validation/step_000008.jsonl",
        "{\"row\":2,\"accuracy\":1}\n{\"data_set\":\"b\",\"row\":1,\"accuracy\":1}\n"
        "{\"data_set\":\"a\",\"row\":1,\"accuracy\":1}\n{\"data_set\":\"a\",\"row\":1,\"acc");
    put("validation/step_8.jsonl", "none of ours");
    ares_look_paired p = look_validation(test_dir());
    CHECK_EQ(p.n, 2);
    CHECK_EQ(p.step[0], 0);
    CHECK_EQ(p.step[1], 8);
    CHECK_NEAR(p.accuracy[0], 0.25, 1e-12);
    CHECK_NEAR(p.accuracy[1], 1, 1e-12);
    CHECK_NEAR(p.mean, 0.75, 1e-12);
}

TEST(turns_of_an_episode_and_copies_of_a_row_are_one_answer)
{
    ares_arena arena = { 0 };
    ares_look l;
    REQUIRE_OK(ares_dir_make(test_file("rollouts")));
    put("metrics.jsonl", "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
    /* group 7: the same first turn, another second one; a copy of a row. Group 8: the same text */
    put("rollouts/step_000001.jsonl",
        "{\"draw\":7,\"sample\":0,\"turn\":0,\"response\":\"up\"}\n"
        "{\"draw\":7,\"sample\":0,\"turn\":1,\"response\":\"left\"}\n"
        "{\"draw\":7,\"sample\":1,\"turn\":0,\"response\":\"up\"}\n"
        "{\"draw\":7,\"sample\":1,\"turn\":1,\"response\":\"right\"}\n"
        "{\"draw\":7,\"sample\":1,\"turn\":1,\"response\":\"right\"}\n"
        "{\"draw\":8,\"sample\":0,\"response\":\"x\"}\n{\"draw\":8,\"sample\":1,\"response\":\"x\"}"
        "\n");
    put("rollouts/step_000003.jsonl", "{\"draw\":1,\"sample\":0,\"response\":\"alone\"}\n");
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    look_read_distinct(&arena, &l);
    const double *share = ares_look_values(&l, ARES_LOOK_DISTINCT);
    REQUIRE(share);
    CHECK_NEAR(share[0], 0.75, 1e-12);
    CHECK(isnan(share[1]) && isnan(share[2]));
    ares_arena_fini(&arena);
}

TEST(the_headline_says_what_was_learnt_or_that_nothing_shows_it)
{
    ares_arena arena = { 0 };
    ares_look l;
    ares_look_verdicts v;
    put("metrics.jsonl", "{\"step\":1,\"critic/score/mean\":1}\n");
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    ares_look_paired none = { 0 }, better = {
        .n = 40, .accuracy = { 0.25, 0.5 }, .mean = 0.25, .half_width = 0.1
    };
    ares_look_judge(&arena, &l, &none, &v);
    CHECK_STR(v.headline, "1 step, without a validation at both ends");
    ares_look_judge(&arena, &l, &better, &v);
    CHECK_STR(v.headline, "Accuracy rose from 25.0 % to 50.0 % on 40 validation questions");
    CHECK_EQ(v.level, ARES_VERDICT_GOOD);
    CHECK_EQ(v.count[ARES_VERDICT_WARN], 1); /* the run is not finished */
    CHECK_STR(v.each[0].id, "end");
    better.mean = -0.25;
    ares_look_judge(&arena, &l, &better, &v);
    CHECK_CONTAINS(v.headline, "Accuracy fell from");
    CHECK_STR(v.each[0].title, "It got worse");
    /* without accuracies of two validations it says what there is */
    static const struct {
        const char *rows, *headline, *why;
        ares_look_level level;
    } cases[] = {
        { "{\"step\":0,\"val/loss\":2}\n{\"step\":9,\"val/loss\":0.5,\"train/loss\":1}\n",
          "Validation loss 2, then 0.5 after 1 step", "2 → 0.5 (−75 %)", ARES_VERDICT_GOOD },
        { "{\"step\":0,\"val/loss\":2}\n{\"step\":2,\"train/loss\":1,\"val/loss\":2.5}\n",
          "Validation loss 2, then 2.5 after 1 step", "2 → 2.5 (+25 %)", ARES_VERDICT_WARN },
        { "{\"step\":1,\"train/loss\":3}\n{\"step\":2,\"train/loss\":1}\n",
          "Training loss from 3 to 1 in 2 steps, without a validation at both ends", NULL,
          ARES_VERDICT_OFF },
        { "{\"step\":0,\"val/reward_score\":0.25}\n"
          "{\"step\":1,\"critic/score/mean\":1,\"val/reward_score\":0.5}\n",
          "1 step; validation reward 0.25, then 0.5, without an accuracy",
          "the validations have no accuracy to compare by question; worker.reward.accuracy names "
          "the reward that is one",
          ARES_VERDICT_OFF },
        { "{\"step\":0,\"val/accuracy\":0.25}\n{\"step\":1,\"reward/accuracy\":1}\n",
          "1 step, with one validation alone", "one validation alone; trainer.val_freq makes more",
          ARES_VERDICT_OFF },
        { "", "No step has ended", NULL, ARES_VERDICT_OFF },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const char *why = NULL;
        put("metrics.jsonl", cases[i].rows);
        REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
        ares_look_judge(&arena, &l, &none, &v);
        CHECK_STR(v.headline, cases[i].headline);
        CHECK_EQ(v.level, cases[i].level);
        for (int k = 0; k < v.n; k++) {
            if (strcmp(v.each[k].id, "learning") == 0) why = v.each[k].why;
            CHECK(*cases[i].rows || strcmp(v.each[k].id, "failures") != 0); /* nothing was judged */
        }
        if (cases[i].why) CHECK_STR(why, cases[i].why);
        else CHECK(!why);
    }
    ares_arena_fini(&arena);
}

TEST(the_largest_numbers_are_judged_and_said_shortly)
{
    ares_arena arena = { 0 };
    ares_look l;
    ares_look_verdicts v;
    ares_str text = { 0 };
    for (int s = 1; s <= 16; s++)
        ares_str_addf(&text,
                      "{\"step\":%d,\"actor/grad_norm\":1e308,\"rollout/entropy\":1.5e308,"
                      "\"actor/kl\":1e308,\"response_length/mean\":-1e308}\n",
                      s);
    put("metrics.jsonl", text.data);
    REQUIRE_OK(ares_look_read(&arena, test_dir(), 0, &l));
    ares_look_judge(&arena, &l, NULL, &v);
    for (int i = 0; i < v.n; i++) {
        CHECK_MSG(strlen(v.each[i].why) < 120, "%s", v.each[i].why);
        CHECK_MSG(!strstr(v.each[i].why, "inf") && !strstr(v.each[i].why, "nan"), "%s",
                  v.each[i].why);
        if (strcmp(v.each[i].id, "entropy") == 0)
            CHECK_STR(v.each[i].why, "1.5e+308 → 1.5e+308 nats a token (unchanged)");
    }
    ares_str_fini(&text);
    ares_arena_fini(&arena);
}
