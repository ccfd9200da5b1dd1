/* Prompts that are drawn together, and this rank's answers to its share. (draw.c) */
#ifndef ARES_TRAIN_COLLECT_DRAW_H
#define ARES_TRAIN_COLLECT_DRAW_H

#include "collect/answerer.h"

typedef struct draw {
    int64_t total, count; /* prompts: of all ranks, of this one */
    ares_drawn *prompts;  /* [total] */
    const int64_t *owner; /* [total] the ranks that answer them; NULL: ranks take turns */
    int64_t attempt;      /* how often they have been answered before in this step */
    /* this rank's share */
    ares_group *groups; /* [count] */
    int64_t tokens;     /* that were written, greedy baselines included */
} draw;

int64_t draw_owner(const draw *d, int64_t g, int64_t ranks);
/* The next `total` prompts of the source. */
int draw_prompts(ares_trainer *t, ares_arena *arena, int64_t total, draw *d);
/* The prompts of a draw whose groups were not kept, to be answered once more. */
void draw_again(ares_arena *arena, const bool *keep, draw *d);
/* Samples and judges this rank's share of the prompts. */
int draw_answer(ares_trainer *t, ares_arena *arena, draw *d, ares_metrics *m);
/* The scores of greedy answers to the prompts of groups, where the estimator compares with them. */
int draw_baselines(ares_trainer *t, ares_arena *arena, ares_group *groups, int64_t count,
                   int64_t *tokens, ares_metrics *m);
#endif
