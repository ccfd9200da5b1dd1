/* What all kinds of sources have in common. */
#include "ares/data_source.h"

int ares_source_next(ares_source *s, int64_t n, ares_drawn *out)
{
    return s->kind->next(s->state, n, out);
}

const ares_row *ares_source_row(const ares_source *s, int64_t id)
{
    return s->kind->row(s->state, id);
}

int64_t ares_source_count(const ares_source *s)
{
    return s->kind ? s->kind->count(s->state) : 0;
}

int64_t ares_source_epoch(const ares_source *s)
{
    return s->kind->epoch(s->state);
}

int64_t ares_source_epoch_draws(const ares_source *s)
{
    return s->kind->epoch_draws(s->state);
}

void ares_source_skip(ares_source *s, int64_t id)
{
    s->kind->skip(s->state, id);
}

int64_t ares_source_skipped(const ares_source *s)
{
    return s->kind->skipped(s->state);
}

void ares_source_save(const ares_source *s, ares_str *json)
{
    ares_json_begin(json, '{');
    ares_json_write_string(ares_json_key(json, "source"), ares_view_of(s->kind->name));
    s->kind->save(s->state, json);
    ares_json_end(json, '}');
}

int ares_source_load(ares_source *s, const ares_json *json, bool other_rows)
{
    ares_view kind;
    /* the states of older checkpoints do not name it, and are of a data set */
    ARES_TRY(ares_json_get_string(json, "source", "dataset", &kind));
    if (!ares_view_is(kind, s->kind->name))
        return ares_fail(ARES_ESTATE,
                         "the state is of a source '%.*s', and the run draws from a '%s'; restore "
                         "the options of data.*",
                         (int)kind.len, kind.data, s->kind->name);
    return s->kind->load(s->state, json, other_rows);
}

void ares_source_close(ares_source *s)
{
    if (s->kind) s->kind->close(s->state);
    *s = (ares_source){ 0 };
}

int ares_source_gids(const ares_source *s, ares_map **out)
{
    int64_t rows = ares_source_count(s), other;
    *out = ares_map_new();
    for (int64_t i = 0; i < rows; i++) {
        const ares_row *row = ares_source_row(s, i);
        if (ares_map_get(*out, ares_view_of(row->gid), &other)) {
            const ares_row *first = ares_source_row(s, other);
            ares_map_free(*out);
            *out = NULL;
            return ares_fail(ARES_EFORMAT,
                             "data: %s:%lld: global_id = '%s': the row at %s:%lld has the same; "
                             "give every row its own",
                             row->file, (long long)row->line, row->gid, first->file,
                             (long long)first->line);
        }
        ares_map_put(*out, ares_view_of(row->gid), i);
    }
    return ARES_OK;
}
