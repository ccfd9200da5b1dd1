/* generate, score and render over pictures and videos, and supervised rows against score. */
#include <math.h>
#include <stdio.h>

#include "vision_runs.h"

/* Runs a verb on lines; relative paths begin in this test's folder (render reads no file). */
static int verb(ares_str *out, const char *lines, const char *words)
{
    e2e_write("lines.jsonl", lines);
    ares_str_clear(out);
    return e2e_program(out, "%s --model '%s' --input '%s' %s%s", words, vision_model(),
                       test_file("lines.jsonl"), *words == 'r' ? "" : "--image-dir ",
                       *words == 'r' ? "" : test_dir());
}

/* Line i of a text; empty where there are fewer. */
static ares_view line_of(const ares_str *text, int i)
{
    const char *at = text->data, *end;
    for (; at && (end = strchr(at, '\n')); at = end + 1)
        if (i-- == 0) return (ares_view){ at, (size_t)(end - at) };
    return (ares_view){ "", 0 };
}

static void add_pads(ares_str *out, int n)
{
    for (int i = 0; i < n; i++) ares_str_add_z(out, ",261");
}

TEST(ids_with_a_place_for_each_picture_and_for_each_of_its_tokens_score_alike)
{
    ares_str out = { 0 }, lines = { 0 };
    vision_rows(); /* a.png has 4 tokens, b.png 8 */
    for (int expanded = 0; expanded < 2; expanded++) {
        ares_str_add_z(&lines, "{\"input_ids\":[72,259");
        add_pads(&lines, expanded ? 4 : 1);
        ares_str_add_z(&lines, ",260,73,259");
        add_pads(&lines, expanded ? 8 : 1);
        ares_str_add_z(&lines, ",260,74,75],\"images\":[\"a.png\",\"b.png\"]}\n");
    }
    ares_str_addf(&lines, "{\"input_ids\":[72,259,261,260,73,259,261,261,260,74,75],"
                          "\"images\":[\"a.png\",\"b.png\"]}\n");
    CHECK_EQ(verb(&out, lines.data, "score"), 1);
    CHECK(ares_view_eq(line_of(&out, 0), line_of(&out, 1)));
    CHECK(line_of(&out, 0).len > 200);
    CHECK_CONTAINS(line_of(&out, 2).data, "2 images and 3 places for them");
    ares_str_fini(&lines);
    ares_str_fini(&out);
}

TEST(other_pixels_change_every_log_prob_behind_them_and_none_before)
{
    ares_str out = { 0 };
    vision_rows();
    /* the same bytes under another name, and as a list of parts */
    CHECK_EQ(test_shell(NULL, "cp '%s' '%s'", test_file("b.png"), test_file("copy.png")), 0);
    CHECK_EQ(verb(&out,
                  "{\"text\":\"See <|image_pad|> now\",\"images\":[\"b.png\"]}\n"
                  "{\"text\":\"See <|image_pad|> now\",\"images\":[\"e.png\"]}\n"
                  "{\"text\":\"See <|image_pad|> now\",\"images\":[\"copy.png\"]}\n",
                  "score"),
             0);
    CHECK(ares_view_eq(line_of(&out, 0), line_of(&out, 2)));
    ares_arena arena = { 0 };
    const ares_json *x, *y;
    REQUIRE_OK(ares_json_parse(&arena, line_of(&out, 0), "b", &x));
    REQUIRE_OK(ares_json_parse(&arena, line_of(&out, 1), "e", &y));
    x = ares_json_get(x, "log_probs");
    y = ares_json_get(y, "log_probs");
    REQUIRE(x->count == y->count && x->count > 12);
    for (int64_t i = 0; i < x->count; i++) {
        bool same = x->items[i].number == y->items[i].number;
        CHECK_MSG(same == (i < 4), "token %lld: %g and %g", (long long)i + 1, x->items[i].number,
                  y->items[i].number); /* "See " is four tokens, the fifth a place */
    }
    ares_arena_fini(&arena);
    ares_str_fini(&out);
}

TEST(a_prompt_with_images_is_that_of_its_parts)
{
    ares_str out = { 0 };
    vision_rows();
    CHECK_EQ(verb(&out,
                  "{\"prompt\":\"<image>or <image>?\",\"images\":[\"a.png\",\"b.png\"],"
                  "\"response\":\"one\"}\n"
                  "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"image\":"
                  "\"a.png\"},{\"type\":\"text\",\"text\":\"or \"},{\"type\":\"image\","
                  "\"image\":\"b.png\"},{\"type\":\"text\",\"text\":\"?\"}]}],"
                  "\"response\":\"one\"}\n",
                  "score"),
             0);
    CHECK(ares_view_eq(line_of(&out, 0), line_of(&out, 1)) && line_of(&out, 0).len > 200);
    CHECK_EQ(verb(&out,
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"<image>or <image>?\"}],"
                  "\"images\":[\"a.png\",\"b.png\"]}\n"
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"<image>?\"}]}\n",
                  "render"),
             0);
    CHECK_CONTAINS(line_of(&out, 0).data, "<|vision_start|><|image_pad|><|vision_end|>or "
                                          "<|vision_start|><|image_pad|><|vision_end|>?");
    CHECK_CONTAINS(line_of(&out, 1).data, "<image>?");
    ares_str_fini(&out);
}

TEST(generate_takes_an_image_of_the_command_line_and_samples_as_its_line_does)
{
    ares_str line = { 0 }, word = { 0 };
    vision_rows();
    CHECK_EQ(verb(&line, "{\"prompt\":\"<image>What?\",\"images\":[\"b.png\"]}\n",
                  "generate --max-new-tokens 16 --seed 5"),
             0);
    CHECK_EQ(e2e_program(&word,
                         "generate --model '%s' --image '%s' --prompt 'What?' --max-new-tokens 16 "
                         "--seed 5",
                         vision_model(), test_file("b.png")),
             0);
    ares_arena arena = { 0 };
    const ares_json *x;
    REQUIRE_OK(ares_json_parse(&arena, line_of(&line, 0), "line", &x));
    ares_view text = ares_json_get(x, "text")->text;
    CHECK_MSG(word.len == text.len + 1 && memcmp(word.data, text.data, text.len) == 0,
              "'%s' and '%.*s'", word.data, (int)text.len, text.data);
    ares_str_clear(&word);
    CHECK_EQ(e2e_program(&word, "generate --model '%s' --image none.png --prompt 'What?'",
                         vision_model()),
             1);
    CHECK_CONTAINS(word.data, "images[0] = 'none.png'");
    ares_arena_fini(&arena);
    ares_str_fini(&line);
    ares_str_fini(&word);
}

/* ---------------------------------------------------------------- supervised rows */
/* Minus the sum of the last n log-probs of a line. */
static double last(const ares_str *out, int line, int64_t n)
{
    ares_arena arena = { 0 };
    const ares_json *x;
    double sum = 0;
    if (!CHECK_OK(ares_json_parse(&arena, line_of(out, line), "score", &x))) return NAN;
    x = ares_json_get(x, "log_probs");
    if (!CHECK(x && x->count > n)) return NAN;
    for (int64_t i = x->count - n; i < x->count; i++) sum -= x->items[i].number;
    ares_arena_fini(&arena);
    return sum;
}

/* A picture in each of two turns; the second answer follows both. */
TEST(the_loss_of_a_conversation_with_a_picture_in_each_turn_is_what_score_says)
{
    ares_str out = { 0 };
    vision_rows();
    const char *rows = e2e_write(
        "talk.jsonl",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"<image>first?\"},{\"role\":\"assistant\","
        "\"content\":\"one\"},{\"role\":\"user\",\"content\":\"and <image>?\"},{\"role\":"
        "\"assistant\",\"content\":\"the other\"}],\"images\":[\"b.png\",\"d.png\"]}\n");
    CHECK_EQ(verb(&out,
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"<image>first?\"}],"
                  "\"images\":[\"b.png\"],\"response\":\"one<|im_end|>\"}\n"
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"<image>first?\"},{\"role\":"
                  "\"assistant\",\"content\":\"one\"},{\"role\":\"user\",\"content\":"
                  "\"and <image>?\"}],\"images\":[\"b.png\",\"d.png\"],"
                  "\"response\":\"the other<|im_end|>\"}\n",
                  "score"),
             0);
    double want = (last(&out, 0, 4) + last(&out, 1, 10)) / 14;
    ares_str_clear(&out);
    int rc = e2e_program(&out, "sft --config '%s' sft.batch_size=1 trainer.max_steps=1",
                         vision_sft_words("talk", rows));
    CHECK_MSG(rc == 0, "%s", out.data);
    double loss = e2e_metric("talk", 1, "train/loss");
    CHECK_NEAR(loss, want, 1e-6 * want);
    ares_str_fini(&out);
}

TEST(supervised_rows_drop_what_cannot_be_read_where_that_is_asked_for)
{
    ares_str out = { 0 };
    vision_rows();
    const char *rows = e2e_write(
        "some.jsonl", "{\"prompt\":\"<image>a\",\"images\":[\"a.png\"],\"response\":\"one\"}\n"
                      "{\"prompt\":\"<image>b\",\"images\":[\"none.png\"],\"response\":\"two\"}\n"
                      "{\"prompt\":\"b\",\"images\":[\"a.png\"],\"response\":\"two\"}\n");
    const char *words = vision_sft_words("some", rows);
    CHECK_EQ(e2e_program(&out, "sft --config '%s' sft.batch_size=1", words), 1);
    CHECK_CONTAINS(out.data, "some.jsonl:2: media: images[0] = 'none.png'");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out,
                         "sft --config '%s' sft.batch_size=1 data.filter_unreadable_media=true "
                         "trainer.run_dir='%s'",
                         words, test_file("filtered")),
             0);
    CHECK_CONTAINS(out.data, "2 of 3 rows dropped: their images or videos cannot be read");
    ares_str_clear(&out);
    CHECK_EQ(test_shell(NULL, "sed -i 1d '%s'", rows), 0);
    CHECK_EQ(e2e_program(&out,
                         "sft --config '%s' sft.batch_size=1 data.filter_unreadable_media=true "
                         "trainer.run_dir='%s'",
                         words, test_file("none")),
             1);
    CHECK_CONTAINS(out.data, "no row is left of 2, because of their images or videos");
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- videos */
TEST(more_frames_per_second_of_a_clip_are_more_tokens_of_the_prompt)
{
    if (test_shell(NULL, "test -e '%s/libares_video.so'", ARES_BINARY_DIR) != 0)
        SKIP("built without FFmpeg's libraries");
    char clip[300];
    snprintf(clip, sizeof clip,
             "{\"prompt\":\"<video>What?\",\"videos\":[\"%s\"],\"answer\":\"1\"}\n",
             test_source("tests/golden/vision/media/clip.mkv"));
    const char *rows = e2e_write("clip.jsonl", clip);
    static const char *const fps[] = { "1", "4", "1000" };
    double tokens[ARES_COUNT(fps)];
    for (int i = 0; i < ARES_COUNT(fps); i++) {
        char run[16];
        snprintf(run, sizeof run, "fps_%d", i);
        vision_trains(run,
                      "data.train_files='%s' data.rollout_batch_size=1 trainer.max_steps=1 "
                      "worker.actor.global_batch_size=1 data.max_prompt_length=500 "
                      "data.max_pixels=1000 data.video_fps=%s",
                      rows, fps[i]);
        tokens[i] = e2e_metric(run, 1, "data/image_tokens");
        CHECK_NEAR(e2e_metric(run, 1, "exact/rollout_train_max_abs"), 0, 0);
    }
    CHECK_MSG(tokens[0] > 0 && tokens[1] > tokens[0] && tokens[2] > tokens[1], "%g %g %g",
              tokens[0], tokens[1], tokens[2]);
}

TEST(a_video_of_frames_trains_bit_for_bit)
{
    vision_rows();
    const char *rows =
        e2e_write("frames.jsonl",
                  "{\"prompt\":\"<video>What?\",\"videos\":[[\"b.png\",\"e.png\",\"b.png\"]],"
                  "\"answer\":\"1\"}\n"
                  "{\"prompt\":\"<image> or <video>\",\"images\":[\"a.png\"],\"videos\":"
                  "[{\"frames\":[\"b.png\",\"e.png\",\"e.png\",\"b.png\"],\"sample_fps\":0.5}],"
                  "\"answer\":\"1\"}\n");
    static const char *const words = "data.rollout_batch_size=2 worker.actor.global_batch_size=2 "
                                     "worker.actor.model.freeze_vision_tower=false";
    vision_trains("first", "data.train_files='%s' %s trainer.threads=1", rows, words);
    vision_trains("other",
                  "data.train_files='%s' %s data.vision_cache_gb=0 trainer.threads=2 "
                  "worker.rollout.max_num_batched_tokens=16 worker.rollout.max_num_seqs=3 "
                  "worker.actor.max_token_len_per_device=60",
                  rows, words);
    e2e_same_runs("first", "other", 2);
    CHECK_NEAR(e2e_metric("first", 1, "exact/rollout_train_max_abs"), 0, 0);
}

/* With its first checkpoint, and not again when it goes on; a run of pictures says nothing. */
TEST(a_run_with_videos_says_once_who_gives_them_other_positions)
{
    static const char says[] = "trained with videos, which versions of transformers give other";
    ares_str out = { 0 };
    vision_rows();
    const char *rows[] = {
        e2e_write("pictures_alone.jsonl",
                  "{\"prompt\":\"<image>What?\",\"images\":[\"a.png\"],\"answer\":\"1\"}\n"
                  "{\"prompt\":\"What?\",\"answer\":\"1\"}\n"),
        e2e_write("pictures_and_videos.jsonl",
                  "{\"prompt\":\"<image>What?\",\"images\":[\"a.png\"],\"answer\":\"1\"}\n"
                  "{\"prompt\":\"<video>What?\",\"videos\":[[\"b.png\",\"e.png\"]],"
                  "\"answer\":\"1\"}\n")
    };
    for (int i = 0; i < 3; i++) {
        const char *run = i ? "videos" : "pictures";
        if (i == 2) CHECK(e2e_go_back("videos", "kept", 1));
        ares_str_clear(&out);
        int rc = e2e_program(&out,
                             "--config '%s' data.train_files='%s' data.rollout_batch_size=2 "
                             "worker.actor.global_batch_size=2 trainer.max_steps=2 "
                             "trainer.save_freq=1",
                             vision_words(run), rows[i > 0]);
        CHECK_MSG(rc == 0, "%s", out.data);
        const char *first = strstr(out.data, says);
        CHECK_EQ(first != NULL, i == 1);
        CHECK(!first || !strstr(first + 1, says));
    }
    ares_str_fini(&out);
}
