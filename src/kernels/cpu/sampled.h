/* What is known of a row's logits, chunk by chunk, and what ranks tell each other of it. */
#ifndef ARES_KERNELS_CPU_SAMPLED_H
#define ARES_KERNELS_CPU_SAMPLED_H

#include <stdint.h>

/* Of a chunk, with e = exp(z - max): the sum of e, and of e (z - max). */
typedef struct vocab_part {
    float max, sum, sum_z;
} vocab_part;

typedef struct best {
    float key, logit;
    int32_t token;
} best; /* logit: before temperature; token -1: none */

typedef struct likely {
    float z;
    int32_t token;
} likely; /* z before temperature */

/* What a part knows of a chunk of a row. */
typedef struct chunk_result {
    vocab_part part, part_1;
    best best;
} chunk_result;

#endif
