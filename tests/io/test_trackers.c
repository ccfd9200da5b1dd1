/*
 * The files of Trackio, MLflow and W&B: SQLite read by its library, and W&B's log by a reader of
 * its own. scripts/check_trackers.py reads them with the programs that they are for.
 */
#include "ares/io.h"
#include "events.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Opens trackers in the test's own folders; option: its text is an option named long. */
static int open_trackers(const char *loggers, int64_t from, const char *option, ares_tracker **t)
{
    const char *words[4];
    static char copy[64];
    int64_t n = 0;
    setenv("TRACKIO_DIR", test_file("trackio"), 1);
    setenv("WANDB_DIR", test_dir(), 1);
    char uri[4096];
    snprintf(uri, sizeof uri, "sqlite:///%s", test_file("mlflow.db"));
    setenv("MLFLOW_TRACKING_URI", uri, 1);
    snprintf(copy, sizeof copy, "%s", loggers);
    for (char *rest = copy, *word; (word = strsep(&rest, " "));) words[n++] = word;
    ares_json text = { .type = ARES_JSON_STRING, .text = ares_view_of(option) };
    ares_json model = { .type = ARES_JSON_STRING, .text = ARES_VIEW("m") };
    ares_json_member options[] = { { ARES_VIEW("model"), &model }, { ARES_VIEW("long"), &text } };
    ares_json all = { .type = ARES_JSON_OBJECT, .count = 1 + !!option, .members = options };
    return ares_tracker_open(&(ares_tracker_run){ .dir = test_dir(),
                                                  .from_step = from,
                                                  .loggers = words,
                                                  .n_loggers = n,
                                                  .project = "my.proj",
                                                  .name = "eins",
                                                  .options = &all },
                             t);
}

static void log_one(ares_tracker *t, int64_t step, const char *name, double value)
{
    ares_metrics *m = ares_metrics_new();
    ares_metrics_set(m, name, value);
    CHECK_OK(ares_tracker_log(t, step, m));
    ares_metrics_free(m);
}

/* ---------------------------------------------------------------- W&B */

/* CRC-32 as zlib has it, with a table, independent of the writer's code */
static uint32_t crc32_of(const char *p, size_t n)
{
    uint32_t table[256], c = 0xffffffffu;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xedb88320u : table[i] >> 1;
    }
    for (size_t i = 0; i < n; i++) c = table[(c ^ (unsigned char)p[i]) & 255] ^ c >> 8;
    return ~c;
}

/* The records of a .wandb file put together, each after its length in 4 bytes. */
static void read_wandb(const char *path, ares_str *records, int *n)
{
    ares_str file = { 0 };
    size_t start = 0;
    *n = 0;
    REQUIRE_OK(ares_file_read(path, &file));
    REQUIRE(file.len > 7 && memcmp(file.data, ":W&B\xE1\xBE\0", 7) == 0);
    for (size_t at = 7; at < file.len;) {
        size_t left = 32768 - at % 32768;
        if (left < 7) { /* zeros to the end of the block */
            for (size_t i = 0; i < left; i++) CHECK(file.data[at + i] == 0);
            at += left;
            continue;
        }
        size_t len = (size_t)little(file.data + at + 4, 2);
        int type = file.data[at + 6];
        REQUIRE(at + 7 + len <= file.len && 7 + len <= left);
        CHECK(little(file.data + at, 4) == crc32_of(file.data + at + 6, len + 1));
        if (type == 1 || type == 2) {
            start = records->len;
            ares_str_add(records, "\0\0\0\0", 4);
        }
        ares_str_add(records, file.data + at + 7, len);
        if (type == 1 || type == 4) {
            uint32_t bytes = (uint32_t)(records->len - start - 4);
            memcpy(records->data + start, &bytes, 4);
            ++*n;
        }
        at += 7 + len;
    }
    ares_str_fini(&file);
}

/* The only file that matches; fails where there are several. */
static void find_file(const char *pattern, ares_str *path)
{
    CHECK_EQ(test_shell(path, "cd '%s' && ls -d %s", test_dir(), pattern), 0);
    while (path->len && path->data[path->len - 1] == '\n') path->data[--path->len] = 0;
    CHECK(ares_view_find(ares_str_view(path), ARES_VIEW("\n"), 0) < 0);
}

TEST(the_log_of_wandb_has_a_checked_record_a_step_also_over_blocks)
{
    ares_tracker *t;
    ares_str name = { 0 }, records = { 0 }, text = { 0 }, path = { 0 };
    for (int i = 0; i < 70000; i++) ares_str_add_char(&text, 'x'); /* over three blocks */
    REQUIRE_OK(open_trackers("wandb", 0, text.data, &t));
    for (int step = 1; step <= 300; step++) log_one(t, step, "reward/overall", step / 4.0);
    log_one(t, 301, "reward/overall", NAN);
    log_one(t, 302, "reward/overall", -INFINITY);
    CHECK_OK(ares_tracker_close(t, true));
    find_file("wandb/offline-run-*/run-*.wandb", &name);
    find_file("wandb/offline-run-*/files", &path);
    int n;
    read_wandb(test_file(name.data), &records, &n);
    CHECK_EQ(n, 1 + 302 + 2);
    int64_t number = 0;
    for (size_t at = 0; at < records.len; number++) {
        uint32_t bytes;
        memcpy(&bytes, records.data + at, 4);
        ares_view v = { records.data + at + 4, bytes };
        /* field 1, a varint: the record's number */
        CHECK(v.data[0] == 8 && little(v.data + 1, 1) % 128 == (uint64_t)(number + 1) % 128);
        if (number == 0) {
            CHECK(ares_view_find(v, ARES_VIEW("my.proj"), 0) > 0);
            CHECK(ares_view_find(v, ARES_VIEW("eins"), 0) > 0);
            CHECK(ares_view_find(v, ares_str_view(&text), 0) > 0);
        }
        if (number == 7)
            CHECK(ares_view_find(v,
                                 ARES_VIEW("\x82\x01\x04"
                                           "1.75"),
                                 0) > 0);
        if (number == 301) CHECK(ares_view_find(v, ARES_VIEW("\"NaN\""), 0) > 0);
        if (number == 302) CHECK(ares_view_find(v, ARES_VIEW("\"-Infinity\""), 0) > 0);
        at += 4 + bytes;
    }
    ares_str *all[] = { &name, &records, &text, &path };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_str_fini(all[i]);
}

TEST(a_run_of_wandb_that_goes_on_writes_a_further_file_of_the_same_run)
{
    ares_tracker *t;
    ares_str out = { 0 };
    REQUIRE_OK(open_trackers("wandb", 0, NULL, &t));
    for (int step = 1; step <= 3; step++) log_one(t, step, "a", step);
    CHECK_OK(ares_tracker_close(t, false));
    REQUIRE_OK(open_trackers("wandb", 3, NULL, &t));
    log_one(t, 3, "a", 4);
    CHECK_OK(ares_tracker_close(t, true));
    CHECK_EQ(test_shell(&out,
                        "cd '%s' && ls wandb | sed 's/.*-//' | sort | uniq -c | grep -c ' 2 '",
                        test_dir()),
             0);
    CHECK_STR(out.data, "1\n");
    ares_str_fini(&out);
}

TEST(names_that_trackers_refuse_are_refused_before_a_run)
{
    CHECK_FAIL(ares_tracker_check("wandb", "a/b"), ARES_ECONFIG, "trainer.project_name");
    CHECK_OK(ares_tracker_check("tensorboard", "a/b"));
    setenv("WANDB_DIR", test_file("none"), 1);
    CHECK_OK(ares_tracker_check("wandb", "a")); /* it is made */
    CHECK_OK(ares_file_write(test_file("none"), "", 0));
    CHECK_FAIL(ares_tracker_check("wandb", "a"), ARES_EIO, "set WANDB_DIR to another");
}

#ifdef ARES_HAVE_SQLITE
#include <sqlite3.h>

/* The first column of all rows of a question, joined by spaces; run: a statement before it. */
static const char *ask(const char *file, const char *question)
{
    static char out[4][4096];
    static int turn;
    char *text = out[turn++ & 3];
    sqlite3 *db;
    sqlite3_stmt *s;
    *text = 0;
    if (!CHECK_EQ(sqlite3_open(test_file(file), &db), SQLITE_OK)) return text;
    if (CHECK_MSG(sqlite3_prepare_v2(db, question, -1, &s, NULL) == SQLITE_OK, "%s: %s", question,
                  sqlite3_errmsg(db))) {
        while (sqlite3_step(s) == SQLITE_ROW)
            snprintf(text + strlen(text), sizeof out[0] - strlen(text), "%s%s", *text ? " " : "",
                     sqlite3_column_text(s, 0) ? (const char *)sqlite3_column_text(s, 0) : "null");
        sqlite3_finalize(s);
    }
    sqlite3_close(db);
    return text;
}

#define TRACKIO "trackio/myproj.db"

TEST(trackio_gets_a_row_a_step_and_joins_two_of_the_same)
{
    ares_tracker *t;
    REQUIRE_OK(open_trackers("trackio", 0, NULL, &t));
    log_one(t, 0, "val/accuracy", 0.1);
    log_one(t, 0, "bootstrap/n", 3);
    log_one(t, 1, "reward/\xff", NAN);
    CHECK_OK(ares_tracker_close(t, true));
    CHECK_STR(ask(TRACKIO, "select metrics from metrics order by id"),
              "{\"val/accuracy\":0.1,\"bootstrap/n\":3.0} {\"reward/\xEF\xBF\xBD\":\"NaN\"}");
    CHECK_STR(ask(TRACKIO, "select config from configs where run_name = 'eins'") + 0,
              ask(TRACKIO, "select config from configs"));
    CHECK_CONTAINS(ask(TRACKIO, "select config from configs"), "\"model\":\"m\"");
    CHECK_STR(ask(TRACKIO, "pragma user_version"), "2");
    CHECK_STR(ask(TRACKIO, "select log_id = run_id || '-' || step from metrics"), "1 1");
}

TEST(a_run_that_goes_on_repeats_no_step_and_fills_in_those_that_lack)
{
    ares_tracker *t;
    REQUIRE_OK(open_trackers("trackio mlflow", 0, NULL, &t));
    for (int step = 1; step <= 5; step++) log_one(t, step, "a", step);
    CHECK_OK(ares_tracker_close(t, false));
    CHECK_STR(ask("mlflow.db", "select status from runs"), "FAILED");
    ask(TRACKIO, "delete from metrics where step = 2");
    ask("mlflow.db", "delete from metrics where step = 2");
    REQUIRE_OK(open_trackers("trackio mlflow", 4, NULL, &t));
    CHECK_STR(ask("mlflow.db", "select status from runs"), "RUNNING");
    log_one(t, 4, "a", 40);
    CHECK_OK(ares_tracker_close(t, true));
    CHECK_STR(ask(TRACKIO, "select step || metrics from metrics order by step"),
              "1{\"a\":1.0} 2{\"a\":2.0} 3{\"a\":3.0} 4{\"a\":40.0}");
    CHECK_STR(ask("mlflow.db", "select step || ':' || value from metrics order by step"),
              "1:1.0 2:2.0 3:3.0 4:40.0");
    CHECK_STR(ask("mlflow.db", "select count(*) || status from runs"), "1FINISHED");
}

TEST(mlflow_gets_names_it_takes_and_numbers_that_are_not_finite)
{
    ares_tracker *t;
    ares_str text = { 0 };
    for (int i = 0; i < 249; i++) ares_str_add_char(&text, 'x');
    ares_str_add_z(&text, "\xC3\xA9"); /* its second byte is the 251st */
    REQUIRE_OK(open_trackers("mlflow", 0, text.data, &t));
    log_one(t, 1, "val/level=easy/accuracy", 0.25);
    log_one(t, 1, "val/level_easy/accuracy", 0.5);
    log_one(t, 2, "a", INFINITY);
    CHECK_OK(ares_tracker_close(t, true));
    CHECK_STR(ask("mlflow.db", "select key || value from metrics where step = 1 order by value"),
              "val/level_easy/accuracy0.25 val/level_easy/accuracy_20.5");
    CHECK_STR(ask("mlflow.db", "select value || is_nan from metrics where step = 2"), "0.01");
    CHECK_STR(ask("mlflow.db", "select length(value) from params where key = 'long'"), "249");
    CHECK_STR(ask("mlflow.db", "select experiment_id || name from experiments"),
              "0Default 1my.proj");
    CHECK_STR(ask("mlflow.db", "select version_num from alembic_version"), "7ac759974ad8");
    ares_str_fini(&text);
}

/* What a later MLflow makes of the file: a table of latest values, and further columns. */
TEST(a_file_that_mlflow_has_brought_up_to_date_keeps_its_latest_values)
{
    ares_tracker *t;
    REQUIRE_OK(open_trackers("mlflow", 0, NULL, &t));
    log_one(t, 1, "a", 1);
    ask("mlflow.db", "create table latest_metrics (key text not null, value float not null, "
                     "timestamp bigint, step bigint not null, is_nan boolean not null, run_uuid "
                     "text not null, primary key (key, run_uuid))");
    ask("mlflow.db", "alter table runs add column deleted_time bigint");
    log_one(t, 2, "a", 2);
    CHECK_OK(ares_tracker_close(t, false));
    CHECK_STR(ask("mlflow.db", "select step || ':' || value from latest_metrics"), "2:2.0");
    REQUIRE_OK(open_trackers("mlflow", 2, NULL, &t)); /* step 2 is repeated */
    CHECK_STR(ask("mlflow.db", "select step || ':' || value from latest_metrics"), "1:1.0");
    CHECK_OK(ares_tracker_close(t, true));
    ask("mlflow.db", "alter table metrics add column colour text");
    CHECK_OK(ares_tracker_check("mlflow", "p"));
    ask("mlflow.db", "drop table metrics");
    ask("mlflow.db", "create table metrics (key, value, timestamp, run_uuid, step, is_nan, taste "
                     "text not null)");
    CHECK_FAIL(ares_tracker_check("mlflow", "p"), ARES_EUNSUPPORTED, "wants a value for taste");
    CHECK_FAIL(open_trackers("mlflow", 0, NULL, &t), ARES_EUNSUPPORTED, "taste");
}

TEST(files_that_are_none_of_a_tracker_are_refused)
{
    static const char *const uris[] = { "http://localhost:5000", "postgresql://u@h/d", "sqlite://",
                                        "sqlite:///:memory:",    "databricks",         "mlruns" };
    static const char *const names[] = { "registry-a", "a_system",    "a_configs",
                                         "a_traces",   "a_artifacts", "a.b_run_artifact_links" };
    ares_tracker *t;
    for (int i = 0; i < ARES_COUNT(uris); i++) {
        setenv("MLFLOW_TRACKING_URI", uris[i], 1);
        CHECK_FAIL(ares_tracker_check("mlflow", "p"), ARES_ECONFIG, "sqlite:///mlflow.db");
    }
    REQUIRE_OK(open_trackers("console", 0, NULL, &t)); /* sets the variables */
    CHECK_OK(ares_tracker_close(t, true));
    for (int i = 0; i < ARES_COUNT(names); i++)
        CHECK_FAIL(ares_tracker_check("trackio", names[i]), ARES_ECONFIG, "trainer.project_name");
    CHECK_OK(ares_tracker_check("trackio", "_system")); /* Trackio takes it, too */
    CHECK_OK(ares_dir_make(test_file("trackio")));
    ask("trackio/old.db", "create table metrics (id integer primary key, timestamp text, run_name "
                          "text, step integer, metrics text)");
    CHECK_FAIL(ares_tracker_check("trackio", "old"), ARES_EUNSUPPORTED, "before 0.24");
    ask("mlflow.db", "create table other (a)");
    CHECK_FAIL(ares_tracker_check("mlflow", "p"), ARES_EUNSUPPORTED, "no database of MLflow");
    CHECK_OK(ares_file_write(test_file("mlflow.db"), "no database, but long enough to look", 36));
    CHECK_FAIL(ares_tracker_check("mlflow", "p"), ARES_EIO, "not a database");
    CHECK_STR(ask("trackio/old.db", "select count(*) from metrics"), "0"); /* left as it was */
}

TEST(a_file_that_is_gone_is_made_anew_with_all_steps)
{
    ares_tracker *t;
    REQUIRE_OK(open_trackers("trackio", 0, NULL, &t));
    log_one(t, 1, "a", 1);
    ask(TRACKIO, "drop table metrics");
    log_one(t, 2, "a", 2); /* fails: a warning, and the row is kept */
    log_one(t, 3, "a", 3);
    CHECK_OK(ares_tracker_close(t, true));
    CHECK_STR(ask(TRACKIO, "select step || metrics from metrics order by step"),
              "1{\"a\":1.0} 2{\"a\":2.0} 3{\"a\":3.0}");
}

TEST(an_alert_is_told_once_and_again_where_it_becomes_bad)
{
    ares_tracker *t;
    REQUIRE_OK(open_trackers("trackio", 0, NULL, &t));
    CHECK(ares_tracker_shows_alerts(t));
    ares_tracker_alert a = { .rule = "entropy", .title = "Entropy falls", .text = "why" };
    ares_tracker_tell(t, 3, &a);
    ares_tracker_tell(t, 4, &a);
    CHECK_STR(ask(TRACKIO, "select level || step || title from alerts"), "warn3Entropy falls");
    a.bad = true;
    ares_tracker_tell(t, 5, &a);
    a.bad = false;
    ares_tracker_tell(t, 6, &a);
    CHECK_STR(ask(TRACKIO, "select level || step || title from alerts"), "error5Entropy falls");
    CHECK_OK(ares_tracker_close(t, true));
}

/* The lock is held for as long as a step waits for it: some 10 s. */
TEST_SLOW(rows_are_kept_while_another_program_holds_the_file)
{
    ares_tracker *t;
    sqlite3 *db;
    REQUIRE_OK(open_trackers("mlflow", 0, NULL, &t));
    log_one(t, 1, "a", 1);
    CHECK_EQ(sqlite3_open(test_file("mlflow.db"), &db), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(db, "begin exclusive", NULL, NULL, NULL), SQLITE_OK);
    double began = ares_now_s();
    log_one(t, 2, "a", 2);
    double waited = ares_now_s() - began;
    CHECK(waited > 9 && waited < 30);
    began = ares_now_s();
    log_one(t, 3, "a", 3);
    CHECK(ares_now_s() - began < 9); /* later steps do not wait as long */
    CHECK_EQ(sqlite3_exec(db, "commit", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    log_one(t, 4, "a", 4);
    CHECK_OK(ares_tracker_close(t, true));
    CHECK_STR(ask("mlflow.db", "select step from metrics order by step"), "1 2 3 4");
}
#endif
