/* Environments on servers of the OpenEnv protocol. */
#include <pthread.h>
#include <time.h>

#include "internal.h"
#include "place.h"
#include "served.h"

#define NEEDS_SOCKETS() \
    if (!sockets_offered()) SKIP("no libwebsockets in this build; install libwebsockets-dev")

/* A definition "Mine" of a server; path: before /ws. */
static int define_server(place *p, int port, const char *path, const char *words)
{
    char yaml[512];
    snprintf(yaml, sizeof yaml,
             "env:\n  definitions:\n    Mine: {type: openenv, max_actions: 50, options: {url: "
             "'ws://127.0.0.1:%d%s/ws', timeout_s: 120, connect_timeout_s: 120}}\n",
             port, path);
    return place_define(p, yaml, "Mine", words);
}

static int open_server(place *p, int port, const char *path, const char *words)
{
    ARES_TRY(define_server(p, port, path, words));
    ARES_TRY(ares_env_definition_open(&p->d));
    return ares_env_init(&p->env, &p->d);
}

static bool start_trouble(served *s)
{
    const char *const argv[] = { "python3", test_source("tests/env/trouble_server.py"), NULL };
    return served_start(s, argv);
}

static bool start_lake(served *s, const char *python, const char *option, const char *value)
{
    const char *const argv[] = { python, test_source("tests/env/lake_server.py"), option, value,
                                 NULL };
    return served_start(s, argv);
}

/* ---------------- a real server */
static void in_flight_like_a_built_in(int port)
{
    place built_in, server;
    REQUIRE_OK(place_open(&built_in, "FrozenLake", "options.is_slippery=false"));
    REQUIRE_OK(open_server(&server, port, "", "max_actions=10 options.observation='{{text}}'"));
    place_plays_alike(&built_in, &server);
    place_close(&built_in);
    place_close(&server);
}

static void be_in_trouble(int port)
{
    static const struct {
        const char *trouble, *why;
        bool replayable;
    } cases[] = {
        { "raise", "the server says: EXECUTION_ERROR: the ice has broken", true },
        { "flood", "the server sent a message of more than 1048576 bytes", false },
        { "late", "the server gave no answer within 0.3 s", false },
        { "die", "the server closed the connection", false },
    };
    ares_env_turn t;
    place p;
    REQUIRE_OK(open_server(&p, port, "", "options.reset.trouble=nan"));
    REQUIRE_OK(place_reset(&p, 10000, 0));
    REQUIRE_OK(place_act(&p, "Up", &t));
    CHECK(!p.env.failure && t.outcome.reward.value == 0);
    CHECK_NEAR(place_told(&t, "no_reward"), 1, 0);
    place_close(&p);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char words[160];
        snprintf(words, sizeof words, "options.reset.trouble=%s options.timeout_s=%s",
                 cases[i].trouble, i == 2 ? "0.3" : "120");
        REQUIRE_OK(open_server(&p, port, "", words));
        REQUIRE_OK(place_reset(&p, 10000, 0));
        REQUIRE(CHECK_STR(p.env.failure, NULL));
        REQUIRE_OK(place_act(&p, "Up", &t));
        place_failed(&p, cases[i].why, cases[i].replayable);
        place_close(&p);
    }
}

TEST(a_real_server_plays_like_a_built_in_type_and_may_fail)
{
    NEEDS_SOCKETS();
    served s;
    const char *python = served_openenv();
    if (!python) return;
    if (start_lake(&s, python, "--sessions", "8")) {
        in_flight_like_a_built_in(s.port);
        be_in_trouble(s.port); /* it dies of that */
    }
    served_stop(&s);
}

TEST(a_session_lives_through_pauses_and_is_counted)
{
    NEEDS_SOCKETS();
    served s;
    place p;
    ares_env more[2];
    const char *python = served_openenv();
    if (!python) return;
    const char *const argv[] = {
        python, test_source("tests/env/lake_server.py"), "--ping", "0.2", "--sessions", "2", NULL
    };
    if (!served_start(&s, argv)) return;
    REQUIRE_OK(open_server(&p, s.port, "", "options.connect_timeout_s=1.5"));
    REQUIRE_OK(place_reset(&p, 10000, 0));
    nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL); /* five pings, and nobody asks */
    ares_env_turn t;
    REQUIRE_OK(place_act(&p, "Up", &t));
    CHECK_STR(p.env.failure, NULL);
    CHECK_OK(ares_env_init(&more[0], &p.d));
    CHECK_FAIL(ares_env_init(&more[1], &p.d), ARES_EIO,
               "no session: the server says: CAPACITY_REACHED: Server at capacity: 2/2");
    ares_env_fini(&more[0]);
    CHECK_OK(ares_env_init(&more[1], &p.d)); /* its place comes free in a moment */
    ares_env_fini(&more[1]);
    place_close(&p);
    served_stop(&s);
}

/* ---------------- what goes well */
TEST(a_server_tells_states_rewards_and_numbers)
{
    NEEDS_SOCKETS();
    served s;
    place p;
    ares_env_turn t;
    int n;
    if (!start_trouble(&s)) return;
    setenv("http_proxy", "http://127.0.0.1:9", 1); /* is not asked */
    REQUIRE_OK(open_server(&p, s.port, "", "options.action.speed=3"));
    unsetenv("http_proxy");
    CHECK(p.d.type->waits);
    REQUIRE_OK(place_reset(&p, UINT64_MAX, 3));
    place_shows(&p, "seed 18446744073709551615");
    CHECK(!ares_env_actions(&p.env, &n) && n == 0);
    REQUIRE_OK(place_act(&p, "up || pieces", &t));
    CHECK_STR(p.env.failure, NULL);
    place_shows(&p, "fine");
    CHECK(t.outcome.reward.integer && t.outcome.reward.value == 2);
    CHECK_NEAR(place_told(&t, "half"), 0.5, 0);
    CHECK_NEAR(place_told(&t, "why"), -1, 0); /* no number */
    REQUIRE_OK(place_act(&p, "any text: \"quoted\" \\", &t));
    place_shows(&p, "{\"speed\": 3, \"word\": \"any text: \\\"quoted\\\" \\\\\"}");
    REQUIRE_OK(place_act(&p, "several", &t));
    place_shows(&p, "{\"a\":\"x\",\"b\":\"y\",\"n\":[1,2]}");
    REQUIRE_OK(place_act(&p, "none || refuse", &t));
    CHECK(t.executed == 1 && t.outcome.reward.value == 0);
    CHECK_NEAR(t.penalty, -0.1, 0);
    CHECK_NEAR(place_told(&t, "no_reward"), 1, 0);
    REQUIRE_OK(place_act(&p, "win", &t));
    CHECK(ares_env_won(&p.env) && p.env.replayable && !p.env.failure);
    REQUIRE_OK(place_reset(&p, 1, 0));
    REQUIRE_OK(place_act(&p, "lose", &t));
    CHECK(ares_env_over(&p.env) && !ares_env_won(&p.env) && !p.env.failure);
    place_close(&p);

    REQUIRE_OK(open_server(&p, s.port, "", "options.reward=last"));
    REQUIRE_OK(place_reset(&p, 1, 0));
    REQUIRE_OK(place_act(&p, "up || up || none || up", &t));
    CHECK(p.env.reward.value == 1);
    REQUIRE_OK(place_act(&p, "lose", &t));
    CHECK(p.env.reward.value == 0 && !ares_env_won(&p.env));
    place_close(&p);

    REQUIRE_OK(open_server(&p, s.port, "", "options.observation='{{text[0:9].x.y}}'"));
    REQUIRE_OK(place_reset(&p, 1, 0));
    place_failed(&p, "the observation does not suit the template: template: observation:1:", true);
    place_close(&p);

    REQUIRE_OK(open_server(&p, s.port, "/late", "options.action_field='*'")); /* soon there */
    REQUIRE_OK(place_reset(&p, 1, 0));
    REQUIRE_OK(place_act(&p, "[1] || {\"word\": \"hi\", \"n\": 1} || word", &t));
    CHECK_EQ(t.executed, 1);
    place_shows(&p, "{\"word\": \"hi\", \"n\": 1}");
    place_close(&p);
    served_stop(&s);
}

/* ---------------- what does not */
TEST(trouble_on_a_server_fails_an_episode_and_the_next_one_goes_well)
{
    NEEDS_SOCKETS();
    static const struct {
        const char *action, *why;
        bool replayable;
    } cases[] = {
        { "nonsense", "the server answered 'hello there'; expected {\"type\"", true },
        { "number", "the server answered '7'; expected {\"type\"", true },
        { "empty", "the server answered '{}'; expected {\"type\"", true },
        { "list", "expected {\"type\"", true },
        { "stranger", "expected {\"type\": \"observation\"", true },
        { "huge", "\"reward\": 1e+300", true },
        { "text", "\"reward\": \"1\"", true },
        { "endless", "\"done\": true or false", true },
        { "blind", "expected {\"type\": \"observation\"", true },
        { "error", "the server says: EXECUTION_ERROR: it broke", true },
        { "odd", "the server says: : ", true },
        { "bytes", "the server sent a binary message", false },
        { "binary", "the server sent a binary message", false },
        { "close", "the server closed the connection (1011 tired?)", false },
        { "hang up", "the server closed the connection", false },
        { "flood", "the server sent a message of more than 1048576 bytes", false },
        { "no frame", "the server closed the connection", false },
    };
    served s;
    place p;
    ares_env_turn t;
    if (!start_trouble(&s)) return;
    REQUIRE_OK(open_server(&p, s.port, "", ""));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        REQUIRE_OK(place_reset(&p, 7, 0));
        REQUIRE(CHECK_STR(p.env.failure, NULL));
        CHECK(p.env.replayable && !ares_env_over(&p.env));
        place_shows(&p, "seed 7");
        char both[64];
        snprintf(both, sizeof both, "up || %s || up", cases[i].action);
        REQUIRE_OK(place_act(&p, both, &t));
        place_failed(&p, cases[i].why, cases[i].replayable);
        CHECK_EQ(t.executed, 2); /* the third is not tried */
        CHECK(t.outcome.reward.value == 1 && t.outcome.done && !t.outcome.success);
    }
    REQUIRE_OK(place_reset(&p, 7, 0));
    REQUIRE(CHECK_STR(p.env.failure, NULL));
    REQUIRE_OK(place_act(&p, "twice", &t)); /* the second may come a moment later */
    for (int i = 0; i < 20 && !p.env.failure; i++) {
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        CHECK_OK(place_act(&p, "up", &t));
    }
    place_failed(&p, "the server sent a message that nobody asked for", false);
    for (uint64_t seed = 13; seed <= 16; seed++) {
        static const char *const whys[] = { "answered 'nonsense'", "expected {\"type\"", NULL,
                                            "it broke" };
        REQUIRE_OK(place_reset(&p, seed, 0));
        if (whys[seed - 13]) place_failed(&p, whys[seed - 13], true);
        else CHECK(!p.env.failure && ares_env_over(&p.env) && !ares_env_won(&p.env));
        CHECK_EQ(p.env.turns, 0);
    }
    REQUIRE_OK(place_reset(&p, 7, 0));
    REQUIRE(CHECK_STR(p.env.failure, NULL));
    REQUIRE_OK(place_act(&p, "die", &t));
    place_failed(&p, "the server closed the connection", false);
    served_stop(&s);
    place_close(&p);
}

TEST(a_late_answer_is_nobodys)
{
    NEEDS_SOCKETS();
    served s;
    place p;
    ares_env_turn t;
    if (!start_trouble(&s)) return;
    REQUIRE_OK(open_server(&p, s.port, "", "options.timeout_s=0.3 options.connect_timeout_s=0.3"));
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(place_reset(&p, 7, 0));
        REQUIRE(CHECK_STR(p.env.failure, NULL));
        CHECK(p.env.replayable);
        place_shows(&p, "seed 7");
        REQUIRE_OK(place_act(&p, "late", &t));
        place_failed(&p, "the server gave no answer within 0.3 s", false);
    }
    served_stop(&s); /* and there is none for the next episode */
    REQUIRE_OK(place_reset(&p, 7, 0));
    place_failed(&p, "the server cannot be reached", false);
    place_shows(&p, "");
    place_close(&p);
}

TEST(a_server_that_cannot_be_used_is_named_at_the_start)
{
    NEEDS_SOCKETS();
    static const struct {
        const char *path, *words, *why;
        int code;
    } cases[] = {
        { "/nonsense", "", "GET /nonsense/schema answered '['", ARES_EIO },
        { "/silent", "", "the server gave no answer within 0.", ARES_EIO },
        { "/moved", "", "answered 302", ARES_EIO },
        { "/flood", "", "sent a message of more than 1048576 bytes", ARES_EIO },
        { "/refused", "", "no session: the server cannot be reached (", ARES_EIO },
        { "/mute", "", "no session: the server gave no answer within", ARES_EIO },
        { "/full", "", "no session: the server says: CAPACITY_REACHED: full", ARES_EIO },
        { "", "options.action_field=world",
          "action_field = 'world': no such field (fields of the server's actions: word)",
          ARES_ECONFIG },
        { "/fields", "", "it is not clear where an answer goes", ARES_ECONFIG },
        { "/fields", "options.action.word=x options.action.speed=1", "it is not clear",
          ARES_ECONFIG },
    };
    served s;
    place p;
    if (!start_trouble(&s)) return;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char words[160];
        snprintf(words, sizeof words, "options.connect_timeout_s=0.4 %s", cases[i].words);
        CHECK_FAIL(open_server(&p, s.port, cases[i].path, words), cases[i].code, cases[i].why);
        place_close(&p);
    }
    REQUIRE_OK(open_server(&p, s.port, "/fields", "options.action.speed=1"));
    place_close(&p);
    served_stop(&s);
    CHECK_FAIL(open_server(&p, s.port, "", "options.connect_timeout_s=0.2"), ARES_EIO,
               "the server cannot be reached (Unable to connect); start it first");
    place_close(&p);
}

/* ---------------- anything may be answered */
/* Answers cut, doubled, with a byte changed: none of it ends the run. */
TEST(no_answer_of_a_server_ends_the_run)
{
    NEEDS_SOCKETS();
    static const char *const answers[] = {
        "{\"type\":\"observation\",\"data\":{\"observation\":{\"text\":\"a\",\"metadata\":{\"n\":1}"
        "},"
        "\"reward\":0.5,\"done\":false,\"metadata\":{\"success\":true}}}",
        "{\"type\":\"observation\",\"data\":{\"observation\":{},\"reward\":true,\"done\":false}}",
        "{\"type\":\"error\",\"data\":{\"code\":\"VALIDATION_ERROR\",\"message\":[]}}",
        "[{\"type\":1}]",
    };
    ares_rng_key key = ares_rng_root(8, ARES_RNG_TEST);
    uint64_t at = 0;
    int failed = 0, steps = 0;
    served s;
    place p;
    if (!start_trouble(&s)) return;
    REQUIRE_OK(open_server(&p, s.port, "", "max_actions=1000"));
    for (int i = 0; i < 300; i++) {
        ares_str text = { 0 };
        ares_env_turn t;
        if (i == 0 || ares_env_over(&p.env)) REQUIRE_OK(place_reset(&p, 7, 0));
        REQUIRE(CHECK_STR(p.env.failure, NULL));
        const char *answer = answers[ares_rng_below(key, at++, ARES_COUNT(answers))];
        size_t n = strlen(answer);
        ares_str_add_z(&text, "say ");
        for (int k = ares_rng_below(key, at++, 8) == 0; k >= 0; k--) {
            size_t from = ares_rng_below(key, at++, 8) ? 0 : (size_t)ares_rng_below(key, at++, n);
            size_t to = ares_rng_below(key, at++, 8) ? n : (size_t)ares_rng_below(key, at++, n);
            ares_str_add(&text, answer + from, to > from ? to - from : 0);
        }
        if (text.len > 4 && ares_rng_below(key, at++, 4) == 0) {
            char *byte = &text.data[4 + ares_rng_below(key, at++, text.len - 4)];
            *byte = (char)(' ' + ares_rng_below(key, at++, 95));
        }
        REQUIRE_OK(ares_env_act(&p.env, &(ares_view){ text.data, text.len }, 1, 0, &t));
        failed += p.env.failure != NULL;
        steps += t.executed > 0;
        ares_str_fini(&text);
    }
    CHECK_MSG(failed > 50 && failed < 280 && steps > 100, "%d failed, %d steps", failed, steps);
    place_close(&p);
    served_stop(&s);
}

/* ---------------- many at once */
enum { MANY = 24 };

typedef struct walker {
    ares_env env;
    uint64_t seed;
    int wrong;
    pthread_t thread;
} walker;

static void *walk(void *x)
{
    walker *w = x;
    for (uint64_t i = 0; i < 20; i++) {
        ares_str text = { 0 };
        ares_env_turn t;
        char want[64];
        uint64_t seed = w->seed * 1000 + i + 20;
        if (ares_env_reset(&w->env, &(ares_env_start){ seed, 0 }) != ARES_OK) abort();
        ares_env_render(&w->env, &text);
        snprintf(want, sizeof want, "seed %d", (int)seed);
        w->wrong += !text.data || strcmp(text.data, want) != 0;
        ares_view words[] = { ARES_VIEW("up"), ARES_VIEW("win") };
        if (i % 5 == w->seed % 5) words[0] = ARES_VIEW("hang up");
        if (ares_env_act(&w->env, words, 2, 0, &t) != ARES_OK) abort();
        w->wrong += ares_env_won(&w->env) != (i % 5 != w->seed % 5);
        ares_str_fini(&text);
    }
    return NULL;
}

TEST(sessions_are_used_on_many_threads)
{
    NEEDS_SOCKETS();
    served s;
    place p;
    walker w[MANY];
    if (!start_trouble(&s)) return;
    REQUIRE_OK(open_server(&p, s.port, "", ""));
    for (int i = 0; i < MANY; i++) {
        w[i] = (walker){ .seed = (uint64_t)i };
        REQUIRE_OK(ares_env_init(&w[i].env, &p.d));
    }
    for (int i = 0; i < MANY; i++) REQUIRE(!pthread_create(&w[i].thread, NULL, walk, &w[i]));
    for (int i = 0; i < MANY; i++) pthread_join(w[i].thread, NULL);
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(w[i].wrong, 0);
        ares_env_fini(&w[i].env);
    }
    place_close(&p);
    served_stop(&s);
}

/* ---------------- options */
TEST(wrong_options_of_a_server_are_named)
{
    NEEDS_SOCKETS();
    static const struct {
        const char *options, *message;
    } cases[] = {
        { "{}", "env.definitions.Mine.options.url" },
        { "{url: 'wss://a/ws'}", "only ws:// and http:// are spoken" },
        { "{url: 'ftp://a/ws'}", "only ws:// and http:// are spoken" },
        { "{url: 'ws://:80'}", "expected ws://host:port/path" },
        { "{url: 'ws://me@a'}", "expected ws://host:port/path" },
        { "{url: 'ws://a/b?c'}", "expected ws://host:port/path" },
        { "{url: 'ws://a:0'}", "its port is no number" },
        { "{url: 'a:b'}", "my.yaml:6: env.definitions.Mine.options.url = 'a:b': its port is no" },
        { "{url: a, reset: {seed: 3}}", "the seed is the episode's" },
        { "{url: a, action_field: move, action: {move: 1}}", "'move' is what the model says" },
        { "{url: a, observation: '{{ x'}", "env.definitions.Mine.options.observation" },
        { "{url: a, timeout_s: 0}", "timeout_s" },
        { "{url: a, reward: first}", "reward" },
        { "{url: a, obsrvation: b}", "did you mean" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        place p;
        char yaml[512];
        snprintf(
            yaml, sizeof yaml,
            "env:\n  definitions:\n    Mine:\n      type: openenv\n      options:\n        %s\n",
            cases[i].options);
        CHECK_FAIL(place_define(&p, yaml, "Mine", ""), ARES_ECONFIG, cases[i].message);
        place_close(&p);
    }
}

TEST(addresses_are_read_as_the_package_reads_them)
{
    static const struct {
        const char *url, *host, *base;
        int port;
    } cases[] = {
        { "ws://127.0.0.1:8000/ws", "127.0.0.1", "", 8000 },
        { "http://localhost:8000", "localhost", "", 8000 },
        { "localhost:8000/", "localhost", "", 8000 },
        { "ws://host/lake/", "host", "/lake", 80 },
        { "ws://host/lake/ws", "host", "/lake", 80 },
        { "host/news", "host", "/news", 80 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        openenv_address a;
        REQUIRE(CHECK_STR(openenv_read_url(cases[i].url, &a), NULL));
        CHECK_STR(a.host, cases[i].host);
        CHECK_STR(a.base, cases[i].base);
        CHECK_EQ(a.port, cases[i].port);
    }
}

/* Schemas as pydantic writes them. */
TEST(a_schema_says_where_an_answer_goes)
{
    static const struct {
        const char *schema, *field, *text, *action, *names;
    } cases[] = {
        { "{'required':['m'],'properties':{'m':{'enum':['a','b'],'type':'string'}}}", NULL, "a",
          "{\"x\":1,\"m\":\"a\"}", "a b " },
        { "{'required':['m'],'properties':{'m':{'$ref':'#/$defs/M'}},'$defs':{'M':{'enum':[0,1],"
          "'type':'integer'}}}",
          NULL, "1", "{\"x\":1,\"m\":1}", "0 1 " },
        { "{'required':['m'],'properties':{'m':{'allOf':[{'$ref':'#/$defs/M'}]}},'$defs':{'M':{"
          "'type':'integer'}}}",
          NULL, "1.5", NULL, "" },
        { "{'properties':{'metadata':{},'m':{'type':'number'}}}", NULL, "3", "{\"x\":1,\"m\":3}",
          "" },
        { "{'properties':{'m':{'type':'boolean'},'n':{}}}", "m", "true", "{\"x\":1,\"m\":true}",
          "" },
        { "{'required':['x','m'],'properties':{'x':{},'m':{'type':'object'}}}", NULL, "{\"a\": 2}",
          "{\"x\":1,\"m\":{\"a\":2}}", "" },
        { "{'required':['m'],'properties':{'m':{'type':'array'}}}", NULL, "1", NULL, "" },
        { "{'anyOf':[]}", "m", "\"", "{\"x\":1,\"m\":\"\\\"\"}", "" },
        { "{'anyOf':[]}", "*", "{\"a\":\"b\"}", "{\"x\":1,\"a\":\"b\"}", "" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_arena arena = { 0 };
        openenv_form f;
        const ares_json *schema, *constants;
        ares_str text = { 0 }, names = { 0 }, action = { 0 };
        ares_str_add_z(&text, cases[i].schema);
        for (size_t k = 0; k < text.len; k++)
            if (text.data[k] == '\'') text.data[k] = '"';
        REQUIRE_OK(ares_json_parse(&arena, ares_str_view(&text), "schema", &schema));
        REQUIRE_OK(ares_json_parse(&arena, ARES_VIEW("{\"x\":1}"), "constants", &constants));
        REQUIRE_OK(openenv_form_read(&f, schema, cases[i].field, constants));
        bool good = openenv_form_write(&f, constants, ares_view_of(cases[i].text), &action);
        CHECK_STR(good ? action.data : NULL, cases[i].action);
        for (int k = 0; k < f.n_names; k++) ares_str_addf(&names, "%s ", f.names[k]);
        CHECK_STR(names.data ? names.data : "", cases[i].names);
        openenv_form_fini(&f);
        ares_str_fini(&text);
        ares_str_fini(&names);
        ares_str_fini(&action);
        ares_arena_fini(&arena);
    }
}
