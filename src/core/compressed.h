/* Files that may be compressed, read as a stream of bytes (compressed.c). */
#ifndef ARES_IO_COMPRESSED_H
#define ARES_IO_COMPRESSED_H

#include <stdio.h>

/*
 * Opens path, as ares_input_open does with input. The first bytes tell gzip and zstd from a plain
 * file, not the name; fclose closes all. After a failed read *why tells the reason; it stays NULL
 * where errno does.
 */
int compressed_open(const char *path, bool input, FILE **out, const char **why);
#endif
