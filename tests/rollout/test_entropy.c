/*
 * The entropies of entropy_top_k (the option topk_tail) and the most likely tokens against the
 * model's logits; recording them changes nothing else of a sample. Seen to fail without the drawn
 * token's own share, and with log-probs at the sampling temperature.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ares/algo.h"
#include "ares/rollout.h"
#include "test.h"

static ares_device device;
static ares_model *model;
static const int32_t prompt[] = { 5, 9, 3, 14 };
enum { P = 4, N = 6, TOKENS = 20 };

static bool open_model(void)
{
    ares_model_options opt = { .storage = ARES_F32 };
    return CHECK_OK(ares_device_open("cpu", 2, &device)) &&
           CHECK_OK(ares_model_load(test_source("tests/golden/models/qwen2_tied"), &device, &opt,
                                    &model));
}

static void close_model(void)
{
    ares_model_free(model);
    ares_device_close(&device);
}

static ares_rollout *sample(int32_t top_k, bool most_likely, int32_t seqs, float temperature,
                            ares_completion out[N])
{
    ares_rollout_options opt = { .cache_tokens = 2048,
                                 .max_num_seqs = seqs,
                                 .max_num_batched_tokens = 64,
                                 .max_model_len = 128,
                                 .entropy_top_k = top_k,
                                 .most_likely = most_likely };
    ares_sampling s = {
        .temperature = temperature, .top_p = 1, .max_new_tokens = TOKENS, .ignore_eos = true
    };
    ares_rollout *r;
    int64_t active = 1;
    ares_completion c;
    if (!CHECK_OK(ares_rollout_new(model, NULL, &opt, &r))) return NULL;
    CHECK_OK(ares_rollout_add(r,
                              &(ares_request){ .prompt = prompt,
                                               .prompt_len = P,
                                               .n = N,
                                               .sampling = s,
                                               .key = ares_rng_root(3, ARES_RNG_SAMPLE) },
                              NULL));
    while (active && CHECK_OK(ares_rollout_step(r, &active)))
        while (ares_rollout_next(r, &c)) out[c.index] = c;
    return r;
}

/* log_probs [TOKENS][vocab] in f64 of the distributions a sample was drawn from, temperature 1. */
static double *distributions(const ares_completion *c)
{
    int32_t ids[P + TOKENS], positions[P + TOKENS], start[2] = { 0, P + c->n_tokens }, rows[TOKENS],
                                                    vocab = model->cfg.vocab;
    for (int32_t i = 0; i < P + c->n_tokens; i++) {
        ids[i] = i < P ? prompt[i] : c->ids[i - P];
        positions[i] = i;
    }
    for (int32_t i = 0; i < c->n_tokens; i++) rows[i] = P + i - 1;
    ares_packed p = { .rows = start[1],
                      .ids = ids,
                      .positions = positions,
                      .seg = { .n = 1, .rows = start[1], .start = start },
                      .n_out = c->n_tokens,
                      .out_rows = rows };
    double *out = ares_calloc((size_t)(TOKENS * vocab), sizeof *out);
    float *z = ares_calloc((size_t)(TOKENS * vocab), sizeof *z);
    void *hidden;
    ares_workspace *w;
    if (CHECK_OK(ares_workspace_new(model, ARES_KEEP_NOTHING, &w)) &&
        CHECK_OK(ares_model_forward(model, w, &p, &hidden))) {
        ares_linear_args a = { .m = c->n_tokens,
                               .x = hidden,
                               .ldx = model->cfg.hidden,
                               .w = ares_model_head(model),
                               .y = z,
                               .ldy = vocab };
        device.k->linear(&device, &a, 1);
        for (int32_t t = 0; t < c->n_tokens; t++) {
            double max = -INFINITY, sum = 0;
            for (int32_t v = 0; v < vocab; v++) max = fmax(max, (double)z[t * vocab + v]);
            for (int32_t v = 0; v < vocab; v++) sum += exp((double)z[t * vocab + v] - max);
            for (int32_t v = 0; v < vocab; v++)
                out[t * vocab + v] = (double)z[t * vocab + v] - max - log(sum);
        }
    }
    ares_workspace_free(w);
    ares_free(z);
    return out;
}

typedef struct entry {
    double log_prob;
    int32_t token;
} entry;
static int by_log_prob(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->log_prob != y->log_prob ? (x->log_prob < y->log_prob) - (x->log_prob > y->log_prob)
                                      : x->token - y->token;
}

TEST(entropies_of_topk_tail_are_those_of_the_models_own_likeliest_tokens)
{
    static const struct {
        int32_t k;
        float temperature;
    } cases[] = { { 10, 1 }, { 3, 1.5f }, { 1, 0.6f }, { 10, 0 }, { 64, 2 } };
    if (!open_model()) return;
    int32_t vocab = model->cfg.vocab;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        int32_t k = cases[i].k, added = 0, among = 0, below = 0;
        ares_completion c[N];
        ares_rollout *r = sample(k, true, 8, cases[i].temperature, c);
        for (int s = 0; s < N; s++) {
            double *p = distributions(&c[s]);
            for (int32_t t = 0; t < c[s].n_tokens; t++) {
                entry *e = ares_calloc((size_t)vocab, sizeof *e);
                double candidates[65], exact = 0;
                int64_t n = 0;
                bool drawn = false;
                for (int32_t v = 0; v < vocab; v++) {
                    e[v] = (entry){ p[t * vocab + v], v };
                    exact -= exp(e[v].log_prob) * e[v].log_prob;
                }
                qsort(e, (size_t)vocab, sizeof *e, by_log_prob);
                for (int32_t j = 0; j < ARES_MIN(k, vocab); j++) {
                    candidates[n++] = e[j].log_prob;
                    drawn |= e[j].token == c[s].ids[t];
                }
                if (!drawn) candidates[n++] = p[t * vocab + c[s].ids[t]];
                *(drawn ? &among : &added) += 1;
                double want = ares_entropy_top_k(candidates, n, true);
                CHECK_NEAR(c[s].entropies_1[t], want, 2e-5);
                below += (double)c[s].entropies_1[t] < exact - 1e-3;
                CHECK((double)c[s].entropies_1[t] < exact + 2e-5);
                CHECK_EQ(c[s].most_likely[t], e[0].token);
                ares_free(e);
            }
            ares_free(p);
        }
        CHECK(among > 0);
        CHECK(below > 0 || k >= vocab - 1);
        if (k < 10) CHECK(added > 0); /* both cases occurred */
        ares_rollout_free(r);
    }
    close_model();
}

TEST(what_is_recorded_beside_a_sample_changes_nothing_of_it)
{
    if (!open_model()) return;
    ares_completion exact[N], tail[N], alone[N];
    ares_rollout *a = sample(0, false, 8, 1.5f, exact), *b = sample(10, true, 8, 1.5f, tail),
                 *c = sample(10, true, 1, 1.5f, alone);
    for (int s = 0; s < N; s++) {
        size_t bytes = (size_t)exact[s].n_tokens * 4;
        CHECK_MEM(tail[s].ids, exact[s].ids, bytes);
        CHECK_MEM(tail[s].log_probs, exact[s].log_probs, bytes);
        /* at the sampling temperature they stay exact */
        CHECK_MEM(tail[s].entropies, exact[s].entropies, bytes);
        CHECK_MEM(tail[s].log_probs_1, exact[s].log_probs_1, bytes);
        CHECK(memcmp(tail[s].entropies_1, exact[s].entropies_1, bytes) != 0);
        CHECK(!exact[s].most_likely);
        CHECK_MEM(alone[s].entropies_1, tail[s].entropies_1, bytes); /* whoever runs beside it */
        CHECK_MEM(alone[s].most_likely, tail[s].most_likely, bytes);
    }
    ares_rollout_free(a);
    ares_rollout_free(b);
    ares_rollout_free(c);
    close_model();
}

TEST(a_number_of_tokens_out_of_range_is_refused)
{
    if (!open_model()) return;
    ares_rollout *r;
    for (int32_t k = -1; k <= ARES_LIKELY_MAX + 1; k += ARES_LIKELY_MAX + 2) {
        ares_rollout_options opt = { .cache_tokens = 2048,
                                     .max_num_seqs = 1,
                                     .max_num_batched_tokens = 64,
                                     .max_model_len = 128,
                                     .entropy_top_k = k };
        CHECK_FAIL(ares_rollout_new(model, NULL, &opt, &r), ARES_ECONFIG, "must lie in [0, 64]");
    }
    close_model();
}
