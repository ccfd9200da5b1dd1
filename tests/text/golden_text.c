#include "golden.h"

#include "ares/text.h"

/* The offsets of a case count characters; ours count bytes. */
static int64_t byte_of(ares_view text, int64_t character)
{
    size_t at = 0;
    for (int64_t c = 0; c < character && at < text.len; c++) do
            at++;
        while (at < text.len && ((unsigned char)text.data[at] & 0xC0) == 0x80);
    return (int64_t)at;
}

GOLDEN(vapor, find_and_map)
{
    ares_view text = golden_string(g, "text");
    const ares_json *list = golden_in(g, "offsets");
    int64_t(*offsets)[2] = ares_arena_calloc(g->arena, (size_t)list->count + 1, sizeof *offsets),
    first = -1, end = -1;
    for (int64_t i = 0; i < list->count; i++)
        for (int j = 0; j < 2; j++) offsets[i][j] = byte_of(text, list->items[i].items[j].integer);
    bool found =
        ares_span_find(text, (const int64_t(*)[2])offsets, list->count,
                       golden_string(g, "start_tag"), golden_string(g, "end_tag"), &first, &end);
    if (g->expected->type == ARES_JSON_NULL || !found) {
        g->checks++;
        if (found || g->expected->type != ARES_JSON_NULL)
            golden_fail(g, "found is %d [%lld, %lld), expected %s", found, (long long)first,
                        (long long)end, found ? "nothing" : "a span");
        return;
    }
    golden_numbers(g, "span", (double[]){ (double)first, (double)end }, 2, g->expected);
}
