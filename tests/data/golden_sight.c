/* Prompts with images and videos: parts, tokens, positions. */
#include "../../src/data/internal.h"
#include "ares/data.h"
#include "golden.h"

static void add_grids(golden *g, const char *key, const ares_json *seconds, ares_medium *items,
                      int32_t *n)
{
    const ares_json *list = ares_json_get(g->inputs, key);
    for (int64_t i = 0; list && list->type == ARES_JSON_ARRAY && i < list->count; i++) {
        const ares_json *x = list->items[i].items;
        items[(*n)++] = (ares_medium){
            .video = key[0] == 'v',
            .grid = { (int32_t)x[0].integer, (int32_t)x[1].integer, (int32_t)x[2].integer },
            .second_per_grid = seconds && i < seconds->count ? golden_value(&seconds->items[i]) : 1
        };
    }
}

static void positions(golden *g)
{
    int64_t n;
    ares_medium items[16];
    const double *list = golden_flat(g, golden_in(g, "input_ids"), &n);
    int32_t *ids = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *ids);
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)list[i];
    const ares_json *type = ares_json_get(g->inputs, "model_type");
    bool seconds = type && ares_view_is(type->text, "qwen2_5_vl");
    const ares_media_rules rules = {
        .processor.merge = (int32_t)golden_number(g, "merge_size"),
        .image_token = (int32_t)golden_number(g, "image_pad"),
        .video_token = (int32_t)golden_number(g, "video_pad"),
        .tokens_per_second = seconds ? golden_number_or(g, "tokens_per_second", 4) : 0
    };
    ares_media media = { .items = items };
    add_grids(g, "image_grid_thw", NULL, items, &media.n_images);
    media.n = media.n_images;
    add_grids(g, "video_grid_thw", ares_json_get(g->inputs, "second_per_grid"), items, &media.n);
    media.n_videos = media.n - media.n_images;
    ares_row_media s;
    if (!golden_ok(g, row_media_of(&rules, &media, ids, (int32_t)n, g->arena, &s))) return;
    static const char *const keys[] = { "t", "h", "w" };
    const int32_t *const axis[] = { s.t, s.h, s.w };
    double *got = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *got);
    for (int a = 0; a < 3; a++) {
        for (int64_t i = 0; i < n; i++) got[i] = axis[a][i];
        golden_numbers(g, keys[a], got, n, golden_want(g, keys[a]));
    }
    if (ares_json_get(g->expected, "delta"))
        golden_equal(g, "delta", s.delta, golden_want(g, "delta"));
}

GOLDEN(aepo, mrope_positions)
{
    positions(g);
}
GOLDEN(vision, mrope_positions)
{
    positions(g);
}

GOLDEN(vision, split_prompt)
{
    const ares_json list = { .type = ARES_JSON_ARRAY };
    const ares_json *prompt = golden_in(g, "prompt");
    bool video = ares_view_is(golden_in(g, "media")->text, "video");
    const ares_prompt_media media = { .images = video ? NULL : &list,
                                      .videos = video ? &list : NULL };
    ares_json role = { .type = ARES_JSON_STRING, .text = ARES_VIEW("user") };
    ares_json_member members[] = { { ARES_VIEW("role"), &role }, { ARES_VIEW("content"), prompt } };
    ares_json message = { .type = ARES_JSON_OBJECT, .members = members, .count = 2 },
              messages = { .type = ARES_JSON_ARRAY, .items = &message, .count = 1 };
    ares_json_member root_member = { ARES_VIEW("messages"), &messages };
    ares_json root = { .type = ARES_JSON_OBJECT, .members = &root_member, .count = 1 };
    const ares_json *out = ares_prompt_place_media(&root, &media, g->arena);
    const ares_json *got = ares_json_get(&ares_json_get(out, "messages")->items[0], "content"),
                    *want = golden_want(g, "content");
    if (got->type == ARES_JSON_STRING) { /* a prompt without a place stays one */
        golden_equal(g, "parts", got->text.len > 0,
                     &(ares_json){ .type = ARES_JSON_INT,
                                   .integer = want->count,
                                   .number = (double)want->count });
        if (want->count) golden_text(g, "text", got->text, ares_json_get(want->items, "text"));
        return;
    }
    ares_str a = { 0 }, b = { 0 };
    ares_json_write(&a, got);
    ares_json_write(&b, want);
    golden_text(g, "content", ares_str_view(&a),
                &(ares_json){ .type = ARES_JSON_STRING, .text = ares_str_view(&b) });
    ares_str_fini(&a);
    ares_str_fini(&b);
}

GOLDEN(vision, expand_ids)
{
    int64_t n, tokens;
    ares_medium items[16];
    ares_ids out = { 0 };
    const double *list = golden_flat(g, golden_in(g, "ids"), &n);
    int32_t *ids = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *ids);
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)list[i];
    const ares_media_rules rules = { .processor.merge = 1,
                                     .image_token = (int32_t)golden_number(g, "image_pad"),
                                     .video_token = (int32_t)golden_number(g, "video_pad") };
    ares_media media = { .items = items };
    static const char *const keys[] = { "image_tokens", "video_tokens" };
    for (int k = 0; k < 2; k++) {
        const double *each = golden_flat(g, golden_in(g, keys[k]), &tokens);
        for (int64_t i = 0; i < tokens; i++)
            items[media.n++] = (ares_medium){ .video = k, .grid = { 1, 1, (int32_t)each[i] } };
        *(k ? &media.n_videos : &media.n_images) = (int32_t)tokens;
    }
    int rc = media_expand(&rules, &media, ids, n, NULL, &out);
    if (ares_json_get(g->expected, "error"))
        golden_equal(g, "fails", rc != ARES_OK, golden_want(g, "error"));
    else if (golden_ok(g, rc)) {
        double *got = ares_arena_calloc(g->arena, (size_t)out.n + 1, sizeof *got);
        for (int64_t i = 0; i < out.n; i++) got[i] = out.ids[i];
        golden_numbers(g, "ids", got, out.n, golden_want(g, "ids"));
    }
    ares_ids_fini(&out);
}

GOLDEN(vision, render)
{
    ares_chat *chat;
    ares_str text = { 0 };
    if (!golden_ok(g, ares_chat_new("golden", golden_in(g, "template")->text, NULL, &chat))) return;
    if (golden_ok(g, ares_chat_render(chat, g->inputs, NULL, &text)))
        golden_text(g, "text", ares_str_view(&text), golden_want(g, "text"));
    ares_str_fini(&text);
    ares_chat_free(chat);
}
