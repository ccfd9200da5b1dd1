/*
 * algo: what a sampler records for AEPO: the entropy of a token and its text as a trigger word
 * (src/algo/entropy.c; docs/aepo.md#entropy-windows-and-hwe-tokens).
 */
#ifndef ARES_ALGO_ENTROPY_H
#define ARES_ALGO_ENTROPY_H

#include "ares/core.h"

/*
 * Entropy of a token from the log-probs of its most probable candidates; tail: the rest of the
 * probability counts as one more outcome.
 */
double ares_entropy_top_k(const double *log_probs, int64_t n, bool tail);
/*
 * A token's text in the form in which trigger words are compared: leading U+2581 and U+0120
 * removed, then white space at both ends, then lower case. Replaces out.
 */
void ares_trigger_normalize(ares_view token, ares_str *out);
#endif
