/* Sokoban from a given room on, for reset and for tests. */
#ifndef ENV_SOKOBAN_H
#define ENV_SOKOBAN_H

#include "sokoban_room.h"

/* fixed, state [rows x cols]: copied; there is one player */
void sokoban_enter(void *env, const uint8_t *fixed, const uint8_t *state);
/* the cells of the present state [rows x cols] */
const uint8_t *sokoban_state(const void *env);

#endif
