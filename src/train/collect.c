/*
 * The groups of a step: prompts are drawn, answered and judged, groups that the filters drop are
 * replaced by further draws, until the batch is full; the earliest draws make it (aepo.md 1.4), or
 * the draws are used up (dapo.md 5.3: how many there are, and what is done then, resample.c
 * decides). RAGEN's ranking looks last, at the batch so filled, which comes out smaller (agentic.md
 * 3.3). Ranks answer their share of every draw; then each mini-batch's groups go to the ranks anew,
 * so that work is even. Which groups make a mini-batch depends on their places in the batch alone,
 * and so on no rank count.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/algo_filter.h"
#include "balance_groups.h"
#include "controls.h"
#include "generate.h"

typedef struct collection {
    generate_group *items; /* arrays and texts in the step's arena */
    int64_t count, cap;    /* of this rank */
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
    int64_t total, count; /* prompts: of all ranks, of this one */
    /* [total]: rows of the data set, numbers of the draws in the run; in the order of the draw */
    int64_t *ids, *all_numbers;
    /* how often these prompts have been answered before in this step */
    uint64_t attempt;
    const ares_row **rows; /* [count], as the rest: this rank's */
    int64_t *numbers;
    generate_sample *samples, *greedy; /* [count * n]; [count], where a baseline is wanted */
} draw;

static int64_t share_of(int64_t total, int64_t ranks, int64_t rank)
{
    return (total - rank + ranks - 1) / ranks;
}

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
    for (int64_t at = 0, first; at < total; at += t->run.loader.batch) {
        ARES_TRY(ares_loader_next(&t->run.loader, d->ids + at, &first));
        for (int64_t i = 0; i < t->run.loader.batch; i++) d->all_numbers[at + i] = first + i;
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
    int64_t ranks = ares_world_size(t->run.world), rank = ares_world_rank(t->run.world);
    d->count = share_of(d->total, ranks, rank);
    d->rows = ares_arena_alloc(arena, ((size_t)d->count + 1) * sizeof *d->rows);
    d->numbers = ares_arena_alloc(arena, ((size_t)d->count + 1) * sizeof *d->numbers);
    for (int64_t i = 0; i < d->count; i++) {
        d->rows[i] = ares_dataset_row(t->run.train, d->ids[i * ranks + rank]);
        d->numbers[i] = d->all_numbers[i * ranks + rank];
    }
}

static void *copy(ares_arena *arena, const void *data, size_t bytes)
{
    return ares_arena_copy(arena, data, bytes);
}

static int answer(ares_trainer *t, ares_arena *arena, draw *d, ares_metrics *m)
{
    ares_sampling sampling;
    generate_sampling(t->run.cfg, &sampling);
    generate_job job = { .n_prompts = d->count,
                         .n = t->run.cfg->rollout.n,
                         .rows = d->rows,
                         .draws = d->numbers,
                         .sampling = &sampling,
                         .attempt = d->attempt,
                         .key = ares_rng_root((uint64_t)t->run.cfg->rollout.seed, ARES_RNG_SAMPLE),
                         .metrics = m };
    ARES_TRY(generate_samples(t, &job, arena, &d->samples));
    generate_keep(d->samples, d->count * job.n, arena);
    generate_discard(t, d->samples, d->count * job.n);
    if (!(t->adv->needs & ARES_NEEDS_BASELINE)) return ARES_OK;
    sampling.temperature = 0;
    job.n = 1;
    return generate_samples(t, &job, arena, &d->greedy);
}

/* ---------------------------------------------------------------- several ranks */
/* bytes: of the header and all that follows */
typedef struct wire_group {
    int64_t draw, row, place, bytes;
    float baseline;
    bool masked, thinned;
} wire_group;
typedef struct wire_sample {
    int64_t text;
    int32_t n_tokens, finish;
    float score, accuracy;
    bool stopped, failed, marked, discarded;
} wire_sample;

static void put(ares_str *out, const void *data, size_t bytes)
{
    ares_str_add(out, data, bytes);
}

static void write_group(const generate_group *g, int64_t n, int parts, ares_str *out)
{
    wire_group head = { g->draw, g->row->id, g->place, 0, g->baseline, g->masked, g->thinned };
    size_t at = out->len;
    put(out, &head, sizeof head);
    for (int64_t i = 0; i < n; i++) {
        const generate_sample *s = &g->samples[i];
        const ares_completion *c = &s->completion;
        wire_sample w = { (int64_t)s->item.in.response.len,
                          c->n_tokens,
                          (int32_t)c->finish,
                          s->item.score,
                          s->item.accuracy,
                          s->item.in.stopped,
                          s->item.failed,
                          s->hwe_candidates != NULL,
                          s->discarded };
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

static void read_group(const ares_trainer *t, const char *at, int64_t n, int parts,
                       ares_arena *arena, generate_group *g)
{
    wire_group head;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    *g = (generate_group){ .draw = head.draw,
                           .row = ares_dataset_row(t->run.train, head.row),
                           .baseline = head.baseline,
                           .place = head.place,
                           .masked = head.masked,
                           .thinned = head.thinned,
                           .samples = ares_arena_calloc(arena, (size_t)n, sizeof *g->samples) };
    for (int64_t i = 0; i < n; i++) {
        wire_sample w;
        memcpy(&w, at, sizeof w);
        at += sizeof w;
        size_t bytes = (size_t)w.n_tokens * 4;
        generate_sample *s = &g->samples[i];
        s->discarded = w.discarded;
        s->completion = (ares_completion){ .index = (int32_t)i,
                                           .n_tokens = w.n_tokens,
                                           .finish = (ares_finish)w.finish };
        s->completion.ids = take(&at, bytes, arena);
        s->completion.log_probs = take(&at, bytes, arena);
        s->completion.entropies = take(&at, bytes, arena);
        s->completion.entropies_1 = take(&at, bytes, arena);
        if (w.marked) {
            s->hwe_candidates = copy(arena, at, (size_t)w.n_tokens);
            at += w.n_tokens;
        }
        s->item =
            (ares_reward_item){ .score = w.score, .accuracy = w.accuracy, .failed = w.failed };
        s->item.parts = copy(arena, at, (size_t)parts * sizeof(float));
        at += (size_t)parts * sizeof(float);
        s->item.in = (ares_verify_in){ .ground_truth = g->row->ground_truth,
                                       .prompt = g->row->prompt_text,
                                       .stopped = w.stopped,
                                       .row = g->row->json };
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
    int64_t prompt = g->row->prompt_len, shared = t->run.cfg->actor.share_prompts ? prompt : 0;
    int64_t tokens = shared, squares = shared * shared;
    for (int64_t i = 0; i < t->run.cfg->rollout.n; i++) {
        if (g->thinned && g->samples[i].discarded) continue;
        /* the last token is not fed */
        int64_t length = prompt + ARES_MAX(g->samples[i].completion.n_tokens - 1, 0);
        tokens += length - shared;
        squares += length * length - shared * shared;
    }
    return ares_train_work(&t->run.model->cfg, tokens, squares);
}

/*
 * Groups of one chunk go to the ranks together: it divides the mini-batches of the actor and of the
 * critic.
 */
static int64_t chunk_of(const ares_trainer *t)
{
    int64_t a = t->run.cfg->actor.global_batch_size,
            b = t->critic ? t->run.cfg->critic.global_batch_size : a;
    if (b == ARES_NULL_I64) b = a;
    for (int64_t rest; b; b = rest) {
        rest = a % b;
        a = b;
    }
    return a;
}

typedef struct wire_place {
    int64_t place, rank, work;
} wire_place;

/*
 * The rank that trains on the group at each of `count` places. *moves: some group lies elsewhere.
 * Ranks agree.
 */
static int choose_ranks(ares_trainer *t, const collection *c, int64_t count, int64_t *rank,
                        bool *moves)
{
    wire_place *mine = ares_arena_alloc(c->arena, ((size_t)c->count + 1) * sizeof *mine);
    int64_t *work = ares_arena_calloc(c->arena, (size_t)count + 1, sizeof *work);
    ares_str all = { 0 };
    for (int64_t g = 0; g < c->count; g++)
        mine[g] = (wire_place){ c->items[g].place, ares_world_rank(t->run.world),
                                work_of(t, &c->items[g]) };
    int rc = ares_world_gather_all(t->run.world, mine, (size_t)c->count * sizeof *mine, &all, NULL);
    const wire_place *places = (const wire_place *)(const void *)all.data;
    for (int64_t i = 0; i < count && rc == ARES_OK; i++) work[places[i].place] = places[i].work;
    if (rc == ARES_OK)
        rc = deal_ranks(work, count, chunk_of(t), ares_world_size(t->run.world),
                        t->run.cfg->trainer.balance_batch, rank);
    *moves = false;
    for (int64_t i = 0; i < count && rc == ARES_OK; i++)
        *moves = *moves || rank[places[i].place] != places[i].rank;
    ares_str_fini(&all);
    return rc;
}

/* The groups of the batch go to the ranks that train on them. */
static int deal(ares_trainer *t, collection *c, int64_t count)
{
    int64_t n = t->run.cfg->rollout.n, me = ares_world_rank(t->run.world), kept = 0;
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
    int rc = ares_world_gather_all(t->run.world, out.data, out.len, &all, NULL);
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

/* ---------------------------------------------------------------- what filters see */
/* Of one answer: the reward manager's score before any shaping, and as the batch would have it. */
typedef struct row_numbers {
    double score, overall, accuracy, length, entropy;
    uint8_t valid;
} row_numbers;

typedef struct rounds {
    ares_resampling s;
    /* the filters that see each draw, and the one that sees the batch */
    ares_filter_config of_draws, of_batch;
    bool looks; /* any filter is wanted, or answers are dropped */
    bool drops; /* discarded answers leave the batch */
    ares_filter_counts counts;
    int64_t *kept, *dropped; /* groups, numbered as they were drawn in the step */
    row_numbers *numbers;    /* [s.drawn * n], of all ranks, where filters look */
    int64_t *rows;           /* [s.drawn]: rows of the data set */
    bool same_prompt;
    /*
     * of all answers of this rank that were judged right or wrong and not discarded: sum and number
     */
    double right[2];
    /* of all answers of this rank: how many were, and how many there are */
    double discarded[2];
    double tokens; /* of all answers of this rank, greedy baselines included */
} rounds;

/* What filters compare of a group's answers, row by row. */
static void numbers_of(const draw *d, int64_t n, row_numbers *out)
{
    for (int64_t r = 0; r < d->count * n; r++) {
        const generate_sample *s = &d->samples[r];
        double entropy = 0;
        for (int32_t i = 0; i < s->completion.n_tokens; i++)
            entropy += (double)s->completion.entropies_1[i];
        out[r] = (row_numbers){ .score = (double)s->item.unshaped,
                                .overall = (double)s->item.score,
                                .accuracy = (double)s->item.accuracy,
                                .length = s->completion.n_tokens,
                                .valid = !s->discarded,
                                .entropy =
                                    s->completion.n_tokens ? entropy / s->completion.n_tokens : 0 };
    }
}

static int on_trial(ares_trainer *t, const draw *d,
                    int (*see)(ares_trainer *t, ares_batch *b, row_numbers *out), row_numbers *out)
{
    int64_t n = t->run.cfg->rollout.n;
    generate_group *groups = ares_calloc((size_t)d->count + 1, sizeof *groups);
    for (int64_t g = 0; g < d->count; g++)
        groups[g] = (generate_group){ .draw = d->numbers[g],
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

/* Scores as the controls would have them shaped if the step ended here (aepo.md 1.4). */
static int shape_on_trial(ares_trainer *t, ares_batch *b, row_numbers *out)
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

static void *longer(ares_arena *arena, const void *old, int64_t n, int64_t room, size_t size)
{
    char *more = ares_arena_alloc(arena, ((size_t)room + 1) * size);
    if (n) memcpy(more, old, (size_t)n * size);
    return more;
}

/* The numbers of a draw's groups, of all ranks, in the order of the draw. */
static int gather_numbers(ares_trainer *t, rounds *r, const draw *d, ares_arena *arena)
{
    int64_t n = t->run.cfg->rollout.n, ranks = ares_world_size(t->run.world), drawn = r->s.drawn;
    row_numbers *mine = ares_arena_calloc(arena, (size_t)(d->count * n) + 1, sizeof *mine);
    ares_str all = { 0 };
    numbers_of(d, n, mine);
    if (filters_shaped_scores(t)) ARES_TRY(on_trial(t, d, shape_on_trial, mine));
    ARES_TRY(ares_world_gather_all(t->run.world, mine, (size_t)(d->count * n) * sizeof *mine, &all,
                                   NULL));
    r->numbers = longer(arena, r->numbers, drawn * n, (drawn + d->total) * n, sizeof *r->numbers);
    r->rows = longer(arena, r->rows, drawn, drawn + d->total, sizeof *r->rows);
    memcpy(r->rows + drawn, d->ids, (size_t)d->total * sizeof *r->rows);
    size_t group = (size_t)n * sizeof *mine, at = 0;
    for (int64_t rank = 0; rank < ranks; rank++)
        for (int64_t g = rank; g < d->total; g += ranks, at += group)
            memcpy(r->numbers + (drawn + g) * n, all.data + at, group);
    ares_str_fini(&all);
    return ARES_OK;
}

/* The groups of these numbers, as filters take them. */
static ares_groups view_of(const ares_trainer *t, const rounds *r, const int64_t *ids,
                           int64_t groups, ares_arena *arena)
{
    int64_t n = t->run.cfg->rollout.n, rows = groups * n;
    double *x = ares_arena_calloc(arena, (size_t)rows * 5 + 1, sizeof *x);
    uint8_t *valid = ares_arena_calloc(arena, (size_t)rows + 1, 1);
    int64_t *start = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *start);
    const char **source = ares_arena_calloc(arena, (size_t)groups + 1, sizeof *source);
    for (int64_t i = 0; i < rows; i++) {
        const row_numbers *y = &r->numbers[ids[i / n] * n + i % n];
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

/*
 * Which groups of a draw stay. Filters see those of all ranks, in the order of the draw, and decide
 * alike.
 */
static int keep_groups(ares_trainer *t, rounds *r, const draw *d, ares_arena *arena, bool *keep,
                       ares_metrics *m)
{
    memset(keep, 1, (size_t)d->total);
    if (!r->looks) return ARES_OK;
    ARES_TRY(gather_numbers(t, r, d, arena));
    int64_t *ids = ares_arena_alloc(arena, ((size_t)d->total + 1) * sizeof *ids);
    for (int64_t g = 0; g < d->total; g++) ids[g] = r->s.drawn + g;
    ares_groups view = view_of(t, r, ids, d->total, arena);
    view.in_play = r->s.kept + r->s.surplus + d->total;
    view.target = r->s.target;
    ares_verdict *verdict = ares_arena_calloc(arena, (size_t)d->total + 1, sizeof *verdict);
    ARES_TRY(ares_filter_groups(&r->of_draws, &view, verdict));
    ares_filter_count(&view, verdict, &r->counts, m);
    for (int64_t g = 0; g < d->total; g++) keep[g] = verdict[g].keep;
    return ARES_OK;
}

static int see_generated(ares_trainer *t, ares_batch *b, row_numbers *out)
{
    (void)out;
    return controls_generated(t->run.controls, b);
}

/* Controls see every group that is answered, the dropped ones included. */
static int show_generated(ares_trainer *t, const draw *d)
{
    return controls_want_generated(t->run.controls) ? on_trial(t, d, see_generated, NULL) : ARES_OK;
}

/* ---------------------------------------------------------------- until the batch is full */
static void open_rounds(const ares_train_config *cfg, rounds *r)
{
    int64_t limit = cfg->trainer.max_try_make_batch, drawn = cfg->data.mini_rollout_batch_size;
    *r = (rounds){ .same_prompt = strcmp(cfg->filter.resample_mode, "same_prompt") == 0 };
    r->s.target = cfg->data.rollout_batch_size;
    r->s.batch = r->same_prompt ? 0 : drawn == ARES_NULL_I64 ? r->s.target : drawn;
    r->s.max_resample = cfg->filter.max_resample != ARES_NULL_I64 ? cfg->filter.max_resample
                        : limit > 0                               ? limit - 1
                                                                  : -1;
    ares_filter_stages(&cfg->filter, &r->of_draws, &r->of_batch);
    r->drops = strcmp(cfg->filter.over_length_action, "drop") == 0;
    r->looks = r->drops || ares_filter_needs(&cfg->filter);
}

/* One draw is answered and judged; its groups join the collection. */
static int draw_round(ares_trainer *t, rounds *r, int64_t size, draw *d, bool **keep, collection *c,
                      ares_metrics *m)
{
    int64_t n = t->run.cfg->rollout.n, ranks = ares_world_size(t->run.world),
            rank = ares_world_rank(t->run.world), room = r->s.drawn + size;
    if (r->same_prompt && r->s.rounds) draw_again(c->arena, *keep, d);
    else ARES_TRY(draw_prompts(t, c->arena, size, d));
    take_share(t, c->arena, d);
    ARES_TRY(ares_world_agree(t->run.world, answer(t, c->arena, d, m)));
    ARES_TRY(show_generated(t, d));
    for (int64_t g = 0; d->greedy && g < d->count; g++)
        r->tokens += d->greedy[g].completion.n_tokens;
    for (int64_t i = 0; i < d->count * n; i++) {
        r->tokens += d->samples[i].completion.n_tokens;
        r->discarded[0] += d->samples[i].discarded;
        r->discarded[1]++;
        if (d->samples[i].discarded || isnan(d->samples[i].item.accuracy)) continue;
        r->right[0] += (double)d->samples[i].item.accuracy;
        r->right[1]++;
    }
    *keep = ares_arena_calloc(c->arena, (size_t)d->total + 1, sizeof **keep);
    ARES_TRY(keep_groups(t, r, d, c->arena, *keep, m));
    for (int64_t g = 0; g < d->count; g++)
        *add(c) = (generate_group){ .draw = d->numbers[g],
                                    .row = d->rows[g],
                                    .samples = d->samples + g * n,
                                    .baseline = d->greedy ? d->greedy[g].item.score : 0,
                                    .place = r->s.drawn + g * ranks + rank };
    r->kept = longer(c->arena, r->kept, r->s.kept, room, sizeof *r->kept);
    r->dropped =
        longer(c->arena, r->dropped, ares_resampling_dropped(&r->s), room, sizeof *r->dropped);
    ares_resampling_add(&r->s, *keep, d->total, r->kept, r->dropped);
    return ARES_OK;
}

/* ---------------------------------------------------------------- the batch */
/*
 * The batch, as numbers of groups in its order: the first `taught` teach, the rest fill it and are
 * masked.
 */
typedef struct roster {
    int64_t *ids, count, taught;
} roster;

/*
 * What the draws have given. A smaller batch is cut to a multiple of the ranks, unless nothing
 * would be left.
 */
static int call_roll(const ares_trainer *t, const rounds *r, ares_arena *arena, roster *out)
{
    const char *action = ares_filter_on_exhausted(&t->run.cfg->filter), *outcome;
    int64_t ranks = ares_world_size(t->run.world), missing = r->s.target - r->s.kept;
    bool ranked = ares_filter_needs(&r->of_batch);
    /* Answered again, a prompt is among the dropped more than once: its last answers count. */
    const int64_t *dropped =
        r->dropped + (r->same_prompt && missing > 0 ? ares_resampling_dropped(&r->s) - missing : 0);
    out->ids = longer(arena, NULL, 0, r->s.drawn + r->s.target, sizeof *out->ids);
    ARES_TRY(ares_resampling_finish(&r->s, action, ranked ? 1 : ranks, r->kept, dropped, out->ids,
                                    &out->count, &out->taught, &outcome));
    if (out->count >= ranks) return ARES_OK;
    return ares_resampling_finish(&r->s, action, 1, r->kept, dropped, out->ids, &out->count,
                                  &out->taught, &outcome);
}

/*
 * RAGEN's ranking of the groups that teach. Those it drops are gone, or masked where that is asked
 * for.
 */
static int rank_batch(ares_trainer *t, rounds *r, ares_arena *arena, roster *b, ares_metrics *m)
{
    if (!ares_filter_needs(&r->of_batch)) return ARES_OK;
    bool alone = !ares_filter_needs(&r->of_draws);
    const char *action =
        t->run.cfg->filter.on_exhausted ? t->run.cfg->filter.on_exhausted : "smaller_batch";
    ares_groups view = view_of(t, r, b->ids, b->taught, arena);
    ares_verdict *verdict = ares_arena_calloc(arena, (size_t)b->taught + 1, sizeof *verdict);
    ares_filter_counts counts = { 0 };
    ARES_TRY(ares_filter_groups(&r->of_batch, &view, verdict));
    ares_filter_count(&view, verdict, &counts, m);
    int64_t dropped = counts.groups - counts.kept, kept = 0, n = counts.kept,
            *ids = longer(arena, NULL, 0, b->count, sizeof *ids);
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

static int64_t valid_answers(const rounds *r, int64_t id, int64_t n)
{
    int64_t valid = 0;
    for (int64_t i = id * n; i < (id + 1) * n; i++) valid += r->numbers[i].valid;
    return valid;
}

/* A group whose answers are all discarded is no part of a batch that they are dropped from. */
static void drop_empty(const rounds *r, int64_t n, roster *b)
{
    int64_t count = b->count, taught = b->taught;
    b->count = b->taught = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i < taught && !valid_answers(r, b->ids[i], n)) continue;
        b->taught += i < taught;
        b->ids[b->count++] = b->ids[i];
    }
}

/*
 * Whether its discarded answers leave the group. Where answers are compared and only one is left,
 * they stay, masked: it has nothing to be compared with, and learns nothing.
 */
static bool thins(const ares_trainer *t, const rounds *r, int64_t id)
{
    int64_t n = t->run.cfg->rollout.n, least = (t->adv->needs & ARES_NEEDS_GROUPS) && n > 1 ? 2 : 1;
    return r->drops && valid_answers(r, id, n) >= least;
}

/*
 * Every rank has as many groups as the others, and at least one: groups that are not in the batch
 * join it masked.
 */
static void complete(const rounds *r, int64_t ranks, ares_arena *arena, roster *b)
{
    bool *there = ares_arena_calloc(arena, (size_t)r->s.drawn + 1, sizeof *there);
    for (int64_t i = 0; i < b->count; i++) there[b->ids[i]] = true;
    for (int64_t id = 0; id < r->s.drawn && (b->count == 0 || b->count % ranks); id++)
        if (!there[id]) b->ids[b->count++] = id;
}

/* Which groups make the batch, at what places. */
static int settle(ares_trainer *t, rounds *r, collection *c, int64_t *count, ares_metrics *m)
{
    int64_t ranks = ares_world_size(t->run.world), placed = 0,
            *place = longer(c->arena, NULL, 0, r->s.drawn, sizeof *place);
    roster b = { 0 };
    ARES_TRY(call_roll(t, r, c->arena, &b));
    ARES_TRY(rank_batch(t, r, c->arena, &b, m));
    if (ares_filter_needs(&r->of_batch))
        ares_metrics_set(m, "rollout/empty_after_filter", b.taught == 0);
    if (r->drops) drop_empty(r, t->run.cfg->rollout.n, &b);
    complete(r, ranks, c->arena, &b);
    bool *masked = ares_arena_calloc(c->arena, (size_t)r->s.drawn + 1, sizeof *masked);
    for (int64_t i = b.taught; i < b.count; i++) masked[b.ids[i]] = true;
    if (t->run.cfg->actor.shuffle)
        ares_rng_shuffle(
            ares_rng_sub(ares_rng_root((uint64_t)t->run.cfg->rollout.seed, ARES_RNG_ORDER),
                         (uint64_t)t->run.step, 0),
            b.ids, b.count);
    for (int64_t i = 0; i < r->s.drawn; i++) place[i] = -1;
    for (int64_t i = 0; i < b.count; i++) place[b.ids[i]] = i;
    for (int64_t g = 0; g < c->count; g++) {
        generate_group group = c->items[g];
        group.masked = masked[group.place];
        group.thinned = !group.masked && thins(t, r, group.place);
        group.place = place[group.place];
        if (group.place >= 0) c->items[placed++] = group;
    }
    c->count = placed;
    *count = b.count;
    if (ranks > 1) ARES_TRY(deal(t, c, *count));
    qsort(c->items, (size_t)c->count, sizeof *c->items, by_place);
    return ARES_OK;
}

static void report(const ares_train_config *cfg, const rounds *r, int64_t count, ares_metrics *m)
{
    static const char *const reasons[] = { "all_correct", "all_wrong" };
    const ares_resampling *s = &r->s;
    char name[64], as[64];
    if (ares_filter_needs(&cfg->filter)) ares_filter_report(&r->counts, m);
    ares_metrics_set(m, "filter/tries", (double)s->rounds);
    ares_metrics_set(m, "filter/generated_groups", (double)s->drawn);
    ares_metrics_set(m, "filter/kept_groups", (double)(r->looks ? r->counts.kept : s->drawn));
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

/* What is told of everything that was generated, answers of dropped groups included. */
static int report_generated(ares_trainer *t, rounds *r, ares_metrics *m)
{
    bool discards =
        ares_reward_max_length(t->reward) != ARES_NULL_I64 || t->run.cfg->filter.mask_truncated;
    ARES_TRY(ares_world_sum_f64(t->run.world, r->right, 2));
    ARES_TRY(ares_world_sum_f64(t->run.world, r->discarded, 2));
    ARES_TRY(ares_world_sum_f64(t->run.world, &r->tokens, 1));
    if (r->right[1] > 0) ares_metrics_set(m, "reward/accuracy", r->right[0] / r->right[1]);
    if (discards && r->discarded[1] > 0)
        ares_metrics_set(m, "dapo/discarded_frac", r->discarded[0] / r->discarded[1]);
    ares_metrics_set(m, "rollout/generated_tokens", r->tokens);
    return ARES_OK;
}

static int collect(ares_trainer *t, collection *c, double *scale, ares_metrics *m)
{
    rounds r;
    draw d = { 0 };
    bool *keep = NULL;
    int64_t size, count;
    open_rounds(t->run.cfg, &r);
    while ((size = ares_resampling_draw(&r.s)) > 0)
        ARES_TRY(draw_round(t, &r, size, &d, &keep, c, m));
    ARES_TRY(settle(t, &r, c, &count, m));
    ARES_TRY(report_generated(t, &r, m));
    *scale =
        ares_filter_loss_scale(t->run.cfg->filter.loss_scaling, r.counts.kept, r.counts.groups);
    report(t->run.cfg, &r, count, m);
    return ARES_OK;
}

int collect_groups(ares_trainer *t, ares_batch *b, ares_metrics *m)
{
    collection c = { .arena = &b->arena };
    ARES_TRY(collect(t, &c, &b->advantage_scale, m));
    generate_fill(b, c.items, c.count, t->run.cfg->rollout.n, t->actor.learner.optim.updates);
    return ARES_OK;
}
