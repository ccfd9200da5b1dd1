/*
 * The table at the end of a run, from files written by hand. The first test fails where long texts
 * are cut at their end.
 */
#include "run/run.h"
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static void put(const char *name, const char *text)
{
    CHECK_OK(ares_file_write_atomic(test_file(name), text, strlen(text)));
}

TEST(the_summary_shows_where_answers_begin_and_end)
{
    ares_str text = { 0 };
    REQUIRE_OK(ares_dir_make(test_file("run/validation")));
    REQUIRE_OK(ares_dir_make(test_file("run/checkpoints/step_000002")));
    put("run/metrics.jsonl", "{\"step\":0,\"val/accuracy\":0.25}\n{\"step\":1}\n{\"step\":2,\"val/"
                             "accuracy\":0.5,\"val/aepo/tau\":0.3}\n");
    put("run/validation/step_000000.jsonl",
        "{\"question\":\"1+2=?\",\"response\":\"a short one\"}\n{\"question\":\"what is the sum of "
        "three and four, please?\",\"response\":\"it takes\\nthe line to 43: "
        "3456789012345678\"}\n");
    put("run/validation/step_000002.jsonl",
        "{\"question\":\"1+2=?\",\"response\":\"First 1 + 2 = 3\\nThen 3 + 4 = 7\\nThen 7 + 5 = "
        "12\\n\\\\boxed{12}\"}\n"
        "{\"question\":\"what is the sum of three and four, "
        "please?\",\"response\":"
        "\"\xe4\xb8\x80\xe4\xba\x8c\xe4\xb8\x89\xe5\x9b\x9b\xe4\xba\x94\xe5\x85\xad\xe4\xb8\x83\xe5"
        "\x85\xab\xe4\xb9\x9d\xe5\x8d\x81\xe4\xb8\x80\xe4\xba\x8c\xe4\xb8\x89\xe5\x9b\x9b\xe4\xba"
        "\x94\xe5\x85\xad\xe4\xb8\x83\xe5\x85\xab\xe4\xb9\x9d\xe5\x8d\x81\xe4\xb8\x80\xe4\xba\x8c"
        "\xe4\xb8\x89\"}\n");
    REQUIRE_OK(run_summary(test_file("run"), NULL));
    REQUIRE_OK(ares_file_read(test_file("run/summary.txt"), &text));
    CHECK_CONTAINS(text.data, "1+2=?                               a short one                     "
                              "            First 1 + 2 = 3 Then \xe2\x80\xa6"
                              "7 + 5 = 12 \\boxed{12} \n");
    CHECK_CONTAINS(text.data, "what is the sum of three and four,\xe2\x80\xa6 it takes the line to "
                              "43: 3456789012345678   ");
    /* ten characters two columns wide, the dots, ten more */
    CHECK_CONTAINS(text.data, "\xe4\xb9\x9d\xe5\x8d\x81\xe2\x80\xa6");
    CHECK_CONTAINS(text.data, "val/accuracy                                     0.250     0.500\n");
    CHECK(!strstr(text.data, "tau"));
    ares_str_fini(&text);
}

TEST(the_summary_of_a_run_that_was_not_validated_before_has_one_column)
{
    ares_str text = { 0 };
    REQUIRE_OK(ares_dir_make(test_file("run/checkpoints/step_000002")));
    put("run/metrics.jsonl", "{\"step\":1,\"val/accuracy\":0.25}\n"
                             "{\"step\":2,\"val/accuracy\":0.5,\"val/self.threshold\":0.3}\n");
    REQUIRE_OK(run_summary(test_file("run"), NULL));
    REQUIRE_OK(ares_file_read(test_file("run/summary.txt"), &text));
    CHECK_CONTAINS(text.data, "val/accuracy                                               0.500\n");
    CHECK(!strstr(text.data, "threshold"));
    ares_str_fini(&text);
}

/* The linker replaces read by this: a disk that fails after the first piece of a file. */
static bool disk_fails;

ssize_t __real_read(int fd, void *out, size_t n);
ssize_t __wrap_read(int fd, void *out, size_t n);

ssize_t __wrap_read(int fd, void *out, size_t n)
{
    if (!disk_fails || lseek(fd, 0, SEEK_CUR) <= 0) return __real_read(fd, out, n);
    errno = EIO;
    return -1;
}

TEST(the_summary_has_no_numbers_of_a_file_that_cannot_be_read_to_its_end)
{
    ares_str text = { 0 };
    REQUIRE_OK(ares_dir_make(test_file("run/checkpoints/step_000002")));
    REQUIRE_OK(ares_dir_make(test_file("run/validation")));
    put("run/metrics.jsonl", "{\"step\":2,\"val/accuracy\":0.5}\n");
    put("run/validation/step_000000.jsonl", "{\"question\":\"1+2=?\",\"response\":\"3\"}\n");
    put("run/validation/step_000002.jsonl", "{\"question\":\"1+2=?\",\"response\":\"4\"}\n");
    for (int i = 0; i < 2; i++) {
        disk_fails = i == 1;
        int rc = run_summary(test_file("run"), NULL);
        disk_fails = false;
        REQUIRE_OK(rc);
        REQUIRE_OK(ares_file_read(test_file("run/summary.txt"), &text));
        CHECK_CONTAINS(text.data, "run directory");
        CHECK_EQ(strstr(text.data, "accuracy") != NULL, i == 0);
        CHECK_EQ(strstr(text.data, "1+2=?") != NULL, i == 0);
    }
    ares_str_fini(&text);
}

TEST(the_summary_shows_ten_questions_from_all_over_the_validation_rows)
{
    ares_str rows = { 0 }, text = { 0 };
    char question[40];
    REQUIRE_OK(ares_dir_make(test_file("run/validation")));
    REQUIRE_OK(ares_dir_make(test_file("run/checkpoints/step_000002")));
    for (int i = 0; i < 25; i++)
        ares_str_addf(&rows, "{\"question\":\"question %02d.\",\"response\":\"x\"}\n", i);
    put("run/validation/step_000000.jsonl", rows.data);
    put("run/validation/step_000002.jsonl", rows.data);
    REQUIRE_OK(run_summary(test_file("run"), NULL));
    REQUIRE_OK(ares_file_read(test_file("run/summary.txt"), &text));
    for (int i = 0; i < 25; i++) {
        snprintf(question, sizeof question, "question %02d.", i);
        bool wanted = i % 5 == 0 || i % 5 == 2; /* 0, 2, 5, 7, .. */
        CHECK_MSG((strstr(text.data, question) != NULL) == wanted, "%s is %sexpected", question,
                  wanted ? "" : "not ");
    }
    ares_str_fini(&rows);
    ares_str_fini(&text);
}

/* Numbers, keys and files of every kind that a run may leave. */
TEST(the_summary_tells_results_and_leaves_out_what_is_none)
{
    static const struct {
        const char *metrics, *told[3], *not_told[3];
        bool checkpoint;
    } cases[] = {
        /* failures are told where there were some, before or after */
        { "{\"step\":0,\"val/a/failed_frac\":0,\"val/b/failed_frac\":0.5}\n"
          "{\"step\":2,\"val/a/failed_frac\":0,\"val/b/failed_frac\":0,\"val/c/failed_frac\":0,"
          "\"val/d/failed_frac\":0.25}\n",
          { "val/b/failed_frac                                0.500     0.000\n",
            "val/d/failed_frac                                          0.250\n" },
          { "val/a/", "val/c/" },
          true },
        /* without a step there is nothing to compare the first row with */
        { "{\"step\":0,\"val/accuracy\":0.5}\n",
          { "validation                                      before     after\n"
            "val/accuracy                                               0.500\n",
            "metrics        " },
          { "model  " },
          false },
        { "{\"step\":1,\"val/accuracy\":0.5}\n{\"step\":2,\"reward/accuracy\":1,\"eval/x\":3}\n",
          { "run directory  ", "/checkpoints/step_000002/model\n" },
          { "validation ", "reward/", "eval/" },
          true },
        { "{\"step\":0,\"val/accuracy\":0.5}\n{\"step\":2,\"val/accur",
          { "run directory  " },
          { "validation " },
          true },
        { "{\"step\":\"x\",\"val/accuracy\":0.5}\n",
          { "run directory  " },
          { "validation " },
          true },
        { "", { "run directory  " }, { "validation " }, true },
    };
    ares_str text = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("run")), 0);
        REQUIRE_OK(ares_dir_make(
            test_file(cases[i].checkpoint ? "run/checkpoints/step_000002" : "run/checkpoints")));
        put("run/metrics.jsonl", cases[i].metrics);
        REQUIRE_OK(run_summary(test_file("run"), NULL));
        ares_str_clear(&text);
        REQUIRE_OK(ares_file_read(test_file("run/summary.txt"), &text));
        for (int k = 0; k < 3 && cases[i].told[k]; k++) CHECK_CONTAINS(text.data, cases[i].told[k]);
        for (int k = 0; k < 3 && cases[i].not_told[k]; k++)
            CHECK_MSG(!strstr(text.data, cases[i].not_told[k]), "%s is in\n%s",
                      cases[i].not_told[k], text.data);
    }
    ares_str_fini(&text);
}

/* Fewer rows before than after, and texts that are none or have control characters. */
TEST(the_summary_shows_the_questions_that_both_validations_have)
{
    ares_str text = { 0 };
    REQUIRE_OK(ares_dir_make(test_file("run/validation")));
    REQUIRE_OK(ares_dir_make(test_file("run/checkpoints/step_000002")));
    put("run/validation/step_000000.jsonl", "{\"question\":\"old\",\"response\":\" b1\\u0001b "
                                            "\"}\n{\"question\":\"old\",\"response\":7}\n");
    put("run/validation/step_000002.jsonl",
        "{\"question\":\"one\",\"response\":\"a1\"}\n{\"question\":null,\"response\":\"a2\"}\n"
        "{\"question\":\"three\",\"response\":\"a3\"}\n{\"question\":\"fo");
    REQUIRE_OK(run_summary(test_file("run"), NULL));
    REQUIRE_OK(ares_file_read(test_file("run/summary.txt"), &text));
    CHECK_CONTAINS(text.data, "\nquestion                            before            ");
    CHECK_CONTAINS(text.data, "\none                                 b1 b              ");
    CHECK_CONTAINS(text.data, " a1  ");
    CHECK_CONTAINS(text.data, " a2  ");
    CHECK(!strstr(text.data, "old") && !strstr(text.data, "three"));
    /* nothing of a validation from before when the run has made no step */
    CHECK_EQ(test_shell(NULL, "rm -r '%s'", test_file("run/checkpoints")), 0);
    REQUIRE_OK(run_summary(test_file("run"), NULL));
    ares_str_clear(&text);
    REQUIRE_OK(ares_file_read(test_file("run/summary.txt"), &text));
    CHECK(!strstr(text.data, "question"));
    ares_str_fini(&text);
}
