/* Numbers of a model between this rank's memory and files, rectangle by rectangle. */
#ifndef ARES_MODEL_PIECES_H
#define ARES_MODEL_PIECES_H

#include "ares/model.h"

/*
 * What elements [first, first + n) of a region are in files: rectangles of tensors in
 * the order of files, which together hold each of their numbers once. Padding belongs to none. The
 * rectangle's elements lie side by side in the region from `at` on, as a matrix of rows x columns
 * would. In PANEL32 first and n are multiples of 32. At the two ends a rectangle may be a part of a
 * row or panel; between them are whole ones.
 */
typedef void rectangle_fn(void *ctx, const ares_param *p, int64_t row, int64_t rows, int64_t column,
                          int64_t columns, int64_t at);
void pieces_of_region(const ares_model *m, int r, int64_t first, int64_t n, rectangle_fn *fn,
                      void *ctx);

/* What a model has a number of per element; the last three once the optimizer has memory. */
typedef enum { OF_WEIGHTS, OF_M, OF_V, OF_MASTER } piece_kind;

/* A rectangle of a parameter's tensor. */
typedef struct piece {
    const ares_param *p;
    int64_t row, rows, column, columns;
    int64_t at;         /* of the region's elements, its first */
    ares_matrix memory; /* [rows][columns], where this rank has it */
} piece;
typedef int piece_fn(void *ctx, const piece *x);

/* Whether files have numbers of that kind for the parameter. */
bool pieces_exist(const ares_model *m, const ares_param *p, piece_kind kind);
/* Everything of that kind in this rank's memory. Ends with the first failure. */
int pieces_held(const ares_model *m, piece_kind kind, piece_fn *fn, void *ctx);
int pieces_held_of(const ares_model *m, int region, piece_kind kind, piece_fn *fn, void *ctx);
/* The weights of the same rectangle in another model of these parameters; this rank has them. */
ares_matrix pieces_other(const ares_model *other, const piece *x);
/*
 * What rank `rank` of `ranks` writes of a region, in turns of at most 16 million elements; the
 * ranks together write everything once. Every rank has the same number of turns, some of them
 * empty.
 */
int64_t pieces_turns(const ares_region *r, int ranks);
int pieces_of_turn(const ares_model *m, int region, piece_kind kind, int rank, int ranks,
                   int64_t turn, piece_fn *fn, void *ctx);

/* tensor: the whole one in host memory, of which the rectangle is taken. */
int piece_put(ares_model *m, const piece *x, const void *tensor, ares_dtype dtype);
/* Adds to *sum what rows, the rectangle's numbers in a file, contribute (fingerprint.c). */
void fingerprint_add(const ares_model *m, const piece *x, piece_kind kind, const void *rows,
                     ares_dtype dtype, uint64_t *sum);
#endif
