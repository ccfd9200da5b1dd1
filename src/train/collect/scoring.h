/* Answers on their way through the reward manager. (scoring.c) */
#ifndef ARES_TRAIN_COLLECT_SCORING_H
#define ARES_TRAIN_COLLECT_SCORING_H

#include "collect/answer.h"

typedef struct scoring {
    ares_reward *reward;
    const ares_tokenizer *tokenizer;
    bool skip_special_tokens;
    ares_arena *arena;
    ares_str text; /* scratch */
    struct judged *first;
} scoring;

void scoring_open(scoring *s, const ares_trainer *t, ares_arena *arena);
/*
 * Queues an answer of one row to a data row's prompt. It is judged while others decode; the
 * trajectory must stay where it is.
 */
int scoring_submit(scoring *s, const ares_row *row, ares_trajectory *y);
/*
 * Waits for all scores and writes them to their trajectories. To be called after failures, too: the
 * reward manager reads the arena. m (may be NULL) counts the time.
 */
void scoring_close(scoring *s, ares_metrics *m);
#endif
