/* exp and log of the CPU kernels with one lane, whose bits every lane must give. */
#ifndef KERNELS_ONE_LANE_H
#define KERNELS_ONE_LANE_H

#define V16_LANES 1
#define ARES_ISA plain
#include "cpu/vec.h"

static inline float lane_exp(float x)
{
    return v16_exp(v16_set1(x)).l[0];
}
static inline float lane_log(float x)
{
    return v16_log(v16_set1(x)).l[0];
}

#endif
