/*
 * A data set as a source. Its state is the number of prompts drawn, and the rows that are skipped
 * with the last epoch that each is part of: the order follows from data.seed.
 */
#include "ares/data_source.h"
#include "loader.h"

typedef struct dataset_source {
    ares_dataset *data;
    loader loader;
} dataset_source;

static int64_t draw(const void *state)
{
    return ((const dataset_source *)state)->loader.batch;
}

static int next(void *state, int64_t n, ares_drawn *out)
{
    dataset_source *s = state;
    int64_t batch = s->loader.batch, first;
    ARES_ASSERT(n % batch == 0);
    int rc = ARES_OK;
    int64_t *ids = ares_malloc((size_t)batch * sizeof *ids);
    for (int64_t at = 0; at < n && rc == ARES_OK; at += batch) {
        rc = loader_next(&s->loader, ids, &first);
        for (int64_t i = 0; i < batch && rc == ARES_OK; i++)
            out[at + i] = (ares_drawn){ .draw = first + i, .id = ids[i] };
    }
    ares_free(ids);
    return rc;
}

static const ares_row *row(const void *state, int64_t id)
{
    const dataset_source *s = state;
    return ares_dataset_row(s->data, id);
}

static int64_t count(const void *state)
{
    const dataset_source *s = state;
    return ares_dataset_count(s->data);
}

static int64_t epoch(const void *state)
{
    const dataset_source *s = state;
    return loader_epoch(&s->loader);
}

static int64_t epoch_draws(const void *state)
{
    const dataset_source *s = state;
    return (s->loader.rows - s->loader.n_skipped) / s->loader.batch;
}

static void skip(void *state, int64_t id)
{
    dataset_source *s = state;
    loader_skip(&s->loader, id);
}

static int64_t skipped(const void *state)
{
    const dataset_source *s = state;
    return s->loader.n_skipped;
}

/* Older checkpoints hold these members in state.json. */
static void save(const void *state, ares_str *json)
{
    const loader *l = &((const dataset_source *)state)->loader;
    ares_json_write_i64(ares_json_key(json, "prompts_drawn"), l->drawn);
    ares_json_write_i64(ares_json_key(json, "training_rows"), l->rows);
    /* pairs: [row, the last epoch that it is part of] */
    ares_json_begin(ares_json_key(json, "skipped_rows"), '[');
    for (int64_t i = 0; i < l->rows && l->n_skipped; i++) {
        if (l->skipped[i] == LOADER_KEPT) continue;
        ares_json_begin(json, '[');
        ares_json_write_i64(json, i);
        ares_json_write_i64(json, l->skipped[i]);
        ares_json_end(json, ']');
    }
    ares_json_end(json, ']');
}

static bool is_count(const ares_json *v, int64_t limit)
{
    return v && v->type == ARES_JSON_INT && !v->big && v->integer >= 0 && v->integer <= limit;
}

static int load_count(const ares_json *json, const char *key, int64_t *out)
{
    const ares_json *v = ares_json_get(json, key);
    if (!is_count(v, INT64_MAX / 2))
        return ares_fail(ARES_EFORMAT, "no count '%s'; the checkpoint is damaged", key);
    *out = v->integer;
    return ARES_OK;
}

/* A row is skipped after an epoch that has begun, and an epoch has at least one prompt. */
static bool is_skip(const ares_json *pair, int64_t rows, int64_t drawn)
{
    return pair->type == ARES_JSON_ARRAY && pair->count == 2 &&
           is_count(&pair->items[0], rows - 1) && is_count(&pair->items[1], drawn);
}

static int load(void *state, const ares_json *json, bool other_rows)
{
    loader *l = &((dataset_source *)state)->loader;
    const ares_json *skips = ares_json_get(json, "skipped_rows");
    int64_t drawn = 0, rows = 0;
    ARES_TRY(load_count(json, "prompts_drawn", &drawn));
    ARES_TRY(load_count(json, "training_rows", &rows));
    if (rows != l->rows && !other_rows)
        return ares_fail(ARES_ESTATE,
                         "the run had %lld training rows, the data set has %lld now; restore "
                         "data.train_files, or pass --force to go on nevertheless",
                         (long long)rows, (long long)l->rows);
    bool good = skips && skips->type == ARES_JSON_ARRAY;
    for (int64_t i = 0; good && i < skips->count; i++)
        good = is_skip(&skips->items[i], rows, drawn);
    if (!good)
        return ares_fail(ARES_EFORMAT,
                         "'skipped_rows' holds no pairs of a row and an epoch; the checkpoint is "
                         "damaged");
    loader_reset(l, drawn);
    for (int64_t i = 0; i < skips->count; i++) {
        const ares_json *pair = skips->items[i].items;
        if (pair[0].integer < l->rows) loader_restore(l, pair[0].integer, pair[1].integer);
    }
    return ARES_OK;
}

static void close_dataset(void *state)
{
    dataset_source *s = state;
    loader_fini(&s->loader);
    ares_dataset_free(s->data);
    ares_free(s);
}

static const ares_source_kind kind = { .name = "dataset",
                                       .draw = draw,
                                       .next = next,
                                       .row = row,
                                       .count = count,
                                       .epoch = epoch,
                                       .epoch_draws = epoch_draws,
                                       .skip = skip,
                                       .skipped = skipped,
                                       .save = save,
                                       .load = load,
                                       .close = close_dataset };

int ares_source_of_dataset(ares_dataset *d, const ares_order *order, ares_source *out)
{
    dataset_source *s = ares_calloc(1, sizeof *s);
    int rc = loader_init(&s->loader, ares_dataset_count(d), order);
    if (rc != ARES_OK) {
        ares_free(s);
        return rc;
    }
    s->data = d;
    *out = (ares_source){ .kind = &kind, .state = s };
    return ARES_OK;
}
