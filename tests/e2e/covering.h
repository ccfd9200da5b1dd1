/* Few combinations that hold every pair of levels of some factors, but for pairs that exclude
 * each other. */
#ifndef TESTS_COVERING_H
#define TESTS_COVERING_H

#include <stdbool.h>
#include <stdint.h>

enum { COVERING_FACTORS = 20, COVERING_LEVELS = 20, COVERING_ROWS = 400 };

typedef struct covering {
    int factors, levels[COVERING_FACTORS];
    bool (*excluded)(int f, int level, int g, int other); /* in either order */
    bool (*dull)(int f, int level); /* a combination with it shows its own pairs only */
    int rows, row[COVERING_ROWS][COVERING_FACTORS]; /* written */
} covering;

/* Makes c->row, the same for the same seed. pairs: also every pair of levels; false: every
 * level alone. A pair that fits into no combination though it is not excluded ends it: false,
 * with the pair in c->row[c->rows], where other factors have -1. */
bool covering_make(covering *c, bool pairs, uint64_t seed);
#endif
