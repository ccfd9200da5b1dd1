/*
 * AEPO's entropy score. The sigmoid of a wrong answer starts at 1/2, so a wrong answer without any
 * exploration still gets half of its share of the cap: as published.
 */
#include "internal.h"

#include <math.h>

/* the published source's, a row per difficulty */
typedef struct constants {
    double margin_frac, kappa, temperature, cap_scale, wrong_factor;
} constants;
static const constants constants_of[ARES_DIFFICULTIES] = {
    [ARES_DIFFICULTY_NONE] = { 0.20, 2.0, 2.0, 1.0, 0.0 },
    [ARES_EASY] = { 0.15, 2.0, 2.0, 1.0, 0.6 },
    [ARES_MEDIUM] = { 0.25, 3.0, 2.5, 1.0, 0.8 },
    [ARES_HARD] = { 0.35, 4.0, 3.0, 1.2, 1.0 },
};

double entropy_huber(double x, double kappa)
{
    x = fmax(x, 0);
    return x <= kappa ? x * x / (2 * kappa) : x - kappa / 2;
}

double entropy_sigmoid(double x, double temperature)
{
    return 1 / (1 + ares_f64_exp(-x / fmax(temperature, 1e-6)));
}

double entropy_margin(double target, double frac, double least)
{
    return fmax(least, frac * fmax(target, 1));
}

/* -min(cap, share x huber(excess) / (margin + kappa) x cap) */
static double penalty(const constants *c, double excess, double share, double margin, double cap)
{
    return -fmin(cap, share * entropy_huber(excess, c->kappa) / (margin + c->kappa) * cap);
}

entropy_score_parts entropy_score(ares_difficulty d, double accuracy, double hwe, double target,
                                  double alpha)
{
    const constants *c = &constants_of[d];
    entropy_score_parts s = { .delta = hwe - target,
                              .margin = entropy_margin(target, c->margin_frac, 1),
                              .cap = alpha * c->cap_scale };
    if (accuracy != 1) /* a wrong answer: a share of the cap for exploring */
        s.entropy_score =
            entropy_sigmoid(fmax(s.delta - s.margin, 0), c->temperature) * s.cap * c->wrong_factor;
    else if (d == ARES_EASY) /* a penalty for HWE tokens beyond the target and its margin */
        s.entropy_score = penalty(c, s.delta - s.margin, 1, s.margin, s.cap);
    else if (d == ARES_MEDIUM) /* in either direction */
        s.entropy_score = penalty(c, fabs(s.delta) - s.margin, 1, s.margin, s.cap);
    else if (d == ARES_HARD) /* a bonus for exploring, half a penalty far below the target */
        s.entropy_score = s.delta >= -s.margin
                              ? entropy_sigmoid(s.delta + s.margin, c->temperature) * s.cap
                              : penalty(c, -s.delta - s.margin, 0.5, s.margin, s.cap);
    s.overall = accuracy + s.entropy_score;
    return s;
}

/* 0 without a control, which alone knows the difficulty of a prompt. */
static double shape(const ares_sample *s)
{
    if (s->difficulty == ARES_DIFFICULTY_NONE || isnan(s->accuracy)) return 0;
    return entropy_score((ares_difficulty)s->difficulty, (double)s->accuracy, s->hwe_count,
                         (double)s->hwe_target, (double)s->entropy_alpha)
        .entropy_score;
}

const reward_shaper reward_shaper_aepo = {
    .name = "aepo",
    .doc = "entropy score by difficulty, HWE tokens and their target",
    .metric = "reward/high_entropy_token_num_score",
    .shape = shape,
};
