#include "test.h"

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
    CHECK_FAIL(ares_file_read(test_dir(), &text), ARES_EIO, "cannot be read: Is a directory");
    CHECK_FAIL(ares_file_write(test_file("no/such"), "", 0), ARES_EIO, "no/such");
    CHECK_FAIL(ares_file_write_atomic(test_file("no/such"), "", 0), ARES_EIO, "no/such");
    ares_str_fini(&text);
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
