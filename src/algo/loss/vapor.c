/*
 * VAPOR's loss: first its entry in the table of losses, then the loss itself, computed from sums
 * over spans of completions and stored pairs.
 */
#include "entry.h"

/*
 * loss_type vapor: one ratio per completion, with that of the row's stored pair of answers, which a
 * batch of tokens does not have. ares_vapor_loss below computes it.
 */

LOSS_OF_PAIRS(vapor, .words = "vapor",
              .doc = "one clipped ratio of verifiable span and stored preference",
              .formula = "-min(r' A, clip(r', 1 - low, 1 + high) A), log r' = clamp(S + beta "
                         "(L_chosen - L_rejected), -20, 20), S and L sums of log pi - log ref over "
                         "spans",
              .paper = "VAPOR", .reads = "vapor.*")

#ifndef LOSS_FORMULAS_ONLY
#include <math.h>
#include <string.h>

/*
 * VAPOR (docs/vapor.md#objective, docs/vapor.md#order-of-work): each completion has one ratio, to
 * the reference model, of its verifiable span and of the prompt's stored pair of answers. The loss
 * depends on log-probs through these sums only, so its derivatives are coefficients per span. A
 * trainer computes the log-probs of completions and pairs in one forward pass, calls
 * ares_vapor_loss, and runs the backward pass with the derivatives that it wrote. A DPO loss of the
 * same pairs may be added.
 */

/* Whether a log-ratio is a mean over its span. */
static bool by_mean(const ares_vapor_config *c)
{
    return strcmp(c->ratio_reduction, "mean") == 0;
}

/* Whether tags were found in a text. */
static bool has_span(const ares_vapor_text *t)
{
    return t->n > 0 && t->span_end > t->span;
}

/* Whether a token is not masked. */
static bool counts(const ares_vapor_text *t, int64_t token)
{
    return !t->mask || t->mask[token];
}

/* Tokens [first, end) that count. */
static double count(const ares_vapor_text *t, int64_t first, int64_t end)
{
    int64_t n = 0;
    for (int64_t i = first; i < end; i++) n += counts(t, i);
    return (double)n;
}

double vapor_log_ratio(const ares_vapor_text *t, bool mean, bool *finite)
{
    double sum = 0, n = count(t, t->span, t->span_end);
    for (int64_t i = t->span; i < t->span_end; i++)
        if (counts(t, i)) sum += (double)t->log_prob[i] - (double)t->ref_log_prob[i];
    /* a sum that is not finite counts as 0, and the caller counts it */
    *finite = isfinite(sum);
    if (n == 0 || !*finite) return 0;
    return mean ? sum / n : sum;
}

double vapor_ratio(double log_ratio, double bound)
{
    return ares_loss_exp(ares_loss_clamp(log_ratio, -bound, bound));
}

/* d_log_prob += c over the span. c: the loss's derivative by the span's log-ratio. */
static void pull(const ares_vapor_text *t, double c, bool mean)
{
    if (mean) c /= fmax(1, count(t, t->span, t->span_end));
    for (int64_t i = t->span; t->d_log_prob && i < t->span_end; i++)
        if (counts(t, i)) t->d_log_prob[i] += (float)c;
}

/* beta D: what the pair adds to a completion's log-ratio; without a pair, nothing. */
static double log_term(const ares_vapor_config *cfg, const ares_vapor_prompt *p)
{
    return p->usable ? cfg->beta * p->margin : 0;
}

/* How much more the policy prefers the chosen to the rejected answer than the reference does. */
static void preference(const ares_vapor_config *cfg, ares_vapor_prompt *p, ares_vapor_sums *s)
{
    bool chosen_finite = true, rejected_finite = true;
    p->usable = has_span(&p->chosen) && has_span(&p->rejected);
    if (p->usable) {
        double won = vapor_log_ratio(&p->chosen, by_mean(cfg), &chosen_finite),
               lost = vapor_log_ratio(&p->rejected, by_mean(cfg), &rejected_finite);
        p->usable = chosen_finite && rejected_finite;
        p->margin = won - lost;
        s->chosen += p->usable ? won : 0;
        s->rejected += p->usable ? lost : 0;
    }
    if (!p->usable) p->margin = NAN;
    p->term = vapor_ratio(log_term(cfg, p), cfg->log_ratio_clamp);
    /* s: sums over prompts, of which the metrics are means */
    s->nonfinite += !chosen_finite || !rejected_finite;
    s->usable += p->usable;
    s->margin += p->usable ? p->margin : 0;
    s->preferred += p->usable && p->margin > 0;
    s->term += p->term;
}

/*
 * The rewards less their mean over the prompt, where an answer without a span or with a reward that
 * is not finite counts with 0. Equal rewards give exactly 0.
 */
static void advantages(ares_vapor_prompt *p, ares_vapor_sums *s)
{
    double mean = 0;
    bool equal = true;
    for (int64_t i = 0; i < p->n; i++) {
        ares_vapor_completion_args *c = &p->completions[i];
        bool extracted = has_span(&c->text), finite = isfinite(c->reward);
        c->reward_used = extracted && finite ? c->reward : 0;
        s->nonfinite += !finite;
        s->extracted += extracted;
        s->reward += c->reward_used;
        s->reward_square += c->reward_used * c->reward_used;
        s->span_tokens += extracted ? (double)(c->text.span_end - c->text.span) : 0;
        /* the mean of equal numbers may differ from them in the last bit */
        equal = equal && c->reward_used == p->completions[0].reward_used;
        mean += c->reward_used / (double)p->n;
    }
    for (int64_t i = 0; i < p->n; i++)
        p->completions[i].advantage = equal ? 0 : p->completions[i].reward_used - mean;
    s->equal_groups += equal;
}

bool ares_vapor_has_pair(const ares_vapor_prompt *p)
{
    return p->n > 0 && p->chosen.n > 0 && p->rejected.n > 0;
}

/* DPO's log-ratios are sums over whole answers; ratio_reduction does not apply to them. */
static void dpo_loss(const ares_vapor_config *cfg, const ares_vapor_prompt *p, double pairs,
                     ares_vapor_sums *s)
{
    if (cfg->dpo_coef == 0 || !ares_vapor_has_pair(p)) return;
    ares_vapor_text chosen = p->chosen, rejected = p->rejected;
    bool chosen_finite, rejected_finite;
    /* copies whose span is the whole answer */
    chosen.span = rejected.span = 0;
    chosen.span_end = chosen.n;
    rejected.span_end = rejected.n;
    double difference = vapor_log_ratio(&chosen, false, &chosen_finite) -
                        vapor_log_ratio(&rejected, false, &rejected_finite);
    bool finite = chosen_finite && rejected_finite;
    s->nonfinite += !finite;
    if (!finite) return;
    ares_dpo_term e = ares_dpo_pair(difference, cfg->dpo_beta);
    pull(&chosen, cfg->dpo_coef * e.derivative / pairs, false);
    pull(&rejected, -cfg->dpo_coef * e.derivative / pairs, false);
    s->dpo_pairs += 1;
    s->dpo += e.loss;
    s->dpo_margin += difference;
    s->dpo_preferred += difference > 0;
}

/* totals: completions, tokens and pairs that the losses are divided by. */
static void prompt_loss(const ares_vapor_config *cfg, const ares_kl *kl, ares_vapor_prompt *p,
                        const double totals[3], ares_vapor_sums *s)
{
    double u_sum = 0;
    preference(cfg, p, s);
    advantages(p, s);
    for (int64_t i = 0; i < p->n; i++) {
        ares_vapor_completion_args *c = &p->completions[i];
        ares_vapor_text span = c->text;
        bool finite;
        if (!has_span(&span) && strcmp(cfg->failure_ratio, "full") == 0)
            span.span = 0, span.span_end = span.n;
        c->log_ratio = vapor_log_ratio(&span, by_mean(cfg), &finite);
        ares_vapor_term e =
            ares_vapor_completion(c->log_ratio + log_term(cfg, p), c->advantage, cfg->epsilon_low,
                                  cfg->epsilon_high, cfg->log_ratio_clamp);
        c->ratio = e.ratio;
        c->objective = e.objective;
        if (has_span(&span) && finite) pull(&span, -e.u / totals[0], by_mean(cfg));
        /* the KL of whole completions, and its derivative divided by the tokens */
        double tokens = totals[1];
        for (int64_t at = 0; at < c->text.n; at++) {
            if (!counts(&c->text, at)) continue;
            double x = (double)c->text.log_prob[at] - (double)c->text.ref_log_prob[at];
            s->tokens += 1;
            if (!isfinite(x)) {
                s->nonfinite += 1;
                continue;
            }
            s->kl += kl->value(x);
            if (c->text.d_log_prob && cfg->kl_coef != 0)
                c->text.d_log_prob[at] += (float)(cfg->kl_coef * kl->derivative(x) / tokens);
        }
        u_sum += e.u;
        s->completions += 1;
        s->objective += e.objective;
        s->log_ratio += c->log_ratio;
        s->log_ratio_max = fmax(s->log_ratio_max, fabs(c->log_ratio));
        s->ratio += e.ratio;
        s->ratio_max = e.ratio > s->ratio_max ? e.ratio : s->ratio_max;
        s->clip_low += e.clip_low;
        s->clip_high += e.clip_high;
        s->saturated += e.saturated;
    }
    dpo_loss(cfg, p, totals[2], s);
    s->prompts += 1;
    s->u_abs += fabs(cfg->beta * u_sum);
    s->u += p->usable ? cfg->beta * u_sum : 0;
    /* the pair's term is in the ratio of every completion, so its derivative is their sum */
    if (!p->usable || cfg->preference_detach || cfg->beta == 0) return;
    pull(&p->chosen, -cfg->beta * u_sum / totals[0], by_mean(cfg));
    pull(&p->rejected, cfg->beta * u_sum / totals[0], by_mean(cfg));
}

void ares_vapor_sums_init(ares_vapor_sums *s)
{
    *s = (ares_vapor_sums){ .ratio_max = -INFINITY };
}

/* Every member that simply adds up. */
/* clang-format off */
#define SUM_LIST(X) \
    X(prompts) X(completions) X(tokens) X(objective) X(kl) X(reward) X(extracted) X(usable) \
    X(margin) X(preferred) X(term) X(ratio) X(clip_low) X(clip_high) X(saturated) X(nonfinite) \
    X(u_abs) X(equal_groups) X(reward_square) X(span_tokens) X(lost) X(log_ratio) X(chosen) \
    X(rejected) X(u) X(dpo_pairs) X(dpo) X(dpo_margin) X(dpo_preferred)
/* clang-format on */

void ares_vapor_sums_add(ares_vapor_sums *s, const ares_vapor_sums *more)
{
#define ADD(name) s->name += more->name;
    SUM_LIST(ADD)
#undef ADD
    s->ratio_max = fmax(s->ratio_max, more->ratio_max);
    s->log_ratio_max = fmax(s->log_ratio_max, more->log_ratio_max);
}

int ares_vapor_sums_reduce(ares_vapor_sums *s, ares_world *w)
{
    double sums[32], bounds[2] = { s->ratio_max, s->log_ratio_max };
    int n = 0;
#define PUT(name) sums[n++] = s->name;
    SUM_LIST(PUT)
#undef PUT
    ARES_TRY(ares_world_sum_f64(w, sums, n));
    ARES_TRY(ares_world_max_f64(w, bounds, 2));
    n = 0;
#define TAKE(name) s->name = sums[n++];
    SUM_LIST(TAKE)
#undef TAKE
    s->ratio_max = bounds[0];
    s->log_ratio_max = bounds[1];
    return ARES_OK;
}

int ares_vapor_loss(const ares_vapor_config *cfg, const ares_kl *kl, ares_vapor_prompt *prompts,
                    int64_t n, const double totals[3], ares_vapor_sums *sums)
{
    /* totals NULL: the counts of these prompts alone, for a caller that has them all */
    double own[3] = { 0 };
    if (!kl->value)
        return ares_fail(ARES_EUNSUPPORTED,
                         "loss: vapor: kl_penalty = '%s': needs the logits of both models; take an "
                         "estimator (low_var_kl)",
                         kl->name);
    for (int64_t i = 0; i < n; i++) {
        own[0] += (double)prompts[i].n;
        own[2] += ares_vapor_has_pair(&prompts[i]);
        for (int64_t c = 0; c < prompts[i].n; c++) {
            const ares_vapor_text *t = &prompts[i].completions[c].text;
            ARES_ASSERT(t->span_end <= t->n && (t->span_end <= t->span || t->span >= 0));
            own[1] += count(t, 0, t->n);
        }
    }
    for (int64_t i = 0; i < n; i++)
        if (prompts[i].n) prompt_loss(cfg, kl, &prompts[i], totals ? totals : own, sums);
    return ARES_OK;
}

void ares_vapor_metrics(const ares_vapor_config *cfg, const ares_vapor_sums *s, ares_metrics *m)
{
    double n = s->completions, kl = s->tokens > 0 ? s->kl / s->tokens : 0, dpo = 0;
    if (n == 0) return;
    ares_metrics_set(m, "vapor/reward_mean", s->reward / n);
    /* sum of squares less n mean^2, with divisor n - 1; rounding may leave it below 0 */
    double mean = s->reward / n, spread = s->reward_square - n * mean * mean;
    ares_metrics_set(m, "vapor/reward_std", n > 1 ? sqrt(fmax(0, spread) / (n - 1)) : 0);
    ares_metrics_set(m, "vapor/extract_success_rate", s->extracted / n);
    ares_metrics_set(m, "vapor/map_failed_rate", s->lost / n);
    ares_metrics_set(m, "vapor/pref_success_rate", s->usable / s->prompts);
    if (s->usable > 0) { /* no pair has no difference: not one of 0 */
        ares_metrics_set(m, "vapor/pref_margin", s->margin / s->usable);
        ares_metrics_set(m, "vapor/pref_accuracy", s->preferred / s->usable);
        ares_metrics_set(m, "vapor/chosen_logratio", cfg->beta * s->chosen / s->usable);
        ares_metrics_set(m, "vapor/rejected_logratio", cfg->beta * s->rejected / s->usable);
        ares_metrics_set(m, "vapor/pref_grad_coef_mean", s->u / s->usable);
    }
    ares_metrics_set(m, "vapor/pref_term_mean", s->term / s->prompts);
    if (s->extracted > 0)
        ares_metrics_set(m, "vapor/span_tokens_mean", s->span_tokens / s->extracted);
    ares_metrics_set(m, "vapor/verifiable_log_ratio_mean", s->log_ratio / n);
    ares_metrics_set(m, "vapor/verifiable_log_ratio_absmax", s->log_ratio_max);
    ares_metrics_set(m, "vapor/hybrid_ratio_mean", s->ratio / n);
    ares_metrics_set(m, "vapor/hybrid_ratio_max", s->ratio_max);
    ares_metrics_set(m, "vapor/clip_frac_low", s->clip_low / n);
    ares_metrics_set(m, "vapor/clip_frac_high", s->clip_high / n);
    ares_metrics_set(m, "vapor/kl", kl);
    ares_metrics_set(m, "vapor/policy_loss", -s->objective / n);
    if (s->dpo_pairs > 0) {
        dpo = s->dpo / s->dpo_pairs;
        ares_metrics_set(m, "vapor/dpo_loss", dpo);
        ares_metrics_set(m, "vapor/dpo_margin", cfg->dpo_beta * s->dpo_margin / s->dpo_pairs);
        ares_metrics_set(m, "vapor/dpo_accuracy", s->dpo_preferred / s->dpo_pairs);
    }
    ares_metrics_set(m, "vapor/loss", -s->objective / n + cfg->kl_coef * kl + cfg->dpo_coef * dpo);
    ares_metrics_set(m, "vapor/zero_advantage_group_rate", s->equal_groups / s->prompts);
    ares_metrics_set(m, "vapor/saturated_frac", s->saturated / n);
    ares_metrics_set(m, "vapor/nonfinite", s->nonfinite);
    ares_metrics_set(m, "vapor/pref_grad_coef_absmean", s->u_abs / s->prompts);
}
#endif
