/*
 * The entropy score of AEPO. A wrong answer's sigmoid starts at 1/2, so it has a floor even with no
 * exploration at all: as published.
 */
#include "ares/reward.h"
#include "ares/reward_shape.h"

#include <math.h>

const ares_aepo_constants ares_aepo_constants_of[ARES_DIFFICULTIES] = {
    [ARES_DIFFICULTY_NONE] = { 0.20, 2.0, 2.0, 1.0, 0.0 },
    [ARES_EASY] = { 0.15, 2.0, 2.0, 1.0, 0.6 },
    [ARES_MEDIUM] = { 0.25, 3.0, 2.5, 1.0, 0.8 },
    [ARES_HARD] = { 0.35, 4.0, 3.0, 1.2, 1.0 },
};

double ares_aepo_huber(double x, double kappa)
{
    x = fmax(x, 0);
    return x <= kappa ? x * x / (2 * kappa) : x - kappa / 2;
}

double ares_aepo_sigmoid(double x, double temperature)
{
    return 1 / (1 + ares_f64_exp(-x / fmax(temperature, 1e-6)));
}

double ares_aepo_margin(double target, double frac, double least)
{
    return fmax(least, frac * fmax(target, 1));
}

static double penalty(const ares_aepo_constants *c, double excess, double share, double margin,
                      double cap)
{
    return -fmin(cap, share * ares_aepo_huber(excess, c->kappa) / (margin + c->kappa) * cap);
}

static double of_right(ares_difficulty d, const ares_aepo_constants *c, double delta, double margin,
                       double cap)
{
    switch (d) {
    case ARES_EASY: return penalty(c, delta - margin, 1, margin, cap);
    case ARES_MEDIUM: return penalty(c, fabs(delta) - margin, 1, margin, cap);
    case ARES_HARD:
        return delta >= -margin ? ares_aepo_sigmoid(delta + margin, c->temperature) * cap
                                : penalty(c, -delta - margin, 0.5, margin, cap);
    default: return 0;
    }
}

ares_aepo_score ares_aepo_entropy_score(ares_difficulty d, double accuracy, double hwe,
                                        double target, double alpha)
{
    const ares_aepo_constants *c = &ares_aepo_constants_of[d];
    ares_aepo_score s = { .delta = hwe - target,
                          .margin = ares_aepo_margin(target, c->margin_frac, 1),
                          .cap = alpha * c->cap_scale };
    s.entropy_score = accuracy == 1
                          ? of_right(d, c, s.delta, s.margin, s.cap)
                          : ares_aepo_sigmoid(fmax(s.delta - s.margin, 0), c->temperature) * s.cap *
                                c->wrong_factor;
    s.overall = accuracy + s.entropy_score;
    return s;
}

/* Without a control nothing is known of the prompt, and nothing is added. */
static double shape(const ares_sample *s)
{
    if (s->difficulty == ARES_DIFFICULTY_NONE || isnan(s->accuracy)) return 0;
    return ares_aepo_entropy_score((ares_difficulty)s->difficulty, (double)s->accuracy,
                                   s->hwe_count, (double)s->hwe_target, (double)s->entropy_alpha)
        .entropy_score;
}

const ares_shaper ares_shaper_aepo = { "aepo",
                                       "entropy score by difficulty, HWE tokens and their target",
                                       "reward/high_entropy_token_num_score", shape };
