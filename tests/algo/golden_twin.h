/*
 * Which implementation the adapters judge: ARES_TEST_DEVICE=cuda the twins of a card (or of the
 * library that ARES_CUDA_LIB names), unset the CPU's functions.
 */
#ifndef ARES_GOLDEN_TWIN_H
#define ARES_GOLDEN_TWIN_H

#include <stdio.h>
#include <stdlib.h>

#include "../../src/algo/twin.h"

static inline const algo_twins *golden_twins(ares_device **device)
{
    static ares_device d;
    static const algo_twins *twins;
    const char *name = getenv("ARES_TEST_DEVICE");
    *device = &d;
    if (!name || !*name || twins) return twins;
    if (ares_device_open(name, 0, &d) == ARES_OK) twins = twin_table_of(&d);
    if (!twins) {
        (void)fprintf(stderr, "golden: ARES_TEST_DEVICE = '%s': %s\n", name, ares_error_message());
        exit(2);
    }
    return twins;
}
#endif
