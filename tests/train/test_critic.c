/*
 * The critic: values under packing, the gradient of a whole update against differences of its loss,
 * and a fresh head's life on disk. Seen to fail: with the value's bias left out of backward, the
 * clip's branch ignored, a prompt's last position read one late.
 */
#include <math.h>
#include <stdio.h>

#include "keep_groups.h"
#include "test.h"
#include "trainer.h"

enum { GROUPS = 2, PER_GROUP = 3, ROWS = GROUPS * PER_GROUP };
static const int prompt_len[GROUPS] = { 7, 12 };
static const int response_len[ROWS] = { 5, 1, 17, 9, 4, 11 };

typedef struct setup {
    training run;
    critic critic;
    ares_train_config cfg;
    ares_batch batch;
    int32_t prompts[GROUPS][16];
} setup;

static double draw(uint64_t index)
{
    return ares_rng_normal(ares_rng_root(77, ARES_RNG_TEST), index);
}
static int32_t id(const setup *s, uint64_t index)
{
    return (int32_t)ares_rng_below(ares_rng_root(5, ARES_RNG_TEST), index,
                                   (uint64_t)s->critic.learner.model->cfg.vocab);
}

static void fill(setup *s)
{
    ares_batch *b = &s->batch;
    ares_batch_init(b);
    for (int g = 0; g < GROUPS; g++) {
        for (int i = 0; i < prompt_len[g]; i++) s->prompts[g][i] = id(s, (uint64_t)(100 * g + i));
        ares_batch_begin_group(b);
        for (int i = 0; i < PER_GROUP; i++)
            ares_batch_add_row(
                b,
                &(ares_sample){
                    .draw = g, .index = i, .prompt = s->prompts[g], .prompt_len = prompt_len[g] },
                response_len[g * PER_GROUP + i]);
    }
    ARES_PUT(b, responses), ARES_PUT(b, response_mask);
    for (int64_t t = 0; t < b->tokens; t++) {
        b->responses[t] = id(s, 1000 + (uint64_t)t);
        b->response_mask[t] = t % 6 != 4;
    }
}

static bool start(setup *s, const char *variant, const char *weights, int64_t max_tokens,
                  bool share)
{
    static const double betas[] = { 0.9, 0.999 };
    static char path[500];
    snprintf(path, sizeof path, "%s/%s", test_source("tests/golden/models"), variant);
    *s = (setup){ .cfg = { .data = { .max_response_length = 20 },
                           .loss = { ARES_LOSS_DEFAULTS },
                           .actor = { .model_path = path,
                                      .global_batch_size = GROUPS,
                                      .mini_batch_unit = "prompts" },
                           .critic = { .dtype = test_arithmetic == ARES_BF16 ? "bf16" : "fp32",
                                       .arithmetic = test_arithmetic == ARES_BF16 ? "bf16" : "fp32",
                                       .gradient_checkpointing = true,
                                       .global_batch_size = ARES_NULL_I64,
                                       .ppo_epochs = 1,
                                       .max_grad_norm = 1e9,
                                       .cliprange_value = 0.05,
                                       .loss_avg_mode = "token-mean",
                                       .max_token_len = max_tokens,
                                       .share_prompts = share },
                           .critic_optim = { .strategy = "adamw",
                                             .lr = 0,
                                             .betas = { betas, 2 },
                                             .eps = 1e-8,
                                             .scheduler = "constant",
                                             .warmup_steps = 0 },
                           .rollout = { .seed = 3 } } };
    s->run = (training){ .cfg = &s->cfg, .total_steps = 1 };
    return CHECK_OK(ares_device_open("cpu", 2, &s->run.device)) &&
           CHECK_OK(critic_open(&s->critic, &s->run, weights));
}

static void stop(setup *s)
{
    critic_close(&s->critic);
    ares_batch_fini(&s->batch);
    ares_device_close(&s->run.device);
}

static void values_of(setup *s, float *out)
{
    s->batch.values = NULL; /* of the weights as they are now */
    CHECK_OK(critic_values(&s->critic, &s->batch));
    memcpy(out, s->batch.values, (size_t)s->batch.tokens * sizeof *out);
}

static double loss_of(const setup *s, const float *now, const float *old)
{
    const ares_batch *b = &s->batch;
    double sum = 0, n = 0;
    for (int64_t t = 0; t < b->tokens; t++) {
        if (!b->response_mask[t]) continue;
        double clipped = fmin(fmax((double)now[t], (double)old[t] - 0.05), (double)old[t] + 0.05),
               r = (double)b->returns[t];
        sum +=
            0.5 * fmax(((double)now[t] - r) * ((double)now[t] - r), (clipped - r) * (clipped - r));
        n++;
    }
    return sum / n;
}

/* The weight moved by `step` along a direction of its own. */
static void move(const ares_param *p, const float *from, int index, double step)
{
    int64_t n = (int64_t)p->weight.n * p->weight.k;
    float *rows = ares_malloc((size_t)n * sizeof *rows);
    for (int64_t e = 0; e < n; e++)
        rows[e] = (float)((double)from[e] + step * draw((uint64_t)index * 100000 + (uint64_t)e));
    ares_matrix_pack(&p->weight, rows, ARES_F32);
    ares_free(rows);
}

static void check_gradient(const char *variant, bool share)
{
    setup s;
    if (!start(&s, variant, NULL, 30, share)) return;
    fill(&s);
    ares_batch *b = &s.batch;
    float *now = ares_calloc((size_t)b->tokens, sizeof *now),
          *old = ares_calloc((size_t)b->tokens, sizeof *old);
    values_of(&s, now);
    ARES_PUT(b, returns);
    for (int64_t t = 0; t < b->tokens; t++) {
        /* some within the clip range, some beyond */
        old[t] = now[t] + (float)(0.04 * draw(9000 + (uint64_t)t));
        b->returns[t] = (float)draw(8000 + (uint64_t)t);
    }
    memcpy(b->values, old, (size_t)b->tokens * sizeof *old);
    ares_metrics *m = ares_metrics_new();
    double reported = 0, clipped = 0;
    CHECK_OK(critic_update(&s.critic, b, m)); /* learning rate 0: gradients without a move */
    CHECK(ares_metrics_get(m, "critic/vf_loss", &reported) &&
          ares_metrics_get(m, "critic/vf_clipfrac", &clipped));
    CHECK_NEAR(reported, loss_of(&s, now, old), 1e-5);
    CHECK(clipped > 0 && clipped < 1);
    for (int i = 0; i < s.critic.learner.model->params.n; i++) {
        const ares_param *p = &s.critic.learner.model->params.list[i];
        int64_t n = (int64_t)p->weight.n * p->weight.k;
        float *weight = ares_malloc((size_t)n * sizeof *weight),
              *gradient = ares_malloc((size_t)n * sizeof *gradient);
        ares_matrix_unpack(&p->weight, weight, ARES_F32);
        ares_matrix_unpack(&p->grad, gradient, ARES_F32);
        double want = 0, size = 0;
        for (int64_t e = 0; e < n; e++) {
            want += (double)gradient[e] * draw((uint64_t)i * 100000 + (uint64_t)e);
            size += (double)gradient[e] * (double)gradient[e];
        }
        double h = 2e-4, up, down;
        move(p, weight, i, h);
        values_of(&s, now);
        up = loss_of(&s, now, old);
        move(p, weight, i, -h);
        values_of(&s, now);
        down = loss_of(&s, now, old);
        move(p, weight, i, 0);
        CHECK_MSG(fabs((up - down) / (2 * h) - want) <= 0.02 * sqrt(size) + 2e-4,
                  "%s: %s: along a random direction %.6g, by differences %.6g", variant, p->name,
                  want, (up - down) / (2 * h));
        ares_free(weight), ares_free(gradient);
    }
    ares_metrics_free(m);
    ares_free(now), ares_free(old);
    stop(&s);
}

TEST(the_critics_gradient_is_that_of_its_clipped_loss)
{
    check_gradient("llama_gqa_9_3", true);
    check_gradient("qwen2_untied", false);
    check_gradient("qwen3_tied_bias", true);
}

TEST_BITS(values_and_gradients_depend_on_no_micro_batch)
{
    float want[64];
    float *grads[2] = { NULL };
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        setup s;
        float got[64];
        if (!start(&s, "llama_gqa_9_3", NULL, i ? 1000 : 20, true)) return;
        fill(&s);
        ARES_ASSERT(s.batch.tokens <= 64);
        values_of(&s, i ? got : want);
        if (i) CHECK_MEM(got, want, (size_t)s.batch.tokens * sizeof *got);
        for (int64_t t = 0; t < s.batch.tokens; t++)
            if (!s.batch.response_mask[t]) CHECK_EQ(want[t], 0);
        ARES_PUT(&s.batch, returns);
        ares_metrics *m = ares_metrics_new();
        CHECK_OK(critic_update(&s.critic, &s.batch, m));
        ares_metrics_free(m);
        bytes = s.critic.learner.model->params.grads_bytes;
        grads[i] = ares_malloc(bytes);
        memcpy(grads[i], s.critic.learner.model->params.grads, bytes);
        stop(&s);
    }
    CHECK_MEM(grads[0], grads[1], bytes);
    ares_free(grads[0]), ares_free(grads[1]);
}

TEST(a_saved_critic_comes_back_with_its_head)
{
    setup s, again;
    float want[64], got[64];
    const char *path = test_file("critic");
    if (!start(&s, "qwen2_untied", NULL, 100, true)) return;
    fill(&s);
    values_of(&s, want);
    CHECK_OK(ares_model_save(s.critic.learner.model, path, NULL, NULL));
    if (start(&again, "qwen2_untied", path, 100, true)) {
        fill(&again);
        values_of(&again, got);
        CHECK_MEM(got, want, (size_t)again.batch.tokens * sizeof *got);
        stop(&again);
    }
    stop(&s);
}

typedef enum { SECOND_GROUP_ALONE, FIRST_GROUP_MASKED } learnt;

/* Weights and moments after some updates, a mini-batch per group; values and returns are made up.
 */
static void learn(setup *s, learnt from, int64_t updates, ares_metrics *m, uint8_t **bytes,
                  size_t *n)
{
    ares_batch *b = &s->batch;
    bool keep[GROUPS] = { false, true };
    ARES_PUT(b, values), ARES_PUT(b, returns);
    for (int64_t t = 0; t < b->tokens; t++) {
        b->values[t] = (float)draw(9000 + (uint64_t)t);
        b->returns[t] = (float)draw(8000 + (uint64_t)t);
    }
    if (from == FIRST_GROUP_MASKED)
        memset(b->response_mask, 0, (size_t)b->row_start[b->group_start[1]]);
    else keep_groups(b, keep);
    s->cfg.critic.global_batch_size = 1;
    for (int64_t i = 0; i < updates; i++) CHECK_OK(critic_update(&s->critic, b, m));
    const ares_model *model = s->critic.learner.model;
    *n = model->params.weights_bytes + model->params.states_bytes;
    *bytes = ares_malloc(*n);
    memcpy(*bytes, model->params.weights, model->params.weights_bytes);
    memcpy(*bytes + model->params.weights_bytes, model->params.states, model->params.states_bytes);
}

static bool start_to_learn(setup *s)
{
    if (!start(s, "llama_gqa_9_3", NULL, 30, true)) return false;
    s->cfg.critic_optim.lr = 1e-3;
    s->cfg.critic_optim.weight_decay = 0.1;
    fill(s);
    return true;
}

TEST(the_critic_takes_mini_batches_of_rows_where_the_actor_does)
{
    setup of_prompts, of_rows;
    if (!start_to_learn(&of_prompts) || !start_to_learn(&of_rows)) return;
    setup *s[] = { &of_prompts, &of_rows };
    ares_metrics *m = ares_metrics_new();
    of_prompts.cfg.critic.global_batch_size = 1;
    of_rows.cfg.actor.global_batch_size = PER_GROUP;
    of_rows.cfg.actor.mini_batch_unit = "rows";
    for (int i = 0; i < 2; i++) {
        ares_batch *b = &s[i]->batch;
        ARES_PUT(b, values), ARES_PUT(b, returns);
        for (int64_t t = 0; t < b->tokens; t++) b->returns[t] = (float)draw(8000 + (uint64_t)t);
        CHECK_OK(critic_update(&s[i]->critic, b, m));
        CHECK_EQ(s[i]->critic.learner.optim.updates, GROUPS);
    }
    CHECK_MEM(of_rows.critic.learner.model->params.weights,
              of_prompts.critic.learner.model->params.weights,
              of_prompts.critic.learner.model->params.weights_bytes);
    of_rows.cfg.critic.global_batch_size = 2; /* the actor's unit */
    CHECK_OK(critic_update(&of_rows.critic, &of_rows.batch, m));
    CHECK_EQ(of_rows.critic.learner.optim.updates, GROUPS + GROUPS * PER_GROUP / 2);
    of_rows.cfg.critic.mini_batch_unit = "prompts";
    CHECK_OK(critic_update(&of_rows.critic, &of_rows.batch, m));
    CHECK_EQ(of_rows.critic.learner.optim.updates, GROUPS + GROUPS * PER_GROUP / 2 + GROUPS / 2);
    ares_metrics_free(m);
    stop(&of_prompts);
    stop(&of_rows);
}

TEST(the_critic_learns_from_rows_in_the_order_of_their_lengths)
{
    static const int64_t order[] = { 1, 4, 2, 5, 0, 3 }; /* mini-batches of two */
    setup taken, by_length, *s[] = { &taken, &by_length };
    if (!start_to_learn(&taken) || !start_to_learn(&by_length)) return;
    ares_metrics *m = ares_metrics_new();
    by_length.cfg.trainer.balance_batch = true;
    for (int i = 0; i < 2; i++) {
        ares_batch *b = &s[i]->batch;
        ARES_PUT(b, values), ARES_PUT(b, returns);
        for (int64_t t = 0; t < b->tokens; t++) b->returns[t] = (float)draw(8000 + (uint64_t)t);
        if (i == 0) ares_batch_take(b, order, ROWS);
        for (int64_t r = 0; r < b->rows && i == 0; r++) b->samples[r].place = r;
        s[i]->cfg.actor.global_batch_size = 2;
        s[i]->cfg.actor.mini_batch_unit = "rows";
        CHECK_OK(critic_update(&s[i]->critic, b, m));
        CHECK_EQ(s[i]->critic.learner.optim.updates, ROWS / 2);
    }
    CHECK_MEM(by_length.critic.learner.model->params.weights,
              taken.critic.learner.model->params.weights,
              taken.critic.learner.model->params.weights_bytes);
    ares_metrics_free(m);
    stop(&taken);
    stop(&by_length);
}

static void check_finite(const ares_metrics *m)
{
    for (int i = 0; i < ares_metrics_count(m); i++)
        CHECK_MSG(isfinite(ares_metrics_value(m, i)), "%s", ares_metrics_name(m, i));
}

TEST(a_mini_batch_without_a_token_moves_no_critic)
{
    setup one, both;
    uint8_t *x, *y;
    size_t n;
    double value, same;
    static const char *const means[] = { "critic/vf_loss", "critic/vf_clipfrac",
                                         "critic/vpred_mean", "critic/grad_norm",
                                         "critic/vf_explained_var" };
    if (!start_to_learn(&one) || !start_to_learn(&both)) return;
    ares_metrics *m = ares_metrics_new(), *k = ares_metrics_new();
    learn(&one, SECOND_GROUP_ALONE, 2, m, &x, &n);
    learn(&both, FIRST_GROUP_MASKED, 2, k, &y, &n);
    CHECK_MEM(y, x, n); /* as if the empty mini-batch were not there */
    CHECK_EQ(both.critic.learner.optim.updates, 2);
    CHECK(ares_metrics_get(k, "critic/empty_minibatches", &value) && value == 1);
    CHECK(!ares_metrics_get(m, "critic/empty_minibatches", &value));
    for (int i = 0; i < ARES_COUNT(means); i++)
        if (CHECK(ares_metrics_get(m, means[i], &value) && ares_metrics_get(k, means[i], &same)))
            CHECK_NEAR(same, value, 0);
    check_finite(k);
    memset(both.batch.response_mask, 0, (size_t)both.batch.tokens); /* nothing, and moments not 0 */
    ares_metrics_clear(k);
    CHECK_OK(critic_update(&both.critic, &both.batch, k));
    CHECK_MEM(both.critic.learner.model->params.weights, x,
              both.critic.learner.model->params.weights_bytes);
    CHECK_MEM(both.critic.learner.model->params.states,
              x + both.critic.learner.model->params.weights_bytes,
              both.critic.learner.model->params.states_bytes);
    CHECK_EQ(both.critic.learner.optim.updates, 2);
    CHECK_EQ(both.critic.learner.step, 3);
    CHECK(ares_metrics_get(k, "critic/empty_minibatches", &value) && value == GROUPS);
    check_finite(k);
    ares_free(x), ares_free(y);
    ares_metrics_free(m), ares_metrics_free(k);
    stop(&one);
    stop(&both);
}

/*
 * Two epochs of two mini-batches at a learning rate of 0: what is told of them is a mean over the
 * four, or over tokens.
 */
TEST(metrics_of_the_critic_are_means_over_updates_and_tokens)
{
    setup s;
    if (!start(&s, "llama_gqa_9_3", NULL, 30, true)) return;
    fill(&s);
    ares_batch *b = &s.batch;
    ares_metrics *m = ares_metrics_new();
    float now[64], old[64];
    ARES_ASSERT(b->tokens <= 64);
    values_of(&s, now);
    ARES_PUT(b, returns);
    double n = 0, value = 0, target = 0, error = 0, spread[2] = { 0 }, loss = 0, norm = 0, x;
    for (int64_t t = 0; t < b->tokens; t++) {
        old[t] = now[t] + (float)(0.04 * draw(9000 + (uint64_t)t));
        /* far from the values: all of them lie too low */
        b->returns[t] = (float)(5 + draw(8000 + (uint64_t)t));
        if (!b->response_mask[t]) continue;
        n++;
        value += (double)now[t];
        target += (double)b->returns[t];
        error += (double)b->returns[t] - (double)old[t];
    }
    for (int64_t t = 0; t < b->tokens; t++) {
        if (!b->response_mask[t]) continue;
        spread[0] += pow((double)b->returns[t] - target / n, 2);
        spread[1] += pow((double)b->returns[t] - (double)old[t] - error / n, 2);
    }
    memcpy(b->values, old, (size_t)b->tokens * sizeof *old);
    s.cfg.critic.global_batch_size = 1;
    for (int g = 0; g < GROUPS; g++) { /* the mini-batches by themselves */
        int64_t first = b->row_start[b->group_start[g]], end = b->row_start[b->group_start[g + 1]];
        uint8_t *whole = b->response_mask, part[64] = { 0 };
        memcpy(part + first, whole + first, (size_t)(end - first));
        b->response_mask = part;
        CHECK_OK(critic_update(&s.critic, b, m));
        b->response_mask = whole;
        CHECK(ares_metrics_get(m, "critic/vf_loss", &x));
        loss += x / GROUPS;
        CHECK(ares_metrics_get(m, "critic/grad_norm", &x));
        norm += x / GROUPS;
    }
    s.cfg.critic.ppo_epochs = 2;
    CHECK_OK(critic_update(&s.critic, b, m));
    CHECK(ares_metrics_get(m, "critic/vf_loss", &x));
    CHECK_NEAR(x, loss, 1e-9 * loss);
    CHECK(ares_metrics_get(m, "critic/grad_norm", &x));
    CHECK_NEAR(x, norm, 1e-9 * norm);
    CHECK(ares_metrics_get(m, "critic/vpred_mean", &x));
    CHECK_NEAR(x, value / n, 1e-6);
    CHECK(ares_metrics_get(m, "critic/vf_explained_var", &x));
    CHECK_NEAR(x, 1 - spread[1] / (n - 1) / (spread[0] / (n - 1) + 1e-5), 1e-9);
    CHECK(ares_metrics_get(m, "critic/vf_clipfrac", &x) && x > 0 && x < 1);
    ares_metrics_free(m);
    stop(&s);
}
