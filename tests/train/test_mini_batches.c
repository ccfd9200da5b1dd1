/*
 * Which rows make a mini-batch: cut in prompts or in rows, as they were drawn or by their lengths,
 * on one rank or two, and updates by them.
 */
#include "gradient.h"

#include "keep_groups.h"
#include "roles.h"

/* Groups of these sizes at these places, with rows of one token. */
static void make_groups(ares_batch *b, int n, const int *sizes, const int64_t *places)
{
    ares_batch_init(b);
    for (int g = 0; g < n; g++) {
        ares_batch_begin_group(b);
        for (int i = 0; i < sizes[g]; i++)
            ares_batch_add_row(b, &(ares_sample){ .place = places[g], .index = i }, 1);
    }
}

static void check_cut(ares_batch *b, ares_world *w, int64_t count, bool rows, int64_t n,
                      const int64_t *start)
{
    mini_batches m;
    if (!CHECK_OK(mini_batches_cut(&(mini_batch_size){ .count = count, .rows = rows }, b, w, &m)))
        return;
    if (CHECK_EQ(m.n, n)) CHECK_MEM(m.start, start, (size_t)(n + 1) * sizeof *start);
    CHECK(m.batch == b && !m.order);
    mini_batches_fini(&m);
}

TEST(a_batch_is_cut_in_prompts_or_in_rows)
{
    ares_batch b;
    make_groups(&b, 4, (const int[]){ 3, 2, 3, 1 }, (const int64_t[]){ 0, 1, 2, 3 });
    check_cut(&b, NULL, 1, false, 4, (const int64_t[]){ 0, 3, 5, 8, 9 });
    check_cut(&b, NULL, 3, false, 2, (const int64_t[]){ 0, 8, 9 });
    check_cut(&b, NULL, 9, false, 1, (const int64_t[]){ 0, 9 });
    check_cut(&b, NULL, 1, true, 9, (const int64_t[]){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 });
    check_cut(&b, NULL, 2, true, 5, (const int64_t[]){ 0, 2, 4, 6, 8, 9 });
    check_cut(&b, NULL, 100, true, 1, (const int64_t[]){ 0, 9 });
    ares_batch_clear(&b);
    check_cut(&b, NULL, 2, false, 0, (const int64_t[]){ 0 });
    check_cut(&b, NULL, 2, true, 0, (const int64_t[]){ 0 });
    ares_batch_fini(&b);
}

/* Gives each row a prompt, so that its whole length is `length`. */
static void make_lengths(ares_batch *b, const int32_t *length)
{
    for (int64_t r = 0; r < b->rows; r++) b->samples[r].prompt_len = length[r] - 1;
}

/* The copy has rows order [b->rows] of the batch, each a token. */
static void check_copy(ares_batch *b, ares_world *w, const mini_batch_size *size, int64_t n,
                       const int64_t *start, const int64_t *order)
{
    mini_batches m;
    ARES_PUT(b, responses);
    for (int64_t r = 0; r < b->rows; r++) b->responses[r] = (int32_t)r;
    if (!CHECK_OK(mini_batches_cut(size, b, w, &m))) return;
    if (CHECK_EQ(m.n, n)) CHECK_MEM(m.start, start, (size_t)(n + 1) * sizeof *start);
    if (CHECK(m.order && m.batch != b) && CHECK_EQ(m.batch->rows, b->rows)) {
        CHECK_MEM(m.order, order, (size_t)b->rows * sizeof *order);
        for (int64_t r = 0; r < b->rows; r++) CHECK_EQ(m.batch->responses[r], (int32_t)order[r]);
    }
    mini_batches_fini(&m);
    b->responses = NULL;
}

TEST(rows_go_by_the_places_of_their_groups)
{
    ares_batch b;
    make_groups(&b, 3, (const int[]){ 1, 2, 1 }, (const int64_t[]){ 0, 5, 3 });
    check_copy(&b, NULL, &(mini_batch_size){ .count = 2, .rows = true }, 2,
               (const int64_t[]){ 0, 2, 4 }, (const int64_t[]){ 0, 3, 1, 2 });
    ares_batch_fini(&b);
}

TEST(rows_of_like_length_make_a_mini_batch)
{
    ares_batch b;
    mini_batch_size size = { .count = 3, .rows = true, .by_length = true };
    make_groups(&b, 3, (const int[]){ 3, 2, 3 }, (const int64_t[]){ 0, 1, 2 });
    /* by length: rows 3, 1, 5, 7, 2, 0, 6, 4 */
    make_lengths(&b, (const int32_t[]){ 300, 120, 250, 90, 400, 120, 333, 210 });
    check_copy(&b, NULL, &size, 3, (const int64_t[]){ 0, 3, 6, 8 },
               (const int64_t[]){ 2, 3, 5, 0, 4, 6, 1, 7 });
    b.filled_from = 2; /* rows that only fill the batch stay last */
    check_copy(&b, NULL, &size, 3, (const int64_t[]){ 0, 3, 6, 8 },
               (const int64_t[]){ 2, 3, 4, 0, 1, 5, 6, 7 });
    b.filled_from = 0;
    size.in_order = true;
    check_copy(&b, NULL, &size, 3, (const int64_t[]){ 0, 3, 6, 8 },
               (const int64_t[]){ 3, 5, 2, 6, 4, 0, 7, 1 });
    size.count = 100; /* a single one has every row: they stay as they are */
    size.in_order = false;
    mini_batches m;
    CHECK_OK(mini_batches_cut(&size, &b, NULL, &m));
    CHECK(m.n == 1 && m.batch == &b && !m.order);
    ares_batch_clear(&b);
    CHECK_OK(mini_batches_cut(&size, &b, NULL, &m));
    CHECK(m.n == 0 && m.batch == &b && !m.order);
    ares_batch_fini(&b);
}

TEST(mini_batches_that_only_fill_the_batch_do_not_count)
{
    ares_batch b;
    mini_batches m;
    make_groups(&b, 4, (const int[]){ 1, 2, 2, 4 }, (const int64_t[]){ 0, 3, 1, 2 });
    const struct {
        bool rows, empty;
        int64_t count, filled_from, n, counted;
    } cases[] = {
        { false, false, 1, 0, 4, 4 }, { false, false, 1, 2, 4, 2 }, { false, false, 3, 2, 2, 1 },
        { true, false, 2, 0, 5, 5 },  { true, false, 2, 2, 5, 2 },  { true, true, 2, 2, 5, 2 },
        { true, true, 2, 0, 5, 1 }, /* nothing is left, and all fills */
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        b.filled_from = cases[i].filled_from;
        b.empty = cases[i].empty;
        if (!CHECK_OK(mini_batches_cut(
                &(mini_batch_size){ .count = cases[i].count, .rows = cases[i].rows }, &b, NULL,
                &m)))
            continue;
        CHECK_EQ(m.n, cases[i].n);
        CHECK_EQ(m.counted, cases[i].counted);
        mini_batches_fini(&m);
    }
    ares_batch_fini(&b);
}

TEST(rows_are_ordered_where_balance_is_wanted_and_no_shuffle)
{
    ares_train_config cfg = {
        .trainer.balance_batch = true,
        .actor = { .global_batch_size = 8, .mini_batch_unit = "rows" },
        .critic = { .global_batch_size = ARES_NULL_I64 },
        .loss = { .loss_norm = "global", .early_stop_scope = "minibatch" },
    };
    CHECK(mini_batch_size_of_actor(&cfg).by_length && !mini_batch_size_of_actor(&cfg).in_order);
    CHECK(mini_batch_size_of_critic(&cfg).by_length);
    cfg.loss.loss_norm = "micro";
    CHECK(mini_batch_size_of_actor(&cfg).in_order && !mini_batch_size_of_critic(&cfg).in_order);
    cfg.loss.loss_norm = "global", cfg.loss.early_stop_scope = "micro";
    CHECK(mini_batch_size_of_actor(&cfg).in_order && !mini_batch_size_of_critic(&cfg).in_order);
    cfg.critic.mini_batch_unit = "prompts";
    CHECK(mini_batch_size_of_actor(&cfg).by_length && !mini_batch_size_of_critic(&cfg).by_length);
    cfg.actor.shuffle = true;
    CHECK(!mini_batch_size_of_actor(&cfg).by_length);
    cfg.actor.shuffle = cfg.trainer.balance_batch = false;
    CHECK(!mini_batch_size_of_actor(&cfg).by_length);
}

TEST_MPI(rows_of_two_ranks_are_numbered_by_the_places_of_their_groups)
{
    if (!test_as_ranks(2, "rows_of_two_ranks_are_numbered_by_the_places_of_their_groups")) return;
    ares_world *w = NULL;
    ares_batch b;
    REQUIRE_OK(ares_world_open(&w));
    /* places 0 .. 4 have 2, 3, 1, 2 and 4 rows; those of the first rank are 0-1, 6-7 and 8-11 */
    if (ares_world_rank(w) == 0) {
        make_groups(&b, 3, (const int[]){ 2, 2, 4 }, (const int64_t[]){ 0, 3, 4 });
        check_cut(&b, w, 3, true, 4, (const int64_t[]){ 0, 2, 2, 5, 8 });
        check_cut(&b, w, 5, true, 3, (const int64_t[]){ 0, 2, 6, 8 });
    } else {
        make_groups(&b, 2, (const int[]){ 3, 1 }, (const int64_t[]){ 1, 2 });
        check_cut(&b, w, 3, true, 4, (const int64_t[]){ 0, 1, 4, 4, 4 });
        check_cut(&b, w, 5, true, 3, (const int64_t[]){ 0, 3, 4, 4 });
    }
    ares_batch_fini(&b);
    if (ares_world_rank(w) == 0) /* none on the second rank */
        make_groups(&b, 1, (const int[]){ 3 }, (const int64_t[]){ 0 });
    else ares_batch_init(&b);
    if (ares_world_rank(w) == 0) check_cut(&b, w, 2, true, 2, (const int64_t[]){ 0, 2, 3 });
    else check_cut(&b, w, 2, true, 2, (const int64_t[]){ 0, 0, 0 });
    ares_batch_fini(&b);
    ares_world_close(w);
}

/* Rows 0-2 and 5-7 of rows_of_like_length_make_a_mini_batch are the first rank's. */
TEST_MPI(rows_of_two_ranks_are_ordered_as_those_of_one)
{
    if (!test_as_ranks(2, "rows_of_two_ranks_are_ordered_as_those_of_one")) return;
    mini_batch_size size = { .count = 3, .rows = true, .by_length = true };
    ares_world *w = NULL;
    ares_batch b;
    REQUIRE_OK(ares_world_open(&w));
    if (ares_world_rank(w) == 0) {
        make_groups(&b, 2, (const int[]){ 3, 3 }, (const int64_t[]){ 0, 2 });
        make_lengths(&b, (const int32_t[]){ 300, 120, 250, 120, 333, 210 });
        check_copy(&b, w, &size, 3, (const int64_t[]){ 0, 2, 4, 6 },
                   (const int64_t[]){ 2, 3, 0, 4, 1, 5 });
    } else {
        mini_batches m;
        make_groups(&b, 1, (const int[]){ 2 }, (const int64_t[]){ 1 });
        make_lengths(&b, (const int32_t[]){ 90, 400 });
        CHECK_OK(mini_batches_cut(&size, &b, w, &m));
        CHECK_EQ(m.n, 3);
        CHECK_MEM(m.start, ((const int64_t[]){ 0, 1, 2, 2 }), 4 * sizeof *m.start);
        CHECK(m.batch == &b && !m.order); /* they stand so already */
    }
    ares_batch_fini(&b);
    ares_world_close(w);
}

/* ---------------------------------------------------------------- updates of the actor */

/* Rows apart or as groups of one, so that prompts and rows count the same. */
static void make_groups_of_one(ares_batch *b)
{
    b->group_cap = b->rows + 1;
    b->group_start = ares_realloc(b->group_start, (size_t)b->group_cap * sizeof *b->group_start);
    for (int64_t r = 0; r <= b->rows; r++) b->group_start[r] = r;
    b->groups = b->rows;
}

static void same_runs(const run *x, const run *y)
{
    CHECK_MEM(y->model->params.weights, x->model->params.weights, x->model->params.weights_bytes);
    CHECK_MEM(y->model->params.states, x->model->params.states, x->model->params.states_bytes);
    CHECK_MEM(y->model->params.grads, x->model->params.grads, x->model->params.grads_bytes);
    CHECK_EQ(y->actor.learner.optim.updates, x->actor.learner.optim.updates);
    CHECK_EQ(ares_metrics_count(y->metrics), ares_metrics_count(x->metrics));
    for (int i = 0; i < ares_metrics_count(x->metrics); i++) {
        double have = NAN, want = ares_metrics_value(x->metrics, i);
        ares_metrics_get(y->metrics, ares_metrics_name(x->metrics, i), &have);
        CHECK_MSG(memcmp(&have, &want, sizeof have) == 0, "%s: %.17g, not %.17g",
                  ares_metrics_name(x->metrics, i), have, want);
    }
}

TEST(mini_batches_of_as_many_rows_as_their_prompts_have_are_the_same_update)
{
    for (int prompts = 1; prompts <= GROUPS; prompts++) {
        run of_prompts, of_rows;
        if (!run_open(&of_prompts, "qwen2_tied", "token-mean", true) ||
            !run_open(&of_rows, "qwen2_tied", "token-mean", true))
            return;
        of_prompts.cfg.actor.global_batch_size = prompts;
        of_prompts.cfg.actor.mini_batch_unit = "prompts";
        of_rows.cfg.actor.global_batch_size = prompts * PER_GROUP;
        of_rows.cfg.actor.mini_batch_unit = "rows";
        CHECK_OK(actor_update(&of_prompts.actor, &of_prompts.batch, NULL, of_prompts.metrics));
        CHECK_OK(actor_update(&of_rows.actor, &of_rows.batch, NULL, of_rows.metrics));
        CHECK_EQ(of_rows.actor.learner.optim.updates, GROUPS / prompts);
        same_runs(&of_prompts, &of_rows);
        run_close(&of_prompts);
        run_close(&of_rows);
    }
}

TEST(mini_batches_that_divide_groups_are_those_of_the_rows_as_groups_of_one)
{
    static const int64_t sizes[] = { 1, 2, 4 };
    for (int i = 0; i < ARES_COUNT(sizes); i++)
        for (int share = 0; share < 2; share++) {
            run apart, divided;
            if (!run_open(&apart, "qwen2_tied", "seq-mean-token-mean", false) ||
                !run_open(&divided, "qwen2_tied", "seq-mean-token-mean", share))
                return;
            make_groups_of_one(&apart.batch);
            apart.cfg.actor.global_batch_size = sizes[i];
            divided.cfg.actor.global_batch_size = sizes[i];
            divided.cfg.actor.mini_batch_unit = "rows";
            apart.cfg.actor.ppo_epochs = divided.cfg.actor.ppo_epochs = 2;
            CHECK_OK(actor_update(&apart.actor, &apart.batch, NULL, apart.metrics));
            CHECK_OK(actor_update(&divided.actor, &divided.batch, NULL, divided.metrics));
            CHECK_EQ(divided.actor.learner.optim.updates, 2 * ((ROWS + sizes[i] - 1) / sizes[i]));
            CHECK_EQ(divided.batch.n_row_kl, 2 * ROWS);
            for (int64_t k = 0; k < divided.batch.n_row_kl && i < 2; k++)
                CHECK_EQ(divided.batch.row_kl[k].update, k / sizes[i]);
            if (!share) same_runs(&apart, &divided);
            for (int m = 0; m < ares_metrics_count(apart.metrics); m++) {
                double have = NAN, want = ares_metrics_value(apart.metrics, m);
                ares_metrics_get(divided.metrics, ares_metrics_name(apart.metrics, m), &have);
                /* a share of the tokens that are fed: groups of one share no prompt */
                if (share && strcmp(ares_metrics_name(apart.metrics, m), "perf/backward_frac") == 0)
                    continue;
                CHECK_MSG(fabs(have - want) <= 1e-4 * fmax(1, fabs(want)), "%s: %.9g, not %.9g",
                          ares_metrics_name(apart.metrics, m), have, want);
            }
            run_close(&apart);
            run_close(&divided);
        }
}

/* What the update wrote of each row stands where the step has the row. */
static void check_given_back(const ares_batch *b, const ares_batch *taken, const int64_t *order)
{
    for (int64_t i = 0; i < b->rows; i++) {
        int64_t r = order[i];
        CHECK_MEM(b->kl + b->row_start[r], taken->kl + taken->row_start[i],
                  (size_t)(b->row_start[r + 1] - b->row_start[r]) * sizeof *b->kl);
    }
    CHECK_EQ(b->updates, taken->updates);
    if (!CHECK_EQ(b->n_row_kl, taken->n_row_kl)) return;
    for (int64_t k = 0; k < b->n_row_kl; k++) {
        CHECK_EQ(b->row_kl[k].row, order[taken->row_kl[k].row]);
        CHECK_EQ(b->row_kl[k].update, taken->row_kl[k].update);
        CHECK(b->row_kl[k].kl == taken->row_kl[k].kl);
    }
}

/* Rows of 12, 8, 24, 21, 16 and 23 tokens, prompts included. */
TEST(an_update_by_length_is_that_of_the_rows_taken_into_the_order)
{
    static const struct {
        int64_t count;
        const char *norm;
        int64_t order[ROWS];
    } cases[] = { { 2, "global", { 1, 4, 2, 5, 0, 3 } },
                  { 4, "global", { 1, 2, 4, 5, 0, 3 } },
                  { 4, "micro", { 1, 4, 5, 2, 3, 0 } },
                  { 100, "micro", { 1, 4, 5, 2, 3, 0 } } };
    for (int i = 0; i < ARES_COUNT(cases) * 2; i++) {
        run taken, by_length, *runs[] = { &taken, &by_length };
        const int64_t *order = cases[i / 2].order;
        for (int k = 0; k < 2; k++) {
            if (!run_open(runs[k], "qwen2_tied", "token-mean", i % 2)) return;
            runs[k]->cfg.actor.global_batch_size = cases[i / 2].count;
            runs[k]->cfg.actor.mini_batch_unit = "rows";
            runs[k]->cfg.actor.micro_batch_size = 2;
            runs[k]->cfg.actor.ppo_epochs = 2;
            runs[k]->cfg.loss.loss_norm = cases[i / 2].norm;
        }
        by_length.cfg.trainer.balance_batch = true;
        ares_batch_take(&taken.batch, order, ROWS);
        for (int64_t r = 0; r < ROWS; r++) taken.batch.samples[r].place = r;
        CHECK_OK(actor_update(&taken.actor, &taken.batch, NULL, taken.metrics));
        CHECK_OK(actor_update(&by_length.actor, &by_length.batch, NULL, by_length.metrics));
        same_runs(&taken, &by_length);
        check_given_back(&by_length.batch, &taken.batch, order);
        CHECK_EQ(by_length.batch.groups, GROUPS);
        run_close(&taken);
        run_close(&by_length);
    }
}

/* Its rows are micro-batches of their own, and the fault is in the last. */
TEST(metrics_are_of_the_mini_batches_that_were_not_left_out)
{
    static const bool first[GROUPS] = { true, false };
    run whole, rest;
    if (!run_open(&whole, "qwen2_tied", "token-mean", false) ||
        !run_open(&rest, "qwen2_tied", "token-mean", false))
        return;
    whole.cfg.actor.max_token_len = rest.cfg.actor.max_token_len = 1;
    whole.cfg.actor.global_batch_size = rest.cfg.actor.global_batch_size = 1;
    whole.batch.old_log_probs[whole.batch.tokens - 2] = -INFINITY;
    keep_groups(&rest.batch, first);
    CHECK_OK(actor_update(&whole.actor, &whole.batch, NULL, whole.metrics));
    CHECK_OK(actor_update(&rest.actor, &rest.batch, NULL, rest.metrics));
    CHECK_EQ(whole.actor.learner.optim.updates, 1);
    CHECK_EQ(ares_metrics_count(whole.metrics), ares_metrics_count(rest.metrics));
    for (int i = 0; i < ares_metrics_count(rest.metrics); i++) {
        const char *name = ares_metrics_name(rest.metrics, i);
        double have = NAN, want = ares_metrics_value(rest.metrics, i);
        ares_metrics_get(whole.metrics, name, &have);
        if (strcmp(name, "actor/skipped_updates") == 0) want = 1;
        CHECK_MSG(have == want, "%s: %.17g, not %.17g", name, have, want);
    }
    CHECK_MEM(whole.model->params.weights, rest.model->params.weights,
              rest.model->params.weights_bytes);
    run_close(&whole);
    run_close(&rest);
}

/* ---------------------------------------------------------------- rows taken into an order */

/* The gradients of an update of rows order[0 .. n) in one mini-batch. */
static float *gradients_of_rows(const int64_t *order, int64_t n, bool share)
{
    run r;
    /* a token's weight depends on no other row */
    if (!run_open(&r, "qwen2_tied", "seq-mean-token-sum-norm", share)) return NULL;
    r.cfg.actor.max_grad_norm = 1e9;
    r.cfg.actor.global_batch_size = 100;
    ares_batch_take(&r.batch, order, n);
    CHECK_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics));
    float *out = ares_malloc(r.model->params.grads_bytes);
    memcpy(out, r.model->params.grads, r.model->params.grads_bytes);
    run_close(&r);
    return out;
}

TEST(a_row_that_is_taken_twice_counts_twice_in_the_gradient)
{
    for (int share = 0; share < 2; share++) {
        run r;
        if (!run_open(&r, "qwen2_tied", "token-mean", share)) return;
        size_t n = r.model->params.grads_bytes / sizeof(float);
        run_close(&r);
        float *all = gradients_of_rows((const int64_t[]){ 0, 1, 2, 3, 4, 5 }, 6, share),
              *row = gradients_of_rows((const int64_t[]){ 1 }, 1, share),
              *twice = gradients_of_rows((const int64_t[]){ 0, 1, 1, 2, 3, 4, 5 }, 7, share),
              *at_end = gradients_of_rows((const int64_t[]){ 0, 1, 2, 3, 4, 5, 1 }, 7, share);
        if (!all || !row || !twice || !at_end) return;
        double largest = 0, of_row = 0, off = 0, off_at_end = 0;
        for (size_t i = 0; i < n; i++) {
            double want = (double)all[i] + (double)row[i];
            largest = fmax(largest, fabs(want));
            of_row = fmax(of_row, fabs((double)row[i]));
            off = fmax(off, fabs((double)twice[i] - want));
            off_at_end = fmax(off_at_end, fabs((double)at_end[i] - want));
        }
        CHECK(of_row > 1e-2 * largest);
        CHECK_MSG(off <= 1e-5 * largest && off_at_end <= 1e-5 * largest, "off by %g and %g of %g",
                  off, off_at_end, largest);
        ares_free(all), ares_free(row), ares_free(twice), ares_free(at_end);
    }
}

/* The gradients of one mini-batch of rows order[0 .. n), each a micro-batch of its own. */
static float *gradients_by_micro_batch(const int64_t *order, int64_t n, ares_world *w,
                                       size_t *count)
{
    run r;
    if (!run_open(&r, "qwen2_tied", "token-mean", false)) return NULL;
    r.cfg.actor.max_grad_norm = 1e9;
    r.cfg.actor.global_batch_size = 100;
    r.cfg.actor.mini_batch_unit = "rows";
    r.cfg.actor.micro_batch_size = 1;
    r.cfg.loss.loss_norm = "micro";
    if (w) run_join(&r, w);
    ares_batch_take(&r.batch, order, n);
    CHECK_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics));
    /* the embedding's own part is not summed over ranks: it has been added to the head's */
    *count = (size_t)((float *)r.model->params.embed_grad.data - (float *)r.model->params.grads);
    float *out = ares_malloc(r.model->params.grads_bytes);
    memcpy(out, r.model->params.grads, r.model->params.grads_bytes);
    run_close(&r);
    return out;
}

/* A mini-batch of rows may give the ranks different numbers of them. */
TEST_MPI(micro_batches_weigh_the_same_whatever_each_rank_has_of_them)
{
    if (!test_as_ranks(2, "micro_batches_weigh_the_same_whatever_each_rank_has_of_them")) return;
    static const int64_t order[] = { 0, 1, 2, 3 };
    ares_world *w = NULL;
    size_t n = 0;
    REQUIRE_OK(ares_world_open(&w));
    float *alone = gradients_by_micro_batch(order, 4, NULL, &n),
          *mine = gradients_by_micro_batch(ares_world_rank(w) ? order + 3 : order,
                                           ares_world_rank(w) ? 1 : 3, w, &n);
    double largest = 0, off = 0;
    for (size_t i = 0; alone && mine && i < n; i++) {
        largest = fmax(largest, fabs((double)alone[i]));
        off = fmax(off, fabs((double)alone[i] - (double)mine[i]));
    }
    CHECK_MSG(largest > 0 && off <= 1e-5 * largest, "off by %g of %g", off, largest);
    ares_free(alone), ares_free(mine);
    ares_world_close(w);
}
