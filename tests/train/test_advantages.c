/*
 * Every advantage estimator in a first update: the gradient is libtorch's autograd of PPO over the
 * same rows, with advantages that this file computes by plain loops. Tokens of an environment stand
 * among the policy's. Seen to fail: with rloo's n / (n - 1) left out, with gae's masked tokens not
 * skipped.
 */
#include "../../src/algo/adv/adv.h"
#include "gradient.h"

enum { TOKENS = 64 };
typedef struct plain {
    const run *r;
    double a[TOKENS], weight[TOKENS];
} plain;

typedef double group_formula(const double *s, const double *length, int n, int i);

static double mean(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum / n;
}
static double deviation(const double *x, int n)
{
    double m = mean(x, n), sum = 0;
    for (int i = 0; i < n; i++) sum += (x[i] - m) * (x[i] - m);
    return sqrt(sum / (n - 1));
}
static double free_of_mean(const double *s, const double *length, int n, int i)
{
    (void)length;
    return s[i] - mean(s, n);
}
static double standard(const double *s, const double *length, int n, int i)
{
    return free_of_mean(s, length, n, i) / (deviation(s, n) + 1e-6);
}
static double lead(const double *s, const double *length, int n, int i)
{
    double second = -INFINITY;
    (void)length;
    for (int k = 0; k < n; k++) {
        if (k == i) continue;
        if (s[k] > s[i]) return 0;
        second = fmax(second, s[k]);
    }
    return (s[i] - second) / (deviation(s, n) + 1e-6);
}
static double leave_one_out(const double *s, const double *length, int n, int i)
{
    double others = 0;
    (void)length;
    for (int k = 0; k < n; k++) others += k == i ? 0 : s[k];
    return s[i] - others / (n - 1);
}
static double length_weighted(const double *s, const double *length, int n, int i)
{
    double sum = 0, lengths = 0;
    for (int k = 0; k < n; k++) {
        sum += length[k] * s[k];
        lengths += length[k];
    }
    return s[i] - sum / lengths;
}

static void whiten(plain *p)
{
    const ares_batch *b = &p->r->batch;
    double n = 0, sum = 0, square = 0;
    for (int64_t t = 0; t < b->tokens; t++) {
        n += b->response_mask[t];
        sum += b->response_mask[t] ? p->a[t] : 0;
    }
    for (int64_t t = 0; t < b->tokens; t++)
        square += b->response_mask[t] ? pow(p->a[t] - sum / n, 2) : 0;
    for (int64_t t = 0; t < b->tokens; t++)
        p->a[t] = b->response_mask[t] ? (p->a[t] - sum / n) / sqrt(square / (n - 1) + 1e-8) : 0;
}

static void by_group(plain *p, group_formula *f, double scale)
{
    const ares_batch *b = &p->r->batch;
    for (int row = 0; row < ROWS; row++) {
        int first = row / PER_GROUP * PER_GROUP;
        double length[PER_GROUP];
        for (int i = 0; i < PER_GROUP; i++) length[i] = tokens_of(b, first + i);
        double a = scale * f(scores + first, length, PER_GROUP, row - first);
        for (int64_t t = b->row_start[row]; t < b->row_start[row + 1]; t++)
            p->a[t] = b->response_mask[t] ? a : 0;
    }
}

/* One recursion from the last token of the policy to the first; a turn that ends begins anew. */
static void recurse(plain *p, int row, const double *reward, double gamma, double lam, bool turns)
{
    const ares_batch *b = &p->r->batch;
    double next = 0, carried = 0;
    for (int64_t t = b->row_start[row + 1] - 1; t >= b->row_start[row]; t--) {
        if (!b->response_mask[t]) continue;
        if (turns && b->turn_ends[t]) next = carried = 0;
        carried = reward[t] + gamma * next - (double)b->values[t] + gamma * lam * carried;
        next = (double)b->values[t];
        p->a[t] = carried;
    }
}

static void gae(plain *p, bool turns)
{
    const ares_batch *b = &p->r->batch;
    const ares_algorithm_config *c = &p->r->cfg.algorithm;
    double reward[TOKENS];
    for (int64_t t = 0; t < b->tokens; t++) reward[t] = (double)b->token_level_rewards[t];
    for (int row = 0; row < ROWS; row++) {
        double next = 0, carried = 0;
        for (int64_t t = b->row_start[row + 1] - 1; t >= b->row_start[row] && turns; t--) {
            if (!b->turn_ends[t]) continue;
            carried = reward[t] + c->high_level_gamma * next - (double)b->values[t] +
                      c->high_level_gamma * c->lam * carried;
            next = (double)b->values[t];
            reward[t] = carried + next;
        }
        recurse(p, row, reward, c->gamma, c->lam, turns);
    }
    whiten(p);
}

static void returns(plain *p)
{
    const ares_batch *b = &p->r->batch;
    for (int row = 0; row < ROWS; row++) {
        double running = 0;
        for (int64_t t = b->row_start[row + 1] - 1; t >= b->row_start[row]; t--) {
            p->a[t] = (double)b->token_level_rewards[t] + p->r->cfg.algorithm.gamma * running;
            running = b->response_mask[t] ? p->a[t] : 0;
        }
    }
    whiten(p);
}

static void remax(plain *p)
{
    const ares_batch *b = &p->r->batch;
    for (int row = 0; row < ROWS; row++)
        for (int64_t t = b->row_start[row]; t < b->row_start[row + 1]; t++)
            p->a[t] = b->response_mask[t] ? scores[row] - (double)b->samples[row].baseline : 0;
}

/* Scores stand at ends of rows; a row's place t is compared with place t of its group. */
static void token_baseline(plain *p)
{
    const ares_batch *b = &p->r->batch;
    double later[TOKENS], energy[TOKENS];
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int64_t t = b->row_start[row]; t < b->row_start[row + 1]; t++) {
            double pi = exp((double)b->old_log_probs[t]);
            if (b->response_mask[t]) sum += 1 - 2 * pi + (double)b->sum_pi_squared[t];
            energy[t] = sum;
            later[t] = 0;
            for (int64_t u = t; u < b->row_start[row + 1]; u++)
                later[t] += b->response_mask[u] ? (double)b->token_level_rewards[u] : 0;
        }
    }
    for (int64_t g = 0; g < b->groups; g++)
        for (int64_t row = b->group_start[g]; row < b->group_start[g + 1]; row++)
            for (int64_t t = b->row_start[row]; t < b->row_start[row + 1]; t++) {
                double above = 0, below = 0;
                for (int64_t i = b->group_start[g]; i < b->group_start[g + 1]; i++) {
                    int64_t at = b->row_start[i] + t - b->row_start[row];
                    if (at >= b->row_start[i + 1] || !b->response_mask[at]) continue;
                    above += later[at] * energy[at], below += energy[at];
                }
                p->a[t] = b->response_mask[t] ? later[t] - above / below : 0;
            }
}

static void formula(plain *p, const char *name)
{
    double nonzero = 0;
    for (int i = 0; i < ROWS; i++) nonzero += scores[i] != 0;
    if (strcmp(name, "gae") == 0) gae(p, false);
    else if (strcmp(name, "bi_level_gae") == 0) gae(p, true);
    else if (strcmp(name, "grpo") == 0) by_group(p, standard, 1);
    else if (strcmp(name, "grpo_passk") == 0) by_group(p, lead, 1);
    else if (strcmp(name, "rloo") == 0) by_group(p, leave_one_out, 1);
    else if (strcmp(name, "opo") == 0) by_group(p, length_weighted, 1);
    else if (strcmp(name, "gpg") == 0) by_group(p, free_of_mean, ROWS / nonzero);
    else if (strcmp(name, "vapor") == 0) by_group(p, free_of_mean, 1);
    else if (strcmp(name, "remax") == 0) remax(p);
    else if (strcmp(name, "optimal_token_baseline") == 0) token_baseline(p);
    else if (strcmp(name, "reinforce_plus_plus") == 0) returns(p);
    else if (CHECK_STR(name, "reinforce_plus_plus_baseline")) {
        by_group(p, free_of_mean, 1);
        whiten(p);
    }
}

/*
 * PPO with both clips and the dual one, and the entropy bonus, averaged over all tokens of the
 * policy.
 */
static at_tensor total(const oracle *o, const void *ctx)
{
    const plain *p = ctx;
    const ares_batch *b = &o->r->batch;
    const ares_loss_config *c = &o->r->cfg.loss;
    double all = 0, less[TOKENS], bound[TOKENS];
    at_tensor loss = NULL;
    for (int i = 0; i < ROWS; i++) all += tokens_of(b, i);
    for (int64_t t = 0; t < b->tokens; t++) {
        less[t] = -p->a[t];
        bound[t] = p->a[t] < 0 ? -p->a[t] * c->clip_ratio_dual : 1e30;
    }
    for (int row = 0; row < ROWS; row++) {
        int64_t first = b->row_start[row], n = response_len[row];
        at_tensor against =
                      at_clone(at_to(at_from_blob(less + first, AT_F64, AT_DIMS(n)), o->dtype)),
                  most = at_clone(at_to(at_from_blob(bound + first, AT_F64, AT_DIMS(n)), o->dtype));
        at_tensor log_p = row_log_p(o, row),
                  ratio =
                      at_exp(at_sub(taken(o, row, log_p), blob(o, b->old_log_probs + first, n)));
        at_tensor of = at_maximum(
            at_mul(ratio, against),
            at_mul(at_clamp(ratio, 1 - c->clip_ratio_low, 1 + c->clip_ratio_high), against));
        at_tensor seen =
            at_to(at_clone(at_from_blob(b->response_mask + first, AT_U8, AT_DIMS(n))), o->dtype);
        at_tensor sum = at_mul_s(
            at_sum(at_mul(
                at_sub(at_minimum(of, most), at_mul_s(entropy_of(log_p), c->entropy_coeff)), seen)),
            1 / all);
        loss = loss ? at_add(loss, sum) : sum;
    }
    return loss;
}

/* What the estimators read beside the scores. */
static void put_rest(run *r)
{
    ares_batch *b = &r->batch;
    r->cfg.algorithm.use_kl_loss = false;
    r->cfg.algorithm.gamma = 0.9;
    r->cfg.algorithm.lam = 0.8;
    r->cfg.algorithm.high_level_gamma = 0.7;
    ARES_PUT(b, values);
    ARES_PUT(b, turn_ends);
    ARES_PUT(b, sum_pi_squared);
    for (int64_t row = 0; row < b->rows; row++) {
        int64_t end = b->row_start[row + 1];
        b->samples[row].baseline = (float)draw(900 + (uint64_t)row);
        for (int64_t t = b->row_start[row]; t < end; t++) {
            b->values[t] = (float)draw(600 + (uint64_t)t);
            b->sum_pi_squared[t] = (float)(0.3 + 0.7 * exp(2 * (double)b->old_log_probs[t]));
            b->turn_ends[t] = b->response_mask[t] && (t + 1 == end || !b->response_mask[t + 1]);
        }
    }
    b->advantages = b->returns = NULL; /* those of run_open */
}

TEST(the_first_update_of_every_advantage_has_the_gradient_of_the_plain_formula)
{
    int n;
    const ares_adv *const *list = adv_list(&n);
    CHECK(n >= 11);
    for (int i = 0; i < n; i++) {
        run r;
        plain p = { 0 };
        if (!run_open(&r, "qwen2_tied", "token-mean", i % 2 == 0) ||
            !CHECK(r.batch.tokens <= TOKENS))
            return;
        put_rest(&r);
        p.r = &r;
        formula(&p, list[i]->name);
        truth t;
        double norm = 0;
        if (truth_of(&r, total, &p, &t) &&
            CHECK_OK(list[i]->compute(&r.cfg.algorithm, NULL, &r.batch)) &&
            CHECK_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics)))
            check_gradients(&r, list[i]->name, &t);
        for (int64_t k = 0; k < ares_params_count(&r.model->params); k++)
            norm += t.exact[k] * t.exact[k];
        CHECK_MSG(norm > 0, "%s: no gradient", list[i]->name);
        truth_fini(&t);
        run_close(&r);
    }
}

/* Against the whole distribution, which only libtorch writes down. */
TEST(the_sum_of_squared_probabilities_is_that_of_the_whole_vocabulary)
{
    run r;
    double own[TOKENS], squares[TOKENS], least = 1;
    if (!run_open(&r, "qwen2_tied", "token-mean", true) || !CHECK(r.batch.tokens <= TOKENS)) return;
    at_scope *s = at_scope_open("squares");
    oracle o = { .r = &r, .dtype = AT_F64 };
    leaves_of(&o, r.model, false);
    for (int row = 0; row < ROWS && !at_scope_failed(); row++) {
        at_tensor log_p = row_log_p(&o, row), p = at_exp(log_p);
        at_read(taken(&o, row, log_p), AT_F64, own + r.batch.row_start[row]);
        at_read(at_sum_dim(at_mul(p, p), 1, false), AT_F64, squares + r.batch.row_start[row]);
    }
    REQUIRE_OK(at_scope_close(s, NULL));
    for (int64_t t = 0; t < r.batch.tokens; t++) r.batch.old_log_probs[t] = (float)own[t];
    CHECK_OK(actor_sum_pi_squared(&r.actor, &r.batch));
    for (int64_t t = 0; t < r.batch.tokens; t++) {
        if (!r.batch.response_mask[t]) continue;
        least = fmin(least, squares[t]);
        CHECK_NEAR(r.batch.sum_pi_squared[t], squares[t], 2e-5 * squares[t]);
    }
    CHECK(least < 0.9); /* not all on one token, where a square of its own would do */
    run_close(&r);
}
