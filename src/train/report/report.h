/*
 * Private to train: the metrics of a step, the file of its answers, and the measures of collapse
 * and of gradients.
 */
#ifndef ARES_TRAIN_REPORT_REPORT_H
#define ARES_TRAIN_REPORT_REPORT_H

#include "ares/core.h"
#include "ares/data.h"
#include "ares/data_source.h"
#include "trainer.h"

/*
 * How much a policy's thoughts depend on the prompts (docs/diagnostics.md#collapse). (collapse.c)
 */

/*
 * A turn of an episode: a prompt x, the tokens up to and including those that open the thought, and
 * the thought z itself, without the tokens that close it. z_len 0: the turn has no thought; it is
 * counted, but never drawn. group: a number of its own for each group of a step, the same on every
 * rank; episode: its number within the group; turn: from 0.
 */
typedef struct collapse_turn {
    const int32_t *x;
    int32_t x_len;
    const int32_t *z;
    int32_t z_len;
    int64_t group, episode;
    int32_t turn;
} collapse_turn;

/* Whether this step is measured: the first, and each multiple of report.collapse.freq. */
bool report_collapse_due(const ares_trainer *t);
/*
 * The metrics collapse/.., collapse_first_turn_sample/.. and collapse_trajectory_sample/.., from
 * this rank's turns of a step, before any filter. Nothing where the step is not measured. Changes
 * no bit of a run; the number of ranks, and how turns are spread over them, changes no bit of the
 * metrics. A collective.
 */
int report_collapse(ares_trainer *t, const collapse_turn *turns, int64_t n, ares_metrics *m);
/* The same for groups of answers: turns of conversations, or plain prompts and answers. */
int report_collapse_groups(ares_trainer *t, const ares_group *groups, int64_t count,
                           ares_metrics *m);

/* Answers that repeat themselves. (report.c) */

/* Whether this build has zlib, which the measure needs. */
bool repetition_known(void);
/*
 * Whether the text is longer than 10000 characters, and zlib at level 9 makes the last 10000 of
 * them more than ten times smaller.
 */
bool repetition_in(ares_view text);

/* The usual metrics of a batch, over all ranks. (report.c) */
int report_batch(const ares_trainer *t, const ares_batch *b, ares_metrics *m);
/*
 * Norms of the gradients that the terms of the loss have for groups of similar reward deviation
 * (docs/diagnostics.md#gradients-by-reward-variance). Trains nothing and changes no bit of a run.
 * After the batch has its advantages; a collective. (gradient_analysis.c)
 */
bool report_gradients_due(const ares_trainer *t);
int report_gradients(ares_trainer *t, const ares_batch *b, ares_metrics *m);
/* perf/.._memory_.._gb: the peak so far, of the rank with the most. A collective. (report.c) */
int report_memory(const training *t, ares_metrics *m);
/*
 * Distributions of the step for TensorBoard: entropies of tokens, and of the windows after them
 * where a control has computed these. A collective; tracker is NULL on ranks that write nothing.
 * (report.c)
 */
int report_histograms(const ares_trainer *t, ares_tracker *tracker);
/*
 * rollouts/step_<n>.jsonl, where trainer.rollout_log asks for it and this step has none yet: a JSON
 * line per row of the batch, of all ranks in rank order: prompt, answer, scores and advantage, and
 * columns of tokens. last: the run ends with this step, also where it is not the one that
 * trainer.max_steps names. A collective. (rollouts.c)
 */
int report_rollouts(ares_trainer *t, bool last);
/* The lines of that file, of all ranks, on every rank. A collective. (rollouts.c) */
int report_rows(const ares_trainer *t, ares_str *all);
/* False: the row's text was encoded anew (env.token_exact), so that nobody has sampled its tokens.
 */
bool report_has_entropies(const ares_trainer *t, const ares_sample *s);

/* Metrics of a step for each data set of a curriculum. (report.c) */

/* A sample that is trained on. */
typedef struct source_sample {
    int64_t place, index; /* they order samples: of the group in the batch; of the answer in it */
    int64_t part;         /* number of its data set */
    int64_t step;         /* of the curriculum */
    double weight, reward;
    double length, tokens; /* tokens of the answer: the policy's, and all */
} source_sample;

/* Samples of all ranks [n], in their order; m has the counts of dropped groups already. */
int sources_report(const ares_curriculum *c, const source_sample *x, int64_t n, ares_metrics *m);
#endif
