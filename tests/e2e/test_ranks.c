/*
 * Two processes do what one does: the samples of the first step have the same bits; what is learnt
 * from them is the same except for the order in which gradients are added.
 */
#include "disk.h"
#include "e2e.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char mpirun[] = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun "
                             "--oversubscribe --bind-to none -n 2";

/*
 * Checks that the rollouts of the first step, advantages included, are the same, and that metrics
 * differ by no more than a sum in another order may.
 */
static void same_first_step(const char *one, const char *two)
{
    static const char *const same[] = { "reward/overall", "response_length/mean", "actor/entropy",
                                        "rollout/entropy" };
    static const char *const near[] = { "actor/grad_norm", "actor/pg_loss",
                                        "critic/advantages/mean" };
    CHECK(e2e_same_rollouts(one, two, 1));
    for (int i = 0; i < ARES_COUNT(same); i++)
        CHECK_NEAR(e2e_metric(two, 1, same[i]), e2e_metric(one, 1, same[i]),
                   1e-6 * fabs(e2e_metric(one, 1, same[i])));
    for (int i = 0; i < ARES_COUNT(near); i++)
        CHECK_NEAR(e2e_metric(two, 1, near[i]), e2e_metric(one, 1, near[i]),
                   1e-6 * fmax(1e-2, fabs(e2e_metric(one, 1, near[i]))));
}

TEST_MPI(two_ranks_sample_and_learn_what_one_does)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=2 trainer.threads=1",
                         e2e_train_words("alone")),
             0);
    CHECK_MSG(e2e_program(&out, "--ranks 2 --config '%s' trainer.max_steps=2 trainer.threads=1",
                          e2e_train_words("launched")) == 0,
              "%s", out.data);
    ares_str_clear(&out);
    int rc = test_shell(&out, "%s '%s' --config '%s' trainer.max_steps=2 trainer.threads=1 2>&1",
                        mpirun, test_program(), e2e_train_words("bare"));
    CHECK_MSG(rc == 0, "%s", out.data);
    same_first_step("alone", "launched");
    CHECK_EQ(test_shell(NULL, "cmp '%s' '%s'",
                        test_file("launched/checkpoints/step_000002/model/model.safetensors"),
                        test_file("bare/checkpoints/step_000002/model/model.safetensors")),
             0);
    ares_str_fini(&out);
}

/*
 * Two mini-batches of 8 prompts; the longest has 20 times the tokens of the shortest. Dealt in
 * turn, or cut into equal slices, ranks get very different shares. A learning rate of 0 keeps the
 * second mini-batch comparable with that of one rank.
 */
static const char *skewed_words(const char *run, const char *estimator)
{
    static const int lengths[] = { 200, 10, 190, 15, 180, 12, 170, 20,
                                   30,  10, 28,  11, 26,  12, 24,  14 };
    ares_str rows = { 0 };
    char rest[2000], prompt[256];
    for (int i = 0; i < ARES_COUNT(lengths); i++) {
        memset(prompt, 'a' + i, (size_t)lengths[i]);
        prompt[lengths[i]] = 0;
        ares_str_addf(&rows, "{\"prompt\": \"%s\", \"answer\": \"1\"}\n", prompt);
    }
    const char *data = e2e_write("skewed.jsonl", rows.data);
    ares_str_fini(&rows);
    snprintf(rest, sizeof rest,
             "trainer: {run_dir: '%s', max_steps: 2, logger: [console], threads: 1, save_freq: 1}\n"
             "data: {train_files: '%s', shuffle: false, apply_chat_template: false, "
             "max_prompt_length: 256,\n"
             "       max_response_length: 8, rollout_batch_size: 16}\n"
             "algorithm: {adv_estimator: %s, disable_kl: true}\n"
             "worker:\n"
             "  actor: {model: {model_path: '%s'}, global_batch_size: 8, optim: {lr: 0}}\n"
             "  critic: {global_batch_size: 4, optim: {lr: 0}}\n"
             "  rollout: {n: 2}\n"
             "  reward: {rewards: [{name: format, pattern: '.*[a-m].*', finished: false}]}\n",
             test_file(run), data, estimator, e2e_model());
    char name[64];
    snprintf(name, sizeof name, "%s.yaml", run);
    return e2e_write(name, rest);
}

static double spread(const char *run)
{
    return e2e_metric(run, 1, "global_seqlen/balanced_max") -
           e2e_metric(run, 1, "global_seqlen/balanced_min");
}

static void runs_of(const char *run, const char *estimator, int ranks, const char *more)
{
    ares_str out = { 0 };
    int rc =
        e2e_program(&out, "--ranks %d --config '%s' %s", ranks, skewed_words(run, estimator), more);
    CHECK_MSG(rc == 0, "%s: %s", run, out.data);
    ares_str_fini(&out);
}

TEST_MPI(ranks_share_the_tokens_of_each_mini_batch_evenly_and_learn_what_one_does)
{
    E2E_NEEDS_MPI();
    runs_of("one", "grpo", 1, "");
    runs_of("two", "grpo", 2, "");
    runs_of("turns", "grpo", 2, "trainer.balance_batch=false");
    runs_of("four", "grpo", 4, "");
    same_first_step("one", "two");
    same_first_step("one", "turns");
    same_first_step("one", "four");
    CHECK_EQ(spread("one"), 0);
    double total = e2e_metric("one", 1, "global_seqlen/mean");
    CHECK_NEAR(e2e_metric("two", 1, "global_seqlen/mean"), total / 2, 0);
    CHECK_MSG(spread("turns") > 0.6 * total, "in turn: %g of %g", spread("turns"), total);
    CHECK_MSG(spread("two") < 0.05 * total, "two ranks: %g of %g", spread("two"), total);
    CHECK_MSG(spread("four") < 0.05 * total, "four ranks: %g of %g", spread("four"), total);
    /* global_seqlen/minmax_diff is that of equal slices of the batch as drawn */
    CHECK(spread("two") < e2e_metric("two", 1, "global_seqlen/minmax_diff"));
    for (int step = 1; step <= 2; step++)
        CHECK_NEAR(e2e_metric("two", step, "actor/grad_norm"),
                   e2e_metric("one", step, "actor/grad_norm"),
                   1e-6 * e2e_metric("one", step, "actor/grad_norm"));
}

TEST_MPI(balance_keeps_the_mini_batches_of_actor_and_critic)
{
    E2E_NEEDS_MPI();
    static const char *const near[] = { "actor/grad_norm",   "actor/pg_loss",
                                        "critic/grad_norm",  "critic/vf_loss",
                                        "critic/vpred_mean", "critic/vf_explained_var" };
    runs_of("one", "gae", 1, "");
    runs_of("two", "gae", 2, "");
    same_first_step("one", "two");
    for (int step = 1; step <= 2; step++)
        for (int i = 0; i < ARES_COUNT(near); i++) {
            double want = e2e_metric("one", step, near[i]), have = e2e_metric("two", step, near[i]);
            CHECK_MSG(fabs(have - want) <= 1e-6 * fmax(1e-2, fabs(want)), "%s: %.9g, not %.9g",
                      near[i], have, want);
        }
    CHECK(spread("two") < 0.1 * e2e_metric("one", 1, "global_seqlen/mean"));
}

/* Mini-batches end inside groups, and ranks have unlike numbers of their rows. */
TEST_MPI(mini_batches_of_rows_are_those_of_one_rank)
{
    E2E_NEEDS_MPI();
    static const char words[] = "worker.rollout.n=3 worker.actor.mini_batch_unit=rows";
    static const char *const near[] = { "actor/grad_norm", "actor/pg_loss", "critic/grad_norm",
                                        "critic/vf_loss" };
    runs_of("one", "gae", 1, words);
    runs_of("two", "gae", 2, words);
    runs_of("drawn", "gae", 1,
            "trainer.balance_batch=false worker.rollout.n=3 worker.actor.mini_batch_unit=rows");
    same_first_step("one", "two");
    CHECK(e2e_same_rollouts("one", "drawn", 1));
    for (int step = 1; step <= 2; step++)
        for (int i = 0; i < ARES_COUNT(near); i++) {
            double want = e2e_metric("one", step, near[i]), have = e2e_metric("two", step, near[i]);
            CHECK_MSG(fabs(have - want) <= 1e-6 * fmax(1e-2, fabs(want)), "%s: %.9g, not %.9g",
                      near[i], have, want);
            /* as drawn, other rows make a mini-batch */
            double other = e2e_metric("drawn", step, near[i]);
            if (strstr(near[i], "grad_norm"))
                CHECK_MSG(fabs(other - want) > 1e-3 * want, "%s: %.9g as drawn, %.9g ordered",
                          near[i], other, want);
        }
    CHECK(spread("two") < 0.2 * e2e_metric("one", 1, "global_seqlen/mean"));
}

/* Answers that reached the limit are dropped, and an odd number of rows is left. */
TEST_MPI(lengths_of_ranks_are_told_where_rows_do_not_divide_among_them)
{
    E2E_NEEDS_MPI();
    runs_of("two", "grpo", 2,
            "worker.rollout.n=5 data.max_response_length=250 algorithm.mask_truncated=true "
            "algorithm.over_length_action=drop trainer.max_steps=4");
    for (int step = 1; step <= 4; step++) {
        double total = 2 * e2e_metric("two", step, "global_seqlen/mean");
        CHECK_MSG(total > 0, "step %d: none", step);
        CHECK_NEAR(e2e_metric("two", step, "global_seqlen/min") +
                       e2e_metric("two", step, "global_seqlen/max"),
                   total, 0);
        CHECK_NEAR(e2e_metric("two", step, "global_seqlen/balanced_min") +
                       e2e_metric("two", step, "global_seqlen/balanced_max"),
                   total, 0);
    }
}

TEST_MPI(a_balanced_run_goes_on_bit_for_bit)
{
    E2E_NEEDS_MPI();
    runs_of("whole", "grpo", 2, "worker.actor.optim.lr=1e-3");
    runs_of("part", "grpo", 2, "worker.actor.optim.lr=1e-3");
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && rm -r DONE checkpoints/step_000002 && echo step_000001 > "
                        "checkpoints/latest",
                        test_file("part")),
             0);
    runs_of("part", "grpo", 2, "worker.actor.optim.lr=1e-3");
    e2e_same_runs("whole", "part", 2);
}

TEST_MPI(an_interrupted_run_of_two_ranks_saves_and_goes_on_bit_for_bit)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    const char *words = e2e_train_words("part");
    CHECK_EQ(e2e_stop("part", "INT", 10,
                      "--ranks 2 --config '%s' trainer.max_steps=60 trainer.threads=1", words),
             130);
    CHECK_EQ(
        e2e_program(&out, "--ranks 2 --config '%s' trainer.max_steps=60 trainer.threads=1", words),
        0);
    CHECK_CONTAINS(out.data, "going on from ");
    CHECK_EQ(e2e_program(NULL, "--ranks 2 --config '%s' trainer.max_steps=60 trainer.threads=1",
                         e2e_train_words("whole")),
             0);
    e2e_same_runs("whole", "part", 60);
    ares_str_fini(&out);
}

TEST_MPI(a_terminated_run_of_two_ranks_exits_143)
{
    E2E_NEEDS_MPI();
    CHECK_EQ(e2e_stop("run", "TERM", 10,
                      "--ranks 2 --config '%s' trainer.max_steps=2000 trainer.threads=1",
                      e2e_train_words("run")),
             143);
    CHECK_EQ(test_shell(NULL, "test -e '%s'", test_file("run/checkpoints/latest")), 0);
}

TEST_MPI(an_end_by_a_signal_is_told_once)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    CHECK_EQ(e2e_stop("run", "HUP", 4,
                      "--ranks 2 --config '%s' trainer.max_steps=2000 trainer.threads=1",
                      e2e_train_words("run")),
             129);
    REQUIRE_OK(ares_file_read(test_file("run.out"), &out));
    const char *first = strstr(out.data, "stopped by signal 1 ");
    CHECK(first && !strstr(first + 1, "stopped by signal"));
    ares_str_fini(&out);
}

/* What a daemon or a careless parent hands on: no standard files, and children that are forgotten.
 */
TEST(standard_files_that_are_closed_become_no_other_files)
{
    ares_str text = { 0 };
    const char *words = e2e_train_words("run");
    CHECK_EQ(test_shell(NULL, "'%s' --config '%s' trainer.max_steps=2 <&- >&- 2>&-", test_program(),
                        words),
             0);
    REQUIRE_OK(ares_file_read(test_file("run/metrics.jsonl"), &text));
    CHECK_CONTAINS(text.data, "{\"step\":2,");
    CHECK(!strstr(text.data, "metrics  "));
    CHECK_EQ(test_shell(NULL, "echo '\"a\"' | '%s' tokenize --model '%s' >&-", test_program(),
                        e2e_model()),
             1); /* its result would be lost */
    ares_str_fini(&text);
}

TEST_MPI(a_launch_needs_neither_standard_files_nor_a_parent_that_waits)
{
    E2E_NEEDS_MPI();
    static const char *const how[] = { "<&- >&- 2>&-", "", "" };
    static const char *const more[] = { "--ranks 2", "--ranks 2", "--restarts 1" };
    for (int i = 0; i < ARES_COUNT(how); i++) {
        char run[16];
        snprintf(run, sizeof run, "run%d", i);
        int rc = test_shell(
            NULL,
            "timeout 250 perl -e '$SIG{CHLD} = \"%s\"; exec @ARGV' '%s' %s --config "
            "'%s' trainer.max_steps=1 trainer.threads=1 %s",
            i ? "IGNORE" : "DEFAULT", test_program(), more[i], e2e_train_words(run), how[i]);
        CHECK_MSG(rc == 0, "%s %s: exit %d", more[i], how[i], rc);
    }
}

TEST_MPI(bad_input_on_two_ranks_is_told_once)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    CHECK_EQ(
        e2e_program(&out, "--ranks 2 --config '%s' worker.rollout.top_p=2", e2e_train_words("run")),
        2);
    const char *first = strstr(out.data, "worker.rollout.top_p = 2");
    CHECK(first && !strstr(first + 1, "worker.rollout.top_p"));
    ares_str_fini(&out);
}

/*
 * Memory that a process held before it became the program counts as its own: rank 1 holds 300 MB of
 * the letter a.
 */
TEST_MPI(memory_is_that_of_the_fullest_rank)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    int rc = test_shell(&out,
                        "%s sh -c 'if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then x=$(head -c "
                        "300000000 /dev/zero | tr \"\\0\" a); fi; exec \"$@\"' - "
                        "'%s' --config '%s' trainer.max_steps=1 trainer.threads=1 2>&1",
                        mpirun, test_program(), e2e_train_words("two"));
    CHECK_MSG(rc == 0, "%s", ares_str_view(&out).data);
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=1 trainer.threads=1",
                         e2e_train_words("one")),
             0);
    CHECK(e2e_metric("two", 1, "perf/cpu_memory_used_gb") > 0.27 &&
          e2e_metric("one", 1, "perf/cpu_memory_used_gb") < 0.27);
    ares_str_fini(&out);
}

TEST(memory_is_told_as_what_was_asked_for_and_as_what_is_taken)
{
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=1", e2e_train_words("run")), 0);
    double asked = e2e_metric("run", 1, "perf/max_memory_allocated_gb"),
           taken = e2e_metric("run", 1, "perf/max_memory_reserved_gb");
    /* weights, gradients and AdamW's two moments of the tiny model */
    CHECK(asked > 4 * 41248 * 4 / 1073741824.0);
    CHECK(taken > asked && taken <= e2e_metric("run", 1, "perf/cpu_memory_used_gb"));
}

/* ---------------- checkpoints of several ranks */
#define SAVED "saved/checkpoints/step_000002"
#define FROM_FOUR "four/checkpoints/step_000001"
#define SECOND "checkpoints/step_000002/optimizer.safetensors"

/* Step 3 from a checkpoint of two ranks, by another number of them. */
static void check_going_on(int ranks, const char *run)
{
    ares_str out = { 0 };
    CHECK_MSG(e2e_program(&out,
                          "--ranks %d --config '%s' trainer.max_steps=3 trainer.threads=1 "
                          "data.rollout_batch_size=6 worker.actor.global_batch_size=6 "
                          "trainer.load_checkpoint_path='%s'",
                          ranks, e2e_train_words(run), test_file(SAVED)) == 0,
              "%s", ares_str_view(&out).data);
    CHECK(e2e_same_rollouts("saved", run, 3));
    /* gradients are added in another order */
    CHECK_NEAR(e2e_metric(run, 3, "actor/grad_norm"), e2e_metric("saved", 3, "actor/grad_norm"),
               1e-5 * e2e_metric("saved", 3, "actor/grad_norm"));
    ares_str_fini(&out);
}

/* Step 3 by two ranks that have their own parts of the weights alone is that of the run itself. */
static void check_going_on_in_parts(void)
{
    ares_str out = { 0 };
    CHECK_MSG(e2e_program(&out,
                          "--ranks 2 --config '%s' trainer.max_steps=3 trainer.threads=1 "
                          "data.rollout_batch_size=6 worker.actor.global_batch_size=6 "
                          "trainer.save_freq=1 worker.actor.fsdp.enable_full_shard=true "
                          "trainer.load_checkpoint_path='%s'",
                          e2e_train_words("parts"), test_file(SAVED)) == 0,
              "%s", ares_str_view(&out).data);
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && for f in model/model.safetensors optimizer.safetensors; do "
                        "cmp saved/checkpoints/step_000003/$f parts/checkpoints/step_000003/$f || "
                        "exit 1; done",
                        test_file(".")),
             0);
    ares_str_fini(&out);
}

/* Fails when the sum in state.json leaves out a file, or a file a rectangle. */
static void check_damage(const char *file, const char *named)
{
    ares_str out = { 0 };
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && rm -rf bad && cp -r " SAVED " bad && printf '\\001' | dd "
                        "of=bad/%s bs=1 seek=20000 conv=notrunc 2>/dev/null",
                        test_file("."), file),
             0);
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' trainer.max_steps=3 trainer.load_checkpoint_path='%s' "
                         "data.rollout_batch_size=6 worker.actor.global_batch_size=6",
                         e2e_train_words("damaged"), test_file("bad")),
             1);
    CHECK_CONTAINS(out.data, "does not hold the numbers that were saved");
    CHECK_CONTAINS(out.data, named);
    ares_str_fini(&out);
}

TEST_MPI(a_checkpoint_of_two_ranks_goes_on_with_one_and_three_and_tells_of_damage)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    CHECK_MSG(e2e_program(&out,
                          "--ranks 2 --config '%s' trainer.max_steps=3 trainer.threads=1 "
                          "data.rollout_batch_size=6 worker.actor.global_batch_size=6 "
                          "trainer.save_freq=1",
                          e2e_train_words("saved")) == 0,
              "%s", ares_str_view(&out).data);
    check_going_on(1, "one");
    check_going_on(3, "three");
    check_going_on_in_parts();
    check_damage("model/model.safetensors", "bad: model/ does");
    check_damage("optimizer.safetensors", "bad: optimizer.safetensors does");
    ares_str_fini(&out);
}

/*
 * Policy and critic of four ranks, each with its part alone: what is saved after step 1 goes on
 * with the same ranks byte for byte, also where pairs share, or nothing is shared; and with any
 * others.
 */
static void go_on_from_four(const char *run, int ranks, const char *shared)
{
    ares_str out = { 0 };
    CHECK_MSG(e2e_program(&out,
                          "--ranks %d --config '%s' trainer.max_steps=2 trainer.threads=1 "
                          "data.rollout_batch_size=12 worker.actor.global_batch_size=12 "
                          "algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3 "
                          "trainer.save_freq=1 %s %s%s%s",
                          ranks, e2e_train_words(run), shared,
                          strcmp(run, "four") == 0 ? "" : "trainer.load_checkpoint_path='",
                          strcmp(run, "four") == 0 ? "" : test_file(FROM_FOUR),
                          strcmp(run, "four") == 0 ? "" : "'") == 0,
              "%s", ares_str_view(&out).data);
    ares_str_fini(&out);
}

TEST_MPI(a_checkpoint_of_shared_weights_and_critic_goes_on_with_any_ranks_and_sharing)
{
    E2E_NEEDS_MPI();
    static const char *const names[] = { "actor/grad_norm", "critic/grad_norm", "critic/vf_loss" };
    const char *all = e2e_shared[E2E_SHARED - 1];
    go_on_from_four("four", 4, all);
    for (int i = 0; i < E2E_SHARED; i++) {
        char run[16];
        snprintf(run, sizeof run, "same%d", i);
        go_on_from_four(run, 4, e2e_shared[i]);
        CHECK_EQ(test_shell(NULL,
                            "cd '%s' && diff -r four/checkpoints/step_000002 "
                            "%s/checkpoints/step_000002",
                            test_file("."), run),
                 0);
    }
    static const struct {
        const char *run, *shared;
        int ranks;
    } others[] = { { "one", "", 1 },
                   { "two", "worker.actor.fsdp.enable_full_shard=true", 2 },
                   { "three", "worker.critic.fsdp.enable_full_shard=true", 3 },
                   { "pairs",
                     "worker.actor.fsdp.fsdp_size=2 worker.critic.fsdp.fsdp_size=2 "
                     "worker.actor.fsdp.enable_full_shard=true",
                     4 } };
    for (int i = 0; i < ARES_COUNT(others); i++) {
        go_on_from_four(others[i].run, others[i].ranks, others[i].shared);
        CHECK(e2e_same_rollouts("four", others[i].run, 2));
        for (int k = 0; k < ARES_COUNT(names); k++) {
            double want = e2e_metric("four", 2, names[k]),
                   have = e2e_metric(others[i].run, 2, names[k]);
            CHECK_MSG(fabs(have - want) <= 1e-5 * want, "%s: %s is %.9g, not %.9g", others[i].run,
                      names[k], have, want);
        }
    }
}

/*
 * Rounds belong to the last bits of what several ranks compute: with others a run that is taken up
 * again would not be the one that began, and with --force it is not.
 */
TEST_MPI(a_run_goes_on_with_its_rounds_and_refuses_others)
{
    E2E_NEEDS_MPI();
    static const char begun[] = "worker.actor.round_tokens=60 worker.critic.round_tokens=70";
    static const struct {
        const char *words, *message;
    } refused[] = {
        { "worker.actor.round_tokens=90", "(worker.actor.round_tokens: 60, now 90)" },
        { "worker.critic.round_tokens=null", "(worker.critic.round_tokens: 70, now null)" },
    };
    ares_str out = { 0 };
    char words[500];
    (void)snprintf(words, sizeof words,
                   "--ranks 2 --config '%s' trainer.max_steps=2 trainer.threads=1 "
                   "trainer.save_freq=1 algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3",
                   e2e_train_words("part"));
    CHECK_EQ(e2e_program(NULL, "%s %s", words, begun), 0);
    if (!e2e_go_back("part", "whole", 1)) return;
    for (int i = 0; i < ARES_COUNT(refused); i++) {
        ares_str_clear(&out);
        CHECK_EQ(e2e_program(&out, "%s %s %s", words, begun, refused[i].words), 1);
        CHECK_CONTAINS(out.data, "part holds a run with other options ");
        CHECK_CONTAINS(out.data, refused[i].message);
        CHECK_CONTAINS(out.data, "restore the options to go on, pass --force to go on with these");
    }
    CHECK_EQ(e2e_program(NULL, "%s %s", words, begun), 0);
    e2e_same_runs("whole", "part", 2);
    if (!e2e_go_back("part", "whole", 1)) return;
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "%s --force", words), 0);
    CHECK_CONTAINS(out.data, "worker.actor.round_tokens: 60, now null; "
                             "worker.critic.round_tokens: 70, now null");
    CHECK_EQ(test_shell(NULL, "cd '%s' && cmp -s part/" SECOND " whole/" SECOND, test_file(".")),
             1);
    ares_str_fini(&out);
}

/* Two folders stand for the disks of two machines: relative paths mean another one for each rank.
 */
TEST_MPI(ranks_that_do_not_see_the_same_files_send_checkpoints_to_rank_0)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    const char *words = e2e_train_words("shared");
    CHECK_EQ(
        e2e_program(NULL, "--ranks 2 --config '%s' trainer.max_steps=1 trainer.threads=1", words),
        0);
    REQUIRE_OK(ares_dir_make(test_file("disk_0")));
    REQUIRE_OK(ares_dir_make(test_file("disk_1")));
    int rc = test_shell(
        &out,
        "cd '%s' && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun "
        "--oversubscribe --bind-to none -n 1 --wdir \"$PWD/disk_0\" '%s' --config '%s' %s "
        ": -n 1 --wdir \"$PWD/disk_1\" '%s' --config '%s' %s 2>&1",
        test_file("."), test_program(), words,
        "trainer.max_steps=1 trainer.threads=1 trainer.run_dir=run", test_program(), words,
        "trainer.max_steps=1 trainer.threads=1 trainer.run_dir=run");
    CHECK_MSG(rc == 0, "%s", ares_str_view(&out).data);
    CHECK_CONTAINS(out.data, "not all ranks see this directory of rank 0");
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && test -z \"$(ls disk_1)\" && for f in model/model.safetensors "
                        "optimizer.safetensors state.json; do cmp "
                        "disk_0/run/checkpoints/step_000001/$f "
                        "shared/checkpoints/step_000001/$f || exit 1; done",
                        test_file(".")),
             0);
    ares_str_fini(&out);
}

/*
 * Rank 1 alone gets no space; its part of the weights begins in the middle of the embedding. Where
 * checkpoints are written while the run goes on, that of step 2 fails when step 3 is done.
 */
static void fill_the_disk(const char *words, const char *async, int rows)
{
    ares_str out = { 0 };
    if (!e2e_go_back("part", "whole", 1)) return;
    disk_record(test_file("log"), true);
    setenv("ARES_RECORD_FULL", "1", 1);
    CHECK_EQ(e2e_program(&out, "%s %s", words, async), 1);
    unsetenv("ARES_RECORD_FULL");
    disk_record_end();
    CHECK_CONTAINS(out.data, ".tmp-step_000002/model/model.safetensors: No space left on device");
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && test \"$(ls -A checkpoints | tr '\\n' ' ')\" = 'latest "
                        "step_000001 ' && test $(wc -l <metrics.jsonl) = %d",
                        test_file("part"), rows),
             0);
    ares_str_fini(&out);
}

TEST_MPI(a_disk_that_is_full_for_one_of_two_ranks_leaves_the_old_checkpoint)
{
    E2E_NEEDS_MPI();
    char words[900];
    CHECK_EQ(e2e_program(NULL,
                         "init --arch qwen2 --hidden 32 --layers 1 --heads 2 --kv-heads 1 --vocab "
                         "4000 --out '%s'",
                         test_file("wide")),
             0);
    (void)snprintf(words, sizeof words,
                   "--ranks 2 --config '%s' trainer.max_steps=3 trainer.threads=1 "
                   "trainer.save_freq=1 worker.actor.model.model_path='%s'",
                   e2e_train_words("part"), test_file("wide"));
    CHECK_EQ(e2e_program(NULL, "%s", words), 0);
    fill_the_disk(words, "", 1);
    fill_the_disk(words, "trainer.save_async=true", 2);
    CHECK_EQ(e2e_program(NULL, "%s", words), 0); /* the disk has space again */
    CHECK_EQ(test_shell(NULL, "cd '%s' && cmp part/" SECOND " whole/" SECOND, test_file(".")), 0);
}

/* Of actor and critic: every file is what it is without. */
TEST_MPI(checkpoints_written_while_the_run_goes_on_have_the_same_bytes)
{
    E2E_NEEDS_MPI();
    static const char *const runs[] = { "at_once", "behind" };
    for (int i = 0; i < ARES_COUNT(runs); i++)
        CHECK_EQ(e2e_program(NULL,
                             "--ranks 2 --config '%s' trainer.max_steps=4 trainer.threads=1 "
                             "trainer.save_freq=1 trainer.save_limit=3 algorithm.adv_estimator=gae "
                             "worker.critic.optim.lr=1e-3 trainer.save_async=%s",
                             e2e_train_words(runs[i]), i ? "true" : "false"),
                 0);
    e2e_same_runs(runs[0], runs[1], 4);
    CHECK_EQ(test_shell(NULL, "cd '%s' && diff -r at_once/checkpoints behind/checkpoints",
                        test_file(".")),
             0);
}
