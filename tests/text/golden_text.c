#include "golden.h"

#include "../../src/text/tokenizer.h"

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

GOLDEN(vapor, verifiable_text)
{
    ares_view text = golden_string(g, "text"), start = golden_string(g, "start_tag"),
              end = golden_string(g, "end_tag"), inner;
    bool found = ares_span_text(text, start, end, &inner);
    g->checks++;
    if (found != (g->expected->type != ARES_JSON_NULL)) {
        golden_fail(g, "found is %d", found);
        return;
    }
    if (!found) return;
    golden_text(g, "inner", inner, golden_want(g, "inner"));
    golden_text(g, "span", (ares_view){ inner.data - start.len, start.len + inner.len + end.len },
                golden_want(g, "span"));
}

GOLDEN(vapor, offsets_from_tokens)
{
    const ares_json *tokens = golden_in(g, "tokens");
    double *have = ares_arena_calloc(g->arena, (size_t)tokens->count * 2 + 1, sizeof *have);
    ares_str text = { 0 };
    for (int64_t i = 0; i < tokens->count; i++) {
        const ares_json *token = &tokens->items[i];
        int64_t offset[2];
        text_span_offset(token->items[0].text, token->items[1].integer != 0, &text, offset);
        for (int k = 0; k < 2; k++) have[2 * i + k] = (double)offset[k];
    }
    ares_str_fini(&text);
    golden_numbers(g, "offsets", have, tokens->count * 2, g->expected);
}
