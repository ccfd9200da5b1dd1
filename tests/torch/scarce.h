/*
 * libtorch's memory of the CPU, refused as a card's is: with libtorch's own exception, and in its
 * words.
 */
#ifndef ARES_TESTS_SCARCE_H
#define ARES_TESTS_SCARCE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Refuses so many allocations, after so many more. */
void scarce(int64_t after, int64_t times);
/* Bytes of the largest allocation since then. */
int64_t scarce_largest(void);
/* Ends it; how many were refused. */
int64_t scarce_end(void);

#ifdef __cplusplus
}
#endif
#endif
