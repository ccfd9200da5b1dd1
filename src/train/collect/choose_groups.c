/*
 * The groups that were drawn first and kept make the batch; where the draws are used up before it
 * is full, ares_resampling_finish decides (docs/dapo.md#rounds-of-draws). RAGEN's ranking comes
 * last: it sees the filled batch and makes it smaller (docs/filters.md#a-smaller-batch-made-whole).
 */
#include "collect/choose_groups.h"
#include "collect/progress.h"

#include <stdlib.h>
#include <string.h>

/*
 * The batch: numbers of its groups, in its order. The first `taught` are trained on; the rest fill
 * it and are masked.
 */
typedef struct batch_plan {
    int64_t *ids, count, taught;
} batch_plan;

/* The batch that the draws have given. */
static int plan_batch(const ares_trainer *t, const rounds *r, ares_arena *arena, batch_plan *out)
{
    const char *action = ares_filter_on_exhausted(&t->run.cfg->filter), *outcome;
    int64_t missing = r->draws.target - r->draws.kept;
    /* a prompt that was answered again is among the dropped more than once: its last answers count
     */
    const int64_t *dropped =
        r->dropped +
        (r->same_prompt && missing > 0 ? ares_resampling_dropped(&r->draws) - missing : 0);
    out->ids =
        ares_arena_alloc(arena, (size_t)(r->draws.drawn + r->draws.target + 1) * sizeof *out->ids);
    return ares_resampling_finish(&r->draws, action, r->kept, dropped, out->ids, &out->count,
                                  &out->taught, &outcome);
}

/*
 * RAGEN's ranking of the groups that would be trained on. Those it drops leave the batch, or fill
 * it where on_exhausted is fill_masked.
 */
static int rank_batch(ares_trainer *t, rounds *r, ares_arena *arena, batch_plan *b, ares_metrics *m)
{
    if (!ares_filter_needs(&r->of_batch)) return ARES_OK;
    bool alone = !ares_filter_needs(&r->of_draws);
    const char *action =
        t->run.cfg->filter.on_exhausted ? t->run.cfg->filter.on_exhausted : "smaller_batch";
    ares_groups view = filter_view(t, r, b->ids, b->taught, arena);
    ares_verdict *verdict = ares_arena_calloc(arena, (size_t)b->taught + 1, sizeof *verdict);
    ares_filter_counts counts = { 0 };
    ARES_TRY(ares_filter_groups(&r->of_batch, &view, verdict));
    ares_filter_count(&view, verdict, &counts, m);
    int64_t dropped = counts.groups - counts.kept, kept = 0, n = counts.kept,
            *ids = ares_arena_alloc(arena, ((size_t)b->count + 1) * sizeof *ids);
    r->counts.kept -= dropped;
    if (alone && dropped && strcmp(action, "error") == 0)
        return ares_fail(
            ARES_ELIMIT,
            "filter: the ranking keeps %lld of the %lld groups of the batch; widen it, or set "
            "algorithm.on_exhausted to fill_masked or smaller_batch",
            (long long)counts.kept, (long long)counts.groups);
    for (int64_t i = 0; i < b->taught; i++) ids[verdict[i].keep ? kept++ : n++] = b->ids[i];
    memcpy(b->ids, ids, (size_t)b->taught * sizeof *ids);
    b->taught = kept;
    if (strcmp(action, "fill_masked") != 0) b->count = kept;
    return ARES_OK;
}

static int64_t valid_answers(const rounds *r, int64_t id)
{
    int64_t valid = 0;
    for (int64_t i = r->first[id]; i < r->first[id + 1]; i++) valid += r->numbers[i].valid;
    return valid;
}

/* Where discarded answers are dropped, a group with no other answer leaves the batch. */
static void drop_empty(const rounds *r, batch_plan *b)
{
    int64_t count = b->count, taught = b->taught;
    b->count = b->taught = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i < taught && !valid_answers(r, b->ids[i])) continue;
        b->taught += i < taught;
        b->ids[b->count++] = b->ids[i];
    }
}

/*
 * Whether the discarded answers of a group become no rows. Where the estimator compares answers and
 * only one would be left, they stay, masked: a single answer has nothing to be compared with.
 */
static bool loses_answers(const ares_trainer *t, const rounds *r, int64_t id)
{
    if (!r->drops) return false;
    bool compares = (t->adv->needs & ARES_NEEDS_GROUPS) && r->first[id + 1] - r->first[id] > 1;
    return valid_answers(r, id) >= (compares ? 2 : 1);
}

/*
 * Every rank needs a group of each mini-batch: groups that were not chosen are added, masked, up to
 * a multiple of the ranks. They come last, so that the others have the same places on any number of
 * ranks.
 */
static void fill_up(const rounds *r, int64_t ranks, ares_arena *arena, batch_plan *b)
{
    bool *there = ares_arena_calloc(arena, (size_t)r->draws.drawn + 1, sizeof *there);
    for (int64_t i = 0; i < b->count; i++) there[b->ids[i]] = true;
    for (int64_t id = 0; id < r->draws.drawn && (b->count == 0 || b->count % ranks); id++)
        if (!there[id]) b->ids[b->count++] = id;
}

typedef struct ordered {
    int64_t id, local, part;
} ordered;

static int by_local_number(const void *a, const void *b)
{
    const ordered *x = a, *y = b;
    return x->local != y->local ? (x->local > y->local) - (x->local < y->local)
           : x->part != y->part ? (x->part > y->part) - (x->part < y->part)
                                : (x->id > y->id) - (x->id < y->id);
}

/* The groups of several data sets take turns, by their numbers within their data set. */
static void interleave(const ares_trainer *t, const rounds *r, ares_arena *arena, batch_plan *b)
{
    if (ares_source_parts(&t->run.source) == 1 || !b->taught) return;
    ordered *order = ares_arena_alloc(arena, (size_t)b->taught * sizeof *order);
    for (int64_t i = 0; i < b->taught; i++) {
        const ares_drawn *p = &r->prompts[b->ids[i]];
        order[i] = (ordered){ b->ids[i], p->local, ares_source_row(&t->run.source, p->id)->part };
    }
    qsort(order, (size_t)b->taught, sizeof *order, by_local_number);
    for (int64_t i = 0; i < b->taught; i++) b->ids[i] = order[i].id;
}

/* Places of the groups in the batch, by their number in the step; -1: not in it. */
static int64_t *places_of(const rounds *r, const batch_plan *b, ares_arena *arena)
{
    int64_t *place = ares_arena_alloc(arena, ((size_t)r->draws.drawn + 1) * sizeof *place);
    for (int64_t i = 0; i < r->draws.drawn; i++) place[i] = -1;
    for (int64_t i = 0; i < b->count; i++) place[b->ids[i]] = i;
    return place;
}

static void shuffle(const ares_trainer *t, int64_t *ids, int64_t n)
{
    ares_rng_key key = ares_rng_root((uint64_t)t->run.cfg->rollout.seed, ARES_RNG_ORDER);
    if (t->run.cfg->actor.shuffle)
        ares_rng_shuffle(ares_rng_sub(key, (uint64_t)t->run.step, 0), ids, n);
}

int choose_groups(ares_trainer *t, rounds *r, collection *c, int64_t *count, ares_metrics *m)
{
    int64_t chosen = 0;
    batch_plan b = { 0 };
    int rc = plan_batch(t, r, c->arena, &b);
    if (rc != ARES_OK) return progress_add_drops(m, rc);
    ARES_TRY(rank_batch(t, r, c->arena, &b, m));
    if (ares_filter_needs(&r->of_batch))
        ares_metrics_set(m, "rollout/empty_after_filter", b.taught == 0);
    if (r->drops) drop_empty(r, &b);
    interleave(t, r, c->arena, &b);
    r->empty = b.taught == 0;
    r->filled_from = b.count;
    fill_up(r, ares_world_size(t->run.world), c->arena, &b);
    bool *masked = ares_arena_calloc(c->arena, (size_t)r->draws.drawn + 1, sizeof *masked);
    for (int64_t i = b.taught; i < b.count; i++) masked[b.ids[i]] = true;
    shuffle(t, b.ids, r->filled_from);
    const int64_t *place = places_of(r, &b, c->arena);
    for (int64_t g = 0; g < c->count; g++) {
        ares_group group = c->items[g];
        group.masked = masked[group.place];
        group.thinned = !group.masked && loses_answers(t, r, group.place);
        group.place = place[group.place];
        if (group.place >= 0) c->items[chosen++] = group;
    }
    c->count = chosen;
    *count = b.count;
    return ARES_OK;
}
