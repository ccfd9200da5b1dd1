/* ares-golden itself: that it can fail, and how it reads layouts, tolerances and lists. */
#include "test.h"

#include <stdio.h>

static const char program[] = ARES_BINARY_DIR "/ares-golden";

/* Runs it on a file aepo.json with this text; returns its exit status. */
static int run(const char *text, const char *options, ares_str *out)
{
    ares_str_clear(out);
    CHECK_OK(ares_file_write(test_file("aepo.json"), text, strlen(text)));
    return test_shell(out, "cd '%s' && '%s' aepo.json %s", test_dir(), program, options);
}

static void list(const char *lines)
{
    CHECK_OK(ares_file_write(test_file("list"), lines, strlen(lines)));
}

#define WARM(step, decision)                                           \
    "{\"function\":\"lr_factor_constant\",\"inputs\":{\"step\":" #step \
    ",\"warmup\":4},\"expected\":{\"decision\":" #decision "}}"

TEST(ares_golden_counts_what_holds_and_says_what_does_not)
{
    ares_str out = { 0 };
    if (!ares_file_exists(program)) SKIP("ares-golden is not built");
    CHECK_EQ(run("{\"_header\":{\"what\":\"x\"},\"a\":" WARM(2, 0.5) ",\"b\":" WARM(3, 0.75) "}",
                 "", &out),
             0);
    CHECK_STR(out.data, "2 passed, 0 failed, 0 unknown\n");
    CHECK_EQ(run("{\"cases\":[" WARM(2, 0.5) "," WARM(3, 0.76) "]}", "", &out), 1);
    CHECK_STR(out.data,
              "FAIL aepo/lr_factor_constant case 1: factor is 0.75, expected 0.76 (off by 0.01)\n1 "
              "passed, 1 failed, 0 unknown\n");
    CHECK_EQ(run("{\"cases\":[{\"function\":\"lr_factor_constant\",\"inputs\":{\"step\":2},"
                 "\"expected\":{"
                 "\"decision\":1}}]}",
                 "", &out),
             1);
    CHECK_CONTAINS(out.data, "the case has no inputs.warmup");
    CHECK_EQ(run("{\"about\":\"a table\",\"words\":[1,2]}", "", &out), 0);
    CHECK_STR(out.data, "0 passed, 0 failed, 0 unknown\n");
    CHECK_EQ(run("{\"cases\":[", "", &out), 1);
    CHECK_CONTAINS(out.data, "aepo.json:1:");
    CHECK_EQ(run("{}", "--nly x", &out), 2);
    ares_str_fini(&out);
}

TEST(ares_golden_takes_each_spelling_of_a_tolerance)
{
    static const char *const loose[] = { "\"tolerance\":0.02", "\"tol\":0.02", "\"rel_tol\":0.02",
                                         "\"abs_tol\":0.02" };
    ares_str out = { 0 };
    if (!ares_file_exists(program)) SKIP("ares-golden is not built");
    for (int i = 0; i < ARES_COUNT(loose); i++)
        for (int off = 0; off < 2; off++) {
            char text[300];
            snprintf(text, sizeof text,
                     "{\"cases\":[{\"function\":\"lr_factor_constant\",\"inputs\":{\"step\":3,"
                     "\"warmup\":4},"
                     "\"expected\":{\"decision\":%s},%s}]}",
                     off ? "0.80" : "0.76", loose[i]);
            CHECK_EQ(run(text, "", &out), off);
        }
    CHECK_EQ(
        run("{\"_header\":{\"default_tolerance\":{\"float64_implementation\":0.02}},\"a\":" WARM(
                3, 0.76) "}",
            "", &out),
        0);
    CHECK_EQ(
        run("{\"_header\":{\"default_tolerance\":{\"float64_implementation\":0.002}},\"a\":" WARM(
                3, 0.76) "}",
            "", &out),
        1);
    ares_str_fini(&out);
}

TEST(ares_golden_fails_on_functions_unknown_and_unlisted)
{
    static const char text[] = "{\"a\":" WARM(
        2, 0.5) ",\"b\":{\"function\":\"no_such\",\"inputs\":{},\"expected\":1},\"c\":{"
                "\"function\":\"no_such\",\"inputs\":{},\"expected\":2}}";
    ares_str out = { 0 };
    if (!ares_file_exists(program)) SKIP("ares-golden is not built");
    CHECK_EQ(run(text, "", &out), 1);
    CHECK_STR(out.data, "UNKNOWN aepo/no_such\n1 passed, 0 failed, 2 unknown\n");
    list("# to come\nother\naepo/no_such # later\n");
    CHECK_EQ(run(text, "--allow-unknown list", &out), 0);
    CHECK_STR(out.data, "1 passed, 0 failed, 2 unknown\n");
    list("dapo/no_such\n");
    CHECK_EQ(run(text, "--allow-unknown list", &out), 1);
    CHECK_EQ(run(text, "--only lr_factor_constant", &out), 0);
    CHECK_STR(out.data, "1 passed, 0 failed, 0 unknown\n");
    CHECK_EQ(run(text, "--allow-unknown missing", &out), 1);
    ares_str_fini(&out);
}
