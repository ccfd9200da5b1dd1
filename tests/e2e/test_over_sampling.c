/*
 * Over-sampling and partial rollouts in whole runs. That they take and cut the right groups is
 * shown in tests/train/test_oversample.c.
 */
#include "e2e.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "disk.h"
#include "laws.h"

/* Answers of many lengths, right by chance; each step is saved. */
#define VARIED                                                                   \
    "'worker.reward.rewards=[{name: random}]' worker.reward.accuracy=random "    \
    "data.max_response_length=40 trainer.save_freq=1 trainer.save_minutes=null " \
    "'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w]' "
#define EQUAL                                                                 \
    "'worker.reward.rewards=[{name: random}]' worker.reward.accuracy=random " \
    "worker.rollout.ignore_eos=true trainer.save_freq=1 trainer.save_minutes=null "
#define PARTIAL                                                              \
    "curriculum.over_sampling_batch_size=8 curriculum.partial_rollout=true " \
    "curriculum.recycle_surplus=true "
#define FILTERED "algorithm.filter_groups.enable=true "

static bool trains(const char *run, int steps, const char *launch, const char *words)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "%s --config '%s' trainer.max_steps=%d %s", launch,
                         e2e_train_words(run), steps, words);
    bool good = CHECK_MSG(rc == 0, "%s: %s", run, out.data ? out.data : "");
    ares_str_fini(&out);
    return good;
}

/* Whether weights, rollouts and metrics are equal; those of a loop are its own. */
static void same_but_for_the_loop(const char *a, const char *b, int steps)
{
    static const char *const own[] = { "over_sampling/", "epoch/", NULL };
    ares_str out = { 0 };
    int rc = test_shell(&out,
                        "cd '%s' && diff -rq %s/rollouts %s/rollouts && diff -rq "
                        "%s/checkpoints/step_00000%d/model %s/checkpoints/step_00000%d/model",
                        test_file("."), a, b, a, steps, b, steps);
    CHECK_MSG(rc == 0, "%s", out.data ? out.data : "");
    laws_same(a, b, steps, 0, own, a);
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- against the plain loop */
TEST(a_fetch_of_the_batch_is_the_plain_loop)
{
    static const char *const more[] = { "", "algorithm.adv_estimator=remax",
                                        "algorithm.adv_estimator=gae algorithm.aepo=true" };
    for (int i = 0; i < ARES_COUNT(more); i++) {
        char words[1500], plain[32], over[32];
        snprintf(plain, sizeof plain, "plain_%d", i);
        snprintf(over, sizeof over, "over_%d", i);
        snprintf(words, sizeof words, VARIED "%s", more[i]);
        REQUIRE(trains(plain, 3, "", words));
        snprintf(words, sizeof words, VARIED "%s curriculum.over_sampling_batch_size=4", more[i]);
        REQUIRE(trains(over, 3, "", words));
        same_but_for_the_loop(plain, over, 3);
    }
}

/* Answers of one length end in the order of their draws, so that both loops take the same. */
TEST(answers_of_one_length_make_the_batches_of_the_plain_loop)
{
    REQUIRE(trains("plain", 4, "", EQUAL FILTERED "data.mini_rollout_batch_size=6"));
    REQUIRE(trains("over", 4, "", EQUAL FILTERED "curriculum.over_sampling_batch_size=6"));
    CHECK(e2e_metric("over", 1, "over_sampling/groups") >= 6);
    same_but_for_the_loop("plain", "over", 4);
}

/* ---------------------------------------------------------------- going on */
static void killed_and_resumed(const char *more)
{
    enum { STEPS = 5 };
    char words[1500];
    snprintf(words, sizeof words, VARIED PARTIAL "%s", more);
    REQUIRE(trains("run", STEPS, "", words));
    double back = 0;
    for (int step = 1; step < STEPS; step++) {
        back += e2e_metric("run", step, "over_sampling/given_back_groups");
        REQUIRE(e2e_go_back("run", "whole", step));
        snprintf(words, sizeof words,
                 VARIED PARTIAL "%s worker.rollout.max_num_seqs=5 trainer.threads=2", more);
        REQUIRE(trains("run", STEPS, "", words));
        e2e_same_runs("whole", "run", STEPS);
    }
    CHECK(back > 0);
}

TEST(what_was_cut_goes_on_after_a_kill_at_each_step)
{
    killed_and_resumed("");
}
TEST(what_was_cut_goes_on_after_a_kill_beside_filters_and_a_critic)
{
    killed_and_resumed(FILTERED "algorithm.adv_estimator=gae "
                                "curriculum.mask_offpolicy_in_partial_rollout=true");
}

/* With --force answers that are longer than is allowed now end as they are. */
TEST(answers_over_a_new_limit_end_at_once)
{
    static const char words[] =
        VARIED "curriculum.over_sampling_batch_size=8 curriculum.partial_rollout=true ";
    char less[1000];
    REQUIRE(trains("run", 3, "", words));
    REQUIRE(e2e_metric("run", 2, "over_sampling/given_back_groups") > 0);
    REQUIRE(e2e_go_back("run", "whole", 2));
    snprintf(less, sizeof less, "%s data.max_response_length=3 --force", words);
    REQUIRE(trains("run", 3, "", less));
    CHECK(e2e_metric("run", 3, "response_length/max") > 3);
    CHECK(e2e_metric("run", 3, "over_sampling/length") <= 3);
}

/* ---------------------------------------------------------------- several data sets */
/* Two data sets whose weights and caps move; each takes back its own prompts. */
static const char *mixed(void)
{
    static char words[2000];
    char path[2][300];
    for (int k = 0; k < 2; k++) {
        ares_str rows = { 0 };
        for (int i = 0; i < 9 - 4 * k; i++)
            ares_str_addf(&rows, "{\"prompt\":\"%c %d\",\"answer\":\"%d\"}\n", 'a' + k, i, i);
        snprintf(path[k], sizeof path[k], "%s", e2e_write(k ? "b.jsonl" : "a.jsonl", rows.data));
        ares_str_fini(&rows);
    }
    snprintf(words, sizeof words,
             VARIED PARTIAL
             "'data.train_files=[%s, %s]' algorithm.dynamic_sampling_filter=reward_cap "
             "'curriculum.weights=[\"0.8 - 0.1 * step\", increasing_weight]' "
             "'curriculum.reward_caps=[0.6, \"0.4 + step / 20\"]' ",
             path[0], path[1]);
    return words;
}

TEST(what_was_cut_of_several_data_sets_goes_on_after_a_kill)
{
    enum { STEPS = 6 };
    const char *words = mixed();
    double back = 0;
    REQUIRE(trains("run", STEPS, "", words));
    for (int step = 1; step < STEPS; step += 2) {
        back += e2e_metric("run", step, "over_sampling/given_back_groups");
        REQUIRE(e2e_go_back("run", "whole", step));
        REQUIRE(trains("run", STEPS, "", words));
        e2e_same_runs("whole", "run", STEPS);
    }
    CHECK(back > 0);
}

/*
 * One run dies at each of these instants in turn, as it enters the function in the second step of a
 * process, and is started again each time; between two deaths it gets a step further.
 */
TEST(a_run_that_dies_at_one_instant_after_the_other_goes_on_bit_for_bit)
{
    static const char *const instants[] = {
        /* in fetches: before and after the source has moved */
        "ares_source_next", "engine_queue_add",
        /* in rounds */
        "engine_queue_next", "ares_rollout_step", "scoring_submit", "ares_reward_wait",
        "filter_last_draw", "ares_oversampling_finish",
        /* between cut and save */
        "step_groups_add", "ares_rollout_cut", "ares_source_give_back", "ares_batch_fill",
        "adv_open", "actor_update", "sources_report", "report_rollouts",
        /* in evaluations */
        "trainer_validate", "answer_rows", "ares_reward_report",
        /* in saves */
        "state_write", "ares_source_snapshot_write", "ares_checkpoint_seal",
        "ares_checkpoint_commit", "ares_checkpoint_prune"
    };
    enum { INSTANTS = ARES_COUNT(instants), STEPS = INSTANTS + 1 };
    char words[2600];
    double back = 0;
    snprintf(words, sizeof words,
             "%s 'eval.datasets={sums: {path: '%s', n_samples_per_eval_prompt: 2}}' "
             "trainer.val_freq=1 trainer.val_before_train=false trainer.threads=1 ",
             mixed(), e2e_write("sums.jsonl", "{\"prompt\":\"1\",\"answer\":\"1\"}\n"));
    REQUIRE(trains("whole", STEPS, "", words));
    for (int step = 1; step < STEPS; step++)
        back += e2e_metric("whole", step, "over_sampling/given_back_groups");
    CHECK(back > STEPS);
    for (int i = 0; i < INSTANTS; i++) {
        disk_record(test_file("log"), true);
        setenv("ARES_RECORD_TRAP", instants[i], 1);
        int rc = e2e_program(NULL, "--config '%s' trainer.max_steps=%d %s", e2e_train_words("run"),
                             STEPS, words);
        disk_record_end();
        CHECK_MSG(rc == 128 + SIGTRAP, "%s: %d", instants[i], rc);
    }
    REQUIRE(trains("run", STEPS, "", words));
    e2e_same_runs("whole", "run", STEPS);
    CHECK_EQ(test_shell(NULL, "cd '%s' && diff -r whole/validation run/validation", test_file(".")),
             0);
}

/* ---------------------------------------------------------------- ranks */
/* Weights stay as they are, so that sums in another order change nothing. */
TEST_MPI(the_same_groups_are_kept_and_cut_on_two_ranks)
{
    enum { STEPS = 6 };
    static const char words[] = VARIED PARTIAL FILTERED "worker.actor.optim.lr=0 ";
    static const char *const same[] = { "over_sampling/fetches",
                                        "over_sampling/groups",
                                        "over_sampling/surplus_groups",
                                        "over_sampling/cut_groups",
                                        "over_sampling/given_back_groups",
                                        "over_sampling/length",
                                        "over_sampling/old_token_frac",
                                        "rollout/generated_tokens",
                                        "reward/random/mean",
                                        "reward/accuracy" };
    E2E_NEEDS_MPI();
    REQUIRE(trains("one", STEPS, "", words));
    REQUIRE(trains("two", STEPS, "--ranks 2", words));
    for (int step = 1; step <= STEPS; step++) {
        CHECK(e2e_same_rollouts("one", "two", step));
        for (int i = 0; i < ARES_COUNT(same); i++)
            CHECK_NEAR(e2e_metric("one", step, same[i]), e2e_metric("two", step, same[i]), 1e-12);
        CHECK_EQ(test_shell(NULL,
                            "cd '%s' && cmp one/checkpoints/step_00000%d/source.json "
                            "two/checkpoints/step_00000%d/source.json",
                            test_file("."), step, step),
                 0);
    }
}

TEST_MPI(two_ranks_cut_the_same_of_several_data_sets)
{
    enum { STEPS = 5 };
    char words[2200];
    E2E_NEEDS_MPI();
    snprintf(words, sizeof words, "%s worker.actor.optim.lr=0", mixed());
    REQUIRE(trains("one", STEPS, "", words));
    REQUIRE(trains("two", STEPS, "--ranks 2", words));
    for (int step = 1; step <= STEPS; step++) CHECK(e2e_same_rollouts("one", "two", step));
}

TEST_MPI(a_run_on_two_ranks_goes_on_bit_for_bit)
{
    E2E_NEEDS_MPI();
    REQUIRE(trains("run", 4, "--ranks 2", VARIED PARTIAL));
    REQUIRE(e2e_go_back("run", "whole", 2));
    CHECK(e2e_metric("run", 2, "over_sampling/given_back_groups") > 0);
    REQUIRE(trains("run", 4, "--ranks 2", VARIED PARTIAL));
    e2e_same_runs("whole", "run", 4);
}

/* ---------------------------------------------------------------- refused */
static void refused(const char *words, const char *said)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--check --config '%s' %s", e2e_train_words("run"), words), 2);
    CHECK_MSG(out.data && strstr(out.data, said), "%s: '%s' is not said: %s", words, said,
              out.data ? out.data : "");
    ares_str_fini(&out);
}

TEST(what_over_sampling_does_not_go_with_is_refused)
{
#define OVER "curriculum.over_sampling_batch_size=8 "
    refused("curriculum.over_sampling_batch_size=3",
            "over_sampling_batch_size = 3: a fetch must fill the batch: data.rollout_batch_size is "
            "4");
    refused("curriculum.over_sampling_batch_size=99999999999",
            "a fetch would have more than 2147483647 responses (worker.rollout.n = 4)");
    refused("curriculum.over_sampling_batch_size=0", "curriculum.over_sampling_batch_size = 0");
    refused(OVER "data.mini_rollout_batch_size=4",
            "data.mini_rollout_batch_size = 4: with curriculum.over_sampling_batch_size");
    refused("curriculum.partial_rollout=true algorithm.filter_groups.enable=true "
            "algorithm.max_resample=2",
            "algorithm.max_resample = 2: with curriculum.partial_rollout, "
            "curriculum.max_fetches_per_rollout");
    refused(OVER "algorithm.filter_groups.enable=true algorithm.dynamic_sampling.mode=same_prompt",
            "algorithm.dynamic_sampling.mode = 'same_prompt': with");
    refused(OVER "algorithm.filter_groups.enable=true algorithm.on_exhausted=fill_masked",
            "algorithm.on_exhausted = 'fill_masked': with");
    refused(OVER "worker.actor.recompute_log_probs=true curriculum.partial_rollout=true "
                 "curriculum.partial.old_log_probs=stored",
            "worker.actor.recompute_log_probs computes all of them");
    refused("curriculum.partial_rollout=true env.train.tags=Bandit trainer.max_steps=1 "
            "env.train.groups=4 env.train.group_size=4 '~data.train_files' "
            "'~worker.reward.rewards'",
            "an episode with an environment cannot be cut");
    /* a later layer counts */
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--check --config '%s' " OVER "data.rollout_batch_size=12",
                         e2e_train_words("run")),
             2);
    CHECK_CONTAINS(out.data, "data.rollout_batch_size is 12");
    ares_str_fini(&out);
}

/* A fetch may go through the rows more than once. */
TEST(rows_may_be_fewer_than_a_fetch)
{
    ares_str out = { 0 };
    char words[600];
    snprintf(words, sizeof words, "data.train_files='%s' " OVER,
             e2e_write("three.jsonl", "{\"prompt\":\"1\",\"answer\":\"1\"}\n"
                                      "{\"prompt\":\"2\",\"answer\":\"2\"}\n"
                                      "{\"prompt\":\"3\",\"answer\":\"3\"}\n"));
    REQUIRE(trains("run", 2, "", words));
    CHECK_EQ(e2e_metric("run", 2, "over_sampling/groups"), 8);
    ares_dir_remove(test_file("run"));
    CHECK_EQ(
        e2e_program(&out, "--config '%s' %s trainer.max_steps=null", e2e_train_words("run"), words),
        2);
    CHECK_CONTAINS(out.data, "the 3 rows of data.train_files make no batch of 4 in an epoch");
    ares_str_fini(&out);
}
