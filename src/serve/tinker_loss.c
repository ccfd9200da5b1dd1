/*
 * Tinker's losses, and the distribution that a sampled token's log-prob is of.
 *
 * The losses have names of the trainer's and are others: nothing is averaged, the client's bounds
 * are of the ratio itself, no log-ratio is clamped (src/algo/loss clamps at 20), and gspo takes the
 * ratio of tokens that a second mask marks. So they are functions of their own, of the arrays of
 * one datum, in double precision.
 */
#include "tinker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ares/kernels.h"

/* ---------------- losses */

enum { CROSS_ENTROPY, IMPORTANCE_SAMPLING, PPO, CISPO, GSPO, DRO };
/* Inputs beside target_tokens, in the order of tinker_loss_inputs. */
enum { WEIGHTS = 1, OLD_LOG_PROBS = 2, ADVANTAGES = 4, RATIO_MASK = 8 };
enum { BOUNDS = 1, BETA = 2 };
static const struct {
    const char *name;
    int needs, may, options;
} losses[] = {
    [CROSS_ENTROPY] = { "cross_entropy", 0, WEIGHTS, 0 },
    [IMPORTANCE_SAMPLING] = { "importance_sampling", OLD_LOG_PROBS | ADVANTAGES, 0, 0 },
    [PPO] = { "ppo", OLD_LOG_PROBS | ADVANTAGES, 0, BOUNDS },
    [CISPO] = { "cispo", OLD_LOG_PROBS | ADVANTAGES, 0, BOUNDS },
    [GSPO] = { "gspo", OLD_LOG_PROBS | ADVANTAGES | RATIO_MASK, 0, BOUNDS },
    [DRO] = { "dro", OLD_LOG_PROBS | ADVANTAGES, 0, BETA },
};
static const char *const input_names[] = { "weights", "logprobs", "advantages",
                                           "sequence_ratio_mask" };

int tinker_loss_find(ares_view loss_fn, const tinker_option *options, int n, tinker_loss *out)
{
    int kind = 0;
    *out = (tinker_loss){ .low = 0.8, .high = 1.2, .beta = 0.05 };
    while (kind < ARES_COUNT(losses) && !ares_view_is(loss_fn, losses[kind].name)) kind++;
    if (kind == ARES_COUNT(losses)) {
        bool trains_policy =
            ares_view_is(loss_fn, "stable_reinforce") || ares_view_is(loss_fn, "custom");
        return ares_fail(ARES_EUSE,
                         "loss_fn %.*s is not served; use %simportance_sampling, ppo, cispo, gspo "
                         "or dro",
                         (int)loss_fn.len, loss_fn.data, trains_policy ? "" : "cross_entropy, ");
    }
    out->kind = kind;
    out->clips = losses[kind].options & BOUNDS;
    for (int i = 0; i < n; i++) {
        const tinker_option *o = &options[i];
        const struct {
            const char *name;
            int of;
            double *to;
        } known[] = { { "clip_low_threshold", BOUNDS, &out->low },
                      { "clip_high_threshold", BOUNDS, &out->high },
                      { "beta", BETA, &out->beta } };
        int k = 0;
        while (k < ARES_COUNT(known) &&
               !(known[k].of & losses[kind].options && ares_view_is(o->name, known[k].name)))
            k++;
        if (k == ARES_COUNT(known))
            return ares_fail(ARES_EUSE, "loss_fn_config: %s has no option %.*s%s",
                             losses[kind].name, (int)o->name.len, o->name.data,
                             losses[kind].options & BOUNDS
                                 ? "; it has clip_low_threshold and clip_high_threshold"
                             : losses[kind].options & BETA ? "; it has beta"
                                                           : "");
        if (o->is_text)
            return ares_fail(ARES_EUSE, "loss_fn_config: %s: a text where a number belongs",
                             known[k].name);
        *known[k].to = o->number;
    }
    if (out->low > out->high)
        return ares_fail(ARES_EUSE,
                         "loss_fn_config: clip_low_threshold %g lies above clip_high_threshold %g",
                         out->low, out->high);
    return ARES_OK;
}

int tinker_loss_check(const tinker_loss *l, const tinker_datum *d, int64_t index, int32_t vocab,
                      int32_t context, ares_arena *arena, tinker_loss_inputs *inputs,
                      ares_tinker_datum *datum)
{
    const float **to[] = { &inputs->weights, &inputs->old_log_probs, &inputs->advantages,
                           &inputs->ratio_mask };
    const tinker_tensor *targets = NULL;
    int found = 0;
    *inputs = (tinker_loss_inputs){ 0 };
    for (int i = 0; i < d->n_inputs; i++) {
        const tinker_tensor *t = &d->inputs[i];
        int k = 0;
        if (ares_view_is(t->name, "target_tokens")) {
            targets = t;
            continue;
        }
        while (k < ARES_COUNT(input_names) && !ares_view_is(t->name, input_names[k])) k++;
        if (k == ARES_COUNT(input_names) ||
            !((losses[l->kind].needs | losses[l->kind].may) & 1 << k))
            return ares_fail(ARES_EUSE, "datum %lld: %.*s is no input of %s", (long long)index,
                             (int)t->name.len, t->name.data, losses[l->kind].name);
        *to[k] = t->f32;
        found |= 1 << k;
    }
    for (int k = 0; k < ARES_COUNT(input_names); k++)
        if (losses[l->kind].needs & ~found & 1 << k)
            return ares_fail(ARES_EUSE, "datum %lld: %s is missing", (long long)index,
                             input_names[k]);
    ARES_ASSERT(targets); /* the reader has looked */
    if (d->n > context)
        return ares_fail(ARES_EUSE, "datum %lld: %lld tokens exceed the context of %d",
                         (long long)index, (long long)d->n, context);
    inputs->cells = targets->shape[0] * targets->shape[1];
    if (inputs->cells > INT32_MAX)
        return ares_fail(ARES_EUSE, "datum %lld: target_tokens has more than %d cells",
                         (long long)index, INT32_MAX);
    for (int64_t i = 0; i < d->n; i++)
        if (d->tokens[i] < 0 || d->tokens[i] >= vocab)
            return ares_fail(ARES_EUSE,
                             "datum %lld: model_input: token %d at position %lld lies outside the "
                             "vocabulary of %d",
                             (long long)index, d->tokens[i], (long long)i, vocab);
    int32_t *ids = ares_arena_alloc(arena, (size_t)inputs->cells * sizeof *ids + 1);
    for (int64_t i = 0; i < inputs->cells; i++) {
        int64_t id = targets->i64[i];
        if (id < 0 || id >= vocab)
            return ares_fail(ARES_EUSE,
                             "datum %lld: target_tokens: token %lld at position %lld lies outside "
                             "the vocabulary of %d",
                             (long long)index, (long long)id, (long long)(i / targets->shape[1]),
                             vocab);
        ids[i] = (int32_t)id;
    }
    *datum = (ares_tinker_datum){
        .n = (int32_t)d->n, .k = (int32_t)targets->shape[1], .tokens = d->tokens, .targets = ids
    };
    return ARES_OK;
}

int tinker_loss_axes(const tinker_datum *d)
{
    int axes = 1;
    for (int i = 0; i < d->n_inputs; i++)
        if (ares_view_is(d->inputs[i].name, "target_tokens")) axes = d->inputs[i].axes;
    return axes;
}

/* x times a, where 0 of either wins over infinity of the other. */
static double product(double x, double a)
{
    return x == 0 || a == 0 ? 0 : x * a;
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* Mean of the log-ratio over marked cells; 0 where none is. */
static double marked_log_ratio(const tinker_loss_inputs *in)
{
    double sum = 0, n = 0;
    for (int64_t i = 0; i < in->cells; i++) {
        if (in->ratio_mask[i] == 0) continue;
        sum += (double)in->log_probs[i] - (double)in->old_log_probs[i];
        n++;
    }
    return n > 0 ? sum / n : 0;
}

void tinker_loss_of(const tinker_loss *l, const tinker_loss_inputs *in, double *sum,
                    int64_t *clipped, float *derivative, double *each)
{
    double sequence = l->kind == GSPO ? ares_f64_exp(marked_log_ratio(in)) : 0;
    for (int64_t i = 0; i < in->cells; i++) {
        double p = (double)in->log_probs[i], loss = 0, by_p = 0;
        double a = in->advantages ? (double)in->advantages[i] : 0;
        double x = in->old_log_probs ? p - (double)in->old_log_probs[i] : 0;
        double ratio = l->kind == GSPO ? sequence : ares_f64_exp(x);
        double bounded = clamp(ratio, l->low, l->high);
        switch (l->kind) {
        case CROSS_ENTROPY:
            by_p = in->weights ? -(double)in->weights[i] : -1;
            loss = product(by_p, p);
            break;
        case IMPORTANCE_SAMPLING: loss = by_p = -product(ratio, a); break;
        case PPO:
        case GSPO: { /* of equal ones the ratio's own passes its gradient */
            double own = product(ratio, a), other = product(bounded, a);
            bool clips = other < own;
            loss = clips ? -other : -own;
            by_p = clips ? 0 : -own;
            *clipped += clips;
            break;
        }
        case CISPO:
            by_p = -product(bounded, a);
            loss = product(by_p, p);
            *clipped += a != 0 && bounded != ratio;
            break;
        default: /* DRO */
            by_p = -(a - l->beta * x);
            loss = -(product(p, a) - 0.5 * l->beta * x * x);
        }
        *sum += loss;
        if (derivative) derivative[i] = (float)by_p;
        if (each) each[i] = loss;
    }
}

/* ---------------- the distribution a token is drawn from */

typedef struct candidate {
    double z;
    int32_t token;
} candidate;

/* Higher first, then the lower id. */
static int by_rank(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->z != y->z ? ARES_CMP(y->z, x->z) : ARES_CMP(x->token, y->token);
}

/* The tokens at most `depth` below the largest, sorted. Returns how many. */
static int32_t rank(const double *z, int32_t vocab, double largest, double depth, candidate *out)
{
    int32_t n = 0;
    for (int32_t t = 0; t < vocab; t++)
        if (z[t] >= largest - depth) out[n++] = (candidate){ z[t], t };
    qsort(out, (size_t)n, sizeof *out, by_rank);
    return n;
}

/*
 * How many of the n best tokens are left, `vocab` being all; -1: more than these n have to be
 * looked at. The masses are relative to the largest's.
 */
static int32_t cut(const candidate *best, int32_t n, int32_t vocab, double largest, int32_t top_k,
                   double top_p, double total)
{
    int32_t k = top_k < 0 ? vocab : ARES_MIN(top_k, vocab);
    double sum = 0;
    if (top_p >= 1) return k <= n ? k : -1;
    if (top_k >= 0) { /* top_p is a share of what top_k leaves */
        if (k > n) return -1;
        total = 0;
        for (int32_t i = 0; i < k; i++) total += ares_f64_exp(best[i].z - largest);
    }
    for (int32_t i = 0; i < ARES_MIN(n, k); i++) {
        sum += ares_f64_exp(best[i].z - largest);
        if (sum >= top_p * total) return i + 1;
    }
    return n < k ? -1 : k;
}

void tinker_distribution(const float *logits, int32_t vocab, double temperature, int32_t top_k,
                         double top_p, int32_t drawn, double *log_probs)
{
    static const double depths[] = { 8, 24, (double)INFINITY };
    bool greedy = temperature == 0, cuts = !greedy && (top_k >= 0 || top_p < 1);
    int32_t best = 0, left = vocab;
    double largest, total = 0, sum = 0;
    for (int32_t t = 0; t < vocab; t++)
        log_probs[t] = (double)logits[t] / (greedy ? 1 : temperature);
    for (int32_t t = 1; t < vocab; t++)
        if (log_probs[t] > log_probs[best]) best = t;
    largest = log_probs[best];
    for (int32_t t = 0; t < vocab; t++) total += ares_f64_exp(log_probs[t] - largest);
    if (!isfinite(total)) { /* weights that have diverged */
        for (int32_t t = 0; t < vocab; t++) log_probs[t] = (double)NAN;
        return;
    }
    if (cuts) {
        candidate *c = ares_malloc((size_t)vocab * sizeof *c);
        int32_t n = 0;
        for (int i = 0; (left = cut(c, n, vocab, largest, top_k, top_p, total)) < 0; i++)
            n = rank(log_probs, vocab, largest, depths[i], c);
        candidate last = c[left - 1]; /* of those that are left */
        ares_free(c);
        for (int32_t t = 0; t < vocab; t++) {
            candidate x = { log_probs[t], t };
            if (by_rank(&x, &last) > 0 && t != drawn) log_probs[t] = -(double)INFINITY;
        }
    }
    for (int32_t t = 0; t < vocab; t++) sum += ares_f64_exp(log_probs[t] - largest);
    for (int32_t t = 0; t < vocab; t++) {
        bool out = greedy && t != best && t != drawn;
        log_probs[t] = out ? -(double)INFINITY : log_probs[t] - largest - ares_f64_log(sum);
    }
}

void tinker_top(const double *log_probs, int32_t vocab, int32_t k, int32_t *tokens,
                float *of_tokens)
{
    candidate *best = ares_malloc((size_t)k * sizeof *best + 1);
    int32_t n = 0;
    for (int32_t t = 0; t < vocab;
         t++) { /* kept in order by insertion: most tokens come too late */
        candidate x = { log_probs[t], t };
        if (x.z == -(double)INFINITY || (n == k && (k == 0 || by_rank(&best[n - 1], &x) < 0)))
            continue;
        int32_t at = n < k ? n++ : n - 1;
        for (; at > 0 && by_rank(&x, &best[at - 1]) < 0; at--) best[at] = best[at - 1];
        best[at] = x;
    }
    for (int32_t i = 0; i < k; i++) {
        tokens[i] = i < n ? best[i].token : TINKER_NO_TOKEN;
        of_tokens[i] = i < n ? (float)best[i].z : TINKER_NO_LOG_PROB;
    }
    ares_free(best);
}
