/*
 * The update with a teacher: its gradient against the plain formulas of docs/distillation.md by
 * libtorch's autograd, through the whole of two tiny models in f64, and against finite differences
 * of that loss, which know no derivative. The policy loss, the KL to a reference and the entropy
 * bonus are there beside the teacher's term; a row has no teacher, two rows have prompts that only
 * the teacher reads. Seen to fail: with either half of the middle divergence left out, the
 * temperature left out of the gradient, the weight of the task's term for the teacher's, the
 * teacher's advantage added, the clamp's gradient kept, the tokens counted that are taught alone,
 * weights of rollout_is left out.
 */
#include "gradient.h"

#include "ares/algo_distill.h"

typedef struct taught_case {
    const char *what, *loss_mode;
    double beta, temperature, coef;
    const char *teacher; /* NULL: the student, live */
    const char *avg_mode;
    bool task, policy_gradient, positive_only;
    int64_t skip;
    double clamp, is_clip, discount; /* 0: none */
    bool corrects;                   /* rollout_is */
} taught_case;

#define MEAN "token-mean"
#define ROWS_MEAN "seq-mean-token-mean"
#define OTHER "qwen3_untied"   /* of 122 ids, below which all of this file are */
#define SMALLER "qwen2_untied" /* of 117 */
#define NEAR "qwen2_tied"      /* the student with other weights, as sampled tokens ask for */
static const taught_case cases[] = {
    { "jsd 0", "jsd", 0, 0, 1, OTHER, MEAN, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "jsd 0.5", "jsd", 0.5, 0, 1, OTHER, MEAN, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "jsd 1", "jsd", 1, 0, 1, OTHER, MEAN, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "jsd 0, of fewer ids, hot", "jsd", 0, 2, 1, SMALLER, ROWS_MEAN, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "jsd 0.3, beside the task", "jsd", 0.3, 0.5, 0.7, SMALLER, MEAN, 1, 0, 0, 0, 0, 0, 0, 0 },
    { "jsd 1, clamped, weighed", "jsd", 1, 0, 2, NEAR, ROWS_MEAN, 1, 0, 0, 1, 0.4, 1.5, 0, 1 },
    { "jsd 0.5, where it was good", "jsd", 0.5, 1, 3, OTHER, MEAN, 1, 0, 1, 0, 0, 0, 0, 0 },
    { "itself, hints", "jsd", 0.5, 0, 1, NULL, MEAN, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "itself, hints, reverse", "jsd", 1, 0, 1.5, NULL, MEAN, 1, 0, 0, 2, 0, 0, 0, 0 },
    { "k3", "k3", 1, 0, 1, NEAR, MEAN, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "k3, clamped, weighed", "k3", 1, 0, 0.5, NEAR, ROWS_MEAN, 1, 0, 0, 1, 0.5, 1.2, 0, 1 },
    { "k2", "k2", 1, 0, 1, NEAR, MEAN, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "advantage", "k1", 1, 0, 1, NEAR, MEAN, 0, 1, 0, 0, 0, 0, 0, 0 },
    { "advantage, beside the task", "k1", 1, 0, 0.5, NEAR, MEAN, 1, 1, 0, 1, 0.6, 0, 0.8, 1 },
};

/* ---------------------------------------------------------------- a run with a teacher */

typedef struct taught_run {
    run r, of_teacher; /* the second: the teacher's model, for the oracle's walk over it */
    teacher x;
    int32_t hinted[2][11];
    double advantages[256]; /* of the task, before the teacher's part */
} taught_run;

static bool open_taught(taught_run *t, const taught_case *c)
{
    static char path[500];
    ids_below = 117;
    *t = (taught_run){ 0 };
    if (!run_open(&t->r, "qwen2_tied", c->avg_mode, c->skip > 0)) return false;
    run *r = &t->r;
    ares_batch *b = &r->batch;
    r->cfg.distillation =
        (ares_distillation_config){ .enabled = true,
                                    .teacher_path = c->teacher,
                                    .kind = "live",
                                    .context = "row",
                                    .loss_mode = c->loss_mode,
                                    .beta = c->beta,
                                    .use_task_rewards = c->task,
                                    .coef = c->coef,
                                    .use_policy_gradient = c->policy_gradient,
                                    .kl_discount_factor = c->discount,
                                    .loss_max_clamp = c->clamp > 0 ? c->clamp : NAN,
                                    .is_clip = c->is_clip > 0 ? c->is_clip : NAN,
                                    .skip_tokens = c->skip,
                                    .positive_only = c->positive_only,
                                    .lmbda = 1 };
    r->cfg.actor.max_token_len = 34;
    if (c->corrects) {
        r->cfg.loss.rollout_is = "token";
        if (!CHECK_OK(ares_rollout_correct(&r->cfg.loss, NULL, b, r->metrics))) return false;
    }
    /* the second row has no teacher; two have a prompt that the teacher alone reads */
    for (int i = 0; i < 11; i++)
        for (int k = 0; k < 2; k++) t->hinted[k][i] = (int32_t)(5 + 7 * i + 11 * k) % 117;
    for (int row = 0; row < ROWS; row++) {
        ares_sample *s = &b->samples[row];
        s->distilled = row != 1;
        if (row % 3 == 2) s->teacher_prompt = t->hinted[row / 3], s->teacher_prompt_len = 11;
    }
    t->x = (teacher){ .cfg = &r->cfg,
                      .policy = &r->actor.learner,
                      .learner = &t->x.own,
                      .readable = r->model->cfg.vocab,
                      .temperature =
                          c->temperature > 0 ? c->temperature : r->cfg.rollout.temperature };
    const ares_model *m = r->model;
    if (c->teacher) {
        snprintf(path, sizeof path, "%s/%s", test_source("tests/golden/models"), c->teacher);
        ares_model_options opt = { .storage = ARES_F32 };
        if (!CHECK_OK(ares_model_load(path, &r->device, &opt, &t->x.model))) return false;
        m = t->x.model;
        for (int i = 0; strcmp(c->teacher, NEAR) == 0 && i < m->params.n; i++) {
            const ares_param *p = &m->params.list[i];
            float *w = (float *)m->params.regions[p->region].weights + p->at;
            for (int64_t e = 0; e < p->elements; e++) w[e] *= 1 + 0.08f * (float)(e % 7) / 7;
        }
        t->x.readable = ARES_MIN(t->x.readable, m->cfg.vocab);
    }
    if (!CHECK_OK(learner_open(&t->x.own, (ares_model *)(uintptr_t)m,
                               &(learner_options){ .role = "teacher" })))
        return false;
    r->actor.teacher = &t->x;
    t->of_teacher = *r;
    t->of_teacher.model = (ares_model *)(uintptr_t)m;
    for (int64_t i = 0; i < b->tokens; i++) t->advantages[i] = (double)b->advantages[i];
    (void)ares_distill_tokens(&r->cfg.distillation, b);
    double sums[2] = { 0 };
    bool tokens = !ares_distills_vocabulary(&r->cfg.distillation);
    return (!tokens || CHECK_OK(teacher_log_probs(&t->x, b))) &&
           (!c->policy_gradient ||
            CHECK_OK(ares_distill_advantages(&r->cfg.distillation, c->coef, b, sums)));
}

static void close_taught(taught_run *t)
{
    teacher_close(&t->x);
    run_close(&t->r);
    ids_below = 0;
}

/* ---------------------------------------------------------------- the plain formulas */

typedef struct formula {
    const taught_run *t;
    const taught_case *c;
    /* the leaves are moved by so much in a random direction; 0: by autograd */
    double moved;
} formula;

static at_tensor numbers(const oracle *o, const double *x, int64_t n)
{
    return at_clone(at_to(at_from_blob((void *)(uintptr_t)x, AT_F64, AT_DIMS(n)), o->dtype));
}

/* The teacher's log-probs [response, its ids] of a row at a temperature, without a gradient. */
static at_tensor teacher_log_p(const oracle *o, const formula *f, int row, double temperature,
                               int64_t ids)
{
    const taught_run *t = f->t;
    const ares_sample *s = &t->r.batch.samples[row];
    oracle of_teacher = { .r = &t->of_teacher, .dtype = o->dtype };
    leaves_of(&of_teacher, t->of_teacher.model, false);
    bool hinted = s->teacher_prompt != NULL;
    at_tensor logits = row_logits(&of_teacher, row, hinted ? s->teacher_prompt : s->prompt,
                                  hinted ? s->teacher_prompt_len : s->prompt_len);
    if (ids) logits = at_narrow(logits, 1, 0, ids);
    return at_detach(at_log_softmax(at_mul_s(logits, 1 / temperature), 1));
}

static at_tensor divergence(const oracle *o, const formula *f, int row)
{
    const teacher *x = &f->t->x;
    const ares_sample *s = &o->r->batch.samples[row];
    double beta = f->c->beta;
    at_tensor logits = at_narrow(row_logits(o, row, s->prompt, s->prompt_len), 1, 0, x->readable),
              p = at_log_softmax(at_mul_s(logits, 1 / x->temperature), 1),
              q = teacher_log_p(o, f, row, x->temperature, x->readable);
    if (beta == 0) return at_sum_dim(at_mul(at_exp(q), at_sub(q, p)), 1, false);
    if (beta == 1) return at_sum_dim(at_mul(at_exp(p), at_sub(p, q)), 1, false);
    at_tensor m = at_log(at_add(at_mul_s(at_exp(p), 1 - beta), at_mul_s(at_exp(q), beta)));
    return at_add(at_mul_s(at_sum_dim(at_mul(at_exp(q), at_sub(q, m)), 1, false), beta),
                  at_mul_s(at_sum_dim(at_mul(at_exp(p), at_sub(p, m)), 1, false), 1 - beta));
}

/* The advantages that the policy loss sees: the task's, and the teacher's where it is one. */
static void advantages_of(const formula *f, const double *by_teacher, int row, double *out)
{
    const taught_case *c = f->c;
    const ares_batch *b = &f->t->r.batch;
    int64_t first = b->row_start[row], n = response_len[row], written = 0;
    double later = 0;
    for (int64_t t = 0; t < n; t++)
        out[t] = c->task && b->response_mask[first + t] ? f->t->advantages[first + t] : 0;
    if (!c->policy_gradient || !b->samples[row].distilled) return;
    for (int64_t t = 0; t < n; t++) written += b->response_mask[first + t];
    for (int64_t t = n; t-- > 0;) {
        if (!b->response_mask[first + t]) continue;
        double d = (double)b->old_log_probs[first + t] - by_teacher[t];
        if (c->clamp > 0) d = fmin(c->clamp, fmax(-c->clamp, d));
        later = d + c->discount * later;
        if (--written >= c->skip) out[t] -= (c->task ? c->coef : 1) * later;
    }
}

static at_tensor row_loss(const oracle *o, const formula *f, int row)
{
    const taught_case *c = f->c;
    const ares_batch *b = &o->r->batch;
    const ares_loss_config *l = &o->r->cfg.loss;
    int64_t first = b->row_start[row], n = response_len[row], written = 0;
    at_tensor log_p = row_log_p(o, row), log_prob = taken(o, row, log_p),
              old = blob(o, b->old_log_probs + first, n), D = NULL;
    double weight[32], of_task[32], of_teacher[32], advantages[32], by_teacher[32], all = 0;
    for (int i = 0; i < ROWS; i++) all += tokens_of(b, i);
    if (strcmp(c->loss_mode, "jsd") != 0) {
        at_tensor its = taken(o, row, teacher_log_p(o, f, row, o->r->cfg.rollout.temperature, 0)),
                  x = at_sub(log_prob, its);
        at_read(its, AT_F64, by_teacher);
        D = strcmp(c->loss_mode, "k2") == 0
                ? at_mul_s(at_mul(x, x), 0.5)
                : at_clamp(at_add_s(at_add(at_exp(at_neg(x)), x), -1), -10, 10); /* as in verl */
    } else D = divergence(o, f, row);
    advantages_of(f, by_teacher, row, advantages);
    for (int64_t t = 0; t < n; t++) {
        bool mask = b->response_mask[first + t];
        double is = c->corrects ? fmin(exp((double)b->old_log_probs[first + t] -
                                           (double)b->rollout_log_probs[first + t]),
                                       2)
                                : 1;
        weight[t] = !mask                            ? 0
                    : strcmp(c->avg_mode, MEAN) == 0 ? 1 / all
                                                     : 1 / (ROWS * tokens_of(b, row));
        of_task[t] = c->task || c->policy_gradient ? weight[t] * is : 0;
        bool learns = mask && b->samples[row].distilled && written++ >= c->skip &&
                      (!c->positive_only || f->t->advantages[first + t] > 0);
        of_teacher[t] =
            learns && !c->policy_gradient ? weight[t] * is * (c->task ? c->coef : 1) : 0;
    }
    at_tensor a = numbers(o, advantages, n), ratio = at_exp(at_sub(log_prob, old)),
              bounded = at_clamp(ratio, 1 - l->clip_ratio_low, 1 + l->clip_ratio_high),
              loss = at_neg(at_minimum(at_mul(ratio, a), at_mul(bounded, a))),
              most = at_mul_s(at_neg(a), l->clip_ratio_dual);
    loss = at_where(at_lt(a, at_full(0, o->dtype, AT_SCALAR)), at_minimum(loss, most), loss);
    at_tensor sum = at_sum(at_mul(loss, numbers(o, of_task, n)));
    /* the reference and the entropy bonus, which the teacher stands beside */
    at_tensor back = at_sub(blob(o, b->ref_log_probs + first, n), log_prob),
              k3 = at_add_s(at_sub(at_exp(back), back), -1),
              others =
                  at_sub(at_mul_s(k3, b->kl_coef), at_mul_s(entropy_of(log_p), l->entropy_coeff));
    sum = at_add(sum, at_sum(at_mul(others, numbers(o, weight, n))));
    if (c->clamp > 0) D = at_clamp(D, -c->clamp, c->clamp);
    if (c->is_clip > 0)
        D = at_mul(D, at_detach(at_minimum(at_exp(at_sub(log_prob, old)),
                                           at_full(c->is_clip, o->dtype, AT_SCALAR))));
    return at_add(sum, at_sum(at_mul(D, numbers(o, of_teacher, n))));
}

static double direction(int64_t element)
{
    return draw(900000 + (uint64_t)element);
}

/* The loss; with formula.moved at weights that lie so far from the model's. */
static at_tensor whole_loss(const oracle *o, const void *ctx)
{
    const formula *f = ctx;
    oracle at = *o;
    int64_t element = 0;
    for (int i = 0; f->moved != 0 && i < o->r->model->params.n; i++) {
        int64_t n = at_numel(o->leaf[i]);
        double *by = ares_malloc((size_t)n * sizeof *by);
        for (int64_t e = 0; e < n; e++) by[e] = f->moved * direction(element++);
        at_tensor step = numbers(o, by, n);
        if (o->r->model->params.list[i].rank == 2)
            step = at_reshape(step, AT_DIMS(o->r->model->params.list[i].shape[0],
                                            o->r->model->params.list[i].shape[1]));
        at.leaf[i] = at_add(o->leaf[i], step);
        ares_free(by);
    }
    at_tensor loss = NULL;
    for (int row = 0; row < ROWS; row++)
        loss = loss ? at_add(loss, row_loss(&at, f, row)) : row_loss(&at, f, row);
    return loss;
}

/* ---------------------------------------------------------------- */

static double loss_at(const taught_run *t, const taught_case *c, double moved)
{
    double value = NAN;
    at_scope *s = at_scope_open("moved");
    oracle o = { .r = &t->r, .dtype = AT_F64 };
    const formula f = { t, c, moved };
    leaves_of(&o, t->r.model, false);
    at_tensor loss = whole_loss(&o, &f);
    if (!at_scope_failed()) at_read(loss, AT_F64, &value);
    CHECK_OK(at_scope_close(s, NULL));
    return value;
}

/* What the update's own gradients say of the loss along the direction, and their norm. */
static double along(const run *r, double *norm)
{
    double sum = 0;
    int64_t element = 0;
    *norm = 0;
    for (int i = 0; i < r->model->params.n; i++) {
        const ares_param *p = &r->model->params.list[i];
        int64_t n = p->shape[0] * (p->rank == 2 ? p->shape[1] : 1);
        float *mine = ares_malloc((size_t)n * sizeof *mine);
        ares_matrix_unpack(&p->grad, mine, ARES_F32);
        for (int64_t e = 0; e < n; e++) {
            sum += (double)mine[e] * direction(element++);
            *norm += (double)mine[e] * (double)mine[e];
        }
        ares_free(mine);
    }
    *norm = sqrt(*norm);
    return sum;
}

static double metric(const run *r, const char *name)
{
    double x = NAN;
    ares_metrics_get(r->metrics, name, &x);
    return x;
}

/* Tokens that the teacher teaches, in plain words. */
static double tokens_taught(const taught_run *t, const taught_case *c)
{
    const ares_batch *b = &t->r.batch;
    double n = 0;
    for (int row = 0; row < ROWS; row++) {
        int64_t written = 0;
        for (int64_t i = b->row_start[row]; i < b->row_start[row + 1]; i++) {
            if (!b->response_mask[i] || !b->samples[row].distilled || written++ < c->skip) continue;
            n += !c->positive_only || t->advantages[i] > 0;
        }
    }
    return n;
}

static void check_cases(int from, int to)
{
    for (int i = from; i < to; i++) {
        const taught_case *c = &cases[i];
        taught_run *t = ares_calloc(1, sizeof *t);
        truth known = { 0 };
        if (!open_taught(t, c)) return;
        const formula f = { t, c, 0 };
        double h = 1e-6, whole = loss_at(t, c, 0), norm,
               differences = (loss_at(t, c, h) - loss_at(t, c, -h)) / (2 * h);
        if (truth_of(&t->r, whole_loss, &f, &known) &&
            CHECK_OK(actor_update(&t->r.actor, &t->r.batch, NULL, t->r.metrics))) {
            check_gradients(&t->r, c->what, &known);
            CHECK_NEAR(metric(&t->r, "actor/final_loss"), whole, 1e-5 * (1 + fabs(whole)));
            CHECK_NEAR(metric(&t->r, "distillation/tokens"), tokens_taught(t, c), 0);
            double mine = along(&t->r, &norm);
            /* the weight of is_clip has no gradient, and a difference sees it move */
            if (c->is_clip == 0)
                CHECK_MSG(fabs(mine - differences) < 1e-5 * norm,
                          "%s: the loss changes by %.9g along a direction, its gradient says %.9g "
                          "(norm %g)",
                          c->what, differences, mine, norm);
            /* a clamp was there to be differentiated, and did not take all */
            double clamped = metric(&t->r, "distillation/clamped_frac");
            if (c->clamp > 0) CHECK_MSG(clamped > 0 && clamped < 1, "%s: %g", c->what, clamped);
        }
        truth_fini(&known);
        close_taught(t);
        ares_free(t);
    }
}

enum { HALF = ARES_COUNT(cases) / 2 };
TEST(the_first_update_with_a_teacher_has_the_gradient_of_the_plain_formula_1_of_2)
{
    check_cases(0, HALF);
}
TEST(the_first_update_with_a_teacher_has_the_gradient_of_the_plain_formula_2_of_2)
{
    check_cases(HALF, ARES_COUNT(cases));
}
