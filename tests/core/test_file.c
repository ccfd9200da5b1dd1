#include "ares/core.h"
#include "test.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(a_file_comes_back_as_it_was_written)
{
    ares_str text = { 0 };
    char data[100000];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * 7);
    REQUIRE_OK(ares_file_write(test_file("a"), data, sizeof data));
    REQUIRE_OK(ares_file_read(test_file("a"), &text));
    CHECK_EQ(text.len, sizeof data);
    CHECK_MEM(text.data, data, sizeof data);
    uint64_t h = ARES_FNV1A;
    REQUIRE_OK(ares_file_hash(test_file("a"), &h)); /* which reads two pieces */
    CHECK(h == ares_fnv1a(ARES_FNV1A, data, sizeof data));
    REQUIRE_OK(ares_file_write_atomic(test_file("a"), "new", 3));
    REQUIRE_OK(ares_file_read(test_file("a"), &text));
    CHECK_STR(text.data, "new");
    REQUIRE_OK(ares_file_write(test_file("a"), "", 0));
    REQUIRE_OK(ares_file_read(test_file("a"), &text));
    CHECK_STR(text.data, "");
    ares_str_fini(&text);
}

TEST(files_of_unknown_size_are_read_to_their_end)
{
    ares_str text = { 0 };
    REQUIRE_OK(ares_file_read("/proc/self/status", &text)); /* its size is given as 0 */
    CHECK_CONTAINS(text.data, "Threads:");
    ares_str_fini(&text);
}

TEST(a_refused_file_is_named_with_the_reason)
{
    ares_str text = { 0 };
    CHECK_FAIL(ares_file_read(test_file("none"), &text), ARES_EIO,
               "none': cannot be opened: No such file");
    CHECK_FAIL(ares_file_read(test_dir(), &text), ARES_EIO, "cannot be opened: a folder");
    CHECK_FAIL(ares_file_hash(test_dir(), &(uint64_t){ 0 }), ARES_EIO, "opened: a folder");
    CHECK_FAIL(ares_file_write(test_file("no/such"), "", 0), ARES_EIO, "no/such");
    CHECK_FAIL(ares_file_write_atomic(test_file("no/such"), "", 0), ARES_EIO, "no/such");
    ares_str_fini(&text);
}

/* Nobody writes to the pipe, and /dev/zero never ends. */
TEST(a_pipe_or_device_in_the_place_of_a_file_is_refused_at_once)
{
    ares_str text = { 0 };
    const char *why, *pipe = test_file("pipe");
    REQUIRE(mkfifo(pipe, 0600) == 0);
    REQUIRE(symlink("/dev/zero", test_file("zero")) == 0);
    CHECK_FAIL(ares_file_read(pipe, &text), ARES_EIO,
               "pipe': cannot be opened: not a regular file");
    CHECK_FAIL(ares_file_read(test_file("zero"), &text), ARES_EIO, "not a regular file");
    CHECK_EQ(ares_file_open(test_dir(), &why), -1);
    CHECK_STR(why, "a folder");
    CHECK_EQ(ares_input_open(test_dir(), &why), -1);
    CHECK_STR(why, "a folder");
    ares_str_fini(&text);
}

TEST(what_git_lfs_leaves_in_the_place_of_a_file_is_recognised)
{
    static const char pointer[] = "version https://git-lfs.test/v1\noid sha256:0\nsize 1\n";
    ares_str text = { 0 };
    const char *path = test_file("model.safetensors");
    REQUIRE_OK(ares_file_write(path, pointer, strlen(pointer)));
    CHECK_FAIL(ares_file_read(path, &text), ARES_EIO, "run 'git lfs pull' in its folder");
    REQUIRE_OK(ares_file_write(path, pointer + 1, strlen(pointer) - 1));
    CHECK_OK(ares_file_read(path, &text));
    ares_str_fini(&text);
}

TEST(an_input_may_be_a_pipe)
{
    ares_str text = { 0 };
    char path[64];
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    REQUIRE(write(ends[1], "piped", 5) == 5 && close(ends[1]) == 0);
    CHECK_FAIL(ares_file_read(path, &text), ARES_EIO, "not a regular file");
    REQUIRE_OK(ares_input_read(path, &text));
    CHECK_STR(text.data, "piped");
    close(ends[0]);
    ares_str_fini(&text);
}

/* Exempt: files of the kernel, of the program's own making, and a descriptor for a child. */
TEST(a_line_of_a_file_is_what_follows_its_name)
{
    ares_str line = { 0 };
    REQUIRE_OK(ares_file_write(test_file("info"), "a name: one: two \nb\nb: three", 28));
    CHECK(ares_file_line(test_file("info"), "a name", &line));
    CHECK_STR(line.data, "one: two");
    CHECK(ares_file_line(test_file("info"), "b", &line)); /* the line without a colon is no such */
    CHECK_STR(line.data, "three");
    CHECK(!ares_file_line(test_file("info"), "c", &line));
    CHECK(!ares_file_line(test_file("nowhere"), "a", &line));
    CHECK_STR(ares_error_message(), "");
    ares_str_fini(&line);
}

TEST(files_are_opened_for_reading_in_one_place)
{
    ares_str found = { 0 };
    CHECK_EQ(
        test_shell(
            &found,
            "cd '%s' && grep -rnE 'O_RDONLY|\\bfopen\\(|freopen\\(|ifstream' src "
            "--include='*.c' --include='*.cpp' --include='*.h' --include='*.cu' | "
            "grep -vE '^src/(main|core/(file|pool|checkpoint)|dist/(launch|stall))\\.c:|/dev/null'",
            test_source(".")),
        1);
    CHECK_STR(found.data ? found.data : "", "");
    ares_str_fini(&found);
}

TEST(a_full_disk_leaves_the_old_file_whole)
{
    if (access("/dev/full", W_OK) != 0) SKIP("no /dev/full");
    CHECK_FAIL(ares_file_write("/dev/full", "x", 1), ARES_EIO, "No space left");
    REQUIRE_OK(ares_file_write(test_file("kept"), "old", 3));
    REQUIRE_OK(ares_dir_make(test_file("sub")));
    CHECK_FAIL(ares_file_write_atomic(test_file("sub"), "new", 3), ARES_EIO,
               "cannot be replaced"); /* a folder has its name */
    ares_str text = { 0 };
    CHECK_EQ(test_shell(&text, "ls '%s'", test_dir()), 0);
    CHECK_STR(text.data, "kept\nsub\n"); /* no temporary file is left */
    ares_str_fini(&text);
}

TEST(folders_are_made_with_parents_and_removed_with_contents)
{
    const char *deep = test_file("a/b//c/");
    REQUIRE_OK(ares_dir_make(deep));
    REQUIRE_OK(ares_dir_make(deep));
    CHECK(ares_dir_exists(test_file("a/b/c")));
    CHECK(!ares_file_exists(test_file("a/b/c")));
    REQUIRE_OK(ares_file_write(test_file("a/b/c/file"), "x", 1));
    REQUIRE_OK(ares_file_write(test_file("outside"), "x", 1));
    CHECK(ares_file_exists(test_file("a/b/c/file")));
    CHECK_EQ(symlink(test_file("outside"), test_file("a/link")), 0);
    CHECK_EQ(symlink(test_dir(), test_file("a/up")), 0); /* must not be followed */
    CHECK_FAIL(ares_dir_make(test_file("outside/x")), ARES_EIO, "outside': cannot be made");
    REQUIRE_OK(ares_dir_remove(test_file("a")));
    CHECK(!ares_dir_exists(test_file("a")));
    CHECK(ares_file_exists(test_file("outside")));
    CHECK_OK(ares_dir_remove(test_file("a")));
}

TEST(paths_join)
{
    ares_str p = { 0 };
    CHECK_STR(ares_path_join(&p, "a", "b"), "a/b");
    CHECK_STR(ares_path_join(&p, p.data, "c"), "a/b/c");
    CHECK_STR(ares_path_join(&p, "a/", "b"), "a/b");
    CHECK_STR(ares_path_join(&p, "a", "/b"), "/b");
    CHECK_STR(ares_path_join(&p, "", "b"), "b");
    CHECK_STR(ares_path_join(&p, "a", ""), "a");
    ares_str_fini(&p);
}
