/* What libtorch asked of the runtime that stands in for a card's (runtime.c). */
#ifndef ARES_TESTS_RUNTIME_H
#define ARES_TESTS_RUNTIME_H

typedef struct fake_counts {
    int launches, products; /* kernels, and products by cuBLAS */
    int elsewhere;          /* of these and of clears and copies, not on the expected stream */
    int waits;              /* for a stream, an event or the card */
    int allocations;        /* of memory of the card */
} fake_counts;

/* Begins to count anew; work is expected on this stream. */
typedef void fake_expect_fn(void *stream);
typedef fake_counts fake_counts_fn(void);

#endif
