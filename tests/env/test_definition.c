/* Definitions of environments, and those that read files. */
#include <stdio.h>

#include "internal.h"
#include "place.h"

/* The fault of a definition, or "" */
static void check_fault(const char *yaml, const char *tag, const char *words, const char *message)
{
    place p;
    CHECK_FAIL(place_define(&p, yaml, tag, words), ARES_ECONFIG, message);
    place_close(&p);
}

TEST(every_tag_has_a_type_and_shows_its_texts)
{
    int n;
    const char *const *tags = ares_env_tag_names(&n);
    CHECK(n > 12);
    for (int i = 0; i < n; i++) {
        place p;
        bool file = strstr(tags[i], "etamath") || strcmp(tags[i], "MetamathQA") == 0;
        bool program = strcmp(tags[i], "command") == 0 || strcmp(tags[i], "agent") == 0,
             server = strcmp(tags[i], "openenv") == 0;
        ares_str text = { 0 };
        ares_env_format f = ares_env_format_default();
        if (server && !sockets_offered()) continue;
        REQUIRE_OK(place_define(&p, NULL, tags[i],
                                file      ? "options.path=x"
                                : program ? "options.command=[sh]"
                                : server  ? "options.url=ws://127.0.0.1:1"
                                          : ""));
        ares_env_system_message(&(ares_env){ .definition = &p.d }, &f, &text);
        CHECK_CONTAINS(text.data, "You're a helpful assistant. ");
        CHECK_EQ(strstr(text.data, "available actions") != NULL, p.d.type->action_names != NULL);
        place_close(&p);
        ares_str_fini(&text);
    }
}

TEST(a_file_changes_an_option_of_a_built_in_tag_and_adds_its_own)
{
    place p;
    ares_str text = { 0 };
    ares_env_format f = ares_env_format_default();
    static const char yaml[] = "env:\n  definitions:\n    CoordSokoban: {max_tokens: 7}\n"
                               "    FrozenLake: {max_actions: 4, instruction: Walk.}\n"
                               "    Wide: {type: sokoban, instruction: Go., options: {dim_y: 9, "
                               "symbols: [w, f, t, a, b, c, d]}}\n";
    REQUIRE_OK(place_define(&p, yaml, "CoordSokoban", ""));
    CHECK_EQ(p.d.texts.max_tokens, 7);
    CHECK_EQ(p.d.texts.max_actions, 10);
    CHECK_CONTAINS(p.d.texts.instruction, "(5, 5)");
    place_close(&p);
    REQUIRE_OK(place_define(&p, yaml, "FrozenLake", ""));
    CHECK_EQ(p.d.texts.max_actions, 4);
    CHECK_STR(p.d.texts.instruction, "Walk.");
    place_close(&p);
    REQUIRE_OK(place_define(&p, yaml, "Wide", ""));
    ares_env_system_message(&(ares_env){ .definition = &p.d }, &f, &text);
    CHECK_CONTAINS(text.data, "assistant. Go.\n");
    CHECK_CONTAINS(text.data, "w: wall, f: empty, t: target, a: box on target, b: box, c: player");
    place_close(&p);
    ares_str_fini(&text);
}

TEST(wrong_definitions_are_named)
{
    static const char lake[] = "env:\n  definitions:\n    Lake:\n      type: frozen_lak\n";
    static const char typo[] =
        "env:\n  definitions:\n    FrozenLake:\n      options: {succes_rate: 1}\n";
    check_fault(NULL, "CoordSokobn", "", "did you mean 'CoordSokoban'?");
    check_fault(lake, "Lake", "", "my.yaml:4: env.definitions.Lake.type = 'frozen_lak'");
    check_fault(lake, "Lake", "", "did you mean 'frozen_lake'?");
    check_fault(typo, "FrozenLake", "", "my.yaml:4");
    check_fault(typo, "FrozenLake", "", "did you mean");
    check_fault(NULL, "FrozenLake", "options.success_rate=1.5", "success_rate");
    check_fault(NULL, "FrozenLake", "max_action=5", "did you mean");
    check_fault(NULL, "sokoban", "options.symbols=[a,b]", "symbols");
    check_fault(NULL, "MetamathQA", "", "path");
    check_fault("env: {definitions: {Mine: {max_actions: 3}}}", "Mine", "", "type");
}

/* ---------------- countdown */
static countdown_verdict judged(const char *answer, double target)
{
    countdown_problem p = { .n = 3, .number = { 3, 5, 2 }, .target = target };
    return countdown_judge(ares_view_of(answer), &p);
}

TEST(countdown_reads_expressions_and_nothing_else)
{
    CHECK_EQ(judged("((3)) * -(2 - +5)", 9), COUNTDOWN_RIGHT);
    CHECK_EQ(judged("3*5/2", 7.5), COUNTDOWN_RIGHT);
    CHECK_EQ(judged("3-5-2", -4), COUNTDOWN_RIGHT);
    CHECK_EQ(judged("3 / (5 - 5 * 1) 2", 0), COUNTDOWN_WRONG_NUMBERS);
    CHECK_EQ(judged("3 + 5 2", 8), COUNTDOWN_WRONG_VALUE);
    CHECK_EQ(judged("3 + 5 + 02", 10), COUNTDOWN_WRONG_VALUE); /* no number in Python */
    CHECK_EQ(judged("3.5 + 2", 5.5), COUNTDOWN_RIGHT);         /* the digits are what is counted */
    CHECK_EQ(judged("3 + 5 + 2 = 10", 10), COUNTDOWN_WRONG_NUMBERS);
    CHECK_EQ(judged("3 ** 2 + 5", 14), COUNTDOWN_WRONG_VALUE); /* where Python's eval says 14 */
    CHECK_EQ(judged("5 / (3 - 2 - 1)", 1), COUNTDOWN_WRONG_NUMBERS);
    CHECK_EQ(judged("2 + 3 + 5; import os", 10), COUNTDOWN_WRONG_VALUE);
    CHECK_EQ(judged("", 0), COUNTDOWN_WRONG_NUMBERS);
    CHECK_EQ(judged("999999999999999999999999", 0), COUNTDOWN_WRONG_NUMBERS);
    ares_str deep = { 0 };
    for (int i = 0; i < 100000; i++) ares_str_add_char(&deep, '(');
    ares_str_add_z(&deep, "3 + 5 + 2");
    CHECK_EQ(judged(deep.data, 10), COUNTDOWN_WRONG_VALUE);
    ares_str_fini(&deep);
}

TEST(countdown_makes_problems_that_have_a_solution)
{
    place p;
    REQUIRE_OK(place_open(&p, "Countdown", ""));
    for (uint64_t seed = 0; seed < 200; seed++) {
        ares_str text = { 0 };
        ares_env_turn t;
        int target, x[4], n, solved = 0;
        REQUIRE_OK(place_reset(&p, seed, 0));
        ares_env_render(&p.env, &text);
        n = sscanf(text.data, "Target: %d, nums: [%d, %d, %d, %d]", &target, &x[0], &x[1], &x[2],
                   &x[3]) -
            1;
        CHECK(n == 3 || n == 4);
        for (int signs = 0; signs < 1 << n && !solved; signs++) {
            int sum = 0;
            ares_str_clear(&text);
            for (int i = 0; i < n; i++) {
                sum += signs >> i & 1 ? -x[i] : x[i];
                ares_str_addf(&text, "%c %d", signs >> i & 1 ? '-' : '+', x[i]);
            }
            if (sum != target) continue;
            solved = 1;
            CHECK_OK(place_act(&p, text.data, &t));
            CHECK(ares_env_won(&p.env) && t.outcome.reward.value == 1);
        }
        CHECK_MSG(solved, "seed %d", (int)seed);
        ares_str_fini(&text);
    }
    place_close(&p);
}

static int open_file(place *p, const char *tag, const char *content)
{
    char words[512];
    const char *path = test_file("rows.jsonl");
    CHECK_OK(ares_file_write(path, content, strlen(content)));
    snprintf(words, sizeof words, "options.path=%s max_actions=9", path);
    return place_open(p, tag, words);
}

TEST(countdown_takes_solvable_rows_of_a_file_by_seed)
{
    place p;
    ares_env_turn t;
    REQUIRE_OK(open_file(&p, "Countdown",
                         "{\"nums\":[3,5,2],\"target\":4}\n\n"
                         "{\"nums\":[3,5,2],\"target\":30}\n"
                         "{\"nums\":[1,1],\"target\":2}"));
    CHECK_OK(place_reset(&p, 10001, 0)); /* of two that are left */
    place_shows(&p, "Target: 2, nums: [1, 1]");
    CHECK_OK(place_reset(&p, 10000, 0));
    place_shows(&p, "Target: 4, nums: [3, 5, 2]");
    CHECK_OK(place_act(&p, "3 + 5 + 2", &t));
    CHECK_NEAR(t.outcome.reward.value, 0.1, 0);
    CHECK(!ares_env_won(&p.env) && p.env.terminated);
    place_shows(&p, "Your answer get 0.1 points.");
    place_close(&p);
    /* the first rows alone: an empty line is none */
    static const char *const most[] = { "options.path=%s options.max_instances=3",
                                        "options.path=%s options.max_instances=2" };
    for (int i = 0; i < 2; i++) {
        char words[512];
        snprintf(words, sizeof words, most[i], test_file("rows.jsonl"));
        REQUIRE_OK(place_open(&p, "Countdown", words));
        CHECK_OK(place_reset(&p, 10001, 0));
        place_shows(&p, i ? "Target: 4, nums: [3, 5, 2]" : "Target: 2, nums: [1, 1]");
        place_close(&p);
    }
    CHECK_FAIL(open_file(&p, "Countdown", "{\"nums\":[1],\"target\":1}\n{\"nums\":\"x\"}\n"),
               ARES_EFORMAT, "rows.jsonl:2: 'nums' must be a list");
    place_close(&p);
    CHECK_FAIL(open_file(&p, "Countdown", "{\"nums\":[1],\"target\":9}\n"), ARES_EFORMAT,
               "no row makes its target");
    place_close(&p);
    CHECK_FAIL(place_open(&p, "Countdown", "options.path=/no/such"), ARES_EIO, "/no/such");
    place_close(&p);
}

TEST(a_question_pays_half_as_much_after_each_wrong_attempt)
{
    place p;
    ares_env_turn t;
    REQUIRE_OK(open_file(&p, "MetamathQA",
                         "{\"query\":\"1 + 1?\",\"response\":\"Two. The answer is: x  = 2 \"}\n"));
    CHECK_OK(place_reset(&p, 5, 0));
    place_shows(&p, "1 + 1?");
    CHECK_OK(place_act(&p, "3", &t));
    CHECK(!t.outcome.done && t.outcome.reward.value == 0);
    place_shows(&p, "Incorrect. Please think again.");
    CHECK_OK(place_act(&p, "x = 22", &t));
    CHECK_NEAR(t.outcome.reward.value, 0, 0);
    CHECK_OK(place_act(&p, "X=2", &t));
    CHECK_NEAR(t.outcome.reward.value, 0.25, 0);
    CHECK(ares_env_won(&p.env));
    place_close(&p);
    /* two questions, and two environments that share them: each has its own attempts */
    place q;
    static const char two[] = "{\"query\":\"1 + 1?\",\"response\":\"The answer is: 2\"}\n\n"
                              "{\"query\":\"2 + 2?\",\"response\":\"The answer is: 4\"}\n";
    REQUIRE_OK(open_file(&p, "MetamathQA", two));
    REQUIRE_OK(open_file(&q, "MetamathQA", two));
    int asked[2] = { 0 };
    for (uint64_t seed = 0; seed < 8; seed++) {
        ares_str text = { 0 };
        CHECK_OK(place_reset(&p, seed, 0));
        CHECK_OK(place_reset(&q, seed, 3)); /* the seed alone decides */
        ares_env_render(&p.env, &text);
        place_shows(&q, text.data);
        bool first = strcmp(text.data, "1 + 1?") == 0;
        CHECK(first || strcmp(text.data, "2 + 2?") == 0);
        asked[first]++;
        CHECK_OK(place_act(&p, "5", &t));
        CHECK_NEAR(place_told(&t, "action_is_valid"), 1, 0);
        CHECK_OK(place_act(&p, first ? "4" : "2", &t)); /* the other one's */
        CHECK(!t.outcome.success);
        CHECK_OK(place_act(&q, first ? "2" : "4", &t));
        CHECK_NEAR(t.outcome.reward.value, 1, 0);
        CHECK_OK(place_act(&p, first ? "2" : "4", &t));
        CHECK_NEAR(t.outcome.reward.value, 0.25, 0);
        place_shows(&p, "Correct!");
        ares_str_fini(&text);
    }
    CHECK(asked[0] && asked[1]);
    place_close(&p);
    place_close(&q);
    CHECK_FAIL(open_file(&p, "MetamathQA", "{\"query\":\"q\",\"response\":\"2\"}\n"), ARES_EFORMAT,
               "rows.jsonl:1: 'response' has no 'The answer is: '");
    place_close(&p);
}
