/* Rows as they are read: what counts as a row, and what errors say. */
#include "test.h"

#include <stdio.h>

#include "../../src/data/internal.h"
#include "ares/data.h"

static const ares_data_config cfg = { .prompt_key = "q", .answer_key = "a" };

static int load(const char *name, ares_view text, bool need_answer, ares_dataset **out)
{
    const char *path = test_file(name);
    CHECK_OK(ares_file_write(path, text.data, text.len));
    return dataset_load(&(ares_texts){ &path, 1 }, &cfg, need_answer, out);
}

static void check_refused(const char *text, const char *message)
{
    ares_dataset *d;
    char place[600];
    snprintf(place, sizeof place, "%s%s", test_file("x.jsonl"), message);
    CHECK_FAIL(load("x.jsonl", ares_view_of(text), true, &d), ARES_EFORMAT, place);
    CHECK(d == NULL);
}

TEST(rows_keep_their_texts_whatever_is_in_them)
{
    ares_dataset *d;
    REQUIRE_OK(
        load("x.jsonl",
             ARES_VIEW("{\"q\":\"a\\u0000b\xe2\x80\xa8"
                       "c\",\"a\":\"\\u0000\"}\n\n{\"a\":1.50,\"q\":\"\",\"data_source\":\"s\"}\r\n"
                       "{\"q\":[{\"role\":\"user\",\"content\":\"x\"}],\"a\":[1, {\"k\":null}]}"),
             true, &d));
    CHECK_EQ(ares_dataset_count(d), 3);
    const ares_row *r = ares_dataset_row(d, 0);
    CHECK(ares_view_eq(ares_json_get(r->json, "q")->text, ARES_VIEW("a\0b\xe2\x80\xa8"
                                                                    "c")));
    CHECK(ares_view_eq(r->ground_truth, ARES_VIEW("\0")));
    CHECK(r->id == 0 && r->line == 1);
    CHECK_STR(r->file, test_file("x.jsonl"));
    CHECK_STR(r->data_source, test_file("x.jsonl"));
    r = ares_dataset_row(d, 1);
    CHECK_VIEW(r->ground_truth, "1.5");
    CHECK_STR(r->data_source, "s");
    CHECK_EQ(r->line, 3);
    r = ares_dataset_row(d, 2);
    CHECK_VIEW(r->ground_truth, "[1,{\"k\":null}]");
    CHECK(r->id == 2 && r->line == 4);
    ares_dataset_free(d);
}

TEST(files_are_read_in_turn)
{
    static const char *const texts[] = { "{\"q\":\"x\",\"a\":1}\n{\"q\":\"y\",\"a\":2}\n",
                                         "{\"q\":\"z\",\"a\":3}\n" };
    const char *paths[] = { test_file("1.jsonl"), test_file("2.jsonl") };
    ares_dataset *d;
    for (int i = 0; i < 2; i++) CHECK_OK(ares_file_write(paths[i], texts[i], strlen(texts[i])));
    REQUIRE_OK(dataset_load(&(ares_texts){ paths, 2 }, &cfg, true, &d));
    CHECK_EQ(ares_dataset_count(d), 3);
    CHECK(ares_dataset_row(d, 2)->line == 1 && ares_dataset_row(d, 2)->id == 2);
    CHECK_STR(ares_dataset_row(d, 2)->file, paths[1]);
    ares_dataset_free(d);
}

TEST(every_bad_row_is_named_by_file_and_line)
{
    static const char good[] = "{\"q\":\"x\",\"a\":1}\n";
    static const struct {
        const char *row, *message;
    } cases[] = {
        { "{\"q\":\"x\",\"a\":1", ":3:15: not JSON" },
        { "{\"q\":\"x\",\"a\":NaN}", ":3:14: not JSON" },
        { "{\"q\":\"\xff\",\"a\":1}", ":3:" },
        { "[1]", ":3: row is not a JSON object" },
        { "\"x\"", ":3: row is not a JSON object" },
        { "{\"question\":\"x\",\"b\":2}",
          ":3: row has no key 'q' (keys: question, b); set data.prompt_key" },
        { "{}", ":3: row has no key 'q' (keys: none)" },
        { "{\"q\":\"x\",\"answer\":2}",
          ":3: row has no key 'a' (keys: q, answer); set data.answer_key" },
        { "{\"q\":\"x\",\"a\":null}",
          ":3: row has null as its 'a' (keys: q, a); set a value there, or data.answer_key" },
        { "{\"q\":5,\"a\":1}", ":3: 'q' is neither a string nor a list of messages" },
        { "{\"q\":null,\"a\":1}", ":3: 'q' is neither a string nor a list of messages" },
        { "{\"q\":[],\"a\":1}", ":3: 'q' is an empty list of messages" },
        { "{\"q\":[{\"role\":\"user\"},{\"content\":\"x\"}],\"a\":1}",
          ":3: 'q'[1] is not a message: it has no string 'role'" },
        { "{\"q\":[\"x\"],\"a\":1}", ":3: 'q'[0] is not a message" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char text[256];
        snprintf(text, sizeof text, "%s\n%s\n%s", good, cases[i].row, good);
        check_refused(text, cases[i].message);
    }
}

TEST(paths_lead_into_objects_and_lists)
{
    static const struct {
        const char *path, *value; /* NULL: there is none */
    } cases[] = {
        { "a", "1" },         { "b.c", "2" },     { "b.l[0]", "3" },   { "b.l[1].d", "4" },
        { "b.l[-1].d", "4" }, { "m[0][1]", "6" }, { "x.y", "7" },      { "b.l[2]", NULL },
        { "b.l[-3]", NULL },  { "b.none", NULL }, { "a.c", NULL },     { "b[0]", NULL },
        { "b.", NULL },       { ".b", NULL },     { "b..c", NULL },    { "b.l[x]", NULL },
        { "b.l[0", NULL },    { "", NULL },       { "m[0]", "[5,6]" },
    };
    ares_arena arena = { 0 };
    const ares_json *j;
    CHECK_OK(ares_json_parse(&arena,
                             ARES_VIEW("{\"a\":1,\"b\":{\"c\":2,\"l\":[3,{\"d\":4}]},"
                                       "\"m\":[[5,6]],\"x\":{\"y\":0},\"x.y\":7}"),
                             "t", &j));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const ares_json *v = ares_row_at(j, cases[i].path);
        ares_str text = { 0 };
        if (v) ares_json_write(&text, v);
        CHECK_STR(v ? text.data : "none", cases[i].value ? cases[i].value : "none");
        ares_str_fini(&text);
    }
    CHECK(!ares_row_at(NULL, "a"));
    ares_arena_fini(&arena);
}

TEST(keys_are_paths_and_verls_rows_are_known_by_form)
{
    static const char verls[] =
        "{\"data_source\":\"openai/gsm8k\",\"prompt\":[{\"role\":\"user\",\"content\":\"x\"}],"
        "\"reward_model\":{\"ground_truth\":\"10\",\"style\":\"rule\"},"
        "\"extra_info\":{\"answer\":\"long\",\"turns\":[{\"value\":\"y\"}]}}";
    static const struct {
        const char *prompt_key, *answer_key, *truth, *message; /* message NULL: it is read */
        bool structured;
    } cases[] = {
        { "prompt", "answer", "10", NULL, false },
        { "prompt", "reward_model.ground_truth", "10", NULL, false },
        { "extra_info.turns[0].value", "extra_info.answer", "long", NULL, false },
        { "prompt", "reward_model", "{\"ground_truth\":\"10\",\"style\":\"rule\"}", NULL, true },
        { "prompt", "extra_info.turns", "[{\"value\":\"y\"}]", NULL, true },
        { "prompt", "solution", NULL,
          ":1: row has no key 'solution' (keys: data_source, prompt, reward_model.ground_truth, "
          "reward_model.style, extra_info.answer, extra_info.turns); set data.answer_key",
          false },
        { "extra_info.turns[1].value", "answer", NULL,
          ":1: row has no key 'extra_info.turns[1].value'", false },
    };
    const char *path = test_file("verl.jsonl");
    CHECK_OK(ares_file_write(path, verls, sizeof verls - 1));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_dataset *d;
        ares_data_config keys = { .prompt_key = cases[i].prompt_key,
                                  .answer_key = cases[i].answer_key };
        int rc = dataset_load(&(ares_texts){ &path, 1 }, &keys, true, &d);
        if (cases[i].message) {
            CHECK_FAIL(rc, ARES_EFORMAT, cases[i].message);
            continue;
        }
        REQUIRE_OK(rc);
        CHECK_VIEW(ares_dataset_row(d, 0)->ground_truth, cases[i].truth);
        CHECK_EQ(ares_dataset_row(d, 0)->structured, cases[i].structured);
        ares_dataset_free(d);
    }
}

TEST(a_set_without_rows_or_files_is_refused)
{
    ares_dataset *d;
    const char *none = test_file("none.jsonl"), *folder = test_dir();
    check_refused("", ": no rows");
    check_refused("\n \n\r\n", ": no rows");
    CHECK_FAIL(dataset_load(&(ares_texts){ &none, 1 }, &cfg, true, &d), ARES_EIO,
               "none.jsonl: no such file");
    CHECK_OK(ares_dir_make(test_file("empty")));
    const char *empty = test_file("empty"), *hub = "someone/math@train";
    CHECK_FAIL(dataset_load(&(ares_texts){ &folder, 1 }, &cfg, true, &d), ARES_EFORMAT,
               "x.jsonl: no rows");
    CHECK_FAIL(dataset_load(&(ares_texts){ &empty, 1 }, &cfg, true, &d), ARES_EIO,
               "the folder has no file of rows");
    CHECK_FAIL(dataset_load(&(ares_texts){ &hub, 1 }, &cfg, true, &d), ARES_EIO,
               "if it is a name on a hub, download");
    CHECK_FAIL(dataset_load(&(ares_texts){ NULL, 0 }, &cfg, true, &d), ARES_ECONFIG,
               "no file of rows is given");
}

TEST(splits_are_told_by_the_names_that_hubs_use)
{
    static const struct {
        const char *path, *rows, *message; /* rows: their questions; NULL: refused */
    } cases[] = {
        { "flat@train", "train-00000-of-00001 train-00001-of-00001", NULL },
        { "flat@test", "test-00000-of-00001", NULL },
        { "flat/test", "test-00000-of-00001", NULL },
        { "flat@train@[1:]", "train-00001-of-00001", NULL },
        { "flat", NULL, "the folder has several splits (test, train); name one: /" },
        { "flat", NULL, "/flat@train" },
        { "flat@dev", NULL, "the folder has no split 'dev' (splits: test, train)" },
        { "flat/none", NULL, "flat/none: no such file" },
        { "data@validation", "data/dev", NULL },
        { "data@val", "data/dev", NULL },
        { "data/data@train", "data/training_set", NULL },
        { "folders@test", "test/a test/b", NULL },
        { "custom@train_sft", "train_sft-00000-of-00002", NULL },
        { "custom", NULL, "several splits (train_gen, train_sft)" },
        { "plain", "latest one", NULL },
        { "plain@train", "latest one", NULL },
        { "plain@test", NULL, "the folder has no split 'test' (splits: train)" },
        { "one", "extra train", NULL },
        { "one@train", "train", NULL },
        { "one/train.jsonl@train", "train", NULL },
        { "flat/test-00000-of-00001.jsonl@test", "test-00000-of-00001", NULL },
        { "one/extra.jsonl@test", NULL, "name the file that holds 'test'" },
        { "cards", NULL, "several configurations, each in a folder; name one of them, as in" },
        { "cards/main@train", "main/train", NULL },
    };
    static const char *const files[] = {
        "flat/train-00000-of-00001",
        "flat/train-00001-of-00001",
        "flat/test-00000-of-00001",
        "data/data/training_set",
        "data/data/dev",
        "folders/train/a",
        "folders/test/a",
        "folders/test/b",
        "custom/train_sft-00000-of-00002",
        "custom/train_gen-00000-of-00001",
        "plain/latest",
        "plain/one",
        "one/train",
        "one/extra",
        "cards/main/train",
        "cards/socratic/train",
    };
    static const char card[] = "---\nconfigs:\n- config_name: main\n- config_name: socratic\n---\n";
    for (int i = 0; i < ARES_COUNT(files); i++) {
        char row[200], name[200], folder[200];
        snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(files[i], '/') - files[i]), files[i]);
        for (char *p = folder; (p = strchr(p + 1, '/'));) {
            *p = 0;
            (void)ares_dir_make(test_file(folder));
            *p = '/';
        }
        (void)ares_dir_make(test_file(folder));
        snprintf(name, sizeof name, "%s.jsonl", files[i]);
        snprintf(row, sizeof row, "{\"q\":\"%s\",\"a\":1}\n", strchr(files[i], '/') + 1);
        REQUIRE_OK(ares_file_write(test_file(name), row, strlen(row)));
    }
    REQUIRE_OK(ares_file_write(test_file("cards/README"
                                         ".md"),
                               card, sizeof card - 1));
    REQUIRE_OK(ares_file_write(test_file("flat/dataset_infos.json"), "{}", 2));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_dataset *d;
        ares_str rows = { 0 };
        const char *path = test_file(cases[i].path);
        int rc = dataset_load(&(ares_texts){ &path, 1 }, &cfg, true, &d);
        for (int64_t k = 0; rc == ARES_OK && k < ares_dataset_count(d); k++) {
            ares_str_add_z(&rows, k ? " " : "");
            ares_str_add_view(&rows, ares_json_get(ares_dataset_row(d, k)->json, "q")->text);
        }
        if (rc == ARES_OK) ares_dataset_free(d);
        if (cases[i].rows)
            CHECK_MSG(rc == ARES_OK && !strcmp(rows.data, cases[i].rows), "%s: %s: %s",
                      cases[i].path, rows.len ? rows.data : "none", ares_error_message());
        else
            CHECK_MSG(rc != ARES_OK && strstr(ares_error_message(), cases[i].message), "%s: %s",
                      cases[i].path, ares_error_message());
        ares_str_fini(&rows);
    }
}

TEST(folders_lists_and_splits_name_rows_too)
{
    static const char rows[] = "{\"q\":\"b\",\"a\":1}\n",
                      list[] = " [{\"q\":\"a1\",\"a\":1},\n{\"q\":\"a2\",\"a\":2}]\n",
                      lines[] = "{\"q\":\"c\",\"a\":3}\n";
    ares_dataset *d;
    const char *folder = test_file("rows"), *split = test_file("rows/b.jsonl@train"),
               *other = test_file("rows/b.jsonl@test");
    REQUIRE_OK(ares_dir_make(folder));
    REQUIRE_OK(ares_file_write(test_file("rows/b.jsonl"), rows, sizeof rows - 1));
    REQUIRE_OK(ares_file_write(test_file("rows/a.json"), list, sizeof list - 1));
    REQUIRE_OK(ares_file_write(test_file("rows/c.json"), lines, sizeof lines - 1));
    REQUIRE_OK(ares_file_write(test_file("rows/notes.txt"), "no rows", 7));
    REQUIRE_OK(dataset_load(&(ares_texts){ &folder, 1 }, &cfg, true, &d));
    static const char *const prompts[] = { "a1", "a2", "b", "c" }; /* files by name */
    CHECK_EQ(ares_dataset_count(d), 4);
    for (int i = 0; i < 4 && i < ares_dataset_count(d); i++)
        CHECK(ares_view_is(ares_json_get(ares_dataset_row(d, i)->json, "q")->text, prompts[i]));
    ares_dataset_free(d);
    REQUIRE_OK(dataset_load(&(ares_texts){ &split, 1 }, &cfg, true, &d));
    CHECK_EQ(ares_dataset_count(d), 1);
    ares_dataset_free(d);
    CHECK_FAIL(dataset_load(&(ares_texts){ &other, 1 }, &cfg, true, &d), ARES_ECONFIG,
               "has one split, train");
}

TEST(a_folder_of_many_files_is_read_by_their_names)
{
    enum { FILES = 200 };
    ares_dataset *d;
    char name[64], row[64];
    const char *folder = test_file("many");
    REQUIRE_OK(ares_dir_make(folder));
    for (int i = 0; i < FILES; i++) {
        int at = i * 77 % FILES; /* written in another order */
        (void)snprintf(name, sizeof name, "many/%03d.jsonl", at);
        (void)snprintf(row, sizeof row, "{\"q\":\"%d\",\"a\":1}\n", at);
        REQUIRE_OK(ares_file_write(test_file(name), row, strlen(row)));
    }
    REQUIRE_OK(dataset_load(&(ares_texts){ &folder, 1 }, &cfg, true, &d));
    CHECK_EQ(ares_dataset_count(d), FILES);
    for (int i = 0; i < FILES && i < ares_dataset_count(d); i++) {
        (void)snprintf(row, sizeof row, "%d", i);
        CHECK_VIEW(ares_json_get(ares_dataset_row(d, i)->json, "q")->text, row);
    }
    ares_dataset_free(d);
}

TEST(rows_of_instructions_need_no_answer)
{
    ares_dataset *d;
    REQUIRE_OK(
        load("x.jsonl",
             ARES_VIEW("{\"q\":\"x\",\"instruction_id_list\":[\"punctuation:no_comma\"]}\n{\"q\":"
                       "\"x\",\"metadata\":{\"checkers\":[]}}\n{\"q\":\"x\",\"a\":1}\n"),
             true, &d));
    CHECK_EQ(ares_dataset_count(d), 3);
    CHECK_EQ(ares_dataset_row(d, 0)->ground_truth.len, 0);
    ares_dataset_free(d);
    check_refused("{\"q\":\"x\",\"rm_type\":\"math\"}\n", ":1: row has no key 'a'");
}

TEST(metadata_may_lie_under_another_key)
{
    static const char rows[] = "{\"q\":\"x\",\"a\":1,\"about\":{\"rm_type\":\"math\"},"
                               "\"metadata\":{\"rm_type\":\"f1\",\"k\":1}}\n"
                               "{\"q\":\"x\",\"a\":1,\"metadata\":{\"k\":1}}\n"
                               "{\"q\":\"x\",\"about\":{\"checkers\":[]}}\n"
                               "{\"q\":\"x\",\"a\":1,\"about\":null}\n",
                      wrong[] = "{\"q\":\"x\",\"a\":1,\"about\":\"math\"}\n";
    const char *path = test_file("about.jsonl");
    ares_data_config other = cfg;
    ares_dataset *d;
    other.metadata_key = "about";
    REQUIRE_OK(ares_file_write(path, rows, sizeof rows - 1));
    REQUIRE_OK(dataset_load(&(ares_texts){ &path, 1 }, &other, true, &d));
    for (int i = 0; i < 4; i++) {
        const ares_json *of = ares_json_get(ares_dataset_row(d, i)->json, "metadata");
        REQUIRE(of && of->type == ARES_JSON_OBJECT);
        CHECK_EQ(of->count, i == 0 || i == 2);
        CHECK(i || ares_view_is(ares_json_get(of, "rm_type")->text, "math"));
    }
    ares_dataset_free(d);
    REQUIRE_OK(ares_file_write(path, wrong, sizeof wrong - 1));
    CHECK_FAIL(dataset_load(&(ares_texts){ &path, 1 }, &other, true, &d), ARES_EFORMAT,
               "about.jsonl:1: 'about' is no map, and data.metadata_key says");
}

TEST(answers_may_be_absent_where_they_are_not_needed)
{
    ares_dataset *d;
    REQUIRE_OK(load("x.jsonl", ARES_VIEW("{\"q\":\"x\"}\n{\"q\":\"x\",\"a\":null}\n"), false, &d));
    for (int i = 0; i < 2; i++) CHECK_VIEW(ares_dataset_row(d, i)->ground_truth, "");
    ares_dataset_free(d);
}

TEST(many_rows_stay_where_they_are)
{
    ares_str text = { 0 };
    ares_dataset *d;
    for (int i = 0; i < 5000; i++) ares_str_addf(&text, "{\"q\":\"question %d\",\"a\":%d}\n", i, i);
    REQUIRE_OK(load("x.jsonl", ares_str_view(&text), true, &d));
    CHECK_EQ(ares_dataset_count(d), 5000);
    for (int i = 0; i < 5000; i++) {
        char want[32];
        snprintf(want, sizeof want, "question %d", i);
        if (!CHECK_VIEW(ares_json_get(ares_dataset_row(d, i)->json, "q")->text, want) ||
            !CHECK_EQ(ares_dataset_row(d, i)->line, i + 1))
            break;
    }
    ares_dataset_free(d);
    ares_str_fini(&text);
}

/* Whether the files of tests/golden/rows named so can be read by this build. */
static bool load_rows(const char *name, const char *key, ares_dataset **out)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/tests/golden/rows/%s", ARES_SOURCE_DIR, name);
    const ares_data_config keys = { .prompt_key = key, .answer_key = "answer" };
    int rc = dataset_load(&(ares_texts){ (const char *[]){ path }, 1 }, &keys, true, out);
    if (rc == ARES_EUNSUPPORTED) test_skip(ares_error_message());
    else CHECK_OK(rc);
    return rc == ARES_OK;
}

TEST(compressed_rows_take_slices_and_name_their_lines)
{
    ares_dataset *d;
    static const char *const names[] = { "rows.jsonl.gz@[1:]", "rows.jsonl.zst@[1:3]" };
    for (int i = 0; i < 2; i++) {
        if (!load_rows(names[i], "prompt", &d)) return;
        CHECK_EQ(ares_dataset_count(d), 2);
        CHECK_EQ(ares_dataset_row(d, 0)->line, 2);
        CHECK_VIEW(ares_dataset_row(d, 1)->ground_truth, "5");
        CHECK_STR(ares_dataset_row(d, 0)->data_source, "math");
        ares_dataset_free(d);
    }
    CHECK_VIEW(path_name("a/math.jsonl.gz@[1:]"), "math");
    CHECK_VIEW(path_name("math.zst"), "math");
}

TEST(parquet_rows_take_messages_answers_and_slices)
{
    ares_dataset *d;
    if (!load_rows("snappy.parquet@[1:]", "prompt", &d)) return;
    CHECK_EQ(ares_dataset_count(d), 2);
    const ares_row *r = ares_dataset_row(d, 0);
    CHECK_EQ(r->line, 2);
    CHECK_STR(r->data_source, "math");
    CHECK_VIEW(r->ground_truth, "4");
    CHECK_EQ(ares_json_get(r->json, "prompt")->count, 2);
    ares_dataset_free(d);
    if (!load_rows("zstd.parquet", "question", &d)) return;
    CHECK_EQ(ares_dataset_count(d), 3);
    ares_dataset_free(d);
}
