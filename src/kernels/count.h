#ifndef ARES_KERNELS_COUNT_H
#define ARES_KERNELS_COUNT_H

#include "ares/kernels.h"

/* Counts bytes taken and given back; the tables' alloc and release call it. */
static inline void kernels_count(ares_device *d, size_t taken, size_t given_back)
{
    d->allocated += taken - given_back;
    d->most_allocated = d->allocated > d->most_allocated ? d->allocated : d->most_allocated;
}
#endif
