/*
 * The groups of a step: prompts are drawn, answered and judged, groups that the filters drop are
 * replaced by further draws, until the batch is full or the draws are used up
 * (docs/aepo.md#choosing-groups, docs/dapo.md#rounds-of-draws). Then the groups of the batch are
 * chosen, and each goes to the rank that trains on it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/agents.h"
#include "collect/adjust_batch.h"
#include "collect/choose_groups.h"
#include "collect/collect.h"
#include "collect/exchange_groups.h"
#include "collect/oversample.h"
#include "collect/progress.h"
#include "options/oversampling.h"
#include "report/measure_collapse.h"

enum { EMPTY_ROUNDS = 10 }; /* RAGEN's (docs/filters.md#no-group-left) */

static int open_rounds(const ares_train_config *cfg, rounds *r)
{
    int64_t limit = cfg->trainer.max_try_make_batch, drawn = cfg->data.mini_rollout_batch_size;
    *r = (rounds){ .same_prompt = strcmp(cfg->filter.resample_mode, "same_prompt") == 0 };
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

/* Sums for metrics over all answers, those of dropped groups included. */
static void count_answers(rounds *r, const draw *d)
{
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
}

/* The groups of the last draw join the collection, each with its place. */
static int join(ares_trainer *t, rounds *r, collection *c)
{
    ARES_TRY(filter_show_generated(t, &r->last));
    count_answers(r, &r->last);
    for (int64_t g = 0; g < r->last.count; g++) *collection_add(c) = r->last.groups[g];
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

/* One draw is answered, judged and filtered; its groups join the collection. */
static int draw_round(ares_trainer *t, rounds *r, int64_t size, collection *c, ares_metrics *m)
{
    int64_t ranks = ares_world_size(t->run.world), rank = ares_world_rank(t->run.world),
            capacity = r->draws.drawn + size, dropped = ares_resampling_dropped(&r->draws);
    draw *d = &r->last;
    if (r->same_prompt && r->draws.rounds) draw_again(c->arena, r->keep, d);
    else ARES_TRY(draw_prompts(t, c->arena, size, d));
    ARES_TRY(ares_world_agree(t->run.world, draw_answer(t, c->arena, d, m)));
    if (t->answerer->normalise) ARES_TRY(t->answerer->normalise(t, d->groups, d->count, c->arena));
    for (int64_t g = 0; g < d->count; g++) d->groups[g].place = r->draws.drawn + g * ranks + rank;
    double before_it[2] = { r->failed, r->answers };
    ARES_TRY(join(t, r, c));
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
    return ARES_OK;
}

static void report(const ares_train_config *cfg, const rounds *r, int64_t count, ares_metrics *m)
{
    static const char *const reasons[] = { "all_correct", "all_wrong" };
    const ares_resampling *s = &r->draws;
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

/* Metrics over all answers, those of dropped groups included. */
static int report_generated(ares_trainer *t, rounds *r, ares_metrics *m)
{
    bool discards =
        ares_reward_max_length(t->reward) != ARES_NULL_I64 || t->run.cfg->filter.mask_truncated;
    ARES_TRY(ares_world_sum_f64(t->run.world, r->right, 2));
    double sums[4] = { r->discarded, r->failed, r->answers, r->tokens };
    ARES_TRY(ares_world_sum_f64(t->run.world, sums, ARES_COUNT(sums)));
    if (r->right[1] > 0) ares_metrics_set(m, "reward/accuracy", r->right[0] / r->right[1]);
    if (discards && sums[2] > 0) ares_metrics_set(m, "dapo/discarded_frac", sums[0] / sums[2]);
    if (sums[2] > 0) ares_metrics_set(m, "rollout/failed_frac", sums[1] / sums[2]);
    ARES_TRY(check_failures(t, sums[1], sums[2]));
    ares_metrics_set(m, "rollout/generated_tokens", sums[3]);
    return t->answerer->report ? t->answerer->report(t, "train/", m) : ARES_OK;
}

/* Draws until the batch is full or the draws are used up, and chooses its groups. */
static int draw_batch(ares_trainer *t, rounds *r, collection *c, int64_t *count, ares_metrics *m)
{
    int64_t size;
    ARES_TRY(open_rounds(t->run.cfg, r));
    c->count = 0;
    if (r->over.batch) {
        ARES_TRY(oversample(t, r, c->arena, m));
        ARES_TRY(join(t, r, c));
    }
    while ((size = ares_resampling_draw(&r->draws)) > 0) {
        ARES_TRY(draw_round(t, r, size, c, m));
        if (r->draws.max_resample < 0)
            ARES_TRY(progress_check(t, r, m,
                                    "set trainer.max_try_make_batch above 0 and "
                                    "algorithm.on_exhausted to fill_masked or smaller_batch"));
    }
    ARES_TRY(report_collapse_groups(t, c->items, c->count, m));
    return choose_groups(t, r, c, count, m);
}

/* What metrics tell of all draws of a step. */
static void add_counts(rounds *r, const rounds *more)
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
    return (x > y) - (x < y);
}

int collect_groups(ares_trainer *t, ares_batch *b, ares_metrics *m)
{
    const ares_train_config *cfg = t->run.cfg;
    collection c = { .arena = &b->arena };
    const char *policy = cfg->filter.empty_policy;
    rounds r, earlier = { 0 };
    int64_t count, attempts = 1;
    ARES_TRY(draw_batch(t, &r, &c, &count, m));
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
    ARES_TRY(report_generated(t, &r, m));
    report(cfg, &r, count, m);
    ares_batch_fill(b, c.items, c.count);
    return adjust_batch(cfg, t->run.world, t->run.step, b, m);
}
