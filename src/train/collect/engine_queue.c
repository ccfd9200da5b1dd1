/*
 * Requests of the engine. An answer that was begun goes on with its tokens as the beginning of the
 * response, at the keys and positions that it would have had without the break
 * (docs/design.md#trajectories).
 */
#include "collect/engine_queue.h"

#include <string.h>

#include "collect/collection.h"
#include "collect/partial.h"
#include "collect/triggers.h"

/* Ids that end an answer besides the model's own; in the arena. */
static void add_stop_ids(const ares_rollout_config *c, ares_arena *arena, ares_sampling *s)
{
    if (s->n_stop_ids) return; /* an evaluation's own */
    int32_t *ids = ares_arena_alloc(arena, (size_t)(c->stop_token_ids.count + 1) * sizeof *ids);
    s->n_stop_ids = (int32_t)c->stop_token_ids.count;
    for (int32_t i = 0; i < s->n_stop_ids; i++) ids[i] = (int32_t)c->stop_token_ids.items[i];
    s->stop_ids = ids;
}

int engine_queue_open(engine_queue *q, ares_trainer *t, const ares_sampling *sampling,
                      ares_rng_key key, ares_arena *arena)
{
    *q = (engine_queue){ .t = t, .sampling = *sampling, .key = key, .arena = arena };
    add_stop_ids(&t->run.cfg->rollout, arena, &q->sampling);
    return trainer_renew_rollout(t);
}

static void append(ares_arena *arena, queued what, queued **items, int64_t *n, int64_t *capacity)
{
    if (*n == *capacity) {
        *capacity = *capacity * 2 + 64;
        *items = arena_grown(arena, *items, *n, *capacity, sizeof **items);
    }
    (*items)[(*n)++] = what;
}

/* What stands in the places of the row's images and videos. */
static int see(const engine_queue *q, const ares_row *row, ares_request *r)
{
    const ares_sight *s = row->sight;
    if (!s) return ARES_OK;
    ares_seen *seen = ares_arena_alloc(q->arena, (size_t)(s->n_places + 1) * sizeof *seen);
    for (int32_t i = 0; i < s->n_places; i++)
        ARES_TRY(ares_features_get(q->t->run.features, s->places[i].medium, &seen[i]));
    r->sight = s;
    r->seen = seen;
    return ARES_OK;
}

static int add_request(engine_queue *q, ares_request *r, queued what)
{
    const ares_row *row = what.group->row;
    int rc = see(q, row, r);
    if (rc == ARES_OK) rc = ares_rollout_add(q->t->rollout, r, NULL);
    if (rc != ARES_OK) return ares_fail_in(rc, "%s:%lld", row->file, (long long)row->line);
    append(q->arena, what, &q->items, &q->n, &q->capacity);
    return ARES_OK;
}

static ares_request request_of(const engine_queue *q, const ares_group *g, int64_t start)
{
    ares_rng_key of_draw = ares_rng_sub(q->key, (uint64_t)g->step, (uint64_t)g->draw);
    return (ares_request){ .prompt = g->row->prompt,
                           .prompt_len = g->row->prompt_len,
                           .n = g->n,
                           .start = start,
                           .sampling = q->sampling,
                           .key = ares_rng_sub(of_draw, (uint64_t)g->attempt, 0) };
}

/* Goes on with a cut answer: its tokens are the beginning of the response. */
static int add_rest(engine_queue *q, queued what, int64_t start)
{
    const ares_trajectory_row *x = &what.begun->rows[0];
    ares_request r = request_of(q, what.group, start);
    size_t prompt = (size_t)x->prompt_len * sizeof *x->prompt,
           response = (size_t)x->n_tokens * sizeof *x->responses;
    if (partial_budget(q->sampling.max_new_tokens, x->n_tokens) == 0) {
        append(q->arena, what, &q->full, &q->n_full, &q->full_capacity);
        return ARES_OK;
    }
    char *ids = ares_arena_alloc(q->arena, prompt + response + 1);
    memcpy(ids, x->prompt, prompt);
    memcpy(ids + prompt, x->responses, response);
    r.prompt = (const int32_t *)(const void *)ids;
    r.prompt_len = x->prompt_len + x->n_tokens;
    r.response_len = x->n_tokens;
    r.n = 1;
    r.first_index = what.begun->index;
    return add_request(q, &r, what);
}

int engine_queue_add(engine_queue *q, const answer_prompt *p, int32_t n, int64_t attempt,
                     int64_t start, ares_group *g)
{
    const ares_group *begun = p->begun;
    *g = (ares_group){ .draw = p->draw,
                       .local = p->local,
                       .source_step = p->source_step,
                       .source_weight = p->source_weight,
                       .step = begun ? begun->step : q->t->run.step,
                       .attempt = begun ? begun->attempt : attempt,
                       .row = p->row,
                       .n = begun ? begun->n : n };
    g->items = ares_arena_calloc(q->arena, (size_t)g->n + 1, sizeof *g->items);
    if (!begun) {
        ares_request r = request_of(q, g, start);
        return add_request(q, &r, (queued){ .group = g });
    }
    for (int32_t i = 0; i < g->n; i++) {
        g->items[i] = begun->items[i];
        if (!g->items[i].cut) continue;
        ARES_TRY(add_rest(q, (queued){ .group = g, .begun = &begun->items[i], .item = i }, start));
    }
    return ARES_OK;
}

/* What the engine records, and the column that it becomes. */
#define ENGINE_COLUMNS(X)           \
    X(ids, responses)               \
    X(log_probs, rollout_log_probs) \
    X(entropies, entropies)         \
    X(entropies_1, entropies_1)

/* Copies what the engine holds until its next clear, after what the answer had before. */
static void take_answer(const engine_queue *q, const ares_completion *c, const ares_row *row,
                        const ares_trajectory *begun, ares_trajectory *y)
{
    const ares_trainer *t = q->t;
    const ares_trajectory_row *old = begun ? &begun->rows[0] : NULL;
    size_t n = (size_t)c->n_tokens, had = old ? (size_t)old->n_tokens : 0;
    ares_trajectory_row *x = ares_arena_alloc(q->arena, sizeof *x);
    ares_trajectory_row_init(x, row->prompt, row->prompt_len, (int32_t)(had + n), q->arena);
    x->hwe_candidates = triggers_mark(t, c, had, q->arena);
#define BEFORE(type, name, stage, doc) \
    if (had && x->name) memcpy(x->name, old->name, had * sizeof *x->name);
    ARES_BATCH_SAMPLED(BEFORE)
#undef BEFORE
    partial_mask(x->response_mask, (int32_t)had, (int32_t)n,
                 t->run.cfg->oversampling.mask_offpolicy);
#define TAKE(from, into) \
    if (n) memcpy(x->into + had, c->from, n * sizeof *c->from);
    ENGINE_COLUMNS(TAKE)
#undef TAKE
    for (size_t i = 0; i < n; i++)
        x->weight_versions[had + i] = (int32_t)t->actor.learner.optim.updates;
    *y = (ares_trajectory){ .index = c->index,
                            .stopped = c->finish == ARES_FINISH_STOP,
                            .cut = c->finish == ARES_FINISH_CUT,
                            .n_rows = 1,
                            .rows = x };
}

ares_trajectory *engine_queue_next(engine_queue *q, ares_group **of)
{
    ares_completion c = { .finish = ARES_FINISH_LENGTH };
    queued what;
    if (q->n_full) {
        what = q->full[--q->n_full];
        c.index = what.begun->index;
    } else if (ares_rollout_next(q->t->rollout, &c)) what = q->items[c.request];
    else return NULL;
    ares_trajectory *y = &what.group->items[what.begun ? what.item : c.index];
    take_answer(q, &c, what.group->row, what.begun, y);
    *of = what.group;
    return y;
}
