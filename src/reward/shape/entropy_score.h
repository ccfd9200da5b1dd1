/*
 * AEPO's entropy score (docs/aepo.md#entropy-score), in double. Right answers to easy prompts get a
 * penalty for too many HWE tokens, those to medium prompts one for being off the target in either
 * direction, those to hard prompts a bonus that turns into a penalty far below the target. Wrong
 * answers get a share of the cap for exploring.
 */
#ifndef ARES_REWARD_SHAPE_ENTROPY_SCORE_H
#define ARES_REWARD_SHAPE_ENTROPY_SCORE_H

#include "ares/data.h"

/* x^2 / (2 kappa) up to kappa, then x - kappa / 2; 0 below 0 */
double entropy_huber(double x, double kappa);
/* 1 / (1 + exp(-x / temperature)), the temperature at least 1e-6 */
double entropy_sigmoid(double x, double temperature);
/* max(least, frac x max(target, 1)) */
double entropy_margin(double target, double frac, double least);

typedef struct entropy_score_parts {
    double delta;         /* hwe - target */
    double margin;        /* deviation without a penalty */
    double cap;           /* the largest penalty or bonus */
    double entropy_score; /* 0 for a difficulty that is none of the three */
    double overall;       /* accuracy + entropy_score */
} entropy_score_parts;
/*
 * hwe: the answer's number of HWE tokens; target: what it should be; alpha: weight of the score. An
 * answer is right when its accuracy is exactly 1.
 */
entropy_score_parts entropy_score(ares_difficulty d, double accuracy, double hwe, double target,
                                  double alpha);
#endif
