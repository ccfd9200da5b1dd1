/*
 * What a program's answer means, member by member. The program answers a step with the text of the
 * action, and a reset with the line of a file that the seed names.
 */
#include "place.h"

#include <math.h>

static const char program[] = "import json, sys\n"
                              "resets = open(sys.argv[1]).read().split('\\n')\n"
                              "for line in sys.stdin:\n"
                              "    x = json.loads(line)\n"
                              "    reset = x.get('reset')\n"
                              "    print(resets[reset['seed']] if reset else x['step']['action'],\n"
                              "          flush=True)\n";

static int open_answers(place *p, const char *resets)
{
    char words[700];
    CHECK_OK(ares_file_write(test_file("program.py"), program, sizeof program - 1));
    CHECK_OK(ares_file_write(test_file("resets"), resets, strlen(resets)));
    snprintf(words, sizeof words,
             "type=command instruction=x max_actions=50 options.command=[python3,-ISs,%s,%s]",
             test_file("program.py"), test_file("resets"));
    return place_open(p, "Own", words);
}

TEST(a_step_is_won_by_its_word_or_else_by_its_reward)
{
#define DONE(reward) "{\"observation\":\"o\",\"reward\":" reward ",\"done\":true"
    static const struct {
        const char *answer, *why; /* why: of a failure */
        bool over, won;
        int told, dropped;
    } cases[] = {
        { "{\"observation\":\"o\",\"reward\":1,\"done\":false}", NULL, false, false, 0, 0 },
        { DONE("1") "}", NULL, true, true, 0, 0 },
        { DONE("0") "}", NULL, true, false, 0, 0 },
        { DONE("-1") ",\"info\":null}", NULL, true, false, 0, 0 },
        { DONE("1") ",\"info\":{}}", NULL, true, true, 0, 0 },
        { DONE("0") ",\"info\":{\"success\":true}}", NULL, true, true, 1, 0 },
        { DONE("0") ",\"info\":{\"success\":2.5}}", NULL, true, true, 1, 0 },
        { DONE("1") ",\"info\":{\"success\":false}}", NULL, true, false, 1, 0 },
        { DONE("1") ",\"info\":{\"success\":0}}", NULL, true, false, 1, 0 },
        { DONE("1") ",\"info\":{\"success\":null}}", NULL, true, true, 0, 0 },
        { DONE("1") ",\"info\":{\"success\":\"no\"}}", "\"success\": true or false in info", true,
          false, 0, 0 },
        { DONE("1") ",\"info\":{\"success\":[true]}}", "\"success\": true or false in info", true,
          false, 0, 0 },
        { DONE("1") ",\"info\":[1]}", "expected {\"observation\"", true, false, 0, 0 },
        { DONE("1") ",\"info\":\"x\"}", "expected {\"observation\"", true, false, 0, 0 },
        /* names that a metric can have; other values than numbers are for the program's own use */
        { DONE("1") ",\"info\":{\"a\":1,\"b\":true,\"c\":\"x\",\"d\":[1],\"e\":null}}", NULL, true,
          true, 2, 0 },
        { DONE("1") ",\"info\":{\"\":1,\"a b\":1,\"\xc3\xa9\":1,\"a\\tb\":1,\"ok\":1}}", NULL, true,
          true, 1, 4 },
        { "{\"observation\":\"o\",\"reward\":1,\"done\":1}", "expected {\"observation\"", true,
          false, 0, 0 },
        { "{\"observation\":\"o\",\"reward\":true,\"done\":true}", "expected {\"observation\"",
          true, false, 0, 0 },
        { "{\"observation\":null,\"reward\":1,\"done\":true}", "expected {\"observation\"", true,
          false, 0, 0 },
        { "{\"observation\":\"o\",\"reward\":1e30,\"done\":true}", NULL, true, true, 0, 0 },
        { "{\"observation\":\"o\",\"reward\":1.1e30,\"done\":true}", "number up to 1e30", true,
          false, 0, 0 },
        { "{\"observation\":\"o\",\"reward\":-1.1e30,\"done\":true}", "number up to 1e30", true,
          false, 0, 0 },
    };
#undef DONE
    place p;
    REQUIRE_OK(open_answers(&p, "{\"observation\":\"begin\"}\n"));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_env_turn t;
        REQUIRE_OK(place_reset(&p, 0, 0));
        CHECK(!p.env.failure);
        place_shows(&p, "begin");
        CHECK_OK(place_act(&p, cases[i].answer, &t));
        CHECK_MSG((p.env.failure != NULL) == (cases[i].why != NULL), "%s: %s", cases[i].answer,
                  p.env.failure ? p.env.failure : "no failure");
        if (cases[i].why && p.env.failure) CHECK_CONTAINS(p.env.failure, cases[i].why);
        if (cases[i].why) continue;
        CHECK_EQ(ares_env_over(&p.env), cases[i].over);
        CHECK_MSG(ares_env_won(&p.env) == cases[i].won, "%s", cases[i].answer);
        CHECK_EQ(t.outcome.n_info, cases[i].told);
        CHECK_EQ(t.outcome.dropped, cases[i].dropped);
        place_shows(&p, "o");
    }
    place_close(&p);
}

TEST(a_reset_may_name_actions_that_are_texts)
{
    static const char resets[] = "{\"observation\":\"a\",\"actions\":[\"x\",\"y\"]}\n"
                                 "{\"observation\":\"b\"}\n"
                                 "{\"observation\":\"c\",\"actions\":null,\"done\":1}\n"
                                 "{\"observation\":\"d\",\"actions\":[]}\n"
                                 "{\"observation\":\"e\",\"actions\":[\"x\",\"\"]}\n"
                                 "{\"observation\":\"f\",\"actions\":[\"x\",3]}\n"
                                 "{\"observation\":\"g\",\"actions\":{\"x\":1}}\n"
                                 "{\"observation\":7}\n"
                                 "{\"observation\":\"i\",\"done\":true}\n"
                                 "{\"actions\":[\"z\"]}\n";
    static const char *const shown[] = { "a", "b", "c", NULL, NULL, NULL, NULL, NULL, "i", NULL };
    static const int over[] = { 0, 0, 0, 1, 1, 1, 1, 1, 1, 1 };
    place p;
    REQUIRE_OK(open_answers(&p, resets));
    for (int i = 0; i < ARES_COUNT(shown); i++) {
        int n = -1;
        REQUIRE_OK(place_reset(&p, (uint64_t)i, 0));
        CHECK_MSG((p.env.failure == NULL) == (shown[i] != NULL), "%d: %s", i,
                  p.env.failure ? p.env.failure : "no failure");
        if (p.env.failure)
            CHECK_CONTAINS(p.env.failure, "expected {\"observation\": text, \"actions\"");
        else place_shows(&p, shown[i]);
        CHECK_EQ(ares_env_over(&p.env), over[i]);
        if (shown[i]) {
            (void)ares_env_actions(&p.env, &n);
            CHECK_EQ(n, i == 0 ? 2 : 0); /* those of an episode before are forgotten */
        }
    }
    place_close(&p);
}
