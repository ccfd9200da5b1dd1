/*
 * Difficulty buckets of AEPO: which prompts are in which, their target numbers of HWE tokens, and
 * the weights of their entropy scores (docs/aepo.md#difficulty-targets-and-alphas).
 */
#include "buckets.h"

#include <math.h>

ares_difficulty difficulty_of(double accuracy)
{
    return accuracy >= 2.0 / 3.0 ? ARES_EASY : accuracy >= 1.0 / 3.0 ? ARES_MEDIUM : ARES_HARD;
}

ares_difficulty difficulty_find(ares_view name)
{
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        if (ares_view_is(name, ares_difficulty_names[d])) return (ares_difficulty)d;
    return ARES_DIFFICULTY_NONE;
}

double round_half_even(double x)
{
    double down = floor(x), part = x - down;
    if (part != 0.5) return part < 0.5 ? down : down + 1;
    return fmod(down, 2) == 0 ? down : down + 1;
}

int64_t aepo_target(double mean, double coef)
{
    return (int64_t)round_half_even(coef * mean);
}

/*
 * Weight of the entropy score: grows with mean - target where the score is a penalty (easy,
 * medium), with target - mean where it is a bonus (hard); kept in [min, max]. The target is that of
 * before this step.
 */
static double step_alpha(ares_difficulty d, double alpha, double mean, double target, double lr,
                         double min, double max)
{
    double delta = d == ARES_HARD ? target - mean : mean - target;
    return fmin(fmax(alpha + lr * delta, min), max);
}

void aepo_bucket(aepo_prompt *prompts, int64_t n, aepo_buckets *out)
{
    *out = (aepo_buckets){ 0 };
    for (int64_t i = 0; i < n; i++) {
        aepo_prompt *p = &prompts[i];
        double samples = (double)p->samples;
        ares_difficulty d = p->difficulty = difficulty_of(p->accuracy / samples);
        out->prompts[d]++;
        out->hwe[d] += p->hwe / samples;
        out->accuracy[d] += p->accuracy / samples;
        out->length[d] += p->length / samples;
    }
    for (int d = 0; d < ARES_DIFFICULTIES; d++) {
        double count = (double)ARES_MAX(out->prompts[d], 1);
        out->hwe[d] /= count;
        out->accuracy[d] /= count;
        out->length[d] /= count;
    }
}

void aepo_aim(const aepo_rates *rates, const aepo_buckets *buckets, aepo_aims *aims)
{
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        if (!buckets->prompts[d]) continue;
        bool known = aims->target_known[d];
        if (known)
            aims->alpha[d] = step_alpha((ares_difficulty)d, aims->alpha[d], buckets->hwe[d],
                                        (double)aims->target[d], rates->lr, rates->min, rates->max);
        /* between updates only a difficulty without a target gets one */
        if (known && !rates->renew) continue;
        aims->target[d] = aepo_target(buckets->hwe[d], rates->coef[d]);
        aims->target_known[d] = true;
    }
}

static double mean_hwe(const aepo_prompt *p)
{
    return p->hwe / (double)p->samples;
}

void aepo_too_easy(const aepo_prompt *prompts, int64_t n, double target_easy, double ratio,
                   bool *drop)
{
    double least = INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (prompts[i].difficulty == ARES_EASY) least = fmin(least, mean_hwe(&prompts[i]));
    double threshold = least + ratio * (target_easy - least);
    for (int64_t i = 0; i < n; i++)
        drop[i] =
            prompts[i].accuracy == (double)prompts[i].samples && mean_hwe(&prompts[i]) < threshold;
}

void accuracy_by_hwe(const int64_t *hwe, const double *accuracy, int64_t n, accuracy_bins *out)
{
    *out = (accuracy_bins){ 0 };
    int64_t least = hwe[0], most = hwe[0];
    for (int64_t i = 1; i < n; i++) {
        least = ARES_MIN(least, hwe[i]);
        most = ARES_MAX(most, hwe[i]);
    }
    for (int e = 0; e < 4; e++) out->edges[e] = least + e * (most - least) / 3;
    for (int64_t i = 0; i < n; i++) {
        int bin = hwe[i] >= out->edges[2] ? 2 : hwe[i] >= out->edges[1] ? 1 : 0;
        out->count[bin]++;
        out->accuracy[bin] += accuracy[i];
    }
    for (int i = 0; i < 3; i++)
        out->accuracy[i] = out->count[i] ? out->accuracy[i] / (double)out->count[i] : NAN;
}
