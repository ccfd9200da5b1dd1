/* A draw of prompts. Its number in the run is part of a sample's key, so that no sample repeats. */
#include "collect/draw.h"

static int64_t share_of(int64_t total, int64_t ranks, int64_t rank)
{
    return (total - rank + ranks - 1) / ranks;
}

static void open_draw(ares_arena *arena, draw *d, int64_t total, uint64_t attempt)
{
    size_t n = (size_t)total + 1;
    *d = (draw){ .total = total, .attempt = attempt };
    d->ids = ares_arena_alloc(arena, n * sizeof *d->ids);
    d->all_draws = ares_arena_alloc(arena, n * sizeof *d->all_draws);
}

int draw_prompts(ares_trainer *t, ares_arena *arena, int64_t total, draw *d)
{
    open_draw(arena, d, total, 0);
    ares_drawn *drawn = ares_arena_alloc(arena, ((size_t)total + 1) * sizeof *drawn);
    ARES_TRY(ares_source_next(&t->run.source, total, drawn));
    for (int64_t i = 0; i < total; i++) {
        d->ids[i] = drawn[i].id;
        d->all_draws[i] = drawn[i].draw;
    }
    return ARES_OK;
}

void draw_again(ares_arena *arena, const bool *keep, draw *d)
{
    draw before = *d;
    open_draw(arena, d, before.total, before.attempt + 1);
    d->total = 0;
    for (int64_t g = 0; g < before.total; g++) {
        if (keep[g]) continue;
        d->ids[d->total] = before.ids[g];
        d->all_draws[d->total++] = before.all_draws[g];
    }
}

/* Ranks take prompts in turn: nothing is known of the answers' lengths yet. */
static void take_share(ares_trainer *t, ares_arena *arena, draw *d)
{
    int64_t ranks = ares_world_size(t->run.world), rank = ares_world_rank(t->run.world);
    d->count = share_of(d->total, ranks, rank);
    d->rows = ares_arena_alloc(arena, ((size_t)d->count + 1) * sizeof *d->rows);
    d->draws = ares_arena_alloc(arena, ((size_t)d->count + 1) * sizeof *d->draws);
    for (int64_t i = 0; i < d->count; i++) {
        d->rows[i] = ares_source_row(&t->run.source, d->ids[i * ranks + rank]);
        d->draws[i] = d->all_draws[i * ranks + rank];
    }
}

/* The score of the greedy answer to each prompt. */
static int answer_greedily(ares_trainer *t, ares_arena *arena, const answer_job *job, draw *d)
{
    ares_sampling sampling = *job->sampling;
    answer_job greedy = *job;
    ares_group *baselines = ares_arena_calloc(arena, (size_t)d->count + 1, sizeof *baselines);
    sampling.temperature = 0;
    greedy.sampling = &sampling;
    greedy.n = 1;
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
    take_share(t, arena, d);
    answer_sampling(t->run.cfg, &sampling);
    const answer_job job = { .n_prompts = d->count,
                             .n = (int32_t)t->run.cfg->rollout.n,
                             .rows = d->rows,
                             .draws = d->draws,
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
