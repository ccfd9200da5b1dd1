/* One prompt, n answers of one turn: the engine samples them, the reward manager judges them. */
#include <string.h>

#include "collect/judge.h"
#include "collect/triggers.h"

/* Ids that end an answer besides the model's own; in the arena. */
static void add_stop_ids(const ares_rollout_config *c, ares_arena *arena, ares_sampling *s)
{
    int32_t *ids = ares_arena_alloc(arena, (size_t)(c->stop_token_ids.count + 1) * sizeof *ids);
    s->n_stop_ids = (int32_t)c->stop_token_ids.count;
    for (int32_t i = 0; i < s->n_stop_ids; i++) ids[i] = (int32_t)c->stop_token_ids.items[i];
    s->stop_ids = ids;
}

static int queue_prompts(ares_trainer *t, const answer_job *job, const ares_sampling *sampling,
                         ares_arena *arena, ares_group *out)
{
    for (int64_t p = 0; p < job->n_prompts; p++) {
        const ares_row *row = job->rows[p];
        ares_rng_key key =
            ares_rng_sub(ares_rng_sub(job->key, (uint64_t)t->run.step, (uint64_t)job->draws[p]),
                         job->attempt, 0);
        const ares_request q = { .prompt = row->prompt,
                                 .prompt_len = row->prompt_len,
                                 .n = job->n,
                                 .sampling = *sampling,
                                 .key = key };
        out[p] = (ares_group){ .draw = job->draws[p],
                               .row = row,
                               .n = job->n,
                               .items = ares_arena_calloc(arena, (size_t)job->n + 1,
                                                          sizeof *out[p].items) };
        int rc = ares_rollout_add(t->rollout, &q, NULL);
        if (rc != ARES_OK) return ares_fail_in(rc, "%s:%lld", row->file, (long long)row->line);
    }
    return ARES_OK;
}

/* Copies what the engine holds until its next clear. */
static void take_answer(const ares_trainer *t, const ares_completion *c, const ares_row *row,
                        ares_arena *arena, ares_trajectory *y)
{
    size_t n = (size_t)c->n_tokens;
    ares_trajectory_row *x = ares_arena_alloc(arena, sizeof *x);
    ares_trajectory_row_init(x, row->prompt, row->prompt_len, c->n_tokens, arena);
    memset(x->response_mask, 1, n);
    memcpy(x->responses, c->ids, n * sizeof *c->ids);
    memcpy(x->rollout_log_probs, c->log_probs, n * sizeof *c->log_probs);
    memcpy(x->entropies, c->entropies, n * sizeof *c->entropies);
    memcpy(x->entropies_1, c->entropies_1, n * sizeof *c->entropies_1);
    for (size_t i = 0; i < n; i++) x->weight_versions[i] = (int32_t)t->actor.learner.optim.updates;
    x->hwe_candidates = triggers_mark(t, c, arena);
    *y = (ares_trajectory){
        .index = c->index, .stopped = c->finish == ARES_FINISH_STOP, .n_rows = 1, .rows = x
    };
}

static int answer(ares_trainer *t, const answer_job *job, ares_arena *arena, ares_group *out)
{
    ares_sampling sampling = *job->sampling;
    ares_completion c;
    judge j;
    int64_t active = 1;
    add_stop_ids(&t->run.cfg->rollout, arena, &sampling);
    ares_rollout_clear(t->rollout);
    ARES_TRY(queue_prompts(t, job, &sampling, arena, out));
    judge_open(&j, t, arena);
    int rc = ARES_OK;
    while (active && rc == ARES_OK) {
        rc = ares_rollout_step(t->rollout, &active);
        while (rc == ARES_OK && ares_rollout_next(t->rollout, &c)) {
            ares_trajectory *y = &out[c.request].items[c.index];
            take_answer(t, &c, job->rows[c.request], arena, y);
            rc = judge_submit(&j, job->rows[c.request], y);
        }
    }
    judge_close(&j, job->metrics);
    return rc;
}

const answerer answer_engine = { "engine", answer };
