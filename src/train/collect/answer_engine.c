/* One prompt, n answers of one turn: the engine samples them, the reward manager judges them. */
#include <string.h>

#include "collect/scoring.h"
#include "collect/triggers.h"

/* Ids that end an answer besides the model's own; in the arena. */
static void add_stop_ids(const ares_rollout_config *c, ares_arena *arena, ares_sampling *s)
{
    int32_t *ids = ares_arena_alloc(arena, (size_t)(c->stop_token_ids.count + 1) * sizeof *ids);
    s->n_stop_ids = (int32_t)c->stop_token_ids.count;
    for (int32_t i = 0; i < s->n_stop_ids; i++) ids[i] = (int32_t)c->stop_token_ids.items[i];
    s->stop_ids = ids;
}

/* What a number of the engine stands for. */
typedef struct queued {
    int64_t prompt;
    const ares_trajectory *begun; /* the answer that goes on; NULL: whole answers */
    int32_t item;                 /* of the group: where that answer is */
} queued;

typedef struct requests {
    ares_trainer *t;
    const answer_job *job;
    ares_sampling sampling;
    ares_arena *arena;
    ares_group *out;
    queued *queued; /* by the engine's number, which counts from 0 */
    int64_t n;
} requests;

static int queue(requests *r, const ares_request *q, queued what)
{
    const ares_row *row = r->job->prompts[what.prompt].row;
    int rc = ares_rollout_add(r->t->rollout, q, NULL);
    if (rc != ARES_OK) return ares_fail_in(rc, "%s:%lld", row->file, (long long)row->line);
    r->queued[r->n++] = what;
    return ARES_OK;
}

static ares_request request_of(const requests *r, const ares_group *g)
{
    ares_rng_key of_draw = ares_rng_sub(r->job->key, (uint64_t)g->step, (uint64_t)g->draw);
    return (ares_request){ .prompt = g->row->prompt,
                           .prompt_len = g->row->prompt_len,
                           .n = g->n,
                           .sampling = r->sampling,
                           .key = ares_rng_sub(of_draw, (uint64_t)g->attempt, 0) };
}

/* Goes on with a cut answer: its tokens are the beginning of the response. */
static int queue_rest(requests *r, const ares_group *g, queued what)
{
    const ares_trajectory_row *x = &what.begun->rows[0];
    ares_request q = request_of(r, g);
    size_t prompt = (size_t)x->prompt_len * sizeof *x->prompt,
           response = (size_t)x->n_tokens * sizeof *x->responses;
    char *ids = ares_arena_alloc(r->arena, prompt + response + 1);
    memcpy(ids, x->prompt, prompt);
    memcpy(ids + prompt, x->responses, response);
    q.prompt = (const int32_t *)(const void *)ids;
    q.prompt_len = x->prompt_len + x->n_tokens;
    q.response_len = x->n_tokens;
    q.n = 1;
    q.first_index = what.begun->index;
    return queue(r, &q, what);
}

static int queue_prompt(requests *r, int64_t p)
{
    const answer_prompt *prompt = &r->job->prompts[p];
    const ares_group *begun = prompt->begun;
    ares_group *g = &r->out[p];
    *g = (ares_group){ .draw = prompt->draw,
                       .step = begun ? begun->step : r->t->run.step,
                       .attempt = begun ? begun->attempt : r->job->attempt,
                       .row = prompt->row,
                       .n = begun ? begun->n : r->job->n };
    g->items = ares_arena_calloc(r->arena, (size_t)g->n + 1, sizeof *g->items);
    if (!begun) {
        const ares_request q = request_of(r, g);
        return queue(r, &q, (queued){ .prompt = p });
    }
    for (int32_t i = 0; i < g->n; i++) {
        g->items[i] = begun->items[i];
        if (!g->items[i].cut) continue;
        ARES_TRY(queue_rest(r, g, (queued){ .prompt = p, .begun = &begun->items[i], .item = i }));
    }
    return ARES_OK;
}

static int queue_prompts(requests *r)
{
    int64_t most = 1;
    for (int64_t p = 0; p < r->job->n_prompts; p++)
        most += r->job->prompts[p].begun ? r->job->prompts[p].begun->n : 1;
    r->queued = ares_arena_alloc(r->arena, (size_t)most * sizeof *r->queued);
    for (int64_t p = 0; p < r->job->n_prompts; p++) ARES_TRY(queue_prompt(r, p));
    return ARES_OK;
}

/* What the engine records, and the column that it becomes. */
#define ENGINE_COLUMNS(X)           \
    X(ids, responses)               \
    X(log_probs, rollout_log_probs) \
    X(entropies, entropies)         \
    X(entropies_1, entropies_1)

/* Copies what the engine holds until its next clear, after what the answer had before. */
static void take_answer(const ares_trainer *t, const ares_completion *c, const ares_row *row,
                        const ares_trajectory *begun, ares_arena *arena, ares_trajectory *y)
{
    const ares_trajectory_row *old = begun ? &begun->rows[0] : NULL;
    size_t n = (size_t)c->n_tokens, had = old ? (size_t)old->n_tokens : 0;
    ares_trajectory_row *x = ares_arena_alloc(arena, sizeof *x);
    ares_trajectory_row_init(x, row->prompt, row->prompt_len, (int32_t)(had + n), arena);
    x->hwe_candidates = triggers_mark(t, c, had, arena);
#define BEFORE(type, name, stage, doc) \
    if (had && x->name) memcpy(x->name, old->name, had * sizeof *x->name);
    ARES_BATCH_SAMPLED(BEFORE)
#undef BEFORE
    memset(x->response_mask + had, 1, n);
#define TAKE(from, into) memcpy(x->into + had, c->from, n * sizeof *c->from);
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

static int answer(ares_trainer *t, const answer_job *job, ares_arena *arena, ares_group *out)
{
    requests r = { .t = t, .job = job, .sampling = *job->sampling, .arena = arena, .out = out };
    ares_completion c;
    scoring scores;
    int64_t active = 1;
    add_stop_ids(&t->run.cfg->rollout, arena, &r.sampling);
    ares_rollout_clear(t->rollout);
    ARES_TRY(queue_prompts(&r));
    scoring_open(&scores, t, arena);
    int rc = ARES_OK;
    while (active && rc == ARES_OK) {
        rc = ares_rollout_step(t->rollout, &active);
        while (rc == ARES_OK && ares_rollout_next(t->rollout, &c)) {
            const queued *q = &r.queued[c.request];
            const ares_row *row = job->prompts[q->prompt].row;
            ares_trajectory *y = &out[q->prompt].items[q->begun ? q->item : c.index];
            take_answer(t, &c, row, q->begun, arena, y);
            if (!y->cut) rc = scoring_submit(&scores, row, y);
        }
    }
    scoring_close(&scores, job->metrics);
    return rc;
}

const answerer answer_engine = { .name = "engine", .answer = answer };
