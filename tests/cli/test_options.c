/* The command lines of the verbs: one parser, one --help, the same messages. */
#include <stdio.h>

#include "cli.h"
#include "test.h"

static const char *text, *choice, *optional;
static bool flag;
static int64_t number, least, most, any;
static double real;

static const char *const colours[] = { "red", "green", NULL };
static const cli_option options[] = {
    CLI_OPTION(TEXT, text, "--text", "TEXT", "a text"),
    CLI_OPTION(TEXT, choice, "--choice", "red|green", "a choice", .choices = colours),
    CLI_OPTION(OPTIONAL, optional, "--optional", "[TEXT]", "may stand alone"),
    CLI_OPTION(FLAG, flag, "--flag", NULL, "a flag"),
    CLI_OPTION(I64, number, "--number", "N", "one to nine", .least = 1, .most = 9),
    CLI_OPTION(F64, real, "--real", "X", "any number"),
    CLI_OPTION(I64, least, "--least", "N", "two or more", .least = 2, .most = INT64_MAX),
    CLI_OPTION(I64, most, "--most", "N", "up to three", .most = 3),
    CLI_OPTION(I64, any, "--any", "N", "any whole number"),
    { .name = "key=value", .type = CLI_PASSED, .doc = "passed on" },
    { .name = "--passed", .type = CLI_PASSED, .value = "X", .doc = "passed on" },
};

/* Reads a line of words into the variables above; left: the words left over, between blanks. */
static int reads(cli_words words, const char *line, ares_str *left)
{
    static char copy[256];
    char *argv[16] = { "verb" }, *save = NULL;
    int argc = 1;
    bool helped;
    const cli_command command = {
        .name = "verb", .options = options, .n_options = ARES_COUNT(options), .words = words
    };
    text = choice = optional = NULL;
    flag = false;
    number = least = most = any = 0;
    real = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) argv[argc++] = w;
    int rc = cli_read(&command, &argc, argv, &helped);
    ares_str_clear(left);
    for (int i = 1; rc == ARES_OK && i < argc; i++) ares_str_addf(left, "%s ", argv[i]);
    return rc;
}

TEST(an_option_takes_the_next_word_or_what_follows_its_equals_sign)
{
    ares_str left = { 0 };
    REQUIRE_OK(reads(CLI_NO_WORDS, "--text a=b --number 7 --real 1e-3 --flag", &left));
    CHECK_STR(text, "a=b");
    CHECK_EQ(number, 7);
    CHECK_NEAR(real, 1e-3, 0);
    CHECK(flag);
    REQUIRE_OK(reads(CLI_NO_WORDS, "--text=--flag --number=9 --real=-2 --choice=green", &left));
    CHECK_STR(text, "--flag");
    CHECK_STR(choice, "green");
    CHECK_EQ(number, 9);
    CHECK_NEAR(real, -2, 0);
    CHECK(!flag && !optional);
    ares_str_fini(&left);
}

TEST(an_optional_value_is_no_option_and_no_override)
{
    ares_str left = { 0 };
    REQUIRE_OK(reads(CLI_OVERRIDES, "--optional some.prefix a=1", &left));
    CHECK_STR(optional, "some.prefix");
    CHECK_STR(left.data, "a=1 ");
    REQUIRE_OK(reads(CLI_OVERRIDES, "--optional a=1", &left));
    CHECK_STR(optional, "");
    REQUIRE_OK(reads(CLI_OVERRIDES, "--optional --flag", &left));
    CHECK_STR(optional, "");
    CHECK(flag);
    REQUIRE_OK(reads(CLI_OVERRIDES, "--optional=x", &left));
    CHECK_STR(optional, "x");
    ares_str_fini(&left);
}

TEST(words_that_are_no_options_go_where_the_verb_says)
{
    ares_str left = { 0 };
    REQUIRE_OK(reads(CLI_WORDS, "a --flag b=c --number 1 -", &left));
    CHECK_STR(left.data, "a b=c - ");
    CHECK_FAIL(reads(CLI_WORDS, "a --flga", &left), ARES_EUSE,
               "verb: '--flga': no such option; did you mean '--flag'? (see ares-train verb "
               "--help)");
    CHECK_FAIL(reads(CLI_NO_WORDS, "a", &left), ARES_EUSE,
               "verb: 'a': no such option (see ares-train verb --help)");
    REQUIRE_OK(reads(CLI_OVERRIDES, "--a.b c --flag ~d --flga=1", &left));
    CHECK_STR(left.data, "--a.b c ~d --flga=1 ");
    ares_str_fini(&left);
}

TEST(a_wrong_value_is_named_with_its_option)
{
    ares_str left = { 0 };
    CHECK_FAIL(reads(CLI_NO_WORDS, "--number x", &left), ARES_EUSE,
               "verb: --number = 'x': not a whole number");
    CHECK_FAIL(reads(CLI_NO_WORDS, "--number=10", &left), ARES_EUSE,
               "verb: --number = 10: out of range; set 1 to 9");
    CHECK_FAIL(reads(CLI_NO_WORDS, "--real 1x", &left), ARES_EUSE,
               "verb: --real = '1x': not a number");
    CHECK_FAIL(reads(CLI_NO_WORDS, "--choice gren", &left), ARES_EUSE,
               "verb: --choice = 'gren': unknown; did you mean 'green'? (choices: red, green)");
    CHECK_FAIL(reads(CLI_NO_WORDS, "--text", &left), ARES_EUSE,
               "verb: --text needs a value (see ares-train verb --help)");
    CHECK_FAIL(reads(CLI_NO_WORDS, "--flag=1", &left), ARES_EUSE, "verb: --flag takes no value");
    ares_str_fini(&left);
}

TEST(whole_numbers_have_the_bounds_of_their_option)
{
    static const struct {
        const char *line;
        const int64_t *into;
        int64_t value;
        const char *why; /* NULL: it is taken */
    } cases[] = {
        { "--number 1", &number, 1, NULL },
        { "--number 9", &number, 9, NULL },
        { "--number 0", &number, 0, "--number = 0: out of range; set 1 to 9" },
        { "--number -5", &number, 0, "--number = -5: out of range; set 1 to 9" },
        { "--number=1.0", &number, 0, "--number = '1.0': not a whole number" },
        { "--number=", &number, 0, "--number = '': not a whole number" },
        { "--least 2", &least, 2, NULL },
        { "--least 9223372036854775807", &least, INT64_MAX, NULL },
        { "--least 1", &least, 0, "--least = 1: out of range; set 2 or more" },
        { "--most 0", &most, 0, NULL },
        { "--most 3", &most, 3, NULL },
        { "--most 4", &most, 0, "--most = 4: out of range; set 0 to 3" },
        { "--most -1", &most, 0, "--most = -1: out of range; set 0 to 3" },
        { "--any -7", &any, -7, NULL },
        { "--any 7 --any=8", &any, 8, NULL }, /* the later one */
        { "--anyway 7", &any, 0, "'--anyway': no such option (see" },
        { "--an=7", &any, 0, "'--an=7': no such option; did you mean '--any'?" },
        { "--any", &any, 0, "--any needs a value" },
        { "--completely-else", &any, 0, "'--completely-else': no such option (see" },
        { "key=1", &any, 0, "'key=1': no such option (see" },
    };
    ares_str left = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        int rc = reads(CLI_NO_WORDS, cases[i].line, &left);
        if (cases[i].why) CHECK_FAIL(rc, ARES_EUSE, cases[i].why);
        else CHECK_OK(rc);
        CHECK_EQ(*cases[i].into, cases[i].value);
    }
    REQUIRE_OK(reads(CLI_OVERRIDES, "--optional", &left));
    CHECK_STR(optional, "");
    REQUIRE_OK(reads(CLI_OVERRIDES, "--optional -1", &left));
    CHECK_STR(optional, "");
    CHECK_STR(left.data, "-1 ");
    /* what is passed on goes with the other words, also where the verb takes no dashes */
    REQUIRE_OK(reads(CLI_OVERRIDES, "--passed x --flag key=1", &left));
    CHECK_STR(left.data, "--passed x key=1 ");
    ares_str_fini(&left);
}

TEST(a_misspelt_option_is_told_from_a_word_of_the_configuration)
{
    static const cli_command command = { .name = "verb",
                                         .options = options,
                                         .n_options = ARES_COUNT(options) };
    CHECK_OK(cli_check_typo(&command, "--flag"));
    CHECK_OK(cli_check_typo(&command, "--passed=x"));
    CHECK_OK(cli_check_typo(&command, "--something.else=1"));
    CHECK_FAIL(cli_check_typo(&command, "--pased=x"), ARES_EUSE,
               "verb: '--pased=x': no such option; did you mean '--passed'?");
}

TEST(control_characters_are_shown_as_what_they_are)
{
    static const struct {
        const char *text, *safe;
    } cases[] = {
        { "a\tb\nc", "a\tb\nc" },
        { "\001\037 ~\177", "\\x01\\x1f ~\\x7f" },
        { "\r\033[2J", "\\x0d\\x1b[2J" },
        /* C1 controls in UTF-8, and what stands beside them: a no-break space, letters */
        { "\xc2\x80\xc2\x9f\xc2\xa0", "\\u0080\\u009f\xc2\xa0" },
        { "\xc3\x80\xc2", "\xc3\x80\xc2" },
        { "\xc2\x7fz", "\xc2\\x7fz" },
    };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str_clear(&out);
        cli_add_safe(&out, ares_view_of(cases[i].text));
        CHECK_STR(out.data, cases[i].safe);
    }
    ares_str_fini(&out);
}

TEST(one_option_is_taken_out_of_the_others)
{
    char *argv[] = { "train", "a=1", "--number=3", "--text", "b", NULL };
    int argc = 5;
    REQUIRE_OK(cli_take("verb", &options[4], &argc, argv));
    CHECK_EQ(number, 3);
    CHECK_EQ(argc, 4);
    CHECK_STR(argv[2], "--text");
    CHECK(!argv[4]);
    /* also as the first and as two words, and not what begins like it */
    char *more[] = { "--number", "4", "--numbers=5", "--number=6", NULL };
    argc = 4;
    REQUIRE_OK(cli_take("verb", &options[4], &argc, more));
    CHECK_EQ(number, 6);
    CHECK_EQ(argc, 1);
    CHECK_STR(more[0], "--numbers=5");
    CHECK(!more[1]);
    char *last[] = { "a", "--number", NULL };
    argc = 2;
    CHECK_FAIL(cli_take("verb", &options[4], &argc, last), ARES_EUSE, "--number needs a value");
}

/* ---------------- as users type them */
static int program(ares_str *out, const char *verb, const char *words)
{
    ares_str_clear(out);
    return test_shell(out, "'%s' %s %s </dev/null 2>&1", test_program(), verb, words);
}

TEST(help_of_every_verb_shows_usage_options_and_an_example)
{
    ares_str out = { 0 };
    int n;
    const char *const *verbs = cli_verbs(&n);
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    for (int i = 0; i < n; i++) {
        char usage[64];
        snprintf(usage, sizeof usage, "usage: ares-train %s ", verbs[i]);
        CHECK_EQ(program(&out, verbs[i], "--help"), 0);
        CHECK_CONTAINS(out.data, usage);
        CHECK_CONTAINS(out.data, "\nexample:\n  ");
        /* completion has none */
        CHECK(strcmp(verbs[i], "completion") == 0 || strstr(out.data, "\n  --"));
        for (const char *line = out.data; *line;) {
            size_t length = strcspn(line, "\n");
            bool sample =
                strncmp(line, "  ares-train ", 13) == 0 || strncmp(line, "  echo ", 7) == 0;
            CHECK_MSG(length <= 100 || sample || strncmp(verbs[i], "grade", 5) == 0, "%s: %.*s",
                      verbs[i], (int)length, line);
            line += length + (line[length] != 0);
        }
    }
    CHECK_EQ(program(&out, "generate", "-h"), 0);
    CHECK_CONTAINS(out.data, "tokens of an answer at most (default 128)\n");
    ares_str_fini(&out);
}

TEST(every_verb_names_the_nearest_option)
{
    static const struct {
        const char *words, *near;
    } cases[] = {
        { "--chek", "--check" },
        { "--print-confg", "--print-config" },
        { "--rank 2", "--ranks" },
        { "train --forc", "--force" },
        { "sft --confg x.yaml", "--config" },
        { "eval --ouput=x", "--output" },
        { "init --hiden 3", "--hidden" },
        { "generate --max_new_token=3", "--max-new-tokens" },
        { "score --inputs x", "--input" },
        { "tokenize --offset", "--offsets" },
        { "detokenize --modle x", "--model" },
        { "render --span", "--spans" },
        { "grade --verifer number", "--verifier" },
        { "play --sed 1", "--seed" },
        { "compare --metrics x a", "--metric" },
    };
    ares_str out = { 0 };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char near[64];
        snprintf(near, sizeof near, "did you mean '%s'?", cases[i].near);
        int rc = program(&out, cases[i].words, "");
        CHECK_MSG(rc == 2, "%s: exit code %d", cases[i].words, rc);
        CHECK_CONTAINS(out.data, near);
    }
    /* a word of the configuration or of another trainer is no misspelt option */
    CHECK_EQ(program(&out, "--output_dir=x", "--check"), 2);
    CHECK(!strstr(out.data, "'--output'"));
    CHECK_EQ(program(&out, "train --output x", "--check"), 2);
    CHECK_CONTAINS(out.data, "--output: no such option");
    ares_str_fini(&out);
}

TEST(numbers_of_sampling_and_of_threads_have_bounds)
{
    static const struct {
        const char *verb, *words, *why;
    } cases[] = {
        { "generate", "--threads -1", "--threads = -1: out of range; set 0 to 65536" },
        { "score", "--threads=-1", "--threads = -1: out of range; set 0 to 65536" },
        { "generate", "--top-k -2", "--top-k = -2: out of range; set -1 to 1073741824" },
        { "generate", "--top-k 4294967297", "--top-k = 4294967297: out of range" },
        { "generate", "--max-new-tokens 0", "--max-new-tokens = 0: out of range" },
        { "generate", "--n 0", "--n = 0: out of range" },
        { "generate", "--image x.png", "--image and --video go with --prompt" },
        { "generate", "--video x.mp4", "--image and --video go with --prompt" },
    };
    ares_str out = { 0 };
    char words[64];
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        snprintf(words, sizeof words, "--model /none %s", cases[i].words);
        CHECK_EQ(program(&out, cases[i].verb, words), 2);
        CHECK_CONTAINS(out.data, cases[i].why);
    }
    ares_str_fini(&out);
}

TEST(ranks_are_a_number)
{
    ares_str out = { 0 };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    CHECK_EQ(program(&out, "--ranks=0", "--check"), 2);
    CHECK_CONTAINS(out.data, "train: --ranks = 0: out of range; set 1 to 4096");
    CHECK_EQ(program(&out, "eval", "--ranks"), 2);
    CHECK_CONTAINS(out.data, "eval: --ranks needs a value");
    ares_str_fini(&out);
}
