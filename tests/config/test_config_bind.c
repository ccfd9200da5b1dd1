/* Types, constraints, overrides, the report, print and help. */
#define LLVMFuzzerTestOneInput fuzz_config_once
#include "../fuzz/fuzz_config.c"
#undef LLVMFuzzerTestOneInput
#include "config_case.h"

#include <dirent.h>

TEST(config_reports_every_fault_in_one_run_in_order_of_place)
{
    CHECK_FAULTS(
        "worker:\n"
        "  rollout:\n"
        "    n: 0\n"
        "    top_k: 0\n"
        "    top_p: 1.5\n"
        "    tpo_p: 0.5\n"
        "    temperature: hot\n"
        "    max_len: 2.5\n"
        "  optim: {betas: [0.9], lr: [1]}\n"
        "data:\n"
        "  shuffle: yes\n"
        "  files: [a, '', {b: 1}]\n"
        "algorithm: {mode: tokenn, estimator: grop}\n"
        "env: {kwargs: 3, rewards: {}}\n"
        "trainer: {name: null}\n",
        "worker.rollout.n=x|worker.stops=[1,-1]",
        "config: a.yaml:4: worker.rollout.top_k = 0: must be -1 or in [1,)\n"
        "config: a.yaml:5: worker.rollout.top_p = 1.5: must be in (0,1]\n"
        "config: a.yaml:6: worker.rollout.tpo_p: no such option; did you mean "
        "'worker.rollout.top_p'?\n"
        "config: a.yaml:7: worker.rollout.temperature = 'hot': must be a number\n"
        "config: a.yaml:8: worker.rollout.max_len = 2.5: must be an integer\n"
        "config: a.yaml:9: worker.optim.betas = [0.9]: must have 2 items\n"
        "config: a.yaml:9: worker.optim.lr = [1]: must be a number or text\n"
        "config: a.yaml:11: data.shuffle = 'yes': a text in YAML 1.2; write true\n"
        "config: a.yaml:12: data.files.1 = '': must not be empty\n"
        "config: a.yaml:12: data.files.2 = {b: 1}: must be a text, not a map\n"
        "config: a.yaml:13: algorithm.mode = 'tokenn': unknown; did you mean 'token'? (choices: "
        "token-mean, "
        "seq-mean, none)\n"
        "config: a.yaml:13: algorithm.estimator = 'grop': unknown; did you mean 'grpo'? (choices: "
        "gae, grpo, "
        "rloo)\n"
        "config: a.yaml:14: env.kwargs = 3: must be a map\n"
        "config: a.yaml:14: env.rewards = {}: must be a list\n"
        "config: a.yaml:15: trainer.name = null: may not be null\n"
        "config: command line: worker.rollout.n = 'x': must be an integer\n"
        "config: command line: worker.stops.1 = -1: must be in [0,)\n"
        "config: worker.model_path: required, and not set (the model); set it in a file or as "
        "worker.model_path=...");
}

TEST(config_a_faulty_option_keeps_its_default_in_the_struct)
{
    case_options o;
    ares_config *cfg =
        case_read(&o, NULL, "worker.rollout.n=0|worker.optim.betas=[1]|env.kwargs=3");
    CHECK_EQ(ares_config_fault_count(cfg), 4);
    CHECK_EQ(o.n, 1);
    CHECK_EQ(o.betas.count, 2);
    CHECK(o.kwargs && o.kwargs->type == ARES_JSON_NULL);
    CHECK(o.model == NULL);
    ares_config_free(cfg);
}

TEST(config_numbers_are_read_as_meant)
{
    case_options o;
    ares_config *cfg = case_read(
        &o, "worker: {rollout: {n: 1e3, max_len: '12', temperature: 1, top_k: 0x10}, score: -0.5}",
        MODEL "|algorithm.mode=seq|data.shuffle=False|worker.stops=3|data.files=a "
              "b.jsonl|trainer.name=007");
    REQUIRE_OK(ares_config_finish(cfg));
    CHECK_EQ(o.n, 1000);
    CHECK_EQ(o.max_len, 12);
    CHECK_EQ(o.top_k, 16);
    CHECK_NEAR(o.temperature, 1, 0);
    CHECK_NEAR(o.score, -0.5, 0);
    CHECK_STR(o.mode, "seq-mean");
    CHECK_EQ(o.shuffle, false);
    CHECK_EQ(o.stops.count, 1);
    CHECK_STR(o.files.items[0], "a b.jsonl");
    CHECK_STR(o.name, "007");
    ares_config_free(cfg);
    CHECK_FAULTS("worker: {rollout: {n: 1e30, temperature: .inf, max_len: 99999999999999999999}, "
                 "score: .nan}",
                 MODEL,
                 "config: a.yaml:1: worker.rollout.n = 1e30: too large for an integer\n"
                 "config: a.yaml:1: worker.rollout.max_len = 99999999999999999999: too large for "
                 "an integer\n"
                 "config: a.yaml:1: worker.rollout.temperature = .inf: must be finite\n"
                 "config: a.yaml:1: worker.score = .nan: must be finite");
}

TEST(config_overrides_edit_lists_and_open_maps)
{
    case_options o;
    ares_config *cfg = case_read(
        &o,
        "env: {kwargs: {a: {b: 1}, l: [1, 2], one: first, none: null}, "
        "rewards: [{name: x}, {name: y, weight: 1}]}\n",
        MODEL "|env.kwargs.one+=[second]|env.kwargs.none+=only|env.rewards.1.weight=0.5|env."
              "rewards[0].name=z|env.rewards+=[{name: w}]"
              "|env.kwargs.l+=3|env.kwargs.a.b=2|+env.kwargs.new.key=[1, 'two']|env.kwargs.t=[a-z]"
              "|data.files+=[p]|data.files+=q|worker.optim.betas.1=0.95|~worker.rollout.n"
              "|trainer.name=[a-z]+{2}: #x|data.prompt=|~env.kwargs.depth|worker.optim.lr=lambda "
              "s: 1e-3 / s");
    REQUIRE_OK(ares_config_finish(cfg));
    CHECK_EQ(o.rewards->count, 3);
    CHECK_NEAR(ares_json_get(&o.rewards->items[1], "weight")->number, 0.5, 0);
    CHECK_VIEW(ares_json_get(&o.rewards->items[0], "name")->text, "z");
    CHECK_VIEW(ares_json_get(&o.rewards->items[2], "name")->text, "w");
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.l")->count, 3);
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.one")->count, 2);
    CHECK_STR(ares_config_get_text(cfg, "env.kwargs.one.0"), "first");
    CHECK_STR(ares_config_get_text(cfg, "env.kwargs.one.1"), "second");
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.none")->count, 1);
    CHECK_STR(ares_config_get_text(cfg, "env.kwargs.none.0"), "only");
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.a.b")->integer, 2);
    CHECK_STR(ares_config_get_text(cfg, "env.kwargs.new.key.1"), "two");
    CHECK_EQ(ares_config_get(cfg, "env.kwargs.t")->type, ARES_JSON_ARRAY);
    CHECK(ares_config_get(cfg, "env.kwargs.depth") == NULL);
    CHECK_EQ(o.files.count, 2);
    CHECK_STR(o.files.items[1], "q");
    CHECK_NEAR(o.betas.items[0], 0.9, 0);
    CHECK_NEAR(o.betas.items[1], 0.95, 0);
    CHECK_STR(o.name, "[a-z]+{2}: #x");
    CHECK_STR(o.prompt, "");
    CHECK_VIEW(o.lr->text, "lambda s: 1e-3 / s");
    ares_config_free(cfg);
}

TEST(config_tilde_goes_back_to_the_default)
{
    case_options o;
    ares_config *cfg =
        case_read(&o, "worker: {rollout: {n: 2, top_p: 0.5}, model_path: x}\nenv: {kwargs: {z: 1}}",
                  "~worker.rollout|~env.kwargs|~worker.model_path");
    CHECK_FAIL(ares_config_finish(cfg), ARES_ECONFIG, "config: worker.model_path: required");
    CHECK_EQ(o.n, 1);
    CHECK_NEAR(o.top_p, 1, 0);
    CHECK_EQ(o.kwargs->count, 1);
    CHECK(!ares_config_is_set(cfg, "worker"));
    ares_config_free(cfg);
}

TEST(config_wrong_overrides_say_what_is_right)
{
    CHECK_FAULTS(
        NULL,
        MODEL
        "|=3|worker..n=1|~worker.rollout.n=1|+worker.rollout.m=2|data.files.0=x"
        "|worker.rollout.n+=1|env.kwargs+=1|worker=1|worker.rollout.n.x=1|temperature=0|env."
        "rewards=[1"
        "|env.rewards.-1=3|env.rewards.0.name.x=1|+data.files.0=1|~nothing|trainer.name=\xFF|quite."
        "unlike=1",
        "config: command line: '=3': not an override (a.b=value, a.b+=[item], +a.new=value, ~a.b)\n"
        "config: command line: 'worker..n=1': not an override (a.b=value, a.b+=[item], "
        "+a.new=value, ~a.b)\n"
        "config: command line: '~worker.rollout.n=1': not an override (a.b=value, a.b+=[item], "
        "+a.new=value, "
        "~a.b)\n"
        "config: command line: worker.rollout.m: no such option (options there: n, top_k, max_len, "
        "temperature, top_p)\n"
        "config: command line: data.files.0: no item '0' in a list of 0; items count from 0, += "
        "[x] appends\n"
        "config: command line: worker.rollout.n: += appends to a list, and this takes one value\n"
        "config: command line: env.kwargs: += appends to a list, and this is a map\n"
        "config: command line: worker = 1: a section of options, not a value\n"
        "config: command line: worker.rollout.n.x: no such option; 'worker.rollout.n' is a value, "
        "not a "
        "section\n"
        "config: command line: temperature: no such option; did you mean "
        "'worker.rollout.temperature'?\n"
        "config: command line: 'env.rewards=[1': the value is not YAML: column 1: not YAML: did "
        "not find "
        "expected ',' "
        "or ']', while parsing a flow sequence\n"
        "config: command line: env.rewards.-1: no item '-1' in a list of 1; items count from 0, += "
        "[x] "
        "appends\n"
        "config: command line: env.rewards.0.name.x: 'x' is inside a value that is neither a map "
        "nor a list\n"
        "config: command line: data.files.0: + adds a key to an open map, and this is not one; "
        "write "
        "data.files.0=...\n"
        "config: command line: nothing: no such option\n"
        "config: command line: '(not UTF-8)': the value is not YAML: not UTF-8\n"
        "config: command line: quite.unlike: no such option");
}

TEST(config_wrong_words_of_a_command_line_are_faults)
{
    case_options o;
    ares_config *cfg = case_new(&o);
    const char *argv[] = { MODEL,      "train.yaml",     "word",           "--worker.rollot.n",
                           "3",        "--trainer.name", "--data.shuffle", "--x",
                           "--config", "/no/such.yaml",  "--config" };
    ares_config_read_args(cfg, ARES_COUNT(argv), argv);
    ares_config_resolve(cfg);
    CHECK_EQ(ares_config_finish(cfg), ARES_ECONFIG);
    CHECK_STR(
        ares_error_message(),
        "config: command line: 'train.yaml': not an override; did you mean --config train.yaml?\n"
        "config: command line: 'word': neither an option (key=value) nor --config FILE\n"
        "config: command line: --worker.rollot.n: no such option; did you mean "
        "'worker.rollout.n'?\n"
        "config: command line: --trainer.name: needs a value\n"
        "config: command line: --x: no such option\n"
        "config: command line: --config: needs a file\n"
        "config: --config /no/such.yaml: file: '/no/such.yaml': cannot be opened: No such file or "
        "directory");
    CHECK_EQ(ares_error_exit_code(ARES_ECONFIG), 2);
    ares_config_free(cfg);
}

TEST(config_an_unreadable_file_does_not_make_required_options_missing)
{
    CHECK_FAULTS(
        "worker: [", "worker.rollout.n=0",
        "config: a.yaml:2: column 1: not YAML: did not find expected node content, while parsing a "
        "flow node\n"
        "config: command line: worker.rollout.n = 0: must be in [1,)");
    CHECK_FAULTS(
        "worker:\n  model_path: ???\n", NULL,
        "config: a.yaml:2: worker.model_path: required, and not set (the model); set it in a file "
        "or as worker.model_path=...");
    CHECK_FAULTS("env:\n  kwargs:\n    a:\n    - ???\n", MODEL,
                 "config: a.yaml:4: env.kwargs.a.0: required, and not set");
}

#define ENTRY_COMMON(X)                                      \
    X(text, name, "name", "???", "nonempty", "of the entry") \
    X(f64, weight, "weight", "1", "[0,)", "of the entry")
#define ENTRY_OWN(X) X(text, pattern, "match.pattern", "null", "", "regular expression")
ARES_OPTION_STRUCT(entry_common, ENTRY_COMMON);
ARES_OPTION_STRUCT(entry_own, ENTRY_OWN);
static ares_option_table entry_common_table, entry_own_table;
static ARES_OPTION_TABLE(entry_common_table, entry_common,
                         ENTRY_COMMON) static ARES_OPTION_TABLE(entry_own_table, entry_own,
                                                                ENTRY_OWN)

    TEST(config_entries_of_a_table_carry_their_own_options)
{
    case_options o;
    ares_config *cfg =
        case_read(&o,
                  "env:\n  rewards:\n  - name: format\n    match: {pattern: a+, flags: 1}\n"
                  "  - {weight: -1, nam: exact}\n  - 3\n",
                  MODEL);
    entry_common common[3];
    entry_own own;
    ares_config_bind(cfg, "env.rewards.0", entry_common_table, &common[0]);
    ares_config_bind(cfg, "env.rewards.0", entry_own_table, &own);
    ares_config_bind(cfg, "env.rewards.1", entry_common_table, &common[1]);
    ares_config_bind(cfg, "env.rewards.2", entry_common_table, &common[2]);
    CHECK_STR(common[0].name, "format");
    CHECK_NEAR(common[0].weight, 1, 0);
    CHECK_STR(own.pattern, "a+");
    CHECK_NEAR(common[1].weight, 1, 0);
    CHECK_EQ(ares_config_finish(cfg), ARES_ECONFIG);
    CHECK_STR(
        ares_error_message(),
        "config: a.yaml:4: env.rewards.0.match.flags: no such option (options there: name, weight, "
        "match.pattern)\n"
        "config: a.yaml:5: env.rewards.1.name: required, and not set (of the entry); set it in a "
        "file or as "
        "env.rewards.1.name=...\n"
        "config: a.yaml:5: env.rewards.1.weight = -1: must be in [0,)\n"
        "config: a.yaml:5: env.rewards.1.nam: no such option; did you mean 'env.rewards.1.name'?\n"
        "config: a.yaml:6: env.rewards.2 = 3: must be a map of options");
    ares_config_free(cfg);
}

TEST(config_relation_faults_carry_the_place_of_the_option)
{
    case_options o;
    ares_config *cfg = case_read(&o, "worker:\n  rollout:\n    n: 1\n", MODEL);
    ares_config_fault(cfg, "worker.rollout.n", "%s compares responses; set %d or more", "grpo", 2);
    CHECK_EQ(ares_config_finish(cfg), ARES_ECONFIG);
    CHECK_STR(ares_error_message(),
              "config: a.yaml:3: worker.rollout.n = 1: grpo compares responses; set 2 or more");
    ares_config_free(cfg);
}

TEST(config_print_reads_back_as_the_same_configuration)
{
    case_options o, again;
    ares_config *cfg =
        case_read(&o,
                  "trainer: {name: \"a \\\"b\\\"\\n\\u0085\\u2028 \\\\${x\\\\\\\\\\\\${y}\"}\n"
                  "env: {kwargs: {yes: 'yes', '1': '1', n: null, t: 'true', e: '', q: '?\?\?', l: "
                  "[[1, [2]], {a: []}],"
                  " 'odd: key': ' x ', '<<': y, '-': '-'}}\n",
                  MODEL "|trainer.dir=${trainer.name}|worker.score=1e-3");
    REQUIRE_OK(ares_config_finish(cfg));
    CHECK_STR(o.name, "a \"b\"\n\xC2\x85\xE2\x80\xA8 ${x\\${y}");
    ares_str once = { 0 }, twice = { 0 };
    ares_config_print(cfg, &once);
    ares_config *copy = case_read(&again, once.data, NULL);
    REQUIRE_OK(ares_config_finish(copy));
    ares_config_print(copy, &twice);
    CHECK_STR(twice.data, once.data);
    CHECK_STR(again.name, o.name);
    CHECK_STR(again.dir, o.name);
    ares_str a = { 0 }, b = { 0 };
    ares_json_write(&a, o.kwargs);
    ares_json_write(&b, again.kwargs);
    CHECK_STR(b.data, a.data);
    CHECK_STR(a.data, "{\"depth\":1,\"yes\":\"yes\",\"1\":\"1\",\"n\":null,\"t\":\"true\",\"e\":"
                      "\"\",\"q\":\"???\","
                      "\"l\":[[1,[2]],{\"a\":[]}],\"odd: key\":\" x \",\"<<\":\"y\",\"-\":\"-\"}");
    ares_str_fini(&a);
    ares_str_fini(&b);
    ares_str_fini(&once);
    ares_str_fini(&twice);
    ares_config_free(cfg);
    ares_config_free(copy);
}

/* A suggestion is a misspelling, or a name with sections left out, and never another option. */
TEST(config_suggests_no_other_option)
{
    static const struct {
        const char *word, *said;
    } cases[] = {
        { "rollout.n", "; did you mean 'worker.rollout.n'?" },
        { "top_pp", "; did you mean 'worker.rollout.top_p'?" },
        { "worker.top_p", "; did you mean 'worker.rollout.top_p'?" },
        { "other.n", "" },
        { "multi_turn.shuffle", "" },
        { "reward_model.mode", "" },
        { "temp", "" },
    };
    char fault[200];
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        case_options o;
        char words[100];
        snprintf(words, sizeof words, MODEL "|%s=1", cases[i].word);
        snprintf(fault, sizeof fault, "config: command line: %s: no such option%s", cases[i].word,
                 cases[i].said);
        ares_config *cfg = case_read(&o, NULL, words);
        CHECK_EQ(ares_config_finish(cfg), ARES_ECONFIG);
        CHECK_STR(ares_error_message(), fault);
        ares_config_free(cfg);
    }
}

TEST(config_help_shows_every_option_and_is_itself_a_configuration)
{
    case_options o;
    ares_config *cfg = case_new(&o);
    ares_str help = { 0 };
    CHECK_OK(ares_config_help(cfg, "worker.rollout", &help));
    CHECK_STR(help.data, "worker:\n"
                         "  rollout:\n"
                         "    # samples per prompt (integer, in [1,))\n"
                         "    n: 1\n"
                         "    # tokens kept (integer, -1 or in [1,))\n"
                         "    top_k: -1\n"
                         "    # tokens (integer, in [1,), or null)\n"
                         "    max_len: null\n"
                         "    # 0 is greedy (number, in [0,))\n"
                         "    temperature: 1.0\n"
                         "    # of the nucleus (number, in (0,1])\n"
                         "    top_p: 1.0\n");
    ares_str_clear(&help);
    CHECK_OK(ares_config_help(cfg, "algorithm.mode", &help));
    CHECK_STR(help.data,
              "algorithm:\n  # how to average (token-mean, seq-mean, none)\n  mode: token-mean\n");
    /* a part of a name or a text, and another trainer's word */
    static const char *const words[] = { "MODE", "to average", "ode" };
    for (int i = 0; i < ARES_COUNT(words); i++) {
        ares_str_clear(&help);
        CHECK_OK(ares_config_help(cfg, words[i], &help));
        CHECK_CONTAINS(help.data,
                       "algorithm:\n  # how to average (token-mean, seq-mean, none)\n  mode: ");
        CHECK(!strstr(help.data, "max_len"));
    }
    ares_str_clear(&help);
    CHECK_OK(ares_config_help(cfg, "num_generations", &help));
    CHECK_STR(help.data, "worker:\n  rollout:\n    # samples per prompt (integer, in [1,))\n"
                         "    n: 1\n");
    /* words that lead to no option, or to one of several */
    static const char *const other[][2] = {
        { "fp16", "# fp16: refused: set the dtype\n" },
        { "beta", "# beta: worker.score, where algorithm.estimator=grpo\n"
                  "# beta: worker.rollout.temperature, where algorithm.estimator=rloo\n\n"
                  "worker:\n  optim:\n    # of AdamW (list of numbers, in [0,1), 2 items)\n"
                  "    betas: [0.9, 0.999]\n" },
        { "both", "# both: worker.rollout.n&worker.rollout.max_len\n" },
    };
    for (int i = 0; i < ARES_COUNT(other); i++) {
        ares_str_clear(&help);
        CHECK_OK(ares_config_help(cfg, other[i][0], &help));
        CHECK_STR(help.data, other[i][1]);
    }
    CHECK_FAIL(ares_config_help(cfg, "worker.rolout", &help), ARES_ECONFIG,
               "config: worker.rolout: no option has this in its name or text");
    ares_str_clear(&help);
    CHECK_OK(ares_config_help(cfg, NULL, &help));
    int n;
    const ares_option *options = case_table(&n);
    for (int i = 0; i < n; i++) CHECK_CONTAINS(help.data, options[i].doc);
    ares_config_free(cfg);
    cfg = case_read(&o, help.data, MODEL);
    CHECK_OK(ares_config_finish(cfg));
    CHECK_STR(o.dir, "runs/demo");
    ares_str_fini(&help);
    ares_config_free(cfg);
}

TEST(config_survives_the_fuzzers_corpus)
{
    const char *folder = test_source("tests/fuzz/corpus/config");
    DIR *dir = opendir(folder);
    REQUIRE(dir);
    int files = 0;
    ares_str path = { 0 };
    for (struct dirent *e; (e = readdir(dir));) {
        ares_str text = { 0 };
        if (e->d_name[0] == '.' ||
            !CHECK_OK(ares_file_read(ares_path_join(&path, folder, e->d_name), &text)))
            continue;
        fuzz_config_once((const uint8_t *)ares_str_view(&text).data, text.len);
        ares_str_fini(&text);
        files++;
    }
    CHECK(files >= 40);
    closedir(dir);
    ares_str_fini(&path);
}
