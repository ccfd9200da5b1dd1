/* FrozenLake from a given map on, for reset and for tests. */
#ifndef ENV_FROZEN_LAKE_H
#define ENV_FROZEN_LAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "ares/env.h"

enum { FROZEN_LAKE_SIDE = 32, FROZEN_LAKE_CELLS = FROZEN_LAKE_SIDE * FROZEN_LAKE_SIDE };

typedef struct frozen_lake_map {
    int size, start;
    char cell[FROZEN_LAKE_CELLS]; /* [size x size] F frozen, H hole, S start, G goal */
    int boards;                   /* drawn until one had a way from S to G */
} frozen_lake_map;

/* A map of the seed's stream; ARES_ELIMIT when no board of it has a way. */
int frozen_lake_map_make(uint64_t seed, int size, double p, frozen_lake_map *map);

/*
 * Where an action leads from a cell, in the order in which a draw chooses; returns how many: 1
 * or 3. Goal and holes lead nowhere else.
 */
typedef struct frozen_lake_outcome {
    double probability;
    int cell;
    bool reward; /* the goal is reached */
} frozen_lake_outcome;
int frozen_lake_outcomes(const void *env, int cell, int action, frozen_lake_outcome out[3]);

/* Begins an episode on the map (copied), as reset does. */
void frozen_lake_enter(void *env, const frozen_lake_map *map);
/* A step whose outcome is chosen by u in [0, 1). */
void frozen_lake_move(void *env, int action, double u, ares_env_outcome *out);
const frozen_lake_map *frozen_lake_map_of(const void *env);
int frozen_lake_player(const void *env); /* cell */

#endif
