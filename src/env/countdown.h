/* Countdown's judgement of an answer. */
#ifndef ENV_COUNTDOWN_H
#define ENV_COUNTDOWN_H

#include "ares/core.h"

enum { COUNTDOWN_NUMBERS = 10 };
typedef struct countdown_problem {
    int n;
    int64_t number[COUNTDOWN_NUMBERS];
    double target;
} countdown_problem;

typedef enum { COUNTDOWN_WRONG_NUMBERS, COUNTDOWN_WRONG_VALUE, COUNTDOWN_RIGHT } countdown_verdict;
countdown_verdict countdown_judge(ares_view answer, const countdown_problem *p);

#endif
