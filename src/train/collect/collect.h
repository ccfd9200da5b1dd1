/*
 * Private to train: how the groups of a step are drawn, answered, scored, filtered, chosen, and
 * given to the ranks that train on them. step.c calls collect_groups alone; the rest is for this
 * folder, agents/, validation and the bootstrap pass.
 */
#ifndef ARES_TRAIN_COLLECT_COLLECT_H
#define ARES_TRAIN_COLLECT_COLLECT_H

#include <stdbool.h>
#include <stdint.h>

#include "ares/algo_filter.h"
#include "ares/core.h"
#include "ares/data.h"
#include "trainer.h"

/* Rows of a step brought to whole mini-batches. (exchange.c) */

/*
 * Does what algorithm.batch_adjust_mode asks for, where mini-batches count rows, and writes the
 * metrics train/batch_size and train/num_mini_batches. A rank may have no row afterwards. A
 * collective.
 */
int adjust_batch(const ares_train_config *cfg, const ares_adv *adv, ares_world *world, int64_t step,
                 ares_batch *b, ares_metrics *m);

/*
 * Who answers prompts. A generator turns prompts into groups of trajectories with their scores. A
 * step, a validation and the bootstrap pass use it through this struct alone: in one turn by the
 * policy (answer.c), or as episodes in environments (agents/agents.c).
 */

typedef struct answer_prompt {
    const ares_row *row;
    int64_t draw; /* number of the draw, part of the sampling key */
    /* what was answered before: whole answers stay, those that were cut go on; NULL: nothing */
    const ares_group *partial;
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
    bool trains;           /* the answers make the batch of a step */
    bool baseline;         /* greedy answers to compare with: no metric of answers counts them */
    int64_t attempt;       /* how often these prompts have been answered before in the step */
    ares_metrics *metrics; /* may be NULL */
} answer_job;

/*
 * Answers and judges all prompts of a job: out [n_prompts], in the arena with all they point to.
 * What is written depends on the job and the weights alone, not on the order in which answers end.
 */
typedef struct generator {
    int (*answer)(ares_trainer *t, const answer_job *job, ares_arena *arena, ares_group *out);
    /*
     * Scores of a draw that depend on the answers of all ranks; a collective, after all ranks have
     * answered. NULL: none does.
     */
    int (*normalise)(ares_trainer *t, ares_group *groups, int64_t count, ares_arena *arena);
    /* Metrics of all that was answered since the last report; a collective. NULL: none. */
    int (*report)(ares_trainer *t, const char *prefix, ares_metrics *m);
} generator;
/* The policy answers the prompt by itself, in one turn. */
extern const generator generate_single_turn;

/* The configured sampling; the generator adds stop ids. */
void answer_sampling(const ares_train_config *c, ares_sampling *out);
/* Whether answers that could not be judged, or whose environments failed, are discarded. */
bool answer_discards_failures(const ares_trainer *t);
/*
 * Marks answers as discarded: those that algorithm.mask_truncated or worker.reward.max_length
 * discard and, where answer_discards_failures says so, those that failed.
 */
void answer_discard(const ares_trainer *t, ares_group *groups, int64_t count);
/*
 * Answers to rows of a source outside of a step's batch. Each kind of pass has a sampling key of
 * its own, so that it never changes what training samples.
 */
enum { ANSWER_VALIDATION, ANSWER_BOOTSTRAP, ANSWER_EVALUATION /* + i: of data set i */ };
typedef struct answer_pass {
    const ares_source *source;
    const ares_sampling *sampling;
    int64_t n;   /* answers to each prompt */
    int64_t key; /* ANSWER_* */
} answer_pass;
/* Tells the progress display how many answers are to come: n to each prompt of this rank. */
void answer_expect(const ares_trainer *t, int64_t prompts, int64_t n);
/* How many of `count` prompts this rank answers, where ranks take turns. */
int64_t answer_share(const ares_trainer *t, int64_t count);
/* Answers this rank's share of rows [at, end): groups out [*count], in the arena. */
int answer_rows(ares_trainer *t, const answer_pass *p, int64_t at, int64_t end, ares_arena *arena,
                ares_group **out, int64_t *count);

/* Which rank trains on which groups of a batch. (exchange.c) */

/*
 * The rank [count] of each group, from the work [count] of the groups; both by place in the batch.
 * Groups are divided within each chunk of consecutive places, and every rank gets at least one: a
 * mini-batch, which is one or more chunks, has the same groups for every rank count. balance:
 * evenly by work; false: in turn. chunk and count are multiples of ranks
 * (docs/design.md#balance-between-ranks).
 */
int balance_groups(const int64_t *work, int64_t count, int64_t chunk, int64_t ranks, bool balance,
                   int64_t *rank);

/* The groups that a rank has in a step. (collect.c) */

typedef struct step_groups {
    ares_group *items; /* [count] in the step's arena, with their arrays and texts */
    int64_t count, capacity;
    ares_arena *arena;
} step_groups;

ares_group *step_groups_add(step_groups *c); /* to be filled by the caller */
/* A new array in the arena, of `capacity` + 1 items; the first n are copied from `items`. */
void *arena_grown(ares_arena *arena, const void *items, int64_t n, int64_t capacity, size_t size);

/* Prompts that are drawn together, and this rank's answers to its share. (collect.c) */

typedef struct prompt_draw {
    int64_t total, count; /* prompts: of all ranks, of this one */
    ares_drawn *prompts;  /* [total] */
    const int64_t *owner; /* [total] the ranks that answer them; NULL: ranks take turns */
    int64_t attempt;      /* how often they have been answered before in this step */
    /* this rank's share */
    ares_group *groups; /* [count] */
    int64_t tokens;     /* that were written, greedy baselines included */
} prompt_draw;

/* The next `total` prompts of the source. */
int draw_prompts(ares_trainer *t, ares_arena *arena, int64_t total, prompt_draw *d);
/* The prompts of a draw whose groups were not kept, to be answered once more. */
void draw_again(ares_arena *arena, const bool *keep, prompt_draw *d);
/* Samples and judges this rank's share of the prompts. */
int draw_answer(ares_trainer *t, ares_arena *arena, prompt_draw *d, ares_metrics *m);
/*
 * Answers the prompts of groups greedily, where the estimator compares with such a baseline, and
 * writes the scores to the groups. *tokens: those that were written are added.
 */
int draw_baselines(ares_trainer *t, ares_arena *arena, ares_group *groups, int64_t count,
                   int64_t *tokens, ares_metrics *m);

/* The rounds of draws that make a step's batch, and what filters see of them. (collect.c) */

/* Of one answer: the reward manager's score before any shaping, and as the batch would have it. */
typedef struct answer_numbers {
    double score, overall, accuracy, length, entropy;
    uint8_t valid; /* not discarded */
} answer_numbers;

typedef struct step_draws {
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
    prompt_draw last;
    bool *keep;          /* [last.total]: its groups that stay */
    ares_drawn *prompts; /* [draws.drawn] */
    /* where filters look, of all ranks: of group g [first[g], first[g + 1]) */
    answer_numbers *numbers;
    int64_t *first; /* [draws.drawn + 1] */
    double *caps;   /* [draws.drawn] of the mean score; NaN: none */
    /* accuracies of this rank's answers that were judged and not discarded: sum, number */
    double right[2];
    /* counts of this rank's answers: discarded for their length, failed, all */
    double discarded, failed, answers;
    double tokens; /* of this rank's answers, greedy baselines included */
} step_draws;

/*
 * r->keep: which groups of the last draw stay. Filters see the groups of all ranks, in the order of
 * the draw, and decide alike on every rank. A collective.
 */
int filter_last_draw(ares_trainer *t, step_draws *r, ares_arena *arena, ares_metrics *m);

/*
 * Fills a batch with the groups of the step that this rank trains on: samples with their scores,
 * and the columns of stage gen. (collect.c)
 */
int collect_groups(ares_trainer *t, ares_batch *b, ares_metrics *m);

/* What the engine is asked for, and the answers that it becomes. (answer.c) */

/* What a request to the engine is about. */
typedef struct queued {
    ares_group *group;
    const ares_trajectory *partial; /* the answer that goes on; NULL: all answers of the group */
    int32_t item;                   /* of the group: where that answer is */
} queued;

typedef struct engine_queue {
    ares_trainer *t;
    ares_sampling sampling;
    ares_rng_key key;
    ares_arena *arena;
    queued *items; /* [n] by the engine's number of the request, which counts from 0 */
    int64_t n, capacity;
    queued *full; /* [n_full] answers that are at full length already, not yet handed out */
    int64_t n_full, full_capacity;
} engine_queue;

/* Empties the engine, and adds the configured stop ids to the sampling. key: of a job. */
int engine_queue_open(engine_queue *q, ares_trainer *t, const ares_sampling *sampling,
                      ares_rng_key key, ares_arena *arena);
/*
 * Asks for n answers to a prompt, or for the rest of those that were begun. g becomes the group and
 * stays where it is; answers that have ended before are in it. start: on the clock of
 * ares_rollout_hold.
 */
int engine_queue_add(engine_queue *q, const answer_prompt *p, int32_t n, int64_t attempt,
                     int64_t start, ares_group *g);
/* The next answer that has ended or is cut, in its group; NULL: there is none. */
ares_trajectory *engine_queue_next(engine_queue *q, ares_group **of);

/* Groups go from the ranks that answered them to those that train on them. (exchange.c) */

/*
 * c: this rank's groups of a batch of `count`, each with its place; on return those that it trains
 * on, in no order. Every rank gets as many of each mini-batch, with even work where
 * trainer.balance_batch asks for it. A collective.
 */
int exchange_groups(ares_trainer *t, step_groups *c, int64_t count);

/* Groups of a step that are answered at the same time, and their common clock. (oversample.c) */

/* A group that this rank answers. */
typedef struct own_group {
    ares_group group; /* first: the engine's queue knows an own_group by it */
    int64_t id, start;
    int32_t left;  /* answers that have not ended */
    int32_t *had;  /* [n] tokens of each answer when it was fetched */
    int64_t *ends; /* [n] when each has ended; NOT_YET */
} own_group;

/* What every rank knows of a group. */
typedef struct in_flight {
    ares_drawn prompt;
    int64_t rank;  /* that answers it */
    int64_t start; /* when it was fetched */
    int64_t ends;  /* when the last of its answers has ended; NOT_YET */
    enum { PLAYING, KEPT, SURPLUS, DROPPED } state;
    int64_t number; /* not PLAYING: of the group in the step, in the order in which they ended */
    own_group *own; /* NULL: another rank's */
} in_flight;

typedef struct ended_answer {
    own_group *of;
    int32_t item;
} ended_answer;

typedef struct in_flight_set {
    ares_trainer *t;
    ares_arena *arena;
    engine_queue queue;
    int64_t clock;     /* the engine has run until then */
    int64_t window;    /* of the clock, between two looks at what has ended */
    bool behind;       /* groups were fetched since the engine ran: it has to catch up */
    in_flight *groups; /* [n] as they were fetched */
    int64_t *order;    /* [n] their numbers, in the order of their draws */
    int64_t n;
    int64_t *news; /* [n_news] own groups that have ended since all ranks were told */
    int64_t n_news;
    ended_answer *ended; /* [n_ended] answers that are not judged yet */
    int64_t n_ended, ended_capacity;
    int64_t preemptions;
} in_flight_set;

/* Over-sampling: groups join the batch as they end. (oversample.c) */

/* Whether the options ask that groups are taken as they end, instead of draw by draw. */
bool oversampling_wanted(const ares_train_config *c);
/*
 * Draws prompts until the batch is full, as r->over says, and cuts what has not ended then. r->last
 * becomes all groups that have ended, as one draw, each with its number in the step as its place;
 * those that go on later are given back to the source. Sets the metrics over_sampling/... A
 * collective.
 */
int oversample(ares_trainer *t, step_draws *r, ares_arena *arena, ares_metrics *m);

/* Answers that continue in a later step: what they may write, what is trained. (answer.c) */

/* Tokens that an answer may still write; 0: it is cut off by length. */
int32_t partial_budget(int32_t max_response_length, int32_t had);
/*
 * The mask of an answer's had + n tokens: the first `had` are of earlier steps, and keep theirs
 * unless mask_offpolicy leaves them out.
 */
void partial_mask(uint8_t *mask, int32_t had, int32_t n, bool mask_offpolicy);

/* Steps whose filters keep nothing. (collect.c) */

/* Counts a draw of so many prompts; kept: a group of it is. */
void progress_count(step_draws *r, bool kept, int64_t prompts);
/* Adds to the pending error how many groups of the step were dropped, by reason; returns rc. */
int progress_add_drops(const ares_metrics *m, int rc);
/* ARES_ELIMIT with the counts of what was dropped, where nothing will ever be kept. */
int progress_check(const ares_trainer *t, const step_draws *r, const ares_metrics *m,
                   const char *remedy);

/* Answers on their way through the reward manager. (answer.c) */

typedef struct scoring {
    ares_reward *reward;
    const ares_tokenizer *tokenizer;
    bool skip_special_tokens;
    bool votes;                    /* answers are asked for, which majorities count */
    const ares_vapor_config *span; /* only a part of an answer is judged; NULL: all of it */
    ares_arena *arena;
    ares_str text; /* scratch */
    struct judged *first;
    bool unjudged; /* scores stay 0: nothing reads them */
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
/* Waits likewise. To be called after failures, too: the reward manager still reads the arena. */
void scoring_close(scoring *s, ares_metrics *m);

/* Reads and checks worker.rollout.trigger_tokens_file before anything loads; faults go to cfg. */
void triggers_check(ares_config *cfg, const ares_rollout_config *r);
/* Fills t->triggers from the file, if there is one. Warns of words that are no single token. */
int triggers_load(ares_trainer *t);
#endif
