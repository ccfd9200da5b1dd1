/*
 * Rows, pictures and options that are wrong: one message that names the row and the entry, and
 * nothing lost.
 */
#include "vision_runs.h"

#include <math.h>
#include <stdio.h>

enum { RUN = 1, USE = 2 };

/* Row 1 is good. */
static const char *rows_with(const char *row)
{
    char text[9000];
    snprintf(text, sizeof text,
             "{\"prompt\":\"<image>How many?\",\"images\":[\"a.png\"],\"answer\":\"1\"}\n%s\n",
             row);
    return e2e_write("bad.jsonl", text);
}
#define BAD "data.train_files='%s' data.rollout_batch_size=1 worker.actor.global_batch_size=1 "

TEST(pictures_that_do_not_fit_their_rows_are_named_before_the_run_starts)
{
    static const struct {
        const char *row, *says;
    } cases[] = {
        { "{\"prompt\":\"<image><image>x\",\"images\":[\"a.png\"],\"answer\":\"1\"}",
          "1 images and 2 places for them" },
        { "{\"prompt\":\"x\",\"images\":[\"a.png\"],\"answer\":\"1\"}",
          "1 images and 0 places for them" },
        { "{\"prompt\":\"<image>x\",\"images\":[\"a.png\",\"b.png\"],\"answer\":\"1\"}",
          "2 images and 1 places for them" },
        { "{\"prompt\":\"<image> <|image_pad|>\",\"images\":[\"a.png\"],\"answer\":\"1\"}",
          "1 images and 2 places for them" },
        { "{\"prompt\":\"<|image_pad|>\",\"answer\":\"1\"}", "0 images and 1 places for them" },
        { "{\"prompt\":\"<|video_pad|>\",\"answer\":\"1\"}", "0 videos and 1 places for them" },
        { "{\"prompt\":\"<image><image>\",\"images\":[\"a.png\",\"none.png\"],\"answer\":\"1\"}",
          "images[1] = 'none.png': " },
        { "{\"prompt\":\"<image>\",\"images\":[\"https://a.b/c.png\"],\"answer\":\"1\"}",
          "images[0] = 'https://a.b/c.png': URLs (https) are not fetched" },
        { "{\"prompt\":\"<image>\",\"images\":[\"\"],\"answer\":\"1\"}", "images[0] = ''" },
        { "{\"prompt\":\"<image>\",\"images\":[7],\"answer\":\"1\"}", "images[0] = '7': neither" },
        { "{\"prompt\":\"<image>\",\"images\":[{\"bytes\":\"@@@@\"}],\"answer\":\"1\"}",
          "images[0] = " },
        { "{\"prompt\":\"<image>\",\"images\":[\"data:image/png;base64,aGVsbG8=\"],"
          "\"answer\":\"1\"}",
          "images[0] = 'data:image/png;base64,aGVsbG8='" },
        { "{\"prompt\":\"<image>\",\"images\":[\"pictures.jsonl\"],\"answer\":\"1\"}",
          "images[0] = 'pictures.jsonl': " },
        { "{\"prompt\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"image\":\"a.png\"}]}]"
          ","
          "\"images\":[\"a.png\"],\"answer\":\"1\"}",
          "both 'images' and parts of messages name images" },
        { "{\"prompt\":\"<video>\",\"videos\":[[\"a.png\",\"b.png\"]],\"answer\":\"1\"}",
          "videos[0]" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str row = { 0 };
        vision_refused(RUN, cases[i].says, BAD, rows_with(cases[i].row));
        vision_refused(RUN, "bad.jsonl:2: ", BAD, rows_with(cases[i].row));
        ares_str_fini(&row);
    }
    vision_refused(RUN, "pictures.jsonl:3: 2 images, and worker.rollout.limit_images allows 1",
                   "worker.rollout.limit_images=1");
    CHECK(vision_trains("limited", "worker.rollout.limit_images=2"));
}

TEST(limits_of_pixels_that_exclude_each_other_are_a_fault_of_the_configuration)
{
    static const char says[] = "data.min_pixels = 600: exceeds data.max_pixels = 500";
    ares_str out = { 0 };
    vision_refused(USE, says, "data.min_pixels=600 data.max_pixels=500");
    CHECK(vision_trains("equal", "data.min_pixels=600 data.max_pixels=600"));
    CHECK_EQ(e2e_program(&out, "sft --config '%s' data.min_pixels=600 data.max_pixels=500",
                         vision_sft_words("sft", "none.jsonl")),
             USE);
    CHECK_CONTAINS(out.data, says);
    ares_str_fini(&out);
}

TEST(files_of_videos_without_the_library_that_reads_them_are_refused_with_the_remedy)
{
    char config[300];
    ares_str out = { 0 };
    snprintf(config, sizeof config, "%s", vision_words("run"));
    const char *rows =
        rows_with("{\"prompt\":\"<video>x\",\"videos\":[\"clip.mkv\"],\"answer\":\"1\"}");
    e2e_write("clip.mkv", "none");
    int rc = test_shell(&out, "ARES_VIDEO_LIB=/none.so '%s' --config '%s' " BAD "2>&1",
                        test_program(), config, rows);
    CHECK_EQ(rc, RUN);
    CHECK_CONTAINS(out.data, "bad.jsonl:2: media: videos[0] = 'clip.mkv'");
    CHECK_CONTAINS(out.data, "this build does not read files of videos (no /none.so)");
    CHECK_CONTAINS(out.data, "give the video as a list of frames");
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- rows that are left out */
static void cut_file(const char *name)
{
    CHECK_EQ(test_shell(NULL, "cp '%s' '%s' && truncate -s 400 '%s'", test_file("d.png"),
                        test_file(name), test_file(name)),
             0);
}

/* The run with these rows says this, and is the run without the second row. */
static void left_out(const char *run, const char *row, const char *says, const char *words)
{
    char without[32];
    ares_str out = { 0 };
    snprintf(without, sizeof without, "%s_without", run);
    const char *rows = rows_with(row);
    int rc = e2e_program(&out, "--config '%s' " BAD "%s", vision_words(run), rows, words);
    CHECK_MSG(rc == 0, "%s", out.data);
    CHECK_CONTAINS(out.data, says);
    CHECK_EQ(test_shell(NULL, "sed -i 2d '%s'", rows), 0);
    vision_trains(without, BAD "%s", rows, words);
    CHECK(e2e_same_rollouts(run, without, 1));
    CHECK(e2e_same_rollouts(run, without, 2));
    ares_str_fini(&out);
}

TEST(rows_whose_pictures_cannot_be_read_are_dropped_and_counted_where_that_is_asked_for)
{
    static const char filter[] = "data.filter_unreadable_media=true",
                      count[] = "1 of 2 rows dropped: their images or videos cannot be read";
    vision_rows();
    cut_file("cut.png");
    left_out("cut", "{\"prompt\":\"<image>\",\"images\":[\"cut.png\"],\"answer\":\"1\"}", count,
             filter);
    left_out("none", "{\"prompt\":\"<image>\",\"images\":[\"none.png\"],\"answer\":\"1\"}", count,
             filter);
    left_out("places", "{\"prompt\":\"x\",\"images\":[\"a.png\"],\"answer\":\"1\"}",
             "bad.jsonl:2: dropped: 1 images and 0 places", filter);
}

TEST(thin_pictures_and_long_prompts_are_dropped_as_overlong_or_refused)
{
    static const char thin[] =
        "{\"prompt\":\"<image>\",\"images\":[\"thin.png\"],\"answer\":\"1\"}",
                      large[] =
                          "{\"prompt\":\"<image>\",\"images\":[\"large.png\"],\"answer\":\"1\"}";
    vision_noise("thin.png", 2, 402, 1);
    vision_noise("large.png", 120, 120, 1); /* 100 tokens */
    left_out("thin", thin, "1 of 2 rows dropped: a side of an image is too long for the other", "");
    left_out("large", large, "1 of 2 prompts dropped: longer than data.max_prompt_length = 80", "");
    vision_refused(RUN, "bad.jsonl:2: media: images[0] = 'thin.png': 2 x 402 pixels",
                   BAD "data.filter_overlong_prompts=false", rows_with(thin));
    vision_refused(RUN, "bad.jsonl:2: prompt of 1", BAD "data.filter_overlong_prompts=false",
                   rows_with(large));
    CHECK(vision_trains("shrunk", BAD "data.filter_overlong_prompts=false data.max_pixels=2000",
                        rows_with(large)));
}

/* ---------------------------------------------------------------- files that change under a run */
/* The pass over headers finds nothing; the run ends where it decodes, and goes on once mended. */
TEST(a_picture_that_breaks_off_ends_the_run_saved_and_named_and_a_mended_one_lets_it_go_on)
{
    static const char words[] = "trainer.max_steps=6 trainer.threads=1 data.shuffle=false ";
    ares_str out = { 0 };
    if (!vision_trains("whole", "%s", words)) return;
    const char *config = vision_words("part");
    CHECK_EQ(test_shell(NULL, "cp '%s' '%s'", test_file("e.png"), test_file("kept.png")), 0);
    CHECK_EQ(test_shell(NULL, "truncate -s 400 '%s'", test_file("e.png")), 0);
    CHECK_EQ(e2e_program(&out, "--config '%s' %s", config, words), RUN);
    CHECK_CONTAINS(out.data, "pictures.jsonl:7: media: images[0] = 'e.png'");
    CHECK(!ares_file_exists(test_file("part/DONE")));
    CHECK_NEAR(e2e_metric("part", 1, "step"), 1, 0); /* rows 1 to 4 */
    CHECK(ares_file_exists(test_file("part/checkpoints/latest")));
    CHECK_EQ(test_shell(NULL, "cp '%s' '%s'", test_file("kept.png"), test_file("e.png")), 0);
    CHECK_EQ(e2e_program(NULL, "--config '%s' %s", config, words), 0);
    e2e_same_runs("whole", "part", 6);
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- what goes together with none */
TEST(what_reads_text_alone_refuses_pictures_by_name)
{
    vision_refused(USE,
                   "the row has images or videos, and algorithm.adv_estimator = 'gae' needs a "
                   "critic, which reads text alone",
                   "algorithm.adv_estimator=gae");
    vision_refused(RUN,
                   "pictures.jsonl:1: 'images' holds images or videos, and the model reads text",
                   "worker.actor.model.model_path='%s'", e2e_model());
    /* a filter of what cannot be read drops no picture for want of a tower */
    vision_refused(
        RUN, "pictures.jsonl:1: 'images' holds images or videos, and the model reads text",
        "worker.actor.model.model_path='%s' data.filter_unreadable_media=true", e2e_model());
    vision_refused(RUN, "a critic that starts as a qwen2_5_vl is not offered",
                   "data.train_files='%s' algorithm.adv_estimator=gae",
                   test_source("examples/data/sums/train.jsonl"));
}

TEST_MPI(ranks_that_decode_as_one_refuse_pictures_by_name)
{
    E2E_NEEDS_MPI();
    static const char says[] = "the row has images or videos, and "
                               "worker.rollout.tensor_parallel_size = 2: ranks that decode as one "
                               "take text alone";
    vision_refused(USE, says, "--ranks 2 worker.rollout.tensor_parallel_size=2");
    vision_refused(USE, says,
                   "--ranks 2 worker.rollout.tensor_parallel_size=2 data.train_files='%s' "
                   "'eval.datasets={seen: {path: \"%s\"}}' trainer.val_freq=1",
                   test_source("examples/data/sums/train.jsonl"), vision_rows());
}
