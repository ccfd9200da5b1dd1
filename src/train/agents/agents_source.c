/*
 * Groups of environments as a source of prompts. A draw is a group; its number gives the group's
 * seed, so that a run that goes on meets the rooms that an uninterrupted one meets. The source
 * never ends, and no prompt returns.
 */
#include "agents/agents.h"

typedef struct env_source {
    agents_row *rows; /* [n] the groups of a round */
    int64_t n, drawn;
} env_source;

static int64_t draw(const void *state)
{
    (void)state;
    return 1;
}

static int next(void *state, int64_t n, ares_drawn *out)
{
    env_source *s = state;
    for (int64_t i = 0; i < n; i++, s->drawn++)
        out[i] = (ares_drawn){ .draw = s->drawn, .id = s->drawn % s->n };
    return ARES_OK;
}

static const ares_row *row(const void *state, int64_t id)
{
    return &((const env_source *)state)->rows[id].row;
}

static int64_t count(const void *state)
{
    return ((const env_source *)state)->n;
}

static int64_t none(const void *state)
{
    (void)state;
    return 0;
}

static void skip(void *state, int64_t id)
{
    (void)state;
    (void)id;
    ARES_ASSERT(!"a row of an endless source is skipped"); /* ares_source_gids refuses it */
}

static void save(const void *state, ares_str *json)
{
    ares_json_write_i64(ares_json_key(json, "groups_drawn"), ((const env_source *)state)->drawn);
}

static int load(void *state, const ares_json *json, bool other_rows)
{
    const ares_json *drawn = ares_json_get(json, "groups_drawn");
    (void)other_rows;
    if (!drawn || drawn->type != ARES_JSON_INT || drawn->big || drawn->integer < 0)
        return ares_fail(ARES_EFORMAT, "no count 'groups_drawn'; the checkpoint is damaged");
    ((env_source *)state)->drawn = drawn->integer;
    return ARES_OK;
}

static void close_source(void *state)
{
    ares_free(((env_source *)state)->rows);
    ares_free(state);
}

static const ares_source_kind kind = { .name = "environments",
                                       .endless = true,
                                       .draw = draw,
                                       .next = next,
                                       .row = row,
                                       .count = count,
                                       .epoch = none,
                                       .epoch_draws = none,
                                       .skip = skip,
                                       .skipped = none,
                                       .save = save,
                                       .load = load,
                                       .close = close_source };

uint64_t agents_seed(const agents_row *row, int64_t draw)
{
    return ares_env_seed(row->seed, draw / row->groups, row->groups, draw % row->groups);
}

int agents_source(const agents_side *side, ares_source *out)
{
    env_source *s = ares_calloc(1, sizeof *s);
    s->rows = ares_calloc((size_t)side->cfg->groups + 1, sizeof *s->rows);
    for (int64_t k = 0; k < side->cfg->tags.count; k++)
        for (int64_t i = 0; i < side->groups[k]; i++) {
            const ares_env_definition *d = &side->definitions[k];
            s->rows[s->n] = (agents_row){ .row = { .file = d->tag,
                                                   .line = i + 1,
                                                   .id = s->n,
                                                   .prompt_text = ares_view_of(d->tag),
                                                   .data_source = d->tag },
                                          .definition = d,
                                          .seed = (uint64_t)side->cfg->seed,
                                          .groups = side->cfg->groups,
                                          .first_id = s->n * side->cfg->group_size };
            s->n++;
        }
    *out = (ares_source){ .kind = &kind, .state = s };
    return ARES_OK;
}
