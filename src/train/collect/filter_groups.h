/* The rounds of draws that make a step's batch, and what filters see of them. (filter_groups.c) */
#ifndef ARES_TRAIN_COLLECT_FILTER_GROUPS_H
#define ARES_TRAIN_COLLECT_FILTER_GROUPS_H

#include "ares/algo_filter.h"
#include "collect/draw.h"

/* Of one answer: the reward manager's score before any shaping, and as the batch would have it. */
typedef struct answer_numbers {
    double score, overall, accuracy, length, entropy;
    uint8_t valid; /* not discarded */
} answer_numbers;

typedef struct rounds {
    ares_resampling draws;
    ares_oversampling over; /* batch 0: groups are taken draw by draw */
    /* the filters that see each draw, and the one that sees the batch */
    ares_filter_config of_draws, of_batch;
    bool looks;          /* any filter is wanted, or answers are dropped */
    bool drops;          /* discarded answers leave the batch */
    bool empty;          /* no group is left to train on */
    int64_t filled_from; /* ares_batch.filled_from */
    bool same_prompt;    /* a dropped group is answered again, not replaced by another prompt */
    ares_filter_counts counts;
    int64_t *kept, *dropped; /* groups, numbered as they were drawn in the step */
    /* since the last draw of which a group was kept */
    int64_t idle_draws, idle_prompts;
    draw last;
    bool *keep;          /* [last.total]: its groups that stay */
    ares_drawn *prompts; /* [draws.drawn] */
    /* where filters look, of all ranks: of group g [first[g], first[g + 1]) */
    answer_numbers *numbers;
    int64_t *first; /* [draws.drawn + 1] */
    double *caps;   /* [draws.drawn] of the mean score; NaN: none */
    /* over this rank's answers that were judged right or wrong and not discarded: sum, number */
    double right[2];
    /* of this rank's answers: how many were discarded for their length, how many failed, and how
     * many there are */
    double discarded, failed, answers;
    double tokens; /* of this rank's answers, greedy baselines included */
} rounds;

/*
 * r->keep: which groups of the last draw stay. Filters see the groups of all ranks, in the order of
 * the draw, and decide alike on every rank. A collective.
 */
int filter_last_draw(ares_trainer *t, rounds *r, ares_arena *arena, ares_metrics *m);
/* Some of the groups drawn in the step, as filters take them. */
ares_groups filter_view(const ares_trainer *t, const rounds *r, const int64_t *ids, int64_t groups,
                        ares_arena *arena);
/* Controls see every group that is answered, the dropped ones included. */
int filter_show_generated(ares_trainer *t, const draw *d);
#endif
