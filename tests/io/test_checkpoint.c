/* Directories that appear whole or not at all. A crash is simulated by stopping between the calls.
 */
#include "test.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ares/io.h"

static const char *dir(void)
{
    return test_file("checkpoints");
}

static const char *inside(const char *name, const char *file)
{
    static char path[4][512];
    static int at;
    char *p = path[at++ % 4];
    snprintf(p, sizeof path[0], "%s/%s%s%s", dir(), name, file ? "/" : "", file ? file : "");
    return p;
}

static bool write_in(const char *temporary, const char *text)
{
    char path[512], inner[512];
    snprintf(inner, sizeof inner, "%s/model", temporary);
    snprintf(path, sizeof path, "%s/model/weights", temporary);
    return CHECK_OK(ares_dir_make(inner)) && CHECK_OK(ares_file_write(path, text, strlen(text)));
}

static void save(const char *name, const char *text)
{
    ares_str temporary = { 0 };
    if (CHECK_OK(ares_checkpoint_begin(dir(), name, true, &temporary)) &&
        write_in(temporary.data, text))
        CHECK_OK(ares_checkpoint_commit(dir(), name, temporary.data));
    ares_str_fini(&temporary);
}

static void check_holds(const char *name, const char *text)
{
    ares_str s = { 0 };
    if (CHECK_OK(ares_file_read(inside(name, "model/weights"), &s))) CHECK_STR(s.data, text);
    ares_str_fini(&s);
}

static void check_latest(const char *name)
{
    ares_str s = { 0 };
    if (CHECK_OK(ares_checkpoint_latest(dir(), &s))) CHECK_VIEW(ares_str_view(&s), name);
    ares_str_fini(&s);
}

/* Names in the folder, sorted, joined by spaces. */
static void check_listing(const char *expected)
{
    struct dirent **entries;
    ares_str s = { 0 };
    int n = scandir(dir(), &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (strcmp(entries[i]->d_name, ".") != 0 && strcmp(entries[i]->d_name, "..") != 0)
            ares_str_addf(&s, s.len ? " %s" : "%s", entries[i]->d_name);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    CHECK_VIEW(ares_str_view(&s), expected);
    ares_str_fini(&s);
}

TEST(a_checkpoint_appears_with_its_commit_and_becomes_the_latest)
{
    ares_str temporary = { 0 };
    check_latest(""); /* not even a folder */
    REQUIRE_OK(ares_checkpoint_begin(dir(), "step_000001", true, &temporary));
    write_in(temporary.data, "one");
    CHECK(!ares_dir_exists(inside("step_000001", NULL)));
    check_latest("");
    CHECK_OK(ares_checkpoint_commit(dir(), "step_000001", temporary.data));
    check_holds("step_000001", "one");
    check_latest("step_000001");
    save("step_000002", "two");
    check_latest("step_000002");
    check_listing("latest step_000001 step_000002");
    ares_str_fini(&temporary);
}

TEST(what_a_crash_leaves_is_removed_by_the_next_begin)
{
    ares_str temporary = { 0 };
    save("step_000001", "one");
    REQUIRE_OK(ares_checkpoint_begin(dir(), "step_000002", true, &temporary));
    write_in(temporary.data, "half");
    CHECK_OK(ares_file_write(inside("latest.tmp.123", NULL), "step_0", 6));
    CHECK_OK(ares_dir_make(inside(".tmp-old-step_000000/model", NULL)));
    check_latest("step_000001");
    REQUIRE_OK(ares_checkpoint_begin(dir(), "step_000003", true, &temporary));
    check_listing(".tmp-step_000003 latest step_000001");
    ares_checkpoint_abandon(temporary.data);
    check_listing("latest step_000001");
    ares_str_fini(&temporary);
}

TEST(the_same_step_saved_again_changes_places_with_the_old_one)
{
    save("step_000001", "one");
    save("step_000001", "again");
    check_holds("step_000001", "again");
    check_latest("step_000001");
    check_listing("latest step_000001");
}

TEST(latest_that_is_missing_empty_or_dangling_gives_way_to_the_highest_step)
{
    save("step_000009", "nine");
    save("step_000010", "ten");
    save("step_1000000", "a million"); /* the number counts, not the alphabet */
    save("step_000011", "eleven");
    check_latest("step_000011"); /* the one that `latest` names, not the highest */
    CHECK_OK(ares_file_write(inside("latest", NULL), "step_000009\n", 12));
    check_latest("step_000009");
    CHECK_OK(ares_file_write(inside("latest", NULL), "step_000777", 11));
    check_latest("step_1000000");
    CHECK_OK(ares_file_write(inside("latest", NULL), " \n", 2));
    check_latest("step_1000000");
    unlink(inside("latest", NULL));
    check_latest("step_1000000");
}

TEST(names_that_are_no_steps_are_no_checkpoints)
{
    static const char *const names[] = {
        "step_",   "step_x",       "step_-5",          "step_1x",
        "step_ 1", "steps_000001", ".tmp-step_000001", "step_99999999999999999999999"
    };
    for (int i = 0; i < ARES_COUNT(names); i++) CHECK_OK(ares_dir_make(inside(names[i], NULL)));
    CHECK_OK(ares_file_write(inside("step_000005", NULL), "a file", 6));
    check_latest("");
    CHECK_OK(ares_dir_make(inside("step_000000", NULL)));
    check_latest("step_000000");
}

/* A file of more than `limit` bytes cannot be written: EFBIG, as ENOSPC on a full disk. */
static void limit_file_size(rlim_t limit)
{
    struct rlimit r;
    getrlimit(RLIMIT_FSIZE, &r);
    r.rlim_cur = limit;
    signal(SIGXFSZ, limit == RLIM_INFINITY ? SIG_DFL : SIG_IGN);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &r), 0);
}

TEST(a_disk_that_fills_up_leaves_the_old_checkpoint)
{
    ares_str temporary = { 0 };
    ares_safetensors_writer *w;
    char path[512];
    float *zeros = ares_calloc(1 << 20, sizeof *zeros);
    save("step_000001", "one");
    REQUIRE_OK(ares_checkpoint_begin(dir(), "step_000002", true, &temporary));
    snprintf(path, sizeof path, "%s/model.safetensors", temporary.data);
    REQUIRE_OK(ares_safetensors_create(path, &w));
    ares_safetensors_declare(w, "w", ARES_F32, 1, (const int64_t[]){ 1 << 20 });
    limit_file_size(1 << 20);
    ares_safetensors_write(w, zeros, sizeof *zeros << 20);
    CHECK_FAIL(ares_safetensors_finish(w), ARES_EIO, "model.safetensors: File too large");
    ares_checkpoint_abandon(temporary.data);
    /* cleaning up does not hide the cause */
    CHECK_CONTAINS(ares_error_message(), "File too large");
    limit_file_size(0); /* not one byte for `latest` */
    REQUIRE_OK(ares_checkpoint_begin(dir(), "step_000003", true, &temporary));
    CHECK_FAIL(ares_checkpoint_commit(dir(), "step_000003", temporary.data), ARES_EIO, "latest");
    limit_file_size(RLIM_INFINITY);
    check_latest("step_000001");
    check_holds("step_000001", "one");
    save("step_000004", "four");
    check_latest("step_000004");
    check_listing("latest step_000001 step_000003 step_000004");
    ares_free(zeros);
    ares_str_fini(&temporary);
}

/*
 * aepo.json ckpt_prune_easyr1_*: steps 5, 10, 15, 20 are there, 25 has just been saved, 10 is the
 * best. The cases prune before the save and this prunes after it, which gives the same.
 */
static void check_pruned(int keep, const char *left)
{
    const char *spare[] = { "step_000010", NULL };
    for (int step = 5; step <= 25; step += 5) {
        char name[32];
        snprintf(name, sizeof name, "step_%06d", step);
        CHECK_OK(ares_dir_make(inside(name, "model")));
    }
    CHECK_OK(ares_checkpoint_prune(dir(), keep, spare));
    check_listing(left);
}

TEST(pruning_keeps_the_newest_and_the_best_within_the_limit)
{
    check_pruned(3, "step_000010 step_000020 step_000025"); /* ckpt_prune_easyr1_3: 5 and 15 go */
    /* ckpt_prune_easyr1_1: 5, 15 and 20 go */
    check_pruned(1, "step_000010 step_000025");
    check_pruned(2, "step_000010 step_000025");
    check_pruned(4, "step_000010 step_000015 step_000020 step_000025");
    check_pruned(9, "step_000005 step_000010 step_000015 step_000020 step_000025");
    check_pruned(0, "step_000005 step_000010 step_000015 step_000020 step_000025");
}

TEST(pruning_touches_nothing_else_and_needs_no_best)
{
    const char *newest[] = { "step_000003", "step_000777", NULL };
    CHECK_OK(ares_checkpoint_prune(dir(), 2, NULL)); /* no folder yet */
    for (int i = 1; i <= 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "step_%06d", i);
        save(name, "x");
    }
    CHECK_OK(ares_dir_make(inside("notes", NULL)));
    /* the newest is the best: it takes one place, not two */
    CHECK_OK(ares_checkpoint_prune(dir(), 2, newest));
    check_listing("latest notes step_000002 step_000003");
    CHECK_OK(ares_checkpoint_prune(dir(), 1, NULL));
    check_listing("latest notes step_000003");
}

TEST(of_rolling_checkpoints_one_is_kept_and_none_counts_among_the_others)
{
    ares_str name = { 0 };
    save("step_000001", "one");
    save("step_000002", "two");
    save("rolling_000003", "three");
    check_latest("rolling_000003");
    CHECK_OK(ares_checkpoint_prune(dir(), 2, NULL));
    save("rolling_000004", "four");
    check_listing(
        /* as a process leaves it that is killed between the two */
        "latest rolling_000003 rolling_000004 step_000001 step_000002");
    unlink(inside("latest", NULL));
    check_latest("rolling_000004");
    CHECK_OK(ares_checkpoint_drop_rolling(dir(), "rolling_000004"));
    CHECK_OK(ares_checkpoint_rolling(dir(), &name));
    CHECK_STR(name.data, "rolling_000004");
    check_listing("rolling_000004 step_000001 step_000002");
    save("step_000005", "five");
    CHECK_OK(ares_checkpoint_drop_rolling(dir(), NULL));
    CHECK_OK(ares_checkpoint_rolling(dir(), &name));
    CHECK_EQ(name.len, 0);
    check_listing("latest step_000001 step_000002 step_000005");
    ares_str_fini(&name);
}
