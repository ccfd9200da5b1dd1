/*
 * An update of VAPOR against autograd in double precision: spans and none, pairs and none, DPO of
 * the pairs, beside an entropy bonus; and what may not change a bit of it.
 */
#include "gradient.h"

typedef struct vapor_case {
    const char *name;
    bool pair[GROUPS], span[ROWS], detach, mean, full;
    double beta, dpo;
    double clamp;  /* 0: 20 */
    int old[ROWS]; /* tokens of mask 0 that a response begins with; WHOLE: all of it */
} vapor_case;

enum { WHOLE = 99 };

#define ALL_SPANS .span = { 1, 1, 1, 1, 1, 1 }
#define OLD_TOKENS .old = { 3, 0, 6, 8, 1, 2 }
static const vapor_case cases[] = {
    { .name = "pairs and spans", .pair = { 1, 1 }, ALL_SPANS, .beta = 0.1 },
    { .name = "one pair, some spans", .pair = { 0, 1 }, .span = { 1, 0, 1, 1, 1, 0 }, .beta = 0.3 },
    { .name = "no pair", ALL_SPANS, .beta = 0.1 },
    { .name = "no span", .pair = { 1, 1 }, .beta = 0.1 },
    { .name = "whole answers",
      .pair = { 1, 1 },
      .span = { 0, 1, 0, 1, 1, 1 },
      .full = true,
      .beta = 0.1 },
    { .name = "means", .pair = { 1, 1 }, ALL_SPANS, .mean = true, .beta = 0.5 },
    { .name = "detached", .pair = { 1, 1 }, ALL_SPANS, .detach = true, .beta = 0.1 },
    { .name = "clamped", .pair = { 1, 1 }, ALL_SPANS, .beta = 0.1, .clamp = 0.4 },
    { .name = "dpo", .pair = { 1, 1 }, ALL_SPANS, .mean = true, .beta = 0.1, .dpo = 0.7 },
    { .name = "dpo alone, of one pair", .pair = { 0, 1 }, .dpo = 1 },
    { .name = "a masked answer",
      .pair = { 1, 1 },
      ALL_SPANS,
      .beta = 0.1,
      .old = { 0, 0, WHOLE, 0, 0, 0 } },
    { .name = "a masked group, and its pair",
      .pair = { 1, 1 },
      ALL_SPANS,
      .beta = 0.1,
      .dpo = 0.7,
      .old = { WHOLE, WHOLE, WHOLE, 0, 0, 0 } },
    /* a part of the first span, all of the fourth, nothing of the fifth */
    { .name = "old tokens", .pair = { 1, 1 }, ALL_SPANS, .beta = 0.1, OLD_TOKENS },
    { .name = "old tokens, means",
      .pair = { 1, 0 },
      ALL_SPANS,
      .mean = true,
      .beta = 0.5,
      OLD_TOKENS },
    { .name = "old tokens, whole answers",
      .pair = { 0, 1 },
      .span = { 0, 1, 0, 1, 1, 0 },
      .full = true,
      .beta = 0.1,
      OLD_TOKENS },
};

static double clamp_of(const vapor_case *c)
{
    return c->clamp == 0 ? 20 : c->clamp;
}

/* Stored answers: the first two responses of a group once more, with log-probs of their own. */
typedef struct stored {
    ares_batch batch;
    actor_second second;
    int64_t row[GROUPS];
} stored;

/* The span of a response: all but its first and last token, where there are more than two. */
static void span_of_row(int row, int32_t *first, int32_t *end)
{
    bool long_enough = response_len[row] > 2;
    *first = long_enough;
    *end = response_len[row] - long_enough;
}

static void store(stored *s, run *r, const vapor_case *c)
{
    ares_batch *b = &s->batch;
    *s = (stored){ .second = { .temperature = 1 } };
    ares_batch_init(b);
    for (int g = 0; g < GROUPS; g++) {
        if (!c->pair[g]) continue;
        s->row[b->groups] = g * PER_GROUP;
        ares_batch_begin_group(b);
        for (int i = 0; i < 2; i++) {
            ares_sample of = { .draw = g, .prompt = r->prompts[g], .prompt_len = prompt_len[g] };
            span_of_row(g * PER_GROUP + i, &of.span, &of.span_end);
            ares_batch_add_row(b, &of, response_len[g * PER_GROUP + i]);
        }
    }
    ARES_PUT(b, responses);
    size_t n = (size_t)b->tokens + 1;
    float *ref = ares_arena_calloc(&b->arena, n, sizeof *ref);
    for (int64_t i = 0; i < b->rows; i++) {
        int64_t of = b->samples[i].draw * PER_GROUP + i % 2, from = r->batch.row_start[of],
                k = b->row_start[i];
        for (int64_t t = 0; t < response_len[of]; t++) {
            b->responses[k + t] = r->batch.responses[from + t];
            ref[k + t] =
                r->batch.rollout_log_probs[from + t] + (float)(0.1 * draw(900 + (uint64_t)(k + t)));
        }
    }
    s->second.batch = b;
    s->second.row = s->row;
    s->second.log_prob = ares_arena_calloc(&b->arena, n, sizeof(float));
    s->second.d_log_prob = ares_arena_calloc(&b->arena, n, sizeof(float));
    s->second.ref_log_prob = ref;
}

static bool open_case(run *r, stored *s, const vapor_case *c, bool share)
{
    if (!run_open(r, "qwen2_tied", "token-mean", share)) return false;
    r->cfg.algorithm.use_kl_loss = false;
    r->cfg.algorithm.disable_kl = true;
    r->cfg.actor.max_grad_norm = 1e9;
    r->cfg.vapor = (ares_vapor_config){ .beta = c->beta,
                                        .epsilon_low = 0.2,
                                        .epsilon_high = 0.3,
                                        .kl_coef = 0.04,
                                        .kl_penalty = "low_var_kl",
                                        .log_ratio_clamp = clamp_of(c),
                                        .dpo_coef = c->dpo,
                                        .dpo_beta = 0.5,
                                        .preference_detach = c->detach,
                                        .ratio_reduction = c->mean ? "mean" : "sum",
                                        .failure_ratio = c->full ? "full" : "neutral" };
    r->actor.loss = ares_loss_find("vapor");
    for (int i = 0; i < ROWS; i++) {
        for (int t = 0; t < response_len[i]; t++)
            r->batch.response_mask[r->batch.row_start[i] + t] = t >= c->old[i];
        ares_sample *x = &r->batch.samples[i];
        x->score = (float)scores[i];
        if (c->span[i]) span_of_row(i, &x->span, &x->span_end);
    }
    store(s, r, c);
    return true;
}

static void close_case(run *r, stored *s)
{
    ares_batch_fini(&s->batch);
    run_close(r);
}

typedef struct subject {
    const vapor_case *c;
    const stored *s;
} subject;

static bool learns(const vapor_case *c, int row)
{
    return c->old[row] < response_len[row];
}

/* Responses of a group that learn, and the tokens of all that count. */
static int learners_of(const vapor_case *c, int g)
{
    int n = 0;
    for (int i = 0; i < PER_GROUP; i++) n += learns(c, g * PER_GROUP + i);
    return n;
}
static double tokens_that_count(const vapor_case *c)
{
    double n = 0;
    for (int i = 0; i < ROWS; i++) n += learns(c, i) ? response_len[i] - c->old[i] : 0;
    return n;
}

/* sum (mean: mean) of log pi - log ref over a span; NULL: it has no token */
static at_tensor log_ratio(const oracle *o, int row, const float *ref, int32_t first, int32_t end,
                           bool mean)
{
    if (end <= first) return NULL;
    at_tensor x = at_sub(taken(o, row, row_log_p(o, row)), blob(o, ref, response_len[row]));
    x = at_sum(at_narrow(x, 0, first, end - first));
    return mean ? at_mul_s(x, 1.0 / (end - first)) : x;
}

/*
 * The difference of a group's pair, at temperature 1, of its spans or of its whole answers; NULL:
 * no pair
 */
static at_tensor difference(const oracle *o, const subject *x, int g, bool whole)
{
    const stored *s = x->s;
    at_tensor sides[2] = { NULL, NULL };
    run at_one = *o->r;
    oracle one = *o;
    at_one.cfg.rollout.temperature = 1;
    one.r = &at_one;
    for (int64_t k = 0; k < s->batch.groups; k++)
        for (int i = 0; i < 2 && s->row[k] == g * PER_GROUP; i++) {
            int64_t row = s->batch.group_start[k] + i;
            const ares_sample *a = &s->batch.samples[row];
            sides[i] = log_ratio(
                &one, g * PER_GROUP + i, s->second.ref_log_prob + s->batch.row_start[row],
                whole ? 0 : a->span, whole ? response_len[g * PER_GROUP + i] : a->span_end,
                x->c->mean && !whole);
        }
    return sides[0] ? at_sub(sides[0], sides[1]) : NULL;
}

/* beta D of a group; NULL: no pair */
static at_tensor preference(const oracle *o, const subject *x, int g)
{
    at_tensor d = difference(o, x, g, false);
    if (!d) return NULL;
    d = at_mul_s(d, x->c->beta);
    return x->c->detach ? at_detach(d) : d;
}

/* -log sigmoid(0.5 D) of a group's pair, as log(1 + exp(-0.5 D)); NULL: no pair */
static at_tensor dpo(const oracle *o, const subject *x, int g)
{
    at_tensor d = difference(o, x, g, true);
    return d ? at_log(at_add_s(at_exp(at_mul_s(d, -0.5)), 1)) : NULL;
}

static double reward(const vapor_case *c, int row)
{
    return c->span[row] ? scores[row] : 0;
}

/* A sum that may begin with nothing. */
static at_tensor plus(at_tensor a, at_tensor b)
{
    return !a ? b : !b ? a : at_add(a, b);
}

static at_tensor objective(const oracle *o, const subject *x, int row, at_tensor pair)
{
    const run *r = o->r;
    const ares_sample *a = &r->batch.samples[row];
    int g = row / PER_GROUP;
    double mean = 0;
    for (int i = 0; i < PER_GROUP; i++)
        if (learns(x->c, g * PER_GROUP + i))
            mean += reward(x->c, g * PER_GROUP + i) / learners_of(x->c, g);
    double advantage = reward(x->c, row) - mean;
    int32_t first = a->span, end = a->span_end;
    if (end <= first && x->c->full) first = 0, end = response_len[row];
    first = first < x->c->old[row] ? x->c->old[row] : first;
    at_tensor log_r = plus(
        log_ratio(o, row, r->batch.ref_log_probs + r->batch.row_start[row], first, end, x->c->mean),
        pair);
    if (!log_r) return NULL; /* a constant */
    at_tensor ratio = at_exp(at_clamp(log_r, -clamp_of(x->c), clamp_of(x->c)));
    return at_minimum(at_mul_s(ratio, advantage), at_mul_s(at_clamp(ratio, 0.8, 1.3), advantage));
}

/* k3 of a response's tokens, summed; and its entropies, summed. */
static at_tensor other_terms(const oracle *o, const vapor_case *c, int row)
{
    double tokens = tokens_that_count(c);
    int old = c->old[row], n = response_len[row] - old;
    const run *r = o->r;
    at_tensor log_p = row_log_p(o, row),
              back = at_sub(
                  blob(o, r->batch.ref_log_probs + r->batch.row_start[row], response_len[row]),
                  taken(o, row, log_p)),
              kl = at_add_s(at_sub(at_exp(back), back), -1);
    return at_sub(at_mul_s(at_sum(at_narrow(kl, 0, old, n)), 0.04 / tokens),
                  at_mul_s(at_sum(at_narrow(entropy_of(log_p), 0, old, n)),
                           r->cfg.loss.entropy_coeff / tokens));
}

static at_tensor vapor_total(const oracle *o, const void *ctx)
{
    const subject *x = ctx;
    at_tensor sum = NULL;
    int responses = 0, pairs = 0;
    for (int g = 0; g < GROUPS; g++) {
        responses += learners_of(x->c, g);
        pairs += x->c->pair[g] && learners_of(x->c, g);
    }
    for (int row = 0; row < ROWS; row++) {
        if (!learns(x->c, row)) continue;
        at_tensor gain = objective(o, x, row, preference(o, x, row / PER_GROUP));
        if (gain) sum = plus(sum, at_mul_s(gain, -1.0 / responses));
        sum = plus(sum, other_terms(o, x->c, row));
    }
    for (int g = 0; g < GROUPS && x->c->dpo != 0; g++) {
        at_tensor loss = learners_of(x->c, g) ? dpo(o, x, g) : NULL;
        if (loss) sum = plus(sum, at_mul_s(loss, x->c->dpo / pairs));
    }
    return sum;
}

static const actor_second *second_of(const stored *s)
{
    return s->batch.groups ? &s->second : NULL;
}

/* Responses of older weights, whose log-probs the update must compute before its loss. */
static void grow_stale(run *r)
{
    for (int64_t t = 0; t < r->batch.tokens; t++) r->batch.weight_versions[t] = 1000;
}

TEST(the_gradients_of_vapor_are_those_of_autograd)
{
    for (int i = 0; i < ARES_COUNT(cases); i++)
        for (int share = 0; share < 2; share++) {
            run r;
            stored s;
            truth t;
            if (!open_case(&r, &s, &cases[i], share)) return;
            if (!share) grow_stale(&r);
            if (truth_of(&r, vapor_total, &(subject){ &cases[i], &s }, &t)) {
                CHECK_OK(actor_update(&r.actor, &r.batch, second_of(&s), r.metrics));
                check_gradients(&r, cases[i].name, &t);
                truth_fini(&t);
            }
            close_case(&r, &s);
        }
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

TEST(no_cut_into_micro_batches_changes_a_bit_of_vapor)
{
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        run small, large;
        stored p, q;
        if (!open_case(&small, &p, &cases[i], true) || !open_case(&large, &q, &cases[i], true))
            return;
        small.cfg.actor.max_token_len = 1;
        large.cfg.actor.max_token_len = 1000;
        run *runs[] = { &small, &large };
        for (int k = 0; k < 2; k++) {
            runs[k]->cfg.actor.global_batch_size = 1; /* two optimizer steps a pass */
            runs[k]->cfg.actor.ppo_epochs = 2;
            CHECK_OK(actor_update(&runs[k]->actor, &runs[k]->batch, second_of(k ? &q : &p),
                                  runs[k]->metrics));
        }
        CHECK_MSG(same_model(&small, &large), "%s", cases[i].name);
        close_case(&small, &p);
        close_case(&large, &q);
    }
}

TEST(log_probs_that_the_rollout_knows_are_those_of_a_forward_pass)
{
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        run fresh, stale;
        stored p, q;
        if (!open_case(&fresh, &p, &cases[i], true) || !open_case(&stale, &q, &cases[i], true))
            return;
        grow_stale(&stale);
        CHECK_OK(actor_update(&fresh.actor, &fresh.batch, second_of(&p), fresh.metrics));
        CHECK_OK(actor_update(&stale.actor, &stale.batch, second_of(&q), stale.metrics));
        CHECK_MSG(same_model(&fresh, &stale), "%s", cases[i].name);
        static const char *const same[] = { "vapor/loss", "actor/entropy", "actor/entropy_loss",
                                            "actor/final_loss" };
        for (int k = 0; k < ARES_COUNT(same); k++) {
            double x = NAN, y = NAN;
            ares_metrics_get(fresh.metrics, same[k], &x);
            ares_metrics_get(stale.metrics, same[k], &y);
            CHECK_MSG(x == y, "%s: %s is %.17g and %.17g", cases[i].name, same[k], x, y);
        }
        close_case(&fresh, &p);
        close_case(&stale, &q);
    }
}
