#include "../../src/data/internal.h"
#include "ares/data_source.h"
#include "test.h"

#include <stdio.h>

static bool load(const char *name, const char *text, ares_source *out)
{
    const char *path = test_file(name);
    ares_texts files = { &path, 1 };
    ares_data_config cfg = { .prompt_key = "prompt", .answer_key = "answer" };
    ares_dataset *d = NULL;
    return CHECK_OK(ares_file_write(path, text, strlen(text))) &&
           CHECK_OK(dataset_load(&files, &cfg, false, &d)) &&
           CHECK_OK(ares_source_of_dataset(d, &(ares_order){ .draw = 1 }, out));
}

TEST(a_row_has_its_global_id_or_one_made_of_its_place)
{
    ares_source s;
    bool loaded = load("rows.jsonl",
                       "{\"prompt\":\"a\",\"global_id\":\"x "
                       "y\"}\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\",\"global_id\":"
                       "12345678901234567890}\n{\"prompt\":\"d\",\"global_id\":null}\n",
                       &s);
    static const char *const want[] = { "x y", "example-000001", "12345678901234567890",
                                        "example-000003" };
    ares_map *gids = NULL;
    REQUIRE(loaded);
    for (int i = 0; i < ARES_COUNT(want); i++) {
        CHECK_STR(ares_source_row(&s, i)->gid, want[i]);
        CHECK_EQ(ares_source_row(&s, i)->gid_given, i % 2 == 0);
    }
    if (CHECK_OK(ares_source_gids(&s, &gids))) {
        int64_t at = -1;
        CHECK(ares_map_get(gids, ARES_VIEW("example-000003"), &at));
        CHECK_EQ(at, 3);
    }
    ares_map_free(gids);
    ares_source_close(&s);
}

TEST(two_rows_of_one_global_id_are_named_with_both_lines)
{
    ares_source s;
    bool loaded = load("twice.jsonl",
                       "{\"prompt\":\"a\",\"global_id\":7}\n{\"prompt\":\"b\"}"
                       "\n{\"prompt\":\"c\",\"global_id\":\"7\"}\n",
                       &s);
    ares_map *gids;
    REQUIRE(loaded);
    CHECK_FAIL(ares_source_gids(&s, &gids), ARES_EFORMAT, "twice.jsonl:3: global_id = '7'");
    CHECK_CONTAINS(ares_error_message(), "twice.jsonl:1 has the same");
    ares_source_close(&s);
}

TEST(a_global_id_that_is_no_name_is_refused_with_its_line)
{
    static const struct {
        const char *id, *why;
    } cases[] = {
        { "true", ":2: 'global_id' is neither a string nor a number" },
        { "[1]", ":2: 'global_id' is neither a string nor a number" },
        { "{\"a\":1}", ":2: 'global_id' is neither a string nor a number" },
        { "\"\"", ":2: 'global_id' is empty or holds a NUL" },
        { "\"a\\u0000b\"", ":2: 'global_id' is empty or holds a NUL" },
        { "1.50", NULL },
        { "\" \"", NULL },
    };
    const char *path = test_file("rows.jsonl");
    ares_data_config cfg = { .prompt_key = "prompt", .answer_key = "answer" };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char text[200];
        ares_dataset *d = NULL;
        int n = snprintf(text, sizeof text,
                         "{\"prompt\":\"a\"}\n{\"prompt\":\"b\",\"global_id\":%s}\n", cases[i].id);
        CHECK_OK(ares_file_write(path, text, (size_t)n));
        int rc = dataset_load(&(ares_texts){ &path, 1 }, &cfg, false, &d);
        if (cases[i].why) CHECK_FAIL(rc, ARES_EFORMAT, cases[i].why);
        else if (CHECK_OK(rc)) CHECK_STR(ares_dataset_row(d, 1)->gid, i == 5 ? "1.50" : " ");
        ares_dataset_free(d);
    }
}
