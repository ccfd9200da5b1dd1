/* Answers on their way through the reward manager. (judge.c) */
#ifndef ARES_TRAIN_COLLECT_JUDGE_H
#define ARES_TRAIN_COLLECT_JUDGE_H

#include "collect/answer.h"

typedef struct judge {
    ares_reward *reward;
    const ares_tokenizer *tokenizer;
    bool skip_special_tokens;
    ares_arena *arena;
    ares_str text; /* scratch */
    struct judged *first;
} judge;

void judge_open(judge *j, const ares_trainer *t, ares_arena *arena);
/*
 * Queues an answer of one row to a data row's prompt. It is judged while others decode; the
 * trajectory must stay where it is.
 */
int judge_submit(judge *j, const ares_row *row, ares_trajectory *y);
/*
 * Waits for all scores and writes them to their trajectories. To be called after failures, too: the
 * reward manager reads the arena. m (may be NULL) counts the time.
 */
void judge_close(judge *j, ares_metrics *m);
#endif
