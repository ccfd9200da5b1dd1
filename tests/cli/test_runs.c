/* ares-train runs on invented run directories. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

#include "ares/io.h"
#include "ares/look.h"

static int runs(ares_str *out, const char *words)
{
    ares_str_clear(out);
    return test_shell(out, "cd '%s' && TZ=UTC '%s' runs %s 2>&1", test_dir(), test_program(),
                      words);
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[300];
    CHECK_OK(ares_dir_make(test_file(dir)));
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_OK(ares_file_write(test_file(path), text, strlen(text)));
}

/* When a run wrote its last row. */
static void touch(const char *dir, const char *when)
{
    CHECK_EQ(test_shell(NULL, "TZ=UTC touch -d '%s' '%s/%s/metrics.jsonl'", when, test_dir(), dir),
             0);
}

static const char rows[] =
    "{\"step\":0,\"val/accuracy\":0.25}\n"
    "{\"step\":1,\"reward/overall\":0.1,\"reward/accuracy\":0.2,\"timing_s/step\":30}\n"
    "{\"step\":2,\"reward/overall\":0.5,\"reward/accuracy\":0.6,\"timing_s/step\":90,"
    "\"val/accuracy\":0.75}\n"
    "{\"step\":3,\"reward/overall\":0.4,\"timing_s/step\":60,\"val/accuracy\":0.5}\n";

/* Three runs: one that is finished, one that was ended, one whose process is gone. */
static void write_runs(void)
{
    put("runs/a/finished", "metrics.jsonl", rows);
    put("runs/a/finished", "DONE", "{\"step\":3,\"stopped\":null}\n");
    put("runs/a/stopped", "metrics.jsonl",
        "{\"step\":1,\"reward/overall\":0.9,\"timing_s/step\":6}\n");
    put("runs/a/stopped", "DONE", "{\"step\":1,\"stopped\":\"reward_variance_collapse\"}\n");
    put("runs/died", "metrics.jsonl", "{\"step\":1,\"train/loss\":2}\n{\"step\":2,\"train/lo");
    put("runs/died", "config.yaml", "trainer:\n  max_steps: 40\n");
    touch("runs/a/finished", "2026-11-03 10:00");
    touch("runs/a/stopped", "2026-11-02 10:00");
    touch("runs/died", "2026-11-01 10:00");
}

TEST(runs_lists_them_the_newest_first)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    write_runs();
    CHECK_EQ(runs(&out, ""), 0);
    CHECK_STR(out.data,
              "run              state     step  reward  accuracy  best val  min  verdicts       "
              "last row\n"
              "runs/a/finished  finished  3/3   0.4     0.6       0.75 @2   3.0  2 good         "
              "2026-11-03 10:00\n"
              "runs/a/stopped   stopped   1     0.9     -         -         0.1  1 warn 1 good  "
              "2026-11-02 10:00\n"
              "runs/died        died      1/40  -       -         -         -    1 warn 1 good  "
              "2026-11-01 10:00\n");
    /* a process that holds the lock */
    int fd;
    REQUIRE_OK(ares_lock_take(test_file("runs/died"), &fd));
    CHECK_EQ(runs(&out, "runs/died/"), 0);
    CHECK_CONTAINS(out.data, "runs/died  running  1/40 ");
    ares_lock_drop(fd);
    ares_str_fini(&out);
}

TEST(runs_can_be_sorted)
{
    static const struct {
        const char *key, *first;
    } cases[] = {
        { "when", "runs/a/finished" },  { "name", "runs/a/finished" },
        { "reward", "runs/a/stopped" }, { "step", "runs/a/finished" },
        { "best", "runs/a/finished" },  { "minutes", "runs/a/finished" },
        { "state", "runs/a/finished" }, { "accuracy", "runs/a/finished" },
    };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    char words[64], first[64];
    write_runs();
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        snprintf(words, sizeof words, "--sort %s", cases[i].key);
        snprintf(first, sizeof first, "last row\n%s ", cases[i].first);
        CHECK_EQ(runs(&out, words), 0);
        CHECK_CONTAINS(out.data, first);
    }
    CHECK_EQ(runs(&out, "--sort reward | tail -n 1"), 0);
    CHECK_CONTAINS(out.data, "runs/died "); /* without a reward: last */
    CHECK_EQ(runs(&out, "--sort rewrd"), 2);
    CHECK_CONTAINS(out.data, "did you mean 'reward'?");
    ares_str_fini(&out);
}

TEST(runs_prints_json)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    ares_arena arena = { 0 };
    const ares_json *o;
    write_runs();
    CHECK_EQ(runs(&out, "--json --sort name"), 0);
    REQUIRE_OK(ares_json_parse(&arena, ares_view_trim(ares_str_view(&out)), "json", &o));
    REQUIRE(o->type == ARES_JSON_ARRAY && o->count == 3);
    ares_str_clear(&out);
    ares_json_write(&out, &o->items[0]);
    CHECK_CONTAINS(
        out.data, "{\"dir\":\"runs/a/finished\",\"last_row\":\"2026-11-03T10:00:00Z\",\"state\":"
                  "\"finished\",\"stopped\":null,\"step\":3,\"planned\":3,\"reward\":0.4,"
                  "\"accuracy\":0.6,\"best\":0.75,\"best_metric\":\"val/accuracy\",\"best_step\":2,"
                  "\"minutes\":3.0,\"verdicts\":{\"bad\":0,");
    CHECK_CONTAINS(out.data, "\"whole\":true}");
    ares_str_clear(&out);
    ares_json_write(&out, &o->items[1]);
    CHECK_CONTAINS(out.data, "\"stopped\":\"reward_variance_collapse\"");
    ares_arena_fini(&arena);
    ares_str_fini(&out);
}

TEST(runs_looks_four_folders_deep_and_follows_no_link)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    put("deep/1/2/3/4", "metrics.jsonl", "{\"step\":1}\n");
    put("deep/1/2/3/4/5", "metrics.jsonl", "{\"step\":1}\n");
    put("deep/run", "metrics.jsonl", "{\"step\":1}\n");
    put("deep/run/checkpoints/step_000001", "metrics.jsonl", "{\"step\":1}\n");
    CHECK_EQ(symlink("..", test_file("deep/again")), 0);
    CHECK_EQ(runs(&out, "deep --sort name | cut -d ' ' -f 1"), 0);
    CHECK_STR(out.data, "run\ndeep/1/2/3/4\ndeep/run\n");
    CHECK_EQ(runs(&out, ""), 2);
    CHECK_CONTAINS(out.data, "runs: 'runs': no such folder here; name a folder with runs below it");
    CHECK_OK(ares_dir_make(test_file("runs")));
    CHECK_EQ(runs(&out, ""), 0);
    CHECK_CONTAINS(out.data, "no run directory there");
    CHECK_EQ(runs(&out, "--json"), 0);
    CHECK_STR(out.data, "[]\n");
    ares_str_fini(&out);
}

TEST(runs_shows_names_and_files_of_any_bytes)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    put("runs/\033[2J\nx", "metrics.jsonl", "{\"step\":1,\"reward/overall\":1e999}\n");
    put("runs/empty", "metrics.jsonl", "");
    put("runs/garbage", "metrics.jsonl", "\033[2J\0 no JSON\n{\"step\":1}\n");
    CHECK_OK(ares_dir_make(test_file("runs/folder/metrics.jsonl")));
    CHECK_EQ(symlink("/dev/zero", test_file("runs/folder2")), 0);
    CHECK_OK(ares_dir_make(test_file("runs/zero")));
    CHECK_EQ(symlink("/dev/zero", test_file("runs/zero/metrics.jsonl")), 0);
    CHECK_EQ(runs(&out, "--sort name"), 0);
    CHECK(!strchr(out.data, '\033'));
    CHECK_CONTAINS(out.data, "runs/\\x1b[2J x ");
    CHECK_CONTAINS(out.data, "runs/empty");
    CHECK_CONTAINS(out.data, "runs/garbage");
    CHECK(!strstr(out.data, "runs/folder"));
    CHECK_CONTAINS(out.data, "unreadable");
    ares_str_fini(&out);
}

/* Of a long file the middle is not read: what is there is no JSON. */
TEST(runs_reads_the_two_ends_of_a_long_file)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 }, text = { 0 };
    for (int step = 1; step <= 3000; step++) {
        if (step > 1400 && step < 1600) ares_str_add_z(&text, "no JSON, which no one reads\n");
        else
            ares_str_addf(
                &text,
                "{\"step\":%d,\"reward/overall\":%g,\"val/accuracy\":%g,\"timing_s/step\":"
                "60,\"filling\":0.123456789}\n",
                step, step / 1000.0,
                step == 1300   ? 0.9
                : step == 2999 ? 0.8
                               : 0.1);
    }
    CHECK(text.len > 3 * (64 << 10));
    put("runs/long", "metrics.jsonl", text.data);
    CHECK_EQ(runs(&out, ""), 0);
    /* marked with ~: the best of all steps, at 1300, was not read */
    CHECK_CONTAINS(out.data, " 3000  3       -         ~0.8 @2999  ~3000.0  ~");
    CHECK_EQ(runs(&out, "--json"), 0);
    CHECK_CONTAINS(out.data, "\"whole\":false");
    ares_str_fini(&out);
    ares_str_fini(&text);
}

/* What `runs` leaves out of config.yaml no verdict asks for. */
TEST(a_brief_reading_judges_as_a_whole_one)
{
    static const char config[] =
        "data:\n  rollout_batch_size: 4\n  max_response_length: 64\n  train_files:\n  - a.jsonl\n"
        "worker:\n  actor:\n    global_batch_size: 2\n    ppo_epochs: 2\n    max_grad_norm: 0.5\n"
        "  reward:\n    rewards:\n    - name: number\n      kwargs:\n        n: 7\n"
        "    - name: format\n  rollout:\n    n: 8\n    top_p: 1.0\ntrainer:\n  max_steps: 50\n";
    ares_str text = { 0 };
    for (int i = 1; i <= 12; i++)
        ares_str_addf(
            &text,
            "{\"step\":%d,\"rollout/entropy\":%g,\"response_length/mean\":%d,"
            "\"response_length/clip_ratio\":0.6,\"actor/grad_norm\":%d,\"actor/ppo_kl_k3\":"
            "0.03,\"reward/failed/killed\":3,\"critic/score/mean\":%g,"
            "\"reward/accuracy\":0.5}\n",
            i, 1.0 / (i * i), 60 - 4 * i, i == 7 ? 90 : 1, 0.1 * i);
    put("run", "metrics.jsonl", text.data);
    put("run", "config.yaml", config);
    ares_arena arena = { 0 };
    ares_look l[2];
    ares_look_verdicts v[2] = { 0 };
    for (int brief = 0; brief < 2; brief++) {
        REQUIRE_OK(ares_look_read(&arena, test_file("run"), brief ? 64 << 10 : 0, &l[brief]));
        ares_look_judge(&arena, &l[brief], NULL, &v[brief]);
        CHECK_EQ(l[brief].planned, 50);
        const ares_json *rollout =
            ares_json_get(ares_json_get(l[brief].config, "worker"), "rollout");
        CHECK(ares_json_get(rollout, "n"));
        CHECK((ares_json_get(rollout, "top_p") == NULL) == brief);
    }
    CHECK_EQ(v[1].n, v[0].n);
    CHECK(v[0].n >= 8 && v[0].count[ARES_VERDICT_BAD] >= 2);
    for (int i = 0; i < ARES_MIN(v[0].n, v[1].n); i++) {
        CHECK_STR(v[1].each[i].id, v[0].each[i].id);
        CHECK_STR(v[1].each[i].why, v[0].each[i].why);
    }
    ares_arena_fini(&arena);
    ares_str_fini(&text);
}

/* The target is a second on an idle machine; what is checked leaves room for a busy one. */
TEST_SLOW(a_thousand_runs_are_listed_at_once)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 }, text = { 0 };
    for (int step = 1; step <= 40; step++) {
        ares_str_addf(&text, "{\"step\":%d,\"timing_s/step\":3.5", step);
        for (int k = 0; k < 150; k++)
            ares_str_addf(&text, ",\"group/metric_%d\":%.9g", k, 0.1 + step * k / 7.0);
        ares_str_add_z(&text, "}\n");
    }
    put("runs/0", "metrics.jsonl", text.data);
    CHECK_EQ(test_shell(NULL, "cp '%s' '%s/runs/0/config.yaml'", test_source("configs/base.yaml"),
                        test_dir()),
             0);
    for (int i = 1, bad = 0; i <= 999 && !bad; i++) {
        char dir[600], file[640], first[640];
        snprintf(dir, sizeof dir, "%s/runs/%d", test_dir(), i);
        bad = mkdir(dir, 0777);
        for (int k = 0; k < 2; k++) {
            const char *name = k ? "config.yaml" : "metrics.jsonl";
            snprintf(first, sizeof first, "%s/runs/0/%s", test_dir(), name);
            snprintf(file, sizeof file, "%s/%s", dir, name);
            bad |= link(first, file);
        }
        CHECK_MSG(!bad, "%s", dir);
    }
    double begin = ares_now_s();
    CHECK_EQ(runs(&out, "| wc -l"), 0);
    double seconds = ares_now_s() - begin;
    CHECK_EQ(atoi(out.data), 1001);
    printf("  %.2f s\n", seconds);
    CHECK_MSG(seconds < 10, "%.2f s", seconds);
    ares_str_fini(&out);
    ares_str_fini(&text);
}
