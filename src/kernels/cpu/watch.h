/*
 * Under the address sanitizer, a tile checks as a whole what it reads and writes, and its loops run
 * without a check at every access: those were most of the time of a sanitized run. Elsewhere this
 * is nothing. The plain build keeps its checks at every access (vec.h).
 */
#ifndef ARES_KERNELS_CPU_WATCH_H
#define ARES_KERNELS_CPU_WATCH_H

#include "ares/core.h"

#include <stdint.h>

#if defined __SANITIZE_ADDRESS__ && !defined ARES_ISA_PLAIN
#include <sanitizer/asan_interface.h>

#define TILE_UNWATCHED __attribute__((no_sanitize("address", "undefined")))

/* The sanitizer's own: what the compiler calls before an access, and where its shadow lies. */
void __asan_loadN(void *p, uintptr_t bytes);
void __asan_storeN(void *p, uintptr_t bytes);

/* Whether the shadow, a byte for eight, is 0 throughout: all of it may be touched. */
static inline TILE_UNWATCHED bool is_open(uintptr_t p, int64_t bytes)
{
    static uintptr_t shadow;
    size_t scale;
    if (!shadow) __asan_get_shadow_mapping(&scale, &shadow);
    const char *at = (const char *)(shadow + (p >> 3)),
               *last = (const char *)(shadow + ((p + (uintptr_t)bytes - 1) >> 3));
    uint64_t word, any = 0;
    for (; last - at >= 7; at += 8) {
        __builtin_memcpy(&word, at, sizeof word);
        any |= word;
    }
    for (; at <= last; at++) any |= (uint8_t)*at;
    return any == 0;
}

/* Rows of so many elements, stride elements apart. */
static inline TILE_UNWATCHED void watch(bool writes, const void *p, int64_t rows, int64_t stride,
                                        int64_t elements, int64_t element_bytes)
{
    uintptr_t at = (uintptr_t)p;
    ARES_ASSERT(at % (uintptr_t)element_bytes == 0);
    if (stride == elements) elements *= rows, rows = 1;
    int64_t bytes = elements * element_bytes;
    for (int64_t r = 0; r < rows && bytes > 0; r++, at += (uintptr_t)(stride * element_bytes)) {
        if (is_open(at, bytes)) continue; /* else the sanitizer decides, and reports */
        if (writes) __asan_storeN((void *)at, (uintptr_t)bytes);
        else __asan_loadN((void *)at, (uintptr_t)bytes);
    }
}
#else
#define TILE_UNWATCHED
static inline void watch(bool writes, const void *p, int64_t rows, int64_t stride, int64_t elements,
                         int64_t element_bytes)
{
    (void)writes, (void)p, (void)rows, (void)stride, (void)elements, (void)element_bytes;
}
#endif

#endif
