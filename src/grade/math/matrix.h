/* Matrix environments in an answer: where they stand, their cells, and the text around them. */
#ifndef ARES_GRADE_MATH_MATRIX_H
#define ARES_GRADE_MATH_MATRIX_H

#include "edit.h"

typedef struct matrix {
    size_t from, to;  /* of the text: from \begin to after \end{..} */
    ares_view body;   /* cells, trimmed, the last row open */
    bool determinant; /* vmatrix, as many rows as columns */
} matrix;

/*
 * The outermost matrix environments of a text, left to right: matrix, pmatrix, bmatrix, Bmatrix,
 * vmatrix, Vmatrix, the same with "small" before "matrix" or a star after it, and array.
 */
matrix *matrix_all(ares_view text, ares_arena *arena, int64_t *n);
/* The next cell from *i on; *row: a row ends with it. False at the end. */
bool matrix_cell(ares_view body, size_t *i, ares_view *cell, bool *row);
/* The text with letters[k], in braces, in the place of list[k]; between bars for a determinant. */
ares_view matrix_outside(ares_view text, const matrix *list, int64_t n, const char *letters,
                         ares_arena *arena);
#endif
