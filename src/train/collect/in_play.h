/* The groups of a step that are answered at the same time, and the clock they share. (in_play.c) */
#ifndef ARES_TRAIN_COLLECT_IN_PLAY_H
#define ARES_TRAIN_COLLECT_IN_PLAY_H

#include "collect/engine_queue.h"

#define NOT_YET INT64_MAX

/* A group that this rank answers. */
typedef struct own_group {
    ares_group group; /* first: the engine's queue knows an own_group by it */
    int64_t id, start;
    int32_t left;  /* answers that have not ended */
    int32_t *had;  /* [n] tokens of each answer when it was fetched */
    int64_t *ends; /* [n] when each has ended; NOT_YET */
} own_group;

/* What every rank knows of a group. */
typedef struct in_play {
    ares_drawn prompt;
    int64_t rank;  /* that answers it */
    int64_t start; /* when it was fetched */
    int64_t ends;  /* when the last of its answers has ended; NOT_YET */
    enum { PLAYING, KEPT, SURPLUS, DROPPED } state;
    int64_t number; /* not PLAYING: of the group in the step, in the order in which they ended */
    own_group *own; /* NULL: another rank's */
} in_play;

typedef struct ended_answer {
    own_group *of;
    int32_t item;
} ended_answer;

typedef struct play {
    ares_trainer *t;
    ares_arena *arena;
    engine_queue queue;
    int64_t clock;   /* the engine has run until then */
    int64_t window;  /* of the clock, between two looks at what has ended */
    bool behind;     /* groups were fetched since the engine ran */
    in_play *groups; /* [n] as they were fetched */
    int64_t *order;  /* [n] their numbers, in the order of their draws */
    int64_t n;
    int64_t *news; /* [n_news] own groups that have ended since all ranks were told */
    int64_t n_news;
    ended_answer *ended; /* [n_ended] answers that are not judged yet */
    int64_t n_ended, ended_capacity;
    int64_t preemptions;
} play;

int play_open(play *p, ares_trainer *t, ares_arena *arena);
/* Draws n prompts and has them answered from `now` on. A collective. */
int play_fetch(play *p, int64_t n, int64_t now);
/*
 * Lets all answers go on to the next look, and tells all ranks which groups have ended. A
 * collective.
 */
int play_advance(play *p);
/* The next moment at which a group ends, as far as is known; false: none is. */
bool play_next_end(const play *p, int64_t *moment);
/*
 * Cuts all answers of own groups in play that would have ended after `moment`, to where they were
 * then.
 */
void play_cut(play *p, int64_t moment);
/* Tokens that an own group's answers have got by then. */
int64_t play_tokens(const own_group *g, int64_t moment);
#endif
