/* Writing JSON lines (jsonl.c). Reading them is public. */
#ifndef ARES_IO_JSONL_H
#define ARES_IO_JSONL_H

#include "ares/core.h"

/*
 * Appending writer; each row reaches the system whole. The file is cut after its first keep_rows
 * rows: 0 empties it, -1 keeps all complete rows (a torn last line is dropped).
 */
typedef struct jsonl_writer jsonl_writer;
int jsonl_create(const char *path, int64_t keep_rows, jsonl_writer **out);
/* without the newline */
int jsonl_write(jsonl_writer *w, const char *line, size_t len);
int jsonl_sync(jsonl_writer *w); /* fsync: what was written is on the disk */
int jsonl_finish(jsonl_writer *w);
#endif
