/*
 * A small set of combinations that together contain every pair of levels of some factors, except
 * pairs that exclude each other.
 */
#ifndef TESTS_COVERING_H
#define TESTS_COVERING_H

#include <stdbool.h>
#include <stdint.h>

enum { COVERING_FACTORS = 20, COVERING_LEVELS = 20, COVERING_ROWS = 400 };

typedef struct covering {
    int factors, levels[COVERING_FACTORS];
    bool (*excluded)(int f, int level, int g, int other); /* in either order */
    /* whether combinations with this level test only the pairs of this level */
    bool (*hides_others)(int f, int level);
    int rows, row[COVERING_ROWS][COVERING_FACTORS]; /* written */
} covering;

/*
 * Fills c->row; the same seed gives the same rows. pairs: cover every pair of levels, not only
 * every level. false: a pair fits into no combination though it is not excluded; c->row[c->rows]
 * then has this pair, and -1 for the other factors.
 */
bool covering_make(covering *c, bool pairs, uint64_t seed);
#endif
