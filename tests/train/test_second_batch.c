/*
 * A second batch in an update. Its rows are those of the first batch once more, so that libtorch's
 * walk of these gives the gradient that it adds; its temperature is another.
 */
#include "gradient.h"
#include "keep_groups.h"

#define TEMPERATURE 1.3

typedef struct pairs {
    ares_batch batch;
    actor_second second;
    int64_t row[ROWS];
    float *d_log_prob;
} pairs;

/* Derivatives of the tokens of a row, alike on every rank: a row is known by its group and index.
 */
static float derivative(int64_t row, int64_t token)
{
    return 0.1f * (float)draw(40000 + 100 * (uint64_t)row + (uint64_t)token);
}

/* keep: the groups that there are; row: the row of the first batch with which they go. */
static void pairs_open(pairs *p, run *r, const bool *keep, const int64_t *row)
{
    ares_batch *b = &p->batch;
    *p = (pairs){ .second = { .temperature = TEMPERATURE } };
    ares_batch_init(b);
    for (int g = 0; g < GROUPS; g++) {
        if (!keep[g]) continue;
        p->row[b->groups] = row[g];
        ares_batch_begin_group(b);
        for (int i = 0; i < PER_GROUP; i++)
            ares_batch_add_row(
                b,
                &(ares_sample){
                    .draw = g, .index = i, .prompt = r->prompts[g], .prompt_len = prompt_len[g] },
                response_len[g * PER_GROUP + i]);
    }
    ARES_PUT(b, responses);
    p->d_log_prob = ares_arena_calloc(&b->arena, (size_t)b->tokens + 1, sizeof *p->d_log_prob);
    for (int64_t i = 0; i < b->rows; i++) {
        int64_t of = b->samples[i].draw * PER_GROUP + b->samples[i].index, first = b->row_start[i];
        int64_t whole = 0; /* where the row's tokens are in a batch of all rows */
        for (int64_t k = 0; k < of; k++) whole += response_len[k];
        for (int64_t t = first; t < b->row_start[i + 1]; t++) {
            b->responses[t] = draw_id(r->model, 5000 + (uint64_t)(whole + t - first));
            p->d_log_prob[t] = derivative(of, t - first);
        }
    }
    p->second.batch = b;
    p->second.row = p->row;
    p->second.d_log_prob = p->d_log_prob;
}

static bool open_both(run *r, pairs *p, bool share, const int64_t *row)
{
    static const bool all[GROUPS] = { true, true };
    if (!run_open(r, "qwen2_tied", "token-mean", share)) return false;
    r->cfg.actor.max_grad_norm = 1e9;
    r->cfg.optim.lr = 0; /* all mini-batches see the same weights */
    pairs_open(p, r, all, row);
    return true;
}

static void close_both(run *r, pairs *p)
{
    ares_batch_fini(&p->batch);
    run_close(r);
}

static const int64_t own_rows[GROUPS] = { 0, PER_GROUP };

/* sum(d_log_prob * log-prob) of the groups whose flag is set */
static at_tensor linear(const oracle *o, const void *ctx)
{
    const bool *groups = ctx;
    at_tensor sum = NULL;
    for (int row = 0; row < ROWS; row++) {
        float d[64];
        if (!groups[row / PER_GROUP]) continue;
        for (int t = 0; t < response_len[row]; t++) d[t] = derivative(row, t);
        at_tensor x =
            at_sum(at_mul(taken(o, row, row_log_p(o, row)), blob(o, d, response_len[row])));
        sum = sum ? at_add(sum, x) : x;
    }
    return sum;
}

/* Gradients by parameter, row-major: of the last mini-batch of an update. */
static double *gradients_of(run *r, const pairs *p)
{
    double *out = ares_calloc((size_t)ares_params_count(&r->model->params), sizeof *out), *at = out;
    CHECK_OK(actor_update(&r->actor, &r->batch, p ? &p->second : NULL, r->metrics));
    for (int i = 0; i < r->model->params.n; i++) {
        const ares_param *x = &r->model->params.list[i];
        int64_t n = x->shape[0] * (x->rank == 2 ? x->shape[1] : 1);
        float *mine = ares_malloc((size_t)n * sizeof *mine);
        ares_matrix_unpack(&x->grad, mine, ARES_F32);
        for (int64_t e = 0; e < n; e++) *at++ = (double)mine[e];
        ares_free(mine);
    }
    return out;
}

/* have == a + b */
static void check_sum(const run *r, const char *what, const double *have, const double *a,
                      const double *b, double tolerance)
{
    double largest = 0, second = 0, off = 0;
    for (int64_t i = 0; i < ares_params_count(&r->model->params); i++) {
        largest = fmax(largest, fabs(a[i]));
        second = fmax(second, fabs(b[i]));
        off = fmax(off, fabs(have[i] - a[i] - b[i]));
    }
    CHECK(second > 0.1 * largest && largest > 0.1 * second);
    CHECK_MSG(off <= tolerance * (largest + second), "%s: off by %g of %g and %g", what, off,
              largest, second);
}

TEST(a_second_batch_adds_the_gradient_of_its_weighted_log_probs)
{
    for (int share = 0; share < 2; share++) {
        run alone, both;
        pairs none, p;
        static const bool groups[GROUPS] = { true, true };
        if (!open_both(&alone, &none, share, own_rows) || !open_both(&both, &p, share, own_rows))
            return;
        double *first = gradients_of(&alone, NULL), *sum = gradients_of(&both, &p);
        truth t;
        alone.cfg.rollout.temperature = TEMPERATURE; /* which the oracle reads */
        if (truth_of(&alone, linear, groups, &t)) {
            check_sum(&alone, share ? "shared" : "apart", sum, first, t.exact, 1e-5);
            truth_fini(&t);
        }
        ares_free(first), ares_free(sum);
        close_both(&alone, &none);
        close_both(&both, &p);
    }
}

TEST(a_second_batch_learns_in_the_mini_batch_of_its_rows)
{
    /* the last mini-batch is that of the second group, or of the last rows */
    static const struct {
        const char *unit;
        int64_t size, row[GROUPS];
        bool last[GROUPS]; /* the groups whose gradient is in it */
    } cases[] = {
        { "prompts", 1, { 0, PER_GROUP }, { false, true } },
        { "prompts", 1, { 0, PER_GROUP - 1 }, { false, false } },
        { "prompts", 1, { PER_GROUP, PER_GROUP + 2 }, { true, true } },
        { "rows", 4, { 3, 3 }, { false, false } },
        { "rows", 4, { 3, 4 }, { false, true } },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        run alone, both;
        pairs none, p;
        if (!open_both(&alone, &none, true, own_rows) || !open_both(&both, &p, true, cases[i].row))
            return;
        run *runs[] = { &alone, &both };
        for (int k = 0; k < 2; k++) {
            runs[k]->cfg.actor.mini_batch_unit = cases[i].unit;
            runs[k]->cfg.actor.global_batch_size = cases[i].size;
        }
        double *first = gradients_of(&alone, NULL), *sum = gradients_of(&both, &p), norms[2],
               of_first[2]; /* the norm of the first mini-batch: the metric is the mean of two */
        for (int k = 0; k < 2; k++) {
            double squares = 0;
            CHECK_EQ(runs[k]->actor.learner.optim.updates, 2);
            ares_metrics_get(runs[k]->metrics, "actor/grad_norm", &norms[k]);
            for (int64_t e = 0; e < ares_params_count(&alone.model->params); e++)
                squares += k ? sum[e] * sum[e] : first[e] * first[e];
            of_first[k] = 2 * norms[k] - sqrt(squares);
        }
        CHECK_MSG(norms[0] != norms[1], "case %d: nothing was added", i);
        if (cases[i].last[0] && cases[i].last[1]) /* a row that the first one ends before */
            CHECK_NEAR(of_first[1], of_first[0], 1e-5 * of_first[0]);
        truth t;
        alone.cfg.rollout.temperature = TEMPERATURE;
        if (!cases[i].last[0] && !cases[i].last[1])
            CHECK_MEM(sum, first, (size_t)ares_params_count(&alone.model->params) * sizeof *sum);
        else if (truth_of(&alone, linear, cases[i].last, &t)) {
            check_sum(&alone, cases[i].unit, sum, first, t.exact, 1e-5);
            truth_fini(&t);
        }
        ares_free(first), ares_free(sum);
        close_both(&alone, &none);
        close_both(&both, &p);
    }
}

/* All bytes that an update leaves, with a learning rate. */
static void learn(run *r, const actor_second *second)
{
    r->cfg.optim.lr = 1e-2;
    r->cfg.actor.global_batch_size = 1;
    r->cfg.actor.ppo_epochs = 2;
    CHECK_OK(actor_update(&r->actor, &r->batch, second, r->metrics));
}

static bool same_model(const run *x, const run *y)
{
    return memcmp(x->model->params.weights, y->model->params.weights,
                  x->model->params.weights_bytes) == 0 &&
           memcmp(x->model->params.states, y->model->params.states,
                  x->model->params.states_bytes) == 0 &&
           memcmp(x->model->params.grads, y->model->params.grads, x->model->params.grads_bytes) ==
               0;
}

TEST(a_second_batch_without_weight_changes_no_bit_and_one_with_weight_does)
{
    run without, zero, with;
    pairs p[3];
    run *runs[] = { &without, &zero, &with };
    for (int i = 0; i < 3; i++)
        if (!open_both(runs[i], &p[i], true, own_rows)) return;
    memset(p[1].d_log_prob, 0, (size_t)p[1].batch.tokens * sizeof(float));
    for (int i = 0; i < 3; i++) learn(runs[i], i ? &p[i].second : NULL);
    CHECK(same_model(&without, &zero));
    CHECK(!same_model(&without, &with));
    for (int i = 0; i < 3; i++) close_both(runs[i], &p[i]);
}

TEST(no_cut_into_micro_batches_changes_what_a_second_batch_teaches)
{
    run small, large;
    pairs p, q;
    if (!open_both(&small, &p, true, own_rows) || !open_both(&large, &q, true, own_rows)) return;
    small.cfg.actor.max_token_len = 1;
    large.cfg.actor.max_token_len = 1000;
    learn(&small, &p.second);
    learn(&large, &q.second);
    CHECK(same_model(&small, &large));
    close_both(&small, &p);
    close_both(&large, &q);
}

TEST(a_mini_batch_without_a_token_leaves_its_second_rows_out)
{
    run r;
    pairs p;
    if (!open_both(&r, &p, true, own_rows)) return;
    uint8_t *before = ares_malloc(r.model->params.weights_bytes);
    memcpy(before, r.model->params.weights, r.model->params.weights_bytes);
    memset(r.batch.response_mask, 0, (size_t)r.batch.tokens);
    learn(&r, &p.second);
    CHECK_MEM(r.model->params.weights, before, r.model->params.weights_bytes);
    CHECK_EQ(r.actor.learner.optim.updates, 0);
    ares_free(before);
    close_both(&r, &p);
}

TEST_MPI(second_batches_of_two_ranks_add_up)
{
    if (!test_as_ranks(2, "second_batches_of_two_ranks_add_up")) return;
    ares_world *w = NULL;
    run r, both;
    pairs p, q;
    bool keep[GROUPS] = { false };
    static const int64_t begin[GROUPS] = { 0, 0 };
    REQUIRE_OK(ares_world_open(&w));
    if (!open_both(&both, &p, true, own_rows) || !run_open(&r, "qwen2_tied", "token-mean", true))
        return;
    keep[ares_world_rank(w)] = true;
    pairs_open(&q, &r, keep, begin);
    r.cfg.actor.max_grad_norm = 1e9;
    keep_groups(&r.batch, keep);
    run_join(&r, w);
    double *alone = gradients_of(&both, &p), *mine = gradients_of(&r, &q);
    double largest = 0, off = 0;
    for (int64_t i = 0; i < ares_params_count(&r.model->params); i++) {
        largest = fmax(largest, fabs(alone[i]));
        off = fmax(off, fabs(alone[i] - mine[i]));
    }
    CHECK_MSG(off <= 1e-6 * largest, "off by %g of %g", off, largest);
    ares_free(alone), ares_free(mine);
    close_both(&both, &p);
    close_both(&r, &q);
    ares_world_close(w);
}
