/*
 * The groups of a step: prompts are drawn, answered and judged, groups that the filters drop are replaced by further
 * draws, until the batch is full; the earliest draws make it (aepo.md 1.4). Ranks answer their share of every draw; when
 * filters have left them unequal numbers, groups are dealt out again in the order of their draws, so that what is trained
 * on depends on no rank count.
 */
#include <stdlib.h>
#include <string.h>

#include "ares/algo_filter.h"
#include "controls.h"
#include "generate.h"

typedef struct collection {
    generate_group *items;       /* arrays and texts in the step's arena */
    int64_t count, cap;          /* of this rank */
    ares_arena *arena;
} collection;

static generate_group *add(collection *c)
{
    if (c->count == c->cap) {
        int64_t cap = c->cap * 2 + 64;
        generate_group *items = ares_arena_alloc(c->arena, (size_t)cap * sizeof *items);
        if (c->count) memcpy(items, c->items, (size_t)c->count * sizeof *items);
        c->items = items;
        c->cap = cap;
    }
    return &c->items[c->count++];
}

/* ---------------------------------------------------------------- one draw */
typedef struct draw {
    int64_t count;               /* prompts of this rank */
    const ares_row **rows;
    int64_t *numbers;
    const int64_t *ids;          /* of all ranks, in the order of the draw */
    generate_sample *samples, *greedy; /* [count * n]; [count], where a baseline is wanted */
} draw;

static int draw_prompts(ares_trainer *t, ares_arena *arena, draw *d)
{
    int64_t size = t->loader.batch, ranks = ares_world_size(t->world), rank = ares_world_rank(t->world), first;
    int64_t *ids = ares_arena_alloc(arena, (size_t)size * sizeof *ids);
    *d = (draw){ .count = size / ranks, .ids = ids };
    d->rows = ares_arena_alloc(arena, (size_t)d->count * sizeof *d->rows);
    d->numbers = ares_arena_alloc(arena, (size_t)d->count * sizeof *d->numbers);
    ARES_TRY(ares_loader_next(&t->loader, ids, &first));
    for (int64_t i = 0; i < d->count; i++) { /* dealt out in turn, so that every mini-batch is spread over all ranks */
        d->rows[i] = ares_dataset_row(t->train, ids[i * ranks + rank]);
        d->numbers[i] = first + i * ranks + rank;
    }
    return ARES_OK;
}

static void *copy(ares_arena *arena, const void *data, size_t bytes) { return ares_arena_copy(arena, data, bytes); }

static int answer(ares_trainer *t, ares_arena *arena, draw *d, ares_metrics *m)
{
    ares_sampling sampling;
    generate_sampling(t->cfg, &sampling);
    generate_job job = { .n_prompts = d->count, .n = t->cfg->rollout.n, .rows = d->rows, .draws = d->numbers, .sampling = &sampling,
                         .key = ares_rng_root((uint64_t)t->cfg->rollout.seed, ARES_RNG_SAMPLE), .metrics = m };
    ARES_TRY(generate_samples(t, &job, arena, &d->samples));
    generate_keep(d->samples, d->count * job.n, arena);
    if (!(t->adv->needs & ARES_NEEDS_BASELINE)) return ARES_OK;
    sampling.temperature = 0;
    job.n = 1;
    return generate_samples(t, &job, arena, &d->greedy);
}

/* ---------------------------------------------------------------- several ranks */
typedef struct wire_group { int64_t draw, row; float baseline; } wire_group;
typedef struct wire_sample { int64_t text; int32_t n_tokens, finish; float score, accuracy; bool stopped, failed, marked; } wire_sample;

static void put(ares_str *out, const void *data, size_t bytes) { ares_str_add(out, data, bytes); }

static void write_group(const generate_group *g, int64_t n, int parts, ares_str *out)
{
    wire_group head = { g->draw, g->row->id, g->baseline };
    put(out, &head, sizeof head);
    for (int64_t i = 0; i < n; i++) {
        const generate_sample *s = &g->samples[i];
        const ares_completion *c = &s->completion;
        wire_sample w = { (int64_t)s->item.in.response.len, c->n_tokens, (int32_t)c->finish, s->item.score, s->item.accuracy, s->item.in.stopped, s->item.failed, s->hwe_candidates != NULL };
        size_t bytes = (size_t)c->n_tokens * 4;
        put(out, &w, sizeof w);
        put(out, c->ids, bytes);
        put(out, c->log_probs, bytes);
        put(out, c->entropies, bytes);
        put(out, c->entropies_1, bytes);
        if (w.marked) put(out, s->hwe_candidates, (size_t)c->n_tokens);
        put(out, s->item.parts, (size_t)parts * sizeof(float));
        put(out, s->item.in.response.data, s->item.in.response.len);
    }
}

static const void *take(const char **at, size_t bytes, ares_arena *arena)
{
    const void *taken = copy(arena, *at, bytes);
    *at += bytes;
    return taken;
}

static const char *read_group(const ares_trainer *t, const char *at, int64_t n, int parts, ares_arena *arena, generate_group *g)
{
    wire_group head;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    *g = (generate_group){ .draw = head.draw, .row = ares_dataset_row(t->train, head.row), .baseline = head.baseline,
                  .samples = ares_arena_calloc(arena, (size_t)n, sizeof *g->samples) };
    for (int64_t i = 0; i < n; i++) {
        wire_sample w;
        memcpy(&w, at, sizeof w);
        at += sizeof w;
        size_t bytes = (size_t)w.n_tokens * 4;
        generate_sample *s = &g->samples[i];
        s->completion = (ares_completion){ .index = (int32_t)i, .n_tokens = w.n_tokens, .finish = (ares_finish)w.finish };
        s->completion.ids = take(&at, bytes, arena);
        s->completion.log_probs = take(&at, bytes, arena);
        s->completion.entropies = take(&at, bytes, arena);
        s->completion.entropies_1 = take(&at, bytes, arena);
        if (w.marked) {
            s->hwe_candidates = copy(arena, at, (size_t)w.n_tokens);
            at += w.n_tokens;
        }
        s->item = (ares_reward_item){ .score = w.score, .accuracy = w.accuracy, .failed = w.failed };
        s->item.parts = copy(arena, at, (size_t)parts * sizeof(float));
        at += (size_t)parts * sizeof(float);
        s->item.in = (ares_verify_in){ .ground_truth = g->row->ground_truth, .prompt = g->row->prompt_text, .stopped = w.stopped, .row = g->row->json };
        s->item.in.response = (ares_view){ take(&at, (size_t)w.text, arena), (size_t)w.text };
    }
    return at;
}

static int by_draw(const void *a, const void *b)
{
    int64_t x = ((const generate_group *)a)->draw, y = ((const generate_group *)b)->draw;
    return (x > y) - (x < y);
}

/* All ranks' groups, the earliest `wanted` of them dealt out in turn. */
static int deal(ares_trainer *t, collection *c, int64_t wanted)
{
    int64_t n = t->cfg->rollout.n, ranks = ares_world_size(t->world), rank = ares_world_rank(t->world), mine = 0;
    int parts = ares_reward_count(t->reward);
    ares_str out = { 0 }, all = { 0 };
    for (int64_t g = 0; g < c->count; g++) write_group(&c->items[g], n, parts, &out);
    int rc = ares_world_gather_all(t->world, out.data, out.len, &all, NULL);
    ares_str_fini(&out);
    if (rc == ARES_OK) {
        c->count = 0;
        for (const char *at = all.data, *end = all.data + all.len; at < end;) at = read_group(t, at, n, parts, c->arena, add(c));
        qsort(c->items, (size_t)c->count, sizeof *c->items, by_draw);
        for (int64_t g = 0; g < ARES_MIN(c->count, wanted); g++)
            if (g % ranks == rank) c->items[mine++] = c->items[g];
        c->count = mine;
    }
    ares_str_fini(&all);
    return rc;
}

/* ---------------------------------------------------------------- filters */
typedef struct row_numbers { double score, accuracy, length, entropy; } row_numbers;

/* What filters compare of a group's answers, row by row. */
static void numbers_of(const draw *d, int64_t n, row_numbers *out)
{
    for (int64_t r = 0; r < d->count * n; r++) {
        const generate_sample *s = &d->samples[r];
        double entropy = 0;
        for (int32_t i = 0; i < s->completion.n_tokens; i++) entropy += (double)s->completion.entropies_1[i];
        out[r] = (row_numbers){ (double)s->item.score, (double)s->item.accuracy, s->completion.n_tokens, s->completion.n_tokens ? entropy / s->completion.n_tokens : 0 };
    }
}

/* Which of this rank's groups stay. The filters see the groups of all ranks, in the order of their draws, and decide alike on every rank. */
static int keep_groups(ares_trainer *t, const draw *d, int64_t in_play, ares_arena *arena, bool *keep, ares_metrics *m)
{
    const ares_filter_config *cfg = &t->cfg->filter;
    int64_t n = t->cfg->rollout.n, ranks = ares_world_size(t->world), rank = ares_world_rank(t->world), groups = d->count * ranks;
    memset(keep, 1, (size_t)d->count);
    if (!ares_filter_needs(cfg)) return ARES_OK;
    row_numbers *mine = ares_arena_calloc(arena, (size_t)(d->count * n) + 1, sizeof *mine);
    ares_str all = { 0 };
    numbers_of(d, n, mine);
    ARES_TRY(ares_world_gather_all(t->world, mine, (size_t)(d->count * n) * sizeof *mine, &all, NULL));
    const row_numbers *rows = (const row_numbers *)(const void *)all.data;
    double *x = ares_arena_calloc(arena, (size_t)(groups * n) * 4 + 1, sizeof *x);
    int64_t *start = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *start);
    const char **source = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *source);
    for (int64_t g = 0; g < groups; g++) {
        start[g + 1] = (g + 1) * n;
        source[g] = ares_dataset_row(t->train, d->ids[g])->data_source;
        for (int64_t i = 0; i < n; i++) {
            const row_numbers *r = &rows[(g % ranks * d->count + g / ranks) * n + i];
            double of[4] = { r->score, r->accuracy, r->length, r->entropy };
            for (int k = 0; k < 4; k++) x[k * groups * n + g * n + i] = of[k];
        }
    }
    ares_str_fini(&all);
    ares_groups view = { .groups = groups, .group_start = start, .score = x, .accuracy = x + groups * n, .length = x + 2 * groups * n, .entropy = x + 3 * groups * n, .source = source,
                         .in_play = in_play + groups, .target = t->cfg->data.rollout_batch_size };
    ares_verdict *verdict = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *verdict);
    ARES_TRY(ares_filter_groups(cfg, &view, verdict));
    ares_filter_report(cfg, &view, verdict, m);
    for (int64_t g = 0; g < d->count; g++) keep[g] = verdict[g * ranks + rank].keep;
    return ARES_OK;
}

/* Controls see every group that is answered, the dropped ones included. */
static int show_generated(ares_trainer *t, const draw *d)
{
    if (!controls_want_generated(t->controls)) return ARES_OK;
    int64_t n = t->cfg->rollout.n;
    generate_group *groups = ares_calloc((size_t)d->count + 1, sizeof *groups);
    for (int64_t g = 0; g < d->count; g++) groups[g] = (generate_group){ d->numbers[g], d->rows[g], d->samples + g * n, 0 };
    ares_batch b;
    ares_batch_init(&b);
    generate_fill(&b, groups, d->count, n, t->actor.optim.updates);
    int rc = controls_generated(t->controls, &b);
    ares_batch_fini(&b);
    ares_free(groups);
    return rc;
}

/* ---------------------------------------------------------------- until the batch is full */
static int collect(ares_trainer *t, collection *c, double *scale, ares_metrics *m)
{
    int64_t n = t->cfg->rollout.n, wanted = t->cfg->data.rollout_batch_size, limit = t->cfg->trainer.max_try_make_batch, tries = 0, counts[2] = { 0 };
    while (counts[1] < wanted) {
        draw d;
        if (limit > 0 && tries == limit)
            return ares_fail(ARES_ELIMIT, "filter: %lld draws gave %lld prompts, of which %lld stay, and a batch takes %lld; widen the filter, choose other prompts, or raise trainer.max_try_make_batch (now %lld; 0: no limit)",
                             (long long)tries, (long long)counts[0], (long long)counts[1], (long long)wanted, (long long)limit);
        ARES_TRY(draw_prompts(t, c->arena, &d));
        ARES_TRY(ares_world_agree(t->world, answer(t, c->arena, &d, m)));
        bool *keep = ares_arena_calloc(c->arena, (size_t)d.count + 1, sizeof *keep);
        ARES_TRY(show_generated(t, &d));
        ARES_TRY(keep_groups(t, &d, counts[1], c->arena, keep, m));
        int64_t kept = 0;
        for (int64_t g = 0; g < d.count; g++) {
            if (!keep[g]) continue;
            *add(c) = (generate_group){ d.numbers[g], d.rows[g], d.samples + g * n, d.greedy ? d.greedy[g].item.score : 0 };
            kept++;
        }
        ARES_TRY(ares_world_sum_i64(t->world, &kept, 1));
        counts[0] += t->loader.batch;
        counts[1] += kept;
        tries++;
    }
    *scale = ares_filter_loss_scale(t->cfg->filter.loss_scaling, counts[1], counts[0]);
    ares_metrics_set(m, "filter/tries", (double)tries);
    ares_metrics_set(m, "filter/generated_groups", (double)counts[0]);
    ares_metrics_set(m, "filter/kept_groups", (double)counts[1]);
    if (ares_world_size(t->world) > 1 && counts[0] != wanted) return deal(t, c, wanted);
    c->count = ARES_MIN(c->count, wanted / ares_world_size(t->world));
    return ARES_OK;
}

int collect_groups(ares_trainer *t, ares_batch *b, ares_metrics *m)
{
    collection c = { .arena = &b->arena };
    ARES_TRY(collect(t, &c, &b->advantage_scale, m));
    generate_fill(b, c.items, c.count, t->cfg->rollout.n, t->actor.optim.updates);
    return ARES_OK;
}
