/* Boards as text: what Sokoban and FrozenLake print alike. */
#ifndef ENV_BOARD_H
#define ENV_BOARD_H

#include "ares/core.h"

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

#endif
