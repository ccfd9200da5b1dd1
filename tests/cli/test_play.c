/* ares-train play: an environment by hand. */
#include <stdio.h>
#include <string.h>

#include "test.h"

/* Input: what is typed, with \n as printf knows it. */
static int play(ares_str *out, const char *input, const char *words)
{
    ares_str_clear(out);
    return test_shell(out, "printf '%s' | '%s' play %s", input, test_program(), words);
}

TEST(in_flight_shows_what_a_model_reads_and_how_it_ended)
{
    ares_str out = { 0 };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    CHECK_EQ(play(&out, "Left\\nUp || UP || Down\\n", "--env CoordSokoban --seed 10000"), 0);
    CHECK_CONTAINS(out.data, "--- system\nYou're a helpful assistant. You are solving the Sokoban");
    CHECK_CONTAINS(out.data, "--- user\n\nTurn 1:\nState:\nCoordinates: \nBoard size: 6 rows x 6");
    CHECK_CONTAINS(out.data, "\n#X_###\n#_P_##\n######\nYou have 10 actions left. Always output: ");
    CHECK_CONTAINS(out.data, "--- assistant\n<think></think><answer>Left</answer>\n");
    CHECK_CONTAINS(out.data, "--- user\nReward:\n-0.1\n\nTurn 2:\n");
    CHECK_CONTAINS(out.data, "<answer>Up || UP</answer>\n"); /* two per turn */
    CHECK_CONTAINS(out.data, "--- last state\nReward:\n10.8\nState:\n");
    CHECK_CONTAINS(out.data, "--- end\nsuccess\n2 turns, 3 actions; reward 10.7");
    CHECK_EQ(play(&out, "Down\\n",
                  "--env FrozenLake --seed 10000 is_slippery=false --no-think max_actions=1"),
             0);
    CHECK_CONTAINS(out.data, "You have 1 actions left. Always output: <answer> [your answer]");
    CHECK_CONTAINS(out.data, "--- end\nfailure: no actions left\n1 turns, 1 actions; reward 0, "
                             "penalty 0, score 0\n");
    ares_str_fini(&out);
}

TEST(in_flight_names_what_it_does_not_know)
{
    static const struct {
        const char *words, *message;
    } cases[] = {
        { "", "play: --env is missing" },
        { "--env CoordSokobn",
          "play: --env = 'CoordSokobn': unknown; did you mean 'CoordSokoban'?" },
        { "--env sokoban num_boxs=1", "did you mean 'env.definitions.sokoban.options.num_boxes'?" },
        { "--env sokoban dim_x=99", "dim_x" },
        { "--env sokoban seed", "not an override" },
        { "--env Bandit --seed -1", "--seed = -1: out of range" },
    };
    ares_str out = { 0 };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        CHECK_EQ(play(&out, "", cases[i].words), 2);
        CHECK_CONTAINS(out.data, cases[i].message);
    }
    CHECK_EQ(play(&out, "", "--env Bandit --actions /no/such"), 1);
    CHECK_CONTAINS(out.data, "play: --actions = '/no/such': No such file");
    CHECK_EQ(play(&out, "", "--env Bandit --actions /"), 1);
    CHECK_CONTAINS(out.data, "play: --actions = '/': a folder");
    CHECK_EQ(play(&out, "", "--env MetamathQA"), 2);
    CHECK_CONTAINS(out.data, "options.path");
    ares_str_fini(&out);
}

TEST(an_invalid_action_costs_what_it_costs_in_training)
{
    ares_str out = { 0 };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    CHECK_EQ(play(&out, "Rigth\\n\\nUp || Jump", "--env SimpleSokoban"), 0);
    CHECK_CONTAINS(out.data, "--- note\n'Rigth': no such action; did you mean 'Right'? (actions: "
                             "Up, Down, Left, Right)\npenalty -0.1, which the model does not read");
    CHECK_CONTAINS(out.data, "Reward:\n0\n\nTurn 2:\n");
    CHECK_CONTAINS(out.data, "No valid action provided previously.");
    CHECK_CONTAINS(out.data, "--- note\nno action\n");
    CHECK_CONTAINS(out.data, "--- end\nthe input ended before the episode\n3 turns, 1 actions; "
                             "reward -0.1, penalty -0.30000000000000004, score -0.4");
    ares_str_fini(&out);
}

TEST(actions_come_from_a_file_and_turns_end)
{
    const char *path = test_file("actions.txt");
    ares_str out = { 0 };
    char words[512];
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    CHECK_OK(ares_file_write(path, "Up\r\nUp\nUp\n", 10));
    snprintf(words, sizeof words, "--env LargerSokoban --seed 500 --max-turns 2 --actions '%s'",
             path);
    CHECK_EQ(play(&out, "", words), 0);
    CHECK_CONTAINS(out.data, "<answer>Up</answer>\n");
    CHECK_CONTAINS(out.data, "--- end\nfailure: no turns left\n2 turns, 2 actions; ");
    /* without --max-turns and files they have no limit, whatever the default of training is */
    CHECK_EQ(play(&out, "a\\na\\na\\na\\na\\na\\na\\na\\na\\na\\na\\na\\na",
                  "--env LargerSokoban --seed 500"),
             0);
    CHECK_CONTAINS(out.data, "--- end\nthe input ended before the episode\n13 turns, 0 actions; ");
    ares_str_fini(&out);
}

/* What the command line sets wins over the files; a word goes to the definition or to its type. */
TEST(words_of_play_go_before_files)
{
    static const char yaml[] = "env:\n"
                               "  definitions:\n"
                               "    Row: {type: frozen_lake, instruction: Walk., max_actions: 9,\n"
                               "          options: {is_slippery: false}}\n"
                               "  train: {tags: Row}\n"
                               "  max_turns: 1\n"
                               "  max_actions_per_turn: 1\n"
                               "trainer: {max_steps: 3}\n";
    static const struct {
        const char *words, *parts[4];
    } cases[] = {
        { "", { "Walk.\n", "<answer>Up</answer>", "failure: no turns left\n1 turns, 1 actions;" } },
        { "--max-turns 2 --max-actions-per-turn 3 max_actions=7 'instruction=Go there.'",
          { "Go there.\n", "You have 7 actions left", "<answer>Up || Up || Up</answer>",
            "failure: no turns left\n2 turns, 6 actions;" } },
        { "--max-actions-per-turn=2 --max-turns=0 type=sokoban",
          { "env.definitions.Row.options.is_slippery: no such option" } },
    };
    ares_str out = { 0 }, words = { 0 };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    CHECK_OK(ares_file_write(test_file("row.yaml"), yaml, sizeof yaml - 1));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str_clear(&words);
        ares_str_addf(&words, "--env Row --config '%s' %s", test_file("row.yaml"), cases[i].words);
        play(&out, "Up||Up || Up||Up\\nUp || Up||Up||Up\\nUp", words.data);
        for (int k = 0; k < 4 && cases[i].parts[k]; k++)
            CHECK_CONTAINS(out.data, cases[i].parts[k]);
    }
    /* only a word that is the whole name is the definition's own */
    CHECK_EQ(play(&out, "", "--env Bandit max_tokensx=3"), 2);
    CHECK_CONTAINS(out.data, "env.definitions.Bandit.options.max_tokensx: no such option");
    ares_str_fini(&out);
    ares_str_fini(&words);
}

TEST(in_flight_shows_control_characters_and_sends_none)
{
    static const char program[] =
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    say = {'observation': 'a\\x1b[2J\\x07b\\nc', 'reward': 0, 'done': False}\n"
        "    print(json.dumps(say), flush=True)\n";
    static const char yaml[] =
        "env: {definitions: {Loud: {type: command, instruction: Listen.}}}\n";
    ares_str out = { 0 };
    char words[700], path[300];
    snprintf(path, sizeof path, "%s", test_file("loud.yaml"));
    CHECK_OK(ares_file_write(test_file("loud.py"), program, sizeof program - 1));
    CHECK_OK(ares_file_write(path, yaml, sizeof yaml - 1));
    snprintf(words, sizeof words, "--env Loud --config '%s' --max-turns 1 'command=[python3, %s]'",
             path, test_file("loud.py"));
    CHECK_EQ(play(&out, "\\033]0;title\\007", words), 0);
    CHECK_CONTAINS(out.data, "a\\x1b[2J\\x07b\nc\n");
    CHECK_CONTAINS(out.data, "<answer>\\x1b]0;title\\x07</answer>");
    CHECK(!strchr(out.data, 0x1b) && !strchr(out.data, 0x07));
    ares_str_fini(&out);
}

/* A sleeper in a session of its own: of a run that ends, and of one that is killed. */
TEST(what_a_program_has_started_ends_with_the_run)
{
    static const char program[] =
        "import json, subprocess, sys\n"
        "for line in sys.stdin:\n"
        "    child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "    print(child.pid, file=open(sys.argv[1] + '.new', 'w'), flush=True)\n"
        "    __import__('os').rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "    print(json.dumps({'observation': 'a', 'reward': 0, 'done': False}), flush=True)\n";
    static const char yaml[] = "env: {definitions: {Own: {type: command, instruction: Go.}}}\n";
    CHECK_OK(ares_file_write(test_file("own.py"), program, sizeof program - 1));
    CHECK_OK(ares_file_write(test_file("own.yaml"), yaml, sizeof yaml - 1));
    for (int killed = 0; killed < 2; killed++) {
        ares_str out = { 0 };
        int rc = test_shell(
            &out,
            "cd '%s' && rm -f pid fifo && mkfifo fifo && exec 3<>fifo\n"
            "'%s' play --env Own --config own.yaml 'command=[python3, own.py, pid]' <&3 3>&- "
            ">/dev/null & run=$!\n"
            "i=0; until [ -s pid ] || [ $i = 600 ]; do sleep 0.1; i=$((i+1)); done\n"
            "kill -0 $(cat pid) || exit 3\n"
            "kill -%s $run; wait $run\n"
            "i=0; while kill -0 $(cat pid) 2>/dev/null; do [ $i = 300 ] && exit 4\n"
            "sleep 0.1; i=$((i+1)); done",
            test_dir(), test_program(), killed ? "KILL" : "TERM");
        CHECK_EQ(rc, 0);
        ares_str_fini(&out);
    }
}

TEST(an_interrupted_game_says_so)
{
    ares_str out = { 0 };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    /* the signal comes when the first answer is waited for */
    int rc = test_shell(&out,
                        "mkfifo '%s/in' && exec 3<>'%s/in' && { '%s' play --env Bandit <&3 "
                        ">'%s/out' 2>&1 & } && until grep -q 'Turn 1' '%s/out'; do sleep 0.02; "
                        "done; kill -INT $!; wait $!; code=$?; cat '%s/out'; exit $code",
                        test_dir(), test_dir(), test_program(), test_dir(), test_dir(), test_dir());
    CHECK_EQ(rc, 130);
    CHECK_CONTAINS(out.data, "--- end\ninterrupted\n0 turns, 0 actions; reward 0, penalty 0");
    ares_str_fini(&out);
}

TEST(definitions_and_rules_come_from_files)
{
    static const char yaml[] = "env:\n"
                               "  definitions:\n"
                               "    Row: {type: frozen_lake, instruction: Walk., max_actions: 9,\n"
                               "          options: {is_slippery: false}}\n"
                               "  train: {tags: Row}\n"
                               "  max_turns: 2\n"
                               "  max_actions_per_turn: 1\n"
                               "  action_separator: ;\n"
                               "  format_penalty: -0.5\n"
                               "  enable_think: false\n"
                               "trainer: {max_steps: 3}\n";
    ares_str out = { 0 }, words = { 0 };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    const char *path = test_file("rows.yaml"), *later = test_file("later.yaml");
    FILE *f = fopen(path, "w");
    REQUIRE(f && fputs(yaml, f) >= 0 && fclose(f) == 0);
    f = fopen(later, "w");
    REQUIRE(f && fputs("custom_envs: {Row: {max_actions_per_traj: 8}}\n", f) >= 0 &&
            fclose(f) == 0);
    ares_str_addf(&words, "--env Row --config '%s' --config='%s' max_tokens=33", path, later);
    CHECK_EQ(play(&out, "Jump\\nUp; Up\\nUp\\n", words.data), 0);
    CHECK_CONTAINS(out.data, "--- system\nYou're a helpful assistant. Walk.\n");
    CHECK_CONTAINS(out.data, "You can make up to 8 actions, separated by the action separator \" ; "
                             "\"\n");
    CHECK_CONTAINS(out.data, "You have 8 actions left. Always output: <answer> [your answer] "
                             "</answer> with");
    CHECK_CONTAINS(out.data, "length: 33 words");
    CHECK_CONTAINS(out.data, "penalty -0.5, which");
    CHECK_CONTAINS(out.data, "<answer>Up</answer>\n"); /* one of two */
    CHECK_CONTAINS(out.data, "--- end\nfailure: no turns left\n2 turns, 1 actions;");
    ares_str_clear(&words);
    ares_str_addf(&words, "--env Rwo --config '%s'", path);
    CHECK_EQ(play(&out, "", words.data), 2);
    CHECK_CONTAINS(out.data, "env: tag = 'Rwo': unknown; did you mean 'Row'?");
    ares_str_clear(&words);
    ares_str_addf(&words, "--env Row --config '%s' option=1", path);
    CHECK_EQ(play(&out, "", words.data), 2);
    CHECK_CONTAINS(out.data, "env.definitions.Row.options.option: no such option");
    CHECK_EQ(play(&out, "", "--env Row --config /no/such.yaml"), 2);
    CHECK_CONTAINS(out.data, "/no/such.yaml");
    CHECK_EQ(play(&out, "", "--env Row --config"), 2);
    CHECK_CONTAINS(out.data, "play: --config needs the name of a file");
    ares_str_fini(&out);
    ares_str_fini(&words);
}
