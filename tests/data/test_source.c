/* A data set as a source: what it draws, and how it goes on from a saved state. */
#include "test.h"

#include <stdio.h>

#include "ares/data_source.h"

enum { ROWS = 11, DRAW = 2, EPOCH = 10 }; /* five draws per epoch, a row left out */

static void open_rows(int rows, ares_source *out)
{
    const char *path = test_file("rows.jsonl");
    ares_texts files = { &path, 1 };
    ares_str text = { 0 };
    ares_dataset *d = NULL;
    for (int i = 0; i < rows; i++)
        ares_str_addf(&text, "{\"prompt\":\"%d\",\"global_id\":\"g%d\"}\n", i, i);
    REQUIRE_OK(ares_file_write(path, text.data, text.len));
    REQUIRE_OK(ares_dataset_load_rows(&files, &d));
    REQUIRE_OK(ares_source_of_dataset(d, &(ares_order){ DRAW, true, 7 }, out));
    ares_str_fini(&text);
}

static int load(ares_source *s, const char *text, bool other_rows)
{
    ares_arena arena = { 0 };
    const ares_json *json;
    int rc = ares_json_parse(&arena, ares_view_of(text), "state", &json);
    if (CHECK_OK(rc)) rc = ares_source_load(s, json, other_rows);
    ares_arena_fini(&arena);
    return rc;
}

TEST(a_closed_source_has_no_rows)
{
    ares_source s = { 0 };
    CHECK_EQ(ares_source_count(&s), 0);
    ares_source_close(&s);
}

TEST(a_source_gives_every_row_by_its_id_and_finds_it_by_its_gid)
{
    ares_source s;
    ares_map *gids = NULL;
    int64_t id = -1;
    open_rows(ROWS, &s);
    CHECK_EQ(ares_source_count(&s), ROWS);
    for (int64_t i = 0; i < ROWS; i++) CHECK_EQ(ares_source_row(&s, i)->id, i);
    if (CHECK_OK(ares_source_gids(&s, &gids)))
        CHECK(ares_map_get(gids, ARES_VIEW("g7"), &id) && id == 7);
    ares_map_free(gids);
    ares_source_close(&s);
}

TEST(several_draws_at_once_are_those_that_come_one_by_one)
{
    ares_source one, many;
    ares_drawn a[3 * EPOCH], b[3 * EPOCH];
    open_rows(ROWS, &one);
    open_rows(ROWS, &many);
    for (int i = 0; i < 3 * EPOCH; i += DRAW) {
        CHECK_EQ(ares_source_epoch(&one), i / EPOCH);
        CHECK_OK(ares_source_next(&one, DRAW, a + i));
    }
    CHECK_OK(ares_source_next(&many, 6, b)); /* across the end of an epoch */
    CHECK_OK(ares_source_next(&many, 0, b));
    CHECK_OK(ares_source_next(&many, 3 * EPOCH - 6, b + 6));
    CHECK_MEM(b, a, sizeof a);
    for (int i = 0; i < 3 * EPOCH; i++) CHECK_EQ(a[i].draw, i);
    CHECK_EQ(ares_source_epoch_draws(&one), EPOCH / DRAW);
    ares_source_close(&one);
    ares_source_close(&many);
}

/* Draws `draws` times and skips row e in each epoch e; saved [draws]: the state before each draw.
 */
static void draw_and_skip(ares_source *s, int draws, ares_drawn *out, ares_str *saved)
{
    for (int i = 0; i < draws; i++) {
        if (saved) ares_source_save(s, &saved[i]);
        int64_t epoch = ares_source_epoch(s);
        CHECK_OK(ares_source_next(s, DRAW, out + i * DRAW));
        ares_source_skip(s, epoch);
    }
}

TEST(a_state_saved_anywhere_in_an_epoch_goes_on_alike)
{
    enum { DRAWS = 20 };
    ares_source s;
    ares_drawn whole[DRAWS * DRAW], rest[DRAWS * DRAW];
    ares_str saved[DRAWS] = { 0 }, again = { 0 };
    open_rows(ROWS, &s);
    draw_and_skip(&s, DRAWS, whole, saved);
    int64_t epoch = ares_source_epoch(&s), skipped = ares_source_skipped(&s),
            draws = ares_source_epoch_draws(&s);
    CHECK_EQ(epoch, 4);
    CHECK_EQ(skipped, 5);
    CHECK_EQ(draws, 3);
    for (int i = DRAWS - 1; i >= 0; i--) { /* also by a source that is further on */
        CHECK_OK(load(&s, saved[i].data, false));
        ares_str_clear(&again);
        ares_source_save(&s, &again);
        CHECK_STR(again.data, saved[i].data);
        draw_and_skip(&s, DRAWS - i, rest, NULL);
        CHECK_MEM(rest, whole + i * DRAW, (size_t)((DRAWS - i) * DRAW) * sizeof *rest);
        CHECK_EQ(ares_source_epoch(&s), epoch);
        CHECK_EQ(ares_source_skipped(&s), skipped);
    }
    for (int i = 0; i < DRAWS; i++) ares_str_fini(&saved[i]);
    ares_str_fini(&again);
    ares_source_close(&s);
}

TEST(the_state_of_an_older_checkpoint_is_read)
{
    ares_source s;
    ares_drawn all[4 * EPOCH], rest[DRAW];
    open_rows(ROWS, &s);
    draw_and_skip(&s, 7, all, NULL); /* row 0 in the first epoch, row 1 in the second */
    CHECK_OK(ares_source_next(&s, DRAW, all));
    CHECK_OK(load(&s,
                  "{\"version\": 2, \"prompts_drawn\": 14, \"training_rows\": 11, "
                  "\"skipped_rows\": [[0, 0], [1, 1]]}",
                  false));
    CHECK_OK(ares_source_next(&s, DRAW, rest));
    CHECK_MEM(rest, all, sizeof rest);
    ares_source_close(&s);
}

TEST(a_state_that_does_not_fit_is_refused_and_changes_nothing)
{
    static const struct {
        const char *state;
        int code;
        const char *message;
    } cases[] = {
        { "[]", ARES_EFORMAT, "'prompts_drawn'" },
        { "{}", ARES_EFORMAT, "no count 'prompts_drawn'; the checkpoint is damaged" },
        { "{\"source\":\"mixture\",\"prompts_drawn\":4}", ARES_ESTATE,
          "the state is of a source 'mixture', and the run draws from a 'dataset'" },
        { "{\"source\":1}", ARES_EFORMAT, "source" },
        { "{\"prompts_drawn\":-2,\"training_rows\":11,\"skipped_rows\":[]}", ARES_EFORMAT,
          "'prompts_drawn'" },
        { "{\"prompts_drawn\":1e99,\"training_rows\":11,\"skipped_rows\":[]}", ARES_EFORMAT,
          "'prompts_drawn'" },
        { "{\"prompts_drawn\":99999999999999999999,\"training_rows\":11,\"skipped_rows\":[]}",
          ARES_EFORMAT, "'prompts_drawn'" },
        { "{\"prompts_drawn\":4,\"skipped_rows\":[]}", ARES_EFORMAT, "'training_rows'" },
        { "{\"prompts_drawn\":4,\"training_rows\":12,\"skipped_rows\":[]}", ARES_ESTATE,
          "the run had 12 training rows, the data set has 11 now; restore data.train_files" },
        { "{\"prompts_drawn\":4,\"training_rows\":11}", ARES_EFORMAT, "'skipped_rows'" },
        { "{\"prompts_drawn\":4,\"training_rows\":11,\"skipped_rows\":{}}", ARES_EFORMAT,
          "'skipped_rows' holds no pairs of a row and an epoch; the checkpoint is damaged" },
        { "{\"prompts_drawn\":4,\"training_rows\":11,\"skipped_rows\":[3]}", ARES_EFORMAT,
          "'skipped_rows'" },
        { "{\"prompts_drawn\":4,\"training_rows\":11,\"skipped_rows\":[[3]]}", ARES_EFORMAT,
          "'skipped_rows'" },
        { "{\"prompts_drawn\":4,\"training_rows\":11,\"skipped_rows\":[[2,0],[11,0]]}",
          ARES_EFORMAT, "'skipped_rows'" },
        { "{\"prompts_drawn\":4,\"training_rows\":11,\"skipped_rows\":[[-1,0]]}", ARES_EFORMAT,
          "'skipped_rows'" },
        { "{\"prompts_drawn\":4,\"training_rows\":11,\"skipped_rows\":[[1,5]]}", ARES_EFORMAT,
          "'skipped_rows'" },
    };
    ares_source s;
    ares_drawn drawn[DRAW];
    ares_str before = { 0 }, after = { 0 };
    open_rows(ROWS, &s);
    draw_and_skip(&s, 1, drawn, NULL);
    ares_source_save(&s, &before);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        CHECK_FAIL(load(&s, cases[i].state, false), cases[i].code, cases[i].message);
        ares_str_clear(&after);
        ares_source_save(&s, &after);
        CHECK_STR(after.data, before.data);
    }
    ares_str_fini(&before);
    ares_str_fini(&after);
    ares_source_close(&s);
}

/* Counts of a forged state are followed without an endless search for their epoch. */
TEST(a_state_of_huge_counts_ends_at_once)
{
    ares_source s;
    ares_drawn drawn[DRAW];
    open_rows(ROWS, &s);
    CHECK_OK(load(&s,
                  "{\"prompts_drawn\":4000000000000000000,\"training_rows\":11,"
                  "\"skipped_rows\":[[4,300000000000000000],[5,300000000000000000]]}",
                  false));
    CHECK_OK(ares_source_next(&s, DRAW, drawn));
    CHECK_EQ(drawn[0].draw, 4000000000000000000);
    CHECK_EQ(ares_source_epoch(&s), 425000000000000000);
    ares_source_close(&s);
}

TEST(a_forced_state_of_another_number_of_rows_keeps_what_is_there)
{
    ares_source s;
    open_rows(ROWS, &s);
    CHECK_OK(load(&s, "{\"prompts_drawn\":4,\"training_rows\":50,\"skipped_rows\":[[10,0],[11,0]]}",
                  true));
    CHECK_EQ(ares_source_skipped(&s), 1);
    ares_source_close(&s);
}

TEST(fewer_rows_than_a_draw_are_refused_and_stay_the_callers)
{
    const char *path = test_file("one.jsonl");
    ares_texts files = { &path, 1 };
    ares_dataset *d = NULL;
    ares_source s = { 0 };
    REQUIRE_OK(ares_file_write(path, "{\"prompt\":\"a\"}\n", 15));
    REQUIRE_OK(ares_dataset_load_rows(&files, &d));
    CHECK_FAIL(ares_source_of_dataset(d, &(ares_order){ DRAW, true, 7 }, &s), ARES_ECONFIG,
               "1 rows are fewer than data.rollout_batch_size = 2");
    CHECK_EQ(ares_source_count(&s), 0);
    ares_dataset_free(d);
}
