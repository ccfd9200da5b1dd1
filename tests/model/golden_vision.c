/* Positions of three axes, and attention's windows. */
#include <string.h>

#include "golden.h"
#include "vision/tower.h"

static int32_t add_media(golden *g, const char *key, bool video, const ares_json *seconds,
                         ares_medium *media)
{
    const ares_json *list = ares_json_get(g->inputs, key);
    int32_t n = 0;
    for (int64_t i = 0; list && list->type == ARES_JSON_ARRAY && i < list->count; i++) {
        const ares_json *x = list->items[i].items;
        double s = seconds && i < seconds->count ? golden_value(&seconds->items[i]) : 1;
        media[n++] = (ares_medium){ .video = video,
                                    .grid = { (int32_t)x[0].integer, (int32_t)x[1].integer,
                                              (int32_t)x[2].integer },
                                    .second_per_grid = s };
    }
    return n;
}

static void positions(golden *g)
{
    int64_t n;
    const double *list = golden_flat(g, golden_in(g, "input_ids"), &n);
    int32_t *ids = ares_arena_calloc(g->arena, (size_t)n * 4 + 1, sizeof *ids), delta = 0;
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)list[i];
    const ares_json *type = ares_json_get(g->inputs, "model_type");
    bool seconds = type && ares_view_is(type->text, "qwen2_5_vl");
    ares_vision_config v = { .merge = (int32_t)golden_number(g, "merge_size"),
                             .image_token = (int32_t)golden_number(g, "image_pad"),
                             .video_token = (int32_t)golden_number(g, "video_pad"),
                             .tokens_per_second =
                                 seconds ? golden_number_or(g, "tokens_per_second", 4) : 0 };
    ares_medium media[16];
    int32_t n_media = add_media(g, "image_grid_thw", false, NULL, media);
    n_media += add_media(g, "video_grid_thw", true, ares_json_get(g->inputs, "second_per_grid"),
                         media + n_media);
    int32_t *axis[] = { ids + n, ids + 2 * n, ids + 3 * n };
    if (!golden_ok(g, ares_mrope_positions(&v, ids, (int32_t)n, media, n_media, axis[0], axis[1],
                                           axis[2], &delta)))
        return;
    static const char *const keys[] = { "t", "h", "w" };
    double *got = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *got);
    for (int a = 0; a < 3; a++) {
        for (int64_t i = 0; i < n; i++) got[i] = axis[a][i];
        golden_numbers(g, keys[a], got, n, golden_want(g, keys[a]));
    }
    if (ares_json_get(g->expected, "delta"))
        golden_equal(g, "delta", delta, golden_want(g, "delta"));
}

GOLDEN(aepo, mrope_positions)
{
    positions(g);
}
GOLDEN(vision, mrope_positions)
{
    positions(g);
}

GOLDEN(vision, window_index)
{
    ares_medium media[16];
    ares_vision_config v = { .merge = (int32_t)golden_number(g, "spatial_merge_size"),
                             .window = (int32_t)golden_number(g, "window_size"),
                             .patch = (int32_t)golden_number(g, "patch_size") };
    int32_t n = add_media(g, "grid_thw", false, NULL, media), each = v.merge * v.merge, at = 0,
            windows = 0;
    static double index[1 << 16], ends[1 << 16];
    for (int32_t i = 0; i < n; i++) {
        ares_grid grid = media[i].grid;
        int32_t tokens = grid.t * grid.h * grid.w / each,
                *order = ares_arena_calloc(g->arena, (size_t)tokens * 2 + 2, sizeof *order),
                *start = order + tokens + 1, k = tower_windows(&v, grid, order, start);
        for (int32_t j = 0; j < tokens; j++) index[at + j] = at + order[j];
        for (int32_t j = 0; j < k; j++) ends[++windows] = (at + start[j + 1]) * each;
        at += tokens;
    }
    golden_numbers(g, "window_index", index, at, golden_want(g, "window_index"));
    golden_numbers(g, "cu_window_seqlens", ends, windows + 1, golden_want(g, "cu_window_seqlens"));
}

GOLDEN(vision, vision_positions)
{
    ares_medium media[16];
    ares_vision_config v = { .merge = (int32_t)golden_number(g, "spatial_merge_size") };
    int32_t n = add_media(g, "grid_thw", false, NULL, media), at = 0;
    static int32_t y[1 << 16], x[1 << 16];
    static double h[1 << 16], w[1 << 16];
    for (int32_t i = 0; i < n; i++) {
        ares_grid grid = media[i].grid;
        tower_places(&v, grid, y, x);
        for (int32_t j = 0; j < grid.t * grid.h * grid.w; j++, at++) {
            h[at] = y[j];
            w[at] = x[j];
        }
    }
    golden_numbers(g, "h", h, at, golden_want(g, "h"));
    golden_numbers(g, "w", w, at, golden_want(g, "w"));
}
