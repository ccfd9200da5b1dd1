/*
 * Which implementation the adapters judge: ARES_TEST_DEVICE=cuda the twins of a card,
 * ARES_TEST_DEVICE=FILE.so those that a library exports (libares_algo_emulated.so), unset the CPU's
 * functions.
 */
#ifndef ARES_GOLDEN_TWIN_H
#define ARES_GOLDEN_TWIN_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/algo/twin.h"

static inline const algo_twins *golden_twins(ares_device **device)
{
    typedef const algo_twins *table_fn(void);
    static ares_device d;
    static const algo_twins *twins;
    const char *name = getenv("ARES_TEST_DEVICE");
    *device = &d;
    if (!name || !*name || twins) return twins;
    if (strcmp(name, "cuda") == 0) {
        if (ares_device_open(name, 0, &d) == ARES_OK) twins = twin_table_of(&d);
    } else if (ares_device_open("cpu", 1, &d) == ARES_OK) {
        table_fn *table = NULL;
        void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (library) *(void **)&table = dlsym(library, "ares_cuda_algo_twins");
        if (table) twins = table();
    }
    if (!twins) {
        (void)fprintf(stderr, "golden: ARES_TEST_DEVICE = '%s': %s\n", name,
                      strcmp(name, "cuda") == 0 ? ares_error_message() : dlerror());
        exit(2);
    }
    return twins;
}
#endif
