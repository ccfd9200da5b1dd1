/* One process per run directory. */
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ares/io.h"

/* A child that takes the lock, reports it through the pipe, and waits to be killed. */
static pid_t hold_in_child(int *said)
{
    int ends[2], fd;
    char byte = 0;
    if (pipe(ends) != 0) return -1;
    const char *dir = test_dir();
    pid_t child = fork();
    if (child == 0) {
        byte = ares_lock_take(dir, &fd) == ARES_OK ? 'y' : 'n';
        if (write(ends[1], &byte, 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(ends[1]);
    if (read(ends[0], &byte, 1) != 1) byte = 0;
    close(ends[0]);
    *said = byte;
    return child;
}

TEST(a_second_process_is_refused_and_told_who_holds_the_lock)
{
    int said, fd;
    pid_t child = hold_in_child(&said);
    char who[64];
    CHECK_EQ(said, 'y');
    snprintf(who, sizeof who, "is in use by process %ld on ", (long)child);
    CHECK_FAIL(ares_lock_take(test_dir(), &fd), ARES_ESTATE, who);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    REQUIRE_OK(ares_lock_take(test_dir(), &fd)); /* free again, because its holder ended */
    ares_lock_drop(fd);
}

TEST(who_takes_the_lock_removes_what_a_killed_process_was_writing)
{
    static const char *const files[] = { "config.yaml.tmp.123",
                                         "DONE.tmp.4",
                                         "config.yaml",
                                         "a.tmp.12b",
                                         "a.tmp.",
                                         "b.tmp",
                                         "tmp.5",
                                         "c.mp.5" };
    ares_str left = { 0 };
    int fd;
    for (int i = 0; i < ARES_COUNT(files); i++)
        CHECK_OK(ares_file_write(test_file(files[i]), "x", 1));
    REQUIRE_OK(ares_lock_take(test_dir(), &fd));
    ares_lock_drop(fd);
    CHECK_EQ(test_shell(&left, "cd '%s' && LC_ALL=C ls | tr '\n' ' '", test_dir()), 0);
    CHECK_STR(left.data, "a.tmp. a.tmp.12b b.tmp c.mp.5 config.yaml lock tmp.5 ");
    ares_str_fini(&left);
}

TEST(a_lock_that_was_dropped_can_be_taken_and_a_folder_must_exist)
{
    int fd, said;
    REQUIRE_OK(ares_lock_take(test_dir(), &fd));
    pid_t child = hold_in_child(&said);
    CHECK_EQ(said, 'n');
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    ares_lock_drop(fd);
    child = hold_in_child(&said);
    CHECK_EQ(said, 'y');
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK_FAIL(ares_lock_take(test_file("none"), &fd), ARES_EIO, "lock: No such file");
}
