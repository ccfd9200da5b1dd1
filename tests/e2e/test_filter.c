/*
 * Groups from which nothing can be learnt are replaced until the batch is full, the same with any
 * number of ranks and after any interruption; a run with a critic, or with a greedy baseline,
 * resumes bit for bit. These tests failed when the optimizer of the critic was not loaded, and when
 * the batch was not cut to its size.
 */
#include "e2e.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The score depends on the answer's text alone; exactly two of four answers must be right. */
#define FILTERED                                                                       \
    "'worker.reward.rewards=[{name: random}]' algorithm.online_filtering=true "        \
    "algorithm.filter_key=overall algorithm.filter_low=0.3 algorithm.filter_high=0.7 " \
    "trainer.max_try_make_batch=0"

TEST(groups_outside_the_bounds_are_replaced_until_the_batch_is_full)
{
    ares_str out = { 0 };
    CHECK_EQ(
        e2e_program(&out, "--config '%s' trainer.max_steps=3 %s", e2e_train_words("run"), FILTERED),
        0);
    for (int step = 1; step <= 3; step++) {
        double tries = e2e_metric("run", step, "filter/tries"),
               kept = e2e_metric("run", step, "filter/kept_groups");
        CHECK_EQ(e2e_metric("run", step, "filter/generated_groups"), 4 * tries);
        CHECK(kept >= 4 && kept < 4 * tries);
        CHECK_EQ(e2e_metric("run", step, "reward/overall"), 0.5);
    }
    CHECK_EQ(test_shell(NULL, "test $(cat '%s'/rollouts/*.jsonl | wc -l) = 48", test_file("run")),
             0);
    ares_str_fini(&out);
}

TEST(draws_that_never_fill_a_batch_end_with_their_counts)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' trainer.max_steps=1 'worker.reward.rewards=[{name: "
                         "exact}]' algorithm.online_filtering=true trainer.max_try_make_batch=3",
                         e2e_train_words("run")),
             1);
    CHECK_CONTAINS(out.data, "3 draws gave 12 prompts, of which 0 stay, and a batch takes 4");
    CHECK_CONTAINS(out.data, "raise trainer.max_try_make_batch");
    ares_str_fini(&out);
}

static void resumes(const char *options, int steps, int rows)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_stop("part", "KILL", rows,
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

TEST(a_filtered_run_goes_on_bit_for_bit)
{
    resumes(FILTERED, 40, 12);
}
TEST(a_run_with_a_critic_goes_on_bit_for_bit)
{
    resumes("algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3", 40, 12);
}
TEST(a_run_whose_mini_batches_divide_groups_goes_on_bit_for_bit)
{
    resumes("algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3 worker.rollout.n=3 "
            "worker.actor.mini_batch_unit=rows worker.actor.global_batch_size=4 "
            "worker.critic.global_batch_size=2",
            40, 12);
}
TEST(a_run_with_a_greedy_baseline_goes_on_bit_for_bit)
{
    resumes("algorithm.adv_estimator=remax", 40, 12);
}

TEST(the_critic_learns_its_returns)
{
    CHECK_EQ(e2e_program(NULL,
                         "--config '%s' trainer.max_steps=30 algorithm.adv_estimator=gae "
                         "worker.critic.optim.lr=3e-3 trainer.critic_warmup=30 "
                         "'worker.reward.rewards=[{name: format, finished: false}]'",
                         e2e_train_words("run")),
             0);
    double first = 0, last = 0;
    for (int i = 1; i <= 3; i++) {
        first += e2e_metric("run", i, "critic/vf_loss");
        last += e2e_metric("run", 30 - 3 + i, "critic/vf_loss");
    }
    CHECK(first > 0.5 && last < 0.1 * first); /* every return is 1 */
    /* while the critic warms up the actor does not change */
    CHECK(isnan(e2e_metric("run", 30, "actor/lr")));
}

/* The groups with the largest standard deviation of rewards, of each draw of four. */
#define RANKED                                                                               \
    "'worker.reward.rewards=[{name: random}]' worker.rollout.rollout_filter_strategy=top_k " \
    "worker.rollout.rollout_filter_value="

static int run_for(const char *run, int steps, const char *options)
{
    return e2e_program(NULL, "--config '%s' trainer.max_steps=%d %s", e2e_train_words(run), steps,
                       options);
}

static int rows_of_step(const char *run, int step)
{
    ares_str out = { 0 };
    char file[64];
    snprintf(file, sizeof file, "%s/rollouts/step_%06d.jsonl", run, step);
    CHECK_EQ(test_shell(&out, "cat '%s' | wc -l", test_file(file)), 0);
    int rows = (int)strtol(out.data, NULL, 10);
    ares_str_fini(&out);
    return rows;
}

TEST(ranked_groups_alone_leave_a_smaller_batch)
{
    CHECK_EQ(run_for("run", 2, RANKED "0.5 worker.actor.global_batch_size=2"), 0);
    for (int step = 1; step <= 2; step++) {
        CHECK_EQ(e2e_metric("run", step, "filter/tries"), 1);
        CHECK_EQ(e2e_metric("run", step, "rollout/filter_kept_count"), 2);
        CHECK_EQ(e2e_metric("run", step, "rollout/filter_kept_ratio"), 0.5);
        CHECK_EQ(rows_of_step("run", step), 8);
    }
    CHECK(e2e_metric("run", 1, "actor/grad_norm") > 0);
    /* three of four groups make one mini-batch of two and one of one */
    CHECK_EQ(
        run_for("uneven", 1,
                RANKED
                "0.75 worker.actor.global_batch_size=2 worker.actor.filter_loss_scaling=linear"),
        0);
    CHECK_EQ(rows_of_step("uneven", 1), 12);
    CHECK_EQ(e2e_metric("uneven", 1, "rollout/filter_kept_ratio"), 0.75);
}

/* One of four groups is kept. */
TEST(the_loss_is_scaled_by_the_share_of_groups_that_stay)
{
    static const char *const names[] = { "none", "linear", "sqrt" };
    static const double factors[] = { 1, 0.25, 0.5 };
    double norm[3];
    for (int i = 0; i < 3; i++) {
        char options[300];
        snprintf(options, sizeof options, RANKED "0.25 worker.actor.filter_loss_scaling=%s",
                 names[i]);
        CHECK_EQ(run_for(names[i], 1, options), 0);
        norm[i] = e2e_metric(names[i], 1, "actor/grad_norm");
    }
    CHECK(norm[0] > 0);
    for (int i = 1; i < 3; i++) CHECK_NEAR(norm[i], factors[i] * norm[0], 1e-6 * norm[0]);
}

/* Eight groups of four answers of different lengths and scores. */
enum { GROUPS = 8, ANSWERS = 4 };
#define SPREAD                                                                                 \
    "data.rollout_batch_size=8 'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, k, l, o, u]' " \
    "'worker.reward.rewards=[{name: random}, {name: random, as: second, seed: 2, weight: 0.3}]' "

typedef struct measured {
    double reward[GROUPS], deviation[GROUPS], length[GROUPS];
} measured;

static void measure(const char *file, measured *out)
{
    ares_str score = { 0 }, tokens = { 0 };
    e2e_values(file, "score", &score);
    e2e_values(file, "n_tokens", &tokens);
    char *s = score.data, *t = tokens.data;
    for (int g = 0; g < GROUPS; g++) {
        double sum = 0, squares = 0;
        out->length[g] = 0;
        for (int i = 0; i < ANSWERS; i++) {
            double x = strtod(s, &s);
            sum += x;
            squares += x * x;
            out->length[g] += strtod(t, &t) / ANSWERS;
        }
        out->reward[g] = sum / ANSWERS;
        out->deviation[g] = sqrt(fmax(0, squares - sum * sum / ANSWERS) / (ANSWERS - 1));
    }
    ares_str_fini(&score), ares_str_fini(&tokens);
}

/* The groups that the first step keeps, in order. */
static void kept_by(const char *options, ares_str *draws)
{
    char words[500];
    snprintf(words, sizeof words, SPREAD "%s", options);
    CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("ranked")), 0);
    CHECK_EQ(run_for("ranked", 1, words), 0);
    e2e_values("ranked/rollouts/step_000001.jsonl", "draw", draws);
}

TEST(the_ranking_keeps_the_group_that_its_metric_and_type_name)
{
    measured m;
    ares_str draws = { 0 };
    CHECK_EQ(run_for("all", 1, SPREAD "worker.rollout.rollout_filter_strategy=none"), 0);
    measure("all/rollouts/step_000001.jsonl", &m);
    const struct {
        const char *name;
        const double *of;
    } metrics[] = { { "reward", m.reward },
                    { "reward_variance", m.deviation },
                    { "length", m.length } };
    for (int i = 0; i < 2 * ARES_COUNT(metrics); i++) {
        const char *type = i % 2 ? "smallest" : "largest", *name = metrics[i / 2].name;
        const double *x = metrics[i / 2].of;
        int best = 0;
        char words[200];
        for (int g = 1; g < GROUPS; g++)
            if (i % 2 ? x[g] < x[best] : x[g] > x[best]) best = g;
        snprintf(words, sizeof words,
                 "worker.rollout.rollout_filter_strategy=top_k_abs "
                 "worker.rollout.rollout_filter_value=1 "
                 "worker.rollout.rollout_filter_metric=%s worker.rollout.rollout_filter_type=%s",
                 name, type);
        kept_by(words, &draws);
        int kept = (int)strtol(draws.data, NULL, 10);
        CHECK_MSG(kept < GROUPS && fabs(x[kept] - x[best]) < 1e-6, "%s %s: group %d, not %d", type,
                  name, kept, best);
    }
    double entropy = e2e_metric("all", 1, "actor/entropy");
    for (int i = 0; i < 4; i++) {
        char words[200];
        bool smallest = i % 2;
        snprintf(words, sizeof words,
                 "worker.rollout.rollout_filter_strategy=top_k_abs "
                 "worker.rollout.rollout_filter_value=%d "
                 "worker.rollout.rollout_filter_metric=entropy "
                 "worker.rollout.rollout_filter_type=%s",
                 i < 2 ? 1 : GROUPS / 2, smallest ? "smallest" : "largest");
        kept_by(words, &draws);
        double kept = e2e_metric("ranked", 1, "actor/entropy");
        CHECK_MSG(smallest ? kept < entropy : kept > entropy, "%s: %.9g of those kept, %.9g of all",
                  words, kept, entropy);
    }
    ares_str_fini(&draws);
}

static int downwards(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* How many of the first values are needed to reach the sum. */
static int prefix(const double *x, double sum)
{
    int n = 0;
    for (double so_far = 0; n < GROUPS && so_far < sum; n++) so_far += x[n];
    return n;
}

TEST(a_strategy_keeps_as_many_groups_as_base_yaml_says)
{
    static const char base[] = "worker.rollout.rollout_filter_metric=reward worker.rollout.";
    measured m;
    ares_str draws = { 0 };
    double mass[GROUPS], sum = 0, masses = 0;
    CHECK_EQ(run_for("all", 1, SPREAD "worker.rollout.rollout_filter_strategy=none"), 0);
    measure("all/rollouts/step_000001.jsonl", &m);
    qsort(m.reward, GROUPS, sizeof *m.reward, downwards);
    int min_p = 0;
    for (int g = 0; g < GROUPS; g++) {
        sum += m.reward[g];
        masses += mass[g] = exp(m.reward[g] - m.reward[0]);
        min_p += m.reward[g] >= 0.7 * m.reward[0];
    }
    const struct {
        const char *options;
        int groups;
    } cases[] = {
        { "rollout_filter_strategy=min_p worker.rollout.rollout_filter_value=0.7", min_p },
        { "rollout_filter_value=0.6", prefix(mass, 0.6 * masses) },
        { "rollout_filter_value=0.6 worker.rollout.rollout_filter_top_p_prob_mode=linear",
          prefix(m.reward, 0.6 * sum - 0.01) },
        { "rollout_filter_value=0.6 worker.rollout.rollout_filter_top_p_prob_mode=linear "
          "worker.rollout.rollout_filter_selection_eps=1",
          prefix(m.reward, 0.6 * sum - 1) },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char words[300];
        snprintf(words, sizeof words, "%s%s", base, cases[i].options);
        kept_by(words, &draws);
        double kept = e2e_metric("ranked", 1, "rollout/filter_kept_count");
        CHECK_MSG(kept == cases[i].groups, "%s: %g groups, not %d", cases[i].options, kept,
                  cases[i].groups);
    }
    ares_str_fini(&draws);
}

TEST(ranked_groups_are_replaced_where_max_resample_asks_for_it)
{
    CHECK_EQ(run_for("run", 1, RANKED "0.5 algorithm.max_resample=1"), 0);
    CHECK_EQ(e2e_metric("run", 1, "filter/tries"), 2);
    CHECK_EQ(e2e_metric("run", 1, "filter/generated_groups"), 8);
    CHECK_EQ(e2e_metric("run", 1, "rollout/filter_kept_count"), 4); /* of both draws */
    CHECK_EQ(e2e_metric("run", 1, "rollout/filter_kept_ratio"), 0.5);
    CHECK_EQ(e2e_metric("run", 1, "rollout/dynamic_filter/drop_rv_top_k"), 4);
    CHECK_EQ(rows_of_step("run", 1), 16);
    CHECK_EQ(run_for("filled", 1, RANKED "0.5 algorithm.on_exhausted=fill_masked"), 0);
    CHECK_EQ(rows_of_step("filled", 1), 16);
    CHECK_EQ(run_for("small", 1, RANKED "0.5"), 0);
    CHECK_NEAR(e2e_metric("small", 1, "actor/grad_norm"),
               e2e_metric("filled", 1, "actor/grad_norm"),
               1e-6 * e2e_metric("filled", 1, "actor/grad_norm"));
}

/*
 * Prompts are drawn until the other filter has filled the batch; then the groups of the batch are
 * ranked once.
 */
TEST(other_filters_fill_the_batch_before_it_is_ranked)
{
    CHECK_EQ(run_for("run", 2,
                     FILTERED " worker.rollout.rollout_filter_strategy=top_k_abs "
                              "worker.rollout.rollout_filter_value=3"),
             0);
    for (int step = 1; step <= 2; step++) {
        double drawn = e2e_metric("run", step, "filter/generated_groups"),
               kept = e2e_metric("run", step, "rollout/filter_kept_count");
        CHECK_EQ(e2e_metric("run", step, "rollout/dynamic_filter/drop_rv_top_k_abs"), 1);
        CHECK_EQ(rows_of_step("run", step), 12);
        CHECK_EQ(e2e_metric("run", step, "filter/kept_groups"), kept);
        CHECK_EQ(e2e_metric("run", step, "rollout/filter_kept_ratio"), kept / drawn);
        CHECK_EQ(e2e_metric("run", step, "reward/overall"), 0.5);
    }
}

TEST(counts_of_filters_are_of_all_draws)
{
    CHECK_EQ(run_for("run", 3, FILTERED), 0);
    for (int step = 1; step <= 3; step++) {
        double drawn = e2e_metric("run", step, "filter/generated_groups"),
               kept = e2e_metric("run", step, "filter/kept_groups"),
               zero = e2e_metric("run", step, "rollout/filter_zero_count");
        CHECK_EQ(e2e_metric("run", step, "rollout/filter_kept_count"), kept);
        CHECK_EQ(e2e_metric("run", step, "rollout/filter_kept_ratio"), kept / drawn);
        CHECK(zero >= 0 && zero <= drawn - kept);
    }
}

TEST(a_step_whose_groups_are_all_dropped_updates_nothing)
{
    CHECK_EQ(run_for("run", 2,
                     "'worker.reward.rewards=[{name: none}]' "
                     "worker.rollout.rollout_filter_include_zero=false"),
             0);
    CHECK_EQ(e2e_metric("run", 1, "rollout/filter_kept_count"), 0);
    CHECK_EQ(e2e_metric("run", 1, "rollout/empty_after_filter"), 1);
    CHECK_EQ(e2e_metric("run", 1, "rollout/filter_zero_count"), 4);
    CHECK_EQ(e2e_metric("run", 2, "actor/empty_minibatches"), 1);
    CHECK_EQ(run_for("kept", 1, RANKED "0.5"), 0);
    CHECK_EQ(e2e_metric("kept", 1, "rollout/empty_after_filter"), 0);
}

TEST(a_ranked_run_goes_on_bit_for_bit)
{
    resumes(RANKED "0.75 worker.actor.global_batch_size=2", 40, 12);
}

TEST_MPI(two_ranks_rank_as_one)
{
    static const char *const options[] = { RANKED "0.75 worker.actor.global_batch_size=2",
                                           RANKED "0.75 algorithm.max_resample=2", RANKED "0.25" };
    E2E_NEEDS_MPI();
    for (int i = 0; i < ARES_COUNT(options); i++) {
        char alone[32], two[32];
        snprintf(alone, sizeof alone, "alone%d", i);
        snprintf(two, sizeof two, "two%d", i);
        CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=2 trainer.threads=1 %s",
                             e2e_train_words(alone), options[i]),
                 0);
        CHECK_EQ(e2e_program(NULL,
                             "--ranks 2 --config '%s' trainer.max_steps=2 trainer.threads=1 %s",
                             e2e_train_words(two), options[i]),
                 0);
        CHECK_EQ(e2e_metric(two, 1, "rollout/filter_kept_count"),
                 e2e_metric(alone, 1, "rollout/filter_kept_count"));
        double norm = e2e_metric(alone, 1, "actor/grad_norm");
        CHECK(norm > 0);
        CHECK_NEAR(e2e_metric(two, 1, "actor/grad_norm"), norm, 1e-6 * norm);
    }
}

TEST_MPI(two_ranks_filter_and_train_as_one)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(NULL, "--config '%s' trainer.max_steps=1 trainer.threads=1 %s",
                         e2e_train_words("alone"), FILTERED),
             0);
    CHECK_EQ(e2e_program(&out, "--ranks 2 --config '%s' trainer.max_steps=1 trainer.threads=1 %s",
                         e2e_train_words("two"), FILTERED),
             0);
    CHECK(e2e_same_rollouts("alone", "two", 1));
    static const char *const same[] = { "filter/tries", "filter/kept_groups", "reward/overall",
                                        "response_length/mean" };
    for (int i = 0; i < ARES_COUNT(same); i++)
        CHECK_NEAR(e2e_metric("two", 1, same[i]), e2e_metric("alone", 1, same[i]), 1e-9);
    double norm = e2e_metric("alone", 1, "actor/grad_norm");
    CHECK(norm > 0);
    CHECK_NEAR(e2e_metric("two", 1, "actor/grad_norm"), norm, 1e-6 * norm);
    ares_str_fini(&out);
}

/* Of each draw of four prompts the first and the third are kept; rank 0 answered both. */
TEST_MPI(a_rank_whose_groups_were_all_dropped_trains_on_those_of_another)
{
    static const char script[] =
        "while read -r line; do\n"
        "  case $line in *keep*) echo 0.$((${#line} % 10));; *) echo 0.5;; esac\n"
        "done\n";
    E2E_NEEDS_MPI();
    ares_str rows = { 0 };
    char more[900];
    for (int i = 0; i < 8; i++)
        ares_str_addf(&rows, "{\"prompt\":\"%d+1=?\",\"answer\":\"%s\"}\n", i,
                      i % 2 ? "drop" : "keep");
    snprintf(
        more, sizeof more,
        "trainer.max_steps=1 trainer.threads=1 data.train_files='%s' data.shuffle=false "
        "data.rollout_batch_size=2 data.mini_rollout_batch_size=4 worker.actor.global_batch_size=2 "
        "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=score "
        "algorithm.max_resample=0 algorithm.on_exhausted=error "
        "\"worker.reward.rewards=[{name: own, command: [sh, '%s']}]\"",
        e2e_write("rows.jsonl", rows.data), e2e_write("reward.sh", script));
    CHECK_EQ(e2e_program(NULL, "--config '%s' %s", e2e_train_words("alone"), more), 0);
    CHECK_EQ(e2e_program(NULL, "--ranks 2 --config '%s' %s", e2e_train_words("two"), more), 0);
    ares_str_clear(&rows);
    e2e_values("alone/rollouts/step_000001.jsonl", "row", &rows);
    CHECK_STR(rows.data, " 0 0 0 0 2 2 2 2");
    CHECK(e2e_same_rollouts("alone", "two", 1));
    double norm = e2e_metric("alone", 1, "actor/grad_norm");
    CHECK(norm > 0);
    CHECK_NEAR(e2e_metric("two", 1, "actor/grad_norm"), norm, 1e-6 * norm);
    ares_str_fini(&rows);
}
