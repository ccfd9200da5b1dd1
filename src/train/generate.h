#ifndef ARES_TRAIN_GENERATE_H
#define ARES_TRAIN_GENERATE_H

#include "trainer.h"

typedef struct generate_job {
    int64_t n_prompts, n;        /* n: samples of each prompt */
    const ares_row *const *rows; /* [n_prompts] */
    const int64_t *draws;        /* [n_prompts]: their numbers, part of the sampling key */
    const ares_sampling *sampling;
    ares_rng_key key;
    uint64_t attempt;      /* how often these prompts have been answered before in the step */
    ares_metrics *metrics; /* may be NULL */
} generate_job;
typedef struct generate_sample {
    ares_completion completion; /* in the engine's memory, until its next clear */
    ares_reward_item item;
    /* too long: no part of losses and metrics (docs/dapo.md#answers-beyond-the-limit) */
    bool discarded;
    uint8_t *hwe_candidates; /* [n_tokens]; NULL: every token is one */
} generate_sample;

/* The configured sampling; stop ids are added by generate_samples. */
void generate_sampling(const ares_train_config *c, ares_sampling *out);
/* Samples and judges all prompts of a job; out [n_prompts * n] in prompt order, in the arena. */
int generate_samples(ares_trainer *t, const generate_job *job, ares_arena *arena,
                     generate_sample **out);
/* Copies the samples' arrays into the arena: the engine forgets them at the next call. */
void generate_keep(generate_sample *s, int64_t n, ares_arena *arena);
/* Marks answers that algorithm.mask_truncated or worker.reward.max_length discard. */
void generate_discard(const ares_trainer *t, generate_sample *s, int64_t n);
/* One answered prompt. */
typedef struct generate_group {
    int64_t draw;
    const ares_row *row;
    generate_sample *samples; /* [n] */
    float baseline;           /* score of the greedy answer */
    int64_t place;            /* among the groups drawn in the step, then in the batch */
    bool masked;              /* it only fills the batch: its mask is 0 */
    bool thinned;             /* discarded answers have no row */
} generate_group;
/* Groups as rows of an empty batch, with the columns that rollout owns. */
void generate_fill(ares_batch *b, const generate_group *groups, int64_t count, int64_t n,
                   int64_t version);
/*
 * Answers to rows of a data set outside of a step's batch, at another key: a pass never shifts what
 * training samples.
 */
typedef struct generate_pass {
    const ares_dataset *data;
    const ares_sampling *sampling;
    int64_t n; /* samples of each prompt */
    enum { GENERATE_VALIDATION, GENERATE_BOOTSTRAP } key;
} generate_pass;
/* Rows [at, end), this rank's share of them, in the arena: out [*count]. */
int generate_rows(ares_trainer *t, const generate_pass *p, int64_t at, int64_t end,
                  ares_arena *arena, generate_group **out, int64_t *count);
/*
 * Fills a batch with the groups of the step that this rank trains on: samples with their scores,
 * and the columns that rollout owns. (collect.c)
 */
int collect_groups(ares_trainer *t, ares_batch *b, ares_metrics *m);
#endif
