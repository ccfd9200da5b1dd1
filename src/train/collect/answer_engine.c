/* One prompt, n answers of one turn: the engine samples them, the reward manager judges them. */
#include "collect/engine_queue.h"
#include "collect/scoring.h"

static int answer(ares_trainer *t, const answer_job *job, ares_arena *arena, ares_group *out)
{
    engine_queue q;
    scoring scores;
    int64_t active = 1;
    ARES_TRY(engine_queue_open(&q, t, job->sampling, job->key, arena));
    int rc = ARES_OK;
    for (int64_t p = 0; p < job->n_prompts && rc == ARES_OK; p++)
        rc = engine_queue_add(&q, &job->prompts[p], job->n, job->attempt, 0, &out[p]);
    scoring_open(&scores, t, arena);
    while (active && rc == ARES_OK) {
        ares_trajectory *y;
        ares_group *g;
        rc = ares_rollout_step(t->rollout, &active);
        while (rc == ARES_OK && (y = engine_queue_next(&q, &g)))
            rc = scoring_submit(&scores, g->row, y);
    }
    rc = ares_rollout_finish(t->rollout, rc);
    scoring_close(&scores, job->metrics);
    return rc;
}

const answerer answer_engine = { .name = "engine", .answer = answer };
