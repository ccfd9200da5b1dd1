/*
 * reward: what is added to a score from the batch, as pure functions in double.
 */
#ifndef ARES_REWARD_SHAPE_H
#define ARES_REWARD_SHAPE_H

#include "ares/data.h"

/* ---------------- AEPO's entropy score (shape/aepo.c; aepo.md 3.2)
 * Right answers: to easy prompts a penalty for too many HWE tokens, to medium ones for being off
 * the target either way, to hard ones a bonus that turns into a penalty far below it. Wrong answers
 * get a share of the cap for exploring. Constants are the published source's, a row a difficulty.
 */
typedef struct ares_aepo_constants {
    double margin_frac, kappa, temperature, cap_scale, wrong_factor;
} ares_aepo_constants;
/* ARES_DIFFICULTY_NONE: of any other word; its entropy score is 0 */
extern const ares_aepo_constants ares_aepo_constants_of[ARES_DIFFICULTIES];
/* x^2 / (2 kappa) up to kappa, then x - kappa / 2; 0 below 0 */
double ares_aepo_huber(double x, double kappa);
/* 1 / (1 + exp(-x / temperature)), the temperature at least 1e-6 */
double ares_aepo_sigmoid(double x, double temperature);
/* max(least, frac x max(target, 1)) */
double ares_aepo_margin(double target, double frac, double least);
/* overall = accuracy + entropy_score */
typedef struct ares_aepo_score {
    double delta, margin, cap, entropy_score, overall;
} ares_aepo_score;
/*
 * hwe: the answer's number of HWE tokens, target: what it should be, alpha: weight of the score.
 * Right is an accuracy of exactly 1.
 */
ares_aepo_score ares_aepo_entropy_score(ares_difficulty d, double accuracy, double hwe,
                                        double target, double alpha);
#endif
