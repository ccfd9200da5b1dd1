/*
 * Over-sampling against a plain account of it: every prompt is answered in full, and groups are
 * then taken in the order of their lengths. What was cut and went on has the bits of what was not.
 */
#include <stdlib.h>
#include <string.h>

#include "collect/collect.h"
#include "test.h"
#include "tiny_trainer.h"

enum { TARGET = 4, OVER = 7, N = 4, STEPS = 6, MOST = 200 };

/*
 * A prompt of the account, with its answers in full as its own step draws them. They stand in the
 * order of their draw numbers.
 */
typedef struct account {
    ares_drawn prompt;
    int64_t step, start, ends, fetched; /* fetched: the last step that it was played in */
    int32_t had[N], began[N]; /* tokens that its answers have, and had when it was fetched */
    ares_group group;
    enum { WAITS, PLAYS, TAKEN, LEFT_OUT } state;
} account;

static account prompts[MOST];
static int64_t n_prompts;

/* The answers to a prompt as if nothing had ever been cut. */
static void answer_whole(opened *o, account *a)
{
    ares_arena *arena = &o->t.batch.arena;
    ares_sampling sampling;
    const answer_prompt prompt = answer_prompt_of(&o->t.run.source, &a->prompt);
    int64_t step = o->t.run.step;
    answer_sampling(&o->c, &sampling);
    const answer_job job = { .n_prompts = 1,
                             .n = N,
                             .prompts = &prompt,
                             .sampling = &sampling,
                             .key = ares_rng_root(1, ARES_RNG_SAMPLE) };
    o->t.run.step = a->step;
    CHECK_OK(generate_single_turn.answer(&o->t, &job, arena, &a->group));
    o->t.run.step = step;
}

static int32_t length_of(const account *a, int i)
{
    return a->group.items[i].rows[0].n_tokens;
}

static account *account_of(int64_t draw)
{
    for (int64_t k = 0; k < n_prompts; k++)
        if (prompts[k].prompt.draw == draw) return &prompts[k];
    return NULL;
}

static void let_wait(opened *o, account *a)
{
    a->state = WAITS;
    ares_source_give_back(&o->t.run.source, &a->group);
}

/* Fetches: of each data set those that wait first, then new ones. */
static void fetch(opened *o, int64_t step, int64_t moment)
{
    ares_drawn drawn[OVER];
    CHECK_OK(ares_source_next(&o->t.run.source, OVER, &o->t.batch.arena, drawn));
    for (int k = 0; k < OVER; k++) {
        account *a = account_of(drawn[k].draw);
        if (!a) {
            REQUIRE(n_prompts < MOST &&
                    (!n_prompts || drawn[k].draw > prompts[n_prompts - 1].prompt.draw));
            *(a = &prompts[n_prompts++]) = (account){ .step = step, .prompt = drawn[k] };
            answer_whole(o, a);
        }
        a->state = PLAYS;
        a->fetched = step;
        memcpy(a->began, a->had, sizeof a->began);
        a->start = a->ends = moment;
        for (int i = 0; i < N; i++)
            a->ends = ARES_MAX(a->ends, moment + length_of(a, i) - a->had[i]);
    }
}

static bool keeps(const account *a)
{
    int right = 0;
    for (int i = 0; i < N; i++) right += a->group.items[i].accuracy > 0.5f;
    return right > 0 && right < N;
}

/* Takes groups in the order (end, draw) until the batch is full; returns the moment of the end. */
static int64_t take(opened *o, int64_t step, bool filters, bool recycles)
{
    int64_t kept = 0, in_play = OVER, moment = 0;
    fetch(o, step, 0);
    while (kept < TARGET) {
        int64_t next = INT64_MAX;
        for (int64_t k = 0; k < n_prompts; k++)
            if (prompts[k].state == PLAYS) next = ARES_MIN(next, prompts[k].ends);
        moment = next;
        for (int64_t k = 0; k < n_prompts; k++) {
            account *a = &prompts[k];
            if (a->state != PLAYS || a->ends != moment) continue;
            bool keep = !filters || keeps(a), taken = keep && kept < TARGET;
            in_play -= !keep;
            kept += taken;
            a->state = taken ? TAKEN : LEFT_OUT;
            if (keep && !taken && recycles) let_wait(o, a);
            for (int i = 0; i < N; i++) a->had[i] = length_of(a, i);
        }
        if (kept < TARGET && in_play < TARGET) {
            fetch(o, step, moment);
            in_play += OVER;
        }
    }
    return moment;
}

/* What is in play at the end goes on later, or is left out. */
static void cut(opened *o, int64_t moment, bool partial)
{
    for (int64_t k = 0; k < n_prompts; k++) {
        account *a = &prompts[k];
        if (a->state != PLAYS) continue;
        if (partial) let_wait(o, a);
        else a->state = LEFT_OUT;
        for (int i = 0; i < N; i++)
            a->had[i] = ARES_MIN(length_of(a, i), a->had[i] + (int32_t)(moment - a->start));
    }
}

/* Data sets take turns. */
static int by_turn(const void *x, const void *y)
{
    const account *a = *(account *const *)x, *b = *(account *const *)y;
    int64_t off = a->prompt.local - b->prompt.local;
    if (!off) off = a->group.row->part - b->group.row->part;
    return (off > 0) - (off < 0);
}

/* All that was sampled in the step, whether it is trained on, goes on later or is lost. */
static double sampled_in(int64_t step, int64_t moment)
{
    double tokens = 0;
    for (int64_t k = 0; k < n_prompts; k++)
        for (int i = 0; i < N && prompts[k].fetched == step; i++)
            tokens += (double)ARES_MIN(length_of(&prompts[k], i) - prompts[k].began[i],
                                       moment - prompts[k].start);
    return tokens;
}

/* The share of older steps among the tokens that the batch trains on. */
static double share_of_old(bool masks)
{
    double old = 0, all = 0;
    for (int64_t k = 0; k < n_prompts; k++)
        for (int i = 0; i < N && prompts[k].state == TAKEN; i++) {
            double before = prompts[k].step < prompts[k].fetched ? prompts[k].began[i] : 0;
            bool whole = prompts[k].began[i] == length_of(&prompts[k], i); /* nothing was added */
            all += length_of(&prompts[k], i) - (masks && !whole ? before : 0);
            old += masks && !whole ? 0 : before;
        }
    return all > 0 ? old / all : 0;
}

static void check_batch(const ares_batch *b, int64_t step, bool masks)
{
    account *taken[TARGET];
    int64_t n = 0, g = 0;
    for (int64_t k = 0; k < n_prompts; k++)
        if (prompts[k].state == TAKEN) taken[n++] = &prompts[k];
    qsort(taken, (size_t)n, sizeof *taken, by_turn);
    for (int64_t k = 0; k < n; k++) {
        const account *a = taken[k];
        taken[k]->state = LEFT_OUT;
        if (!CHECK_MSG(g < b->groups, "step %lld: too few groups", (long long)step)) return;
        for (int i = 0; i < N; i++) {
            int64_t row = b->group_start[g] + i, at = b->row_start[row],
                    n = b->row_start[row + 1] - at;
            const ares_trajectory *y = &a->group.items[i];
            const ares_trajectory_row *x = &y->rows[0];
            CHECK_EQ(b->samples[row].draw, a->prompt.draw);
            CHECK_EQ(b->samples[row].stopped, y->stopped);
            CHECK(!b->samples[row].cut && ares_view_eq(b->samples[row].response, y->response));
            CHECK_NEAR(b->samples[row].unshaped, y->unshaped, 0);
            if (!CHECK_EQ(n, x->n_tokens)) continue;
            size_t bytes = (size_t)n * 4;
            CHECK_MEM(b->responses + at, x->responses, bytes);
            CHECK_MEM(b->rollout_log_probs + at, x->rollout_log_probs, bytes);
            CHECK_MEM(b->entropies + at, x->entropies, bytes);
            CHECK_MEM(b->entropies_1 + at, x->entropies_1, bytes);
            int32_t old = masks && a->began[i] < n ? a->began[i] : 0;
            for (int64_t k2 = 0; k2 < n; k2++) CHECK_EQ(b->response_mask[at + k2], k2 >= old);
        }
        g++;
    }
    CHECK_EQ(g, b->groups);
}

/* The prompts that wait come first, with what their answers have so far. */
static void check_waiting(opened *run, opened *whole)
{
    int64_t left = 0;
    for (int64_t k = 0; k < n_prompts; k++) left += prompts[k].state == WAITS;
    while (left) {
        ares_drawn d[OVER], e[OVER];
        REQUIRE_OK(ares_source_next(&run->t.run.source, OVER, &run->t.batch.arena, d));
        REQUIRE_OK(ares_source_next(&whole->t.run.source, OVER, &whole->t.batch.arena, e));
        for (int at = 0; at < OVER; at++) {
            const account *a = account_of(e[at].draw);
            REQUIRE(d[at].draw == e[at].draw && !d[at].partial == !a);
            for (int i = 0; i < N && a; i++) {
                const ares_trajectory *y = &d[at].partial->items[i], *full = &a->group.items[i];
                CHECK_EQ(y->rows[0].n_tokens, a->had[i]);
                CHECK_EQ(y->cut, a->had[i] < length_of(a, i));
                CHECK(y->cut ||
                      (y->unshaped == full->unshaped && ares_view_eq(y->response, full->response)));
            }
            left -= a != NULL;
        }
    }
}

typedef struct variant {
    bool partial, recycles, filters;
    bool ties;           /* answers seldom end by themselves, so that many groups end together */
    bool two_sets;       /* of which the first gives three prompts of a fetch */
    bool masks;          /* tokens of earlier steps, in answers that went on */
    const char *rollout; /* more options of worker.rollout */
} variant;

/* Answers of many lengths, right by chance: seldom, where that drops groups. */
static int open_variant(opened *o, const variant *v)
{
    char words[600], files[1200];
    ares_str text = { 0 };
    ares_str_addf(&text,
                  "curriculum: {over_sampling_batch_size: %d, partial_rollout: %s, "
                  "recycle_surplus: %s%s, mask_offpolicy_in_partial_rollout: %s}\n"
                  "algorithm: {filter_groups: {enable: %s, metric: acc}}\n"
                  "worker:\n"
                  "  reward: {accuracy: random}\n"
                  "  rollout: {%s stop_token_ids: [",
                  OVER, v->partial ? "true" : "false", v->recycles ? "true" : "false",
                  v->two_sets ? ", names: [a, b], weights: [3, 4]" : "",
                  v->masks ? "true" : "false", v->filters ? "true" : "false", v->rollout);
    for (int id = 30; id < (v->ties ? 32 : 110); id++)
        ares_str_addf(&text, "%s%d", id == 30 ? "" : ", ", id);
    ares_str_add_z(&text, "]}\n");
    CHECK_OK(ares_file_write(test_file("words.yaml"), text.data, text.len));
    ares_str_fini(&text);
    snprintf(words, sizeof words, "config=%s", test_file("words.yaml"));
    const char *rows = test_source("examples/data/sums/train.jsonl");
    snprintf(files, sizeof files,
             v->two_sets ? "data.train_files=['%s@[0:90]', '%s@[90:400]']" : "data.train_files=%s",
             rows, rows);
    return open_trainer_of(
        o, (const char *const[]){ words, files, "worker.reward.rewards=[{name: random, p: 0.15}]" },
        3);
}

static double metric(const opened *o, const char *name)
{
    double x = -1;
    (void)ares_metrics_get(o->m, name, &x);
    return x;
}

/* Prompts of the second data set that an earlier step drew wait, without a token of an answer. */
static void begin_with_waiting(opened *run, opened *whole)
{
    ares_drawn drawn[OVER], same[OVER];
    REQUIRE_OK(ares_source_next(&run->t.run.source, OVER, &run->t.batch.arena, same));
    REQUIRE_OK(ares_source_next(&whole->t.run.source, OVER, &whole->t.batch.arena, drawn));
    for (int i = 0; i < OVER; i++) {
        account *a = &prompts[n_prompts];
        CHECK_EQ(same[i].draw, drawn[i].draw);
        *a = (account){ .prompt = drawn[i] };
        answer_whole(whole, a);
        if (!a->group.row->part) continue;
        ares_trajectory y[N];
        ares_trajectory_row empty[N];
        ares_group begun = a->group;
        begun.row = ares_source_row(&run->t.run.source, same[i].id);
        begun.items = y;
        for (int k = 0; k < N; k++) {
            empty[k] = a->group.items[k].rows[0];
            empty[k].n_tokens = 0;
            y[k] = (ares_trajectory){ .index = k, .cut = 1, .n_rows = 1, .rows = &empty[k] };
        }
        ares_source_give_back(&run->t.run.source, &begun);
        let_wait(whole, a);
        n_prompts++;
    }
    CHECK_EQ(n_prompts, 4);
}

static void check_steps(const variant *v)
{
    opened run, whole; /* the account has a source of its own */
    int64_t waited = 0, fetches = 0;
    double old = 0;
    n_prompts = 0;
    REQUIRE_OK(open_variant(&run, v));
    REQUIRE_OK(open_variant(&whole,
                            &(variant){ .ties = v->ties, .two_sets = v->two_sets, .rollout = "" }));
    if (v->two_sets) begin_with_waiting(&run, &whole);
    for (int64_t step = 0; step < STEPS; step++) {
        ares_metrics_clear(run.m);
        ares_batch_clear(&run.t.batch);
        run.t.run.step = step;
        run.t.actor.learner.optim.updates = step; /* as if an update had changed the weights */
        REQUIRE_OK(collect_groups(&run.t, &run.t.batch, run.m));
        int64_t moment = take(&whole, step, v->filters, v->recycles), waits = 0;
        cut(&whole, moment, v->partial);
        for (int64_t k = 0; k < n_prompts; k++) waits += prompts[k].state == WAITS;
        CHECK_NEAR(metric(&run, "over_sampling/length"), (double)moment, 0);
        CHECK_NEAR(metric(&run, "over_sampling/given_back_groups"), (double)waits, 0);
        CHECK_NEAR(metric(&run, "rollout/generated_tokens"), sampled_in(step, moment), 0);
        CHECK_NEAR(metric(&run, "over_sampling/old_token_frac"), share_of_old(v->masks), 1e-12);
        old += share_of_old(v->masks);
        check_batch(&run.t.batch, step, v->masks);
        waited += waits;
        fetches += (int64_t)metric(&run, "over_sampling/fetches");
    }
    CHECK((waited > 0) == (v->partial || v->recycles));
    CHECK((fetches > STEPS) == v->filters);
    if (!v->two_sets) CHECK((old > 0) == (v->recycles || (v->partial && !v->masks)));
    check_waiting(&run, &whole);
    close_trainer(&run);
    close_trainer(&whole);
}

TEST(the_groups_that_end_first_make_the_batch)
{
    check_steps(&(variant){ .rollout = "" });
}
TEST(groups_that_filters_drop_are_replaced_by_those_that_end_next)
{
    check_steps(&(variant){ .filters = true, .rollout = "" });
}
TEST(what_was_cut_goes_on_to_the_same_bits)
{
    check_steps(&(variant){ .partial = true, .rollout = "" });
}
TEST(surplus_waits_beside_what_was_cut)
{
    check_steps(&(variant){
        .partial = true, .recycles = true, .filters = true, .masks = true, .rollout = "" });
}
TEST(surplus_alone_waits)
{
    check_steps(&(variant){ .recycles = true, .ties = true, .rollout = "" });
}
/* Of those that end at one moment the oldest are taken, whichever was fetched first. */
TEST(prompts_of_two_data_sets_are_taken_in_the_order_of_their_draws)
{
    check_steps(&(variant){ .recycles = true, .ties = true, .two_sets = true, .rollout = "" });
    check_steps(&(variant){ .partial = true, .filters = true, .two_sets = true, .rollout = "" });
}
TEST(what_fits_into_the_cache_decides_nothing)
{
    check_steps(&(variant){ .partial = true,
                            .filters = true,
                            .rollout = "max_num_seqs: 3, max_num_batched_tokens: 40," });
    check_steps(&(variant){ .partial = true,
                            .recycles = true,
                            .rollout = "cache_tokens: 608, enable_prefix_caching: false," });
}
