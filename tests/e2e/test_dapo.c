/*
 * DAPO's treatment of groups and of long answers: what fills the batch when the draws are used up,
 * prompts that are answered again, answers that are discarded; the same with any number of ranks
 * and after any interruption. These tests failed when the attempt was left out of the sampling key,
 * and when discarded answers stayed in their mask.
 */
#include "e2e.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The score depends on the answer's text alone; answers have many lengths. */
#define STOPS                                                                                      \
    " 'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w, x, " \
    "z, A, B, C, D, E, F, G, H]'"
#define RANDOM "'worker.reward.rewards=[{name: random}]'" STOPS
#define DAPO RANDOM " algorithm.filter_groups.enable=true algorithm.filter_groups.metric=score"
/* No answer is ever right. */
#define HOPELESS                                                                   \
    "'worker.reward.rewards=[{name: exact}]' algorithm.filter_groups.enable=true " \
    "algorithm.max_resample=1"

static int runs(const char *run, const char *before, int steps, const char *options)
{
    return e2e_program(NULL, "%s --config '%s' trainer.max_steps=%d %s", before,
                       e2e_train_words(run), steps, options);
}

TEST(a_batch_without_an_informative_group_is_filled_and_updates_nothing)
{
    CHECK_EQ(runs("run", "", 2, HOPELESS), 0);
    CHECK_EQ(e2e_metric("run", 1, "dapo/num_gen_rounds"), 2);
    CHECK_EQ(e2e_metric("run", 1, "dapo/groups_all_wrong"), 8);
    CHECK_EQ(e2e_metric("run", 1, "dapo/groups_kept"), 0);
    CHECK_EQ(e2e_metric("run", 1, "dapo/batch_fill"), 0);
    CHECK_EQ(e2e_metric("run", 1, "actor/empty_minibatches"), 1);
    CHECK(isnan(e2e_metric("run", 2, "actor/grad_norm"))); /* no update, so no norm */
    CHECK_EQ(runs("small", "", 1, HOPELESS " algorithm.on_exhausted=smaller_batch"), 0);
    CHECK_EQ(e2e_metric("small", 1, "actor/empty_minibatches"), 1);
}

TEST(groups_that_only_fill_the_batch_change_no_gradient)
{
    /* about half of four groups are informative */
    static const char *const options = DAPO " algorithm.max_resample=0 worker.rollout.n=2";
    char words[500];
    CHECK_EQ(runs("filled", "", 1, options), 0);
    snprintf(words, sizeof words, "%s algorithm.dynamic_sampling.on_exhausted=smaller_batch",
             options);
    CHECK_EQ(runs("small", "", 1, words), 0);
    double kept = e2e_metric("filled", 1, "dapo/groups_kept"),
           norm = e2e_metric("filled", 1, "actor/grad_norm");
    CHECK(kept > 0 && kept < 4 && norm > 0);
    CHECK_EQ(e2e_metric("filled", 1, "dapo/batch_fill"), kept / 4);
    CHECK_NEAR(e2e_metric("small", 1, "actor/grad_norm"), norm, 1e-6 * norm);
    /* groups that fill the batch are not counted */
    CHECK_EQ(e2e_metric("filled", 1, "rollout/mixed_groups_frac"), 1);
    CHECK_EQ(test_shell(NULL, "test $(cat '%s' | wc -l) = 8 && test $(cat '%s' | wc -l) = %d",
                        test_file("filled/rollouts/step_000001.jsonl"),
                        test_file("small/rollouts/step_000001.jsonl"), (int)kept * 2),
             0);
}

TEST(used_up_draws_end_the_run_where_that_is_asked_for)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=1 %s algorithm.on_exhausted=error",
                         e2e_train_words("run"), HOPELESS),
             1);
    CHECK_CONTAINS(out.data, "2 draws gave 8 prompts, of which 0 stay, and a batch takes 4");
    ares_str_fini(&out);
}

TEST(the_same_prompts_are_answered_afresh)
{
    CHECK_EQ(runs("run", "", 3,
                  DAPO " algorithm.dynamic_sampling.mode=same_prompt algorithm.max_resample=30"),
             0);
    double rounds = 0;
    for (int step = 1; step <= 3; step++) {
        CHECK_EQ(e2e_metric("run", step, "dapo/batch_fill"), 1);
        rounds += e2e_metric("run", step, "dapo/num_gen_rounds");
    }
    CHECK(rounds > 3); /* with the same answers a group would never become mixed */
    CHECK_EQ(runs("once", "", 1, RANDOM), 0);
    CHECK_EQ(test_shell(NULL,
                        "for run in '%s' '%s'; do grep -o '\"prompt\": *\"[^\"]*\"' "
                        "$run/rollouts/step_000001.jsonl | sort -u > $run.prompts; done; test -s "
                        "'%s.prompts' && cmp '%s.prompts' '%s.prompts'",
                        test_file("run"), test_file("once"), test_file("run"), test_file("run"),
                        test_file("once")),
             0);
}

TEST(draws_of_what_is_missing_end_with_the_batch)
{
    CHECK_EQ(runs("run", "", 3, DAPO " algorithm.gen_batch_size=0 algorithm.max_resample=-1"), 0);
    double drawn = 0;
    for (int step = 1; step <= 3; step++) {
        CHECK_EQ(e2e_metric("run", step, "dapo/groups_surplus"), 0);
        CHECK_EQ(e2e_metric("run", step, "dapo/groups_kept"), 4);
        drawn += e2e_metric("run", step, "filter/generated_groups");
    }
    CHECK(drawn > 12);
}

/* Six prompts per draw and a batch of four: groups beyond the batch are counted and left out. */
TEST(groups_beyond_the_batch_are_surplus)
{
    double surplus = 0;
    ares_str draws = { 0 };
    CHECK_EQ(runs("run", "", 4, DAPO " data.mini_rollout_batch_size=6 algorithm.max_resample=-1"),
             0);
    for (int step = 1; step <= 4; step++) {
        double kept = e2e_metric("run", step, "dapo/groups_kept"),
               extra = e2e_metric("run", step, "dapo/groups_surplus"),
               drawn = e2e_metric("run", step, "filter/generated_groups");
        CHECK_EQ(kept, 4);
        CHECK_EQ(drawn, 6 * e2e_metric("run", step, "dapo/num_gen_rounds"));
        double dropped = e2e_metric("run", step, "rollout/dynamic_filter/drop_equal_scores");
        CHECK_EQ(kept + extra + fmax(dropped, 0), drawn); /* absent where none was dropped */
        surplus += extra;
    }
    CHECK(surplus > 0);
    CHECK_EQ(runs("all", "", 2, RANDOM " data.mini_rollout_batch_size=6"),
             0); /* nothing is dropped */
    e2e_values("all/rollouts/step_000001.jsonl", "draw", &draws);
    CHECK_STR(draws.data, " 0 0 0 0 1 1 1 1 2 2 2 2 3 3 3 3");
    e2e_values("all/rollouts/step_000002.jsonl", "draw", &draws);
    CHECK_STR(draws.data, " 6 6 6 6 7 7 7 7 8 8 8 8 9 9 9 9");
    CHECK_EQ(e2e_metric("all", 2, "filter/generated_groups"), 6);
    ares_str_fini(&draws);
}

TEST(longer_answers_than_the_maximum_teach_nothing)
{
    CHECK_EQ(
        runs("keep", "", 1, RANDOM " algorithm.max_length=8 algorithm.over_length_action=keep"), 0);
    CHECK_EQ(e2e_metric("keep", 1, "dapo/discarded_frac"), 0);
    CHECK_EQ(e2e_metric("keep", 1, "response_length/max"), 12);
    CHECK_EQ(runs("mask", "", 1, RANDOM " algorithm.max_length=8"), 0);
    double discarded = e2e_metric("mask", 1, "dapo/discarded_frac"),
           truncated = e2e_metric("keep", 1, "response_length/clip_ratio");
    CHECK(discarded > 0 && discarded < 1);
    CHECK(truncated > 0 && truncated < discarded);
    CHECK(e2e_metric("mask", 1, "response_length/max") <= 8);
    CHECK_EQ(e2e_metric("mask", 1, "response_length/clip_ratio"), 0);
    CHECK_EQ(e2e_metric("mask", 1, "reward/empty_responses"), 0);
    CHECK_EQ(e2e_metric("mask", 1, "perf/total_num_tokens"),
             e2e_metric("keep", 1, "perf/total_num_tokens"));
    CHECK(e2e_metric("mask", 1, "response_length/mean") <
          e2e_metric("keep", 1, "response_length/mean"));
    CHECK_EQ(runs("cut", "", 1, RANDOM " algorithm.mask_truncated=true"), 0);
    CHECK_EQ(e2e_metric("cut", 1, "dapo/discarded_frac"), truncated);
    double norm = e2e_metric("mask", 1, "actor/grad_norm");
    CHECK(norm > 0 && fabs(norm - e2e_metric("keep", 1, "actor/grad_norm")) > 1e-3 * norm);
    CHECK_EQ(runs("all", "", 1, RANDOM " algorithm.max_length=1 worker.rollout.stop=[]"), 0);
    CHECK_EQ(e2e_metric("all", 1, "actor/empty_minibatches"), 1);
}

/* Each group of the batch has two different scores among the answers that were not discarded. */
TEST(a_group_is_informative_by_the_answers_that_are_not_discarded)
{
    CHECK_EQ(runs("run", "", 2, DAPO " algorithm.max_length=8 algorithm.max_resample=-1"), 0);
    for (int step = 1; step <= 2; step++) {
        CHECK_EQ(e2e_metric("run", step, "rollout/mixed_groups_frac"), 1);
        CHECK(e2e_metric("run", step, "dapo/discarded_frac") > 0.2);
    }
}

/* Nothing is learnt from an answer that is too long, whether it is dropped or masked. */
TEST(dropped_answers_are_no_rows_of_the_batch)
{
    CHECK_EQ(runs("mask", "", 1,
                  RANDOM " algorithm.adv_estimator=reinforce_plus_plus algorithm.max_length=11"),
             0);
    CHECK_EQ(runs("drop", "", 1,
                  RANDOM " algorithm.adv_estimator=reinforce_plus_plus algorithm.max_length=11 "
                         "algorithm.over_length_action=drop"),
             0);
    double norm = e2e_metric("mask", 1, "actor/grad_norm");
    CHECK(norm > 0);
    CHECK_NEAR(e2e_metric("drop", 1, "actor/grad_norm"), norm, 1e-6 * norm);
    CHECK_EQ(e2e_metric("drop", 1, "dapo/discarded_frac"),
             e2e_metric("mask", 1, "dapo/discarded_frac"));
    CHECK(e2e_metric("drop", 1, "response_length/max") <= 11);
    CHECK(e2e_metric("drop", 1, "dapo/discarded_frac") > 0);
    int rows = (int)(16 * (1 - e2e_metric("mask", 1, "dapo/discarded_frac")) + 0.5);
    CHECK_EQ(test_shell(NULL, "test $(cat '%s' | wc -l) = %d",
                        test_file("drop/rollouts/step_000001.jsonl"), rows),
             0);
    /*
     * A group with one answer left compares it with nothing, one with no answer left is no group,
     * and a batch without groups gives no update.
     */
    for (int most = 2; most <= 8; most += 3) {
        char words[500];
        snprintf(words, sizeof words, RANDOM " algorithm.max_length=%d", most);
        CHECK_EQ(runs("mask2", "", 1, words), 0);
        snprintf(words, sizeof words,
                 RANDOM " algorithm.max_length=%d algorithm.over_length_action=drop", most);
        CHECK_EQ(runs("few", "", 1, words), 0);
        norm = e2e_metric("mask2", 1, "actor/grad_norm");
        CHECK_NEAR(e2e_metric("few", 1, "actor/grad_norm"), norm, 1e-6 * norm);
        CHECK_EQ(test_shell(NULL, "rm -r '%s' '%s'", test_file("few"), test_file("mask2")), 0);
    }
    CHECK_EQ(
        runs("none", "", 1,
             RANDOM
             " algorithm.max_length=1 worker.rollout.stop=[] algorithm.over_length_action=drop"),
        0);
    CHECK_EQ(e2e_metric("none", 1, "actor/empty_minibatches"), 1);
    CHECK_EQ(runs("gae", "", 1,
                  RANDOM " algorithm.max_length=8 algorithm.over_length_action=drop "
                         "algorithm.adv_estimator=gae"),
             0);
    CHECK_EQ(
        runs("ranked", "", 1,
             DAPO
             " algorithm.max_resample=1 algorithm.max_length=8 algorithm.over_length_action=drop "
             "worker.rollout.rollout_filter_value=0.9"),
        0);
}

/*
 * The bytes of a run's distribution of entropies in step 1: those after its name in TensorBoard's
 * file.
 */
static void distribution(const char *run, char *out, size_t bytes)
{
    static const char tag[] = "rollout/entropy_distribution";
    ares_str file = { 0 };
    char path[300];
    snprintf(path, sizeof path, "cat '%s'/events*", test_file(run));
    CHECK_EQ(test_shell(&file, "%s", path), 0);
    const char *at = memmem(file.data, file.len, tag, sizeof tag - 1);
    memset(out, 0, bytes);
    if (CHECK(at && at + sizeof tag - 1 + bytes <= file.data + file.len))
        memcpy(out, at + sizeof tag - 1, bytes);
    ares_str_fini(&file);
}

/*
 * Answers that are too long are in no distribution, whether they are masked in the batch or dropped
 * from it.
 */
TEST(a_distribution_leaves_discarded_answers_out)
{
    static const char *const runs_of[] = { "keep", "mask", "drop" };
    char bytes[3][400], words[600];
    for (int i = 0; i < 3; i++) {
        snprintf(words, sizeof words,
                 RANDOM " algorithm.adv_estimator=reinforce_plus_plus algorithm.max_length=8 "
                        "algorithm.over_length_action=%s trainer.logger=[tensorboard]",
                 runs_of[i]);
        CHECK_EQ(runs(runs_of[i], "", 1, words), 0);
        distribution(runs_of[i], bytes[i], sizeof *bytes);
    }
    CHECK_MEM(bytes[1], bytes[2], sizeof *bytes);
    CHECK(memcmp(bytes[0], bytes[1], sizeof *bytes) != 0);
}

/* The same groups are learnt from; only their order, and so the mini-batches, differ. */
TEST(mini_batches_are_cut_from_a_random_order)
{
    CHECK_EQ(
        runs("plain", "", 4, RANDOM " worker.actor.global_batch_size=1 worker.actor.optim.lr=0"),
        0);
    CHECK_EQ(runs("shuffled", "", 4,
                  RANDOM " worker.actor.global_batch_size=1 worker.actor.optim.lr=0 "
                         "algorithm.shuffle_rollout=true"),
             0);
    CHECK_EQ(runs("again", "", 4,
                  RANDOM " worker.actor.global_batch_size=1 worker.actor.optim.lr=0 "
                         "actor_rollout_ref.actor.shuffle=true trainer.threads=1"),
             0);
    CHECK(e2e_same_rollouts("plain", "shuffled", 4));
    CHECK(test_shell(NULL, "cmp -s '%s' '%s'", test_file("plain/rollouts/step_000004.jsonl"),
                     test_file("shuffled/rollouts/step_000004.jsonl")) != 0);
    CHECK(e2e_same_runs("shuffled", "again", 4));
    CHECK_EQ(runs("moves", "", 4, RANDOM " worker.actor.global_batch_size=1"), 0);
    CHECK_EQ(runs("otherwise", "", 4,
                  RANDOM " worker.actor.global_batch_size=1 worker.actor.shuffle=true"),
             0);
    CHECK(e2e_metric("moves", 4, "actor/grad_norm") !=
          e2e_metric("otherwise", 4, "actor/grad_norm"));
}

TEST(recomputed_log_probs_are_those_of_the_rollout)
{
    CHECK_EQ(runs("rollout", "", 2, RANDOM " worker.actor.global_batch_size=1"), 0);
    CHECK_EQ(runs("trainer", "", 2,
                  RANDOM " worker.actor.global_batch_size=1 algorithm.recompute_logprobs=true"),
             0);
    CHECK(e2e_same_runs("rollout", "trainer", 2));
}

TEST(the_keys_of_length_shape_the_reward)
{
    CHECK_EQ(runs("run", "", 1,
                  RANDOM
                  " algorithm.safe_length=6 algorithm.max_length=12 reward.len_reward_penalty=0.5"),
             0);
    CHECK_EQ(runs("entry", "", 1,
                  "'worker.reward.rewards=[{name: random}, {name: length, safe_length: 6, "
                  "max_length: 12, len_reward_penalty: 0.5}]'" STOPS),
             0);
    double penalty = e2e_metric("run", 1, "reward/length_penalty");
    CHECK(penalty < 0 && penalty >= -0.5);
    CHECK_EQ(e2e_metric("entry", 1, "reward/length_penalty"), penalty);
    CHECK_EQ(e2e_metric("entry", 1, "reward/overall"), e2e_metric("run", 1, "reward/overall"));
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out,
                         "--check --config '%s' algorithm.safe_length=12 algorithm.max_length=12",
                         e2e_train_words("bad")),
             2);
    CHECK_CONTAINS(out.data, "worker.reward.safe_length = 12 (written algorithm.safe_length): not "
                             "below max_length = 12");
    CHECK_EQ(runs("buffer", "", 1,
                  RANDOM " reward.overlong_buffer.enable=true reward.overlong_buffer.len=6 "
                         "reward.overlong_buffer.penalty_factor=0.5"),
             0);
    CHECK_EQ(e2e_metric("buffer", 1, "reward/length_penalty"), penalty);
    ares_str_fini(&out);
}

/* A group whose answers differ only in the penalty teaches nothing, whatever their lengths. */
TEST(a_penalty_of_length_makes_no_group_informative)
{
    CHECK_EQ(runs("run", "", 1,
                  "'worker.reward.rewards=[{name: none}]' algorithm.safe_length=0 "
                  "algorithm.max_length=12 algorithm.len_reward_penalty=1 "
                  "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=score "
                  "algorithm.max_resample=0"),
             0);
    CHECK_EQ(e2e_metric("run", 1, "dapo/groups_kept"), 0);
}

/* The reward function dapo takes a penalty of length of its own. */
#define WRONG_AND_LONG                                                                             \
    "worker.reward.rewards=null worker.reward.reward_function=dapo "                               \
    "'worker.reward.reward_function_kwargs={max_response_length: 12, overlong_buffer_length: 12, " \
    "overlong_penalty_factor: 1.0}' "                                                              \
    "'worker.rollout.stop=[a, b, c, d, e, f, g, h, i]'"

TEST(the_overlong_part_of_a_reward_function_makes_no_group_informative)
{
    CHECK_EQ(runs("plain", "", 1, WRONG_AND_LONG), 0);
    CHECK(e2e_metric("plain", 1, "critic/score/max") > e2e_metric("plain", 1, "critic/score/min"));
    CHECK_EQ(runs("run", "", 1,
                  WRONG_AND_LONG " algorithm.max_resample=0 algorithm.filter_groups.enable=true "
                                 "algorithm.filter_groups.metric=score"),
             0);
    CHECK_EQ(e2e_metric("run", 1, "dapo/groups_kept"), 0);
    /* weighted, and so large that a float would round the penalty unevenly */
    CHECK_EQ(runs("heavy", "", 1,
                  "'worker.reward.rewards=[{name: format, finished: false, weight: 1003.3}, {name: "
                  "overlong, "
                  "weight: 37.1, max_response_length: 12, overlong_buffer_length: 12}]' "
                  "'worker.rollout.stop=[a, b, c, d, e, f, g, h, i]' algorithm.max_resample=0 "
                  "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=score"),
             0);
    CHECK_EQ(e2e_metric("heavy", 1, "dapo/groups_kept"), 0);
}

/* Each score is 0 except for the penalty of length, so the overall mean lies between -1 and 0. */
TEST(the_overall_score_is_filtered_with_its_penalty_of_length)
{
    static const char *const lengths[] = {
        "'worker.reward.rewards=[{name: none}, {name: length, "
        "safe_length: 0, max_length: 12, len_reward_penalty: 1}]'",
        "'worker.reward.rewards=[{name: none}]' algorithm.safe_length=0 "
        "algorithm.max_length=12 algorithm.len_reward_penalty=1",
        WRONG_AND_LONG
    };
    for (int i = 0; i < ARES_COUNT(lengths); i++) {
        char run[16], words[1000];
        snprintf(run, sizeof run, "run%d", i);
        snprintf(
            words, sizeof words,
            "%s algorithm.online_filtering=true algorithm.filter_key=overall "
            "algorithm.filter_low=%s "
            "algorithm.filter_high=%s algorithm.max_resample=0 algorithm.on_exhausted=fill_masked",
            lengths[i], i < 2 ? "-0.001" : "-1.001", i < 2 ? "0.001" : "-0.999");
        CHECK_EQ(runs(run, "", 1, words), 0);
        CHECK_EQ(e2e_metric(run, 1, "rollout/filter_kept_count"), 0);
        snprintf(run, sizeof run, "all%d", i);
        snprintf(words, sizeof words,
                 "%s algorithm.online_filtering=true algorithm.filter_key=overall "
                 "algorithm.filter_low=-3 "
                 "algorithm.filter_high=-0.001 algorithm.max_resample=0",
                 lengths[i]);
        CHECK_EQ(runs(run, "", 1, words), 0);
        CHECK_EQ(e2e_metric(run, 1, "rollout/filter_kept_count"), 4);
    }
}

/* A limit of length can be set in many places; answers beyond it are discarded in each case. */
TEST(a_limit_of_length_discards_wherever_it_stands)
{
    static const char *const places[] = {
        "algorithm.max_length=8",
        "reward.max_length=8",
        "'worker.reward.rewards=[{name: random}, {name: length, safe_length: 4, max_length: 8}]'",
        "'worker.reward.rewards=[{name: random}, {name: overlong, overlong_buffer_length: 4, "
        "max_response_length: 8}]'",
        "algorithm.safe_length=4 worker.reward.max_length=8",
        "'worker.reward.rewards=[{name: random}, {name: overlong, overlong_buffer_length: 4, "
        "max_response_length: 8}]' worker.reward.max_length=8",
        "worker.reward.rewards=null worker.reward.reward_function=dapo "
        "'worker.reward.reward_function_kwargs={max_response_length: 8, overlong_buffer_length: 4, "
        "overlong_penalty_factor: 1}'",
        "'worker.reward.rewards=[{name: dapo_overlong, max_response_length: 8, "
        "overlong_buffer_length: 4, "
        "overlong_penalty_factor: 1}]'",
    };
    ares_str out = { 0 };
    double want = 0;
    for (int i = 0; i < ARES_COUNT(places); i++) {
        char run[16], words[1000];
        snprintf(run, sizeof run, "run%d", i);
        snprintf(words, sizeof words, RANDOM " %s", places[i]);
        CHECK_EQ(runs(run, "", 1, words), 0);
        if (i == 0) want = e2e_metric(run, 1, "dapo/discarded_frac");
        CHECK(want > 0 && want < 1);
        CHECK_EQ(e2e_metric(run, 1, "dapo/discarded_frac"), want);
        CHECK_EQ(e2e_program(&out, "--check --config '%s' %s", e2e_train_words("check"), words), 0);
        CHECK_CONTAINS(
            out.data,
            "data.max_response_length = 12 allows longer answers, from which nothing is learnt");
    }
    CHECK_EQ(e2e_program(&out, "--check --config '%s' worker.reward.max_length=9 %s",
                         e2e_train_words("check"), places[2]),
             2);
    CHECK_CONTAINS(out.data,
                   "ends at 8 tokens, and worker.reward.max_length at 9; there is one limit of "
                   "length, so give both the same");
    CHECK_EQ(e2e_program(&out,
                         "--check --config '%s' 'worker.reward.rewards=[{name: auto, rm_type: "
                         "length, types: {length: "
                         "{safe_length: 4, max_length: 8}}}]'",
                         e2e_train_words("check")),
             2);
    CHECK_CONTAINS(out.data, "a limit of length applies to all rows");
    ares_str_fini(&out);
}

/* --check: what it says of lengths, penalties and what answers are worth; NULL: no warning. */
TEST(lengths_and_rewards_that_do_not_go_together_are_named)
{
#define NUMBER(rest) "'worker.reward.rewards=[{name: number}" rest "]' "
#define OVERLONG(factor)                                               \
    "reward.overlong_buffer.enable=true reward.overlong_buffer.len=6 " \
    "reward.overlong_buffer.penalty_factor=" factor
    static const struct {
        const char *words;
        int status;
        const char *said;
    } cases[] = {
        /* a penalty made for rewards of 1 and -1 */
        { NUMBER("") OVERLONG("1.0"), 0,
          "the full penalty of length is 1, and a right answer earns 1, a wrong one 0: a right "
          "answer of full length scores no more than a short wrong one" },
        { NUMBER(", {name: overlong, max_response_length: 12, overlong_buffer_length: 6}"), 0,
          "the full penalty of length is 1, and a right answer earns 1, a wrong one 0" },
        { NUMBER("") OVERLONG("0.5"), 0, NULL },
        { NUMBER("") OVERLONG("1.0") " reward.correct=1", 0, NULL },
        { NUMBER("") OVERLONG("1.0") " reward.correct=1 reward.incorrect=0", 0,
          "set worker.reward.correct and incorrect (DAPO: 1 and -1)" },
        { NUMBER("") OVERLONG("1.0") " reward.scale=0.4", 0, "a right answer earns 0.4, a wrong" },
        { "'worker.reward.rewards=[{name: dapo}]' " OVERLONG("1.0"), 0, NULL },
        { "'worker.reward.rewards=[{name: dapo}]' " OVERLONG("2.0"), 0,
          "a right answer earns 1, a wrong one -1" },
        { "'worker.reward.rewards=[{name: number, weight: 0.1}]' algorithm.safe_length=3 "
          "algorithm.max_length=12",
          0, "a right answer earns 0.1, a wrong one 0" },
        { NUMBER("") "worker.reward.scale=0", 2,
          "worker.reward.scale = 0: a right answer would earn 0 and a wrong one 0" },
        { NUMBER("") "reward.correct=-1 reward.incorrect=1", 2,
          "worker.reward.correct = -1 (written reward.correct): a right answer would earn -1 and "
          "a wrong one 1" },
        { NUMBER("") "reward.incorrect=1", 2, "worker.reward.incorrect = 1" },
        /* lengths that no answer has */
        { NUMBER("") "algorithm.safe_length=12 algorithm.max_length=20", 0,
          "worker.reward.safe_length = 12: no answer of training is longer, because "
          "data.max_response_length = 12 ends it" },
        { NUMBER("") "algorithm.max_length=10 algorithm.len_reward_penalty=0.1", 2,
          "worker.reward.safe_length = null: is not set, and the 16384 tokens that it then has are "
          "not below max_length = 10" },
        { NUMBER("") "algorithm.max_length=12 algorithm.len_reward_penalty=0", 0, NULL },
        /* what becomes of answers that are too long */
        { "algorithm.over_length_action=drop", 0,
          "algorithm.over_length_action = 'drop': has no effect, because nothing says when an "
          "answer is too long" },
        { "algorithm.over_length_action=drop algorithm.mask_truncated=true algorithm.max_length=12",
          0, NULL },
        { "algorithm.over_length_action=skip", 2, "choices: mask, drop, keep" },
        { "actor_rollout_ref.actor.use_token_level_loss=False "
          "actor_rollout_ref.actor.loss_agg_mode=token-mean",
          2, "set as actor_rollout_ref.actor.use_token_level_loss too, to another value" },
        { "algorithm.adv_type=math_grpo algorithm.adv_estimator=rloo", 2,
          "set as algorithm.adv_type too, to another value" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        CHECK_EQ(
            e2e_program(&out, "--check --config '%s' %s", e2e_train_words("check"), cases[i].words),
            cases[i].status);
        if (cases[i].said) CHECK_CONTAINS(out.data, cases[i].said);
        else CHECK_MSG(!strstr(out.data, "warning:"), "%s: %s", cases[i].words, out.data);
        ares_str_fini(&out);
    }
}

static void resumes(const char *options, int steps)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_stop("part", "KILL", 12,
                      "--config '%s' trainer.max_steps=%d trainer.save_freq=5 %s",
                      e2e_train_words("part"), steps, options),
             137);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=%d trainer.save_freq=5 %s",
                         e2e_train_words("part"), steps, options),
             0);
    CHECK_CONTAINS(out.data, "going on from ");
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=%d trainer.save_freq=5 %s",
                         e2e_train_words("whole"), steps, options),
             0);
    e2e_same_runs("whole", "part", steps);
    ares_str_fini(&out);
}

TEST(a_run_of_the_same_prompts_goes_on_bit_for_bit)
{
    resumes(DAPO " algorithm.dynamic_sampling.mode=same_prompt algorithm.max_resample=3 "
                 "algorithm.mask_truncated=true",
            40);
}
TEST(a_shuffled_run_that_drops_goes_on_bit_for_bit)
{
    resumes(DAPO
            " worker.actor.shuffle=true worker.actor.global_batch_size=2 algorithm.max_resample=3 "
            "algorithm.max_length=8 algorithm.over_length_action=drop",
            40);
}
TEST(a_run_that_draws_what_is_missing_goes_on_bit_for_bit)
{
    resumes(DAPO " algorithm.gen_batch_size=0 algorithm.max_resample=3 algorithm.max_length=8", 40);
}

/*
 * Kept groups that the ranks do not divide: those that every rank needs besides change neither what
 * is trained on nor what makes a mini-batch.
 */
TEST_MPI(a_smaller_batch_trains_on_the_same_groups_on_four_ranks_as_on_one)
{
    static const char *const options[] = {
        "", "worker.actor.shuffle=true worker.actor.global_batch_size=4",
        "worker.actor.mini_batch_unit=rows worker.actor.global_batch_size=4",
        "algorithm.over_length_action=drop algorithm.max_length=8"
    };
    static const char *const same[] = { "dapo/groups_kept",     "dapo/batch_fill", "reward/overall",
                                        "response_length/mean", "actor/entropy",   "actor/pg_loss",
                                        "actor/grad_norm" };
    E2E_NEEDS_MPI();
    for (int i = 0; i < ARES_COUNT(options); i++) {
        char alone[32], four[32];
        snprintf(alone, sizeof alone, "alone%d", i);
        snprintf(four, sizeof four, "four%d", i);
        for (int ranks = 1; ranks <= 4; ranks += 3)
            CHECK_EQ(e2e_program(NULL,
                                 "--ranks %d --config '%s' trainer.max_steps=1 trainer.threads=1 "
                                 "%s data.rollout_batch_size=8 worker.actor.global_batch_size=8 "
                                 "worker.rollout.n=2 worker.rollout.seed=9 worker.actor.optim.lr=0 "
                                 "algorithm.max_resample=0 algorithm.on_exhausted=smaller_batch %s",
                                 ranks, e2e_train_words(ranks == 1 ? alone : four), DAPO,
                                 options[i]),
                     0);
        double kept = e2e_metric(alone, 1, "dapo/groups_kept");
        CHECK_MSG(kept > 0 && fmod(kept, 4) == 1, "%s: %g groups are kept", options[i], kept);
        for (int k = 0; k < ARES_COUNT(same); k++) {
            double want = e2e_metric(alone, 1, same[k]), is = e2e_metric(four, 1, same[k]);
            CHECK_MSG(fabs(is - want) <= 1e-6 * fabs(want), "%s: %s is %.9g, %.9g on one rank",
                      options[i], same[k], is, want);
        }
    }
}

TEST_MPI(two_ranks_resample_as_one)
{
    static const char *const options[] = {
        DAPO " algorithm.gen_batch_size=0 algorithm.max_resample=-1",
        DAPO " algorithm.gen_batch_size=2 algorithm.max_resample=1 algorithm.max_length=8",
        DAPO " algorithm.dynamic_sampling.mode=same_prompt algorithm.max_resample=2 "
             "algorithm.mask_truncated=true",
        RANDOM
        " worker.actor.shuffle=true worker.actor.global_batch_size=2 worker.actor.optim.lr=0 "
        "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=score "
        "algorithm.max_resample=2",
        RANDOM
        " algorithm.max_length=8 algorithm.over_length_action=drop worker.actor.shuffle=true",
    };
    static const char *const same[] = { "filter/tries", "dapo/groups_kept", "dapo/batch_fill",
                                        "reward/overall", "response_length/mean" };
    E2E_NEEDS_MPI();
    for (int i = 0; i < ARES_COUNT(options); i++) {
        char alone[32], two[32];
        snprintf(alone, sizeof alone, "alone%d", i);
        snprintf(two, sizeof two, "two%d", i);
        CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=1 trainer.threads=1 %s",
                             e2e_train_words(alone), options[i]),
                 0);
        CHECK_EQ(e2e_program(NULL,
                             "--ranks 2 --config '%s' trainer.max_steps=1 trainer.threads=1 %s",
                             e2e_train_words(two), options[i]),
                 0);
        CHECK(e2e_same_rollouts(alone, two, 1));
        for (int k = 0; k < ARES_COUNT(same); k++)
            CHECK_NEAR(e2e_metric(two, 1, same[k]), e2e_metric(alone, 1, same[k]), 1e-9);
        double norm = e2e_metric(alone, 1, "actor/grad_norm");
        CHECK(norm > 0);
        CHECK_NEAR(e2e_metric(two, 1, "actor/grad_norm"), norm, 1e-6 * norm);
    }
}
