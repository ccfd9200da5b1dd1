/*
 * Whole AEPO runs: the bootstrap pass over all prompts, groups drawn again, entropy reward, dynamic
 * KL; what a run writes; runs killed at any instant and resumed; runs on two ranks. Most runs judge
 * answers at random (the same answer gets the same score), which makes prompts of all difficulties
 * without a model that has learnt anything.
 *
 * These tests failed when the rewards of the bootstrap pass were counted again in step 1, and when
 * the row of a step was written after its checkpoint (a kill between the two lost it).
 */
#include "aepo_at_work.h"
#include "ares/io.h"

#include <math.h>
#include <stdio.h>

enum { ROWS = 24 };

static const char *write_rows(const char *name, int n, const char *gid)
{
    ares_str rows = { 0 };
    for (int i = 0; i < n; i++)
        ares_str_addf(&rows, "{\"prompt\":\"%d+%d=?\",\"answer\":\"%d\",\"global_id\":\"%s%d\"}\n",
                      i, 3 * i, 4 * i, gid, i);
    const char *path = e2e_write(name, rows.data);
    ares_str_fini(&rows);
    return path;
}

/*
 * The arguments of a run with every part of AEPO: 4 prompts x 4 samples of at most 12 tokens; two
 * groups make an update. Bootstrap batches of 5 divide neither the rows nor the work of two ranks
 * evenly.
 */
static const char *words(const char *run)
{
    char text[3000], name[80];
    snprintf(
        text, sizeof text,
        "trainer: {run_dir: '%s', max_steps: 6, max_try_make_batch: 0, val_freq: 3, logger: "
        "[console]}\n"
        "data: {train_files: '%s', val_files: '%s', max_prompt_length: 48, max_response_length: "
        "12, rollout_batch_size: 4, bootstrap: true, bootstrap_batch_size: 5}\n"
        "algorithm: {adv_estimator: grpo, disable_kl: false, use_kl_loss: true, kl_penalty: "
        "low_var_kl, kl_coef: 1.0e-2, online_filtering: true, filter_key: accuracy,\n"
        "  filter_low: 0.01, filter_high: 0.99, entropy_percentile: 70, entropy_threshold_ema: "
        "0.9}\n"
        "worker:\n"
        "  actor: {model: {model_path: '%s'}, global_batch_size: 2, dynamic_kl_loss: true, optim: "
        "{lr: 1.0e-2, weight_decay: 0.0}}\n"
        "  rollout: {n: 4, window_size: 2}\n"
        "  reward: {reward_function: aepo, accuracy: random}\n",
        test_file(run), write_rows("rows.jsonl", ROWS, "p"), write_rows("val.jsonl", 4, "p"),
        e2e_model());
    snprintf(name, sizeof name, "aepo_%s.yaml", run);
    return e2e_write(name, text);
}

static bool runs(ares_str *out, const char *run, const char *more)
{
    ares_str own = { 0 };
    if (!out) out = &own;
    ares_str_clear(out);
    int rc = e2e_program(out, "--config '%s' %s", words(run), more);
    bool well = CHECK_MSG(rc == 0, "%s", out->data ? out->data : "");
    ares_str_fini(&own);
    return well;
}

/*
 * Checks the rows of a step: the spans in hwe lie inside the answer; kl_weight covers the whole
 * answer with one of two weights, the lower one where the entropies after a token are high. Gives
 * the number of marked tokens.
 */
static int64_t check_rows(const char *run, int step)
{
    ares_jsonl *file;
    const ares_json *row;
    char name[80];
    int64_t line, n, rows = 0, marked = 0;
    snprintf(name, sizeof name, "%s/rollouts/step_%06d.jsonl", run, step);
    if (!CHECK_OK(ares_jsonl_open(test_file(name), &file))) return 0;
    while (ares_jsonl_next(file, &row, &line) == 1) {
        const ares_json *entropies = ares_json_get(row, "entropies"),
                        *hwe = ares_json_get(row, "hwe"), *weight = ares_json_get(row, "kl_weight"),
                        *d = ares_json_get(row, "difficulty");
        if (!CHECK(entropies && hwe && weight && d) ||
            !CHECK_OK(ares_json_get_i64(row, "n_tokens", -1, &n)))
            break;
        CHECK_EQ(entropies->count, n);
        double lambda = 0;
        int64_t covered = 0, high = 0, low = 0;
        for (int64_t i = 0; i < hwe->count; i++) {
            /* the window after a token must be whole */
            CHECK(hwe->items[i].items[0].integer + hwe->items[i].items[1].integer <= n - 2);
            high += hwe->items[i].items[1].integer;
        }
        for (int64_t i = 0; i < weight->count; i++)
            lambda = fmax(lambda, weight->items[i].items[0].number);
        for (int64_t i = 0; i < weight->count; i++) {
            int64_t tokens = weight->items[i].items[1].integer;
            covered += tokens;
            if (weight->items[i].items[0].number < 0.75 * lambda) low += tokens;
        }
        CHECK_EQ(covered, n);
        if (high < n) CHECK_EQ(low, high);
        marked += high;
        rows++;
    }
    ares_jsonl_close(file);
    CHECK_EQ(rows, 16);
    return marked;
}

/*
 * Checks that rollout/generated_tokens counts every sampled token: 24 prompts x 4 answers in the
 * bootstrap pass, then what each step drew. Each prompt of the pass has four answers, so the mean
 * lengths of the difficulties add up to the total.
 */
static void check_generated(const char *run)
{
    double tokens = 0;
    for (int k = 0; k < 3; k++)
        tokens += e2e_metric(run, 0, bucket_metric("bootstrap", k, "/count")) *
                  e2e_metric(run, 0, bucket_metric("bootstrap", k, "/len_mean")) * 4;
    CHECK_NEAR(tokens, e2e_metric(run, 0, "rollout/generated_tokens"), 1e-9 * tokens);
    double of_pass = e2e_metric(run, 0, "rollout/generated_tokens"),
           drawn = e2e_metric(run, 1, "filter/generated_groups");
    CHECK(of_pass >= ROWS * 4 && of_pass <= ROWS * 4 * 12);
    CHECK(e2e_metric(run, 1, "rollout/generated_tokens") <= drawn * 4 * 12);
    CHECK(e2e_metric(run, 1, "rollout/generated_tokens") >
          e2e_metric(run, 1, "response_length/mean") * 16);
}

TEST(a_run_leaves_all_of_aepo_at_work)
{
    ares_str out = { 0 };
    if (runs(&out, "run", "trainer.max_steps=16")) {
        CHECK_CONTAINS(out.data, "bootstrap: 24 of 24 prompts");
        check_aepo_at_work("run", 16);
        int64_t marked = 0;
        for (int i = 1; i <= 16; i++) marked += check_rows("run", i);
        CHECK(marked > 0);
        double count = 0;
        for (int k = 0; k < 3; k++)
            count += e2e_metric("run", 0, bucket_metric("bootstrap", k, "/count"));
        CHECK_EQ(count, ROWS);
        check_generated("run");
        CHECK(!isnan(e2e_metric("run", 16, "val/aepo/tau")));
    }
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- killed and resumed */

/*
 * Starts the run and kills it as soon as the shell condition holds ($dir is the run's folder).
 * False where the run had ended before.
 */
static bool kill_when(const char *run, const char *condition, const char *more)
{
    return test_shell(NULL,
                      "cd '%s'; dir='%s'; '%s' --config '%s' %s >\"$dir.out\" 2>&1 & pid=$!\n"
                      "while kill -0 $pid 2>/dev/null && ! { %s; }; do :; done\n"
                      "kill -KILL $pid 2>/dev/null; wait $pid; test $? = 137",
                      test_source("."), test_file(run), test_program(), words(run), more,
                      condition) == 0;
}

/* Checks that two runs are equal, including the adaptive state. */
static void same(const char *a, const char *b, int steps)
{
    char file[2][120];
    e2e_same_runs(a, b, steps);
    for (int i = 0; i < 2; i++)
        snprintf(file[i], sizeof file[i], "%s/checkpoints/step_%06d/controls.json", i ? b : a,
                 steps);
    CHECK_EQ(test_shell(NULL, "cmp '%s' '%s'", test_file(file[0]), test_file(file[1])), 0);
    CHECK(!isnan(e2e_metric(b, 0, "bootstrap/medium/count")));
}

#define SAVES "trainer.save_freq=4 trainer.max_steps=24"

TEST(a_run_killed_in_the_bootstrap_pass_goes_on_there)
{
    static const char one_by_one[] = SAVES " data.bootstrap_batch_size=1";
    ares_str out = { 0 };
    if (!CHECK(kill_when("part", "test -e \"$dir/bootstrap.json\"", one_by_one))) return;
    CHECK(!ares_file_exists(test_file("part/DONE")));
    REQUIRE(runs(&out, "part", one_by_one));
    CHECK(!strstr(out.data, "bootstrap: 1 of 24 prompts"));
    CHECK_CONTAINS(out.data, "bootstrap: 24 of 24 prompts");
    if (runs(NULL, "whole", one_by_one)) same("whole", "part", 24);
    ares_str_fini(&out);
}

TEST(a_complete_bootstrap_pass_is_not_repeated)
{
    ares_str out = { 0 };
    /* no checkpoint yet */
    if (!CHECK(kill_when("part", "test -e \"$dir/rollouts/step_000002.jsonl\"", SAVES))) return;
    REQUIRE(runs(&out, "part", SAVES));
    CHECK(!strstr(out.data, "bootstrap: "));
    if (runs(NULL, "whole", SAVES)) same("whole", "part", 24);
    ares_str_fini(&out);
}

/*
 * Only groups with two right answers of four are kept, so a batch takes about three draws, and most
 * of a step is drawing again.
 */
#define REFILLS "trainer.save_freq=4 algorithm.filter_low=0.3 algorithm.filter_high=0.7"
#define MANY REFILLS " trainer.max_steps=120 trainer.val_freq=20"

TEST(a_run_killed_at_a_dozen_instants_ends_as_if_it_never_was)
{
    char condition[120];
    int killed = 0;
    for (int i = 0; i < 12; i++) {
        /* kills somewhere in the step after row 9 * i */
        snprintf(condition, sizeof condition,
                 "test \"$(cat \"$dir/metrics.jsonl\" 2>/dev/null | wc -l)\" -ge %d", 9 * i);
        killed += kill_when("part", condition, MANY);
    }
    CHECK(killed >= 3); /* the rest may have found it finished */
    if (!ares_file_exists(test_file("part/DONE")) && !runs(NULL, "part", MANY)) return;
    if (runs(NULL, "whole", MANY)) same("whole", "part", 120);
    CHECK(highest("whole", 120, "filter/tries") > 2);
}

TEST(a_run_killed_while_it_saves_goes_on_from_the_checkpoint_before)
{
    int killed = 0;
    /* on a busy machine a run may end before anybody has looked: then it begins anew */
    for (int i = 0; i < 4 || (i < 12 && !killed); i++) {
        if (!killed) CHECK_OK(ares_dir_remove(test_file("part")));
        killed += kill_when("part", "set -- \"$dir\"/checkpoints/.tmp-*; test -e \"$1\"",
                            "trainer.save_freq=1 trainer.max_steps=24");
    }
    CHECK(killed >= 1);
    if (!ares_file_exists(test_file("part/DONE")) &&
        !runs(NULL, "part", "trainer.save_freq=1 trainer.max_steps=24"))
        return;
    if (runs(NULL, "whole", "trainer.save_freq=1 trainer.max_steps=24")) same("whole", "part", 24);
}

TEST(a_run_killed_behind_its_last_checkpoint_still_tells_what_it_learnt)
{
    ares_str out = { 0 };
    REQUIRE(runs(NULL, "run", ""));
    CHECK_EQ(test_shell(NULL, "cd '%s' && rm DONE && mv summary.txt before.txt", test_file("run")),
             0);
    REQUIRE(runs(&out, "run", ""));
    CHECK_CONTAINS(out.data, "step 6 of 6");
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && test -e DONE && grep -q 'val/accuracy .*[0-9]  *[0-9]' "
                        "summary.txt && cmp summary.txt before.txt",
                        test_file("run")),
             0);
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- data */

TEST(a_data_set_that_ends_within_a_batch_begins_again)
{
    char more[400];
    snprintf(more, sizeof more, REFILLS " trainer.max_steps=24 data.train_files='%s'",
             write_rows("few.jsonl", 8, "p"));
    REQUIRE(runs(NULL, "run", more));
    bool across = false;
    double epoch = 0;
    for (int i = 1; i <= 24; i++) {
        double then = epoch, tries = e2e_metric("run", i, "filter/tries");
        epoch = e2e_metric("run", i, "epoch/id");
        across = across || epoch > then + 1 || tries > 2; /* two draws are an epoch */
        CHECK(epoch >= then);
        CHECK(e2e_metric("run", i, "filter/kept_groups") >= 4);
        CHECK_EQ(e2e_metric("run", i, "reward/overall") > 0, true);
    }
    CHECK(across);
    CHECK_EQ(test_shell(NULL, "test $(cat '%s'/rollouts/*.jsonl | wc -l) = %d", test_file("run"),
                        24 * 16),
             0);
    for (int i = 1; i <= 24; i++)
        CHECK_EQ(test_shell(NULL,
                            "test $(grep -c '\"step\":%d,' '%s'/rollouts/step_%06d.jsonl) = 16", i,
                            test_file("run"), i),
                 0);
}

TEST(groups_that_never_fill_a_batch_end_the_run_with_their_counts)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' worker.reward.accuracy=exact trainer.max_try_make_batch=3",
                         words("run")),
             1);
    CHECK_CONTAINS(out.data, "3 draws gave 12 prompts, of which 0 stay, and a batch takes 4");
    ares_str_fini(&out);
}

TEST(the_state_of_another_data_set_is_refused)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_stop("saved", "KILL", 10,
                      "--config '%s' trainer.save_freq=2 trainer.max_steps=200", words("saved")),
             137);
    write_rows("rows.jsonl", ROWS, "q");
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.save_freq=2 trainer.max_steps=200",
                         test_file("aepo_saved.yaml")),
             1);
    CHECK_CONTAINS(out.data, "another data set");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "--force --config '%s' trainer.save_freq=2 trainer.max_steps=200",
                         test_file("aepo_saved.yaml")),
             0);
    /* resumed, not started anew */
    CHECK(!strstr(out.data, "step 1/200") && ares_file_exists(test_file("saved/DONE")));
    ares_str_clear(&out);
    CHECK(kill_when("begun", "test -e \"$dir/bootstrap.json\"",
                    "trainer.max_steps=200 data.bootstrap_batch_size=1"));
    write_rows("rows.jsonl", ROWS, "q");
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=200 data.bootstrap_batch_size=1",
                         test_file("aepo_begun.yaml")),
             1);
    CHECK_CONTAINS(out.data, "another data set");
    ares_str_fini(&out);
}

/*
 * The model of the run's configuration is made again from another seed: the reference would not be
 * the model with which the run began.
 */
TEST(the_state_of_another_model_is_refused)
{
    static const char *const stops[] = { "test -e \"$dir/checkpoints/step_000004\"",
                                         "test -e \"$dir/bootstrap.json\"" },
                             *const runs_of[] = { "saved", "begun" };
    static const char init[] =
        "init --arch qwen2 --hidden 32 --layers 2 --heads 2 --kv-heads 1 --seed %d --out '%s'";
    ares_str out = { 0 };
    char more[300];
    snprintf(more, sizeof more,
             "trainer.max_steps=60 trainer.save_freq=4 data.bootstrap_batch_size=1 "
             "worker.actor.model.model_path='%s'",
             test_file("mine"));
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("mine")), 0);
        REQUIRE(e2e_program(NULL, init, 5, test_file("mine")) == 0);
        if (!CHECK(kill_when(runs_of[i], stops[i], more))) continue;
        CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("mine")), 0);
        REQUIRE(e2e_program(NULL, init, 6, test_file("mine")) == 0);
        ares_str_clear(&out);
        CHECK_EQ(e2e_program(&out, "--config '%s' %s", words(runs_of[i]), more), 1);
        CHECK_CONTAINS(out.data, "worker.actor.model.model_path");
        CHECK_CONTAINS(out.data, "--force");
        CHECK(!strstr(out.data, "step 60/60"));
        ares_str_clear(&out);
        CHECK_MSG(e2e_program(&out, "--force --config '%s' %s", words(runs_of[i]), more) == 0, "%s",
                  out.data);
    }
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- discarded answers */

/*
 * Groups that only fill the batch change neither AEPO's state nor its metrics nor those of the
 * batch.
 */
TEST(groups_that_only_fill_the_batch_count_nowhere)
{
    static const char *const same[] = { "aepo/tau",
                                        "aepo/hwe_frac",
                                        "reward/medium/count",
                                        "aepo/target/medium",
                                        "response_length/mean",
                                        "response_length/min",
                                        "prompt_length/mean",
                                        "critic/score/mean",
                                        "reward/overall",
                                        "reward/batch_accuracy",
                                        "reward/high_entropy_token_num_score",
                                        "aepo/kl/medium" };
    static const char options[] =
        "data.bootstrap=false trainer.max_steps=1 algorithm.on_exhausted=%s "
        "trainer.max_try_make_batch=1 algorithm.filter_low=0.3 algorithm.filter_high=0.7 "
        "worker.actor.global_batch_size=4 trainer.save_freq=1 trainer.val_before_train=false "
        "trainer.val_freq=-1";
    char more[2][500];
    snprintf(more[0], sizeof more[0], options, "fill_masked");
    snprintf(more[1], sizeof more[1], options, "smaller_batch");
    REQUIRE(runs(NULL, "filled", more[0]));
    REQUIRE(runs(NULL, "small", more[1]));
    CHECK_EQ(test_shell(NULL, "test $(cat '%s' | wc -l) -gt $(cat '%s' | wc -l)",
                        test_file("filled/rollouts/step_000001.jsonl"),
                        test_file("small/rollouts/step_000001.jsonl")),
             0);
    CHECK_EQ(test_shell(NULL, "cmp '%s' '%s'",
                        test_file("filled/checkpoints/step_000001/controls.json"),
                        test_file("small/checkpoints/step_000001/controls.json")),
             0);
    for (int i = 0; i < ARES_COUNT(same); i++) {
        double want = e2e_metric("small", 1, same[i]);
        CHECK_MSG(e2e_metric("filled", 1, same[i]) == want,
                  "%s: %g, and %g with groups that fill the batch", same[i], want,
                  e2e_metric("filled", 1, same[i]));
    }
}

/*
 * Every answer has 12 tokens and 1 is allowed: nothing is learnt from it, neither in the bootstrap
 * pass nor in training.
 */
TEST(a_run_whose_answers_are_all_discarded_learns_nothing_and_goes_on)
{
    static const char options[] =
        "worker.reward.max_length=1 trainer.max_steps=2 trainer.save_freq=2 "
        "algorithm.online_filtering=false 'worker.rollout.stop=[]' trainer.val_freq=-1 "
        "worker.rollout.ignore_eos=true 'data.val_files=[]'";
    ares_str state = { 0 };
    if (runs(NULL, "run", options)) {
        CHECK_EQ(e2e_metric("run", 2, "actor/empty_minibatches"), 2);
        CHECK_EQ(e2e_metric("run", 2, "dapo/discarded_frac"), 1);
        CHECK_EQ(e2e_metric("run", 0, "rollout/generated_tokens"), ROWS * 4 * 12);
        CHECK(isnan(e2e_metric("run", 2, "aepo/tau")) &&
              isnan(e2e_metric("run", 2, "response_length/mean")));
        CHECK_EQ(e2e_metric("run", 2, "reward/empty_responses"), 0);
        CHECK_OK(ares_file_read(test_file("run/checkpoints/step_000002/controls.json"), &state));
        CHECK_CONTAINS(state.data, "\"tau\":null");
        CHECK_CONTAINS(state.data, "\"difficulty\":{}");
        CHECK_CONTAINS(state.data, "\"steps\":0");
    }
    ares_str_fini(&state);
}

/*
 * Wrong answers get a part of the entropy score, but the greedy answer with which they are compared
 * would get none.
 */
TEST(a_greedy_baseline_is_refused_where_scores_are_shaped)
{
    static const char *const shaped[] = {
        "", "worker.reward.reward_function=null 'worker.reward.rewards=[{name: format, pattern: "
            "x}, {name: aepo, weight: 0.5}]' worker.reward.accuracy=aepo"
    };
    ares_str out = { 0 };
    for (int i = 0; i < 2; i++) {
        ares_str_clear(&out);
        CHECK_EQ(e2e_program(&out, "--check --config '%s' algorithm.adv_estimator=remax %s",
                             words("run"), shaped[i]),
                 2);
        CHECK_CONTAINS(out.data,
                       "algorithm.adv_estimator = 'remax': compares answers with a greedy one, "
                       "whose score the reward 'aepo' does not shape as it shapes theirs");
    }
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "--config '%s' algorithm.adv_estimator=remax trainer.max_steps=1",
                         words("run")),
             2);
    /* nothing is compared */
    CHECK_EQ(
        e2e_program(&out, "eval --check --config '%s' algorithm.adv_estimator=remax", words("run")),
        0);
    /* Penalties of length apply to the greedy answer too. */
    CHECK_EQ(e2e_program(&out,
                         "--check --config '%s' algorithm.adv_estimator=remax "
                         "worker.reward.reward_function=null "
                         "'worker.reward.rewards=[{name: boxed}, {name: length, safe_length: 4, "
                         "max_length: 8}]'",
                         words("run")),
             0);
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- KL budgets */

#define BUDGETS                                                                  \
    "data.bootstrap=false algorithm.online_filtering=false trainer.val_freq=-1 " \
    "'data.val_files=[]' worker.actor.global_batch_size=4 "

/* Before the first optimizer step the policy is the reference: only a later pass sees a KL. */
TEST(kl_budgets_see_every_pass_of_the_update)
{
    double sum = 0;
    REQUIRE(runs(NULL, "run", BUDGETS "trainer.max_steps=1 worker.actor.ppo_epochs=2"));
    for (int k = 0; k < 3; k++) {
        double kl = e2e_metric("run", 1, bucket_metric("aepo/kl", k, ""));
        sum += isnan(kl) ? 0 : kl;
    }
    CHECK(sum > 0);
    REQUIRE(runs(NULL, "log",
                 BUDGETS
                 "trainer.max_steps=3 trainer.save_freq=3 worker.actor.ppo_epochs=2 "
                 "worker.actor.global_batch_size=2 algorithm.kl_bucket_controller=log_space"));
    CHECK_EQ(test_shell(NULL, "grep -q '\"kl_beta\":{\"updates\":12,' '%s'",
                        test_file("log/checkpoints/step_000003/controls.json")),
             0);
}

TEST(kl_budgets_rest_while_only_the_critic_learns)
{
    REQUIRE(runs(NULL, "run",
                 BUDGETS
                 "trainer.max_steps=4 algorithm.adv_estimator=gae trainer.critic_warmup=3"));
    for (int i = 1; i <= 3; i++)
        for (int k = 0; k < 3; k++) {
            CHECK_EQ(e2e_metric("run", i, bucket_metric("aepo/kl_lambda", k, "")), 1);
            CHECK(isnan(e2e_metric("run", i, bucket_metric("aepo/kl", k, ""))));
        }
    CHECK(highest("run", 4, "aepo/kl/easy") >= 0 || highest("run", 4, "aepo/kl/medium") >= 0 ||
          highest("run", 4, "aepo/kl/hard") >= 0);
}

TEST_MPI(two_ranks_see_the_kl_of_every_pass_as_one)
{
    static const char words_of[] =
        BUDGETS "trainer.max_steps=1 trainer.threads=1 worker.actor.ppo_epochs=2 "
                "worker.actor.global_batch_size=2";
    char two[400];
    E2E_NEEDS_MPI();
    snprintf(two, sizeof two, "--ranks 2 %s", words_of);
    REQUIRE(runs(NULL, "alone", words_of));
    REQUIRE(runs(NULL, "two", two));
    for (int k = 0; k < 3; k++) {
        double kl = e2e_metric("alone", 1, bucket_metric("aepo/kl", k, "")),
               other = e2e_metric("two", 1, bucket_metric("aepo/kl", k, ""));
        CHECK(isnan(kl) == isnan(other));
        if (!isnan(kl)) CHECK_NEAR(other, kl, 1e-5 * kl);
    }
}

/* ---------------- ranks, and the experiment itself */

/*
 * The step has two mini-batches. Ranks add up gradients in another order, and the first step of
 * AdamW is lr g / |g|: it turns a difference in the last bit of an element near 0 into one as large
 * as lr. At lr 1e-2 the norm of the second mini-batch's gradient then differs by 1e-8 or by 2e-6,
 * depending on the seed; at lr 0 both mini-batches are compared under the weights with which the
 * run began.
 */
#define STILL "trainer.max_steps=1 trainer.threads=1 worker.actor.optim.lr=0"

TEST_MPI(two_ranks_begin_aepo_as_one)
{
    E2E_NEEDS_MPI();
    static const char *const names[] = { "aepo/tau",
                                         "aepo/tau_batch_median",
                                         "aepo/hwe_frac",
                                         "filter/tries",
                                         "filter/kept_groups",
                                         "reward/overall",
                                         "reward/accuracy",
                                         "reward/high_entropy_token_num_score",
                                         "response_length/mean" };
    REQUIRE(runs(NULL, "alone", STILL));
    REQUIRE(runs(NULL, "two", "--ranks 2 " STILL));
    CHECK(e2e_same_rollouts("alone", "two", 1));
    for (int i = 0; i < ARES_COUNT(names); i++)
        CHECK_NEAR(e2e_metric("two", 1, names[i]), e2e_metric("alone", 1, names[i]), 1e-9);
    for (int k = 0; k < 3; k++) {
        static const char *const of[] = { "aepo/alpha", "aepo/target", "aepo/kl_lambda" };
        for (int i = 0; i < ARES_COUNT(of); i++)
            CHECK_NEAR(e2e_metric("two", 1, bucket_metric(of[i], k, "")),
                       e2e_metric("alone", 1, bucket_metric(of[i], k, "")), 1e-9);
        CHECK_NEAR(e2e_metric("two", 0, bucket_metric("bootstrap", k, "/count")),
                   e2e_metric("alone", 0, bucket_metric("bootstrap", k, "/count")), 0);
        CHECK_NEAR(e2e_metric("two", 0, bucket_metric("bootstrap", k, "/acc_mean")),
                   e2e_metric("alone", 0, bucket_metric("bootstrap", k, "/acc_mean")), 0);
    }
    double norm = e2e_metric("alone", 1, "actor/grad_norm");
    CHECK(norm > 0);
    CHECK_NEAR(e2e_metric("two", 1, "actor/grad_norm"), norm, 1e-7 * norm);
    CHECK_EQ(test_shell(NULL, "cmp '%s' '%s'", test_file("alone/bootstrap.json"),
                        test_file("two/bootstrap.json")),
             0);
}

TEST_MPI(four_ranks_learn_by_aepo_whatever_they_share)
{
    E2E_NEEDS_MPI();
    char run[16], more[500];
    for (int i = 0; i < E2E_SHARED; i++) {
        snprintf(run, sizeof run, "share%d", i);
        snprintf(more, sizeof more,
                 "--ranks 4 trainer.max_steps=2 trainer.threads=1 data.rollout_batch_size=8 "
                 "worker.actor.global_batch_size=4 %s",
                 e2e_shared[i]);
        REQUIRE(runs(NULL, run, more));
        if (i) CHECK(e2e_same_runs("share0", run, 2));
    }
}

/*
 * Runs a script of the studies on a copy of their folder, with the small model of these tests and
 * runs of two steps.
 */
static int study(ares_str *out, const char *words)
{
    ares_str_clear(out);
    return test_shell(
        out,
        "set -e; cd '%s'; mkdir -p models runs/AEPO/tiny_start; touch runs/AEPO/tiny_start/DONE; [ "
        "-e experiments ] || cp -r '%s' experiments; [ -e models/tiny ] || ln -s '%s' models/tiny\n"
        "printf '#!/bin/sh\\nexec \"%s\" \"$@\"\\n' > program; chmod +x program\n"
        "ARES_TRAIN=\"$PWD/program\" experiments/AEPO/%s trainer.max_steps=2 "
        "worker.actor.model.model_path=models/tiny worker.reward.accuracy=random "
        "data.rollout_batch_size=2 "
        "worker.actor.global_batch_size=2 worker.rollout.n=4 data.max_response_length=12 "
        "data.bootstrap_batch_size=240 trainer.val_before_train=false 2>&1",
        test_dir(), test_source("experiments"), e2e_model(), test_program(), words);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    return n;
}

TEST_SLOW(a_study_goes_on_after_a_failure_and_skips_what_is_finished)
{
    ares_str out = { 0 };
    CHECK_EQ(ares_dir_make(test_file("runs/AEPO/ablation/tiny/no_filtering/seed_2")), ARES_OK);
    /* another run, which has answered prompts: refused */
    e2e_write("runs/AEPO/ablation/tiny/no_filtering/seed_2/config.yaml", "data: {seed: 7}\n");
    e2e_write("runs/AEPO/ablation/tiny/no_filtering/seed_2/bootstrap.json", "{}\n");
    CHECK_MSG(study(&out, "ablation.sh --tiny --seeds '1 2'") == 1, "%s", out.data);
    CHECK_CONTAINS(out.data, "failed: runs/AEPO/ablation/tiny/no_filtering/seed_2\n");
    CHECK_CONTAINS(out.data, "| plain GRPO                 | 2    |");
    CHECK_CONTAINS(out.data, "| no filtering               | 1    |");
    CHECK_EQ(
        test_shell(NULL, "rm -r '%s'", test_file("runs/AEPO/ablation/tiny/no_filtering/seed_2")),
        0);
    CHECK_MSG(study(&out, "ablation.sh --tiny --seeds '1 2'") == 0, "%s", out.data);
    CHECK_EQ(count(out.data, " is finished\n"), 13);
    CHECK_CONTAINS(out.data, "| no filtering               | 2    |");
    CHECK_CONTAINS(out.data, "figure: runs/AEPO/ablation/tiny/length.svg");
    CHECK(ares_file_exists(test_file("runs/AEPO/ablation/tiny/accuracy.svg")) &&
          ares_file_exists(test_file("runs/AEPO/ablation/tiny/table.md")));
    ares_str_fini(&out);
}

TEST_SLOW(a_study_runs_the_variants_that_are_named)
{
    ares_str out = { 0 };
    CHECK_EQ(study(&out, "ablation.sh --tiny --seeds 1 --only 'plain GRPO' --only 'full'"), 2);
    CHECK_CONTAINS(out.data, "--only: 'full': no such variant; the study has\n  full AEPO\n");
    CHECK(!ares_dir_exists(test_file("runs/AEPO/ablation")));
    CHECK_MSG(study(&out, "ablation.sh --tiny --seeds 1 --only 'plain GRPO' --only 'full AEPO'") ==
                  0,
              "%s", out.data);
    CHECK_EQ(test_shell(NULL,
                        "test $(ls -d '%s'/runs/AEPO/ablation/tiny/*/seed_1/DONE | wc -l) = 2",
                        test_dir()),
             0);
    ares_str_fini(&out);
}

TEST_SLOW(the_sweeps_have_nine_variants_each)
{
    static const char *const sweeps[] = { "sweep_entropy", "sweep_kl" };
    ares_str out = { 0 };
    for (int i = 0; i < 2; i++) {
        char words[64];
        snprintf(words, sizeof words, "%s.sh --tiny --seeds 1", sweeps[i]);
        CHECK_MSG(study(&out, words) == 0, "%s", out.data);
        CHECK_EQ(test_shell(NULL, "test $(ls -d '%s'/runs/AEPO/%s/tiny/*/seed_1/DONE | wc -l) = 9",
                            test_dir(), sweeps[i]),
                 0);
    }
    ares_str_fini(&out);
}

/*
 * experiments/AEPO/tiny.yaml unchanged but with fewer steps: boxed sums, and a model that was
 * trained to answer them.
 */
TEST_SLOW(the_experiment_puts_aepo_to_work)
{
    enum { STEPS = 30 };
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(NULL, "init --arch qwen2 --out '%s' --seed 1", test_file("tiny")), 0);
    int rc =
        e2e_program(&out,
                    "sft --config experiments/AEPO/tiny_sft.yaml "
                    "worker.actor.model.model_path='%s' trainer.run_dir='%s' trainer.max_steps=400",
                    test_file("tiny"), test_file("start"));
    if (rc == 0)
        rc = e2e_program(
            &out,
            "--config experiments/AEPO/config.yaml --config experiments/AEPO/tiny.yaml "
            "worker.actor.model.model_path='%s' trainer.run_dir='%s' trainer.max_steps=%d",
            test_file("start"), test_file("run"), STEPS);
    if (CHECK_MSG(rc == 0, "%s", out.data)) check_aepo_at_work("run", STEPS);
    ares_str_fini(&out);
}
