/* A sweep's labels, templates, runs and their words, and the names of cards. */

#include <stdio.h>
#include <unistd.h>

#include "sweep.h"
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

/* The names, fields and first words of the runs that a file makes, one after another. */
static int runs_of(const char *yaml, int n, const char *const *words, const char *seeds,
                   ares_str *out)
{
    sweep s = { 0 };
    ares_str_clear(out);
    CHECK_OK(ares_file_write(test_file("s.yaml"), yaml, strlen(yaml)));
    const sweep_words w = { .file = test_file("s.yaml"), .seeds = seeds, .n = n, .words = words };
    int rc = sweep_read(&s, &w);
    for (int i = 0; i < s.n && rc == ARES_OK; i++) {
        const sweep_run *r = &s.runs[i];
        ares_str_addf(out, "%s; %s; %s; %s:", r->name, r->fields, r->log, r->result);
        for (int k = 0; k + 2 < r->n_words; k++) ares_str_addf(out, " %s", r->words[k]);
        ares_str_add_char(out, '\n');
    }
    sweep_fini(&s);
    return rc;
}

TEST(runs_are_named_by_templates_with_and_without_seeds_and_parameters)
{
    static const struct {
        const char *yaml, *words[3], *seeds, *runs;
    } cases[] = {
        { "{}",
          { NULL },
          "4",
          "seed_4; seed=4; runs/sweep/logs/seed_4.log; "
          "runs/sweep/logs/seed_4.result: data.seed=4 worker.rollout.seed=4 "
          "env.train.seed=410000\n" },
        /* the seed follows a template that does not have it, in the name and in the fields */
        { "{run: r, result: x=1, seed_options: [a.b], log: '{run}.txt'}",
          { NULL },
          "4",
          "r-seed_4; x=1 | seed=4; r-seed_4.txt; r-seed_4.txt.result: a.b=4\n" },
        { "{run: '{seed}r', result: '{seed|label}', seed_options: ['c={seed}'], log: .log}",
          { NULL },
          "4",
          "4r; 4; .log; .log.result: c=4\n" },
        { "{run: 'r{p}', result: 'y={p}', log: '{run}.log'}",
          { "--over=p=1,2" },
          NULL,
          "r1; y=1; r1.log; r1.result: p=1\nr2; y=2; r2.log; r2.result: p=2\n" },
        /* a parameter of the file need not be an option; the sets of both go in between */
        { "{over: [{name: p, values: [1]}], config: [a.yaml, b.yaml], set: [q=3], log: l}",
          { "r=4", "--over=t=5" },
          NULL,
          "p_1-t_5; p=1 | t=5; l; l.result: --config a.yaml --config b.yaml q=3 r=4 t=5\n" },
        /* commas within brackets and quotes divide nothing; spaces and empty words go */
        { "{log: '{run}'}",
          { "--over", "p= 'a,]b' ,\"c,'d\",{k: 1, l: 2},,", "--overs.x=1" },
          NULL,
          "p__a__b_; p='a,]b'; p__a__b_; p__a__b_.result: --overs.x=1 p='a,]b'\n"
          "p__c__d_; p=\"c,'d\"; p__c__d_; p__c__d_.result: --overs.x=1 p=\"c,'d\"\n"
          "p__k__1__l__2_; p={k: 1, l: 2}; p__k__1__l__2_; p__k__1__l__2_.result: --overs.x=1 "
          "p={k: "
          "1, l: 2}\n" },
    };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        int n = 0;
        while (n < 3 && cases[i].words[n]) n++;
        CHECK_OK(runs_of(cases[i].yaml, n, cases[i].words, cases[i].seeds, &out));
        CHECK_STR(out.data, cases[i].runs);
    }
    ares_str_fini(&out);
}

TEST(variables_of_a_value_have_every_type_and_the_later_word_wins)
{
    static const char yaml[] =
        "let: {a: True, b: ~, c: 1.50, d: '{a}-{b}', e: ''}\n"
        "result: '{a} {b} {c} {d} {e} {f}'\nrun: '{p}{s}'\nlog: '{run}'\n"
        "over:\n"
        "- {name: p, values: [1, 2.0, none, other], let: {f: plain, s: ''}, cases: [{when: true, "
        "f: t}, {when: 2, f: two, s: _}, {when: NONE, f: false}, {when: none, f: late}]}\n";
    static const char *const words[] = { "--let", "c=9", "--let=e=x=y" };
    ares_str out = { 0 };
    CHECK_OK(runs_of(yaml, 0, NULL, NULL, &out));
    CHECK_STR(out.data, "1; true null 1.50 true-null  plain; 1; 1.result:\n"
                        "2.0_; true null 1.50 true-null  two; 2.0_; 2.0_.result:\n"
                        "none; true null 1.50 true-null  false; none; none.result:\n"
                        "other; true null 1.50 true-null  plain; other; other.result:\n");
    CHECK_OK(runs_of(yaml, 3, words, NULL, &out));
    CHECK_CONTAINS(out.data, "1; true null 9 true-null x=y plain; ");
    ares_str_fini(&out);
}

TEST(what_a_file_or_words_cannot_mean_is_refused)
{
    static const struct {
        const char *yaml, *words[2], *why;
    } cases[] = {
        { "{}", { "--over" }, "--over = '': write a name, '=' and what it gets" },
        { "{}", { "--over==1" }, "--over = '=1': write a name" },
        { "{let: {a: 1}}", { "--let=a" }, "--let = 'a': write a name" },
        { "{let: {a: [1]}}", { "--over=p=1" }, "let: a: must be a text or a number" },
        { "{let: {a: {b: 1}}}", { "--over=p=1" }, "let: a: must be a text or a number" },
        { "{}", { "--over=p=1", "+trainer.experiment_name=x" }, "each run has its own" },
        { "{}", { "--over=p=1", "~trainer.run_dir" }, "each run has its own" },
        { "{}", { "--over=p=1", "--trainer.run_dir=x" }, "each run has its own" },
        { "{set: ['trainer.run_dir=x']}", { "--over=p=1" }, "each run has its own" },
        { "{over: [{name: p, values: [1], cases: [{x: 1}]}]}",
          { NULL },
          "p: cases.0: needs `when`, a value" },
        { "{over: [{name: p, values: [1], let: {y: 1}, cases: [{when: 1, y: 2}, {when: 2, x: 1}]}]"
          "}",
          { NULL },
          "p: cases.1: `let` has no x" },
        { "{over: [{name: p, values: []}]}", { NULL }, "p: no values" },
        { "{name: 's{p}', run: r}", { "--over=p=1,2" }, "('runs/s1' and 'runs/s2')" },
        { "{dir: 'd{p}'}", { "--over=p=1,2" }, "name, dir and summary are those of all runs" },
        { "{name: 's{p}', dir: d, run: '{p}'}", { "--over=p=1,2" }, "name, dir and summary are" },
        { "{dir: 'd{p}', summary: s}", { "--over=p=1,2" }, "name, dir and summary are" },
        { "{summary: '{p}'}", { "--over=p=1,2" }, "name, dir and summary are those of all runs" },
        { "{run: r}",
          { "--over=p=1,2" },
          "'runs/sweep/r' would be that of two runs (p=1, and p=2)" },
        { "{log: l}", { "--over=p=1,2" }, "'l' would be that of two runs (p=1, and p=2)" },
        { "{run: '{q}'}",
          { "--over=p=1" },
          "{q}: no such variable (choices: p, name, dir, summary)" },
        { "{run: '{p|up}'}", { "--over=p=1" }, "{p|up}: no such form" },
        { "{config: ['{x}']}", { "--over=p=1" }, "config: {x}: no such variable" },
        { "{set: ['a={x}']}", { "--over=p=1" }, "set: {x}: no such variable" },
    };
    ares_str out = { 0 }, many = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        int n = 0;
        while (n < 2 && cases[i].words[n]) n++;
        int rc = runs_of(cases[i].yaml, n, cases[i].words, NULL, &out);
        CHECK_MSG(rc != ARES_OK, "%s is taken", cases[i].yaml);
        CHECK_CONTAINS(ares_error_message(), cases[i].why);
    }
    /* sixteen parameters and ten thousand runs, and one more */
    for (int more = 0; more < 2; more++) {
        char text[20][16];
        const char *words[20];
        for (int i = 0; i < 16 + more; i++) {
            snprintf(text[i], sizeof text[i], "--over=p%c=%d", 'a' + i, i);
            words[i] = text[i];
        }
        int rc = runs_of("{log: '{run}'}", 16 + more, words, NULL, &out);
        if (!more) CHECK_OK(rc);
        else CHECK_FAIL(rc, ARES_EUSE, "--over: more than 16 parameters");
        ares_str_clear(&many);
        ares_str_add_z(&many, "{over: [");
        for (int i = 0; i < 16 + more; i++) ares_str_addf(&many, "{name: p%d, values: [1]},", i);
        ares_str_add_z(&many, "]}");
        rc = runs_of(many.data, 0, NULL, NULL, &out);
        if (!more) CHECK_OK(rc);
        else CHECK_FAIL(rc, ARES_ECONFIG, "over: 17 parameters, more than 16");
    }
    ares_str_clear(&many);
    ares_str_add_z(&many, "--over=p=");
    for (int i = 0; i < 5001; i++) ares_str_addf(&many, "%d,", i);
    CHECK_FAIL(runs_of("{}", 1, (const char *[]){ many.data }, "1,2", &out), ARES_ECONFIG,
               "10002 runs or more; at most 10000");
    ares_str_fini(&out);
    ares_str_fini(&many);
}

TEST(labels_and_templates_have_edges)
{
    ares_arena arena = { 0 };
    sweep_variables v;
    const char *out = NULL;
    char name[8];
    check_label("A_b+c-D", "p", "a_b+c-d");
    check_label("\xc3\xa9=1.2.3", "p", "___1p2p3");
    CHECK(!sweep_same_value("1", "x") && !sweep_same_value("x", "1") && sweep_same_value("x", "X"));
    sweep_variables_init(&v, &arena);
    CHECK_FAIL(sweep_expand(&v, "t", "{a}", &out), ARES_ECONFIG, "(choices: none)");
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "v%d", i);
        sweep_set(&v, ares_arena_copy(&arena, name, strlen(name)),
                  i == 1   ? "///"
                  : i == 2 ? "x"
                  : i == 3 ? "/x//"
                           : name + 1);
    }
    REQUIRE_OK(sweep_expand(&v, "t", "<{v1|base}{v2|base}{v3|base}>{|base}{v2|}{v2", &out));
    CHECK_STR(out, "<xx>{|base}x{v2");
    sweep_variables_fini(&v);
    ares_arena_fini(&arena);
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

/* What earlier commands wrote, in every state in which it may be found. */
TEST(the_list_of_a_sweep_reads_what_is_there)
{
    static const char earlier[] =
        "{\"sweep\":\"x\",\"runs\":["
        "{\"run\":\"gone\",\"run_dir\":\"%s/none\"},{\"run\":\"nowhere\"},{\"run_dir\":\"%s\"},"
        "{\"run\":\"bare\",\"run_dir\":\"%s\"},"
        "{\"run\":\"full\",\"run_dir\":\"%s\",\"log\":\"l\",\"state\":\"failed\",\"seed\":7,"
        "\"wall_s\":2.5,\"gpu\":\"1xH100\",\"values\":{\"a.lr\":\"9\",\"z\":3,\"b.n\":\"4\"}},"
        "{\"run\":\"lr_2\",\"run_dir\":\"elsewhere\",\"wall_s\":10,\"gpu\":\"cpu\",\"seed\":5,"
        "\"values\":{\"a.lr\":\"8\"},\"state\":\"stopped\"},"
        "{\"run\":\"lr_2\",\"run_dir\":\"%s\",\"wall_s\":30},"
        "{\"run\":\"lr_1\",\"run_dir\":\"%s\",\"wall_s\":\"long\"}]}";
    static const char *const words[] = { "--over=a.lr=1,2" };
    static const char *const damaged[] = { "{\"runs\":[", "{\"runs\":{}}", "{}", "" };
    ares_str json = { 0 }, text = { 0 };
    char d[200], path[220];
    snprintf(d, sizeof d, "%s", test_file("x"));
    snprintf(path, sizeof path, "%s/sweep.json", d);
    REQUIRE_OK(ares_dir_make(d));
    ares_str_addf(&text, earlier, d, d, d, d, d, d);
    CHECK_OK(ares_file_write(path, text.data, text.len));
    list(NULL, 1, words, &json);
    CHECK(!strstr(json.data, "gone") && !strstr(json.data, "nowhere"));
    CHECK(!strstr(json.data, "\"run\": null"));
    /* a run of this command keeps its place and what it has cost, but its words are today's */
    check_order(&json, 26,
                (const char *[]){ "\"a.lr\"",
                                  "\"b.n\"",
                                  "\"run\": \"bare\"",
                                  "\"variant\": \"x\"",
                                  "\"values\": {}",
                                  "\"seed\": null",
                                  "\"log\": null",
                                  "\"state\": \"waiting\"",
                                  "\"wall_s\": 0",
                                  "\"gpu\": null",
                                  "\"run\": \"full\"",
                                  "\"variant\": \"lr = 9, n = 4\"",
                                  "\"a.lr\": \"9\"",
                                  "\"b.n\": \"4\"",
                                  "\"seed\": 7",
                                  "\"log\": \"l\"",
                                  "\"state\": \"failed\"",
                                  "\"wall_s\": 2.5",
                                  "\"gpu\": \"1xH100\"",
                                  "\"run\": \"lr_2\"",
                                  "\"variant\": \"lr = 2\"",
                                  "\"seed\": null",
                                  "\"state\": \"waiting\"",
                                  "\"wall_s\": 11",
                                  "\"run\": \"lr_1\"",
                                  "\"wall_s\": 1," });
    CHECK(!strstr(json.data, "elsewhere") && !strstr(strstr(json.data, "lr_1"), "lr_2"));
    for (int i = 0; i < ARES_COUNT(damaged); i++) {
        CHECK_OK(ares_file_write(path, damaged[i], strlen(damaged[i])));
        list(NULL, 1, words, &json);
        check_order(&json, 5,
                    (const char *[]){ "\"parameters\": [", "\"a.lr\"", "\"run\": \"lr_1\"",
                                      "\"wall_s\": 1,", "\"run\": \"lr_2\"" });
    }
    ares_str_fini(&json);
    ares_str_fini(&text);
}

/* ---------------- results */
static void check_file(const char *path, const char *expected)
{
    ares_str text = { 0 };
    CHECK_OK(ares_file_read(path, &text));
    CHECK_STR(text.data ? text.data : "", expected);
    ares_str_fini(&text);
}

TEST(a_result_has_the_times_and_the_end_of_its_run)
{
    static const char *const words[] = { "--over=a=1,2,3" };
    static const char rows[] = "{\"step\":0,\"timing_s/validation\":0.25}\n"
                               "{\"step\":1,\"timing_s/step\":1.5}\n"
                               "{\"step\":2,\"timing_s/step\":2,\"timing_s/validation\":0.5}\n";
    static const char *const lines[] = {
        "a=1 | train_time=3.50s | eval_time=0.75s | total_time=4.25s | wall_time=12s | gpu=1xH100 "
        "| status=success | stopped=collapse\n",
        "a=2 | train_time=N/As | eval_time=N/As | total_time=N/As | wall_time=0s | gpu=- | "
        "status=fail\n",
        "a=3 | train_time=2.00s | eval_time=N/As | total_time=2.00s | wall_time=1s | gpu=- | "
        "status=fail\n",
    };
    sweep s = { 0 };
    ares_str all = { 0 };
    REQUIRE_OK(sweep_read(
        &s, &(sweep_words){ .name = "x", .dir = test_file("x"), .n = 1, .words = words }));
    for (int i = 0; i < 3; i += 2) {
        char path[300];
        REQUIRE_OK(ares_dir_make(s.runs[i].run_dir));
        snprintf(path, sizeof path, "%s/metrics.jsonl", s.runs[i].run_dir);
        REQUIRE_OK(ares_file_write(path, i ? "{\"step\":1,\"timing_s/step\":2}\n" : rows,
                                   i ? 29 : sizeof rows - 1));
        snprintf(path, sizeof path, "%s/DONE", s.runs[i].run_dir);
        REQUIRE_OK(ares_file_write(path, "{\"stopped\":\"collapse\"}", 22));
    }
    s.runs[0].state = SWEEP_DONE;
    s.runs[0].wall_s = 12.4;
    s.runs[0].gpu = "1xH100";
    s.runs[1].state = SWEEP_FAILED;
    s.runs[1].why = "config: no";
    s.runs[2].state = SWEEP_FAILED;
    s.runs[2].wall_s = 0.6;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(sweep_record(&s, &s.runs[i]));
        check_file(s.runs[i].result, lines[i]);
    }
    ares_str_addf(&all, "%s%s  error: config: no\n%s", lines[0], lines[1], lines[2]);
    check_file(s.summary, all.data);
    ares_str_fini(&all);
    sweep_fini(&s);
}

/* Only the result of a run that is done is repaired; a whole one stays as it is. */
TEST(results_that_are_not_whole_are_written_again_once)
{
    static const char *const words[] = { "--over=a=1,2" };
    static const char anew[] = "a=1 | train_time=N/As | eval_time=N/As | total_time=N/As | "
                               "wall_time=0s | gpu=- | status=success\n";
    static const struct {
        const char *result, *summary; /* before; NULL: no file */
        const char *after, *summed;   /* NULL: as a new one */
    } cases[] = {
        { NULL, NULL, NULL, NULL },
        { "", "", NULL, NULL },
        { "a=1 | wall_time=7s | status=success", NULL, NULL, NULL },
        { "a=10 | x\n", NULL, NULL, NULL },
        { "a=2 | status=success\n", NULL, NULL, NULL },
        { "a=1 | status=fail\n", NULL, NULL, NULL },
        { "a=1 | x\na=1 | status=success\n", NULL, NULL, NULL },
        { "a=1 | wall_time=7s | status=success\n", NULL, "a=1 | wall_time=7s | status=success\n",
          "a=1 | wall_time=7s | status=success\n" },
        { "a=1 | y | status=success | stopped=z\n",
          "a=2 | q\na=1 | y | status=success | stopped=z\n",
          "a=1 | y | status=success | stopped=z\n",
          "a=2 | q\na=1 | y | status=success | stopped=z\n" },
        /* the end of a line that was being written goes */
        { "a=1 | y | status=success\n", "a=2 | q\na=1 | y | sta", "a=1 | y | status=success\n",
          "a=2 | q\na=1 | y | status=success\n" },
        { "a=1 | y | status=success\n", "a=1 | y", "a=1 | y | status=success\n",
          "a=1 | y | status=success\n" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        sweep s = { 0 };
        CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("x")), 0);
        REQUIRE_OK(sweep_read(
            &s, &(sweep_words){ .name = "x", .dir = test_file("x"), .n = 1, .words = words }));
        s.runs[0].state = SWEEP_DONE;
        s.runs[1].state = SWEEP_STOPPED;
        REQUIRE_OK(sweep_make_folder_of(s.runs[0].result));
        if (cases[i].result)
            CHECK_OK(ares_file_write(s.runs[0].result, cases[i].result, strlen(cases[i].result)));
        if (cases[i].summary)
            CHECK_OK(ares_file_write(s.summary, cases[i].summary, strlen(cases[i].summary)));
        for (int again = 0; again < 2; again++) {
            CHECK_OK(sweep_repair(&s));
            check_file(s.runs[0].result, cases[i].after ? cases[i].after : anew);
            check_file(s.summary, cases[i].summed ? cases[i].summed : anew);
        }
        CHECK(!ares_file_exists(s.runs[1].result));
        sweep_fini(&s);
    }
}
