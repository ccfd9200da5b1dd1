/*
 * Every call that changes a file fails once: the n-th for every n, over a step with its checkpoint,
 * a sweep and a comparison (preload/record.c). The program then says so in one message that names
 * the file, and the same command goes on from what is left to the same bits. Of more than SOME
 * equal calls the first and the last fail.
 */
#include "disk.h"
#include "e2e.h"

#include <stdio.h>

enum { SOME = 6 };

/* The calls that a program makes, from its log: the text of each kind and how many there are. */
static ares_map *calls_of(const char *log)
{
    ares_map *calls = ares_map_new();
    ares_str text = { 0 };
    char *save = NULL;
    CHECK_OK(ares_file_read(log, &text));
    for (char *line = strtok_r(text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        int64_t n = 0;
        if (strncmp(line, "call ", 5) != 0) continue;
        ares_map_get(calls, ares_view_of(line + 5), &n);
        ares_map_put(calls, ares_view_of(line + 5), n + 1);
    }
    ares_str_fini(&text);
    return calls;
}

typedef struct subject {
    bool (*begin)(void);              /* makes the folder what it is before the program starts */
    int (*program)(ares_str *out);    /* gives its exit status */
    bool (*right)(void);              /* whether its results are the right ones */
    bool (*wanted)(const char *call); /* NULL: all calls */
} subject;

static int times(const ares_str *text, const char *part)
{
    int n = 0;
    for (const char *at = text->data; at && (at = strstr(at, part)); at++) n++;
    return n;
}

/* Whether the message has the name of the file, or the one that it was to get. */
static bool names(const ares_str *out, const char *call)
{
    char name[300];
    const char *last = strrchr(call, '/') + 1;
    snprintf(name, sizeof name, "%s", strncmp(last, ".tmp-", 5) == 0 ? last + 5 : last);
    char *end = strstr(name, ".tmp");
    if (end) *end = 0;
    return strstr(out->data, name);
}

static void program_with_fault(const subject *s, const char *call, int64_t number)
{
    ares_str out = { 0 }, again = { 0 }, log = { 0 };
    char fault[600];
    if (!CHECK(s->begin())) return;
    snprintf(fault, sizeof fault, "%lld %s", (long long)number, call);
    CHECK_OK(ares_dir_remove(test_file("log")));
    disk_record(test_file("log"), true);
    setenv("ARES_RECORD_FAIL", fault, 1);
    int rc = s->program(&out);
    disk_record_end();
    CHECK_OK(ares_file_read(test_file("log"), &log));
    CHECK_MSG(times(&log, "\nfail ") + !strncmp(log.data, "fail ", 5) == 1, "%s: not reached",
              fault);
    /* a sweep only warns of its figure, a run of its report and of its end in run.json */
    bool warned = strstr(out.data, "warning: sweep: no figure") ||
                  strstr(out.data, "warning: run: no report of it") ||
                  strstr(out.data, "warning: run: its end is not in run.json");
    CHECK_MSG((rc == 1 || warned) && times(&out, "Input/output error") == 1,
              "%s: exit status %d\n%s", fault, rc, out.data);
    CHECK_MSG(names(&out, call), "%s: not named\n%s", fault, out.data);
    /* without its name, a checkpoint is as good as none, whichever of its files failed */
    bool same = strstr(call, "/.tmp-step") && !strstr(call, "/state.json");
    if (!same) rc = s->program(&again);
    CHECK_MSG(same || ((rc == 0 || times(&again, "is finished")) && s->right()),
              "%s: what is left is not gone on with: %d\n%s", fault, rc, again.data);
    ares_str_fini(&out);
    ares_str_fini(&again);
    ares_str_fini(&log);
}

static void fail_once(const subject *s, int least)
{
    ares_str out = { 0 };
    int faults = 0;
    REQUIRE(s->begin());
    disk_record(test_file("log"), true);
    setenv("ARES_RECORD_FAIL", "", 1);
    CHECK_EQ(s->program(&out), 0);
    disk_record_end();
    CHECK(s->right());
    ares_map *calls = calls_of(test_file("log"));
    for (int64_t i = 0; i < ares_map_count(calls); i++) {
        char call[500];
        ares_view text = ares_map_key(calls, i);
        int64_t n = ares_map_value(calls, i);
        snprintf(call, sizeof call, "%.*s", (int)text.len, text.data);
        if (s->wanted && !s->wanted(call)) continue;
        if (!strncmp(call, "close ", 6) && strstr(call, "/lock")) continue; /* it is given back */
        for (int64_t k = 1; k <= n; k++)
            if (n <= SOME || k == 1 || k == n) {
                program_with_fault(s, call, k);
                faults++;
            }
    }
    CHECK_MSG(faults >= least, "%d faults", faults);
    ares_map_free(calls);
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- a step and its checkpoint */
/* The checkpoint of step 2; that of step 3, the last, is never written beside the run. */
#define STEPS                                                                                   \
    "--config '%s' trainer.max_steps=%d trainer.save_freq=1 trainer.logger=[file,tensorboard] " \
    "algorithm.adv_estimator=gae %s"
static int steps = 2;

static bool to_first_step(void)
{
    if (!ares_dir_exists(test_file("run")) &&
        !CHECK_EQ(e2e_program(NULL, STEPS, e2e_train_words("run"), steps, ""), 0))
        return false;
    return e2e_go_back("run", "whole", 1);
}

static bool second_step_is_right(void)
{
    return e2e_same_runs("whole", "run", steps) &&
           CHECK_EQ(
               test_shell(NULL, "cd '%s' && ls -A . checkpoints | grep -q tmp", test_file("run")),
               1);
}

static int second_step(ares_str *out)
{
    return e2e_program(out, STEPS, e2e_train_words("run"), steps, "trainer.save_limit=1");
}

static int second_step_beside(ares_str *out)
{
    return e2e_program(out, STEPS, e2e_train_words("run"), steps,
                       "trainer.save_limit=1 trainer.save_async=true");
}

static bool of_the_run(const char *call)
{
    return !strstr(call, "/checkpoints");
}

/*
 * Opening and closing share their code with the files of the run, and the removal of one old file
 * with that of the others.
 */
static bool of_the_checkpoint(const char *call)
{
    static const char *const same[] = { "open ", "close ", "empty " };
    const char *old = strstr(call, "/.tmp-old-");
    for (int i = 0; i < ARES_COUNT(same); i++)
        if (!strncmp(call, same[i], strlen(same[i]))) return false;
    if (old && strchr(old + 1, '/') && !strstr(old, "/state.json")) return false;
    return strstr(call, "/checkpoints");
}

static bool of_a_thread(const char *call)
{
    return strstr(call, "/.tmp-step_000002/") &&
           (!strncmp(call, "sync ", 5) || !strncmp(call, "write ", 6));
}

TEST(a_file_of_a_step_that_fails_once_changes_no_bit)
{
    fail_once(&(subject){ to_first_step, second_step, second_step_is_right, of_the_run }, 35);
}

TEST(a_file_of_a_checkpoint_that_fails_once_changes_no_bit)
{
    fail_once(&(subject){ to_first_step, second_step, second_step_is_right, of_the_checkpoint },
              45);
}

/* Seen to fail where a failed fsync of what is sealed beside the run was told nowhere. */
TEST(a_checkpoint_written_beside_that_fails_once_changes_no_bit)
{
    steps = 3;
    fail_once(&(subject){ to_first_step, second_step_beside, second_step_is_right, of_a_thread },
              25);
    steps = 2;
}

/* ---------------------------------------------------------------- a sweep and a comparison */
static int sweep(ares_str *out)
{
    return e2e_program(out,
                       "sweep --config '%s' --dir '%s' trainer.max_steps=1 "
                       "--over worker.actor.optim.lr=0,1e-2",
                       e2e_train_words("unused"), test_file("s"));
}

/* Two runs are done; of their results one is missing, and the figure. */
static bool to_repair(void)
{
    if (!ares_dir_exists(test_file("done")) &&
        !(CHECK_EQ(sweep(NULL), 0) &&
          CHECK_EQ(test_shell(NULL, "mv '%s' '%s'", test_file("s"), test_file("done")), 0)))
        return false;
    return CHECK_EQ(test_shell(NULL,
                               "cd '%s' && rm -rf s && cp -r done s && rm s/logs/lr_0.result "
                               "s/figure3.svg && sed -i 1d s/results.log",
                               test_dir()),
                    0);
}

static bool is_repaired(void)
{
    return CHECK_EQ(test_shell(NULL,
                               "cd '%s' && sort s/results.log >one && sort done/results.log | cmp "
                               "- one && for f in logs/lr_0.result figure3.svg sweep.json; do cmp "
                               "s/$f done/$f || exit 1; done && ! ls -A s s/logs | grep '[.]tmp'",
                               test_dir()),
                    0);
}

static int compare(ares_str *out)
{
    return e2e_program(out, "compare '%s' '%s' --metric reward/overall --svg '%s'",
                       test_file("done/lr_0"), test_file("done/lr_1e-2"),
                       test_file("c/compared.svg"));
}

static bool before_comparing(void)
{
    return to_repair() && CHECK_OK(ares_dir_remove(test_file("c"))) &&
           CHECK_OK(ares_dir_make(test_file("c")));
}

static bool is_compared(void)
{
    return CHECK_EQ(test_shell(NULL,
                               "cd '%s/c' && tail -n1 compared.svg | grep -q '</svg>' && "
                               "ls -A | wc -l | grep -qx 1",
                               test_dir()),
                    0);
}

TEST(a_file_of_a_sweep_or_a_comparison_that_fails_once_changes_no_bit)
{
    fail_once(&(subject){ to_repair, sweep, is_repaired, NULL }, 30);
    fail_once(&(subject){ before_comparing, compare, is_compared, NULL }, 5);
}
