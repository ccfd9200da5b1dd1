/* What filters compare of the groups of a draw, gathered over all ranks, and their verdict. */
#include "collect/filter_groups.h"

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
        for (int64_t g = rank; g < d->total; g += ranks, at++)
            memcpy(&count[g], all.data + (size_t)at * sizeof *count, sizeof *count);
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
    r->rows = arena_grown(arena, r->rows, drawn, drawn + d->total, sizeof *r->rows);
    for (int64_t g = 0; g < d->total; g++) r->rows[drawn + g] = d->prompts[g].id;
    size_t at = 0;
    for (int64_t rank = 0; rank < ranks; rank++)
        for (int64_t g = rank; g < d->total; g += ranks) {
            size_t bytes = (size_t)count[g] * sizeof *mine;
            if (bytes) memcpy(r->numbers + r->first[drawn + g], all.data + at, bytes);
            at += bytes;
        }
    ares_str_fini(&all);
    return ARES_OK;
}

ares_groups filter_view(const ares_trainer *t, const rounds *r, const int64_t *ids, int64_t groups,
                        ares_arena *arena)
{
    int64_t *start = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *start);
    const char **source = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *source);
    for (int64_t g = 0; g < groups; g++) {
        start[g + 1] = start[g] + r->first[ids[g] + 1] - r->first[ids[g]];
        source[g] = ares_source_row(&t->run.source, r->rows[ids[g]])->data_source;
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
                          .source = source };
}

int filter_last_draw(ares_trainer *t, rounds *r, ares_arena *arena, ares_metrics *m)
{
    const draw *d = &r->last;
    r->keep = ares_arena_calloc(arena, (size_t)d->total + 1, sizeof *r->keep);
    memset(r->keep, 1, (size_t)d->total);
    if (!r->looks) return ARES_OK;
    ARES_TRY(gather_numbers(t, r, d, arena));
    int64_t *ids = ares_arena_alloc(arena, ((size_t)d->total + 1) * sizeof *ids);
    for (int64_t g = 0; g < d->total; g++) ids[g] = r->draws.drawn + g;
    ares_groups view = filter_view(t, r, ids, d->total, arena);
    view.in_play = r->draws.kept + r->draws.surplus + d->total;
    view.target = r->draws.target;
    ares_verdict *verdict = ares_arena_calloc(arena, (size_t)d->total + 1, sizeof *verdict);
    ARES_TRY(ares_filter_groups(&r->of_draws, &view, verdict));
    ares_filter_count(&view, verdict, &r->counts, m);
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
