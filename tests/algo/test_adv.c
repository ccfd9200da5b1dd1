/*
 * Every estimator against a plain second writing of its formula over padded matrices, and what must
 * not change: the order of rows and groups, the number of ranks.
 */
#include "test.h"

#include <math.h>

#include "algo_test.h"
#include "ares/algo_loss.h"

enum { G = 4, N = 5, R = G * N, T = 7 };

static const ares_algorithm_config defaults = { .norm_adv_by_std_in_grpo = true,
                                                .gamma = 0.9,
                                                .lam = 0.8,
                                                .high_level_gamma = 0.7,
                                                .importance_sampling_clip = 2 };

/*
 * Rows of up to T tokens: row r of the case is the order[r]-th added; groups [first, end). Masks
 * with gaps, rewards and values everywhere.
 */
static void random_batch(ares_batch *b, const int64_t *order, int first, int end)
{
    ares_rng_key key = ares_rng_root(11, ARES_RNG_TEST);
    ares_batch_init(b);
    for (int g = first; g < end; g++) {
        ares_batch_begin_group(b);
        for (int i = 0; i < N; i++) {
            int64_t r = order[g * N + i];
            ares_batch_add_row(
                b,
                &(ares_sample){ .draw = r,
                                .baseline = (float)ares_rng_normal(key, 5000 + (uint64_t)r) },
                1 + r * 5 % T);
        }
    }
    ARES_PUT(b, response_mask), ARES_PUT(b, token_level_rewards), ARES_PUT(b, values),
        ARES_PUT(b, turn_ends), ARES_PUT(b, old_log_probs), ARES_PUT(b, sum_pi_squared);
    for (int64_t r = 0; r < b->rows; r++) {
        uint64_t at = (uint64_t)b->samples[r].draw * T;
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++, at++) {
            b->response_mask[t] = t == b->row_start[r] || ares_rng_uniform(key, at) < 0.7;
            b->token_level_rewards[t] =
                b->samples[r].draw % 3 ? (float)ares_rng_normal(key, 1000 + at) : 0;
            b->values[t] = (float)ares_rng_normal(key, 2000 + at);
            b->turn_ends[t] = b->response_mask[t] && ares_rng_uniform(key, 3000 + at) < 0.4;
            b->old_log_probs[t] = -(float)ares_rng_uniform(key, 4000 + at);
            b->sum_pi_squared[t] = (float)exp(2 * (double)b->old_log_probs[t]);
        }
    }
}

static const int64_t *identity(void)
{
    static int64_t order[R];
    for (int i = 0; i < R; i++) order[i] = i;
    return order;
}

static int compute(const char *name, const ares_algorithm_config *cfg, ares_world *w, ares_batch *b)
{
    const ares_adv *adv = ares_adv_find(name);
    return adv ? adv->compute(cfg, w, b) : ARES_ECONFIG;
}

/* ---------------------------------------------------------------- the second writing */
static double score_of(const ares_batch *b, int64_t r)
{
    double s = 0;
    for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++)
        s += (double)b->token_level_rewards[t];
    return s;
}

static double tokens_of(const ares_batch *b, int64_t r)
{
    double n = 0;
    for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) n += b->response_mask[t];
    return n;
}

static void whiten(const ares_batch *b, double *a)
{
    double n = 0, sum = 0, square = 0;
    for (int64_t t = 0; t < b->tokens; t++)
        n += b->response_mask[t], sum += b->response_mask[t] * a[t];
    for (int64_t t = 0; t < b->tokens; t++) square += b->response_mask[t] * pow(a[t] - sum / n, 2);
    for (int64_t t = 0; t < b->tokens; t++) a[t] = (a[t] - sum / n) / sqrt(square / (n - 1) + 1e-8);
}

static double outcome(const char *name, const ares_batch *b, int64_t r)
{
    int64_t g = r / N;
    double n = N, mean = 0, square = 0, weighted = 0, lengths = 0, best = -INFINITY,
           second = -INFINITY, nonzero = 0;
    for (int64_t i = g * N; i < (g + 1) * N; i++) {
        double s = score_of(b, i), l = tokens_of(b, i);
        mean += s / n, weighted += s * l, lengths += l;
        second = s > best ? best : fmax(second, s);
        best = fmax(best, s);
    }
    for (int64_t i = g * N; i < (g + 1) * N; i++) square += pow(score_of(b, i) - mean, 2);
    for (int64_t i = 0; i < R; i++) nonzero += score_of(b, i) != 0;
    double s = score_of(b, r), std = sqrt(square / (n - 1));
    if (strcmp(name, "grpo") == 0) return (s - mean) / (std + 1e-6);
    if (strcmp(name, "grpo_passk") == 0) return s == best ? (best - second) / (std + 1e-6) : 0;
    if (strcmp(name, "rloo") == 0) return s - (n * mean - s) / (n - 1);
    if (strcmp(name, "opo") == 0) return s - weighted / lengths;
    if (strcmp(name, "gpg") == 0) return R / nonzero * (s - mean);
    if (strcmp(name, "remax") == 0) return s - (double)b->samples[r].baseline;
    return s - mean; /* vapor, reinforce_plus_plus_baseline before it is whitened */
}

/*
 * delta-form sums instead of recursions: A_t = sum over later policy tokens of (gamma lam)^k delta.
 */
static void gae_of(const ares_batch *b, const double *reward, bool bi_level,
                   const ares_algorithm_config *cfg, double *a)
{
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
            double weight = 1;
            a[t] = 0;
            if (!b->response_mask[t]) continue;
            for (int64_t u = t; u < b->row_start[r + 1];) {
                int64_t next = u + 1;
                while (next < b->row_start[r + 1] && !b->response_mask[next]) next++;
                bool last = next == b->row_start[r + 1] || (bi_level && b->turn_ends[u]);
                a[t] += weight * (reward[u] + (last ? 0 : cfg->gamma * (double)b->values[next]) -
                                  (double)b->values[u]);
                weight *= cfg->gamma * cfg->lam;
                if (last) break;
                u = next;
            }
        }
}

static void turns_of(const ares_batch *b, const ares_algorithm_config *cfg, double *reward)
{
    for (int64_t r = 0; r < b->rows; r++) {
        double a[T], weight;
        int64_t end[T], n = 0;
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++)
            if (b->turn_ends[t]) end[n++] = t;
        for (int64_t i = 0; i < n; i++) {
            a[i] = 0, weight = 1;
            for (int64_t j = i; j < n; j++, weight *= cfg->high_level_gamma * cfg->lam)
                a[i] += weight *
                        (reward[end[j]] +
                         (j + 1 < n ? cfg->high_level_gamma * (double)b->values[end[j + 1]] : 0) -
                         (double)b->values[end[j]]);
        }
        for (int64_t i = 0; i < n; i++) reward[end[i]] = a[i] + (double)b->values[end[i]];
    }
}

/* verl's formula as it stands, one place of one row at a time */
static double of_token_baseline(const ares_batch *b, int64_t r, int64_t place)
{
    double above = 0, below = 1e-8, own = 0;
    for (int64_t i = r / N * N; i < r / N * N + N; i++) {
        int64_t at = b->row_start[i] + place;
        double later = 0, energy = 0;
        if (at >= b->row_start[i + 1] || !b->response_mask[at]) continue;
        for (int64_t t = b->row_start[i]; t < b->row_start[i + 1]; t++) {
            if (!b->response_mask[t]) continue;
            if (t >= at) later += (double)b->token_level_rewards[t];
            if (t <= at)
                energy += 1 - 2 * exp((double)b->old_log_probs[t]) + (double)b->sum_pi_squared[t];
        }
        above += later * energy, below += energy;
        if (i == r) own = later;
    }
    return own - above / below;
}

static void expected_of(const char *name, const ares_batch *b, const ares_algorithm_config *cfg,
                        double *a)
{
    double reward[R * T];
    for (int64_t t = 0; t < b->tokens; t++) reward[t] = (double)b->token_level_rewards[t];
    bool bi_level = strcmp(name, "bi_level_gae") == 0;
    if (bi_level) turns_of(b, cfg, reward);
    if (bi_level || strcmp(name, "gae") == 0) gae_of(b, reward, bi_level, cfg, a);
    else if (strcmp(name, "reinforce_plus_plus") == 0)
        for (int64_t r = 0; r < b->rows; r++)
            for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
                double weight = 1;
                a[t] = reward[t];
                for (int64_t u = t + 1; u < b->row_start[r + 1] && b->response_mask[u]; u++)
                    a[t] += (weight *= cfg->gamma) * reward[u];
            }
    else
        for (int64_t r = 0; r < b->rows; r++)
            for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++)
                a[t] = strcmp(name, "optimal_token_baseline") == 0
                           ? of_token_baseline(b, r, t - b->row_start[r])
                           : outcome(name, b, r);
    if (strstr(name, "gae") || strncmp(name, "reinforce", 9) == 0) whiten(b, a);
}

TEST(every_estimator_is_its_formula)
{
    int n;
    const char *const *names = ares_adv_names(&n);
    for (int i = 0; i < n; i++) {
        ares_batch b;
        double a[R * T];
        random_batch(&b, identity(), 0, G);
        expected_of(names[i], &b, &defaults, a);
        if (CHECK_OK(compute(names[i], &defaults, NULL, &b)))
            for (int64_t t = 0; t < b.tokens; t++) {
                double want = b.response_mask[t] ? a[t] : 0;
                if (!CHECK_MSG(fabs((double)b.advantages[t] - want) <= 3e-7 * fmax(1, fabs(want)),
                               "%s, token %lld: %.9g, expected %.9g", names[i], (long long)t,
                               (double)b.advantages[t], want))
                    break;
                if (!CHECK(b.response_mask[t] || b.returns[t] == 0)) break;
            }
        ares_batch_fini(&b);
    }
}

/* One number for every token's credit: AdamW would make a whole step of any remainder. */
TEST(equal_scores_give_every_estimator_exactly_0_whatever_is_done_to_its_advantages)
{
    static const float scores[] = { -1, 0.1F, 3 };
    int n;
    const char *const *names = ares_adv_names(&n);
    ares_algorithm_config cfg = defaults;
    cfg.gamma = cfg.lam = cfg.high_level_gamma = 1;
    for (int i = 0; i < n * 2 * ARES_COUNT(scores); i++) {
        ares_batch b;
        int64_t changed = 0;
        float score = scores[i / 2 % ARES_COUNT(scores)];
        const char *name = names[i / 2 / ARES_COUNT(scores)];
        cfg.normalize_advantages = i % 2;
        cfg.soft_advantage_reweight = cfg.grpo_advantage_length_weight = i % 2;
        random_batch(&b, identity(), 0, G);
        for (int64_t r = 0; r < b.rows; r++) {
            int64_t last = b.row_start[r + 1] - 1;
            for (int64_t t = b.row_start[r]; t <= last; t++) {
                b.response_mask[t] = 1;
                b.turn_ends[t] = t == last;
                b.values[t] = 0;
                b.token_level_rewards[t] = t == last ? score : 0;
            }
            b.samples[r].baseline = score;
        }
        if (CHECK_OK(compute(name, &cfg, NULL, &b))) {
            for (int64_t t = 0; t < b.tokens; t++) changed += b.advantages[t] != 0;
            CHECK_MSG(changed == 0, "%s, score %g: %lld advantages are not 0", name, (double)score,
                      (long long)changed);
        }
        ares_batch_fini(&b);
    }
}

TEST(the_order_of_rows_and_groups_changes_no_bit)
{
    int n;
    const char *const *names = ares_adv_names(&n);
    ares_algorithm_config cfg = defaults;
    cfg.soft_advantage_reweight = cfg.grpo_advantage_length_weight = cfg.normalize_advantages =
        true;
    for (int i = 0; i < n; i++) {
        ares_batch b, c;
        random_batch(&b, identity(), 0, G);
        REQUIRE_OK(compute(names[i], &cfg, NULL, &b));
        for (uint64_t k = 0; k < 10; k++) {
            ares_rng_key key = ares_rng_sub(ares_rng_root(12, ARES_RNG_TEST), k, 0);
            int64_t groups[G], order[R];
            for (int g = 0; g < G; g++) groups[g] = g;
            ares_rng_shuffle(key, groups, G);
            for (int g = 0; g < G; g++) {
                for (int r = 0; r < N; r++) order[g * N + r] = groups[g] * N + r;
                ares_rng_shuffle(ares_rng_sub(key, 1, (uint64_t)g), order + g * N, N);
            }
            random_batch(&c, order, 0, G);
            REQUIRE_OK(compute(names[i], &cfg, NULL, &c));
            for (int64_t r = 0; r < R; r++) {
                int64_t from = b.row_start[order[r]], to = c.row_start[r];
                if (!CHECK_MEM(c.advantages + to, b.advantages + from,
                               (size_t)(c.row_start[r + 1] - to) * sizeof(float)))
                    break;
            }
            ares_batch_fini(&c);
        }
        ares_batch_fini(&b);
    }
}

TEST_MPI(two_ranks_give_the_bits_of_one)
{
    if (!test_as_ranks(2, "two_ranks_give_the_bits_of_one")) return;
    ares_world *w = NULL;
    REQUIRE_OK(ares_world_open(&w));
    /* three groups, and one */
    int n, rank = ares_world_rank(w), first = rank * 3, end = rank ? G : 3;
    const char *const *names = ares_adv_names(&n);
    ares_algorithm_config cfg = defaults;
    cfg.soft_advantage_reweight = cfg.grpo_advantage_length_weight = cfg.normalize_advantages =
        true;
    for (int i = 0; i < n; i++) {
        ares_batch all, mine;
        random_batch(&all, identity(), 0, G);
        random_batch(&mine, identity(), first, end);
        CHECK_OK(compute(names[i], &cfg, NULL, &all));
        CHECK_OK(compute(names[i], &cfg, w, &mine));
        CHECK_MEM(mine.advantages, all.advantages + all.row_start[first * N],
                  (size_t)mine.tokens * sizeof(float));
        ares_batch_fini(&all);
        ares_batch_fini(&mine);
    }
    ares_world_close(w);
}

/* ---------------------------------------------------------------- bad input */
TEST(bad_columns_are_named_with_row_and_token)
{
    int n;
    const char *const *names = ares_adv_names(&n);
    for (int i = 0; i < n; i++) {
        ares_batch b;
        random_batch(&b, identity(), 0, G);
        int64_t t = b.row_start[7] + 0;
        b.response_mask[t] = 7;
        CHECK_FAIL(compute(names[i], &defaults, NULL, &b), ARES_EFORMAT,
                   "row 7, token 0: response_mask = 7: neither 0 nor 1");
        b.response_mask[t] = 1;
        b.token_level_rewards[t] = INFINITY;
        CHECK_FAIL(compute(names[i], &defaults, NULL, &b), ARES_ENUMERIC,
                   "row 7, token 0: token_level_rewards = inf");
        b.token_level_rewards[t] = 0;
        b.row_start[b.rows]++;
        CHECK_FAIL(compute(names[i], &defaults, NULL, &b), ARES_ESTATE, "tokens");
        b.row_start[b.rows]--;
        b.group_start[2] = b.group_start[1];
        CHECK_FAIL(compute(names[i], &defaults, NULL, &b), ARES_ESTATE, "group 1 has no row");
        ares_batch_fini(&b);
    }
}

TEST(values_baselines_and_turn_ends_are_checked_where_they_are_read)
{
    ares_batch b;
    random_batch(&b, identity(), 0, G);
    b.values[b.row_start[2]] = NAN;
    CHECK_FAIL(compute("gae", &defaults, NULL, &b), ARES_ENUMERIC,
               "adv: gae: row 2, token 0: values = nan");
    b.values[b.row_start[2]] = 0;
    b.samples[3].baseline = -INFINITY;
    CHECK_FAIL(compute("remax", &defaults, NULL, &b), ARES_ENUMERIC,
               "adv: remax: row 3: baseline = -inf");
    b.response_mask[b.row_start[1]] = 0;
    b.turn_ends[b.row_start[1]] = 1;
    CHECK_FAIL(compute("bi_level_gae", &defaults, NULL, &b), ARES_EFORMAT,
               "row 1, token 0: turn_ends = 1 where response_mask = 0");
    b.values = NULL;
    CHECK_FAIL(compute("gae", &defaults, NULL, &b), ARES_ESTATE,
               "adv: gae: needs column 'values', which stage 'values' makes");
    ares_batch_fini(&b);
}

/*
 * Zero-length rows, rows the mask hides, a batch without any token, and a batch without a row:
 * zeros, and no NaN.
 */
TEST(rows_without_tokens_get_nothing_and_spoil_nothing)
{
    int n;
    const char *const *names = ares_adv_names(&n);
    for (int i = 0; i < n; i++)
        for (int hidden = 0; hidden < 2; hidden++) {
            ares_batch b;
            make_batch(&b, 2, 3, (const int64_t[]){ 2, 0, 3 }, 3);
            ARES_PUT(&b, token_level_rewards), ARES_PUT(&b, values);
            ARES_PUT(&b, old_log_probs), ARES_PUT(&b, sum_pi_squared);
            b.token_level_rewards[0] = 1;
            for (int64_t t = 0; hidden && t < b.tokens; t++) b.response_mask[t] = 0;
            if (CHECK_OK(compute(names[i], &defaults, NULL, &b)))
                for (int64_t t = 0; t < b.tokens; t++)
                    CHECK(isfinite(b.advantages[t]) && (!hidden || b.advantages[t] == 0));
            ares_batch_fini(&b);
            ares_batch_init(&b);
            ARES_PUT(&b, response_mask), ARES_PUT(&b, token_level_rewards), ARES_PUT(&b, values);
            ARES_PUT(&b, old_log_probs), ARES_PUT(&b, sum_pi_squared);
            CHECK_OK(compute(names[i], &defaults, NULL, &b));
            ares_batch_fini(&b);
        }
}

TEST(a_discarded_answer_is_left_out_of_its_groups_statistics)
{
    ares_batch b;
    make_batch(&b, 2, 3, (const int64_t[]){ 1 }, 1);
    put_scores(&b, (const float[]){ 1, 0, 9, 1, 9, 9 });
    b.response_mask[2] = b.response_mask[4] = b.response_mask[5] = 0;
    REQUIRE_OK(compute("rloo", &defaults, NULL, &b));
    /* one answer left of three: nothing to compare */
    const float expected[] = { 1, -1, 0, 0, 0, 0 };
    CHECK_MEM(b.advantages, expected, sizeof expected);
    ares_batch_fini(&b);
}

/*
 * As in verl: its score is compared, its tokens are not trained on. Scores 2 (rejected), 0 and 1:
 * leave-one-out, the mean by the lengths that are left (0, 1, 1), and the mean times 3 / 2.
 */
TEST(an_answer_that_rollout_rs_rejects_keeps_its_part_in_its_group)
{
    static const struct {
        const char *name;
        double second, third;
    } all[] = { { "rloo", -1.5, 0 }, { "opo", -0.5, 0.5 }, { "gpg", -1.5, 0 } };
    for (int i = 0; i < ARES_COUNT(all); i++) {
        ares_batch b;
        make_batch(&b, 1, 3, (const int64_t[]){ 1 }, 1);
        put_scores(&b, (const float[]){ 2, 0, 1 });
        ARES_PUT(&b, kept_mask);
        b.response_mask[0] = 0;
        memset(b.kept_mask, 1, 3); /* the mask of before */
        REQUIRE_OK(compute(all[i].name, &defaults, NULL, &b));
        CHECK_NEAR(b.advantages[0], 0, 0);
        CHECK_NEAR(b.advantages[1], all[i].second, 1e-6);
        CHECK_NEAR(b.advantages[2], all[i].third, 1e-6);
        ares_rollout_restore(&b);
        CHECK(b.response_mask[0] == 1 && b.kept_mask[0] == 0);
        ares_batch_fini(&b);
    }
}

enum { UNSEEN_LEN = 3 };

/* A row of which no token counts, with numbers that would show wherever they were counted. */
static void add_discarded(ares_batch *b)
{
    ares_batch_add_row(b, &(ares_sample){ .draw = -1, .baseline = 70 }, UNSEEN_LEN);
}

static void spoil_discarded(ares_batch *b, int64_t r)
{
    for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
        b->response_mask[t] = 0;
        b->token_level_rewards[t] = 50;
        b->values[t] = -20;
        b->turn_ends[t] = 0;
        b->old_log_probs[t] = -1;
        b->sum_pi_squared[t] = 0.5F;
        b->rollout_log_probs[t] = -9;
    }
}

static void copy_row(ares_batch *to, int64_t r, const ares_batch *from, int64_t of)
{
    size_t n = (size_t)(to->row_start[r + 1] - to->row_start[r]);
    int64_t a = to->row_start[r], b = from->row_start[of];
    memcpy(to->response_mask + a, from->response_mask + b, n);
    memcpy(to->token_level_rewards + a, from->token_level_rewards + b, n * sizeof(float));
    memcpy(to->values + a, from->values + b, n * sizeof(float));
    memcpy(to->turn_ends + a, from->turn_ends + b, n);
    memcpy(to->old_log_probs + a, from->old_log_probs + b, n * sizeof(float));
    memcpy(to->sum_pi_squared + a, from->sum_pi_squared + b, n * sizeof(float));
    memcpy(to->rollout_log_probs + a, from->rollout_log_probs + b, n * sizeof(float));
}

static void put_log_probs(ares_batch *b)
{
    ares_rng_key key = ares_rng_root(13, ARES_RNG_TEST);
    ARES_PUT(b, rollout_log_probs);
    for (int64_t t = 0; t < b->tokens; t++) {
        b->old_log_probs[t] = -(float)ares_rng_uniform(key, (uint64_t)t);
        b->rollout_log_probs[t] = -(float)ares_rng_uniform(key, 9000 + (uint64_t)t);
    }
}

/* The batch with one discarded answer more in the middle, before or behind each group, and a group
 * of them. from[r]: which row it is in the batch; -1: a discarded one. */
static void with_discarded(ares_batch *c, const ares_batch *b, int64_t *from)
{
    ares_batch_init(c);
    for (int g = 0; g <= G; g++) {
        ares_batch_begin_group(c);
        for (int i = 0; i <= N; i++) {
            if (g == G || i == g * 2 % (N + 1)) {
                from[c->rows] = -1;
                add_discarded(c);
            }
            if (g == G || i == N) continue;
            int64_t r = g * N + i;
            from[c->rows] = r;
            ares_batch_add_row(c, &b->samples[r], b->row_start[r + 1] - b->row_start[r]);
        }
    }
    ARES_PUT(c, response_mask), ARES_PUT(c, token_level_rewards), ARES_PUT(c, values),
        ARES_PUT(c, turn_ends), ARES_PUT(c, old_log_probs), ARES_PUT(c, rollout_log_probs),
        ARES_PUT(c, sum_pi_squared);
    for (int64_t r = 0; r < c->rows; r++)
        if (from[r] < 0) spoil_discarded(c, r);
        else copy_row(c, r, b, from[r]);
}

TEST(discarded_answers_change_no_bit_of_any_estimator_whatever_is_done_to_its_advantages)
{
    int n;
    const char *const *names = ares_adv_names(&n);
    for (int i = 0; i < n * 3; i++) {
        const char *name = names[i / 3];
        int64_t from[2 * (R + N)];
        ares_batch b, c;
        ares_algorithm_config cfg = defaults;
        cfg.normalize_advantages = i % 3 == 1;
        cfg.importance_sampling_fix = i % 3 == 2;
        cfg.soft_advantage_reweight = cfg.grpo_advantage_length_weight = i % 3 > 0;
        random_batch(&b, identity(), 0, G);
        put_log_probs(&b);
        with_discarded(&c, &b, from);
        if (CHECK_OK(compute(name, &cfg, NULL, &b)) && CHECK_OK(compute(name, &cfg, NULL, &c)))
            for (int64_t r = 0; r < c.rows; r++) {
                int64_t at = c.row_start[r];
                size_t bytes = (size_t)(c.row_start[r + 1] - at) * sizeof(float);
                static const float none[UNSEEN_LEN];
                bool same = from[r] < 0 ? CHECK_MEM(c.advantages + at, none, bytes)
                                        : CHECK_MEM(c.advantages + at,
                                                    b.advantages + b.row_start[from[r]], bytes) &&
                                              CHECK_MEM(c.returns + at,
                                                        b.returns + b.row_start[from[r]], bytes);
                if (!CHECK_MSG(same, "%s, options %d, row %lld", name, i % 3, (long long)r)) break;
            }
        ares_batch_fini(&b);
        ares_batch_fini(&c);
    }
}

TEST(turns_of_an_episode_count_once)
{
    ares_batch b;
    make_batch(&b, 1, 4, (const int64_t[]){ 1 }, 1);
    b.samples[0].episode = b.samples[1].episode = 5;
    put_scores(&b, (const float[]){ 2, 2, 1, 0 });
    REQUIRE_OK(compute("vapor", &defaults, NULL, &b));
    const float expected[] = { 1, 1, 0, -1 };
    CHECK_MEM(b.advantages, expected, sizeof expected);
    ares_batch_fini(&b);
}

/* Turns of 1 and 3 tokens, and an answer of 2, weigh 4 to 2 in the baseline of opo. */
TEST(an_episode_is_as_long_as_all_of_its_turns)
{
    ares_batch b;
    make_batch(&b, 1, 3, (const int64_t[]){ 1, 3, 2 }, 3);
    b.samples[0].episode = b.samples[1].episode = 5;
    ARES_PUT(&b, token_level_rewards), ARES_PUT(&b, values);
    for (int64_t r = 0; r < 2; r++) b.token_level_rewards[b.row_start[r]] = 1.5F;
    REQUIRE_OK(compute("opo", &defaults, NULL, &b));
    for (int64_t t = 0; t < b.tokens; t++)
        CHECK_NEAR(b.advantages[t], t < b.row_start[2] ? 0.5 : -1, 1e-7);
    ares_batch_fini(&b);
}

TEST(an_episode_whose_first_turns_are_masked_counts_once)
{
    ares_batch b;
    make_batch(&b, 1, 6, (const int64_t[]){ 1 }, 1);
    for (int i = 0; i < 4; i++) b.samples[i].episode = 5;
    put_scores(&b, (const float[]){ 2, 2, 2, 2, 1, 0 });
    b.response_mask[0] = b.response_mask[2] = 0;
    REQUIRE_OK(compute("vapor", &defaults, NULL, &b));
    const float expected[] = { 0, 1, 0, 1, 0, -1 };
    CHECK_MEM(b.advantages, expected, sizeof expected);
    ares_batch_fini(&b);
}

TEST(an_episode_that_is_its_whole_group_is_compared_with_0_though_a_turn_is_masked)
{
    ares_batch b;
    make_batch(&b, 1, 3, (const int64_t[]){ 1 }, 1);
    for (int i = 0; i < 3; i++) b.samples[i].episode = 5;
    put_scores(&b, (const float[]){ 2, 2, 2 });
    b.response_mask[0] = 0;
    REQUIRE_OK(compute("grpo", &defaults, NULL, &b));
    CHECK(b.advantages[0] == 0);
    for (int i = 1; i < 3; i++) CHECK_NEAR(b.advantages[i], 2 / (1 + 1e-6), 1e-6);
    ares_batch_fini(&b);
}

TEST(advantages_are_zeroed_and_corrected_where_options_ask)
{
    ares_batch b;
    ares_algorithm_config cfg = defaults;
    cfg.importance_sampling_fix = true;
    make_batch(&b, 1, 2, (const int64_t[]){ 1 }, 1);
    put_scores(&b, (const float[]){ 1, 0 });
    CHECK_FAIL(compute("vapor", &cfg, NULL, &b), ARES_ESTATE,
               "importance_sampling_fix: needs column 'old_log_probs'");
    ares_batch_fini(&b);
    make_batch(&b, 1, 2, (const int64_t[]){ 1 }, 1);
    put_scores(&b, (const float[]){ 1, 0 });
    ARES_PUT(&b, old_log_probs), ARES_PUT(&b, rollout_log_probs);
    b.old_log_probs[0] = -1, b.rollout_log_probs[0] = -INFINITY, b.old_log_probs[1] = -INFINITY,
    b.rollout_log_probs[1] = -1;
    REQUIRE_OK(compute("vapor", &cfg, NULL, &b));
    CHECK(b.advantages[0] == 1 && b.advantages[1] == 0); /* 0.5 x the clip of 2; a ratio of 0 */
    ares_batch_fini(&b);
    cfg = defaults;
    cfg.zero_task_advantage = true;
    random_batch(&b, identity(), 0, G);
    REQUIRE_OK(compute("grpo", &cfg, NULL, &b));
    for (int64_t t = 0; t < b.tokens; t++) CHECK(b.advantages[t] == 0);
    ares_batch_fini(&b);
}
