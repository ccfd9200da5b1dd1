/* Programs that play by themselves against the run's endpoint (docs/serve.md#agents). */
#include <stdio.h>

#include "e2e.h"

/*
 * The arguments of a run of 2 groups of 4 episodes in the program player.py, which asks twice.
 * mode: the trouble that it makes in every fourth episode.
 */
static const char *words(const char *run, const char *mode)
{
    char text[1500], file[64];
    snprintf(text, sizeof text,
             "env:\n"
             "  definitions:\n"
             "    A: {type: agent, options: {command: [python3, tests/e2e/player.py, %s], "
             "processes: 2}}\n"
             "  train: {tags: A, groups: 2, group_size: 4}\n"
             "algorithm: {adv_estimator: grpo, disable_kl: true}\n"
             "data: {max_response_length: 12}\n"
             "worker:\n"
             "  rollout: {max_model_len: 400}\n"
             "  actor: {model: {model_path: '%s'}, mini_batch_unit: rows, global_batch_size: 4, "
             "optim: {lr: 1.0e-3}}\n"
             "trainer: {max_steps: 2, logger: [console], run_dir: '%s'}\n",
             mode, e2e_model(), test_file(run));
    snprintf(file, sizeof file, "players_%s.yaml", run);
    return e2e_write(file, text);
}

static void play(const char *run, const char *mode, const char *more)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "--config '%s' %s", words(run, mode), more);
    if (rc != 0) CHECK_STR(out.data, "");
    ares_str_fini(&out);
}

static void refused(const char *more, const char *says)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--config '%s' --check %s", words("refused", "good"), more), 2);
    CHECK_CONTAINS(out.data, says);
    ares_str_fini(&out);
}

/* What was trained is what was sampled, and something was learnt. */
static void check_exact(const char *run, int step)
{
    CHECK(e2e_metric(run, step, "exact/rollout_train_max_abs") == 0);
    CHECK(e2e_metric(run, step, "actor/grad_norm") > 0);
    CHECK(e2e_metric(run, step, "critic/score/max") > e2e_metric(run, step, "critic/score/min"));
}

TEST_SLOW(programs_that_play_get_the_same_bits_whatever_the_threads_and_processes)
{
    play("a", "good", "trainer.threads=1 trainer.save_freq=1");
    check_exact("a", 1);
    check_exact("a", 2);
    CHECK_EQ(e2e_metric("a", 1, "train/A/requests"), 2);
    CHECK_EQ(e2e_metric("a", 1, "train/A/rows"), 1);
    play("b", "good",
         "trainer.threads=2 trainer.save_freq=1 env.definitions.A.options.processes=8 "
         "worker.rollout.max_num_seqs=3");
    CHECK(e2e_same_runs("a", "b", 2));
    play("c", "good",
         "trainer.save_freq=1 env.definitions.A.options.processes=1 "
         "env.definitions.A.options.episodes_per_process=3 "
         "worker.rollout.enable_prefix_caching=false");
    CHECK(e2e_same_runs("a", "c", 2));
}

TEST_SLOW(requests_at_once_get_the_bits_of_requests_in_turn)
{
    play("in_turn", "in_turn", "trainer.save_freq=1");
    CHECK_EQ(e2e_metric("in_turn", 1, "train/A/requests"), 4);
    CHECK_EQ(e2e_metric("in_turn", 1, "train/A/rows"), 5);
    check_exact("in_turn", 1);
    play("at_once", "at_once", "trainer.save_freq=1 worker.rollout.max_num_seqs=5");
    CHECK(e2e_same_runs("in_turn", "at_once", 2));
}

TEST_SLOW(a_run_of_programs_that_play_resumes_as_if_it_had_never_stopped)
{
    play("whole", "good", "trainer.save_freq=1");
    play("again", "good", "trainer.save_freq=1");
    CHECK(e2e_go_back("again", "kept", 1));
    play("again", "good", "trainer.save_freq=1");
    CHECK(e2e_same_runs("whole", "again", 2));
}

TEST(rows_of_a_program_show_its_requests_and_the_ids_that_were_sampled)
{
    ares_arena arena = { 0 };
    int64_t n;
    play("rows", "good", "trainer.max_steps=1");
    const ares_json **rows = e2e_rows(&arena, "rows", "rollouts/step_000001.jsonl", &n);
    CHECK_EQ(n, 8);
    for (int64_t r = 0; r < n; r++) {
        const ares_json *turns = ares_json_get(rows[r], "turns"),
                        *ids = ares_json_get(rows[r], "token_ids"),
                        *trained = ares_json_get(rows[r], "trained");
        int64_t prompt = ares_json_get(rows[r], "prompt_ids")->count;
        CHECK_EQ(turns->count, 2);
        CHECK_EQ(ids->count, (int64_t)e2e_number(rows[r], "n_tokens"));
        CHECK_EQ(trained->count, 2);
        for (int64_t t = 0; t < 2; t++) { /* each answer lies where its prompt ends */
            const ares_json *run = &trained->items[t];
            CHECK_EQ(run->items[0].integer,
                     (int64_t)e2e_number(&turns->items[t], "prompt_tokens") - prompt);
            CHECK_EQ(run->items[1].integer, (int64_t)e2e_number(&turns->items[t], "n_tokens"));
        }
        CHECK_EQ(e2e_number(rows[r], "score"),
                 (int64_t)e2e_number(ares_json_get(rows[r], "info"), "signs") % 7);
        CHECK_EQ(e2e_number(rows[r], "seed"), 10000 + e2e_number(rows[r], "draw"));
        CHECK_EQ(e2e_number(rows[r], "id"),
                 4 * e2e_number(rows[r], "draw") + e2e_number(rows[r], "sample"));
    }
    ares_arena_fini(&arena);
}

TEST(an_edited_answer_begins_a_row_and_what_is_not_to_be_trained_makes_none)
{
    play("edit", "edit", "trainer.max_steps=1");
    CHECK_EQ(e2e_metric("edit", 1, "train/A/rows"), 2);
    check_exact("edit", 1);
    play("judge", "train_false", "trainer.max_steps=1");
    CHECK_EQ(e2e_metric("judge", 1, "train/A/requests"), 3);
    CHECK_EQ(e2e_metric("judge", 1, "train/A/rows"), 1);
    check_exact("judge", 1);
}

/* Every fourth episode fails with these words, the others count, and the run goes on. */
static void check_trouble(const char *mode, const char *more, const char *says)
{
    ares_arena arena = { 0 };
    int64_t n;
    int failed = 0;
    play(mode, mode, more);
    const ares_json **rows = e2e_rows(&arena, mode, "rollouts/step_000002.jsonl", &n);
    for (int64_t r = 0; r < n; r++) {
        const ares_json *why = ares_json_get(rows[r], "failure");
        bool bad = (int64_t)e2e_number(rows[r], "id") % 4 == 1;
        CHECK_MSG(bad == (why != NULL), "%s: row %lld", mode, (long long)r);
        if (!why) continue;
        failed++;
        CHECK_CONTAINS(why->text.data, says);
        CHECK_EQ(ares_json_get(rows[r], "score")->type, ARES_JSON_NULL);
        CHECK_EQ(e2e_number(rows[r], "advantage"), 0);
    }
    CHECK_EQ(failed, 2);
    CHECK_EQ(e2e_metric(mode, 2, "train/A/failed"), 0.25);
    bool by_clock = strcmp(mode, "hang") == 0 || strcmp(mode, "family") == 0;
    CHECK_EQ(e2e_metric(mode, 2, "train/replayable"), by_clock ? 0.75 : 1);
    check_exact(mode, 2);
    ares_arena_fini(&arena);
}

TEST_SLOW(a_program_that_makes_trouble_fails_its_episodes_and_not_the_run)
{
    check_trouble("crash", "", "exit code 1: lost my way");
    check_trouble("exit", "", "exit code 0");
    check_trouble("silent", "", "had asked for nothing");
    check_trouble("stream", "", "exit code 0");
}

TEST_SLOW(a_program_that_lies_floods_or_hangs_fails_its_episodes_and_not_the_run)
{
    check_trouble("nan", "", "unreadable");
    check_trouble("text", "", "reward is no number");
    check_trouble("error", "", "no idea");
    check_trouble("flood", "", "floods its output");
    check_trouble("many", "env.definitions.A.options.max_requests=3", "403");
    check_trouble("hang",
                  "env.definitions.A.options.timeout_s=2 "
                  "env.definitions.A.options.start_timeout_s=10",
                  "of its own");
}

/* Whether a process runs; one that has ended and is not yet waited for does not. */
static bool runs(int pid)
{
    char path[64], state = 'Z';
    ares_str text = { 0 };
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (ares_file_read(path, &text) == ARES_OK) sscanf(text.data, "%*d (%*[^)]) %c", &state);
    else ares_error_clear();
    ares_str_fini(&text);
    return state != 'Z' && state != 'X';
}

TEST_SLOW(children_and_grandchildren_of_a_program_that_hangs_end_with_it)
{
    ares_str text = { 0 };
    setenv("PLAYER_FAMILY", test_file("family.txt"), 1);
    check_trouble("family",
                  "env.definitions.A.options.timeout_s=2 "
                  "env.definitions.A.options.start_timeout_s=10",
                  "of its own");
    unsetenv("PLAYER_FAMILY");
    if (!CHECK_OK(ares_file_read(test_file("family.txt"), &text))) return;
    int n = 0;
    for (const char *line = text.data; line && *line; line = strchr(line, '\n') + 1, n++) {
        int child, grandchild;
        if (!CHECK_EQ(sscanf(line, "%d %d", &child, &grandchild), 2)) break;
        CHECK(!runs(child) && !runs(grandchild));
    }
    CHECK_EQ(n, 4);
    ares_str_fini(&text);
}

TEST_SLOW(what_is_no_trouble_changes_nothing)
{
    play("good", "good", "");
    /* two rewards, of which the first counts; lines between; yesterday's key; the process's own */
    static const char *const modes[] = { "two", "chatter", "yesterday", "env_key" };
    for (int i = 0; i < ARES_COUNT(modes); i++) {
        play(modes[i], modes[i], "");
        for (int step = 1; step <= 2; step++) {
            CHECK_EQ(e2e_metric(modes[i], step, "train/A/failed"), 0);
            CHECK_EQ(e2e_metric(modes[i], step, "critic/score/mean"),
                     e2e_metric("good", step, "critic/score/mean"));
            CHECK_EQ(e2e_metric(modes[i], step, "actor/grad_norm"),
                     e2e_metric("good", step, "actor/grad_norm"));
        }
    }
}

TEST(a_script_that_never_reads_its_input_is_an_agent)
{
    play("script", "script", "");
    for (int step = 1; step <= 2; step++) {
        CHECK_EQ(e2e_metric("script", step, "train/A/failed"), 0);
        CHECK_EQ(e2e_metric("script", step, "train/A/requests"), 1);
        check_exact("script", step);
    }
}

TEST(a_run_whose_programs_all_fail_ends_and_says_why)
{
    ares_str out = { 0 };
    CHECK(e2e_program(&out, "--config '%s' 'env.definitions.A.options.command=[false]'",
                      words("fails", "good")) != 0);
    CHECK_CONTAINS(out.data, "exit code 1");
    ares_str_fini(&out);
}

TEST(the_examples_agent_plays)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out,
                         "--config examples/agent/config.yaml worker.actor.model.model_path='%s' "
                         "trainer.run_dir='%s' trainer.max_steps=1 env.train.groups=2 "
                         "env.train.group_size=2 worker.actor.global_batch_size=4 "
                         "'env.val.tags=[]'",
                         e2e_model(), test_file("example")),
             0);
    CHECK_EQ(e2e_metric("example", 1, "train/Calc/failed"), 0);
    CHECK_EQ(e2e_metric("example", 1, "train/Calc/requests"), 1); /* it has not learnt to call */
    CHECK_EQ(e2e_metric("example", 1, "train/Calc/info/calls"), 0);
    CHECK(e2e_metric("example", 1, "exact/rollout_train_max_abs") == 0);
    ares_str_fini(&out);
}

#define TASKS "env.definitions.A.options.tasks="
TEST(an_episode_gets_the_task_of_its_seed)
{
    ares_arena arena = { 0 };
    int64_t n;
    char more[500];
    snprintf(more, sizeof more, TASKS "'%s' trainer.max_steps=1",
             e2e_write("tasks.jsonl", "{\"q\":\"zero\"}\n{\"q\":\"one\"}\n"));
    play("tasks", "good", more);
    const ares_json **rows = e2e_rows(&arena, "tasks", "rollouts/step_000001.jsonl", &n);
    CHECK_EQ(n, 8);
    for (int64_t r = 0; r < n; r++)
        CHECK_CONTAINS(ares_json_get(rows[r], "prompt")->text.data,
                       (int64_t)e2e_number(rows[r], "seed") % 2 ? "one 10001" : "zero 10000");
    ares_arena_fini(&arena);
}

TEST(what_programs_that_play_cannot_have_is_refused_before_the_run)
{
    char more[500];
    refused("'env.definitions.A.options.command=[no-such-program]'",
            "no program 'no-such-program'");
    refused(TASKS "no/such/file.jsonl", "no/such/file.jsonl");
    snprintf(more, sizeof more, TASKS "'%s'", e2e_write("empty.jsonl", "\n"));
    refused(more, "holds no row");
    refused("curriculum.over_sampling_batch_size=4", "cannot be cut");
    refused("curriculum.partial_rollout=true", "cannot be cut");
    refused("worker.rollout.tensor_parallel_size=2", "have no endpoint");
    /* a model without a chat template */
    ares_str out = { 0 };
    CHECK_EQ(test_shell(NULL, "cp -r '%s' '%s' && sed -i 's/\"chat_template\"/\"other\"/' '%s'",
                        e2e_model(), test_file("bare"), test_file("bare/tokenizer_config.json")),
             0);
    snprintf(more, sizeof more, "worker.actor.model.model_path='%s'", test_file("bare"));
    refused(more, "need a chat template");
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' --check env.enable_think=false "
                         "env.definitions.A.max_actions=3",
                         words("warned", "good")),
             0);
    CHECK_CONTAINS(out.data, "env.enable_think: has no effect");
    CHECK_CONTAINS(out.data, "env.definitions.A.max_actions: has no effect");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "play --config '%s' --env A", words("played", "good")), 2);
    CHECK_CONTAINS(out.data, "plays by itself");
    ares_str_fini(&out);
}

#define LAKE                                                                               \
    "'env.train.tags=[A, FrozenLake, B]' env.train.groups=3 env.definitions.B.type=agent " \
    "'env.definitions.B.options.command=[python3, tests/e2e/player.py, edit]' "            \
    "env.token_exact=true env.max_turns=2 env.enable_think=false "                         \
    "worker.rollout.max_model_len=2000 "

TEST_SLOW(programs_play_beside_other_environments_with_every_method)
{
    static const char *const methods[] = {
        "",
        "algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3",
        "algorithm.adv_estimator=gae algorithm.bi_level_gae=true worker.critic.optim.lr=1e-3",
        "worker.actor.model.lora.rank=4",
        "algorithm.disable_kl=false algorithm.use_kl_loss=true env.val.tags=A env.val.groups=2 "
        "env.val.group_size=2 trainer.val_freq=1",
        "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=score "
        "algorithm.max_resample=2",
    };
    for (int i = 0; i < ARES_COUNT(methods); i++) {
        char run[32], more[900];
        snprintf(run, sizeof run, "method%d", i);
        snprintf(more, sizeof more, LAKE "algorithm.batch_adjust_mode=copy %s", methods[i]);
        play(run, "good", more);
        for (int step = 1; step <= 2; step++) {
            CHECK(e2e_metric(run, step, "exact/rollout_train_max_abs") == 0);
            CHECK(e2e_metric(run, step, "actor/grad_norm") > 0);
            CHECK_EQ(e2e_metric(run, step, "train/A/rows"), 1);
            CHECK_EQ(e2e_metric(run, step, "train/B/rows"), 2);
            CHECK(e2e_metric(run, step, "train/FrozenLake/num_actions") >= 0);
        }
        if (strstr(methods[i], "val_freq")) CHECK_EQ(e2e_metric(run, 2, "val-env/A/requests"), 2);
    }
}

TEST_MPI(two_ranks_play_the_episodes_of_one)
{
    play("one", "crash", "trainer.max_steps=1 trainer.threads=1");
    play("two", "crash", "trainer.max_steps=1 trainer.threads=1 --ranks 2");
    CHECK(e2e_same_rollouts("one", "two", 1));
    static const char *const names[] = { "train/A/success", "train/A/failed", "train/A/rows",
                                         "train/A/info/signs", "critic/score/mean" };
    for (int i = 0; i < ARES_COUNT(names); i++)
        CHECK_NEAR(e2e_metric("one", 1, names[i]), e2e_metric("two", 1, names[i]), 1e-12);
}
