/*
 * The quick start as README.md prints it, in a folder that looks like the repository, so that the
 * runs/ and models/ of the person who tests are left alone. Its last lines have the form that
 * README.md shows: the same names and lines, not the same numbers.
 */
#include "aepo_at_work.h"

#include <stdio.h>

/*
 * Makes links to what the script reads. False, and the test skipped, where build/ is not the build
 * under test.
 */
static bool make_tree(void)
{
    if (test_shell(NULL, "test '%s' -ef '%s'", ARES_BINARY_DIR, test_source("build")) != 0) {
        test_skip("the quick start builds build/, and this test belongs to another build");
        return false;
    }
    int rc = test_shell(NULL,
                        "cd '%s' && mkdir models && for name in scripts examples experiments "
                        "build; do ln -s '%s'/$name . || exit 1; done",
                        test_dir(), test_source("."));
    return CHECK_EQ(rc, 0);
}

static bool quickstart(ares_str *out, const char *words)
{
    ares_str_clear(out);
    int rc = test_shell(out, "cd '%s' && scripts/quickstart.sh %s 2>&1", test_dir(), words);
    return CHECK_MSG(rc == 0, "quickstart.sh %s: exit code %d\n%s", words, rc,
                     out->len > 900 ? out->data + out->len - 900 : out->data);
}

/*
 * Writes the form of a text: "row" for each row of questions, the name for each metric, other lines
 * unchanged.
 */
static void shape(const char *text, const char *end, ares_str *out)
{
    bool rows = false;
    ares_str_clear(out);
    for (const char *line = text; line < end;) {
        size_t n = strcspn(line, "\n");
        if (n == 0) rows = false;
        if (rows) ares_str_add_z(out, "row");
        else ares_str_add(out, line, strncmp(line, "val/", 4) == 0 ? strcspn(line, " ") : n);
        if (strncmp(line, "question ", 9) == 0) rows = true;
        ares_str_add_char(out, '\n');
        line += n + 1;
    }
}

/* The form of what the script prints from its table to the words that explain it. */
static bool table_of(const ares_str *out, ares_str *table)
{
    const char *begin = strstr(out->data, "\nquestion "),
               *end = strstr(out->data, "\nWhat was learnt: ");
    if (!CHECK_MSG(begin && end && begin < end, "no table:\n%s", out->data)) return false;
    shape(begin + 1, end, table);
    return true;
}

/* The form of README.md's table, with another run directory and step. */
static bool readme_table(const char *run_dir, int step, ares_str *table)
{
    ares_str readme = { 0 }, whole = { 0 };
    char model[100];
    static const char own[] = "runs/quickstart/aepo",
                      own_model[] = "runs/quickstart/aepo/checkpoints/step_000008/model";
    if (!CHECK_OK(ares_file_read(test_source("README.md"), &readme))) return false;
    const char *begin = strstr(readme.data, "It ends like this:\n\n```\n"),
               *end = begin ? strstr(begin + 25, "\n```\n") : NULL;
    if (!CHECK(begin && end)) return false;
    shape(strchr(begin, '`') + 4, end + 1, &whole);
    snprintf(model, sizeof model, "%s/checkpoints/step_%06d/model", run_dir, step);
    ares_str_clear(table);
    for (const char *at = whole.data; *at;) {
        bool is_model = strncmp(at, own_model, strlen(own_model)) == 0,
             is_run = !is_model && strncmp(at, own, strlen(own)) == 0;
        if (is_model || is_run) ares_str_add_z(table, is_model ? model : run_dir);
        else ares_str_add_char(table, *at);
        at += is_model ? strlen(own_model) : is_run ? strlen(own) : 1;
    }
    ares_str_fini(&readme);
    ares_str_fini(&whole);
    return true;
}

/*
 * Checks the parts that README.md shows between "...": each must be there, in this order, from the
 * first line to the last; after "..." at the end anything may follow.
 */
static void check_table(const ares_str *is, const char *readme)
{
    ares_str part = { 0 };
    const char *at = is->data;
    for (const char *dots; readme; readme = dots ? dots + 5 : NULL) {
        dots = strstr(readme, "\n...\n");
        size_t n = dots ? (size_t)(dots - readme) + 1 : strlen(readme);
        ares_str_clear(&part);
        ares_str_add(&part, readme, n);
        const char *found = strstr(at, part.data);
        while (found && found != is->data && found[-1] != '\n')
            found = strstr(found + 1, part.data);
        bool first = at == is->data, whole = found && (!first || found == is->data) &&
                                             (dots || n == 0 || strcmp(found, part.data) == 0);
        if (!CHECK_MSG(whole, "README.md shows\n%s\nwhich is not %s of\n%s", part.data,
                       first  ? "the beginning"
                       : dots ? "in the rest"
                              : "the end",
                       at))
            break;
        at = found + n;
    }
    ares_str_fini(&part);
}

/* Removes the lines that only questions of several levels have. */
static void without_levels(ares_str *table)
{
    ares_str out = { 0 };
    for (const char *line = table->data; *line;) {
        size_t n = strcspn(line, "\n") + 1;
        bool again = n == 4 && out.len >= 4 && strncmp(line, "...\n", 4) == 0 &&
                     strcmp(out.data + out.len - 4, "...\n") == 0;
        if (strncmp(line, "val/level=", 10) != 0 && !again) ares_str_add(&out, line, n);
        line += n;
    }
    ares_str_clear(table);
    ares_str_add(table, out.data, out.len);
    ares_str_fini(&out);
}

/* Checks that the proposed command gives an answer. */
static void check_talk(const ares_str *out, const char *model)
{
    const char *line = strstr(out->data, "\nTalk to it:      ");
    ares_str answer = { 0 };
    if (!CHECK(line != NULL)) return;
    line += strlen("\nTalk to it:      ");
    int n = (int)strcspn(line, "\n"),
        rc = test_shell(&answer, "cd '%s' && %.*s", test_dir(), n, line);
    CHECK_MSG(rc == 0 && answer.len > 1, "%.*s: exit code %d\n%s", n, line, rc, answer.data);
    CHECK(strstr(line, model) && strstr(line, model) < line + n);
    ares_str_fini(&answer);
}

static double number_of(const ares_str *out, const char *metric, int column)
{
    double before = 0, after = 0;
    const char *line = strstr(out->data, metric);
    if (CHECK(line != NULL)) CHECK_EQ(sscanf(line + strlen(metric), "%lf %lf", &before, &after), 2);
    return column ? after : before;
}

TEST_SLOW(the_quick_start_with_the_tiny_model_runs_as_printed_and_learns)
{
    ares_str out = { 0 }, again = { 0 }, is = { 0 }, readme = { 0 };
    if (!make_tree() || !quickstart(&out, "--tiny")) return;
    if (table_of(&out, &is) && readme_table("runs/tiny/rl", 40, &readme)) {
        without_levels(&readme);
        check_table(&is, readme.data);
    }
    CHECK(number_of(&out, "\nval/accuracy ", 1) > number_of(&out, "\nval/accuracy ", 0) + 0.1);
    check_talk(&out, "runs/tiny/rl");
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && test -d runs/tiny/rl/rollouts && test -d "
                        "runs/tiny/rl/validation && test -f runs/tiny/rl/DONE",
                        test_dir()),
             0);
    if (quickstart(&again, "--tiny")) { /* a finished run prints its table again */
        CHECK_CONTAINS(again.data,
                       "runs/tiny/rl is finished; scripts/quickstart.sh --again trains it anew");
        if (CHECK(strstr(again.data, "\nquestion ") != NULL))
            CHECK_STR(strstr(again.data, "\nquestion "), strstr(out.data, "\nquestion "));
    }
    ares_str_fini(&out);
    ares_str_fini(&again);
    ares_str_fini(&is);
    ares_str_fini(&readme);
}

/*
 * Fewer steps, questions and answers, so that the bootstrap pass, which the quick start leaves out,
 * fits into a test and shows every part of AEPO on the real model. Its supervised start is made
 * here, shorter than the script's, which finds it finished.
 */
TEST_SLOW(the_quick_start_with_smollm2_runs_as_printed_and_puts_aepo_to_work)
{
    enum { STEPS = 3 };
    const char *model = test_smollm2();
    ares_str out = { 0 }, is = { 0 }, readme = { 0 };
    if (!model || !make_tree()) return;
    int rc = test_shell(
        &out,
        "cd '%s' && ln -s '%s' models/ && head -n 24 experiments/AEPO/data/train.jsonl > "
        "train.jsonl && awk 'NR %% 10 == 1' "
        "experiments/AEPO/data/val.jsonl > val.jsonl && '%s' sft "
        "--config experiments/AEPO/sft.yaml sft.batch_size=6 worker.actor.optim.lr=1.5e-4 "
        "trainer.max_steps=20",
        test_dir(), model, test_program());
    if (!CHECK_MSG(rc == 0, "%s", out.data) ||
        !quickstart(&out, "data.bootstrap=true data.train_files=train.jsonl "
                          "data.val_files=val.jsonl data.rollout_batch_size=6 worker.rollout.n=6 "
                          "worker.actor.global_batch_size=6 trainer.max_steps=3"))
        return;
    CHECK_CONTAINS(out.data, "runs/AEPO/start is finished");
    if (table_of(&out, &is) && readme_table("runs/quickstart/aepo", STEPS, &readme))
        check_table(&is, readme.data);
    check_talk(&out, "runs/quickstart/aepo");
    check_aepo_at_work("runs/quickstart/aepo", STEPS);
    for (int i = 1; i <= STEPS; i++)
        CHECK_EQ(e2e_metric("runs/quickstart/aepo", i, "exact/rollout_train_max_abs"), 0);
    ares_str_fini(&out);
    ares_str_fini(&is);
    ares_str_fini(&readme);
}
