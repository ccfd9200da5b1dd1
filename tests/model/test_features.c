/*
 * The store of what a tower makes of pictures: equal pixels are one entry, what was asked for
 * longest ago goes first, and what comes back has the same bits.
 */
#include "../../src/data/media/internal.h"
#include "../media/pictures.h"
#include "ares/model.h"
#include "test.h"

typedef struct store {
    ares_device device;
    ares_model *model;
    ares_media_rules rules;
    ares_features *features;
    ares_arena arena;
} store;

static bool open_store(store *s, size_t keep_bytes, bool trained)
{
    const char *path = test_source("tests/golden/models/qwen2_5_vl_flat");
    *s = (store){ 0 };
    ares_model_options opt = { .storage = ARES_F32, .trainable = trained };
    return CHECK_OK(ares_device_open("cpu", 2, &s->device)) &&
           CHECK_OK(ares_model_load(path, &s->device, &opt, &s->model)) &&
           CHECK_OK(ares_media_rules_load(&s->model->cfg, path, &s->rules)) &&
           CHECK_OK(
               ares_features_new(s->model, NULL, &s->rules.processor, keep_bytes, &s->features));
}

static void close_store(store *s)
{
    ares_features_free(s->features);
    ares_model_free(s->model);
    ares_device_close(&s->device);
    ares_arena_fini(&s->arena);
}

static const char *write_noise(store *s, const char *name, uint32_t seed)
{
    const uint8_t *rgb = picture_bytes(&s->arena, "noise", seed, 40 * 32 * 3);
    ares_view png = picture_png(&s->arena, rgb, 40, 32);
    CHECK_OK(ares_file_write(test_file(name), png.data, png.len));
    return test_file(name);
}

static const ares_medium *open_file(store *s, const char *name)
{
    ares_media m = { 0 };
    const ares_media_options o = { .video_fps = 2 };
    CHECK_OK(media_open(picture_json(&s->arena, "[\"%s\"]", test_file(name)), NULL,
                        &s->rules.processor, &o, &s->arena, &m));
    return m.items;
}

static size_t bytes_of(const store *s, const ares_medium *x)
{
    return (size_t)ares_medium_tokens(x, s->rules.processor.merge) * (size_t)s->model->cfg.hidden *
           sizeof(float);
}

TEST(pictures_of_equal_pixels_are_one_and_others_are_not)
{
    store s;
    ares_seen a, b, c;
    if (!open_store(&s, SIZE_MAX, false)) return;
    write_noise(&s, "a.png", 1);
    write_noise(&s, "same.png", 1);
    write_noise(&s, "other.png", 2);
    const ares_medium *x = open_file(&s, "a.png"), *y = open_file(&s, "same.png"),
                      *z = open_file(&s, "other.png");
    REQUIRE_OK(ares_features_get(s.features, x, &a));
    REQUIRE_OK(ares_features_get(s.features, y, &b));
    REQUIRE_OK(ares_features_get(s.features, z, &c));
    CHECK(a.features == b.features && a.number == b.number);
    CHECK(a.features != c.features && a.number != c.number);
    CHECK(memcmp(a.features, c.features, bytes_of(&s, x)) != 0);
    close_store(&s);
}

static const ares_medium *open_clip(store *s, double fps)
{
    ares_media m = { 0 };
    const ares_media_options o = { .video_fps = 2 };
    const char *list =
        ares_arena_printf(&s->arena, "[{\"frames\": [\"%s\", \"%s\"], \"sample_fps\": %g}]",
                          test_file("a.png"), test_file("b.png"), fps);
    CHECK_OK(media_open(NULL, picture_json(&s->arena, "%s", list), &s->rules.processor, &o,
                        &s->arena, &m));
    return m.items;
}

/* The engine finds prompts by these numbers, so that two are needed where positions differ. */
TEST(the_same_frames_at_another_rate_are_another_clip)
{
    store s;
    ares_seen a, again, slow, still;
    if (!open_store(&s, SIZE_MAX, false)) return;
    write_noise(&s, "a.png", 1);
    write_noise(&s, "b.png", 1); /* as the same picture twice */
    const ares_medium *x = open_clip(&s, 2), *y = open_clip(&s, 2), *z = open_clip(&s, 1);
    CHECK(x->second_per_grid != z->second_per_grid);
    REQUIRE_OK(ares_features_get(s.features, x, &a));
    REQUIRE_OK(ares_features_get(s.features, y, &again));
    REQUIRE_OK(ares_features_get(s.features, z, &slow));
    REQUIRE_OK(ares_features_get(s.features, open_file(&s, "a.png"), &still));
    CHECK(again.features == a.features && again.number == a.number);
    CHECK(slow.features != a.features && slow.number != a.number);
    CHECK(still.number != a.number && still.number != slow.number);
    CHECK_MEM(slow.features, a.features, bytes_of(&s, x));
    close_store(&s);
}

TEST(what_was_asked_for_longest_ago_is_dropped_and_comes_back_with_its_number_and_bits)
{
    store s;
    ares_seen a, b, again;
    if (!open_store(&s, 0, false)) return;
    write_noise(&s, "a.png", 1);
    write_noise(&s, "b.png", 2);
    const ares_medium *x = open_file(&s, "a.png"), *y = open_file(&s, "b.png");
    size_t bytes = bytes_of(&s, x);
    float *kept = ares_malloc(bytes);
    ares_features_free(s.features);
    REQUIRE_OK(ares_features_new(s.model, NULL, &s.rules.processor, bytes, &s.features));
    REQUIRE_OK(ares_features_get(s.features, x, &a));
    memcpy(kept, a.features, bytes);
    REQUIRE_OK(ares_features_get(s.features, y, &b));
    REQUIRE_OK(ares_features_get(s.features, x, &again));
    REQUIRE_OK(ares_features_get(s.features, y, &b));
    ares_features_trim(s.features); /* room for one: that of b stays */
    REQUIRE_OK(ares_features_get(s.features, y, &again));
    CHECK(again.features == b.features);
    /* a's file is gone, and its features with it */
    CHECK_EQ(test_shell(NULL, "mv '%s' '%s'", test_file("a.png"), test_file("moved.png")), 0);
    CHECK_FAIL(ares_features_get(s.features, x, &again), ARES_EIO, "a.png");
    close_store(&s);
    if (!open_store(&s, 0, false)) return;
    CHECK_EQ(test_shell(NULL, "mv '%s' '%s'", test_file("moved.png"), test_file("a.png")), 0);
    x = open_file(&s, "a.png");
    REQUIRE_OK(ares_features_get(s.features, x, &a));
    int32_t number = a.number;
    for (int i = 0; i < 2; i++) {
        if (i) ares_features_forget(s.features);
        else ares_features_trim(s.features);
        REQUIRE_OK(ares_features_get(s.features, x, &a));
        CHECK_EQ(a.number, number);
        CHECK_MEM(a.features, kept, bytes);
    }
    ares_free(kept);
    close_store(&s);
}

TEST(a_file_that_changed_since_it_was_read_first_is_an_error)
{
    store s;
    ares_seen seen;
    if (!open_store(&s, 0, false)) return;
    write_noise(&s, "a.png", 1);
    const ares_medium *x = open_file(&s, "a.png");
    REQUIRE_OK(ares_features_get(s.features, x, &seen));
    write_noise(&s, "a.png", 2);
    REQUIRE_OK(ares_features_get(s.features, x, &seen)); /* stored: it is not read again */
    ares_features_trim(s.features);
    CHECK_FAIL(ares_features_get(s.features, x, &seen), ARES_EIO,
               "has changed since the run read it first");
    close_store(&s);
}

TEST(decoders_at_work_change_nothing_and_their_errors_come_when_features_are_asked_for)
{
    enum { N = 12 };
    store s, other;
    char name[N][16];
    ares_place places[N] = { { 0 } };
    const ares_row_media row_media = { .n_places = N, .places = places };
    if (!open_store(&s, SIZE_MAX, false) || !open_store(&other, SIZE_MAX, false)) return;
    for (int i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "%d.png", i);
        write_noise(&s, name[i], (uint32_t)i % 5);
        places[i].medium = open_file(&s, name[i]);
    }
    CHECK_EQ(test_shell(NULL, "truncate -s 300 '%s'", test_file(name[7])), 0);
    CHECK(!ares_features_ready(s.features, &row_media));
    ares_features_ahead(s.features, &row_media);
    ares_features_ahead(s.features, &row_media);
    for (int i = 0; i < N; i++) { /* some wait, some decode themselves */
        ares_seen a, b;
        if (i == 7) {
            for (int k = 0; k < 2; k++)
                CHECK_FAIL(ares_features_get(s.features, places[i].medium, &a), ARES_EFORMAT,
                           "7.png");
            continue;
        }
        REQUIRE_OK(ares_features_get(s.features, places[i].medium, &a));
        REQUIRE_OK(ares_features_get(other.features, open_file(&other, name[i]), &b));
        CHECK_MEM(a.features, b.features, bytes_of(&s, places[i].medium));
    }
    CHECK(ares_features_ready(s.features, &row_media)); /* the error, too, is there at once */
    close_store(&s);
    close_store(&other);
}

TEST(a_trained_tower_forgets_with_its_version_and_a_frozen_one_does_not)
{
    for (int trained = 0; trained < 2; trained++) {
        store s;
        ares_seen a;
        if (!open_store(&s, SIZE_MAX, trained)) return;
        write_noise(&s, "a.png", 1);
        const ares_medium *x = open_file(&s, "a.png");
        CHECK_EQ(ares_features_trained(s.features), trained);
        REQUIRE_OK(ares_features_get(s.features, x, &a));
        ares_features_trim(s.features);  /* pixels go, too */
        ares_features_at(s.features, 0); /* of the same weights */
        CHECK_EQ(test_shell(NULL, "rm '%s'", test_file("a.png")), 0);
        CHECK_OK(ares_features_get(s.features, x, &a));
        ares_features_at(s.features, 1);
        if (trained) CHECK_FAIL(ares_features_get(s.features, x, &a), ARES_EIO, "a.png");
        else CHECK_OK(ares_features_get(s.features, x, &a));
        close_store(&s);
    }
}

/* Rows that show the whole picture, two parts of it, and one of these again. */
TEST(each_part_of_a_picture_has_its_own_fresh_features)
{
    store s;
    ares_seen seen;
    ares_packed p = { 0 };
    double off = 0;
    if (!open_store(&s, SIZE_MAX, true)) return;
    write_noise(&s, "a.png", 1);
    const ares_medium *x = open_file(&s, "a.png");
    REQUIRE_OK(ares_features_get(s.features, x, &seen));
    int32_t all = (int32_t)(bytes_of(&s, x) / sizeof(float)) / s.model->cfg.hidden;
    REQUIRE(all >= 5);
    const ares_shown shown[] = { { x, 0, 0, all },
                                 { x, all, 1, 2 },
                                 { x, all + 2, 3, 2 },
                                 { x, all + 4, 1, 2 },
                                 { x, all + 6, 3, 1 } };
    size_t width = (size_t)s.model->cfg.hidden;
    float *in = ares_arena_calloc(&s.arena, ((size_t)all + 7) * width, sizeof *in);
    p.shown = shown;
    p.n_shown = ARES_COUNT(shown);
    REQUIRE_OK(ares_features_show_fresh(s.features, &p, in, &off));
    CHECK_EQ(off, 0);
    for (int i = 0; i < ARES_COUNT(shown); i++)
        CHECK_MEM(in + (size_t)shown[i].at * width, seen.features + (size_t)shown[i].from * width,
                  (size_t)shown[i].n * width * sizeof *in);
    close_store(&s);
}
