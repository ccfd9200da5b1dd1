/* ares-train watch: frames of invented runs, and a terminal that it draws on. */
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include "test.h"

#include "ares/io.h"

static void put(const char *dir, const char *name, const char *text)
{
    char path[300];
    CHECK_OK(ares_dir_make(test_file(dir)));
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_OK(ares_file_write(test_file(path), text, strlen(text)));
}

/* Metrics of steps 1 to n of 40. */
static void put_metrics(const char *dir, int n)
{
    ares_str text = { 0 };
    for (int i = 1; i <= n; i++)
        ares_str_addf(&text,
                      "{\"step\":%d,\"reward/overall\":%g,\"reward/accuracy\":%g,"
                      "\"response_length/mean\":%d,\"rollout/entropy\":%g,\"actor/kl\":%g,"
                      "\"timing_s/step\":10,\"timing_s/gen\":6.5,\"timing_s/update_actor\":3}\n",
                      i, 0.1 * i, 0.5, 100, 1.0 / i, 0.001 * i);
    put(dir, "metrics.jsonl", text.data);
    ares_str_fini(&text);
}

static void put_run(const char *dir, int n)
{
    char folder[300];
    put_metrics(dir, n);
    put(dir, "config.yaml", "trainer:\n  max_steps: 40\n");
    snprintf(folder, sizeof folder, "%s/rollouts", dir);
    put(folder, "step_000001.jsonl", "{\"prompt\":\"old\",\"response\":\"old\",\"score\":0}\n");
    put(folder, "step_000002.jsonl",
        "{\"prompt\":\"1+1=?\",\"response\":\"first\",\"score\":0}\n"
        "{\"prompt\":\"2+2=?\",\"response\":\"It is\\n\\u001b[2J\\u009b1m\\u202e 4\",\"score\":1}\n"
        "{\"prompt\":\"<|im_start|>user\\n1+1<|im_end|>\\n<|im_start|>user\\n3+3=?<|im_end|>\\n"
        "<|im_start|>assistant\\n\",\"response\":\"six\",\"score\":0.5}\n"
        "{\"prompt\":\"4+4=?\",\"respo");
}

static int once(ares_str *out, const char *variables, const char *words)
{
    ares_str_clear(out);
    return test_shell(out, "cd '%s' && %s '%s' watch %s 2>&1", test_dir(), variables,
                      test_program(), words);
}

/* The widest line in characters, and the number of lines. */
static void size_of(const ares_str *out, int *columns, int *rows)
{
    int at = 0;
    *columns = *rows = 0;
    for (size_t i = 0; i < out->len; i++) {
        if (out->data[i] == '\n') {
            (*rows)++;
            at = 0;
        } else if (((unsigned char)out->data[i] & 0xC0) != 0x80) {
            at++;
            *columns = ARES_MAX(*columns, at);
        }
    }
}

TEST(a_frame_says_how_a_run_goes)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    int fd;
    put_run("run", 10);
    REQUIRE_OK(ares_lock_take(test_file("run"), &fd));
    CHECK_EQ(once(&out, "LC_ALL=C.UTF-8", "run --once"), 0);
    CHECK_CONTAINS(out.data, "run  step 10/40  running  eta 5:00\n");
    CHECK_CONTAINS(out.data, "reward   1 ");
    CHECK_CONTAINS(out.data, "0.1 at first, +900 % ");
    CHECK_CONTAINS(out.data, "length   100 ");
    CHECK_CONTAINS(out.data, "1 at first, -90 % "); /* entropy */
    CHECK_CONTAINS(out.data, "slowest: gen 6.5 s, 65 % of a step of 10 s\n");
    /* the last two whole lines of the newest file; what they hold does nothing */
    CHECK_CONTAINS(out.data, "\n1 | 2+2=? | It is \\x1b[2J\\u009b1m? 4\n0.5 | 3+3=? | six\n");
    CHECK(!strstr(out.data, "first\n") && !strchr(out.data, '\033') &&
          !strstr(out.data, "\xe2\x80\xae"));
    CHECK(strstr(out.data, "\xe2\xa0") || strstr(out.data, "\xe2\xa3")); /* Braille */
    ares_lock_drop(fd);
    /* a checkpoint is written after the step: its share is of both */
    put("saved", "metrics.jsonl",
        "{\"step\":1,\"timing_s/step\":2,\"timing_s/gen\":1,\"timing_s/save_checkpoint\":6}\n");
    CHECK_EQ(once(&out, "LC_ALL=C.UTF-8", "saved --once"), 0);
    CHECK_CONTAINS(out.data, "slowest: save_checkpoint 6 s, 75 % of a step of 8 s\n");
    CHECK_EQ(once(&out, "LC_ALL=C.UTF-8", "run"), 0); /* no terminal: once */
    CHECK_CONTAINS(out.data, "run  step 10/40  died\n");
    CHECK_CONTAINS(out.data, "has died at step 10; the same command goes on\n");
    put("run", "DONE", "{\"step\":10,\"stopped\":\"reward_variance_collapse\"}\n");
    CHECK_EQ(once(&out, "LC_ALL=C.UTF-8", "run --once"), 0);
    CHECK_CONTAINS(out.data, "stopped: reward_variance_collapse");
    ares_str_fini(&out);
}

TEST(a_frame_is_ascii_where_the_terminal_is)
{
    static const char *const variables[] = { "LC_ALL=C", "LC_ALL= LC_CTYPE= LANG=de_DE.ISO-8859-1",
                                             "LC_ALL=C.UTF-8" };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    put_run("run", 10);
    for (int i = 0; i < ARES_COUNT(variables); i++) {
        CHECK_EQ(once(&out, variables[i], i == 2 ? "run --once --ascii" : "run --once"), 0);
        bool ascii = true;
        for (size_t k = 0; k < out.len; k++) ascii = ascii && (unsigned char)out.data[k] < 0x80;
        CHECK(ascii && strstr(out.data, "***"));
    }
    ares_str_fini(&out);
}

/* What a chart of one row draws: a line that rises from the lowest to the highest dots. */
TEST(curves_rise_from_left_to_right)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    put("line", "metrics.jsonl",
        "{\"step\":1,\"reward/overall\":0}\n{\"step\":2,\"reward/overall\":1}\n"
        "{\"step\":3,\"reward/overall\":2}\n{\"step\":4,\"reward/overall\":3}\n");
    CHECK_EQ(once(&out, "LC_ALL=C COLUMNS=60 LINES=12", "line --once"), 0);
    /* 30 columns and 8 rows: each step is a quarter of the columns */
    const char *at = strstr(out.data, "reward   3");
    REQUIRE(at);
    int first[8], n = 0;
    for (; n < 8 && at; n++) {
        const char *end = strchr(at, '\n'), *star = memchr(at, '*', (size_t)(end - at));
        first[n] = star ? (int)(star - at) : -1;
        at = end + 1;
    }
    CHECK(first[0] >= 52 && first[7] == 30);
    ares_str_fini(&out);
}

TEST(a_frame_fits_its_terminal)
{
    static const int sizes[][2] = { { 40, 12 }, { 41, 13 }, { 60, 16 }, { 80, 24 }, { 200, 60 } };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 }, variables = { 0 };
    int columns, rows;
    put_run("a_run_whose_name_is_longer_than_a_line_of_forty_columns", 10);
    put("a_run_whose_name_is_longer_than_a_line_of_forty_columns/rollouts", "step_000003.jsonl",
        "{\"prompt\":\"\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\",\"response\":\""
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "\",\"score\":1}\n");
    for (int i = 0; i < ARES_COUNT(sizes); i++) {
        ares_str_clear(&variables);
        ares_str_addf(&variables, "LC_ALL=C.UTF-8 COLUMNS=%d LINES=%d", sizes[i][0], sizes[i][1]);
        CHECK_EQ(once(&out, variables.data,
                      "a_run_whose_name_is_longer_than_a_line_of_forty_columns --once"),
                 0);
        size_of(&out, &columns, &rows);
        CHECK_MSG(columns <= sizes[i][0] && rows <= sizes[i][1] && rows >= 8, "%d x %d in %d x %d",
                  columns, rows, sizes[i][0], sizes[i][1]);
        CHECK_CONTAINS(out.data, "step 10/40");
        CHECK_CONTAINS(out.data, "KL ");
    }
    CHECK_EQ(once(&out, "COLUMNS=39 LINES=12", "a_* --once"), 0);
    CHECK_CONTAINS(out.data, "39 x 12 is too small");
    ares_str_fini(&out);
    ares_str_fini(&variables);
}

TEST(watch_refuses_what_is_no_run)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    CHECK_OK(ares_dir_make(test_file("empty")));
    CHECK_EQ(once(&out, "", "empty"), 2);
    CHECK_CONTAINS(out.data, "no metrics.jsonl: not a run directory, or its first step has not "
                             "ended; 'ares-train runs' lists those below a folder");
    CHECK_EQ(once(&out, "", "nothing --once"), 2);
    CHECK_EQ(once(&out, "", ""), 2);
    CHECK_CONTAINS(out.data, "name one run directory");
    /* its first step is under way */
    int fd;
    REQUIRE_OK(ares_lock_take(test_file("empty"), &fd));
    CHECK_EQ(once(&out, "", "empty --once"), 0);
    CHECK_CONTAINS(out.data, "empty  the first step has not ended");
    ares_lock_drop(fd);
    ares_str_fini(&out);
}

/* ---------------- a terminal */

typedef struct terminal {
    int fd;
    pid_t pid;
    ares_str seen; /* since `forget` */
    struct termios before;
} terminal;

static void start(terminal *t, const char *run, const char *color)
{
    const struct winsize size = { .ws_row = 24, .ws_col = 80 };
    *t = (terminal){ 0 };
    int child;
    fflush(NULL);
    /* the terminal's settings are taken before the program changes them */
    if (!CHECK_EQ(openpty(&t->fd, &child, NULL, NULL, &size), 0)) return;
    tcgetattr(child, &t->before);
    t->pid = fork();
    if (t->pid == 0) {
        close(t->fd);
        login_tty(child);
        setenv("TERM", "xterm", 1);
        setenv("LC_ALL", "C.UTF-8", 1);
        setenv("NO_COLOR", color, 1);
        execl(test_program(), test_program(), "watch", run, (char *)NULL);
        _exit(9);
    }
    close(child);
}

/* Reads until the text is seen, at most 20 s. */
static bool shows(terminal *t, const char *text)
{
    char part[4096];
    for (double end = ares_now_s() + 20; ares_now_s() < end;) {
        if (ares_view_find(ares_str_view(&t->seen), ares_view_of(text), 0) >= 0) return true;
        struct pollfd p = { .fd = t->fd, .events = POLLIN };
        if (poll(&p, 1, 100) <= 0) continue;
        ssize_t n = read(t->fd, part, sizeof part);
        if (n <= 0 && errno != EINTR) break;
        if (n > 0) ares_str_add(&t->seen, part, (size_t)n);
    }
    return ares_view_find(ares_str_view(&t->seen), ares_view_of(text), 0) >= 0;
}

static void forget(terminal *t)
{
    ares_str_clear(&t->seen);
}

/* Waits for the program, and that it has given the terminal back; gives what waitpid said. */
static int end(terminal *t)
{
    struct termios after;
    int status = -1;
    CHECK_MSG(shows(t, "\033[?25h\033[?1049l"), "%s", t->seen.data);
    /* the settings outlive the program only while someone has the terminal open: we do */
    if (waitpid(t->pid, &status, 0) == t->pid && tcgetattr(t->fd, &after) == 0)
        CHECK(after.c_lflag == t->before.c_lflag && after.c_iflag == t->before.c_iflag &&
              memcmp(after.c_cc, t->before.c_cc, sizeof after.c_cc) == 0);
    close(t->fd);
    ares_str_fini(&t->seen);
    return status;
}

TEST(watch_follows_a_run_and_gives_the_terminal_back)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    terminal t;
    int lock;
    FILE *metrics;
    put_run("run", 10);
    REQUIRE_OK(ares_lock_take(test_file("run"), &lock));
    start(&t, test_file("run"), "");
    CHECK_MSG(shows(&t, "  step 10/40  "), "%s", t.seen.data);
    CHECK(shows(&t, "q ends"));
    CHECK_CONTAINS(t.seen.data, "\033[?1049h");
    CHECK_CONTAINS(t.seen.data, "\033[32mrunning\033[0m");
    /* a row that is half written waits for its end */
    forget(&t);
    REQUIRE((metrics = fopen(test_file("run/metrics.jsonl"), "a")));
    fputs("{\"step\":11,\"reward/overall\":2,\"timing_s/st", metrics);
    fflush(metrics);
    CHECK(shows(&t, "q ends"));
    CHECK_CONTAINS(t.seen.data, "  step 10/40  ");
    forget(&t);
    fputs("ep\":10}\n", metrics);
    fclose(metrics);
    CHECK_MSG(shows(&t, "  step 11/40  "), "%s", t.seen.data);
    /* a file that became shorter */
    CHECK(shows(&t, "q ends"));
    forget(&t);
    put_metrics("run", 3);
    CHECK_MSG(shows(&t, "  step 3/40  "), "%s", t.seen.data);
    /* another size */
    CHECK(shows(&t, "q ends"));
    forget(&t);
    CHECK_EQ(ioctl(t.fd, TIOCSWINSZ, &(struct winsize){ .ws_row = 5, .ws_col = 30 }), 0);
    CHECK_MSG(shows(&t, "30 x 5 is too small"), "%s", t.seen.data);
    CHECK_EQ(ioctl(t.fd, TIOCSWINSZ, &(struct winsize){ .ws_row = 30, .ws_col = 90 }), 0);
    CHECK(shows(&t, "q ends"));
    /* its process is gone */
    forget(&t);
    ares_lock_drop(lock);
    CHECK_MSG(shows(&t, "has died at step 3; the same command goes on"), "%s", t.seen.data);
    CHECK_EQ(write(t.fd, "xq", 2), 2);
    CHECK_EQ(end(&t), 0);
}

TEST(watch_ends_with_a_signal_as_it_should)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    terminal t;
    put_run("run", 10);
    start(&t, test_file("run"), "1");
    CHECK(shows(&t, "has died at step 10"));
    CHECK(!strstr(t.seen.data, "\033[3") && !strstr(t.seen.data, "\033[1m")); /* NO_COLOR */
    CHECK_EQ(write(t.fd, "\003", 1), 1);                                      /* Ctrl-C */
    CHECK_EQ(end(&t), 0);
    start(&t, test_file("run"), "");
    CHECK(shows(&t, "has died at step 10"));
    CHECK_EQ(kill(t.pid, SIGTERM), 0);
    int status = end(&t);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}
