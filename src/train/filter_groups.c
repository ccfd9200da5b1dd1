/* What filters compare of the groups of a draw, gathered over all ranks, and their verdict. */
#include "filter_groups.h"

#include <string.h>

#include "collection.h"
#include "controls.h"

/* What filters compare, of every answer of a draw. */
static void answer_numbers_of(const draw *d, int64_t n, answer_numbers *out)
{
    for (int64_t r = 0; r < d->count * n; r++) {
        const generate_sample *s = &d->samples[r];
        double entropy = 0;
        for (int32_t i = 0; i < s->completion.n_tokens; i++)
            entropy += (double)s->completion.entropies_1[i];
        out[r] =
            (answer_numbers){ .score = (double)s->item.unshaped,
                              .overall = (double)s->item.score,
                              .accuracy = (double)s->item.accuracy,
                              .length = s->completion.n_tokens,
                              .valid = !s->discarded,
                              .entropy =
                                  s->completion.n_tokens ? entropy / s->completion.n_tokens : 0 };
    }
}

/* Shows a draw to `see` as the batch it would make by itself. */
static int in_trial_batch(ares_trainer *t, const draw *d,
                          int (*see)(ares_trainer *t, ares_batch *b, answer_numbers *out),
                          answer_numbers *out)
{
    int64_t n = t->run.cfg->rollout.n;
    generate_group *groups = ares_calloc((size_t)d->count + 1, sizeof *groups);
    for (int64_t g = 0; g < d->count; g++)
        groups[g] = (generate_group){ .draw = d->draws[g],
                                      .row = d->rows[g],
                                      .samples = d->samples + g * n };
    ares_batch b;
    ares_batch_init(&b);
    generate_fill(&b, groups, d->count, n, t->actor.learner.optim.updates);
    int rc = see(t, &b, out);
    ares_batch_fini(&b);
    ares_free(groups);
    return rc;
}

/*
 * Scores as the controls would have them shaped if the step ended here
 * (docs/aepo.md#choosing-groups).
 */
static int shape_as_of_now(ares_trainer *t, ares_batch *b, answer_numbers *out)
{
    ARES_TRY(controls_provisional(t->run.controls, b));
    for (int64_t r = 0; r < b->rows; r++)
        out[r].overall += ares_reward_shaping(t->reward, &b->samples[r]);
    return ARES_OK;
}

static bool filters_shaped_scores(const ares_trainer *t)
{
    const ares_filter_config *f = &t->run.cfg->filter;
    return f->online_filtering && strcmp(f->filter_key, "overall") == 0 &&
           ares_reward_shapes(t->reward);
}

/* The numbers of a draw's groups, of all ranks, in the order of the draw. */
static int gather_numbers(ares_trainer *t, rounds *r, const draw *d, ares_arena *arena)
{
    int64_t n = t->run.cfg->rollout.n, ranks = ares_world_size(t->run.world),
            drawn = r->draws.drawn;
    answer_numbers *mine = ares_arena_calloc(arena, (size_t)(d->count * n) + 1, sizeof *mine);
    ares_str all = { 0 };
    answer_numbers_of(d, n, mine);
    if (filters_shaped_scores(t)) ARES_TRY(in_trial_batch(t, d, shape_as_of_now, mine));
    ARES_TRY(ares_world_gather_all(t->run.world, mine, (size_t)(d->count * n) * sizeof *mine, &all,
                                   NULL));
    r->numbers =
        arena_grown(arena, r->numbers, drawn * n, (drawn + d->total) * n, sizeof *r->numbers);
    r->rows = arena_grown(arena, r->rows, drawn, drawn + d->total, sizeof *r->rows);
    memcpy(r->rows + drawn, d->ids, (size_t)d->total * sizeof *r->rows);
    size_t group = (size_t)n * sizeof *mine, at = 0;
    for (int64_t rank = 0; rank < ranks; rank++)
        for (int64_t g = rank; g < d->total; g += ranks, at += group)
            memcpy(r->numbers + (drawn + g) * n, all.data + at, group);
    ares_str_fini(&all);
    return ARES_OK;
}

ares_groups filter_view(const ares_trainer *t, const rounds *r, const int64_t *ids, int64_t groups,
                        ares_arena *arena)
{
    int64_t n = t->run.cfg->rollout.n, rows = groups * n;
    double *x = ares_arena_calloc(arena, (size_t)rows * 5 + 1, sizeof *x);
    uint8_t *valid = ares_arena_calloc(arena, (size_t)rows + 1, 1);
    int64_t *start = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *start);
    const char **source = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *source);
    for (int64_t i = 0; i < rows; i++) {
        const answer_numbers *y = &r->numbers[ids[i / n] * n + i % n];
        double of[5] = { y->score, y->overall, y->accuracy, y->length, y->entropy };
        for (int k = 0; k < 5; k++) x[k * rows + i] = of[k];
        valid[i] = y->valid;
    }
    for (int64_t g = 0; g < groups; g++) {
        start[g + 1] = (g + 1) * n;
        source[g] = ares_dataset_row(t->run.train, r->rows[ids[g]])->data_source;
    }
    return (ares_groups){ .groups = groups,
                          .group_start = start,
                          .score = x,
                          .overall = x + rows,
                          .accuracy = x + 2 * rows,
                          .length = x + 3 * rows,
                          .entropy = x + 4 * rows,
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
