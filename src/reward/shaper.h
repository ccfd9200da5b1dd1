/* Shapers: what the verifier of the same name adds to a score once the controls have seen the
 * batch. */
#ifndef ARES_REWARD_SHAPER_H
#define ARES_REWARD_SHAPER_H

#include "ares/data.h"

typedef struct reward_shaper {
    const char *name, *doc;
    const char *metric; /* name of the mean of what it adds */
    /* what to add, from what the controls have written into the sample */
    double (*shape)(const ares_sample *s);
} reward_shaper;
const reward_shaper *reward_shaper_find(const char *name); /* NULL: that verifier has none */
#endif
