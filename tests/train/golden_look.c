/* Verdicts of a run, and the numbers of a report: look.json. */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../src/train/look/look.h"

GOLDEN(look, half_float)
{
    const ares_json *in = golden_in(g, "input");
    ares_str packed = { 0 }, text = { 0 };
    for (int64_t i = 0; i < in->count; i++) {
        uint16_t h = look_half(in->items[i].type == ARES_JSON_NULL ? NAN : in->items[i].number);
        ares_str_add_char(&packed, (char)(h & 0xff));
        ares_str_add_char(&packed, (char)(h >> 8));
    }
    look_add_base64(&text, packed.data, packed.len);
    golden_text(g, "base64", ares_str_view(&text), golden_want(g, "base64"));
    ares_str_fini(&packed);
    ares_str_fini(&text);
}

GOLDEN(look, paired_interval)
{
    int64_t n;
    double *difference = golden_flat(g, golden_in(g, "differences"), &n), mean, half_width;
    look_interval(difference, n, &mean, &half_width);
    golden_near(g, "mean", mean, golden_want(g, "mean"));
    golden_near(g, "half_width", half_width, golden_want(g, "half_width"));
}

/* {"a.b": 1} as {"a": {"b": 1}}, which config.yaml would be. */
static const ares_json *sections_of(golden *g, const ares_json *flat)
{
    ares_str text = { 0 };
    const ares_json *tree = NULL;
    ares_json_begin(&text, '{');
    for (int64_t i = 0; i < flat->count; i++) {
        /* options of one section stand together in a case */
        const char *key = flat->members[i].key.data, *dot = strrchr(key, '.');
        size_t section = (size_t)(dot - key);
        bool opens = i == 0 || strncmp(flat->members[i - 1].key.data, key, section + 1) != 0;
        int depth = 1;
        for (const char *c = key; c < dot; c++) depth += *c == '.';
        for (const char *at = key; opens && at < dot;) {
            const char *end = strchr(at, '.');
            ares_json_begin(ares_json_key_view(&text, (ares_view){ at, (size_t)(end - at) }), '{');
            at = end + 1;
        }
        ares_json_write(ares_json_key(&text, dot + 1), flat->members[i].value);
        bool closes =
            i + 1 == flat->count || strncmp(flat->members[i + 1].key.data, key, section + 1) != 0;
        for (int k = 0; closes && k < depth; k++) ares_json_end(&text, '}');
    }
    ares_json_end(&text, '}');
    const char *copy = ares_arena_copy(g->arena, text.data, text.len);
    golden_ok(g, ares_json_parse(g->arena, (ares_view){ copy, text.len }, "config", &tree));
    ares_str_fini(&text);
    return tree;
}

/* ARES_LOOK_DISTINCT of the case's groups, by step. */
static double *distinct_of(golden *g, const ares_look *l, const ares_json *groups)
{
    double *share = ares_arena_alloc(g->arena, (size_t)(l->rows + 1) * sizeof *share);
    for (int64_t i = 0; i < l->rows; i++) {
        look_answer a[64];
        int64_t n = 0;
        for (int64_t k = 0; k < groups->count; k++) {
            const ares_json *of = &groups->items[k], *texts = &of->items[1];
            if (of->items[0].number != l->step[i]) continue;
            for (int64_t t = 0; t < texts->count && n < 64; t++, n++)
                a[n] = (look_answer){ .draw = k,
                                      .sample = t,
                                      .text = ares_fnv1a(ARES_FNV1A, texts->items[t].text.data,
                                                         texts->items[t].text.len) };
        }
        share[i] = look_distinct(a, n);
    }
    return share;
}

GOLDEN(look, verdicts)
{
    const ares_json *series = golden_in(g, "series"), *groups = golden_in(g, "groups"),
                    *validation = golden_in(g, "validation"), *want = golden_want(g, "expect");
    ares_view state = golden_string(g, "state");
    ares_look l = { .dir = "run", .planned = -1, .config = sections_of(g, golden_in(g, "config")) };
    ares_look_paired p = { 0 };
    ares_look_verdicts v;
    l.state = ares_view_is(state, "finished") ? ARES_LOOK_FINISHED : ARES_LOOK_STOPPED;
    for (int64_t k = 0; k < series->count; k++) {
        const ares_json *list = series->members[k].value;
        double *value = ares_arena_alloc(g->arena, (size_t)(list->count + 1) * sizeof *value);
        for (int64_t i = 0; i < list->count; i++)
            value[i] = list->items[i].type == ARES_JSON_NULL ? NAN : list->items[i].number;
        if (ares_view_is(series->members[k].key, "step")) {
            l.step = value;
            l.rows = l.steps = list->count;
            l.last_step = (int64_t)value[list->count - 1];
        } else look_add(g->arena, &l, series->members[k].key.data, value);
    }
    if (groups->count) look_add(g->arena, &l, ARES_LOOK_DISTINCT, distinct_of(g, &l, groups));
    if (validation->type == ARES_JSON_ARRAY) {
        double *difference =
            ares_arena_alloc(g->arena, (size_t)(validation->count + 1) * sizeof *difference);
        p.n = validation->count;
        for (int64_t i = 0; i < p.n; i++)
            difference[i] =
                validation->items[i].items[1].number - validation->items[i].items[0].number;
        look_interval(difference, p.n, &p.mean, &p.half_width);
    }
    ares_look_judge(g->arena, &l, &p, &v);
    /* both by name of the rule */
    for (int64_t i = 0; i < want->count; i++) {
        int k = 0;
        while (k < v.n && !ares_view_is(want->items[i].items[0].text, v.each[k].id)) k++;
        golden_text(g, want->items[i].items[0].text.data,
                    ares_view_of(k < v.n ? ares_look_level_names[v.each[k].level] : "no verdict"),
                    &want->items[i].items[1]);
    }
    if (v.n != want->count) golden_fail(g, "%d verdicts, not %lld", v.n, (long long)want->count);
    for (int k = 1; k < v.n; k++)
        if (v.each[k].level < v.each[k - 1].level) golden_fail(g, "verdicts are not in order");
}
