/* Rooms of Sokoban, as gym-sokoban and RAGEN make them (docs/environments.md#sokoban). */
#ifndef ENV_SOKOBAN_ROOM_H
#define ENV_SOKOBAN_ROOM_H

#include <stdbool.h>
#include <stdint.h>

enum { SOKOBAN_SIDE = 32, SOKOBAN_CELLS = SOKOBAN_SIDE * SOKOBAN_SIDE, SOKOBAN_BOXES = 15 };
/* codes of cells */
enum {
    SOKOBAN_WALL,
    SOKOBAN_FLOOR,
    SOKOBAN_TARGET,
    SOKOBAN_BOX_ON_TARGET,
    SOKOBAN_BOX,
    SOKOBAN_PLAYER,
    SOKOBAN_CODES
};

typedef struct sokoban_size {
    int rows, cols, boxes, search_depth;
} sokoban_size;

typedef struct sokoban_room {
    uint8_t fixed[SOKOBAN_CELLS]; /* [rows x cols] walls, floor, targets */
    uint8_t state[SOKOBAN_CELLS]; /* [rows x cols] */
    int tries, displacement;      /* of the last try: distance of the boxes to their targets */
    int64_t explored, work;       /* states that its search saw; that all tries saw */
} sokoban_room;

/* up, down, left, right: the cell beside a cell */
int sokoban_beside(int cols, int cell, int direction);
/* false: this seed gives no room */
bool sokoban_room_make(uint64_t seed, const sokoban_size *size, sokoban_room *room);
/* the seed that is tried after one that gives no room */
uint64_t sokoban_next_seed(uint64_t seed);
/* Follows the chain of seeds from *seed, which becomes the one that gave the room. ARES_ELIMIT. */
int sokoban_room_find(uint64_t *seed, const sokoban_size *size, sokoban_room *room);

#endif
