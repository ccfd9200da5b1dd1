#ifndef ARES_MODEL_VISION_TOWER_H
#define ARES_MODEL_VISION_TOWER_H

#include "param.h"

/* Lists the tower's parameters, behind all others, in the frozen regions. */
void tower_list(listing *l);
#endif
