/*
 * The second batch of an update: rows whose log-probs the loss also depends on, with derivatives
 * that the caller gives (docs/update.md#a-second-batch). Micro-batches and packing are the batch's.
 */
#include "roles/update.h"

static bool all_zero(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0) return false;
    return true;
}

void second_rows(const actor_second *s, int64_t row, int64_t end, int64_t *first, int64_t *last)
{
    const ares_batch *b = s->batch;
    int64_t group = 0, group_end;
    for (int64_t g = 1; g < b->groups; g++) ARES_ASSERT(s->row[g] >= s->row[g - 1]);
    while (group < b->groups && s->row[group] < row) group++;
    for (group_end = group; group_end < b->groups && s->row[group_end] < end;) group_end++;
    *first = b->group_start[group];
    *last = b->group_start[group_end];
}

/* Rows [first, last) of the second batch, without micro-batches that nothing depends on. */
static int add_rows(actor *a, const actor_second *s, const learner_scoring *scoring, int64_t first,
                    int64_t last)
{
    const ares_batch *b = s->batch;
    ares_arena arena = { 0 };
    ares_micro_batch *plan = ares_arena_alloc(&arena, (size_t)(last - first + 1) * sizeof *plan);
    int64_t n = ares_pack_plan(b, first, last, scoring->max_token_len, scoring->share_prompts,
                               plan),
            kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (!all_zero(s->d_log_prob + b->row_start[plan[i].row], plan[i].out))
            plan[kept++] = plan[i];
    int rc = learner_add_gradients(&a->learner, scoring, b, plan, kept, s->d_log_prob, NULL);
    ares_arena_fini(&arena);
    return rc;
}

int second_add_gradients(actor *a, const actor_second *s, int64_t row, int64_t end)
{
    learner_scoring scoring = learner_scoring_of(a->cfg);
    scoring.temperature = s->temperature;
    int64_t first, last;
    second_rows(s, row, end, &first, &last);
    ares_arena arena = { 0 };
    learner_rounds rounds;
    int rc = learner_cut_rounds(&a->learner, s->batch, first, last, scoring.share_prompts, &arena,
                                &rounds);
    for (int64_t i = 0; rc == ARES_OK && i < rounds.n; i++)
        rc = learner_end_round(&a->learner,
                               add_rows(a, s, &scoring, rounds.round[i].row, rounds.round[i].end));
    ares_arena_fini(&arena);
    return rc;
}
