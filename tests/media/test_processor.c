/* The processor's files of a model directory. */
#include "media_test.h"

static void put(const char *name, const char *text)
{
    CHECK_OK(ares_file_write(test_file(name), text, strlen(text)));
}

TEST(a_directory_without_a_processor_has_the_defaults_of_qwen2_vl)
{
    ares_processor p;
    REQUIRE_OK(ares_processor_load(test_dir(), &p));
    CHECK_EQ(p.patch, 14);
    CHECK_EQ(p.merge, 2);
    CHECK_EQ(p.temporal, 2);
    CHECK_EQ(p.image_min, 3136);
    CHECK_EQ(p.image_max, 1003520);
    CHECK_EQ(p.video_min, 100352);
    CHECK_EQ(p.video_max, 602112);
    static const float mean[] = { .48145466f, .4578275f, .40821073f },
                       std[] = { .26862954f, .26130258f, .27577711f };
    for (int i = 0; i < 3; i++) CHECK(p.mean[i] == mean[i] && p.std[i] == std[i]);
    CHECK(p.resize && p.rescale && p.normalize);
    CHECK_NEAR(p.rescale_factor, 1 / 255.0, 0);
}

TEST(a_model_with_one_processor_file_has_the_limits_of_images_for_videos)
{
    ares_processor p;
    put("preprocessor_config.json",
        "{\"patch_size\": 8, \"size\": {\"shortest_edge\": 100, \"longest_edge\": 200},"
        " \"max_pixels\": 300, \"min_pixels\": null, \"do_resize\": false}");
    REQUIRE_OK(ares_processor_load(test_dir(), &p));
    CHECK_EQ(p.patch, 8);
    CHECK_EQ(p.image_min, 100);
    CHECK_EQ(p.image_max, 300); /* beside `size`, and wins */
    CHECK_EQ(p.video_min, 100);
    CHECK_EQ(p.video_max, 300);
    CHECK(!p.resize);
}

TEST(a_video_processor_of_its_own_sets_the_limits_of_videos)
{
    ares_processor p;
    put("preprocessor_config.json", "{\"max_pixels\": 9000}");
    put("video_preprocessor_config.json", "{\"max_pixels\": 200000}");
    REQUIRE_OK(ares_processor_load(test_dir(), &p));
    CHECK_EQ(p.image_max, 9000);
    CHECK_EQ(p.video_max, 200000);
}

TEST(processor_config_comes_before_the_older_files)
{
    ares_processor p;
    put("preprocessor_config.json", "{\"max_pixels\": 9000}");
    put("video_preprocessor_config.json", "{\"max_pixels\": 200000}");
    put("processor_config.json", "{\"image_processor\": {\"max_pixels\": 8000}}");
    REQUIRE_OK(ares_processor_load(test_dir(), &p));
    CHECK_EQ(p.image_max, 8000);
    CHECK_EQ(p.video_max, 200000);
    put("processor_config.json", "{\"image_processor\": {\"max_pixels\": 8000},"
                                 " \"video_processor\": {\"max_pixels\": 300000}}");
    REQUIRE_OK(ares_processor_load(test_dir(), &p));
    CHECK_EQ(p.video_max, 300000);
}

TEST(what_a_processor_asks_for_and_is_not_offered_is_named)
{
    static const struct {
        const char *text, *part;
        int code;
    } bad[] = {
        { "{\"resample\": 2}", "resample = 2: only 3 (bicubic)", ARES_EUNSUPPORTED },
        { "{\"size\": {\"height\": 224, \"width\": 224}}", "no shortest_edge", ARES_EUNSUPPORTED },
        { "{\"patch_size\": 0}", "patch_size = 0", ARES_EFORMAT },
        { "{\"merge_size\": 1000000}", "merge_size = 1000000", ARES_EFORMAT },
        { "{\"image_mean\": [1, 2]}", "'image_mean' is not a list of three", ARES_EFORMAT },
        { "{\"image_std\": [1, 0, 1]}", "'image_std'", ARES_EFORMAT },
        { "{\"max_pixels\": 0}", "max_pixels = 0", ARES_EFORMAT },
        { "{\"max_pixels\": 1e300}", "max_pixels = 1e+300", ARES_EFORMAT },
        { "{\"min_pixels\": 5000, \"max_pixels\": 4000}", "at least 5000", ARES_EFORMAT },
        { "{\"rescale_factor\": 0}", "rescale_factor = 0", ARES_EFORMAT },
        { "[1]", "not a JSON object", ARES_EFORMAT },
        { "{\"patch_size\": ", "preprocessor_config.json", ARES_EFORMAT },
    };
    for (int i = 0; i < ARES_COUNT(bad); i++) {
        ares_processor p;
        put("preprocessor_config.json", bad[i].text);
        CHECK_FAIL(ares_processor_load(test_dir(), &p), bad[i].code, bad[i].part);
        CHECK_CONTAINS(ares_error_message(), "preprocessor_config.json");
    }
}

TEST(videos_with_patches_of_another_size_than_images_are_refused)
{
    ares_processor p;
    put("preprocessor_config.json", "{\"patch_size\": 14}");
    put("video_preprocessor_config.json", "{\"patch_size\": 16}");
    CHECK_FAIL(ares_processor_load(test_dir(), &p), ARES_EUNSUPPORTED,
               "video_preprocessor_config.json: videos differ");
}

/* In whichever file the options of videos stand; images have no frames. */
TEST(a_limit_of_pixels_per_frame_is_refused_by_file_and_key)
{
    static const struct {
        const char *file, *before, *after;
    } places[] = { { "preprocessor_config.json", "", "" },
                   { "video_preprocessor_config.json", "", "" },
                   { "processor_config.json",
                     "{\"image_processor\": {}, \"video_processor\": ", "}" } };
    for (int i = 0; i < ARES_COUNT(places); i++) {
        static const char *const values[] = { "null", "false", "true" };
        for (int k = 0; k < ARES_COUNT(values); k++) {
            ares_processor p;
            char text[200];
            snprintf(text, sizeof text, "%s{\"cap_pixels_per_frame\": %s}%s", places[i].before,
                     values[k], places[i].after);
            put(places[i].file, text);
            if (k < 2) {
                CHECK_OK(ares_processor_load(test_dir(), &p));
                continue;
            }
            CHECK_FAIL(ares_processor_load(test_dir(), &p), ARES_EUNSUPPORTED,
                       "cap_pixels_per_frame = true");
            CHECK_CONTAINS(ares_error_message(), places[i].file);
        }
    }
}
