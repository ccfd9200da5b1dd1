#ifndef ARES_MODEL_VISION_TOWER_H
#define ARES_MODEL_VISION_TOWER_H

#include "param.h"

/* Lists the tower's parameters, behind all others, in the frozen regions. */
void tower_list(listing *l);
/*
 * Attention's windows in a grid: order[i] is the token, in the order of patches, that stands in
 * place i; window w has the places [start[w], start[w + 1]). Both arrays have room for tokens + 1
 * numbers. Returns the number of windows.
 */
int32_t tower_windows(const ares_vision_config *v, ares_grid grid, int32_t *order, int32_t *start);
/* The row and the column of each patch in the whole picture, in the order of patches. */
void tower_places(const ares_vision_config *v, ares_grid grid, int32_t *y, int32_t *x);
#endif
