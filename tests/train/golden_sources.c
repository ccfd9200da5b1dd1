/* Metrics by data set, of curriculum.json. */
#include "golden.h"

#include <stdio.h>
#include <string.h>

#include "../../src/config/internal.h"
#include "../../src/train/report/report.h"

static int64_t find_name(const ares_curriculum *c, ares_view name)
{
    for (int64_t i = 0; i < c->n; i++)
        if (ares_view_is(name, c->names[i])) return i;
    return -1;
}

static void check_metrics(golden *g, const ares_metrics *m, const ares_json *want)
{
    for (int64_t i = 0; i < want->count; i++) {
        const ares_json_member *x = &want->members[i];
        const char *name = ares_arena_copy(g->arena, x->key.data, x->key.len);
        double value = 0;
        if (ares_metrics_get(m, name, &value)) golden_near(g, name, value, x->value);
        else golden_fail(g, "there is no %s", name);
    }
}

GOLDEN(curriculum, source_metrics)
{
    const ares_json *names = golden_in(g, "source_names"), *caps = golden_in(g, "caps"),
                    *samples = golden_in(g, "samples"), *drops = golden_in(g, "drops");
    ares_curriculum c = { .n = names->count };
    const char **name = ares_arena_calloc(g->arena, (size_t)c.n, sizeof *name);
    const ares_scheduled **cap = ares_arena_calloc(g->arena, (size_t)c.n, sizeof *cap);
    ares_metrics *m = ares_metrics_new();
    for (int64_t i = 0; i < c.n; i++) {
        scheduled *s = ares_arena_calloc(g->arena, 1, sizeof *s);
        name[i] = names->items[i].text.data;
        golden_ok(g, scheduled_parse(g->arena, ares_json_find(caps, names->items[i].text),
                                     ARES_SCHEDULE_CAP, s));
        cap[i] = s;
    }
    c.names = name;
    c.caps = cap;
    for (int64_t i = 0; i < drops->count; i++) {
        char key[100];
        (void)snprintf(key, sizeof key, "rollout/dynamic_filter/drop_%.*s",
                       (int)drops->members[i].key.len, drops->members[i].key.data);
        ares_metrics_set(m, key, drops->members[i].value->number);
    }
    source_sample *x = ares_arena_calloc(g->arena, (size_t)samples->count + 1, sizeof *x);
    for (int64_t i = 0; i < samples->count; i++) {
        const ares_json *s = &samples->items[i];
        x[i] = (source_sample){ .place = i,
                                .part = find_name(&c, ares_json_get(s, "source")->text),
                                .step = ares_json_get(s, "step")->integer,
                                .weight = ares_json_get(s, "weight")->number,
                                .reward = ares_json_get(s, "reward")->number,
                                .length = ares_json_get(s, "response_len")->number };
    }
    if (golden_ok(g, sources_report(&c, x, samples->count, m))) check_metrics(g, m, g->expected);
    static const char *const ratios[] = { "rollout/math/filter_ratio_all_zero",
                                          "rollout/math/filter_ratio_reward_cap" };
    for (int i = 0; i < 2; i++) { /* only where something was dropped */
        double value;
        if (!ares_json_get(g->expected, ratios[i]) && ares_metrics_get(m, ratios[i], &value))
            golden_fail(g, "%s should not be there", ratios[i]);
    }
    ares_metrics_free(m);
}

GOLDEN(curriculum, statistics)
{
    static const char *const names[] = { "all" };
    int64_t n;
    const double *values = golden_flat(g, golden_in(g, "values"), &n);
    ares_curriculum c = { .n = 1, .names = names };
    ares_metrics *m = ares_metrics_new();
    source_sample *x = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (source_sample){ .place = i, .length = values[i] };
    if (golden_ok(g, sources_report(&c, x, n, m)))
        for (int64_t i = 0; i < g->expected->count; i++) {
            const ares_json_member *want = &g->expected->members[i];
            char key[100];
            double value = -1;
            (void)snprintf(key, sizeof key, "rollout/all/response_len/%.*s", (int)want->key.len,
                           want->key.data);
            (void)ares_metrics_get(m, key, &value);
            golden_near(g, key, value, want->value);
        }
    ares_metrics_free(m);
}
