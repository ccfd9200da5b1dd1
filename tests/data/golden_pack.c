/* Positions of packed tokens, in the layout of the case: prompts padded on the left, with 0. */
#include "golden.h"

#include "data_test.h"

GOLDEN(aepo, left_pad_positions)
{
    int prompt = (int)golden_number(g, "prompt_len"),
        width = (int)golden_number(g, "max_prompt_length"),
        response = (int)golden_number(g, "response_len");
    /* the last response token is not fed */
    int sizes[] = { 1 }, prompts[] = { prompt }, lens[] = { response + 1 };
    ares_batch b;
    ares_micro_batch m;
    ares_packed p;
    const int32_t *targets;
    double *x = ares_arena_calloc(g->arena, (size_t)(width + response) + 1, sizeof *x);
    make_batch(&b, 1, sizes, prompts, lens);
    if (ares_pack_plan(&b, 0, 1, 1 << 20, false, &m) != 1)
        golden_fail(g, "one row makes one micro-batch");
    ares_pack_build(&b, &(ares_micro_set){ 1, &m, m.tokens, m.out }, false, g->arena, &p, &targets);
    for (int i = 0; i < p.rows && width - prompt + i < width + response; i++)
        x[width - prompt + i] = p.positions[i];
    golden_numbers(g, "prompt", x, width, golden_want(g, "prompt"));
    golden_numbers(g, "response", x + width, response, golden_want(g, "response"));
    ares_batch_fini(&b);
}
