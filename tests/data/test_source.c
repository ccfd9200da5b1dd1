/* A data set as a source: what it draws, and how it goes on from a saved state. */
#include "test.h"

#include "ares/data_source.h"
#include "saved_source.h"

enum { ROWS = 11, DRAW = 2, EPOCH = 10 }; /* five draws per epoch, a row left out */
static ares_arena arena;

static void open_rows(int rows, ares_source *out)
{
    const char *path = test_file("rows.jsonl");
    ares_texts files = { &path, 1 };
    ares_str text = { 0 };
    ares_dataset *d = NULL;
    for (int i = 0; i < rows; i++)
        ares_str_addf(&text, "{\"prompt\":\"%d\",\"global_id\":\"g%d\"}\n", i, i);
    REQUIRE_OK(ares_file_write(path, text.data, text.len));
    REQUIRE_OK(ares_dataset_load_rows(&files, NULL, &d));
    REQUIRE_OK(ares_source_of_dataset(d, &(ares_order){ DRAW, true, 7, NULL }, out));
    ares_str_fini(&text);
}

static int load(ares_source *s, const char *text, bool other_rows)
{
    const ares_json *json;
    int rc = ares_json_parse(&arena, ares_view_of(text), "state", &json);
    return CHECK_OK(rc) ? ares_source_load(s, json, other_rows) : rc;
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
        CHECK_OK(ares_source_next(&one, DRAW, &arena, a + i));
    }
    CHECK_OK(ares_source_next(&many, 6, &arena, b)); /* across the end of an epoch */
    CHECK_OK(ares_source_next(&many, 0, &arena, b));
    CHECK_OK(ares_source_next(&many, 3 * EPOCH - 6, &arena, b + 6));
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
        if (saved) saved_source(s, &saved[i]);
        int64_t epoch = ares_source_epoch(s);
        CHECK_OK(ares_source_next(s, DRAW, &arena, out + i * DRAW));
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
        saved_source(&s, &again);
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

TEST(a_state_that_names_no_source_is_of_a_data_set)
{
    ares_source s;
    ares_drawn all[4 * EPOCH], rest[DRAW];
    open_rows(ROWS, &s);
    draw_and_skip(&s, 7, all, NULL); /* row 0 in the first epoch, row 1 in the second */
    CHECK_OK(ares_source_next(&s, DRAW, &arena, all));
    CHECK_OK(load(&s,
                  "{\"prompts_drawn\": 14, \"training_rows\": 11, "
                  "\"skipped_rows\": [[0, 0], [1, 1]]}",
                  false));
    CHECK_OK(ares_source_next(&s, DRAW, &arena, rest));
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
    saved_source(&s, &before);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        CHECK_FAIL(load(&s, cases[i].state, false), cases[i].code, cases[i].message);
        ares_str_clear(&after);
        saved_source(&s, &after);
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
    CHECK_OK(ares_source_next(&s, DRAW, &arena, drawn));
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
    REQUIRE_OK(ares_dataset_load_rows(&files, NULL, &d));
    CHECK_FAIL(ares_source_of_dataset(d, &(ares_order){ DRAW, true, 7, NULL }, &s), ARES_ECONFIG,
               "1 rows are fewer than data.rollout_batch_size = 2");
    CHECK_EQ(ares_source_count(&s), 0);
    ares_dataset_free(d);
}

/* A group of two answers to a prompt drawn; the second was cut after `tokens` tokens. */
static ares_group *partial(const ares_source *s, const ares_drawn *d, int32_t tokens)
{
    ares_group *g = ares_arena_calloc(&arena, 1, sizeof *g);
    *g = (ares_group){ .draw = d->draw, .step = 3, .row = ares_source_row(s, d->id), .n = 2 };
    g->items = ares_arena_calloc(&arena, 2, sizeof *g->items);
    for (int i = 0; i < 2; i++) {
        ares_trajectory_row *x = ares_arena_calloc(&arena, 1, sizeof *x);
        ares_trajectory_row_init(x, g->row->prompt, g->row->prompt_len, tokens, &arena);
        for (int32_t t = 0; t < tokens; t++) x->responses[t] = 10 * (int32_t)d->draw + t;
        g->items[i] = (ares_trajectory){ .index = i, .cut = i == 1, .n_rows = 1, .rows = x };
    }
    return g;
}

static void check_begun(const ares_drawn *d, int32_t tokens)
{
    REQUIRE(d->partial && d->partial->n == 2);
    const ares_trajectory_row *x = &d->partial->items[1].rows[0];
    CHECK(d->partial->draw == d->draw && d->partial->step == 3 && d->partial->row->id == d->id);
    CHECK(!d->partial->items[0].cut && d->partial->items[1].cut);
    REQUIRE(x->n_tokens == tokens);
    for (int32_t t = 0; t < tokens; t++) CHECK_EQ(x->responses[t], 10 * d->draw + t);
}

TEST(prompts_given_back_come_first_and_the_oldest_before_others)
{
    ares_source s, plain, loaded;
    ares_drawn d[6], all[14], again[5];
    ares_str saved = { 0 };
    open_rows(ROWS, &s);
    open_rows(ROWS, &plain);
    open_rows(ROWS, &loaded);
    CHECK_OK(ares_source_next(&plain, 14, &arena, all));
    CHECK_OK(ares_source_next(&s, 6, &arena, d));
    ares_source_give_back(&s, partial(&s, &d[4], 7));
    ares_source_give_back(&s, partial(&s, &d[1], 3));
    saved_source(&s, &saved);
    CHECK_OK(load(&loaded, saved.data, false));
    for (ares_source *x = &s;; x = &loaded) {            /* and the same from its saved state */
        CHECK_OK(ares_source_next(x, 5, &arena, again)); /* no whole number of draws */
        CHECK(again[0].draw == 1 && again[1].draw == 4 && again[2].draw == 6);
        check_begun(&again[0], 3);
        check_begun(&again[1], 7);
        for (int i = 2; i < 5; i++)
            CHECK(!again[i].partial && again[i].draw == 4 + i && again[i].id == all[4 + i].id);
        CHECK_OK(ares_source_next(x, 5, &arena, again)); /* what the last draw had beyond it */
        for (int i = 0; i < 5; i++)
            CHECK(!again[i].partial && again[i].draw == 9 + i && again[i].id == all[9 + i].id);
        if (x == &loaded) break;
    }
    ares_source_close(&s);
    ares_source_close(&plain);
    ares_source_close(&loaded);
    ares_str_fini(&saved);
}

TEST(prompts_given_back_with_another_number_of_answers_are_refused_unless_that_is_asked_for)
{
    ares_source s, other;
    ares_drawn d[4];
    ares_str saved = { 0 };
    open_rows(ROWS, &s);
    open_rows(ROWS, &other);
    CHECK_OK(ares_source_next(&s, 4, &arena, d));
    ares_source_give_back(&s, partial(&s, &d[1], 3));
    saved_source(&s, &saved);
    other.answers = 3;
    CHECK_FAIL(load(&other, saved.data, false), ARES_ESTATE,
               "'given_back': draw 1: it has 2 answers, and worker.rollout.n is 3 now; set that "
               "to 2");
    CHECK_OK(load(&other, saved.data, true));
    other.answers = 2;
    CHECK_OK(load(&other, saved.data, false));
    CHECK_OK(ares_source_next(&other, 1, &arena, d));
    check_begun(&d[0], 3);
    /* nothing is taken of another kind of source */
    CHECK_FAIL(load(&s, "{\"source\":\"mixture\"}", false), ARES_ESTATE,
               "data.* and curriculum.*, or pass --force");
    CHECK_OK(load(&other, "{\"source\":\"mixture\"}", true));
    CHECK_OK(ares_source_next(&other, 1, &arena, d));
    CHECK_EQ(d[0].draw, 4);
    ares_source_close(&s);
    ares_source_close(&other);
    ares_str_fini(&saved);
}

TEST(a_snapshot_is_the_state_of_its_moment_whatever_becomes_of_the_source)
{
    ares_source s;
    ares_drawn d[6], again[6];
    ares_str saved = { 0 }, written = { 0 };
    ares_source_snapshot first, second;
    open_rows(ROWS, &s);
    CHECK_OK(ares_source_next(&s, 6, &arena, d));
    ares_source_give_back(&s, partial(&s, &d[4], 7));
    ares_source_give_back(&s, partial(&s, &d[1], 3));
    saved_source(&s, &saved);
    ares_source_take_snapshot(&s, &first);
    ares_source_take_snapshot(&s, &second);
    ares_source_snapshot_fini(&first);
    CHECK_OK(ares_source_next(&s, 6, &arena, again)); /* takes both */
    ares_source_give_back(&s, partial(&s, &again[0], 5));
    ares_source_take_snapshot(&s, &first);
    ares_source_close(&s);
    ares_source_snapshot_write(&second, &written);
    CHECK_STR(written.data, saved.data);
    ares_str_clear(&written);
    ares_source_snapshot_write(&first, &written);
    CHECK(strcmp(written.data, saved.data) != 0);
    ares_source_snapshot_fini(&first);
    ares_source_snapshot_fini(&second);
    ares_str_fini(&saved);
    ares_str_fini(&written);
}

TEST(a_damaged_list_of_prompts_given_back_is_refused_and_changes_nothing)
{
    static const char head[] = "{\"prompts_drawn\":4,\"training_rows\":11,\"skipped_rows\":[],"
                               "\"given_back\":";
    static const struct {
        const char *list, *message;
    } cases[] = { { "7}", "is no list" },
                  { "[3]}", "no draws and rows" },
                  { "[{\"draw\":1}]}", "no draws and rows" },
                  { "[{\"draw\":1,\"row\":-1}]}", "no draws and rows" },
                  { "[{\"draw\":1,\"row\":11}]}", "no draws and rows" },
                  { "[{\"draw\":-1,\"row\":2}]}", "no draws and rows" },
                  { "[{\"draw\":99999999999999999999,\"row\":2}]}", "no draws and rows" },
                  { "[{\"draw\":1,\"row\":2,\"answers\":\"0\"}]}", "draw 1" },
                  { "[{\"draw\":1,\"row\":2,\"answers\":\"0g\"}]}", "draw 1" },
                  { "[{\"draw\":1,\"row\":2,\"answers\":\"00ff\"}]}", "draw 1" } };
    ares_source s;
    ares_drawn d[DRAW], after[DRAW];
    ares_str saved = { 0 }, text = { 0 };
    open_rows(ROWS, &s);
    CHECK_OK(ares_source_next(&s, DRAW, &arena, d));
    ares_source_give_back(&s, partial(&s, &d[1], 2));
    saved_source(&s, &saved);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str_clear(&text);
        ares_str_addf(&text, "%s%s", head, cases[i].list);
        CHECK_FAIL(load(&s, text.data, false), ARES_EFORMAT, cases[i].message);
        ares_str_clear(&text);
        saved_source(&s, &text);
        CHECK_STR(text.data, saved.data);
    }
    /* a row that is not there any more is left out where that is asked for */
    CHECK_OK(load(&s,
                  "{\"prompts_drawn\":4,\"training_rows\":12,\"skipped_rows\":[],"
                  "\"given_back\":[{\"draw\":1,\"row\":11,\"answers\":\"\"}]}",
                  true));
    CHECK_OK(ares_source_next(&s, DRAW, &arena, after));
    CHECK_EQ(after[0].draw, 4);
    ares_str_fini(&saved);
    ares_str_fini(&text);
    ares_source_close(&s);
}
