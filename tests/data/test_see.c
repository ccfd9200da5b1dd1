/* Images of rows: where they are named, their places in strings and messages, rows left out. */
#include <stdio.h>

#include "../../src/data/internal.h"
#include "../media/pictures.h"
#include "ares/data.h"
#include "test.h"

static const ares_data_config keys = { .image_key = "images", .video_key = "videos" };

/* What a row names, as JSON: images, then videos. */
static void check_media(const char *row, const char *images, const char *videos)
{
    ares_arena arena = { 0 };
    ares_prompt_media m;
    const ares_json *json = picture_json(&arena, "%s", row);
    if (CHECK_OK(ares_prompt_media_of(&keys, json, ares_json_get(json, "prompt"), &arena, &m))) {
        ares_str s = { 0 };
        if (m.images) ares_json_write(&s, m.images);
        CHECK_STR(s.data ? s.data : "", images);
        ares_str_clear(&s);
        if (m.videos) ares_json_write(&s, m.videos);
        CHECK_STR(s.len ? s.data : "", videos);
        ares_str_fini(&s);
    }
    ares_arena_fini(&arena);
}

TEST(images_and_videos_are_named_under_keys_or_in_parts_of_messages)
{
    check_media("{\"prompt\": \"x\"}", "", "");
    check_media("{\"images\": [], \"videos\": null}", "", "");
    check_media("{\"images\": [\"a\", {\"path\": \"b\"}]}", "[\"a\",{\"path\":\"b\"}]", "");
    check_media("{\"images\": \"a\", \"videos\": {\"path\": \"v\"}}", "[\"a\"]",
                "[{\"path\":\"v\"}]");
    check_media("{\"prompt\": [{\"role\": \"user\", \"content\": ["
                "{\"type\": \"image\", \"image\": \"a\"}, {\"type\": \"text\", \"text\": \"t\"},"
                "{\"image_url\": {\"url\": \"b\"}}, {\"image_url\": \"c\"},"
                "{\"type\": \"video\", \"video\": \"v\"},"
                "{\"type\": \"video\", \"frames\": [\"f\"], \"sample_fps\": 1}]},"
                "{\"role\": \"user\", \"content\": \"<image>\"}]}",
                "[\"a\",\"b\",\"c\"]",
                "[\"v\",{\"type\":\"video\",\"frames\":[\"f\"],\"sample_fps\":1}]");
    /* a part without its own entry takes one of the key's */
    check_media("{\"images\": [\"a\"], \"prompt\": [{\"role\": \"user\", \"content\": "
                "[{\"type\": \"image\"}, {\"type\": \"image\", \"image\": null}]}]}",
                "[\"a\"]", "");
}

TEST(images_named_in_both_places_are_an_error)
{
    ares_arena arena = { 0 };
    ares_prompt_media m;
    const ares_json *row =
        picture_json(&arena, "{\"videos\": [\"v\"], \"prompt\": [{\"role\": \"user\", \"content\": "
                             "[{\"type\": \"video\", \"video\": \"w\"}]}]}");
    CHECK_FAIL(ares_prompt_media_of(&keys, row, ares_json_get(row, "prompt"), &arena, &m),
               ARES_EFORMAT, "both 'videos' and parts of messages name videos");
    ares_arena_fini(&arena);
}

/* Variables with places made, as JSON. */
static void check_placed(bool images, bool videos, const char *given, const char *placed)
{
    ares_arena arena = { 0 };
    ares_str s = { 0 };
    const ares_json *some = picture_json(&arena, "[1]"),
                    *variables = picture_json(&arena, "%s", given);
    const ares_prompt_media m = { .images = images ? some : NULL, .videos = videos ? some : NULL };
    ares_json_write(&s, ares_prompt_place_media(variables, &m, &arena));
    CHECK_STR(s.data, placed);
    ares_str_fini(&s);
    ares_arena_fini(&arena);
}

#define USER(content) "{\"k\":1,\"messages\":[{\"role\":\"user\",\"content\":" content ",\"x\":2}]}"
#define TEXT(text) "{\"type\":\"text\",\"text\":\"" text "\"}"
#define IMAGE "{\"type\":\"image\"}"
#define VIDEO "{\"type\":\"video\"}"

TEST(places_in_the_strings_of_messages_become_parts)
{
    check_placed(true, false, USER("\"<image>\""), USER("[" IMAGE "]"));
    check_placed(true, false, USER("\"a<image> b<image>\""),
                 USER("[" TEXT("a") "," IMAGE "," TEXT(" b") "," IMAGE "]"));
    check_placed(true, true, USER("\"<video><image>c\""),
                 USER("[" VIDEO "," IMAGE "," TEXT("c") "]"));
    /* only of kinds that the row has */
    check_placed(true, false, USER("\"<video><image>\""), USER("[" TEXT("<video>") "," IMAGE "]"));
    check_placed(false, false, USER("\"a <image>\""), USER("\"a <image>\""));
    check_placed(true, true, USER("\"none\""), USER("\"none\""));
    check_placed(true, true, USER("[" TEXT("<image>") "]"), USER("[" TEXT("<image>") "]"));
    check_placed(true, false, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"<image>\"}]}",
                 "{\"messages\":[{\"role\":\"assistant\",\"content\":\"<image>\"}]}");
    check_placed(true, false, "{\"k\":1}", "{\"k\":1}");
}

/* ---------------------------------------------------------------- whole rows */
static const char template[] =
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% else %}<|endoftext|>"
    "{% endif %}{% endfor %}{% endif %}{% endfor %}";

typedef struct encoded {
    ares_dataset *d;
    int64_t dropped;
} encoded;

/* Rows of pictures of 8 x 8 pixels a token, through a template that writes <|endoftext|> for one.
 */
static int encode(const ares_data_config *more, bool sees, int64_t limit, const char *rows,
                  encoded *out)
{
    const char *path = test_file("rows.jsonl"), *chat = test_file("chat.jinja");
    ares_tokenizer *t;
    ares_data_config cfg = *more;
    ares_prompt_encoder *e;
    ares_pool *pool = ares_pool_new(2);
    *out = (encoded){ 0 };
    CHECK_OK(ares_file_write(path, rows, strlen(rows)));
    CHECK_OK(ares_file_write(chat, template, sizeof template - 1));
    CHECK_OK(ares_tokenizer_load(test_source("tests/golden/tokenizer/smollm2_style"), &t));
    cfg.prompt_key = "q";
    cfg.image_key = "images";
    cfg.video_key = "videos";
    cfg.image_dir = test_dir();
    cfg.min_pixels = cfg.max_pixels = ARES_NULL_I64;
    cfg.video_fps = 2;
    cfg.apply_chat_template = true;
    cfg.override_chat_template = chat;
    cfg.max_prompt_length = 40;
    const ares_media_rules rules = { .processor = { .patch = 4,
                                                    .merge = 2,
                                                    .temporal = 2,
                                                    .image_min = 64,
                                                    .image_max = 100000,
                                                    .video_min = 64,
                                                    .video_max = 100000,
                                                    .mean = { .5f, .5f, .5f },
                                                    .std = { .5f, .5f, .5f },
                                                    .resize = true,
                                                    .rescale = true,
                                                    .normalize = true,
                                                    .rescale_factor = 1 / 255.0 },
                                     .image_token = 0, /* <|endoftext|> */
                                     .video_token = -5 };
    int rc = ares_prompt_encoder_new(&(ares_prompt_options){ .cfg = &cfg,
                                                             .tokenizer = t,
                                                             .row_media = sees ? &rules : NULL,
                                                             .limit_images = limit,
                                                             .model_dir = test_dir() },
                                     &e);
    if (rc == ARES_OK) rc = dataset_load(&(ares_texts){ &path, 1 }, &cfg, false, &out->d);
    if (rc == ARES_OK) rc = ares_dataset_encode(out->d, e, pool, &out->dropped);
    ares_prompt_encoder_free(e);
    ares_pool_free(pool);
    ares_tokenizer_free(t);
    return rc;
}

static void write_noise(const char *name, int32_t w, int32_t h)
{
    ares_arena arena = { 0 };
    const uint8_t *rgb = picture_bytes(&arena, "noise", 1, (int64_t)w * h * 3);
    ares_view png = picture_png(&arena, rgb, w, h);
    CHECK_OK(ares_file_write(test_file(name), png.data, png.len));
    ares_arena_fini(&arena);
}

TEST(a_rows_prompt_has_its_pictures_tokens_and_knows_where_they_stand)
{
    encoded x;
    const ares_data_config cfg = { 0 };
    write_noise("a.png", 16, 8);
    write_noise("b.png", 24, 24);
    REQUIRE_OK(encode(&cfg, true, 0,
                      "{\"q\":\"<image>x<image>\",\"images\":[\"a.png\",\"b.png\"]}\n"
                      "{\"q\":\"x\"}\n",
                      &x));
    const ares_row *r = ares_dataset_row(x.d, 0);
    CHECK_EQ(r->prompt_len, 2 + 1 + 9);
    REQUIRE(r->row_media && r->row_media->n_places == 2);
    CHECK(r->row_media->n == 12 && r->row_media->places[0].n == 2 &&
          r->row_media->places[1].first == 3);
    CHECK(r->prompt[0] == r->prompt[1] && r->prompt[2] != r->prompt[0]);
    CHECK(ares_dataset_row(x.d, 1)->row_media == NULL);
    ares_dataset_free(x.d);
}

TEST(parts_of_messages_name_pictures_by_any_of_the_usual_keys)
{
    static const struct {
        const char *part, *message; /* NULL: it is read */
    } cases[] = {
        { "\"type\":\"image\",\"image\":\"a.png\"", NULL },
        { "\"type\":\"image\",\"url\":\"a.png\"", NULL },
        { "\"type\":\"image\",\"path\":\"a.png\"", NULL },
        { "\"type\":\"image_url\",\"image_url\":{\"url\":\"a.png\"}", NULL },
        { "\"type\":\"image\",\"src\":\"a.png\"",
          "rows.jsonl:1: a part of a message names no image or video: "
          "{\"type\":\"image\",\"src\":\"a.png\"}; give it 'image', 'image_url', 'url' or 'path'" },
    };
    const ares_data_config cfg = { 0 };
    write_noise("a.png", 16, 8);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        encoded x;
        char row[300];
        snprintf(row, sizeof row, "{\"q\":[{\"role\":\"user\",\"content\":[{%s}]}]}\n",
                 cases[i].part);
        int rc = encode(&cfg, true, 0, row, &x);
        if (cases[i].message) CHECK_FAIL(rc, ARES_EFORMAT, cases[i].message);
        else if (CHECK_OK(rc)) CHECK_EQ(ares_dataset_row(x.d, 0)->prompt_len, 2);
        ares_dataset_free(x.d);
    }
}

TEST(rows_are_left_out_for_their_pictures_only_where_options_say_so)
{
    static const char rows[] = "{\"q\":\"<image>\",\"images\":[\"a.png\"]}\n"
                               "{\"q\":\"<image>\",\"images\":[\"none.png\"]}\n",
                      thin[] = "{\"q\":\"<image>\",\"images\":[\"a.png\"]}\n"
                               "{\"q\":\"<image>\",\"images\":[\"thin.png\"]}\n",
                      large[] = "{\"q\":\"<image>\",\"images\":[\"large.png\"]}\n"
                                "{\"q\":\"<image>\",\"images\":[\"a.png\"]}\n";
    const ares_data_config strict = { 0 }, overlong = { .filter_overlong_prompts = true },
                           unreadable = { .filter_unreadable_media = true };
    const ares_data_config *const filters[] = { &strict, &overlong, &unreadable };
    const char *const sets[] = { rows, thin, large };
    const bool passes[3][3] = { { false, false, true },   /* rows: unreadable alone */
                                { false, true, true },    /* thin: either */
                                { false, true, false } }; /* large: overlong alone */
    write_noise("a.png", 16, 8);
    write_noise("thin.png", 2, 402);
    write_noise("large.png", 80, 80);
    for (int s = 0; s < 3; s++)
        for (int f = 0; f < 3; f++) {
            encoded x;
            int rc = encode(filters[f], true, 0, sets[s], &x);
            CHECK_MSG((rc == ARES_OK) == passes[s][f], "set %d, filter %d: %d", s, f, rc);
            if (rc == ARES_OK) CHECK_EQ(ares_dataset_count(x.d), 1);
            else CHECK_CONTAINS(ares_error_message(), s == 2 ? "rows.jsonl:1: " : "rows.jsonl:2: ");
            ares_dataset_free(x.d);
        }
}

TEST(what_a_row_may_not_ask_for_is_named_with_its_place)
{
    static const char two[] = "{\"q\":\"<image><image>\",\"images\":[\"a.png\",\"a.png\"]}\n";
    const ares_data_config strict = { 0 }, filter = { .filter_unreadable_media = true };
    encoded x;
    write_noise("a.png", 16, 8);
    CHECK_FAIL(encode(&strict, true, 1, two, &x), ARES_EFORMAT,
               "rows.jsonl:1: 2 images, and worker.rollout.limit_images allows 1");
    ares_dataset_free(x.d);
    CHECK_OK(encode(&strict, true, 2, two, &x));
    ares_dataset_free(x.d);
    CHECK_FAIL(encode(&strict, false, 0, two, &x), ARES_EUNSUPPORTED,
               "rows.jsonl:1: 'images' holds images or videos, and the model reads text alone");
    ares_dataset_free(x.d);
    CHECK_FAIL(encode(&filter, false, 0, two, &x), ARES_EUNSUPPORTED, "the model reads text alone");
    ares_dataset_free(x.d);
    CHECK_FAIL(encode(&filter, true, 1, two, &x), ARES_EFORMAT,
               "no row is left of 1, because of their images or videos");
    ares_dataset_free(x.d);
    CHECK_FAIL(encode(&strict, true, 0, "{\"q\":\"<|endoftext|>\"}\n", &x), ARES_EFORMAT,
               "rows.jsonl:1: 0 images and 1 places for them");
    ares_dataset_free(x.d);
}
