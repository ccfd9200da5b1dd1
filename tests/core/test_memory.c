/* The end of a process that gets no memory: what it says is all that is left of it. */
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(pages_that_the_system_refuses_are_no_end_of_the_process)
{
    CHECK(!ares_pages_try((size_t)1 << 60));
    void *p = ares_pages_try(4096);
    CHECK(p && ((char *)p)[4095] == 0);
    ares_pages_free(p, 4096);
}

#ifdef __SANITIZE_ADDRESS__
TEST(memory_that_is_refused_is_told_with_rank_bytes_and_remedy)
{
    SKIP("the sanitizer has a heap of its own");
}
#else
static void ask(const char *file, int rank, rlim_t limit, size_t bytes)
{
    int out = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(out, STDERR_FILENO);
    signal(SIGABRT, SIG_DFL); /* the runner's own */
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
    if (limit) setrlimit(RLIMIT_AS, &(struct rlimit){ limit, limit });
    ares_log_set(ARES_LOG_INFO, rank);
    ares_free(ares_malloc(bytes));
    _exit(0);
}

TEST(memory_that_is_refused_is_told_with_rank_bytes_and_remedy)
{
    static const struct {
        int rank;
        rlim_t limit;
        const char *before, *after;
    } cases[] = {
        { 0, 0, "error: core: 1152921504606846976 bytes of host memory were refused to process ",
          "; 'ares-train plan' says what a run needs, and which options need less\n" },
        { 3, (rlim_t)1 << 33,
          "[rank 3] error: core: 1152921504606846976 bytes of host memory were refused to process ",
          ", whose limit is 8.00 GiB (ulimit -v); 'ares-train plan'" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str said = { 0 };
        const char *file = test_file("said");
        int status = 0;
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) ask(file, cases[i].rank, cases[i].limit, (size_t)1 << 60);
        REQUIRE_OK(pid > 0 && waitpid(pid, &status, 0) == pid ? ARES_OK : ARES_EIO);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        REQUIRE_OK(ares_file_read(file, &said));
        CHECK_EQ(strncmp(said.data, cases[i].before, strlen(cases[i].before)), 0);
        CHECK_CONTAINS(said.data, cases[i].after);
        ares_str_fini(&said);
    }
}
#endif
