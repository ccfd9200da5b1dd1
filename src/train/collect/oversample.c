/*
 * slime's loop of a step (docs/curriculum.md#over-sampling-and-partial-rollouts): prompts are drawn
 * by over_sampling_batch_size, groups are judged as they end, the first rollout_batch_size that
 * filters keep make the batch, and the rest is cut. Which groups these are is decided by lengths
 * and draw numbers (in_play.c), never by what was ready first.
 */
#include "collect/oversample.h"

#include <stdio.h>
#include <string.h>

#include "collect/collection.h"
#include "collect/in_play.h"
#include "collect/progress.h"
#include "collect/scoring.h"

typedef struct loop {
    ares_trainer *t;
    rounds *r;
    ares_arena *arena;
    ares_metrics *m;
    play play;
    scoring scores;
    int64_t moment;   /* of the clock: groups that ended until then are taken */
    int64_t capacity; /* of r->kept and r->dropped */
    int64_t kept;     /* groups, at the last fetch */
} loop;

/* ---------------------------------------------------------------- fetching */
/* Before a fetch: has the one before it brought anything? */
static int check_progress(loop *l, int64_t n)
{
    rounds *r = l->r;
    bool first = r->draws.drawn == 0;
    progress_count(r, first || r->draws.kept > l->kept, n);
    l->kept = r->draws.kept;
    if (l->t->run.cfg->oversampling.max_fetches > 0) return ARES_OK;
    return progress_check(l->t, r, l->m,
                          "leave curriculum.over_sampling_batch_size out, where "
                          "algorithm.on_exhausted can fill the batch");
}

static int fetch(loop *l)
{
    for (;;) {
        int64_t n;
        int rc = ares_oversampling_fetch(&l->r->over, &n);
        if (rc != ARES_OK) return progress_add_drops(l->m, rc);
        if (!n) return ARES_OK;
        ARES_TRY(check_progress(l, n));
        ARES_TRY(play_fetch(&l->play, n, l->moment));
    }
}

/* ---------------------------------------------------------------- judging */
/*
 * Queues the answers of this rank that have ended until then; others wait for their time. wait: for
 * their scores.
 */
static int judge(loop *l, int64_t until, bool wait)
{
    play *p = &l->play;
    int64_t waiting = 0;
    for (int64_t i = 0; i < p->n_ended; i++) {
        const ended_answer *e = &p->ended[i];
        if (e->of->ends[e->item] == NOT_YET) continue; /* cut back */
        if (e->of->ends[e->item] > until) p->ended[waiting++] = *e;
        else ARES_TRY(scoring_submit(&l->scores, e->of->group.row, &e->of->group.items[e->item]));
    }
    p->n_ended = waiting;
    if (wait) scoring_wait(&l->scores, l->m);
    return ares_signal_poll(); /* it leaves answers unjudged */
}

/* Some of the groups in play as a draw of their own. */
static void as_draw(const loop *l, const int64_t *ids, int64_t n, draw *d)
{
    int64_t *owner = ares_arena_alloc(l->arena, ((size_t)n + 1) * sizeof *owner);
    *d = (draw){ .total = n, .owner = owner };
    d->prompts = ares_arena_alloc(l->arena, ((size_t)n + 1) * sizeof *d->prompts);
    d->groups = ares_arena_alloc(l->arena, ((size_t)n + 1) * sizeof *d->groups);
    for (int64_t i = 0; i < n; i++) {
        const in_play *g = &l->play.groups[ids[i]];
        d->prompts[i] = g->prompt;
        owner[i] = g->rank;
        if (g->own) d->groups[d->count++] = g->own->group;
    }
}

static void make_room(loop *l, int64_t n)
{
    rounds *r = l->r;
    int64_t had = r->draws.drawn, dropped = ares_resampling_dropped(&r->draws);
    if (had + n <= l->capacity) return;
    l->capacity = (had + n) * 2;
    r->kept = arena_grown(l->arena, r->kept, r->draws.kept, l->capacity, sizeof *r->kept);
    r->dropped = arena_grown(l->arena, r->dropped, dropped, l->capacity, sizeof *r->dropped);
}

/* Takes the groups that end at this moment: filters decide, and the batch takes what it needs. */
static int take_moment(loop *l)
{
    rounds *r = l->r;
    play *p = &l->play;
    int64_t n = 0, *ids = ares_arena_alloc(l->arena, ((size_t)p->n + 1) * sizeof *ids);
    for (int64_t i = 0; i < p->n; i++) {
        const in_play *g = &p->groups[p->order[i]];
        if (g->state == PLAYING && g->ends == l->moment) ids[n++] = p->order[i];
    }
    ARES_TRY(ares_world_agree(l->t->run.world, judge(l, l->moment, r->looks)));
    as_draw(l, ids, n, &r->last);
    answer_discard(l->t, r->last.groups, r->last.count);
    ARES_TRY(filter_last_draw(l->t, r, l->arena, l->m));
    make_room(l, n);
    for (int64_t i = 0; i < n; i++) {
        in_play *g = &p->groups[ids[i]];
        g->number = r->draws.drawn + i;
        g->state = ares_oversampling_finish(&r->over, r->keep[i]) ? KEPT
                   : r->keep[i]                                   ? SURPLUS
                                                                  : DROPPED;
    }
    ares_resampling_add(&r->draws, r->keep, n, r->kept, r->dropped);
    return ARES_OK;
}

static int fill_batch(loop *l)
{
    int64_t next;
    ARES_TRY(fetch(l));
    while (!ares_oversampling_done(&l->r->over)) {
        bool known = play_next_end(&l->play, &next);
        /* what was fetched just now may end before all that is known, but not before this moment */
        if (known && next <= (l->play.behind ? l->moment : l->play.clock)) {
            l->moment = next;
            ARES_TRY(take_moment(l));
            ARES_TRY(fetch(l));
        } else ARES_TRY(play_advance(&l->play));
    }
    return ARES_OK;
}

/* ---------------------------------------------------------------- when the batch is full */
static bool goes_back(const loop *l, const in_play *g)
{
    const ares_oversampling_config *o = &l->t->run.cfg->oversampling;
    return (g->state == PLAYING && o->partial) || (g->state == SURPLUS && o->recycle_surplus);
}

/* Every rank gives back the groups of all ranks, one after the other: they may take gigabytes. */
static int give_back(loop *l)
{
    ares_source *source = &l->t->run.source;
    ares_str mine = { 0 }, all = { 0 };
    ares_arena one = { 0 };
    ares_group g;
    int64_t row;
    for (int64_t i = 0; i < l->play.n; i++)
        if (l->play.groups[i].own && goes_back(l, &l->play.groups[i]))
            ares_group_write(&l->play.groups[i].own->group, &mine);
    int rc = ares_world_gather_all(l->t->run.world, mine.data, mine.len, &all, NULL);
    ares_str_fini(&mine);
    ares_view rest = ares_str_view(&all);
    while (rest.len && rc == ARES_OK) {
        rc = ares_group_read(&rest, &one, &g, &row);
        if (rc != ARES_OK) break;
        ares_group_set_row(&g, ares_source_row(source, row));
        ares_source_give_back(source, &g);
        ares_arena_reset(&one);
    }
    ares_arena_fini(&one);
    ares_str_fini(&all);
    return rc;
}

/* Tokens of a group that were sampled under earlier weights, and all that it would train on. */
static void count_old(const loop *l, const ares_group *g, int64_t *old, int64_t *all)
{
    for (int32_t i = 0; i < g->n; i++) {
        const ares_trajectory_row *x = &g->items[i].rows[0];
        for (int32_t k = 0; k < x->n_tokens; k++) {
            if (!x->response_mask[k]) continue;
            *all += 1;
            *old += x->weight_versions[k] != l->t->actor.learner.optim.updates;
        }
    }
}

static int report(loop *l)
{
    const play *p = &l->play;
    int64_t n[4] = { 0 }, back = 0, old[2] = { 0 };
    for (int64_t i = 0; i < p->n; i++) {
        n[p->groups[i].state]++;
        back += goes_back(l, &p->groups[i]);
        if (p->groups[i].own && p->groups[i].state == KEPT)
            count_old(l, &p->groups[i].own->group, &old[0], &old[1]);
    }
    ARES_TRY(ares_world_sum_i64(l->t->run.world, old, 2));
    const struct {
        const char *name;
        int64_t value;
    } counts[] = { { "fetches", l->r->over.fetches }, { "groups", p->n },
                   { "surplus_groups", n[SURPLUS] },  { "cut_groups", n[PLAYING] },
                   { "given_back_groups", back },     { "length", l->moment } };
    for (int i = 0; i < ARES_COUNT(counts); i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "over_sampling/%s", counts[i].name);
        ares_metrics_set(l->m, name, (double)counts[i].value);
    }
    ares_metrics_set(l->m, "over_sampling/old_token_frac",
                     old[1] ? (double)old[0] / (double)old[1] : 0);
    return ARES_OK;
}

/* The groups that were taken become one draw, in the order in which their prompts were drawn. */
static int join_taken(loop *l)
{
    rounds *r = l->r;
    play *p = &l->play;
    int64_t n = 0, kept = 0, own = 0,
            *ids = ares_arena_alloc(l->arena, ((size_t)p->n + 1) * sizeof *ids);
    for (int64_t i = 0; i < p->n; i++) {
        const in_play *g = &p->groups[p->order[i]];
        if (g->state == PLAYING) continue;
        if (g->state == KEPT) r->kept[kept++] = g->number;
        ids[n++] = p->order[i];
    }
    as_draw(l, ids, n, &r->last);
    answer_discard(l->t, r->last.groups, r->last.count); /* by now all are judged */
    for (int64_t i = 0; i < n; i++)
        if (p->groups[ids[i]].own) r->last.groups[own++].place = p->groups[ids[i]].number;
    for (int64_t i = 0; i < p->n; i++)
        if (p->groups[i].own) r->last.tokens += play_tokens(p->groups[i].own, l->moment);
    r->draws.rounds = r->over.fetches;
    return ares_world_agree(l->t->run.world, draw_baselines(l->t, l->arena, r->last.groups,
                                                            r->last.count, &r->last.tokens, l->m));
}

static int end(loop *l)
{
    play_cut(&l->play, l->moment);
    ARES_TRY(ares_world_agree(l->t->run.world, judge(l, l->moment, true)));
    ARES_TRY(give_back(l));
    ARES_TRY(report(l));
    return join_taken(l);
}

int oversample(ares_trainer *t, rounds *r, ares_arena *arena, ares_metrics *m)
{
    loop l = { .t = t, .r = r, .arena = arena, .m = m };
    ARES_TRY(play_open(&l.play, t, arena));
    scoring_open(&l.scores, t, arena);
    int rc = fill_batch(&l);
    if (rc == ARES_OK) rc = end(&l);
    scoring_close(&l.scores, m); /* also after a failure: the reward manager reads the arena */
    return rc;
}
