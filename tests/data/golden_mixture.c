/* Orders, shares and whole fetches of weighted data sets, of curriculum.json. */
#include "golden.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../src/config/internal.h"
#include "../../src/data/internal.h"
#include "ares/core.h"
#include "saved_source.h"

static uint64_t seed_of(golden *g)
{
    return (uint64_t)golden_number(g, "seed");
}

GOLDEN(curriculum, mt19937_getrandbits32)
{
    double got[64];
    int64_t n = (int64_t)golden_number(g, "count");
    ares_mt19937 s;
    ares_py_seed(&s, seed_of(g));
    for (int64_t i = 0; i < n && i < ARES_COUNT(got); i++) got[i] = (double)ares_py_bits(&s, 32);
    golden_numbers(g, "bits", got, n, g->expected);
}

GOLDEN(curriculum, mt19937_randbelow)
{
    double got[64];
    int64_t n = (int64_t)golden_number(g, "count");
    ares_mt19937 s;
    ares_py_seed(&s, seed_of(g));
    for (int64_t i = 0; i < n && i < ARES_COUNT(got); i++)
        got[i] = (double)ares_py_below(&s, (uint64_t)golden_number(g, "n"));
    golden_numbers(g, "numbers", got, n, g->expected);
}

GOLDEN(curriculum, shuffle_permutation)
{
    int64_t order[64], n = (int64_t)golden_number(g, "n");
    double got[64];
    mixture_order(seed_of(g), (int64_t)golden_number(g, "epoch_id"), order, n);
    for (int64_t i = 0; i < n; i++) got[i] = (double)order[i];
    golden_numbers(g, "order", got, n, g->expected);
}

GOLDEN(curriculum, parse_sliced_path)
{
    size_t length;
    const char *path = golden_z(g, "text");
    path_rows s = path_slice(path, &length);
    golden_text(g, "path", (ares_view){ path, length }, &g->expected->items[0]);
    for (int i = 0; i < 2; i++) {
        const ares_json *want = &g->expected->items[1 + i];
        bool given = i ? s.has_end : s.has_first;
        if ((want->type != ARES_JSON_NULL) != given) golden_fail(g, "bound %d", i);
        else if (given) golden_equal(g, "bound", i ? s.end : s.first, want);
    }
}

static ares_texts texts_of(golden *g, const ares_json *list)
{
    const char **items = ares_arena_calloc(g->arena, (size_t)list->count + 1, sizeof *items);
    for (int64_t i = 0; i < list->count; i++) items[i] = list->items[i].text.data;
    return (ares_texts){ items, list->type == ARES_JSON_ARRAY ? list->count : 0 };
}

GOLDEN(curriculum, source_names)
{
    static const ares_json null = { .type = ARES_JSON_NULL }, none = { .type = ARES_JSON_OBJECT };
    ares_texts files = texts_of(g, golden_in(g, "prompt_data"));
    ares_curriculum_config o = { .names = texts_of(g, golden_in(g, "prompt_data_source_names")),
                                 .weights = &(ares_json){ .type = ARES_JSON_ARRAY },
                                 .reward_caps = &null,
                                 .schedules = &none,
                                 .step_unit = "fetch" };
    ares_curriculum c;
    ares_config *cfg = ares_config_new();
    ares_config_add_options(cfg, "curriculum", ares_curriculum_options, NULL);
    ares_config_resolve(cfg);
    ares_curriculum_read(cfg, &o, &files, 1, false, &c);
    golden_equal(g, "count", c.n,
                 &(ares_json){ .type = ARES_JSON_INT, .number = (double)g->expected->count });
    for (int64_t i = 0; i < c.n; i++)
        golden_text(g, "name", ares_view_of(c.names[i]), &g->expected->items[i]);
    ares_config_free(cfg);
}

GOLDEN(curriculum, distribute)
{
    int64_t parts, counts[16];
    double got[16];
    const double *weights = golden_flat(g, golden_in(g, "weights"), &parts);
    int rc =
        mixture_distribute(weights, (int)parts, (int64_t)golden_number(g, "num_samples"), counts);
    if (g->expected->type == ARES_JSON_STRING) {
        golden_text(g, "outcome", ares_view_of(rc == ARES_OK ? "counts" : "error"), g->expected);
        return;
    }
    if (!golden_ok(g, rc)) return;
    for (int64_t i = 0; i < parts; i++) got[i] = (double)counts[i];
    golden_numbers(g, "counts", got, parts, g->expected);
}

/* ---------------------------------------------------------------- fetches */
typedef struct fixture {
    ares_source source;
    ares_curriculum curriculum;
    ares_row_file files[8];
    ares_dataset *data;
} fixture;

/* Data sets of sizes[i] rows. */
static bool open_sizes(golden *g, fixture *f, const double *sizes, int64_t n, bool shuffle,
                       uint64_t seed)
{
    f->curriculum.n = n;
    const char **names = ares_arena_calloc(g->arena, (size_t)n, sizeof *names);
    f->curriculum.names = names;
    for (int64_t i = 0; i < n; i++) {
        ares_str text = { 0 };
        names[i] = ares_arena_printf(g->arena, "part%lld", (long long)i);
        f->files[i].path = ares_arena_printf(g->arena, "/tmp/ares-golden-%d-%lld.jsonl",
                                             (int)getpid(), (long long)i);
        for (int64_t k = 0; k < (int64_t)sizes[i]; k++)
            ares_str_addf(&text, "{\"row\":%lld}\n", (long long)k);
        if (!golden_ok(g, ares_file_write(f->files[i].path, text.data, text.len))) return false;
        ares_str_fini(&text);
    }
    bool ok = golden_ok(g, ares_dataset_load_files(f->files, n, NULL, false, &f->data));
    for (int64_t i = 0; i < n; i++) (void)unlink(f->files[i].path);
    ares_order order = { .draw = 1, .shuffle = shuffle, .seed = seed };
    return ok && golden_ok(g, ares_source_of_mixture(f->data, &f->curriculum, &order, &f->source));
}

/* "parts" of the source's state. */
static const ares_json *state_of(golden *g, const ares_source *s)
{
    ares_str text = { 0 };
    const ares_json *json = NULL;
    saved_source(s, &text);
    char *copy = ares_arena_copy(g->arena, text.data, text.len);
    golden_ok(g, ares_json_parse(g->arena, (ares_view){ copy, text.len }, "state", &json));
    ares_str_fini(&text);
    return json;
}

static void check_state(golden *g, const char *what, const ares_json *part, const char *key,
                        const ares_json *want)
{
    golden_equal(g, what, ares_json_get(part, key)->integer, want);
}

static void check_local(golden *g, const fixture *f, const ares_drawn *d, const ares_json *want)
{
    const ares_row *row = ares_source_row(&f->source, d->id);
    golden_equal(g, "row", ares_json_get(row->json, "row")->integer, ares_json_get(want, "row"));
    golden_equal(g, "local_group", d->local, ares_json_get(want, "local_group"));
}

GOLDEN(curriculum, single_source_calls)
{
    fixture f = { 0 };
    double rows = golden_number(g, "dataset_size");
    const ares_json *calls = golden_in(g, "calls");
    if (!open_sizes(g, &f, &rows, 1, golden_number(g, "shuffle") != 0, seed_of(g))) return;
    for (int64_t i = 0; i < calls->count; i++) {
        const ares_json *want = &g->expected->items[i], *groups = ares_json_get(want, "groups"),
                        *state = ares_json_get(want, "state");
        int64_t n = calls->items[i].integer;
        ares_drawn *d = ares_arena_calloc(g->arena, (size_t)n, sizeof *d);
        if (!golden_ok(g, ares_source_next(&f.source, n, g->arena, d))) break;
        for (int64_t k = 0; k < n; k++) check_local(g, &f, &d[k], &groups->items[k]);
        const ares_json *part = &ares_json_get(state_of(g, &f.source), "parts")->items[0];
        check_state(g, "sample_offset", part, "offset", ares_json_get(state, "sample_offset"));
        check_state(g, "epoch_id", part, "epoch", ares_json_get(state, "epoch_id"));
        check_state(g, "sample_group_index", part, "drawn",
                    ares_json_get(state, "sample_group_index"));
    }
    ares_source_close(&f.source);
}

static bool read_weights(golden *g, fixture *f)
{
    const ares_json *texts = golden_in(g, "weights");
    const ares_scheduled **weights =
        ares_arena_calloc(g->arena, (size_t)texts->count, sizeof *weights);
    for (int64_t i = 0; i < texts->count; i++) {
        scheduled *s = ares_arena_calloc(g->arena, 1, sizeof *s);
        if (!golden_ok(g, scheduled_parse(g->arena, &texts->items[i], ARES_SCHEDULE_WEIGHT, s)))
            return false;
        weights[i] = s;
    }
    f->curriculum.weights = weights;
    return true;
}

GOLDEN(curriculum, multi_source_calls)
{
    fixture f = { 0 };
    int64_t parts;
    const double *sizes = golden_flat(g, golden_in(g, "dataset_sizes"), &parts);
    const ares_json *calls = golden_in(g, "calls");
    if (!read_weights(g, &f) ||
        !open_sizes(g, &f, sizes, parts, golden_number(g, "shuffle") != 0, seed_of(g)))
        return;
    for (int64_t i = 0; i < calls->count; i++) {
        const ares_json *want = &g->expected->items[i], *groups = ares_json_get(want, "groups"),
                        *weights = ares_json_get(want, "weights"),
                        *offsets = ares_json_get(want, "group_index_offsets");
        int64_t n = calls->items[i].integer;
        ares_drawn *d = ares_arena_calloc(g->arena, (size_t)n, sizeof *d);
        if (!golden_ok(g, ares_source_next(&f.source, n, g->arena, d))) break;
        for (int64_t k = 0; k < n; k++) {
            int part = ares_source_row(&f.source, d[k].id)->part;
            check_local(g, &f, &d[k], &groups->items[k]);
            golden_equal(g, "source", part, ares_json_get(&groups->items[k], "source"));
            golden_equal(g, "group_index", d[k].draw,
                         ares_json_get(&groups->items[k], "group_index"));
            golden_equal(g, "step", d[k].step, ares_json_get(want, "rollout_step"));
            golden_near(g, "weight", d[k].weight, &weights->items[part]);
        }
        const ares_json *state = state_of(g, &f.source);
        check_state(g, "next_group_index", state, "next_draw",
                    ares_json_get(want, "next_group_index"));
        for (int64_t k = 0; k < parts; k++)
            check_state(g, "group_index_offset", &ares_json_get(state, "parts")->items[k], "ahead",
                        &offsets->items[k]);
    }
    ares_source_close(&f.source);
}
