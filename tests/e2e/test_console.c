/*
 * What a run prints: for a step the same numbers as its row of metrics; on a terminal, between two
 * steps, a line that moves.
 */
#include "e2e.h"

#include <errno.h>
#include <math.h>
#include <pty.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct shown {
    const char *label, *format, *metric;
} shown;

/* Writes "reward 0.375 acc 0.375" from the metrics of a step; absent metrics are left out. */
static void line_of(const char *run, int step, const shown *of, int n, ares_str *out)
{
    ares_str_clear(out);
    for (int i = 0; i < n; i++) {
        double x = e2e_metric(run, step, of[i].metric);
        char number[32];
        if (isnan(x)) continue;
        snprintf(number, sizeof number, of[i].format, x);
        ares_str_addf(out, "%s%s %s", out->len ? "  " : "", of[i].label, number);
    }
}

TEST(the_line_of_a_step_shows_its_row_of_metrics)
{
    static const shown rl_kind[] = {
        { "reward", "%.3f", "reward/overall" },
        { "acc", "%.3f", "reward/accuracy" },
        { "len", "%.1f", "response_length/mean" },
        { "entropy", "%.3f", "actor/entropy" },
        { "grad", "%.2f", "actor/grad_norm" },
        { "kl", "%.4f", "actor/kl" },
        { "lr", "%.2e", "actor/lr" },
        { "val acc", "%.3f", "val/accuracy" },
        { "val reward", "%.3f", "val/reward_score" },
    };
    static const shown supervised[] = {
        { "grad", "%.2f", "actor/grad_norm" },
        { "lr", "%.2e", "actor/lr" },
        { "loss", "%.4f", "train/loss" },
        { "val loss", "%.4f", "val/loss" },
    };
    ares_str out = { 0 }, line = { 0 }, told = { 0 };
    const char *rows = e2e_write("val.jsonl", "{\"prompt\":\"1+1=?\",\"answer\":\"2\"}\n"
                                              "{\"prompt\":\"1+2=?\",\"answer\":\"3\"}\n"
                                              "{\"prompt\":\"1+3=?\",\"answer\":\"4\"}\n");
    CHECK_EQ(
        e2e_program(&out,
                    "--config '%s' trainer.max_steps=2 trainer.val_freq=2 data.val_files='%s' "
                    "algorithm.disable_kl=false algorithm.use_kl_loss=true algorithm.kl_coef=0.01 "
                    "worker.reward.accuracy=random 'worker.reward.rewards=[{name: random}]'",
                    e2e_train_words("run"), rows),
        0);
    line_of("run", 0, rl_kind, ARES_COUNT(rl_kind), &line);
    ares_str_addf(&told, "before training: %s\n", line.data);
    CHECK_CONTAINS(line.data, "val reward ");
    CHECK_CONTAINS(out.data, told.data);
    for (int step = 1; step <= 2; step++) {
        line_of("run", step, rl_kind, ARES_COUNT(rl_kind), &line);
        ares_str_clear(&told);
        ares_str_addf(&told, "step %d/2 | %s | ", step, line.data);
        CHECK(strstr(line.data, "kl ") && !strstr(line.data, "val ") == (step == 1));
        CHECK_CONTAINS(out.data, told.data);
    }
    ares_str_clear(&out);
    rows = e2e_write("val.jsonl", "{\"prompt\":\"1+1=?\",\"response\":\"2\"}\n"
                                  "{\"prompt\":\"1+2=?\",\"response\":\"3\"}\n");
    CHECK_EQ(e2e_program(&out, "sft --config '%s' trainer.max_steps=1 data.val_files='%s'",
                         e2e_sft_words("sft"), rows),
             0);
    line_of("sft", 1, supervised, ARES_COUNT(supervised), &line);
    ares_str_clear(&told);
    ares_str_addf(&told, "step 1/1 | %s | ", line.data);
    CHECK(strstr(line.data, "loss ") && strstr(line.data, "val loss "));
    CHECK_CONTAINS(out.data, told.data);
    ares_str_fini(&out);
    ares_str_fini(&line);
    ares_str_fini(&told);
}

/* What a shell command writes to a terminal of 100 columns; gives its exit status. */
static int on_terminal(ares_str *out, const char *command)
{
    const struct winsize size = { .ws_row = 24, .ws_col = 100 };
    int terminal, status = 0;
    char part[4096];
    ssize_t n;
    fflush(NULL);
    pid_t pid = forkpty(&terminal, NULL, NULL, &size);
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(9);
    }
    if (!CHECK(pid > 0)) return -1;
    while ((n = read(terminal, part, sizeof part)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0) ares_str_add(out, part, (size_t)n);
    close(terminal);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Of the moving line, between two erasures: how many have the part, and differ from the one before.
 */
static int frames_with(const char *text, const char *part)
{
    static const char erase[] = "\r\033[K";
    ares_str last = { 0 };
    int n = 0;
    for (const char *at = strstr(text, erase), *end; at; at = end) {
        end = strstr(at + 1, erase);
        size_t len = end ? (size_t)(end - at) : strlen(at);
        ares_view frame = { at, len };
        if (ares_view_find(frame, ares_view_of(part), 0) < 0 ||
            (last.len && ares_view_eq(frame, ares_str_view(&last))))
            continue;
        ares_str_clear(&last);
        ares_str_add_view(&last, frame);
        n++;
    }
    ares_str_fini(&last);
    return n;
}

TEST(on_a_terminal_a_line_moves_between_two_steps_and_changes_no_bit)
{
    char command[3000];
    char slow[400];
    ares_str out = { 0 }, log = { 0 };
    snprintf(slow, sizeof slow,
             "trainer.max_steps=2 '~worker.reward.rewards' 'worker.reward.rewards=[{command: [sh, "
             "%s]}]'",
             e2e_write("slow.sh", "while read -r l; do sleep 0.06; echo ${#l}; done\n"));
    snprintf(command, sizeof command,
             "cd '%s' && exec '%s' --config '%s' %s data.val_files='%s' data.val_batch_size=3",
             test_source("."), test_program(), e2e_train_words("moves"), slow,
             e2e_write("val.jsonl", "{\"prompt\":\"1+1=?\",\"answer\":\"2\"}\n"
                                    "{\"prompt\":\"1+2=?\",\"answer\":\"3\"}\n"
                                    "{\"prompt\":\"1+3=?\",\"answer\":\"4\"}\n"
                                    "{\"prompt\":\"1+4=?\",\"answer\":\"5\"}\n"));
    CHECK_EQ(on_terminal(&out, command), 0);
    CHECK(frames_with(out.data, "opening | 0:00") >= 1);
    CHECK(frames_with(out.data, "validation: ") >= 1);
    CHECK(frames_with(out.data, " of 4 answers") >= 1);
    CHECK_MSG(frames_with(out.data, "step 1/2 gen: 16 of 16 answers, ") >= 2, "%s", out.data);
    CHECK(frames_with(out.data, " judged, ") >= 3 && frames_with(out.data, " tokens/s | ") >= 3);
    CHECK(frames_with(out.data, ", run eta ") >= 1); /* in the second step */
    /* a whole line per step, on a line that was erased, and nothing is left of the moving one */
    CHECK_CONTAINS(out.data, "\r\033[Kstep 1/2 | reward ");
    const char *last = out.data;
    for (const char *at = out.data; (at = strstr(at, "\r\033[K")); at++) last = at;
    CHECK_CONTAINS(last, "run directory");
    CHECK(!strstr(last, "gen: ") && !strstr(last, "save_checkpoint"));
    if (ares_file_exists(test_file("moves/log.txt"))) {
        CHECK_OK(ares_file_read(test_file("moves/log.txt"), &log));
        CHECK(!strstr(log.data, "gen: "));
    }
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "--config '%s' %s data.val_files='%s' trainer.progress=none",
                         e2e_train_words("still"), slow, test_file("val.jsonl")),
             0);
    CHECK(!strstr(out.data, "gen: ") && !strchr(out.data, '\r'));
    e2e_same_runs("moves", "still", 2);
    ares_str_fini(&out);
    ares_str_fini(&log);
}

TEST(on_a_terminal_sft_and_eval_show_what_they_do)
{
    char command[3000];
    ares_str out = { 0 };
    const char *rows = e2e_write("val.jsonl", "{\"prompt\":\"1+1=?\",\"response\":\"2\"}\n");
    snprintf(command, sizeof command,
             "cd '%s' && exec '%s' sft --config '%s' trainer.max_steps=1000 data.val_files='%s'",
             test_source("."), test_program(), e2e_sft_words("sft"), rows);
    CHECK_EQ(on_terminal(&out, command), 0);
    CHECK(frames_with(out.data, "/1000 update: micro-batch ") >= 1);
    ares_str_clear(&out);
    /*
     * Judged by a program that takes its time. Opening is over before a line is drawn on a fast
     * machine; that it is shown, the run above shows.
     */
    snprintf(command, sizeof command,
             "cd '%s' && exec '%s' eval --config '%s' data.val_files='%s' '~worker.reward.rewards' "
             "'worker.reward.rewards=[{command: [sh, %s]}]'",
             test_source("."), test_program(), e2e_train_words("run"),
             e2e_write("asked.jsonl", "{\"prompt\":\"1+1=?\",\"answer\":\"2\"}\n"),
             e2e_write("slow.sh", "sleep 0.5; while read -r l; do sleep 0.5; echo 1; done\n"));
    CHECK_EQ(on_terminal(&out, command), 0);
    CHECK(frames_with(out.data, "validation: ") >= 1);
    CHECK_CONTAINS(out.data, "val/reward_score ");
    ares_str_fini(&out);
}

TEST(a_step_without_a_gradient_says_that_the_rewards_of_its_groups_are_equal)
{
    ares_str out = { 0 };
    CHECK_EQ(
        e2e_program(&out,
                    "--config '%s' trainer.max_steps=1 '~worker.reward.rewards' "
                    "'worker.reward.rewards=[{name: format, pattern: never, finished: false}]'",
                    e2e_train_words("run")),
        0);
    CHECK_CONTAINS(out.data, "grad 0.00 (all rewards equal in 4 of 4 groups)");
    CHECK_EQ(e2e_metric("run", 1, "rollout/equal_groups"), 4);
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.max_steps=1", e2e_train_words("learns")), 0);
    CHECK(!strstr(out.data, "all rewards equal"));
    ares_str_fini(&out);
}
