/*
 * How much of what a policy thinks depends on what it reads (docs/diagnostics.md#collapse).
 * (measure_collapse.c)
 */
#ifndef ARES_TRAIN_REPORT_MEASURE_COLLAPSE_H
#define ARES_TRAIN_REPORT_MEASURE_COLLAPSE_H

#include "ares/data_trajectory.h"
#include "trainer.h"

/*
 * A turn of an episode: a prompt x, the tokens up to and including those that open the thought, and
 * the thought z itself, without the tokens that close it. z_len 0: the turn has no thought; it is
 * counted, and nothing is drawn from it. group: the same number on whatever rank, different for the
 * groups of a step; episode: its number within the group; turn: from 0.
 */
typedef struct collapse_turn {
    const int32_t *x;
    int32_t x_len;
    const int32_t *z;
    int32_t z_len;
    int64_t group, episode;
    int32_t turn;
} collapse_turn;

/* Whether the step at hand is measured: the first, and each multiple of report.collapse.freq. */
bool report_collapse_due(const ares_trainer *t);
/*
 * The metrics collapse/.., collapse_first_turn_sample/.. and collapse_trajectory_sample/.., from
 * this rank's turns of a step, before any filter. Nothing where the step is not measured. Changes
 * no bit of a run; the number of ranks, and how turns are spread over them, changes no bit of the
 * metrics. A collective.
 */
int report_collapse(ares_trainer *t, const collapse_turn *turns, int64_t n, ares_metrics *m);
/* The same of the answers of groups: the turns of conversations, or prompts and plain answers. */
int report_collapse_groups(ares_trainer *t, const ares_group *groups, int64_t count,
                           ares_metrics *m);
#endif
