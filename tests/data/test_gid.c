#include "ares/data.h"
#include "test.h"

static ares_dataset *load(const char *name, const char *text)
{
    const char *path = test_file(name);
    ares_texts files = { &path, 1 };
    ares_data_config cfg = { .prompt_key = "prompt", .answer_key = "answer" };
    ares_dataset *d = NULL;
    if (CHECK_OK(ares_file_write(path, text, strlen(text))))
        CHECK_OK(ares_dataset_load(&files, &cfg, false, &d));
    return d;
}

TEST(a_row_has_its_global_id_or_one_made_of_its_place)
{
    ares_dataset *d =
        load("rows.jsonl", "{\"prompt\":\"a\",\"global_id\":\"x "
                           "y\"}\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\",\"global_id\":"
                           "12345678901234567890}\n{\"prompt\":\"d\",\"global_id\":null}\n");
    static const char *const want[] = { "x y", "example-000001", "12345678901234567890",
                                        "example-000003" };
    ares_map *gids = NULL;
    REQUIRE(d != NULL);
    for (int i = 0; i < ARES_COUNT(want); i++) {
        CHECK_STR(ares_dataset_row(d, i)->gid, want[i]);
        CHECK_EQ(ares_dataset_row(d, i)->gid_given, i % 2 == 0);
    }
    if (CHECK_OK(ares_dataset_gids(d, &gids))) {
        int64_t at = -1;
        CHECK(ares_map_get(gids, ARES_VIEW("example-000003"), &at));
        CHECK_EQ(at, 3);
    }
    ares_map_free(gids);
    ares_dataset_free(d);
}

TEST(two_rows_of_one_global_id_are_named_with_both_lines)
{
    ares_dataset *d = load("twice.jsonl", "{\"prompt\":\"a\",\"global_id\":7}\n{\"prompt\":\"b\"}"
                                          "\n{\"prompt\":\"c\",\"global_id\":\"7\"}\n");
    ares_map *gids;
    REQUIRE(d != NULL);
    CHECK_FAIL(ares_dataset_gids(d, &gids), ARES_EFORMAT, "twice.jsonl:3: global_id = '7'");
    CHECK_CONTAINS(ares_error_message(), "twice.jsonl:1 has the same");
    ares_dataset_free(d);
}
