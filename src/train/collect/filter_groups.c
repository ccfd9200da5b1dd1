/* What filters compare of the groups of a draw, gathered over all ranks, and their verdict. */
#include "collect/filter_groups.h"

#include <stdio.h>
#include <string.h>

#include "collect/collection.h"
#include "controls.h"

static answer_numbers numbers_of(const ares_trajectory *y)
{
    double entropy = 0, tokens = 0;
    for (int32_t r = 0; r < y->n_rows; r++)
        for (int32_t i = 0; i < y->rows[r].n_tokens; i++) {
            if (!y->rows[r].response_mask[i]) continue; /* the environment's words have none */
            entropy += (double)y->rows[r].entropies_1[i];
            tokens++;
        }
    return (answer_numbers){ .score = (double)y->unshaped,
                             .overall = (double)y->score,
                             .accuracy = (double)y->accuracy,
                             .length = (double)ares_trajectory_tokens(y),
                             .valid = !y->discarded,
                             .entropy = tokens > 0 ? entropy / tokens : 0 };
}

/* Shows a draw to `see` as the batch it would make by itself. */
static int in_trial_batch(ares_trainer *t, const draw *d,
                          int (*see)(ares_trainer *t, ares_batch *b, answer_numbers *out),
                          answer_numbers *out)
{
    ares_batch b;
    ares_batch_init(&b);
    ares_batch_fill(&b, d->groups, d->count);
    int rc = see(t, &b, out);
    ares_batch_fini(&b);
    return rc;
}

/*
 * Scores as the controls would have them shaped if the step ended here
 * (docs/aepo.md#choosing-groups).
 */
static int shape_as_of_now(ares_trainer *t, ares_batch *b, answer_numbers *out)
{
    int64_t i = -1;
    ARES_TRY(controls_provisional(t->run.controls, b));
    for (int64_t r = 0; r < b->rows; r++) {
        const ares_sample *s = &b->samples[r], *before = r ? s - 1 : NULL;
        /* the rows of an episode are one answer */
        if (before && s->episode && before->draw == s->draw && before->episode == s->episode)
            continue;
        out[++i].overall += ares_reward_shaping(t->reward, s);
    }
    return ARES_OK;
}

static bool filters_shaped_scores(const ares_trainer *t)
{
    const ares_filter_config *f = &t->run.cfg->filter;
    return f->online_filtering && strcmp(f->filter_key, "overall") == 0 &&
           ares_reward_shapes(t->reward);
}

/* Answers of this rank's groups of a draw, and of all groups [total]. */
static int count_of_groups(ares_trainer *t, const draw *d, ares_arena *arena, int64_t *count)
{
    int64_t ranks = ares_world_size(t->run.world), at = 0,
            *mine = ares_arena_alloc(arena, ((size_t)d->count + 1) * sizeof *mine);
    ares_str all = { 0 };
    for (int64_t g = 0; g < d->count; g++) mine[g] = d->groups[g].n;
    ARES_TRY(
        ares_world_gather_all(t->run.world, mine, (size_t)d->count * sizeof *mine, &all, NULL));
    for (int64_t rank = 0; rank < ranks; rank++)
        for (int64_t g = 0; g < d->total; g++)
            if (draw_owner(d, g, ranks) == rank)
                memcpy(&count[g], all.data + (size_t)at++ * sizeof *count, sizeof *count);
    ares_str_fini(&all);
    return ARES_OK;
}

/* The numbers of a draw's groups, of all ranks, in the order of the draw. */
static int gather_numbers(ares_trainer *t, rounds *r, const draw *d, ares_arena *arena)
{
    int64_t ranks = ares_world_size(t->run.world), drawn = r->draws.drawn, own = 0, answers = 0;
    int64_t *count = ares_arena_alloc(arena, ((size_t)d->total + 1) * sizeof *count);
    for (int64_t g = 0; g < d->count; g++) answers += d->groups[g].n;
    answer_numbers *mine = ares_arena_calloc(arena, (size_t)answers + 1, sizeof *mine);
    for (int64_t g = 0; g < d->count; g++)
        for (int32_t i = 0; i < d->groups[g].n; i++)
            mine[own++] = numbers_of(&d->groups[g].items[i]);
    if (filters_shaped_scores(t)) ARES_TRY(in_trial_batch(t, d, shape_as_of_now, mine));
    ARES_TRY(count_of_groups(t, d, arena, count));
    ares_str all = { 0 };
    ARES_TRY(ares_world_gather_all(t->run.world, mine, (size_t)answers * sizeof *mine, &all, NULL));
    r->first =
        arena_grown(arena, r->first, drawn ? drawn + 1 : 0, drawn + d->total + 1, sizeof *r->first);
    if (!drawn) r->first[0] = 0;
    for (int64_t g = 0; g < d->total; g++) r->first[drawn + g + 1] = r->first[drawn + g] + count[g];
    r->numbers = arena_grown(arena, r->numbers, r->first[drawn], r->first[drawn + d->total],
                             sizeof *r->numbers);
    size_t at = 0;
    for (int64_t rank = 0; rank < ranks; rank++)
        for (int64_t g = 0; g < d->total; g++) {
            if (draw_owner(d, g, ranks) != rank) continue;
            size_t bytes = (size_t)count[g] * sizeof *mine;
            if (bytes) memcpy(r->numbers + r->first[drawn + g], all.data + at, bytes);
            at += bytes;
        }
    ares_str_fini(&all);
    return ARES_OK;
}

/* The caps of a draw's groups, by their data set and the step that each was drawn at. */
static int find_caps(const ares_trainer *t, rounds *r, const draw *d, ares_arena *arena)
{
    const ares_curriculum *c = &t->run.curriculum;
    int64_t drawn = r->draws.drawn, step = -1;
    double *caps = ares_arena_calloc(arena, (size_t)c->n + 1, sizeof *caps);
    r->caps = arena_grown(arena, r->caps, drawn, drawn + d->total, sizeof *r->caps);
    for (int64_t g = 0; g < d->total; g++) {
        const char *source = ares_source_row(&t->run.source, d->prompts[g].id)->data_source;
        if (d->prompts[g].step != step)
            ARES_TRY(ares_curriculum_caps(c, step = d->prompts[g].step, caps));
        r->caps[drawn + g] = ares_reward_cap(c->names, c->n, caps, c->n, source);
    }
    return ARES_OK;
}

ares_groups filter_view(const ares_trainer *t, const rounds *r, const int64_t *ids, int64_t groups,
                        ares_arena *arena)
{
    int64_t *start = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *start);
    const char **source = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *source);
    double *cap = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *cap);
    for (int64_t g = 0; g < groups; g++) {
        cap[g] = r->caps[ids[g]];
        start[g + 1] = start[g] + r->first[ids[g] + 1] - r->first[ids[g]];
        source[g] = ares_source_row(&t->run.source, r->prompts[ids[g]].id)->data_source;
    }
    int64_t answers = start[groups];
    double *x = ares_arena_calloc(arena, (size_t)answers * 5 + 1, sizeof *x);
    uint8_t *valid = ares_arena_calloc(arena, (size_t)answers + 1, 1);
    for (int64_t g = 0, i = 0; g < groups; g++)
        for (int64_t from = r->first[ids[g]]; i < start[g + 1]; i++, from++) {
            const answer_numbers *y = &r->numbers[from];
            double of[5] = { y->score, y->overall, y->accuracy, y->length, y->entropy };
            for (int k = 0; k < 5; k++) x[k * answers + i] = of[k];
            valid[i] = y->valid;
        }
    return (ares_groups){ .groups = groups,
                          .group_start = start,
                          .score = x,
                          .overall = x + answers,
                          .accuracy = x + 2 * answers,
                          .length = x + 3 * answers,
                          .entropy = x + 4 * answers,
                          .valid = valid,
                          .source = source,
                          .cap = cap };
}

/* Groups that filters have seen of each data set of a curriculum (report/sources.c). */
static void count_judged(const ares_trainer *t, const draw *d, ares_metrics *m)
{
    for (int64_t g = 0; g < d->total && t->run.curriculum.n; g++) {
        char name[120];
        (void)snprintf(name, sizeof name, "rollout/%s/judged_groups",
                       ares_source_row(&t->run.source, d->prompts[g].id)->data_source);
        ares_metrics_add(m, name, 1);
    }
}

int filter_last_draw(ares_trainer *t, rounds *r, ares_arena *arena, ares_metrics *m)
{
    const draw *d = &r->last;
    int64_t drawn = r->draws.drawn;
    r->prompts = arena_grown(arena, r->prompts, drawn, drawn + d->total, sizeof *r->prompts);
    memcpy(r->prompts + drawn, d->prompts, (size_t)d->total * sizeof *r->prompts);
    r->keep = ares_arena_calloc(arena, (size_t)d->total + 1, sizeof *r->keep);
    memset(r->keep, 1, (size_t)d->total);
    if (!r->looks) return ARES_OK;
    ARES_TRY(gather_numbers(t, r, d, arena));
    ARES_TRY(find_caps(t, r, d, arena));
    int64_t *ids = ares_arena_alloc(arena, ((size_t)d->total + 1) * sizeof *ids);
    for (int64_t g = 0; g < d->total; g++) ids[g] = r->draws.drawn + g;
    ares_groups view = filter_view(t, r, ids, d->total, arena);
    view.in_play = r->over.batch ? r->over.submitted - r->over.dropped
                                 : r->draws.kept + r->draws.surplus + d->total;
    view.target = r->draws.target;
    ares_verdict *verdict = ares_arena_calloc(arena, (size_t)d->total + 1, sizeof *verdict);
    ARES_TRY(ares_filter_groups(&r->of_draws, &view, verdict));
    ares_filter_count(&view, verdict, &r->counts, m);
    count_judged(t, d, m);
    for (int64_t g = 0; g < d->total; g++) r->keep[g] = verdict[g].keep;
    return ARES_OK;
}

static int see_generated(ares_trainer *t, ares_batch *b, answer_numbers *out)
{
    (void)out;
    return controls_generated(t->run.controls, b);
}

int filter_show_generated(ares_trainer *t, const draw *d)
{
    return controls_want_generated(t->run.controls) ? in_trial_batch(t, d, see_generated, NULL)
                                                    : ARES_OK;
}
