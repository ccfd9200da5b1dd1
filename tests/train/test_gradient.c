/*
 * The gradient of a whole update against libtorch's autograd: tiny models of each family, two
 * groups of unlike rows with a shared prompt, tokens of an environment among the policy's, GRPO
 * advantages, PPO with its clips, k3 to a reference, the entropy bonus, a temperature. The oracle
 * walks each row by itself, unpacked, from the plain formulas in f64; the tolerance is a multiple
 * of what the same walk in libtorch's f32 is off it, and of what log-probs are off. Seen to fail:
 * with the masked tokens counted, the dual clip of 3 left out, the entropy bonus added for
 * subtracted, the temperature left out of the oracle, the advantage's deviation taken over n.
 */
#include "gradient.h"

/* The loss of one row, weighted as its share of the mini-batch's. */
static at_tensor row_loss(const oracle *o, int row)
{
    const run *r = o->r;
    const ares_batch *b = &r->batch;
    const ares_loss_config *c = &r->cfg.loss;
    int group = row / PER_GROUP, response = response_len[row];
    int64_t first = b->row_start[row];
    at_tensor log_p = row_log_p(o, row), log_prob = taken(o, row, log_p),
              entropy = entropy_of(log_p);

    double mean = 0, square = 0, all = 0, rows = 0;
    for (int i = 0; i < PER_GROUP; i++) mean += scores[group * PER_GROUP + i] / PER_GROUP;
    for (int i = 0; i < PER_GROUP; i++) square += pow(scores[group * PER_GROUP + i] - mean, 2);
    for (int i = 0; i < ROWS; i++) {
        all += tokens_of(b, i);
        rows += tokens_of(b, i) > 0;
    }
    double advantage = (scores[row] - mean) / (sqrt(square / (PER_GROUP - 1)) + 1e-6);
    double weight =
        strcmp(c->loss_avg_mode, "token-mean") == 0 ? 1 / all : 1 / (rows * tokens_of(b, row));

    at_tensor ratio = at_exp(at_sub(log_prob, blob(o, b->old_log_probs + first, response))),
              clipped = at_clamp(ratio, 1 - c->clip_ratio_low, 1 + c->clip_ratio_high);
    at_tensor loss = at_maximum(at_mul_s(ratio, -advantage), at_mul_s(clipped, -advantage));
    if (advantage < 0)
        loss = at_minimum(loss, at_full(-advantage * c->clip_ratio_dual, o->dtype, AT_SCALAR));
    at_tensor back = at_sub(blob(o, b->ref_log_probs + first, response), log_prob),
              k3 = at_add_s(at_sub(at_exp(back), back), -1);
    loss = at_add(loss, at_mul_s(k3, b->kl_coef));
    loss = at_sub(loss, at_mul_s(entropy, c->entropy_coeff));
    at_tensor seen =
        at_to(at_clone(at_from_blob(b->response_mask + first, AT_U8, AT_DIMS(response))), o->dtype);
    return at_mul_s(at_sum(at_mul(loss, seen)), weight);
}

static at_tensor all_rows(const oracle *o, const void *ctx)
{
    at_tensor loss = NULL;
    (void)ctx;
    for (int row = 0; row < ROWS; row++)
        loss = loss ? at_add(loss, row_loss(o, row)) : row_loss(o, row);
    return loss;
}

/* ---------------------------------------------------------------- */

static void check_update(const char *variant, const char *avg_mode, bool share)
{
    run r;
    if (!run_open(&r, variant, avg_mode, share) || !CHECK(r.model->params.n <= PARAMS_MAX)) return;
    truth t;
    if (truth_of(&r, all_rows, NULL, &t) &&
        CHECK_OK(actor_update(&r.actor, &r.batch, NULL, r.metrics))) {
        char what[100];
        snprintf(what, sizeof what, "%s %s, %s", variant, avg_mode, share ? "shared" : "apart");
        check_gradients(&r, what, &t);
        double norm = 0, got_norm = 0;
        for (int64_t i = 0; i < ares_params_count(&r.model->params); i++)
            norm += t.exact[i] * t.exact[i];
        ares_metrics_get(r.metrics, "actor/grad_norm", &got_norm);
        CHECK_NEAR(got_norm, sqrt(norm), 1e-5 * sqrt(norm));
        double high = 0, low = 0;
        ares_metrics_get(r.metrics, "actor/pg_clipfrac_higher", &high);
        ares_metrics_get(r.metrics, "actor/pg_clipfrac_lower", &low);
        CHECK(high > 0 && low > 0); /* both clips were there to be differentiated */
    }
    truth_fini(&t);
    run_close(&r);
}

TEST(the_first_update_of_grpo_has_the_gradient_of_the_plain_formula)
{
    static const char *const variants[] = { "qwen2_tied",   "qwen2_untied",    "qwen2_window",
                                            "qwen3_untied", "qwen3_tied_bias", "llama_plain",
                                            "llama_biases", "llama_gqa_9_3" };
    for (int i = 0; i < ARES_COUNT(variants); i++) {
        check_update(variants[i], "token-mean", true);
        check_update(variants[i], "seq-mean-token-mean", false);
    }
}

/*
 * The second row of the first group has another prompt of the same length, the third a longer one.
 */
static void change_prompts(run *r)
{
    static int32_t other[7], longer[8];
    memcpy(other, r->prompts[0], sizeof other);
    memcpy(longer, r->prompts[0], sizeof other);
    other[3] = (other[3] + 1) % r->model->cfg.vocab;
    longer[7] = other[3];
    r->batch.samples[1].prompt = other;
    r->batch.samples[2].prompt = longer;
    r->batch.samples[2].prompt_len = 8;
}

static void compare_with_rows_apart(const char *variant, bool other_prompts, double within)
{
    run apart, shared;
    run *runs[] = { &apart, &shared };
    float one_by_one[64], *log_probs[2] = { NULL };
    for (int i = 0; i < 2; i++) {
        if (!run_open(runs[i], variant, "token-mean", i == 1)) return;
        if (other_prompts) change_prompts(runs[i]);
        ares_batch *b = &runs[i]->batch;
        ARES_ASSERT(b->tokens <= 64);
        log_probs[i] = ares_calloc((size_t)b->tokens, sizeof(float));
        CHECK_OK(ares_train_log_probs(runs[i]->model, NULL, runs[i]->actor.learner.workspace, NULL,
                                      &runs[i]->cfg, b, 0, b->rows, log_probs[i], NULL));
    }
    for (int64_t row = 0; row < ROWS; row++)
        CHECK_OK(ares_train_log_probs(apart.model, NULL, apart.actor.learner.workspace, NULL,
                                      &apart.cfg, &apart.batch, row, row + 1,
                                      one_by_one + apart.batch.row_start[row], NULL));
    for (int i = 0; i < 2; i++) {
        CHECK_MEM(log_probs[i], one_by_one, (size_t)apart.batch.tokens * sizeof(float));
        CHECK_OK(actor_update(&runs[i]->actor, &runs[i]->batch, NULL, runs[i]->metrics));
        ares_free(log_probs[i]);
    }
    for (int p = 0; p < apart.model->params.n; p++) {
        const float *x = apart.model->params.list[p].grad.data,
                    *y = shared.model->params.list[p].grad.data;
        double off = 0, largest = 0;
        for (int64_t e = 0; e < apart.model->params.list[p].elements; e++) {
            off = fmax(off, fabs((double)x[e] - (double)y[e]));
            largest = fmax(largest, fabs((double)x[e]));
        }
        CHECK_MSG(off <= within * largest, "%s: %s is off by %.3g of %.3g", variant,
                  apart.model->params.list[p].name, off, largest);
    }
    run_close(&apart);
    run_close(&shared);
}

TEST(rows_of_a_group_with_prompts_of_their_own_have_the_gradient_of_rows_apart)
{
    compare_with_rows_apart("qwen2_tied", true, 2e-6);
}

/* Of delta nets: the state of a prompt, and the window of its convolution, go to each answer. */
TEST(answers_in_the_pass_of_their_prompt_have_log_probs_and_gradients_of_rows_apart)
{
    static const char *const variants[] = { "qwen2_tied", "qwen3_5_interval", "qwen3_5_types" };
    for (int i = 0; i < ARES_COUNT(variants); i++)
        for (int other = 0; other < 2; other++)
            compare_with_rows_apart(variants[i], other, i ? 2e-5 : 2e-6);
}

/* Both groups have one prompt: log-probs are computed with it fed once, or once per row. */
TEST(groups_with_the_same_prompt_have_the_log_probs_of_rows_apart)
{
    run r;
    float all[64], one_by_one[64];
    if (!run_open(&r, "qwen2_tied", "token-mean", true)) return;
    ares_batch *b = &r.batch;
    ARES_ASSERT(b->tokens <= 64);
    memcpy(r.prompts[0], r.prompts[1], sizeof r.prompts[0]);
    for (int64_t row = 0; row < PER_GROUP; row++) b->samples[row].prompt_len = prompt_len[1];
    r.cfg.actor.max_token_len = 1000;
    CHECK_OK(ares_train_log_probs(r.model, NULL, r.actor.learner.workspace, NULL, &r.cfg, b, 0,
                                  b->rows, all, NULL));
    for (int64_t row = 0; row < ROWS; row++)
        CHECK_OK(ares_train_log_probs(r.model, NULL, r.actor.learner.workspace, NULL, &r.cfg, b,
                                      row, row + 1, one_by_one + b->row_start[row], NULL));
    CHECK_MEM(all, one_by_one, (size_t)b->tokens * sizeof(float));
    run_close(&r);
}

/* Rows of which the environment has the last word: their reward reaches their tokens. */
TEST(a_score_behind_which_the_environment_speaks_still_teaches)
{
    static const char *const names[] = { "gae", "bi_level_gae", "reinforce_plus_plus", "grpo" };
    for (int i = 0; i < ARES_COUNT(names); i++) {
        run r;
        double taught = 0;
        if (!run_open(&r, "qwen2_tied", "token-mean", true)) return;
        ares_batch *b = &r.batch;
        b->token_level_rewards = b->advantages = b->returns = NULL;
        for (int64_t row = 0; row < ROWS; row++) {
            b->samples[row].score = (float)scores[row];
            if (row != 1) b->response_mask[b->row_start[row + 1] - 1] = 0;
        }
        ARES_PUT(b, token_level_rewards), ARES_PUT(b, values);
        for (int64_t row = 0; row < ROWS; row++)
            b->token_level_rewards[ares_batch_last_token(b, row)] = b->samples[row].score;
        CHECK_OK(ares_adv_find(names[i])->compute(&r.cfg.algorithm, NULL, b));
        for (int64_t t = 0; t < b->tokens; t++) taught = fmax(taught, fabs((double)b->returns[t]));
        CHECK_MSG(taught > 0, "%s: the reward was lost", names[i]);
        run_close(&r);
    }
}
