/* AEPO's arithmetic, and one step of its control from a loaded state to advantages. */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../src/algo/control/aepo.h"
#include "../../src/algo/loss/loss.h"
#include "../../src/algo/stats.h"
#include "../../src/reward/internal.h"
#include "ares/algo.h"
#include "ares/algo_control.h"
#include "ares/algo_loss.h"
#include "control_test.h"

/* ---------------------------------------------------------------- entropies */

static uint8_t *bytes(golden *g, const ares_json *v, int64_t *n)
{
    const double *x = golden_flat(g, v, n);
    uint8_t *out = ares_arena_alloc(g->arena, (size_t)*n + 1);
    for (int64_t i = 0; i < *n; i++) out[i] = x[i] != 0;
    return out;
}

static double *room(golden *g, int64_t n)
{
    return ares_arena_calloc(g->arena, (size_t)n + 1, sizeof(double));
}

static const double *doubles_of_bytes(golden *g, const uint8_t *x, int64_t n)
{
    double *out = room(g, n);
    for (int64_t i = 0; i < n; i++) out[i] = x[i];
    return out;
}

GOLDEN(aepo, entropy_topk)
{
    int64_t n;
    const double *x = golden_flat(g, golden_in(g, "logprobs"), &n);
    golden_near(g, "entropy", ares_entropy_top_k(x, n, golden_number(g, "tail") != 0), g->expected);
}

GOLDEN(aepo, window_entropy_forward)
{
    int64_t n;
    const double *h = golden_flat(g, golden_in(g, "H"), &n);
    double *window = room(g, n);
    int64_t windows = entropy_windows(h, n, (int64_t)golden_number(g, "w"), window);
    if (g->expected->count != n)
        golden_fail(g, "%lld values expected of %lld tokens", (long long)g->expected->count,
                    (long long)n);
    for (int64_t t = 0; t < g->expected->count && t < n; t++) {
        const ares_json *want = &g->expected->items[t];
        if ((want->type == ARES_JSON_NULL) != (t >= windows))
            golden_fail(g, "token %lld: a window or none", (long long)t);
        else if (t < windows) golden_near(g, "window", window[t], want);
        else
            golden_equal(g, "no window", 1,
                         &(ares_json){ .type = ARES_JSON_INT, .integer = 1, .number = 1 });
    }
}

GOLDEN(aepo, window_entropy_padded)
{
    int64_t n;
    const double *h = golden_flat(g, golden_in(g, "H"), &n);
    double *window = room(g, n), *padded = room(g, n);
    int64_t windows = entropy_windows(h, n, (int64_t)golden_number(g, "w"), window);
    entropy_pad_windows(h, n, window, windows, padded);
    golden_numbers(g, "padded", padded, n, g->expected);
}

GOLDEN(aepo, percentile_linear)
{
    int64_t n;
    const double *x = golden_flat(g, golden_in(g, "values"), &n);
    golden_near(g, "percentile", stats_percentile(x, n, golden_number(g, "q")), g->expected);
}

GOLDEN(aepo, sample_entropy_threshold)
{
    int64_t n;
    const double *h = golden_flat(g, golden_in(g, "H"), &n);
    golden_near(
        g, "threshold",
        entropy_sample_threshold(h, n, (int64_t)golden_number(g, "w"), golden_number(g, "q")),
        g->expected);
}

GOLDEN(aepo, threshold_ema)
{
    int64_t n;
    const double *x = golden_flat(g, golden_in(g, "batch"), &n);
    bool started = golden_in(g, "prev")->type != ARES_JSON_NULL;
    double median, tau = entropy_threshold_step(started, golden_number_or(g, "prev", 0), x, n,
                                                golden_number(g, "coef"), &median);
    golden_near(g, "median", median, golden_want(g, "median"));
    golden_near(g, "tau", tau, golden_want(g, "tau"));
}

GOLDEN(aepo, hwe_count)
{
    int64_t n, n_candidates = 0;
    const double *h = golden_flat(g, golden_in(g, "H"), &n);
    const ares_json *trigger = golden_in(g, "trigger");
    double *window = room(g, n);
    uint8_t *candidates = trigger->type == ARES_JSON_NULL ? NULL : bytes(g, trigger, &n_candidates),
            *mask = ares_arena_alloc(g->arena, (size_t)n + 1);
    int64_t windows = entropy_windows(h, n, (int64_t)golden_number(g, "w"), window);
    hwe_marked hwe = hwe_mark(window, windows, n, golden_number(g, "tau"), candidates, mask);
    golden_equal(g, "valid", hwe.count, golden_want(g, "valid"));
    golden_equal(g, "invalid", hwe.invalid, golden_want(g, "invalid"));
    golden_near(g, "soft_cost", hwe.soft_cost, golden_want(g, "soft_cost"));
    golden_numbers(g, "mask", doubles_of_bytes(g, mask, n), n, golden_want(g, "mask"));
}

GOLDEN(aepo, hwe_mask_expand)
{
    int64_t n;
    const uint8_t *mask = bytes(g, golden_in(g, "mask"), &n);
    uint8_t *wide = ares_arena_alloc(g->arena, (size_t)n + 1);
    hwe_widen(mask, n, (int64_t)golden_number(g, "w"), wide);
    golden_numbers(g, "wide", doubles_of_bytes(g, wide, n), n, g->expected);
}

GOLDEN(aepo, normalize_token)
{
    ares_str out = { 0 };
    ares_str_reserve(&out, 1);
    ares_trigger_normalize(golden_string(g, "token"), &out);
    golden_text(g, "text", ares_str_view(&out), g->expected);
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- buckets */

static double *member_numbers(golden *g, const ares_json *map, double absent)
{
    double *out = room(g, ARES_DIFFICULTIES);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        const ares_json *v = ares_json_get(map, ares_difficulty_names[d]);
        out[d] = v ? golden_value(v) : absent;
    }
    return out;
}

/* Each difficulty that the case expects, and no other. */
static void check_members(golden *g, const char *what, const double *got, const ares_json *want)
{
    for (int64_t i = 0; i < want->count; i++) {
        ares_difficulty d = difficulty_find(want->members[i].key);
        if (!d) golden_fail(g, "%s: no difficulty", what);
        else golden_near(g, what, got[d], want->members[i].value);
    }
}

GOLDEN(aepo, difficulty_bucket)
{
    golden_text(g, "difficulty",
                ares_view_of(ares_difficulty_names[difficulty_of(golden_number(g, "accuracy"))]),
                g->expected);
}

GOLDEN(aepo, round_half_even)
{
    golden_near(g, "rounded", round_half_even(golden_number(g, "x")), g->expected);
}

GOLDEN(aepo, alpha_target_update)
{
    const ares_json *list = golden_in(g, "prompts");
    const double *alpha = member_numbers(g, golden_in(g, "alpha"), NAN),
                 *target = member_numbers(g, golden_in(g, "target"), NAN);
    aepo_rates rates = { .lr = golden_number(g, "lr"),
                         .min = golden_number(g, "min"),
                         .max = golden_number(g, "max"),
                         .coef = (const double[ARES_DIFFICULTIES]){ 1, 1, 1, 1 },
                         .renew = true };
    aepo_aims aims;
    double *aimed = room(g, ARES_DIFFICULTIES);
    for (int d = 0; d < ARES_DIFFICULTIES; d++) {
        aims.alpha[d] = alpha[d];
        aims.target_known[d] = !isnan(target[d]);
        aims.target[d] = aims.target_known[d] ? (int64_t)target[d] : 0;
    }
    aepo_prompt *prompts = ares_arena_calloc(g->arena, (size_t)list->count + 1, sizeof *prompts);
    aepo_buckets buckets;
    for (int64_t i = 0; i < list->count; i++) {
        const ares_json *one = list->items[i].items;
        int64_t n, n_counts;
        const double *accuracy = golden_flat(g, &one[1], &n),
                     *hwe = golden_flat(g, &one[2], &n_counts);
        prompts[i] = (aepo_prompt){ .gid = one[0].text, .samples = n };
        for (int64_t k = 0; k < n; k++) {
            prompts[i].accuracy += accuracy[k];
            prompts[i].hwe += hwe[k];
        }
    }
    aepo_bucket(prompts, list->count, &buckets);
    for (int64_t i = 0; i < list->count; i++)
        golden_text(g, "difficulty", ares_view_of(ares_difficulty_names[prompts[i].difficulty]),
                    ares_json_find(golden_want(g, "difficulty"), prompts[i].gid));
    /* the published source has new targets before it moves alphas: a step without alphas ahead */
    if (strcmp(golden_z(g, "order"), "code") == 0) {
        aepo_rates still = rates;
        still.lr = 0;
        aepo_aim(&still, &buckets, &aims);
    }
    aepo_aim(&rates, &buckets, &aims);
    for (int d = 0; d < ARES_DIFFICULTIES; d++)
        aimed[d] = aims.target_known[d] ? (double)aims.target[d] : NAN;
    check_members(g, "bucket_mean", buckets.hwe, golden_want(g, "bucket_mean"));
    check_members(g, "target", aimed, golden_want(g, "target"));
    check_members(g, "alpha", aims.alpha, golden_want(g, "alpha"));
}

GOLDEN(aepo, entropy_accuracy_bins)
{
    int64_t n, n_accuracy;
    const double *hwe = golden_flat(g, golden_in(g, "n_hwe"), &n),
                 *accuracy = golden_flat(g, golden_in(g, "accuracy"), &n_accuracy);
    int64_t *counts = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *counts);
    for (int64_t i = 0; i < n; i++) counts[i] = (int64_t)hwe[i];
    accuracy_bins bins;
    accuracy_by_hwe(counts, accuracy, n, &bins);
    double edges[4];
    for (int i = 0; i < 4; i++) edges[i] = (double)bins.edges[i];
    golden_numbers(g, "edges", edges, 4, golden_want(g, "edges"));
    for (int i = 0; i < 3; i++) {
        golden_near(g, "accuracy", bins.accuracy[i],
                    golden_want(g, ares_arena_printf(g->arena, "accuracy/bin%d", i + 1)));
        golden_equal(g, "count", bins.count[i],
                     golden_want(g, ares_arena_printf(g->arena, "count/bin%d", i + 1)));
    }
}

/* ---------------------------------------------------------------- KL */

GOLDEN(aepo, kl_lambda_update)
{
    golden_near(g, "lambda",
                kl_lambda_step(golden_number(g, "lambda"), golden_number(g, "kl"),
                               golden_number(g, "target"), golden_number(g, "eta")),
                g->expected);
}

GOLDEN(aepo, adaptive_kl_controller)
{
    double coef = adaptive_kl_step(golden_number(g, "kl_coef"), golden_number(g, "current_kl"),
                                   golden_number(g, "target"), golden_number(g, "n_steps"),
                                   golden_number(g, "horizon"));
    golden_near(g, "kl_coef", coef, g->expected);
}

GOLDEN(agentic, adaptive_kl_update)
{
    double kl = golden_number(g, "current_kl"), target = golden_number(g, "target_kl"),
           error = adaptive_kl_step(1, kl, target, 1, 1) - 1,
           multiplier = adaptive_kl_step(1, kl, target, golden_number(g, "n_steps"),
                                         golden_number(g, "horizon"));
    golden_near(g, "proportional_error", error, golden_want(g, "proportional_error"));
    golden_near(g, "multiplier", multiplier, golden_want(g, "multiplier"));
    double coef = adaptive_kl_step(golden_number(g, "value"), golden_number(g, "current_kl"),
                                   golden_number(g, "target_kl"), golden_number(g, "n_steps"),
                                   golden_number(g, "horizon"));
    golden_near(g, "new_value", coef, golden_want(g, "new_value"));
}

GOLDEN(aepo, log_beta_controller)
{
    const ares_json *sequence = golden_in(g, "kl_sequence");
    double first = 0, step = 0;
    int64_t n = 0, last = 0;
    const double *kl = NULL;
    if (sequence->type == ARES_JSON_STRING) { /* "0.004 + 0.0001*q for q = 0..299" */
        long long to = -1;
        const char *text = ares_arena_copy(g->arena, sequence->text.data, sequence->text.len);
        if (sscanf(text, "%lf + %lf*q for q = 0..%lld", &first, &step, &to) != 3) {
            golden_fail(g, "kl_sequence '%s' is not understood", text);
            return;
        }
        n = to + 1;
    } else kl = golden_flat(g, sequence, &n);
    log_beta_config cfg = { .target = golden_number(g, "target"),
                            .lr = golden_number(g, "lr"),
                            .clip = golden_number(g, "clip"),
                            .ema = golden_number(g, "ema"),
                            .deadzone = golden_number(g, "deadzone"),
                            .min = golden_number(g, "beta_min"),
                            .max = golden_number(g, "beta_max"),
                            .interval = (int64_t)golden_number(g, "interval") };
    log_beta s = { .beta = golden_number(g, "beta0") };
    for (int64_t i = 0; i < n && last < g->expected->count; i++) {
        log_beta_step(&cfg, i + 1, kl ? kl[i] : first + step * (double)i, &s);
        const ares_json *want = &g->expected->items[last], *update = ares_json_get(want, "update");
        if (update && update->integer != i + 1) continue;
        golden_near(g, "beta", s.beta, ares_json_get(want, "beta"));
        golden_near(g, "kl_ema", s.kl_ema, ares_json_get(want, "kl_ema"));
        golden_near(g, "e_ema", s.error_ema, ares_json_get(want, "e_ema"));
        last++;
    }
    if (last != g->expected->count)
        golden_fail(g, "%lld states of %lld", (long long)last, (long long)g->expected->count);
}

/* A batch of one group with the rows of a mask, and a matrix in a column. */
static void batch_of(golden *g, const ares_json *mask, ares_batch *b)
{
    int64_t n;
    const uint8_t *m = bytes(g, mask, &n);
    ares_batch_init(b);
    ares_batch_begin_group(b);
    for (int64_t r = 0; r < mask->count; r++)
        ares_batch_add_row(b, &(ares_sample){ .index = (int32_t)r }, mask->items[r].count);
    ARES_PUT(b, response_mask);
    if (n) memcpy(b->response_mask, m, (size_t)n);
    golden_in_single(g);
}

static void fill(golden *g, float *column, const ares_json *v)
{
    int64_t n;
    const double *x = golden_flat(g, v, &n);
    for (int64_t i = 0; i < n; i++) column[i] = (float)x[i];
}

static const double *wide(golden *g, const float *x, int64_t n)
{
    double *out = room(g, n);
    for (int64_t i = 0; i < n; i++) out[i] = (double)x[i];
    return out;
}

/* Metrics by difficulty against a member of what is expected; key NULL: against all of it. */
static void check_metrics(golden *g, const char *prefix, const ares_metrics *m, const char *key)
{
    double got[ARES_DIFFICULTIES] = { 0 };
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        if (!ares_metrics_get(
                m, ares_arena_printf(g->arena, "%s/%s", prefix, ares_difficulty_names[d]), &got[d]))
            got[d] = NAN;
    check_members(g, key ? key : prefix, got, key ? golden_want(g, key) : g->expected);
}

/* As the control tells it of KL in the reward. */
GOLDEN(aepo, kl_bucket_mean)
{
    static const char *const words[] = { "algorithm.aepo=true" };
    ares_batch b;
    batch_of(g, golden_in(g, "mask"), &b);
    const ares_json *difficulty = golden_in(g, "difficulty");
    for (int64_t r = 0; r < b.rows; r++)
        b.samples[r].difficulty = (int32_t)difficulty_find(difficulty->items[r].text);
    ARES_PUT(&b, kl);
    fill(g, b.kl, golden_in(g, "kld"));
    const ares_control *c = control_named("aepo");
    ares_algorithm_config algorithm = { .kl_penalty = "low_var_kl", .kl_coef = 1 };
    ares_control_env env = { .algorithm = &algorithm };
    ares_config *cfg = NULL;
    ares_metrics *m = ares_metrics_new();
    void *options = control_options(c, words, 1, &cfg), *state = NULL;
    if (golden_ok(g, options ? c->open(options, &env, &state) : ARES_ECONFIG) &&
        golden_ok(g, c->adapt(state, &b, m)))
        check_metrics(g, "aepo/kl", m, NULL);
    if (state) c->close(state);
    ares_free(options);
    if (cfg) ares_config_free(cfg);
    ares_metrics_free(m);
    ares_batch_fini(&b);
}

GOLDEN(aepo, apply_kl_penalty)
{
    ares_batch b;
    batch_of(g, golden_in(g, "mask"), &b);
    ARES_PUT(&b, kl);
    ARES_PUT(&b, token_level_scores);
    ARES_PUT(&b, token_level_rewards);
    fill(g, b.kl, golden_in(g, "kld"));
    fill(g, b.token_level_scores, golden_in(g, "scores"));
    double sums[2] = { 0 };
    ares_kl_in_reward(&b, golden_number(g, "kl_coef"), sums);
    golden_numbers(g, "rewards", wide(g, b.token_level_rewards, b.tokens), b.tokens,
                   golden_want(g, "rewards"));
    golden_near(g, "current_kl", sums[0] / sums[1], golden_want(g, "current_kl"));
    ares_batch_fini(&b);
}

GOLDEN(aepo, dynamic_kl_loss)
{
    ares_batch b;
    batch_of(g, golden_in(g, "mask"), &b);
    int64_t n, n_hwe;
    const double *lambda = golden_flat(g, golden_in(g, "lambda_per_sample"), &n);
    const uint8_t *hwe = bytes(g, golden_in(g, "hwe_mask"), &n_hwe);
    ARES_PUT(&b, kl_weight);
    for (int64_t r = 0; r < b.rows; r++) {
        int64_t at = b.row_start[r];
        kl_weigh(lambda[r], golden_number(g, "hwe_kl_scale"), hwe + at, b.response_mask + at,
                 b.row_start[r + 1] - at, b.kl_weight + at);
    }
    const double *weight = wide(g, b.kl_weight, b.tokens);
    /* the case writes the weights it would have outside the answer too */
    const ares_json *want = golden_want(g, "weight");
    int64_t at = 0;
    for (int64_t r = 0; r < want->count; r++)
        for (int64_t t = 0; t < want->items[r].count; t++, at++)
            if (b.response_mask[at]) golden_near(g, "weight", weight[at], &want->items[r].items[t]);
    ares_agg_counts counts = { 0 };
    ares_agg_count(&b, 0, b.rows, &counts);
    static const char *const modes[] = { "token-mean", "seq-mean-token-mean" }, *const keys[] = {
        "kl_loss_token", "kl_loss_seq"
    };
    float *share = ares_arena_calloc(g->arena, (size_t)b.tokens + 1, sizeof *share),
          *column = ares_arena_calloc(g->arena, (size_t)b.tokens + 1, sizeof *column);
    fill(g, column, golden_in(g, "kld"));
    for (int k = 0; k < 2; k++) {
        if (!golden_ok(g, ares_agg_weights(modes[k], &b, 0, b.rows, &counts, share))) continue;
        ares_loss_sums sums;
        ares_loss_sums_init(&sums);
        ares_loss_config cfg = { ARES_LOSS_DEFAULTS };
        ares_loss_args args = { .cfg = &cfg,
                                .n = b.tokens,
                                .log_prob = ares_arena_calloc(g->arena, (size_t)b.tokens + 1,
                                                              sizeof(float)),
                                .weight = share,
                                .mask = b.response_mask,
                                .sums = &sums };
        /* its values are given, as those of the exact KL */
        ares_kl_args kl = { .kl = ares_kl_find("full"),
                            .coef = golden_number(g, "kl_coef"),
                            .weight = b.kl_weight,
                            .full = column };
        if (!golden_ok(g, loss_terms(&args, &kl))) continue;
        golden_near(g, keys[k], sums.kl, golden_want(g, keys[k]));
        if (k == 0)
            golden_near(g, "loss_term_token", ares_loss_total(&sums, 0, kl.coef),
                        golden_want(g, "loss_term_token"));
    }
    ares_batch_fini(&b);
}

/* ---------------------------------------------------------------- a step */

/*
 * Rows of the case in groups of one uid: order [rows] says which row of the case each of ours is.
 */
static void step_batch(golden *g, ares_batch *b, int64_t *order)
{
    const ares_json *uid = golden_in(g, "uid"), *h = golden_in(g, "H"),
                    *accuracy = golden_in(g, "accuracy");
    bool *taken = ares_arena_calloc(g->arena, (size_t)uid->count + 1, sizeof *taken);
    ares_batch_init(b);
    for (int64_t i = 0; i < uid->count; i++) {
        if (taken[i]) continue;
        ares_row *row = ares_arena_calloc(g->arena, 1, sizeof *row);
        row->gid = ares_arena_copy(g->arena, uid->items[i].text.data, uid->items[i].text.len);
        ares_batch_begin_group(b);
        for (int64_t j = i; j < uid->count; j++) {
            if (!ares_view_eq(uid->items[i].text, uid->items[j].text)) continue;
            taken[j] = true;
            order[b->rows] = j;
            ares_batch_add_row(
                b,
                &(ares_sample){ .draw = i,
                                .index = (int32_t)j,
                                .row = row,
                                .accuracy = (float)golden_value(&accuracy->items[j]) },
                h->items[j].count);
        }
    }
    ARES_PUT(b, response_mask);
    ARES_PUT(b, entropies);
    memset(b->response_mask, 1, (size_t)b->tokens);
    for (int64_t r = 0; r < b->rows; r++)
        fill(g, b->entropies + b->row_start[r], &h->items[order[r]]);
}

static int step_open(golden *g, const ares_control *c, const ares_control_env *env,
                     ares_config **cfg, void **options, void **state)
{
    const char *words[] = {
        "algorithm.aepo=true",
        ares_arena_printf(g->arena, "worker.rollout.window_size=%g", golden_number(g, "w")),
        ares_arena_printf(g->arena, "algorithm.entropy_percentile=%.17g", golden_number(g, "q")),
        ares_arena_printf(g->arena, "algorithm.entropy_threshold_ema=%.17g",
                          golden_number(g, "ema_coef")),
        ares_arena_printf(g->arena, "algorithm.alpha_entropy_lr=%.17g",
                          golden_number(g, "alpha_lr")),
        ares_arena_printf(g->arena, "algorithm.alpha_entropy_min=%.17g",
                          golden_number(g, "alpha_min")),
        ares_arena_printf(g->arena, "algorithm.alpha_entropy_max=%.17g",
                          golden_number(g, "alpha_max"))
    };
    ares_str json = { 0 };
    const ares_json *saved = NULL;
    *options = control_options(c, words, ARES_COUNT(words), cfg);
    if (!*options) return ARES_ECONFIG;
    int rc = c->open(*options, env, state);
    if (rc != ARES_OK) return rc;
    const ares_json *tau = golden_in(g, "tau_prev");
    ares_str_add_z(&json, "{\"tau\":");
    ares_json_write(&json, tau);
    ares_str_addf(&json, ",\"tau_ema_started\":%s,\"steps\":0,\"target\":",
                  tau->type == ARES_JSON_NULL ? "false" : "true");
    ares_json_write(&json, golden_in(g, "target"));
    ares_str_add_z(&json, ",\"alpha\":");
    ares_json_write(&json, golden_in(g, "alpha"));
    ares_str_add_z(
        &json, ",\"kl_lambda\":{\"easy\":1,\"medium\":1,\"hard\":1},\"kl_beta\":{\"updates\":0");
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        ares_str_addf(&json, ",\"%s\":{\"beta\":1,\"kl_ema\":null,\"error_ema\":0}",
                      ares_difficulty_names[d]);
    ares_str_add_z(&json, "},\"difficulty\":{},\"skip_gid\":[],\"bootstrap_baseline\":null,"
                          "\"bootstrap\":{\"done\":false,\"prompts\":0,\"seen\":{}}}");
    rc = ares_json_parse(g->arena, ares_str_view(&json), "state", &saved);
    if (rc == ARES_OK) rc = c->load(*state, saved);
    ares_str_fini(&json);
    return rc;
}

static void check_advantages(golden *g, const char *name, ares_batch *b, const int64_t *order,
                             const char *key)
{
    const ares_adv *adv = ares_adv_find(name);
    ares_algorithm_config cfg = { .adv_estimator = name, .norm_adv_by_std_in_grpo = true };
    double *out = room(g, b->rows);
    b->advantages = b->returns = NULL; /* of the estimator before */
    if (!golden_ok(g, adv ? adv->compute(&cfg, NULL, b) : ARES_ECONFIG)) return;
    for (int64_t r = 0; r < b->rows; r++) out[order[r]] = (double)b->advantages[b->row_start[r]];
    golden_numbers(g, key, out, b->rows, golden_want(g, key));
}

GOLDEN(aepo, aepo_step)
{
    if (strcmp(golden_z(g, "order"), "decision") != 0) {
        golden_unknown(g); /* the control has the decided order only */
        return;
    }
    int64_t order[256];
    ares_batch b;
    step_batch(g, &b, order);
    golden_in_single(g); /* entropies, scores and advantages pass through f32 columns */
    const ares_control *c = control_named("aepo");
    ares_algorithm_config algorithm = { .disable_kl = true };
    ares_control_env env = { .algorithm = &algorithm };
    ares_config *cfg = NULL;
    ares_metrics *m = ares_metrics_new();
    void *options = NULL, *state = NULL;
    if (golden_ok(g, step_open(g, c, &env, &cfg, &options, &state)) &&
        golden_ok(g, c->observe(state, &b, m))) {
        double *threshold = room(g, b.rows), *overall = room(g, b.rows), *count = room(g, b.rows),
               tau = NAN, median = NAN;
        ARES_PUT(&b, token_level_rewards);
        for (int64_t r = 0; r < b.rows; r++) {
            const ares_sample *s = &b.samples[r];
            int64_t at = b.row_start[r], n = b.row_start[r + 1] - at;
            threshold[order[r]] =
                entropy_sample_threshold(wide(g, b.entropies + at, n), n,
                                         (int64_t)golden_number(g, "w"), golden_number(g, "q"));
            count[order[r]] = s->hwe_count;
            overall[order[r]] =
                entropy_score((ares_difficulty)s->difficulty, (double)s->accuracy, s->hwe_count,
                              (double)s->hwe_target, (double)s->entropy_alpha)
                    .overall;
            b.token_level_rewards[at + n - 1] = (float)overall[order[r]];
            golden_numbers(g, "hwe_mask", doubles_of_bytes(g, b.hwe + at, n), n,
                           &golden_want(g, "hwe_masks")->items[order[r]]);
            golden_text(g, "difficulty", ares_view_of(ares_difficulty_names[s->difficulty]),
                        ares_json_get(golden_want(g, "difficulty"), s->row->gid));
        }
        golden_numbers(g, "sample_thresholds", threshold, b.rows,
                       golden_want(g, "sample_thresholds"));
        golden_numbers(g, "n_hwe", count, b.rows, golden_want(g, "n_hwe"));
        golden_numbers(g, "overall", overall, b.rows, golden_want(g, "overall"));
        if (!ares_metrics_get(m, "aepo/tau", &tau) ||
            !ares_metrics_get(m, "aepo/tau_batch_median", &median))
            golden_fail(g, "no tau among the metrics");
        golden_near(g, "tau_next", tau, golden_want(g, "tau_next"));
        golden_near(g, "batch_median", median, golden_want(g, "batch_median"));
        check_metrics(g, "aepo/hwe_num", m, "bucket_mean");
        check_metrics(g, "aepo/alpha", m, "alpha_next");
        check_metrics(g, "aepo/target", m, "target_next");
        check_advantages(g, "grpo", &b, order, "grpo_advantage");
        check_advantages(g, "rloo", &b, order, "rloo_advantage");
    }
    c->close(state);
    ares_free(options);
    if (cfg) ares_config_free(cfg);
    ares_metrics_free(m);
    ares_batch_fini(&b);
}
