/* One prompt, n answers of one turn: the engine samples them, the reward manager judges them. */
#include "collect/engine_queue.h"
#include "collect/scoring.h"

/* One step of the engine; what has ended goes to the rewards. */
static int step(engine_queue *q, scoring *scores, int64_t *active)
{
    ares_trajectory *y;
    ares_group *g;
    ARES_TRY(ares_signal_poll());
    ARES_TRY(ares_rollout_step(q->t->rollout, active));
    while ((y = engine_queue_next(q, &g))) {
        ares_work_done(ARES_WORK_ANSWERS, 1);
        ARES_TRY(scoring_submit(scores, g->row, y));
    }
    return ARES_OK;
}

/*
 * Requests in the order of the prompts. Images are decoded by the pool from the beginning on; while
 * those of a prompt are not, the prompts before it are answered.
 */
static int ask(engine_queue *q, const answer_job *job, scoring *scores, ares_group *out)
{
    ares_features *f = q->t->run.features;
    for (int64_t p = 0; f && p < job->n_prompts; p++)
        if (job->prompts[p].row->sight) ares_features_ahead(f, job->prompts[p].row->sight);
    for (int64_t p = 0, active = 0; p < job->n_prompts; p++) {
        const ares_sight *s = job->prompts[p].row->sight;
        while (s && active && !ares_features_ready(f, s)) ARES_TRY(step(q, scores, &active));
        ARES_TRY(engine_queue_add(q, &job->prompts[p], job->n, job->attempt, 0, &out[p]));
        active = 1;
    }
    return ARES_OK;
}

static int answer(ares_trainer *t, const answer_job *job, ares_arena *arena, ares_group *out)
{
    engine_queue q;
    scoring scores;
    int64_t active = 1;
    ARES_TRY(engine_queue_open(&q, t, job->sampling, job->key, arena));
    scoring_open(&scores, t, arena);
    scores.votes = job->votes;
    int rc = ask(&q, job, &scores, out);
    while (active && rc == ARES_OK) rc = step(&q, &scores, &active);
    rc = ares_rollout_finish(t->rollout, rc);
    scoring_close(&scores, job->metrics);
    return rc == ARES_OK ? ares_signal_poll() : rc;
}

const answerer answer_engine = { .name = "engine", .answer = answer };
