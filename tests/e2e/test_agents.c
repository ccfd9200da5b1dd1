/* Training in environments, end to end (docs/environments.md#training). */
#include <math.h>
#include <stdio.h>

#include "agent_runs.h"
#include "e2e.h"

static void train(const char *run, const char *words)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "--config '%s' %s", agent_words(run), words);
    if (rc != 0) CHECK_STR(out.data, "");
    ares_str_fini(&out);
}

static void refused(const char *words, const char *says)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--config '%s' %s", agent_words("refused"), words), 2);
    CHECK_CONTAINS(out.data, says);
    ares_str_fini(&out);
}

/* A step of a run whose tokens are those that were sampled. */
static void check_exact(const char *run, int step)
{
    CHECK(e2e_metric(run, step, "exact/rollout_train_max_abs") == 0);
    CHECK(e2e_metric(run, step, "actor/grad_norm") > 0);
    CHECK(e2e_metric(run, step, "critic/score/max") > e2e_metric(run, step, "critic/score/min"));
}

TEST(episodes_do_not_depend_on_threads_cache_or_batches)
{
    train("a", "trainer.threads=1");
    for (int step = 1; step <= 3; step++) check_exact("a", step);
    train("b", "trainer.threads=2 worker.rollout.enable_prefix_caching=false "
               "worker.rollout.max_num_seqs=3 worker.actor.max_token_len_per_device=4096");
    CHECK(e2e_same_runs("a", "b", 3));
    train("c", "worker.rollout.cache_tokens=4200 worker.rollout.max_num_batched_tokens=300");
    CHECK(e2e_same_runs("a", "c", 3));
}

TEST(a_run_in_environments_resumes_with_the_seeds_that_come_next)
{
    train("whole", "trainer.save_freq=1");
    train("again", "trainer.save_freq=1");
    CHECK(e2e_go_back("again", "kept", 2));
    train("again", "trainer.save_freq=1");
    CHECK(e2e_same_runs("whole", "again", 3));
}

TEST(two_ranks_play_the_same_episodes)
{
    E2E_NEEDS_MPI();
    train("one", "trainer.max_steps=1 trainer.threads=1");
    train("two", "trainer.max_steps=1 trainer.threads=1 --ranks 2");
    CHECK(e2e_same_rollouts("one", "two", 1));
    static const char *const names[] = { "train/FrozenLake/success", "train/FrozenLake/num_actions",
                                         "train/FrozenLake/pass@4", "train/response_length" };
    for (int i = 0; i < ARES_COUNT(names); i++)
        CHECK_NEAR(e2e_metric("one", 1, names[i]), e2e_metric("two", 1, names[i]), 1e-12);
}

/* What metrics say of a step is what its episodes show. */
TEST(rollouts_hold_each_episode_whole)
{
    ares_arena arena = { 0 };
    int64_t n;
    double score = 0, actions = 0, trained = 0;
    train("run", "trainer.max_steps=1");
    const ares_json **rows = e2e_rows(&arena, "run", "rollouts/step_000001.jsonl", &n);
    CHECK_EQ(n, 16);
    for (int64_t r = 0; r < n; r++) {
        const ares_json *turns = ares_json_get(rows[r], "turns"),
                        *runs = ares_json_get(rows[r], "trained");
        double sum = 0;
        CHECK(turns && turns->count >= 1 && turns->count <= 3);
        for (int64_t t = 0; t < turns->count; t++) {
            const ares_json *turn = &turns->items[t];
            sum += e2e_number(turn, "reward") + e2e_number(turn, "penalty");
            actions += e2e_number(turn, "executed");
            CHECK_EQ((int64_t)e2e_number(turn, "n_tokens"), runs->items[t].items[1].integer);
            trained += e2e_number(turn, "n_tokens");
        }
        CHECK_NEAR(sum, e2e_number(rows[r], "score"), 1e-6);
        score += e2e_number(rows[r], "score");
    }
    CHECK_NEAR(score / 16, e2e_metric("run", 1, "critic/score/mean"), 1e-6);
    CHECK_NEAR(actions / 16, e2e_metric("run", 1, "train/FrozenLake/num_actions"), 1e-9);
    CHECK_NEAR(trained / 16, e2e_metric("run", 1, "train/response_length"), 1e-9);
    ares_arena_fini(&arena);
}

/* Text written anew: nothing is taken for exact, and the trained tokens begin with the role. */
TEST(rewritten_text_is_never_called_exact)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--config '%s' env.token_exact=false trainer.max_steps=1 2>&1",
                         agent_words("text")),
             0);
    CHECK_CONTAINS(out.data, "not exactly what was sampled");
    CHECK(isnan(e2e_metric("text", 1, "exact/rollout_train_max_abs")));
    CHECK(e2e_metric("text", 1, "actor/grad_norm") > 0);
    ares_str_fini(&out);
}

/* Other contexts make a row of each turn; every row has the episode's score. */
TEST(a_turn_may_be_a_row)
{
    static const char *const modes[] = { "limited_multi_turn", "single_turn" };
    for (int i = 0; i < 2; i++) {
        char words[160];
        ares_arena arena = { 0 };
        int64_t n, episodes = 0;
        snprintf(words, sizeof words,
                 "trainer.max_steps=1 env.context_window_mode=%s env.max_context_window=2 "
                 "worker.actor.mini_batch_unit=prompts worker.actor.global_batch_size=4",
                 modes[i]);
        train(modes[i], words);
        CHECK(e2e_metric(modes[i], 1, "exact/rollout_train_max_abs") == 0);
        const ares_json **rows = e2e_rows(&arena, modes[i], "rollouts/step_000001.jsonl", &n);
        for (int64_t r = 0; r < n; episodes++) {
            int64_t turns = ares_json_get(rows[r], "turns")->count;
            for (int64_t t = 0; t < turns && r + t < n; t++)
                CHECK(e2e_number(rows[r + t], "score") == e2e_number(rows[r], "score"));
            r += turns;
        }
        CHECK_EQ(episodes, 16);
        ares_arena_fini(&arena);
    }
}

/* A group whose scores are all alike leaves; the episodes of the others are the same. */
TEST(environments_go_with_filters_critics_and_several_epochs)
{
    train("filtered", "algorithm.adv_estimator=grpo algorithm.dynamic_sampling_filter=nonzero_std "
                      "algorithm.max_resample=1 trainer.max_steps=1 "
                      "worker.actor.mini_batch_unit=prompts worker.actor.global_batch_size=4");
    CHECK(e2e_metric("filtered", 1, "actor/grad_norm") > 0);
    train("epochs", "worker.actor.ppo_epochs=2 worker.critic.ppo_epochs=2 "
                    "algorithm.batch_adjust_mode=copy trainer.max_steps=1");
    check_exact("epochs", 1);
    train("turns", "algorithm.adv_estimator=bi_level_gae env.use_turn_scores=true "
                   "trainer.max_steps=1");
    CHECK(e2e_metric("turns", 1, "critic/score/max") >= 0); /* no penalties */
}

TEST(the_context_keeps_the_last_turns_when_it_is_full)
{
    train("short", "worker.rollout.max_model_len=900 trainer.max_steps=1");
    CHECK(e2e_metric("short", 1, "prompt_length/max") <= 900);
    CHECK(e2e_metric("short", 1, "actor/grad_norm") > 0);
    train("tiny", "worker.rollout.max_model_len=200 trainer.max_steps=1");
    CHECK(e2e_metric("tiny", 1, "train/response_length") == 0); /* no room for any answer */
}

TEST(options_that_environments_cannot_have_are_refused)
{
    refused("env.train.tags=FrozenLak", "did you mean 'FrozenLake'?");
    refused("'env.train.tags=[FrozenLake, Bandit, Countdown]'", "cannot share them evenly");
    refused("'env.train.n_groups=[3]'", "they add up to 3, and env.train.groups is 4");
    refused("data.rollout_batch_size=5", "env.train.groups = 4 says how many prompts a step has");
    refused("worker.rollout.n=3", "env.train.group_size = 4 says how many episodes");
    refused("'worker.reward.rewards=[{name: exact}]'", "environments score their episodes");
    refused("report.collapse.freq=1", "thoughts of conversations");
    refused("trainer.max_steps=null", "environments never end");
    refused("data.train_files=x.jsonl", "leave one out");
    refused("data.apply_chat_template=false", "needs a chat template");
    refused("env.use_turn_scores=true env.reward_normalization.method=mean",
            "the scores of turns are not normalised");
}

TEST(a_method_that_remembers_prompts_is_refused_in_environments)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' algorithm.aepo=true algorithm.adv_estimator=grpo 2>&1",
                         agent_words("aepo")),
             2);
    CHECK_CONTAINS(out.data, "no prompt returns");
    ares_str_fini(&out);
}

TEST(the_presets_of_the_intervention_study_are_good)
{
    static const char *const presets[] = { "_2_sokoban", "_3_frozen_lake" };
    for (int i = 0; i < ARES_COUNT(presets); i++) {
        char path[64];
        ares_str out = { 0 };
        snprintf(path, sizeof path, "configs/presets/%s.yaml", presets[i]);
        CHECK_EQ(e2e_program(&out, "--config '%s' worker.actor.model.model_path='%s' --check",
                             test_source(path), e2e_model()),
                 0);
        CHECK_CONTAINS(out.data, "the configuration is good");
        ares_str_fini(&out);
    }
}

/* A program of the user's own is played in, and one that dies fails its episodes, not the run. */
TEST(programs_of_others_play_and_may_fail)
{
    static const char words[] =
        "env.train.tags=Own env.definitions.Own.type=command trainer.max_steps=1 "
        "'env.definitions.Own.options.command=[python3, %s]'";
    char text[400];
    ares_arena arena = { 0 };
    int64_t n;
    snprintf(text, sizeof text, words, test_source("examples/environment_command/guess.py"));
    train("own", text);
    CHECK(e2e_metric("own", 1, "train/Own/failed") == 0);
    CHECK(e2e_metric("own", 1, "train/replayable") == 1);
    CHECK(e2e_metric("own", 1, "train/Own/num_actions") > 0);
    CHECK(e2e_metric("own", 1, "exact/rollout_train_max_abs") == 0);
    snprintf(text, sizeof text, words, e2e_write("dies.py", "raise SystemExit(3)\n"));
    train("dies", text);
    CHECK(e2e_metric("dies", 1, "train/Own/failed") == 1);
    CHECK(e2e_metric("dies", 1, "train/Own/success") == 0);
    const ares_json **rows = e2e_rows(&arena, "dies", "rollouts/step_000001.jsonl", &n);
    const ares_json *turns = ares_json_get(rows[0], "turns");
    CHECK(ares_json_get(&turns->items[turns->count - 1], "failure"));
    ares_arena_fini(&arena);
}
