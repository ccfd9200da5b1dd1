/*
 * Private to env: what the built-in environments share or show to tests, the built-in tags, and
 * the table of types.
 */
#ifndef ARES_ENV_INTERNAL_H
#define ARES_ENV_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "ares/core.h"
#include "ares/env.h"

/* Boards as text: what Sokoban and FrozenLake print alike. */

#define BOARD_FORMATS "grid|coord|grid_coord"
#define BOARD_FORMAT_DOC "the state as a map, as coordinates, or as both"

typedef void board_part(const void *env, ares_str *out);
/* The state in a format: the map, the coordinates, or both under headings. */
void board_render(const char *format, const void *env, board_part *grid, board_part *coordinates,
                  ares_str *out);
/* "Board size: 6 rows x 6 cols (zero-indexed)." */
void board_add_size(ares_str *out, int rows, int cols);
/* a new line "label: (r, c), (r, c)" of cells [n]; nothing when n is 0 */
void board_add_cells(ares_str *out, const char *label, const int *cells, int n, int cols);

/* Countdown's judgement of an answer. */

enum { COUNTDOWN_NUMBERS = 10 };
typedef struct countdown_problem {
    int n;
    int64_t number[COUNTDOWN_NUMBERS];
    double target;
} countdown_problem;

typedef enum { COUNTDOWN_WRONG_NUMBERS, COUNTDOWN_WRONG_VALUE, COUNTDOWN_RIGHT } countdown_verdict;
countdown_verdict countdown_judge(ares_view answer, const countdown_problem *p);

/* FrozenLake from a given map on, for reset and for tests. */

enum { FROZEN_LAKE_SIDE = 32, FROZEN_LAKE_CELLS = FROZEN_LAKE_SIDE * FROZEN_LAKE_SIDE };

typedef struct frozen_lake_map {
    int size, start;
    char cell[FROZEN_LAKE_CELLS]; /* [size x size] F frozen, H hole, S start, G goal */
    int boards;                   /* drawn until one had a way from S to G */
} frozen_lake_map;

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

/* Data of environments: files of JSON lines. */

/*
 * Calls each with every line, until it fails or `most` lines are read (0: all). The lines live in
 * the arena. Empty lines are skipped. A failure names file and line.
 */
int env_rows_read(const char *path, int64_t most, ares_arena *arena,
                  int (*each)(void *ctx, const ares_json *row), void *ctx);

/* Rooms of Sokoban, as gym-sokoban and RAGEN make them (docs/environments.md#sokoban). */

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

/* Sokoban from a given room on, for reset and for tests. */

/* fixed, state [rows x cols]: copied; there is one player */
void sokoban_enter(void *env, const uint8_t *fixed, const uint8_t *state);
/* the cells of the present state [rows x cols] */
const uint8_t *sokoban_state(const void *env);

/* The built-in tags. */

typedef struct env_tag {
    const char *name, *type, *instruction;
    int max_actions, max_tokens;
    const char *options; /* a JSON object */
} env_tag;
extern const env_tag env_tags[];
extern const int env_tag_count;

/* The table of types, and what types share (env.c). */

/* Adds a number about the step, which has none of this name; one too many is counted alone. */
static inline void env_tell(ares_env_outcome *o, const char *name, double value)
{
    if (o->n_info < ARES_ENV_INFO) o->info[o->n_info++] = (ares_env_info){ name, value };
    else o->dropped++;
}
/* Replaces the number of this name, or adds it. (env.c) */
void env_tell_again(ares_env_outcome *o, const char *name, double value);
#endif
