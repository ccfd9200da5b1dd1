/*
 * The groups of a step: prompts are drawn, answered and judged, groups that the filters drop are replaced by further
 * draws, until the batch is full; the earliest draws make it (aepo.md 1.4), or the draws are used up (dapo.md 5.3: how many
 * there are, and what is done then, resample.c decides). Ranks answer their share of every draw; then each mini-batch's
 * groups go to the ranks anew, so that work is even. Which groups make a mini-batch depends on their places in the batch
 * alone, and so on no rank count.
 */
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ares/algo_filter.h"
#include "controls.h"
#include "deal.h"
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
    int64_t total, count;        /* prompts: of all ranks, of this one */
    int64_t *ids, *all_numbers;  /* [total]: rows of the data set, numbers of the draws in the run; in the order of the draw */
    uint64_t attempt;            /* how often these prompts have been answered before in this step */
    const ares_row **rows;       /* [count], as the rest: this rank's */
    int64_t *numbers;
    generate_sample *samples, *greedy; /* [count * n]; [count], where a baseline is wanted */
} draw;

static int64_t share_of(int64_t total, int64_t ranks, int64_t rank) { return (total - rank + ranks - 1) / ranks; }

static void open_draw(ares_arena *arena, draw *d, int64_t total, uint64_t attempt)
{
    size_t room = (size_t)total + 1;
    *d = (draw){ .total = total, .attempt = attempt };
    d->ids = ares_arena_alloc(arena, room * sizeof *d->ids);
    d->all_numbers = ares_arena_alloc(arena, room * sizeof *d->all_numbers);
}

static int draw_prompts(ares_trainer *t, ares_arena *arena, int64_t total, draw *d)
{
    open_draw(arena, d, total, 0);
    for (int64_t at = 0, first; at < total; at += t->loader.batch) {
        ARES_TRY(ares_loader_next(&t->loader, d->ids + at, &first));
        for (int64_t i = 0; i < t->loader.batch; i++) d->all_numbers[at + i] = first + i;
    }
    return ARES_OK;
}

/* The prompts of a draw whose groups were not kept, once more. */
static void draw_again(ares_arena *arena, const bool *keep, draw *d)
{
    draw before = *d;
    open_draw(arena, d, before.total, before.attempt + 1);
    d->total = 0;
    for (int64_t g = 0; g < before.total; g++) {
        if (keep[g]) continue;
        d->ids[d->total] = before.ids[g];
        d->all_numbers[d->total++] = before.all_numbers[g];
    }
}

/* Prompts are dealt out in turn: nothing is known of their answers yet. */
static void take_share(ares_trainer *t, ares_arena *arena, draw *d)
{
    int64_t ranks = ares_world_size(t->world), rank = ares_world_rank(t->world);
    d->count = share_of(d->total, ranks, rank);
    d->rows = ares_arena_alloc(arena, ((size_t)d->count + 1) * sizeof *d->rows);
    d->numbers = ares_arena_alloc(arena, ((size_t)d->count + 1) * sizeof *d->numbers);
    for (int64_t i = 0; i < d->count; i++) {
        d->rows[i] = ares_dataset_row(t->train, d->ids[i * ranks + rank]);
        d->numbers[i] = d->all_numbers[i * ranks + rank];
    }
}

static void *copy(ares_arena *arena, const void *data, size_t bytes) { return ares_arena_copy(arena, data, bytes); }

static int answer(ares_trainer *t, ares_arena *arena, draw *d, ares_metrics *m)
{
    ares_sampling sampling;
    generate_sampling(t->cfg, &sampling);
    generate_job job = { .n_prompts = d->count, .n = t->cfg->rollout.n, .rows = d->rows, .draws = d->numbers, .sampling = &sampling, .attempt = d->attempt,
                         .key = ares_rng_root((uint64_t)t->cfg->rollout.seed, ARES_RNG_SAMPLE), .metrics = m };
    ARES_TRY(generate_samples(t, &job, arena, &d->samples));
    generate_keep(d->samples, d->count * job.n, arena);
    generate_discard(t->cfg, d->samples, d->count * job.n);
    if (!(t->adv->needs & ARES_NEEDS_BASELINE)) return ARES_OK;
    sampling.temperature = 0;
    job.n = 1;
    return generate_samples(t, &job, arena, &d->greedy);
}

/* ---------------------------------------------------------------- several ranks */
/* bytes: of the header and all that follows */
typedef struct wire_group { int64_t draw, row, place, bytes; float baseline; bool masked; } wire_group;
typedef struct wire_sample { int64_t text; int32_t n_tokens, finish; float score, accuracy; bool stopped, failed, marked, discarded; } wire_sample;

static void put(ares_str *out, const void *data, size_t bytes) { ares_str_add(out, data, bytes); }

static void write_group(const generate_group *g, int64_t n, int parts, ares_str *out)
{
    wire_group head = { g->draw, g->row->id, g->place, 0, g->baseline, g->masked };
    size_t at = out->len;
    put(out, &head, sizeof head);
    for (int64_t i = 0; i < n; i++) {
        const generate_sample *s = &g->samples[i];
        const ares_completion *c = &s->completion;
        wire_sample w = { (int64_t)s->item.in.response.len, c->n_tokens, (int32_t)c->finish, s->item.score, s->item.accuracy, s->item.in.stopped, s->item.failed, s->hwe_candidates != NULL, s->discarded };
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
    head.bytes = (int64_t)(out->len - at);
    memcpy(out->data + at, &head, sizeof head);
}

static const void *take(const char **at, size_t bytes, ares_arena *arena)
{
    const void *taken = copy(arena, *at, bytes);
    *at += bytes;
    return taken;
}

static void read_group(const ares_trainer *t, const char *at, int64_t n, int parts, ares_arena *arena,
                       generate_group *g)
{
    wire_group head;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    *g = (generate_group){ .draw = head.draw, .row = ares_dataset_row(t->train, head.row), .baseline = head.baseline, .place = head.place, .masked = head.masked,
                  .samples = ares_arena_calloc(arena, (size_t)n, sizeof *g->samples) };
    for (int64_t i = 0; i < n; i++) {
        wire_sample w;
        memcpy(&w, at, sizeof w);
        at += sizeof w;
        size_t bytes = (size_t)w.n_tokens * 4;
        generate_sample *s = &g->samples[i];
        s->discarded = w.discarded;
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
}

static int by_place(const void *a, const void *b)
{
    int64_t x = ((const generate_group *)a)->place, y = ((const generate_group *)b)->place;
    return (x > y) - (x < y);
}

/* Work of a group's forward pass, as the update packs it. */
static int64_t work_of(const ares_trainer *t, const generate_group *g)
{
    int64_t prompt = g->row->prompt_len, shared = t->cfg->actor.share_prompts ? prompt : 0;
    int64_t tokens = shared, squares = shared * shared;
    for (int64_t i = 0; i < t->cfg->rollout.n; i++) {
        int64_t length = prompt + ARES_MAX(g->samples[i].completion.n_tokens - 1, 0); /* the last token is not fed */
        tokens += length - shared;
        squares += length * length - shared * shared;
    }
    return ares_train_work(&t->model->cfg, tokens, squares);
}

/* Groups of one chunk go to the ranks together: it divides the mini-batches of the actor and of the critic. */
static int64_t chunk_of(const ares_trainer *t)
{
    int64_t a = t->cfg->actor.global_batch_size, b = t->critic ? t->cfg->critic.global_batch_size : a;
    if (b == ARES_NULL_I64) b = a;
    for (int64_t rest; b; b = rest) {
        rest = a % b;
        a = b;
    }
    return a;
}

typedef struct wire_place { int64_t place, rank, work; } wire_place;

/* The rank that trains on the group at each of `count` places. *moves: some group lies elsewhere. Ranks agree. */
static int choose_ranks(ares_trainer *t, const collection *c, int64_t count, int64_t *rank, bool *moves)
{
    wire_place *mine = ares_arena_alloc(c->arena, ((size_t)c->count + 1) * sizeof *mine);
    int64_t *work = ares_arena_calloc(c->arena, (size_t)count + 1, sizeof *work);
    ares_str all = { 0 };
    for (int64_t g = 0; g < c->count; g++)
        mine[g] = (wire_place){ c->items[g].place, ares_world_rank(t->world), work_of(t, &c->items[g]) };
    int rc = ares_world_gather_all(t->world, mine, (size_t)c->count * sizeof *mine, &all, NULL);
    const wire_place *places = (const wire_place *)(const void *)all.data;
    for (int64_t i = 0; i < count && rc == ARES_OK; i++) work[places[i].place] = places[i].work;
    if (rc == ARES_OK)
        rc = deal_ranks(work, count, chunk_of(t), ares_world_size(t->world),
                        t->cfg->trainer.balance_batch, rank);
    *moves = false;
    for (int64_t i = 0; i < count && rc == ARES_OK; i++)
        *moves = *moves || rank[places[i].place] != places[i].rank;
    ares_str_fini(&all);
    return rc;
}

/* The groups of the batch go to the ranks that train on them. */
static int deal(ares_trainer *t, collection *c, int64_t count)
{
    int64_t n = t->cfg->rollout.n, me = ares_world_rank(t->world), kept = 0;
    int64_t *rank = ares_arena_alloc(c->arena, ((size_t)count + 1) * sizeof *rank);
    int parts = ares_reward_count(t->reward);
    bool moves;
    ares_str out = { 0 }, all = { 0 };
    ARES_TRY(choose_ranks(t, c, count, rank, &moves));
    if (!moves) return ARES_OK;
    for (int64_t g = 0; g < c->count; g++) {
        generate_group group = c->items[g];
        if (rank[group.place] == me) c->items[kept++] = group;
        else write_group(&group, n, parts, &out);
    }
    c->count = kept;
    int rc = ares_world_gather_all(t->world, out.data, out.len, &all, NULL);
    ares_str_fini(&out);
    for (const char *at = all.data, *end = at + (rc == ARES_OK ? all.len : 0); at < end;) {
        wire_group head;
        memcpy(&head, at, sizeof head);
        if (rank[head.place] == me) read_group(t, at, n, parts, c->arena, add(c));
        at += head.bytes;
    }
    ares_str_fini(&all);
    return rc;
}

/* ---------------------------------------------------------------- filters */
typedef struct row_numbers { double score, accuracy, length, entropy; uint8_t valid; } row_numbers;

/* What filters compare of a group's answers, row by row. */
static void numbers_of(const ares_trainer *t, const draw *d, int64_t n, row_numbers *out)
{
    for (int64_t r = 0; r < d->count * n; r++) {
        const generate_sample *s = &d->samples[r];
        double entropy = 0;
        for (int32_t i = 0; i < s->completion.n_tokens; i++) entropy += (double)s->completion.entropies_1[i];
        out[r] = (row_numbers){ ares_reward_unshaped(t->reward, s->item.score, s->item.parts, s->item.in.stopped), (double)s->item.accuracy, s->completion.n_tokens,
                                s->completion.n_tokens ? entropy / s->completion.n_tokens : 0, !s->discarded };
    }
}

static int on_trial(ares_trainer *t, const draw *d, int (*see)(ares_trainer *t, ares_batch *b, row_numbers *out), row_numbers *out)
{
    int64_t n = t->cfg->rollout.n;
    generate_group *groups = ares_calloc((size_t)d->count + 1, sizeof *groups);
    for (int64_t g = 0; g < d->count; g++) groups[g] = (generate_group){ .draw = d->numbers[g], .row = d->rows[g], .samples = d->samples + g * n };
    ares_batch b;
    ares_batch_init(&b);
    generate_fill(&b, groups, d->count, n, t->actor.optim.updates);
    int rc = see(t, &b, out);
    ares_batch_fini(&b);
    ares_free(groups);
    return rc;
}

/* Scores as the controls would have them shaped if the step ended here (aepo.md 1.4). */
static int shape_on_trial(ares_trainer *t, ares_batch *b, row_numbers *out)
{
    ARES_TRY(controls_provisional(t->controls, b));
    for (int64_t r = 0; r < b->rows; r++) out[r].score += ares_reward_shaping(t->reward, &b->samples[r]);
    return ARES_OK;
}

static bool filters_shaped_scores(const ares_trainer *t)
{
    const ares_filter_config *f = &t->cfg->filter;
    return f->online_filtering && strcmp(f->filter_key, "overall") == 0 && ares_reward_shapes(t->reward);
}

/* The same of all ranks, as arrays in the order of the draw. */
static int gather_groups(ares_trainer *t, const draw *d, ares_arena *arena, ares_groups *view)
{
    int64_t n = t->cfg->rollout.n, ranks = ares_world_size(t->world), groups = d->total, rows = groups * n;
    row_numbers *mine = ares_arena_calloc(arena, (size_t)(d->count * n) + 1, sizeof *mine);
    ares_str all = { 0 };
    numbers_of(t, d, n, mine);
    if (filters_shaped_scores(t)) ARES_TRY(on_trial(t, d, shape_on_trial, mine));
    ARES_TRY(ares_world_gather_all(t->world, mine, (size_t)(d->count * n) * sizeof *mine, &all, NULL));
    double *x = ares_arena_calloc(arena, (size_t)rows * 4 + 1, sizeof *x);
    uint8_t *valid = ares_arena_calloc(arena, (size_t)rows + 1, 1);
    int64_t *start = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *start);
    const char **source = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *source);
    const row_numbers *r = (const row_numbers *)(const void *)all.data;
    for (int64_t rank = 0; rank < ranks; rank++)
        for (int64_t g = rank; g < groups; g += ranks)
            for (int64_t i = g * n; i < (g + 1) * n; i++, r++) {
                double of[4] = { r->score, r->accuracy, r->length, r->entropy };
                for (int k = 0; k < 4; k++) x[k * rows + i] = of[k];
                valid[i] = r->valid;
            }
    ares_str_fini(&all);
    for (int64_t g = 0; g < groups; g++) {
        start[g + 1] = (g + 1) * n;
        source[g] = ares_dataset_row(t->train, d->ids[g])->data_source;
    }
    *view = (ares_groups){ .groups = groups, .group_start = start, .score = x, .accuracy = x + rows, .length = x + 2 * rows, .entropy = x + 3 * rows, .valid = valid, .source = source };
    return ARES_OK;
}

/* Which groups of a draw stay, of all ranks: the filters see all of them, in the order of the draw, and decide alike on every rank. */
static int keep_groups(ares_trainer *t, const draw *d, int64_t kept, ares_arena *arena, bool *keep, ares_metrics *m)
{
    const ares_filter_config *cfg = &t->cfg->filter;
    ares_groups view;
    memset(keep, 1, (size_t)d->total);
    if (!ares_filter_needs(cfg)) return ARES_OK;
    ARES_TRY(gather_groups(t, d, arena, &view));
    view.in_play = kept + d->total;
    view.target = t->cfg->data.rollout_batch_size;
    ares_verdict *verdict = ares_arena_calloc(arena, (size_t)d->total + 1, sizeof *verdict);
    ARES_TRY(ares_filter_groups(cfg, &view, verdict));
    ares_filter_report(cfg, &view, verdict, m);
    for (int64_t g = 0; g < d->total; g++) keep[g] = verdict[g].keep;
    return ARES_OK;
}

static int see_generated(ares_trainer *t, ares_batch *b, row_numbers *out)
{
    (void)out;
    return controls_generated(t->controls, b);
}

/* Controls see every group that is answered, the dropped ones included. */
static int show_generated(ares_trainer *t, const draw *d) { return controls_want_generated(t->controls) ? on_trial(t, d, see_generated, NULL) : ARES_OK; }

/* ---------------------------------------------------------------- until the batch is full */
typedef struct rounds {
    ares_resampling s;
    int64_t *kept, *dropped;     /* groups, numbered as they were drawn in the step */
    bool same_prompt;
    double right[2];             /* of all answers of this rank that were judged right or wrong and not discarded: sum and number */
    double tokens;               /* of all answers of this rank, greedy baselines included */
} rounds;

static void open_rounds(const ares_train_config *cfg, rounds *r)
{
    int64_t limit = cfg->trainer.max_try_make_batch, drawn = cfg->data.mini_rollout_batch_size;
    *r = (rounds){ .same_prompt = strcmp(cfg->filter.resample_mode, "same_prompt") == 0 };
    r->s.target = cfg->data.rollout_batch_size;
    r->s.batch = r->same_prompt ? 0 : drawn == ARES_NULL_I64 ? r->s.target : drawn;
    r->s.max_resample = cfg->filter.max_resample != ARES_NULL_I64 ? cfg->filter.max_resample : limit > 0 ? limit - 1 : -1;
}

static int64_t *longer(ares_arena *arena, const int64_t *numbers, int64_t n, int64_t room)
{
    int64_t *more = ares_arena_alloc(arena, ((size_t)room + 1) * sizeof *more);
    if (n) memcpy(more, numbers, (size_t)n * sizeof *more);
    return more;
}

/* One draw is answered and judged; its groups join the collection. */
static int draw_round(ares_trainer *t, rounds *r, int64_t size, draw *d, bool **keep, collection *c, ares_metrics *m)
{
    int64_t n = t->cfg->rollout.n, ranks = ares_world_size(t->world), rank = ares_world_rank(t->world), room = r->s.drawn + size;
    if (r->same_prompt && r->s.rounds) draw_again(c->arena, *keep, d);
    else ARES_TRY(draw_prompts(t, c->arena, size, d));
    take_share(t, c->arena, d);
    ARES_TRY(ares_world_agree(t->world, answer(t, c->arena, d, m)));
    ARES_TRY(show_generated(t, d));
    for (int64_t g = 0; d->greedy && g < d->count; g++) r->tokens += d->greedy[g].completion.n_tokens;
    for (int64_t i = 0; i < d->count * n; i++) {
        r->tokens += d->samples[i].completion.n_tokens;
        if (d->samples[i].discarded || isnan(d->samples[i].item.accuracy)) continue;
        r->right[0] += (double)d->samples[i].item.accuracy;
        r->right[1]++;
    }
    *keep = ares_arena_calloc(c->arena, (size_t)d->total + 1, sizeof **keep);
    ARES_TRY(keep_groups(t, d, r->s.kept + r->s.surplus, c->arena, *keep, m));
    for (int64_t g = 0; g < d->count; g++)
        *add(c) = (generate_group){ .draw = d->numbers[g], .row = d->rows[g], .samples = d->samples + g * n, .baseline = d->greedy ? d->greedy[g].item.score : 0,
                                    .place = r->s.drawn + g * ranks + rank };
    r->kept = longer(c->arena, r->kept, r->s.kept, room);
    r->dropped = longer(c->arena, r->dropped, ares_resampling_dropped(&r->s), room);
    ares_resampling_add(&r->s, *keep, d->total, r->kept, r->dropped);
    return ARES_OK;
}

/* Which groups make the batch, at what places. */
static int settle(ares_trainer *t, const rounds *r, collection *c, int64_t *count)
{
    const ares_filter_config *f = &t->cfg->filter;
    const char *action = f->on_exhausted ? f->on_exhausted : f->informative ? "fill_masked" : "error", *outcome;
    int64_t ranks = ares_world_size(t->world), masked, placed = 0, missing = r->s.target - r->s.kept;
    int64_t *batch = longer(c->arena, NULL, 0, r->s.target), *place = longer(c->arena, NULL, 0, r->s.drawn);
    /* Answered again, a prompt is among the dropped more than once: its last answers count. */
    const int64_t *dropped = r->dropped + (r->same_prompt ? ares_resampling_dropped(&r->s) - missing : 0);
    ARES_TRY(ares_resampling_finish(&r->s, action, ranks, r->kept, dropped, batch, count, &masked, &outcome));
    if (*count < ranks) ARES_TRY(ares_resampling_finish(&r->s, "fill_masked", ranks, r->kept, dropped, batch, count, &masked, &outcome)); /* a step without an update */
    *count -= *count % ranks;
    for (int64_t i = 0; i < r->s.drawn; i++) place[i] = -1;
    for (int64_t i = 0; i < *count; i++) place[batch[i]] = i;
    for (int64_t g = 0; g < c->count; g++) {
        generate_group group = c->items[g];
        group.place = place[group.place];
        group.masked = group.place >= masked;
        if (group.place >= 0) c->items[placed++] = group;
    }
    c->count = placed;
    if (ranks > 1) ARES_TRY(deal(t, c, *count));
    qsort(c->items, (size_t)c->count, sizeof *c->items, by_place);
    return ARES_OK;
}

static void report(const ares_train_config *cfg, const ares_resampling *s, int64_t count, ares_metrics *m)
{
    static const char *const reasons[] = { "all_correct", "all_wrong" };
    char name[64], as[64];
    ares_metrics_set(m, "filter/tries", (double)s->rounds);
    ares_metrics_set(m, "filter/generated_groups", (double)s->drawn);
    ares_metrics_set(m, "filter/kept_groups", (double)(s->kept + s->surplus));
    if (!cfg->filter.informative) return;
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
}

static int collect(ares_trainer *t, collection *c, double *scale, ares_metrics *m)
{
    rounds r;
    draw d = { 0 };
    bool *keep = NULL;
    int64_t size, count;
    open_rounds(t->cfg, &r);
    while ((size = ares_resampling_draw(&r.s)) > 0) ARES_TRY(draw_round(t, &r, size, &d, &keep, c, m));
    ARES_TRY(settle(t, &r, c, &count));
    ARES_TRY(ares_world_sum_f64(t->world, r.right, 2));
    ARES_TRY(ares_world_sum_f64(t->world, &r.tokens, 1));
    if (r.right[1] > 0) ares_metrics_set(m, "reward/accuracy", r.right[0] / r.right[1]); /* of everything generated (aepo.md 1.4) */
    ares_metrics_set(m, "rollout/generated_tokens", r.tokens);
    *scale = ares_filter_loss_scale(t->cfg->filter.loss_scaling, r.s.kept + r.s.surplus, r.s.drawn);
    report(t->cfg, &r.s, count, m);
    return ARES_OK;
}

/* Answers that were discarded for their length. */
static int count_discarded(ares_trainer *t, const collection *c, ares_metrics *m)
{
    int64_t n = t->cfg->rollout.n, counts[2] = { 0, c->count * n };
    if (t->cfg->reward.max_length == ARES_NULL_I64 && !t->cfg->filter.mask_truncated) return ARES_OK;
    for (int64_t r = 0; r < c->count * n; r++) counts[0] += c->items[r / n].samples[r % n].discarded;
    ARES_TRY(ares_world_sum_i64(t->world, counts, 2));
    if (counts[1]) ares_metrics_set(m, "dapo/discarded_frac", (double)counts[0] / (double)counts[1]);
    return ARES_OK;
}

int collect_groups(ares_trainer *t, ares_batch *b, ares_metrics *m)
{
    collection c = { .arena = &b->arena };
    ARES_TRY(collect(t, &c, &b->advantage_scale, m));
    ARES_TRY(count_discarded(t, &c, m));
    generate_fill(b, c.items, c.count, t->cfg->rollout.n, t->actor.optim.updates);
    return ARES_OK;
}
