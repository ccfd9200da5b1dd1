/* Weighted data sets as a source: shares, what is given back, going on, and what is refused. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "ares/data_source.h"
#include "saved_source.h"

enum { PARTS = 3, FETCH = 7, FETCHES = 12 };
static ares_arena arena;

typedef struct options {
    ares_curriculum_config curriculum;
    ares_data_config data;
    ares_config *cfg;
} options;

/* A curriculum of the words, over files a.jsonl, b.jsonl, c.jsonl unless words name others. */
static void read_words(options *o, ares_curriculum *c, int n, const char *const *words)
{
    *o = (options){ .cfg = ares_config_new() };
    ares_config_add_options(o->cfg, "data", ares_data_options, &o->data);
    ares_config_add_options(o->cfg, "curriculum", ares_curriculum_options, &o->curriculum);
    ares_config_override(o->cfg, "data.train_files=[a.jsonl, b.jsonl, c.jsonl]");
    for (int i = 0; i < n; i++) ares_config_override(o->cfg, words[i]);
    ares_config_resolve(o->cfg);
    ares_curriculum_read(o->cfg, &o->curriculum, &o->data.train_files, 100, false, c);
}

typedef struct mixed {
    options o;
    ares_curriculum c;
    ares_source s;
} mixed;

static int more_of_a; /* rows that the part 'a' has beside its five */

/* Parts of 5, 6, 7 ... rows each, named by words. */
static void open_mixed(mixed *m, int n, const char *const *words)
{
    ares_row_file files[8] = { 0 };
    ares_dataset *d = NULL;
    read_words(&m->o, &m->c, n, words);
    REQUIRE_OK(ares_config_finish(m->o.cfg));
    for (int64_t i = 0; i < m->c.n; i++) {
        ares_str text = { 0 };
        char name[32];
        snprintf(name, sizeof name, "%s.jsonl", m->c.names[i]);
        int rows = 5 + m->c.names[i][0] - 'a' + (m->c.names[i][0] == 'a' ? more_of_a : 0);
        for (int k = 0; k < rows; k++)
            ares_str_addf(&text, "{\"prompt\":\"%s%d\"}\n", m->c.names[i], k);
        files[i] = (ares_row_file){ .path = ares_arena_printf(&arena, "%s", test_file(name)),
                                    .source = m->c.names[i] };
        REQUIRE_OK(ares_file_write(files[i].path, text.data, text.len));
        ares_str_fini(&text);
    }
    REQUIRE_OK(ares_dataset_load_files(files, m->c.n, NULL, false, &d));
    ares_order order = { .draw = FETCH, .shuffle = true, .seed = 3 };
    REQUIRE_OK(ares_source_of_mixture(d, &m->c, &order, &m->s));
}

static void close_mixed(mixed *m)
{
    ares_source_close(&m->s);
    ares_config_free(m->o.cfg);
}

static const char *const three[] = {
    "curriculum.weights=['0.6 - 0.05 * step', 0.3, increasing_weight]"
};

static const ares_json *json_of(const char *text)
{
    const ares_json *json = NULL;
    CHECK_OK(ares_json_parse(&arena, ares_view_of(text), "state", &json));
    return json;
}

/* Fetches, gives every fifth prompt back with half an answer, and skips a row now and then. */
static void go_on(ares_source *s, int from, ares_drawn *out, ares_str *saved)
{
    ares_trajectory y[2] = { 0 };
    for (int i = 0; i < 2; i++) {
        y[i] = (ares_trajectory){ .index = i, .cut = 1, .n_rows = 1 };
        y[i].rows = ares_arena_calloc(&arena, 1, sizeof *y[i].rows);
        ares_trajectory_row_init(y[i].rows, NULL, 0, 3, &arena);
    }
    for (int f = from; f < FETCHES; f++) {
        if (saved) saved_source(s, &saved[f]);
        ares_drawn *d = out + (size_t)f * FETCH;
        CHECK_OK(ares_source_next(s, FETCH, &arena, d));
        for (int i = 0; i < FETCH; i++) {
            ares_group g = { .draw = d[i].draw,
                             .local = d[i].local,
                             .row = ares_source_row(s, d[i].id),
                             .n = 2,
                             .items = y };
            CHECK_EQ(g.row->id, d[i].id);
            if ((f * FETCH + i) % 5 == 2) ares_source_give_back(s, &g);
        }
        if (f % 4 == 1) ares_source_skip(s, d[0].id);
    }
}

static bool same(const ares_drawn *a, const ares_drawn *b)
{
    return a->draw == b->draw && a->id == b->id && a->local == b->local && a->step == b->step &&
           a->weight == b->weight && !a->partial == !b->partial;
}

TEST(a_mixture_saved_at_any_fetch_goes_on_alike)
{
    mixed m, n;
    static ares_drawn whole[FETCHES * FETCH], rest[FETCHES * FETCH];
    ares_str saved[FETCHES] = { 0 }, again = { 0 };
    int64_t partial = 0;
    open_mixed(&m, 1, three);
    go_on(&m.s, 0, whole, saved);
    for (int i = 0; i < FETCHES * FETCH; i++) partial += whole[i].partial != NULL;
    CHECK(partial > FETCHES);
    for (int f = FETCHES - 1; f >= 0; f--) {
        open_mixed(&n, 1, three);
        CHECK_OK(ares_source_load(&n.s, json_of(saved[f].data), false));
        ares_str_clear(&again);
        saved_source(&n.s, &again);
        CHECK_STR(again.data, saved[f].data);
        go_on(&n.s, f, rest, NULL);
        for (int i = f * FETCH; i < FETCHES * FETCH; i++)
            CHECK_MSG(same(&rest[i], &whole[i]), "fetch %d, prompt %d", i / FETCH, i % FETCH);
        CHECK_EQ(ares_source_epoch(&n.s), ares_source_epoch(&m.s));
        CHECK_EQ(ares_source_skipped(&n.s), ares_source_skipped(&m.s));
        close_mixed(&n);
    }
    for (int f = 0; f < FETCHES; f++) ares_str_fini(&saved[f]);
    ares_str_fini(&again);
    close_mixed(&m);
}

TEST(a_prompt_that_was_given_back_comes_first_within_the_share_of_its_part)
{
    mixed m;
    ares_drawn d[FETCH], e[FETCH];
    open_mixed(&m, 1, (const char *[]){ "curriculum.weights=[3, 4, 0]" });
    CHECK_OK(ares_source_next(&m.s, FETCH, &arena, d));
    for (int i = 0; i < FETCH; i++) CHECK_EQ(ares_source_row(&m.s, d[i].id)->part, i < 3 ? 0 : 1);
    ares_trajectory none = { 0 };
    for (int i = 6; i >= 5; i--)
        ares_source_give_back(&m.s, &(ares_group){ .draw = d[i].draw,
                                                   .local = d[i].local,
                                                   .row = ares_source_row(&m.s, d[i].id),
                                                   .items = &none });
    CHECK_OK(ares_source_next(&m.s, FETCH, &arena, e));
    CHECK_EQ(e[0].draw, FETCH);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(e[3 + i].draw, d[5 + i].draw);
        CHECK_EQ(e[3 + i].local, d[5 + i].local);
        CHECK_EQ(e[3 + i].step, 1); /* of the fetch that brings it */
    }
    CHECK_EQ(e[5].local, 4);
    for (int i = 0; i < FETCH; i++) /* numbers stay apart */
        for (int k = 0; k < FETCH; k++) CHECK(i == k || e[i].draw != e[k].draw);
    close_mixed(&m);
}

TEST(a_step_of_training_moves_weights_where_rollouts_count)
{
    mixed m;
    ares_drawn d[FETCH];
    open_mixed(&m, 2,
               (const char *[]){ "curriculum.weights=['step == 5', 'step != 5', 0]",
                                 "curriculum.step_unit=rollout" });
    for (int64_t step = 4; step < 7; step++) {
        ares_source_begin_step(&m.s, step);
        for (int i = 0; i < 2; i++) {
            CHECK_OK(ares_source_next(&m.s, FETCH, &arena, d));
            CHECK_EQ(d[0].step, step);
            CHECK_EQ(ares_source_row(&m.s, d[0].id)->part, step == 5 ? 0 : 1);
        }
    }
    close_mixed(&m);
}

TEST(a_state_of_other_data_sets_says_what_becomes_of_each_and_is_taken_by_force)
{
    mixed m, n;
    static ares_drawn drawn[FETCHES * FETCH];
    ares_drawn d[FETCH];
    ares_str saved = { 0 };
    open_mixed(&m, 1, three);
    go_on(&m.s, 0, drawn, NULL);
    saved_source(&m.s, &saved);
    static const char *const others[] = { "data.train_files=[c.jsonl, d.jsonl, a.jsonl]",
                                          "curriculum.weights=[1, 1, 1]" };
    open_mixed(&n, 2, others);
    int rc = ares_source_load(&n.s, json_of(saved.data), false);
    CHECK_FAIL(rc, ARES_ESTATE, "'a' goes on where it was, 'b' is gone, 'c' goes on");
    CHECK_CONTAINS(ares_error_message(), "'d' begins anew");
    CHECK_CONTAINS(ares_error_message(), "--force");
    CHECK_OK(ares_source_next(&n.s, 3, &arena, d)); /* nothing is changed */
    CHECK_EQ(d[0].draw, 0);
    CHECK_OK(ares_source_load(&n.s, json_of(saved.data), true));
    int64_t last = 0, partial = 0;
    for (int i = 0; i < FETCHES * FETCH; i++) last = ARES_MAX(last, drawn[i].draw);
    CHECK_OK(ares_source_next(&n.s, FETCH, &arena, d));
    for (int i = 0; i < FETCH; i++) {
        const ares_row *row = ares_source_row(&n.s, d[i].id);
        partial += d[i].partial != NULL;
        if (d[i].partial) CHECK_EQ(d[i].partial->row->id, row->id);
        else CHECK(d[i].draw > last);
        if (row->part == 1) CHECK(d[i].local < FETCH);
        CHECK_EQ(d[i].step, FETCHES);
    }
    CHECK(partial > 0);
    ares_str_fini(&saved);
    close_mixed(&m);
    close_mixed(&n);
}

TEST(what_was_given_back_is_found_behind_a_data_set_that_has_grown)
{
    static const char *const words[] = { "curriculum.weights=[2, 3, 2]" };
    mixed m, n;
    ares_drawn d[FETCH], e[FETCH];
    ares_str saved = { 0 };
    ares_trajectory none = { 0 };
    int found = 0;
    open_mixed(&m, 1, words);
    CHECK_OK(ares_source_next(&m.s, FETCH, &arena, d));
    for (int i = 0; i < FETCH; i++)
        ares_source_give_back(&m.s, &(ares_group){ .draw = d[i].draw,
                                                   .local = d[i].local,
                                                   .row = ares_source_row(&m.s, d[i].id),
                                                   .items = &none });
    saved_source(&m.s, &saved);
    more_of_a = 4;
    open_mixed(&n, 1, words);
    more_of_a = 0;
    CHECK_FAIL(ares_source_load(&n.s, json_of(saved.data), false), ARES_ESTATE,
               "'a' had 5 rows and has 9 now");
    CHECK_OK(ares_source_load(&n.s, json_of(saved.data), true));
    CHECK_OK(ares_source_next(&n.s, FETCH, &arena, e));
    for (int i = 0; i < FETCH; i++) {
        const ares_row *was = ares_source_row(&m.s, d[i].id), *is = ares_source_row(&n.s, e[i].id);
        CHECK(ares_view_eq(was->prompt_text, is->prompt_text));
        CHECK_EQ(is->id, was->id + (was->part ? 4 : 0));
        CHECK_EQ(e[i].draw, d[i].draw);
    }
    close_mixed(&n);
    /* and where the data sets are listed in another order */
    static const char *const turned[] = { "data.train_files=[c.jsonl, a.jsonl, b.jsonl]",
                                          "curriculum.weights=[2, 2, 3]" };
    open_mixed(&n, 2, turned);
    CHECK_OK(ares_source_load(&n.s, json_of(saved.data), true));
    CHECK_OK(ares_source_next(&n.s, FETCH, &arena, e));
    for (int i = 0; i < FETCH; i++)
        for (int k = 0; k < FETCH; k++) {
            if (e[k].draw != d[i].draw) continue;
            const ares_row *was = ares_source_row(&m.s, d[i].id),
                           *is = ares_source_row(&n.s, e[k].id);
            CHECK(ares_view_eq(was->prompt_text, is->prompt_text));
            CHECK_EQ(is->part, (was->part + 1) % PARTS);
            CHECK(e[k].partial && e[k].partial->row == is);
            found++;
        }
    CHECK_EQ(found, FETCH);
    ares_str_fini(&saved);
    close_mixed(&m);
    close_mixed(&n);
}

TEST(a_damaged_state_of_a_mixture_is_refused_and_changes_nothing)
{
    static const struct {
        const char *state, *message;
    } cases[] = {
        { "{\"source\":\"mixture\"}", "no list 'parts'" },
        { "{\"source\":\"mixture\",\"parts\":[]}", "no count 'fetches'" },
        { "{\"source\":\"mixture\",\"parts\":[],\"fetches\":1,\"next_draw\":-1}", "'next_draw'" },
        { "{\"source\":\"mixture\",\"parts\":[5],\"fetches\":1,\"next_draw\":1}",
          "'a' begins anew" },
        { "{\"source\":\"mixture\",\"fetches\":1,\"next_draw\":1,\"parts\":[{\"name\":\"a\","
          "\"rows\":9,\"offset\":1,\"epoch\":0,\"drawn\":1,\"ahead\":0,\"skipped_rows\":[]},"
          "{\"name\":\"b\"},{\"name\":\"c\"}]}",
          "'a' had 9 rows and has 5 now" },
        { "{\"source\":\"mixture\",\"fetches\":1,\"next_draw\":1,\"parts\":[{\"name\":\"a\","
          "\"rows\":5,\"offset\":6,\"epoch\":0,\"drawn\":1,\"ahead\":0,\"skipped_rows\":[]},"
          "{\"name\":\"b\"},{\"name\":\"c\"}]}",
          "the checkpoint is damaged" },
        { "{\"source\":\"mixture\",\"fetches\":1,\"next_draw\":1,\"given_back\":[{\"draw\":0,"
          "\"row\":99,\"local\":0}],\"parts\":[]}",
          "'given_back'" },
    };
    mixed m;
    ares_str before = { 0 }, after = { 0 };
    open_mixed(&m, 1, three);
    saved_source(&m.s, &before);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        int rc = ares_source_load(&m.s, json_of(cases[i].state), false);
        CHECK_MSG(rc != ARES_OK && strstr(ares_error_message(), cases[i].message), "%s: %s",
                  cases[i].state, ares_error_message());
        ares_str_clear(&after);
        saved_source(&m.s, &after);
        CHECK_STR(after.data, before.data);
    }
    ares_str_fini(&before);
    ares_str_fini(&after);
    close_mixed(&m);
}

/* The first data set is three epochs ahead by then. */
TEST(a_skipped_row_is_left_out_from_the_next_epoch_of_its_own_data_set_on)
{
    enum { B_FIRST = 5, B_ROWS = 6, B_DRAWS = 20 };
    mixed m;
    ares_drawn d[FETCH];
    int64_t in_first = 0, later = 0;
    open_mixed(&m, 1, (const char *[]){ "curriculum.weights=[6, 1, 0]" });
    for (int i = 0; i < B_DRAWS; i++) {
        CHECK_OK(ares_source_next(&m.s, FETCH, &arena, d));
        CHECK_EQ(ares_source_row(&m.s, d[FETCH - 1].id)->part, 1);
        if (i < B_ROWS) in_first += d[FETCH - 1].id == B_FIRST + 2;
        else later += d[FETCH - 1].id == B_FIRST + 2;
        if (i == 2) ares_source_skip(&m.s, B_FIRST + 2);
    }
    CHECK_EQ(in_first, 1);
    CHECK_EQ(later, 0);
    close_mixed(&m);
}

TEST(a_part_whose_rows_are_all_skipped_ends_the_run_when_it_is_drawn_from)
{
    mixed m;
    ares_drawn d[6];
    open_mixed(&m, 1, (const char *[]){ "curriculum.weights=[1, 0, 0]" });
    CHECK_OK(ares_source_next(&m.s, 2, &arena, d));
    CHECK_EQ(ares_source_epoch_draws(&m.s), 2); /* of 18 rows, 7 in a draw */
    for (int64_t id = 0; id < 5; id++) ares_source_skip(&m.s, id);
    CHECK_EQ(ares_source_epoch_draws(&m.s), 1);
    CHECK_OK(ares_source_next(&m.s, 3, &arena, d)); /* the epoch has its rows */
    CHECK_FAIL(ares_source_next(&m.s, 1, &arena, d), ARES_ESTATE, "all 5 rows of 'a' are skipped");
    close_mixed(&m);
}

TEST(a_curriculum_that_makes_no_sense_is_refused_with_its_place)
{
    static const struct {
        const char *word, *message;
    } cases[] = {
        { "curriculum.weights=[1, 2]", "has 2 entries, and data.train_files 3" },
        { "curriculum.names=[x, y]", "has 2 entries, and data.train_files 3" },
        { "curriculum.names=[x, y, x]", "'x' is the name of two data sets" },
        { "curriculum.names=[x, y/z, w]", "'y/z'" },
        { "data.train_files=[p/a.jsonl, q/a.jsonl, r.jsonl]", "'a' is the name of two data sets" },
        { "curriculum.weights=[0, 0, 0]", "at step 0 no data set has a weight above 0" },
        { "curriculum.weights=[1e308, 1e308, 1]", "at step 0 the weights add up to infinity" },
        { "curriculum.weights=['step < 40', -1, 0]", "at step 40 no data set" },
        { "curriculum.weights=[1, '1 / (step - 7)', 0]", "weight of 'b'" },
        { "curriculum.weights=[1, 'inf - inf', 0]", "it is no number (NaN)" },
        { "curriculum.weights=[1, 'inf * 1', 0]",
          "weight of 'b': inf * 1: is not finite at step 0" },
        { "curriculum.weights=[1, null, 0]", "curriculum.weights.1" },
        { "curriculum.weights=[1, mine, 0]", "a schedule of your own is an expression" },
        { "curriculum.weights=5", "curriculum.weights" },
        { "curriculum.weights=[1, .nan, 0]", "curriculum.weights.1 = .nan: it is no number (NaN)" },
        { "curriculum.reward_caps=[1, .nan, 0]", "it is no number (NaN)" },
        { "curriculum.weights=[1, .inf, 0]", "weight of 'b': inf: is not finite at step 0" },
        { "curriculum.schedules={unused: '1 +'}", "curriculum.schedules.unused = '1 +': column 4" },
        { "curriculum.schedules={unused: [1]}", "neither a number nor the name" },
        { "curriculum.reward_caps=[0.5, '0.3 - step / 100', 1]", "the cap is" },
        { "curriculum.reward_caps=[0.5, 0.5]",
          "has 2 entries, and data.train_files 3; give one for each, null" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        options o;
        ares_curriculum c;
        const char *words[] = { "curriculum.step_unit=fetch", cases[i].word };
        bool names = strstr(cases[i].word, "train_files");
        if (names) words[0] = "curriculum.weights=[1, 1, 1]";
        read_words(&o, &c, 2, words);
        int rc = ares_config_finish(o.cfg);
        CHECK_MSG(rc == ARES_ECONFIG && strstr(ares_error_message(), cases[i].message), "%s: %s",
                  cases[i].word, rc == ARES_OK ? "accepted" : ares_error_message());
        ares_config_free(o.cfg);
    }
}

TEST(a_schedule_of_ones_own_is_used_by_its_name)
{
    options o;
    ares_curriculum c;
    double caps[3], weight;
    read_words(
        &o, &c, 3,
        (const char *[]){ "+curriculum.schedules.mine=0.25 * step",
                          "curriculum.weights=[mine, 1, decreasing_weight]",
                          "curriculum.reward_caps=[null, mine, 'lambda s: 1 if s else None']" });
    CHECK_OK(ares_config_finish(o.cfg));
    CHECK_OK(ares_scheduled_at(c.weights[0], 3, &weight));
    CHECK_EQ(weight, 0.75);
    CHECK_OK(ares_curriculum_caps(&c, 0, caps));
    CHECK(ares_is_null_f64(caps[0]) && caps[1] == 0 && ares_is_null_f64(caps[2]));
    CHECK_OK(ares_curriculum_caps(&c, 4, caps));
    CHECK(caps[1] == 1 && caps[2] == 1);
    ares_config_free(o.cfg);
}

TEST(a_slice_of_a_file_gives_its_rows_with_their_lines)
{
    ares_dataset *d;
    ares_str text = { 0 };
    char path[512];
    for (int i = 0; i < 6; i++) ares_str_addf(&text, "\n{\"prompt\":\"%d\"}\n", i);
    const char *file = ares_arena_printf(&arena, "%s", test_file("sliced.jsonl"));
    REQUIRE_OK(ares_file_write(file, text.data, text.len));
    static const struct {
        const char *slice;
        int64_t count, first_line;
    } cases[] = { { "@[2:4]", 2, 6 },
                  { "@[:1]", 1, 2 },
                  { "@[4:]", 2, 10 },
                  { "@[:]", 6, 2 },
                  { "@[0:99]", 6, 2 } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        snprintf(path, sizeof path, "%s%s", file, cases[i].slice);
        if (!CHECK_OK(
                ares_dataset_load_files(&(ares_row_file){ .path = path }, 1, NULL, false, &d)))
            continue;
        CHECK_EQ(ares_dataset_count(d), cases[i].count);
        CHECK_EQ(ares_dataset_row(d, 0)->line, cases[i].first_line);
        CHECK_STR(ares_dataset_row(d, 0)->file, file);
        ares_dataset_free(d);
    }
    /* of a folder the rows of all files count in turn */
    ares_str_clear(&text);
    for (int i = 0; i < 3; i++) ares_str_addf(&text, "{\"prompt\":\"%d\"}\n", i);
    const char *folder = ares_arena_printf(&arena, "%s", test_file("sliced"));
    REQUIRE_OK(ares_dir_make(folder));
    static const char *const names[] = { "a.jsonl", "b.jsonl" };
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(ares_file_write(ares_arena_printf(&arena, "%s/%s", folder, names[i]), text.data,
                                   text.len));
    snprintf(path, sizeof path, "%s@[2:5]", folder);
    REQUIRE_OK(ares_dataset_load_files(&(ares_row_file){ .path = path }, 1, NULL, false, &d));
    if (CHECK_EQ(ares_dataset_count(d), 3))
        for (int i = 0; i < 3; i++) {
            const ares_row *row = ares_dataset_row(d, i);
            CHECK_STR(strrchr(row->file, '/') + 1, names[i > 0]);
            CHECK_EQ(row->line, i ? i : 3);
        }
    ares_dataset_free(d);
    snprintf(path, sizeof path, "%s@[6:]", file);
    CHECK_FAIL(ares_dataset_load_files(&(ares_row_file){ .path = path }, 1, NULL, false, &d),
               ARES_EFORMAT, "no rows there; the file has 6");
    snprintf(path, sizeof path, "%s@[-2:]", file);
    CHECK_FAIL(ares_dataset_load_files(&(ares_row_file){ .path = path }, 1, NULL, false, &d),
               ARES_ECONFIG, "a slice is @[a:b]");
    ares_str_fini(&text);
}

TEST(what_an_origin_says_is_merged_into_the_metadata_of_its_rows)
{
    ares_dataset *d;
    const char *path = test_file("merged.jsonl");
    static const char text[] = "{\"prompt\":\"1\",\"data_source\":\"its own\","
                               "\"metadata\":{\"rm_type\":\"a\",\"k\":1}}\n"
                               "{\"prompt\":\"2\",\"metadata\":null}\n{\"prompt\":\"3\"}\n";
    REQUIRE_OK(ares_file_write(path, text, sizeof text - 1));
    const ares_row_file from = { .path = path,
                                 .source = "name",
                                 .metadata = json_of("{\"rm_type\":\"b\",\"more\":[1]}") };
    REQUIRE_OK(ares_dataset_load_files(&from, 1, NULL, false, &d));
    for (int64_t i = 0; i < 3; i++) {
        const ares_row *row = ares_dataset_row(d, i);
        const ares_json *meta = ares_json_get(row->json, "metadata");
        CHECK_STR(row->data_source, "name");
        CHECK_VIEW(ares_json_get(meta, "rm_type")->text, "b");
        CHECK_EQ(ares_json_get(meta, "more")->count, 1);
        CHECK_EQ(meta->count, i ? 2 : 3);
        CHECK(ares_json_get(row->json, "prompt"));
    }
    ares_dataset_free(d);
}
