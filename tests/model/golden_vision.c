/* Attention's windows, and places of patches. */
#include "golden.h"
#include "internal.h"

static int32_t add_media(golden *g, const char *key, ares_medium *media)
{
    const ares_json *list = ares_json_get(g->inputs, key);
    int32_t n = 0;
    for (int64_t i = 0; list && list->type == ARES_JSON_ARRAY && i < list->count; i++) {
        const ares_json *x = list->items[i].items;
        media[n++].grid =
            (ares_grid){ (int32_t)x[0].integer, (int32_t)x[1].integer, (int32_t)x[2].integer };
    }
    return n;
}

GOLDEN(vision, window_index)
{
    ares_medium media[16];
    ares_vision_config v = { .merge = (int32_t)golden_number(g, "spatial_merge_size"),
                             .window = (int32_t)golden_number(g, "window_size"),
                             .patch = (int32_t)golden_number(g, "patch_size") };
    int32_t n = add_media(g, "grid_thw", media), each = v.merge * v.merge, at = 0, windows = 0;
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
    int32_t n = add_media(g, "grid_thw", media), at = 0;
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

/* A patch's angles: those of its row, then those of its column. */
GOLDEN(vision, vision_angles)
{
    int32_t dim = (int32_t)golden_number(g, "head_dim"), quarter = dim / 4,
            at[] = { (int32_t)golden_number(g, "h"), (int32_t)golden_number(g, "w") },
            n = ARES_MAX(at[0], at[1]) + 1;
    size_t size = (size_t)(n * quarter);
    float *cosine = ares_arena_calloc(g->arena, 2 * size, sizeof *cosine), *sine = cosine + size;
    double *got = ares_arena_calloc(g->arena, (size_t)dim, sizeof *got);
    golden_equal(g, "theta", (long long)golden_number(g, "theta"),
                 &(ares_json){ .type = ARES_JSON_INT, .integer = 10000, .number = 10000 });
    tower_angles(dim, n, cosine, sine);
    for (int which = 0; which < 2; which++) {
        const float *from = which ? sine : cosine;
        for (int a = 0; a < 2; a++)
            for (int32_t j = 0; j < quarter; j++)
                got[a * quarter + j] = (double)from[at[a] * quarter + j];
        golden_numbers(g, which ? "sin" : "cos", got, 2 * quarter,
                       golden_want(g, which ? "sin" : "cos"));
    }
}

GOLDEN(vision, mrope_angles)
{
    int64_t n;
    const double *section = golden_flat(g, golden_in(g, "mrope_section"), &n);
    int32_t dim = (int32_t)golden_number(g, "head_dim"), half = dim / 2;
    const ares_rope_config c = { .theta = golden_number(g, "rope_theta"),
                                 .factor = 1,
                                 .attention_factor = 1,
                                 .section = { (int32_t)section[0], (int32_t)section[1],
                                              (int32_t)section[2] } };
    const int32_t at[] = { (int32_t)golden_number(g, "t"), (int32_t)golden_number(g, "h"),
                           (int32_t)golden_number(g, "w") };
    float *row = ares_arena_calloc(g->arena, (size_t)dim, sizeof *row);
    double *got = ares_arena_calloc(g->arena, (size_t)dim, sizeof *got);
    ares_rope *rope = rope_new(&c, dim, 32768);
    rope_row_of_three(rope, at, 1, row);
    for (int32_t i = 0; i < dim; i++) got[i] = (double)row[i];
    golden_numbers(g, "cos", got, half, golden_want(g, "cos"));
    golden_numbers(g, "sin", got + half, half, golden_want(g, "sin"));
    rope_free(rope);
}
