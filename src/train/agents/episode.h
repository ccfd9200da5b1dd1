/* An episode: an environment, and the conversation with it. (episode.c) */
#ifndef ARES_TRAIN_AGENTS_EPISODE_H
#define ARES_TRAIN_AGENTS_EPISODE_H

#include "agents/agents.h"

enum { EPISODE_INFO = 32 };

typedef struct episode {
    int64_t prompt; /* of the job */
    int32_t item;   /* its number within the group */
    const agents_row *row;
    agents_place *place; /* its environment, while the episode goes on */
    ares_env_start start;
    conversation talk;
    ares_env_answer answer;           /* the latest, in the arena */
    ares_env_turn did;                /* what the environment did on it */
    ares_str turns;                   /* JSON, as rollouts show it; freed when it ends */
    ares_env_info info[EPISODE_INFO]; /* sums over the turns; names in the arena */
    int n_info;
    int64_t dropped;      /* numbers of the environment that found no place */
    int32_t cut, invalid; /* turns whose answers were ended by length; that had no known action */
    bool full;            /* a prompt left no token for an answer, which ended the episode */
    /* of the finished episode */
    bool won, failed, replayable;
    int64_t num_actions, unasked, trained, rows; /* trained: tokens with mask 1 */
} episode;

/* The draw's number says how the environment is to begin. */
void episode_begin(episode *x, ares_trainer *t, int64_t draw, ares_arena *arena);
/* Resets the environment. May wait, and may be called on any thread (ares_env_type.waits). */
int episode_reset(episode *x);
bool episode_over(const episode *x, const ares_train_config *c);
/*
 * The next turn: what the environment shows, and the prompt. Where that leaves no token for an
 * answer, the episode is over (x->full) without this turn. ids is scratch.
 */
int episode_begin_turn(episode *x, ares_arena *arena, ares_ids *ids);
/* What the model wrote is read. version: of the weights. */
int episode_read(episode *x, const ares_completion *c, int32_t version, ares_arena *arena);
/* The environment acts on it. May wait, and may be called on any thread. */
int episode_act(episode *x);
/* What it did is noted: the turn is over. */
void episode_note(episode *x, ares_arena *arena);
/* The finished episode as a trajectory. */
int episode_end(episode *x, ares_trainer *t, ares_arena *arena, ares_trajectory *y);
/* Its numbers, for metrics. discards: a failed one counts as failed, and nowhere else. */
void episode_count(const episode *x, bool discards, measures *m);
#endif
