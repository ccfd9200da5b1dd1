/*
 * Layers, YAML, interpolation and words of other trainers. Types and faults are in
 * test_config_bind.c.
 */
#include "config_case.h"
#include "internal.h"

#include <math.h>
#include <stdio.h>

TEST(config_defaults_fill_the_struct)
{
    case_options o;
    ares_config *cfg = case_read(&o, NULL, MODEL);
    REQUIRE_OK(ares_config_finish(cfg));
    CHECK_STR(o.model, "m");
    CHECK_EQ(o.n, 1);
    CHECK_EQ(o.max_len, ARES_NULL_I64);
    CHECK(ares_is_null_f64(o.score));
    CHECK_NEAR(o.betas.items[1], 0.999, 0);
    CHECK_EQ(o.betas.count, 2);
    CHECK_EQ(o.stops.count, 0);
    CHECK_EQ(o.shuffle, true);
    CHECK(o.prompt == NULL);
    CHECK_STR(o.mode, "token-mean");
    CHECK_STR(o.dir, "runs/demo");
    CHECK_EQ(ares_json_get(o.kwargs, "depth")->integer, 1);
    CHECK_VIEW(ares_json_get(&o.rewards->items[0], "name")->text, "exact");
    CHECK_VIEW(o.lr->text, "1e-6");
    CHECK(!ares_config_is_set(cfg, "worker.rollout") &&
          ares_config_is_set(cfg, "worker.model_path"));
    ares_config_free(cfg);
}

TEST(config_later_layers_win_and_overrides_win_over_files)
{
    case_options o;
    ares_config *cfg = case_new(&o);
    const char *a = test_file("a.yaml"), *b = test_file("b.yaml");
    const char a_text[] =
        "worker: {model_path: a, stops: [1, 2]}\nenv:\n  kwargs: {size: 3, deep: {x: 1, y: 2}}\n";
    const char b_text[] = "worker:\n  model_path: b\n  stops: [3]\nenv.kwargs: {deep: {y: "
                          "5}}\ntrainer:\ndata: null\n";
    REQUIRE_OK(ares_file_write(a, a_text, sizeof a_text - 1));
    REQUIRE_OK(ares_file_write(b, b_text, sizeof b_text - 1));
    ares_str config = { 0 };
    ares_str_addf(&config, "config=%s", b);
    const char *argv[] = { "worker.rollout.n=4",
                           "--config",
                           a,
                           config.data,
                           "--worker.rollout.n",
                           "5",
                           "--data.shuffle",
                           "false",
                           "--worker.rollout.top-k=-1",
                           "--trainer.name=x" };
    ares_config_read_args(cfg, ARES_COUNT(argv), argv);
    ares_config_resolve(cfg);
    REQUIRE_OK(ares_config_finish(cfg));
    CHECK_STR(o.model, "b");
    CHECK_EQ(o.n, 5);
    CHECK_EQ(o.stops.count, 1);
    CHECK_EQ(o.stops.items[0], 3);
    CHECK_EQ(o.shuffle, false);
    CHECK_STR(o.dir, "runs/x");
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.size")->integer, 3);
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.depth")->integer, 1);
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.deep.x")->integer, 1);
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.deep.y")->integer, 5);
    ares_config_fault(cfg, "worker.model_path", "too small");
    CHECK_EQ(ares_config_finish(cfg), ARES_ECONFIG);
    CHECK_CONTAINS(ares_error_message(), "b.yaml:2: worker.model_path = 'b': too small");
    ares_str_fini(&config);
    ares_config_free(cfg);
}

TEST(config_scalars_follow_yaml_1_2_with_repairs)
{
    static const struct {
        const char *text;
        config_scalar type;
        double number;
    } cases[] = {
        { "1e-6", CONFIG_FLOAT, 1e-6 },
        { "010", CONFIG_INT, 10 },
        { "0o17", CONFIG_INT, 15 },
        { "0x1F", CONFIG_INT, 31 },
        { "-7", CONFIG_INT, -7 },
        { "+7", CONFIG_INT, 7 },
        { ".5", CONFIG_FLOAT, .5 },
        { "5.", CONFIG_FLOAT, 5 },
        { "1E3", CONFIG_FLOAT, 1000 },
        { ".inf", CONFIG_FLOAT, HUGE_VAL },
        { "-.inf", CONFIG_FLOAT, -HUGE_VAL },
        { "+.Inf", CONFIG_FLOAT, HUGE_VAL },
        { "true", CONFIG_BOOL, 0 },
        { "False", CONFIG_BOOL, 0 },
        { "None", CONFIG_NULL, 0 },
        { "~", CONFIG_NULL, 0 },
        { "", CONFIG_NULL, 0 },
        { "null", CONFIG_NULL, 0 },
        { "none", CONFIG_STRING, 0 },
        { "yes", CONFIG_STRING, 0 },
        { "Off", CONFIG_STRING, 0 },
        { "1_000", CONFIG_STRING, 0 },
        { "1:30", CONFIG_STRING, 0 },
        { "0b11", CONFIG_STRING, 0 },
        { "1e", CONFIG_STRING, 0 },
        { "e5", CONFIG_STRING, 0 },
        { ".", CONFIG_STRING, 0 },
        { "-", CONFIG_STRING, 0 },
        { "0x", CONFIG_STRING, 0 },
        { "inf", CONFIG_STRING, 0 },
        { "2024-01-02", CONFIG_STRING, 0 },
        { "nan", CONFIG_STRING, 0 },
        { "tRue", CONFIG_STRING, 0 },
        { "0o8", CONFIG_STRING, 0 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        config_value v = config_value_read(cases[i].text, false);
        CHECK_MSG(v.type == cases[i].type, "'%s' is of type %d", cases[i].text, v.type);
        if (v.type == CONFIG_INT || v.type == CONFIG_FLOAT)
            CHECK_NEAR(v.number, cases[i].number, 0);
        CHECK_EQ(config_value_read(cases[i].text, true).type, CONFIG_STRING);
    }
    config_value big = config_value_read("9223372036854775808", false);
    CHECK(big.type == CONFIG_INT && big.big);
    CHECK_EQ(config_value_read("-9223372036854775808", false).integer, INT64_MIN);
    CHECK(config_value_read("0xFFFFFFFFFFFFFFFFFFFF", false).big);
}

TEST(config_warns_of_yes_and_no_where_they_stay_texts)
{
    case_options o;
    ares_config *cfg = case_read(
        &o, "trainer: {name: yes}\nenv: {kwargs: {a: [Off, 'no']}}\nalgorithm: {mode: none}",
        MODEL);
    REQUIRE_OK(ares_config_finish(cfg));
    CHECK_STR(o.name, "yes");
    CHECK_STR(o.mode, "none");
    CHECK_EQ(cfg->notes.count, 2);
    CHECK_STR(
        cfg->notes.items[0],
        "a.yaml:1: trainer.name = yes: stays a text in YAML 1.2; write true or false, or quote it");
    CHECK_CONTAINS(cfg->notes.items[1], "a.yaml:2: env.kwargs.a.0 = Off");
    ares_config_free(cfg);
}

TEST(config_anchors_and_merge_keys_copy)
{
    case_options o;
    ares_config *cfg = case_read(&o,
                                 "x-base: &base {temperature: 0.5, n: 2}\n"
                                 "x-more: &more {n: 3, top_p: 0.25}\n"
                                 "worker:\n"
                                 "  rollout: {<<: [*base, *more], temperature: 0.75}\n"
                                 "  model_path: &m model\n"
                                 "trainer: {name: *m}\n"
                                 "env: {kwargs: {one: &o [1, {a: 2}], two: *o}}\n",
                                 "env.kwargs.two.1.a=3");
    REQUIRE_OK(ares_config_finish(cfg));
    CHECK_EQ(o.n, 2);
    CHECK_NEAR(o.top_p, 0.25, 0);
    CHECK_NEAR(o.temperature, 0.75, 0);
    CHECK_STR(o.name, "model");
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.one.1.a")->integer, 2);
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.two.1.a")->integer, 3);
    ares_config_free(cfg);
}

TEST(config_broken_yaml_is_reported_with_its_line)
{
    CHECK_FAULTS("worker:\n  rollout:\n\t  n: 3\n", MODEL,
                 "config: a.yaml:3: indented with a tab; YAML takes spaces");
    CHECK_FAULTS(
        "a: 'x\n", MODEL,
        "config: a.yaml:2: column 1: not YAML: found unexpected end of stream, while scanning a "
        "quoted scalar");
    CHECK_FAULTS(
        "# \xC3\xA9\n\nx-a: \xFF\n", MODEL,
        "config: a.yaml:3: not YAML: invalid leading UTF-8 octet; save the file as UTF-8 text");
    CHECK_FAULTS("- 1\n", MODEL,
                 "config: a.yaml:1: the file must be a map of options (key: value)");
    CHECK_FAULTS("x-a: 1\n---\nx-b: 1\n", MODEL,
                 "config: a.yaml:2: a second document (---); one file holds one");
    CHECK_FAULTS("x-a: *nowhere\n", MODEL,
                 "config: a.yaml:1: alias *nowhere has no anchor before it");
    CHECK_FAULTS("x-a: &a [*a]\n", MODEL, "config: a.yaml:1: alias *a is inside its own anchor");
    CHECK_FAULTS("x-a:\n  ? [1]\n  : 2\n", MODEL,
                 "config: a.yaml:2: a key must be a single word (found a list, a map or an alias)");
    CHECK_FAULTS("x-a: !!python/object x\n", MODEL,
                 "config: a.yaml:1: tag 'tag:yaml.org,2002:python/object' has no meaning here; "
                 "leave it out");
    CHECK_FAULTS("x-a: !!int x\n", MODEL, "config: a.yaml:1: 'x' is no value of its tag !!int");
    CHECK_FAULTS("x-a: \"\\0\"\n", MODEL, "config: a.yaml:1: a text with a NUL byte");
    CHECK_FAULTS("x-a: {<<: 3}\n", MODEL, "config: a.yaml:1: `<<` takes a map or a list of maps");
    CHECK_FAULTS(
        "env: {kwargs: [${trainer.name}]}\n", MODEL,
        "config: a.yaml:1: column 17: not YAML: did not find expected ',' or ']', while parsing a "
        "flow sequence; "
        "inside [ ] and { } write \"${...}\" in quotes");
    CHECK_FAULTS("", MODEL, "");
    CHECK_FAULTS("# nothing\n", MODEL, "");
}

TEST(config_duplicate_keys_are_faults_and_do_not_hide_others)
{
    CHECK_FAULTS(
        "worker:\n  rollout: {n: 2}\n  model_path: m\n  rollout: {n: 3}\ntrainer: {nam: 1}\n", NULL,
        "config: a.yaml:4: key 'rollout' appears twice (first in line 2); keep one\n"
        "config: a.yaml:5: trainer.nam: no such option; did you mean 'trainer.name'?");
    CHECK_FAULTS(
        "worker: {rollout: {n: 2}}\nworker.rollout.n: 3\n", MODEL,
        "config: a.yaml:2: worker.rollout.n: set twice in this file (first in line 1); keep one");
    CHECK_FAULTS("num_generations: 2\nworker: {rollout: {n: 3}}\n", MODEL,
                 "config: a.yaml:2: worker.rollout.n: set twice in this file (first in line 1 as "
                 "num_generations); keep one");
}

TEST(config_hostile_yaml_is_bounded)
{
    ares_str text = { 0 };
    ares_str_add_z(&text, "x-0: &a0 [1,1,1,1,1,1,1,1,1,1]\n");
    for (int i = 1; i < 9; i++) {
        ares_str_addf(&text, "x-%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++) ares_str_addf(&text, "%s*a%d", k ? "," : "", i - 1);
        ares_str_add_z(&text, "]\n");
    }
    CHECK_FAULTS(
        text.data, MODEL,
        "config: a.yaml:5: the configuration has more than 100000 values; anchors or interpolation "
        "may multiply them");
    ares_str_clear(&text);
    ares_str_add_z(&text, "x-a: ");
    for (int i = 0; i < 100000; i++) ares_str_add_char(&text, '[');
    CHECK_FAULTS(text.data, MODEL, "config: a.yaml:1: nests deeper than 64");
    ares_str_clear(&text);
    for (int i = 0; i < 30; i++)
        ares_str_addf(&text, "x-%d: \"${x-%d}${x-%d}${x-%d}\"\n", i, i + 1, i + 1, i + 1);
    ares_str_add_z(&text, "x-30: aaaa\ntrainer: {name: \"${x-0}\"}\n");
    case_options o;
    ares_config *cfg = case_read(&o, text.data, MODEL);
    CHECK_FAIL(ares_config_finish(cfg), ARES_ECONFIG,
               "interpolation makes a text of more than 65536 bytes");
    ares_config_free(cfg);
    ares_str_clear(&text);
    for (int i = 0; i < 3000; i++) ares_str_addf(&text, "x-%d: ${x-%d}\n", i, i + 1);
    ares_str_add_z(&text, "trainer: {name: \"${x-0}\"}\n");
    cfg = case_read(&o, text.data, MODEL);
    CHECK_FAIL(ares_config_finish(cfg), ARES_ECONFIG,
               "more than 100 interpolations that refer to one another");
    CHECK_EQ(ares_config_fault_count(cfg), 1);
    ares_config_free(cfg);
    ares_str_fini(&text);
}

TEST(config_interpolates)
{
    setenv("ARES_TEST_STEPS", "12", 1);
    setenv("ARES_TEST_EMPTY", "", 1);
    unsetenv("ARES_TEST_NONE");
    case_options o;
    ares_config *cfg =
        case_read(&o,
                  "x-mine: {deep: [7, {k: 8}]}\n"
                  "worker:\n"
                  "  model_path: ${oc.env:ARES_TEST_NONE,some model}\n"
                  "  rollout:\n"
                  "    n: ${oc.env:ARES_TEST_STEPS}\n"
                  "    max_len: ${.n}\n"
                  "    top_k: ${subtract:${multiply:${.n}, 3},${int_div:57,2}}\n"
                  "    temperature: ${oc.select:no.such,0.5}\n"
                  "    top_p: ${oc.env:ARES_TEST_EMPTY,9}0.${..stops.0}\n"
                  "  stops: ${x-mine.list}\n"
                  "  score: ${oc.env:ARES_TEST_NONE,${actor_rollout_ref.rollout.top_p}}\n"
                  "x-mine.list: [5, 6]\n"
                  "trainer:\n"
                  "  name: a-${worker.rollout.n}-${oc.select:data.none,x}-\\${literal}\n"
                  "env:\n"
                  "  kwargs: {blank: \"${oc.env:ARES_TEST_EMPTY}\", copy: \"${x-mine}\", inner: "
                  "\"${.copy.deep.1.k}\", pick: "
                  "\"${x-${.which}}\", which: mine}\n",
                  "data.prompt=\\\\${trainer.name}\\n");
    REQUIRE_OK(ares_config_finish(cfg));
    CHECK_STR(o.model, "some model");
    CHECK_EQ(o.n, 12);
    CHECK_EQ(o.max_len, 12);
    CHECK_EQ(o.top_k, 8);
    CHECK_NEAR(o.temperature, 0.5, 0);
    CHECK_NEAR(o.top_p, 0.5, 0);
    CHECK_NEAR(o.score, 0.5, 0);
    CHECK_EQ(o.stops.count, 2);
    CHECK_STR(o.name, "a-12-x-${literal}");
    CHECK_STR(o.prompt, "\\a-12-x-${literal}\\n");
    CHECK_STR(o.dir, "runs/a-12-x-${literal}");
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.blank")->type, ARES_JSON_STRING);
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.inner")->integer, 8);
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.pick.deep.0")->integer, 7);
    ares_config_free(cfg);
}

TEST(config_interpolation_faults_name_the_cause)
{
    CHECK_FAULTS("trainer: {name: \"${.dir}\"}\n", MODEL,
                 "config: a.yaml:1: trainer.name = '${.dir}': the interpolation goes in a circle: "
                 "trainer.name <- trainer.dir <- trainer.name");
    CHECK_FAULTS("trainer: {name: \"${.name}\"}\n", MODEL,
                 "config: a.yaml:1: trainer.name = '${.name}': the interpolation goes in a circle: "
                 "trainer.name <- trainer.name");
    CHECK_FAULTS("env:\n  kwargs: {a: \"${env}\"}\n", MODEL,
                 "config: a.yaml:2: env.kwargs.a = '${env}': the interpolation goes in a circle: "
                 "env <- env.kwargs.a <- env.kwargs <- env");
    CHECK_FAULTS("trainer: {name: \"${worker.rollout.nn}\"}\n", MODEL,
                 "config: a.yaml:1: trainer.name = '${worker.rollout.nn}': ${worker.rollout.nn}: "
                 "no such option; "
                 "did you mean 'worker.rollout.n'?");
    CHECK_FAULTS(
        NULL, MODEL "|trainer.name=${oc.env:ARES_TEST_NONE}",
        "config: command line: trainer.name = '${oc.env:ARES_TEST_NONE}': environment variable "
        "ARES_TEST_NONE is not "
        "set; set it, or write ${oc.env:ARES_TEST_NONE,default}");
    CHECK_FAULTS(
        NULL, MODEL "|trainer.name=${env:HOME}",
        "config: command line: trainer.name = '${env:HOME}': ${env:...}: unknown; did you mean an "
        "environment "
        "variable, ${oc.env:NAME,default}? (choices: oc.env, oc.select)");
    CHECK_FAULTS(NULL, MODEL "|trainer.name=${int_div:4,0}",
                 "config: command line: trainer.name = '${int_div:4,0}': ${int_div:4,0}: needs two "
                 "whole numbers, as in ${int_div:12,3}");
    CHECK_FAULTS(NULL, MODEL "|trainer.name=${multiply:4,2.5}",
                 "config: command line: trainer.name = '${multiply:4,2.5}': ${multiply:4,2.5}: "
                 "needs two whole numbers, as in ${multiply:12,3}");
    CHECK_FAULTS(
        NULL, MODEL "|trainer.name=a${b",
        "config: command line: trainer.name = 'a${b': ${ without its }; a literal one is \\${");
    CHECK_FAULTS(NULL, MODEL "|trainer.name=a${env.kwargs}",
                 "config: command line: trainer.name = 'a${env.kwargs}': a map or a list cannot "
                 "stand inside a text");
    CHECK_FAULTS(
        NULL, "trainer.name=${worker.model_path}",
        "config: command line: trainer.name = '${worker.model_path}': refers to an option that is "
        "required and not set\n"
        "config: worker.model_path: required, and not set (the model); set it in a file or as "
        "worker.model_path=...");
}

TEST(config_aliases_work_layer_by_layer_and_are_announced_once)
{
    case_options o;
    ares_config *cfg = case_new(&o);
    ares_config_load_text(
        cfg, "a.yaml", ares_view_of("worker: {rollout: {n: 2, max_len: 5}}\nnum_generations: 3\n"));
    CHECK_EQ(ares_config_fault_count(cfg), 1); /* both in one file */
    ares_config_free(cfg);
    cfg = case_new(&o);
    ares_config_load_text(cfg, "a.yaml", ares_view_of("worker: {rollout: {n: 2, max_len: 5}}\n"));
    ares_config_load_text(
        cfg, "b.yaml",
        ares_view_of("actor_rollout_ref:\n  model: {path: m}\n  rollout: {temperature: 0.5, n: 4, "
                     "response_length: 9}\n  fsdp: {a: 1, b: {c: 2}}\n"));
    ares_config_override(cfg, "actor_rollout_ref.rollout.n=6");
    ares_config_override(cfg, "actor_rollout_ref.rollout.n=8");
    ares_config_override(cfg, "num_generations=8.0"); /* the same value in another spelling */
    ares_config_resolve(cfg);
    ares_config_fault(cfg, "worker.rollout.temperature", "too cold");
    ares_config_fault(cfg, "worker.rollout.top_p", "as by default");
    CHECK_FAIL(ares_config_finish(cfg), ARES_ECONFIG,
               "config: b.yaml:3: worker.rollout.temperature = 0.5 (written "
               "actor_rollout_ref.rollout.temperature): too cold\n"
               "config: worker.rollout.top_p = 1.0: as by default");
    CHECK_EQ(o.n, 8);
    CHECK_EQ(o.max_len, 9);
    CHECK_STR(o.model, "m");
    static const char *const notes[] = {
        "actor_rollout_ref.model.path -> worker.model_path",
        "actor_rollout_ref.rollout.temperature -> worker.rollout.temperature",
        "actor_rollout_ref.rollout.n -> worker.rollout.n",
        "actor_rollout_ref.rollout.response_length -> worker.rollout.max_len",
        "actor_rollout_ref.fsdp -> (ignored: weights are replicated)",
        "num_generations -> worker.rollout.n",
    };
    CHECK_EQ(cfg->notes.count, ARES_COUNT(notes));
    for (int i = 0; i < ARES_COUNT(notes) && i < cfg->notes.count; i++)
        CHECK_STR(cfg->notes.items[i], notes[i]);
    ares_config_free(cfg);
}

TEST(config_two_spellings_of_one_thing_must_agree)
{
    CHECK_FAULTS(
        NULL, MODEL "|actor_rollout_ref.rollout.n=6|num_generations=8",
        "config: command line: worker.rollout.n = 8 (written num_generations): set as "
        "actor_rollout_ref.rollout.n too, to another value; both are one option, so keep one");
    CHECK_FAULTS(NULL, MODEL "|worker.rollout.n=6|num_generations=8",
                 "config: command line: worker.rollout.n = 8 (written num_generations): set as "
                 "worker.rollout.n too, to another value; both are one option, so keep one");
    CHECK_FAULTS("num_generations: 2\nworker: {rollout: {n: 2}}\n",
                 MODEL "|worker.rollout.n=3|worker.rollout.n=4", "");
    CHECK_FAULTS("num_generations: 2\n", MODEL "|worker.rollout.n=3", "");
}

TEST(config_a_null_beside_another_spelling_asks_for_nothing)
{
    static const struct {
        const char *file, *words;
    } cases[] = {
        { NULL, MODEL "|worker.rollout.n=6|num_generations=null" },
        { NULL, MODEL "|num_generations=null|worker.rollout.n=6" },
        { "worker: {rollout: {n: 6}}\nnum_generations: null\n", MODEL },
        { "num_generations: null\nworker: {rollout: {n: 6}}\n", MODEL },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        case_options o;
        ares_config *cfg = case_read(&o, cases[i].file, cases[i].words);
        CHECK_OK(ares_config_finish(cfg));
        CHECK_EQ(o.n, 6);
        ares_config_free(cfg);
    }
    CHECK_FAULTS("beta: null", MODEL "|worker.score=1", "");
}

TEST(config_another_trainers_plus_adds_what_is_an_option_here)
{
    case_options o;
    ares_config *cfg = case_read(&o, NULL, MODEL "|+num_generations=7");
    CHECK_OK(ares_config_finish(cfg));
    CHECK_EQ(o.n, 7);
    ares_config_free(cfg);
    CHECK_FAULTS(NULL, MODEL "|+worker.rollout.n=7", "");
}

/* verl's own file: what it leaves out refers to a word that is no option here. */
TEST(config_a_select_of_what_is_no_option_is_its_default)
{
    static const ares_config_alias words[] = {
        { "tools", "", "=null", "no tools" },
        { "tools", NULL, NULL, "not built" },
    };
    case_options o;
    ares_config *cfg = case_new(&o);
    ares_config_add_aliases(cfg, words, ARES_COUNT(words));
    ares_config_load_text(cfg, "a.yaml",
                          ares_view_of("tools: ${oc.select:other.tools, null}\n"
                                       "worker: {rollout: {n: '${oc.select:other.n,4}'}}\n"));
    ares_config_override(cfg, MODEL);
    ares_config_resolve(cfg);
    CHECK_OK(ares_config_finish(cfg));
    CHECK_EQ(o.n, 4);
    ares_config_free(cfg);
}

TEST(config_two_pluses_set_an_option_or_add_a_key)
{
    case_options o;
    ares_str text = { 0 };
    ares_config *cfg =
        case_read(&o, NULL, MODEL "|++worker.rollout.n=7|++env.kwargs.new=3|++num_generations=7");
    CHECK_OK(ares_config_finish(cfg));
    CHECK_EQ(o.n, 7);
    ares_json_write(&text, o.kwargs);
    CHECK_STR(text.data, "{\"depth\":1,\"new\":3}");
    ares_str_fini(&text);
    ares_config_free(cfg);
}

TEST(config_null_for_another_trainers_word_is_no_value)
{
    case_options o;
    ares_config *cfg = case_new(&o);
    ares_config_load_text(cfg, "early.yaml", ares_view_of("worker: {rollout: {n: 5}}"));
    ares_config_load_text(cfg, "a.yaml", ares_view_of("num_generations: null"));
    ares_config_override(cfg, MODEL);
    ares_config_resolve(cfg);
    CHECK_OK(ares_config_finish(cfg));
    CHECK_EQ(o.n, 1); /* what an earlier layer gave is taken back */
    ares_config_free(cfg);
    CHECK_FAULTS("num_generations: null\nworker: {rollout: {n: 5}}", MODEL, "");
    CHECK_FAULTS("worker: {rollout: {n: null}}", MODEL,
                 "config: a.yaml:1: worker.rollout.n = null: may not be null");
}

/* verl's own files name the classes of their sections, for Hydra. */
TEST(config_classes_of_sections_say_nothing)
{
    case_options o;
    ares_str text = { 0 };
    ares_config *cfg =
        case_read(&o,
                  "_target_: a\nworker: {_target_: b, rollout: {_target_: c, n: 2}}\n"
                  "env: {kwargs: {_target_: d, inner: {_target_: e, x: 1}}}",
                  MODEL);
    CHECK_OK(ares_config_finish(cfg));
    CHECK_EQ(o.n, 2);
    ares_json_write(&text, o.kwargs);
    CHECK_STR(text.data, "{\"depth\":1,\"inner\":{\"x\":1}}");
    ares_str_fini(&text);
    ares_config_free(cfg);
}

/* Translations for the next test: a count of tokens in thousands, and a preset. */
static void translate(ares_config *cfg)
{
    const char *name = ares_config_given(cfg, "trainer.name");
    if (name && strcmp(name, "small") == 0)
        CHECK_EQ(ares_config_preset(cfg, "worker.rollout.n", "2", "trainer.name: small"),
                 ares_config_given(cfg, "worker.rollout.n") == NULL);
    if (!ares_config_given(cfg, "worker.rollout.top_k")) return;
    if (ares_config_given(cfg, "worker.rollout.max_len") &&
        !ares_config_later(cfg, "worker.rollout.top_k", "worker.rollout.max_len"))
        return;
    ares_config_follow(cfg, "worker.rollout.max_len", "77", "worker.rollout.top_k");
    ares_config_forget(cfg, "worker.rollout.top_k");
}

TEST(config_words_may_stand_for_more_than_a_name)
{
    static const struct {
        const char *yaml, *words;
        int n, max_len;
    } cases[] = {
        { "trainer: {name: small}\n", MODEL, 2, 0 },
        { "trainer: {name: small}\n", MODEL "|worker.rollout.n=5", 5, 0 },
        { "trainer: {name: '${worker.model_path}'}\n",
          "worker.model_path=small|worker.rollout.top_k=3", 2, 77 },
        { "worker: {rollout: {max_len: 5}}\n", MODEL "|worker.rollout.top_k=3", 0, 77 },
        { "worker: {rollout: {top_k: 3}}\n", MODEL "|worker.rollout.max_len=5", 0, 5 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        case_options o;
        ares_config *cfg = case_new(&o);
        ares_config_translate_with(cfg, translate);
        ares_config_load_text(cfg, "a.yaml", ares_view_of(cases[i].yaml));
        char words[200], *rest = words;
        snprintf(words, sizeof words, "%s", cases[i].words);
        for (char *one; (one = strsep(&rest, "|"));) ares_config_override(cfg, one);
        ares_config_resolve(cfg);
        CHECK_OK(ares_config_finish(cfg));
        if (cases[i].n) CHECK_EQ(o.n, cases[i].n);
        if (cases[i].max_len) CHECK_EQ(o.max_len, cases[i].max_len);
        if (cases[i].max_len == 77) CHECK_EQ(o.top_k, -1); /* its default again */
        ares_config_free(cfg);
    }
}

TEST(config_an_ambiguous_word_needs_the_option_that_settles_it)
{
    case_options o;
    ares_config *cfg = case_read(&o, "beta: 0.5", MODEL);
    CHECK_OK(ares_config_finish(cfg));
    CHECK_NEAR(o.score, 0.5, 0);
    ares_config_free(cfg);
    cfg = case_read(&o, "beta: 0.5", MODEL "|beta=0.25|algorithm.estimator=rloo");
    CHECK_OK(ares_config_finish(cfg));
    CHECK_NEAR(o.temperature, 0.25, 0);
    CHECK(ares_is_null_f64(o.score));
    ares_config_free(cfg);
    CHECK_FAULTS(
        "beta: 0.5", MODEL "|algorithm.estimator=gae",
        "config: a.yaml:1: beta = 0.5: not accepted: it has two meanings; write worker.score");
    CHECK_FAULTS(
        "beta: 0.5", MODEL "|worker.score=1",
        "config: a.yaml:1: beta = 0.5: means worker.score here, which is set as well; keep one");
    CHECK_FAULTS("fp16: true", MODEL, "config: a.yaml:1: fp16 = true: not accepted: set the dtype");
}

TEST(config_a_word_with_an_otherwise_is_ignored_or_yields_and_may_imply_a_value)
{
    static const ares_config_alias words[] = {
        { "general", "worker.score", "algorithm.estimator=grpo", "one of both" },
        { "special", "worker.score", "algorithm.estimator=grpo", NULL },
        { "special", "", NULL, "no score" },
        { "general", "", NULL, "it is set" },
    };
    static const ares_config_default defaults[] = {
        { "another", "special", "worker.rollout.max_len", "7", NULL },
        { "another", "special", "worker.rollout.max_len", "8", NULL }, /* the first row counts */
        { "another", "special", "worker.rollout.top_k", "9", "algorithm.estimator=nothing" },
        { "another", "special", "worker.rollout.n", "5", "algorithm.estimator!=gae" },
    };
    static const struct {
        const char *yaml, *override;
        double score;
        int64_t max_len;
    } cases[] = {
        { "general: 0.5\n", NULL, 0.5, ARES_NULL_I64 },
        { "special: 0.5\n", NULL, 0.5, 7 },
        { "special: 0.5\nworker: {rollout: {max_len: null}}\n", NULL, 0.5,
          7 }, /* null is no value */
        { "special: 0.5\n", "worker.rollout.max_len=3", 0.5, 3 },
        { "worker: {rollout: {max_len: 3}}\n", "special=0.5", 0.5, 3 },
        { "special: 0.5\ngeneral: 0.25\n", NULL, 0.25, 7 },         /* the first row */
        { "special: 0.25\nworker: {score: 0.5}\n", NULL, 0.25, 7 }, /* no note: the word wins */
        { "special: 0.5\n", "worker.score=0.125", 0.125, 7 },
        { "worker: {score: 0.5}\n", "special=0.125", 0.125, 7 },
        { "special: 0.5\n", "~special", NAN, ARES_NULL_I64 },
        { "special: 0.5\n", "algorithm.estimator=gae", NAN, 7 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        case_options o;
        ares_config *cfg = case_new(&o);
        ares_config_add_aliases(cfg, words, ARES_COUNT(words));
        ares_config_add_defaults(cfg, defaults, ARES_COUNT(defaults));
        ares_config_load_text(cfg, "a.yaml", ares_view_of(cases[i].yaml));
        ares_config_override(cfg, MODEL);
        if (cases[i].override) ares_config_override(cfg, cases[i].override);
        ares_config_resolve(cfg);
        CHECK_OK(ares_config_finish(cfg));
        CHECK_NEAR(o.score, cases[i].score, 0);
        CHECK_EQ(o.max_len, cases[i].max_len);
        bool special = cases[i].max_len != ARES_NULL_I64;
        CHECK_EQ(o.n, special && strcmp(o.estimator, "gae") != 0 ? 5 : 1);
        ares_config_free(cfg);
    }
    case_options o;
    ares_config *cfg = case_new(&o);
    ares_config_add_aliases(cfg, words, ARES_COUNT(words));
    ares_config_load_text(cfg, "a.yaml", ares_view_of("general: 0.5\nworker: {score: 0.5}\n"));
    ares_config_override(cfg, MODEL);
    ares_config_resolve(cfg);
    CHECK_FAIL(ares_config_finish(cfg), ARES_ECONFIG,
               "config: a.yaml:1: general = 0.5: one of both");
    ares_config_free(cfg);
}

TEST(config_words_may_hold_for_one_value_and_for_any_key)
{
    static const ares_config_alias words[] = {
        { "all.?.height", "env.kwargs.?.tall", NULL, NULL },
        { "all.?.*", "env.kwargs.?.*", NULL, NULL },
        { "all.?.colour", "", "=null", "none is said" },
        { "all.?.more.*", "env.kwargs.?.*", NULL, NULL },
        { "steps", "", "=1|0", "one is what there is" },
        { "steps", NULL, "=7", "seven is too many" },
        { "class", "", "=*Known|*Other", "it is what is done" },
        { "class", NULL, NULL, "no code is loaded" },
        { "steps", NULL, NULL, "set worker.rollout.n" },
        { "contents", "data.shuffle=false", "=[model]", NULL },
        { "contents", "", NULL, "all of it" },
        { "data.prompt", "", "=null", "null says nothing" },
        { "seed", "worker.rollout.n&worker.rollout.max_len", NULL, NULL },
        { "seed.first", "worker.rollout.n", NULL, NULL },
    };
    static const ares_config_default defaults[] = { { "another", "contents", "env.kwargs.deep.x",
                                                      "7", NULL } };
    static const struct {
        const char *yaml, *faults, *kwargs;
        int n;
        bool shuffle;
    } cases[] = {
        { "all: {A: {height: 3, width: 2}, B: {colour: null, more: {height: 5, size: 4}}}", "",
          "{\"depth\":1,\"A\":{\"tall\":3,\"width\":2},\"B\":{\"height\":5,\"size\":4}}", 1, true },
        { "all.A.height: 3\nall.A.colour: red", "",
          "{\"depth\":1,\"A\":{\"tall\":3,\"colour\":\"red\"}}", 1, true },
        { "steps: 1\nseed: {first: 5}", "", "{\"depth\":1}", 5, true },
        { "steps: 0.0\nclass: a.b.Other", "", "{\"depth\":1}", 1, true },
        { "class: Known", "", "{\"depth\":1}", 1, true },
        { "class: a.Unknown",
          "config: a.yaml:1: class = 'a.Unknown': not accepted: no code is loaded", "{\"depth\":1}",
          1, true },
        { "steps: 7", "config: a.yaml:1: steps = 7: not accepted: seven is too many",
          "{\"depth\":1}", 1, true },
        { "steps: 2", "config: a.yaml:1: steps = 2: not accepted: set worker.rollout.n",
          "{\"depth\":1}", 1, true },
        { "contents: [model]", "", "{\"depth\":1,\"deep\":{\"x\":7}}", 1, false },
        { "contents: [model, extra]", "", "{\"depth\":1,\"deep\":{\"x\":7}}", 1, true },
        { "contents: 1\nenv.kwargs.deep.x: 5", "", "{\"depth\":1,\"deep\":{\"x\":5}}", 1, true },
        { "seed: {second: 5}", "config: a.yaml:1: seed.second: no such option", "{\"depth\":1}", 1,
          true },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        case_options o;
        ares_str text = { 0 };
        ares_config *cfg = case_new(&o);
        ares_config_add_aliases(cfg, words, ARES_COUNT(words));
        ares_config_add_defaults(cfg, defaults, ARES_COUNT(defaults));
        ares_config_load_text(cfg, "early.yaml", ARES_VIEW("data: {prompt: kept}"));
        ares_config_load_text(cfg, "a.yaml", ares_view_of(cases[i].yaml));
        ares_config_override(cfg, MODEL);
        ares_config_override(cfg, "data.prompt=null");
        ares_config_resolve(cfg);
        int rc = ares_config_finish(cfg);
        CHECK_STR(rc == ARES_OK ? "" : ares_error_message(), cases[i].faults);
        ares_json_write(&text, o.kwargs);
        CHECK_STR(text.data, cases[i].kwargs);
        CHECK_STR(o.prompt, "kept");
        CHECK_EQ(o.n, cases[i].n);
        CHECK_EQ(o.shuffle, cases[i].shuffle);
        ares_str_fini(&text);
        ares_config_free(cfg);
    }
}

/* The row of the option's own name holds, unless the word has a row of its own. */
TEST(config_a_row_of_a_value_holds_by_the_other_names_of_its_section_too)
{
    static const ares_config_alias words[] = {
        { "worker.rollout.top_k", "worker.rollout.top_k=-1", "=0", NULL },
        { "worker.rollout.old", "", "=1", "asks for nothing" },
        { "worker.rollout.old", NULL, NULL, "not built" },
        { "sampler.*", "actor_rollout_ref.rollout.*", NULL, NULL },
        { "sampler.keep", "worker.rollout.top_k", NULL, NULL },
    };
    static const struct {
        const char *word, *fault;
    } cases[] = {
        { "actor_rollout_ref.rollout.top_k=0", "" },
        { "sampler.top_k=0", "" },
        { "sampler.old=1.0", "" },
        { "sampler.old=2", "config: command line: sampler.old = 2: not accepted: not built" },
        { "sampler.keep=0", "config: command line: worker.rollout.top_k = 0 (written "
                            "sampler.keep): must be -1 or in [1,)" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        case_options o;
        ares_config *cfg = case_new(&o);
        ares_config_add_aliases(cfg, words, ARES_COUNT(words));
        ares_config_override(cfg, MODEL);
        ares_config_override(cfg, cases[i].word);
        ares_config_resolve(cfg);
        int rc = ares_config_finish(cfg);
        CHECK_STR(rc == ARES_OK ? "" : ares_error_message(), cases[i].fault);
        CHECK_EQ(o.top_k, -1);
        ares_config_free(cfg);
    }
}

TEST(config_a_word_may_refer_to_another_name_of_its_option)
{
    case_options o;
    ares_config *cfg =
        case_read(&o,
                  "num_generations: 5\n"
                  "actor_rollout_ref: {rollout: {n: '${oc.select:num_generations,3}'}}\n",
                  MODEL "|worker.rollout.top_k=${num_generations}|num_generations=6");
    CHECK_OK(ares_config_finish(cfg));
    CHECK_EQ(o.n, 6);
    CHECK_EQ(o.top_k, 6);
    ares_config_free(cfg);
}

TEST(config_a_table_by_number_is_a_list)
{
    case_options o;
    ares_config *cfg = case_read(&o, "worker: {optim: {betas: {0: 0.5, 1: 0.75}}}", MODEL);
    CHECK_OK(ares_config_finish(cfg));
    CHECK_NEAR(o.betas.items[1], 0.75, 0);
    ares_config_free(cfg);
    CHECK_FAULTS("worker: {optim: {betas: {1: 0.5, 0: 0.75}}}", MODEL,
                 "config: a.yaml:1: worker.optim.betas = {1: 0.5, 0: 0.75}: must be a list, not a "
                 "map");
    CHECK_FAULTS("worker: {stops: {}}", MODEL,
                 "config: a.yaml:1: worker.stops = {}: must be a list, not a map");
}

TEST(config_one_word_for_several_options_yields_to_each_of_them)
{
    static const char *const texts[] = { "both: 5\nnum_generations: 7\n",
                                         "worker: {rollout: {n: 7}}\nboth: 5\n" };
    for (int i = 0; i < ARES_COUNT(texts); i++) {
        case_options o;
        ares_config *cfg = case_read(&o, texts[i], MODEL);
        CHECK_OK(ares_config_finish(cfg));
        CHECK_EQ(o.n, 7);
        CHECK_EQ(o.max_len, 5);
        CHECK_STR(cfg->notes.items[0],
                  i == 0 ? "both -> worker.rollout.n&worker.rollout.max_len" : cfg->notes.items[0]);
        ares_config_free(cfg);
    }
    case_options o;
    ares_config *cfg = case_read(&o, texts[0], MODEL "|both=9");
    CHECK_EQ(o.n + o.max_len, 18);
    ares_config_free(cfg);
    CHECK_FAULTS("both: 0\nboth.x: 1\nactor_rollout_ref: {rollout: {tpo_p: 1}}\n", MODEL,
                 "config: a.yaml:1: worker.rollout.n = 0 (written both): must be in [1,)\n"
                 "config: a.yaml:1: worker.rollout.max_len = 0 (written both): must be in [1,)\n"
                 "config: a.yaml:2: both.x: no such option\n"
                 "config: a.yaml:3: actor_rollout_ref.rollout.tpo_p: no such option; did you mean "
                 "'worker.rollout.top_p'?");
}
