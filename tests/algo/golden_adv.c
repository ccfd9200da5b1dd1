/*
 * Advantages, statistics over masks, and what DAPO does between rewards and advantages. A matrix of
 * a case is rows of samples, columns of response tokens.
 */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../src/algo/adv/adv.h"
#include "../../src/algo/stats.h"
#include "ares/algo.h"

typedef struct adv_case {
    ares_batch b;
    ares_algorithm_config cfg;
    int64_t *order; /* row of the batch -> place in the case */
    int64_t rows;
} adv_case;

static void open_case(adv_case *c)
{
    *c = (adv_case){
        .cfg = { .norm_adv_by_std_in_grpo = true, .gamma = 1, .lam = 1, .high_level_gamma = 0.95 }
    };
    ares_batch_init(&c->b);
}

static bool same_value(const ares_json *a, const ares_json *b)
{
    return ares_view_eq(a->text, b->text);
}

/*
 * Rows in groups of equal uid (NULL: groups of group_size); responses of `width` tokens; numbers of
 * episodes may be NULL.
 */
static void group_rows(golden *g, adv_case *c, int64_t n, const ares_json *uid, int64_t group_size,
                       const ares_json *episodes, int64_t width)
{
    bool *taken = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *taken);
    c->order = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *c->order);
    for (int64_t i = 0; i < n; i++) {
        if (taken[i]) continue;
        ares_batch_begin_group(&c->b);
        for (int64_t j = i; j < n; j++) {
            if (uid ? !same_value(&uid->items[i], &uid->items[j])
                    : i / group_size != j / group_size)
                continue;
            int64_t episode = 0;
            for (int64_t k = 0; episodes && !episode; k++)
                if (same_value(&episodes->items[k], &episodes->items[j])) episode = k + 1;
            taken[j] = true;
            c->order[c->rows++] = j;
            ares_batch_add_row(&c->b, &(ares_sample){ .index = (int32_t)j, .episode = episode },
                               width);
        }
    }
}

/* The rewards of whole rows, on their first token. */
static void put_scores(adv_case *c, const double *score)
{
    ARES_PUT(&c->b, response_mask);
    ARES_PUT(&c->b, token_level_rewards);
    for (int64_t r = 0; r < c->b.rows; r++) {
        c->b.token_level_rewards[c->b.row_start[r]] = (float)score[c->order[r]];
        for (int64_t t = c->b.row_start[r]; t < c->b.row_start[r + 1]; t++)
            c->b.response_mask[t] = 1;
    }
}

static bool run(golden *g, adv_case *c, const char *name)
{
    const ares_adv *adv = ares_adv_find(name);
    golden_in_single(g);
    return golden_ok(g, adv ? adv->compute(&c->cfg, NULL, &c->b) : ARES_ECONFIG);
}

/* The advantage of each row's first token, in the order of the case. */
static void check_rows(golden *g, const adv_case *c, const ares_json *want)
{
    double *out = ares_arena_calloc(g->arena, (size_t)c->b.rows + 1, sizeof *out);
    for (int64_t r = 0; r < c->b.rows; r++)
        out[c->order[r]] = (double)c->b.advantages[c->b.row_start[r]];
    golden_numbers(g, "advantages", out, c->b.rows, want);
}

static void check_scores(golden *g, const char *adv, const char *scores, const ares_json *uid,
                         int64_t group_size, const ares_json *episodes, bool by_std,
                         const ares_json *want)
{
    adv_case c;
    int64_t n;
    const double *score = golden_flat(g, golden_in(g, scores), &n);
    open_case(&c);
    c.cfg.norm_adv_by_std_in_grpo = by_std;
    group_rows(g, &c, n, uid, group_size, episodes, 1);
    put_scores(&c, score);
    if (run(g, &c, adv)) check_rows(g, &c, want);
    ares_batch_fini(&c.b);
}

GOLDEN(aepo, adv_grpo)
{
    check_scores(g, "grpo", "scores", golden_in(g, "uid"), 0, NULL, true, g->expected);
}
GOLDEN(aepo, adv_grpo_passk)
{
    check_scores(g, "grpo_passk", "scores", golden_in(g, "uid"), 0, NULL, true, g->expected);
}
GOLDEN(aepo, adv_rloo)
{
    check_scores(g, "rloo", "scores", golden_in(g, "uid"), 0, NULL, true, g->expected);
}
GOLDEN(dapo, grpo_advantage)
{
    check_scores(g, "grpo", "rewards", NULL, INT64_MAX, NULL, true, g->expected);
}
GOLDEN(dapo, grpo_advantage_no_std)
{
    check_scores(g, "grpo", "rewards", NULL, INT64_MAX, NULL, false, g->expected);
}
GOLDEN(vapor, group_advantage)
{
    check_scores(g, "vapor", "rewards", NULL, INT64_MAX, NULL, true, g->expected);
}
GOLDEN(curriculum, group_normalize)
{
    check_scores(g, "grpo", "rewards", NULL, (int64_t)golden_number(g, "group_size"), NULL,
                 golden_number(g, "std_normalization") != 0, g->expected);
}
GOLDEN(agentic, grpo_advantage)
{
    check_scores(g, "grpo", "total_rewards_per_row", golden_in(g, "uid"), 0,
                 golden_in(g, "episode_ids"), golden_number(g, "norm_by_std") != 0,
                 golden_want(g, "row_advantages"));
}

/* A discarded answer is one whose mask is 0. */
GOLDEN(dapo, grpo_advantage_masked)
{
    adv_case c;
    int64_t n;
    const double *score = golden_flat(g, golden_in(g, "rewards"), &n),
                 *valid = golden_flat(g, golden_in(g, "valid"), &n);
    open_case(&c);
    group_rows(g, &c, n, NULL, INT64_MAX, NULL, 1);
    put_scores(&c, score);
    for (int64_t r = 0; r < n; r++) c.b.response_mask[r] = valid[r] != 0;
    if (run(g, &c, "grpo")) check_rows(g, &c, g->expected);
    ares_batch_fini(&c.b);
}

/* ---------------- per token: compared where the mask is 1, as the goldens ask */
static float *column(golden *g, const ares_json *v)
{
    int64_t n;
    const double *x = golden_flat(g, v, &n);
    float *f = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *f);
    for (int64_t i = 0; i < n; i++) f[i] = (float)x[i];
    return f;
}

static void open_matrix(golden *g, adv_case *c, const ares_json *mask)
{
    int64_t n;
    const double *m = golden_flat(g, mask, &n);
    open_case(c);
    group_rows(g, c, mask->count, NULL, INT64_MAX, NULL, mask->items[0].count);
    ARES_PUT(&c->b, response_mask);
    for (int64_t i = 0; i < n; i++) c->b.response_mask[i] = m[i] != 0;
}

static void check_tokens(golden *g, const char *what, const uint8_t *mask, const double *x,
                         const ares_json *want)
{
    for (int64_t r = 0, i = 0; r < want->count; r++)
        for (int64_t t = 0; t < want->items[r].count; t++, i++) {
            char label[64];
            (void)snprintf(label, sizeof label, "%s[%lld][%lld]", what, (long long)r, (long long)t);
            if (mask[i] && !golden_near(g, label, x[i], &want->items[r].items[t])) return;
        }
}

static void check_column(golden *g, const char *what, const adv_case *c, const float *x,
                         const ares_json *want)
{
    double *d = ares_arena_alloc(g->arena, (size_t)(c->b.tokens + 1) * sizeof *d);
    for (int64_t i = 0; i < c->b.tokens; i++) d[i] = (double)x[i];
    check_tokens(g, what, c->b.response_mask, d, want);
}

static void check_gae(golden *g, const char *adv, const char *rewards, const char *mask,
                      const char *advantages)
{
    adv_case c;
    open_matrix(g, &c, golden_in(g, mask));
    c.b.token_level_rewards = column(g, golden_in(g, rewards));
    if (strcmp(adv, "reinforce_plus_plus") != 0) c.b.values = column(g, golden_in(g, "values"));
    c.cfg.gamma = golden_number(g, "gamma");
    c.cfg.lam = golden_number_or(g, "lam", 1);
    if (strcmp(adv, "bi_level_gae") == 0) {
        const ares_json *ends = golden_in(g, "turn_end_positions");
        c.cfg.high_level_gamma = golden_number(g, "high_level_gamma");
        ARES_PUT(&c.b, turn_ends);
        for (int64_t r = 0; r < ends->count; r++)
            for (int64_t k = 0; k < ends->items[r].count; k++)
                c.b.turn_ends[c.b.row_start[r] + ends->items[r].items[k].integer] = 1;
    }
    if (run(g, &c, adv)) {
        check_column(g, "returns", &c, c.b.returns, golden_want(g, "returns"));
        check_column(g, "advantages", &c, c.b.advantages, golden_want(g, advantages));
    }
    ares_batch_fini(&c.b);
}

GOLDEN(aepo, adv_gae)
{
    check_gae(g, "gae", "rewards", "mask", "advantages");
}
GOLDEN(aepo, adv_reinforce_pp)
{
    check_gae(g, "reinforce_plus_plus", "rewards", "mask", "advantages");
}
GOLDEN(agentic, gae)
{
    check_gae(g, "gae", "token_level_rewards", "response_mask", "advantages_whitened");
}
GOLDEN(agentic, bi_level_gae)
{
    check_gae(g, "bi_level_gae", "token_level_rewards", "mask", "advantages_whitened");
}

GOLDEN(aepo, adv_remax)
{
    adv_case c;
    int64_t n;
    const double *score = golden_flat(g, golden_in(g, "scores"), &n),
                 *baseline = golden_flat(g, golden_in(g, "baselines"), &n);
    open_matrix(g, &c, golden_in(g, "mask"));
    ARES_PUT(&c.b, token_level_rewards);
    for (int64_t r = 0; r < n; r++) {
        c.b.token_level_rewards[c.b.row_start[r]] = (float)score[r];
        c.b.samples[r].baseline = (float)baseline[r];
    }
    if (run(g, &c, "remax")) check_column(g, "advantages", &c, c.b.advantages, g->expected);
    ares_batch_fini(&c.b);
}

/* ---------------------------------------------------------------- statistics over a mask */
typedef struct masked {
    double *x;
    uint8_t *mask;
    int64_t n;
} masked;

static masked masked_of(golden *g, const char *values)
{
    masked m;
    int64_t n;
    m.x = golden_flat(g, golden_in(g, values), &m.n);
    const double *mask = golden_flat(g, golden_in(g, "mask"), &n);
    m.mask = ares_arena_alloc(g->arena, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++) m.mask[i] = mask[i] != 0;
    return m;
}

GOLDEN(aepo, masked_mean)
{
    masked m = masked_of(g, "values");
    stats_moments s;
    if (golden_ok(g, stats_masked_moments(NULL, m.x, m.mask, m.n, &s)))
        golden_near(g, "mean", s.mean, g->expected);
}

GOLDEN(aepo, masked_var_unbiased)
{
    masked m = masked_of(g, "values");
    stats_moments s;
    if (golden_ok(g, stats_masked_moments(NULL, m.x, m.mask, m.n, &s)))
        golden_near(g, "var", s.var, g->expected);
}

GOLDEN(aepo, masked_whiten)
{
    masked m = masked_of(g, "values");
    if (golden_ok(g, stats_masked_whiten(NULL, m.x, m.mask, m.n)))
        check_tokens(g, "whitened", m.mask, m.x, g->expected);
}

/*
 * The golden computes verl's formula, whose count has an epsilon that float32 does not hold, in
 * double; the product has none (docs/update.md#whitening), and gets it here.
 */
GOLDEN(agentic, masked_whiten)
{
    masked m = masked_of(g, "values");
    stats_moments s;
    if (!golden_ok(g, stats_masked_moments(NULL, m.x, m.mask, m.n, &s)) ||
        !golden_ok(g, stats_masked_whiten(NULL, m.x, m.mask, m.n)))
        return;
    double count = s.count + 1e-8, mean = s.mean * s.count / count, moved = s.mean - mean,
           var = (s.population_var + moved * moved) * s.count / count * s.count / (s.count - 1);
    for (int64_t i = 0; i < m.n; i++)
        m.x[i] = (m.x[i] * sqrt(s.var + 1e-8) + moved) / sqrt(var + 1e-8);
    golden_near(g, "mean", mean, golden_want(g, "mean"));
    golden_near(g, "var_bessel", var, golden_want(g, "var_bessel"));
    check_tokens(g, "whitened", m.mask, m.x, golden_want(g, "whitened_all_positions"));
}

GOLDEN(dapo, masked_normalize)
{
    masked m = masked_of(g, "advantages");
    if (golden_ok(g, stats_masked_normalize(NULL, m.x, m.mask, m.n)))
        golden_numbers(g, "normalised", m.x, m.n, g->expected);
}

GOLDEN(dapo, importance_sampling_fix)
{
    adv_case c;
    open_case(&c);
    group_rows(g, &c, 1, NULL, 1, NULL, 1);
    ARES_PUT(&c.b, response_mask), ARES_PUT(&c.b, advantages), ARES_PUT(&c.b, old_log_probs),
        ARES_PUT(&c.b, rollout_log_probs);
    c.b.response_mask[0] = 1;
    c.b.advantages[0] = (float)golden_number(g, "advantage");
    c.b.old_log_probs[0] = (float)golden_number(g, "recomputed_logprob");
    c.b.rollout_log_probs[0] = (float)golden_number(g, "rollout_logprob");
    golden_in_single(g);
    if (golden_ok(g, adv_importance_fix(&c.b, golden_number(g, "clip"))))
        golden_near(g, "advantage", (double)c.b.advantages[0], g->expected);
    ares_batch_fini(&c.b);
}
