/* A sweep's labels, templates, runs and their words, and the names of cards. */

#include <stdio.h>
#include <unistd.h>

#include "sweep/sweep.h"
#include "test.h"

static void check_label(const char *value, const char *dot, const char *want)
{
    ares_str out = { 0 };
    sweep_label(value, dot, &out);
    CHECK_STR(out.data, want);
    ares_str_fini(&out);
}

TEST(a_label_leaves_dots_out_and_what_a_file_name_should_not_have)
{
    check_label("0.001", "", "0001");
    check_label("0.98", "p", "0p98");
    check_label("1e-3", "", "1e-3");
    check_label("NoFilter", "", "nofilter");
    check_label("a/b c", "", "a_b_c");
}

TEST(values_are_the_same_as_numbers_or_as_words)
{
    CHECK(sweep_same_value("0", "0.0") && sweep_same_value("0e0", "0"));
    CHECK(sweep_same_value("nofilter", "NoFilter"));
    CHECK(!sweep_same_value("0", "0.001") && !sweep_same_value("0", "nofilter"));
}

TEST(a_template_knows_its_variables_and_leaves_other_braces_alone)
{
    ares_arena arena = { 0 };
    sweep_variables v;
    const char *out = NULL;
    sweep_variables_init(&v, &arena);
    sweep_set(&v, "model", "/models/Qwen2.5-3B/");
    sweep_set(&v, "a.b", "0.9");
    sweep_set(&v, "a.b", "0.1");
    REQUIRE_OK(sweep_expand(&v, "t", "{a.b}-{a.b|label}-{a.b|label_p}-{model|base}", &out));
    CHECK_STR(out, "0.1-01-0p1-Qwen2.5-3B");
    REQUIRE_OK(sweep_expand(&v, "t", "rewards=[{name: x}, {}, {", &out));
    CHECK_STR(out, "rewards=[{name: x}, {}, {");
    CHECK_FAIL(sweep_expand(&v, "t", "{a.c}", &out), ARES_ECONFIG, "t: {a.c}: no such variable");
    CHECK_FAIL(sweep_expand(&v, "t", "{a.b|up}", &out), ARES_ECONFIG, "no such form");
    sweep_variables_fini(&v);
    ares_arena_fini(&arena);
}

TEST(cards_have_short_names)
{
    static const char *const names[][2] = {
        { "NVIDIA H100 80GB HBM3", "H100" },
        { "Tesla V100-SXM2-16GB", "V100" },
        { "NVIDIA GeForce RTX 4090", "4090" },
        { "NVIDIA A100-SXM4-80GB", "A100" },
        { "Tesla T4", "T4" },
        { "NVIDIA RTX A6000", "A600" },
        { "NVIDIA L4", "L4" },
    };
    for (int i = 0; i < ARES_COUNT(names); i++) {
        ares_str out = { 0 };
        sweep_short_card_name(names[i][0], &out);
        CHECK_STR(out.data, names[i][1]);
        ares_str_fini(&out);
    }
    ares_arena arena = { 0 };
    CHECK_STR(sweep_card_label(&arena, NULL, 2), "2xCPU");
    if (!ares_dir_exists("/proc/driver/nvidia/gpus")) {
        CHECK_STR(sweep_card_label(&arena, "3", 1), "1xGPU3");
        CHECK_STR(sweep_card_label(&arena, "0,1", 2), "2xmixed"); /* no two have one name */
    }
    ares_arena_fini(&arena);
}

TEST(a_card_that_is_not_there_is_refused)
{
    static const char *const items[] = { "1", "GPU-5a", "3" };
    const ares_texts cards = { items, 3 };
    CHECK_FAIL(sweep_check_cards(&cards, 3), ARES_EUSE, "card 3: this machine has 3");
    CHECK_OK(sweep_check_cards(&cards, 4));
    CHECK_OK(sweep_check_cards(&cards, 0));
}

/* Reads a sweep from words alone, or fails. */
static int read_sweep(sweep *s, const char *seeds, const char *order, int n,
                      const char *const *words)
{
    *s = (sweep){ 0 };
    return sweep_read(
        s, &(sweep_words){ .name = "x", .seeds = seeds, .order = order, .n = n, .words = words });
}

static void names(const sweep *s, ares_str *out)
{
    ares_str_clear(out);
    for (int i = 0; i < s->n; i++) ares_str_addf(out, "%s ", s->runs[i].name);
}

TEST(seeds_are_paired_and_the_order_is_that_asked_for)
{
    static const char *const words[] = { "--config", "c.yaml", "--over",
                                         "worker.actor.optim.lr=1e-6, 0.5,", "a.b=1" };
    sweep s;
    ares_str out = { 0 };
    REQUIRE_OK(read_sweep(&s, "3,1", NULL, 5, words));
    names(&s, &out);
    CHECK_STR(out.data, "lr_1e-6-seed_3 lr_05-seed_3 lr_1e-6-seed_1 lr_05-seed_1 ");
    CHECK_STR(s.runs[1].fields, "worker.actor.optim.lr=0.5 | seed=3");
    CHECK_STR(s.runs[1].run_dir, "runs/x/lr_05-seed_3");
    ares_str_clear(&out);
    for (int i = 0; i < s.runs[1].n_words; i++) ares_str_addf(&out, "%s ", s.runs[1].words[i]);
    CHECK_STR(out.data, "--config c.yaml a.b=1 worker.actor.optim.lr=0.5 data.seed=3 "
                        "worker.rollout.seed=3 env.train.seed=310000 "
                        "trainer.experiment_name=lr_05-seed_3 "
                        "trainer.run_dir=runs/x/lr_05-seed_3 ");
    sweep_fini(&s);
    REQUIRE_OK(read_sweep(&s, "3,1", "values", 5, words));
    names(&s, &out);
    CHECK_STR(out.data, "lr_1e-6-seed_3 lr_1e-6-seed_1 lr_05-seed_3 lr_05-seed_1 ");
    sweep_fini(&s);
    ares_str_fini(&out);
}

TEST(two_parameters_give_all_combinations_and_keep_lists_whole)
{
    static const char *const words[] = { "--over=a.lr=1,2", "--over", "b.lr=[x,y],[z]" };
    sweep s;
    ares_str out = { 0 };
    REQUIRE_OK(read_sweep(&s, NULL, NULL, 3, words));
    names(&s, &out);
    CHECK_STR(out.data, "a.lr_1-b.lr__x_y_ a.lr_1-b.lr__z_ a.lr_2-b.lr__x_y_ a.lr_2-b.lr__z_ ");
    CHECK_STR(s.runs[2].fields, "a.lr=2 | b.lr=[x,y]");
    sweep_fini(&s);
    ares_str_fini(&out);
}

TEST(what_makes_no_sweep_is_refused)
{
    static const struct {
        const char *words[2], *seeds, *why;
        int code;
    } cases[] = {
        { { "a.b=1" }, NULL, "nothing is swept", ARES_EUSE },
        { { "--over=lr" }, NULL, "write a name, '='", ARES_EUSE },
        { { "--over=lr=" }, NULL, "lr: no values", ARES_ECONFIG },
        { { "--over=lr=0.1,01" }, NULL, "would be that of two runs", ARES_ECONFIG },
        { { "trainer.run_dir=x", "--over=lr=1" }, NULL, "each run has its own", ARES_EUSE },
        { { "--over=lr=1,2" }, "1,x", "must be an integer", ARES_ECONFIG },
        { { "--let=model=x", "--over=lr=1" }, NULL, "the sweep has no variables", ARES_EUSE },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        sweep s;
        int n = cases[i].words[1] ? 2 : 1;
        CHECK_FAIL(read_sweep(&s, cases[i].seeds, NULL, n, cases[i].words), cases[i].code,
                   cases[i].why);
        sweep_fini(&s);
    }
}

/* The file says what goes with a value, and the command line wins. */
TEST(a_file_has_parameters_with_cases_and_variables)
{
    static const char text[] = "name: s_{size}\nlet: {size: big}\nset: ['x={on}', 'y={size}']\n"
                               "dir: out/{name}\nrun: 'r_{p|label}'\nresult: 'p={p} | on={on}'\n"
                               "over:\n- {name: p, option: q, values: [0, 0.5, none], let: {on: "
                               "'True'}, cases: [{when: 0, on: 'False'}]}\n";
    static const char *const words[] = { "--over", "p=0.0,none", "--let", "size=small" };
    ares_str out = { 0 };
    sweep s = { 0 };
    REQUIRE_OK(ares_file_write(test_file("s.yaml"), text, sizeof text - 1));
    REQUIRE_OK(
        sweep_read(&s, &(sweep_words){ .file = test_file("s.yaml"), .n = 4, .words = words }));
    CHECK_STR(s.dir, "out/s_small");
    CHECK_EQ(s.n, 2);
    CHECK_STR(s.runs[0].fields, "p=0.0 | on=False");
    CHECK_STR(s.runs[1].fields, "p=none | on=True");
    CHECK_STR(s.runs[0].result, "out/s_small/logs/r_00.result");
    for (int i = 0; i < 3; i++) ares_str_addf(&out, "%s ", s.runs[0].words[i]);
    CHECK_STR(out.data, "x=False y=small q=0.0 ");
    sweep_fini(&s);
    s = (sweep){ 0 };
    static const char *const misspelt[] = { "--let=sise=small" };
    CHECK_FAIL(
        sweep_read(&s, &(sweep_words){ .file = test_file("s.yaml"), .n = 1, .words = misspelt }),
        ARES_EUSE, "--let = 'sise': unknown; did you mean 'size'?");
    sweep_fini(&s);
    s = (sweep){ 0 };
    CHECK_OK(ares_file_write(test_file("s.yaml"), "over: [{name: p, vaules: [1]}]\n", 31));
    CHECK_FAIL(sweep_read(&s, &(sweep_words){ .file = test_file("s.yaml") }), ARES_ECONFIG,
               "did you mean");
    sweep_fini(&s);
    ares_str_fini(&out);
}

/* ---------------- sweep.json */
/* What a command with these words writes, once the directories of its runs are there. */
static void list_in(const char *dir, const char *seeds, int n, const char *const *words,
                    ares_str *json)
{
    sweep s = { 0 };
    ares_str_clear(json);
    REQUIRE_OK(sweep_read(
        &s, &(sweep_words){ .name = "x", .dir = dir, .seeds = seeds, .n = n, .words = words }));
    for (int i = 0; i < s.n; i++) CHECK_OK(ares_dir_make(s.runs[i].run_dir));
    CHECK_OK(sweep_read_manifest(&s));
    for (int i = 0; i < s.n; i++) s.runs[i].wall_s += 1;
    CHECK_OK(sweep_write_manifest(&s));
    CHECK_OK(ares_file_read(sweep_manifest(&s), json));
    sweep_fini(&s);
}

static void list(const char *seeds, int n, const char *const *words, ares_str *json)
{
    list_in(test_file("x"), seeds, n, words, json);
}

static void check_order(const ares_str *json, int n, const char *const *parts)
{
    const char *at = json->data;
    for (int i = 0; i < n; i++) {
        const char *next = strstr(at, parts[i]);
        CHECK_MSG(next != NULL, "no '%s' after the %d before it in\n%s", parts[i], i, json->data);
        if (next) at = next + strlen(parts[i]);
    }
}

TEST(the_list_of_a_sweep_keeps_the_runs_of_earlier_commands)
{
    static const char *const first[] = { "--over=a.lr=1,2" }, *const second[] = { "--over=a.lr=3" },
                             *const third[] = { "--over=a.lr=2,1", "--over=b.n=7" };
    ares_str json = { 0 };
    list("1", 1, first, &json);
    list("2", 1, second, &json);
    /* a single value is no curve's name by itself, but it is beside others */
    check_order(&json, 8,
                (const char *[]){ "\"a.lr\"", "lr_1-seed_1", "\"variant\": \"1\"", "lr_2-seed_1",
                                  "\"variant\": \"2\"", "lr_3-seed_2", "\"variant\": \"3\"",
                                  "\"seed\": 2" });
    /* the first command again: its times add up, its places stay */
    list("1", 1, first, &json);
    check_order(&json, 7,
                (const char *[]){ "lr_1-seed_1", "\"wall_s\": 2", "lr_2-seed_1", "\"wall_s\": 2",
                                  "lr_3-seed_2", "\"variant\": \"3\"", "\"wall_s\": 1" });
    /* a second parameter, and a run whose directory is gone */
    CHECK_EQ(test_shell(NULL, "rmdir '%s'", test_file("x/lr_3-seed_2")), 0);
    list("1", 2, third, &json);
    CHECK(!strstr(json.data, "lr_3-seed_2"));
    check_order(&json, 4,
                (const char *[]){ "\"variant\": \"lr = 1\"", "\"variant\": \"lr = 2\"",
                                  "\"variant\": \"lr = 2, n = 7\"",
                                  "\"variant\": \"lr = 1, n = 7\"" });
    ares_str_fini(&json);
}

/* Each names the folder of the sweep from its own one. */
TEST(the_list_of_a_sweep_has_the_runs_of_commands_from_another_folder)
{
    static const char *const first[] = { "--over=a.lr=1,2" }, *const second[] = { "--over=a.lr=3" };
    char here[4096], expected[4200];
    ares_str json = { 0 };
    REQUIRE(getcwd(here, sizeof here));
    REQUIRE_OK(ares_dir_make(test_file("other")));
    REQUIRE(chdir(test_dir()) == 0);
    list_in("x", "1", 1, first, &json);
    CHECK(chdir("other") == 0);
    list_in("../x", "1", 1, second, &json);
    CHECK(chdir(here) == 0);
    snprintf(expected, sizeof expected, "\"run_dir\": \"%s/x/lr_1-seed_1\"", test_dir());
    CHECK_CONTAINS(json.data, expected);
    CHECK_CONTAINS(json.data, "/x/lr_2-seed_1\"");
    CHECK_CONTAINS(json.data, "\"run_dir\": \"../x/lr_3-seed_1\"");
    ares_str_fini(&json);
}
