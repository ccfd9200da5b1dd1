/*
 * Rollout correction (docs/dapo.md#when-the-sampler-is-not-the-trainer): the sampler's log-probs
 * differ from the trainer's, because rollout uses bf16, other kernels or older weights. rollout_is
 * weighs losses, rollout_rs and the veto leave tokens or answers out of the update. The definitions
 * and the names of the metrics are verl's (trainer/ppo/rollout_corr_helper.py), but for its 1e-8
 * beside counts, which vanish in its float32, and answers without a token, which count nowhere
 * here.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formula.h"
#include "loss.h"
#include "stats.h"

/* What rollout_rs asks for. */

enum { OF_TOKENS, SUM_OF_ROW, MEAN_OF_ROW, MAX_OF_ROW };
typedef struct criterion {
    const char *name; /* as in the metrics */
    int over;         /* OF_TOKENS ...: what of the row is compared */
    int k;            /* of k1, k2, k3 */
    double low, high; /* allowed; low of k2 and k3: none */
} criterion;

static const criterion known[] = {
    { "token_k1", OF_TOKENS, 1, 0, 0 },      { "token_k2", OF_TOKENS, 2, 0, 0 },
    { "token_k3", OF_TOKENS, 3, 0, 0 },      { "seq_sum_k1", SUM_OF_ROW, 1, 0, 0 },
    { "seq_sum_k2", SUM_OF_ROW, 2, 0, 0 },   { "seq_sum_k3", SUM_OF_ROW, 3, 0, 0 },
    { "seq_mean_k1", MEAN_OF_ROW, 1, 0, 0 }, { "seq_mean_k2", MEAN_OF_ROW, 2, 0, 0 },
    { "seq_mean_k3", MEAN_OF_ROW, 3, 0, 0 }, { "seq_max_k2", MAX_OF_ROW, 2, 0, 0 },
    { "seq_max_k3", MAX_OF_ROW, 3, 0, 0 },
};
/* words of verl before its k1, k2 and k3: with rollout_rs_threshold and _lower of the other ratio
 */
static const char *const older[][2] = { { "token", "token_k1" },
                                        { "sequence", "seq_sum_k1" },
                                        { "geometric", "seq_mean_k1" } };
enum { MOST = ARES_COUNT(known) };

/* The i-th of the parts of a text between commas, without spaces around it; false: there is none.
 */
static bool part_of(const char *text, int i, char *out, size_t size)
{
    for (; i > 0; i--) {
        text = strchr(text, ',');
        if (!text) return false;
        text++;
    }
    while (*text == ' ') text++;
    size_t n = strcspn(text, ",");
    while (n > 0 && text[n - 1] == ' ') n--;
    (void)snprintf(out, size, "%.*s", (int)n, text);
    return true;
}

static bool positive(const char *text, double *x)
{
    char *end;
    *x = strtod(text, &end);
    return end != text && !*end && *x > 0 && isfinite(*x);
}

/* Reads a criterion's threshold. before: the option's word is one of verl's older ones. */
static int read_bounds(const ares_loss_config *cfg, bool before, const char *text, criterion *c)
{
    char lower[64];
    const char *mid = strchr(text, '_'), *upper = mid ? mid + 1 : text;
    double low = 0, high = 0;
    (void)snprintf(lower, sizeof lower, "%.*s", mid ? (int)(mid - text) : 0, text);
    bool good = positive(upper, &high) && (!mid || positive(lower, &low));
    if (mid && (c->k != 1 || before))
        return ares_fail(ARES_ECONFIG, "rollout_rs_threshold: '%s': %s takes one number; write %s",
                         text,
                         before ? older[c->over == SUM_OF_ROW    ? 1
                                        : c->over == MEAN_OF_ROW ? 2
                                                                 : 0][0]
                                : c->name,
                         upper);
    if (!good || (mid && low >= high))
        return ares_fail(ARES_ECONFIG, "rollout_rs_threshold: '%s': %s takes %s", text, c->name,
                         c->k == 1 ? "a number above 0, or two as in 0.5_2.0" : "a number above 0");
    if (!mid) low = 1 / high;
    if (before) { /* bounds of trainer / rollout, where k1 has the log of rollout / trainer */
        double least = ares_is_null_f64(cfg->rollout_rs_threshold_lower)
                           ? low
                           : cfg->rollout_rs_threshold_lower;
        low = 1 / high;
        high = 1 / least;
    }
    if (c->k == 1 && low > high)
        return ares_fail(ARES_ECONFIG,
                         "rollout_rs_threshold: '%s': its smallest ratio, %g, lies above the "
                         "largest, %g: every token would be rejected",
                         text, low, high);
    c->low = c->k == 1 ? log(low) : -INFINITY;
    c->high = c->k == 1 ? log(high) : high;
    return ARES_OK;
}

/* The criteria of rollout_rs [MOST], and their number. */
static int read_criteria(const ares_loss_config *cfg, criterion *out, int *count)
{
    char word[64], bounds[64];
    bool shared = cfg->rollout_rs_threshold && !strchr(cfg->rollout_rs_threshold, ',');
    int n = 0;
    *count = 0;
    if (!cfg->rollout_rs) return ARES_OK;
    if (!cfg->rollout_rs_threshold)
        return ares_fail(ARES_ECONFIG,
                         "rollout_rs = '%s': nothing says where rejection begins; set "
                         "worker.actor.rollout_rs_threshold",
                         cfg->rollout_rs);
    for (; part_of(cfg->rollout_rs, n, word, sizeof word); n++) {
        const char *name = word;
        bool before = false;
        for (int i = 0; i < ARES_COUNT(older); i++)
            if (strcmp(word, older[i][0]) == 0) before = true, name = older[i][1];
        int k = 0;
        while (k < ARES_COUNT(known) && strcmp(known[k].name, name) != 0) k++;
        if (k == ARES_COUNT(known))
            return ares_fail(ARES_ECONFIG,
                             "rollout_rs: '%s': unknown (choices: token_k1, token_k2, token_k3, "
                             "seq_sum_k1, seq_sum_k2, seq_sum_k3, seq_mean_k1, seq_mean_k2, "
                             "seq_mean_k3, seq_max_k2, seq_max_k3, token, sequence, geometric)",
                             word);
        for (int i = 0; i < n && n < MOST; i++)
            if (out[i].name == known[k].name)
                return ares_fail(ARES_ECONFIG, "rollout_rs: '%s' stands there twice", word);
        ARES_ASSERT(n < MOST);
        out[n] = known[k];
        if (!part_of(cfg->rollout_rs_threshold, shared ? 0 : n, bounds, sizeof bounds))
            return ares_fail(ARES_ECONFIG,
                             "rollout_rs_threshold: '%s' has none for %s; give one for all, or one "
                             "for each",
                             cfg->rollout_rs_threshold, word);
        ARES_TRY(read_bounds(cfg, before, bounds, &out[n]));
    }
    if (!shared && part_of(cfg->rollout_rs_threshold, n, bounds, sizeof bounds))
        return ares_fail(ARES_ECONFIG,
                         "rollout_rs_threshold: '%s' has more than the %d of rollout_rs",
                         cfg->rollout_rs_threshold, n);
    *count = n;
    return ARES_OK;
}

void loss_check_correction(const ares_loss_config *c, ares_algo_complain *complain, void *ctx)
{
    criterion list[MOST];
    int n;
    if (read_criteria(c, list, &n) != ARES_OK) {
        complain(ctx, 'e', "worker.actor.rollout_rs", ares_error_message());
        ares_error_clear();
    }
}

bool ares_rollout_corrects(const ares_loss_config *cfg)
{
    return strcmp(cfg->rollout_is, "none") != 0 || cfg->rollout_rs ||
           !ares_is_null_f64(cfg->rollout_token_veto_threshold);
}

/* Quantities of tokens and of rows, and their metrics. */

typedef struct correction {
    const ares_loss_config *cfg;
    ares_world *world;
    ares_batch *b;
    ares_metrics *m;
    const uint8_t *mask; /* [tokens]: before anything is rejected */
    uint8_t *has;        /* [rows]: 1 where a token has mask 1 */
    double *x;           /* [tokens]: log old - log rollout; 0 where the mask is 0 */
    double *length;      /* [rows]: tokens of mask 1 */
    double *of_token, *of_row, *changed; /* scratch: [tokens], [rows], [tokens] */
} correction;

enum { TOKENS, ROWS };
static int64_t count_of(const correction *c, int what)
{
    return what == TOKENS ? c->b->tokens : c->b->rows;
}
static const uint8_t *mask_of(const correction *c, int what)
{
    return what == TOKENS ? c->mask : c->has;
}
static int moments(const correction *c, int what, const double *x, stats_moments *out)
{
    return stats_masked_moments(c->world, x, mask_of(c, what), count_of(c, what), out);
}

/* range[0] least, range[1] largest of x over all ranks; 0 where there is none */
static int range_of(const correction *c, int what, const double *x, double *range)
{
    double ends[2] = { -INFINITY, -INFINITY }; /* of -x and of x */
    const uint8_t *mask = mask_of(c, what);
    for (int64_t i = 0; i < count_of(c, what); i++)
        if (mask[i]) ends[0] = fmax(ends[0], -x[i]), ends[1] = fmax(ends[1], x[i]);
    ARES_TRY(ares_world_max_f64(c->world, ends, 2));
    range[0] = isfinite(ends[0]) ? -ends[0] : 0;
    range[1] = isfinite(ends[1]) ? ends[1] : 0;
    return ARES_OK;
}

/* out[0]: share of x above high, out[1]: share below low, over all ranks */
static int beyond(const correction *c, int what, const double *x, double low, double high,
                  double *out)
{
    int64_t n[3] = { 0, 0, 0 };
    const uint8_t *mask = mask_of(c, what);
    for (int64_t i = 0; i < count_of(c, what); i++)
        if (mask[i]) n[0]++, n[1] += x[i] > high, n[2] += x[i] < low;
    ARES_TRY(ares_world_sum_i64(c->world, n, 3));
    out[0] = n[0] ? (double)n[1] / (double)n[0] : 0;
    out[1] = n[0] ? (double)n[2] / (double)n[0] : 0;
    return ARES_OK;
}

static void put(const correction *c, const char *prefix, const char *name, double value)
{
    char whole[96];
    (void)snprintf(whole, sizeof whole, "rollout_corr/%s%s", prefix, name);
    ares_metrics_set(c->m, whole, value);
}

static double bound(double x)
{
    return fmax(-ARES_LOG_RATIO_BOUND, fmin(x, ARES_LOG_RATIO_BOUND));
}

/* A sum over the row of each token's value, the mean, or the largest, to row[rows]. */
static void over_rows(const correction *c, int over, const double *x, double *row)
{
    const ares_batch *b = c->b;
    for (int64_t r = 0; r < b->rows; r++) {
        double sum = 0, most = -INFINITY;
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++)
            if (c->mask[t]) sum += x[t], most = fmax(most, x[t]);
        row[r] = !c->has[r]            ? 0
                 : over == SUM_OF_ROW  ? sum
                 : over == MEAN_OF_ROW ? sum / c->length[r]
                                       : most;
    }
}

/* Each token gets its row's value. */
static void spread(const correction *c, const double *row, double *token)
{
    const ares_batch *b = c->b;
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) token[t] = row[r];
}

/* How far apart the two policies are, whatever is done about it. */
static int divergences(correction *c)
{
    const ares_batch *b = c->b;
    const double *x = c->x;
    stats_moments m;
    double *old = ares_arena_calloc(&c->b->arena, (size_t)b->rows + 1, sizeof *old),
           *rollout = ares_arena_calloc(&c->b->arena, (size_t)b->rows + 1, sizeof *rollout),
           range[2];
#define MEAN(what, values, count, name, less, value)                 \
    do {                                                             \
        for (int64_t i = 0; i < (count); i++) (values)[i] = (value); \
        ARES_TRY(moments(c, what, values, &m));                      \
        put(c, "", name, m.mean - (less));                           \
    } while (0)
    for (int64_t t = 0; t < b->tokens; t++) c->of_token[t] = (double)b->old_log_probs[t];
    over_rows(c, MEAN_OF_ROW, c->of_token, old);
    for (int64_t t = 0; t < b->tokens; t++) c->of_token[t] = (double)b->rollout_log_probs[t];
    over_rows(c, MEAN_OF_ROW, c->of_token, rollout);
    /* exp of 700 is finite */
    MEAN(ROWS, c->of_row, b->rows, "training_ppl", 0, ares_f64_exp(fmin(-old[i], 700)));
    MEAN(ROWS, c->of_row, b->rows, "training_log_ppl", 0, -old[i]);
    MEAN(ROWS, c->of_row, b->rows, "rollout_ppl", 0, ares_f64_exp(fmin(-rollout[i], 700)));
    MEAN(ROWS, c->of_row, b->rows, "rollout_log_ppl", 0, -rollout[i]);
    MEAN(TOKENS, c->of_token, b->tokens, "kl", 0, -x[i]);
    MEAN(TOKENS, c->of_token, b->tokens, "k3_kl", 0, ares_f64_exp(fmin(x[i], 700)) - x[i] - 1);
    MEAN(TOKENS, c->of_token, b->tokens, "chi2_token", 1, ares_f64_exp(2 * bound(x[i])));
    MEAN(ROWS, c->of_row, b->rows, "ppl_ratio", 0, ares_f64_exp(fmin(rollout[i] - old[i], 700)));
    MEAN(ROWS, c->of_row, b->rows, "log_ppl_abs_diff", 0, fabs(rollout[i] - old[i]));
    MEAN(ROWS, c->of_row, b->rows, "log_ppl_diff", 0, rollout[i] - old[i]);
    ARES_TRY(range_of(c, ROWS, c->of_row, range));
    put(c, "", "log_ppl_diff_min", range[0]);
    put(c, "", "log_ppl_diff_max", range[1]);
    over_rows(c, SUM_OF_ROW, x, old);
    MEAN(ROWS, c->of_row, b->rows, "chi2_seq", 1, ares_f64_exp(2 * bound(old[i])));
    return ARES_OK;
#undef MEAN
}

/* log old - log rollout of token t of row r, whose mask is 1 */
static int log_ratio_of(const ares_batch *b, int64_t r, int64_t t, double *x)
{
    *x = (double)b->old_log_probs[t] - (double)b->rollout_log_probs[t];
    if (isfinite(*x)) return ARES_OK;
    return ares_fail(ARES_ENUMERIC,
                     "loss: rollout_is: row %lld, token %lld has old_log_prob %g and "
                     "rollout_log_prob %g: must be finite where the mask is 1",
                     (long long)r, (long long)(t - b->row_start[r]), (double)b->old_log_probs[t],
                     (double)b->rollout_log_probs[t]);
}

/* rollout_is: weights of the loss (formula.h), and their metrics. */

typedef struct weighing {
    bool by_token, mean, none, mask; /* mean: geometric */
    double least, upper;             /* what the weights are held between */
    double lower; /* and what their metrics count, as in verl: 1 / upper where it is null */
} weighing;
static weighing weighing_of(const ares_loss_config *cfg)
{
    double upper = cfg->rollout_is_threshold, lower = cfg->rollout_is_threshold_lower;
    bool mask = strcmp(cfg->rollout_is_mode, "mask") == 0;
    return (weighing){ .by_token = strcmp(cfg->rollout_is, "token") == 0,
                       .mean = strcmp(cfg->rollout_is, "geometric") == 0,
                       .none = strcmp(cfg->rollout_is, "none") == 0,
                       .mask = mask,
                       .least = !ares_is_null_f64(lower) ? lower
                                : mask                   ? 1 / upper
                                                         : 0,
                       .upper = upper,
                       .lower = ares_is_null_f64(lower) ? 1 / upper : lower };
}

int correction_weights(const ares_loss_config *cfg, const ares_batch *b, int64_t row, int64_t end,
                       float *weight, int64_t *cut)
{
    const weighing w = weighing_of(cfg);
    int64_t first = b->row_start[row];
    if (!w.none) ARES_TRY(ARES_NEED(b, "correct", rollout_log_probs));
    for (int64_t r = row; r < end; r++) {
        double sum = 0, n = 0, x = 0;
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1] && !w.none; t++) {
            if (!b->response_mask[t]) continue;
            ARES_TRY(log_ratio_of(b, r, t, &x));
            sum += x;
            n++;
        }
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
            weight[t - first] = b->response_mask[t] ? 1 : 0;
            if (w.none || !b->response_mask[t]) continue;
            /* the exponent: of the token alone, or the mean or the sum over its row */
            x = w.by_token ? (double)b->old_log_probs[t] - (double)b->rollout_log_probs[t]
                : w.mean   ? sum / n
                           : sum;
            double value = ares_rollout_weight(x, w.mask, w.least, w.upper),
                   whole = ares_loss_exp(ares_loss_bound(x));
            weight[t - first] = (float)value;
            if (cut) *cut += value < whole || value > whole;
        }
    }
    return ARES_OK;
}

/* Of the weights before the thresholds act. */
static int metrics_of_weights(correction *c, const weighing *w)
{
    const ares_batch *b = c->b;
    const char *const is = "rollout_is_";
    stats_moments all, kept, rows;
    double range[2], share[2], of_rows[2];
    double *of_row = c->of_row, *weight = c->of_token;
    if (w->by_token) {
        for (int64_t t = 0; t < b->tokens; t++) weight[t] = ares_f64_exp(bound(c->x[t]));
        over_rows(c, MEAN_OF_ROW, weight, of_row);
    } else {
        over_rows(c, w->mean ? MEAN_OF_ROW : SUM_OF_ROW, c->x, of_row);
        for (int64_t r = 0; r < b->rows; r++) of_row[r] = ares_f64_exp(bound(of_row[r]));
        spread(c, of_row, weight);
    }
    for (int64_t t = 0; t < b->tokens; t++)
        c->changed[t] = fmax(w->lower, fmin(weight[t], w->upper));
    ARES_TRY(moments(c, TOKENS, weight, &all));
    ARES_TRY(moments(c, TOKENS, c->changed, &kept));
    ARES_TRY(moments(c, ROWS, of_row, &rows));
    ARES_TRY(range_of(c, w->by_token ? TOKENS : ROWS, w->by_token ? weight : of_row, range));
    ARES_TRY(beyond(c, TOKENS, weight, w->lower, w->upper, share));
    ARES_TRY(beyond(c, ROWS, of_row, w->lower, w->upper, of_rows));
    if (!w->by_token) memcpy(share, of_rows, sizeof share);
    put(c, is, "mean", all.mean);
    put(c, is, "min", range[0]);
    put(c, is, "max", range[1]);
    put(c, is, "ratio_fraction_high", share[0]);
    put(c, is, "ratio_fraction_low", share[1]);
    put(c, is, "std", sqrt(kept.population_var));
    /* 1 / mean of (w / mean w)^2 */
    put(c, is, "eff_sample_size",
        kept.mean > 0 ? kept.mean * kept.mean / (kept.population_var + kept.mean * kept.mean) : 0);
    put(c, is, "seq_mean", rows.mean);
    put(c, is, "seq_std", sqrt(rows.var));
    ARES_TRY(range_of(c, ROWS, of_row, range));
    put(c, is, "seq_min", range[0]);
    put(c, is, "seq_max", range[1]);
    put(c, is, "seq_max_deviation", fmax(fabs(range[0] - 1), fabs(range[1] - 1)));
    put(c, is, "seq_fraction_high", of_rows[0]);
    put(c, is, "seq_fraction_low", of_rows[1]);
    return ARES_OK;
}

static int weigh(correction *c)
{
    ares_batch *b = c->b;
    const weighing w = weighing_of(c->cfg);
    int64_t n[2] = { 0, 0 }; /* weights cut, tokens */
    stats_moments m;
    if (w.none) return ARES_OK;
    ARES_TRY(metrics_of_weights(c, &w));
    ARES_PUT(b, rollout_is_weights);
    ARES_TRY(correction_weights(c->cfg, b, 0, b->rows, b->rollout_is_weights, &n[0]));
    for (int64_t t = 0; t < b->tokens; t++) {
        c->of_token[t] = (double)b->rollout_is_weights[t];
        n[1] += c->mask[t];
    }
    ARES_TRY(ares_world_sum_i64(c->world, n, 2));
    ARES_TRY(moments(c, TOKENS, c->of_token, &m));
    if (n[1]) {
        ares_metrics_set(c->m, "actor/rollout_is_mean", m.mean);
        ares_metrics_set(c->m, "actor/rollout_is_cut_frac", (double)n[0] / (double)n[1]);
    }
    if (!c->cfg->rollout_is_batch_normalize) return ARES_OK;
    if (!w.by_token) { /* an answer has one weight, however long it is */
        over_rows(c, MEAN_OF_ROW, c->of_token, c->of_row);
        ARES_TRY(moments(c, ROWS, c->of_row, &m));
    }
    double factor = m.mean > 1e-8 ? m.mean : 1;
    for (int64_t t = 0; t < b->tokens; t++)
        b->rollout_is_weights[t] = (float)((double)b->rollout_is_weights[t] / factor);
    put(c, "rollout_is_", "batch_norm_factor", factor);
    return ARES_OK;
}

/* rollout_rs: what is left out of the update. */

/* Tokens and answers of which kept [tokens] has 0 somewhere, as shares, to metrics by that name. */
static int put_rejected(correction *c, const char *prefix, const uint8_t *kept)
{
    const ares_batch *b = c->b;
    int64_t n[4] = { 0, 0, 0, 0 }; /* tokens, rejected; rows, touched */
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t before = n[1];
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++)
            if (c->mask[t]) n[0]++, n[1] += !kept[t];
        n[2] += c->has[r];
        n[3] += n[1] > before;
    }
    ARES_TRY(ares_world_sum_i64(c->world, n, 4));
    put(c, prefix, "masked_fraction", n[0] ? (double)n[1] / (double)n[0] : 0);
    put(c, prefix, "seq_masked_fraction", n[2] ? (double)n[3] / (double)n[2] : 0);
    return ARES_OK;
}

/* Rejects by one criterion: kept [tokens] becomes 0 where it is not met. */
static int reject(correction *c, const criterion *k, uint8_t *kept)
{
    const ares_batch *b = c->b;
    double *value = c->of_token, *row = c->of_row, range[2], share[2], of_rows[2];
    bool tokens = k->over == OF_TOKENS, lower = k->k == 1;
    stats_moments all, clamped, rows;
    char prefix[64];
    uint8_t *alone = ares_arena_calloc(&c->b->arena, (size_t)b->tokens + 1, 1);
    (void)snprintf(prefix, sizeof prefix, "rollout_rs_%s_", k->name);
    for (int64_t t = 0; t < b->tokens; t++) {
        double x = bound(c->x[t]);
        value[t] = k->k == 1 ? -x : k->k == 2 ? 0.5 * x * x : ares_f64_exp(x) - 1 - x;
    }
    over_rows(c, tokens ? MEAN_OF_ROW : k->over, value, row);
    if (!tokens) spread(c, row, value);
    for (int64_t t = 0; t < b->tokens; t++) {
        alone[t] = value[t] >= k->low && value[t] <= k->high;
        kept[t] &= alone[t];
        c->changed[t] = fmax(lower ? k->low : 0, fmin(value[t], k->high));
    }
    ARES_TRY(moments(c, TOKENS, value, &all));
    ARES_TRY(moments(c, TOKENS, c->changed, &clamped));
    ARES_TRY(moments(c, ROWS, row, &rows));
    ARES_TRY(range_of(c, tokens ? TOKENS : ROWS, tokens ? value : row, range));
    ARES_TRY(beyond(c, ROWS, row, k->low, k->high, of_rows));
    memcpy(share, of_rows, sizeof share);
    if (tokens) ARES_TRY(beyond(c, TOKENS, value, k->low, k->high, share));
    put(c, prefix, "mean", all.mean);
    put(c, prefix, "min", range[0]);
    put(c, prefix, "max", range[1]);
    put(c, prefix, "fraction_high", share[0]);
    put(c, prefix, "fraction_low", share[1]);
    put(c, prefix, "std", sqrt(clamped.population_var));
    ARES_TRY(range_of(c, ROWS, row, range));
    put(c, prefix, "seq_mean", rows.mean);
    put(c, prefix, "seq_std", sqrt(rows.var));
    put(c, prefix, "seq_min", range[0]);
    put(c, prefix, "seq_max", range[1]);
    put(c, prefix, "seq_max_deviation", fmax(fabs(range[0]), fabs(range[1])));
    put(c, prefix, "seq_fraction_high", of_rows[0]);
    if (lower) put(c, prefix, "seq_fraction_low", of_rows[1]);
    return put_rejected(c, prefix, alone);
}

/* The veto: an answer with a token that the trainer finds far less likely is rejected as a whole.
 */
static int veto(correction *c, uint8_t *kept)
{
    const ares_batch *b = c->b;
    double least = ares_f64_log(c->cfg->rollout_token_veto_threshold);
    int64_t n[4] = { 0, 0, 0, 0 }; /* rows, rejected; tokens, below */
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t below = 0;
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++)
            if (c->mask[t]) n[2]++, below += c->x[t] < least;
        n[0] += c->has[r];
        n[1] += below > 0;
        n[3] += below;
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1] && below; t++) kept[t] = 0;
    }
    ARES_TRY(ares_world_sum_i64(c->world, n, 4));
    put(c, "rollout_is_", "veto_fraction", n[0] ? (double)n[1] / (double)n[0] : 0);
    put(c, "rollout_is_", "catastrophic_token_fraction", n[2] ? (double)n[3] / (double)n[2] : 0);
    return ARES_OK;
}

static int correct(correction *c, const criterion *list, int n)
{
    ares_batch *b = c->b;
    bool vetoes = !ares_is_null_f64(c->cfg->rollout_token_veto_threshold);
    ARES_TRY(divergences(c));
    ARES_TRY(weigh(c));
    if (n == 0 && !vetoes) return ARES_OK;
    ARES_PUT(b, kept_mask);
    memset(b->kept_mask, 1, (size_t)b->tokens);
    for (int i = 0; i < n; i++) ARES_TRY(reject(c, &list[i], b->kept_mask));
    if (n) ARES_TRY(put_rejected(c, "rollout_rs_", b->kept_mask));
    if (vetoes) ARES_TRY(veto(c, b->kept_mask));
    for (int64_t t = 0; t < b->tokens; t++) b->kept_mask[t] &= c->mask[t];
    ares_rollout_restore(b); /* the exchange is its own inverse */
    return ARES_OK;
}

int ares_rollout_correct(const ares_loss_config *cfg, ares_world *world, ares_batch *b,
                         ares_metrics *m)
{
    criterion list[MOST];
    int n, rc;
    size_t tokens = (size_t)b->tokens + 1, rows = (size_t)b->rows + 1;
    ARES_TRY(read_criteria(cfg, list, &n));
    ARES_TRY(ARES_NEED(b, "correct", rollout_log_probs));
    ARES_TRY(ARES_NEED(b, "correct", old_log_probs));
    correction c = { .cfg = cfg, .world = world, .b = b, .m = m, .mask = b->response_mask };
    c.has = ares_arena_calloc(&b->arena, rows, 1);
    c.length = ares_arena_calloc(&b->arena, rows, sizeof *c.length);
    c.of_row = ares_arena_calloc(&b->arena, rows, sizeof *c.of_row);
    c.x = ares_arena_calloc(&b->arena, tokens, sizeof *c.x);
    c.of_token = ares_arena_calloc(&b->arena, tokens, sizeof *c.of_token);
    c.changed = ares_arena_calloc(&b->arena, tokens, sizeof *c.changed);
    rc = ARES_OK;
    for (int64_t r = 0; r < b->rows && rc == ARES_OK; r++)
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1] && rc == ARES_OK; t++) {
            if (!b->response_mask[t]) continue;
            rc = log_ratio_of(b, r, t, &c.x[t]);
            c.length[r] += 1;
            c.has[r] = 1;
        }
    ARES_TRY(ares_world_share_error(world, rc)); /* the metrics are sums over ranks */
    return correct(&c, list, n);
}

void ares_rollout_restore(ares_batch *b)
{
    if (!b->kept_mask) return;
    uint8_t *mask = b->response_mask;
    b->response_mask = b->kept_mask;
    b->kept_mask = mask;
}
