/*
 * Matrix environments in an answer: where they stand, their cells, and the text around them
 * (docs/rewards.md#target-and-reference).
 */
#ifndef ARES_GRADE_MATH_MATRIX_H
#define ARES_GRADE_MATH_MATRIX_H

#include "edit.h"

typedef struct matrix {
    size_t from, to;  /* bytes of the text: from \begin to after \end{..} */
    ares_view body;   /* cells, trimmed, without a row end after the last row */
    bool determinant; /* vmatrix, as many rows as columns */
} matrix;

/*
 * The outermost matrix environments of a text, left to right: matrix, pmatrix, bmatrix, Bmatrix,
 * vmatrix, Vmatrix, the same with "small" before "matrix" or a star after it, and array.
 */
matrix *matrix_all(ares_view text, ares_arena *arena, int64_t *n);
/* The cell from *i on; moves *i to the next one. *row: a row ends with it. False at the end. */
bool matrix_cell(ares_view body, size_t *i, ares_view *cell, bool *row);
/*
 * The text with letters[k], in braces, in place of list[k]; a determinant's letter stands between
 * bars.
 */
ares_view matrix_outside(ares_view text, const matrix *list, int64_t n, const char *letters,
                         ares_arena *arena);
#endif
