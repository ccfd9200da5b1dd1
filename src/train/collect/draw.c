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

/* Ranks take prompts in turn: nothing is known of the answers' lengths yet. */
static const answer_prompt *take_share(ares_trainer *t, ares_arena *arena, draw *d)
{
    int64_t ranks = ares_world_size(t->run.world), rank = ares_world_rank(t->run.world);
    d->count = share_of(d->total, ranks, rank);
    answer_prompt *prompts = ares_arena_alloc(arena, ((size_t)d->count + 1) * sizeof *prompts);
    for (int64_t i = 0; i < d->count; i++) {
        const ares_drawn *p = &d->prompts[i * ranks + rank];
        prompts[i] = (answer_prompt){ .row = ares_source_row(&t->run.source, p->id),
                                      .draw = p->draw,
                                      .begun = p->begun };
    }
    return prompts;
}

/* The score of the greedy answer to each prompt. */
static int answer_greedily(ares_trainer *t, ares_arena *arena, const answer_job *job, draw *d)
{
    ares_sampling sampling = *job->sampling;
    answer_job greedy = *job;
    ares_group *baselines = ares_arena_calloc(arena, (size_t)d->count + 1, sizeof *baselines);
    answer_prompt *fresh = ares_arena_alloc(arena, ((size_t)d->count + 1) * sizeof *fresh);
    for (int64_t g = 0; g < d->count; g++) {
        fresh[g] = job->prompts[g];
        fresh[g].begun = NULL;
    }
    sampling.temperature = 0;
    greedy.sampling = &sampling;
    greedy.n = 1;
    greedy.prompts = fresh;
    ARES_TRY(t->answerer->answer(t, &greedy, arena, baselines));
    for (int64_t g = 0; g < d->count; g++) {
        d->groups[g].baseline = baselines[g].items[0].score;
        d->tokens += ares_trajectory_tokens(&baselines[g].items[0]);
    }
    return ARES_OK;
}

int draw_answer(ares_trainer *t, ares_arena *arena, draw *d, ares_metrics *m)
{
    ares_sampling sampling;
    const answer_prompt *prompts = take_share(t, arena, d);
    answer_sampling(t->run.cfg, &sampling);
    const answer_job job = { .n_prompts = d->count,
                             .n = (int32_t)t->run.cfg->rollout.n,
                             .prompts = prompts,
                             .sampling = &sampling,
                             .attempt = d->attempt,
                             .key =
                                 ares_rng_root((uint64_t)t->run.cfg->rollout.seed, ARES_RNG_SAMPLE),
                             .metrics = m };
    d->groups = ares_arena_calloc(arena, (size_t)d->count + 1, sizeof *d->groups);
    ARES_TRY(t->answerer->answer(t, &job, arena, d->groups));
    answer_discard(t, d->groups, d->count);
    for (int64_t g = 0; g < d->count; g++)
        for (int32_t i = 0; i < d->groups[g].n; i++)
            d->tokens += ares_trajectory_tokens(&d->groups[g].items[i]);
    return t->adv->needs & ARES_NEEDS_BASELINE ? answer_greedily(t, arena, &job, d) : ARES_OK;
}
