/*
 * Who answers prompts. An answerer turns prompts into groups of trajectories with their scores; a
 * step, the validation and the bootstrap pass know no more of it. (answer_engine.c)
 */
#ifndef ARES_TRAIN_COLLECT_ANSWERER_H
#define ARES_TRAIN_COLLECT_ANSWERER_H

#include "ares/data_trajectory.h"
#include "trainer.h"

typedef struct answer_prompt {
    const ares_row *row;
    int64_t draw; /* its number, part of the sampling key */
    /* what was answered before: whole answers stay, those that were cut go on; NULL: nothing */
    const ares_group *begun;
    /* of a mixture of data sets: as ares_drawn has them */
    int64_t local, source_step;
    double source_weight;
} answer_prompt;
answer_prompt answer_prompt_of(const ares_source *s, const ares_drawn *d);
typedef struct answer_job {
    int64_t n_prompts;
    int32_t n;                    /* answers to each */
    const answer_prompt *prompts; /* [n_prompts] */
    const ares_sampling *sampling;
    ares_rng_key key;
    bool votes;            /* majorities of the answers are counted */
    bool baseline;         /* greedy answers to compare with: no metric of answers counts them */
    int64_t attempt;       /* how often these prompts have been answered before in the step */
    ares_metrics *metrics; /* may be NULL */
} answer_job;

/*
 * Answers and judges all prompts of a job: out [n_prompts], in the arena with all they point to.
 * What is written depends on the job and the weights alone, not on the order in which answers end.
 */
typedef struct answerer {
    const char *name;
    int (*answer)(ares_trainer *t, const answer_job *job, ares_arena *arena, ares_group *out);
    /*
     * Scores of a draw that depend on the answers of all ranks; a collective, after all ranks have
     * answered. NULL: none does.
     */
    int (*normalise)(ares_trainer *t, ares_group *groups, int64_t count, ares_arena *arena);
    /* Metrics of all that was answered since the last report; a collective. NULL: none. */
    int (*report)(ares_trainer *t, const char *prefix, ares_metrics *m);
} answerer;
/* The policy answers the prompt by itself, in one turn. */
extern const answerer answer_engine;

/* The configured sampling; the answerer adds stop ids. */
void answer_sampling(const ares_train_config *c, ares_sampling *out);
/* Whether answers that could not be judged, or whose environments failed, are discarded. */
bool answer_discards_failures(const ares_trainer *t);
/*
 * Marks answers that algorithm.mask_truncated or worker.reward.max_length discard, or that failed.
 */
void answer_discard(const ares_trainer *t, ares_group *groups, int64_t count);
/*
 * Answers to rows of a source outside of a step's batch, at another key: a pass never shifts what
 * training samples.
 */
enum { ANSWER_VALIDATION, ANSWER_BOOTSTRAP, ANSWER_EVALUATION /* and on: one per data set */ };
typedef struct answer_pass {
    const ares_source *source;
    const ares_sampling *sampling;
    int64_t n; /* answers to each prompt */
    int64_t key;
} answer_pass;
/* Tells the progress of answers to come, to so many prompts of this rank. */
void answer_expect(const ares_trainer *t, int64_t prompts, int64_t n);
/* Rows that answer_rows gives this rank, of all rows [0, count) of a source. */
int64_t answer_share(const ares_trainer *t, int64_t count);
/* Rows [at, end), this rank's share of them, in the arena: out [*count]. */
int answer_rows(ares_trainer *t, const answer_pass *p, int64_t at, int64_t end, ares_arena *arena,
                ares_group **out, int64_t *count);
#endif
