/* A row's instructions -> verdicts, and verdicts -> a score. */
#include <string.h>

#include "check_tools.h"

ares_view if_strip_think(ares_view text)
{
    static const char tag[] = "</think>";
    const size_t n = sizeof tag - 1;
    for (const char *p = text.data + text.len;
         text.len >= n && (p = memrchr(text.data, '<', (size_t)(p - text.data)));)
        if ((size_t)(text.data + text.len - p) >= n && memcmp(p, tag, n) == 0)
            return if_from(text, (size_t)(p - text.data) + n);
    return text;
}

/* The ids that are not blank, trimmed; returns how many. */
static int64_t list_ids(const ares_json *ids, ares_view *out)
{
    bool list = ids && ids->type == ARES_JSON_ARRAY;
    int64_t n = 0, count = list ? ids->count : ids != NULL;
    for (int64_t i = 0; i < count; i++) {
        const ares_json *id = list ? &ids->items[i] : ids;
        ares_view v = if_trim(id->type == ARES_JSON_STRING || id->type == ARES_JSON_INT ||
                                      id->type == ARES_JSON_FLOAT
                                  ? id->text
                                  : (ares_view){ "", 0 });
        if (v.len) out[n++] = v;
    }
    return n;
}

void if_judge(const ares_json *ids, const ares_json *kwargs, ares_view text, ares_arena *arena,
              if_verdict *out)
{
    size_t most = ids && ids->type == ARES_JSON_ARRAY ? (size_t)ids->count : 1;
    *out = (if_verdict){ .ids = ares_arena_alloc(arena, (most + 1) * sizeof *out->ids) };
    out->n = list_ids(ids, out->ids);
    out->strict = ares_arena_calloc(arena, (size_t)out->n + 1, sizeof *out->strict);
    out->loose = ares_arena_calloc(arena, (size_t)out->n + 1, sizeof *out->loose);
    const ares_json *own = if_coerce_kwargs(kwargs, out->n, arena);
    ares_arena scratch = { 0 };
    /*
     * Strict verdicts first: a text that is too much work loses its loose verdicts before any
     * strict one.
     */
    if_budget budget = { .steps = IF_STEPS };
    for (int64_t i = 0; i < out->n; i++)
        out->strict[i] = if_check(out->ids[i], &own->items[i], text, &budget, &scratch);
    for (int64_t i = 0; i < out->n; i++)
        out->loose[i] =
            out->strict[i] || if_check_loose(out->ids[i], &own->items[i], text, &budget, &scratch);
    out->exhausted = budget.exhausted;
    ares_arena_fini(&scratch);
}

double if_fraction(int64_t followed, int64_t n)
{
    return n ? (double)followed / (double)n : 0;
}

double if_score(const if_verdict *v, if_mode mode)
{
    const bool *followed =
        mode == IF_MODE_loose_all || mode == IF_MODE_loose_fraction ? v->loose : v->strict;
    int64_t count = 0;
    for (int64_t i = 0; i < v->n; i++) count += followed[i];
    bool all = mode == IF_MODE_strict_all || mode == IF_MODE_loose_all;
    return all ? v->n > 0 && count == v->n : if_fraction(count, v->n);
}
