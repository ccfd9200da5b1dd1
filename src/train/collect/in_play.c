/*
 * All answers advance alike on one clock that counts tokens: what began together has the same
 * number of new tokens at each moment, or has ended. So the order in which groups end depends on
 * their lengths alone, not on ranks, threads, or what fits into the cache. The engine may run ahead
 * by a window; answers are cut back to the moment that counts.
 */
#include "collect/in_play.h"

#include <string.h>

#include "collect/collection.h"

enum { WINDOW = 16, WIDEST_WINDOW = 256 };

int play_open(play *p, ares_trainer *t, ares_arena *arena)
{
    ares_sampling sampling;
    answer_sampling(t->run.cfg, &sampling);
    *p = (play){ .t = t,
                 .arena = arena,
                 /* several ranks have to meet at every look */
                 .window = ares_world_size(t->run.world) > 1 ? WINDOW : 1 };
    return engine_queue_open(&p->queue, t, &sampling,
                             ares_rng_root((uint64_t)t->run.cfg->rollout.seed, ARES_RNG_SAMPLE),
                             arena);
}

/* ---------------------------------------------------------------- prompts */
static int begin_own(play *p, int64_t id)
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
        bool whole = d->begun && !d->begun->items[i].cut;
        own->had[i] = d->begun ? d->begun->items[i].rows[0].n_tokens : 0;
        own->ends[i] = whole ? own->start : NOT_YET;
        own->left += !whole;
    }
    p->groups[id].own = own;
    return ARES_OK;
}

static bool is_whole(const ares_group *begun)
{
    for (int32_t i = 0; begun && i < begun->n; i++)
        if (begun->items[i].cut) return false;
    return begun != NULL;
}

/* Each of several data sets gives first what it was given back. */
static void insert_by_draw(play *p, int64_t id)
{
    int64_t at = id, draw = p->groups[id].prompt.draw;
    for (; at > 0 && p->groups[p->order[at - 1]].prompt.draw > draw; at--)
        p->order[at] = p->order[at - 1];
    p->order[at] = id;
}

int play_fetch(play *p, int64_t n, int64_t now)
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
        p->groups[i] = (in_play){ .prompt = drawn[i - first],
                                  .rank = i % ranks,
                                  .start = now,
                                  .ends = is_whole(drawn[i - first].begun) ? now : NOT_YET };
        insert_by_draw(p, i);
        if (i % ranks == rank) {
            rc = begin_own(p, i);
            ares_work_expect(ARES_WORK_ANSWERS, p->t->run.cfg->rollout.n);
        }
    }
    p->behind = true;
    return ares_world_agree(p->t->run.world, rc);
}

/* ---------------------------------------------------------------- the clock */
static void take_ended(play *p, own_group *of, const ares_trajectory *y)
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

static int run_engine(play *p)
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

/* Where the cache is too small, longer windows lose it less often. The same on every rank. */
static void widen(play *p, int64_t lost)
{
    if (lost) p->window = ARES_MIN(p->window * 2, WIDEST_WINDOW);
}

static int tell_ends(play *p)
{
    ares_rollout_stats stats;
    ares_str all = { 0 };
    int64_t lost = 0, n = 0;
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
    widen(p, lost);
    return ARES_OK;
}

int play_advance(play *p)
{
    if (!p->behind) p->clock += p->window;
    p->behind = false;
    ARES_TRY(ares_world_agree(p->t->run.world, run_engine(p)));
    return tell_ends(p);
}

bool play_next_end(const play *p, int64_t *moment)
{
    *moment = NOT_YET;
    for (int64_t i = 0; i < p->n; i++)
        if (p->groups[i].state == PLAYING) *moment = ARES_MIN(*moment, p->groups[i].ends);
    return *moment != NOT_YET;
}

/* ---------------------------------------------------------------- cutting */
/* Answers that run are cut by the engine; its queue says whose they are. */
static void cut_running(play *p, int64_t moment)
{
    for (int64_t k = 0; k < p->queue.n; k++) {
        const queued *q = &p->queue.items[k];
        const own_group *of = (const own_group *)q->group;
        int32_t n = (int32_t)(moment - of->start);
        if (!of->left) continue;
        if (q->begun) (void)ares_rollout_cut(p->t->rollout, k, q->begun->index, n);
        for (int32_t i = 0; i < q->group->n && !q->begun; i++)
            (void)ares_rollout_cut(p->t->rollout, k, i, n);
    }
}

/* What is cut has no score, and nothing of it is shown. */
static void cut_back(own_group *of, int32_t item, int64_t moment)
{
    ares_trajectory *y = &of->group.items[item];
    ares_trajectory_row *x = &y->rows[0];
    x->n_tokens = ARES_MIN(x->n_tokens, of->had[item] + (int32_t)(moment - of->start));
    *y = (ares_trajectory){ .index = y->index, .cut = 1, .n_rows = 1, .rows = x };
    of->ends[item] = NOT_YET;
}

void play_cut(play *p, int64_t moment)
{
    ares_group *g;
    ares_trajectory *y;
    cut_running(p, moment);
    while ((y = engine_queue_next(&p->queue, &g)))
        if (!y->cut) take_ended(p, (own_group *)g, y);
    for (int64_t i = 0; i < p->n; i++) {
        own_group *of = p->groups[i].own;
        if (!of || p->groups[i].state != PLAYING) continue;
        for (int32_t k = 0; k < of->group.n; k++)
            if (of->ends[k] > moment) cut_back(of, k, moment);
    }
}

int64_t play_tokens(const own_group *g, int64_t moment)
{
    int64_t tokens = 0;
    for (int32_t i = 0; i < g->group.n; i++) tokens += ARES_MIN(g->ends[i], moment) - g->start;
    return tokens;
}
