/* Rows of a Parquet file, one after the other, as JSON text (parquet.c). */
#ifndef ARES_IO_PARQUET_H
#define ARES_IO_PARQUET_H

#include "ares/core.h"

typedef struct parquet parquet;
/* Whether a file is one: its first bytes are PAR1, or its name ends in .parquet. */
bool parquet_is(const char *path);
int parquet_open(const char *path, parquet **out);
/* 1 and the text of a row in *row; 0: the end; negative: a failure that names file and row. */
int parquet_next(parquet *p, ares_str *row);
void parquet_close(parquet *p);
#endif
