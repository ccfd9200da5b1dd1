/* Data of environments: files of JSON lines. */
#ifndef ENV_ROWS_H
#define ENV_ROWS_H

#include "ares/core.h"

/*
 * Calls each with every line, until it fails or `most` lines are read (0: all). The lines live in
 * the arena. Empty lines are skipped. A failure names file and line.
 */
int env_rows_read(const char *path, int64_t most, ares_arena *arena,
                  int (*each)(void *ctx, const ares_json *row), void *ctx);

#endif
