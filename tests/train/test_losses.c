/*
 * Every policy loss and every KL in a whole update: the gradient is that of the plain formula by
 * libtorch's autograd, no micro-batch changes a bit of it, a second rank no more than rounding, and
 * what the mini-batch decides comes out the same as what a token decides. Seen to fail: with the
 * clips of gmpo on ratios, the mean of gspo over all tokens of the row, low_var_kl's slope in the +
 * forms, c_kl without kl_weight, clip_cov's selection by micro-batch.
 */
#include "ares/dist.h"
#include "gradient.h"
#include "keep_groups.h"
#include "roles.h"

#include <fcntl.h>
#include <unistd.h>

typedef struct loss_case {
    const char *loss, *mode, *kl, *rollout_is;
    double low, high;
    int micro;     /* loss_norm micro, by so many samples; 0: global */
    int unclipped; /* the loss has no clip, or its bounds are too far away for one to act */
} loss_case;

/* The two that tests of other things take. */
enum { PLAIN, EXACT_KL };
static const loss_case cases[] = {
    [PLAIN] = { "default", "token-mean", "kl", "none", 0.2, 0.28, 0, 0 },
    [EXACT_KL] = { "default", "seq-mean-token-sum", "full", "none", 0.2, 0.28, 0, 0 },
    { "dapo", "token-mean", "abs", "none", 0.2, 0.28, 0, 0 },
    { "gspo", "seq-mean-token-mean", "mse", "none", 0.1, 0.1, 0, 0 },
    { "gspo_token", "seq-mean-token-mean", "low_var_kl", "token", 0.1, 0.1, 0, 0 },
    { "cispo", "token-mean", "kl+", "sequence", 0.2, 0.28, 0, 0 },
    { "cispo", "token-mean", "mse+", "none", 1, 4, 0, 1 },
    { "gmpo", "seq-mean-token-mean", "abs+", "none", 0.4, 0.4, 0, 0 },
    { "gmpo", "token-mean", "low_var_kl+", "token", 0.4, 0.4, 0, 0 },
    { "sapo", "seq-mean-token-mean", "low_var_kl+", "geometric", 0.2, 0.28, 0, 1 },
    { "clip_cov", "token-mean", "low_var_kl", "none", 0.2, 0.28, 0, 0 },
    { "kl_cov", "seq-mean-token-sum-norm", "mse", "none", 0.2, 0.28, 0, 1 },
    { "gspo", "seq-mean-token-mean", "full", "none", 0.1, 0.1, 0, 0 },
    { "default", "token-mean", "low_var_kl", "none", 0.2, 0.28, 3, 0 },
    { "gpg", "token-mean", "mse", "token", 0.2, 0.28, 0, 1 },
    { "dppo_tv", "seq-mean-token-sum-norm", "kl", "none", 0.01, 0.01, 0, 0 },
    { "dppo_kl", "token-mean", "kl", "sequence", 0.001, 0.001, 0, 0 },
    { "dro", "token-mean", "kl", "token", 0.2, 0.28, 0, 1 },
};

/* ---------------------------------------------------------------- the plain formulas */

typedef struct formula {
    const loss_case *c;
    const ares_model *reference; /* of the exact KL */
    double weight[256], is[256];
    bool chosen[256]; /* by covariance */
} formula;

static at_tensor constant(const oracle *o, double x)
{
    return at_full(x, o->dtype, AT_SCALAR);
}
static at_tensor numbers(const oracle *o, const double *x, int64_t n)
{
    return at_clone(at_to(at_from_blob((void *)x, AT_F64, AT_DIMS(n)), o->dtype));
}
static at_tensor mask_of(const oracle *o, int row)
{
    const ares_batch *b = &o->r->batch;
    return at_to(at_clone(at_from_blob(b->response_mask + b->row_start[row], AT_U8,
                                       AT_DIMS(response_len[row]))),
                 o->dtype);
}
static at_tensor mean_of(const oracle *o, int row, at_tensor x)
{
    return at_mul_s(at_sum(at_mul(x, mask_of(o, row))), 1 / tokens_of(&o->r->batch, row));
}

static at_tensor clipped(const oracle *o, at_tensor ratio, double advantage, double dual)
{
    const ares_loss_config *c = &o->r->cfg.loss;
    at_tensor bounded = at_clamp(ratio, 1 - c->clip_ratio_low, 1 + c->clip_ratio_high);
    at_tensor loss = at_maximum(at_mul_s(ratio, -advantage), at_mul_s(bounded, -advantage));
    return advantage < 0 && isfinite(dual) ? at_minimum(loss, constant(o, -advantage * dual))
                                           : loss;
}

/*
 * 1 where dppo keeps a token, else 0: the weights have not moved, so that the policy's own log-prob
 * is the rollout's.
 */
static at_tensor near_old(const oracle *o, const ares_loss_config *c, const char *name,
                          int64_t first, int64_t n, double a)
{
    double kept[32], bound = a > 0 ? c->clip_ratio_high : c->clip_ratio_low;
    for (int64_t t = 0; t < n; t++) {
        double p = exp((double)o->r->batch.rollout_log_probs[first + t]),
               q = exp((double)o->r->batch.old_log_probs[first + t]), distance = fabs(p - q);
        if (strcmp(name, "dppo_kl") == 0)
            distance = q * log(q / p) + (1 - q) * log((1 - q) / (1 - p));
        kept[t] = distance <= bound || (a > 0) != (p > q);
    }
    return numbers(o, kept, n);
}

/* Losses of a row's tokens before any weight. */
static at_tensor policy(const oracle *o, const formula *f, int row, at_tensor log_prob)
{
    const ares_batch *b = &o->r->batch;
    const ares_loss_config *c = &o->r->cfg.loss;
    const char *name = f->c->loss;
    int64_t first = b->row_start[row], n = response_len[row];
    double a = (double)b->advantages[first], dual = 3;
    for (int64_t t = first; t < first + n; t++)
        if (b->response_mask[t]) a = (double)b->advantages[t];
    at_tensor log_ratio = at_sub(log_prob, blob(o, b->old_log_probs + first, n)),
              ratio = at_exp(log_ratio);
    if (strcmp(name, "default") == 0) return clipped(o, ratio, a, dual);
    if (strcmp(name, "dapo") == 0) return clipped(o, ratio, a, INFINITY);
    if (strcmp(name, "cispo") == 0)
        return at_mul_s(at_mul(log_prob, at_detach(at_clamp(ratio, 1 - c->clip_ratio_low,
                                                            1 + c->clip_ratio_high))),
                        -a);
    if (strcmp(name, "gpg") == 0) return at_mul_s(log_prob, -a);
    if (strcmp(name, "dro") == 0)
        return at_sub(at_mul_s(at_mul(log_ratio, log_ratio), 0.5 * c->dro_beta),
                      at_mul_s(log_prob, a));
    if (strncmp(name, "dppo", 4) == 0)
        return at_mul_s(at_mul(at_mul(log_prob, at_detach(at_clamp(ratio, 0, dual))),
                               near_old(o, c, name, first, n, a)),
                        -a);
    if (strcmp(name, "sapo") == 0) {
        double tau = a < 0 ? c->tau_negative : c->tau_positive;
        return at_mul_s(at_sigmoid(at_mul_s(at_add_s(ratio, -1), tau)), -a * 4 / tau);
    }
    at_tensor mean = at_expand(at_unsqueeze(mean_of(o, row, log_ratio), 0), AT_DIMS(n));
    if (strcmp(name, "gspo") == 0) return clipped(o, at_exp(mean), a, dual);
    if (strcmp(name, "gspo_token") == 0)
        return clipped(o, at_exp(at_add(at_detach(mean), at_sub(log_prob, at_detach(log_prob)))), a,
                       dual);
    if (strcmp(name, "gmpo") == 0) {
        at_tensor bounded = at_clamp(log_ratio, -c->clip_ratio_low, c->clip_ratio_high);
        at_tensor kept = a > 0 ? at_minimum(log_ratio, bounded) : at_maximum(log_ratio, bounded);
        return at_expand(at_unsqueeze(at_mul_s(at_exp(mean_of(o, row, kept)), -a), 0), AT_DIMS(n));
    }
    double left[32], penalty[32];
    for (int64_t t = 0; t < n; t++) {
        left[t] = f->chosen[first + t] ? 0 : 1;
        penalty[t] = f->chosen[first + t] ? c->ppo_kl_coef : 0;
    }
    if (strcmp(name, "clip_cov") == 0)
        return at_mul(clipped(o, ratio, a, INFINITY), numbers(o, left, n));
    return at_add(at_mul_s(ratio, -a), at_mul(at_abs(log_ratio), numbers(o, penalty, n)));
}

/* Value of the one, gradient of the other. */
static at_tensor straight_through(at_tensor value, at_tensor slope)
{
    return at_add(at_detach(value), at_sub(slope, at_detach(slope)));
}

static at_tensor kl_of(const oracle *o, const formula *f, int row, at_tensor log_p,
                       at_tensor log_prob)
{
    const ares_batch *b = &o->r->batch;
    const char *name = f->c->kl;
    if (strcmp(name, "full") == 0) {
        oracle ref = { .r = o->r, .dtype = o->dtype };
        leaves_of(&ref, f->reference, false);
        return at_sum_dim(at_mul(at_exp(log_p), at_sub(log_p, row_log_p(&ref, row))), 1, false);
    }
    at_tensor x = at_sub(log_prob,
                         blob(o, b->ref_log_probs + b->row_start[row], response_len[row])),
              k2 = at_mul_s(at_mul(x, x), 0.5), value = x;
    if (strncmp(name, "abs", 3) == 0) value = at_abs(x);
    if (strncmp(name, "mse", 3) == 0) value = k2;
    if (strncmp(name, "low_var_kl", 10) == 0) value = at_add_s(at_add(at_exp(at_neg(x)), x), -1);
    return strchr(name, '+') ? straight_through(value, k2) : value;
}

static at_tensor plain(const oracle *o, const void *ctx)
{
    const formula *f = ctx;
    const ares_batch *b = &o->r->batch;
    at_tensor total = NULL;
    for (int row = 0; row < ROWS; row++) {
        int64_t first = b->row_start[row], n = response_len[row];
        at_tensor log_p = row_log_p(o, row), log_prob = taken(o, row, log_p);
        double w[32], corrected[32], of_kl[32], geometric = 0;
        for (int64_t t = 0; t < n; t++) {
            w[t] = f->weight[first + t];
            corrected[t] = w[t] * f->is[first + t];
            of_kl[t] = w[t] * b->kl_coef * (b->kl_weight ? (double)b->kl_weight[first + t] : 1);
            if (b->response_mask[first + t]) geometric += log(f->is[first + t]) / tokens_of(b, row);
        }
        for (int64_t t = 0; strcmp(f->c->loss, "gmpo") == 0 && t < n; t++)
            corrected[t] = w[t] * exp(geometric);
        at_tensor sum = at_sum(at_mul(policy(o, f, row, log_prob), numbers(o, corrected, n)));
        sum = at_add(sum, at_sum(at_mul(kl_of(o, f, row, log_p, log_prob), numbers(o, of_kl, n))));
        sum = at_sub(sum, at_mul_s(at_sum(at_mul(entropy_of(log_p), numbers(o, w, n))),
                                   o->r->cfg.loss.entropy_coeff));
        total = total ? at_add(total, sum) : sum;
    }
    return total;
}

/* ---------------- what the formulas take from the batch, in plain words */

static double all_tokens(const ares_batch *b)
{
    double n = 0;
    for (int row = 0; row < ROWS; row++) n += tokens_of(b, row);
    return n;
}

/* Every row's tokens weigh 1 / (tokens of its micro-batch of `size` rows x micro-batches). */
static void weigh_by_micro_batch(const run *r, int size, formula *f)
{
    const ares_batch *b = &r->batch;
    for (int first = 0; first < ROWS; first += size) {
        int end = ARES_MIN(first + size, ROWS);
        double n = 0;
        for (int row = first; row < end; row++) n += tokens_of(b, row);
        for (int64_t t = b->row_start[first]; t < b->row_start[end]; t++)
            f->weight[t] = b->response_mask[t] ? 1 / (n * ((ROWS + size - 1) / size)) : 0;
    }
}

static void weigh(const run *r, formula *f)
{
    const ares_batch *b = &r->batch;
    for (int row = 0; row < ROWS; row++) {
        double n = tokens_of(b, row), w = 1 / all_tokens(b), sum = 0;
        if (strcmp(f->c->mode, "seq-mean-token-mean") == 0) w = 1 / (ROWS * n);
        if (strcmp(f->c->mode, "seq-mean-token-sum") == 0) w = 1.0 / ROWS;
        if (strcmp(f->c->mode, "seq-mean-token-sum-norm") == 0)
            w = 1 / (double)r->cfg.data.max_response_length;
        for (int64_t t = b->row_start[row]; t < b->row_start[row + 1]; t++)
            if (b->response_mask[t])
                sum += (double)b->old_log_probs[t] - (double)b->rollout_log_probs[t];
        for (int64_t t = b->row_start[row]; t < b->row_start[row + 1]; t++) {
            double x = (double)b->old_log_probs[t] - (double)b->rollout_log_probs[t];
            if (strcmp(f->c->rollout_is, "sequence") == 0) x = sum;
            if (strcmp(f->c->rollout_is, "geometric") == 0) x = sum / n;
            f->is[t] = strcmp(f->c->rollout_is, "none") == 0 ? 1 : fmin(exp(x), 2);
            f->weight[t] = b->response_mask[t] ? w : 0;
        }
    }
    if (f->c->micro) weigh_by_micro_batch(r, f->c->micro, f);
}

/*
 * clip_cov with a share of 1 leaves out every candidate; kl_cov takes the fifth of the tokens with
 * the largest covariance.
 */
static void choose(const run *r, formula *f)
{
    const ares_batch *b = &r->batch;
    double n = all_tokens(b), a_mean = 0, l_mean = 0, cov[256];
    for (int64_t t = 0; t < b->tokens; t++) {
        if (!b->response_mask[t]) continue;
        a_mean += (double)b->advantages[t] / n;
        /* the policy's own: its weights have not moved */
        l_mean += (double)b->rollout_log_probs[t] / n;
    }
    for (int64_t t = 0; t < b->tokens; t++)
        cov[t] = ((double)b->advantages[t] - a_mean) * ((double)b->rollout_log_probs[t] - l_mean);
    for (int64_t t = 0; t < b->tokens; t++) {
        if (!b->response_mask[t]) continue;
        double ratio = exp((double)b->rollout_log_probs[t] - (double)b->old_log_probs[t]),
               a = (double)b->advantages[t], larger = 0;
        for (int64_t u = 0; u < b->tokens; u++) larger += b->response_mask[u] && cov[u] > cov[t];
        if (strcmp(f->c->loss, "clip_cov") == 0)
            f->chosen[t] = cov[t] > 0.05 && cov[t] < 5 &&
                           !(a > 0 && ratio > 1 + r->cfg.loss.clip_ratio_high) &&
                           !(a < 0 && ratio < 1 - r->cfg.loss.clip_ratio_low);
        else f->chosen[t] = larger < floor(0.2 * n);
    }
}

/* ---------------------------------------------------------------- runs */

static bool reference_on_host; /* of cases that are opened from here on */

static bool case_open(run *r, const loss_case *c, int64_t max_tokens, reference *ref)
{
    if (!run_open(r, "qwen2_tied", c->mode, false)) return false;
    r->cfg.actor.max_token_len = max_tokens;
    r->cfg.loss.loss_type = c->loss;
    r->cfg.loss.clip_ratio_low = c->low;
    r->cfg.loss.clip_ratio_high = c->high;
    r->cfg.loss.clip_ratio_dual = NAN; /* 3, and none for dapo */
    r->cfg.loss.rollout_is = c->rollout_is;
    r->cfg.loss.clip_cov_ratio = 1;
    r->cfg.loss.clip_cov_lb = 0.05;
    r->cfg.loss.kl_cov_ratio = 0.2;
    if (c->micro) r->cfg.loss.loss_norm = "micro";
    r->cfg.actor.micro_batch_size = c->micro;
    r->actor.loss = ares_loss_find(c->loss);
    r->actor.kl = ares_kl_find(c->kl);
    ares_batch *b = &r->batch;
    ARES_PUT(b, kl_weight);
    for (int64_t t = 0; t < b->tokens; t++) b->kl_weight[t] = t % 3 ? 1 : 0.5f;
    if (ares_rollout_corrects(&r->cfg.loss) &&
        !CHECK_OK(ares_rollout_correct(&r->cfg.loss, NULL, b, r->metrics)))
        return false;
    *ref = (reference){ .cfg = &r->cfg };
    if (r->actor.kl->value) return true;
    static char path[500];
    const ares_model_share share = { .weights_on_host = reference_on_host };
    ares_model_options opt = { .storage = ARES_F32, .share = &share };
    snprintf(path, sizeof path, "%s/qwen2_tied", test_source("tests/golden/models"));
    if (!CHECK_OK(ares_model_load(path, &r->device, &opt, &ref->own)) ||
        !CHECK_OK(learner_open(&ref->learner, ref->own, &(learner_options){ .role = "ref" })))
        return false;
    const ares_model *m = ref->own;
    for (int i = 0; i < m->params.n; i++) { /* another model: near, and not the same */
        const ares_region *region = &m->params.regions[m->params.list[i].region];
        float *w = (float *)(region->host ? region->host : region->weights) + m->params.list[i].at;
        for (int64_t e = 0; e < m->params.list[i].elements; e++)
            w[e] *= 1 + 0.3f * (float)(e % 7) / 7;
    }
    r->actor.ref = ref;
    return true;
}
static void case_close(run *r, reference *ref)
{
    reference_close(ref);
    run_close(r);
}

static double metric(const run *r, const char *name)
{
    double x = NAN;
    ares_metrics_get(r->metrics, name, &x);
    return x;
}

/* Means over tokens, and the terms that the loss adds, with its weights. */
static void check_terms(const run *r, const formula *f, const float *entropy)
{
    const ares_batch *b = &r->batch;
    double n = all_tokens(b), mean_kl = 0, mean_entropy = 0, kl = 0, bonus = 0;
    for (int64_t t = 0; t < b->tokens; t++) {
        if (!b->response_mask[t]) {
            CHECK(b->kl[t] == 0);
            continue;
        }
        mean_kl += (double)b->kl[t] / n;
        mean_entropy += (double)entropy[t] / n;
        kl += f->weight[t] * (double)b->kl_weight[t] * (double)b->kl[t];
        bonus += f->weight[t] * (double)entropy[t];
    }
    CHECK_NEAR(metric(r, "actor/kl"), mean_kl, 1e-6 * (1 + fabs(mean_kl)));
    CHECK_NEAR(metric(r, "actor/kl_loss"), kl, 1e-6 * (1 + fabs(kl)));
    CHECK_NEAR(metric(r, "actor/entropy"), mean_entropy, 1e-6 * mean_entropy);
    CHECK_NEAR(metric(r, "actor/entropy_loss"), bonus, 1e-6 * bonus);
    double whole = metric(r, "actor/pg_loss") + b->kl_coef * metric(r, "actor/kl_loss") -
                   r->cfg.loss.entropy_coeff * metric(r, "actor/entropy_loss");
    CHECK_NEAR(metric(r, "actor/final_loss"), whole, 1e-12 * (1 + fabs(whole)));
}

TEST(the_first_update_of_every_loss_and_kl_has_the_gradient_of_the_plain_formula)
{
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        run r;
        reference ref;
        if (!case_open(&r, &cases[i], 30, &ref)) return;
        formula f = { .c = &cases[i], .reference = ref.learner.model };
        weigh(&r, &f);
        choose(&r, &f);
        truth t;
        char what[100];
        float entropy[256], log_prob[256];
        const learner_scoring scoring = learner_scoring_of(&r.cfg);
        snprintf(what, sizeof what, "%s, %s, %s, %s", cases[i].loss, cases[i].mode, cases[i].kl,
                 cases[i].rollout_is);
        CHECK_OK(
            learner_log_probs(&r.actor.learner, &scoring, &r.batch, 0, ROWS, log_prob, entropy));
        if (truth_of(&r, plain, &f, &t) &&
            CHECK_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics)))
            check_gradients(&r, what, &t);
        if (!cases[i].unclipped)
            CHECK_MSG(metric(&r, "actor/pg_clipfrac_higher") > 0 &&
                          metric(&r, "actor/pg_clipfrac_higher") < 1,
                      "%s: no clip acted", what);
        check_terms(&r, &f, entropy);
        truth_fini(&t);
        case_close(&r, &ref);
    }
}

static size_t result_bytes(const ares_model *m)
{
    size_t bytes = m->params.grads_bytes;
    for (int i = 0; i < m->params.n_regions; i++)
        bytes += (size_t)m->params.regions[i].elements * sizeof(float);
    return bytes;
}

/* Gradients and weights after an update; NULL: it failed. */
static float *gradients_of(const loss_case *c, int64_t max_tokens, double early_stop)
{
    run r;
    reference ref;
    if (!case_open(&r, c, max_tokens, &ref)) return NULL;
    r.cfg.loss.early_stop_imp_ratio = early_stop;
    float *g = NULL;
    if (CHECK_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics))) {
        char *to = ares_malloc(result_bytes(r.model));
        g = (float *)(void *)to;
        memcpy(to, r.model->params.grads, r.model->params.grads_bytes);
        to += r.model->params.grads_bytes;
        for (int i = 0; i < r.model->params.n_regions; i++) {
            const ares_region *region = &r.model->params.regions[i];
            memcpy(to, region->host ? region->host : region->weights,
                   (size_t)region->elements * sizeof(float));
            to += (size_t)region->elements * sizeof(float);
        }
    }
    case_close(&r, &ref);
    return g;
}

/*
 * Gradients of an update at a learning rate of 0: of its last epoch. Updates of the same r may
 * follow each other.
 */
static float *still_gradients(run *r, int64_t epochs)
{
    r->cfg.optim.lr = 0;
    r->cfg.actor.max_grad_norm = 1e9;
    r->cfg.actor.ppo_epochs = epochs;
    ares_metrics_clear(r->metrics);
    if (!CHECK_OK(actor_update(&r->actor, &r->batch, NULL, r->metrics))) return NULL;
    float *g = ares_malloc(r->model->params.grads_bytes);
    memcpy(g, r->model->params.grads, r->model->params.grads_bytes);
    return g;
}

/*
 * How a loss averages its tokens changes the loss, and no number that is none: in a second
 * mini-batch, in another mode, over other counts.
 */
TEST(metrics_that_are_no_loss_are_the_same_however_the_loss_averages)
{
    static const char *const losses[] = { "actor/pg_loss", "actor/kl_loss", "actor/entropy_loss",
                                          "actor/final_loss", "actor/grad_norm" };
    static const struct {
        const char *mode, *norm, *scope;
        int64_t prompts;
    } ways[] = { { "token-mean", "global", "minibatch", GROUPS },
                 { "seq-mean-token-mean", "global", "minibatch", GROUPS },
                 { "seq-mean-token-sum", "global", "minibatch", 1 },
                 { "seq-mean-token-sum-norm", "global", "minibatch", GROUPS },
                 { "token-mean", "micro", "minibatch", 1 },
                 { "token-mean", "global", "rollout", 1 } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        run r;
        reference ref;
        if (strstr(cases[i].loss, "_cov")) continue; /* the mini-batch decides what is clipped */
        if (!case_open(&r, &cases[i], 30, &ref)) return;
        ares_metrics *first = ares_metrics_new();
        for (int k = 0; k < ARES_COUNT(ways); k++) {
            r.cfg.loss.loss_avg_mode = ways[k].mode;
            r.cfg.loss.loss_norm = ways[k].norm;
            r.cfg.loss.valid_token_scope = ways[k].scope;
            r.cfg.actor.micro_batch_size = 1;
            r.cfg.actor.global_batch_size = ways[k].prompts;
            ares_free(still_gradients(&r, 1));
            int64_t compared = 0;
            for (int m = 0; m < ares_metrics_count(r.metrics); m++) {
                const char *name = ares_metrics_name(r.metrics, m);
                double x = ares_metrics_value(r.metrics, m), y = NAN;
                bool skip = strncmp(name, "exact/", 6) == 0; /* of the first mini-batch */
                for (int l = 0; l < ARES_COUNT(losses); l++)
                    skip = skip || strcmp(name, losses[l]) == 0;
                if (k == 0) ares_metrics_set(first, name, x);
                if (skip || !ares_metrics_get(first, name, &y)) continue;
                compared++;
                CHECK_MSG(fabs(x - y) <= 1e-9 * (1 + fabs(y)),
                          "%s, %s, %s, %s: %s is %.17g, was %.17g", cases[i].loss, ways[k].mode,
                          ways[k].norm, ways[k].scope, name, x, y);
            }
            CHECK(compared > 12);
        }
        ares_metrics_free(first);
        case_close(&r, &ref);
    }
}

static size_t gradient_bytes(void)
{
    run r;
    reference ref;
    size_t bytes = 0;
    if (case_open(&r, &cases[PLAIN], 30, &ref)) bytes = r.model->params.grads_bytes;
    case_close(&r, &ref);
    return bytes;
}

static size_t updated_bytes(void)
{
    run r;
    reference ref;
    size_t bytes = 0;
    if (case_open(&r, &cases[PLAIN], 30, &ref)) bytes = result_bytes(r.model);
    case_close(&r, &ref);
    return bytes;
}

TEST(no_micro_batch_and_no_second_pass_changes_a_bit_of_any_gradient)
{
    size_t bytes = updated_bytes();
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        float *whole = gradients_of(&cases[i], 10000, NAN), *cut = gradients_of(&cases[i], 30, NAN),
              *each = gradients_of(&cases[i], 1, NAN),
              /* an early stop that never comes */
                  *two = gradients_of(&cases[i], 30, 1e9),
              *kept = gradients_of(&cases[i], 10000, 1e9);
        if (whole && cut && each && two && kept) {
            CHECK_MSG(memcmp(whole, cut, bytes) == 0, "%s, %s: three micro-batches", cases[i].loss,
                      cases[i].kl);
            CHECK_MSG(memcmp(whole, each, bytes) == 0, "%s, %s: a micro-batch a row", cases[i].loss,
                      cases[i].kl);
            CHECK_MSG(memcmp(whole, two, bytes) == 0, "%s, %s: two passes", cases[i].loss,
                      cases[i].kl);
            CHECK_MSG(memcmp(whole, kept, bytes) == 0, "%s, %s: a kept forward", cases[i].loss,
                      cases[i].kl);
        }
        ares_free(whole), ares_free(cut), ares_free(each), ares_free(two), ares_free(kept);
    }
}

/*
 * The actor's weights, or the reference's alone, in host memory: rounds of all micro-batches. Seen
 * to fail where the forward of the losses was kept although another one had followed it, and where
 * AdamW's weights did not go back to the host.
 */
TEST(weights_in_host_memory_change_no_bit_of_an_update)
{
    size_t bytes = updated_bytes();
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        float *whole = gradients_of(&cases[i], 30, NAN);
        reference_on_host = true;
        float *beside = gradients_of(&cases[i], 30, NAN);
        weights_on_host = true;
        float *host = gradients_of(&cases[i], 30, NAN), *stop = gradients_of(&cases[i], 30, 1e9);
        weights_on_host = reference_on_host = false;
        if (whole && beside && host && stop) {
            CHECK_MSG(memcmp(whole, beside, bytes) == 0, "%s, %s: the reference", cases[i].loss,
                      cases[i].kl);
            CHECK_MSG(memcmp(whole, host, bytes) == 0, "%s, %s: the actor", cases[i].loss,
                      cases[i].kl);
            CHECK_MSG(memcmp(whole, stop, bytes) == 0, "%s, %s: two passes", cases[i].loss,
                      cases[i].kl);
        }
        ares_free(whole), ares_free(beside), ares_free(host), ares_free(stop);
    }
}

TEST(an_epoch_repeats_the_gradient_of_the_one_before_while_the_weights_stand_still)
{
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        run r;
        reference ref;
        if (!case_open(&r, &cases[i], 30, &ref)) return;
        float *first = still_gradients(&r, 1);
        double norm = metric(&r, "actor/grad_norm"), loss = metric(&r, "actor/final_loss");
        float *third = still_gradients(&r, 3);
        if (first && third) {
            CHECK_MSG(memcmp(first, third, r.model->params.grads_bytes) == 0, "%s, %s",
                      cases[i].loss, cases[i].kl);
            CHECK_NEAR(metric(&r, "actor/grad_norm"), norm, 1e-9 * norm);
            CHECK_NEAR(metric(&r, "actor/final_loss"), loss, 1e-9 * (1 + fabs(loss)));
        }
        ares_free(first), ares_free(third);
        case_close(&r, &ref);
    }
}

/* Half of the tokens that clip_cov may choose lose their gradient, by lot. */
TEST(clip_cov_draws_other_lots_in_every_step_and_epoch_and_the_same_again)
{
    enum { UPDATES = 4 };
    static const struct {
        int64_t step, epochs;
    } updates[UPDATES] = { { 0, 1 }, { 1, 1 }, { 0, 2 }, { 0, 1 } };
    const loss_case *c = cases;
    while (strcmp(c->loss, "clip_cov") != 0) c++;
    float *g[UPDATES];
    run r;
    reference ref;
    if (!case_open(&r, c, 30, &ref)) return;
    r.cfg.loss.clip_cov_ratio = 0.1;
    for (int i = 0; i < UPDATES; i++) {
        r.actor.learner.step = updates[i].step;
        g[i] = still_gradients(&r, updates[i].epochs);
        CHECK(metric(&r, "actor/pg_clipfrac_higher") > 0);
    }
    size_t bytes = r.model->params.grads_bytes;
    for (int i = 1; i < UPDATES && g[0] && g[i]; i++)
        CHECK_MSG((memcmp(g[0], g[i], bytes) == 0) == (i == UPDATES - 1),
                  "step %lld, epoch %lld against the first of both", (long long)updates[i].step + 1,
                  (long long)updates[i].epochs);
    for (int i = 0; i < UPDATES; i++) ares_free(g[i]);
    case_close(&r, &ref);
}

/*
 * The loss and the ratios of the update are those of its first rows alone, whose ratios are 1;
 * cases[PLAIN] weighs tokens alike.
 */
static void check_loss_of_first_rows(const run *r, int64_t rows)
{
    const ares_batch *b = &r->batch;
    double loss = 0, all = 0;
    for (int64_t t = 0; t < b->tokens; t++) {
        all += b->response_mask[t];
        if (t < b->row_start[rows] && b->response_mask[t]) loss -= (double)b->advantages[t];
    }
    CHECK(fabs(loss) > 0.1);
    CHECK_NEAR(metric(r, "actor/pg_loss"), loss / all, 1e-6);
    CHECK_NEAR(metric(r, "actor/ratio_max"), 1, 1e-5);
    CHECK_NEAR(metric(r, "actor/ppo_kl"), 0, 1e-5);
}

TEST(an_early_stop_leaves_no_gradient_and_is_counted)
{
    for (int scope = 0; scope < 2; scope++) {
        run r;
        reference ref;
        if (!case_open(&r, &cases[PLAIN], 30, &ref)) return;
        r.cfg.loss.early_stop_imp_ratio = 1.0001;
        r.cfg.loss.early_stop_scope = scope ? "micro" : "minibatch";
        r.cfg.actor.micro_batch_size = 2;
        /* every ratio is e */
        for (int64_t t = 0; t < r.batch.tokens; t++)
            r.batch.old_log_probs[t] = r.batch.rollout_log_probs[t] - 1;
        if (scope)
            memcpy(r.batch.old_log_probs, r.batch.rollout_log_probs,
                   (size_t)r.batch.row_start[2] *
                       sizeof(float)); /* but those of the first micro-batch */
        CHECK_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics));
        double norm = metric(&r, "actor/grad_norm");
        CHECK_NEAR(metric(&r, "actor/abandoned_minibatches"), scope ? 0 : 1, 0);
        if (scope) {
            CHECK_EQ(metric(&r, "actor/abandoned_microbatches"), 2);
            check_loss_of_first_rows(&r, 2);
        }
        /* nothing was learnt: there is none */
        CHECK_MSG(scope ? norm > 0 : isnan(norm), "norm %g", norm);
        CHECK_EQ(r.actor.learner.optim.updates, scope);
        case_close(&r, &ref);
    }
}

TEST(loss_norm_micro_averages_the_means_of_micro_batches_counted_in_samples)
{
    for (int size = 1; size <= 4; size++) {
        loss_case by = cases[PLAIN];
        run r;
        reference ref;
        by.micro = size;
        if (!case_open(&r, &by, 30, &ref)) return;
        formula f = { .c = &by };
        weigh(&r, &f);
        truth t;
        char what[40];
        snprintf(what, sizeof what, "micro-batches of %d", size);
        if (truth_of(&r, plain, &f, &t) &&
            CHECK_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics)))
            check_gradients(&r, what, &t);
        truth_fini(&t);
        case_close(&r, &ref);
    }
}

/* Gradients of an update by micro-batches of `size` samples; how many of these an early stop
 * abandoned (NaN: none). Row `far` has gone far from the old log-probs; -1: the last one. */
static float *by_samples(int64_t max_tokens, bool share, int size, double early_stop, int64_t far,
                         double *abandoned)
{
    run r;
    reference ref;
    if (!case_open(&r, &cases[PLAIN], max_tokens, &ref)) return NULL;
    r.cfg.actor.share_prompts = share;
    r.cfg.actor.micro_batch_size = size;
    r.cfg.loss.loss_norm = "micro";
    r.cfg.loss.early_stop_imp_ratio = early_stop;
    r.cfg.loss.early_stop_scope = "micro";
    if (far < 0) far = r.batch.rows - 1;
    int64_t first = r.batch.row_start[far], end = r.batch.row_start[far + 1];
    for (int64_t t = first; t < end; t++)
        r.batch.old_log_probs[t] = r.batch.rollout_log_probs[t] - 5;
    float *g = NULL;
    if (CHECK_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics))) {
        g = ares_malloc(r.model->params.grads_bytes);
        memcpy(g, r.model->params.grads, r.model->params.grads_bytes);
    }
    *abandoned = metric(&r, "actor/abandoned_microbatches");
    case_close(&r, &ref);
    return g;
}

TEST(micro_batches_counted_in_samples_do_not_depend_on_the_cuts_of_memory)
{
    size_t bytes = gradient_bytes();
    static const double stops[] = { NAN, 4, 4 };
    static const int64_t far[] = { 1, 1, -1 };
    for (int share = 0; share < 2; share++)
        for (int size = 1; size <= 4; size++)
            for (int i = 0; i < ARES_COUNT(stops); i++) {
                static const int64_t cuts[] = { 10000, 30, 1 };
                double stopped, first;
                float *want = by_samples(cuts[0], share, size, stops[i], far[i], &first);
                if (i) CHECK_EQ(first, 1); /* that of the row, whatever stands beside it */
                for (int k = 1; k < ARES_COUNT(cuts) && want; k++) {
                    float *have = by_samples(cuts[k], share, size, stops[i], far[i], &stopped);
                    if (i) CHECK_EQ(stopped, first);
                    if (have)
                        CHECK_MSG(memcmp(have, want, bytes) == 0,
                                  "share %d, %d samples, cuts of %lld", share, size,
                                  (long long)cuts[k]);
                    ares_free(have);
                }
                ares_free(want);
            }
}

TEST(a_mini_batch_without_a_token_is_passed_over_and_counted)
{
    run r;
    reference ref;
    if (!case_open(&r, &cases[PLAIN], 30, &ref)) return;
    memset(r.batch.response_mask, 0, (size_t)r.batch.tokens);
    CHECK_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics));
    CHECK_NEAR(metric(&r, "actor/empty_minibatches"), 1, 0);
    CHECK_EQ(r.actor.learner.optim.updates, 0);
    case_close(&r, &ref);
}

/*
 * The last mini-batch's gradients where it is one group of the step's two; lr 0, so that both are
 * of the same weights. unmasked: tokens with mask 1 of the step and of that group.
 */
static float *last_gradients(const char *scope, double unmasked[2])
{
    run r;
    reference ref;
    if (!case_open(&r, &cases[PLAIN], 10000, &ref)) return NULL;
    ares_batch *b = &r.batch;
    float *g = ares_malloc(r.model->params.grads_bytes);
    r.cfg.actor.global_batch_size = GROUPS / 2;
    r.cfg.optim.lr = 0;
    r.cfg.loss.valid_token_scope = scope;
    r.cfg.actor.max_grad_norm = 1e9;
    int64_t row = b->group_start[GROUPS - 1]; /* a masked answer in each mini-batch */
    memset(b->response_mask + b->row_start[row], 0,
           (size_t)(b->row_start[row + 1] - b->row_start[row]));
    memset(b->response_mask + b->row_start[1], 0, (size_t)(b->row_start[2] - b->row_start[1]));
    unmasked[0] = unmasked[1] = 0;
    for (int64_t t = 0; t < b->tokens; t++) {
        unmasked[0] += b->response_mask[t];
        if (t >= b->row_start[b->group_start[GROUPS - GROUPS / 2]])
            unmasked[1] += b->response_mask[t];
    }
    CHECK_OK(actor_update(&r.actor, b, NULL, r.metrics));
    memcpy(g, r.model->params.grads, r.model->params.grads_bytes);
    case_close(&r, &ref);
    return g;
}

TEST(the_scope_of_the_rollout_counts_the_unmasked_tokens_of_all_mini_batches)
{
    double unmasked[2];
    float *mini = last_gradients("minibatch", unmasked),
          *whole = last_gradients("rollout", unmasked);
    if (!mini || !whole) return;
    double share = unmasked[1] / unmasked[0], off = 0, most = 0;
    CHECK(share > 0.2 && share < 0.8);
    size_t n = gradient_bytes() / sizeof *mini;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)whole[i]));
        off = fmax(off, fabs((double)whole[i] - share * (double)mini[i]));
    }
    CHECK(most > 0);
    CHECK_MSG(off <= 1e-5 * most, "off by %g of %g", off, most);
    ares_free(mini);
    ares_free(whole);
}

/* Weights and AdamW's moments. */
static void copy_model(const run *r, uint8_t **bytes, size_t *n)
{
    *n = r->model->params.weights_bytes + r->model->params.states_bytes;
    *bytes = ares_malloc(*n);
    memcpy(*bytes, r->model->params.weights, r->model->params.weights_bytes);
    memcpy(*bytes + r->model->params.weights_bytes, r->model->params.states,
           r->model->params.states_bytes);
}

static void raise_ratios(run *r, int64_t group, int64_t end)
{
    int64_t first = r->batch.row_start[r->batch.group_start[group]],
            last = r->batch.row_start[r->batch.group_start[end]];
    for (int64_t t = first; t < last; t++)
        r->batch.old_log_probs[t] = r->batch.rollout_log_probs[t] - 5;
}

TEST(an_abandoned_mini_batch_moves_neither_weights_nor_moments)
{
    for (int scope = 0; scope < 2; scope++) {
        run r;
        reference ref;
        uint8_t *before, *after;
        size_t n;
        if (!case_open(&r, &cases[PLAIN], 30, &ref)) return;
        r.cfg.optim.weight_decay = 0.1;
        CHECK_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics)); /* moments that are not 0 */
        r.cfg.loss.early_stop_imp_ratio = 1.5;
        r.cfg.loss.early_stop_scope = scope ? "micro" : "minibatch";
        r.cfg.actor.micro_batch_size = 2;
        r.cfg.actor.global_batch_size = 1;
        r.cfg.actor.ppo_epochs = 2; /* the second pass finds the weights of the first */
        raise_ratios(&r, 0, GROUPS);
        copy_model(&r, &before, &n);
        ares_metrics_clear(r.metrics);
        CHECK_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics));
        copy_model(&r, &after, &n);
        CHECK_MEM(after, before, n);
        CHECK_EQ(r.actor.learner.optim.updates, 1);
        CHECK_EQ(r.actor.learner.step, 2);
        CHECK_NEAR(metric(&r, "actor/abandoned_minibatches"), 2 * GROUPS, 0);
        for (int i = 0; i < ares_metrics_count(r.metrics); i++)
            CHECK_MSG(isfinite(ares_metrics_value(r.metrics, i)), "%s",
                      ares_metrics_name(r.metrics, i));
        ares_free(before), ares_free(after);
        case_close(&r, &ref);
    }
}

TEST(means_of_an_update_leave_abandoned_mini_batches_out)
{
    run one, both;
    reference ref, other;
    bool keep[GROUPS] = { false, true };
    uint8_t *x, *y;
    size_t n;
    if (!case_open(&one, &cases[PLAIN], 30, &ref) || !case_open(&both, &cases[PLAIN], 30, &other))
        return;
    run *runs[] = { &one, &both };
    for (int i = 0; i < 2; i++) {
        runs[i]->cfg.loss.early_stop_imp_ratio = 1.9;
        runs[i]->cfg.actor.global_batch_size = 1;
        near_policy(runs[i], runs[i]->batch.old_log_probs, runs[i]->batch.rollout_log_probs, 20000,
                    0.1);
        raise_ratios(runs[i], 0, 1);
    }
    keep_groups(&one.batch, keep); /* what is left of both when the first is abandoned */
    CHECK_OK(actor_update(&one.actor, &one.batch, NULL, one.metrics));
    CHECK_OK(actor_update(&both.actor, &both.batch, NULL, both.metrics));
    copy_model(&one, &x, &n);
    copy_model(&both, &y, &n);
    CHECK_MEM(y, x, n);
    CHECK_EQ(both.actor.learner.optim.updates, 1);
    CHECK_NEAR(metric(&both, "actor/abandoned_minibatches"), 1, 0);
    static const char *const same[] = { "actor/grad_norm",  "actor/pg_loss",
                                        "actor/final_loss", "actor/entropy",
                                        "actor/kl_loss",    "exact/rollout_train_max_abs" };
    for (int i = 0; i < ARES_COUNT(same); i++)
        CHECK_NEAR(metric(&both, same[i]), metric(&one, same[i]), 0);
    ares_free(x), ares_free(y);
    case_close(&one, &ref);
    case_close(&both, &other);
}

TEST(the_exact_kl_of_a_reward_is_that_of_the_update_however_rows_are_packed)
{
    static const int64_t limits[] = { 10000, 40, 1 };
    run r;
    reference ref;
    if (!case_open(&r, &cases[EXACT_KL], 30, &ref)) return;
    ares_batch *b = &r.batch;
    float *columns[ARES_COUNT(limits)];
    size_t bytes = (size_t)b->tokens * sizeof(float);
    for (int i = 0; i < ARES_COUNT(limits); i++) {
        r.cfg.actor.max_token_len = limits[i];
        b->kl = NULL;
        CHECK_OK(reference_kl(&ref, &r.actor.learner, r.cfg.rollout.temperature, b));
        columns[i] = b->kl;
        CHECK_MEM(columns[i], columns[0], bytes);
    }
    b->kl = NULL;
    CHECK_OK(actor_update(&r.actor, b, NULL, r.metrics));
    CHECK_MEM(b->kl, columns[0], bytes);
    case_close(&r, &ref);
}

/* What an update tells on stderr. */
static int told_update(run *r, ares_str *out)
{
    char path[500];
    snprintf(path, sizeof path, "%s", test_file("stderr"));
    int kept = dup(STDERR_FILENO), file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    ares_log_set(ARES_LOG_INFO, 0); /* another test may have silenced it */
    int rc = actor_update(&r->actor, &r->batch, NULL, r->metrics);
    dup2(kept, STDERR_FILENO);
    close(kept), close(file);
    CHECK_OK(ares_file_read(path, out));
    return rc;
}

TEST(an_update_whose_log_probs_are_no_number_is_left_out_and_names_their_row)
{
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        run r;
        reference ref;
        uint8_t *before, *after;
        size_t n;
        ares_str out = { 0 };
        if (!case_open(&r, &cases[i], 30, &ref)) return;
        r.batch.old_log_probs[r.batch.row_start[2] + 2] = -INFINITY;
        /* weights of the whole step: a fault before its first mini-batch */
        if (strcmp(cases[i].rollout_is, "none") != 0) {
            r.batch.rollout_is_weights = NULL;
            CHECK_FAIL(ares_rollout_correct(&r.cfg.loss, NULL, &r.batch, r.metrics), ARES_ENUMERIC,
                       "row 2, token 2");
            CHECK_FAIL(actor_update(&r.actor, &r.batch, NULL, r.metrics), ARES_ESTATE,
                       "update_actor: needs column 'rollout_is_weights', which stage 'correct'");
            case_close(&r, &ref);
            continue;
        }
        copy_model(&r, &before, &n);
        CHECK_OK(told_update(&r, &out));
        copy_model(&r, &after, &n);
        CHECK_CONTAINS(out.data ? out.data : "", "row 2, token 2");
        CHECK_MEM(after, before, n);
        CHECK_NEAR(metric(&r, "actor/skipped_updates"), 1, 0);
        for (int k = 0; k < ares_metrics_count(r.metrics); k++)
            CHECK_MSG(isfinite(ares_metrics_value(r.metrics, k)), "%s",
                      ares_metrics_name(r.metrics, k));
        ares_free(before), ares_free(after);
        ares_str_fini(&out);
        case_close(&r, &ref);
    }
}

/*
 * Every rank tells what one with all groups tells: sums, means, and the least and the largest of
 * all.
 */
static void check_metrics(const run *one, const run *all, const char *what)
{
    CHECK_EQ(ares_metrics_count(one->metrics), ares_metrics_count(all->metrics));
    for (int i = 0; i < ares_metrics_count(all->metrics); i++) {
        const char *name = ares_metrics_name(all->metrics, i);
        double want = ares_metrics_value(all->metrics, i), have = metric(one, name);
        CHECK_MSG(fabs(have - want) <= 1e-6 * fmax(1, fabs(want)), "%s: %s is %.9g, expected %.9g",
                  what, name, have, want);
    }
}

/* Two ranks with a group each have the gradients of one with both. rows: of a mini-batch; 0: all */
static void check_two_ranks(const char *test, int64_t rows)
{
    if (!test_as_ranks(2, test)) return;
    ares_world *w = NULL;
    REQUIRE_OK(ares_world_open(&w));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        run r, both;
        reference ref, other;
        if (rows && cases[i].micro) continue; /* it averages over ranks */
        if (!case_open(&both, &cases[i], 30, &other) || !case_open(&r, &cases[i], 30, &ref)) break;
        run *runs[] = { &both, &r };
        for (int k = 0; rows && k < 2; k++) {
            runs[k]->cfg.actor.global_batch_size = rows;
            runs[k]->cfg.actor.mini_batch_unit = "rows";
            runs[k]->cfg.optim.lr = 0; /* every mini-batch sees the same weights */
        }
        CHECK_OK(actor_update(&both.actor, &both.batch, NULL, both.metrics));
        const float *alone = both.model->params.grads;
        bool keep[GROUPS] = { false };
        keep[ares_world_rank(w)] = true;
        keep_groups(&r.batch, keep);
        run_join(&r, w);
        if (CHECK_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics)))
            for (int p = 0; p < r.model->params.n; p++) {
                const float *mine = r.model->params.list[p].grad.data,
                            *theirs = alone + (mine - (const float *)r.model->params.grads);
                double off = 0, largest = 0;
                for (int64_t e = 0; e < r.model->params.list[p].elements; e++) {
                    off = fmax(off, fabs((double)mine[e] - (double)theirs[e]));
                    largest = fmax(largest, fabs((double)theirs[e]));
                }
                CHECK_MSG(off <= 1e-6 * largest, "%s, %s: %s is off by %.3g of %.3g", cases[i].loss,
                          cases[i].kl, r.model->params.list[p].name, off, largest);
            }
        check_metrics(&r, &both, cases[i].loss);
        case_close(&r, &ref);
        case_close(&both, &other);
    }
    ares_world_close(w);
}

TEST_MPI(two_ranks_have_the_gradient_and_metrics_of_one)
{
    check_two_ranks("two_ranks_have_the_gradient_and_metrics_of_one", 0);
}

/* The first has all rows of one rank and one of the other, the second none of the first rank. */
TEST_MPI(mini_batches_of_rows_are_the_same_on_two_ranks)
{
    check_two_ranks("mini_batches_of_rows_are_the_same_on_two_ranks", PER_GROUP + 1);
}

TEST(the_kl_of_every_pass_is_kept_of_the_rows_it_reached)
{
    for (int stop = 0; stop < 2; stop++) {
        run r;
        reference ref;
        if (!case_open(&r, &cases[PLAIN], 30, &ref)) return;
        ares_batch *b = &r.batch;
        r.cfg.actor.ppo_epochs = 2;
        r.cfg.actor.global_batch_size = 1; /* two optimizer steps a pass */
        memcpy(b->old_log_probs, b->rollout_log_probs, (size_t)b->tokens * sizeof(float));
        /* a discarded answer */
        memset(b->response_mask + b->row_start[4], 0, (size_t)(b->row_start[5] - b->row_start[4]));
        if (stop) { /* the ratios of the first group are far above it, from the start */
            r.cfg.loss.early_stop_imp_ratio = 50;
            for (int64_t t = 0; t < b->row_start[PER_GROUP]; t++) b->old_log_probs[t] -= 6;
        }
        if (CHECK_OK(actor_update(&r.actor, b, NULL, r.metrics))) {
            int64_t at = 0;
            double seen[2] = { 0 };
            for (int64_t i = 0; i < b->n_row_kl; i++) {
                const ares_row_kl *k = &b->row_kl[i];
                CHECK(k->row != 4 && (!stop || k->row >= PER_GROUP));
                CHECK(i == 0 || k->update >= b->row_kl[i - 1].update);
                if (k->row != 5) continue;
                CHECK(at < 2);
                seen[at++ % 2] = k->kl;
            }
            CHECK_EQ(b->n_row_kl, stop ? 4 : 10);
            CHECK_EQ(at, 2);
            /* the weights have moved between the passes */
            CHECK_MSG(seen[0] != seen[1], "%g, then %g", seen[0], seen[1]);
        }
        case_close(&r, &ref);
    }
}
