/*
 * Runs that measure themselves: the training is that of a run that does not, a resumed run that of
 * one that was never interrupted, and two ranks see what one does.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agent_runs.h"
#include "e2e.h"

static const char measured[] = "report.collapse.freq=2 report.collapse.samples=6 "
                               "report.gradient_analysis.every=1";

/* Rewards vary within groups; all three terms of the loss; the critic learns, too. */
static int train(const char *run, const char *launch, const char *more)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out,
                         "%s --config '%s' 'worker.reward.rewards=[{name: random}]' "
                         "algorithm.adv_estimator=gae worker.actor.entropy_coeff=0.01 "
                         "algorithm.disable_kl=false algorithm.use_kl_loss=true "
                         "trainer.save_freq=1 trainer.threads=1 %s",
                         launch, e2e_train_words(run), more);
    CHECK_MSG(rc == 0, "%s", out.data ? out.data : "");
    ares_str_fini(&out);
    return rc;
}

static void same_file(const char *a, const char *b, const char *file)
{
    char path[2][200];
    for (int i = 0; i < 2; i++) snprintf(path[i], sizeof path[i], "%s/%s", i ? b : a, file);
    CHECK_EQ(test_shell(NULL, "cmp '%s' '%s'", test_file(path[0]), test_file(path[1])), 0);
}

TEST(a_run_that_measures_itself_trains_as_one_that_does_not)
{
    static const char *const files[] = { "model/model.safetensors", "optimizer.safetensors",
                                         "critic/model.safetensors", "source.json" };
    static const char *const metrics[] = { "actor/grad_norm", "actor/kl", "actor/entropy",
                                           "critic/vf_loss", "exact/rollout_train_max_abs" };
    char more[200];
    snprintf(more, sizeof more, "trainer.max_steps=2 %s", measured);
    train("plain", "", "trainer.max_steps=2");
    train("measured", "", more);
    for (int i = 0; i < ARES_COUNT(files); i++) {
        char file[100];
        snprintf(file, sizeof file, "checkpoints/step_000002/%s", files[i]);
        same_file("plain", "measured", file);
    }
    for (int step = 1; step <= 2; step++) {
        CHECK(e2e_same_rollouts("plain", "measured", step));
        for (int i = 0; i < ARES_COUNT(metrics); i++)
            CHECK_NEAR(e2e_metric("measured", step, metrics[i]),
                       e2e_metric("plain", step, metrics[i]), 0);
        CHECK(e2e_metric("measured", step, "grad_norm/all/task") > 0);
        CHECK(e2e_metric("measured", step, "grad_norm/bucket_4/entropy") > 0);
        /* in step 1 the policy is the reference still */
        CHECK_EQ(e2e_metric("measured", step, "grad_norm/all/kl") > 0, step > 1);
        CHECK(!isnan(e2e_metric("measured", step, "collapse_first_turn_sample/mi_estimate")));
    }
    CHECK(isnan(e2e_metric("plain", 1, "grad_norm/all/task")));
}

TEST(a_resumed_run_measures_what_an_uninterrupted_one_does)
{
    static const char name[] = "collapse_trajectory_sample/marginal_std_ema";
    char more[200];
    snprintf(more, sizeof more, "trainer.max_steps=4 %s", measured);
    if (train("run", "", more) != 0) return;
    double ema[3] = { e2e_metric("run", 1, name), e2e_metric("run", 2, name),
                      e2e_metric("run", 4, name) },
           now = e2e_metric("run", 4, "collapse_trajectory_sample/marginal_std");
    CHECK(isnan(e2e_metric("run", 3, name)));
    CHECK(ema[1] != ema[0]);
    CHECK_NEAR(ema[2], 0.9 * ema[1] + 0.1 * now, 1e-12);
    for (int from = 1; from <= 3; from += 2) {
        if (!e2e_go_back("run", "whole", from)) return;
        train("run", "", more);
        e2e_same_runs("whole", "run", 4);
    }
}

/*
 * Equal scores give no policy gradient, and in step 1 the KL to a reference that is the policy
 * gives none. So in step 2 the weights do not depend on kl_coef, and of what is measured only the
 * KL's gradient does.
 */
TEST(a_term_is_measured_without_the_others)
{
    static const char *const runs[] = { "weak", "strong" };
    double entropy[2], kl[2];
    for (int i = 0; i < 2; i++) {
        ares_str out = { 0 };
        CHECK_EQ(e2e_program(&out,
                             "--config '%s' trainer.max_steps=2 trainer.threads=1 "
                             "'worker.reward.rewards=[{name: format, pattern: none, finished: "
                             "false}]' worker.actor.entropy_coeff=0.5 algorithm.disable_kl=false "
                             "algorithm.use_kl_loss=true algorithm.kl_coef=%s "
                             "report.gradient_analysis.every=1",
                             e2e_train_words(runs[i]), i ? "8" : "0.5"),
                 0);
        ares_str_fini(&out);
        CHECK_NEAR(e2e_metric(runs[i], 1, "grad_norm/all/kl"), 0, 0);
        CHECK_NEAR(e2e_metric(runs[i], 2, "grad_norm/all/task"), 0, 0);
        entropy[i] = e2e_metric(runs[i], 2, "grad_norm/all/entropy");
        kl[i] = e2e_metric(runs[i], 2, "grad_norm/all/kl");
        CHECK(entropy[i] > 0 && kl[i] > 0);
    }
    CHECK_NEAR(entropy[1], entropy[0], 0);
    CHECK_NEAR(kl[1] / kl[0], 16, 1e-6);
}

TEST(a_run_that_only_measures_keeps_its_weights)
{
    train("run", "",
          "trainer.max_steps=2 report.gradient_analysis.every=2 "
          "report.gradient_analysis.only=true");
    CHECK(isnan(e2e_metric("run", 1, "actor/lr")) && isnan(e2e_metric("run", 1, "critic/lr")));
    CHECK(e2e_metric("run", 1, "grad_norm/all/task") > 0);
    CHECK(isnan(e2e_metric("run", 2, "grad_norm/all/task")));
    CHECK_EQ(test_shell(NULL,
                        "cd '%s/checkpoints' && cmp step_000001/model/model.safetensors "
                        "step_000002/model/model.safetensors",
                        test_file("run")),
             0);
}

TEST_MPI(two_ranks_measure_what_one_does)
{
    E2E_NEEDS_MPI();
    static const char *const same[] = { "collapse_first_turn_sample/mi_estimate",
                                        "collapse_trajectory_sample/mi_seq_estimate",
                                        "collapse_trajectory_sample/marginal_std",
                                        "collapse_trajectory_sample/retrieval_accuracy@2",
                                        "grad_norm/bucket_2/reward_std_mean",
                                        "grad_norm/bucket_2/sample_count" };
    static const char *const near[] = { "grad_norm/bucket_1/task", "grad_norm/bucket_3/task",
                                        "grad_norm/all/task", "grad_norm/all/entropy",
                                        "grad_norm/bucket_3/loss/policy" };
    char more[200];
    snprintf(more, sizeof more, "trainer.max_steps=1 report.gradient_analysis.buckets=3 %s",
             measured);
    train("one", "", more);
    train("two", "--ranks 2", more);
    for (int i = 0; i < ARES_COUNT(same); i++) {
        CHECK(!isnan(e2e_metric("one", 1, same[i])));
        CHECK_NEAR(e2e_metric("two", 1, same[i]), e2e_metric("one", 1, same[i]), 0);
    }
    for (int i = 0; i < ARES_COUNT(near); i++)
        CHECK_NEAR(e2e_metric("two", 1, near[i]), e2e_metric("one", 1, near[i]),
                   1e-5 * fmax(1e-2, fabs(e2e_metric("one", 1, near[i]))));
}

/* ---------------- conversations with environments */
static void train_agent(const char *run, const char *words)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out,
                         "--config '%s' trainer.threads=1 trainer.max_steps=2 "
                         "env.enable_think=true data.max_response_length=40 %s",
                         agent_words_of(agent_thinking(), run), words);
    CHECK_MSG(rc == 0, "%s", out.data ? out.data : "");
    ares_str_fini(&out);
}

static const char of_agents[] = "report.collapse.freq=1 report.collapse.samples=12";

/* Shares of turns with a thought, of all and of the first ones, as the rollouts show them. */
static void count_thoughts(const char *run, double *all, double *first)
{
    ares_arena arena = { 0 };
    int64_t n;
    double turns = 0;
    const ares_json **rows = e2e_rows(&arena, run, "rollouts/step_000001.jsonl", &n);
    *all = *first = 0;
    for (int64_t r = 0; r < n; r++) {
        const ares_json *list = ares_json_get(rows[r], "turns");
        for (int64_t t = 0; t < list->count; t++, turns++) {
            ares_view said = ares_json_get(&list->items[t], "response")->text;
            int64_t begin = (int64_t)strlen("<think>"),
                    end = ares_view_find(said, ARES_VIEW("</think>"), 0);
            bool thought =
                end > begin &&
                ares_view_trim((ares_view){ said.data + begin, (size_t)(end - begin) }).len > 0;
            *all += thought;
            *first += thought && t == 0;
        }
    }
    *all /= turns;
    *first /= (double)n;
    ares_arena_fini(&arena);
}

TEST_SLOW(thoughts_of_conversations_are_measured_and_training_stays_as_it_is)
{
    double all, first;
    train_agent("plain", "");
    train_agent("measured", of_agents);
    same_file("plain", "measured", "checkpoints/step_000002/model/model.safetensors");
    same_file("plain", "measured", "checkpoints/step_000002/critic/model.safetensors");
    same_file("plain", "measured", "checkpoints/step_000002/source.json");
    for (int step = 1; step <= 2; step++) {
        CHECK(e2e_same_rollouts("plain", "measured", step));
        CHECK_NEAR(e2e_metric("measured", step, "actor/grad_norm"),
                   e2e_metric("plain", step, "actor/grad_norm"), 0);
        CHECK_NEAR(e2e_metric("measured", step, "exact/rollout_train_max_abs"), 0, 0);
    }
    count_thoughts("measured", &all, &first);
    CHECK(all > 0.1);
    CHECK_NEAR(e2e_metric("measured", 1, "collapse/valid_thinking_rate"), all, 1e-12);
    CHECK_NEAR(e2e_metric("measured", 1, "collapse/first_turn_valid_rate"), first, 1e-12);
    CHECK_NEAR(e2e_metric("measured", 1, "collapse/first_turn_num_total"), 16, 0);
    /* 4 groups, each with a room of its own; a prompt of its own for each of 12 draws */
    CHECK_NEAR(e2e_metric("measured", 1, "collapse_first_turn_sample/mi_upper_bound"), log(4),
               1e-12);
    CHECK_NEAR(e2e_metric("measured", 1, "collapse_trajectory_sample/mi_upper_bound"), log(12),
               1e-12);
    CHECK(!isnan(e2e_metric("measured", 2, "collapse_trajectory_sample/mi_zscore_ema_seq")));
    CHECK(isnan(e2e_metric("plain", 1, "collapse/valid_thinking_rate")));
}

/* The first turn reads the same whatever the context and the text that is trained. */
TEST_SLOW(first_thoughts_are_the_same_in_every_context)
{
    static const char *const others[] = {
        "env.token_exact=false",
        "env.context_window_mode=limited_multi_turn env.max_context_window=1 "
        "worker.actor.mini_batch_unit=prompts worker.actor.global_batch_size=4",
    };
    static const char *const names[] = { "collapse_first_turn_sample/mi_estimate",
                                         "collapse_first_turn_sample/retrieval_accuracy@2",
                                         "collapse_first_turn_sample/marginal_std_seq" };
    char words[400];
    train_agent("exact", of_agents);
    for (int i = 0; i < ARES_COUNT(others); i++) {
        snprintf(words, sizeof words, "trainer.max_steps=1 %s %s", of_agents, others[i]);
        train_agent("other", words);
        for (int k = 0; k < ARES_COUNT(names); k++)
            CHECK_NEAR(e2e_metric("other", 1, names[k]), e2e_metric("exact", 1, names[k]), 0);
        CHECK(!isnan(e2e_metric("other", 1, "collapse_trajectory_sample/mi_estimate")));
        CHECK_OK(ares_dir_remove(test_file("other")));
    }
}

TEST_MPI(two_ranks_measure_the_thoughts_of_conversations_as_one_does)
{
    E2E_NEEDS_MPI();
    static const char *const same[] = { "collapse/valid_thinking_rate",
                                        "collapse/first_turn_num_valid",
                                        "collapse_first_turn_sample/mi_estimate",
                                        "collapse_first_turn_sample/mi_zscore_seq",
                                        "collapse_trajectory_sample/mi_seq_estimate",
                                        "collapse_trajectory_sample/conditional_entropy_est",
                                        "collapse_trajectory_sample/retrieval_accuracy@4" };
    char words[160];
    for (int ranks = 1; ranks <= 2; ranks++) {
        snprintf(words, sizeof words, "trainer.max_steps=1 %s --ranks %d", of_agents, ranks);
        train_agent(ranks == 1 ? "one" : "two", words);
    }
    for (int i = 0; i < ARES_COUNT(same); i++) {
        CHECK(!isnan(e2e_metric("one", 1, same[i])));
        CHECK_NEAR(e2e_metric("two", 1, same[i]), e2e_metric("one", 1, same[i]), 0);
    }
}
