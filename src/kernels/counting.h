#ifndef ARES_KERNELS_COUNTING_H
#define ARES_KERNELS_COUNTING_H

#include "ares/kernels.h"

void kernels_counting_close(ares_device *d);
#endif
