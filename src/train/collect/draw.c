/* A draw of prompts. Its number in the run is part of a sample's key, so that no sample repeats. */
#include "collect/draw.h"

static int64_t share_of(int64_t total, int64_t ranks, int64_t rank)
{
    return (total - rank + ranks - 1) / ranks;
}

static void open_draw(ares_arena *arena, draw *d, int64_t total, int64_t attempt)
{
    *d = (draw){ .total = total, .attempt = attempt };
    d->prompts = ares_arena_alloc(arena, ((size_t)total + 1) * sizeof *d->prompts);
}

int draw_prompts(ares_trainer *t, ares_arena *arena, int64_t total, draw *d)
{
    open_draw(arena, d, total, 0);
    return ares_source_next(&t->run.source, total, arena, d->prompts);
}

void draw_again(ares_arena *arena, const bool *keep, draw *d)
{
    draw before = *d;
    open_draw(arena, d, before.total, before.attempt + 1);
    d->total = 0;
    for (int64_t g = 0; g < before.total; g++) {
        if (keep[g]) continue;
        d->prompts[d->total] = before.prompts[g];
        d->prompts[d->total++].begun = NULL;
    }
}

int64_t draw_owner(const draw *d, int64_t g, int64_t ranks)
{
    return d->owner ? d->owner[g] : g % ranks;
}

/* Ranks take prompts in turn: nothing is known of the answers' lengths yet. */
static const answer_prompt *take_share(ares_trainer *t, ares_arena *arena, draw *d)
{
    int64_t ranks = ares_world_size(t->run.world), rank = ares_world_rank(t->run.world);
    d->count = share_of(d->total, ranks, rank);
    answer_prompt *prompts = ares_arena_alloc(arena, ((size_t)d->count + 1) * sizeof *prompts);
    for (int64_t i = 0; i < d->count; i++) {
        prompts[i] = answer_prompt_of(&t->run.source, &d->prompts[i * ranks + rank]);
    }
    return prompts;
}

static answer_job job_of(const ares_trainer *t, const answer_prompt *prompts, int64_t count,
                         const ares_sampling *sampling, ares_metrics *m)
{
    return (answer_job){ .n_prompts = count,
                         .n = (int32_t)t->run.cfg->rollout.n,
                         .prompts = prompts,
                         .sampling = sampling,
                         .key = ares_rng_root((uint64_t)t->run.cfg->rollout.seed, ARES_RNG_SAMPLE),
                         .metrics = m };
}

int draw_baselines(ares_trainer *t, ares_arena *arena, ares_group *groups, int64_t count,
                   int64_t *tokens, ares_metrics *m)
{
    ares_sampling greedy;
    if (!(t->adv->needs & ARES_NEEDS_BASELINE)) return ARES_OK;
    ares_group *baselines = ares_arena_calloc(arena, (size_t)count + 1, sizeof *baselines);
    answer_prompt *prompts = ares_arena_calloc(arena, (size_t)count + 1, sizeof *prompts);
    for (int64_t g = 0; g < count; g++)
        prompts[g] = (answer_prompt){ .row = groups[g].row, .draw = groups[g].draw };
    answer_sampling(t->run.cfg, &greedy);
    greedy.temperature = 0;
    answer_job job = job_of(t, prompts, count, &greedy, m);
    job.n = 1;
    job.baseline = true;
    answer_expect(t, count, 1);
    ARES_TRY(t->answerer->answer(t, &job, arena, baselines));
    for (int64_t g = 0; g < count; g++) {
        groups[g].baseline = baselines[g].items[0].score;
        if (baselines[g].items[0].failed &&
            answer_discards_failures(t)) /* nothing to compare with */
            for (int32_t i = 0; i < groups[g].n; i++) groups[g].items[i].discarded = 1;
        *tokens += ares_trajectory_tokens(&baselines[g].items[0]);
    }
    return ARES_OK;
}

int draw_answer(ares_trainer *t, ares_arena *arena, draw *d, ares_metrics *m)
{
    ares_sampling sampling;
    const answer_prompt *prompts = take_share(t, arena, d);
    answer_sampling(t->run.cfg, &sampling);
    answer_job job = job_of(t, prompts, d->count, &sampling, m);
    job.attempt = d->attempt;
    answer_expect(t, d->count, job.n);
    d->groups = ares_arena_calloc(arena, (size_t)d->count + 1, sizeof *d->groups);
    ARES_TRY(t->answerer->answer(t, &job, arena, d->groups));
    answer_discard(t, d->groups, d->count);
    for (int64_t g = 0; g < d->count; g++)
        for (int32_t i = 0; i < d->groups[g].n; i++)
            d->tokens += ares_trajectory_tokens(&d->groups[g].items[i]);
    return draw_baselines(t, arena, d->groups, d->count, &d->tokens, m);
}
