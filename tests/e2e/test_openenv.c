/* Training on a server of the OpenEnv protocol. */
#include <stdio.h>

#include "../served.h"
#include "agent_runs.h"
#include "e2e.h"

static void train(const char *run, const char *words)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "--config '%s' %s", agent_words(run), words);
    if (rc != 0) CHECK_STR(out.data, "");
    ares_str_fini(&out);
}

/* The Python of the server; NULL after skipping the test. */
static const char *needs(void)
{
    ares_str out = { 0 };
    test_shell(&out, "'%s' play --env openenv url=localhost:1 connect_timeout_s=0.1",
               test_program());
    bool missing = strstr(out.data, "no libwebsockets") != NULL;
    ares_str_fini(&out);
    if (missing) test_skip("no libwebsockets in this build; install libwebsockets-dev");
    return missing ? NULL : served_openenv();
}

/* What the built-in lake says in its system message. */
static const char lake[] =
    "env: {definitions: {Ice: {type: openenv, instruction: \"You act on ice.\\nThe meaning of each "
    "symbol in the state is:\\nP: player, _: empty, O: hole, G: goal, X: player in hole, \u221a: "
    "player on goal\", options: {url: "
    "'ws://127.0.0.1:%d/ws', timeout_s: 100, connect_timeout_s: 20}}}}\n";

static void in_flight_on_ice(int port)
{
    static const char *const same[] = { "critic/score/mean",  "actor/grad_norm",
                                        "actor/pg_loss",      "response_length/mean",
                                        "prompt_length/mean", "train/response_length" };
    static const char *const told[] = { "success", "num_actions", "action_is_effective",
                                        "manager_invalid_action" };
    char yaml[1024], words[400];
    snprintf(yaml, sizeof yaml, lake, port);
    snprintf(words, sizeof words, "--config '%s' env.train.tags=Ice", e2e_write("ice.yaml", yaml));
    train("server", words);
    train("built_in", "");
    for (int step = 1; step <= 3; step++) {
        for (int i = 0; i < ARES_COUNT(same); i++)
            CHECK_NEAR(e2e_metric("server", step, same[i]), e2e_metric("built_in", step, same[i]),
                       0);
        for (int i = 0; i < ARES_COUNT(told); i++) {
            char ice[64], built_in[64];
            const char *own = strcmp(told[i], "action_is_effective") == 0 ? "info/" : "";
            snprintf(ice, sizeof ice, "train/Ice/%s%s", own, told[i]);
            snprintf(built_in, sizeof built_in, "train/FrozenLake/%s", told[i]);
            CHECK_NEAR(e2e_metric("server", step, ice), e2e_metric("built_in", step, built_in), 0);
        }
        CHECK(e2e_metric("server", step, "train/Ice/failed") == 0);
        CHECK(e2e_metric("server", step, "train/replayable") == 1);
        CHECK(e2e_metric("server", step, "exact/rollout_train_max_abs") == 0);
    }
}

/* The server dies with the first of sixteen, and the run ends. */
static void lose_the_server(void)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' --config '%s' env.train.tags=Ice trainer.max_steps=2 "
                         "env.definitions.Ice.options.reset.trouble=die "
                         "env.definitions.Ice.options.connect_timeout_s=0.3",
                         agent_words("dead"), test_file("ice.yaml")),
             1);
    /* in step 1, or in step 2, where those of step 1 were faster */
    CHECK_MSG(strstr(out.data, "of the 16 episodes could be played: Ice: the server ") ||
                  strstr(out.data, "of 16 episodes failed (Ice: the server "),
              "%s", out.data);
    ares_str_fini(&out);
}

TEST_SLOW(a_server_of_the_rules_of_a_built_in_lake_trains_to_the_same_bits)
{
    served s;
    const char *python = needs();
    if (!python) return;
    const char *const argv[] = { python, test_source("tests/env/lake_server.py"), NULL };
    if (served_start(&s, argv)) {
        in_flight_on_ice(s.port);
        lose_the_server();
    }
    served_stop(&s);
}

TEST(two_ranks_share_a_server)
{
    served s;
    char yaml[1024], words[400];
    E2E_NEEDS_MPI();
    const char *python = needs();
    if (!python) return;
    const char *const argv[] = { python, test_source("tests/env/lake_server.py"), NULL };
    if (served_start(&s, argv)) {
        snprintf(yaml, sizeof yaml, lake, s.port);
        snprintf(words, sizeof words,
                 "--config '%s' env.train.tags=Ice trainer.max_steps=1 trainer.threads=1",
                 e2e_write("ice.yaml", yaml));
        train("one", words);
        strcat(words, " --ranks 2");
        train("two", words);
        CHECK(e2e_same_samples("one", "two", 1));
        CHECK(e2e_metric("two", 1, "train/Ice/failed") == 0);
    }
    served_stop(&s);
}

TEST(the_example_of_a_server_works)
{
    served s;
    const char *python = needs();
    if (!python) return;
    const char *const argv[] = { python, test_source("examples/environment_openenv/server.py"), "0",
                                 NULL };
    if (served_start(&s, argv)) {
        ares_str out = { 0 };
        CHECK_EQ(
            e2e_program(&out,
                        "--config '%s' worker.actor.model.model_path='%s' trainer.run_dir='%s' "
                        "env.definitions.Guess.options.url=ws://127.0.0.1:%d trainer.max_steps=1",
                        test_source("examples/environment_openenv/config.yaml"), agent_model(),
                        test_file("guess"), s.port),
            0);
        CHECK(e2e_metric("guess", 1, "train/Guess/failed") == 0);
        CHECK(e2e_metric("guess", 1, "train/replayable") == 1);
        CHECK(e2e_metric("guess", 1, "val-env/Guess/failed") == 0);
        ares_str_clear(&out);
        CHECK_EQ(test_shell(&out,
                            "printf '10 || seven\\n15\\n' | '%s' play --env openenv --seed 7 "
                            "url=ws://127.0.0.1:%d",
                            test_program(), s.port),
                 0);
        CHECK_CONTAINS(out.data, "10 is too low. 4 guesses are left.");
        CHECK_CONTAINS(out.data, "15 is too high. 3 guesses are left.");
        CHECK_CONTAINS(out.data, "score 1.65");
        ares_str_fini(&out);
    }
    served_stop(&s);
}
