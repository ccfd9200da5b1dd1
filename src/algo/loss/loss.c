/*
 * What all policy losses share, in the order of a loss's work: the tables of options and of
 * losses; checks of the input; sums and their metrics; the KL and entropy terms; the weight of
 * each token; the mean ratio for DAPO's early stop; weights for rollout's log-probs; rules
 * between options; the critic's loss; last all of it on a device. The formula of each loss is in
 * its own file and in formula.h.
 */
#include "loss.h"
#include "formula.h"
#include "on_device.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/algo.h"
#include "ares/algo_loss.h"

/* "dual_clip=ppo=grpo" has "ppo" and not "pp". */
bool choice_has(const char *words, const char *name)
{
    size_t len = strlen(name);
    for (const char *w = words; len; w = strchr(w, '=') + 1) {
        if (strncmp(w, name, len) == 0 && (w[len] == '=' || !w[len])) return true;
        if (!strchr(w, '=')) break;
    }
    return false;
}

/* The table of policy losses. To add one: formula.h says what. */

#define ENTRY(name) &ares_loss_##name,
static const ares_loss *const table[] = { LOSS_LIST(ENTRY) };

const char *const *ares_loss_names(int *n)
{
    static _Thread_local const char *words[ARES_COUNT(table)];
    for (int i = 0; i < ARES_COUNT(table); i++) words[i] = table[i]->words;
    *n = ARES_COUNT(table);
    return words;
}

const ares_loss *const *loss_list(int *n)
{
    *n = ARES_COUNT(table);
    return table;
}

/* By name or alias; NULL with an error that lists the names. */
const ares_loss *ares_loss_find(const char *name)
{
    const char *names[ARES_COUNT(table)];
    int i;
    for (i = 0; i < ARES_COUNT(table); i++) {
        if (choice_has(table[i]->words, name)) return table[i];
        names[i] = table[i]->name;
    }
    (void)ares_lookup(ARES_ECONFIG, "config: worker.actor.loss_type", name, names,
                      ARES_COUNT(table), &i);
    return NULL;
}

/* Checks of a loss's input; a failure names the place in the batch. */

/*
 * out: "row 3, token 17" of token t of the arrays; without row_start the arrays are no part of a
 * batch, and it is "token 17". first: the batch's token that is token 0 of the arrays.
 */
static void loss_place(const int64_t *row_start, int64_t row, int64_t end, int64_t first, int64_t t,
                       char out[64])
{
    int64_t r = row;
    /* the row of token t: the last one that begins at or before it */
    if (!row_start) {
        snprintf(out, 64, "token %lld", (long long)t);
        return;
    }
    while (r + 1 < end && row_start[r + 1] <= first + t) r++;
    snprintf(out, 64, "row %lld, token %lld", (long long)r, (long long)(first + t - row_start[r]));
}

int loss_check(const ares_loss_args *a, const char *function)
{
    const struct {
        const char *name;
        const float *x;
    } arrays[] = {
        { "log_prob", a->log_prob },
        { "old_log_prob", a->old_log_prob },
        { "advantage", a->advantage },
        { "weight", a->weight },
        { "rollout weight", a->rollout_weight },
    };
    char place[64];
    for (int64_t t = 0; t < a->n; t++) {
        if (a->mask[t] == 0) continue;
        if (a->mask[t] != 1) {
            loss_place(a->row_start, a->row, a->end, a->first, t, place);
            return ares_fail(ARES_ENUMERIC, "loss: %s: mask of %s is %d: must be 0 or 1", function,
                             place, a->mask[t]);
        }
        for (int i = 0; i < ARES_COUNT(arrays); i++) {
            if (!arrays[i].x || isfinite(arrays[i].x[t])) continue;
            loss_place(a->row_start, a->row, a->end, a->first, t, place);
            return ares_fail(ARES_ENUMERIC,
                             "loss: %s: %s of %s is %g: must be finite where the mask is 1",
                             function, arrays[i].name, place, (double)arrays[i].x[t]);
        }
    }
    return ARES_OK;
}

int loss_without_pairs(const ares_loss_args *a, const ares_loss *loss)
{
    (void)a;
    return ares_fail(ARES_EUNSUPPORTED,
                     "loss: %s: needs log-probs of the rows' chosen and rejected answers beside "
                     "the completions'; ares_vapor_loss takes all of them",
                     loss->name);
}

/* Sums of a loss: added over ranks and reported as metrics (docs/update.md#metrics). */

void ares_loss_sums_init(ares_loss_sums *s)
{
    *s = (ares_loss_sums){ .ratio_min = INFINITY, .ratio_max = -INFINITY };
}

/* Sums of all ranks, so that metrics are those of the whole mini-batch. */
int ares_loss_sums_reduce(ares_loss_sums *s, ares_world *w)
{
    /* minus the minimum, so that one call finds both bounds */
    double sums[64], bounds[2] = { s->ratio_max, -s->ratio_min };
    int n = 0;
#define PUT(name) sums[n++] = s->name;
    ARES_LOSS_SUMS(PUT)
#undef PUT
    ARES_TRY(ares_world_sum_f64(w, sums, n));
    ARES_TRY(ares_world_sum_f64(w, s->bins, ARES_LOSS_BINS));
    ARES_TRY(ares_world_max_f64(w, bounds, 2));
    n = 0;
#define TAKE(name) s->name = sums[n++];
    ARES_LOSS_SUMS(TAKE)
#undef TAKE
    s->ratio_max = bounds[0];
    s->ratio_min = -bounds[1];
    return ARES_OK;
}

double ares_loss_total(const ares_loss_sums *s, double entropy_coeff, double kl_coef)
{
    return s->loss + kl_coef * s->kl - entropy_coeff * s->entropy;
}

/* Bins of the log-ratio of 1/16 from -2 on. */
double ares_loss_bin_edge(int i)
{
    return -2 + i / 16.0;
}

void ares_loss_metrics(const ares_loss_sums *s, ares_metrics *m)
{
    double n = s->tokens;
    if (s->tokens_right > 0)
        ares_metrics_set(m, "actor/entropy_correct", s->entropy_right / s->tokens_right);
    if (s->tokens_wrong > 0)
        ares_metrics_set(m, "actor/entropy_wrong", s->entropy_wrong / s->tokens_wrong);
    if (s->entropy_tokens > 0)
        ares_metrics_set(m, "actor/entropy", s->entropy_plain / s->entropy_tokens);
    if (s->kl_tokens > 0) {
        ares_metrics_set(m, "actor/kl", s->kl_plain / s->kl_tokens);
        ares_metrics_set(m, "actor/kl_clamped_frac", s->kl_clamped / s->kl_tokens);
    }
    /* a mini-batch without a token has no means */
    if (n == 0) return;
    ares_metrics_set(m, "actor/policy_loss_abs", s->loss_abs / n);
    ares_metrics_set(m, "actor/pg_clipfrac_higher", s->clip_high / n);
    ares_metrics_set(m, "actor/pg_clipfrac_lower", s->clip_low / n);
    ares_metrics_set(m, "actor/ppo_kl", s->neg_log_ratio / n);
    ares_metrics_set(m, "actor/ppo_kl_k2", s->k2 / n);
    ares_metrics_set(m, "actor/ppo_kl_k3", s->k3 / n);
    ares_metrics_set(m, "actor/ratio_mean", s->ratio / n);
    ares_metrics_set(m, "actor/ratio_max", s->ratio_max);
    ares_metrics_set(m, "actor/ratio_min", s->ratio_min);
    ares_metrics_set(m, "actor/clipped_ratio", s->ratio_clipped / n);
    ares_metrics_set(m, "actor/ratio_abs", s->ratio_off / n);
    ares_metrics_set(m, "actor/ratio_saturated", s->saturated / n);
}

/* The KL and entropy terms that every loss may carry. */

/* Adds the entropy of token t to the sums; row: of the batch, whose accuracy sorts it. */
static int entropy_term(const ares_loss_args *a, int64_t t, int64_t row)
{
    double w = (double)a->weight[t], entropy = (double)a->entropy[t];
    if (!isfinite(entropy)) {
        char place[64];
        loss_place(a->row_start, a->row, a->end, a->first, t, place);
        return ares_fail(ARES_ENUMERIC,
                         "loss: entropy of %s is %g: must be finite where the mask is 1", place,
                         entropy);
    }
    a->sums->entropy += w * entropy;
    a->sums->entropy_plain += entropy;
    a->sums->entropy_tokens += 1;
    /* sorted by whether the answer is right, where that is known */
    if (!a->samples || !a->row_start || isnan(a->samples[row].accuracy)) return ARES_OK;
    bool right = a->samples[row].accuracy > 0.5f;
    *(right ? &a->sums->entropy_right : &a->sums->entropy_wrong) += entropy;
    *(right ? &a->sums->tokens_right : &a->sums->tokens_wrong) += 1;
    return ARES_OK;
}

/* Walks the tokens once, and follows along which row of the batch each belongs to. */
int loss_terms(const ares_loss_args *a, const ares_kl_args *k)
{
    double entropy_coeff = a->cfg->entropy_coeff;
    bool kl = k && (k->kl->value ? k->ref_log_prob != NULL : k->full != NULL);
    int64_t row = a->row; /* of the batch, to which token t belongs */
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        while (a->row_start && row + 1 < a->end && a->row_start[row + 1] <= a->first + t) row++;
        if (kl) {
            /* w: the token's weight in the mean; scale: the dynamic KL's factor */
            double w = (double)a->weight[t], scale = k->weight ? (double)k->weight[t] : 1,
                   slope = 0, value;
            bool clamped = false;
            if (k->kl->value)
                value = k->kl->both((double)a->log_prob[t] - (double)k->ref_log_prob[t], &slope,
                                    &clamped);
            else value = (double)k->full[t];
            if (!isfinite(value) || !isfinite(scale)) {
                char place[64];
                loss_place(a->row_start, a->row, a->end, a->first, t, place);
                return ares_fail(
                    ARES_ENUMERIC,
                    "loss: kl: %s has KL %g and weight %g (log_prob %g, ref_log_prob %g): "
                    "must be finite where the mask is 1",
                    place, value, scale, (double)a->log_prob[t],
                    k->ref_log_prob ? (double)k->ref_log_prob[t] : 0.0);
            }
            a->sums->kl += w * scale * value;
            a->sums->kl_plain += value;
            a->sums->kl_tokens += 1;
            a->sums->kl_clamped += clamped;
            /* per token for reports, unweighted */
            if (k->out) k->out[t] = (float)value;
            /* the exact KL's gradient goes through all logits: d_full scales it there */
            if (k->kl->value) a->d_log_prob[t] += (float)(w * k->coef * scale * slope);
            else if (k->d_full) k->d_full[t] += (float)(w * k->coef * scale);
        }
        if (a->entropy) ARES_TRY(entropy_term(a, t, row));
        if (entropy_coeff != 0 && a->d_entropy)
            a->d_entropy[t] -= (float)((double)a->weight[t] * entropy_coeff);
    }
    return ARES_OK;
}

/* How token losses become one number: the table of modes, and the weight of each token. */

/* Tokens of mask 1 in a row. */
static double row_tokens(const ares_batch *b, int64_t r)
{
    double n = 0;
    for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) n += b->response_mask[t];
    return n;
}

void ares_agg_count(const ares_batch *b, int64_t row, int64_t end, ares_agg_counts *out)
{
    for (int64_t r = row; r < end; r++) {
        double n = row_tokens(b, r);
        out->tokens += n;
        out->rows += n > 0;
    }
}

/* Weights of a token in a row of n tokens, by mode of averaging. */
static double of_token(const ares_agg_counts *c, double n)
{
    (void)n;
    return 1 / c->tokens;
}
static double of_row_mean(const ares_agg_counts *c, double n)
{
    return 1 / (c->rows * n);
}
static double of_row_sum(const ares_agg_counts *c, double n)
{
    (void)n;
    return 1 / c->rows;
}
static double of_width(const ares_agg_counts *c, double n)
{
    (void)n;
    return 1 / c->max_len; /* verl: the sum over all tokens by the width of the response */
}

static const agg_mode agg_modes[] = {
    { "token-mean", "every token weighs the same", "1 / N", "arXiv 2503.14476, 3.3", of_token },
    { "seq-mean-token-mean", "every row weighs the same", "1 / (B n)", "arXiv 2402.03300",
      of_row_mean },
    { "seq-mean-token-sum", "the sum over a row, the mean over rows", "1 / B", "verl", of_row_sum },
    { "seq-mean-token-sum-norm", "the sum over all tokens by the longest possible response",
      "1 / loss_scale_factor", "arXiv 2503.20783", of_width },
};

const agg_mode *agg_list(int *n)
{
    *n = ARES_COUNT(agg_modes);
    return agg_modes;
}

int ares_agg_weights(const char *mode, const ares_batch *b, int64_t row, int64_t end,
                     const ares_agg_counts *global, float *weight)
{
    const agg_mode *agg = NULL;
    for (int i = 0; i < ARES_COUNT(agg_modes); i++)
        if (strcmp(mode, agg_modes[i].name) == 0) agg = &agg_modes[i];
    if (!agg) return ares_fail(ARES_ECONFIG, "loss: loss_avg_mode = '%s': unknown", mode);
    if (agg->weight == of_width && !(global->max_len > 0))
        return ares_fail(ARES_ECONFIG,
                         "loss: loss_avg_mode = '%s': needs the longest possible response", mode);
    int64_t first = b->row_start[row];
    for (int64_t r = row; r < end; r++) {
        double n = row_tokens(b, r), w = n > 0 ? agg->weight(global, n) : 0;
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++)
            weight[t - first] = b->response_mask[t] ? (float)w : 0;
    }
    return ARES_OK;
}

int ares_agg_weights_micro(const char *mode, const ares_batch *b, const ares_micro_batch *micro,
                           int64_t n, int64_t total, double max_len, float *weight)
{
    for (int64_t i = 0; i < n; i++) {
        ares_agg_counts counts = { .max_len = max_len };
        int64_t first = b->row_start[micro[i].row], tokens = b->row_start[micro[i].end] - first;
        float *w = weight + (first - b->row_start[micro[0].row]);
        ares_agg_count(b, micro[i].row, micro[i].end, &counts);
        ARES_TRY(ares_agg_weights(mode, b, micro[i].row, micro[i].end, &counts, w));
        for (int64_t t = 0; t < tokens; t++) w[t] = (float)((double)w[t] / (double)total);
    }
    return ARES_OK;
}

/* DAPO's early stop: the mean ratio of tokens, and whether it is too large. */

bool ares_early_stop(const double *ratio, int ranks, double threshold, double *average)
{
    double sum = 0;
    for (int i = 0; i < ranks; i++) sum += ratio[i];
    if (average) *average = sum / ranks;
    /* written so that a NaN stops, too */
    return !ares_is_null_f64(threshold) && !(sum / ranks <= threshold);
}

void ares_ratio_sum(const ares_loss_args *a, double *sum, double *count)
{
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        *sum += ares_loss_exp(ares_loss_bound(loss_log_ratio(a, t)));
        *count += 1;
    }
}

/* What must hold between the options of the losses, and in a section of VAPOR. */

typedef struct report {
    ares_algo_complain *complain;
    void *ctx;
} report;

/* Reports an error ('e') or a warning ('w') of an option where `wrong`. */
static void say(const report *r, bool wrong, char severity, const char *option, const char *message)
{
    if (wrong) r->complain(r->ctx, severity, option, message);
}

void ares_loss_check(const ares_loss_config *c, ares_algo_complain *complain, void *ctx)
{
    report r = { complain, ctx };
    char text[160];
    const ares_loss *loss = ares_loss_find(c->loss_type);
    bool micro = strcmp(c->loss_norm, "micro") == 0, mask = strcmp(c->rollout_is_mode, "mask") == 0;
    if (!loss) return;
    /* 3: what the losses take where the option is not set (formula.h) */
    double dual = ares_is_null_f64(c->clip_ratio_dual) ? 3 : c->clip_ratio_dual;
    /* whether the loss, with this option, clips a third time (dual clip) */
    bool acts = (loss->clips & ARES_LOSS_CLIPS_DUAL) || !ares_is_null_f64(c->clip_ratio_dual);
    snprintf(text, sizeof text,
             "must lie above 1 + clip_ratio_high = %g, or it would cut every clipped token",
             1 + c->clip_ratio_high);
    say(&r, acts && (loss->clips & ARES_LOSS_CLIPS) && dual <= 1 + c->clip_ratio_high, 'e',
        "worker.actor.clip_ratio_dual", text);
    say(&r, (loss->clips & ARES_LOSS_CLIPS) && c->clip_ratio_high < c->clip_ratio_low, 'w',
        "worker.actor.clip_ratio_high",
        "lies below clip_ratio_low: the policy is let down further than up, which ends exploration "
        "early");
    say(&r, (loss->flags & ARES_LOSS_BATCH) && c->clip_cov_lb >= c->clip_cov_ub, 'e',
        "worker.actor.clip_cov_lb", "must lie below clip_cov_ub: no covariance is between them");
    (void)snprintf(text, sizeof text, "the loss %s is of the mini-batch as a whole; set minibatch",
                   loss->name);
    say(&r,
        (loss->flags & ARES_LOSS_BATCH) && strcmp(c->early_stop_scope, "micro") == 0 &&
            !ares_is_null_f64(c->early_stop_imp_ratio),
        'e', "worker.actor.early_stop_scope", text);
    say(&r,
        !ares_is_null_f64(c->rollout_is_threshold_lower) &&
            c->rollout_is_threshold_lower >= c->rollout_is_threshold,
        'e', "worker.actor.rollout_is_threshold_lower",
        "must lie below rollout_is_threshold: no weight is between them");
    say(&r,
        mask && ares_is_null_f64(c->rollout_is_threshold_lower) && c->rollout_is_threshold < 1 &&
            strcmp(c->rollout_is, "none") != 0,
        'e', "worker.actor.rollout_is_threshold",
        "its reciprocal, the smallest weight, lies above it; set rollout_is_threshold_lower");
    loss_check_correction(c, complain, ctx);
    say(&r, micro && strcmp(c->valid_token_scope, "rollout") == 0, 'w',
        "worker.actor.valid_token_scope", "has no effect with loss_norm: micro");
    say(&r,
        !ares_is_null_f64(c->loss_scale_factor) &&
            strcmp(c->loss_avg_mode, "seq-mean-token-sum-norm") != 0,
        'w', "worker.actor.loss_scale_factor",
        "divides in loss_avg_mode: seq-mean-token-sum-norm only");
}

/* Whether both tags of a pair are the same word. */
static bool same_tags(const ares_texts *tags)
{
    return tags->count == 2 && strcmp(tags->items[0], tags->items[1]) == 0;
}

void ares_vapor_check(const ares_vapor_config *c, int64_t num_generations,
                      ares_algo_complain *complain, void *ctx)
{
    static const char same[] = "both tags are the same: the span ends at the second occurrence";
    report r = { complain, ctx };
    say(&r, num_generations == 1, 'w', "worker.rollout.n",
        "one response has no other to compare with: its advantage is always 0");
    say(&r, same_tags(&c->verifiable_term_split), 'w', "vapor.verifiable_term_split", same);
    say(&r, same_tags(&c->preference_term_split), 'w', "vapor.preference_term_split", same);
    say(&r, c->dpo_coef != 0 && c->sync_ref_model, 'w', "vapor.dpo_coef",
        "DPO's reference moves, too, so that nothing holds its pairs back; set "
        "vapor.sync_ref_model=false (docs/vapor.md#dpo)");
}

/*
 * The critic's loss (docs/update.md#critic): half of the larger of two squared errors, that of the
 * value and that of the value clipped around the old one.
 */

int value_loss(const ares_value_args *a)
{
    ares_value_sums *s = a->sums;
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        double value = (double)a->value[t], old = (double)a->old_value[t],
               target = (double)a->target[t], w = (double)a->weight[t];
        /* checked here, where row and token of a bad number are known */
        bool finite = isfinite(value) && isfinite(old) && isfinite(target) && isfinite(w);
        char place[64];
        if (a->mask[t] != 1 || !finite)
            loss_place(a->row_start, a->row, a->end, a->first, t, place);
        if (a->mask[t] != 1)
            return ares_fail(ARES_ENUMERIC, "loss: value: mask of %s is %d: must be 0 or 1", place,
                             a->mask[t]);
        if (!finite)
            return ares_fail(ARES_ENUMERIC,
                             "loss: value: %s has value %g, old value %g, return %g, weight %g: "
                             "must be finite where the mask is 1",
                             place, value, old, target, w);
        ares_token_term e = ares_value_token(value, old, target, a->cliprange_value);
        a->d_value[t] += (float)(w * e.gradient);
        s->loss += w * e.loss;
        s->tokens += 1;
        s->clip += e.clip_high;
        s->value += value;
    }
    return ARES_OK;
}

ARES_OPTION_TABLE(ares_algorithm_options, ares_algorithm_config, ARES_ALGORITHM_OPTIONS);
ARES_OPTION_TABLE(ares_loss_options, ares_loss_config, ARES_LOSS_OPTIONS);
ARES_OPTION_TABLE(ares_vapor_options, ares_vapor_config, ARES_VAPOR_OPTIONS);

/*
 * The losses on a device: a card's or the CPU's functions, and what a card's have added up. After a
 * fault on a card the CPU computes the tokens too, and names the place.
 */

int ares_loss_compute(ares_device *d, const ares_loss *loss, const ares_loss_args *a,
                      const ares_kl_args *k)
{
    ares_times_begin(d, "loss");
    int rc = d->losses ? d->losses->loss(d, loss, a, k) : loss->compute(a);
    if (!d->losses && rc == ARES_OK) rc = loss_terms(a, k);
    ares_times_end(d);
    return rc;
}

int ares_loss_terms(ares_device *d, const ares_loss_args *a, const ares_kl_args *k)
{
    return d->losses ? d->losses->loss(d, NULL, a, k) : loss_terms(a, k);
}

/* The critic's loss where the critic computes. */
int ares_value_loss_on(ares_device *d, const ares_value_args *a)
{
    return d->losses ? d->losses->value(d, a) : value_loss(a);
}

/* ---------------------------------------------------------------- a card's sums */

void ares_card_sums_init(ares_card_sums *s)
{
    static_assert(SUM_WIDTH <= ARES_COUNT(s->sum), "ares_card_sums has room for every sum");
    *s = (ares_card_sums){ .fault = UINT64_MAX };
    s->sum[SUM_MIN] = INFINITY;
    s->sum[SUM_MAX] = -INFINITY;
}

void ares_card_sums_add(const ares_card_sums *s, ares_loss_sums *to)
{
#define ADD(name) to->name += s->sum[SUM_##name];
    ARES_LOSS_SUMS(ADD)
#undef ADD
    to->ratio_min = ARES_MIN(to->ratio_min, s->sum[SUM_MIN]);
    to->ratio_max = ARES_MAX(to->ratio_max, s->sum[SUM_MAX]);
    for (int i = 0; i < ARES_LOSS_BINS; i++) to->bins[i] += (double)s->bins[i];
}

void ares_card_value_sums_add(const ares_card_sums *s, ares_value_sums *to)
{
    int i = 0;
#define ADD(name) to->name += s->sum[i++];
    ARES_VALUE_SUMS(ADD)
#undef ADD
}

/* The card found a fault that the CPU does not, because their exp differ in the last bit. */
static int unnamed(const char *what)
{
    return ares_fail(ARES_ENUMERIC, "loss: %s: the device met a number that is not finite", what);
}

int ares_loss_fault(const ares_loss *loss, const ares_loss_args *host, const ares_kl_args *k)
{
    ares_loss_args a = *host;
    ares_loss_sums sums;
    ares_kl_args kl = k ? *k : (ares_kl_args){ 0 };
    /* the CPU's pass over copies: it finds the place, and what it adds up is thrown away */
    float *d = ares_calloc((size_t)a.n + 1, sizeof *d);
    ares_loss_sums_init(&sums);
    a.sums = &sums, a.d_log_prob = d, a.d_entropy = NULL;
    kl.out = kl.d_full = NULL;
    int rc = loss ? loss_check(&a, loss->name) : ARES_OK;
    if (rc == ARES_OK) rc = loss_terms(&a, k ? &kl : NULL);
    ares_free(d);
    return rc == ARES_OK ? unnamed(loss ? loss->name : "terms") : rc;
}

int ares_value_fault(const ares_value_args *host)
{
    ares_value_args a = *host;
    ares_value_sums sums = { 0 };
    float *d = ares_calloc((size_t)a.n + 1, sizeof *d);
    a.sums = &sums, a.d_value = d;
    int rc = value_loss(&a);
    ares_free(d);
    return rc == ARES_OK ? unnamed("value") : rc;
}
