/*
 * What must not change (docs/design.md#randomness-and-exactness): a sample's ids, log-probs and
 * entropies are the same bits whatever the batch, the cache, the row budget, the thread count or
 * the instruction set, and they are the bits that scoring and training compute. Seen to fail: with
 * the sampling key taken from the position in the batch (four tests), with a prompt's partial block
 * not copied (six), with a preempted sample's tokens not computed again (the cache test alone).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/rollout.h"
#include "roles.h"
#include "test.h"

enum { PROMPTS = 5, N = 4, NEW = 40, MAX_ROWS = PROMPTS * N };

/* What a run of the engine gave: every sample's tokens and numbers. */
typedef struct result {
    int32_t n[MAX_ROWS], ids[MAX_ROWS][NEW];
    float log_probs[MAX_ROWS][NEW], entropies[MAX_ROWS][NEW];
} result;

typedef struct setting {
    const char *variant, *isa;
    int threads, max_num_seqs, max_rows;
    int64_t cache_tokens;
    int first, count; /* prompts [first, first + count) */
    float temperature, top_p;
    int32_t top_k;
    int64_t preemptions; /* out */
} setting;

static const setting usual = { .variant = "qwen3_tied_bias",
                               .threads = 2,
                               .max_num_seqs = 64,
                               .max_rows = 256,
                               .cache_tokens = 4096,
                               .count = PROMPTS,
                               .temperature = 1,
                               .top_p = 1 };

/* Lengths around the block size of the cache: 3, 31, 32, 33, 70. */
static int32_t prompt_of(int which, int32_t vocab, int32_t *ids)
{
    static const int32_t lengths[PROMPTS] = { 3, 31, 32, 33, 70 };
    ares_rng_key key = ares_rng_sub(ares_rng_root(7, ARES_RNG_TEST), (uint64_t)which, 0);
    for (int32_t i = 0; i < lengths[which]; i++)
        ids[i] = (int32_t)ares_rng_below(key, (uint64_t)i, (uint64_t)vocab);
    return lengths[which];
}

static void open_model(const setting *s, ares_device *d, ares_model **m, bool trainable)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", test_source("tests/golden/models"), s->variant);
    ares_model_options opt = { TEST_TYPES, .trainable = trainable };
    if (s->isa) setenv("ARES_ISA", s->isa, 1);
    CHECK_OK(ares_device_open("cpu", s->threads, d));
    unsetenv("ARES_ISA");
    CHECK_OK(ares_model_load(path, d, &opt, m));
}

static ares_rng_key key_of(int which)
{
    return ares_rng_sub(ares_rng_root(11, ARES_RNG_SAMPLE), 0, (uint64_t)which);
}

static void generate(setting *s, result *out)
{
    ares_device d;
    ares_model *m;
    ares_rollout *r;
    int32_t prompt[128];
    memset(out, 0, sizeof *out);
    open_model(s, &d, &m, false);
    ares_rollout_options o = { .cache_tokens = s->cache_tokens,
                               .max_num_seqs = s->max_num_seqs,
                               .max_num_batched_tokens = s->max_rows,
                               .max_model_len = 128 };
    CHECK_OK(ares_rollout_new(m, NULL, &o, &r));
    ares_sampling g = { .temperature = s->temperature,
                        .top_p = s->top_p,
                        .top_k = s->top_k,
                        .max_new_tokens = NEW,
                        .ignore_eos = true };
    for (int p = s->first; p < s->first + s->count; p++)
        CHECK_OK(ares_rollout_add(r,
                                  &(ares_request){ .prompt = prompt,
                                                   .prompt_len = prompt_of(p, m->cfg.vocab, prompt),
                                                   .n = N,
                                                   .sampling = g,
                                                   .key = key_of(p) },
                                  NULL));
    int64_t active = 1;
    ares_completion c;
    while (active) {
        if (!CHECK_OK(ares_rollout_step(r, &active))) break;
        while (ares_rollout_next(r, &c)) {
            int row = (int)(c.request + s->first) * N + c.index;
            out->n[row] = c.n_tokens;
            memcpy(out->ids[row], c.ids, (size_t)c.n_tokens * sizeof(int32_t));
            memcpy(out->log_probs[row], c.log_probs, (size_t)c.n_tokens * sizeof(float));
            memcpy(out->entropies[row], c.entropies, (size_t)c.n_tokens * sizeof(float));
        }
    }
    ares_rollout_stats stats;
    ares_rollout_get_stats(r, &stats);
    s->preemptions = stats.preemptions;
    ares_rollout_free(r);
    ares_model_free(m);
    ares_device_close(&d);
}

static result *reference_result(void)
{
    static result of[2];
    static bool made[2];
    bool bf16 = test_arithmetic == ARES_BF16;
    result *first = &of[bf16];
    setting s = usual;
    if (!made[bf16]) generate(&s, first);
    made[bf16] = true;
    for (int row = 0; row < MAX_ROWS; row++) CHECK_EQ(first->n[row], NEW);
    return first;
}

static void check_same(setting s)
{
    static result now;
    generate(&s, &now);
    const result *then = reference_result();
    for (int row = s.first * N; row < (s.first + s.count) * N; row++) {
        CHECK_EQ(now.n[row], then->n[row]);
        CHECK_MEM(now.ids[row], then->ids[row], sizeof now.ids[row]);
        CHECK_MEM(now.log_probs[row], then->log_probs[row], sizeof now.log_probs[row]);
        CHECK_MEM(now.entropies[row], then->entropies[row], sizeof now.entropies[row]);
    }
}

TEST_BITS(samples_do_not_depend_on_how_many_decode_at_once)
{
    for (int n = 1; n <= 64; n = n < 4 ? n + 1 : n * 2) {
        setting s = usual;
        s.max_num_seqs = n;
        check_same(s);
    }
}

TEST_BITS(samples_do_not_depend_on_the_row_budget_of_a_forward)
{
    static const int budgets[] = { 64, 65, 100, 1024 };
    for (int i = 0; i < ARES_COUNT(budgets); i++) {
        setting s = usual;
        s.max_rows = budgets[i];
        check_same(s);
    }
    setting s = usual;
    s.max_num_seqs = 4;
    s.max_rows = 5;
    check_same(s);
}

TEST_BITS(samples_survive_a_cache_that_is_too_small)
{
    static const int64_t tokens[] = { 160, 192, 256, 384, 512 };
    int64_t preemptions = 0;
    for (int i = 0; i < ARES_COUNT(tokens); i++) {
        setting s = usual;
        static result now;
        s.cache_tokens = tokens[i];
        check_same(s);
        generate(&s, &now);
        preemptions += s.preemptions;
    }
    CHECK(preemptions > 0); /* else nothing was tested */
}

TEST_BITS(samples_do_not_depend_on_threads)
{
    setting s = usual;
    s.threads = 1;
    check_same(s);
    s.threads = 3;
    check_same(s);
}

TEST_BITS(samples_do_not_depend_on_their_neighbours)
{
    for (int p = 0; p < PROMPTS; p++) {
        setting s = usual;
        s.first = p;
        s.count = 1;
        check_same(s);
    }
}

TEST_BITS(samples_do_not_depend_on_the_instruction_set)
{
    static const char *const sets[] = { "plain", "avx2", "avx512" };
    for (int i = 0; i < ARES_COUNT(sets); i++) {
        if (!test_has_isa(sets[i])) continue;
        setting s = usual;
        s.isa = sets[i];
        if (i == 0) s.count = 2; /* fmaf is slow */
        check_same(s);
    }
}

/* The samples as a batch, in order. */
static void fill(const result *x, int32_t vocab, ares_batch *b, int32_t (*prompts)[128])
{
    ares_batch_init(b);
    for (int p = 0; p < PROMPTS; p++) {
        int32_t length = prompt_of(p, vocab, prompts[p]);
        ares_batch_begin_group(b);
        for (int i = 0; i < N; i++) {
            ares_sample s = { .draw = p, .index = i, .prompt = prompts[p], .prompt_len = length };
            ares_batch_add_row(b, &s, x->n[p * N + i]);
        }
    }
    ARES_PUT(b, responses);
    ARES_PUT(b, response_mask);
    ARES_PUT(b, weight_versions);
    for (int row = 0; row < MAX_ROWS; row++) {
        memcpy(b->responses + b->row_start[row], x->ids[row], (size_t)x->n[row] * sizeof(int32_t));
        memset(b->response_mask + b->row_start[row], 1, (size_t)x->n[row]);
    }
}

TEST_BITS(rollout_log_probs_are_scored_log_probs_bit_for_bit)
{
    const result *x = reference_result();
    static const int64_t micro[] = { 1, 100, 300, 1 << 20 };
    static const char *const sets[] = { "avx2", "avx512" };
    for (int share = 0; share < 2; share++)
        for (int k = 0; k < ARES_COUNT(micro) + ARES_COUNT(sets); k++) {
            ares_device d;
            ares_model *m;
            ares_workspace *w;
            ares_batch b;
            int32_t prompts[PROMPTS][128];
            setting s = usual;
            s.threads = 1 + k % 2;
            if (k >= ARES_COUNT(micro) && !test_has_isa(sets[k - ARES_COUNT(micro)])) continue;
            if (k >= ARES_COUNT(micro)) s.isa = sets[k - ARES_COUNT(micro)];
            open_model(&s, &d, &m, false);
            fill(x, m->cfg.vocab, &b, prompts);
            ares_train_config cfg = { .actor = { .max_token_len =
                                                     k < ARES_COUNT(micro) ? micro[k] : 300,
                                                 .share_prompts = share },
                                      .rollout = { .temperature = 1 } };
            float *log_probs = ares_calloc((size_t)b.tokens, sizeof *log_probs),
                  *entropies = ares_calloc((size_t)b.tokens, sizeof *entropies);
            CHECK_OK(ares_workspace_new(m, ARES_KEEP_NOTHING, &w));
            CHECK_OK(
                ares_train_log_probs(m, NULL, w, NULL, &cfg, &b, 0, b.rows, log_probs, entropies));
            for (int row = 0; row < MAX_ROWS; row++) {
                CHECK_MEM(log_probs + b.row_start[row], x->log_probs[row],
                          (size_t)x->n[row] * sizeof(float));
                CHECK_MEM(entropies + b.row_start[row], x->entropies[row],
                          (size_t)x->n[row] * sizeof(float));
            }
            ares_free(log_probs);
            ares_free(entropies);
            ares_batch_fini(&b);
            ares_workspace_free(w);
            ares_model_free(m);
            ares_device_close(&d);
        }
}

/*
 * Seen to fail at 62 temperatures, with (float)(1 / T) in scoring and 1.0f / (float)T in sampling.
 */
TEST_BITS(sampled_and_scored_log_probs_have_the_same_bits_at_300_temperatures)
{
    enum { TEMPERATURES = 300, TOKENS = 4 };
    static float sampled[TEMPERATURES][TOKENS];
    static int32_t ids[TEMPERATURES][TOKENS], prompt[128];
    ares_device d;
    ares_model *m;
    ares_rollout *r;
    ares_workspace *w;
    ares_completion c;
    int64_t active = 1;
    int differ = 0;
    open_model(&usual, &d, &m, false);
    int32_t length = prompt_of(0, m->cfg.vocab, prompt);
    ares_rollout_options o = { .cache_tokens = 4096,
                               .max_num_seqs = 64,
                               .max_num_batched_tokens = 256,
                               .max_model_len = 128 };
    REQUIRE_OK(ares_rollout_new(m, NULL, &o, &r));
    for (int i = 0; i < TEMPERATURES; i++) {
        ares_sampling g = { .temperature = (float)((i + 1) / 100.0),
                            .top_p = 1,
                            .max_new_tokens = TOKENS,
                            .ignore_eos = true };
        REQUIRE_OK(ares_rollout_add(
            r,
            &(ares_request){
                .prompt = prompt, .prompt_len = length, .n = 1, .sampling = g, .key = key_of(i) },
            NULL));
    }
    while (active) {
        REQUIRE_OK(ares_rollout_step(r, &active));
        while (ares_rollout_next(r, &c)) {
            memcpy(ids[c.request], c.ids, sizeof ids[0]);
            memcpy(sampled[c.request], c.log_probs, sizeof sampled[0]);
        }
    }
    REQUIRE_OK(ares_workspace_new(m, ARES_KEEP_NOTHING, &w));
    for (int i = 0; i < TEMPERATURES; i++) {
        ares_batch b;
        float scored[TOKENS] = { 0 };
        ares_sample s = { .draw = i, .prompt = prompt, .prompt_len = length };
        ares_batch_init(&b);
        ares_batch_begin_group(&b);
        ares_batch_add_row(&b, &s, TOKENS);
        ARES_PUT(&b, responses);
        ARES_PUT(&b, response_mask);
        memcpy(b.responses, ids[i], sizeof ids[i]);
        memset(b.response_mask, 1, TOKENS);
        ares_train_config cfg = { .actor = { .max_token_len = 300 },
                                  .rollout = { .temperature = (i + 1) / 100.0 } };
        CHECK_OK(ares_train_log_probs(m, NULL, w, NULL, &cfg, &b, 0, 1, scored, NULL));
        differ += memcmp(scored, sampled[i], sizeof scored) != 0;
        ares_batch_fini(&b);
    }
    CHECK_EQ(differ, 0);
    ares_workspace_free(w);
    ares_rollout_free(r);
    ares_model_free(m);
    ares_device_close(&d);
}

TEST(one_changed_weight_shows_in_the_log_probs)
{
    const result *x = reference_result();
    ares_device d;
    ares_model *m;
    ares_workspace *w;
    ares_batch b;
    int32_t prompts[PROMPTS][128];
    setting s = usual;
    open_model(&s, &d, &m, false);
    fill(x, m->cfg.vocab, &b, prompts);
    ((float *)m->layer[0].v.w->weight.data)[0] += 0.01f;
    ares_train_config cfg = { .actor = { .max_token_len = 300 }, .rollout = { .temperature = 1 } };
    float *log_probs = ares_calloc((size_t)b.tokens, sizeof *log_probs);
    double worst = 0;
    CHECK_OK(ares_workspace_new(m, ARES_KEEP_NOTHING, &w));
    CHECK_OK(ares_train_log_probs(m, NULL, w, NULL, &cfg, &b, 0, b.rows, log_probs, NULL));
    for (int row = 0; row < MAX_ROWS; row++)
        for (int t = 0; t < x->n[row]; t++)
            worst = fmax(worst, fabs((double)log_probs[b.row_start[row] + t] -
                                     (double)x->log_probs[row][t]));
    CHECK(worst > 0);
    ares_free(log_probs);
    ares_batch_fini(&b);
    ares_workspace_free(w);
    ares_model_free(m);
    ares_device_close(&d);
}

/* Gradients and parameters after one update of the samples, with made-up advantages. */
static void update_samples(const result *x, int threads, int64_t micro, bool recompute,
                           uint8_t **bytes, size_t *n)
{
    ares_device d;
    ares_model *m;
    ares_batch b;
    actor a;
    int32_t prompts[PROMPTS][128];
    static const double betas[] = { 0.9, 0.99 };
    setting s = usual;
    s.threads = threads;
    open_model(&s, &d, &m, true);
    fill(x, m->cfg.vocab, &b, prompts);
    ARES_PUT(&b, rollout_log_probs);
    ARES_PUT(&b, old_log_probs);
    ARES_PUT(&b, advantages);
    for (int row = 0; row < MAX_ROWS; row++)
        for (int t = 0; t < x->n[row]; t++) {
            b.rollout_log_probs[b.row_start[row] + t] = b.old_log_probs[b.row_start[row] + t] =
                x->log_probs[row][t];
            b.advantages[b.row_start[row] + t] = (float)(row % N) - 1.5f;
        }
    ares_train_config cfg = {
        .data = { .max_response_length = NEW },
        .algorithm = { .adv_estimator = "grpo", .kl_penalty = "low_var_kl", .disable_kl = true },
        .loss = { .loss_type = "default",
                  .clip_ratio_low = 0.2,
                  .clip_ratio_high = 0.3,
                  .clip_ratio_dual = 3,
                  .loss_avg_mode = "token-mean",
                  .entropy_coeff = 0.01,
                  ARES_LOSS_DEFAULTS },
        .actor = { .global_batch_size = PROMPTS,
                   .mini_batch_unit = "prompts",
                   .max_token_len = micro,
                   .share_prompts = true,
                   .ppo_epochs = 2,
                   .max_grad_norm = 1,
                   .gradient_checkpointing = recompute },
        .optim = { .strategy = "adamw",
                   .lr = 1e-3,
                   .betas = { betas, 2 },
                   .eps = 1e-8,
                   .weight_decay = 0.01,
                   .scheduler = "constant",
                   .warmup_steps = 0 },
        .rollout = { .temperature = 1 }
    };
    ares_metrics *metrics = ares_metrics_new();
    double exact = -1, norm = 0;
    CHECK_OK(actor_open(&a, &cfg, m, NULL, NULL, NULL, 10));
    CHECK_OK(actor_update(&a, &b, NULL, metrics));
    CHECK(ares_metrics_get(metrics, "exact/rollout_train_max_abs", &exact));
    CHECK(exact == 0);
    CHECK(ares_metrics_get(metrics, "actor/grad_norm", &norm) && norm > 0);
    *n = m->params.weights_bytes + m->params.grads_bytes + m->params.states_bytes;
    *bytes = ares_malloc(*n);
    memcpy(*bytes, m->params.weights, m->params.weights_bytes);
    memcpy(*bytes + m->params.weights_bytes, m->params.grads, m->params.grads_bytes);
    memcpy(*bytes + m->params.weights_bytes + m->params.grads_bytes, m->params.states,
           m->params.states_bytes);
    ares_metrics_free(metrics);
    actor_close(&a);
    ares_batch_fini(&b);
    ares_model_free(m);
    ares_device_close(&d);
}

TEST_BITS(an_update_does_not_depend_on_micro_batches_threads_or_recomputation)
{
    const result *x = reference_result();
    uint8_t *want, *have;
    size_t n, k;
    update_samples(x, 2, 1 << 20, false, &want, &n);
    static const struct {
        int threads;
        int64_t micro;
        bool recompute;
    } ways[] = { { 1, 1 << 20, false },
                 { 2, 1, false },
                 { 2, 300, false },
                 { 1, 200, true },
                 { 2, 1 << 20, true } };
    for (int i = 0; i < ARES_COUNT(ways); i++) {
        update_samples(x, ways[i].threads, ways[i].micro, ways[i].recompute, &have, &k);
        CHECK_EQ(n, k);
        CHECK_MEM(have, want, n);
        ares_free(have);
    }
    ares_free(want);
}

/*
 * exact/rollout_train_max_abs of an update of the samples, where log-probs of the first row (or of
 * all) are off by 1 for one of these reasons. NaN: there was nothing to compare.
 */
static double compared(int reason, bool all_rows)
{
    const result *x = reference_result();
    ares_device d;
    ares_model *m;
    ares_batch b;
    actor a;
    int32_t prompts[PROMPTS][128];
    static const double betas[] = { 0.9, 0.99 };
    setting s = usual;
    open_model(&s, &d, &m, true);
    fill(x, m->cfg.vocab, &b, prompts);
    ARES_PUT(&b, rollout_log_probs), ARES_PUT(&b, old_log_probs), ARES_PUT(&b, advantages);
    for (int row = 0; row < MAX_ROWS; row++) {
        for (int t = 0; t < x->n[row]; t++) {
            int64_t at = b.row_start[row] + t;
            b.rollout_log_probs[at] = b.old_log_probs[at] = x->log_probs[row][t];
            b.advantages[at] = (float)(row % N) - 1.5f;
            if (row && !all_rows) continue;
            if (reason == 3) b.response_mask[at] = t != 0;
            if (reason == 1) b.weight_versions[at] = ARES_NOT_SAMPLED;
            if (reason == 2) b.weight_versions[at] = 7;
            if (reason == 4) b.weight_versions[at] = t % 2 ? 7 : 0;
            if (reason == 4) b.rollout_log_probs[at] += t % 2 ? 5 : 0;
            else if (reason != 3 || t == 0) b.rollout_log_probs[at] += 1;
        }
    }
    ares_train_config cfg = {
        .data = { .max_response_length = NEW },
        .algorithm = { .adv_estimator = "grpo", .kl_penalty = "low_var_kl", .disable_kl = true },
        .loss = { .loss_type = "default",
                  .clip_ratio_low = 0.2,
                  .clip_ratio_high = 0.3,
                  .clip_ratio_dual = 3,
                  .loss_avg_mode = "token-mean",
                  ARES_LOSS_DEFAULTS },
        .actor = { .global_batch_size = 1,
                   .mini_batch_unit = "prompts",
                   .max_token_len = 300,
                   .share_prompts = true,
                   .ppo_epochs = 1,
                   .max_grad_norm = 1 },
        .optim = { .strategy = "adamw",
                   .lr = 1e-3,
                   .betas = { betas, 2 },
                   .eps = 1e-8,
                   .scheduler = "constant",
                   .warmup_steps = 0 },
        .rollout = { .temperature = 1 }
    };
    ares_metrics *metrics = ares_metrics_new();
    double exact = NAN;
    CHECK_OK(actor_open(&a, &cfg, m, NULL, NULL, NULL, 10));
    CHECK_OK(actor_update(&a, &b, NULL, metrics));
    if (!ares_metrics_get(metrics, "exact/rollout_train_max_abs", &exact)) exact = NAN;
    ares_metrics_free(metrics);
    actor_close(&a);
    ares_batch_fini(&b);
    ares_model_free(m);
    ares_device_close(&d);
    return exact;
}

TEST(only_untouched_tokens_of_the_current_weights_are_held_against_rollout)
{
    CHECK_NEAR(compared(0, false), 1, 1e-5); /* a row that should agree and does not */
    CHECK_NEAR(compared(1, false), 0, 0);    /* edited text */
    CHECK_NEAR(compared(2, false), 0, 0);    /* sampled under older weights */
    CHECK_NEAR(compared(3, false), 0, 0);    /* a token of the environment */
    CHECK_NEAR(compared(4, false), 0, 0);    /* every other token is of older weights */
    CHECK(isnan(compared(1, true)));         /* no token to compare is not a difference of 0 */
}

/*
 * Rows of which the second prompt's are current, and some of the third's, the first and the last
 * among them; what the rollout recorded of others is -99.
 */
static void check_not_current(const char *mode)
{
    const result *x = reference_result();
    ares_device d;
    ares_model *m;
    ares_batch b;
    int32_t prompts[PROMPTS][128];
    setting s = usual;
    open_model(&s, &d, &m, false);
    fill(x, m->cfg.vocab, &b, prompts);
    ARES_PUT(&b, rollout_log_probs);
    for (int row = 0; row < MAX_ROWS; row++) {
        /* the others were edited, or sampled under other weights */
        bool current = row / N == 1 || (row / N == 2 && row % N != 1);
        float *out = b.rollout_log_probs + b.row_start[row];
        int32_t *version = b.weight_versions + b.row_start[row];
        for (int t = 0; t < x->n[row]; t++) {
            /* some rows only in part, and of each the first token */
            bool kept = current || t == 0 || (row % 2 && t % 3);
            out[t] = kept ? x->log_probs[row][t] : -99;
            if (!kept) version[t] = row / N ? 3 : ARES_NOT_SAMPLED;
        }
    }
    ares_train_config cfg = { .actor = { .max_token_len = 300, .share_prompts = true },
                              .rollout = { .temperature = 1 },
                              .oversampling = { .old_log_probs = mode } };
    actor a = { .cfg = &cfg };
    CHECK_OK(learner_open(&a.learner, m, &(learner_options){ .role = "actor" }));
    CHECK_OK(actor_log_probs(&a, &b));
    for (int row = 0; row < MAX_ROWS; row++) {
        /* what was not sampled as it stands has nothing that could stand for it */
        bool stands = strcmp(mode, "stored") == 0 && row / N;
        CHECK_MEM(b.old_log_probs + b.row_start[row],
                  stands ? b.rollout_log_probs + b.row_start[row] : x->log_probs[row],
                  (size_t)x->n[row] * sizeof(float));
    }
    /* the stored ones are read by rollout_is; what was not sampled has a ratio of 1 */
    for (int64_t i = 0; i < b.tokens; i++)
        CHECK_NEAR(b.rollout_log_probs[i], b.weight_versions[i] == 3 ? -99 : b.old_log_probs[i], 0);
    actor_close(&a);
    ares_batch_fini(&b);
    ares_model_free(m);
    ares_device_close(&d);
}

TEST(old_log_probs_of_rows_that_are_not_current_are_computed_again)
{
    check_not_current("recompute");
}
TEST(old_log_probs_of_earlier_weights_stand_where_that_is_asked_for)
{
    check_not_current("stored");
}

TEST(old_log_probs_of_greedy_answers_are_computed_again)
{
    const result *x = reference_result();
    ares_device d;
    ares_model *m;
    ares_batch b;
    int32_t prompts[PROMPTS][128];
    setting s = usual;
    open_model(&s, &d, &m, false);
    fill(x, m->cfg.vocab, &b, prompts);
    ARES_PUT(&b, rollout_log_probs);
    for (int64_t i = 0; i < b.tokens; i++) b.rollout_log_probs[i] = -99;
    ares_train_config cfg = { .actor = { .max_token_len = 300, .share_prompts = true },
                              .oversampling = { .old_log_probs = "stored" } };
    actor a = { .cfg = &cfg };
    CHECK_OK(learner_open(&a.learner, m, &(learner_options){ .role = "actor" }));
    CHECK_OK(actor_log_probs(&a, &b));
    int same = 0;
    for (int64_t i = 0; i < b.tokens; i++) same += b.old_log_probs[i] == -99;
    CHECK_EQ(same, 0);
    actor_close(&a);
    ares_batch_fini(&b);
    ares_model_free(m);
    ares_device_close(&d);
}
