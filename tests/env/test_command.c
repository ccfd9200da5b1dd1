/* Environments in programs of the user's own. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"
#include "place.h"

/* A definition "Mine" of a program of tests/env or of examples, with further options of its type.
 */
static int open_program(place *p, const char *program, const char *words)
{
    ares_str yaml = { 0 };
    ares_str_addf(&yaml,
                  "env:\n  definitions:\n    Mine: {type: command, max_actions: 50, options: "
                  "{command: [python3, '%s'], timeout_s: 120, start_timeout_s: 120}}\n",
                  test_source(program));
    int rc = place_define(p, yaml.data, "Mine", words);
    ares_str_fini(&yaml);
    ARES_TRY(rc);
    ARES_TRY(ares_env_definition_open(&p->d));
    return ares_env_init(&p->env, &p->d);
}

static int open_trouble(place *p, const char *arguments, const char *words)
{
    char all[1024];
    snprintf(all, sizeof all, "options.command=[python3,'%s'%s] %s",
             test_source("tests/env/trouble.py"), arguments, words);
    return open_program(p, "tests/env/trouble.py", all);
}

TEST(a_program_that_plays_by_the_rules_of_a_built_in_one_gives_its_bits)
{
    place built_in, program;
    REQUIRE_OK(place_open(&built_in, "FrozenLake", "options.is_slippery=false"));
    REQUIRE_OK(open_program(&program, "tests/env/lake.py", "max_actions=10"));
    place_plays_alike(&built_in, &program);
    place_close(&built_in);
    place_close(&program);
}

TEST(the_example_of_a_program_works)
{
    place p;
    ares_env_turn t;
    REQUIRE_OK(open_program(&p, "examples/environment_command/guess.py", ""));
    REQUIRE_OK(place_reset(&p, 10000, 0));
    place_shows(&p, "Guess a number from 1 to 20. 5 guesses are left.");
    int low = 1, high = 20;
    while (!ares_env_over(&p.env)) {
        char guess[16];
        ares_str text = { 0 };
        snprintf(guess, sizeof guess, "%d", (low + high) / 2);
        REQUIRE_OK(place_act(&p, guess, &t));
        ares_env_render(&p.env, &text);
        if (strstr(text.data, "too low")) low = atoi(guess) + 1;
        if (strstr(text.data, "too high")) high = atoi(guess) - 1;
        ares_str_fini(&text);
    }
    CHECK(ares_env_won(&p.env) && !p.env.failure);
    CHECK(t.outcome.reward.value == 1 && !t.outcome.reward.integer);
    CHECK_NEAR(place_told(&t, "success"), 1, 0);
    place_close(&p);
}

TEST(the_configuration_of_the_example_is_valid)
{
    place p = { .cfg = ares_config_new() };
    ares_env_declare(p.cfg);
    ares_config_load_file(p.cfg, test_source("examples/environment_command/config.yaml"));
    ares_config_resolve(p.cfg);
    CHECK_OK(ares_env_define(p.cfg, "Guess", &p.d));
    CHECK_OK(ares_config_finish(p.cfg));
    place_close(&p);
}

/* ---------------- what goes well */
TEST(a_program_tells_actions_rewards_and_numbers)
{
    place p;
    ares_env_turn t;
    int n;
    REQUIRE_OK(open_trouble(&p, "", "options.send_number=true"));
    CHECK(p.d.type->waits);
    REQUIRE_OK(place_reset(&p, UINT64_MAX, 3));
    place_shows(&p, "count 0, seed 18446744073709551615, number 3");
    CHECK_STR(ares_env_actions(&p.env, &n)[0], "up");
    CHECK_OK(place_act(&p, "UP || jump || up", &t));
    place_shows(&p, "count 2");
    CHECK_EQ(t.executed, 2);
    CHECK_NEAR(t.penalty, -0.1, 0);
    CHECK(t.outcome.reward.integer && t.outcome.reward.value == 2);
    CHECK_NEAR(place_told(&t, "half"), 0.5, 0);
    CHECK_NEAR(place_told(&t, "why"), -1, 0); /* no number */
    CHECK_NEAR(place_told(&t, "a name"), -1, 0);
    CHECK(!ares_env_over(&p.env));
    int dropped = t.outcome.dropped;
    CHECK_OK(place_act(&p, "up", &t));
    CHECK(t.outcome.dropped > 0);
    CHECK_EQ(dropped, 2 * t.outcome.dropped); /* of both actions that were made */
    CHECK(ares_env_won(&p.env) && p.env.replayable && !p.env.failure);
    place_close(&p);
    REQUIRE_OK(open_trouble(&p, ",--free", ""));
    REQUIRE_OK(place_reset(&p, 1, 3));
    CHECK(!ares_env_actions(&p.env, &n) && n == 0);
    place_shows(&p, "count 0, seed 1");
    CHECK_OK(place_act(&p, "any text: \"quoted\" \\", &t));
    CHECK(t.executed == 1 && !p.env.failure);
    place_close(&p);
}

/* ---------------- what does not */
static int starts(const char *path)
{
    ares_str text = { 0 };
    int n = 0;
    if (ares_file_read(path, &text) == ARES_OK)
        for (size_t i = 0; i < text.len; i++) n += text.data[i] == '\n';
    ares_str_fini(&text);
    return n;
}

TEST(trouble_fails_an_episode_with_its_reason_and_the_next_one_goes_well)
{
    static const struct {
        const char *action, *why;
    } cases[] = {
        { "nonsense", "the program answered 'hello there'; expected a line of JSON" },
        { "nan", "expected JSON, which has no NaN and no Infinity" },
        { "huge", "expected {\"observation\": text, \"reward\": number" },
        { "rich", "\"reward\": number up to 1e30" },
        { "null", "\"reward\": null" },
        { "text", "expected {\"observation\"" },
        { "silent", "the program answered '{\"reward\": 1, \"done\": false}'; expected {" },
        { "endless", "\"done\": true or false" },
        { "list", "the program answered '[1, 2]'; expected {" },
        { "number", "the program answered '7'; expected {" },
        { "info", "expected {\"observation\"" },
        { "bytes", "expected a line of JSON" },
        { "says", "the program says: the pieces have fallen off the board" },
        { "die", "the program ended with exit code 7" },
        { "kill", "the program ended by signal 9" },
        { "close", "the program closed its output" },
        { "flood", "the program floods its output" },
        { "memory", "the program ended with exit code 1" },
    };
    place p;
    ares_env_turn t;
    char arguments[512];
    const char *file = test_file("starts");
    snprintf(arguments, sizeof arguments, ",--starts,'%s'", file);
    REQUIRE_OK(open_trouble(&p, arguments, "options.memory_mb=512"));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        REQUIRE_OK(place_reset(&p, 7, 0));
        CHECK(!p.env.failure && p.env.replayable && !ares_env_over(&p.env));
        place_shows(&p, "count 0, seed 7");
        char both[64];
        snprintf(both, sizeof both, "up || %s || up", cases[i].action);
        REQUIRE_OK(place_act(&p, both, &t));
        place_failed(&p, cases[i].why, true);
        CHECK_EQ(t.executed, 2); /* the third is not tried */
        CHECK_NEAR(t.outcome.reward.value, 1, 0);
        CHECK(t.outcome.reward.integer && t.outcome.done && !t.outcome.success);
        CHECK_EQ(starts(file), i + 1);
    }
    place_close(&p);
}

TEST(a_late_answer_fails_an_episode_that_cannot_be_replayed)
{
    place p;
    ares_env_turn t;
    REQUIRE_OK(open_trouble(&p, "", "options.timeout_s=0.2"));
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(place_reset(&p, 7, 0));
        CHECK(!p.env.failure && p.env.replayable);
        REQUIRE_OK(place_act(&p, "late", &t));
        place_failed(&p, "the program gave no answer within 0.2 s", false);
    }
    place_close(&p);
    REQUIRE_OK(open_program(&p, "x",
                            "options.command=[sleep,1000] options.start_timeout_s=0.1 "
                            "options.timeout_s=1000"));
    REQUIRE_OK(place_reset(&p, 7, 0));
    place_failed(&p, "the program gave no answer within 0.1 s", false);
    CHECK_EQ(p.env.turns, 0);
    place_shows(&p, "");
    place_close(&p);
}

TEST(a_reset_that_goes_wrong_is_an_episode_that_is_over)
{
    static const struct {
        uint64_t seed;
        const char *why;
    } cases[] = {
        { 13, "the program answered 'nonsense'; expected a line of JSON" },
        { 14, "expected {\"observation\": text, \"actions\": [text, ..]}" },
        { 15, "expected {\"observation\": text, \"actions\"" },
        { 16, "expected {\"observation\": text, \"actions\"" },
    };
    place p;
    REQUIRE_OK(open_trouble(&p, "", ""));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        REQUIRE_OK(place_reset(&p, cases[i].seed, 0));
        place_failed(&p, cases[i].why, true);
        REQUIRE_OK(place_reset(&p, 1, 0));
        CHECK(!p.env.failure && !ares_env_over(&p.env));
    }
    place_close(&p);
    REQUIRE_OK(open_program(&p, "x", "options.command=[python3,/no/such.py]"));
    REQUIRE_OK(place_reset(&p, 1, 0));
    place_failed(&p, "the program ended with exit code 2", true);
    place_close(&p);
}

TEST(a_line_that_nobody_asked_for_is_nobodys_answer)
{
    place p;
    ares_env_turn t;
    REQUIRE_OK(open_trouble(&p, "", ""));
    REQUIRE_OK(place_reset(&p, 7, 0));
    REQUIRE_OK(place_act(&p, "twice", &t)); /* the second line may come a moment later */
    if (!p.env.failure) CHECK_OK(place_act(&p, "up", &t));
    if (!p.env.failure) CHECK_OK(place_act(&p, "up", &t));
    CHECK(p.env.failure != NULL);
    CHECK(!p.env.replayable);
    CHECK_EQ(p.env.unasked, 1);
    REQUIRE_OK(place_reset(&p, 8, 0));
    place_shows(&p, "count 0, seed 8");
    CHECK(p.env.replayable && p.env.unasked == 0);
    /* one that comes after an answer that was right: found at once, or by the next question */
    REQUIRE_OK(place_act(&p, "up || twice", &t));
    for (int i = 0; i < 50 && p.env.unasked == 0; i++) {
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
        REQUIRE_OK(place_reset(&p, 8, 0));
    }
    CHECK(!p.env.failure && !p.env.replayable);
    CHECK_EQ(p.env.unasked, 1);
    REQUIRE_OK(place_reset(&p, 8, 0));
    place_shows(&p, "count 0, seed 8");
    CHECK(p.env.replayable && p.env.unasked == 0);
    place_close(&p);
}

TEST(a_reset_may_end_the_episode_and_the_next_one_goes_well)
{
    place p;
    REQUIRE_OK(open_trouble(&p, "", ""));
    REQUIRE_OK(place_reset(&p, 17, 0));
    CHECK(!p.env.failure && p.env.replayable);
    CHECK(p.env.terminated && p.env.truncated && !ares_env_won(&p.env));
    REQUIRE_OK(place_reset(&p, 7, 0));
    CHECK(!ares_env_over(&p.env));
    place_close(&p);
}

TEST(the_system_message_names_the_actions_of_the_episode)
{
    static const char end[] =
        "You can make up to 50 actions, separated by the action separator \" ; \"\n";
    place p;
    ares_str text = { 0 };
    ares_env_format f = ares_env_format_default();
    f.separator = ";";
    REQUIRE_OK(open_trouble(&p, "", ""));
    REQUIRE_OK(place_reset(&p, 7, 0));
    ares_env_system_message(&p.env, &f, &text);
    CHECK_CONTAINS(text.data, "\nYour available actions are:\nup, late, die, kill, close, ");
    CHECK_CONTAINS(text.data, end);
    place_close(&p);
    ares_str_clear(&text);
    REQUIRE_OK(open_trouble(&p, ",--free", "")); /* any text is an action */
    REQUIRE_OK(place_reset(&p, 7, 0));
    ares_env_system_message(&p.env, &f, &text);
    CHECK(!strstr(text.data, "available actions"));
    CHECK_CONTAINS(text.data, end);
    place_close(&p);
    ares_str_fini(&text);
}

/* A program may end after each episode. */
TEST(a_program_that_ends_between_episodes_is_started_again_without_blame)
{
    place p;
    ares_env_turn t;
    static const char yaml[] =
        "env:\n  definitions:\n    Mine:\n      type: command\n      options:\n        command:\n"
        "        - sh\n        - -c\n        - |\n          read x\n"
        "          echo '{\"observation\": \"a\"}'\n          read x\n"
        "          echo '{\"observation\": \"b\", \"reward\": 0.5, \"done\": true}'\n";
    REQUIRE_OK(place_define(&p, yaml, "Mine", ""));
    REQUIRE_OK(ares_env_definition_open(&p.d));
    REQUIRE_OK(ares_env_init(&p.env, &p.d));
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(place_reset(&p, 7, 0));
        REQUIRE(CHECK_STR(p.env.failure, NULL));
        place_shows(&p, "a");
        REQUIRE_OK(place_act(&p, "go", &t));
        CHECK_MSG(!p.env.failure, "%s", p.env.failure);
        CHECK(ares_env_won(&p.env)); /* no info: a reward above 0 at the end */
    }
    place_close(&p);
}

/* The time of the first answer is that of every start; this one answers nothing else. */
TEST(a_program_that_starts_slowly_may_do_so_each_time)
{
    place p;
    static const char yaml[] =
        "env:\n  definitions:\n    Mine:\n      type: command\n      options:\n"
        "        timeout_s: 0.05\n        command:\n"
        "        - sh\n        - -c\n        - |\n          sleep 0.2; read x\n"
        "          echo '{\"observation\": \"a\", \"done\": true}'\n";
    REQUIRE_OK(place_define(&p, yaml, "Mine", ""));
    REQUIRE_OK(ares_env_definition_open(&p.d));
    REQUIRE_OK(ares_env_init(&p.env, &p.d));
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(place_reset(&p, 7, 0));
        CHECK_MSG(!p.env.failure, "start %d: %s", i, p.env.failure);
    }
    place_close(&p);
}

/* ---------------- one process for many */
enum { MANY = 12 };

typedef struct walker {
    place *p;
    ares_env env;
    const char *last; /* action of the last turn */
    uint64_t seed;
    int episodes, failed;
    pthread_t thread;
} walker;

static void *walk(void *x)
{
    walker *w = x;
    for (int i = 0; i < w->episodes; i++) {
        uint64_t seed = w->seed + (uint64_t)i * 100;
        char want[64];
        if (ares_env_reset(&w->env, &(ares_env_start){ seed, 0 }) != ARES_OK) abort();
        for (int k = 0; k < 3 && !ares_env_over(&w->env); k++) {
            ares_str text = { 0 };
            ares_env_turn t;
            ares_view action = ares_view_of(k == 2 ? w->last : "up");
            snprintf(want, sizeof want, k ? "count %d" : "count %d, seed %d", k, (int)seed);
            ares_env_render(&w->env, &text);
            if (strcmp(text.data, want) != 0) w->failed += 1000;
            if (ares_env_act(&w->env, &action, 1, 0, &t) != ARES_OK) abort();
            ares_str_fini(&text);
        }
        w->failed += !ares_env_won(&w->env);
    }
    return NULL;
}

/* Walks on threads of their own, all at once. */
static void walk_all(place *p, walker *w, int n, const char *last, int episodes)
{
    for (int i = 0; i < n; i++) {
        w[i] = (walker){ .p = p, .last = last, .seed = (uint64_t)i + 20, .episodes = episodes };
        REQUIRE_OK(ares_env_init(&w[i].env, &p->d));
    }
    for (int i = 0; i < n; i++) REQUIRE(!pthread_create(&w[i].thread, NULL, walk, &w[i]));
    for (int i = 0; i < n; i++) pthread_join(w[i].thread, NULL);
}

TEST(one_process_serves_many_environments_on_many_threads)
{
    for (int per = 1; per <= 16; per += 5) {
        place p;
        walker w[MANY];
        char arguments[512], words[64];
        const char *file = test_file("starts");
        unlink(file);
        snprintf(arguments, sizeof arguments, "%s,--starts,'%s'", per > 1 ? ",--ids" : "", file);
        snprintf(words, sizeof words, "options.environments_per_process=%d", per);
        REQUIRE_OK(open_trouble(&p, arguments, words));
        walk_all(&p, w, MANY, "up", 4);
        for (int i = 0; i < MANY; i++) {
            CHECK_EQ(w[i].failed, 0);
            CHECK(w[i].env.replayable);
            ares_env_fini(&w[i].env);
        }
        CHECK_EQ(starts(file), per == 1 ? MANY : (MANY + 1 + per - 1) / per);
        place_close(&p);
    }
}

TEST(the_end_of_a_process_fails_every_episode_in_it)
{
    place p;
    ares_env other;
    ares_env_turn t;
    REQUIRE_OK(open_trouble(&p, ",--ids", "options.environments_per_process=4"));
    REQUIRE_OK(ares_env_init(&other, &p.d));
    REQUIRE_OK(place_reset(&p, 7, 0));
    REQUIRE_OK(ares_env_reset(&other, &(ares_env_start){ 8, 0 }));
    REQUIRE_OK(place_act(&p, "silent", &t)); /* costs its own episode alone */
    place_failed(&p, "expected {\"observation\"", true);
    CHECK_OK(ares_env_act(&other, &ARES_VIEW("up"), 1, 0, &t));
    CHECK(!other.failure);
    REQUIRE_OK(place_reset(&p, 9, 0));
    REQUIRE_OK(place_act(&p, "die", &t));
    place_failed(&p, "the program ended with exit code 7", false); /* who else was in it? */
    REQUIRE_OK(place_reset(&p, 10, 0));
    place_shows(&p, "count 0, seed 10");
    CHECK_OK(ares_env_act(&other, &ARES_VIEW("up"), 1, 0, &t));
    CHECK(other.failure && !other.replayable);
    CHECK_CONTAINS(other.failure, "the program ended with exit code 7");
    CHECK_OK(ares_env_reset(&other, &(ares_env_start){ 8, 0 }));
    CHECK(!other.failure);
    REQUIRE_OK(place_act(&p, "stranger", &t));
    place_failed(&p, "the program answered without the id of a question", false);
    ares_env_fini(&other);
    place_close(&p);
}

TEST(a_late_process_fails_all_who_wait_for_it)
{
    place p;
    walker w[MANY];
    REQUIRE_OK(
        open_trouble(&p, ",--ids", "options.environments_per_process=16 options.timeout_s=1"));
    walk_all(&p, w, MANY, "late", 1);
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(w[i].failed, 1);
        CHECK(w[i].env.failure && !w[i].env.replayable);
        ares_env_fini(&w[i].env);
    }
    place_close(&p);
}

/* ---------------- options */
TEST(wrong_options_of_a_program_are_named)
{
    static const struct {
        const char *options, *message;
    } cases[] = {
        { "{}", "env.definitions.Mine.options.command" },
        { "{command: []}", "my.yaml:6: env.definitions.Mine.options.command" },
        { "{command: [/no/such/program]}", "my.yaml:6: env.definitions.Mine.options.command" },
        { "{command: [no_such_program_x]}", "there is no program 'no_such_program_x'" },
        { "{command: [/etc/passwd]}", "there is no program '/etc/passwd' that can be run" },
        { "{command: [sh], timeout_s: 0}", "my.yaml:6: env.definitions.Mine.options.timeout_s" },
        { "{command: [sh], memory_mb: 1}", "memory_mb" },
        { "{command: [sh], environments_per_process: 0}", "environments_per_process" },
        { "{command: [sh], timout_s: 3}", "did you mean" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        place p;
        char yaml[512];
        snprintf(
            yaml, sizeof yaml,
            "env:\n  definitions:\n    Mine:\n      type: command\n      options:\n        %s\n",
            cases[i].options);
        CHECK_FAIL(place_define(&p, yaml, "Mine", ""), ARES_ECONFIG, cases[i].message);
        place_close(&p);
    }
}

/* ---------------- anything may be answered */
/* Answers cut, doubled, with a byte changed, with values of other kinds: none of it ends the run.
 */
TEST(no_answer_ends_the_run)
{
    static const char *const seeds[] = {
        "{\"observation\":\"a\",\"actions\":[\"left\",\"right\"]}",
        "{\"observation\":\"b\",\"reward\":0.5,\"done\":false,\"info\":{\"success\":true,\"n\":2}}",
        ("{\"observation\":\"b\\u0000\",\"reward\":-1e308,\"done\":true,\"info\":{\"\":1,\"n\":"
         "1e99}}"),
        "[[[[",
        "\"",
        "{\"observation\":{},\"reward\":[],\"done\":1,\"info\":[]}",
    };
    ares_rng_key key = ares_rng_root(7, ARES_RNG_TEST);
    ares_str lines = { 0 }, yaml = { 0 };
    uint64_t at = 0;
    for (int i = 0; i < 400; i++) {
        uint64_t which = ares_rng_below(key, at++, 24); /* mostly the second: it fits anywhere */
        const char *seed = seeds[which < ARES_COUNT(seeds) ? which : 1];
        size_t n = strlen(seed);
        for (int k = ares_rng_below(key, at++, 8) == 0; k >= 0; k--) {
            size_t from = ares_rng_below(key, at++, 20) ? 0 : (size_t)ares_rng_below(key, at++, n);
            size_t to = ares_rng_below(key, at++, 20) ? n : (size_t)ares_rng_below(key, at++, n);
            size_t start = lines.len;
            ares_str_add(&lines, seed + from, to > from ? to - from : 0);
            if (ares_rng_below(key, at++, 8) == 0 && lines.len > start) {
                char *byte = &lines.data[start + ares_rng_below(key, at++, lines.len - start)];
                *byte = (char)ares_rng_below(key, at++, 256);
            }
        }
        ares_str_add_char(&lines, '\n');
    }
    CHECK_OK(ares_file_write(test_file("lines"), lines.data, lines.len));
    /* each start goes on with the next lines: a counter in a file */
    ares_str_addf(
        &yaml,
        "env:\n  definitions:\n    Mine: {type: command, max_actions: 500, options: "
        "{timeout_s: 60, command: [python3, -c, \"import sys\\nlines = open('%s', "
        "'rb').read().split(b'\\\\n')\\nfor _ in sys.stdin:\\n  n = int(open('%s').read())"
        "\\n  open('%s', 'w').write(str(n + 1))\\n  sys.stdout.buffer.write(lines[n %% "
        "400] + b'\\\\n' if lines[n %% 400].strip() else b'0\\\\n')\\n  "
        "sys.stdout.flush()\\n\"]}}\n",
        test_file("lines"), test_file("n"), test_file("n"));
    CHECK_OK(ares_file_write(test_file("n"), "0", 1));
    place p;
    REQUIRE_OK(place_define(&p, yaml.data, "Mine", ""));
    REQUIRE_OK(ares_env_definition_open(&p.d));
    REQUIRE_OK(ares_env_init(&p.env, &p.d));
    int failed = 0, steps = 0;
    for (int i = 0; i < 60; i++) {
        ares_env_turn t;
        REQUIRE_OK(place_reset(&p, (uint64_t)i, 0));
        for (int k = 0; k < 4 && !ares_env_over(&p.env); k++, steps++)
            REQUIRE_OK(place_act(&p, "left", &t));
        failed += p.env.failure != NULL;
        CHECK(p.env.replayable);
    }
    CHECK_MSG(failed > 20 && failed < 60 && steps > 60, "%d failed, %d steps", failed, steps);
    place_close(&p);
    ares_str_fini(&lines);
    ares_str_fini(&yaml);
}
