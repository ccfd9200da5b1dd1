/* What the engine is asked for, and the answers that it becomes. (engine_queue.c) */
#ifndef ARES_TRAIN_COLLECT_ENGINE_QUEUE_H
#define ARES_TRAIN_COLLECT_ENGINE_QUEUE_H

#include "collect/answerer.h"

/* What a number of the engine stands for. */
typedef struct queued {
    ares_group *group;
    const ares_trajectory *begun; /* the answer that goes on; NULL: all answers of the group */
    int32_t item;                 /* of the group: where that answer is */
} queued;

typedef struct engine_queue {
    ares_trainer *t;
    ares_sampling sampling;
    ares_rng_key key;
    ares_arena *arena;
    queued *items; /* by the engine's number, which counts from 0 */
    int64_t n, capacity;
    queued *full; /* [n_full] answers that may write no further token, not yet handed out */
    int64_t n_full, full_capacity;
} engine_queue;

/* Empties the engine. key: of a job. */
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
#endif
