#include "ares/dist.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

static int exit_of(pid_t pid)
{
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(a_first_signal_is_noted_and_a_second_interrupt_leaves)
{
    static const struct {
        int first, pending, second, exit;
    } cases[] = {
        { SIGINT, SIGINT, SIGINT, 130 },  { SIGUSR1, SIGINT, SIGUSR1, 130 },
        { SIGTERM, SIGTERM, SIGTERM, 9 }, { SIGUSR2, SIGTERM, SIGINT, 9 },
        { SIGINT, SIGINT, SIGTERM, 9 },   { SIGHUP, SIGHUP, SIGTERM, 9 },
        { SIGHUP, SIGHUP, SIGHUP, 9 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            fclose(stderr);
            close(STDERR_FILENO);
            ares_signal_install(ARES_SIGNAL_WAITS);
            if (ares_signal_pending() != 0) _exit(1);
            raise(cases[i].first);
            if (ares_signal_pending() != cases[i].pending) _exit(2);
            raise(cases[i].second);
            _exit(9); /* still here */
        }
        CHECK_EQ(exit_of(pid), cases[i].exit);
    }
    CHECK_EQ(ares_signal_exit_code(SIGINT), 130);
    CHECK_EQ(ares_signal_exit_code(SIGTERM), 143);
    CHECK_EQ(ares_signal_exit_code(SIGHUP), 129);
}

/* Work that may be dropped fails at its next look; what must end is not told. */
TEST(a_first_signal_drops_work_only_where_nothing_is_lost)
{
    static const int signals[] = { SIGHUP, SIGINT, SIGTERM, SIGUSR2 },
                     codes[] = { 129, 130, 143, 143 };
    for (int i = 0; i < ARES_COUNT(signals); i++)
        for (int ends = 0; ends < 2; ends++) {
            pid_t pid = fork();
            if (pid == 0) {
                fclose(stderr);
                close(STDERR_FILENO);
                ares_signal_install(ends ? ARES_SIGNAL_ENDS : ARES_SIGNAL_DROPS);
                if (ares_signal_poll() != ARES_OK) _exit(1);
                raise(signals[i]);
                if (ares_signal_poll() != ARES_EINTERRUPTED) _exit(2);
                ares_signal_expect(ARES_SIGNAL_WAITS);
                if (ares_signal_poll() != ARES_OK) _exit(3);
                _exit(9); /* still here */
            }
            CHECK_EQ(exit_of(pid), ends ? codes[i] : 9);
        }
}

TEST(a_hangup_that_is_ignored_stays_ignored)
{
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t set, before;
        signal(SIGHUP, SIG_IGN);
        ares_signal_install(ARES_SIGNAL_WAITS);
        raise(SIGHUP);
        if (ares_signal_pending() != 0) _exit(1);
        ares_signal_block(&set, &before);
        if (sigismember(&set, SIGHUP) || !sigismember(&set, SIGTERM)) _exit(2);
        signal(SIGHUP, SIG_DFL);
        ares_signal_block(&set, &before);
        _exit(sigismember(&set, SIGHUP) ? 9 : 3);
    }
    CHECK_EQ(exit_of(pid), 9);
}

static int launch(int ranks, int argc, char *const *argv, int *code)
{
    return ares_launch(&(ares_launch_plan){ .ranks = ranks }, argc, argv, code);
}

TEST(launching_says_what_is_wrong)
{
    if (test_in_mpi()) return;
    int code = -1;
    CHECK_FAIL(launch(0, 0, NULL, &code), ARES_EUSE, "dist: --ranks = 0: must be 1 or more");
    ares_str path = { 0 };
    ares_str_add_z(&path, getenv("PATH"));
    setenv("PATH", "/nonexistent", 1);
    if (launch(2, 0, NULL, &code) == ARES_EUNSUPPORTED)
        CHECK_CONTAINS(ares_error_message(),
                       "this build has no MPI; configure it with -DARES_MPI=ON");
    else
        CHECK_STR(ares_error_message(),
                  "dist: mpirun: No such file or directory; install Open MPI (openmpi-bin)");
    setenv("PATH", path.data, 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    CHECK_FAIL(launch(2, 0, NULL, &code), ARES_EUSE, "already runs under mpirun");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    ares_str_fini(&path);
}

/*
 * Runs the launcher in a child of this process; its ranks run the same test, with ARES_TEST_ROLE
 * set.
 */
static pid_t launcher_of(const char *test, const char *role, int ranks, int restarts)
{
    const char *latest = test_file("latest"); /* this process's folder, also in the ranks */
    pid_t pid = fork();
    if (pid != 0) return pid;
    char *argv[] = { (char *)test };
    int code = 1;
    setenv("ARES_TEST_MPI", "1", 1);
    setenv("ARES_TEST_ROLE", role, 1);
    setenv("ARES_TEST_FOLDER", test_dir(), 1);
    freopen(test_file("stdout"), "w", stdout);
    ares_launch_plan plan = { .ranks = ranks, .restarts = restarts, .latest = latest };
    if (ares_launch(&plan, 1, argv, &code) != ARES_OK)
        fprintf(stderr, "%s\n", ares_error_message());
    _exit(code);
}

static pid_t launcher(const char *test, const char *role)
{
    return launcher_of(test, role, 2, 0);
}

static void touch(const char *what, int rank)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%d", getenv("ARES_TEST_FOLDER"), what, rank);
    char pid[16];
    int len = snprintf(pid, sizeof pid, "%d", (int)getpid());
    CHECK_OK(ares_file_write_atomic(path, pid, (size_t)len));
}

static bool both(const char *what)
{
    char name[2][32];
    for (int i = 0; i < 2; i++) snprintf(name[i], sizeof name[i], "%s.%d", what, i);
    return ares_file_exists(test_file(name[0])) && ares_file_exists(test_file(name[1]));
}

static bool wait_for(const char *what)
{
    /* mpirun is slow to start on a busy machine */
    for (int i = 0; i < 20000 && !both(what); i++) sleep_ms(10);
    return CHECK_MSG(both(what), "%s", what);
}

/*
 * The run of a rank: steps of 50 ms until the ranks agree that a signal came, then two seconds of
 * saving, which is longer than mpirun lets its children live after it gets SIGTERM itself.
 */
static void steps_until_signalled(void)
{
    ares_world *w = NULL;
    int signal = 0;
    ares_signal_install(ARES_SIGNAL_WAITS);
    REQUIRE_OK(ares_world_open(&w));
    touch("ready", ares_world_rank(w));
    for (int step = 0; step < 2000 && signal == 0; step++) {
        sleep_ms(50);
        REQUIRE_OK(ares_world_signal(w, &signal));
    }
    REQUIRE(signal != 0);
    touch("noted", ares_world_rank(w));
    for (int i = 0; i < 40; i++) sleep_ms(50);
    if (strcmp(getenv("ARES_TEST_ROLE"), "stuck") == 0)
        for (;;) sleep_ms(50);
    touch("saved", ares_world_rank(w));
    ares_world_close(w);
    exit(ares_signal_exit_code(signal));
}

TEST_MPI(a_signal_to_the_launcher_lets_all_ranks_save)
{
    if (getenv("ARES_TEST_ROLE")) {
        steps_until_signalled();
        return;
    }
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    for (int i = 0; i < ARES_COUNT(signals); i++) {
        pid_t pid = launcher("a_signal_to_the_launcher_lets_all_ranks_save", "saves");
        if (wait_for("ready")) kill(pid, signals[i]);
        CHECK_EQ(exit_of(pid), 128 + signals[i]);
        CHECK(both("saved"));
        CHECK_EQ(test_shell(NULL, "rm -f '%s'/*", test_dir()), 0);
    }
}

/* At first mpirun loses signals, or waits for ever after them. */
TEST_MPI(a_signal_while_the_ranks_start_is_held_for_them)
{
    if (getenv("ARES_TEST_ROLE")) {
        steps_until_signalled();
        return;
    }
    static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
    for (int i = 0; i < 6; i++) {
        pid_t pid = launcher("a_signal_while_the_ranks_start_is_held_for_them", "saves");
        sleep_ms(20 + 40 * i); /* mpirun needs more */
        kill(pid, signals[i % 3]);
        CHECK_EQ(exit_of(pid), 128 + signals[i % 3]);
        CHECK_EQ(test_shell(NULL, "rm -f '%s'/*", test_dir()), 0);
    }
}

/* The memory in which ranks see each other is gone then. */
TEST_MPI(a_signal_after_the_world_is_closed_is_noted)
{
    if (getenv("ARES_TEST_ROLE")) {
        ares_world *w = NULL;
        ares_signal_install(ARES_SIGNAL_WAITS);
        REQUIRE_OK(ares_world_open(&w));
        ares_world_close(w);
        for (int i = 0; i < 3; i++) raise(SIGTERM);
        exit(ares_signal_exit_code(ares_signal_pending()));
    }
    CHECK_EQ(exit_of(launcher("a_signal_after_the_world_is_closed_is_noted", "closes")), 143);
}

TEST_MPI(a_third_interrupt_ends_ranks_that_are_stopped)
{
    if (getenv("ARES_TEST_ROLE")) {
        ares_world *w = NULL;
        REQUIRE_OK(ares_world_open(&w));
        touch("ready", ares_world_rank(w));
        for (;;) raise(SIGSTOP);
    }
    pid_t pid = launcher("a_third_interrupt_ends_ranks_that_are_stopped", "stops");
    for (int i = 0; wait_for("ready") && i < 3; i++) {
        sleep_ms(300);
        kill(pid, SIGINT);
    }
    CHECK_EQ(exit_of(pid), 130);
}

TEST_MPI(a_second_interrupt_to_the_launcher_leaves_at_once)
{
    if (getenv("ARES_TEST_ROLE")) {
        steps_until_signalled();
        return;
    }
    pid_t pid = launcher("a_second_interrupt_to_the_launcher_leaves_at_once", "stuck");
    if (wait_for("ready")) kill(pid, SIGINT);
    if (wait_for("noted")) kill(pid, SIGINT);
    CHECK_EQ(exit_of(pid), 130);
    CHECK(!both("saved"));
}

TEST_MPI(a_rank_that_dies_takes_the_others_with_it)
{
    if (getenv("ARES_TEST_ROLE")) {
        ares_world *w = NULL;
        ares_signal_install(ARES_SIGNAL_WAITS);
        REQUIRE_OK(ares_world_open(&w));
        touch("ready", ares_world_rank(w));
        if (ares_world_rank(w) == 1) raise(SIGKILL);
        CHECK_OK(ares_world_share_error(w, ARES_OK));
        return;
    }
    /* if the other ranks wait for ever, the runner ends the test */
    CHECK_EQ(exit_of(launcher("a_rank_that_dies_takes_the_others_with_it", "dies")), 128 + SIGKILL);
}

/* Fails without PR_SET_PDEATHSIG: mpirun and its ranks go on. */
TEST_MPI(a_killed_launcher_leaves_no_rank_behind)
{
    if (getenv("ARES_TEST_ROLE")) {
        steps_until_signalled();
        return;
    }
    pid_t pid = launcher("a_killed_launcher_leaves_no_rank_behind", "stuck");
    bool ready = wait_for("ready");
    kill(pid, SIGKILL);
    CHECK_EQ(exit_of(pid), 128 + SIGKILL);
    if (!ready) return;
    ares_str text = { 0 };
    for (int rank = 0; rank < 2; rank++) {
        int64_t rank_pid = 0;
        char name[32];
        snprintf(name, sizeof name, "ready.%d", rank);
        REQUIRE_OK(ares_file_read(test_file(name), &text));
        REQUIRE(ares_parse_i64(ares_str_view(&text), &rank_pid));
        for (int i = 0; i < 20000 && kill((pid_t)rank_pid, 0) == 0; i++) sleep_ms(10);
        if (!CHECK(kill((pid_t)rank_pid, 0) != 0)) kill((pid_t)rank_pid, SIGKILL);
    }
    ares_str_fini(&text);
}

TEST_MPI(the_launcher_gives_the_exit_code_and_the_arguments)
{
    if (getenv("ARES_TEST_ROLE")) {
        ares_world *w = NULL;
        REQUIRE_OK(ares_world_open(&w));
        int size = ares_world_size(w);
        ares_world_close(w);
        exit(size == 2 ? 42 : 1);
    }
    CHECK_EQ(exit_of(launcher("the_launcher_gives_the_exit_code_and_the_arguments", "exits")), 42);
}

/* ---------------- --restarts */
/*
 * What a start does is one letter of the role, in turn: s saves a checkpoint and fails, f fails
 * without one, S dies of a signal after saving, c finds a wrong configuration after saving, n a
 * number that is none, T is ended by a signal of its own after saving, w saves, waits for a signal
 * and fails, o ends well. The last letter counts for all further starts.
 */
static void begin_as_told(void)
{
    const char *role = getenv("ARES_TEST_ROLE"), *folder = getenv("ARES_TEST_FOLDER");
    ares_str path = { 0 }, starts = { 0 };
    ares_path_join(&path, folder, "starts");
    if (ares_file_exists(path.data)) REQUIRE_OK(ares_file_read(path.data, &starts));
    char what = role[ARES_MIN(starts.len, strlen(role) - 1)];
    ares_str_add_char(&starts, what);
    ares_world *w = NULL;
    ares_signal_install(ARES_SIGNAL_WAITS);
    REQUIRE_OK(ares_world_open(&w));
    CHECK_OK(ares_file_write_atomic(path.data, starts.data, starts.len));
    if (strchr("sScnTw", what))
        CHECK_OK(
            ares_file_write_atomic(ares_path_join(&path, folder, "latest"), "step_000007", 11));
    if (what == 'S') raise(SIGKILL);
    if (what == 'T') exit(128 + SIGTERM);
    if (what == 'n') exit(ares_error_exit_code(ARES_ENUMERIC));
    for (int i = 0; what == 'w' && i < 1000 && !ares_signal_pending(); i++) sleep_ms(10);
    ares_str_fini(&path);
    ares_str_fini(&starts);
    exit(what == 'o' ? 0 : what == 'c' ? 2 : 1);
}

/* Starts it as told; checks which starts there were and gives the exit code. */
static int restarted(const char *role, int restarts, const char *starts)
{
    ares_str made = { 0 };
    pid_t pid = launcher_of("a_failed_run_starts_again_where_it_has_saved", role, 1, restarts);
    for (int i = 0; strcmp(role, "w") == 0 && i < 1000 && !ares_file_exists(test_file("starts"));
         i++)
        sleep_ms(10);
    if (strcmp(role, "w") == 0) kill(pid, SIGTERM);
    int code = exit_of(pid);
    if (CHECK_OK(ares_file_read(test_file("starts"), &made)))
        CHECK_MSG(strcmp(made.data, starts) == 0, "%s: started as %s, not as %s", role, made.data,
                  starts);
    CHECK_EQ(test_shell(NULL, "rm -f '%s'/starts", test_dir()), 0);
    ares_str_fini(&made);
    return code;
}

TEST(a_failed_run_starts_again_where_it_has_saved)
{
    if (getenv("ARES_TEST_ROLE")) {
        begin_as_told();
        return;
    }
    CHECK_EQ(restarted("sSo", 5, "sSo"), 0);
    CHECK_EQ(restarted("S", 2, "SSS"), 128 + SIGKILL);
    CHECK_EQ(restarted("sf", 5, "sf"), 1); /* the checkpoint is older than the last start */
    CHECK_EQ(restarted("f", 5, "f"), 1);
    CHECK_EQ(restarted("c", 5, "c"), 2);
    CHECK_EQ(restarted("n", 5, "n"), ares_error_exit_code(ARES_ENUMERIC));
    CHECK_EQ(restarted("T", 5, "T"), 128 + SIGTERM);
    CHECK_EQ(restarted("w", 5, "w"), 1); /* a signal of the user's */
    CHECK_EQ(restarted("s", 0, "s"), 1);
}

/* Whether this process refuses to open a world, with this text. */
static bool refuses(const char *text)
{
    ares_world *w = NULL;
    return ares_world_open(&w) == ARES_EUSE && strstr(ares_error_message(), text) &&
           !*text == !*ares_error_message();
}

TEST_MPI(processes_that_each_would_be_alone_are_refused)
{
    static const char remedy[] = "start them with mpirun, or with srun --mpi=pmix";
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    CHECK(refuses(remedy));
    setenv("SLURM_PROCID", "0", 1);
    CHECK(refuses(remedy));
    setenv("SLURM_PROCID", "3", 1); /* the first speaks for all */
    CHECK(refuses(""));
    int code = -1;
    CHECK_FAIL(launch(2, 0, NULL, &code), ARES_EUSE, "already runs under mpirun or srun");
    unsetenv("SLURM_PROCID");
    unsetenv("SLURM_STEP_NUM_TASKS");
    pid_t pid = fork(); /* MPI starts once in a process */
    if (pid == 0) {
        setenv("PMI_SIZE", "2", 1); /* of another MPI's mpirun */
        _exit(refuses(remedy) ? 7 : 1);
    }
    CHECK_EQ(exit_of(pid), 7);
}
