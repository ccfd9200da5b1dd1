/*
 * How a step gets its groups. A draw takes prompts from the source and has them answered, filters
 * judge the groups, and further draws replace the groups that were dropped, until the batch is
 * full. Read from the end: collect_groups has the order of work, and the functions before it are
 * its steps.
 */
#include "collect.h"
#include "agents/agents.h"
#include "report/report.h"
#include "trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A draw of prompts. The number of a prompt's draw in the run is part of the sampling key, so that
 * no sample repeats.
 */

int draw_prompts(ares_trainer *t, ares_arena *arena, int64_t total, prompt_draw *d)
{
    *d = (prompt_draw){ .total = total };
    d->prompts = ares_arena_alloc(arena, ((size_t)total + 1) * sizeof *d->prompts);
    return ares_source_next(&t->run.source, total, arena, d->prompts);
}

void draw_again(ares_arena *arena, const bool *keep, prompt_draw *d)
{
    prompt_draw before = *d;
    *d = (prompt_draw){ .attempt = before.attempt + 1 };
    d->prompts = ares_arena_alloc(arena, ((size_t)before.total + 1) * sizeof *d->prompts);
    for (int64_t g = 0; g < before.total; g++) {
        if (keep[g]) continue;
        d->prompts[d->total] = before.prompts[g];
        d->prompts[d->total++].partial = NULL; /* new answers, from their first token on */
    }
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
    if (!(t->adv->needs & ARES_NEEDS_BASELINE) || !trainer_judges(t->run.cfg)) return ARES_OK;
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
    ARES_TRY(t->generator->answer(t, &job, arena, baselines));
    for (int64_t g = 0; g < count; g++) {
        groups[g].baseline = baselines[g].items[0].score;
        /* without a baseline the answers have nothing to be compared with */
        if (baselines[g].items[0].failed && answer_discards_failures(t))
            for (int32_t i = 0; i < groups[g].n; i++) groups[g].items[i].discarded = 1;
        *tokens += ares_trajectory_tokens(&baselines[g].items[0]);
    }
    return ARES_OK;
}

int draw_answer(ares_trainer *t, ares_arena *arena, prompt_draw *d, ares_metrics *m)
{
    ares_sampling sampling;
    int64_t ranks = ares_world_size(t->run.world), rank = ares_world_rank(t->run.world);
    /* ranks take prompts in turn: nothing is known of the answers' lengths yet */
    d->count = answer_share(t, d->total);
    answer_prompt *prompts = ares_arena_alloc(arena, ((size_t)d->count + 1) * sizeof *prompts);
    for (int64_t i = 0; i < d->count; i++)
        prompts[i] = answer_prompt_of(&t->run.source, &d->prompts[i * ranks + rank]);
    answer_sampling(t->run.cfg, &sampling);
    answer_job job = job_of(t, prompts, d->count, &sampling, m);
    job.attempt = d->attempt;
    job.trains = true;
    answer_expect(t, d->count, job.n);
    d->groups = ares_arena_calloc(arena, (size_t)d->count + 1, sizeof *d->groups);
    ARES_TRY(t->generator->answer(t, &job, arena, d->groups));
    answer_discard(t, d->groups, d->count);
    for (int64_t g = 0; g < d->count; g++)
        for (int32_t i = 0; i < d->groups[g].n; i++)
            d->tokens += ares_trajectory_tokens(&d->groups[g].items[i]);
    return draw_baselines(t, arena, d->groups, d->count, &d->tokens, m);
}

/* Arrays that grow in the step's arena, where nothing is freed one by one. */

ares_group *step_groups_add(step_groups *c)
{
    if (c->count == c->capacity) {
        c->capacity = c->capacity * 2 + 64;
        c->items = arena_grown(c->arena, c->items, c->count, c->capacity, sizeof *c->items);
    }
    return &c->items[c->count++];
}

void *arena_grown(ares_arena *arena, const void *items, int64_t n, int64_t capacity, size_t size)
{
    char *grown = ares_arena_alloc(arena, ((size_t)capacity + 1) * size);
    if (n) memcpy(grown, items, (size_t)n * size);
    return grown;
}

/* What filters compare of the groups of a draw, gathered over all ranks, and their verdict. */

/* The rank that answers prompt g of a draw. */
static int64_t draw_owner(const prompt_draw *d, int64_t g, int64_t ranks)
{
    return d->owner ? d->owner[g] : g % ranks;
}

static answer_numbers numbers_of(const ares_trajectory *y)
{
    double entropy = 0, tokens = 0;
    for (int32_t r = 0; r < y->n_rows; r++)
        for (int32_t i = 0; i < y->rows[r].n_tokens; i++) {
            if (!y->rows[r].response_mask[i])
                continue; /* the environment's tokens have no entropy */
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

/*
 * Adds to the scores of a draw's answers what the controls would add if the step ended here
 * (docs/aepo.md#choosing-groups). They look at the draw as the batch that it would make by itself.
 */
static int shape_as_of_now(ares_trainer *t, const prompt_draw *d, answer_numbers *out)
{
    ares_batch b;
    int64_t i = -1;
    ares_batch_init(&b);
    ares_batch_fill(&b, d->groups, d->count);
    int rc = controls_provisional(t->run.controls, &b);
    for (int64_t r = 0; r < b.rows && rc == ARES_OK; r++) {
        const ares_sample *s = &b.samples[r], *before = r ? s - 1 : NULL;
        /* the rows of an episode are one answer */
        if (before && s->episode && before->draw == s->draw && before->episode == s->episode)
            continue;
        out[++i].overall += ares_reward_shaping(t->reward, s);
    }
    ares_batch_fini(&b);
    return rc;
}

/* The numbers of a draw's groups, of all ranks, in the order of the draw. */
static int gather_numbers(ares_trainer *t, step_draws *r, const prompt_draw *d, ares_arena *arena)
{
    const ares_filter_config *f = &t->run.cfg->filter;
    int64_t ranks = ares_world_size(t->run.world), drawn = r->draws.drawn, own = 0, answers = 0;
    int64_t *count = ares_arena_alloc(arena, ((size_t)d->total + 1) * sizeof *count),
            *own_count = ares_arena_alloc(arena, ((size_t)d->count + 1) * sizeof *own_count);
    for (int64_t g = 0; g < d->count; g++) {
        own_count[g] = d->groups[g].n;
        answers += own_count[g];
    }
    answer_numbers *mine = ares_arena_calloc(arena, (size_t)answers + 1, sizeof *mine);
    for (int64_t g = 0; g < d->count; g++)
        for (int32_t i = 0; i < d->groups[g].n; i++)
            mine[own++] = numbers_of(&d->groups[g].items[i]);
    if (f->online_filtering && strcmp(f->filter_key, "overall") == 0 &&
        ares_reward_shapes(t->reward))
        ARES_TRY(shape_as_of_now(t, d, mine));
    /* first how many answers each group of all ranks has, then their numbers */
    ares_str counts = { 0 }, all = { 0 };
    ARES_TRY(ares_world_gather_all(t->run.world, own_count, (size_t)d->count * sizeof *own_count,
                                   &counts, NULL));
    size_t at = 0;
    for (int64_t rank = 0; rank < ranks; rank++)
        for (int64_t g = 0; g < d->total; g++)
            if (draw_owner(d, g, ranks) == rank)
                memcpy(&count[g], counts.data + at++ * sizeof *count, sizeof *count);
    ares_str_fini(&counts);
    ARES_TRY(ares_world_gather_all(t->run.world, mine, (size_t)answers * sizeof *mine, &all, NULL));
    r->first =
        arena_grown(arena, r->first, drawn ? drawn + 1 : 0, drawn + d->total + 1, sizeof *r->first);
    if (!drawn) r->first[0] = 0;
    for (int64_t g = 0; g < d->total; g++) r->first[drawn + g + 1] = r->first[drawn + g] + count[g];
    r->numbers = arena_grown(arena, r->numbers, r->first[drawn], r->first[drawn + d->total],
                             sizeof *r->numbers);
    at = 0;
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

/* Some of the groups drawn in the step, as filters take them. */
static ares_groups filter_view(const ares_trainer *t, const step_draws *r, const int64_t *ids,
                               int64_t groups, ares_arena *arena)
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

int filter_last_draw(ares_trainer *t, step_draws *r, ares_arena *arena, ares_metrics *m)
{
    const prompt_draw *d = &r->last;
    const ares_curriculum *c = &t->run.curriculum;
    int64_t drawn = r->draws.drawn, step = -1;
    r->prompts = arena_grown(arena, r->prompts, drawn, drawn + d->total, sizeof *r->prompts);
    memcpy(r->prompts + drawn, d->prompts, (size_t)d->total * sizeof *r->prompts);
    r->keep = ares_arena_calloc(arena, (size_t)d->total + 1, sizeof *r->keep);
    memset(r->keep, 1, (size_t)d->total);
    if (!r->looks) return ARES_OK;
    ARES_TRY(gather_numbers(t, r, d, arena));
    /* a curriculum caps the scores of each data set, by the step that a prompt was drawn at */
    double *caps = ares_arena_calloc(arena, (size_t)c->n + 1, sizeof *caps);
    r->caps = arena_grown(arena, r->caps, drawn, drawn + d->total, sizeof *r->caps);
    for (int64_t g = 0; g < d->total; g++) {
        const char *source = ares_source_row(&t->run.source, d->prompts[g].id)->data_source;
        if (d->prompts[g].step != step)
            ARES_TRY(ares_curriculum_caps(c, step = d->prompts[g].step, caps));
        r->caps[drawn + g] = ares_reward_cap(c->names, c->n, caps, c->n, source);
    }
    int64_t *ids = ares_arena_alloc(arena, ((size_t)d->total + 1) * sizeof *ids);
    for (int64_t g = 0; g < d->total; g++) ids[g] = drawn + g;
    ares_groups view = filter_view(t, r, ids, d->total, arena);
    view.in_play = r->over.batch ? r->over.submitted - r->over.dropped
                                 : r->draws.kept + r->draws.surplus + d->total;
    view.target = r->draws.target;
    ares_verdict *verdict = ares_arena_calloc(arena, (size_t)d->total + 1, sizeof *verdict);
    ARES_TRY(ares_filter_groups(&r->of_draws, &view, verdict));
    ares_filter_count(&view, verdict, &r->counts, m);
    for (int64_t g = 0; g < d->total && c->n; g++) { /* read by report/report.c */
        char name[120];
        (void)snprintf(name, sizeof name, "rollout/%s/judged_groups",
                       ares_source_row(&t->run.source, d->prompts[g].id)->data_source);
        ares_metrics_add(m, name, 1);
    }
    for (int64_t g = 0; g < d->total; g++) r->keep[g] = verdict[g].keep;
    return ARES_OK;
}

/*
 * Whether a step that may draw without end still makes progress. Prompts come back in every epoch,
 * and their new answers may pass the filters. So a step is given up only after as many prompts as
 * the source has rows, and IDLE_DRAWS draws, of which no group was kept.
 */

enum { IDLE_DRAWS = 20 }; /* the default of trainer.max_try_make_batch */

void progress_count(step_draws *r, bool kept, int64_t prompts)
{
    r->idle_draws = kept ? 0 : r->idle_draws + 1;
    r->idle_prompts = kept ? 0 : r->idle_prompts + prompts;
}

int progress_add_drops(const ares_metrics *m, int rc)
{
    static const char drop[] = "rollout/dynamic_filter/drop_";
    ares_str message = { 0 }, reasons = { 0 }; /* such as "all_zero_a: 2, reward_cap_b: 5" */
    for (int i = 0; i < ares_metrics_count(m); i++) {
        const char *name = ares_metrics_name(m, i);
        if (strncmp(name, drop, strlen(drop)) == 0)
            ares_str_addf(&reasons, "%s%s: %.0f", reasons.len ? ", " : "", name + strlen(drop),
                          ares_metrics_value(m, i));
    }
    if (reasons.len) {
        ares_str_addf(&message, "%s (dropped: %s)", ares_error_message(), reasons.data);
        rc = ares_fail(rc, "%s", message.data);
    }
    ares_str_fini(&message);
    ares_str_fini(&reasons);
    return rc;
}

int progress_check(const ares_trainer *t, const step_draws *r, const ares_metrics *m,
                   const char *remedy)
{
    const ares_source *source = &t->run.source;
    if (r->idle_draws < IDLE_DRAWS ||
        r->idle_prompts < ares_source_count(source) - ares_source_skipped(source))
        return ARES_OK;
    return progress_add_drops(
        m, ares_fail(ARES_ELIMIT,
                     "filter: the last %lld draws gave %lld prompts, no fewer than there are, and "
                     "no group of them is kept, while a batch takes %lld and has %lld; widen the "
                     "filter, choose other prompts, or %s",
                     (long long)r->idle_draws, (long long)r->idle_prompts,
                     (long long)r->draws.target, (long long)r->draws.kept, remedy));
}

/*
 * The groups that were drawn first and kept make the batch; where the draws are used up before it
 * is full, ares_resampling_finish decides (docs/dapo.md#rounds-of-draws). RAGEN's ranking comes
 * last: it sees the filled batch and makes it smaller (docs/filters.md#a-smaller-batch-made-whole).
 */

/*
 * The batch: ids of its groups, which are their numbers in the step, in the order of the batch.
 * The first `n_trained` are trained on; the rest fill it and are masked.
 */
typedef struct batch_plan {
    int64_t *ids, count, n_trained;
} batch_plan;

/*
 * RAGEN's ranking of the groups that would be trained on. Those it drops leave the batch, or fill
 * it where on_exhausted is fill_masked.
 */
static int rank_batch(ares_trainer *t, step_draws *r, ares_arena *arena, batch_plan *b,
                      ares_metrics *m)
{
    bool alone = !ares_filter_needs(&r->of_draws);
    const char *action =
        t->run.cfg->filter.on_exhausted ? t->run.cfg->filter.on_exhausted : "smaller_batch";
    ares_groups view = filter_view(t, r, b->ids, b->n_trained, arena);
    ares_verdict *verdict = ares_arena_calloc(arena, (size_t)b->n_trained + 1, sizeof *verdict);
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
    for (int64_t i = 0; i < b->n_trained; i++) ids[verdict[i].keep ? kept++ : n++] = b->ids[i];
    memcpy(b->ids, ids, (size_t)b->n_trained * sizeof *ids);
    b->n_trained = kept;
    if (strcmp(action, "fill_masked") != 0) b->count = kept;
    return ARES_OK;
}

static int64_t valid_answers(const step_draws *r, int64_t id)
{
    int64_t valid = 0;
    for (int64_t i = r->first[id]; i < r->first[id + 1]; i++) valid += r->numbers[i].valid;
    return valid;
}

typedef struct ordered {
    int64_t id, local, part;
} ordered;

static int by_local_number(const void *a, const void *b)
{
    const ordered *x = a, *y = b;
    return x->local != y->local ? ARES_CMP(x->local, y->local)
           : x->part != y->part ? ARES_CMP(x->part, y->part)
                                : ARES_CMP(x->id, y->id);
}

/* The batch that the draws have given; all ranks plan the same one. */
static int plan_batch(ares_trainer *t, step_draws *r, ares_arena *arena, batch_plan *b,
                      ares_metrics *m)
{
    const char *action = ares_filter_on_exhausted(&t->run.cfg->filter), *outcome;
    int64_t missing = r->draws.target - r->draws.kept, ranks = ares_world_size(t->run.world);
    /* a prompt that is answered again is dropped more than once: its last answers count */
    const int64_t *dropped =
        r->dropped +
        (r->same_prompt && missing > 0 ? ares_resampling_dropped(&r->draws) - missing : 0);
    size_t most = (size_t)(r->draws.drawn + r->draws.target + 1);
    *b = (batch_plan){ .ids = ares_arena_alloc(arena, most * sizeof *b->ids) };
    int rc = ares_resampling_finish(&r->draws, action, r->kept, dropped, b->ids, &b->count,
                                    &b->n_trained, &outcome);
    if (rc != ARES_OK) return progress_add_drops(m, rc);
    if (ares_filter_needs(&r->of_batch)) {
        ARES_TRY(rank_batch(t, r, arena, b, m));
        ares_metrics_set(m, "rollout/empty_after_filter", b->n_trained == 0);
    }
    if (r->drops) { /* discarded answers: a group with no other answer leaves the batch */
        int64_t count = b->count, n_trained = b->n_trained;
        b->count = b->n_trained = 0;
        for (int64_t i = 0; i < count; i++) {
            if (i < n_trained && !valid_answers(r, b->ids[i])) continue;
            b->n_trained += i < n_trained;
            b->ids[b->count++] = b->ids[i];
        }
    }
    if (ares_source_parts(&t->run.source) > 1 && b->n_trained) { /* data sets take turns */
        ordered *order = ares_arena_alloc(arena, (size_t)b->n_trained * sizeof *order);
        for (int64_t i = 0; i < b->n_trained; i++) {
            const ares_drawn *p = &r->prompts[b->ids[i]];
            order[i] =
                (ordered){ b->ids[i], p->local, ares_source_row(&t->run.source, p->id)->part };
        }
        qsort(order, (size_t)b->n_trained, sizeof *order, by_local_number);
        for (int64_t i = 0; i < b->n_trained; i++) b->ids[i] = order[i].id;
    }
    r->empty = b->n_trained == 0;
    r->filled_from = b->count;
    /*
     * Every rank needs a group of each mini-batch: groups that were not chosen are added, masked,
     * up to a multiple of the ranks. They come last, so that the others have the same places on
     * any number of ranks.
     */
    bool *there = ares_arena_calloc(arena, (size_t)r->draws.drawn + 1, sizeof *there);
    for (int64_t i = 0; i < b->count; i++) there[b->ids[i]] = true;
    for (int64_t id = 0; id < r->draws.drawn && (b->count == 0 || b->count % ranks); id++)
        if (!there[id]) b->ids[b->count++] = id;
    return ARES_OK;
}

/*
 * c: this rank's groups with place = their number in the step; on return those of the batch, with
 * their place in it. *count: groups of the batch, over all ranks: a multiple of the ranks.
 */
static int choose_groups(ares_trainer *t, step_draws *r, step_groups *c, int64_t *count,
                         ares_metrics *m)
{
    const ares_train_config *cfg = t->run.cfg;
    ares_rng_key key = ares_rng_root((uint64_t)cfg->rollout.seed, ARES_RNG_ORDER);
    size_t drawn = (size_t)r->draws.drawn + 1;
    int64_t chosen = 0;
    batch_plan b;
    ARES_TRY(plan_batch(t, r, c->arena, &b, m));
    bool *masked = ares_arena_calloc(c->arena, drawn, sizeof *masked);
    for (int64_t i = b.n_trained; i < b.count; i++) masked[b.ids[i]] = true;
    if (cfg->actor.shuffle)
        ares_rng_shuffle(ares_rng_sub(key, (uint64_t)t->run.step, 0), b.ids, r->filled_from);
    int64_t *place = ares_arena_alloc(c->arena, drawn * sizeof *place); /* by id */
    for (int64_t id = 0; id < r->draws.drawn; id++) place[id] = -1;
    for (int64_t i = 0; i < b.count; i++) place[b.ids[i]] = i;
    for (int64_t g = 0; g < c->count; g++) {
        ares_group group = c->items[g];
        int64_t id = group.place;
        if (place[id] < 0) continue;
        group.place = place[id];
        group.masked = masked[id];
        /*
         * Discarded answers become no rows. But a single answer has nothing to be compared with:
         * where the estimator compares and only one would be left, they stay, masked.
         */
        bool compares =
            r->drops && (t->adv->needs & ARES_NEEDS_GROUPS) && r->first[id + 1] - r->first[id] > 1;
        group.drops_discarded =
            r->drops && !group.masked && valid_answers(r, id) >= (compares ? 2 : 1);
        c->items[chosen++] = group;
    }
    c->count = chosen;
    *count = b.count;
    return ARES_OK;
}

/*
 * The groups of a step: prompts are drawn, answered and judged, groups that the filters drop are
 * replaced by further draws, until the batch is full or the draws are used up
 * (docs/aepo.md#choosing-groups, docs/dapo.md#rounds-of-draws). Then the groups of the batch are
 * chosen, and each goes to the rank that trains on it.
 */

/* attempts at a batch of which a group is left; RAGEN's number (docs/filters.md#no-group-left) */
enum { EMPTY_ROUNDS = 10 };

/* Reads the options of the rounds into *r. */
static int open_rounds(const ares_train_config *cfg, step_draws *r)
{
    int64_t limit = cfg->trainer.max_try_make_batch, drawn = cfg->data.mini_rollout_batch_size;
    *r = (step_draws){ .same_prompt = strcmp(cfg->filter.resample_mode, "same_prompt") == 0 };
    r->draws.target = cfg->data.rollout_batch_size;
    r->draws.batch = r->same_prompt ? 0 : drawn == ARES_NULL_I64 ? r->draws.target : drawn;
    r->draws.max_resample = cfg->filter.max_resample != ARES_NULL_I64 ? cfg->filter.max_resample
                            : limit > 0                               ? limit - 1
                                                                      : -1;
    ares_filter_stages(&cfg->filter, &r->of_draws, &r->of_batch);
    r->drops = strcmp(cfg->filter.over_length_action, "drop") == 0;
    r->looks = r->drops || ares_filter_needs(&cfg->filter);
    if (!oversampling_wanted(cfg)) return ARES_OK;
    int64_t fetched = cfg->oversampling.batch;
    return ares_oversampling_init(&r->over, r->draws.target,
                                  fetched == ARES_NULL_I64 ? r->draws.target : fetched,
                                  cfg->oversampling.max_fetches);
}

/* The groups of the last draw join the collection, each with its place. */
static int add_draw(ares_trainer *t, step_draws *r, step_groups *c)
{
    const prompt_draw *d = &r->last;
    /* controls and metrics over all answers see the groups that were dropped, too */
    ARES_TRY(controls_generated(t->run.controls, d->groups, d->count));
    r->tokens += (double)d->tokens;
    for (int64_t g = 0; g < d->count; g++)
        for (int32_t i = 0; i < d->groups[g].n; i++) {
            const ares_trajectory *y = &d->groups[g].items[i];
            r->discarded += y->discarded && !y->failed;
            r->failed += y->failed;
            r->answers++;
            if (y->discarded || isnan(y->accuracy)) continue;
            r->right[0] += (double)y->accuracy;
            r->right[1]++;
        }
    for (int64_t g = 0; g < d->count; g++) *step_groups_add(c) = d->groups[g];
    return ARES_OK;
}

/*
 * Ends a run whose rewards or environments do not work: in its first step where all answers failed,
 * later where more than max_failed_frac did. Both numbers are over all ranks.
 */
static int check_failures(const ares_trainer *t, double failed, double answers)
{
    const ares_train_config *c = t->run.cfg;
    const char *last = t->agents ? t->agents->last_failure : ares_reward_last_failure(t->reward),
               *room = t->agents ? "env" : "reward",
               *what = t->agents ? "episodes failed" : "answers could not be judged";
    double most = t->agents ? c->agents.max_failed_frac : c->reward.max_failed_frac;
    bool first = t->run.step == 0;
    if (failed == 0 || (first ? failed < answers : failed <= most * answers)) return ARES_OK;
    if (!last || !*last) last = "on other ranks";
    if (first)
        return ares_fail(ARES_ECHILD, "%s: none of the %.0f %s: %s", room, answers,
                         t->agents ? "episodes could be played" : "answers could be judged", last);
    return ares_fail(ARES_ECHILD,
                     "%s: %.0f of %.0f %s (%s); repair it, or raise %s.max_failed_frac "
                     "(now %g)",
                     room, failed, answers, what, last, t->agents ? "env" : "worker.reward", most);
}

/*
 * One draw is answered, judged and filtered; its groups join the collection. Over-sampling makes
 * one draw of all that it fetches.
 */
static int draw_round(ares_trainer *t, step_draws *r, int64_t size, step_groups *c, ares_metrics *m)
{
    int64_t ranks = ares_world_size(t->run.world), rank = ares_world_rank(t->run.world),
            capacity = r->draws.drawn + size, dropped = ares_resampling_dropped(&r->draws);
    prompt_draw *d = &r->last;
    if (r->over.batch) {
        ARES_TRY(oversample(t, r, c->arena, m));
        return add_draw(t, r, c);
    }
    if (r->same_prompt && r->draws.rounds) draw_again(c->arena, r->keep, d);
    else ARES_TRY(draw_prompts(t, c->arena, size, d));
    ARES_TRY(ares_world_share_error(t->run.world, draw_answer(t, c->arena, d, m)));
    if (t->generator->normalise)
        ARES_TRY(t->generator->normalise(t, d->groups, d->count, c->arena));
    for (int64_t g = 0; g < d->count; g++) d->groups[g].place = r->draws.drawn + g * ranks + rank;
    double before_it[2] = { r->failed, r->answers };
    ARES_TRY(add_draw(t, r, c));
    double of_draw[2] = { r->failed - before_it[0], r->answers - before_it[1] };
    ARES_TRY(ares_world_sum_f64(t->run.world, of_draw, 2));
    if (of_draw[0] == of_draw[1]) /* further draws would fail alike */
        ARES_TRY(check_failures(t, of_draw[0], of_draw[1]));
    ARES_TRY(filter_last_draw(t, r, c->arena, m));
    r->kept = arena_grown(c->arena, r->kept, r->draws.kept, capacity, sizeof *r->kept);
    r->dropped = arena_grown(c->arena, r->dropped, dropped, capacity, sizeof *r->dropped);
    int64_t before = r->draws.kept + r->draws.surplus;
    ares_resampling_add(&r->draws, r->keep, d->total, r->kept, r->dropped);
    progress_count(r, r->draws.kept + r->draws.surplus > before, d->total);
    if (r->draws.max_resample >= 0) return ARES_OK;
    return progress_check(t, r, m,
                          "set trainer.max_try_make_batch above 0 and algorithm.on_exhausted to "
                          "fill_masked or smaller_batch");
}

/* Metrics over all answers, those of dropped groups included, and of the draws. */
static int report(ares_trainer *t, step_draws *r, int64_t count, ares_metrics *m)
{
    static const char *const reasons[] = { "all_correct", "all_wrong" };
    const ares_filter_config *f = &t->run.cfg->filter;
    const ares_resampling *s = &r->draws;
    bool discards = ares_reward_max_length(t->reward) != ARES_NULL_I64 || f->mask_truncated;
    char name[64], as[64];
    ARES_TRY(ares_world_sum_f64(t->run.world, r->right, 2));
    double sums[4] = { r->discarded, r->failed, r->answers, r->tokens };
    ARES_TRY(ares_world_sum_f64(t->run.world, sums, ARES_COUNT(sums)));
    if (r->right[1] > 0) ares_metrics_set(m, "reward/accuracy", r->right[0] / r->right[1]);
    if (discards && sums[2] > 0) ares_metrics_set(m, "dapo/discarded_frac", sums[0] / sums[2]);
    if (sums[2] > 0) ares_metrics_set(m, "rollout/failed_frac", sums[1] / sums[2]);
    ARES_TRY(check_failures(t, sums[1], sums[2]));
    ares_metrics_set(m, "rollout/generated_tokens", sums[3]);
    if (t->generator->report) ARES_TRY(t->generator->report(t, "train/", m));
    if (ares_filter_needs(f)) ares_filter_report(&r->counts, m);
    ares_metrics_set(m, "filter/tries", (double)s->rounds);
    ares_metrics_set(m, "filter/generated_groups", (double)s->drawn);
    ares_metrics_set(m, "filter/kept_groups", (double)(r->looks ? r->counts.kept : s->drawn));
    if (!f->informative) return ARES_OK;
    for (int i = 0; i < ARES_COUNT(reasons); i++) {
        double n = 0;
        (void)snprintf(name, sizeof name, "rollout/dynamic_filter/drop_%s", reasons[i]);
        (void)snprintf(as, sizeof as, "dapo/groups_%s", reasons[i]);
        (void)ares_metrics_get(m, name, &n);
        ares_metrics_set(m, as, n);
    }
    ares_metrics_set(m, "dapo/num_gen_rounds", (double)s->rounds);
    ares_metrics_set(m, "dapo/groups_kept", (double)s->kept);
    ares_metrics_set(m, "dapo/groups_surplus", (double)s->surplus);
    ares_metrics_set(m, "dapo/batch_fill", (double)ARES_MIN(s->kept, count) / (double)s->target);
    return ARES_OK;
}

/* Draws until the batch is full or the draws are used up, and chooses its groups. */
static int draw_batch(ares_trainer *t, step_draws *r, step_groups *c, int64_t *count,
                      ares_metrics *m)
{
    int64_t size;
    ARES_TRY(open_rounds(t->run.cfg, r));
    c->count = 0;
    while ((size = ares_resampling_draw(&r->draws)) > 0) ARES_TRY(draw_round(t, r, size, c, m));
    ARES_TRY(report_collapse_groups(t, c->items, c->count, m));
    return choose_groups(t, r, c, count, m);
}

/* Adds what metrics tell of the draws: a step that is drawn again reports all its attempts. */
static void add_counts(step_draws *r, const step_draws *more)
{
    r->draws.rounds += more->draws.rounds;
    r->draws.drawn += more->draws.drawn;
    r->counts.groups += more->counts.groups;
    r->counts.kept += more->counts.kept;
    r->counts.zero += more->counts.zero;
    for (int i = 0; i < 2; i++) r->right[i] += more->right[i];
    r->discarded += more->discarded;
    r->failed += more->failed;
    r->answers += more->answers;
    r->tokens += more->tokens;
}

static int by_place(const void *a, const void *b)
{
    int64_t x = ((const ares_group *)a)->place, y = ((const ares_group *)b)->place;
    return ARES_CMP(x, y);
}

int collect_groups(ares_trainer *t, ares_batch *b, ares_metrics *m)
{
    const ares_train_config *cfg = t->run.cfg;
    step_groups c = { .arena = &b->arena };
    const char *policy = cfg->filter.empty_policy;
    step_draws r, earlier = { 0 };
    int64_t count, attempts = 1;
    ARES_TRY(draw_batch(t, &r, &c, &count, m));
    /* algorithm.filter_empty_policy=retry: a batch without a group is drawn anew */
    for (; r.empty && policy && strcmp(policy, "retry") == 0 && attempts < EMPTY_ROUNDS;
         attempts++) {
        add_counts(&earlier, &r);
        ARES_TRY(draw_batch(t, &r, &c, &count, m));
    }
    b->empty = r.empty;
    b->filled_from = r.filled_from;
    b->advantage_scale =
        ares_filter_loss_scale(cfg->filter.loss_scaling, r.counts.kept, r.counts.groups);
    add_counts(&r, &earlier);
    if (policy) ares_metrics_set(m, "train/rollout_attempts", (double)attempts);
    if (ares_world_size(t->run.world) > 1) ARES_TRY(exchange_groups(t, &c, count));
    qsort(c.items, (size_t)c.count, sizeof *c.items, by_place);
    ARES_TRY(report(t, &r, count, m));
    ares_batch_fill(b, c.items, c.count);
    return adjust_batch(cfg, t->adv, t->run.world, t->run.step, b, m);
}
