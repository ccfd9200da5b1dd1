#include "../../src/data/dataset.h"
#include "ares/data_source.h"
#include "test.h"

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
