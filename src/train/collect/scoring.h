/* Answers on their way through the reward manager. (scoring.c) */
#ifndef ARES_TRAIN_COLLECT_SCORING_H
#define ARES_TRAIN_COLLECT_SCORING_H

#include "collect/answerer.h"

typedef struct scoring {
    ares_reward *reward;
    const ares_tokenizer *tokenizer;
    bool skip_special_tokens;
    bool votes;                    /* answers are asked for, which majorities count */
    const ares_vapor_config *span; /* only a part of an answer is judged; NULL: all of it */
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
 * Waits for the scores of all that was queued, and writes them to their trajectories. m (may be
 * NULL) counts the time.
 */
void scoring_wait(scoring *s, ares_metrics *m);
/* Waits likewise. To be called after failures, too: the reward manager reads the arena. */
void scoring_close(scoring *s, ares_metrics *m);
#endif
