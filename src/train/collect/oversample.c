/*
 * Over-sampling: more groups are begun than the batch takes, and those that end first and pass
 * the filters make it. First the clock that decides, from lengths alone, which group ends next;
 * then the loop of such a step, which takes the place of the rounds of draws in collect.c.
 */
#include "collect.h"

#include <stdio.h>
#include <string.h>

bool oversampling_wanted(const ares_train_config *c)
{
    return c->oversampling.batch != ARES_NULL_I64 || c->oversampling.partial;
}

/*
 * All answers advance alike on one clock that counts tokens: what began together has the same
 * number of new tokens at each moment, or has ended. So the order in which groups end depends on
 * their lengths alone, not on ranks, threads, or what fits into the cache. The engine may run ahead
 * by a window; answers are cut back to the moment that counts.
 */

enum { WINDOW = 16, WIDEST_WINDOW = 256 }; /* tokens of the clock between two looks */

#define NOT_YET INT64_MAX

/* ---------------------------------------------------------------- prompts */
static int begin_own(in_flight_set *p, int64_t id)
{
    const ares_drawn *d = &p->groups[id].prompt;
    const answer_prompt prompt = answer_prompt_of(&p->t->run.source, d);
    own_group *own = ares_arena_calloc(p->arena, 1, sizeof *own);
    ares_group *g = &own->group;
    own->id = id;
    own->start = p->groups[id].start;
    ARES_TRY(
        engine_queue_add(&p->queue, &prompt, (int32_t)p->t->run.cfg->rollout.n, 0, own->start, g));
    own->had = ares_arena_calloc(p->arena, (size_t)g->n + 1, sizeof *own->had);
    own->ends = ares_arena_calloc(p->arena, (size_t)g->n + 1, sizeof *own->ends);
    for (int32_t i = 0; i < g->n; i++) {
        bool whole = d->partial && !d->partial->items[i].cut;
        own->had[i] = d->partial ? d->partial->items[i].rows[0].n_tokens : 0;
        own->ends[i] = whole ? own->start : NOT_YET;
        own->left += !whole;
    }
    p->groups[id].own = own;
    return ARES_OK;
}

/* Draws n prompts and has them answered from `now` on. A collective. */
static int in_flight_fetch(in_flight_set *p, int64_t n, int64_t now)
{
    int64_t ranks = ares_world_size(p->t->run.world), rank = ares_world_rank(p->t->run.world),
            first = p->n;
    ares_drawn *drawn = ares_arena_alloc(p->arena, ((size_t)n + 1) * sizeof *drawn);
    int rc = ares_source_next(&p->t->run.source, n, p->arena, drawn);
    if (rc == ARES_OK) {
        p->groups = arena_grown(p->arena, p->groups, first, first + n, sizeof *p->groups);
        p->order = arena_grown(p->arena, p->order, first, first + n, sizeof *p->order);
        p->news = arena_grown(p->arena, p->news, p->n_news, first + n, sizeof *p->news);
        p->n += n;
    }
    for (int64_t i = first; i < p->n && rc == ARES_OK; i++) {
        const ares_group *partial = drawn[i - first].partial;
        bool whole = partial != NULL; /* all its answers ended in an earlier step */
        for (int32_t k = 0; partial && k < partial->n; k++) whole = whole && !partial->items[k].cut;
        p->groups[i] = (in_flight){ .prompt = drawn[i - first],
                                    .rank = i % ranks,
                                    .start = now,
                                    .ends = whole ? now : NOT_YET };
        /* sorted in: each of several data sets gives first what it was given back */
        int64_t at = i;
        for (; at > 0 && p->groups[p->order[at - 1]].prompt.draw > p->groups[i].prompt.draw; at--)
            p->order[at] = p->order[at - 1];
        p->order[at] = i;
        if (i % ranks == rank) {
            rc = begin_own(p, i);
            ares_work_expect(ARES_WORK_ANSWERS, p->t->run.cfg->rollout.n);
        }
    }
    p->behind = true;
    return ares_world_share_error(p->t->run.world, rc);
}

/* ---------------------------------------------------------------- the clock */
/* Notes when an answer has ended, and whether it was the last of its group. */
static void take_ended(in_flight_set *p, own_group *of, const ares_trajectory *y)
{
    int32_t item = (int32_t)(y - of->group.items);
    int64_t last = 0;
    of->ends[item] = of->start + y->rows[0].n_tokens - of->had[item];
    if (p->n_ended == p->ended_capacity) {
        p->ended_capacity = p->ended_capacity * 2 + 64;
        p->ended = arena_grown(p->arena, p->ended, p->n_ended, p->ended_capacity, sizeof *p->ended);
    }
    p->ended[p->n_ended++] = (ended_answer){ of, item };
    if (--of->left) return;
    for (int32_t i = 0; i < of->group.n; i++) last = ARES_MAX(last, of->ends[i]);
    p->groups[of->id].ends = last;
    p->news[p->n_news++] = of->id;
}

static int run_engine(in_flight_set *p)
{
    int64_t active = 1;
    ares_trajectory *y;
    ares_group *g;
    ares_rollout_hold(p->t->rollout, p->clock);
    while (active) {
        ARES_TRY(ares_signal_poll());
        ARES_TRY(ares_rollout_step(p->t->rollout, &active));
        while ((y = engine_queue_next(&p->queue, &g))) {
            ares_work_done(ARES_WORK_ANSWERS, 1);
            take_ended(p, (own_group *)g, y);
        }
    }
    return ARES_OK;
}

typedef struct wire_end {
    int64_t id, ends; /* id -1: samples that have lost their cache */
} wire_end;

/*
 * Lets all answers go on to the next look, and tells all ranks which groups have ended. A
 * collective.
 */
static int in_flight_advance(in_flight_set *p)
{
    ares_rollout_stats stats;
    ares_str all = { 0 };
    int64_t lost = 0, n = 0;
    if (!p->behind) p->clock += p->window;
    p->behind = false;
    ARES_TRY(ares_world_share_error(p->t->run.world, run_engine(p)));
    wire_end *mine = ares_arena_alloc(p->arena, ((size_t)p->n_news + 1) * sizeof *mine);
    ares_rollout_get_stats(p->t->rollout, &stats);
    mine[n++] = (wire_end){ -1, stats.preemptions - p->preemptions };
    p->preemptions = stats.preemptions;
    for (int64_t i = 0; i < p->n_news; i++)
        mine[n++] = (wire_end){ p->news[i], p->groups[p->news[i]].ends };
    p->n_news = 0;
    ARES_TRY(ares_world_gather_all(p->t->run.world, mine, (size_t)n * sizeof *mine, &all, NULL));
    for (size_t at = 0; at < all.len; at += sizeof *mine) {
        wire_end x;
        memcpy(&x, all.data + at, sizeof x);
        if (x.id < 0) lost += x.ends;
        else p->groups[x.id].ends = x.ends;
    }
    ares_str_fini(&all);
    /* where the cache is too small, longer windows lose it less often; alike on every rank */
    if (lost) p->window = ARES_MIN(p->window * 2, WIDEST_WINDOW);
    return ARES_OK;
}

/* ---------------------------------------------------------------- cutting */
/*
 * Cuts all answers of own groups in play that would have ended after `moment`, to where they were
 * then. What is cut has no score, and nothing of it is shown.
 */
static void in_flight_cut(in_flight_set *p, int64_t moment)
{
    ares_group *g;
    ares_trajectory *y;
    /* the engine cuts answers that still run; its queue knows their groups */
    for (int64_t k = 0; k < p->queue.n; k++) {
        const queued *q = &p->queue.items[k];
        const own_group *of = (const own_group *)q->group;
        int32_t n = (int32_t)(moment - of->start);
        if (!of->left) continue;
        if (q->partial) (void)ares_rollout_cut(p->t->rollout, k, q->partial->index, n);
        for (int32_t i = 0; i < q->group->n && !q->partial; i++)
            (void)ares_rollout_cut(p->t->rollout, k, i, n);
    }
    while ((y = engine_queue_next(&p->queue, &g)))
        if (!y->cut) take_ended(p, (own_group *)g, y);
    /* the engine may have run ahead of the moment: what has ended after it is cut back */
    for (int64_t i = 0; i < p->n; i++) {
        own_group *of = p->groups[i].own;
        if (!of || p->groups[i].state != PLAYING) continue;
        for (int32_t k = 0; k < of->group.n; k++) {
            if (of->ends[k] <= moment) continue;
            y = &of->group.items[k];
            ares_trajectory_row *x = &y->rows[0];
            x->n_tokens = ARES_MIN(x->n_tokens, of->had[k] + (int32_t)(moment - of->start));
            *y = (ares_trajectory){ .index = y->index, .cut = 1, .n_rows = 1, .rows = x };
            of->ends[k] = NOT_YET;
        }
    }
}

/*
 * slime's loop of a step (docs/curriculum.md#over-sampling-and-partial-rollouts): prompts are drawn
 * by over_sampling_batch_size, groups are judged as they end, the first rollout_batch_size that
 * filters keep make the batch, and the rest is cut. Which groups these are is decided by lengths
 * and draw numbers, never by what was ready first.
 */

typedef struct loop {
    ares_trainer *t;
    step_draws *r;
    ares_arena *arena;
    ares_metrics *m;
    in_flight_set play;
    scoring scores;
    int64_t moment;   /* of the clock: groups that ended until then are taken */
    int64_t capacity; /* of r->kept and r->dropped */
    int64_t kept;     /* groups, at the last fetch */
} loop;

/* ---------------------------------------------------------------- fetching */
/* Begins as many further groups as the batch calls for. */
static int fetch(loop *l)
{
    step_draws *r = l->r;
    for (;;) {
        int64_t n;
        int rc = ares_oversampling_fetch(&r->over, &n);
        if (rc != ARES_OK) return progress_add_drops(l->m, rc);
        if (!n) return ARES_OK;
        /* has the fetch before this one brought anything? */
        progress_count(r, r->draws.drawn == 0 || r->draws.kept > l->kept, n);
        l->kept = r->draws.kept;
        if (l->t->run.cfg->oversampling.max_fetches <= 0)
            ARES_TRY(progress_check(l->t, r, l->m,
                                    "leave curriculum.over_sampling_batch_size out, where "
                                    "algorithm.on_exhausted can fill the batch"));
        ARES_TRY(in_flight_fetch(&l->play, n, l->moment));
    }
}

/* ---------------------------------------------------------------- judging */
/*
 * Queues the answers of this rank that have ended until then; others wait for their time. wait: for
 * their scores.
 */
static int judge(loop *l, int64_t until, bool wait)
{
    in_flight_set *p = &l->play;
    int64_t waiting = 0;
    for (int64_t i = 0; i < p->n_ended; i++) {
        const ended_answer *e = &p->ended[i];
        if (e->of->ends[e->item] == NOT_YET) continue; /* cut back */
        if (e->of->ends[e->item] > until) p->ended[waiting++] = *e;
        else ARES_TRY(scoring_submit(&l->scores, e->of->group.row, &e->of->group.items[e->item]));
    }
    p->n_ended = waiting;
    if (wait) scoring_wait(&l->scores, l->m);
    return ares_signal_poll(); /* a signal leaves answers unjudged */
}

/* Some of the groups in play, of all ranks, as a draw of their own. */
static void as_draw(const loop *l, const int64_t *ids, int64_t n, prompt_draw *d)
{
    int64_t *owner = ares_arena_alloc(l->arena, ((size_t)n + 1) * sizeof *owner);
    *d = (prompt_draw){ .total = n, .owner = owner };
    d->prompts = ares_arena_alloc(l->arena, ((size_t)n + 1) * sizeof *d->prompts);
    d->groups = ares_arena_alloc(l->arena, ((size_t)n + 1) * sizeof *d->groups);
    for (int64_t i = 0; i < n; i++) {
        const in_flight *g = &l->play.groups[ids[i]];
        d->prompts[i] = g->prompt;
        owner[i] = g->rank;
        if (g->own) d->groups[d->count++] = g->own->group;
    }
}

/* Takes the groups that end at this moment: filters decide, and the batch takes what it needs. */
static int take_moment(loop *l)
{
    step_draws *r = l->r;
    in_flight_set *p = &l->play;
    int64_t had = r->draws.drawn, dropped = ares_resampling_dropped(&r->draws), n = 0,
            *ids = ares_arena_alloc(l->arena, ((size_t)p->n + 1) * sizeof *ids);
    for (int64_t i = 0; i < p->n; i++) {
        const in_flight *g = &p->groups[p->order[i]];
        if (g->state == PLAYING && g->ends == l->moment) ids[n++] = p->order[i];
    }
    ARES_TRY(ares_world_share_error(l->t->run.world, judge(l, l->moment, r->looks)));
    as_draw(l, ids, n, &r->last);
    answer_discard(l->t, r->last.groups, r->last.count);
    ARES_TRY(filter_last_draw(l->t, r, l->arena, l->m));
    if (had + n > l->capacity) {
        l->capacity = (had + n) * 2;
        r->kept = arena_grown(l->arena, r->kept, r->draws.kept, l->capacity, sizeof *r->kept);
        r->dropped = arena_grown(l->arena, r->dropped, dropped, l->capacity, sizeof *r->dropped);
    }
    for (int64_t i = 0; i < n; i++) {
        in_flight *g = &p->groups[ids[i]];
        g->number = had + i;
        g->state = ares_oversampling_finish(&r->over, r->keep[i]) ? KEPT
                   : r->keep[i]                                   ? SURPLUS
                                                                  : DROPPED;
    }
    ares_resampling_add(&r->draws, r->keep, n, r->kept, r->dropped);
    return ARES_OK;
}

/* ---------------------------------------------------------------- when the batch is full */
/* Whether a group that is not in the batch continues, or is used, in a later step. */
static bool goes_back(const loop *l, const in_flight *g)
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
    const in_flight_set *p = &l->play;
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
    step_draws *r = l->r;
    in_flight_set *p = &l->play;
    int64_t n = 0, kept = 0, own = 0,
            *ids = ares_arena_alloc(l->arena, ((size_t)p->n + 1) * sizeof *ids);
    for (int64_t i = 0; i < p->n; i++) {
        const in_flight *g = &p->groups[p->order[i]];
        if (g->state == PLAYING) continue;
        if (g->state == KEPT) r->kept[kept++] = g->number;
        ids[n++] = p->order[i];
    }
    as_draw(l, ids, n, &r->last);
    answer_discard(l->t, r->last.groups, r->last.count); /* by now all are judged */
    for (int64_t i = 0; i < n; i++)
        if (p->groups[ids[i]].own) r->last.groups[own++].place = p->groups[ids[i]].number;
    for (int64_t i = 0; i < p->n; i++) {
        const own_group *of = p->groups[i].own;
        for (int32_t k = 0; of && k < of->group.n; k++)
            r->last.tokens += ARES_MIN(of->ends[k], l->moment) - of->start;
    }
    r->draws.rounds = r->over.fetches;
    return ares_world_share_error(
        l->t->run.world,
        draw_baselines(l->t, l->arena, r->last.groups, r->last.count, &r->last.tokens, l->m));
}

/* The step: until the batch is full, and then its end. */
static int play(loop *l)
{
    in_flight_set *p = &l->play;
    ARES_TRY(fetch(l));
    while (!ares_oversampling_done(&l->r->over)) {
        int64_t next = NOT_YET; /* when a group ends next, as far as is known */
        for (int64_t i = 0; i < p->n; i++)
            if (p->groups[i].state == PLAYING) next = ARES_MIN(next, p->groups[i].ends);
        /* what was fetched just now may end before all that is known, but not before this moment */
        if (next != NOT_YET && next <= (p->behind ? l->moment : p->clock)) {
            l->moment = next;
            ARES_TRY(take_moment(l));
            ARES_TRY(fetch(l));
        } else ARES_TRY(in_flight_advance(p));
    }
    in_flight_cut(p, l->moment);
    ARES_TRY(ares_world_share_error(l->t->run.world, judge(l, l->moment, true)));
    ARES_TRY(give_back(l));
    ARES_TRY(report(l));
    return join_taken(l);
}

int oversample(ares_trainer *t, step_draws *r, ares_arena *arena, ares_metrics *m)
{
    loop l = { .t = t, .r = r, .arena = arena, .m = m };
    ares_rng_key key = ares_rng_root((uint64_t)t->run.cfg->rollout.seed, ARES_RNG_SAMPLE);
    ares_sampling sampling;
    answer_sampling(t->run.cfg, &sampling);
    l.play = (in_flight_set){ .t = t,
                              .arena = arena,
                              /* several ranks have to meet at every look */
                              .window = ares_world_size(t->run.world) > 1 ? WINDOW : 1 };
    ARES_TRY(engine_queue_open(&l.play.queue, t, &sampling, key, arena));
    scoring_open(&l.scores, t, arena);
    l.scores.unjudged = !trainer_judges(t->run.cfg);
    int rc = play(&l);
    scoring_close(&l.scores, m); /* also after a failure: the reward manager reads the arena */
    return rc;
}
